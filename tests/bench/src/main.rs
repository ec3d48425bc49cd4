//! Prints gputrace's benchmark figures: the cost of a traced call, how fast probes are attached and
//! removed, how many records the collector handles, whether memory stays flat, the cost of a
//! crowded node and of looks at queues, and how fast captures are exported.
//!
//! Run by `cargo xtask bench`, as root, on a machine that is as quiet as possible. No figure is a
//! test: a slow machine is no defect. The accounts, however, *are* checked: they must be exact even
//! at saturation, or the program fails.
//!
//! Costs are compared only within a run: the measured variants alternate for several rounds, and
//! ratios are computed per round, so that a change in the machine's speed affects all of them.

mod accounts;
mod attach;
mod calls;
mod costs;
mod crowd;
mod dispatch;
mod export;
mod flood;
mod libraries;
mod library;
mod looks;
mod machine;
mod made;
mod memory;
mod node;
mod objects;
mod programs;
mod reading;
mod recording;
mod report;
mod throughput;

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{Parser, Subcommand, ValueEnum};

/// Prints gputrace's figures.
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    options: Options,
}

/// What this program runs itself as.
#[derive(Debug, Subcommand)]
enum Command {
    /// Be a program that calls traced functions
    #[command(hide = true)]
    Flood(flood::Flood),
    /// Call a function and say how long that took
    #[command(hide = true)]
    Called(costs::Called),
    /// Be many processes
    #[command(hide = true)]
    Crowd(crowd::Crowd),
    /// Use a library
    #[command(hide = true)]
    Hold(crowd::Hold),
    /// Wait for probes
    #[command(hide = true)]
    Fresh(crowd::Fresh),
    /// Load libraries
    #[command(hide = true)]
    Load(libraries::Load),
    /// Submit kernels without completion signals
    #[command(hide = true)]
    Dispatch(gputrace_simrocm::queue::Paced),
    /// Write the capture that is exported
    #[command(hide = true)]
    Made {
        /// Where
        path: PathBuf,
        /// Rounds of ten records
        rounds: u64,
    },
}

/// What to measure, and with what.
#[derive(Debug, clap::Args)]
struct Options {
    /// Which figures [default: all]
    #[arg(value_enum)]
    figures: Vec<Figure>,
    /// The object of ebpf/bench
    #[arg(long, default_value = "target/bpf/gputrace-bench-programs.o")]
    programs: PathBuf,
    /// The tool
    #[arg(long, default_value = "target/release/gputrace")]
    gputrace: PathBuf,
    /// Fewer rounds and shorter floods
    #[arg(long)]
    quick: bool,
}

/// A group of figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Figure {
    /// What a traced call costs
    Calls,
    /// How near the cost is that gputrace says
    Costs,
    /// What an empty launch costs
    Dispatch,
    /// How long probes take to come and to go
    Attach,
    /// What a launched program pays for each library that it loads
    Libraries,
    /// How many records per second reach the capture
    Throughput,
    /// Memory of the recorder during a long flood
    Memory,
    /// What recording a whole node costs where much goes on
    Node,
    /// How fast a capture becomes an output
    Export,
    /// How fast the library delivers events
    Library,
    /// What a look at a program's code objects costs
    Objects,
    /// What looks at the read indices of queues cost
    Looks,
}

fn main() -> Result<()> {
    let Cli { command, options } = Cli::parse();
    match command {
        Some(Command::Flood(flood)) => flood.run(),
        Some(Command::Called(called)) => called.run(),
        Some(Command::Crowd(crowd)) => crowd.run(),
        Some(Command::Hold(hold)) => hold.run(),
        Some(Command::Fresh(fresh)) => fresh.run(),
        Some(Command::Load(load)) => load.run(),
        Some(Command::Dispatch(paced)) => paced.submit(),
        Some(Command::Made { path, rounds }) => made::capture(&path, rounds),
        None => measure(&options),
    }
}

fn measure(options: &Options) -> Result<()> {
    let figures = if options.figures.is_empty() {
        Figure::value_variants()
    } else {
        &options.figures
    };
    let loads =
        |figure: &Figure| !matches!(figure, Figure::Export | Figure::Library | Figure::Objects);
    if figures.iter().any(loads) && !rustix::process::geteuid().is_root() {
        bail!(
            "all benchmarks but `export`, `library` and `objects` load eBPF programs: run as root"
        );
    }
    report::machine()?;
    for figure in figures {
        match figure {
            Figure::Calls => calls::measure(options)?,
            Figure::Costs => costs::measure(options)?,
            Figure::Dispatch => dispatch::measure(options)?,
            Figure::Attach => attach::measure(options)?,
            Figure::Libraries => libraries::measure(options)?,
            Figure::Throughput => throughput::measure(options)?,
            Figure::Memory => memory::measure(options)?,
            Figure::Node => node::measure(options)?,
            Figure::Export => export::measure(options)?,
            Figure::Library => reading::measure(options)?,
            Figure::Objects => objects::measure(options)?,
            Figure::Looks => looks::measure(options)?,
        }
    }
    Ok(())
}
