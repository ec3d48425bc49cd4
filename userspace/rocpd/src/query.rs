//! SQL queries on a recording, without a file: `gputrace query`.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
};

use gputrace_export::ExportError;
use rusqlite::{
    Batch, Connection, fallible_iterator::FallibleIterator as _, functions::FunctionFlags,
    limits::Limit, types::ValueRef,
};

/// Receives the database of an exporter from
/// [`RocpdExporter::in_memory`](crate::RocpdExporter::in_memory).
#[derive(Clone, Debug, Default)]
pub struct Slot {
    connection: Arc<Mutex<Option<Connection>>>,
}

impl Slot {
    /// The database, once the export has ended; `None` if it failed.
    #[must_use]
    pub fn take(&self) -> Option<Queryable> {
        let connection = self
            .connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        connection.map(|connection| {
            // Whatever a statement tries, files are neither opened nor created.
            let limited = connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0);
            debug_assert!(limited.is_ok(), "a limit that SQLite has: {limited:?}");
            Queryable { connection }
        })
    }

    pub(crate) fn put(&self, connection: Connection) {
        *self
            .connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(connection);
    }
}

/// A value of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Nothing.
    Null,
    /// An integer.
    Integer(i64),
    /// A floating-point number.
    Real(f64),
    /// Text; bytes that are not UTF-8 are replaced.
    Text(String),
    /// Bytes.
    Blob(Vec<u8>),
}

/// Receives the rows of a query.
pub trait Rows {
    /// A statement's columns; its rows follow.
    ///
    /// # Errors
    /// When they cannot be written; this ends the query.
    fn begin(&mut self, columns: &[&str]) -> io::Result<()>;

    /// A row with a value for each column.
    ///
    /// # Errors
    /// As [`Rows::begin`].
    fn row(&mut self, values: &[Value]) -> io::Result<()>;

    /// The end of a statement's rows.
    ///
    /// # Errors
    /// As [`Rows::begin`].
    fn end(&mut self) -> io::Result<()>;
}

/// Why a query failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// SQLite cannot parse or execute it.
    #[error("the SQL is wrong: {message}{}", at(near.as_deref()))]
    Sql {
        /// SQLite's message.
        message: String,
        /// The text at which parsing stopped, if SQLite tells.
        near: Option<String>,
    },
    /// It would change the database.
    #[error("only statements that read are executed, and this one writes: {statement}")]
    Writes {
        /// The statement.
        statement: String,
    },
    /// It contains no statement.
    #[error("there is no SQL to execute")]
    Empty,
    /// Rows could not be written.
    #[error("cannot write the rows: {0}")]
    Output(#[source] io::Error),
}

fn at(near: Option<&str>) -> String {
    near.map_or_else(String::new, |near| format!("; here: {near}"))
}

/// A complete database for queries.
#[derive(Debug)]
pub struct Queryable {
    connection: Connection,
}

impl Queryable {
    /// Executes the statements of `sql` in order, passes their rows to `rows`, and returns the
    /// number of rows.
    ///
    /// # Errors
    /// [`QueryError`] if the SQL is wrong or writes, or `rows` fails. Earlier rows have been passed
    /// on.
    pub fn query(&self, sql: &str, rows: &mut dyn Rows) -> Result<u64, QueryError> {
        let mut batch = Batch::new(&self.connection, sql);
        let mut count = 0;
        let mut statements = 0;
        while let Some(mut statement) = batch.next().map_err(|error| wrong(&error))? {
            statements += 1;
            // Attaching changes no content but opens files, which a query does not need.
            let text = statement.expanded_sql().unwrap_or_default();
            let attaches = text
                .trim_start()
                .get(..6)
                .is_some_and(|word| word.eq_ignore_ascii_case("attach"));
            if !statement.readonly() || attaches {
                let statement = one_line(&text);
                return Err(QueryError::Writes { statement });
            }
            let columns: Vec<String> = statement.column_names().map(str::to_owned).collect();
            let names: Vec<&str> = columns.iter().map(String::as_str).collect();
            rows.begin(&names).map_err(QueryError::Output)?;
            let mut found = statement.query([]).map_err(|error| wrong(&error))?;
            while let Some(row) = found.next().map_err(|error| wrong(&error))? {
                let mut values = Vec::with_capacity(columns.len());
                for column in 0..columns.len() {
                    values.push(value(row.get_ref(column).map_err(|error| wrong(&error))?));
                }
                rows.row(&values).map_err(QueryError::Output)?;
                count += 1;
            }
            rows.end().map_err(QueryError::Output)?;
        }
        if statements == 0 {
            return Err(QueryError::Empty);
        }
        Ok(count)
    }
}

fn value(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => Value::Integer(number),
        ValueRef::Real(number) => Value::Real(number),
        ValueRef::Text(bytes) => Value::Text(String::from_utf8_lossy(bytes).into_owned()),
        ValueRef::Blob(bytes) => Value::Blob(bytes.to_vec()),
    }
}

/// SQL without its line breaks and indentation, for messages.
fn one_line(sql: &str) -> String {
    sql.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn wrong(error: &rusqlite::Error) -> QueryError {
    match error {
        rusqlite::Error::SqlInputError {
            msg, sql, offset, ..
        } => QueryError::Sql {
            message: msg.clone(),
            near: usize::try_from(*offset)
                .ok()
                .and_then(|offset| sql.get(offset..))
                .map(|rest| one_line(rest).chars().take(40).collect()),
        },
        rusqlite::Error::SqliteFailure(_, Some(message)) => QueryError::Sql {
            message: message.clone(),
            near: None,
        },
        other => QueryError::Sql {
            message: other.to_string(),
            near: None,
        },
    }
}

/// Flags of a function that gives the same result for the same arguments and has no side effects.
const FUNCTION: FunctionFlags = FunctionFlags::SQLITE_UTF8
    .union(FunctionFlags::SQLITE_DETERMINISTIC)
    .union(FunctionFlags::SQLITE_INNOCUOUS);

/// A database that SQLite keeps in memory, and in a nameless temporary file when it grows too
/// large.
pub(crate) fn connection() -> Result<Connection, ExportError> {
    let open = || {
        let connection = Connection::open("")?;
        // Views compute standard errors, and this SQLite is built without the mathematical
        // functions that others have.
        connection.create_scalar_function("sqrt", 1, FUNCTION, |arguments| {
            let number: Option<f64> = arguments.get(0)?;
            Ok(number.map(f64::sqrt))
        })?;
        Ok(connection)
    };
    open().map_err(|error: rusqlite::Error| ExportError::Encode {
        format: crate::FORMAT,
        reason: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use gputrace_export::{
        Exporter as _,
        synthetic::{START, dispatch, estimated, estimates, events},
    };
    use gputrace_timeline::event::Event;
    use proptest::prelude::*;

    use super::*;
    use crate::RocpdExporter;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn any_sql_is_answered_or_refused_and_changes_nothing(
            texts in proptest::collection::vec(
                "((SELECT|DELETE|DROP|WITH|PRAGMA|UPDATE|BEGIN|COMMIT|FROM|TABLE|kernels|top|\\*|;|,|'|\"|\\(|\\)|--|/\\*|[0-9]{1,3}|\\PC)[ \n]?){0,12}",
                1..12,
            ),
        ) {
            let database = database();
            let counts = || {
                let mut kept = Kept::default();
                let sql = "SELECT count(*) FROM kernels; SELECT count(*) FROM rocpd_arg; SELECT count(*) FROM sqlite_schema";
                database.query(sql, &mut kept).map(|_| kept.rows)
            };
            let before = counts().unwrap();
            for text in &texts {
                let _ = database.query(text, &mut Kept::default());
                prop_assert_eq!(&counts().unwrap(), &before, "{}", text);
            }
        }
    }

    #[derive(Debug, Default)]
    struct Kept {
        columns: Vec<String>,
        rows: Vec<Vec<Value>>,
    }

    impl Rows for Kept {
        fn begin(&mut self, columns: &[&str]) -> io::Result<()> {
            self.columns = columns.iter().map(|name| (*name).to_owned()).collect();
            Ok(())
        }

        fn row(&mut self, values: &[Value]) -> io::Result<()> {
            self.rows.push(values.to_vec());
            Ok(())
        }

        fn end(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn database() -> Queryable {
        filled(&events())
    }

    fn filled(events: &[Event]) -> Queryable {
        let (mut exporter, slot) = RocpdExporter::in_memory();
        assert!(slot.take().is_none(), "not before the end");
        for event in events {
            exporter.event(event).unwrap();
        }
        assert!(Box::new(exporter).finish().unwrap().is_empty(), "no file");
        slot.take().unwrap()
    }

    #[test]
    fn views_answer() {
        let mut kept = Kept::default();
        let rows = database()
            .query("SELECT name, total_calls FROM top_kernels", &mut kept)
            .unwrap();
        assert!(rows > 0);
        assert_eq!(rows as usize, kept.rows.len());
        assert_eq!(kept.columns, ["name", "total_calls"]);
        assert!(matches!(
            &kept.rows[0][..],
            [Value::Text(_), Value::Integer(_)]
        ));
    }

    fn answers(events: &[Event], sql: &str) -> Vec<Vec<Value>> {
        let mut kept = Kept::default();
        filled(events).query(sql, &mut kept).unwrap();
        kept.rows
    }

    fn text(text: &str) -> Value {
        Value::Text(text.to_owned())
    }

    const NUMBERS: &str =
        "total_calls, total_duration, average, total_error, average_error, unknown_calls";

    #[test]
    fn views_have_errors_and_say_what_is_not_known() {
        use Value::{Integer, Null, Real};
        let events = estimates();
        let hang = vec![
            Integer(2),
            Real(400.0),
            Real(200.0),
            Real(18.0),
            Real(9.0),
            Integer(0),
        ];
        let add = vec![
            Integer(11),
            Real(104.0),
            Real(10.4),
            Real(3.0),
            Real(0.3),
            Integer(1),
        ];
        let hidden = vec![Integer(3), Null, Null, Null, Null, Integer(3)];
        let expected = [
            ("hang", hang),
            ("add(float*, float*)", add),
            ("(unknown kernel 0x7f001000)", hidden),
        ];
        let expected: Vec<Vec<Value>> = expected
            .into_iter()
            .map(|(name, numbers)| [vec![text(name)], numbers].concat())
            .collect();
        // Rows are in order of their totals.
        let rows = answers(&events, &format!("SELECT name, {NUMBERS} FROM top_kernels"));
        assert_eq!(rows, expected);
        // `top` also contains the API calls.
        let sql = format!(
            "SELECT name, {NUMBERS} FROM top WHERE name NOT LIKE 'h%\\_%' ESCAPE '\\' AND name NOT LIKE 'hip%'"
        );
        assert_eq!(answers(&events, &sql), expected);
        let shares = answers(&events, "SELECT sum(percentage) FROM top_kernels");
        assert!(
            matches!(&shares[0][..], [Real(sum)] if (sum - 100.0).abs() < 1e-9),
            "{shares:?}"
        );
        // sqrt(18^2 + 3^2) us.
        let busy = answers(
            &events,
            "SELECT GpuTime, round(GpuTimeError), UnknownWork FROM busy WHERE agent_id = 1",
        );
        assert_eq!(busy, [[Integer(504_000), Real(18_248.0), Integer(4)]]);
    }

    #[test]
    fn exact_times_have_no_error() {
        let rows = answers(
            &events(),
            "SELECT sum(duration_error), count(duration), count(kernel_class) FROM gputrace_dispatch",
        );
        assert_eq!(
            rows,
            [[Value::Integer(0), Value::Integer(4), Value::Integer(0)]]
        );
        assert_eq!(
            answers(&events(), "SELECT count(*) FROM gputrace_kernel_class"),
            [[Value::Integer(0)]]
        );
        let sql = "SELECT total_calls, total_duration, total_error, unknown_calls FROM top_kernels";
        assert_eq!(
            answers(&events(), sql)[0],
            [
                Value::Integer(6),
                Value::Real(90.0),
                Value::Real(0.0),
                Value::Integer(3)
            ]
        );
    }

    /// Dispatches of different classes have independent errors, those of the same class share
    /// theirs.
    #[test]
    fn a_huge_error_stays_with_its_number() {
        let mut events = events();
        events.retain(|event| !matches!(event, Event::Dispatch(_)));
        let at = events.len() - 2;
        for (id, class) in [(1, 0), (2, 0), (3, 1)] {
            let time = estimated(START + 1000, START + 2000, class, 3_000_000);
            events.insert(at, Event::Dispatch(Box::new(dispatch(id, START, time))));
        }
        let sql =
            "SELECT total_duration, round(total_error), round(average_error) FROM top_kernels";
        // sqrt(6^2 + 3^2) ms of 3 us.
        assert_eq!(
            answers(&events, sql),
            [[Value::Real(3.0), Value::Real(6708.0), Value::Real(2236.0)]]
        );
    }

    #[test]
    fn what_is_wrong_is_said() {
        let database = database();
        let fails = |sql: &str| database.query(sql, &mut Kept::default()).unwrap_err();
        let error = fails("SELECT * FORM kernels").to_string();
        assert!(
            error.contains("syntax error") && error.contains("; here: FORM kernels"),
            "{error}"
        );
        for sql in ["SELECT *\n  FORM\n kernels", "DELETE\n FROM kernels"] {
            let error = fails(sql).to_string();
            assert!(!error.contains('\n'), "{error}");
        }
        assert!(
            fails("SELECT * FROM no_such")
                .to_string()
                .contains("no such table")
        );
        assert!(matches!(fails("  "), QueryError::Empty));
        assert!(matches!(fails("SELECT 1; SELEC 2"), QueryError::Sql { .. }));
        for sql in [
            "DELETE FROM rocpd_metadata",
            "CREATE TABLE t (x)",
            "ATTACH '/tmp/x.db' AS x",
            " attach '/tmp/x.db' AS x",
            "/* hidden */ ATTACH '/tmp/x.db' AS x",
            "-- hidden\nATTACH '/tmp/x.db' AS x",
            "VACUUM INTO '/tmp/x.db'",
        ] {
            let error = fails(sql);
            assert!(
                matches!(error, QueryError::Writes { .. } | QueryError::Sql { .. }),
                "{sql}: {error}"
            );
        }
    }
}
