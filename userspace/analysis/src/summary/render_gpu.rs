//! Renders the summary's text about GPU work.

use std::{
    cmp::Reverse,
    fmt::{self, Write},
};

use gputrace_text::{
    Page,
    tables::{
        Align::{self, Left, Right},
        bytes, count, duration, table, with_error, with_range,
    },
};

use super::{
    Summary,
    busy::{Busy, Meaning},
    gpu_use::{BEST_FIRST, GpuUse, Qualities, WorkUse},
    stats::Durations,
};
use gputrace_export::{gpu::queue_id, lengths::Sum};

/// Maximum number of kernels and queues listed: those with the most time or work.
const LISTED: usize = 20;

pub(super) fn render(summary: &Summary, out: &mut Page<impl Write>) -> fmt::Result {
    let gpu = &summary.gpu;
    if !gpu.is_relevant() {
        return Ok(());
    }
    kernels(gpu, out)?;
    copies(gpu, out)?;
    agents(summary, out)?;
    queues(gpu, out)?;
    latencies(gpu, out)?;
    unfinished(summary, out)?;
    qualities(gpu, out)
}

/// Writes a table whose first column and last `left` columns are text, and the others numbers.
fn numbers(out: &mut Page<impl Write>, left: usize, rows: &[Vec<String>]) -> fmt::Result {
    let columns = rows.first().map_or(0, Vec::len);
    let align: Vec<Align> = (0..columns)
        .map(|column| {
            if column == 0 || column + left >= columns {
                Left
            } else {
                Right
            }
        })
        .collect();
    table(out, &align, rows)
}

fn heading<const N: usize>(names: [&str; N]) -> Vec<String> {
    names.map(str::to_owned).to_vec()
}

fn percentiles(durations: &Durations) -> impl Iterator<Item = String> {
    let at = |percent| durations.percentile(percent);
    [at(50.0), at(95.0), at(99.0), durations.max]
        .map(|ns| duration(ns as f64))
        .into_iter()
}

/// Formats a total; it is marked as a lower bound if durations are missing.
fn total(sum: &Sum) -> String {
    let text = with_error(sum.total() as f64, sum.error());
    if sum.unknown() == 0 {
        text
    } else {
        format!(">= {text}")
    }
}

/// As [`mix`], with the number of unknown durations.
fn told(work: &WorkUse) -> String {
    let text = mix(&work.qualities);
    match work.sum.unknown() {
        0 => text,
        unknown => format!("{text}; {unknown} of {} not known", work.sum.count()),
    }
}

/// Percentiles, if durations are those of single dispatches: means of classes have none.
fn spread(work: &WorkUse) -> Vec<String> {
    if work.has_own_durations() {
        percentiles(&work.durations).collect()
    } else {
        heading(["-"; 4])
    }
}

/// E.g. `exact 4, bounded 1`.
fn mix(qualities: &Qualities) -> String {
    let parts: Vec<String> = BEST_FIRST
        .into_iter()
        .filter(|quality| qualities.of(*quality) > 0)
        .map(|quality| format!("{} {}", quality.name(), qualities.of(quality)))
        .collect();
    parts.join(", ")
}

fn more(out: &mut Page<impl Write>, all: usize) -> fmt::Result {
    match all.checked_sub(LISTED) {
        Some(more) if more > 0 => out.line(format_args!("  and {more} more")),
        _ => Ok(()),
    }
}

fn kernels(gpu: &GpuUse, out: &mut Page<impl Write>) -> fmt::Result {
    if gpu.kernels.is_empty() {
        return Ok(());
    }
    let mut kernels: Vec<(&String, &WorkUse)> = gpu.kernels.iter().collect();
    kernels.sort_by_key(|(name, kernel)| {
        (
            Reverse((kernel.durations.total, kernel.qualities.total())),
            *name,
        )
    });
    let all: u128 = kernels
        .iter()
        .map(|(_, kernel)| kernel.durations.total)
        .sum();
    let mut rows = vec![heading([
        "Name", "Calls", "Total", "Average", "%", "p50", "p95", "p99", "Max", "Times",
    ])];
    for (name, kernel) in kernels.iter().take(LISTED) {
        let times = &kernel.durations;
        let mut row = vec![(*name).clone(), kernel.qualities.total().to_string()];
        if times.calls == 0 {
            row.extend(heading(["-"; 7]));
        } else {
            let (mean, error) = kernel.sum.mean();
            row.extend([
                total(&kernel.sum),
                with_error(mean, error),
                format!("{:.2}", percent(times.total as f64, all as f64)),
            ]);
            row.extend(spread(kernel));
        }
        row.push(told(kernel));
        rows.push(row);
    }
    out.paragraph(format_args!(
        "Kernels (exact or estimated durations; +-: standard error)"
    ))?;
    numbers(out, 1, &rows)?;
    more(out, kernels.len())?;
    if let Some(remark) = gpu.remark() {
        out.line(format_args!("  Estimates: {remark}."))?;
    }
    let sum = gpu.all_kernels();
    if sum.unknown() > 0 {
        out.line(format_args!(
            "  How long {} of {} took is not known: totals marked >= do not include them.",
            sum.unknown(),
            count(sum.count(), "kernel")
        ))?;
    }
    Ok(())
}

fn copies(gpu: &GpuUse, out: &mut Page<impl Write>) -> fmt::Result {
    if gpu.copies.is_empty() && gpu.by_kernels.is_empty() {
        return Ok(());
    }
    let mut rows = vec![heading([
        "Direction",
        "Copies",
        "Bytes",
        "Total",
        "p50",
        "p95",
        "p99",
        "Max",
        "GB/s",
        "Times",
    ])];
    let by_engines = gpu.copies.iter().map(|(direction, copies)| {
        let moved = bytes(copies.bytes);
        (direction.name().to_owned(), moved, copies)
    });
    // A kernel's packet does not say how many bytes it moves.
    let by_kernels = gpu.by_kernels.iter().map(|(kernel, copies)| {
        let name = format!("{} by kernels of HIP's", kernel.name());
        (name, "-".to_owned(), copies)
    });
    for (name, moved, copies) in by_engines.chain(by_kernels) {
        let times = &copies.durations;
        let mut row = vec![name, copies.qualities.total().to_string(), moved];
        if times.calls == 0 {
            row.extend(heading(["-"; 6]));
        } else {
            row.push(total(&copies.sum));
            row.extend(spread(copies));
            // Bytes per ns are GB per s.
            row.push(match (times.total, copies.timed_bytes) {
                (0, _) | (_, 0) => "-".to_owned(),
                (total, moved) => format!("{:.2}", moved as f64 / total as f64),
            });
        }
        row.push(told(copies));
        rows.push(row);
    }
    out.paragraph(format_args!(
        "Copies (exact or estimated durations, and their rates; +-: standard error)"
    ))?;
    numbers(out, 1, &rows)
}

fn agents(summary: &Summary, out: &mut Page<impl Write>) -> fmt::Result {
    let gpu = &summary.gpu;
    if gpu.agents.busy.is_empty() {
        return Ok(());
    }
    let recorded = summary.recorded() as f64;
    let mut rows = vec![heading([
        "GPU",
        "Kernels",
        "Busy",
        "% of recording",
        "Idle gaps",
        "p50",
        "p95",
        "p99",
        "Longest",
    ])];
    let has_active = gpu
        .agents
        .busy
        .values()
        .any(|busy| busy.active(summary.recorded()).is_some());
    if let (true, Some(heading)) = (has_active, rows.first_mut()) {
        heading.push("Active".to_owned());
    }
    let (mut untimed, mut kernels, mut parts) = (0, 0, 0);
    let mut estimated = false;
    for (node, busy) in &gpu.agents.busy {
        untimed += busy.untimed;
        kernels += busy.kernels;
        parts += busy.gaps.parts;
        let ns = busy.busy() as f64;
        let (least, most) = busy.range();
        let (least, most) = (least as f64, most as f64);
        estimated |= least < most;
        let shares = [ns, least, most].map(|ns| percent(ns, recorded));
        let [time, share] = busy_figures(ns, busy.meaning(summary.recorded()), shares);
        let mut row = vec![
            gpu.gpus.agent_title(*node),
            busy.kernels.to_string(),
            time,
            share,
        ];
        row.extend(gap_figures(busy));
        row.extend(has_active.then(|| active_figure(busy, summary.recorded())));
        rows.push(row);
    }
    out.paragraph(format_args!("GPUs (executing at least one kernel)"))?;
    numbers(out, 0, &rows)?;
    if estimated {
        out.line(format_args!(
            "  In parentheses: the range that contains the truth. Least: what is proven, and \
             estimates minus two standard errors. Most: estimates plus two standard errors, and \
             kernels without an estimate at their longest possible duration."
        ))?;
    }
    if has_active {
        out.line(format_args!(
            "  Active: % of the recording in which the GPU was at work for any process, by random \
             readings of its status register."
        ))?;
    }
    if untimed > 0 {
        out.line(format_args!(
            "  How long {untimed} of {} took is not known: what is proven is in the busy time, and \
             what is possible in the range. Time in which such a kernel can have run is no gap.",
            count(kernels, "kernel"),
        ))?;
    }
    if parts > 0 {
        out.line(format_args!(
            "  Beside {} such a kernel can have run, so only a part of the gap is known: \
             percentiles are of the other gaps, and the longest gap is a range.",
            count(parts, "gap"),
        ))?;
    }
    if gpu.late() > 0 {
        out.line(format_args!(
            "  {} became known too late to count in full in busy times, gaps and queue depths.",
            count(gpu.late(), "kernel")
        ))?;
    }
    Ok(())
}

/// Number, percentiles and maximum of a GPU's gaps, as far as they are known.
fn gap_figures(busy: &Busy) -> [String; 5] {
    let (gaps, range) = (&busy.gaps, busy.longest_gap_range());
    let durations = &gaps.durations;
    let all = match (gaps.count(), busy.is_partial()) {
        (0, true) => "-".to_owned(),
        (known, true) => format!(">= {known}"),
        (known, false) => known.to_string(),
    };
    let [p50, p95, p99] = [50.0, 95.0, 99.0].map(|percent| match durations.calls {
        0 => "-".to_owned(),
        _ => duration(durations.percentile(percent) as f64),
    });
    let longest = match (busy.is_partial(), range) {
        (_, (_, 0)) => "-".to_owned(),
        (false, _) => duration_with_range(durations.max, range),
        (true, (least, most)) => only_range((least as f64, most as f64), duration),
    };
    [all, p50, p95, p99, longest]
}

/// The share of a recording of `recorded` ns in which a GPU was at work by its status register.
fn active_figure(busy: &Busy, recorded: u64) -> String {
    busy.active(recorded).map_or_else(
        || "-".to_owned(),
        |active| {
            let [value, error] =
                [active.value, active.error].map(|ns| percent(ns as f64, recorded as f64));
            format!("{value:.2} +-{error:.2}")
        },
    )
}

/// How long a GPU was busy, and the shares of the recording (most likely, least and most). If only
/// the upper bound is known, just the range.
fn busy_figures(ns: f64, meaning: Meaning, [share, least, most]: [f64; 3]) -> [String; 2] {
    match meaning {
        Meaning::Nothing => ["-".to_owned(), format!("{least:.2}-{most:.2}")],
        Meaning::Least => [
            format!(">= {}", duration(ns)),
            format!(">= {}", with_range(share, (least, most), 2)),
        ],
        Meaning::Estimate => [duration(ns), with_range(share, (least, most), 2)],
    }
}

/// `1.20 ms (900 us-1.50 ms)`, or one time where the range says nothing else; ns.
fn duration_with_range(value: u64, (least, most): (u64, u64)) -> String {
    let [shown, least, most] = [value, least, most].map(|ns| duration(ns as f64));
    if least == shown && most == shown {
        shown
    } else {
        format!("{shown} ({least}-{most})")
    }
}

fn queues(gpu: &GpuUse, out: &mut Page<impl Write>) -> fmt::Result {
    if gpu.queues.is_empty() {
        return Ok(());
    }
    let mut queues: Vec<_> = gpu.queues.iter().collect();
    queues.sort_by_key(|(number, queue)| (Reverse(queue.dispatches), **number));
    let mut rows = vec![heading([
        "Queue",
        "Process",
        "Dispatches",
        "Depth",
        "Deepest",
        "Unfinished",
        "GPU",
    ])];
    for (number, queue) in queues.iter().take(LISTED) {
        let depth = |value, range, decimals| match queue.untimed {
            _ if gpu.agents.is_partial => "-".to_owned(),
            0 => with_range(value, range, decimals),
            _ => only_range(range, |depth| format!("{depth:.decimals$}")),
        };
        rows.push(vec![
            queue_id(**number).to_string(),
            queue.pid.to_string(),
            queue.dispatches.to_string(),
            depth(queue.depth().mean(), queue.depth_range(), 1),
            depth(queue.depth().most as f64, queue.deepest_range(), 0),
            queue.unfinished.to_string(),
            gpu.gpus.agent_title(queue.node),
        ]);
    }
    out.paragraph(format_args!(
        "Queues (depth: dispatches submitted and not ended, on average while there are any)"
    ))?;
    numbers(out, 1, &rows)?;
    more(out, queues.len())?;
    let untimed: u64 = queues.iter().map(|(_, queue)| queue.untimed).sum();
    if untimed > 0 {
        out.line(format_args!(
            "  Where only a range is given, the ends of some dispatches are not known ({untimed} \
             in all)."
        ))?;
    }
    Ok(())
}

/// `1.20-3.40`, or one number if both are shown the same.
fn only_range((least, most): (f64, f64), show: impl Fn(f64) -> String) -> String {
    let (least, most) = (show(least), show(most));
    if least == most {
        least
    } else {
        format!("{least}-{most}")
    }
}

fn latencies(gpu: &GpuUse, out: &mut Page<impl Write>) -> fmt::Result {
    let mut rows = vec![heading(["From", "Dispatches", "p50", "p95", "p99", "Max"])];
    for (name, latency) in [
        ("start of the API call", &gpu.since_call),
        ("submission to the queue", &gpu.since_submission),
    ] {
        if latency.calls > 0 {
            let mut row = vec![name.to_owned(), latency.calls.to_string()];
            row.extend(percentiles(latency));
            rows.push(row);
        }
    }
    if rows.len() == 1 {
        return Ok(());
    }
    out.paragraph(format_args!(
        "Launch latency (to the start on the GPU; exact times only)"
    ))?;
    numbers(out, 0, &rows)
}

fn unfinished(summary: &Summary, out: &mut Page<impl Write>) -> fmt::Result {
    let gpu = &summary.gpu;
    if gpu.unfinished_work == 0 {
        return Ok(());
    }
    let end = summary.stopped();
    let mut rows = vec![heading([
        "Name",
        "Age",
        "Process",
        "Queue",
        "Packet",
        "Last packet",
        "Behind it",
        "GPU",
        "Call that waits",
    ])];
    let listed = gpu.listed_unfinished();
    let shown: u64 = listed.iter().map(|(_, behind)| behind + 1).sum();
    let by_place = listed.iter().any(|(_, behind)| *behind > 0);
    for (work, behind) in listed {
        let waits = summary
            .unfinished
            .iter()
            .find(|call| call.pid == work.origin.pid);
        let mut row = vec![
            work.name.clone(),
            duration(end.saturating_sub(work.origin.time) as f64),
            work.origin.pid.to_string(),
        ];
        match work
            .packet
            .and_then(|(number, index)| Some((number, index, gpu.queues.get(&number)?)))
        {
            Some((number, index, queue)) => row.extend([
                queue_id(number).to_string(),
                index.to_string(),
                queue.last_index.to_string(),
            ]),
            None => row.extend(heading(["-"; 3])),
        }
        row.push(match behind {
            0 => "-".to_owned(),
            more => format!("{more} more"),
        });
        row.push(gpu.gpus.agent_title(work.node));
        row.push(waits.map_or_else(
            || "-".to_owned(),
            |call| {
                format!(
                    "{} (thread {})",
                    summary.functions.name(call.function),
                    call.tid
                )
            },
        ));
        rows.push(row);
    }
    let what = match gpu.unfinished_work {
        1 => "1 kernel or copy".to_owned(),
        more => format!("{more} kernels or copies"),
    };
    out.paragraph(format_args!(
        "Unfinished on GPUs: {what} had not ended when the recording stopped{}",
        if by_place {
            "; the oldest of each queue"
        } else {
            ""
        }
    ))?;
    numbers(out, 2, &rows)?;
    match gpu.unfinished_work.checked_sub(shown) {
        Some(more) if more > 0 => out.line(format_args!(
            "  and {more} more in other queues, submitted later"
        )),
        _ => Ok(()),
    }
}

/// Writes the table of qualities, which tells how far to trust the other figures. Always printed.
fn qualities(gpu: &GpuUse, out: &mut Page<impl Write>) -> fmt::Result {
    out.paragraph(format_args!("Quality of GPU times"))?;
    let mut rows = vec![heading([
        "",
        "All",
        "exact",
        "sampled",
        "bounded",
        "submitted",
    ])];
    for (name, qualities) in [
        ("kernels", &gpu.kernel_qualities),
        ("copies", &gpu.copy_qualities),
    ] {
        let mut row = vec![name.to_owned(), qualities.total().to_string()];
        row.extend(BEST_FIRST.map(|quality| qualities.of(quality).to_string()));
        rows.push(row);
    }
    numbers(out, 0, &rows)?;
    let all = gpu.kernel_qualities.total() + gpu.copy_qualities.total();
    let drawn = gpu.kernel_qualities.drawn() + gpu.copy_qualities.drawn();
    if drawn < all {
        out.line(format_args!(
            "  How long {} of {all} took is not known: only bounds, or the time of their \
             submission. They are in no total.",
            all - drawn
        ))?;
    }
    Ok(())
}

fn percent(part: f64, whole: f64) -> f64 {
    if whole == 0.0 {
        0.0
    } else {
        part * 100.0 / whole
    }
}

#[cfg(test)]
mod tests;
