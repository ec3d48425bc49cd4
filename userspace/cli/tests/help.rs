//! Compares help texts, and documentation generated from the options, with golden files.
//!
//! `UPDATE_EXPECT=1 cargo test -p gputrace --test help` makes the files anew.

#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]
#![expect(clippy::expect_used, reason = "tests")]

use std::{path::Path, process::Command};

use expect_test::expect_file;

fn gputrace(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_gputrace"))
        .args(arguments)
        // Help is as wide as the terminal.
        .env("COLUMNS", "120")
        .env_remove("CLICOLOR_FORCE")
        .output()
        .expect("gputrace");
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    assert!(
        !output.stdout.contains(&0x1b),
        "colours on something that is no terminal"
    );
    String::from_utf8(output.stdout).expect("text")
}

fn golden(name: &str, text: &str) {
    expect_file![Path::new(env!("CARGO_MANIFEST_DIR")).join(name)].assert_eq(text);
}

#[test]
fn help_is_as_written_down() {
    for (name, arguments) in [
        ("gputrace", &["--help"][..]),
        ("short", &["-h"]),
        ("export", &["export", "--help"]),
        ("list", &["list", "--help"]),
        ("completions", &["completions", "--help"]),
        ("man", &["man", "--help"]),
    ] {
        golden(&format!("tests/help/{name}.txt"), &gputrace(arguments));
    }
}

#[test]
fn the_document_about_rocprofv3_is_up_to_date() {
    golden(
        "../../docs/rocprofv3.md",
        &gputrace(&["list", "--rocprofv3"]),
    );
}

#[test]
fn version_has_the_letters_of_rocprofv3_too() {
    let expected = concat!("gputrace ", env!("CARGO_PKG_VERSION"), "\n");
    for option in ["-V", "-v", "--version"] {
        assert_eq!(gputrace(&[option]), expected);
    }
}

#[test]
fn options_that_exclude_each_other_are_refused() {
    let output = Command::new(env!("CARGO_BIN_EXE_gputrace"))
        .args(["--selected-regions", "-P", "0:1:1", "--", "true"])
        .output()
        .expect("gputrace");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = String::from_utf8(output.stderr).expect("text");
    assert!(said.contains("exclude each other"), "{said}");
}
