//! The event model: what exporters see. Nothing here depends on how an event was recorded.

use std::sync::Arc;

use crate::model::{
    gpu::{AgentInfo, CodeObjectInfo, Copy, Dispatch, KernelClass, KernelInfo, QueueInfo},
    observation::Observation,
    request::Request,
    values::{Pointee, PointeeData},
};
use gputrace_abi::{REGISTER_ARGS, STACK_ARGS, domain::Domain};
use gputrace_capture::{
    counter::Counter,
    ledger::Ledger,
    meta::{ClockSnapshot, End, Function, Notice, Recording},
};

/// One thing that happened, or that a reader must know from here on.
///
/// Order: [`Event::Recording`] comes first. A function comes before the first call of it. Calls of
/// one thread come in groups ordered by begin; across groups an enclosing call can come after the
/// calls inside it, because it ends later. Of two calls of one thread of which neither encloses the
/// other, the earlier comes first. [`Event::Ledger`] and [`Event::End`] come last.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Where and how the recording was made.
    Recording(Box<Recording>),
    /// A function with a probe.
    Function(Box<FunctionInfo>),
    /// A process is known, or something about it changed.
    Process(Box<ProcessInfo>),
    /// A thread is known, or its name changed.
    Thread(ThreadInfo),
    /// An API call.
    Call(Call),
    /// An agent of the node.
    Agent(Box<AgentInfo>),
    /// A queue; comes before the first dispatch into it.
    Queue(QueueInfo),
    /// A code object; comes before its kernels.
    CodeObject(Box<CodeObjectInfo>),
    /// A kernel; comes before the first dispatch of it.
    Kernel(Box<KernelInfo>),
    /// A kernel dispatch. Comes when as much is known of it as ever will be, in no particular order, maybe
    /// before the calls that submitted it, which end later.
    Dispatch(Box<Dispatch>),
    /// A copy; as for dispatches.
    Copy(Box<Copy>),
    /// What is known at the end of how long dispatches of a class take; comes after all dispatches. There are none if the
    /// times of all dispatches are exact.
    KernelClass(Box<KernelClass>),
    /// Something that the kernel did. Those of one thread, process or GPU come in groups, as calls do.
    Observation(Box<Observation>),
    /// A number that was read.
    Counter(CounterSample),
    /// A process or thread began, ended or became another program.
    Lifetime(Lifetime),
    /// The same moment on several clocks.
    Clocks(ClockSnapshot),
    /// A remark of the recorder.
    Notice(Notice),
    /// The final account, or the last one found in a truncated capture.
    Ledger(Box<Ledger>),
    /// The recording's orderly end.
    End(End),
}

/// A value that was read at a time. It holds until the next one of the same counter.
#[derive(Clone, Debug, PartialEq)]
pub struct CounterSample {
    /// What was read. Of merged captures, several counters may have the same number.
    pub counter: Arc<Counter>,
    /// ns, `CLOCK_BOOTTIME`.
    pub time: u64,
    /// In the counter's unit; a finite number.
    pub value: f64,
}

/// A function and the library that exports it.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionInfo {
    /// The function as recorded; its `id` is what [`Call::function`] refers to.
    pub function: Function,
    /// The domain; `None` for one that this version does not know.
    pub domain: Option<Domain>,
    /// Path of the library.
    pub library: String,
    /// Its build id in hex, or empty.
    pub build_id: String,
    /// If this is no function but the text of markers: of which kind. Its calls are then the markers.
    pub range: Option<RangeKind>,
}

#[cfg(test)]
impl FunctionInfo {
    /// A function of which only this is known.
    pub(crate) fn named(id: u32, name: &str, domain: Option<Domain>) -> Self {
        Self {
            function: Function {
                id,
                name: name.to_owned(),
                domain: domain.map_or(0, Domain::id),
                ..Function::default()
            },
            domain,
            library: String::new(),
            build_id: String::new(),
            range: None,
        }
    }
}

/// What programs put into their own flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RangeKind {
    /// A moment: begins and ends at once.
    Mark,
    /// Ranges of one thread, inside each other like calls.
    Nested,
    /// Ranges that may overlap in any way. The thread is that in which they began.
    Free,
}

/// What is known of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessInfo {
    /// Process id, initial pid namespace.
    pub pid: u32,
    /// Parent's process id, 0 if unknown.
    pub parent: u32,
    /// `comm` of its main thread.
    pub name: String,
    /// Path of its executable, or empty.
    pub executable: String,
    /// Arguments.
    pub command: Vec<String>,
    /// When it started, ns `CLOCK_BOOTTIME`; 0 if unknown.
    pub start: u64,
}

/// What is known of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadInfo {
    /// Its process.
    pub pid: u32,
    /// Thread id, initial pid namespace.
    pub tid: u32,
    /// Its `comm`.
    pub name: String,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallEnd {
    /// It returned; the content of the return register.
    Returned(u64),
    /// Still open when its thread ended.
    ThreadExited,
    /// Still open when its process executed another program.
    Executed,
    /// Still open when the recording stopped.
    RecordingStopped,
}

impl CallEnd {
    /// Why it did not return, as output formats spell it; `None` if it did.
    #[must_use]
    pub const fn reason(self) -> Option<&'static str> {
        match self {
            Self::Returned(_) => None,
            Self::ThreadExited => Some("thread_exited"),
            Self::Executed => Some("process_executed"),
            Self::RecordingStopped => Some("recording_stopped"),
        }
    }
}

/// An API call on one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Refers to [`FunctionInfo::function`]'s `id`.
    pub function: u32,
    /// The domain's number.
    pub domain: u8,
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// ns, `CLOCK_BOOTTIME`.
    pub begin: u64,
    /// ns, `CLOCK_BOOTTIME`, not before `begin`; for an unfinished call the moment up to which it was open.
    pub end: u64,
    /// Unique in the capture, never 0.
    pub correlation: u64,
    /// The enclosing call on the same thread, 0 if none.
    pub parent: u64,
    /// Calls around this one.
    pub depth: u16,
    /// CPU on which it began.
    pub cpu: u32,
    /// How it ended.
    pub how: CallEnd,
    /// False if stack arguments exist but could not be read.
    pub stack_readable: bool,
    /// Argument registers at entry.
    pub args: [u64; REGISTER_ARGS],
    /// Stack argument words; 0 where there is none.
    pub stack: [u64; STACK_ARGS],
    /// The innermost range (see [`RangeKind::Nested`]) of the thread that began directly inside [`Call::parent`] and is
    /// around this call, by its correlation id; 0 if there is none. So this, or else the parent, is what stands directly
    /// around the call, as [`Call::around`] has it.
    pub range: u64,
    /// The request, if this is one to the driver; arguments are then here.
    pub request: Option<Box<Request>>,
    /// External correlation id, which the program had given to a profiler for what this thread does.
    pub external: Option<u64>,
    /// What pointers among its arguments, and its result, pointed to, as far as that was read.
    pub pointees: Vec<Pointee>,
}

impl Call {
    /// What stands directly around the call on its thread, be it a range or a call: its correlation id, 0 if nothing does.
    #[must_use]
    pub fn around(&self) -> u64 {
        if self.range == 0 {
            self.parent
        } else {
            self.range
        }
    }

    /// The bytes that the call has stored where an argument word points to; `None` if they were not read.
    #[must_use]
    pub fn stored_bytes(&self, word: u8) -> Option<&[u8]> {
        let found = self
            .pointees
            .iter()
            .find(|pointee| pointee.word == word && pointee.at_return)?;
        match &found.data {
            PointeeData::Bytes(bytes) => Some(bytes),
            PointeeData::Text { .. } | PointeeData::Annotation(_) | PointeeData::Unreadable => None,
        }
    }

    /// The number of four or eight bytes that the call has stored where an argument word points to; `None` if it was not read.
    #[must_use]
    pub fn stored(&self, word: u8) -> Option<u64> {
        let bytes = self.stored_bytes(word)?;
        match bytes.first_chunk() {
            Some(bytes) => Some(u64::from_le_bytes(*bytes)),
            None => Some(u32::from_le_bytes(*bytes.first_chunk()?).into()),
        }
    }
}

/// The beginning or end of a process or thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// ns, `CLOCK_BOOTTIME`.
    pub time: u64,
    /// Process id.
    pub pid: u32,
    /// Thread id; equal to `pid` for the main thread.
    pub tid: u32,
    /// What happened.
    pub what: LifetimeChange,
}

/// What happened to a process or thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LifetimeChange {
    /// A process was created by process `parent`.
    ProcessStarted {
        /// The creator's process id.
        parent: u32,
    },
    /// A thread was created.
    ThreadStarted {
        /// The creator's thread id.
        creator: u32,
    },
    /// The process executed another program; its `comm` from then on.
    Executed {
        /// New name.
        name: String,
    },
    /// The task ended.
    Exited,
    /// The task has a new name.
    Renamed {
        /// New name.
        name: String,
    },
}
