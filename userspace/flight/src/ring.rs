//! Which blocks of a growing capture are kept.

use std::{collections::VecDeque, time::Duration};

use gputrace_capture::{Block, Meta, meta::Recording};

use crate::{base::Base, discarded::Counts, dump::Moment};

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Everything that ended within this time is kept, if there is room for it; `None`: as much as
    /// there is room for.
    pub time: Option<Duration>,
    /// Maximum size of what is kept, bytes of the capture. The last block is always kept.
    pub bytes: u64,
}

/// What ended this long before the time that is kept is kept as well: it takes a while until the
/// cause of a dump is known.
const LAG: Duration = Duration::from_secs(2);

impl Limits {
    /// The size if only a time is given, bytes.
    pub const BYTES: u64 = 256 << 20;
}

/// What a ring needs to know of a block.
#[derive(Debug)]
pub struct Taken(What);

impl From<Block<'_>> for Taken {
    fn from(block: Block<'_>) -> Self {
        Self(match block {
            Block::Records(run) => What::Records(Counts::of(run), Base::tasks(run)),
            Block::Meta(meta) => What::Meta(Box::new(meta)),
            Block::Unknown { .. } => What::Other,
        })
    }
}

/// A block that is kept.
#[derive(Debug)]
struct Kept {
    /// Its begin in the file.
    offset: u64,
    /// Its number in the file.
    sequence: u64,
    /// All that it contains had happened by this time, ns `CLOCK_BOOTTIME`.
    time: u64,
    what: What,
}

#[derive(Debug)]
enum What {
    /// Their numbers, and the records about tasks.
    Records(Counts, Vec<u8>),
    Meta(Box<Meta>),
    /// Of a kind that is not known.
    Other,
}

/// Where the first kept block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) offset: u64,
    pub(crate) sequence: u64,
}

/// The blocks of a growing capture that are kept, by their places.
#[derive(Debug)]
pub struct Ring {
    limits: Limits,
    blocks: VecDeque<Kept>,
    recording: Recording,
    /// The place after the last block.
    end: Start,
    /// Whether blocks are kept although they are old.
    holds: bool,
    /// Everything that ended after this time is kept, ns `CLOCK_BOOTTIME`.
    from: u64,
    /// Whether that is so because there was no room for more.
    is_full: bool,
    pub(crate) base: Base,
    pub(crate) discarded: Counts,
}

impl Ring {
    /// A ring of a capture whose first block begins `offset` bytes from the start of the file.
    #[must_use]
    pub fn new(limits: Limits, offset: u64) -> Self {
        Self {
            limits,
            blocks: VecDeque::new(),
            recording: Recording::default(),
            end: Start {
                offset,
                sequence: 0,
            },
            holds: false,
            from: 0,
            is_full: false,
            base: Base::default(),
            discarded: Counts::default(),
        }
    }

    /// Takes the next block, which ends `end` bytes from the start of the file, and discards what is
    /// no longer to be kept. `now` is the time at which the block was read, ns `CLOCK_BOOTTIME`.
    pub fn push(&mut self, block: Taken, end: u64, now: u64) {
        if let What::Meta(meta) = &block.0
            && let Meta::Recording(recording) = &**meta
        {
            self.from = recording.clocks.boottime;
            self.recording = (**recording).clone();
        }
        self.blocks.push_back(Kept {
            offset: self.end.offset,
            sequence: self.end.sequence,
            time: now,
            what: block.0,
        });
        self.end = Start {
            offset: end,
            sequence: self.end.sequence + 1,
        };
        self.discard(now);
    }

    /// While set, nothing is discarded because of its age.
    pub fn hold(&mut self, holds: bool) {
        self.holds = holds;
    }

    /// Discards what a dump at this moment has, so that the next dump has what came since.
    pub fn discard_dumped(&mut self, moment: &Moment) {
        let end = |ring: &Self| {
            let next = ring.blocks.get(1);
            next.map_or(ring.end.offset, |next| next.offset)
        };
        while !self.blocks.is_empty() && end(self) <= moment.bytes {
            self.discard_first(false);
        }
        self.from = moment.time;
        // What was lost by then is in the account of that dump.
        self.base
            .meta(Meta::Ledger(Box::new(moment.ledger.clone())));
    }

    /// Discards blocks until the limits hold.
    fn discard(&mut self, now: u64) {
        let time = self.limits.time.filter(|_| !self.holds);
        let time = time.map_or(0, |time| now.saturating_sub(nanos(time + LAG)));
        while self.blocks.len() > 1
            && let Some(first) = self.blocks.front()
        {
            let is_full = self.end.offset - first.offset > self.limits.bytes;
            if first.time >= time && !is_full {
                break;
            }
            let is_early = self.limits.time.is_none() || first.time < time;
            self.discard_first(!is_early);
        }
    }

    /// Discards the first block, and keeps what it says of later ones.
    fn discard_first(&mut self, is_full: bool) {
        let Some(first) = self.blocks.pop_front() else {
            return;
        };
        match first.what {
            What::Records(counts, tasks) => {
                self.discarded.add(&counts);
                self.base.records(&tasks);
                self.from = first.time;
                self.is_full = is_full;
            }
            What::Meta(meta) => self.base.meta(*meta),
            What::Other => {}
        }
    }

    /// The place of the first kept block.
    pub(crate) fn start(&self) -> Start {
        self.blocks.front().map_or(self.end, |first| Start {
            offset: first.offset,
            sequence: first.sequence,
        })
    }

    /// Begin of what is kept in the file: bytes before it are not needed any more.
    #[must_use]
    pub fn begin(&self) -> u64 {
        self.start().offset
    }

    /// The end of the blocks taken so far, bytes from the start of the file.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.end.offset
    }

    /// The recording of which a part is kept.
    pub(crate) fn recording(&self) -> &Recording {
        &self.recording
    }

    /// Everything that ended after this time is kept, ns `CLOCK_BOOTTIME`.
    #[must_use]
    pub fn from(&self) -> u64 {
        self.from
    }

    /// Whether less is kept of the time before `time` (ns, `CLOCK_BOOTTIME`) than asked for, because
    /// there was no room for more.
    pub(crate) fn is_short(&self, time: u64) -> bool {
        let asked = self.limits.time.map_or(u64::MAX, nanos);
        self.is_full && self.from > time.saturating_sub(asked)
    }
}

/// A time in ns.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
