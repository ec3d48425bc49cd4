//! Begin and end of a recording, found without reading its records.

use std::{
    io::{Read, Seek},
    path::Path,
};

use gputrace_capture::{Block, CaptureReader, Meta, ReadError};

/// Begin and end of a recording, ns `CLOCK_BOOTTIME`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// When it began.
    pub begin: u64,
    /// When it ended; for a capture that ends too early, the latest time that its metadata
    /// mentions. Not before `begin`.
    pub end: u64,
}

impl Extent {
    /// The extent of the capture at `path`.
    ///
    /// # Errors
    /// [`ReadError`] if the file cannot be opened or is not a capture that this version can read.
    pub fn of(path: &Path) -> Result<Self, ReadError> {
        Self::read(&mut CaptureReader::open(path)?)
    }

    /// The extent of the capture in `reader`, which must be at its beginning.
    ///
    /// # Errors
    /// As [`Extent::of`].
    pub fn read<R: Read + Seek>(reader: &mut CaptureReader<R>) -> Result<Self, ReadError> {
        let begin = match reader.next_block()? {
            Some(Block::Meta(Meta::Recording(recording))) => recording.clocks.boottime,
            _ => return Err(ReadError::NoRecording),
        };
        let mut latest = begin;
        while let Some(meta) = reader.next_meta()? {
            latest = match meta {
                Meta::End(end) => {
                    latest = end.time;
                    break;
                }
                Meta::Epoch(epoch) => latest.max(epoch.time),
                Meta::Ledger(ledger) => latest.max(ledger.time),
                _ => latest,
            };
        }
        Ok(Self {
            begin,
            end: latest.max(begin),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use gputrace_capture::{
        CaptureWriter,
        meta::{ClockSnapshot, End, Epoch, Recording},
    };

    use super::*;

    #[test]
    fn it_ends_at_its_end_mark_or_at_the_last_moment_known() {
        let recording = Recording {
            clocks: ClockSnapshot {
                boottime: 100,
                ..ClockSnapshot::default()
            },
            ..Recording::default()
        };
        let mut writer = CaptureWriter::create(Cursor::new(Vec::new()), &recording).unwrap();
        let mut extent = |meta: Option<Meta>| {
            if let Some(meta) = meta {
                writer.meta(&meta).unwrap();
            }
            writer.flush().unwrap();
            let bytes = writer.sink().get_ref().clone();
            Extent::read(&mut CaptureReader::new(Cursor::new(bytes)).unwrap()).unwrap()
        };
        let of = |end| Extent { begin: 100, end };
        assert_eq!(extent(None), of(100));
        assert_eq!(extent(Some(Meta::Epoch(Epoch { time: 40 }))), of(100));
        assert_eq!(extent(Some(Meta::Epoch(Epoch { time: 300 }))), of(300));
        let end = End {
            time: 290,
            ..End::default()
        };
        assert_eq!(extent(Some(Meta::End(end))), of(290));
    }
}
