//! The AQL packet processor: one thread per queue, with many packets in flight.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::bus::BusResult;
use crate::clock::boottime_ns;
use crate::fault::Fault;
use crate::gpu::{Agent, Control, QueueSpec, Shared};
use crate::layout::{queue as at, signal as signal_at};
use crate::packet::{INVALID, Kernel, PACKET_BYTES, Packet, RawPacket};
use crate::read_index::ReadIndex;
use crate::signal;
use crate::thread::Patience;
use crate::truth::{Dispatch, Other, Place, Record, Scratch, Stamp};

/// A queue's packet processor.
pub(crate) struct Aql {
    shared: Arc<Shared>,
    control: Arc<Control>,
    agent: u32,
    queue: u32,
    /// Address of `amd_queue_t`.
    address: u64,
    ring: u64,
    /// Number of packets in the ring minus one.
    mask: u64,
    doorbell: u64,
    /// Index of the next packet to take.
    next: u64,
    /// One past the highest packet announced by the doorbell.
    announced: u64,
    /// Time in ns since which a complete but unannounced packet has been at the head.
    unannounced_since: Option<u64>,
    head: Option<Head>,
    running: Vec<Running>,
    read_index: ReadIndex,
}

/// The packet at the head of the queue, which may have to wait.
#[derive(Clone, Copy)]
struct Head {
    raw: RawPacket,
    packet: Packet,
    since: Stamp,
}

/// A launched kernel.
struct Running {
    dispatch: Dispatch,
    /// When it completes (ns), which is its end or later; `None` for never.
    completes_ns: Option<u64>,
    scratch_once: bool,
    /// Address of the arguments.
    kernarg: u64,
    /// Address at which it stores the clock at its begin and end; 0 for nowhere.
    clock: u64,
}

/// The result of a look at the queue.
enum Step {
    /// Something was done: look again immediately.
    Progress,
    /// Nothing to do before this time (ns), or before something new arrives.
    Idle(Option<u64>),
    /// The queue has stopped for good.
    Halt,
}

impl Aql {
    pub(crate) fn new(
        shared: Arc<Shared>,
        control: Arc<Control>,
        spec: &QueueSpec,
        queue: u32,
    ) -> BusResult<Self> {
        let address = spec.read_pointer.wrapping_sub(at::READ_DISPATCH_ID);
        let next = shared.bus.load_u64("read index", spec.read_pointer)?;
        let read_index = ReadIndex::new(&shared.config.queue, spec.read_pointer, next);
        Ok(Self {
            agent: spec.agent,
            queue,
            address,
            ring: spec.ring,
            mask: spec.ring_bytes / PACKET_BYTES - 1,
            doorbell: spec.doorbell,
            next,
            announced: next,
            unannounced_since: None,
            head: None,
            running: Vec::new(),
            read_index,
            shared,
            control,
        })
    }

    /// Processes packets until stopped.
    pub(crate) fn run(mut self) {
        let mut patience = Patience::new(&self.shared.config.queue);
        let shared = Arc::clone(&self.shared);
        // `SoftGpu::create_queue` has checked that the agent exists.
        let Some(agent) = shared.agent(self.agent) else {
            return;
        };
        let mut halted = false;
        while !self.control.stopped() {
            halted |= agent.reset.load(Ordering::Acquire);
            if halted || self.control.paused.load(Ordering::Acquire) {
                patience.wait(None);
                continue;
            }
            match self.step(agent) {
                Ok(Step::Progress) => patience.reset(),
                Ok(Step::Idle(until)) => patience.wait(until),
                Ok(Step::Halt) => halted = true,
                Err(bad) => {
                    halted = true;
                    shared.unknown("address in an AQL queue", &bad.to_string());
                }
            }
        }
        self.end(agent);
    }

    fn step(&mut self, agent: &Agent) -> BusResult<Step> {
        let now = agent.now();
        let completed = self.complete_due(agent, now.ns)?;
        let launched = self.advance(agent, now)?;
        let drained = matches!(launched, Step::Idle(_)) && self.head.is_none();
        let report = self.read_index.report(
            &self.shared.bus,
            (self.next, self.announced),
            now.ns,
            drained,
        )?;
        // A waiting packet waits for a signal or for a free place. Both come from other queues
        // without notice.
        let look_again = self.head.is_some().then(|| now.ns + HEAD_LOOK_NS);
        Ok(match launched {
            Step::Idle(_) if completed => Step::Progress,
            Step::Idle(until) => Step::Idle(
                until
                    .into_iter()
                    .chain(self.first_completion())
                    .chain(report)
                    .chain(look_again)
                    .min(),
            ),
            other => other,
        })
    }

    fn first_completion(&self) -> Option<u64> {
        self.running
            .iter()
            .filter_map(|running| running.completes_ns)
            .min()
    }

    /// Completes everything that has ended by now, in the order of the ends.
    fn complete_due(&mut self, agent: &Agent, now_ns: u64) -> BusResult<bool> {
        let mut any = false;
        while let Some((position, _)) = self
            .running
            .iter()
            .enumerate()
            .filter_map(|(position, running)| Some((position, running.completes_ns?)))
            .filter(|(_, due)| *due <= now_ns)
            .min_by_key(|(_, due)| *due)
        {
            let running = self.running.remove(position);
            self.complete(agent, running)?;
            any = true;
        }
        Ok(any)
    }

    /// Ends a kernel: writes its ticks, then the log, then the signal.
    fn complete(&mut self, agent: &Agent, running: Running) -> BusResult<()> {
        let Running {
            mut dispatch,
            completes_ns,
            scratch_once,
            kernarg,
            clock,
        } = running;
        let queue = &self.shared.config.queue;
        if let Some(end) = &mut dispatch.end
            && queue.punctual
            && completes_ns == Some(end.ns)
        {
            let now = agent.now();
            if now.ns.saturating_sub(end.ns) > LATE_NS {
                *end = now;
                self.shared.works_until(self.agent, now.ns);
            }
        }
        self.shared.host.kernel_ended(&dispatch.kernel, kernarg);
        if let Some(end) = dispatch.end {
            if clock != 0 {
                let bus = &self.shared.bus;
                bus.store_u64("kernel's output", clock, agent.stamp_ticks(dispatch.begin))?;
                bus.store_u64("kernel's output", clock + 8, agent.stamp_ticks(end))?;
            }
            if dispatch.stamped && dispatch.fault == Some(Fault::SwappedTimestamps) {
                self.write_stamps(agent, dispatch.signal, end, dispatch.begin)?;
            } else if dispatch.stamped {
                self.write_stamps(agent, dispatch.signal, dispatch.begin, end)?;
            }
        }
        let completes = dispatch.signal != 0 && dispatch.fault != Some(Fault::LostCompletion);
        let (handle, index) = (dispatch.signal, dispatch.place.index);
        self.shared.record(&Record::Dispatch(dispatch));
        agent.end_kernel();
        if completes {
            signal::complete(&self.shared, handle)?;
        }
        if scratch_once {
            self.ask_runtime(SCRATCH_BACK, index)?;
        }
        Ok(())
    }

    fn write_stamps(&self, agent: &Agent, handle: u64, begin: Stamp, end: Stamp) -> BusResult<()> {
        let bus = &self.shared.bus;
        let (begin, end) = (agent.stamp_ticks(begin), agent.stamp_ticks(end));
        bus.store_u64("signal's start", handle + signal_at::START_TS, begin)?;
        bus.store_u64("signal's end", handle + signal_at::END_TS, end)
    }

    /// Takes the next packet, if there is one and it may start.
    fn advance(&mut self, agent: &Agent, now: Stamp) -> BusResult<Step> {
        let head = match self.head {
            Some(head) => head,
            None => match self.look(now)? {
                Ok(head) => head,
                Err(step) => return Ok(step),
            },
        };
        if head.raw.barrier_bit() && !self.running.is_empty() {
            return Ok(Step::Idle(None));
        }
        let done = match head.packet {
            Packet::Kernel(kernel) => return self.launch(agent, &head, &kernel),
            Packet::BarrierAnd(signals) => signals.iter().try_fold(true, |all, handle| {
                Ok(all && signal::value(&self.shared, *handle)? == 0)
            })?,
            Packet::BarrierOr(signals) => {
                let named = signals.iter().filter(|handle| **handle != 0);
                let mut none = true;
                let mut any = false;
                for handle in named {
                    none = false;
                    any |= signal::value(&self.shared, *handle)? == 0;
                }
                none || any
            }
            Packet::BarrierValue {
                signal,
                value,
                mask,
                condition,
            } => signal == 0 || condition.holds(signal::value(&self.shared, signal)? & mask, value),
            Packet::Pm4 | Packet::AgentDispatch => true,
        };
        if !done {
            return Ok(Step::Idle(None));
        }
        self.consume()?;
        let signal = head.raw.completion_signal();
        let stamped = signal != 0 && self.profiling()?;
        let end = agent.now();
        if stamped {
            self.write_stamps(agent, signal, head.since, end)?;
        }
        self.shared.record(&Record::Packet(Other {
            place: self.place(self.next - 1),
            hsa_queue: self.hsa_queue()?,
            packet: packet_name(&head.packet).into(),
            begin: head.since,
            end,
            signal,
            stamped,
        }));
        if signal != 0 {
            signal::complete(&self.shared, signal)?;
        }
        Ok(Step::Progress)
    }

    /// Reads the packet at the head once it is present, complete and announced.
    ///
    /// Doorbells are not monotonic. If two threads share a queue, the one with the lower index may
    /// ring later, and overwrite the higher value before it was seen. Therefore the highest value
    /// counts, and a complete packet that was not announced is taken after a while.
    fn look(&mut self, now: Stamp) -> BusResult<Result<Head, Step>> {
        let bus = &self.shared.bus;
        let rung = bus.load_u64("doorbell", self.doorbell)?.wrapping_add(1);
        self.announced = self.announced.max(rung);
        let idle = Ok(Err(Step::Idle(None)));
        if self.next >= bus.load_u64("write index", self.address + at::WRITE_DISPATCH_ID)? {
            return idle;
        }
        let raw = RawPacket::read(bus, self.slot(self.next))?;
        if raw.kind() == INVALID {
            return idle;
        }
        if self.next >= self.announced {
            let due = *self.unannounced_since.get_or_insert(now.ns)
                + self.shared.config.queue.missed_doorbell_ns;
            if now.ns < due {
                return Ok(Err(Step::Idle(Some(due))));
            }
        }
        self.unannounced_since = None;
        let Some(packet) = Packet::decode(&raw) else {
            self.shared
                .unknown(&format!("AQL packet, type {}", raw.kind()), &raw.hex());
            return Ok(Err(Step::Halt));
        };
        let head = Head {
            raw,
            packet,
            since: now,
        };
        self.head = Some(head);
        Ok(Ok(head))
    }

    /// Launches a kernel, if there is room for it.
    fn launch(&mut self, agent: &Agent, head: &Head, kernel: &Kernel) -> BusResult<Step> {
        let room = self.running.len() < self.shared.config.queue.concurrent_packets;
        if !room || signal::value(&self.shared, kernel.dependency)? != 0 || !agent.begin_kernel() {
            return Ok(Step::Idle(None));
        }
        if !self.get_scratch(kernel, self.next)? {
            agent.end_kernel();
            return Ok(Step::Halt);
        }
        self.consume()?;
        let index = self.next - 1;
        let place = self.place(index);
        let name = self
            .shared
            .host
            .kernel_name(kernel.kernel_object)
            .unwrap_or_else(|| Arc::from(""));
        let fault = self.shared.faults.of_dispatch(&name);
        let signal = head.raw.completion_signal();
        let items = kernel
            .grid
            .iter()
            .map(|items| u64::from(*items))
            .fold(1, u64::saturating_mul);
        let bus = &self.shared.bus;
        let argument = |at: u64| bus.load_u64("kernel's argument", kernel.kernarg.wrapping_add(at));
        let durations = &self.shared.durations;
        let duration = durations.duration_ns(&name, items, (self.queue, index), |at| {
            Ok(agent.ticks_last_ns(argument(at)?))
        })?;
        let clock = match durations
            .rule(&name, items)
            .and_then(|rule| rule.clock_argument)
        {
            Some(at) => argument(at)?,
            None => 0,
        };
        let begin = agent.now();
        let end = agent.stamp_at(begin.ns.saturating_add(duration));
        let mut dispatch = Dispatch {
            place,
            hsa_queue: self.hsa_queue()?,
            kernel_object: kernel.kernel_object,
            kernel: name,
            grid: kernel.grid,
            workgroup: kernel.workgroup,
            begin,
            end: Some(end),
            signal,
            stamped: signal != 0 && self.profiling()?,
            fault,
        };
        let completes_ns = self.apply(fault, &mut dispatch, end.ns);
        let until = dispatch.end.map_or(u64::MAX, |end| end.ns);
        self.shared.works_until(self.agent, until);
        let properties = self.properties()?;
        let scratch_once = kernel.private_segment > 0 && properties & at::USE_SCRATCH_ONCE != 0;
        let running = Running {
            dispatch,
            completes_ns,
            scratch_once,
            kernarg: kernel.kernarg,
            clock,
        };
        match fault {
            Some(Fault::QueueError { code }) => {
                self.running.push(running);
                let handle = self.inactive_signal()?;
                if handle != 0 {
                    signal::store(&self.shared, handle, code)?;
                }
                return Ok(Step::Halt);
            }
            Some(Fault::GpuReset) => {
                self.running.push(running);
                agent.reset.store(true, Ordering::Release);
                self.shared.host.gpu_reset(self.agent);
                return Ok(Step::Halt);
            }
            // An empty kernel does not need another look at the clock.
            _ if duration == 0 && completes_ns == Some(end.ns) => self.complete(agent, running)?,
            _ => self.running.push(running),
        }
        Ok(Step::Progress)
    }

    /// Lets a fault change a dispatch that would end at `end_ns`; returns when its completion is
    /// told, if it is.
    fn apply(&self, fault: Option<Fault>, dispatch: &mut Dispatch, end_ns: u64) -> Option<u64> {
        let mut completes_ns = Some(end_ns);
        match fault {
            None => {}
            Some(Fault::SwappedTimestamps | Fault::LostCompletion) => {}
            Some(Fault::NoTimestamps) => dispatch.stamped = false,
            Some(Fault::LateCompletion { delay_ns }) => {
                completes_ns = Some(end_ns.saturating_add(delay_ns));
            }
            Some(fault) => {
                dispatch.end = None;
                dispatch.stamped = false;
                completes_ns = None;
                self.shared.record(&Record::Fault {
                    place: dispatch.place,
                    fault,
                    ns: dispatch.begin.ns,
                });
            }
        }
        completes_ns
    }

    /// Asks the runtime for scratch when the kernel needs more than the queue has; false when it
    /// has none to give or the queue is being destroyed.
    fn get_scratch(&self, kernel: &Kernel, index: u64) -> BusResult<bool> {
        let (.., has) = self.scratch()?;
        if kernel.private_segment <= has {
            return Ok(true);
        }
        self.ask_runtime(SCRATCH_NEEDED, index)
    }

    /// Address, size in bytes, and bytes per lane of the queue's scratch memory.
    fn scratch(&self) -> BusResult<(u64, u64, u32)> {
        let bus = &self.shared.bus;
        Ok((
            bus.load_u64("scratch place", self.address + at::SCRATCH_LOCATION)?,
            bus.load_u64("scratch bytes", self.address + at::SCRATCH_BYTES)?,
            bus.load_u32(
                "scratch size",
                self.address + at::SCRATCH_WAVE64_LANE_BYTE_SIZE,
            )?,
        ))
    }

    /// Stores a request into the queue's inactive signal and waits until the runtime has stored 0.
    /// Returns `false` if it stored -1 or the queue is being destroyed.
    fn ask_runtime(&self, request: i64, index: u64) -> BusResult<bool> {
        let handle = self.inactive_signal()?;
        if handle == 0 {
            return Ok(true);
        }
        let begin = boottime_ns();
        let before = self.scratch()?;
        signal::store(&self.shared, handle, request)?;
        let mut patience = Patience::new(&self.shared.config.queue);
        while !self.control.stopped() {
            match signal::value(&self.shared, handle)? {
                0 => {
                    let after = self.scratch()?;
                    self.shared.record(&Record::Scratch(Scratch {
                        place: self.place(index),
                        hsa_queue: self.hsa_queue()?,
                        request,
                        begin,
                        end: boottime_ns(),
                        location: [before.0, after.0],
                        bytes: [before.1, after.1],
                        lane_bytes: [before.2, after.2],
                    }));
                    return Ok(true);
                }
                -1 => return Ok(false),
                _ => patience.wait(None),
            }
        }
        Ok(false)
    }

    /// Takes the packet at the head out of the ring. Only the header changes; the rest of the
    /// packet stays readable.
    fn consume(&mut self) -> BusResult<()> {
        self.shared
            .bus
            .store_u16("AQL packet", self.slot(self.next), INVALID)?;
        self.next += 1;
        self.head = None;
        Ok(())
    }

    const fn slot(&self, index: u64) -> u64 {
        self.ring + (index & self.mask) * PACKET_BYTES
    }

    fn place(&self, index: u64) -> Place {
        Place {
            pid: self.shared.pid,
            agent: self.agent,
            queue: self.queue,
            index,
        }
    }

    fn properties(&self) -> BusResult<u32> {
        self.shared
            .bus
            .load_u32("queue properties", self.address + at::PROPERTIES)
    }

    fn profiling(&self) -> BusResult<bool> {
        Ok(self.properties()? & at::ENABLE_PROFILING != 0)
    }

    fn hsa_queue(&self) -> BusResult<u64> {
        self.shared.bus.load_u64("queue id", self.address + at::ID)
    }

    fn inactive_signal(&self) -> BusResult<u64> {
        self.shared
            .bus
            .load_u64("inactive signal", self.address + at::INACTIVE_SIGNAL)
    }

    /// Logs what was left in the queue when it is destroyed.
    fn end(&mut self, agent: &Agent) {
        let written = self
            .shared
            .bus
            .load_u64("write index", self.address + at::WRITE_DISPATCH_ID);
        let running = std::mem::take(&mut self.running);
        self.shared.record(&Record::QueueEnd {
            pid: self.shared.pid,
            queue: self.queue,
            pending: written.unwrap_or(self.next).saturating_sub(self.next),
            running: running.len() as u64,
            ns: boottime_ns(),
        });
        for Running { mut dispatch, .. } in running {
            agent.end_kernel();
            dispatch.end = None;
            dispatch.stamped = false;
            self.shared.record(&Record::Dispatch(dispatch));
        }
    }
}

/// A kernel completed more than this (ns) after its nominal end took longer, because this thread
/// had no processor.
const LATE_NS: u64 = 5_000;
/// The longest time between two checks of the condition that the packet at the head waits for.
const HEAD_LOOK_NS: u64 = 200_000;
/// Value for the inactive signal: the next kernel needs more scratch memory.
const SCRATCH_NEEDED: i64 = 1;
/// Value for the inactive signal: the kernel that used scratch memory once has ended.
const SCRATCH_BACK: i64 = 512;

const fn packet_name(packet: &Packet) -> &'static str {
    match packet {
        Packet::Kernel(_) => "kernel_dispatch",
        Packet::BarrierAnd(_) => "barrier_and",
        Packet::BarrierOr(_) => "barrier_or",
        Packet::BarrierValue { .. } => "barrier_value",
        Packet::Pm4 => "pm4",
        Packet::AgentDispatch => "agent_dispatch",
    }
}
