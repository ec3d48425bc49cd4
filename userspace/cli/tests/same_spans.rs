//! Checks with independent readers that every format contains the same spans.

#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "test code outside of #[test] functions"
)]

use std::{env, path::Path, process::Command};

use gputrace_abi::{
    domain::Domain,
    gpu::{completion_reason, packet_flags},
};
use gputrace_capture::{
    Meta,
    gpu::Queue,
    ledger::Ledger,
    meta::{ArgSlot, ClockSnapshot, End, Function, Library, Parameter, Recording, ValueKind},
};
use gputrace_timeline::synthetic::{Synthetic, call, gpu, ledger};

const MS: u64 = 1_000_000;

/// Handles of streams. The first is the null stream, and the last has no work.
const STREAMS: [u64; 4] = [0, 0xa0, 0xb0, 0xc0];

/// Adds a reading of `signal`, 6 ms after its use began, with the begin and end of that use in ms.
fn ended(made: &mut Synthetic, account: &mut Ledger, signal: u64, (begin, end): (u64, u64)) {
    let ticks = (begin * MS / 10, end * MS / 10);
    let read = gpu::completion(signal, (begin + 6) * MS, completion_reason::REARM, 0, ticks);
    gpu::count(account, &read.header);
    made.record(&read);
}

/// A recording with calls, dispatches with and without times, and copies.
fn capture() -> Vec<u8> {
    let domains = [
        Domain::HipRuntime,
        Domain::KernelDispatch,
        Domain::MemoryCopy,
    ];
    let mut made = Synthetic::new(&Recording {
        cpus: 1,
        domains: domains.map(|domain| domain.name().to_owned()).to_vec(),
        clocks: ClockSnapshot {
            boottime: MS,
            realtime: MS,
            ..ClockSnapshot::default()
        },
        ..Recording::default()
    });
    for agent in gpu::agents() {
        made.meta(agent);
    }
    for handle in gpu::handles() {
        made.meta(handle);
    }
    for index in 0..10 {
        made.meta(gpu::clock(index * 10_000_000, index * 100 * MS));
    }
    made.meta(Queue {
        packets: 1024,
        ..gpu::queue()
    });
    made.meta(gpu::code_object(0));
    made.meta(Meta::Library(Box::new(Library {
        path: "libamdhip64.so".to_owned(),
        functions: vec![Function {
            name: "hipLaunchKernel".to_owned(),
            domain: Domain::HipRuntime.id(),
            parameters: Some(vec![Parameter {
                name: "stream".to_owned(),
                c_type: "hipStream_t".to_owned(),
                kind: ValueKind::Pointer,
                at: ArgSlot::Register(0),
                ..Parameter::default()
            }]),
            ..Function::default()
        }],
        ..Library::default()
    })));
    let calls: Vec<_> = (0..20)
        .map(|number| {
            let mut call = call(number + 1, (10 * number + 10) * MS, (10 * number + 15) * MS);
            // Calls name the streams in a different order than work comes in, and include a stream
            // without work.
            call.args[0] = STREAMS[(number as usize + 1) % STREAMS.len()];
            call
        })
        .collect();
    let mut account = ledger(&calls, &[]);
    for call in &calls {
        made.call(call);
    }
    for number in 0..20_u64 {
        // Half of them have no signal, and therefore no times of their own.
        let signal = if number % 2 == 0 {
            0x9000 + number * 64
        } else {
            0
        };
        let mut packet = gpu::packet(number, (10 * number + 11) * MS, signal);
        (packet.innermost, packet.outermost) = (number + 1, number + 1);
        packet.flags |= packet_flags::STREAM;
        packet.stream = STREAMS[number as usize % 3];
        gpu::count(&mut account, &packet.header);
        made.record(&packet);
        if signal != 0 {
            ended(
                &mut made,
                &mut account,
                signal,
                (10 * number + 12, 10 * number + 14),
            );
        }
    }
    for number in 0..5_u64 {
        let signal = 0xa000 + number * 64;
        let mut copy = gpu::copy((10 * number + 11) * MS, signal);
        (copy.innermost, copy.outermost) = (number + 1, number + 1);
        copy.flags |= packet_flags::STREAM;
        copy.stream = STREAMS[number as usize % 2];
        gpu::count(&mut account, &copy.header);
        made.record(&copy);
        ended(
            &mut made,
            &mut account,
            signal,
            (10 * number + 12, 10 * number + 13),
        );
    }
    account.time = 300 * MS;
    made.meta(Meta::Ledger(Box::new(account)));
    made.meta(End {
        time: 300 * MS,
        ..End::default()
    });
    made.bytes()
}

#[test]
fn every_format_holds_the_same_spans() {
    let Some(python) = env::var_os("GPUTRACE_TEST_PYTHON") else {
        gputrace_skip::skipped("GPUTRACE_TEST_PYTHON is not set; `cargo xtask test` sets it");
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("made.gtcap");
    std::fs::write(&path, capture()).unwrap();
    let out = directory.path().join("out");
    // If OTF2's library is missing, its format is left out.
    let made = Command::new(env!("CARGO_BIN_EXE_gputrace"))
        .arg("export")
        .arg(&path)
        .args([
            "-f",
            "csv,ndjson,pftrace,rocpd,json,otf2",
            "-o",
            "made",
            "-d",
        ])
        .arg(&out)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&made.stderr);
    assert!(
        made.status.success() || said.contains("libopen-trace-format2"),
        "{said}"
    );
    let compared = Command::new(python)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/readers/same_spans.py"))
        .arg(&out)
        .arg("made")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap();
    let (counts, wrong) = (
        String::from_utf8_lossy(&compared.stdout),
        String::from_utf8_lossy(&compared.stderr),
    );
    assert!(compared.status.success(), "{wrong}{counts}");
    for part in [
        "\"hip_api\": 20",
        "\"kernel_dispatch\": 10",
        "\"memory_copy\": 5",
        "\"untimed kernel_dispatch\": 10",
        "\"streams of\": [\"csv\", \"json\", \"db\"]",
        "\"streams\": [0, 1, 2]",
    ] {
        assert!(counts.contains(part), "{part} in {counts}");
    }
}
