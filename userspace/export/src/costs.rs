//! What tracing cost the traced programs: the one place for the price of a probe, and the bill.
//!
//! The cost is an estimate: the number of hits times what a hit costs ([`ProbePrices`]). These are
//! measured on the machine when a recording begins, and are in the capture. For captures without
//! them, and where the measurement failed, other machines' figures are assumed.
//!
//! Counted are:
//!
//! * each call of a function: its entry and its end;
//! * calls that were seen and lost. Only their number per domain is known, so they are charged to
//!   the recorded calls of the domain, in proportion. A call above `--max-call-rate` counts like a
//!   recorded one, although it saves the record;
//! * each kernel and copy, as one hit of an entry whose instruction is emulated, unless calls of
//!   the function that submits it are traced themselves. If one doorbell announces several kernels,
//!   that is too much.
//!
//! Not counted, because the capture does not have the number of hits or nobody has measured what
//! one costs: [`NOT_INCLUDED`], which the bill lists with their numbers, and the hits of processes
//! that are not traced but use the same libraries.
//!
//! The kernel could count the runs of each program, and their time (`BPF_ENABLE_STATS`). gputrace
//! does not ask it to: that makes each call 0.15 us slower (a tenth, by `cargo xtask bench costs`),
//! and all other BPF programs of the machine as well; it counts neither the exception nor the
//! stepping, which are most of a hit; and it knows neither processes nor functions.

mod bill;

use std::{collections::HashMap, sync::LazyLock};

use foldhash::fast::RandomState;
use gputrace_abi::domain::{DOMAINS, Domain};
use gputrace_capture::{
    ledger::Ledger,
    meta::{EndProbe, Function, ProbeCost, ProbePrices},
};
use gputrace_files::kernel;
use gputrace_timeline::event::{Call, Event, FunctionInfo, Lifetime, LifetimeChange};
use gputrace_timeline::gpu::Origin;

pub use bill::{Bill, FunctionCost, NotIncluded, Share, WORK};

/// What else the programs in the kernel do for a recording, which the bill does not include: the
/// domain whose account has its number, and its name for people.
pub const NOT_INCLUDED: [(Domain, &str); 6] = [
    (Domain::QueuePacket, "packets other than kernels"),
    (Domain::Completion, "readings of completion signals"),
    (Domain::ArgumentData, "values behind pointers"),
    (Domain::KfdIoctl, "requests to the driver"),
    (Domain::Sched, "times without a processor"),
    (Domain::Tracepoint, "tracepoints"),
];

/// Prices where nothing has been measured. In a virtual machine, the debug exception of a
/// single-stepped instruction leaves the guest.
pub static ASSUMED: LazyLock<ProbePrices> = LazyLock::new(|| {
    let is_virtual = kernel::read_text("/proc/cpuinfo").is_ok_and(|text| {
        let flags = text.lines().find(|line| line.starts_with("flags"));
        flags.is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor"))
    });
    assumed(is_virtual)
});

/// The prices of the machines in docs/benchmarks.md.
const fn assumed(is_virtual: bool) -> ProbePrices {
    let stepped = if is_virtual { 14_000 } else { 1200 };
    ProbePrices {
        measured: false,
        optimized: 400,
        emulated: 600,
        single_stepped: stepped,
        at_return: 500,
        at_exit: stepped,
    }
}

/// Cost of a function's probes per call, ns; `None` if it is unknown how the function is probed.
#[must_use]
pub fn of_call(function: &Function, prices: &ProbePrices) -> Option<u64> {
    let entry = match function.probe_cost {
        ProbeCost::Unknown => return None,
        ProbeCost::Optimized => prices.optimized,
        ProbeCost::Emulated => prices.emulated,
        ProbeCost::SingleStepped => prices.single_stepped,
    };
    let end = match function.end_probe {
        EndProbe::Return => prices.at_return,
        EndProbe::Exits => prices.at_exit,
        EndProbe::NotSeen => 0,
    };
    Some(entry.saturating_add(end))
}

/// Threads that have ended stay in the bill only if they paid more than this, ns.
const REMEMBERED: u64 = 1_000_000;

/// Hits and what they cost, by domain.
#[derive(Clone, Debug, Default)]
struct Paid(Vec<(u8, Sum)>);

/// A number of hits, and what they cost, ns.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    hits: u64,
    ns: u64,
}

impl Paid {
    fn add(&mut self, domain: u8, more: Sum) {
        // Threads rarely have calls of more than three domains.
        let known = self.0.iter_mut().find(|(known, _)| *known == domain);
        match known {
            Some((_, sum)) => {
                sum.hits = sum.hits.saturating_add(more.hits);
                sum.ns = sum.ns.saturating_add(more.ns);
            }
            None => self.0.push((domain, more)),
        }
    }
}

/// A thread, or all threads of a process.
#[derive(Clone, Debug, Default)]
struct Payer {
    paid: Paid,
    /// When it was created and ended, if that was seen; ns `CLOCK_BOOTTIME`.
    began: Option<u64>,
    ended: Option<u64>,
}

/// A function and its calls.
#[derive(Clone, Debug)]
struct Priced {
    name: String,
    domain: u8,
    /// Cost per call, ns.
    price: u64,
    calls: u64,
}

/// Counts hits, and makes the bill. Memory grows with the number of functions, processes and
/// living threads.
#[derive(Debug)]
pub struct Costs {
    prices: ProbePrices,
    functions: HashMap<u32, Priced, RandomState>,
    threads: HashMap<(u32, u32), Payer, RandomState>,
    /// What forgotten threads paid, and their times in ns, by process.
    forgotten: HashMap<u32, (Paid, u64), RandomState>,
    /// The largest share of its time that one of them paid, 0 to 1.
    forgotten_share: f64,
    /// Number of kernels and of copies whose submission was a hit of its own.
    work: [u64; WORK.len()],
    /// Whether calls of the functions that submit kernels, and copies, are traced.
    is_called: [bool; WORK.len()],
    /// Number of calls by domain that were seen, and recorded.
    seen: [(u64, u64); DOMAINS],
    /// Begin of the recording, and its end or the latest known time; ns `CLOCK_BOOTTIME`.
    began: u64,
    ended: u64,
}

impl Default for Costs {
    fn default() -> Self {
        Self {
            prices: *ASSUMED,
            functions: HashMap::default(),
            threads: HashMap::default(),
            forgotten: HashMap::default(),
            forgotten_share: 0.0,
            work: Default::default(),
            is_called: Default::default(),
            seen: [(0, 0); DOMAINS],
            began: 0,
            ended: 0,
        }
    }
}

impl Costs {
    /// Takes an event.
    pub fn event(&mut self, event: &Event) {
        match event {
            Event::Recording(_) | Event::Function(_) => self.learn(event),
            Event::Call(call) => self.call(call),
            Event::Dispatch(dispatch) => self.work(0, &dispatch.origin),
            Event::Copy(copy) => self.work(1, &copy.origin),
            Event::Lifetime(lifetime) => self.lifetime(lifetime),
            Event::Ledger(ledger) => self.ledger(ledger),
            Event::End(end) => self.ended = end.time,
            _ => {}
        }
    }

    /// Learns prices from an event, for [`Self::price`]. Counts nothing.
    pub fn learn(&mut self, event: &Event) {
        match event {
            Event::Recording(recording) => {
                self.prices = recording.prices.unwrap_or(*ASSUMED);
                self.began = recording.clocks.boottime;
            }
            Event::Function(info) => self.learn_function(info),
            _ => {}
        }
    }

    /// What one call, kernel or copy cost the thread that made or submitted it, ns. 0 for
    /// everything else, and if it is unknown.
    #[must_use]
    pub fn price(&self, event: &Event) -> u64 {
        let price = match event {
            Event::Call(call) => self.functions.get(&call.function).map(|one| one.price),
            Event::Dispatch(dispatch) => self.price_of_work(0, &dispatch.origin),
            Event::Copy(copy) => self.price_of_work(1, &copy.origin),
            _ => None,
        };
        price.unwrap_or(0)
    }

    fn learn_function(&mut self, info: &FunctionInfo) {
        let name = &info.function.name;
        for (is_called, (_, submits)) in self.is_called.iter_mut().zip(WORK) {
            *is_called |= name.starts_with(submits);
        }
        // Texts of markers are not functions.
        let price = of_call(&info.function, &self.prices).filter(|_| info.range.is_none());
        if let Some(price) = price {
            let priced = Priced {
                name: name.clone(),
                domain: info.function.domain,
                price,
                calls: 0,
            };
            self.functions.insert(info.function.id, priced);
        }
    }

    fn call(&mut self, call: &Call) {
        self.ended = self.ended.max(call.end);
        let Some(priced) = self.functions.get_mut(&call.function) else {
            return;
        };
        priced.calls += 1;
        let one = Sum {
            hits: 1,
            ns: priced.price,
        };
        let thread = self.threads.entry((call.pid, call.tid)).or_default();
        thread.paid.add(priced.domain, one);
    }

    /// The price of submitting a kernel or a copy; `None` if that was no hit of its own.
    fn price_of_work(&self, kind: usize, origin: &Origin) -> Option<u64> {
        let is_called = self.is_called.get(kind).is_some_and(|called| *called);
        // Without a thread, nobody saw the doorbell.
        (!is_called && origin.tid != 0).then_some(self.prices.emulated)
    }

    fn work(&mut self, kind: usize, origin: &Origin) {
        let Some(ns) = self.price_of_work(kind, origin) else {
            return;
        };
        let Some((count, (domain, _))) = self.work.get_mut(kind).zip(WORK.get(kind)) else {
            return;
        };
        *count += 1;
        let one = Sum { hits: 1, ns };
        let thread = self.threads.entry((origin.pid, origin.tid)).or_default();
        thread.paid.add(domain.id(), one);
    }

    fn lifetime(&mut self, lifetime: &Lifetime) {
        let key = (lifetime.pid, lifetime.tid);
        match lifetime.what {
            LifetimeChange::ProcessStarted { .. } | LifetimeChange::ThreadStarted { .. } => {
                self.threads.entry(key).or_default().began = Some(lifetime.time);
            }
            LifetimeChange::Exited => self.exited(key, lifetime.time),
            LifetimeChange::Executed { .. } | LifetimeChange::Renamed { .. } => {}
        }
    }

    /// Notes the end of a thread, and forgets it if it paid little.
    fn exited(&mut self, key: (u32, u32), time: u64) {
        let Some(thread) = self.threads.get_mut(&key) else {
            return;
        };
        thread.ended = Some(time);
        let sums = thread.paid.0.iter().map(|(_, sum)| sum.ns);
        // Saturates, because prices may come from an untrusted file.
        let paid = sums.fold(0, u64::saturating_add);
        if paid >= REMEMBERED {
            return;
        }
        let Some(thread) = self.threads.remove(&key).filter(|_| paid > 0) else {
            return;
        };
        let time = self.time_of(&thread);
        let share = (paid as f64 / time.max(1) as f64).min(1.0);
        self.forgotten_share = self.forgotten_share.max(share);
        let (sum, times) = self.forgotten.entry(key.0).or_default();
        for (domain, more) in thread.paid.0 {
            sum.add(domain, more);
        }
        *times = times.saturating_add(time);
    }

    /// How long a thread was there while the recording went on, ns.
    fn time_of(&self, thread: &Payer) -> u64 {
        let began = thread.began.unwrap_or(0).max(self.began);
        thread.ended.unwrap_or(self.ended).saturating_sub(began)
    }

    fn ledger(&mut self, ledger: &Ledger) {
        self.seen = [(0, 0); DOMAINS];
        for row in &ledger.rows {
            if let Some((seen, recorded)) = self.seen.get_mut(usize::from(row.domain)) {
                *seen = seen.saturating_add(row.seen);
                *recorded = recorded
                    .saturating_add(row.written)
                    .saturating_add(row.unfinished);
            }
        }
    }

    /// `sum` with the hits that were seen and not recorded.
    fn with_lost(&self, domain: u8, sum: Sum) -> Sum {
        match self.seen.get(usize::from(domain)) {
            Some((seen, recorded)) if seen > recorded && *recorded > 0 => {
                let all = |number: u64| {
                    let all = u128::from(number) * u128::from(*seen) / u128::from(*recorded);
                    u64::try_from(all).unwrap_or(u64::MAX)
                };
                Sum {
                    hits: all(sum.hits),
                    ns: all(sum.ns),
                }
            }
            _ => sum,
        }
    }
}

#[cfg(test)]
mod tests;
