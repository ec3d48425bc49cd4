//! Writes a capture.

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, Cursor, ErrorKind, Seek, SeekFrom, Write},
    mem,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use zerocopy::IntoBytes;

use crate::{
    block::Meta,
    format::{BLOCK_HEADER, BlockHeader, FileHeader, MAX_PAYLOAD, RECORDS_PER_BLOCK, kind},
    meta::Recording,
    records,
};

/// Maximum size of metadata kept for a later attempt while the disk is full, bytes. It suffices for
/// the libraries and processes of a busy node; metadata beyond that is dropped, and the error says
/// so.
const MAX_PENDING: usize = 16 << 20;

/// A destination for a capture.
pub trait Sink: Write {
    /// Removes everything from `offset` on, and makes the next write start there.
    ///
    /// # Errors
    ///
    /// The system's error.
    fn cut(&mut self, offset: u64) -> io::Result<()>;
}

impl Sink for File {
    fn cut(&mut self, offset: u64) -> io::Result<()> {
        self.set_len(offset)?;
        self.seek(SeekFrom::Start(offset)).map(drop)
    }
}

impl Sink for Cursor<Vec<u8>> {
    fn cut(&mut self, offset: u64) -> io::Result<()> {
        self.get_mut()
            .truncate(usize::try_from(offset).unwrap_or(usize::MAX));
        self.set_position(offset);
        Ok(())
    }
}

impl<S: Sink + ?Sized> Sink for &mut S {
    fn cut(&mut self, offset: u64) -> io::Result<()> {
        (**self).cut(offset)
    }
}

/// Why data did not reach the capture.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteFailure {
    /// There is no space, the quota is used up, or the file has the maximum size.
    #[error(
        "no space left for the capture after {offset} bytes: {source}. What was written stays readable; free some space or record to another disk with -d"
    )]
    Full {
        /// Size of the capture: the end of the last complete block, bytes.
        offset: u64,
        /// Error returned by the system.
        source: io::Error,
    },
    /// Any other I/O error.
    #[error(
        "cannot write the capture after {offset} bytes: {source}. What was written stays readable"
    )]
    Io {
        /// Size of the capture: the end of the last complete block, bytes.
        offset: u64,
        /// Error returned by the system.
        source: io::Error,
    },
    /// The reader of the growing capture is too far behind: see [`CaptureWriter::limit`].
    #[error(
        "the reader of the output has paused, and {most} bytes wait for it; records are lost until \
         it continues"
    )]
    Unread {
        /// The limit, bytes.
        most: u64,
    },
    /// The given bytes are not complete records. None of them was accepted.
    #[error("refused to write a run of {bytes} bytes that is not made of whole records")]
    NotRecords {
        /// Size of the run, bytes.
        bytes: usize,
    },
    /// A metadata document is longer than a block may be, or cannot be encoded.
    #[error("metadata cannot be stored: {reason}")]
    Metadata {
        /// The reason.
        reason: String,
    },
    /// More metadata was waiting for space on the disk than is kept.
    #[error(
        "the disk is full, and metadata no longer fits into memory either; some names will be missing"
    )]
    MetadataDropped,
}

impl WriteFailure {
    fn io(offset: u64, source: io::Error) -> Self {
        match source.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
                Self::Full { offset, source }
            }
            _ => Self::Io { offset, source },
        }
    }
}

/// A failed write, and the records that it lost.
#[derive(Debug, thiserror::Error)]
#[error("{failure}")]
pub struct WriteError {
    /// The failure; the first one if there were several in one call.
    #[source]
    pub failure: WriteFailure,
    /// The lost records, complete, in the form in which they were given. Count each as
    /// [`gputrace_abi::counters::DropReason::CaptureWrite`] (walk them with [`records::split`]).
    /// They may have been given in an earlier call. Every record that was given and is not returned
    /// here is in the file, or is buffered and will be in the file or in a later error.
    pub lost: Vec<u8>,
}

/// Appends to a capture.
///
/// Records are collected into blocks of up to [`RECORDS_PER_BLOCK`] bytes; each block is one
/// `write(2)`. Metadata is written at once, after the records given before it.
///
/// After a failed write, the file is cut back to the last complete block. So writing can continue
/// when there is space again, and the capture never contains half a block. The block's records are
/// handed back in [`WriteError::lost`]; its metadata is kept and written before the next block,
/// because later records cannot be understood without it. Only epoch marks are not kept: without
/// one, two drain rounds count as one.
///
/// Dropping the writer tries to write what is buffered; call [`CaptureWriter::flush`] to learn
/// whether that worked.
#[derive(Debug)]
pub struct CaptureWriter<S: Sink> {
    sink: S,
    /// Space for a block header, followed by records.
    buffer: Vec<u8>,
    /// End of the last complete block.
    offset: u64,
    sequence: u64,
    /// Whether the file may contain bytes after `offset`.
    dirty: bool,
    /// Encoded metadata blocks (header space included) that could not be written yet.
    pending: VecDeque<(u16, Vec<u8>)>,
    pending_bytes: usize,
    limit: Option<Limit>,
}

/// Limit on how far a reader may be behind.
#[derive(Debug)]
struct Limit {
    /// Number of bytes of the capture that have been read.
    read: Arc<AtomicU64>,
    /// Maximum number of unread bytes.
    most: u64,
}

impl<S: Sink> CaptureWriter<S> {
    /// Writes the file header and `recording`. `sink` must be empty and positioned at its start.
    ///
    /// # Errors
    /// [`WriteError`] if that cannot be written; there is no capture then.
    pub fn create(sink: S, recording: &Recording) -> Result<Self, WriteError> {
        let mut writer = Self {
            sink,
            buffer: empty_buffer(),
            offset: 0,
            sequence: 0,
            dirty: false,
            pending: VecDeque::new(),
            pending_bytes: 0,
            limit: None,
        };
        let written = writer.append(FileHeader::new().as_bytes());
        written.map_err(|failure| WriteError {
            failure,
            lost: Vec::new(),
        })?;
        writer.meta(&Meta::Recording(Box::new(recording.clone())))?;
        Ok(writer)
    }

    /// Size of the capture so far, without buffered records, bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.offset
    }

    /// Limits the unread part of the capture to `most` bytes: beyond that, records are refused with
    /// [`WriteFailure::Unread`], as on a full disk. `read` is the number of bytes of the capture
    /// that have been read. The limit for metadata is an eighth higher, because metadata explains
    /// records that are in the file.
    pub fn limit(&mut self, read: Arc<AtomicU64>, most: u64) {
        self.limit = Some(Limit { read, most });
    }

    /// Removes the limit: the little that is still to come is written even if nobody reads it.
    pub fn unlimit(&mut self) {
        self.limit = None;
    }

    /// The sink.
    #[must_use]
    pub fn sink(&self) -> &S {
        &self.sink
    }

    /// Accepts a run of one or more complete records.
    ///
    /// # Errors
    ///
    /// [`WriteError`]; records that are not in its `lost` were accepted, except for
    /// [`WriteFailure::NotRecords`], where none of this run were.
    pub fn records(&mut self, run: &[u8]) -> Result<(), WriteError> {
        if records::split(run).any(|record| record.is_err()) {
            return Err(WriteError {
                failure: WriteFailure::NotRecords { bytes: run.len() },
                lost: Vec::new(),
            });
        }
        let mut outcome = Outcome::default();
        if self.room() >= run.len() {
            self.buffer.extend_from_slice(run);
            return Ok(());
        }
        // Each record is shorter than 64 KiB, so it fits into an empty block.
        for record in records::split(run).flatten() {
            if self.room() < record.bytes.len() {
                self.flush_records(&mut outcome);
            }
            self.buffer.extend_from_slice(record.bytes);
        }
        outcome.into_result()
    }

    /// Writes a metadata document, after the records given before it.
    ///
    /// # Errors
    ///
    /// [`WriteError`]; see [`CaptureWriter`] for what happens to the document then.
    pub fn meta(&mut self, meta: &Meta) -> Result<(), WriteError> {
        let mut outcome = Outcome::default();
        self.flush_records(&mut outcome);
        let mut block = vec![0; BLOCK_HEADER];
        let encoded = meta
            .encode(&mut block)
            .map_err(|error| error.to_string())
            .and_then(|()| {
                let length = block.len() - BLOCK_HEADER;
                if length <= MAX_PAYLOAD {
                    Ok(())
                } else {
                    Err(format!("{length} bytes are too long"))
                }
            });
        match encoded {
            Ok(()) => self.write_or_keep(meta, block, &mut outcome),
            Err(reason) => outcome.fail(WriteFailure::Metadata { reason }),
        }
        outcome.into_result()
    }

    /// Writes all buffered data.
    ///
    /// # Errors
    ///
    /// [`WriteError`].
    pub fn flush(&mut self) -> Result<(), WriteError> {
        let mut outcome = Outcome::default();
        self.flush_records(&mut outcome);
        if outcome.failure.is_none() {
            self.write_pending()
                .unwrap_or_else(|failure| outcome.fail(failure));
        }
        outcome.into_result()
    }

    fn room(&self) -> usize {
        (BLOCK_HEADER + RECORDS_PER_BLOCK).saturating_sub(self.buffer.len())
    }

    fn flush_records(&mut self, outcome: &mut Outcome) {
        if self.buffer.len() == BLOCK_HEADER {
            return;
        }
        let mut block = mem::take(&mut self.buffer);
        let written = self
            .write_pending()
            .and_then(|()| self.write_block(kind::RECORDS, &mut block));
        match written {
            Ok(()) => {
                block.truncate(BLOCK_HEADER);
                self.buffer = block;
            }
            Err(failure) => {
                outcome.fail(failure);
                outcome
                    .lost
                    .extend_from_slice(block.get(BLOCK_HEADER..).unwrap_or_default());
                self.buffer = empty_buffer();
            }
        }
    }

    fn write_or_keep(&mut self, meta: &Meta, mut block: Vec<u8>, outcome: &mut Outcome) {
        let kind = meta.kind();
        let Err(failure) = self
            .write_pending()
            .and_then(|()| self.write_block(kind, &mut block))
        else {
            return;
        };
        outcome.fail(failure);
        match meta {
            Meta::Epoch(_) => return,
            // Only the newest state of the accounts matters.
            Meta::Ledger(_) => {
                self.pending.retain(|(waiting, _)| *waiting != kind::LEDGER);
                self.pending_bytes = self.pending.iter().map(|(_, block)| block.len()).sum();
            }
            _ => {}
        }
        if self.pending_bytes + block.len() > MAX_PENDING {
            if !matches!(outcome.failure, Some(WriteFailure::Unread { .. })) {
                outcome.failure = Some(WriteFailure::MetadataDropped);
            }
            return;
        }
        self.pending_bytes += block.len();
        self.pending.push_back((kind, block));
    }

    fn write_pending(&mut self) -> Result<(), WriteFailure> {
        while let Some((kind, mut block)) = self.pending.pop_front() {
            if let Err(failure) = self.write_block(kind, &mut block) {
                self.pending.push_front((kind, block));
                return Err(failure);
            }
            self.pending_bytes -= block.len();
        }
        Ok(())
    }

    /// Fills in the header at the start of `block` and appends it.
    fn write_block(&mut self, kind: u16, block: &mut [u8]) -> Result<(), WriteFailure> {
        if let Some(Limit { read, most }) = &self.limit {
            let unread = self.offset.saturating_sub(read.load(Ordering::Acquire));
            let more = if kind == kind::RECORDS { 0 } else { most / 8 };
            if unread.saturating_add(block.len() as u64) > most.saturating_add(more) {
                return Err(WriteFailure::Unread { most: *most });
            }
        }
        if let Some((header, payload)) = block.split_at_mut_checked(BLOCK_HEADER) {
            header.copy_from_slice(BlockHeader::new(kind, self.sequence, payload).as_bytes());
        }
        self.append(block)?;
        self.sequence += 1;
        Ok(())
    }

    /// Appends all of `bytes` or none.
    fn append(&mut self, bytes: &[u8]) -> Result<(), WriteFailure> {
        self.try_append(bytes).map_err(|source| {
            // If this fails too, the next attempt begins with it.
            self.dirty = self.sink.cut(self.offset).is_err();
            WriteFailure::io(self.offset, source)
        })
    }

    fn try_append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.dirty {
            self.sink.cut(self.offset)?;
            self.dirty = false;
        }
        // Not atomic: after an error, some of the bytes may be in the file.
        self.sink.write_all(bytes)?;
        self.sink.flush()?;
        self.offset += bytes.len() as u64;
        Ok(())
    }
}

impl<S: Sink> Drop for CaptureWriter<S> {
    fn drop(&mut self) {
        // Callers that need the result have called `flush` before.
        let _ = self.flush();
    }
}

/// A buffer for one block: space for the header, no records.
fn empty_buffer() -> Vec<u8> {
    let mut buffer = Vec::with_capacity(BLOCK_HEADER + RECORDS_PER_BLOCK);
    buffer.resize(BLOCK_HEADER, 0);
    buffer
}

/// Failures of the steps of one call.
#[derive(Default)]
struct Outcome {
    failure: Option<WriteFailure>,
    lost: Vec<u8>,
}

impl Outcome {
    fn fail(&mut self, failure: WriteFailure) {
        self.failure.get_or_insert(failure);
    }

    fn into_result(self) -> Result<(), WriteError> {
        match self.failure {
            Some(failure) => Err(WriteError {
                failure,
                lost: self.lost,
            }),
            None => Ok(()),
        }
    }
}
