//! What the capture's metadata says about GPUs. It is collected before the first record is read,
//! because clock samples taken after a moment are as useful as those before it, and because code
//! objects may be found late.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use gputrace_abi::domain::Domain;
use gputrace_capture::{
    Meta,
    gpu::{Agent, AgentKind, CodeObject, Queue},
    ledger::Ledger,
};
use gputrace_kfd::clock::{ClockModel, ClockSamples};

use crate::model::gpu::{AgentInfo, clock_sample};

/// Agents, clocks, queues and handles of a capture.
#[derive(Debug, Default)]
pub(crate) struct Knowledge {
    /// Agents by node.
    agents: Vec<AgentInfo>,
    /// Clocks by KFD's id of the GPU.
    clocks: HashMap<u32, ClockModel, RandomState>,
    /// Queues by process and address, in order of time.
    queues: HashMap<(u32, u64), Vec<Queue>>,
    /// Nodes by process and agent handle.
    handles: HashMap<(u32, u64), u32, RandomState>,
    none: ClockModel,
    /// In a live recording: time of the newest sample of each GPU's clock.
    newest: HashMap<u32, u64>,
    /// Time ranges between successive ledgers of which the second reports more losses.
    losses: Vec<(u64, u64, Losses)>,
    /// The same for calls that may have changed where memory is, and times without recording.
    lost_placements: Vec<(u64, u64)>,
    /// Code objects by process: first address, size, and when they were found.
    loaded: HashMap<u32, Vec<(u64, u64, u64)>, RandomState>,
}

/// Which of the records that say what a signal stands for were lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Losses {
    /// None, as far as is known.
    #[default]
    None,
    /// Packets. The indices of later packets show the gap.
    Packets,
    /// Copies. Nothing shows which ones.
    Copies,
}

/// Metadata being collected.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    agents: Vec<Agent>,
    samples: HashMap<u32, ClockSamples>,
    knowledge: Knowledge,
    code_objects: Vec<CodeObject>,
    /// Time of the last ledger, and the packets, copies and placements lost until then.
    accounted: (u64, [u64; 3]),
    /// Number of looks at read indices in the whole recording, if its last ledger has it.
    looks: Option<u64>,
}

/// Fewer looks at read indices in a whole recording do not suffice to estimate mean durations.
const FEWEST_LOOKS: u64 = 16;

impl Collected {
    /// Collects metadata about GPUs.
    pub(crate) fn take(&mut self, meta: Meta) {
        match meta {
            Meta::Agent(agent) => self.agents.push(*agent),
            Meta::GpuClock(clock) => {
                let samples = self.samples.entry(clock.gpu_id).or_default();
                samples.push(clock_sample(&clock));
            }
            Meta::Queue(queue) => {
                let queues = &mut self.knowledge.queues;
                queues
                    .entry((queue.pid, queue.address))
                    .or_default()
                    .push(queue);
            }
            Meta::AgentHandle(handle) => {
                let handles = &mut self.knowledge.handles;
                handles.insert((handle.pid, handle.handle), handle.node_id);
            }
            Meta::Pause(pause) => {
                add_range(&mut self.knowledge.lost_placements, (pause.from, pause.to));
            }
            Meta::CodeObject(object) => {
                let loaded = self.knowledge.loaded.entry(object.pid).or_default();
                loaded.push((object.load_base, object.load_size, object.time));
                self.code_objects.push(*object);
            }
            Meta::Ledger(ledger) => {
                let looks = ledger.looks.filter(|_| ledger.complete);
                self.looks = looks.map(|looks| looks.looks).or(self.looks);
                self.account(&ledger);
            }
            _ => {}
        }
    }

    /// Whether there are enough looks to estimate the mean durations of dispatch classes. The
    /// recorder looks only while packets without completion signals are queued, so there are hardly
    /// any looks where all times are exact, and a few looks show nothing.
    pub(crate) fn may_tell_means(&self) -> bool {
        self.looks.is_none_or(|looks| looks >= FEWEST_LOOKS)
    }

    fn account(&mut self, ledger: &Ledger) {
        let lost = |domains: &[Domain]| {
            let rows = ledger.rows.iter();
            let rows = rows.filter(|row| domains.iter().any(|domain| domain.id() == row.domain));
            rows.fold(0_u64, |sum, row| sum.saturating_add(row.lost()))
        };
        let (from, [packets_before, copies_before, placements_before]) = self.accounted;
        let packets = lost(&[Domain::KernelDispatch, Domain::QueuePacket]);
        let copies = lost(&[Domain::MemoryCopy]);
        let placements = lost(&[Domain::MemoryAllocation, Domain::HsaCore, Domain::HsaAmdExt]);
        let losses = if copies > copies_before {
            Losses::Copies
        } else if packets > packets_before {
            Losses::Packets
        } else {
            Losses::None
        };
        if losses > Losses::None {
            self.knowledge.losses.push((from, ledger.time, losses));
        }
        if placements > placements_before {
            add_range(&mut self.knowledge.lost_placements, (from, ledger.time));
        }
        self.accounted = (ledger.time, [packets, copies, placements]);
    }

    /// The collected knowledge, and the code objects in the order in which they were found.
    pub(crate) fn finish(self) -> (Knowledge, Vec<CodeObject>) {
        let Self {
            agents,
            samples,
            mut knowledge,
            mut code_objects,
            ..
        } = self;
        knowledge.agents = numbered(agents);
        knowledge.clocks = samples
            .into_iter()
            .map(|(gpu_id, samples)| (gpu_id, ClockModel::new(gpu_id, samples.into_vec())))
            .collect();
        for queues in knowledge.queues.values_mut() {
            queues.sort_by_key(|queue| queue.time);
        }
        code_objects.sort_by_key(|object| object.time);
        (knowledge, code_objects)
    }
}

/// Agents ordered by node. The last description of a node counts.
fn numbered(mut agents: Vec<Agent>) -> Vec<AgentInfo> {
    agents.reverse();
    agents.sort_by_key(|agent| agent.node_id);
    agents.dedup_by_key(|agent| agent.node_id);
    let mut counts = [0; 2];
    let numbered = agents.into_iter().zip(0..).map(|(agent, absolute_index)| {
        let [cpus, gpus] = &mut counts;
        let count = if agent.kind == AgentKind::Gpu {
            gpus
        } else {
            cpus
        };
        *count += 1;
        AgentInfo {
            agent,
            absolute_index,
            type_index: *count - 1,
            label: format!("Agent {absolute_index}"),
        }
    });
    numbered.collect()
}

/// Clock samples of a GPU kept in a live recording: a few minutes' worth.
const LIVE_SAMPLES: usize = 2048;

/// Time ranges with losses kept in a live recording.
const LIVE_LOSSES: usize = 1024;

impl Collected {
    /// Moves everything collected since the last call into `known`, for a live recording. Returns
    /// the new agent and the new code objects.
    pub(crate) fn hand_over(
        &mut self,
        known: &mut Knowledge,
    ) -> (Option<AgentInfo>, Vec<CodeObject>) {
        for (gpu_id, samples) in &mut self.samples {
            samples.keep_newest(LIVE_SAMPLES);
            let newest = samples.as_slice().last().map(|sample| sample.boottime_ns);
            if known.newest.get(gpu_id).copied() != newest {
                known.newest.extend(newest.map(|newest| (*gpu_id, newest)));
                known.clocks.insert(
                    *gpu_id,
                    ClockModel::new(*gpu_id, samples.as_slice().iter().copied()),
                );
            }
        }
        for (key, queues) in self.knowledge.queues.drain() {
            let all = known.queues.entry(key).or_default();
            all.extend(queues);
            all.sort_by_key(|queue| queue.time);
        }
        known.handles.extend(self.knowledge.handles.drain());
        for (pid, loaded) in self.knowledge.loaded.drain() {
            known.loaded.entry(pid).or_default().extend(loaded);
        }
        known.losses.append(&mut self.knowledge.losses);
        keep_newest(&mut known.losses);
        let lost = &mut known.lost_placements;
        for range in self.knowledge.lost_placements.drain(..) {
            add_range(lost, range);
        }
        keep_newest(lost);
        let newest = self.agents.last().map(|agent| agent.node_id);
        let mut agents: Vec<Agent> = known.agents.drain(..).map(|info| info.agent).collect();
        agents.append(&mut self.agents);
        known.agents = numbered(agents);
        let agent =
            newest.and_then(|node| known.agents.iter().find(|info| info.agent.node_id == node));
        (agent.cloned(), std::mem::take(&mut self.code_objects))
    }
}

#[cfg(test)]
impl Collected {
    /// With a CPU at node 0 and GPUs at nodes 1 and 2.
    pub(crate) fn with_two_gpus() -> Self {
        let mut collected = Self::default();
        for (node_id, kind) in (0..).zip([AgentKind::Cpu, AgentKind::Gpu, AgentKind::Gpu]) {
            collected.take(Meta::Agent(Box::new(Agent {
                node_id,
                kind,
                gpu_id: node_id,
                ..Agent::default()
            })));
        }
        collected
    }
}

/// Removes the oldest time ranges with losses of a live recording.
fn keep_newest<T>(losses: &mut Vec<T>) {
    losses.drain(..losses.len().saturating_sub(LIVE_LOSSES));
}

/// Adds a range of time, ns, to ranges that are in order and do not overlap.
fn add_range(ranges: &mut Vec<(u64, u64)>, (from, to): (u64, u64)) {
    let first = ranges.partition_point(|(_, until)| *until < from);
    let behind = ranges.partition_point(|(since, _)| *since <= to).max(first);
    let joined = ranges.get(first..behind).unwrap_or_default();
    let from = joined.first().map_or(from, |(since, _)| from.min(*since));
    let to = joined.last().map_or(to, |(_, until)| to.max(*until));
    ranges.splice(first..behind, [(from, to)]);
}

impl Knowledge {
    /// All agents, by node.
    pub(crate) fn agents(&self) -> &[AgentInfo] {
        &self.agents
    }

    /// The queue description recorded nearest to `time` for this id and `address`: the last one
    /// before it, or else the first one after it.
    pub(crate) fn queue(&self, pid: u32, address: u64, id: u64, time: u64) -> Option<&Queue> {
        let queues = self.queues.get(&(pid, address))?;
        let same = || queues.iter().filter(|queue| queue.id == id);
        same()
            .take_while(|queue| queue.time <= time)
            .last()
            .or_else(|| same().next())
    }

    /// KFD's id of the only GPU, if there is exactly one.
    pub(crate) fn only_gpu(&self) -> Option<u32> {
        let mut gpus = self.agents().iter().map(|info| info.agent.gpu_id);
        let first = gpus.find(|gpu_id| *gpu_id != 0)?;
        gpus.all(|gpu_id| gpu_id == 0).then_some(first)
    }

    /// Topology node of the only GPU, if there is exactly one.
    pub(crate) fn only_node(&self) -> Option<u32> {
        self.node_of_gpu(self.only_gpu()?)
    }

    /// Topology node of the GPU with this KFD id.
    pub(crate) fn node_of_gpu(&self, gpu_id: u32) -> Option<u32> {
        let mut agents = self.agents().iter().map(|info| &info.agent);
        let agent = agents.find(|agent| gpu_id != 0 && agent.gpu_id == gpu_id)?;
        Some(agent.node_id)
    }

    /// KFD's id of the GPU at a node.
    pub(crate) fn gpu_of_node(&self, node: u32) -> Option<u32> {
        let mut agents = self.agents().iter().map(|info| &info.agent);
        agents
            .find(|agent| agent.node_id == node)
            .map(|agent| agent.gpu_id)
    }

    /// The node of an `hsa_agent_t`.
    pub(crate) fn node_of(&self, pid: u32, handle: u64) -> Option<u32> {
        self.handles.get(&(pid, handle)).copied()
    }

    /// What was lost between two times, according to the ledgers that the recorder writes
    /// periodically.
    pub(crate) fn losses(&self, from: u64, to: u64) -> Losses {
        let first = self.losses.partition_point(|(_, until, _)| *until < from);
        let within = self.losses.get(first..).unwrap_or_default().iter();
        let within = within.take_while(|(since, ..)| *since <= to);
        within.map(|(.., losses)| *losses).max().unwrap_or_default()
    }

    /// Whether calls that may have changed where memory is were lost, or not recorded, between two
    /// times.
    pub(crate) fn lost_placements(&self, from: u64, to: u64) -> bool {
        let lost = &self.lost_placements;
        let first = lost.partition_point(|(_, until)| *until < from);
        lost.get(first).is_some_and(|(since, _)| *since <= to)
    }

    /// Whether a process, or one before it with the same id, has loaded code objects.
    pub(crate) fn has_code_objects(&self, pid: u32) -> bool {
        self.loaded.contains_key(&pid)
    }

    /// Whether a code object that was found after `since` is at an address of a process.
    pub(crate) fn is_code_object(&self, pid: u32, address: u64, since: u64) -> bool {
        let mut loaded = self.loaded.get(&pid).into_iter().flatten();
        loaded.any(|(base, size, time)| {
            let offset = address.checked_sub(*base);
            offset.is_some_and(|offset| offset < *size) && *time >= since
        })
    }

    /// The only agent of a kind, if there is exactly one.
    pub(crate) fn only_node_of(&self, kind: AgentKind) -> Option<u32> {
        let agents = self.agents.iter().map(|info| &info.agent);
        let mut agents = agents.filter(|agent| agent.kind == kind);
        let first = agents.next()?;
        agents.next().is_none().then_some(first.node_id)
    }

    /// Whether a node is a CPU or a GPU.
    pub(crate) fn kind_of(&self, node: u32) -> Option<AgentKind> {
        self.agent(node).map(|agent| agent.kind)
    }

    fn agent(&self, node: u32) -> Option<&Agent> {
        let index = self
            .agents
            .binary_search_by_key(&node, |agent| agent.agent.node_id)
            .ok()?;
        self.agents.get(index).map(|agent| &agent.agent)
    }

    /// The clock of a node's GPU or, without a node, of the only GPU. Empty if it is unknown.
    pub(crate) fn clock(&self, node: Option<u32>) -> &ClockModel {
        let gpu = match node {
            Some(node) => self.agent(node),
            None => {
                let mut gpus = self.agents.iter().map(|agent| &agent.agent);
                let first = gpus.find(|agent| agent.kind == AgentKind::Gpu);
                first.filter(|_| gpus.all(|agent| agent.kind != AgentKind::Gpu))
            }
        };
        gpu.and_then(|agent| self.clocks.get(&agent.gpu_id))
            .unwrap_or(&self.none)
    }
}

#[cfg(test)]
mod tests {
    use gputrace_capture::{
        gpu::{AgentHandle, GpuClock},
        ledger::LedgerRow,
    };

    use super::*;

    #[test]
    fn ranges_of_time_are_joined() {
        let mut ranges = Vec::new();
        for range in [
            (50, 60),
            (10, 20),
            (30, 40),
            (15, 30),
            (70, 80),
            (0, 5),
            (61, 69),
        ] {
            add_range(&mut ranges, range);
        }
        assert_eq!(ranges, [(0, 5), (10, 40), (50, 60), (61, 69), (70, 80)]);
        add_range(&mut ranges, (3, 100));
        assert_eq!(ranges, [(0, 100)]);
    }

    fn agent(node_id: u32, gpu_id: u32, name: &str) -> Meta {
        let kind = if gpu_id == 0 {
            AgentKind::Cpu
        } else {
            AgentKind::Gpu
        };
        Meta::Agent(Box::new(Agent {
            node_id,
            gpu_id,
            kind,
            name: name.to_owned(),
            ..Agent::default()
        }))
    }

    fn known(metas: impl IntoIterator<Item = Meta>) -> Knowledge {
        let mut collected = Collected::default();
        metas.into_iter().for_each(|meta| collected.take(meta));
        collected.finish().0
    }

    #[test]
    fn agents_are_numbered_by_node_and_described_last() {
        let known = known([
            agent(2, 20, "old"),
            agent(0, 0, "cpu"),
            agent(1, 10, "first"),
            agent(2, 20, "second"),
        ]);
        let seen: Vec<_> = known
            .agents()
            .iter()
            .map(|info| {
                (
                    info.agent.name.as_str(),
                    info.absolute_index,
                    info.type_index,
                )
            })
            .collect();
        assert_eq!(seen, [("cpu", 0, 0), ("first", 1, 0), ("second", 2, 1)]);
        assert_eq!(known.kind_of(1), Some(AgentKind::Gpu));
        assert_eq!(known.kind_of(3), None);
    }

    #[test]
    fn a_queue_without_a_node_has_the_clock_of_the_only_gpu() {
        let clock = |gpu_id| {
            Meta::GpuClock(GpuClock {
                gpu_id,
                tick: 5,
                boottime: 5,
                uncertainty: 1,
                ..GpuClock::default()
            })
        };
        let one = known([agent(0, 0, "cpu"), agent(1, 10, "gpu"), clock(10)]);
        assert!(!one.clock(None).is_empty());
        assert!(!one.clock(Some(1)).is_empty());
        assert!(one.clock(Some(0)).is_empty());
        let two = known([agent(1, 10, "gpu"), agent(2, 20, "gpu"), clock(10)]);
        assert!(two.clock(None).is_empty());
        assert!(two.clock(Some(2)).is_empty());
    }

    #[test]
    fn losses_lie_between_two_accounts() {
        let ledger = |time, packets, copies| {
            let row = |domain: Domain, lost| LedgerRow {
                domain: domain.id(),
                dropped: vec![0, lost],
                ..LedgerRow::default()
            };
            Meta::Ledger(Box::new(Ledger {
                time,
                rows: vec![
                    row(Domain::HipRuntime, time),
                    row(Domain::QueuePacket, packets),
                    row(Domain::MemoryCopy, copies),
                ],
                ..Ledger::default()
            }))
        };
        let known = known([
            ledger(100, 0, 0),
            ledger(200, 1, 0),
            ledger(300, 1, 0),
            ledger(400, 2, 5),
        ]);
        use Losses::{Copies, None, Packets};
        let spans = [
            (0, 99),
            (50, 100),
            (150, 160),
            (201, 299),
            (201, 300),
            (120, 500),
            (401, 900),
        ];
        let found = spans.map(|(from, to)| known.losses(from, to));
        assert_eq!(found, [None, Packets, Packets, None, Copies, Copies, None]);
    }

    #[test]
    fn queues_are_found_by_time_and_handles_by_process() {
        let queue = |time, id, node| {
            Meta::Queue(Queue {
                pid: 7,
                time,
                address: 0x1000,
                id,
                node_id: Some(node),
                packets: 64,
            })
        };
        let handle = AgentHandle {
            pid: 7,
            handle: 0xa,
            node_id: 3,
        };
        let known = known([
            queue(200, 1, 12),
            queue(100, 1, 11),
            queue(150, 2, 13),
            Meta::AgentHandle(handle),
        ]);
        let node = |id, time| {
            known
                .queue(7, 0x1000, id, time)
                .and_then(|queue| queue.node_id)
        };
        assert_eq!(
            [
                node(1, 50),
                node(1, 100),
                node(1, 199),
                node(1, 999),
                node(2, 0),
                node(3, 0)
            ],
            [Some(11), Some(11), Some(11), Some(12), Some(13), None]
        );
        assert_eq!(
            (known.node_of(7, 0xa), known.node_of(8, 0xa)),
            (Some(3), None)
        );
    }
}
