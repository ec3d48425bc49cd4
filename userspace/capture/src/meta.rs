//! Metadata in a capture: everything that a reader needs besides the records.
//!
//! It is stored as one JSON document per block, so that an older reader can skip fields that it
//! does not know.

use serde::{Deserialize, Serialize};

use crate::{flight::Dump, identity::Identity};

/// Where, when and how a recording was made; the first metadata of each capture.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recording {
    /// Version of gputrace that made the recording.
    pub tool_version: String,
    /// [`gputrace_abi::ABI_VERSION`] of the records.
    pub abi_version: u32,
    /// `uname -n`.
    pub hostname: String,
    /// `uname -r`.
    pub kernel_release: String,
    /// `uname -v`.
    pub kernel_version: String,
    /// `uname -m`.
    pub machine: String,
    /// `/proc/sys/kernel/random/boot_id`, which identifies the machine's boot; empty if unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub boot_id: String,
    /// Number of possible CPUs: the range of [`gputrace_abi::record::RecordHeader::cpu`].
    pub cpus: u32,
    /// gputrace's own command line.
    pub command: Vec<String>,
    /// How targets were chosen.
    pub mode: Mode,
    /// Requested domains, as [`gputrace_abi::domain::Domain::name`].
    pub domains: Vec<String>,
    /// Attach back-end in use, e.g. `uprobe_multi` or `perf`.
    pub backend: String,
    /// Clocks at the start.
    pub clocks: ClockSnapshot,
    /// Process id of the program, for file names: the launched one, or the first of `-p`; `None`
    /// for the whole node.
    pub main_pid: Option<u32>,
    /// What hits of probes cost on this machine; `None` in captures that do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prices: Option<ProbePrices>,
    /// Set in a dump of a flight recorder, which has only the last part of the recording.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dump: Option<Box<Dump>>,
}

/// How the targets of a recording were chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// `gputrace -- program`.
    Launch {
        /// Program and arguments.
        command: Vec<String>,
    },
    /// `gputrace -p PID`.
    Attach {
        /// Process ids, initial pid namespace.
        pids: Vec<u32>,
    },
    /// Every process on the node.
    #[default]
    Node,
    /// Several ways, because captures were merged. Not used in captures.
    Merged {
        /// Number of captures.
        captures: u64,
    },
}

/// Readings of several clocks, taken one after the other at nearly the same moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockSnapshot {
    /// `CLOCK_BOOTTIME`, ns: the clock of every record.
    pub boottime: u64,
    /// `CLOCK_MONOTONIC`, ns.
    pub monotonic: u64,
    /// `CLOCK_MONOTONIC_RAW`, ns: KFD's `cpu_clock_counter`.
    pub monotonic_raw: u64,
    /// `CLOCK_REALTIME`, ns since the Unix epoch.
    pub realtime: u64,
    /// Duration of the readings, ns: the uncertainty of the relation between the clocks.
    pub uncertainty: u64,
    /// Maximum difference between `realtime` and the true time of day, ns, as the kernel estimates
    /// it while the clock is synchronised (`adjtimex`); `None` if it is not, or in captures that do
    /// not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub realtime_error: Option<u64>,
}

/// A library file with probes in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Library {
    /// Number in this capture, consecutive from 0.
    pub id: u32,
    /// Path as seen from gputrace, for people.
    pub path: String,
    /// GNU build id, lower-case hex; empty if the file has none.
    pub build_id: String,
    /// Device of the file.
    pub device: u64,
    /// Inode of the file.
    pub inode: u64,
    /// Functions with a probe; their ids follow those of earlier libraries without gaps.
    pub functions: Vec<Function>,
}

/// A probed function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Function {
    /// Number in this capture: [`gputrace_abi::record::Span::function`].
    pub id: u32,
    /// Name as in the public header, without C++ mangling and symbol version.
    pub name: String,
    /// Exported names of the same address that differ from `name`; mangled if exported so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// Symbol version, e.g. `hip_4.2`; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// Number of the [`gputrace_abi::domain::Domain`].
    pub domain: u8,
    /// Address of the symbol in the file's own address space.
    pub address: u64,
    /// File offset of the probe, including the bytes skipped at the function's start.
    pub probe_offset: u64,
    /// Cost of a hit of the probe.
    #[serde(default)]
    pub probe_cost: ProbeCost,
    /// How the end of its calls is seen.
    #[serde(default, skip_serializing_if = "EndProbe::is_return")]
    pub end_probe: EndProbe,
    /// Parameters in order, if the catalogue knows the function; otherwise the raw registers are
    /// shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Vec<Parameter>>,
    /// Kind of the return value.
    #[serde(default)]
    pub returns: ValueKind,
    /// Source location, e.g. `fib.cpp:12`; known only for functions of programs with debug
    /// information.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
}

/// How the end of a function's calls is seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndProbe {
    /// The kernel replaces the return address of each call.
    #[default]
    Return,
    /// By probes on the instructions that leave the function.
    Exits,
    /// Not at all: its calls have no end in the recording.
    NotSeen,
}

impl EndProbe {
    fn is_return(&self) -> bool {
        *self == Self::Return
    }
}

/// How the kernel handles each hit of a probe, which determines how much of the recorded durations
/// it causes. [`ProbePrices`] has what each costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbeCost {
    /// Not recorded.
    #[default]
    Unknown,
    /// A call replaces the five-byte `nop`, from Linux 6.18 on.
    Optimized,
    /// The instruction is carried out inside the breakpoint handler.
    Emulated,
    /// The instruction is executed under the debug exception, after the call's begin was taken:
    /// every duration includes that, about 1 µs on a physical machine and 14 µs in a virtual one.
    SingleStepped,
}

/// What hits of probes cost the thread that hits them, ns: the exception or system call, the
/// program and its record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbePrices {
    /// Whether they were measured when the recording began, on the machine that it was made on;
    /// else they are assumed.
    pub measured: bool,
    /// Entry that is probed at a five-byte `nop` ([`ProbeCost::Optimized`]).
    pub optimized: u64,
    /// Entry whose instruction the kernel emulates ([`ProbeCost::Emulated`]).
    pub emulated: u64,
    /// Entry whose instruction is executed in a copy ([`ProbeCost::SingleStepped`]).
    pub single_stepped: u64,
    /// What a probe on the return adds to a call ([`EndProbe::Return`]).
    pub at_return: u64,
    /// What a probe on the instruction that leaves the function adds ([`EndProbe::Exits`]).
    pub at_exit: u64,
}

/// A parameter, and its place in the record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameter {
    /// Name in the public header, e.g. `sizeBytes`.
    pub name: String,
    /// C type as written in the header, e.g. `const void *`.
    #[serde(rename = "type")]
    pub c_type: String,
    /// How to show it.
    pub kind: ValueKind,
    /// Place of its first word.
    pub at: ArgSlot,
    /// Kind of the value that the function stores through the pointer, if the recorder reads that
    /// at the return.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored: Option<ValueKind>,
    /// The set of named values that it takes, if its C type does not determine it: a name in the
    /// catalogue, e.g. `hipHostMalloc`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub values: String,
    /// The fields shown of a structure: of the parameter itself or, if it is a pointer, of the
    /// structure that it points to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<Field>,
}

/// A field of a structure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Field {
    /// Name, prefixed with the parameter's, e.g. `extent.width`.
    pub name: String,
    /// C type as written in the header.
    #[serde(rename = "type")]
    pub c_type: String,
    /// How to show it. A [`ValueKind::CString`] is text inside the structure, up to a NUL.
    pub kind: ValueKind,
    /// Offset in the structure, bytes.
    pub offset: u16,
    /// Size, bytes.
    pub bytes: u16,
    /// As in [`Parameter::values`].
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub values: String,
}

/// Place of the first word of an argument in a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArgSlot {
    /// `args[n]`; a two-word value continues in `args[n + 1]`.
    Register(u8),
    /// `stack[n]`; a two-word value continues in `stack[n + 1]`.
    Stack(u8),
    /// Not recorded: in a floating-point register, or beyond the recorded stack words.
    #[default]
    Unrecorded,
}

/// How a value is to be read and shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ValueKind {
    /// No value (a function that returns `void`).
    Void,
    /// Unknown kind: the whole word is shown in hex.
    #[default]
    Word,
    /// Pointer or handle, in hex.
    Pointer,
    /// Signed integer of this many bytes (1, 2, 4, 8).
    Signed(u8),
    /// Unsigned integer of this many bytes.
    Unsigned(u8),
    /// `bool`.
    Bool,
    /// `dim3`: x and y in the first word, z in the low half of the second.
    Dim3,
    /// `hipError_t`, printed as number and name.
    HipError,
    /// `hsa_status_t`.
    HsaStatus,
    /// `char *`; the record contains only the address, another record the text.
    CString,
    /// Floating point, which is not in an integer register and so not recorded.
    Float,
    /// Floating point of this many bytes (4, 8), in memory behind a pointer.
    Real(u8),
    /// A struct passed by value in memory; its first word.
    Struct,
}

/// A process of the recording. It is stored again when something about it changes; the last one
/// counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Process id, initial pid namespace.
    pub pid: u32,
    /// Parent's process id, 0 if unknown.
    pub parent: u32,
    /// When it started, ns `CLOCK_BOOTTIME`; 0 if unknown.
    pub start: u64,
    /// `/proc/PID/comm`.
    pub name: String,
    /// `/proc/PID/exe`, empty if unreadable.
    pub executable: String,
    /// `/proc/PID/cmdline`, lossily decoded.
    pub command: Vec<String>,
    /// Whose process it is; empty in captures that do not say.
    #[serde(default, skip_serializing_if = "Identity::is_empty")]
    pub identity: Identity,
    /// Threads known when this was written.
    pub threads: Vec<Thread>,
}

/// A thread of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// Thread id, initial pid namespace.
    pub tid: u32,
    /// Its `comm`.
    pub name: String,
}

/// The end of a drain round over all rings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Epoch {
    /// When the round began, ns `CLOCK_BOOTTIME`: every record made before comes before this mark.
    pub time: u64,
}

/// A time between collection periods, in which nothing that began was recorded; written at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// Its begin, ns `CLOCK_BOOTTIME`.
    pub from: u64,
    /// Its end, ns `CLOCK_BOOTTIME`.
    pub to: u64,
}

/// A moment or a range that the program that reads the recording while it is made has marked
/// ([`crate::follow`]).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Annotation {
    /// Unique in the recording, from 1; the same at the begin and at the end of a range.
    pub id: u64,
    /// When, ns `CLOCK_BOOTTIME`.
    pub time: u64,
    /// Process id of that program, initial pid namespace.
    pub pid: u32,
    /// Its thread.
    pub tid: u32,
    /// What it marks.
    pub what: Annotated,
    /// Its text; empty at the end of a range.
    pub text: String,
}

/// What an annotation marks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Annotated {
    /// A moment.
    #[default]
    Mark,
    /// The begin of a range.
    Begin,
    /// The end of a range.
    End,
}

/// A remark for readers of the recording, e.g. on a library that could not be probed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// When, ns `CLOCK_BOOTTIME`.
    pub time: u64,
    /// One sentence.
    pub text: String,
}

/// Why a recording ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// The user stopped it (Ctrl-C, SIGTERM).
    #[default]
    Interrupted,
    /// The time given with `--duration` was over.
    DurationOver,
    /// The size or the number of events given with `--max-size` or `--max-events` was reached.
    LimitReached,
    /// The launched program, or every attached process, ended.
    TargetsGone,
    /// It goes on: this is a dump of a flight recorder.
    Dumped,
    /// It goes on in another file.
    Continued,
    /// An error occurred; the text describes it.
    Failed(String),
}

/// Last metadata of a complete capture.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// When the recording ended, ns `CLOCK_BOOTTIME`.
    pub time: u64,
    /// Why the recording ended.
    pub reason: EndReason,
}
