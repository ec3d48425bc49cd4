//! A runtime whose internal structures have unknown layouts: nothing wrong may be shown, and the
//! resulting loss must be reported once.

#![expect(clippy::expect_used, reason = "tests")]

mod support;

use std::process::Command;

use gputrace_capture::{Block, CaptureReader, Meta};
use gputrace_fidelity::{release::SIMROCM_NEWER, scenario::WORKLOADS};

use support::{record, release};

/// The remarks on layouts in a recording of copies and kernels by stand-ins with these behaviours.
fn remarks(newer: &str) -> Option<Vec<String>> {
    let release = release(SIMROCM_NEWER)?;
    let workload = WORKLOADS.iter().find(|workload| workload.title == "copies");
    let workload = workload.expect("the workload that copies");
    let plain = release.program(workload, workload.arguments);
    let mut program = Command::new(plain.get_program());
    for word in plain.get_args() {
        if word == "SIMROCM_NEWER=all" {
            program.arg(format!("SIMROCM_NEWER={newer}"));
        } else {
            program.arg(word);
        }
    }
    let place = tempfile::tempdir().expect("a directory");
    record(
        &program,
        place.path(),
        "",
        &["--kernel-trace", "--memory-copy-trace"],
    );
    let file = std::fs::File::open(place.path().join("out/run.gtcap")).expect("a capture");
    let mut reader = CaptureReader::new(std::io::BufReader::new(file)).expect("a capture");
    let mut remarks = Vec::new();
    let mut completions = 0;
    while let Some(block) = reader.next_block().expect("a whole capture") {
        match block {
            Block::Meta(Meta::Notice(notice)) if notice.text.contains(" lays out ") => {
                remarks.push(notice.text);
            }
            Block::Records(run) => completions += run.len(),
            _ => {}
        }
    }
    assert!(completions > 0);
    Some(remarks)
}

#[test]
fn a_layout_that_is_not_known_is_said_so_once() {
    let Some(known) = remarks("copy_batch") else {
        return;
    };
    assert_eq!(known, Vec::<String>::new());
    let moved = remarks("moved_fields").expect("the same release");
    for what in ["completion signals", "queues"] {
        let about = moved.iter().filter(|text| text.contains(what)).count();
        assert_eq!(about, 1, "{moved:?}");
    }
    assert!(
        moved.iter().all(|text| text.contains("bounds")),
        "{moved:?}"
    );
}
