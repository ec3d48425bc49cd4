//! Packets leaving their queue: their kernels, times and dispatch events.

use std::collections::VecDeque;

use super::{
    Work,
    knowledge::Losses,
    means::Key,
    place::Placed,
    queue::{Settle, Settled, Slot},
    signal::User,
};
use crate::model::{
    event::Event,
    gpu::{Dispatch, GpuTime, Origin, QueueInfo},
};

impl Work {
    /// Removes packets from a queue, with everything known of their times so far.
    pub(super) fn settle(&mut self, number: u32, how: Settle, events: &mut VecDeque<Event>) {
        let mut settled = Vec::new();
        let now = self.latest;
        let Some(queue) = self.queue_mut(number) else {
            return;
        };
        queue.settle(now, how, &mut settled);
        let info = queue.info;
        self.packets -= settled.len();
        let times = self.times(&info, &settled, events);
        for (settled, (kernel, time)) in settled.into_iter().zip(times) {
            let Settled {
                index,
                silent,
                slot,
                ..
            } = settled;
            let signal = slot.aql.signal();
            if slot.open {
                self.forget_use(
                    slot.origin.pid,
                    signal,
                    User::Packet {
                        queue: number,
                        index,
                    },
                );
            }
            if slot.dispatch == 0 {
                continue;
            }
            let lost = silent.is_some_and(|(from, to)| {
                slot.is_doubtful || self.knowledge.losses(from, to) > Losses::None
            });
            let dispatch = self.dispatch(&info, index, &slot, lost, (kernel, time));
            events.push_back(Event::Dispatch(dispatch));
            if let Some(queue) = self.queue_mut(number) {
                queue.recycle(slot);
            }
        }
    }

    /// The dispatch of a packet. `lost` says whether the doorbell that announced it may not have
    /// been seen, or may be among lost records.
    fn dispatch(
        &mut self,
        queue: &QueueInfo,
        index: u64,
        slot: &Slot,
        lost: bool,
        (kernel, time): (Option<u32>, GpuTime),
    ) -> Box<Dispatch> {
        let (mut origin, aql) = (slot.origin, slot.aql);
        // Another thread or call may have submitted it, and earlier.
        if lost {
            origin = Origin {
                pid: origin.pid,
                time: origin.time.min(time.begin_window.earliest),
                ..Origin::default()
            };
        }
        let kernel_object = aql.kernel_object();
        let dispatch = Dispatch {
            id: slot.dispatch,
            origin,
            queue: queue.number,
            node_id: queue.node_id,
            index,
            kernel,
            kernel_object,
            workgroup: aql.workgroup(),
            grid: aql.grid(slot.kind),
            private_size: aql.private_size(),
            group_size: aql.group_size(),
            kernarg: aql.kernarg(),
            signal: aql.signal(),
            barrier: slot.barrier,
            read_later: slot.read_later,
            time,
            readings: Vec::new(),
        };
        match self.spare.pop() {
            Some(mut spare) => {
                *spare = dispatch;
                spare
            }
            None => Box::new(dispatch),
        }
    }

    /// Kernels and times of packets that leave their queue.
    fn times(
        &mut self,
        queue: &QueueInfo,
        settled: &[Settled],
        events: &mut VecDeque<Event>,
    ) -> Vec<(Option<u32>, GpuTime)> {
        let mut kernels = Vec::with_capacity(settled.len());
        let mut classes = Vec::with_capacity(settled.len());
        for one in settled {
            let slot = &one.slot;
            let is_dispatch = slot.dispatch != 0;
            let (pid, object) = (slot.origin.pid, slot.aql.kernel_object());
            let kernel = is_dispatch
                .then(|| self.kernels.id(pid, object, slot.origin.time, events))
                .flatten();
            let key = is_dispatch.then(|| Key {
                pid,
                node_id: queue.node_id,
                kernel,
                kernel_object: object,
                grid: slot.aql.grid(slot.kind),
                workgroup: slot.aql.workgroup(),
            });
            kernels.push(kernel);
            classes.push(self.means.packet(queue, one, key));
        }
        if self.placed.len() <= queue.number as usize {
            self.placed
                .resize(queue.number as usize + 1, Placed::default());
        }
        let known: Vec<_> = classes
            .iter()
            .map(|class| self.means.known((*class)?))
            .collect();
        let pace = self.means.pace(queue);
        let Some(placed) = self.placed.get_mut(queue.number as usize) else {
            return Vec::new();
        };
        let rest = (0..).map(|at| {
            (
                settled.get(at..).unwrap_or_default(),
                known.get(at..).unwrap_or_default(),
            )
        });
        let times = rest
            .zip(kernels)
            .map(|((settled, known), kernel)| (kernel, placed.place(settled, known, pace)));
        times.collect()
    }
}
