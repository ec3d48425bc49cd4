//! Observations: sums, and what held processes up.

use std::{
    collections::BTreeMap,
    fmt::{self, Write},
};

use gputrace_abi::domain::Domain;
use gputrace_text::Page;
use gputrace_timeline::{
    driver::EVICTED,
    observation::{Observation, RUNNABLE, Whose},
};

use gputrace_text::tables::{
    Align::{Left, Right},
    count, duration, table,
};

/// Maximum number of threads listed: those that were kept from running longest.
const LISTED_THREADS: usize = 20;

/// Maximum number of evictions listed: the longest.
const LISTED_EVICTIONS: usize = 20;

/// Number, total and maximum; times in ns.
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

/// Sums of observations.
#[derive(Debug, Default)]
pub(super) struct Observed {
    threads: BTreeMap<(u32, u32), Scheduling>,
    /// Other observations, by domain and name.
    others: BTreeMap<(u8, String), Sum>,
    /// Periods in which queues were off a GPU, longest first.
    evictions: Vec<Observation>,
    more_evictions: u64,
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
        if one.name == EVICTED {
            self.eviction(one);
        }
        let key = (one.domain, one.name.clone().into_owned());
        self.others.entry(key).or_default().add(one);
    }

    fn eviction(&mut self, one: &Observation) {
        let at = self
            .evictions
            .partition_point(|other| other.duration() >= one.duration());
        self.evictions.insert(at, one.clone());
        if self.evictions.len() > LISTED_EVICTIONS {
            self.evictions.pop();
            self.more_evictions += 1;
        }
    }

    /// Whether there is anything to show.
    pub(super) fn any(&self) -> bool {
        !self.threads.is_empty() || !self.others.is_empty()
    }

    pub(super) fn render(
        &self,
        begin: u64,
        names: &BTreeMap<u32, String>,
        out: &mut Page<impl Write>,
    ) -> fmt::Result {
        self.scheduling(names, out)?;
        self.counts(out)?;
        self.held_up(begin, out)
    }

    /// Lists which processes could not use a GPU, when, and why. Times are relative to the begin of
    /// the recording.
    fn held_up(&self, begin: u64, out: &mut Page<impl Write>) -> fmt::Result {
        if self.evictions.is_empty() {
            return Ok(());
        }
        out.paragraph(format_args!("Evictions (the longest first)"))?;
        for one in &self.evictions {
            let at = |time: u64| duration(time.saturating_sub(begin) as f64);
            let until = if one.is_open {
                "the end, and longer".to_owned()
            } else {
                at(one.end)
            };
            let why = one
                .get("trigger")
                .map(ToString::to_string)
                .unwrap_or_default();
            let gpu = match one.whose.gpu_id {
                0 => "a GPU".to_owned(),
                known => format!("GPU {known}"),
            };
            out.line(format_args!(
                "  process {} had no queues on {gpu} from {} to {until} ({}) because of {}",
                one.whose.pid,
                at(one.begin),
                duration(one.duration() as f64),
                why
            ))?;
        }
        match self.more_evictions {
            0 => Ok(()),
            more => out.line(format_args!("  and {}", count(more, "shorter one"))),
        }
    }

    /// Lists all other observations by name: those of memory, and those that the driver reports.
    fn counts(&self, out: &mut Page<impl Write>) -> fmt::Result {
        let is_memory = |domain: u8| {
            use Domain::{HipMemory, MemoryAllocation, ScratchMemory};
            let domain = Domain::from_id(domain);
            matches!(domain, Some(HipMemory | MemoryAllocation | ScratchMemory))
        };
        for (title, one, of_memory) in [
            ("Memory", "Memory call", true),
            ("Driver", "Driver event", false),
        ] {
            let chosen = self.others.iter();
            let chosen = chosen.filter(|((domain, _), _)| is_memory(*domain) == of_memory);
            Self::count_table(title, one, chosen, out)?;
        }
        Ok(())
    }

    /// Lists `observations`, each of which is called `one`, under a title.
    fn count_table<'a>(
        title: &str,
        one: &str,
        observations: impl Iterator<Item = (&'a (u8, String), &'a Sum)>,
        out: &mut Page<impl Write>,
    ) -> fmt::Result {
        let mut rows = vec![
            [one, "Count", "Total", "Longest"]
                .map(str::to_owned)
                .to_vec(),
        ];
        for ((_, name), sum) in observations {
            let time = |ns: u64| {
                if sum.total == 0 {
                    String::new()
                } else {
                    duration(ns as f64)
                }
            };
            rows.push(vec![
                name.clone(),
                sum.count.to_string(),
                time(sum.total),
                time(sum.most),
            ]);
        }
        if rows.len() == 1 {
            return Ok(());
        }
        out.paragraph(format_args!("{title}"))?;
        table(out, &[Left, Right, Right, Right], &rows)
    }

    fn scheduling(&self, names: &BTreeMap<u32, String>, out: &mut Page<impl Write>) -> fmt::Result {
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
                names.get(tid).cloned().unwrap_or_default(),
                one.runnable.count.to_string(),
                duration(one.runnable.total as f64),
                duration(one.runnable.most as f64),
                one.asleep.count.to_string(),
                duration(one.asleep.total as f64),
            ]);
        }
        out.paragraph(format_args!(
            "Scheduling (threads that waited longest for a CPU first)"
        ))?;
        table(
            out,
            &[Right, Right, Left, Right, Right, Right, Right, Right],
            &rows,
        )?;
        match self.threads.len().saturating_sub(LISTED_THREADS) {
            0 => Ok(()),
            more => out.line(format_args!("  and {}", count(more as u64, "more thread"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use gputrace_timeline::observation::{FieldValue, ObservedField};

    use super::*;

    #[test]
    fn an_eviction_is_told_with_its_reason() {
        let mut observed = Observed::default();
        let mut one = Observation {
            domain: Domain::KfdEvent.id(),
            name: EVICTED.into(),
            whose: Whose {
                pid: 4711,
                tid: 0,
                gpu_id: 51234,
            },
            begin: 2_000_000_000,
            end: 2_500_000_000,
            is_open: false,
            fields: vec![ObservedField {
                name: "trigger".into(),
                value: FieldValue::Text("TTM".into()),
            }],
        };
        observed.observation(&one);
        one.begin = 2_400_000_000;
        one.is_open = true;
        observed.observation(&one);
        let mut page = Page::new(String::new());
        observed
            .render(1_000_000_000, &BTreeMap::new(), &mut page)
            .unwrap();
        let text = page.into_inner();
        for line in [
            "process 4711 had no queues on GPU 51234 from 1.00 s to 1.50 s (500 ms) because of TTM",
            "process 4711 had no queues on GPU 51234 from 1.40 s to the end, and longer (100 ms) because of TTM",
        ] {
            assert!(text.contains(line), "{text}");
        }
        assert!(text.contains("Driver event") && text.contains("queues evicted"));
        assert!(!text.contains("Memory call"), "{text}");
    }

    #[test]
    fn memory_is_no_event_of_the_driver() {
        let mut observed = Observed::default();
        for (domain, name) in [
            (Domain::MemoryAllocation, "MEMORY_ALLOCATION_ALLOCATE"),
            (Domain::HipMemory, "hipMalloc"),
            (Domain::ScratchMemory, "SCRATCH_MEMORY_ALLOC"),
        ] {
            observed.observation(&Observation {
                domain: domain.id(),
                name: name.into(),
                whose: Whose::default(),
                begin: 1,
                end: 2,
                is_open: false,
                fields: Vec::new(),
            });
        }
        let mut page = Page::new(String::new());
        observed.render(0, &BTreeMap::new(), &mut page).unwrap();
        let text = page.into_inner();
        assert!(text.contains("Memory call") && text.contains("hipMalloc"));
        assert!(!text.contains("Driver"), "{text}");
    }
}
