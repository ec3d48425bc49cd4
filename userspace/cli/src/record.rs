//! Makes a recording.

use std::{
    os::unix::process::ExitStatusExt as _, path::PathBuf, process::ExitStatus, time::Duration,
};

use anyhow::Result;
use gputrace_abi::{counters::DropReason, domain::Domain};
use gputrace_capture::{
    ledger::{Ledger, LedgerRow},
    meta::EndReason,
};
use gputrace_catalog::options::KOKKOS_TRACE;
use gputrace_export::OutputError;
use gputrace_loader::{calls::BackendChoice, ioctls::Place};
use gputrace_session::{
    ExtraFunctions, Finished, FunctionFilter, LiveOutput, Request, SessionError, SizeLimit,
    Targets, Watcher, record,
};
use gputrace_text::tables::{count, plural};
use gputrace_tracee::whose::Sources;

use crate::{
    args::{Backend, Cli, KfdProbes, LogLevel, OutputArgs, RecordArgs, stacks::StackedCalls},
    domains,
    effective::{self, Options},
    exit, export, flight, inspect,
    progress::ProgressView,
    say,
};

/// Records, and reports the result.
pub(crate) fn run(cli: &Cli, options: &Options) -> Result<Done> {
    let args = &cli.record;
    let mut request = match asked(args)? {
        Ok(request) => request,
        Err(error) => {
            say(&format!("error: {error}"));
            return Ok(Done::with(exit::USAGE));
        }
    };
    tell_settings(args, options);
    for text in remarks(args, &request) {
        say(text);
    }
    export::tell_useless(&args.output);
    let view = ProgressView::new();
    let shown = view.clone();
    request.output.watcher = Watcher::new(move |progress| shown.show(progress));
    let finished = record(&request, &|line| say(line.as_str()));
    view.finish();
    let finished = finished?;
    let printed = report(&finished, &args.output);
    flight::tell(&finished, args.flight.goes_on());
    if args.output.output_config {
        let written = effective::write(options, cli, &request, &finished)?;
        say(&format!("{} ({})", written.path.display(), written.content));
    }
    done(finished, printed)
}

/// The recording that the options ask for; or why they ask for nothing that can be done, for the
/// user.
pub(crate) fn asked(args: &RecordArgs) -> Result<Result<Request, String>> {
    let mut request = request(args, &pids(args)?);
    if let Err(error) = live(&mut request, &args.output) {
        return Ok(Err(error.to_owned()));
    }
    if let Err(error) = flight::check(&request) {
        return Ok(Err(error));
    }
    let refused = if request.domains.is_empty() {
        "the options leave nothing to trace; drop one that is =False"
    } else if matches!(request.targets, Targets::Node) && request.extra.program.is_some() {
        "--functions needs a program (`gputrace --functions REGEX -- ./app`) or a process (-p PID)"
    } else if args.output.selected_regions && !request.periods.is_empty() {
        "--selected-regions and -P exclude each other: between periods, gputrace would not see the \
         program switch recording on or off"
    } else {
        return Ok(Ok(request));
    };
    Ok(Err(refused.to_owned()))
}

/// What the user should know about a recording before it begins.
pub(crate) fn remarks(args: &RecordArgs, request: &Request) -> Vec<&'static str> {
    let any = |stem: &str| {
        let mut domains = request.domains.iter();
        domains.any(|domain| domain.name().starts_with(stem))
    };
    let mut remarks = Vec::new();
    if any("HSA_CORE") && args.hsa_include.is_none() {
        remarks.push(
            "HSA functions that are called very often and say little (hsa_signal_load_*, hsa_queue_load_*_index_*, hsa_executable_symbol_get_info) are left out; --hsa-include REGEX adds them",
        );
    }
    if args.hsa_include.is_some() && !any("HSA_") {
        remarks.push("--hsa-include has no effect without HSA domains; add --hsa-trace");
    }
    remarks
}

/// What became of a recording that was reported.
fn done(finished: Finished, printed: Result<(), OutputError>) -> Result<Done> {
    if let Some(failure) = finished.capture_failure {
        return Err(SessionError::CaptureFailed(failure).into());
    }
    printed?;
    if let Some(code) = export::failure(&finished.outputs.report) {
        return Ok(Done::with(code));
    }
    // The rest is recorded, but not what was asked for.
    if let Some(error) = finished.too_many {
        return Err(error.into());
    }
    Ok(Done {
        status: status(finished.program, &finished.reason),
        interrupted: finished.reason == EndReason::Interrupted,
    })
}

/// Reports a recording that was shown live, and says what became of it.
pub(crate) fn conclude(finished: Finished, args: &OutputArgs) -> Result<Done> {
    let printed = report(&finished, args);
    done(finished, printed)
}

/// Result of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    /// Its exit status.
    pub(crate) status: u8,
    /// Whether the user interrupted it.
    pub(crate) interrupted: bool,
}

impl Done {
    const fn with(status: u8) -> Self {
        Self {
            status,
            interrupted: false,
        }
    }
}

/// Prints the settings for rocprofv3's `--log-level env` and `config`.
fn tell_settings(args: &RecordArgs, options: &Options) {
    match args.tuning.log_level {
        LogLevel::Config => {
            say("options:");
            options.lines().for_each(|line| say(&line));
        }
        LogLevel::Env if args.program.is_empty() => {
            say("no program is started, so no environment variable is set");
        }
        LogLevel::Env if args.tuning.no_queue_profiling => say("no environment variable is set"),
        LogLevel::Env => {
            say(
                "with --kernel-trace, the program gets GPU_FORCE_QUEUE_PROFILING=1, unless the \
                 variable is already set",
            );
        }
        _ => {}
    }
}

/// The running processes to trace: those of `-p`, or those that the options choose.
pub(crate) fn pids(args: &RecordArgs) -> Result<Vec<u32>> {
    /// Maximum number of processes that are listed.
    const LISTED: usize = 10;
    let selection = args.select.selection();
    if selection.is_empty() {
        let mut pids = args.pids.clone();
        pids.sort_unstable();
        pids.dedup();
        return Ok(pids);
    }
    // Functions of programs are traced without a ROCm library, too.
    let any = args.wait || !args.functions.extra().is_empty();
    let mut sources = Sources::default();
    if !selection.gpus.is_empty() {
        sources.gpus = inspect::gpus_of_processes()?;
    }
    let chosen = selection.choose(&sources, any)?;
    for one in chosen.iter().take(LISTED) {
        say(&format!("chosen by {selection}: process {}", one.label()));
    }
    if let Some(more) = chosen.len().checked_sub(LISTED).filter(|more| *more > 0) {
        say(&format!(
            "and {}",
            plural(more as u64, "more process", "more processes")
        ));
    }
    Ok(chosen.into_iter().map(|one| one.pid).collect())
}

/// The recording of these processes that the options ask for.
pub(crate) fn request(args: &RecordArgs, pids: &[u32]) -> Request {
    let targets = if !args.program.is_empty() {
        Targets::Launch {
            command: args.program.clone(),
            hold: !args.tuning.no_hold,
        }
    } else if !pids.is_empty() {
        Targets::Attach {
            pids: pids.to_vec(),
            wait: args.wait,
        }
    } else {
        Targets::Node
    };
    let (directory, name) = place(&args.output);
    let kokkos = args.domains.get(KOKKOS_TRACE) == Some(true);
    let extra = ExtraFunctions {
        kokkos,
        ..args.functions.extra()
    };
    let mut output = export::request(&args.output, directory, name);
    output.flight = args.flight.request(args.max_size, args.max_duration);
    let ends = !args.flight.goes_on();
    // As in rocprofv3, because Kokkos's names of kernels say more than the kernels' own names.
    output.formats.kernels.rename |= kokkos;
    let mut domains = domains::selected(&args.domains);
    // As in rocprofv3, ranges after which kernels are named are recorded without being asked for,
    // and are then not shown.
    if output.formats.kernels.rename
        && !domains.is_empty()
        && !domains.contains(&Domain::MarkerCore)
    {
        domains.push(Domain::MarkerCore);
        output.formats.kernels.hide_markers = true;
    }
    let named =
        !args.tracepoint.is_empty() && args.domains.get(Domain::Tracepoint.option()).is_none();
    let tracepoints = named.then_some(Domain::Tracepoint);
    Request {
        targets,
        follow_forks: args.follow_forks,
        domains: domains
            .into_iter()
            .chain(extra.domains())
            .chain(tracepoints)
            .chain(args.counters.map(|_| Domain::Counter))
            .collect(),
        extra,
        functions: FunctionFilter {
            include: args.include.clone(),
            exclude: args.exclude.clone(),
            on_request: args.hsa_include.clone(),
        },
        periods: args
            .collection_period
            .iter()
            .map(|triple| triple.period(args.collection_period_unit))
            .collect(),
        queue_profiling: !args.tuning.no_queue_profiling,
        duration: args
            .duration
            .or(args.attach_duration_msec.map(Duration::from_millis))
            .into_iter()
            .chain(args.max_duration.filter(|_| ends))
            .min(),
        size_limit: SizeLimit {
            bytes: args.max_size.filter(|_| ends),
            events: args.max_events,
        },
        output,
        backend: match args.tuning.backend {
            Backend::Auto => BackendChoice::Auto,
            Backend::UprobeMulti => BackendChoice::UprobeMulti,
            Backend::Perf => BackendChoice::Perf,
        },
        driver_trace: args.domains.get(Domain::Tracepoint.option()) == Some(true),
        tracepoints: args.tracepoint.clone(),
        tracepoint_rate: args.tuning.tracepoint_rate,
        counter_rate: args.counters,
        stacks: args.stacks.as_deref().map(StackedCalls::chosen),
        kfd_place: match args.tuning.kfd_probes {
            KfdProbes::Auto => None,
            KfdProbes::Fentry => Some(Place::Trampoline),
            KfdProbes::Kprobe => Some(Place::Breakpoints),
            KfdProbes::Syscall => Some(Place::SystemCall),
        },
        ring_bytes: args.tuning.ring_size,
        overhead_limit: (args.tuning.overhead_limit != 0).then_some(args.tuning.overhead_limit),
        max_threads: args.tuning.max_threads,
        look_budget: args.tuning.look_budget,
        debug_ebpf: args.tuning.debug_ebpf,
        command_line: std::env::args_os()
            .map(|arg| arg.to_string_lossy().into_owned())
            .collect(),
    }
}

/// `-o -`: one format goes to standard output, and no files are written.
fn live(request: &mut Request, args: &OutputArgs) -> Result<(), &'static str> {
    if args.output_file.as_deref() != Some("-") {
        return Ok(());
    }
    let Some(format) = export::live_format(&request.output.formats.list) else {
        return Err("-o - shows the recording live, in one format: -f text or -f ndjson");
    };
    if args.output_config || args.wall_clock == Some(true) || args.summary.file().is_some() {
        return Err(
            "-o - makes no files: drop --output-config, --wall-clock and --summary-output-file, or give a name",
        );
    }
    if args.summary.takes_stdout() {
        return Err("-o - uses stdout for the recording; send the summary to stderr");
    }
    request.output.live = Some(LiveOutput::Lines(format));
    request.output.formats.list.clear();
    Ok(())
}

/// Directory and name of the outputs by rocprofv3's rules: without `-o`, they go into a directory
/// named after the host.
fn place(args: &OutputArgs) -> (PathBuf, Option<String>) {
    let base = args
        .output_directory
        .clone()
        .unwrap_or_else(|| PathBuf::from("."));
    match &args.output_file {
        Some(name) => (base, Some(name.clone())),
        None => (base.join("%hostname%"), None),
    }
}

/// Reports what was recorded: neither success nor losses are silent.
fn report(finished: &Finished, args: &OutputArgs) -> Result<(), OutputError> {
    // A user who presses Ctrl-C knows it.
    if let Some(status) = finished.program.filter(|status| status.signal().is_some())
        && finished.reason != EndReason::Interrupted
    {
        let status = status.to_string();
        say(&format!(
            "the program was killed by signal {}",
            status.trim_start_matches("signal: ")
        ));
    }
    let printed = export::report(&finished.outputs, args);
    if finished.capture_failure.is_none() {
        tell_account(finished);
    } else if finished.outputs.report.ended {
        say("the recording is incomplete: the capture could not be written any more");
        tell_account(finished);
    } else {
        // Only what the outputs say is known.
        say(
            "the recording is incomplete: it has no account, because the capture could not be \
             written to its end",
        );
    }
    if !finished.outputs.costs.is_empty() {
        say(&finished.outputs.costs);
    }
    if !finished.capture.as_os_str().is_empty() {
        say(&format!("capture: {}", finished.capture.display()));
    }
    printed
}

fn tell_account(finished: &Finished) {
    let ledger = &finished.ledger;
    let (calls, work, events) = (ledger.calls(), ledger.work(), ledger.events());
    if calls.seen == 0 && finished.nothing_matched {
        say("no call was recorded");
    } else if [&calls, &work, &events].iter().all(|row| row.seen == 0) {
        say(
            "no call was recorded. Did the program call HIP or HSA while it was traced? `gputrace list` shows \
             which processes have the libraries, -s traces HSA as well",
        );
    }
    let lost = lost(ledger);
    say(&format!("{}, {lost}", account(&calls, &work, &events)));
    let late = ledger.late_processes;
    if late > 0 {
        say(&format!(
            "CALLS MAY BE MISSING: {} ran on for a moment before a library had its probes; no \
             account includes what was called then",
            plural(late, "process", "processes")
        ));
    }
    let untraced = ledger.untraced_processes;
    if untraced > 0 {
        say(&format!(
            "NOT TRACED: {}, because there was no room for more processes; no account includes \
             what was done there",
            plural(untraced, "child process", "child processes")
        ));
    }
}

/// How many calls, pieces of work and events were seen and recorded.
fn account(calls: &LedgerRow, work: &LedgerRow, events: &LedgerRow) -> String {
    let recorded = |row: &LedgerRow| row.written + row.unfinished;
    let mut parts = vec![format!(
        "{} seen, {} recorded, {} of them unfinished",
        count(calls.seen, "call"),
        recorded(calls),
        calls.unfinished
    )];
    let others = [
        (work, "kernel or copy", "kernels and copies"),
        (
            events,
            "event of the scheduler and the driver",
            "events of the scheduler and the driver",
        ),
    ];
    for (row, one, many) in others.into_iter().filter(|(row, ..)| row.seen > 0) {
        let seen = plural(row.seen, one, many);
        parts.push(format!("{seen} seen, {} recorded", recorded(row)));
    }
    // Calls that nobody asked for need not be mentioned.
    if calls.seen == 0 && parts.len() > 1 {
        parts.remove(0);
    }
    parts.join("; ")
}

/// What was lost, and how to avoid it next time.
fn lost(ledger: &Ledger) -> String {
    let total = ledger.total();
    let lost = total.lost();
    if lost == 0 {
        // What no account includes is said in lines of its own.
        let all = ledger.late_processes == 0 && ledger.untraced_processes == 0;
        let none = if all {
            "none lost"
        } else {
            "none of these lost"
        };
        return none.to_owned();
    }
    match total.dropped_for(DropReason::RingFull) {
        0 => format!("{lost} LOST (see the loss ledger)"),
        full => format!(
            "{lost} LOST ({full} because buffers were full: make them larger with --ring-size, or record less; see the loss \
             ledger)"
        ),
    }
}

/// The program's exit code, as a shell reports it; 0 without a program.
fn status(program: Option<ExitStatus>, reason: &EndReason) -> u8 {
    match program {
        Some(status) => match (status.code(), status.signal()) {
            (Some(code), _) => u8::try_from(code & 0xff).unwrap_or(exit::FAILURE),
            (None, Some(signal)) => u8::try_from(128 + signal).unwrap_or(exit::FAILURE),
            (None, None) => exit::FAILURE,
        },
        None => match reason {
            EndReason::Failed(_) => exit::FAILURE,
            _ => 0,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_work_and_events_are_counted_apart() {
        let row = |seen| LedgerRow {
            seen,
            written: seen,
            ..LedgerRow::default()
        };
        for (calls, work, events, said) in [
            (
                83,
                61,
                0,
                "83 calls seen, 83 recorded, 0 of them unfinished; 61 kernels and copies seen, 61 \
                 recorded",
            ),
            (
                1,
                1,
                1,
                "1 call seen, 1 recorded, 0 of them unfinished; 1 kernel or copy seen, 1 \
                 recorded; 1 event of the scheduler and the driver seen, 1 recorded",
            ),
            (0, 2, 0, "2 kernels and copies seen, 2 recorded"),
            (0, 0, 0, "0 calls seen, 0 recorded, 0 of them unfinished"),
        ] {
            assert_eq!(account(&row(calls), &row(work), &row(events)), said);
        }
    }

    #[test]
    fn an_account_that_may_not_include_all_does_not_say_that_all_is_there() {
        let complete = Ledger::default();
        assert_eq!(lost(&complete), "none lost");
        for incomplete in [
            Ledger {
                late_processes: 1,
                ..Ledger::default()
            },
            Ledger {
                untraced_processes: 1,
                ..Ledger::default()
            },
        ] {
            assert_eq!(lost(&incomplete), "none of these lost");
        }
    }
}
