//! The course of a recording.

use std::{
    collections::BTreeSet, ffi::OsString, fs::File, path::PathBuf, process::ExitStatus, sync::Arc,
    time::Duration,
};

use gputrace_abi::{domain::Domain, record::task_op};
use gputrace_capture::{
    CaptureWriter, Meta,
    ledger::Ledger,
    meta::{EndReason, Notice},
};
use gputrace_collect::{Collector, CollectorHandle, Command, GpuSettings, Happening, Settings, clocks};
use gputrace_export::OutputDir;
use gputrace_files::{kernel, own};
use gputrace_kfd::Paths;
use gputrace_probe::{
    attach::{Backend as _, PerfEvents, Scope},
    calls::{CallLimit, Calls, Options},
    holds::Holds,
    ioctls::Ioctls,
    present_cpus,
    tasks::Tasks,
    trace::Functions,
};
use gputrace_target::{
    elf::ElfError,
    interp::InterpError,
    process::{self, ProcessError},
};
use gputrace_text::Line;
use tokio::{
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval_at, sleep},
};

use crate::{
    SessionError, counters, descriptors,
    driver::Driver,
    ending::{Ending, Stops, ended, ends_of},
    gpu::Gpus,
    holder::Holder,
    inbox::{Inbox, News},
    instrument::Instruments,
    launch::{Program, Start},
    linkers::{self, Linkers},
    live::Live,
    names::Names,
    outputs::Outputs,
    pasids::Pasids,
    periods::{Course, Schedule},
    place::Place,
    request::{Format, Request, Targets},
    said::Said,
    scan::{self, Interest, Scanner},
    smi::Listener,
    smi_functions, system,
    urgency::Urgency,
    user::User,
};

/// How often to look for processes that have gone.
const TICK: Duration = Duration::from_secs(1);

/// After how many ticks to look for libraries that nothing told of.
const TICKS_PER_LOOK: u64 = 10;

/// Functions with ids up to this can be limited in how often they may be called.
pub(crate) const LIMITED_FUNCTIONS: u32 = 1 << 15;

/// What a recording left behind.
#[derive(Debug)]
pub struct Finished {
    /// The capture; empty if it had no name.
    pub capture: PathBuf,
    /// Where the outputs are.
    pub directory: OutputDir,
    /// How their names begin.
    pub name: String,
    /// The process launched, or the first of those attached to.
    pub main_pid: Option<u32>,
    /// When it began, ns `CLOCK_BOOTTIME`.
    pub began: u64,
    /// When it ended, ns `CLOCK_BOOTTIME`.
    pub ended: u64,
    /// The final accounts.
    pub ledger: Ledger,
    /// The outputs.
    pub outputs: Outputs,
    /// Why it ended.
    pub reason: EndReason,
    /// How the launched program ended, if there was one and it has.
    pub program: Option<ExitStatus>,
    /// First failure to write the capture, if any.
    pub capture_failure: Option<String>,
    /// Whether libraries or functions that were asked for were not found, which the user has been told.
    pub nothing_matched: bool,
}

/// Shows the user a line about the course of the recording.
pub type Say<'a> = &'a dyn Fn(&Line);

/// Makes a recording. Returns when everything is written.
///
/// # Errors
///
/// [`SessionError`]. What was recorded before stays in the capture.
pub fn record(request: &Request, say: Say<'_>) -> Result<Finished, SessionError> {
    check_targets(request)?;
    // What is missing for an output is better known now than when everything has been recorded.
    if request.output.formats.list.contains(&Format::Otf2) {
        gputrace_otf2::available()?;
    }
    let before = descriptors::raise();
    let user = User::behind_sudo();
    let owner = user.as_ref().map(User::owner);
    let names = Names::of_targets(&request.targets);
    let place = Place::find(&request.output, &names, owner)?;

    let ring_bytes = request
        .ring_bytes
        .unwrap_or_else(|| system::ring_bytes(present_cpus().len()));
    let follow_forks = request.follows_forks();
    let calls = Arc::new(Calls::load(&Options {
        backend: request.backend,
        ring_bytes,
        max_threads: request.max_threads,
        max_processes: Options::MAX_PROCESSES,
        follow_forks,
        every_library: !request.others.is_empty(),
        limit: request.others.is_limited().then_some(CallLimit {
            calls_per_second: request.others.max_call_rate,
            functions: LIMITED_FUNCTIONS,
        }),
    })?);
    if !request.periods.is_empty() {
        calls.pause(true)?;
    }
    for stem in gputrace_catalog::library_stems() {
        calls.add_interest(stem.as_bytes())?;
    }
    let tasks = Tasks::load(request.debug_ebpf, follow_forks)?;
    // Before there are other threads, which a fork would leave behind in any state.
    let holder = match request.targets {
        Targets::Launch { hold: true, .. } => {
            let holder = Holder::start(Holds::of(&calls)?);
            Some(holder.map_err(|cause| SessionError::System {
                action: "start helper processes",
                cause,
            })?)
        }
        _ => None,
    };
    let mut driver = Driver::new(request);
    let driver_news = driver.attach(&calls);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|cause| SessionError::System {
            action: "set up the event loop",
            cause,
        })?;
    runtime.block_on(async {
        let mut linkers = Linkers::new(Arc::clone(&calls));
        linkers.watch(request);
        // From here on there is a process of the program's, so Ctrl-C must already mean "stop recording".
        let mut stops = Stops::new()?;
        let profiled = request.queue_profiling && request.domains.contains(&Domain::KernelDispatch);
        let program = match &request.targets {
            Targets::Launch { command, hold } => Some(Program::prepare(
                &calls,
                &Start {
                    command,
                    user: user.as_ref(),
                    before,
                    hold: *hold,
                    profiled,
                },
            )?),
            _ => None,
        };
        let main_pid = match &request.targets {
            Targets::Launch { .. } => program.as_ref().map(|program| program.pid),
            Targets::Attach { pids, .. } => pids.first().copied(),
            Targets::Node => None,
        };
        let place = match (place, main_pid) {
            (Some(place), _) => place,
            (None, pid) => Place::find(
                &request.output,
                &names.with_process(pid.unwrap_or_default()),
                owner,
            )?
            .ok_or(SessionError::NoTarget)?,
        };
        let fallback = main_pid.map_or_else(|| "node".to_owned(), |pid| pid.to_string());
        let (file, capture, name) = place.create(&fallback)?;
        let follower = open_again(&file)?;
        let mut writer = CaptureWriter::create(file, &system::recording(request, calls.backend(), main_pid))?;
        let live = match request.output.live {
            Some(format) => {
                Some(Live::start(follower, format, request.output.formats.clone()).map_err(thread_error)?)
            }
            None => None,
        };
        if let Some(live) = &live {
            live.limit(&mut writer);
        }
        let mut clock_news = Vec::new();
        let (gpus, gpu_clocks, remarks) = if gputrace_catalog::is_gpu_traced(&request.domains) {
            let (gpus, gpu_clocks, remarks) = Gpus::find();
            if gpu_clocks.is_none() && gpus.any() {
                driver.want_clocks();
                clock_news = driver.attach(&calls);
            }
            (Some(gpus), gpu_clocks, remarks)
        } else {
            (None, None, Vec::new())
        };
        let inbox = Inbox::default();
        let post = inbox.post();
        let settings = Settings {
            calls: Arc::clone(&calls),
            tasks: Some(tasks),
            debug: request.debug_ebpf,
            ring_bytes,
            follow_forks,
            writer,
            gpu: gpus.as_ref().map(|gpus| GpuSettings {
                clocks: gpu_clocks,
                agents: gpus.nodes(),
                scratch: request.domains.contains(&Domain::ScratchMemory),
                look_budget: request.look_budget,
                live: live.is_some(),
            }),
        };
        let collector = Collector::start(settings, move |happening| {
            post.put(News::Happening(happening));
        })?;
        let instruments = Instruments::new(Arc::clone(&calls), request);
        let mut recorder = Recorder {
            request,
            say,
            calls,
            collector,
            inbox,
            scanner: None,
            letting_go: None,
            instruments,
            linkers,
            program,
            holder,
            gpus,
            driver,
            listener: None,
            functions: None,
            counters: None,
            pasids: Pasids::default(),
            described: BTreeSet::new(),
            said: Said::default(),
            failure: None,
            live,
            main_pid,
            course: Course::default(),
            nothing_matched: false,
            began: clocks::now(),
            ticks: 0,
            first_users: Vec::new(),
            last_look: clocks::now(),
            // The program's process is there already, and stays as it is.
            urgency: matches!(request.targets, Targets::Launch { hold: true, .. }).then(Urgency::begin),
        };
        recorder.describe_gpus(remarks);
        recorder.describe_held();
        recorder.driver_news(driver_news);
        recorder.listen();
        recorder.read_counters();
        recorder.look_for_pasids();
        recorder.driver_news(clock_news);
        recorder.begin()?;
        let reason = recorder.wait(&mut stops).await?;
        recorder
            .finish(reason, stops, &place.directory, &name, capture)
            .await
    })
}

/// The same file, to be read from its beginning.
fn open_again(file: &File) -> Result<File, SessionError> {
    own::open_again(file).map_err(|cause| SessionError::System {
        action: "read the capture while it grows",
        cause,
    })
}

fn thread_error(cause: std::io::Error) -> SessionError {
    SessionError::System {
        action: "show the recording",
        cause,
    }
}

/// Says what is wrong with the targets before anything is loaded.
fn check_targets(request: &Request) -> Result<(), SessionError> {
    let others = &request.others;
    match &request.targets {
        Targets::Launch { command, .. } => check_command(command),
        Targets::Attach { pids, wait } => {
            for pid in pids {
                match process::rocm_libraries(*pid) {
                    Err(ProcessError::NoRocmLibraries { .. }) if *wait => {}
                    // Told later if there is nothing else either.
                    Err(ProcessError::NoRocmLibraries { .. } | ProcessError::StaticRuntime { .. })
                        if !others.is_empty() => {}
                    Err(error) => return Err(error.into()),
                    Ok(_) => {}
                }
            }
            Ok(())
        }
        Targets::Node => Ok(()),
    }
}

/// What keeps a program from being started or traced. A file that may be executed but not read is no
/// reason to give up.
fn check_command(command: &[OsString]) -> Result<(), SessionError> {
    match linkers::resolve(command) {
        Err(InterpError::Elf(ElfError::Read { .. })) | Ok(_) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// A running recording.
pub(crate) struct Recorder<'a> {
    pub(crate) request: &'a Request,
    pub(crate) say: Say<'a>,
    pub(crate) calls: Arc<Calls>,
    pub(crate) collector: CollectorHandle,
    pub(crate) inbox: Inbox,
    /// Who looks at all processes, if they are the target.
    pub(crate) scanner: Option<Scanner>,
    /// The survey after which libraries that nobody uses any more are let go.
    letting_go: Option<u64>,
    pub(crate) instruments: Instruments,
    pub(crate) linkers: Linkers,
    pub(crate) program: Option<Program>,
    /// Who holds threads, if they are to be held.
    pub(crate) holder: Option<Holder>,
    /// If the GPU's work is traced.
    pub(crate) gpus: Option<Gpus>,
    pub(crate) driver: Driver,
    /// Who listens to the driver, if it is to be listened to.
    pub(crate) listener: Option<Listener>,
    /// Programs on the driver's functions, if that cannot be.
    pub(crate) functions: Option<Functions>,
    /// Who reads counters, if they are wanted.
    pub(crate) counters: Option<counters::Reader>,
    /// Whose the driver's interrupts are, if they are recorded.
    pasids: Pasids,
    /// Processes whose description is in the capture.
    pub(crate) described: BTreeSet<u32>,
    /// What the user has been told of processes.
    pub(crate) said: Said,
    /// First failure to write the capture.
    pub(crate) failure: Option<String>,
    /// What shows the recording while it goes on.
    pub(crate) live: Option<Live>,
    pub(crate) main_pid: Option<u32>,
    pub(crate) course: Course,
    /// Whether libraries or functions that were asked for were not found, as far as the user has been told.
    pub(crate) nothing_matched: bool,
    /// When the recording began, ns `CLOCK_BOOTTIME`.
    pub(crate) began: u64,
    ticks: u64,
    /// While threads may be held.
    pub(crate) urgency: Option<Urgency>,
    /// Processes with libraries of interest that were there before the recording of the node began.
    pub(crate) first_users: Vec<u32>,
    /// When the libraries of targets were last looked at without being told, ns `CLOCK_BOOTTIME`.
    pub(crate) last_look: u64,
}

impl Recorder<'_> {
    /// Puts probes onto what is there already.
    fn begin(&mut self) -> Result<(), SessionError> {
        match &self.request.targets {
            Targets::Launch { command, .. } => {
                if let Some(pid) = self.program.as_ref().map(|program| program.pid) {
                    self.collector.send(Command::Process(pid));
                    let name = command.first().map(|name| name.to_string_lossy().into_owned());
                    self.tell(&format!(
                        "recording {} (process {pid}) by {}; Ctrl-C stops",
                        name.unwrap_or_default(),
                        self.calls.backend()
                    ));
                }
                self.instruments
                    .libraries_in_advance(Scope::EveryProcess, &self.collector);
                // Perf events come and go slowly. Then it is better to hold whoever maps a library.
                if self.calls.backend() != PerfEvents.name() {
                    for file in self.linkers.candidates_of(command) {
                        self.try_candidate(file, Scope::EveryProcess);
                    }
                }
                if let Some(program) = &mut self.program {
                    program.execute(command)?;
                }
            }
            Targets::Attach { pids, wait } => {
                for pid in pids {
                    let scope = self.request.scope(*pid);
                    if !*wait {
                        self.instruments.check_libraries(*pid)?;
                    }
                    let outcome = self.instruments.process(*pid, scope, &self.collector);
                    for text in self.instruments.take_untold() {
                        self.tell(&text);
                    }
                    match outcome {
                        Err(SessionError::Process(ProcessError::NoRocmLibraries { .. })) if *wait => {}
                        Err(error) => return Err(error),
                        Ok((news, _)) => self.announce(&news),
                    }
                    if !*wait && let Some(error) = self.instruments.take_unmatched().into_iter().next() {
                        return Err(error);
                    }
                    self.instruments.libraries_in_advance(scope, &self.collector);
                    for file in self.linkers.candidates(Some(*pid)) {
                        self.try_candidate(file, scope);
                    }
                    self.collector.send(Command::Process(*pid));
                    self.describe(*pid);
                }
                for pid in pids {
                    self.calls.add_target(*pid, 0)?;
                    // Not before: what a process that is no target yet loads, nobody tells of.
                    self.code_objects(*pid);
                }
                let list: Vec<String> = pids.iter().map(u32::to_string).collect();
                self.ready(&format!("process {}", list.join(", ")));
            }
            Targets::Node => {
                let interest = if self.request.others.is_empty() {
                    Interest::Rocm
                } else {
                    // Others than ROCm's users may have the libraries.
                    Interest::Any
                };
                let scanner = Scanner::start(interest, self.inbox.post()).map_err(thread_error)?;
                if let Some(error) = scanner.blind() {
                    tracing::debug!("the kernel does not tell of mapped code ({error}): linkers are watched");
                    self.linkers.watch_node();
                }
                // The rest follows when all processes have been looked at: `node_surveyed`.
                self.scanner = Some(scanner);
            }
        }
        Ok(())
    }

    /// All processes have been looked at. True if that was so for the first time: the recording begins.
    fn node_surveyed(&mut self, number: u64) -> Result<bool, SessionError> {
        if self.letting_go.take_if(|wanted| *wanted <= number).is_some() {
            self.instruments.release();
        }
        if number != scan::FIRST {
            return Ok(false);
        }
        self.instruments
            .libraries_in_advance(Scope::EveryProcess, &self.collector);
        for file in self.linkers.candidates(None) {
            self.try_candidate(file, Scope::EveryProcess);
        }
        self.calls.add_every_process()?;
        // Not before: what a process that is no target yet loads, nobody tells of.
        for pid in std::mem::take(&mut self.first_users) {
            self.code_objects(pid);
        }
        self.ready("every process of this node");
        Ok(true)
    }

    /// Listens to the driver's events, if they are wanted.
    fn listen(&mut self) {
        if !self.request.domains.contains(&Domain::KfdEvent) {
            return;
        }
        let (listener, mut remarks) = Listener::start(&Paths::default(), self.collector.sender());
        let mut news = Vec::new();
        if listener.is_none() && Ioctls::is_driver_loaded() {
            match smi_functions::attach(&self.calls, self.request.tracepoint_rate) {
                Ok((functions, layouts)) => {
                    self.functions = Some(functions);
                    remarks.push(format!(
                        "events of KFD are recorded by breakpoints on {} of the driver's functions instead: all but migrations",
                        layouts.len()
                    ));
                    news = layouts;
                }
                Err(error) => remarks.push(format!("nor by breakpoints in the driver: {error}")),
            }
        }
        self.listener = listener;
        let time = clocks::now();
        news.extend(remarks.into_iter().map(|text| Notice { time, text }.into()));
        self.driver_news(news);
    }

    /// Reads counters now and then, if they are wanted.
    fn read_counters(&mut self) {
        let Some(hertz) = self.request.counter_rate else {
            return;
        };
        let sender = self.collector.sender();
        let (reader, news) =
            counters::Reader::start(Paths::default(), hertz, Arc::clone(&self.calls), sender);
        self.counters = reader;
        let time = clocks::now();
        let news = news.map(|text| Notice { time, text }.into());
        self.driver_news(news.into_iter().collect());
    }

    /// Looks whose the driver's interrupts are, if tracepoints are recorded.
    fn look_for_pasids(&mut self) {
        if self.request.domains.contains(&Domain::Tracepoint) {
            for meta in self.pasids.look(&Paths::default()) {
                self.collector.send(Command::Meta(Box::new(meta)));
            }
        }
    }

    /// Tells of the programs on the driver, and remembers it.
    fn driver_news(&self, news: Vec<Meta>) {
        for meta in news {
            if let Meta::Notice(notice) = &meta {
                self.tell(&notice.text);
            }
            self.collector.send(Command::Meta(Box::new(meta)));
        }
    }

    /// Waits for the end. Everything that happens in between is taken care of here.
    async fn wait(&mut self, stops: &mut Stops) -> Result<Ending, SessionError> {
        // Not at once: what there is now has just been looked at.
        let mut tick = interval_at(Instant::now() + TICK, TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let over = sleep(self.request.duration.unwrap_or(Duration::MAX));
        tokio::pin!(over);
        let mut schedule = Schedule::new(&self.request.periods);
        let mut next = schedule.next();
        let switch = sleep(next.map_or(Duration::MAX, |next| next.after));
        tokio::pin!(switch);
        let unread = self.live.as_ref().map(Live::closed);
        let unread = async move {
            match unread {
                Some(unread) => unread.await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(unread);
        let mut attached = match &self.request.targets {
            Targets::Attach { pids, .. } => ends_of(pids),
            _ => JoinSet::new(),
        };
        loop {
            tokio::select! {
                // Signals first: under a flood of happenings, Ctrl-C must still work.
                biased;
                stop = stops.next() => return Ok(Ending::Stopped(stop)),
                () = &mut unread => return Ok(Ending::Unread),
                () = &mut over, if self.request.duration.is_some() => return Ok(Ending::DurationOver),
                () = &mut switch, if next.is_some() => {
                    self.switch(next.is_some_and(|next| next.on));
                    next = schedule.next();
                    match next {
                        Some(next) => {
                            let due = switch.deadline() + next.after;
                            switch.as_mut().reset(due);
                        }
                        None => return Ok(Ending::DurationOver),
                    }
                }
                ended = ended(&mut self.program), if self.program.is_some() => {
                    return Ok(Ending::ProgramEnded(ended));
                }
                Some(_) = attached.join_next() => {
                    if attached.is_empty() {
                        return Ok(Ending::TargetsGone);
                    }
                }
                news = self.inbox.take() => {
                    if self.take(news)? {
                        // What was asked for counts from now on.
                        let now = Instant::now();
                        if let Some(due) = self.request.duration.and_then(|after| now.checked_add(after)) {
                            over.as_mut().reset(due);
                        }
                        if let Some(due) = next.and_then(|next| now.checked_add(next.after)) {
                            switch.as_mut().reset(due);
                        }
                    }
                    if self.failure.is_some() {
                        return Ok(Ending::CaptureFailed);
                    }
                }
                _ = tick.tick() => self.tick(),
            }
        }
    }

    /// Takes care of a piece of news. True if the recording of the node has only now begun.
    fn take(&mut self, news: News) -> Result<bool, SessionError> {
        let happening = match news {
            News::Happening(happening) => happening,
            News::Mapped { pid, since } => {
                self.mapped(pid, since);
                return Ok(false);
            }
            News::Surveyed(number) => return self.node_surveyed(number),
        };
        match happening {
            Happening::NewProcess(pid) => self.describe(pid),
            Happening::Task(task) => match task.op {
                task_op::EXEC => {
                    self.forget_gpu(task.pid);
                    self.describe(task.pid);
                }
                task_op::EXIT if task.pid == task.tid => {
                    self.described.remove(&task.pid);
                    self.forget_gpu(task.pid);
                }
                task_op::FORK if self.request.follows_forks() => {
                    self.linkers.forked(task.parent, task.pid);
                    self.describe(task.pid);
                }
                _ => {}
            },
            Happening::Linker(task) => self.linker_changed(&task),
            Happening::Kernel { pid, kernel_object } => self.new_kernel(pid, kernel_object),
            Happening::Remark(text) => self.tell(&text),
            Happening::CaptureFailed(text) => self.failure = Some(text),
        }
        Ok(false)
    }

    /// A collection period begins or ends. All that is recorded in it has begun between the times that are told.
    fn switch(&mut self, on: bool) {
        let mut time = clocks::now();
        if on {
            self.collector.passed_over();
            time = clocks::now();
        }
        // It worked before; if it fails now, more is recorded than was asked for, or less.
        if let Err(error) = self.calls.pause(!on) {
            self.tell(&format!(
                "a collection period could not be begun or ended: {error}"
            ));
            return;
        }
        if !on {
            time = clocks::now();
        }
        if let Some(text) = self.course.switched(on, time) {
            self.tell(text.trim_end_matches('.'));
            self.collector
                .send(Command::Meta(Box::new(Notice { time, text }.into())));
        }
    }

    /// Once a second: forget processes that are gone, whose ids could be given to others.
    fn tick(&mut self) {
        for pid in self.calls.targets().unwrap_or_default() {
            if pid != 0 && !kernel::exists(format!("/proc/{pid}")) {
                // It can only fail if it is gone from the map already.
                let _ = self.calls.remove_target(pid);
            }
        }
        self.ticks += 1;
        self.tell_stuck();
        // What cannot be read now is told at the end.
        for text in self.instruments.cool().unwrap_or_default() {
            self.remark(text);
        }
        let news = self.driver.attach(&self.calls);
        self.driver_news(news);
        self.look_for_pasids();
        self.tell_unmatched();
        let refused = self.inbox.take_refused();
        if refused != 0 {
            self.remark(format!(
                "so much happened at once that {refused} events of processes were dropped: names \
                 of processes and threads may be missing"
            ));
        }
        let due = self.ticks.is_multiple_of(TICKS_PER_LOOK);
        if let Some(scanner) = &mut self.scanner {
            // Where the kernel tells what is mapped, there is nothing to look for but what is not there any more.
            let is_due = due && scanner.blind().is_some();
            let unused = due && self.instruments.look_for_users();
            if is_due || unused || refused != 0 {
                let number = scanner.survey();
                self.letting_go = unused.then_some(number).or(self.letting_go);
            }
        } else if due || !self.linkers.any() {
            // Dynamic linkers tell of new libraries, if they are watched; one in a container that started
            // meanwhile is not.
            self.look();
        }
        if due {
            self.linkers.release();
        }
    }
}
