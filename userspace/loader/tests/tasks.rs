//! The task programs, with processes and threads that this test creates.

#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, in its helper functions too"
)]

use std::{
    process::Command,
    sync::Mutex,
    time::{Duration, Instant},
};

use gputrace_abi::record::{Task, task_op};
use gputrace_loader::{ProbeError, Ring, tasks::Tasks};
use zerocopy::FromBytes as _;

fn load(debug: bool) -> Option<Tasks> {
    match Tasks::load(debug, true) {
        Ok(tasks) => Some(tasks),
        Err(error @ (ProbeError::PermissionDenied { .. } | ProbeError::NoTracefs { .. })) => {
            assert!(
                std::env::var_os("GPUTRACE_REQUIRE_BPF").is_none(),
                "{error}"
            );
            gputrace_skip::skipped(&error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn drain(ring: &mut Ring, into: &mut Vec<Task>) {
    while let Some(item) = ring.next() {
        into.push(Task::read_from_bytes(&item).unwrap());
    }
}

fn comm(task: &Task) -> String {
    let end = task
        .comm
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(task.comm.len());
    String::from_utf8_lossy(&task.comm[..end]).into_owned()
}

/// The kernel gives up checking a program when a signal waits, as after SIGCONT.
#[test]
fn signals_do_not_keep_programs_from_loading() {
    /// Signals for each time that the programs are loaded: fewer than the tries for one program.
    const SIGNALS: u32 = 3;
    extern "C" fn ignore(_: libc::c_int) {}
    let handler: extern "C" fn(libc::c_int) = ignore;
    // SAFETY: the handler does nothing, so it may run at any time.
    unsafe { libc::signal(libc::SIGUSR1, handler as libc::sighandler_t) };
    let (pid, tid) = (std::process::id(), rustix::thread::gettid());
    for times in 0..40 {
        let signals = std::thread::spawn(move || {
            for _ in 0..SIGNALS {
                std::thread::sleep(Duration::from_micros(50 * times));
                // SAFETY: it sends a signal that has a handler to a thread that waits for this one.
                let sent = unsafe {
                    let (pid, tid) = (pid.cast_signed(), tid.as_raw_nonzero().get());
                    libc::syscall(libc::SYS_tgkill, pid, tid, libc::SIGUSR1)
                };
                assert_eq!(sent, 0);
            }
        });
        let loaded = load(false);
        signals.join().unwrap();
        if loaded.is_none() {
            return;
        }
    }
}

#[test]
fn a_process_and_a_thread_from_birth_to_end() {
    let Some(mut tasks) = load(false) else { return };
    let mut ring = tasks.take_ring().unwrap();
    let me = std::process::id();
    let mut child = Command::new("/bin/true").spawn().unwrap();
    child.wait().unwrap();
    let thread = std::thread::Builder::new().name("gpt-thread".to_owned());
    let tid = thread
        .spawn(|| rustix::thread::gettid().as_raw_nonzero().get())
        .unwrap()
        .join()
        .unwrap();
    let tid = u32::try_from(tid).unwrap();

    // The exit of a joined thread may be reported a moment after the join.
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut events = Vec::new();
    let exited = |events: &[Task]| {
        events
            .iter()
            .any(|task| task.op == task_op::EXIT && task.tid == tid)
    };
    while !exited(&events) {
        assert!(Instant::now() < deadline, "no exit of thread {tid}");
        drain(&mut ring, &mut events);
        std::thread::yield_now();
    }
    let of = |pid: u32, tid: u32| -> Vec<&Task> {
        events
            .iter()
            .filter(|task| task.pid == pid && task.tid == tid)
            .collect()
    };
    let ops: Vec<u8> = of(child.id(), child.id())
        .iter()
        .map(|task| task.op)
        .collect();
    assert_eq!(ops.first(), Some(&task_op::FORK));
    assert_eq!(ops.last(), Some(&task_op::EXIT));
    let exec = events
        .iter()
        .find(|task| task.pid == child.id() && task.op == task_op::EXEC)
        .unwrap();
    assert_eq!(comm(exec), "true");
    assert_eq!(of(child.id(), child.id())[0].parent, me);
    let ops: Vec<u8> = of(me, tid).iter().map(|task| task.op).collect();
    assert_eq!(ops, [task_op::THREAD, task_op::RENAME, task_op::EXIT]);
    assert_eq!(comm(of(me, tid)[1]), "gpt-thread");
    let counters = tasks.counters().unwrap();
    assert_eq!(counters.ring_full, 0);
    assert!(counters.seen >= events.len() as u64);
}

/// Starts a shell that waits for the end of its input. The returned function ends the input, on
/// which the shell creates `count` children, and waits for the shell.
fn family(count: u32) -> (std::process::Child, impl FnOnce(&mut std::process::Child)) {
    let script = format!("read go; i=0; while [ $i -lt {count} ]; do /bin/true; i=$((i+1)); done");
    let child = Command::new("/bin/sh")
        .args(["-c", &script])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let go = |child: &mut std::process::Child| {
        drop(child.stdin.take());
        child.wait().unwrap();
    };
    (child, go)
}

#[test]
fn processes_of_no_interest_cost_nothing_but_the_look() {
    // They exist before the programs, so they are not known as children of this process.
    let (mut stranger, let_stranger) = family(50);
    let (mut known, let_known) = family(3);
    let Some(mut tasks) = load(false) else { return };
    let mut ring = tasks.take_ring().unwrap();
    assert!(tasks.take_known().unwrap().add(known.id()));
    let before = tasks.counters().unwrap();
    let_stranger(&mut stranger);
    let_known(&mut known);
    let mut events = Vec::new();
    drain(&mut ring, &mut events);
    let of = |pid: u32| {
        events
            .iter()
            .filter(|task| task.pid == pid || task.parent == pid)
            .count()
    };
    assert_eq!(of(stranger.id()), 0, "{events:?}");
    let children: Vec<u32> = events
        .iter()
        .filter(|task| task.op == task_op::FORK && task.parent == known.id())
        .map(|task| task.pid)
        .collect();
    assert_eq!(children.len(), 3);
    for child in children {
        let ops: Vec<u8> = events
            .iter()
            .filter(|task| task.pid == child)
            .map(|task| task.op)
            .collect();
        assert!(
            ops.contains(&task_op::EXEC) && ops.ends_with(&[task_op::EXIT]),
            "{ops:?}"
        );
    }
    // Tests running in parallel may have created threads and children meanwhile.
    let seen = tasks.counters().unwrap().seen - before.seen;
    assert!(seen < 100, "{seen} events seen");
}

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Memory;

impl log::Log for Memory {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }
    fn log(&self, record: &log::Record<'_>) {
        LINES.lock().unwrap().push(record.args().to_string());
    }
    fn flush(&self) {}
}

#[test]
fn programs_log_when_told_to() {
    let Some(mut tasks) = load(true) else { return };
    log::set_logger(&Memory).unwrap();
    log::set_max_level(log::LevelFilter::Debug);
    let mut logger = tasks.logger().unwrap();
    let mut child = Command::new("/bin/true").spawn().unwrap();
    child.wait().unwrap();
    logger.flush();
    let lines = LINES.lock().unwrap();
    let expected = format!("process {}: executed another program", child.id());
    assert!(
        lines.iter().any(|line| line.contains(&expected)),
        "{lines:?}"
    );
}
