//! The page's data in the form that its script reads. Times are ns, relative to the begin of the
//! recording.

use gputrace_capture::meta::Mode;
use gputrace_timeline::gpu::Quality;
use serde::Serialize;

use super::super::{
    Summary,
    busy::{Estimate, Meaning},
    costs,
    gpu_use::{GpuUse, WorkUse},
    render::{Nothing, nothing},
    stats::Durations,
};
use super::{
    lanes::{Lane, Overview, Place, kind},
    memory::MemoryUse,
};
use gputrace_export::functions::group_title;

/// Maximum length of a name that is shown.
const LONGEST: usize = 400;

/// Maximum number of rows in a table: those with the most time.
const ROWS: usize = 500;

/// Maximum number of rows in the overview: the busiest.
const LANES: usize = 96;

/// Histogram buckets per power of ten.
const PER_DECADE: f64 = 16.0;

/// The whole page.
#[derive(Debug, Serialize)]
pub(super) struct Page<'a> {
    title: String,
    facts: Vec<(&'static str, String)>,
    length: u64,
    step: u64,
    lanes: Vec<LaneData>,
    names: Vec<String>,
    /// Row, name, begin, duration, and whether it is doubtful.
    spans: Vec<(usize, u32, u64, u64, u8)>,
    spans_left_out: u64,
    /// Work without times, which has no span: what it is, number of such pieces, and of all.
    not_drawn: Vec<(&'static str, u64, u64)>,
    lanes_left_out: usize,
    tables: Vec<Table>,
    agents: Vec<AgentData>,
    memory: Vec<MemoryData>,
    latencies: Vec<Row>,
    qualities: Vec<(&'static str, u64, u64)>,
    /// What was said about calls that failed.
    failed: &'a [String],
    /// What to say if nothing was recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    nothing: Option<Nothing>,
    losses: Vec<Loss>,
    complete: Option<bool>,
    unfinished: Vec<(String, u32, u32, u64)>,
    unfinished_calls: u64,
    /// What was estimated and how well, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    estimates: Option<String>,
    notices: &'a [String],
    more_notices: u64,
}

/// A row of the overview.
#[derive(Debug, Serialize)]
struct LaneData {
    kind: &'static str,
    group: String,
    title: String,
    count: u64,
    total: u64,
    /// Busy share of each step, in thousandths; trailing zeros are left out.
    busy: Vec<u16>,
}

/// A table of durations by name.
#[derive(Debug, Serialize)]
struct Table {
    id: String,
    title: String,
    rows: Vec<Row>,
    left_out: usize,
}

/// A table row for one name.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    /// Number of all pieces of work, and of those with real times.
    count: u64,
    timed: u64,
    total: u64,
    /// Standard error of the total; the mean's is derived from it.
    #[serde(skip_serializing_if = "is_zero")]
    error: f64,
    /// Number of durations that are means of their classes.
    #[serde(skip_serializing_if = "is_none")]
    estimated: u64,
    mean: f64,
    min: u64,
    p50: u64,
    p95: u64,
    p99: u64,
    max: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<(u64, u64)>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    stepped: bool,
    /// Bucket and count; bucket n begins at 10^(n / 16) ns.
    histogram: Vec<(u32, u64)>,
}

/// An agent's busy time.
#[derive(Debug, Serialize)]
struct AgentData {
    title: String,
    busy: u64,
    /// Lower and upper bound of the busy time.
    range: (u64, u64),
    /// How long it was at work by its status register.
    active: Option<Estimate>,
    kernels: u64,
    untimed: u64,
    /// Whether kernels are missing, or untimed.
    partial: bool,
    /// Meaning of `busy`.
    meaning: Meaning,
    /// Gaps that are known in full, and the number of all.
    gaps: Row,
    gap_count: u64,
    /// Begin, length, and whether it is only a part of a gap.
    longest: Vec<(u64, u64, bool)>,
    /// The least and the most that the longest gap can be, ns.
    longest_range: (u64, u64),
}

/// An agent's memory over time.
#[derive(Debug, Serialize)]
struct MemoryData {
    title: String,
    peak: u64,
    /// Times, and the bytes that are allocated from then on.
    points: Vec<(u64, u64)>,
}

/// A domain's account.
#[derive(Debug, Serialize)]
struct Loss {
    domain: String,
    seen: u64,
    written: u64,
    unfinished: u64,
    lost: u64,
}

impl<'a> Page<'a> {
    pub(super) fn new(
        title: &str,
        summary: &'a Summary,
        overview: &Overview,
        memory: &MemoryUse,
    ) -> Self {
        let gpu = &summary.gpu;
        let begin = summary.recording.clocks.boottime;
        let mut places: Vec<_> = overview.lanes.iter().collect();
        let lanes_left_out = places.len().saturating_sub(LANES);
        if lanes_left_out > 0 {
            places.sort_by_key(|(_, lane)| std::cmp::Reverse(lane.total));
            places.truncate(LANES);
            places.sort_by_key(|(place, _)| **place);
        }
        let spans = overview
            .spans()
            .into_iter()
            .filter_map(|span| {
                let lane = places
                    .binary_search_by_key(&&span.lane, |(place, _)| place)
                    .ok()?;
                let from = span.begin.saturating_sub(begin);
                Some((
                    lane,
                    span.name,
                    from,
                    span.duration,
                    u8::from(span.doubtful),
                ))
            })
            .collect();
        let lanes = places
            .iter()
            .map(|(place, lane)| lane_data(overview, **place, lane));
        Self {
            title: short(title),
            facts: facts(summary),
            length: summary.recorded().max(1),
            step: overview.step,
            lanes: lanes.collect(),
            names: overview.names().into_iter().map(short).collect(),
            spans,
            spans_left_out: overview.left_out,
            not_drawn: overview.not_drawn(),
            lanes_left_out,
            tables: tables(summary),
            agents: agents(gpu, begin, summary.recorded()),
            memory: memory_curves(gpu, memory, begin),
            latencies: latencies(gpu),
            qualities: qualities(gpu),
            failed: &summary.failed,
            nothing: nothing(summary),
            losses: losses(summary),
            complete: summary.ledger.as_ref().map(|ledger| ledger.complete),
            unfinished: unfinished(summary),
            unfinished_calls: summary.unfinished_calls,
            estimates: summary.gpu.remark(),
            notices: &summary.notices,
            more_notices: summary.more_notices,
        }
    }
}

/// A lane of the overview, with its busy share in each step, in thousandths.
fn lane_data(overview: &Overview, place: Place, lane: &Lane) -> LaneData {
    let (group, title) = overview.title(place);
    let share = |busy: &u64| {
        let share = u128::from(*busy) * 1000 / u128::from(overview.step);
        // A non-zero time is shown as non-zero.
        u16::try_from(share.min(1000))
            .unwrap_or(1000)
            .max(u16::from(*busy > 0))
    };
    let mut busy: Vec<u16> = lane.busy.iter().map(share).collect();
    let used = busy
        .iter()
        .rposition(|share| *share > 0)
        .map_or(0, |last| last + 1);
    busy.truncate(used);
    LaneData {
        kind: kind(place),
        group: short(&group),
        title: short(&title),
        count: lane.count,
        total: lane.total,
        busy,
    }
}

/// Busy times of the agents; `begin` is when the recording began, and `recorded` how long it took,
/// ns.
fn agents(gpu: &GpuUse, begin: u64, recorded: u64) -> Vec<AgentData> {
    gpu.agents
        .busy
        .iter()
        .map(|(node, busy)| AgentData {
            title: short(&gpu.gpus.agent_title(*node)),
            busy: busy.busy(),
            range: busy.range(),
            active: busy.active(recorded),
            kernels: busy.kernels,
            untimed: busy.untimed,
            partial: busy.is_partial(),
            meaning: busy.meaning(recorded),
            gaps: row("Gaps between kernels", &busy.gaps.durations),
            gap_count: busy.gaps.count(),
            longest: busy
                .gaps
                .longest
                .iter()
                .map(|gap| (gap.begin.saturating_sub(begin), gap.length(), gap.is_part))
                .collect(),
            longest_range: busy.longest_gap_range(),
        })
        .collect()
}

/// Memory of each agent over time; `begin` is when the recording began, ns.
fn memory_curves(gpu: &GpuUse, memory: &MemoryUse, begin: u64) -> Vec<MemoryData> {
    memory
        .nodes
        .iter()
        .map(|(node, curve)| MemoryData {
            title: short(&gpu.gpus.agent_title(Some(*node))),
            peak: curve.peak,
            points: curve
                .points
                .iter()
                .map(|(time, bytes)| (time.saturating_sub(begin), *bytes))
                .collect(),
        })
        .collect()
}

/// Latencies of kernels.
fn latencies(gpu: &GpuUse) -> Vec<Row> {
    [
        (
            "From the start of the call to the start of the kernel",
            &gpu.since_call,
        ),
        (
            "From the submission to the start of the kernel",
            &gpu.since_submission,
        ),
    ]
    .into_iter()
    .filter(|(_, durations)| durations.calls > 0)
    .map(|(name, durations)| row(name, durations))
    .collect()
}

/// Number of kernels and of copies, by quality.
fn qualities(gpu: &GpuUse) -> Vec<(&'static str, u64, u64)> {
    [
        Quality::Exact,
        Quality::Sampled,
        Quality::Bounded,
        Quality::Submitted,
    ]
    .map(|quality| {
        (
            quality.name(),
            gpu.kernel_qualities.of(quality),
            gpu.copy_qualities.of(quality),
        )
    })
    .to_vec()
}

/// Calls that had not returned: function, process, thread, and age in ns.
fn unfinished(summary: &Summary) -> Vec<(String, u32, u32, u64)> {
    summary
        .unfinished
        .iter()
        .map(|call| {
            let name = short(summary.functions.name(call.function));
            (
                name,
                call.pid,
                call.tid,
                call.end.saturating_sub(call.begin),
            )
        })
        .collect()
}

fn is_zero(number: &f64) -> bool {
    *number == 0.0
}

fn is_none(count: &u64) -> bool {
    *count == 0
}

fn facts(summary: &Summary) -> Vec<(&'static str, String)> {
    let recording = &summary.recording;
    let target = match &recording.mode {
        Mode::Launch { command } => command.join(" "),
        Mode::Attach { pids } => {
            let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
            format!("running process {}", pids.join(", "))
        }
        Mode::Node => "every process of the node".to_owned(),
        Mode::Merged { captures } => format!("the targets of {captures} captures"),
    };
    let bill = summary.costs.bill();
    let cost = costs::line(&bill).map(|line| format!("{line} (estimated, {})", bill.how_known()));
    let cost = cost.unwrap_or_default();
    [
        ("Traced", target),
        ("Host", recording.hostname.clone()),
        (
            "Kernel",
            format!("{} {}", recording.kernel_release, recording.machine)
                .trim()
                .to_owned(),
        ),
        ("Domains", recording.domains.join(", ")),
        (
            "Recorded by",
            format!("gputrace {}", recording.tool_version)
                .trim()
                .to_owned(),
        ),
        ("Began", began(recording.clocks.realtime)),
        ("Cost of tracing", cost),
    ]
    .into_iter()
    .filter(|(_, text)| !text.is_empty())
    .map(|(name, text)| (name, short(&text)))
    .collect()
}

/// Milliseconds since the Unix epoch, which the script shows in the reader's time zone; empty if
/// unknown.
fn began(realtime: u64) -> String {
    match realtime {
        0 => String::new(),
        ns => (ns / 1_000_000).to_string(),
    }
}

fn tables(summary: &Summary) -> Vec<Table> {
    let work = |(name, work): (&str, &WorkUse), bytes: bool| Row {
        count: work.qualities.total(),
        error: work.sum.error(),
        estimated: work.sum.estimated_by_classes(),
        bytes: bytes.then_some((work.bytes, work.timed_bytes)),
        ..row(name, &work.durations)
    };
    let gpu = &summary.gpu;
    let kernels = gpu
        .kernels
        .iter()
        .map(|(name, kernel)| work((name, kernel), false));
    let copies = gpu
        .copies
        .iter()
        .map(|(direction, copies)| work((direction.name(), copies), true));
    let mut tables = vec![
        table("kernels", "Kernels", kernels.collect()),
        table("copies", "Copies", copies.collect()),
    ];
    for (group, functions) in &summary.groups {
        let rows = functions
            .iter()
            .map(|(name, durations)| row(name, durations))
            .collect();
        tables.push(table(group, &group_title(group), rows));
    }
    tables.retain(|table| !table.rows.is_empty());
    tables
}

fn table(id: &str, title: &str, mut rows: Vec<Row>) -> Table {
    rows.sort_by(|a, b| b.total.cmp(&a.total).then_with(|| a.name.cmp(&b.name)));
    let left_out = rows.len().saturating_sub(ROWS);
    rows.truncate(ROWS);
    Table {
        id: id.to_owned(),
        title: title.to_owned(),
        rows,
        left_out,
    }
}

fn row(name: &str, durations: &Durations) -> Row {
    Row {
        name: short(name),
        count: durations.calls,
        timed: durations.calls,
        total: u64::try_from(durations.total).unwrap_or(u64::MAX),
        error: 0.0,
        estimated: 0,
        mean: durations.average(),
        min: durations.min,
        p50: durations.percentile(50.0),
        p95: durations.percentile(95.0),
        p99: durations.percentile(99.0),
        max: durations.max,
        bytes: None,
        stepped: durations.stepped,
        histogram: durations.buckets(PER_DECADE),
    }
}

fn losses(summary: &Summary) -> Vec<Loss> {
    let Some(ledger) = &summary.ledger else {
        return Vec::new();
    };
    let mut rows: Vec<Loss> = ledger
        .by_domain()
        .iter()
        .map(|row| Loss {
            domain: gputrace_capture::ledger::Ledger::domain_name(row.domain).into_owned(),
            seen: row.seen,
            written: row.written,
            unfinished: row.unfinished,
            lost: row.lost(),
        })
        .collect();
    let total = ledger.total();
    rows.push(Loss {
        domain: "TOTAL".to_owned(),
        seen: total.seen,
        written: total.written,
        unfinished: total.unfinished,
        lost: total.lost(),
    });
    rows
}

fn short(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}...", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gputrace_export::synthetic::{estimated, events};
    use gputrace_timeline::event::Event;

    #[test]
    fn the_page_says_what_the_summary_says() {
        let (mut summary, mut overview) = (Summary::default(), Overview::default());
        let mut memory = MemoryUse::default();
        for event in events() {
            summary.event(&event);
            overview.event(&event);
            memory.event(&event);
        }
        summary.finish();
        let page =
            serde_json::to_value(Page::new("run.gtcap", &summary, &overview, &memory)).unwrap();
        assert_eq!(page["length"], 500_000);
        assert_eq!(page["facts"][0][1], "./train");
        let kernels = &page["tables"][0];
        assert_eq!(kernels["title"], "Kernels");
        let count = |rows: &serde_json::Value| -> u64 {
            rows.as_array()
                .unwrap()
                .iter()
                .map(|row| row["count"].as_u64().unwrap())
                .sum()
        };
        assert_eq!(count(&kernels["rows"]), 8);
        assert_eq!(count(&page["tables"][1]["rows"]), 3);
        assert_eq!(page["unfinished_calls"], 1);
        assert_eq!(page["qualities"][0][0], "exact");
        let row = &kernels["rows"][0];
        let in_buckets: u64 = row["histogram"]
            .as_array()
            .unwrap()
            .iter()
            .map(|bucket| bucket[1].as_u64().unwrap())
            .sum();
        assert_eq!(row["timed"], in_buckets);
        let lanes = page["lanes"].as_array().unwrap();
        for span in page["spans"].as_array().unwrap() {
            assert!((span[0].as_u64().unwrap() as usize) < lanes.len());
        }
        assert_eq!(page["agents"][0]["busy"].as_u64(), Some(71_000));
        assert!(page.get("nothing").is_none());
    }

    #[test]
    fn estimates_have_errors_and_busy_times_ranges() {
        let mut summary = Summary::default();
        for mut event in events() {
            if let Event::Dispatch(dispatch) = &mut event
                && dispatch.time.quality == Quality::Sampled
            {
                dispatch.time = estimated(dispatch.time.begin, dispatch.time.end, 0, 4000);
            }
            summary.event(&event);
        }
        summary.finish();
        let (overview, memory) = (Overview::default(), MemoryUse::default());
        let page =
            serde_json::to_value(Page::new("run.gtcap", &summary, &overview, &memory)).unwrap();
        let kernel = &page["tables"][0]["rows"][0];
        assert_eq!(
            (kernel["error"].as_f64(), kernel["estimated"].as_u64()),
            (Some(4000.0), Some(1))
        );
        let agent = &page["agents"][0];
        let at = |index: usize| agent["range"][index].as_u64().unwrap();
        let busy = agent["busy"].as_u64().unwrap();
        assert_eq!((at(0), busy), (busy - 8000, 91_000));
        assert!(at(1) > busy);
    }

    #[test]
    fn long_names_are_cut_between_characters() {
        let long = "\u{e9}".repeat(LONGEST + 1);
        assert_eq!(short(&long).chars().count(), LONGEST + 3);
        assert_eq!(short("add"), "add");
    }
}
