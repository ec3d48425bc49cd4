//! Draws readings of counters below the agent or the process.

use std::{
    collections::HashMap,
    io::{self, Write},
    sync::Arc,
};

use gputrace_capture::counter::Counter;
use gputrace_timeline::event::CounterSample;

use crate::{
    gpu::GpuWork,
    packets::{Shows, Track, Unit},
    sequence::{EventType, Sequence},
    tracks::Tracks,
};

/// Draws counters. Memory grows with their number.
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
        let unit = match counter.unit.as_str() {
            "B" => Unit::Bytes,
            "ns" => Unit::Nanoseconds,
            "" => Unit::Count,
            name => Unit::Named(name),
        };
        let whose = match (counter.node_id, counter.gpu_id) {
            (Some(_), _) => format!(": {label}"),
            (None, 0) => String::new(),
            (None, gpu_id) => format!(": GPU {gpu_id}"),
        };
        let sum = if counter.cumulative { " (sum)" } else { "" };
        out.packet(&Track {
            uuid: track,
            parent,
            name: &format!("{}{sum}{whose}", counter.name),
            shows: Shows::Counter(unit),
            ..Track::default()
        })?;
        self.tracks.insert(Arc::clone(counter), track);
        Ok(track)
    }
}
