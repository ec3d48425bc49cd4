//! Says what tracing cost the traced programs, by the bill of [`gputrace_export::costs`]: one line
//! at the end of a recording that cost a thread more than 1 % of its time.

use std::{fmt, io::Write as _};

use gputrace_abi::domain::Domain;
use gputrace_export::{
    SharedText,
    costs::{Bill, Costs, FunctionCost, Share},
    exporter::{ExportError, Exporter, Output},
};
use gputrace_text::tables::{duration, plural};
use gputrace_timeline::event::Event;

/// Share of a thread's time above which its cost is said, 0 to 1.
pub(crate) const MUCH: f64 = 0.01;

/// Costs of a thread below this are not said, because nobody notices them; ns.
pub(crate) const LITTLE: u64 = 1_000_000;

/// Makes no file: a remark worth showing is written to a text.
#[derive(Debug)]
pub struct CostExporter {
    to: SharedText,
    costs: Costs,
}

impl CostExporter {
    /// Writes the remark, if any, to `to`.
    #[must_use]
    pub fn new(to: SharedText) -> Self {
        Self {
            to,
            costs: Costs::default(),
        }
    }
}

impl Exporter for CostExporter {
    fn format(&self) -> &'static str {
        "costs"
    }

    fn event(&mut self, event: &Event) -> Result<(), ExportError> {
        self.costs.event(event);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Vec<Output>, ExportError> {
        if let Some(told) = Told::of(&self.costs.bill()) {
            write!(self.to.clone(), "{told}")?;
        }
        Ok(Vec::new())
    }
}

/// A remark on costs.
struct Told<'a> {
    bill: &'a Bill,
    worst: &'a Share,
    most: &'a FunctionCost,
}

impl<'a> Told<'a> {
    /// The remark to show, if any.
    fn of(bill: &'a Bill) -> Option<Self> {
        let worst = bill.worst(LITTLE).filter(|worst| worst.share() > MUCH)?;
        let most = bill.functions.first()?;
        Some(Self { bill, worst, most })
    }
}

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bill, worst, most } = self;
        write!(
            f,
            "tracing cost about {}, up to {} of a thread's time (thread {}; an estimate: calls \
             times the cost of their probes, {}); {} cost most, {} in {}: {}",
            duration(bill.cost_ns as f64),
            percent(worst.share()),
            worst.tid.unwrap_or(worst.pid),
            if bill.prices.measured {
                "measured on this machine"
            } else {
                "assumed, not measured"
            },
            most.name,
            duration(most.cost_ns as f64),
            plural(most.hits, "call", "calls"),
            remedy(most),
        )
    }
}

/// A share as people read it.
pub(crate) fn percent(share: f64) -> String {
    let decimals = usize::from(share < 0.0995);
    format!("{:.decimals$} %", share * 100.0)
}

/// Which options make a recording cheaper of which most was paid for this domain.
fn remedy(most: &FunctionCost) -> &'static str {
    match Domain::from_id(most.domain) {
        _ if gputrace_catalog::is_getter(&most.name) => {
            "bound it with --overhead-limit, or leave it out with --exclude"
        }
        Some(Domain::Function | Domain::Library) => {
            "leave it out with --exclude-functions, or limit it with --max-call-rate"
        }
        Some(domain) if domain.is_gpu_work() => "leave the domain out",
        _ => "leave it out with --exclude, or leave its domain out",
    }
}

#[cfg(test)]
mod tests {
    use gputrace_capture::meta::{
        ClockSnapshot, End, EndProbe, Function, ProbeCost, ProbePrices, Recording,
    };
    use gputrace_timeline::{
        event::{Call, FunctionInfo},
        synthetic,
    };

    use super::*;

    /// A function of this domain, called so often.
    fn function(id: u32, domain: Domain, calls: u64) -> (Event, u64) {
        let info = FunctionInfo {
            function: Function {
                id,
                name: format!("function {id}"),
                domain: domain.id(),
                probe_cost: ProbeCost::Emulated,
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
        };
        (Event::Function(Box::new(info)), calls)
    }

    /// The remark for these calls by one thread, in a recording of `time` ns.
    fn told(functions: &[(Event, u64)], time: u64, measured: bool) -> String {
        let text = SharedText::default();
        let mut costs = Box::new(CostExporter::new(text.clone()));
        let recording = Recording {
            prices: Some(ProbePrices {
                measured,
                emulated: 400,
                at_return: 250,
                at_exit: 900,
                ..ProbePrices::default()
            }),
            clocks: ClockSnapshot::default(),
            ..Recording::default()
        };
        let mut event = |event: &Event| costs.event(event).unwrap();
        event(&Event::Recording(Box::new(recording)));
        for (function, calls) in functions {
            event(function);
            let Event::Function(info) = function else {
                panic!("a function")
            };
            for number in 1..=*calls {
                event(&Event::Call(Call {
                    function: info.function.id,
                    ..synthetic::call(number, 1, 2)
                }));
            }
        }
        event(&Event::End(End {
            time,
            ..End::default()
        }));
        assert!(costs.finish().unwrap().is_empty());
        text.take()
    }

    #[test]
    fn what_costs_most_is_named() {
        let functions = |own, hip| {
            [
                function(1, Domain::Function, own),
                function(2, Domain::HipRuntime, hip),
            ]
        };
        let thread = synthetic::call(1, 1, 2).tid;
        assert_eq!(
            told(&functions(20_000, 1000), 52_000_000, true),
            format!(
                "tracing cost about 26.6 ms, up to 51 % of a thread's time (thread {thread}; an \
                 estimate: calls times the cost of their probes, measured on this machine); \
                 function 1 cost most, 26.0 ms in 20000 calls: leave it out with \
                 --exclude-functions, or limit it with --max-call-rate"
            )
        );
        let text = told(&functions(10, 20_000), 1_000_000_000, false);
        assert!(text.contains(" 1.3 % of a thread's time"), "{text}");
        assert!(text.contains(" probes, assumed, not measured"), "{text}");
        let most = "function 2 cost most, 13.0 ms in 20000 calls: leave it out with --exclude,";
        assert!(text.contains(most), "{text}");
        assert_eq!(text.lines().count(), 1);
    }

    #[test]
    fn what_nobody_notices_is_not_told() {
        let hot = |calls| [function(1, Domain::Function, calls)];
        // 26 ms are 1 % of 2.6 s; and less than a millisecond is little.
        assert_ne!(told(&hot(20_000), 2_590_000_000, true), "");
        assert_eq!(told(&hot(20_000), 2_610_000_000, true), "");
        assert_eq!(told(&hot(700), 1_000_000, true), "");
        assert_eq!(told(&[], 1_000_000, true), "");
    }

    #[test]
    fn getters_can_be_bounded() {
        let cost = |name: &str| FunctionCost {
            name: name.to_owned(),
            domain: Domain::HipRuntime.id(),
            hits: 1,
            each_ns: 1,
            cost_ns: 1,
        };
        assert!(remedy(&cost("hipGetDevice")).contains("--overhead-limit"));
        assert!(!remedy(&cost("hipLaunchKernel")).contains("--overhead-limit"));
    }
}
