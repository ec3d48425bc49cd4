//! The output options in rocprofv3's terms: members of its configuration (`output_config.hpp`,
//! `config.hpp`), as shown in its JSON documents and by `--output-config`.

use std::path::Path;

use gputrace_analysis::summary::tables::DomainGroup;
use gputrace_export::kernels::KernelNames;
use gputrace_perfetto::GpuGrouping;
use serde_json::{Map, Value, json};

use super::formats::Format;
use crate::request::Formats;

/// The configuration members that follow from `formats`, for outputs called `name` in `directory`.
#[must_use]
pub fn output_config(formats: &Formats, directory: &Path, name: &str) -> Map<String, Value> {
    let Formats {
        kernels, tables, ..
    } = formats;
    let regex = |regex: &Option<regex::Regex>, default: &str| {
        let given = regex.as_ref().map(regex::Regex::as_str);
        given.unwrap_or(default).to_owned()
    };
    let groups: Vec<&str> = tables.groups.iter().map(DomainGroup::given).collect();
    let members = json!({
        "output_path": directory.to_string_lossy(),
        "output_file": name,
        "summary": tables.whole,
        "summary_per_domain": tables.per_domain,
        "summary_groups": groups,
        "summary_unit": tables.units.name(),
        "summary_file": formats.summary_file.as_deref().unwrap_or("stderr"),
        "summary_output": formats.summary || !tables.is_empty(),
        "kernel_rename": kernels.rename,
        "group_by_queue": formats.grouping == GpuGrouping::Queues,
        "kernel_filter_include": regex(&kernels.filter.include, ".*"),
        "kernel_filter_exclude": regex(&kernels.filter.exclude, ""),
        "demangle": !matches!(kernels.names, KernelNames::Mangled),
        "truncate": matches!(kernels.names, KernelNames::Truncated(_)),
        "minimum_output_bytes": formats.minimum_bytes,
        "selected_regions": formats.selected_regions,
    });
    let Value::Object(mut members) = members else {
        return Map::new();
    };
    for format in Format::all() {
        if let Some(key) = format.config_key() {
            members.insert(key.to_owned(), formats.list.contains(&format).into());
        }
    }
    if kernels.hide_markers {
        // Hidden markers count as not traced, although they were recorded.
        members.insert("marker_api_trace".to_owned(), false.into());
    }
    members
}

#[cfg(test)]
mod tests {
    use gputrace_analysis::summary::tables::TableOptions;
    use gputrace_export::kernels::KernelOptions;

    use super::*;

    #[test]
    fn what_was_asked_for_is_told() {
        let formats = Formats {
            list: ["csv", "rocpd"]
                .into_iter()
                .filter_map(Format::named)
                .collect(),
            kernels: KernelOptions {
                rename: true,
                hide_markers: true,
                names: KernelNames::Mangled,
                ..KernelOptions::default()
            },
            tables: TableOptions {
                groups: vec![DomainGroup::new("HIP_.*").unwrap()],
                ..TableOptions::default()
            },
            ..Formats::default()
        };
        let config = output_config(&formats, Path::new("/tmp/out"), "run");
        for (name, value) in [
            ("csv_output", json!(true)),
            ("json_output", json!(false)),
            ("rocpd_output", json!(true)),
            ("output_path", json!("/tmp/out")),
            ("output_file", json!("run")),
            ("kernel_rename", json!(true)),
            ("marker_api_trace", json!(false)),
            ("demangle", json!(false)),
            ("truncate", json!(false)),
            ("kernel_filter_include", json!(".*")),
            ("summary", json!(false)),
            ("summary_groups", json!(["HIP_.*"])),
            ("summary_unit", json!("nsec")),
            ("summary_file", json!("stderr")),
        ] {
            assert_eq!(config.get(name), Some(&value), "{name}");
        }
        let plain = output_config(&Formats::default(), Path::new("."), "run");
        assert_eq!(plain.get("marker_api_trace"), None);
    }
}
