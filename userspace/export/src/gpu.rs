//! Agents, queues and kernels that dispatches and copies refer to, and their names in
//! outputs.

use std::{borrow::Cow, collections::HashMap};

use foldhash::fast::RandomState;
use gputrace_timeline::{
    event::Event,
    gpu::{AgentInfo, Copy, Dispatch, GpuTime, KernelInfo, QueueInfo, Renamed, Window},
};

/// rocprofv3 reports LDS in blocks of this many bytes.
const LDS_BLOCK: u64 = 512;

/// The agents, queues and kernels of a capture. Memory grows with their number.
#[derive(Clone, Debug, Default)]
pub struct Gpus {
    agents: Vec<AgentInfo>,
    queues: HashMap<u32, QueueInfo, RandomState>,
    kernels: HashMap<u32, KernelInfo, RandomState>,
}

impl Gpus {
    /// Learns of agents, queues and kernels from `event`.
    pub fn learn(&mut self, event: &Event) {
        match event {
            Event::Agent(info) => {
                match self
                    .agents
                    .binary_search_by_key(&info.agent.node_id, |known| known.agent.node_id)
                {
                    Ok(at) => {
                        if let Some(known) = self.agents.get_mut(at) {
                            known.clone_from(info);
                        }
                    }
                    Err(at) => self.agents.insert(at, (**info).clone()),
                }
            }
            Event::Queue(info) => {
                self.queues.insert(info.number, *info);
            }
            Event::Kernel(info) => {
                self.kernels.insert(info.id, (**info).clone());
            }
            _ => {}
        }
    }

    /// The known agents, ordered by `node_id`.
    #[must_use]
    pub fn agents(&self) -> &[AgentInfo] {
        &self.agents
    }

    /// The agent with this node number in KFD's topology.
    #[must_use]
    pub fn agent(&self, node_id: u32) -> Option<&AgentInfo> {
        self.agents
            .iter()
            .find(|info| info.agent.node_id == node_id)
    }

    /// rocprofv3's `Agent N`; empty if the node is unknown. If the capture does not describe the
    /// agent, the node's number is used: KFD numbers nodes without gaps.
    #[must_use]
    pub fn agent_label(&self, node_id: Option<u32>) -> String {
        let Some(node_id) = node_id else {
            return String::new();
        };
        match self.agent(node_id) {
            Some(info) => info.label.clone(),
            None => format!("Agent {node_id}"),
        }
    }

    /// [`Gpus::agent_label`] for people: with the agent's name, and in words if it is unknown.
    #[must_use]
    pub fn agent_title(&self, node_id: Option<u32>) -> String {
        match node_id.and_then(|node_id| self.agent(node_id)) {
            Some(info) if !info.agent.name.is_empty() => {
                format!("{} ({})", self.agent_label(node_id), info.agent.name)
            }
            _ if node_id.is_none() => "unknown agent".to_owned(),
            _ => self.agent_label(node_id),
        }
    }

    /// The queue with this number in the timeline.
    #[must_use]
    pub fn queue(&self, number: u32) -> Option<&QueueInfo> {
        self.queues.get(&number)
    }

    /// The node that executes a dispatch: its own, otherwise that of its queue.
    #[must_use]
    pub fn node_of(&self, dispatch: &Dispatch) -> Option<u32> {
        let of_queue = || self.queue(dispatch.queue).and_then(|queue| queue.node_id);
        dispatch.node_id.or_else(of_queue)
    }

    /// The kernel of a dispatch, if it was found.
    #[must_use]
    pub fn kernel(&self, dispatch: &Dispatch) -> Option<&KernelInfo> {
        self.kernels.get(&dispatch.kernel?)
    }

    /// Number of the kernel that a dispatch ran, regardless of its name in outputs.
    #[must_use]
    pub fn kernel_id(&self, dispatch: &Dispatch) -> Option<u32> {
        self.kernel(dispatch)
            .map(KernelInfo::own_id)
            .or(dispatch.kernel)
    }

    /// The range after which outputs name the kernel of a dispatch, if they do.
    #[must_use]
    pub fn renamed(&self, dispatch: &Dispatch) -> Option<Renamed> {
        self.kernel(dispatch)?.renamed
    }

    /// The kernel's name as outputs show it; its address if it has no name.
    #[must_use]
    pub fn kernel_name(&self, dispatch: &Dispatch) -> Cow<'_, str> {
        self.name_of(dispatch.kernel, dispatch.kernel_object)
    }

    pub(crate) fn name_of(&self, kernel: Option<u32>, object: u64) -> Cow<'_, str> {
        let info = kernel.and_then(|kernel| self.kernels.get(&kernel));
        match info.map(KernelInfo::shown_name) {
            Some(name) if !name.is_empty() => name.into(),
            _ => format!("(unknown kernel {object:#x})").into(),
        }
    }

    /// rocprofv3's `LDS_Block_Size`: bytes that the kernel declares (without dynamic memory of the
    /// dispatch), rounded up to whole blocks.
    #[must_use]
    pub fn lds_block_size(&self, dispatch: &Dispatch) -> u64 {
        let declared = self.kernel(dispatch).map(|info| info.kernel.group_size);
        u64::from(declared.unwrap_or(dispatch.group_size)).next_multiple_of(LDS_BLOCK)
    }
}

/// rocprofv3's `Queue_Id`, which begins at 1, for a [`QueueInfo::number`].
#[must_use]
pub fn queue_id(number: u32) -> u64 {
    u64::from(number) + 1
}

/// Maximum error of `value`, a drawn time, ns; `None` if it is not drawn or has no upper bound.
#[must_use]
pub fn uncertainty(value: Option<u64>, window: &Window) -> Option<u64> {
    let (value, latest) = (value?, window.latest?);
    Some(
        value
            .saturating_sub(window.earliest)
            .max(latest.saturating_sub(value)),
    )
}

/// The period in which something was in flight: submitted and not ended. What is not drawn was in
/// flight until it is proven to have ended. `None` if nothing proves an end.
#[must_use]
pub fn in_flight(submitted: u64, time: &GpuTime) -> Option<(u64, u64)> {
    let proven = time.end_window.latest.filter(|_| !time.unfinished);
    let end = time.drawn_end().or(proven)?;
    let begin = if submitted == 0 {
        time.begin
    } else {
        submitted
    };
    (begin < end).then_some((begin, end))
}

/// The node under which a copy is shown: its destination if known, otherwise its source. A copy to
/// the host is shown under the host, as in rocprofv3.
#[must_use]
pub fn copy_node(copy: &Copy) -> Option<u32> {
    copy.destination_node.or(copy.source_node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_has_a_name_too() {
        let gpus = Gpus::default();
        let dispatch = Dispatch {
            kernel: Some(7),
            kernel_object: 0x7f00,
            ..Dispatch::default()
        };
        assert_eq!(gpus.kernel_name(&dispatch), "(unknown kernel 0x7f00)");
        assert_eq!(gpus.agent_label(None), "");
        assert_eq!(gpus.agent_title(None), "unknown agent");
        assert_eq!(gpus.agent_title(Some(3)), "Agent 3");
    }

    #[test]
    fn uncertainty_is_the_greater_distance() {
        let window = |earliest, latest| Window { earliest, latest };
        assert_eq!(uncertainty(Some(10), &window(8, Some(15))), Some(5));
        assert_eq!(uncertainty(Some(10), &window(0, Some(10))), Some(10));
        assert_eq!(uncertainty(Some(10), &window(8, None)), None);
        assert_eq!(uncertainty(None, &window(8, Some(15))), None);
    }
}
