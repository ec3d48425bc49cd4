//! Compares the documentation with the command line: it shows no unknown options, and no option is
//! missing.

use std::collections::BTreeSet;

use crate::{args::command, exit, rocprofv3};

#[path = "../tests/common/documents.rs"]
mod documents;

use self::documents::{Page, filled_in, pages, root};

/// Whether gputrace accepts these arguments, checked as in `main`.
fn check(command: &clap::Command, arguments: &[String]) -> Result<(), String> {
    let all = std::iter::once("gputrace".to_owned()).chain(arguments.iter().cloned());
    let translated = rocprofv3::translate(command, all.map(Into::into))
        .map_err(|refused| refused.to_string())?;
    match command.clone().try_get_matches_from(translated.arguments) {
        Err(error) if error.use_stderr() => Err(error.to_string()),
        _ => Ok(()),
    }
}

#[test]
fn every_command_on_a_page_is_one_that_gputrace_takes() {
    let command = command();
    let (mut checked, mut wrong) = (0, Vec::new());
    for page in pages() {
        for shown in page.commands() {
            checked += 1;
            if let Err(error) = check(&command, &shown.arguments) {
                wrong.push(format!(
                    "{}: gputrace {:?}: {error}",
                    page.name(),
                    shown.arguments
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checked > 50, "only {checked} commands were found");
}

#[test]
fn wrong_commands_would_be_noticed() {
    let command = command();
    for line in [
        "gputrace --no-such-option",
        "gputrace -f svg -- ./app",
        "gputrace list -p 1",
        "gputrace export",
        "sudo gputrace --pmc SQ_WAVES -- ./app",
    ] {
        let shown = documents::commands(line);
        assert!(check(&command, &shown[0].arguments).is_err(), "{line}");
    }
}

/// Commands within sentences of pages, and in messages and comments, such as `gputrace kfd PID`.
fn patterns(text: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for code in text.split('`').skip(1).step_by(2) {
        let is_command = code.starts_with("gputrace ") || code.starts_with("sudo gputrace ");
        // Abbreviated ones are skipped.
        let has_gaps =
            code.contains(['…', '\n', '[']) || code.contains("...") || code.contains("{command}");
        if !is_command || has_gaps {
            continue;
        }
        for shown in documents::commands(code) {
            found.push(shown.arguments.iter().map(|word| filled_in(word)).collect());
        }
    }
    found
}

/// Whether these arguments are just the name of a command or option.
fn is_name(command: &clap::Command, arguments: &[String]) -> bool {
    match arguments {
        [name] if name.starts_with('-') => check(command, &[name.clone(), "1".to_owned()]).is_ok(),
        [name] => command.find_subcommand(name).is_some(),
        _ => false,
    }
}

#[test]
fn every_command_in_a_sentence_is_one_that_gputrace_takes() {
    let command = command();
    let mut wrong = Vec::new();
    for page in pages() {
        for code in page.inline_code() {
            for arguments in patterns(&format!("`{code}`")) {
                if !is_name(&command, &arguments)
                    && let Err(error) = check(&command, &arguments)
                {
                    wrong.push(format!("{}: {code}: {error}", page.name()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_command_in_a_message_is_one_that_gputrace_takes() {
    let command = command();
    let (mut checked, mut wrong) = (0, Vec::new());
    for (path, text) in sources() {
        for line in text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
        {
            for arguments in patterns(line) {
                checked += 1;
                if !is_name(&command, &arguments)
                    && let Err(error) = check(&command, &arguments)
                {
                    wrong.push(format!("{path}: {line}: {error}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checked > 10, "only {checked} commands were found");
}

/// All long options and commands that the documentation may mention: gputrace's, and those of
/// rocprofv3 that it answers.
fn known() -> BTreeSet<String> {
    let command = command();
    let mut known = BTreeSet::new();
    let commands = command.get_subcommands().chain([&command]);
    for arg in commands.flat_map(clap::Command::get_arguments) {
        known.extend(arg.get_long().map(str::to_owned));
        known.extend(
            arg.get_all_aliases()
                .unwrap_or_default()
                .into_iter()
                .map(str::to_owned),
        );
    }
    known
}

#[test]
fn the_guide_names_no_option_that_is_not_there() {
    let known = known();
    let (mut checked, mut wrong) = (0, Vec::new());
    for page in pages().iter().filter(|page| page.is_guide()) {
        for code in page.inline_code() {
            let Some(name) = code.strip_prefix("--") else {
                continue;
            };
            let name = name.split(['=', ' ', ':']).next().unwrap();
            // Options of Docker, and a placeholder.
            if ["", "pid", "privileged", "OPTION"].contains(&name) {
                continue;
            }
            checked += 1;
            if !known.contains(name) {
                wrong.push(format!("{}: there is no --{name}", page.name()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checked > 100, "only {checked} options were found");
}

fn guide(name: &str) -> Page {
    let wanted = format!("docs/guide/{name}.md");
    pages()
        .into_iter()
        .find(|page| page.name() == wanted)
        .unwrap()
}

#[test]
fn the_guide_has_every_option_and_command() {
    let command = command();
    let page = guide("options");
    let named: BTreeSet<String> = page
        .inline_code()
        .iter()
        .flat_map(|code| {
            code.split([' ', '='])
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .collect();
    let shown = |arg: &&clap::Arg| !arg.is_hide_set();
    for arg in command.get_arguments().filter(shown) {
        let Some(long) = arg.get_long() else { continue };
        if !["help", "version"].contains(&long) {
            assert!(
                named.contains(&format!("--{long}")),
                "--{long} is not in {}",
                page.name()
            );
        }
    }
    for subcommand in command
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
    {
        let name = subcommand.get_name();
        assert!(
            name == "help" || named.contains(name),
            "{name} is not in {}",
            page.name()
        );
    }
}

#[test]
fn the_guide_has_every_exit_code() {
    let page = guide("exit-codes");
    let rows: BTreeSet<u8> = page
        .text
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(' ').next()?.parse().ok())
        .collect();
    let expected: BTreeSet<u8> = (0..=exit::INCOMPLETE).chain([130, 143]).collect();
    assert_eq!(rows, expected);
}

/// All sources below `userspace` with their paths.
fn sources() -> Vec<(String, String)> {
    fn collect(directory: &std::path::Path, found: &mut Vec<(String, String)>) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.display().to_string();
                found.push((name, std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(root().join("userspace")).unwrap() {
        let source = entry.unwrap().path().join("src");
        if source.is_dir() {
            collect(&source, &mut found);
        }
    }
    // This file shows wrong commands on purpose.
    found.retain(|(name, _)| !name.ends_with("documented.rs"));
    found
}

/// A source with its strings as they are shown, without line breaks.
fn strings_in_one_line(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut rest = source;
    while let Some((before, after)) = rest.split_once("\\\n") {
        text.push_str(before);
        rest = after.trim_start();
    }
    text.push_str(rest);
    text.replace("\\\"", "\"")
}

/// The fixed parts of a message on the page.
fn fixed_parts(message: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    for word in message.split(' ') {
        let bare = word.trim_matches(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '.');
        let changes = word.contains("...")
            || [
                "N", "M", "S", "T", "PID", "PATH", "NAME", "OPTION", "PROGRAM", "FORMAT",
            ]
            .contains(&bare)
            || word.starts_with("--OPTION")
            || word.contains("0x");
        if changes {
            parts.push(String::new());
        } else if let Some(last) = parts.last_mut() {
            if !last.is_empty() {
                last.push(' ');
            }
            last.push_str(word);
        }
    }
    parts.retain(|part| part.len() > 4);
    parts
}

#[test]
fn every_message_that_the_guide_explains_is_one_that_gputrace_says() {
    let sources: String = sources()
        .iter()
        .map(|(_, text)| strings_in_one_line(text))
        .collect();
    let page = guide("troubleshooting");
    let (mut checked, mut wrong) = (0, Vec::new());
    for line in page.text.lines() {
        for message in line
            .split("**`")
            .skip(1)
            .filter_map(|rest| rest.split_once('`'))
        {
            for part in fixed_parts(message.0) {
                checked += 1;
                if !sources.contains(&part) {
                    wrong.push(format!("nothing says '{part}' (of: {})", message.0));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checked > 50, "only {checked} parts of messages were found");
}

#[test]
fn every_link_leads_somewhere() {
    let pages = pages();
    let of = |path: &std::path::Path| {
        let path = path.canonicalize().ok()?;
        pages
            .iter()
            .find(|page| page.path.canonicalize().is_ok_and(|other| other == path))
    };
    let mut wrong = Vec::new();
    for page in &pages {
        for link in page.links() {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = match file {
                "" => page.path.clone(),
                _ => page.path.with_file_name("").join(file),
            };
            // mdBook does not check links that leave the book.
            let leaves_the_book = page.name().starts_with("docs/")
                && !target.canonicalize().is_ok_and(|target| {
                    target.starts_with(root().join("docs").canonicalize().unwrap())
                });
            let has_anchor = || {
                anchor.is_empty()
                    || of(&target)
                        .is_none_or(|target| target.anchors().iter().any(|known| known == anchor))
            };
            if !target.exists() || leaves_the_book || !has_anchor() {
                wrong.push(format!("{}: {link}", page.name()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_book_has_every_page_once() {
    let summary = pages()
        .into_iter()
        .find(|page| page.name() == "docs/SUMMARY.md")
        .unwrap();
    let mut listed: Vec<String> = summary
        .links()
        .iter()
        .map(|link| format!("docs/{link}"))
        .collect();
    listed.sort();
    let mut there: Vec<String> = pages().iter().map(Page::name).collect();
    there.retain(|name| name.starts_with("docs/") && name != "docs/SUMMARY.md");
    assert_eq!(listed, there);
}
