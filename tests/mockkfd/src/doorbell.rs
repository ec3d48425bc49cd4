//! Doorbell pages: one of 8 KiB per GPU, in the file behind `/dev/kfd`.

use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;

use crate::files::{DeviceFile, Mapping, user};

/// Size of a doorbell page in bytes: 1024 doorbells of 8 bytes each.
const PAGE_BYTES: u64 = 8192;
const SLOT_BYTES: u64 = 8;

/// Doorbells of all GPUs.
#[derive(Debug)]
pub(crate) struct Doorbells {
    pages: Vec<Mutex<Page>>,
}

#[derive(Debug)]
struct Page {
    mapping: Mapping,
    /// The queue of each slot.
    slots: Vec<Option<u32>>,
}

/// A doorbell for a queue that is being created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Doorbell {
    slot: usize,
    /// Its address in the mock's mapping.
    pub(crate) address: u64,
    /// Its offset for the runtime.
    pub(crate) offset: u64,
}

/// Offset of a GPU's doorbell page in the file.
///
/// The low 32 bits are zero: libhsakmt 5.2.3 masks the first queue's doorbell offset with a page
/// size that it has not initialised yet, and keeps only the bits above.
pub(crate) fn page_offset(agent: u32) -> u64 {
    u64::from(agent + 1) << 32
}

/// Offset of a GPU's page of remapped registers in the file.
pub(crate) fn registers_offset(agent: u32) -> u64 {
    1 << 39 | u64::from(agent) << 32
}

impl Doorbells {
    pub(crate) fn new(file: &DeviceFile, agents: usize) -> Result<Self, Errno> {
        let slots = vec![None; usize::try_from(PAGE_BYTES / SLOT_BYTES).unwrap_or_default()];
        let page = |agent| {
            let mapping = file.map(page_offset(agent), PAGE_BYTES)?;
            // Every AQL doorbell is initially -1, because index 0 is the first packet.
            mapping.fill_u64(u64::MAX);
            Ok(Mutex::new(Page {
                mapping,
                slots: slots.clone(),
            }))
        };
        let pages = (0..).take(agents).map(page).collect::<Result<_, Errno>>()?;
        Ok(Self { pages })
    }

    /// Creates a queue with a free doorbell that has the value `initial`. Returns the result of
    /// `make`.
    pub(crate) fn with_free(
        &self,
        agent: u32,
        initial: u64,
        make: impl FnOnce(Doorbell) -> Result<u32, Errno>,
    ) -> Result<(u32, Doorbell), Errno> {
        let page = usize::try_from(agent)
            .ok()
            .and_then(|agent| self.pages.get(agent))
            .ok_or(Errno::INVAL)?;
        let mut page = page.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = page
            .slots
            .iter()
            .position(Option::is_none)
            .ok_or(Errno::NOMEM)?;
        let at = slot as u64 * SLOT_BYTES;
        let doorbell = Doorbell {
            slot,
            address: page.mapping.address() + at,
            offset: page_offset(agent) + at,
        };
        user::write(doorbell.address, initial)?;
        let queue = make(doorbell)?;
        if let Some(entry) = page.slots.get_mut(slot) {
            *entry = Some(queue);
        }
        Ok((queue, doorbell))
    }

    /// Frees the doorbell of a destroyed queue.
    pub(crate) fn release(&self, queue: u32) {
        for page in &self.pages {
            let mut page = page.lock().unwrap_or_else(PoisonError::into_inner);
            for slot in page.slots.iter_mut().filter(|slot| **slot == Some(queue)) {
                *slot = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_given_back() {
        let file = DeviceFile::new(c"test").unwrap();
        let doorbells = Doorbells::new(&file, 2).unwrap();
        let (_, first) = doorbells.with_free(1, u64::MAX, |_| Ok(5)).unwrap();
        let (_, second) = doorbells.with_free(1, 0, |_| Ok(6)).unwrap();
        assert_eq!((first.offset, second.offset), (2 << 32, (2 << 32) + 8));
        assert_eq!(user::read::<u64>(second.address), Ok(0));
        assert!(doorbells.with_free(2, 0, |_| Ok(7)).is_err());
        doorbells.release(5);
        let (_, third) = doorbells.with_free(1, u64::MAX, |_| Ok(8)).unwrap();
        assert_eq!(third, first);
    }
}
