//! A capture as text, one line per block and record, for gputrace's developers.
//!
//! Nothing is interpreted: no clocks are converted, no calls are matched with kernels, and data
//! that cannot be decoded is shown as bytes. A line has the position in the file (bytes from its
//! start), the kind, and the fields with the names that the structures have in [`gputrace_abi`] and
//! [`crate::meta`].
//!
//! ```
//! use std::io::Cursor;
//! use gputrace_capture::{CaptureReader, CaptureWriter, dump, meta::Recording};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut file = Cursor::new(Vec::new());
//! CaptureWriter::create(&mut file, &Recording::default())?;
//! file.set_position(0);
//! let mut lines = Vec::new();
//! dump::dump(&mut CaptureReader::new(file)?, &dump::Selection::default(), &mut |line| {
//!     lines.push(line.to_owned());
//!     Ok(())
//! })?;
//! assert!(lines[0].starts_with("        24  recording"), "{lines:?}");
//! # Ok(()) }
//! ```

use std::{
    fmt::{Display, LowerHex, Write as _},
    io::{self, Read, Seek},
    str::FromStr,
};

use gputrace_abi::{
    domain::Domain,
    gpu::{Activity, Completion, Copy, Packet, QueueState, ScratchState},
    kfd::{Ioctl, LongIoctl, ShortIoctl},
    kinds::Kind as RecordKind,
    record::{LongSpan, RecordHeader, Span, Task},
    sched::OffCpu,
    stack::StackUse,
    tracepoint::{LongTrace, ShortTrace, TraceHead},
    values::{Value, value_flags},
};
use zerocopy::FromBytes;

use crate::{
    block::{Block, Meta},
    format::BLOCK_HEADER,
    reader::{CaptureReader, ReadError},
    records,
};

/// Maximum number of bytes shown of data that cannot be decoded.
const SHOWN: usize = 64;

/// The function that appends the fields of a record of this kind, or nothing if its size or
/// contents are invalid; `None` for a kind whose records are shown as unknown: they are never in a
/// capture.
const fn decoder(kind: RecordKind) -> Option<Decode> {
    Some(match kind {
        RecordKind::Span | RecordKind::Unfinished => span,
        RecordKind::Task | RecordKind::Linker => task,
        RecordKind::Packet => packet,
        RecordKind::Completion => completion,
        RecordKind::Copy => copy,
        RecordKind::Queue => queue,
        RecordKind::Scratch => scratch,
        RecordKind::Described => return None,
        RecordKind::Activity => activity,
        RecordKind::Value => value,
        RecordKind::Stack => stack,
        RecordKind::Ioctl | RecordKind::IoctlUnfinished => ioctl,
        RecordKind::OffCpu | RecordKind::OffCpuOpen => off_cpu,
        RecordKind::Trace => trace,
    })
}

/// Names of other lines: a block of records; a block or record that this version does not know;
/// bytes that are not a complete record.
const OTHERS: [&str; 3] = ["records", "unknown", "malformed"];

type Decode = fn(&[u8], &mut Fields<'_>) -> Option<()>;

/// A kind of line: of a block, such as `library`, or of a record, such as `span`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind(&'static str);

/// There is no such kind; the text lists all kinds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no such kind of block or record; there are {}", Kind::names().collect::<Vec<_>>().join(", "))]
pub struct UnknownKind;

impl Kind {
    /// All kinds: blocks, then records.
    pub fn names() -> impl Iterator<Item = &'static str> {
        let records = RecordKind::ALL.iter().copied();
        let records = records.filter(|kind| decoder(*kind).is_some());
        let records = records.map(RecordKind::name);
        Meta::NAMES.iter().copied().chain(records).chain(OTHERS)
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.0
    }
}

impl FromStr for Kind {
    type Err = UnknownKind;

    fn from_str(name: &str) -> Result<Self, UnknownKind> {
        let found = Self::names().find(|known| *known == name);
        found.map(Self).ok_or(UnknownKind)
    }
}

/// The lines to write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Only lines of these kinds; empty means all.
    pub kinds: Vec<Kind>,
    /// Maximum number of lines.
    pub limit: Option<u64>,
}

/// Why a dump ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DumpError {
    /// The capture cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A line cannot be written.
    #[error("cannot write: {0}")]
    Write(#[from] io::Error),
}

/// Result of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dumped {
    /// Number of lines written.
    pub lines: u64,
    /// Whether the capture was read up to its end mark, or up to [`Selection::limit`]. If not, it
    /// was cut off, or its recorder was killed.
    pub is_whole: bool,
}

/// Passes the lines of a capture to `put`, each without its line end.
///
/// The text of a line comes from the capture, and so from the traced programs: `put` must escape it
/// for where it is shown.
///
/// # Errors
///
/// [`DumpError`] if the file cannot be read, or `put` fails. A damaged capture is not an error: see
/// [`CaptureReader::truncation`].
pub fn dump<R: Read + Seek>(
    reader: &mut CaptureReader<R>,
    selection: &Selection,
    put: &mut dyn FnMut(&str) -> io::Result<()>,
) -> Result<Dumped, DumpError> {
    let mut is_whole = false;
    let mut lines = Lines {
        selection,
        put,
        line: String::new(),
        count: 0,
    };
    while !lines.is_full() {
        let offset = reader.position();
        let Some(block) = reader.next_block()? else {
            break;
        };
        match block {
            Block::Records(run) => lines.run(offset, run)?,
            Block::Meta(meta) => {
                is_whole |= matches!(meta, Meta::End(_));
                lines.meta(offset, &meta)?;
            }
            Block::Unknown { kind } => {
                lines.line(offset, "unknown", |fields| {
                    fields.number("block_kind", kind);
                })?;
            }
        }
    }
    Ok(Dumped {
        lines: lines.count,
        is_whole: is_whole || lines.is_full(),
    })
}

/// Builds and counts lines.
struct Lines<'a> {
    selection: &'a Selection,
    put: &'a mut dyn FnMut(&str) -> io::Result<()>,
    line: String,
    count: u64,
}

impl Lines<'_> {
    fn is_full(&self) -> bool {
        self.selection
            .limit
            .is_some_and(|limit| self.count >= limit)
    }

    fn line(
        &mut self,
        offset: u64,
        kind: &str,
        content: impl FnOnce(&mut Fields<'_>),
    ) -> io::Result<()> {
        let kinds = &self.selection.kinds;
        let wanted = kinds.is_empty() || kinds.iter().any(|wanted| wanted.0 == kind);
        if !wanted || self.is_full() {
            return Ok(());
        }
        self.line.clear();
        // Writing to a string does not fail.
        let _ = write!(self.line, "{offset:>10}  {kind:<16}");
        content(&mut Fields(&mut self.line));
        self.count += 1;
        (self.put)(self.line.trim_end())
    }

    /// Writes a document in its JSON form.
    fn meta(&mut self, offset: u64, meta: &Meta) -> io::Result<()> {
        self.line(offset, meta.name(), |fields| {
            let mut document = Vec::new();
            match meta.encode(&mut document) {
                Ok(()) => fields.text(&String::from_utf8_lossy(&document)),
                Err(error) => fields.text(&error.to_string()),
            }
        })
    }

    fn run(&mut self, offset: u64, run: &[u8]) -> io::Result<()> {
        self.line(offset, "records", |fields| {
            fields.number("bytes", run.len());
            let whole = records::split(run).filter(Result::is_ok);
            fields.number("records", whole.count());
        })?;
        let mut rest = records::split(run);
        while !self.is_full() {
            let before = run.len() - rest.rest().len();
            let place = offset + (BLOCK_HEADER + before) as u64;
            match rest.next() {
                None => break,
                Some(Ok(record)) => self.record(place, &record.header, record.bytes)?,
                Some(Err(_)) => {
                    let bytes = run.get(before..).unwrap_or_default();
                    self.line(place, "malformed", |fields| {
                        fields.bytes("bytes", bytes, SHOWN);
                    })?;
                }
            }
        }
        Ok(())
    }

    fn record(&mut self, offset: u64, header: &RecordHeader, bytes: &[u8]) -> io::Result<()> {
        let kind = header.known_kind();
        let row = kind.and_then(|kind| Some((kind.name(), decoder(kind)?)));
        let mut content = String::new();
        let mut fields = Fields(&mut content);
        fields.number("cpu", header.cpu);
        match Domain::from_id(header.domain) {
            Some(domain) => fields.number("domain", domain.name()),
            None => fields.number("domain", header.domain),
        }
        let name = match row {
            None => "unknown",
            Some((name, decode)) => {
                let known = content.len();
                if decode(bytes, &mut Fields(&mut content)).is_some() {
                    return self.line(offset, name, |fields| fields.0.push_str(&content));
                }
                content.truncate(known);
                "malformed"
            }
        };
        self.line(offset, name, |fields| {
            fields.0.push_str(&content);
            fields.number("record_kind", header.kind);
            fields.bytes("bytes", bytes, SHOWN);
        })
    }
}

/// Appends fields to a line, each preceded by a blank.
struct Fields<'a>(&'a mut String);

impl Fields<'_> {
    // Writing to a string does not fail.
    fn number(&mut self, name: &str, value: impl Display) {
        let _ = write!(self.0, " {name}={value}");
    }

    fn hex(&mut self, name: &str, value: impl LowerHex) {
        let _ = write!(self.0, " {name}={value:#x}");
    }

    fn text(&mut self, text: &str) {
        let _ = write!(self.0, " {text}");
    }

    fn words(&mut self, name: &str, words: &[u64]) {
        let _ = write!(self.0, " {name}=[");
        for (index, word) in words.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let _ = write!(self.0, "{comma}{word:#x}");
        }
        self.0.push(']');
    }

    /// Appends bytes in hex, at most `most` of them.
    fn bytes(&mut self, name: &str, bytes: &[u8], most: usize) {
        let _ = write!(self.0, " {name}={}:", bytes.len());
        for byte in bytes.iter().take(most) {
            let _ = write!(self.0, "{byte:02x}");
        }
        if bytes.len() > most {
            self.0.push('…');
        }
    }

    /// Appends text that may contain any bytes, in quotes.
    fn string(&mut self, name: &str, bytes: &[u8]) {
        let _ = write!(self.0, " {name}=\"{}\"", bytes.escape_ascii());
    }
}

/// Appends fields of a structure by name: first the decimal ones, then those in hex.
macro_rules! fields {
    ($out:ident, $from:expr; $($decimal:ident)*; $($hex:ident)*) => {{
        $($out.number(stringify!($decimal), $from.$decimal);)*
        $($out.hex(stringify!($hex), $from.$hex);)*
    }};
}

fn span(bytes: &[u8], out: &mut Fields<'_>) -> Option<()> {
    let (span, stack) = match LongSpan::read_from_bytes(bytes) {
        Ok(long) => (long.span, Some(long.stack)),
        Err(_) => (Span::read_from_bytes(bytes).ok()?, None),
    };
    fields!(out, span; function pid tid depth begin end correlation parent; flags result);
    out.words("args", &span.args);
    if let Some(stack) = stack {
        out.words("stack", &stack);
    }
    Some(())
}

fn task(bytes: &[u8], out: &mut Fields<'_>) -> Option<()> {
    let task = Task::read_from_bytes(bytes).ok()?;
    fields!(out, task; time pid tid parent op held;);
    let end = task.comm.iter().position(|byte| *byte == 0);
    out.string("comm", task.comm.get(..end.unwrap_or(task.comm.len()))?);
    Some(())
}

fn packet(bytes: &[u8], out: &mut Fields<'_>) -> Option<()> {
    let packet = Packet::read_from_bytes(bytes).ok()?;
    fields!(out, packet; pid tid time queue_id ring_packets index read_index innermost outermost;
        queue ring flags stream);
    out.words("packet", &packet.packet);
    Some(())
}

fn completion(bytes: &[u8], out: &mut Fields<'_>) -> Option<()> {
    let one = Completion::read_from_bytes(bytes).ok()?;
    fields!(out, one; pid reason time value start end sdma_start sdma_end; signal);
    Some(())
}

fn copy(bytes: &[u8], out: &mut Fields<'_>) -> Option<()> {
    let copy = Copy::read_from_bytes(bytes).ok()?;
    fields!(out, copy; pid tid time innermost outermost role bytes;
        stream flags destination source destination_agent source_agent signal);
    Some(())
}

fn queue(bytes: &[u8], out: &mut Fields<'_>) -> Option<()> {
    let state = QueueState::read_from_bytes(bytes).ok()?;
    fields!(out, state; pid reason time read_index write_index looked; queue);
    Some(())
}

fn activity(bytes: &[u8], out: &mut Fields<'_>) -> Option<()> {
    let reading = Activity::read_from_bytes(bytes).ok()?;
    fields!(out, reading; gpu_id state time stands_for late; register);
    Some(())
}

fn scratch(bytes: &[u8], out: &mut Fields<'_>) -> Option<()> {
    let state = ScratchState::read_from_bytes(bytes).ok()?;
    fields!(out, state; pid time looked bytes lane_bytes; queue location properties);
    Some(())
}

fn value(bytes: &[u8], out: &mut Fields<'_>) -> Option<()> {
    let (value, rest) = Value::read_from_prefix(bytes).ok()?;
    fields!(out, value; correlation pid word; flags);
    let content = rest.get(..usize::from(value.length))?;
    if value.flags & value_flags::STRING != 0 && value.flags & value_flags::UNREADABLE == 0 {
        out.string("text", content);
    } else {
        out.bytes("bytes", content, usize::MAX);
    }
    Some(())
}

fn stack(bytes: &[u8], out: &mut Fields<'_>) -> Option<()> {
    let used = StackUse::read_from_bytes(bytes).ok()?;
    fields!(out, used; correlation stack;);
    Some(())
}

fn ioctl(bytes: &[u8], out: &mut Fields<'_>) -> Option<()> {
    let (ioctl, before, after): (Ioctl, &[u8], &[u8]) =
        if let Ok(short) = ShortIoctl::ref_from_bytes(bytes) {
            (short.ioctl, &short.before, &short.after)
        } else {
            let long = LongIoctl::ref_from_bytes(bytes).ok()?;
            (long.ioctl, &long.before, &long.after)
        };
    fields!(out, ioctl; pid tid begin end correlation parent result depth listed list_length;
        argument request flags);
    let held = usize::from(ioctl.data);
    out.bytes("before", before.get(..held)?, usize::MAX);
    out.bytes("after", after.get(..held)?, usize::MAX);
    Some(())
}

fn off_cpu(bytes: &[u8], out: &mut Fields<'_>) -> Option<()> {
    let one = OffCpu::read_from_bytes(bytes).ok()?;
    fields!(out, one; pid tid begin woken end waker; state);
    Some(())
}

fn trace(bytes: &[u8], out: &mut Fields<'_>) -> Option<()> {
    let (head, data): (TraceHead, &[u8]) = if let Ok(short) = ShortTrace::ref_from_bytes(bytes) {
        (short.head, &short.data)
    } else {
        let long = LongTrace::ref_from_bytes(bytes).ok()?;
        (long.head, &long.data)
    };
    fields!(out, head; pid tid time tracepoint;);
    out.bytes(
        "data",
        data.get(..usize::try_from(head.size).ok()?)?,
        usize::MAX,
    );
    Some(())
}

#[cfg(test)]
mod tests;
