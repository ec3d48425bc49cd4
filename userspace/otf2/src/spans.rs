//! Sorts spans of many locations, which come in any order and must be written by location and time,
//! in bounded memory.
//!
//! Spans go to a nameless file in the output directory. Those of a location are then read in parts
//! that fit into memory, sorted, written back as sorted runs, and merged.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    fs::File,
    io,
    os::unix::fs::FileExt,
    vec,
};

use gputrace_export::{OutputDir, OutputError};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Something that lasted from `begin` to `end`.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub(crate) struct Span {
    /// ns, `CLOCK_BOOTTIME`.
    pub(crate) begin: u64,
    /// ns, not before `begin`.
    pub(crate) end: u64,
    /// Correlation id of the call, or of the call that submitted the work.
    pub(crate) correlation: u64,
    /// Maximum error of `begin`, ns; `u64::MAX` if it has no bound.
    pub(crate) start_uncertainty: u64,
    /// Maximum error of `end`, ns; `u64::MAX` if it has no bound.
    pub(crate) end_uncertainty: u64,
    /// Standard error of a duration that is an estimate, ns; `u64::MAX` if it is none.
    pub(crate) estimate_error: u64,
    /// The class whose mean the duration is; `u64::MAX` if there is none. Only GPU work (with a
    /// `quality`) has one.
    pub(crate) kernel_class: u64,
    /// Number of the region.
    pub(crate) region: u32,
    /// Number of spans around this one.
    pub(crate) depth: u16,
    /// Number of the quality, see [`crate::definitions`].
    pub(crate) quality: u8,
    /// Number of the reason why it had not ended.
    pub(crate) unfinished: u8,
}

/// Size in bytes of a span in the file.
const SIZE: usize = size_of::<Span>();

impl Span {
    /// Sort key: enclosing spans come before the spans that they enclose.
    fn key(&self) -> (u64, Reverse<u64>, u16, u64) {
        (self.begin, Reverse(self.end), self.depth, self.correlation)
    }
}

/// Limits, which are smaller in tests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Maximum number of spans of one location in memory.
    block: usize,
    /// Maximum number of spans of all locations in memory.
    waiting: usize,
    /// Maximum number of spans that are sorted at once.
    run: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            block: 4 << 10,
            waiting: 256 << 10,
            run: 1 << 20,
        }
    }
}

#[derive(Debug, Default)]
struct Location {
    waiting: Vec<Span>,
    /// Where in the file the spans before `waiting` are: index of the first, and count.
    blocks: Vec<(u64, u64)>,
}

/// Spans by location.
#[derive(Debug)]
pub(crate) struct Spans<K> {
    file: File,
    end: u64,
    waiting: usize,
    locations: BTreeMap<K, Location>,
    limits: Limits,
}

impl<K: Ord + Clone> Spans<K> {
    /// Starts without spans.
    pub(crate) fn new(directory: &OutputDir, limits: Limits) -> Result<Self, OutputError> {
        Ok(Self {
            file: directory.scratch()?,
            end: 0,
            waiting: 0,
            locations: BTreeMap::new(),
            limits,
        })
    }

    /// Adds a span.
    pub(crate) fn push(&mut self, location: K, span: Span) -> io::Result<()> {
        let Self {
            file,
            end,
            waiting,
            locations,
            limits,
        } = self;
        let location = locations.entry(location).or_default();
        location.waiting.push(span);
        *waiting += 1;
        if location.waiting.len() >= limits.block {
            *waiting -= location.waiting.len();
            store(file, end, location)?;
        }
        if *waiting >= limits.waiting {
            for location in locations.values_mut() {
                store(file, end, location)?;
                location.waiting = Vec::new();
            }
            *waiting = 0;
        }
        Ok(())
    }

    /// The locations that have spans.
    pub(crate) fn locations(&self) -> Vec<K> {
        self.locations.keys().cloned().collect()
    }

    /// Removes the spans of a location and returns them in order.
    pub(crate) fn sorted(&mut self, location: &K) -> io::Result<Sorted> {
        let Some(Location { waiting, blocks }) = self.locations.remove(location) else {
            return Sorted::new(&self.file, Vec::new(), Vec::new());
        };
        self.waiting -= waiting.len();
        let mut runs = Vec::new();
        let mut part = waiting;
        for (first, count) in blocks {
            read(&self.file, first, count, &mut part)?;
            if part.len() >= self.limits.run {
                part.sort_unstable_by_key(Span::key);
                self.file
                    .write_all_at(part.as_bytes(), self.end * SIZE as u64)?;
                runs.push((self.end, part.len() as u64));
                self.end += part.len() as u64;
                part.clear();
            }
        }
        part.sort_unstable_by_key(Span::key);
        Sorted::new(&self.file, runs, part)
    }
}

fn store(file: &File, end: &mut u64, location: &mut Location) -> io::Result<()> {
    if location.waiting.is_empty() {
        return Ok(());
    }
    file.write_all_at(location.waiting.as_bytes(), *end * SIZE as u64)?;
    let count = location.waiting.len() as u64;
    location.blocks.push((*end, count));
    *end += count;
    location.waiting.clear();
    Ok(())
}

fn read(file: &File, first: u64, count: u64, into: &mut Vec<Span>) -> io::Result<()> {
    let before = into.len();
    let count = usize::try_from(count).map_err(io::Error::other)?;
    into.resize(before + count, Span::new_zeroed());
    let new = into.get_mut(before..).unwrap_or_default();
    file.read_exact_at(new.as_mut_bytes(), first * SIZE as u64)
}

/// A sorted run, part of which is in memory.
#[derive(Debug)]
struct Run {
    part: vec::IntoIter<Span>,
    /// The part still in the file: index of the first span, and count.
    rest: (u64, u64),
}

/// An iterator over the spans of a location, in order.
#[derive(Debug)]
pub(crate) struct Sorted {
    file: File,
    runs: Vec<Run>,
    /// The key of each run's first span, with the run's index.
    heap: BinaryHeap<Reverse<(Order, usize)>>,
    firsts: Vec<Span>,
}

type Order = (u64, Reverse<u64>, u16, u64);

/// Number of spans of a run that are read at once.
const READ_AHEAD: u64 = 4 << 10;

impl Sorted {
    fn new(file: &File, runs: Vec<(u64, u64)>, last: Vec<Span>) -> io::Result<Self> {
        let mut this = Self {
            file: file.try_clone()?,
            runs: Vec::new(),
            heap: BinaryHeap::new(),
            firsts: Vec::new(),
        };
        let in_file = runs.into_iter().map(|rest| Run {
            part: Vec::new().into_iter(),
            rest,
        });
        let in_memory = Run {
            part: last.into_iter(),
            rest: (0, 0),
        };
        for (number, run) in in_file.chain([in_memory]).enumerate() {
            this.runs.push(run);
            this.firsts.push(Span::default());
            this.advance(number)?;
        }
        Ok(this)
    }

    /// Puts the next span of a run into the heap.
    fn advance(&mut self, number: usize) -> io::Result<()> {
        let (Some(run), Some(place)) = (self.runs.get_mut(number), self.firsts.get_mut(number))
        else {
            return Ok(());
        };
        let mut span = run.part.next();
        if span.is_none() && run.rest.1 > 0 {
            let (first, left) = run.rest;
            let count = left.min(READ_AHEAD);
            let mut part = Vec::new();
            read(&self.file, first, count, &mut part)?;
            run.rest = (first + count, left - count);
            run.part = part.into_iter();
            span = run.part.next();
        }
        if let Some(span) = span {
            *place = span;
            self.heap.push(Reverse((span.key(), number)));
        }
        Ok(())
    }
}

impl Iterator for Sorted {
    type Item = io::Result<Span>;

    fn next(&mut self) -> Option<Self::Item> {
        let Reverse((_, number)) = self.heap.pop()?;
        let span = *self.firsts.get(number)?;
        Some(self.advance(number).map(|()| span))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn spans_come_out_sorted(
            spans in proptest::collection::vec((0_u8..4, 0_u64..1000, 0_u64..50), 0..2000),
            run in 1_usize..300,
        ) {
            let directory = tempfile::tempdir().unwrap();
            let out = OutputDir::open(directory.path(), None).unwrap();
            let limits = Limits { block: 7, waiting: 20, run };
            let mut store = Spans::new(&out, limits).unwrap();
            let mut expected: BTreeMap<u8, Vec<Span>> = BTreeMap::new();
            for (number, (location, begin, length)) in spans.into_iter().enumerate() {
                let span = Span { begin, end: begin + length, correlation: number as u64, ..Span::default() };
                store.push(location, span).unwrap();
                expected.entry(location).or_default().push(span);
            }
            prop_assert!(store.locations().iter().eq(expected.keys()));
            for (location, mut spans) in expected {
                spans.sort_by_key(Span::key);
                let found: Vec<Span> = store.sorted(&location).unwrap().map(Result::unwrap).collect();
                prop_assert_eq!(found, spans);
            }
        }
    }
}
