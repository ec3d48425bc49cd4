//! Options about kernels: which dispatches outputs show, and the form of kernel names.

use clap::{ArgAction, Args};
use gputrace_export::{
    KernelOptions,
    kernels::{AgentLabels, Iterations, KernelFilter, KernelNames},
};
use regex::Regex;

use crate::args::boolean;

/// Options about kernels, of recordings and of `export`.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Kernels in the outputs (the capture contains all)")]
pub(crate) struct KernelArgs {
    /// Show only dispatches of kernels whose names, as shown, match this regular expression.
    #[arg(long, value_name = "REGEX", value_parser = regex)]
    pub(crate) kernel_include_regex: Option<Regex>,

    /// Hide dispatches of kernels whose names, as shown, match this regular expression.
    #[arg(long, value_name = "REGEX", value_parser = regex)]
    pub(crate) kernel_exclude_regex: Option<Regex>,

    /// Show only these dispatches of each kernel, counted from 1 for each GPU and process:
    /// [1,[3-5],10].
    #[arg(long, value_name = "RANGES", value_parser = str::parse::<Iterations>)]
    pub(crate) kernel_iteration_range: Vec<Iterations>,

    /// Name kernels after the innermost range (roctxRangePush) in which they were launched, or
    /// after the last mark in it. A recording tracks ranges for this even without --marker-trace.
    #[arg(long, num_args = 0..=1, value_name = "BOOL", default_missing_value = "true",
          value_parser = boolean, action = ArgAction::Set, default_value = "false", hide_default_value = true)]
    pub(crate) kernel_rename: bool,

    /// Show mangled kernel names.
    #[arg(short = 'M', long, num_args = 0..=1, value_name = "BOOL", default_missing_value = "true",
          value_parser = boolean, action = ArgAction::Set, default_value = "false", hide_default_value = true)]
    pub(crate) mangled_kernels: bool,

    /// Show kernel names without return types, scopes, template arguments and parameters. Takes
    /// precedence over -M.
    #[arg(short = 'T', long, num_args = 0..=1, value_name = "BOOL", default_missing_value = "true",
          value_parser = boolean, action = ArgAction::Set, default_value = "false", hide_default_value = true)]
    pub(crate) truncate_kernels: bool,
}

impl KernelArgs {
    /// The equivalent options of `gputrace-export`.
    pub(crate) fn options(&self, agents: AgentLabels) -> KernelOptions {
        let mut iterations: Option<Iterations> = None;
        for more in &self.kernel_iteration_range {
            match &mut iterations {
                Some(iterations) => iterations.extend(more),
                None => iterations = Some(more.clone()),
            }
        }
        KernelOptions {
            rename: self.kernel_rename,
            hide_markers: false,
            agents,
            names: if self.truncate_kernels {
                KernelNames::Truncated(gputrace_demangle::truncate)
            } else if self.mangled_kernels {
                KernelNames::Mangled
            } else {
                KernelNames::Demangled
            },
            filter: KernelFilter {
                include: given(&self.kernel_include_regex),
                exclude: given(&self.kernel_exclude_regex),
                iterations,
            },
        }
    }
}

/// As in rocprofv3, an empty expression means none: option files write `kernel_exclude_regex: ""`.
fn given(regex: &Option<Regex>) -> Option<Regex> {
    regex.clone().filter(|regex| !regex.as_str().is_empty())
}

/// Parses a regular expression. The error message shows where it is wrong.
fn regex(text: &str) -> Result<Regex, String> {
    Regex::new(text).map_err(|error| {
        format!(
            "{error}\nwrite a regular expression that matches a part of the name: 'gemm', '^void fill<', 'add|mul' \
             (\\( for a bracket; no look-around, no back references)"
        )
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};

    fn parse(args: &[&str]) -> Result<KernelOptions, String> {
        let cli = Cli::try_parse_from(["gputrace"].iter().chain(args))
            .map_err(|error| error.to_string())?;
        Ok(match cli.command {
            Some(Command::Export(export)) => export.output.kernels.options(AgentLabels::Relative),
            _ => cli.record.output.kernels.options(AgentLabels::Relative),
        })
    }

    #[test]
    fn recordings_and_exports_have_the_same_options() {
        let options = [
            "--kernel-include-regex",
            "add|mul",
            "--kernel-exclude-regex=^void",
            "--kernel-iteration-range",
            "[1,[3-5],10]",
            "--kernel-iteration-range",
            "[12-13]",
        ];
        for rest in [&["--", "./app"][..], &["-p", "1"]] {
            check(&parse(&[&options[..], rest].concat()).unwrap());
        }
        check(&parse(&[&["export", "run.gtcap"], &options[..]].concat()).unwrap());
    }

    fn check(options: &KernelOptions) {
        let KernelFilter {
            include,
            exclude,
            iterations,
        } = &options.filter;
        assert_eq!(include.as_ref().unwrap().as_str(), "add|mul");
        assert_eq!(exclude.as_ref().unwrap().as_str(), "^void");
        let asked: Vec<u64> = (0..20)
            .filter(|number| iterations.as_ref().unwrap().contains(*number))
            .collect();
        assert_eq!(asked, [1, 3, 4, 5, 10, 12, 13]);
        assert!(matches!(options.names, KernelNames::Demangled));
    }

    #[test]
    fn nothing_is_left_out_by_default() {
        let empty = [
            "--kernel-include-regex",
            "",
            "--kernel-exclude-regex",
            "",
            "-p",
            "1",
        ];
        assert!(parse(&empty).unwrap().filter.is_empty());
        let options = parse(&["-p", "1"]).unwrap();
        assert!(options.filter.is_empty());
        assert!(matches!(options.names, KernelNames::Demangled));
    }

    #[test]
    fn names() {
        let names = |args: &[&str]| parse(args).unwrap().names;
        assert!(matches!(names(&["-M", "-p", "1"]), KernelNames::Mangled));
        assert!(matches!(
            names(&["--mangled-kernels=False", "-p", "1"]),
            KernelNames::Demangled
        ));
        for args in [&["-T", "-p", "1"][..], &["-M", "-T", "--", "app"]] {
            let KernelNames::Truncated(truncate) = names(args) else {
                unreachable!("{args:?}");
            };
            assert_eq!(truncate("void ns::fill<float>(float*, int)"), "fill");
        }
    }

    #[test]
    fn errors_name_the_option_and_show_how() {
        for (args, parts) in [
            (
                ["--kernel-include-regex", "add("],
                &["--kernel-include-regex <REGEX>", "unclosed group", "'gemm'"][..],
            ),
            (
                ["--kernel-exclude-regex", "(?!add)"],
                &["--kernel-exclude-regex <REGEX>", "look-around"],
            ),
            (
                ["--kernel-iteration-range", "[1,x]"],
                &["--kernel-iteration-range <RANGES>", "'x'", "[1,[3-5],10]"],
            ),
            (
                ["--kernel-iteration-range", "0-3"],
                &["--kernel-iteration-range <RANGES>", "counted from 1"],
            ),
        ] {
            let error = parse(&[&args[..], &["--", "app"]].concat()).unwrap_err();
            for part in parts {
                assert!(error.contains(part), "{part}: {error}");
            }
        }
    }
}
