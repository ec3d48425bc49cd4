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

/// The interned strings of the packet sequence. A dispatch looks up some thirty: the hash is a fast one, with a
/// random seed.
///
/// Bounded: when the strings pass the limit, the sequence's incremental state is cleared and all
/// start again. Whoever keeps a number compares [`Interner::epoch`].
#[derive(Debug)]
pub(crate) struct Interner {
    tables: [HashMap<Box<str>, u64, RandomState>; 5],
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
