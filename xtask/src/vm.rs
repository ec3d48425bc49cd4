//! `cargo xtask vm`: runs the programs of this checkout on other kernels than this machine's.
//!
//! gputrace must work on any kernel that people use, and a machine runs only one. So the kernels of
//! three Debian releases are fetched ([`kernels`]) and booted in a virtual machine whose root file
//! system is this machine's own, read-only ([`guest`]). Programs, libraries and the checkout are
//! there under their own paths, and `/tmp` is empty and writable. amdgpu is loaded, so that there
//! is a real `/dev/kfd`, but no GPU.
//!
//! ```text
//! ~/.cache/gputrace/vm/6.12/   vmlinuz, modules/*.ko, busybox, PACKAGES; whole as soon as PACKAGES exists
//! target/vm/                   test programs without debug information, and one directory per running guest
//! ```
//!
//! The CPU is emulated (QEMU's TCG), not virtualised: that works on every machine, even inside
//! another virtual machine, and a guest boots in ten seconds. Programs in it run ten to twenty
//! times slower.
//!
//! `--suite` runs what must work on every kernel ([`suite`]), and compares the verifier's figures
//! with those recorded in `tests/vm/verifier.txt` ([`verifier`]).

mod archive;
mod guest;
mod kernels;
mod modules;
mod programs;
mod suite;
mod turns;
mod verifier;

use std::ffi::OsString;
use std::time::Duration;

use anyhow::Result;
use clap::builder::PossibleValuesParser;

use self::guest::Guest;
use self::kernels::{KERNELS, Kernel};
use crate::progress;
use crate::workspace::Workspace;

/// Typical commands, shown below the help.
const EXAMPLES: &str = "\
Examples:
  cargo xtask vm --kernel 6.1 -- uname -a                       run a program on Linux 6.1
  cargo xtask vm --kernel 6.12 -- target/debug/gputrace list    paths are this machine's
  cargo xtask vm --suite                                        what must work, on all kernels
  cargo xtask vm --suite --quick --kernel 6.12                  a part of it, within minutes
  cargo xtask vm --suite --kernel 6.1 --kernel 6.12 --jobs 2    on two kernels at once
  cargo xtask vm --suite --kernel 7.x --update                  and keep the verifier's figures";

/// Arguments of `cargo xtask vm`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, group = clap::ArgGroup::new("what").required(true).args(["suite", "program"]))]
pub(crate) struct Args {
    /// Kernel to use; repeat for several [default: all of them]
    #[arg(long, value_name = "KERNEL", value_parser = PossibleValuesParser::new(KERNELS.iter().map(|k| k.name)))]
    kernel: Vec<String>,

    /// Run the tests that must pass on every kernel
    #[arg(long)]
    suite: bool,

    /// Run only steps of the suite whose name contains this
    #[arg(long, value_name = "TEXT", requires = "suite")]
    only: Option<String>,

    /// Run only what the gate runs: the verifier, one launch of each kind, the driver's requests
    #[arg(long, requires = "suite")]
    quick: bool,

    /// Write the verifier's figures to tests/vm/verifier.txt instead of comparing them
    #[arg(long, requires = "suite")]
    update: bool,

    /// Number of guests that run the suite at once; each takes one or two CPUs and up to 3 GiB
    #[arg(long, value_name = "GUESTS", requires = "suite", default_value_t = 1)]
    jobs: usize,

    /// Build nothing: use the programs of the last suite
    #[arg(long, requires = "suite")]
    no_build: bool,

    /// Number of CPUs of the guest in which the program runs
    #[arg(long, value_name = "NUMBER", requires = "program", default_value_t = guest::CPUS)]
    cpus: u32,

    /// Seconds after which a guest is killed
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    timeout: u64,

    /// Debian archive to fetch from [default: the one that this machine's apt uses]
    #[arg(long, value_name = "URL")]
    mirror: Option<String>,

    /// A program to run in the guest, with its arguments
    #[arg(last = true, value_name = "PROGRAM", requires = "kernel")]
    program: Vec<OsString>,
}

impl Args {
    pub(crate) fn run(self, workspace: &Workspace) -> Result<()> {
        guest::require_qemu()?;
        let selected: Vec<&Kernel> = KERNELS
            .iter()
            .filter(|kernel| {
                self.kernel.is_empty() || self.kernel.iter().any(|name| name == kernel.name)
            })
            .collect();
        let timeout = Duration::from_secs(self.timeout);
        if self.suite {
            return suite::Suite {
                workspace,
                kernels: &selected,
                only: self.only.as_deref(),
                quick: self.quick,
                update: self.update,
                jobs: self.jobs,
                build: !self.no_build,
                timeout,
                mirror: self.mirror.as_deref(),
            }
            .run();
        }
        for kernel in selected {
            let files = kernels::ensure(workspace, kernel, self.mirror.as_deref())?;
            let guest = Guest::new(workspace, kernel, &files)?.with_cpus(self.cpus);
            let code = guest.run(&self.program, timeout)?;
            if code != 0 {
                progress::note(format_args!("it ended with exit status {code}"));
                // With the exit status of the program.
                drop(guest);
                std::process::exit(code);
            }
        }
        Ok(())
    }
}
