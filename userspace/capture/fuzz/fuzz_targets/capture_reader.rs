//! Arbitrary bytes as a capture file: no panic, no endless loop, and never more delivered than is there.

#![no_main]

use std::io::Cursor;

use gputrace_capture::{Block, CaptureReader, records};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(mut reader) = CaptureReader::new(Cursor::new(bytes)) else { return };
    let mut delivered = 0;
    while let Ok(Some(block)) = reader.next_block() {
        if let Block::Records(run) = block {
            delivered += run.len();
            let walked: usize = records::split(run)
                .map(|record| record.map_or_else(|bad| bad.bytes, |record| record.bytes.len()))
                .sum();
            assert_eq!(walked, run.len());
        }
    }
    assert!(delivered <= bytes.len());
    if let Some(truncation) = reader.truncation() {
        assert_eq!(truncation.offset + truncation.bytes_after, bytes.len() as u64);
    }
});
