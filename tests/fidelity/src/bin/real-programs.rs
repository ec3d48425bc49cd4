//! Runs programs written by others under gputrace and prints the results. `scripts/real-programs`
//! fetches everything needed and calls it.

use std::{io::Write as _, path::PathBuf, process::ExitCode};

use anyhow::{Result, anyhow, bail};
use clap::Parser;
use gputrace_fidelity::{
    exit_code,
    real::{Equipment, HEAD, PROGRAMS, lacks, row},
    scenario::Mode,
};

/// Compare recordings of real programs with what the software GPU really did.
#[derive(Parser)]
struct Arguments {
    /// The program under test
    #[arg(long, value_name = "FILE")]
    gputrace: PathBuf,
    /// The project's xtask
    #[arg(long, value_name = "FILE")]
    xtask: PathBuf,
    /// Directory of what programs need besides: a model, stubs
    #[arg(long, value_name = "DIR")]
    files: PathBuf,
    /// Only programs whose title, release or mode contains this
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
}

fn main() -> ExitCode {
    exit_code(Arguments::parse().run())
}

impl Arguments {
    /// Runs the programs. Returns whether all recordings were true.
    fn run(&self) -> Result<bool> {
        gputrace_e2e::kernel::bpf_usable().map_err(|reason| anyhow!(reason))?;
        for path in [&self.gputrace, &self.xtask, &self.files] {
            if let Some(lack) = lacks(path) {
                bail!(lack)
            }
        }
        let equipment = Equipment {
            gputrace: self.gputrace.canonicalize()?,
            xtask: self.xtask.canonicalize()?,
            files: self.files.canonicalize()?,
        };
        let mut out = std::io::stdout();
        writeln!(out, "{HEAD}")?;
        let mut all_true = true;
        for program in &PROGRAMS {
            for mode in Mode::ALL {
                let described = format!("{} {} {mode}", program.title, program.release);
                if !described.contains(&self.only) {
                    continue;
                }
                let outcome = program.measure(mode, &equipment);
                writeln!(out, "{}", row(program, mode, &outcome))?;
                if let Err(error) = &outcome {
                    eprintln!("{described}: {error:#}");
                }
                all_true &= outcome.is_ok_and(|outcome| outcome.is_true());
            }
        }
        Ok(all_true)
    }
}
