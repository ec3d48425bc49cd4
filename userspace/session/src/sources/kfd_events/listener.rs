//! Listens to KFD's SMI events: evictions, migrations, page faults, resets, throttling.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use gputrace_capture::gpu::KfdEvent;
use gputrace_collect::{CommandSender, clocks};
use gputrace_kfd::{Paths, smi::SmiReader, topology::Topology};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Maximum time after which the end of the recording is noticed.
const PAUSE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};

/// A listening thread. Dropping this ends the thread.
#[derive(Debug)]
pub(crate) struct Listener {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Listens to every GPU of the node, and returns remarks as well. Returns `None` if there is no
    /// GPU to listen to.
    pub(crate) fn start(paths: &Paths, commands: CommandSender) -> (Option<Self>, Vec<String>) {
        let gpus = Topology::read(paths)
            .map(|topology| topology.gpu_ids())
            .unwrap_or_default();
        let mut remarks = Vec::new();
        let mut readers = Vec::new();
        for gpu in gpus {
            match SmiReader::open(paths, gpu) {
                Ok(reader) => readers.push(reader),
                Err(error) => {
                    remarks.push(format!("events of GPU {gpu} are not recorded: {error}"));
                }
            }
        }
        if readers.is_empty() {
            if remarks.is_empty() {
                remarks.push("KFD shows no GPU with events to record".to_owned());
            }
            return (None, remarks);
        }
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let listen = move || {
            while !stopping.load(Ordering::Relaxed) {
                round(&mut readers, &commands);
            }
        };
        match thread::Builder::new()
            .name("kfd events".to_owned())
            .spawn(listen)
        {
            Ok(thread) => (
                Some(Self {
                    stop,
                    thread: Some(thread),
                }),
                remarks,
            ),
            Err(error) => (
                None,
                vec![format!("events of KFD are not recorded: {error}")],
            ),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The thread can fail only because of a defect, which it has reported itself.
            let _ = thread.join();
        }
    }
}

/// Waits for events and hands them on. A GPU that answers with an error is given up.
fn round(readers: &mut Vec<SmiReader>, commands: &CommandSender) {
    let mut fds: Vec<PollFd<'_>> = readers
        .iter()
        .map(|reader| PollFd::new(reader, PollFlags::IN))
        .collect();
    // An interruption only makes the round come earlier.
    let _ = poll(&mut fds, Some(&PAUSE));
    drop(fds);
    readers.retain_mut(|reader| {
        let gpu_id = reader.gpu_id();
        let Ok(lines) = reader.read() else {
            return false;
        };
        let time = clocks::now();
        for line in lines {
            commands.meta(KfdEvent { gpu_id, time, line }.into());
        }
        true
    });
}
