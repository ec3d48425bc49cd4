//! The Markdown pages of the repository, and the commands and links in them.

#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "test code outside of #[test] functions, of which not every test uses all"
)]

use std::{
    fs,
    path::{Path, PathBuf},
};

/// A page of documentation.
pub(crate) struct Page {
    /// Its path.
    pub(crate) path: PathBuf,
    /// Its text.
    pub(crate) text: String,
}

/// A `gputrace` command on a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    /// The words behind `gputrace`.
    pub(crate) arguments: Vec<String>,
    /// Whether it runs under `sudo`.
    pub(crate) sudo: bool,
}

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All pages: those at the root, and all below `docs`.
pub(crate) fn pages() -> Vec<Page> {
    let mut pages = Vec::new();
    collect(&root(), false, &mut pages);
    collect(&root().join("docs"), true, &mut pages);
    pages.sort_by(|one, other| one.path.cmp(&other.path));
    assert!(pages.len() > 10, "the pages are elsewhere");
    pages
}

fn collect(directory: &Path, deep: bool, pages: &mut Vec<Page>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if deep && path.is_dir() {
            collect(&path, deep, pages);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            let text = fs::read_to_string(&path).unwrap();
            pages.push(Page { path, text });
        }
    }
}

impl Page {
    /// Its path below the root.
    pub(crate) fn name(&self) -> String {
        let path = self.path.strip_prefix(root()).unwrap_or(&self.path);
        path.display().to_string()
    }

    /// Whether it is part of the user guide.
    pub(crate) fn is_guide(&self) -> bool {
        self.name().starts_with("docs/guide/")
    }

    /// The shell's lines of its blocks: those of `console` behind `$`, and all of `sh`. Lines that end in `\` are
    /// joined with the next.
    fn shell_lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut language = None;
        let mut joined = String::new();
        for line in self.text.lines().map(str::trim) {
            if let Some(after) = line.strip_prefix("```") {
                language = match language {
                    Some(_) => None,
                    None => Some(after.to_owned()),
                };
                continue;
            }
            let command = match (language.as_deref(), joined.is_empty()) {
                (Some("console"), true) => line.strip_prefix("$ "),
                (Some("console"), false) | (Some("sh"), _) => Some(line),
                _ => None,
            };
            let Some(command) = command else { continue };
            match command.strip_suffix('\\') {
                Some(more) => joined.push_str(more),
                None => lines.push(std::mem::take(&mut joined) + command),
            }
        }
        lines
    }

    /// The commands in its blocks.
    pub(crate) fn commands(&self) -> Vec<Shown> {
        let lines = self.shell_lines();
        lines.iter().flat_map(|line| commands(line)).collect()
    }

    /// Its lines outside of blocks of code.
    fn prose(&self) -> impl Iterator<Item = &str> {
        let mut block = false;
        self.text.lines().filter(move |line| {
            let is_fence = line.trim_start().starts_with("```");
            block ^= is_fence;
            !block && !is_fence
        })
    }

    /// The text of its code within sentences: what stands between backticks outside of blocks.
    pub(crate) fn inline_code(&self) -> Vec<String> {
        // A code span may go on in the next line; those here do not, and a test of the commands would say so.
        let spans = self
            .prose()
            .flat_map(|line| line.split('`').skip(1).step_by(2));
        spans.map(str::to_owned).collect()
    }

    /// Targets of its links, those of images among them.
    pub(crate) fn links(&self) -> Vec<String> {
        let behind = self.prose().flat_map(|line| line.split("](").skip(1));
        behind
            .filter_map(|rest| Some(rest.split_once(')')?.0.to_owned()))
            .collect()
    }

    /// The anchors of its headings, as GitHub and mdBook make them.
    pub(crate) fn anchors(&self) -> Vec<String> {
        let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
        let headings = self.prose().filter(|line| line.starts_with('#'));
        headings
            .map(|line| {
                let heading = line.trim_start_matches('#').trim().to_lowercase();
                heading
                    .chars()
                    .filter(kept)
                    .collect::<String>()
                    .replace(' ', "-")
            })
            .collect()
    }
}

/// The `gputrace` commands of a line of shell.
pub(crate) fn commands(line: &str) -> Vec<Shown> {
    let mut found = Vec::new();
    for words in simple_commands(line) {
        let mut words = words.into_iter().peekable();
        let mut sudo = false;
        while let Some(word) = words.next() {
            if word == "sudo" {
                sudo = true;
                while words.next_if(|word| word.starts_with('-')).is_some() {}
            } else if is_gputrace(&word) {
                found.push(Shown {
                    arguments: words.by_ref().collect(),
                    sudo,
                });
            } else if !word.contains('=') {
                // Another program; but gputrace may be what a container runs: `docker run image gputrace -a`.
                let rest: Vec<String> = words.by_ref().collect();
                let runs = if word == "docker" { "gputrace" } else { "" };
                if let Some(at) = rest.iter().position(|word| word == runs) {
                    let arguments = rest.into_iter().skip(at + 1).collect();
                    found.push(Shown { arguments, sudo });
                }
            }
        }
    }
    found
}

fn is_gputrace(word: &str) -> bool {
    [
        "gputrace",
        "target/release/gputrace",
        "target/debug/gputrace",
    ]
    .contains(&word)
}

/// The words of the commands in a line, as a shell splits them. A substitution becomes the word `1`. Redirections are
/// left out.
fn simple_commands(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut characters = line.chars().peekable();
    let mut redirected = false;
    while let Some(c) = characters.next() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (Some('\''), _) => word.get_or_insert_default().push(c),
            (_, '$') if characters.peek() == Some(&'(') => {
                while characters.next().is_some_and(|c| c != ')') {}
                word.get_or_insert_default().push('1');
            }
            (Some(_), _) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, ' ' | '|' | ';' | '&' | '>') => {
                let is_descriptor = c == '>' && word.as_deref().is_some_and(|word| word == "2");
                if let Some(word) = word.take()
                    && !std::mem::take(&mut redirected)
                    && !is_descriptor
                {
                    commands.last_mut().unwrap().push(word);
                }
                redirected |= c == '>';
                if matches!(c, '|' | ';' | '&') && !redirected {
                    commands.push(Vec::new());
                }
            }
            (None, _) => word.get_or_insert_default().push(c),
        }
    }
    if let Some(word) = word
        && !redirected
    {
        commands.last_mut().unwrap().push(word);
    }
    commands.retain(|words| !words.is_empty());
    commands
}

/// A word of a pattern such as `gputrace kfd PID` as somebody would type it.
pub(crate) fn filled_in(word: &str) -> String {
    let value = match word {
        "PID" | "TID" | "N" | "{pid}" => "1",
        "PERCENT" | "HZ" => "2",
        "TIME" => "1s",
        "BEGIN:END" => "1s:2s",
        "CATEGORY:NAME" => "sched:sched_switch",
        "DELAY:TIME:REPEAT" => "1:1:1",
        "RANGES" => "[1]",
        "SIZE" => "4MiB",
        "KB" => "1",
        "CAPTURE" | "BEFORE" | "{capture}" => "run.gtcap",
        "AFTER" => "other.gtcap",
        "SQL" => "SELECT 1",
        "SHELL" => "bash",
        "UNIT" => "msec",
        "INDEX" => "absolute",
        "FORMAT" => "csv",
        "DOMAIN" => "hip",
        "PLACE" => "fentry",
        "LEVEL" => "info",
        "MODE" => "launch",
        "NAME.gtcap" => "run.gtcap",
        other => other,
    };
    value.to_owned()
}

#[test]
fn commands_are_found_in_lines_of_shell() {
    let found = |line: &str| -> Vec<(bool, String)> {
        commands(line)
            .into_iter()
            .map(|shown| (shown.sudo, shown.arguments.join("|")))
            .collect()
    };
    let one = |sudo, arguments: &str| vec![(sudo, arguments.to_owned())];
    assert_eq!(found("sudo -E gputrace -p 1 # why"), one(true, "-p|1"));
    assert_eq!(
        found("gputrace query run.gtcap \"SELECT 'a'\" > x 2>&1 | head"),
        one(false, "query|run.gtcap|SELECT 'a'")
    );
    assert_eq!(
        found("X=1 gputrace -p $(pgrep x) && ls"),
        one(false, "-p|1")
    );
    assert_eq!(
        found("docker run my-gputrace gputrace -a"),
        one(false, "-a")
    );
    assert_eq!(found("cargo test -p gputrace --test help"), []);
}
