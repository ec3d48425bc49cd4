//! Reads small files that may be absent, vanish or have wrong contents.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use gputrace_files::kernel;
use rustix::io::Errno;
use thiserror::Error;

/// Maximum size of a text file that is read, bytes. sysfs attributes have at most a page.
const MAX_TEXT: u64 = 64 << 10;

/// A file exists but cannot be used. Always names the file.
#[derive(Debug, Error)]
pub enum FileError {
    /// The file cannot be opened or read: permission is missing, or it vanished meanwhile.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Path of the file or directory.
        path: PathBuf,
        /// Error returned by the kernel.
        source: io::Error,
    },
    /// The file is longer than anything that the driver writes there.
    #[error("{} has more than {limit} bytes", path.display())]
    TooLong {
        /// Path of the file.
        path: PathBuf,
        /// Maximum size that is read, bytes.
        limit: u64,
    },
    /// The driver does not write such contents there.
    #[error("{}, line {line}: {problem}", path.display())]
    Malformed {
        /// Path of the file.
        path: PathBuf,
        /// Line number, counted from 1.
        line: usize,
        /// The problem.
        problem: String,
    },
}

impl FileError {
    /// Path of the file or directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::Read { path, .. } | Self::TooLong { path, .. } | Self::Malformed { path, .. } => {
                path
            }
        }
    }

    pub(crate) fn malformed(path: &Path, line: usize, problem: impl Into<String>) -> Self {
        Self::Malformed {
            path: path.to_owned(),
            line,
            problem: problem.into(),
        }
    }

    fn read(path: &Path, source: io::Error) -> Self {
        Self::Read {
            path: path.to_owned(),
            source,
        }
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// All bytes of a file; `None` if it does not exist; an error if it has more than `limit`.
pub(crate) fn bytes(path: &Path, limit: u64) -> Result<Option<Vec<u8>>, FileError> {
    let file = match kernel::open(path) {
        Ok(file) => file,
        Err(error) if is_absent(&error) => return Ok(None),
        Err(error) => return Err(FileError::read(path, error)),
    };
    let mut bytes = Vec::new();
    file.take(limit.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(|error| FileError::read(path, error))?;
    if bytes.len() as u64 > limit {
        return Err(FileError::TooLong {
            path: path.to_owned(),
            limit,
        });
    }
    Ok(Some(bytes))
}

/// A text file without surrounding white space; `None` if it does not exist.
pub(crate) fn text(path: &Path) -> Result<Option<String>, FileError> {
    let Some(bytes) = bytes(path, MAX_TEXT)? else {
        return Ok(None);
    };
    match str::from_utf8(&bytes) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(_) => Err(FileError::malformed(path, 1, "not text")),
    }
}

/// The number in a file: decimal, or hexadecimal after `0x`. `None` if the file does not exist.
pub(crate) fn number(path: &Path) -> Result<Option<u64>, FileError> {
    let Some(text) = text(path)? else {
        return Ok(None);
    };
    match parse_number(&text) {
        Some(number) => Ok(Some(number)),
        None => Err(FileError::malformed(
            path,
            1,
            format!("{text:?} is not a number"),
        )),
    }
}

/// Like [`number`], for a file that exists for every GPU. If the GPU or its firmware does not
/// support it, reading fails or returns an error text; the result is `None` then.
pub(crate) fn supported(path: &Path) -> Result<Option<u64>, FileError> {
    if_supported(number(path))
}

/// Like [`text`]; `None` if unsupported.
pub(crate) fn supported_text(path: &Path) -> Result<Option<String>, FileError> {
    if_supported(text(path))
}

/// Like [`bytes`]; `None` if unsupported.
pub(crate) fn supported_bytes(path: &Path, limit: u64) -> Result<Option<Vec<u8>>, FileError> {
    if_supported(bytes(path, limit))
}

fn if_supported<T>(read: Result<Option<T>, FileError>) -> Result<Option<T>, FileError> {
    match read {
        Err(FileError::Read { source, .. }) if is_unsupported(&source) => Ok(None),
        other => other,
    }
}

fn is_unsupported(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(
        errno,
        Some(Errno::INVAL | Errno::OPNOTSUPP | Errno::NODATA | Errno::NOSYS)
    )
}

fn parse_number(text: &str) -> Option<u64> {
    // `FromStr` would accept a sign.
    if !text.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    match text.strip_prefix("0x") {
        Some(digits) if !digits.starts_with('+') => u64::from_str_radix(digits, 16).ok(),
        Some(_) => None,
        None => text.parse().ok(),
    }
}

/// The entries of a directory, sorted by name; empty if it does not exist.
///
/// Names that are not UTF-8 are left out: the driver creates none.
pub(crate) fn names(directory: &Path) -> Result<Vec<String>, FileError> {
    let names = match kernel::list(directory) {
        Ok(names) => names,
        Err(error) if is_absent(&error) => return Ok(Vec::new()),
        Err(error) => return Err(FileError::read(directory, error)),
    };
    let mut names: Vec<String> = names
        .into_iter()
        .filter_map(|name| name.into_string().ok())
        .collect();
    names.sort_unstable();
    Ok(names)
}

/// The directory entries whose names are numbers, in order; empty if the directory does not exist.
pub(crate) fn numbered(directory: &Path) -> Result<Vec<u32>, FileError> {
    let mut numbers: Vec<u32> = names(directory)?
        .iter()
        .filter_map(|name| name.parse().ok())
        .collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// The properties file of a node, bank, cache or link: lines with a key and a value.
///
/// The set of keys depends on the kernel and on the kind of node; an absent key is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Properties {
    numbers: BTreeMap<String, u64>,
    texts: BTreeMap<String, String>,
}

impl Properties {
    /// Reads a file; `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// [`FileError`] if it cannot be read, or does not consist of lines with a key and a value,
    /// each key once.
    pub fn read(path: &Path) -> Result<Option<Self>, FileError> {
        let Some(text) = text(path)? else {
            return Ok(None);
        };
        let mut properties = Self::default();
        for (line, content) in (1..).zip(text.lines()) {
            properties
                .add(content)
                .map_err(|problem| FileError::malformed(path, line, problem))?;
        }
        Ok(Some(properties))
    }

    fn add(&mut self, line: &str) -> Result<(), String> {
        let line = line.trim();
        if line.is_empty() {
            return Ok(());
        }
        let Some((key, value)) = line.split_once(|c: char| c.is_ascii_whitespace()) else {
            return Err(format!("{line:?} has no value"));
        };
        let value = value.trim();
        let known = match parse_number(value) {
            Some(number) => self.numbers.insert(key.to_owned(), number).is_some(),
            None => self
                .texts
                .insert(key.to_owned(), value.to_owned())
                .is_some(),
        };
        if known {
            return Err(format!("{key} appears twice"));
        }
        Ok(())
    }

    /// The number of a key; `None` if it is absent or not a number.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<u64> {
        self.numbers.get(key).copied()
    }

    /// The value of a key that is not a number, such as a cache's `sibling_map`.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<&str> {
        self.texts.get(key).map(String::as_str)
    }

    /// All keys with numbers, in alphabetical order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.numbers
            .iter()
            .map(|(key, number)| (key.as_str(), *number))
    }

    /// Whether there are no properties: the kernel shows none for a device that the caller may not
    /// use.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty() && self.texts.is_empty()
    }

    /// The number of a key, 0 if absent: ROCm's readers treat it likewise.
    pub(crate) fn or_zero(&self, key: &str) -> u64 {
        self.get(key).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;

    #[test]
    fn numbers_are_decimal_or_hexadecimal_and_have_no_sign() {
        assert_eq!(parse_number("0x66a1"), Some(0x66a1));
        assert_eq!(parse_number("18446744073709551615"), Some(u64::MAX));
        for wrong in ["", "-1", "+1", "0x", "0x+1", "1 2", "18446744073709551616"] {
            assert_eq!(parse_number(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn absent_is_none_and_an_unreadable_file_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("properties");
        assert_eq!(Properties::read(&file).unwrap(), None);
        assert_eq!(text(&file.join("below_nothing")).unwrap(), None);
        assert_eq!(numbered(&file).unwrap(), Vec::<u32>::new());
        // A directory in place of a file can be opened but not read.
        let error = Properties::read(directory.path()).unwrap_err();
        assert_eq!(error.path(), directory.path());
        assert!(matches!(error, FileError::Read { .. }));
    }

    #[test]
    fn what_is_no_property_is_an_error_with_its_line() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("properties");
        for (content, line) in [("simd_count\n", 1), ("a 1\n\na 2\n", 3), ("\u{1}", 1)] {
            fs::write(&file, content).unwrap();
            match Properties::read(&file) {
                Err(FileError::Malformed { line: at, path, .. }) => {
                    assert_eq!((at, path), (line, file.clone()));
                }
                other => panic!("{content:?}: {other:?}"),
            }
        }
        fs::write(&file, vec![b'a'; 65 << 10]).unwrap();
        assert!(matches!(
            Properties::read(&file),
            Err(FileError::TooLong { .. })
        ));
    }

    proptest! {
        #[test]
        fn any_bytes_are_properties_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let file = tempfile::NamedTempFile::new().unwrap();
            fs::write(file.path(), bytes).unwrap();
            let _ = Properties::read(file.path());
            let _ = number(file.path());
        }

        #[test]
        fn what_the_kernel_writes_is_read_back(
            pairs in proptest::collection::btree_map("[a-z_]{1,12}", any::<u64>(), 0..20)
        ) {
            let file = tempfile::NamedTempFile::new().unwrap();
            let text: String = pairs.iter().map(|(key, value)| format!("{key} {value}\n")).collect();
            fs::write(file.path(), text).unwrap();
            let read = Properties::read(file.path()).unwrap().unwrap();
            prop_assert!(read.iter().eq(pairs.iter().map(|(key, value)| (key.as_str(), *value))));
        }
    }
}
