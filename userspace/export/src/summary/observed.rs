//! What the kernel did: sums, and what held processes up.

use std::{
    collections::BTreeMap,
    fmt::{self, Write},
};

use gputrace_abi::domain::Domain;
use gputrace_timeline::observation::{Observation, RUNNABLE, Whose};

use super::text::{
    Align::{Left, Right},
    count, duration, plain, table,
};

/// Threads that are listed: those that were kept from running longest.
const LISTED_THREADS: usize = 20;

/// How often, how long in all, and how long at most, ns.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    count: u64,
    total: u64,
    most: u64,
}

impl Sum {
    fn add(&mut self, one: &Observation) {
        self.count += 1;
        self.total = self.total.saturating_add(one.duration());
        self.most = self.most.max(one.duration());
    }
}

/// Scheduling of a thread.
#[derive(Clone, Copy, Debug, Default)]
struct Scheduling {
    asleep: Sum,
    runnable: Sum,
}

/// What observations add up to.
#[derive(Debug, Default)]
pub(super) struct Observed {
    threads: BTreeMap<(u32, u32), Scheduling>,
    /// Others, by domain and name.
    others: BTreeMap<(u8, String), Sum>,
}

impl Observed {
    pub(super) fn observation(&mut self, one: &Observation) {
        let Whose { pid, tid, .. } = one.whose;
        if Domain::from_id(one.domain) == Some(Domain::Sched) {
            let thread = self.threads.entry((pid, tid)).or_default();
            if one.name == RUNNABLE {
                thread.runnable.add(one);
            } else {
                thread.asleep.add(one);
            }
            return;
        }
        let key = (one.domain, one.name.clone().into_owned());
        self.others.entry(key).or_default().add(one);
    }

    /// Whether there is anything to be shown.
    pub(super) fn any(&self) -> bool {
        !self.threads.is_empty() || !self.others.is_empty()
    }

    pub(super) fn render(&self, names: &BTreeMap<u32, String>, out: &mut impl Write) -> fmt::Result {
        self.scheduling(names, out)?;
        self.counts(out)
    }

    /// What there was besides, by name.
    fn counts(&self, out: &mut impl Write) -> fmt::Result {
        if self.others.is_empty() {
            return Ok(());
        }
        let mut rows = vec![
            ["Driver event", "Count", "Total", "Longest"]
                .map(str::to_owned)
                .to_vec(),
        ];
        for ((_, name), sum) in &self.others {
            let time = |ns: u64| {
                if sum.total == 0 {
                    String::new()
                } else {
                    duration(ns as f64)
                }
            };
            rows.push(vec![
                plain(name),
                sum.count.to_string(),
                time(sum.total),
                time(sum.most),
            ]);
        }
        writeln!(out, "\nDriver")?;
        table(out, &[Left, Right, Right, Right], &rows)
    }

    fn scheduling(&self, names: &BTreeMap<u32, String>, out: &mut impl Write) -> fmt::Result {
        if self.threads.is_empty() {
            return Ok(());
        }
        let mut threads: Vec<_> = self.threads.iter().collect();
        threads.sort_by_key(|(ids, one)| (std::cmp::Reverse(one.runnable.total), **ids));
        let heading = [
            "Process",
            "Thread",
            "Name",
            "Waits",
            "Waiting for a CPU",
            "Longest",
            "Sleeps",
            "Asleep",
        ];
        let mut rows = vec![heading.map(str::to_owned).to_vec()];
        for ((pid, tid), one) in threads.iter().take(LISTED_THREADS) {
            rows.push(vec![
                pid.to_string(),
                tid.to_string(),
                names.get(tid).map(|name| plain(name)).unwrap_or_default(),
                one.runnable.count.to_string(),
                duration(one.runnable.total as f64),
                duration(one.runnable.most as f64),
                one.asleep.count.to_string(),
                duration(one.asleep.total as f64),
            ]);
        }
        writeln!(out, "\nScheduling (threads that waited longest for a CPU first)")?;
        table(
            out,
            &[Right, Right, Left, Right, Right, Right, Right, Right],
            &rows,
        )?;
        match self.threads.len().saturating_sub(LISTED_THREADS) {
            0 => Ok(()),
            more => writeln!(out, "  and {}", count(more as u64, "more thread")),
        }
    }
}
