//! The owner of a process: its name, user and container.

use gputrace_capture::identity::Identity;
use gputrace_files::kernel;
use gputrace_kfd::Paths;
use gputrace_text::Page;
use gputrace_tracee::whose::Sources;
use serde::Serialize;

use super::table::{Align, Table, cut};

/// Identifies a process for people. What cannot be read is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Owner {
    /// Name of its main thread.
    pub(super) name: Option<String>,
    pub(super) uid: Option<u32>,
    /// Login name, or the number if it has none.
    pub(super) user: Option<String>,
    pub(super) container: Option<Container>,
    /// All that is known.
    #[serde(skip_serializing_if = "Identity::is_empty")]
    pub(super) identity: Identity,
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
        let name = kernel::read(paths.proc.join(pid.to_string()).join("comm"));
        let identity = Sources {
            proc: paths.proc.clone(),
            ..Sources::default()
        }
        .identify(pid);
        Self {
            name: name.ok().map(|bytes| {
                let name = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
                String::from_utf8_lossy(name).into_owned()
            }),
            uid: identity.uid,
            user: Some(identity.user.clone()).filter(|user| !user.is_empty()),
            container: identity.container.as_ref().map(|container| Container {
                engine: container.runtime.clone(),
                id: container.id.clone(),
                cgroup: identity.cgroup.clone(),
            }),
            identity,
        }
    }

    /// The program as people know it.
    pub(super) fn title(&self) -> Option<&str> {
        let title = Some(self.identity.title.as_str()).filter(|title| !title.is_empty());
        title.or(self.name.as_deref())
    }

    /// Where the process belongs, for people; `None` if its name and user say all.
    pub(super) fn place(&self) -> Option<String> {
        let inside = self.identity.namespace_pid;
        let inside = inside.map(|pid| format!("pid {pid} inside"));
        let places: Vec<String> = self.identity.places().into_iter().chain(inside).collect();
        (!places.is_empty()).then(|| places.join(", "))
    }
}

/// Appends a table of processes and where they belong; nothing if there are none.
pub(super) fn show_places(out: &mut Page<String>, places: Vec<(u32, String)>) {
    let mut table = Table::new(&[("PID", Align::Right), ("WHERE", Align::Left)]);
    for (pid, place) in places {
        table.row([pid.to_string(), cut(&place, 80)]);
    }
    table.section(out, "Containers, pods, jobs, ranks");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process() {
        let owner = Owner::read(&Paths::default(), std::process::id());
        assert!(owner.name.is_some() && owner.user.is_some() && owner.title().is_some());
        assert_eq!(Owner::read(&Paths::default(), u32::MAX), Owner::default());
    }
}
