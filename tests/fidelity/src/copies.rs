//! Compares copies one by one.

use std::collections::BTreeMap;

use gputrace_e2e::Trace;
use gputrace_softgpu::truth::{Copy as Copied, Piece};
use gputrace_timeline::gpu::{Copy, Direction};

use crate::{
    compare::{Evidence, Really, times},
    dispatches::gpu_number,
    figures::{Figures, Flaw},
};

/// Maximum number of copies under way for each thread when gputrace attaches: one to the GPU and
/// one from it.
const IN_FLIGHT: usize = 2;

/// What a recorded copy really did.
#[derive(Clone, Debug)]
struct Done {
    begin: u64,
    end: Option<u64>,
    /// The pieces copied by an engine; `None` if one of ROCr's kernels did the copy, because the
    /// software GPU does not interpret its arguments.
    pieces: Option<Vec<Piece>>,
    agent: u32,
    stamped: bool,
    taken: bool,
}

/// Compares everything except the API calls.
pub fn compare(evidence: &Evidence, figures: &mut Figures) {
    let (truth, trace) = (&evidence.truth, &evidence.trace);
    let mut done: BTreeMap<(u32, u64), Vec<Done>> = BTreeMap::new();
    for copy in &truth.copies {
        done.entry((copy.place.pid, copy.signal))
            .or_default()
            .push(by_engine(copy));
    }
    // Copies that ROCr does with kernels on its own queues are identified by their call and their
    // signal.
    for dispatch in &truth.dispatches {
        if truth.is_internal(dispatch) && dispatch.signal != 0 {
            let key = (dispatch.place.pid, dispatch.signal);
            done.entry(key).or_default().push(Done {
                begin: dispatch.begin.ns,
                end: dispatch.end.map(|end| end.ns),
                pieces: None,
                agent: dispatch.place.agent,
                stamped: dispatch.stamped,
                taken: false,
            });
        }
    }
    for copies in done.values_mut() {
        copies.sort_by_key(|copy| copy.begin);
    }

    let asked = directions(trace);
    let mut recorded: Vec<&Copy> = trace.gpu.copies.iter().collect();
    recorded.sort_by_key(|copy| copy.origin.time);
    // By process and GPU.
    let mut first: BTreeMap<(u32, u32), u64> = BTreeMap::new();
    for copy in recorded {
        let candidates = done.get_mut(&(copy.origin.pid, copy.signal));
        // Signals are reused, so take the first copy with this signal that began after the request.
        let really = candidates.and_then(|copies| {
            copies
                .iter_mut()
                .find(|done| !done.taken && done.begin >= copy.origin.time)
        });
        let Some(really) = really else {
            figures.flaw(Flaw::Invented, || format!("a copy: {copy:?}"));
            continue;
        };
        really.taken = true;
        let earliest = first
            .entry((copy.origin.pid, really.agent))
            .or_insert(really.begin);
        *earliest = (*earliest).min(really.begin);
        figures.copies.required += 1;
        figures.copies.found += 1;
        route(trace, copy, really, figures);
        let asked = asked.get(&copy.origin.outermost);
        if asked.is_some_and(|asked| *asked != copy.direction) {
            figures.flaw(Flaw::Route, || format!("{copy:?} was to be {asked:?}"));
        }
        let when = Really {
            begin: really.begin,
            end: really.end,
            stamped: really.stamped,
        };
        if let Some(wrong) = times(&copy.time, when, &mut figures.copies) {
            figures.flaw(Flaw::Window, || {
                format!(
                    "a copy of {} bytes by {} with signal {:#x}: {wrong}",
                    copy.bytes,
                    if really.pieces.is_some() {
                        "an engine"
                    } else {
                        "a kernel"
                    },
                    copy.signal
                )
            });
        }
    }

    let mut in_flight: BTreeMap<u32, usize> = BTreeMap::new();
    for ((pid, signal), copies) in &done {
        for copy in copies
            .iter()
            .filter(|copy| !copy.taken && copy.pieces.is_some())
        {
            if let Some(cut) = &evidence.cut {
                if copy.begin < cut.time {
                    continue;
                }
                let most = cut.threads.get(pid).copied().unwrap_or(0) * IN_FLIGHT;
                let before = first
                    .get(&(*pid, copy.agent))
                    .is_none_or(|first| copy.begin < *first);
                let flying = in_flight.entry(*pid).or_default();
                if before && *flying < most {
                    *flying += 1;
                    figures.copies.excepted += 1;
                    continue;
                }
            }
            figures.copies.required += 1;
            figures.flaw(Flaw::Missing, || {
                format!("a copy in process {pid} with signal {signal:#x}: {copy:?}")
            });
        }
    }
}

fn by_engine(copy: &Copied) -> Done {
    Done {
        begin: copy.begin.ns,
        end: Some(copy.end.ns),
        pieces: Some(copy.pieces.clone()),
        agent: copy.place.agent,
        stamped: copy.stamped,
        taken: false,
    }
}

/// The directions that the program gave HIP, by the correlation ids of its calls: only between host
/// and GPU, since HIP may copy between GPUs by way of the host.
fn directions(trace: &Trace) -> BTreeMap<u64, Direction> {
    let calls = ["hipMemcpy", "hipMemcpyAsync", "hipMemcpyWithStream"];
    let calls = calls.into_iter().flat_map(|name| trace.calls_of(name));
    let asked = calls.filter_map(|call| {
        // `hipMemcpyKind`.
        let direction = match call.args[3] as u32 {
            1 => Direction::HostToDevice,
            2 => Direction::DeviceToHost,
            _ => return None,
        };
        Some((call.correlation, direction))
    });
    asked.collect()
}

/// Checks addresses, bytes and agents, and that there is a direction.
fn route(trace: &Trace, copy: &Copy, really: &Done, figures: &mut Figures) {
    if let Some(pieces) = &really.pieces {
        let bytes: u64 = pieces.iter().map(|piece| piece.bytes).sum();
        let starts = |address: fn(&Piece) -> u64| pieces.iter().map(address).min();
        let is_right = copy.bytes == bytes
            && starts(|piece| piece.source) == Some(copy.source)
            && starts(|piece| piece.destination) == Some(copy.destination);
        if !is_right {
            figures.flaw(Flaw::Route, || format!("{copy:?} is {pieces:?}"));
        }
    }
    let is_direct = copy.direction != Direction::Unknown && copy.direction != Direction::HostToHost;
    let source = gpu_number(trace, copy.source_node);
    let destination = gpu_number(trace, copy.destination_node);
    let is_end = [source, destination].contains(&Some(really.agent));
    if !is_direct || !is_end {
        let is_unknown = source.or(destination).is_none();
        let flaw = if is_unknown {
            Flaw::NoAgent
        } else {
            Flaw::Agent
        };
        figures.flaw(flaw, || {
            format!(
                "a copy {} from node {:?} to {:?} was done by GPU {}",
                copy.direction.name(),
                copy.source_node,
                copy.destination_node,
                really.agent
            )
        });
    }
}
