//! Mean durations of dispatch classes: what is fed to `gputrace_tomography`, and its results.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use gputrace_abi::gpu::{self, QueueState, queue_reason};
use gputrace_tomography::{Durations, Exact, Lengths, Look, Packet, Task, Tomograph};

use super::{
    packet::Kind,
    queue::{Settled, Slot},
    witness::{Ran, Reading, Submitted, Took, Witness},
};
use crate::model::gpu::{KernelClass, Mean, QueueInfo, Told};

/// Maximum number of classes. Dispatches of further classes have no class.
const MOST_CLASSES: usize = 1 << 16;

/// The properties shared by dispatches that are expected to take about the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) pid: u32,
    pub(crate) node_id: Option<u32>,
    pub(crate) kernel: Option<u32>,
    pub(crate) kernel_object: u64,
    pub(crate) grid: [u32; 3],
    pub(crate) workgroup: [u32; 3],
}

#[derive(Clone, Copy, Debug)]
struct Class {
    key: Key,
    count: u64,
    /// The shortest duration proven for a dispatch of this class, ns.
    shortest: Option<u64>,
    told: gputrace_tomography::Told,
    lengths: Option<Lengths>,
    /// Durations that the GPU's status register showed.
    durations: Durations,
}

/// What is known of a dispatch's class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(crate) class: u32,
    pub(crate) mean: Option<gputrace_tomography::Mean>,
    /// Its two lengths, if it has two; only when all has been seen.
    pub(crate) lengths: Option<Lengths>,
    /// The shortest time in which one of them is proven to have run, ns.
    pub(crate) shortest: Option<u64>,
}

/// Timing properties of a queue, ns.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// Time from the end of a packet to the begin of the next one, if that waits for it.
    pub(crate) gap: u64,
    /// Time from the submission into an empty queue to the begin.
    pub(crate) latency: u64,
    /// The step width in which the read index is reported, if that is known.
    pub(crate) step: Option<u64>,
}

/// Dispatch classes and their mean durations.
#[derive(Debug, Default)]
pub(crate) struct Means {
    numbers: HashMap<Key, u32, RandomState>,
    classes: Vec<Class>,
    /// Tomographs by process and node.
    tomographs: HashMap<(u32, Option<u32>), Tomograph, RandomState>,
    /// Paces by queue, filled at the end of the first pass.
    paces: HashMap<u32, Pace, RandomState>,
    /// What status registers show, by node.
    witnesses: HashMap<u32, Witness, RandomState>,
    /// Whether any dispatch lacks exact times.
    has_inexact: bool,
    /// Whether the first pass is over. The second pass brings the same evidence again, which must
    /// not be used twice.
    is_complete: bool,
    /// Whether the recording is live, so that computing time spent here is taken from the running
    /// programs.
    is_live: bool,
}

impl Means {
    /// The means of a live recording.
    pub(crate) fn live() -> Self {
        Self {
            is_live: true,
            ..Self::default()
        }
    }

    /// Adds a look at a queue.
    pub(crate) fn look(&mut self, queue: &QueueInfo, state: &QueueState) {
        if self.is_complete || state.reason != queue_reason::SAMPLE {
            return;
        }
        let look = Look {
            time: state.time,
            read_index: state.read_index,
            write_index: state.write_index,
            before: state.looked,
        };
        self.tomograph(queue).look(queue.number, &look);
    }

    /// Adds what a packet's doorbell observed of the queue.
    pub(crate) fn doorbell(&mut self, queue: &QueueInfo, packet: &gpu::Packet) {
        if !self.is_complete {
            let tomograph = self.tomograph(queue);
            tomograph.doorbell(queue.number, packet.time, packet.read_index, packet.index);
        }
    }

    /// From now on, the status register of the GPU at this node may be read.
    pub(crate) fn watch(&mut self, node: u32) {
        self.witnesses.entry(node).or_default();
    }

    /// A packet was submitted to a queue of the GPU at this node.
    pub(crate) fn submitted(&mut self, node: u32, packet: Submitted) {
        if self.is_complete {
            return;
        }
        if let Some(witness) = self.witnesses.get_mut(&node) {
            witness.submitted(packet);
        }
    }

    /// Takes a reading of a status register. Returns what the GPU ran until then, if that shows.
    pub(crate) fn read(&mut self, node: u32, reading: Reading) -> Option<Ran> {
        if self.is_complete {
            return None;
        }
        self.witnesses.get_mut(&node)?.read(reading)
    }

    /// Adds a packet about which nothing more can become known. Returns its class if it is a
    /// dispatch.
    pub(crate) fn packet(
        &mut self,
        queue: &QueueInfo,
        settled: &Settled,
        key: Option<Key>,
    ) -> Option<u32> {
        let class = key.and_then(|key| self.number(key));
        if self.is_complete {
            return class;
        }
        let slot = &settled.slot;
        let evidence = &slot.evidence;
        if let Some(known) = class.and_then(|class| self.classes.get_mut(class as usize)) {
            known.count += 1;
            let (begin, end) = (settled.time.begin_window, settled.time.end_window);
            let within = end
                .latest
                .map(|latest| latest.saturating_sub(begin.earliest));
            known.shortest = known.shortest.into_iter().chain(within).min();
            self.has_inexact |= evidence.exact.is_none();
            match slot.took {
                Some(Took::Within(least, most)) => known.durations.add(least, most),
                Some(Took::TooLong | Took::TooShort) => known.durations.add_cut(),
                None => {}
            }
        }
        let packet = Packet {
            index: settled.index,
            submitted: evidence.earliest,
            task: task(slot, class),
            waits: slot.barrier,
            exact: evidence
                .exact
                .filter(|_| slot.kind != Kind::Other)
                .map(|exact| Exact {
                    begin: exact.begin.time,
                    end: exact.end.time,
                    uncertainty: exact.begin.uncertainty.max(exact.end.uncertainty),
                }),
            ended_by: evidence.ended(None).map(|bound| bound.time),
        };
        self.tomograph(queue).packet(queue.number, &packet);
        class
    }

    /// What is known of a class.
    pub(crate) fn known(&self, class: u32) -> Option<Known> {
        let known = self.classes.get(class as usize)?;
        let told = if self.is_complete {
            known.told
        } else {
            self.told(known, class)
        };
        let mean = match told {
            gputrace_tomography::Told::Apart(mean) => Some(mean),
            _ => None,
        };
        Some(Known {
            class,
            mean,
            lengths: known.lengths,
            shortest: known.shortest,
        })
    }

    /// What is known of a class so far. Read indices show all its dispatches, so they come first;
    /// the status register shows some, but also where nothing waits after a kernel.
    fn told(&self, known: &Class, number: u32) -> gputrace_tomography::Told {
        use gputrace_tomography::Told;
        let key = (known.key.pid, known.key.node_id);
        let told = self.tomographs.get(&key).map(|one| one.told(number));
        let told = told.unwrap_or(known.told);
        let witness = || known.key.node_id.and_then(|node| self.witnesses.get(&node));
        match told {
            Told::Apart(_) => told,
            Told::Mixed | Told::Unseen => known
                .durations
                .mean()
                .filter(|_| witness().is_some_and(Witness::is_alone))
                .map_or(told, Told::Apart),
        }
    }

    /// The timing properties of a queue.
    pub(crate) fn pace(&self, queue: &QueueInfo) -> Pace {
        if let Some(pace) = self.paces.get(&queue.number) {
            return *pace;
        }
        let Some(tomograph) = self.tomographs.get(&(queue.pid, queue.node_id)) else {
            return Pace::default();
        };
        Pace {
            gap: tomograph.gap().value as u64,
            latency: tomograph.latency().value as u64,
            step: tomograph.step(queue.number),
        }
    }

    /// Ends the first pass.
    pub(crate) fn finish<'a>(&mut self, queues: impl Iterator<Item = &'a QueueInfo>) {
        if self.is_complete {
            return;
        }
        for tomograph in self.tomographs.values_mut() {
            tomograph.finish();
        }
        for queue in queues {
            self.paces.insert(queue.number, self.pace(queue));
        }
        let mut classes = std::mem::take(&mut self.classes);
        for (class, number) in classes.iter_mut().zip(0..) {
            class.told = self.told(class, number);
            let key = (class.key.pid, class.key.node_id);
            let tomograph = self.tomographs.get(&key);
            class.lengths = tomograph.and_then(|one| one.lengths(number));
        }
        self.classes = classes;
        self.is_complete = true;
        self.tomographs = HashMap::default();
        self.witnesses = HashMap::default();
    }

    /// The classes, to be emitted as events; none if all times are exact.
    pub(crate) fn classes(&self) -> impl Iterator<Item = KernelClass> {
        let classes = if self.has_inexact {
            self.classes.as_slice()
        } else {
            &[]
        };
        classes.iter().zip(0..).map(|(class, number)| {
            let (told, mean) = match class.told {
                gputrace_tomography::Told::Apart(mean) => {
                    let mean = Mean {
                        value: mean.value,
                        error: mean.error,
                    };
                    (Told::Apart, Some(mean))
                }
                gputrace_tomography::Told::Mixed => (Told::Mixed, None),
                gputrace_tomography::Told::Unseen => (Told::Unseen, None),
            };
            let key = &class.key;
            KernelClass {
                number,
                pid: key.pid,
                node_id: key.node_id,
                kernel: key.kernel,
                kernel_object: key.kernel_object,
                grid: key.grid,
                workgroup: key.workgroup,
                count: class.count,
                mean,
                told,
                lengths: class.lengths,
            }
        })
    }

    fn tomograph(&mut self, queue: &QueueInfo) -> &mut Tomograph {
        let is_live = self.is_live;
        let tomographs = self.tomographs.entry((queue.pid, queue.node_id));
        tomographs.or_insert_with(|| {
            if is_live {
                Tomograph::new().frugal()
            } else {
                Tomograph::new()
            }
        })
    }

    fn number(&mut self, key: Key) -> Option<u32> {
        if let Some(number) = self.numbers.get(&key) {
            return Some(*number);
        }
        if self.classes.len() >= MOST_CLASSES {
            return None;
        }
        let number = self.classes.len() as u32;
        self.numbers.insert(key, number);
        self.classes.push(Class {
            key,
            count: 0,
            shortest: None,
            told: gputrace_tomography::Told::Unseen,
            lengths: None,
            durations: Durations::default(),
        });
        Some(number)
    }
}

fn task(slot: &Slot, class: Option<u32>) -> Task {
    match class {
        Some(class) => Task::Class(class),
        None if slot.aql.only_waits() => Task::Nothing,
        None => Task::Unknown,
    }
}
