//! The database while it is being written: one transaction, no journal, statements prepared once.

use std::{error::Error, fs::File};

use gputrace_export::{ExportError, OutputDir, OutputError, OutputFile};
use rusqlite::{Connection, OpenFlags, Params, Statement};

use crate::{
    FORMAT, query,
    schema::Identity,
    vfs::{DATABASE, Vfs},
};

/// Maximum number of prepared statements that are kept: more than there are.
const STATEMENTS: usize = 64;

/// Set before anything is written. Without a journal, a failure leaves an unusable file, but the
/// file gets its final name only when it is complete. The page cache (KiB, negative) bounds memory:
/// pages that do not fit go to the file early.
const SETTINGS: &str = "
    PRAGMA page_size = 8192;
    PRAGMA journal_mode = OFF;
    PRAGMA synchronous = OFF;
    PRAGMA locking_mode = EXCLUSIVE;
    PRAGMA foreign_keys = OFF;
    PRAGMA temp_store = FILE;
    PRAGMA cache_size = -32768;
    PRAGMA application_id = 0x726f6364;
    BEGIN EXCLUSIVE;
";

/// A database under construction.
#[derive(Debug)]
pub(crate) struct Database {
    // Declared before the file system, so that it is closed first.
    connection: Connection,
    /// The file; `None` if the database is in memory.
    storage: Option<Storage>,
    /// Identifies the recording in the tables' names.
    pub(crate) identity: Identity,
}

/// The file of a database.
#[derive(Debug)]
struct Storage {
    vfs: Vfs,
    file: OutputFile,
}

/// A complete database.
#[derive(Debug)]
pub(crate) enum Complete {
    /// In this file.
    File(OutputFile),
    /// In memory only.
    Memory(Connection),
}

impl Database {
    /// Creates a database in memory, with all tables.
    pub(crate) fn in_memory(identity: Identity) -> Result<Self, ExportError> {
        Self::begin(query::connection()?, None, identity)
    }

    /// Creates a database in `file`, with all tables.
    pub(crate) fn create(
        file: OutputFile,
        directory: &OutputDir,
        identity: Identity,
    ) -> Result<Self, ExportError> {
        let handle: File = file.handle()?;
        let vfs = Vfs::new(handle, directory.clone())?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags_and_vfs(DATABASE, flags, vfs.name())
            .map_err(|error| failure(&error, &vfs, &file))?;
        Self::begin(connection, Some(Storage { vfs, file }), identity)
    }

    fn begin(
        connection: Connection,
        storage: Option<Storage>,
        identity: Identity,
    ) -> Result<Self, ExportError> {
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        let this = Self {
            connection,
            storage,
            identity,
        };
        this.batch(SETTINGS)?;
        this.batch(&this.identity.tables())?;
        Ok(this)
    }

    /// Executes statements without parameters.
    pub(crate) fn batch(&self, sql: &str) -> Result<(), ExportError> {
        self.check(self.connection.execute_batch(sql))
    }

    /// Adds a row. `sql` must be one of a few constant texts, each of which is prepared once.
    pub(crate) fn insert(&self, sql: &str, values: impl Params) -> Result<(), ExportError> {
        let statement = self.connection.prepare_cached(sql);
        self.check(
            statement
                .and_then(|mut statement| statement.execute(values))
                .map(drop),
        )
    }

    /// Executes `sql`, which must be one of a few constant texts, with the parameters that `bind`
    /// sets; it must set all of them.
    pub(crate) fn execute(
        &self,
        sql: &str,
        bind: impl FnOnce(&mut Statement<'_>) -> rusqlite::Result<()>,
    ) -> Result<(), ExportError> {
        let statement = self.connection.prepare_cached(sql);
        self.check(statement.and_then(|mut statement| {
            bind(&mut statement)?;
            statement.raw_execute().map(drop)
        }))
    }

    /// Completes the database: indexes, views, end of the transaction.
    pub(crate) fn finish(self) -> Result<Complete, ExportError> {
        self.batch(&self.identity.indexes())?;
        self.batch(&self.identity.views())?;
        self.batch("COMMIT; PRAGMA optimize;")?;
        let Self {
            connection,
            storage,
            ..
        } = self;
        let Some(Storage { vfs, file }) = storage else {
            return Ok(Complete::Memory(connection));
        };
        match connection.close() {
            Ok(()) => Ok(Complete::File(file)),
            Err((_, error)) => Err(failure(&error, &vfs, &file)),
        }
    }

    fn check(&self, result: rusqlite::Result<()>) -> Result<(), ExportError> {
        result.map_err(|error| match &self.storage {
            Some(Storage { vfs, file }) => failure(&error, vfs, file),
            None => encode(&error),
        })
    }
}

/// The file's error if there is one, because SQLite tells less.
fn failure(error: &rusqlite::Error, vfs: &Vfs, file: &OutputFile) -> ExportError {
    match vfs.take_error() {
        Some(source)
            if source
                .get_ref()
                .is_some_and(<dyn Error + Send + Sync>::is::<OutputError>) =>
        {
            source.into()
        }
        Some(source) if source.raw_os_error().is_some() => file.error(source).into(),
        _ => encode(error),
    }
}

fn encode(error: &rusqlite::Error) -> ExportError {
    ExportError::Encode {
        format: FORMAT,
        reason: error.to_string(),
    }
}
