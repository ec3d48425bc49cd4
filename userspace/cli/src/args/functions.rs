//! Options about functions other than ROCm's.

use std::path::PathBuf;

use clap::Args;
use gputrace_session::{ExtraFunctions, LibraryName, ProgramFunctions};
use regex::Regex;

/// Functions besides ROCm's.
#[derive(Debug, Args)]
#[command(next_help_heading = "Other functions")]
pub(crate) struct FunctionArgs {
    /// Also trace the exported functions of this library: a path, a name such as librocblas.so (its
    /// soname, up to a version), or a build id. Repeat for more libraries. --include and --exclude
    /// choose among the functions.
    #[arg(long, value_name = "PATH")]
    pub(crate) library: Vec<PathBuf>,

    /// Also trace functions of the program itself whose names match this regular expression,
    /// exported or not.
    #[arg(long, value_name = "REGEX")]
    pub(crate) functions: Option<Regex>,

    /// With --functions: leave out functions whose names match.
    #[arg(long, value_name = "REGEX", requires = "functions")]
    pub(crate) exclude_functions: Option<Regex>,

    /// With --functions: leave out functions with fewer instructions.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "functions")]
    pub(crate) min_instructions: usize,

    /// With --functions: also search libraries whose paths match.
    #[arg(long, value_name = "REGEX", requires = "functions")]
    pub(crate) module_include: Option<Regex>,

    /// Refuse to trace more than this many of these functions in one file.
    #[arg(long, value_name = "N", default_value_t = 2000)]
    pub(crate) max_functions: usize,

    /// Record at most this many calls per second of each of these functions, and count the rest as
    /// lost. 0: no limit.
    #[arg(long, value_name = "N", default_value_t = 250_000)]
    pub(crate) max_call_rate: u64,

    /// Remove the probes of such a function for the rest of the recording if they take more than
    /// this share of one CPU for some seconds. 0: keep them.
    #[arg(long, value_name = "PERCENT", default_value_t = 50)]
    pub(crate) max_probe_time: u32,
}

impl FunctionArgs {
    /// The functions that the options ask for.
    pub(crate) fn extra(&self) -> ExtraFunctions {
        ExtraFunctions {
            libraries: self.library.iter().cloned().map(LibraryName::new).collect(),
            program: self.functions.clone().map(|include| ProgramFunctions {
                include,
                exclude: self.exclude_functions.clone(),
                min_instructions: self.min_instructions,
                modules: self.module_include.clone(),
            }),
            kokkos: false,
            max_functions: self.max_functions,
            max_call_rate: (self.max_call_rate != 0).then_some(self.max_call_rate),
            max_probe_time: (self.max_probe_time != 0).then_some(self.max_probe_time),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use gputrace_abi::domain::Domain;

    use crate::args::Cli;

    #[test]
    fn they_make_domains() {
        let parse = |args: &[&str]| {
            let all = ["gputrace"].iter().chain(args).chain(&["-p", "1"]);
            Cli::try_parse_from(all).map(|cli| cli.record.functions.extra())
        };
        assert_eq!(parse(&[]).unwrap().domains(), []);
        let extra = parse(&["--library", "librocblas.so", "--library", "/x/y.so"]).unwrap();
        assert_eq!(
            (extra.domains(), extra.libraries.len()),
            (vec![Domain::Library], 2)
        );
        let extra = parse(&[
            "--functions",
            "^fib",
            "--min-instructions",
            "8",
            "--max-call-rate=0",
        ])
        .unwrap();
        assert_eq!(
            (extra.domains(), extra.max_call_rate),
            (vec![Domain::Function], None)
        );
        assert_eq!(extra.program.unwrap().min_instructions, 8);
        assert!(parse(&["--exclude-functions", "x"]).is_err());
        assert!(parse(&["--functions", "("]).is_err());
    }
}
