//! Draws GPU work: kernels and copies as slices, native GPU events and counters.
//!
//! Dispatches and copies come in no particular order, and are written as they come: a slice is a
//! begin and an end, written together, on a track that is free at that time (module `lanes`).
//! Viewers sort them.
//!
//! # Tracks
//!
//! ```text
//! Agent 1 (gfx90a)                              one per agent
//!   COMPUTE Agent 1 QUEUE 1 GPU                 kernels that are drawn; one or more lanes
//!   COMPUTE Agent 1 QUEUE 1 GPU, not known how long   marks of the others
//!   COPY to Agent 1 GPU                         copies to it
//!   kernels in flight: Agent 1                  submitted and not ended
//!   copy bytes in flight: Agent 1
//! ```
//!
//! Lanes of a row have the same name, by which viewers join them. With [`GpuGrouping::Streams`],
//! there is a row per stream instead of per queue. A slice is on one row only.
//!
//! Categories are rocprofv3's `kernel_dispatch` and `memory_copy`, so that sums over them are sums
//! of real durations. Work that is not drawn (see [`GpuTime::is_drawn`]) has
//! `kernel_dispatch_untimed` and `memory_copy_untimed`. It is an instant with its bounds, or a slice
//! up to the end of the recording if it had not ended.

mod lanes;
mod notes;
mod rows;

use std::{
    borrow::Cow,
    collections::{BTreeMap, btree_map::Entry},
    io::{self, Write},
};

use gputrace_export::{
    gpu::{Gpus, copy_node, in_flight},
    levels::Levels,
};
use gputrace_timeline::{
    event::Event,
    gpu::{Copy, Dispatch, GpuTime, Origin},
    observation::{FieldValue, Observation},
};

use crate::sequence::{Annotations, EventType, NativeEvent, NativeLaunch, Sequence, Value};
use notes::Title;
use rows::{HeldBytes, Part, Place, RowKey, Rows, Work};

/// Maximum amount of unfinished work that is held back until the end of the recording is known. A
/// queue holds some ten thousand packets; work beyond this limit is drawn up to the latest known
/// time.
const HELD: usize = 1 << 14;

/// How an agent's GPU work is divided into rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GpuGrouping {
    /// One row of kernels per queue; copies are not divided.
    #[default]
    Queues,
    /// One row of kernels and copies per HIP stream of the call that submitted them.
    Streams,
}

/// Options for writing a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerfettoOptions {
    /// How GPU work is divided into rows.
    pub grouping: GpuGrouping,
    /// Whether to write kernels and copies a second time, as Perfetto's own GPU events
    /// (`GpuRenderStageEvent`). They fill the viewer's GPU section and the table `gpu_slice`, but
    /// can have neither flows nor most annotations. They are also rows of the table `slice`, where
    /// sums of durations would count each kernel twice.
    pub native_events: bool,
    /// Whether to compress the packets (deflate). Viewers read compressed traces as well; the file
    /// is a fraction of the size and takes longer to write.
    pub compress: bool,
}

impl Default for PerfettoOptions {
    fn default() -> Self {
        Self {
            grouping: GpuGrouping::Queues,
            native_events: false,
            compress: false,
        }
    }
}

/// The data that drawing a dispatch and drawing a copy have in common.
struct Span<'a> {
    work: Work,
    name: Cow<'a, str>,
    title: Title,
    node: Option<u32>,
    part: Part,
    /// Its number among native events, if one is written.
    native: Option<u64>,
    /// How the kernel was launched, if a native event is written.
    launch: Option<NativeLaunch>,
    origin: &'a Origin,
    time: &'a GpuTime,
    /// Kernels or bytes that are in flight meanwhile.
    amount: i64,
}

impl Span<'_> {
    fn category(&self) -> &'static str {
        match (self.work, self.time.is_drawn()) {
            (Work::Kernels, true) => "kernel_dispatch",
            (Work::Kernels, false) => "kernel_dispatch_untimed",
            (Work::Copies, true) => "memory_copy",
            (Work::Copies, false) => "memory_copy_untimed",
        }
    }
}

/// Work that had not ended when the recording stopped.
#[derive(Debug)]
enum Held {
    Dispatch(Box<Dispatch>),
    Copy(Box<Copy>),
}

/// Draws GPU work. Memory grows with the number of agents, queues, kernels and streams.
#[derive(Debug, Default)]
pub(crate) struct GpuWork {
    options: PerfettoOptions,
    gpus: Gpus,
    rows: Rows,
    /// Counters with their tracks.
    counters: BTreeMap<(Work, Option<u32>), (u64, Levels)>,
    held: Vec<Held>,
    known: notes::Known,
}

impl GpuWork {
    pub(crate) fn new(options: PerfettoOptions) -> Self {
        Self {
            options,
            ..Self::default()
        }
    }

    /// Takes an event about GPUs. `now` is the latest time seen, ns.
    pub(crate) fn event<W: Write>(
        &mut self,
        out: &mut Sequence<W>,
        event: &Event,
        now: u64,
    ) -> io::Result<()> {
        self.gpus.learn(event);
        self.known.learn(event);
        match event {
            Event::Dispatch(dispatch) if dispatch.time.unfinished && self.held.len() < HELD => {
                self.held.push(Held::Dispatch(dispatch.clone()));
                Ok(())
            }
            Event::Copy(copy) if copy.time.unfinished && self.held.len() < HELD => {
                self.held.push(Held::Copy(copy.clone()));
                Ok(())
            }
            Event::Dispatch(dispatch) => self.dispatch(out, dispatch, now),
            Event::Copy(copy) => self.copy(out, copy, now),
            _ => Ok(()),
        }
    }

    /// Draws how much memory of an agent is allocated after an allocation or a free.
    pub(crate) fn memory<W: Write>(
        &mut self,
        out: &mut Sequence<W>,
        one: &Observation,
    ) -> io::Result<()> {
        let Some(FieldValue::Number(node)) = one.get("node") else {
            return Ok(());
        };
        let node = u32::try_from(*node).ok();
        let fields = [
            ("live_bytes", HeldBytes::Allocated),
            ("live_scratch_bytes", HeldBytes::Scratch),
            ("live_hip_bytes", HeldBytes::Hip),
        ];
        let mut known = fields
            .into_iter()
            .filter_map(|(name, held)| match one.get(name)? {
                FieldValue::Number(live) => Some((*live, held)),
                _ => None,
            });
        let Some((live, held)) = known.next() else {
            return Ok(());
        };
        let track = self.rows.held_bytes(out, &self.gpus, held, node)?;
        out.event(one.end, EventType::Counter, track, |event| {
            event.counter(i64::try_from(live).unwrap_or(i64::MAX));
        })
    }

    /// The track of an agent, and its title.
    pub(crate) fn agent<W: Write>(
        &mut self,
        out: &mut Sequence<W>,
        node: Option<u32>,
    ) -> io::Result<(u64, String)> {
        let track = self.rows.agent(out, &self.gpus, node)?;
        Ok((track, self.gpus.agent_label(node)))
    }

    /// Draws what is left. `now` is when the recording ended, ns. Returns the number of spans that
    /// came too late to be counted in full.
    pub(crate) fn finish<W: Write>(&mut self, out: &mut Sequence<W>, now: u64) -> io::Result<u64> {
        for held in std::mem::take(&mut self.held) {
            match held {
                Held::Dispatch(dispatch) => self.dispatch(out, &dispatch, now)?,
                Held::Copy(copy) => self.copy(out, &copy, now)?,
            }
        }
        let mut late = 0;
        for (track, mut levels) in std::mem::take(&mut self.counters).into_values() {
            let mut written = Ok(());
            levels.finish(|time, level| write_level(out, track, time, level, &mut written));
            written?;
            late += levels.late();
        }
        Ok(late)
    }

    fn dispatch<W: Write>(
        &mut self,
        out: &mut Sequence<W>,
        dispatch: &Dispatch,
        now: u64,
    ) -> io::Result<()> {
        let Self {
            options,
            gpus,
            rows,
            counters,
            known,
            ..
        } = self;
        out.bound_interning()?;
        let native = options.native_events && dispatch.time.is_drawn();
        let span = Span {
            work: Work::Kernels,
            name: gpus.kernel_name(dispatch),
            title: known.title(out.interner(), gpus, dispatch, native),
            node: gpus.node_of(dispatch),
            part: match options.grouping {
                GpuGrouping::Queues => Part::Queue(dispatch.queue),
                GpuGrouping::Streams => stream(&dispatch.origin),
            },
            native: native.then_some(dispatch.id.wrapping_mul(2)),
            launch: native.then(|| notes::native_launch(gpus, dispatch)),
            origin: &dispatch.origin,
            time: &dispatch.time,
            amount: 1,
        };
        let notes =
            |annotations: &mut Annotations<'_>| notes::dispatch(annotations, known, gpus, dispatch);
        draw(out, rows, gpus, &span, now, notes)?;
        count(out, rows, gpus, counters, &span, now)
    }

    fn copy<W: Write>(&mut self, out: &mut Sequence<W>, copy: &Copy, now: u64) -> io::Result<()> {
        let Self {
            options,
            gpus,
            rows,
            counters,
            known,
            ..
        } = self;
        out.bound_interning()?;
        let native = options.native_events && copy.time.is_drawn();
        let direction = copy.direction.name();
        let span = Span {
            work: Work::Copies,
            name: direction.into(),
            title: Title::fixed(out.interner(), direction, native),
            node: copy_node(copy),
            part: match options.grouping {
                GpuGrouping::Queues => Part::All,
                GpuGrouping::Streams => stream(&copy.origin),
            },
            native: native.then_some(copy.id.wrapping_mul(2).wrapping_add(1)),
            launch: None,
            origin: &copy.origin,
            time: &copy.time,
            amount: i64::try_from(copy.bytes).unwrap_or(i64::MAX),
        };
        let notes = |annotations: &mut Annotations<'_>| notes::copy(annotations, known, gpus, copy);
        draw(out, rows, gpus, &span, now, notes)?;
        count(out, rows, gpus, counters, &span, now)
    }
}

fn stream(origin: &Origin) -> Part {
    Part::Stream {
        pid: origin.pid,
        number: origin.stream_id,
    }
}

/// Draws a span, or a mark if it has no length, and marks it if it is unfinished.
fn draw<W: Write>(
    out: &mut Sequence<W>,
    rows: &mut Rows,
    gpus: &Gpus,
    span: &Span<'_>,
    now: u64,
    notes: impl FnOnce(&mut Annotations<'_>),
) -> io::Result<()> {
    let time = span.time;
    let known_end = if time.unfinished {
        time.end.max(now)
    } else {
        time.end
    };
    // A slice that takes no time is drawn with 1 ns: its end must come after its begin.
    let (begin, end) = (time.begin, known_end.max(time.begin.saturating_add(1)));
    let timed = time.is_drawn();
    let key = RowKey {
        work: span.work,
        node: span.node,
        part: span.part,
        timed,
    };
    let drawn = (timed || time.unfinished).then_some((begin, end));
    let (place, queue) = rows.place(out, gpus, key, drawn, span.native.is_some())?;
    let (kind, track) = match place {
        Place::Slice(track) => (EventType::SliceBegin, track),
        Place::Instant(track) => (EventType::Instant, track),
    };
    out.event(begin, kind, track, |event| {
        event.title_in(span.category(), span.title.event);
        event.flow(span.origin.outermost);
        if span.origin.innermost != span.origin.outermost {
            event.flow(span.origin.innermost);
        }
        let mut annotations = event.annotations();
        notes::common(&mut annotations, span.origin, time);
        notes(&mut annotations);
    })?;
    if kind == EventType::SliceBegin {
        out.event(end, EventType::SliceEnd, track, |_| ())?;
    }
    if time.unfinished {
        out.event(end, EventType::Instant, track, |event| {
            let name = format!("unfinished: {}, the recording stopped", span.name);
            event.rare_title("unfinished", &name);
            let mut annotations = event.annotations();
            annotations.named("corr_id", Value::Uint(span.origin.caller));
            annotations.named("open_ns", Value::Uint(end.saturating_sub(begin)));
        })?;
    }
    if let Some(id) = span.native {
        out.native(&NativeEvent {
            id,
            begin,
            duration: end.saturating_sub(begin),
            gpu: span.node.map_or(0, |node| {
                gpus.agent(node).map_or(node, |info| info.absolute_index)
            }),
            pid: span.origin.pid,
            queue,
            stage: span.title.stage,
            launch: span.launch,
        })?;
    }
    Ok(())
}

/// Counts a span while it is in flight.
fn count<W: Write>(
    out: &mut Sequence<W>,
    rows: &mut Rows,
    gpus: &Gpus,
    counters: &mut BTreeMap<(Work, Option<u32>), (u64, Levels)>,
    span: &Span<'_>,
    now: u64,
) -> io::Result<()> {
    let flight = if span.time.unfinished {
        Some((span.origin.time, now))
    } else {
        in_flight(span.origin.time, span.time)
    };
    let Some((begin, end)) = flight else {
        return Ok(());
    };
    let (track, levels) = match counters.entry((span.work, span.node)) {
        Entry::Occupied(entry) => entry.into_mut(),
        Entry::Vacant(entry) => {
            let track = rows.counter(out, gpus, span.work, span.node)?;
            entry.insert((track, Levels::default()))
        }
    };
    let track = *track;
    let mut written = Ok(());
    levels.add(begin, end, span.amount, |time, level| {
        write_level(out, track, time, level, &mut written);
    });
    written
}

fn write_level<W: Write>(
    out: &mut Sequence<W>,
    track: u64,
    time: u64,
    level: i64,
    written: &mut io::Result<()>,
) {
    if written.is_ok() {
        *written = out.event(time, EventType::Counter, track, |event| {
            event.counter(level);
        });
    }
}
