//! Checks the accounts, which must be exact on every machine, however slow.

use std::{fs::File, path::Path};

use anyhow::{Result, bail, ensure};
use gputrace_capture::{Block, CaptureReader, Meta, ledger::Ledger, records};

/// Checks that `seen = written + dropped` in every row, that `seen` equals the true number (if
/// known), and that the capture contains as many records as were counted.
///
/// # Errors
///
/// Describes what does not balance.
pub(crate) fn check(ledger: &Ledger, happened: Option<u64>, capture: &Path) -> Result<()> {
    for row in &ledger.rows {
        ensure!(
            row.imbalance() == 0,
            "the accounts of CPU {} do not balance: {row:?}",
            row.cpu
        );
    }
    let total = ledger.total();
    if let Some(happened) = happened {
        ensure!(
            ledger.without_values().seen == happened,
            "{happened} calls were made, {} were seen",
            total.seen
        );
    }
    let counted = total.written + total.unfinished;
    let held = count(capture)?;
    ensure!(
        held == counted,
        "{counted} records were written, the capture holds {held}"
    );
    Ok(())
}

/// Number of records in a capture.
///
/// # Errors
///
/// When it cannot be read.
pub(crate) fn count(capture: &Path) -> Result<u64> {
    let mut reader = CaptureReader::new(std::io::BufReader::new(File::open(capture)?))?;
    let mut count = 0;
    while let Some(block) = reader.next_block()? {
        if let Block::Records(run) = block {
            count += records::split(run).flatten().count() as u64;
        }
    }
    Ok(count)
}

/// When the recording in a capture ended, ns `CLOCK_BOOTTIME`.
///
/// # Errors
///
/// When it cannot be read, or has no end.
pub(crate) fn end(capture: &Path) -> Result<u64> {
    let mut reader = CaptureReader::new(std::io::BufReader::new(File::open(capture)?))?;
    while let Some(block) = reader.next_block()? {
        if let Block::Meta(Meta::End(end)) = block {
            return Ok(end.time);
        }
    }
    bail!("{} has no end", capture.display())
}

/// The last account in a capture.
///
/// # Errors
///
/// When it cannot be read, or has none.
pub(crate) fn last(capture: &Path) -> Result<Ledger> {
    let mut reader = CaptureReader::new(std::io::BufReader::new(File::open(capture)?))?;
    let mut last = None;
    while let Some(block) = reader.next_block()? {
        if let Block::Meta(Meta::Ledger(ledger)) = block {
            last = Some(*ledger);
        }
    }
    let Some(last) = last else {
        bail!("{} has no account", capture.display());
    };
    Ok(last)
}
