//! Buffers rows of the large tables on their way into the database.
//!
//! Half of the cost of inserting a row is that of beginning and ending a statement. So rows are
//! collected and inserted many at a time, by one statement with placeholders for all of them. They
//! are in the table in the order in which they were added.

use std::ops::Range;

use gputrace_export::ExportError;
use rusqlite::{Statement, types::Null};

use crate::{database::Database, schema::Identity};

/// Number of rows that are inserted together.
const MANY: usize = 32;

/// The value of a column.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cell<'a> {
    Null,
    Int(i64),
    Text(&'a str),
}

impl From<i64> for Cell<'_> {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<u32> for Cell<'_> {
    fn from(value: u32) -> Self {
        Self::Int(value.into())
    }
}

impl From<bool> for Cell<'_> {
    fn from(value: bool) -> Self {
        Self::Int(value.into())
    }
}

impl<'a> From<&'a str> for Cell<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl<'a, T: Into<Cell<'a>>> From<Option<T>> for Cell<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// An array of [`Cell`]s.
macro_rules! cells {
    ($($value:expr),* $(,)?) => { [$($crate::rows::Cell::from($value)),*] };
}
pub(crate) use cells;

/// A [`Cell`] whose text is a range of the text buffer.
#[derive(Clone, Debug)]
enum Waiting {
    Null,
    Int(i64),
    Text(Range<usize>),
}

/// Rows of one table.
#[derive(Debug)]
pub(crate) struct Rows<const COLUMNS: usize> {
    /// Statement that inserts one row.
    one: String,
    /// Statement that inserts [`MANY`] rows.
    many: String,
    waiting: Vec<Waiting>,
    texts: String,
}

impl<const COLUMNS: usize> Rows<COLUMNS> {
    /// Rows of the columns `columns` of `table`, both as in SQL. Their number must be `COLUMNS`.
    pub(crate) fn new(identity: &Identity, table: &str, columns: &str) -> Self {
        let insert = identity.fill(&format!("INSERT INTO {table}{{uuid}} ({columns}) VALUES "));
        let row = format!("({})", ["?"; COLUMNS].join(", "));
        Self {
            one: format!("{insert}{row}"),
            many: format!("{insert}{}", [row.as_str(); MANY].join(", ")),
            waiting: Vec::with_capacity(MANY * COLUMNS),
            texts: String::new(),
        }
    }

    /// Adds a row.
    pub(crate) fn add(
        &mut self,
        database: &Database,
        row: [Cell<'_>; COLUMNS],
    ) -> Result<(), ExportError> {
        for cell in row {
            self.waiting.push(match cell {
                Cell::Null => Waiting::Null,
                Cell::Int(value) => Waiting::Int(value),
                Cell::Text(text) => {
                    let begin = self.texts.len();
                    self.texts.push_str(text);
                    Waiting::Text(begin..self.texts.len())
                }
            });
        }
        if self.waiting.len() < MANY * COLUMNS {
            return Ok(());
        }
        let inserted =
            database.execute(&self.many, |statement| self.bind(statement, &self.waiting));
        self.clear();
        inserted
    }

    /// Inserts the waiting rows.
    pub(crate) fn finish(&mut self, database: &Database) -> Result<(), ExportError> {
        let rows = self.waiting.chunks(COLUMNS);
        let inserted =
            rows.map(|row| database.execute(&self.one, |statement| self.bind(statement, row)));
        let inserted = inserted.collect();
        self.clear();
        inserted
    }

    fn clear(&mut self) {
        self.waiting.clear();
        self.texts.clear();
    }

    fn bind(&self, statement: &mut Statement<'_>, cells: &[Waiting]) -> rusqlite::Result<()> {
        for (place, cell) in (1..).zip(cells) {
            match cell {
                Waiting::Null => statement.raw_bind_parameter(place, Null)?,
                Waiting::Int(value) => statement.raw_bind_parameter(place, value)?,
                Waiting::Text(text) => {
                    let text = self.texts.get(text.clone()).unwrap_or_default();
                    statement.raw_bind_parameter(place, text)?;
                }
            }
        }
        Ok(())
    }
}
