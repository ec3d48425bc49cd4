//! Files that the user of gputrace named, or that gputrace created itself.
//!
//! They are opened with that user's rights, and taken literally: opening a pipe may wait, and a
//! device may be read. No file whose path can be influenced by a traced program, or by its
//! environment variables, belongs here.
#![expect(
    clippy::disallowed_methods,
    reason = "the ways to open one's own files that everybody else is to use"
)]

use std::{
    fs::{self, File, Metadata},
    io,
    os::fd::{AsFd, AsRawFd as _},
    path::{Path, PathBuf},
};

/// Opens a file for reading.
///
/// # Errors
///
/// The system's error.
pub fn open(path: impl AsRef<Path>) -> io::Result<File> {
    File::open(path)
}

/// Opens a file that is already open a second time, for reading from its beginning. This also works
/// for a file without a name. It can be written as well, so that space can be given back.
///
/// # Errors
///
/// The system's error.
pub fn open_again(file: impl AsFd) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    File::options().read(true).write(true).open(path)
}

/// Opens a file that is already open a second time, for reading only, from its beginning. This also
/// works for a file without a name.
///
/// # Errors
///
/// The system's error.
pub fn open_to_read(file: impl AsFd) -> io::Result<File> {
    File::open(format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()))
}

/// Reads a whole text file.
///
/// # Errors
///
/// The system's error, or `InvalidData` if it is not UTF-8.
pub fn read_text(path: impl AsRef<Path>) -> io::Result<String> {
    fs::read_to_string(path)
}

/// Metadata of a file; symbolic links are followed.
///
/// # Errors
///
/// The system's error.
pub fn metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    fs::metadata(path)
}

/// The path without symbolic links.
///
/// # Errors
///
/// The system's error.
pub fn canonical(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    fs::canonicalize(path)
}

/// Whether anything with this path exists.
#[must_use]
pub fn exists(path: impl AsRef<Path>) -> bool {
    path.as_ref().exists()
}

/// Whether a regular file with this path exists.
#[must_use]
pub fn is_file(path: impl AsRef<Path>) -> bool {
    path.as_ref().is_file()
}

/// Whether a directory with this path exists.
#[must_use]
pub fn is_directory(path: impl AsRef<Path>) -> bool {
    path.as_ref().is_dir()
}
