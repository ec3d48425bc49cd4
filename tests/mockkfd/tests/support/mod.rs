//! Runs programs on the software GPU, and reads back what both sides say.
#![allow(dead_code, reason = "not every test file uses all of it")]
#![allow(
    unreachable_pub,
    reason = "a module of test programs, which have no other face"
)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "test code outside of #[test] functions"
)]

pub mod releases;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use gputrace_softgpu::truth::{Copy, Dispatch, Other, Record, read_directory};
use serde::Deserialize;

/// One line of a workload's own log.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "said", rename_all = "snake_case")]
pub enum Said {
    /// A kernel was launched.
    Kernel {
        kernel: String,
        device: u32,
        grid: [u32; 3],
        workgroup: [u16; 3],
    },
    /// A copy was asked for; or, from `hsa_ticks`, has ended.
    Copy {
        /// `hsa_ticks` says none: all of its copies go to the GPU.
        #[serde(default)]
        direction: Direction,
        bytes: u64,
        #[serde(flatten)]
        ticks: Option<Ticks>,
    },
    /// A barrier packet has ended.
    Barrier {
        #[serde(flatten)]
        ticks: Ticks,
    },
    /// What two events measured, in milliseconds.
    ElapsedMs { value: f64 },
    /// How many GPUs there are.
    Devices { value: f64 },
    /// Whether the GPUs reach each other's memory.
    PeerAccess { value: f64 },
    /// Whether the runtime exports `hipLaunchHostFunc`.
    HostFunctions { value: f64 },
    /// How the child of a fork ended: what `wait(2)` says.
    ChildStatus { value: f64 },
    /// How many matrix products were asked for.
    Products { value: f64 },
    /// An operation was done so many times within a span of `CLOCK_BOOTTIME`, and what it left on the GPU had ended
    /// at `settled_ns`.
    Phase {
        name: String,
        count: u32,
        begin_ns: u64,
        end_ns: u64,
        settled_ns: u64,
    },
}

/// From where to where a copy goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Host to device.
    #[default]
    H2d,
    /// Device to host.
    D2h,
    /// Within a device.
    D2d,
    /// Within the host.
    H2h,
    /// From one device to another.
    Peer,
}

/// What `hsa_ticks` found in a signal, and what HSA made of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Ticks {
    pub signal: u64,
    pub begin_ticks: u64,
    pub end_ticks: u64,
    pub begin_ns: u64,
    pub end_ns: u64,
}

/// A finished run.
#[derive(Debug)]
pub struct Run {
    /// `None`: it was killed.
    pub status: Option<ExitStatus>,
    pub stdout: String,
    pub stderr: String,
    pub said: Vec<Said>,
    pub truth: Vec<Record<'static>>,
    /// From its start to its end.
    pub wall: Duration,
}

/// The longest a workload may take, start of the runtime included.
const PATIENCE: Duration = Duration::from_secs(180);

/// Cargo's directory of this profile's build: tests are in `deps` there, examples in `examples`.
fn profile() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    program.ancestors().nth(2).unwrap().to_owned()
}

/// The library to preload: cargo has built it together with the test program.
pub fn library() -> PathBuf {
    let library = profile().join("deps/libgputrace_mockkfd.so");
    assert!(
        library.exists(),
        "{} is missing; run the tests by cargo",
        library.display()
    );
    library
}

/// Cargo's directory for what tests make.
fn target_tmpdir() -> PathBuf {
    profile().with_file_name("tmp")
}

/// Runs a command with the library loaded, on a software GPU of this configuration. Kills it once `enough` holds for
/// its ground truth, and after three minutes.
pub fn run_until(command: &mut Command, toml: &str, enough: impl Fn(&[Record<'static>]) -> bool) -> Run {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("softgpu.toml");
    let said = directory.path().join("said");
    let truth = directory.path().join("truth");
    std::fs::write(&config, toml).unwrap();
    std::fs::create_dir(&truth).unwrap();
    let begin = Instant::now();
    let mut child = command
        .env("LD_PRELOAD", library())
        .env("SOFTGPU_CONFIG", &config)
        .env("SOFTGPU_LOG", &truth)
        .env("WORKLOAD_LOG", &said)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (mut out, mut err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let (stdout, stderr, status) = std::thread::scope(|scope| {
        let stdout = scope.spawn(move || text(&mut out));
        let stderr = scope.spawn(move || text(&mut err));
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break Some(status);
            }
            // A log that is being written may end within a line; the next look reads it whole.
            if Instant::now() > deadline || read_directory(&truth).is_ok_and(|truth| enough(&truth)) {
                child.kill().unwrap();
                child.wait().unwrap();
                break None;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        (stdout.join().unwrap(), stderr.join().unwrap(), status)
    });
    let wall = begin.elapsed();
    Run {
        status,
        stdout,
        stderr,
        said: read_said(&said),
        truth: read_directory(&truth).unwrap(),
        wall,
    }
}

/// Reads a workload's own log.
pub fn read_said(path: &Path) -> Vec<Said> {
    let said = std::fs::read_to_string(path).unwrap_or_default();
    // What a killed program wrote may end within a line.
    let whole = said
        .rfind('\n')
        .and_then(|end| said.get(..end))
        .unwrap_or_default();
    let lines = whole.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}")))
        .collect()
}

fn text(from: &mut impl Read) -> String {
    let mut bytes = Vec::new();
    from.read_to_end(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A kernel as both sides know it: name, device, grid, workgroup.
pub type Launch = (String, u32, [u32; 3], [u16; 3]);

impl Run {
    /// Fails the test unless the program ended well and the GPU met nothing unknown.
    pub fn assert_success(&self) {
        assert!(
            self.status.is_some_and(|status| status.success()),
            "{:?}: {}",
            self.status,
            self.stderr
        );
        assert!(
            !self
                .truth
                .iter()
                .any(|record| matches!(record, Record::Unknown { .. }))
        );
    }

    /// Kernels the program says it launched, in its order.
    pub fn launches(&self) -> Vec<Launch> {
        let launch = |said: &Said| match said {
            Said::Kernel {
                kernel,
                device,
                grid,
                workgroup,
            } => Some((kernel.clone(), *device, *grid, *workgroup)),
            _ => None,
        };
        self.said.iter().filter_map(launch).collect()
    }

    /// The program's own kernels that really ran, in the order of their ends. The runtime's own have names
    /// that begin with two underscores, or none where ROCr does not list their code.
    pub fn dispatches(&self) -> Vec<Dispatch> {
        let dispatch = |record: &Record<'static>| match record {
            Record::Dispatch(dispatch) if !dispatch.kernel.is_empty() => Some(dispatch.clone()),
            _ => None,
        };
        let own = |dispatch: &Dispatch| !dispatch.kernel.starts_with("__");
        self.truth.iter().filter_map(dispatch).filter(own).collect()
    }

    /// Copies that really happened.
    pub fn copies(&self) -> Vec<Copy> {
        let copy = |record: &Record<'static>| match record {
            Record::Copy(copy) => Some(copy.clone()),
            _ => None,
        };
        self.truth.iter().filter_map(copy).collect()
    }

    /// Packets other than kernels.
    pub fn packets(&self) -> Vec<Other<'static>> {
        let packet = |record: &Record<'static>| match record {
            Record::Packet(packet) => Some(packet.clone()),
            _ => None,
        };
        self.truth.iter().filter_map(packet).collect()
    }

    /// The runtime's own kernels that copy within a GPU.
    pub fn copy_kernels(&self) -> usize {
        let copies = |record: &&Record<'static>| match record {
            Record::Dispatch(dispatch) => dispatch.kernel.starts_with("__amd_rocclr_copyBuffer"),
            _ => false,
        };
        self.truth.iter().filter(copies).count()
    }

    /// Copies the program says it asked for, in these directions: their bytes.
    pub fn bytes_said(&self, directions: &[Direction]) -> Vec<u64> {
        let bytes = |said: &Said| match said {
            Said::Copy { bytes, direction, .. } if directions.contains(direction) => Some(*bytes),
            _ => None,
        };
        self.said.iter().filter_map(bytes).collect()
    }

    /// Bytes that SDMA really copied.
    pub fn bytes_copied(&self) -> u64 {
        self.copies().iter().map(|copy| copy.bytes).sum()
    }
}

/// A dispatch in the form of a [`Launch`].
pub fn launch_of(dispatch: &Dispatch) -> Launch {
    (
        dispatch.kernel.to_string(),
        dispatch.place.agent,
        dispatch.grid,
        dispatch.workgroup,
    )
}

/// Sorted, to compare regardless of order.
pub fn sorted<T: Ord>(mut values: Vec<T>) -> Vec<T> {
    values.sort();
    values
}
