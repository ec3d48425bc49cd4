//! The database's tables, indexes and views: schema version 3.0.3 of rocpd, and gputrace's own
//! tables.
//!
//! Names, columns and their order are those of ROCm's rocprofiler-sdk
//! (`share/rocprofiler-sdk-rocpd/*.sql`). Every table's name ends in a suffix that is unique to the
//! recording, so that databases can be attached to one another; each table has a view with the
//! plain name.

use sha2::{Digest, Sha256};

const TABLES: &str = include_str!("sql/tables.sql");
const INDEXES: &str = include_str!("sql/indexes.sql");
const VIEWS: &str = include_str!("sql/views.sql");

/// Version of the schema in `rocpd_metadata`: readers choose their views and queries by it.
///
/// Later ones (3.0.4: barriers for events of HIP; 3.0.5: more of SPM) add data that gputrace does
/// not record. Their tables and columns exist, as far as they are known, but nothing claims that
/// queries made for these versions have an answer.
pub(crate) const VERSION: [&str; 3] = ["3", "0", "3"];

/// Identifies a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// A UUID of version 7.
    pub(crate) guid: String,
    /// Suffix of the tables' names: `_` and the UUID with `_` for `-`.
    pub(crate) suffix: String,
}

impl Identity {
    /// The identity of a recording that began at `realtime` (ns since the Unix epoch). A recording,
    /// represented by `seed`, has the same identity each time it is exported.
    pub(crate) fn new(realtime: u64, seed: &[u8]) -> Self {
        let milliseconds = (realtime / 1_000_000) & 0xffff_ffff_ffff;
        let [a, b, c, d, e, f, g, h, i, j, ..] = <[u8; 32]>::from(Sha256::digest(seed));
        // RFC 9562: 48 bits of time, the version, 12 random bits, the variant, 62 random bits.
        let guid = format!(
            "{:08x}-{:04x}-7{:03x}-{:04x}-{:02x}{:02x}{:02x}{:02x}{:02x}{:02x}",
            milliseconds >> 16,
            milliseconds & 0xffff,
            u16::from_be_bytes([a, b]) & 0x0fff,
            u16::from_be_bytes([c, d]) & 0x3fff | 0x8000,
            e,
            f,
            g,
            h,
            i,
            j
        );
        let suffix = format!("_{}", guid.replace('-', "_"));
        Self { guid, suffix }
    }

    /// Replaces the placeholders of suffix and id in `sql`.
    pub(crate) fn fill(&self, sql: &str) -> String {
        sql.replace("{uuid}", &self.suffix)
            .replace("{guid}", &self.guid)
    }

    /// Statements that create the tables.
    pub(crate) fn tables(&self) -> String {
        self.fill(TABLES)
    }

    /// Statements that create the indexes, to be executed when the tables are full.
    pub(crate) fn indexes(&self) -> String {
        self.fill(INDEXES)
    }

    /// Statements that create the views: one with the plain name of each table, then those that
    /// people query.
    pub(crate) fn views(&self) -> String {
        let mut sql = String::new();
        for table in table_names() {
            let suffix = &self.suffix;
            sql.push_str(&format!(
                "CREATE VIEW {table} AS SELECT * FROM {table}{suffix};\n"
            ));
        }
        sql.push_str(VIEWS);
        sql
    }
}

/// Names of the tables without the suffix.
pub(crate) fn table_names() -> impl Iterator<Item = &'static str> {
    TABLES
        .lines()
        .filter_map(|line| line.strip_prefix("CREATE TABLE ")?.strip_suffix("{uuid} ("))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_a_uuid_of_version_7() {
        let identity = Identity::new(1_700_000_000_123_456_789, b"a recording");
        let parts: Vec<&str> = identity.guid.split('-').collect();
        assert_eq!(
            parts.iter().map(|part| part.len()).collect::<Vec<_>>(),
            [8, 4, 4, 4, 12]
        );
        let time = u64::from_str_radix(&format!("{}{}", parts[0], parts[1]), 16).unwrap();
        assert_eq!(time, 1_700_000_000_123);
        assert!(parts[2].starts_with('7'));
        assert!(parts[3].starts_with(['8', '9', 'a', 'b']));
        assert_eq!(identity.suffix.len(), 37);
        assert_eq!(
            identity,
            Identity::new(1_700_000_000_123_000_000, b"a recording")
        );
        assert_ne!(
            identity,
            Identity::new(1_700_000_000_123_000_000, b"another")
        );
    }

    #[test]
    fn every_table_has_a_view() {
        let names: Vec<&str> = table_names().collect();
        assert_eq!(names.len(), TABLES.matches("CREATE TABLE").count());
        assert!(names.contains(&"rocpd_memory_allocate") && names.contains(&"gputrace_loss"));
        let sql = Identity::new(0, b"").views();
        assert!(!sql.contains('{'));
    }
}
