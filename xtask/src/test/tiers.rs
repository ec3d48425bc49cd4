//! `tests/tiers.toml`: which test runs when, and how.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context as _, Result, bail};
use jiff::civil::Date;
use serde::Deserialize;

use super::programs::{Program, TestId};
use crate::workspace::Workspace;

/// Where the tiers are, below the checkout.
const FILE: &str = "tests/tiers.toml";

/// The file. Tests that it does not name are in the gate.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tiers {
    /// What the gate gives to its tests.
    pub(crate) gate: Gate,
    classes: Classes,
    /// Left to `cargo xtask test --full`.
    #[serde(default)]
    full: Vec<Entry>,
    /// Left to `cargo xtask measure`.
    #[serde(default)]
    measure: Vec<Entry>,
    /// In the gate, with verdicts that depend on time: such a test may fail once.
    #[serde(default)]
    timing: Vec<Timing>,
    /// Allowed to be skipped where everything else is promised.
    #[serde(default)]
    skipped: Vec<Entry>,
    /// Limits of time other than [`LIMIT_SECONDS`].
    #[serde(default)]
    limit: Vec<Limit>,
}

/// What the gate gives to its tests, beside their names.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Gate {
    /// ROCm releases that tests run on, by name.
    pub(crate) releases: Vec<String>,
    /// Seed of all property tests.
    pub(crate) proptest_seed: u64,
    /// Rounds of `gputrace-chaos`.
    pub(crate) chaos_rounds: u64,
}

/// Which tests share the machine. A pattern is a program's id, or a program's id, a space and a
/// test's name; a `*` at its end stands for any rest.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Classes {
    /// One at a time: they trace, or drive a software GPU in real time.
    tracing: Vec<String>,
    /// One at a time, and after all others: they see or count what others do on the machine.
    node_wide: Vec<String>,
}

/// A test and the reason why it is in its list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    test: String,
    why: String,
}

/// A test whose verdict depends on time.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Timing {
    test: String,
    why: String,
    /// Day on which it was listed, such as `2026-11-25`.
    since: Date,
    /// Day after which it must have been mended.
    until: Date,
}

/// A test that may take longer than others.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Limit {
    test: String,
    seconds: u64,
    why: String,
}

/// After so long a test hangs, s: five times what the slowest of them takes on two busy processors.
const LIMIT_SECONDS: u64 = 300;

/// When a test runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tier {
    Gate,
    Full,
    Measure,
}

/// Beside what a test runs. In the order in which the classes run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    /// Beside others of this class.
    Pure,
    /// Alone.
    Tracing,
    /// Alone, and after all others.
    NodeWide,
}

impl Tiers {
    /// Reads the file.
    ///
    /// # Errors
    ///
    /// When it is not there, is no such file, or gives no reason for an entry.
    pub(crate) fn read(workspace: &Workspace) -> Result<Self> {
        let path = workspace.root.join(FILE);
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("{} is wrong", path.display()))
    }

    pub(super) fn parse(text: &str) -> Result<Self> {
        let tiers: Self = toml::from_str(text)?;
        for (test, why) in tiers.reasons() {
            if why.trim().is_empty() {
                bail!("`{test}` is listed without a reason");
            }
        }
        Ok(tiers)
    }

    /// All entries with their reasons.
    fn reasons(&self) -> impl Iterator<Item = (&str, &str)> {
        let entries = [&self.full, &self.measure, &self.skipped]
            .into_iter()
            .flatten();
        entries
            .map(|entry| (&*entry.test, &*entry.why))
            .chain(self.timing.iter().map(|entry| (&*entry.test, &*entry.why)))
            .chain(self.limit.iter().map(|entry| (&*entry.test, &*entry.why)))
    }

    /// Holds the file against the tests that there are.
    ///
    /// # Errors
    ///
    /// Names what is wrong: an entry or a pattern that fits no test, a test in two tiers, a date
    /// that has passed.
    pub(crate) fn check(&self, programs: &[Program], today: Date) -> Result<()> {
        let tests: BTreeSet<String> = programs
            .iter()
            .flat_map(|program| {
                program
                    .tests
                    .iter()
                    .map(|test| program.id_of(test).to_string())
            })
            .collect();
        let mut wrong = Vec::new();
        for (test, _) in self.reasons() {
            if !tests.contains(test) {
                wrong.push(format!("no test is called `{test}`"));
            }
        }
        for pattern in self.classes.tracing.iter().chain(&self.classes.node_wide) {
            if !tests.iter().any(|test| fits(pattern, test)) {
                wrong.push(format!("no test fits the pattern `{pattern}`"));
            }
        }
        for entry in &self.full {
            if self.measure.iter().any(|other| other.test == entry.test) {
                wrong.push(format!("`{}` is in two tiers", entry.test));
            }
        }
        for entry in &self.timing {
            if entry.until < today {
                wrong.push(format!(
                    "`{}` has depended on time since {} and was to be mended by {}",
                    entry.test, entry.since, entry.until
                ));
            }
        }
        if wrong.is_empty() {
            return Ok(());
        }
        bail!("{FILE} does not fit the tests:\n{}", wrong.join("\n"))
    }

    pub(crate) fn tier(&self, id: &TestId<'_>) -> Tier {
        let name = id.to_string();
        let among = |entries: &[Entry]| entries.iter().any(|entry| entry.test == name);
        if among(&self.full) {
            Tier::Full
        } else if among(&self.measure) {
            Tier::Measure
        } else {
            Tier::Gate
        }
    }

    pub(crate) fn class(&self, id: &TestId<'_>) -> Class {
        let name = id.to_string();
        let among = |patterns: &[String]| patterns.iter().any(|pattern| fits(pattern, &name));
        if among(&self.classes.node_wide) {
            Class::NodeWide
        } else if among(&self.classes.tracing) {
            Class::Tracing
        } else {
            Class::Pure
        }
    }

    /// Whether the test's verdict is known to depend on time.
    pub(crate) fn depends_on_time(&self, test: &str) -> bool {
        self.timing.iter().any(|entry| entry.test == test)
    }

    /// Why the test may be skipped where everything is promised.
    pub(crate) fn reason_to_skip(&self, test: &str) -> Option<&str> {
        let entry = self.skipped.iter().find(|entry| entry.test == test)?;
        Some(&entry.why)
    }

    /// After how many seconds the test hangs.
    pub(crate) fn limit(&self, test: &str) -> u64 {
        let own = self.limit.iter().find(|entry| entry.test == test);
        own.map_or(LIMIT_SECONDS, |entry| entry.seconds)
    }
}

/// Whether a pattern of [`Classes`] fits the test called `name`.
fn fits(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(begin) => name.starts_with(begin),
        None => name == pattern || name.split_once(' ').is_some_and(|(id, _)| id == pattern),
    }
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;

    const HEAD: &str = "[gate]\nreleases = ['5.2.3']\nproptest_seed = 1\nchaos_rounds = 6\n\
                        [classes]\ntracing = ['a::*']\nnode_wide = ['a::whole', 'a::two b']\n";

    fn programs() -> [Program; 3] {
        let program = |id: &str, tests: &[&str]| Program::with_tests(id, tests);
        [
            program("a::whole", &["x"]),
            program("a::two", &["b", "c"]),
            program("pure", &["m::t"]),
        ]
    }

    #[test]
    fn a_test_has_a_class_and_a_tier() {
        let tiers = Tiers::parse(&format!(
            "{HEAD}[[full]]\ntest = 'a::two c'\nwhy = 'long'\n\
             [[measure]]\ntest = 'pure m::t'\nwhy = 'figures'\n"
        ))
        .unwrap();
        let programs = programs();
        let seen: Vec<_> = programs
            .iter()
            .flat_map(|program| program.tests.iter().map(|test| program.id_of(test)))
            .map(|id| (id.to_string(), tiers.class(&id), tiers.tier(&id)))
            .collect();
        let row = |name: &str, class, tier| (name.to_owned(), class, tier);
        assert_eq!(
            seen,
            [
                row("a::whole x", Class::NodeWide, Tier::Gate),
                row("a::two b", Class::NodeWide, Tier::Gate),
                row("a::two c", Class::Tracing, Tier::Full),
                row("pure m::t", Class::Pure, Tier::Measure),
            ]
        );
        tiers.check(&programs, date(2026, 1, 1)).unwrap();
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let entry = |list: &str, test: &str, more: &str| {
            format!("{HEAD}[[{list}]]\ntest = '{test}'\nwhy = 'so'\n{more}")
        };
        let dates = "since = '2026-01-01'\nuntil = '2026-01-14'\n";
        for (text, complaint) in [
            (
                entry("full", "a::two d", ""),
                "no test is called `a::two d`",
            ),
            (
                entry("timing", "a::two b", dates),
                "was to be mended by 2026-01-14",
            ),
            (
                entry("limit", "a", "seconds = 9\n"),
                "no test is called `a`",
            ),
            (
                HEAD.replace("a::whole", "a::hole"),
                "fits the pattern `a::hole`",
            ),
            (
                entry(
                    "full",
                    "a::two b",
                    "[[measure]]\ntest = 'a::two b'\nwhy = 'so'\n",
                ),
                "`a::two b` is in two tiers",
            ),
        ] {
            let tiers = Tiers::parse(&text).unwrap();
            let error = tiers
                .check(&programs(), date(2026, 1, 15))
                .unwrap_err()
                .to_string();
            assert!(error.contains(complaint), "{error}");
        }
        let last_day = Tiers::parse(&entry("timing", "a::two b", dates)).unwrap();
        last_day.check(&programs(), date(2026, 1, 14)).unwrap();
    }

    #[test]
    fn an_entry_has_a_reason_and_no_unknown_field() {
        let without = format!("{HEAD}[[full]]\ntest = 'a'\nwhy = ' '\n");
        assert!(
            Tiers::parse(&without)
                .unwrap_err()
                .to_string()
                .contains("without a reason")
        );
        let unknown = format!("{HEAD}[[full]]\ntest = 'a'\nwhy = 'b'\nwen = 'c'\n");
        assert!(Tiers::parse(&unknown).is_err());
    }
}
