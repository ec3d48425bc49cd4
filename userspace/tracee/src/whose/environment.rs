//! What a process's environment says: Slurm job, ranks.
//!
//! `/proc/PID/environ` has the environment that the process was started with; what it changes
//! later is not there (proc_pid_environ(5)). Only numbers are taken, so nothing here is text of
//! the process.
//!
//! | variables | source |
//! |---|---|
//! | `SLURM_JOB_ID`, `SLURM_STEP_ID`, `SLURM_ARRAY_*` | srun(1), sbatch(1) |
//! | `SLURM_PROCID`, `SLURM_STEP_NUM_TASKS`, `SLURM_LOCALID` | srun(1) |
//! | `RANK`, `WORLD_SIZE`, `LOCAL_RANK` | torchrun (documentation of `torch.distributed.run`) |
//! | `OMPI_COMM_WORLD_*` | Open MPI, mpirun(1) |
//! | `MV2_COMM_WORLD_*` | MVAPICH2's user guide, "MPI and process information" |
//! | `PMI_RANK`, `PMI_SIZE`, `MPI_LOCALRANKID` | MPICH's Hydra, Intel MPI |
//! | `PMIX_RANK` | OpenPMIx (`PMIx_server_setup_fork`), which sets no number of ranks |

use gputrace_capture::identity::{Rank, Slurm};

/// Variables that give a rank, by launcher: rank, number of ranks, rank on the node. The first
/// launcher whose variables are complete counts. torchrun comes first, because its workers inherit
/// the variables of the launcher that started torchrun itself, once per node.
const LAUNCHERS: [Launcher; 5] = [
    Launcher {
        name: "torchrun",
        rank: "RANK",
        size: "WORLD_SIZE",
        local: Some("LOCAL_RANK"),
        is_sized: true,
    },
    Launcher {
        name: "openmpi",
        rank: "OMPI_COMM_WORLD_RANK",
        size: "OMPI_COMM_WORLD_SIZE",
        local: Some("OMPI_COMM_WORLD_LOCAL_RANK"),
        is_sized: false,
    },
    Launcher {
        name: "mvapich2",
        rank: "MV2_COMM_WORLD_RANK",
        size: "MV2_COMM_WORLD_SIZE",
        local: Some("MV2_COMM_WORLD_LOCAL_RANK"),
        is_sized: false,
    },
    Launcher {
        name: "pmi",
        rank: "PMI_RANK",
        size: "PMI_SIZE",
        local: Some("MPI_LOCALRANKID"),
        is_sized: false,
    },
    Launcher {
        name: "pmix",
        rank: "PMIX_RANK",
        size: "SLURM_STEP_NUM_TASKS",
        local: None,
        is_sized: false,
    },
];

/// Slurm's steps that have names have numbers close to the highest in the environment
/// (`slurm/slurm.h`: `SLURM_EXTERN_CONT` and so on).
const STEPS: [(u32, &str); 3] = [
    (0xffff_fffa, "interactive"),
    (0xffff_fffb, "batch"),
    (0xffff_fffc, "extern"),
];

struct Launcher {
    name: &'static str,
    rank: &'static str,
    size: &'static str,
    local: Option<&'static str>,
    /// Whether the rank counts only with the number of ranks: its name is an ordinary word.
    is_sized: bool,
}

/// The variables of a process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Environment<'a>(&'a [u8]);

impl<'a> Environment<'a> {
    /// From the contents of `/proc/PID/environ`: `NAME=VALUE`, each ended by a zero byte.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The number in a variable. As for `getenv`, the first of several with this name counts.
    fn number(&self, name: &str) -> Option<u32> {
        let value = self
            .0
            .split(|byte| *byte == 0)
            .find_map(|one| one.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
        let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
        is_number.then(|| std::str::from_utf8(value).ok()?.parse().ok())?
    }

    /// The Slurm job. `of_group` is the job and step that the control group names, which counts
    /// more, because a process cannot choose it.
    #[must_use]
    pub fn slurm(&self, of_group: Option<(u32, Option<&str>)>) -> Option<Slurm> {
        let job = self
            .number("SLURM_JOB_ID")
            .or_else(|| self.number("SLURM_JOBID"));
        let (group_job, group_step) = of_group.unzip();
        let bare = Slurm {
            job: group_job.or(job)?,
            step: group_step.flatten().unwrap_or_default().to_owned(),
            ..Slurm::default()
        };
        if job != Some(bare.job) {
            return Some(bare);
        }
        let array = self
            .number("SLURM_ARRAY_JOB_ID")
            .zip(self.number("SLURM_ARRAY_TASK_ID"));
        let step = self
            .number("SLURM_STEP_ID")
            .or_else(|| self.number("SLURM_STEPID"));
        Some(Slurm {
            array: array.map_or(String::new(), |(job, task)| format!("{job}_{task}")),
            step: if bare.step.is_empty() {
                step.map_or(String::new(), step_name)
            } else {
                bare.step
            },
            task: self.number("SLURM_PROCID"),
            ..bare
        })
    }

    /// The place in a parallel program; `slurm` is what [`Self::slurm`] found. In a batch script,
    /// Slurm sets a rank although nothing is parallel yet, so its own rank counts only in numbered
    /// steps.
    #[must_use]
    pub fn rank(&self, slurm: Option<&Slurm>) -> Option<Rank> {
        let found = LAUNCHERS.iter().find_map(|launcher| {
            let size = self.number(launcher.size);
            let rank = self.number(launcher.rank)?;
            (size.is_some() || !launcher.is_sized).then(|| Rank {
                launcher: launcher.name.to_owned(),
                rank,
                size,
                local: launcher.local.and_then(|name| self.number(name)),
            })
        });
        found.or_else(|| {
            let slurm = slurm.filter(|slurm| slurm.step.parse::<u32>().is_ok())?;
            Some(Rank {
                launcher: "slurm".to_owned(),
                rank: slurm.task?,
                size: self
                    .number("SLURM_STEP_NUM_TASKS")
                    .or_else(|| self.number("SLURM_NTASKS")),
                local: self.number("SLURM_LOCALID"),
            })
        })
    }
}

fn step_name(number: u32) -> String {
    let named = STEPS.iter().find(|(known, _)| *known == number);
    named.map_or_else(|| number.to_string(), |(_, name)| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(variables: &[&str]) -> Vec<u8> {
        let ended = variables.iter().map(|one| format!("{one}\0"));
        ended.collect::<String>().into_bytes()
    }

    fn rank(variables: &[&str]) -> Option<(String, u32, Option<u32>, Option<u32>)> {
        let bytes = bytes(variables);
        let environment = Environment::new(&bytes);
        let slurm = environment.slurm(None);
        let rank = environment.rank(slurm.as_ref())?;
        Some((rank.launcher, rank.rank, rank.size, rank.local))
    }

    #[test]
    fn launchers() {
        for (variables, launcher, expected) in [
            (
                &["RANK=5", "WORLD_SIZE=16", "LOCAL_RANK=1", "PMIX_RANK=0"][..],
                "torchrun",
                (5, Some(16), Some(1)),
            ),
            (
                &[
                    "OMPI_COMM_WORLD_RANK=2",
                    "OMPI_COMM_WORLD_SIZE=4",
                    "PMIX_RANK=2",
                ],
                "openmpi",
                (2, Some(4), None),
            ),
            (
                &[
                    "MV2_COMM_WORLD_RANK=1",
                    "MV2_COMM_WORLD_SIZE=2",
                    "MV2_COMM_WORLD_LOCAL_RANK=0",
                ],
                "mvapich2",
                (1, Some(2), Some(0)),
            ),
            (&["PMI_RANK=3", "PMI_SIZE=8"], "pmi", (3, Some(8), None)),
            (&["PMIX_RANK=7"], "pmix", (7, None, None)),
            (
                &[
                    "SLURM_JOB_ID=9",
                    "SLURM_STEP_ID=0",
                    "SLURM_PROCID=1",
                    "SLURM_NTASKS=2",
                ],
                "slurm",
                (1, Some(2), None),
            ),
        ] {
            let (number, size, local) = expected;
            assert_eq!(
                rank(variables),
                Some((launcher.to_owned(), number, size, local))
            );
        }
        // A variable with an ordinary name, a batch script, values that are no numbers.
        for none in [
            &["RANK=5"][..],
            &["SLURM_JOB_ID=9", "SLURM_PROCID=0", "SLURM_NTASKS=2"],
            &["PMI_RANK=-1"],
            &["PMI_RANK=+1"],
            &["PMI_RANK="],
            &["PMI_RANK=99999999999"],
            &["XPMI_RANK=1", "PMI_RANKS=1"],
        ] {
            assert_eq!(rank(none), None, "{none:?}");
        }
    }

    #[test]
    fn slurm_jobs() {
        let variables = bytes(&[
            "SLURM_JOB_ID=123",
            "SLURM_STEP_ID=4294967291",
            "SLURM_PROCID=0",
            "SLURM_ARRAY_JOB_ID=100",
            "SLURM_ARRAY_TASK_ID=3",
            "SLURM_JOB_ID=7",
        ]);
        let environment = Environment::new(&variables);
        let slurm = environment.slurm(None).unwrap();
        assert_eq!(
            (slurm.job, slurm.step.as_str(), slurm.task),
            (123, "batch", Some(0))
        );
        assert_eq!(slurm.array, "100_3");
        // The control group counts more, for the step too; a lie about the job makes the rest
        // worthless.
        let slurm = environment.slurm(Some((123, Some("2")))).unwrap();
        assert_eq!((slurm.job, slurm.step.as_str()), (123, "2"));
        let slurm = environment.slurm(Some((5, None))).unwrap();
        let expected = Slurm {
            job: 5,
            ..Slurm::default()
        };
        assert_eq!(slurm, expected);
        assert_eq!(Environment::default().slurm(None), None);
    }

    proptest! {
        #[test]
        fn any_environment_is_bearable(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            names in proptest::collection::vec(0..LAUNCHERS.len(), 0..5),
        ) {
            let mut all = bytes;
            for at in names {
                all.extend(format!("\0{}=1\0{}=2", LAUNCHERS[at].rank, LAUNCHERS[at].size).bytes());
            }
            let environment = Environment::new(&all);
            let slurm = environment.slurm(None);
            let _ = environment.rank(slurm.as_ref());
        }
    }
}
