//! Reads rings in bounded rounds.

use std::os::fd::{AsFd as _, BorrowedFd};

use gputrace_abi::{kinds::Kind, record::RecordHeader};
use gputrace_loader::Ring;
use zerocopy::FromBytes as _;

/// An invalid record, with the CPU and domain under which it is counted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed {
    pub(crate) cpu: u32,
    pub(crate) domain: u8,
}

/// Checks that the kind of a record from a ring is known and its size one of that kind's.
pub(crate) fn check(cpu: u32, bytes: &[u8]) -> Result<(Kind, RecordHeader), Malformed> {
    let Ok((header, _)) = RecordHeader::read_from_prefix(bytes) else {
        return Err(Malformed { cpu, domain: 0 });
    };
    let size = bytes.len();
    match header.known_kind() {
        Some(kind) if usize::from(header.size) == size && kind.accepts(size) => Ok((kind, header)),
        _ => Err(Malformed {
            cpu: header.cpu,
            domain: header.domain,
        }),
    }
}

/// A ring, and the CPU that it belongs to.
pub(crate) struct CpuRing {
    pub(crate) cpu: u32,
    ring: Ring,
    /// Maximum number of bytes taken per round: about what the ring can hold, so that a round ends
    /// even if a program keeps writing.
    limit: usize,
}

impl CpuRing {
    pub(crate) fn new(cpu: u32, ring: Ring, limit: usize) -> Self {
        Self { cpu, ring, limit }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }

    /// Passes every waiting record to `take`, and returns their total size in bytes.
    pub(crate) fn drain(&mut self, mut take: impl FnMut(&[u8])) -> usize {
        let mut bytes = 0;
        while bytes < self.limit
            && let Some(item) = self.ring.next()
        {
            bytes += item.len();
            take(&item);
        }
        bytes
    }
}

impl std::fmt::Debug for CpuRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CpuRing")
            .field("cpu", &self.cpu)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gputrace_abi::record::kind;
    use proptest::prelude::*;

    fn record(kind: u8, claimed: u16, actual: usize) -> Vec<u8> {
        let mut bytes = vec![0; actual];
        bytes[..2].copy_from_slice(&claimed.to_le_bytes());
        bytes[2] = kind;
        bytes[3] = 3;
        bytes[4..8].copy_from_slice(&1u32.to_le_bytes());
        bytes
    }

    #[test]
    fn kinds_need_their_sizes() {
        let kind = |bytes: &[u8]| check(0, bytes).map(|(kind, _)| kind);
        let malformed = Err(Malformed { cpu: 1, domain: 3 });
        assert_eq!(kind(&record(kind::SPAN, 112, 112)), Ok(Kind::Span));
        assert_eq!(
            kind(&record(kind::UNFINISHED, 176, 176)),
            Ok(Kind::Unfinished)
        );
        assert_eq!(kind(&record(kind::TASK, 48, 48)), Ok(Kind::Task));
        assert_eq!(kind(&record(kind::SPAN, 176, 112)), malformed);
        assert_eq!(kind(&record(kind::TASK, 112, 112)), malformed);
        assert_eq!(kind(&record(99, 112, 112)), malformed);
        assert_eq!(
            check(5, &[1, 2, 3]).map(drop),
            Err(Malformed { cpu: 5, domain: 0 })
        );
    }

    #[test]
    fn every_kind_is_accepted_in_exactly_its_sizes() {
        for number in 0..=u8::MAX {
            for size in 8..1100 {
                let known = Kind::from_number(number).filter(|kind| kind.sizes().contains(&size));
                let whole = record(number, size as u16, size);
                assert_eq!(check(0, &whole).ok().map(|(kind, _)| kind), known);
                let claims_more = record(number, size as u16 + 1, size);
                assert!(check(0, &claims_more).is_err());
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_classified(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = check(0, &bytes);
        }
    }
}
