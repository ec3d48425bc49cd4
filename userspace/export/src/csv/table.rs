//! A CSV file under construction.

use std::borrow::Cow;

use csv::{QuoteStyle, Writer, WriterBuilder};
use gputrace_text::outside;

use super::FORMAT;
use crate::{
    exporter::{ExportError, Output},
    output::{OutputDir, OutputFile},
};

/// A field of a row.
#[derive(Clone, Debug)]
pub(super) enum Field<'a> {
    /// An integer, not quoted.
    Number(u64),
    /// With six decimals, not quoted, as rocprofv3 writes values of counters.
    Real(f64),
    /// With the fewest digits that identify it, not quoted.
    Shortest(f64),
    /// `0x` and sixteen digits, as rocprofv3 writes addresses.
    Address(u64),
    /// Quoted. It may be untrusted.
    Text(Cow<'a, str>),
    /// Empty.
    Unknown,
}

impl From<u32> for Field<'_> {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<u64> for Field<'_> {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl<'a> From<&'a str> for Field<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Field<'_> {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<bool> for Field<'_> {
    fn from(value: bool) -> Self {
        Self::Text(if value { "true" } else { "false" }.into())
    }
}

impl<'a, T: Into<Self>> From<Option<T>> for Field<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Unknown, Into::into)
    }
}

/// Writes rows. As in rocprofv3, text is quoted and numbers are not. Text may be untrusted:
/// [`gputrace_text::Outside::csv`] keeps it from being a formula or a control sequence. There is no
/// other way into a row.
#[derive(Debug)]
pub(super) struct Table {
    writer: Writer<OutputFile>,
    rows: u64,
    text: String,
}

impl Table {
    pub(super) fn create(
        directory: &OutputDir,
        file: &str,
        columns: impl IntoIterator<Item = impl AsRef<[u8]>>,
    ) -> Result<Self, ExportError> {
        let file = directory.file(file)?;
        let mut writer = WriterBuilder::new()
            .quote_style(QuoteStyle::NonNumeric)
            .has_headers(false)
            .from_writer(file);
        writer.write_record(columns).map_err(encode)?;
        Ok(Self {
            writer,
            rows: 0,
            text: String::new(),
        })
    }

    /// Writes a row.
    pub(super) fn fields<'a>(
        &mut self,
        fields: impl IntoIterator<Item = Field<'a>>,
    ) -> Result<(), ExportError> {
        use std::fmt::Write as _;
        self.rows += 1;
        for field in fields {
            self.text.clear();
            // Writing to a string does not fail.
            let written = match &field {
                Field::Number(number) => write!(self.text, "{number}"),
                Field::Real(number) => write!(self.text, "{number:.6}"),
                Field::Shortest(number) => write!(self.text, "{number:?}"),
                Field::Address(address) => write!(self.text, "{address:#018x}"),
                Field::Text(_) | Field::Unknown => Ok(()),
            };
            debug_assert!(written.is_ok());
            match &field {
                Field::Text(text) => self
                    .writer
                    .write_field(outside(text.as_ref()).csv().as_ref()),
                _ => self.writer.write_field(&self.text),
            }
            .map_err(encode)?;
        }
        let end_of_row: [&str; 0] = [];
        self.writer.write_record(end_of_row).map_err(encode)
    }

    /// Number of rows written, without the header.
    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    pub(super) fn flush(&mut self) -> Result<(), ExportError> {
        Ok(self.writer.flush()?)
    }

    pub(super) fn finish(self, content: &str) -> Result<Output, ExportError> {
        let file = self
            .writer
            .into_inner()
            .map_err(|error| ExportError::from(error.into_error()))?;
        Ok(file.finish(content)?)
    }
}

fn encode(error: csv::Error) -> ExportError {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error.into(),
        other => ExportError::Encode {
            format: FORMAT,
            reason: format!("{other:?}"),
        },
    }
}
