//! Arbitrary records and metadata in whole blocks, so that the checksum does not keep the fuzzer out.
//!
//! The input is cut into pieces by a length byte each; the first byte of a piece chooses between a run
//! of records, of which the sizes are put right, and a mark that ends a drain round.

#![no_main]

use std::io::Cursor;

use gputrace_capture::{
    CaptureReader, CaptureWriter, Meta,
    meta::{Epoch, Recording},
};
use gputrace_timeline::{Timeline, event::Event};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut file = Cursor::new(Vec::new());
    let Ok(mut writer) = CaptureWriter::create(&mut file, &Recording::default()) else {
        return;
    };
    let mut rest = bytes;
    while let Some((&length, tail)) = rest.split_first() {
        let (piece, tail) = tail.split_at(usize::from(length).min(tail.len()));
        rest = tail;
        match piece {
            [0, time @ ..] => {
                let time = time.iter().fold(0, |time, byte| time << 8 | u64::from(*byte));
                let _ = writer.meta(&Meta::Epoch(Epoch { time }));
            }
            [_, record @ ..] if record.len() >= 8 => {
                let mut record = record.to_vec();
                let size = (record.len() as u16).to_le_bytes();
                record[..2].copy_from_slice(&size);
                let _ = writer.records(&record);
            }
            _ => {}
        }
    }
    drop(writer);
    let Ok(reader) = CaptureReader::new(file) else {
        panic!("we wrote it ourselves")
    };
    let Ok(mut timeline) = Timeline::new(reader) else {
        panic!("we wrote it ourselves")
    };
    let mut calls = 0;
    for event in timeline.by_ref() {
        match event {
            Ok(Event::Call(call)) => {
                assert!(call.end >= call.begin);
                calls += 1;
            }
            Ok(_) => {}
            Err(error) => panic!("{error}"),
        }
    }
    let total = timeline.tally().total();
    assert_eq!(calls, total.finished + total.unfinished);
});
