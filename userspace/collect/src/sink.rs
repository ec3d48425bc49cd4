//! Checks, counts and writes each record, and informs whoever waits for it.

use std::{fs::File, time::Instant};

use gputrace_abi::{
    domain::Domain,
    frame::Thread,
    kinds::{Class, Kind},
    record::{RecordHeader, Task, task_op},
    values::Value,
};
use gputrace_capture::{
    CaptureWriter, Meta, WriteError, WriteFailure,
    meta::Notice,
    records::{self, RawRecord},
};
use zerocopy::{FromBytes as _, IntoBytes as _};

use crate::{
    accounts::Accounts,
    clocks,
    collector::CollectorEvent,
    constants,
    late::Late,
    limits::{Limits, Resource},
    pending::{Ordered, Pending},
    reading::{Order, Read, Reading},
    rings::{Malformed, check},
    tasks::Relevant,
    tracker::GpuTracker,
    unfinished, values,
};

/// State that handling a record changes. It is separate from the rings, which are borrowed while
/// they are read.
pub(crate) struct RecordSink {
    pub(crate) writer: CaptureWriter<File>,
    pub(crate) accounts: Accounts,
    pub(crate) relevant: Relevant,
    pub(crate) gpu: Option<GpuTracker>,
    /// Reads what eBPF programs could not read.
    pub(crate) reading: Reading,
    pub(crate) pending: Pending,
    /// Limits on what one process may ask for.
    pub(crate) limits: Limits,
    /// Buffer for records that are shortened.
    pub(crate) trimmed: Vec<u8>,
    /// Number of records handed to the writer.
    pub(crate) records: u64,
    /// Whether records were lost because nobody read the live output.
    pub(crate) unread: bool,
    pub(crate) failure: Option<String>,
    pub(crate) tell: Box<dyn Fn(CollectorEvent) + Send>,
}

impl RecordSink {
    pub(crate) fn take(&mut self, cpu: u32, bytes: &[u8]) {
        let (kind, header) = match check(cpu, bytes) {
            Ok(known) => known,
            Err(Malformed { cpu, domain }) => return self.accounts.malformed(cpu, domain),
        };
        let class = kind.class();
        match class {
            Class::Call | Class::Request | Class::Observation | Class::GpuWork => {
                if let Some(pid) = pid_of(kind, bytes)
                    && self.relevant.add(pid)
                {
                    (self.tell)(CollectorEvent::NewProcess(pid));
                }
                if class == Class::Request
                    && let Some(meta) = self.gpu.as_ref().and_then(|gpu| gpu.clock(bytes))
                {
                    self.meta(&meta);
                }
                if class == Class::GpuWork
                    && let Some(gpu) = &mut self.gpu
                {
                    gpu.take(header.kind, bytes, &*self.tell);
                }
                self.call(&header, bytes);
            }
            Class::Value => {
                let correlation =
                    Value::ref_from_prefix(bytes).map_or(0, |(value, _)| value.correlation);
                if !self.order_value(correlation, bytes)
                    && !self.pending.follows(correlation, bytes)
                {
                    self.value(bytes);
                }
            }
            Class::Task => self.task(bytes),
            Class::Stack => {
                self.records += 1;
                let written = self.writer.records(bytes);
                self.wrote(written);
            }
            Class::Internal => self.internal(kind, bytes),
        }
    }

    fn task(&mut self, bytes: &[u8]) {
        let Ok(task) = Task::read_from_bytes(bytes) else {
            return;
        };
        if !self.relevant.keep(&task) {
            return;
        }
        self.records += 1;
        let written = self.writer.records(bytes);
        self.wrote(written);
        if task.op == task_op::EXIT && task.pid == task.tid {
            self.limits.ended(task.pid);
            if let Some(gpu) = &mut self.gpu {
                gpu.ended(task.pid);
            }
        }
        (self.tell)(CollectorEvent::Task(task));
    }

    /// Handles a record that is not written.
    fn internal(&mut self, kind: Kind, bytes: &[u8]) {
        if kind == Kind::Described {
            if let Some(meta) = self.gpu.as_mut().and_then(|gpu| gpu.described(bytes)) {
                self.meta(&meta);
            }
        } else if let Ok(task) = Task::read_from_bytes(bytes) {
            if let (Some(gpu), task_op::CODE_OBJECTS) = (&mut self.gpu, task.op) {
                gpu.loaded(task.pid);
            }
            (self.tell)(CollectorEvent::Linker(task));
        }
    }

    /// Orders the reading of a value that a program could not read. Returns false if it is not to
    /// be read.
    fn order_value(&mut self, correlation: u64, bytes: &[u8]) -> bool {
        let Some(pid) = constants::wanted(bytes) else {
            return false;
        };
        let now = Instant::now();
        if !self.limits.take(pid, Resource::Texts, 1, now) {
            return false;
        }
        let number = self.pending.number();
        let is_ordered = self.reading.order(number, Order::Value(bytes.to_vec()));
        if is_ordered {
            let ordered = Ordered::Value(bytes.to_vec(), Vec::new());
            self.pending.add(number, ordered, now);
            self.pending.is_of_call(number, correlation);
        }
        is_ordered
    }

    fn value(&mut self, bytes: &[u8]) {
        if let Some(header) = values::trimmed(bytes, &mut self.trimmed) {
            // The buffer is taken out of `self` and put back at the end.
            let buffer = std::mem::take(&mut self.trimmed);
            self.call(&header, &buffer);
            self.trimmed = buffer;
        }
    }

    /// Handles the answer to an order. An answer that arrives after its deadline is ignored: the
    /// account has it already.
    pub(crate) fn read(&mut self, number: u64, read: Read) {
        match (self.pending.take(number), read) {
            (Some(Ordered::Value(bytes, followers)), Read::Value(found)) => {
                self.value(found.as_deref().unwrap_or(&bytes));
                followers.iter().for_each(|bytes| self.value(bytes));
            }
            (Some(Ordered::Packets(_)), Read::Packets(late)) => {
                for late in late {
                    match late {
                        Late::Found(packet) => {
                            self.accounts.seen_here(&packet.header);
                            self.call(&packet.header, packet.as_bytes());
                        }
                        Late::Gone => self.accounts.unreadable(Domain::QueuePacket.id(), 1),
                    }
                }
            }
            (Some(ordered), _) => self.unanswered(ordered),
            (None, _) => {}
        }
    }

    /// Handles an order whose answer is no longer waited for.
    fn unanswered(&mut self, ordered: Ordered) {
        match ordered {
            Ordered::Value(bytes, followers) => {
                self.value(&bytes);
                followers.iter().for_each(|bytes| self.value(bytes));
            }
            Ordered::Packets(count) => self
                .accounts
                .unreadable(Domain::QueuePacket.id(), count as u64),
        }
    }

    /// Gives up orders that have been waiting for long; with `all`, every order.
    pub(crate) fn give_up(&mut self, all: bool) {
        for ordered in self.pending.overdue(Instant::now(), all) {
            self.unanswered(ordered);
        }
    }

    /// Reports what was refused to processes since the last call of this function.
    pub(crate) fn tell_refused(&mut self) {
        let mut refused = self.limits.take_refused();
        refused.extend(
            self.gpu
                .iter_mut()
                .flat_map(|gpu| gpu.limits.take_refused()),
        );
        let time = clocks::now();
        for text in refused {
            self.meta(&Notice { time, text }.into());
        }
    }

    /// Writes the record of a call. Counts it first: the writer may at once report that this very
    /// record is lost.
    fn call(&mut self, header: &RecordHeader, bytes: &[u8]) {
        if let Some(kind) = header.known_kind().filter(|kind| kind.is_limited())
            && let Some(pid) = pid_of(kind, bytes)
            && !self
                .limits
                .take(pid, Resource::Bytes, bytes.len() as u64, Instant::now())
        {
            self.accounts.refused(header);
            return;
        }
        self.accounts.written(header);
        self.records += 1;
        let written = self.writer.records(bytes);
        self.wrote(written);
    }

    /// Writes what the watcher found.
    pub(crate) fn watched(&mut self, run: &[u8], metas: &[Meta]) {
        for record in records::split(run).flatten() {
            if let Some(gpu) = &mut self.gpu {
                gpu.take(record.header.kind, record.bytes, &*self.tell);
            }
            self.accounts.seen_here(&record.header);
            self.call(&record.header, record.bytes);
        }
        for meta in metas {
            self.meta(meta);
        }
    }

    /// Stops waiting for packets that were missing before a pause, and does not look for those
    /// inside it.
    pub(crate) fn passed_over(&mut self) {
        self.late(true);
        if let Some(gpu) = &mut self.gpu {
            gpu.passed_over();
        }
    }

    /// Orders the reading of packets that doorbells skipped.
    pub(crate) fn late(&mut self, all: bool) {
        let Some(gpu) = &mut self.gpu else { return };
        let missing = gpu.round(all);
        for text in gpu.remarks() {
            self.remark(text);
        }
        let domain = Domain::QueuePacket.id();
        self.accounts.unreadable(domain, missing.gone as u64);
        self.accounts.refused_here(domain, missing.refused);
        for (pid, due) in missing.due {
            let (number, count) = (self.pending.number(), due.len());
            if self.reading.order(number, Order::Packets(pid, due)) {
                self.pending
                    .add(number, Ordered::Packets(count), Instant::now());
            } else {
                self.accounts.unreadable(domain, count as u64);
            }
        }
    }

    /// Writes the calls that are still open in a thread.
    pub(crate) fn unfinished(&mut self, id: u64, thread: &Thread, time: u64) {
        unfinished::records(id, thread, time, |header, bytes| self.call(header, bytes));
    }

    /// Writes what has begun and not ended; see [`crate::Command::Open`].
    pub(crate) fn open(&mut self, run: &[u8]) {
        let now = clocks::now();
        for record in records::split(run).flatten() {
            self.call(&record.header, &open_until(record, now));
        }
    }

    pub(crate) fn meta(&mut self, meta: &Meta) {
        let written = self.writer.meta(meta);
        self.wrote(written);
    }

    pub(crate) fn flush(&mut self) {
        let written = self.writer.flush();
        self.wrote(written);
    }

    /// Reports a remark to the user, and writes it into the recording.
    fn remark(&mut self, text: String) {
        (self.tell)(CollectorEvent::Remark(text.clone()));
        let time = clocks::now();
        self.meta(&Notice { time, text }.into());
    }

    fn wrote(&mut self, written: Result<(), WriteError>) {
        let Err(error) = written else { return };
        self.accounts.lost(&error.lost);
        if matches!(error.failure, WriteFailure::Unread { .. }) {
            if !self.unread {
                self.unread = true;
                self.remark(error.to_string());
            }
            return;
        }
        if self.failure.is_none() {
            let text = error.to_string();
            self.failure = Some(text.clone());
            (self.tell)(CollectorEvent::CaptureFailed(text));
        }
    }
}

/// The traced process that a record belongs to, if it belongs to one.
fn pid_of(kind: Kind, record: &[u8]) -> Option<u32> {
    let (pid, _) = u32::read_from_prefix(record.get(kind.pid_at()?..)?).ok()?;
    Some(pid)
}

/// The record of what has not ended, with `now` as its end unless it has a later one.
fn open_until(record: RawRecord<'_>, now: u64) -> Vec<u8> {
    let mut bytes = record.bytes.to_vec();
    let at = record.header.known_kind().and_then(Kind::end_at);
    if let Some(end) = at.and_then(|at| bytes.get_mut(at..)?.first_chunk_mut()) {
        *end = u64::from_ne_bytes(*end).max(now).to_ne_bytes();
    }
    bytes
}

#[cfg(test)]
mod tests {
    use gputrace_abi::record::{SPAN_SIZE, Span, kind};
    use zerocopy::FromZeros as _;

    use super::*;

    #[test]
    fn what_has_not_ended_ends_when_it_is_written() {
        let mut open = Span::new_zeroed();
        open.header.size = SPAN_SIZE as u16;
        (open.begin, open.end) = (100, 100);
        let end = |open: &Span, now| {
            let record = records::split(open.as_bytes()).next().unwrap().unwrap();
            let written = open_until(record, now);
            let written = Span::read_from_bytes(&written).unwrap();
            let same = Span {
                end: open.end,
                ..written
            };
            assert_eq!(same, *open);
            written.end
        };
        open.header.kind = kind::UNFINISHED;
        assert_eq!((end(&open, 150), end(&open, 90)), (150, 100));
        open.header.kind = kind::SPAN;
        assert_eq!(end(&open, 150), 100);
    }
}
