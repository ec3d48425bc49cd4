//! Writes a trace of synthetic calls and kernels and prints the speed: `made_up_trace FILE [CALLS
//! [DISPATCHES]]`.

#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]

use std::{env, error::Error, fs::File, hint::black_box, time::Instant};

use gputrace_abi::domain::Domain;
use gputrace_capture::{
    ledger::{Ledger, LedgerRow},
    meta::{ArgSlot, ClockSnapshot, End, Function, Parameter, Recording, ValueKind},
};
use gputrace_perfetto::TraceWriter;
use gputrace_timeline::{
    event::{Call, CallEnd, Event, FunctionInfo},
    gpu::{Dispatch, GpuTime, Origin, Quality, Window},
};

const THREADS: u32 = 8;
const START: u64 = 1_000_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let path = arguments
        .next()
        .ok_or("usage: made_up_trace FILE [CALLS [DISPATCHES]]")?;
    let calls: u64 = arguments
        .next()
        .map_or(Ok(1_000_000), |count| count.parse())?;
    let dispatches: u64 = arguments.next().map_or(Ok(0), |count| count.parse())?;

    let mut trace = TraceWriter::new(File::create(&path)?)?;
    trace.event(&Event::Recording(Box::new(Recording {
        clocks: ClockSnapshot {
            boottime: START,
            monotonic: START,
            monotonic_raw: START,
            realtime: START,
            uncertainty: 50,
            realtime_error: None,
        },
        ..Recording::default()
    })))?;
    for (id, name, domain) in [
        (0, "hipMemcpyAsync", Domain::HipRuntime),
        (1, "hsa_amd_memory_async_copy", Domain::HsaAmdExt),
    ] {
        trace.event(&Event::Function(Box::new(function(id, name, domain))))?;
    }

    let before = Instant::now();
    for index in 0..calls {
        trace.event(black_box(&Event::Call(call(index))))?;
    }
    let took = before.elapsed();
    let before = Instant::now();
    for index in 0..dispatches {
        trace.event(black_box(&Event::Dispatch(Box::new(dispatch(index)))))?;
    }
    let dispatches_took = before.elapsed();
    let rows = [Domain::HipRuntime, Domain::HsaAmdExt].map(|domain| {
        let written = if domain == Domain::HipRuntime {
            calls.div_ceil(2)
        } else {
            calls / 2
        };
        LedgerRow {
            domain: domain.id(),
            seen: written,
            written,
            ..LedgerRow::default()
        }
    });
    let time = START + calls * 2_000;
    trace.event(&Event::Ledger(Box::new(Ledger {
        time,
        complete: true,
        rows: rows.to_vec(),
        ..Ledger::default()
    })))?;
    trace.event(&Event::End(End {
        time,
        ..End::default()
    }))?;
    let bytes = trace.finish()?.metadata()?.len();
    eprintln!(
        "{calls} calls in {took:.2?}: {:.2} M calls/s, {} bytes per event",
        calls as f64 / took.as_secs_f64() / 1e6,
        bytes / (calls + dispatches).max(1),
    );
    eprintln!(
        "{dispatches} dispatches in {dispatches_took:.2?}: {:.2} M dispatches/s",
        dispatches as f64 / dispatches_took.as_secs_f64() / 1e6,
    );
    Ok(())
}

/// Outer calls of 10 µs, each with one of 4 µs inside, on alternating threads.
fn call(index: u64) -> Call {
    let (pair, inner) = (index / 2, index % 2);
    let outer_begin = START + pair * 2_000;
    Call {
        function: inner as u32,
        domain: if inner == 0 {
            Domain::HipRuntime.id()
        } else {
            Domain::HsaAmdExt.id()
        },
        pid: 100,
        tid: 100 + pair as u32 % THREADS,
        begin: outer_begin + 3_000 * inner,
        end: outer_begin + 10_000 - 3_000 * inner,
        correlation: index + 1,
        parent: index * inner,
        depth: inner as u16,
        cpu: 0,
        how: CallEnd::Returned(0),
        stack_readable: true,
        args: [
            0x7f12_3456_7000,
            0x7f65_4321_0000,
            4096 + index,
            1,
            0x5555_0000_1000,
            0,
        ],
        stack: [0; 8],
        request: None,
        range: 0,
        external: None,
        stream_id: 0,
        stack_number: None,
        pointees: Vec::new(),
    }
}

/// Kernels of 12 µs, one every 3 µs on each of four queues, so that four run at the same time. One
/// in 16 becomes known 1000 dispatches late.
fn dispatch(index: u64) -> Dispatch {
    let place = if index.is_multiple_of(16) {
        index.saturating_sub(1000)
    } else {
        index
    };
    let begin = START + place / 4 * 3_000;
    let window = |time| Window {
        earliest: time - 200,
        latest: Some(time + 200),
    };
    Dispatch {
        id: index + 1,
        origin: Origin {
            pid: 100,
            tid: 100,
            time: begin - 5_000,
            stream: Some(0),
            ..Origin::default()
        },
        queue: (place % 4) as u32,
        node_id: Some(1),
        index,
        kernel: None,
        kernel_object: 0x7f00_0000_1000 + index % 100 * 64,
        workgroup: [256, 1, 1],
        grid: [65_536, 1, 1],
        time: GpuTime {
            quality: Quality::Exact,
            begin,
            end: begin + 12_000,
            begin_window: window(begin),
            end_window: window(begin + 12_000),
            unfinished: false,
            estimate: None,
        },
        ..Dispatch::default()
    }
}

fn function(id: u32, name: &str, domain: Domain) -> FunctionInfo {
    let parameters = [
        ("dst", ValueKind::Pointer),
        ("src", ValueKind::Pointer),
        ("sizeBytes", ValueKind::Unsigned(8)),
        ("kind", ValueKind::Signed(4)),
        ("stream", ValueKind::Pointer),
    ];
    let parameters = parameters
        .iter()
        .zip(0..)
        .map(|((name, kind), slot)| Parameter {
            name: (*name).to_owned(),
            c_type: String::new(),
            kind: *kind,
            at: ArgSlot::Register(slot),
            ..Parameter::default()
        });
    FunctionInfo {
        function: Function {
            id,
            name: name.to_owned(),
            domain: domain.id(),
            parameters: Some(parameters.collect()),
            returns: if id == 0 {
                ValueKind::HipError
            } else {
                ValueKind::HsaStatus
            },
            ..Function::default()
        },
        domain: Some(domain),
        library: "libmadeup.so".to_owned(),
        build_id: String::new(),
        range: None,
    }
}
