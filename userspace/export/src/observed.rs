//! Observations in the JSON formats, and those that statistics count.

use std::borrow::Cow;

use gputrace_abi::domain::Domain;
use gputrace_capture::ledger::Ledger;
use gputrace_timeline::observation::{FieldValue, Observation};
use serde::{Serialize, Serializer};

/// The domain of an observation that rocprofv3's statistics count: allocations by HSA, and scratch
/// memory. Allocations by HIP are no domain of rocprofv3's; they reach HSA if they need memory.
#[must_use]
pub fn memory_domain(one: &Observation) -> Option<Domain> {
    Domain::from_id(one.domain)
        .filter(|domain| matches!(domain, Domain::MemoryAllocation | Domain::ScratchMemory))
}

/// An observation. Times are ns, `CLOCK_BOOTTIME`; unknown ids are 0.
#[derive(Serialize)]
pub(crate) struct ObservationRecord<'a> {
    domain: Cow<'static, str>,
    name: &'a str,
    pid: u32,
    tid: u32,
    gpu_id: u32,
    begin: u64,
    end: u64,
    unfinished: bool,
    fields: Vec<Field<'a>>,
}

#[derive(Serialize)]
struct Field<'a> {
    name: &'a str,
    #[serde(serialize_with = "shown")]
    value: &'a FieldValue,
}

fn shown<S: Serializer>(value: &FieldValue, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        FieldValue::Number(value) => serializer.serialize_u64(*value),
        FieldValue::Signed(value) => serializer.serialize_i64(*value),
        FieldValue::Missing => serializer.serialize_none(),
        other => serializer.collect_str(other),
    }
}

impl<'a> ObservationRecord<'a> {
    pub(crate) fn new(one: &'a Observation) -> Self {
        Self {
            domain: Ledger::domain_name(one.domain),
            name: &one.name,
            pid: one.whose.pid,
            tid: one.whose.tid,
            gpu_id: one.whose.gpu_id,
            begin: one.begin,
            end: one.end,
            unfinished: one.is_open,
            fields: one
                .fields
                .iter()
                .map(|field| Field {
                    name: &field.name,
                    value: &field.value,
                })
                .collect(),
        }
    }
}
