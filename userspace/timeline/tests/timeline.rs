//! Reads captures whose truth is known.

#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{collections::HashMap, io::Cursor};

use gputrace_abi::{domain::Domain, record::task_op as op};
use gputrace_capture::{
    CaptureReader, Meta, ReadError, Truncation,
    identity::{Container, Identity},
    ledger::Ledger,
    meta::{self, ClockSnapshot, End, Epoch, Notice, Recording},
};
use gputrace_timeline::{
    Tally, Timeline,
    event::{Call, CallEnd, Event, Lifetime, LifetimeChange, ProcessInfo, ThreadInfo},
    synthetic::{self, Synthetic, call, ledger},
};
use proptest::prelude::*;

fn read(bytes: Vec<u8>) -> (Vec<Event>, Tally, Option<Truncation>) {
    let mut timeline = Timeline::new(CaptureReader::new(Cursor::new(bytes)).unwrap()).unwrap();
    let events = timeline.by_ref().collect::<Result<Vec<_>, _>>().unwrap();
    (events, timeline.tally().clone(), timeline.truncation())
}

fn calls(events: &[Event]) -> Vec<Call> {
    let calls = events.iter().filter_map(|event| match event {
        Event::Call(call) => Some(call.clone()),
        _ => None,
    });
    calls.collect()
}

fn notices(events: &[Event]) -> Vec<&str> {
    let texts = events.iter().filter_map(|event| match event {
        Event::Notice(notice) => Some(notice.text.as_str()),
        _ => None,
    });
    texts.collect()
}

fn epoch(time: u64) -> Meta {
    Meta::Epoch(Epoch { time })
}

#[test]
fn an_orderly_capture_gives_its_events_in_order() {
    let recording = Recording {
        hostname: "node".to_owned(),
        cpus: 2,
        ..Recording::default()
    };
    let outer = Call {
        cpu: 1,
        stack: [9, 8, 7, 6, 5, 4, 3, 2],
        how: CallEnd::Returned(100),
        ..call(1, 100, 200)
    };
    let inner = Call {
        depth: 1,
        parent: 1,
        function: 1,
        ..call(2, 110, 120)
    };
    let twin = Call {
        depth: 1,
        parent: 1,
        begin: 100,
        end: 105,
        stack_readable: false,
        ..call(3, 0, 0)
    };
    let open = Call {
        how: CallEnd::RecordingStopped,
        ..call(4, 250, 400)
    };
    let all = [outer.clone(), inner.clone(), twin.clone(), open.clone()];
    let ledger = ledger(&all, &[]);
    let end = End {
        time: 400,
        ..End::default()
    };
    let clocks = ClockSnapshot {
        boottime: 5,
        ..ClockSnapshot::default()
    };

    let mut capture = Synthetic::new(&recording);
    capture
        .library(
            "/opt/rocm/lib/libamdhip64.so",
            &[
                ("hipMalloc", Domain::HipRuntime),
                ("hsa_init", Domain::HsaCore),
            ],
        )
        .meta(clocks)
        .call(&inner)
        .call(&twin)
        .call(&outer)
        .meta(epoch(300))
        .call(&open)
        .meta(ledger.clone())
        .meta(end.clone());
    let (events, tally, truncation) = read(capture.bytes());

    assert_eq!(truncation, None);
    assert_eq!(events[0], Event::Recording(Box::new(recording)));
    let Event::Function(function) = &events[1] else {
        panic!("{:?}", events[1])
    };
    assert_eq!(
        (function.function.name.as_str(), function.domain),
        ("hipMalloc", Some(Domain::HipRuntime))
    );
    assert_eq!(function.library, "/opt/rocm/lib/libamdhip64.so");
    assert_eq!(events[3], Event::Clocks(clocks));
    assert_eq!(calls(&events), [outer, twin, inner, open]);
    assert_eq!(
        events[events.len() - 2..],
        [Event::Ledger(Box::new(ledger.clone())), Event::End(end)]
    );
    assert_eq!(notices(&events), [""; 0]);
    assert!(tally.agrees(&ledger));
}

#[test]
fn processes_are_followed() {
    let identity = Identity {
        title: "train".to_owned(),
        uid: Some(1000),
        namespace_pid: Some(3),
        container: Some(Container {
            runtime: "docker".to_owned(),
            id: "box".to_owned(),
        }),
        ..Identity::default()
    };
    let described = meta::Process {
        pid: 100,
        parent: 1,
        start: 5,
        name: "train".to_owned(),
        executable: "/usr/bin/train".to_owned(),
        command: vec!["train".to_owned(), "--fast".to_owned()],
        threads: vec![meta::Thread {
            tid: 100,
            name: "train".to_owned(),
        }],
        identity: identity.clone(),
    };
    let mut capture = Synthetic::new(&Recording::default());
    capture
        .meta(described)
        // Out of order, as from several rings.
        .task(op::EXEC, 30, 200, 200, 200, b"worker\xff")
        .task(op::FORK, 20, 200, 200, 100, b"train")
        .call(&Call {
            pid: 200,
            tid: 200,
            ..call(1, 25, 26)
        })
        .task(op::THREAD, 40, 200, 201, 200, b"worker")
        .task(op::RENAME, 50, 200, 201, 0, b"pool-0")
        .task(op::LINKER, 55, 200, 201, 0, b"")
        .task(op::EXIT, 60, 200, 201, 0, b"")
        .task(99, 70, 200, 201, 0, b"");
    let (events, tally, _) = read(capture.bytes());

    let main = ProcessInfo {
        pid: 100,
        parent: 1,
        name: "train".to_owned(),
        executable: "/usr/bin/train".to_owned(),
        command: vec!["train".to_owned(), "--fast".to_owned()],
        start: 5,
        identity,
    };
    let process = |info: &ProcessInfo| Event::Process(Box::new(info.clone()));
    let thread = |pid, tid, name: &str| {
        Event::Thread(ThreadInfo {
            pid,
            tid,
            name: name.to_owned(),
        })
    };
    let lifetime = |time, tid, what| {
        Event::Lifetime(Lifetime {
            time,
            pid: 200,
            tid,
            what,
        })
    };
    let worker = "worker\u{fffd}".to_owned();
    let child = ProcessInfo {
        pid: 200,
        parent: 100,
        start: 20,
        // Its id in the container is another.
        identity: main.identity.clone().of_child(),
        ..main.clone()
    };
    let executed = ProcessInfo {
        pid: 200,
        parent: 100,
        start: 20,
        name: worker.clone(),
        executable: String::new(),
        command: Vec::new(),
        // Only the container is sure to be the same.
        identity: Identity {
            container: main.identity.container.clone(),
            ..Identity::default()
        },
    };
    let expected = [
        process(&main),
        thread(100, 100, "train"),
        process(&child),
        thread(200, 200, "train"),
        lifetime(20, 200, LifetimeChange::ProcessStarted { parent: 100 }),
        Event::Call(Call {
            pid: 200,
            tid: 200,
            ..call(1, 25, 26)
        }),
        process(&executed),
        thread(200, 200, &worker),
        lifetime(30, 200, LifetimeChange::Executed { name: worker }),
        thread(200, 201, "worker"),
        lifetime(40, 201, LifetimeChange::ThreadStarted { creator: 200 }),
        thread(200, 201, "pool-0"),
        lifetime(
            50,
            201,
            LifetimeChange::Renamed {
                name: "pool-0".to_owned(),
            },
        ),
        lifetime(60, 201, LifetimeChange::Exited),
    ];
    assert_eq!(events[1..=expected.len()], expected);
    assert_eq!((tally.tasks, tally.unknown_records), (7, 1));
}

#[test]
fn a_killed_recording_says_so_and_gives_the_last_account() {
    let mut capture = Synthetic::new(&Recording::default());
    let early = Ledger {
        complete: false,
        time: 7,
        ..ledger(&[call(1, 1, 2)], &[])
    };
    capture
        .call(&call(1, 1, 2))
        .meta(early.clone())
        .call(&call(2, 3, 4));
    let bytes = capture.bytes();

    let (events, _, truncation) = read(bytes.clone());
    assert_eq!(truncation, None);
    assert_eq!(calls(&events).len(), 2);
    assert!(notices(&events)[0].contains("no end mark"), "{events:?}");
    assert_eq!(events.last(), Some(&Event::Ledger(Box::new(early.clone()))));

    let (events, _, truncation) = read(bytes[..bytes.len() - 1].to_vec());
    assert_eq!(truncation.unwrap().bytes_after, 24 + 112 - 1);
    assert_eq!(calls(&events), [call(1, 1, 2)]);
    let notice = notices(&events)[0];
    assert!(notice.contains("the last 135 bytes were not"), "{notice}");
    assert_eq!(events.last(), Some(&Event::Ledger(Box::new(early))));
}

#[test]
fn nonsense_is_counted_and_reported_and_the_rest_is_read() {
    let mut capture = Synthetic::new(&Recording::default());
    let mut unknown = synthetic::call_record(&call(1, 1, 2));
    unknown[2] = 200;
    let mut malformed = synthetic::call_record(&call(1, 1, 2));
    malformed[3] = 32;
    malformed[3] = gputrace_abi::domain::DOMAINS as u8;
    capture
        .raw(&unknown)
        .raw(&malformed)
        .raw(&malformed)
        .call(&call(9, 5, 3));
    capture.meta(ledger(&[], &[])).meta(End::default());
    let (events, tally, _) = read(capture.bytes());
    assert_eq!(calls(&events), [call(9, 5, 5)]);
    assert_eq!(
        (
            tally.unknown_records,
            tally.malformed_records,
            tally.adjusted_ends
        ),
        (1, 2, 1)
    );
    let notices = notices(&events);
    assert_eq!(notices.len(), 4, "{notices:?}");
    assert!(notices[3].contains(
        "holds 1 finished and 0 unfinished calls and records, but its account says 0 and 0"
    ));
}

#[test]
fn a_capture_without_description_is_refused() {
    let whole = Synthetic::new(&Recording::default()).bytes();
    for length in [24, 30, whole.len() - 1] {
        let error =
            Timeline::new(CaptureReader::new(Cursor::new(whole[..length].to_vec())).unwrap())
                .unwrap_err();
        assert!(matches!(error, ReadError::NoRecording), "{error}");
    }
}

#[test]
fn notices_of_the_recorder_pass_through() {
    let notice = Notice {
        time: 3,
        text: "libhsa was replaced on disk".to_owned(),
    };
    let (events, ..) = read(
        Synthetic::new(&Recording::default())
            .meta(notice.clone())
            .bytes(),
    );
    assert_eq!(events[1], Event::Notice(notice));
}

/// One step of a simulated thread: after some time, on some CPU, it calls a function or returns
/// from one.
#[derive(Clone, Debug)]
struct Step {
    thread: u32,
    enter: bool,
    pause: u64,
    cpu: u32,
}

const CPUS: u32 = 4;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step =
        (0u32..3, any::<bool>(), 0u64..30, 0..CPUS).prop_map(|(thread, enter, pause, cpu)| Step {
            thread,
            enter,
            pause,
            cpu,
        });
    proptest::collection::vec(step, 0..200)
}

/// Calls with the CPU on which each ended, in order of their ends; unended calls have `None`.
fn simulate(steps: &[Step]) -> Vec<(Call, Option<u32>)> {
    let mut now = 1000;
    let mut open: HashMap<u32, Vec<Call>> = HashMap::new();
    let mut done = Vec::new();
    for (step, correlation) in steps.iter().zip(1..) {
        now += step.pause;
        let stack = open.entry(step.thread).or_default();
        if step.enter {
            let parent = stack.last().map_or(0, |call: &Call| call.correlation);
            let tid = 100 + step.thread;
            let depth = stack.len() as u16;
            stack.push(Call {
                tid,
                depth,
                parent,
                cpu: step.cpu,
                ..call(correlation, now, now)
            });
        } else if let Some(call) = stack.pop() {
            done.push((Call { end: now, ..call }, Some(step.cpu)));
        }
    }
    let left = open.into_values().flatten();
    done.extend(left.map(|call| {
        (
            Call {
                end: now,
                how: CallEnd::RecordingStopped,
                ..call
            },
            None,
        )
    }));
    done
}

proptest! {
    #[test]
    fn every_call_once_and_each_thread_in_order(steps in steps(), period in 1u64..300, slowness in 0u64..60) {
        let truth = simulate(&steps);
        let last = truth.iter().map(|(call, _)| call.end).max().unwrap_or(0);
        // Rings are drained one after the other, each `slowness` later than the one before, so that
        // later rings hold records from after the beginning of the round.
        let mut capture = Synthetic::new(&Recording::default());
        let mut drained = vec![false; truth.len()];
        let mut round = 1000;
        while round <= last + period {
            for cpu in 0..CPUS {
                let moment = round + u64::from(cpu) * slowness;
                for ((call, ended_on), drained) in truth.iter().zip(&mut drained) {
                    if !*drained && *ended_on == Some(cpu) && call.end <= moment {
                        *drained = true;
                        capture.call(call);
                    }
                }
            }
            capture.meta(epoch(round));
            round += period.max(u64::from(CPUS) * slowness);
        }
        for ((call, _), _) in truth.iter().zip(drained).filter(|(_, drained)| !drained) {
            capture.call(call);
        }
        let (events, tally, _) = read(capture.bytes());
        let read = calls(&events);

        let mut expected: Vec<Call> = truth.into_iter().map(|(call, _)| call).collect();
        prop_assert!(tally.agrees(&ledger(&expected, &[])));
        let mut sorted = read.clone();
        sorted.sort_by_key(|call| call.correlation);
        expected.sort_by_key(|call| call.correlation);
        prop_assert_eq!(sorted, expected);

        // Of two calls of one thread, neither of which encloses the other, the earlier comes first.
        // An enclosing call comes later only if it ended later.
        for (index, later) in read.iter().enumerate() {
            for earlier in read[..index].iter().filter(|call| call.tid == later.tid) {
                let encloses = later.begin <= earlier.begin && later.end >= earlier.end && later.depth < earlier.depth;
                prop_assert!(
                    encloses || (earlier.begin, earlier.depth) <= (later.begin, later.depth),
                    "{earlier:?} before {later:?}"
                );
            }
        }
    }

    #[test]
    fn damaged_captures_never_panic(at in 0usize..2000, byte in any::<u8>(), cut in 0usize..4000) {
        let mut capture = Synthetic::new(&Recording::default());
        for number in 1..10 {
            capture.call(&call(number, number, number + 1)).task(op::FORK, number, 7, 7, 6, b"x").meta(epoch(number));
        }
        let mut bytes = capture.bytes();
        if let Some(hit) = bytes.get_mut(at) {
            *hit = byte;
        }
        bytes.truncate(cut);
        if let Ok(reader) = CaptureReader::new(Cursor::new(bytes))
            && let Ok(timeline) = Timeline::new(reader)
        {
            for event in timeline {
                event.unwrap();
            }
        }
    }

    #[test]
    fn arbitrary_records_never_panic(
        records in proptest::collection::vec((proptest::collection::vec(any::<u8>(), 0..200), 0u8..6), 0..20),
    ) {
        let mut capture = Synthetic::new(&Recording::default());
        for (body, kind) in records {
            let mut record = ((body.len() + 4) as u16).to_le_bytes().to_vec();
            record.extend([kind, 0]);
            record.extend(body);
            if record.len() >= 8 {
                capture.raw(&record);
            }
        }
        let (events, tally, _) = read(capture.bytes());
        let total = tally.total();
        prop_assert_eq!(calls(&events).len() as u64, total.finished + total.unfinished);
    }
}
