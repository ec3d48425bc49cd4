//! Runs a program, and compares its report with what the software GPU did.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "for tests: what it does not expect fails the test"
)]

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use gputrace_softgpu::truth::{Copy, Dispatch, Other, Record, read_directory};

use crate::said::{self, Direction, Launch, Said, Ticks, is_own, launch_of};

/// Maximum error of HSA's conversion of ticks, ns: it extrapolates between its samples of the
/// clocks.
pub const CONVERSION_NS: u64 = 100_000;

/// A finished run.
#[derive(Debug)]
pub struct Run {
    /// Its exit status; `None` if it was killed.
    pub status: Option<ExitStatus>,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
    /// What the program reports to have done.
    pub said: Vec<Said>,
    /// What the GPU really did.
    pub truth: Vec<Record<'static>>,
    /// Time from its start to its end.
    pub wall: Duration,
}

/// Makes a command use the software GPU with the settings in `softgpu.toml` of a directory, and
/// write the truth (`truth`) and the program's report (`said`) to that directory. The caller must
/// give the program access to the software GPU.
pub fn equip(command: &mut Command, place: &Path) {
    command
        .env("SOFTGPU_CONFIG", place.join("softgpu.toml"))
        .env("SOFTGPU_LOG", place.join("truth"))
        .env("WORKLOAD_LOG", place.join("said"));
}

/// Runs a program on a software GPU with these settings. Kills it when `enough` holds for the GPU's
/// logs, or after `patience`.
///
/// # Panics
///
/// When the program cannot be started, or a log cannot be read.
pub fn run_until(
    command: &mut Command,
    settings: &str,
    patience: Duration,
    enough: impl Fn(&[Record<'static>]) -> bool,
) -> Run {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    let output = |name: &str| File::create(at(name)).expect("a file for output");
    let written = |name: &str| {
        let bytes = fs::read(at(name)).expect("what the program wrote");
        String::from_utf8_lossy(&bytes).into_owned()
    };
    fs::write(at("softgpu.toml"), settings).expect("the settings");
    fs::create_dir(at("truth")).expect("a directory for the GPU's logs");
    equip(command, directory.path());
    let begin = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(output("stdout"))
        .stderr(output("stderr"))
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let deadline = begin + patience;
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child") {
            break Some(status);
        }
        // A log that is being written may end within a line; the next check reads the whole line.
        if Instant::now() > deadline
            || read_directory(&at("truth")).is_ok_and(|truth| enough(&truth))
        {
            child.kill().expect("a child");
            child.wait().expect("a child");
            break None;
        }
        thread::sleep(Duration::from_millis(5));
    };
    let wall = begin.elapsed();
    Run {
        status,
        stdout: written("stdout"),
        stderr: written("stderr"),
        said: said::read(&at("said")).unwrap_or_else(|error| panic!("{error}")),
        truth: read_directory(&at("truth")).unwrap_or_else(|error| panic!("{error}")),
        wall,
    }
}

impl Run {
    /// Kernels that the program reports to have launched, in its order.
    #[must_use]
    pub fn launches(&self) -> Vec<Launch> {
        let launch = |said: &Said| match said {
            Said::Kernel(launch) => Some(launch.clone()),
            _ => None,
        };
        self.said.iter().filter_map(launch).collect()
    }

    /// All kernels that really ran, including the runtime's own, in order of their ends.
    #[must_use]
    pub fn all_dispatches(&self) -> Vec<Dispatch> {
        let dispatch = |record: &Record<'static>| match record {
            Record::Dispatch(dispatch) => Some(dispatch.clone()),
            _ => None,
        };
        self.truth.iter().filter_map(dispatch).collect()
    }

    /// The program's own kernels (see [`is_own`]) that really ran, in order of their ends.
    #[must_use]
    pub fn dispatches(&self) -> Vec<Dispatch> {
        let mut dispatches = self.all_dispatches();
        dispatches.retain(|dispatch| is_own(&dispatch.kernel));
        dispatches
    }

    /// Copies that SDMA really made.
    #[must_use]
    pub fn copies(&self) -> Vec<Copy> {
        let copy = |record: &Record<'static>| match record {
            Record::Copy(copy) => Some(copy.clone()),
            _ => None,
        };
        self.truth.iter().filter_map(copy).collect()
    }

    /// Packets other than kernels.
    #[must_use]
    pub fn packets(&self) -> Vec<Other<'static>> {
        let packet = |record: &Record<'static>| match record {
            Record::Packet(packet) => Some(packet.clone()),
            _ => None,
        };
        self.truth.iter().filter_map(packet).collect()
    }

    /// Number of HIP's own kernels for copies within a GPU that ran.
    #[must_use]
    pub fn copy_kernels(&self) -> usize {
        let copies = |dispatch: &&Dispatch| dispatch.kernel.starts_with("__amd_rocclr_copyBuffer");
        self.all_dispatches().iter().filter(copies).count()
    }

    /// Sizes in bytes of the copies in these directions that the program reports.
    #[must_use]
    pub fn bytes_said(&self, directions: &[Direction]) -> Vec<u64> {
        let bytes = |said: &Said| match said {
            Said::Copy {
                bytes, direction, ..
            } if directions.contains(direction) => Some(*bytes),
            _ => None,
        };
        self.said.iter().filter_map(bytes).collect()
    }

    /// Total bytes that SDMA really copied.
    #[must_use]
    pub fn bytes_copied(&self) -> u64 {
        self.copies().iter().map(|copy| copy.bytes).sum()
    }

    /// Time measured by the program's events, ms.
    #[must_use]
    pub fn elapsed_ms(&self) -> Option<f64> {
        self.said.iter().find_map(|said| match said {
            Said::ElapsedMs { value } => Some(*value),
            _ => None,
        })
    }

    /// Asserts that the program succeeded and that the GPU met nothing unknown.
    ///
    /// # Panics
    ///
    /// If not.
    pub fn assert_success(&self) {
        let well = self.status.is_some_and(|status| status.success());
        assert!(well, "{:?}: {}", self.status, self.stderr);
        let unknown = |record: &&Record<'_>| matches!(record, Record::Unknown { .. });
        let unknown = self.truth.iter().find(unknown);
        assert!(unknown.is_none(), "{unknown:?}: {}", self.stderr);
    }

    /// Asserts that exactly the launched kernels ran.
    ///
    /// # Panics
    ///
    /// If not.
    pub fn assert_all_ran(&self) {
        let ran = self.dispatches().iter().map(launch_of).collect();
        assert_same(&sorted(ran), &sorted(self.launches()));
    }

    /// Asserts that exactly the launched kernels ran, in the program's order.
    ///
    /// # Panics
    ///
    /// If not.
    pub fn assert_all_ran_in_order(&self) {
        let ran: Vec<Launch> = self.dispatches().iter().map(launch_of).collect();
        assert_same(&ran, &self.launches());
    }

    /// Asserts that each signal that the program (`hsa_ticks`) examined had exactly the ticks that
    /// the GPU logged, that HSA converted them well, and that the program reported nothing else.
    /// Returns the number of signals.
    ///
    /// # Panics
    ///
    /// If not.
    #[must_use]
    pub fn assert_ticks(&self) -> usize {
        let (packets, copies) = (self.packets(), self.copies());
        for said in &self.said {
            let (ticks, begin, end): (&Ticks, _, _) = match said {
                Said::Barrier { ticks } => {
                    let packet = packets.iter().find(|packet| packet.signal == ticks.signal);
                    let packet = packet.unwrap_or_else(|| panic!("no packet: {ticks:?}"));
                    (ticks, packet.begin, packet.end)
                }
                Said::Copy {
                    bytes,
                    ticks: Some(ticks),
                    ..
                } => {
                    // The last one, because a runtime may have used the signal's memory for another
                    // signal before.
                    let copy = copies.iter().rfind(|copy| copy.signal == ticks.signal);
                    let copy = copy.unwrap_or_else(|| panic!("no copy: {ticks:?}"));
                    assert_eq!(copy.bytes, *bytes);
                    (ticks, copy.begin, copy.end)
                }
                other => panic!("{other:?}"),
            };
            assert_eq!(
                (begin.ticks, end.ticks),
                (ticks.begin_ticks, ticks.end_ticks)
            );
            for (stamp, ns) in [(begin, ticks.begin_ns), (end, ticks.end_ns)] {
                assert!(stamp.ns.abs_diff(ns) < CONVERSION_NS, "{stamp:?} {ticks:?}");
            }
        }
        self.said.len()
    }
}

/// Asserts that the lists are equal. Shows only the first difference, because lists may be long.
fn assert_same(ran: &[Launch], launched: &[Launch]) {
    let same = ran
        .iter()
        .zip(launched)
        .take_while(|(ran, launched)| ran == launched);
    let at = same.count();
    assert!(
        ran == launched,
        "{} kernels ran, {} were launched; first difference at {at}: {:?} ran, {:?} was launched",
        ran.len(),
        launched.len(),
        ran.get(at),
        launched.get(at)
    );
}

/// Sorts values, to compare them regardless of order.
#[must_use]
pub fn sorted<T: Ord>(mut values: Vec<T>) -> Vec<T> {
    values.sort();
    values
}
