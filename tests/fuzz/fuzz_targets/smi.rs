//! Arbitrary text as a line of the driver's events.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|line: &str| {
    let _ = gputrace_kfd::smi::parse(line);
});
