//! Builds the stand-ins and lays them out: `simrocm-stage DIR [--hip 5|6]`.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use gputrace_simrocm::{HipSoname, stage};

/// Build the stand-ins for ROCm's libraries and lay them out in DIR/lib.
///
/// Run programs on them with LD_LIBRARY_PATH=DIR/lib; SOFTGPU_LOG=DIR2 writes down what the GPU
/// did.
#[derive(Parser)]
struct Arguments {
    /// Directory to make.
    directory: PathBuf,
    /// Which libamdhip64.so the programs were linked with.
    #[arg(long, value_enum, default_value = "6")]
    hip: Hip,
}

#[derive(Clone, Copy, ValueEnum)]
enum Hip {
    /// libamdhip64.so.5
    #[value(name = "5")]
    Five,
    /// libamdhip64.so.6
    #[value(name = "6")]
    Six,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let hip = match arguments.hip {
        Hip::Five => HipSoname::Five,
        Hip::Six => HipSoname::Six,
    };
    let lib = stage(&arguments.directory, hip)?;
    eprintln!("LD_LIBRARY_PATH={}", lib.display());
    Ok(())
}
