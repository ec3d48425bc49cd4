//! Renders the summary's text.

use std::{
    collections::HashMap,
    fmt::{self, Write},
};

use gputrace_abi::{counters::DropReason, domain::Domain};
use gputrace_capture::{
    ledger::{Ledger, LedgerRow, Looks},
    meta::{EndReason, Mode},
};
use gputrace_text::{
    Page,
    tables::{
        Align::{Left, Right},
        count, duration, plural, table,
    },
};
use gputrace_timeline::{NOTHING_SELECTED, event::CallEnd, is_remark};
use serde::Serialize;

use super::{Durations, Summary, costs, processes, render_gpu};
use gputrace_export::{functions::group_title, loss};

/// Maximum number of functions listed whose calls have no recorded end: those called most often.
const LISTED_WITHOUT_END: usize = 10;

pub(super) fn render(summary: &Summary, out: &mut Page<impl Write>) -> fmt::Result {
    heading(summary, out)?;
    for text in &summary.failed {
        out.line(format_args!("{text}"))?;
    }
    let prices = summary.recording.prices.filter(|prices| prices.measured);
    let step = prices.map(|prices| prices.single_stepped.saturating_sub(prices.emulated));
    for (group, functions) in &summary.groups {
        durations(&group_title(group), functions, step, out)?;
    }
    render_gpu::render(summary, out)?;
    summary
        .observed
        .render(summary.recording.clocks.boottime, &summary.threads, out)?;
    summary.counters.render(out)?;
    processes::render(summary, out)?;
    costs::render(summary, out)?;
    unfinished(summary, out)?;
    without_end(summary, out)?;
    notices(summary, out)?;
    account(summary, out)?;
    let Some(Nothing { text, hints }) = nothing(summary) else {
        return Ok(());
    };
    out.paragraph(format_args!("{text}"))?;
    for hint in hints {
        out.line(format_args!("  - {hint}"))?;
    }
    Ok(())
}

fn heading(summary: &Summary, out: &mut Page<impl Write>) -> fmt::Result {
    let recording = &summary.recording;
    let target = match &recording.mode {
        Mode::Launch { command } => command.join(" "),
        Mode::Attach { pids } => {
            let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
            format!("process {}", pids.join(", "))
        }
        Mode::Node => "every process".to_owned(),
        Mode::Merged { captures } => format!("the targets of {captures} captures"),
    };
    let how = match summary.end.as_ref().map(|end| &end.reason) {
        Some(EndReason::Interrupted) => "until it was interrupted".to_owned(),
        Some(EndReason::DurationOver) => "as long as asked".to_owned(),
        Some(EndReason::LimitReached) => {
            "until it reached its --max-size or --max-events".to_owned()
        }
        Some(EndReason::TargetsGone) => "until the target ended".to_owned(),
        Some(EndReason::Dumped) => "until a flight recorder dumped it".to_owned(),
        Some(EndReason::Continued) => "and goes on in another file".to_owned(),
        Some(EndReason::Failed(error)) => format!("until it failed: {error}"),
        None => "until the recorder was killed or ran out of disk space".to_owned(),
    };
    let length = duration(summary.recorded() as f64);
    let host = if recording.hostname.is_empty() {
        "an unnamed host"
    } else {
        &recording.hostname
    };
    let line = format!("Recorded {target} on {host} for {length}, {how}.");
    out.line(format_args!("{line}"))
}

fn durations(
    title: &str,
    functions: &HashMap<String, Durations>,
    step: Option<u64>,
    out: &mut Page<impl Write>,
) -> fmt::Result {
    let mut functions: Vec<(&String, &Durations)> = functions.iter().collect();
    functions.sort_by(|(a, left), (b, right)| right.total.cmp(&left.total).then_with(|| a.cmp(b)));
    let all: u128 = functions.iter().map(|(_, durations)| durations.total).sum();
    let heading = [
        "Name", "Calls", "Total", "Average", "%", "Min", "p50", "p95", "p99", "Max",
    ];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    let stepped = functions.iter().any(|(_, durations)| durations.stepped);
    for (name, durations) in functions {
        let share = if all == 0 {
            0.0
        } else {
            durations.total as f64 * 100.0 / all as f64
        };
        let percentile = |percent| duration(durations.percentile(percent) as f64);
        rows.push(vec![
            if durations.stepped {
                format!("{name} *")
            } else {
                name.clone()
            },
            durations.calls.to_string(),
            duration(durations.total as f64),
            duration(durations.average()),
            format!("{share:.2}"),
            duration(durations.min as f64),
            percentile(50.0),
            percentile(95.0),
            percentile(99.0),
            duration(durations.max as f64),
        ]);
    }
    out.paragraph(format_args!(
        "{title} (finished calls; time inside nested calls counts for both)"
    ))?;
    let mut align = [Right; 10];
    align[0] = Left;
    table(out, &align, &rows)?;
    if stepped {
        out.line(format_args!(
            "  * the kernel single-steps its first instruction: each duration includes that{}",
            step.map_or_else(String::new, |ns| format!(", about {}", duration(ns as f64)))
        ))?;
    }
    Ok(())
}

/// The calls whose end is not recorded.
fn without_end(summary: &Summary, out: &mut Page<impl Write>) -> fmt::Result {
    let all: u64 = summary.without_end.values().sum();
    if all == 0 {
        return Ok(());
    }
    let mut names: Vec<(&String, &u64)> = summary.without_end.iter().collect();
    names.sort_by_key(|(name, calls)| (std::cmp::Reverse(**calls), *name));
    let more = names.len().saturating_sub(LISTED_WITHOUT_END);
    let mut listed: Vec<String> = names
        .iter()
        .take(LISTED_WITHOUT_END)
        .map(|(name, calls)| format!("{name} {calls}"))
        .collect();
    if more > 0 {
        listed.push(format!("and {more} more"));
    }
    out.paragraph(format_args!("No end recorded: {}", count(all, "call")))?;
    out.line(format_args!(
        "  {}. Only the entries of these functions are probed: a probe on a return could end the \
         program.",
        listed.join(", ")
    ))
}

fn unfinished(summary: &Summary, out: &mut Page<impl Write>) -> fmt::Result {
    if summary.unfinished_calls == 0 {
        return Ok(());
    }
    let mut rows = vec![
        ["Function", "Process", "Thread", "Open for", "Open until"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for call in &summary.unfinished {
        let why = match call.how {
            CallEnd::Returned(_) | CallEnd::NotSeen => "its return",
            CallEnd::ThreadExited => "the end of its thread",
            CallEnd::Executed => "exec of another program",
            CallEnd::RecordingStopped => "the end of the recording",
        };
        rows.push(vec![
            summary.functions.name(call.function).to_owned(),
            call.pid.to_string(),
            call.tid.to_string(),
            duration((call.end - call.begin) as f64),
            why.to_owned(),
        ]);
    }
    out.paragraph(format_args!(
        "Unfinished: {} had not returned",
        count(summary.unfinished_calls, "call")
    ))?;
    table(out, &[Left, Right, Right, Right, Left], &rows)?;
    let listed = summary.unfinished.len() as u64;
    match summary.unfinished_calls.checked_sub(listed) {
        Some(more) if more > 0 => out.line(format_args!(
            "  and {more} more that were open for a shorter time"
        )),
        _ => Ok(()),
    }
}

fn notices(summary: &Summary, out: &mut Page<impl Write>) -> fmt::Result {
    if summary.notices.is_empty() {
        return Ok(());
    }
    out.paragraph(format_args!("Remarks"))?;
    for notice in &summary.notices {
        out.line(format_args!("  {notice}"))?;
    }
    if summary.more_notices > 0 {
        out.line(format_args!("  and {} more", summary.more_notices))?;
    }
    Ok(())
}

fn account(summary: &Summary, out: &mut Page<impl Write>) -> fmt::Result {
    let Some(ledger) = &summary.ledger else {
        out.paragraph(format_args!("Account"))?;
        return out.line(format_args!(
            "  NOT KNOWN: the recorder ended before it could write one. Calls may have been lost \
             without notice."
        ));
    };
    out.paragraph(format_args!(
        "Account{}",
        if ledger.complete {
            ""
        } else if summary.recording.dump.is_some() {
            " (when the file was written; the recording went on)"
        } else {
            " (NOT FINAL: the recorder could not write a later one)"
        }
    ))?;
    equations(ledger, out)?;
    let total = ledger.total();
    let noun = loss::noun(ledger);
    balance(ledger, &total, noun, out)?;
    if total.lost() > 0 {
        out.line(format_args!(
            "  LOST: {} missing in every output.{}",
            count(total.lost(), noun),
            remedy(ledger)
        ))?;
    }
    beside(ledger, out)?;
    ledger.looks.map_or(Ok(()), |looks| looked(&looks, out))
}

/// Writes a line per domain, and one for all if there are several.
fn equations(ledger: &Ledger, out: &mut Page<impl Write>) -> fmt::Result {
    let domains = ledger.by_domain();
    let width = domains
        .iter()
        .map(|row| Ledger::domain_name(row.domain).len())
        .max()
        .unwrap_or(0);
    for row in &domains {
        out.line(format_args!(
            "  {:<width$}  {}",
            Ledger::domain_name(row.domain),
            equation(row)
        ))?;
    }
    if domains.len() != 1 {
        let total = equation(&ledger.total());
        out.line(format_args!("  {:<width$}  {total}", "all"))?;
    }
    Ok(())
}

/// Writes whether the account balances, or what was still open when it was written.
fn balance(
    ledger: &Ledger,
    total: &LedgerRow,
    noun: &str,
    out: &mut Page<impl Write>,
) -> fmt::Result {
    if ledger.complete {
        // By CPU and domain, so that errors in two of them cannot cancel out.
        let wrong: Vec<&LedgerRow> = ledger
            .rows
            .iter()
            .filter(|row| row.imbalance() != 0)
            .collect();
        if !wrong.is_empty() {
            let calls: u64 = wrong
                .iter()
                .map(|row| row.imbalance().unsigned_abs())
                .fold(0, u64::saturating_add);
            out.line(format_args!("  DOES NOT BALANCE: {} unaccounted for. This is a defect of gputrace; please report it with the \
                 NAME_loss.csv file.",
                count(calls, noun)))?;
        }
    } else {
        out.line(format_args!(
            "  {} still open, or on the way to the capture, when this account was written.",
            count(total.imbalance().unsigned_abs(), noun)
        ))?;
    }
    Ok(())
}

/// Writes what is missing but was never counted in the account.
fn beside(ledger: &Ledger, out: &mut Page<impl Write>) -> fmt::Result {
    for (number, one, many, rest) in [
        (
            ledger.unmatched_returns,
            "call",
            "calls",
            "in progress when the probes were attached, not part of the account",
        ),
        (
            ledger.unreadable_args,
            "call",
            "calls",
            "with stack arguments that could not be read",
        ),
        (
            ledger.task_events_lost,
            "process or thread event",
            "process or thread events",
            "lost; some names may be missing",
        ),
        (
            ledger.untraced_processes,
            "child process",
            "child processes",
            "not traced, because there was no room for more processes; the account does not \
             include them",
        ),
        (
            ledger.late_processes,
            "process",
            "processes",
            "ran on for a moment before a library had its probes; the account does not include \
             what was called then",
        ),
    ] {
        if number > 0 {
            out.line(format_args!("  {} {rest}.", plural(number, one, many)))?;
        }
    }
    Ok(())
}

/// Writes the results of looking at read indices.
fn looked(looks: &Looks, out: &mut Page<impl Write>) -> fmt::Result {
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let budget = f64::from(looks.budget) / 10_000.0;
    if looks.budget == 0 {
        return out.line(format_args!(
            "  gputrace did not look at queues while recording (--look-budget 0): only bounds are \
             known for kernels without completion signals."
        ));
    }
    if looks.looks == 0 {
        return Ok(());
    }
    out.line(format_args!(
        "  looks at queues: {}, CPU {} of one core (at most {} in a second, budget {budget} %), period {} median",
        looks.looks,
        percent(looks.share()),
        percent(looks.busiest as f64 / 1e9),
        duration(looks.period as f64),
    ))
}

/// `seen 5 = written 3 + unfinished 1 + lost 1 (ring_full 1)`.
fn equation(row: &LedgerRow) -> String {
    let reasons: Vec<String> = DropReason::ALL
        .iter()
        .filter(|reason| row.dropped_for(**reason) > 0)
        .map(|reason| format!("{} {}", reason.name(), row.dropped_for(*reason)))
        .collect();
    let reasons = if reasons.is_empty() {
        String::new()
    } else {
        format!(" ({})", reasons.join(", "))
    };
    let open = match row.imbalance() {
        0 => String::new(),
        more => format!(" + unaccounted {more}"),
    };
    format!(
        "seen {} = written {} + unfinished {} + lost {}{reasons}{open}",
        row.seen,
        row.written,
        row.unfinished,
        row.lost()
    )
}

/// What helps against the loss that is the greatest, by domain and reason.
fn remedy(ledger: &Ledger) -> &'static str {
    let domains = ledger.by_domain();
    let losses = domains.iter().flat_map(|row| {
        let reasons = DropReason::ALL.iter();
        reasons.map(|reason| (row.dropped_for(*reason), *reason, row.domain))
    });
    let Some((_, worst, domain)) = losses.max_by_key(|(lost, ..)| *lost) else {
        return "";
    };
    match (worst, Domain::from_id(domain)) {
        (DropReason::RingFull, _) => {
            " The rings were full: trace fewer domains or processes at once."
        }
        (DropReason::ThreadMapFull, Some(Domain::Sched)) => {
            " More threads were without a processor than are followed: trace fewer processes."
        }
        (DropReason::ThreadMapFull, _) => {
            " More threads were inside traced calls than gputrace follows: trace fewer processes."
        }
        (DropReason::TooDeep, _) => " Calls were nested deeper than gputrace follows.",
        (DropReason::TooOften, _) => {
            " Functions were called more often than allowed: leave them out (--exclude-functions), or raise --max-call-rate."
        }
        (DropReason::LostReturn, Some(Domain::Sched)) => {
            " The kernel did not tell gputrace when these threads got a processor again."
        }
        (DropReason::LostReturn, Some(Domain::KfdIoctl)) => {
            " The kernel did not tell gputrace when these requests ended."
        }
        (DropReason::LostReturn, _) => {
            " gputrace saw these calls begin and not return: the program left them by longjmp, by an exception or by \
             switching stacks. `gputrace export CAPTURE -f csv` lists their domains in NAME_loss.csv."
        }
        (DropReason::MemoryUnreadable, _) => {
            " Memory of the traced process could not be read in time."
        }
        (DropReason::CaptureWrite, _) => {
            " The capture could not be written: free space on its disk."
        }
        (DropReason::ProcessLimit, _) => {
            " One process exceeded a limit: the remarks say which process and which limit."
        }
        (DropReason::Malformed, _) => {
            " Records were malformed, which is a defect of gputrace; please report it."
        }
    }
}

/// Whether everything was recorded outside the regions that programs select; this is among the
/// remarks.
fn nothing_selected(summary: &Summary) -> bool {
    let mut notices = summary.notices.iter();
    notices.any(|notice| is_remark(notice, NOTHING_SELECTED))
}

/// What is said about a recording without anything in it.
#[derive(Debug, Serialize)]
pub(super) struct Nothing {
    /// What is missing.
    pub(super) text: String,
    /// What to check.
    pub(super) hints: &'static [&'static str],
}

/// What to check if a recording has no call.
const HINTS: [&str; 3] = [
    "Did the program call HIP or HSA while it was recorded? An idle process makes no calls.",
    "Does it use the ROCm libraries? `gputrace list` shows which processes have them mapped. A \
     statically linked runtime has no exported functions to trace.",
    "Was the right domain asked for? A program that calls HSA directly needs --hsa-trace.",
];

/// What to say if nothing was recorded.
pub(super) fn nothing(summary: &Summary) -> Option<Nothing> {
    if !summary.groups.is_empty()
        || summary.unfinished_calls > 0
        || !summary.without_end.is_empty()
        || summary.gpu.any()
        || summary.observed.any()
        || summary.counters.any()
        || nothing_selected(summary)
    {
        return None;
    }
    let ledger = summary.ledger.as_ref();
    if ledger.is_some_and(|ledger| ledger.total().seen > 0) {
        return Some(Nothing {
            text: "NOTHING IS SHOWN: no call, kernel or copy of the recording is in the part that \
                   was asked for. The account has all of it."
                .to_owned(),
            hints: &[],
        });
    }
    let domains = &summary.recording.domains;
    let domains = if domains.is_empty() {
        "no domain".to_owned()
    } else {
        domains.join(", ")
    };
    Some(if summary.end.is_none() {
        Nothing {
            text: format!(
                "NOTHING COULD BE READ: the capture is damaged or has no end, and its intact part \
                 contains no call of {domains}. What the program called is not known."
            ),
            hints: &[],
        }
    } else {
        Nothing {
            text: format!(
                "NOTHING WAS RECORDED: no call of {domains} was seen. What to check, if the \
                 remarks do not say why:"
            ),
            hints: &HINTS,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(domain: Domain, reason: DropReason, number: u64) -> LedgerRow {
        let mut dropped = vec![0; DropReason::ALL.len()];
        dropped[reason as usize] = number;
        LedgerRow {
            domain: domain.id(),
            seen: number,
            dropped,
            ..LedgerRow::default()
        }
    }

    #[test]
    fn losses_are_explained_by_the_domain_that_has_most() {
        let told = |rows: Vec<LedgerRow>| {
            remedy(&Ledger {
                rows,
                ..Ledger::default()
            })
        };
        let calls = || lost(Domain::HipRuntime, DropReason::LostReturn, 5);
        assert!(told(vec![calls()]).contains("longjmp"));
        // Threads that get a processor do not jump.
        let stretches = lost(Domain::Sched, DropReason::LostReturn, 6);
        let both = told(vec![calls(), stretches]);
        assert!(both.contains("got a processor again"), "{both}");
        let requests = lost(Domain::KfdIoctl, DropReason::LostReturn, 6);
        assert!(told(vec![calls(), requests]).contains("requests ended"));
        let threads = lost(Domain::Sched, DropReason::ThreadMapFull, 6);
        assert!(told(vec![calls(), threads]).contains("without a processor"));
        assert_eq!(told(Vec::new()), "");
    }
}
