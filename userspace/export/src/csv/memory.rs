//! `memory_allocation_trace` and `scratch_memory_trace`, with rocprofv3's columns. As there, frees
//! have no size and no agent (except for scratch memory).

use gputrace_timeline::observation::{FieldValue, Observation};

use super::table::{Field, Table};
use crate::{
    exporter::ExportError,
    gpu::{Gpus, queue_id},
    output::OutputDir,
};

const COLUMNS: [&str; 8] = [
    "Kind",
    "Operation",
    "Agent_Id",
    "Allocation_Size",
    "Address",
    "Correlation_Id",
    "Start_Timestamp",
    "End_Timestamp",
];

/// Creates the table.
pub(super) fn begin(directory: &OutputDir, name: &str) -> Result<Table, ExportError> {
    Table::create(
        directory,
        &format!("{name}_memory_allocation_trace.csv"),
        COLUMNS,
    )
}

/// Writes a row.
pub(super) fn row(table: &mut Table, gpus: &Gpus, one: &Observation) -> Result<(), ExportError> {
    let number = |name: &str| number(one, name).unwrap_or(0);
    let frees = one.name.ends_with("FREE");
    let node = one.get("node").filter(|_| !frees);
    let agent = match node {
        Some(_) => gpus.agent_label(Some(number("node") as u32)),
        None => String::new(),
    };
    table.fields([
        Field::from("MEMORY_ALLOCATION"),
        Field::from(one.name.as_ref()),
        Field::from(agent),
        Field::from(if frees { 0 } else { number("bytes") }),
        Field::Address(number("address")),
        Field::from(number("correlation_id")),
        Field::from(one.begin),
        Field::from(one.end),
    ])
}

const SCRATCH_COLUMNS: [&str; 9] = [
    "Kind",
    "Operation",
    "Agent_Id",
    "Queue_Id",
    "Thread_Id",
    "Alloc_Flags",
    "Start_Timestamp",
    "End_Timestamp",
    "Allocation_Size",
];

/// Creates the table of scratch memory.
pub(super) fn begin_scratch(directory: &OutputDir, name: &str) -> Result<Table, ExportError> {
    Table::create(
        directory,
        &format!("{name}_scratch_memory_trace.csv"),
        SCRATCH_COLUMNS,
    )
}

/// Writes a row. The thread is 0, because it is unknown which of the runtime's threads did it.
pub(super) fn scratch_row(
    table: &mut Table,
    gpus: &Gpus,
    one: &Observation,
) -> Result<(), ExportError> {
    let number = |name: &str| number(one, name);
    let frees = one.name.ends_with("FREE");
    let node = number("node").and_then(|node| u32::try_from(node).ok());
    let queue = number("queue").and_then(|number| u32::try_from(number).ok());
    table.fields([
        Field::from("SCRATCH_MEMORY"),
        Field::from(one.name.as_ref()),
        Field::from(gpus.agent_label(node)),
        Field::from(queue.map_or(0, queue_id)),
        Field::from(one.whose.tid),
        Field::from(number("flags").unwrap_or(0)),
        Field::from(one.begin),
        Field::from(one.end),
        Field::from(if frees {
            0
        } else {
            number("bytes").unwrap_or(0)
        }),
    ])
}

fn number(one: &Observation, name: &str) -> Option<u64> {
    match one.get(name)? {
        FieldValue::Number(value) | FieldValue::Hex(value) => Some(*value),
        _ => None,
    }
}
