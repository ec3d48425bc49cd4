//! Replays what fuzzing has found, and checks that nothing is left out.
#![allow(missing_docs, reason = "a test")]
#![allow(
    clippy::panic,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "the files are those of the repository"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use gputrace_fuzz_replay::TARGETS;
use gputrace_fuzz_replay::replay::{LIMIT, corpus, replay};

/// A test for each target.
macro_rules! replayed {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            let run = gputrace_fuzz_replay::$name::run;
            if let Err(findings) = replay(&corpus().join(stringify!($name)), run, LIMIT) {
                panic!("{findings}");
            }
        })*

        const REPLAYED: &[&str] = &[$(stringify!($name)),*];
    };
}

replayed! {
    capture_reader
    code_object
    container
    list
    name
    outputs
    program
    smi
    timeline
}

fn names(directory: &Path, ending: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).expect("a directory of the repository");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let names = names.filter_map(|name| Some(name.to_str()?.strip_suffix(ending)?.to_owned()));
    names.collect()
}

#[test]
fn every_target_has_inputs_a_test_and_a_program() {
    let targets: BTreeSet<String> = TARGETS
        .iter()
        .map(|target| target.name.to_owned())
        .collect();
    let replayed: BTreeSet<String> = REPLAYED.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(replayed, targets);
    assert_eq!(names(&corpus(), ""), targets);
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/fuzz_targets");
    assert_eq!(names(&programs, ".rs"), targets);
}
