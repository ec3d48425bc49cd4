//! Rounds of chaos, one after the other, until the time is over.
//!
//! `GPUTRACE_CHAOS_SECONDS` says how long (120), `GPUTRACE_CHAOS_SEED` with which seed to begin
//! (1), `GPUTRACE_CHAOS_ROUNDS` how many rounds at most. `cargo xtask chaos` sets them.
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

/// One at a time: each looks at what all of this machine leave behind.
static ALONE: Mutex<()> = Mutex::new(());

fn number(name: &str, default: u64) -> u64 {
    match env::var(name) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|error| panic!("{name}={text}: {error}")),
        Err(_) => default,
    }
}

/// Past the test runner, which would keep it to itself while the test runs, and for good if it
/// hangs.
fn tell(text: &str) {
    drop(writeln!(stderr(), "{text}"));
}

#[test]
fn rounds() {
    let _alone = ALONE.lock();
    left::adopt_orphans();
    let first = number("GPUTRACE_CHAOS_SEED", 1);
    let deadline = Instant::now() + Duration::from_secs(number("GPUTRACE_CHAOS_SECONDS", 120));
    let most = number("GPUTRACE_CHAOS_ROUNDS", u64::MAX);
    let mut done = 0;
    while done < most && Instant::now() < deadline {
        let Some(bench) = Bench::privileged() else { return };
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
    let Some(bench) = Bench::privileged() else { return };
    left::adopt_orphans();
    // As many as the kernel has ids for, nearly, and not more than a machine of some GB has room
    // for.
    let ids = fs::read_to_string("/proc/sys/kernel/pid_max").unwrap_or_default();
    let ids: u32 = ids
        .trim()
        .parse()
        .unwrap_or_else(|error| panic!("pid_max is {ids}: {error}"));
    let crowd = (ids / 4 * 3).min(20_000);
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

/// The checks for what is left are no checks if they see nothing.
#[test]
fn what_is_left_is_seen() {
    let _alone = ALONE.lock();
    let Some(_bench) = Bench::privileged() else { return };
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
    let orphan = orphan.unwrap_or_else(|error| panic!("no shell: {error}")).stdout;
    let orphan = String::from_utf8_lossy(&orphan).trim().to_owned();
    assert!(
        left::children().iter().any(|child| child.starts_with(&orphan)),
        "process {orphan} is not among {:?}",
        left::children()
    );
    let killed = Command::new("kill").arg(&orphan).status();
    assert!(killed.is_ok_and(|status| status.success()));
    left::wait_for_no_process();
}
