//! Agents, queues, kernels and streams that dispatches and copies refer to, and their names in
//! outputs.

use std::{borrow::Cow, collections::HashMap};

use foldhash::fast::RandomState;
use gputrace_abi::REGISTER_ARGS;
use gputrace_capture::meta::ArgSlot;
use gputrace_timeline::{
    event::{Call, Event, FunctionInfo},
    gpu::{AgentInfo, Copy, Dispatch, GpuTime, KernelInfo, QueueInfo, Renamed, Window},
};

/// rocprofv3 reports LDS in blocks of this many bytes.
const LDS_BLOCK: u64 = 512;

/// The agents, queues, kernels and streams of a capture. Memory grows with their number.
#[derive(Clone, Debug, Default)]
pub struct Gpus {
    agents: Vec<AgentInfo>,
    queues: HashMap<u32, QueueInfo, RandomState>,
    kernels: HashMap<u32, KernelInfo, RandomState>,
    streams: Streams,
}

/// Numbers of streams, by one rule for all formats: from 1, in the order in which streams first
/// appear in calls or in work, unique in the recording. A stream whose creation was recorded first
/// appears in that call.
#[derive(Clone, Debug, Default)]
struct Streams {
    /// Stream arguments of functions, by function id.
    words: HashMap<u32, Vec<StreamWord>, RandomState>,
    /// Stream number by process and handle.
    numbers: HashMap<(u32, u64), u32, RandomState>,
    /// Process and handle of each stream, in order of numbers.
    order: Vec<(u32, u64)>,
}

/// An argument that is a stream.
#[derive(Clone, Copy, Debug)]
struct StreamWord {
    word: u8,
    /// Whether the argument is a pointer through which the function stores the stream.
    stored: bool,
}

/// The C type of streams; with a `*`, of a pointer through which one is stored.
const STREAM: &str = "hipStream_t";

/// Handles that mean a null stream: 0, and `hipStreamLegacy` of `hip_runtime_api.h`.
const NULL_STREAMS: [u64; 2] = [0, 1];

impl Streams {
    fn function(&mut self, info: &FunctionInfo) {
        let parameters = info.function.parameters.iter().flatten();
        let words: Vec<StreamWord> = parameters
            .filter_map(|parameter| {
                let rest = parameter.c_type.strip_prefix(STREAM)?.trim();
                let word = match parameter.at {
                    ArgSlot::Register(word) => word,
                    ArgSlot::Stack(word) => REGISTER_ARGS as u8 + word,
                    ArgSlot::Unrecorded => return None,
                };
                let stored = match rest {
                    "" => false,
                    "*" => true,
                    _ => return None,
                };
                Some(StreamWord { word, stored })
            })
            .collect();
        if !words.is_empty() {
            self.words.insert(info.function.id, words);
        }
    }

    fn call(&mut self, call: &Call) {
        let Some(words) = self.words.get(&call.function) else {
            return;
        };
        let handles: Vec<u64> = words
            .iter()
            .filter_map(|at| match usize::from(at.word).checked_sub(REGISTER_ARGS) {
                _ if at.stored => call.stored(at.word),
                None => call.args.get(usize::from(at.word)).copied(),
                Some(word) => call
                    .stack
                    .get(word)
                    .copied()
                    .filter(|_| call.stack_readable),
            })
            .collect();
        for handle in handles {
            self.number(call.pid, Some(handle));
        }
    }

    fn number(&mut self, pid: u32, handle: Option<u64>) {
        if let Some(handle) = handle.filter(|handle| !NULL_STREAMS.contains(handle)) {
            self.numbers.entry((pid, handle)).or_insert_with(|| {
                self.order.push((pid, handle));
                self.order.len() as u32
            });
        }
    }
}

impl Gpus {
    /// Learns of agents, queues, kernels and streams from `event`.
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
            Event::Function(info) => self.streams.function(info),
            Event::Call(call) => self.streams.call(call),
            Event::Dispatch(dispatch) => self
                .streams
                .number(dispatch.origin.pid, dispatch.origin.stream),
            Event::Copy(copy) => self.streams.number(copy.origin.pid, copy.origin.stream),
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

    /// rocprofv3's `Stream_Id`: streams are numbered from 1 in order of their first appearance in
    /// calls or in work, unique in the recording. 0 is a null stream or an unknown stream.
    #[must_use]
    pub fn stream(&self, pid: u32, handle: Option<u64>) -> u32 {
        let number = handle.and_then(|handle| self.streams.numbers.get(&(pid, handle)));
        number.copied().unwrap_or(0)
    }

    /// Process and handle of the numbered streams, in order of numbers.
    #[must_use]
    pub fn streams(&self) -> &[(u32, u64)] {
        &self.streams.order
    }
}

/// rocprofv3's `Queue_Id`, which begins at 1, for a [`QueueInfo::number`].
#[must_use]
pub fn queue_id(number: u32) -> u64 {
    u64::from(number) + 1
}

/// Maximum error of `value`, ns; `None` if it has no upper bound.
#[must_use]
pub fn uncertainty(value: u64, window: &Window) -> Option<u64> {
    let latest = window.latest?;
    Some(
        value
            .saturating_sub(window.earliest)
            .max(latest.saturating_sub(value)),
    )
}

/// The period in which something was in flight: submitted and not ended. `None` if its end is not
/// proven.
#[must_use]
pub fn in_flight(submitted: u64, time: &GpuTime) -> Option<(u64, u64)> {
    let ended = !time.unfinished && (time.is_drawn() || time.end_window.latest.is_some());
    let begin = if submitted == 0 {
        time.begin
    } else {
        submitted
    };
    (ended && begin < time.end).then_some((begin, time.end))
}

/// The node under which a copy is shown: its destination if known, otherwise its source. A copy to
/// the host is shown under the host, as in rocprofv3.
#[must_use]
pub fn copy_node(copy: &Copy) -> Option<u32> {
    copy.destination_node.or(copy.source_node)
}

#[cfg(test)]
mod tests {
    use gputrace_abi::domain::Domain;
    use gputrace_capture::meta::{Function, Parameter, ValueKind};
    use gputrace_timeline::{
        gpu::Origin,
        synthetic,
        values::{Pointee, PointeeData},
    };

    use super::*;

    /// A HIP function with one argument, as a recording describes it.
    fn function(id: u32, c_type: &str, at: ArgSlot) -> Event {
        Event::Function(Box::new(FunctionInfo {
            function: Function {
                id,
                parameters: Some(vec![Parameter {
                    name: "stream".to_owned(),
                    c_type: c_type.to_owned(),
                    kind: ValueKind::Pointer,
                    at,
                    ..Parameter::default()
                }]),
                ..Function::default()
            },
            domain: Some(Domain::HipRuntime),
            library: String::new(),
            build_id: String::new(),
            range: None,
        }))
    }

    #[test]
    fn streams_are_numbered_as_they_come_up() {
        let mut gpus = Gpus::default();
        let used = [
            (1, Some(0xa0)),
            (1, None),
            (2, Some(0xb0)),
            (1, Some(0)),
            (1, Some(0xb0)),
            (1, Some(0xa0)),
            (1, Some(1)),
        ];
        for (pid, stream) in used {
            gpus.learn(&Event::Copy(Box::new(Copy {
                origin: Origin {
                    pid,
                    stream,
                    ..Origin::default()
                },
                ..Copy::default()
            })));
        }
        let numbers = used.map(|(pid, stream)| gpus.stream(pid, stream));
        assert_eq!(numbers, [1, 0, 2, 0, 3, 1, 0]);
        assert_eq!(gpus.streams(), [(1, 0xa0), (2, 0xb0), (1, 0xb0)]);
    }

    #[test]
    fn calls_bring_streams_up() {
        let mut gpus = Gpus::default();
        // Like hipStreamCreate, hipLaunchKernel and hipStreamDestroy.
        gpus.learn(&function(1, "hipStream_t *", ArgSlot::Register(0)));
        gpus.learn(&function(2, "hipStream_t", ArgSlot::Stack(1)));
        gpus.learn(&function(3, "hipStream_t", ArgSlot::Register(0)));
        let mut create = synthetic::call(1, 10, 20);
        let (pid, place, launched) = (create.pid, 0x7ffe_0000, 0xd0);
        create.function = 1;
        create.args[0] = place;
        create.pointees.push(Pointee {
            word: 0,
            at_return: true,
            data: PointeeData::Bytes(0xc0_u64.to_le_bytes().into()),
        });
        let mut launch = synthetic::call(2, 30, 40);
        launch.function = 2;
        launch.stack[1] = launched;
        let mut destroy = synthetic::call(3, 50, 60);
        destroy.function = 3;
        destroy.args[0] = 0xe0;
        let mut unreadable = launch.clone();
        unreadable.stack[1] = 0xf0;
        unreadable.stack_readable = false;
        for call in [unreadable, create, launch, destroy] {
            gpus.learn(&Event::Call(call));
        }
        assert_eq!(gpus.streams(), [(pid, 0xc0), (pid, launched), (pid, 0xe0)]);
        assert_eq!(gpus.stream(pid, Some(launched)), 2);
        assert_eq!(
            gpus.stream(pid, Some(place)),
            0,
            "where a stream is stored is none"
        );
    }

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
        assert_eq!(uncertainty(10, &window(8, Some(15))), Some(5));
        assert_eq!(uncertainty(10, &window(0, Some(10))), Some(10));
        assert_eq!(uncertainty(10, &window(8, None)), None);
    }
}
