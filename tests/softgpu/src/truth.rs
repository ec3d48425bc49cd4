//! The ground-truth log: what the software GPU really did, with one JSON object per line.
//!
//! Every process writes its own file, `truth-<pid>.jsonl`, through a shared mapping. A record is in
//! the file as soon as it is written, without a system call, and survives if the process is killed.
//! A record is written before the completion signal is decremented, so the log contains everything
//! that a program saw complete.

use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use memmap2::{MmapMut, MmapOptions};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::clock::GpuClock;
use crate::fault::Fault;

/// A time on an agent: the tick of its clock, and the host's `CLOCK_BOOTTIME` in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Stamp {
    /// GPU ticks, exactly as written into signals.
    pub ticks: u64,
    /// `CLOCK_BOOTTIME`, ns.
    pub ns: u64,
}

/// The kind of packets in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueKind {
    /// AQL packets.
    Aql,
    /// SDMA packets.
    Sdma,
}

/// The location of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Process id.
    pub pid: u32,
    /// Agent, counted from 0.
    pub agent: u32,
    /// Queue number assigned by KFD.
    pub queue: u32,
    /// Packet index in an AQL queue; byte offset in an SDMA queue.
    pub index: u64,
}

/// A kernel that ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dispatch {
    /// Location of its packet.
    #[serde(flatten)]
    pub place: Place,
    /// `hsa_queue_t::id`.
    pub hsa_queue: u64,
    /// Address of the kernel descriptor.
    pub kernel_object: u64,
    /// Name in the code object, without `.kd`; empty when unknown.
    pub kernel: Arc<str>,
    /// Grid size in work-items.
    pub grid: [u32; 3],
    /// Work-items per workgroup.
    pub workgroup: [u16; 3],
    /// Start.
    pub begin: Stamp,
    /// End; `None` if it never ended.
    pub end: Option<Stamp>,
    /// Completion signal, 0 for none.
    pub signal: u64,
    /// Whether the ticks were written into the signal.
    pub stamped: bool,
    /// The injected fault, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
}

/// A packet that is not a kernel: barrier, vendor packet, agent dispatch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Other<'a> {
    /// Location of the packet.
    #[serde(flatten)]
    pub place: Place,
    /// `hsa_queue_t::id`.
    pub hsa_queue: u64,
    /// Its type: `barrier_and`, `barrier_or`, `barrier_value`, `pm4`, `agent_dispatch`.
    pub packet: Cow<'a, str>,
    /// When the packet was taken.
    pub begin: Stamp,
    /// When its condition was satisfied.
    pub end: Stamp,
    /// Completion signal, 0 for none.
    pub signal: u64,
    /// Whether the ticks were written into the signal.
    pub stamped: bool,
}

/// One contiguous piece of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// Source address.
    pub source: u64,
    /// Destination address.
    pub destination: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// What one submission to an SDMA queue copied or filled: everything up to its completion.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copy {
    /// Location of its first packet.
    #[serde(flatten)]
    pub place: Place,
    /// Total number of bytes.
    pub bytes: u64,
    /// Rows and chunks, with adjoining ones merged. A fill has source 0.
    pub pieces: Vec<Piece>,
    /// Start: the tick written by the submission's timestamp packet, if it had one.
    pub begin: Stamp,
    /// End, likewise.
    pub end: Stamp,
    /// Completion signal, 0 for none.
    pub signal: u64,
    /// Whether the ticks were written by timestamp packets.
    pub stamped: bool,
}

/// A request by the packet processor for scratch memory, or its return.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scratch {
    /// The packet that needed it.
    #[serde(flatten)]
    pub place: Place,
    /// `hsa_queue_t::id`.
    pub hsa_queue: u64,
    /// The value stored into the queue's inactive signal: 1 to ask, 512 to give back.
    pub request: i64,
    /// When it was stored; `CLOCK_BOOTTIME`, ns.
    pub begin: u64,
    /// When the runtime's answer was seen; `CLOCK_BOOTTIME`, ns.
    pub end: u64,
    /// `scratch_backing_memory_location` before and after.
    pub location: [u64; 2],
    /// `scratch_backing_memory_byte_size` before and after.
    pub bytes: [u64; 2],
    /// `scratch_wave64_lane_byte_size` before and after.
    pub lane_bytes: [u32; 2],
}

/// One line of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record<'a> {
    /// The start of the log.
    Process {
        /// Process id.
        pid: u32,
        /// `CLOCK_BOOTTIME`, ns.
        ns: u64,
        /// The program's path.
        program: Cow<'a, str>,
    },
    /// A GPU.
    Agent {
        /// Agent number, counted from 0.
        agent: u32,
        /// Instruction set.
        gfx: Cow<'a, str>,
        /// Its clock.
        clock: GpuClock,
    },
    /// The creation of a queue.
    Queue {
        /// Process id.
        pid: u32,
        /// Its agent.
        agent: u32,
        /// Queue number.
        queue: u32,
        /// The kind of its packets.
        kind: QueueKind,
        /// Address of `amd_queue_t`, 0 for SDMA.
        address: u64,
        /// Address of the ring.
        ring: u64,
        /// Size of the ring in bytes.
        ring_bytes: u64,
        /// `CLOCK_BOOTTIME`, ns.
        ns: u64,
    },
    /// The end of a queue.
    QueueEnd {
        /// Process id.
        pid: u32,
        /// Queue number.
        queue: u32,
        /// Number of packets (AQL) or bytes (SDMA) that were submitted and never taken.
        pending: u64,
        /// Number of packets that were taken and never completed.
        running: u64,
        /// `CLOCK_BOOTTIME`, ns.
        ns: u64,
    },
    /// The execution of a kernel.
    Dispatch(Dispatch),
    /// The processing of another AQL packet.
    Packet(Other<'a>),
    /// A copy or fill of memory.
    Copy(Copy),
    /// The runtime's answer to a request about scratch memory.
    Scratch(Scratch),
    /// A GPU reset, or a stop of a queue, by an injected fault.
    Fault {
        /// The packet at which it happened.
        #[serde(flatten)]
        place: Place,
        /// The fault.
        fault: Fault,
        /// `CLOCK_BOOTTIME`, ns.
        ns: u64,
    },
    /// Something unknown to the software GPU, which ended the program.
    Unknown {
        /// Process id.
        pid: u32,
        /// A description of the unknown thing.
        what: Cow<'a, str>,
        /// Its bytes, in hex.
        bytes: Cow<'a, str>,
    },
}

/// Why a log cannot be written or read.
#[derive(Debug, Error)]
pub enum TruthError {
    /// The file cannot be created, mapped or read.
    #[error("ground-truth log {}: {source}; SOFTGPU_LOG must name a writable directory", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// A line is not a valid record.
    #[error("ground-truth log {}, line {line}: {source}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Line number, counted from 1.
        line: usize,
        /// The reason.
        source: serde_json::Error,
    },
}

/// How much the file grows at a time. Must be a multiple of every page size.
const WINDOW_BYTES: u64 = 4 << 20;

/// The writer of one process's log.
#[derive(Debug)]
pub struct TruthLog {
    window: Mutex<Window>,
    path: PathBuf,
}

#[derive(Debug)]
struct Window {
    file: File,
    map: MmapMut,
    /// Offset of the mapping in the file.
    start: u64,
    /// How many bytes of the mapping have been written.
    used: usize,
}

impl TruthLog {
    /// Creates `truth-<pid>.jsonl` in a directory, and the directory if necessary.
    ///
    /// # Errors
    ///
    /// If the file cannot be created or mapped.
    pub fn create(directory: &Path) -> Result<Self, TruthError> {
        let path = directory.join(format!("truth-{}.jsonl", std::process::id()));
        let open = || -> std::io::Result<Window> {
            std::fs::create_dir_all(directory)?;
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(true)
                .open(&path)?;
            let map = map_window(&file, 0)?;
            Ok(Window {
                file,
                map,
                start: 0,
                used: 0,
            })
        };
        match open() {
            Ok(window) => Ok(Self {
                window: Mutex::new(window),
                path,
            }),
            Err(source) => Err(TruthError::File { path, source }),
        }
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes one record.
    ///
    /// # Errors
    ///
    /// If the file cannot grow.
    pub fn write(&self, record: &Record<'_>) -> Result<(), TruthError> {
        let attempt = || -> std::io::Result<()> {
            let mut line = Vec::with_capacity(512);
            serde_json::to_writer(&mut line, record)?;
            line.push(b'\n');
            self.window
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .append(&line)
        };
        attempt().map_err(|source| TruthError::File {
            path: self.path.clone(),
            source,
        })
    }
}

impl Window {
    fn append(&mut self, line: &[u8]) -> std::io::Result<()> {
        let mut rest = line;
        while !rest.is_empty() {
            if self.used == self.map.len() {
                self.start += WINDOW_BYTES;
                self.map = map_window(&self.file, self.start)?;
                self.used = 0;
            }
            let room = self.map.get_mut(self.used..).unwrap_or_default();
            let (now, later) = rest.split_at(rest.len().min(room.len()));
            for (to, from) in room.iter_mut().zip(now) {
                *to = *from;
            }
            self.used += now.len();
            rest = later;
        }
        Ok(())
    }
}

fn map_window(file: &File, start: u64) -> std::io::Result<MmapMut> {
    file.set_len(start + WINDOW_BYTES)?;
    let length = usize::try_from(WINDOW_BYTES).map_err(std::io::Error::other)?;
    // SAFETY: nobody else writes to or truncates the file, which carries this process's id.
    unsafe { MmapOptions::new().offset(start).len(length).map_mut(file) }
}

/// Reads a log, even if its writer was killed.
///
/// # Errors
///
/// If the file cannot be read or a line is not a valid record.
pub fn read(path: &Path) -> Result<Vec<Record<'static>>, TruthError> {
    let bytes = std::fs::read(path).map_err(|source| TruthError::File {
        path: path.to_owned(),
        source,
    })?;
    let end = bytes
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(bytes.len());
    let text = bytes.get(..end).unwrap_or_default();
    text.split(|byte| *byte == b'\n')
        .enumerate()
        .filter(|(_, line)| !line.is_empty())
        .map(|(number, line)| {
            serde_json::from_slice(line).map_err(|source| TruthError::Line {
                path: path.to_owned(),
                line: number + 1,
                source,
            })
        })
        .collect()
}

/// Reads all logs in a directory, one after the other.
///
/// # Errors
///
/// As for [`read`].
pub fn read_directory(directory: &Path) -> Result<Vec<Record<'static>>, TruthError> {
    let error = |source| TruthError::File {
        path: directory.to_owned(),
        source,
    };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(error)? {
        let path = entry.map_err(error)?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "jsonl")
        {
            paths.push(path);
        }
    }
    paths.sort();
    let mut records = Vec::new();
    for path in paths {
        records.extend(read(&path)?);
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_across_windows() {
        let directory = tempfile::tempdir().unwrap();
        let log = TruthLog::create(directory.path()).unwrap();
        let record = |queue| Record::QueueEnd {
            pid: 1,
            queue,
            pending: 0,
            running: 0,
            ns: 5,
        };
        // More than one window.
        let count = 100_000;
        for queue in 0..count {
            log.write(&record(queue)).unwrap();
        }
        let records = read(log.path()).unwrap();
        assert_eq!(records.len(), count as usize);
        assert!(
            records
                .iter()
                .zip(0..)
                .all(|(found, queue)| *found == record(queue))
        );
    }

    #[test]
    fn a_broken_line_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("truth-1.jsonl");
        std::fs::write(&path, "\n{\"record\":\"nonsense\"}\n").unwrap();
        let message = read(&path).unwrap_err().to_string();
        assert!(message.contains("line 2"), "{message}");
    }
}
