//! Sections of an ELF file, which only debuggers need: programs run without them.

use std::{borrow::Cow, collections::HashMap, fs::File, ops::Range};

use object::{
    CompressionFormat, LittleEndian as LE, Object as _, ObjectSection as _,
    read::{
        ReadCache, ReadRef,
        elf::{ElfFile64, SectionHeader as _, Sym as _},
    },
};

use crate::elf;

/// Maximum size of a section in bytes, as stored and when decompressed. Debug information of the
/// largest programs is of this order.
pub(super) const MAX_SECTION: u64 = 1 << 30;
/// Maximum length of a name, bytes.
const MAX_NAME: usize = 1 << 16;

/// An ELF file with sections.
pub(super) struct Sections<'a> {
    data: Data<'a>,
}

/// Source of the bytes.
enum Data<'a> {
    File(ReadCache<&'a File>),
    #[cfg(test)]
    Bytes(&'a [u8]),
}

impl<'a> Sections<'a> {
    /// Sections of an open file, read on demand.
    pub(super) fn of_file(file: &'a File) -> Self {
        Self {
            data: Data::File(ReadCache::new(file)),
        }
    }

    #[cfg(test)]
    pub(super) fn of(bytes: &'a [u8]) -> Self {
        Self {
            data: Data::Bytes(bytes),
        }
    }

    /// Bytes of a section, decompressed; `None` if there is no section with that name, or it is
    /// invalid.
    pub(super) fn bytes(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        match &self.data {
            Data::File(cache) => bytes(cache, name),
            #[cfg(test)]
            Data::Bytes(slice) => bytes(*slice, name),
        }
    }

    /// Address of a section in the file's own address space, and its bytes as by [`Self::bytes`].
    pub(super) fn placed(&self, name: &str) -> Option<(u64, Cow<'_, [u8]>)> {
        let address = match &self.data {
            Data::File(cache) => address(cache, name),
            #[cfg(test)]
            Data::Bytes(slice) => address(*slice, name),
        };
        Some((address?, self.bytes(name)?))
    }

    /// Calls `each` with name, address and size of every function in `.symtab`. Returns whether
    /// there is such a table.
    pub(super) fn symbols(&self, each: &mut dyn FnMut(&str, u64, u64)) -> bool {
        match &self.data {
            Data::File(cache) => symbols(cache, each),
            #[cfg(test)]
            Data::Bytes(slice) => symbols(*slice, each),
        }
        .is_some()
    }

    /// Words that have an address within `wanted` when the file is mapped at 0: relocated ones by
    /// address, as far as the file itself says their values.
    pub(super) fn addresses(&self, wanted: &Range<u64>) -> HashMap<u64, u64> {
        let mut found = HashMap::new();
        let number = |bytes: &[u8]| bytes.try_into().ok().map(u64::from_le_bytes);
        let mut add = |place: u64, value: u64| {
            if wanted.contains(&value) {
                found.insert(place, value);
            }
        };
        // The packed form of relocations (`.relr.dyn`) leaves the values where they are.
        for name in [".got", ".data.rel.ro", ".data"] {
            let Some((address, bytes)) = self.placed(name) else {
                continue;
            };
            for (place, word) in (address..).step_by(8).zip(bytes.chunks_exact(8)) {
                number(word).into_iter().for_each(|value| add(place, value));
            }
        }
        if let Some(bytes) = self.bytes(".rela.dyn") {
            for entry in bytes.chunks_exact(24) {
                let word = |at: usize| entry.get(at..at + 8).and_then(number);
                let is_relative = |kind: u64| kind as u32 == object::elf::R_X86_64_RELATIVE.0;
                if let (Some(place), Some(kind), Some(value)) = (word(0), word(8), word(16))
                    && is_relative(kind)
                {
                    add(place, value);
                }
            }
        }
        found
    }

    /// Addresses of the file's own symbols to which its relocations refer: what it exports and
    /// itself uses.
    pub(super) fn referred(&self) -> Vec<u64> {
        let symbols = self.bytes(".dynsym").unwrap_or_default();
        let value = |number: u64| {
            let at = usize::try_from(number)
                .ok()?
                .checked_mul(24)?
                .checked_add(8)?;
            let value = symbols.get(at..at.checked_add(8)?)?;
            value.try_into().ok().map(u64::from_le_bytes)
        };
        let mut found = Vec::new();
        for name in [".rela.dyn", ".rela.plt"] {
            let bytes = self.bytes(name).unwrap_or_default();
            let numbers = bytes.chunks_exact(24).filter_map(|entry| {
                let number = entry.get(12..16)?.try_into().ok()?;
                Some(u64::from(u32::from_le_bytes(number)))
            });
            // 0: no symbol. A value of 0: a symbol of another file.
            let values = numbers.filter(|number| *number != 0).filter_map(value);
            found.extend(values.filter(|value| *value != 0));
        }
        found
    }

    /// GNU build id, lower-case hex, from its section: separate debug files have program headers,
    /// but not the contents of the segments.
    pub(super) fn build_id(&self) -> Option<String> {
        elf::build_id_in_notes(&self.bytes(".note.gnu.build-id")?)
    }

    /// Name of the separate debug file, `.gnu_debuglink`.
    pub(super) fn debug_link(&self) -> Option<String> {
        let bytes = self.bytes(".gnu_debuglink")?;
        let name = bytes.split(|byte| *byte == 0).next()?;
        let name = std::str::from_utf8(name).ok()?;
        // Must be a name, not a path: gputrace chooses the directories in which it looks.
        (!name.is_empty() && name.len() < 256 && !name.contains('/')).then(|| name.to_owned())
    }
}

fn bytes<'data, R: ReadRef<'data>>(data: R, name: &str) -> Option<Cow<'data, [u8]>> {
    let file = ElfFile64::<LE, R>::parse(data).ok()?;
    let section = file.section_by_name(name)?;
    let (offset, size) = section.file_range()?;
    // Checked before that much memory is allocated.
    if size > MAX_SECTION || offset.checked_add(size)? > data.len().ok()? {
        return None;
    }
    let compressed = section.compressed_data().ok()?;
    if compressed.format == CompressionFormat::None {
        return Some(Cow::Borrowed(compressed.data));
    }
    // No linker output compresses by a factor above a thousand.
    let reasonable = (compressed.data.len() as u64).saturating_mul(1100);
    if compressed.uncompressed_size > MAX_SECTION.min(reasonable) {
        return None;
    }
    compressed.decompress().ok()
}

fn address<'data, R: ReadRef<'data>>(data: R, name: &str) -> Option<u64> {
    let file = ElfFile64::<LE, R>::parse(data).ok()?;
    Some(file.section_by_name(name)?.address())
}

fn symbols<'data, R: ReadRef<'data>>(data: R, each: &mut dyn FnMut(&str, u64, u64)) -> Option<()> {
    let file = ElfFile64::<LE, R>::parse(data).ok()?;
    let table = file.elf_section_table();
    let section = table
        .iter()
        .find(|section| section.sh_type(LE) == object::elf::SHT_SYMTAB)?;
    let strings = table.section(section.link(LE)).ok()?;
    for header in [section, strings] {
        let end = header.sh_offset(LE).checked_add(header.sh_size(LE))?;
        if header.sh_size(LE) > MAX_SECTION || end > data.len().ok()? {
            return None;
        }
    }
    let symbols = section
        .data_as_array::<object::elf::Sym64<LE>, R>(LE, data)
        .ok()?;
    let strings = strings.data(LE, data).ok()?;
    for symbol in symbols {
        if symbol.st_type() != object::elf::STT_FUNC
            || symbol.is_undefined(LE)
            || symbol.st_shndx(LE) == object::elf::SHN_ABS
        {
            continue;
        }
        let name = usize::try_from(symbol.st_name(LE))
            .ok()
            .and_then(|at| strings.get(at..))
            .map(|rest| rest.get(..MAX_NAME).unwrap_or(rest))
            .and_then(|rest| rest.split(|byte| *byte == 0).next())
            .and_then(|name| std::str::from_utf8(name).ok())
            .filter(|name| !name.is_empty());
        if let Some(name) = name {
            each(name, symbol.st_value(LE), symbol.st_size(LE));
        }
    }
    Some(())
}
