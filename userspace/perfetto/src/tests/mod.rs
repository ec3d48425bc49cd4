//! Traces written from synthetic events, decoded with `prost` and interpreted as trace processor
//! does.

mod gpu;
mod nesting;
mod output;
mod protos;
mod report;
mod slices;
mod tracks;

use std::{
    collections::{BTreeMap, HashMap},
    io::Read as _,
};

use gputrace_abi::domain::Domain;
use gputrace_capture::meta::{ArgSlot, Function, Parameter, ValueKind};
use gputrace_timeline::{
    event::{Call, Event, FunctionInfo},
    synthetic,
};
use prost::Message as _;

use self::protos::{
    CounterValueField, Data, DebugAnnotation, EventType, NameField, Trace, TracePacket,
    TrackDescriptor, TrackEvent, Value,
};
use crate::{PerfettoOptions, exporter::TraceWriter, sequence::Sequence};

/// A function with these parameters (name, kind, slot).
fn function(
    id: u32,
    name: &str,
    domain: Domain,
    parameters: &[(&str, ValueKind, ArgSlot)],
) -> Event {
    let parameters = parameters.iter().map(|(name, kind, at)| Parameter {
        name: (*name).to_owned(),
        c_type: String::new(),
        kind: *kind,
        at: *at,
        ..Parameter::default()
    });
    Event::Function(Box::new(FunctionInfo {
        function: Function {
            id,
            name: name.to_owned(),
            domain: domain.id(),
            parameters: Some(parameters.collect()),
            returns: match domain {
                Domain::HipRuntime | Domain::HipCompiler => ValueKind::HipError,
                _ => ValueKind::HsaStatus,
            },
            ..Function::default()
        },
        domain: Some(domain),
        library: "/opt/rocm/lib/libamdhip64.so.6".to_owned(),
        build_id: "0123".to_owned(),
        range: None,
    }))
}

/// A call of function 0 on thread 11 of process 10 that returned 0.
fn call(correlation: u64, parent: u64, begin: u64, end: u64) -> Call {
    Call {
        domain: Domain::HipRuntime.id(),
        pid: 10,
        tid: 11,
        parent,
        args: [0; 6],
        ..synthetic::call(correlation, begin, end)
    }
}

/// The bytes of a trace of `events`.
fn bytes(events: &[Event]) -> Vec<u8> {
    let mut trace = TraceWriter::new(Vec::new()).unwrap();
    for event in events {
        trace.event(event).unwrap();
    }
    trace.finish().unwrap()
}

/// The packets of a trace, including compressed ones.
fn packets(bytes: &[u8]) -> Vec<TracePacket> {
    let parse = |bytes: &[u8]| {
        let trace = Trace::decode(bytes).unwrap();
        // Unknown fields are skipped by the decoder and would be missing here.
        assert_eq!(
            trace.encoded_len(),
            bytes.len(),
            "a field of an unknown number or type"
        );
        trace.packet
    };
    let expand = |packet: TracePacket| {
        let Some(Data::CompressedPackets(bytes)) = &packet.data else {
            return vec![packet];
        };
        let mut inside = Vec::new();
        let mut decoder = flate2::read::ZlibDecoder::new(bytes.as_slice());
        decoder.read_to_end(&mut inside).unwrap();
        parse(&inside)
    };
    parse(bytes).into_iter().flat_map(expand).collect()
}

fn trace(events: &[Event]) -> Decoded {
    Decoded::new(&bytes(events))
}

/// [`trace`] with `options`.
fn trace_with(events: &[Event], options: PerfettoOptions) -> Decoded {
    let mut trace = TraceWriter::with_options(Vec::new(), options).unwrap();
    for event in events {
        trace.event(event).unwrap();
    }
    Decoded::new(&trace.finish().unwrap())
}

/// [`trace`] with interning limited to `limit` bytes.
fn trace_with_limit(events: &[Event], limit: usize) -> Decoded {
    let out = Sequence::with_limit(Vec::new(), limit).unwrap();
    let mut trace = TraceWriter::over(out, PerfettoOptions::default()).unwrap();
    for event in events {
        trace.event(event).unwrap();
    }
    Decoded::new(&trace.finish().unwrap())
}

/// A slice, or an instant if `end` equals `begin`.
#[derive(Clone, Debug, Default)]
struct Shown {
    track: u64,
    name: String,
    category: String,
    begin: u64,
    end: u64,
    /// Annotations as `name`, `dictionary.name` or `array[index].name`; integers in decimal,
    /// pointers in hex.
    notes: BTreeMap<String, String>,
    /// `corr_id` of the enclosing slice.
    inside: Option<u64>,
    flows: Vec<u64>,
}

impl Shown {
    fn corr_id(&self) -> u64 {
        self.notes["corr_id"].parse().unwrap()
    }

    fn note(&self, name: &str) -> &str {
        self.notes.get(name).map_or("(none)", String::as_str)
    }
}

#[derive(Debug, Default)]
struct Decoded {
    packets: Vec<TracePacket>,
    /// In order of begin.
    slices: Vec<Shown>,
    instants: Vec<Shown>,
    /// Integer values by track, in order of time.
    counters: BTreeMap<u64, Vec<(u64, i64)>>,
    /// Floating-point values by track, in order of time.
    reals: BTreeMap<u64, Vec<(u64, f64)>>,
    /// The last descriptor of each uuid.
    tracks: BTreeMap<u64, TrackDescriptor>,
    /// How often the interned strings were reset.
    resets: usize,
}

impl Decoded {
    /// Decodes a trace and checks the invariants of all traces.
    fn new(bytes: &[u8]) -> Self {
        let packets = packets(bytes);
        let mut decoded = Self::default();
        let mut strings: HashMap<(u32, u64), String> = HashMap::new();
        let mut events: Vec<(u64, TrackEvent, Shown)> = Vec::new();
        for (index, packet) in packets.iter().enumerate() {
            assert_eq!(packet.trusted_packet_sequence_id(), 1);
            let cleared = packet.sequence_flags() & 1 != 0;
            assert_eq!(packet.sequence_flags(), if cleared { 1 } else { 2 });
            assert_eq!(packet.first_packet_on_sequence(), index == 0);
            if cleared {
                strings.clear();
                assert_eq!(
                    packet
                        .trace_packet_defaults
                        .as_ref()
                        .unwrap()
                        .timestamp_clock_id(),
                    6
                );
                decoded.resets += 1;
            } else {
                assert_ne!(index, 0);
            }
            let interned = packet.interned_data.clone().unwrap_or_default();
            for entry in &interned.event_categories {
                assert!(
                    strings
                        .insert((1, entry.iid()), entry.name().to_owned())
                        .is_none()
                );
            }
            for entry in &interned.event_names {
                assert!(
                    strings
                        .insert((2, entry.iid()), entry.name().to_owned())
                        .is_none()
                );
            }
            for entry in &interned.debug_annotation_names {
                assert!(
                    strings
                        .insert((3, entry.iid()), entry.name().to_owned())
                        .is_none()
                );
            }
            for entry in &interned.debug_annotation_string_values {
                let text = String::from_utf8(entry.str().to_owned()).unwrap();
                assert!(strings.insert((29, entry.iid()), text).is_none());
            }
            match &packet.data {
                Some(Data::TrackDescriptor(descriptor)) => {
                    decoded.tracks.insert(descriptor.uuid(), descriptor.clone());
                }
                Some(Data::TrackEvent(event)) => {
                    assert!(
                        decoded.tracks.contains_key(&event.track_uuid()),
                        "track described before"
                    );
                    let shown = show(event, packet.timestamp(), &strings);
                    events.push((packet.timestamp(), event.clone(), shown));
                }
                _ => {}
            }
        }
        // Trace processor sorts like this, and keeps the file's order among equal times.
        events.sort_by_key(|(time, ..)| *time);
        let mut stacks: HashMap<u64, Vec<Shown>> = HashMap::new();
        for (time, event, mut shown) in events {
            let stack = stacks.entry(event.track_uuid()).or_default();
            shown.inside = stack.last().map(Shown::corr_id);
            match event.r#type() {
                EventType::SliceBegin => stack.push(shown),
                EventType::SliceEnd => {
                    let mut slice = stack.pop().expect("an end without a beginning");
                    slice.end = time;
                    decoded.slices.push(slice);
                }
                EventType::Instant => decoded.instants.push(shown),
                EventType::Counter => match event.counter_value_field {
                    Some(CounterValueField::DoubleCounterValue(value)) => decoded
                        .reals
                        .entry(event.track_uuid())
                        .or_default()
                        .push((time, value)),
                    Some(CounterValueField::CounterValue(value)) => decoded
                        .counters
                        .entry(event.track_uuid())
                        .or_default()
                        .push((time, value)),
                    None => panic!("a counter without a value"),
                },
                EventType::Unspecified => panic!("an event of no type"),
            }
        }
        assert!(
            stacks.values().all(Vec::is_empty),
            "a beginning without an end"
        );
        decoded.slices.sort_by_key(|slice| slice.begin);
        decoded.packets = packets;
        decoded
    }

    /// The slice of the call `correlation`.
    fn slice(&self, correlation: u64) -> &Shown {
        let mut found = self
            .slices
            .iter()
            .filter(|slice| slice.corr_id() == correlation);
        let slice = found.next().expect("the call has a slice");
        assert!(found.next().is_none(), "the call has one slice");
        slice
    }

    /// The only instant whose name begins with `prefix`.
    fn instant(&self, prefix: &str) -> &Shown {
        let mut found = self
            .instants
            .iter()
            .filter(|instant| instant.name.starts_with(prefix));
        let instant = found
            .next()
            .unwrap_or_else(|| panic!("no instant {prefix:?}"));
        assert!(found.next().is_none(), "more than one instant {prefix:?}");
        instant
    }

    fn instants_of(&self, category: &str) -> Vec<&Shown> {
        self.instants
            .iter()
            .filter(|instant| instant.category == category)
            .collect()
    }

    /// The descriptor of the track named `name`.
    fn track(&self, name: &str) -> &TrackDescriptor {
        self.tracks
            .values()
            .find(|track| track.name() == name)
            .unwrap()
    }
}

fn show(event: &TrackEvent, time: u64, strings: &HashMap<(u32, u64), String>) -> Shown {
    let mut shown = Shown {
        track: event.track_uuid(),
        begin: time,
        end: time,
        flows: event.flow_ids.clone(),
        ..Shown::default()
    };
    shown.name = match &event.name_field {
        Some(NameField::NameIid(iid)) => strings[&(2, *iid)].clone(),
        Some(NameField::Name(name)) => name.clone(),
        _ => String::new(),
    };
    if let [category] = event.category_iids[..] {
        shown.category = strings[&(1, category)].clone();
    }
    for annotation in &event.debug_annotations {
        note("", annotation, strings, &mut shown.notes);
    }
    shown
}

fn note(
    prefix: &str,
    annotation: &DebugAnnotation,
    strings: &HashMap<(u32, u64), String>,
    notes: &mut BTreeMap<String, String>,
) {
    let name = match annotation.name_iid {
        Some(iid) => format!("{prefix}{}", strings[&(3, iid)]),
        _ => prefix.trim_end_matches('.').to_owned(),
    };
    let value = match &annotation.value {
        Some(Value::Bool(value)) => value.to_string(),
        Some(Value::Uint(value)) => value.to_string(),
        Some(Value::Int(value)) => value.to_string(),
        Some(Value::Pointer(value)) => format!("{value:#x}"),
        Some(Value::String(value)) => value.clone(),
        Some(Value::Interned(iid)) => strings[&(29, *iid)].clone(),
        None => {
            for entry in &annotation.dict_entries {
                note(&format!("{name}."), entry, strings, notes);
            }
            for (index, item) in annotation.array_values.iter().enumerate() {
                note(&format!("{name}[{index}]."), item, strings, notes);
            }
            return;
        }
        other => panic!("unexpected value {other:?}"),
    };
    assert!(
        notes.insert(name.clone(), value).is_none(),
        "{name} occurs twice"
    );
}
