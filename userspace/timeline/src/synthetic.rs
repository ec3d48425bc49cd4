//! Builds captures for tests from the events that reading them must give. Only with the feature
//! `synthetic`, which is for tests of this and other crates.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

pub mod gpu;

use std::io::Cursor;

use gputrace_abi::{
    domain::Domain,
    record::{
        LONG_SPAN_SIZE, LongSpan, RecordHeader, SPAN_SIZE, Span, TASK_SIZE, Task, kind, span_flags,
    },
    values::{VALUE_SIZE, Value, value_flags},
};
use gputrace_capture::{
    CaptureWriter, Meta,
    ledger::{Ledger, LedgerRow},
    meta::{Function, Library, Recording},
};
use zerocopy::{Immutable, IntoBytes};

use crate::model::{
    event::{Call, CallEnd},
    values::{Pointee, PointeeData},
};

/// A capture under construction.
#[derive(Debug)]
pub struct Synthetic {
    writer: CaptureWriter<Cursor<Vec<u8>>>,
}

impl Synthetic {
    /// An empty capture of `recording`.
    #[must_use]
    pub fn new(recording: &Recording) -> Self {
        let writer = CaptureWriter::create(Cursor::new(Vec::new()), recording)
            .expect("memory does not fill up");
        Self { writer }
    }

    /// Adds metadata.
    pub fn meta(&mut self, meta: impl Into<Meta>) -> &mut Self {
        self.writer
            .meta(&meta.into())
            .expect("memory does not fill up");
        self
    }

    /// Adds a library with these functions, numbered from 0.
    pub fn library(&mut self, path: &str, functions: &[(&str, Domain)]) -> &mut Self {
        let functions = functions
            .iter()
            .zip(0..)
            .map(|((name, domain), id)| Function {
                id,
                name: (*name).to_owned(),
                domain: domain.id(),
                ..Function::default()
            });
        let functions = functions.collect();
        self.meta(Meta::Library(Box::new(Library {
            path: path.to_owned(),
            functions,
            ..Library::default()
        })))
    }

    /// Adds a record with any content; only its size must be right.
    pub fn raw(&mut self, record: &[u8]) -> &mut Self {
        self.writer
            .records(record)
            .expect("memory does not fill up");
        self
    }

    /// Adds a record of any kind.
    pub fn record(&mut self, record: &(impl IntoBytes + Immutable)) -> &mut Self {
        self.raw(record.as_bytes())
    }

    /// Adds a call, after the bytes that were read of its arguments.
    pub fn call(&mut self, call: &Call) -> &mut Self {
        for pointee in &call.pointees {
            if let PointeeData::Bytes(bytes) = &pointee.data {
                self.raw(&value_record(call, pointee, bytes));
            }
        }
        self.raw(&call_record(call))
    }

    /// Adds a task event; `op` is one of [`gputrace_abi::record::task_op`].
    pub fn task(
        &mut self,
        op: u8,
        time: u64,
        pid: u32,
        tid: u32,
        parent: u32,
        comm: &[u8],
    ) -> &mut Self {
        let header = RecordHeader {
            size: TASK_SIZE as u16,
            kind: kind::TASK,
            domain: 0,
            cpu: 0,
        };
        let mut name = [0; 16];
        for (to, from) in name.iter_mut().zip(comm) {
            *to = *from;
        }
        let task = Task {
            header,
            time,
            pid,
            tid,
            parent,
            op,
            held: 0,
            reserved: [0; 2],
            comm: name,
        };
        self.raw(task.as_bytes())
    }

    /// The capture file as written so far.
    pub fn bytes(&mut self) -> Vec<u8> {
        self.writer.flush().expect("memory does not fill up");
        self.writer.sink().get_ref().clone()
    }
}

/// A returned call of function 0 by process and thread 100, for tests to modify.
#[must_use]
pub fn call(correlation: u64, begin: u64, end: u64) -> Call {
    Call {
        function: 0,
        domain: 0,
        pid: 100,
        tid: 100,
        begin,
        end,
        correlation,
        parent: 0,
        depth: 0,
        cpu: 0,
        how: CallEnd::Returned(0),
        stack_readable: true,
        args: [1, 2, 3, 4, 5, 6],
        stack: [0; 8],
        request: None,
        range: 0,
        external: None,
        stream_id: 0,
        stack_number: None,
        pointees: Vec::new(),
    }
}

/// The record that decodes to `call`.
#[must_use]
pub fn call_record(call: &Call) -> Vec<u8> {
    let long = call.stack != [0; 8];
    let (kind, result, flags) = match call.how {
        CallEnd::Returned(result) => (kind::SPAN, result, 0),
        CallEnd::ThreadExited => (kind::UNFINISHED, 0, span_flags::THREAD_EXITED),
        CallEnd::Executed => (kind::UNFINISHED, 0, span_flags::EXECUTED),
        CallEnd::RecordingStopped => (kind::UNFINISHED, 0, span_flags::RECORDING_STOPPED),
        CallEnd::NotSeen => (kind::SPAN, 0, span_flags::END_NOT_RECORDED),
    };
    let size = if long { LONG_SPAN_SIZE } else { SPAN_SIZE } as u16;
    let span = Span {
        header: RecordHeader {
            size,
            kind,
            domain: call.domain,
            cpu: call.cpu,
        },
        function: call.function,
        pid: call.pid,
        tid: call.tid,
        depth: call.depth,
        flags: if call.stack_readable {
            flags
        } else {
            flags | span_flags::STACK_ARGS_UNREADABLE
        },
        begin: call.begin,
        end: call.end,
        correlation: call.correlation,
        parent: call.parent,
        result,
        args: call.args,
    };
    if long {
        LongSpan {
            span,
            stack: call.stack,
        }
        .as_bytes()
        .to_vec()
    } else {
        span.as_bytes().to_vec()
    }
}

/// The record that decodes to an argument of `call` of which these bytes were read.
fn value_record(call: &Call, pointee: &Pointee, bytes: &[u8]) -> Vec<u8> {
    let size = (VALUE_SIZE + bytes.len()).next_multiple_of(8);
    let value = Value {
        header: RecordHeader {
            size: size as u16,
            kind: kind::VALUE,
            domain: Domain::ArgumentData.id(),
            cpu: call.cpu,
        },
        correlation: call.correlation,
        pid: call.pid,
        length: bytes.len() as u16,
        word: pointee.word,
        flags: if pointee.at_return {
            value_flags::AT_RETURN
        } else {
            0
        },
    };
    let mut record = [value.as_bytes(), bytes].concat();
    record.resize(size, 0);
    record
}

/// The complete account of a recording that contains all of `calls` and lost `dropped`, given as
/// (domain, CPU, reason, count).
#[must_use]
pub fn ledger(calls: &[Call], dropped: &[(u8, u32, usize, u64)]) -> Ledger {
    let mut rows: Vec<LedgerRow> = Vec::new();
    fn find(rows: &mut Vec<LedgerRow>, domain: u8, cpu: u32) -> &mut LedgerRow {
        let index = rows
            .iter()
            .position(|row| (row.domain, row.cpu) == (domain, cpu))
            .unwrap_or_else(|| {
                rows.push(LedgerRow {
                    domain,
                    cpu,
                    dropped: vec![0; 6],
                    ..LedgerRow::default()
                });
                rows.len() - 1
            });
        &mut rows[index]
    }
    for call in calls {
        let row = find(&mut rows, call.domain, call.cpu);
        row.seen += 1;
        match call.how {
            CallEnd::Returned(_) | CallEnd::NotSeen => row.written += 1,
            _ => row.unfinished += 1,
        }
    }
    for (domain, cpu, reason, count) in dropped {
        let row = find(&mut rows, *domain, *cpu);
        row.seen += count;
        row.dropped[*reason] += count;
    }
    rows.sort_by_key(|row| (row.domain, row.cpu));
    Ledger {
        complete: true,
        rows,
        ..Ledger::default()
    }
}
