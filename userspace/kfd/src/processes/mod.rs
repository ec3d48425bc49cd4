//! The processes that use the GPUs: KFD's list, and DRM's data on each.
//!
//! KFD lists every process that has `/dev/kfd` open under `/sys/class/kfd/kfd/proc`, with the
//! host's process ids (the kernel's `kfd_process.c`). DRM describes each open render node in
//! `/proc/PID/fdinfo` (`Documentation/gpu/drm-usage-stats.rst`).
//!
//! Two files are costly to read: `sdma_GPUID` makes the kernel read the process's memory, and
//! `cu_occupancy` makes it read registers of the GPU. Both are read only on request, see
//! [`Detail`].

mod fdinfo;

use std::collections::BTreeMap;
use std::path::Path;

pub use fdinfo::{DrmClient, drm_clients};

use crate::files::{self, FileError};
use crate::paths::Paths;

/// How much to read of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// Only data that the kernel has at hand.
    #[default]
    Cheap,
    /// Also SDMA use and occupied compute units.
    All,
}

/// A process that has KFD open.
#[derive(Debug, Default)]
pub struct Process {
    /// Process id in the initial pid namespace.
    pub pid: u32,
    /// PASID (address-space id) in interrupts; absent or meaningless from Linux 6.15 on.
    pub pasid: Option<u64>,
    /// User queues, in order of id.
    pub queues: Vec<Queue>,
    /// Resources on each GPU, by KFD's id of the GPU.
    pub gpus: BTreeMap<u32, GpuUse>,
    /// Files that vanished, had invalid contents or could not be read.
    pub problems: Vec<FileError>,
}

/// A user queue. KFD does not show its ring's address here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    /// Id within the process.
    pub id: u32,
    /// KFD's id of the GPU.
    pub gpu_id: Option<u64>,
    /// Size of the ring, bytes.
    pub size: Option<u64>,
    /// The driver's `enum kfd_queue_type`; see [`queue_type_name`].
    pub kind: Option<u64>,
}

/// Resources of a process on a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuUse {
    /// VRAM, bytes.
    pub vram_bytes: Option<u64>,
    /// Time that SDMA engines worked for the process, µs. Only with [`Detail::All`].
    pub sdma_us: Option<u64>,
    /// Time that the process's queues were evicted, ms.
    pub evicted_ms: Option<u64>,
    /// Number of compute units that its wavefronts occupy at the moment. Only with [`Detail::All`],
    /// and only on GPUs that support it.
    pub cu_occupancy: Option<u64>,
    /// Number of GPU page faults. Only on GPUs with shared virtual memory.
    pub faults: Option<u64>,
    /// Number of pages migrated to the GPU.
    pub page_in: Option<u64>,
    /// Number of pages migrated from the GPU.
    pub page_out: Option<u64>,
}

/// Name of a queue's type in sysfs, where AQL queues are compute queues.
#[must_use]
pub const fn queue_type_name(kind: u64) -> Option<&'static str> {
    // `enum kfd_queue_type` of the kernel's kfd_priv.h, whose numbers differ from those of the
    // ioctls.
    Some(match kind {
        0 => "COMPUTE",
        1 => "SDMA",
        2 => "HIQ",
        3 => "DIQ",
        4 => "SDMA_XGMI",
        5 => "SDMA_BY_ENG_ID",
        _ => return None,
    })
}

/// Ids of the processes that have KFD open, in the initial pid namespace; empty without the driver.
///
/// # Errors
///
/// [`FileError`] if the list cannot be read.
pub fn pids(paths: &Paths) -> Result<Vec<u32>, FileError> {
    files::numbered(&paths.kfd.join("proc"))
}

/// Reads one process; `None` if KFD does not list it (any more).
///
/// # Errors
///
/// [`FileError`] if its directory cannot be read. Problems with single files are in
/// [`Process::problems`].
pub fn process(paths: &Paths, pid: u32, detail: Detail) -> Result<Option<Process>, FileError> {
    let directory = paths.kfd.join("proc").join(pid.to_string());
    let names = files::names(&directory)?;
    if names.is_empty() {
        return Ok(None);
    }
    let mut process = Process {
        pid,
        ..Process::default()
    };
    process.pasid = process.number(&directory.join("pasid"));
    match files::numbered(&directory.join("queues")) {
        Ok(ids) => {
            for id in ids {
                let queue = process.queue(id, &directory.join("queues").join(id.to_string()));
                process.queues.push(queue);
            }
        }
        Err(error) => process.problems.push(error),
    }
    for name in names {
        let Some((what, gpu_id)) = name.rsplit_once('_') else {
            continue;
        };
        let Ok(gpu_id) = gpu_id.parse() else { continue };
        process.gpu_file(what, gpu_id, &directory.join(&name), detail);
    }
    Ok(Some(process))
}

impl Process {
    fn queue(&mut self, id: u32, directory: &Path) -> Queue {
        Queue {
            id,
            gpu_id: self.number(&directory.join("gpuid")),
            size: self.number(&directory.join("size")),
            kind: self.number(&directory.join("type")),
        }
    }

    /// Reads a file or directory about a GPU: `vram_31000` and so on.
    fn gpu_file(&mut self, what: &str, gpu_id: u32, path: &Path, detail: Detail) {
        let mut use_of = self.gpus.remove(&gpu_id).unwrap_or_default();
        match what {
            "vram" => use_of.vram_bytes = self.number(path),
            "sdma" if detail == Detail::All => use_of.sdma_us = self.number(path),
            "stats" => {
                use_of.evicted_ms = self.number(&path.join("evicted_ms"));
                if detail == Detail::All {
                    use_of.cu_occupancy = self.supported(&path.join("cu_occupancy"));
                }
            }
            "counters" => {
                use_of.faults = self.number(&path.join("faults"));
                use_of.page_in = self.number(&path.join("page_in"));
                use_of.page_out = self.number(&path.join("page_out"));
            }
            _ => {}
        }
        // A GPU without data is listed, too: the process has it open.
        self.gpus.insert(gpu_id, use_of);
    }

    fn number(&mut self, path: &Path) -> Option<u64> {
        match files::number(path) {
            Ok(number) => number,
            Err(error) => {
                self.problems.push(error);
                None
            }
        }
    }

    /// Reads a file that exists for all GPUs and fails for those that do not support it.
    fn supported(&mut self, path: &Path) -> Option<u64> {
        match files::supported(path) {
            Ok(number) => number,
            Err(error) => {
                self.problems.push(error);
                None
            }
        }
    }
}
