//! Watches state that the GPU changes without any function call: read indices of queues, completion
//! signals that stay open, and the GPUs' clocks.
//!
//! This runs in a separate thread, because it looks thousands of times per second while packets
//! without completion signals are processed ([`crate::looks`] decides when), and the collector must
//! not wait for it. It only reads; its findings go to the collector as records. While no packets
//! are outstanding, it sleeps until it is told of new ones.

use std::{
    collections::BTreeMap,
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel},
    thread,
    time::{Duration, Instant},
};

use gputrace_abi::gpu::{POLL_SPREAD, QUEUE_READ_INDEX, QUEUE_WRITE_INDEX};
use gputrace_capture::{Meta, ledger::Looks, meta::Notice};
use gputrace_codeobj::memory::{ProcessMemory, look_at};
use gputrace_kfd::Paths;
use gputrace_text::tables::plural;
use rustix::time::{ClockId, clock_gettime};
use zerocopy::IntoBytes as _;

use crate::{
    activity::{Gpu, Readings},
    clocks,
    looks::{LOOK_EVERY, Plan, SLOWEST, Schedule},
    open::{self, OpenSignals},
    queue::Queue,
    sampling::{GpuClocks, Sampling},
    scratch::Scratch,
    tracker::Change,
};

/// Packets that follow each other faster than this, ns, are looked at in spells.
const SHORT: u64 = 1_000_000;

/// Length of a spell, ns. Begins and ends outside of spells are not seen. With 40 repeated kernels
/// of up to 3 ms, spells of 0.5 ms did not separate neighbours; a third as many spells of 1.5 ms
/// did (docs/estimates.md).
const SPELL: u32 = 1_500_000;

/// Maximum length of a run of looks, which limits how long messages to the watcher wait.
const RUN: Duration = Duration::from_millis(8);

/// Number of looks at each queue when the recording ends: one look may have been too slow to be of
/// use.
const LAST_LOOKS: usize = 3;

/// Distance between the two indices of a queue, bytes.
const BETWEEN: u32 = (QUEUE_READ_INDEX - QUEUE_WRITE_INDEX) as u32;

/// A message to the watcher.
pub(crate) enum Watch {
    /// Changes derived from records.
    Changes(Vec<(u32, Change)>),
    /// Look at everything, and answer with what is found.
    Peek(Sender<Peeked>),
    /// Look at everything once more, and exit.
    Stop,
}

/// Findings of the watcher.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Consecutive records.
    pub(crate) records: Vec<u8>,
    /// Clock samples.
    pub(crate) metas: Vec<Meta>,
    /// Figures of all looks; set at the end.
    pub(crate) looks: Option<Looks>,
}

/// The state of all that is watched at a moment.
#[derive(Debug, Default)]
pub(crate) struct Peeked {
    /// Findings for the recording.
    pub(crate) found: Found,
    /// Readings of all open signals, as records. The recording goes on without them: it gets those
    /// of complete signals when they are read in the usual way.
    pub(crate) signals: Vec<u8>,
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
    /// Its last findings. `None` if it does not finish by the deadline because processes delay it;
    /// it is left behind then.
    pub(crate) fn found(self, deadline: Instant) -> Option<Found> {
        let patience = deadline.saturating_duration_since(Instant::now());
        self.0.recv_timeout(patience).ok()
    }
}

impl Watcher {
    /// Starts the thread. `budget` is the share of one core that looks at read indices may take, in
    /// millionths; `report` is called from the thread.
    pub(crate) fn start(
        sampling: Option<Sampling<GpuClocks>>,
        gpus: Vec<Gpu>,
        scratch: bool,
        budget: u32,
        report: impl Fn(Found) + Send + 'static,
    ) -> std::io::Result<Self> {
        let (sender, inbox) = channel();
        let state = State {
            inbox,
            sampling,
            scratch,
            processes: BTreeMap::new(),
            found: Found::default(),
            follows: budget > 0,
            // The seed only needs to differ between recordings.
            schedule: Schedule::new(budget, clocks::now(), clocks::now()),
            readings: Readings::new(Paths::default(), gpus, budget, !clocks::now()),
            settled: Duration::ZERO,
            look_due: Instant::now(),
        };
        let (done, last) = channel();
        thread::Builder::new()
            .name("watcher".to_owned())
            .spawn(move || {
                // A collector that no longer waits has completed its accounts.
                let _ = done.send(state.run(report));
            })?;
        Ok(Self { sender, last })
    }

    /// Makes it look at everything. `None` if that takes longer than `patience`, because processes
    /// delay it.
    pub(crate) fn peek(&self, patience: Duration) -> Option<Peeked> {
        let (answer, peeked) = channel();
        self.sender.send(Watch::Peek(answer)).ok()?;
        peeked.recv_timeout(patience).ok()
    }

    /// Makes it look at everything once more and exit.
    pub(crate) fn stop(self) -> Stopping {
        // If the thread is gone, it reports nothing more.
        let _ = self.sender.send(Watch::Stop);
        Stopping(self.last)
    }
}

struct State {
    inbox: Receiver<Watch>,
    sampling: Option<Sampling<GpuClocks>>,
    /// Whether the scratch memory of queues is looked at.
    scratch: bool,
    processes: BTreeMap<u32, Process>,
    found: Found,
    /// Whether read indices are looked at while recording.
    follows: bool,
    schedule: Schedule,
    readings: Readings<Paths>,
    /// Processor time that has been attributed so far.
    settled: Duration,
    look_due: Instant,
}

/// What is watched in a process.
struct Process {
    memory: ProcessMemory,
    queues: BTreeMap<u64, Queue>,
    open: OpenSignals,
}

impl Process {
    /// Whether the process has work that has not ended, as far as is known.
    fn has_work(&self) -> bool {
        !self.open.is_empty() || self.queues.values().any(|queue| queue.is_followed)
    }
}

impl State {
    fn run(mut self, report: impl Fn(Found)) -> Found {
        // If this fails, looks come late but are still valid.
        let _ = gputrace_reader::wake_in_time();
        loop {
            let pause = self.pause();
            let longest = RUN.min(pause.unwrap_or(RUN)).as_nanos() as u64;
            let wanted = self.wanted();
            let spell = self.spell();
            let plan = self.schedule.plan(clocks::now(), wanted, longest, spell);
            let told = match (&plan, pause) {
                (Plan::Look(_) | Plan::Spell(..), _) => {
                    self.inbox.try_recv().map_err(|error| match error {
                        TryRecvError::Empty => RecvTimeoutError::Timeout,
                        TryRecvError::Disconnected => RecvTimeoutError::Disconnected,
                    })
                }
                (Plan::Wait(wait), pause) => {
                    let wait = Duration::from_nanos(*wait);
                    self.inbox
                        .recv_timeout(pause.map_or(wait, |pause| wait.min(pause)))
                }
                (Plan::Rest, Some(pause)) => self.inbox.recv_timeout(pause),
                (Plan::Rest, None) => self
                    .inbox
                    .recv()
                    .map_err(|_| RecvTimeoutError::Disconnected),
            };
            match (told, plan) {
                (Ok(Watch::Changes(changes)), _) => {
                    self.learn(&changes);
                    self.settled = time_spent();
                }
                (Ok(Watch::Peek(answer)), _) => {
                    // Nobody waits any more if that took long.
                    let _ = answer.send(self.peek());
                    self.settled = time_spent();
                }
                (Err(RecvTimeoutError::Timeout), Plan::Look(pauses)) => {
                    self.look(wanted, pauses, 0);
                }
                (Err(RecvTimeoutError::Timeout), Plan::Spell(pause, spell)) => {
                    self.look(wanted, vec![pause], spell);
                }
                (Err(RecvTimeoutError::Timeout), _) => {}
                (Ok(Watch::Stop) | Err(RecvTimeoutError::Disconnected), _) => break,
            }
            self.read_registers();
            self.look_after_the_rest(&report);
        }
        // Includes unchanged queues, so that the capture has their final state.
        self.look_at_all();
        if self.scratch {
            self.look_at_scratch(true);
        }
        let has_work = self.processes.values().any(Process::has_work);
        self.look_at_signals(Instant::now(), true);
        if let Some(sampling) = &mut self.sampling {
            sampling.finish(clocks::now(), has_work, &mut self.found.metas);
        }
        let time = clocks::now();
        for (pid, process) in &self.processes {
            let refused = process.open.refused();
            if refused > 0 {
                let text = format!(
                    "process {pid}: {} not waited for, because it had {} open",
                    plural(refused, "completion signal was", "completion signals were"),
                    open::MOST
                );
                self.found.metas.push(Notice { time, text }.into());
            }
        }
        self.found.looks = Some(self.schedule.figures(time));
        self.found
    }

    /// Reads whether the GPUs are at work, if that is due.
    fn read_registers(&mut self) {
        let now = clocks::now();
        if self.readings.due().is_none_or(|due| now < due) {
            return;
        }
        let mut processes = self.processes.values();
        let is_queued = processes.any(|process| process.queues.values().any(Queue::is_deep));
        let spent = self.schedule.spent_in_window(now);
        let records = &mut self.found.records;
        if self.readings.tick(spent, is_queued, clocks::now, records) {
            let spent = time_spent();
            let cost = spent.saturating_sub(self.settled).as_nanos() as u64;
            self.settled = spent;
            let now = clocks::now();
            self.readings.spent(now, cost);
            self.schedule.spent(now, cost);
        }
    }

    /// Looks at everything. Signals stay open.
    fn peek(&mut self) -> Peeked {
        self.look_at_all();
        let mut signals = Vec::new();
        for (pid, process) in &self.processes {
            process
                .open
                .peek((*pid, &process.memory), clocks::now, |completion| {
                    signals.extend_from_slice(completion.as_bytes());
                });
        }
        Peeked {
            found: std::mem::take(&mut self.found),
            signals,
        }
    }

    /// Looks at everything other than read indices, if that is due.
    fn look_after_the_rest(&mut self, report: &impl Fn(Found)) {
        let now = Instant::now();
        if self.scratch {
            self.look_at_scratch(false);
        } else if now < self.look_due {
            return;
        }
        if now >= self.look_due {
            self.look_due = now + LOOK_EVERY;
            self.processes
                .retain(|_, process| process.memory.is_alive().unwrap_or(true));
            self.look_at_signals(now, false);
            if let Some(sampling) = &mut self.sampling {
                let has_work = self.processes.values().any(Process::has_work);
                sampling.tick(clocks::now(), has_work, &mut self.found.metas);
            }
            // Not at each look: a report costs the collector more than a look costs.
            if !self.found.is_empty() {
                report(std::mem::take(&mut self.found));
            }
        }
        self.settled = time_spent();
    }

    /// How long only looks at read indices are needed; `None`: until the next message.
    fn pause(&self) -> Option<Duration> {
        let is_needed = !self.found.is_empty()
            || self.sampling.as_ref().is_some_and(Sampling::is_open)
            || self.processes.values().any(Process::has_work);
        let rest = if self.scratch {
            Some(self.scratch_pause())
        } else {
            is_needed.then_some(LOOK_EVERY)
        };
        let reading = self.readings.due().map(|due| {
            let pause = due.saturating_sub(clocks::now());
            Duration::from_nanos(pause.max(1))
        });
        rest.into_iter().chain(reading).min()
    }

    /// How often to look at read indices, ns: the shortest period that any queue needs. Queues that
    /// need none are skipped until there is a message about them.
    fn wanted(&mut self) -> Option<u64> {
        let now = Instant::now();
        let queues = self
            .processes
            .values_mut()
            .flat_map(|process| process.queues.values_mut());
        let wanted = queues.filter_map(|queue| {
            let wanted = queue.wanted(now);
            queue.is_followed = wanted.is_some();
            wanted
        });
        wanted.min()
    }

    /// Length of a look, ns: a spell while packets are short, else 0.
    fn spell(&self) -> u32 {
        let mut queues = self
            .processes
            .values()
            .flat_map(|process| process.queues.values());
        let is_short =
            queues.any(|queue| queue.is_followed && queue.has_many() && queue.pace <= SHORT);
        if is_short { SPELL } else { 0 }
    }

    /// Looks at all queues in which something is expected, after each of these pauses, each time
    /// for `spell` ns.
    fn look(&mut self, wanted: Option<u64>, pauses: Vec<u32>, spell: u32) {
        let busy = self.processes.iter().flat_map(|(pid, process)| {
            let queues = process.queues.iter().filter(|(_, queue)| queue.is_followed);
            queues.map(|(address, _)| (*pid, *address))
        });
        let places: Vec<(u32, u64)> = busy.collect();
        let mut times = Vec::new();
        let mut pauses = Some(pauses);
        for places in places.chunks(gputrace_reader::PLACES) {
            // With this many queues, only one look is made at a time.
            let (first, spell) = match pauses.take() {
                Some(pauses) => (pauses, spell),
                None => (vec![0], 0),
            };
            let seen = self.look_at(places, first, spell);
            if times.is_empty() {
                times = seen;
            }
        }
        let spent = time_spent();
        let cost = spent.saturating_sub(self.settled).as_nanos() as u64;
        self.settled = spent;
        let wanted = self.wanted().or(wanted).unwrap_or(SLOWEST);
        if spell > 0 {
            self.schedule.went_on(clocks::now(), &times, spell, cost);
        } else {
            self.schedule.looked(clocks::now(), wanted, &times, cost);
        }
    }

    /// Looks at these queues, in which queues of one process are adjacent, and records the changes.
    /// Returns the times of the looks.
    fn look_at(&mut self, places: &[(u32, u64)], pauses: Vec<u32>, spell: u32) -> Vec<u64> {
        let known: Vec<(&ProcessMemory, u64)> = places
            .iter()
            .filter_map(|(pid, address)| {
                let process = self.processes.get(pid)?;
                Some((&process.memory, address.wrapping_add(QUEUE_WRITE_INDEX)))
            })
            .collect();
        let looks = match look_at(&known, BETWEEN, pauses, spell) {
            Ok(looks) => looks,
            // To find out which process does not answer, each is looked at separately.
            Err(_) if places.first().map(|first| first.0) != places.last().map(|last| last.0) => {
                for places in places.chunk_by(|(one, _), (other, _)| one == other) {
                    self.look_at(places, vec![0], 0);
                }
                return Vec::new();
            }
            Err(_) => return Vec::new(),
        };
        // A value read long before its time may belong to another queue that had this address
        // before.
        let prompt = || {
            looks
                .iter()
                .filter(|look| look.after.saturating_sub(look.before) <= POLL_SPREAD)
        };
        for look in prompt() {
            for ((pid, address), pair) in places.iter().zip(&look.pairs) {
                let queue = self.processes.get_mut(pid);
                let queue = queue.and_then(|process| process.queues.get_mut(address));
                if let (Some(queue), Some(pair)) = (queue, pair)
                    && let Some(state) = queue.look(*pid, *address, look, *pair)
                {
                    self.found.records.extend_from_slice(state.as_bytes());
                }
            }
        }
        prompt()
            .filter(|look| look.is_first)
            .map(|look| look.after)
            .collect()
    }

    /// Looks at all queues, and records unchanged ones as well.
    fn look_at_all(&mut self) {
        let mut all: Vec<(u32, Vec<(u32, u64)>)> = Vec::new();
        for (pid, process) in &mut self.processes {
            process
                .queues
                .values_mut()
                .for_each(|queue| queue.read_index = None);
            all.push((
                *pid,
                process
                    .queues
                    .keys()
                    .map(|address| (*pid, *address))
                    .collect(),
            ));
        }
        for (_, places) in all {
            for places in places.chunks(gputrace_reader::PLACES) {
                self.look_at(places, vec![0; LAST_LOOKS], 0);
            }
        }
    }

    fn learn(&mut self, changes: &[(u32, Change)]) {
        let now = Instant::now();
        if let Some(sampling) = &mut self.sampling
            && changes.iter().any(|(_, change)| change.is_work())
            && sampling.works(clocks::now())
        {
            self.look_due = now;
        }
        for (pid, change) in changes {
            if !self.processes.contains_key(pid) {
                // A process that has ended already cannot be watched.
                let Ok(memory) = ProcessMemory::open(*pid) else {
                    continue;
                };
                self.processes.insert(
                    *pid,
                    Process {
                        memory,
                        queues: BTreeMap::new(),
                        open: OpenSignals::default(),
                    },
                );
            }
            let Some(process) = self.processes.get_mut(pid) else {
                continue;
            };
            match change {
                Change::Queue(address)
                | Change::OnNode(address, _)
                | Change::Unsignalled(address)
                | Change::Private(address) => {
                    let queue = process
                        .queues
                        .entry(*address)
                        .or_insert_with(|| Queue::new(now, self.scratch));
                    if let Change::OnNode(_, node) = change {
                        queue.node = Some(*node);
                    }
                    if matches!(change, Change::Unsignalled(_)) && self.follows {
                        if queue.wanted(now).is_none() {
                            self.schedule.wake(clocks::now());
                        }
                        queue.submitted(now);
                        self.readings
                            .works(queue.node, clocks::now(), &mut self.found.records);
                    }
                    if let (Change::Private(_), Some(scratch)) = (change, &mut queue.scratch) {
                        scratch.wanted(now);
                    }
                }
                Change::QueueGone(address) => {
                    process.queues.remove(address);
                }
                Change::Open(signal) => process.open.used(*signal, now),
                Change::Read(signal) => process.open.read(*signal),
                Change::Loaded => {}
            }
        }
    }

    /// Time until the next look at the scratch memory of queues.
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

    /// Records changes in the scratch memory of queues. `all` includes queues in which nothing is
    /// expected.
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

    /// Reads some of the signals that have been open for long, and records those that are complete.
    /// If `last` is set, reads all signals, and records incomplete ones as well.
    fn look_at_signals(&mut self, now: Instant, last: bool) {
        let records = &mut self.found.records;
        for (pid, process) in &mut self.processes {
            let (open, memory) = (&mut process.open, &process.memory);
            open.look((*pid, memory), now, last, clocks::now, |completion| {
                records.extend_from_slice(completion.as_bytes());
            });
        }
    }
}

/// Processor time that this thread and its helper have used.
fn time_spent() -> Duration {
    let own = clock_gettime(ClockId::ThreadCPUTime);
    // Neither part of this clock is ever negative.
    let (seconds, ns) = (
        u64::try_from(own.tv_sec).unwrap_or(0),
        u32::try_from(own.tv_nsec).unwrap_or(0),
    );
    Duration::new(seconds, ns) + gputrace_reader::helper_time()
}
