//! Follows queues and signals through the records that pass: what is new, missing or open.
//!
//! Nothing here changes a record. The tracker does three things that eBPF programs cannot do. It
//! describes queues and agents, and tells the session about kernels, when they are seen for the
//! first time. It has packets read that doorbells skipped (one doorbell may cover hundreds). And it
//! keeps the watcher informed.

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
    limits::{Limits, Resource},
    watch::Watch,
};

/// Maximum number of packets skipped by one doorbell that are counted. The timeline's count of
/// indices shows if there were more.
const MOST_MISSING: u64 = 65_536;

/// Number of rounds for which a missing packet's own doorbell is waited for.
const PATIENCE: u32 = 2;

/// State of queues, signals, kernels and agents.
pub(crate) struct GpuTracker {
    queues: BTreeMap<(u32, u64), Queue>,
    kernels: HashSet<(u32, u64)>,
    agents: Vec<(u32, AgentKind)>,
    /// Whether the watcher reads the GPUs' clocks.
    has_clocks: bool,
    /// Whether the watcher looks at the scratch memory of queues.
    scratch: bool,
    watcher: Sender<Watch>,
    /// Limits on what one process may ask for.
    pub(crate) limits: Limits,
    /// Number of packets missing from queues and processes that have ended, since the last round.
    gone: usize,
    /// Number of missing packets, of all processes, that are not looked for, since the last round.
    refused: u64,
    /// Whether at least as many packets as one doorbell reports went missing at once since the last
    /// round.
    is_behind: bool,
    /// Changes for the watcher, handed over once per round.
    changes: Vec<(u32, Change)>,
    /// Structures of a runtime that did not have the expected layout.
    unknown: BTreeSet<Unknown>,
    /// Remarks for the reader of the recording, each made once.
    remarks: Vec<String>,
}

/// A structure of the HSA runtime that is read from outside, and validated before it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Unknown {
    /// The structure behind a completion signal.
    Signal,
    /// A queue's object, or the pointers from it to its agent.
    Queue,
    /// An agent.
    Agent,
}

impl Unknown {
    /// Remark on what is missing as a consequence.
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

/// A change in a process that the watcher is told about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// A packet without a completion signal was submitted to this queue: only the queue's indices
    /// show its progress.
    Unsignalled(u64),
    /// A kernel that needs private memory was submitted to this queue, which may get scratch memory
    /// for it.
    Private(u64),
    /// A queue to look at when the recording stops.
    Queue(u64),
    /// The queue belongs to the agent at this topology node.
    OnNode(u64, u32),
    /// The queue was destroyed.
    QueueGone(u64),
    /// Something will complete this signal.
    Open(u64),
    /// The signal has been read.
    Read(u64),
    /// The process has loaded code objects: work follows soon.
    Loaded,
}

impl Change {
    /// Whether the change means work for a GPU, now or soon.
    pub(crate) fn is_work(&self) -> bool {
        !matches!(self, Self::QueueGone(_) | Self::Read(_))
    }
}

/// State of a queue: how far its packets have been seen.
#[derive(Debug)]
struct Queue {
    id: u64,
    next: u64,
    /// Missing packets by index. Each has the later packet whose doorbell covered it, and the
    /// number of rounds since.
    missing: BTreeMap<u64, (Packet, u32)>,
    /// Whether the watcher has been told of a packet without a signal since the last round.
    unsignalled: bool,
    /// Whether the watcher has been told of a kernel with private memory since the last round.
    private: bool,
    /// Whether packets may have been skipped on purpose since the last one.
    passed_over: bool,
    /// Number of rounds since the queue or its process ended; `None` while it lives. Earlier
    /// packets may be in the ring of another processor, which is read later.
    ended: Option<u32>,
}

impl Queue {
    /// The doorbell of `packet` rang. Of the packets that are missing below it, some may have been
    /// revealed by another one that it covered.
    fn rang(&mut self, packet: &Packet) {
        for (behind, _) in self.missing.values_mut().rev() {
            if behind.time != packet.time || behind.index == packet.index {
                break;
            }
            *behind = *packet;
        }
    }
}

/// Marks the packets, in order of index, that were not valid when the doorbell behind them rang: a
/// program read the last ones before the doorbell's own, and packets are taken in order.
fn mark_overtaken(due: &mut [(u64, Packet)]) {
    let mut overtaken_at = None;
    for (index, behind) in due.iter_mut().rev() {
        let is_own = behind.flags & packet_flags::BEFORE_DOORBELL == 0;
        let was_read = is_own && behind.index.saturating_sub(*index) < PACKETS_PER_DOORBELL as u64;
        let was_taken = *index < behind.read_index;
        if was_read || was_taken || overtaken_at == Some(behind.time) {
            behind.flags |= packet_flags::OVERTAKEN;
            overtaken_at = Some(behind.time);
        }
    }
}

/// Packets that no eBPF program has read.
#[derive(Debug, Default)]
pub(crate) struct Missing {
    /// Number of packets that can no longer be read.
    pub(crate) gone: usize,
    /// Number of packets that exceed the limits for one process.
    pub(crate) refused: u64,
    /// Packets to read from the rings of processes, in order of index, each with the later packet
    /// that covered it.
    pub(crate) due: Vec<(u32, Vec<(u64, Packet)>)>,
}

impl GpuTracker {
    /// Makes a tracker. `agents` are the node's; `has_clocks` says whether the watcher reads the
    /// GPUs' clocks, `scratch` whether it looks at the scratch memory of queues.
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

    /// Notes that a structure in a process does not have the expected layout.
    fn unknown(&mut self, what: Unknown, pid: u32) {
        if self.unknown.insert(what) {
            self.remarks.push(what.remark(pid));
        }
    }

    /// Takes the remarks made since the last call.
    pub(crate) fn remarks(&mut self) -> Vec<String> {
        std::mem::take(&mut self.remarks)
    }

    /// The clock sample from a request that the traced runtime made to the driver, unless the
    /// watcher has better ones.
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

    /// Notes that a process has loaded code objects.
    pub(crate) fn loaded(&mut self, pid: u32) {
        self.changes.push((pid, Change::Loaded));
    }

    /// Follows a record.
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
                    // Only for these reasons is it certain that the signal still existed.
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
                        self.limits.give_back(state.pid, Resource::Queues, 1);
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
        // A queue that takes the place of one that has not ended is followed in its place. A queue
        // that has ended has given its share back.
        let replaces = self
            .queues
            .get(&key)
            .is_some_and(|queue| queue.ended.is_none());
        let is_followed =
            !is_new || replaces || self.limits.take(packet.pid, Resource::Queues, 1, now);
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
                // Includes packets that the queue's ring no longer holds: their records may be in a
                // per-CPU ring that is read later.
                let gap = packet.index - queue.next;
                let missing = gap.min(MOST_MISSING);
                let granted =
                    self.limits
                        .take_some(packet.pid, Resource::LatePackets, missing, now);
                self.refused = self.refused.saturating_add(missing - granted);
                // That many are not packets of other threads whose doorbells are about to ring.
                let is_cut = gap >= PACKETS_PER_DOORBELL as u64;
                self.is_behind |= is_cut;
                let rounds = if is_cut { PATIENCE } else { 0 };
                for index in packet.index - granted..packet.index {
                    queue.missing.insert(index, (*packet, rounds));
                }
                queue.next = packet.index.saturating_add(1);
            } else if queue.missing.remove(&packet.index).is_some() {
                self.limits.give_back(packet.pid, Resource::LatePackets, 1);
            }
            if packet.flags & packet_flags::BEFORE_DOORBELL == 0 {
                queue.rang(packet);
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
            && self.limits.take(packet.pid, Resource::Kernels, 1, now)
        {
            self.kernels.insert((packet.pid, kernel));
            tell(CollectorEvent::Kernel {
                pid: packet.pid,
                kernel_object: kernel,
            });
        }
    }

    /// The metadata that describes a queue or agent seen for the first time.
    pub(crate) fn described(&mut self, bytes: &[u8]) -> Option<Meta> {
        let seen = Described::read_from_bytes(bytes).ok()?;
        // Without an agent the words are 0, which would look like a node.
        let mut words = seen.words.iter().filter(|_| seen.agent != 0);
        let node_id = words.find_map(|word| self.node(*word));
        // Without a list of agents, nothing can be looked up in it.
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
        if let Some(node) = node_id {
            let change = Change::OnNode(seen.queue, node);
            self.changes.push((seen.pid, change));
        }
        Some(queue.into())
    }

    /// The topology node in a word of an agent's object, if a node with that number and kind
    /// exists. The word's position differs between releases of ROCr.
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

    /// Ends a round, and returns the packets to read from the rings: those whose own doorbell has
    /// not rung by now. With `all`, no packet is waited for any longer.
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
        // These packets can no longer be read.
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
                // A later packet has overwritten it in the queue's ring.
                if index.saturating_add(behind.ring_packets.into()) <= behind.index {
                    missing.gone += 1;
                } else {
                    due.push((*index, *behind));
                }
                false
            });
            if !due.is_empty() {
                mark_overtaken(&mut due);
                missing.due.push((*pid, due));
            }
        }
        if !self.changes.is_empty() {
            // If the watcher is gone, it has nothing more to report.
            let _ = self
                .watcher
                .send(Watch::Changes(std::mem::take(&mut self.changes)));
        }
        missing
    }

    /// Notes a pause: for each queue, packets missing before its next one were skipped on purpose.
    pub(crate) fn passed_over(&mut self) {
        for queue in self.queues.values_mut() {
            queue.passed_over = true;
        }
    }

    /// Whether to read the rings once more before the next round: the missing packets may be in a
    /// ring that was read before the one with the packet that revealed them.
    pub(crate) fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Forgets a process that has ended. Its queues stay for one more round, in which their last
    /// packets may still arrive.
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
