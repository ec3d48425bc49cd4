//! Going through a finished capture once before anything is given out, so that the means of classes are known from the
//! first dispatch on.

use std::collections::VecDeque;

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

/// A first pass over the records about the GPU's work. Nothing of it is given out.
#[derive(Debug)]
pub(crate) struct Scout {
    work: Work,
    code_objects: Vec<CodeObject>,
    events: VecDeque<Event>,
}

impl Scout {
    /// Begins with the metadata.
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

    /// Takes a run of records.
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

    /// Takes metadata.
    pub(crate) fn meta(&mut self, meta: &Meta) {
        if let Meta::Epoch(epoch) = meta {
            self.work.advance(epoch.time, &mut self.events);
            self.forget();
        }
    }

    /// What is to go through the capture again, and give out. Agents and code objects go to `events`.
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

/// A record as [`crate::derive::group::Collection`] hands it to [`Work`]; `None` if it does not.
fn item(raw: RawRecord<'_>) -> Option<Item> {
    if decode::is_work(raw) {
        return decode::work(raw).map(|(item, _)| item);
    }
    if decode::is_call(raw) {
        return None;
    }
    match decode::decode(raw).ok()? {
        decode::Record::Ioctl(parts) => decode::ioctl::created_queue(&parts).map(Item::Ring),
        decode::Record::Task(task) => Item::of_task(&task),
        _ => None,
    }
}
