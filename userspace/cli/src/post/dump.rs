//! `gputrace dump`: the content of a capture block by block, for developers of gputrace.

use std::{io::Write as _, path::PathBuf};

use anyhow::{Context as _, Result};
use clap::Args;
use gputrace_capture::{
    CaptureReader,
    dump::{DumpError, Kind, Selection, dump},
};
use gputrace_export::StandardOutput;
use gputrace_text::Line;

use crate::{exit, say, stdout};

/// Options of `dump`.
#[derive(Debug, Args)]
#[command(before_help = "\
Examples:
  gputrace dump run.gtcap --limit 20
  gputrace dump run.gtcap --kind library,span,notice

A line has the place in the file in bytes, the kind of the block or record, and its fields, as they are stored: times in ns
of CLOCK_BOOTTIME, addresses and flags in hex. Metadata is JSON.")]
pub(crate) struct DumpArgs {
    /// The capture (.gtcap).
    pub(crate) capture: PathBuf,
    /// Only blocks and records of these kinds (repeat or separate by commas).
    #[arg(long, value_name = "KIND", value_delimiter = ',', value_parser = str::parse::<Kind>)]
    pub(crate) kind: Vec<Kind>,
    /// Print at most this many lines.
    #[arg(long, value_name = "LINES")]
    pub(crate) limit: Option<u64>,
}

/// Prints the blocks and records of a capture.
pub(crate) fn run(args: &DumpArgs) -> Result<u8> {
    let context = || format!("cannot read {}", args.capture.display());
    let mut reader = CaptureReader::open(&args.capture).with_context(context)?;
    let selection = Selection {
        kinds: args.kind.clone(),
        limit: args.limit,
    };
    let mut out = StandardOutput::default();
    let printed = dump(&mut reader, &selection, &mut |line| {
        writeln!(out, "{}", Line::new(line))
    });
    let written = printed.and_then(|dumped| {
        out.flush()?;
        Ok(dumped)
    });
    let dumped = match written {
        Err(DumpError::Write(error)) => {
            stdout::wrote(Err(error))?;
            return Ok(0);
        }
        Err(DumpError::Read(error)) => return Err(error).with_context(context),
        other => other?,
    };
    let why = match reader.truncation() {
        Some(truncation) => format!("the capture is incomplete: {truncation}"),
        None if dumped.is_whole => return Ok(0),
        None => {
            "the capture has no end mark: the recorder was killed or ran out of space".to_owned()
        }
    };
    say(&format!("warning: {why}"));
    Ok(exit::INCOMPLETE)
}
