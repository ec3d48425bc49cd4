//! Outputs that a library writes by itself, by path, as several files and directories.

use std::{
    ffi::{CStr, CString, OsStr},
    io,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::PathBuf,
    sync::Arc,
};

use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags},
    io::Errno,
};

use super::{OutputDir, OutputError, PRIVATE_DIRECTORY, Temporary, give};
use crate::exporter::Output;

/// Maximum depth of nested directories: more than any output has.
const DEPTH: u32 = 16;

/// A private directory, inside an [`OutputDir`], in which an output is made. Only its creator can
/// access it, and [`Staging::path`] stays valid whatever happens to the directories above. If
/// dropped without [`Staging::publish`], it is removed with its contents.
#[derive(Debug)]
pub struct Staging {
    directory: OutputDir,
    descriptor: Arc<OwnedFd>,
    temporary: Temporary,
}

impl Staging {
    pub(super) fn new(directory: &OutputDir, name: &str) -> Result<Self, OutputError> {
        let path = directory.path.join(name);
        if name.is_empty() || name.contains(['/', '\0']) {
            return Err(OutputError::Name {
                name: name.to_owned(),
            });
        }
        let (descriptor, temporary) = Temporary::directory(&directory.descriptor, name)
            .map_err(|error| OutputError::new("create directory", &path, error))?;
        Ok(Self {
            directory: directory.clone(),
            descriptor,
            temporary,
        })
    }

    /// A path of the directory, valid in this process only.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.descriptor.as_raw_fd()))
    }

    /// Converts an I/O error of the library that writes into it, adding the output's name.
    #[must_use]
    pub fn error(&self, output: &str, source: io::Error) -> OutputError {
        OutputError::new("write", &self.directory.path.join(output), source)
    }

    /// Gives everything to the owner of the output directory, with access for nobody else, and
    /// moves the entries `names` there, in that order. Existing files of these names are removed.
    /// The returned output has the path of the first entry.
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
            // Libraries create files with modes by the umask.
            let mode = if kind == FileType::Directory {
                PRIVATE_DIRECTORY
            } else {
                self.directory.mode
            };
            rustix::fs::fchmod(&entry, mode)?;
            give(&entry, owner)
        })
        .map_err(|error| OutputError::new("change the owner of", &self.directory.path, error))?;
        let first = names.first().map(|name| path(name)).unwrap_or_default();
        self.temporary
            .publish_contents(&first, || self.move_out(names))?;
        Ok(Output {
            path: first,
            bytes,
            content: content.to_owned(),
        })
    }

    fn move_out(&self, names: &[&str]) -> Result<(), OutputError> {
        let path = |name: &str| self.directory.path.join(name);
        let to = &*self.directory.descriptor;
        for (number, name) in names.iter().enumerate() {
            // A directory cannot replace another one, so the old one is moved into ours, which is
            // removed later.
            let old = format!(".old-{number}");
            match rustix::fs::renameat(to, *name, &*self.descriptor, &old) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Err(OutputError::new("replace", &path(name), error)),
            }
            rustix::fs::renameat(&*self.descriptor, *name, to, *name)
                .map_err(|error| OutputError::new("create", &path(name), error))?;
        }
        Ok(())
    }
}

/// Removes the contents of a directory; nothing can be done about a failure.
pub(super) fn empty(directory: &OwnedFd) {
    let _ = walk(directory.as_fd(), DEPTH, &mut |parent, name, kind| {
        let flags = if kind == FileType::Directory {
            AtFlags::REMOVEDIR
        } else {
            AtFlags::empty()
        };
        rustix::fs::unlinkat(parent, name, flags)
    });
}

/// Removes the files and links in a directory whose names end in one of `endings`.
pub(super) fn remove_files(directory: &OwnedFd, endings: &[&str]) -> Result<(), Errno> {
    walk(directory.as_fd(), 0, &mut |parent, name, kind| {
        let is_meant = |ending: &&str| name.to_bytes().ends_with(ending.as_bytes());
        if kind == FileType::Directory || !endings.iter().any(is_meant) {
            return Ok(());
        }
        rustix::fs::unlinkat(parent, name, AtFlags::empty())
    })
}

pub(super) fn open(parent: impl AsFd, name: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty())
}

/// Calls `visit` for everything below `directory`, contents before their directory, without
/// following links.
fn walk(
    directory: std::os::fd::BorrowedFd<'_>,
    depth: u32,
    visit: &mut dyn FnMut(std::os::fd::BorrowedFd<'_>, &CStr, FileType) -> Result<(), Errno>,
) -> Result<(), Errno> {
    // Entries are read completely before anything changes.
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
