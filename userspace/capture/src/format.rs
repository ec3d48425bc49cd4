//! Byte layout of the file: headers, limits, checksums. All integers are little-endian.
//!
//! ```text
//! file header, 24 bytes, the same in every version of the format
//!   0  magic         8 bytes  "\x89GTCAP\r\n"; altered by anything that converts line ends or strips bit 7
//!   8  version       u32      version of this format
//!  12  abi version   u32      gputrace_abi::ABI_VERSION of the records
//!  16  reserved      u32      0
//!  20  crc           u32      CRC-32C of bytes 0..20
//!
//! block, repeated until the end of the file
//!   0  magic         u32      "GTBK"
//!   4  kind          u16      what the payload is; a reader skips kinds that it does not know
//!   6  flags         u16      0
//!   8  sequence      u64      0, 1, 2, … without gaps
//!  16  length        u32      bytes of payload, at most 16 MiB
//!  20  crc           u32      CRC-32C of bytes 0..20 and of the payload
//!  24  payload
//! ```

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    byteorder::little_endian::{U16, U32, U64},
};

// Records are stored as the kernel wrote them, in native byte order.
const _: () = assert!(
    cfg!(target_endian = "little"),
    "captures hold little-endian records"
);

/// Version of the file format that this crate writes, and the newest that it reads.
pub const FORMAT_VERSION: u32 = 1;

/// Maximum length of a block's payload, bytes. A longer one counts as damage, so that a flipped bit
/// in a length cannot make a reader allocate gigabytes.
pub const MAX_PAYLOAD: usize = 16 << 20;

/// Number of bytes of records that the writer puts into one block.
pub const RECORDS_PER_BLOCK: usize = 256 << 10;

pub(crate) const FILE_MAGIC: [u8; 8] = *b"\x89GTCAP\r\n";
pub(crate) const BLOCK_MAGIC: u32 = u32::from_le_bytes(*b"GTBK");
pub(crate) const FILE_HEADER: usize = size_of::<FileHeader>();
pub(crate) const BLOCK_HEADER: usize = size_of::<BlockHeader>();

/// Number of bytes, at the start of both headers, that their checksum covers.
const COVERED: usize = 20;

/// First bytes of the file.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct FileHeader {
    pub(crate) magic: [u8; 8],
    pub(crate) version: U32,
    pub(crate) abi_version: U32,
    reserved: U32,
    crc: U32,
}

/// First bytes of a block.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct BlockHeader {
    pub(crate) magic: U32,
    pub(crate) kind: U16,
    flags: U16,
    pub(crate) sequence: U64,
    pub(crate) length: U32,
    crc: U32,
}

const _: () = assert!(FILE_HEADER == 24 && BLOCK_HEADER == 24);

impl FileHeader {
    pub(crate) fn new() -> Self {
        let mut header = Self {
            magic: FILE_MAGIC,
            version: U32::new(FORMAT_VERSION),
            abi_version: U32::new(gputrace_abi::ABI_VERSION),
            reserved: U32::ZERO,
            crc: U32::ZERO,
        };
        header.crc = U32::new(checksum(header.as_bytes(), &[]));
        header
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.crc.get() == checksum(self.as_bytes(), &[])
    }
}

impl BlockHeader {
    /// Makes the header for `payload`, which must not be longer than [`MAX_PAYLOAD`].
    pub(crate) fn new(kind: u16, sequence: u64, payload: &[u8]) -> Self {
        let mut header = Self {
            magic: U32::new(BLOCK_MAGIC),
            kind: U16::new(kind),
            flags: U16::ZERO,
            sequence: U64::new(sequence),
            length: U32::new(payload.len() as u32),
            crc: U32::ZERO,
        };
        header.crc = U32::new(checksum(header.as_bytes(), payload));
        header
    }

    pub(crate) fn matches(&self, payload: &[u8]) -> bool {
        self.crc.get() == checksum(self.as_bytes(), payload)
    }
}

fn checksum(header: &[u8], payload: &[u8]) -> u32 {
    let covered = header.get(..COVERED).unwrap_or(header);
    crc32c::crc32c_append(crc32c::crc32c(covered), payload)
}

/// Kinds of blocks.
pub(crate) mod kind {
    pub(crate) const RECORDS: u16 = 1;
    pub(crate) const EPOCH: u16 = 2;
    pub(crate) const RECORDING: u16 = 16;
    pub(crate) const LIBRARY: u16 = 17;
    pub(crate) const PROCESS: u16 = 18;
    pub(crate) const CLOCKS: u16 = 19;
    pub(crate) const NOTICE: u16 = 20;
    pub(crate) const LEDGER: u16 = 21;
    pub(crate) const END: u16 = 22;
    pub(crate) const AGENT: u16 = 23;
    pub(crate) const GPU_CLOCK: u16 = 24;
    pub(crate) const QUEUE: u16 = 25;
    pub(crate) const AGENT_HANDLE: u16 = 26;
    pub(crate) const CODE_OBJECT: u16 = 27;
    pub(crate) const TRACE_FORMAT: u16 = 40;
    pub(crate) const KFD_EVENT: u16 = 41;
    pub(crate) const COUNTER: u16 = 42;
    pub(crate) const COUNTER_VALUES: u16 = 43;
    pub(crate) const PASID: u16 = 44;
    pub(crate) const PAUSE: u16 = 45;
    pub(crate) const CODE_FILE: u16 = 46;
    pub(crate) const STACK: u16 = 47;
    pub(crate) const ANNOTATION: u16 = 48;
}
