//! Arbitrary bytes as a capture file, and behind the beginning of a good one (which the fuzzer would
//! never guess, for its checksum): no panic, no endless loop, and never more delivered than is there.

#![no_main]

use std::io::Cursor;

use gputrace_capture::{Block, CaptureReader, CaptureWriter, meta::Recording, records};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    read(bytes);
    let mut file = Cursor::new(Vec::new());
    drop(CaptureWriter::create(&mut file, &Recording::default()));
    let mut file = file.into_inner();
    file.extend_from_slice(bytes);
    read(&file);
});

fn read(bytes: &[u8]) {
    let Ok(mut reader) = CaptureReader::new(Cursor::new(bytes)) else {
        return;
    };
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
}
