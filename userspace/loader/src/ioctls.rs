//! User-space half of the programs that trace requests to the driver (`ebpf/probes`, module
//! `ioctls`).
//!
//! The programs can be attached in three places; [`Ioctls::attach`] tries them in turn and takes
//! the first that the kernel allows. They are loaded separately from the call-tracing programs,
//! whose rings, counters and targets they share: the driver may be loaded later, and a program for
//! a place that does not exist cannot be loaded at all.

use std::fmt;

use gputrace_abi::{
    kfd::{KfdConfig, LONG_IOCTL_SIZE, LongIoctl},
    record::kind,
};
use gputrace_files::kernel;
use libbpf_rs::{Link, Object, TracepointCategory};
use zerocopy::IntoBytes as _;

use crate::{
    ProbeError, calls::Calls, extra, layout::Layout, libbpf::refused, tracefs::Tracepoint,
};

/// The driver's handler of `ioctl(2)`, in `drivers/gpu/drm/amd/amdkfd/kfd_chardev.c`.
const HANDLER: &str = "kfd_ioctl";

/// File with the driver's device number: `major:minor`.
const DEVICE: &str = "/sys/class/kfd/kfd/dev";

/// Maps of these programs, which are not created for the call-tracing programs.
pub(crate) const MAPS: [&str; 2] = ["OPEN_IOCTLS", "EMPTY_IOCTL"];

/// A place where the programs can be attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A trampoline around the driver's handler (fentry and fexit).
    Trampoline,
    /// Breakpoints at the driver's handler (kprobe and kretprobe).
    Breakpoints,
    /// The tracepoints of the system call.
    SystemCall,
}

impl Place {
    /// All places, the cheapest first.
    pub const ALL: [Self; 3] = [Self::Trampoline, Self::Breakpoints, Self::SystemCall];

    /// Names of the program at the return, which is attached first, and the one at the entry.
    const fn programs(self) -> (&'static str, &'static str) {
        match self {
            Self::Trampoline => ("kfd_fexit", "kfd_fentry"),
            Self::Breakpoints => ("kfd_kretprobe", "kfd_kprobe"),
            Self::SystemCall => ("kfd_sys_exit", "kfd_sys_enter"),
        }
    }

    /// Cost of the place, if others than the traced requests pay for it.
    #[must_use]
    pub const fn cost(self) -> Option<&'static str> {
        match self {
            Self::Trampoline | Self::Breakpoints => None,
            Self::SystemCall => Some(
                "while recording, every system call on this machine takes about 10 ns longer, and \
                 every ioctl about 50 ns",
            ),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Trampoline => "fentry",
            Self::Breakpoints => "kprobe",
            Self::SystemCall => "the tracepoints of ioctl(2)",
        })
    }
}

/// The attached programs. Dropping it removes them.
#[derive(Debug)]
pub struct Ioctls {
    place: Place,
    // Dropped before the object, so that no program runs when its maps are freed.
    _links: Vec<Link>,
    object: Object,
}

impl Ioctls {
    /// Whether the driver is loaded.
    #[must_use]
    pub fn is_driver_loaded() -> bool {
        kernel::exists(DEVICE)
    }

    /// Attaches at `place` or, without one, at the cheapest place that the kernel allows.
    ///
    /// `threads` is the maximum number of threads with an open request at the same time.
    ///
    /// # Errors
    ///
    /// [`ProbeError`] of the last place tried.
    pub fn attach(calls: &Calls, place: Option<Place>, threads: u32) -> Result<Self, ProbeError> {
        let mut failure = ProbeError::BrokenObject {
            part: "place for the programs on ioctl".to_owned(),
        };
        for candidate in Place::ALL {
            if place.is_some_and(|wanted| wanted != candidate) {
                continue;
            }
            match Self::attach_at(calls, candidate, threads) {
                Ok(attached) => return Ok(attached),
                Err(error) => {
                    tracing::debug!("ioctls cannot be traced by {candidate}: {error}");
                    failure = error;
                }
            }
        }
        Err(failure)
    }

    fn attach_at(calls: &Calls, place: Place, threads: u32) -> Result<Self, ProbeError> {
        let (at_return, at_entry) = place.programs();
        let config = match place {
            Place::SystemCall => system_call_config()?,
            Place::Trampoline | Place::Breakpoints => KfdConfig::default(),
        };
        let programs = [at_return, at_entry, "kfd_task_exited"];
        let object = extra::load(calls, &programs, |name, map| match name {
            ".kfd" => Some(map.set_initial_value(config.as_bytes())),
            "OPEN_IOCTLS" => Some(map.set_max_entries(threads.max(1))),
            "EMPTY_IOCTL" => Some(Ok(())),
            _ => None,
        })?;
        let mut links = Vec::new();
        for (program, at_return) in [(at_return, true), (at_entry, false)] {
            let program = extra::program(&object, program)?;
            let link = match place {
                Place::Trampoline => program.attach_trace(),
                Place::Breakpoints => program.attach_kprobe(at_return, HANDLER),
                Place::SystemCall => {
                    let name = if at_return {
                        "sys_exit_ioctl"
                    } else {
                        "sys_enter_ioctl"
                    };
                    program
                        .attach_tracepoint(TracepointCategory::Custom("syscalls".to_owned()), name)
                }
            };
            links.push(link.map_err(|error| refused(format!("trace ioctls by {place}"), &error))?);
        }
        links.push(extra::raw_tracepoint(
            &object,
            "kfd_task_exited",
            "sched_process_exit",
        )?);
        Ok(Self {
            place,
            _links: links,
            object,
        })
    }

    /// How often the kernel skipped a program, because another BPF operation was running on the
    /// same processor.
    #[must_use]
    pub fn missed(&self) -> u64 {
        extra::missed(&self.object)
    }

    /// The place where the programs are attached.
    #[must_use]
    pub const fn place(&self) -> Place {
        self.place
    }

    /// Records of the open requests; each ends when it begins. Exact after [`Calls::stop`].
    ///
    /// # Errors
    ///
    /// [`ProbeError`] when the map cannot be read.
    pub fn open(&self) -> Result<Vec<u8>, ProbeError> {
        extra::records(
            &self.object,
            "OPEN_IOCTLS",
            "read the open ioctls",
            |open: &mut LongIoctl| {
                open.ioctl.header.kind = kind::IOCTL_UNFINISHED;
                open.ioctl.header.size = LONG_IOCTL_SIZE as u16;
                open.ioctl.end = open.ioctl.begin;
            },
        )
    }
}

/// Settings for the programs on the system call. They recognise the driver's file by reading the
/// kernel's own structures, whose layout the kernel's BTF describes.
fn system_call_config() -> Result<KfdConfig, ProbeError> {
    let cannot = |cause: String| ProbeError::Unsupported {
        action: "find out which files are /dev/kfd".to_owned(),
        cause,
        needs: "CONFIG_DEBUG_INFO_BTF and the amdgpu module",
    };
    let text = kernel::read_text(DEVICE).map_err(|error| cannot(format!("{DEVICE}: {error}")))?;
    let device = device_number(&text).ok_or_else(|| cannot(format!("{DEVICE} holds {text:?}")))?;
    let enter = Tracepoint::read("syscalls", "sys_enter_ioctl")?;
    let exit = Tracepoint::read("syscalls", "sys_exit_ioctl")?;
    let layout = Layout::of_kernel()?;
    Ok(KfdConfig {
        device,
        enter_fd: enter.offset("fd", 8)?,
        enter_cmd: enter.offset("cmd", 8)?,
        enter_arg: enter.offset("arg", 8)?,
        exit_ret: exit.offset("ret", 8)?,
        task_files: layout.offset("task_struct", "files")?,
        files_fdt: layout.offset("files_struct", "fdt")?,
        fdt_max_fds: layout.offset("fdtable", "max_fds")?,
        fdt_fd: layout.offset("fdtable", "fd")?,
        file_inode: layout.offset("file", "f_inode")?,
        inode_rdev: layout.offset("inode", "i_rdev")?,
        reserved: 0,
    })
}

/// Converts `major:minor` to the kernel's `dev_t`: twelve bits and twenty.
fn device_number(text: &str) -> Option<u32> {
    let (major, minor) = text.trim().split_once(':')?;
    let (major, minor): (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
    (major < 1 << 12 && minor < 1 << 20).then_some(major << 20 | minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_are_the_kernels() {
        assert_eq!(device_number("243:0\n"), Some(243 << 20));
        assert_eq!(device_number("1:3"), Some(1 << 20 | 3));
        for wrong in ["", "243", "243:x", "4096:0", "1:1048576"] {
            assert_eq!(device_number(wrong), None, "{wrong}");
        }
    }
}
