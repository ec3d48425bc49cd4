//! `gputrace_fuzz_replay::program`, driven by libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gputrace_fuzz_replay::program::run(bytes));
