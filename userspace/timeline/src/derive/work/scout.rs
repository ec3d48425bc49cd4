//! A first pass over a finished capture before anything is emitted, so that the mean durations of
//! dispatch classes are known from the first dispatch on.

use std::collections::VecDeque;

use gputrace_abi::kinds::Class;
use gputrace_capture::{
    Meta,
    gpu::CodeObject,
    records::{self, RawRecord},
};

use super::{Work, knowledge::Collected, means::Means};
use crate::{
    decode,
    model::{event::Event, item::Item},
};

/// A first pass over the records about the GPU's work. It emits nothing.
#[derive(Debug)]
pub(crate) struct Scout {
    work: Work,
    code_objects: Vec<CodeObject>,
    events: VecDeque<Event>,
}

impl Scout {
    /// Starts with the collected metadata.
    pub(crate) fn new(collected: Collected) -> Self {
        let (knowledge, code_objects) = collected.finish();
        let mut events = VecDeque::new();
        Self {
            work: Work::with(
                knowledge,
                code_objects.clone(),
                Means::default(),
                &mut events,
            ),
            code_objects,
            events,
        }
    }

    /// Processes a run of records.
    pub(crate) fn records(&mut self, run: &[u8]) {
        for raw in records::split(run).flatten() {
            if let Some(item) = item(raw) {
                self.work.take(item);
            }
        }
        if self.work.is_full() {
            self.work.make_room(&mut self.events);
        }
        self.forget();
    }

    /// Processes metadata.
    pub(crate) fn meta(&mut self, meta: &Meta) {
        if let Meta::Epoch(epoch) = meta {
            self.work.advance(epoch.time, &mut self.events);
            self.forget();
        }
    }

    /// Ends the first pass. Returns the [`Work`] for the second pass, which emits the events.
    /// Agents and code objects go to `events`.
    pub(crate) fn finish(mut self, events: &mut VecDeque<Event>) -> Work {
        self.work.finish(&mut self.events);
        let Work {
            knowledge, means, ..
        } = self.work;
        Work::with(knowledge, self.code_objects, means, events)
    }

    fn forget(&mut self) {
        for event in self.events.drain(..) {
            if let Event::Dispatch(dispatch) = event {
                self.work.take_back(dispatch);
            }
        }
    }
}

/// The item that [`crate::derive::group::Collection`] makes of this record for [`Work`]; `None` if
/// it makes none.
fn item(raw: RawRecord<'_>) -> Option<Item> {
    let kind = decode::known(raw).ok()?;
    match kind.class() {
        Class::GpuWork => decode::work(kind, raw),
        Class::Request | Class::Task => match decode::decode(kind, raw)? {
            decode::Record::Ioctl(parts) => decode::ioctl::created_queue(&parts).map(Item::Ring),
            decode::Record::Task(task) => Item::of_task(&task),
            _ => None,
        },
        _ => None,
    }
}
