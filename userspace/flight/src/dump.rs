//! Writes what a ring keeps as a capture.

use std::{
    collections::HashMap,
    io::{Read, Seek},
};

use foldhash::fast::RandomState;
use gputrace_abi::{
    kinds::{Class, Kind},
    record::{RecordHeader, Span},
};
use gputrace_capture::{
    Block, CaptureReader, CaptureWriter, Meta, ReadError, Sink, WriteError,
    flight::Dump,
    ledger::{Accounted, Ledger},
    meta::{ClockSnapshot, End, EndReason, Notice, Recording},
    records,
};
use zerocopy::FromBytes as _;

use crate::{discarded, ring::Ring};

/// The state of a recording at the moment of a dump.
#[derive(Clone, Debug, Default)]
pub struct Moment {
    /// When, ns `CLOCK_BOOTTIME`.
    pub time: u64,
    /// The accounts, from the begin of the recording.
    pub ledger: Ledger,
    /// Calls that were open, as records of kind [`Kind::Unfinished`].
    pub open: Vec<u8>,
    /// Further records that are not in the capture: readings that were made for the dump.
    pub further: Vec<u8>,
    /// Size of the capture: what is in it was recorded before `time`, bytes.
    pub bytes: u64,
    /// Why the recording had ended; `None` if it goes on.
    pub ended: Option<EndReason>,
}

/// Why no dump was made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DumpError {
    /// The recorder's own file cannot be read.
    #[error("what was kept cannot be read: {0}")]
    Read(#[from] ReadError),
    /// The recorder's own file is damaged.
    #[error("what was kept is damaged: {0}")]
    Damaged(String),
    /// The dump cannot be written.
    #[error("{0}")]
    Write(#[from] WriteError),
}

/// A dump.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Everything that ended after this time is in it, ns `CLOCK_BOOTTIME`.
    pub from: u64,
    /// When it was made, ns `CLOCK_BOOTTIME`.
    pub to: u64,
    /// Whether it reaches back less far than asked for, because there was no room for more.
    pub is_short: bool,
    /// Its size, bytes.
    pub bytes: u64,
}

/// Writes what `ring` keeps of the capture `from`, up to `moment`, as a capture into the empty file
/// `into`. The ring must have taken all blocks up to there. Of `about`, number and causes are used.
///
/// # Errors
///
/// [`DumpError`]. What was written before is then a capture without an end.
pub fn dump<S: Sink>(
    ring: &Ring,
    from: impl Read + Seek,
    into: S,
    moment: &Moment,
    about: Dump,
) -> Result<Written, DumpError> {
    let first = about.causes.first().map_or(moment.time, |cause| cause.time);
    let about = Dump {
        recording_began: ring.recording().clocks.boottime,
        from: ring.from(),
        to: moment.time,
        is_short: ring.is_short(first),
        ..about
    };
    let mut written = Written {
        from: about.from,
        to: about.to,
        is_short: about.is_short,
        bytes: 0,
    };
    let remarks = remarks(ring, &about);
    let is_part = about.is_part;
    let mut writer = CaptureWriter::create(into, &recording(ring, about))?;
    for meta in ring.base.metas(written.from) {
        writer.meta(&meta)?;
    }
    let mut open = Open::new(&moment.open);
    copy(ring, from, moment.bytes, &mut writer, &mut open)?;
    let mut ledger = discarded::without(&moment.ledger, &ring.discarded, ring.base.ledger());
    writer.records(&open.into_records(&mut ledger))?;
    writer.records(&moment.further)?;
    discarded::further(&mut ledger, &moment.further);
    for text in remarks {
        let time = moment.time;
        writer.meta(&Notice { time, text }.into())?;
    }
    writer.meta(&ledger.into())?;
    let reason = moment.ended.clone().unwrap_or(match is_part {
        true => EndReason::Continued,
        false => EndReason::Dumped,
    });
    let time = moment.time;
    writer.meta(&End { time, reason }.into())?;
    writer.flush()?;
    written.bytes = writer.size();
    Ok(written)
}

/// Copies the blocks that are kept, without accounts and end.
fn copy<S: Sink>(
    ring: &Ring,
    from: impl Read + Seek,
    end: u64,
    writer: &mut CaptureWriter<S>,
    open: &mut Open<'_>,
) -> Result<(), DumpError> {
    let start = ring.start();
    let mut reader = CaptureReader::resume(from, start.offset, start.sequence)?;
    while reader.position() < end {
        match reader.next_block()? {
            Some(Block::Records(run)) => {
                open.except(run);
                writer.records(run)?;
            }
            Some(Block::Meta(Meta::Recording(_) | Meta::Ledger(_) | Meta::End(_))) => {}
            Some(Block::Meta(meta)) => writer.meta(&meta)?,
            // This version wrote the file, and knows all kinds.
            Some(Block::Unknown { .. }) => {}
            None => {
                let damage = reader.truncation().map(|damage| damage.to_string());
                let damage = damage.unwrap_or_else(|| "it ends too early".to_owned());
                return Err(DumpError::Damaged(damage));
            }
        }
    }
    Ok(())
}

/// The first metadata of a dump: that of the recording, with the clocks as they were at the begin
/// of the dump.
fn recording(ring: &Ring, about: Dump) -> Recording {
    let clocks = ring.base.clocks().unwrap_or(ring.recording().clocks);
    // Differences, because the clocks run at nearly the same pace. A dump has further readings.
    let later = about.from.saturating_sub(clocks.boottime);
    Recording {
        clocks: ClockSnapshot {
            boottime: clocks.boottime + later,
            monotonic: clocks.monotonic + later,
            monotonic_raw: clocks.monotonic_raw + later,
            realtime: clocks.realtime + later,
            ..clocks
        },
        dump: Some(Box::new(about)),
        ..ring.recording().clone()
    }
}

/// What readers of the dump must know.
fn remarks(ring: &Ring, about: &Dump) -> Vec<String> {
    let mut remarks = Vec::new();
    let causes: Vec<&str> = about
        .causes
        .iter()
        .map(|cause| cause.text.as_str())
        .collect();
    let more = match about.more_causes {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let (number, causes) = (about.number, causes.join("; "));
    remarks.push(if about.is_part {
        format!("This is part {number} of a recording (--keep). It ends because {causes}{more}.")
    } else {
        format!("This is dump {number} of a flight recorder, because of: {causes}{more}.")
    });
    if about.is_short && about.is_part {
        remarks.push(
            "Records from before this file are missing: gputrace could not write the file before \
             it fast enough."
                .to_owned(),
        );
    } else if about.is_short {
        remarks.push(
            "The dump reaches back less far than asked for, because the flight recorder's space \
             was full; --flight TIME,SIZE sets its size."
                .to_owned(),
        );
    }
    if ring.base.forgotten > 0 {
        remarks.push(format!(
            "The flight recorder had no room for the names of {} processes.",
            ring.base.forgotten
        ));
    }
    remarks
}

/// Calls that were open at the moment of the dump, by correlation id.
struct Open<'a>(HashMap<u64, &'a [u8], RandomState>);

impl<'a> Open<'a> {
    fn new(records: &'a [u8]) -> Self {
        let spans = records::split(records).flatten().filter_map(|record| {
            let (span, _) = Span::ref_from_prefix(record.bytes).ok()?;
            Some((span.correlation, record.bytes))
        });
        Self(spans.collect())
    }

    /// Leaves out calls that have ended after all.
    fn except(&mut self, run: &[u8]) {
        if self.0.is_empty() {
            return;
        }
        for record in records::split(run).flatten() {
            let class = record.header.known_kind().map(Kind::class);
            if class == Some(Class::Call)
                && let Ok((span, _)) = Span::ref_from_prefix(record.bytes)
            {
                self.0.remove(&span.correlation);
            }
        }
    }

    /// The records, which are counted in `ledger`.
    fn into_records(self, ledger: &mut Ledger) -> Vec<u8> {
        let mut calls: Vec<(u64, &[u8])> = self.0.into_iter().collect();
        calls.sort_unstable_by_key(|(correlation, _)| *correlation);
        let mut records = Vec::new();
        for (_, bytes) in calls {
            let Ok((header, _)) = RecordHeader::ref_from_prefix(bytes) else {
                continue;
            };
            let row = ledger
                .rows
                .iter_mut()
                .find(|row| (row.cpu, row.domain) == (header.cpu, header.domain));
            // A call that the programs have not counted cannot have begun.
            if let Some(row) = row
                && Accounted::of(header.kind) == Some(Accounted::Unfinished)
            {
                row.unfinished += 1;
                records.extend_from_slice(bytes);
            }
        }
        records
    }
}
