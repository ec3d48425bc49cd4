//! The verifier's figures, recorded in `tests/vm/verifier.txt`, so that growth of a program's
//! verification cost on some kernel is noticed before the kernel rejects it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context as _, Result};

/// Allowed growth of a figure, percent.
const ALLOWED_GROWTH: u64 = 20;

/// Growth below this is ignored, because small programs change by whole branches.
const NEGLIGIBLE: Figures = Figures {
    instructions: 500,
    peak_states: 20,
};

/// The verifier's figures for a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Figures {
    /// Number of instructions processed over all paths; the limit is a million.
    pub(super) instructions: u64,
    /// Maximum number of states remembered at a time.
    pub(super) peak_states: u64,
}

/// Figures by kernel and program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Table(BTreeMap<(String, String), Figures>);

/// The first lines of the file.
const HEAD: &str = "\
# What the kernel's verifier makes of each eBPF program, written by `cargo xtask vm --suite --update`.
# `cargo xtask vm --suite` fails if a figure grows by more than 20 %. The limit of instructions is a million.
#
# kernel  program                 instructions  peak states
";

impl Table {
    /// Reads the recorded figures; empty if there are none yet.
    ///
    /// # Errors
    ///
    /// When the file cannot be read.
    pub(super) fn read(path: &Path) -> Result<Self> {
        match fs::read_to_string(path) {
            Ok(text) => Ok(Self::parse(&text)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    fn parse(text: &str) -> Self {
        let rows = text.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            let key = (words.next()?.to_owned(), words.next()?.to_owned());
            let figures = Figures {
                instructions: words.next()?.parse().ok()?,
                peak_states: words.next()?.parse().ok()?,
            };
            Some((key, figures))
        });
        Self(rows.collect())
    }

    fn to_text(&self) -> String {
        let mut text = HEAD.to_owned();
        for ((kernel, program), figures) in &self.0 {
            let Figures {
                instructions,
                peak_states,
            } = figures;
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{kernel:<8}  {program:<22}  {instructions:>12}  {peak_states:>11}"
            );
        }
        text
    }

    /// Replaces the recorded figures of `kernel` by `seen` and writes the file.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub(super) fn update(
        &mut self,
        path: &Path,
        kernel: &str,
        seen: &BTreeMap<String, Figures>,
    ) -> Result<()> {
        self.0.retain(|(name, _), _| name != kernel);
        for (program, figures) in seen {
            self.0
                .insert((kernel.to_owned(), program.clone()), *figures);
        }
        fs::write(path, self.to_text()).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Problems of the figures in `seen` on `kernel`: programs that have grown too much, or are not
    /// recorded.
    pub(super) fn complaints(&self, kernel: &str, seen: &BTreeMap<String, Figures>) -> Vec<String> {
        let mut complaints = Vec::new();
        for (program, now) in seen {
            let Some(kept) = self.0.get(&(kernel.to_owned(), program.clone())) else {
                complaints.push(format!("{program}: no figures are kept of it"));
                continue;
            };
            for (what, now, kept, negligible) in [
                (
                    "instructions",
                    now.instructions,
                    kept.instructions,
                    NEGLIGIBLE.instructions,
                ),
                (
                    "peak states",
                    now.peak_states,
                    kept.peak_states,
                    NEGLIGIBLE.peak_states,
                ),
            ] {
                let allowed = kept + (kept * ALLOWED_GROWTH / 100).max(negligible);
                if now > allowed {
                    complaints.push(format!(
                        "{program}: {now} {what}, {kept} are kept, {allowed} allowed"
                    ));
                }
            }
        }
        complaints
    }
}

/// Parses a line of `gputrace-vm verifier`: `call_enter instructions=31814 peak_states=648
/// stack=112+208 ms=35`. `None` for a program that was rejected.
pub(super) fn line(line: &str) -> Option<(String, Figures)> {
    let mut words = line.split_whitespace();
    let program = words.next()?;
    let mut number = |name: &str| words.next()?.strip_prefix(name)?.parse().ok();
    Some((
        program.to_owned(),
        Figures {
            instructions: number("instructions=")?,
            peak_states: number("peak_states=")?,
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(instructions: u64, peak_states: u64) -> BTreeMap<String, Figures> {
        let figures = Figures {
            instructions,
            peak_states,
        };
        [("call_enter".to_owned(), figures)].into()
    }

    #[test]
    fn kept_figures_are_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("verifier.txt");
        let mut table = Table::read(&path).unwrap();
        assert_eq!(table, Table::default());
        table.update(&path, "6.1", &seen(31_814, 648)).unwrap();
        table.update(&path, "7.x", &seen(17_306, 417)).unwrap();
        assert_eq!(Table::read(&path).unwrap(), table);
        table.update(&path, "6.1", &BTreeMap::new()).unwrap();
        assert_eq!(table.0.len(), 1);
    }

    #[test]
    fn growth_is_noticed() {
        let mut table = Table::default();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("verifier.txt");
        table.update(&path, "6.1", &seen(10_000, 400)).unwrap();
        assert!(table.complaints("6.1", &seen(12_000, 480)).is_empty());
        assert_eq!(
            table.complaints("6.1", &seen(12_001, 480)),
            ["call_enter: 12001 instructions, 10000 are kept, 12000 allowed"]
        );
        assert_eq!(
            table.complaints("6.1", &seen(9000, 481)),
            ["call_enter: 481 peak states, 400 are kept, 480 allowed"]
        );
        assert_eq!(
            table.complaints("6.12", &seen(1, 1)),
            ["call_enter: no figures are kept of it"]
        );
        table.update(&path, "6.1", &seen(77, 6)).unwrap();
        assert!(table.complaints("6.1", &seen(400, 20)).is_empty());
    }

    #[test]
    fn lines_of_the_guest_are_read() {
        let (program, figures) =
            line("call_enter instructions=31814 peak_states=648 stack=112+208 ms=35").unwrap();
        assert_eq!(program, "call_enter");
        assert_eq!((figures.instructions, figures.peak_states), (31_814, 648));
        assert_eq!(line("call_enter refused: too large"), None);
        assert_eq!(line(""), None);
    }
}
