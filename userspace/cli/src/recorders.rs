//! Other gputraces that record on this node, found by their names and command lines.

use gputrace_files::kernel;
use serde::Serialize;

use crate::args;

/// What a gputrace does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// It records into a capture.
    Recording,
    /// It records into several captures one after the other (`--keep`).
    Parts,
    /// It keeps what just happened (`--flight`).
    Flight,
    /// It shows what happens (`gputrace top`).
    Top,
}

/// A gputrace that records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Recorder {
    pub(crate) kind: Kind,
    /// Its command line.
    pub(crate) command: Vec<String>,
}

impl Recorder {
    /// What a process records; `None` if it does not, or is not gputrace. A process chooses its
    /// name and its command line itself, so another program can look like gputrace.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        let read = |file: &str| kernel::read_text(format!("/proc/{pid}/{file}")).ok();
        if read("comm")?.trim_end() != "gputrace" {
            return None;
        }
        let command = read("cmdline")?;
        let words = command.strip_suffix('\0').unwrap_or(&command).split('\0');
        let command: Vec<String> = words.map(str::to_owned).collect();
        let is_terminal = |number: u32| {
            let link = kernel::read_link(format!("/proc/{pid}/fd/{number}"));
            link.is_ok_and(|link| link.starts_with("/dev/pts") || link.starts_with("/dev/tty"))
        };
        let options = command.get(1..).unwrap_or_default();
        let kind = if options.is_empty() && is_terminal(0) && is_terminal(1) {
            Kind::Top
        } else {
            kind(options)?
        };
        Some(Self { kind, command })
    }
}

/// What gputrace does with these arguments; `None` if it does not record.
fn kind(arguments: &[String]) -> Option<Kind> {
    let mut options = arguments.iter().take_while(|word| *word != "--");
    if let Some(first) = arguments.first() {
        if first == "top" {
            return Some(Kind::Top);
        }
        if args::command().find_subcommand(first).is_some() {
            return None;
        }
    }
    let is = |word: &str, option: &str| {
        let rest = word.strip_prefix(option);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
    };
    let found = options.find_map(|word| {
        let kinds = [("--flight", Kind::Flight), ("--keep", Kind::Parts)];
        let kind = kinds.into_iter().find(|(option, _)| is(word, option));
        kind.map(|(_, kind)| kind)
    });
    Some(found.unwrap_or(Kind::Recording))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_tell_what_gputrace_does() {
        for (line, expected) in [
            ("-p 1234 -o run", Some(Kind::Recording)),
            ("", Some(Kind::Recording)),
            ("-a --flight", Some(Kind::Flight)),
            ("--flight=30s -a", Some(Kind::Flight)),
            ("-a --max-size 1GiB --keep 5", Some(Kind::Parts)),
            ("top --once", Some(Kind::Top)),
            ("-- ./app --flight", Some(Kind::Recording)),
            ("export run.gtcap", None),
            ("dump-flight", None),
            ("status", None),
            ("help", None),
        ] {
            let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            assert_eq!(kind(&arguments), expected, "{line}");
        }
    }
}
