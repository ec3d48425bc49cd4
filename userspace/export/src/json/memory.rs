//! Allocations, frees, and scratch memory of queues, in rocprofiler-sdk's format.

use gputrace_abi::domain::Domain;
use gputrace_timeline::observation::{FieldValue, Observation};
use serde::Serialize;

use crate::{
    gpu::queue_id,
    json::records::{Correlation, Handle, agent_id, kind},
};

/// Operations of allocations, by number (`rocprofiler_memory_allocation_operation_t`).
pub(crate) const ALLOCATIONS: [&str; 5] = [
    "MEMORY_ALLOCATION_NONE",
    "MEMORY_ALLOCATION_ALLOCATE",
    "MEMORY_ALLOCATION_VMEM_ALLOCATE",
    "MEMORY_ALLOCATION_FREE",
    "MEMORY_ALLOCATION_VMEM_FREE",
];

/// Operations of scratch memory, by number (`rocprofiler_scratch_memory_operation_t`).
pub(crate) const SCRATCH: [&str; 4] = [
    "SCRATCH_MEMORY_NONE",
    "SCRATCH_MEMORY_ALLOC",
    "SCRATCH_MEMORY_FREE",
    "SCRATCH_MEMORY_ASYNC_RECLAIM",
];

/// Sizes in bytes of rocprofiler-sdk's records.
const ALLOCATION_SIZE: u64 = 72;
const SCRATCH_SIZE: u64 = 72;

/// Data beyond rocprofiler-sdk's fields.
#[derive(Debug, Serialize)]
struct Notes {
    /// Number of bytes freed.
    #[serde(skip_serializing_if = "Option::is_none")]
    freed_bytes: Option<u64>,
    /// Address of scratch memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<u64>,
    /// `sampled` if it happened at an unknown time between the two timestamps.
    #[serde(skip_serializing_if = "Option::is_none")]
    quality: Option<&'static str>,
}

/// An allocation or a free. As in rocprofv3's document, frees have no size.
#[derive(Debug, Serialize)]
pub(crate) struct AllocationRecord {
    size: u64,
    kind: usize,
    operation: usize,
    correlation_id: Correlation,
    thread_id: u32,
    start_timestamp: u64,
    end_timestamp: u64,
    agent_id: Handle,
    /// For scratch memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    queue_id: Option<Handle>,
    /// For scratch memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    flags: Option<u64>,
    /// For other memory: 16 hexadecimal digits, as rocprofv3 writes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    allocation_size: u64,
    gputrace: Notes,
}

impl AllocationRecord {
    /// The array that the record belongs to, and the record; `None` for an observation of another
    /// domain.
    pub(crate) fn new(one: &Observation) -> Option<(&'static str, Self)> {
        let domain = Domain::from_id(one.domain)?;
        let (array, size, operations): (_, _, &[&str]) = match domain {
            Domain::MemoryAllocation => ("memory_allocation", ALLOCATION_SIZE, &ALLOCATIONS),
            Domain::ScratchMemory => ("scratch_memory", SCRATCH_SIZE, &SCRATCH),
            _ => return None,
        };
        let number = |name: &str| match one.get(name) {
            Some(FieldValue::Number(value) | FieldValue::Hex(value)) => Some(*value),
            _ => None,
        };
        let is_scratch = domain == Domain::ScratchMemory;
        let frees = one.name.ends_with("FREE");
        let small = |name: &str| number(name).and_then(|value| u32::try_from(value).ok());
        let bytes = number("bytes").unwrap_or(0);
        let record = Self {
            size,
            kind: kind(Some(domain)),
            operation: operations
                .iter()
                .position(|name| *name == one.name)
                .unwrap_or(0),
            correlation_id: Correlation {
                internal: number("correlation_id").unwrap_or(0),
                external: 0,
                ancestor: None,
            },
            thread_id: one.whose.tid,
            start_timestamp: one.begin,
            end_timestamp: one.end,
            agent_id: agent_id(small("node").filter(|_| is_scratch || !frees)),
            queue_id: small("queue").map(|number| Handle {
                handle: queue_id(number),
            }),
            flags: number("flags").filter(|_| is_scratch),
            address: (!is_scratch).then(|| format!("{:#018x}", number("address").unwrap_or(0))),
            allocation_size: if frees { 0 } else { bytes },
            gputrace: Notes {
                freed_bytes: (frees && bytes != 0).then_some(bytes),
                address: number("address").filter(|_| is_scratch),
                quality: is_scratch.then_some("sampled"),
            },
        };
        Some((array, record))
    }
}
