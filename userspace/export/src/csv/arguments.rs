//! `NAME_arguments.csv`: arguments and results of calls, one per row. rocprofv3 has no such file,
//! so the traces keep its columns and this table is separate; `Correlation_Id` joins the two.

use gputrace_timeline::{
    args,
    event::{Call, FunctionInfo},
};

use super::table::{Field, Table};
use crate::{exporter::ExportError, output::OutputDir};

/// `Position` counts arguments from 0. Fields of a structure have the structure's position; a
/// result has none, and is called `return`. `Type` is that of the public header; it is empty for
/// functions that are not in the catalogue, whose registers are shown in hex.
const COLUMNS: [&str; 8] = [
    "Process_Id",
    "Thread_Id",
    "Correlation_Id",
    "Function",
    "Position",
    "Type",
    "Name",
    "Value",
];

/// Creates the file.
pub(super) fn begin(directory: &OutputDir, name: &str) -> Result<Table, ExportError> {
    Table::create(directory, &format!("{name}_arguments.csv"), COLUMNS)
}

/// Writes the rows of a call. A marker's name is its text, so it has rows only for its annotations,
/// or if it is shown under the called function.
pub(super) fn rows(table: &mut Table, info: &FunctionInfo, call: &Call) -> Result<(), ExportError> {
    let mut row = |position: Option<u64>, c_type: &str, name: &str, value: String| {
        table.fields([
            Field::from(call.pid),
            Field::from(call.tid),
            Field::from(call.correlation),
            Field::from(info.function.name.as_str()),
            Field::from(position),
            Field::from(c_type),
            Field::from(name),
            Field::from(value),
        ])
    };
    for argument in args::typed(info, call) {
        row(
            Some(argument.position as u64),
            argument.c_type,
            argument.name,
            argument.value.to_string(),
        )?;
    }
    match args::returned(info, call).filter(|_| info.range.is_none()) {
        Some(value) => row(None, "", "return", value.to_string()),
        None => Ok(()),
    }
}
