//! Observations of the kernel: one file per domain.

use std::collections::BTreeMap;

use gputrace_abi::domain::Domain;
use gputrace_timeline::observation::Observation;

use super::table::Table;
use crate::{exporter::ExportError, functions::group_title, output::OutputDir};

/// Columns of these files. Times are ns, `CLOCK_BOOTTIME`; unknown ids are 0.
const COLUMNS: [&str; 9] = [
    "Domain",
    "Name",
    "Process_Id",
    "Thread_Id",
    "Gpu_Id",
    "Start_Timestamp",
    "End_Timestamp",
    "Unfinished",
    "Fields",
];

/// The tables of observations.
#[derive(Debug, Default)]
pub(super) struct Observed {
    tables: BTreeMap<u8, Table>,
}

impl Observed {
    /// Whether `domain` consists of observations, not of calls or GPU work.
    pub(super) fn has(domain: Domain) -> bool {
        domain.is_observation()
    }

    /// Begins the table of a domain.
    pub(super) fn begin(
        &mut self,
        directory: &OutputDir,
        name: &str,
        domain: Domain,
    ) -> Result<&mut Table, ExportError> {
        use std::collections::btree_map::Entry;
        match self.tables.entry(domain.id()) {
            Entry::Occupied(entry) => Ok(entry.into_mut()),
            Entry::Vacant(entry) => {
                let file = format!("{name}_{}_trace.csv", domain.csv_stem());
                Ok(entry.insert(Table::create(directory, &file, COLUMNS)?))
            }
        }
    }

    /// Writes a row.
    pub(super) fn row(
        &mut self,
        directory: &OutputDir,
        name: &str,
        one: &Observation,
    ) -> Result<(), ExportError> {
        let Some(domain) = Domain::from_id(one.domain) else {
            return Ok(());
        };
        let fields: Vec<String> = one
            .fields
            .iter()
            .map(|field| format!("{}={}", field.name, field.value))
            .collect();
        self.begin(directory, name, domain)?.fields([
            domain.name().into(),
            one.name.as_ref().into(),
            one.whose.pid.into(),
            one.whose.tid.into(),
            one.whose.gpu_id.into(),
            one.begin.into(),
            one.end.into(),
            one.is_open.into(),
            fields.join(" ").into(),
        ])
    }

    /// The tables with their descriptions.
    pub(super) fn finish(self) -> impl Iterator<Item = (Table, String)> {
        self.tables.into_iter().map(|(domain, table)| {
            let stem = Domain::from_id(domain).map_or("other", Domain::csv_stem);
            (table, format!("{} events", group_title(stem)))
        })
    }
}
