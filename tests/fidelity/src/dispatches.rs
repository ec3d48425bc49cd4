//! Compares dispatches one by one.

use std::collections::BTreeMap;

use gputrace_e2e::Trace;
use gputrace_softgpu::truth::Dispatch as Executed;
use gputrace_timeline::gpu::Dispatch;

use crate::{
    compare::{Evidence, Really, times},
    figures::{Figures, Flaw},
};

/// A recorded dispatch, and what the GPU really executed.
#[derive(Clone, Copy, Debug)]
pub struct Matched<'a> {
    /// As recorded.
    pub dispatch: &'a Dispatch,
    /// As executed.
    pub executed: &'a Executed,
    /// Whether it was certainly submitted while gputrace recorded.
    pub required: bool,
}

/// Process, `hsa_queue_t::id`, packet index.
type Key = (u32, u64, u64);

/// Compares everything except the API calls. Returns the dispatches that both sides have, in the
/// order of the recording.
pub fn compare<'a>(evidence: &'a Evidence, figures: &mut Figures) -> Vec<Matched<'a>> {
    let (truth, trace) = (&evidence.truth, &evidence.trace);
    let mut executed: BTreeMap<Key, (&Executed, u32)> = truth
        .dispatches
        .iter()
        .map(|dispatch| {
            let key = (dispatch.place.pid, dispatch.hsa_queue, dispatch.place.index);
            (key, (dispatch, 0))
        })
        .collect();
    let mut matched = Vec::new();
    for dispatch in &trace.gpu.dispatches {
        let queue = trace.gpu.queues.get(dispatch.queue as usize);
        let found =
            queue.and_then(|queue| executed.get_mut(&(queue.pid, queue.id, dispatch.index)));
        let Some((executed, times)) = found else {
            figures.flaw(Flaw::Invented, || describe(trace, dispatch));
            continue;
        };
        *times += 1;
        if *times > 1 {
            figures.flaw(Flaw::Twice, || describe(trace, dispatch));
            continue;
        }
        matched.push(Matched {
            dispatch,
            executed,
            required: is_required(evidence, executed),
        });
    }
    for (executed, times) in executed.values() {
        if !is_required(evidence, executed) {
            figures.dispatches.excepted += u64::from(truth.is_internal(executed) && *times == 0);
            continue;
        }
        figures.dispatches.required += 1;
        figures.dispatches.found += u64::from(*times > 0);
        if *times == 0 {
            figures.flaw(Flaw::Missing, || {
                format!("{:?} {}", executed.place, executed.kernel)
            });
        }
    }
    for one in &matched {
        figures.dispatches.early += u64::from(!one.required);
        attributes(trace, one, figures);
        let really = Really {
            begin: one.executed.begin.ns,
            end: one.executed.end.map(|end| end.ns),
            stamped: one.executed.stamped,
        };
        // Qualities are counted only for required dispatches. Windows must hold for all.
        let mut aside = crate::figures::Work::default();
        let work = if one.required {
            &mut figures.dispatches
        } else {
            &mut aside
        };
        if let Some(wrong) = times(&one.dispatch.time, really, work) {
            figures.flaw(Flaw::Window, || {
                format!("{}: {wrong}", describe(trace, one.dispatch))
            });
        }
    }
    matched
}

/// Whether a dispatch must be in the recording.
fn is_required(evidence: &Evidence, executed: &Executed) -> bool {
    let place = executed.place;
    !evidence.truth.is_internal(executed)
        && evidence
            .cut
            .as_ref()
            .is_none_or(|cut| cut.is_after(place.pid, place.queue, place.index))
}

fn attributes(trace: &Trace, one: &Matched<'_>, figures: &mut Figures) {
    let Matched {
        dispatch, executed, ..
    } = *one;
    let kernel = dispatch
        .kernel
        .and_then(|id| trace.gpu.kernels.iter().find(|kernel| kernel.id == id));
    let name = kernel.map(|kernel| kernel.kernel.name.as_str());
    let is_named = name == Some(&*executed.kernel) || executed.kernel.is_empty();
    if !is_named || dispatch.kernel_object != executed.kernel_object {
        figures.flaw(Flaw::Kernel, || {
            format!(
                "{} at {:#x} is {} at {:#x}, {}",
                name.unwrap_or("a kernel without a name"),
                dispatch.kernel_object,
                executed.kernel,
                executed.kernel_object,
                describe(trace, dispatch)
            )
        });
    }
    if dispatch.grid != executed.grid || dispatch.workgroup != executed.workgroup.map(u32::from) {
        figures.flaw(Flaw::Size, || {
            format!(
                "grid {:?} of {:?} is {:?} of {:?}",
                dispatch.grid, dispatch.workgroup, executed.grid, executed.workgroup
            )
        });
    }
    let agent = gpu_number(trace, dispatch.node_id);
    if agent != Some(executed.place.agent) {
        let flaw = if agent.is_none() {
            Flaw::NoAgent
        } else {
            Flaw::Agent
        };
        figures.flaw(flaw, || {
            format!(
                "node {:?} is GPU {}, {}",
                dispatch.node_id,
                executed.place.agent,
                describe(trace, dispatch)
            )
        });
    }
    if dispatch.signal != executed.signal {
        figures.flaw(Flaw::Signal, || {
            format!("{:#x} is {:#x}", dispatch.signal, executed.signal)
        });
    }
}

/// Number of the GPU at a topology node, counted from 0.
pub(crate) fn gpu_number(trace: &Trace, node_id: Option<u32>) -> Option<u32> {
    let node_id = node_id?;
    let of_node = |agent: &&gputrace_timeline::gpu::AgentInfo| agent.agent.node_id == node_id;
    let agent = trace.gpu.agents.iter().find(of_node)?;
    let is_gpu = agent.agent.kind == gputrace_capture::gpu::AgentKind::Gpu;
    is_gpu.then_some(agent.type_index)
}

/// Describes a dispatch for messages.
pub(crate) fn describe(trace: &Trace, dispatch: &Dispatch) -> String {
    let queue = trace.gpu.queues.get(dispatch.queue as usize);
    format!(
        "process {}, queue {}, packet {}{}",
        dispatch.origin.pid,
        queue.map_or_else(|| "?".to_owned(), |queue| queue.id.to_string()),
        dispatch.index,
        if dispatch.read_later {
            ", read later"
        } else {
            ""
        }
    )
}
