//! Where the memory behind the addresses of processes is, at the current point of the timeline.
//!
//! What is known comes from the calls that allocate, pin and map memory, and from the code objects
//! that processes have loaded. Nothing is known of memory that is older than the recording, or that
//! comes from elsewhere (`malloc`, managed memory). Addresses are reused, so what is known of a
//! range ends where something else begins.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::RandomState;
use gputrace_capture::gpu::AgentKind;

use crate::{
    derive::work::knowledge::Knowledge,
    model::item::{Change, IpcHandle, PlacementChange, Whose},
};

/// Maximum number of address ranges, handles and shared handles remembered, each; of a process the
/// first two. What exceeds it is not known.
const MOST: usize = 1 << 20;

/// Maximum number of ranges that one copy can be of; nothing is certain of larger copies.
const MOST_RANGES: usize = 1 << 12;

/// Where memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) kind: AgentKind,
    /// Topology node of the agent, if known.
    pub(crate) node: Option<u32>,
}

impl Place {
    /// Memory of the host of which only that is known.
    const HOST: Self = Self {
        kind: AgentKind::Cpu,
        node: None,
    };
}

/// A range of addresses with memory.
#[derive(Clone, Copy, Debug)]
struct Range {
    /// The first address behind it.
    end: u64,
    place: Option<Place>,
    /// Since when it has been known.
    since: u64,
    /// How often it is pinned; 0 for memory that is not there by being pinned.
    locks: u32,
    /// Where GPUs see pinned memory, if elsewhere.
    seen_at: Option<u64>,
}

/// The memory of a process.
#[derive(Debug, Default)]
struct Process {
    ranges: BTreeMap<u64, Range>,
    handles: HashMap<u64, Option<Place>, RandomState>,
    /// When it began, or last unloaded code objects: those loaded before may be gone.
    loaded_since: u64,
}

/// The memory of all processes.
#[derive(Debug, Default)]
pub(crate) struct Places {
    processes: HashMap<u32, Process, RandomState>,
    shared: HashMap<IpcHandle, Option<Place>, RandomState>,
    /// Whether the recording has the calls that place memory. Those of older versions do not.
    pub(crate) are_followed: bool,
}

impl Places {
    /// Applies a change.
    pub(crate) fn change(&mut self, change: &PlacementChange, knowledge: &Knowledge) {
        let PlacementChange { time, pid, what } = *change;
        let process = self.processes.entry(pid).or_default();
        let range = |bytes: u64, place| {
            move |address: u64| Range {
                end: address.saturating_add(bytes.max(1)),
                place,
                since: time,
                locks: 0,
                seen_at: None,
            }
        };
        match what {
            Change::Mapped {
                address,
                bytes,
                whose,
            } => process.insert(address, range(bytes, place(whose, knowledge))(address)),
            Change::Unmapped { address } => process.remove(address, time),
            Change::Cleared { address, bytes } => {
                process.clear(address, address.saturating_add(bytes));
            }
            Change::Locked {
                host,
                bytes,
                seen_at,
            } => process.lock(host, seen_at, range(bytes, Some(Place::HOST))),
            Change::Unlocked { host } => process.unlock(host, time),
            Change::Handle { handle, whose } => process.handle(handle, place(whose, knowledge)),
            Change::HandleOf { handle, address } => process.handle(handle, process.at(address)),
            Change::MappedHandle {
                address,
                bytes,
                handle,
            } => {
                let place = process.handles.get(&handle).copied().flatten();
                process.insert(address, range(bytes, place)(address));
            }
            Change::Shared { handle, address } => {
                let place = process.at(address);
                if self.shared.len() < MOST {
                    self.shared.insert(handle, place);
                }
            }
            Change::Attached {
                handle,
                address,
                bytes,
            } => {
                let place = self.shared.get(&handle).copied().flatten();
                process.insert(address, range(bytes, place)(address));
            }
            Change::Unloaded => process.loaded_since = time,
        }
    }

    /// From `time` on, process `pid` is another program, or another process with the same id.
    pub(crate) fn restart(&mut self, pid: u32, time: u64, knowledge: &Knowledge) {
        self.processes.remove(&pid);
        // Every process of the node begins some time; few load code objects.
        if knowledge.has_code_objects(pid) {
            self.processes.entry(pid).or_default().loaded_since = time;
        }
    }

    /// Where all of these addresses of a process are, as of `time`, the time of the last change at
    /// the latest; `None` if that is not certain.
    pub(crate) fn find(
        &self,
        pid: u32,
        (address, bytes): (u64, u64),
        time: u64,
        knowledge: &Knowledge,
    ) -> Option<Place> {
        let process = self.processes.get(&pid);
        let Some((_, first)) = process.and_then(|process| process.range(address)) else {
            let since = process.map_or(0, |process| process.loaded_since);
            let is_code = knowledge.is_code_object(pid, address, since);
            return is_code.then_some(Place {
                kind: AgentKind::Gpu,
                node: None,
            });
        };
        let end = address.saturating_add(bytes);
        // Memory may have been freed, and its address reused, by calls that were lost.
        let is_certain = |range: &Range| {
            range.place == first.place && !knowledge.lost_placements(range.since, time)
        };
        if !is_certain(first) {
            return None;
        }
        let mut known = first.end;
        for (begin, range) in process?.ranges.range(address..end).take(MOST_RANGES) {
            if *begin > known || !is_certain(range) {
                return None;
            }
            known = known.max(range.end);
        }
        first.place.filter(|_| known >= end)
    }
}

/// The place of the memory of whom.
fn place(whose: Whose, knowledge: &Knowledge) -> Option<Place> {
    let Whose::Owner(owners) = whose else {
        return None;
    };
    let mut owners = owners.into_iter().flatten();
    let (node, kind) = owners.find(|(node, kind)| knowledge.kind_of(*node) == Some(*kind))?;
    Some(Place {
        kind,
        node: Some(node),
    })
}

impl Process {
    /// The range with an address, and where it begins.
    fn range(&self, address: u64) -> Option<(u64, &Range)> {
        let (begin, range) = self.ranges.range(..=address).next_back()?;
        (address < range.end).then_some((*begin, range))
    }

    fn at(&self, address: u64) -> Option<Place> {
        self.range(address)?.1.place
    }

    /// Forgets what is known of the addresses from `begin` to before `end`.
    fn clear(&mut self, begin: u64, end: u64) {
        if let Some((from, range)) = self.range(begin)
            && from < begin
        {
            let range = *range;
            self.ranges.insert(
                from,
                Range {
                    end: begin,
                    ..range
                },
            );
            self.ranges.insert(begin, range);
        }
        let within = self.ranges.range(begin..end);
        let within: Vec<(u64, Range)> = within.map(|(from, range)| (*from, *range)).collect();
        for (from, range) in within {
            self.ranges.remove(&from);
            if end < range.end {
                self.ranges.insert(end, range);
            }
        }
    }

    fn insert(&mut self, address: u64, range: Range) {
        self.clear(address, range.end);
        if self.ranges.len() < MOST {
            self.ranges.insert(address, range);
        }
    }

    /// The memory that begins at `address` is gone, unless it is there since later than `time`.
    fn remove(&mut self, address: u64, time: u64) {
        if self
            .ranges
            .get(&address)
            .is_some_and(|range| range.since <= time)
        {
            self.ranges.remove(&address);
        }
    }

    /// Memory of the host is pinned. Where something is known to be, it stays.
    fn lock(&mut self, host: u64, seen_at: Option<u64>, range: impl Fn(u64) -> Range) {
        let seen_at = seen_at.filter(|seen_at| *seen_at != host);
        if let Some(locked) = self.ranges.get_mut(&host).filter(|range| range.locks > 0) {
            locked.locks += 1;
            locked.end = locked.end.max(range(host).end);
            locked.seen_at = seen_at.or(locked.seen_at);
        } else if self.range(host).is_none() {
            let locks = 1;
            self.insert(
                host,
                Range {
                    locks,
                    seen_at,
                    ..range(host)
                },
            );
        }
        if let Some(seen_at) = seen_at {
            self.insert(seen_at, range(seen_at));
        }
    }

    fn unlock(&mut self, host: u64, time: u64) {
        let locked = self.ranges.get_mut(&host);
        let Some(locked) = locked.filter(|range| range.locks > 0 && range.since <= time) else {
            return;
        };
        locked.locks -= 1;
        if locked.locks == 0 {
            let seen_at = locked.seen_at;
            self.ranges.remove(&host);
            if let Some(seen_at) = seen_at {
                self.remove(seen_at, time);
            }
        }
    }

    fn handle(&mut self, handle: u64, place: Option<Place>) {
        if self.handles.len() < MOST || self.handles.contains_key(&handle) {
            self.handles.insert(handle, place);
        }
    }
}

#[cfg(test)]
mod tests;
