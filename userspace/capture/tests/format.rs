//! The promises of the file format: complete blocks survive, damage is found, failures are exact.

#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::{
    cell::RefCell,
    fs::File,
    io::{self, Cursor, Write},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use gputrace_abi::record::{RecordHeader, kind};
use gputrace_capture::{
    Block, CaptureReader, CaptureWriter, Damage, Meta, ReadError, Sink, Truncation, WriteFailure,
    format::{MAX_PAYLOAD, RECORDS_PER_BLOCK},
    ledger::Ledger,
    meta::{Epoch, Notice, Recording},
    records,
};
use proptest::prelude::*;
use zerocopy::IntoBytes;

/// A record with a number that identifies it.
fn record(number: u64, size: u16) -> Vec<u8> {
    let header = RecordHeader {
        size,
        kind: kind::SPAN,
        domain: 2,
        cpu: 3,
    };
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes.resize(usize::from(size), 0);
    bytes
}

fn number(record: &[u8]) -> u64 {
    u64::from_le_bytes(record[8..16].try_into().unwrap())
}

fn numbers(run: &[u8]) -> Vec<u64> {
    records::split(run)
        .map(|record| number(record.unwrap().bytes))
        .collect()
}

fn notice(text: &str) -> Meta {
    Meta::Notice(Notice {
        time: 0,
        text: text.to_owned(),
    })
}

/// A block as owned data.
#[derive(Clone, Debug, PartialEq)]
enum Seen {
    Records(Vec<u8>),
    Meta(Meta),
    Unknown(u16),
}

fn read(bytes: &[u8]) -> (Vec<Seen>, Option<Truncation>) {
    let mut reader = CaptureReader::new(Cursor::new(bytes)).unwrap();
    let mut seen = Vec::new();
    while let Some(block) = reader.next_block().unwrap() {
        seen.push(match block {
            Block::Records(run) => Seen::Records(run.to_vec()),
            Block::Meta(meta) => Seen::Meta(meta),
            Block::Unknown { kind } => Seen::Unknown(kind),
        });
    }
    (seen, reader.truncation())
}

fn sample() -> (Vec<u8>, Vec<usize>) {
    let mut file = Cursor::new(Vec::new());
    let mut ends = Vec::new();
    let mut writer = CaptureWriter::create(
        &mut file,
        &Recording {
            cpus: 4,
            ..Recording::default()
        },
    )
    .unwrap();
    ends.push(writer.size() as usize);
    for round in 0..4 {
        for index in 0..3 {
            writer.records(&record(round * 3 + index, 112)).unwrap();
        }
        writer.flush().unwrap();
        ends.push(writer.size() as usize);
        writer.meta(&Meta::Epoch(Epoch { time: round })).unwrap();
        ends.push(writer.size() as usize);
    }
    drop(writer);
    (file.into_inner(), ends)
}

#[test]
fn everything_comes_back_in_order() {
    let mut file = Cursor::new(Vec::new());
    let recording = Recording {
        hostname: "node".to_owned(),
        ..Recording::default()
    };
    let mut writer = CaptureWriter::create(&mut file, &recording).unwrap();
    let count = 3 * RECORDS_PER_BLOCK / 112;
    let run: Vec<u8> = (0..10).flat_map(|number| record(number, 112)).collect();
    writer.records(&run).unwrap();
    for number in 10..count as u64 {
        writer
            .records(&record(number, if number % 3 == 0 { 176 } else { 112 }))
            .unwrap();
    }
    writer.meta(&notice("done")).unwrap();
    drop(writer);

    let (seen, truncation) = read(file.get_ref());
    assert_eq!(truncation, None);
    assert_eq!(
        seen.first(),
        Some(&Seen::Meta(Meta::Recording(Box::new(recording))))
    );
    assert_eq!(seen.last(), Some(&Seen::Meta(notice("done"))));
    for block in &seen {
        assert!(!matches!(block, Seen::Records(run) if run.len() > RECORDS_PER_BLOCK));
    }
    assert_eq!(record_numbers(&seen), (0..count as u64).collect::<Vec<_>>());
}

#[test]
fn a_run_longer_than_a_block_is_split_between_records() {
    let mut file = Cursor::new(Vec::new());
    let mut writer = CaptureWriter::create(&mut file, &Recording::default()).unwrap();
    let count = 2 * RECORDS_PER_BLOCK as u64 / 1000 + 7;
    let run: Vec<u8> = (0..count).flat_map(|number| record(number, 1000)).collect();
    writer.records(&run).unwrap();
    drop(writer);
    let (seen, _) = read(file.get_ref());
    let all = record_numbers(&seen);
    assert_eq!(all, (0..count).collect::<Vec<_>>());
}

#[test]
fn what_is_not_records_is_refused_whole() {
    let mut file = Cursor::new(Vec::new());
    let mut writer = CaptureWriter::create(&mut file, &Recording::default()).unwrap();
    let mut run = record(1, 112);
    run.extend_from_slice(&[0; 9]);
    let error = writer.records(&run).unwrap_err();
    assert!(
        matches!(error.failure, WriteFailure::NotRecords { bytes: 121 }),
        "{error}"
    );
    assert!(error.lost.is_empty());
    writer.flush().unwrap();
    drop(writer);
    assert_eq!(read(file.get_ref()).0.len(), 1);
}

#[test]
fn a_payload_beyond_the_limit_is_refused_and_not_believed() {
    let mut file = Cursor::new(Vec::new());
    let mut writer = CaptureWriter::create(&mut file, &Recording::default()).unwrap();
    let error = writer.meta(&notice(&"x".repeat(MAX_PAYLOAD))).unwrap_err();
    assert!(
        matches!(error.failure, WriteFailure::Metadata { .. }),
        "{error}"
    );
    let end = writer.size() as usize;
    writer.meta(&notice("ok")).unwrap();
    drop(writer);

    let mut bytes = file.into_inner();
    assert_eq!(read(&bytes).0.last(), Some(&Seen::Meta(notice("ok"))));
    bytes[end + 16..end + 20].copy_from_slice(&u32::MAX.to_le_bytes());
    let (_, truncation) = read(&bytes);
    assert_eq!(truncation.unwrap().why, Damage::TooLong);
}

#[test]
fn other_files_are_told_apart() {
    let (bytes, _) = sample();
    let open = |bytes: &[u8]| CaptureReader::new(Cursor::new(bytes.to_vec())).unwrap_err();
    assert!(matches!(open(b""), ReadError::Empty { bytes: 0 }));
    assert!(matches!(open(&bytes[..10]), ReadError::Empty { bytes: 10 }));
    assert!(matches!(open(b"\x7fELF"), ReadError::NotACapture));
    assert!(matches!(open(&[b'x'; 100]), ReadError::NotACapture));
    let mut damaged = bytes.clone();
    damaged[8] ^= 2;
    assert!(matches!(open(&damaged), ReadError::Header));

    // A file of version 2: the header is unchanged except for the number and the checksum.
    let mut newer = bytes;
    newer[8] = 2;
    let crc = crc32c::crc32c(&newer[..20]);
    newer[20..24].copy_from_slice(&crc.to_le_bytes());
    let error = open(&newer);
    assert!(matches!(
        error,
        ReadError::Newer {
            found: 2,
            known: 1,
            ..
        }
    ));
    assert!(error.to_string().contains("upgrade gputrace"), "{error}");
}

#[test]
fn the_checksum_is_crc32c_as_documented() {
    let (bytes, ends) = sample();
    let (begin, end) = (ends[0], ends[1]);
    let covered: Vec<u8> = [&bytes[begin..begin + 20], &bytes[begin + 24..end]].concat();
    assert_eq!(
        bytes[begin + 20..begin + 24],
        crc32c::crc32c(&covered).to_le_bytes()
    );
    // The check value of the CRC catalogue.
    assert_eq!(crc32c::crc32c(b"123456789"), 0xe306_9283);
}

#[test]
fn unknown_kinds_are_passed_over() {
    let mut file = Cursor::new(Vec::new());
    let mut writer = CaptureWriter::create(&mut file, &Recording::default()).unwrap();
    let end = writer.size() as usize;
    writer.meta(&notice("from the future")).unwrap();
    writer.meta(&notice("known")).unwrap();
    drop(writer);
    let mut bytes = file.into_inner();
    bytes[end + 4..end + 6].copy_from_slice(&999u16.to_le_bytes());
    let length = u32::from_le_bytes(bytes[end + 16..end + 20].try_into().unwrap()) as usize;
    let covered: Vec<u8> = [&bytes[end..end + 20], &bytes[end + 24..end + 24 + length]].concat();
    bytes[end + 20..end + 24].copy_from_slice(&crc32c::crc32c(&covered).to_le_bytes());
    let (seen, truncation) = read(&bytes);
    assert_eq!(truncation, None);
    assert_eq!(seen[1..], [Seen::Unknown(999), Seen::Meta(notice("known"))]);
}

/// A disk with room for `room` bytes. Clones share it.
#[derive(Clone)]
struct Disk(Rc<RefCell<DiskState>>);

struct DiskState {
    file: Cursor<Vec<u8>>,
    room: usize,
    cut_fails: bool,
}

impl Disk {
    fn new(room: usize) -> Self {
        Self(Rc::new(RefCell::new(DiskState {
            file: Cursor::new(Vec::new()),
            room,
            cut_fails: false,
        })))
    }

    fn read(&self) -> (Vec<Seen>, Option<Truncation>) {
        read(self.0.borrow().file.get_ref())
    }
}

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut disk = self.0.borrow_mut();
        let free = disk.room - disk.file.position() as usize;
        if free == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        disk.file.write(&bytes[..bytes.len().min(free)])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sink for Disk {
    fn cut(&mut self, offset: u64) -> io::Result<()> {
        let mut disk = self.0.borrow_mut();
        if disk.cut_fails {
            return Err(io::ErrorKind::Other.into());
        }
        disk.file.cut(offset)
    }
}

fn record_numbers(seen: &[Seen]) -> Vec<u64> {
    seen.iter()
        .flat_map(|block| match block {
            Seen::Records(run) => numbers(run),
            _ => Vec::new(),
        })
        .collect()
}

#[test]
fn a_full_disk_loses_only_what_is_handed_back() {
    let disk = Disk::new(4000);
    let mut lost = Vec::new();
    let given: u64 = 200;
    let mut writer = CaptureWriter::create(disk.clone(), &Recording::default()).unwrap();
    for number in 0..given {
        writer.records(&record(number, 112)).unwrap();
        if number % 10 == 9
            && let Err(error) = writer.flush()
        {
            assert!(
                matches!(error.failure, WriteFailure::Full { .. }),
                "{error}"
            );
            assert!(error.to_string().contains("no space left"), "{error}");
            lost.extend(numbers(&error.lost));
        }
    }
    drop(writer);
    let (seen, truncation) = disk.read();
    assert_eq!(truncation, None, "the half block was cut off");
    let mut all = record_numbers(&seen);
    assert!(!all.is_empty() && !lost.is_empty());
    all.extend(&lost);
    assert_eq!(all, (0..given).collect::<Vec<_>>());
}

#[test]
fn writing_goes_on_when_there_is_space_again_and_metadata_is_made_up_for() {
    let disk = Disk::new(800);
    let mut writer = CaptureWriter::create(disk.clone(), &Recording::default()).unwrap();
    let whole = writer.size();
    disk.0.borrow_mut().cut_fails = true;
    writer.records(&record(1, 600)).unwrap();
    let error = writer.meta(&notice("a library")).unwrap_err();
    assert_eq!(numbers(&error.lost), [1]);
    assert!(writer.meta(&Meta::Epoch(Epoch { time: 1 })).is_err());
    let ledger = |time| {
        Meta::Ledger(Box::new(Ledger {
            time,
            ..Ledger::default()
        }))
    };
    assert!(writer.meta(&ledger(1)).is_err());
    assert!(writer.meta(&ledger(2)).is_err());
    assert_eq!(
        disk.read().1.unwrap().offset,
        whole,
        "half a block is there while it cannot be cut"
    );

    {
        let mut disk = disk.0.borrow_mut();
        disk.cut_fails = false;
        disk.room = 100_000;
    }
    writer.records(&record(2, 112)).unwrap();
    writer.meta(&notice("after")).unwrap();
    let (seen, truncation) = disk.read();
    assert_eq!(truncation, None);
    let expected = [
        Seen::Meta(notice("a library")),
        Seen::Meta(ledger(2)),
        Seen::Records(record(2, 112)),
        Seen::Meta(notice("after")),
    ];
    assert_eq!(
        seen[1..],
        expected,
        "no mark of the failed epoch, the newest ledger only"
    );
}

#[test]
fn a_real_full_disk_is_named() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let error = CaptureWriter::create(full, &Recording::default()).unwrap_err();
    assert!(
        matches!(error.failure, WriteFailure::Full { offset: 0, .. }),
        "{error}"
    );
}

#[test]
fn metadata_alone_and_then_everything_from_the_start() {
    let (bytes, ends) = sample();
    let (whole, _) = read(&bytes);
    for cut in [bytes.len(), ends[3], ends[3] - 1] {
        let mut reader = CaptureReader::new(Cursor::new(&bytes[..cut])).unwrap();
        let mut metas = Vec::new();
        while let Some(meta) = reader.next_meta().unwrap() {
            metas.push(Seen::Meta(meta));
        }
        let expected = whole.iter().zip(&ends).filter(|(_, end)| **end <= cut);
        let expected: Vec<&Seen> = expected
            .map(|(seen, _)| seen)
            .filter(|seen| matches!(seen, Seen::Meta(_)))
            .collect();
        assert_eq!(metas.iter().collect::<Vec<_>>(), expected);

        reader.rewind().unwrap();
        assert_eq!(reader.truncation(), None);
        let mut blocks = 0;
        while reader.next_block().unwrap().is_some() {
            blocks += 1;
        }
        assert_eq!(blocks, ends.iter().filter(|end| **end <= cut).count());
        assert_eq!(reader.truncation().is_some(), cut == ends[3] - 1);
    }
}

proptest! {
    #[test]
    fn cut_anywhere_all_whole_blocks_before_are_read(at in 24usize..sample().0.len()) {
        let (bytes, ends) = sample();
        let (whole, _) = read(&bytes);
        let (seen, truncation) = read(&bytes[..at]);
        let blocks = ends.iter().filter(|end| **end <= at).count();
        prop_assert_eq!(&seen[..], &whole[..blocks]);
        let begin = if blocks == 0 { 24 } else { ends[blocks - 1] };
        if begin == at {
            prop_assert_eq!(truncation, None);
        } else {
            let truncation = truncation.unwrap();
            prop_assert_eq!(truncation.why, Damage::Cut);
            prop_assert_eq!(truncation.offset, begin as u64);
            prop_assert_eq!(truncation.bytes_after, (at - begin) as u64);
        }
    }

    #[test]
    fn a_flipped_bit_is_found_and_nothing_bogus_delivered(
        at in 24usize..sample().0.len(),
        bit in 0u8..8,
    ) {
        let (mut bytes, ends) = sample();
        let (whole, _) = read(&bytes);
        bytes[at] ^= 1 << bit;
        let (seen, truncation) = read(&bytes);
        let blocks = ends.iter().filter(|end| **end <= at).count();
        prop_assert_eq!(&seen[..], &whole[..blocks]);
        prop_assert_eq!(truncation.unwrap().offset, if blocks == 0 { 24 } else { ends[blocks - 1] as u64 });
    }

    #[test]
    fn arbitrary_bytes_never_panic(tail in proptest::collection::vec(any::<u8>(), 0..400), keep in 0usize..500) {
        let (mut bytes, _) = sample();
        bytes.truncate(keep);
        bytes.extend(tail);
        if let Ok(mut reader) = CaptureReader::new(Cursor::new(bytes)) {
            while reader.next_block().unwrap().is_some() {}
        }
    }

    #[test]
    fn any_failing_disk_accounts_for_every_record(
        room in 300usize..6000,
        steps in proptest::collection::vec((1u64..20, 16u16..300, any::<bool>()), 1..40),
    ) {
        let disk = Disk::new(room);
        let mut lost = Vec::new();
        let mut given = 0;
        let mut writer = match CaptureWriter::create(disk.clone(), &Recording::default()) {
            Ok(writer) => writer,
            // The disk had no room even for the header.
            Err(_) => return Ok(()),
        };
        for (count, size, meta) in steps {
            let run: Vec<u8> = (given..given + count).flat_map(|number| record(number, size)).collect();
            given += count;
            for result in [
                writer.records(&run),
                if meta { writer.meta(&Meta::Epoch(Epoch { time: given })) } else { writer.flush() },
            ] {
                if let Err(error) = result {
                    lost.extend(numbers(&error.lost));
                }
            }
        }
        drop(writer);
        let (seen, truncation) = disk.read();
        prop_assert_eq!(truncation, None);
        let mut all = record_numbers(&seen);
        all.extend(lost);
        all.sort_unstable();
        prop_assert_eq!(all, (0..given).collect::<Vec<_>>());
    }

    #[test]
    fn splitting_never_loses_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut total = 0;
        for record in records::split(&bytes) {
            total += match record {
                Ok(record) => record.bytes.len(),
                Err(bad) => bad.bytes,
            };
        }
        prop_assert_eq!(total, bytes.len());
    }
}

/// The reader of a growing recording may pause: the amount of waiting data is limited, and lost
/// records are handed back.
#[test]
fn what_nobody_reads_is_bounded() {
    const MOST: u64 = 1 << 20;
    let read = Arc::new(AtomicU64::new(0));
    let mut file = Cursor::new(Vec::new());
    let mut writer = CaptureWriter::create(&mut file, &Recording::default()).unwrap();
    writer.limit(Arc::clone(&read), MOST);
    let mut lost = Vec::new();
    let mut give = |writer: &mut CaptureWriter<&mut Cursor<Vec<u8>>>,
                    numbers_of: std::ops::Range<u64>| {
        let mut told = 0;
        for number in numbers_of {
            if let Err(error) = writer.records(&record(number, 64)) {
                assert!(
                    matches!(error.failure, WriteFailure::Unread { most: MOST }),
                    "{error}"
                );
                lost.extend(numbers(&error.lost));
                told += 1;
            }
        }
        told
    };
    assert!(give(&mut writer, 0..100_000) > 0);
    assert!(writer.size() <= MOST);
    // Metadata has slightly more room, and then waits.
    for _ in 0..20_000 {
        let _ = writer.meta(&notice("something"));
    }
    assert!((MOST..=MOST + MOST / 8).contains(&writer.size()));
    // The reader continues, and so does the recording.
    read.store(writer.size(), Ordering::Release);
    assert_eq!(give(&mut writer, 100_000..100_100), 0);
    writer.flush().unwrap();
    // Without a limit, everything is written.
    writer.unlimit();
    assert_eq!(give(&mut writer, 100_100..200_000), 0);
    writer.flush().unwrap();
    drop(writer);
    let mut found = Vec::new();
    let mut notices = 0;
    let mut reader = CaptureReader::new(Cursor::new(file.into_inner())).unwrap();
    while let Some(block) = reader.next_block().unwrap() {
        match block {
            Block::Records(run) => found.extend(numbers(run)),
            Block::Meta(Meta::Notice(_)) => notices += 1,
            _ => {}
        }
    }
    assert_eq!(notices, 20_000);
    found.extend(lost);
    found.sort_unstable();
    assert_eq!(found, (0..200_000).collect::<Vec<u64>>());
}
