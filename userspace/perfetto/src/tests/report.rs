use gputrace_abi::domain::Domain;
use gputrace_capture::{
    ledger::{Ledger, LedgerRow},
    meta::{ClockSnapshot, End, EndReason, Mode, Notice, Recording},
};
use gputrace_timeline::event::Event;

use super::{function, protos::Data, trace};

fn clocks(boottime: u64) -> ClockSnapshot {
    ClockSnapshot {
        boottime,
        monotonic: boottime - 100,
        monotonic_raw: boottime - 90,
        realtime: boottime + 1_700_000_000_000_000_000,
        uncertainty: 80,
        realtime_error: None,
    }
}

#[test]
fn the_recording_is_described() {
    let decoded = trace(&[
        Event::Recording(Box::new(Recording {
            tool_version: "0.1.0".to_owned(),
            hostname: "node7".to_owned(),
            kernel_release: "6.12.1".to_owned(),
            kernel_version: "#1 SMP".to_owned(),
            machine: "x86_64".to_owned(),
            command: vec!["gputrace".to_owned(), "-p".to_owned(), "7".to_owned()],
            mode: Mode::Attach { pids: vec![7, 8] },
            backend: "uprobe_multi".to_owned(),
            clocks: clocks(1_000),
            main_pid: Some(7),
            ..Recording::default()
        })),
        function(0, "hipFree", Domain::HipRuntime, &[]),
        function(1, "hipMalloc", Domain::HipRuntime, &[]),
        Event::End(End {
            time: 9_000,
            reason: EndReason::Failed("disk full".to_owned()),
        }),
    ]);
    let recording = decoded.instant("recording: attached to 7, 8");
    assert_eq!(recording.begin, 1_000);
    assert_eq!(recording.track, decoded.track("gputrace: recording").uuid());
    for (name, value) in [
        ("gputrace", "0.1.0"),
        ("host", "node7"),
        ("kernel", "6.12.1"),
        ("command", "gputrace -p 7"),
        ("backend", "uprobe_multi"),
        ("main_pid", "7"),
        ("clock_uncertainty_ns", "80"),
    ] {
        assert_eq!(recording.note(name), value);
    }
    let library = decoded.instant("library: /opt/rocm/lib/libamdhip64.so.6");
    assert_eq!((library.begin, library.note("build_id")), (1_000, "0123"));
    let end = decoded.instant("end of recording: failed");
    assert_eq!((end.begin, end.note("error")), (9_000, "disk full"));
    let system = decoded
        .packets
        .iter()
        .find_map(|packet| match &packet.data {
            Some(Data::SystemInfo(system)) => system.utsname.as_ref(),
            _ => None,
        })
        .unwrap();
    assert_eq!(
        (
            system.sysname(),
            system.release(),
            system.version(),
            system.machine()
        ),
        ("Linux", "6.12.1", "#1 SMP", "x86_64")
    );
}

#[test]
fn clock_snapshots_only_go_forward() {
    let decoded = trace(&[
        Event::Recording(Box::new(Recording {
            clocks: clocks(1_000),
            ..Recording::default()
        })),
        Event::Clocks(clocks(1_000)),
        Event::Clocks(clocks(3_000)),
        Event::Clocks(clocks(2_000)),
        Event::Clocks(ClockSnapshot::default()),
    ]);
    let snapshots: Vec<Vec<(u32, u64)>> = decoded
        .packets
        .iter()
        .filter_map(|packet| match &packet.data {
            Some(Data::ClockSnapshot(snapshot)) => Some(snapshot),
            _ => None,
        })
        .map(|snapshot| {
            // BOOTTIME.
            assert_eq!(snapshot.primary_trace_clock(), 6);
            snapshot
                .clocks
                .iter()
                .map(|clock| (clock.clock_id(), clock.timestamp()))
                .collect()
        })
        .collect();
    // BOOTTIME, MONOTONIC, MONOTONIC_RAW, REALTIME as builtin_clock.proto numbers them.
    let expected = [1_000, 3_000].map(|time| {
        vec![
            (6, time),
            (3, time - 100),
            (5, time - 90),
            (1, time + 1_700_000_000_000_000_000),
        ]
    });
    assert_eq!(snapshots, expected);
}

#[test]
fn the_ledger_is_in_the_trace() {
    let rows = vec![
        LedgerRow {
            cpu: 0,
            domain: 0,
            seen: 100,
            written: 90,
            unfinished: 1,
            dropped: vec![7, 0, 0, 2, 0, 0],
        },
        LedgerRow {
            cpu: 3,
            domain: 2,
            seen: 10,
            written: 10,
            unfinished: 0,
            dropped: vec![0; 32],
        },
    ];
    let decoded = trace(&[
        Event::Notice(Notice {
            time: 40,
            text: "something to know".to_owned(),
        }),
        Event::Ledger(Box::new(Ledger {
            time: 50,
            complete: true,
            rows,
            unmatched_returns: 4,
            task_events: 6,
            ..Ledger::default()
        })),
    ]);
    let ledger = decoded.instant("loss ledger: 9 of 110 calls lost");
    assert_eq!(ledger.track, decoded.track("gputrace: loss ledger").uuid());
    for (name, value) in [
        ("complete", "true"),
        ("seen", "110"),
        ("written", "100"),
        ("unfinished", "1"),
        ("lost", "9"),
        ("imbalance", "0"),
        ("dropped.ring_full", "7"),
        ("dropped.lost_return", "2"),
        ("unmatched_returns", "4"),
        ("task_events", "6"),
        ("rows[0].domain", "HIP_RUNTIME_API"),
        ("rows[0].dropped.ring_full", "7"),
        ("rows[1].domain", "HSA_CORE_API"),
        ("rows[1].cpu", "3"),
        ("rows[1].seen", "10"),
        ("rows[1].dropped.reason 31", "0"),
    ] {
        assert_eq!(ledger.note(name), value, "{name}");
    }
    let notice = decoded.instant("notice: something to know");
    assert_eq!((notice.begin, notice.track), (40, ledger.track));
    assert!(
        decoded
            .instant("end of capture: it was cut off")
            .notes
            .is_empty()
    );
}

#[test]
fn a_missing_ledger_is_said() {
    let decoded = trace(&[]);
    assert_eq!(
        decoded.instant("loss ledger missing").track,
        decoded.track("gputrace: loss ledger").uuid()
    );
}
