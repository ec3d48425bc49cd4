//! What records tell of queues and signals while they pass: what is new, what is missing, what is open.
//!
//! Nothing here changes a record. Three things are done that programs in the kernel cannot do: to describe queues
//! and agents, and tell the session of kernels, when they are seen for the first time; to read packets that were
//! passed over (one doorbell may stand for hundreds); and to keep the watcher informed.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::mpsc::Sender,
    time::Instant,
};

use gputrace_abi::{
    domain::Domain,
    gpu::{
        Completion, Copy, Described, PACKETS_PER_DOORBELL, Packet, QueueState, SDMA_UNKNOWN,
        completion_reason, packet_flags, queue_reason,
    },
    kfd::{ShortIoctl, ioctl_flags},
    record::kind,
};
use gputrace_capture::{
    Meta,
    gpu::{AgentHandle, AgentKind},
};
use gputrace_kfd::clock::traced;
use zerocopy::FromBytes as _;

use crate::{
    CollectorEvent, clocks,
    limits::{Limits, What},
    watch::Watch,
};

/// Packets that one doorbell can have gone past without being counted; the timeline's count of indices shows that there
/// were more.
const MOST_MISSING: u64 = 65_536;

/// Rounds for which a missing packet's own doorbell is waited for.
const PATIENCE: u32 = 2;

/// What is known of queues, signals, kernels and agents.
pub(crate) struct GpuTracker {
    queues: BTreeMap<(u32, u64), Queue>,
    kernels: HashSet<(u32, u64)>,
    agents: Vec<(u32, AgentKind)>,
    /// Whether the watcher reads the GPUs' clocks.
    has_clocks: bool,
    /// Whether it looks at the scratch memory of queues.
    scratch: bool,
    watcher: Sender<Watch>,
    /// What one process may ask for.
    pub(crate) limits: Limits,
    /// Packets that were missing from queues and processes that have ended since the last round.
    gone: usize,
    /// Packets, of any process, that were missing and are not looked for, since the last round.
    refused: u64,
    /// Whether packets of a whole doorbell and more have gone missing since the last round.
    is_behind: bool,
    /// For the watcher, handed over once per round.
    changes: Vec<(u32, Change)>,
    /// Which structures of a runtime were not as they are known.
    unknown: BTreeSet<Unknown>,
    /// What the reader of the recording is to be told, once.
    remarks: Vec<String>,
}

/// A structure of the HSA runtime that is read from outside, and checked before it is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Unknown {
    /// What is behind a completion signal.
    Signal,
    /// A queue's object, or what leads from it to the agent.
    Queue,
    /// An agent.
    Agent,
}

impl Unknown {
    /// What is lost by it.
    fn remark(self, pid: u32) -> String {
        let (what, lost) = match self {
            Self::Signal => (
                "lays out completion signals",
                "copies by DMA engines have no exact times, only bounds",
            ),
            Self::Queue => (
                "lays out queues",
                "queues are shown without their agent, and on a node with several GPUs their kernels have no exact \
                 times, only bounds",
            ),
            Self::Agent => (
                "lays out agents",
                "copies and queues are shown without their agents, and on a node with several GPUs have no exact \
                 times, only bounds",
            ),
        };
        format!(
            "the HSA runtime of process {pid} {what} in a way that this version of gputrace does not know: {lost}. A \
             newer gputrace may know it"
        )
    }
}

/// What the watcher is told of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// A packet without a completion signal went to this queue: only its indices tell of it.
    Unsignalled(u64),
    /// A kernel that needs private memory went to this queue, which may get scratch memory for it.
    Private(u64),
    /// A queue that is to be looked at when the recording stops.
    Queue(u64),
    /// The queue is gone.
    QueueGone(u64),
    /// Something will complete this signal.
    Open(u64),
    /// The signal has been read.
    Read(u64),
}

impl Change {
    /// Whether it tells of work for a GPU.
    pub(crate) fn is_work(&self) -> bool {
        matches!(
            self,
            Self::Unsignalled(_) | Self::Private(_) | Self::Queue(_) | Self::Open(_)
        )
    }
}

/// How far the packets of a queue have been seen.
#[derive(Debug)]
struct Queue {
    id: u64,
    next: u64,
    /// Missing packets: index, and the packet behind it, whose doorbell went past; with the rounds since.
    missing: BTreeMap<u64, (Packet, u32)>,
    /// Whether the watcher has been told of a packet without a signal since the last round.
    unsignalled: bool,
    /// Whether the watcher has been told of a kernel with private memory since the last round.
    private: bool,
    /// Whether packets may have been passed over on purpose since the last one.
    passed_over: bool,
    /// Rounds since the queue or its process ended; `None` while it lives. Packets from before that may be in the ring of
    /// another processor, which is read later.
    ended: Option<u32>,
}

/// Packets that no program has read.
#[derive(Debug, Default)]
pub(crate) struct Missing {
    /// Nobody can read them any more.
    pub(crate) gone: usize,
    /// They are more than is done for one process.
    pub(crate) refused: u64,
    /// To be read from a ring of a process, each with the one behind it, in order of index.
    pub(crate) due: Vec<(u32, Vec<(u64, Packet)>)>,
}

impl GpuTracker {
    /// `agents` are the node's; `has_clocks` says whether the watcher reads the GPUs' clocks, `scratch` whether it looks at
    /// the scratch memory of queues.
    pub(crate) fn new(
        agents: Vec<(u32, AgentKind)>,
        has_clocks: bool,
        scratch: bool,
        watcher: Sender<Watch>,
    ) -> Self {
        Self {
            queues: BTreeMap::new(),
            kernels: HashSet::new(),
            agents,
            has_clocks,
            scratch,
            watcher,
            limits: Limits::default(),
            gone: 0,
            refused: 0,
            is_behind: false,
            changes: Vec::new(),
            unknown: BTreeSet::new(),
            remarks: Vec::new(),
        }
    }

    /// A structure in a process is not what it is known to be.
    fn unknown(&mut self, what: Unknown, pid: u32) {
        if self.unknown.insert(what) {
            self.remarks.push(what.remark(pid));
        }
    }

    /// What is to be told since the last time.
    pub(crate) fn remarks(&mut self) -> Vec<String> {
        std::mem::take(&mut self.remarks)
    }

    /// The clock sample in a request that the traced runtime made to the driver, if there are no better ones.
    pub(crate) fn clock(&self, bytes: &[u8]) -> Option<Meta> {
        if self.has_clocks {
            return None;
        }
        let ShortIoctl { ioctl, after, .. } = ShortIoctl::ref_from_bytes(bytes).ok()?;
        if ioctl.header.kind != kind::IOCTL
            || ioctl.result != 0
            || ioctl.flags & ioctl_flags::AFTER_UNREADABLE != 0
        {
            return None;
        }
        let structure = after.get(..usize::from(ioctl.data))?;
        let sample = traced(ioctl.request, structure, ioctl.begin, ioctl.end)?;
        Some(clocks::gpu_clock(&sample))
    }

    /// Takes note of a record.
    pub(crate) fn take(&mut self, record: u8, bytes: &[u8], tell: &dyn Fn(CollectorEvent)) {
        match record {
            kind::PACKET => {
                if let Ok(packet) = Packet::read_from_bytes(bytes) {
                    self.packet(&packet, tell);
                }
            }
            kind::COPY => {
                if let Ok(copy) = Copy::read_from_bytes(bytes)
                    && copy.signal != 0
                {
                    self.changes.push((copy.pid, Change::Open(copy.signal)));
                }
            }
            kind::COMPLETION => {
                if let Ok(done) = Completion::read_from_bytes(bytes)
                    && (done.value <= 0 || done.reason != completion_reason::POLL)
                {
                    self.changes.push((done.pid, Change::Read(done.signal)));
                    // Only of these it is certain that there still was a signal.
                    let is_there = matches!(
                        done.reason,
                        completion_reason::REARM | completion_reason::DESTROY
                    );
                    if is_there && done.sdma_start == SDMA_UNKNOWN {
                        self.unknown(Unknown::Signal, done.pid);
                    }
                }
            }
            kind::QUEUE => {
                if let Ok(state) = QueueState::read_from_bytes(bytes)
                    && state.reason == queue_reason::DESTROY
                {
                    if let Some(queue) = self.queues.get_mut(&(state.pid, state.queue))
                        && queue.ended.is_none()
                    {
                        queue.ended = Some(0);
                        self.limits.give_back(state.pid, What::Queues, 1);
                    }
                    self.changes
                        .push((state.pid, Change::QueueGone(state.queue)));
                }
            }
            _ => {}
        }
    }

    fn packet(&mut self, packet: &Packet, tell: &dyn Fn(CollectorEvent)) {
        let now = Instant::now();
        let key = (packet.pid, packet.queue);
        let is_new = self
            .queues
            .get(&key)
            .is_none_or(|queue| queue.id != packet.queue_id);
        // One that takes the place of a queue that has not ended is followed in its place. What ended has given its share back.
        let replaces = self
            .queues
            .get(&key)
            .is_some_and(|queue| queue.ended.is_none());
        let is_followed = !is_new || replaces || self.limits.take(packet.pid, What::Queues, 1, now);
        if is_new && is_followed {
            let since_creation = packet.flags & packet_flags::SINCE_CREATION != 0;
            let before = self.queues.insert(
                key,
                Queue {
                    id: packet.queue_id,
                    next: if since_creation { 0 } else { packet.index },
                    missing: BTreeMap::new(),
                    unsignalled: false,
                    private: false,
                    passed_over: false,
                    ended: None,
                },
            );
            self.gone += before.map_or(0, |queue| queue.missing.len());
            self.changes.push((packet.pid, Change::Queue(packet.queue)));
        }
        let [.., sizes, kernel, _, _, signal] = packet.packet;
        let is_kernel = packet.header.domain == Domain::KernelDispatch.id();
        if let Some(queue) = self.queues.get_mut(&key) {
            if std::mem::take(&mut queue.passed_over) {
                queue.next = queue.next.max(packet.index);
            }
            if packet.index >= queue.next {
                // Also those that the queue's ring holds no longer: their records may be in a ring that is read later.
                let gap = packet.index - queue.next;
                let missing = gap.min(MOST_MISSING);
                let granted = self
                    .limits
                    .take_some(packet.pid, What::LatePackets, missing, now);
                self.refused = self.refused.saturating_add(missing - granted);
                // So many are not those of other threads whose doorbells are about to ring.
                let is_cut = gap >= PACKETS_PER_DOORBELL as u64;
                self.is_behind |= is_cut;
                let rounds = if is_cut { PATIENCE } else { 0 };
                for index in packet.index - granted..packet.index {
                    queue.missing.insert(index, (*packet, rounds));
                }
                queue.next = packet.index.saturating_add(1);
            } else if queue.missing.remove(&packet.index).is_some() {
                self.limits.give_back(packet.pid, What::LatePackets, 1);
            }
            if signal == 0 && is_kernel && !queue.unsignalled && queue.ended.is_none() {
                queue.unsignalled = true;
                self.changes
                    .push((packet.pid, Change::Unsignalled(packet.queue)));
            }
            // `private_segment_size` is the low half.
            if self.scratch
                && is_kernel
                && sizes as u32 != 0
                && !queue.private
                && queue.ended.is_none()
            {
                queue.private = true;
                self.changes
                    .push((packet.pid, Change::Private(packet.queue)));
            }
        }
        if signal != 0 {
            self.changes.push((packet.pid, Change::Open(signal)));
        }
        if is_kernel
            && !self.kernels.contains(&(packet.pid, kernel))
            && self.limits.take(packet.pid, What::Kernels, 1, now)
        {
            self.kernels.insert((packet.pid, kernel));
            tell(CollectorEvent::Kernel {
                pid: packet.pid,
                kernel_object: kernel,
            });
        }
    }

    /// The metadata that a first sight makes.
    pub(crate) fn described(&mut self, bytes: &[u8]) -> Option<Meta> {
        let seen = Described::read_from_bytes(bytes).ok()?;
        // Without an agent the words are 0, which would look like a node.
        let mut words = seen.words.iter().filter(|_| seen.agent != 0);
        let node_id = words.find_map(|word| self.node(*word));
        // Without a list of agents nothing can be found in it.
        if node_id.is_none() && !self.agents.is_empty() {
            let what = if seen.agent == 0 {
                Unknown::Queue
            } else {
                Unknown::Agent
            };
            self.unknown(what, seen.pid);
        }
        if seen.queue == 0 {
            let handle = AgentHandle {
                pid: seen.pid,
                handle: seen.agent,
                node_id: node_id?,
            };
            return Some(handle.into());
        }
        let queue = gputrace_capture::gpu::Queue {
            pid: seen.pid,
            time: seen.time,
            address: seen.queue,
            id: seen.queue_id,
            node_id,
            packets: seen.ring_packets,
        };
        Some(queue.into())
    }

    /// The topology node that a word of an agent's object names, if there is one of that number and kind: the
    /// place of the word differs between releases of ROCr.
    fn node(&self, word: u64) -> Option<u32> {
        // `core::Agent::DeviceType`.
        let kind = match word >> 32 {
            0 => AgentKind::Gpu,
            1 => AgentKind::Cpu,
            _ => return None,
        };
        let node = word as u32;
        self.agents.contains(&(node, kind)).then_some(node)
    }

    /// Ends a round: packets whose own doorbell has not rung by now are to be read from the rings. With `all` none
    /// is waited for any longer.
    pub(crate) fn round(&mut self, all: bool) -> Missing {
        let mut missing = Missing {
            gone: std::mem::take(&mut self.gone),
            refused: std::mem::take(&mut self.refused),
            due: Vec::new(),
        };
        self.is_behind = false;
        let over = self
            .queues
            .extract_if(.., |_, queue| match &mut queue.ended {
                Some(rounds) => {
                    *rounds += 1;
                    *rounds > 1 || all
                }
                None => false,
            });
        // They can be read by nobody any more.
        missing.gone += over.map(|(_, queue)| queue.missing.len()).sum::<usize>();
        for ((pid, _), queue) in &mut self.queues {
            queue.unsignalled = false;
            queue.private = false;
            if queue.missing.is_empty() {
                continue;
            }
            let mut due = Vec::new();
            queue.missing.retain(|index, (behind, rounds)| {
                *rounds += 1;
                let waits = *rounds <= PATIENCE && !all;
                if waits {
                    return true;
                }
                // A later packet has taken its place in the queue's ring.
                if index.saturating_add(behind.ring_packets.into()) <= behind.index {
                    missing.gone += 1;
                } else {
                    due.push((*index, *behind));
                }
                false
            });
            if !due.is_empty() {
                missing.due.push((*pid, due));
            }
        }
        if !self.changes.is_empty() {
            // A watcher that is gone has nothing to report any more.
            let _ = self
                .watcher
                .send(Watch::Changes(std::mem::take(&mut self.changes)));
        }
        missing
    }

    /// From now on, until a queue's next packet, packets that are missing were passed over on purpose.
    pub(crate) fn passed_over(&mut self) {
        for queue in self.queues.values_mut() {
            queue.passed_over = true;
        }
    }

    /// Whether the rings are to be read once more before the next round: the packets that are missing may be in one that
    /// was read before the one that went past them.
    pub(crate) fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Forgets a process that has ended. Its queues stay for one more round, in which its last packets may still come.
    pub(crate) fn ended(&mut self, pid: u32) {
        let own = self
            .queues
            .iter_mut()
            .filter(|((owner, _), _)| *owner == pid);
        own.for_each(|(_, queue)| queue.ended = queue.ended.or(Some(0)));
        self.kernels.retain(|(owner, _)| *owner != pid);
        self.limits.ended(pid);
    }
}

#[cfg(test)]
mod tests;
