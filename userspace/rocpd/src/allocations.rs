//! Allocations and frees, in the same table as in rocprofv3: `rocpd_memory_allocate`, which the
//! view `memory_allocations` shows.
//!
//! As in rocprofv3's databases, memory with a handle instead of an address has the level `VIRTUAL`,
//! and that of queues the level `SCRATCH` (shown by the view `scratch_memory`). Frees have no size,
//! and no agent except for queues. Where size and agent are known, they are in `extdata`, with the
//! bytes that are then allocated on the agent.

use gputrace_abi::domain::Domain;
use gputrace_export::{ExportError, gpu::queue_id};
use gputrace_timeline::observation::{FieldValue, Observation};
use serde::Serialize;

use crate::{
    exporter::{Context, int, json},
    rows::{Rows, cells},
    schema::Identity,
};

/// `extdata` of a row.
#[derive(Serialize)]
struct Ext {
    /// Number of bytes freed.
    #[serde(skip_serializing_if = "Option::is_none")]
    freed_bytes: Option<u64>,
    /// Topology node of the agent that held them.
    #[serde(skip_serializing_if = "Option::is_none")]
    freed_node: Option<u64>,
    /// Bytes that all processes have allocated on the agent afterwards.
    #[serde(skip_serializing_if = "Option::is_none")]
    live_bytes: Option<u64>,
    /// For scratch memory: rocprofiler-sdk's flags, where bit 0 means that the memory is given back
    /// when the kernel has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    flags: Option<u64>,
}

/// Writes allocations.
#[derive(Debug)]
pub(crate) struct Allocations {
    rows: Rows<14>,
    count: i64,
}

impl Allocations {
    pub(crate) fn new(identity: &Identity) -> Self {
        Self {
            rows: Rows::new(
                identity,
                "rocpd_memory_allocate",
                "id, nid, pid, tid, agent_id, type, level, start, \"end\", address, size, queue_id, event_id, extdata",
            ),
            count: 0,
        }
    }

    /// Takes an observation; those of other domains are ignored.
    pub(crate) fn observation(
        &mut self,
        context: &mut Context,
        one: &Observation,
    ) -> Result<(), ExportError> {
        let domain = match Domain::from_id(one.domain) {
            Some(domain @ (Domain::MemoryAllocation | Domain::ScratchMemory)) => domain,
            _ => return Ok(()),
        };
        let scratch = domain == Domain::ScratchMemory;
        let number = |name: &str| match one.get(name) {
            Some(FieldValue::Number(value) | FieldValue::Hex(value)) => Some(*value),
            _ => None,
        };
        let (bytes, node) = (number("bytes"), number("node"));
        let frees = one.name.ends_with("FREE");
        let agent = node.and_then(|node| u32::try_from(node).ok());
        let agent = agent.filter(|node| context.gpus.agent(*node).is_some());
        let agent = agent.filter(|_| scratch || !frees);
        let (kind, size) = if frees {
            ("FREE", 0)
        } else {
            ("ALLOC", bytes.unwrap_or(0))
        };
        let queue = number("queue").and_then(|number| u32::try_from(number).ok());
        let level = if scratch {
            "SCRATCH"
        } else if one.name.contains("VMEM") {
            "VIRTUAL"
        } else {
            "REAL"
        };
        let extdata = json(&Ext {
            freed_bytes: bytes.filter(|bytes| frees && *bytes != 0),
            freed_node: node.filter(|_| frees),
            live_bytes: number("live_bytes").or(number("live_scratch_bytes")),
            flags: number("flags").filter(|_| scratch),
        });
        let whose = &one.whose;
        context.who.seen(whose.pid, whose.tid);
        let call = number("correlation_id").unwrap_or(0);
        let event = context.event(domain.name(), (call, call), "{}")?;
        self.count += 1;
        let row = cells![
            self.count,
            context.node,
            whose.pid,
            whose.tid,
            agent,
            kind,
            level,
            int(one.begin),
            int(one.end),
            number("address").map(int),
            int(size),
            queue.map(|number| int(queue_id(number))),
            event,
            extdata.as_str(),
        ];
        self.rows.add(&context.database, row)
    }

    /// Inserts the waiting rows.
    pub(crate) fn finish(&mut self, context: &Context) -> Result<(), ExportError> {
        self.rows.finish(&context.database)
    }
}
