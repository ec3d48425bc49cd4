//! Programs that block whoever inspects them, or that exhaust shared resources: gputrace ends in
//! time, and the account shows each limit that was reached.
#![expect(clippy::unwrap_used, reason = "a failure is what a test is for")]

use std::{fs, os::unix::process::CommandExt as _, path::Path, process::Command, time::Instant};

use gputrace_abi::counters::DropReason;
use gputrace_capture::meta::EndReason;
use gputrace_e2e::{
    Bench, Running, Trace,
    bench::{self, figure, keep_on_one_processor},
    process::{PATIENCE, eventually},
    trace::is_finished,
};
use rustix::process::Signal;

/// An unprivileged user.
const NOBODY: u32 = 65534;

fn start(bench: &Bench, arguments: &[&str], user: Option<u32>) -> Running {
    let mut command = Command::new(bench.program("hostile/hostile"));
    command.args(arguments);
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    let program = Running::start("hostile", &mut command);
    program.wait_for_stdout("ready");
    program
}

/// Records what the program does when it is `told`, and then ends the recording. The program stays
/// as it is meanwhile.
fn record(
    bench: &Bench,
    program: &mut Running,
    options: &[&str],
    told: impl FnOnce(&mut Running),
) -> Trace {
    let outputs = bench.outputs(0);
    let mut gputrace = bench.attach(&outputs, options, &[program.pid()]);
    told(program);
    let begin = Instant::now();
    gputrace.signal(Signal::INT);
    gputrace.finish();
    figure("hostile.stop", begin.elapsed().as_secs_f64(), "s");
    let trace = outputs.trace();
    trace.assert_sound(&EndReason::Interrupted);
    trace
}

/// Whether a process is stopped.
fn is_stopped(program: &Running) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", program.pid())).unwrap();
    stat.contains(") T ")
}

/// Whether the first thread of a process waits outside system calls, that is, for a page.
fn waits_for_page(program: &Running) -> bool {
    let call = fs::read_to_string(format!("/proc/{}/syscall", program.pid())).unwrap();
    call.starts_with("-1 ")
}

/// Kills a program whatever it is waiting for.
fn kill(mut program: Running) {
    program.signal_group(Signal::KILL);
    program.wait();
}

/// A call that waits for a page fault is recorded as unfinished and blocks nobody.
fn hung_call(arguments: &[&str]) {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let directory = bench.path().join("fuse");
    fs::create_dir(&directory).unwrap();
    let arguments = [arguments, &[directory.to_str().unwrap()]].concat();
    let mut program = start(&bench, &arguments, None);
    let trace = record(&bench, &mut program, &["--marker-trace"], |program| {
        program.send("");
        program.wait_for_stdout("calling");
        eventually("the program hangs", PATIENCE, || waits_for_page(program));
    });
    assert!(waits_for_page(&program), "the call still hangs");
    let finished: Vec<bool> = trace.calls_of("roctxMarkA").map(is_finished).collect();
    assert_eq!(finished, [true, false], "the second hangs");
    assert!(!program.stdout().contains("returned"));
    kill(program);
}

#[test]
fn a_page_of_userfaultfd_holds_nobody_up() {
    hung_call(&["page", "userfaultfd"]);
}

#[test]
fn a_page_of_a_file_system_that_does_not_answer_holds_nobody_up() {
    if !Path::new("/dev/fuse").exists() {
        return bench::skipped("no /dev/fuse");
    }
    hung_call(&["page", "fuse"]);
}

#[test]
fn a_stopped_program_holds_nobody_up() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let mut program = start(&bench, &["threads", "3"], Some(NOBODY));
    let trace = record(&bench, &mut program, &[], |program| {
        program.send("");
        program.wait_for_stdout("done");
        program.signal(Signal::STOP);
        eventually("the program is stopped", PATIENCE, || is_stopped(program));
    });
    assert_eq!(trace.calls_of("hipMalloc").count(), 3);
    // Nor if it is stopped from the beginning, and nobody ends the recording.
    let outputs = bench.outputs(1);
    bench
        .attach(&outputs, &["--duration", "100ms"], &[program.pid()])
        .finish();
    outputs.trace().assert_sound(&EndReason::DurationOver);
    assert!(is_stopped(&program));
    program.signal(Signal::CONT);
    program.close_stdin();
    program.finish();
}

#[test]
fn a_frozen_program_holds_nobody_up() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let group =
        Path::new("/sys/fs/cgroup/freezer").join(format!("gputrace-{}", std::process::id()));
    if fs::create_dir(&group).is_err() {
        return bench::skipped("no freezer of cgroup v1");
    }
    let mut program = start(&bench, &["threads", "3"], Some(NOBODY));
    let state = |state: &str| fs::write(group.join("freezer.state"), state).unwrap();
    let is_frozen = || fs::read_to_string(group.join("freezer.state")).unwrap() == "FROZEN\n";
    fs::write(group.join("cgroup.procs"), program.pid().to_string()).unwrap();
    let trace = record(&bench, &mut program, &[], |program| {
        program.send("");
        program.wait_for_stdout("done");
        state("FROZEN");
        eventually("the program is frozen", PATIENCE, is_frozen);
    });
    assert!(is_frozen());
    assert_eq!(trace.calls_of("hipMalloc").count(), 3);
    state("THAWED");
    program.close_stdin();
    program.finish();
    eventually("the group is empty", PATIENCE, || {
        fs::remove_dir(&group).is_ok()
    });
}

#[test]
fn threads_that_have_returned_take_no_room() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let mut program = start(&bench, &["threads", "600"], Some(NOBODY));
    let trace = record(&bench, &mut program, &["--max-threads", "64"], |program| {
        program.send("");
        program.wait_for_stdout("done");
    });
    trace.assert_lossless();
    assert_eq!(trace.calls_of("hipMalloc").count(), 600);
    program.close_stdin();
    program.finish();
}

#[test]
fn a_queue_that_lies_takes_its_share_only() {
    const DOORBELLS: u64 = 20;
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let mut program = start(&bench, &["queue", &DOORBELLS.to_string()], Some(NOBODY));
    // If a later doorbell were read first, the packets before it would be one gap, of which only
    // the first 65,536 are counted.
    keep_on_one_processor(&program);
    let trace = record(&bench, &mut program, &["--kernel-trace"], |program| {
        program.send("");
        program.wait_for_stdout("done");
    });
    let size = fs::metadata(bench.outputs(0).capture()).unwrap().len();
    assert!(size < 40 << 20, "a capture of {size} bytes");
    let total = trace.final_ledger().total();
    // The first doorbell is for one packet, each of the others for 65,536.
    assert_eq!(total.seen, 1 + (DOORBELLS - 1) * 65_536, "{total:?}");
    // What the ring holds no more when it is read is lost for another reason.
    let unreadable = trace.lost(DropReason::MemoryUnreadable);
    assert!(
        trace.lost(DropReason::ProcessLimit) + unreadable > 1 << 20 && unreadable < 1 << 18,
        "{total:?}"
    );
    let pid = program.pid().to_string();
    let told = trace
        .notices
        .iter()
        .find(|notice| notice.text.contains(&format!("process {pid}: ")));
    assert!(
        told.is_some_and(|notice| notice.text.contains("one doorbell")),
        "{:?}",
        trace.notices
    );
    program.close_stdin();
    program.finish();
}

/// Each copy has a build id of its own, so gputrace takes it for another library.
#[test]
fn a_crowd_of_libraries_is_probed_up_to_the_limits() {
    const FILES: usize = 1100;
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let library = fs::read(bench.program("hostile/libmany.so")).unwrap();
    // An ELF note: the lengths of its name and of the id, its type, and its name.
    let note = *b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0";
    let at = library
        .windows(note.len())
        .position(|bytes| bytes == note)
        .unwrap()
        + note.len();
    let many = bench.path().join("many");
    for number in 0..FILES {
        let directory = many.join(number.to_string());
        fs::create_dir_all(&directory).unwrap();
        let mut copy = library.clone();
        let id = copy.get_mut(at..at + size_of::<usize>()).unwrap();
        id.copy_from_slice(&number.to_ne_bytes());
        fs::write(directory.join("libamdhip64.so.99"), copy).unwrap();
    }
    let mut program = start(&bench, &["libraries", many.to_str().unwrap()], None);
    let outputs = bench.outputs(0);
    let mut gputrace = bench.attach(&outputs, &["--hip-trace"], &[program.pid()]);
    program.send("");
    program.wait_for_stdout("done");
    let told = [
        "only the first 1024 library files are probed",
        "values behind pointers are read for the first 8192 functions only",
    ];
    for text in told {
        gputrace.wait_for_stderr(text);
    }
    gputrace.signal(Signal::INT);
    gputrace.finish();
    let trace = outputs.trace();
    trace.assert_sound(&EndReason::Interrupted);
    for text in told {
        assert!(
            trace.notices.iter().any(|notice| notice.text == text),
            "{text}"
        );
    }
    program.close_stdin();
    program.finish();
}

#[test]
fn a_crowd_of_children_is_traced() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let mut program = start(&bench, &["children", "200"], None);
    let trace = record(&bench, &mut program, &[], |program| {
        program.send("");
        program.wait_for_stdout("done");
    });
    assert_eq!(trace.calls_of("hipMalloc").count(), 50);
    assert_eq!(trace.final_ledger().untraced_processes, 0);
    program.close_stdin();
    program.finish();
}
