//! Allocations by synthetic calls.

use proptest::prelude::*;

use super::*;
use crate::model::values::Pointee;

const NAMES: [&str; 9] = [
    "hipMalloc",
    "hipFree",
    "hipMallocAsync",
    "hipMallocPitch",
    "hipMalloc3D",
    "hipMallocArray",
    "hipArrayCreate",
    "hipHostRegister",
    "hipDeviceReset",
];

fn memory() -> HipMemory {
    let mut memory = HipMemory::default();
    for (id, name) in (0..).zip(NAMES) {
        memory.function(&FunctionInfo::named(id, name, Some(Domain::HipRuntime)));
    }
    memory
}

fn call(name: &str, (begin, end): (u64, u64), args: [u64; 6]) -> Call {
    Call {
        function: NAMES.iter().position(|known| *known == name).unwrap() as u32,
        domain: Domain::HipRuntime.id(),
        args,
        how: CallEnd::Returned(0),
        ..crate::synthetic::call(begin, begin, end)
    }
}

fn storing(mut call: Call, word: u8, words: &[u64]) -> Call {
    call.pointees.push(Pointee {
        word,
        at_return: true,
        data: PointeeData::Bytes(words.iter().flat_map(|word| word.to_le_bytes()).collect()),
    });
    call
}

/// Takes a call; memory below 2^20 belongs to node 1, which is GPU 77.
fn take(memory: &mut HipMemory, call: &Call) {
    assert!(memory.call(call, |address| (address < 1 << 20).then_some(1)));
}

fn settle(memory: &mut HipMemory) -> Vec<Observation> {
    let mut events: Vec<Event> = Vec::new();
    memory.settle(|node| (node == 1).then_some(77), &mut events);
    let one = |event| match event {
        Event::Observation(one) => *one,
        other => panic!("{other:?}"),
    };
    events.into_iter().map(one).collect()
}

fn shown(observations: &[Observation]) -> Vec<String> {
    let one = |one: &Observation| {
        let fields = one
            .fields
            .iter()
            .filter(|field| field.name != "correlation_id");
        let fields: Vec<String> = fields
            .map(|field| format!("{}={}", field.name, field.value))
            .collect();
        format!("{} {} {}", one.name, one.whose.gpu_id, fields.join(" "))
    };
    observations.iter().map(one).collect()
}

#[test]
fn an_inner_address_frees_the_whole() {
    let mut memory = memory();
    let begun = |name, times, bytes, address| {
        storing(call(name, times, [0, bytes, 0, 0, 0, 0]), 0, &[address])
    };
    let array = storing(call("hipArrayCreate", (14, 15), [0; 6]), 0, &[0x9000]);
    for call in [
        begun("hipMalloc", (10, 11), 0x2000, 0x1000),
        begun("hipMalloc", (12, 13), 0x100, 0x4000),
        // Two channels of 3 x 10 floats, behind a handle.
        storing(array, 1, &[10, 3, 0x20 | 2 << 32]),
        call("hipFree", (20, 21), [0x2fff, 0, 0, 0, 0, 0]),
        // One byte behind the end, and beside a handle.
        call("hipFree", (22, 23), [0x4100, 0, 0, 0, 0, 0]),
        call("hipFree", (24, 25), [0x9001, 0, 0, 0, 0, 0]),
    ] {
        take(&mut memory, &call);
    }
    let freed = shown(&settle(&mut memory)).split_off(3);
    assert_eq!(
        freed,
        [
            "hipFree 77 bytes=8192 address=0x2fff memory=device node=1 live_hip_bytes=496",
            "hipFree 0 bytes=0 address=0x4100",
            "hipFree 0 bytes=0 address=0x9001",
        ]
    );
    assert!(
        memory
            .remarks()
            .iter()
            .any(|text| text.starts_with("2 frees by HIP without"))
    );
}

#[test]
fn every_way_of_allocating_has_its_size() {
    let mut memory = memory();
    let mut extent = storing(call("hipMalloc3D", (30, 31), [0; 6]), 0, &[0x3000, 512]);
    extent.stack = [100, 10, 4, 0, 0, 0, 0, 0];
    // 8 and 24 bits: 4 bytes per element.
    let array = storing(
        call("hipMallocArray", (40, 41), [0, 0, 16, 0, 0, 0]),
        0,
        &[0x4000],
    );
    let array = storing(array, 1, &[8 | 24 << 32, 0]);
    // Two channels of floats.
    let created = storing(call("hipArrayCreate", (50, 51), [0; 6]), 0, &[0x5000]);
    let created = storing(created, 1, &[10, 3, 0x20 | 2 << 32]);
    let pitched = storing(
        call("hipMallocPitch", (20, 21), [0, 0, 100, 7, 0, 0]),
        0,
        &[0x2000],
    );
    let mut failed = storing(
        call("hipMalloc", (70, 71), [0, 9, 0, 0, 0, 0]),
        0,
        &[0x7000],
    );
    failed.how = CallEnd::Returned(2);
    for call in [
        storing(
            call("hipMalloc", (10, 11), [0, 100, 0, 0, 0, 0]),
            0,
            &[0x1000],
        ),
        storing(pitched, 1, &[128]),
        extent,
        array,
        created,
        call("hipHostRegister", (60, 61), [0x6000, 4096, 0, 0, 0, 0]),
        failed,
        // The stored address was not read.
        call("hipMalloc", (80, 81), [0, 9, 0, 0, 0, 0]),
        call("hipFree", (90, 91), [0; 6]),
        call("hipFree", (92, 93), [0x2000, 0, 0, 0, 0, 0]),
        call("hipFree", (94, 95), [0x2000, 0, 0, 0, 0, 0]),
    ] {
        take(&mut memory, &call);
    }
    assert_eq!(
        shown(&settle(&mut memory)),
        [
            "hipMalloc 77 bytes=100 address=0x1000 memory=device node=1 live_hip_bytes=100",
            "hipMallocPitch 77 bytes=896 address=0x2000 memory=device node=1 live_hip_bytes=996",
            "hipMalloc3D 77 bytes=20480 address=0x3000 memory=device node=1 live_hip_bytes=21476",
            "hipMallocArray 77 bytes=64 address=0x4000 memory=array node=1 live_hip_bytes=21540",
            "hipArrayCreate 77 bytes=240 address=0x5000 memory=array node=1 live_hip_bytes=21780",
            "hipHostRegister 0 bytes=4096 address=0x6000 memory=registered",
            "hipFree 77 bytes=896 address=0x2000 memory=device node=1 live_hip_bytes=20884",
            "hipFree 0 bytes=0 address=0x2000",
        ]
    );
    assert_eq!(
        memory.remarks(),
        [
            "Memory requested from HIP while recording (device): 21.48 kB at its peak. Not freed \
             by its end: 100 B in 1 allocation by hipMalloc. Not freed by its end: 20.48 kB in 1 \
             allocation by hipMalloc3D.",
            "Memory requested from HIP while recording (registered): 4.10 kB at its peak. Not \
             freed by its end: 4.10 kB in 1 allocation by hipHostRegister.",
            "Memory requested from HIP while recording (array): 304 B at its peak. Not freed by \
             its end: 64 B in 1 allocation by hipMallocArray. Not freed by its end: 240 B in 1 \
             allocation by hipArrayCreate.",
            "1 free by HIP without an allocation in the recording: most likely it was made before. \
             These figures do not include it.",
        ]
    );
}

#[test]
fn an_address_that_another_thread_gets_again_is_not_freed_for_it() {
    let mut memory = memory();
    let allocate = |times| {
        storing(
            call("hipMallocAsync", times, [0, 64, 0, 0, 0, 0]),
            0,
            &[0x1000],
        )
    };
    let free = |times| call("hipFree", times, [0x1000, 0, 0, 0, 0, 0]);
    // The second allocation began before the call that freed the first, and got its address.
    for call in [allocate((10, 20)), allocate((25, 40)), free((30, 45))] {
        take(&mut memory, &call);
    }
    settle(&mut memory);
    assert_eq!(memory.live.len(), 1, "{:?}", memory.live);
    // The free comes after the allocation that reuses its address.
    take(&mut memory, &free((50, 90)));
    take(&mut memory, &allocate((60, 70)));
    settle(&mut memory);
    assert_eq!(memory.live.len(), 1, "{:?}", memory.live);
    assert_eq!(memory.nodes.get(&1), Some(&64));
}

#[test]
fn a_reset_frees_all_of_the_only_gpu() {
    let mut memory = memory();
    take(
        &mut memory,
        &storing(
            call("hipMalloc", (10, 11), [0, 100, 0, 0, 0, 0]),
            0,
            &[0x1000],
        ),
    );
    take(
        &mut memory,
        &call("hipHostRegister", (20, 21), [0x6000, 4096, 0, 0, 0, 0]),
    );
    take(&mut memory, &call("hipDeviceReset", (30, 31), [0; 6]));
    settle(&mut memory);
    assert_eq!(memory.live.len(), 1, "{:?}", memory.live);
    memory.ended(crate::synthetic::call(1, 1, 1).pid);
    assert!(memory.live.is_empty());
}

#[test]
fn memory_belongs_to_the_agent_of_which_hsa_gets_it_within_the_call() {
    let mut memory = memory();
    let far =
        |times, address| storing(call("hipMalloc", times, [0, 64, 0, 0, 0, 0]), 0, &[address]);
    let other = crate::synthetic::call(1, 1, 1).pid + 1;
    take(&mut memory, &far((10, 20), 1 << 30));
    take(&mut memory, &far((30, 40), (1 << 30) + 4096));
    // The same address again, on another GPU.
    take(&mut memory, &far((50, 60), 1 << 30));
    let mut hsa = |pid, (begin, end), bytes, node| {
        let call = Call {
            pid,
            ..crate::synthetic::call(1, begin, end)
        };
        memory.placed(&call, (1 << 30, bytes), Some(node));
    };
    hsa(other, (12, 18), 8192, 2);
    hsa(other - 1, (12, 18), 4096, 1);
    hsa(other - 1, (52, 58), 4096, 3);
    let nodes: Vec<_> = settle(&mut memory)
        .iter()
        .map(|one| one.get("node").map(ToString::to_string))
        .collect();
    assert_eq!(nodes, [Some("1".to_owned()), None, Some("3".to_owned())]);
}

proptest! {
    #[test]
    fn what_is_live_is_what_was_not_freed(
        steps in proptest::collection::vec((0..3_u8, 0..8_u64, 1..1000_u64), 0..60),
        settle_every in 1..10_usize,
    ) {
        let mut memory = memory();
        let mut model: BTreeMap<u64, u64> = BTreeMap::new();
        for (time, (what, place, bytes)) in (10_u64..).step_by(10).zip(&steps) {
            let address = 0x1000 * (place + 1);
            let call = if *what == 0 {
                model.remove(&address);
                call("hipFree", (time, time + 1), [address, 0, 0, 0, 0, 0])
            } else {
                model.insert(address, *bytes);
                storing(call("hipMalloc", (time, time + 1), [0, *bytes, 0, 0, 0, 0]), 0, &[address])
            };
            take(&mut memory, &call);
            if (time as usize / 10).is_multiple_of(settle_every) {
                settle(&mut memory);
            }
        }
        settle(&mut memory);
        let live: BTreeMap<u64, u64> = memory.live.iter().map(|((_, at), live)| (*at, live.bytes)).collect();
        prop_assert_eq!(&live, &model);
        prop_assert_eq!(memory.nodes.get(&1).copied().unwrap_or(0), model.values().sum::<u64>());
    }
}
