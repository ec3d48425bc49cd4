//! How a test says that it is skipped.
//!
//! The test runner knows only passed and failed, and keeps to itself what a passed test prints.
//! [`skipped`] writes past it, so that whoever reads the output learns what was not tested.

use std::io::{self, Write as _};
use std::{env, thread};

/// Says that the running test, or a part of it, is skipped: a line `SKIPPED TEST-NAME: reason` on
/// standard error. `reason` names what is missing.
pub fn skipped(reason: &str) {
    let test = thread::current();
    let name = test.name().filter(|name| *name != "main");
    // A test without the test runner is a program of its own.
    let name = name.map_or_else(program, str::to_owned);
    // In one piece, between what the test runner and other tests write. Where nothing can be
    // written, nobody reads.
    drop(io::stderr().write_all(format!("SKIPPED {name}: {reason}\n").as_bytes()));
}

/// The name of this program, without the hash that cargo appends.
fn program() -> String {
    let path = env::current_exe().unwrap_or_default();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.rsplit_once('-').map_or(&*name, |(name, _)| name);
    name.to_owned()
}
