//! Converts the ids of one capture to ids that are unique across all.

use std::{collections::HashMap, sync::Arc};

use gputrace_capture::{counter::Counter, gpu::AgentKind, ledger::Ledger};
use gputrace_timeline::{
    event::{Call, Event, Lifetime, LifetimeChange},
    gpu::{Dispatch, GpuTime, Origin, Window},
    observation::Observation,
};

use super::{Alignment, HOST_IDS, HOST_NODES};

/// Next free numbers across all captures.
#[derive(Debug, Default)]
pub(super) struct Counters {
    functions: u32,
    queues: u32,
    kernels: u32,
    streams: u32,
    call_stacks: u32,
    code_files: u32,
    classes: u32,
    code_objects: u32,
    dispatches: u64,
    copies: u64,
    /// Numbers of agents by host and node: among all, and among those of their kind.
    agents: HashMap<(usize, u32), (u32, u32)>,
    agents_of_kind: [u32; 2],
}

impl Counters {
    fn agent(&mut self, host: usize, node: u32, kind: AgentKind) -> (u32, u32) {
        let absolute = self.agents.len() as u32;
        let [cpus, gpus] = &mut self.agents_of_kind;
        *self.agents.entry((host, node)).or_insert_with(|| {
            let of_kind = match kind {
                AgentKind::Cpu => cpus,
                AgentKind::Gpu => gpus,
            };
            *of_kind += 1;
            (absolute, *of_kind - 1)
        })
    }
}

/// The id mapping of one capture.
#[derive(Debug)]
pub(super) struct Names {
    /// Index of the capture, and number of captures.
    number: (u64, u64),
    host: usize,
    first_cpu: u32,
    /// Suffix of names of processes and agents.
    suffix: Option<String>,
    functions: HashMap<u32, u32>,
    queues: HashMap<u32, u32>,
    kernels: HashMap<u32, u32>,
    streams: HashMap<u32, u32>,
    call_stacks: HashMap<u32, u32>,
    code_files: HashMap<u32, u32>,
    classes: HashMap<u32, u32>,
    code_objects: HashMap<u32, u32>,
}

impl Names {
    pub(super) fn new(
        number: (u64, u64),
        host: usize,
        first_cpu: u32,
        hostname: Option<String>,
    ) -> Self {
        Self {
            number,
            host,
            first_cpu,
            suffix: hostname.map(|name| format!("@{name}")),
            functions: HashMap::new(),
            queues: HashMap::new(),
            kernels: HashMap::new(),
            streams: HashMap::new(),
            call_stacks: HashMap::new(),
            code_files: HashMap::new(),
            classes: HashMap::new(),
            code_objects: HashMap::new(),
        }
    }

    pub(super) fn first_cpu(&self) -> u32 {
        self.first_cpu
    }

    /// Converts the ids and times of `event`.
    pub(super) fn apply(
        &mut self,
        mut event: Event,
        clock: &Alignment,
        counters: &mut Counters,
    ) -> Event {
        match &mut event {
            Event::Recording(_) | Event::Clocks(_) => {}
            Event::Function(info) => {
                info.function.id = number(
                    &mut self.functions,
                    info.function.id,
                    &mut counters.functions,
                );
            }
            Event::Process(info) => {
                info.pid = self.task(info.pid);
                info.parent = self.task(info.parent);
                if info.start != 0 {
                    info.start = clock.apply(info.start);
                }
                self.name(&mut info.name);
            }
            Event::Thread(info) => {
                info.pid = self.task(info.pid);
                info.tid = self.task(info.tid);
            }
            Event::Call(call) => self.call(call, clock, counters),
            Event::Agent(info) => {
                let (absolute, of_kind) =
                    counters.agent(self.host, info.agent.node_id, info.agent.kind);
                info.absolute_index = absolute;
                info.type_index = of_kind;
                info.agent.node_id = self.node(info.agent.node_id);
                self.name(&mut info.agent.name);
            }
            Event::Queue(info) => {
                info.number = number(&mut self.queues, info.number, &mut counters.queues);
                info.pid = self.task(info.pid);
                info.node_id = info.node_id.map(|node| self.node(node));
            }
            Event::CodeObject(info) => {
                info.id = self.code_object(info.id, counters);
                info.code_object.pid = self.task(info.code_object.pid);
                info.code_object.time = clock.apply(info.code_object.time);
            }
            Event::Stream(info) => {
                info.number = self.stream(info.number, counters);
                info.pid = self.task(info.pid);
                info.key.thread = info.key.thread.map(|tid| self.task(tid));
                if info.since != 0 {
                    info.since = clock.apply(info.since);
                }
            }
            Event::CodeFile(file) => {
                file.number = number(&mut self.code_files, file.number, &mut counters.code_files);
            }
            Event::Stack(stack) => {
                stack.number = self.call_stack(stack.number, counters);
                stack.same_as = stack.same_as.map(|same| self.call_stack(same, counters));
                stack.pid = self.task(stack.pid);
                for file in stack
                    .frames
                    .iter_mut()
                    .filter_map(|frame| frame.file.as_mut())
                {
                    *file = number(&mut self.code_files, *file, &mut counters.code_files);
                }
            }
            Event::Kernel(info) => {
                info.id = self.kernel(info.id, counters);
                info.code_object = self.code_object(info.code_object, counters);
                info.pid = self.task(info.pid);
            }
            Event::Dispatch(dispatch) => self.dispatch(dispatch, clock, counters),
            Event::KernelClass(class) => {
                class.number = number(&mut self.classes, class.number, &mut counters.classes);
                class.pid = self.task(class.pid);
                class.node_id = class.node_id.map(|node| self.node(node));
                class.kernel = class.kernel.map(|kernel| self.kernel(kernel, counters));
            }
            Event::Copy(copy) => {
                counters.copies += 1;
                copy.id = counters.copies;
                copy.destination_node = copy.destination_node.map(|node| self.node(node));
                copy.source_node = copy.source_node.map(|node| self.node(node));
                self.origin(&mut copy.origin, clock, counters);
                times(&mut copy.time, clock);
            }
            Event::Activity(reading) => {
                reading.node_id = reading.node_id.map(|node| self.node(node));
                reading.time = clock.apply(reading.time);
            }
            Event::Pending(pending) => {
                pending.time = clock.apply(pending.time);
                for queue in &mut pending.queues {
                    queue.pid = self.task(queue.pid);
                    queue.node_id = queue.node_id.map(|node| self.node(node));
                    queue.since = clock.apply(queue.since);
                }
            }
            Event::Observation(one) => self.observation(one, clock),
            Event::Counter(sample) => {
                sample.time = clock.apply(sample.time);
                self.counter(&mut sample.counter);
            }
            Event::Lifetime(lifetime) => self.lifetime(lifetime, clock),
            Event::Notice(notice) => notice.time = clock.apply(notice.time),
            Event::Ledger(ledger) => {
                ledger.time = clock.apply(ledger.time);
                for row in &mut ledger.rows {
                    row.cpu = row.cpu.saturating_add(self.first_cpu);
                }
            }
            Event::End(end) => end.time = clock.apply(end.time),
        }
        event
    }

    fn call(&mut self, call: &mut Call, clock: &Alignment, counters: &mut Counters) {
        call.function = number(&mut self.functions, call.function, &mut counters.functions);
        call.pid = self.task(call.pid);
        call.tid = self.task(call.tid);
        call.begin = clock.apply(call.begin);
        call.end = clock.apply(call.end).max(call.begin);
        call.correlation = self.correlation(call.correlation);
        call.parent = self.correlation(call.parent);
        call.range = self.correlation(call.range);
        call.cpu = call.cpu.saturating_add(self.first_cpu);
        call.stream_id = self.stream(call.stream_id, counters);
        call.stack_number = call
            .stack_number
            .map(|stack| self.call_stack(stack, counters));
    }

    fn dispatch(&mut self, dispatch: &mut Dispatch, clock: &Alignment, counters: &mut Counters) {
        counters.dispatches += 1;
        dispatch.id = counters.dispatches;
        dispatch.queue = number(&mut self.queues, dispatch.queue, &mut counters.queues);
        dispatch.node_id = dispatch.node_id.map(|node| self.node(node));
        dispatch.kernel = dispatch.kernel.map(|kernel| self.kernel(kernel, counters));
        self.origin(&mut dispatch.origin, clock, counters);
        times(&mut dispatch.time, clock);
        if let Some(estimate) = &mut dispatch.time.estimate {
            estimate.class = number(&mut self.classes, estimate.class, &mut counters.classes);
        }
        for reading in &mut dispatch.readings {
            self.counter(&mut reading.counter);
        }
    }

    fn observation(&self, one: &mut Observation, clock: &Alignment) {
        one.begin = clock.apply(one.begin);
        one.end = clock.apply(one.end).max(one.begin);
        if one.whose.pid != 0 {
            one.whose.pid = self.task(one.whose.pid);
        }
        if one.whose.tid != 0 {
            one.whose.tid = self.task(one.whose.tid);
        }
    }

    fn lifetime(&self, lifetime: &mut Lifetime, clock: &Alignment) {
        lifetime.time = clock.apply(lifetime.time);
        lifetime.pid = self.task(lifetime.pid);
        lifetime.tid = self.task(lifetime.tid);
        match &mut lifetime.what {
            LifetimeChange::ProcessStarted { parent } => *parent = self.task(*parent),
            LifetimeChange::ThreadStarted { creator } => *creator = self.task(*creator),
            LifetimeChange::Executed { .. }
            | LifetimeChange::Renamed { .. }
            | LifetimeChange::Exited => {}
        }
    }

    /// Converts a process or thread id; 0 stays 0.
    fn task(&self, id: u32) -> u32 {
        if id == 0 {
            return 0;
        }
        let hosts = u32::try_from(self.host).unwrap_or(u32::MAX);
        id.saturating_add(hosts.saturating_mul(HOST_IDS))
    }

    fn counter(&self, counter: &mut Arc<Counter>) {
        let counter = Arc::make_mut(counter);
        counter.node_id = counter.node_id.map(|node| self.node(node));
        if counter.pid != 0 {
            counter.pid = self.task(counter.pid);
        }
    }

    fn node(&self, node: u32) -> u32 {
        let hosts = u32::try_from(self.host).unwrap_or(u32::MAX);
        node.saturating_add(hosts.saturating_mul(HOST_NODES))
    }

    /// Interleaves the correlation ids of captures; 0 stays 0.
    fn correlation(&self, id: u64) -> u64 {
        let (number, of) = self.number;
        if id == 0 {
            return 0;
        }
        id.wrapping_mul(of).wrapping_add(number)
    }

    fn name(&self, name: &mut String) {
        if let Some(suffix) = &self.suffix {
            name.push_str(suffix);
        }
    }

    /// Kernels are numbered from 1.
    fn kernel(&mut self, id: u32, counters: &mut Counters) -> u32 {
        number(&mut self.kernels, id, &mut counters.kernels).saturating_add(1)
    }

    /// Code objects are numbered from 1.
    fn code_object(&mut self, id: u32, counters: &mut Counters) -> u32 {
        number(&mut self.code_objects, id, &mut counters.code_objects).saturating_add(1)
    }

    fn origin(&mut self, origin: &mut Origin, clock: &Alignment, counters: &mut Counters) {
        origin.pid = self.task(origin.pid);
        origin.tid = self.task(origin.tid);
        if origin.time != 0 {
            origin.time = clock.apply(origin.time);
        }
        origin.innermost = self.correlation(origin.innermost);
        origin.outermost = self.correlation(origin.outermost);
        origin.caller = self.correlation(origin.caller);
        origin.stream_id = self.stream(origin.stream_id, counters);
        origin.stack_number = origin
            .stack_number
            .map(|stack| self.call_stack(stack, counters));
    }

    /// Stacks are numbered from 1; 0 is none.
    fn call_stack(&mut self, id: u32, counters: &mut Counters) -> u32 {
        match id {
            0 => 0,
            id => 1 + number(&mut self.call_stacks, id, &mut counters.call_stacks),
        }
    }

    /// Streams are numbered from 1.
    fn stream(&mut self, id: u32, counters: &mut Counters) -> u32 {
        match id {
            0 => 0,
            id => 1 + number(&mut self.streams, id, &mut counters.streams),
        }
    }
}

/// The number that replaces `id`, assigned on first use.
fn number(known: &mut HashMap<u32, u32>, id: u32, next: &mut u32) -> u32 {
    *known.entry(id).or_insert_with(|| {
        let number = *next;
        *next += 1;
        number
    })
}

fn times(time: &mut GpuTime, clock: &Alignment) {
    let window = |window: Window| Window {
        earliest: clock.apply(window.earliest),
        latest: window.latest.map(|latest| clock.apply(latest)),
    };
    time.begin = clock.apply(time.begin);
    time.end = clock.apply(time.end).max(time.begin);
    time.begin_window = window(time.begin_window);
    time.end_window = window(time.end_window);
}

/// Adds the account of another capture.
pub(super) fn add(sum: &mut Ledger, other: &Ledger) {
    sum.time = sum.time.max(other.time);
    sum.complete &= other.complete;
    for row in &other.rows {
        match sum
            .rows
            .iter_mut()
            .find(|known| (known.domain, known.cpu) == (row.domain, row.cpu))
        {
            Some(known) => known.add(row),
            None => sum.rows.push(row.clone()),
        }
    }
    for (count, more) in [
        (&mut sum.unmatched_returns, other.unmatched_returns),
        (&mut sum.unreadable_args, other.unreadable_args),
        (&mut sum.task_events, other.task_events),
        (&mut sum.task_events_lost, other.task_events_lost),
        (&mut sum.untraced_processes, other.untraced_processes),
        (&mut sum.late_processes, other.late_processes),
    ] {
        *count = count.saturating_add(more);
    }
    match (&mut sum.looks, &other.looks) {
        (Some(looks), Some(more)) => looks.add(more),
        (looks, more) => *looks = looks.or(*more),
    }
}
