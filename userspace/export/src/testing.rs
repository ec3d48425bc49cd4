//! Helpers for tests of formats. Only with the feature `synthetic`, which is for tests of this and
//! other crates.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]
#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Set in the process whose files may not grow: the directory to be filled.
const FULL_DISK: &str = "GPUTRACE_TEST_FULL_DISK";

/// Sorted names of the entries of a directory.
///
/// # Panics
/// When it cannot be read.
#[must_use]
pub fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .expect("a directory")
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    names
}

/// Calls `fill` for `directory` in a process that cannot make files longer than `blocks` of 512
/// bytes, as if the disk were full. No file may be left there. `test` is the name of the calling
/// test, or a part of the name that no other test shares.
///
/// # Panics
/// When something is left, or `fill` panics.
pub fn on_full_disk(test: &str, blocks: u32, directory: &Path, fill: impl FnOnce(&Path)) {
    if let Some(directory) = env::var_os(FULL_DISK) {
        return fill(directory.as_ref());
    }
    // The limit and the ignored signal are inherited, so this program runs again below a shell.
    let status = Command::new("sh")
        .arg("-c")
        .arg(format!(
            "trap '' XFSZ && ulimit -f {blocks} && exec \"$0\" {test}"
        ))
        .arg(env::current_exe().expect("this program's path"))
        .env(FULL_DISK, directory)
        .status()
        .expect("a shell");
    assert!(status.success(), "{status}");
    assert_eq!(names(directory), [""; 0], "something is left");
}

/// Checks a file with a script of `tests/readers`, run by the Python that `GPUTRACE_TEST_PYTHON`
/// names; prints that it is skipped if the variable is not set.
///
/// # Panics
/// When the script finds an error.
pub fn check_by_reader(script: &str, path: &Path) {
    let Some(python) = env::var_os("GPUTRACE_TEST_PYTHON") else {
        gputrace_skip::skipped("GPUTRACE_TEST_PYTHON is not set; `cargo xtask test` sets it");
        return;
    };
    let output = Command::new(python)
        .arg(reader(script))
        .arg(path)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("GPUTRACE_TEST_PYTHON can be run");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The path of a script of `tests/readers`.
#[must_use]
pub fn reader(script: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/readers")
        .join(script)
}
