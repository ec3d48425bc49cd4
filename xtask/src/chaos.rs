//! `cargo xtask chaos`: runs hostile programs in a random order that a seed determines, for any
//! length of time.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;

use crate::build::{self, Profile};
use crate::exec;
use crate::progress::{self, long_step};
use crate::setup::{self, Purpose};
use crate::test;
use crate::workspace::Workspace;

/// Arguments of `cargo xtask chaos`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How long to run; the last round is completed
    #[arg(long, default_value_t = 30)]
    minutes: u64,
    /// Seed of the first round; later rounds use the next numbers [default: different each time]
    #[arg(long)]
    seed: Option<u64>,
    /// Maximum number of rounds
    #[arg(long)]
    rounds: Option<u64>,
    /// Show each round before it begins
    #[arg(long)]
    verbose: bool,
}

impl Args {
    pub(crate) fn run(self, workspace: &Workspace) -> Result<()> {
        setup::prepare(workspace, Purpose::Run).require(Purpose::Run)?;
        build::build(workspace, Profile::Debug)?;
        test::build_workloads(workspace)?;
        let seed = self.seed.unwrap_or_else(by_the_clock);
        progress::note(format_args!("seed {seed}"));
        let mut cargo = workspace.cargo();
        cargo.args([
            "test",
            "--package",
            "gputrace-chaos",
            "--test",
            "chaos",
            "rounds",
        ]);
        cargo.args(["--", "--nocapture"]);
        cargo.env("GPUTRACE_BIN", workspace.gputrace("debug"));
        cargo.env("GPUTRACE_REQUIRE_BPF", "1");
        cargo.env("GPUTRACE_CHAOS_SECONDS", (60 * self.minutes).to_string());
        cargo.env("GPUTRACE_CHAOS_SEED", seed.to_string());
        if let Some(rounds) = self.rounds {
            cargo.env("GPUTRACE_CHAOS_ROUNDS", rounds.to_string());
        }
        if self.verbose {
            cargo.env("GPUTRACE_CHAOS_VERBOSE", "1");
        }
        long_step(
            "chaos",
            "hostile programs, while gputrace comes and goes",
            || exec::stream(&mut cargo),
        )
    }
}

/// A seed from the clock, small enough to be typed.
fn by_the_clock() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    since.as_secs() % 1_000_000_000
}
