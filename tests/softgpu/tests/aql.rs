//! Tests the AQL processor with a program that submits from its own memory, and checks the log.

mod support;

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use gputrace_softgpu::clock::boottime_ns;
use gputrace_softgpu::fault::Fault;
use gputrace_softgpu::layout::{queue, signal};
use gputrace_softgpu::packet::kind;
use gputrace_softgpu::truth::Record;
use support::{Bench, Queue, Signal, barrier, kernel, until};

#[test]
fn threads_sharing_a_queue_lose_nothing() {
    const THREADS: u64 = 4;
    const EACH: u64 = 500;
    let bench = Bench::new("default_duration = { uniform_ns = [0, 3_000] }");
    let queue = Queue::new(64, true);
    let id = bench.gpu.create_queue(&queue.spec(0)).unwrap();
    let before = boottime_ns();

    // Each thread remembers what it submitted at which index, and the ticks in its signal.
    let mut submitted: Vec<(u64, u64, (u64, u64))> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let queue = &queue;
                scope.spawn(move || {
                    (0..EACH)
                        .map(|_| {
                            let signal = Signal::new(1);
                            let index = queue.submit(kernel(thread, 256, true, signal.handle()));
                            signal.wait_for(0);
                            (index, thread, signal.ticks())
                        })
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    });
    submitted.sort_unstable();
    until("the read index", || queue.read_index() == THREADS * EACH);
    assert!(bench.gpu.destroy_queue(id));

    let dispatches = bench.dispatches();
    assert_eq!(dispatches.len(), submitted.len());
    let mut last_end = before;
    for (dispatch, (index, thread, ticks)) in dispatches.iter().zip(submitted) {
        let end = dispatch.end.unwrap();
        assert_eq!(
            (
                dispatch.place.index,
                dispatch.place.queue,
                dispatch.hsa_queue
            ),
            (index, id, 77)
        );
        assert_eq!(&*dispatch.kernel, format!("kernel{thread}"));
        assert_eq!(
            (dispatch.grid, dispatch.workgroup),
            ([256, 1, 1], [64, 1, 1])
        );
        assert_eq!((dispatch.begin.ticks, end.ticks), ticks, "packet {index}");
        // With the barrier bit they run one after the other, in host time too.
        assert!(
            last_end <= dispatch.begin.ns && dispatch.begin.ns <= end.ns,
            "packet {index}"
        );
        assert!(end.ns - dispatch.begin.ns <= 3_000);
        last_end = end.ns;
    }
    assert!(last_end <= boottime_ns());
    assert_eq!(*bench.machine.fatal.lock().unwrap(), [""; 0]);
}

#[test]
fn without_the_barrier_bit_packets_run_beside_each_other_up_to_the_limit() {
    let bench = Bench::new(
        "default_duration = { fixed_ns = 20_000_000 }
         queue = { concurrent_packets = 3 }",
    );
    let queue = Queue::new(64, true);
    bench.gpu.create_queue(&queue.spec(0)).unwrap();
    let signals: Vec<Signal> = (0..6).map(|_| Signal::new(1)).collect();
    for signal in &signals {
        queue.submit(kernel(1, 64, false, signal.handle()));
    }
    let last = Signal::new(1);
    queue.submit(kernel(2, 64, true, last.handle()));
    last.wait_for(0);

    let dispatches = bench.dispatches();
    let most = dispatches
        .iter()
        .map(|at| {
            let during = |other: &&gputrace_softgpu::truth::Dispatch| {
                other.begin.ns <= at.begin.ns && at.begin.ns < other.end.unwrap().ns
            };
            dispatches.iter().filter(during).count()
        })
        .max();
    assert_eq!(most, Some(3));
    let last = dispatches.last().unwrap();
    assert_eq!(&*last.kernel, "kernel2");
    assert!(
        dispatches[..6]
            .iter()
            .all(|other| other.end.unwrap().ns <= last.begin.ns)
    );
}

#[test]
fn queues_of_an_agent_share_its_places() {
    let bench = Bench::new(
        "default_duration = { fixed_ns = 10_000_000 }
         [[agent]]
         concurrent_kernels = 2",
    );
    let queues: Vec<Queue> = (0..4).map(|_| Queue::new(64, true)).collect();
    let signals: Vec<Signal> = (0..4).map(|_| Signal::new(1)).collect();
    for queue in &queues {
        bench.gpu.create_queue(&queue.spec(0)).unwrap();
    }
    for (queue, signal) in queues.iter().zip(&signals) {
        queue.submit(kernel(1, 64, true, signal.handle()));
    }
    signals.iter().for_each(|signal| signal.wait_for(0));
    let dispatches = bench.dispatches();
    let spans: Vec<(u64, u64)> = dispatches
        .iter()
        .map(|dispatch| (dispatch.begin.ns, dispatch.end.unwrap().ns))
        .collect();
    for (begin, _) in &spans {
        assert!(
            spans
                .iter()
                .filter(|(from, to)| from <= begin && begin < to)
                .count()
                <= 2,
            "{spans:?}"
        );
    }
    assert_eq!(spans.len(), 4);
}

#[test]
fn barriers_wait_for_their_signals() {
    let bench = Bench::new("default_duration = { fixed_ns = 0 }");
    let queue = Queue::new(64, true);
    bench.gpu.create_queue(&queue.spec(0)).unwrap();
    let (first, second) = (Signal::new(1), Signal::new(1));
    let (all, any, value) = (Signal::new(1), Signal::new(1), Signal::new(1));
    queue.submit(barrier(
        kind::BARRIER_AND.into(),
        &[first.handle(), 0, second.handle()],
        all.handle(),
    ));
    queue.submit(barrier(
        kind::BARRIER_OR.into(),
        &[first.handle(), second.handle()],
        any.handle(),
    ));
    // Vendor format 2: (value & 0xff) >= 7.
    let wanted = [
        0x0002_0100,
        first.handle(),
        7,
        0xff,
        3,
        0,
        0,
        value.handle(),
    ];
    queue.submit(wanted);

    first.field(signal::VALUE).store(0, Ordering::Release);
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!(
        (all.value(), any.value()),
        (1, 1),
        "one of two dependencies is met"
    );
    second.field(signal::VALUE).store(0, Ordering::Release);
    all.wait_for(0);
    any.wait_for(0);
    assert_eq!(value.value(), 1);
    first.field(signal::VALUE).store(0x107, Ordering::Release);
    value.wait_for(0);

    let packets: Vec<_> = bench
        .records()
        .into_iter()
        .filter_map(|record| match record {
            Record::Packet(packet) => Some(packet),
            _ => None,
        })
        .collect();
    let names: Vec<_> = packets.iter().map(|packet| &*packet.packet).collect();
    assert_eq!(names, ["barrier_and", "barrier_or", "barrier_value"]);
    for (packet, signal) in packets.iter().zip([&all, &any, &value]) {
        assert_eq!((packet.begin.ticks, packet.end.ticks), signal.ticks());
    }
}

#[test]
fn a_doorbell_that_went_backwards_strands_no_packet() {
    let bench = Bench::new("queue = { missed_doorbell_ns = 1_000_000 }");
    let queue = Queue::new(64, true);
    let signal = Signal::new(1);
    queue.write(kernel(1, 64, true, 0));
    queue.write(kernel(1, 64, true, signal.handle()));
    // Two threads rang, first for index 1 and then for index 0, so only the 0 is visible.
    queue.doorbell.store(0, Ordering::Release);
    bench.gpu.create_queue(&queue.spec(0)).unwrap();
    signal.wait_for(0);
    assert_eq!(bench.dispatches().len(), 2);
}

#[test]
fn the_interrupt_goes_through_the_mailbox() {
    let bench = Bench::new("");
    let queue = Queue::new(64, false);
    bench.gpu.create_queue(&queue.spec(0)).unwrap();
    let (signal, mailbox) = (Signal::new(1), Signal::new(0));
    signal
        .field(signal::EVENT_MAILBOX)
        .store(mailbox.handle(), Ordering::Relaxed);
    signal.field(signal::EVENT_ID).store(42, Ordering::Relaxed);
    queue.submit(kernel(1, 64, true, signal.handle()));
    until("the interrupt", || {
        *bench.machine.interrupts.lock().unwrap() == [42]
    });
    assert_eq!(signal.value(), 0);
    assert_eq!(mailbox.field(0).load(Ordering::Relaxed), 42);
    assert_eq!(signal.ticks(), (0, 0), "the queue has profiling off");
    assert!(!bench.dispatches()[0].stamped);
}

#[test]
fn scratch_is_asked_for_and_waited_for() {
    let bench = Bench::new("");
    let queue = Queue::new(64, true);
    let inactive = Signal::new(0);
    queue
        .field(queue::INACTIVE_SIGNAL)
        .store(inactive.handle(), Ordering::Relaxed);
    bench.gpu.create_queue(&queue.spec(0)).unwrap();
    let signal = Signal::new(1);
    let mut packet = kernel(1, 64, true, signal.handle());
    packet[3] |= 1040;
    queue.submit(packet);
    inactive.wait_for(1);
    assert_eq!(
        (signal.value(), queue.read_index()),
        (1, 0),
        "not even consumed"
    );
    queue
        .field(queue::SCRATCH_WAVE64_LANE_BYTE_SIZE & !7)
        .fetch_or(2048, Ordering::Relaxed);
    inactive.field(signal::VALUE).store(0, Ordering::Release);
    signal.wait_for(0);
    let asked: Vec<_> = bench
        .records()
        .into_iter()
        .filter_map(|record| match record {
            Record::Scratch(scratch) => {
                Some((scratch.request, scratch.lane_bytes, scratch.location))
            }
            _ => None,
        })
        .collect();
    assert_eq!(asked, [(1, [0, 2048], [0, 0])]);
}

#[test]
fn faults_happen_to_their_kernels() {
    let bench = Bench::new(
        r#"
        [[fault]]
        kind = "no_timestamps"
        kernel = "kernel1"
        [[fault]]
        kind = "late_completion"
        delay_ns = 20_000_000
        kernel = "kernel2"
        [[fault]]
        kind = "never_ends"
        kernel = "kernel3"
        "#,
    );
    let queue = Queue::new(64, true);
    let id = bench.gpu.create_queue(&queue.spec(0)).unwrap();
    let signals: Vec<Signal> = (0..3).map(|_| Signal::new(1)).collect();
    for (number, signal) in (1..).zip(&signals) {
        queue.submit(kernel(number, 64, true, signal.handle()));
    }
    queue.submit(kernel(4, 64, true, 0));
    signals[0].wait_for(0);
    assert_eq!(signals[0].ticks(), (0, 0));
    signals[1].wait_for(0);
    let done = boottime_ns();
    until("the endless kernel's start", || queue.read_index() == 3);
    assert!(bench.gpu.destroy_queue(id));
    assert_eq!(signals[2].value(), 1);

    let dispatches = bench.dispatches();
    let faults: Vec<_> = dispatches.iter().map(|dispatch| dispatch.fault).collect();
    let late = Fault::LateCompletion {
        delay_ns: 20_000_000,
    };
    assert_eq!(
        faults,
        [
            Some(Fault::NoTimestamps),
            Some(late),
            Some(Fault::NeverEnds)
        ]
    );
    assert!(dispatches[1].end.unwrap().ns + 20_000_000 <= done);
    assert_eq!(signals[1].ticks().1, dispatches[1].end.unwrap().ticks);
    assert_eq!(dispatches[2].end, None);
    let end = bench.records().into_iter().find_map(|record| match record {
        Record::QueueEnd {
            pending, running, ..
        } => Some((pending, running)),
        _ => None,
    });
    assert_eq!(
        end,
        Some((1, 1)),
        "one packet never taken, one never completed"
    );
}

#[test]
fn errors_and_resets_stop_the_queues() {
    let bench = Bench::new(
        r#"
        [[fault]]
        kind = "queue_error"
        kernel = "kernel1"
        [[fault]]
        kind = "gpu_reset"
        kernel = "kernel2"
        "#,
    );
    let (first, second) = (Queue::new(64, true), Queue::new(64, true));
    let inactive = Signal::new(0);
    first
        .field(queue::INACTIVE_SIGNAL)
        .store(inactive.handle(), Ordering::Relaxed);
    bench.gpu.create_queue(&first.spec(0)).unwrap();
    bench.gpu.create_queue(&second.spec(0)).unwrap();
    let signal = Signal::new(1);
    first.submit(kernel(1, 64, true, signal.handle()));
    inactive.wait_for(32);
    second.submit(kernel(2, 64, true, signal.handle()));
    until("the reset", || *bench.machine.resets.lock().unwrap() == [0]);
    assert_eq!(signal.value(), 1);
}

#[test]
fn an_unknown_packet_is_named_once_and_stops_the_queue() {
    let bench = Bench::new("");
    let queue = Queue::new(64, true);
    bench.gpu.create_queue(&queue.spec(0)).unwrap();
    queue.submit([0x0009_0000, 2, 3, 4, 5, 6, 7, 8]);
    until("the message", || {
        !bench.machine.fatal.lock().unwrap().is_empty()
    });
    let messages = bench.machine.fatal.lock().unwrap().clone();
    assert_eq!(messages.len(), 1);
    assert!(
        messages[0].starts_with("unknown AQL packet, type 0: 00000900"),
        "{messages:?}"
    );
    let logged = bench
        .records()
        .into_iter()
        .filter(|record| matches!(record, Record::Unknown { .. }))
        .count();
    assert_eq!(logged, 1);
}

#[test]
fn two_agents_have_their_own_clocks() {
    let bench = Bench::new(
        "[[agent]]
         [[agent]]
         clock = { frequency_hz = 25_000_000, offset_ticks = 5 }",
    );
    let queues = [Queue::new(64, true), Queue::new(64, true)];
    let signals = [Signal::new(1), Signal::new(1)];
    for (agent, (queue, signal)) in (0..).zip(queues.iter().zip(&signals)) {
        bench.gpu.create_queue(&queue.spec(agent)).unwrap();
        queue.submit(kernel(1, 64, true, signal.handle()));
        signal.wait_for(0);
    }
    for dispatch in bench.dispatches() {
        let agent = dispatch.place.agent as usize;
        let clock = &bench.gpu.config().agent[agent].clock;
        assert_eq!(dispatch.begin.ticks, clock.ticks_at(dispatch.begin.ns));
        assert_eq!(
            signals[agent].ticks(),
            (dispatch.begin.ticks, dispatch.end.unwrap().ticks)
        );
    }
    let agents: HashSet<u32> = bench
        .dispatches()
        .iter()
        .map(|dispatch| dispatch.place.agent)
        .collect();
    assert_eq!(agents.len(), 2);
}
