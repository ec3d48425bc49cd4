//! Scratch memory of queues: turns changes of queue descriptors into allocations and frees.

use std::collections::{BTreeMap, VecDeque};

use gputrace_abi::{
    domain::Domain,
    gpu::{ScratchState, USE_SCRATCH_ONCE},
};
use gputrace_text::tables;

use crate::model::{
    event::Event,
    gpu::QueueInfo,
    observation::{FieldValue, Observation, ObservedField, Whose},
};

/// Bit of rocprofiler-sdk's scratch memory flags (`ROCPROFILER_SCRATCH_ALLOC_FLAG_USE_ONCE`): the
/// memory is given back when the kernel has ended.
const FLAG_USE_ONCE: u64 = 1;

/// The operations' names in rocprofiler-sdk.
const ALLOCATED: &str = "SCRATCH_MEMORY_ALLOC";
const FREED: &str = "SCRATCH_MEMORY_FREE";

/// The scratch memory held by a queue.
#[derive(Clone, Debug)]
struct Held {
    info: QueueInfo,
    gpu_id: u32,
    address: u64,
    bytes: u64,
    lane_bytes: u32,
    once: bool,
}

/// How far back a queue is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Followed {
    /// A time before all of its known packets, ns.
    pub(crate) since: u64,
    /// Whether its very first packet is among the known packets.
    pub(crate) from_first: bool,
}

/// Follows scratch memory. Grows with the number of queues that hold some.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    held: BTreeMap<u32, Held>,
    /// Bytes held, by topology node.
    live: BTreeMap<Option<u32>, u64>,
    /// Queues that held scratch memory when first looked at, since an unknown time: their number,
    /// and the bytes.
    before: (u64, u64),
}

impl Scratch {
    /// The queue's descriptor has changed since the previous look.
    ///
    /// Scratch memory found at the first look was allocated for some packet. If that packet may be
    /// older than the recording, nothing bounds the time of the allocation, and no event is emitted
    /// for it; the memory is only counted.
    pub(crate) fn changed(
        &mut self,
        state: &ScratchState,
        info: &QueueInfo,
        gpu_id: u32,
        followed: Followed,
        events: &mut VecDeque<Event>,
    ) {
        let is_first = state.looked == 0;
        let begin = if is_first {
            followed.since
        } else {
            state.looked
        };
        let times = (begin.min(state.time), state.time);
        if let Some(held) = self.held.remove(&info.number) {
            self.freed(&held, times, events);
        }
        if state.location == 0 {
            return;
        }
        let held = Held {
            info: *info,
            gpu_id,
            address: state.location,
            bytes: state.bytes,
            lane_bytes: state.lane_bytes,
            once: state.properties & USE_SCRATCH_ONCE != 0,
        };
        let live = self.live.entry(info.node_id).or_default();
        *live = live.saturating_add(held.bytes);
        let live = *live;
        if is_first && !followed.from_first {
            let (queues, bytes) = &mut self.before;
            *queues += 1;
            *bytes = bytes.saturating_add(held.bytes);
        } else {
            events.push_back(event(ALLOCATED, &held, live, times));
        }
        self.held.insert(info.number, held);
    }

    /// Handles the destruction of a queue, which frees its memory.
    pub(crate) fn queue_ended(&mut self, number: u32, time: u64, events: &mut VecDeque<Event>) {
        if let Some(held) = self.held.remove(&number) {
            self.freed(&held, (time, time), events);
        }
    }

    /// Forgets a queue that is gone together with its process.
    pub(crate) fn forget(&mut self, number: u32) {
        if let Some(held) = self.held.remove(&number) {
            self.took(&held);
        }
    }

    /// A remark about memory for which no event was emitted.
    pub(crate) fn remark(&self) -> Option<String> {
        let (queues, bytes) = self.before;
        (queues > 0).then(|| {
            format!(
                "Before the recording, {} already had {} of scratch memory. When it was allocated \
                 is not known, so there is no event for that; there is one when it is freed.",
                tables::count(queues, "queue"),
                tables::bytes(bytes)
            )
        })
    }

    fn took(&mut self, held: &Held) -> u64 {
        let live = self.live.entry(held.info.node_id).or_default();
        *live = live.saturating_sub(held.bytes);
        *live
    }

    fn freed(&mut self, held: &Held, times: (u64, u64), events: &mut VecDeque<Event>) {
        let live = self.took(held);
        events.push_back(event(FREED, held, live, times));
    }
}

/// `times` are the looks at the queue between which the event happened. The first look still found
/// the old state.
fn event(name: &'static str, held: &Held, live: u64, (begin, end): (u64, u64)) -> Event {
    let flags = if held.once { FLAG_USE_ONCE } else { 0 };
    let mut fields = vec![
        ObservedField::new("bytes", FieldValue::Number(held.bytes)),
        ObservedField::new("address", FieldValue::Hex(held.address)),
        ObservedField::new("queue", FieldValue::Number(held.info.number.into())),
        ObservedField::new("hsa_queue_id", FieldValue::Number(held.info.id)),
        ObservedField::new(
            "bytes_per_work_item",
            FieldValue::Number(held.lane_bytes.into()),
        ),
        ObservedField::new("flags", FieldValue::Number(flags)),
        ObservedField::new("quality", FieldValue::Text("sampled".into())),
    ];
    if let Some(node) = held.info.node_id {
        fields.push(ObservedField::new("node", FieldValue::Number(node.into())));
        fields.push(ObservedField::new(
            "live_scratch_bytes",
            FieldValue::Number(live),
        ));
    }
    Event::Observation(Box::new(Observation {
        domain: Domain::ScratchMemory.id(),
        name: name.into(),
        whose: Whose {
            pid: held.info.pid,
            tid: 0,
            gpu_id: held.gpu_id,
        },
        begin,
        end,
        is_open: false,
        fields,
    }))
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros as _;

    use super::*;

    fn state(looked: u64, time: u64, location: u64, bytes: u64) -> ScratchState {
        let mut state = ScratchState::new_zeroed();
        (state.looked, state.time) = (looked, time);
        (state.location, state.bytes, state.lane_bytes) = (location, bytes, 1040);
        state.properties = USE_SCRATCH_ONCE;
        state
    }

    fn queue(number: u32) -> QueueInfo {
        QueueInfo {
            number,
            pid: 7,
            id: 3,
            node_id: Some(1),
            packets: 64,
            kfd_id: None,
            is_older: false,
        }
    }

    /// Name, times, bytes, and live bytes of each event.
    fn told(events: &mut VecDeque<Event>) -> Vec<(String, u64, u64, u64, u64)> {
        let one = |event: Event| {
            let Event::Observation(one) = event else {
                panic!("{event:?}")
            };
            let number = |name: &str| match one.get(name) {
                Some(FieldValue::Number(value)) => *value,
                other => panic!("{name}: {other:?}"),
            };
            assert_eq!((one.whose.pid, one.whose.gpu_id), (7, 9));
            assert_eq!((number("flags"), number("node")), (1, 1));
            let live = number("live_scratch_bytes");
            (
                one.name.to_string(),
                one.begin,
                one.end,
                number("bytes"),
                live,
            )
        };
        events.drain(..).map(one).collect()
    }

    const NEW: Followed = Followed {
        since: 50,
        from_first: true,
    };

    #[test]
    fn what_grows_is_freed_and_allocated() {
        let (mut scratch, mut events) = (Scratch::default(), VecDeque::new());
        // Scratch memory for a packet before the first look.
        scratch.changed(&state(0, 100, 0x1000, 4096), &queue(0), 9, NEW, &mut events);
        scratch.changed(
            &state(100, 200, 0x9000, 8192),
            &queue(0),
            9,
            NEW,
            &mut events,
        );
        scratch.changed(
            &state(150, 210, 0x5000, 100),
            &queue(1),
            9,
            NEW,
            &mut events,
        );
        scratch.changed(&state(250, 300, 0, 0), &queue(0), 9, NEW, &mut events);
        scratch.queue_ended(1, 400, &mut events);
        scratch.queue_ended(1, 500, &mut events);
        let one = |name: &str, begin, end, bytes, live| (name.to_owned(), begin, end, bytes, live);
        assert_eq!(
            told(&mut events),
            [
                one(ALLOCATED, 50, 100, 4096, 4096),
                one(FREED, 100, 200, 4096, 0),
                one(ALLOCATED, 100, 200, 8192, 8192),
                one(ALLOCATED, 150, 210, 100, 8292),
                one(FREED, 250, 300, 8192, 100),
                one(FREED, 400, 400, 100, 0),
            ]
        );
    }

    #[test]
    fn what_was_there_before_the_recording_is_no_event() {
        let (mut scratch, mut events) = (Scratch::default(), VecDeque::new());
        let old = Followed {
            from_first: false,
            ..NEW
        };
        scratch.changed(&state(0, 100, 0x1000, 4096), &queue(0), 9, old, &mut events);
        scratch.changed(&state(0, 110, 0, 0), &queue(1), 9, old, &mut events);
        assert_eq!(told(&mut events), []);
        let remark = scratch.remark().unwrap();
        assert!(
            remark.contains(" 4.10 kB ") && remark.contains(" 1 queue "),
            "{remark}"
        );
        // Later changes of this queue, and those of other queues, are events.
        scratch.changed(
            &state(110, 190, 0x5000, 100),
            &queue(1),
            9,
            old,
            &mut events,
        );
        scratch.changed(&state(100, 200, 0, 0), &queue(0), 9, old, &mut events);
        let one = |name: &str, begin, end, bytes, live| (name.to_owned(), begin, end, bytes, live);
        assert_eq!(
            told(&mut events),
            [
                one(ALLOCATED, 110, 190, 100, 4196),
                one(FREED, 100, 200, 4096, 100),
            ]
        );
    }

    #[test]
    fn what_goes_with_its_process_is_not_freed() {
        let (mut scratch, mut events) = (Scratch::default(), VecDeque::new());
        scratch.changed(&state(10, 20, 0x1000, 4096), &queue(0), 9, NEW, &mut events);
        scratch.forget(0);
        scratch.changed(&state(30, 40, 0x1000, 10), &queue(1), 9, NEW, &mut events);
        let live: Vec<u64> = told(&mut events)
            .into_iter()
            .map(|(.., live)| live)
            .collect();
        assert_eq!(live, [4096, 10]);
    }
}
