//! The last page of a run of tests: what failed and how, what was skipped and why, what took long.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::run::Ended;
use super::suite::{Account, Judged, Verdict};
use super::tiers::Tiers;
use crate::progress::Seconds;

/// Most bytes of a failed test's output that the page shows.
const SHOWN: usize = 3000;

/// How many of the slowest tests the page names.
const SLOWEST: usize = 10;

/// The page.
pub(crate) fn text(account: &Account, tiers: &Tiers) -> String {
    let mut page = String::new();
    let mut section = |title: &str, lines: Vec<String>| {
        if !lines.is_empty() {
            page += &format!("\n-- {title}\n{}\n", lines.join("\n"));
        }
    };
    section(
        "failed",
        account.of(Verdict::is_failure).map(failure).collect(),
    );
    let flaky = account.of(|verdict| verdict == Verdict::Flaky);
    section(
        "FLAKY, and known to depend on time",
        flaky.map(failure).collect(),
    );
    section("skipped, in whole or in part", skipped(account, tiers));
    let left = account
        .judged
        .iter()
        .filter(|judged| judged.ran.ended != Ended::Hung && !judged.ran.processes.is_empty());
    let left = left.map(|judged| format!("{}:\n{}", judged.test, judged.ran.processes.join("\n")));
    section("left processes behind", left.collect());
    section("slowest", slowest(account));
    page
}

/// The line that tells the result to programs.
pub(crate) fn counts(account: &Account) -> String {
    let failed = account.of(Verdict::is_failure).count();
    let skipped = account
        .judged
        .iter()
        .filter(|judged| !judged.verdict.is_failure() && judged.ran.skips().next().is_some())
        .count();
    let passed = account.judged.len() - failed - skipped;
    format!("tests: {passed} passed, {failed} failed, {skipped} skipped")
}

/// A test that failed, at least once.
fn failure(judged: &Judged) -> String {
    let how = match (judged.verdict, judged.ran.ended) {
        (Verdict::FlakyUnlisted, _) => {
            "failed, then passed twice: FLAKY, and not listed in tests/tiers.toml as depending on \
             time"
                .to_owned()
        }
        (Verdict::Flaky, _) => "failed, then passed twice".to_owned(),
        (Verdict::SkippedSilently, _) => {
            "skipped, with no reason in tests/tiers.toml, where everything is promised".to_owned()
        }
        (_, Ended::Failed(status)) => status.to_string(),
        (_, Ended::Hung) => "did not end in time".to_owned(),
        (_, Ended::Passed) => "passed".to_owned(),
    };
    let mut text = format!("{}: {how}\n  ({})", judged.test, judged.ran.evidence);
    for line in excerpt(&judged.ran.output).lines() {
        text += &format!("\n    {line}");
    }
    text
}

/// What matters of the output of a failed test: from its first panic on, without a backtrace.
fn excerpt(output: &str) -> &str {
    let begin = output.find("panicked at").unwrap_or_default();
    let begin = output
        .get(..begin)
        .and_then(|before| before.rfind('\n'))
        .map_or(0, |end| end + 1);
    let text = output.get(begin..).unwrap_or_default();
    let end = ["stack backtrace:", "note: run with `RUST_BACKTRACE"]
        .iter()
        .filter_map(|mark| text.find(mark))
        .min()
        .unwrap_or(text.len());
    let end = text.floor_char_boundary(end.min(SHOWN));
    text.get(..end).unwrap_or_default().trim_end()
}

/// Reasons of skips, each with the number of tests and the reason of the tier file.
fn skipped(account: &Account, tiers: &Tiers) -> Vec<String> {
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for judged in &account.judged {
        for reason in judged.ran.skips() {
            reasons.entry(reason).or_default().push(&judged.test);
        }
    }
    let lines = reasons.into_iter().map(|(reason, tests)| {
        let allowed = tests.iter().find_map(|test| tiers.reason_to_skip(test));
        let allowed = allowed.map(|why| format!(" ({why})")).unwrap_or_default();
        match *tests.as_slice() {
            [test] => format!("{test}: {reason}{allowed}"),
            _ => format!("{} tests: {reason}{allowed}", tests.len()),
        }
    });
    lines.collect()
}

fn slowest(account: &Account) -> Vec<String> {
    let mut tests: Vec<&Judged> = account.judged.iter().collect();
    tests.sort_by_key(|judged| std::cmp::Reverse(judged.ran.evidence.wall));
    let lines = tests.into_iter().take(SLOWEST).map(|judged| {
        format!(
            "{:>8}  {}",
            Seconds(judged.ran.evidence.wall).to_string(),
            judged.test
        )
    });
    lines.collect()
}

/// Adds a line to the file `path` for each test that failed and then passed.
///
/// # Errors
///
/// When the file cannot be written.
pub(crate) fn keep_count(account: &Account, path: &Path) -> Result<()> {
    let flaky = |verdict| matches!(verdict, Verdict::Flaky | Verdict::FlakyUnlisted);
    let mut lines = String::new();
    for judged in account.of(flaky) {
        lines += &format!(
            "{}\t{}\t{}\n",
            jiff::Timestamp::now(),
            judged.test,
            judged.ran.evidence
        );
    }
    if lines.is_empty() {
        return Ok(());
    }
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
    }
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.and_then(|mut file| file.write_all(lines.as_bytes()))
        .with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::super::evidence::Evidence;
    use super::super::run::Ran;
    use super::*;

    fn judged(test: &str, verdict: Verdict, output: &str) -> Judged {
        Judged {
            test: test.to_owned(),
            verdict,
            ran: Ran {
                ended: Ended::Passed,
                output: output.to_owned(),
                evidence: Evidence::default(),
                processes: Vec::new(),
            },
        }
    }

    #[test]
    fn a_page_has_a_section_for_each_kind_of_news() {
        let tiers = Tiers::parse(
            "[gate]\nreleases = []\nproptest_seed = 1\nchaos_rounds = 6\n[classes]\ntracing = []\n\
             node_wide = []\n[[skipped]]\ntest = 'p s'\nwhy = 'the gate has no GPU'\n",
        )
        .unwrap();
        let panic = "running 1 test\nthread 't' panicked at a.rs:1:2:\nleft: 1\nright: 2\n\
                     stack backtrace:\n 0: main\n";
        let account = Account {
            judged: vec![
                judged("p a", Verdict::Passed, ""),
                judged("p b", Verdict::Failed, panic),
                judged("p c", Verdict::FlakyUnlisted, "x"),
                judged("p s", Verdict::Passed, "SKIPPED s: no GPU\n"),
                judged("p d", Verdict::Flaky, "y"),
            ],
        };
        assert!(!account.passed());
        assert_eq!(counts(&account), "tests: 2 passed, 2 failed, 1 skipped");
        let page = text(&account, &tiers);
        for part in [
            "-- failed\np b: passed",
            "    thread 't' panicked at a.rs:1:2:\n    left: 1\n    right: 2\n",
            "p c: failed, then passed twice: FLAKY, and not listed",
            "-- FLAKY, and known to depend on time\np d: failed, then passed twice",
            "p s: no GPU (the gate has no GPU)",
            "-- slowest\n",
        ] {
            assert!(page.contains(part), "{part} is not in: {page}");
        }
        assert!(
            !page.contains("backtrace") && !page.contains("running 1 test"),
            "{page}"
        );
    }

    #[test]
    fn a_few_tests_may_be_known_to_depend_on_time() {
        let mut account = Account::default();
        for (number, passed) in [(0, true), (1, true), (2, true), (3, true), (4, false)] {
            assert_eq!(account.passed(), passed, "{number} of them");
            account.judged.push(judged("p t", Verdict::Flaky, ""));
        }
    }

    #[test]
    fn the_count_is_kept_over_runs() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ci/flaky.tsv");
        let account = Account {
            judged: vec![
                judged("p t", Verdict::Flaky, ""),
                judged("p u", Verdict::Passed, ""),
            ],
        };
        keep_count(&account, &path).unwrap();
        keep_count(&account, &path).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(
            text.lines().filter(|line| line.contains("\tp t\t")).count(),
            2,
            "{text}"
        );
        assert_eq!(text.lines().count(), 2, "{text}");
    }
}
