//! Reads arbitrary bytes as a capture file, and again after the beginning of a valid file (which
//! the fuzzer would never guess, because of its checksum). The reader must not panic, loop
//! endlessly, or deliver more than the file contains.

use std::io::Cursor;

use gputrace_capture::{Block, CaptureReader, CaptureWriter, meta::Recording, records};

/// Runs the decoder over one input.
pub fn run(bytes: &[u8]) {
    read(bytes);
    let mut file = Cursor::new(Vec::new());
    drop(CaptureWriter::create(&mut file, &Recording::default()));
    let mut file = file.into_inner();
    file.extend_from_slice(bytes);
    read(&file);
}

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
