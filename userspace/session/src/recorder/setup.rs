//! Sets a recording up: loads, opens and starts everything that is needed before the first probe.

use std::{ffi::OsString, fs::File, io, path::PathBuf, sync::Arc};

use gputrace_abi::domain::Domain;
use gputrace_capture::{
    CaptureWriter, Meta,
    meta::{ProbePrices, Recording},
};
use gputrace_collect::{Collector, CollectorHandle, GpuClocks, GpuSettings, Settings};
use gputrace_export::OutputDir;
use gputrace_files::own;
use gputrace_loader::{
    calls::{CallLimit, Calls, Options},
    holds::Holds,
    present_cpus,
    probes::Probes,
    tasks::Tasks,
};
use gputrace_text::Line;
use gputrace_tracee::{
    elf::ElfError,
    interp::InterpError,
    process::{self, ProcessError},
};
use tokio::runtime::{self, Runtime};

use super::{
    Finished, Recorder, Say, Told, ending::Stops, flight::FlightRecorder, gpus::Gpus,
    on_dump::OnDump, periods::Course,
};
use crate::{
    SessionError,
    inbox::Inbox,
    outputs::{flight::Flight, live::Live, location::OutputLocation, placeholders::Names},
    probing::{
        instruments::{Instruments, LIMITED_FUNCTIONS},
        limiter,
        linkers::{self, Linkers},
        prices,
    },
    remote::Remote,
    request::{Request, Targets},
    sources::{Sources, Wanted},
    system,
    targets::{
        Traced, descriptors,
        holder::Holder,
        launch::{Program, Start},
        user::User,
    },
};

/// Makes a recording. Returns when everything is written.
///
/// # Errors
///
/// [`SessionError`]. Whatever was recorded before the error stays in the capture.
pub fn record(request: &Request, say: Say<'_>) -> Result<Finished, SessionError> {
    make(request, say, None)
}

/// Makes a recording for another program, which reads it while it is made, and controls it.
///
/// # Errors
///
/// As [`record`].
pub fn record_for(
    remote: Remote,
    request: &Request,
    say: Say<'_>,
) -> Result<Finished, SessionError> {
    make(request, say, Some(remote))
}

fn make(
    request: &Request,
    say: Say<'_>,
    mut remote: Option<Remote>,
) -> Result<Finished, SessionError> {
    check(request)?;
    if system::is_switched_off() {
        return Err(SessionError::SwitchedOff);
    }
    let before = descriptors::raise();
    let user = User::behind_sudo();
    let owner = user.as_ref().map(User::owner);
    let names = Names::of_targets(&request.targets);
    let place = OutputLocation::find(&request.output, &names, owner)?;

    let Loaded {
        calls,
        tasks,
        holder,
        ring_bytes,
        priced,
    } = Loaded::new(request, say)?;
    let mut gpus = FoundGpus::of(request);
    let mut sources = Sources::new(&Wanted {
        request,
        clocks_of_runtimes: gpus.want_clocks_of_runtimes(),
    });
    let mut news = sources.tick(&calls);
    event_loop()?.block_on(async {
        let mut linkers = Linkers::new(Arc::clone(&calls));
        linkers.watch(request);
        // From here on the program's process exists, so Ctrl-C must already mean "stop recording".
        let mut stops = Stops::new()?;
        let program = prepare(request, &calls, user.as_ref(), before)?;
        let main_pid = main_pid(request, program.as_ref());
        let place = match place {
            Some(place) => place,
            // The name of the outputs depends on the process.
            None => OutputLocation::find(
                &request.output,
                &names.with_process(main_pid.unwrap_or_default()),
                owner,
            )?
            .ok_or(SessionError::NoTarget)?,
        };
        let (prices, probes) = priced;
        let recording = system::recording(request, calls.backend(), main_pid, prices);
        let command = request
            .output
            .flight
            .as_ref()
            .and_then(|flight| flight.on_dump.clone());
        let on_dump = command.map(|command| OnDump::new(command, user.clone(), before));
        let opened = Opened::new(request, place, &recording, on_dump, remote.as_mut())?;
        let is_live = opened.live.is_some() || remote.is_some();
        let inbox = Inbox::default();
        let clocks = gpus.clocks.take();
        let collector = start_collector(
            Settings {
                calls: Arc::clone(&calls),
                tasks: Some(tasks),
                debug: request.debug_ebpf,
                ring_bytes,
                follow_forks: request.follows_forks(),
                writer: opened.writer,
                size_limit: request.size_limit,
                gpu: gpus.settings(request, clocks, is_live),
            },
            &inbox,
        )?;
        limiter::withdraw(probes);
        let mut recorder = Recorder {
            request,
            say,
            collector,
            inbox,
            instruments: Instruments::new(Arc::clone(&calls), request, prices),
            targets: Traced::new(request, linkers, program, holder, main_pid),
            gpus: gpus.gpus,
            sources,
            told: Told::default(),
            live: opened.live,
            remote,
            flight: opened.flight,
            course: Course::begin(request.periods.is_empty()),
            calls,
        };
        recorder.describe_gpus(gpus.remarks);
        recorder.describe_held();
        news.extend(recorder.start_sources());
        recorder.driver_news(news);
        recorder.begin()?;
        let reason = recorder.wait(&mut stops).await?;
        let (directory, name) = (&opened.directory, &opened.name);
        let finished = recorder.finish(reason, stops, directory, name, opened.capture);
        finished.await
    })
}

/// Checks what was asked for.
fn check(request: &Request) -> Result<(), SessionError> {
    check_targets(request)?;
    // If an output cannot be made, it is better to say so now than after the recording.
    for format in &request.output.formats.list {
        format.check()?;
    }
    Ok(())
}

/// What waits for all that the recording reacts to, in this thread.
fn event_loop() -> Result<Runtime, SessionError> {
    runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|cause| SessionError::System {
            action: "set up the event loop",
            cause,
        })
}

/// What is loaded into the kernel before there are targets.
struct Loaded {
    calls: Arc<Calls>,
    tasks: Tasks,
    /// Holds threads, if that was requested.
    holder: Option<Holder>,
    /// Size of each CPU's ring.
    ring_bytes: u32,
    /// What hits of probes cost, and the probes with which that was measured. They do no harm, and
    /// their removal takes longer than the measurement.
    priced: (ProbePrices, Vec<Probes>),
}

impl Loaded {
    fn new(request: &Request, say: Say<'_>) -> Result<Self, SessionError> {
        let ring_bytes = request
            .ring_bytes
            .unwrap_or_else(|| system::ring_bytes(present_cpus().len()));
        let follow_forks = request.follows_forks();
        let options = Options {
            backend: request.backend,
            ring_bytes,
            max_threads: request.max_threads,
            max_processes: Options::MAX_PROCESSES,
            follow_forks,
            stacks: request.stacks.is_some(),
            every_library: !request.extra.is_empty(),
            limit: request.limits_calls().then_some(CallLimit {
                calls_per_second: request.extra.max_call_rate,
                functions: LIMITED_FUNCTIONS,
            }),
        };
        let say = |text: &str| say(&Line::new(text));
        let calls = Arc::new(Calls::load_telling(&options, Some(&say))?);
        if request.overhead_limit.is_some() && !calls.is_multi() {
            return Err(SessionError::FixedProbes);
        }
        // Before the pause below, in which hits are cheaper, and before there are targets.
        let priced = prices::measure(&calls);
        if !request.periods.is_empty() {
            calls.pause(true)?;
        }
        for stem in gputrace_catalog::library_stems() {
            calls.add_interest(stem.as_bytes())?;
        }
        let tasks = Tasks::load(request.debug_ebpf, follow_forks)?;
        // Forks before other threads exist: a fork would leave their locks in any state.
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
        Ok(Self {
            calls,
            tasks,
            holder,
            ring_bytes,
            priced,
        })
    }
}

/// The GPUs and their clocks, if the GPU's work is traced.
#[derive(Default)]
struct FoundGpus {
    gpus: Option<Gpus>,
    clocks: Option<GpuClocks>,
    remarks: Vec<String>,
}

impl FoundGpus {
    fn of(request: &Request) -> Self {
        if !gputrace_catalog::is_gpu_traced(&request.domains) {
            return Self::default();
        }
        let (gpus, clocks, remarks) = Gpus::find();
        Self {
            gpus: Some(gpus),
            clocks,
            remarks,
        }
    }

    /// Whether there are GPUs whose clocks gputrace cannot read by itself.
    fn want_clocks_of_runtimes(&self) -> bool {
        self.clocks.is_none() && self.gpus.as_ref().is_some_and(Gpus::any)
    }

    fn settings(
        &self,
        request: &Request,
        clocks: Option<GpuClocks>,
        live: bool,
    ) -> Option<GpuSettings> {
        let gpus = self.gpus.as_ref()?;
        Some(GpuSettings {
            clocks,
            gpus: gpus.with_registers(),
            agents: gpus.nodes(),
            scratch: request.domains.contains(&Domain::ScratchMemory),
            look_budget: request.look_budget,
            live,
        })
    }
}

/// The capture, and the live output that follows it.
struct Opened {
    writer: CaptureWriter<File>,
    live: Option<Live>,
    flight: Option<FlightRecorder>,
    /// Path of the capture; empty if it has no name.
    capture: PathBuf,
    /// Directory of the outputs.
    directory: OutputDir,
    /// First part of the names of the outputs.
    name: String,
}

impl Opened {
    fn new(
        request: &Request,
        place: OutputLocation,
        recording: &Recording,
        on_dump: Option<OnDump>,
        remote: Option<&mut Remote>,
    ) -> Result<Self, SessionError> {
        let main_pid = recording.main_pid;
        let fallback = main_pid.map_or_else(|| "node".to_owned(), |pid| pid.to_string());
        let (file, capture, name) = place.create(&fallback)?;
        let again = own::open_again(&file);
        let follower = again.map_err(reading_fails)?;
        let mut writer = CaptureWriter::create(file, recording)?;
        if let Some(remote) = remote {
            let follower = own::open_again(writer.sink()).map_err(reading_fails)?;
            let is_kept = !request.output.unkept;
            let opened = remote.open(follower, &mut writer, is_kept);
            opened.map_err(|cause| SessionError::System {
                action: "hand the capture to the program that reads it",
                cause,
            })?;
        }
        let formats = || request.output.formats.clone();
        let live = request
            .output
            .live
            .clone()
            .map(|output| Live::start(follower, output, formats()));
        let live = live.transpose().map_err(|cause| SessionError::System {
            action: "show the recording",
            cause,
        })?;
        if let Some(live) = &live {
            live.limit(&mut writer);
        }
        let flight = request.output.flight.clone().map(|flight| {
            let threads = Flight::start(|| own::open_again(writer.sink()), &flight);
            let threads = threads.map_err(reading_fails)?;
            threads.limit(&mut writer);
            FlightRecorder::new(
                flight,
                threads,
                place.directory.clone(),
                name.clone(),
                on_dump,
            )
        });
        let flight = flight.transpose()?;
        Ok(Self {
            writer,
            live,
            flight,
            capture,
            directory: place.directory,
            name,
        })
    }
}

fn reading_fails(cause: io::Error) -> SessionError {
    SessionError::System {
        action: "read the capture while it grows",
        cause,
    }
}

fn start_collector(settings: Settings, inbox: &Inbox) -> Result<CollectorHandle, SessionError> {
    let post = inbox.post();
    Ok(Collector::start(settings, move |event| {
        post.put(event.into());
    })?)
}

/// Creates the process of the program to launch, if there is one.
fn prepare(
    request: &Request,
    calls: &Calls,
    user: Option<&User>,
    before: descriptors::Before,
) -> Result<Option<Program>, SessionError> {
    let Targets::Launch { command, hold } = &request.targets else {
        return Ok(None);
    };
    let start = Start {
        command,
        user,
        before,
        hold: *hold,
        profiled: request.queue_profiling && request.domains.contains(&Domain::KernelDispatch),
    };
    Program::prepare(calls, &start).map(Some)
}

/// The launched process, or the first of those attached to.
fn main_pid(request: &Request, program: Option<&Program>) -> Option<u32> {
    match &request.targets {
        Targets::Launch { .. } => program.map(|program| program.pid),
        Targets::Attach { pids, .. } => pids.first().copied(),
        Targets::Node => None,
    }
}

impl Recorder<'_> {
    /// Starts the threads of the sources, now that the collector runs.
    fn start_sources(&mut self) -> Vec<Meta> {
        self.sources.start(&self.calls, &self.collector.sender())
    }
}

/// Checks the targets before anything is loaded.
fn check_targets(request: &Request) -> Result<(), SessionError> {
    let extra = &request.extra;
    match &request.targets {
        Targets::Launch { command, .. } => check_command(command),
        Targets::Attach { pids, wait } => {
            for pid in pids {
                process::check_is_process(*pid)?;
                match process::rocm_libraries(*pid) {
                    Err(ProcessError::NoRocmLibraries { .. })
                        if *wait && !process::has_ended(*pid) => {}
                    // Reported later, if nothing else is found either.
                    Err(
                        ProcessError::NoRocmLibraries { .. } | ProcessError::StaticRuntime { .. },
                    ) if !extra.is_empty() => {}
                    Err(error) => return Err(error.into()),
                    Ok(_) => {}
                }
            }
            Ok(())
        }
        Targets::Node => Ok(()),
    }
}

/// Checks that a program can be started and traced. A file that may be executed but not read is
/// accepted.
fn check_command(command: &[OsString]) -> Result<(), SessionError> {
    match linkers::resolve(command) {
        Err(InterpError::Elf(ElfError::Read { .. })) | Ok(_) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
