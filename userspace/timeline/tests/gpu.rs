//! Dispatches, copies and accounts of small captures made by hand.

#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Cursor;

use gputrace_abi::{
    domain::Domain,
    gpu::{completion_reason, packet_flags, queue_reason},
    kfd::{LONG_IOCTL_SIZE, LongIoctl},
    record::{RecordHeader, kind, task_op},
};
use gputrace_capture::{
    CaptureReader, Meta,
    gpu::AgentKind,
    ledger::{Ledger, LedgerRow},
    meta::{End, Recording},
};
use gputrace_timeline::{
    Tally, Timeline,
    event::Event,
    gpu::{Copy, Direction, Dispatch, Quality, QueueInfo},
    synthetic::{
        Synthetic,
        gpu::{self, GPU_NODE, KERNEL_OBJECT, PID},
    },
};
use proptest::prelude::*;
use zerocopy::{FromBytes as _, FromZeros as _, IntoBytes as _};

const MS: u64 = 1_000_000;

/// A capture with agents, a queue, a code object, and a 100 MHz clock that began at 0.
fn capture() -> Synthetic {
    let mut capture = Synthetic::new(&Recording::default());
    for agent in gpu::agents() {
        capture.meta(agent);
    }
    for handle in gpu::handles() {
        capture.meta(handle);
    }
    for index in 0..10 {
        capture.meta(gpu::clock(index * 10_000_000, index * 100 * MS));
    }
    capture.meta(gpu::queue());
    capture.meta(gpu::code_object(0));
    capture
}

fn read(capture: &mut Synthetic) -> (Vec<Event>, Tally) {
    let reader = CaptureReader::new(Cursor::new(capture.bytes())).unwrap();
    let mut timeline = Timeline::new(reader).unwrap();
    let events = timeline.by_ref().collect::<Result<Vec<_>, _>>().unwrap();
    (events, timeline.tally().clone())
}

fn dispatches(events: &[Event]) -> Vec<Dispatch> {
    let dispatches = events.iter().filter_map(|event| match event {
        Event::Dispatch(dispatch) => Some((**dispatch).clone()),
        _ => None,
    });
    dispatches.collect()
}

fn copies(events: &[Event]) -> Vec<Copy> {
    let copies = events.iter().filter_map(|event| match event {
        Event::Copy(copy) => Some(**copy),
        _ => None,
    });
    copies.collect()
}

/// The stamps for these times.
fn ticks(begin: u64, end: u64) -> (u64, u64) {
    (begin / 10, end / 10)
}

#[test]
fn everything_that_a_dispatch_refers_to_comes_before_it() {
    let mut capture = capture();
    let mut packet = gpu::packet(7, 50 * MS, 0x9000);
    packet.flags = packet_flags::STREAM;
    (packet.stream, packet.innermost, packet.outermost) = (0xabc, 12, 11);
    let stamps = ticks(51 * MS, 52 * MS);
    capture
        .record(&gpu::completion(
            0x9000,
            60 * MS,
            completion_reason::REARM,
            0,
            stamps,
        ))
        .record(&packet);
    let (events, _) = read(&mut capture);
    let position = |which: fn(&Event) -> bool| events.iter().position(which).unwrap();
    let order = [
        position(
            |event| matches!(event, Event::Agent(agent) if agent.agent.kind == AgentKind::Cpu),
        ),
        position(
            |event| matches!(event, Event::Agent(agent) if agent.agent.kind == AgentKind::Gpu),
        ),
        position(|event| matches!(event, Event::CodeObject(object) if object.id == 1)),
        position(|event| matches!(event, Event::Queue(queue) if queue.node_id == Some(GPU_NODE))),
        position(
            |event| matches!(event, Event::Kernel(kernel) if kernel.kernel.object == KERNEL_OBJECT),
        ),
        position(|event| matches!(event, Event::Dispatch(_))),
    ];
    assert!(order.is_sorted(), "{order:?}");
    let [ref dispatch] = dispatches(&events)[..] else {
        unreachable!("one dispatch")
    };
    assert_eq!(
        (dispatch.id, dispatch.index, dispatch.kernel),
        (1, 7, Some(1))
    );
    assert_eq!(
        (dispatch.node_id, dispatch.barrier, dispatch.signal),
        (Some(GPU_NODE), true, 0x9000)
    );
    assert_eq!(
        (dispatch.private_size, dispatch.group_size, dispatch.kernarg),
        (16, 32, 0x5000)
    );
    let origin = dispatch.origin;
    assert_eq!(
        (origin.innermost, origin.outermost, origin.stream),
        (12, 11, Some(0xabc))
    );
    assert_eq!(dispatch.time.quality, Quality::Exact);
    assert_eq!((dispatch.time.begin, dispatch.time.end), (51 * MS, 52 * MS));
}

#[test]
fn what_was_read_while_a_kernel_ran_is_its_own() {
    let (events, tally) = read(&mut gpu::counted());
    let found: Vec<Vec<(String, f64, u64)>> = dispatches(&events)
        .iter()
        .map(|dispatch| {
            let readings = dispatch.readings.iter();
            readings
                .map(|one| (one.counter.name.clone(), one.value, one.readings))
                .collect()
        })
        .collect();
    let one = |name: &str, value, readings| (name.to_owned(), value, readings);
    assert_eq!(
        found,
        [
            vec![
                one("power1_average", 115.0, 4),
                one("energy", 600.0, 4),
                one("cu_occupancy", 64.0, 1)
            ],
            vec![],
            vec![one("power1_average", 90.0, 1)],
            vec![]
        ]
    );
    let notices: Vec<&str> = events
        .iter()
        .filter_map(|event| match event {
            Event::Notice(notice) => Some(notice.text.as_str()),
            _ => None,
        })
        .collect();
    let about = |text: &&str| text.contains("counter");
    let about: Vec<&str> = notices.into_iter().filter(about).collect();
    assert!(
        about.len() == 1 && about[0].starts_with("Of 3 dispatches with known times, 1 ended"),
        "{about:?}"
    );
    assert_eq!(tally.malformed_records, 0);
}

#[test]
fn copies_have_a_direction_and_the_engine_s_times() {
    let mut capture = capture();
    let read_back = {
        let mut copy = gpu::copy(70 * MS, 0x9000);
        (copy.source_agent, copy.destination_agent) = (gpu::GPU_HANDLE, gpu::CPU_HANDLE);
        copy
    };
    // Stale stamps of a kernel, then those of the engine.
    let mut done = gpu::completion(
        0x9000,
        60 * MS,
        completion_reason::REARM,
        0,
        ticks(MS, 2 * MS),
    );
    (done.sdma_start, done.sdma_end) = ticks(51 * MS, 52 * MS);
    let mut silent = gpu::completion(
        0x9000,
        80 * MS,
        completion_reason::REARM,
        0,
        ticks(MS, 2 * MS),
    );
    (silent.sdma_start, silent.sdma_end) = (0, 0);
    let by_kernel = gpu::completion(
        0x9080,
        80 * MS,
        completion_reason::EXIT,
        0,
        ticks(71 * MS, 72 * MS),
    );
    capture
        .record(&gpu::copy(50 * MS, 0x9000))
        .record(&done)
        .record(&read_back)
        .record(&gpu::copy(70 * MS, 0x9080))
        .record(&silent)
        .record(&by_kernel)
        .record(&gpu::copy(90 * MS, 0))
        .record(&{
            let mut copy = gpu::copy(100 * MS, 0x9100);
            copy.destination_agent = gpu::CPU_HANDLE;
            copy
        })
        .record(&gpu::completion(
            0x9100,
            120 * MS,
            completion_reason::REARM,
            0,
            ticks(101 * MS, 102 * MS),
        ));
    let (events, _) = read(&mut capture);
    let mut found = copies(&events);
    found.sort_by_key(|copy| copy.id);
    let seen: Vec<_> = found
        .iter()
        .map(|copy| {
            (
                copy.direction,
                copy.time.quality,
                copy.time.begin,
                copy.time.end,
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            (Direction::HostToDevice, Quality::Exact, 51 * MS, 52 * MS),
            (Direction::DeviceToHost, Quality::Bounded, 70 * MS, 80 * MS),
            (Direction::HostToDevice, Quality::Exact, 71 * MS, 72 * MS),
            (
                Direction::HostToDevice,
                Quality::Submitted,
                90 * MS,
                90 * MS
            ),
            // Done by a thread, so its stamps do not count.
            (Direction::HostToHost, Quality::Bounded, 100 * MS, 120 * MS),
        ]
    );
    assert!(found.iter().all(|copy| copy.bytes == 4096));
}

#[test]
fn a_packet_told_of_twice_is_one_dispatch_of_its_own_thread() {
    let mut capture = capture();
    let mut early = gpu::packet(3, 50 * MS, 0);
    (early.flags, early.tid) = (packet_flags::BEFORE_DOORBELL, 200);
    let behind = {
        let mut packet = gpu::packet(4, 50 * MS, 0);
        packet.tid = 200;
        packet
    };
    let mut own = gpu::packet(3, 51 * MS, 0);
    own.tid = 300;
    // Already consumed by then.
    *own.packet.first_mut().unwrap() &= !0xffff;
    *own.packet.first_mut().unwrap() |= 1;
    capture.record(&early).record(&behind).record(&own);
    let (events, tally) = read(&mut capture);
    let found: Vec<_> = dispatches(&events)
        .iter()
        .map(|dispatch| {
            (
                dispatch.index,
                dispatch.origin.tid,
                dispatch.barrier,
                dispatch.time.begin,
            )
        })
        .collect();
    assert_eq!(found, [(3, 300, true, 50 * MS), (4, 200, true, 50 * MS)]);
    assert_eq!(tally.duplicate_packets, 1);
}

#[test]
fn a_packet_whose_own_doorbell_may_be_lost_belongs_to_nobody() {
    let lost = |time, count| {
        Meta::Ledger(Box::new(Ledger {
            time,
            rows: vec![LedgerRow {
                domain: Domain::QueuePacket.id(),
                dropped: vec![count],
                ..LedgerRow::default()
            }],
            ..Ledger::default()
        }))
    };
    let mut capture = capture();
    capture.meta(lost(10 * MS, 0));
    for (index, time) in [(3, 50 * MS), (5, 1000 * MS), (7, 3000 * MS)] {
        let mut early = gpu::packet(index, time, 0);
        (early.flags, early.tid, early.outermost) = (packet_flags::BEFORE_DOORBELL, 200, 77);
        let mut behind = gpu::packet(index + 1, time, 0);
        (behind.tid, behind.outermost) = (200, 77);
        capture.record(&early).record(&behind);
        // A record is lost after the first two. It could have been one of another doorbell for the
        // third packet.
        capture.meta(lost(time + 200 * MS, 1));
    }
    let (events, _) = read(&mut capture);
    let found: Vec<_> = dispatches(&events)
        .iter()
        .map(|dispatch| {
            (
                dispatch.index,
                dispatch.origin.tid,
                dispatch.origin.outermost,
            )
        })
        .collect();
    let (nobody, somebody) = ((0, 0), (200, 77));
    let origins: Vec<_> = found.iter().map(|(_, tid, call)| (*tid, *call)).collect();
    assert_eq!(
        origins,
        [nobody, somebody, nobody, somebody, somebody, somebody]
    );
}

#[test]
fn an_address_can_be_another_queue_s_or_another_program_s() {
    let mut capture = capture();
    let other = {
        let mut packet = gpu::packet(5, 70 * MS, 0);
        packet.queue_id = 9;
        packet
    };
    capture
        .record(&gpu::packet(5, 50 * MS, 0))
        .record(&gpu::queue_state(60 * MS, queue_reason::DESTROY, 6, 6))
        .record(&gpu::packet(5, 65 * MS, 0))
        .record(&other)
        .task(task_op::EXEC, 80 * MS, PID, PID, PID, b"next")
        .record(&{
            let mut packet = gpu::packet(5, 90 * MS, 0);
            packet.queue_id = 9;
            packet
        });
    let (events, tally) = read(&mut capture);
    let queues: Vec<QueueInfo> = events
        .iter()
        .filter_map(|event| match event {
            Event::Queue(queue) => Some(*queue),
            _ => None,
        })
        .collect();
    let numbers: Vec<_> = queues
        .iter()
        .map(|queue| (queue.number, queue.id))
        .collect();
    assert_eq!(numbers, [(0, 0), (1, 0), (2, 9), (3, 9)]);
    let mut found = dispatches(&events);
    found.sort_by_key(|dispatch| dispatch.id);
    let found: Vec<_> = found
        .iter()
        .map(|dispatch| (dispatch.queue, dispatch.index))
        .collect();
    assert_eq!(found, [(0, 5), (1, 5), (2, 5), (3, 5)]);
    assert_eq!(tally.duplicate_packets, 0);
}

#[test]
fn a_gpu_without_clock_samples_is_said_to_have_none() {
    let mut capture = Synthetic::new(&Recording::default());
    for agent in gpu::agents() {
        capture.meta(agent);
    }
    let stamps = ticks(51 * MS, 52 * MS);
    capture
        .record(&gpu::packet(0, 50 * MS, 0x9000))
        .record(&gpu::completion(
            0x9000,
            60 * MS,
            completion_reason::REARM,
            0,
            stamps,
        ))
        .meta(End::default());
    let (events, _) = read(&mut capture);
    let [ref dispatch] = dispatches(&events)[..] else {
        unreachable!("one dispatch")
    };
    assert_eq!(
        (dispatch.time.quality, dispatch.time.end),
        (Quality::Bounded, 60 * MS)
    );
    let notices: Vec<&str> = events
        .iter()
        .filter_map(|event| match event {
            Event::Notice(notice) => Some(notice.text.as_str()),
            _ => None,
        })
        .collect();
    let (undrawn, notices) = notices.split_last().unwrap();
    assert!(
        undrawn.starts_with("How long 1 of 1 kernel took is not known"),
        "{undrawn}"
    );
    assert_eq!(
        notices,
        [
            "Times of a GPU of unknown node are not aligned with the host's: the GPU's clock was never sampled. Its \
             dispatches and copies have no exact times."
        ]
    );
}

#[test]
fn the_accounts_hold_for_records_of_the_gpu() {
    let records = || {
        let mut capture = capture();
        capture
            .record(&gpu::packet(0, 50 * MS, 0x9000))
            .record(&gpu::completion(
                0x9000,
                60 * MS,
                completion_reason::POLL,
                0,
                (0, 0),
            ))
            .record(&gpu::copy(70 * MS, 0))
            .record(&gpu::queue_state(80 * MS, queue_reason::SAMPLE, 1, 1));
        capture
    };
    let mut ledger = Ledger {
        complete: true,
        ..Ledger::default()
    };
    for header in [
        gpu::packet(0, 0, 0).header,
        gpu::completion(0, 0, 0, 0, (0, 0)).header,
        gpu::copy(0, 0).header,
    ] {
        gpu::count(&mut ledger, &header);
    }
    let (events, tally) = read(records().meta(ledger.clone()).meta(End::default()));
    assert!(tally.agrees(&ledger));
    let about = |event: &Event| match event {
        Event::Notice(notice) => notice.text.contains("account"),
        _ => false,
    };
    assert!(!events.iter().any(about));
    let missing = RecordHeader {
        cpu: 1,
        ..gpu::copy(0, 0).header
    };
    gpu::count(&mut ledger, &missing);
    let (events, tally) = read(records().meta(ledger.clone()).meta(End::default()));
    assert!(!tally.agrees(&ledger));
    assert!(events.iter().any(about));
}

/// Records whose fields are mostly small numbers, so that they refer to each other.
fn record() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![8 => 0..6u64, 1 => any::<u64>(), 1 => Just(u64::MAX)];
    (0..4u8, proptest::collection::vec(word, 20)).prop_map(|(kind, words)| {
        let bytes = words.as_bytes();
        let filled = |header: &[u8], size: usize| {
            let mut record = bytes.get(..size).unwrap().to_vec();
            record.get_mut(..8).unwrap().copy_from_slice(header);
            record
        };
        match kind {
            0 => {
                let template = gpu::packet(0, 0, 0);
                let mut packet = gputrace_abi::gpu::Packet::read_from_bytes(&filled(
                    template.header.as_bytes(),
                    160,
                ))
                .unwrap();
                packet.queue %= 2;
                packet.as_bytes().to_vec()
            }
            1 => filled(gpu::completion(0, 0, 0, 0, (0, 0)).header.as_bytes(), 72),
            2 => filled(gpu::copy(0, 0).header.as_bytes(), 112),
            _ => filled(gpu::queue_state(0, 0, 0, 0).header.as_bytes(), 56),
        }
    })
}

proptest! {
    #[test]
    fn no_records_panic_and_all_packets_come_out_once(records in proptest::collection::vec(record(), 0..60)) {
        let mut capture = capture();
        for record in &records {
            capture.raw(record);
        }
        let (events, _) = read(&mut capture);
        let mut ids: Vec<u64> = dispatches(&events).iter().map(|dispatch| dispatch.id).collect();
        ids.sort_unstable();
        prop_assert_eq!(&ids, &(1..=ids.len() as u64).collect::<Vec<_>>());
        let copied = records.iter().filter(|record| record.len() == 112).count();
        prop_assert_eq!(copies(&events).len(), copied);
        for time in dispatches(&events).iter().map(|dispatch| dispatch.time)
            .chain(copies(&events).iter().map(|copy| copy.time))
        {
            prop_assert!(time.begin <= time.end);
            for window in [time.begin_window, time.end_window] {
                prop_assert!(window.latest.is_none_or(|latest| window.earliest <= latest), "{:?}", time);
            }
        }
    }
}

/// The driver's answer to `AMDKFD_IOC_CREATE_QUEUE` for packets at `ring`, at `time`.
fn created_queue(ring: u64, time: u64, result: i64) -> LongIoctl {
    let mut record = LongIoctl::new_zeroed();
    record.ioctl.header = RecordHeader {
        size: LONG_IOCTL_SIZE as u16,
        kind: kind::IOCTL,
        domain: Domain::KfdIoctl.id(),
        cpu: 0,
    };
    record.ioctl.request = 0xc058_4b02;
    record.ioctl.correlation = time;
    (record.ioctl.pid, record.ioctl.tid) = (PID, PID);
    (record.ioctl.begin, record.ioctl.end) = (time - 10, time);
    record.ioctl.result = result;
    record.ioctl.data = 88;
    record.after[..8].copy_from_slice(&ring.to_le_bytes());
    record.after[36..40].copy_from_slice(&GPU_NODE.to_le_bytes());
    record.after[52..56].copy_from_slice(&7_u32.to_le_bytes());
    record
}

#[test]
fn a_queue_has_the_drivers_number_and_gpu_by_the_address_of_its_ring() {
    let ring = gpu::packet(0, MS, 0).ring;
    // Address and result of the driver's queue, and what is then known of HSA's queue.
    for (address, result, expected) in [
        (ring, 0, (Some(7), Some(GPU_NODE))),
        (ring + 4096, 0, (None, None)),
        (ring, -22, (None, None)),
    ] {
        let mut capture = Synthetic::new(&Recording::default());
        for agent in gpu::agents() {
            capture.meta(agent);
        }
        // The records come in the order of the rings, not in order of time.
        capture.record(&gpu::packet(0, 5 * MS, 0));
        capture.record(&created_queue(address, 2 * MS, result));
        let (events, tally) = read(&mut capture);
        assert_eq!((tally.malformed_records, tally.unknown_records), (0, 0));
        let queues: Vec<_> = events
            .iter()
            .filter_map(|event| match event {
                Event::Queue(info) => Some((info.kfd_id, info.node_id)),
                _ => None,
            })
            .collect();
        assert_eq!(queues, [expected], "{address:#x} {result}");
    }
}

#[test]
fn overtaken_packets_have_no_caller_and_strange_ones_a_remark() {
    let mut capture = capture();
    let mut strange = gpu::packet(3, 70 * MS, 0);
    strange.packet[0] = 4 << 16;
    capture.record(&gpu::packet(0, 50 * MS, 0));
    capture.record(&gpu::packet(2, 60 * MS, 0)).record(&strange);
    let mut overtaken = gpu::packet(1, 60 * MS, 0);
    overtaken.flags =
        packet_flags::BEFORE_DOORBELL | packet_flags::READ_LATER | packet_flags::OVERTAKEN;
    overtaken.packet[0] = overtaken.packet[0] & !0xffff | 1;
    capture.record(&overtaken);
    let (events, _) = read(&mut capture);
    let origins: Vec<(u64, u32, u64)> = dispatches(&events)
        .iter()
        .map(|dispatch| (dispatch.index, dispatch.origin.tid, dispatch.origin.time))
        .collect();
    assert_eq!(
        origins,
        [(0, PID, 50 * MS), (1, 0, 50 * MS), (2, PID, 60 * MS)]
    );
    let notices = events.iter().filter_map(|event| match event {
        Event::Notice(notice) => Some(notice.text.as_str()),
        _ => None,
    });
    let strange = "Packets of queues are of AMD's format 4 (1 of them)";
    assert!(notices.into_iter().any(|text| text.starts_with(strange)));
}
