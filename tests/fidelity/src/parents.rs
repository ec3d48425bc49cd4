//! Checks the API calls that requested dispatches and copies.

use std::collections::{BTreeMap, HashMap, HashSet};

use gputrace_e2e::Trace;
use gputrace_harness::{Launch, is_own, launch_of};
use gputrace_timeline::{event::Call, gpu::Origin};

use crate::{
    compare::Evidence,
    dispatches::{Matched, describe},
    figures::{Figures, Flaw},
};

/// Functions that launch one kernel, without their `_spt` variants, and how they take grid and
/// workgroup.
const LAUNCHES: [(&str, Sizes); 10] = [
    ("hipLaunchKernel", Sizes::Dim3),
    ("hipLaunchByPtr", Sizes::Unknown),
    ("hipExtLaunchKernel", Sizes::Dim3),
    ("hipLaunchKernelExC", Sizes::Unknown),
    ("hipDrvLaunchKernelEx", Sizes::Unknown),
    ("hipLaunchCooperativeKernel", Sizes::Dim3),
    ("hipModuleLaunchKernel", Sizes::Words),
    ("hipModuleLaunchCooperativeKernel", Sizes::Words),
    ("hipExtModuleLaunchKernel", Sizes::Unknown),
    ("hipHccModuleLaunchKernel", Sizes::Unknown),
];

/// How a function takes grid and workgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sizes {
    /// As two `dim3` by value after one word: x and y share a word, z has its own.
    Dim3,
    /// As six words after one word, the last of them on the stack.
    Words,
    /// Not checked.
    Unknown,
}

const GRAPH_LAUNCH: &str = "hipGraphLaunch";
const BEGIN_CAPTURE: &str = "hipStreamBeginCapture";
const END_CAPTURE: &str = "hipStreamEndCapture";

/// Prefix of HSA functions that ring doorbells.
const DOORBELLS: &str = "hsa_signal_store_";

/// The calls of a recording, by correlation id.
struct Calls<'a> {
    trace: &'a Trace,
    by_id: HashMap<u64, &'a Call>,
    /// When the first outermost call of each thread began.
    first: HashMap<(u32, u32), u64>,
    /// The first packet of each queue whose submitter is in the recording.
    witnessed: HashMap<u32, u64>,
}

impl<'a> Calls<'a> {
    fn of(trace: &'a Trace) -> Self {
        let mut first: HashMap<(u32, u32), u64> = HashMap::new();
        for call in trace
            .calls
            .iter()
            .filter(|call| name(trace, call).starts_with("hip"))
        {
            let begin = first.entry((call.pid, call.tid)).or_insert(call.begin);
            *begin = (*begin).min(call.begin);
        }
        let mut witnessed: HashMap<u32, u64> = HashMap::new();
        for dispatch in trace
            .gpu
            .dispatches
            .iter()
            .filter(|one| one.origin.tid != 0)
        {
            let index = witnessed.entry(dispatch.queue).or_insert(dispatch.index);
            *index = (*index).min(dispatch.index);
        }
        Self {
            trace,
            by_id: trace
                .calls
                .iter()
                .map(|call| (call.correlation, call))
                .collect(),
            first,
            witnessed,
        }
    }

    /// The outermost call, if both it and the innermost call are of the same thread and enclose the
    /// submission. For work submitted by one of HIP's threads, an earlier call of the process.
    fn parent(&self, origin: &Origin) -> Option<&'a Call> {
        if origin.deferred {
            let asked = self.by_id.get(&origin.outermost).copied();
            return asked.filter(|call| call.pid == origin.pid && call.begin <= origin.time);
        }
        let around = |id: u64| {
            self.by_id.get(&id).copied().filter(|call| {
                (call.pid, call.tid) == (origin.pid, origin.tid)
                    && call.begin <= origin.time
                    && origin.time <= call.end
            })
        };
        let (inner, outer) = (around(origin.innermost)?, around(origin.outermost)?);
        (outer.depth <= inner.depth).then_some(outer)
    }

    /// Whether the recording says that the submitter of a dispatch is unknown, and this is
    /// plausible: its doorbell could not be read, or gputrace attached later and the packet
    /// precedes all packets of its queue with a known submitter.
    fn is_unwitnessed(&self, evidence: &Evidence, one: &Matched<'_>) -> bool {
        let origin = &one.dispatch.origin;
        let first = self.witnessed.get(&one.dispatch.queue);
        let is_first = first.is_none_or(|first| one.dispatch.index < *first);
        (origin.tid, origin.innermost, origin.outermost) == (0, 0, 0)
            && (evidence.unreadable() > 0 || evidence.cut.is_some() && is_first)
    }

    /// Calls that rang the first observed doorbell of a queue that already held packets. Some of
    /// these packets may be theirs.
    fn partly_witnessed(&self, matched: &[Matched<'_>]) -> HashSet<u64> {
        let unwitnessed: HashSet<u32> = matched
            .iter()
            .filter(|one| one.dispatch.origin.tid == 0)
            .map(|one| one.dispatch.queue)
            .collect();
        let first = |one: &&Matched<'_>| {
            let dispatch = one.dispatch;
            unwitnessed.contains(&dispatch.queue)
                && self.witnessed.get(&dispatch.queue) == Some(&dispatch.index)
        };
        let parents = matched.iter().filter(first);
        parents
            .filter_map(|one| self.parent(&one.dispatch.origin))
            .map(|call| call.correlation)
            .collect()
    }

    /// Whether the thread was in a HIP call when gputrace attached, and still in that call at the
    /// submission.
    fn began_before(&self, evidence: &Evidence, origin: &Origin) -> bool {
        let first = self.first.get(&(origin.pid, origin.tid));
        evidence.cut.is_some() && first.is_none_or(|first| origin.time < *first)
    }
}

fn name<'a>(trace: &'a Trace, call: &Call) -> &'a str {
    let function = trace.functions.get(&call.function);
    let name = function.map_or("", |info| info.function.name.as_str());
    name.strip_suffix("_spt").unwrap_or(name)
}

/// Checks the API calls of all matched dispatches and of all recorded copies.
pub fn compare(evidence: &Evidence, matched: &[Matched<'_>], figures: &mut Figures) {
    let trace = &evidence.trace;
    let calls = Calls::of(trace);
    let is_hip = !calls.first.is_empty();
    let mut children: HashMap<u64, Vec<&Matched<'_>>> = HashMap::new();
    for one in matched {
        figures.parents += 1;
        let origin = &one.dispatch.origin;
        if calls.is_unwitnessed(evidence, one) {
            figures.parents_unwitnessed += 1;
            continue;
        }
        if calls.began_before(evidence, origin) && is_hip {
            figures.parents_before += 1;
            continue;
        }
        let Some(parent) = calls.parent(origin) else {
            figures.flaw(Flaw::Parent, || {
                format!("{} has no call: {origin:?}", describe(trace, one.dispatch))
            });
            continue;
        };
        children.entry(parent.correlation).or_default().push(one);
        if !may_launch(name(trace, parent), &one.executed.kernel, is_hip) {
            figures.flaw(Flaw::Parent, || {
                format!(
                    "{} was launched by {}",
                    one.executed.kernel,
                    name(trace, parent)
                )
            });
        }
    }
    if evidence.says {
        let partly = calls.partly_witnessed(matched);
        counts(evidence, &calls, &children, &partly, figures);
        order(evidence, &calls, matched, figures);
    }
    copies(evidence, &calls, figures);
}

/// Whether a function may launch a kernel.
fn may_launch(function: &str, kernel: &str, is_hip: bool) -> bool {
    if !is_hip {
        return function.starts_with(DOORBELLS);
    }
    if !is_own(kernel) {
        // The runtime copies and fills with kernels of its own, in any of its functions.
        return function.starts_with("hip");
    }
    function == GRAPH_LAUNCH || LAUNCHES.iter().any(|(name, _)| *name == function)
}

/// Checks that each call has the right number of the program's kernels, with the sizes that it
/// requested.
fn counts(
    evidence: &Evidence,
    calls: &Calls<'_>,
    children: &HashMap<u64, Vec<&Matched<'_>>>,
    partly: &HashSet<u64>,
    figures: &mut Figures,
) {
    for thread in evidence.trace.by_thread().into_values() {
        let mut captures = false;
        for call in thread {
            let name = name(calls.trace, call);
            match name {
                BEGIN_CAPTURE => captures = true,
                END_CAPTURE => captures = false,
                _ => {}
            }
            let sizes = LAUNCHES.iter().find(|(launch, _)| *launch == name);
            let expected = match sizes {
                // An inner call made by another function for the same launch.
                Some(_) if call.parent != 0 => continue,
                Some(_) if captures => 0,
                Some(_) => 1,
                None if name == GRAPH_LAUNCH => evidence.graph_nodes,
                None => continue,
            };
            let mine = children
                .get(&call.correlation)
                .map_or(&[][..], Vec::as_slice);
            let own = mine.iter().filter(|one| is_own(&one.executed.kernel));
            let found = own.clone().count();
            let excused = evidence.unreadable() > 0 || partly.contains(&call.correlation);
            if found != expected && !(excused && found < expected) {
                figures.flaw(Flaw::Count, || {
                    format!(
                        "{name} {} has {found} kernels, not {expected}",
                        call.correlation
                    )
                });
            }
            let Some((grid, workgroup)) = sizes.and_then(|(_, sizes)| asked(call, *sizes)) else {
                continue;
            };
            for one in own {
                if one.executed.grid != grid || one.executed.workgroup.map(u32::from) != workgroup {
                    figures.flaw(Flaw::Parent, || {
                        format!(
                            "{name} asked for {grid:?} of {workgroup:?}, what is said to be its dispatch has {:?} of {:?}",
                            one.executed.grid, one.executed.workgroup
                        )
                    });
                }
            }
        }
    }
}

/// Grid in work-items and workgroup requested by a call.
fn asked(call: &Call, sizes: Sizes) -> Option<([u32; 3], [u32; 3])> {
    let [_, first, second, third, fourth, fifth] = call.args;
    let low = |word: u64| word as u32;
    let high = |word: u64| (word >> 32) as u32;
    let (blocks, workgroup) = match sizes {
        Sizes::Dim3 => (
            [low(first), high(first), low(second)],
            [low(third), high(third), low(fourth)],
        ),
        Sizes::Words => {
            let [z, ..] = call.stack;
            (
                [low(first), low(second), low(third)],
                [low(fourth), low(fifth), low(z)],
            )
        }
        Sizes::Unknown => return None,
    };
    let [x, y, z] = blocks;
    let [width, height, depth] = workgroup;
    let grid = [
        x.wrapping_mul(width),
        y.wrapping_mul(height),
        z.wrapping_mul(depth),
    ];
    Some((grid, workgroup))
}

/// Checks that the kernels, ordered by their launching calls and packets, are those of the
/// program's log: all of them, or the last ones if gputrace attached later.
fn order(evidence: &Evidence, calls: &Calls<'_>, matched: &[Matched<'_>], figures: &mut Figures) {
    // A dispatch without its call has no place in the order of calls.
    if !evidence.one_thread || evidence.unreadable() > 0 {
        return;
    }
    let mut launched: Vec<_> = matched
        .iter()
        .filter(|one| one.required && is_own(&one.executed.kernel))
        .map(|one| {
            let parent = calls.parent(&one.dispatch.origin);
            // Packets submitted before the first observed doorbell precede the call that rang it.
            let begin = match one.dispatch.origin.tid {
                0 => 0,
                _ => parent.map_or(one.dispatch.origin.time, |call| call.begin),
            };
            ((begin, one.dispatch.queue, one.dispatch.index), one)
        })
        .collect();
    launched.sort_by_key(|(key, _)| *key);
    let launched: Vec<Launch> = launched
        .iter()
        .map(|(_, one)| launch_of(one.executed))
        .collect();
    let said = &evidence.truth.launches;
    let is_suffix = said.ends_with(&launched);
    let is_all = evidence.cut.is_some() || said.len() == launched.len();
    if !is_suffix || !is_all {
        figures.flaw(Flaw::Order, || {
            let differing = said.iter().rev().zip(launched.iter().rev());
            let same = differing.take_while(|(said, launched)| said == launched).count();
            format!(
                "of {} launches in the program's log and {} in the recording the last {same} are the same",
                said.len(),
                launched.len()
            )
        });
    }
}

/// Checks that each copy is enclosed by a call that copies, and that the number of bytes is the
/// requested one.
fn copies(evidence: &Evidence, calls: &Calls<'_>, figures: &mut Figures) {
    let trace = &evidence.trace;
    let mut bytes: BTreeMap<u64, u64> = BTreeMap::new();
    for copy in &trace.gpu.copies {
        figures.parents += 1;
        if calls.began_before(evidence, &copy.origin) {
            figures.parents_before += 1;
            continue;
        }
        match calls.parent(&copy.origin) {
            Some(parent) => *bytes.entry(parent.correlation).or_default() += copy.bytes,
            None => figures.flaw(Flaw::Parent, || format!("{copy:?} has no call")),
        }
    }
    for (correlation, copied) in bytes {
        let Some(call) = calls.by_id.get(&correlation) else {
            continue;
        };
        let name = name(trace, call);
        let [_, _, third, _, fifth, _] = call.args;
        let asked = match name {
            "hipMemcpy"
            | "hipMemcpyAsync"
            | "hipMemcpyWithStream"
            | "hipMemcpyHtoD"
            | "hipMemcpyDtoH" => third,
            "hipMemcpyPeer" | "hipMemcpyPeerAsync" => fifth,
            // The copy may belong to any call that makes the runtime move data, such as code to a
            // GPU.
            _ => continue,
        };
        // Between GPUs that cannot access each other's memory, data is copied twice, through the
        // host.
        if copied != asked && copied != asked * 2 {
            figures.flaw(Flaw::Parent, || {
                format!(
                    "{name} asked for {asked} bytes, what is said to be its copies has {copied}"
                )
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_that_launch() {
        assert!(may_launch("hipLaunchKernel", "vadd", true));
        assert!(may_launch("hipGraphLaunch", "vadd", true));
        assert!(!may_launch("hipMemcpy", "vadd", true));
        assert!(may_launch("hipMemcpy", "__amd_rocclr_copyBuffer", true));
        assert!(!may_launch("hsa_signal_store_screlease", "vadd", true));
        assert!(may_launch("hsa_signal_store_screlease", "vadd", false));
    }
}
