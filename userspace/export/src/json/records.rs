//! The records of the JSON document, in rocprofiler-sdk's format.

use gputrace_abi::domain::Domain;
use gputrace_timeline::{
    args::ArgValue,
    gpu::{Copy, Direction, Dispatch, GpuTime, KnownBy, Origin, Window},
};
use serde::Serialize;

use crate::{
    gpu::{Gpus, queue_id, uncertainty},
    lengths::Length,
};

/// rocprofiler-sdk's buffer tracing kinds by number (`rocprofiler_buffer_tracing_kind_t`, without
/// the prefix).
pub(crate) const KINDS: &[&str] = &[
    "NONE",
    "HSA_CORE_API",
    "HSA_AMD_EXT_API",
    "HSA_IMAGE_EXT_API",
    "HSA_FINALIZE_EXT_API",
    "HIP_RUNTIME_API",
    "HIP_COMPILER_API",
    "MARKER_CORE_API",
    "MARKER_CONTROL_API",
    "MARKER_NAME_API",
    "MEMORY_COPY",
    "KERNEL_DISPATCH",
    "SCRATCH_MEMORY",
    "CORRELATION_ID_RETIREMENT",
    "RCCL_API",
    "OMPT",
    "MEMORY_ALLOCATION",
    "RUNTIME_INITIALIZATION",
    "ROCDECODE_API",
    "ROCJPEG_API",
    "HIP_STREAM",
    "HIP_RUNTIME_API_EXT",
    "HIP_COMPILER_API_EXT",
    "ROCDECODE_API_EXT",
    "KFD_EVENT_PAGE_MIGRATE",
    "KFD_EVENT_PAGE_FAULT",
    "KFD_EVENT_QUEUE",
    "KFD_EVENT_UNMAP_FROM_GPU",
    "KFD_EVENT_DROPPED_EVENTS",
    "KFD_PAGE_MIGRATE",
    "KFD_PAGE_FAULT",
    "KFD_QUEUE",
    "MARKER_CORE_RANGE_API",
    "HIP_GRAPH",
    "ROCSHMEM_API",
    "ROCSHMEM_API_EXT",
    "HIPFILE_API",
    "HIPFILE_API_EXT",
];

/// Operations of kernel dispatches; every record has the last one.
pub(crate) const DISPATCH_OPERATIONS: &[&str] = &[
    "KERNEL_DISPATCH_NONE",
    "KERNEL_DISPATCH_ENQUEUE",
    "KERNEL_DISPATCH_COMPLETE",
];

/// Operations of copies, by number.
pub(crate) const DIRECTIONS: [Direction; 5] = [
    Direction::Unknown,
    Direction::HostToHost,
    Direction::HostToDevice,
    Direction::DeviceToHost,
    Direction::DeviceToDevice,
];

/// Number of a domain's kind; 0 if rocprofiler-sdk does not have the domain.
pub(crate) fn kind(domain: Option<Domain>) -> usize {
    let of = |domain: Domain| KINDS.iter().position(|name| *name == domain.name());
    domain.and_then(of).unwrap_or(0)
}

/// An id, which is an object in rocprofiler-sdk's format.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Handle {
    pub(crate) handle: u64,
}

/// Added to an agent's topology node to make its id. rocprofiler-sdk adds a number from 255 to
/// 65535 to its logical node, a different one in each process, so that ids are not mistaken for
/// indices. 0 is its null, which in records means an unknown agent, or a record of freed memory.
const FIRST_AGENT: u64 = 256;

/// The id of an agent; rocprofiler-sdk's null if it is unknown.
pub(crate) fn agent_id(node: Option<u32>) -> Handle {
    Handle {
        handle: node.map_or(0, |node| FIRST_AGENT + u64::from(node)),
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct Correlation {
    pub(crate) internal: u64,
    pub(crate) external: u64,
    /// Correlation id of the enclosing call; absent in records of GPU work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ancestor: Option<u64>,
}

impl Correlation {
    /// The ids of GPU work.
    pub(crate) fn of(origin: &Origin) -> Self {
        Self {
            internal: origin.innermost,
            external: origin.external.unwrap_or(0),
            ancestor: None,
        }
    }

    /// The ids of a dispatch. As in rocprofv3, the record names the kernel that ran. If the kernel
    /// is named after a range, the external id leads to that name, in
    /// `strings.correlation_id.external`.
    pub(crate) fn of_dispatch(dispatch: &Dispatch, gpus: &Gpus) -> Self {
        let mut ids = Self::of(&dispatch.origin);
        if let Some(renamed) = gpus.renamed(dispatch) {
            ids.external = renamed.range.into();
        }
        ids
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct Argument<'a> {
    #[serde(rename = "type")]
    pub(crate) c_type: &'a str,
    pub(crate) name: &'a str,
    #[serde(serialize_with = "shown")]
    pub(crate) value: ArgValue<'a>,
}

fn shown<S: serde::Serializer>(value: &ArgValue<'_>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

#[derive(Debug, Serialize)]
pub(crate) struct Returned {
    pub(crate) uint64_t_retval: u64,
}

/// The text of a marker, by its correlation id.
#[derive(Debug, Serialize)]
pub(crate) struct MarkerText<'a> {
    pub(crate) key: u64,
    pub(crate) value: &'a str,
}

/// Data in a call's record beyond rocprofv3's fields.
#[derive(Debug, Serialize)]
pub(crate) struct CallNotes {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) unfinished: Option<&'static str>,
    pub(crate) cpu: u32,
    pub(crate) depth: u16,
}

/// An API call.
#[derive(Debug, Serialize)]
pub(crate) struct CallRecord<'a> {
    pub(crate) size: u64,
    pub(crate) kind: usize,
    pub(crate) operation: usize,
    pub(crate) correlation_id: Correlation,
    pub(crate) start_timestamp: u64,
    pub(crate) end_timestamp: u64,
    pub(crate) thread_id: u32,
    pub(crate) args: Vec<Argument<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retval: Option<Returned>,
    pub(crate) gputrace: CallNotes,
}

/// Size in bytes of rocprofiler-sdk's record of a call.
pub(crate) const CALL_SIZE: u64 = 64;
/// Sizes in bytes of its record of a dispatch, and of the part about the kernel.
const DISPATCH_SIZE: u64 = 128;
const DISPATCH_INFO_SIZE: u64 = 72;
/// Size in bytes of its record of a copy.
const COPY_SIZE: u64 = 96;

#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Dim3 {
    x: u32,
    y: u32,
    z: u32,
}

impl From<[u32; 3]> for Dim3 {
    fn from([x, y, z]: [u32; 3]) -> Self {
        Self { x, y, z }
    }
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct DispatchInfo {
    size: u64,
    agent_id: Handle,
    queue_id: Handle,
    kernel_id: usize,
    dispatch_id: u64,
    private_segment_size: u32,
    group_segment_size: u32,
    workgroup_size: Dim3,
    grid_size: Dim3,
}

impl DispatchInfo {
    /// `kernel` is the number in `kernel_symbols`.
    pub(crate) fn new(dispatch: &Dispatch, kernel: usize, gpus: &Gpus) -> Self {
        Self {
            size: DISPATCH_INFO_SIZE,
            agent_id: agent_id(gpus.node_of(dispatch)),
            queue_id: Handle {
                handle: queue_id(dispatch.queue),
            },
            kernel_id: kernel,
            dispatch_id: dispatch.id,
            private_segment_size: dispatch.private_size,
            group_segment_size: dispatch.group_size,
            workgroup_size: dispatch.workgroup.into(),
            grid_size: dispatch.grid.into(),
        }
    }
}

/// How well the times of work are known. ns, `CLOCK_BOOTTIME`; null where nothing is proven.
#[derive(Debug, Serialize)]
pub(crate) struct Knowledge {
    pub(crate) quality: &'static str,
    pub(crate) unfinished: bool,
    pub(crate) submit_timestamp: u64,
    pub(crate) start_earliest: u64,
    pub(crate) start_latest: Option<u64>,
    pub(crate) start_uncertainty: Option<u64>,
    pub(crate) end_earliest: u64,
    pub(crate) end_latest: Option<u64>,
    pub(crate) end_uncertainty: Option<u64>,
    /// `None` if unknown; see [`Length::of`].
    pub(crate) duration: Option<u64>,
    /// Of a duration that is an estimate: the class whose mean it is, if it is one, and its standard
    /// error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kernel_class: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) estimate_error: Option<u64>,
}

impl Knowledge {
    pub(crate) fn new(time: &GpuTime, submitted: u64) -> Self {
        let Window {
            earliest: start_earliest,
            latest: start_latest,
        } = time.begin_window;
        let Window {
            earliest: end_earliest,
            latest: end_latest,
        } = time.end_window;
        let length = Length::of(time);
        Self {
            quality: time.quality.name(),
            unfinished: time.unfinished,
            submit_timestamp: submitted,
            start_earliest,
            start_latest,
            start_uncertainty: uncertainty(time.drawn_begin(), &time.begin_window),
            end_earliest,
            end_latest,
            end_uncertainty: uncertainty(time.drawn_end(), &time.end_window),
            duration: length.map(|length| length.ns),
            kernel_class: length.and_then(|length| length.class()),
            estimate_error: length.and_then(|length| length.estimate_error()),
        }
    }
}

#[derive(Debug, Serialize)]
struct DispatchNotes {
    #[serde(flatten)]
    knowledge: Knowledge,
    kernel_object: u64,
    packet_index: u64,
    stream_handle: Option<u64>,
    outermost_correlation_id: u64,
    completion_signal: u64,
    kernarg_address: u64,
    barrier: bool,
    read_later: bool,
}

/// A kernel dispatch.
#[derive(Debug, Serialize)]
pub(crate) struct DispatchRecord {
    size: u64,
    kind: usize,
    operation: usize,
    thread_id: u32,
    correlation_id: Correlation,
    /// `None` if it is not drawn, which is only in `untimed`.
    start_timestamp: Option<u64>,
    end_timestamp: Option<u64>,
    dispatch_info: DispatchInfo,
    stream_id: Handle,
    gputrace: DispatchNotes,
}

impl DispatchRecord {
    pub(crate) fn new(dispatch: &Dispatch, info: DispatchInfo, gpus: &Gpus) -> Self {
        let stream = dispatch.origin.stream_id;
        Self {
            size: DISPATCH_SIZE,
            kind: kind(Some(Domain::KernelDispatch)),
            operation: DISPATCH_OPERATIONS.len() - 1,
            thread_id: dispatch.origin.tid,
            correlation_id: Correlation::of_dispatch(dispatch, gpus),
            start_timestamp: dispatch.time.drawn_begin(),
            end_timestamp: dispatch.time.drawn_end(),
            dispatch_info: info,
            stream_id: Handle {
                handle: stream.into(),
            },
            gputrace: DispatchNotes {
                knowledge: Knowledge::new(&dispatch.time, dispatch.origin.time),
                kernel_object: dispatch.kernel_object,
                packet_index: dispatch.index,
                stream_handle: dispatch.origin.stream,
                outermost_correlation_id: dispatch.origin.outermost,
                completion_signal: dispatch.signal,
                kernarg_address: dispatch.kernarg,
                barrier: dispatch.barrier,
                read_later: dispatch.read_later,
            },
        }
    }
}

#[derive(Debug, Serialize)]
struct CopyNotes {
    #[serde(flatten)]
    knowledge: Knowledge,
    copy_id: u64,
    stream_handle: Option<u64>,
    outermost_correlation_id: u64,
    completion_signal: u64,
    engine_mask: u32,
    direction_by: Option<&'static str>,
}

/// A copy.
#[derive(Debug, Serialize)]
pub(crate) struct CopyRecord {
    size: u64,
    kind: usize,
    operation: usize,
    thread_id: u32,
    correlation_id: Correlation,
    /// `None` if it is not drawn, which is only in `untimed`.
    start_timestamp: Option<u64>,
    end_timestamp: Option<u64>,
    dst_agent_id: Handle,
    src_agent_id: Handle,
    bytes: u64,
    dst_address: Handle,
    src_address: Handle,
    stream_id: Handle,
    gputrace: CopyNotes,
}

impl CopyRecord {
    pub(crate) fn new(copy: &Copy, stream: u32) -> Self {
        let operation = DIRECTIONS.iter().position(|known| *known == copy.direction);
        Self {
            size: COPY_SIZE,
            kind: kind(Some(Domain::MemoryCopy)),
            operation: operation.unwrap_or(0),
            thread_id: copy.origin.tid,
            correlation_id: Correlation::of(&copy.origin),
            start_timestamp: copy.time.drawn_begin(),
            end_timestamp: copy.time.drawn_end(),
            dst_agent_id: agent_id(copy.destination_node),
            src_agent_id: agent_id(copy.source_node),
            bytes: copy.bytes,
            dst_address: Handle {
                handle: copy.destination,
            },
            src_address: Handle {
                handle: copy.source,
            },
            stream_id: Handle {
                handle: stream.into(),
            },
            gputrace: CopyNotes {
                knowledge: Knowledge::new(&copy.time, copy.origin.time),
                copy_id: copy.id,
                stream_handle: copy.origin.stream,
                outermost_correlation_id: copy.origin.outermost,
                completion_signal: copy.signal,
                engine_mask: copy.engine,
                direction_by: copy.known_by.map(KnownBy::name),
            },
        }
    }
}
