//! The contents of a block: a run of records or one metadata document.

use crate::{
    counter::{Counter, CounterValues},
    format::kind,
    gpu::{Agent, AgentHandle, CodeObject, GpuClock, KfdEvent, Pasid, Queue},
    ledger::Ledger,
    meta::{Annotation, ClockSnapshot, End, Epoch, Library, Notice, Pause, Process, Recording},
    stack::{CodeFile, Stack},
    tracepoint::TraceFormat,
};

macro_rules! meta_kinds {
    ($($(#[$doc:meta])* $variant:ident($type:ty) from $document:ty = $kind:ident $name:literal;)*) => {
        /// A metadata document.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Meta { $($(#[$doc])* $variant($type),)* }

        impl Meta {
            /// Names of all kinds of metadata.
            pub(crate) const NAMES: &[&str] = &[$($name,)*];

            /// Name of the document's kind.
            pub(crate) fn name(&self) -> &'static str {
                match self { $(Self::$variant(_) => $name,)* }
            }

            pub(crate) fn kind(&self) -> u16 {
                match self { $(Self::$variant(_) => kind::$kind,)* }
            }

            pub(crate) fn encode(&self, into: &mut Vec<u8>) -> serde_json::Result<()> {
                match self { $(Self::$variant(document) => serde_json::to_writer(into, document),)* }
            }

            /// Decodes a document. `Ok(None)` for a kind that is not metadata, or not known.
            pub(crate) fn decode(kind: u16, payload: &[u8]) -> serde_json::Result<Option<Self>> {
                match kind {
                    $(kind::$kind => serde_json::from_slice(payload).map(|document| Some(Self::$variant(document))),)*
                    _ => Ok(None),
                }
            }
        }

        $(impl From<$document> for Meta {
            fn from(document: $document) -> Self {
                Self::$variant(document.into())
            }
        })*
    };
}

meta_kinds! {
    /// End of one drain round: every record that was in any ring when the round began comes before
    /// it.
    Epoch(Epoch) from Epoch = EPOCH "epoch";
    /// Where, when and how; the first block of each capture.
    Recording(Box<Recording>) from Recording = RECORDING "recording";
    /// A library and its probed functions; comes before the first record of any of them.
    Library(Box<Library>) from Library = LIBRARY "library";
    /// Facts about a process.
    Process(Box<Process>) from Process = PROCESS "process";
    /// Readings of several clocks at the same moment.
    Clocks(ClockSnapshot) from ClockSnapshot = CLOCKS "clocks";
    /// A remark for the reader.
    Notice(Notice) from Notice = NOTICE "notice";
    /// The state of the accounts.
    Ledger(Box<Ledger>) from Ledger = LEDGER "ledger";
    /// Last block of a recording that was stopped properly.
    End(End) from End = END "end";
    /// A CPU or GPU of the node.
    Agent(Box<Agent>) from Agent = AGENT "agent";
    /// Readings of a GPU's clock and the host's at the same moment.
    GpuClock(GpuClock) from GpuClock = GPU_CLOCK "gpu_clock";
    /// A queue of a process.
    Queue(Queue) from Queue = QUEUE "queue";
    /// The agent that an `hsa_agent_t` of a process stands for.
    AgentHandle(AgentHandle) from AgentHandle = AGENT_HANDLE "agent_handle";
    /// A code object that a process has loaded.
    CodeObject(Box<CodeObject>) from CodeObject = CODE_OBJECT "code_object";
    /// Layout of a tracepoint's records.
    TraceFormat(Box<TraceFormat>) from TraceFormat = TRACE_FORMAT "trace_format";
    /// An SMI event of the driver.
    KfdEvent(Box<KfdEvent>) from KfdEvent = KFD_EVENT "kfd_event";
    /// A counter: a number that is read periodically.
    Counter(Box<Counter>) from Counter = COUNTER "counter";
    /// Values of counters at a time.
    CounterValues(Box<CounterValues>) from CounterValues = COUNTER_VALUES "counter_values";
    /// The process to which a PASID belongs.
    Pasid(Pasid) from Pasid = PASID "pasid";
    /// A time without recording.
    Pause(Pause) from Pause = PAUSE "pause";
    /// A file whose code appears in stacks; comes before the first of these.
    CodeFile(Box<CodeFile>) from CodeFile = CODE_FILE "code_file";
    /// A stack; may come after the calls that have it.
    Stack(Box<Stack>) from Stack = STACK "call_stack";
    /// A moment or range that the program that follows the recording has marked.
    Annotation(Box<Annotation>) from Annotation = ANNOTATION "annotation";
}

/// A block as read.
#[derive(Debug, PartialEq)]
pub enum Block<'a> {
    /// Records as they came from the rings, without gaps; walk them with [`crate::records::split`].
    Records(&'a [u8]),
    /// Metadata.
    Meta(Meta),
    /// An intact block that this version cannot interpret, from a newer gputrace. Readers should
    /// count it and continue.
    Unknown {
        /// Kind of the block.
        kind: u16,
    },
}
