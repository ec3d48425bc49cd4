//! From records about the GPU's work to dispatches and copies.
//!
//! # How it works
//!
//! A first pass over the capture collects all of its metadata in [`knowledge`]. [`Work`] then takes
//! the records. Some records stand later in the capture than records made after them, for example a
//! packet that the collector read from the ring, or a reading made by the watcher. So records are
//! held back for [`LAG`] of the recording's time, and are then used in order of time.
//!
//! * A packet goes to its [`queue`], and stays there until no later record can say more about it.
//! * A packet with a completion signal is a use of that [`signal`], and so is a copy. A reading of
//!   the signal tells about its uses: their stamps, converted to the host's clock, or at least that
//!   they have ended.
//! * Read indices show which packets of a queue had begun.
//! * [`evidence`] derives times from what is proven.
//!
//! # Memory
//!
//! Besides the metadata, at most [`MAX_HELD`] records and at most [`MAX_OPEN`] packets and copies
//! are held. Beyond these limits, the oldest are emitted with what is known of them.
//! known of them.

mod activity;
mod arrivals;
mod completions;
mod copies;
mod departures;
mod evidence;
mod gaps;
mod kernels;
pub(crate) mod knowledge;
mod live;
mod means;
mod packet;
mod place;
mod places;
mod queue;
mod records;
mod scout;
mod scratch;
mod signal;
mod slots;
mod witness;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use foldhash::fast::RandomState;
use gputrace_abi::gpu;
use gputrace_capture::gpu::CodeObject;
use gputrace_kfd::clock::Unresolved;

pub(crate) use self::scout::Scout;
use self::{
    copies::{OpenCopy, Unproven},
    evidence::{Evidence, Exact},
    kernels::Kernels,
    knowledge::{Collected, Knowledge, Losses},
    means::Means,
    place::Placed,
    places::Places,
    queue::{LAST_LOOK, Queue, Settle},
    records::{Due, Records},
    scratch::{Followed, Scratch},
    signal::{Signal, Use, User},
};
use crate::{
    derive::{asked::Asked, before::OldQueues},
    model::{
        event::Event,
        gpu::Dispatch,
        item::{Item, KfdQueue},
    },
};

/// How late a record may stand in the capture, ns. The recorder's rounds are up to 100 ms apart,
/// and it waits for two rounds before it reads a packet itself.
pub(crate) const LAG: u64 = 500_000_000;

/// Maximum number of held records.
const MAX_HELD: usize = 1 << 18;

/// Maximum number of packets and copies held for more information.
const MAX_OPEN: usize = 1 << 19;

/// Maximum number of dispatches whose memory is kept for reuse.
const MAX_SPARE: usize = 1 << 12;

/// Maximum number of unused signals remembered per process.
const MAX_SIGNALS: usize = 1 << 18;

/// State of the GPU's work at the current point of the timeline.
#[derive(Debug)]
pub(crate) struct Work {
    knowledge: Knowledge,
    kernels: Kernels,
    records: Records,
    /// Reused buffers, empty between calls: the uses that a reading tells about, and the users of
    /// those that are over.
    read: Vec<Use>,
    over: Vec<User>,
    processes: HashMap<u32, Process, RandomState>,
    queues: Vec<Queue>,
    /// Memory of emitted dispatches, kept for reuse.
    #[expect(clippy::vec_box, reason = "the boxes are what is kept")]
    spare: Vec<Box<Dispatch>>,
    /// Queues about which something new is known.
    changed: BTreeSet<u32>,
    /// Number of packets in all queues.
    packets: usize,
    copies: BTreeMap<u64, OpenCopy>,
    dispatches: u64,
    copies_seen: u64,
    places: Places,
    /// What the program asked HIP to copy.
    pub(crate) asked: Asked,
    unproven: Unproven,
    scratch: Scratch,
    /// GPUs whose stamps could not be aligned with the host's clock, by node, and the reason.
    unaligned: BTreeMap<Option<u32>, Unresolved>,
    /// Number of packet records for packets that were already known.
    duplicates: u64,
    /// Packets that this version does not know, by [`packet::Aql::unknown`].
    unknown: BTreeMap<(&'static str, u8), u64>,
    latest: u64,
    /// Estimated durations of dispatch classes and, by queue, where the last dispatch was placed.
    means: Means,
    placed: Vec<Placed>,
    /// In a live recording: metadata not yet taken into account.
    learning: Option<Box<Collected>>,
    /// When the recording began, ns `CLOCK_BOOTTIME`.
    began: u64,
}

/// Signals and queues of a process.
#[derive(Debug, Default)]
struct Process {
    signals: HashMap<u64, Signal, RandomState>,
    /// Queue numbers by address and `hsa_queue_t::id`.
    queues: HashMap<(u64, u64), u32, RandomState>,
    /// Number of the queue currently at an address.
    current: HashMap<u64, u32, RandomState>,
    /// All addresses at which there has been a queue.
    addresses: HashSet<u64>,
    /// The driver's queues by the address of their ring buffer.
    rings: HashMap<u64, KfdQueue>,
    /// When it began, or its present program, ns; `None` if the recording does not say.
    began: Option<u64>,
}

impl Work {
    /// The initial state. Agents and code objects go to `events`.
    pub(crate) fn new(collected: Collected, events: &mut VecDeque<Event>) -> Self {
        let (knowledge, code_objects) = collected.finish();
        Self::with(knowledge, code_objects, Means::default(), events)
    }

    fn with(
        knowledge: Knowledge,
        code_objects: Vec<CodeObject>,
        means: Means,
        events: &mut VecDeque<Event>,
    ) -> Self {
        let agents = knowledge.agents().iter();
        events.extend(agents.map(|agent| Event::Agent(Box::new(agent.clone()))));
        Self {
            knowledge,
            kernels: Kernels::new(code_objects, events),
            records: Records::default(),
            read: Vec::new(),
            over: Vec::new(),
            processes: HashMap::default(),
            queues: Vec::new(),
            spare: Vec::new(),
            changed: BTreeSet::new(),
            packets: 0,
            copies: BTreeMap::new(),
            dispatches: 0,
            copies_seen: 0,
            places: Places::default(),
            asked: Asked::default(),
            unproven: Unproven::default(),
            scratch: Scratch::default(),
            unaligned: BTreeMap::new(),
            duplicates: 0,
            unknown: BTreeMap::new(),
            latest: 0,
            means,
            placed: Vec::new(),
            learning: None,
            began: 0,
        }
    }

    /// Notes when the recording began, ns `CLOCK_BOOTTIME`.
    pub(crate) fn begin(&mut self, time: u64) {
        self.began = time;
    }

    /// Holds a record until it is due.
    #[inline(always)]
    pub(crate) fn take(&mut self, item: Item) {
        self.records.push(item);
    }

    /// KFD's id of the only GPU; `None` if there are several, or none is known.
    pub(crate) fn only_gpu(&self) -> Option<u32> {
        self.knowledge.only_gpu()
    }

    /// The node that executes a dispatch: its own if known, otherwise that of its queue.
    pub(crate) fn node_of(&self, dispatch: &Dispatch) -> Option<u32> {
        let of_queue = || self.queues.get(dispatch.queue as usize)?.info.node_id;
        dispatch.node_id.or_else(of_queue)
    }

    /// Keeps the memory of a dispatch for reuse.
    pub(crate) fn take_back(&mut self, dispatch: Box<Dispatch>) {
        if self.spare.len() < MAX_SPARE {
            self.spare.push(dispatch);
        }
    }

    /// Whether so many records are held that some must be used now.
    pub(crate) fn is_full(&self) -> bool {
        self.records.len() >= MAX_HELD
    }

    /// Number of queues that existed before the recording, in all and with a known GPU.
    pub(crate) fn older_queues(&self) -> OldQueues {
        let older = self.queues.iter().filter(|queue| !queue.from_first);
        older.fold(OldQueues::default(), |sum, queue| OldQueues {
            found: sum.found + 1,
            with_gpu: sum.with_gpu + u64::from(queue.info.node_id.is_some()),
        })
    }

    /// Number of packet records for packets that were already known.
    pub(crate) fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// Uses the records made up to [`LAG`] before `until`.
    pub(crate) fn advance(&mut self, until: u64, events: &mut VecDeque<Event>) {
        self.use_until(until.saturating_sub(LAG), events);
    }

    /// Uses the oldest half of the held records.
    pub(crate) fn make_room(&mut self, events: &mut VecDeque<Event>) {
        let mut left = MAX_HELD / 2;
        while let Some(due) = self.records.oldest(left) {
            left -= due.len();
            self.use_records(due, events);
        }
        self.settle_changed(events);
    }

    /// Uses all records and emits everything left.
    pub(crate) fn finish(&mut self, events: &mut VecDeque<Event>) {
        self.use_until(u64::MAX, events);
        let since = self.latest.saturating_sub(LAST_LOOK);
        let unfinished: Vec<User> = self
            .processes
            .values()
            .flat_map(|process| process.signals.values())
            .filter_map(|signal| signal.unfinished(since))
            // A record may have been lost whose packet or copy the signal stands for.
            .filter(|(_, from, to)| self.knowledge.losses(*from, *to) == Losses::None)
            .map(|(user, ..)| user)
            .collect();
        for user in unfinished {
            match user {
                User::Packet { queue, index } => {
                    if let Some(slot) = self
                        .queue_mut(queue)
                        .and_then(|queue| queue.slot_mut(index))
                    {
                        slot.evidence.unfinished = true;
                    }
                }
                User::Copy(id) => {
                    if let Some(copy) = self.copies.get_mut(&id) {
                        copy.evidence.unfinished = true;
                    }
                }
            }
        }
        for number in 0..self.queues.len() {
            self.settle(number as u32, Settle::All(self.latest), events);
        }
        for copy in std::mem::take(&mut self.copies).into_values() {
            events.push_back(copy.event());
        }
        self.means
            .finish(self.queues.iter().map(|queue| &queue.info));
        let classes = self.means.classes();
        events.extend(classes.map(|class| Event::KernelClass(Box::new(class))));
    }

    /// Remarks for the reader about the times of some GPUs, the directions of copies, and unknown
    /// packets.
    pub(crate) fn remarks(&self) -> impl Iterator<Item = String> {
        let unaligned = self.unaligned.iter().map(|(node, why)| {
            let whose = match node {
                Some(node) => format!("the GPU of node {node}"),
                None => "a GPU of unknown node".to_owned(),
            };
            format!(
                "Times of {whose} are not aligned with the host's: {why}. Its dispatches and copies have no exact times."
            )
        });
        let unknown = self.unknown.iter().map(|((what, number), packets)| {
            format!(
                "Packets of queues are of {what} {number} ({packets} of them), which this version of \
                 gputrace does not know. If they start kernels, these are missing. A newer gputrace \
                 may know them."
            )
        });
        unaligned
            .chain(self.scratch.remark())
            .chain(self.unproven.remark())
            .chain(unknown)
    }

    fn use_until(&mut self, until: u64, events: &mut VecDeque<Event>) {
        while let Some(due) = self.records.due(until) {
            let is_part = due.is_part();
            self.use_records(due, events);
            if is_part {
                break;
            }
        }
        self.settle_changed(events);
    }

    fn use_records(&mut self, due: Due, events: &mut VecDeque<Event>) {
        for item in due.iter() {
            self.latest = self.latest.max(item.time());
            match item {
                Item::Packet(packet) => self.packet(packet, events),
                Item::Completion(reading) => self.completion(reading, events),
                Item::Copy(copy) => self.copy(copy, events),
                Item::Queue(state) => self.queue_state(state, events),
                Item::Scratch(state) => self.scratch_state(state, events),
                Item::Activity(reading) => self.activity(reading, events),
                Item::Ring(ring) => self.ring(ring),
                Item::Placement(change) => self.places.change(change, &self.knowledge),
                Item::Restart { time, pid } => self.restart(*time, *pid, events),
                Item::Exit { pid, time } => self.exit(*pid, *time),
            }
            if self.packets + self.copies.len() > MAX_OPEN {
                self.give_up_oldest(events);
            }
        }
        self.records.recycle(due);
    }

    fn settle_changed(&mut self, events: &mut VecDeque<Event>) {
        for number in std::mem::take(&mut self.changed) {
            self.settle(number, Settle::Ripe, events);
        }
    }

    fn queue_mut(&mut self, number: u32) -> Option<&mut Queue> {
        self.queues.get_mut(number as usize)
    }

    fn use_signal(
        &mut self,
        pid: u32,
        address: u64,
        user: User,
        time: u64,
        events: &mut VecDeque<Event>,
    ) {
        let process = self.processes.entry(pid).or_default();
        if process.signals.len() >= MAX_SIGNALS {
            process.signals.retain(|_, signal| !signal.uses.is_empty());
        }
        let signal = process.signals.entry(address).or_default();
        signal.add(user, time);
        // The program would not reuse the signal if they had not ended, and no further reading
        // concerns them.
        let over = signal.uses.extract_if(.., |used| used.ended);
        self.over.extend(over.map(|used| used.user));
        self.close_over(events);
    }

    /// Closes the uses in `over`.
    fn close_over(&mut self, events: &mut VecDeque<Event>) {
        if self.over.is_empty() {
            return;
        }
        let mut over = std::mem::take(&mut self.over);
        for user in over.drain(..) {
            self.close(user, events);
        }
        self.over = over;
    }

    /// Handles a change of a queue's scratch memory.
    fn scratch_state(&mut self, state: &gpu::ScratchState, events: &mut VecDeque<Event>) {
        let process = self.processes.get(&state.pid);
        let number = process.and_then(|process| process.current.get(&state.queue));
        let Some(queue) = number.and_then(|number| self.queues.get(*number as usize)) else {
            return;
        };
        let gpu_id = queue
            .info
            .node_id
            .and_then(|node| self.knowledge.gpu_of_node(node));
        let followed = Followed {
            since: queue.since,
            from_first: queue.from_first,
        };
        self.scratch
            .changed(state, &queue.info, gpu_id.unwrap_or(0), followed, events);
    }

    /// From now on, process `pid` is another program, or another process with the same id.
    fn restart(&mut self, time: u64, pid: u32, events: &mut VecDeque<Event>) {
        self.places.restart(pid, time, &self.knowledge);
        let began = Process {
            began: Some(time),
            ..Process::default()
        };
        let Some(process) = self.processes.insert(pid, began) else {
            return;
        };
        for number in process.queues.into_values() {
            self.scratch.forget(number);
            if let Some(queue) = self.queue_mut(number) {
                queue.abandon(time);
                self.changed.insert(number);
            }
        }
        let uses = process.signals.into_values().flat_map(|signal| signal.uses);
        let copies = uses.filter_map(|used| match used.user {
            User::Copy(id) => Some(id),
            User::Packet { .. } => None,
        });
        // In the order of their ids: the map's own is another one each time.
        for id in copies.collect::<BTreeSet<u64>>() {
            self.close(User::Copy(id), events);
        }
    }

    /// The main thread of process `pid` ended, and most likely the process too.
    fn exit(&mut self, pid: u32, time: u64) {
        self.places.restart(pid, time, &self.knowledge);
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        process.signals.retain(|_, signal| !signal.uses.is_empty());
        process.signals.shrink_to_fit();
        // Most processes of a node do not use GPUs.
        if process.signals.is_empty() && process.queues.is_empty() && process.rings.is_empty() {
            self.processes.remove(&pid);
        }
    }

    /// The evidence about a packet or copy, for adding to it.
    fn evidence(&mut self, user: User) -> Option<&mut Evidence> {
        match user {
            User::Packet { queue, index } => {
                self.changed.insert(queue);
                let slot = self
                    .queue_mut(queue)
                    .and_then(|queue| queue.slot_mut(index));
                slot.map(|slot| &mut slot.evidence)
            }
            User::Copy(id) => self.copies.get_mut(&id).map(|copy| &mut copy.evidence),
        }
    }

    fn ended_by(&mut self, user: User, time: u64) {
        if let Some(evidence) = self.evidence(user) {
            evidence.ended_by = Some(evidence.ended_by.map_or(time, |known| known.min(time)));
        }
    }

    fn stamp(&mut self, user: User, exact: Exact) {
        if let Some(evidence) = self.evidence(user) {
            evidence.exact = Some(exact);
        }
    }

    /// Closes a use of a signal, because nothing more will become known of it.
    fn close(&mut self, user: User, events: &mut VecDeque<Event>) {
        match user {
            User::Packet { queue, index } => {
                self.changed.insert(queue);
                if let Some(slot) = self
                    .queue_mut(queue)
                    .and_then(|queue| queue.slot_mut(index))
                {
                    slot.open = false;
                }
            }
            User::Copy(id) => events.extend(self.copies.remove(&id).map(OpenCopy::event)),
        }
    }

    /// Emits half of the open packets and copies, oldest first.
    fn give_up_oldest(&mut self, events: &mut VecDeque<Event>) {
        for number in 0..self.queues.len() {
            let packets = self.queues.get(number).map_or(0, Queue::len);
            if packets > 0 {
                self.settle(number as u32, Settle::AtLeast(packets.div_ceil(2)), events);
            }
        }
        if self.copies.len() > MAX_OPEN / 2 {
            for _ in 0..MAX_OPEN / 4 {
                let Some((id, copy)) = self.copies.pop_first() else {
                    break;
                };
                self.forget_use(copy.origin().pid, copy.signal(), User::Copy(id));
                events.push_back(copy.event());
            }
        }
    }

    fn forget_use(&mut self, pid: u32, signal: u64, user: User) {
        let signals = self
            .processes
            .get_mut(&pid)
            .map(|process| &mut process.signals);
        if let Some(signal) = signals.and_then(|signals| signals.get_mut(&signal)) {
            signal.uses.retain(|used| used.user != user);
        }
    }
}
