//! `gputrace_fuzz_replay::capture_reader`, driven by libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gputrace_fuzz_replay::capture_reader::run(bytes));
