//! Checks, counts and writes each record, and informs whoever waits for it.

use std::{fs::File, time::Instant};

use gputrace_abi::{
    domain::Domain,
    frame::Thread,
    kfd::{LONG_IOCTL_SIZE, LongIoctl},
    record::{RecordHeader, Span, Task, kind, task_op},
    sched::OffCpu,
    values::Value,
};
use gputrace_capture::{CaptureWriter, Meta, WriteError, WriteFailure, meta::Notice, records};
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
    rings::{Checked, check},
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
        match check(cpu, bytes) {
            Checked::Call(header, bytes) => {
                if let Ok((span, _)) = Span::ref_from_prefix(bytes)
                    && self.relevant.add(span.pid)
                {
                    (self.tell)(CollectorEvent::NewProcess(span.pid));
                }
                self.call(&header, bytes);
            }
            Checked::Task(header, bytes) => {
                let Ok(task) = Task::read_from_bytes(bytes) else {
                    return;
                };
                if header.kind == kind::LINKER {
                    if let (Some(gpu), task_op::CODE_OBJECTS) = (&mut self.gpu, task.op) {
                        gpu.loaded(task.pid);
                    }
                    (self.tell)(CollectorEvent::Linker(task));
                } else if self.relevant.keep(&task) {
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
            }
            Checked::Trace(header, bytes) => self.call(&header, bytes),
            Checked::Kernel(header, bytes) => {
                if let Some(pid) = pid_of(bytes)
                    && self.relevant.add(pid)
                {
                    (self.tell)(CollectorEvent::NewProcess(pid));
                }
                if let Some(meta) = self.gpu.as_ref().and_then(|gpu| gpu.clock(bytes)) {
                    self.meta(&meta);
                }
                self.call(&header, bytes);
            }
            Checked::Gpu(header, bytes) => {
                if let Some(pid) = pid_of(bytes)
                    && self.relevant.add(pid)
                {
                    (self.tell)(CollectorEvent::NewProcess(pid));
                }
                if let Some(gpu) = &mut self.gpu {
                    gpu.take(header.kind, bytes, &*self.tell);
                }
                self.call(&header, bytes);
            }
            Checked::Value(bytes) => {
                let correlation =
                    Value::ref_from_prefix(bytes).map_or(0, |(value, _)| value.correlation);
                if !self.order_value(correlation, bytes)
                    && !self.pending.follows(correlation, bytes)
                {
                    self.value(bytes);
                }
            }
            Checked::Described(bytes) => {
                if let Some(meta) = self.gpu.as_mut().and_then(|gpu| gpu.described(bytes)) {
                    self.meta(&meta);
                }
            }
            Checked::Malformed(cpu, domain) => self.accounts.malformed(cpu, domain),
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
        if let Some(pid) = limited_pid(header.kind, bytes)
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

    /// Writes a time without a processor that has not ended.
    pub(crate) fn open_off_cpu(&mut self, mut off: OffCpu) {
        off.header.kind = kind::OFF_CPU_OPEN;
        off.end = clocks::now().max(off.begin);
        let header = off.header;
        self.call(&header, off.as_bytes());
    }

    /// Writes a request to the driver that has not returned.
    pub(crate) fn open_ioctl(&mut self, open: &LongIoctl) {
        let mut record = *open;
        let header = &mut record.ioctl.header;
        header.kind = kind::IOCTL_UNFINISHED;
        header.size = LONG_IOCTL_SIZE as u16;
        let header = *header;
        record.ioctl.end = clocks::now().max(record.ioctl.begin);
        self.call(&header, record.as_bytes());
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

/// The process whose limits apply to a record; `None` for records that are few, or that no process
/// can cause at will.
fn limited_pid(kind: u8, record: &[u8]) -> Option<u32> {
    match kind {
        kind::SPAN => Span::ref_from_prefix(record).ok().map(|(span, _)| span.pid),
        kind::VALUE => Value::ref_from_prefix(record)
            .ok()
            .map(|(value, _)| value.pid),
        kind::PACKET | kind::COPY | kind::COMPLETION | kind::IOCTL => pid_of(record),
        _ => None,
    }
}

/// The process id of a record about the GPU, which follows its header.
fn pid_of(record: &[u8]) -> Option<u32> {
    let bytes = record.get(size_of::<RecordHeader>()..)?;
    u32::read_from_prefix(bytes).ok().map(|(pid, _)| pid)
}
