//! Options about summaries.

use clap::{ArgAction, Args, ValueEnum};
use gputrace_analysis::summary::tables::{DomainGroup, TableOptions, Units};
use gputrace_export::OutputError;
use gputrace_text::terminal;

use crate::{args::boolean, stdout};

/// Options about summaries, of recordings and of `export`.
#[derive(Debug, Args)]
#[command(next_help_heading = "Summary")]
pub(crate) struct SummaryArgs {
    /// Print where the time went, which calls hang, what was lost, and rocprofv3's table of all
    /// domains.
    #[arg(short = 'S', long, num_args = 0..=1, value_name = "BOOL", default_missing_value = "true",
          value_parser = boolean, action = ArgAction::Set, default_value = "false", hide_default_value = true)]
    pub(crate) summary: bool,

    /// Print rocprofv3's table of statistics for each domain.
    #[arg(short = 'D', long, num_args = 0..=1, value_name = "BOOL", default_missing_value = "true",
          value_parser = boolean, action = ArgAction::Set, default_value = "false", hide_default_value = true)]
    pub(crate) summary_per_domain: bool,

    /// Print one table for all domains whose names match this regular expression, e.g.
    /// 'KERNEL_DISPATCH|MEMORY_COPY'; repeat for more tables.
    #[arg(long, value_name = "REGEX", value_parser = group)]
    pub(crate) summary_groups: Vec<DomainGroup>,

    /// Unit in rocprofv3's tables (-S, -D, --summary-groups).
    #[arg(
        short = 'u',
        long,
        value_enum,
        value_name = "UNIT",
        default_value = "nsec"
    )]
    pub(crate) summary_units: Unit,

    /// Also show these percentiles of the durations in rocprofv3's tables, each to within 1 %
    /// [default if given without a value: 50,95,99].
    #[arg(long, num_args = 0..=1, require_equals = true, value_name = "LIST", value_parser = percentile,
          value_delimiter = ',', default_missing_values = ["50", "95", "99"])]
    pub(crate) percentiles: Vec<f64>,

    /// Print full names, even if lines do not fit the terminal. Files and pipes always get full
    /// names.
    #[arg(long)]
    pub(crate) wide: bool,

    /// Write the summary and the tables to the file NAME_FILE.txt; 'stdout' and 'stderr' print
    /// them.
    #[arg(long, value_name = "FILE", value_parser = file, default_value = "stderr")]
    pub(crate) summary_output_file: String,
}

/// Units of time, as rocprofv3 names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Unit {
    /// Seconds.
    Sec,
    /// Milliseconds.
    Msec,
    /// Microseconds.
    Usec,
    /// Nanoseconds.
    Nsec,
}

impl From<Unit> for Units {
    fn from(unit: Unit) -> Self {
        match unit {
            Unit::Sec => Self::Sec,
            Unit::Msec => Self::Msec,
            Unit::Usec => Self::Usec,
            Unit::Nsec => Self::Nsec,
        }
    }
}

impl SummaryArgs {
    /// The tables that are asked for.
    pub(crate) fn tables(&self) -> TableOptions {
        TableOptions {
            // Percentiles need a table whose columns they can be.
            per_domain: self.summary_per_domain
                || (!self.percentiles.is_empty() && self.summary_groups.is_empty()),
            groups: self.summary_groups.clone(),
            whole: self.summary,
            units: self.summary_units.into(),
            percentiles: self.percentiles.clone(),
            remarks: !self.summary,
            columns: self.columns(),
        }
    }

    /// Maximum width of the texts in columns.
    fn columns(&self) -> Option<usize> {
        match self.summary_output_file.as_str() {
            _ if self.wide => None,
            "stdout" => terminal::columns(&terminal::stdout()),
            "stderr" => terminal::columns(&terminal::stderr()),
            _ => None,
        }
    }

    /// The file for the texts, if they are not printed.
    pub(crate) fn file(&self) -> Option<String> {
        let stream = ["stdout", "stderr"].contains(&self.summary_output_file.as_str());
        (!stream).then(|| self.summary_output_file.clone())
    }

    /// Whether anything goes to standard output.
    pub(crate) fn takes_stdout(&self) -> bool {
        self.summary_output_file == "stdout" && (self.summary || !self.tables().is_empty())
    }

    /// Prints the texts.
    ///
    /// # Errors
    /// [`OutputError`] if they cannot be written although somebody reads them.
    pub(crate) fn print(&self, text: &str) -> Result<(), OutputError> {
        if self.summary_output_file == "stdout" {
            return stdout::print(text);
        }
        match terminal::write(&mut terminal::stderr().lock(), text) {
            Err(error) if !terminal::is_unread(&error, &terminal::stderr()) => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// A number from 0 to 100.
pub(crate) fn percentile(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
        _ => Err("expected numbers from 0 to 100, e.g. 50,95,99".to_owned()),
    }
}

/// Parses a regular expression for domains.
pub(crate) fn group(text: &str) -> Result<DomainGroup, String> {
    DomainGroup::new(text).map_err(|error| {
        format!(
            "{error}\nwrite a regular expression for whole names of domains: 'KERNEL_DISPATCH|MEMORY_COPY', 'HIP_API', \
             '.*'"
        )
    })
}

/// Parses the name of a file, or of a stream in upper or lower case.
fn file(text: &str) -> Result<String, String> {
    let lower = text.to_ascii_lowercase();
    match lower.as_str() {
        "stdout" | "stderr" => Ok(lower),
        _ if text.is_empty() || text.contains('/') => Err(
            "expected stdout, stderr or a name without '/': the file is NAME_FILE.txt in the output directory".to_owned(),
        ),
        _ => Ok(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::Cli;

    fn parse(args: &[&str]) -> Result<SummaryArgs, String> {
        let all = ["gputrace"].iter().chain(args).chain(&["-p", "1"]);
        let cli = Cli::try_parse_from(all).map_err(|error| error.to_string())?;
        Ok(cli.record.output.summary)
    }

    #[test]
    fn options_are_rocprofv3s() {
        let args = parse(&[
            "-S",
            "-D",
            "-u",
            "usec",
            "--summary-groups",
            "HIP_API|HSA_API",
        ])
        .unwrap();
        assert!(args.summary);
        let tables = args.tables();
        assert!(tables.per_domain);
        assert_eq!((tables.groups.len(), tables.units), (1, Units::Usec));
        assert_eq!(args.file(), None);
        assert_eq!(
            parse(&["-D", "--percentiles"]).unwrap().percentiles,
            [50.0, 95.0, 99.0]
        );
        assert_eq!(
            parse(&["-D", "--percentiles=1,99.9"]).unwrap().percentiles,
            [1.0, 99.9]
        );
        assert!(parse(&["--percentiles=101"]).is_err());
        assert!(parse(&[]).unwrap().tables().is_empty());
        let args = parse(&["--summary-output-file", "times"]).unwrap();
        assert_eq!(args.file().as_deref(), Some("times"));
        assert_eq!(
            parse(&["--summary-output-file", "STDOUT"]).unwrap().file(),
            None
        );
    }

    #[test]
    fn errors_name_the_option_and_show_how() {
        for (args, parts) in [
            (
                ["--summary-groups", "HIP_API|("],
                ["--summary-groups <REGEX>", "'KERNEL_DISPATCH|MEMORY_COPY'"],
            ),
            (
                ["--summary-units", "ns"],
                ["--summary-units <UNIT>", "nsec"],
            ),
            (
                ["--summary-output-file", "a/b"],
                ["--summary-output-file <FILE>", "without '/'"],
            ),
        ] {
            let error = parse(&args).unwrap_err();
            for part in parts {
                assert!(error.contains(part), "{part}: {error}");
            }
        }
    }
}
