//! Writing a capture.

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

/// Metadata kept for a later attempt while the disk is full, bytes in all. Enough for the libraries
/// and processes of a busy node; what comes beyond is dropped, and the error says so.
const MAX_PENDING: usize = 16 << 20;

/// Something that a capture can be written to.
pub trait Sink: Write {
    /// Cuts everything from `offset` on and makes the next write start there.
    ///
    /// # Errors
    /// Whatever the system says.
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

/// Why something did not reach the capture.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteFailure {
    /// No space, quota used up, or the file has the greatest size allowed.
    #[error(
        "no space left for the capture after {offset} bytes: {source}. What was written stays readable; free some space or record to another disk with -d"
    )]
    Full {
        /// Size of the capture: the end of the last whole block.
        offset: u64,
        /// The system's error.
        source: io::Error,
    },
    /// Any other I/O error.
    #[error(
        "cannot write the capture after {offset} bytes: {source}. What was written stays readable"
    )]
    Io {
        /// Size of the capture: the end of the last whole block.
        offset: u64,
        /// The system's error.
        source: io::Error,
    },
    /// Who reads the capture as it grows is too far behind: see [`CaptureWriter::limit`].
    #[error(
        "the reader of the output has paused, and {most} bytes wait for it; records are lost \
         until it reads on"
    )]
    Unread {
        /// The limit.
        most: u64,
    },
    /// The given bytes are not whole records. None of them was taken.
    #[error("refused to write a run of {bytes} bytes that is not made of whole records")]
    NotRecords {
        /// Bytes of the run.
        bytes: usize,
    },
    /// A metadata document is longer than a block may be, or cannot be encoded.
    #[error("metadata cannot be stored: {reason}")]
    Metadata {
        /// Why.
        reason: String,
    },
    /// More metadata has been waiting for space on the disk than is kept.
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

/// A failed write and what it cost.
#[derive(Debug, thiserror::Error)]
#[error("{failure}")]
pub struct WriteError {
    /// What went wrong; the first failure if several happened in one call.
    #[source]
    pub failure: WriteFailure,
    /// The records that are lost, whole, in the form they were given: count each as
    /// [`gputrace_abi::counters::DropReason::CaptureWrite`] (walk them with [`records::split`]). They may
    /// have been given in an earlier call. Every record given and not returned here is in the file, or
    /// buffered and will be in the file or in a later error.
    pub lost: Vec<u8>,
}

/// Appends to a capture.
///
/// Records are collected into blocks of up to [`RECORDS_PER_BLOCK`] bytes; each block is one
/// `write(2)`. Metadata is written at once, after the records given before it.
///
/// After a failed write the file is cut back to the last whole block, so that writing may go on when
/// there is space again and the capture never has half a block in its middle. The block's records are
/// handed back in [`WriteError::lost`]; its metadata is kept and written before the next block, because
/// later records cannot be understood without it. Only epoch marks are not kept: without one, two drain
/// rounds read as one.
///
/// Dropping the writer tries to write what is buffered; call [`CaptureWriter::flush`] to learn whether
/// that worked.
#[derive(Debug)]
pub struct CaptureWriter<S: Sink> {
    sink: S,
    /// Room for a block header, then records.
    buffer: Vec<u8>,
    /// End of the last whole block.
    offset: u64,
    sequence: u64,
    /// Bytes after `offset` may be in the file.
    dirty: bool,
    /// Encoded metadata blocks (header space included) that could not be written yet.
    pending: VecDeque<(u16, Vec<u8>)>,
    pending_bytes: usize,
    limit: Option<Limit>,
}

/// How far a reader may be behind.
#[derive(Debug)]
struct Limit {
    /// Bytes of the capture that have been read.
    read: Arc<AtomicU64>,
    /// Bytes that may wait.
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

    /// Bytes of the capture so far, buffered records not included.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.offset
    }

    /// Keeps what nobody has read yet within `most` bytes: beyond, records are refused with
    /// [`WriteFailure::Unread`], as on a full disk. `read` is how many bytes of the capture have been read. For
    /// metadata there is an eighth more room, since it explains records that are in the file.
    pub fn limit(&mut self, read: Arc<AtomicU64>, most: u64) {
        self.limit = Some(Limit { read, most });
    }

    /// Ends the limit: the little that is still to come is written whoever reads it.
    pub fn unlimit(&mut self) {
        self.limit = None;
    }

    /// The sink.
    #[must_use]
    pub fn sink(&self) -> &S {
        &self.sink
    }

    /// Takes a run of one or more whole records.
    ///
    /// # Errors
    /// [`WriteError`]; whatever is not in its `lost` was taken, except for
    /// [`WriteFailure::NotRecords`], where nothing of this run was.
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
        // Each is shorter than 64 KiB, so it fits into an empty block.
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
    /// [`WriteError`]; see [`CaptureWriter`] for what becomes of the document.
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

    /// Writes what is buffered.
    ///
    /// # Errors
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

    /// Appends all of `bytes` or nothing.
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
        // Not an all-at-once guarantee: after an error some of the bytes may be in the file.
        self.sink.write_all(bytes)?;
        self.sink.flush()?;
        self.offset += bytes.len() as u64;
        Ok(())
    }
}

impl<S: Sink> Drop for CaptureWriter<S> {
    fn drop(&mut self) {
        // Whoever wants to know whether it worked has called `flush` before.
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
