//! `counter_trace`: readings of counters.

use gputrace_timeline::event::CounterSample;

use super::table::{Field, Table};
use crate::{exporter::ExportError, gpu::Gpus, output::OutputDir};

/// Times are ns, `CLOCK_BOOTTIME`. Ids that are unknown or do not apply are 0, such agents empty.
const COLUMNS: [&str; 8] = [
    "Agent_Id",
    "Gpu_Id",
    "Process_Id",
    "Counter_Name",
    "Unit",
    "Cumulative",
    "Timestamp",
    "Counter_Value",
];

/// Creates the table.
pub(super) fn begin(directory: &OutputDir, name: &str) -> Result<Table, ExportError> {
    Table::create(directory, &format!("{name}_counter_trace.csv"), COLUMNS)
}

/// Writes a row.
pub(super) fn row(
    table: &mut Table,
    gpus: &Gpus,
    sample: &CounterSample,
) -> Result<(), ExportError> {
    let counter = &sample.counter;
    table.fields([
        gpus.agent_label(counter.node_id).into(),
        counter.gpu_id.into(),
        counter.pid.into(),
        counter.name.as_str().into(),
        counter.unit.as_str().into(),
        counter.cumulative.into(),
        sample.time.into(),
        Field::Shortest(sample.value),
    ])
}
