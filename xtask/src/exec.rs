//! Runs other programs, either quietly with their output kept for the error message, or with their
//! output shown.
//!
//! No program that xtask starts can read standard input: a hidden question would hang CI forever.

use std::env;
use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context as _, Result, bail};

/// Maximum number of lines of a failed program's output in an error: the cause is nearly always in
/// the last lines.
const SHOWN_LINES: usize = 60;

/// Runs `command` and returns its standard output.
///
/// # Errors
///
/// When it cannot be started or fails; the message then contains the command and the end of its
/// output.
pub(crate) fn capture(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start `{}`", describe(command)))?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(stdout);
    }
    let printed = format!("{}{}", stdout, String::from_utf8_lossy(&output.stderr));
    bail!(
        "{}\n{}",
        failure(command, output.status),
        last_lines(&printed, SHOWN_LINES)
    )
}

/// Runs `command` with its output on the user's terminal: for cargo, whose own progress is worth
/// seeing.
///
/// # Errors
///
/// When it cannot be started or fails. Its output is already on the screen.
pub(crate) fn stream(command: &mut Command) -> Result<()> {
    let status = command
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("cannot start `{}`", describe(command)))?;
    if status.success() {
        Ok(())
    } else {
        bail!(failure(command, status))
    }
}

/// Runs `command`, copies its standard output to `screen` as it comes, and also gives each line to
/// `line`.
///
/// # Errors
///
/// When it cannot be started or its output cannot be passed on. The caller must check the exit
/// status.
pub(crate) fn tee(
    command: &mut Command,
    screen: &mut impl Write,
    mut line: impl FnMut(&str),
) -> Result<ExitStatus> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start `{}`", describe(command)))?;
    if let Some(stdout) = child.stdout.take() {
        let mut reader = BufReader::new(stdout);
        let mut bytes = Vec::new();
        while reader.read_until(b'\n', &mut bytes)? > 0 {
            screen.write_all(&bytes)?;
            line(String::from_utf8_lossy(&bytes).trim_end());
            bytes.clear();
        }
        screen.flush()?;
    }
    Ok(child.wait()?)
}

/// A message that `command` failed with `status`.
pub(crate) fn failure(command: &Command, status: ExitStatus) -> String {
    format!("`{}` failed ({status})", describe(command))
}

/// The command as a user would type it, without the environment that xtask adds.
pub(crate) fn describe(command: &Command) -> String {
    let program = Path::new(command.get_program());
    // `cargo`, without its directory path.
    let mut words = vec![program.file_name().unwrap_or(program.as_os_str())];
    words.extend(command.get_args());
    words.into_iter().map(quote).collect::<Vec<_>>().join(" ")
}

/// Puts `word` in single quotes if a shell would split or interpret it.
fn quote(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:+,@%~".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.into_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// The last `count` lines of `text`, with a mark if something was cut.
fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let cut = lines.len().saturating_sub(count);
    let mut shown: Vec<&str> = if cut > 0 { vec!["[…]"] } else { Vec::new() };
    shown.extend(lines.iter().skip(cut));
    shown.join("\n")
}

/// The first executable file called `name` in `PATH`.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    find_program_in(name, &env::var_os("PATH")?)
}

/// The first executable file called `name` in the `PATH`-like list `path`.
fn find_program_in(name: &str, path: &OsStr) -> Option<PathBuf> {
    env::split_paths(path)
        .map(|directory| directory.join(name))
        .find(|candidate| {
            candidate.metadata().is_ok_and(|metadata| {
                metadata.is_file() && metadata.permissions().mode() & 0o111 != 0
            })
        })
}

/// `PATH` with `directories` in front.
///
/// # Errors
///
/// When one of them contains a colon, which `PATH` cannot express.
pub(crate) fn path_with<P: AsRef<Path>>(directories: &[P]) -> Result<std::ffi::OsString> {
    let old = env::var_os("PATH").unwrap_or_default();
    let all = directories
        .iter()
        .map(|directory| directory.as_ref().to_owned())
        .chain(env::split_paths(&old));
    env::join_paths(all).context("a directory whose name contains `:` cannot be put into PATH")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_one_would_type_it() {
        let mut command = Command::new("/usr/lib/llvm-22/bin/llvm-strip");
        command.args(["-g", "two words", "", "it's"]);
        assert_eq!(
            describe(&command),
            r"llvm-strip -g 'two words' '' 'it'\''s'"
        );
    }

    #[test]
    fn a_failure_carries_both_streams() {
        let error =
            capture(Command::new("sh").args(["-c", "echo out; echo err >&2; exit 3"])).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("failed (exit status: 3)"), "{text}");
        assert!(text.contains("out\n") && text.contains("err"), "{text}");
    }

    #[test]
    fn only_the_end_of_a_long_output_is_shown() {
        assert_eq!(last_lines("a\nb\nc", 3), "a\nb\nc");
        assert_eq!(last_lines("a\nb\nc", 2), "[…]\nb\nc");
    }

    #[test]
    fn tee_passes_every_line() {
        let (mut screen, mut lines) = (Vec::new(), Vec::new());
        let mut command = Command::new("printf");
        let status = tee(command.arg(r"one\ntwo"), &mut screen, |line| {
            lines.push(line.to_owned());
        })
        .unwrap();
        assert!(status.success());
        assert_eq!(screen, b"one\ntwo");
        assert_eq!(lines, ["one", "two"]);
    }

    #[test]
    fn programs_are_found_only_when_executable() {
        assert!(find_program_in("sh", OsStr::new("/nonexistent:/bin")).is_some());
        assert_eq!(find_program_in("passwd", OsStr::new("/etc")), None);
    }
}
