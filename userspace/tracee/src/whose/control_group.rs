//! What the names of control groups say: container, pod, Slurm job.
//!
//! | form | source |
//! |---|---|
//! | `docker-ID.scope`, `/docker/ID` | Docker with its systemd and its cgroupfs driver |
//! | `libpod-ID.scope`, `…/libpod-ID/container` | Podman (`libpod/container_internal_linux.go`) |
//! | `cri-containerd-ID.scope` | containerd's CRI plugin (`getCgroupsPath`) |
//! | `SLICE:cri-containerd:ID` | the same, if runc does not use systemd but kubelet does |
//! | `crio-ID.scope` | CRI-O (`internal/config/cgmgr`) |
//! | `kubepods…/podUID/ID`, `kubepods…-podUID.slice/…` | kubelet (`pkg/kubelet/cm`), both drivers |
//! | `lxc.payload.NAME`, `lxc.payload/NAME`, `/lxc/NAME` | LXC since 4.0, in 3.1, before |
//! | `machine-NAME.scope`, `systemd-nspawn@NAME.service` | systemd-machined, systemd-nspawn |
//! | `slurm/uid_N/job_N/step_N` | Slurm's cgroup/v1 plugin |
//! | `slurmstepd.scope/job_N/step_N` | Slurm's cgroup/v2 plugin |
//!
//! In systemd's names of slices, kubelet writes the `-` of a UID as `_`. kind and minikube run
//! kubelet in a container, so several containers may be in one path: the innermost counts.

use gputrace_capture::identity::Container;

/// Length of a container's id: SHA-256 in hexadecimal.
const ID: usize = 64;
/// Maximum length of a path that is kept, bytes (`PATH_MAX`).
const LONGEST_PATH: usize = 4096;
/// Maximum length of a name that is taken from a path, bytes (`NAME_MAX`).
const LONGEST_NAME: usize = 255;

/// What `/proc/PID/cgroup` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// The path that says where the process belongs: of version 2, if it does.
    pub path: String,
    /// The innermost container.
    pub container: Option<Container>,
    /// UID of the Kubernetes pod, with `-`.
    pub pod: Option<String>,
    /// Number of the Slurm job.
    pub job: Option<u32>,
    /// The job's step: a number or a name such as `batch`.
    pub step: Option<String>,
}

impl Group {
    /// Parses `/proc/PID/cgroup`: lines of `hierarchy:controllers:path` (cgroups(7)). The unified
    /// hierarchy has number 0. A node with both versions may keep containers in version 1 only.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let paths = || text.lines().filter_map(|line| line.splitn(3, ':').nth(2));
        let unified = text.lines().find_map(|line| line.strip_prefix("0::"));
        let telling = unified.into_iter().chain(paths()).map(Self::of_path);
        telling
            .into_iter()
            .find(Self::tells)
            .or_else(|| {
                // All processes may be at the root of the version that the node does not use.
                let used = unified.into_iter().chain(paths()).find(|path| *path != "/");
                used.or(unified)
                    .or_else(|| paths().next())
                    .map(Self::of_path)
            })
            .unwrap_or_default()
    }

    /// Whether the path says where the process belongs.
    fn tells(&self) -> bool {
        self.container.is_some() || self.pod.is_some() || self.job.is_some()
    }

    /// Examines one path.
    #[must_use]
    pub fn of_path(path: &str) -> Self {
        let mut group = Self {
            path: cut(path, LONGEST_PATH),
            ..Self::default()
        };
        let (mut parent, mut is_kubernetes, mut is_slurm) = ("", false, false);
        for part in path.split('/').filter(|part| part.len() <= LONGEST_NAME) {
            is_kubernetes |= part.contains("kubepods");
            is_slurm |= is_of_slurm(part);
            if is_kubernetes && let Some(pod) = pod(part) {
                group.pod = Some(pod);
            }
            if is_slurm {
                if let Some(job) = part.strip_prefix("job_").and_then(|job| job.parse().ok()) {
                    (group.job, group.step) = (Some(job), None);
                }
                if let (Some(step), true) = (part.strip_prefix("step_"), group.job.is_some()) {
                    group.step = is_name(step).then(|| step.to_owned());
                }
            }
            if let Some(container) = container(parent, part) {
                group.container = Some(container);
            }
            parent = part;
        }
        group
    }
}

/// Whether a group's name is one of slurmd's, below which it has its jobs. With several slurmd on
/// a node, the name has that of the (virtual) node.
fn is_of_slurm(part: &str) -> bool {
    part == "slurm" || part.starts_with("slurm_") || part.ends_with("slurmstepd.scope")
}

/// The container after which a group is named.
fn container(parent: &str, part: &str) -> Option<Container> {
    let found = |runtime: &str, id: &str| {
        Some(Container {
            runtime: runtime.to_owned(),
            id: id.to_owned(),
        })
    };
    let bare = part.strip_suffix(".scope").unwrap_or(part);
    if let Some(name) = bare.strip_prefix("lxc.payload.") {
        return found("lxc", name).filter(|one| !one.id.is_empty());
    }
    if matches!(parent, "lxc" | "lxc.payload") && !bare.is_empty() {
        return found("lxc", bare);
    }
    if bare.len() < part.len()
        && let Some(name) = bare.strip_prefix("machine-")
    {
        return machine(&unescaped(name));
    }
    let service = part.strip_suffix(".service");
    if let Some(name) = service.and_then(|name| name.strip_prefix("systemd-nspawn@")) {
        return found("systemd-nspawn", &unescaped(name));
    }
    if is_id(bare) {
        let runtime = if parent == "docker" {
            "docker"
        } else {
            "container"
        };
        return found(runtime, bare);
    }
    let (rest, id) = bare.rsplit_once(['-', ':']).filter(|(_, id)| is_id(id))?;
    let prefix = rest.rsplit(':').next().unwrap_or(rest);
    // conmon watches a container from outside.
    if prefix.ends_with("conmon") {
        return None;
    }
    found(runtime(prefix), id)
}

/// The runtime that puts `prefix` before its containers' ids.
fn runtime(prefix: &str) -> &'static str {
    match prefix {
        "docker" => "docker",
        "libpod" => "podman",
        "cri-containerd" => "containerd",
        "crio" => "cri-o",
        "nerdctl" => "nerdctl",
        _ => "container",
    }
}

/// A machine that systemd-machined knows. libvirt's have the name of its driver before their
/// number; QEMU's are no containers.
fn machine(name: &str) -> Option<Container> {
    if name.is_empty() || name.starts_with("qemu-") {
        return None;
    }
    let runtime = if name.starts_with("lxc-") {
        "libvirt-lxc"
    } else {
        "systemd-nspawn"
    };
    Some(Container {
        runtime: runtime.to_owned(),
        id: name.to_owned(),
    })
}

/// The UID of the pod after which kubelet has named a group. Those of static pods are hashes
/// without `-`.
fn pod(part: &str) -> Option<String> {
    let slice = part.split_once(':').map_or(part, |(slice, _)| slice);
    let uid = match slice.strip_suffix(".slice") {
        Some(name) => name.rsplit_once("-pod")?.1.replace('_', "-"),
        None => slice.strip_prefix("pod")?.to_owned(),
    };
    let is_uid = |uid: &String| {
        uid.len() >= 8 && uid.len() <= ID && uid.bytes().all(|byte| is_hex(byte) || byte == b'-')
    };
    Some(uid).filter(is_uid)
}

fn is_id(text: &str) -> bool {
    text.len() == ID && text.bytes().all(is_hex)
}

fn is_hex(byte: u8) -> bool {
    byte.is_ascii_hexdigit()
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= 32 && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Undoes systemd's escaping of `-` (systemd-escape(1)); other escapes do not occur in machines'
/// names.
fn unescaped(name: &str) -> String {
    name.replace("\\x2d", "-")
}

/// The longest beginning of `text` of at most `most` bytes.
pub(super) fn cut(text: &str, most: usize) -> String {
    text[..text.floor_char_boundary(most)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UID: &str = "3fa85f64-5717-4562-b3fc-2c963f66afa6";

    fn id() -> String {
        "0123456789abcdef".repeat(4)
    }

    #[test]
    fn containers() {
        let id = id();
        for (path, runtime) in [
            // Docker on a host with systemd and cgroup v2, and with the cgroupfs driver.
            (format!("/system.slice/docker-{id}.scope"), "docker"),
            (format!("/docker/{id}"), "docker"),
            // Docker seen from a container with a cgroup namespace of its own.
            (format!("/../docker-{id}.scope"), "docker"),
            // Podman: root, rootless, and a systemd inside.
            (
                format!("/machine.slice/libpod-{id}.scope/container"),
                "podman",
            ),
            (
                format!(
                    "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{id}.scope\
                     /container/init.scope"
                ),
                "podman",
            ),
            (format!("/libpod_parent/libpod-{id}"), "podman"),
            // kubelet with containerd, with CRI-O, and with the cgroupfs driver.
            (
                format!("/kubepods.slice/kubepods-pod1.slice/cri-containerd-{id}.scope"),
                "containerd",
            ),
            (
                format!("/kubepods.slice/kubepods-pod1.slice/crio-{id}.scope/container"),
                "cri-o",
            ),
            (
                format!("/system.slice/containerd.service/kubepods-pod1.slice:cri-containerd:{id}"),
                "containerd",
            ),
            (format!("/kubepods/besteffort/pod77-1/{id}"), "container"),
            (format!("/user.slice/nerdctl-{id}.scope"), "nerdctl"),
        ] {
            let group = Group::parse(&format!("0::{path}\n"));
            let container = group.container.unwrap();
            assert_eq!(
                (container.runtime.as_str(), &container.id),
                (runtime, &id),
                "{path}"
            );
            assert_eq!(group.path, path);
        }
        for (path, runtime, name) in [
            ("/lxc.payload.build1/init.scope", "lxc", "build1"),
            ("/lxc.payload/build1", "lxc", "build1"),
            ("/lxc/100/ns/system.slice", "lxc", "100"),
            (
                r"/machine.slice/machine-my\x2dbox.scope/payload",
                "systemd-nspawn",
                "my-box",
            ),
            (
                "/machine.slice/systemd-nspawn@box.service/payload",
                "systemd-nspawn",
                "box",
            ),
            (
                r"/machine.slice/machine-lxc\x2d7\x2dweb.scope",
                "libvirt-lxc",
                "lxc-7-web",
            ),
        ] {
            let container = Group::of_path(path).container.unwrap();
            assert_eq!(
                (container.runtime.as_str(), container.id.as_str()),
                (runtime, name)
            );
        }
    }

    #[test]
    fn what_is_no_container() {
        let id = id();
        for none in [
            String::new(),
            "0::/".to_owned(),
            "nonsense".to_owned(),
            "0::/user.slice/user-1000.slice/session-2.scope\n".to_owned(),
            format!("0::/machine.slice/libpod-conmon-{id}.scope"),
            format!("0::/system.slice/crio-conmon-{id}.scope"),
            r"0::/machine.slice/machine-qemu\x2d1\x2dvm.scope/libvirt/emulator".to_owned(),
            "0::/lxc.monitor.build1".to_owned(),
            format!("0::/system.slice/docker-{}.scope", &id[1..]),
        ] {
            assert_eq!(Group::parse(&none).container, None, "{none}");
        }
    }

    #[test]
    fn the_innermost_container_counts() {
        // kind: a node of Kubernetes is a Docker container.
        let (node, id) = ("f".repeat(64), id());
        let uid = UID.replace('-', "_");
        let group = Group::of_path(&format!(
            "/system.slice/docker-{node}.scope/kubelet.slice/kubelet-kubepods.slice\
             /kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-pod{uid}.slice\
             /cri-containerd-{id}.scope"
        ));
        assert_eq!(group.container.unwrap().id, id);
        assert_eq!(group.pod.as_deref(), Some(UID));
    }

    #[test]
    fn pods() {
        let (id, escaped) = (id(), UID.replace('-', "_"));
        for path in [
            format!("/kubepods.slice/kubepods-pod{escaped}.slice/cri-containerd-{id}.scope"),
            format!("/kubepods.slice/kubepods-burstable-pod{escaped}.slice/crio-{id}.scope"),
            format!("/kubepods/burstable/pod{UID}/{id}"),
            format!("/kubepods/pod{UID}/{id}"),
            format!("/system.slice/x/kubepods-besteffort-pod{escaped}.slice:cri-containerd:{id}"),
        ] {
            assert_eq!(Group::of_path(&path).pod.as_deref(), Some(UID), "{path}");
        }
        // A static pod: its UID is the hash of its file.
        let path = "/kubepods.slice/kubepods-burstable-pod1ff5f4d3d1f6a2e9c7b8a0d1e2f30415.slice";
        let uid = Group::of_path(path).pod.unwrap();
        assert_eq!(uid, "1ff5f4d3d1f6a2e9c7b8a0d1e2f30415");
        for none in [
            "/podinfo",
            "/kubepods/podinfo",
            "/user.slice/a-pod12345678.slice",
        ] {
            assert_eq!(Group::of_path(none).pod, None, "{none}");
        }
    }

    #[test]
    fn slurm_jobs() {
        for (path, job, step) in [
            // The cgroup/v1 plugin, also with several slurmd on a node.
            ("/slurm/uid_1000/job_123/step_0/task_1", 123, Some("0")),
            ("/slurm_node7/uid_1000/job_5/step_batch", 5, Some("batch")),
            // The cgroup/v2 plugin.
            (
                "/system.slice/slurmstepd.scope/job_9/step_extern/user/task_special",
                9,
                Some("extern"),
            ),
            ("/system.slice/n1_slurmstepd.scope/job_9", 9, None),
        ] {
            let group = Group::of_path(path);
            assert_eq!(
                (group.job, group.step.as_deref()),
                (Some(job), step),
                "{path}"
            );
        }
        for none in [
            "/job_5/step_0",
            "/slurm/job_x",
            "/slurm/job_99999999999",
            "/slurm/step_0",
        ] {
            let group = Group::of_path(none);
            assert_eq!((group.job, group.step), (None, None), "{none}");
        }
    }

    #[test]
    fn both_versions() {
        let id = id();
        let hybrid = format!("12:devices:/docker/{id}\n1:name=systemd:/docker/{id}\n0::/\n");
        assert_eq!(Group::parse(&hybrid).path, format!("/docker/{id}"));
        let ordinary = "4:memory:/a\n0::/user.slice\n";
        assert_eq!(Group::parse(ordinary).path, "/user.slice");
        assert_eq!(Group::parse("4:memory:/a\n3:cpu:/b\n").path, "/a");
        assert_eq!(Group::parse("4:memory:/\n3:cpu:/b\n0::/\n").path, "/b");
        assert_eq!(Group::parse("0::/\n").path, "/");
        // Colons in a path.
        assert_eq!(Group::parse("0::/a:b:c\n").path, "/a:b:c");
    }

    proptest! {
        #[test]
        fn any_text_is_bearable(
            text in "([0-9]:|0::|docker-|lxc.payload.|pod|kubepods|slurm|job_|step_|machine-\
                     |[.]scope|[.]slice|[a-f0-9]{64}|/|:|\\PC|\n){0,24}"
        ) {
            let group = Group::parse(&text);
            prop_assert!(group.path.len() <= LONGEST_PATH);
            prop_assert!(group.container.is_none_or(|one| one.id.len() <= LONGEST_NAME));
            prop_assert!(group.pod.is_none_or(|uid| uid.len() <= ID));
            prop_assert!(group.step.is_none_or(|step| step.len() <= 32));
        }
    }

    #[test]
    fn long_paths_are_cut() {
        let long = format!("0::/{}\n", "é".repeat(LONGEST_PATH));
        assert!(Group::parse(&long).path.len() <= LONGEST_PATH);
    }
}
