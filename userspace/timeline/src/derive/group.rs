//! Brings records from file order into time order.

use std::{collections::VecDeque, mem, ops::Range};

use gputrace_abi::record::{LongSpan, Task, kind};
use gputrace_capture::records::{self, RawRecord};

use crate::{
    decode::{
        ioctl,
        tracepoint::Formats,
        {self, Fault, Record},
    },
    derive::work::Work,
    model::{
        event::Call,
        item::Item,
        observation::{self, Observation},
        tally::Tally,
        values::Waiting,
    },
};

/// Sort key of a call, and where its record lies.
///
/// Records are kept as bytes and only the keys are sorted: they are a quarter of the size.
#[derive(Clone, Copy, Debug)]
struct Key {
    begin: u64,
    end: u64,
    /// Offset of the record in the bytes that hold it: far less than 4 GiB.
    at: u32,
    size: u16,
    depth: u16,
}

impl Key {
    fn range(&self) -> Range<usize> {
        let at = self.at as usize;
        at..at + usize::from(self.size)
    }
}

/// Records that have been read and not released.
#[derive(Debug, Default)]
pub(crate) struct Collection {
    bytes: Vec<u8>,
    calls: Vec<Key>,
    tasks: VecDeque<Task>,
    /// Values behind pointers of calls; every value comes before its call.
    pub(crate) values: Waiting,
    latest: u64,
}

impl Collection {
    /// Bytes of the calls held.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The latest time in any record so far.
    pub(crate) fn latest(&self) -> u64 {
        self.latest
    }

    /// Checks, counts and keeps a record, or hands it to `work` if it is about the GPU.
    pub(crate) fn take(&mut self, raw: RawRecord<'_>, tally: &mut Tally, work: &mut Work) {
        // Nearly all records are of these two kinds, and they are large: handling them here avoids
        // copies.
        if decode::is_call(raw) {
            return match decode::span(raw) {
                Some(record) => self.call(&record, raw.bytes, tally),
                None => tally.malformed_records += 1,
            };
        }
        if decode::is_work(raw) {
            return match decode::work(raw) {
                Some((item, counted)) => {
                    if counted {
                        tally.count_call(raw.header.domain, raw.header.cpu, true);
                    }
                    self.latest = self.latest.max(item.time());
                    work.take(item);
                }
                None => tally.malformed_records += 1,
            };
        }
        match decode::decode(raw) {
            Ok(Record::Call(record)) => self.call(&record, raw.bytes, tally),
            Ok(Record::Ioctl(parts)) => {
                let ioctl = &parts.ioctl;
                let finished = ioctl.header.kind == kind::IOCTL;
                tally.count_call(ioctl.header.domain, ioctl.header.cpu, finished);
                if let Some(ring) = ioctl::created_queue(&parts) {
                    work.take(Item::Ring(ring));
                }
                tally.adjusted_ends += u64::from(ioctl.end < ioctl.begin);
                self.latest = self.latest.max(ioctl.end);
                let key = Key {
                    begin: ioctl.begin,
                    end: ioctl.end,
                    at: 0,
                    size: 0,
                    depth: ioctl.depth,
                };
                self.keep(key, raw.bytes);
            }
            Ok(Record::Trace(parts)) => {
                let head = &parts.head;
                tally.count_call(head.header.domain, head.header.cpu, true);
                self.latest = self.latest.max(head.time);
                let key = Key {
                    begin: head.time,
                    end: head.time,
                    at: 0,
                    size: 0,
                    depth: 0,
                };
                self.keep(key, raw.bytes);
            }
            Ok(Record::OffCpu(off)) => {
                let finished = off.header.kind == kind::OFF_CPU;
                tally.count_call(off.header.domain, off.header.cpu, finished);
                self.latest = self.latest.max(off.end);
                let key = Key {
                    begin: off.begin,
                    end: off.end,
                    at: 0,
                    size: 0,
                    depth: 0,
                };
                self.keep(key, raw.bytes);
            }
            Ok(Record::Task(task)) => {
                tally.tasks += 1;
                self.latest = self.latest.max(task.time);
                if let Some(item) = Item::of_task(&task) {
                    work.take(item);
                }
                self.tasks.push_back(task);
            }
            Ok(Record::Value(correlation, pointee)) => {
                tally.count_call(raw.header.domain, raw.header.cpu, true);
                tally.unreadable_values += u64::from(pointee.is_unreadable());
                self.values.add(correlation, pointee);
            }
            Ok(Record::Internal | Record::Work { .. }) => {}
            Err(Fault::Unknown) => tally.unknown_records += 1,
            Err(Fault::Malformed) => tally.malformed_records += 1,
        }
    }

    #[inline(always)]
    fn call(&mut self, record: &LongSpan, bytes: &[u8], tally: &mut Tally) {
        let span = &record.span;
        tally.count_call(
            span.header.domain,
            span.header.cpu,
            span.header.kind == kind::SPAN,
        );
        tally.adjusted_ends += u64::from(span.end < span.begin);
        self.latest = self.latest.max(span.end);
        let key = Key {
            begin: span.begin,
            end: span.end,
            at: 0,
            size: 0,
            depth: span.depth,
        };
        self.keep(key, bytes);
    }

    fn keep(&mut self, key: Key, record: &[u8]) {
        self.calls.push(Key {
            at: self.bytes.len() as u32,
            size: record.len() as u16,
            ..key
        });
        self.bytes.extend_from_slice(record);
    }

    /// Moves what ended at or before `until` into `group`, which is empty, and keeps the rest.
    pub(crate) fn release(&mut self, until: u64, group: &mut Group) {
        // The two swap buffers, so that a steady recording allocates nothing.
        mem::swap(&mut self.bytes, &mut group.bytes);
        mem::swap(&mut self.calls, &mut group.calls);
        mem::swap(&mut self.tasks, &mut group.tasks);
        self.bytes.clear();
        self.calls.clear();
        self.tasks.clear();
        group.emitted = 0;
        group.calls.retain(|key| {
            let due = key.end <= until;
            if !due && let Some(record) = group.bytes.get(key.range()) {
                self.keep(*key, record);
            }
            due
        });
        group.tasks.retain(|task| {
            let due = task.time <= until;
            if !due {
                self.tasks.push_back(*task);
            }
            due
        });
        // Stable sorts exploit the runs that are already ordered, about one per ring.
        group.calls.sort_by_key(|key| (key.begin, key.depth));
        group.tasks.make_contiguous().sort_by_key(|task| task.time);
    }
}

/// Records released together, in order.
#[derive(Debug, Default)]
pub(crate) struct Group {
    bytes: Vec<u8>,
    calls: Vec<Key>,
    emitted: usize,
    tasks: VecDeque<Task>,
}

/// The next record of a group.
pub(crate) enum Due {
    Call(Call),
    Task(Task),
    /// The observations of one record.
    Observed(Vec<Observation>),
}

impl Group {
    /// Removes the next item: calls by begin, merged with task events by time.
    #[inline]
    pub(crate) fn next(&mut self, formats: &Formats, values: &mut Waiting) -> Option<Due> {
        let call = self.calls.get(self.emitted);
        if let Some(task) = self.tasks.front()
            && call.is_none_or(|key| task.time <= key.begin)
        {
            return self.tasks.pop_front().map(Due::Task);
        }
        let record = self.bytes.get(call?.range())?;
        self.emitted += 1;
        let raw = records::split(record).next()?.ok()?;
        if decode::is_call(raw) {
            let mut call = decode::call(&decode::span(raw)?);
            call.pointees = values.take(call.correlation);
            return Some(Due::Call(call));
        }
        match decode::decode(raw) {
            Ok(Record::Trace(parts)) => Some(Due::Observed(vec![formats.observe(&parts)])),
            Ok(Record::OffCpu(off)) => Some(Due::Observed(observation::off_cpu(&off))),
            Ok(Record::Ioctl(parts)) => Some(Due::Call(ioctl::call(&parts))),
            // `Collection::take` keeps no other kinds.
            _ => None,
        }
    }
}
