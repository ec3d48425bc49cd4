//! The bill: who paid how much for what.

use std::collections::BTreeMap;

use gputrace_abi::domain::Domain;
use gputrace_capture::meta::ProbePrices;
use serde::Serialize;

use super::{Costs, NOT_INCLUDED, Paid, Sum};

/// Work of GPUs whose submission is a hit, and how the names of the functions begin that submit it.
pub const WORK: [(Domain, &str); 2] = [
    (Domain::KernelDispatch, "hsa_signal_store_"),
    (Domain::MemoryCopy, "hsa_amd_memory_async_"),
];

/// What a thread, or all threads of a process that made calls, paid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Share {
    /// Process id.
    pub pid: u32,
    /// Thread id; `None` for a process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tid: Option<u32>,
    /// Number of calls, and of kernels and copies that were submitted without a traced call.
    pub hits: u64,
    /// What they cost, ns.
    pub cost_ns: u64,
    /// How long the thread, or all these threads together, were there during the recording, ns.
    pub time_ns: u64,
}

impl Share {
    /// Cost as a share of the time, 0 to 1.
    #[must_use]
    pub fn share(&self) -> f64 {
        (self.cost_ns as f64 / self.time_ns.max(1) as f64).min(1.0)
    }
}

/// What the calls of a function cost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FunctionCost {
    /// Name of the function, or of the work that is submitted.
    pub name: String,
    /// Number of its domain.
    #[serde(skip)]
    pub domain: u8,
    /// Number of calls.
    pub hits: u64,
    /// Cost of one, ns.
    pub each_ns: u64,
    /// Cost of all, ns.
    pub cost_ns: u64,
}

/// What tracing cost the traced programs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Bill {
    /// What hits cost.
    pub prices: ProbePrices,
    /// Everything, ns.
    pub cost_ns: u64,
    /// The largest share of its time that a thread paid, 0 to 1.
    pub highest_share: f64,
    /// By process, the largest cost first.
    pub processes: Vec<Share>,
    /// By thread, the largest share of its time first. Threads that ended and paid little are left
    /// out.
    pub threads: Vec<Share>,
    /// By function, the largest cost first; without those that were not called.
    pub functions: Vec<FunctionCost>,
    /// What is not included, as far as it happened. Calls of the same libraries by processes that
    /// are not traced are never included, and not known.
    pub not_included: Vec<NotIncluded>,
}

/// Something that programs in the kernel did, and that the bill does not include.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct NotIncluded {
    /// Its name for people.
    pub what: &'static str,
    /// How often it happened.
    pub seen: u64,
}

impl Bill {
    /// The thread with the largest share among those that paid at least this, ns.
    #[must_use]
    pub fn worst(&self, least: u64) -> Option<&Share> {
        self.threads.iter().find(|thread| thread.cost_ns >= least)
    }

    /// What is not included, for people.
    #[must_use]
    pub fn not_included_text(&self) -> String {
        let known = self.not_included.iter();
        let known: String = known
            .map(|one| format!("{} {}, ", one.seen, one.what))
            .collect();
        let and = if known.is_empty() { "" } else { "and " };
        format!("{known}{and}calls in processes that are not traced")
    }

    /// How the prices are known, for people who read this anywhere.
    #[must_use]
    pub const fn how_known(&self) -> &'static str {
        if self.prices.measured {
            "measured where it was recorded"
        } else {
            "assumed, not measured"
        }
    }
}

impl Costs {
    /// The bill for everything until now.
    #[must_use]
    pub fn bill(&self) -> Bill {
        let mut threads = Vec::new();
        let mut processes: BTreeMap<u32, Share> = BTreeMap::new();
        let mut charge = |pid, sum: Sum, time: u64| {
            let process = processes.entry(pid).or_default();
            process.pid = pid;
            process.hits = process.hits.saturating_add(sum.hits);
            process.cost_ns = process.cost_ns.saturating_add(sum.ns);
            process.time_ns = process.time_ns.saturating_add(time);
        };
        for ((pid, tid), thread) in &self.threads {
            let (sum, time) = (self.total(&thread.paid), self.time_of(thread));
            if sum.hits == 0 {
                continue;
            }
            charge(*pid, sum, time);
            threads.push(Share {
                pid: *pid,
                tid: Some(*tid),
                hits: sum.hits,
                cost_ns: sum.ns,
                time_ns: time,
            });
        }
        for (pid, (paid, time)) in &self.forgotten {
            charge(*pid, self.total(paid), *time);
        }
        threads.sort_by(|a, b| {
            let shares = b.share().total_cmp(&a.share());
            shares.then_with(|| (a.pid, a.tid).cmp(&(b.pid, b.tid)))
        });
        let mut processes: Vec<Share> = processes.into_values().collect();
        processes.sort_by_key(|process| (std::cmp::Reverse(process.cost_ns), process.pid));
        let cost_ns = processes
            .iter()
            .fold(0u64, |sum, process| sum.saturating_add(process.cost_ns));
        let highest = threads.first().map_or(0.0, Share::share);
        Bill {
            prices: self.prices,
            cost_ns,
            highest_share: highest.max(self.forgotten_share),
            processes,
            threads,
            functions: self.by_function(),
            not_included: self.not_included(),
        }
    }

    /// All hits, with those that were lost.
    fn total(&self, paid: &Paid) -> Sum {
        let mut total = Sum::default();
        for (domain, sum) in &paid.0 {
            let sum = self.with_lost(*domain, *sum);
            total.hits = total.hits.saturating_add(sum.hits);
            total.ns = total.ns.saturating_add(sum.ns);
        }
        total
    }

    fn not_included(&self) -> Vec<NotIncluded> {
        let all = NOT_INCLUDED.iter().map(|(domain, what)| {
            let seen = self.seen.get(usize::from(domain.id()));
            let seen = seen.map_or(0, |(seen, _)| *seen);
            NotIncluded { what, seen }
        });
        all.filter(|one| one.seen > 0).collect()
    }

    fn by_function(&self) -> Vec<FunctionCost> {
        let called = self.functions.values().map(|priced| {
            let name = priced.name.as_str();
            (name, priced.domain, priced.price, priced.calls)
        });
        let work = WORK.iter().zip(self.work).map(|((domain, _), hits)| {
            let name = match domain {
                Domain::KernelDispatch => "kernels (their doorbells)",
                _ => "copies (their submission)",
            };
            (name, domain.id(), self.prices.emulated, hits)
        });
        let mut functions: Vec<FunctionCost> = called
            .chain(work)
            .filter(|(.., hits)| *hits > 0)
            .map(|(name, domain, price, hits)| {
                let ns = hits.saturating_mul(price);
                let sum = self.with_lost(domain, Sum { hits, ns });
                FunctionCost {
                    name: name.to_owned(),
                    domain,
                    hits: sum.hits,
                    each_ns: price,
                    cost_ns: sum.ns,
                }
            })
            .collect();
        functions.sort_by(|a, b| b.cost_ns.cmp(&a.cost_ns).then_with(|| a.name.cmp(&b.name)));
        functions
    }
}
