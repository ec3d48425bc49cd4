//! The collector thread.

pub(crate) mod snapshot;

use std::{
    fs::File,
    io,
    os::fd::{AsFd as _, OwnedFd},
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use gputrace_abi::{counters::TaskCounters, record::Task};
use gputrace_capture::{
    CaptureWriter, Meta,
    gpu::AgentKind,
    ledger::Ledger,
    meta::{End, EndReason, Epoch, Notice},
};
use gputrace_loader::{ProbeError, calls::Calls, present_cpus, tasks::Tasks};
use gputrace_text::tables::{count, plural};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use self::snapshot::Snapshot;
use crate::{
    accounts::Accounts,
    activity::Gpu,
    clocks,
    limits::Limits,
    pace::Pace,
    pending::Pending,
    reading::{Read, Reading},
    rings::CpuRing,
    sampling::{GpuClocks, Sampling},
    sink::RecordSink,
    size_limit::{ReachedLimit, SizeLimit},
    tasks::Relevant,
    tracker::GpuTracker,
    watch::Watcher,
};

/// Maximum pause between two rounds while records arrive, and while none do. Programs wake the
/// collector when a ring is a quarter full, so these limit delay, not capacity.
const PAUSE_BUSY: Duration = Duration::from_millis(20);
const PAUSE_IDLE: Duration = Duration::from_millis(100);

/// How often the accounts are written into the capture. They show what a killed recording has lost.
const LEDGER_EVERY: Duration = Duration::from_secs(1);

/// How often the clocks are written. They drift against each other by microseconds in that time.
const CLOCKS_EVERY: Duration = Duration::from_secs(10);

/// Maximum wait at the end of the recording for data from the memory of processes.
const LAST_PATIENCE: Duration = Duration::from_millis(800);

/// Settings of a collector.
pub struct Settings {
    /// The loaded eBPF programs for calls.
    pub calls: Arc<Calls>,
    /// The loaded eBPF programs for tasks, if they are wanted.
    pub tasks: Option<Tasks>,
    /// Whether to log the task programs' own messages.
    pub debug: bool,
    /// Size of each CPU's ring, bytes.
    pub ring_bytes: u32,
    /// Whether children of traced processes are traced.
    pub follow_forks: bool,
    /// The capture, with its header written.
    pub writer: CaptureWriter<File>,
    /// Size at which [`CollectorEvent::LimitReached`] is reported.
    pub size_limit: SizeLimit,
    /// How to follow the GPU's work; `None`: not at all.
    pub gpu: Option<GpuSettings>,
}

/// How the GPU's work is followed.
#[derive(Debug, Default)]
pub struct GpuSettings {
    /// The GPUs' clocks, if they can be read.
    pub clocks: Option<GpuClocks>,
    /// The GPUs whose status registers are read.
    pub gpus: Vec<Gpu>,
    /// The node's agents: topology node and kind of each.
    pub agents: Vec<(u32, AgentKind)>,
    /// Whether to look at the scratch memory of queues.
    pub scratch: bool,
    /// Share of one core that looks at the queues' read indices may take, in millionths; 0: no
    /// looks.
    pub look_budget: u32,
    /// Whether the recording is shown while it is made. Clock samples are then written without
    /// delay.
    pub live: bool,
}

/// A request from the session to a running collector.
#[derive(Debug)]
pub enum Command {
    /// Append metadata. It comes before every record drained later.
    Meta(Box<Meta>),
    /// Keep the task events of this process.
    Process(u32),
    /// Count a process whose first calls may be missing.
    LateProcess,
    /// Append the watcher's findings: consecutive records, and metadata.
    Watched(Box<(Vec<u8>, Vec<Meta>)>),
    /// The answer to the order with this number.
    Read(u64, Box<Read>),
    /// The programs are paused: what the rings hold now is the last before a time that is not
    /// recorded. Packets missing after it are not looked for. The programs must be resumed only
    /// after a barrier sent after this command was answered.
    PassedOver,
    /// Answer when everything sent before has been done.
    Barrier(Sender<()>),
    /// Answer when all records that the rings hold now have been read.
    Drain(Sender<()>),
    /// Answer with the state of the recording, which goes on.
    Snapshot(Sender<Snapshot>),
    /// Append what has begun and not ended: consecutive unfinished records
    /// ([`Kind::is_unfinished`]) that end when they begin. The collector sets their end to the time
    /// at which it writes them: an earlier one could lie before a mark that the capture already
    /// has. The programs must have been stopped.
    ///
    /// [`Kind::is_unfinished`]: gputrace_abi::kinds::Kind::is_unfinished
    Open(Vec<u8>),
    /// Read the last records, complete the accounts and end. The programs must have been stopped.
    Finish(EndReason),
}

/// An event that the collector reports to the session.
#[derive(Debug)]
pub enum CollectorEvent {
    /// The first call or task event of a process.
    NewProcess(u32),
    /// A task event of a process of the recording.
    Task(Task),
    /// A process has mapped libraries or code objects of interest. If `held` is set, the thread
    /// waits to be released.
    Linker(Task),
    /// The first dispatch of a kernel.
    Kernel {
        /// The process.
        pid: u32,
        /// Its `kernel_object`.
        kernel_object: u64,
    },
    /// A remark for the user. It is in the capture, too.
    Remark(String),
    /// The capture could not be written; reported once. Records lost from now on are in the
    /// accounts.
    CaptureFailed(String),
    /// The recording has reached its size limit; reported once. It continues until it is ended.
    LimitReached(ReachedLimit),
}

/// Result of a collector that has ended.
#[derive(Debug)]
pub struct Stopped {
    /// The final accounts.
    pub ledger: Ledger,
    /// Size of the capture, bytes.
    pub capture_bytes: u64,
    /// First failure to write the capture.
    pub failure: Option<String>,
}

/// A running collector.
#[derive(Debug)]
pub struct CollectorHandle {
    commands: Sender<Command>,
    wake: Arc<OwnedFd>,
    thread: JoinHandle<Result<Stopped, ProbeError>>,
}

/// Sends metadata from other threads, as long as the collector runs.
#[derive(Clone, Debug)]
pub struct CommandSender {
    commands: Sender<Command>,
    wake: Arc<OwnedFd>,
}

impl CommandSender {
    /// Appends metadata.
    pub fn meta(&self, meta: Meta) {
        send(&self.commands, &self.wake, Command::Meta(Box::new(meta)));
    }
}

impl CollectorHandle {
    /// A sender for threads that append metadata.
    #[must_use]
    pub fn sender(&self) -> CommandSender {
        CommandSender {
            commands: self.commands.clone(),
            wake: Arc::clone(&self.wake),
        }
    }

    /// Sends a command. If the collector is gone, [`CollectorHandle::finish`] reports the reason.
    pub fn send(&self, command: Command) {
        send(&self.commands, &self.wake, command);
    }

    /// Sends [`Command::PassedOver`], and waits until it is done.
    pub fn passed_over(&self) {
        let (answer, done) = channel();
        self.send(Command::PassedOver);
        self.send(Command::Barrier(answer));
        // This fails only if the collector is gone, and then no record comes either.
        let _ = done.recv();
    }

    /// Appends metadata, and waits until every record drained from now on comes after it.
    pub fn append(&self, meta: Meta) {
        let (answer, done) = channel();
        self.send(Command::Meta(Box::new(meta)));
        self.send(Command::Barrier(answer));
        // This fails only if the collector is gone, and then no record comes either.
        let _ = done.recv();
    }

    /// Waits until all records that the rings hold now have been read, and their events reported.
    pub fn drain(&self) {
        let (answer, done) = channel();
        self.send(Command::Drain(answer));
        // This fails only if the collector is gone, and then no event comes either.
        let _ = done.recv();
    }

    /// Ends the collector, whose programs must have been stopped, and returns the final accounts.
    ///
    /// # Errors
    ///
    /// [`ProbeError`] when the counters or open calls could not be read.
    pub fn finish(self, reason: EndReason) -> Result<Stopped, ProbeError> {
        self.send(Command::Finish(reason));
        self.thread.join().unwrap_or_else(|_| {
            Err(ProbeError::Refused {
                action: "read the ring buffers".to_owned(),
                cause: "the collector thread failed".to_owned(),
                log: Vec::new(),
            })
        })
    }
}

/// Reads rings into a capture.
pub struct Collector {
    calls: Arc<Calls>,
    tasks: Option<Tasks>,
    logger: Option<aya_log::EbpfLogger<&'static dyn log::Log>>,
    rings: Vec<CpuRing>,
    /// Size of each ring, bytes.
    ring_bytes: usize,
    wake: Arc<OwnedFd>,
    sink: RecordSink,
    commands: Receiver<Command>,
    watcher: Option<Watcher>,
    ledger_due: Instant,
    clocks_due: Instant,
    pace: Pace,
    size_limit: SizeLimit,
}

impl Collector {
    /// Starts the collector thread, which calls `tell` with events.
    ///
    /// # Errors
    ///
    /// [`ProbeError`] when the rings cannot be mapped or the thread cannot be started.
    pub fn start(
        settings: Settings,
        tell: impl Fn(CollectorEvent) + Send + 'static,
    ) -> Result<CollectorHandle, ProbeError> {
        let Settings {
            calls,
            mut tasks,
            debug,
            ring_bytes,
            follow_forks,
            writer,
            size_limit,
            gpu,
        } = settings;
        // The records in a ring are smaller than the ring: each has a header in it.
        let limit = ring_bytes as usize;
        let mut rings: Vec<CpuRing> = calls
            .rings()?
            .into_iter()
            .map(|(cpu, ring)| CpuRing::new(cpu, ring, limit))
            .collect();
        let (mut logger, mut known) = (None, None);
        if let Some(tasks) = &mut tasks {
            rings.push(CpuRing::new(0, tasks.take_ring()?, limit));
            known = Some(tasks.take_known()?);
            if debug {
                logger = Some(tasks.logger()?);
            }
        }
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| start_error(&errno.into()))?;
        let wake = Arc::new(wake);
        let (sender, commands) = channel();
        let follow = |settings| follow_gpu(settings, sender.clone());
        let (watcher, gpu) = gpu.map(follow).transpose()?.unzip();
        let now = Instant::now();
        let collector = Self {
            sink: RecordSink {
                writer,
                accounts: Accounts::new(calls.cpus()),
                relevant: Relevant::new(follow_forks, known),
                gpu,
                trimmed: Vec::new(),
                reading: Reading::start(sender.clone()).map_err(|error| start_error(&error))?,
                pending: Pending::default(),
                limits: Limits::default(),
                records: 0,
                unread: false,
                failure: None,
                tell: Box::new(tell),
            },
            calls,
            tasks,
            logger,
            rings,
            ring_bytes: limit,
            wake: Arc::clone(&wake),
            commands,
            watcher,
            ledger_due: now + LEDGER_EVERY,
            clocks_due: now + CLOCKS_EVERY,
            pace: Pace::default(),
            size_limit,
        };
        let thread = thread::Builder::new()
            .name("collector".to_owned())
            .spawn(move || collector.run())
            .map_err(|error| start_error(&error))?;
        Ok(CollectorHandle {
            commands: sender,
            wake,
            thread,
        })
    }

    fn run(mut self) -> Result<Stopped, ProbeError> {
        let mut drained = 0;
        loop {
            let is_idle = drained == 0 && !self.sink.pending.any();
            self.wait(if is_idle { PAUSE_IDLE } else { PAUSE_BUSY });
            while let Ok(command) = self.commands.try_recv() {
                match command {
                    Command::Meta(meta) => self.sink.meta(&meta),
                    Command::Process(pid) => {
                        self.sink.relevant.add(pid);
                    }
                    Command::LateProcess => self.sink.accounts.late_process(),
                    Command::Watched(found) => self.sink.watched(&found.0, &found.1),
                    Command::Read(number, read) => self.sink.read(number, *read),
                    Command::PassedOver => {
                        while self.round() > 0 {}
                        self.sink.passed_over();
                    }
                    Command::Open(run) => self.sink.open(&run),
                    Command::Barrier(answer) => {
                        // The sender may have stopped waiting.
                        let _ = answer.send(());
                    }
                    Command::Drain(answer) => {
                        self.round();
                        let _ = answer.send(());
                    }
                    Command::Snapshot(answer) => {
                        let _ = answer.send(self.snapshot()?);
                    }
                    Command::Finish(reason) => return self.finish(reason),
                }
            }
            drained = self.round();
            self.size_limit.look(&self.sink);
            self.periodic()?;
        }
    }

    /// Sleeps until a ring is a quarter full, a command arrives, or the pause is over.
    fn wait(&self, pause: Duration) {
        let mut fds: Vec<PollFd<'_>> = self
            .rings
            .iter()
            .map(CpuRing::fd)
            .chain([self.wake.as_fd()])
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        let pause = Timespec {
            tv_sec: 0,
            tv_nsec: i64::from(pause.subsec_nanos()),
        };
        // An interruption only makes the round come earlier.
        let _ = poll(&mut fds, Some(&pause));
        let mut pending = [0; 8];
        let _ = rustix::io::read(&*self.wake, &mut pending);
    }

    /// Reads every ring once, and returns the number of bytes taken.
    fn round(&mut self) -> usize {
        // Every record made before this moment is in a ring now, so this round reads it.
        let time = clocks::now();
        let before = self.sink.records;
        let mut bytes = self.drain();
        if self.sink.gpu.as_ref().is_some_and(GpuTracker::is_behind) {
            bytes += self.drain();
        }
        self.sink.late(false);
        self.sink.give_up(false);
        // Records of processes that are not part of the recording are drained all the time, but do
        // not get into the capture.
        if self.sink.records != before {
            self.sink.pending.mark(Epoch { time });
        }
        if let Some(epoch) = self.sink.pending.due_mark() {
            self.sink.meta(&epoch.into());
        }
        if let Some(logger) = &mut self.logger {
            logger.flush();
        }
        bytes
    }

    /// Takes the contents of all rings, and returns their size in bytes.
    fn drain(&mut self) -> usize {
        let rings = self.rings.iter_mut();
        rings
            .map(|ring| {
                let cpu = ring.cpu;
                ring.drain(|record| self.sink.take(cpu, record))
            })
            .sum()
    }

    fn periodic(&mut self) -> Result<(), ProbeError> {
        let now = Instant::now();
        if now >= self.clocks_due {
            self.clocks_due = now + CLOCKS_EVERY;
            if self.pace.clocks(clocks::now()) {
                self.sink.meta(&clocks::snapshot().into());
            }
        }
        if now >= self.ledger_due {
            self.ledger_due = now + LEDGER_EVERY;
            self.sink.tell_refused();
            self.look_for_cpus();
            let ledger = self.ledger(false)?;
            for ledger in self.pace.ledgers(ledger) {
                self.sink.meta(&ledger.into());
            }
        }
        Ok(())
    }

    /// Opens the rings of processors that have come online.
    fn look_for_cpus(&mut self) {
        let limit = self.ring_bytes;
        match self.calls.adopt(&present_cpus()) {
            Ok(new) => {
                let new = new.into_iter();
                self.rings
                    .extend(new.map(|(cpu, ring)| CpuRing::new(cpu, ring, limit)));
            }
            // Records of this CPU that find no room in its small default ring are counted.
            Err(error) => tracing::debug!("no ring for a new processor: {error}"),
        }
    }

    fn ledger(&self, complete: bool) -> Result<Ledger, ProbeError> {
        let mut tasks = self
            .tasks
            .as_ref()
            .map_or(Ok(TaskCounters::default()), Tasks::counters)?;
        // A process for which the programs had no room counts as a lost event, too.
        let refused = self.sink.relevant.refused;
        tasks.seen += refused;
        tasks.ring_full += refused;
        Ok(self
            .sink
            .accounts
            .ledger(clocks::now(), complete, &self.calls.counters()?, tasks))
    }

    fn finish(mut self, reason: EndReason) -> Result<Stopped, ProbeError> {
        let time = clocks::now();
        let deadline = Instant::now() + LAST_PATIENCE;
        while self.round() > 0 {}
        self.sink.late(true);
        let watcher = self.watcher.take().map(Watcher::stop);
        // While it waits for answers, it handles what the watcher reported earlier.
        while self.sink.pending.any_order()
            && let Ok(command) = self
                .commands
                .recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            self.last(command);
        }
        self.sink.give_up(true);
        let found = watcher.and_then(|watcher| watcher.found(deadline));
        let looks = found.as_ref().and_then(|found| found.looks);
        if let Some(found) = found {
            self.sink.watched(&found.records, &found.metas);
        }
        // The remaining data is bounded, and must not be left out.
        self.sink.writer.unlimit();
        while let Ok(command) = self.commands.try_recv() {
            self.last(command);
        }
        self.sink.tell_refused();
        let counters = self.calls.counters()?;
        let untraced: u64 = counters.iter().map(|cpu| cpu.untraced_processes).sum();
        if untraced > 0 {
            let text = format!(
                "{} not traced, because there was no room for more",
                plural(untraced, "child process is", "child processes are")
            );
            self.sink.meta(&Notice { time, text }.into());
        }
        let untold: u64 = counters.iter().map(|cpu| cpu.untold_libraries).sum();
        if untold > 0 {
            let text = format!(
                "{} a program mapped a library or loaded kernels while the ring buffers were full: \
                 calls or names of kernels may be missing (a larger --ring-size helps)",
                count(untold, "time")
            );
            self.sink.meta(&Notice { time, text }.into());
        }
        for (id, thread) in self.calls.threads()? {
            self.sink.unfinished(id, &thread, time);
        }
        self.sink.meta(&clocks::snapshot().into());
        // Records that a full disk refuses from here on must be in the accounts before those are
        // written.
        self.sink.flush();
        let ledger = Ledger {
            looks,
            ..self.ledger(true)?
        };
        self.sink.meta(&ledger.clone().into());
        self.sink.meta(&End { time, reason }.into());
        self.sink.flush();
        let RecordSink {
            writer, failure, ..
        } = self.sink;
        Ok(Stopped {
            ledger,
            capture_bytes: writer.size(),
            failure,
        })
    }

    /// Handles a command that arrived at the end.
    fn last(&mut self, command: Command) {
        match command {
            Command::Watched(found) => self.sink.watched(&found.0, &found.1),
            Command::Read(number, read) => self.sink.read(number, *read),
            _ => {}
        }
    }
}

/// Sends the collector a command and wakes it. Does nothing if the collector is gone.
fn send(commands: &Sender<Command>, wake: &OwnedFd, command: Command) {
    if commands.send(command).is_ok() {
        // This can fail only if 2^64 - 2 wake-ups are pending, and then the collector is awake.
        let _ = rustix::io::write(wake, &1u64.to_ne_bytes());
    }
}

/// Starts the watcher, which sends its findings as commands, and a tracker that informs it.
fn follow_gpu(
    settings: GpuSettings,
    commands: Sender<Command>,
) -> Result<(Watcher, GpuTracker), ProbeError> {
    let has_clocks = settings.clocks.is_some();
    let sampling = settings
        .clocks
        .map(|clocks| Sampling::new(clocks, settings.live));
    let watcher = Watcher::start(
        sampling,
        settings.gpus,
        settings.scratch,
        settings.look_budget,
        move |found| {
            // The findings are not urgent, so there is no wake-up: the collector's next round is
            // soon enough. A collector that is gone does not need them.
            let _ = commands.send(Command::Watched(Box::new((found.records, found.metas))));
        },
    )
    .map_err(|error| start_error(&error))?;
    let tracker = GpuTracker::new(
        settings.agents,
        has_clocks,
        settings.scratch,
        watcher.sender.clone(),
    );
    Ok((watcher, tracker))
}

fn start_error(error: &io::Error) -> ProbeError {
    ProbeError::Refused {
        action: "start the collector".to_owned(),
        cause: error.to_string(),
        log: Vec::new(),
    }
}
