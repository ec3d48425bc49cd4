use std::io::Cursor;

use gputrace_abi::{
    record::{SPAN_SIZE, kind, task_op},
    values::SHORT_SIZE,
};
use proptest::prelude::*;
use zerocopy::IntoBytes;

use super::*;
use crate::{
    CaptureWriter,
    format::{self, BlockHeader},
    meta::{End, Notice, Recording},
};

fn header(size: usize, kind: u8, domain: Domain) -> RecordHeader {
    RecordHeader {
        size: size as u16,
        kind,
        domain: domain.id(),
        cpu: 3,
    }
}

fn span_record() -> Span {
    Span {
        header: header(SPAN_SIZE, kind::SPAN, Domain::HipRuntime),
        function: 7,
        pid: 100,
        tid: 101,
        depth: 1,
        flags: 4,
        begin: 1_000,
        end: 2_000,
        correlation: 42,
        parent: 41,
        result: 0xffff_ffff,
        args: [1, 2, 3, 4, 5, 0x10],
    }
}

/// A capture with a notice, some records, and its end.
fn capture(records: &[u8]) -> Vec<u8> {
    let mut file = Cursor::new(Vec::new());
    let mut writer = CaptureWriter::create(&mut file, &Recording::default()).unwrap();
    let notice = Notice {
        time: 5,
        text: "a \u{1b}[31mred\nline".to_owned(),
    };
    writer.meta(&Meta::Notice(notice)).unwrap();
    drop(writer);
    let mut bytes = file.into_inner();
    // The writer accepts only complete records.
    let mut end = Vec::new();
    Meta::End(End::default()).encode(&mut end).unwrap();
    for (sequence, kind, payload) in [
        (2, format::kind::RECORDS, records),
        (3, format::kind::END, &end),
    ] {
        bytes.extend_from_slice(BlockHeader::new(kind, sequence, payload).as_bytes());
        bytes.extend_from_slice(payload);
    }
    bytes
}

fn lines(capture: Vec<u8>, selection: &Selection) -> Vec<String> {
    let mut lines = Vec::new();
    let mut reader = CaptureReader::new(Cursor::new(capture)).unwrap();
    let dumped = dump(&mut reader, selection, &mut |line| {
        lines.push(line.to_owned());
        Ok(())
    });
    let expected = Dumped {
        lines: lines.len() as u64,
        is_whole: true,
    };
    assert_eq!(dumped.unwrap(), expected);
    lines
}

/// Selects lines of these kinds.
fn only(kinds: &[&str]) -> Selection {
    Selection {
        kinds: kinds.iter().map(|name| name.parse().unwrap()).collect(),
        limit: None,
    }
}

#[test]
fn every_block_and_record_has_a_line() {
    let task = Task {
        header: header(size_of::<Task>(), kind::TASK, Domain::HipRuntime),
        time: 9,
        pid: 100,
        tid: 102,
        parent: 100,
        op: task_op::THREAD,
        held: 0,
        reserved: [0; 2],
        comm: *b"a \"b\"\n\0\0\0\0\0\0\0\0\0\0",
    };
    let records = [span_record().as_bytes(), task.as_bytes()].concat();
    let lines = lines(capture(&records), &Selection::default());
    let kinds: Vec<&str> = lines
        .iter()
        .map(|line| line.split_whitespace().nth(1).unwrap())
        .collect();
    assert_eq!(
        kinds,
        ["recording", "notice", "records", "span", "task", "end"]
    );
    assert!(
        lines.iter().all(|line| !line.contains(['\n', '\u{1b}'])),
        "{lines:?}"
    );
    assert!(lines[2].ends_with(" bytes=160 records=2"), "{}", lines[2]);
    assert!(
        lines[3].ends_with(
            " cpu=3 domain=HIP_RUNTIME_API function=7 pid=100 tid=101 depth=1 begin=1000 end=2000 \
             correlation=42 parent=41 flags=0x4 result=0xffffffff args=[0x1,0x2,0x3,0x4,0x5,0x10]"
        ),
        "{}",
        lines[3]
    );
    assert!(lines[4].ends_with(r#" comm="a \"b\"\n""#), "{}", lines[4]);
    // Positions: that of a record is where its bytes begin.
    let places: Vec<usize> = lines
        .iter()
        .map(|line| line.split_whitespace().next().unwrap().parse().unwrap())
        .collect();
    assert_eq!(places[3], places[2] + BLOCK_HEADER);
    assert_eq!(places[4], places[3] + SPAN_SIZE);
    let bytes = capture(&records);
    assert_eq!(&bytes[places[3]..][..SPAN_SIZE], span_record().as_bytes());
}

#[test]
fn kinds_and_their_number_can_be_chosen() {
    let records = span_record().as_bytes().repeat(5);
    assert_eq!(lines(capture(&records), &only(&["span"])).len(), 5);
    assert_eq!(lines(capture(&records), &only(&["span", "end"])).len(), 6);
    let two = Selection {
        limit: Some(2),
        ..only(&["span"])
    };
    assert_eq!(lines(capture(&records), &two).len(), 2);
    let unknown = "spam".parse::<Kind>().unwrap_err().to_string();
    assert!(unknown.contains("span, unfinished"), "{unknown}");
    assert!(Kind::names().all(|name| name.parse::<Kind>().unwrap().name() == name));
}

#[test]
fn a_capture_without_its_end_is_not_whole() {
    let mut bytes = capture(span_record().as_bytes());
    let end = lines(bytes.clone(), &only(&["end"]));
    let place: usize = end[0].split_whitespace().next().unwrap().parse().unwrap();
    for length in [place + 5, place] {
        bytes.truncate(length);
        let mut reader = CaptureReader::new(Cursor::new(&bytes)).unwrap();
        let dumped = dump(&mut reader, &Selection::default(), &mut |_| Ok(())).unwrap();
        assert!(!dumped.is_whole && dumped.lines == 4, "{dumped:?}");
    }
}

#[test]
fn values_are_text_or_bytes() {
    let mut long = [0; SHORT_SIZE];
    let value = Value {
        header: header(SHORT_SIZE, kind::VALUE, Domain::ArgumentData),
        correlation: 42,
        pid: 100,
        length: 3,
        word: 1,
        flags: value_flags::STRING,
    };
    long[..size_of::<Value>()].copy_from_slice(value.as_bytes());
    long[size_of::<Value>()..][..4].copy_from_slice(b"a\tbX");
    let text = lines(capture(&long), &only(&["value"]));
    assert!(text[0].ends_with(r#" text="a\tb""#), "{text:?}");
    let bytes = Value { flags: 0, ..value };
    long[..size_of::<Value>()].copy_from_slice(bytes.as_bytes());
    let text = lines(capture(&long), &only(&["value"]));
    assert!(text[0].ends_with(" bytes=3:610962"), "{text:?}");
}

#[test]
fn what_makes_no_sense_is_shown_as_bytes() {
    let mut short = span_record();
    short.header.size = 24;
    let short = short.as_bytes()[..24].to_vec();
    let mut unknown = short.clone();
    unknown[2] = 200;
    // Its size is smaller than a header.
    let broken = [3, 0, 1, 0];
    let lines = lines(
        capture(&[&short[..], &unknown, &broken].concat()),
        &only(&["malformed", "unknown"]),
    );
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[0].contains(" malformed ") && lines[0].contains(" record_kind=1 bytes=24:1800"));
    assert!(lines[1].contains(" unknown ") && lines[1].contains(" record_kind=200 bytes=24:"));
    assert!(lines[2].contains(" malformed ") && lines[2].ends_with(" bytes=4:03000100"));
}

proptest! {
    #[test]
    fn no_bytes_do_harm(
        records in proptest::collection::vec(any::<u8>(), 0..2_000),
        kinds in proptest::collection::vec((any::<u8>(), 0_usize..60), 0..20),
    ) {
        // Records with fitting sizes, so that all kinds are reached.
        let mut run = Vec::new();
        for (kind, words) in kinds {
            let size = 8 + 8 * words;
            run.extend_from_slice(header(size, kind % 40, Domain::HipRuntime).as_bytes());
            run.extend(records.iter().chain(&[0xff; 480]).take(size - 8));
        }
        run.extend_from_slice(&records);
        for line in lines(capture(&run), &Selection::default()) {
            prop_assert!(!line.contains('\n'));
        }
    }
}
