//! Looking at what the GPU writes and no function call tells of: read indices of queues, completion signals
//! that stay open, and the GPUs' clocks.
//!
//! A thread of its own, because it looks a thousand times a second while packets without completion signals
//! are under way, and the collector must not wait for it. It only reads; what it finds goes to the collector
//! as records.

use std::{
    collections::{BTreeMap, HashMap},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::{Duration, Instant},
};

use gputrace_abi::{
    domain::Domain,
    gpu::{
        COMPLETION_SIZE, Completion, QUEUE_READ_INDEX, QUEUE_STATE_SIZE, QUEUE_WRITE_INDEX, QueueState,
        SDMA_UNKNOWN, SIGNAL_MARK, completion_reason, queue_reason,
    },
    record::{RecordHeader, kind},
};
use gputrace_capture::{Meta, meta::Notice};
use gputrace_codeobj::memory::{Memory as _, ProcessMemory};
use zerocopy::{FromBytes as _, IntoBytes as _};

use crate::{
    clocks,
    gpu::News,
    sampling::{GpuClocks, Sampling},
    scratch::Scratch,
};

/// How often the read index of a busy queue is looked at: 1 kHz. That is the resolution of dispatches
/// without completion signals.
const SAMPLE_EVERY: Duration = Duration::from_millis(1);

/// For how long after its last packet without a signal, or the last step of its read index, a queue counts as
/// busy. A queue that hangs is looked at less often.
const BUSY_FOR: Duration = Duration::from_millis(200);

/// How often everything else is looked after.
const LOOK_EVERY: Duration = Duration::from_millis(25);

/// A signal that is open for longer is looked at from time to time. Most are read when they are used again.
const OPEN_FOR: Duration = Duration::from_millis(50);

/// Open signals looked at each time, at most.
const SIGNALS_PER_LOOK: usize = 256;

/// Signals of one process that are waited for, at most. A program that works well has some hundred open.
const MOST_SIGNALS: usize = 1 << 16;

/// From one index of a queue to the other.
const BETWEEN: usize = (QUEUE_READ_INDEX - QUEUE_WRITE_INDEX) as usize;

/// What the watcher is told.
pub(crate) enum Watch {
    /// From records.
    News(Vec<(u32, News)>),
    /// Look at everything once more, and end.
    Stop,
}

/// What the watcher has found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Records, back to back.
    pub(crate) records: Vec<u8>,
    /// Clock samples.
    pub(crate) metas: Vec<Meta>,
}

impl Found {
    fn is_empty(&self) -> bool {
        self.records.is_empty() && self.metas.is_empty()
    }
}

/// The running watcher.
pub(crate) struct Watcher {
    pub(crate) sender: Sender<Watch>,
    last: Receiver<Found>,
}

/// A watcher that was told to stop.
pub(crate) struct Stopping(Receiver<Found>);

impl Stopping {
    /// What it saw when it looked once more. `None` if it is not done until the deadline, because processes keep it
    /// waiting: it is left behind then.
    pub(crate) fn found(self, deadline: Instant) -> Option<Found> {
        let patience = deadline.saturating_duration_since(Instant::now());
        self.0.recv_timeout(patience).ok()
    }
}

impl Watcher {
    /// Starts the thread. `report` is called from it.
    pub(crate) fn start(
        sampling: Option<Sampling<GpuClocks>>,
        scratch: bool,
        report: impl Fn(Found) + Send + 'static,
    ) -> std::io::Result<Self> {
        let (sender, news) = channel();
        let state = State {
            news,
            sampling,
            scratch,
            processes: HashMap::new(),
            found: Found::default(),
            sample_due: Instant::now(),
            look_due: Instant::now(),
        };
        let (done, last) = channel();
        thread::Builder::new().name("watcher".to_owned()).spawn(move || {
            // A collector that waits no more has closed its books.
            let _ = done.send(state.run(report));
        })?;
        Ok(Self { sender, last })
    }

    /// Has it look at everything once more and end.
    pub(crate) fn stop(self) -> Stopping {
        // If the thread is gone, there will be nothing from it.
        let _ = self.sender.send(Watch::Stop);
        Stopping(self.last)
    }
}

struct State {
    news: Receiver<Watch>,
    sampling: Option<Sampling<GpuClocks>>,
    /// Whether the scratch memory of queues is looked at.
    scratch: bool,
    processes: HashMap<u32, Process>,
    found: Found,
    sample_due: Instant,
    look_due: Instant,
}

/// What is watched in a process.
struct Process {
    memory: ProcessMemory,
    queues: HashMap<u64, Queue>,
    /// Open signals, with when each was first known to be.
    open: BTreeMap<u64, Instant>,
    /// Where the next look at them begins.
    next_look: u64,
    /// Signals that are not waited for because there are too many.
    refused: u64,
}

impl Process {
    /// Whether something of it has not ended, as far as is known.
    fn has_work(&self) -> bool {
        !self.open.is_empty() || self.queues.values().any(|queue| queue.is_followed)
    }
}

struct Queue {
    busy_until: Instant,
    read_index: Option<u64>,
    /// When the read index was last looked at, ns `CLOCK_BOOTTIME`; 0 if never.
    looked: u64,
    /// Whether packets without signals are, or were when it was last looked at, in it.
    is_followed: bool,
    /// Known if the scratch memory of queues is looked at.
    scratch: Option<Scratch>,
}

impl State {
    fn run(mut self, report: impl Fn(Found)) -> Found {
        loop {
            let pause = if self.is_busy() { SAMPLE_EVERY } else { LOOK_EVERY };
            let pause = pause.min(self.scratch_pause());
            match self.news.recv_timeout(pause) {
                Ok(Watch::News(news)) => self.learn(&news),
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Watch::Stop) | Err(RecvTimeoutError::Disconnected) => break,
            }
            let now = Instant::now();
            let all = now >= self.look_due;
            if self.scratch {
                self.look_at_scratch(false);
            }
            if all || pause >= SAMPLE_EVERY || now >= self.sample_due {
                self.sample_due = now + SAMPLE_EVERY;
                self.sample(|queue| queue.is_followed && (all || queue.busy_until > now));
            }
            if all {
                self.look_due = now + LOOK_EVERY;
                self.look_at_signals(now, false);
            }
            if let Some(sampling) = &mut self.sampling {
                let has_work = self.processes.values().any(Process::has_work);
                sampling.tick(clocks::now(), has_work, &mut self.found.metas);
            }
            // Not at each sample: the collector's work for a report is more than a sample's.
            if all && !self.found.is_empty() {
                report(std::mem::take(&mut self.found));
            }
        }
        // Also those that have not changed: the reader is to know how things stood.
        self.forget_samples();
        self.sample(|_| true);
        if self.scratch {
            self.look_at_scratch(true);
        }
        let has_work = self.processes.values().any(Process::has_work);
        self.look_at_signals(Instant::now(), true);
        if let Some(sampling) = &mut self.sampling {
            sampling.finish(clocks::now(), has_work, &mut self.found.metas);
        }
        let time = clocks::now();
        for (pid, process) in self.processes.iter().filter(|(_, process)| process.refused > 0) {
            let text = format!(
                "process {pid}: {} completion signals were not waited for, because it had {MOST_SIGNALS} open",
                process.refused
            );
            self.found.metas.push(Notice { time, text }.into());
        }
        self.found
    }

    fn is_busy(&self) -> bool {
        let now = Instant::now();
        let mut queues = self
            .processes
            .values()
            .flat_map(|process| process.queues.values());
        queues.any(|queue| queue.is_followed && queue.busy_until > now)
    }

    fn learn(&mut self, news: &[(u32, News)]) {
        let now = Instant::now();
        if let Some(sampling) = &mut self.sampling
            && news.iter().any(|(_, news)| news.is_work())
        {
            sampling.works(clocks::now());
        }
        for (pid, news) in news {
            if !self.processes.contains_key(pid) {
                // One that has ended already cannot be watched.
                let Ok(memory) = ProcessMemory::open(*pid) else {
                    continue;
                };
                self.processes.insert(
                    *pid,
                    Process {
                        memory,
                        queues: HashMap::new(),
                        open: BTreeMap::new(),
                        next_look: 0,
                        refused: 0,
                    },
                );
            }
            let Some(process) = self.processes.get_mut(pid) else {
                continue;
            };
            match news {
                News::Queue(address) | News::Unsignalled(address) | News::Private(address) => {
                    let queue = process.queues.entry(*address).or_insert(Queue {
                        busy_until: now,
                        read_index: None,
                        looked: 0,
                        is_followed: false,
                        scratch: self.scratch.then(Scratch::default),
                    });
                    if matches!(news, News::Unsignalled(_)) {
                        queue.busy_until = now + BUSY_FOR;
                        queue.is_followed = true;
                    }
                    if let (News::Private(_), Some(scratch)) = (news, &mut queue.scratch) {
                        scratch.wanted(now);
                    }
                }
                News::QueueGone(address) => {
                    process.queues.remove(address);
                }
                News::Open(signal) => {
                    if process.open.len() < MOST_SIGNALS || process.open.contains_key(signal) {
                        process.open.insert(*signal, now);
                    } else {
                        process.refused += 1;
                    }
                }
                News::Read(signal) => {
                    process.open.remove(signal);
                }
            }
        }
    }

    /// How soon to look at the scratch memory of queues.
    fn scratch_pause(&self) -> Duration {
        if !self.scratch {
            return LOOK_EVERY;
        }
        let queues = self
            .processes
            .values()
            .flat_map(|process| process.queues.values());
        let scratch = queues.filter_map(|queue| queue.scratch.as_ref());
        scratch.map(Scratch::pause).min().unwrap_or(LOOK_EVERY)
    }

    /// Writes down what has changed in the scratch memory of queues. `all` looks also where nothing is expected.
    fn look_at_scratch(&mut self, all: bool) {
        let now = Instant::now();
        for (pid, process) in &mut self.processes {
            for (address, queue) in &mut process.queues {
                if let Some(scratch) = &mut queue.scratch
                    && (all || scratch.is_due(now))
                    && let Some(state) = scratch.look(&process.memory, *pid, *address, now)
                {
                    self.found.records.extend_from_slice(state.as_bytes());
                }
            }
        }
    }

    fn forget_samples(&mut self) {
        for process in self.processes.values_mut() {
            for queue in process.queues.values_mut() {
                queue.read_index = None;
            }
        }
    }

    /// Reads the indices of queues, and writes down those that have changed.
    fn sample(&mut self, which: impl Fn(&Queue) -> bool) {
        let records = &mut self.found.records;
        self.processes.retain(|pid, process| {
            let (mut queues, mut places) = (Vec::new(), Vec::new());
            for (address, queue) in &mut process.queues {
                if which(queue) {
                    places.push(address.wrapping_add(QUEUE_WRITE_INDEX));
                    queues.push((address, queue));
                }
            }
            let indices = match places.as_slice() {
                [] => Vec::new(),
                places => process
                    .memory
                    .places::<{ BETWEEN + 8 }>(places)
                    .unwrap_or_default(),
            };
            // After all of them were read, which is when they had come so far at the latest.
            let time = clocks::now();
            for ((address, queue), bytes) in queues.into_iter().zip(indices) {
                let Some(bytes) = bytes else { continue };
                let word = |at: usize| {
                    let bytes = bytes.get(at..at + 8).unwrap_or_default();
                    u64::read_from_bytes(bytes).unwrap_or(0)
                };
                let (write_index, read_index) = (word(0), word(BETWEEN));
                let looked = std::mem::replace(&mut queue.looked, time);
                if queue.read_index.replace(read_index) != Some(read_index) {
                    queue.busy_until = Instant::now() + BUSY_FOR;
                    let state = QueueState {
                        header: header(QUEUE_STATE_SIZE, kind::QUEUE, 0),
                        pid: *pid,
                        reason: queue_reason::SAMPLE,
                        time,
                        queue: *address,
                        read_index,
                        write_index,
                        looked,
                    };
                    records.extend_from_slice(state.as_bytes());
                }
                queue.is_followed &= read_index < write_index || queue.busy_until > Instant::now();
            }
            process.memory.is_alive().unwrap_or(true)
        });
    }

    /// Reads some of the signals that have been open for long, and writes down those that are complete. The `last`
    /// time it is all signals, whether they are complete or not.
    fn look_at_signals(&mut self, now: Instant, last: bool) {
        let records = &mut self.found.records;
        let most = if last { usize::MAX } else { SIGNALS_PER_LOOK };
        for (pid, process) in &mut self.processes {
            let (before, after) = (
                process.open.range(..process.next_look),
                process.open.range(process.next_look..),
            );
            let chosen: Vec<u64> = after
                .chain(before)
                .filter(|(_, since)| last || now.duration_since(**since) > OPEN_FOR)
                .map(|(signal, _)| *signal)
                .take(most)
                .collect();
            process.next_look = chosen.last().map_or(0, |signal| signal.saturating_add(1));
            for signal in chosen {
                // `amd_signal_t` and ROCr's words behind it.
                let words = process
                    .memory
                    .array::<104>(signal)
                    .ok()
                    .and_then(|bytes| <[u64; 13]>::read_from_bytes(&bytes).ok());
                let Some([_, value, _, _, start, end, _, _, sdma_start, _, mark, _, sdma_end]) = words else {
                    process.open.remove(&signal);
                    continue;
                };
                let (sdma_start, sdma_end) = if mark == SIGNAL_MARK {
                    (sdma_start, sdma_end)
                } else {
                    (SDMA_UNKNOWN, 0)
                };
                let value = value.cast_signed();
                if value > 0 && !last {
                    continue;
                }
                process.open.remove(&signal);
                let completion = Completion {
                    header: header(COMPLETION_SIZE, kind::COMPLETION, Domain::Completion.id()),
                    pid: *pid,
                    reason: completion_reason::POLL,
                    time: clocks::now(),
                    signal,
                    value,
                    start,
                    end,
                    sdma_start,
                    sdma_end,
                };
                records.extend_from_slice(completion.as_bytes());
            }
        }
    }
}

/// These records are the collector's own: they count as made on CPU 0.
pub(crate) fn header(size: usize, kind: u8, domain: u8) -> RecordHeader {
    RecordHeader {
        // Sizes of records are asserted to be small.
        size: size as u16,
        kind,
        domain,
        cpu: 0,
    }
}
