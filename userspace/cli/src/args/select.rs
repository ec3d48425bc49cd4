//! Options that choose running processes by whose they are.

use clap::{Args, builder::NonEmptyStringValueParser};
use gputrace_tracee::whose::selection::Selection;

/// Other ways to say whom to trace.
const OTHERS: [&str; 3] = ["pids", "all", "program"];

/// Options that choose running processes. All that are given must match.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct SelectArgs {
    /// Trace running programs with this name, e.g. 'python train.py' or '*train*'. * and ? stand
    /// for any characters and for one. Options from here to --gpu must all match; repeat one for
    /// several values.
    #[arg(long, value_name = "GLOB", group = "running", conflicts_with_all = OTHERS,
          value_parser = NonEmptyStringValueParser::new())]
    name: Vec<String>,

    /// Trace running processes in this control group and below, e.g. /system.slice/app.service or
    /// 'docker-*.scope'.
    #[arg(long, value_name = "PATH", group = "running", conflicts_with_all = OTHERS,
          value_parser = NonEmptyStringValueParser::new())]
    cgroup: Vec<String>,

    /// Trace running processes in this container, e.g. 4f5e6d7c8b9a: the beginning of its id, or
    /// its name in a pod.
    #[arg(long, value_name = "ID", group = "running", conflicts_with_all = OTHERS,
          value_parser = NonEmptyStringValueParser::new())]
    container: Vec<String>,

    /// Trace running processes in this Kubernetes pod, e.g. trainer-0 or 'ml/trainer-*'.
    #[arg(long, value_name = "POD", group = "running", conflicts_with_all = OTHERS,
          value_parser = NonEmptyStringValueParser::new())]
    pod: Vec<String>,

    /// Trace running processes of this Slurm job, e.g. 123, of its step 123.0, or of the array
    /// element 100_3.
    #[arg(long, value_name = "JOB", group = "running", conflicts_with_all = OTHERS,
          value_parser = NonEmptyStringValueParser::new())]
    job: Vec<String>,

    /// Trace running processes of this user, e.g. alice or 1000.
    #[arg(long, value_name = "USER", group = "running", conflicts_with_all = OTHERS,
          value_parser = NonEmptyStringValueParser::new())]
    user: Vec<String>,

    /// Trace running processes that have a queue or memory on this GPU, e.g. 1 (its node, as in
    /// `Agent 1`), c3:00.0 or 0000:c3:00.0 (its PCI address).
    #[arg(long, value_name = "GPU", group = "running", conflicts_with_all = OTHERS,
          value_parser = NonEmptyStringValueParser::new())]
    gpu: Vec<String>,
}

impl SelectArgs {
    /// What they choose.
    pub(crate) fn selection(&self) -> Selection {
        Selection {
            names: self.name.clone(),
            cgroups: self.cgroup.clone(),
            containers: self.container.clone(),
            pods: self.pod.clone(),
            jobs: self.job.clone(),
            users: self.user.clone(),
            gpus: self.gpu.clone(),
        }
    }
}
