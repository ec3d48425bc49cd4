//! Stages the stand-ins, runs the GPU workloads on them, and reads back what both sides say.
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

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use gputrace_simrocm::{HipSoname, stage};
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
        /// `h2d` and the like; `hsa_ticks` does not say.
        direction: Option<String>,
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
    /// What no test here looks at.
    #[serde(other)]
    Other,
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

/// The libraries for programs of one generation, staged on first use.
pub fn staged(hip: HipSoname) -> &'static Path {
    static STAGED: [OnceLock<PathBuf>; 2] = [const { OnceLock::new() }; 2];
    let (slot, name) = match hip {
        HipSoname::Five => (&STAGED[0], "five"),
        HipSoname::Six => (&STAGED[1], "six"),
    };
    slot.get_or_init(|| {
        // A directory of each test program: several run at the same time.
        let program = std::env::current_exe().unwrap();
        let stem = program.file_stem().unwrap().to_string_lossy().into_owned();
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("simrocm-{name}-{stem}"));
        stage(&directory, hip).unwrap()
    })
}

/// Path of a workload, built on first use.
pub fn workload(name: &str) -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let directory = BUILT.get_or_init(|| {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gpu-workloads");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../workloads/gpu/build.sh");
        let status = Command::new(&script).arg(&directory).status().unwrap();
        assert!(
            status.success(),
            "{} failed; it says above what is missing",
            script.display()
        );
        directory
    });
    directory.join(name)
}

/// Path of a code object that programs load, built on first use.
pub fn code_object(name: &str) -> String {
    workload("objects").join(name).to_string_lossy().into_owned()
}

/// The longest a workload may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A finished run.
#[derive(Debug)]
pub struct Run {
    pub status: Option<ExitStatus>,
    pub stderr: String,
    pub said: Vec<Said>,
    pub truth: Vec<Record<'static>>,
}

/// A run to be.
pub struct Runner<'a> {
    program: PathBuf,
    arguments: Vec<&'a str>,
    toml: &'a str,
    environment: Vec<(&'a str, String)>,
}

impl<'a> Runner<'a> {
    pub fn new(name: &str) -> Self {
        Self {
            program: workload(name),
            arguments: Vec::new(),
            toml: "",
            environment: Vec::new(),
        }
    }

    pub fn arguments(mut self, arguments: &[&'a str]) -> Self {
        self.arguments.extend(arguments);
        self
    }

    /// The software GPU's configuration.
    pub fn gpu(mut self, toml: &'a str) -> Self {
        self.toml = toml;
        self
    }

    pub fn env(mut self, name: &'a str, value: &str) -> Self {
        self.environment.push((name, value.to_owned()));
        self
    }

    /// Runs the program until it ends.
    pub fn run(self) -> Run {
        self.run_until(|_| false)
    }

    /// Runs the program; kills it once `enough` holds for its ground truth, and after a minute.
    pub fn run_until(self, enough: impl Fn(&[Record<'static>]) -> bool) -> Run {
        let directory = tempfile::tempdir().unwrap();
        let at = |name| directory.path().join(name);
        std::fs::write(at("softgpu.toml"), self.toml).unwrap();
        std::fs::create_dir(at("truth")).unwrap();
        let mut child = Command::new(&self.program)
            .args(&self.arguments)
            .env("LD_LIBRARY_PATH", staged(HipSoname::Five))
            .env("SOFTGPU_CONFIG", at("softgpu.toml"))
            .env("SOFTGPU_LOG", at("truth"))
            .env("WORKLOAD_LOG", at("said"))
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stderr(std::fs::File::create(at("stderr")).unwrap())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break Some(status);
            }
            // A log that is being written may end within a line; the next look reads it whole.
            if Instant::now() > deadline || read_directory(&at("truth")).is_ok_and(|truth| enough(&truth)) {
                child.kill().unwrap();
                child.wait().unwrap();
                break None;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let said = std::fs::read_to_string(at("said")).unwrap_or_default();
        // What a killed program wrote may end within a line.
        let whole = said
            .rfind('\n')
            .and_then(|end| said.get(..end))
            .unwrap_or_default();
        let line = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        Run {
            status,
            stderr: std::fs::read_to_string(at("stderr")).unwrap(),
            said: whole.lines().map(line).collect(),
            truth: read_directory(&at("truth")).unwrap(),
        }
    }
}

/// A kernel as both sides know it: name, device, grid, workgroup.
pub type Launch = (String, u32, [u32; 3], [u16; 3]);

impl Run {
    /// Fails the test unless the program ended well and the GPU met nothing unknown.
    pub fn assert_success(&self) {
        let well = self.status.is_some_and(|status| status.success());
        assert!(well, "{:?}: {}", self.status, self.stderr);
        let unknown = self
            .truth
            .iter()
            .any(|record| matches!(record, Record::Unknown { .. }));
        assert!(!unknown);
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

    /// The program's own kernels that really ran, in the order of their ends.
    pub fn dispatches(&self) -> Vec<Dispatch> {
        let all = self.all_dispatches().into_iter();
        all.filter(|dispatch| !dispatch.kernel.starts_with("__"))
            .collect()
    }

    /// All kernels, the runtime's own included.
    pub fn all_dispatches(&self) -> Vec<Dispatch> {
        let dispatch = |record: &Record<'static>| match record {
            Record::Dispatch(dispatch) => Some(dispatch.clone()),
            _ => None,
        };
        self.truth.iter().filter_map(dispatch).collect()
    }

    /// Copies by SDMA that really happened.
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

    /// Bytes the program says it copied between host and GPU.
    pub fn bytes_said(&self) -> u64 {
        let bytes = |said: &Said| match said {
            Said::Copy {
                direction: Some(direction),
                bytes,
                ..
            } if direction == "h2d" || direction == "d2h" => *bytes,
            _ => 0,
        };
        self.said.iter().map(bytes).sum()
    }

    /// What the program's events measured.
    pub fn elapsed_ms(&self) -> Option<f64> {
        self.said.iter().find_map(|said| match said {
            Said::ElapsedMs { value } => Some(*value),
            _ => None,
        })
    }

    /// Fails the test unless the kernels that ran are those that were launched.
    pub fn assert_all_ran(&self) {
        let ran = self.dispatches().iter().map(launch_of).collect();
        // Long lists are not printed.
        assert!(sorted(ran) == sorted(self.launches()), "not what was launched");
    }
}

/// A dispatch in the form of a [`Launch`].
pub fn launch_of(dispatch: &Dispatch) -> Launch {
    let Dispatch {
        kernel,
        place,
        grid,
        workgroup,
        ..
    } = dispatch;
    (kernel.to_string(), place.agent, *grid, *workgroup)
}

/// Sorted, to compare regardless of order.
pub fn sorted<T: Ord>(mut values: Vec<T>) -> Vec<T> {
    values.sort();
    values
}
