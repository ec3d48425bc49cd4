use gputrace_abi::domain::Domain;
use gputrace_capture::identity::Rank;
use gputrace_timeline::event::{
    Event, Lifetime, LifetimeChange, ProcessInfo, RangeKind, ThreadInfo,
};

use super::{call, function, protos::TrackDescriptor, trace};

fn lifetime(time: u64, pid: u32, tid: u32, what: LifetimeChange) -> Event {
    Event::Lifetime(Lifetime {
        time,
        pid,
        tid,
        what,
    })
}

#[test]
fn processes_and_threads_have_named_tracks() {
    let decoded = trace(&[
        Event::Process(Box::new(ProcessInfo {
            pid: 10,
            parent: 1,
            name: "python3".to_owned(),
            executable: "/usr/bin/python3.11".to_owned(),
            command: vec!["python3".to_owned(), "train.py".to_owned()],
            start: 5,
            ..ProcessInfo::default()
        })),
        Event::Thread(ThreadInfo {
            pid: 10,
            tid: 11,
            name: "worker".to_owned(),
        }),
        Event::Call(call(1, 0, 10, 20)),
    ]);
    let thread = &decoded.tracks[&decoded.slice(1).track];
    assert_eq!(
        (
            thread.thread.as_ref().unwrap().pid(),
            thread.tid(),
            thread.thread_name()
        ),
        (10, 11, "worker")
    );
    let process = &decoded.tracks[&thread.parent_uuid()];
    assert_eq!((process.pid(), process.process_name()), (10, "python3"));
    assert_eq!(
        process.process.as_ref().unwrap().cmdline,
        ["python3", "train.py"]
    );
    assert_eq!(process.process.as_ref().unwrap().start_timestamp_ns(), 5);
}

#[test]
fn lifetimes_are_instants_and_update_names() {
    let decoded = trace(&[
        lifetime(1, 10, 10, LifetimeChange::ProcessStarted { parent: 3 }),
        lifetime(2, 10, 11, LifetimeChange::ThreadStarted { creator: 10 }),
        Event::Call(call(1, 0, 3, 4)),
        lifetime(
            5,
            10,
            11,
            LifetimeChange::Renamed {
                name: "io".to_owned(),
            },
        ),
        lifetime(6, 10, 11, LifetimeChange::Exited),
        lifetime(
            7,
            10,
            10,
            LifetimeChange::Executed {
                name: "app".to_owned(),
            },
        ),
    ]);
    let shown: Vec<(u64, i32, &str)> = decoded
        .instants_of("lifetime")
        .into_iter()
        .map(|instant| {
            (
                instant.begin,
                decoded.tracks[&instant.track].tid(),
                instant.name.as_str(),
            )
        })
        .collect();
    assert_eq!(
        shown,
        [
            (1, 10, "process started"),
            (2, 11, "thread started"),
            (5, 11, "renamed to io"),
            (6, 11, "exited"),
            (7, 10, "executed app"),
        ]
    );
    assert_eq!(decoded.instant("process started").note("parent"), "3");
    let worker = &decoded.tracks[&decoded.slice(1).track];
    assert_eq!(worker.thread_name(), "io");
}

fn process(pid: u32, name: &str) -> Event {
    Event::Process(Box::new(ProcessInfo {
        pid,
        name: name.to_owned(),
        ..ProcessInfo::default()
    }))
}

fn thread(pid: u32, tid: u32, name: &str) -> Event {
    Event::Thread(ThreadInfo {
        pid,
        tid,
        name: name.to_owned(),
    })
}

fn main_thread_call(correlation: u64, begin: u64) -> Event {
    let mut call = call(correlation, 0, begin, begin + 5);
    call.tid = call.pid;
    Event::Call(call)
}

#[test]
fn a_process_says_whose_it_is() {
    let mut info = ProcessInfo {
        pid: 10,
        name: "python3.12".to_owned(),
        ..ProcessInfo::default()
    };
    info.identity.title = "python train.py".to_owned();
    info.identity.user = "alice".to_owned();
    info.identity.rank = Some(Rank {
        rank: 3,
        size: Some(8),
        ..Rank::default()
    });
    let decoded = trace(&[Event::Process(Box::new(info)), main_thread_call(1, 10)]);
    let thread = &decoded.tracks[&decoded.slice(1).track];
    let process = &decoded.tracks[&thread.parent_uuid()];
    assert_eq!(process.process_name(), "python train.py");
    let labels = &process.process.as_ref().unwrap().process_labels;
    assert_eq!(*labels, ["rank 3 of 8", "user alice"]);
}

/// Names of the process and of the thread on whose track a call is, and that track's uuid.
fn place(decoded: &super::Decoded, correlation: u64) -> (&str, &str, u64) {
    let thread = &decoded.tracks[&decoded.slice(correlation).track];
    let process = &decoded.tracks[&thread.parent_uuid()];
    (process.process_name(), thread.thread_name(), thread.uuid())
}

#[test]
fn a_reused_id_gets_a_track_of_its_own() {
    let decoded = trace(&[
        process(10, "first"),
        thread(10, 11, "old"),
        main_thread_call(1, 10),
        Event::Call(call(2, 0, 11, 12)),
        lifetime(20, 10, 11, LifetimeChange::Exited),
        // The new name comes before the event that it belongs to.
        thread(10, 11, "new"),
        lifetime(21, 10, 11, LifetimeChange::ThreadStarted { creator: 10 }),
        Event::Call(call(3, 0, 22, 23)),
        lifetime(30, 10, 10, LifetimeChange::Exited),
        process(10, "second"),
        thread(10, 10, "second"),
        lifetime(40, 10, 10, LifetimeChange::ProcessStarted { parent: 1 }),
        main_thread_call(4, 50),
        Event::Call(call(5, 0, 60, 61)),
    ]);
    let places = [1, 2, 3, 4, 5].map(|correlation| place(&decoded, correlation));
    let names = places.map(|(process, thread, _)| (process, thread));
    assert_eq!(
        names,
        [
            ("first", ""),
            ("first", "old"),
            ("first", "new"),
            ("second", "second"),
            ("second", "")
        ]
    );
    for (index, (.., uuid)) in places.iter().enumerate() {
        assert!(places[..index].iter().all(|(.., other)| other != uuid));
    }
}

#[test]
fn another_program_gets_a_track_of_its_own_if_the_first_drew_anything() {
    // As in the kernel: the new name comes first, then the event that it belongs to.
    let exec = |time| {
        let app = || "app".to_owned();
        [
            process(10, "app"),
            thread(10, 10, "app"),
            lifetime(time - 1, 10, 10, LifetimeChange::Renamed { name: app() }),
            process(10, "app"),
            thread(10, 10, "app"),
            lifetime(time, 10, 10, LifetimeChange::Executed { name: app() }),
        ]
    };
    let mut events = vec![
        process(10, "sh"),
        thread(10, 10, "sh"),
        main_thread_call(1, 10),
    ];
    events.extend(exec(20));
    events.push(main_thread_call(2, 30));
    let decoded = trace(&events);
    let (before, after) = (place(&decoded, 1), place(&decoded, 2));
    assert_eq!((before.0, before.1), ("sh", "sh"));
    assert_eq!((after.0, after.1), ("app", "app"));
    assert_eq!(decoded.instant("renamed to app").track, before.2);
    assert_eq!(decoded.instant("executed app").track, after.2);

    let mut events = vec![process(10, "sh")];
    events.extend(exec(20));
    events.push(main_thread_call(1, 30));
    let decoded = trace(&events);
    assert_eq!(place(&decoded, 1).0, "app");
    let processes: Vec<&str> = decoded
        .tracks
        .values()
        .filter(|track| track.process.is_some())
        .map(TrackDescriptor::process_name)
        .collect();
    assert_eq!(processes, ["app"]);
}

#[test]
fn ranges_of_the_next_program_have_tracks_of_their_own() {
    let range = |correlation: u64, begin: u64| {
        let mut call = call(correlation, 0, begin, begin + 5);
        call.function = 1;
        Event::Call(call)
    };
    let Event::Function(mut text) = function(1, "epoch", Domain::MarkerCore, &[]) else {
        panic!("not a function");
    };
    text.range = Some(RangeKind::Free);
    let app = || "app".to_owned();
    // Both programs have overlapping ranges, which need two tracks each.
    let decoded = trace(&[
        Event::Function(text),
        process(10, "sh"),
        range(1, 10),
        range(2, 12),
        process(10, "app"),
        lifetime(20, 10, 10, LifetimeChange::Executed { name: app() }),
        range(3, 30),
        range(4, 32),
    ]);
    let places = [1, 2, 3, 4].map(|correlation| {
        let track = &decoded.tracks[&decoded.slice(correlation).track];
        assert_eq!(track.name(), "ROCTx ranges");
        let process = &decoded.tracks[&track.parent_uuid()];
        (process.process_name(), track.uuid())
    });
    assert_eq!(places.map(|(name, _)| name), ["sh", "sh", "app", "app"]);
    for (index, (_, uuid)) in places.iter().enumerate() {
        assert!(places[..index].iter().all(|(_, other)| other != uuid));
    }
}

#[test]
fn a_process_without_events_is_described_too() {
    let decoded = trace(&[process(10, "idle"), thread(10, 12, "waiter")]);
    let named = |name: &str| {
        decoded
            .tracks
            .values()
            .filter(|track| track.process_name() == name)
            .count()
    };
    assert_eq!(named("idle"), 1);
    assert!(
        decoded
            .tracks
            .values()
            .any(|track| track.thread_name() == "waiter")
    );
}
