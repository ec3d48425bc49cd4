//! `gputrace query`: SQL on a capture, without making a database file first.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use anyhow::{Result, anyhow};
use clap::{Args, ValueEnum};
use gputrace_export::StandardOutput;
use gputrace_files::own;
use gputrace_rocpd::{QueryError, RocpdExporter, Rows, Value};
use gputrace_text::{Line, json, outside};

use super::{FilterArgs, complaints, pass, tell_left_out};
use crate::{kernels::KernelArgs, say, stdout};

/// Number of rows from which a table's column widths are computed; later rows may be wider.
const MEASURED: usize = 1000;

/// Maximum width of a table's column in characters, except the last column.
const WIDEST: usize = 60;

/// Options of `query`.
#[derive(Debug, Args)]
#[command(before_help = "\
Examples:
  gputrace query run.gtcap 'SELECT * FROM top_kernels LIMIT 5'
  gputrace query run.gtcap \"SELECT name, count(*) FROM regions GROUP BY name\" --format csv
  gputrace query run.gtcap \"SELECT name FROM sqlite_master WHERE type = 'view'\"

The tables and views are those of rocpd, schema version 3.0.3; gputrace's own begin with gputrace_.")]
pub(crate) struct QueryArgs {
    /// The capture (.gtcap) and the SQL, in either order. Only statements that read are executed.
    #[arg(num_args = 2, value_names = ["CAPTURE", "SQL"], required = true)]
    pub(crate) capture_and_sql: Vec<String>,

    /// Output format of the rows.
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "table")]
    pub(crate) format: RowFormat,

    /// Part of the recording.
    #[command(flatten)]
    pub(crate) filter: FilterArgs,

    /// Kernels.
    #[command(flatten)]
    pub(crate) kernels: KernelArgs,
}

/// Output format of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RowFormat {
    /// Aligned columns, for people.
    Table,
    /// Comma-separated values with a heading.
    Csv,
    /// One array of objects.
    Json,
}

impl QueryArgs {
    /// The capture and the SQL: SQL contains blanks and is not the name of a file.
    fn parts(&self) -> Result<(PathBuf, &str)> {
        let [first, second] = self.capture_and_sql.as_slice() else {
            return Err(anyhow!("expected a capture and SQL"));
        };
        let is_sql = |text: &str| text.trim().contains(char::is_whitespace) && !own::exists(text);
        Ok(if is_sql(first) && !is_sql(second) {
            (PathBuf::from(second), first)
        } else {
            (PathBuf::from(first), second)
        })
    }
}

/// Executes SQL on a capture and prints the rows to standard output.
pub(crate) fn run(args: &QueryArgs) -> Result<u8> {
    let (capture, sql) = args.parts()?;
    let (exporter, database) = RocpdExporter::in_memory();
    let report = pass(
        &capture,
        &args.filter,
        &args.kernels,
        vec![Box::new(exporter)],
    )?;
    tell_left_out(&report);
    let failed = complaints(&report);
    let Some(database) = database.take() else {
        return Ok(failed);
    };
    let mut out = printer(args.format, StandardOutput::default());
    match database.query(sql, out.as_mut()) {
        Err(QueryError::Output(error)) => {
            stdout::wrote(Err(error))?;
            Ok(failed)
        }
        Err(error) => Err(error.into()),
        Ok(rows) => {
            if args.format == RowFormat::Table {
                say(&format!(
                    "{rows} {}",
                    if rows == 1 { "row" } else { "rows" }
                ));
            }
            Ok(failed)
        }
    }
}

fn printer<'a>(format: RowFormat, out: impl Write + 'a) -> Box<dyn Rows + 'a> {
    match format {
        RowFormat::Table => Box::new(Table {
            out,
            rows: Vec::new(),
            widths: None,
        }),
        RowFormat::Csv => Box::new(Csv { out }),
        RowFormat::Json => Box::new(Json {
            out,
            columns: Vec::new(),
            rows: 0,
        }),
    }
}

/// Prints aligned columns. The first rows are held back until the widths are known.
struct Table<W> {
    out: W,
    rows: Vec<Vec<(String, bool)>>,
    widths: Option<Vec<usize>>,
}

impl<W: Write> Table<W> {
    fn line(&mut self, row: &[(String, bool)]) -> io::Result<()> {
        let mut line = String::new();
        let widths = self.widths.as_deref().unwrap_or_default();
        for ((cell, number), width) in row.iter().zip(widths) {
            if !line.is_empty() {
                line.push_str("  ");
            }
            if *number {
                line.push_str(&format!("{cell:>width$}"));
            } else {
                line.push_str(&format!("{cell:<width$}"));
            }
        }
        writeln!(self.out, "{}", Line::new(line.trim_end()))
    }

    fn flush(&mut self) -> io::Result<()> {
        let rows = std::mem::take(&mut self.rows);
        if self.widths.is_none() {
            let columns = rows.first().map_or(0, Vec::len);
            let width = |column: usize| {
                let cells = rows.iter().filter_map(|row| row.get(column));
                let widest = cells.map(|(cell, _)| cell.chars().count()).max();
                widest.unwrap_or(0).min(WIDEST)
            };
            self.widths = Some((0..columns).map(width).collect());
        }
        rows.iter().try_for_each(|row| self.line(row))
    }
}

impl<W: Write> Rows for Table<W> {
    fn begin(&mut self, columns: &[&str]) -> io::Result<()> {
        self.widths = None;
        let cell = |name: &&str| (outside(*name).terminal(), false);
        self.rows = vec![columns.iter().map(cell).collect()];
        Ok(())
    }

    fn row(&mut self, values: &[Value]) -> io::Result<()> {
        let cell = |value: &Value| match value {
            Value::Null => ("-".to_owned(), false),
            Value::Integer(number) => (number.to_string(), true),
            Value::Real(number) => (format!("{number:.3}"), true),
            Value::Text(text) => (outside(text).terminal(), false),
            Value::Blob(bytes) => (hex(bytes), false),
        };
        self.rows.push(values.iter().map(cell).collect());
        if self.widths.is_some() || self.rows.len() > MEASURED {
            self.flush()?;
        }
        Ok(())
    }

    fn end(&mut self) -> io::Result<()> {
        self.flush()?;
        self.out.flush()
    }
}

/// Prints CSV by RFC 4180. Cells are safe for spreadsheets and terminals.
struct Csv<W> {
    out: W,
}

impl<W: Write> Csv<W> {
    fn line(&mut self, cells: impl Iterator<Item = String>) -> io::Result<()> {
        let quoted = cells.map(|cell| {
            if cell.contains([',', '"', '\'']) {
                format!("\"{}\"", cell.replace('"', "\"\""))
            } else {
                cell
            }
        });
        writeln!(self.out, "{}", quoted.collect::<Vec<_>>().join(","))
    }
}

impl<W: Write> Rows for Csv<W> {
    fn begin(&mut self, columns: &[&str]) -> io::Result<()> {
        self.line(columns.iter().map(|name| outside(*name).csv().into_owned()))
    }

    fn row(&mut self, values: &[Value]) -> io::Result<()> {
        self.line(values.iter().map(|value| match value {
            Value::Null => String::new(),
            Value::Integer(number) => number.to_string(),
            Value::Real(number) => number.to_string(),
            Value::Text(text) => outside(text).csv().into_owned(),
            Value::Blob(bytes) => hex(bytes),
        }))
    }

    fn end(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Prints an array of objects.
struct Json<W> {
    out: W,
    columns: Vec<String>,
    rows: u64,
}

impl<W: Write> Rows for Json<W> {
    fn begin(&mut self, columns: &[&str]) -> io::Result<()> {
        self.columns = columns.iter().map(|name| (*name).to_owned()).collect();
        self.rows = 0;
        write!(self.out, "[")
    }

    fn row(&mut self, values: &[Value]) -> io::Result<()> {
        let value = |value: &Value| match value {
            Value::Null => serde_json::Value::Null,
            Value::Integer(number) => (*number).into(),
            // Values that are not finite become null, because JSON has no such numbers.
            Value::Real(number) => (*number).into(),
            Value::Text(text) => text.as_str().into(),
            Value::Blob(bytes) => hex(bytes).into(),
        };
        let pairs = self.columns.iter().cloned().zip(values.iter().map(value));
        let object: serde_json::Map<String, serde_json::Value> = pairs.collect();
        let separator = if self.rows == 0 { "" } else { "," };
        self.rows += 1;
        write!(self.out, "{separator}\n  {}", json::to_string(&object)?)
    }

    fn end(&mut self) -> io::Result<()> {
        writeln!(self.out, "\n]")?;
        self.out.flush()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(format: RowFormat) -> String {
        let mut bytes = Vec::new();
        let mut rows = printer(format, &mut bytes);
        rows.begin(&["name", "calls"]).unwrap();
        let text = |text: &str| Value::Text(text.to_owned());
        rows.row(&[text("add<float, 2>\u{1b}[2J"), Value::Integer(12)])
            .unwrap();
        rows.row(&[Value::Null, Value::Real(0.5)]).unwrap();
        rows.row(&[text("say \"hi\""), Value::Blob(vec![0, 255])])
            .unwrap();
        rows.end().unwrap();
        drop(rows);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn tables_are_aligned_and_safe_for_terminals() {
        assert_eq!(
            printed(RowFormat::Table),
            "name                  calls\nadd<float, 2>\\x1b[2J     12\n-                     0.500\nsay \"hi\"              00ff\n"
        );
    }

    #[test]
    fn csv_is_quoted_where_it_must_be() {
        assert_eq!(
            printed(RowFormat::Csv),
            "name,calls\n\"add<float, 2>\\x1b[2J\",12\n,0.5\n\"say \"\"hi\"\"\",00ff\n"
        );
    }

    #[test]
    fn json_is_an_array_of_objects() {
        let value: serde_json::Value = serde_json::from_str(&printed(RowFormat::Json)).unwrap();
        assert_eq!(value[0]["calls"], 12);
        assert_eq!(value[1]["name"], serde_json::Value::Null);
        assert_eq!(value[0]["name"], "add<float, 2>\u{1b}[2J");
        assert_eq!(value.as_array().unwrap().len(), 3);
        assert!(!printed(RowFormat::Json).contains('\u{1b}'));
    }

    #[test]
    fn capture_and_sql_come_in_either_order() {
        let args = |first: &str, second: &str| QueryArgs {
            capture_and_sql: vec![first.to_owned(), second.to_owned()],
            format: RowFormat::Table,
            filter: FilterArgs::default(),
            kernels: KernelArgs::default(),
        };
        for (first, second) in [("run.gtcap", "SELECT 1"), ("SELECT 1", "run.gtcap")] {
            let args = args(first, second);
            assert_eq!(
                args.parts().unwrap(),
                (PathBuf::from("run.gtcap"), "SELECT 1")
            );
        }
    }
}
