//! `memory_allocation_trace`, with rocprofv3's columns. As there, what frees memory has no agent and no size.

use gputrace_timeline::observation::{FieldValue, Observation};

use super::table::{Field, Table};
use crate::{exporter::ExportError, gpu::Gpus, output::OutputDir};

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

/// Begins the table.
pub(super) fn begin(directory: &OutputDir, name: &str) -> Result<Table, ExportError> {
    Table::create(directory, &format!("{name}_memory_allocation_trace.csv"), COLUMNS)
}

/// Writes a row.
pub(super) fn row(table: &mut Table, gpus: &Gpus, one: &Observation) -> Result<(), ExportError> {
    let number = |name: &str| match one.get(name) {
        Some(FieldValue::Number(value) | FieldValue::Hex(value)) => *value,
        _ => 0,
    };
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
