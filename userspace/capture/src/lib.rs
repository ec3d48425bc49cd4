//! The capture file (`.gtcap`): the recorded data, exactly as it was recorded.
//!
//! A capture is append-only: a header, then blocks, each with a length, a sequence number and a
//! checksum. A recorder that is killed loses at most the block that it was about to write. A reader
//! accepts everything up to the first block that is not intact, and reports what is missing. A
//! block contains either records as they came from the ring buffers ([`gputrace_abi::record`]) or
//! one metadata document ([`Meta`]) as JSON. [`mod@format`] describes the bytes.
//!
//! The order of blocks has a meaning:
//!
//! * The first is [`Meta::Recording`].
//! * A [`Meta::Library`] comes before the first record of a call of its functions.
//! * Records of one ring keep their order, but rings are drained one after the other, so records
//!   that are apart in the file may have been made at the same time. [`Meta::Epoch`] limits that:
//!   it ends one round over all rings, so everything that was in a ring when the round began comes
//!   before it.
//! * [`Meta::Ledger`] is the state of the accounts ([`ledger`]) at that point of the file.
//! * The last is [`Meta::End`]. Without it, the recording was not stopped properly.
//!
//! ```
//! use std::io::Cursor;
//! use gputrace_capture::{Block, CaptureReader, CaptureWriter, Meta, meta::{End, Recording}};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut file = Cursor::new(Vec::new());
//! let mut writer = CaptureWriter::create(&mut file, &Recording::default())?;
//! writer.meta(&Meta::End(End::default()))?;
//! drop(writer);
//!
//! file.set_position(0);
//! let mut reader = CaptureReader::new(file)?;
//! assert!(matches!(reader.next_block()?, Some(Block::Meta(Meta::Recording(_)))));
//! assert!(matches!(reader.next_block()?, Some(Block::Meta(Meta::End(_)))));
//! assert!(reader.next_block()?.is_none() && reader.truncation().is_none());
//! # Ok(()) }
//! ```

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests make and read files of their own"
    )
)]

mod block;
pub mod counter;
pub mod dump;
pub mod flight;
pub mod follow;
pub mod format;
pub mod gpu;
pub mod identity;
pub mod ledger;
pub mod meta;
pub mod reader;
pub mod records;
pub mod stack;
pub mod tracepoint;
pub mod writer;

pub use block::{Block, Meta};
pub use reader::{CaptureReader, Damage, ReadError, Truncation};
pub use writer::{CaptureWriter, Sink, WriteError, WriteFailure};
