//! `counter_collection`: counters that were read while kernels ran.

use gputrace_timeline::gpu::Dispatch;

use super::{
    pair::{Column, Row},
    table::{Field, Table},
    work::kernel,
};
use crate::{
    exporter::ExportError,
    gpu::{Gpus, queue_id},
    output::OutputDir,
};

/// The columns, exactly rocprofv3's: those before the counter, the counter, and those after it.
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
    ("Kernel_Id", |row| {
        row.gpus.kernel_id(row.work).unwrap_or(0).into()
    }),
    ("Kernel_Name", |row| {
        Field::Text(row.gpus.kernel_name(row.work))
    }),
    ("Workgroup_Size", |row| volume(row.work.workgroup)),
    ("LDS_Block_Size", |row| {
        row.gpus.lds_block_size(row.work).into()
    }),
    ("Scratch_Size", |row| row.work.private_size.into()),
    ("VGPR_Count", |row| {
        kernel(row, |kernel| kernel.arch_vgpr_count)
    }),
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

/// The table, if counters were read.
#[derive(Debug, Default)]
pub(super) struct Collection {
    table: Option<Table>,
    /// Dispatches with real times, and those of them that have rows.
    kernels: u64,
    counted: u64,
}

impl Collection {
    /// Begins the table if it does not exist yet.
    pub(super) fn begin(
        &mut self,
        directory: &OutputDir,
        name: &str,
    ) -> Result<&mut Table, ExportError> {
        match &mut self.table {
            Some(table) => Ok(table),
            none => {
                let named =
                    |columns: &'static [Column<Dispatch>]| columns.iter().map(|(name, _)| *name);
                let columns = named(DISPATCH).chain(COUNTER).chain(named(TIMES));
                let file = format!("{name}_counter_collection.csv");
                Ok(none.insert(Table::create(directory, &file, columns)?))
            }
        }
    }

    /// Writes a row for each counter that was read while `dispatch` ran.
    pub(super) fn dispatch(
        &mut self,
        (directory, name): (&OutputDir, &str),
        gpus: &Gpus,
        dispatch: &Dispatch,
    ) -> Result<(), ExportError> {
        self.kernels += u64::from(dispatch.time.is_drawn());
        if dispatch.readings.is_empty() {
            return Ok(());
        }
        self.counted += 1;
        let table = self.begin(directory, name)?;
        let row = Row {
            work: dispatch,
            gpus,
            trace_row: None,
        };
        let fields =
            |columns: &'static [Column<Dispatch>]| columns.iter().map(|(_, value)| value(&row));
        for reading in &dispatch.readings {
            let counter = [
                reading.counter.name.as_str().into(),
                Field::Real(reading.value),
            ];
            table.fields(fields(DISPATCH).chain(counter).chain(fields(TIMES)))?;
        }
        Ok(())
    }

    /// The table with its description.
    pub(super) fn finish(self) -> Option<(Table, String)> {
        let Self {
            table,
            kernels,
            counted,
        } = self;
        let hint = if counted < kernels {
            "; --counters=HZ reads more often"
        } else {
            ""
        };
        let content =
            format!("counters that were read while {counted} of {kernels} kernels ran{hint}");
        Some((table?, content))
    }
}

fn volume(sizes: [u32; 3]) -> Field<'static> {
    sizes
        .into_iter()
        .map(u64::from)
        .fold(1, u64::saturating_mul)
        .into()
}
