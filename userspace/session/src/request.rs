//! Describes a recording to be made.

use std::{
    ffi::OsString,
    fmt,
    io::{self, Write},
    num::NonZeroU32,
    ops::ControlFlow,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use gputrace_abi::domain::Domain;
use gputrace_analysis::summary::tables::TableOptions;
use gputrace_catalog::stacks::{self, Caller};
use gputrace_collect::SizeLimit;
use gputrace_export::{ExportError, FilterOptions, KernelOptions, Progress};
use gputrace_flight::{Limits, Rule};
use gputrace_loader::{attach::Scope, calls::BackendChoice, ioctls::Place};
use gputrace_perfetto::GpuGrouping;
use gputrace_timeline::event::Event;
use regex::Regex;

use crate::{outputs::formats::Format, probing::extra::ExtraFunctions, recorder::periods::Period};

/// A recording to be made.
#[derive(Clone, Debug)]
pub struct Request {
    /// The processes to trace.
    pub targets: Targets,
    /// Whether processes created by the targets are traced as well. If not, `Targets::Attach` puts
    /// breakpoints only into the given processes.
    pub follow_forks: bool,
    /// Domains to trace.
    pub domains: Vec<Domain>,
    /// Which functions of these domains to trace.
    pub functions: FunctionFilter,
    /// Functions other than ROCm's to trace.
    pub extra: ExtraFunctions,
    /// Whether a launched program's environment asks HIP for GPU timestamps of every kernel.
    pub queue_profiling: bool,
    /// Collection periods; empty: record all the time.
    pub periods: Vec<Period>,
    /// Time after which the recording stops by itself.
    pub duration: Option<Duration>,
    /// Size at which the recording stops by itself.
    pub size_limit: SizeLimit,
    /// Where outputs go, and which are made.
    pub output: OutputRequest,
    /// How probes are attached.
    pub backend: BackendChoice,
    /// Whether to record the driver's tracepoints.
    pub driver_trace: bool,
    /// Further tracepoints to record, as `category:name`; a name may be `*`.
    pub tracepoints: Vec<String>,
    /// Maximum number of records of one tracepoint per second. Further ones are counted and left
    /// out. 0: no limit.
    pub tracepoint_rate: u64,
    /// How many times per second counters of GPUs and processes are read; `None`: never.
    pub counter_rate: Option<u32>,
    /// The functions whose calls get their stacks recorded; `None`: none.
    pub stacks: Option<StacksOf>,
    /// Where requests to the driver are traced; `None` chooses automatically.
    pub kfd_place: Option<Place>,
    /// Share of a CPU that the probes of functions that only ask for a value may take together, %;
    /// above it, they are removed for a while. `None`: any.
    pub overhead_limit: Option<u32>,
    /// Bytes of each CPU's ring; `None` chooses by the number of CPUs.
    pub ring_bytes: Option<u32>,
    /// Maximum number of threads with open calls at the same time.
    pub max_threads: u32,
    /// Share of one core that looks at the queues' read indices may take, in millionths; 0: no
    /// looks.
    pub look_budget: u32,
    /// Whether to show the log of the eBPF programs.
    pub debug_ebpf: bool,
    /// gputrace's command line, recorded in the capture.
    pub command_line: Vec<String>,
}

/// Which of the traced functions get the stacks of their calls recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StacksOf {
    /// All.
    All,
    /// Those that do one of these things.
    Callers(Vec<Caller>),
}

impl StacksOf {
    pub(crate) fn includes(&self, function: &str) -> bool {
        match self {
            Self::All => true,
            Self::Callers(wanted) => {
                stacks::caller(function).is_some_and(|why| wanted.contains(&why))
            }
        }
    }
}

impl Request {
    /// Whether children become targets when they are created. On a whole node they are targets
    /// already.
    pub(crate) fn follows_forks(&self) -> bool {
        self.follow_forks && !matches!(self.targets, Targets::Node)
    }

    /// Whether calls of some functions are counted apart, because there is a limit for them.
    pub(crate) fn limits_calls(&self) -> bool {
        self.extra.is_limited() || self.overhead_limit.is_some()
    }

    /// The processes that get the breakpoints meant for `pid`.
    ///
    /// A child inherits its parent's breakpoints, but the kernel runs programs limited to a process
    /// only in that process. So if children are to be followed from their first call on,
    /// breakpoints go into every process that maps the library; the programs return at once in
    /// processes that are not traced.
    pub(crate) fn scope(&self, pid: u32) -> Scope {
        match self.targets {
            Targets::Attach { .. } if !self.follow_forks => Scope::Process(pid),
            _ => Scope::EveryProcess,
        }
    }
}

/// The processes to trace.
#[derive(Clone, Debug)]
pub enum Targets {
    /// Start a program, and trace it and its descendants.
    Launch {
        /// Program and arguments.
        command: Vec<OsString>,
        /// Hold a thread, in the kernel, while the libraries that it has mapped get their probes,
        /// so that no call is missed.
        hold: bool,
    },
    /// Trace running processes.
    Attach {
        /// Process ids.
        pids: Vec<u32>,
        /// Continue if a process has no ROCm libraries yet.
        wait: bool,
    },
    /// Trace every process of the node.
    Node,
}

/// Which functions of the chosen domains to trace.
#[derive(Clone, Debug, Default)]
pub struct FunctionFilter {
    /// If set, trace only functions whose names match.
    pub include: Option<Regex>,
    /// If set, trace no functions whose names match.
    pub exclude: Option<Regex>,
    /// Some of HSA's functions are called millions of times and say little
    /// ([`gputrace_catalog::is_on_request`]). They are left out, except those whose names match.
    pub on_request: Option<Regex>,
}

impl FunctionFilter {
    /// Whether to trace the function `name`.
    #[must_use]
    pub fn wants(&self, name: &str) -> bool {
        if gputrace_catalog::is_on_request(name)
            && !self.on_request.as_ref().is_some_and(|re| re.is_match(name))
        {
            return false;
        }
        self.admits(|re| re.is_match(name))
    }

    /// Whether a function is included and not excluded. `named` says whether one of its names
    /// matches.
    pub(crate) fn admits(&self, named: impl Fn(&Regex) -> bool) -> bool {
        self.include.as_ref().is_none_or(&named) && !self.exclude.as_ref().is_some_and(&named)
    }
}

/// A format that can be shown during the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LiveFormat {
    /// Lines of text for people.
    Text,
    /// One JSON object per line.
    Ndjson,
}

/// What is shown on standard output during a recording.
#[derive(Clone, Debug)]
pub enum LiveOutput {
    /// Every event, in this format.
    Lines(LiveFormat),
    /// What a view makes of the events.
    View(NewView),
}

/// Shows a recording while it is made, in its own thread.
pub trait View {
    /// Takes the next event, in the order that [`gputrace_timeline::event`] promises. The
    /// recorder's accounts are among them
    /// ([`Timeline::with_accounts`](gputrace_timeline::Timeline::with_accounts)).
    ///
    /// # Errors
    ///
    /// When the output cannot be written. The view is then dropped.
    fn event(&mut self, event: &Event) -> Result<(), ExportError>;

    /// Everything has been taken that the recorder had written by `time`, ns `CLOCK_BOOTTIME`.
    /// Called many times a second, unless events come faster than they are taken. A
    /// [`ControlFlow::Break`] ends the recording.
    ///
    /// # Errors
    ///
    /// When the output cannot be written. This ends the recording.
    fn caught_up(&mut self, time: u64) -> Result<ControlFlow<()>, ExportError>;

    /// The recording has ended.
    ///
    /// # Errors
    ///
    /// When the output cannot be written.
    fn finish(&mut self) -> Result<(), ExportError>;
}

/// Makes a view that writes to a stream.
type MakeView = dyn Fn(Box<dyn Write>) -> io::Result<Box<dyn View>> + Send + Sync;

/// Makes a view that writes to standard output.
#[derive(Clone)]
pub struct NewView(Arc<MakeView>);

impl NewView {
    /// Calls `make` once, in the view's thread, with standard output.
    pub fn new(
        make: impl Fn(Box<dyn Write>) -> io::Result<Box<dyn View>> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(make))
    }

    pub(crate) fn make(&self, out: Box<dyn Write>) -> io::Result<Box<dyn View>> {
        (self.0)(out)
    }
}

impl fmt::Debug for NewView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NewView")
    }
}

/// A flight recorder: what is kept, and when it is dumped.
#[derive(Clone, Debug)]
pub struct FlightRequest {
    /// How much is kept.
    pub limits: Limits,
    /// Because of what dumps are made, besides SIGUSR2.
    pub rules: Vec<Rule>,
    /// A dump has what happens in this time after its first cause as well.
    pub after: Duration,
    /// Maximum number of dumps made because of the rules.
    pub dumps: u32,
    /// Minimum time from one such dump to the next.
    pub pause: Duration,
    /// A command for the shell, run as the user on whose behalf gputrace runs when a dump was
    /// written.
    pub on_dump: Option<OsString>,
    /// If set, everything is kept, in one file after the other.
    pub parts: Option<Parts>,
}

/// A recording in several files, of which the latest ones are kept.
#[derive(Clone, Copy, Debug)]
pub struct Parts {
    /// A file ends when this many bytes were recorded.
    pub bytes: Option<u64>,
    /// A file ends after this time.
    pub time: Option<Duration>,
    /// Maximum number of files.
    pub keep: NonZeroU32,
}

impl FlightRequest {
    /// Space for what waits to be written while the disk is slow, besides a second file, bytes.
    const WAITING: u64 = 64 << 20;

    /// A recording in several files.
    #[must_use]
    pub fn in_parts(parts: Parts) -> Self {
        let bytes = parts.bytes.map_or(u64::MAX, |bytes| {
            bytes.saturating_mul(2).saturating_add(Self::WAITING)
        });
        Self {
            limits: Limits { time: None, bytes },
            rules: Vec::new(),
            after: Duration::ZERO,
            dumps: 0,
            pause: Duration::ZERO,
            on_dump: None,
            parts: Some(parts),
        }
    }
}

/// Where outputs go, and which are made.
#[derive(Clone, Debug)]
pub struct OutputRequest {
    /// Directory, with placeholders; see [`Names`](crate::Names).
    pub directory: PathBuf,
    /// First part of every file name, with placeholders. It may begin with directories. `None`: the
    /// traced program's process id.
    pub name: Option<String>,
    /// Whether an earlier recording of the same name is replaced, with all its files.
    pub force: bool,
    /// What to show on standard output during the recording. No files are made then, neither
    /// formats nor the capture, and `name` is ignored.
    pub live: Option<LiveOutput>,
    /// Set if no files are made because another program reads the capture while it grows
    /// ([`record_for`](crate::record_for)).
    pub unkept: bool,
    /// Set if only the last part of the recording is kept, and dumped when something happens. No
    /// other files are made then.
    pub flight: Option<FlightRequest>,
    /// Formats made at the end, and their contents.
    pub formats: Formats,
    /// Receives the progress of making the formats.
    pub watcher: Watcher,
}

/// Receives reports, from time to time, of how much of the outputs is done.
#[derive(Clone, Default)]
pub struct Watcher(Option<Arc<dyn Fn(Progress) + Send + Sync>>);

impl Watcher {
    /// Calls `watch` with each report, from a separate thread.
    pub fn new(watch: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(watch)))
    }

    pub(crate) fn tell(&self, progress: Progress) {
        if let Some(watch) = &self.0 {
            watch(progress);
        }
    }
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watcher").field(&self.0.is_some()).finish()
    }
}

impl OutputRequest {
    /// A request without formats; see [`OutputRequest`] for `directory` and `name`.
    #[must_use]
    pub fn new(directory: PathBuf, name: Option<String>) -> Self {
        Self {
            directory,
            name,
            force: false,
            live: None,
            unkept: false,
            flight: None,
            formats: Formats::default(),
            watcher: Watcher::default(),
        }
    }
}

/// Which formats are made, and what they contain.
#[derive(Clone, Debug, Default)]
pub struct Formats {
    /// The formats to write.
    pub list: Vec<Format>,
    /// Format to write to standard output instead of files.
    pub stdout: Option<LiveFormat>,
    /// Which kernel dispatches are shown, and how kernels are named.
    pub kernels: KernelOptions,
    /// Which part of the recording is shown.
    pub filter: FilterOptions,
    /// Whether only the regions selected by the programs are shown: see
    /// `Timeline::selected_regions`.
    pub selected_regions: bool,
    /// Whether a CSV file with the arguments of calls is written as well.
    pub csv_arguments: bool,
    /// Whether CSV files with statistics are written as well: rocprofv3's `--stats`.
    pub stats: bool,
    /// Whether a summary for people is made.
    pub summary: bool,
    /// Tables of statistics that follow the summary.
    pub tables: TableOptions,
    /// If this is `FILE`, summary and tables are written into the file `NAME_FILE.txt` instead of
    /// being returned to the caller.
    pub summary_file: Option<String>,
    /// Minimum size of the capture, in bytes, for which the formats are made: rocprofv3's
    /// `--minimum-output-data`.
    pub minimum_bytes: u64,
    /// Whether to report time by caller and callee; `None`: only if functions of programs were
    /// traced.
    pub wall_clock: Option<bool>,
    /// How Perfetto traces group the rows of an agent's work.
    pub grouping: GpuGrouping,
    /// Whether packets of Perfetto traces are compressed.
    pub compress: bool,
    /// Whether Perfetto traces contain kernels and copies a second time, as Perfetto's own GPU
    /// events.
    pub gpu_events: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequent_functions_must_be_asked_for() {
        let mut filter = FunctionFilter::default();
        assert!(filter.wants("hipMalloc"));
        assert!(!filter.wants("hsa_signal_load_relaxed"));
        filter.on_request = Some(Regex::new("signal_load").unwrap());
        assert!(filter.wants("hsa_signal_load_relaxed"));
        filter.exclude = Some(Regex::new("relaxed").unwrap());
        assert!(!filter.wants("hsa_signal_load_relaxed"));
        filter.include = Some(Regex::new("^hip").unwrap());
        assert!(!filter.wants("hsa_init"));
        assert!(filter.wants("hipMalloc"));
    }
}
