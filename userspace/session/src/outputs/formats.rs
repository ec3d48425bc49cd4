//! The output formats, one row each: everything that the command line and a recording know about a
//! format.
//!
//! A new format needs a row here, an implementation of [`Exporter`], and a line in
//! `docs/guide/formats.md`.

use std::fmt;

use gputrace_export::{
    ExportError, Exporter, OutputDir,
    csv::{CsvExporter, CsvOptions},
    folded::FoldedExporter,
    json::JsonExporter,
    ndjson::NdjsonExporter,
    text::TextExporter,
};
use gputrace_otf2::Otf2Exporter;
use gputrace_parquet::ParquetExporter;
use gputrace_perfetto::{PerfettoExporter, PerfettoOptions};
use gputrace_pprof::PprofExporter;
use gputrace_rocpd::RocpdExporter;

use super::config::output_config;
use crate::{
    SessionError,
    request::{Formats, LiveFormat},
};

/// Everything known about one format.
struct Row {
    /// Name for `-f`, the same as its exporter's [`Exporter::format`].
    name: &'static str,
    /// Line in the help text.
    help: &'static str,
    /// Endings of its files, after the recording's name. The CSV files of domains are not listed:
    /// their names follow from the domains.
    files: &'static [&'static str],
    /// Member of rocprofv3's configuration that says whether this format is written; `None` if
    /// rocprofv3 does not have the format.
    config_key: Option<&'static str>,
    /// How the format is shown during the recording; `None` if it cannot be.
    live: Option<LiveFormat>,
    /// Checks before the recording that everything the format needs is available.
    check: fn() -> Result<(), SessionError>,
    /// Creates its files.
    begin: fn(&Beginning<'_>) -> Result<Box<dyn Exporter>, ExportError>,
}

/// What an exporter is started with.
struct Beginning<'a> {
    directory: &'a OutputDir,
    /// First part of the names of its files.
    name: &'a str,
    /// The output options.
    formats: &'a Formats,
}

impl Beginning<'_> {
    /// File name of a format that has a single file.
    fn results(&self, ending: &str) -> String {
        format!("{}_results.{ending}", self.name)
    }
}

/// All formats, in the order in which the help text lists them.
static ROWS: [Row; 10] = [
    Row {
        name: "pftrace",
        help: "Perfetto trace",
        files: &["_results.pftrace"],
        config_key: Some("pftrace_output"),
        live: None,
        check: nothing_needed,
        begin: |to| {
            let options = PerfettoOptions {
                grouping: to.formats.grouping,
                compress: to.formats.compress,
                native_events: to.formats.gpu_events,
            };
            let file = to.results("pftrace");
            Ok(Box::new(PerfettoExporter::with_options(
                to.directory,
                &file,
                options,
            )?))
        },
    },
    Row {
        name: "csv",
        help: "rocprofv3's CSV files",
        files: &[
            "_agent_info.csv",
            "_arguments.csv",
            "_counter_collection.csv",
            "_domain_stats.csv",
            "_kernel_classes.csv",
            "_kernel_names.csv",
            "_loss.csv",
            "_unfinished_calls.csv",
        ],
        config_key: Some("csv_output"),
        live: None,
        check: nothing_needed,
        begin: |to| {
            let options = CsvOptions {
                stats: to.formats.stats,
                arguments: to.formats.csv_arguments,
            };
            let directory = to.directory.clone();
            Ok(Box::new(CsvExporter::with_options(
                directory, to.name, options,
            )))
        },
    },
    Row {
        name: "json",
        help: "rocprofv3's JSON document",
        files: &["_results.json"],
        config_key: Some("json_output"),
        live: None,
        check: nothing_needed,
        begin: |to| {
            let config = output_config(to.formats, to.directory.path(), to.name);
            let document = JsonExporter::new(to.directory, &to.results("json"))?;
            Ok(Box::new(document.with_config(config)))
        },
    },
    Row {
        name: "rocpd",
        help: "rocprofv3's SQLite database",
        files: &["_results.db"],
        config_key: Some("rocpd_output"),
        live: None,
        check: nothing_needed,
        begin: |to| {
            Ok(Box::new(RocpdExporter::new(
                to.directory,
                &to.results("db"),
            )?))
        },
    },
    Row {
        name: "otf2",
        help: "Open Trace Format 2; needs OTF2's library",
        files: &["_results.otf2", "_results.def"],
        config_key: Some("otf2_output"),
        live: None,
        check: || Ok(gputrace_otf2::available()?),
        begin: |to| {
            let archive = format!("{}_results", to.name);
            Ok(Box::new(Otf2Exporter::new(to.directory, &archive)?))
        },
    },
    Row {
        name: "ndjson",
        help: "One JSON object per line, see docs/ndjson.md",
        files: &["_results.ndjson"],
        config_key: None,
        live: Some(LiveFormat::Ndjson),
        check: nothing_needed,
        begin: |to| {
            Ok(Box::new(NdjsonExporter::new(
                to.directory,
                &to.results("ndjson"),
            )?))
        },
    },
    Row {
        name: "parquet",
        help: "Apache Parquet, one file per table",
        files: &[
            "_calls.parquet",
            "_kernels.parquet",
            "_copies.parquet",
            "_events.parquet",
            "_losses.parquet",
        ],
        config_key: None,
        live: None,
        check: nothing_needed,
        begin: |to| Ok(Box::new(ParquetExporter::new(to.directory, to.name)?)),
    },
    Row {
        name: "folded",
        help: "Folded stacks for flame graphs; with --stacks",
        files: &["_gpu_time.folded", "_calls.folded", "_call_time.folded"],
        config_key: None,
        live: None,
        check: nothing_needed,
        begin: |to| Ok(Box::new(FoldedExporter::new(to.directory, to.name)?)),
    },
    Row {
        name: "pprof",
        help: "pprof profile of stacks; with --stacks",
        files: &["_stacks.pb.gz"],
        config_key: None,
        live: None,
        check: nothing_needed,
        begin: |to| Ok(Box::new(PprofExporter::new(to.directory, to.name)?)),
    },
    Row {
        name: "text",
        help: "One line per event, for people",
        files: &["_results.txt"],
        config_key: None,
        live: Some(LiveFormat::Text),
        check: nothing_needed,
        begin: |to| {
            Ok(Box::new(TextExporter::new(
                to.directory,
                &to.results("txt"),
            )?))
        },
    },
];

fn nothing_needed() -> Result<(), SessionError> {
    Ok(())
}

/// An output format: one row of the registry.
#[derive(Clone, Copy)]
pub struct Format(&'static Row);

impl Format {
    /// All formats, in the order in which the help text lists them.
    pub fn all() -> impl Iterator<Item = Self> {
        ROWS.iter().map(Self)
    }

    /// Finds a format by its name, ignoring case.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::all().find(|format| format.name().eq_ignore_ascii_case(name))
    }

    /// Name as users write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// Line in the help text, without a full stop.
    #[must_use]
    pub fn help(self) -> &'static str {
        self.0.help
    }

    /// How the format is shown during the recording; `None` if it cannot be.
    #[must_use]
    pub fn live(self) -> Option<LiveFormat> {
        self.0.live
    }

    /// Endings of its files, after the recording's name, without those that follow from domains.
    pub(crate) fn files(self) -> &'static [&'static str] {
        self.0.files
    }

    /// Member of rocprofv3's configuration that says whether this format is written.
    pub(crate) fn config_key(self) -> Option<&'static str> {
        self.0.config_key
    }

    /// Checks that everything the format needs is available.
    ///
    /// # Errors
    ///
    /// [`SessionError`] that says what is missing.
    pub(crate) fn check(self) -> Result<(), SessionError> {
        (self.0.check)()
    }

    /// Creates its files in `directory`, with names that begin with `name`.
    ///
    /// # Errors
    ///
    /// [`ExportError`] if a file cannot be created, or something that the format needs is missing.
    pub(crate) fn begin(
        self,
        directory: &OutputDir,
        name: &str,
        formats: &Formats,
    ) -> Result<Box<dyn Exporter>, ExportError> {
        (self.0.begin)(&Beginning {
            directory,
            name,
            formats,
        })
    }
}

impl PartialEq for Format {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Format {}

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Format").field(&self.name()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_is_found_by_its_name_and_its_exporter_bears_it() {
        let temporary = tempfile::tempdir().unwrap();
        let directory = OutputDir::open(temporary.path(), None).unwrap();
        for format in Format::all() {
            assert_eq!(Format::named(&format.name().to_uppercase()), Some(format));
            if format.check().is_ok() {
                let exporter = format
                    .begin(&directory, "run", &Formats::default())
                    .unwrap();
                assert_eq!(exporter.format(), format.name());
            }
        }
        assert_eq!(Format::named("xml"), None);
    }
}
