//! The line leaves a test that passes.
#![allow(missing_docs, reason = "a test")]

use std::env;
use std::process::Command;

/// Set in this program when it is run by itself.
const SKIPS: &str = "GPUTRACE_TEST_SKIPS";

#[test]
fn a_skipped_test() {
    if env::var_os(SKIPS).is_some() {
        println!("the test runner keeps this");
        gputrace_skip::skipped("no such thing");
        return;
    }
    let program = env::current_exe().unwrap();
    let mut command = Command::new(program);
    command.args(["--exact", "a_skipped_test"]).env(SKIPS, "1");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(
        !String::from_utf8_lossy(&output.stdout).contains("keeps this"),
        "{output:?}"
    );
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said, "SKIPPED a_skipped_test: no such thing\n");
}
