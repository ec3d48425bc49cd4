//! Headers of records that the collector makes.

use gputrace_abi::record::RecordHeader;

/// The header of a record that the collector makes itself. It counts as made on CPU 0.
pub(crate) fn header(size: usize, kind: u8, domain: u8) -> RecordHeader {
    RecordHeader {
        // Sizes of records are asserted to be small.
        size: size as u16,
        kind,
        domain,
        cpu: 0,
    }
}
