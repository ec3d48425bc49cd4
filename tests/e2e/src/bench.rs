//! The starting point of a test: the binary, the workloads, and a directory of its own.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
    thread,
};

use rustix::{
    process::{Pid, Signal},
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};
use tempfile::TempDir;

use crate::{
    CallLog, Running, Trace, formats, kernel,
    process::{PATIENCE, eventually},
};

/// Name given to gputrace with `-o`.
const NAME: &str = "trace";

/// A test's working directory. It is removed with its contents when this is dropped.
#[derive(Debug)]
pub struct Bench {
    directory: TempDir,
}

impl Bench {
    /// Prepares a test that needs root and BPF. If they are not available, prints that and returns
    /// `None`: the test is then over.
    ///
    /// # Panics
    /// If they are not available and `GPUTRACE_REQUIRE_BPF=1`, or if gputrace or the workloads are
    /// not built and cannot be built.
    #[must_use]
    pub fn privileged() -> Option<Self> {
        if let Err(reason) = kernel::bpf_usable() {
            let required = env::var_os("GPUTRACE_REQUIRE_BPF").is_some_and(|value| value == "1");
            assert!(!required, "GPUTRACE_REQUIRE_BPF=1, but {reason}");
            skipped(&reason);
            return None;
        }
        Some(Self::new())
    }

    /// Prepares a test that needs no privileges.
    ///
    /// # Panics
    /// If gputrace or the workloads are not built and cannot be built.
    #[must_use]
    pub fn new() -> Self {
        assert!(
            binary().exists(),
            "{} does not exist: build gputrace first (`cargo xtask build`), or name one in GPUTRACE_BIN",
            binary().display()
        );
        let bench = Self {
            directory: tempfile::tempdir().expect("a temporary directory"),
        };
        fs::create_dir(bench.logs()).expect("a directory for call logs");
        bench
    }

    /// The test's own directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Directory for the logs of this test's workloads.
    #[must_use]
    pub fn logs(&self) -> PathBuf {
        self.path().join("calls")
    }

    /// Reads the workloads' logs.
    #[must_use]
    pub fn log(&self) -> CallLog {
        CallLog::read(&self.logs())
    }

    /// Waits until each of these processes has made at least `count` more calls.
    ///
    /// # Panics
    /// If one does not.
    pub fn wait_for_calls(&self, pids: &[u32], count: usize) {
        for pid in pids {
            let made = || CallLog::count(&self.logs(), Some(*pid));
            let before = made();
            eventually("the program goes on making calls", PATIENCE, || {
                made() >= before + count
            });
        }
    }

    /// Directory for the outputs of this test's recording number `number`.
    #[must_use]
    pub fn outputs(&self, number: u32) -> Outputs {
        Outputs {
            directory: self.path().join(format!("out{number}")),
        }
    }

    /// A command that runs gputrace with its outputs in `outputs`; the caller adds options, which
    /// override those given here. The rings are large, so that nothing is lost when gputrace does
    /// not get a processor for a while.
    #[must_use]
    pub fn gputrace(&self, outputs: &Outputs) -> Command {
        let mut command = self.gputrace_bare();
        // Some tests make several recordings, of which only the last one counts.
        command
            .arg("-d")
            .arg(&outputs.directory)
            .args(["-o", NAME, "--force", "--ring-size"])
            .arg(ring_size(64, 1024));
        command
    }

    /// A command that runs gputrace without options.
    #[must_use]
    pub fn gputrace_bare(&self) -> Command {
        let mut command = Command::new(binary());
        command
            .env("WORKLOAD_LOG", self.logs())
            .current_dir(self.path());
        command
    }

    /// Records a workload from its first call to its end, into [`Bench::outputs`] 0.
    ///
    /// # Panics
    /// If gputrace fails.
    #[must_use]
    pub fn launch(&self, options: &[&str], workload: &[&str]) -> Outputs {
        let outputs = self.outputs(0);
        let mut command = self.gputrace(&outputs);
        command
            .args(options)
            .arg("--")
            .arg(self.program(workload[0]))
            .args(&workload[1..]);
        Running::start("gputrace", &mut command).finish();
        outputs
    }

    /// Records calls of `threads` threads with ring buffers that are too small for them. The
    /// recorder is stopped while the calls are made, so the rings fill up however fast it is.
    /// Returns gputrace's standard error.
    ///
    /// # Panics
    /// If gputrace fails.
    #[must_use]
    pub fn attach_with_full_rings(&self, outputs: &Outputs, threads: usize) -> String {
        let mut program = self.start(&["synthetic/synthetic", "block", &threads.to_string()]);
        // One ring has to take all, however many processors there are.
        keep_on_one_processor(&program);
        let mut gputrace = self.attach(outputs, &["--ring-size", "4KiB"], &[program.pid()]);
        gputrace.signal(Signal::STOP);
        program.send("go");
        program.wait_for_stdout("inside");
        gputrace.signal(Signal::CONT);
        program.close_stdin();
        program.finish();
        gputrace.finish();
        gputrace.stderr()
    }

    /// Starts gputrace on running processes and waits until all probes are attached.
    ///
    /// # Panics
    /// If they are not attached in time.
    #[must_use]
    pub fn attach(&self, outputs: &Outputs, options: &[&str], pids: &[u32]) -> Running {
        let mut command = self.gputrace(outputs);
        command.args(options);
        for pid in pids {
            command.arg("-p").arg(pid.to_string());
        }
        let gputrace = Running::start("gputrace", &mut command);
        gputrace.wait_for_stderr("recording");
        gputrace
    }

    /// Starts a workload by itself and waits until it prints `ready`.
    ///
    /// # Panics
    /// If it does not.
    #[must_use]
    pub fn start(&self, workload: &[&str]) -> Running {
        let mut command = Command::new(self.program(workload[0]));
        command
            .args(&workload[1..])
            .env("WORKLOAD_LOG", self.logs());
        let running = Running::start(workload[0], &mut command);
        running.wait_for_stdout("ready");
        running
    }

    /// Path of a workload: this test's own copy if there is one, otherwise the built one.
    #[must_use]
    pub fn program(&self, name: &str) -> PathBuf {
        let copy = self.path().join(name);
        if copy.exists() {
            copy
        } else {
            workloads().join(name)
        }
    }

    /// Copies the synthetic library and its driver into this test's own directory, where no other
    /// process uses them and the test may modify them. Returns the library's path.
    ///
    /// # Panics
    /// If a file cannot be copied.
    #[must_use]
    pub fn copy_synthetic(&self) -> PathBuf {
        let (from, to) = (workloads().join("synthetic"), self.path().join("synthetic"));
        fs::create_dir(&to).expect("a directory for the copies");
        for name in ["synthetic", "libamdhip64.so.99"] {
            fs::copy(from.join(name), to.join(name)).expect("a copy of the synthetic library");
        }
        to.join("libamdhip64.so.99")
    }
}

impl Default for Bench {
    fn default() -> Self {
        Self::new()
    }
}

/// A shell in a mount namespace of its own, which runs `script`. Arguments of the command are
/// those of the script.
#[must_use]
pub fn with_own_mounts(script: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c"]);
    command.args([script, "sh"]);
    command
}

/// The files that a recording makes.
#[derive(Clone, Debug)]
pub struct Outputs {
    directory: PathBuf,
}

impl Outputs {
    /// The directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// A file by the part of its name after `NAME`, e.g. `_results.pftrace`.
    #[must_use]
    pub fn file(&self, rest: &str) -> PathBuf {
        self.directory.join(format!("{NAME}{rest}"))
    }

    /// The capture.
    #[must_use]
    pub fn capture(&self) -> PathBuf {
        self.file(".gtcap")
    }

    /// Reads the capture.
    #[must_use]
    pub fn trace(&self) -> Trace {
        Trace::read(&self.capture())
    }

    /// Compares all formats with the capture ([`crate::formats`]), if their readers are installed.
    pub fn assert_formats_agree(&self) {
        if let Some(python) = formats::python() {
            formats::agree(&binary(), &self.capture(), &python);
        }
    }
}

pub use gputrace_skip::skipped;

/// Prints a figure that can be compared with that of another run. It decides nothing, because no
/// machine promises it.
#[expect(
    clippy::print_stdout,
    reason = "standard output is where figures are looked for"
)]
pub fn figure(name: &str, value: f64, unit: &str) {
    println!("figure {name} = {value:.3} {unit}");
}

/// Size of each CPU's ring: `each` MiB if there are few CPUs, and `all` MiB together if there are
/// many.
///
/// # Panics
/// If `each` or `all` is 0.
#[must_use]
pub fn ring_size(each: usize, all: usize) -> String {
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let size = (all / cpus).clamp(1, each);
    // A power of two, as the kernel requires.
    format!("{}MiB", 1 << size.ilog2())
}

/// Keeps a program on one processor, so that one ring takes what it does, in order. This covers its
/// first thread and the threads that start from now on.
///
/// # Panics
/// If the program has ended.
pub fn keep_on_one_processor(program: &Running) {
    let cpus = sched_getaffinity(None).expect("this thread's processors");
    let first = (0..CpuSet::MAX_CPU).find(|cpu| cpus.is_set(*cpu));
    let mut one = CpuSet::new();
    one.set(first.unwrap_or_default());
    let pid = Pid::from_raw(program.pid().cast_signed());
    sched_setaffinity(pid, &one).expect("a processor of this thread's");
}

/// The binary under test.
#[must_use]
pub fn binary() -> PathBuf {
    env::var_os("GPUTRACE_BIN").map_or_else(|| target().join("debug/gputrace"), PathBuf::from)
}

fn checkout() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("the crate lies in tests/e2e")
}

fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| checkout().join("target"), PathBuf::from)
}

/// Directory of the built workloads. Builds what is missing or out of date, once per test program.
fn workloads() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let directory = target().join("workloads");
        let output = Command::new(checkout().join("tests/workloads/build.sh"))
            .arg(&directory)
            .stdin(Stdio::null())
            .output()
            .expect("the workloads' build script");
        assert!(
            output.status.success(),
            "the workloads do not build:\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
        directory
    })
}
