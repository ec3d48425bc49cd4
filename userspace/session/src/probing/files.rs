//! Files with probes, identified as the kernel does, and their users.
//!
//! A container sees its libraries through a mount of its own. [`Files`] finds out that the file
//! behind it is one that already has probes ([`LibraryFile::is_same`]), and remembers it by its
//! `stat` data, so that each mount costs this only once.

use std::collections::{BTreeMap, HashMap, HashSet};

use gputrace_files::kernel;
use gputrace_tracee::{identity::FileLook, library::LibraryFile, process::MappedFile};

/// Maximum number of remembered `stat` results. When it is reached, all are forgotten and found out
/// anew.
const LOOKS: usize = 1 << 14;

/// A value that belongs to a file.
pub(crate) trait OfFile {
    fn file(&self) -> &LibraryFile;
    /// The processes that use the file.
    fn users(&mut self) -> &mut Users;
}

/// Files without duplicates, each with its value.
#[derive(Debug)]
pub(crate) struct Files<T> {
    entries: BTreeMap<u32, T>,
    looks: HashMap<FileLook, u32>,
    next: u32,
}

impl<T> Default for Files<T> {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            looks: HashMap::new(),
            next: 0,
        }
    }
}

impl<T: OfFile> Files<T> {
    /// Number of files.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Finds the file that a process has mapped without opening it, if it has been seen through the
    /// same mount before.
    pub(crate) fn seen(&self, pid: u32, mapped: &MappedFile) -> Option<u32> {
        self.looks.get(&FileLook::of_mapped(pid, mapped)?).copied()
    }

    /// Finds an open file, whatever mount it was opened through.
    pub(crate) fn find(&mut self, file: &LibraryFile) -> Option<u32> {
        let look = file.look().ok()?;
        if let Some(id) = self.looks.get(&look) {
            return Some(*id);
        }
        let (id, _) = self
            .entries
            .iter()
            .find(|(_, entry)| entry.file().is_same(file))?;
        let id = *id;
        self.remember(look, id);
        Some(id)
    }

    /// Adds a file that is not in the set yet.
    pub(crate) fn insert(&mut self, entry: T) -> u32 {
        let id = self.next;
        self.next += 1;
        if let Ok(look) = entry.file().look() {
            self.remember(look, id);
        }
        self.entries.insert(id, entry);
        id
    }

    fn remember(&mut self, look: FileLook, id: u32) {
        if self.looks.len() >= LOOKS {
            self.looks.clear();
        }
        self.looks.insert(look, id);
    }

    pub(crate) fn get(&self, id: u32) -> Option<&T> {
        self.entries.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        self.entries.get_mut(&id)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.entries.values_mut()
    }

    pub(crate) fn into_values(self) -> impl Iterator<Item = T> {
        self.entries.into_values()
    }

    /// Removes and returns the files that have had no user at this look and the previous one.
    pub(crate) fn take_unused(&mut self) -> Vec<T> {
        let unused = self
            .entries
            .extract_if(.., |_, entry| entry.users().is_over());
        let (ids, unused): (HashSet<u32>, Vec<T>) = unused.unzip();
        if !ids.is_empty() {
            self.looks.retain(|_, id| !ids.contains(id));
        }
        unused
    }
}

/// The processes that use a file.
#[derive(Debug)]
pub(crate) struct Users {
    pids: HashSet<u32>,
    /// Whether the file is kept even without users.
    kept: bool,
    /// Number of consecutive looks at which the file had no users.
    without: u32,
}

impl Users {
    /// Users of a file that is released when nobody uses it any more, unless it is `kept`.
    pub(crate) fn new(kept: bool) -> Self {
        Self {
            pids: HashSet::new(),
            kept,
            without: 0,
        }
    }

    pub(crate) fn add(&mut self, pid: u32) {
        self.without = 0;
        self.pids.insert(pid);
    }

    /// Keeps the file from now on, even without users.
    pub(crate) fn keep(&mut self) {
        self.kept = true;
    }

    /// Records that `parent` created `child`, which has the same files mapped.
    pub(crate) fn forked(&mut self, parent: u32, child: u32) {
        if self.pids.contains(&parent) {
            self.add(child);
        }
    }

    /// Forgets processes that have ended. Returns true if no user is left and the file need not be
    /// kept. If that is still so at the next look, the file is unused.
    pub(crate) fn look(&mut self) -> bool {
        self.pids
            .retain(|pid| kernel::exists(format!("/proc/{pid}")));
        let is_over = self.pids.is_empty() && !self.kept;
        self.without = if is_over { self.without + 1 } else { 0 };
        is_over
    }

    fn is_over(&self) -> bool {
        self.pids.is_empty() && !self.kept && self.without > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Entry(LibraryFile, Users);

    impl OfFile for Entry {
        fn file(&self) -> &LibraryFile {
            &self.0
        }
        fn users(&mut self) -> &mut Users {
            &mut self.1
        }
    }

    #[test]
    fn a_file_goes_with_its_last_user() {
        let mut files = Files::default();
        let open = || LibraryFile::open(std::path::Path::new("/proc/self/exe")).unwrap();
        let id = files.insert(Entry(open(), Users::new(false)));
        let mut child = std::process::Command::new("/bin/sh")
            .args(["-c", "read x"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let users = &mut files.get_mut(id).unwrap().1;
        users.add(std::process::id());
        users.forked(std::process::id(), child.id());
        users.forked(1 << 30, 1);
        users.pids.remove(&std::process::id());
        assert!(!users.look() && !users.look());
        assert_eq!(files.find(&open()), Some(id));
        child.kill().unwrap();
        child.wait().unwrap();
        for expected in [1, 0] {
            assert!(files.get_mut(id).unwrap().1.look());
            assert_eq!(files.take_unused().len(), 1 - expected);
        }
        assert!(files.is_empty());
        assert_eq!(files.find(&open()), None);
        let kept = files.insert(Entry(open(), Users::new(true)));
        assert_ne!(kept, id);
        assert!(!files.get_mut(kept).unwrap().1.look() && files.take_unused().is_empty());
    }
}
