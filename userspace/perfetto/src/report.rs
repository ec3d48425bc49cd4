//! Writes gputrace's own remarks: how the recording was made, what was lost, what went wrong.

use std::io::{self, Write};

use gputrace_abi::counters::DropReason;
use gputrace_capture::{
    ledger::{Ledger, LedgerRow, Looks},
    meta::{End, EndReason, Mode, Notice, Recording},
};
use gputrace_export::loss;
use gputrace_timeline::event::FunctionInfo;

use crate::{
    packets::System,
    sequence::{Annotations, EventType, Sequence, Value},
    tracks::OwnTrack,
};

/// Category of all of gputrace's remarks.
const CATEGORY: &str = "gputrace";

/// An instant on one of gputrace's tracks.
fn instant<W: Write>(
    out: &mut Sequence<W>,
    track: OwnTrack,
    time: u64,
    name: &str,
    annotate: impl FnOnce(&mut Annotations<'_>),
) -> io::Result<()> {
    out.bound_interning()?;
    out.event(time, EventType::Instant, track.uuid(), |event| {
        event.rare_title(CATEGORY, name);
        annotate(&mut event.annotations());
    })
}

/// Writes the machine's description, and an instant with all data about the recording.
pub(crate) fn recording<W: Write>(out: &mut Sequence<W>, recording: &Recording) -> io::Result<()> {
    out.packet(&System {
        release: &recording.kernel_release,
        version: &recording.kernel_version,
        machine: &recording.machine,
    })?;

    let mode = match &recording.mode {
        Mode::Launch { command } => format!("launched {}", command.join(" ")),
        Mode::Attach { pids } => {
            let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
            format!("attached to {}", pids.join(", "))
        }
        Mode::Node => "whole node".to_owned(),
        Mode::Merged { captures } => format!("{captures} captures merged"),
    };
    let time = recording.clocks.boottime;
    instant(
        out,
        OwnTrack::Recording,
        time,
        &format!("recording: {mode}"),
        |annotations| {
            let texts = [
                ("gputrace", &recording.tool_version),
                ("host", &recording.hostname),
                ("kernel", &recording.kernel_release),
                ("kernel_version", &recording.kernel_version),
                ("machine", &recording.machine),
                ("command", &recording.command.join(" ")),
                ("mode", &mode),
                ("domains", &recording.domains.join(", ")),
                ("backend", &recording.backend),
            ];
            for (name, text) in texts {
                annotations.named(name, Value::Text(text));
            }
            annotations.named("cpus", Value::Uint(recording.cpus.into()));
            annotations.named("abi_version", Value::Uint(recording.abi_version.into()));
            annotations.named(
                "clock_uncertainty_ns",
                Value::Uint(recording.clocks.uncertainty),
            );
            if let Some(pid) = recording.main_pid {
                annotations.named("main_pid", Value::Uint(pid.into()));
            }
        },
    )
}

/// Writes the library of `function`, which is its first function.
pub(crate) fn library<W: Write>(
    out: &mut Sequence<W>,
    time: u64,
    function: &FunctionInfo,
) -> io::Result<()> {
    let name = format!("library: {}", function.library);
    instant(out, OwnTrack::Recording, time, &name, |annotations| {
        annotations.named("path", Value::Text(&function.library));
        annotations.named("build_id", Value::Text(&function.build_id));
    })
}

/// Writes a remark of the recorder.
pub(crate) fn notice<W: Write>(out: &mut Sequence<W>, notice: &Notice) -> io::Result<()> {
    let name = format!("notice: {}", notice.text);
    instant(out, OwnTrack::Ledger, notice.time, &name, |annotations| {
        annotations.named("text", Value::Text(&notice.text));
    })
}

/// Writes the account. Its name tells whether there are losses, so that nobody needs to click on
/// it.
pub(crate) fn ledger<W: Write>(out: &mut Sequence<W>, ledger: &Ledger) -> io::Result<()> {
    let (total, shown) = (ledger.total(), ledger.without_values());
    let name = format!(
        "loss ledger{}: {} of {} {}s lost",
        if ledger.complete { "" } else { " (not final)" },
        total.lost(),
        shown.seen,
        loss::noun(ledger),
    );
    instant(out, OwnTrack::Ledger, ledger.time, &name, |annotations| {
        annotations.named("complete", Value::Bool(ledger.complete));
        account(annotations, &total);
        let counts = [
            ("unmatched_returns", ledger.unmatched_returns),
            ("unreadable_args", ledger.unreadable_args),
            ("task_events", ledger.task_events),
            ("task_events_lost", ledger.task_events_lost),
            ("untraced_processes", ledger.untraced_processes),
            ("late_processes", ledger.late_processes),
        ];
        for (name, count) in counts {
            annotations.named(name, Value::Uint(count));
        }
        for (name, count) in ledger.looks.iter().flat_map(Looks::named) {
            annotations.named(name, Value::Uint(count));
        }
        annotations.named_array("rows", &ledger.rows, |row, entries| {
            let domain = Ledger::domain_name(row.domain);
            let domain = Value::Interned(entries.number_of_text(&domain));
            entries.named("domain", domain);
            entries.named("cpu", Value::Uint(row.cpu.into()));
            account(entries, row);
        });
    })
}

/// The columns of a row, as `seen = written + unfinished + dropped(by reason) + imbalance`.
fn account(annotations: &mut Annotations<'_>, row: &LedgerRow) {
    annotations.named("seen", Value::Uint(row.seen));
    annotations.named("written", Value::Uint(row.written));
    annotations.named("unfinished", Value::Uint(row.unfinished));
    annotations.named("lost", Value::Uint(row.lost()));
    annotations.named("imbalance", Value::Int(row.imbalance()));
    annotations.named_dictionary("dropped", |entries| {
        for (number, count) in row.dropped.iter().enumerate() {
            let count = Value::Uint(*count);
            match DropReason::ALL.get(number) {
                Some(reason) => entries.named(reason.name(), count),
                None => entries.put_by_name(&format!("reason {number}"), count),
            }
        }
    });
}

/// Writes that the capture holds no account.
pub(crate) fn no_ledger<W: Write>(out: &mut Sequence<W>, time: u64) -> io::Result<()> {
    let name = "loss ledger missing: the capture ends before the first account, losses are unknown";
    instant(out, OwnTrack::Ledger, time, name, |_| ())
}

/// Writes why the recording ended.
pub(crate) fn end<W: Write>(out: &mut Sequence<W>, end: &End) -> io::Result<()> {
    let reason = match &end.reason {
        EndReason::Interrupted => "interrupted by the user",
        EndReason::DurationOver => "its duration was over",
        EndReason::LimitReached => "it reached its --max-size or --max-events",
        EndReason::TargetsGone => "the traced programs ended",
        EndReason::Dumped => "a flight recorder dumped it",
        EndReason::Continued => "it goes on in another file",
        EndReason::Failed(_) => "failed",
    };
    let name = format!("end of recording: {reason}");
    instant(out, OwnTrack::Recording, end.time, &name, |annotations| {
        annotations.named("reason", Value::Text(reason));
        if let EndReason::Failed(error) = &end.reason {
            annotations.named("error", Value::Text(error));
        }
    })
}

/// Writes that the capture stops without an orderly end.
pub(crate) fn no_end<W: Write>(out: &mut Sequence<W>, time: u64) -> io::Result<()> {
    let name = "end of capture: it was cut off, the recorder was killed or could not continue \
        writing";
    instant(out, OwnTrack::Recording, time, name, |_| ())
}
