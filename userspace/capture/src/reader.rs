//! Reads a capture.

use std::{
    fmt,
    fs::File,
    io::{self, BufReader, ErrorKind, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use gputrace_files::own;
use zerocopy::FromBytes;

use crate::{
    block::{Block, Meta},
    format::{
        BLOCK_HEADER, BLOCK_MAGIC, BlockHeader, FILE_HEADER, FILE_MAGIC, FORMAT_VERSION,
        FileHeader, MAX_PAYLOAD, kind,
    },
};

/// Number of bytes allocated at a time while a payload is read, so that a wrong length in a short
/// file costs little.
const STEP: usize = 1 << 20;

/// Why a capture cannot be read at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file does not exist or cannot be opened.
    #[error("cannot open {path}: {source}", path = path.display())]
    Open {
        /// Path of the file.
        path: PathBuf,
        /// Error returned by the system.
        source: io::Error,
    },
    /// Reading failed: a bad disk, a lost network mount. (A file that merely ends too early is not
    /// an error; see [`Truncation`].)
    #[error("cannot read the capture at byte {offset}: {source}")]
    Io {
        /// Position in the file, bytes.
        offset: u64,
        /// Error returned by the system.
        source: io::Error,
    },
    /// The file is too short for a capture.
    #[error("the file has only {bytes} bytes: recording stopped before anything was captured")]
    Empty {
        /// Size of the file, bytes.
        bytes: usize,
    },
    /// The file is not a capture.
    #[error("this is not a gputrace capture (a .gtcap file)")]
    NotACapture,
    /// The first bytes are those of a capture, but its header is damaged.
    #[error("the header of this capture is damaged; it cannot be read")]
    Header,
    /// The first block, which describes the recording, is missing.
    #[error(
        "this capture does not begin with a description of the recording: the recorder was killed at once, or the file is damaged; nothing in it can be read"
    )]
    NoRecording,
    /// The file was written by a newer gputrace.
    #[error(
        "this capture has {what} {found}, and this gputrace reads up to {known}; upgrade gputrace to the version that recorded it, or newer"
    )]
    Newer {
        /// Which version is too new: `format version` or `record version`.
        what: &'static str,
        /// The version in the file.
        found: u32,
        /// The newest version that can be read.
        known: u32,
    },
}

/// The problem with the first block that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// The file ends inside the block: the recorder was killed, or the file was cut.
    Cut,
    /// There is no block where one should begin.
    NoBlock,
    /// The block claims to be longer than any block may be.
    TooLong,
    /// The checksum does not match.
    Checksum,
    /// The block is intact but not the next one in sequence.
    Sequence {
        /// Number of the missing block.
        expected: u64,
        /// Number found.
        found: u64,
    },
}

/// Where and why reading stopped before the end of the file. Everything before is intact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncation {
    /// Position where the unreadable part begins; bytes from the start of the file.
    pub offset: u64,
    /// The problem there.
    pub why: Damage,
    /// Number of bytes from `offset` to the end of the file, none of which were read.
    pub bytes_after: u64,
}

impl fmt::Display for Truncation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            offset,
            why,
            bytes_after,
        } = self;
        match why {
            Damage::Cut => write!(f, "the capture ends inside a block at byte {offset}")?,
            Damage::NoBlock => write!(f, "the capture is overwritten at byte {offset}")?,
            Damage::TooLong => write!(
                f,
                "the capture is damaged at byte {offset} (impossible length)"
            )?,
            Damage::Checksum => write!(
                f,
                "the capture is damaged at byte {offset} (wrong checksum)"
            )?,
            Damage::Sequence { expected, found } => write!(
                f,
                "the capture is damaged at byte {offset} (found block {found}, expected {expected})"
            )?,
        }
        write!(
            f,
            "; everything before was read, the last {bytes_after} bytes were not"
        )
    }
}

/// Reads a capture block by block. The memory used is limited by the longest block
/// ([`MAX_PAYLOAD`]), whatever the file says.
#[derive(Debug)]
pub struct CaptureReader<R> {
    input: R,
    header: Vec<u8>,
    payload: Vec<u8>,
    abi_version: u32,
    size: u64,
    /// Position of the next block.
    offset: u64,
    sequence: u64,
    truncation: Option<Truncation>,
    ended: bool,
}

impl CaptureReader<BufReader<File>> {
    /// Opens a file and checks its header.
    ///
    /// # Errors
    /// [`ReadError`] if it cannot be opened or is not a capture that this version can read.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        let file = own::open(path).map_err(|source| ReadError::Open {
            path: path.to_owned(),
            source,
        })?;
        Self::new(BufReader::with_capacity(64 << 10, file))
    }
}

impl<R: Read + Seek> CaptureReader<R> {
    /// Reads from the start of `input` and checks the file header.
    ///
    /// # Errors
    /// As [`CaptureReader::open`].
    pub fn new(mut input: R) -> Result<Self, ReadError> {
        let mut bytes = Vec::with_capacity(FILE_HEADER);
        let size = input
            .seek(SeekFrom::End(0))
            .and_then(|size| input.rewind().map(|()| size))
            .and_then(|size| fill(&mut input, &mut bytes, FILE_HEADER).map(|()| size))
            .map_err(|source| ReadError::Io { offset: 0, source })?;
        let Ok(header) = FileHeader::read_from_bytes(&bytes) else {
            let known = FILE_MAGIC
                .iter()
                .zip(&bytes)
                .all(|(expected, found)| expected == found);
            return Err(if known {
                ReadError::Empty { bytes: bytes.len() }
            } else {
                ReadError::NotACapture
            });
        };
        if header.magic != FILE_MAGIC {
            return Err(ReadError::NotACapture);
        }
        if !header.is_whole() {
            return Err(ReadError::Header);
        }
        let (version, abi_version) = (header.version.get(), header.abi_version.get());
        for (what, found, known) in [
            ("format version", version, FORMAT_VERSION),
            ("record version", abi_version, gputrace_abi::ABI_VERSION),
        ] {
            if found > known {
                return Err(ReadError::Newer { what, found, known });
            }
        }
        Ok(Self {
            input,
            header: bytes,
            payload: Vec::new(),
            abi_version,
            size,
            offset: FILE_HEADER as u64,
            sequence: 0,
            truncation: None,
            ended: false,
        })
    }

    /// Reads from a block in the middle of a file whose header need not be there any more: that
    /// with number `sequence`, which begins `offset` bytes from the start. The records must have
    /// been written by this version.
    ///
    /// # Errors
    /// [`ReadError::Io`] if `input` cannot go there.
    pub fn resume(mut input: R, offset: u64, sequence: u64) -> Result<Self, ReadError> {
        let size = input
            .seek(SeekFrom::End(0))
            .and_then(|size| input.seek(SeekFrom::Start(offset)).map(|_| size))
            .map_err(|source| ReadError::Io { offset, source })?;
        Ok(Self {
            input,
            header: Vec::with_capacity(FILE_HEADER),
            payload: Vec::new(),
            abi_version: gputrace_abi::ABI_VERSION,
            size,
            offset,
            sequence,
            truncation: None,
            ended: false,
        })
    }

    /// Reads the next block; `None` at the end of the file or at the first damaged block, which
    /// [`CaptureReader::truncation`] then describes.
    ///
    /// # Errors
    ///
    /// [`ReadError::Io`] if the file cannot be read; later calls return `None`.
    pub fn next_block(&mut self) -> Result<Option<Block<'_>>, ReadError> {
        if self.ended {
            return Ok(None);
        }
        match self.read_block() {
            Ok(Some(kind)) => Ok(Some(self.interpret(kind))),
            Ok(None) => {
                self.ended = true;
                Ok(None)
            }
            Err(Stop::Damage(why)) => {
                self.ended = true;
                let end = self
                    .input
                    .seek(SeekFrom::End(0))
                    .map_err(|source| self.io(source))?;
                let bytes_after = end.saturating_sub(self.offset);
                self.truncation = Some(Truncation {
                    offset: self.offset,
                    why,
                    bytes_after,
                });
                Ok(None)
            }
            Err(Stop::Io(source)) => {
                self.ended = true;
                Err(self.io(source))
            }
        }
    }

    /// Reads the next metadata of the capture; records and unknown blocks are skipped without being
    /// examined. This is for readers that need all metadata before the first record; they call
    /// [`CaptureReader::rewind`] afterwards.
    ///
    /// `None` at the end of the file or at the first damaged block. Damage inside a run of records
    /// is not noticed.
    ///
    /// # Errors
    ///
    /// [`ReadError::Io`] if the file cannot be read; later calls return `None`.
    pub fn next_meta(&mut self) -> Result<Option<Meta>, ReadError> {
        while !self.ended {
            match self.read_meta() {
                Ok(Some(kind)) => {
                    if let Ok(Some(meta)) = Meta::decode(kind, &self.payload) {
                        return Ok(Some(meta));
                    }
                }
                Ok(None) | Err(Stop::Damage(_)) => self.ended = true,
                Err(Stop::Io(source)) => {
                    self.ended = true;
                    return Err(self.io(source));
                }
            }
        }
        Ok(None)
    }

    /// Goes back to the first block.
    ///
    /// # Errors
    /// [`ReadError::Io`] if the file cannot be read; later reads return `None`.
    pub fn rewind(&mut self) -> Result<(), ReadError> {
        self.ended = true;
        self.input
            .seek(SeekFrom::Start(FILE_HEADER as u64))
            .map_err(|source| self.io(source))?;
        self.offset = FILE_HEADER as u64;
        self.sequence = 0;
        self.truncation = None;
        self.ended = false;
        Ok(())
    }

    /// Where and why reading stopped early; available once [`CaptureReader::next_block`] has
    /// returned `None`.
    #[must_use]
    pub fn truncation(&self) -> Option<Truncation> {
        self.truncation
    }

    /// [`gputrace_abi::ABI_VERSION`] of the records.
    #[must_use]
    pub fn abi_version(&self) -> u32 {
        self.abi_version
    }

    /// Number of bytes read so far as intact blocks, for showing progress.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.offset
    }

    /// Size of the file when it was opened, bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    fn io(&self, source: io::Error) -> ReadError {
        ReadError::Io {
            offset: self.offset,
            source,
        }
    }

    /// Reads a block into `self.payload`, and returns its kind; `None` at the end of the file.
    fn read_block(&mut self) -> Result<Option<u16>, Stop> {
        let Some((header, length)) = self.read_header()? else {
            return Ok(None);
        };
        self.read_payload(&header, length).map(Some)
    }

    /// Like `read_block`, but skips the payload of a run of records.
    fn read_meta(&mut self) -> Result<Option<u16>, Stop> {
        let Some((header, length)) = self.read_header()? else {
            return Ok(None);
        };
        if header.kind.get() != kind::RECORDS {
            return self.read_payload(&header, length).map(Some);
        }
        self.payload.clear();
        self.input.seek_relative(length as i64)?;
        self.sequence += 1;
        self.offset += (BLOCK_HEADER + length) as u64;
        Ok(Some(kind::RECORDS))
    }

    /// Reads a block's header, and returns it with the length of its payload; `None` at the end of
    /// the file.
    fn read_header(&mut self) -> Result<Option<(BlockHeader, usize)>, Stop> {
        fill(&mut self.input, &mut self.header, BLOCK_HEADER)?;
        if self.header.is_empty() {
            return Ok(None);
        }
        let Ok(header) = BlockHeader::read_from_bytes(&self.header) else {
            return Err(Stop::Damage(Damage::Cut));
        };
        if header.magic.get() != BLOCK_MAGIC {
            return Err(Stop::Damage(Damage::NoBlock));
        }
        let length = header.length.get() as usize;
        if length > MAX_PAYLOAD {
            return Err(Stop::Damage(Damage::TooLong));
        }
        Ok(Some((header, length)))
    }

    /// Reads the payload after a header into `self.payload`, and returns its kind.
    fn read_payload(&mut self, header: &BlockHeader, length: usize) -> Result<u16, Stop> {
        fill(&mut self.input, &mut self.payload, length)?;
        if self.payload.len() < length {
            return Err(Stop::Damage(Damage::Cut));
        }
        if !header.matches(&self.payload) {
            return Err(Stop::Damage(Damage::Checksum));
        }
        let (expected, found) = (self.sequence, header.sequence.get());
        if found != expected {
            return Err(Stop::Damage(Damage::Sequence { expected, found }));
        }
        self.sequence += 1;
        self.offset += (BLOCK_HEADER + length) as u64;
        Ok(header.kind.get())
    }

    fn interpret(&self, kind: u16) -> Block<'_> {
        if kind == kind::RECORDS {
            return Block::Records(&self.payload);
        }
        match Meta::decode(kind, &self.payload) {
            Ok(Some(meta)) => Block::Meta(meta),
            Ok(None) | Err(_) => Block::Unknown { kind },
        }
    }
}

/// Why no block could be read.
enum Stop {
    Damage(Damage),
    Io(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Reads `length` bytes into `buffer`, fewer only at the end of the input.
fn fill(input: &mut impl Read, buffer: &mut Vec<u8>, length: usize) -> io::Result<()> {
    let mut have = 0;
    while have < length {
        let want = length.min(have + STEP);
        buffer.resize(want, 0);
        match input.read(buffer.get_mut(have..).unwrap_or_default()) {
            Ok(0) => break,
            Ok(count) => have += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    buffer.truncate(have);
    Ok(())
}
