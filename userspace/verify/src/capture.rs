//! Reads the parts of a recording that concern the bundled program.

use std::{collections::HashMap, path::Path};

use gputrace_abi::{domain::Domain, gpu::Activity, record::kind};
use gputrace_capture::{
    Block, CaptureReader, Meta, ReadError,
    ledger::Ledger,
    records::{self, RawRecord},
};
use gputrace_kfd::clock::{ClockModel, HostTime, Window};
use gputrace_timeline::{
    Timeline,
    event::Event,
    gpu::{Copy, Dispatch, KernelInfo, QueueInfo, clock_sample},
};
use zerocopy::FromBytes as _;

/// A reading of a GPU's status register in a spell of readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    /// Times before and after it, ns.
    pub(crate) before: u64,
    pub(crate) after: u64,
    /// Whether the GPU was at work.
    pub(crate) is_active: bool,
}

impl Reading {
    /// The reading in a record, with KFD's id of the GPU.
    fn of(raw: RawRecord<'_>) -> Option<(u32, Self)> {
        if raw.header.kind != kind::ACTIVITY {
            return None;
        }
        let reading = Activity::read_from_bytes(raw.bytes).ok()?;
        let (before, after, is_active) = reading.of_spell()?;
        let one = Self {
            before,
            after,
            is_active,
        };
        Some((reading.gpu_id, one))
    }
}

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
    /// Readings of that GPU's status register, in order of time.
    pub(crate) readings: Vec<Reading>,
    /// The final account.
    pub(crate) ledger: Option<Ledger>,
    /// Whether the capture is complete and has an end.
    pub(crate) whole: bool,
}

impl Recording {
    /// Reads the data about process `pid` and the GPU of topology node `node`.
    pub(crate) fn read(path: &Path, pid: u32, node: u32) -> Result<Self, ReadError> {
        let mut recording = Self::default();
        recording.read_gpu(path, node)?;
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

    /// Reads what is known of a GPU by itself: its clock and its status register.
    fn read_gpu(&mut self, path: &Path, node: u32) -> Result<(), ReadError> {
        let (mut gpu_id, mut samples, mut readings) = (0, Vec::new(), Vec::new());
        let mut reader = CaptureReader::open(path)?;
        while let Some(block) = reader.next_block()? {
            match block {
                Block::Meta(Meta::Agent(agent)) if agent.node_id == node => gpu_id = agent.gpu_id,
                Block::Meta(Meta::GpuClock(clock)) => samples.push(clock_sample(&clock)),
                Block::Records(run) => {
                    let records = records::split(run).flatten();
                    readings.extend(records.filter_map(Reading::of));
                }
                _ => {}
            }
        }
        samples.retain(|sample| sample.gpu_id == gpu_id);
        self.samples = samples.len();
        self.clock = ClockModel::new(gpu_id, samples);
        let readings = readings.into_iter().filter(|(gpu, _)| *gpu == gpu_id);
        self.readings = readings.map(|(_, reading)| reading).collect();
        self.readings.sort_by_key(|reading| reading.after);
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
