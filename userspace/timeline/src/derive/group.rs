//! Brings records from file order into time order.

use std::{collections::VecDeque, mem, ops::Range};

use gputrace_abi::{kinds::Class, record::Task};
use gputrace_capture::records::{self, RawRecord};

use crate::{
    decode::{
        ioctl,
        tracepoint::Formats,
        {self, Fault, Record},
    },
    derive::work::Work,
    model::{event::Call, item::Item, observation::Observation, tally::Tally, values::Waiting},
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
        let kind = match decode::known(raw) {
            Ok(kind) => kind,
            Err(Fault::Unknown) => return tally.unknown_records += 1,
            Err(Fault::Malformed) => return tally.malformed_records += 1,
        };
        let taken = match kind.class() {
            // Nearly all records are of these two classes, and they are large: handling them here
            // avoids copies.
            Class::Call => decode::span(raw).map(|record| {
                let span = &record.span;
                tally.adjusted_ends += u64::from(span.end < span.begin);
                self.keep(span.begin, span.end, span.depth, raw.bytes);
            }),
            Class::GpuWork => decode::work(kind, raw).map(|item| {
                self.latest = self.latest.max(item.time());
                work.take(item);
            }),
            _ => decode::decode(kind, raw).map(|record| self.other(record, raw.bytes, tally, work)),
        };
        if taken.is_none() {
            tally.malformed_records += 1;
        } else if kind.is_counted() {
            tally.count_call(raw.header.domain, raw.header.cpu, !kind.is_unfinished());
        }
    }

    fn other(&mut self, record: Record<'_>, bytes: &[u8], tally: &mut Tally, work: &mut Work) {
        match record {
            Record::Ioctl(parts) => {
                let ioctl = &parts.ioctl;
                if let Some(ring) = ioctl::created_queue(&parts) {
                    work.take(Item::Ring(ring));
                }
                tally.adjusted_ends += u64::from(ioctl.end < ioctl.begin);
                self.keep(ioctl.begin, ioctl.end, ioctl.depth, bytes);
            }
            Record::Observed(observed) => {
                let (begin, end) = observed.times();
                self.keep(begin, end, 0, bytes);
            }
            Record::Task(task) => {
                tally.tasks += 1;
                self.latest = self.latest.max(task.time);
                if let Some(item) = Item::of_task(&task) {
                    work.take(item);
                }
                self.tasks.push_back(task);
            }
            Record::Value(correlation, pointee) => {
                tally.unreadable_values += u64::from(pointee.is_unreadable());
                self.values.add(correlation, pointee);
            }
            Record::Stack(correlation, stack) => self.values.add_stack(correlation, stack),
            Record::Internal => {}
        }
    }

    #[inline(always)]
    fn keep(&mut self, begin: u64, end: u64, depth: u16, record: &[u8]) {
        self.latest = self.latest.max(end);
        self.calls.push(Key {
            begin,
            end,
            at: self.bytes.len() as u32,
            size: record.len() as u16,
            depth,
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
                self.keep(key.begin, key.end, key.depth, record);
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
        let kind = raw.header.known_kind()?;
        if kind.class() == Class::Call {
            let mut call = decode::call(&decode::span(raw)?);
            call.pointees = values.take(call.correlation);
            call.stack_number = values.stack(call.correlation);
            return Some(Due::Call(call));
        }
        match decode::decode(kind, raw)? {
            Record::Observed(observed) => Some(Due::Observed(observed.observations(formats))),
            Record::Ioctl(parts) => Some(Due::Call(ioctl::call(&parts))),
            // `Collection::take` keeps no others.
            Record::Task(_) | Record::Value(..) | Record::Stack(..) | Record::Internal => None,
        }
    }
}
