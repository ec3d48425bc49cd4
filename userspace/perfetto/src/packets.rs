//! Rare packets: descriptors of tracks, clock snapshots, the machine.
//!
//! Each is a plain structure that encodes itself. Perfetto's generated Rust code would do as well,
//! but it is 355,000 lines for the few messages below, and compiling it took longer than all other
//! dependencies of gputrace. A test reads the packets with Perfetto's own code
//! (`tests/official_reader.rs`), so a wrong field number is noticed.

use crate::wire::{
    Encoder, clock_snapshot, counter_descriptor, packet, process_descriptor, system_info,
    thread_descriptor, track_descriptor,
};

/// The field `data` of a packet.
pub(crate) trait Data {
    /// The packet's time, ns, `CLOCK_BOOTTIME`; `None` if it has no time.
    fn time(&self) -> Option<u64> {
        None
    }

    /// Appends the field.
    fn encode(&self, encoder: &mut Encoder);
}

/// `TrackDescriptor`: a track's name, place and content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Track<'a> {
    /// Unique in the trace.
    pub(crate) uuid: u64,
    /// Uuid of the track above; 0 if there is none.
    pub(crate) parent: u64,
    /// Empty if the track's content has a name.
    pub(crate) name: &'a str,
    /// Whether the tracks below are shown in order of their names.
    pub(crate) sorted: bool,
    pub(crate) shows: Shows<'a>,
}

/// The content of a track.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Shows<'a> {
    #[default]
    Slices,
    Counter(Unit<'a>),
    Process(Process<'a>),
    Thread(Thread<'a>),
}

/// The unit of a counter's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit<'a> {
    Nanoseconds,
    Count,
    Bytes,
    /// A unit for which Perfetto has no enumerator.
    Named(&'a str),
}

/// `ProcessDescriptor`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Process<'a> {
    pub(crate) pid: u32,
    pub(crate) command: &'a [String],
    /// Empty if unknown.
    pub(crate) name: &'a str,
    /// ns, `CLOCK_BOOTTIME`; 0 if unknown.
    pub(crate) start: u64,
    /// Where it belongs, for people.
    pub(crate) labels: &'a [String],
}

/// `ThreadDescriptor`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Thread<'a> {
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    /// Empty if unknown.
    pub(crate) name: &'a str,
}

/// `ClockSnapshot`: the same moment on several clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Clocks {
    /// ns, `CLOCK_BOOTTIME`.
    pub(crate) time: u64,
    /// Perfetto's id of each clock, and its time in ns.
    pub(crate) clocks: [(u32, u64); 4],
}

/// `SystemInfo`: the machine, as `uname` describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct System<'a> {
    pub(crate) release: &'a str,
    pub(crate) version: &'a str,
    pub(crate) machine: &'a str,
}

impl Data for Track<'_> {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.message(packet::TRACK_DESCRIPTOR, |track| {
            track.uint(track_descriptor::UUID, self.uuid);
            if self.parent != 0 {
                track.uint(track_descriptor::PARENT_UUID, self.parent);
            }
            match &self.shows {
                Shows::Slices => {}
                Shows::Counter(unit) => unit.encode(track),
                Shows::Process(process) => process.encode(track),
                Shows::Thread(thread) => thread.encode(track),
            }
            if self.sorted {
                track.uint(
                    track_descriptor::CHILD_ORDERING,
                    track_descriptor::LEXICOGRAPHIC,
                );
            }
            if !self.name.is_empty() {
                track.bytes(track_descriptor::NAME, self.name.as_bytes());
            }
        });
    }
}

impl Unit<'_> {
    fn encode(self, track: &mut Encoder) {
        track.message(track_descriptor::COUNTER, |counter| {
            let number = match self {
                Self::Nanoseconds => counter_descriptor::UNIT_TIME_NS,
                Self::Count => counter_descriptor::UNIT_COUNT,
                Self::Bytes => counter_descriptor::UNIT_SIZE_BYTES,
                Self::Named(name) => {
                    return counter.bytes(counter_descriptor::UNIT_NAME, name.as_bytes());
                }
            };
            counter.uint(counter_descriptor::UNIT, number);
        });
    }
}

impl Process<'_> {
    fn encode(&self, track: &mut Encoder) {
        track.message(track_descriptor::PROCESS, |process| {
            process.signed(process_descriptor::PID, self.pid.cast_signed().into());
            for word in self.command {
                process.bytes(process_descriptor::CMDLINE, word.as_bytes());
            }
            if !self.name.is_empty() {
                process.bytes(process_descriptor::PROCESS_NAME, self.name.as_bytes());
            }
            if self.start != 0 {
                process.uint(process_descriptor::START_TIMESTAMP_NS, self.start);
            }
            for label in self.labels {
                process.bytes(process_descriptor::PROCESS_LABELS, label.as_bytes());
            }
        });
    }
}

impl Thread<'_> {
    fn encode(&self, track: &mut Encoder) {
        track.message(track_descriptor::THREAD, |thread| {
            thread.signed(thread_descriptor::PID, self.pid.cast_signed().into());
            thread.signed(thread_descriptor::TID, self.tid.cast_signed().into());
            if !self.name.is_empty() {
                thread.bytes(thread_descriptor::THREAD_NAME, self.name.as_bytes());
            }
        });
    }
}

impl Data for Clocks {
    fn time(&self) -> Option<u64> {
        Some(self.time)
    }

    fn encode(&self, encoder: &mut Encoder) {
        encoder.message(packet::CLOCK_SNAPSHOT, |snapshot| {
            for (number, time) in self.clocks {
                snapshot.message(clock_snapshot::CLOCKS, |clock| {
                    clock.uint(clock_snapshot::CLOCK_ID, number.into());
                    clock.uint(clock_snapshot::TIMESTAMP, time);
                });
            }
            snapshot.uint(
                clock_snapshot::PRIMARY_TRACE_CLOCK,
                crate::clock::BOOTTIME.into(),
            );
        });
    }
}

impl Data for System<'_> {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.message(packet::SYSTEM_INFO, |system| {
            system.message(system_info::UTSNAME, |names| {
                names.bytes(system_info::SYSNAME, b"Linux");
                names.bytes(system_info::VERSION, self.version.as_bytes());
                names.bytes(system_info::RELEASE, self.release.as_bytes());
                names.bytes(system_info::MACHINE, self.machine.as_bytes());
            });
        });
    }
}
