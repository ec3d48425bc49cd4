//! Bills of made-up recordings.

use gputrace_capture::{
    ledger::LedgerRow,
    meta::{ClockSnapshot, End, Recording},
};
use gputrace_timeline::synthetic::call;

use super::*;

const PRICES: ProbePrices = ProbePrices {
    measured: true,
    optimized: 100,
    emulated: 400,
    single_stepped: 9000,
    at_return: 600,
    at_exit: 8000,
};

/// Begin of the recording, ns.
const BEGAN: u64 = 1_000_000;

/// A recording with these functions: number, domain, and how they are probed.
fn costs(functions: &[(u32, Domain, ProbeCost, EndProbe)]) -> Costs {
    let mut costs = Costs::default();
    costs.event(&Event::Recording(Box::new(Recording {
        prices: Some(PRICES),
        clocks: ClockSnapshot {
            boottime: BEGAN,
            ..ClockSnapshot::default()
        },
        ..Recording::default()
    })));
    for (id, domain, probe_cost, end_probe) in functions {
        costs.event(&Event::Function(Box::new(FunctionInfo {
            function: Function {
                id: *id,
                name: format!("function {id}"),
                domain: domain.id(),
                probe_cost: *probe_cost,
                end_probe: *end_probe,
                ..Function::default()
            },
            domain: Some(*domain),
            library: String::new(),
            build_id: String::new(),
            range: None,
        })));
    }
    costs
}

fn calls(costs: &mut Costs, function: u32, domain: Domain, thread: (u32, u32), count: u64) {
    for number in 0..count {
        costs.event(&Event::Call(Call {
            function,
            domain: domain.id(),
            pid: thread.0,
            tid: thread.1,
            ..call(number + 1, BEGAN, BEGAN + 1)
        }));
    }
}

fn lifetime(costs: &mut Costs, (pid, tid): (u32, u32), time: u64, what: LifetimeChange) {
    costs.event(&Event::Lifetime(Lifetime {
        time,
        pid,
        tid,
        what,
    }));
}

fn end(costs: &mut Costs, time: u64) -> Bill {
    costs.event(&Event::End(End {
        time,
        ..End::default()
    }));
    costs.bill()
}

use Domain::{Function as Own, HipRuntime};
use EndProbe::{Exits, NotSeen, Return};
use ProbeCost::{Emulated, Optimized, SingleStepped, Unknown};

#[test]
fn a_call_costs_its_entry_and_its_end() {
    let price = |probe_cost, end_probe| {
        let function = Function {
            probe_cost,
            end_probe,
            ..Function::default()
        };
        of_call(&function, &PRICES)
    };
    assert_eq!(price(Optimized, Return), Some(700));
    assert_eq!(price(Emulated, Return), Some(1000));
    assert_eq!(price(SingleStepped, Exits), Some(17_000));
    assert_eq!(price(Emulated, NotSeen), Some(400));
    assert_eq!(price(Unknown, Return), None);
}

#[test]
fn everybody_pays_for_own_calls() {
    let mut costs = costs(&[
        (1, HipRuntime, Emulated, Return),
        (2, Own, SingleStepped, Exits),
        (3, HipRuntime, Unknown, Return),
    ]);
    lifetime(
        &mut costs,
        (7, 8),
        BEGAN + 1000,
        LifetimeChange::ThreadStarted { creator: 7 },
    );
    calls(&mut costs, 1, HipRuntime, (7, 7), 3000);
    calls(&mut costs, 2, Own, (7, 8), 1000);
    calls(&mut costs, 3, HipRuntime, (9, 9), 100);
    lifetime(
        &mut costs,
        (7, 8),
        BEGAN + 34_001_000,
        LifetimeChange::Exited,
    );
    let bill = end(&mut costs, BEGAN + 60_000_000);
    assert_eq!(bill.prices, PRICES);
    assert_eq!(bill.cost_ns, 20_000_000);
    let share = |pid, tid, hits, cost_ns, time_ns| Share {
        pid,
        tid,
        hits,
        cost_ns,
        time_ns,
    };
    assert_eq!(
        bill.threads,
        [
            share(7, Some(8), 1000, 17_000_000, 34_000_000),
            share(7, Some(7), 3000, 3_000_000, 60_000_000)
        ]
    );
    assert!((bill.threads[0].share() - 0.5).abs() < 1e-9);
    assert_eq!(
        bill.processes,
        [share(7, None, 4000, 20_000_000, 94_000_000)]
    );
    let functions: Vec<_> = bill
        .functions
        .iter()
        .map(|one| (one.name.as_str(), one.hits, one.each_ns, one.cost_ns))
        .collect();
    assert_eq!(
        functions,
        [
            ("function 2", 1000, 17_000, 17_000_000),
            ("function 1", 3000, 1000, 3_000_000)
        ]
    );
}

#[test]
fn lost_calls_are_charged_to_the_others_of_their_domain() {
    let mut costs = costs(&[
        (1, HipRuntime, Emulated, Return),
        (2, Own, Emulated, Return),
    ]);
    calls(&mut costs, 1, HipRuntime, (7, 7), 10);
    calls(&mut costs, 2, Own, (7, 7), 10);
    let row = |domain: Domain, seen, lost| LedgerRow {
        domain: domain.id(),
        seen,
        written: seen - lost,
        dropped: vec![lost],
        ..LedgerRow::default()
    };
    // Of this thread's calls only a part is in the outputs, of the lost ones as large a part.
    costs.event(&Event::Ledger(Box::new(Ledger {
        rows: vec![
            row(HipRuntime, 20, 0),
            row(Own, 80, 60),
            row(Domain::Sched, 9, 1),
        ],
        ..Ledger::default()
    })));
    let bill = costs.bill();
    assert_eq!(
        bill.not_included_text(),
        "9 times without a processor, and calls in processes that are not traced"
    );
    assert_eq!(bill.cost_ns, 10 * 1000 + 40 * 1000);
    assert_eq!((bill.functions[0].hits, bill.functions[1].hits), (40, 10));
}

#[test]
fn work_is_a_hit_unless_its_submission_is_a_traced_call() {
    use gputrace_timeline::gpu::{Copy, Dispatch};
    let bill_of = |name: &str| {
        let mut costs = costs(&[]);
        costs.event(&Event::Function(Box::new(FunctionInfo {
            function: Function {
                name: name.to_owned(),
                ..Function::default()
            },
            domain: Some(Domain::HsaCore),
            library: String::new(),
            build_id: String::new(),
            range: None,
        })));
        let origin = |tid| Origin {
            pid: 7,
            tid,
            ..Origin::default()
        };
        for tid in [7, 7, 0] {
            costs.event(&Event::Dispatch(Box::new(Dispatch {
                origin: origin(tid),
                ..Dispatch::default()
            })));
        }
        costs.event(&Event::Copy(Box::new(Copy {
            origin: origin(7),
            ..Copy::default()
        })));
        let bill = costs.bill();
        (bill.cost_ns, bill.functions.len())
    };
    assert_eq!(bill_of("hsa_init"), (3 * 400, 2));
    assert_eq!(bill_of("hsa_signal_store_screlease"), (400, 1));
    assert_eq!(bill_of("hsa_amd_memory_async_copy"), (2 * 400, 1));
}

#[test]
fn threads_that_ended_are_forgotten_and_still_paid() {
    let mut costs = costs(&[(1, HipRuntime, Emulated, Return)]);
    for tid in 100..400 {
        lifetime(
            &mut costs,
            (7, tid),
            BEGAN + 10_000,
            LifetimeChange::ThreadStarted { creator: 7 },
        );
        calls(&mut costs, 1, HipRuntime, (7, tid), u64::from(tid % 2));
        lifetime(&mut costs, (7, tid), BEGAN + 20_000, LifetimeChange::Exited);
    }
    assert!(costs.threads.is_empty());
    let bill = end(&mut costs, BEGAN + 1_000_000);
    assert_eq!((bill.cost_ns, bill.threads.len()), (150_000, 0));
    assert!((bill.highest_share - 0.1).abs() < 1e-9);
    assert_eq!(bill.processes[0].time_ns, 150 * 10_000);
}

#[test]
fn without_prices_they_are_assumed() {
    let mut costs = Costs::default();
    costs.event(&Event::Recording(Box::default()));
    assert!(!costs.bill().prices.measured && costs.bill().prices == *ASSUMED);
    assert!(assumed(true).single_stepped > assumed(false).single_stepped);
}

#[test]
fn absurd_prices_do_not_panic() {
    let mut costs = costs(&[(1, HipRuntime, Emulated, Return), (2, Own, Emulated, Exits)]);
    costs.event(&Event::Recording(Box::new(Recording {
        prices: Some(ProbePrices {
            emulated: u64::MAX,
            at_return: u64::MAX,
            ..PRICES
        }),
        ..Recording::default()
    })));
    let function = |id, domain: Domain| {
        Event::Function(Box::new(FunctionInfo {
            function: Function {
                id,
                domain: domain.id(),
                probe_cost: Emulated,
                ..Function::default()
            },
            domain: Some(domain),
            library: String::new(),
            build_id: String::new(),
            range: None,
        }))
    };
    for (id, domain) in [(1, HipRuntime), (2, Own)] {
        costs.event(&function(id, domain));
        calls(&mut costs, id, domain, (7, 7), 3);
    }
    lifetime(&mut costs, (7, 7), 5, LifetimeChange::Exited);
    costs.event(&Event::Ledger(Box::new(Ledger {
        rows: vec![LedgerRow {
            seen: u64::MAX,
            written: 1,
            ..LedgerRow::default()
        }],
        ..Ledger::default()
    })));
    assert_eq!(costs.bill().cost_ns, u64::MAX);
}
