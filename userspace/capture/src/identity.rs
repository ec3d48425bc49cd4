//! Whose process it is: its user, container, pod, job and rank.
//!
//! The recorder reads it from `/proc` and from names of directories of Kubernetes; see
//! `gputrace_tracee::whose`, which states the source of each format. Everything here is a claim of
//! the machine or of the process: a process can choose its title and its environment, and a user
//! with a control group of its own can choose the names below it.

use serde::{Deserialize, Serialize};

/// Length of a container's id in texts for people, characters: as the tools of the runtimes show
/// it.
const SHORT_ID: usize = 12;
/// Names of containers that are longer are ids, and are shortened for people.
const LONGEST_NAME: usize = 32;

/// What identifies a process to people. What is not known, or does not apply, is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The program as people know it, e.g. `python train.py`; at most some hundred bytes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub title: String,
    /// Real user id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// Login name on the host, or the number if there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// Process id in its own pid namespace, if that is not the recorder's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_pid: Option<u32>,
    /// Path of its control group: of version 2, or of a controller of version 1 if only that says
    /// where the process belongs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cgroup: String,
    /// Its container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<Container>,
    /// Its Kubernetes pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<Pod>,
    /// Its Slurm job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slurm: Option<Slurm>,
    /// Its place in a parallel program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<Rank>,
}

/// A container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    /// `docker`, `podman`, `containerd` and so on, or `container` if the group's name does not say.
    pub runtime: String,
    /// Its id, or its name where the runtime uses names.
    pub id: String,
}

/// A Kubernetes pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pod {
    /// The pod's UID with `-`, as `kubectl` shows it.
    pub uid: String,
    /// Its namespace; empty if unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Its name; empty if unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Name of the process's container in the pod; empty if unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub container: String,
}

/// A Slurm job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slurm {
    /// Number of the job.
    pub job: u32,
    /// Array job and index, e.g. `100_3`, if the job is an element of an array; else empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub array: String,
    /// The step: a number, `batch`, `extern` or `interactive`; empty if unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub step: String,
    /// The task's rank in the step (`SLURM_PROCID`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<u32>,
}

/// A place in a parallel program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rank {
    /// Whose variables said so: `torchrun`, `openmpi`, `mvapich2`, `pmi`, `pmix` or `slurm`.
    pub launcher: String,
    /// Rank, from 0.
    pub rank: u32,
    /// Number of ranks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u32>,
    /// Rank on this node, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<u32>,
}

impl Identity {
    /// Whether nothing is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether the process belongs to a container, a pod or a job, or is one of several ranks:
    /// whether its name alone would not say whose it is.
    #[must_use]
    pub fn has_place(&self) -> bool {
        self.container.is_some()
            || self.pod.is_some()
            || self.slurm.is_some()
            || self.rank.is_some()
    }

    /// Short texts for people, from the outermost place to the innermost: job, pod, container,
    /// rank, user.
    #[must_use]
    pub fn labels(&self) -> Vec<String> {
        let user = Some(&self.user)
            .filter(|user| !user.is_empty())
            .map(|user| format!("user {user}"));
        self.places().into_iter().chain(user).collect()
    }

    /// [`Self::labels`] without the user: empty unless [`Self::has_place`].
    #[must_use]
    pub fn places(&self) -> Vec<String> {
        [
            self.slurm.as_ref().map(Slurm::label),
            self.pod.as_ref().map(Pod::label),
            self.container.as_ref().map(Container::label),
            self.rank.as_ref().map(Rank::label),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// What still holds for a child that the process has just forked. Its id in its namespace is
    /// another, and unknown.
    #[must_use]
    pub fn of_child(self) -> Self {
        Self {
            namespace_pid: None,
            ..self
        }
    }

    /// What still holds after the process has executed another program: where it is, but not what
    /// its environment and its arguments say, nor its user, whom a set-user-ID program changes.
    #[must_use]
    pub fn after_exec(self) -> Self {
        Self {
            title: String::new(),
            uid: None,
            user: String::new(),
            slurm: None,
            rank: None,
            ..self
        }
    }
}

impl Container {
    /// For people, e.g. `docker 0123456789ab`. The first characters of an id are enough for every
    /// runtime.
    #[must_use]
    pub fn label(&self) -> String {
        let is_id = self.id.chars().count() > LONGEST_NAME;
        let most = if is_id { SHORT_ID } else { LONGEST_NAME };
        let id: String = self.id.chars().take(most).collect();
        format!("{} {id}", self.runtime)
    }
}

impl Pod {
    /// Namespace and name, e.g. `default/trainer`; the UID if they are unknown.
    #[must_use]
    pub fn path(&self) -> String {
        if self.name.is_empty() {
            self.uid.clone()
        } else {
            format!("{}/{}", self.namespace, self.name)
        }
    }

    /// For people, e.g. `pod default/trainer (main)`.
    #[must_use]
    pub fn label(&self) -> String {
        let path = self.path();
        if self.container.is_empty() {
            format!("pod {path}")
        } else {
            format!("pod {path} ({})", self.container)
        }
    }
}

impl Slurm {
    /// The job without its step, as Slurm's tools name it: `123`, or `100_3` in an array.
    #[must_use]
    pub fn name(&self) -> String {
        if self.array.is_empty() {
            self.job.to_string()
        } else {
            self.array.clone()
        }
    }

    /// For people, e.g. `job 123.0`, as Slurm's tools name a step.
    #[must_use]
    pub fn label(&self) -> String {
        let job = self.name();
        if self.step.is_empty() {
            format!("job {job}")
        } else {
            format!("job {job}.{}", self.step)
        }
    }
}

impl Rank {
    /// For people, e.g. `rank 3 of 8`.
    #[must_use]
    pub fn label(&self) -> String {
        match self.size {
            Some(size) => format!("rank {} of {size}", self.rank),
            None => format!("rank {}", self.rank),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn everything() -> Identity {
        Identity {
            title: "python train.py".to_owned(),
            uid: Some(1000),
            user: "alice".to_owned(),
            namespace_pid: Some(7),
            cgroup: "/job_9".to_owned(),
            container: Some(Container {
                runtime: "containerd".to_owned(),
                id: "0123456789abcdef".repeat(4),
            }),
            pod: Some(Pod {
                uid: "1-2".to_owned(),
                namespace: "default".to_owned(),
                name: "trainer".to_owned(),
                container: "main".to_owned(),
            }),
            slurm: Some(Slurm {
                job: 123,
                step: "0".to_owned(),
                ..Slurm::default()
            }),
            rank: Some(Rank {
                launcher: "torchrun".to_owned(),
                rank: 3,
                size: Some(8),
                local: None,
            }),
        }
    }

    #[test]
    fn labels_are_short() {
        assert_eq!(
            everything().labels(),
            [
                "job 123.0",
                "pod default/trainer (main)",
                "containerd 0123456789ab",
                "rank 3 of 8",
                "user alice"
            ]
        );
        assert!(everything().has_place() && !Identity::default().has_place());
        assert_eq!(Identity::default().labels(), [""; 0]);
        let unnamed = Pod {
            uid: "1-2".to_owned(),
            ..Pod::default()
        };
        assert_eq!(unnamed.label(), "pod 1-2");
    }

    #[test]
    fn what_is_unknown_takes_no_room() {
        assert_eq!(serde_json::to_string(&Identity::default()).unwrap(), "{}");
        assert_eq!(
            serde_json::from_str::<Identity>(r#"{"of_a_newer_version": 1}"#).unwrap(),
            Identity::default()
        );
        let text = serde_json::to_string(&everything()).unwrap();
        assert_eq!(
            serde_json::from_str::<Identity>(&text).unwrap(),
            everything()
        );
    }

    #[test]
    fn children_and_other_programs() {
        let child = everything().of_child();
        assert_eq!((child.namespace_pid, child.uid), (None, Some(1000)));
        let executed = everything().after_exec();
        assert_eq!(executed.container, everything().container);
        assert_eq!(
            (executed.rank, executed.slurm, executed.uid),
            (None, None, None)
        );
    }
}
