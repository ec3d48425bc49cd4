//! Runs a program, and holds what it says against what the software GPU did.

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

/// How far HSA's conversion of ticks may be off, ns: it extrapolates between its samples of the clocks.
pub const CONVERSION_NS: u64 = 100_000;

/// A finished run.
#[derive(Debug)]
pub struct Run {
    /// How it ended; `None`: it was killed.
    pub status: Option<ExitStatus>,
    /// What it wrote to standard output.
    pub stdout: String,
    /// What it wrote to standard error.
    pub stderr: String,
    /// What it says it did.
    pub said: Vec<Said>,
    /// What the GPU did.
    pub truth: Vec<Record<'static>>,
    /// From its start to its end.
    pub wall: Duration,
}

/// Has a command use the software GPU with the settings in `softgpu.toml` of a directory, and write there what happened
/// (`truth`) and what the program says of itself (`said`). That the program finds the software GPU at all, is the
/// caller's.
pub fn equip(command: &mut Command, place: &Path) {
    command
        .env("SOFTGPU_CONFIG", place.join("softgpu.toml"))
        .env("SOFTGPU_LOG", place.join("truth"))
        .env("WORKLOAD_LOG", place.join("said"));
}

/// Runs a program on a software GPU with these settings. Kills it once `enough` holds for the GPU's logs, and after
/// `patience`.
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
        // A log that is being written may end within a line; the next look reads it whole.
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
    /// Kernels that the program says it launched, in its order.
    #[must_use]
    pub fn launches(&self) -> Vec<Launch> {
        let launch = |said: &Said| match said {
            Said::Kernel(launch) => Some(launch.clone()),
            _ => None,
        };
        self.said.iter().filter_map(launch).collect()
    }

    /// All kernels that really ran, the runtime's own included, in the order of their ends.
    #[must_use]
    pub fn all_dispatches(&self) -> Vec<Dispatch> {
        let dispatch = |record: &Record<'static>| match record {
            Record::Dispatch(dispatch) => Some(dispatch.clone()),
            _ => None,
        };
        self.truth.iter().filter_map(dispatch).collect()
    }

    /// The program's own kernels that really ran, by [`is_own`], in the order of their ends.
    #[must_use]
    pub fn dispatches(&self) -> Vec<Dispatch> {
        let mut dispatches = self.all_dispatches();
        dispatches.retain(|dispatch| is_own(&dispatch.kernel));
        dispatches
    }

    /// Copies that SDMA really did.
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

    /// How many of HIP's own kernels that copy within a GPU ran.
    #[must_use]
    pub fn copy_kernels(&self) -> usize {
        let copies = |dispatch: &&Dispatch| dispatch.kernel.starts_with("__amd_rocclr_copyBuffer");
        self.all_dispatches().iter().filter(copies).count()
    }

    /// Copies that the program says it asked for, in these directions: the bytes of each.
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

    /// Bytes that SDMA really copied.
    #[must_use]
    pub fn bytes_copied(&self) -> u64 {
        self.copies().iter().map(|copy| copy.bytes).sum()
    }

    /// What the program's events measured, ms.
    #[must_use]
    pub fn elapsed_ms(&self) -> Option<f64> {
        self.said.iter().find_map(|said| match said {
            Said::ElapsedMs { value } => Some(*value),
            _ => None,
        })
    }

    /// Fails the test unless the program ended well and the GPU met nothing unknown.
    ///
    /// # Panics
    ///
    /// That is how.
    pub fn assert_success(&self) {
        let well = self.status.is_some_and(|status| status.success());
        assert!(well, "{:?}: {}", self.status, self.stderr);
        let unknown = |record: &&Record<'_>| matches!(record, Record::Unknown { .. });
        let unknown = self.truth.iter().find(unknown);
        assert!(unknown.is_none(), "{unknown:?}: {}", self.stderr);
    }

    /// Fails the test unless the kernels that ran are those that were launched.
    ///
    /// # Panics
    ///
    /// That is how.
    pub fn assert_all_ran(&self) {
        let ran = self.dispatches().iter().map(launch_of).collect();
        assert_same(&sorted(ran), &sorted(self.launches()));
    }

    /// Fails the test unless the kernels that ran are those that were launched, in the program's order.
    ///
    /// # Panics
    ///
    /// That is how.
    pub fn assert_all_ran_in_order(&self) {
        let ran: Vec<Launch> = self.dispatches().iter().map(launch_of).collect();
        assert_same(&ran, &self.launches());
    }

    /// Fails the test unless each signal that the program (`hsa_ticks`) looked into had exactly the ticks that the GPU
    /// logged, HSA converted them well, and there was nothing else to say. How many signals those were.
    ///
    /// # Panics
    ///
    /// That is how.
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
                    // The last: a runtime may have had the signal's memory for another before.
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

/// Fails the test where the lists differ, and shows there: long lists are not printed.
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

/// Sorted, to compare regardless of order.
#[must_use]
pub fn sorted<T: Ord>(mut values: Vec<T>) -> Vec<T> {
    values.sort();
    values
}
