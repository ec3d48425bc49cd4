//! Memory that was allocated and freed, where rocprofv3 has it: `rocpd_memory_allocate`, which the view
//! `memory_allocations` shows.
//!
//! As in rocprofv3's databases, memory with a handle instead of an address is of level `VIRTUAL`, and what frees memory
//! has no agent and no size. What is known of both is in `extdata`, with what the agent had after it.

use gputrace_abi::domain::Domain;
use gputrace_export::ExportError;
use gputrace_timeline::observation::{FieldValue, Observation};
use serde::Serialize;

use crate::{
    exporter::{Context, int, json},
    rows::{Rows, cells},
    schema::Identity,
};

/// What the columns have no place for.
#[derive(Serialize)]
struct Ext {
    /// Bytes that are freed.
    #[serde(skip_serializing_if = "Option::is_none")]
    freed_bytes: Option<u64>,
    /// Topology node of the agent of which they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    freed_node: Option<u64>,
    /// Bytes that all processes have allocated on the agent afterwards.
    #[serde(skip_serializing_if = "Option::is_none")]
    live_bytes: Option<u64>,
}

/// Writes allocations.
#[derive(Debug)]
pub(crate) struct Allocations {
    rows: Rows<13>,
    count: i64,
}

impl Allocations {
    pub(crate) fn new(identity: &Identity) -> Self {
        Self {
            rows: Rows::new(
                identity,
                "rocpd_memory_allocate",
                "id, nid, pid, tid, agent_id, type, level, start, \"end\", address, size, event_id, extdata",
            ),
            count: 0,
        }
    }

    /// Takes an observation; those of other domains are passed over.
    pub(crate) fn observation(
        &mut self,
        context: &mut Context,
        one: &Observation,
    ) -> Result<(), ExportError> {
        if one.domain != Domain::MemoryAllocation.id() {
            return Ok(());
        }
        let number = |name: &str| match one.get(name) {
            Some(FieldValue::Number(value) | FieldValue::Hex(value)) => Some(*value),
            _ => None,
        };
        let (bytes, node) = (number("bytes"), number("node"));
        let frees = one.name.ends_with("FREE");
        let (kind, agent, size) = if frees {
            ("FREE", None, 0)
        } else {
            let agent = node.and_then(|node| u32::try_from(node).ok());
            let agent = agent.filter(|node| context.gpus.agent(*node).is_some());
            ("ALLOC", agent, bytes.unwrap_or(0))
        };
        let level = if one.name.contains("VMEM") {
            "VIRTUAL"
        } else {
            "REAL"
        };
        let extdata = json(&Ext {
            freed_bytes: bytes.filter(|bytes| frees && *bytes != 0),
            freed_node: node.filter(|_| frees),
            live_bytes: number("live_bytes"),
        });
        let whose = &one.whose;
        context.who.seen(whose.pid, whose.tid);
        let call = number("correlation_id").unwrap_or(0);
        let event = context.event(Domain::MemoryAllocation.name(), (call, call), "{}")?;
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
            event,
            extdata.as_str(),
        ];
        self.rows.add(&context.database, row)
    }

    /// Writes what waits.
    pub(crate) fn finish(&mut self, context: &Context) -> Result<(), ExportError> {
        self.rows.finish(&context.database)
    }
}
