//! The owner of a process: its name, user and container.

use std::path::Path;

use gputrace_files::kernel;
use gputrace_kfd::Paths;
use serde::Serialize;

/// Identifies a process for people. What cannot be read is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Owner {
    /// Name of its main thread.
    pub(super) name: Option<String>,
    pub(super) uid: Option<u32>,
    /// Login name, or the number if it has none.
    pub(super) user: Option<String>,
    pub(super) container: Option<Container>,
}

/// A container, as far as names of control groups identify it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Container {
    /// `docker`, `podman`, `containerd` and so on, or `container`.
    pub(super) engine: String,
    /// Its id, or its name where the engine uses names.
    pub(super) id: String,
    /// The control group.
    pub(super) cgroup: String,
}

impl Owner {
    /// Reads the data from `/proc`; empty if the process is gone.
    pub(super) fn read(paths: &Paths, pid: u32) -> Self {
        let directory = paths.proc.join(pid.to_string());
        let uid = uid(&directory);
        Self {
            name: kernel::read(directory.join("comm")).ok().map(|bytes| {
                let name = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
                String::from_utf8_lossy(name).into_owned()
            }),
            uid,
            user: uid.map(user_name),
            container: kernel::read_text(directory.join("cgroup"))
                .ok()
                .and_then(|text| Container::of(&text)),
        }
    }
}

impl Container {
    /// Parses `/proc/PID/cgroup`: lines of `hierarchy:controllers:path`.
    fn of(text: &str) -> Option<Self> {
        text.lines()
            .filter_map(|line| line.splitn(3, ':').nth(2))
            .find_map(Self::of_path)
    }

    /// Engines name a group after the container. In Kubernetes it is inside the pod's group.
    fn of_path(path: &str) -> Option<Self> {
        // Length of an id: SHA-256 in hexadecimal.
        const ID: usize = 64;
        let is_id =
            |text: &str| text.len() == ID && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let mut parent = "";
        for part in path.split('/') {
            let bare = part.strip_suffix(".scope").unwrap_or(part);
            let found = if let Some(name) = bare.strip_prefix("lxc.payload.") {
                Some(("lxc", name))
            } else if let Some(name) = bare.strip_prefix("machine-") {
                Some(("machine", name))
            } else if is_id(bare) {
                Some((parent, bare))
            } else {
                bare.rsplit_once('-').filter(|(_, id)| is_id(id))
            };
            if let Some((engine, id)) = found {
                return Some(Self {
                    engine: match engine {
                        "libpod" => "podman",
                        "cri-containerd" => "containerd",
                        "crio" => "cri-o",
                        "docker" | "lxc" | "machine" => engine,
                        _ => "container",
                    }
                    .to_owned(),
                    id: id.to_owned(),
                    cgroup: path.to_owned(),
                });
            }
            parent = bare;
        }
        None
    }

    /// Short name for people: the first characters of an id are enough for every engine.
    pub(super) fn label(&self) -> String {
        const SHORT: usize = 12;
        const NAME: usize = 32;
        let is_id = self.id.len() > NAME;
        let id: String = self
            .id
            .chars()
            .take(if is_id { SHORT } else { NAME })
            .collect();
        format!("{} {id}", self.engine)
    }
}

/// The real user id.
fn uid(directory: &Path) -> Option<u32> {
    let status = kernel::read_text(directory.join("status")).ok()?;
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    ids.split_ascii_whitespace().next()?.parse().ok()
}

fn user_name(uid: u32) -> String {
    uzers::get_user_by_uid(uid).map_or_else(
        || uid.to_string(),
        |user| user.name().to_string_lossy().into_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn control_groups_of_the_usual_engines() {
        let id = "0123456789abcdef".repeat(4);
        for (path, engine) in [
            (format!("/system.slice/docker-{id}.scope"), "docker"),
            (format!("/docker/{id}"), "docker"),
            (
                format!("/machine.slice/libpod-{id}.scope/container"),
                "podman",
            ),
            (
                format!("/kubepods.slice/kubepods-pod1.slice/cri-containerd-{id}.scope"),
                "containerd",
            ),
            (format!("/kubepods/besteffort/pod77-1/{id}"), "container"),
        ] {
            let container = Container::of(&format!("0::{path}\n")).unwrap();
            assert_eq!(
                (container.engine.as_str(), &container.id),
                (engine, &id),
                "{path}"
            );
            assert_eq!(container.label(), format!("{engine} 0123456789ab"));
            assert_eq!(container.cgroup, path);
        }
        let lxc = Container::of("12:memory:/\n0::/lxc.payload.build1/init.scope\n").unwrap();
        assert_eq!(lxc.label(), "lxc build1");
        for none in [
            "",
            "0::/",
            "0::/user.slice/user-1000.slice/session-2.scope\n",
            "nonsense",
        ] {
            assert_eq!(Container::of(none), None, "{none}");
        }
    }

    #[test]
    fn this_process() {
        let owner = Owner::read(&Paths::default(), std::process::id());
        assert!(owner.name.is_some() && owner.user.is_some());
        assert_eq!(Owner::read(&Paths::default(), u32::MAX), Owner::default());
    }

    proptest! {
        #[test]
        fn any_control_group_is_bearable(text in "([0-9]:|docker-|lxc.payload.|[a-f0-9]{64}|/|\\PC|\n){0,12}") {
            let _ = Container::of(&text).map(|container| container.label());
        }
    }
}
