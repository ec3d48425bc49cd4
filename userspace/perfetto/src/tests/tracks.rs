use gputrace_timeline::event::{Event, Lifetime, LifetimeChange, ProcessInfo, ThreadInfo};

use super::{call, trace};

fn lifetime(time: u64, pid: u32, tid: u32, what: LifetimeChange) -> Event {
    Event::Lifetime(Lifetime { time, pid, tid, what })
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
            thread.thread.pid(),
            thread.thread.tid(),
            thread.thread.thread_name()
        ),
        (10, 11, "worker")
    );
    let process = &decoded.tracks[&thread.parent_uuid()];
    assert_eq!(
        (process.process.pid(), process.process.process_name()),
        (10, "python3")
    );
    assert_eq!(process.process.cmdline, ["python3", "train.py"]);
    assert_eq!(process.process.start_timestamp_ns(), 5);
}

#[test]
fn lifetimes_are_instants_and_update_names() {
    let decoded = trace(&[
        lifetime(1, 10, 10, LifetimeChange::ProcessStarted { parent: 3 }),
        lifetime(2, 10, 11, LifetimeChange::ThreadStarted),
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
                decoded.tracks[&instant.track].thread.tid(),
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
    assert_eq!(worker.thread.thread_name(), "io");
    assert_eq!(
        decoded.tracks[&worker.parent_uuid()].process.process_name(),
        "app"
    );
}

#[test]
fn a_reused_id_gets_a_track_of_its_own() {
    let on_main = |correlation, begin| {
        let mut call = call(correlation, 0, begin, begin + 5);
        call.tid = call.pid;
        Event::Call(call)
    };
    let decoded = trace(&[
        on_main(1, 10),
        Event::Call(call(2, 0, 11, 12)),
        lifetime(20, 10, 11, LifetimeChange::Exited),
        lifetime(21, 10, 11, LifetimeChange::ThreadStarted),
        Event::Call(call(3, 0, 22, 23)),
        lifetime(30, 10, 10, LifetimeChange::Exited),
        lifetime(40, 10, 10, LifetimeChange::ProcessStarted { parent: 1 }),
        on_main(4, 50),
        Event::Call(call(5, 0, 60, 61)),
    ]);
    let track = |correlation| &decoded.tracks[&decoded.slice(correlation).track];
    let uuids = [1, 2, 3, 4, 5].map(|correlation| track(correlation).uuid());
    for (index, uuid) in uuids.iter().enumerate() {
        assert!(!uuids[..index].contains(uuid));
    }
    let process = |correlation| track(correlation).parent_uuid();
    assert_eq!((process(2), process(3)), (process(1), process(1)));
    assert_ne!(process(4), process(1));
    assert_eq!(process(5), process(4));
}
