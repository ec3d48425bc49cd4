//! Options that select a part of a recording.

use clap::Args;
use gputrace_abi::domain::Domain;
use gputrace_export::filter::{FilterOptions, TimeWindow, domains_named};
use regex::Regex;

/// Which part of a recording the outputs show.
#[derive(Clone, Debug, Default, Args)]
#[command(
    next_help_heading = "Part of the recording in the outputs (the capture contains everything)"
)]
pub(crate) struct FilterArgs {
    /// Show only what overlaps this time, counted from the start of the recording: 1s:2.5s,
    /// 10%:20%, :500ms.
    #[arg(long, value_name = "BEGIN:END", value_parser = str::parse::<TimeWindow>)]
    pub(crate) time_window: Option<TimeWindow>,

    /// Show only these processes (repeat or separate by commas).
    #[arg(long, value_name = "PID", value_delimiter = ',')]
    pub(crate) pid: Vec<u32>,

    /// Show only what these threads did or had the GPU do.
    #[arg(long, value_name = "TID", value_delimiter = ',')]
    pub(crate) tid: Vec<u32>,

    /// Show only what has a name that matches this regular expression: functions, kernels, copy
    /// directions, memory events and driver events.
    #[arg(long, value_name = "REGEX", value_parser = regex)]
    pub(crate) name: Option<Regex>,

    /// Show only these domains: hip, hsa, kernel_dispatch, memory_copy, HIP_RUNTIME_API and so on.
    #[arg(long, value_name = "DOMAIN", value_delimiter = ',', value_parser = domains)]
    pub(crate) domain: Vec<Domains>,
}

/// The domains that one word means.
#[derive(Clone, Debug)]
pub(crate) struct Domains(Vec<Domain>);

impl FilterArgs {
    /// The equivalent options of `gputrace-export`.
    pub(crate) fn options(&self) -> FilterOptions {
        let domains = self.domain.iter().flat_map(|domains| &domains.0);
        FilterOptions {
            window: self.time_window,
            pids: self.pid.clone(),
            tids: self.tid.clone(),
            name: self.name.clone(),
            domains: domains.copied().collect(),
        }
    }
}

fn domains(word: &str) -> Result<Domains, String> {
    let domains = domains_named(word);
    if domains.is_empty() {
        let known: Vec<&str> = Domain::ALL.iter().map(|domain| domain.name()).collect();
        return Err(format!(
            "no such domain; there are hip, hsa and {}",
            known.join(", ")
        ));
    }
    Ok(Domains(domains))
}

fn regex(text: &str) -> Result<Regex, String> {
    Regex::new(text).map_err(|error| {
        format!("{error}\nwrite a regular expression that matches a part of the name: 'gemm', '^hipMemcpy'")
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};

    fn parse(args: &[&str]) -> Result<FilterOptions, String> {
        let cli = Cli::try_parse_from(["gputrace"].iter().chain(args))
            .map_err(|error| error.to_string())?;
        match cli.command {
            Some(Command::Export(args)) => Ok(args.filter.options()),
            Some(Command::Summary(args)) => Ok(args.filter.options()),
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn exports_and_summaries_take_the_same_filters() {
        for command in ["export", "summary"] {
            let options = parse(&[
                command,
                "run.gtcap",
                "--time-window",
                "1s:50%",
                "--pid=1,2",
                "--tid",
                "3",
                "--name=^hip",
                "--domain",
                "hip,KERNEL_DISPATCH",
            ])
            .unwrap();
            assert!(options.window.is_some());
            assert_eq!((options.pids, options.tids), (vec![1, 2], vec![3]));
            assert_eq!(options.name.unwrap().as_str(), "^hip");
            assert_eq!(
                options.domains,
                [
                    Domain::HipRuntime,
                    Domain::HipCompiler,
                    Domain::KernelDispatch
                ]
            );
            assert!(parse(&[command, "run.gtcap"]).unwrap().is_empty());
        }
    }

    #[test]
    fn mistakes_are_answered_with_an_example() {
        for (args, part) in [
            (["--time-window", "5s"], "10%:20%"),
            (["--time-window", "2s:1s"], "ends before it begins"),
            (["--name", "("], "regular expression"),
            (["--domain", "cuda"], "HIP_RUNTIME_API"),
        ] {
            let error = parse(&[&["export", "run.gtcap"], &args[..]].concat()).unwrap_err();
            assert!(error.contains(part) && error.contains(args[0]), "{error}");
        }
    }
}
