//! A guest: QEMU with a kernel of [`super::kernels`] and this machine's root file system.
//!
//! | of the guest | is on this machine |
//! |---|---|
//! | `/` | `/` through 9p, read-only |
//! | `/dev`, `/proc`, `/sys`, `/tmp`, `/run`, `/var/tmp` | not there; the guest's own |
//! | the program's standard output and error, and its exit status | three virtio ports, each a socket to xtask |
//! | the console | `console.log` in the run's directory, shown when the guest fails |
//!
//! The scripts that run in the guest are `tests/vm/init.sh` and `tests/vm/job.sh`.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read as _, Write};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Signal, set_parent_process_death_signal};

use super::archive::Archive;
use super::kernels::{Files, Kernel};
use super::modules::BOOT_LIST;
use crate::cache::remove;
use crate::exec;
use crate::progress::Seconds;
use crate::workspace::Workspace;

const QEMU: &str = "qemu-system-x86_64";

/// Number of console lines that are shown when a guest fails.
const CONSOLE_LINES: usize = 40;

/// Environment variables of this machine that a program in the guest gets, too, in addition to
/// those that begin with one of [`PASSED_PREFIXES`].
const PASSED: [&str; 4] = ["PATH", "HOME", "LANG", "CARGO_TARGET_DIR"];
const PASSED_PREFIXES: [&str; 3] = ["GPUTRACE_", "RUST_", "XDG_"];

/// The guest's scripts.
const INIT: &str = include_str!("../../../tests/vm/init.sh");
const JOB: &str = include_str!("../../../tests/vm/job.sh");

/// # Errors
///
/// When there is no QEMU; the message names its package.
pub(super) fn require_qemu() -> Result<()> {
    if exec::find_program(QEMU).is_some() {
        return Ok(());
    }
    bail!(
        "{QEMU} is missing\n-> on Debian and Ubuntu: `apt-get install --no-install-recommends qemu-system-x86`; \
         elsewhere the package with QEMU for x86-64"
    )
}

/// When amdgpu is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Driver {
    /// Before the script begins.
    Loaded,
    /// When the script calls `load_driver`.
    OnDemand,
}

/// Default number of CPUs of a guest.
pub(super) const CPUS: u32 = 2;

/// A guest that can be started. Its directory is removed when this is dropped.
#[derive(Debug)]
pub(super) struct Guest<'a> {
    workspace: &'a Workspace,
    kernel: &'a Kernel,
    files: &'a Files,
    directory: PathBuf,
    /// Number of CPUs.
    cpus: u32,
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        // If this fails, the next `rm -r target` removes it.
        let _ = remove(&self.directory);
    }
}

impl<'a> Guest<'a> {
    /// Prepares the directory of a run.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub(super) fn new(
        workspace: &'a Workspace,
        kernel: &'a Kernel,
        files: &'a Files,
    ) -> Result<Self> {
        let run = format!("run-{}-{}", kernel.name, std::process::id());
        let guest = Self {
            workspace,
            kernel,
            files,
            directory: workspace.target.join("vm").join(run),
            cpus: CPUS,
        };
        remove(&guest.directory)?;
        fs::create_dir_all(&guest.directory)
            .with_context(|| format!("cannot create {}", guest.directory.display()))?;
        guest.write("initramfs", &guest.initramfs()?)?;
        guest.write("empty", b"")?;
        Ok(guest)
    }

    /// Sets another number of CPUs.
    pub(super) fn with_cpus(mut self, cpus: u32) -> Self {
        self.cpus = cpus;
        self
    }

    fn write(&self, name: &str, content: &[u8]) -> Result<()> {
        let path = self.directory.join(name);
        fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))
    }

    fn initramfs(&self) -> Result<Vec<u8>> {
        let read = |path: PathBuf| {
            fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        let mut archive = Archive::default();
        for name in ["bin", "dev", "host", "modules", "proc", "root", "sys"] {
            archive.directory(name);
        }
        archive.program("init", INIT.as_bytes());
        let busybox = read(self.files.busybox())?;
        // Busybox acts as the program by whose name it is called. It is stored twice, because links
        // would save little.
        archive.program("bin/sh", &busybox);
        archive.program("bin/busybox", &busybox);
        for name in ["cat", "insmod", "mkdir", "mount", "switch_root", "umount"] {
            let script = format!("#!/bin/sh\nexec busybox {name} \"$@\"\n");
            archive.program(&format!("bin/{name}"), script.as_bytes());
        }
        let list = read(self.files.modules().join(BOOT_LIST))?;
        for module in String::from_utf8_lossy(&list).lines() {
            archive.data(
                &format!("modules/{module}"),
                &read(self.files.modules().join(module))?,
            );
        }
        archive.data(&format!("modules/{BOOT_LIST}"), &list);
        Ok(archive.finish())
    }

    /// Boots the guest, runs `program` in it with xtask's own outputs, and returns the program's
    /// exit status.
    ///
    /// # Errors
    ///
    /// When the guest does not start, dies, or is not done after `timeout`.
    pub(super) fn run(&self, program: &[OsString], timeout: Duration) -> Result<i32> {
        let words: Vec<Vec<u8>> = program.iter().map(|word| quoted(word)).collect();
        self.run_script(
            &words.join(&b' '),
            Driver::Loaded,
            timeout,
            &mut io::stdout(),
        )
    }

    /// As [`Guest::run`], with a shell script whose standard output goes to `output`.
    ///
    /// # Errors
    ///
    /// Those of [`Guest::run`].
    pub(super) fn run_script(
        &self,
        script: &[u8],
        driver: Driver,
        timeout: Duration,
        output: &mut (dyn Write + Send),
    ) -> Result<i32> {
        self.write("job.sh", &self.job(script, driver)?)?;
        self.write("kept", &self.kept()?)?;
        let (out, out_of_guest) = UnixStream::pair()?;
        let (err, err_of_guest) = UnixStream::pair()?;
        let (status, status_of_guest) = UnixStream::pair()?;
        let mut qemu = self.qemu(&[
            ("gputrace.out", &out_of_guest),
            ("gputrace.err", &err_of_guest),
            ("gputrace.status", &status_of_guest),
        ])?;
        let start = Instant::now();
        let child = qemu
            .spawn()
            .with_context(|| format!("cannot start `{}`", exec::describe(&qemu)))?;
        let mut running = Running(child);
        // So that the streams end with QEMU.
        drop((out_of_guest, err_of_guest, status_of_guest));
        let (ended, said) = thread::scope(|scope| {
            scope.spawn(move || copy(out, output));
            scope.spawn(move || copy(err, &mut io::stderr()));
            let status = scope.spawn(move || {
                let (mut said, mut status) = (String::new(), status);
                // If it was cut short, it is not a number.
                let _ = status.read_to_string(&mut said);
                said
            });
            let ended = running.wait(timeout);
            // The end of QEMU, by itself or by force, has ended the streams.
            (ended, status.join().unwrap_or_default())
        });
        let Ok(true) = ended else {
            ended?;
            bail!(
                "the guest was not done after {} and was killed; `--timeout SECONDS` allows more\n{}",
                Seconds(timeout),
                self.console()
            )
        };
        said.trim().parse().map_err(|_| {
            anyhow::anyhow!(
                "the guest with {} died after {}\n{}",
                self.kernel,
                Seconds(start.elapsed()),
                self.console()
            )
        })
    }

    /// The job that the guest runs when its files are available.
    fn job(&self, script: &[u8], driver: Driver) -> Result<Vec<u8>> {
        let mut job = Vec::new();
        for (name, value) in [
            ("run", self.directory.as_os_str()),
            ("files", self.files.directory().as_os_str()),
            ("name", OsStr::new(self.kernel.name)),
            (
                "driver",
                OsStr::new(if driver == Driver::Loaded {
                    "yes"
                } else {
                    "no"
                }),
            ),
        ] {
            assign(&mut job, OsStr::new(name), value);
        }
        for (name, value) in env::vars_os() {
            let passed = name.to_str().is_some_and(|name| {
                PASSED.contains(&name) || PASSED_PREFIXES.iter().any(|p| name.starts_with(p))
            });
            if passed {
                job.extend_from_slice(b"export ");
                assign(&mut job, &name, &value);
            }
        }
        job.extend_from_slice(b"export TMPDIR=/tmp\ncommand() {\ncd ");
        job.extend_from_slice(&quoted(env::current_dir()?.as_os_str()));
        job.extend_from_slice(b" || return\n");
        job.extend_from_slice(script);
        job.extend_from_slice(b"\n}\n");
        job.extend_from_slice(JOB.as_bytes());
        Ok(job)
    }

    /// Directories that must be the host's even if they are in a directory of the guest's own.
    fn kept(&self) -> Result<Vec<u8>> {
        let current = env::current_dir()?;
        let mut kept = Vec::new();
        for path in [
            &self.workspace.root,
            &self.workspace.target,
            &self.directory,
            self.files.directory(),
            &current,
        ] as [&Path; 5]
        {
            kept.extend_from_slice(path.as_os_str().as_bytes());
            kept.push(b'\n');
        }
        Ok(kept)
    }

    /// The QEMU command, with a virtio port for each stream.
    fn qemu(&self, ports: &[(&str, &UnixStream)]) -> Result<Command> {
        for directory in [&self.directory, self.files.directory()] as [&Path; 2] {
            // QEMU separates options by commas, the kernel by spaces, and the first script by
            // lines.
            if directory
                .as_os_str()
                .as_bytes()
                .iter()
                .any(|byte| b", \n\"".contains(byte))
            {
                bail!(
                    "{}: QEMU cannot use a path with spaces or commas",
                    directory.display()
                );
            }
        }
        let command_line = format!(
            // Skips the query of old BIOS calls, which takes a second. A guest that panics ends.
            // QEMU's time stamp counter is the host's; Linux cannot know that and would replace it
            // by a clock that costs a switch to QEMU per reading. Grace periods of RCU are
            // expedited, because perf events need hundreds of them, and they are long on a slow
            // CPU.
            "console=ttyS0 loglevel=4 edd=off panic=-1 tsc=reliable rcupdate.rcu_expedited=1 gputrace.run={} gputrace.files={}",
            self.directory.display(),
            self.files.directory().display()
        );
        let mut qemu = Command::new(QEMU);
        qemu.args([
            "-nodefaults",
            "-no-user-config",
            "-no-reboot",
            "-display",
            "none",
        ])
        // Emulated, because nested virtualisation hangs or is not available.
        .args([
            "-accel",
            "tcg,thread=multi",
            "-cpu",
            "max",
            "-smp",
            &self.cpus.to_string(),
            "-m",
            "3G",
        ])
        .arg("-kernel")
        .arg(self.files.image())
        .arg("-initrd")
        .arg(self.directory.join("initramfs"))
        .args(["-append", &command_line, "-serial"])
        .arg(format!(
            "file:{}",
            self.directory.join("console.log").display()
        ))
        .args([
            "-virtfs",
            "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap",
        ])
        .args(["-device", "virtio-serial-pci"]);
        for (number, (name, stream)) in ports.iter().enumerate() {
            // So that QEMU inherits it.
            fcntl_setfd(stream, FdFlags::empty()).context("cannot hand a socket to QEMU")?;
            qemu.arg("-chardev")
                .arg(format!("socket,id=c{number},fd={}", stream.as_raw_fd()))
                .arg("-device")
                .arg(format!("virtserialport,chardev=c{number},name={name}"));
        }
        qemu.stdin(Stdio::null()).stdout(Stdio::null());
        // SAFETY: one system call, which allocates nothing and takes no lock.
        unsafe {
            // A guest must not outlive an xtask that is killed.
            qemu.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?));
        }
        Ok(qemu)
    }

    /// The end of the output of the guest's kernel and first program.
    fn console(&self) -> String {
        let log = fs::read(self.directory.join("console.log")).unwrap_or_default();
        let text = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = text.lines().collect();
        // If the kernel has died, its first message shows the cause.
        let died = lines.iter().position(|line| line.contains("[#1]"));
        let first = died.unwrap_or(lines.len().saturating_sub(CONSOLE_LINES));
        let shown = lines.iter().skip(first).take(CONSOLE_LINES);
        let shown: Vec<String> = shown
            .map(|line| format!("  console: {}", line.trim_end()))
            .collect();
        shown.join("\n")
    }
}

/// A running QEMU; killed when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Harmless if it has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    /// Whether it ends by itself within `timeout`; otherwise it is killed.
    fn wait(&mut self, timeout: Duration) -> Result<bool> {
        let deadline = Instant::now() + timeout;
        loop {
            if self.0.try_wait()?.is_some() {
                return Ok(true);
            }
            if Instant::now() >= deadline {
                self.0.kill()?;
                self.0.wait()?;
                return Ok(false);
            }
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Copies the guest's output as it comes.
fn copy(mut from: UnixStream, to: &mut dyn Write) {
    let mut buffer = [0; 1 << 16];
    while let Ok(count) = from.read(&mut buffer) {
        let Some(bytes) = buffer.get(..count).filter(|bytes| !bytes.is_empty()) else {
            break;
        };
        // If writing fails, nobody reads; the guest must end normally even so.
        let _ = to.write_all(bytes).and_then(|()| to.flush());
    }
}

/// Appends `NAME='value'` and a newline.
fn assign(job: &mut Vec<u8>, name: &OsStr, value: &OsStr) {
    job.extend_from_slice(name.as_bytes());
    job.push(b'=');
    job.extend_from_slice(&quoted(value));
    job.push(b'\n');
}

/// Quotes `word` for a shell, whatever bytes it has.
fn quoted(word: &OsStr) -> Vec<u8> {
    let mut quoted = vec![b'\''];
    for byte in word.as_bytes() {
        if *byte == b'\'' {
            quoted.extend_from_slice(br"'\''");
        } else {
            quoted.push(*byte);
        }
    }
    quoted.push(b'\'');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_reach_the_guests_shell_as_they_are() {
        for word in ["plain", "two words", "it's", "", "$HOME `id` \"x\" \\"] {
            let mut script = b"printf %s ".to_vec();
            script.extend_from_slice(&quoted(OsStr::new(word)));
            let script = String::from_utf8(script).unwrap();
            let printed = exec::capture(Command::new("sh").args(["-c", &script])).unwrap();
            assert_eq!(printed, word);
        }
    }

    #[test]
    fn streams_are_copied_to_their_end() {
        let (mut guest, host) = UnixStream::pair().unwrap();
        guest.write_all(b"one\ntwo").unwrap();
        drop(guest);
        let mut screen = Vec::new();
        copy(host, &mut screen);
        assert_eq!(screen, b"one\ntwo");
    }
}
