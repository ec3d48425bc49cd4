//! A synthetic capture of any length for the export figures, made without a recording.

use std::{fs::File, path::Path};

use anyhow::Result;
use gputrace_abi::{
    domain::Domain,
    gpu::{completion_reason, packet_flags},
};
use gputrace_capture::{
    CaptureWriter, Meta,
    gpu::Queue,
    ledger::{Ledger, LedgerRow},
    meta::{
        ClockSnapshot, End, Epoch, Function, Library, Parameter, Process, Recording, ValueKind,
    },
};
use gputrace_timeline::{
    event::Call,
    synthetic::{
        call, call_record,
        gpu::{self, PID},
    },
};
use zerocopy::IntoBytes as _;

/// Number of calls, dispatches and copies in one round.
pub(crate) const ROUND: (u64, u64, u64) = (6, 3, 1);

/// Time from one round to the next, ns.
const PERIOD: u64 = 20_000;

/// Rounds between two epoch marks: what a collector drains in some ms.
const EPOCH: u64 = 500;

/// Functions that are called in turn.
const FUNCTIONS: [&str; 6] = [
    "hipLaunchKernel",
    "hipMemcpyAsync",
    "hipEventRecord",
    "hipSetDevice",
    "hipGetLastError",
    "hipStreamSynchronize",
];

/// Writes a capture of `rounds` rounds.
///
/// # Errors
///
/// When the file cannot be written.
pub(crate) fn capture(path: &Path, rounds: u64) -> Result<()> {
    const START: u64 = 1_000_000_000;
    let domains = [
        Domain::HipRuntime,
        Domain::KernelDispatch,
        Domain::MemoryCopy,
    ];
    let recording = Recording {
        hostname: "made".to_owned(),
        cpus: 1,
        domains: domains.map(|domain| domain.name().to_owned()).to_vec(),
        clocks: ClockSnapshot {
            boottime: START,
            realtime: START,
            ..ClockSnapshot::default()
        },
        ..Recording::default()
    };
    let mut writer = CaptureWriter::create(File::create(path)?, &recording)?;
    for agent in gpu::agents() {
        writer.meta(&agent.into())?;
    }
    for handle in gpu::handles() {
        writer.meta(&handle.into())?;
    }
    let end = START + rounds * PERIOD;
    let mut time = START;
    while time < end + 1_000_000_000 {
        writer.meta(&gpu::clock(time / 10, time).into())?;
        time += 100_000_000;
    }
    writer.meta(
        &Queue {
            packets: 1024,
            ..gpu::queue()
        }
        .into(),
    )?;
    writer.meta(&gpu::code_object(0).into())?;
    writer.meta(&Meta::Process(Box::new(Process {
        pid: PID,
        name: "made".to_owned(),
        ..Process::default()
    })))?;
    writer.meta(&Meta::Library(Box::new(library())))?;

    let mut records = Vec::new();
    for round in 0..rounds {
        let begin = START + round * PERIOD;
        let first = round * ROUND.0 + 1;
        for number in 0..ROUND.0 {
            let from = begin + number * 2_000;
            records.extend_from_slice(&call_record(&Call {
                function: number as u32,
                tid: PID + (round % 4) as u32,
                args: [0x7f00_0000_1000, 0x7f00_0000_2000, 4096, 1, 0, 0],
                ..call(first + number, from, from + 1_500)
            }));
        }
        for number in 0..ROUND.1 {
            let index = round * ROUND.1 + number;
            let signal = 0x9000 + index % 64 * 64;
            let submitted = begin + 300 * (number + 1);
            let mut packet = gpu::packet(index, submitted, signal);
            packet.flags = packet_flags::STREAM;
            (packet.innermost, packet.outermost) = (first, first);
            let start = begin + 4_000 * (number + 1);
            let done = gpu::completion(
                signal,
                begin + PERIOD - 1_000,
                completion_reason::REARM,
                0,
                (start / 10, (start + 3_000) / 10),
            );
            records.extend_from_slice(packet.as_bytes());
            records.extend_from_slice(done.as_bytes());
        }
        for number in 0..ROUND.2 {
            let signal = 0xa000_0000 + (round * ROUND.2 + number) % 64 * 64;
            let mut copy = gpu::copy(begin + 2_100, signal);
            (copy.innermost, copy.outermost) = (first + 1, first + 1);
            let start = begin + 5_000;
            let done = gpu::completion(
                signal,
                begin + PERIOD - 500,
                completion_reason::REARM,
                0,
                (start / 10, (start + 8_000) / 10),
            );
            records.extend_from_slice(copy.as_bytes());
            records.extend_from_slice(done.as_bytes());
        }
        if round % EPOCH == EPOCH - 1 || round + 1 == rounds {
            writer.records(&records)?;
            records.clear();
            writer.meta(&Meta::Epoch(Epoch {
                time: begin + PERIOD - 1,
            }))?;
        }
    }
    let row = |domain: Domain, each: u64| LedgerRow {
        domain: domain.id(),
        seen: rounds * each,
        written: rounds * each,
        dropped: vec![0; 6],
        ..LedgerRow::default()
    };
    writer.meta(&Meta::Ledger(Box::new(Ledger {
        time: end,
        complete: true,
        rows: vec![
            row(Domain::HipRuntime, ROUND.0),
            row(Domain::KernelDispatch, ROUND.1),
            row(Domain::MemoryCopy, ROUND.2),
            row(Domain::Completion, ROUND.1 + ROUND.2),
        ],
        ..Ledger::default()
    })))?;
    writer.meta(&Meta::End(End {
        time: end,
        ..End::default()
    }))?;
    writer.flush()?;
    Ok(())
}

fn library() -> Library {
    let parameter = |name: &str, kind, register| Parameter {
        name: name.to_owned(),
        c_type: "void *".to_owned(),
        kind,
        at: gputrace_capture::meta::ArgSlot::Register(register),
        ..Parameter::default()
    };
    let functions = FUNCTIONS.iter().zip(0..).map(|(name, id)| Function {
        id,
        name: (*name).to_owned(),
        domain: Domain::HipRuntime.id(),
        parameters: Some(vec![
            parameter("dst", ValueKind::Pointer, 0),
            parameter("src", ValueKind::Pointer, 1),
            parameter("sizeBytes", ValueKind::Unsigned(8), 2),
        ]),
        returns: ValueKind::HipError,
        ..Function::default()
    });
    Library {
        path: "libamdhip64.so.6".to_owned(),
        functions: functions.collect(),
        ..Library::default()
    }
}
