//! Memory that programs hold: allocations and frees, derived from HSA's calls, and what was never
//! freed.
//!
//! Requests to HSA show what the GPU's memory is used for, so HSA is probed for them even where
//! only HIP is traced. Pool functions (`hipMallocAsync`) use memory that HIP already has, and
//! seldom reach HSA. So allocations that applications request from HIP are followed separately, in
//! [`hip`].

mod hip;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use foldhash::fast::RandomState;
use gputrace_abi::domain::Domain;
use gputrace_capture::gpu::AgentKind;
use gputrace_catalog::memory::{Allocation, allocation};
use gputrace_text::tables::{bytes, count};

use self::hip::HipMemory;
use crate::{
    derive::placements::owner,
    model::{
        event::{Call, CallEnd, Event, FunctionInfo},
        observation::{FieldValue, Observation, ObservedField, Whose},
    },
};

/// Maximum number of calls remembered.
const MOST_LATEST: usize = 1 << 16;

/// Memory that has not been freed.
#[derive(Debug)]
struct Live {
    bytes: u64,
    node: Option<u32>,
    /// The call around the allocation, or the allocating call itself.
    caller: u64,
    /// The function of `caller`, once known.
    function: Option<u32>,
}

/// What was allocated on an agent.
#[derive(Debug, Default)]
struct Total {
    live: u64,
    peak: u64,
    /// What was never freed, by function: bytes and number of allocations.
    left: BTreeMap<Option<u32>, (u64, u64)>,
}

/// Follows allocations.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Whether allocations are of interest.
    on: bool,
    /// Domains whose calls are shown.
    shown: HashSet<u8>,
    functions: HashMap<u32, (Allocation, String), RandomState>,
    names: HashMap<u32, String>,
    /// Node, kind and KFD's id of the agents.
    agents: Vec<(u32, AgentKind, u32)>,
    live: BTreeMap<(u32, u64), Live>,
    hip: HipMemory,
    /// Functions of the latest calls by correlation id, and these ids in order: a call may come
    /// before the calls inside it.
    latest: HashMap<u64, u32, RandomState>,
    order: VecDeque<u64>,
    /// Places of live memory by the call within which it was allocated.
    callers: HashMap<u64, Vec<(u32, u64)>, RandomState>,
    totals: BTreeMap<Option<u32>, Total>,
    /// Calls that freed memory whose allocation was not seen.
    freed_unseen: u64,
}

/// The remark about frees of memory whose allocation was not seen; `asked` names the library.
fn freed_unseen(number: u64, asked: &str) -> Option<String> {
    (number > 0).then(|| {
        format!(
            "{} by {asked} without an allocation in the recording: most likely it was made before. \
             These figures do not include it.",
            count(number, "free")
        )
    })
}

/// The sentence about memory that one function has left; `how` leads over to it.
fn not_freed(left: u64, number: u64, how: &str, function: &str) -> String {
    format!(
        " Not freed by its end: {} in {} {how} {function}.",
        bytes(left),
        count(number, "allocation")
    )
}

impl Memory {
    /// `domains` are those of the recording, by name.
    pub(crate) fn new(domains: &[String]) -> Self {
        let has = |domain: Domain| domains.iter().any(|name| name == domain.name());
        // Calls of functions that were probed only for allocations are not shown.
        let shown = Domain::ALL
            .iter()
            .filter(|domain| has(**domain) && **domain != Domain::MemoryAllocation);
        Self {
            on: has(Domain::MemoryAllocation),
            shown: shown.map(|domain| domain.id()).collect(),
            ..Self::default()
        }
    }

    /// Learns of a function.
    pub(crate) fn function(&mut self, info: &FunctionInfo) {
        if !self.on {
            return;
        }
        self.hip.function(info);
        let function = &info.function;
        if let Some(allocation) = allocation(&function.name) {
            self.functions
                .insert(function.id, (allocation, function.name.clone()));
        }
        self.names.insert(function.id, function.name.clone());
    }

    /// Learns of an agent.
    pub(crate) fn agent(&mut self, event: &Event) {
        if let Event::Agent(info) = event {
            let agent = &info.agent;
            self.agents.push((agent.node_id, agent.kind, agent.gpu_id));
        }
    }

    /// Learns from a call and appends its effect on memory to `ready`. Returns `false` if the call
    /// itself is to be hidden.
    pub(crate) fn call(&mut self, call: &Call, ready: &mut impl Extend<Event>) -> bool {
        // Where copies are traced without allocations, their functions are probed nevertheless.
        if !self.on {
            return call.domain != Domain::MemoryAllocation.id();
        }
        if let Some(places) = self.callers.remove(&call.correlation) {
            for place in places {
                if let Some(live) = self.live.get_mut(&place) {
                    live.function = Some(call.function);
                }
            }
        }
        let node = |address: u64| {
            let (&(of, begin), live) = self.live.range(..=(call.pid, address)).next_back()?;
            let is_within = of == call.pid && address - begin < live.bytes.max(1);
            live.node.filter(|_| is_within)
        };
        let of_hip = self.hip.call(call, node);
        let Some((allocation, _)) = self.functions.get(&call.function) else {
            self.latest.insert(call.correlation, call.function);
            self.order.push_back(call.correlation);
            if self.order.len() > MOST_LATEST
                && let Some(oldest) = self.order.pop_front()
            {
                self.latest.remove(&oldest);
            }
            let is_of_memory = of_hip || call.domain == Domain::MemoryAllocation.id();
            return !is_of_memory || self.shown.contains(&call.domain);
        };
        let allocation = *allocation;
        if matches!(call.how, CallEnd::Returned(status) if status as u32 == 0) {
            ready.extend(self.observe(call, allocation));
        }
        self.shown.contains(&call.domain)
    }

    /// Whether calls of HIP are waiting to be settled.
    pub(crate) fn waits(&self) -> bool {
        self.hip.waits()
    }

    /// Emits what HIP was asked for. To be called when all calls that began before some time are
    /// known.
    pub(crate) fn settle(&mut self, ready: &mut impl Extend<Event>) {
        let gpu = |node: u32| {
            let found = self.agents.iter().find(|(number, ..)| *number == node)?;
            Some(found.2)
        };
        self.hip.settle(gpu, ready);
    }

    fn observe(&mut self, call: &Call, allocation: Allocation) -> Option<Event> {
        let [first, second, ..] = call.args;
        let (address, bytes, node) = match allocation {
            Allocation::Allocate(word) | Allocation::VmemAllocate(word) => {
                let address = call.stored(word)?;
                let node = self.node(call);
                self.allocated(call, (address, second), node);
                (address, second, node)
            }
            // Freeing a null pointer frees nothing.
            Allocation::Free | Allocation::VmemFree if first == 0 => return None,
            Allocation::Free | Allocation::VmemFree => {
                let freed = self.freed(call.pid, first);
                self.freed_unseen += u64::from(freed.is_none());
                let (bytes, node) = freed.map_or((0, None), |live| (live.bytes, live.node));
                (first, bytes, node)
            }
        };
        let total = self.totals.get(&node).map_or(0, |total| total.live);
        let gpu = self
            .agents
            .iter()
            .find(|(number, ..)| Some(*number) == node);
        let mut fields = vec![
            ObservedField::new("bytes", FieldValue::Number(bytes)),
            ObservedField::new("address", FieldValue::Hex(address)),
            ObservedField::new("correlation_id", FieldValue::Number(call.correlation)),
        ];
        if let Some(node) = node {
            fields.push(ObservedField::new("node", FieldValue::Number(node.into())));
            fields.push(ObservedField::new("live_bytes", FieldValue::Number(total)));
        }
        Some(Event::Observation(Box::new(Observation {
            domain: Domain::MemoryAllocation.id(),
            name: allocation.name().into(),
            whose: Whose {
                pid: call.pid,
                tid: call.tid,
                gpu_id: gpu.map_or(0, |(_, _, gpu_id)| *gpu_id),
            },
            begin: call.begin,
            end: call.end,
            is_open: false,
            fields,
        })))
    }

    fn allocated(&mut self, call: &Call, (address, bytes): (u64, u64), node: Option<u32>) {
        self.hip.placed(call, (address, bytes), node);
        // Ends an earlier allocation at this address whose free was not seen.
        self.freed(call.pid, address);
        let place = (call.pid, address);
        let (caller, function) = match call.parent {
            0 => (call.correlation, Some(call.function)),
            parent => {
                let function = self.latest.get(&parent).copied();
                if function.is_none() {
                    self.callers.entry(parent).or_default().push(place);
                }
                (parent, function)
            }
        };
        self.live.insert(
            place,
            Live {
                bytes,
                node,
                caller,
                function,
            },
        );
        let total = self.totals.entry(node).or_default();
        total.live = total.live.saturating_add(bytes);
        total.peak = total.peak.max(total.live);
    }

    fn freed(&mut self, pid: u32, address: u64) -> Option<Live> {
        let live = self.live.remove(&(pid, address))?;
        if let Some(places) = self.callers.get_mut(&live.caller) {
            places.retain(|place| *place != (pid, address));
            if places.is_empty() {
                self.callers.remove(&live.caller);
            }
        }
        if let Some(total) = self.totals.get_mut(&live.node) {
            total.live = total.live.saturating_sub(live.bytes);
        }
        Some(live)
    }

    /// The topology node of the agent whose pool or region the call was given: the one of its
    /// possible owners that exists.
    fn node(&self, call: &Call) -> Option<u32> {
        let exists = |owner: &(u32, AgentKind)| {
            let mut agents = self.agents.iter();
            agents.any(|(number, of, _)| (*number, *of) == *owner)
        };
        let known = owner(call).into_iter().flatten().find(exists)?;
        Some(known.0)
    }

    /// A process has ended or executed another program: its memory is released without having been
    /// freed by the program.
    pub(crate) fn ended(&mut self, pid: u32) {
        if !self.live.is_empty() {
            let places: Vec<(u32, u64)> = self
                .live
                .keys()
                .filter(|(of, _)| *of == pid)
                .copied()
                .collect();
            for (pid, address) in places {
                self.left(pid, address);
            }
        }
        self.hip.ended(pid);
    }

    fn left(&mut self, pid: u32, address: u64) {
        if let Some(live) = self.freed(pid, address)
            && let Some(total) = self.totals.get_mut(&live.node)
        {
            let (bytes, count) = total.left.entry(live.function).or_default();
            *bytes = bytes.saturating_add(live.bytes);
            *count += 1;
        }
    }

    /// Remarks at the end of the recording.
    pub(crate) fn remarks(&mut self) -> Vec<String> {
        let places: Vec<(u32, u64)> = self.live.keys().copied().collect();
        for (pid, address) in places {
            self.left(pid, address);
        }
        let mut remarks = Vec::new();
        for (node, total) in &self.totals {
            let whose = node.map_or("agents that are not known".to_owned(), |node| {
                format!("node {node}")
            });
            let mut text = format!(
                "Memory of {whose} that was allocated while recording: {} at its peak.",
                bytes(total.peak)
            );
            for (function, (left, number)) in &total.left {
                let by = function.and_then(|id| self.names.get(&id));
                let by = by.map_or("a call that is not in the recording", String::as_str);
                text.push_str(&not_freed(*left, *number, "within", by));
            }
            remarks.push(text);
        }
        remarks.extend(freed_unseen(self.freed_unseen, "HSA"));
        remarks.extend(self.hip.remarks());
        remarks
    }
}

#[cfg(test)]
mod tests;
