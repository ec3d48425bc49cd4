//! `AMDKFD_IOC_GET_VERSION` of the real driver, which needs no GPU.

use std::{fmt, fs::File};

use anyhow::{Context as _, Result};
use rustix::ioctl::{self, Getter};

/// `struct kfd_ioctl_get_version_args` of `linux/kfd_ioctl.h`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Version {
    major: u32,
    minor: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KFD interface {}.{}", self.major, self.minor)
    }
}

/// `AMDKFD_IOC_GET_VERSION`: `AMDKFD_IOR(0x01, struct kfd_ioctl_get_version_args)`.
const GET_VERSION: ioctl::Opcode = ioctl::opcode::read::<Version>(b'K', 0x01);

/// Queries the driver.
///
/// # Errors
///
/// When there is no `/dev/kfd`, or it does not answer.
pub(crate) fn version() -> Result<Version> {
    let device = File::options()
        .read(true)
        .write(true)
        .open("/dev/kfd")
        .context("cannot open /dev/kfd")?;
    // SAFETY: the driver writes the two numbers, whose size is part of the opcode.
    let question = unsafe { Getter::<GET_VERSION, Version>::new() };
    // SAFETY: as above.
    unsafe { ioctl::ioctl(&device, question) }.context("AMDKFD_IOC_GET_VERSION")
}
