//! Captures as Arrow tables, with the columns of the Parquet files.

use std::{collections::BTreeSet, sync::Arc};

use arrow_array::{
    ArrayRef, RecordBatch, RecordBatchIterator,
    builder::{
        ArrayBuilder, BooleanBuilder, Int64Builder, StringBuilder, StringDictionaryBuilder,
        UInt64Builder,
    },
    ffi_stream::FFI_ArrowArrayStream,
    types::Int32Type,
};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use gputrace_library::{Capture, Event};
use gputrace_parquet::{
    table::{Cell, Kind},
    tables::{CALLS, COPIES, Column, Columns, KERNELS, Known},
};
use pyo3::{exceptions::PyKeyError, prelude::*, types::PyCapsule};

use crate::{Error, raised};

/// Rows of a batch.
const ROWS: usize = 1 << 17;

/// Columns of text that hardly ever repeat; all others are dictionaries.
const DISTINCT: [&str; 2] = ["args", "result"];

/// A table of a capture. Any library that knows Arrow's PyCapsule interface takes it without a copy.
#[pyclass(frozen, module = "gputrace")]
pub(crate) struct Table {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

#[pymethods]
impl Table {
    /// Number of rows.
    fn __len__(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// Names of the columns.
    #[getter]
    fn columns(&self) -> Vec<&str> {
        let fields = self.schema.fields().iter();
        fields.map(|field| field.name().as_str()).collect()
    }

    /// Arrow's PyCapsule interface.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The interface allows to ignore what was requested.
        let _ = requested_schema;
        let batches = self.batches.clone().into_iter().map(Ok);
        let reader = RecordBatchIterator::new(batches, Arc::clone(&self.schema));
        let stream = FFI_ArrowArrayStream::new(Box::new(reader));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }

    /// A `pyarrow.Table`.
    fn to_arrow<'py>(slf: PyRef<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let arrow = py.import("pyarrow")?;
        arrow.call_method1("table", (slf,))
    }

    /// A `pandas.DataFrame`.
    fn to_pandas<'py>(slf: PyRef<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Self::to_arrow(slf)?.call_method0("to_pandas")
    }

    fn __repr__(&self) -> String {
        format!("<gputrace.Table of {} rows>", self.__len__())
    }
}

/// The values of a column.
enum Values {
    Number(UInt64Builder),
    Signed(Int64Builder),
    Text(StringBuilder),
    Name(StringDictionaryBuilder<Int32Type>),
    Flag(BooleanBuilder),
}

impl Values {
    fn new(name: &str, kind: Kind) -> Self {
        match kind {
            Kind::Number => Self::Number(UInt64Builder::new()),
            Kind::Signed => Self::Signed(Int64Builder::new()),
            Kind::Text if DISTINCT.contains(&name) => Self::Text(StringBuilder::new()),
            Kind::Text => Self::Name(StringDictionaryBuilder::new()),
            Kind::Flag => Self::Flag(BooleanBuilder::new()),
        }
    }

    fn data_type(&self) -> DataType {
        match self {
            Self::Number(_) => DataType::UInt64,
            Self::Signed(_) => DataType::Int64,
            Self::Text(_) => DataType::Utf8,
            Self::Name(_) => {
                DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
            }
            Self::Flag(_) => DataType::Boolean,
        }
    }

    /// Adds a value; one of another type than the column's becomes null.
    fn push(&mut self, cell: Cell<'_>) {
        match (self, cell) {
            (Self::Number(values), Cell::Number(value)) => values.append_value(value),
            (Self::Signed(values), Cell::Signed(value)) => values.append_value(value),
            (Self::Text(values), Cell::Text(value)) => values.append_value(value),
            (Self::Name(values), Cell::Text(value)) => values.append_value(value),
            (Self::Flag(values), Cell::Flag(value)) => values.append_value(value),
            (Self::Number(values), _) => values.append_null(),
            (Self::Signed(values), _) => values.append_null(),
            (Self::Text(values), _) => values.append_null(),
            (Self::Name(values), _) => values.append_null(),
            (Self::Flag(values), _) => values.append_null(),
        }
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Number(values) => ArrayBuilder::finish(values),
            Self::Signed(values) => ArrayBuilder::finish(values),
            Self::Text(values) => ArrayBuilder::finish(values),
            Self::Name(values) => ArrayBuilder::finish(values),
            Self::Flag(values) => ArrayBuilder::finish(values),
        }
    }
}

/// A table under construction.
struct Rows<T: 'static> {
    columns: Vec<&'static Column<T>>,
    values: Vec<Values>,
    schema: SchemaRef,
    rows: usize,
    batches: Vec<RecordBatch>,
}

impl<T> Rows<T> {
    fn new(all: Columns<T>, wanted: Option<Vec<String>>) -> PyResult<Self> {
        let all = || all.iter().copied().flatten();
        let columns: Vec<_> = match wanted {
            None => all().collect(),
            Some(wanted) => {
                let known: BTreeSet<&str> = all().map(|(name, ..)| *name).collect();
                if let Some(unknown) = wanted.iter().find(|name| !known.contains(name.as_str())) {
                    let known = known.into_iter().collect::<Vec<_>>().join(", ");
                    return Err(PyKeyError::new_err(format!(
                        "there is no column {unknown}: use {known}"
                    )));
                }
                all()
                    .filter(|(name, ..)| wanted.iter().any(|wanted| wanted == name))
                    .collect()
            }
        };
        let values: Vec<_> = columns
            .iter()
            .map(|(name, kind, _)| Values::new(name, *kind))
            .collect();
        let fields: Vec<_> = columns
            .iter()
            .zip(&values)
            .map(|((name, ..), values)| Field::new(*name, values.data_type(), true))
            .collect();
        Ok(Self {
            columns,
            values,
            schema: Arc::new(Schema::new(fields)),
            rows: 0,
            batches: Vec::new(),
        })
    }

    fn add(&mut self, row: &T, known: &Known) -> Result<(), ArrowError> {
        for ((_, _, value), values) in self.columns.iter().zip(&mut self.values) {
            values.push(value(row, known));
        }
        self.rows += 1;
        if self.rows == ROWS {
            self.write()?;
        }
        Ok(())
    }

    fn write(&mut self) -> Result<(), ArrowError> {
        let columns = self.values.iter_mut().map(Values::finish).collect();
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns)?;
        self.batches.push(batch);
        self.rows = 0;
        Ok(())
    }
}

/// Reads a capture into a table. `row` picks the events that are its rows.
fn table<T: Send>(
    py: Python<'_>,
    capture: &Capture,
    columns: Columns<T>,
    wanted: Option<Vec<String>>,
    row: fn(&Event) -> Option<&T>,
) -> PyResult<Table> {
    let mut rows = Rows::new(columns, wanted)?;
    py.detach(|| {
        let mut known = Known::default();
        let events = capture.events().map_err(|error| raised(&error))?;
        for event in events {
            let event = event.map_err(|error| raised(&error))?;
            known.gpus.learn(&event);
            if let Event::Function(info) = &event {
                known.functions.learn(info);
            }
            if let Some(row) = row(&event) {
                rows.add(row, &known).map_err(|error| fails(&error))?;
            }
        }
        rows.write().map_err(|error| fails(&error))?;
        Ok(Table {
            schema: rows.schema,
            batches: rows.batches,
        })
    })
}

fn fails(error: &ArrowError) -> PyErr {
    Error::new_err(format!("the table cannot be made: {error}"))
}

/// API calls and markers.
pub(crate) fn calls(
    py: Python<'_>,
    capture: &Capture,
    wanted: Option<Vec<String>>,
) -> PyResult<Table> {
    table(py, capture, CALLS, wanted, |event| match event {
        Event::Call(call) => Some(call),
        _ => None,
    })
}

/// Kernel dispatches.
pub(crate) fn kernels(
    py: Python<'_>,
    capture: &Capture,
    wanted: Option<Vec<String>>,
) -> PyResult<Table> {
    table(py, capture, KERNELS, wanted, |event| match event {
        Event::Dispatch(dispatch) => Some(&**dispatch),
        _ => None,
    })
}

/// Memory copies.
pub(crate) fn copies(
    py: Python<'_>,
    capture: &Capture,
    wanted: Option<Vec<String>>,
) -> PyResult<Table> {
    table(py, capture, COPIES, wanted, |event| match event {
        Event::Copy(copy) => Some(&**copy),
        _ => None,
    })
}
