//! Makes a profile of rows, each text, file, function and place once.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use gputrace_capture::stack::Frame;
use gputrace_export::stacks::{ByStack, Row, StackFrame, Sums};

use crate::profile::{Function, Label, Line, Location, Mapping, Profile, Sample, ValueType};

/// A value of each sample: name, unit, and its number of the sums.
type Value = (&'static str, &'static str, fn(&Sums) -> u64);

/// The values. The first one is shown by default.
pub(crate) const VALUES: [Value; 6] = [
    ("gpu_time", "nanoseconds", |sums| sums.gpu_time),
    ("gpu_work", "count", |sums| sums.work),
    ("copied", "bytes", |sums| sums.copied),
    ("calls", "count", |sums| sums.calls),
    ("call_time", "nanoseconds", |sums| sums.call_time),
    ("wait_time", "nanoseconds", |sums| sums.wait_time),
];

/// End of each file's address space: pprof wants a range that contains the addresses.
const LIMIT: u64 = 1 << 47;

/// A place in the code.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Place {
    Frame(Frame),
    /// What has no address: a function of an API, a kernel, or a mark.
    Name(String),
}

/// A profile in the making.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    profile: Profile,
    texts: HashMap<String, i64, RandomState>,
    /// Numbers of mappings by number of the file.
    mappings: HashMap<u32, u64, RandomState>,
    functions: HashMap<String, u64, RandomState>,
    locations: HashMap<Place, u64, RandomState>,
}

/// The number of an element that is the next one of a list; numbers begin with 1.
fn next(length: usize) -> u64 {
    length as u64 + 1
}

/// A number as the format has it.
fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

impl Builder {
    /// Begins a profile of a recording that began at `begin`, ns since the Unix epoch, and took
    /// `duration`, ns.
    pub(crate) fn new(begin: u64, duration: u64) -> Self {
        let mut builder = Self::default();
        builder.text("");
        builder.profile.time_nanos = number(begin);
        builder.profile.duration_nanos = number(duration);
        for (name, unit, _) in VALUES {
            let value = ValueType {
                r#type: builder.text(name),
                unit: builder.text(unit),
            };
            builder.profile.sample_type.push(value);
        }
        let first = builder.profile.sample_type.first();
        builder.profile.default_sample_type = first.map_or(0, |value| value.r#type);
        builder
    }

    /// Adds a remark.
    pub(crate) fn comment(&mut self, text: &str) {
        let text = self.text(text);
        self.profile.comment.push(text);
    }

    fn text(&mut self, text: &str) -> i64 {
        if let Some(known) = self.texts.get(text) {
            return *known;
        }
        let table = &mut self.profile.string_table;
        let index = number(table.len() as u64);
        table.push(text.to_owned());
        self.texts.insert(text.to_owned(), index);
        index
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, row: &Row, stacks: &mut ByStack) {
        let leaf = self.location(Place::Name(row.leaf.clone()), stacks);
        let frames = row.frames.iter().rev().map(|frame| {
            let place = match frame {
                StackFrame::Known(frame) => Place::Frame(*frame),
                StackFrame::Unknown(why) => Place::Name((*why).to_owned()),
            };
            self.location(place, stacks)
        });
        let callers: Vec<u64> = frames.collect();
        let label = [
            Label {
                key: self.text("process"),
                str: self.text(&row.process),
                num: 0,
            },
            Label {
                key: self.text("pid"),
                str: 0,
                num: row.pid.into(),
            },
        ];
        self.profile.sample.push(Sample {
            location_id: std::iter::once(leaf).chain(callers).collect(),
            value: VALUES.map(|(.., of)| number(of(&row.sums))).to_vec(),
            label: label.to_vec(),
        });
    }

    fn location(&mut self, place: Place, stacks: &mut ByStack) -> u64 {
        if let Some(known) = self.locations.get(&place) {
            return *known;
        }
        let (name, mapping_id, address) = match &place {
            Place::Name(name) => (name.clone(), 0, 0),
            Place::Frame(frame) => {
                let mapping = frame.file.map_or(0, |file| self.mapping(file, stacks));
                (
                    stacks.name(&StackFrame::Known(*frame)),
                    mapping,
                    frame.within(),
                )
            }
        };
        let function_id = self.function(&name);
        let id = next(self.profile.location.len());
        self.profile.location.push(Location {
            id,
            mapping_id,
            address,
            line: vec![Line { function_id }],
        });
        self.locations.insert(place, id);
        id
    }

    fn function(&mut self, name: &str) -> u64 {
        if let Some(known) = self.functions.get(name) {
            return *known;
        }
        let text = self.text(name);
        let id = next(self.profile.function.len());
        self.profile.function.push(Function {
            id,
            name: text,
            system_name: text,
        });
        self.functions.insert(name.to_owned(), id);
        id
    }

    fn mapping(&mut self, file: u32, stacks: &ByStack) -> u64 {
        if let Some(known) = self.mappings.get(&file) {
            return *known;
        }
        let known = stacks.file(file);
        let path = known.map_or_else(|| format!("file {file}"), |known| known.path.clone());
        let build_id = known.and_then(|known| known.build_id.clone());
        let id = next(self.profile.mapping.len());
        let mapping = Mapping {
            id,
            memory_start: 0,
            memory_limit: LIMIT,
            filename: self.text(&path),
            build_id: self.text(&build_id.unwrap_or_default()),
            has_functions: true,
        };
        self.profile.mapping.push(mapping);
        self.mappings.insert(file, id);
        id
    }

    /// The finished profile.
    pub(crate) fn finish(self) -> Profile {
        self.profile
    }
}
