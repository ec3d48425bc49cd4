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
    /// `hsa_shut_down`: the runtime is about to free completion signals, which are read before.
    RuntimeEnd,
}

impl Hook {
    /// The program that runs there.
    pub(crate) const fn program(self) -> &'static str {
        match self {
            Self::LinkerChange => "linker_changed",
            Self::CodeObjects => "code_objects_changed",
            Self::RuntimeEnd => "runtime_ends",
        }
    }

    /// Whether it runs before or after the function.
    pub(crate) const fn side(self) -> Side {
        match self {
            Self::LinkerChange | Self::RuntimeEnd => Side::Entry,
            Self::CodeObjects => Side::Return,
        }
    }
}

/// Probes on the functions of one file. Dropping it removes them, which blocks until the kernel is done:
/// 50 to 100 ms by `uprobe_multi`, as many for each link one after the other by perf events.
#[derive(Debug)]
pub struct Probes {
    links: Links,
    /// Points that could not be probed.
    pub failures: Vec<Failure>,
}

impl Probes {
    pub(crate) fn new(links: Vec<Link>, failures: Vec<Failure>) -> Self {
        Self {
            links: Links(links),
            failures,
        }
    }

    /// Removes the probes of several files in the time that those of one take.
    pub fn remove(many: impl IntoIterator<Item = Self>) {
        close(
            many.into_iter()
                .flat_map(|mut one| std::mem::take(&mut one.links.0))
                .collect(),
        );
    }

    /// Number of kernel objects behind the probes: what detaching costs in the perf back-end.
    #[must_use]
    pub fn links(&self) -> usize {
        self.links.0.len()
    }
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
/// who wait at the same time wait for the same one.
fn close(links: Vec<Link>) {
    /// More than the few links of the multi back-end. Perf events are removed one by one whatever one does.
    const SIDE_BY_SIDE: usize = 32;
    if links.len() > SIDE_BY_SIDE {
        return drop(links);
    }
    std::thread::scope(|scope| {
        for link in links {
            // A thread that cannot be started drops what it was given, here.
            let _ = std::thread::Builder::new().spawn_scoped(scope, move || drop(link));
        }
    });
}
