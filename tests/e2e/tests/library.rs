//! The library `gputrace`: sessions that follow programs from another program.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "test code outside of #[test] functions"
)]

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    sync::{Arc, Mutex},
    thread,
};

use gputrace::{Builder, Capture, Cause, Domain, Error, Event, Index, Session};
use gputrace_e2e::{
    Bench, Running,
    bench::binary,
    process::{PATIENCE, eventually},
};
use rustix::process::Signal;

/// A session with large rings, so that nothing is lost when it does not get a processor.
fn session() -> Builder {
    let rings = gputrace_e2e::bench::ring_size(64, 1024);
    Session::builder()
        .recorder(binary())
        .domains([Domain::HipRuntime])
        .option(format!("--ring-size={rings}"))
}

/// Calls by thread and name.
type Counts = BTreeMap<(u32, String), usize>;

/// Calls that the programs have logged.
fn logged(bench: &Bench) -> Counts {
    let mut counts = Counts::new();
    for ((_, tid), calls) in &bench.log().threads {
        for call in calls {
            *counts.entry((*tid, call.name.clone())).or_default() += 1;
        }
    }
    counts
}

/// Descriptors of this process, and its threads and children.
fn belongings() -> [usize; 3] {
    let count = |path: &str| fs::read_dir(path).unwrap().count();
    let children = fs::read_dir("/proc/self/task").unwrap().map(|task| {
        // A thread may end meanwhile.
        let children = fs::read_to_string(task.unwrap().path().join("children"));
        children.unwrap_or_default().split_whitespace().count()
    });
    [
        count("/proc/self/fd"),
        count("/proc/self/task"),
        children.sum(),
    ]
}

#[test]
fn every_call_is_delivered_and_accounted_for() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let program = bench.program("hip_calls");
    let mut session = session()
        .launch([
            program.into_os_string(),
            "threads".into(),
            "3".into(),
            "200".into(),
        ])
        .env("WORKLOAD_LOG", bench.logs())
        .start()
        .expect("a session");
    let mut index = Index::default();
    let mut counts = Counts::new();
    let (mut calls, mut last) = (0, None);
    for event in session.events() {
        let event = event.expect("an event");
        index.learn(&event);
        if let Event::Call(call) = &event {
            calls += 1;
            let name = index.call_name(call).to_owned();
            assert!(index.process(call.pid).is_some(), "{call:?}");
            *counts.entry((call.tid, name)).or_default() += 1;
        }
        last = Some(event);
    }
    assert!(matches!(last, Some(Event::End(_))), "{last:?}");
    let finished = session.finish().expect("an orderly end");
    assert!(finished.program.is_some_and(|status| status.success()));
    assert_eq!((finished.capture, finished.outputs.len()), (None, 0));
    let ledger = index.ledger().expect("an account");
    assert!(ledger.complete);
    let row = ledger.calls();
    assert_eq!((row.lost(), row.written + row.unfinished), (0, calls));
    let expected = logged(&bench);
    assert!(expected.values().sum::<usize>() > 1000, "{expected:?}");
    for (call, count) in &expected {
        // The compiler makes calls that are not logged.
        let found = counts.get(call).copied().unwrap_or(0);
        assert!(
            found >= *count || call.1.starts_with("__hip"),
            "{call:?}: {found} of {count}"
        );
    }
}

#[test]
fn a_session_is_paused_resumed_and_stopped_from_another_thread() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let mut program = bench.start(&["hip_calls", "loop", "0"]);
    let mut session = session().attach(program.pid()).start().expect("a session");
    let control = session.control();
    let mut pause: Option<(u64, Option<u64>)> = None;
    let mut begins = Vec::new();
    let mut stopper = None;
    for event in session.events() {
        match event.expect("an event") {
            Event::Call(call) => {
                begins.push(call.begin);
                if begins.len() == 100 {
                    control.pause();
                }
                let resumed = pause.and_then(|(_, to)| to);
                if resumed.is_some_and(|to| call.begin >= to) && stopper.is_none() {
                    let control = control.clone();
                    stopper = Some(thread::spawn(move || control.stop()));
                }
            }
            Event::Notice(notice) if notice.text.contains("period 1 ends") => {
                pause = Some((notice.time, None));
                control.resume();
            }
            Event::Notice(notice) if notice.text.contains("period 2 begins") => {
                pause = pause.map(|(from, _)| (from, Some(notice.time)));
            }
            _ => {}
        }
    }
    // The notices have the times within which all recorded calls began.
    let Some((from, Some(to))) = pause else {
        panic!("{pause:?}");
    };
    let within = begins.iter().filter(|begin| (from..to).contains(begin));
    assert_eq!(within.count(), 0, "of {} in {pause:?}", begins.len());
    stopper.expect("a thread").join().expect("no panic");
    session.finish().expect("an orderly end");
    assert!(program.is_running());
    program.close_stdin();
    program.finish();
}

#[test]
fn sessions_at_the_same_time_leave_nothing_behind_when_dropped() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let mut program = bench.start(&["hip_calls", "loop", "100"]);
    let before = belongings();
    for round in 0..3 {
        let mut sessions: Vec<Session> = (0..3)
            .map(|_| session().attach(program.pid()).start().expect("a session"))
            .collect();
        for session in &mut sessions {
            let is_call = |event: &Result<Event, Error>| matches!(event, Ok(Event::Call(_)));
            assert!(session.events().any(|event| is_call(&event)));
        }
        let lines = sessions[0].control().take_lines();
        assert!(
            lines.iter().any(|line| line.contains("recording")),
            "{lines:?}"
        );
        assert_eq!(belongings()[2], before[2] + 3);
        drop(sessions);
        assert_eq!(belongings(), before, "round {round}");
    }
    program.close_stdin();
    program.finish();
}

#[test]
fn a_killed_program_takes_its_recorder_along() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let mut program = bench.start(&["hip_calls", "loop", "100"]);
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_follower"));
    command.arg(binary()).arg(program.pid().to_string());
    let mut follower = Running::start("a follower", &mut command);
    follower.wait_for_stdout("hipMalloc");
    let children = format!("/proc/{0}/task/{0}/children", follower.pid());
    let recorder: Vec<PathBuf> = fs::read_to_string(children)
        .expect("children")
        .split_whitespace()
        .map(|pid| PathBuf::from(format!("/proc/{pid}")))
        .collect();
    assert_eq!(recorder.len(), 1);
    follower.signal(Signal::KILL);
    follower.wait();
    eventually("the recorder has ended", PATIENCE, || !recorder[0].exists());
    assert!(program.is_running());
    program.close_stdin();
    program.finish();
}

#[test]
fn a_kept_capture_has_the_same_events() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let program = bench.program("hip_calls");
    let mut session = session()
        .launch([program.into_os_string(), "single".into(), "20".into()])
        .env("WORKLOAD_LOG", bench.logs())
        .keep(bench.path(), "kept")
        .format("csv")
        .start()
        .expect("a session");
    let calls = |event: Result<Event, Error>| match event.expect("an event") {
        Event::Call(call) => Some(call),
        _ => None,
    };
    let delivered: Vec<_> = session.events().filter_map(calls).collect();
    let finished = session.finish().expect("an orderly end");
    let path = finished.capture.expect("a capture");
    assert_eq!(path, bench.path().join("kept.gtcap"));
    let names: Vec<_> = finished
        .outputs
        .iter()
        .filter_map(|path| path.file_name()?.to_str())
        .collect();
    assert!(names.contains(&"kept_hip_api_trace.csv"), "{names:?}");
    let capture = Capture::open(&path).expect("a capture");
    assert!(capture.recording().main_pid.is_some());
    let kept: Vec<_> = capture
        .events()
        .expect("events")
        .filter_map(calls)
        .collect();
    assert_eq!(kept, delivered);
    // Borrowed events are the same ones.
    let mut borrowed = 0;
    let mut events = capture.events().expect("events");
    let end = events.each(|event, index| {
        if let Event::Call(call) = event {
            assert_ne!(index.call_name(call), "(unknown function)");
            borrowed += 1;
        }
        std::ops::ControlFlow::Continue(())
    });
    assert!(end.expect("all events").is_continue());
    assert_eq!((borrowed, events.truncation()), (kept.len(), None));
}

#[test]
fn annotations_are_events_and_in_outputs() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let mut program = bench.start(&["hip_calls", "loop", "100"]);
    let mut session = session()
        .attach(program.pid())
        .keep(bench.path(), "kept")
        .format("csv")
        .start()
        .expect("a session");
    let control = session.control();
    let range = control.range("phase, one");
    control.mark("a \"moment\"");
    let mut range = Some(range);
    let mut index = Index::default();
    let mut found = BTreeMap::new();
    for event in session.events() {
        let event = event.expect("an event");
        index.learn(&event);
        let Event::Call(call) = event else { continue };
        if call.pid == std::process::id() {
            let name = index.call_name(&call).to_owned();
            assert!(index.process(call.pid).is_some());
            if found.insert(name, call).is_none() && found.len() == 2 {
                control.stop();
            }
        } else {
            drop(range.take());
        }
    }
    session.finish().expect("an orderly end");
    program.close_stdin();
    program.finish();
    let mark = &found["a \"moment\""];
    let range = &found["phase, one"];
    assert!(mark.begin == mark.end && range.begin <= mark.begin && mark.end <= range.end);
    assert_ne!(mark.correlation, range.correlation);
    let csv = fs::read_to_string(bench.path().join("kept_marker_api_trace.csv"));
    let csv = csv.expect("markers");
    assert!(
        csv.contains("phase, one") && csv.contains("moment"),
        "{csv}"
    );
}

#[test]
fn a_flush_waits_until_calls_are_delivered() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let mut program = bench.start(&["hip_calls", "loop", "2000"]);
    let mut session = session().attach(program.pid()).start().expect("a session");
    let started = gputrace_e2e::process::now();
    let control = session.control();
    let taken = Arc::new(Mutex::new(Vec::new()));
    let taking = {
        let taken = Arc::clone(&taken);
        thread::spawn(move || {
            for event in session.events() {
                if let Event::Call(call) = event.expect("an event") {
                    taken.lock().unwrap().push((call.begin, call.end));
                }
            }
            session.finish()
        })
    };
    bench.wait_for_calls(&[program.pid()], 200);
    let until = gputrace_e2e::process::now();
    assert!(control.flush(PATIENCE));
    // A call began no earlier, and ended no later, than its program logged.
    let delivered = taken.lock().unwrap().clone();
    let delivered = delivered
        .iter()
        .filter(|(begin, end)| *begin >= started && *end <= until);
    let delivered = delivered.count();
    control.stop();
    taking.join().expect("no panic").expect("an orderly end");
    assert!(!control.flush(PATIENCE), "the recording is over");
    program.close_stdin();
    program.finish();
    let log = bench.log();
    let calls = log.threads.values().flatten();
    let logged =
        calls.filter(|call| call.begin >= started && call.end.is_some_and(|end| end <= until));
    let logged = logged.count();
    assert!(
        logged >= 100 && delivered >= logged,
        "{delivered} of {logged}"
    );
}

#[test]
fn what_cannot_be_recorded_is_a_typed_error() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let before = belongings();
    let refused = |builder: Builder| match builder.start() {
        Err(Error::Refused { cause, text }) => (cause, text),
        other => panic!("{other:?}"),
    };
    let (cause, text) = refused(session().attach(u32::MAX >> 1));
    assert_eq!(cause, Cause::NoTarget, "{text}");
    let (cause, text) = refused(session().attach(std::process::id()));
    assert_eq!(cause, Cause::NoRocm, "{text}");
    let (cause, text) = refused(session().launch([bench.path().join("missing")]));
    assert_eq!(cause, Cause::NoTarget, "{text}");
    let (cause, text) = refused(session().node().option("--functions=hip.*"));
    assert_eq!(cause, Cause::Usage, "{text}");
    let (cause, _) = refused(session().node().option("--no-such-option"));
    assert_eq!(cause, Cause::Usage);
    let missing = session().recorder(bench.path().join("missing")).start();
    assert!(matches!(missing, Err(Error::Start { .. })), "{missing:?}");
    let silent = session().recorder("/bin/false").start();
    assert!(matches!(silent, Err(Error::Died { .. })), "{silent:?}");
    assert_eq!(belongings(), before);
}

#[test]
fn a_tool_in_c_gets_every_call_with_its_arguments() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let tool = gputrace_e2e::sample::compile("api_callbacks", bench.path());
    let mut program = bench.start(&["hip_calls", "loop", "0"]);
    let mut path = binary().parent().unwrap().as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let mut command = std::process::Command::new(tool);
    command
        .arg(program.pid().to_string())
        .args(["--max-events=2000", "--ring-size=16MiB"])
        .env("PATH", path);
    let mut tool = Running::start("a tool", &mut command);
    tool.finish();
    let text = tool.stdout();
    let tid = format!("{} ", program.pid());
    let names: BTreeMap<&str, usize> = text.lines().fold(BTreeMap::new(), |mut names, line| {
        assert!(line.starts_with(&tid) && line.contains(") = "), "{line}");
        let name = line
            .split(" ns ")
            .nth(1)
            .and_then(|rest| rest.split('(').next());
        *names.entry(name.unwrap_or_default()).or_default() += 1;
        names
    });
    assert!(text.lines().count() >= 2000, "{}", text.lines().count());
    assert!(names.contains_key("hipMalloc"), "{names:?}");
    assert!(text.contains("sizeBytes=64, kind=hipMemcpyHostToDevice, stream=0x0) = "));
    program.close_stdin();
    program.finish();
    let logged = logged(&bench);
    for name in names.keys().filter(|name| !name.starts_with("__hip")) {
        assert!(logged.keys().any(|(_, known)| known == name), "{name}");
    }
}
