//! Memory that applications request from HIP: every allocation and free, including those from
//! pools, whose memory HIP already has.
//!
//! Calls come in order of their begin, HSA's calls after the HIP call around them. So the effects
//! of HIP's calls wait until all calls of their group have been seen. Then they are applied in an
//! order in which they can have happened: memory exists at the latest when the allocating call
//! returns, and at least until the freeing call begins.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use foldhash::fast::RandomState;
use gputrace_abi::domain::Domain;
use gputrace_catalog::hip_memory::{HipAllocation, Kind, format_bytes, hip_allocation};
use gputrace_text::tables::bytes;

use crate::model::{
    event::{Call, CallEnd, Event, FunctionInfo},
    observation::{FieldValue, Observation, ObservedField, Whose},
    values::PointeeData,
};

/// Memory that has not been freed.
#[derive(Debug)]
struct Live {
    kind: Kind,
    /// Size in bytes; 0 if unknown.
    bytes: u64,
    node: Option<u32>,
    function: u32,
    /// When the allocating call returned.
    since: u64,
}

/// What was allocated of one kind.
#[derive(Debug, Default)]
struct Total {
    live: u64,
    peak: u64,
    /// What was never freed, by function: bytes and number of allocations.
    left: BTreeMap<u32, (u64, u64)>,
}

/// The effect of a call, and its latest (allocation) or earliest (free) time.
#[derive(Debug)]
struct Done {
    time: u64,
    what: What,
    /// The agent that holds the memory.
    node: Option<u32>,
    function: u32,
    whose: (u32, u32),
    begin: u64,
    end: u64,
    correlation: u64,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Allocated {
        kind: Kind,
        address: u64,
        bytes: u64,
    },
    Freed {
        address: u64,
    },
    Reset,
}

/// Follows HIP's allocations.
#[derive(Debug, Default)]
pub(super) struct HipMemory {
    functions: HashMap<u32, (HipAllocation, String), RandomState>,
    waiting: Vec<Done>,
    live: BTreeMap<(u32, u64), Live>,
    kinds: BTreeMap<Kind, Total>,
    /// Bytes in use by topology node.
    nodes: BTreeMap<u32, u64>,
    /// Calls that freed memory whose allocation was not seen.
    freed_unseen: u64,
}

impl HipMemory {
    pub(super) fn function(&mut self, info: &FunctionInfo) {
        let function = &info.function;
        if let Some(allocation) = hip_allocation(&function.name) {
            self.functions
                .insert(function.id, (allocation, function.name.clone()));
        }
    }

    /// Learns from a call. Returns whether its function is one that allocates or frees. `node`
    /// finds the agent on which HSA allocated the memory at an address.
    pub(super) fn call(&mut self, call: &Call, node: impl Fn(u64) -> Option<u32>) -> bool {
        let Some((allocation, _)) = self.functions.get(&call.function) else {
            return false;
        };
        if matches!(call.how, CallEnd::Returned(status) if status as u32 == 0)
            && let Some(what) = done(call, *allocation)
        {
            let (time, node) = match what {
                What::Allocated { kind, address, .. } => {
                    (call.end, node(address).filter(|_| kind != Kind::Registered))
                }
                What::Freed { .. } | What::Reset => (call.begin, None),
            };
            self.waiting.push(Done {
                time,
                what,
                node,
                function: call.function,
                whose: (call.pid, call.tid),
                begin: call.begin,
                end: call.end,
                correlation: call.correlation,
            });
        }
        true
    }

    /// Whether anything waits.
    pub(super) fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// A call of HSA's has allocated memory. If a waiting call around it returned an address in it,
    /// that call gets its agent. Other calls may have had the same address, earlier or later.
    pub(super) fn placed(&mut self, hsa: &Call, (begin, bytes): (u64, u64), of: Option<u32>) {
        let is_around = |done: &&mut Done| {
            done.whose.0 == hsa.pid && done.begin <= hsa.begin && hsa.end <= done.end
        };
        for done in self.waiting.iter_mut().filter(is_around) {
            if let What::Allocated { kind, address, .. } = done.what
                && kind != Kind::Registered
                && address
                    .checked_sub(begin)
                    .is_some_and(|offset| offset < bytes)
            {
                done.node = of;
            }
        }
    }

    /// Emits events for the waiting calls. `gpu` finds KFD's number for an agent.
    pub(super) fn settle(
        &mut self,
        gpu: impl Fn(u32) -> Option<u32>,
        ready: &mut impl Extend<Event>,
    ) {
        let mut waiting = std::mem::take(&mut self.waiting);
        // What begins when another call ends is sorted after it.
        waiting.sort_by_key(|done| {
            (
                done.time,
                matches!(done.what, What::Freed { .. } | What::Reset),
            )
        });
        for done in waiting {
            let pid = done.whose.0;
            let (kind, address, bytes, of) = match done.what {
                What::Allocated {
                    kind,
                    address,
                    bytes,
                } => {
                    let node = done.node;
                    // Ends an earlier allocation at this address whose free was not seen.
                    self.take((pid, address));
                    let total = self.kinds.entry(kind).or_default();
                    total.live = total.live.saturating_add(bytes);
                    total.peak = total.peak.max(total.live);
                    if let Some(node) = node {
                        let live = self.nodes.entry(node).or_default();
                        *live = live.saturating_add(bytes);
                    }
                    self.live.insert(
                        (pid, address),
                        Live {
                            kind,
                            bytes,
                            node,
                            function: done.function,
                            since: done.end,
                        },
                    );
                    (Some(kind), address, bytes, node)
                }
                What::Freed { address } => {
                    // A later allocation at this address is not the one that was freed.
                    let is_meant = |live: &Live| live.since <= done.end;
                    let live = match self.around(pid, address) {
                        Some((place, live)) if is_meant(live) => self.take(place),
                        Some(_) => None,
                        None => {
                            self.freed_unseen += 1;
                            None
                        }
                    };
                    let kind = live.as_ref().map(|live| live.kind);
                    let (bytes, node) = live.map_or((0, None), |live| (live.bytes, live.node));
                    (kind, address, bytes, node)
                }
                What::Reset => {
                    self.reset(pid);
                    continue;
                }
            };
            let Some((_, name)) = self.functions.get(&done.function) else {
                continue;
            };
            let mut fields = vec![
                ObservedField::new("bytes", FieldValue::Number(bytes)),
                ObservedField::new("address", FieldValue::Hex(address)),
                ObservedField::new("correlation_id", FieldValue::Number(done.correlation)),
            ];
            if let Some(kind) = kind {
                fields.push(ObservedField::new(
                    "memory",
                    FieldValue::Text(kind.name().into()),
                ));
            }
            if let Some(node) = of {
                let live = self.nodes.get(&node).copied().unwrap_or(0);
                fields.push(ObservedField::new("node", FieldValue::Number(node.into())));
                fields.push(ObservedField::new(
                    "live_hip_bytes",
                    FieldValue::Number(live),
                ));
            }
            ready.extend([Event::Observation(Box::new(Observation {
                domain: Domain::HipMemory.id(),
                name: name.clone().into(),
                whose: Whose {
                    pid,
                    tid: done.whose.1,
                    gpu_id: of.and_then(&gpu).unwrap_or(0),
                },
                begin: done.begin,
                end: done.end,
                is_open: false,
                fields,
            }))]);
        }
    }

    /// The process's current GPU was reset. The call does not say which GPU that is: it is known
    /// only if the process uses a single one.
    fn reset(&mut self, pid: u32) {
        let of_gpu = |live: &Live| !matches!(live.kind, Kind::Host | Kind::Registered);
        let places = self.live.range((pid, 0)..=(pid, u64::MAX));
        let (places, nodes): (Vec<(u32, u64)>, BTreeSet<Option<u32>>) = places
            .filter(|(_, live)| of_gpu(live))
            .map(|(place, live)| (*place, live.node))
            .unzip();
        if nodes.len() == 1 {
            for place in places {
                self.take(place);
            }
        }
    }

    /// The memory that an address is in: HIP frees the whole of it, whichever address it is given.
    fn around(&self, pid: u32, address: u64) -> Option<((u32, u64), &Live)> {
        let before = self.live.range((pid, 0)..=(pid, address));
        let (&place, live) = before.last()?;
        // What is known of these by is no address of their memory.
        let is_handle = matches!(live.kind, Kind::Array | Kind::Handle);
        let offset = address - place.1;
        (offset == 0 || !is_handle && offset < live.bytes).then_some((place, live))
    }

    fn take(&mut self, place: (u32, u64)) -> Option<Live> {
        let live = self.live.remove(&place)?;
        if let Some(total) = self.kinds.get_mut(&live.kind) {
            total.live = total.live.saturating_sub(live.bytes);
        }
        if let Some(bytes) = live.node.and_then(|node| self.nodes.get_mut(&node)) {
            *bytes = bytes.saturating_sub(live.bytes);
        }
        Some(live)
    }

    /// A process has ended or executed another program: it did not free its memory.
    pub(super) fn ended(&mut self, pid: u32) {
        let places = self.live.range((pid, 0)..=(pid, u64::MAX));
        let places: Vec<(u32, u64)> = places.map(|(place, _)| *place).collect();
        for place in places {
            self.left(place);
        }
    }

    fn left(&mut self, place: (u32, u64)) {
        if let Some(live) = self.take(place)
            && let Some(total) = self.kinds.get_mut(&live.kind)
        {
            let (bytes, count) = total.left.entry(live.function).or_default();
            *bytes = bytes.saturating_add(live.bytes);
            *count += 1;
        }
    }

    /// Remarks at the end of the recording.
    pub(super) fn remarks(&mut self) -> Vec<String> {
        let places: Vec<(u32, u64)> = self.live.keys().copied().collect();
        for place in places {
            self.left(place);
        }
        let mut remarks = Vec::new();
        for (kind, total) in &self.kinds {
            let mut text = format!(
                "Memory requested from HIP while recording ({}): {} at its peak.",
                kind.name(),
                bytes(total.peak)
            );
            for (function, (left, number)) in &total.left {
                let by = self.functions.get(function);
                let by = by.map_or("another function", |(_, name)| name.as_str());
                text.push_str(&super::not_freed(*left, *number, "by", by));
            }
            remarks.push(text);
        }
        remarks.extend(super::freed_unseen(self.freed_unseen, "HIP"));
        remarks
    }
}

/// The effect of a successful call; `None` if it has none or it is unknown.
fn done(call: &Call, allocation: HipAllocation) -> Option<What> {
    let [first, second, third, fourth, ..] = call.args;
    let [width, height, depth, ..] = call.stack;
    let (address, bytes) = match allocation {
        HipAllocation::Allocate(_) => (call.stored(0)?, second),
        HipAllocation::AllocatePitched => (call.stored(0)?, call.stored(1)?.saturating_mul(fourth)),
        HipAllocation::AllocateExtent => {
            let pitch = word(call, 0, 8)?;
            let rows = height.max(1).saturating_mul(depth.max(1));
            let is_known = call.stack_readable;
            (
                call.stored(0)?,
                if is_known {
                    pitch.saturating_mul(rows)
                } else {
                    0
                },
            )
        }
        HipAllocation::AllocateArray => {
            let elements = third.saturating_mul(fourth.max(1));
            (call.stored(0)?, elements.saturating_mul(element(call)))
        }
        HipAllocation::AllocateArray3D => {
            let elements = width
                .saturating_mul(height.max(1))
                .saturating_mul(depth.max(1));
            let bytes = elements.saturating_mul(element(call));
            (call.stored(0)?, if call.stack_readable { bytes } else { 0 })
        }
        HipAllocation::CreateArray => (call.stored(0)?, described(call).unwrap_or(0)),
        HipAllocation::AllocateUnsized => (call.stored(0)?, 0),
        HipAllocation::Register => (first, second),
        // Freeing a null pointer frees nothing.
        HipAllocation::Free if first == 0 => return None,
        HipAllocation::Free => return Some(What::Freed { address: first }),
        HipAllocation::Reset => return Some(What::Reset),
    };
    // An allocation of zero bytes gives no address.
    let kind = allocation.kind().filter(|_| address != 0)?;
    Some(What::Allocated {
        kind,
        address,
        bytes,
    })
}

/// The bytes behind an argument as read at the return.
fn read(call: &Call, argument: u8) -> Option<&[u8]> {
    let mut pointees = call.pointees.iter();
    let found = pointees.find(|pointee| pointee.word == argument && pointee.at_return)?;
    match &found.data {
        PointeeData::Bytes(bytes) => Some(bytes),
        PointeeData::Text { .. } | PointeeData::Annotation(_) | PointeeData::Unreadable => None,
    }
}

fn word(call: &Call, argument: u8, at: usize) -> Option<u64> {
    let bytes = read(call, argument)?.get(at..)?;
    bytes.first_chunk().copied().map(u64::from_le_bytes)
}

fn half(call: &Call, argument: u8, at: usize) -> Option<u32> {
    let bytes = read(call, argument)?.get(at..)?;
    bytes.first_chunk().copied().map(u32::from_le_bytes)
}

/// Bytes of an element, from a `hipChannelFormatDesc`; 0 if it could not be read.
fn element(call: &Call) -> u64 {
    let bits = [0, 4, 8, 12].iter().filter_map(|at| half(call, 1, *at));
    bits.map(u64::from).sum::<u64>() / 8
}

/// Bytes of an array, from a `HIP_ARRAY_DESCRIPTOR`.
fn described(call: &Call) -> Option<u64> {
    let (width, height) = (word(call, 1, 0)?, word(call, 1, 8)?);
    let (format, channels) = (half(call, 1, 16)?, half(call, 1, 20)?);
    let element = format_bytes(format)?.saturating_mul(channels.into());
    Some(width.saturating_mul(height.max(1)).saturating_mul(element))
}

#[cfg(test)]
mod tests;
