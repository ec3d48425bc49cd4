//! What a session records.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use gputrace_abi::domain::Domain;

use crate::{Error, Session, session, wire};

/// Describes a session. Everything has the meaning of `gputrace`'s option of the same name.
///
/// Without a target, every process of the node is traced. Without a domain, what `gputrace` records
/// by default: `--runtime-trace`.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    recorder: Option<PathBuf>,
    environment: Vec<(OsString, OsString)>,
    options: Vec<OsString>,
    program: Vec<OsString>,
    domains: Vec<Domain>,
    kept: Option<(PathBuf, OsString)>,
    formats: Vec<String>,
}

impl Builder {
    /// Traces a running process. Can be called for several.
    #[must_use]
    pub fn attach(self, pid: u32) -> Self {
        self.value("--pid", pid.to_string())
    }

    /// Starts a program, with its arguments, and traces it from its first call. It is a child of the
    /// recorder, has this process's standard output and standard error, and reads nothing from its
    /// standard input.
    #[must_use]
    pub fn launch(mut self, command: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.program = command.into_iter().map(Into::into).collect();
        self
    }

    /// Sets a variable in the environment of the recorder and of a launched program.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Traces every process of the node.
    #[must_use]
    pub fn node(self) -> Self {
        self.option("--all")
    }

    /// Records these domains, besides those of earlier calls.
    #[must_use]
    pub fn domains(mut self, domains: impl IntoIterator<Item = Domain>) -> Self {
        self.domains.extend(domains);
        self
    }

    /// Records only functions whose names match this regular expression.
    #[must_use]
    pub fn include(self, regex: &str) -> Self {
        self.value("--include", regex)
    }

    /// Records no functions whose names match this regular expression.
    #[must_use]
    pub fn exclude(self, regex: &str) -> Self {
        self.value("--exclude", regex)
    }

    /// Ends the recording after this time.
    #[must_use]
    pub fn duration(self, time: Duration) -> Self {
        self.value("--duration", format!("{}us", time.as_micros()))
    }

    /// Ends the recording after this number of events.
    #[must_use]
    pub fn max_events(self, events: u64) -> Self {
        self.value("--max-events", events.to_string())
    }

    /// Keeps the capture as the file `NAME.gtcap` in `directory`. Otherwise it has no name, and its
    /// space is given back when it was read.
    #[must_use]
    pub fn keep(mut self, directory: impl AsRef<Path>, name: impl Into<OsString>) -> Self {
        self.kept = Some((directory.as_ref().to_owned(), name.into()));
        self
    }

    /// Makes outputs in this format from the capture that is kept, as `gputrace -f` does, at the end
    /// of the recording. Can be called for several.
    #[must_use]
    pub fn format(mut self, format: &str) -> Self {
        self.formats.push(format.to_owned());
        self
    }

    /// Any other option of `gputrace`, as one argument: `--stacks=launch`, `--overhead-limit=2`.
    #[must_use]
    pub fn option(mut self, option: impl Into<OsString>) -> Self {
        self.options.push(option.into());
        self
    }

    /// The program `gputrace` to be the recorder; by default the one that is found in `PATH`.
    #[must_use]
    pub fn recorder(mut self, program: impl Into<PathBuf>) -> Self {
        self.recorder = Some(program.into());
        self
    }

    /// Starts the recording. Returns when what exists has its probes, and a program that is to be
    /// launched runs.
    ///
    /// # Errors
    ///
    /// [`Error`]. Nothing is left behind then.
    pub fn start(mut self) -> Result<Session, Error> {
        let recorder = self.recorder.take();
        let recorder = recorder.unwrap_or_else(|| PathBuf::from("gputrace"));
        let environment = std::mem::take(&mut self.environment);
        let mut command = Command::new(&recorder);
        command.args(self.arguments()?).envs(environment);
        session::start(command, &recorder)
    }

    fn value(mut self, option: &str, value: impl Into<OsString>) -> Self {
        let mut argument = OsString::from(option);
        argument.push("=");
        argument.push(value.into());
        self.options.push(argument);
        self
    }

    /// Arguments of the recorder.
    fn arguments(self) -> Result<Vec<OsString>, Error> {
        let how = match (&self.kept, self.formats.is_empty()) {
            (None, _) => "unkept",
            (Some(_), true) => "kept",
            (Some(_), false) => "formats",
        };
        let mut arguments = vec![format!("{}={how}", wire::OPTION).into()];
        for domain in self.domains {
            if domain.option().is_empty() {
                return Err(Error::Domain(domain.name()));
            }
            arguments.push(format!("--{}", domain.option()).into());
        }
        arguments.extend(self.options);
        if let Some((directory, name)) = self.kept {
            let mut option = OsString::from("--output-directory=");
            option.push(directory);
            arguments.push(option);
            let mut option = OsString::from("--output-file=");
            option.push(name);
            arguments.push(option);
            if !self.formats.is_empty() {
                arguments.push(format!("--output-format={}", self.formats.join(",")).into());
            }
        }
        if !self.program.is_empty() {
            arguments.push("--".into());
            arguments.extend(self.program);
        }
        Ok(arguments)
    }
}
