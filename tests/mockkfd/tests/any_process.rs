//! Unsupported requests end the program with one message; processes without ROCm can use the
//! library.

mod support;

use std::process::Command;

use gputrace_harness::Run;
use gputrace_softgpu::clock::GpuClock;
use gputrace_softgpu::truth::Record;
use support::releases::{code_object, on_each_release};
use support::run_until;

/// Runs `kfd-caller`, which needs no ROCm, on a software GPU.
fn kfd_caller(what: &str, toml: &str) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kfd-caller"));
    run_until(command.arg(what), toml, |_| false)
}

/// Asserts that something unknown ended the program and was named once on stderr and once in the
/// log, with these bytes, which may be just the first ones.
fn assert_ended_by(run: &Run, what: &str, bytes: &str) {
    assert_eq!(
        run.status.and_then(|status| status.code()),
        Some(86),
        "{}",
        run.stderr
    );
    let message = format!("mockkfd: unknown {what}: {bytes}");
    let lines = run.stderr.lines();
    assert_eq!(
        lines.filter(|line| line.starts_with(&message)).count(),
        1,
        "{}",
        run.stderr
    );
    let unknown = |record: &&Record<'_>| matches!(record, Record::Unknown { .. });
    let named = |record: &&Record<'_>| {
        matches!(record, Record::Unknown { what: said, bytes: logged, .. }
            if said == what && logged.starts_with(bytes))
    };
    let count =
        |matches: &dyn Fn(&&Record<'static>) -> bool| run.truth.iter().filter(matches).count();
    assert_eq!((count(&unknown), count(&named)), (1, 1), "{:?}", run.truth);
}

#[test]
fn the_clock_is_the_configured_one() {
    let clock = GpuClock {
        frequency_hz: 25_000_000,
        offset_ticks: 77,
        ..GpuClock::default()
    };
    let run = kfd_caller(
        "clock",
        "[[agent]]\nclock = { frequency_hz = 25_000_000, offset_ticks = 77 }",
    );
    run.assert_success();
    let numbers: Vec<u64> = run
        .stdout
        .lines()
        .find_map(|line| line.strip_prefix("clock "))
        .map(|line| {
            line.split(' ')
                .map(|number| number.parse().unwrap())
                .collect()
        })
        .unwrap();
    assert_eq!(numbers[0], clock.ticks_at(numbers[1]));
    assert!(
        run.stdout.lines().any(|line| line == "id 31000"),
        "{}",
        run.stdout
    );
}

#[test]
fn an_unknown_ioctl_ends_the_program() {
    let run = kfd_caller("unknown-ioctl", "");
    assert_ended_by(&run, "KFD ioctl 0x7f", "0d00000000000000");
}

#[test]
fn an_unknown_sdma_operation_ends_the_program() {
    let run = kfd_caller("unknown-sdma", "");
    assert_ended_by(&run, "SDMA packet", "ee000000");
}

#[test]
fn an_unknown_packet_ends_the_program() {
    on_each_release(|release| {
        let module = code_object("module-gfx906.hsaco");
        let run = release.run("hsa_dispatch", &[&module, "unknown"], "");
        assert_ended_by(
            &run,
            "AQL packet, type 9",
            &format!("0900{}", "00".repeat(62)),
        );
    });
}

#[test]
fn a_wrong_configuration_ends_the_program() {
    let run = kfd_caller("clock", "agents = 1");
    assert_eq!(run.status.unwrap().code(), Some(86));
    assert!(
        run.stderr.contains("softgpu.toml is wrong"),
        "{}",
        run.stderr
    );
}
