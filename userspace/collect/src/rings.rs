//! Reads rings in bounded rounds.

use std::os::fd::{AsFd as _, BorrowedFd};

use gputrace_abi::{
    gpu::{COMPLETION_SIZE, COPY_SIZE, DESCRIBED_SIZE, PACKET_RECORD_SIZE, QUEUE_STATE_SIZE},
    kfd::{LONG_IOCTL_SIZE, SHORT_IOCTL_SIZE},
    record::{LONG_SPAN_SIZE, RecordHeader, SPAN_SIZE, TASK_SIZE, kind},
    sched::OFF_CPU_SIZE,
    tracepoint::{LONG_TRACE_SIZE, SHORT_TRACE_SIZE},
    values::{LONG_SIZE, MEDIUM_SIZE, SHORT_SIZE},
};
use gputrace_loader::Ring;
use zerocopy::FromBytes as _;

/// A record whose kind and size agree.
pub(crate) enum Checked<'a> {
    /// A finished or unfinished call.
    Call(RecordHeader, &'a [u8]),
    /// A task or linker event.
    Task(RecordHeader, &'a [u8]),
    /// A request to the driver, or a kernel event about a thread or process.
    Kernel(RecordHeader, &'a [u8]),
    /// A record of a tracepoint, of any process.
    Trace(RecordHeader, &'a [u8]),
    /// A record about the GPU's work.
    Gpu(RecordHeader, &'a [u8]),
    /// The value that a pointer argument of a call points to; the record has more bytes than it
    /// needs.
    Value(&'a [u8]),
    /// A queue or agent seen for the first time.
    Described(&'a [u8]),
    /// An invalid record, with the CPU and domain under which it is counted.
    Malformed(u32, u8),
}

/// Checks a record from a ring.
pub(crate) fn check(cpu: u32, bytes: &[u8]) -> Checked<'_> {
    let Ok((header, _)) = RecordHeader::read_from_prefix(bytes) else {
        return Checked::Malformed(cpu, 0);
    };
    let size = bytes.len();
    let whole = usize::from(header.size) == size;
    match header.kind {
        kind::SPAN | kind::UNFINISHED if whole && (size == SPAN_SIZE || size == LONG_SPAN_SIZE) => {
            Checked::Call(header, bytes)
        }
        kind::VALUE if whole && matches!(size, SHORT_SIZE | MEDIUM_SIZE | LONG_SIZE) => {
            Checked::Value(bytes)
        }
        kind::PACKET if whole && size == PACKET_RECORD_SIZE => Checked::Gpu(header, bytes),
        kind::COMPLETION if whole && size == COMPLETION_SIZE => Checked::Gpu(header, bytes),
        kind::COPY if whole && size == COPY_SIZE => Checked::Gpu(header, bytes),
        kind::QUEUE if whole && size == QUEUE_STATE_SIZE => Checked::Gpu(header, bytes),
        kind::IOCTL | kind::IOCTL_UNFINISHED
            if whole && (size == SHORT_IOCTL_SIZE || size == LONG_IOCTL_SIZE) =>
        {
            Checked::Kernel(header, bytes)
        }
        kind::TRACE if whole && (size == SHORT_TRACE_SIZE || size == LONG_TRACE_SIZE) => {
            Checked::Trace(header, bytes)
        }
        kind::OFF_CPU | kind::OFF_CPU_OPEN if whole && size == OFF_CPU_SIZE => {
            Checked::Kernel(header, bytes)
        }
        kind::DESCRIBED if whole && size == DESCRIBED_SIZE => Checked::Described(bytes),
        kind::TASK | kind::LINKER if whole && size == TASK_SIZE => Checked::Task(header, bytes),
        _ => Checked::Malformed(header.cpu, header.domain),
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
        assert!(matches!(
            check(0, &record(kind::SPAN, 112, 112)),
            Checked::Call(..)
        ));
        assert!(matches!(
            check(0, &record(kind::UNFINISHED, 176, 176)),
            Checked::Call(..)
        ));
        assert!(matches!(
            check(0, &record(kind::TASK, 48, 48)),
            Checked::Task(..)
        ));
        assert!(matches!(
            check(0, &record(kind::SPAN, 176, 112)),
            Checked::Malformed(1, 3)
        ));
        assert!(matches!(
            check(0, &record(kind::TASK, 112, 112)),
            Checked::Malformed(1, 3)
        ));
        assert!(matches!(
            check(0, &record(99, 112, 112)),
            Checked::Malformed(1, 3)
        ));
        assert!(matches!(check(5, &[1, 2, 3]), Checked::Malformed(5, 0)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_classified(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = check(0, &bytes);
        }
    }
}
