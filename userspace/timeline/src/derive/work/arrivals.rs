//! Handling of records about packets and queues.

use std::collections::VecDeque;

use gputrace_abi::gpu::{self, QueueState, packet_flags, queue_reason};

use super::{
    Work,
    knowledge::Losses,
    packet::{Aql, Kind},
    queue::{Inserted, Queue},
    signal::User,
    witness::{Does, Submitted},
};
use crate::model::{
    event::Event,
    gpu::{Origin, QueueInfo},
    item::Ring,
};

impl Work {
    /// The queue of a packet. Adds a queue if none is known, or if another has taken the place of
    /// the known one.
    fn queue_of(&mut self, packet: &gpu::Packet, events: &mut VecDeque<Event>) -> u32 {
        let process = self.processes.entry(packet.pid).or_default();
        let key = (packet.queue, packet.queue_id);
        if let Some(number) = process.queues.get(&key)
            && let Some(queue) = self.queues.get(*number as usize)
            && queue.retired.is_none_or(|retired| packet.time <= retired)
        {
            return *number;
        }
        let number = self.queues.len() as u32;
        process.queues.insert(key, number);
        let of_driver = process.rings.get(&packet.ring).copied();
        let replaced = process.current.insert(packet.queue, number);
        let reuses = !process.addresses.insert(packet.queue);
        if let Some(replaced) = replaced.and_then(|number| self.queues.get_mut(number as usize)) {
            replaced.retired.get_or_insert(packet.time);
        }
        self.changed.extend(replaced);
        let known = self
            .knowledge
            .queue(packet.pid, packet.queue, packet.queue_id, packet.time);
        let of_driver = of_driver.map(|queue| (queue.id, self.knowledge.node_of_gpu(queue.gpu_id)));
        let lost = self.knowledge.losses(0, packet.time) > Losses::None;
        // The queue's first packet may be among the lost records.
        let from_first = lost || is_from_first(packet);
        let info = QueueInfo {
            number,
            pid: packet.pid,
            id: packet.queue_id,
            node_id: known
                .and_then(|known| known.node_id)
                .or(of_driver.and_then(|(_, node)| node)),
            packets: packet.ring_packets,
            kfd_id: of_driver.map(|(id, _)| id),
            is_older: !from_first,
        };
        let created_after = process.began.unwrap_or(self.began);
        let mut queue = Queue::new(info, created_after, packet.time, reuses);
        queue.from_first = from_first;
        self.queues.push(queue);
        events.push_back(Event::Queue(info));
        number
    }

    /// If packets at an address belong to several queues in turn, the last queue counts.
    pub(super) fn ring(&mut self, ring: &Ring) {
        let process = self.processes.entry(ring.pid).or_default();
        process.rings.insert(ring.address, ring.queue);
    }

    /// Adds a packet to its queue.
    pub(super) fn packet(&mut self, packet: &gpu::Packet, events: &mut VecDeque<Event>) {
        let number = self.queue_of(packet, events);
        let Some(queue) = self.queues.get_mut(number as usize) else {
            return;
        };
        self.changed.insert(number);
        // Another thread's doorbell for a later packet may have rung before the first packet's own.
        queue.from_first |= is_from_first(packet);
        let origin = Origin {
            pid: packet.pid,
            tid: packet.tid,
            time: packet.time,
            innermost: packet.innermost,
            outermost: packet.outermost,
            caller: packet.innermost,
            stream: (packet.flags & packet_flags::STREAM != 0).then_some(packet.stream),
            deferred: false,
            stream_id: 0,
            stack_number: None,
            range: None,
            external: None,
        };
        let losses = self.knowledge.losses(packet.time, packet.time) > Losses::None;
        let inserted = queue.insert(packet, origin, losses);
        queue.sample(packet.read_index, packet.time, 0);
        // Packets with signals have exact times, or lack them for good reasons.
        if Aql(packet.packet).signal() == 0 {
            self.means.doorbell(&queue.info, packet);
        }
        if inserted == Inserted::Known {
            self.duplicates += 1;
            return;
        }
        self.packets += 1;
        if let Some(name) = Aql(packet.packet).unknown() {
            *self.unknown.entry(name).or_default() += 1;
        }
        let Some(slot) = queue.slot_mut(packet.index) else {
            return;
        };
        if slot.kind != Kind::Other {
            self.dispatches += 1;
            slot.dispatch = self.dispatches;
        }
        let does = if packet.flags & (packet_flags::UNWITNESSED | packet_flags::OVERTAKEN) != 0 {
            Does::Other
        } else if slot.kind != Kind::Other {
            Does::Kernel
        } else if slot.aql.only_waits() {
            Does::Nothing
        } else {
            Does::Other
        };
        let (signal, is_open) = (slot.aql.signal(), slot.open);
        let node = queue.info.node_id.or_else(|| self.knowledge.only_node());
        if let Some(node) = node {
            let packet = Submitted {
                time: packet.time,
                queue: number,
                index: packet.index,
                does,
            };
            self.means.submitted(node, packet);
        }
        if is_open {
            let user = User::Packet {
                queue: number,
                index: packet.index,
            };
            self.use_signal(packet.pid, signal, user, packet.time, events);
        }
    }

    /// Handles a look at a queue, or the queue's end.
    pub(super) fn queue_state(&mut self, state: &QueueState, events: &mut VecDeque<Event>) {
        let Some(process) = self.processes.get_mut(&state.pid) else {
            return;
        };
        let Some(&number) = process.current.get(&state.queue) else {
            return;
        };
        let is_end = state.reason == queue_reason::DESTROY;
        if is_end {
            process.current.remove(&state.queue);
            self.scratch.queue_ended(number, state.time, events);
        }
        let Some(queue) = self.queue_mut(number) else {
            return;
        };
        if is_end {
            queue.sample(state.read_index, state.time, state.looked);
            queue.retired.get_or_insert(state.time);
        } else {
            if queue.look(state.read_index, state.time, state.looked) {
                let info = queue.info;
                self.means.look(&info, state);
            }
        }
        self.changed.insert(number);
    }
}

/// Whether a packet is its queue's first, or its queue was created during the recording.
fn is_from_first(packet: &gpu::Packet) -> bool {
    packet.index == 0 || packet.flags & packet_flags::SINCE_CREATION != 0
}
