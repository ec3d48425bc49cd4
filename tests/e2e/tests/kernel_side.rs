//! What gputrace records about the kernel: scheduling, compared with the kernel's own figures, and
//! the messages when there is no driver.

use std::{collections::BTreeMap, fs};

use gputrace_abi::{counters::DropReason, domain::Domain};
use gputrace_e2e::{Bench, process::Running};
use gputrace_timeline::{
    Timeline,
    event::Event,
    observation::{Observation, RUNNABLE},
};

/// A program that sleeps and works, and then prints the kernel's counts for it: ns on a CPU, ns
/// waiting for one, number of turns on one (`Documentation/scheduler/sched-stats.rst` of the
/// kernel). They follow the time in hundredths of a second, `CLOCK_BOOTTIME`. The program may wait
/// again after that.
const SLEEPER: &str = r#"
for i in 1 2 3; do sleep 0.05; done
i=0
while [ $i -lt 30000 ]; do i=$((i+1)); done
read -r up idle < /proc/uptime
read -r ran waited turns < /proc/$$/schedstat
echo "$$ ${up%.*}${up#*.} $waited $turns" > "$1"
"#;

#[test]
fn waits_are_those_that_the_kernel_counts() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let outputs = bench.outputs(0);
    let said = bench.path().join("schedstat");
    let mut gputrace = bench.gputrace(&outputs);
    gputrace
        .args([
            "--sched",
            "-S",
            "-f",
            "csv,pftrace,json,ndjson",
            "--",
            "/bin/sh",
            "-c",
            SLEEPER,
            "sh",
        ])
        .arg(&said);
    Running::start("gputrace", &mut gputrace).finish();
    let said = fs::read_to_string(&said).unwrap();
    let numbers: Vec<u64> = said
        .split_whitespace()
        .map(|word| word.parse().unwrap())
        .collect();
    let [pid, time, waited, turns] = numbers[..] else {
        panic!("{said}")
    };

    let mut observed: Vec<Observation> = Vec::new();
    let mut balance = None;
    for event in Timeline::open(&outputs.capture()).unwrap() {
        match event.unwrap() {
            Event::Observation(one) => observed.push(*one),
            Event::Ledger(ledger) => {
                let rows = ledger.by_domain();
                balance = rows
                    .into_iter()
                    .find(|row| row.domain == Domain::Sched.id());
            }
            _ => {}
        }
    }
    let balance = balance.unwrap();
    assert_eq!((balance.imbalance(), balance.lost()), (0, 0), "{balance:?}");
    let mine: Vec<&Observation> = observed
        .iter()
        .filter(|one| u64::from(one.whose.tid) == pid)
        .collect();
    // Periods follow one another: a thread sleeps, then waits, then runs.
    for pair in mine.windows(2) {
        assert!(pair[0].end <= pair[1].begin, "{pair:?}");
    }
    // The kernel counts from the program's start; the recording begins when the program is already
    // stopped.
    let waits: Vec<&&Observation> = mine.iter().filter(|one| one.name == RUNNABLE).collect();
    let counted = waits.iter().filter(|one| one.end <= time * 10_000_000);
    let (turns_before, waited_before) = counted.fold((0, 0), |(turns, waited), one| {
        (turns + 1, waited + one.duration())
    });
    assert!(
        !waits.is_empty() && turns_before <= turns,
        "{turns_before} waits, {turns} turns"
    );
    let recorded: u64 = waits.iter().map(|one| one.duration()).sum();
    let tolerance = waited / 5 + 3_000_000;
    assert!(
        waited_before <= waited + tolerance && waited <= recorded + tolerance,
        "{waited_before} to {recorded} ns recorded, the kernel counted {waited}"
    );
    // It waits for its three children, each of which sleeps for 50 ms.
    let asleep: u64 = mine
        .iter()
        .filter(|one| one.name == "sleeping")
        .map(|one| one.duration())
        .sum();
    assert!(asleep >= 150_000_000, "{asleep}");
    let mut sleepers = BTreeMap::<u32, u64>::new();
    // gputrace starts the program, but none of gputrace's own processes is observed.
    assert!(observed.iter().all(|one| u64::from(one.whose.tid) >= pid));
    // Somebody may have stopped one of them in its sleep.
    let slept = |one: &&Observation| one.name == "sleeping" || one.name == "stopped";
    for one in observed.iter().filter(slept) {
        *sleepers.entry(one.whose.tid).or_default() += one.duration();
    }
    assert_eq!(
        sleepers
            .values()
            .filter(|asleep| **asleep >= 50_000_000)
            .count(),
        4,
        "{sleepers:?}"
    );
    assert!(
        fs::read_to_string(outputs.file("_sched_trace.csv"))
            .unwrap()
            .lines()
            .count()
            > 1
    );
}

#[test]
fn without_a_driver_it_says_so_and_goes_on() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    if fs::exists("/sys/class/kfd").unwrap() {
        return gputrace_e2e::bench::skipped("this machine has the driver");
    }
    let outputs = bench.outputs(0);
    let mut gputrace = bench.gputrace(&outputs);
    gputrace.args(["--kfd-trace", "-S", "-f", "csv", "--", "/bin/sleep", "2"]);
    Running::start("gputrace", &mut gputrace).finish();
    let notices: Vec<String> = Timeline::open(&outputs.capture())
        .unwrap()
        .filter_map(|event| match event.unwrap() {
            Event::Notice(notice) => Some(notice.text),
            _ => None,
        })
        .collect();
    assert_eq!(notices.len(), 1, "{notices:?}");
    assert!(notices[0].contains("amdgpu is not loaded"), "{notices:?}");
}

#[test]
fn tracepoints_are_read_by_their_own_layout() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let outputs = bench.outputs(0);
    let mut gputrace = bench.gputrace(&outputs);
    // The program executes another one, whose name the kernel reports; the second category does not
    // exist.
    gputrace.args([
        "--tracepoint",
        "sched:sched_process_exec,no_such:thing",
        "-f",
        "csv,ndjson",
    ]);
    gputrace.args(["--", "/bin/sh", "-c", "/bin/true; exec /bin/echo"]);
    Running::start("gputrace", &mut gputrace).finish();
    let (mut programs, mut notices, mut seen) = (Vec::new(), Vec::new(), 0);
    for event in Timeline::open(&outputs.capture()).unwrap() {
        match event.unwrap() {
            Event::Observation(one) => {
                assert_eq!(one.name, "sched_process_exec");
                let pid = one.get("pid").unwrap().to_string();
                assert_eq!(pid, one.whose.tid.to_string());
                programs.push(one.get("filename").unwrap().to_string());
            }
            Event::Notice(notice) => notices.push(notice.text),
            Event::Ledger(ledger) => {
                let rows = ledger.by_domain();
                let row = rows
                    .iter()
                    .find(|row| row.domain == Domain::Tracepoint.id())
                    .unwrap();
                assert_eq!((row.imbalance(), row.lost()), (0, 0), "{row:?}");
                seen = row.seen;
            }
            _ => {}
        }
    }
    for program in ["/bin/sh", "/bin/true", "/bin/echo"] {
        assert!(
            programs.iter().any(|one| one == program),
            "{program} of {programs:?}"
        );
    }
    assert_eq!(seen, programs.len() as u64);
    assert!(
        notices.iter().any(|text| text.contains("no_such:thing")),
        "{notices:?}"
    );
}

#[test]
fn tracepoints_have_a_guard() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let outputs = bench.outputs(0);
    let mut gputrace = bench.gputrace(&outputs);
    gputrace.args([
        "--tracepoint",
        "raw_syscalls:sys_enter",
        "--tracepoint-rate",
        "100",
        "-f",
        "csv",
    ]);
    gputrace.args([
        "--",
        "/bin/dd",
        "if=/dev/zero",
        "of=/dev/null",
        "bs=1",
        "count=100000",
        "status=none",
    ]);
    Running::start("gputrace", &mut gputrace).finish();
    let ledger = Timeline::open(&outputs.capture())
        .unwrap()
        .find_map(|event| match event.unwrap() {
            Event::Ledger(ledger) => Some(ledger),
            _ => None,
        })
        .unwrap();
    let rows = ledger.by_domain();
    let row = rows
        .iter()
        .find(|row| row.domain == Domain::Tracepoint.id())
        .unwrap();
    assert!(row.seen > 100_000, "{row:?}");
    assert_eq!(row.imbalance(), 0, "{row:?}");
    assert_eq!(row.lost(), row.dropped_for(DropReason::TooOften), "{row:?}");
    // A hundred per second that has begun, and one more for each CPU that begins a second at the
    // same time.
    assert!(row.written >= 100 && row.written < row.seen / 10, "{row:?}");
}
