//! Groups of processes: those of a container, a pod, a job or a user.

use gputrace_capture::identity::{Container, Identity, Pod, Slurm};
use serde::Serialize;

/// What the processes of a group have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupBy {
    /// The container.
    Container,
    /// The Kubernetes pod.
    Pod,
    /// The Slurm job.
    Job,
    /// The user.
    User,
}

impl GroupBy {
    /// All of them, in the order in which a key chooses them.
    pub const ALL: [Self; 4] = [Self::Container, Self::Pod, Self::Job, Self::User];

    /// The heading of its names.
    pub(crate) const fn heading(self) -> &'static str {
        match self {
            Self::Container => "CONTAINER",
            Self::Pod => "POD",
            Self::Job => "JOB",
            Self::User => "USER",
        }
    }

    /// The group of a process; `None` if it belongs to none, or if that is unknown.
    pub(crate) fn name(self, identity: &Identity) -> Option<String> {
        match self {
            Self::Container => identity.container.as_ref().map(Container::label),
            Self::Pod => identity.pod.as_ref().map(Pod::path),
            Self::Job => identity.slurm.as_ref().map(Slurm::name),
            Self::User => Some(&identity.user)
                .filter(|user| !user.is_empty())
                .cloned(),
        }
    }
}
