//! Outputs that a library writes by itself, by path, as several files and directories.

use std::{
    ffi::{CStr, CString, OsStr},
    io,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::PathBuf,
};

use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags},
    io::Errno,
};

use super::{ATTEMPTS, OutputDir, OutputError, give};
use crate::exporter::Output;

/// Directories inside one another that are followed: more than any output has.
const DEPTH: u32 = 16;

/// A private directory, inside an [`OutputDir`], in which an output is made. Nobody but the maker can get
/// into it, and [`Staging::path`] names it whatever happens to the directories above. Dropped without
/// [`Staging::publish`] it is removed with all that is in it.
#[derive(Debug)]
pub struct Staging {
    directory: OutputDir,
    descriptor: OwnedFd,
    name: String,
}

impl Staging {
    pub(super) fn new(directory: &OutputDir, name: &str) -> Result<Self, OutputError> {
        let path = directory.path.join(name);
        if name.is_empty() || name.contains(['/', '\0']) {
            return Err(OutputError::Name {
                name: name.to_owned(),
            });
        }
        let stem: String = name.chars().take(40).collect();
        let mut last = Errno::EXIST;
        for attempt in 0..ATTEMPTS {
            let name = format!(".{stem}.{}-{attempt}.parts", std::process::id());
            match rustix::fs::mkdirat(&*directory.descriptor, &name, Mode::from_raw_mode(0o700)) {
                Ok(()) => {}
                Err(Errno::EXIST) => continue,
                Err(error) => {
                    last = error;
                    break;
                }
            }
            let descriptor = open(&*directory.descriptor, name.as_str())
                .map_err(|error| OutputError::new("open directory", &path, error))?;
            return Ok(Self {
                directory: directory.clone(),
                descriptor,
                name,
            });
        }
        Err(OutputError::new("create directory", &path, last))
    }

    /// A path of the directory, for this process only.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.descriptor.as_raw_fd()))
    }

    /// The error of what wrote into it, with the output's name.
    #[must_use]
    pub fn error(&self, output: &str, source: io::Error) -> OutputError {
        OutputError::new("write", &self.directory.path.join(output), source)
    }

    /// Gives everything to the owner of the output directory and moves the entries `names` there, in that
    /// order; what had these names before is removed. The first one stands for the output.
    ///
    /// # Errors
    /// [`OutputError`] if an entry is missing or cannot be moved.
    pub fn publish(self, names: &[&str], content: &str) -> Result<Output, OutputError> {
        let path = |name: &str| self.directory.path.join(name);
        let mut bytes = 0;
        let owner = self.directory.owner;
        walk(self.descriptor.as_fd(), DEPTH, &mut |parent, name, kind| {
            let flags = if kind == FileType::Directory {
                OFlags::DIRECTORY
            } else {
                OFlags::empty()
            };
            let flags = flags | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let entry = rustix::fs::openat(parent, name, flags, Mode::empty())?;
            if kind == FileType::RegularFile {
                bytes += rustix::fs::fstat(&entry)?.st_size as u64;
            }
            give(&entry, owner)
        })
        .map_err(|error| OutputError::new("change the owner of", &self.directory.path, error))?;
        let to = &*self.directory.descriptor;
        for (number, name) in names.iter().enumerate() {
            // A directory cannot be replaced by another, so an old one goes into ours, which is removed.
            let old = format!(".old-{number}");
            match rustix::fs::renameat(to, *name, &self.descriptor, &old) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Err(OutputError::new("replace", &path(name), error)),
            }
            rustix::fs::renameat(&self.descriptor, *name, to, *name)
                .map_err(|error| OutputError::new("create", &path(name), error))?;
        }
        Ok(Output {
            path: names.first().map(|name| path(name)).unwrap_or_default(),
            bytes,
            content: content.to_owned(),
        })
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // Nothing can be done about a failure here, and the error that led here is reported already.
        let _ = walk(self.descriptor.as_fd(), DEPTH, &mut |parent, name, kind| {
            let flags = if kind == FileType::Directory {
                AtFlags::REMOVEDIR
            } else {
                AtFlags::empty()
            };
            rustix::fs::unlinkat(parent, name, flags)
        });
        let _ = rustix::fs::unlinkat(&*self.directory.descriptor, &self.name, AtFlags::REMOVEDIR);
    }
}

fn open(parent: impl AsFd, name: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty())
}

/// Calls `visit` for everything below `directory`, contents before their directory, without following links.
fn walk(
    directory: std::os::fd::BorrowedFd<'_>,
    depth: u32,
    visit: &mut dyn FnMut(std::os::fd::BorrowedFd<'_>, &CStr, FileType) -> Result<(), Errno>,
) -> Result<(), Errno> {
    // Read whole before anything changes.
    let mut entries: Vec<(CString, FileType)> = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if ![".", ".."]
            .map(OsStr::new)
            .contains(&OsStr::from_bytes(name.to_bytes()))
        {
            entries.push((name.to_owned(), entry.file_type()));
        }
    }
    for (name, kind) in entries {
        if kind == FileType::Directory && depth > 0 {
            let inner = open(directory, name.as_c_str())?;
            walk(inner.as_fd(), depth - 1, visit)?;
        }
        visit(directory, &name, kind)?;
    }
    Ok(())
}
