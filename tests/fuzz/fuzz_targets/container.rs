//! `gputrace_fuzz_replay::container`, driven by libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gputrace_fuzz_replay::container::run(bytes));
