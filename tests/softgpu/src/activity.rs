//! Whether the GPUs are at work, as their status registers show it: shared by all processes that
//! write their logs to the same directory, as the registers of a real GPU are.

use std::{
    fs::OpenOptions,
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

use memmap2::MmapMut;

/// Name of the file, in the directory of the logs.
const NAME: &str = "activity";

/// Maximum number of agents.
const AGENTS: usize = 64;

/// Until when each agent is at work, ns `CLOCK_BOOTTIME`.
#[derive(Debug)]
pub struct Activity {
    until: MmapMut,
}

impl Activity {
    /// Opens the file in this directory, and creates both if needed.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub fn open(directory: &Path) -> std::io::Result<Self> {
        std::fs::create_dir_all(directory)?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(directory.join(NAME))?;
        file.set_len((AGENTS * size_of::<u64>()) as u64)?;
        // SAFETY: nobody shortens the file, and all access is by atomic operations.
        let until = unsafe { MmapMut::map_mut(&file) }?;
        Ok(Self { until })
    }

    fn word(&self, agent: u32) -> Option<&AtomicU64> {
        let at = usize::try_from(agent).ok()?.checked_mul(size_of::<u64>())?;
        let bytes = self.until.get(at..at.checked_add(size_of::<u64>())?)?;
        // SAFETY: eight bytes of a shared, writable mapping that this structure keeps; a page is
        // aligned, and so is each word in it.
        Some(unsafe { AtomicU64::from_ptr(bytes.as_ptr().cast::<u64>().cast_mut()) })
    }

    /// From now on, an agent is at work until `end`, ns `CLOCK_BOOTTIME`, or until a later time
    /// that was given before.
    pub(crate) fn works_until(&self, agent: u32, end: u64) {
        if let Some(word) = self.word(agent) {
            word.fetch_max(end, Ordering::AcqRel);
        }
    }

    /// Whether an agent is at work at this time, ns `CLOCK_BOOTTIME`.
    #[must_use]
    pub fn is_at_work(&self, agent: u32, now: u64) -> bool {
        self.word(agent)
            .is_some_and(|word| now < word.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_processes_see_it() {
        let directory = tempfile::tempdir().unwrap();
        let (one, other) = [(); 2]
            .map(|()| Activity::open(directory.path()).unwrap())
            .into();
        one.works_until(1, 50);
        one.works_until(1, 40);
        assert!(other.is_at_work(1, 49) && !other.is_at_work(1, 50));
        assert!(!other.is_at_work(0, 0) && !other.is_at_work(u32::MAX, 0));
    }
}
