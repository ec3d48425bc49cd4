//! Reads a GPU's status register, which shows whether the GPU is at work. Whoever may open the GPU's
//! render node may read it.
//!
//! The register is `GRBM_STATUS`. Its highest bit, `GUI_ACTIVE`, is set while any pipe has work: a
//! kernel of any process, or packets that the command processor handles. Copies by the SDMA engines
//! do not set it. The driver reads it by `AMDGPU_INFO_READ_MMR_REG` (`amdgpu_kms.c`), which
//! radeontop and amdgpu_top use in the same way. The register has the same number in all GPUs that
//! ROCm supports: it is in the lists of `soc15.c`, `nv.c` and `soc21.c`.
//!
//! Opening a render node wakes a GPU that sleeps, and so may reading. Both are for times at which
//! the GPU is at work anyway.

use std::{
    fs::File,
    io,
    os::fd::AsRawFd as _,
    path::{Path, PathBuf},
};

use gputrace_files::kernel;
use rustix::io::Errno;
use thiserror::Error;

use crate::paths::Paths;

/// `GRBM_STATUS`, as a number of words.
const GRBM_STATUS: u32 = 0x8010 / 4;

/// `GUI_ACTIVE`.
const GUI_ACTIVE: u32 = 1 << 31;

/// What a read over PCIe gives if the GPU does not answer.
const NO_ANSWER: u32 = u32::MAX;

/// `AMDGPU_INFO_READ_MMR_REG`.
const READ_MMR_REG: u32 = 0x15;

/// All instances of a unit.
const ALL_INSTANCES: u32 = u32::MAX;

/// `struct drm_amdgpu_info` of `amdgpu_drm.h`, asking for registers.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Info {
    return_pointer: u64,
    return_size: u32,
    query: u32,
    dword_offset: u32,
    count: u32,
    instance: u32,
    flags: u32,
}

const _: () = assert!(size_of::<Info>() == 32);

/// `DRM_IOCTL_AMDGPU_INFO`: `_IOW('d', 0x40 + 0x05, struct drm_amdgpu_info)`.
const AMDGPU_INFO: libc::c_ulong = 0x4020_6445;

/// Why a GPU does not show whether it is at work.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ActivityError {
    /// Its render node cannot be opened.
    #[error("cannot open {}: {error}", path.display())]
    Open {
        /// The render node.
        path: PathBuf,
        /// The kernel's error.
        error: Errno,
    },
    /// The driver does not let the register be read: a virtual function, or another driver.
    #[error("{} does not let GRBM_STATUS be read: {error}", path.display())]
    Refused {
        /// The render node.
        path: PathBuf,
        /// The kernel's error.
        error: Errno,
    },
    /// The GPU does not answer at present, as during a reset.
    #[error("{} does not answer", path.display())]
    NoAnswer {
        /// The render node.
        path: PathBuf,
    },
}

/// A reading of the register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// `GRBM_STATUS`.
    pub register: u32,
}

impl Reading {
    /// Whether any unit was at work.
    #[must_use]
    pub fn is_active(self) -> bool {
        self.register & GUI_ACTIVE != 0
    }
}

/// The open render node of a GPU.
#[derive(Debug)]
pub struct Register {
    node: File,
    path: PathBuf,
}

impl Register {
    /// Opens the render node with this minor number, and reads the register once to see whether
    /// that works.
    ///
    /// # Errors
    ///
    /// [`ActivityError`].
    pub fn open(paths: &Paths, drm_render_minor: u32) -> Result<Self, ActivityError> {
        let path = paths.render_node(drm_render_minor);
        let node = kernel::open_writable(&path).map_err(|error| ActivityError::Open {
            path: path.clone(),
            error: errno(&error),
        })?;
        let register = Self { node, path };
        register.read()?;
        Ok(register)
    }

    /// Path of the render node.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the register. On hardware this takes some microseconds.
    ///
    /// # Errors
    ///
    /// [`ActivityError::Refused`] or [`ActivityError::NoAnswer`].
    pub fn read(&self) -> Result<Reading, ActivityError> {
        let mut value = 0_u32;
        let info = Info {
            return_pointer: (&raw mut value).expose_provenance() as u64,
            return_size: size_of::<u32>() as u32,
            query: READ_MMR_REG,
            dword_offset: GRBM_STATUS,
            count: 1,
            instance: ALL_INSTANCES,
            flags: 0,
        };
        loop {
            // SAFETY: the request's size is that of the structure. The kernel writes at most one
            // word, to a variable that lives through the call.
            let result =
                unsafe { libc::ioctl(self.node.as_raw_fd(), AMDGPU_INFO, &raw const info) };
            if result == 0 {
                break;
            }
            match errno(&io::Error::last_os_error()) {
                Errno::INTR => {}
                // The driver resets the GPU, or the GPU is gone.
                Errno::NOENT | Errno::NODEV | Errno::IO => return Err(self.no_answer()),
                error => {
                    let path = self.path.clone();
                    return Err(ActivityError::Refused { path, error });
                }
            }
        }
        if value == NO_ANSWER {
            return Err(self.no_answer());
        }
        Ok(Reading { register: value })
    }

    fn no_answer(&self) -> ActivityError {
        ActivityError::NoAnswer {
            path: self.path.clone(),
        }
    }
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_name_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let paths = Paths::under(directory.path());
        let path = paths.render_node(128);
        let open = |paths: &Paths| Register::open(paths, 128).unwrap_err();
        let error = Errno::NOENT;
        let missing = ActivityError::Open {
            path: path.clone(),
            error,
        };
        assert_eq!(open(&paths), missing);
        assert!(missing.to_string().contains("renderD128"), "{missing}");
        // A file that does not belong to the driver.
        std::fs::create_dir_all(&paths.dev_dri).unwrap();
        std::fs::write(&path, "").unwrap();
        let error = Errno::NOTTY;
        assert_eq!(open(&paths), ActivityError::Refused { path, error });
    }

    #[test]
    fn the_highest_bit_says_it() {
        let active = |register| Reading { register }.is_active();
        assert!(!active(0) && !active(0x7fff_ffff) && active(0x8000_0000));
    }
}
