//! Whose process it is: user, container, Kubernetes pod, Slurm job, rank, and the name of its
//! program as people know it.
//!
//! Everything comes from files that every node has: `/proc/PID` (proc(5)) and the names of
//! kubelet's directories. No service is asked, except the system's database of users. The
//! submodules state where each format comes from. They only parse, and bound what they keep.

pub mod control_group;
pub mod environment;
pub mod pods;
pub mod selection;
pub mod title;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use gputrace_capture::identity::Identity;
use gputrace_files::kernel;

use self::{control_group::Group, environment::Environment, pods::PodLogs};
use crate::process;

/// Maximum size of an environment that is examined, bytes.
const MAX_ENVIRONMENT: u64 = 1 << 20;
/// Maximum size of a command line that is examined, bytes.
const MAX_COMMAND: u64 = 64 << 10;
/// Maximum number of users whose names are kept.
const MOST_USERS: usize = 4096;
/// Maximum length of a login name that is kept, bytes (`LOGIN_NAME_MAX`).
const LONGEST_USER: usize = 256;

/// Where processes are looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sources {
    /// The directory with a directory for each process.
    pub proc: PathBuf,
    /// kubelet's directories.
    pub logs: PodLogs,
    /// For each process, the GPUs that it uses, each with all of its names. Whoever knows the
    /// driver fills this in.
    pub gpus: BTreeMap<u32, Vec<Vec<String>>>,
}

impl Default for Sources {
    fn default() -> Self {
        Self {
            proc: "/proc".into(),
            logs: PodLogs::default(),
            gpus: BTreeMap::new(),
        }
    }
}

impl Sources {
    /// Identifies a process. Everything that cannot be read is absent.
    #[must_use]
    pub fn identify(&self, pid: u32) -> Identity {
        let command = process::arguments(&self.memory(pid, "cmdline", MAX_COMMAND));
        let name = process::name(&self.path(pid, "comm")).unwrap_or_default();
        self.identify_as(pid, &command, &name)
    }

    /// Identifies a process whose arguments and name are known.
    #[must_use]
    pub fn identify_as(&self, pid: u32, command: &[String], name: &str) -> Identity {
        let status = kernel::read_text(self.path(pid, "status")).unwrap_or_default();
        let group = kernel::read_text(self.path(pid, "cgroup")).unwrap_or_default();
        let group = Group::parse(&group);
        let environment = self.memory(pid, "environ", MAX_ENVIRONMENT);
        let environment = Environment::new(&environment);
        let slurm = environment.slurm(group.job.map(|job| (job, group.step.as_deref())));
        let container = group.container.as_ref();
        let pod = group.pod.as_deref();
        let uid = uid(&status);
        Identity {
            title: title::title(command, name),
            uid,
            user: uid.map(user_name).unwrap_or_default(),
            namespace_pid: namespace_pid(&status),
            pod: pod.map(|uid| self.logs.pod(uid, container.map(|one| one.id.as_str()))),
            rank: environment.rank(slurm.as_ref()),
            slurm,
            container: group.container,
            cgroup: group.path,
        }
    }

    fn path(&self, pid: u32, file: &str) -> PathBuf {
        self.proc.join(pid.to_string()).join(file)
    }

    /// Reads a file whose contents are in the memory of the process, which may not answer.
    fn memory(&self, pid: u32, file: &str, most: u64) -> Vec<u8> {
        let read = if self.proc == Path::new("/proc") {
            gputrace_reader::file(pid, file, most)
        } else {
            kernel::read_some(self.path(pid, file), most)
        };
        read.unwrap_or_default()
    }
}

/// The real user id in `/proc/PID/status`.
fn uid(status: &str) -> Option<u32> {
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    ids.split_ascii_whitespace().next()?.parse().ok()
}

/// The id in the innermost pid namespace in `/proc/PID/status`, if the process is not in
/// gputrace's: the outermost comes first, as far as it is visible.
pub(crate) fn namespace_pid(status: &str) -> Option<u32> {
    let ids = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))?;
    ids.split_ascii_whitespace().skip(1).last()?.parse().ok()
}

/// The login name of a user, or the number if there is none. The system's database may be across
/// the network, so it is asked once for each user.
#[must_use]
pub fn user_name(uid: u32) -> String {
    static KNOWN: Mutex<BTreeMap<u32, String>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(name) = known.get(&uid) {
        return name.clone();
    }
    let name = uzers::get_user_by_uid(uid).map_or_else(
        || uid.to_string(),
        |user| control_group::cut(&user.name().to_string_lossy(), LONGEST_USER),
    );
    if known.len() < MOST_USERS {
        known.insert(uid, name.clone());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn this_process() {
        let me = Sources::default().identify(std::process::id());
        assert_eq!(me.uid, Some(rustix::process::getuid().as_raw()));
        assert!(!me.user.is_empty() && !me.title.is_empty(), "{me:?}");
        assert!(me.cgroup.starts_with('/'), "{me:?}");
        let nobody = Sources::default().identify(1 << 30);
        assert!(nobody.is_empty(), "{nobody:?}");
    }

    #[test]
    fn a_rank_of_a_job_in_a_pod() {
        let directory = tempfile::tempdir().unwrap();
        let id = "0123456789abcdef".repeat(4);
        let write = |name: &str, text: String| {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("proc/7/comm", "pt_main_thread\n".to_owned());
        write(
            "proc/7/cmdline",
            "/usr/bin/python3.12\0-u\0/w/train.py\0".to_owned(),
        );
        write(
            "proc/7/status",
            "Name:\tx\nUid:\t424242\t0\t0\t0\nNSpid:\t7\t3\t1\n".to_owned(),
        );
        write(
            "proc/7/cgroup",
            format!("0::/kubepods.slice/kubepods-pod12345678_90.slice/crio-{id}.scope\n"),
        );
        write(
            "proc/7/environ",
            "SLURM_JOB_ID=5\0SLURM_STEP_ID=0\0RANK=1\0WORLD_SIZE=2\0".to_owned(),
        );
        write("pods/ml_train_12345678-90/worker/0.log", String::new());
        let sources = Sources {
            proc: directory.path().join("proc"),
            logs: PodLogs {
                pods: directory.path().join("pods"),
                containers: directory.path().join("none"),
            },
            ..Sources::default()
        };
        let found = sources.identify(7);
        assert_eq!(found.title, "python train.py");
        assert_eq!((found.uid, found.user.as_str()), (Some(424_242), "424242"));
        assert_eq!(found.namespace_pid, Some(1));
        assert_eq!(
            found.places(),
            [
                "job 5.0",
                "pod ml/train (worker)",
                "cri-o 0123456789ab",
                "rank 1 of 2"
            ]
        );
    }
}
