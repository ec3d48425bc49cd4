//! The program on kernel functions: the registers that it records are the arguments of the calls.

#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, in its helper functions too"
)]

use std::{fs::File, io::Read as _};

use gputrace_abi::tracepoint::{FUNCTIONS_FROM, SHORT_TRACE_SIZE, ShortTrace};
use gputrace_loader::{
    ProbeError,
    calls::{BackendChoice, Calls, Options},
    tracepoint::{ARGUMENTS, Functions},
};
use zerocopy::FromBytes as _;

#[test]
fn registers_are_the_arguments() {
    let loaded = Calls::load(&Options {
        backend: BackendChoice::Auto,
        ring_bytes: 1 << 20,
        max_threads: 16,
        max_processes: 64,
        limit: None,
        stacks: false,
        every_library: false,
        follow_forks: false,
    });
    let calls = match loaded {
        Ok(calls) => calls,
        Err(error @ (ProbeError::PermissionDenied { .. } | ProbeError::Unsupported { .. })) => {
            assert!(
                std::env::var_os("GPUTRACE_REQUIRE_BPF").is_none(),
                "{error}"
            );
            gputrace_skip::skipped(&error.to_string());
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let mut functions = Functions::load(&calls, 0).unwrap();
    assert!(functions.attach("no_kernel_has_such_a_function").is_err());
    // `vfs_read(file, buf, count, pos)` of the kernel's fs.h, which read(2) on a device calls.
    let number = match functions.attach("vfs_read") {
        Ok(number) => number,
        Err(error) => {
            let missing = format!("this kernel has no breakpoints on functions: {error}");
            gputrace_skip::skipped(&missing);
            return;
        }
    };
    assert_eq!(number, FUNCTIONS_FROM);
    let mut buffer = vec![1; 54_321];
    File::open("/dev/zero")
        .unwrap()
        .read_exact(&mut buffer)
        .unwrap();
    calls.stop().unwrap();
    let mut found = Vec::new();
    for (_, mut ring) in calls.rings().unwrap() {
        while let Some(record) = ring.next() {
            if record.len() == SHORT_TRACE_SIZE {
                found.push(ShortTrace::read_from_bytes(&record).unwrap());
            }
        }
    }
    let argument = |record: &ShortTrace, number: usize| {
        let at = ARGUMENTS[number] as usize;
        u64::from_ne_bytes(record.data[at..at + 8].try_into().unwrap())
    };
    let mine = found.iter().filter(|record| {
        (record.head.pid, record.head.tracepoint) == (std::process::id(), number)
            && argument(record, 2) == 54_321
    });
    let buffers: Vec<u64> = mine.map(|record| argument(record, 1)).collect();
    assert_eq!(buffers, [buffer.as_ptr() as u64]);
}
