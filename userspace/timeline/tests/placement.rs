//! Directions of copies where addresses are used again, and where no memory is known.

use std::io::Cursor;

use gputrace_abi::domain::Domain;
use gputrace_capture::{
    CaptureReader,
    meta::{Epoch, Recording},
};
use gputrace_timeline::{
    Timeline,
    event::{Call, Event},
    gpu::{Direction, KnownBy},
    synthetic::{
        self, Synthetic,
        gpu::{self, GPU_NODE},
    },
    values::{Pointee, PointeeData},
};

const MS: u64 = 1_000_000;

/// A capture in which one address belongs first to the GPU, then to the host, and the agents named
/// are one GPU. Nothing is read between 200 and 1200 ms.
fn placed() -> Synthetic {
    let mut capture = Synthetic::new(&Recording::default());
    for agent in gpu::agents() {
        capture.meta(agent);
    }
    for handle in gpu::handles() {
        capture.meta(handle);
    }
    let functions = [
        "hsa_amd_memory_pool_allocate",
        "hsa_amd_memory_pool_free",
        "hsa_amd_memory_lock",
        "hsa_amd_memory_unlock",
    ];
    capture.library(
        "/opt/rocm/lib/libhsa-runtime64.so.1",
        &functions.map(|name| (name, Domain::HsaAmdExt)),
    );
    let call = |function, correlation: u64, (begin, end): (u64, u64), args| Call {
        function,
        domain: Domain::HsaAmdExt.id(),
        args,
        ..synthetic::call(correlation, begin * MS, end * MS)
    };
    let bytes = |word, at_return, words: &[u64]| Pointee {
        word,
        at_return,
        data: PointeeData::Bytes(words.iter().flat_map(|word| word.to_le_bytes()).collect()),
    };
    let (device, host) = (0xd_0000, 0xc_0000);
    let allocated = Call {
        pointees: vec![
            bytes(0, false, &[GPU_NODE.into(), 0, 0]),
            bytes(3, true, &[device]),
        ],
        ..call(0, 1, (10, 20), [0x5000, 0x1_0000, 0, 0x7000, 0, 0])
    };
    let locked = |correlation, times, host, seen_at| Call {
        pointees: vec![bytes(4, true, &[seen_at])],
        ..call(2, correlation, times, [host, 0x1_0000, 0, 0, 0x7000, 0])
    };
    let copy = |time, source, destination| {
        let mut copy = gpu::copy(time * MS, 0x9000 + 0x80 * time);
        copy.source_agent = gpu::GPU_HANDLE;
        (copy.source, copy.destination) = (source, destination);
        copy
    };
    capture
        .record(&copy(5, host, device))
        .call(&allocated)
        .call(&locked(2, (30, 40), host, host))
        .record(&copy(45, host, device))
        .record(&copy(46, device, host))
        .meta(Epoch { time: 50 * MS })
        // Submitted before the free, done after it.
        .record(&copy(55, host, device))
        .call(&call(1, 3, (60, 70), [device, 0, 0, 0, 0, 0]))
        .record(&copy(75, host, device))
        .meta(Epoch { time: 200 * MS })
        .call(&locked(4, (210, 220), device, device))
        .record(&copy(230, host, device))
        .call(&call(3, 5, (240, 250), [host, 0, 0, 0, 0, 0]))
        .record(&copy(260, host, device))
        .meta(Epoch { time: 1200 * MS });
    capture
}

#[test]
fn directions_follow_the_memory_at_the_time_of_submission() {
    let reader = CaptureReader::new(Cursor::new(placed().bytes())).unwrap();
    let timeline = Timeline::new(reader).unwrap();
    let events = timeline.collect::<Result<Vec<_>, _>>().unwrap();
    let copies = events.iter().filter_map(|event| match event {
        Event::Copy(copy) => Some((copy.origin.time / MS, copy.direction, copy.known_by)),
        _ => None,
    });
    let mut seen: Vec<_> = copies.collect();
    seen.sort_by_key(|(time, ..)| *time);
    let memory = Some(KnownBy::Memory);
    assert_eq!(
        seen,
        [
            (5, Direction::Unknown, None),
            (45, Direction::HostToDevice, memory),
            (46, Direction::DeviceToHost, memory),
            (55, Direction::HostToDevice, memory),
            (75, Direction::Unknown, None),
            (230, Direction::HostToHost, memory),
            (260, Direction::Unknown, None),
        ]
    );
    let told = events.iter().any(|event| {
        matches!(event, Event::Notice(notice) if notice.text.contains("direction of 3 is unknown"))
    });
    assert!(told);
}

/// Addresses in memory that is not known.
const ELSEWHERE: [u64; 2] = [0x10_0000, 0x20_0000];

/// A capture of a program that had allocated its memory before: its calls of HIP copy within one
/// GPU, by calls of HSA that name this GPU twice.
fn attached() -> Synthetic {
    let mut capture = Synthetic::new(&Recording::default());
    for agent in gpu::agents() {
        capture.meta(agent);
    }
    for handle in gpu::handles() {
        capture.meta(handle);
    }
    let functions = [
        ("hipMemcpy", Domain::HipRuntime),
        ("hipMemcpyDtoDAsync", Domain::HipRuntime),
        ("hsa_amd_memory_async_copy", Domain::HsaAmdExt),
        ("hsa_amd_memory_pool_allocate", Domain::HsaAmdExt),
    ];
    capture.library("/opt/rocm/lib/libamdhip64.so.6", &functions);
    let [from, to] = ELSEWHERE;
    let mut copied = |time: u64, function, kind, is_hsa_traced| {
        let asked = Call {
            function,
            domain: Domain::HipRuntime.id(),
            args: [to, from, 4096, kind, 0, 0],
            ..synthetic::call(time, time * MS, (time + 4) * MS)
        };
        let mut copy = gpu::copy((time + 2) * MS, 0x9000 + 0x80 * time);
        copy.source_agent = gpu::GPU_HANDLE;
        (copy.source, copy.destination) = (from, to);
        (copy.innermost, copy.outermost) = (time, time);
        if is_hsa_traced {
            copy.innermost = time + 1;
            capture.call(&Call {
                function: 2,
                domain: Domain::HsaAmdExt.id(),
                parent: time,
                ..synthetic::call(time + 1, (time + 1) * MS, (time + 3) * MS)
            });
        }
        capture.record(&copy).call(&asked);
    };
    copied(10, 0, 3, false);
    copied(20, 1, 0, true);
    // The upper half of the word is undefined.
    copied(30, 0, 0xdead_0000_0003, true);
    copied(40, 0, 1024, false);
    copied(50, 0, 4, true);
    copied(60, 0, 77, true);
    // The agents do not tell that it is wrong.
    copied(70, 0, 1, true);
    let nobodys = gpu::copy(80 * MS, 0xa000);
    let nobodys = gputrace_abi::gpu::Copy {
        source_agent: gpu::GPU_HANDLE,
        ..nobodys
    };
    capture.record(&nobodys).meta(Epoch { time: 1200 * MS });
    capture
}

#[test]
fn what_nothing_else_tells_the_call_of_hip_does() {
    let reader = CaptureReader::new(Cursor::new(attached().bytes())).unwrap();
    let timeline = Timeline::new(reader).unwrap();
    let events = timeline.collect::<Result<Vec<_>, _>>().unwrap();
    let copies = events.iter().filter_map(|event| match event {
        Event::Copy(copy) => Some((copy.origin.time / MS, copy.direction, copy.known_by)),
        _ => None,
    });
    let mut seen: Vec<_> = copies.collect();
    seen.sort_by_key(|(time, ..)| *time);
    let call = Some(KnownBy::Call);
    assert_eq!(
        seen,
        [
            (12, Direction::DeviceToDevice, call),
            (22, Direction::DeviceToDevice, call),
            (32, Direction::DeviceToDevice, call),
            (42, Direction::DeviceToDevice, call),
            (52, Direction::Unknown, None),
            (62, Direction::Unknown, None),
            (72, Direction::HostToDevice, call),
            (80, Direction::Unknown, None),
        ]
    );
    let said = |part: &str| {
        events
            .iter()
            .any(|event| matches!(event, Event::Notice(notice) if notice.text.contains(part)))
    };
    assert!(said("where all memory of 8 copies is"));
    assert!(said("direction of 5 is what the program told HIP"));
    assert!(said("direction of 3 is unknown"));
}
