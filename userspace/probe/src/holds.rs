//! Threads that an eBPF program holds: `ebpf/probes/src/hold.rs`.

use std::os::fd::{AsFd as _, BorrowedFd};

use libbpf_rs::{MapCore as _, MapFlags, MapHandle, RingBuffer, RingBufferBuilder};
use zerocopy::{FromBytes as _, IntoBytes as _};

use crate::{ProbeError, calls::Calls, libbpf::refused};

/// The threads that are held, and the ring by which their programs call for help.
#[derive(Debug)]
pub struct Holds {
    map: MapHandle,
    ring: MapHandle,
}

impl Holds {
    /// Those of the programs that are loaded.
    ///
    /// # Errors
    ///
    /// [`ProbeError::BrokenObject`], or no descriptor left.
    pub fn of(calls: &Calls) -> Result<Self, ProbeError> {
        let handle = |name: &str| {
            MapHandle::try_from(&calls.map(name)?)
                .map_err(|error| refused(format!("use map {name} once more"), &error))
        };
        Ok(Self {
            map: handle("HOLDS")?,
            ring: handle("CALLS_FOR_HOLD")?,
        })
    }

    /// Descriptor of the map of held threads.
    #[must_use]
    pub fn map(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }

    /// Descriptor of the ring.
    #[must_use]
    pub fn ring(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }

    /// Something to wait on that is ready when a thread has been held. Several may listen.
    ///
    /// # Errors
    ///
    /// [`ProbeError`].
    pub fn listen(&self) -> Result<RingBuffer<'_>, ProbeError> {
        let mut builder = RingBufferBuilder::new();
        let failed = |error| refused("listen to held threads", &error);
        builder.add(&self.ring, |_| 0).map_err(failed)?;
        builder.build().map_err(failed)
    }

    /// Ids of the threads that nobody has released yet.
    #[must_use]
    pub fn waiting(&self) -> Vec<u32> {
        let unreleased = |key: &Vec<u8>| {
            let value = self.map.lookup(key, MapFlags::ANY).ok().flatten();
            value.is_some_and(|value| value.iter().all(|byte| *byte == 0))
        };
        let ids = self.map.keys().filter(unreleased);
        ids.filter_map(|key| u64::read_from_bytes(&key).ok())
            .map(|id| id as u32)
            .collect()
    }

    /// Lets a thread leave the program. It is no error if it has left before.
    pub fn release(&self, tid: u32) {
        for key in self.map.keys() {
            if u64::read_from_bytes(&key).is_ok_and(|id| id as u32 == tid) {
                let released = 1_u32;
                let _ = self.map.update(&key, released.as_bytes(), MapFlags::EXIST);
            }
        }
    }
}
