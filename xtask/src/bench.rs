//! `cargo xtask bench`: makes release builds of everything and prints the benchmark figures.

use std::process::Command;

use anyhow::Result;

use crate::build::{self, Profile};
use crate::progress::long_step;
use crate::setup::{self, Purpose};
use crate::workspace::Workspace;
use crate::{ebpf, exec};

/// Arguments of `cargo xtask bench`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Which figures: calls, costs, attach, throughput, memory, node, export, library, looks [default: all]
    figures: Vec<String>,
    /// Use fewer rounds and shorter floods: quicker, with a wider spread
    #[arg(long)]
    quick: bool,
}

/// The package of the benchmark program.
const PACKAGE: &str = "gputrace-bench";

impl Args {
    pub(crate) fn run(self, workspace: &Workspace) -> Result<()> {
        setup::prepare(workspace, Purpose::Run).require(Purpose::Run)?;
        // The tool too, because some figures measure the whole program.
        build::build(workspace, Profile::Release)?;
        let programs = ebpf::build_bench(workspace)?;
        let mut cargo = workspace.cargo();
        cargo.args(["build", "--release", "--package", PACKAGE]);
        long_step("build the benchmarks", "the program that measures", || {
            exec::stream(&mut cargo)
        })?;

        let mut bench = Command::new(workspace.target.join("release").join(PACKAGE));
        bench.current_dir(&workspace.root);
        bench.arg("--programs").arg(programs);
        bench.arg("--gputrace").arg(workspace.gputrace("release"));
        if self.quick {
            bench.arg("--quick");
        }
        bench.args(&self.figures);
        long_step(
            "measure",
            "figures of this machine; ratios are within one run",
            || exec::stream(&mut bench),
        )
    }
}
