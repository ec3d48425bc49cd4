//! Access to the programs and maps that find out who called a function: see
//! [`gputrace_abi::stack`].

use std::os::fd::{AsFd as _, AsRawFd as _};

use gputrace_abi::stack::{Site, SiteKey};
use libbpf_rs::{MapCore as _, MapFlags, MapHandle};
use zerocopy::{FromBytes as _, IntoBytes as _};

use super::{Calls, maps::readable};
use crate::{ProbeError, Ring, libbpf::refused};

/// The program that looks at stacks.
pub(super) const PROGRAM: &str = "stack_enter";

/// Size of the ring with copies of stacks, bytes: room for about 250.
pub(crate) const RING: u32 = 8 << 20;

/// Number of stacks that the programs can tell at the same time.
pub(crate) const SITES: u32 = 8192;

impl Calls {
    /// Makes calls look at their stacks, if their probes' cookies ask for that
    /// ([`gputrace_abi::cookie::Cookie::with_stack`]). Returns the ring with the stacks that are
    /// not known.
    ///
    /// # Errors
    ///
    /// [`ProbeError`] when the kernel refuses.
    pub fn start_stacks(&self) -> Result<Ring, ProbeError> {
        let program = self.program(PROGRAM)?;
        let number = program.as_fd().as_raw_fd();
        self.map("STACK_PROGRAMS")?
            .update(0u32.as_bytes(), number.as_bytes(), MapFlags::ANY)
            .map_err(|error| refused("look at stacks", &error))?;
        let ring = MapHandle::try_from(&self.map("STACKS")?)
            .map_err(|error| refused("open the ring of stacks", &error))?;
        readable(0, &ring)
    }

    /// Teaches the programs a stack. If they know as many as they can, the one that was not used
    /// for the longest time is forgotten.
    ///
    /// # Errors
    ///
    /// [`ProbeError`] when the kernel refuses.
    pub fn add_site(&self, key: &SiteKey, site: &Site) -> Result<(), ProbeError> {
        self.map("SITES")?
            .update(key.as_bytes(), site.as_bytes(), MapFlags::ANY)
            .map_err(|error| refused("remember a stack", &error))
    }

    /// What the programs were taught of a stack, unless they have forgotten it.
    ///
    /// # Errors
    ///
    /// [`ProbeError`] when the kernel refuses.
    pub fn site(&self, key: &SiteKey) -> Result<Option<Site>, ProbeError> {
        let found = self
            .map("SITES")?
            .lookup(key.as_bytes(), MapFlags::ANY)
            .map_err(|error| refused("look a stack up", &error))?;
        Ok(found.and_then(|bytes| Site::read_from_bytes(&bytes).ok()))
    }

    /// Makes the programs forget a stack, if they know it.
    ///
    /// # Errors
    ///
    /// [`ProbeError`] when they do not, or when the kernel refuses.
    pub fn remove_site(&self, key: &SiteKey) -> Result<(), ProbeError> {
        self.map("SITES")?
            .delete(key.as_bytes())
            .map_err(|error| refused("forget a stack", &error))
    }
}
