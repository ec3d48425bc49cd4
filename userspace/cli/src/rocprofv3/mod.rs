//! The command line of rocprofv3, of which every option is known here. Options that gputrace has
//! are passed to the argument parser. Options that have no effect with an external tracer are
//! ignored with a remark. Options that cannot be implemented from outside a process are refused
//! with a sentence that explains why.

mod document;
mod table;

use std::ffi::OsString;

use clap::{Arg, ArgAction, Command};

pub(crate) use self::document::markdown;
use self::table::GROUPS;
use crate::args::boolean;

/// An option of rocprofv3.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// Its name, without leading hyphens.
    long: &'static str,
    /// Its one-letter form.
    short: Option<char>,
    /// Its other names.
    also: &'static [&'static str],
    values: Values,
    /// What happens to it if gputrace does not have it.
    otherwise: Otherwise,
    /// A note for users of rocprofv3.
    remark: &'static str,
}

/// The values that an option takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Values {
    /// None, or a boolean.
    Bool,
    /// One value.
    One,
    /// Any number of values, up to the next option.
    Many,
}

/// What happens to an option that gputrace's command line does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Otherwise {
    /// It has the option.
    Works,
    /// It is ignored, for this reason.
    NoEffect(&'static str),
    /// It is refused; the text names the alternative.
    Instead(&'static str),
}

/// What happens to an option.
#[derive(Debug)]
pub(crate) enum Status<'a> {
    /// The command line has it.
    Works(&'a Arg),
    /// It is ignored, for this reason.
    NoEffect(&'static str),
    /// It is refused; the text names the alternative.
    Instead(&'static str),
}

/// An option that gputrace cannot implement.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("--{long} is not available: {instead}")]
pub(crate) struct Refused {
    long: &'static str,
    instead: &'static str,
}

/// A command line for the argument parser.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Translated {
    /// The arguments, including the program name.
    pub(crate) arguments: Vec<OsString>,
    /// Remarks for the user.
    pub(crate) remarks: Vec<String>,
}

impl Entry {
    /// The entry that has this name.
    pub(crate) fn by_name(name: &str) -> Option<&'static Self> {
        entries().find(|entry| entry.long == name || entry.also.contains(&name))
    }

    /// What happens to the option with `command`.
    pub(crate) fn status<'a>(&self, command: &'a Command) -> Status<'a> {
        if let Some(arg) = argument(command, self.long) {
            return Status::Works(arg);
        }
        match self.otherwise {
            // A test compares the table with the command line.
            Otherwise::Works => Status::Instead("this version does not have it"),
            Otherwise::NoEffect(why) => Status::NoEffect(why),
            Otherwise::Instead(instead) => Status::Instead(instead),
        }
    }

    /// The remark for an option that is given with `value` and that `command` does not have; `None`
    /// if the value asks for nothing.
    ///
    /// # Errors
    /// [`Refused`] if the option cannot be implemented.
    pub(crate) fn without(
        &self,
        command: &Command,
        value: Option<&str>,
    ) -> Result<Option<String>, Refused> {
        let off =
            self.values != Values::One && value.is_some_and(|value| boolean(value) == Ok(false));
        match self.status(command) {
            _ if off => Ok(None),
            Status::Works(_) => Ok(None),
            Status::NoEffect(why) => Ok(Some(format!("--{} has no effect: {why}", self.long))),
            Status::Instead(instead) => Err(Refused {
                long: self.long,
                instead,
            }),
        }
    }
}

fn entries() -> impl Iterator<Item = &'static Entry> {
    GROUPS.iter().flat_map(|(_, entries)| entries.iter())
}

/// The argument of `command` called `--long`.
pub(crate) fn argument<'a>(command: &'a Command, long: &str) -> Option<&'a Arg> {
    command.get_arguments().find(|arg| {
        let mut aliases = arg.get_all_aliases().unwrap_or_default().into_iter();
        arg.get_long() == Some(long) || aliases.any(|alias| alias == long)
    })
}

/// Translates a command line. `command` must be built.
///
/// # Errors
/// [`Refused`] for an option that cannot be implemented.
pub(crate) fn translate(
    command: &Command,
    arguments: impl IntoIterator<Item = OsString>,
) -> Result<Translated, Refused> {
    let mut arguments = arguments.into_iter().peekable();
    let mut done = Translated::default();
    done.arguments.extend(arguments.next());
    let subcommand = arguments.peek().and_then(|name| name.to_str());
    if let Some(subcommand) = subcommand.and_then(|name| command.find_subcommand(name)) {
        done.arguments.extend(listed_formats(subcommand, arguments));
        return Ok(done);
    }
    while let Some(argument) = arguments.next() {
        if argument == "--" {
            done.arguments.push(argument);
            break;
        }
        let Some((entry, value)) = argument.to_str().and_then(given) else {
            done.arguments.push(argument);
            continue;
        };
        let mut values = Vec::new();
        let known = self::argument(command, entry.long);
        let takes = match (known, value) {
            (_, Some(_)) => 0,
            // A single value needs no translation.
            (Some(_), None) if entry.values != Values::Many => 0,
            (_, None) if entry.values == Values::Many => usize::MAX,
            (_, None) => 1,
        };
        let is_value = |argument: &OsString| !argument.as_encoded_bytes().starts_with(b"-");
        while values.len() < takes
            && let Some(next) = arguments.next_if(is_value)
        {
            values.push(next);
        }
        if let Some(arg) = known {
            // Repeats the option for each value, if the parser accepts it several times.
            if values.len() > 1 && matches!(arg.get_action(), ArgAction::Append) {
                for value in values {
                    let mut option = OsString::from(format!("--{}=", entry.long));
                    option.push(value);
                    done.arguments.push(option);
                }
            } else {
                done.arguments.push(argument);
                done.arguments.extend(values);
            }
            continue;
        }
        let first = values.first().and_then(|value| value.to_str());
        done.remarks
            .extend(entry.without(command, value.or(first))?);
    }
    done.arguments.extend(arguments);
    Ok(done)
}

/// The arguments of a subcommand, where each format of a list (`-f csv json`) becomes an option.
/// The word after a list may be a capture, so only names of formats belong to the list.
fn listed_formats(
    subcommand: &Command,
    arguments: impl Iterator<Item = OsString>,
) -> Vec<OsString> {
    let formats = argument(subcommand, "output-format").map(Arg::get_possible_values);
    let formats = formats.unwrap_or_default();
    let is_formats = |text: &str| {
        text.split(',')
            .all(|name| formats.iter().any(|format| format.matches(name, true)))
    };
    let mut all: Vec<OsString> = Vec::new();
    let mut in_list = false;
    for argument in arguments {
        let text = argument.to_str().unwrap_or_default();
        let before = all.last().and_then(|last| last.to_str());
        let is_first = matches!(before, Some("-f" | "--output-format")) && !formats.is_empty();
        in_list = (is_first || in_list) && is_formats(text);
        all.push(if in_list && !is_first {
            format!("--output-format={text}").into()
        } else {
            argument
        });
    }
    all
}

/// The option that an argument represents, and the value in it.
fn given(argument: &str) -> Option<(&'static Entry, Option<&str>)> {
    if let Some(long) = argument.strip_prefix("--") {
        let (name, value) = match long.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (long, None),
        };
        return Entry::by_name(name).map(|entry| (entry, value));
    }
    // Letters with a value in the same argument are left to the parser, which has nearly all of
    // them.
    let mut letters = argument.strip_prefix('-')?.chars();
    let letter = letters.next()?;
    let entry = entries().find(|entry| entry.short == Some(letter))?;
    letters.next().is_none().then_some((entry, None))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::Cli;

    fn of(arguments: &[&str]) -> Result<Translated, Refused> {
        let arguments = ["gputrace"].iter().chain(arguments).map(Into::into);
        let command = crate::args::command();
        translate(&command, arguments)
    }

    fn arguments(given: &[&str]) -> Vec<String> {
        let translated = of(given).unwrap();
        let arguments = translated.arguments.into_iter().skip(1);
        arguments
            .map(|argument| argument.into_string().unwrap())
            .collect()
    }

    #[test]
    fn what_is_said_to_work_does() {
        let command = crate::args::command();
        for entry in entries() {
            if entry.otherwise == Otherwise::Works {
                let arg = argument(&command, entry.long);
                let arg = arg.unwrap_or_else(|| panic!("--{} is missing", entry.long));
                let letters = arg.get_short_and_visible_aliases().unwrap_or_default();
                assert!(
                    entry.short.is_none_or(|letter| letters.contains(&letter)),
                    "--{}",
                    entry.long
                );
                for name in entry.also {
                    assert!(argument(&command, name).is_some(), "--{name}");
                }
            }
        }
    }

    #[test]
    fn lists_of_values_become_options() {
        assert_eq!(
            arguments(&["-f", "csv", "json", "-S", "--", "./app", "-f", "x", "y"]),
            [
                "--output-format=csv",
                "--output-format=json",
                "-S",
                "--",
                "./app",
                "-f",
                "x",
                "y"
            ]
        );
        assert_eq!(
            arguments(&["-f", "csv", "-p", "1"]),
            ["-f", "csv", "-p", "1"]
        );
        assert_eq!(
            arguments(&["export", "-f", "csv", "run.gtcap"]),
            ["export", "-f", "csv", "run.gtcap"]
        );
        assert_eq!(
            arguments(&["merge", "-f", "csv", "JSON", "rocpd,otf2", "a.gtcap", "csv"]),
            [
                "merge",
                "-f",
                "csv",
                "--output-format=JSON",
                "--output-format=rocpd,otf2",
                "a.gtcap",
                "csv"
            ]
        );
        // Here it is the output's name.
        let given = ["export", "json", "-o", "csv", "-f", "text"];
        assert_eq!(arguments(&given), given);
        let all = arguments(&["--kernel-iteration-range", "[1-2]", "[4]", "-p", "1"]);
        let cli = Cli::try_parse_from(["gputrace".to_owned()].into_iter().chain(all)).unwrap();
        assert_eq!(cli.record.output.kernels.kernel_iteration_range.len(), 2);
    }

    #[test]
    fn what_cannot_be_done_is_answered() {
        for given in [
            &["--pmc", "SQ_WAVES", "GRBM_COUNT", "--", "app"][..],
            &["--pmc=SQ_WAVES", "--", "app"],
            &["--att", "--", "app"],
            &["-E", "extra.yaml", "--", "app"],
            &["-L"],
            &["--preload", "libasan.so", "--", "app"],
        ] {
            let said = of(given).unwrap_err().to_string();
            assert!(
                said.starts_with("--") && said.contains(" is not available: "),
                "{said}"
            );
        }
    }

    #[test]
    fn what_asks_for_nothing_is_passed_over() {
        assert_eq!(
            arguments(&["--att=False", "--ompt-trace", "false", "-s", "--", "app"]),
            ["-s", "--", "app"]
        );
        let translated = of(&[
            "--process-sync",
            "--perfetto-buffer-size",
            "1024",
            "-p",
            "1",
        ])
        .unwrap();
        assert_eq!(translated.arguments, ["gputrace", "-p", "1"]);
        assert_eq!(translated.remarks.len(), 2);
    }

    #[test]
    fn other_arguments_are_left_alone() {
        let given = [
            "-SD",
            "--hip-trace",
            "True",
            "--include",
            "hip.*",
            "-p",
            "1",
        ];
        assert_eq!(arguments(&given), given);
        assert_eq!(arguments(&["--", "--pmc"]), ["--", "--pmc"]);
        assert_eq!(arguments(&[]), Vec::<String>::new());
    }
}
