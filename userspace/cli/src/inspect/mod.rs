//! Shows what a machine has, what runs on it, and what can be recorded, without recording anything.
//!
//! Each command gathers its data from files below a root directory (`/`, or a synthetic tree in
//! tests), and shows it as text for people or as JSON. Data goes to stdout; what could not be read
//! is reported on stderr, and in the JSON's `notes`.

mod doctor;
mod kfd;
mod lines;
mod owner;
mod ps;
mod status;
mod table;
mod topology;
#[cfg(test)]
mod tree;
mod verify;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Result;
use clap::Args;
use gputrace_files::{kernel as files, rights};
use gputrace_kfd::{FileError, Paths};
use gputrace_text::{json, tables::plural};
use serde::Serialize;

use crate::{args::duration, say, stdout};

pub(crate) use doctor::run as doctor;
pub(crate) use kfd::run as kfd;
pub(crate) use ps::{gpus_of_processes, run as ps};
pub(crate) use status::run as status;
pub(crate) use topology::run as topology;
pub(crate) use verify::{VerifyArgs, WorkArgs, run as verify, work as verify_work};

/// Options of `topology`.
#[derive(Debug, Args)]
#[command(before_help = "Example: gputrace topology")]
pub(crate) struct TopologyArgs {
    /// Also show every column of rocprofv3's agent_info.
    #[arg(short = 'v', long)]
    pub(crate) verbose: bool,
    /// Print JSON, with all details.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `ps`.
#[derive(Debug, Args)]
#[command(before_help = "Example: sudo gputrace ps")]
pub(crate) struct PsArgs {
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `status`.
#[derive(Debug, Args)]
#[command(before_help = "\
Examples:
  sudo gputrace status             who records on this node
  sudo touch /run/gputrace.stop    end all recordings of this node, and refuse new ones
  sudo rm /run/gputrace.stop       allow recordings again")]
pub(crate) struct StatusArgs {
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `kfd`.
#[derive(Debug, Args)]
#[command(before_help = "Example: sudo gputrace kfd 1234")]
pub(crate) struct KfdArgs {
    /// Process id, as KFD and `gputrace ps` show it.
    pub(crate) pid: u32,
    /// Time between the two readings from which rates are computed.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    pub(crate) interval: Duration,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `doctor`.
#[derive(Debug, Args)]
#[command(
    before_help = "Example: sudo gputrace doctor",
    after_help = "Exit status: 0 if calls can be recorded; 6 if only permission is missing (run \
                  with sudo); 7 if the kernel lacks a required feature; 1 if gputrace runs in a \
                  container with its own pid namespace."
)]
pub(crate) struct DoctorArgs {
    /// Output directory of the recording that you plan [default: the current one].
    #[arg(
        short = 'd',
        long,
        value_name = "DIR",
        default_value = ".",
        hide_default_value = true
    )]
    pub(crate) output_directory: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The files of a machine.
#[derive(Debug)]
struct Machine {
    /// Its root directory.
    root: PathBuf,
    /// Paths of the driver's files.
    paths: Paths,
}

impl Machine {
    /// This machine.
    fn this() -> Self {
        Self::under(Path::new("/"))
    }

    fn under(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            paths: Paths::under(root),
        }
    }

    /// The first line of a small file; `None` if it cannot be read.
    fn line(&self, path: &str) -> Option<String> {
        let text = files::read_text(self.root.join(path)).ok()?;
        Some(text.lines().next().unwrap_or_default().trim().to_owned())
    }

    fn has(&self, path: &str) -> bool {
        files::exists(self.root.join(path))
    }

    /// Whether process ids here are the host's, which KFD uses.
    fn has_host_pids(&self) -> bool {
        // `PROC_PID_INIT_INO` of the kernel's include/linux/proc_ns.h: the initial namespace.
        const INITIAL: &str = "pid:[4026531836]";
        files::read_link(self.paths.proc.join("self/ns/pid"))
            .is_ok_and(|namespace| namespace == Path::new(INITIAL))
    }

    /// PCI addresses of AMD's GPUs, with or without a driver.
    fn amd_gpus(&self) -> Vec<String> {
        const AMD: &str = "0x1002";
        // PCI classes: display controllers and processing accelerators.
        const CLASSES: [&str; 2] = ["0x03", "0x12"];
        let devices = self.root.join("sys/bus/pci/devices");
        let Ok(names) = files::list(&devices) else {
            return Vec::new();
        };
        let is_gpu = |device: &Path| {
            let line = |name| files::read_text(device.join(name)).unwrap_or_default();
            let class = line("class");
            line("vendor").trim() == AMD && CLASSES.iter().any(|known| class.starts_with(known))
        };
        let mut gpus: Vec<String> = names
            .iter()
            .filter(|name| is_gpu(&devices.join(name)))
            .map(|name| name.to_string_lossy().into_owned())
            .collect();
        gpus.sort_unstable();
        gpus
    }

    /// Why KFD shows nothing, and what to do.
    fn why_no_kfd(&self) -> String {
        let loaded = self.has("sys/module/amdgpu");
        match (self.amd_gpus().as_slice(), loaded) {
            ([], false) => {
                "there is no AMD GPU here: none on the PCI bus, and its driver (amdgpu) is not loaded"
                    .to_owned()
            }
            ([], true) => "the driver amdgpu is loaded, but there is no AMD GPU on the PCI bus".to_owned(),
            ([gpu, ..], false) => format!(
                "the AMD GPU at {gpu} has no driver: amdgpu is not loaded; load it with `sudo modprobe amdgpu`"
            ),
            ([gpu, ..], true) => format!(
                "amdgpu is loaded, but its compute part (KFD) does not serve the GPU at {gpu}; \
                 `sudo dmesg | grep -i -e kfd -e amdgpu` shows why"
            ),
        }
    }
}

/// The data that a command shows.
trait View: Serialize {
    /// Tables for people, at most 100 columns wide.
    fn text(&self) -> String;
    /// What could not be read, one sentence each.
    fn notes(&self) -> &[String];
}

/// Prints the data, and what could not be read.
fn show(view: &impl View, json: bool) -> Result<()> {
    if json {
        stdout::print(&(json::to_string_pretty(view)? + "\n"))?;
        return Ok(());
    }
    stdout::print(&view.text())?;
    for note in view.notes() {
        say(note);
    }
    Ok(())
}

/// Notes about files that were unreadable or invalid. A machine with many GPUs can have very many
/// such files, so only the first ones are listed.
fn notes_of(problems: &[FileError], notes: &mut Vec<String>) {
    const SHOWN: usize = 5;
    notes.extend(
        problems
            .iter()
            .take(SHOWN)
            .map(|problem| format!("left out: {problem}")),
    );
    if let Some(more @ 1..) = problems.len().checked_sub(SHOWN) {
        let more = plural(
            more as u64,
            "more file with a problem",
            "more files with problems",
        );
        notes.push(format!("left out: {more}"));
    }
}

/// What to do when permission is missing.
fn more_rights(command: &str) -> String {
    if rustix::process::geteuid().is_root() {
        rights::remedy().to_owned()
    } else {
        format!("sudo gputrace {command}")
    }
}
