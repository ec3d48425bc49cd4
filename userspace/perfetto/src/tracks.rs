//! Tracks: one per process, one per thread, and two of gputrace's own.
//!
//! A track's uuid is its number in the trace ([`Sequence::new_track`]), so that exporting a capture
//! again gives the same uuids. They are small numbers, because every packet has one. Ids of
//! processes and threads may be reused in a recording, and a process may execute another program:
//! then a new track begins. (Trace processor takes a second uuid for a pid or tid to mean just
//! that, and shows both.)

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use gputrace_timeline::event::ProcessInfo;

use crate::{
    nesting::Nest,
    packets::{self, Shows, Track},
    sequence::{EventType, Sequence},
};

/// Maximum length of `comm` in bytes (`TASK_COMM_LEN` without the NUL).
const COMM_MAX: usize = 15;

/// A track for gputrace's own remarks; the value is its uuid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnTrack {
    /// How the recording was made and how it ended.
    Recording = 1,
    /// What was lost, and notices.
    Ledger = 2,
}

impl OwnTrack {
    pub(crate) fn uuid(self) -> u64 {
        self as u64
    }

    fn name(self) -> &'static str {
        match self {
            Self::Recording => "gputrace: recording",
            Self::Ledger => "gputrace: loss ledger",
        }
    }
}

impl OwnTrack {
    /// The largest of these uuids.
    pub(crate) const LAST: u64 = Self::Ledger as u64;
}

/// How much of a track's description is in the trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Described {
    /// Nothing.
    #[default]
    No,
    /// An earlier state.
    Outdated,
    /// Everything.
    Yes,
}

impl Described {
    /// Marks the description as outdated, because something about the track has changed.
    fn outdate(&mut self) {
        if *self == Self::Yes {
            *self = Self::Outdated;
        }
    }
}

/// A process, or one of the programs that it executed.
#[derive(Debug, Default)]
struct Process {
    /// Number of processes and programs that had the id before.
    generation: u32,
    /// Uuid; valid if a description has been written.
    track: u64,
    info: ProcessInfo,
    described: Described,
    /// Tracks of ranges that may overlap, with the end of the last range on each, ns.
    lanes: Vec<(u64, u64)>,
}

impl Process {
    fn describe<W: Write>(&mut self, out: &mut Sequence<W>) -> io::Result<()> {
        match self.described {
            Described::Yes => return Ok(()),
            Described::No => self.track = out.new_track(),
            Described::Outdated => {}
        }
        self.described = Described::Yes;
        out.packet(&Track {
            uuid: self.track,
            shows: Shows::Process(packets::Process {
                pid: self.info.pid,
                command: &self.info.command,
                name: display_name(&self.info),
                start: self.info.start,
                labels: &self.info.identity.labels(),
            }),
            ..Track::default()
        })
    }

    /// From here on, the id stands for another process or program.
    fn begin_again(&mut self) {
        self.generation += 1;
        self.described = Described::No;
        self.lanes.clear();
    }

    fn learn(&mut self, info: &ProcessInfo) {
        if self.info != *info {
            self.info.clone_from(info);
            self.described.outdate();
        }
    }
}

/// A thread and the slices being drawn on its track.
#[derive(Debug, Default)]
pub(crate) struct Thread {
    pid: u32,
    tid: u32,
    /// Uuids of its track and of its process's track; valid if a description has been written.
    track: u64,
    parent: u64,
    /// Generation of the process that it belongs to.
    process: u32,
    name: String,
    described: Described,
    exited: bool,
    nest: Nest,
}

impl Thread {
    fn new(pid: u32, tid: u32, process: u32) -> Self {
        Self {
            pid,
            tid,
            process,
            ..Self::default()
        }
    }

    /// The thread's track.
    pub(crate) fn track(&self) -> u64 {
        self.track
    }

    /// The slices on the track.
    pub(crate) fn nest(&mut self) -> &mut Nest {
        &mut self.nest
    }

    /// Marks the thread as ended: its id may be reused.
    pub(crate) fn exited(&mut self) {
        self.exited = true;
    }

    /// Writes the track's description, below `process` if the track is new.
    fn describe<W: Write>(&mut self, out: &mut Sequence<W>, process: u64) -> io::Result<()> {
        match self.described {
            Described::Yes => return Ok(()),
            Described::No => (self.track, self.parent) = (out.new_track(), process),
            Described::Outdated => {}
        }
        self.described = Described::Yes;
        out.packet(&Track {
            uuid: self.track,
            parent: self.parent,
            shows: Shows::Thread(packets::Thread {
                pid: self.pid,
                tid: self.tid,
                name: &self.name,
            }),
            ..Track::default()
        })
    }

    /// Ends all open slices.
    fn close<W: Write>(&mut self, out: &mut Sequence<W>) -> io::Result<()> {
        let track = self.track;
        let mut result = Ok(());
        self.nest.close(|end| {
            if result.is_ok() {
                result = out.event(end, EventType::SliceEnd, track, |_| ());
            }
        });
        result
    }

    /// From here on, the ids stand for another thread, in the process generation `process`.
    fn begin_again<W: Write>(&mut self, out: &mut Sequence<W>, process: u32) -> io::Result<()> {
        self.close(out)?;
        if self.described == Described::Yes {
            // Otherwise the name already belongs to the thread that begins now.
            self.name.clear();
        }
        self.process = process;
        self.described = Described::No;
        self.exited = false;
        Ok(())
    }
}

/// The name of the process's program as people know it, or else the process's name. If the kernel
/// truncated that, the executable's file name if that begins with it.
fn display_name(info: &ProcessInfo) -> &str {
    if !info.identity.title.is_empty() {
        return &info.identity.title;
    }
    let file = info.executable.rsplit('/').next().unwrap_or_default();
    if info.name.len() >= COMM_MAX && file.starts_with(&info.name) {
        file
    } else {
        &info.name
    }
}

/// The tracks of the trace. Memory grows with the number of processes and threads.
///
/// A descriptor is written when something is drawn on its track, not when its name becomes known:
/// the new name of a process that begins, or that executes another program, comes just before the
/// event that says so, and belongs to a track that does not exist yet.
#[derive(Debug, Default)]
pub(crate) struct Tracks {
    processes: BTreeMap<u32, Process>,
    threads: BTreeMap<(u32, u32), Thread>,
}

impl Tracks {
    /// Writes the descriptions of gputrace's own tracks.
    pub(crate) fn describe_own<W: Write>(out: &mut Sequence<W>) -> io::Result<()> {
        for track in [OwnTrack::Recording, OwnTrack::Ledger] {
            out.packet(&Track {
                uuid: track.uuid(),
                name: track.name(),
                ..Track::default()
            })?;
        }
        Ok(())
    }

    /// Learns of a process.
    pub(crate) fn know_process(&mut self, info: &ProcessInfo) {
        self.process(info.pid).learn(info);
    }

    /// Learns a thread's name.
    pub(crate) fn know_thread(&mut self, pid: u32, tid: u32, name: &str) {
        let process = self.process(pid).generation;
        let thread = self
            .threads
            .entry((pid, tid))
            .or_insert_with(|| Thread::new(pid, tid, process));
        if thread.name != name {
            name.clone_into(&mut thread.name);
            thread.described.outdate();
        }
    }

    /// A process was created. If an earlier one had its id, a new track begins.
    pub(crate) fn process_started(&mut self, pid: u32) {
        let reused = self
            .threads
            .get(&(pid, pid))
            .is_some_and(|main| main.exited);
        if !reused {
            return;
        }
        let process = self.process(pid);
        if process.described == Described::Yes {
            // Otherwise the known data already belongs to the process that begins now.
            process.info = ProcessInfo {
                pid,
                ..ProcessInfo::default()
            };
        }
        process.begin_again();
    }

    /// A process executed another program, and is now called `name`. If anything was drawn for the
    /// previous program, a new track begins: released versions of trace processor never change the
    /// name of a process that has one, and would show the work of all programs under the name of,
    /// say, the shell that started them.
    pub(crate) fn executed(&mut self, pid: u32, name: &str) {
        self.know_thread(pid, pid, name);
        let process = self.process(pid);
        if process.info.name != name {
            process.learn(&ProcessInfo {
                pid,
                parent: process.info.parent,
                start: process.info.start,
                name: name.to_owned(),
                ..ProcessInfo::default()
            });
        }
        if process.described != Described::No {
            process.begin_again();
        }
    }

    /// A thread was created. If an earlier thread of the process had its id, a new track begins.
    pub(crate) fn thread_started<W: Write>(
        &mut self,
        out: &mut Sequence<W>,
        pid: u32,
        tid: u32,
    ) -> io::Result<()> {
        match self.threads.get_mut(&(pid, tid)) {
            Some(thread) if thread.exited => thread.begin_again(out, thread.process),
            _ => Ok(()),
        }
    }

    /// The track of process `pid`; its description is written first if necessary.
    pub(crate) fn process_track<W: Write>(
        &mut self,
        out: &mut Sequence<W>,
        pid: u32,
    ) -> io::Result<u64> {
        let process = self.process(pid);
        process.describe(out)?;
        Ok(process.track)
    }

    /// The thread `tid` of process `pid`, ready to draw on its track.
    pub(crate) fn thread<W: Write>(
        &mut self,
        out: &mut Sequence<W>,
        pid: u32,
        tid: u32,
    ) -> io::Result<&mut Thread> {
        let process = self.process(pid);
        process.describe(out)?;
        let (generation, track) = (process.generation, process.track);
        let thread = self
            .threads
            .entry((pid, tid))
            .or_insert_with(|| Thread::new(pid, tid, generation));
        if thread.process != generation {
            thread.begin_again(out, generation)?;
        }
        thread.describe(out, track)?;
        Ok(thread)
    }

    /// A track of process `pid` on which nothing is drawn from `begin` to `end`, for a range that
    /// may overlap with others. Ranges come in order of their ends, so a lane is free after the end
    /// of its last range.
    pub(crate) fn free_lane<W: Write>(
        &mut self,
        out: &mut Sequence<W>,
        pid: u32,
        (begin, end): (u64, u64),
    ) -> io::Result<u64> {
        let process = self.process(pid);
        process.describe(out)?;
        if let Some((track, free)) = process.lanes.iter_mut().find(|(_, free)| *free < begin) {
            *free = end;
            return Ok(*track);
        }
        let track = out.new_track();
        process.lanes.push((track, end));
        out.packet(&Track {
            uuid: track,
            parent: process.track,
            name: "ROCTx ranges",
            ..Track::default()
        })?;
        Ok(track)
    }

    /// The track of a thread if anything was drawn on it. Does not update its description.
    pub(crate) fn drawn(&self, pid: u32, tid: u32) -> Option<u64> {
        let process = self.processes.get(&pid)?;
        let thread = self.threads.get(&(pid, tid))?;
        let drawn = thread.process == process.generation && thread.described != Described::No;
        drawn.then_some(thread.track)
    }

    /// Ends all open slices, and writes descriptions of tracks without events.
    pub(crate) fn finish<W: Write>(&mut self, out: &mut Sequence<W>) -> io::Result<()> {
        for thread in self.threads.values_mut() {
            thread.close(out)?;
        }
        for process in self.processes.values_mut() {
            process.describe(out)?;
        }
        for thread in self.threads.values_mut() {
            let process = self.processes.get(&thread.pid);
            thread.describe(out, process.map_or(0, |process| process.track))?;
        }
        Ok(())
    }

    fn process(&mut self, pid: u32) -> &mut Process {
        self.processes.entry(pid).or_insert_with(|| Process {
            info: ProcessInfo {
                pid,
                ..ProcessInfo::default()
            },
            ..Process::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
