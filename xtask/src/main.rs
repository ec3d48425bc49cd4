//! `cargo xtask`: all jobs of this repository that take more than one cargo command.
//!
//! A newcomer needs two of them: `cargo xtask demo` and `cargo xtask test`. Both begin with `cargo
//! xtask setup`, which prepares the machine and is quick if it is already prepared:
//!
//! ```text
//! setup ──> build-ebpf ──> cargo build -p gputrace-cli ──> demo
//!   │           │                                └───> test  (all tests, unit to end-to-end)
//!   │           └─ target/bpf/*.o, embedded by userspace/loader
//!   └─ packages, eBPF compiler, bpf-linker, ROCm, mounts, Python readers
//! ```
//!
//! A new command is a module with a `pub(crate) struct Args` that has `fn run(self, &Workspace) ->
//! Result<()>`, and one line in `commands!` below.

mod apt;
mod bench;
mod build;
mod cache;
mod chaos;
mod demo;
mod ebpf;
mod exec;
mod fidelity;
mod flaky;
mod fuzz;
mod gen_catalog;
mod gen_objects;
mod lint;
mod measure;
mod package;
mod progress;
mod python;
mod rocm;
mod setup;
mod test;
mod toolchain;
mod vm;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::workspace::Workspace;

/// Generates the command enum and its dispatch from one table: `/// help`, then `Variant =>
/// module`.
macro_rules! commands {
    ($($(#[$attribute:meta])* $variant:ident => $module:ident,)*) => {
        #[derive(Subcommand)]
        enum Command {
            $($(#[$attribute])* $variant($module::Args),)*
        }

        impl Command {
            fn run(self, workspace: &Workspace) -> anyhow::Result<()> {
                match self {
                    $(Self::$variant(arguments) => arguments.run(workspace),)*
                }
            }
        }
    };
}

commands! {
    /// Prepare this machine: packages, eBPF compiler, ROCm, mounts, Python readers
    Setup => setup,
    /// Compile the eBPF programs into target/bpf
    BuildEbpf => ebpf,
    /// Build everything, eBPF included; the tool is then target/debug/gputrace, or
    /// target/release/gputrace
    Build => build,
    /// Prepare the machine and run the tests that every change must pass; with --full, all there are
    Test => test,
    /// Run tests again and again on a machine that is made slow, to find those that depend on luck
    Flaky => flaky,
    /// Print the figures of tests that no machine promises, beside those of earlier runs
    Measure => measure,
    /// Formatting, clippy, rustdoc and more, each with warnings as errors
    Lint => lint,
    /// Trace a bundled GPU program, on a software GPU if there is no other, and say where to look
    /// at the result
    Demo => demo,
    /// Print the figures: cost per call, attaching, throughput, memory, export
    Bench => bench,
    /// Compare recordings of GPU work with what the software GPU really did
    Fidelity => fidelity,
    /// Run hostile programs in random order, while gputrace attaches and detaches
    Chaos => chaos,
    /// Run the fuzz targets of all decoders of outside data, for a fixed time
    Fuzz => fuzz,
    /// Make the packages that people install: tarball, .deb, .rpm, and the root of a container,
    /// from a release build
    Package => package,
    /// Make the wheel of the Python module, and test it
    Python => python,
    /// Fetch real ROCm releases and run programs on them, without installing any
    Rocm => rocm,
    /// Run programs and tests on other kernels, in virtual machines
    Vm => vm,
    /// Generate userspace/catalog/data from the public headers of several ROCm releases
    GenCatalog => gen_catalog,
    /// Assemble the kernels of `gputrace verify` into userspace/verify/objects
    GenObjects => gen_objects,
}

/// Jobs of the gputrace repository.
#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    disable_help_subcommand = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match Workspace::locate().and_then(|workspace| cli.command.run(&workspace)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The causes without a backtrace: failures are nearly always outside this program.
            eprintln!("\nerror: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
