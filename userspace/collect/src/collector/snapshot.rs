//! The state of a recording that goes on.

use std::{collections::HashMap, sync::mpsc::channel, time::Duration};

use gputrace_abi::frame::Thread;
use gputrace_capture::ledger::Ledger;
use gputrace_loader::ProbeError;

use super::{Collector, CollectorHandle, Command};
use crate::{clocks, unfinished, watch::Peeked};

/// Maximum wait for readings of the memory of processes. Meanwhile the rings are not read.
const PEEK: Duration = Duration::from_millis(50);

/// The state of a recording that goes on.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// When, ns `CLOCK_BOOTTIME`.
    pub time: u64,
    /// The accounts so far. Calls that they have as seen, and neither as written nor as lost, are
    /// open, or in the rings.
    pub ledger: Ledger,
    /// Calls that were open, as records of kind
    /// [`UNFINISHED`](gputrace_abi::record::kind::UNFINISHED). Some may have ended just before
    /// `time`, and be in the capture as well.
    pub open: Vec<u8>,
    /// Readings of completion signals that are open, as records that are not in the capture. Empty
    /// if they could not be read in time.
    pub signals: Vec<u8>,
    /// Size of the capture, bytes. All that was in the rings at `time` is in it.
    pub bytes: u64,
}

impl CollectorHandle {
    /// The state of the recording; `None` if the collector is gone.
    /// [`CollectorHandle::finish`] then reports the reason.
    #[must_use]
    pub fn snapshot(&self) -> Option<Snapshot> {
        let (answer, state) = channel();
        self.send(Command::Snapshot(answer));
        state.recv().ok()
    }
}

impl Collector {
    pub(super) fn snapshot(&mut self) -> Result<Snapshot, ProbeError> {
        let peeked = self.watcher.as_ref().and_then(|watcher| watcher.peek(PEEK));
        let Peeked { found, signals } = peeked.unwrap_or_default();
        self.sink.watched(&found.records, &found.metas);
        let time = clocks::now();
        self.round();
        self.sink.flush();
        let bytes = self.sink.writer.size();
        let ledger = self.ledger(false)?;
        // Programs change the frames meanwhile. A frame that is read twice alike was whole, and its
        // call was open between the two readings.
        let before: HashMap<u64, Box<Thread>> = self.calls.threads()?.into_iter().collect();
        let mut open = Vec::new();
        for (id, mut thread) in self.calls.threads()? {
            let Some(earlier) = before.get(&id) else {
                continue;
            };
            let whole = unfinished::frames(&thread)
                .zip(unfinished::frames(earlier))
                .take_while(|((_, now), (_, before))| now == before && now.begin <= time)
                .count();
            thread.depth = whole as u32;
            unfinished::records(id, &thread, time, |_, bytes| open.extend_from_slice(bytes));
        }
        Ok(Snapshot {
            time,
            ledger,
            open,
            signals,
            bytes,
        })
    }
}
