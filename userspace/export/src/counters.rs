//! Counter readings in the JSON formats.

use gputrace_timeline::event::CounterSample;
use serde::Serialize;

/// A reading. `time` is ns, `CLOCK_BOOTTIME`; unknown ids are 0.
#[derive(Serialize)]
pub(crate) struct CounterRecord<'a> {
    name: &'a str,
    unit: &'a str,
    cumulative: bool,
    pid: u32,
    gpu_id: u32,
    agent: Option<u32>,
    time: u64,
    value: f64,
}

impl<'a> CounterRecord<'a> {
    pub(crate) fn new(sample: &'a CounterSample) -> Self {
        let counter = &sample.counter;
        Self {
            name: &counter.name,
            unit: &counter.unit,
            cumulative: counter.cumulative,
            pid: counter.pid,
            gpu_id: counter.gpu_id,
            agent: counter.node_id,
            time: sample.time,
            value: sample.value,
        }
    }
}
