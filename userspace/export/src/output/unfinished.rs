//! The unfinished outputs of this process, so that a signal can remove all of them.
//!
//! Every temporary file and directory is entered here when it is created, and removed from the list
//! when it gets its final name or is deleted. So [`abandon`] cannot miss any.

use std::{
    collections::BTreeMap,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rustix::{
    fs::{AtFlags, Mode, OFlags},
    io::Errno,
};

use super::{ATTEMPTS, staging};

static UNFINISHED: Mutex<Unfinished> = Mutex::new(Unfinished {
    last: 0,
    entries: BTreeMap::new(),
    complete: Vec::new(),
});

#[derive(Debug)]
struct Unfinished {
    last: u64,
    entries: BTreeMap<u64, Entry>,
    /// Paths of finished outputs.
    complete: Vec<PathBuf>,
}

/// A file or directory under a temporary name.
#[derive(Debug)]
struct Entry {
    directory: Arc<OwnedFd>,
    name: String,
    /// For a directory: the directory itself.
    contents: Option<Arc<OwnedFd>>,
}

impl Entry {
    fn remove(&self) {
        // Nothing can be done about a failure here, and the original error is already reported.
        let Some(contents) = &self.contents else {
            let _ = rustix::fs::unlinkat(&*self.directory, &self.name, AtFlags::empty());
            return;
        };
        // Another thread may still be creating files in it.
        for _ in 0..ATTEMPTS {
            staging::empty(contents);
            let removed = rustix::fs::unlinkat(&*self.directory, &self.name, AtFlags::REMOVEDIR);
            if removed != Err(Errno::NOTEMPTY) {
                return;
            }
        }
    }
}

fn unfinished() -> MutexGuard<'static, Unfinished> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A temporary name. Its file or directory is removed when this is dropped.
#[derive(Debug)]
pub(super) struct Temporary {
    number: u64,
}

impl Temporary {
    /// Creates a file with `mode`, which will later be called `name`.
    pub(super) fn file(
        directory: &Arc<OwnedFd>,
        name: &str,
        mode: Mode,
    ) -> Result<(OwnedFd, Self), Errno> {
        let flags =
            OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::RDWR | OFlags::CLOEXEC;
        let mut all = unfinished();
        let (descriptor, temporary) = try_names(name, "part", |name| {
            rustix::fs::openat(&**directory, name, flags, mode)
        })?;
        Ok((descriptor, all.enter(directory, temporary, None)))
    }

    /// Creates a directory in which an output called `name` is made.
    pub(super) fn directory(
        directory: &Arc<OwnedFd>,
        name: &str,
    ) -> Result<(Arc<OwnedFd>, Self), Errno> {
        let mut all = unfinished();
        let ((), temporary) = try_names(name, "parts", |name| {
            rustix::fs::mkdirat(&**directory, name, Mode::from_raw_mode(0o700))
        })?;
        let contents = staging::open(&**directory, temporary.as_str()).inspect_err(|_| {
            let _ = rustix::fs::unlinkat(&**directory, &temporary, AtFlags::REMOVEDIR);
        })?;
        let contents = Arc::new(contents);
        let entered = all.enter(directory, temporary, Some(Arc::clone(&contents)));
        Ok((contents, entered))
    }

    /// Gives a file its final name.
    pub(super) fn publish(self, name: &str, path: &Path) -> Result<(), Errno> {
        let mut all = unfinished();
        if let Some(entry) = all.entries.get(&self.number) {
            rustix::fs::renameat(&*entry.directory, &entry.name, &*entry.directory, name)?;
        }
        all.entries.remove(&self.number);
        all.complete.push(path.to_owned());
        Ok(())
    }

    /// Calls `rename` to move the contents of a directory to their final place. [`abandon`] sees
    /// either all of it moved or nothing.
    pub(super) fn publish_contents<T, E>(
        &self,
        path: &Path,
        rename: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let mut all = unfinished();
        let done = rename()?;
        all.complete.push(path.to_owned());
        Ok(done)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // The lock is held, so that a signal now finds the entry either in the list or gone.
        let mut all = unfinished();
        if let Some(entry) = all.entries.remove(&self.number) {
            entry.remove();
        }
    }
}

impl Unfinished {
    fn enter(
        &mut self,
        directory: &Arc<OwnedFd>,
        name: String,
        contents: Option<Arc<OwnedFd>>,
    ) -> Temporary {
        self.last += 1;
        let directory = Arc::clone(directory);
        let entry = Entry {
            directory,
            name,
            contents,
        };
        self.entries.insert(self.last, entry);
        Temporary { number: self.last }
    }
}

/// Tries temporary names until one is free.
fn try_names<T>(
    name: &str,
    ending: &str,
    mut make: impl FnMut(&str) -> Result<T, Errno>,
) -> Result<(T, String), Errno> {
    // Long names must stay below NAME_MAX (255 bytes); the rename checks the final one.
    let stem: String = name.chars().take(40).collect();
    for attempt in 0..ATTEMPTS {
        let temporary = format!(".{stem}.{}-{attempt}.{ending}", process::id());
        match make(&temporary) {
            Ok(made) => return Ok((made, temporary)),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
    }
    Err(Errno::EXIST)
}

/// Removes everything that is unfinished, and returns the paths of finished outputs. For a process
/// that is about to end: threads that begin, finish or remove a file afterwards block until it has
/// ended.
#[must_use]
pub fn abandon() -> Vec<PathBuf> {
    let mut all = std::mem::ManuallyDrop::new(unfinished());
    for entry in std::mem::take(&mut all.entries).into_values() {
        entry.remove();
    }
    std::mem::take(&mut all.complete)
}
