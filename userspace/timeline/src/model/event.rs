//! The event model that exporters see. It does not depend on how an event was recorded.

use std::sync::Arc;

use crate::model::{
    gpu::{
        Activity, AgentInfo, CodeObjectInfo, Copy, Dispatch, KernelClass, KernelInfo, QueueInfo,
    },
    observation::Observation,
    request::Request,
    stream::StreamInfo,
    values::{Pointee, PointeeData},
};
use gputrace_abi::{REGISTER_ARGS, STACK_ARGS, domain::Domain};
use gputrace_capture::{
    counter::Counter,
    identity::Identity,
    ledger::Ledger,
    meta::{ClockSnapshot, End, Function, Notice, Recording},
    stack::{CodeFile, Stack},
};

/// Something that happened, or that a reader must know before the events that follow.
///
/// Order: [`Event::Recording`] comes first. A function comes before its first call. Calls of one
/// thread come in groups ordered by begin; across groups, an enclosing call can come after the
/// calls inside it, because it ends later. Of two calls of one thread, neither of which encloses
/// the other, the earlier comes first. The last [`Event::Ledger`] and [`Event::End`] come last.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Where and how the recording was made.
    Recording(Box<Recording>),
    /// A function with a probe.
    Function(Box<FunctionInfo>),
    /// A process, when first known or changed.
    Process(Box<ProcessInfo>),
    /// A thread, when first known or renamed.
    Thread(ThreadInfo),
    /// An API call.
    Call(Call),
    /// An agent of the node.
    Agent(Box<AgentInfo>),
    /// A queue; comes before its first dispatch.
    Queue(QueueInfo),
    /// A code object; comes before its kernels.
    CodeObject(Box<CodeObjectInfo>),
    /// A stream; comes before the first call and the first work that name it.
    Stream(StreamInfo),
    /// A file whose code appears in stacks; comes before the first of these.
    CodeFile(Box<CodeFile>),
    /// A stack. In a whole capture it comes before the calls that have it; while the recording is
    /// running, maybe after them.
    Stack(Box<Stack>),
    /// A kernel; comes before its first dispatch.
    Kernel(Box<KernelInfo>),
    /// A kernel dispatch. It comes when nothing more can become known about it, in no particular
    /// order, possibly before the calls that submitted it, which end later.
    Dispatch(Box<Dispatch>),
    /// A copy; in order as for dispatches.
    Copy(Box<Copy>),
    /// Whether a GPU was at work at a moment; in order of time.
    Activity(Activity),
    /// Mean duration of a class of dispatches; comes after all dispatches. Absent if the times of
    /// all dispatches are exact.
    KernelClass(Box<KernelClass>),
    /// Something that the kernel did. Observations of one thread, process or GPU come in groups, as
    /// calls do.
    Observation(Box<Observation>),
    /// A reading of a counter.
    Counter(CounterSample),
    /// A process or thread began, ended or executed another program.
    Lifetime(Lifetime),
    /// The same moment on several clocks.
    Clocks(ClockSnapshot),
    /// A remark by the recorder.
    Notice(Notice),
    /// The final account, or the last one found in a truncated capture. Earlier accounts come only
    /// where they were asked for ([`Timeline::with_accounts`](crate::Timeline::with_accounts)).
    Ledger(Box<Ledger>),
    /// What queues still had to do at a moment; only where accounts were asked for.
    Pending(Box<Pending>),
    /// The recording's orderly end.
    End(End),
}

/// A reading of a counter at a time. The value holds until the counter's next reading.
#[derive(Clone, Debug, PartialEq)]
pub struct CounterSample {
    /// The counter. In merged captures, several counters may have the same number.
    pub counter: Arc<Counter>,
    /// ns, `CLOCK_BOOTTIME`.
    pub time: u64,
    /// In the counter's unit; a finite number.
    pub value: f64,
}

/// Dispatches that had been submitted, and whose end was not known at a moment. They may have been
/// waiting, running, or over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    /// The moment, ns `CLOCK_BOOTTIME`.
    pub time: u64,
    /// The queues with such dispatches.
    pub queues: Vec<PendingQueue>,
}

/// Such dispatches of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingQueue {
    /// Process id, initial pid namespace.
    pub pid: u32,
    /// [`crate::gpu::QueueInfo::number`].
    pub queue: u32,
    /// KFD topology node of the agent, if known.
    pub node_id: Option<u32>,
    /// Number of dispatches, at least 1.
    pub dispatches: u64,
    /// The first of them did not begin before this time, ns `CLOCK_BOOTTIME`.
    pub since: u64,
}

/// A function and the library that exports it.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionInfo {
    /// The function as recorded; its `id` is what [`Call::function`] refers to.
    pub function: Function,
    /// The domain; `None` if this version does not know it.
    pub domain: Option<Domain>,
    /// Path of the library.
    pub library: String,
    /// Its build id in hex, or empty.
    pub build_id: String,
    /// Set if this is not a function but the text of markers: their kind. Its calls are then the
    /// markers.
    pub range: Option<RangeKind>,
}

#[cfg(test)]
impl FunctionInfo {
    /// A function of which nothing else is known.
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

/// Kinds of markers that programs emit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RangeKind {
    /// A moment: begins and ends at the same time.
    Mark,
    /// Ranges of one thread that nest like calls.
    Nested,
    /// Ranges that may overlap in any way. The thread is the one in which they began.
    Free,
}

/// A process.
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
    /// Whose process it is, as far as it is known.
    pub identity: Identity,
}

/// A thread.
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
    /// It returned; the value is the content of the return register.
    Returned(u64),
    /// It was still open when its thread ended.
    ThreadExited,
    /// It was still open when its process executed another program.
    Executed,
    /// It was still open when the recording stopped.
    RecordingStopped,
    /// Nobody saw: only the entry of its function is probed ([`EndProbe::NotSeen`]). Its `end` is
    /// its `begin`.
    ///
    /// [`EndProbe::NotSeen`]: gputrace_capture::meta::EndProbe::NotSeen
    NotSeen,
}

impl CallEnd {
    /// Why the end of the call is not its return, as output formats spell it; `None` if it is.
    #[must_use]
    pub const fn reason(self) -> Option<&'static str> {
        match self {
            Self::Returned(_) => None,
            Self::ThreadExited => Some("thread_exited"),
            Self::Executed => Some("process_executed"),
            Self::RecordingStopped => Some("recording_stopped"),
            Self::NotSeen => Some("end_not_recorded"),
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
    /// ns, `CLOCK_BOOTTIME`, not before `begin`; for an unfinished call, the time up to which it
    /// was open.
    pub end: u64,
    /// Unique in the capture, never 0.
    pub correlation: u64,
    /// Correlation id of the enclosing call on the same thread, 0 if none.
    pub parent: u64,
    /// Number of calls around this one.
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
    /// Correlation id of the thread's innermost range (see [`RangeKind::Nested`]) that began
    /// directly inside [`Call::parent`] and is around this call; 0 if there is none. The call is
    /// directly enclosed by this range if there is one, else by the parent: see [`Call::around`].
    pub range: u64,
    /// For a request to the driver: the request with its arguments.
    pub request: Option<Box<Request>>,
    /// External correlation id that the program had set for the work of this thread.
    pub external: Option<u64>,
    /// Number of its stack ([`Event::Stack`]), if one was recorded; 0 if too many new ones came at
    /// once.
    pub stack_number: Option<u32>,
    /// [`StreamInfo::number`](super::stream::StreamInfo::number) of the first stream that it was
    /// given; 0 for a null stream or none. Known when the event is emitted.
    pub stream_id: u32,
    /// Data that its pointer arguments and its result pointed to, as far as it was read.
    pub pointees: Vec<Pointee>,
}

impl Call {
    /// Correlation id of the range or call that directly encloses this call on its thread; 0 if
    /// none.
    #[must_use]
    pub fn around(&self) -> u64 {
        if self.range == 0 {
            self.parent
        } else {
            self.range
        }
    }

    /// The argument word with this number, as [`gputrace_catalog::word`] counts them; `None` if it
    /// was not read.
    #[must_use]
    pub fn word(&self, word: u8) -> Option<u64> {
        match usize::from(word).checked_sub(REGISTER_ARGS) {
            None => self.args.get(usize::from(word)).copied(),
            Some(word) => self
                .stack
                .get(word)
                .copied()
                .filter(|_| self.stack_readable),
        }
    }

    /// The bytes that the call stored through the pointer in an argument word; `None` if they were
    /// not read.
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

    /// The four- or eight-byte number that the call stored through the pointer in an argument word;
    /// `None` if it was not read.
    #[must_use]
    pub fn stored(&self, word: u8) -> Option<u64> {
        let bytes = self.stored_bytes(word)?;
        match bytes.first_chunk() {
            Some(bytes) => Some(u64::from_le_bytes(*bytes)),
            None => Some(u32::from_le_bytes(*bytes.first_chunk()?).into()),
        }
    }
}

/// A beginning, end, exec or renaming of a process or thread.
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
    /// The process executed another program.
    Executed {
        /// The new `comm`.
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
