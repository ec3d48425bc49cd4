//! Runs the commands on captures as users do.

#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "test code outside of #[test] functions"
)]

mod common;

use std::{fs, path::Path};

use common::{
    BOOT, capture,
    documents::{self, Shown},
    gputrace, stderr, stdout,
};
use serde_json::Value;
use tempfile::TempDir;

#[test]
fn summaries_and_exports_show_the_part_that_is_asked_for() {
    let directory = TempDir::new().unwrap();
    let path = capture(directory.path(), "a", BOOT, 0);
    let path = path.to_str().unwrap();
    let said = gputrace(&[
        "summary",
        path,
        "--time-window",
        "150ms:50%",
        "--domain",
        "hip",
    ]);
    assert!(said.status.success(), "{}", stderr(&said));
    let text = stdout(&said);
    assert!(
        text.contains("HIP API") && !text.contains("hsa_init"),
        "{text}"
    );
    assert!(text.contains("The filters left 16 of 20 calls"), "{text}");

    // It ends with rocprofv3's table in the chosen unit.
    for (more, heading, row) in [
        (
            &["-u", "msec"][..],
            "DURATION (msec)",
            "hipMemcpy|HIP_API|10|100.000000|1.000e+01|90.909091|10.000000|10.000000|0.000e+00",
        ),
        (
            &[],
            "DURATION (nsec)",
            "hsa_init|HSA_API|10|10000000|1.000e+06|9.090909|1000000|1000000|0.000e+00",
        ),
    ] {
        let text = stdout(&gputrace(&[&["summary", path], more].concat()));
        let (overview, table) = text.split_once("ROCPROFV3 SUMMARY:").unwrap();
        assert!(overview.contains("seen 20 = written 20"), "{text}");
        assert!(table.contains(heading), "{text}");
        let rows: Vec<String> = table
            .lines()
            .map(|line| line.split('|').map(str::trim).collect::<Vec<_>>().join("|"))
            .collect();
        assert!(rows.contains(&format!("|{row}|")), "{rows:?}");
    }

    let out = directory.path().join("out");
    let done = gputrace(&[
        "export",
        path,
        "-f",
        "csv,ndjson",
        "-d",
        out.to_str().unwrap(),
        "-o",
        "part",
        "--name",
        "hsa_",
    ]);
    assert!(done.status.success(), "{}", stderr(&done));
    assert!(stderr(&done).contains("The filters left 10 of 20 calls"));
    let csv = fs::read_to_string(out.join("part_hsa_api_trace.csv")).unwrap();
    assert_eq!(csv.lines().count(), 11);
    let lines = fs::read_to_string(out.join("part_results.ndjson")).unwrap();
    assert!(
        lines.contains("The filters left 10 of 20 calls"),
        "every output says so"
    );
}

#[test]
fn sql_answers_or_says_what_is_wrong() {
    let directory = TempDir::new().unwrap();
    let path = capture(directory.path(), "a", BOOT, 0);
    let path = path.to_str().unwrap();
    let sql = "SELECT name, count(*) AS calls FROM regions GROUP BY name ORDER BY name";
    let answer = gputrace(&["query", path, sql, "--format", "json"]);
    assert!(answer.status.success(), "{}", stderr(&answer));
    let rows: Value = serde_json::from_str(&stdout(&answer)).unwrap();
    assert_eq!(rows[0]["name"], "hipMemcpy");
    assert_eq!(
        (&rows[0]["calls"], &rows[1]["calls"]),
        (&10.into(), &10.into())
    );
    let table = gputrace(&["query", path, sql]);
    assert_eq!(
        stdout(&table),
        "name       calls\nhipMemcpy     10\nhsa_init      10\n"
    );

    for wrong in [
        "SELEC 1",
        "SELECT * FROM nothing",
        "DELETE FROM rocpd_metadata",
    ] {
        let answer = gputrace(&["query", path, wrong]);
        assert_eq!(answer.status.code(), Some(12), "{}", stderr(&answer));
        assert_eq!(stdout(&answer), "");
    }
    assert_eq!(
        gputrace(&["query", "/nowhere.gtcap", "SELECT 1"])
            .status
            .code(),
        Some(9)
    );
    assert_eq!(gputrace(&["query", path]).status.code(), Some(2));
}

#[test]
fn a_dump_has_a_line_for_each_block_and_record() {
    let directory = TempDir::new().unwrap();
    let path = capture(directory.path(), "a", BOOT, 0);
    let path = path.to_str().unwrap();
    let all = gputrace(&["dump", path]);
    assert!(all.status.success(), "{}", stderr(&all));
    let text = stdout(&all);
    assert!(
        text.lines().next().unwrap().contains(" recording "),
        "{text}"
    );
    assert!(text.lines().last().unwrap().contains(" end "), "{text}");
    let calls = stdout(&gputrace(&["dump", path, "--kind", "span,unfinished"]));
    assert_eq!(calls.lines().count(), 20, "{calls}");
    assert!(
        calls
            .lines()
            .all(|line| line.contains(" domain=H") && line.contains(" args=["))
    );
    let three = stdout(&gputrace(&["dump", path, "--kind=span", "--limit=3"]));
    assert_eq!(
        three.lines().collect::<Vec<_>>(),
        calls.lines().take(3).collect::<Vec<_>>()
    );
    assert_eq!(
        gputrace(&["dump", path, "--kind", "spam"]).status.code(),
        Some(2)
    );

    // The intact part of a damaged capture is shown.
    let bytes = fs::read(path).unwrap();
    let cut = directory.path().join("cut.gtcap");
    fs::write(&cut, &bytes[..bytes.len() - 1]).unwrap();
    let dump = gputrace(&["dump", cut.to_str().unwrap()]);
    assert_eq!(dump.status.code(), Some(15), "{}", stderr(&dump));
    assert_eq!(stdout(&dump).lines().count(), text.lines().count() - 1);
    assert!(
        stderr(&dump).contains("ends inside a block"),
        "{}",
        stderr(&dump)
    );
}

#[test]
fn a_difference_names_what_became_slower() {
    let directory = TempDir::new().unwrap();
    let before = capture(directory.path(), "a", BOOT, 0);
    let after = capture(directory.path(), "a", BOOT, 5_000_000);
    let (before, after) = (before.to_str().unwrap(), after.to_str().unwrap());
    let text = stdout(&gputrace(&["diff", before, after]));
    assert!(
        text.contains("hipMemcpy") && text.contains("1.50") && text.contains("slower"),
        "{text}"
    );
    let json: Value =
        serde_json::from_str(&stdout(&gputrace(&["diff", before, after, "--json"]))).unwrap();
    assert_eq!(json["rows"][0]["name"], "hipMemcpy");
    assert_eq!(json["rows"][0]["change_ns"], 50_000_000);
    assert_eq!(json["rows"][1]["verdict"], "same");
    // One side has nothing that was asked for.
    let empty = gputrace(&["diff", before, after, "--name", "no_such_function"]);
    assert!(empty.status.success());
    assert!(stdout(&empty).contains("Neither recording has calls"));
}

/// The HIP calls in a CSV file, as fields.
fn calls(directory: &Path, name: &str) -> Vec<Vec<String>> {
    let csv = fs::read_to_string(directory.join(format!("{name}_hip_api_trace.csv"))).unwrap();
    csv.lines()
        .skip(1)
        .map(|line| {
            line.split(',')
                .map(|field| field.trim_matches('"').to_owned())
                .collect()
        })
        .collect()
}

#[test]
fn captures_of_two_hosts_share_a_timeline() {
    let directory = TempDir::new().unwrap();
    let out = directory.path().join("out");
    let first = capture(directory.path(), "a", BOOT, 0);
    // Booted three seconds later.
    let second = capture(directory.path(), "b", BOOT + 3_000_000_000, 0);
    let merge = |more: &[&str]| {
        let fixed = [
            "merge",
            first.to_str().unwrap(),
            second.to_str().unwrap(),
            "-d",
            out.to_str().unwrap(),
        ];
        gputrace(&[&fixed[..], more].concat())
    };
    let done = merge(&[
        "-o",
        "all",
        "-f",
        "csv,ndjson,pftrace,rocpd,json",
        "-S",
        "--stats",
    ]);
    let said = stderr(&done);
    assert!(done.status.success(), "{said}");
    assert!(
        said.contains("b-0, of b, is aligned by the time of day"),
        "{said}"
    );
    assert!(
        said.contains("do not say that both were synchronised"),
        "{said}"
    );
    assert!(said.contains("seen 40 = written 40"), "{said}");
    assert!(
        said.contains("Recorded the targets of 2 captures on a+b"),
        "{said}"
    );
    let calls = calls(&out, "all");
    assert_eq!(calls.len(), 20);
    let number = |text: &str| -> u64 { text.parse().unwrap() };
    let mut ids: Vec<&str> = calls.iter().map(|call| call[4].as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 20, "correlation ids are unique");
    let of = |pid: u64| calls.iter().filter(move |call| number(&call[2]) == pid);
    let (own, theirs): (Vec<_>, Vec<_>) = (of(100).collect(), of(10_000_100).collect());
    assert_eq!((own.len(), theirs.len()), (10, 10));
    for (own, theirs) in own.iter().zip(&theirs) {
        assert_eq!(number(&theirs[5]), number(&own[5]) + 3_000_000_000);
    }
    let lines = fs::read_to_string(out.join("all_results.ndjson")).unwrap();
    assert_eq!(
        lines
            .lines()
            .filter(|line| line.contains("is aligned by"))
            .count(),
        1
    );

    // Filters count from the begin of the merged recording.
    let part = merge(&["-o", "part", "-f", "csv", "--time-window", "3s:"]);
    assert!(
        stderr(&part).contains("left 20 of 40 calls"),
        "{}",
        stderr(&part)
    );
    // The order of the captures does not matter for times.
    let back = gputrace(&[
        "merge",
        second.to_str().unwrap(),
        first.to_str().unwrap(),
        "-d",
        out.to_str().unwrap(),
        "--time-window",
        ":450ms",
        "-S",
    ]);
    assert!(
        stderr(&back).contains("left 30 of 40 calls"),
        "{}",
        stderr(&back)
    );
}

#[test]
fn captures_of_one_boot_share_their_processes() {
    let directory = TempDir::new().unwrap();
    let out = directory.path().join("out");
    let first = capture(directory.path(), "a", BOOT, 0);
    let second = capture(directory.path(), "a", BOOT, 7);
    let done = gputrace(&[
        "merge",
        first.to_str().unwrap(),
        second.to_str().unwrap(),
        "-d",
        out.to_str().unwrap(),
        "-o",
        "all",
        "-f",
        "csv",
    ]);
    let said = stderr(&done);
    assert!(done.status.success(), "{said}");
    assert!(
        said.contains("same boot of a") && said.contains("at the same time"),
        "{said}"
    );
    let calls = calls(&out, "all");
    assert_eq!(calls.len(), 20);
    assert!(calls.iter().all(|call| call[2] == "100"));
}

#[test]
fn captures_that_do_not_fit_are_refused() {
    let directory = TempDir::new().unwrap();
    let first = capture(directory.path(), "a", BOOT, 0);
    let unknown = capture(directory.path(), "b", 0, 0);
    let merge = |one: &Path, other: &Path| {
        let out = directory.path().join("out");
        let answer = gputrace(&[
            "merge",
            one.to_str().unwrap(),
            other.to_str().unwrap(),
            "-d",
            out.to_str().unwrap(),
        ]);
        assert!(!out.exists(), "nothing is begun");
        (answer.status.code(), stderr(&answer))
    };
    let (code, said) = merge(&first, &unknown);
    assert_eq!(code, Some(13), "{said}");
    assert!(said.contains("b-0.gtcap holds no time of day"), "{said}");
    assert_eq!(merge(&unknown, &first).0, Some(13));
    let (code, said) = merge(&first, &first);
    assert_eq!(
        (code, said.contains("is given twice")),
        (Some(2), true),
        "{said}"
    );
    assert_eq!(merge(&first, Path::new("/nowhere.gtcap")).0, Some(9));
}

#[test]
fn a_report_is_one_page() {
    let directory = TempDir::new().unwrap();
    let path = capture(directory.path(), "a", BOOT, 0);
    let page = directory.path().join("page.html");
    let done = gputrace(&[
        "report",
        path.to_str().unwrap(),
        "-o",
        page.to_str().unwrap(),
    ]);
    assert!(done.status.success(), "{}", stderr(&done));
    let html = fs::read_to_string(page).unwrap();
    assert!(html.starts_with("<!DOCTYPE html>") && html.contains("hipMemcpy"));
    let beside = gputrace(&["report", path.to_str().unwrap()]);
    assert!(beside.status.success() && path.with_extension("html").exists());
}

/// Possible exit codes of a command that the documentation shows; `None` if it is not run here,
/// because it needs root or a GPU, writes elsewhere, or contains a placeholder.
fn ends_with(shown: &Shown) -> Option<&'static [i32]> {
    let is_elsewhere =
        |word: &String| word.starts_with(['/', '~']) || word.contains('*') || word == "otf2";
    let command = shown.arguments.first()?;
    if shown.arguments.iter().skip(1).any(is_elsewhere) {
        return None;
    }
    match command.as_str() {
        // These also work on a machine without a GPU.
        "topology" | "ps" | "list" | "completions" | "man" => Some(&[0]),
        "export" | "summary" | "report" | "query" | "diff" | "merge" => Some(&[0]),
        // Without root, or where the kernel does not allow BPF.
        "doctor" if shown.arguments.len() == 1 => Some(&[0, 1, 6, 7]),
        _ => None,
    }
}

#[test]
fn commands_of_the_documentation_run() {
    let directory = TempDir::new().unwrap();
    let made = capture(directory.path(), "a", BOOT, 0);
    let other = capture(directory.path(), "b", BOOT, 0);
    let mut ran: Vec<Shown> = Vec::new();
    for page in documents::pages() {
        for shown in page.commands() {
            let Some(codes) = ends_with(&shown) else {
                continue;
            };
            if ran.iter().any(|before| before.arguments == shown.arguments) {
                continue;
            }
            // Captures of any name exist.
            for name in shown
                .arguments
                .iter()
                .filter(|name| name.ends_with(".gtcap"))
            {
                let from = if name.contains('2') { &other } else { &made };
                fs::copy(from, directory.path().join(name)).unwrap();
            }
            fs::create_dir_all(directory.path().join("out")).unwrap();
            // An earlier report would not be overwritten.
            let pages = fs::read_dir(directory.path())
                .unwrap()
                .map(|entry| entry.unwrap().path());
            for old in pages.filter(|path| {
                path.extension()
                    .is_some_and(|extension| extension == "html")
            }) {
                fs::remove_file(old).unwrap();
            }
            let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_gputrace"));
            let output = command
                .args(&shown.arguments)
                .current_dir(directory.path())
                .output()
                .unwrap();
            assert!(
                output
                    .status
                    .code()
                    .is_some_and(|code| codes.contains(&code)),
                "{}: gputrace {:?}: {}",
                page.name(),
                shown.arguments,
                stderr(&output)
            );
            ran.push(shown);
        }
    }
    assert!(ran.len() > 25, "only {} commands were run", ran.len());
}
