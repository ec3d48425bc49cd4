//! Advice for command lines that are wrong, where the parser's own would mislead: behind `--`
//! comes the program to trace.

use std::{
    ffi::{OsStr, OsString},
    path::Path,
};

use clap::{
    Command,
    error::{ContextKind, ContextValue, ErrorKind},
};
use gputrace_files::own;

/// Why a command line ends in `--` only by mistake.
const NO_PROGRAM: &str = "no program follows `--`; in a script, its variable may be empty. To \
                          trace every process of this node, use `gputrace -a`";

/// Lets options take values that begin with a minus, so that errors name the option. Otherwise the
/// parser takes these values for options that it does not know.
pub(super) fn take_negative_values(command: Command) -> Command {
    let takes = |arg: clap::Arg| {
        let takes_values = arg.get_action().takes_values() && !arg.is_positional();
        arg.allow_negative_numbers(takes_values)
    };
    command
        .mut_args(takes)
        .mut_subcommands(take_negative_values)
}

/// The error if `arguments`, which begin with gputrace's own name, end where the program to trace
/// should follow.
pub(crate) fn lacks_program(arguments: &[OsString]) -> Option<&'static str> {
    let dashes = arguments.iter().position(|word| word == "--")?;
    let program = arguments.get(dashes + 1);
    program
        .is_none_or(|program| program.is_empty())
        .then_some(NO_PROGRAM)
}

/// Replaces the parser's advice to pass a word behind `--`. `command` refused `arguments`, which
/// begin with gputrace's own name.
pub(crate) fn advise(
    error: &mut clap::Error,
    command: &Command,
    arguments: &[OsString],
) -> Option<String> {
    without_dashes(error);
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let word = match error.kind() {
        ErrorKind::InvalidSubcommand => text(ContextKind::InvalidSubcommand),
        ErrorKind::UnknownArgument => text(ContextKind::InvalidArg),
        // It follows an option whose value is optional: `gputrace -S ./app`.
        ErrorKind::ValueValidation if text(ContextKind::InvalidArg)?.ends_with("[<BOOL>]") => {
            text(ContextKind::InvalidValue).filter(|word| word.contains('/'))
        }
        _ => None,
    };
    let word = word.filter(|word| !word.starts_with('-'))?;
    let first = arguments.get(1).and_then(|first| first.to_str());
    if first.is_some_and(|name| command.find_subcommand(name).is_some()) {
        let is_capture = Path::new(word).extension() == Some(OsStr::new("gtcap"));
        return is_capture.then(|| {
            "`gputrace merge` puts several captures on one timeline: gputrace merge one.gtcap \
             two.gtcap"
                .to_owned()
        });
    }
    if let Some(command) = similar(command, word).filter(|_| !is_program(word)) {
        return Some(format!("did you mean `gputrace {command}`?"));
    }
    Some(format!(
        "to trace a program, put -- before it: {}",
        with_dashes(arguments, word)
    ))
}

/// Removes the parser's advice to pass a word behind `--`.
fn without_dashes(error: &mut clap::Error) {
    if let Some(ContextValue::StyledStrs(mut tips)) = error.remove(ContextKind::Suggested) {
        tips.retain(|tip| !tip.to_string().starts_with("to pass '"));
        if !tips.is_empty() {
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
        }
    }
}

/// The subcommand that is most similar to a word. The parser does not look for one, because a
/// program may follow gputrace's options.
fn similar(command: &Command, word: &str) -> Option<String> {
    let names = command.get_subcommands().filter(|one| !one.is_hide_set());
    let only_commands = Command::new("gputrace")
        .disable_help_subcommand(true)
        .subcommands(names.cloned());
    let error = only_commands
        .try_get_matches_from(["gputrace", word])
        .err()?;
    match error.get(ContextKind::SuggestedSubcommand) {
        Some(ContextValue::Strings(similar)) => similar.last().cloned(),
        _ => None,
    }
}

/// Whether a shell would find a program of this name.
fn is_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    name.contains('/') || std::env::split_paths(&path).any(|one| own::is_file(one.join(name)))
}

/// The command line with `--` before `program`.
fn with_dashes(arguments: &[OsString], program: &str) -> String {
    let mut words = vec!["gputrace".to_owned()];
    let given = arguments.get(1..).unwrap_or_default();
    match given.iter().position(|word| word == program) {
        Some(at) => {
            let (before, after) = given.split_at(at);
            words.extend(before.iter().map(quoted));
            words.push("--".to_owned());
            words.extend(after.iter().map(quoted));
        }
        None => words.extend(["--".to_owned(), program.to_owned()]),
    }
    words.join(" ")
}

/// A word as a shell takes it.
fn quoted(word: &OsString) -> String {
    let word = word.to_string_lossy();
    let is_plain = |c: char| c.is_alphanumeric() || "_./=:,@%+-".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.into_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::command;

    /// The parser's message, and the advice.
    fn said(given: &[&str]) -> (String, Option<String>) {
        let command = command();
        let arguments: Vec<OsString> = std::iter::once(&"gputrace")
            .chain(given)
            .map(OsString::from)
            .collect();
        let mut error = command
            .clone()
            .try_get_matches_from(&arguments)
            .unwrap_err();
        let advice = advise(&mut error, &command, &arguments);
        (error.to_string(), advice)
    }

    #[test]
    fn who_forgets_the_dashes_is_told_the_whole_command() {
        for (given, advice) in [
            (&["./app"][..], "gputrace -- ./app"),
            (&["./app", "-x", "a b"], "gputrace -- ./app -x 'a b'"),
            (&["-S", "./app"], "gputrace -S -- ./app"),
            (&["-S=./app"], "gputrace -- ./app"),
            (&["-o", "x", "sleep", "1"], "gputrace -o x -- sleep 1"),
        ] {
            let (message, told) = said(given);
            let told = told.unwrap_or_default();
            assert!(told.ends_with(&format!(": {advice}")), "{given:?}: {told}");
            assert!(!message.contains("to pass"), "{message}");
        }
        for given in [
            &["--no-such-option"][..],
            &["-p", "x"],
            &["-S", "perhaps"],
            &["export", "a.gtcap", "--no-such-option"],
            &["kfd", "1", "2"],
        ] {
            assert_eq!(said(given).1, None, "{given:?}");
        }
    }

    #[test]
    fn a_misspelt_command_is_no_program() {
        for (given, name) in [
            ("reprot", "report"),
            ("exprot", "export"),
            ("sumary", "summary"),
        ] {
            let (message, advice) = said(&[given, "x.gtcap"]);
            assert!(!message.contains("to pass"), "{message}");
            let advice = advice.unwrap_or_default();
            assert!(advice.contains(&format!("gputrace {name}`")), "{advice}");
        }
    }

    #[test]
    fn captures_are_combined_by_merge() {
        for name in ["export", "summary", "report", "dump"] {
            let (message, advice) = said(&[name, "a.gtcap", "b.gtcap"]);
            assert!(message.contains("unexpected argument"), "{message}");
            assert!(
                advice.is_some_and(|advice| advice.contains("gputrace merge")),
                "{name}"
            );
        }
    }

    #[test]
    fn negative_values_are_told_with_their_option() {
        for (given, option) in [
            (&["-p", "-1"][..], "--pid <PID>"),
            (&["--duration", "-1"], "--duration <TIME>"),
            (&["--duration", "-1s"], "--duration <TIME>"),
            (&["-P", "-1:1:1"], "--collection-period <DELAY:TIME:REPEAT>"),
            (&["--look-budget", "-5"], "--look-budget <PERCENT>"),
            (&["diff", "a.gtcap", "b.gtcap", "--top", "-1"], "--top <N>"),
        ] {
            let (message, advice) = said(given);
            assert!(
                message.contains(&format!("for '{option}'"))
                    || message.contains(&format!("for '-p, {option}'")),
                "{message}"
            );
            assert!(!message.contains("to pass"), "{message}");
            assert_eq!(advice, None);
        }
    }

    #[test]
    fn a_program_must_follow_the_dashes() {
        let lacks = |given: &[&str]| {
            let all: Vec<OsString> = std::iter::once(&"gputrace")
                .chain(given)
                .map(OsString::from)
                .collect();
            lacks_program(&all).is_some()
        };
        assert!(lacks(&["-o", "p", "--"]));
        assert!(lacks(&["--", ""]));
        assert!(lacks(&["-a", "--"]));
        assert!(!lacks(&[]));
        assert!(!lacks(&["-p", "1"]));
        assert!(!lacks(&["--", "app", "--"]));
    }
}
