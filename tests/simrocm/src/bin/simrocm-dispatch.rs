//! Submits kernels without completion signals at a steady rate, on the stand-ins, until standard
//! input is closed.

use clap::Parser;
use gputrace_simrocm::queue::Paced;

/// Submit kernels without completion signals at a steady rate.
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    paced: Paced,
}

fn main() -> anyhow::Result<()> {
    Arguments::parse().paced.submit()
}
