use std::io::{self, Write};

use gputrace_export::{Exporter as _, OutputDir};
use gputrace_timeline::event::Event;

use super::{Decoded, bytes, call, packets};
use crate::{PerfettoExporter, PerfettoOptions, TraceWriter};

#[test]
fn the_exporter_makes_a_file() {
    let place = tempfile::tempdir().unwrap();
    let directory = OutputDir::open(place.path(), None).unwrap();
    let mut exporter = Box::new(PerfettoExporter::new(&directory, "app_results.pftrace").unwrap());
    assert_eq!(exporter.format(), "pftrace");
    exporter.event(&Event::Call(call(1, 0, 10, 20))).unwrap();
    let [output] = exporter.finish().unwrap().try_into().unwrap();
    assert_eq!(output.path, place.path().join("app_results.pftrace"));
    let written = std::fs::read(&output.path).unwrap();
    assert_eq!(written.len() as u64, output.bytes);
    assert_eq!(Decoded::new(&written).slices.len(), 1);
}

#[test]
fn the_same_events_give_the_same_bytes() {
    let events: Vec<Event> = (0..50)
        .map(|index| {
            let mut call = call(index + 1, 0, index, index + 1);
            call.tid = 1_000 - index as u32;
            Event::Call(call)
        })
        .collect();
    assert_eq!(bytes(&events), bytes(&events));
}

#[test]
fn compressed_packets_are_the_same_and_far_smaller() {
    let events: Vec<Event> = (0..5_000)
        .map(|index| Event::Call(call(index + 1, 0, 10 * index, 10 * index + 5)))
        .collect();
    let plain = bytes(&events);
    let options = PerfettoOptions {
        compress: true,
        ..PerfettoOptions::default()
    };
    let mut trace = TraceWriter::with_options(Vec::new(), options).unwrap();
    events.iter().for_each(|event| trace.event(event).unwrap());
    let compressed = trace.finish().unwrap();
    assert_eq!(packets(&compressed), packets(&plain));
    assert!(
        compressed.len() * 4 < plain.len(),
        "{} of {}",
        compressed.len(),
        plain.len()
    );
    assert_eq!(Decoded::new(&compressed).slices.len(), 5_000);
}

/// An output with room for this many bytes.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.checked_sub(bytes.len()) {
            Some(left) => {
                self.0 = left;
                Ok(bytes.len())
            }
            None => Err(io::ErrorKind::StorageFull.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_is_an_error() {
    let mut trace = TraceWriter::new(Full(100_000)).unwrap();
    let error = (0..10_000)
        .find_map(|index| {
            trace
                .event(&Event::Call(call(index + 1, 0, index, index + 1)))
                .err()
        })
        .expect("10,000 calls do not fit");
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
}
