//! `gputrace_fuzz_replay::name`, driven by libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gputrace_fuzz_replay::name::run(bytes));
