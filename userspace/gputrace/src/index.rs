//! What events refer to.

use std::{
    borrow::Cow,
    collections::HashMap,
    time::{Duration, SystemTime},
};

use gputrace_capture::{
    ledger::Ledger,
    meta::{ClockSnapshot, Recording},
};
use gputrace_export::{functions::Functions, gpu::Gpus};
use gputrace_timeline::{
    event::{Call, Event, FunctionInfo, ProcessInfo},
    gpu::{AgentInfo, Dispatch, KernelInfo, QueueInfo},
    stream::StreamInfo,
};

/// What events refer to by numbers: functions, kernels, queues, agents, processes and streams.
///
/// Give it every event in order ([`Index::learn`]); whatever an event refers to is then known. Memory
/// grows with the number of these things, not with the number of events.
#[derive(Clone, Debug, Default)]
pub struct Index {
    functions: Functions,
    gpus: Gpus,
    processes: HashMap<u32, ProcessInfo>,
    streams: HashMap<u32, StreamInfo>,
    clocks: Option<ClockSnapshot>,
    recording: Option<Box<Recording>>,
    ledger: Option<Box<Ledger>>,
}

impl Index {
    /// Remembers what `event` says about something that later events refer to.
    pub fn learn(&mut self, event: &Event) {
        match event {
            Event::Recording(recording) => {
                self.clocks = Some(recording.clocks);
                self.recording = Some(recording.clone());
            }
            Event::Function(info) => self.functions.learn(info),
            Event::Process(info) => {
                self.processes.insert(info.pid, (**info).clone());
            }
            Event::Stream(info) => {
                self.streams.insert(info.number, *info);
            }
            Event::Clocks(clocks) => self.clocks = Some(*clocks),
            Event::Ledger(ledger) => self.ledger = Some(ledger.clone()),
            Event::Agent(_) | Event::Queue(_) | Event::Kernel(_) => self.gpus.learn(event),
            _ => {}
        }
    }

    /// The function that a call refers to by [`Call::function`].
    #[must_use]
    pub fn function(&self, id: u32) -> Option<&FunctionInfo> {
        self.functions.get(id)
    }

    /// The name of the function of a call, or `(unknown function)`. For a marker, its text.
    #[must_use]
    pub fn call_name(&self, call: &Call) -> &str {
        self.functions.name(call.function)
    }

    /// The kernel of a dispatch, if it is known.
    #[must_use]
    pub fn kernel(&self, dispatch: &Dispatch) -> Option<&KernelInfo> {
        self.gpus.kernel(dispatch)
    }

    /// The name of a dispatch's kernel as outputs show it; a description if it is not known.
    #[must_use]
    pub fn kernel_name(&self, dispatch: &Dispatch) -> Cow<'_, str> {
        self.gpus.kernel_name(dispatch)
    }

    /// The queue with this [`QueueInfo::number`].
    #[must_use]
    pub fn queue(&self, number: u32) -> Option<&QueueInfo> {
        self.gpus.queue(number)
    }

    /// The agents of the node, in order of their nodes in KFD's topology.
    #[must_use]
    pub fn agents(&self) -> &[AgentInfo] {
        self.gpus.agents()
    }

    /// The agent with this node number in KFD's topology.
    #[must_use]
    pub fn agent(&self, node_id: u32) -> Option<&AgentInfo> {
        self.gpus.agent(node_id)
    }

    /// What is known of a process, by its id in the initial pid namespace.
    #[must_use]
    pub fn process(&self, pid: u32) -> Option<&ProcessInfo> {
        self.processes.get(&pid)
    }

    /// The stream with this [`StreamInfo::number`].
    #[must_use]
    pub fn stream(&self, number: u32) -> Option<&StreamInfo> {
        self.streams.get(&number)
    }

    /// Where and how the recording was made; `None` before the first event.
    #[must_use]
    pub fn recording(&self) -> Option<&Recording> {
        self.recording.as_deref()
    }

    /// The latest account of what was seen, recorded and lost; that of the whole recording when the
    /// last event has come.
    #[must_use]
    pub fn ledger(&self) -> Option<&Ledger> {
        self.ledger.as_deref()
    }

    /// The time of day of an event's time, ns `CLOCK_BOOTTIME`, by the latest reading of both
    /// clocks. `None` before the first event.
    #[must_use]
    pub fn time_of_day(&self, boottime: u64) -> Option<SystemTime> {
        let clocks = self.clocks?;
        let read = SystemTime::UNIX_EPOCH.checked_add(Duration::from_nanos(clocks.realtime))?;
        match boottime.checked_sub(clocks.boottime) {
            Some(later) => read.checked_add(Duration::from_nanos(later)),
            None => read.checked_sub(Duration::from_nanos(clocks.boottime - boottime)),
        }
    }

    /// The time of `CLOCK_MONOTONIC`, ns, at an event's time, ns `CLOCK_BOOTTIME`, by the latest
    /// reading of both clocks. They differ by the time that the machine has slept. `None` before the
    /// first event, or for a time before the machine's start.
    #[must_use]
    pub fn monotonic(&self, boottime: u64) -> Option<u64> {
        let clocks = self.clocks?;
        let apart = clocks.boottime.checked_sub(clocks.monotonic)?;
        boottime.checked_sub(apart)
    }
}
