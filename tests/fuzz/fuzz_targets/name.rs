//! Arbitrary text as the mangled name of a function.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|name: &str| {
    let _ = gputrace_demangle::demangle(name);
    assert!(name.contains(gputrace_demangle::truncate(name)));
});
