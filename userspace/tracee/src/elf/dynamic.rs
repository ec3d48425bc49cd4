//! The dynamic segment: the tables of the dynamic linker, found by address as it finds them.

use std::collections::HashMap;

use object::{
    LittleEndian as LE, ReadRef, U16, U32, elf,
    read::elf::{Dyn, GnuHashTable, ProgramHeader, Sym},
};

use super::{
    ElfError, ElfInfo, Symbol, SymbolKind,
    parse::{Header, ProgramHeaders, Source},
    symbols::Candidate,
};

/// Maximum size of the version definitions, bytes. They take a few dozen bytes per release of a
/// library.
const MAX_VERSIONS: u64 = 1 << 20;
/// Maximum length of a symbol name, bytes. Longer names come from C++ templates, not from functions
/// of an API.
const MAX_NAME: usize = 4096;
/// Maximum size of all names together, bytes. Names may share bytes in the file, so the file's size
/// does not limit them.
const MAX_NAMES: usize = 512 << 20;
/// Maximum size of a hash table, bytes. At 4 bytes per symbol, this is far more than any library
/// exports.
const MAX_HASH: u64 = 64 << 20;

/// The entries of a dynamic segment that gputrace uses. Absent ones are 0, which is no valid
/// address of a table, because the file header is there.
#[derive(Default)]
pub(super) struct Dynamic<'data> {
    strings: &'data [u8],
    needed: Vec<u64>,
    soname: Option<u64>,
    runpath: Option<u64>,
    rpath: Option<u64>,
    symtab: u64,
    hash: u64,
    gnu_hash: u64,
    versym: u64,
    verdef: u64,
    verdef_count: u64,
    /// `DF_1_PIE`: the file is a program, although its type is that of a library.
    pub(super) is_pie: bool,
}

impl<'data> Dynamic<'data> {
    /// Reads the entries; `None` if the file has no dynamic segment.
    pub(super) fn read<R: ReadRef<'data>>(
        source: Source<'_, R>,
        headers: ProgramHeaders<'data>,
        info: &ElfInfo,
    ) -> Result<Option<Self>, ElfError> {
        let part = "dynamic segment";
        let Some(header) = headers
            .iter()
            .find(|header| header.p_type(LE) == elf::PT_DYNAMIC)
        else {
            return Ok(None);
        };
        let (offset, size) = header.file_range(LE);
        let count = size / size_of::<elf::Dyn64<LE>>() as u64;
        let entries = source.slice::<elf::Dyn64<LE>>(offset, count, part)?;

        let mut dynamic = Self::default();
        let (mut strtab, mut strsz) = (0, 0);
        for entry in entries
            .iter()
            .take_while(|entry| entry.d_tag(LE) != elf::DT_NULL)
        {
            let value = entry.d_val(LE);
            match entry.d_tag(LE) {
                elf::DT_NEEDED => dynamic.needed.push(value),
                elf::DT_SONAME => dynamic.soname = Some(value),
                elf::DT_RUNPATH => dynamic.runpath = Some(value),
                elf::DT_RPATH => dynamic.rpath = Some(value),
                elf::DT_STRTAB => strtab = value,
                elf::DT_STRSZ => strsz = value,
                elf::DT_SYMTAB => dynamic.symtab = value,
                elf::DT_HASH => dynamic.hash = value,
                elf::DT_GNU_HASH => dynamic.gnu_hash = value,
                elf::DT_VERSYM => dynamic.versym = value,
                elf::DT_VERDEF => dynamic.verdef = value,
                elf::DT_VERDEFNUM => dynamic.verdef_count = value,
                elf::DT_FLAGS_1 => dynamic.is_pie = value & elf::DF_1_PIE.0 != 0,
                _ => {}
            }
        }
        if strtab != 0 {
            let offset = info
                .file_offset(strtab)
                .ok_or_else(|| source.corrupt("dynamic string table"))?;
            dynamic.strings = source.bytes(offset, strsz, "dynamic string table")?;
        }
        Ok(Some(dynamic))
    }

    /// Sets the names that are stored in the string table; names that are not UTF-8 are left out.
    pub(super) fn names(&self, info: &mut ElfInfo) {
        let owned = |offset: &u64| self.string(*offset).map(str::to_owned);
        info.needed = self.needed.iter().filter_map(owned).collect();
        info.soname = self.soname.as_ref().and_then(owned);
        info.runpath = self.runpath.as_ref().and_then(owned);
        info.rpath = self.rpath.as_ref().and_then(owned);
    }

    fn string(&self, offset: u64) -> Option<&'data str> {
        let bytes = self.strings.get(usize::try_from(offset).ok()?..)?;
        let bytes = bytes.get(..MAX_NAME).unwrap_or(bytes);
        let end = bytes.iter().position(|byte| *byte == 0)?;
        std::str::from_utf8(bytes.get(..end)?).ok()
    }

    /// The exported definitions, in every version. Names that are not UTF-8, or longer than
    /// [`MAX_NAME`], cannot be asked for and are left out.
    pub(super) fn symbols<R: ReadRef<'data>>(
        &self,
        source: Source<'_, R>,
        info: &ElfInfo,
    ) -> Result<Vec<Candidate>, ElfError> {
        let part = "dynamic symbol table";
        let count = self.symbol_count(source, info)?;
        if count == 0 || self.symtab == 0 {
            return Ok(Vec::new());
        }
        let at = |address| {
            info.file_offset(address)
                .ok_or_else(|| source.corrupt(part))
        };
        let table = source.slice::<elf::Sym64<LE>>(at(self.symtab)?, count, part)?;
        let versions: &[U16<LE>] = match self.versym {
            0 => &[],
            address => source.slice(at(address)?, count, "symbol version table")?,
        };
        let names = self.version_names(source, info)?;

        let mut candidates = Vec::new();
        let mut name_bytes = 0;
        for (index, symbol) in table.iter().enumerate() {
            let kind = match symbol.st_type() {
                elf::STT_FUNC => SymbolKind::Function,
                elf::STT_GNU_IFUNC => SymbolKind::Indirect,
                elf::STT_OBJECT => SymbolKind::Object,
                _ => continue,
            };
            let exported = matches!(
                symbol.st_bind(),
                elf::STB_GLOBAL | elf::STB_WEAK | elf::STB_GNU_UNIQUE
            ) && matches!(
                symbol.st_visibility(),
                elf::STV_DEFAULT | elf::STV_PROTECTED
            );
            // An absolute "symbol" (a version node) has no location in the file.
            if !exported || symbol.is_undefined(LE) || symbol.st_shndx(LE) == elf::SHN_ABS {
                continue;
            }
            let Some(name) = self
                .string(symbol.st_name(LE).into())
                .filter(|name| !name.is_empty())
            else {
                continue;
            };
            name_bytes += name.len();
            if name_bytes > MAX_NAMES {
                return Err(source.corrupt("dynamic string table"));
            }
            let version = elf::VersymIndex(
                versions
                    .get(index)
                    .map_or(elf::VER_NDX_GLOBAL.0, |v| v.get(LE)),
            );
            let version_index = version.index().0;
            candidates.push(Candidate {
                symbol: Symbol {
                    name: name.to_owned(),
                    version: names.get(&version_index).map(|name| (*name).to_owned()),
                    kind,
                    address: symbol.st_value(LE),
                    size: symbol.st_size(LE),
                },
                hidden: version.is_hidden(),
                version_index,
            });
        }
        Ok(candidates)
    }

    /// Number of symbols. The symbol table does not store its length; the hash tables over it do.
    fn symbol_count<R: ReadRef<'data>>(
        &self,
        source: Source<'_, R>,
        info: &ElfInfo,
    ) -> Result<u64, ElfError> {
        let part = "symbol hash table";
        let corrupt = || source.corrupt(part);
        if self.hash != 0 {
            let offset = info.file_offset(self.hash).ok_or_else(corrupt)?;
            // `nbucket`, `nchain`; there is one chain entry per symbol.
            let [_, chains] = source.slice::<U32<LE>>(offset, 2, part)? else {
                return Err(corrupt());
            };
            return Ok(chains.get(LE).into());
        }
        if self.gnu_hash != 0 {
            let bytes = self.rest_of_segment(source, info, self.gnu_hash, MAX_HASH, part)?;
            let table = GnuHashTable::<Header>::parse(LE, bytes).map_err(|_| corrupt())?;
            // A table without entries names the first symbol that it would contain. No definitions
            // follow it, and only undefined symbols precede it.
            return Ok(table.symbol_table_length(LE).unwrap_or(0).into());
        }
        Ok(0)
    }

    /// Numbers and names of the versions that the file defines. The base version, which names the
    /// library itself, is left out.
    fn version_names<R: ReadRef<'data>>(
        &self,
        source: Source<'_, R>,
        info: &ElfInfo,
    ) -> Result<HashMap<u16, &'data str>, ElfError> {
        let part = "version definitions";
        let mut names = HashMap::new();
        if self.verdef == 0 {
            return Ok(names);
        }
        let bytes = self.rest_of_segment(source, info, self.verdef, MAX_VERSIONS, part)?;
        let mut at = 0;
        // There are at most as many definitions as version numbers.
        for _ in 0..self.verdef_count.min(elf::VERSYM_VERSION.into()) {
            let definition = bytes
                .read_at::<elf::Verdef<LE>>(at)
                .map_err(|()| source.truncated(part))?;
            let auxiliary = at + u64::from(definition.vd_aux.get(LE));
            if !definition.vd_flags.get(LE).contains(elf::VER_FLG_BASE) {
                let auxiliary = bytes
                    .read_at::<elf::Verdaux<LE>>(auxiliary)
                    .map_err(|()| source.truncated(part))?;
                if let Some(name) = self.string(auxiliary.vda_name.get(LE).into()) {
                    names.insert(definition.vd_ndx.get(LE).0, name);
                }
            }
            match definition.vd_next.get(LE) {
                0 => break,
                next => at += u64::from(next),
            }
        }
        Ok(names)
    }

    /// The file's bytes from `address` to the end of its segment, for tables whose length is known
    /// only from their contents.
    fn rest_of_segment<R: ReadRef<'data>>(
        &self,
        source: Source<'_, R>,
        info: &ElfInfo,
        address: u64,
        limit: u64,
        part: &'static str,
    ) -> Result<&'data [u8], ElfError> {
        let (offset, rest) = info
            .segments
            .iter()
            .find_map(|segment| segment.locate(address))
            .ok_or_else(|| source.corrupt(part))?;
        source.bytes(offset, rest.min(limit), part)
    }
}
