//! Runs programs with the real runtime on the software GPU until they hang in a kernel that never
//! ends, and can be inspected from outside.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "test code outside of #[test] functions"
)]
#![allow(dead_code, reason = "not every test file uses all of it")]
#![allow(
    unreachable_pub,
    reason = "a module of test programs, which have no other face"
)]

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use gputrace_softgpu::truth::{Dispatch, Record, read_directory};

/// Maximum time for a program to reach its last kernel, including the start of the runtime.
const PATIENCE: Duration = Duration::from_secs(120);

/// Environment variable with the root of another Debian release, whose ROCm is used instead of this
/// machine's. The tests of the software GPU use the same one.
pub fn root() -> Option<PathBuf> {
    std::env::var_os("MOCKKFD_TEST_ROOT").map(PathBuf::from)
}

fn libraries() -> Option<PathBuf> {
    root().map(|root| root.join("usr/lib/x86_64-linux-gnu"))
}

/// The library to preload, which cargo has built beside the test program.
fn mock() -> PathBuf {
    let directory = std::env::current_exe()
        .unwrap()
        .parent()
        .unwrap()
        .to_owned();
    let library = directory.join("libgputrace_mockkfd.so");
    assert!(
        library.exists(),
        "{} is missing; run the tests by cargo",
        library.display()
    );
    library
}

/// Source of one of the workloads that the repository's GPU tests share.
pub fn workload(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/workloads/gpu")
        .join(file)
}

/// Compiles a program of this directory for the wanted release; `extra` are further libraries.
pub fn program(name: &str, directory: &Path, extra: &[&str]) -> PathBuf {
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    compile(&programs.join(format!("{name}.cpp")), directory, extra)
}

/// Compiles a program for the wanted release; `extra` are further libraries.
pub fn compile(source: &Path, directory: &Path, extra: &[&str]) -> PathBuf {
    let name = source.file_stem().unwrap().to_str().unwrap();
    let object = directory.join(format!("{name}.o"));
    run(hipcc().arg("-c").arg(source).arg("-o").arg(&object));
    let program = directory.join(name);
    let mut link = Command::new("g++");
    link.arg("-pthread").arg(&object).arg("-o").arg(&program);
    match libraries() {
        None => {
            link.arg("-lamdhip64");
        }
        Some(libraries) => {
            let newest = |stem: &str| {
                let mut found: Vec<PathBuf> = std::fs::read_dir(&libraries)
                    .unwrap()
                    .map(|entry| entry.unwrap().path())
                    .filter(|path| {
                        let name = path.file_name().unwrap().to_string_lossy();
                        name.starts_with(stem) && name.len() == stem.len() + 1
                    })
                    .collect();
                found.sort();
                found.pop()
            };
            link.arg(newest("libamdhip64.so.").unwrap());
            for library in extra {
                link.args(newest(&format!("lib{library}.so.")));
            }
            link.args([
                "-Wl,--allow-shlib-undefined,--disable-new-dtags",
                "-Wl,-rpath",
            ]);
            link.arg(&libraries);
            link.arg("-Wl,--dynamic-linker")
                .arg(libraries.join("ld-linux-x86-64.so.2"));
        }
    }
    run(&mut link);
    program
}

/// The compiler, for the GPUs of the tests. The environment keeps it from looking for a GPU.
pub fn hipcc() -> Command {
    let mut hipcc = Command::new("hipcc");
    hipcc.env("HCC_AMDGPU_TARGET", "gfx906").args([
        "--offload-arch=gfx906",
        "--offload-arch=gfx1030",
        "-std=c++17",
        "-O1",
    ]);
    hipcc
}

/// Runs a tool that must succeed, and returns what it prints.
pub fn run(command: &mut Command) -> String {
    let output = command.stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A program on the software GPU. Killed when dropped.
pub struct Running {
    child: Child,
    directory: tempfile::TempDir,
}

impl Running {
    /// Starts a program on a software GPU with this configuration.
    pub fn start(toml: &str, program: &Path, arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = directory.path().join("softgpu.toml");
        let truth = directory.path().join("truth");
        let log = directory.path().join("log");
        std::fs::write(&config, toml).unwrap();
        std::fs::create_dir(&truth).unwrap();
        let mut command = Command::new(program);
        if let Some(libraries) = libraries() {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        let child = command
            .args(arguments)
            .env("LD_PRELOAD", mock())
            .env("SOFTGPU_CONFIG", &config)
            .env("SOFTGPU_LOG", &truth)
            .env("WORKLOAD_LOG", directory.path().join("said"))
            .env("GPU_FORCE_BLIT_COPY_SIZE", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Self { child, directory }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has not ended; fails the test if it ended with an error.
    pub fn is_running(&mut self) -> bool {
        match self.child.try_wait().unwrap() {
            None => true,
            Some(status) => {
                assert!(status.success(), "{status}: {}", self.said());
                false
            }
        }
    }

    /// The text that it wrote to its standard error.
    pub fn said(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// The software GPU's log so far.
    fn truth(&self) -> Vec<Record<'static>> {
        // The last line of a log may be incomplete while it is being written.
        read_directory(&self.directory.path().join("truth")).unwrap_or_default()
    }

    /// Kernels that the GPU executed so far.
    pub fn dispatches(&self) -> Vec<Dispatch> {
        let dispatch = |record| match record {
            Record::Dispatch(dispatch) => Some(dispatch),
            _ => None,
        };
        self.truth().into_iter().filter_map(dispatch).collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A program that hangs in a kernel.
pub struct Hanging {
    program: Running,
    /// The dispatches that the software GPU had executed by then.
    pub dispatches: Vec<Dispatch>,
}

impl Hanging {
    /// Runs a program until the `nth` kernel whose name matches `kernel`, which never ends.
    pub fn start(program: &Path, arguments: &[&str], kernel: &str, nth: u32) -> Self {
        Self::start_on("", program, arguments, kernel, nth)
    }

    /// Like [`Hanging::start`], on a software GPU with this configuration.
    pub fn start_on(
        toml: &str,
        program: &Path,
        arguments: &[&str],
        kernel: &str,
        nth: u32,
    ) -> Self {
        let rule =
            format!("{toml}\n[[fault]]\nkind = 'never_ends'\nkernel = '{kernel}'\nnth = {nth}\n");
        let mut program = Running::start(&rule, program, arguments);
        let deadline = Instant::now() + PATIENCE;
        let hangs = |record: &Record<'_>| matches!(record, Record::Fault { .. });
        while !program.truth().iter().any(hangs) {
            assert!(program.is_running(), "it ended without coming to {kernel}");
            assert!(
                Instant::now() < deadline,
                "it does not hang: {}",
                program.said()
            );
            // Polls a log: there is nothing to wait on.
            std::thread::sleep(Duration::from_millis(5));
        }
        let dispatches = program.dispatches();
        Self {
            program,
            dispatches,
        }
    }

    pub fn pid(&self) -> u32 {
        self.program.pid()
    }
}
