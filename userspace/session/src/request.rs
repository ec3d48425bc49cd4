//! What a recording is asked to do.

use std::{ffi::OsString, fmt, path::PathBuf, sync::Arc, time::Duration};

use gputrace_abi::domain::Domain;
use gputrace_analysis::summary::tables::TableOptions;
use gputrace_export::{FilterOptions, KernelOptions, Progress};
use gputrace_loader::{attach::Scope, calls::BackendChoice, ioctls::Place};
use gputrace_perfetto::GpuGrouping;
use regex::Regex;

use crate::{outputs::formats::Format, probing::extra::ExtraFunctions, recorder::periods::Period};

/// A recording to be made.
#[derive(Clone, Debug)]
pub struct Request {
    /// Whom to trace.
    pub targets: Targets,
    /// Whether the processes that the targets create are traced as well. Without, `Targets::Attach` puts
    /// breakpoints only into the processes named.
    pub follow_forks: bool,
    /// Domains to trace.
    pub domains: Vec<Domain>,
    /// Which of their functions.
    pub functions: FunctionFilter,
    /// Functions besides ROCm's.
    pub extra: ExtraFunctions,
    /// Whether a launched program's environment asks HIP to have every kernel stamped by the GPU.
    pub queue_profiling: bool,
    /// When to record at all; always without any.
    pub periods: Vec<Period>,
    /// When to stop by itself.
    pub duration: Option<Duration>,
    /// Where outputs go.
    pub output: OutputRequest,
    /// How probes are attached.
    pub backend: BackendChoice,
    /// Whether to record the driver's tracepoints.
    pub driver_trace: bool,
    /// Tracepoints to record besides, as `category:name`; a name may be `*`.
    pub tracepoints: Vec<String>,
    /// Records of one tracepoint in a second; what is beyond is counted and left out. 0: no limit.
    pub tracepoint_rate: u64,
    /// How often a second counters of GPUs and processes are read; `None`: never.
    pub counter_rate: Option<u32>,
    /// Where requests to the driver are traced; `None` chooses.
    pub kfd_place: Option<Place>,
    /// Bytes of each CPU's ring; `None` chooses by the number of CPUs.
    pub ring_bytes: Option<u32>,
    /// Threads that can have open calls at once.
    pub max_threads: u32,
    /// What looks at the read indices of queues may take of one core, in millionths; 0: no looks.
    pub look_budget: u32,
    /// Show the kernel-side programs' own log.
    pub debug_ebpf: bool,
    /// gputrace's command line, for the capture.
    pub command_line: Vec<String>,
}

impl Request {
    /// Whether children become targets; on a whole node they are already.
    pub(crate) fn follows_forks(&self) -> bool {
        self.follow_forks && !matches!(self.targets, Targets::Node)
    }

    /// Into whose memory the breakpoints for `pid` go. A child is born with its parent's, but the kernel
    /// runs programs that are limited to a process only for that process. So children that are to be
    /// followed from their first call on ask for breakpoints in every process that maps the library; the
    /// programs then leave at once in those that are not traced.
    pub(crate) fn scope(&self, pid: u32) -> Scope {
        match self.targets {
            Targets::Attach { .. } if !self.follow_forks => Scope::Process(pid),
            _ => Scope::EveryProcess,
        }
    }
}

/// Whom to trace.
#[derive(Clone, Debug)]
pub enum Targets {
    /// Start a program, and trace it and its descendants.
    Launch {
        /// Program and arguments.
        command: Vec<OsString>,
        /// Hold a thread, in the kernel, while what it has mapped gets its probes, so that no call is
        /// missed.
        hold: bool,
    },
    /// Running processes.
    Attach {
        /// Their ids.
        pids: Vec<u32>,
        /// Go on if one has no ROCm libraries yet.
        wait: bool,
    },
    /// Every process of the node.
    Node,
}

/// Which functions of the chosen domains to trace.
#[derive(Clone, Debug, Default)]
pub struct FunctionFilter {
    /// If given, only functions whose names match.
    pub include: Option<Regex>,
    /// If given, no functions whose names match.
    pub exclude: Option<Regex>,
    /// HSA's polling functions are left out, because they are called millions of times a second, except
    /// those whose names match this.
    pub polling: Option<Regex>,
}

impl FunctionFilter {
    /// Whether to trace the function `name`.
    #[must_use]
    pub fn wants(&self, name: &str) -> bool {
        if gputrace_catalog::is_polling(name)
            && !self.polling.as_ref().is_some_and(|re| re.is_match(name))
        {
            return false;
        }
        self.admits(|re| re.is_match(name))
    }

    /// Whether what has the names that `named` knows is among those included and not excluded.
    pub(crate) fn admits(&self, named: impl Fn(&Regex) -> bool) -> bool {
        self.include.as_ref().is_none_or(&named) && !self.exclude.as_ref().is_some_and(&named)
    }
}

/// A format that can be shown while the recording goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LiveFormat {
    /// Lines for people.
    Text,
    /// One JSON object per line.
    Ndjson,
}

/// Where outputs go and which there are.
#[derive(Clone, Debug)]
pub struct OutputRequest {
    /// Directory, with placeholders, see [`Names`](crate::Names).
    pub directory: PathBuf,
    /// First part of every file name, with placeholders, maybe behind directories; `None`: the traced program's
    /// process id.
    pub name: Option<String>,
    /// Whether an earlier recording of that name is replaced, with all its files.
    pub force: bool,
    /// Show this on standard output while the recording goes on. There are no files then, neither formats nor the capture,
    /// and `name` has no meaning.
    pub live: Option<LiveFormat>,
    /// Formats made at the end, and what they show.
    pub formats: Formats,
    /// Told how far the making of the formats is.
    pub watcher: Watcher,
}

/// Is told now and then how far outputs are.
#[derive(Clone, Default)]
pub struct Watcher(Option<Arc<dyn Fn(Progress) + Send + Sync>>);

impl Watcher {
    /// Tells `watch`, which is called by a thread of its own.
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
    /// No formats yet; see there for `directory` and `name`.
    #[must_use]
    pub fn new(directory: PathBuf, name: Option<String>) -> Self {
        Self {
            directory,
            name,
            force: false,
            live: None,
            formats: Formats::default(),
            watcher: Watcher::default(),
        }
    }
}

/// Formats, and what they show.
#[derive(Clone, Debug, Default)]
pub struct Formats {
    /// The formats.
    pub list: Vec<Format>,
    /// Write lines to standard output, in place of the files.
    pub stdout: Option<LiveFormat>,
    /// Which kernel dispatches are shown, and how kernels are called.
    pub kernels: KernelOptions,
    /// Which part of the recording is shown.
    pub filter: FilterOptions,
    /// Whether only what programs want to be recorded is shown: see `Timeline::selected_regions`.
    pub selected_regions: bool,
    /// Whether the CSV files have one with the arguments of calls beside them.
    pub csv_arguments: bool,
    /// Whether the CSV files have statistics beside them: rocprofv3's `--stats`.
    pub stats: bool,
    /// Whether there is a summary for people.
    pub summary: bool,
    /// Which tables of statistics follow it.
    pub tables: TableOptions,
    /// Write both into the file `NAME_FILE.txt`, where this is `FILE`, rather than give them to the caller.
    pub summary_file: Option<String>,
    /// Make the formats only of captures with at least so many bytes: rocprofv3's `--minimum-output-data`.
    pub minimum_bytes: u64,
    /// Whether there is a report on the time by caller and callee; `None`: if functions of programs were traced.
    pub wall_clock: Option<bool>,
    /// By what Perfetto traces divide the rows of an agent's work.
    pub grouping: GpuGrouping,
    /// Whether the packets of Perfetto traces are compressed.
    pub compress: bool,
    /// Whether Perfetto traces have kernels and copies a second time, as Perfetto's own GPU events.
    pub gpu_events: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polling_functions_must_be_asked_for() {
        let mut filter = FunctionFilter::default();
        assert!(filter.wants("hipMalloc"));
        assert!(!filter.wants("hsa_signal_load_relaxed"));
        filter.polling = Some(Regex::new("signal_load").unwrap());
        assert!(filter.wants("hsa_signal_load_relaxed"));
        filter.exclude = Some(Regex::new("relaxed").unwrap());
        assert!(!filter.wants("hsa_signal_load_relaxed"));
        filter.include = Some(Regex::new("^hip").unwrap());
        assert!(!filter.wants("hsa_init"));
        assert!(filter.wants("hipMalloc"));
    }
}
