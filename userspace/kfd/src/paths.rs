//! Locations of the driver's files.

use std::path::{Path, PathBuf};

/// The files and directories that this crate reads. Tests and recorded trees use others than the
/// default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// KFD's device node.
    pub dev_kfd: PathBuf,
    /// KFD's sysfs directory, which contains `topology` and `proc`.
    pub kfd: PathBuf,
    /// Directory of the DRM devices, which contains `renderD128` and so on.
    pub drm: PathBuf,
    /// Directory of the render nodes.
    pub dev_dri: PathBuf,
    /// Directory of the perf subsystem's units.
    pub event_source: PathBuf,
    /// The directory of processes.
    pub proc: PathBuf,
    /// libdrm's tables of marketing names, best first.
    pub amdgpu_ids: Vec<PathBuf>,
}

impl Default for Paths {
    fn default() -> Self {
        Self::under(Path::new("/"))
    }
}

impl Paths {
    /// Paths of a system whose root directory is `root`.
    #[must_use]
    pub fn under(root: &Path) -> Self {
        Self {
            dev_kfd: root.join("dev/kfd"),
            kfd: root.join("sys/class/kfd/kfd"),
            drm: root.join("sys/class/drm"),
            dev_dri: root.join("dev/dri"),
            event_source: root.join("sys/bus/event_source/devices"),
            proc: root.join("proc"),
            // AMD's packages contain a libdrm of their own, newer than the distribution's.
            amdgpu_ids: [
                "opt/amdgpu/share/libdrm",
                "usr/share/libdrm",
                "usr/local/share/libdrm",
            ]
            .map(|directory| root.join(directory).join("amdgpu.ids"))
            .into(),
        }
    }

    /// A render node.
    #[must_use]
    pub fn render_node(&self, drm_render_minor: u32) -> PathBuf {
        self.dev_dri.join(format!("renderD{drm_render_minor}"))
    }

    /// The sysfs directory of the PCI device behind a render node.
    #[must_use]
    pub fn device(&self, drm_render_minor: u32) -> PathBuf {
        self.drm
            .join(format!("renderD{drm_render_minor}"))
            .join("device")
    }
}
