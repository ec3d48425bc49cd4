//! A hand-made code object and runtime list, to be damaged in tests.

use std::collections::HashSet;

use crate::memory::{Memory, MemoryError};

/// Offset of the metadata note in [`code_object`].
pub(crate) const NOTE: usize = 0x200;
/// Address of the first descriptor.
pub(crate) const DESCRIPTOR: u64 = 0x500;

/// A code object for gfx906, version 4, with kernels `first` and `second`; file and loaded layout
/// are the same. With `sections`, it also has a symbol table that is listed in section headers.
pub(crate) fn code_object(sections: bool) -> Vec<u8> {
    let mut bytes = vec![0; 0x600];
    let mut put = |at: usize, data: &[u8]| bytes[at..at + data.len()].copy_from_slice(data);
    put(0, b"\x7fELF\x02\x01\x01\x40\x02");
    put(16, &3_u16.to_le_bytes());
    put(18, &224_u16.to_le_bytes());
    put(20, &1_u32.to_le_bytes());
    put(32, &64_u64.to_le_bytes());
    put(48, &0x52f_u32.to_le_bytes());
    put(54, &[56, 0, 3, 0]);
    let (note, symbols, names, hash) = (NOTE, 0x380, 0x3e0, 0x420);
    let kernel = |name: &str| {
        rmpv::Value::Map(vec![
            (".name".into(), name.into()),
            (".symbol".into(), format!("{name}.kd").into()),
            (".group_segment_fixed_size".into(), 512.into()),
            (".vgpr_count".into(), 3.into()),
        ])
    };
    let document = rmpv::Value::Map(vec![
        (
            "amdhsa.version".into(),
            rmpv::Value::Array(vec![1.into(), 1.into()]),
        ),
        (
            "amdhsa.kernels".into(),
            rmpv::Value::Array(vec![kernel("first"), kernel("second")]),
        ),
    ]);
    let mut metadata = Vec::new();
    rmpv::encode::write_value(&mut metadata, &document).unwrap();
    let note_size = 20 + metadata.len();
    put(note, &7_u32.to_le_bytes());
    put(note + 4, &(metadata.len() as u32).to_le_bytes());
    put(note + 8, &32_u32.to_le_bytes());
    put(note + 12, b"AMDGPU\0");
    put(note + 20, &metadata);
    assert!(note + note_size <= symbols);
    let header = |kind: u32, flags: u32, at: u64, size: u64| {
        let mut header = Vec::new();
        header.extend(kind.to_le_bytes());
        header.extend(flags.to_le_bytes());
        for word in [at, at, at, size, size, 8] {
            header.extend(word.to_le_bytes());
        }
        header
    };
    put(64, &header(1, 4, 0, 0x600));
    put(120, &header(4, 4, note as u64, note_size as u64));
    put(176, &header(2, 6, 0x460, 80));
    let symbol = |name: u32, address: u64| {
        let mut symbol = name.to_le_bytes().to_vec();
        symbol.extend([0x11, 3, 6, 0]);
        symbol.extend(address.to_le_bytes());
        symbol.extend(64_u64.to_le_bytes());
        symbol
    };
    put(symbols + 24, &symbol(1, DESCRIPTOR));
    put(symbols + 48, &symbol(10, DESCRIPTOR + 64));
    put(names, b"\0first.kd\0second.kd\0");
    put(hash, &1_u32.to_le_bytes());
    put(hash + 4, &3_u32.to_le_bytes());
    for (i, (tag, value)) in [(4, hash), (5, names), (6, symbols), (10, 20)]
        .into_iter()
        .enumerate()
    {
        put(0x460 + 16 * i, &u64::to_le_bytes(tag));
        put(0x468 + 16 * i, &(value as u64).to_le_bytes());
    }
    for i in [0, 64] {
        put(0x500 + i, &512_u32.to_le_bytes());
    }
    if sections {
        put(40, &0x580_u64.to_le_bytes());
        put(58, &[64, 0, 2, 0]);
        let mut section = |at: usize, kind: u32, offset: usize, size: u64, link: u32| {
            put(at + 4, &kind.to_le_bytes());
            put(at + 24, &(offset as u64).to_le_bytes());
            put(at + 32, &size.to_le_bytes());
            put(at + 40, &link.to_le_bytes());
        };
        section(0x580, 2, symbols, 72, 1);
        section(0x5c0, 3, names, 20, 0);
    }
    bytes
}

/// Simulated memory with given contents at given addresses; counts how often it is read.
#[derive(Debug, Default)]
pub(crate) struct Fake {
    pub(crate) parts: Vec<(u64, Vec<u8>)>,
    pub(crate) reads: std::cell::Cell<usize>,
}

impl Memory for Fake {
    fn read_some(&self, address: u64, buffer: &mut [u8]) -> Result<usize, MemoryError> {
        self.reads.set(self.reads.get() + 1);
        let there = self.parts.iter().find_map(|(base, bytes)| {
            let at = usize::try_from(address.checked_sub(*base)?).ok()?;
            bytes.get(at..)
        });
        let there = there.unwrap_or_default();
        let size = there.len().min(buffer.len());
        buffer[..size].copy_from_slice(&there[..size]);
        Ok(size)
    }
}

/// A list as ROCr keeps it: new entries go to the end, removed ones are zeroed.
pub(crate) struct List {
    pub(crate) memory: Fake,
    /// Entries in the order in which they were added, including removed ones.
    pub(crate) entries: Vec<u64>,
    /// Addresses of removed entries, the most recent one last.
    pub(crate) free: Vec<u64>,
    /// Entries in the list, with their URIs.
    order: Vec<(u64, String)>,
}

impl List {
    /// Address of the head: the beginning of its memory.
    pub(crate) const HEAD: u64 = 0x10_000;

    pub(crate) fn of(uris: &[&str]) -> Self {
        let mut list = Self {
            memory: Fake {
                parts: vec![(Self::HEAD, vec![0; 40])],
                ..Fake::default()
            },
            entries: Vec::new(),
            free: Vec::new(),
            order: Vec::new(),
        };
        for uri in uris {
            list.add(uri);
        }
        list
    }

    /// Stores bytes and a terminating zero, and returns their address.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> u64 {
        let (base, all) = &mut self.memory.parts[0];
        let at = *base + all.len() as u64;
        all.extend(bytes);
        all.push(0);
        at
    }

    pub(crate) fn set(&mut self, address: u64, word: u64) {
        let at = usize::try_from(address - Self::HEAD).unwrap();
        self.memory.parts[0].1[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }

    /// Adds an entry; its load address depends on the number of entries so far.
    pub(crate) fn add(&mut self, uri: &str) -> u64 {
        let entry = self.put(&[0; 40]);
        self.add_at(entry, uri)
    }

    /// Adds an entry in existing memory.
    pub(crate) fn add_at(&mut self, entry: u64, uri: &str) -> u64 {
        let delta = 0x1000 * self.entries.len() as u64;
        self.add_loaded(entry, delta, uri)
    }

    pub(crate) fn add_loaded(&mut self, entry: u64, delta: u64, uri: &str) -> u64 {
        let name = self.put(uri.as_bytes());
        let last = self.order.last().map_or(0, |(last, _)| *last);
        let link = if last == 0 { Self::HEAD + 8 } else { last + 24 };
        for (offset, word) in [(0, delta), (8, name), (24, 0), (32, last)] {
            self.set(entry + offset, word);
        }
        self.set(link, entry);
        self.entries.push(entry);
        self.order.push((entry, uri.to_owned()));
        entry
    }

    /// Removes the entry that was added as number `number`, if it is in the list.
    pub(crate) fn remove(&mut self, number: usize) {
        let entry = self.entries[number];
        if let Some(place) = self.order.iter().position(|(there, _)| *there == entry) {
            self.remove_nth(place);
        }
    }

    /// Removes an entry by its position in the list.
    pub(crate) fn remove_nth(&mut self, place: usize) {
        let (entry, _) = self.order.remove(place);
        let before = place
            .checked_sub(1)
            .map_or(0, |before| self.order[before].0);
        let after = self.order.get(place).map_or(0, |(after, _)| *after);
        self.set(
            if before == 0 {
                Self::HEAD + 8
            } else {
                before + 24
            },
            after,
        );
        if after != 0 {
            self.set(after + 32, before);
        }
        for offset in [0, 8, 24, 32] {
            self.set(entry + offset, 0);
        }
        self.free.push(entry);
    }

    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// The entries that a reader must find.
    pub(crate) fn there(&self) -> HashSet<(u64, Vec<u8>)> {
        let named = self.order.iter();
        named
            .map(|(entry, uri)| (*entry, uri.clone().into_bytes()))
            .collect()
    }
}
