//! A synthetic recording of GPU work, as events: one process, a CPU, two GPUs, every quality. Only
//! with the feature `synthetic`, which is for tests of this and other crates.

use std::sync::Arc;

use gputrace_abi::domain::Domain;
use gputrace_capture::{
    counter::Counter,
    gpu::{Agent, AgentKind, Kernel},
    ledger::{Ledger, LedgerRow},
    meta::{ClockSnapshot, End, EndReason, Function, Mode, Recording},
};
use gputrace_timeline::{
    driver::EVICTED,
    event::{Call, CallEnd, CounterSample, Event, FunctionInfo, ProcessInfo},
    gpu::{
        AgentInfo, Copy, Direction, Dispatch, Estimate, GpuTime, KernelClass, KernelInfo, KnownBy,
        Lengths, Mean, Origin, Quality, QueueInfo, Told, Window,
    },
    observation::{FieldValue, Observation, ObservedField, Whose},
    stream::{StreamInfo, StreamKey},
    synthetic::call,
};

/// When the recording began, ns.
pub const START: u64 = 1_000_000_000;

/// Exact times, wrong by at most 300 ns.
#[must_use]
pub fn exact(begin: u64, end: u64) -> GpuTime {
    let window = |time: u64| Window {
        earliest: time.saturating_sub(300),
        latest: Some(time.saturating_add(200)),
    };
    GpuTime {
        quality: Quality::Exact,
        begin,
        end,
        begin_window: window(begin),
        end_window: window(end),
        unfinished: false,
        estimate: None,
    }
}

/// Times of `quality`: it began at or after `begin` and ended by `end`.
#[must_use]
pub fn between(quality: Quality, begin: u64, end: u64) -> GpuTime {
    let window = Window {
        earliest: begin,
        latest: Some(end),
    };
    GpuTime {
        quality,
        begin,
        end,
        begin_window: window,
        end_window: window,
        unfinished: false,
        estimate: None,
    }
}

/// Estimated times: as long as the mean of `class`, whose standard error is `error` ns, somewhere
/// in a window 10 times that long.
#[must_use]
pub fn estimated(begin: u64, end: u64, class: u32, error: u64) -> GpuTime {
    let room = end.saturating_sub(begin).saturating_mul(5);
    let window = Window {
        earliest: begin.saturating_sub(room),
        latest: Some(end.saturating_add(room)),
    };
    GpuTime {
        begin_window: window,
        end_window: window,
        estimate: Some(Estimate { class, error }),
        ..between(Quality::Sampled, begin, end)
    }
}

/// Times of work that is only known to have been submitted at `time`.
#[must_use]
pub fn submitted(time: u64, unfinished: bool) -> GpuTime {
    let window = Window {
        earliest: time,
        latest: None,
    };
    GpuTime {
        begin: time,
        end: time,
        begin_window: window,
        end_window: window,
        unfinished,
        ..GpuTime::default()
    }
}

/// A dispatch of kernel 1 into queue 0 within call 2, which is inside call 1.
#[must_use]
pub fn dispatch(id: u64, submit: u64, time: GpuTime) -> Dispatch {
    Dispatch {
        id,
        origin: Origin {
            pid: 100,
            tid: 101,
            time: submit,
            innermost: 2,
            outermost: 1,
            caller: 1,
            stream: Some(0),
            deferred: false,
            range: None,
            external: None,
            stream_id: 0,
            stack_number: None,
        },
        queue: 0,
        node_id: Some(1),
        index: id - 1,
        kernel: Some(1),
        kernel_object: 0x7f00_1000,
        workgroup: [64, 1, 1],
        grid: [1024, 4, 1],
        private_size: 16,
        group_size: 600,
        kernarg: 0x7f00_2000,
        signal: 0x7f00_3000,
        barrier: true,
        read_later: false,
        time,
        readings: Vec::new(),
    }
}

/// The whole recording, in the order that [`Event`] promises.
#[must_use]
pub fn events() -> Vec<Event> {
    let domains = [
        Domain::HipRuntime,
        Domain::HsaCore,
        Domain::KernelDispatch,
        Domain::MemoryCopy,
    ];
    let mut events = vec![Event::Recording(Box::new(Recording {
        hostname: "node7".to_owned(),
        mode: Mode::Launch {
            command: vec!["./train".to_owned()],
        },
        domains: domains.map(|domain| domain.name().to_owned()).to_vec(),
        clocks: ClockSnapshot {
            boottime: START,
            ..ClockSnapshot::default()
        },
        ..Recording::default()
    }))];
    for (id, name, domain) in [
        (2, "hipDeviceSynchronize", Domain::HipRuntime),
        (0, "hipLaunchKernel", Domain::HipRuntime),
        (1, "hsa_signal_store_relaxed", Domain::HsaCore),
    ] {
        events.push(Event::Function(Box::new(FunctionInfo {
            function: Function {
                id,
                name: name.to_owned(),
                domain: domain.id(),
                ..Function::default()
            },
            domain: Some(domain),
            library: String::new(),
            build_id: String::new(),
            range: None,
        })));
    }
    events.push(Event::Process(Box::new(ProcessInfo {
        pid: 100,
        name: "train".to_owned(),
        ..ProcessInfo::default()
    })));
    events.extend(
        [
            (0, AgentKind::Cpu),
            (1, AgentKind::Gpu),
            (2, AgentKind::Gpu),
        ]
        .map(agent),
    );
    for (number, node_id) in [(0, 1), (1, 2)] {
        events.push(Event::Queue(QueueInfo {
            number,
            pid: 100,
            id: u64::from(number) + 7,
            node_id: Some(node_id),
            packets: 1024,
            kfd_id: None,
            is_older: false,
        }));
    }
    events.extend(
        [
            (1, "_Z3addPfS_", "add(float*, float*)", 600),
            (2, "hang", "", 0),
        ]
        .map(kernel),
    );
    events.extend([(1, 0xa0), (2, 0xb0)].map(|(number, handle)| {
        Event::Stream(StreamInfo {
            number,
            pid: 100,
            key: StreamKey {
                handle,
                thread: None,
            },
            since: 0,
        })
    }));
    let at = |us: u64| START + us * 1000;
    let launch = |function: u32, id, begin, end| {
        Event::Call(Call {
            function,
            domain: if function == 0 {
                Domain::HipRuntime
            } else {
                Domain::HsaCore
            }
            .id(),
            tid: 101,
            parent: id - 1,
            depth: function as u16,
            ..call(id, begin, end)
        })
    };
    let mut work = vec![
        // Out of order, and before the calls that submitted them.
        dispatch(2, at(12), exact(at(40), at(90))),
        dispatch(1, at(10), exact(at(20), at(40))),
        dispatch(3, at(14), between(Quality::Sampled, at(90), at(110))),
        dispatch(4, at(15), between(Quality::Bounded, at(15), at(400))),
        dispatch(5, at(16), submitted(at(16), false)),
        dispatch(6, at(17), submitted(at(17), true)),
        dispatch(7, at(18), exact(at(60), at(80))),
        dispatch(8, at(300), exact(at(300), at(301))),
    ];
    let streams = [(None, 0), (Some(0xa0), 1), (Some(0xb0), 2), (Some(0xa0), 1)];
    for (dispatch, (stream, stream_id)) in work.iter_mut().zip(streams) {
        (dispatch.origin.stream, dispatch.origin.stream_id) = (stream, stream_id);
    }
    if let [.., hung, other, unknown] = &mut work[..] {
        hung.kernel = Some(2);
        other.queue = 1;
        other.node_id = None;
        unknown.kernel = None;
        unknown.origin.innermost = 0;
        unknown.origin.outermost = 0;
        unknown.origin.caller = 0;
    }
    events.extend(
        work.into_iter()
            .map(|dispatch| Event::Dispatch(Box::new(dispatch))),
    );
    events.extend([launch(0, 1, at(5), at(19)), launch(1, 2, at(6), at(18))]);
    events.push(Event::Call(Call {
        function: 2,
        tid: 101,
        how: CallEnd::RecordingStopped,
        ..call(3, at(450), at(500))
    }));
    events.extend(copies().map(|copy| Event::Copy(Box::new(copy))));
    events.push(Event::Ledger(Box::new(Ledger {
        time: at(500),
        complete: true,
        rows: [
            (Domain::HipRuntime, 1),
            (Domain::HsaCore, 1),
            (Domain::KernelDispatch, 8),
            (Domain::MemoryCopy, 3),
        ]
        .map(|(domain, count)| LedgerRow {
            domain: domain.id(),
            seen: count + u64::from(domain == Domain::HipRuntime),
            written: count,
            unfinished: u64::from(domain == Domain::HipRuntime),
            ..LedgerRow::default()
        })
        .to_vec(),
        ..Ledger::default()
    })));
    events.push(Event::End(End {
        time: at(500),
        reason: EndReason::Interrupted,
    }));
    events
}

/// Classes of [`estimates`]: state of the mean, mean and standard error in ns, and number of
/// dispatches.
pub const CLASSES: [(Told, f64, f64, u64); 3] = [
    (Told::Apart, 10_400.0, 300.0, 11),
    (Told::Apart, 200_000.0, 9_000.0, 2),
    (Told::Mixed, 0.0, 0.0, 3),
];

/// The two lengths of class 1.
pub const LENGTHS: Lengths = Lengths {
    shorter: 120_000.0,
    longer: 520_000.0,
    longer_share: 0.2,
};

/// A recording of the same process in which durations are estimates: kernel 1 ran ten times for the
/// mean of class 0, and once for a time that nothing tells; `hang` ran twice for the mean of class
/// 1; a kernel that was not found ran three times for a time that nothing tells, though its windows
/// are narrower than the recording.
#[must_use]
pub fn estimates() -> Vec<Event> {
    let mut events = events();
    let last = events.split_off(events.len() - 2);
    events.retain(|event| !matches!(event, Event::Dispatch(_) | Event::Copy(_)));
    let mut add = |kernel: Option<u32>, time: GpuTime| {
        let id = 1 + events
            .iter()
            .filter(|event| matches!(event, Event::Dispatch(_)))
            .count() as u64;
        let work = dispatch(id, START + id * 1000, time);
        events.push(Event::Dispatch(Box::new(Dispatch { kernel, ..work })));
    };
    for number in 1..=10 {
        let begin = START + number * 10_000_000;
        add(Some(1), estimated(begin, begin + 10_400, 0, 300));
        if number > 8 {
            add(
                Some(2),
                estimated(begin + 1_000_000, begin + 1_200_000, 1, 9_000),
            );
        }
        if number < 4 {
            let window = Window {
                earliest: begin + 2_000_000,
                latest: Some(begin + 9_000_000),
            };
            let time = between(Quality::Sampled, begin + 2_000_000, begin + 9_000_000);
            add(
                None,
                GpuTime {
                    begin: begin + 4_000_000,
                    begin_window: window,
                    end_window: window,
                    ..time
                },
            );
        }
    }
    add(Some(1), submitted(START + 200_000_000, false));
    events.extend(
        CLASSES
            .into_iter()
            .zip(0..)
            .map(|((told, value, error, count), number)| {
                Event::KernelClass(Box::new(KernelClass {
                    number,
                    pid: 100,
                    node_id: Some(1),
                    kernel: Some(number + 1).filter(|kernel| *kernel < 3),
                    kernel_object: 0x7f00_1000,
                    grid: [1024, 4, 1],
                    workgroup: [64, 1, 1],
                    count,
                    mean: (told == Told::Apart).then_some(Mean { value, error }),
                    told,
                    lengths: (number == 1).then_some(LENGTHS),
                }))
            }),
    );
    events.extend(last);
    events
}

/// Dispatches of [`drawn`] and how long they took, ns; `None` where nothing tells. The first three
/// are known by stamps, by the mean of their class and by near looks.
pub const DRAWN: [(u64, Option<u64>); 8] = [
    (1, Some(50_000)),
    (2, Some(10_400)),
    (3, Some(10_000)),
    (4, None),
    (5, None),
    (6, None),
    (7, None),
    (8, None),
];

/// A recording of the same process with work of which nothing tells how long it took, besides work
/// with known durations: [`DRAWN`]. Two of three copies have exact times: of 100 and of 50 us.
#[must_use]
pub fn drawn() -> Vec<Event> {
    let mut events = events();
    let last = events.split_off(events.len() - 2);
    events.retain(|event| !matches!(event, Event::Dispatch(_)));
    let at = |us: u64| START + us * 1000;
    // It began within `begin` us and ended within `end` us.
    let looks = |begin: [u64; 2], end: [u64; 2]| {
        let window = |[earliest, latest]: [u64; 2]| Window {
            earliest: at(earliest),
            latest: Some(at(latest)),
        };
        GpuTime {
            begin_window: window(begin),
            end_window: window(end),
            ..between(Quality::Sampled, at(begin[0]), at(end[1]))
        }
    };
    let near = GpuTime {
        begin_window: Window {
            latest: Some(at(300) + 200),
            ..looks([300, 300], [310, 310]).begin_window
        },
        ..looks([300, 300], [310, 310])
    };
    let times = [
        exact(at(40), at(90)),
        estimated(at(200), at(200) + 10_400, 0, 300),
        near,
        // From the look that saw it begin to the next begin, 4 ms later.
        looks([400, 420], [420, 4_400]),
        // Twice as long as it must have been.
        looks([4_400, 4_500], [4_700, 4_800]),
        between(Quality::Bounded, at(15), at(4_900)),
        submitted(at(4_900), false),
        submitted(at(4_950), true),
    ];
    let works = DRAWN.iter().zip(times);
    events.extend(
        works.map(|((id, _), time)| Event::Dispatch(Box::new(dispatch(*id, at(10), time)))),
    );
    events.extend(last);
    events
}

fn agent((node_id, kind): (u32, AgentKind)) -> Event {
    let gpu = kind == AgentKind::Gpu;
    Event::Agent(Box::new(AgentInfo {
        agent: Agent {
            node_id,
            gpu_id: if gpu { 60_000 + node_id } else { 0 },
            kind,
            name: if gpu { "gfx90a" } else { "AMD EPYC, \"7713\"" }.to_owned(),
            vendor_name: if gpu { "AMD" } else { "CPU" }.to_owned(),
            product_name: String::new(),
            model_name: String::new(),
            info: vec![
                ("Simd_Count".to_owned(), if gpu { 440 } else { 0 }),
                ("Grid_Max_Dim_Z".to_owned(), 4_294_967_295),
            ],
        },
        absolute_index: node_id,
        type_index: node_id.saturating_sub(1),
        label: format!("Agent {node_id}"),
    }))
}

fn kernel((id, name, demangled, group_size): (u32, &str, &str, u32)) -> Event {
    Event::Kernel(Box::new(KernelInfo {
        id,
        code_object: 1,
        pid: 100,
        kernel: Kernel {
            object: 0x7f00_1000,
            name: name.to_owned(),
            group_size,
            sgpr_count: 16,
            arch_vgpr_count: 8,
            accum_vgpr_count: 4,
            ..Kernel::default()
        },
        demangled: demangled.to_owned(),
        shown: demangled.to_owned(),
        runtime: None,
        renamed: None,
    }))
}

fn copies() -> [Copy; 3] {
    let at = |us: u64| START + us * 1000;
    let copy = |id, (direction, known_by), (from, to), time: GpuTime| Copy {
        id,
        origin: Origin {
            pid: 100,
            tid: 101,
            time: at(30),
            innermost: 2,
            outermost: 1,
            caller: 1,
            stream: Some(0xb0),
            deferred: false,
            range: None,
            external: None,
            stream_id: 2,
            stack_number: None,
        },
        direction,
        known_by,
        destination_node: to,
        source_node: from,
        memory_kinds: [None; 2],
        destination: 0x7f00_9000,
        source: 0x7f00_8000,
        bytes: 1 << 20,
        engine: 1,
        signal: 0x7f00_4000,
        time,
    };
    [
        copy(
            1,
            (Direction::HostToDevice, Some(KnownBy::Memory)),
            (Some(0), Some(1)),
            exact(at(150), at(250)),
        ),
        copy(
            2,
            (Direction::DeviceToHost, Some(KnownBy::Agents)),
            (Some(1), Some(0)),
            exact(at(100), at(150)),
        ),
        copy(
            3,
            (Direction::Unknown, None),
            (None, None),
            submitted(at(30), false),
        ),
    ]
}

/// The synthetic recording with observations and counter readings.
#[must_use]
pub fn observed() -> Vec<Event> {
    let mut events = events();
    let last = events.split_off(events.len() - 2);
    let observation = |domain: Domain, name: &'static str, (pid, tid), (begin, end)| {
        Event::Observation(Box::new(Observation {
            domain: domain.id(),
            name: name.into(),
            whose: Whose {
                pid,
                tid,
                gpu_id: 51234,
            },
            begin: START + begin,
            end: START + end,
            is_open: false,
            fields: vec![ObservedField {
                name: "trigger".into(),
                value: FieldValue::Text("TTM".into()),
            }],
        }))
    };
    let counter = |name: &str, pid, cumulative| {
        Arc::new(Counter {
            name: name.to_owned(),
            unit: "W".to_owned(),
            pid,
            gpu_id: 51234,
            node_id: Some(1),
            cumulative,
            ..Counter::default()
        })
    };
    let sample = |counter: &Arc<Counter>, time, value| {
        Event::Counter(CounterSample {
            counter: Arc::clone(counter),
            time: START + time,
            value,
        })
    };
    let (power, sdma) = (
        counter("power1_average", 0, false),
        counter("sdma", 100, true),
    );
    events.extend([
        observation(Domain::Sched, "sleeping", (100, 101), (10, 50)),
        observation(Domain::KfdEvent, EVICTED, (100, 0), (20, 60)),
        observation(Domain::KfdEvent, EVICTED, (100, 0), (30, 90)),
        observation(Domain::Tracepoint, "amdgpu_iv", (0, 0), (40, 40)),
        sample(&power, 5, 250.5),
        sample(&sdma, 6, 7.0),
        sample(&power, 9, 97.0),
    ]);
    events.extend(last);
    events
}
