//! Streams of synthetic calls and work.

use gputrace_capture::meta::{ArgSlot, Function as Described, Parameter, ValueKind};

use super::*;
use crate::{
    model::{
        gpu::{Copy, Origin},
        values::{Pointee, PointeeData},
    },
    synthetic,
};

const PID: u32 = 100;
const CREATE: u32 = 1;
const LAUNCH: u32 = 2;
const DESTROY: u32 = 3;
const OWN: u32 = 4;
const OWN_ONLY: u32 = 5;

/// Streams whose functions are known.
fn streams() -> Streams {
    let mut streams = Streams::default();
    for (id, name, c_type, at) in [
        (
            CREATE,
            "hipStreamCreate",
            "hipStream_t *",
            ArgSlot::Register(0),
        ),
        (LAUNCH, "hipLaunchKernel", "hipStream_t", ArgSlot::Stack(1)),
        (
            DESTROY,
            "hipStreamDestroy",
            "hipStream_t",
            ArgSlot::Register(0),
        ),
        (
            OWN,
            "hipLaunchKernel_spt",
            "hipStream_t",
            ArgSlot::Register(0),
        ),
        (OWN_ONLY, "hipMemcpy_spt", "size_t", ArgSlot::Register(0)),
    ] {
        let mut info = FunctionInfo::named(id, name, None);
        info.function = Described {
            parameters: Some(vec![Parameter {
                name: "stream".to_owned(),
                c_type: c_type.to_owned(),
                kind: ValueKind::Pointer,
                at,
                ..Parameter::default()
            }]),
            ..info.function
        };
        streams.seen(&mut Event::Function(Box::new(info)));
    }
    streams
}

fn call(function: u32, handle: u64, begin: u64) -> Call {
    let mut call = Call {
        function,
        args: [handle, 0, 0, 0, 0, 0],
        ..synthetic::call(begin, begin, begin + 5)
    };
    match function {
        CREATE => {
            call.args[0] = 0x7ffe_0000;
            call.pointees.push(Pointee {
                word: 0,
                at_return: true,
                data: PointeeData::Bytes(handle.to_le_bytes().into()),
            });
        }
        LAUNCH => (call.args[0], call.stack[1]) = (0, handle),
        _ => {}
    }
    call
}

fn work(tid: u32, handle: u64, time: u64) -> Event {
    Event::Copy(Box::new(Copy {
        origin: Origin {
            pid: PID,
            tid,
            time,
            stream: Some(handle),
            ..Origin::default()
        },
        ..Copy::default()
    }))
}

fn lifetime(what: LifetimeChange, tid: u32, time: u64) -> Event {
    let pid = PID;
    Event::Lifetime(Lifetime {
        time,
        pid,
        tid,
        what,
    })
}

/// What is announced when these are seen: handle and since when.
fn announced(events: impl IntoIterator<Item = Event>) -> Vec<(u64, u64)> {
    let mut streams = streams();
    for mut event in events {
        streams.seen(&mut event);
    }
    let new: Vec<StreamInfo> = std::iter::from_fn(|| match streams.next()? {
        Event::Stream(stream) => Some(stream),
        other => panic!("{other:?}"),
    })
    .collect();
    let numbers: Vec<u32> = new.iter().map(|stream| stream.number).collect();
    assert!(numbers.into_iter().eq(1..=new.len() as u32));
    new.iter()
        .map(|stream| (stream.key.handle, stream.since))
        .collect()
}

#[test]
fn a_stream_that_is_created_is_a_new_one() {
    let used = |handle, begin| {
        [
            Event::Call(call(CREATE, handle, begin)),
            Event::Call(call(LAUNCH, handle, begin + 10)),
            Event::Call(call(DESTROY, handle, begin + 20)),
        ]
    };
    let events = [used(0xa0, 100), used(0xa0, 200), used(0xb0, 300)];
    let mut events: Vec<Event> = events.into_iter().flatten().collect();
    // Work comes late.
    events.extend([112, 212, 312].map(|time| work(1, if time < 300 { 0xa0 } else { 0xb0 }, time)));
    assert_eq!(announced(events), [(0xa0, 105), (0xa0, 205), (0xb0, 305)]);
    // Its end was not seen.
    let created = [100, 200].map(|begin| Event::Call(call(CREATE, 0xa0, begin)));
    assert_eq!(announced(created), [(0xa0, 105), (0xa0, 205)]);
}

#[test]
fn what_failed_creates_and_destroys_nothing() {
    let failed = |function, begin| {
        Event::Call(Call {
            how: CallEnd::Returned(1),
            ..call(function, 0xa0, begin)
        })
    };
    let launched = |begin| Event::Call(call(LAUNCH, 0xa0, begin));
    let events = [
        launched(10),
        failed(CREATE, 20),
        failed(DESTROY, 30),
        launched(40),
    ];
    assert_eq!(announced(events), [(0xa0, 0)]);
    let unreadable = Call {
        stack_readable: false,
        ..call(LAUNCH, 0xa0, 10)
    };
    assert_eq!(announced([Event::Call(unreadable)]), []);
}

#[test]
fn a_stream_known_by_use_only_ends_when_it_is_destroyed() {
    let events = [
        Event::Call(call(LAUNCH, 0xa0, 10)),
        Event::Call(call(DESTROY, 0xa0, 20)),
        // Created by a call that is not recorded.
        Event::Call(call(LAUNCH, 0xa0, 30)),
        work(1, 0xa0, 12),
        work(1, 0xa0, 22),
        work(1, 0xa0, 32),
    ];
    assert_eq!(announced(events), [(0xa0, 0), (0xa0, 25)]);
    // Destroyed by one thread while another one already has the new one.
    let slow = Call {
        end: 60,
        ..call(DESTROY, 0xa0, 20)
    };
    let events = [
        Event::Call(call(LAUNCH, 0xa0, 10)),
        Event::Call(slow),
        Event::Call(call(CREATE, 0xa0, 30)),
        Event::Call(call(LAUNCH, 0xa0, 40)),
        work(1, 0xa0, 70),
    ];
    assert_eq!(announced(events), [(0xa0, 0), (0xa0, 35)]);
    // The work came before the call that had created its stream.
    let events = [
        work(1, 0xa0, 50),
        Event::Call(call(CREATE, 0xa0, 30)),
        Event::Call(call(LAUNCH, 0xa0, 40)),
    ];
    assert_eq!(announced(events), [(0xa0, 0)]);
}

#[test]
fn null_streams_are_none_and_each_thread_has_its_own() {
    let launch = |tid, handle, begin| {
        Event::Call(Call {
            tid,
            ..call(LAUNCH, handle, begin)
        })
    };
    let events = [
        launch(1, 0, 10),
        launch(1, 1, 20),
        launch(1, 2, 30),
        launch(2, 2, 40),
        work(2, 2, 41),
        launch(1, 2, 50),
    ];
    assert_eq!(announced(events), [(2, 0), (2, 0)]);
    let events = [
        launch(7, 2, 10),
        launch(8, 2, 11),
        lifetime(LifetimeChange::ThreadStarted { creator: 1 }, 7, 20),
        launch(7, 2, 30),
        launch(8, 2, 31),
    ];
    assert_eq!(announced(events), [(2, 0), (2, 0), (2, 20)]);
}

#[test]
fn another_program_in_the_process_begins_anew() {
    let name = String::new();
    let events = [
        Event::Call(call(CREATE, 0xa0, 10)),
        Event::Call(call(LAUNCH, 0xb0, 20)),
        lifetime(LifetimeChange::Executed { name }, PID, 50),
        Event::Call(call(CREATE, 0xa0, 60)),
        Event::Call(call(LAUNCH, 0xb0, 70)),
        // Of the program before.
        work(1, 0xa0, 40),
        work(1, 0xb0, 40),
    ];
    let expected = [(0xa0, 15), (0xb0, 0), (0xa0, 65), (0xb0, 50)];
    assert_eq!(announced(events), expected);
}

#[test]
fn the_null_stream_of_some_functions_is_the_threads_own() {
    let mut streams = streams();
    let mut stream_of = |function, handle, begin, given| {
        let call = call(function, handle, begin);
        let correlation = call.correlation;
        streams.seen(&mut Event::Call(call));
        let mut work = Event::Copy(Box::new(Copy {
            origin: Origin {
                pid: PID,
                tid: PID,
                time: begin + 1,
                stream: given,
                outermost: correlation,
                innermost: correlation + 1,
                ..Origin::default()
            },
            ..Copy::default()
        }));
        streams.seen(&mut work);
        let Event::Copy(copy) = work else {
            panic!("{work:?}")
        };
        copy.origin.stream
    };
    assert_eq!(stream_of(OWN, 0, 10, Some(0)), Some(2));
    assert_eq!(stream_of(OWN_ONLY, 77, 20, None), Some(2));
    assert_eq!(stream_of(OWN, 0xa0, 30, Some(0xa0)), Some(0xa0));
    assert_eq!(stream_of(OWN, 1, 40, Some(1)), Some(1), "hipStreamLegacy");
    assert_eq!(stream_of(LAUNCH, 0, 50, Some(0)), Some(0));
    assert_eq!(stream_of(LAUNCH, 0, 60, None), None);
    let new = std::iter::from_fn(|| streams.next());
    assert_eq!(new.count(), 2, "the thread's own, and 0xa0");
}

/// The number that an event's stream gets.
fn number(streams: &mut Streams, mut event: Event) -> u32 {
    streams.seen(&mut event);
    match event {
        Event::Call(call) => call.stream_id,
        Event::Copy(copy) => copy.origin.stream_id,
        other => panic!("{other:?}"),
    }
}

#[test]
fn calls_and_work_have_the_number_of_the_stream_at_their_time() {
    let mut streams = streams();
    let mut number = |event| number(&mut streams, event);
    let launch = |handle, begin| Event::Call(call(LAUNCH, handle, begin));
    assert_eq!(number(launch(0xa0, 10)), 1);
    assert_eq!(number(Event::Call(call(DESTROY, 0xa0, 20))), 1);
    // It is given no stream: it makes one.
    assert_eq!(number(Event::Call(call(CREATE, 0xa0, 30))), 0);
    assert_eq!(number(launch(0xa0, 40)), 2);
    assert_eq!(number(launch(2, 45)), 3);
    assert_eq!(number(work(9, 2, 46)), 4, "another thread's own");
    assert_eq!(number(work(9, 0xa0, 41)), 2);
    assert_eq!(number(work(9, 0xa0, 11)), 1);
    assert_eq!(number(work(synthetic::call(1, 1, 2).tid, 2, 46)), 3);
    for null in [0, 1] {
        assert_eq!(number(work(1, null, 50)), 0);
        assert_eq!(number(launch(null, 50)), 0);
    }
}

#[test]
fn streams_that_ended_long_ago_are_forgotten() {
    let mut streams = streams();
    let all = MOST_ENDED as u64 + 100;
    // Two handles in turn, as an allocator gives them, and one that lives on.
    let handle = |at: u64| 0xa0 + 0x100 * (at % 2);
    number(&mut streams, Event::Call(call(CREATE, 0xf0, 1)));
    for at in 0..all {
        let begin = 1000 * (at + 1);
        for (function, begin) in [(CREATE, begin), (LAUNCH, begin + 10), (DESTROY, begin + 20)] {
            let call = call(function, handle(at), begin);
            number(&mut streams, Event::Call(call));
        }
        while streams.next().is_some() {}
    }
    let known = streams.processes.values().flat_map(|one| &one.streams);
    let known: usize = known.map(|(_, lives)| lives.len()).sum();
    assert_eq!(known, MOST_ENDED + 1);
    assert_eq!(streams.ended.len(), MOST_ENDED);
    assert_eq!(streams.remark(), None);
    // The first one that is remembered, and the last one that is not.
    let mut of = |at: u64| {
        let event = work(1, handle(at), 1000 * (at + 1) + 12);
        u64::from(number(&mut streams, event))
    };
    assert_eq!(of(100), 102);
    assert_eq!(of(all - 1), all + 1);
    assert_eq!(of(99), 0);
    assert_eq!(number(&mut streams, work(1, 0xf0, 5_000)), 1);
    assert!(streams.next().is_none(), "nothing new");
    let remark = streams.remark().unwrap();
    assert!(
        remark.starts_with("1 call or piece of work named"),
        "{remark}"
    );
}

#[test]
fn a_process_takes_its_streams_with_it() {
    let mut streams = streams();
    number(&mut streams, Event::Call(call(CREATE, 0xa0, 10)));
    number(&mut streams, Event::Call(call(LAUNCH, 2, 20)));
    streams.seen(&mut lifetime(LifetimeChange::Exited, PID + 1, 30));
    assert!(streams.ended.is_empty(), "only a thread");
    streams.seen(&mut lifetime(LifetimeChange::Exited, PID, 40));
    let numbers = streams.ended.iter().map(|(_, _, number)| *number);
    assert!(numbers.eq([1, 2]));
    assert_eq!(number(&mut streams, work(1, 0xa0, 30)), 1, "late work");
}
