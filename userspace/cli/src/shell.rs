//! Prints output for other programs: completions for shells, manual pages.

use std::{io::Write as _, path::Path};

use anyhow::{Context as _, Result};
use clap::{Command, builder::Resettable};
use clap_complete::Shell;
use clap_mangen::Man;
use gputrace_export::{OutputDir, OutputError};
use gputrace_session::User;

use crate::stdout;

/// Prints `text`.
pub(crate) fn print(text: &str) -> Result<u8> {
    stdout::print(text)?;
    Ok(0)
}

/// Prints the script that completes the command line of `command` in a shell.
pub(crate) fn completions(shell: Shell, mut command: Command) -> Result<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "gputrace", &mut script);
    print(&String::from_utf8_lossy(&script))
}

/// Writes the manual pages of `command` and its subcommands into `directory`, or prints the first
/// page.
pub(crate) fn man(directory: Option<&Path>, command: Command) -> Result<u8> {
    let Some(directory) = directory else {
        return print(&page(command)?);
    };
    let owner = User::behind_sudo().as_ref().map(User::owner);
    let directory = OutputDir::open(directory, owner)?.public();
    let subcommands: Vec<Command> = command.get_subcommands().cloned().collect();
    write(&directory, "gputrace.1", command)?;
    for subcommand in subcommands {
        if subcommand.get_name() == "help" {
            continue;
        }
        let name = format!("gputrace-{}", subcommand.get_name());
        write(&directory, &format!("{name}.1"), subcommand)?;
    }
    Ok(0)
}

fn write(directory: &OutputDir, name: &str, command: Command) -> Result<()> {
    let page = page(command)?;
    let mut file = directory.file(name)?;
    file.write_all(page.as_bytes()).map_err(OutputError::from)?;
    file.finish("manual page")?;
    Ok(())
}

fn page(mut command: Command) -> Result<String> {
    // These are tables, which must not be reflowed; clap would leave out the examples altogether.
    let examples = command.get_before_help().map(ToString::to_string);
    let rest = command.get_after_long_help().map(ToString::to_string);
    command = command.after_long_help(Resettable::Reset);
    let mut page = Vec::new();
    Man::new(command)
        .render(&mut page)
        .context("cannot make the manual page")?;
    let mut page = String::from_utf8_lossy(&page).into_owned();
    if let Some(examples) = examples {
        let text = examples
            .strip_prefix("Examples:\n")
            .or(examples.strip_prefix("Example: "));
        section(&mut page, "EXAMPLES", text.unwrap_or(&examples));
    }
    if let Some(rest) = rest {
        section(
            &mut page,
            "EXIT STATUS",
            rest.strip_prefix("Exit status: ").unwrap_or(&rest),
        );
    }
    Ok(page)
}

/// Adds text without reflowing its lines.
fn section(page: &mut String, title: &str, text: &str) {
    page.push_str(&format!(".SH \"{title}\"\n.nf\n"));
    for line in text.lines() {
        // Lines that begin with these characters would be commands.
        if line.starts_with(['.', '\'']) {
            page.push_str("\\&");
        }
        page.push_str(&line.replace('\\', "\\e").replace('-', "\\-"));
        page.push('\n');
    }
    page.push_str(".fi\n");
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::args::Cli;

    #[test]
    fn every_subcommand_has_a_page() {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Cli::command();
        command.build();
        man(Some(directory.path()), command).unwrap();
        let first = std::fs::read_to_string(directory.path().join("gputrace.1")).unwrap();
        assert!(
            first.contains(".TH gputrace 1") && first.contains("runtime\\-trace"),
            "{first}"
        );
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let table = lines(&first);
        let examples = table
            .iter()
            .position(|line| line == ".SH \"EXAMPLES\"")
            .unwrap();
        assert_eq!(table[examples + 1], ".nf");
        assert!(
            table[examples + 2].starts_with("  sudo gputrace \\-\\- ./app"),
            "{first}"
        );
        let status = table
            .iter()
            .position(|line| line == ".SH \"EXIT STATUS\"")
            .unwrap();
        assert_eq!(table[status + 1], ".nf");
        assert!(
            table[status + 3].starts_with("  0  success ")
                && table[status + 4].starts_with("  1  any other failure "),
            "{first}"
        );
        assert_eq!(first.matches("any other failure").count(), 1, "{first}");
        let export = std::fs::read_to_string(directory.path().join("gputrace-export.1")).unwrap();
        assert!(export.contains("gputrace\\-export"), "{export}");
    }

    #[test]
    fn completions_know_the_options() {
        for shell in [
            Shell::Bash,
            Shell::Zsh,
            Shell::Fish,
            Shell::Elvish,
            Shell::PowerShell,
        ] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "gputrace", &mut script);
            let script = String::from_utf8(script).unwrap();
            assert!(
                script.contains("runtime-trace") && script.contains("topology"),
                "{shell}"
            );
        }
    }
}
