//! What GPUs and processes were read to use: counters below the agent or the process.

use std::{
    collections::HashMap,
    io::{self, Write},
    sync::Arc,
};

use gputrace_capture::counter::Counter;
use gputrace_timeline::event::CounterSample;
use perfetto_protos::{
    counter_descriptor::{CounterDescriptor, counter_descriptor::Unit},
    track_descriptor::TrackDescriptor,
};

use crate::{
    gpu::GpuWork,
    sequence::{EventType, Sequence},
    tracks::{Tracks, describe},
};

/// Draws counters. Grows with their number.
#[derive(Debug, Default)]
pub(crate) struct Sampled {
    tracks: HashMap<Arc<Counter>, u64>,
}

impl Sampled {
    /// Draws a value.
    pub(crate) fn draw<W: Write>(
        &mut self,
        out: &mut Sequence<W>,
        tracks: &mut Tracks,
        gpu: &mut GpuWork,
        sample: &CounterSample,
    ) -> io::Result<()> {
        let track = match self.tracks.get(&sample.counter) {
            Some(track) => *track,
            None => self.describe(out, tracks, gpu, &sample.counter)?,
        };
        out.event(sample.time, EventType::Counter, track, |event| {
            event.real_counter(sample.value);
        })
    }

    fn describe<W: Write>(
        &mut self,
        out: &mut Sequence<W>,
        tracks: &mut Tracks,
        gpu: &mut GpuWork,
        counter: &Arc<Counter>,
    ) -> io::Result<u64> {
        let (agent, label) = gpu.agent(out, counter.node_id)?;
        let parent = match counter.pid {
            0 => agent,
            pid => tracks.process_track(out, pid)?,
        };
        let track = out.new_track();
        let mut unit = CounterDescriptor::new();
        match counter.unit.as_str() {
            "B" => unit.set_unit(Unit::UNIT_SIZE_BYTES),
            "ns" => unit.set_unit(Unit::UNIT_TIME_NS),
            "" => unit.set_unit(Unit::UNIT_COUNT),
            name => unit.set_unit_name(name.to_owned()),
        }
        let mut descriptor = TrackDescriptor::new();
        descriptor.set_uuid(track);
        descriptor.set_parent_uuid(parent);
        let whose = match (counter.node_id, counter.gpu_id) {
            (Some(_), _) => format!(": {label}"),
            (None, 0) => String::new(),
            (None, gpu_id) => format!(": GPU {gpu_id}"),
        };
        let sum = if counter.cumulative { " (sum)" } else { "" };
        descriptor.set_name(format!("{}{sum}{whose}", counter.name));
        descriptor.counter = Some(unit).into();
        describe(out, descriptor)?;
        self.tracks.insert(Arc::clone(counter), track);
        Ok(track)
    }
}
