//! What is fuzzed: a module for each decoder of outside bytes, whose `run` takes any bytes at all.
//!
//! The libFuzzer programs of `tests/fuzz` look for inputs on which a `run` panics or does not end.
//! The tests of this crate replay the inputs below `corpus`, a directory for each target: what
//! fuzzing found, as few inputs as reach the same code, and every input that was a mistake once.
//! They need no libFuzzer and take seconds, so that each change passes them.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a finding is a panic"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "the files are those of the repository"
)]

pub mod replay;

/// One target: its name, and what runs it over an input.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// That of its module, its directory of the corpus, and its libFuzzer program.
    pub name: &'static str,
    /// Panics if the input is a finding.
    pub run: fn(&[u8]),
}

macro_rules! targets {
    ($($name:ident)*) => {
        $(pub mod $name;)*

        /// All targets, by name.
        pub const TARGETS: &[Target] = &[$(Target { name: stringify!($name), run: $name::run }),*];
    };
}

targets! {
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

/// The text that an input begins with.
fn text(bytes: &[u8]) -> &str {
    match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let valid = &bytes[..error.valid_up_to()];
            std::str::from_utf8(valid).expect("it is valid so far")
        }
    }
}
