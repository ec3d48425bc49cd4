//! Tracks: one per process, one per thread, and two of gputrace's own.
//!
//! A track's uuid is made of what it shows, so that exporting a capture again gives the same ones:
//!
//! ```text
//!  62    59 58          44 43          22 21           0
//! +--------+--------------+--------------+--------------+
//! |  kind  |  generation  |     pid      |     tid      |
//! +--------+--------------+--------------+--------------+
//! ```
//!
//! `kind` is 1 for a process (`tid` 0), 2 for a thread, 3 for gputrace's own (`tid` numbers them).
//! Linux's ids stay below 2²² (`PID_MAX_LIMIT`). `generation` counts how often the id was used again in
//! the recording: trace processor takes a second uuid for a pid or tid to mean just that.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    io::{self, Write},
};

use gputrace_timeline::event::ProcessInfo;
use perfetto_protos::{
    process_descriptor::ProcessDescriptor, thread_descriptor::ThreadDescriptor, trace_packet::TracePacket,
    track_descriptor::TrackDescriptor,
};

use crate::{
    nesting::Nest,
    sequence::{EventType, Sequence},
};

const ID_BITS: u32 = 22;
const GENERATION_BITS: u32 = 15;

/// Longest `comm` that the kernel keeps, in bytes (`TASK_COMM_LEN` less the NUL).
const COMM_MAX: usize = 15;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Process = 1,
    Thread = 2,
    Own = 3,
}

fn uuid(kind: Kind, generation: u32, pid: u32, tid: u32) -> u64 {
    let part = |value: u32, bits: u32| u64::from(value) & ((1 << bits) - 1);
    let ids = part(pid, ID_BITS) << ID_BITS | part(tid, ID_BITS);
    ((kind as u64) << GENERATION_BITS | part(generation, GENERATION_BITS)) << (2 * ID_BITS) | ids
}

/// A track that shows gputrace's own remarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnTrack {
    /// How the recording was made and how it ended.
    Recording = 1,
    /// What was lost, and notices.
    Ledger = 2,
}

impl OwnTrack {
    pub(crate) fn uuid(self) -> u64 {
        uuid(Kind::Own, 0, 0, self as u32)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Recording => "gputrace: recording",
            Self::Ledger => "gputrace: loss ledger",
        }
    }
}

#[derive(Debug, Default)]
struct Process {
    generation: u32,
    info: ProcessInfo,
}

/// A thread and what is being drawn on its track.
#[derive(Debug, Default)]
pub(crate) struct Thread {
    pid: u32,
    tid: u32,
    generation: u32,
    /// Generation of the process that it belongs to.
    process: u32,
    name: String,
    exited: bool,
    nest: Nest,
}

impl Thread {
    /// The thread's track.
    pub(crate) fn uuid(&self) -> u64 {
        uuid(Kind::Thread, self.generation, self.pid, self.tid)
    }

    /// The slices on it.
    pub(crate) fn nest(&mut self) -> &mut Nest {
        &mut self.nest
    }

    /// Marks the thread as ended: its id may be used again.
    pub(crate) fn exited(&mut self) {
        self.exited = true;
    }

    /// Ends all slices that are open.
    fn close<W: Write>(&mut self, out: &mut Sequence<W>) -> io::Result<()> {
        let track = self.uuid();
        let mut result = Ok(());
        self.nest.close(|end| {
            if result.is_ok() {
                result = out.event(end, EventType::SliceEnd, track, |_| ());
            }
        });
        result
    }

    /// Another thread has the same id from here on.
    fn begin_again<W: Write>(&mut self, out: &mut Sequence<W>, process: u32) -> io::Result<()> {
        self.close(out)?;
        *self = Self {
            pid: self.pid,
            tid: self.tid,
            generation: self.generation + 1,
            process,
            ..Self::default()
        };
        self.describe(out)
    }

    fn describe<W: Write>(&self, out: &mut Sequence<W>) -> io::Result<()> {
        let mut thread = ThreadDescriptor::new();
        thread.set_pid(self.pid.cast_signed());
        thread.set_tid(self.tid.cast_signed());
        if !self.name.is_empty() {
            thread.set_thread_name(self.name.clone());
        }
        let mut descriptor = TrackDescriptor::new();
        descriptor.set_uuid(self.uuid());
        descriptor.set_parent_uuid(uuid(Kind::Process, self.process, self.pid, 0));
        descriptor.thread = Some(thread).into();
        describe(out, descriptor)
    }
}

impl Process {
    fn describe<W: Write>(&self, out: &mut Sequence<W>) -> io::Result<()> {
        let mut process = ProcessDescriptor::new();
        process.set_pid(self.info.pid.cast_signed());
        process.cmdline.clone_from(&self.info.command);
        let name = display_name(&self.info);
        if !name.is_empty() {
            process.set_process_name(name.to_owned());
        }
        if self.info.start != 0 {
            process.set_start_timestamp_ns(self.info.start.cast_signed());
        }
        let mut descriptor = TrackDescriptor::new();
        descriptor.set_uuid(uuid(Kind::Process, self.generation, self.info.pid, 0));
        descriptor.process = Some(process).into();
        describe(out, descriptor)
    }
}

/// The process's name; if the kernel cut it, the executable's file name when that begins with it.
fn display_name(info: &ProcessInfo) -> &str {
    let file = info.executable.rsplit('/').next().unwrap_or_default();
    if info.name.len() >= COMM_MAX && file.starts_with(&info.name) {
        file
    } else {
        &info.name
    }
}

fn describe<W: Write>(out: &mut Sequence<W>, descriptor: TrackDescriptor) -> io::Result<()> {
    let mut packet = TracePacket::new();
    packet.set_track_descriptor(descriptor);
    out.packet(packet)
}

/// The tracks in the trace. Grows with the number of processes and threads.
#[derive(Debug, Default)]
pub(crate) struct Tracks {
    processes: BTreeMap<u32, Process>,
    threads: BTreeMap<(u32, u32), Thread>,
}

impl Tracks {
    /// Describes gputrace's own tracks.
    pub(crate) fn describe_own<W: Write>(out: &mut Sequence<W>) -> io::Result<()> {
        for track in [OwnTrack::Recording, OwnTrack::Ledger] {
            let mut descriptor = TrackDescriptor::new();
            descriptor.set_uuid(track.uuid());
            descriptor.set_name(track.name().to_owned());
            describe(out, descriptor)?;
        }
        Ok(())
    }

    /// Takes note of what is known of a process.
    pub(crate) fn process<W: Write>(&mut self, out: &mut Sequence<W>, info: &ProcessInfo) -> io::Result<()> {
        let process = self.processes.entry(info.pid).or_default();
        process.info.clone_from(info);
        process.describe(out)
    }

    /// Gives a process another name, and keeps what else is known of it.
    pub(crate) fn rename_process<W: Write>(
        &mut self,
        out: &mut Sequence<W>,
        pid: u32,
        name: &str,
    ) -> io::Result<()> {
        let process = self.processes.entry(pid).or_default();
        process.info.pid = pid;
        name.clone_into(&mut process.info.name);
        process.describe(out)
    }

    /// Takes note of a thread's name.
    pub(crate) fn rename_thread<W: Write>(
        &mut self,
        out: &mut Sequence<W>,
        pid: u32,
        tid: u32,
        name: &str,
    ) -> io::Result<()> {
        let thread = self.thread(out, pid, tid)?;
        if thread.name != name {
            name.clone_into(&mut thread.name);
            thread.describe(out)?;
        }
        Ok(())
    }

    /// A process was created. If an earlier one had its id, tracks of their own begin.
    pub(crate) fn process_started<W: Write>(
        &mut self,
        out: &mut Sequence<W>,
        pid: u32,
    ) -> io::Result<&mut Thread> {
        let reused = self.threads.get(&(pid, pid)).is_some_and(|main| main.exited);
        if reused && let Some(process) = self.processes.get_mut(&pid) {
            process.generation += 1;
            process.info = ProcessInfo {
                pid,
                ..ProcessInfo::default()
            };
            process.describe(out)?;
        }
        self.thread(out, pid, pid)
    }

    /// A thread was created. If an earlier one of the process had its id, a track of its own begins.
    pub(crate) fn thread_started<W: Write>(
        &mut self,
        out: &mut Sequence<W>,
        pid: u32,
        tid: u32,
    ) -> io::Result<&mut Thread> {
        let thread = self.thread(out, pid, tid)?;
        if thread.exited {
            let process = thread.process;
            thread.begin_again(out, process)?;
        }
        Ok(thread)
    }

    /// The thread `tid` of process `pid`; describes both if they are new.
    pub(crate) fn thread<W: Write>(
        &mut self,
        out: &mut Sequence<W>,
        pid: u32,
        tid: u32,
    ) -> io::Result<&mut Thread> {
        let process = match self.processes.entry(pid) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let process = new.insert(Process::default());
                process.info.pid = pid;
                process.describe(out)?;
                process
            }
        };
        match self.threads.entry((pid, tid)) {
            Entry::Occupied(known) => {
                let thread = known.into_mut();
                if thread.process != process.generation {
                    thread.begin_again(out, process.generation)?;
                }
                Ok(thread)
            }
            Entry::Vacant(new) => {
                let thread = new.insert(Thread {
                    pid,
                    tid,
                    process: process.generation,
                    ..Thread::default()
                });
                thread.describe(out)?;
                Ok(thread)
            }
        }
    }

    /// Ends all slices that are open on any track.
    pub(crate) fn close<W: Write>(&mut self, out: &mut Sequence<W>) -> io::Result<()> {
        self.threads.values_mut().try_for_each(|thread| thread.close(out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_differ_and_fit_a_signed_number() {
        let uuids = [
            uuid(Kind::Process, 0, 5, 0),
            uuid(Kind::Process, 1, 5, 0),
            uuid(Kind::Thread, 0, 5, 5),
            uuid(Kind::Thread, 0, 5, 6),
            uuid(Kind::Thread, 0, 6, 5),
            uuid(Kind::Own, 0, 0, 1),
            uuid(Kind::Own, u32::MAX, u32::MAX, u32::MAX),
        ];
        for (index, uuid) in uuids.iter().enumerate() {
            assert!(i64::try_from(*uuid).is_ok());
            assert!(!uuids[..index].contains(uuid));
        }
        assert_eq!(
            uuid(Kind::Thread, 3, 0x11, 0x22),
            2 << 59 | 3 << 44 | 0x11 << 22 | 0x22
        );
    }

    #[test]
    fn a_name_that_the_kernel_cut_is_completed() {
        let info = |name: &str, executable: &str| ProcessInfo {
            name: name.to_owned(),
            executable: executable.to_owned(),
            ..ProcessInfo::default()
        };
        assert_eq!(
            display_name(&info("a_very_long_nam", "/bin/a_very_long_name")),
            "a_very_long_name"
        );
        assert_eq!(
            display_name(&info("a_very_long_nam", "/bin/python3")),
            "a_very_long_nam"
        );
        assert_eq!(display_name(&info("short", "/bin/shorter")), "short");
    }
}
