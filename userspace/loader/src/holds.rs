//! Threads held by an eBPF program: `ebpf/probes/src/hold.rs`.

use std::os::fd::{AsFd as _, BorrowedFd};

use gputrace_abi::hold::{Hold, hold_state};
use libbpf_rs::{MapCore as _, MapFlags, MapHandle, RingBuffer, RingBufferBuilder};
use zerocopy::{FromBytes as _, IntoBytes as _};

use crate::{ProbeError, calls::Calls, libbpf::refused};

/// The map of held threads, and the ring through which programs call for help.
#[derive(Debug)]
pub struct Holds {
    map: MapHandle,
    ring: MapHandle,
    helpers: MapHandle,
}

impl Holds {
    /// The maps of the loaded programs.
    ///
    /// # Errors
    ///
    /// [`ProbeError::BrokenObject`], or no descriptors left.
    pub fn of(calls: &Calls) -> Result<Self, ProbeError> {
        let handle = |name: &str| {
            MapHandle::try_from(&calls.map(name)?)
                .map_err(|error| refused(format!("reuse map {name}"), &error))
        };
        Ok(Self {
            map: handle("HOLDS")?,
            ring: handle("CALLS_FOR_HOLD")?,
            helpers: handle("HELPERS")?,
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

    /// Descriptor of the map of helpers.
    #[must_use]
    pub fn helpers(&self) -> BorrowedFd<'_> {
        self.helpers.as_fd()
    }

    /// A ring buffer that becomes readable when a thread is held. Several processes may listen.
    ///
    /// # Errors
    ///
    /// [`ProbeError`].
    pub fn listen(&self) -> Result<RingBuffer<'_>, ProbeError> {
        let mut builder = RingBufferBuilder::new();
        let failed = |error| refused("receive reports of held threads", &error);
        builder.add(&self.ring, |_| 0).map_err(failed)?;
        builder.build().map_err(failed)
    }

    /// Threads that nobody has seized yet. Includes entries left behind by threads that no longer
    /// exist.
    #[must_use]
    pub fn waiting(&self) -> Vec<Held> {
        let entries = self.map.keys().filter_map(|key| {
            let hold = self.lookup(&key)?;
            (hold.state != hold_state::RELEASED).then_some(Held {
                id: u64::read_from_bytes(&key).ok()?,
                hold,
            })
        });
        entries.collect()
    }

    /// The hold of a seized thread with its present state. The eBPF program that kept the CPU busy
    /// may have given up since the hold was read; then the thread may have gone on.
    #[must_use]
    pub fn after_seizing(&self, held: Held) -> Held {
        let now = self.lookup(&held.id.to_ne_bytes());
        let waits = now
            .is_some_and(|hold| hold.begin == held.hold.begin && hold.state == hold_state::WAITS);
        let state = if waits {
            hold_state::WAITS
        } else {
            hold_state::GOES_ON
        };
        let hold = Hold { state, ..held.hold };
        Held { hold, ..held }
    }

    /// Lets a seized thread leave the eBPF program. It is not an error if the thread has left
    /// already.
    pub fn release(&self, held: Held) {
        let key = held.id.to_ne_bytes();
        if held.hold.state == hold_state::GOES_ON {
            let _ = self.map.delete(&key);
            return;
        }
        let released = Hold {
            state: hold_state::RELEASED,
            ..held.hold
        };
        let _ = self.map.update(&key, released.as_bytes(), MapFlags::EXIST);
    }

    /// A hold is over: forgets it, so that nobody seizes the thread any more. Returns whether the
    /// thread still waited in its program, which it leaves now.
    #[must_use]
    pub fn forget(&self, id: u64, begin: u64) -> bool {
        let key = id.to_ne_bytes();
        if self.lookup(&key).is_none_or(|hold| hold.begin > begin) {
            return false;
        }
        // In one step: the program that keeps the CPU busy may give up just now.
        let last = self.map.lookup_and_delete(&key).ok().flatten();
        let last = last.and_then(|value| Hold::read_from_bytes(&value).ok());
        last.is_some_and(|hold| hold.state == hold_state::WAITS)
    }

    /// A newer hold of the same thread that nobody has seized it for.
    #[must_use]
    pub fn newer(&self, held: Held) -> Option<Held> {
        let hold = self.lookup(&held.id.to_ne_bytes())?;
        (hold.begin > held.hold.begin).then_some(Held { hold, ..held })
    }

    /// Announces that the helper with this index is bound to `cpu`.
    pub fn set_helper(&self, index: u32, cpu: u32) {
        let place = u64::from(cpu) + 1;
        // If this fails, threads on that CPU wait for the helper like those on other CPUs.
        let _ = self
            .helpers
            .update(&index.to_ne_bytes(), place.as_bytes(), MapFlags::ANY);
    }

    fn lookup(&self, key: &[u8]) -> Option<Hold> {
        let value = self.map.lookup(key, MapFlags::ANY).ok()??;
        Hold::read_from_bytes(&value).ok()
    }
}

/// A thread to be held.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// `tgid << 32 | tid`.
    pub id: u64,
    /// Begin and state of the hold.
    pub hold: Hold,
}

impl Held {
    /// Thread id.
    #[must_use]
    pub const fn tid(&self) -> u32 {
        self.id as u32
    }
}
