//! Rows of GPU work, each shown as one line by viewers, and their tracks.

use std::{
    collections::HashMap,
    io::{self, Write},
};

use foldhash::fast::RandomState;
use gputrace_capture::gpu::AgentKind;
use gputrace_export::gpu::{Gpus, queue_id};

use super::lanes::Lanes;
use crate::{
    intern::Table,
    packets::{Shows, Track, Unit},
    sequence::Sequence,
};

/// Suffix of the name of a row of work that is not drawn.
const UNTIMED: &str = "not known how long";

/// Kinds of memory counters.
#[derive(Clone, Copy, Debug)]
pub(super) enum HeldBytes {
    /// Memory allocated by HSA.
    Allocated,
    /// Scratch memory of queues.
    Scratch,
    /// Memory that applications requested from HIP.
    Hip,
}

/// Identifies a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct RowKey {
    pub(super) work: Work,
    /// Node of the agent.
    pub(super) node: Option<u32>,
    pub(super) part: Part,
    /// Whether it is drawn as long as it is.
    pub(super) timed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Work {
    Kernels,
    Copies,
}

/// A part of an agent's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Part {
    All,
    /// Work of the queue with this number.
    Queue(u32),
    /// Work of a process's stream; number 0 is a null stream or an unknown one.
    Stream {
        pid: u32,
        number: u32,
    },
}

impl RowKey {
    fn title(&self, gpus: &Gpus) -> String {
        let agent = match self.node {
            Some(_) => gpus.agent_label(self.node),
            None => "unknown agent".to_owned(),
        };
        let kind = match self
            .node
            .and_then(|node| gpus.agent(node))
            .map(|info| info.agent.kind)
        {
            Some(AgentKind::Cpu) => " CPU",
            Some(AgentKind::Gpu) => " GPU",
            None => "",
        };
        let what = match self.work {
            Work::Kernels => "COMPUTE",
            Work::Copies => "COPY to",
        };
        let part = match self.part {
            Part::All => String::new(),
            Part::Queue(number) => format!(" QUEUE {}", queue_id(number)),
            Part::Stream { pid, number } => format!(" STREAM {number} of process {pid}"),
        };
        let rest = if self.timed {
            String::new()
        } else {
            format!(", {UNTIMED}")
        };
        format!("{what} {agent}{part}{kind}{rest}")
    }
}

/// A row.
#[derive(Debug)]
pub(super) struct Row {
    title: String,
    /// Interned number of the title for native events, and its [`crate::intern::Interner::epoch`].
    interned: (u64, u32),
    parent: u64,
    lanes: Lanes,
    /// Tracks of the lanes; their descriptions have been written.
    tracks: Vec<u64>,
}

/// Where work is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// On a track that is free at that time.
    Slice(u64),
    /// As an instant on this track, because it has no length, or no slice fits.
    Instant(u64),
}

impl Row {
    fn descriptor(&self, track: u64) -> Track<'_> {
        Track {
            uuid: track,
            parent: self.parent,
            name: &self.title,
            ..Track::default()
        }
    }

    /// The track of a lane. Lanes are taken one after the other, so a lane without a track is the
    /// first such lane.
    fn track<W: Write>(&mut self, out: &mut Sequence<W>, lane: usize) -> io::Result<u64> {
        if let Some(track) = self.tracks.get(lane) {
            return Ok(*track);
        }
        let track = out.new_track();
        out.packet(&self.descriptor(track))?;
        self.tracks.push(track);
        Ok(track)
    }
}

/// All rows. Memory grows with the number of queues, agents and streams.
#[derive(Debug, Default)]
pub(super) struct Rows {
    rows: Vec<Row>,
    numbers: HashMap<RowKey, usize, RandomState>,
    /// The row of the last span.
    last: Option<(RowKey, usize)>,
    /// Tracks of agents, by node.
    agents: HashMap<Option<u32>, u64, RandomState>,
    /// Tracks of counters of agents.
    counters: HashMap<(u32, Option<u32>), u64, RandomState>,
}

impl Rows {
    /// A place for `span`, begin and end, in the row `key`, and the interned number of the row's
    /// name if `native`. Without a span it is an instant. If more spans overlap than there are
    /// lanes, a timed span gets a track of its own, and any other span becomes an instant.
    pub(super) fn place<W: Write>(
        &mut self,
        out: &mut Sequence<W>,
        gpus: &Gpus,
        key: RowKey,
        span: Option<(u64, u64)>,
        native: bool,
    ) -> io::Result<(Place, u64)> {
        let number = match self.last {
            Some((last, number)) if last == key => number,
            _ => self.number(out, gpus, key)?,
        };
        self.last = Some((key, number));
        let Some(row) = self.rows.get_mut(number) else {
            return Err(io::Error::other("no such row"));
        };
        let interner = out.interner();
        if native && row.interned.1 != interner.epoch() {
            let title = interner.number(Table::GpuSpecifications, &row.title);
            row.interned = (title, interner.epoch());
        }
        let lane = span.and_then(|(begin, end)| row.lanes.place(begin, end));
        let place = match lane {
            Some(lane) => Place::Slice(row.track(out, lane)?),
            None if key.timed => {
                let track = out.new_track();
                out.packet(&row.descriptor(track))?;
                Place::Slice(track)
            }
            None => Place::Instant(row.track(out, 0)?),
        };
        Ok((place, row.interned.0))
    }

    /// The index of a row, which is created if it is new.
    fn number<W: Write>(
        &mut self,
        out: &mut Sequence<W>,
        gpus: &Gpus,
        key: RowKey,
    ) -> io::Result<usize> {
        if let Some(number) = self.numbers.get(&key) {
            return Ok(*number);
        }
        let parent = self.agent(out, gpus, key.node)?;
        let number = self.rows.len();
        self.rows.push(Row {
            title: key.title(gpus),
            interned: (0, 0),
            parent,
            lanes: Lanes::default(),
            tracks: Vec::new(),
        });
        self.numbers.insert(key, number);
        Ok(number)
    }

    /// The track of an agent, above those of its rows.
    pub(super) fn agent<W: Write>(
        &mut self,
        out: &mut Sequence<W>,
        gpus: &Gpus,
        node: Option<u32>,
    ) -> io::Result<u64> {
        if let Some(track) = self.agents.get(&node) {
            return Ok(*track);
        }
        let track = out.new_track();
        out.packet(&Track {
            uuid: track,
            name: &gpus.agent_title(node),
            sorted: true,
            ..Track::default()
        })?;
        self.agents.insert(node, track);
        Ok(track)
    }

    /// The track of an agent's counter.
    pub(super) fn counter<W: Write>(
        &mut self,
        out: &mut Sequence<W>,
        gpus: &Gpus,
        work: Work,
        node: Option<u32>,
    ) -> io::Result<u64> {
        let what = match work {
            Work::Kernels => (1, "kernels in flight", Unit::Count),
            Work::Copies => (2, "copy bytes in flight", Unit::Bytes),
        };
        self.named_counter(out, gpus, what, node)
    }

    /// The track of a counter of an agent's memory, in bytes.
    pub(super) fn held_bytes<W: Write>(
        &mut self,
        out: &mut Sequence<W>,
        gpus: &Gpus,
        held: HeldBytes,
        node: Option<u32>,
    ) -> io::Result<u64> {
        let (number, name) = match held {
            HeldBytes::Allocated => (3, "allocated bytes"),
            HeldBytes::Scratch => (4, "scratch bytes"),
            HeldBytes::Hip => (5, "bytes that HIP was asked for"),
        };
        self.named_counter(out, gpus, (number, name, Unit::Bytes), node)
    }

    fn named_counter<W: Write>(
        &mut self,
        out: &mut Sequence<W>,
        gpus: &Gpus,
        (number, name, unit): (u32, &str, Unit<'_>),
        node: Option<u32>,
    ) -> io::Result<u64> {
        if let Some(track) = self.counters.get(&(number, node)) {
            return Ok(*track);
        }
        let parent = self.agent(out, gpus, node)?;
        let track = out.new_track();
        let agent = match node {
            Some(_) => gpus.agent_label(node),
            None => "unknown agent".to_owned(),
        };
        out.packet(&Track {
            uuid: track,
            parent,
            name: &format!("{name}: {agent}"),
            shows: Shows::Counter(unit),
            ..Track::default()
        })?;
        self.counters.insert((number, node), track);
        Ok(track)
    }
}
