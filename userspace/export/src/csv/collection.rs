//! `counter_collection`: counters that were read while kernels ran.

use gputrace_timeline::gpu::Dispatch;

use super::{
    gpu::{Column, Row, kernel},
    table::{Field, Table},
};
use crate::{
    exporter::ExportError,
    gpu::{Gpus, queue_id},
    output::OutputDir,
};

/// The columns, exactly rocprofv3's: what comes before the counter, the counter, and what follows it.
const DISPATCH: &[Column<Dispatch>] = &[
    ("Correlation_Id", |row| row.work.origin.innermost.into()),
    ("Dispatch_Id", |row| row.work.id.into()),
    ("Agent_Id", |row| {
        row.gpus.agent_label(row.gpus.node_of(row.work)).into()
    }),
    ("Queue_Id", |row| queue_id(row.work.queue).into()),
    ("Process_Id", |row| row.work.origin.pid.into()),
    ("Thread_Id", |row| row.work.origin.tid.into()),
    ("Grid_Size", |row| volume(row.work.grid)),
    ("Kernel_Id", |row| row.work.kernel.unwrap_or(0).into()),
    ("Kernel_Name", |row| Field::Text(row.gpus.kernel_name(row.work))),
    ("Workgroup_Size", |row| volume(row.work.workgroup)),
    ("LDS_Block_Size", |row| row.gpus.lds_block_size(row.work).into()),
    ("Scratch_Size", |row| row.work.private_size.into()),
    ("VGPR_Count", |row| kernel(row, |kernel| kernel.arch_vgpr_count)),
    ("Accum_VGPR_Count", |row| {
        kernel(row, |kernel| kernel.accum_vgpr_count)
    }),
    ("SGPR_Count", |row| kernel(row, |kernel| kernel.sgpr_count)),
];
const COUNTER: [&str; 2] = ["Counter_Name", "Counter_Value"];
const TIMES: &[Column<Dispatch>] = &[
    ("Start_Timestamp", |row| row.work.time.begin.into()),
    ("End_Timestamp", |row| row.work.time.end.into()),
];

/// Begins the table.
pub(super) fn begin(directory: &OutputDir, name: &str) -> Result<Table, ExportError> {
    let named = |columns: &'static [Column<Dispatch>]| columns.iter().map(|(name, _)| *name);
    let columns = named(DISPATCH).chain(COUNTER).chain(named(TIMES));
    Table::create(directory, &format!("{name}_counter_collection.csv"), columns)
}

/// Writes a row for each counter that was read while `dispatch` ran.
pub(super) fn rows(table: &mut Table, gpus: &Gpus, dispatch: &Dispatch) -> Result<(), ExportError> {
    let row = Row {
        work: dispatch,
        gpus,
        trace_row: None,
    };
    let fields = |columns: &'static [Column<Dispatch>]| columns.iter().map(|(_, value)| value(&row));
    for reading in &dispatch.readings {
        let counter = [reading.counter.name.as_str().into(), Field::Real(reading.value)];
        table.fields(fields(DISPATCH).chain(counter).chain(fields(TIMES)))?;
    }
    Ok(())
}

fn volume(sizes: [u32; 3]) -> Field<'static> {
    sizes
        .into_iter()
        .map(u64::from)
        .fold(1, u64::saturating_mul)
        .into()
}
