//! Walks over a run of records.

use gputrace_abi::record::RecordHeader;
use zerocopy::FromBytes;

/// A record: its header, and all its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawRecord<'a> {
    /// The header at the start of `bytes`.
    pub header: RecordHeader,
    /// The whole record, `header.size` bytes.
    pub bytes: &'a [u8],
}

/// The rest of a run in which the next record has an invalid size, so that no later record can be
/// found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{bytes} bytes are not whole records")]
pub struct BadRun {
    /// Number of bytes given up.
    pub bytes: usize,
}

/// Iterator over the records of a run; see [`split`].
#[derive(Clone, Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
}

/// Splits a run of records by the sizes in their headers. Kind and domain are not examined.
///
/// Ends after the first [`BadRun`].
#[must_use]
pub fn split(run: &[u8]) -> Records<'_> {
    Records { rest: run }
}

impl<'a> Records<'a> {
    /// The part that has not been walked yet.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<RawRecord<'a>, BadRun>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let record = RecordHeader::read_from_prefix(self.rest)
            .ok()
            .and_then(|(header, _)| {
                let size = usize::from(header.size);
                let (bytes, rest) = self.rest.split_at_checked(size)?;
                // Rejects sizes smaller than a header, in particular 0, with which the walk would
                // never end.
                (size >= size_of::<RecordHeader>()).then_some((RawRecord { header, bytes }, rest))
            });
        match record {
            Some((record, rest)) => {
                self.rest = rest;
                Some(Ok(record))
            }
            None => {
                let bytes = self.rest.len();
                self.rest = &[];
                Some(Err(BadRun { bytes }))
            }
        }
    }
}
