//! Attached probes, and the functions that are watched for a reason other than their calls.

use crate::attach::{Attached, Failure, Side};

/// A function whose execution user space must know about at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// `_dl_debug_state` of a dynamic linker: its list of libraries has changed.
    LinkerChange,
    /// `hsa_executable_freeze`: code objects have been loaded.
    CodeObjects,
    /// `hsa_executable_destroy`, `hsa_shut_down`: code objects are about to be unloaded.
    CodeObjectsEnd,
    /// `hsa_shut_down`: the runtime is about to free completion signals, which must be read first.
    RuntimeEnd,
}

impl Hook {
    /// Name of the program that runs at the hook.
    pub(crate) const fn program(self) -> &'static str {
        match self {
            Self::LinkerChange => "linker_changed",
            Self::CodeObjects => "code_objects_changed",
            Self::CodeObjectsEnd => "code_objects_end",
            Self::RuntimeEnd => "runtime_ends",
        }
    }

    /// Whether the program runs before or after the function.
    pub(crate) const fn side(self) -> Side {
        match self {
            Self::LinkerChange | Self::CodeObjectsEnd | Self::RuntimeEnd => Side::Entry,
            Self::CodeObjects => Side::Return,
        }
    }
}

/// Probes on the functions of one file.
///
/// Dropping it removes them. With `uprobe_multi`, that blocks until the kernel is done: twice 50 to
/// 100 ms. Perf events are removed by another process, one after the other:
/// [`crate::calls::Calls::settle`] waits for it. Entries are removed first, so that calls in
/// progress can end while ends are still probed.
#[derive(Debug)]
pub struct Probes {
    // Fields are dropped in this order.
    entries: Links,
    ends: Links,
    /// Points that could not be probed.
    pub failures: Vec<Failure>,
}

impl Probes {
    /// Combines the probes at entries of functions (or at other watched places) and those at the
    /// functions' ends.
    pub(crate) fn new(entries: Vec<Attached>, ends: Vec<Attached>, failures: Vec<Failure>) -> Self {
        Self {
            entries: Links(entries),
            ends: Links(ends),
            failures,
        }
    }

    /// Removes the probes of several files in the time that one file takes. The programs must be
    /// inactive.
    pub fn remove(many: impl IntoIterator<Item = Self>) {
        let (entries, ends) = split(many);
        close(entries.into_iter().chain(ends).collect());
    }

    /// Like [`Probes::remove`], while the programs are active: removes entries first.
    pub fn withdraw(many: impl IntoIterator<Item = Self>) {
        let (entries, ends) = split(many);
        close(entries);
        close(ends);
    }
}

/// Splits probes into the links at entries and the others.
fn split(many: impl IntoIterator<Item = Probes>) -> (Vec<Attached>, Vec<Attached>) {
    let (mut entries, mut ends) = (Vec::new(), Vec::new());
    for mut one in many {
        entries.append(&mut one.entries.0);
        ends.append(&mut one.ends.0);
    }
    (entries, ends)
}

/// Links that are removed together.
#[derive(Debug)]
struct Links(Vec<Attached>);

impl Drop for Links {
    fn drop(&mut self) {
        close(std::mem::take(&mut self.0));
    }
}

/// Closes links in parallel: closing each one waits for a grace period in the kernel, and threads
/// that wait at the same time share it.
fn close(mut links: Vec<Attached>) {
    /// Number of links that are closed in parallel. A recording has a few links, and two for each
    /// function whose calls are limited.
    const SIDE_BY_SIDE: usize = 256;
    std::thread::scope(|scope| {
        let each = links.len().div_ceil(SIDE_BY_SIDE).max(1);
        while !links.is_empty() {
            let some = links.split_off(links.len().saturating_sub(each));
            // If the thread cannot be started, its links are dropped here.
            let _ = std::thread::Builder::new().spawn_scoped(scope, move || drop(some));
        }
    });
}
