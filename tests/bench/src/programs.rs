//! Loads `ebpf/bench`, and queries the kernel about this process's programs.

use std::{
    collections::HashSet,
    ffi::OsStr,
    fs,
    os::fd::{FromRawFd as _, OwnedFd},
    path::Path,
};

use anyhow::{Context as _, Result, bail};
use gputrace_loader::{
    attach::{Attached, Backend as _, Point, Scope, Side, UprobeMulti},
    calls::Calls,
};
use libbpf_rs::{
    Object, ObjectBuilder, OpenObject, ProgramAttachType, ProgramMut, query::ProgInfoIter,
};

fn open(path: &Path, wanted: &[&str]) -> Result<OpenObject> {
    let mut open = ObjectBuilder::default()
        .name("bench")?
        .open_file(path)
        .with_context(|| {
            format!(
                "cannot open {}; `cargo xtask bench` makes it",
                path.display()
            )
        })?;
    for mut program in open.progs_mut() {
        let name = program.name().to_owned();
        program.set_autoload(wanted.iter().any(|wanted| name == OsStr::new(wanted)));
        if name.as_encoded_bytes().starts_with(b"empty") {
            program.set_attach_type(ProgramAttachType::TraceUprobeMulti);
        }
    }
    Ok(open)
}

fn program<'a>(object: &'a Object, name: &str) -> Result<ProgramMut<'a>> {
    object
        .progs_mut()
        .find(|program| program.name() == OsStr::new(name))
        .with_context(|| format!("no program {name}"))
}

/// A pair of programs that do nothing.
#[derive(Debug)]
pub(crate) struct Empty(Object);

impl Empty {
    /// Loads them.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub(crate) fn load(path: &Path) -> Result<Self> {
        Ok(Self(open(path, &["empty_enter", "empty_leave"])?.load()?))
    }

    /// Attaches them to a function as gputrace attaches its own.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub(crate) fn attach(&self, path: &Path, point: Point) -> Result<Vec<Attached>> {
        let points = [point];
        let attach = |name, side| {
            UprobeMulti
                .attach(
                    &program(&self.0, name)?,
                    path,
                    Scope::EveryProcess,
                    side,
                    &points,
                )
                .map_err(anyhow::Error::from)
        };
        let leave = attach("empty_leave", Side::Return)?;
        Ok(vec![leave, attach("empty_enter", Side::Entry)?])
    }
}

/// The program that floods rings with records.
#[derive(Debug)]
pub(crate) struct Producer(Object);

impl Producer {
    /// Loads it onto the maps of `calls`.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub(crate) fn load(path: &Path, calls: &Calls) -> Result<Self> {
        let mut open = open(path, &["produce"])?;
        calls.share_maps(&mut open)?;
        Ok(Self(open.load()?))
    }

    /// Runs it `times` times on this CPU.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub(crate) fn run(&self, times: u32) -> Result<()> {
        // The shortest packet that the kernel accepts.
        let packet = [0; 64];
        let input = libbpf_rs::ProgramInput {
            data_in: Some(&packet),
            repeat: times,
            ..Default::default()
        };
        program(&self.0, "produce")?.test_run(input)?;
        Ok(())
    }
}

/// Makes the kernel measure programs while this is alive, which itself has a cost.
#[derive(Debug)]
pub(crate) struct Statistics(#[expect(dead_code, reason = "held open")] OwnedFd);

impl Statistics {
    /// Starts the measurement.
    ///
    /// # Errors
    ///
    /// When the kernel (before 5.8) cannot.
    pub(crate) fn enable() -> Result<Self> {
        // SAFETY: a system call that takes an integer.
        let fd = unsafe {
            libbpf_rs::libbpf_sys::bpf_enable_stats(libbpf_rs::libbpf_sys::BPF_STATS_RUN_TIME)
        };
        if fd < 0 {
            bail!(
                "cannot make the kernel measure programs: {}",
                std::io::Error::last_os_error()
            );
        }
        // SAFETY: the kernel has just created this descriptor, and nothing else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }
}

/// The kernel's figures for one program.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) name: String,
    /// Time in the program, ns, and number of runs, while there were [`Statistics`].
    pub(crate) nanoseconds: u64,
    pub(crate) runs: u64,
    /// Number of instructions that the verifier processed.
    pub(crate) verified: u32,
}

/// Programs that this process holds.
pub(crate) fn measured() -> Vec<Measured> {
    measured_of(std::process::id())
}

/// Programs that a process holds.
pub(crate) fn measured_of(pid: u32) -> Vec<Measured> {
    let held: HashSet<u32> = fs::read_dir(format!("/proc/{pid}/fdinfo"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let info = fs::read_to_string(entry.path()).ok()?;
            info.lines()
                .find_map(|line| line.strip_prefix("prog_id:"))?
                .trim()
                .parse()
                .ok()
        })
        .collect();
    ProgInfoIter::default()
        .filter(|info| held.contains(&info.id))
        .map(|info| Measured {
            name: info.name.to_string_lossy().into_owned(),
            nanoseconds: info.run_time_ns,
            runs: info.run_cnt,
            verified: info.verified_insns,
        })
        .collect()
}
