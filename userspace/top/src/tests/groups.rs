//! Processes in groups, their queues, and what tracing costs them.

use gputrace_capture::meta::{EndProbe, Function, ProbeCost, ProbePrices};
use gputrace_export::synthetic::dispatch;

use super::*;
use crate::jobs::Task;

/// A process of this user and this Slurm job.
fn process(pid: u32, user: &str, job: u32) -> Event {
    Event::Process(Box::new(ProcessInfo {
        pid,
        command: vec![format!("program-{pid}")],
        identity: Identity {
            user: user.to_owned(),
            slurm: Some(Slurm {
                job,
                step: "0".to_owned(),
                ..Slurm::default()
            }),
            ..Identity::default()
        },
        ..ProcessInfo::default()
    }))
}

/// A kernel of a process, on the queue with its number.
fn kernel_of(pid: u32, begin: u64, took: u64) -> Event {
    let begin = START + begin;
    let mut dispatch = dispatch(1, begin, exact(begin, begin + took));
    dispatch.origin.pid = pid;
    dispatch.queue = pid;
    Event::Dispatch(Box::new(dispatch))
}

/// Two processes of alice and one of bob, in two jobs, and one of which nothing is known.
fn four() -> Snapshot {
    let mut intervals = begun(100 * MS, false);
    intervals.event(&Event::Call(Call {
        pid: 4,
        ..call(1, START, START + 1)
    }));
    for (pid, user, job) in [(1, "alice", 7), (2, "alice", 8), (3, "bob", 8)] {
        intervals.event(&process(pid, user, job));
    }
    // Those of alice overlap for 10 ms.
    intervals.event(&kernel_of(1, 0, 30 * MS));
    intervals.event(&kernel_of(2, 20 * MS, 20 * MS));
    intervals.event(&kernel_of(3, 50 * MS, 10 * MS));
    intervals.event(&kernel_of(4, 60 * MS, 20 * MS));
    intervals.ended(START + 100 * MS).unwrap()
}

#[test]
fn a_group_is_busy_while_any_of_its_processes_is() {
    let shown = four();
    let rows = |by| {
        let rows = shown.groups.get(&by).unwrap().iter();
        rows.map(|row| {
            let usage = &row.usage;
            assert_eq!(usage.kernels, row.pids.len() as u64);
            assert_eq!(usage.gpus, [1]);
            let name = row.name.as_deref().unwrap_or_default();
            (name, row.pids.clone(), usage.busy.ns, usage.busy_share)
        })
        .collect::<Vec<_>>()
    };
    // Shares are those of the sum over all processes, 80 ms.
    assert_eq!(
        rows(GroupBy::User),
        [
            ("alice", vec![1, 2], Some(40 * MS), Some(0.625)),
            ("", vec![4], Some(20 * MS), Some(0.25)),
            ("bob", vec![3], Some(10 * MS), Some(0.125)),
        ]
    );
    // Of those that are equally busy, the one with more kernels comes first.
    assert_eq!(
        rows(GroupBy::Job),
        [
            ("8", vec![2, 3], Some(30 * MS), Some(0.375)),
            ("7", vec![1], Some(30 * MS), Some(0.375)),
            ("", vec![4], Some(20 * MS), Some(0.25)),
        ]
    );
    assert_eq!(rows(GroupBy::Pod).len(), 1);
    let queues: Vec<(u32, u64, Option<u64>)> = shown
        .queues
        .iter()
        .map(|row| (row.pid, row.queue, row.busy.ns))
        .collect();
    let expected = [(1, 30), (4, 20), (2, 20), (3, 10)];
    let expected = expected.map(|(pid, ms)| (pid, u64::from(pid) + 1, Some(ms * MS)));
    assert_eq!(queues.len(), expected.len());
    assert!(
        expected.iter().all(|row| queues.contains(row)),
        "{queues:?}"
    );
}

#[test]
fn work_of_unknown_length_leaves_no_shares() {
    let mut intervals = begun(100 * MS, false);
    intervals.event(&process(1, "alice", 7));
    intervals.event(&process(2, "alice", 7));
    intervals.event(&kernel_of(1, 0, 30 * MS));
    let queue = PendingQueue {
        pid: 2,
        queue: 5,
        node_id: Some(1),
        dispatches: 3,
        since: START + 60 * MS,
    };
    intervals.event(&Event::Pending(Box::new(Pending {
        time: START,
        queues: vec![queue],
    })));
    let shown = intervals.ended(START + 100 * MS).unwrap();
    let [group] = &shown.groups.get(&GroupBy::Job).unwrap()[..] else {
        panic!("{:?}", shown.groups)
    };
    let busy = group.usage.busy;
    let range = (busy.ns, busy.least_ns, busy.most_ns);
    assert_eq!(range, (None, 30 * MS, 70 * MS));
    assert_eq!((group.usage.busy_share, group.usage.pending), (None, 3));
    assert!(
        shown
            .processes
            .iter()
            .all(|row| row.usage.busy_share.is_none())
    );
    let pending = shown.queues.iter().find(|row| row.queue == 6);
    assert_eq!(pending.map(|row| (row.pid, row.pending)), Some((2, 3)));
}

#[test]
fn what_tracing_costs_is_the_price_of_its_probes() {
    let mut intervals = begun(10 * MS, false);
    intervals.event(&Event::Recording(Box::new(Recording {
        prices: Some(ProbePrices {
            measured: true,
            emulated: 500,
            at_return: 700,
            ..ProbePrices::default()
        }),
        clocks: ClockSnapshot {
            boottime: START,
            ..ClockSnapshot::default()
        },
        ..Recording::default()
    })));
    intervals.event(&Event::Function(Box::new(FunctionInfo {
        function: Function {
            id: 0,
            probe_cost: ProbeCost::Emulated,
            end_probe: EndProbe::Return,
            ..Function::default()
        },
        domain: None,
        library: String::new(),
        build_id: String::new(),
        range: None,
    })));
    for id in 0..3 {
        let begin = START + id * MS;
        intervals.event(&Event::Call(call(id, begin, begin + 1)));
    }
    // Its doorbell is a hit of its own.
    intervals.event(&kernel(1, START, exact(START, START + MS)));
    let shown = intervals.ended(START + 10 * MS).unwrap();
    let costs: Vec<u64> = shown
        .processes
        .iter()
        .map(|row| row.usage.cost_ns)
        .collect();
    assert_eq!(costs, [3 * 1200 + 500]);
}

#[test]
fn a_key_shows_groups_and_their_processes() {
    let mut screen = Screen::default();
    screen.take(four());
    let mut press = |keys: &[Key]| {
        for key in keys {
            assert_ne!(screen.key(*key), Asked::End, "{key:?}");
        }
        drawn(&screen, 120, 24)
    };
    // Nobody is in a container or a pod, so jobs come first, then users, then processes again.
    let text = press(&[Key::Char('g')]);
    assert!(text.contains("JOB") && text.contains("PROCESSES"), "{text}");
    let text = press(&[Key::Char('g')]);
    assert!(
        text.contains("alice") && !text.contains("COMMAND"),
        "{text}"
    );
    // The processes of the first group, then what they run.
    let text = press(&[Key::Enter]);
    assert!(
        text.contains("user alice") && text.contains("COMMAND"),
        "{text}"
    );
    assert!(
        text.contains("program-1") && text.contains("program-2"),
        "{text}"
    );
    assert!(!text.contains("program-3"), "{text}");
    let text = press(&[Key::Char('4')]);
    let queues = text.lines().filter(|line| line.contains("Agent 1")).count();
    // The table of GPUs has it once.
    assert_eq!(queues, 3, "{text}");
    // Back to the groups, on to the processes.
    let text = press(&[Key::Escape]);
    assert!(
        text.contains("alice") && !text.contains("COMMAND"),
        "{text}"
    );
    let text = press(&[Key::Char('g')]);
    assert!(
        text.contains("COMMAND") && text.contains("program-3"),
        "{text}"
    );
    // A group is not recorded, a process is.
    let group = press(&[Key::Char('g'), Key::Char('r')]);
    assert!(group.contains("choose a process"), "{group}");
    press(&[Key::Char('g'), Key::Char('g')]);
    assert_eq!(screen.key(Key::Char('r')), Asked::Task(Task::Record(1)));
    screen.tell(Some("told \u{1b}[2J".to_owned()), vec![1, 3]);
    let told = drawn(&screen, 120, 24);
    assert!(
        told.contains("told \\x1b") && told.contains("RECORDING 1, 3"),
        "{told}"
    );
    assert_eq!(screen.key(Key::Char('d')), Asked::Task(Task::DumpFlight));
    assert!(!drawn(&screen, 120, 24).contains("told"));
    let mut press = |keys: &[Key]| {
        for key in keys {
            assert_ne!(screen.key(*key), Asked::End, "{key:?}");
        }
        drawn(&screen, 120, 24)
    };
    // A group that is gone has no processes.
    press(&[Key::Char('g'), Key::Enter]);
    screen.take(Snapshot::default());
    assert!(!drawn(&screen, 120, 24).contains("program"));
}

proptest! {
    #[test]
    fn groups_lose_no_time(
        kernels in proptest::collection::vec((1_u32..5, 0_u64..90, 1_u64..20), 0..30),
    ) {
        let mut intervals = begun(100, false);
        intervals.event(&Event::Call(call(1, START, START + 1)));
        for pid in 1..5 {
            let user = if pid < 3 { "alice" } else { "bob" };
            intervals.event(&process(pid, user, pid));
        }
        let mut taken = [[false; 128]; 2];
        for (pid, begin, took) in &kernels {
            intervals.event(&kernel_of(*pid, *begin, *took));
            taken[usize::from(*pid > 2)][*begin as usize..(begin + took) as usize].fill(true);
        }
        let shown = intervals.ended(START + 100).unwrap();
        for (name, taken) in ["alice", "bob"].into_iter().zip(taken) {
            let rows = shown.groups.get(&GroupBy::User).unwrap();
            let row = rows.iter().find(|row| row.name.as_deref() == Some(name));
            let expected = taken[..100].iter().filter(|taken| **taken).count() as u64;
            let told = row.map_or(Some(0), |row| row.usage.busy.ns);
            prop_assert_eq!(told, Some(expected));
        }
    }
}
