//! Copies done by copy engines.

use std::collections::VecDeque;

use gputrace_abi::gpu::{self, packet_flags, role};
use gputrace_capture::gpu::AgentKind;
use gputrace_text::tables::plural;

use crate::{
    derive::{
        asked::Kinds,
        work::{
            Work,
            evidence::Evidence,
            knowledge::Knowledge,
            places::{Place, Places},
            signal::User,
        },
    },
    model::{
        event::Event,
        gpu::{Copy, Direction, KnownBy, Origin},
    },
};

/// A copy about which more may still become known.
#[derive(Debug)]
pub(crate) struct OpenCopy {
    copy: Copy,
    /// Node of the GPU that copies. The copy's stamps are in that GPU's clock.
    pub(crate) engine_node: Option<u32>,
    /// Whether one of ROCr's threads does the copy, in which case no GPU's clock stamps it.
    pub(crate) by_cpu: bool,
    pub(crate) evidence: Evidence,
}

impl OpenCopy {
    /// The thread and calls that requested the copy.
    pub(crate) fn origin(&self) -> &Origin {
        &self.copy.origin
    }

    /// Its completion signal, or 0 if it has none.
    pub(crate) fn signal(&self) -> u64 {
        self.copy.signal
    }

    /// The copy as an event, with everything known so far.
    pub(crate) fn event(self) -> Event {
        Event::Copy(Box::new(Copy {
            time: self.evidence.time(self.evidence.earliest, None),
            ..self.copy
        }))
    }
}

impl Work {
    /// Learns that the recording has calls that place memory.
    pub(crate) fn follow_memory(&mut self) {
        self.places.are_followed = true;
    }

    /// Completes the direction of a copy before it is emitted: where neither the memory nor the
    /// agents tell it, the call of HIP does that asked for it.
    pub(crate) fn direct(&mut self, event: &mut Event) {
        let Event::Copy(copy) = event else {
            return;
        };
        let asked = self.asked.of(&copy.origin);
        let asked = asked.filter(|kinds| fit(copy.memory_kinds, *kinds));
        if let (None, Some(kinds)) = (copy.known_by, asked) {
            (copy.direction, copy.known_by) = (direction(kinds), Some(KnownBy::Call));
            let [from, to] = kinds;
            let node = |named, kind| node_of_kind(named, kind, &self.knowledge);
            copy.source_node = node(copy.source_node, from);
            copy.destination_node = node(copy.destination_node, to);
        }
        self.unproven.count(copy.known_by);
    }

    /// Handles the submission of a copy.
    pub(super) fn copy(&mut self, record: &gpu::Copy, events: &mut VecDeque<Event>) {
        self.copies_seen += 1;
        let id = self.copies_seen;
        let route = Route::of(record, &self.places, &self.knowledge);
        let copy = OpenCopy {
            copy: Copy {
                id,
                origin: Origin {
                    pid: record.pid,
                    tid: record.tid,
                    time: record.time,
                    innermost: record.innermost,
                    outermost: record.outermost,
                    caller: record.innermost,
                    stream: (record.flags & packet_flags::STREAM != 0).then_some(record.stream),
                    deferred: false,
                    stream_id: 0,
                    stack_number: None,
                    range: None,
                    external: None,
                },
                direction: route.direction,
                known_by: route.known_by,
                destination_node: route.destination,
                source_node: route.source,
                memory_kinds: route.memory_kinds,
                destination: record.destination,
                source: record.source,
                bytes: record.bytes,
                engine: record.engine,
                signal: record.signal,
                ..Copy::default()
            },
            engine_node: route.engine,
            by_cpu: route.by_cpu,
            evidence: Evidence {
                earliest: record.time,
                ..Evidence::default()
            },
        };
        if record.signal == 0 {
            events.push_back(copy.event());
            return;
        }
        self.copies.insert(id, copy);
        self.use_signal(
            record.pid,
            record.signal,
            User::Copy(id),
            record.time,
            events,
        );
    }
}

/// Source, destination and engine of a copy.
#[derive(Debug, PartialEq, Eq)]
struct Route {
    direction: Direction,
    known_by: Option<KnownBy>,
    destination: Option<u32>,
    source: Option<u32>,
    /// Kinds of source and destination, where the memory is known.
    memory_kinds: [Option<AgentKind>; 2],
    /// Node of the GPU that does the copy.
    engine: Option<u32>,
    /// Whether one of ROCr's threads does it.
    by_cpu: bool,
}

/// What a call says about a copy: the agents that it names and, unless these are the same GPU, the
/// kinds of source and destination.
struct Named {
    source: Option<u32>,
    destination: Option<u32>,
    kinds: Option<Kinds>,
    engine: Option<u32>,
    by_cpu: bool,
}

impl Named {
    /// ROCr lets the source's GPU copy if there is one, otherwise the destination's
    /// (`Runtime::CopyMemory`). A rectangle is copied by the agent that the call names, which is
    /// the source or the destination depending on the direction.
    fn of(record: &gpu::Copy, is_memory_followed: bool, knowledge: &Knowledge) -> Self {
        let node = |handle| knowledge.node_of(record.pid, handle);
        let first = node(record.destination_agent);
        if record.role == u32::from(role::COPY_RECT) {
            let (kinds, destination, source) = match record.direction {
                0 => (Some([AgentKind::Cpu; 2]), None, None),
                1 => (Some([AgentKind::Cpu, AgentKind::Gpu]), first, None),
                2 => (Some([AgentKind::Gpu, AgentKind::Cpu]), None, first),
                3 => (Some([AgentKind::Gpu; 2]), None, None),
                _ => (None, None, None),
            };
            return Self {
                source,
                destination,
                kinds,
                engine: first,
                by_cpu: record.direction == 0,
            };
        }
        let (destination, source) = (first, node(record.source_agent));
        let kind = |node: Option<u32>| node.and_then(|node| knowledge.kind_of(node));
        let (from, to) = (kind(source), kind(destination));
        let of_gpu = |node: Option<u32>, kind| node.filter(|_| kind == Some(AgentKind::Gpu));
        let both = from.zip(to).map(Kinds::from);
        // The agents only select the copy engine. A caller that names one GPU twice, such as
        // OpenMP's runtime, may mean any memory that this GPU can reach. Captures of older versions
        // do not have the calls that place memory; there, the agents are the only source.
        let is_one_gpu = is_memory_followed && source == destination && to == Some(AgentKind::Gpu);
        Self {
            source,
            destination,
            kinds: both.filter(|_| !is_one_gpu),
            engine: of_gpu(source, from)
                .or_else(|| of_gpu(destination, to).filter(|_| from.is_some())),
            by_cpu: both == Some([AgentKind::Cpu; 2]),
        }
    }
}

impl Route {
    /// The memory decides. Where it is not known, the agents that the call names do, as long as
    /// they differ and do not contradict what is known.
    fn of(record: &gpu::Copy, places: &Places, knowledge: &Knowledge) -> Self {
        let named = Named::of(record, places.are_followed, knowledge);
        let find = |address| {
            let range = (address, record.bytes);
            places.find(record.pid, range, record.time, knowledge)
        };
        let (source, destination) = (find(record.source), find(record.destination));
        let memory_kinds = [source, destination].map(|place| place.map(|place| place.kind));
        let by_names = named.kinds.filter(|kinds| fit(memory_kinds, *kinds));
        let [from, to] = memory_kinds;
        let by_memory = from.zip(to).map(Kinds::from);
        let (direction, known_by) = match (by_memory, by_names) {
            (Some(kinds), _) => (direction(kinds), Some(KnownBy::Memory)),
            (None, Some(kinds)) => (direction(kinds), Some(KnownBy::Agents)),
            (None, None) => (Direction::Unknown, None),
        };
        let node = |place: Option<Place>, named: Option<u32>| match place {
            None => named,
            Some(Place {
                node: Some(node), ..
            }) => Some(node),
            Some(Place { kind, node: None }) => node_of_kind(named, kind, knowledge),
        };
        Self {
            direction,
            known_by,
            destination: node(destination, named.destination),
            source: node(source, named.source),
            memory_kinds,
            engine: named.engine,
            by_cpu: named.by_cpu,
        }
    }
}

/// Whether source and destination may be of these kinds, as far as their memory is known.
fn fit(known: [Option<AgentKind>; 2], kinds: Kinds) -> bool {
    let mut sides = known.iter().zip(kinds);
    sides.all(|(known, kind)| known.is_none_or(|known| known == kind))
}

/// The node of an agent of this kind: the one that the call names, or else the only one.
fn node_of_kind(named: Option<u32>, kind: AgentKind, knowledge: &Knowledge) -> Option<u32> {
    named
        .filter(|node| knowledge.kind_of(*node) == Some(kind))
        .or_else(|| knowledge.only_node_of(kind))
}

/// The direction between memory of these kinds of agents.
const fn direction(kinds: Kinds) -> Direction {
    match kinds {
        [AgentKind::Cpu, AgentKind::Cpu] => Direction::HostToHost,
        [AgentKind::Cpu, AgentKind::Gpu] => Direction::HostToDevice,
        [AgentKind::Gpu, AgentKind::Cpu] => Direction::DeviceToHost,
        [AgentKind::Gpu, AgentKind::Gpu] => Direction::DeviceToDevice,
    }
}

/// How many copies do not have a direction that the memory proves.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unproven {
    by_agents: u64,
    by_calls: u64,
    unknown: u64,
}

impl Unproven {
    fn count(&mut self, known_by: Option<KnownBy>) {
        match known_by {
            Some(KnownBy::Memory) => {}
            Some(KnownBy::Agents) => self.by_agents += 1,
            Some(KnownBy::Call) => self.by_calls += 1,
            None => self.unknown += 1,
        }
    }

    /// The remark about them.
    pub(crate) fn remark(self) -> Option<String> {
        let Self {
            by_agents,
            by_calls,
            unknown,
        } = self;
        let all = by_agents + by_calls + unknown;
        if all == 0 {
            return None;
        }
        let of = plural(all, "copy", "copies");
        let mut text = format!("It was not seen where all memory of {of} is.");
        if by_agents > 0 {
            text.push_str(&format!(
                " The direction of {by_agents} is that of the agents that their calls name."
            ));
        }
        if by_calls > 0 {
            text.push_str(&format!(
                " The direction of {by_calls} is what the program told HIP."
            ));
        }
        if unknown > 0 {
            text.push_str(&format!(
                " The direction of {unknown} is unknown, because their calls name one GPU for \
                 both sides, name agents that are not known, or contradict what was seen, and no \
                 call of HIP says it."
            ));
        }
        Some(text)
    }
}

#[cfg(test)]
mod tests;
