//! Strings that occur again and again are stored once and referred to by number.

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;

use crate::wire::{Encoder, graphics_context, interned};

/// The tables of `InternedData` in use. The number is that of the field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Table {
    Categories = 1,
    EventNames = 2,
    AnnotationNames = 3,
    /// Names of the queues and stages of the GPU's native events.
    GpuSpecifications = 24,
    AnnotationStrings = 29,
}

/// Places in [`Fixed`]: some times as many as there are such texts.
const PLACES: usize = 512;

/// Numbers of texts that are part of this program, found by their addresses in place of their contents: two texts of
/// the same address and length are the same.
#[derive(Debug)]
struct Fixed {
    /// Address, length and number; the number is 0 where there is none.
    places: Box<[(usize, usize, u64)]>,
}

impl Fixed {
    fn new() -> Self {
        Self {
            places: vec![(0, 0, 0); PLACES].into(),
        }
    }

    /// Texts lie one behind the other: most differ in the lowest bits of their addresses.
    #[inline]
    fn place(text: &'static str) -> usize {
        let address = text.as_ptr().addr();
        (address ^ address >> 9) % PLACES
    }

    #[inline]
    fn get(&self, text: &'static str) -> Option<u64> {
        let (address, length, number) = *self.places.get(Self::place(text))?;
        (address == text.as_ptr().addr() && length == text.len() && number != 0).then_some(number)
    }

    /// Remembers a number, in the place of another one perhaps.
    fn put(&mut self, text: &'static str, number: u64) {
        if let Some(place) = self.places.get_mut(Self::place(text)) {
            *place = (text.as_ptr().addr(), text.len(), number);
        }
    }

    fn clear(&mut self) {
        self.places.fill((0, 0, 0));
    }
}

/// The interned strings of the packet sequence. A dispatch looks up some thirty: the hash is a fast one, with a
/// random seed.
///
/// Bounded: when the strings pass the limit, the sequence's incremental state is cleared and all
/// start again. Whoever keeps a number compares [`Interner::epoch`].
#[derive(Debug)]
pub(crate) struct Interner {
    tables: [HashMap<Box<str>, u64, RandomState>; 5],
    fixed_names: Fixed,
    fixed_texts: Fixed,
    /// Processes that are graphics contexts; each is its own number.
    contexts: HashSet<u32>,
    /// Entries that no packet holds yet: fields of an `InternedData`.
    pending: Encoder,
    /// Bytes of text in the tables.
    size: usize,
    epoch: u32,
}

impl Interner {
    pub(crate) fn new() -> Self {
        Self {
            tables: Default::default(),
            fixed_names: Fixed::new(),
            fixed_texts: Fixed::new(),
            contexts: HashSet::new(),
            pending: Encoder::default(),
            size: 0,
            epoch: 1,
        }
    }

    /// The number of `text` in `table`, from 1.
    pub(crate) fn number(&mut self, table: Table, text: &str) -> u64 {
        let [categories, names, annotations, strings, specifications] = &mut self.tables;
        let known = match table {
            Table::Categories => categories,
            Table::EventNames => names,
            Table::AnnotationNames => annotations,
            Table::AnnotationStrings => strings,
            Table::GpuSpecifications => specifications,
        };
        if let Some(number) = known.get(text) {
            return *number;
        }
        let number = known.len() as u64 + 1;
        known.insert(text.into(), number);
        self.size += text.len();
        self.pending.message(table as u32, |entry| {
            entry.uint(interned::IID, number);
            entry.bytes(interned::TEXT, text.as_bytes());
        });
        number
    }

    /// As [`Interner::number`], for the name of an annotation that is part of this program.
    #[inline]
    pub(crate) fn annotation_name(&mut self, text: &'static str) -> u64 {
        match self.fixed_names.get(text) {
            Some(number) => number,
            None => {
                let number = self.number(Table::AnnotationNames, text);
                self.fixed_names.put(text, number);
                number
            }
        }
    }

    /// As [`Interner::number`], for the text of an annotation that is part of this program.
    #[inline]
    pub(crate) fn annotation_text(&mut self, text: &'static str) -> u64 {
        match self.fixed_texts.get(text) {
            Some(number) => number,
            None => {
                let number = self.number(Table::AnnotationStrings, text);
                self.fixed_texts.put(text, number);
                number
            }
        }
    }

    /// The graphics context that stands for process `pid`.
    pub(crate) fn context(&mut self, pid: u32) -> u64 {
        if self.contexts.insert(pid) {
            self.pending.message(graphics_context::IN_INTERNED_DATA, |entry| {
                entry.uint(graphics_context::IID, pid.into());
                entry.int32(graphics_context::PID, pid);
            });
        }
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

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.tables.iter_mut().for_each(HashMap::clear);
        self.fixed_names.clear();
        self.fixed_texts.clear();
        self.contexts.clear();
        self.pending.clear();
        self.size = 0;
        self.epoch = self.epoch.checked_add(1).unwrap_or(1);
    }

    /// Passes the entries that are new since the last call, if any, to `write`.
    pub(crate) fn take_pending(&mut self, write: impl FnOnce(&[u8])) {
        if !self.pending.as_bytes().is_empty() {
            write(self.pending.as_bytes());
            self.pending.clear();
        }
    }
}
