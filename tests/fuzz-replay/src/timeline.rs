//! Reads arbitrary records and metadata in whole blocks, so that checksums do not keep the fuzzer
//! out.
//!
//! The input is split into pieces by length bytes. The first byte of a piece chooses between a run
//! of records, whose sizes are corrected, and a mark that ends a drain round.

use std::io::Cursor;

use gputrace_abi::kinds::{Class, Kind};
use gputrace_capture::{
    CaptureReader, CaptureWriter, Meta,
    meta::{Epoch, Recording},
};
use gputrace_timeline::{Timeline, event::Event};

/// Whether records of this kind are calls. Other kinds are counted too, but become other events.
fn is_call(kind: u8) -> bool {
    let class = Kind::from_number(kind).map(Kind::class);
    matches!(class, Some(Class::Call | Class::Request))
}

/// Runs the decoder over one input.
pub fn run(bytes: &[u8]) {
    let (calls, counted) = read(bytes, |_| true);
    let (none, others) = read(bytes, |kind| !is_call(kind));
    assert_eq!(none, 0);
    assert_eq!(calls, counted - others);
}

/// Reads the records of the wanted kinds. Returns the number of resulting calls and the number of
/// counted records.
fn read(bytes: &[u8], wanted: impl Fn(u8) -> bool) -> (u64, u64) {
    let mut file = Cursor::new(Vec::new());
    let Ok(mut writer) = CaptureWriter::create(&mut file, &Recording::default()) else {
        return (0, 0);
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
            [_, record @ ..] if record.len() >= 8 && wanted(record[2]) => {
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
    (calls, total.finished + total.unfinished)
}
