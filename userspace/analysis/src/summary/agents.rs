//! How busy each GPU was: the figures that the summary, the report and the database share.

use std::collections::{BTreeMap, HashSet};

use gputrace_capture::meta::Notice;
use gputrace_timeline::{
    COLLECTION_PERIOD, WORK_NOT_SEEN, WORK_NOT_SELECTED,
    gpu::{Activity, Dispatch, QueueInfo},
    is_remark,
};

pub use super::busy::Estimate;
use super::busy::{Busy, Meaning, Reach};

/// When each GPU executed kernels. Memory is bounded by the number of GPUs and of queues.
#[derive(Debug, Default)]
pub struct Agents {
    /// By node.
    pub(super) busy: BTreeMap<Option<u32>, Busy>,
    /// When the recording began, ns `CLOCK_BOOTTIME`.
    pub(super) began: u64,
    /// Queues that are older than the recording and have had no dispatch yet.
    older: HashSet<u32>,
    /// Whether the recording says that some work was not seen, or is not shown.
    pub(super) is_partial: bool,
}

/// What is known of one GPU. Times are ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// Number of kernels, and of those of which nothing tells how long they took.
    pub kernels: u64,
    /// See `kernels`.
    pub untimed: u64,
    /// How long it executed at least one kernel; `None` if only the range is known.
    pub busy: Option<u64>,
    /// The range that contains the truth.
    pub busy_range: (u64, u64),
    /// How long it was at work for whatever process, by its status register; `None` if that tells
    /// nothing.
    pub active: Option<Estimate>,
    /// Whether kernels are missing: the recording says that some were not seen, or are not shown.
    pub missing: bool,
    /// Number of idle times between kernels; if some kernels are untimed, at least this many. 0 if
    /// kernels are missing.
    pub gaps: u64,
    /// Number of those whose whole length is known.
    pub whole_gaps: u64,
    /// Their median, 95th and 99th percentile; `None` if there are none.
    pub gap_percentiles: Option<[u64; 3]>,
    /// The least and the most that the longest gap can be.
    pub longest_gap_range: (u64, u64),
}

impl Agents {
    /// No kernels yet, in a recording that began at `began`, ns `CLOCK_BOOTTIME`.
    #[must_use]
    pub fn new(began: u64) -> Self {
        Self {
            began,
            ..Self::default()
        }
    }

    /// Learns of a remark: it may say that some work was not seen or is not shown, or that there
    /// are times in which nothing was recorded.
    pub fn notice(&mut self, notice: &Notice) {
        let partial = [WORK_NOT_SEEN, COLLECTION_PERIOD, WORK_NOT_SELECTED];
        self.is_partial |= partial.iter().any(|one| is_remark(&notice.text, one));
    }

    /// Learns of a queue.
    pub fn queue(&mut self, queue: &QueueInfo) {
        if queue.is_older {
            self.older.insert(queue.number);
        }
    }

    /// Adds a dispatch that `node` executed.
    pub fn dispatch(&mut self, node: Option<u32>, dispatch: &Dispatch) {
        let agent = self.busy.entry(node).or_default();
        if self.older.remove(&dispatch.queue) {
            agent.unseen(self.began, Reach::of(&dispatch.time).most.0);
        }
        agent.add(&dispatch.time);
    }

    /// Adds a reading of a GPU's status register.
    pub fn activity(&mut self, reading: &Activity) {
        self.busy
            .entry(reading.node_id)
            .or_default()
            .reading(reading);
    }

    /// Settles everything; must be called before [`Agents::figures`], and nothing may be added
    /// afterwards. `stopped` is when the recording stopped, ns `CLOCK_BOOTTIME`.
    pub fn finish(&mut self, stopped: u64) {
        let recorded = stopped.saturating_sub(self.began);
        // Of other GPUs, no more is known than that they were read.
        self.busy.retain(|_, busy| busy.kernels > 0);
        for busy in self.busy.values_mut() {
            busy.finish(stopped);
            if self.is_partial {
                busy.hide(recorded);
            }
        }
    }

    /// What is known of each GPU, by node, in a recording of `recorded` ns.
    pub fn figures(&self, recorded: u64) -> impl Iterator<Item = (Option<u32>, Figures)> {
        self.busy.iter().map(move |(node, busy)| {
            let whole = &busy.gaps.durations;
            let figures = Figures {
                kernels: busy.kernels,
                untimed: busy.untimed,
                busy: (busy.meaning(recorded) != Meaning::Nothing).then(|| busy.busy()),
                busy_range: busy.range(),
                active: busy.active(recorded),
                missing: self.is_partial,
                gaps: busy.gaps.count(),
                whole_gaps: whole.calls,
                gap_percentiles: (whole.calls > 0)
                    .then(|| [50.0, 95.0, 99.0].map(|percent| whole.percentile(percent))),
                longest_gap_range: busy.longest_gap_range(),
            };
            (*node, figures)
        })
    }
}
