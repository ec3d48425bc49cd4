//! Runs rounds of chaos, one after the other.
//!
//! `GPUTRACE_CHAOS_SEED` sets the first seed (default 1), `GPUTRACE_CHAOS_ROUNDS` the maximum number
//! of rounds, and `GPUTRACE_CHAOS_SECONDS` the time. Without the last two there are 6 rounds, the
//! same on each machine. `cargo xtask chaos` sets them. `GPUTRACE_CHAOS_CROWD` sets the maximum
//! number of processes in a crowd (default 2,000).
#![expect(clippy::panic, reason = "tests")]

use std::{
    env, fs,
    io::{Write as _, stderr},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    process::Command,
    sync::Mutex,
    time::{Duration, Instant},
};

use gputrace_chaos::{
    left::{self, Kernel},
    plan::{End, Of, Recording, Round},
    round,
};
use gputrace_e2e::Bench;
use libbpf_rs::{MapHandle, MapType, libbpf_sys};

/// One test at a time, because each checks what is left behind on the whole machine.
static ALONE: Mutex<()> = Mutex::new(());

/// A number from the environment, if it is there.
fn number(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|error| panic!("{name}={text}: {error}")))
}

/// Prints directly to standard error: the test runner would show it only when the test has ended,
/// and never if it hangs.
fn tell(text: &str) {
    drop(writeln!(stderr(), "{text}"));
}

#[test]
fn rounds() {
    let _alone = ALONE.lock();
    left::adopt_orphans();
    let first = number("GPUTRACE_CHAOS_SEED").unwrap_or(1);
    let time = number("GPUTRACE_CHAOS_SECONDS").map(Duration::from_secs);
    let most = number("GPUTRACE_CHAOS_ROUNDS").unwrap_or(if time.is_some() { u64::MAX } else { 6 });
    let start = Instant::now();
    let mut done = 0;
    while done < most && time.is_none_or(|time| start.elapsed() < time) {
        let Some(bench) = Bench::privileged() else {
            return;
        };
        let seed = first.wrapping_add(done);
        let round = Round::new(seed);
        let begin = Instant::now();
        let verbose = env::var_os("GPUTRACE_CHAOS_VERBOSE").is_some();
        if verbose {
            tell(&format!("seed {seed}: {round:#?}"));
        }
        if let Err(failure) = catch_unwind(AssertUnwindSafe(|| round::run(&bench, &round, 0))) {
            tell(&format!(
                "failed with seed {seed}: {round:#?}\nto see it again: cargo xtask chaos --seed {seed} --rounds 1"
            ));
            resume_unwind(failure);
        }
        if verbose {
            tell(&format!("seed {seed}: passed in {:.1?}", begin.elapsed()));
        }
        done += 1;
    }
    tell(&format!("chaos: {done} rounds from seed {first} on"));
}

#[test]
fn more_processes_at_once_than_tables_have_places() {
    let _alone = ALONE.lock();
    let Some(bench) = Bench::privileged() else {
        return;
    };
    left::adopt_orphans();
    // Nearly as many as the kernel has ids for, but no more than a machine of some GB has memory
    // for.
    let ids = fs::read_to_string("/proc/sys/kernel/pid_max").unwrap_or_default();
    let ids: u32 = ids
        .trim()
        .parse()
        .unwrap_or_else(|error| panic!("pid_max is {ids}: {error}"));
    let most = number("GPUTRACE_CHAOS_CROWD").unwrap_or(2_000);
    let crowd = (ids / 4 * 3).min(u32::try_from(most).unwrap_or(u32::MAX));
    let round = Round {
        seed: 3,
        steps: 0,
        recordings: vec![Recording {
            of: Of::Launched,
            end: End::Target,
            actions: 0,
            stopped: false,
            options: &[],
        }],
    };
    round::run(&bench, &round, crowd);
}

/// Shows that the checks for leftovers can fail.
#[test]
fn what_is_left_is_seen() {
    let _alone = ALONE.lock();
    let Some(_bench) = Bench::privileged() else {
        return;
    };
    left::adopt_orphans();
    let before = Kernel::now();
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as _,
        ..Default::default()
    };
    let map = MapHandle::create(MapType::Array, Some("left"), 4, 4, 1, &options);
    assert_ne!(Kernel::now().since(&before), Kernel::default());
    drop(map);
    before.wait_for_nothing_new();

    // Its parent ends at once, and it becomes a child of this process.
    let orphan = Command::new("sh")
        .args(["-c", "sleep 1000 >&- 2>&- & echo $!"])
        .output();
    let orphan = orphan
        .unwrap_or_else(|error| panic!("no shell: {error}"))
        .stdout;
    let orphan = String::from_utf8_lossy(&orphan).trim().to_owned();
    assert!(
        left::children()
            .iter()
            .any(|child| child.starts_with(&orphan)),
        "process {orphan} is not among {:?}",
        left::children()
    );
    let killed = Command::new("kill").arg(&orphan).status();
    assert!(killed.is_ok_and(|status| status.success()));
    left::wait_for_no_process();
}
