//! The cells of the tables, for the page and for the screen.

use gputrace_text::tables::{Align, bytes, duration, with_error};

use crate::snapshot::{Busy, FunctionRow, GpuRow, KernelRow, ProcessRow};

/// Shown where nothing is known.
const NOTHING: &str = "-";

/// Headings of a table, with the alignment of its columns.
pub(crate) type Heading = [(&'static str, Align)];

pub(crate) const GPUS: [(&str, Align); 8] = [
    ("GPU", Align::Left),
    ("BUSY %", Align::Right),
    ("ACTIVE %", Align::Right),
    ("KERNELS/s", Align::Right),
    ("COPIED/s", Align::Right),
    ("VRAM", Align::Right),
    ("POWER", Align::Right),
    ("CLOCK", Align::Right),
];

pub(crate) const PROCESSES: [(&str, Align); 12] = [
    ("PID", Align::Right),
    ("COMMAND", Align::Left),
    ("BUSY %", Align::Right),
    ("KERNELS/s", Align::Right),
    ("PENDING", Align::Right),
    ("CALLS/s", Align::Right),
    ("ERRORS/s", Align::Right),
    ("COPIED/s", Align::Right),
    ("VRAM", Align::Right),
    ("LAUNCH p50/p99", Align::Right),
    ("USER", Align::Right),
    ("IN", Align::Right),
];

pub(crate) const KERNELS: [(&str, Align); 5] = [
    ("PID", Align::Right),
    ("KERNEL", Align::Left),
    ("CALLS/s", Align::Right),
    ("TIME %", Align::Right),
    ("MEAN", Align::Right),
];

pub(crate) const FUNCTIONS: [(&str, Align); 6] = [
    ("PID", Align::Right),
    ("FUNCTION", Align::Left),
    ("CALLS/s", Align::Right),
    ("ERRORS/s", Align::Right),
    ("TIME %", Align::Right),
    ("MEAN", Align::Right),
];

pub(crate) fn gpu(row: &GpuRow, seconds: f64) -> Vec<String> {
    let vram = match (row.vram_used_bytes, row.vram_total_bytes) {
        (Some(used), Some(total)) => format!("{} of {}", bytes(used), bytes(total)),
        (Some(used), None) => bytes(used),
        (None, _) => NOTHING.to_owned(),
    };
    vec![
        row.name.clone(),
        busy(&row.busy, seconds),
        match (row.active_ns, row.active_error_ns) {
            (Some(active), Some(error)) => {
                let [active, error] = [active, error].map(|ns| percent(ns, seconds));
                format!("{active:.1} +-{error:.1}")
            }
            _ => NOTHING.to_owned(),
        },
        rate(row.kernels, seconds),
        bytes_rate(row.copied_bytes, seconds),
        vram,
        row.power_w
            .map_or_else(|| NOTHING.to_owned(), |watts| format!("{watts:.0} W")),
        row.clock_mhz
            .map_or_else(|| NOTHING.to_owned(), |mhz| format!("{mhz:.0} MHz")),
    ]
}

pub(crate) fn process(row: &ProcessRow, seconds: f64) -> Vec<String> {
    let latency = row.launch_latency_ns.map_or_else(
        || NOTHING.to_owned(),
        |latency| {
            let [p50, p99] = [latency.p50, latency.p99].map(|ns| duration(ns as f64));
            format!("{p50}/{p99}")
        },
    );
    vec![
        row.pid.to_string(),
        row.command.clone(),
        busy(&row.busy, seconds),
        rate(row.kernels, seconds),
        row.pending.to_string(),
        rate(row.calls, seconds),
        rate(row.failed_calls, seconds),
        bytes_rate(row.copied_bytes, seconds),
        row.vram_bytes.map_or_else(|| NOTHING.to_owned(), bytes),
        latency,
        or_nothing(row.identity.as_ref().map(|identity| identity.user.clone())),
        or_nothing(
            row.identity
                .as_ref()
                .map(|identity| identity.places().join(", ")),
        ),
    ]
}

pub(crate) fn kernel(row: &KernelRow, seconds: f64) -> Vec<String> {
    let time = if row.known == 0 {
        NOTHING.to_owned()
    } else {
        let least = if row.known < row.calls { ">= " } else { "" };
        format!("{least}{:.1}", percent(row.total_ns, seconds))
    };
    let mean = match row.mean_ns {
        None => NOTHING.to_owned(),
        Some(mean) if row.mean_error_ns > 0.0 => with_error(mean, row.mean_error_ns),
        Some(mean) => duration(mean),
    };
    vec![
        row.pid.to_string(),
        row.name.clone(),
        rate(row.calls, seconds),
        time,
        mean,
    ]
}

pub(crate) fn function(row: &FunctionRow, seconds: f64) -> Vec<String> {
    vec![
        row.pid.to_string(),
        row.name.clone(),
        rate(row.calls, seconds),
        rate(row.failed, seconds),
        format!("{:.1}", percent(row.total_ns, seconds)),
        duration(row.total_ns as f64 / row.calls.max(1) as f64),
    ]
}

fn or_nothing(text: Option<String>) -> String {
    text.filter(|text| !text.is_empty())
        .unwrap_or_else(|| NOTHING.to_owned())
}

/// Part of the interval, %.
fn percent(ns: u64, seconds: f64) -> f64 {
    ns as f64 / (seconds * 1e9) * 100.0
}

/// The time in % of the interval, or the range in which it lies.
fn busy(busy: &Busy, seconds: f64) -> String {
    if let Some(ns) = busy.ns {
        return format!("{:.1}", percent(ns, seconds));
    }
    let [least, most] =
        [busy.least_ns, busy.most_ns].map(|ns| format!("{:.0}", percent(ns, seconds)));
    if least == most {
        least
    } else {
        format!("{least}-{most}")
    }
}

/// A number per second.
fn rate(count: u64, seconds: f64) -> String {
    let rate = count as f64 / seconds;
    if count == 0 {
        "0".to_owned()
    } else if rate < 9.95 {
        format!("{rate:.1}")
    } else {
        format!("{rate:.0}")
    }
}

fn bytes_rate(count: u64, seconds: f64) -> String {
    bytes((count as f64 / seconds) as u64)
}
