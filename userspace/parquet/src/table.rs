//! Writes rows into a Parquet file.

use std::{borrow::Cow, fs::File, sync::Arc};

use gputrace_export::{ExportError, Output, OutputDir, OutputFile};
use parquet::{
    basic::{Compression, LogicalType, Repetition, Type as Physical},
    data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int64Type},
    errors::ParquetError,
    file::{
        metadata::KeyValue,
        properties::WriterProperties,
        writer::{SerializedFileWriter, SerializedRowGroupWriter},
    },
    schema::types::Type,
};

use crate::FORMAT;

/// Maximum number of rows in a row group.
pub const ROWS: usize = 1 << 16;

/// Bytes of text after which a row group is written.
const TEXT: usize = 16 << 20;

/// Type of a column. Every column may contain nulls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Unsigned 64-bit integers.
    Number,
    /// Signed 64-bit integers.
    Signed,
    /// UTF-8 text.
    Text,
    /// Booleans.
    Flag,
}

/// A value of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell<'a> {
    /// Unknown or absent.
    Null,
    /// For a column of [`Kind::Number`].
    Number(u64),
    /// For a column of [`Kind::Signed`].
    Signed(i64),
    /// For a column of [`Kind::Text`].
    Text(Cow<'a, str>),
    /// For a column of [`Kind::Flag`].
    Flag(bool),
}

impl From<u64> for Cell<'_> {
    fn from(value: u64) -> Self {
        Self::Number(value)
    }
}

impl From<u32> for Cell<'_> {
    fn from(value: u32) -> Self {
        Self::Number(value.into())
    }
}

impl From<bool> for Cell<'_> {
    fn from(value: bool) -> Self {
        Self::Flag(value)
    }
}

impl<'a> From<&'a str> for Cell<'a> {
    fn from(value: &'a str) -> Self {
        Self::Text(value.into())
    }
}

impl From<String> for Cell<'_> {
    fn from(value: String) -> Self {
        Self::Text(value.into())
    }
}

impl<'a> From<Cow<'a, str>> for Cell<'a> {
    fn from(value: Cow<'a, str>) -> Self {
        Self::Text(value)
    }
}

impl<'a, T: Into<Self>> From<Option<T>> for Cell<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Cell::Null, Into::into)
    }
}

/// The values of a column that have not been written yet.
#[derive(Debug)]
enum Values {
    Number(Vec<i64>),
    Text(Vec<ByteArray>),
    Flag(Vec<bool>),
}

#[derive(Debug)]
struct Column {
    values: Values,
    /// Parquet's definition level of each row: 1 for a value, 0 for a null.
    levels: Vec<i16>,
}

impl Column {
    fn new(kind: Kind) -> Self {
        Self {
            values: match kind {
                Kind::Number | Kind::Signed => Values::Number(Vec::new()),
                Kind::Text => Values::Text(Vec::new()),
                Kind::Flag => Values::Flag(Vec::new()),
            },
            levels: Vec::new(),
        }
    }

    /// Adds a value; one of another type than the column's becomes null. Returns its bytes of text.
    fn push(&mut self, cell: Cell<'_>) -> usize {
        let mut bytes = 0;
        let is_there = match (&mut self.values, cell) {
            (Values::Number(values), Cell::Number(value)) => {
                values.push(value.cast_signed());
                true
            }
            (Values::Number(values), Cell::Signed(value)) => {
                values.push(value);
                true
            }
            (Values::Text(values), Cell::Text(value)) => {
                bytes = value.len();
                values.push(ByteArray::from(value.into_owned().into_bytes()));
                true
            }
            (Values::Flag(values), Cell::Flag(value)) => {
                values.push(value);
                true
            }
            _ => false,
        };
        self.levels.push(i16::from(is_there));
        bytes
    }

    /// Writes the collected values and removes them.
    fn write(
        &mut self,
        group: &mut SerializedRowGroupWriter<'_, File>,
    ) -> Result<(), ParquetError> {
        let levels = &self.levels;
        match &mut self.values {
            Values::Number(values) => write::<Int64Type>(group, values, levels),
            Values::Text(values) => write::<ByteArrayType>(group, values, levels),
            Values::Flag(values) => write::<BoolType>(group, values, levels),
        }?;
        self.levels.clear();
        Ok(())
    }
}

fn write<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, File>,
    values: &mut Vec<T::T>,
    levels: &[i16],
) -> Result<(), ParquetError> {
    let Some(mut column) = group.next_column()? else {
        return Err(ParquetError::General("a column too many".to_owned()));
    };
    column
        .typed::<T>()
        .write_batch(values, Some(levels), None)?;
    column.close()?;
    values.clear();
    Ok(())
}

/// A file under construction.
#[derive(Debug)]
pub(crate) struct TableFile {
    file: OutputFile,
    writer: SerializedFileWriter<File>,
    columns: Vec<Column>,
    rows: usize,
    text: usize,
}

impl TableFile {
    /// Creates the file `name` with columns of these names and types.
    pub(crate) fn create(
        directory: &OutputDir,
        name: &str,
        columns: &[(String, Kind)],
    ) -> Result<Self, ExportError> {
        let file = directory.file(name)?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .build();
        let schema = schema(columns).map_err(|error| encode(&error))?;
        let writer =
            SerializedFileWriter::new(file.handle()?, Arc::new(schema), Arc::new(properties))
                .map_err(|error| failure(&file, error))?;
        Ok(Self {
            file,
            writer,
            columns: columns.iter().map(|(_, kind)| Column::new(*kind)).collect(),
            rows: 0,
            text: 0,
        })
    }

    /// Adds a fact about the whole recording to the file's metadata.
    pub(crate) fn note(&mut self, key: &str, value: &str) {
        let note = KeyValue::new(key.to_owned(), value.to_owned());
        self.writer.append_key_value_metadata(note);
    }

    /// Adds a row. It must have as many cells as there are columns; missing ones are null.
    pub(crate) fn add<'a>(
        &mut self,
        cells: impl IntoIterator<Item = Cell<'a>>,
    ) -> Result<(), ExportError> {
        let mut cells = cells.into_iter();
        for column in &mut self.columns {
            self.text += column.push(cells.next().unwrap_or(Cell::Null));
        }
        self.rows += 1;
        if self.rows >= ROWS || self.text >= TEXT {
            self.write()?;
        }
        Ok(())
    }

    fn write(&mut self) -> Result<(), ExportError> {
        let group = self.writer.next_row_group();
        let written = group.and_then(|mut group| {
            for column in &mut self.columns {
                column.write(&mut group)?;
            }
            group.close().map(drop)
        });
        (self.rows, self.text) = (0, 0);
        written.map_err(|error| failure(&self.file, error))
    }

    /// Writes the remaining rows and the footer.
    pub(crate) fn complete(&mut self) -> Result<(), ExportError> {
        if self.rows > 0 {
            self.write()?;
        }
        let written = self.writer.finish();
        written
            .map(drop)
            .map_err(|error| failure(&self.file, error))
    }

    /// Gives the file, which must be complete, its name.
    pub(crate) fn publish(self, content: &str) -> Result<Output, ExportError> {
        Ok(self.file.finish(content)?)
    }
}

fn schema(columns: &[(String, Kind)]) -> Result<Type, ParquetError> {
    let fields = columns.iter().map(|(name, kind)| {
        let (physical, logical) = match kind {
            Kind::Number => (Physical::INT64, Some(LogicalType::integer(64, false))),
            Kind::Signed => (Physical::INT64, Some(LogicalType::integer(64, true))),
            Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Kind::Flag => (Physical::BOOLEAN, None),
        };
        let field = Type::primitive_type_builder(name, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(logical)
            .build();
        field.map(Arc::new)
    });
    let fields = fields.collect::<Result<Vec<_>, _>>()?;
    Type::group_type_builder("schema")
        .with_fields(fields)
        .build()
}

fn encode(error: &ParquetError) -> ExportError {
    ExportError::Encode {
        format: FORMAT,
        reason: error.to_string(),
    }
}

/// Converts an error of the writer; most are errors of the file, such as a full disk.
fn failure(file: &OutputFile, error: ParquetError) -> ExportError {
    match error {
        ParquetError::External(source) => match source.downcast::<std::io::Error>() {
            Ok(source) => file.error(*source).into(),
            Err(source) => encode(&ParquetError::External(source)),
        },
        other => encode(&other),
    }
}
