//! Reads the parts of a recording that concern the bundled program.

use std::{collections::HashMap, path::Path};

use gputrace_abi::domain::Domain;
use gputrace_capture::{CaptureReader, Meta, ReadError, ledger::Ledger};
use gputrace_kfd::clock::{ClockModel, HostTime, Window};
use gputrace_timeline::{
    Timeline,
    event::Event,
    gpu::{Copy, Dispatch, KernelInfo, QueueInfo, clock_sample},
};

/// A recording of the program.
#[derive(Debug, Default)]
pub(crate) struct Recording {
    /// Dispatches of the program's process in the timeline's order, each with the id of its queue
    /// (`hsa_queue_t::id`).
    pub(crate) dispatches: Vec<(u64, Dispatch)>,
    /// Copies of the program's process.
    pub(crate) copies: Vec<Copy>,
    /// Kernels by number.
    pub(crate) kernels: HashMap<u32, KernelInfo>,
    /// How often queues of the program were seen to get scratch memory, and to lose it.
    pub(crate) scratch: [u64; 2],
    /// The clock of the program's GPU.
    pub(crate) clock: ClockModel,
    /// Number of samples of that clock.
    pub(crate) samples: usize,
    /// The final account.
    pub(crate) ledger: Option<Ledger>,
    /// Whether the capture is complete and has an end.
    pub(crate) whole: bool,
}

impl Recording {
    /// Reads the data about process `pid` and the GPU of topology node `node`.
    pub(crate) fn read(path: &Path, pid: u32, node: u32) -> Result<Self, ReadError> {
        let mut recording = Self::default();
        recording.read_clock(path, node)?;
        let mut queues: HashMap<u32, QueueInfo> = HashMap::new();
        let mut ended = false;
        let mut timeline = Timeline::open(path)?;
        for event in &mut timeline {
            match event? {
                Event::Queue(queue) => {
                    queues.insert(queue.number, queue);
                }
                Event::Kernel(kernel) => {
                    recording.kernels.insert(kernel.id, *kernel);
                }
                Event::Dispatch(dispatch) => {
                    let queue = queues.get(&dispatch.queue).filter(|queue| queue.pid == pid);
                    if let Some(queue) = queue {
                        recording.dispatches.push((queue.id, *dispatch));
                    }
                }
                Event::Copy(copy) if copy.origin.pid == pid => recording.copies.push(*copy),
                Event::Observation(one)
                    if one.domain == Domain::ScratchMemory.id() && one.whose.pid == pid =>
                {
                    let [given, lost] = &mut recording.scratch;
                    *(if one.name.ends_with("ALLOC") {
                        given
                    } else {
                        lost
                    }) += 1;
                }
                Event::Ledger(ledger) => recording.ledger = Some(*ledger),
                Event::End(_) => ended = true,
                _ => {}
            }
        }
        recording.whole = ended && timeline.truncation().is_none();
        Ok(recording)
    }

    fn read_clock(&mut self, path: &Path, node: u32) -> Result<(), ReadError> {
        let (mut gpu_id, mut samples) = (0, Vec::new());
        let mut reader = CaptureReader::open(path)?;
        while let Some(meta) = reader.next_meta()? {
            match meta {
                Meta::Agent(agent) if agent.node_id == node => gpu_id = agent.gpu_id,
                Meta::GpuClock(clock) => samples.push(clock_sample(&clock)),
                _ => {}
            }
        }
        samples.retain(|sample| sample.gpu_id == gpu_id);
        self.samples = samples.len();
        self.clock = ClockModel::new(gpu_id, samples);
        Ok(())
    }

    /// The time at which the GPU's clock had this count; not before `not_before`. `None` if
    /// unknown.
    pub(crate) fn moment(&self, tick: u64, not_before: u64) -> Option<HostTime> {
        /// Margin for the accuracy of the clock: without it, a time just before `not_before` would
        /// be taken for another one.
        const ROOM_NS: u64 = 1_000_000;
        let window = Window::from(not_before.saturating_sub(ROOM_NS));
        self.clock.to_boottime(tick, window).ok()
    }
}
