//! What disturbs tests, so that those that depend on luck lose it.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::test::run::marked_processes;

/// Busy loops for each processor.
const LOOPS: usize = 2;

/// Period of a quota of processor time, us.
const PERIOD: u64 = 100_000;

/// For how long a process stands still, ms.
const STOPPED: std::ops::Range<u64> = 50..1500;

/// How long none stands still, ms.
const GOING: std::ops::Range<u64> = 20..600;

/// A kind of disturbance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    None,
    /// Busy loops beside the test.
    Busy,
    /// So many percent of one processor for the test and what it starts.
    Quota(u64),
    /// No real-time priorities for the test and what it starts.
    NoRealTime,
    /// The test's processes stand still now and then.
    Stop,
}

impl FromStr for Load {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None => match text {
                "none" => Ok(Self::None),
                "busy" => Ok(Self::Busy),
                "no-rt" => Ok(Self::NoRealTime),
                "stop" => Ok(Self::Stop),
                _ => Err("there are none, busy, quota:PERCENT, no-rt and stop".to_owned()),
            },
            Some(("quota", percent)) => match percent.parse() {
                Ok(percent @ 1..) => Ok(Self::Quota(percent)),
                _ => Err(format!("{percent} is no number of percent")),
            },
            Some(_) => Err("only quota has a number".to_owned()),
        }
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Busy => f.write_str("busy"),
            Self::Quota(percent) => write!(f, "quota:{percent}"),
            Self::NoRealTime => f.write_str("no-rt"),
            Self::Stop => f.write_str("stop"),
        }
    }
}

/// A load that is there until this is dropped.
pub(super) enum UnderWay {
    Nothing,
    Busy(Vec<Child>),
    /// A control group that tests are put into.
    Group(PathBuf),
    Stop(Arc<AtomicBool>, Option<JoinHandle<()>>),
}

impl Load {
    /// Begins to disturb.
    ///
    /// # Errors
    ///
    /// When this machine cannot do it; says what is missing.
    pub(super) fn start(self, seed: u64) -> Result<UnderWay> {
        match self {
            Self::None => Ok(UnderWay::Nothing),
            Self::Busy => {
                let processors = thread::available_parallelism().map_or(1, usize::from);
                let mut busy = UnderWay::Busy(Vec::new());
                if let UnderWay::Busy(children) = &mut busy {
                    for _ in 0..LOOPS * processors {
                        let mut command = Command::new("sh");
                        command
                            .args(["-c", "while :; do :; done"])
                            .stdin(Stdio::null());
                        children.push(command.spawn().context("cannot start a busy loop")?);
                    }
                }
                Ok(busy)
            }
            Self::Quota(percent) => group(&|group| {
                let quota = percent * PERIOD / 100;
                if group.join("cpu.max").exists() {
                    return fs::write(group.join("cpu.max"), format!("{quota} {PERIOD}"));
                }
                fs::write(group.join("cpu.cfs_period_us"), PERIOD.to_string())?;
                fs::write(group.join("cpu.cfs_quota_us"), quota.to_string())
            }),
            Self::NoRealTime => group(&|group| {
                // Only cgroup v1 has it; with 0, SCHED_FIFO is refused to the group's tasks.
                fs::write(group.join("cpu.rt_runtime_us"), "0")
            }),
            Self::Stop => {
                let over = Arc::new(AtomicBool::new(false));
                let seen = Arc::clone(&over);
                let stopper = thread::Builder::new()
                    .name("stopper".into())
                    .spawn(move || stop_now_and_then(&seen, Random(seed)))
                    .context("cannot start a thread")?;
                Ok(UnderWay::Stop(over, Some(stopper)))
            }
        }
    }
}

impl UnderWay {
    /// The command in front of a test that puts it under the load.
    pub(super) fn prefix(&self) -> Vec<String> {
        let Self::Group(group) = self else {
            return Vec::new();
        };
        let script = format!("echo $$ >'{}/cgroup.procs' && exec \"$@\"", group.display());
        ["sh", "-c", &script, "sh"].map(str::to_owned).into()
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        match self {
            Self::Nothing => {}
            Self::Busy(children) => {
                for child in children {
                    // They do nothing but run until they are killed.
                    drop(child.kill());
                    drop(child.wait());
                }
            }
            // Fails while a process that a test has left is in it; the next load takes it over.
            Self::Group(group) => drop(fs::remove_dir(group)),
            Self::Stop(over, stopper) => {
                over.store(true, Ordering::Relaxed);
                if let Some(stopper) = stopper.take() {
                    drop(stopper.join());
                }
            }
        }
    }
}

/// Makes a control group in the hierarchy of the cpu controller and sets its limits.
fn group(limit: &dyn Fn(&Path) -> std::io::Result<()>) -> Result<UnderWay> {
    let mounts = fs::read_to_string("/proc/self/mounts").context("cannot read the mounts")?;
    let Some(root) = cpu_hierarchy(&mounts) else {
        bail!("no control groups with the cpu controller are mounted here");
    };
    let group = root.join("gputrace-flaky");
    if !group.exists() {
        fs::create_dir(&group).with_context(|| format!("cannot make {}", group.display()))?;
    }
    limit(&group).with_context(|| format!("{} has no such limit", group.display()))?;
    Ok(UnderWay::Group(group))
}

/// Where the cpu controller's groups are: of version 1, or of version 2 if that has the controller.
fn cpu_hierarchy(mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (place, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
        let place = PathBuf::from(place);
        let is_there = match kind {
            "cgroup" => options.split(',').any(|option| option == "cpu"),
            "cgroup2" => fs::read_to_string(place.join("cgroup.subtree_control"))
                .is_ok_and(|controllers| controllers.split_whitespace().any(|one| one == "cpu")),
            _ => false,
        };
        is_there.then_some(place)
    })
}

/// Stops one of the processes of tests for a while, again and again.
fn stop_now_and_then(over: &AtomicBool, mut random: Random) {
    while !over.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(random.between(GOING)));
        let pids = marked_processes();
        let chosen = random.between(0..pids.len().max(1) as u64) as usize;
        let pid = pids
            .get(chosen)
            .and_then(|&pid| Pid::from_raw(i32::try_from(pid).ok()?));
        // One that a test has stopped has to stay so.
        let Some(pid) = pid.filter(|pid| !is_stopped(*pid)) else {
            continue;
        };
        // It may have ended meanwhile.
        if kill_process(pid, Signal::STOP).is_ok() {
            thread::sleep(Duration::from_millis(random.between(STOPPED)));
            let _ended = kill_process(pid, Signal::CONT);
        }
    }
}

/// Whether a process is stopped (proc_pid_stat(5)).
fn is_stopped(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    let stat = stat.unwrap_or_default();
    let state = stat.rsplit_once(") ").map(|(_, fields)| fields);
    state.is_some_and(|fields| fields.starts_with(['T', 't']))
}

/// SplitMix64: the same moments for the same seed.
struct Random(u64);

impl Random {
    /// A number in a range that is not empty.
    fn between(&mut self, range: std::ops::Range<u64>) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        let width = range.end.saturating_sub(range.start).max(1);
        range.start + mixed % width
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_named() {
        for text in ["none", "busy", "quota:50", "no-rt", "stop"] {
            assert_eq!(text.parse::<Load>().unwrap().to_string(), text);
        }
        for text in ["", "quota", "quota:0", "quota:x", "busy:2"] {
            assert!(text.parse::<Load>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_cpu_controller_of_version_1_is_found() {
        let mounts = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
                      cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\n\
                      cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0\n";
        assert_eq!(
            cpu_hierarchy(mounts),
            Some("/sys/fs/cgroup/cpu,cpuacct".into())
        );
        assert_eq!(cpu_hierarchy("cgroup2 /nowhere cgroup2 rw 0 0\n"), None);
    }

    #[test]
    fn moments_follow_from_the_seed() {
        let numbers = |seed| {
            let mut random = Random(seed);
            [(); 4].map(|()| random.between(STOPPED))
        };
        assert_eq!(numbers(1), numbers(1));
        assert_ne!(numbers(1), numbers(2));
        assert!(numbers(3).iter().all(|number| STOPPED.contains(number)));
    }
}
