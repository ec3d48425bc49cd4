//! Processes without any ROCm that load the library: the clock is there for them too, and what the library
//! does not know ends them.
//!
//! The tests named `child_*` are the processes: the others run this program again with the library loaded.

#![allow(clippy::unwrap_used, reason = "test code outside of #[test] functions")]

mod support;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

use gputrace_softgpu::clock::GpuClock;
use gputrace_softgpu::truth::Record;
use support::run;

/// Runs one of the children below on a software GPU.
fn child(name: &str, toml: &str) -> support::Run {
    let this = std::env::current_exe().unwrap();
    run(
        Path::new(&this),
        &["--ignored", "--exact", "--nocapture", name],
        toml,
    )
}

/// An ioctl of KFD: `_IOWR('K', number, T)`.
fn kfd_ioctl<T>(kfd: &File, number: u64, arguments: &mut T) -> i32 {
    let request = 3 << 30 | (size_of::<T>() as u64) << 16 | u64::from(b'K') << 8 | number;
    // SAFETY: the request's size is that of the arguments, which live through the call.
    unsafe { libc::ioctl(kfd.as_raw_fd(), request, &raw mut *arguments) }
}

#[test]
fn the_clock_is_the_configured_one() {
    let clock = GpuClock {
        frequency_hz: 25_000_000,
        offset_ticks: 77,
        ..GpuClock::default()
    };
    let run = child(
        "child_reads_the_clock",
        "[[agent]]\nclock = { frequency_hz = 25_000_000, offset_ticks = 77 }",
    );
    run.assert_success();
    let numbers: Vec<u64> = run
        .stdout
        .lines()
        .find_map(|line| line.strip_prefix("clock "))
        .map(|line| line.split(' ').map(|number| number.parse().unwrap()).collect())
        .unwrap();
    assert_eq!(numbers[0], clock.ticks_at(numbers[1]));
}

#[test]
fn an_unknown_ioctl_ends_the_program_and_is_named_once() {
    let run = child("child_asks_the_unknown", "");
    assert_eq!(run.status.unwrap().code(), Some(86));
    let message = "mockkfd: unknown KFD ioctl 0x7f: 0d00000000000000";
    assert_eq!(
        run.stderr.lines().filter(|line| *line == message).count(),
        1,
        "{}",
        run.stderr
    );
    let unknown = |record: &&Record<'_>| matches!(record, Record::Unknown { .. });
    assert_eq!(run.truth.iter().filter(unknown).count(), 1);
}

#[test]
fn a_wrong_configuration_ends_the_program() {
    let run = child("child_reads_the_clock", "agents = 1");
    assert_eq!(run.status.unwrap().code(), Some(86));
    assert!(run.stderr.contains("softgpu.toml is wrong"), "{}", run.stderr);
}

#[test]
#[ignore = "the process of the_clock_is_the_configured_one"]
fn child_reads_the_clock() {
    let kfd = File::open("/dev/kfd").unwrap();
    // kfd_ioctl_get_clock_counters_args: GPU ticks, CPU ns, system ns, frequency, GPU id and padding.
    let mut counters = [0, 0, 0, 0, 31_000_u64];
    assert_eq!(kfd_ioctl(&kfd, 0x05, &mut counters), 0);
    println!("\nclock {} {}", counters[0], counters[2]);
    assert_eq!(
        std::fs::read_to_string("/sys/class/kfd/kfd/topology/nodes/1/gpu_id").unwrap(),
        "31000\n"
    );
}

#[test]
#[ignore = "the process of an_unknown_ioctl_ends_the_program_and_is_named_once"]
fn child_asks_the_unknown() {
    let kfd = File::open("/dev/kfd").unwrap();
    kfd_ioctl(&kfd, 0x7f, &mut 13_u64);
}
