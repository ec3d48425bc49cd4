//! Maps the PASIDs in the driver's interrupts to processes.

use std::{collections::BTreeSet, sync::Arc};

use gputrace_abi::domain::Domain;
use gputrace_capture::{Meta, gpu::Pasid};
use gputrace_kfd::{
    Paths,
    processes::{self, Detail},
};
use gputrace_loader::calls::Calls;

use super::{Source, Wanted};

/// Creates the source if tracepoints are recorded.
pub(super) fn source(wanted: &Wanted<'_>) -> Option<Box<dyn Source>> {
    let is_wanted = wanted.request.domains.contains(&Domain::Tracepoint);
    is_wanted.then(|| Box::new(Pasids::default()) as Box<dyn Source>)
}

/// The PASIDs that the capture knows, by process.
#[derive(Debug, Default)]
struct Pasids {
    known: BTreeSet<(u32, u64)>,
}

impl Source for Pasids {
    fn tick(&mut self, _calls: &Arc<Calls>) -> Vec<Meta> {
        self.look(&Paths::default())
    }
}

impl Pasids {
    /// Finds new PASIDs since the last look: KFD's number of each process (up to Linux 6.14), and
    /// DRM's of each address space.
    fn look(&mut self, paths: &Paths) -> Vec<Meta> {
        let mut now = BTreeSet::new();
        // Interrupts stay without an owner if files cannot be read or contain nonsense. Then no
        // format knows the owner.
        for pid in processes::pids(paths).unwrap_or_default() {
            if let Ok(Some(process)) = processes::process(paths, pid, Detail::Cheap) {
                now.extend(process.pasid.map(|pasid| (pid, pasid)));
            }
            let clients = processes::drm_clients(paths, pid).unwrap_or_default();
            now.extend(
                clients
                    .iter()
                    .filter_map(|client| Some((pid, client.pasid?))),
            );
        }
        now.retain(|(_, pasid)| *pasid != 0);
        let news = now
            .difference(&self.known)
            .map(|(pid, pasid)| {
                Pasid {
                    pid: *pid,
                    pasid: *pasid,
                }
                .into()
            })
            .collect();
        self.known = now;
        news
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn numbers_of_kfd_and_of_drm_are_told_once() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let paths = Paths::under(root);
        let mut pasids = Pasids::default();
        assert_eq!(pasids.look(&paths), []);
        write(root, "sys/class/kfd/kfd/proc/47/pasid", "32769\n");
        write(
            root,
            "proc/47/fdinfo/5",
            "drm-driver:\tamdgpu\ndrm-client-id:\t1\npasid:\t32771\n",
        );
        write(root, "sys/class/kfd/kfd/proc/48/pasid", "0\n");
        write(
            root,
            "proc/48/fdinfo/5",
            "drm-driver:\tamdgpu\npasid:\tlots\n",
        );
        let found = |pasid| Meta::from(Pasid { pid: 47, pasid });
        assert_eq!(pasids.look(&paths), [found(32_769), found(32_771)]);
        assert_eq!(pasids.look(&paths), []);
        // The PASID is released, and assigned again.
        fs::remove_file(root.join("proc/47/fdinfo/5")).unwrap();
        assert_eq!(pasids.look(&paths), []);
        write(
            root,
            "proc/47/fdinfo/6",
            "drm-driver:\tamdgpu\npasid:\t32771\n",
        );
        assert_eq!(pasids.look(&paths), [found(32_771)]);
    }
}
