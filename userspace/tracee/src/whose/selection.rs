//! Chooses running processes by whose they are.

use std::fmt::Write as _;

use gputrace_capture::identity::Identity;

use super::Sources;
use crate::process::{self, ProcessError, Survey};

/// Maximum number of processes that an error names.
const NAMED: usize = 10;
/// Where control groups of version 2 are mounted, alone and beside version 1; people copy paths
/// from there.
const MOUNTS: [&str; 2] = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"];

/// Which processes are wanted. Of each list that is not empty, one element must match. `*` stands
/// for any characters and `?` for one, except in jobs and users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Names: the program as people know it, its file, or its main thread.
    pub names: Vec<String>,
    /// Control groups with all below them: paths, or names of single groups.
    pub cgroups: Vec<String>,
    /// Containers: ids or beginnings of them, names of machines, or names in a pod.
    pub containers: Vec<String>,
    /// Pods: `NAME`, `NAMESPACE/NAME`, or UIDs.
    pub pods: Vec<String>,
    /// Slurm jobs: `JOB`, `JOB.STEP`, `ARRAY_INDEX`.
    pub jobs: Vec<String>,
    /// Users: login names or numbers.
    pub users: Vec<String>,
    /// GPUs that the process uses: names of [`Sources::gpus`].
    pub gpus: Vec<String>,
}

/// Why no process was chosen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SelectionError {
    /// No process matches.
    #[error("no process matches {asked}: {there}")]
    NoMatch {
        /// The options.
        asked: String,
        /// What was there; a clause.
        there: String,
    },
    /// Processes match, but none of them has a ROCm library.
    #[error(
        "no process that matches {asked} has a ROCm library mapped: {found}. They may load it \
         later: --wait waits"
    )]
    NoRocmLibraries {
        /// The options.
        asked: String,
        /// The processes that match.
        found: String,
    },
    /// The processes cannot be listed.
    #[error(transparent)]
    Process(#[from] ProcessError),
}

/// A process that was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Candidate {
    /// Process id.
    pub pid: u32,
    /// `comm` of its main thread.
    pub name: String,
    /// File name of its program.
    pub program: String,
    /// Whose it is.
    pub identity: Identity,
    /// All names of each GPU that it uses, as far as known; see [`Sources::gpus`].
    pub gpus: Vec<Vec<String>>,
}

impl Candidate {
    fn read(sources: &Sources, pid: u32) -> Self {
        let executable = gputrace_files::kernel::read_link(sources.path(pid, "exe"));
        let program = executable.ok().and_then(|path| {
            let name = path.file_name()?.to_string_lossy().into_owned();
            Some(name)
        });
        Self {
            pid,
            name: process::name(&sources.path(pid, "comm")).unwrap_or_default(),
            program: program.unwrap_or_default(),
            identity: sources.identify(pid),
            gpus: sources.gpus.get(&pid).cloned().unwrap_or_default(),
        }
    }

    /// For people, e.g. `4711 python train.py (job 123.0, user alice)`.
    #[must_use]
    pub fn label(&self) -> String {
        let title = if self.identity.title.is_empty() {
            &self.name
        } else {
            &self.identity.title
        };
        let mut text = format!("{} {title}", self.pid);
        let mut labels = self.identity.labels();
        let gpus = self.gpus.iter().filter_map(|names| names.first());
        labels.extend(gpus.map(|name| format!("GPU {name}")));
        if !labels.is_empty() {
            let _ = write!(text, " ({})", labels.join(", "));
        }
        text
    }
}

impl Selection {
    /// Whether nothing was asked for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Chooses among the processes that have a ROCm library, or among all if `any`. At least one,
    /// in order of id.
    ///
    /// # Errors
    ///
    /// [`SelectionError`].
    pub fn choose(&self, sources: &Sources, any: bool) -> Result<Vec<Candidate>, SelectionError> {
        let survey = process::survey()?;
        let with_rocm = survey.processes.iter().map(|found| found.pid).collect();
        let pids: Vec<u32> = if any { process::pids()? } else { with_rocm };
        let all = candidates(sources, pids);
        let (chosen, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|one| self.matches(one));
        if !chosen.is_empty() {
            return Ok(chosen);
        }
        let asked = self.to_string();
        if !any {
            let mut found = candidates(sources, process::pids()?);
            found.retain(|one| self.matches(one));
            if !found.is_empty() {
                let found = list(&found);
                return Err(SelectionError::NoRocmLibraries { asked, found });
            }
        }
        let there = there(&others, &survey, any);
        Err(SelectionError::NoMatch { asked, there })
    }

    /// Whether a process is wanted.
    #[must_use]
    pub fn matches(&self, one: &Candidate) -> bool {
        let identity = &one.identity;
        let some = |wanted: &[String], is: &dyn Fn(&str) -> bool| {
            wanted.is_empty() || wanted.iter().any(|wanted| is(wanted))
        };
        some(&self.names, &|wanted| {
            [&identity.title, &one.name, &one.program]
                .into_iter()
                .any(|name| glob(wanted, name))
        }) && some(&self.cgroups, &|wanted| in_group(wanted, &identity.cgroup))
            && some(&self.containers, &|wanted| in_container(wanted, identity))
            && some(&self.pods, &|wanted| in_pod(wanted, identity))
            && some(&self.jobs, &|wanted| in_job(wanted, identity))
            && some(&self.users, &|wanted| {
                let uid = identity.uid;
                uid.is_some() && (wanted.parse().ok() == uid || wanted == identity.user)
            })
            && some(&self.gpus, &|wanted| {
                one.gpus.iter().flatten().any(|name| glob(wanted, name))
            })
    }
}

/// The options, as on a command line.
impl std::fmt::Display for Selection {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let options = [
            ("--name", &self.names),
            ("--cgroup", &self.cgroups),
            ("--container", &self.containers),
            ("--pod", &self.pods),
            ("--job", &self.jobs),
            ("--user", &self.users),
            ("--gpu", &self.gpus),
        ];
        let given = options
            .into_iter()
            .flat_map(|(name, values)| values.iter().map(move |value| format!("{name} {value}")));
        out.write_str(&given.collect::<Vec<_>>().join(" "))
    }
}

fn candidates(sources: &Sources, pids: Vec<u32>) -> Vec<Candidate> {
    let own = std::process::id();
    let pids = pids.into_iter().filter(|pid| *pid != own);
    pids.map(|pid| Candidate::read(sources, pid)).collect()
}

/// What was there instead.
fn there(others: &[Candidate], survey: &Survey, any: bool) -> String {
    let what = if any { "" } else { " with a ROCm library" };
    let mut text = if others.is_empty() {
        format!("there is no process{what}")
    } else {
        format!("the processes{what} are {}", list(others))
    };
    if !survey.unreadable.is_empty() {
        let _ = write!(
            text,
            "; {} more may not be looked into; {}",
            survey.unreadable.len(),
            gputrace_files::rights::remedy()
        );
    }
    text
}

fn list(candidates: &[Candidate]) -> String {
    let labels = candidates.iter().take(NAMED).map(Candidate::label);
    let mut text = labels.collect::<Vec<_>>().join("; ");
    if let Some(more) = candidates.len().checked_sub(NAMED).filter(|more| *more > 0) {
        let _ = write!(text, "; and {more} more");
    }
    text
}

/// Whether a process in the group `path` is in the wanted group: a path, or the name of one group.
fn in_group(wanted: &str, path: &str) -> bool {
    if path.is_empty() {
        return false;
    }
    let below = MOUNTS.iter().find_map(|mount| wanted.strip_prefix(mount));
    let wanted = below.unwrap_or(wanted);
    let wanted = wanted.strip_suffix('/').unwrap_or(wanted);
    if wanted.is_empty() {
        return true;
    }
    if !wanted.contains('/') {
        return path.split('/').any(|part| glob(wanted, part));
    }
    let ends = path.match_indices('/').map(|(at, _)| at);
    ends.chain([path.len()])
        .any(|end| path.get(..end).is_some_and(|group| glob(wanted, group)))
}

fn in_container(wanted: &str, identity: &Identity) -> bool {
    let is_id = |id: &str| glob(wanted, id) || (id.len() == 64 && id.starts_with(wanted));
    let container = identity.container.as_ref();
    let pod = identity.pod.as_ref();
    container.is_some_and(|one| is_id(&one.id))
        || pod.is_some_and(|pod| !pod.container.is_empty() && glob(wanted, &pod.container))
}

fn in_pod(wanted: &str, identity: &Identity) -> bool {
    let Some(pod) = &identity.pod else {
        return false;
    };
    match wanted.split_once('/') {
        Some((namespace, name)) => glob(namespace, &pod.namespace) && glob(name, &pod.name),
        None => glob(wanted, &pod.name) || wanted == pod.uid,
    }
}

/// `JOB` also means all elements of an array.
fn in_job(wanted: &str, identity: &Identity) -> bool {
    let Some(slurm) = &identity.slurm else {
        return false;
    };
    let (job, step) = match wanted.split_once('.') {
        Some((job, step)) => (job, Some(step)),
        None => (wanted, None),
    };
    let array = slurm.array.split_once('_').map(|(array, _)| array);
    let is_job = job == slurm.array || array == Some(job) || job.parse() == Ok(slurm.job);
    is_job && step.is_none_or(|step| step == slurm.step)
}

/// Whether a pattern with `*` and `?` matches the whole text. The time is bounded by the product of
/// the lengths.
fn glob(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), text.chars().collect());
    let (mut at, mut place) = (0, 0);
    // The last `*`, and how far it reaches.
    let mut star = None;
    while place < text.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, place));
                at += 1;
            }
            Some(&c) if c == '?' || text.get(place) == Some(&c) => {
                at += 1;
                place += 1;
            }
            _ => {
                let Some((star_at, reach)) = star else {
                    return false;
                };
                star = Some((star_at, reach + 1));
                (at, place) = (star_at + 1, reach + 1);
            }
        }
    }
    pattern.iter().skip(at).all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use gputrace_capture::identity::{Container, Pod, Slurm};
    use proptest::prelude::*;

    fn candidate() -> Candidate {
        Candidate {
            pid: 4711,
            name: "pt_main_thread".to_owned(),
            program: "python3.12".to_owned(),
            identity: Identity {
                title: "python train.py".to_owned(),
                uid: Some(1000),
                user: "alice".to_owned(),
                cgroup: "/kubepods.slice/pod1.slice/cri-1.scope".to_owned(),
                container: Some(Container {
                    runtime: "containerd".to_owned(),
                    id: "0123456789abcdef".repeat(4),
                }),
                pod: Some(Pod {
                    uid: "1-2".to_owned(),
                    namespace: "ml".to_owned(),
                    name: "train-0".to_owned(),
                    container: "main".to_owned(),
                }),
                slurm: Some(Slurm {
                    job: 123,
                    array: "100_3".to_owned(),
                    step: "0".to_owned(),
                    task: None,
                }),
                ..Identity::default()
            },
            gpus: [
                ["1", "0000:c3:00.0", "c3:00.0"],
                ["2", "0000:c4:00.0", "c4:00.0"],
            ]
            .map(|names| names.map(str::to_owned).to_vec())
            .to_vec(),
        }
    }

    fn chosen(option: &str, value: &str) -> bool {
        let mut selection = Selection::default();
        let list = match option {
            "name" => &mut selection.names,
            "cgroup" => &mut selection.cgroups,
            "container" => &mut selection.containers,
            "pod" => &mut selection.pods,
            "job" => &mut selection.jobs,
            "gpu" => &mut selection.gpus,
            _ => &mut selection.users,
        };
        list.push(value.to_owned());
        assert_eq!(selection.to_string(), format!("--{option} {value}"));
        // A process of which nothing is known is never wanted.
        assert!(!selection.matches(&Candidate::default()) || option == "name");
        selection.matches(&candidate())
    }

    #[test]
    fn options_and_values() {
        for (option, wanted, others) in [
            (
                "name",
                &["python train.py", "*train*", "python3.1?", "pt_main_thread"][..],
                &["train.py", "python", "python3.1"][..],
            ),
            (
                "cgroup",
                &[
                    "/kubepods.slice",
                    "/kubepods.slice/",
                    "/sys/fs/cgroup/kubepods.slice/pod1.slice",
                    "/kubepods.slice/pod?.slice",
                    "cri-*.scope",
                    "/",
                ],
                &["/kubepods", "/pod1.slice", "cri", "/x/*"],
            ),
            (
                "container",
                &["0123456789ab", "*cdef", "main", "m*"],
                &["123456789ab", "side", "containerd"],
            ),
            (
                "pod",
                &[
                    "train-0",
                    "ml/train-0",
                    "ml/*",
                    "*/train-?",
                    "train*",
                    "1-2",
                ],
                &["train", "kube/train-0", "ml", "1"],
            ),
            (
                "job",
                &["123", "123.0", "100_3", "100", "100_3.0"],
                &["12", "123.1", "100_4", "x"],
            ),
            ("user", &["alice", "1000"], &["bob", "100", "ali*"]),
            (
                "gpu",
                &["1", "2", "c3:00.0", "0000:c4:00.0", "*:c3:*"],
                &["3", "c5:00.0", "c3", "00.0"],
            ),
        ] {
            for value in wanted {
                assert!(chosen(option, value), "--{option} {value}");
            }
            for value in others {
                assert!(!chosen(option, value), "--{option} {value}");
            }
        }
    }

    #[test]
    fn all_options_must_match_and_one_value_of_each() {
        let list = |values: &[&str]| values.iter().map(|&one| one.to_owned()).collect();
        let mut selection = Selection {
            users: list(&["bob", "alice"]),
            jobs: list(&["123"]),
            ..Selection::default()
        };
        assert!(selection.matches(&candidate()));
        selection.names = list(&["bash"]);
        assert!(!selection.matches(&candidate()));
    }

    #[test]
    fn nothing_found_says_what_is_there() {
        let selection = Selection {
            pods: vec!["no-such-pod".to_owned()],
            ..Selection::default()
        };
        let error = selection.choose(&Sources::default(), true).unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with("no process matches --pod no-such-pod: the processes are 1 "),
            "{text}"
        );
        let label = candidate().label();
        assert_eq!(
            label,
            "4711 python train.py (job 100_3.0, pod ml/train-0 (main), containerd 0123456789ab, \
             user alice, GPU 1, GPU 2)"
        );
    }

    proptest! {
        #[test]
        fn globs(text in "[ab]{0,8}", pattern in "[ab?*]{0,8}") {
            let expected = |pattern: &[u8], text: &[u8]| {
                fn of(pattern: &[u8], text: &[u8]) -> bool {
                    match (pattern.split_first(), text.split_first()) {
                        (None, rest) => rest.is_none(),
                        (Some((b'*', more)), rest) => {
                            of(more, text) || rest.is_some_and(|(_, rest)| of(pattern, rest))
                        }
                        (Some((c, more)), Some((first, rest))) => {
                            (*c == b'?' || c == first) && of(more, rest)
                        }
                        (Some(_), None) => false,
                    }
                }
                of(pattern, text)
            };
            prop_assert_eq!(glob(&pattern, &text), expected(pattern.as_bytes(), text.as_bytes()));
        }

        #[test]
        fn any_value_is_bearable(value in "\\PC{0,20}") {
            for option in ["name", "cgroup", "container", "pod", "job", "user"] {
                let _ = chosen(option, &value);
            }
        }
    }
}
