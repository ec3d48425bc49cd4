//! Interned strings: strings that recur are stored once and referred to by number.

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;

use crate::wire::{Encoder, graphics_context, interned};

/// The tables of `InternedData` in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Table {
    Categories,
    EventNames,
    AnnotationNames,
    /// Names of queues and of copies for native GPU events.
    GpuSpecifications,
    /// Names of kernels; in the same field as [`Self::GpuSpecifications`].
    ComputeStages,
    AnnotationStrings,
}

impl Table {
    /// The field number in `InternedData`.
    const fn field(self) -> u32 {
        match self {
            Self::Categories => 1,
            Self::EventNames => 2,
            Self::AnnotationNames => 3,
            Self::GpuSpecifications | Self::ComputeStages => 24,
            Self::AnnotationStrings => 29,
        }
    }

    /// Offset of the numbers, so that tables of the same field have no number in common.
    const fn from(self) -> u64 {
        match self {
            Self::ComputeStages => 1 << 32,
            _ => 0,
        }
    }
}

/// Number of slots in [`Fixed`]: several times the number of such texts.
const PLACES: usize = 512;

/// Maximum number of slots tried for a text, starting from the one that its address gives.
const TRIED: usize = 8;

/// Numbers of texts that are part of this program. They are looked up by address instead of
/// content: two texts of the same address and length are the same.
#[derive(Debug)]
struct Fixed {
    places: Box<[Place]>,
}

/// One text of this program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Place {
    address: usize,
    length: u32,
    /// Discriminant of the table.
    table: u32,
    /// 0 if the slot is empty.
    number: u64,
}

impl Fixed {
    fn new() -> Self {
        Self {
            places: vec![Place::default(); PLACES].into(),
        }
    }

    /// The slots where a text may be.
    #[inline(always)]
    fn indices(text: &'static str) -> impl Iterator<Item = usize> {
        // Texts are adjacent in memory: most differ in the lowest bits of their addresses.
        let address = text.as_ptr().addr();
        let first = address ^ address >> 9;
        (0..TRIED).map(move |step| first.wrapping_add(step) % PLACES)
    }

    #[inline(always)]
    fn get(&self, table: Table, text: &'static str) -> Option<u64> {
        let mut places = Self::indices(text).filter_map(|index| self.places.get(index));
        let place = places.find(|place| {
            place.address == text.as_ptr().addr()
                && place.length as usize == text.len()
                && place.table == table as u32
        })?;
        Some(place.number)
    }

    /// Stores a number, replacing another one if all slots are taken.
    fn put(&mut self, table: Table, text: &'static str, number: u64) {
        let mut indices = Self::indices(text);
        let is_free = |index: &usize| {
            self.places
                .get(*index)
                .is_some_and(|place| place.number == 0)
        };
        let free = indices.find(is_free).or_else(|| Self::indices(text).next());
        if let Some(place) = free.and_then(|index| self.places.get_mut(index)) {
            *place = Place {
                address: text.as_ptr().addr(),
                // No text of this program has 4 GiB.
                length: text.len() as u32,
                table: table as u32,
                number,
            };
        }
    }

    fn clear(&mut self) {
        self.places.fill(Place::default());
    }
}

/// The interned strings of the packet sequence. A dispatch needs some thirty lookups, so the hash
/// is a fast one, with a random seed.
///
/// Bounded: when the strings exceed the limit, the sequence's incremental state is cleared and all
/// numbers become invalid. Code that keeps a number must compare [`Interner::epoch`].
#[derive(Debug)]
pub(crate) struct Interner {
    tables: [HashMap<Box<str>, u64, RandomState>; 6],
    fixed: Fixed,
    /// Processes that are interned as graphics contexts, with their ids as numbers.
    contexts: HashSet<u32>,
    /// The context of the last lookup.
    last_context: Option<u32>,
    /// Entries that are in no packet yet: fields of an `InternedData`.
    pending: Encoder,
    /// Bytes of text in all tables.
    size: usize,
    epoch: u32,
}

impl Interner {
    pub(crate) fn new() -> Self {
        Self {
            tables: Default::default(),
            fixed: Fixed::new(),
            contexts: HashSet::new(),
            last_context: None,
            pending: Encoder::default(),
            size: 0,
            epoch: 1,
        }
    }

    /// The number of `text` in `table`, from 1.
    pub(crate) fn number(&mut self, table: Table, text: &str) -> u64 {
        let [
            categories,
            names,
            annotations,
            strings,
            specifications,
            stages,
        ] = &mut self.tables;
        let known = match table {
            Table::Categories => categories,
            Table::EventNames => names,
            Table::AnnotationNames => annotations,
            Table::AnnotationStrings => strings,
            Table::GpuSpecifications => specifications,
            Table::ComputeStages => stages,
        };
        if let Some(number) = known.get(text) {
            return *number;
        }
        let number = table.from() + known.len() as u64 + 1;
        known.insert(text.into(), number);
        self.size += text.len();
        self.pending.message(table.field(), |entry| {
            entry.uint(interned::IID, number);
            entry.bytes(interned::TEXT, text.as_bytes());
            if table == Table::ComputeStages {
                entry.uint(interned::STAGE_CATEGORY, interned::STAGE_COMPUTE);
            }
        });
        number
    }

    /// As [`Interner::number`], for a text that is part of this program.
    #[inline(always)]
    pub(crate) fn fixed(&mut self, table: Table, text: &'static str) -> u64 {
        match self.fixed.get(table, text) {
            Some(number) => number,
            None => self.first_fixed(table, text),
        }
    }

    #[cold]
    fn first_fixed(&mut self, table: Table, text: &'static str) -> u64 {
        let number = self.number(table, text);
        self.fixed.put(table, text, number);
        number
    }

    /// The number of the graphics context of process `pid`.
    pub(crate) fn context(&mut self, pid: u32) -> u64 {
        if self.last_context != Some(pid) && self.contexts.insert(pid) {
            self.pending
                .message(graphics_context::IN_INTERNED_DATA, |entry| {
                    entry.uint(graphics_context::IID, pid.into());
                    entry.int32(graphics_context::PID, pid);
                });
        }
        self.last_context = Some(pid);
        pid.into()
    }

    /// Bytes of text held.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Changes whenever all numbers become invalid; never 0.
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Removes all strings.
    pub(crate) fn clear(&mut self) {
        self.tables.iter_mut().for_each(HashMap::clear);
        self.fixed.clear();
        self.contexts.clear();
        self.last_context = None;
        self.pending.clear();
        self.size = 0;
        self.epoch = self.epoch.checked_add(1).unwrap_or(1);
    }

    /// Passes the entries added since the last call, if any, to `write`.
    pub(crate) fn take_pending(&mut self, write: impl FnOnce(&[u8])) {
        if !self.pending.as_bytes().is_empty() {
            write(self.pending.as_bytes());
            self.pending.clear();
        }
    }
}
