//! Statistics in rocprofiler-sdk's format: the document's `summary`.
//!
//! They count the same as the CSV statistics: GPU work counts if its duration is known, exact or
//! estimated. Memory grows with the number of names and processes.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::RandomState;
use gputrace_abi::domain::Domain;
use gputrace_timeline::{
    event::{Call, CallEnd},
    gpu::GpuTime,
    observation::Observation,
};
use serde::Serialize;

use crate::{
    functions::{Functions, group},
    lengths::Length,
    moments::{Moments, domain},
    observed::memory_domain,
    sums::{NameSum, Sums},
};

/// Durations by process.
#[derive(Debug, Default)]
pub(crate) struct Summaries {
    /// Calls, by process, number of the domain, and function.
    calls: HashMap<(u32, u8, u32), Moments, RandomState>,
    /// Everything else, by process, group and name.
    others: BTreeMap<(u32, &'static str), HashMap<String, Moments>>,
    /// GPU work with standard errors and unknown durations, by process and group.
    sums: BTreeMap<(u32, &'static str), Sums>,
}

/// Statistics of one process in one domain.
#[derive(Debug, Serialize)]
pub(crate) struct DomainSummary {
    domain: String,
    stats: DomainStats,
}

#[derive(Debug, Serialize)]
struct DomainStats {
    #[serde(flatten)]
    all: Statistics,
    operations: Vec<Operation>,
}

#[derive(Debug, Serialize)]
struct Operation {
    key: String,
    value: Statistics,
}

/// `rocprofiler::tool::statistics`. Times are ns.
#[derive(Debug, Serialize)]
struct Statistics {
    count: u64,
    sum: u64,
    sqr: u64,
    min: u64,
    max: u64,
    mean: f64,
    stddev: f64,
    variance: f64,
}

impl From<&Moments> for Statistics {
    fn from(moments: &Moments) -> Self {
        Self {
            count: moments.calls,
            sum: u64::try_from(moments.total).unwrap_or(u64::MAX),
            // The cast saturates.
            sqr: moments.squares() as u64,
            min: moments.min,
            max: moments.max,
            mean: moments.average(),
            stddev: moments.deviation(),
            variance: moments.variance(),
        }
    }
}

impl Summaries {
    /// Counts a call that has returned.
    pub(crate) fn call(&mut self, call: &Call) {
        if matches!(call.how, CallEnd::Returned(_)) {
            let key = (call.pid, call.domain, call.function);
            let took = call.end.saturating_sub(call.begin);
            self.calls.entry(key).or_default().add(took);
        }
    }

    /// Counts GPU work; it is in the summary if its duration is known.
    pub(crate) fn work(&mut self, pid: u32, domain: Domain, name: &str, time: &GpuTime) {
        let length = Length::of(time);
        if let Some(length) = length {
            self.add(pid, domain, name, length.ns);
        }
        let sums = self.sums.entry((pid, domain.csv_stem())).or_default();
        sums.add(name, length);
    }

    /// Durations of GPU work with their standard errors, by name.
    pub(crate) fn durations(&self, pid: u32, domain: Domain) -> Vec<NameSum<'_>> {
        let sums = self.sums.get(&(pid, domain.csv_stem()));
        sums.map(Sums::rows).unwrap_or_default()
    }

    /// Counts an allocation, or scratch memory.
    pub(crate) fn observation(&mut self, one: &Observation) {
        if let Some(domain) = memory_domain(one) {
            self.add(one.whose.pid, domain, &one.name, one.duration());
        }
    }

    fn add(&mut self, pid: u32, domain: Domain, name: &str, ns: u64) {
        let names = self.others.entry((pid, domain.csv_stem())).or_default();
        if !names.contains_key(name) {
            names.insert(name.to_owned(), Moments::default());
        }
        if let Some(moments) = names.get_mut(name) {
            moments.add(ns);
        }
    }

    /// Statistics of each process, by domain and name.
    pub(crate) fn finish(&self, functions: &Functions) -> BTreeMap<u32, Vec<DomainSummary>> {
        let mut all: BTreeMap<(u32, &str), BTreeMap<&str, Moments>> = BTreeMap::new();
        // In order, because sums of floating-point numbers depend on it.
        let calls: BTreeMap<_, _> = self.calls.iter().collect();
        for ((pid, domain, function), moments) in calls {
            // Several libraries may export a function of this name.
            let names = all.entry((*pid, group(*domain))).or_default();
            names
                .entry(functions.name(*function))
                .or_default()
                .merge(moments);
        }
        for (key, names) in &self.others {
            let to = all.entry(*key).or_default();
            to.extend(
                names
                    .iter()
                    .map(|(name, moments)| (name.as_str(), *moments)),
            );
        }
        let mut summaries: BTreeMap<u32, Vec<DomainSummary>> = BTreeMap::new();
        for ((pid, group), names) in all {
            let mut sum = Moments::default();
            names.values().for_each(|moments| sum.merge(moments));
            let operations = names.iter().map(|(name, moments)| Operation {
                key: (*name).to_owned(),
                value: moments.into(),
            });
            summaries.entry(pid).or_default().push(DomainSummary {
                domain: domain(group),
                stats: DomainStats {
                    all: (&sum).into(),
                    operations: operations.collect(),
                },
            });
        }
        summaries
    }
}
