//! A signal arrives while outputs are unfinished. This test is alone in its process, because no
//! files can be created afterwards.

#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]

use std::{fs, io::Write as _};

use gputrace_export::{OutputDir, abandon, testing::names};

#[test]
fn what_is_unfinished_goes_and_what_is_complete_stays() {
    let temporary = tempfile::tempdir().unwrap();
    let directory = OutputDir::open(temporary.path(), None).unwrap();
    let mut complete = directory.file("complete.csv").unwrap();
    complete.write_all(b"data").unwrap();
    complete.finish("data").unwrap();
    drop(directory.file("given-up.csv").unwrap());
    let file = directory.file("unfinished.db").unwrap();
    let staging = directory.staging("archive").unwrap();
    fs::create_dir(staging.path().join("deep")).unwrap();
    fs::write(staging.path().join("deep/0.evt"), "data").unwrap();
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 3);

    assert_eq!(abandon(), [temporary.path().join("complete.csv")]);
    assert_eq!(names(temporary.path()), ["complete.csv"]);
    // Dropping them would wait for the end of the process.
    std::mem::forget((file, staging));
}
