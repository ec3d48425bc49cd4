//! Collects the summary's data about GPU work.
//!
//! Durations and rates come from known times, exact or estimated ([`crate::lengths`]), latencies
//! from exact ones. Busy times and depths are estimates with a range. Everything else is counted by
//! quality. Memory is bounded: events that come very late count less, and the text says how often
//! that happened.

use std::collections::{BTreeMap, HashMap, VecDeque};

use gputrace_abi::domain::Domain;
use gputrace_capture::meta::Recording;
use gputrace_timeline::{
    event::{Call, Event},
    gpu::{Copy, Direction, Dispatch, GpuTime, Origin, Quality, RuntimeKernel},
};

use super::{
    agents::Agents,
    busy::{Busy, Reach},
    stats::Durations,
};
use gputrace_export::levels::Levels;
use gputrace_export::{
    gpu::{Gpus, in_flight},
    lengths::{Classes, Length, Sum},
};

/// Up to this number, unfinished work is listed one by one.
pub(super) const FEW: usize = 5;

/// Maximum number of queues and other places whose oldest unfinished work is listed otherwise.
const LISTED_PLACES: usize = 20;

/// Maximum number of a queue's depth changes that are kept open.
const OPEN_CHANGES: usize = 1 << 14;

/// Maximum number of outermost calls that are kept for later dispatches.
const KEPT_CALLS: usize = 1 << 17;

/// Maximum number of dispatches that are kept for a later outermost call.
const KEPT_DISPATCHES: usize = 1 << 17;

/// Number of pieces of work by quality, and of those that are drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Qualities {
    counts: [u64; 4],
    drawn: u64,
}

impl Qualities {
    fn add(&mut self, time: &GpuTime) {
        if let Some(count) = self.counts.get_mut(time.quality as usize) {
            *count += 1;
        }
        self.drawn += u64::from(time.is_drawn());
    }

    pub(super) fn of(&self, quality: Quality) -> u64 {
        self.counts.get(quality as usize).copied().unwrap_or(0)
    }

    pub(super) fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Number of those whose length is known.
    pub(super) fn drawn(&self) -> u64 {
        self.drawn
    }
}

/// All qualities, best first.
pub(super) const BEST_FIRST: [Quality; 4] = [
    Quality::Exact,
    Quality::Sampled,
    Quality::Bounded,
    Quality::Submitted,
];

/// Work of one name.
#[derive(Debug, Default)]
pub(super) struct WorkUse {
    /// Known durations, exact or estimated.
    pub(super) durations: Durations,
    /// Sum of the durations with its standard error.
    pub(super) sum: Sum,
    pub(super) qualities: Qualities,
    /// Bytes of all, and of those with real times.
    pub(super) bytes: u64,
    pub(super) timed_bytes: u64,
}

impl WorkUse {
    fn add(&mut self, time: &GpuTime, bytes: u64) {
        self.qualities.add(time);
        self.bytes = self.bytes.saturating_add(bytes);
        let length = Length::of(time);
        self.sum.add(length);
        if let Some(length) = length {
            self.durations.add(length.ns);
            self.timed_bytes = self.timed_bytes.saturating_add(bytes);
        }
    }

    /// Whether the durations show how single ones differ, unlike means of classes.
    pub(super) fn has_own_durations(&self) -> bool {
        self.sum.estimated_by_classes() == 0
    }
}

/// A queue of a process.
#[derive(Debug)]
pub(super) struct QueueUse {
    pub(super) pid: u32,
    pub(super) node: Option<u32>,
    pub(super) dispatches: u64,
    pub(super) unfinished: u64,
    /// Highest packet index of a dispatch.
    pub(super) last_index: u64,
    /// Dispatches whose begin or end is not even estimated: the depth has only a range then.
    pub(super) untimed: u64,
    depth: DepthRange,
    /// Submission times of dispatches that are not proven to have ended, and whether they are known
    /// not to have.
    open: Vec<(u64, bool)>,
}

/// Number of dispatches that were submitted and had not ended.
#[derive(Debug, Default)]
pub(super) struct Depth {
    last: Option<(u64, i64)>,
    pub(super) most: i64,
    /// Integral of the depth over time, and the time during which it was not 0, ns.
    area: u128,
    time: u64,
}

impl Depth {
    fn change(&mut self, time: u64, level: i64) {
        if let Some((since, before)) = self.last.filter(|(_, before)| *before > 0) {
            let passed = time.saturating_sub(since);
            self.time += passed;
            self.area += u128::from(passed) * u128::from(before.unsigned_abs());
        }
        self.last = Some((time, level));
        self.most = self.most.max(level);
    }

    /// Mean depth while it was not 0.
    pub(super) fn mean(&self) -> f64 {
        if self.time == 0 {
            0.0
        } else {
            self.area as f64 / self.time as f64
        }
    }
}

impl QueueUse {
    pub(super) fn depth(&self) -> &Depth {
        let [(_, estimate), ..] = &self.depth.ways;
        estimate
    }

    /// Lower and upper bound of the mean depth. Later ends make more depth, but also more time with
    /// any; where there is any, it is at least 1.
    pub(super) fn depth_range(&self) -> (f64, f64) {
        let [_, (_, early), (_, late)] = &self.depth.ways;
        if late.time == 0 {
            return (0.0, 0.0);
        }
        let (_, deepest) = self.deepest_range();
        let least = early.area as f64 / late.time as f64;
        let most = late.area as f64 / early.time as f64;
        (least.max(1.0), most.min(deepest))
    }

    /// The least and the most that the greatest depth can be.
    pub(super) fn deepest_range(&self) -> (f64, f64) {
        let [_, (_, early), (_, late)] = &self.depth.ways;
        // A dispatch is in the queue when it is submitted, however soon it may have ended.
        let least = early.most.max(late.most.min(1));
        (least as f64, late.most as f64)
    }
}

/// The depth if dispatches ended as estimated, as early as possible, and as late as possible.
#[derive(Debug)]
struct DepthRange {
    ways: [(Levels, Depth); 3],
}

impl DepthRange {
    fn new() -> Self {
        Self {
            ways: [(); 3].map(|()| (Levels::with_limit(OPEN_CHANGES), Depth::default())),
        }
    }

    /// Adds a dispatch that was in flight from `begin` until each of `ends`.
    fn add(&mut self, begin: u64, ends: [u64; 3]) {
        for ((levels, depth), end) in self.ways.iter_mut().zip(ends) {
            levels.add(begin, end, 1, |time, level| depth.change(time, level));
        }
    }

    fn finish(&mut self) {
        for (levels, depth) in &mut self.ways {
            levels.finish(|time, level| depth.change(time, level));
        }
    }

    fn late(&self) -> u64 {
        self.ways
            .iter()
            .map(|(levels, _)| levels.late())
            .max()
            .unwrap_or(0)
    }
}

/// Latencies from the begin of an outermost call to the begin of the dispatch that it submitted;
/// either may come first.
#[derive(Debug, Default)]
struct Launches {
    calls: HashMap<u64, u64>,
    order: VecDeque<u64>,
    /// Begins of dispatches, by the call that they wait for.
    waiting: HashMap<u64, Vec<u64>>,
    waiting_count: usize,
}

impl Launches {
    fn call(&mut self, call: &Call, latency: &mut Durations) {
        for begin in self.waiting.remove(&call.correlation).unwrap_or_default() {
            self.waiting_count -= 1;
            latency.add(begin.saturating_sub(call.begin));
        }
        if self.order.len() >= KEPT_CALLS
            && let Some(oldest) = self.order.pop_front()
        {
            self.calls.remove(&oldest);
        }
        self.calls.insert(call.correlation, call.begin);
        self.order.push_back(call.correlation);
    }

    fn dispatch(&mut self, correlation: u64, begin: u64, latency: &mut Durations) {
        if let Some(call) = self.calls.get(&correlation) {
            latency.add(begin.saturating_sub(*call));
        } else if self.waiting_count < KEPT_DISPATCHES {
            self.waiting_count += 1;
            self.waiting.entry(correlation).or_default().push(begin);
        }
    }
}

/// Where work is executed: unfinished work in a place waits for the oldest there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// A queue.
    Queue(u32),
    /// Copies of a process to a node.
    Copies(u32, Option<u32>),
}

/// Unfinished work of one place.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    /// The oldest pieces of work, oldest first; at most [`FEW`].
    pub(super) oldest: Vec<Unfinished>,
    /// Number of all unfinished pieces.
    pub(super) count: u64,
}

/// Work that had not ended when the recording stopped.
#[derive(Clone, Debug)]
pub(super) struct Unfinished {
    pub(super) name: String,
    pub(super) origin: Origin,
    pub(super) node: Option<u32>,
    /// Queue and packet index of a dispatch.
    pub(super) packet: Option<(u32, u64)>,
}

impl Unfinished {
    /// Sort key: oldest first.
    fn age_key(&self) -> (u64, u64) {
        (self.origin.time, self.packet.map_or(0, |(_, index)| index))
    }
}

/// All data about GPU work. Memory grows with the number of kernels, agents and queues.
#[derive(Debug, Default)]
pub(super) struct GpuUse {
    pub(super) gpus: Gpus,
    /// Whether GPU work was asked for.
    asked: bool,
    pub(super) kernels: HashMap<String, WorkUse>,
    pub(super) copies: BTreeMap<Direction, WorkUse>,
    /// Copies and fills that HIP did with kernels of its own; they also count among the kernels.
    pub(super) by_kernels: BTreeMap<RuntimeKernel, WorkUse>,
    /// Counts of kernel classes by what is known of their means.
    classes: Classes,
    pub(super) kernel_qualities: Qualities,
    pub(super) copy_qualities: Qualities,
    pub(super) agents: Agents,
    pub(super) queues: BTreeMap<u32, QueueUse>,
    launches: Launches,
    /// Latency from the begin of the outermost call.
    pub(super) since_call: Durations,
    /// Latency from the submission.
    pub(super) since_submission: Durations,
    unfinished: BTreeMap<Place, Waiting>,
    pub(super) unfinished_work: u64,
}

impl GpuUse {
    pub(super) fn recording(&mut self, recording: &Recording) {
        let asked = |domain: &Domain| recording.domains.iter().any(|name| name == domain.name());
        self.asked = [Domain::KernelDispatch, Domain::MemoryCopy]
            .iter()
            .any(asked);
        self.agents.began = recording.clocks.boottime;
    }

    /// Whether there is anything to report.
    pub(super) fn is_relevant(&self) -> bool {
        self.asked || self.any()
    }

    /// Whether there was any work.
    pub(super) fn any(&self) -> bool {
        self.kernel_qualities.total() + self.copy_qualities.total() > 0
    }

    /// Takes an event that is not a call.
    pub(super) fn event(&mut self, event: &Event) {
        self.gpus.learn(event);
        match event {
            Event::Dispatch(dispatch) => self.dispatch(dispatch),
            Event::Copy(copy) => self.copy(copy),
            Event::KernelClass(_) => self.classes.event(event),
            Event::Queue(queue) => self.agents.queue(queue),
            _ => {}
        }
    }

    /// Takes a call.
    pub(super) fn call(&mut self, call: &Call) {
        if self.asked && call.parent == 0 {
            self.launches.call(call, &mut self.since_call);
        }
    }

    fn dispatch(&mut self, dispatch: &Dispatch) {
        let time = &dispatch.time;
        let node = self.gpus.node_of(dispatch);
        let name = self.gpus.kernel_name(dispatch);
        if !self.kernels.contains_key(&*name) {
            self.kernels
                .insert(name.clone().into_owned(), WorkUse::default());
        }
        if let Some(kernel) = self.kernels.get_mut(&*name) {
            kernel.add(time, 0);
        }
        let runtime = self.gpus.kernel(dispatch).and_then(|kernel| kernel.runtime);
        if let Some(runtime @ (RuntimeKernel::Copy | RuntimeKernel::Fill)) = runtime {
            self.by_kernels.entry(runtime).or_default().add(time, 0);
        }
        let name = time.unfinished.then(|| name.into_owned());
        self.kernel_qualities.add(time);
        self.agents.dispatch(node, dispatch);
        if time.quality == Quality::Exact {
            let Origin {
                tid,
                time: submitted,
                ..
            } = dispatch.origin;
            // Without a thread, the submission was not observed.
            if submitted != 0 && tid != 0 {
                self.since_submission
                    .add(time.begin.saturating_sub(submitted));
            }
            if dispatch.origin.outermost != 0 {
                self.launches
                    .dispatch(dispatch.origin.outermost, time.begin, &mut self.since_call);
            }
        }
        let queue = self
            .queues
            .entry(dispatch.queue)
            .or_insert_with(|| QueueUse {
                pid: dispatch.origin.pid,
                node,
                dispatches: 0,
                unfinished: 0,
                last_index: 0,
                untimed: 0,
                depth: DepthRange::new(),
                open: Vec::new(),
            });
        queue.dispatches += 1;
        queue.unfinished += u64::from(time.unfinished);
        queue.last_index = queue.last_index.max(dispatch.index);
        // What is known not to have ended is in flight until the recording stops.
        let is_untimed = Length::of(time).is_none() && !time.unfinished;
        queue.untimed += u64::from(is_untimed);
        if let Some((begin, end)) = in_flight(dispatch.origin.time, time) {
            let Reach { least, most } = Reach::of(time);
            let earliest = least.map_or(time.end_window.earliest, |(_, end)| end);
            queue
                .depth
                .add(begin, [end, earliest, most.1.unwrap_or(end)]);
        } else if time.end_window.latest.is_none() && queue.open.len() < OPEN_CHANGES {
            queue.open.push((dispatch.origin.time, time.unfinished));
        }
        if let Some(name) = name {
            let work = Unfinished {
                name,
                origin: dispatch.origin,
                node,
                packet: Some((dispatch.queue, dispatch.index)),
            };
            self.hangs(Place::Queue(dispatch.queue), work);
        }
    }

    fn copy(&mut self, copy: &Copy) {
        self.copy_qualities.add(&copy.time);
        self.copies
            .entry(copy.direction)
            .or_default()
            .add(&copy.time, copy.bytes);
        if copy.time.unfinished {
            let node = gputrace_export::gpu::copy_node(copy);
            let work = Unfinished {
                name: copy.direction.name().to_owned(),
                origin: copy.origin,
                node,
                packet: None,
            };
            self.hangs(Place::Copies(copy.origin.pid, node), work);
        }
    }

    fn hangs(&mut self, place: Place, work: Unfinished) {
        self.unfinished_work += 1;
        let Waiting { oldest, count } = self.unfinished.entry(place).or_insert_with(|| Waiting {
            oldest: Vec::new(),
            count: 0,
        });
        *count += 1;
        let at = oldest.partition_point(|other| other.age_key() <= work.age_key());
        if at < FEW {
            oldest.insert(at, work);
            oldest.truncate(FEW);
        }
    }

    /// Sum over all kernels.
    pub(super) fn all_kernels(&self) -> Sum {
        let mut all = Sum::default();
        // In order: sums of floating-point numbers depend on it.
        let kernels: BTreeMap<&String, &WorkUse> = self.kernels.iter().collect();
        kernels.values().for_each(|kernel| all.merge(&kernel.sum));
        all
    }

    /// A remark on what was estimated, and how well.
    pub(super) fn remark(&self) -> Option<String> {
        self.classes.remark(&self.all_kernels())
    }

    /// The unfinished work to list, oldest first, each with the number of further pieces waiting
    /// behind it in its place. Lists all of it if there is little, otherwise the oldest of each
    /// place: a queue that is merely deep when the recording stops would fill the list otherwise,
    /// and the oldest is what hangs.
    pub(super) fn listed_unfinished(&self) -> Vec<(&Unfinished, u64)> {
        let mut listed: Vec<(&Unfinished, u64)> = if self.unfinished_work <= FEW as u64 {
            let all = self.unfinished.values().flat_map(|waiting| &waiting.oldest);
            all.map(|work| (work, 0)).collect()
        } else {
            let of_places = self.unfinished.values();
            of_places
                .filter_map(|waiting| Some((waiting.oldest.first()?, waiting.count - 1)))
                .collect()
        };
        listed.sort_by_key(|(work, _)| work.age_key());
        listed.truncate(LISTED_PLACES);
        listed
    }

    /// Settles everything; must be the last call. `stopped` is when the recording stopped, ns.
    pub(super) fn finish(&mut self, stopped: u64) {
        self.agents.finish(stopped);
        for QueueUse { depth, open, .. } in self.queues.values_mut() {
            for (begin, is_unfinished) in std::mem::take(open) {
                let earliest = if is_unfinished { stopped } else { begin };
                depth.add(begin, [earliest, earliest, stopped]);
            }
            depth.finish();
        }
    }

    /// Number of pieces of work that came too late to count in full in busy times and depths.
    pub(super) fn late(&self) -> u64 {
        let busy: u64 = self.agents.busy.values().map(Busy::late).sum();
        let depths: u64 = self.queues.values().map(|queue| queue.depth.late()).sum();
        busy.max(depths)
    }
}

#[cfg(test)]
mod tests;
