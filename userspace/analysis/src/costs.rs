//! Estimates what the probes cost the traced programs, to warn if a program was much slower than
//! without them.

use std::{collections::HashMap, fmt, io::Write as _, sync::LazyLock, time::Duration};

use foldhash::fast::RandomState;
use gputrace_abi::domain::Domain;
use gputrace_capture::meta::{EndProbe, Function, ProbeCost};
use gputrace_files::kernel;
use gputrace_text::tables::count;
use gputrace_timeline::event::{Call, Event, FunctionInfo};

use gputrace_export::{
    SharedText,
    exporter::{ExportError, Exporter, Output},
};

/// Share of the threads' time above which costs are reported.
const MUCH: f64 = 0.2;

/// Costs below this are never reported, because nobody notices them.
const LITTLE: Duration = Duration::from_millis(10);

/// Time in ns of an instruction that is executed under the debug exception: on a physical machine,
/// and in a virtual machine, which each exception exits.
const STEP: u64 = 900;
const VIRTUAL_STEP: u64 = 14_000;

/// Time in ns of the other kinds of probe hits.
const OPTIMIZED: u64 = 200;
const EMULATED: u64 = 400;
const RETURN: u64 = 250;

/// Time in ns of an instruction under the debug exception on this machine.
pub static MACHINE_STEP: LazyLock<u64> = LazyLock::new(|| {
    let is_virtual = kernel::read_text("/proc/cpuinfo").is_ok_and(|text| {
        let flags = text.lines().find(|line| line.starts_with("flags"));
        flags.is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor"))
    });
    if is_virtual { VIRTUAL_STEP } else { STEP }
});

/// Rough cost of a function's probes per call, ns; `None` if it is unknown how the function is
/// probed. `step` is the cost of an instruction under the debug exception, e.g. [`MACHINE_STEP`].
#[must_use]
pub fn of_call(function: &Function, step: u64) -> Option<u64> {
    let entry = match function.probe_cost {
        ProbeCost::Unknown => return None,
        ProbeCost::Optimized => OPTIMIZED,
        ProbeCost::Emulated => EMULATED,
        ProbeCost::SingleStepped => step,
    };
    let end = match function.end_probe {
        EndProbe::Return => RETURN,
        EndProbe::Exits => step,
        EndProbe::NotSeen => 0,
    };
    Some(entry + end)
}

/// Calls of a function.
#[derive(Clone, Debug)]
struct Hits {
    name: String,
    is_other: bool,
    /// Cost per call, ns.
    cost: u64,
    calls: u64,
}

/// Counts calls and estimates the cost of their probes. Makes no file: a remark worth showing is
/// written to a text.
#[derive(Debug)]
pub struct CostExporter {
    to: SharedText,
    step: u64,
    functions: HashMap<u32, Hits, RandomState>,
    /// Begin of the first call and end of the last call of each thread.
    threads: HashMap<(u32, u32), (u64, u64), RandomState>,
}

impl CostExporter {
    /// For a recording that was made on this machine.
    #[must_use]
    pub fn new(to: SharedText) -> Self {
        Self::with_step(to, *MACHINE_STEP)
    }

    fn with_step(to: SharedText, step: u64) -> Self {
        Self {
            to,
            step,
            functions: HashMap::default(),
            threads: HashMap::default(),
        }
    }

    fn learn(&mut self, info: &FunctionInfo) {
        let cost = of_call(&info.function, self.step);
        let Some(cost) = cost.filter(|_| info.range.is_none()) else {
            return;
        };
        self.functions.insert(
            info.function.id,
            Hits {
                name: info.function.name.clone(),
                is_other: matches!(info.domain, Some(Domain::Function | Domain::Library)),
                cost,
                calls: 0,
            },
        );
    }

    fn call(&mut self, call: &Call) {
        let Some(hits) = self.functions.get_mut(&call.function) else {
            return;
        };
        hits.calls += 1;
        let span = (call.begin, call.end);
        let known = self.threads.entry((call.pid, call.tid)).or_insert(span);
        *known = (known.0.min(call.begin), known.1.max(call.end));
    }

    /// The remark to show, if any.
    fn told(&self) -> Option<Told<'_>> {
        let cost = |hits: &Hits| hits.calls.saturating_mul(hits.cost);
        let all = self
            .functions
            .values()
            .map(cost)
            .fold(0, u64::saturating_add);
        let spans = self
            .threads
            .values()
            .map(|(begin, end)| end.saturating_sub(*begin));
        let time = spans.fold(0, u64::saturating_add);
        if all < LITTLE.as_nanos() as u64 || (all as f64) < MUCH * time as f64 {
            return None;
        }
        let most = self
            .functions
            .values()
            .max_by_key(|hits| (cost(hits), &hits.name))?;
        Some(Told {
            all,
            share: (all as f64 / time.max(1) as f64).min(1.0),
            most,
        })
    }
}

/// A remark on costs.
struct Told<'a> {
    all: u64,
    share: f64,
    most: &'a Hits,
}

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Hits {
            name,
            is_other,
            cost,
            calls,
        } = self.most;
        let most = calls.saturating_mul(*cost);
        write!(
            f,
            "tracing took about {:.1?} of the programs' time, {:.0} % of the time of the threads \
             that made calls (an estimate: number of calls times the cost of their probes): {name} \
             alone took {:.1?} in {}. ",
            Duration::from_nanos(self.all),
            self.share * 100.0,
            Duration::from_nanos(most),
            count(*calls, "call"),
        )?;
        if *is_other {
            write!(
                f,
                "Leave it out with --exclude-functions, or limit it with --max-call-rate"
            )
        } else {
            write!(f, "Leave it out with --exclude")
        }
    }
}

impl Exporter for CostExporter {
    fn format(&self) -> &'static str {
        "costs"
    }

    fn event(&mut self, event: &Event) -> Result<(), ExportError> {
        match event {
            Event::Function(info) => self.learn(info),
            Event::Call(call) => self.call(call),
            _ => {}
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Vec<Output>, ExportError> {
        if let Some(told) = self.told() {
            write!(self.to.clone(), "{told}")?;
        }
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use gputrace_timeline::synthetic;

    use super::*;

    fn function(id: u32, domain: Domain, probe_cost: ProbeCost) -> Event {
        Event::Function(Box::new(FunctionInfo {
            function: Function {
                id,
                name: format!("function {id}"),
                domain: domain.id(),
                probe_cost,
                end_probe: match domain {
                    Domain::Function => EndProbe::Exits,
                    _ => EndProbe::Return,
                },
                ..Function::default()
            },
            domain: Some(domain),
            library: String::new(),
            build_id: String::new(),
            range: None,
        }))
    }

    /// The remark for this many calls of each function by one thread within `time` ns.
    fn told(functions: &[(Event, u64)], time: u64) -> String {
        let text = SharedText::default();
        let mut costs = Box::new(CostExporter::with_step(text.clone(), STEP));
        for (event, calls) in functions {
            costs.event(event).unwrap();
            let Event::Function(info) = event else {
                panic!("a function")
            };
            for number in 0..*calls {
                let call = Call {
                    function: info.function.id,
                    ..synthetic::call(
                        number + 1,
                        number * time / calls,
                        (number + 1) * time / calls,
                    )
                };
                costs.event(&Event::Call(call)).unwrap();
            }
        }
        assert!(costs.finish().unwrap().is_empty());
        text.take()
    }

    #[test]
    fn what_costs_most_is_named() {
        // 400 + 900 ns each.
        let hot = || function(1, Domain::Function, ProbeCost::Emulated);
        let other = || function(2, Domain::HipRuntime, ProbeCost::Emulated);
        let text = told(&[(hot(), 20_000), (other(), 1000)], 52_000_000);
        assert!(text.starts_with("tracing took about 26.6ms"), "{text}");
        assert!(text.contains(" 51 % "), "{text}");
        assert!(
            text.contains("function 1 alone took 26.0ms in 20000 calls"),
            "{text}"
        );
        assert!(
            text.contains("--exclude-functions") && text.contains("--max-call-rate"),
            "{text}"
        );
        let text = told(&[(hot(), 10), (other(), 20_000)], 20_000_000);
        assert!(
            text.contains("function 2 alone took 13.0ms in 20000 calls"),
            "{text}"
        );
        assert!(text.ends_with("--exclude"), "{text}");
    }

    #[test]
    fn what_nobody_notices_is_not_told() {
        let hot = || function(1, Domain::Function, ProbeCost::Emulated);
        assert_eq!(
            told(&[(hot(), 20_000)], 200_000_000),
            "",
            "13 % are not much"
        );
        assert_eq!(told(&[(hot(), 5000)], 6_500_000), "");
        assert_eq!(
            told(
                &[(function(1, Domain::KfdIoctl, ProbeCost::Unknown), 20_000)],
                1000
            ),
            ""
        );
    }
}
