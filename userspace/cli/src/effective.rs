//! The options of a recording, including defaults: `--output-config`, `--log-level config`.
//!
//! The document is rocprofv3's (`NAME_config.json`): options that rocprofv3 has, too, have its
//! names (`config.hpp` of rocprofiler-sdk); gputrace's own options are added.

use std::{
    collections::BTreeMap,
    io::{self, Write as _},
};

use anyhow::Result;
use clap::{ArgAction, ArgMatches, Command, parser::ValueSource};
use gputrace_export::{Output, OutputError, json::traces};
use gputrace_session::{Finished, Request, output_config};
use serde_json::{Value, json};

use crate::args::{Cli, boolean};

/// Every option's name, with `_`, and its value.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Options(BTreeMap<String, Value>);

impl Options {
    /// The options in `matches`, which `command` has parsed.
    pub(crate) fn of(command: &Command, matches: &ArgMatches) -> Self {
        let mut options = BTreeMap::new();
        for arg in command.get_arguments() {
            let (Some(long), action) = (arg.get_long(), arg.get_action()) else {
                continue;
            };
            if matches!(
                action,
                ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong | ArgAction::Version
            ) {
                continue;
            }
            let id = arg.get_id().as_str();
            let raw = matches.get_raw(id).into_iter().flatten();
            let texts: Vec<String> = raw
                .map(|value| value.to_string_lossy().into_owned())
                .collect();
            let is_boolean = arg
                .get_value_names()
                .is_some_and(|names| names.iter().any(|name| name == "BOOL"));
            let value = |text: &String| match boolean(text) {
                Ok(truth) if is_boolean => truth.into(),
                _ => text
                    .parse::<u64>()
                    .map_or_else(|_| text.as_str().into(), Value::from),
            };
            let value = match action {
                ArgAction::SetTrue => {
                    (matches.value_source(id) != Some(ValueSource::DefaultValue)).into()
                }
                ArgAction::Append => texts.iter().map(value).collect(),
                _ => texts.first().map_or(Value::Null, value),
            };
            options.insert(long.replace('-', "_"), value);
        }
        Self(options)
    }

    /// Human-readable: one line for each option that has a value.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> {
        let given = self.0.iter().filter(|(_, value)| !value.is_null());
        given.map(|(name, value)| format!("  {name} = {value}"))
    }
}

/// Writes `NAME_config.json` beside the recording's other files.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn write(
    options: &Options,
    cli: &Cli,
    request: &Request,
    finished: &Finished,
) -> Result<Output> {
    let document = document(options, cli, request, finished);
    let mut file = finished
        .directory
        .file(&format!("{}_config.json", finished.name))?;
    serde_json::to_writer_pretty(&mut file, &document)
        .map_err(io::Error::from)
        .and_then(|()| writeln!(file))
        .map_err(OutputError::from)?;
    Ok(file.finish("effective options")?)
}

fn document(options: &Options, cli: &Cli, request: &Request, finished: &Finished) -> Value {
    let mut config = traces(|domain| request.domains.contains(&domain));
    let formats = &request.output.formats;
    config.extend(output_config(
        formats,
        finished.directory.path(),
        &finished.name,
    ));
    let rest = json!({
        "raw_output_path": request.output.directory.to_string_lossy(),
        "raw_output_file": request.output.name,
        "gputrace": options.0,
    });
    if let Value::Object(rest) = rest {
        config.extend(rest);
    }
    let environment: BTreeMap<String, String> = std::env::vars_os()
        .map(|(name, value)| {
            (
                name.to_string_lossy().into_owned(),
                value.to_string_lossy().into_owned(),
            )
        })
        .collect();
    let program = cli.record.program.iter().map(|word| word.to_string_lossy());
    json!({"rocprofiler-sdk-tool": [{"metadata": {
        "pid": finished.main_pid,
        "init_time": finished.began,
        "fini_time": finished.ended,
        "config": config,
        "command": program.collect::<Vec<_>>(),
        "build_spec": {
            "tool": "gputrace",
            "version": env!("CARGO_PKG_VERSION"),
            "system_name": "Linux",
            "system_processor": std::env::consts::ARCH,
            "kernel_release": gputrace_session::kernel_release(),
        },
        "environment": environment,
    }}]})
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn options_have_types_and_defaults() {
        let command = crate::args::command();
        let given = [
            "gputrace",
            "-s",
            "-f",
            "csv,json",
            "--no-hold",
            "-o",
            "run",
            "--",
            "app",
        ];
        let options = Options::of(&command, &command.clone().get_matches_from(given));
        for (name, value) in [
            ("sys_trace", json!(true)),
            ("hip_trace", Value::Null),
            ("stats", json!(false)),
            ("no_hold", json!(true)),
            ("force", json!(false)),
            ("output_format", json!(["csv", "json"])),
            ("output_file", json!("run")),
            ("max_threads", json!(4096)),
            ("summary_units", json!("nsec")),
        ] {
            assert_eq!(options.0[name], value, "{name}");
        }
        assert!(!options.0.contains_key("help"));
        assert!(
            options
                .lines()
                .any(|line| line == "  output_file = \"run\"")
        );
    }
}
