//! The overview of the whole recording: when each queue, copy direction and thread was busy.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, HashMap},
};

use gputrace_capture::gpu::AgentKind;
use gputrace_timeline::{
    event::{CallEnd, Event},
    gpu::{Copy, Direction, GpuTime, Quality},
};

use gputrace_export::{
    functions::Functions,
    gpu::{Gpus, copy_node, queue_id},
};

/// Number of time steps into which the recording is divided.
pub(super) const STEPS: usize = 2048;

/// Maximum number of spans that are shown one by one: the longest.
const SPANS: usize = 20_000;

/// What has a row. Rows are sorted in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Place {
    /// GPU work, by node.
    Gpu(Option<u32>, Row),
    /// Outermost calls of a thread, by process and thread.
    Thread(u32, u32),
}

/// A kind of work of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Row {
    /// Kernels of this queue.
    Queue(u32),
    /// Copies in this direction.
    Copies(Direction),
}

/// The activity of one row.
#[derive(Clone, Debug, Default)]
pub(super) struct Lane {
    /// Busy time in each step, ns. Overlapping work counts more than once.
    pub(super) busy: Vec<u64>,
    /// Sum of durations, ns.
    pub(super) total: u64,
    /// Number of spans.
    pub(super) count: u64,
}

/// A span that is shown. Ordered by duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Span {
    pub(super) duration: u64,
    pub(super) begin: u64,
    pub(super) lane: Place,
    /// Index into [`Overview::names`].
    pub(super) name: u32,
    /// Whether its times are estimates, or it had not ended.
    pub(super) doubtful: bool,
}

/// Collects the overview.
#[derive(Debug)]
pub(super) struct Overview {
    /// When the recording began, ns `CLOCK_BOOTTIME`.
    pub(super) begin: u64,
    /// Length of a step, ns; grows as needed.
    pub(super) step: u64,
    pub(super) lanes: BTreeMap<Place, Lane>,
    spans: BinaryHeap<Reverse<Span>>,
    /// Number of spans that were too short to be kept.
    pub(super) left_out: u64,
    /// Number of kernels and of copies: those without times, which are not drawn, and all.
    kernels: (u64, u64),
    copies: (u64, u64),
    names: HashMap<String, u32>,
    functions: Functions,
    gpus: Gpus,
    /// Names of processes and of their threads.
    processes: HashMap<u32, String>,
    threads: HashMap<(u32, u32), String>,
}

impl Default for Overview {
    fn default() -> Self {
        Self {
            begin: 0,
            step: 1,
            lanes: BTreeMap::new(),
            spans: BinaryHeap::new(),
            left_out: 0,
            kernels: (0, 0),
            copies: (0, 0),
            names: HashMap::new(),
            functions: Functions::default(),
            gpus: Gpus::default(),
            processes: HashMap::new(),
            threads: HashMap::new(),
        }
    }
}

impl Overview {
    pub(super) fn event(&mut self, event: &Event) {
        self.gpus.learn(event);
        match event {
            Event::Recording(recording) => self.begin = recording.clocks.boottime,
            Event::Function(info) => self.functions.learn(info),
            Event::Process(info) => {
                self.processes.insert(info.pid, info.name.clone());
            }
            Event::Thread(info) => {
                self.threads.insert((info.pid, info.tid), info.name.clone());
            }
            // A call inside another one is part of that one's time.
            Event::Call(call) if call.depth == 0 => {
                let name = self.functions.name(call.function);
                let name = number(&mut self.names, name);
                let open = !matches!(call.how, CallEnd::Returned(_) | CallEnd::NotSeen);
                self.span(
                    Place::Thread(call.pid, call.tid),
                    name,
                    (call.begin, call.end),
                    open,
                );
            }
            Event::Dispatch(dispatch) if drawn(&dispatch.time, &mut self.kernels) => {
                let name = number(&mut self.names, &self.gpus.kernel_name(dispatch));
                let place = Place::Gpu(self.gpus.node_of(dispatch), Row::Queue(dispatch.queue));
                self.work(place, name, &dispatch.time);
            }
            Event::Copy(copy) if drawn(&copy.time, &mut self.copies) => {
                let name = number(&mut self.names, copy.direction.name());
                let place = Place::Gpu(self.gpu_of(copy), Row::Copies(copy.direction));
                self.work(place, name, &copy.time);
            }
            _ => {}
        }
    }

    /// The GPU that a copy goes to, otherwise the one that it comes from.
    fn gpu_of(&self, copy: &Copy) -> Option<u32> {
        let is_gpu = |node: &u32| {
            let agent = self.gpus.agent(*node);
            agent.is_none_or(|info| info.agent.kind == AgentKind::Gpu)
        };
        let gpu = copy.destination_node.filter(is_gpu);
        gpu.or(copy.source_node.filter(is_gpu)).or(copy_node(copy))
    }

    fn work(&mut self, place: Place, name: u32, time: &GpuTime) {
        self.span(
            place,
            name,
            (time.begin, time.end),
            time.quality != Quality::Exact,
        );
    }

    fn span(&mut self, place: Place, name: u32, (begin, end): (u64, u64), doubtful: bool) {
        let (begin, end) = (begin.max(self.begin), end.max(begin).max(self.begin));
        while (end - self.begin) / self.step >= STEPS as u64 {
            self.widen();
        }
        let lane = self.lanes.entry(place).or_insert_with(|| Lane {
            busy: vec![0; STEPS],
            ..Lane::default()
        });
        lane.count += 1;
        lane.total = lane.total.saturating_add(end - begin);
        let (from, to) = (begin - self.begin, end - self.begin);
        let (first, last) = ((from / self.step) as usize, (to / self.step) as usize);
        for (number, step) in lane.busy.iter_mut().enumerate().take(last + 1).skip(first) {
            let number = number as u64;
            let step_begin = number.saturating_mul(self.step);
            let step_end = step_begin.saturating_add(self.step);
            *step = step.saturating_add(to.min(step_end) - from.max(step_begin));
        }
        self.spans.push(Reverse(Span {
            duration: end - begin,
            begin,
            lane: place,
            name,
            doubtful,
        }));
        if self.spans.len() > SPANS {
            self.spans.pop();
            self.left_out += 1;
        }
    }

    /// Doubles the length of the steps.
    fn widen(&mut self) {
        self.step = self.step.saturating_mul(2);
        for lane in self.lanes.values_mut() {
            let mut busy: Vec<u64> = lane
                .busy
                .chunks(2)
                .map(|pair| {
                    pair.iter()
                        .fold(0, |sum: u64, step| sum.saturating_add(*step))
                })
                .collect();
            busy.resize(STEPS, 0);
            lane.busy = busy;
        }
    }

    /// Kinds of work of which some is not drawn, because its times are not known: its name, the
    /// number of such pieces, and of all.
    pub(super) fn not_drawn(&self) -> Vec<(&'static str, u64, u64)> {
        [("kernels", self.kernels), ("copies", self.copies)]
            .into_iter()
            .filter(|(_, (left_out, _))| *left_out > 0)
            .map(|(name, (left_out, all))| (name, left_out, all))
            .collect()
    }

    /// The spans that are shown, in order of begin.
    pub(super) fn spans(&self) -> Vec<Span> {
        let mut spans: Vec<Span> = self.spans.iter().map(|Reverse(span)| *span).collect();
        spans.sort_by_key(|span| (span.begin, Reverse(span.duration)));
        spans
    }

    /// Names by number.
    pub(super) fn names(&self) -> Vec<&str> {
        let mut names: Vec<(u32, &str)> = self
            .names
            .iter()
            .map(|(name, number)| (*number, name.as_str()))
            .collect();
        names.sort_unstable();
        names.into_iter().map(|(_, name)| name).collect()
    }

    /// The title of a row, and the heading under which it is shown.
    pub(super) fn title(&self, place: Place) -> (String, String) {
        match place {
            Place::Gpu(node, row) => {
                let title = match row {
                    Row::Queue(queue) => {
                        let pid = self.gpus.queue(queue).map(|queue| queue.pid);
                        let of = pid.map_or_else(String::new, |pid| format!(" of process {pid}"));
                        format!("queue {}{of}", queue_id(queue))
                    }
                    Row::Copies(Direction::HostToDevice) => "copies to it".to_owned(),
                    Row::Copies(Direction::DeviceToHost) => "copies from it".to_owned(),
                    Row::Copies(Direction::DeviceToDevice) => "copies between devices".to_owned(),
                    Row::Copies(Direction::HostToHost) => "copies on the host".to_owned(),
                    Row::Copies(Direction::Unknown) => "copies".to_owned(),
                };
                (self.gpus.agent_title(node), title)
            }
            Place::Thread(pid, tid) => {
                let process = self.processes.get(&pid).map_or("process", String::as_str);
                let thread = self
                    .threads
                    .get(&(pid, tid))
                    .map_or("thread", String::as_str);
                (format!("{process} {pid}"), format!("{thread} {tid}"))
            }
        }
    }
}

/// Whether work is drawn; counts it in `counts`: what is not, and all.
fn drawn(time: &GpuTime, counts: &mut (u64, u64)) -> bool {
    let is_drawn = time.is_drawn();
    counts.0 += u64::from(!is_drawn);
    counts.1 += 1;
    is_drawn
}

fn number(names: &mut HashMap<String, u32>, name: &str) -> u32 {
    if let Some(number) = names.get(name) {
        return *number;
    }
    let number = names.len() as u32;
    names.insert(name.to_owned(), number);
    number
}

/// The kind of a row, which determines its colour.
pub(super) const fn kind(place: Place) -> &'static str {
    match place {
        Place::Gpu(_, Row::Queue(_)) => "kernel",
        Place::Gpu(_, Row::Copies(_)) => "copy",
        Place::Thread(..) => "call",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use gputrace_export::synthetic::events;

    #[test]
    fn rows_are_queues_copies_and_threads() {
        let mut overview = Overview::default();
        events().iter().for_each(|event| overview.event(event));
        let titles: Vec<_> = overview
            .lanes
            .keys()
            .map(|place| overview.title(*place))
            .collect();
        let kinds: Vec<_> = overview.lanes.keys().map(|place| kind(*place)).collect();
        assert_eq!(kinds, ["kernel", "copy", "copy", "kernel", "call"]);
        assert_eq!(titles[4].0, "train 100");
        let names = overview.names();
        let spans = overview.spans();
        assert!(spans.windows(2).all(|pair| pair[0].begin <= pair[1].begin));
        for span in spans {
            assert!(!names[span.name as usize].is_empty());
        }
    }

    proptest! {
        #[test]
        fn no_time_is_lost(spans in proptest::collection::vec((0..1_u64 << 40, 0..1_u64 << 35), 1..50)) {
            let mut overview = Overview::default();
            let place = Place::Thread(1, 1);
            let mut total = 0;
            for (begin, length) in spans {
                overview.span(place, 0, (begin, begin + length), false);
                total += length;
            }
            let lane = &overview.lanes[&place];
            prop_assert_eq!(lane.total, total);
            prop_assert_eq!(lane.busy.iter().sum::<u64>(), total);
            prop_assert_eq!(lane.busy.len(), STEPS);
        }

        #[test]
        fn absurd_times_do_no_harm(begin: u64, from: u64, to: u64) {
            let mut overview = Overview { begin, ..Overview::default() };
            overview.span(Place::Gpu(None, Row::Queue(0)), 0, (from, to), true);
            overview.span(Place::Gpu(None, Row::Queue(0)), 0, (0, u64::MAX), true);
        }
    }
}
