//! Where the time went, as a tree of calls: each function below its callers, for each thread, and
//! for all threads of a process together.
//!
//! The text and the JSON document follow rocprofiler-systems' `wall_clock.txt` and
//! `wall_clock.json` (the formats of timemory): label, count, depth, metric, unit, sum, mean, min,
//! max, variance, standard deviation, and the share of the time that was not spent in functions
//! below. Functions of the program, API calls and nested ranges of markers share one tree. Ranges
//! that may overlap with others, and marks, are not in it: they contain nothing.
//!
//! A call that had not returned counts up to the time until which it was open. A call whose caller
//! was lost is shown below the next known call around it, or at the top if there is none; the
//! number of such calls is shown.

mod json;
mod text;
pub mod tree;

use std::{
    collections::{BTreeMap, HashSet},
    io::{BufWriter, Write as _},
};

use gputrace_abi::domain::Domain;
use gputrace_capture::ledger::Ledger;
use gputrace_timeline::event::{Call, CallEnd, Event, RangeKind};

use gputrace_export::{
    exporter::{ExportError, Exporter, Output},
    functions::Functions,
    output::OutputDir,
};
use tree::{Stats, Thread, Tree};

/// One row of a report.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The function, or [`gputrace_export::functions::UNKNOWN_FUNCTION`].
    pub label: String,
    /// Number of calls around it in the report.
    pub depth: usize,
    /// Number and times of its calls, ns.
    pub stats: Stats,
    /// Part of the sum that was not spent in the rows below, ns.
    pub own: u64,
}

impl Row {
    /// [`Row::own`] in percent of the sum; 0 if the sum is 0.
    #[must_use]
    pub fn self_percent(&self) -> f64 {
        if self.stats.sum == 0 {
            return 0.0;
        }
        self.own as f64 * 100.0 / self.stats.sum as f64
    }
}

/// The report on one thread, or on all threads of a process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Part {
    /// The process.
    pub pid: u32,
    /// The thread id, and the thread's number in order of first calls, where the main thread is 0;
    /// `None` for all threads together.
    pub thread: Option<(u32, usize)>,
    /// The rows, callers before callees.
    pub rows: Vec<Row>,
}

/// Exporter of `NAME_wall_clock.txt` and `NAME_wall_clock.json`.
#[derive(Debug)]
pub struct WallClockExporter {
    directory: OutputDir,
    name: String,
    /// `None` until the recording says whether functions of programs were traced.
    active: Option<bool>,
    functions: Functions,
    /// Functions that stand for texts of markers that are in no tree.
    aside: HashSet<u32>,
    /// By process, then thread.
    threads: BTreeMap<u32, BTreeMap<u32, Thread>>,
    unfinished: u64,
    lost: u64,
}

impl WallClockExporter {
    /// Writes files to `directory`. Without `asked`, it writes them only if functions of programs
    /// were traced.
    #[must_use]
    pub fn new(directory: OutputDir, name: &str, asked: bool) -> Self {
        Self {
            directory,
            name: name.to_owned(),
            active: asked.then_some(true),
            functions: Functions::default(),
            aside: HashSet::new(),
            threads: BTreeMap::new(),
            unfinished: 0,
            lost: 0,
        }
    }

    fn call(&mut self, call: &Call) {
        if self.aside.contains(&call.function) {
            return;
        }
        let is_over = matches!(call.how, CallEnd::Returned(_) | CallEnd::NotSeen);
        self.unfinished += u64::from(!is_over);
        let threads = self.threads.entry(call.pid).or_default();
        threads.entry(call.tid).or_default().take(call);
    }

    fn account(&mut self, ledger: &Ledger) {
        let is_call = |domain: u8| Domain::from_id(domain).is_none_or(Domain::is_api);
        self.lost = ledger
            .rows
            .iter()
            .filter(|row| is_call(row.domain))
            .fold(0, |lost, row| lost.saturating_add(row.lost()));
    }

    /// The reports on whole processes, the reports on threads, and the number of calls whose caller
    /// is unknown.
    fn parts(self) -> (Vec<Part>, Vec<Part>, u64) {
        let (mut merged, mut single, mut orphans) = (Vec::new(), Vec::new(), 0);
        for (pid, threads) in self.threads {
            let mut threads: Vec<(u32, Thread)> = threads.into_iter().collect();
            threads.sort_by_key(|(tid, thread)| (*tid != pid, thread.first()));
            let mut all = Tree::default();
            for (number, (tid, thread)) in threads.into_iter().enumerate() {
                let (tree, strays) = thread.finish();
                orphans += strays;
                all.merge(&tree);
                single.push(Part {
                    pid,
                    thread: Some((tid, number)),
                    rows: rows(&tree, &self.functions),
                });
            }
            merged.push(Part {
                pid,
                thread: None,
                rows: rows(&all, &self.functions),
            });
        }
        (merged, single, orphans)
    }
}

/// The rows of a tree.
fn rows(tree: &Tree, functions: &Functions) -> Vec<Row> {
    tree.rows()
        .map(|(function, depth, stats, own)| Row {
            label: functions.name(function).to_owned(),
            depth,
            stats,
            own,
        })
        .collect()
}

impl Exporter for WallClockExporter {
    fn format(&self) -> &'static str {
        "wall-clock"
    }

    fn event(&mut self, event: &Event) -> Result<(), ExportError> {
        match event {
            Event::Recording(recording) => {
                let has = recording
                    .domains
                    .iter()
                    .any(|name| name == Domain::Function.name());
                self.active.get_or_insert(has);
            }
            Event::Function(info) => {
                self.functions.learn(info);
                if matches!(info.range, Some(RangeKind::Free | RangeKind::Mark)) {
                    self.aside.insert(info.function.id);
                }
            }
            Event::Call(call) if self.active == Some(true) => self.call(call),
            Event::Ledger(ledger) => self.account(ledger),
            _ => {}
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Vec<Output>, ExportError> {
        if self.active != Some(true) {
            return Ok(Vec::new());
        }
        let (directory, name) = (self.directory.clone(), self.name.clone());
        let (unfinished, lost) = (self.unfinished, self.lost);
        let (merged, single, orphans) = self.parts();
        let mut remarks = Vec::new();
        let mut remark = |count: u64, text: &str| {
            if count != 0 {
                remarks.push(format!("{count} {text}"));
            }
        };
        remark(
            lost,
            "calls were lost, see NAME_loss.csv or the summary; the rows that called them include \
             their time",
        );
        remark(
            unfinished,
            "calls had not returned; their times are those up to the end of their thread or of the recording",
        );
        remark(
            orphans,
            "calls were made by calls, or in ranges, that are not recorded; they appear below the \
             next recorded one, or at the top",
        );

        let mut text = BufWriter::new(directory.file(&format!("{name}_wall_clock.txt"))?);
        text::write(&mut text, &merged, &single, &remarks)?;
        text.flush()?;
        let mut json = BufWriter::new(directory.file(&format!("{name}_wall_clock.json"))?);
        json::write(&mut json, &merged, &single, &remarks)?;
        json.flush()?;
        let inner = |file: BufWriter<_>| {
            file.into_inner()
                .map_err(|error| ExportError::from(error.into_error()))
        };
        Ok(vec![
            inner(text)?.finish("time by caller and callee, as text")?,
            inner(json)?.finish("time by caller and callee")?,
        ])
    }
}

#[cfg(test)]
mod tests;
