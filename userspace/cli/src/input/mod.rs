//! Option files (`-i`) in rocprofv3's format: a list of jobs, each a mapping from options to
//! values.
//!
//! ```yaml
//! jobs:
//!   - sys_trace: true
//!     output_file: all
//!   - kernel_trace: true
//!     output_format: [csv, pftrace]
//! ```
//!
//! A key is the name of an option, with `_` or `-`. If there are several jobs, the program runs
//! once for each, and their outputs go to `pass_1`, `pass_2` and so on in the output directory.
//! Options on the command line apply to every job; a job must not contradict them.

mod document;

use std::{
    ffi::OsString,
    io,
    path::{Path, PathBuf},
};

use clap::{
    Arg, ArgAction, ArgMatches, Command,
    error::{ContextKind, ContextValue, ErrorKind},
    parser::ValueSource,
};

use self::document::{Content, Key, Node};
use crate::rocprofv3::{Entry, argument};

/// Why an option file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InputError {
    /// It cannot be read.
    #[error("cannot read {path}: {cause}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// Its extension does not tell the format.
    #[error("{path} must have a name that ends in .yaml, .yml or .json", path = path.display())]
    Extension {
        /// The file.
        path: PathBuf,
    },
    /// It is a list of counters.
    #[error(
        "{path} is a text file, which in rocprofv3 lists counters; counters inside the GPU can be programmed only by the process that \
         uses it. Options are given in YAML or JSON", path = path.display()
    )]
    Counters {
        /// The file.
        path: PathBuf,
    },
    /// There is no program to run for the jobs.
    #[error(
        "{path} has {jobs} jobs, and each of them runs the program: give one, `gputrace -i FILE -- ./app`", path = path.display()
    )]
    Several {
        /// The file.
        path: PathBuf,
        /// Number of jobs.
        jobs: usize,
    },
    /// It contains an error.
    #[error("{path}:{line}: {reason}", path = path.display())]
    At {
        /// The file.
        path: PathBuf,
        /// Line, counted from 1.
        line: usize,
        /// The error.
        reason: String,
    },
}

impl InputError {
    fn at(path: &Path, line: usize, reason: impl Into<String>) -> Self {
        Self::At {
            path: path.to_owned(),
            line,
            reason: reason.into(),
        }
    }
}

/// A job: options as if they were given on the command line.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Job {
    /// Line where the job begins.
    pub(crate) line: usize,
    /// Arguments.
    pub(crate) arguments: Vec<OsString>,
    /// Remarks for the user.
    pub(crate) remarks: Vec<String>,
}

/// Reads the jobs of the file at `path`. `command` must be built; `given` is the parsed command
/// line.
///
/// # Errors
/// [`InputError`].
pub(crate) fn jobs(
    path: &Path,
    command: &Command,
    given: &ArgMatches,
) -> Result<Vec<Job>, InputError> {
    let root = document::read(path)?;
    let at = |line, reason: &str| InputError::at(path, line, reason);
    let Content::Mapping(pairs) = root.content else {
        return Err(at(root.line, "expected `jobs:` with a list of jobs"));
    };
    let mut jobs = Vec::new();
    for (key, node) in pairs {
        if key.name != "jobs" {
            return Err(at(
                key.line,
                &format!("unknown key '{}'; expected `jobs`", key.name),
            ));
        }
        let Content::List(list) = node.content else {
            return Err(at(
                node.line,
                "jobs: expected a list, each entry of which begins with `-`",
            ));
        };
        for node in list {
            let Content::Mapping(pairs) = node.content else {
                return Err(at(
                    node.line,
                    "expected a job: options with their values, e.g. `kernel_trace: true`",
                ));
            };
            let mut reader = Reader {
                path,
                command,
                given,
                seen: Vec::new(),
                job: Job {
                    line: node.line,
                    ..Job::default()
                },
            };
            for (key, node) in &pairs {
                reader.option(key, node)?;
            }
            jobs.push(reader.job);
        }
    }
    if jobs.is_empty() {
        return Err(at(root.line, "there are no jobs"));
    }
    Ok(jobs)
}

/// The error of a job, beginning at `line`, whose options contradict each other or the command
/// line.
pub(crate) fn contradiction(path: &Path, line: usize, error: &clap::Error) -> InputError {
    InputError::at(
        path,
        line,
        format!("this job cannot be run: {}", first_lines(error)),
    )
}

/// Reads one job.
struct Reader<'a> {
    path: &'a Path,
    command: &'a Command,
    given: &'a ArgMatches,
    seen: Vec<String>,
    job: Job,
}

impl Reader<'_> {
    fn option(&mut self, key: &Key, node: &Node) -> Result<(), InputError> {
        let path = self.path;
        let at =
            |line, reason: String| InputError::at(path, line, format!("{}: {reason}", key.name));
        let long = key.name.replace('_', "-");
        let Some(arg) = argument(self.command, &long) else {
            let Some(entry) = Entry::by_name(&long) else {
                return Err(at(key.line, self.unknown(&long)));
            };
            // An empty list has no effect.
            if values(node).is_ok_and(|values| values.is_empty()) {
                return Ok(());
            }
            let value = match &node.content {
                Content::Text(value) => Some(value.as_str()),
                _ => None,
            };
            let remark = entry.without(self.command, value);
            let remark =
                remark.map_err(|refused| InputError::at(path, key.line, refused.to_string()))?;
            self.job.remarks.extend(remark);
            return Ok(());
        };
        let id = arg.get_id().to_string();
        if ["input", "help", "version"].contains(&id.as_str()) {
            return Err(at(key.line, "this belongs on the command line".to_owned()));
        }
        if self.seen.contains(&id) {
            return Err(at(key.line, "this option is given twice".to_owned()));
        }
        let values = values(node).map_err(|(line, reason)| at(line, reason.to_owned()))?;
        if values.len() > 1 && !matches!(arg.get_action(), ArgAction::Append) {
            return Err(at(node.line, "expected one value, not a list".to_owned()));
        }
        let arguments = self
            .arguments(arg, &long, &values)
            .map_err(|reason| at(node.line, reason))?;
        if self.given.value_source(&id) == Some(ValueSource::CommandLine) {
            self.agrees(&id, &arguments)
                .map_err(|reason| at(key.line, reason))?;
        } else {
            self.job.arguments.extend(arguments);
        }
        self.seen.push(id);
        Ok(())
    }

    /// The equivalent command-line arguments, if the parser accepts the values.
    fn arguments(&self, arg: &Arg, long: &str, values: &[String]) -> Result<Vec<OsString>, String> {
        let arguments: Vec<OsString> = if matches!(arg.get_action(), ArgAction::SetTrue) {
            let mut given = Vec::new();
            for value in values {
                if crate::args::boolean(value)? {
                    given.push(format!("--{long}").into());
                }
            }
            given
        } else {
            values
                .iter()
                .map(|value| format!("--{long}={value}").into())
                .collect()
        };
        match self.parse(&arguments) {
            Err(error) => match error.kind() {
                // Conflicts with other options are only checked when all options are known.
                ErrorKind::InvalidValue | ErrorKind::ValueValidation | ErrorKind::NoEquals => {
                    Err(first_lines(&error))
                }
                _ => Ok(arguments),
            },
            Ok(_) => Ok(arguments),
        }
    }

    fn parse(&self, arguments: &[OsString]) -> Result<ArgMatches, clap::Error> {
        let name = OsString::from(self.command.get_name());
        let all = [name].into_iter().chain(arguments.iter().cloned());
        self.command.clone().try_get_matches_from(all)
    }

    /// Checks that the command line does not say otherwise.
    fn agrees(&self, id: &str, arguments: &[OsString]) -> Result<(), String> {
        let raw = |matches: &ArgMatches| -> Vec<OsString> {
            let values = matches.get_raw(id).into_iter().flatten();
            values.map(ToOwned::to_owned).collect()
        };
        let said = raw(self.given);
        // Another option that this one needs may be missing here, but given there.
        if self
            .parse(arguments)
            .is_ok_and(|matches| raw(&matches) != said)
        {
            let said: Vec<_> = said.iter().map(|value| value.to_string_lossy()).collect();
            return Err(format!(
                "the command line says otherwise: {}",
                said.join(",")
            ));
        }
        Ok(())
    }

    fn unknown(&self, long: &str) -> String {
        let similar = match self.parse(&[format!("--{long}").into()]) {
            Err(error) => match error.get(ContextKind::SuggestedArg) {
                Some(ContextValue::String(similar)) => {
                    Some(similar.trim_start_matches('-').replace('-', "_"))
                }
                _ => None,
            },
            Ok(_) => None,
        };
        match similar {
            Some(similar) => format!("there is no such option; did you mean {similar}?"),
            None => "there is no such option; keys are the names of options, e.g. kernel_trace"
                .to_owned(),
        }
    }
}

/// The values of an option; nested lists are flattened.
fn values(node: &Node) -> Result<Vec<String>, (usize, &'static str)> {
    match &node.content {
        Content::Null => Ok(Vec::new()),
        Content::Text(text) => Ok(vec![text.clone()]),
        Content::List(list) => {
            let mut all = Vec::new();
            for node in list {
                all.extend(values(node)?);
            }
            Ok(all)
        }
        Content::Mapping(_) => Err((node.line, "expected a value, not further keys")),
    }
}

/// The text of a parser's error in one line, without the hint to the help.
fn first_lines(error: &clap::Error) -> String {
    let text = error.to_string();
    let text = text.split("\n\n").next().unwrap_or_default();
    let lines = text.trim_start_matches("error: ").lines().map(str::trim);
    lines.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(name: &str, text: &str, given: &[&str]) -> Result<Vec<Job>, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        let command = crate::args::command();
        let given = ["gputrace"].iter().chain(given).chain(&["--", "app"]);
        let given = command.clone().try_get_matches_from(given).unwrap();
        jobs(&path, &command, &given).map_err(|error| {
            let place = format!("{}/", directory.path().display());
            error.to_string().replace(&place, "")
        })
    }

    fn arguments(job: &Job) -> Vec<&str> {
        job.arguments
            .iter()
            .map(|argument| argument.to_str().unwrap())
            .collect()
    }

    #[test]
    fn options_are_those_of_the_command_line() {
        let yaml = "\
jobs:
  - output_directory: \"out/%env{X}%\"
    output_file: out
    output_format: [pftrace, json, otf2]
    log_level: env
    runtime_trace: true
    hsa_trace: False
    summary: yes
    summary_groups: [\"KERNEL_DISPATCH|MEMORY_COPY\"]
    minimum-output-data: 12
    force: true
    no_stop: false
    disable_signal_handlers: true
    preload:
    pmc: []
    pmc_groups: [[]]
    att: []
  - kernel_iteration_range: \"[1-2]\"
    truncate_kernels: true
";
        let jobs = of("input.yaml", yaml, &[]).unwrap();
        assert_eq!(
            arguments(&jobs[0]),
            [
                "--output-directory=out/%env{X}%",
                "--output-file=out",
                "--output-format=pftrace",
                "--output-format=json",
                "--output-format=otf2",
                "--log-level=env",
                "--runtime-trace=true",
                "--hsa-trace=False",
                "--summary=yes",
                "--summary-groups=KERNEL_DISPATCH|MEMORY_COPY",
                "--minimum-output-data=12",
                "--force",
            ]
        );
        assert_eq!(jobs[0].remarks.len(), 1);
        assert_eq!(
            arguments(&jobs[1]),
            ["--kernel-iteration-range=[1-2]", "--truncate-kernels=true"]
        );
        assert_eq!((jobs[0].line, jobs[1].line), (2, 18));
        let json =
            "{\"jobs\": [{\"kernel_trace\": true, \"preload\": [], \"output_format\": [\"csv\"]}]}";
        let jobs = of("input.json", json, &[]).unwrap();
        assert_eq!(
            arguments(&jobs[0]),
            ["--kernel-trace=true", "--output-format=csv"]
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn any_text_is_jobs_or_a_mistake_in_the_file(
            is_json: bool,
            text in "(jobs:|jobs|- |  |\n|\t|:|: |,|\\{|\\}|\\[|\\]|\"|'|&a|\\*a|!!int|\\||kernel_trace|output_format|pmc|true|csv|-1|\\PC){0,60}",
        ) {
            let name = if is_json { "any.json" } else { "any.yaml" };
            if let Err(error) = of(name, &text, &[]) {
                prop_assert!(error.contains(name), "{}", error);
            }
        }
    }

    #[test]
    fn mistakes_name_file_line_and_key() {
        for (yaml, line, parts) in [
            (
                "jobs:\n  - sys_trace: true\n    kernal_trace: true\n",
                3,
                &["kernal_trace: there is no such option; did you mean kernel_trace?"][..],
            ),
            (
                "jobs:\n  - sys_trace: perhaps\n",
                2,
                &["sys_trace: ", "perhaps", "True or False"],
            ),
            (
                "jobs:\n  - output_format:\n      - csv\n      - xml\n",
                3,
                &["output_format: ", "xml", "pftrace"],
            ),
            (
                "jobs:\n  - include: \"(\"\n",
                2,
                &["include: ", "regex parse error: ( ^ error: unclosed group"],
            ),
            (
                "jobs:\n  - pmc: [SQ_WAVES]\n",
                2,
                &["--pmc is not available"],
            ),
            (
                "jobs:\n  - pmc_groups: [[SQ_WAVES]]\n",
                2,
                &["--pmc-groups is not available"],
            ),
            (
                "jobs:\n  - att: true\n",
                2,
                &["--advanced-thread-trace is not available"],
            ),
            (
                "jobs:\n  - stats: true\n    stats: false\n",
                3,
                &["stats: this option is given twice"],
            ),
            (
                "jobs:\n  - output_file: [a, b]\n",
                2,
                &["output_file: expected one value"],
            ),
            (
                "jobs:\n  - output_file: {a: b}\n",
                2,
                &["output_file: expected a value"],
            ),
            (
                "jobs:\n  - help: true\n",
                2,
                &["help: this belongs on the command line"],
            ),
            ("jobs:\n  sys_trace: true\n", 2, &["jobs: expected a list"]),
            ("jobs: []\n", 1, &["there are no jobs"]),
            ("job:\n", 1, &["unknown key 'job'"]),
            ("- sys_trace\n", 1, &["expected `jobs:`"]),
            ("jobs:\n  - sys_trace: [\n", 3, &["not YAML"]),
        ] {
            let error = of("input.yaml", yaml, &[]).unwrap_err();
            assert!(
                error.starts_with(&format!("input.yaml:{line}: ")),
                "{yaml}: {error}"
            );
            for part in parts {
                assert!(error.contains(part), "{yaml}: {error}");
            }
            assert!(!error.contains('\n'), "{error}");
        }
        assert!(
            of("input.txt", "pmc: SQ_WAVES\n", &[])
                .unwrap_err()
                .contains("counters")
        );
        assert!(of("input", "", &[]).unwrap_err().contains(".yaml"));
    }

    #[test]
    fn the_command_line_is_not_contradicted() {
        let yaml = "jobs:\n  - output_file: a\n    sys_trace: true\n";
        let same = of("input.yaml", yaml, &["-o", "a"]).unwrap();
        assert_eq!(arguments(&same[0]), ["--sys-trace=true"]);
        let error = of("input.yaml", yaml, &["-o", "b"]).unwrap_err();
        assert_eq!(
            error,
            "input.yaml:2: output_file: the command line says otherwise: b"
        );
    }
}
