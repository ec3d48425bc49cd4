//! The cells of the tables, for the page and for the screen.

use gputrace_text::tables::{Align, bytes, duration, with_error};

use crate::{
    group::GroupBy,
    snapshot::{
        Busy, FunctionRow, GpuRow, GroupRow, KernelRow, ProcessRow, Quantiles, QueueRow, Usage,
    },
};

/// Shown where nothing is known.
pub(crate) const NOTHING: &str = "-";

/// Headings of a table, with the alignment of its columns.
pub(crate) type Heading = [(&'static str, Align)];

pub(crate) const GPUS: [(&str, Align); 9] = [
    ("GPU", Align::Left),
    ("BUSY %", Align::Right),
    ("ACTIVE %", Align::Right),
    ("KERNELS/s", Align::Right),
    ("COPIED/s", Align::Right),
    ("VRAM", Align::Right),
    ("POWER", Align::Right),
    ("CLOCK", Align::Right),
    ("PCI", Align::Right),
];

pub(crate) const PROCESSES: [(&str, Align); 15] = [
    ("PID", Align::Right),
    ("COMMAND", Align::Left),
    ("GPU", Align::Right),
    ("BUSY %", Align::Right),
    ("SHARE %", Align::Right),
    ("KERNELS/s", Align::Right),
    ("PENDING", Align::Right),
    ("CALLS/s", Align::Right),
    ("ERRORS/s", Align::Right),
    ("COPIED/s", Align::Right),
    ("COST %", Align::Right),
    ("VRAM", Align::Right),
    ("LAUNCH p50/p99", Align::Right),
    ("USER", Align::Right),
    ("IN", Align::Right),
];

/// Number of columns of [`PROCESSES`] before and after those of [`usage`].
const OF_PROCESS: (usize, usize) = (2, 2);

/// The table of groups.
pub(crate) fn groups(by: GroupBy) -> Vec<(&'static str, Align)> {
    let (before, after) = OF_PROCESS;
    let shared = PROCESSES.len() - after;
    let own = [(by.heading(), Align::Left), ("PROCESSES", Align::Right)];
    let shared = PROCESSES.iter().take(shared).skip(before);
    own.into_iter().chain(shared.copied()).collect()
}

pub(crate) const QUEUES: [(&str, Align); 7] = [
    ("PID", Align::Right),
    ("QUEUE", Align::Right),
    ("GPU", Align::Left),
    ("BUSY %", Align::Right),
    ("KERNELS/s", Align::Right),
    ("PENDING", Align::Right),
    ("LAUNCH p50/p99", Align::Right),
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

/// A cell of a table.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cell {
    /// As shown; not escaped.
    pub(crate) text: String,
    /// The number by which rows are sorted; `None`: by the text.
    pub(crate) number: Option<f64>,
}

impl Cell {
    fn name(text: String) -> Self {
        Self { text, number: None }
    }

    fn number(text: String, number: f64) -> Self {
        Self {
            text,
            number: Some(number),
        }
    }

    /// A number that may be unknown. Unknown ones are sorted last.
    fn known(number: Option<f64>, text: impl FnOnce(f64) -> String) -> Self {
        match number {
            Some(number) => Self::number(text(number), number),
            None => Self::number(NOTHING.to_owned(), -1.0),
        }
    }

    fn count(count: u64) -> Self {
        Self::number(count.to_string(), count as f64)
    }

    /// Events per second.
    fn rate(count: u64, seconds: f64) -> Self {
        let rate = count as f64 / seconds;
        let text = if count == 0 {
            "0".to_owned()
        } else if rate < 9.95 {
            format!("{rate:.1}")
        } else {
            format!("{rate:.0}")
        };
        Self::number(text, rate)
    }

    /// Bytes per second.
    fn bytes_rate(count: u64, seconds: f64) -> Self {
        let rate = count as f64 / seconds;
        Self::number(bytes(rate as u64), rate)
    }

    /// Median and 99th percentile.
    fn latency(latency: Option<Quantiles>) -> Self {
        Self::known(latency.map(|latency| latency.p50 as f64), |p50| {
            let p99 = latency.map_or(0.0, |latency| latency.p99 as f64);
            format!("{}/{}", duration(p50), duration(p99))
        })
    }

    /// Time in % of the interval, or the range in which it lies.
    fn busy(busy: &Busy, seconds: f64) -> Self {
        let [least, most] = [busy.least_ns, busy.most_ns].map(|ns| percent(ns, seconds));
        if let Some(ns) = busy.ns {
            let share = percent(ns, seconds);
            return Self::number(format!("{share:.1}"), share);
        }
        let (from, to) = (format!("{least:.0}"), format!("{most:.0}"));
        let text = if from == to {
            to
        } else {
            format!("{from}-{to}")
        };
        Self::number(text, most)
    }
}

pub(crate) fn gpu(row: &GpuRow, seconds: f64) -> Vec<Cell> {
    let active = row.active_ns.map(|ns| percent(ns, seconds));
    vec![
        Cell::name(row.name.clone()),
        Cell::busy(&row.busy, seconds),
        Cell::known(active, |active| {
            let error = percent(row.active_error_ns.unwrap_or_default(), seconds);
            format!("{active:.1} +-{error:.1}")
        }),
        Cell::rate(row.kernels, seconds),
        Cell::bytes_rate(row.copied_bytes, seconds),
        Cell::known(row.vram_used_bytes.map(|used| used as f64), |used| {
            let used = bytes(used as u64);
            match row.vram_total_bytes {
                Some(total) => format!("{used} of {}", bytes(total)),
                None => used,
            }
        }),
        Cell::known(row.power_w, |watts| format!("{watts:.0} W")),
        Cell::known(row.clock_mhz, |mhz| format!("{mhz:.0} MHz")),
        Cell::name(or_nothing(row.pci.clone())),
    ]
}

pub(crate) fn process(row: &ProcessRow, seconds: f64) -> Vec<Cell> {
    let identity = row.identity.as_ref();
    let user = identity.map(|identity| identity.user.clone());
    let places = identity.map(|identity| identity.places().join(", "));
    let mut cells = vec![Cell::count(row.pid.into()), Cell::name(row.command.clone())];
    cells.extend(usage(&row.usage, seconds));
    cells.extend([Cell::name(or_nothing(user)), Cell::name(or_nothing(places))]);
    cells
}

pub(crate) fn group(row: &GroupRow, seconds: f64) -> Vec<Cell> {
    let mut cells = vec![
        Cell::name(or_nothing(row.name.clone())),
        Cell::count(row.pids.len() as u64),
    ];
    cells.extend(usage(&row.usage, seconds));
    cells
}

fn usage(usage: &Usage, seconds: f64) -> Vec<Cell> {
    let nodes: Vec<String> = usage.gpus.iter().map(u32::to_string).collect();
    let cost = percent(usage.cost_ns, seconds);
    vec![
        Cell::name(or_nothing(Some(nodes.join(",")))),
        Cell::busy(&usage.busy, seconds),
        Cell::known(usage.busy_share, |share| format!("{:.1}", share * 100.0)),
        Cell::rate(usage.kernels, seconds),
        Cell::count(usage.pending),
        Cell::rate(usage.calls, seconds),
        Cell::rate(usage.failed_calls, seconds),
        Cell::bytes_rate(usage.copied_bytes, seconds),
        Cell::number(format!("{cost:.1}"), cost),
        Cell::known(usage.vram_bytes.map(|vram| vram as f64), |vram| {
            bytes(vram as u64)
        }),
        Cell::latency(usage.launch_latency_ns),
    ]
}

pub(crate) fn queue(row: &QueueRow, seconds: f64) -> Vec<Cell> {
    vec![
        Cell::count(row.pid.into()),
        Cell::count(row.queue),
        Cell::name(row.gpu.clone()),
        Cell::busy(&row.busy, seconds),
        Cell::rate(row.kernels, seconds),
        Cell::count(row.pending),
        Cell::latency(row.launch_latency_ns),
    ]
}

pub(crate) fn kernel(row: &KernelRow, seconds: f64) -> Vec<Cell> {
    let share = (row.known > 0).then(|| percent(row.total_ns, seconds));
    vec![
        Cell::count(row.pid.into()),
        Cell::name(row.name.clone()),
        Cell::rate(row.calls, seconds),
        Cell::known(share, |share| {
            let least = if row.known < row.calls { ">= " } else { "" };
            format!("{least}{share:.1}")
        }),
        Cell::known(row.mean_ns, |mean| {
            if row.mean_error_ns > 0.0 {
                with_error(mean, row.mean_error_ns)
            } else {
                duration(mean)
            }
        }),
    ]
}

pub(crate) fn function(row: &FunctionRow, seconds: f64) -> Vec<Cell> {
    let (share, mean) = (
        percent(row.total_ns, seconds),
        row.total_ns as f64 / row.calls.max(1) as f64,
    );
    vec![
        Cell::count(row.pid.into()),
        Cell::name(row.name.clone()),
        Cell::rate(row.calls, seconds),
        Cell::rate(row.failed, seconds),
        Cell::number(format!("{share:.1}"), share),
        Cell::number(duration(mean), mean),
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
