//! A table with rocprofv3's columns, and the table of quality beside it.

use gputrace_abi::domain::Domain;
use gputrace_timeline::gpu::GpuTime;

use super::table::{Field, Table};
use crate::{exporter::ExportError, gpu::Gpus, output::OutputDir};

/// A column: its name and the function that gets its value.
pub(super) type Column<T> = (&'static str, for<'a> fn(&Row<'a, T>) -> Field<'a>);

/// The data of a row: a dispatch or copy, and what it refers to.
pub(super) struct Row<'g, T> {
    pub(super) work: &'g T,
    pub(super) gpus: &'g Gpus,
    /// Number of the work's row, from 1, in the table with rocprofv3's columns.
    pub(super) trace_row: Option<u64>,
}

/// A table with rocprofv3's columns and its quality table.
#[derive(Debug)]
pub(super) struct Pair {
    domain: Domain,
    pub(super) trace: Table,
    pub(super) quality: Table,
}

impl Pair {
    pub(super) fn create<T>(
        directory: &OutputDir,
        name: &str,
        domain: Domain,
        trace: &[Column<T>],
        quality: &[Column<T>],
    ) -> Result<Self, ExportError> {
        let table = |suffix: &str, columns: &[Column<T>]| {
            let file = format!("{name}_{}_trace{suffix}.csv", domain.csv_stem());
            Table::create(directory, &file, columns.iter().map(|(column, _)| column))
        };
        Ok(Self {
            domain,
            trace: table("", trace)?,
            quality: table("_quality", quality)?,
        })
    }

    pub(super) fn row<T>(
        &mut self,
        (work, time): (&T, &GpuTime),
        gpus: &Gpus,
        trace: &[Column<T>],
        quality: &[Column<T>],
    ) -> Result<(), ExportError> {
        let mut row = Row {
            work,
            gpus,
            trace_row: None,
        };
        if time.is_drawn() {
            self.trace
                .fields(trace.iter().map(|(_, value)| value(&row)))?;
            row.trace_row = Some(self.trace.rows());
        }
        self.quality
            .fields(quality.iter().map(|(_, value)| value(&row)))
    }
}

impl Pair {
    /// What the trace holds, how many rows it lacks, why, and where those are.
    pub(super) fn content(&self, what: &str) -> String {
        let all = self.quality.rows();
        let mut text = what.to_owned();
        let missing = all.saturating_sub(self.trace.rows());
        if missing > 0 {
            text.push_str(&format!(
                "; {missing} of {all} are not in it, because how long they took is not known: bounds \
                 are in *_{}_trace_quality.csv",
                self.domain.csv_stem()
            ));
        }
        text
    }
}
