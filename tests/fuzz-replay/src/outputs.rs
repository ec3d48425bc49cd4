//! Exports nearly valid records as events: every exporter must accept them, whatever they contain.
//!
//! The input is split into pieces by length bytes. The first byte of a piece chooses a valid
//! record, and each following group of three bytes gives an offset in the record and a value to
//! store there.

use std::io::{Cursor, sink};

use gputrace_abi::{domain::Domain, gpu::completion_reason};
use gputrace_analysis::summary::SummaryExporter;
use gputrace_capture::{
    CaptureReader, Meta,
    gpu::Queue,
    meta::{Epoch, Function, Library, Recording},
};
use gputrace_export::{Exporter as _, ndjson::NdjsonWriter, text::TextWriter};
use gputrace_perfetto::TraceWriter;
use gputrace_timeline::{
    Timeline,
    synthetic::{Synthetic, call, call_record, gpu},
};
use zerocopy::IntoBytes as _;

/// Only every 31st function of the catalogue is known, because each one takes time in every run.
const STEP: usize = 31;

fn library() -> Library {
    let functions = gputrace_catalog::signatures().step_by(STEP).zip(0..);
    let functions = functions.filter_map(|(signature, id)| {
        Some(Function {
            id,
            name: signature.name.to_owned(),
            domain: gputrace_catalog::classify(signature.name)?.id(),
            parameters: Some(signature.parameters()),
            returns: signature.return_kind(),
            ..Function::default()
        })
    });
    Library {
        path: "libamdhip64.so.6".to_owned(),
        functions: functions.collect(),
        ..Library::default()
    }
}

/// A valid record.
fn template(kind: u8, number: u64) -> Vec<u8> {
    let (time, signal) = (1000 + 100 * number, 0x9000 + number % 4 * 64);
    match kind % 6 {
        0 => gpu::packet(number % 8, time, signal).as_bytes().to_vec(),
        1 => gpu::completion(
            signal,
            time,
            completion_reason::REARM,
            0,
            (time / 10, time / 10 + 5),
        )
        .as_bytes()
        .to_vec(),
        2 => gpu::copy(time, signal).as_bytes().to_vec(),
        3 => gpu::queue_state(time, 0, number, number + 1).as_bytes().to_vec(),
        _ => call_record(&call(number + 1, time, time + 50)),
    }
}

fn capture(bytes: &[u8]) -> Vec<u8> {
    let domains = [
        Domain::HipRuntime,
        Domain::HsaCore,
        Domain::KernelDispatch,
        Domain::MemoryCopy,
        Domain::MemoryAllocation,
        Domain::ScratchMemory,
        Domain::Rccl,
        Domain::MarkerCore,
    ];
    let mut capture = Synthetic::new(&Recording {
        domains: domains.map(|domain| domain.name().to_owned()).to_vec(),
        ..Recording::default()
    });
    for agent in gpu::agents() {
        capture.meta(agent);
    }
    for handle in gpu::handles() {
        capture.meta(handle);
    }
    capture
        .meta(gpu::clock(100, 1000))
        .meta(gpu::clock(10_000, 100_000));
    capture.meta(Queue {
        packets: 1024,
        ..gpu::queue()
    });
    capture.meta(gpu::code_object(0));
    capture.meta(Meta::Library(Box::new(library())));
    let mut rest = bytes;
    let mut number = 0;
    while let Some((&length, tail)) = rest.split_first() {
        let (piece, tail) = tail.split_at(usize::from(length).min(tail.len()));
        rest = tail;
        let Some((&kind, changes)) = piece.split_first() else {
            capture.meta(Epoch {
                time: 1000 + 100 * number,
            });
            continue;
        };
        let mut record = template(kind, number);
        number += 1;
        for change in changes.chunks_exact(3) {
            let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % record.len();
            // The first two bytes are the record's size. With a wrong size, nothing after the
            // record is found.
            if at >= 2 {
                record[at] = change[2];
            }
        }
        capture.raw(&record);
    }
    capture.bytes()
}

/// Runs the decoder over one input.
pub fn run(bytes: &[u8]) {
    let capture = capture(bytes);
    let reader = CaptureReader::new(Cursor::new(capture)).expect("we wrote it ourselves");
    let mut timeline = Timeline::new(reader).expect("we wrote it ourselves");
    let mut trace = TraceWriter::new(sink()).expect("a sink takes everything");
    let mut lines = NdjsonWriter::new(sink());
    let mut text = TextWriter::new(sink());
    let mut summary = Box::new(SummaryExporter::to_stream(sink()));
    for event in timeline.by_ref() {
        let event = event.expect("memory can be read");
        trace.event(&event).expect("a sink takes everything");
        lines.event(&event).expect("a sink takes everything");
        text.event(&event).expect("a sink takes everything");
        summary.event(&event).expect("a sink takes everything");
    }
    trace.finish().expect("a sink takes everything");
    summary.finish().expect("a sink takes everything");
}
