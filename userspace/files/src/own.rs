//! Files that whoever runs gputrace named, or that gputrace made itself.
//!
//! They are opened with the rights of that user's command and mean what they say: a pipe may be waited for, a device be
//! read. Nothing that a traced program, or an environment variable of one, has a say in belongs here.
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
/// What the system says.
pub fn open(path: impl AsRef<Path>) -> io::Result<File> {
    File::open(path)
}

/// Opens a file that is open already a second time, for reading from its beginning. A file without a name can be, too.
///
/// # Errors
/// What the system says.
pub fn open_again(file: impl AsFd) -> io::Result<File> {
    File::open(format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()))
}

/// Reads a whole text file.
///
/// # Errors
/// What the system says, or `InvalidData` if it is not UTF-8.
pub fn read_text(path: impl AsRef<Path>) -> io::Result<String> {
    fs::read_to_string(path)
}

/// What the file system says of a file, of the one behind symbolic links.
///
/// # Errors
/// What the system says.
pub fn metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    fs::metadata(path)
}

/// The path without symbolic links.
///
/// # Errors
/// What the system says.
pub fn canonical(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    fs::canonicalize(path)
}

/// Whether there is anything of this path.
#[must_use]
pub fn exists(path: impl AsRef<Path>) -> bool {
    path.as_ref().exists()
}

/// Whether there is a regular file of this path.
#[must_use]
pub fn is_file(path: impl AsRef<Path>) -> bool {
    path.as_ref().is_file()
}

/// Whether there is a directory of this path.
#[must_use]
pub fn is_directory(path: impl AsRef<Path>) -> bool {
    path.as_ref().is_dir()
}
