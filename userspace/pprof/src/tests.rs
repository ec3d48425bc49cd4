//! Profiles of made-up recordings, read back.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Read as _,
    path::Path,
};

use flate2::read::GzDecoder;
use gputrace_capture::stack::{CodeFile, Frame, Stack, StackEnd};
use gputrace_export::{folded::FoldedExporter, synthetic};

use super::*;
use crate::{build::VALUES, profile::Profile};

/// Frames of the made-up stacks, the innermost first: addresses in file 7.
const FRAMES: [&[u64]; 3] = [&[0x10, 0x20], &[0x10, 0x30, 0x20], &[]];

/// A recording whose calls and work have stacks; some have none, one is lost.
fn events() -> Vec<Event> {
    let mut events = synthetic::events();
    let file = CodeFile {
        number: 7,
        path: "/opt/app/train".to_owned(),
        build_id: Some("0123".to_owned()),
    };
    let mut at = 1;
    events.insert(at, Event::CodeFile(Box::new(file)));
    for (number, addresses) in (1..).zip(FRAMES) {
        let frame = |address: &u64| Frame {
            file: Some(7),
            address: *address,
            is_interrupted: false,
        };
        at += 1;
        let stack = Stack {
            number,
            pid: 100,
            frames: addresses.iter().map(frame).collect(),
            end: if number == 2 {
                StackEnd::TooDeep
            } else {
                StackEnd::Complete
            },
            ..Stack::default()
        };
        events.insert(at, Event::Stack(Box::new(stack)));
    }
    let mut number = 0..;
    let mut next = || {
        number
            .next()
            .map(|number| number % 6)
            .filter(|number| *number < 5)
    };
    for event in &mut events {
        match event {
            Event::Call(call) => call.stack_number = next(),
            Event::Dispatch(dispatch) => dispatch.origin.stack_number = next(),
            Event::Copy(copy) => copy.origin.stack_number = next(),
            _ => {}
        }
    }
    events
}

/// Exports the recording with an exporter into a directory.
fn export(mut exporter: Box<dyn Exporter>) {
    for event in events() {
        exporter.event(&event).unwrap();
    }
    exporter.finish().unwrap();
}

fn directory(path: &Path) -> OutputDir {
    OutputDir::open(path, None).unwrap()
}

fn profile() -> Profile {
    let place = tempfile::tempdir().unwrap();
    let to = directory(place.path());
    export(Box::new(PprofExporter::new(&to, "run").unwrap()));
    let file = fs::File::open(place.path().join("run_stacks.pb.gz")).unwrap();
    let mut bytes = Vec::new();
    GzDecoder::new(file).read_to_end(&mut bytes).unwrap();
    Profile::decode(bytes.as_slice()).unwrap()
}

/// The sums of folded stacks, by their last part.
fn folded(which: &str) -> u64 {
    let place = tempfile::tempdir().unwrap();
    let to = directory(place.path());
    export(Box::new(FoldedExporter::new(&to, "run").unwrap()));
    let text = fs::read_to_string(place.path().join(format!("run_{which}.folded"))).unwrap();
    let numbers = text.lines().map(|line| line.rsplit(' ').next().unwrap());
    numbers.map(|number| number.parse::<u64>().unwrap()).sum()
}

#[test]
fn each_number_refers_to_something() {
    let profile = profile();
    let texts = &profile.string_table;
    assert_eq!(texts.first().map(String::as_str), Some(""));
    assert_eq!(texts.iter().collect::<BTreeSet<_>>().len(), texts.len());
    let text = |index: i64| texts[usize::try_from(index).unwrap()].as_str();
    let types: Vec<(&str, &str)> = profile
        .sample_type
        .iter()
        .map(|value| (text(value.r#type), text(value.unit)))
        .collect();
    assert_eq!(types, VALUES.map(|(name, unit, _)| (name, unit)));
    assert_eq!(text(profile.default_sample_type), "gpu_time");
    let ids = |numbers: Vec<u64>| {
        let expected: Vec<u64> = (1..=numbers.len() as u64).collect();
        assert_eq!(numbers, expected);
        numbers
    };
    let locations = ids(profile.location.iter().map(|one| one.id).collect());
    let functions = ids(profile.function.iter().map(|one| one.id).collect());
    let mappings = ids(profile.mapping.iter().map(|one| one.id).collect());
    for function in &profile.function {
        assert!(!text(function.name).is_empty());
    }
    for location in &profile.location {
        assert!(location.mapping_id == 0 || mappings.contains(&location.mapping_id));
        assert!(
            location
                .line
                .iter()
                .all(|line| functions.contains(&line.function_id))
        );
    }
    assert!(!profile.sample.is_empty());
    for sample in &profile.sample {
        assert_eq!(sample.value.len(), VALUES.len());
        assert!(sample.location_id.iter().all(|id| locations.contains(id)));
        let labels: Vec<(&str, &str, i64)> = sample
            .label
            .iter()
            .map(|label| (text(label.key), text(label.str), label.num))
            .collect();
        assert_eq!(labels, [("process", "train", 0), ("pid", "", 100)]);
    }
    let [mapping] = &profile.mapping[..] else {
        panic!("{:?}", profile.mapping)
    };
    assert_eq!(
        (text(mapping.filename), text(mapping.build_id)),
        ("/opt/app/train", "0123")
    );
    let (mut begin, mut end) = (ClockSnapshot::default(), 0);
    for event in events() {
        match event {
            Event::Recording(recording) => begin = recording.clocks,
            Event::End(last) => end = last.time,
            _ => {}
        }
    }
    let duration = i64::try_from(end - begin.boottime).unwrap();
    assert!(duration > 0);
    assert_eq!(profile.duration_nanos, duration);
    assert_eq!(profile.time_nanos, i64::try_from(begin.realtime).unwrap());
    let comments: Vec<&str> = profile.comment.iter().map(|index| text(*index)).collect();
    assert!(
        comments.iter().any(|comment| comment.starts_with("lost: ")),
        "{comments:?}"
    );
}

#[test]
fn sums_are_those_of_folded_stacks() {
    let profile = profile();
    let mut sums = BTreeMap::new();
    for sample in &profile.sample {
        for ((name, ..), value) in VALUES.iter().zip(&sample.value) {
            *sums.entry(*name).or_insert(0) += u64::try_from(*value).unwrap();
        }
    }
    for which in ["gpu_time", "calls", "call_time"] {
        let expected = folded(which);
        assert!(expected > 0, "{which}");
        assert_eq!(sums.get(which), Some(&expected), "{which}");
    }
    // Eight dispatches and three copies, of 3.15 MB.
    let works = events();
    let works = works
        .iter()
        .filter(|event| matches!(event, Event::Dispatch(_) | Event::Copy(_)));
    assert_eq!(sums.get("gpu_work"), Some(&(works.count() as u64)));
    let copied = events()
        .iter()
        .map(|event| match event {
            Event::Copy(copy) => copy.bytes,
            _ => 0,
        })
        .sum::<u64>();
    assert_eq!(sums.get("copied"), Some(&copied));
}

#[test]
fn a_stack_begins_with_the_work_and_ends_with_the_outermost_frame() {
    let profile = profile();
    let text = |index: i64| profile.string_table[usize::try_from(index).unwrap()].as_str();
    let name = |id: &u64| {
        let location = &profile.location[usize::try_from(id - 1).unwrap()];
        let function = location.line.first().unwrap().function_id;
        text(profile.function[usize::try_from(function - 1).unwrap()].name)
    };
    let stacks: BTreeSet<Vec<&str>> = profile
        .sample
        .iter()
        .map(|sample| sample.location_id.iter().skip(1).map(name).collect())
        .collect();
    let expected: [&[&str]; 5] = [
        &["train+0xf", "train+0x1f"],
        &[
            "train+0xf",
            "train+0x2f",
            "train+0x1f",
            "[more frames than are recorded]",
        ],
        &["[no stack was recorded]"],
        &["[not looked at: too many new stacks at once]"],
        &["[the stack was lost]"],
    ];
    for stack in expected {
        assert!(stacks.contains(stack), "{stack:?} is not in {stacks:?}");
    }
}

#[test]
fn the_same_recording_makes_the_same_profile() {
    assert_eq!(profile(), profile());
}
