//! Probes that are on, and the functions that are watched for another reason than their calls.

use libbpf_rs::Link;

use crate::attach::{Failure, Side};

/// A function that tells of something that user space must know at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// `_dl_debug_state` of a dynamic linker: its list of libraries has changed.
    LinkerChange,
    /// `hsa_executable_freeze`: code objects have been loaded.
    CodeObjects,
    /// `hsa_executable_destroy`, `hsa_shut_down`: code objects are about to be unloaded.
    CodeObjectsEnd,
    /// `hsa_shut_down`: the runtime is about to free completion signals, which are read before.
    RuntimeEnd,
}

impl Hook {
    /// The program that runs there.
    pub(crate) const fn program(self) -> &'static str {
        match self {
            Self::LinkerChange => "linker_changed",
            Self::CodeObjects => "code_objects_changed",
            Self::CodeObjectsEnd => "code_objects_end",
            Self::RuntimeEnd => "runtime_ends",
        }
    }

    /// Whether it runs before or after the function.
    pub(crate) const fn side(self) -> Side {
        match self {
            Self::LinkerChange | Self::CodeObjectsEnd | Self::RuntimeEnd => Side::Entry,
            Self::CodeObjects => Side::Return,
        }
    }
}

/// Probes on the functions of one file. Dropping it removes them, which blocks until the kernel is done:
/// twice 50 to 100 ms by `uprobe_multi`, as many for each link one after the other by perf events.
///
/// Entries go first, so that calls that began have time to end where that is still seen.
#[derive(Debug)]
pub struct Probes {
    // Fields are dropped in this order.
    entries: Links,
    ends: Links,
    /// Points that could not be probed.
    pub failures: Vec<Failure>,
}

impl Probes {
    /// Probes at entries of functions, or where else anything is told of, and at the ends of the functions.
    pub(crate) fn new(entries: Vec<Link>, ends: Vec<Link>, failures: Vec<Failure>) -> Self {
        Self {
            entries: Links(entries),
            ends: Links(ends),
            failures,
        }
    }

    /// Removes the probes of several files in the time that those of one take, once their programs do nothing any more.
    pub fn remove(many: impl IntoIterator<Item = Self>) {
        let (entries, ends) = split(many);
        close(entries.into_iter().chain(ends).collect());
    }

    /// As [`Probes::remove`], while their programs are at work: entries first.
    pub fn withdraw(many: impl IntoIterator<Item = Self>) {
        let (entries, ends) = split(many);
        close(entries);
        close(ends);
    }

    /// Number of kernel objects behind the probes: what detaching costs in the perf back-end.
    #[must_use]
    pub fn links(&self) -> usize {
        self.entries.0.len() + self.ends.0.len()
    }
}

/// The links of all, those at entries and the others.
fn split(many: impl IntoIterator<Item = Probes>) -> (Vec<Link>, Vec<Link>) {
    let (mut entries, mut ends) = (Vec::new(), Vec::new());
    for mut one in many {
        entries.append(&mut one.entries.0);
        ends.append(&mut one.ends.0);
    }
    (entries, ends)
}

/// Links that go together.
#[derive(Debug)]
struct Links(Vec<Link>);

impl Drop for Links {
    fn drop(&mut self) {
        close(std::mem::take(&mut self.0));
    }
}

/// Closes links side by side: the kernel ends the closing of each by waiting for a grace period, and those
/// who wait at the same time wait for the same one. (Perf events are removed one by one whatever one does.)
fn close(mut links: Vec<Link>) {
    /// As many wait at the same time; a recording has a few links, and two for each function whose calls are limited.
    const SIDE_BY_SIDE: usize = 256;
    std::thread::scope(|scope| {
        let each = links.len().div_ceil(SIDE_BY_SIDE).max(1);
        while !links.is_empty() {
            let some = links.split_off(links.len().saturating_sub(each));
            // A thread that cannot be started drops what it was given, here.
            let _ = std::thread::Builder::new().spawn_scoped(scope, move || drop(some));
        }
    });
}
