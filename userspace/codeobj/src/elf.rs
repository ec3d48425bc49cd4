//! ELF files with GPU code: symbols of kernel descriptors, and the metadata note.
//!
//! The layout is that of the ELF specification; AMD's numbers are those of LLVM's `AMDGPUUsage`,
//! "ELF Code Object".

use zerocopy::{
    FromBytes, Immutable, KnownLayout, Unaligned,
    little_endian::{U16, U32, U64},
};

use crate::isa::Version;

/// Why bytes are not a code object that gputrace can read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ElfError {
    /// The bytes are not ELF.
    #[error("it is not an ELF file")]
    NotElf,
    /// The file is 32-bit, big-endian or for another machine.
    #[error("it is an ELF file, but not one with code for AMD GPUs")]
    NotAmdgpu,
    /// The code is for a runtime other than HSA, such as graphics drivers.
    #[error("it holds AMD GPU code that is not for HSA (ELF OS ABI {0})")]
    NotHsa(u8),
    /// The format is newer than gputrace.
    #[error("it has ELF ABI version {0}, which this gputrace does not know")]
    UnknownVersion(u8),
    /// The file ends inside a part, or its headers say so.
    #[error("it ends inside its {0}")]
    Truncated(&'static str),
    /// A part is inconsistent.
    #[error("its {0} make no sense")]
    Corrupt(&'static str),
}

/// Layout of the available bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// The layout of the file.
    File,
    /// The loader's layout: from the lowest loaded address on, without section headers.
    Loaded,
}

/// `EM_AMDGPU`.
const MACHINE: u16 = 224;
/// `ELFOSABI_AMDGPU_HSA`.
const OS_ABI: u8 = 64;
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_NOTE: u32 = 4;
const PF_R: u32 = 4;
const SHT_SYMTAB: u32 = 2;
const SHT_DYNSYM: u32 = 11;
const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_STRSZ: u64 = 10;
const STT_OBJECT: u8 = 1;
/// `STT_AMDGPU_HSA_KERNEL`: kernels in version 2.
const STT_HSA_KERNEL: u8 = 10;
/// `NT_AMDGPU_METADATA`.
const NOTE_METADATA: u32 = 32;

/// Maximum number of program headers; linkers write about ten.
const MAX_PROGRAM_HEADERS: u16 = 512;
/// Maximum number of entries in the dynamic segment.
const MAX_DYNAMIC: usize = 4096;
/// Maximum length of a name, bytes. Mangled names of deeply nested templates have some ten thousand
/// characters.
const MAX_NAME: usize = 1 << 16;

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Header {
    magic: [u8; 4],
    class: u8,
    data: u8,
    version: u8,
    os_abi: u8,
    abi_version: u8,
    padding: [u8; 7],
    kind: U16,
    machine: U16,
    format: U32,
    entry: U64,
    program_headers: U64,
    section_headers: U64,
    flags: U32,
    size: U16,
    program_header_size: U16,
    program_header_count: U16,
    section_header_size: U16,
    section_header_count: U16,
    section_names: U16,
}

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct ProgramHeader {
    kind: U32,
    flags: U32,
    offset: U64,
    address: U64,
    physical: U64,
    file_size: U64,
    memory_size: U64,
    align: U64,
}

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct SectionHeader {
    pub(crate) name: U32,
    pub(crate) kind: U32,
    flags: U64,
    address: U64,
    pub(crate) offset: U64,
    pub(crate) size: U64,
    link: U32,
    info: U32,
    align: U64,
    entry_size: U64,
}

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawSymbol {
    name: U32,
    info: u8,
    other: u8,
    section: U16,
    value: U64,
    size: U64,
}

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Dynamic {
    tag: U64,
    value: U64,
}

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct NoteHeader {
    name_size: U32,
    size: U32,
    kind: U32,
}

/// Symbols, and the string table with their names.
type SymbolTable<'a> = (&'a [RawSymbol], &'a [u8]);

/// A symbol that stands for a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KernelSymbol<'a> {
    /// Name without `.kd`; may contain any bytes.
    pub(crate) name: &'a [u8],
    /// Address of the descriptor in the file's own address space.
    pub(crate) address: u64,
}

/// A code object's bytes with a checked header.
pub(crate) struct Elf<'a> {
    bytes: &'a [u8],
    layout: Layout,
    header: &'a Header,
    segments: &'a [ProgramHeader],
    version: Version,
    /// The lowest loaded address, and the number of bytes from there to the end of the highest.
    extent: (u64, u64),
}

impl<'a> Elf<'a> {
    /// Checks header and program headers.
    pub(crate) fn parse(bytes: &'a [u8], layout: Layout) -> Result<Self, ElfError> {
        if !bytes.starts_with(b"\x7fELF") {
            return Err(ElfError::NotElf);
        }
        let (header, _) =
            Header::ref_from_prefix(bytes).map_err(|_| ElfError::Truncated("file header"))?;
        if (header.class, header.data, header.machine.get()) != (2, 1, MACHINE) {
            return Err(ElfError::NotAmdgpu);
        }
        if header.os_abi != OS_ABI {
            return Err(ElfError::NotHsa(header.os_abi));
        }
        let version = Version::from_abi(header.abi_version)
            .ok_or(ElfError::UnknownVersion(header.abi_version))?;
        let count = header.program_header_count.get();
        if count > MAX_PROGRAM_HEADERS
            || (count > 0
                && usize::from(header.program_header_size.get()) != size_of::<ProgramHeader>())
        {
            return Err(ElfError::Corrupt("program headers"));
        }
        let segments = table(bytes, header.program_headers.get(), count.into())
            .ok_or(ElfError::Truncated("program headers"))?;
        Ok(Self {
            bytes,
            layout,
            header,
            segments,
            version,
            extent: extent(segments)?,
        })
    }

    pub(crate) fn version(&self) -> Version {
        self.version
    }

    /// `e_flags`.
    pub(crate) fn flags(&self) -> u32 {
        self.header.flags.get()
    }

    /// The lowest loaded address in the file's own address space, and the number of bytes from
    /// there to the end of the highest.
    pub(crate) fn extent(&self) -> (u64, u64) {
        self.extent
    }

    /// Addresses and sizes of the loaded segments that are neither writable nor executable.
    pub(crate) fn constants(&self) -> impl Iterator<Item = (u64, u64)> {
        self.loads()
            .filter(|segment| segment.flags.get() == PF_R)
            .map(|segment| (segment.address.get(), segment.file_size.get()))
    }

    /// Bytes at an address in the file's own address space.
    pub(crate) fn at(&self, address: u64, size: u64) -> Option<&'a [u8]> {
        let offset = match self.layout {
            Layout::Loaded => address.checked_sub(self.extent.0)?,
            Layout::File => self.loads().find_map(|segment| {
                let into = address.checked_sub(segment.address.get())?;
                let end = into.checked_add(size)?;
                (end <= segment.file_size.get())
                    .then(|| segment.offset.get().checked_add(into))
                    .flatten()
            })?,
        };
        slice(self.bytes, offset, size)
    }

    /// The metadata document, if there is one.
    pub(crate) fn metadata(&self) -> Option<&'a [u8]> {
        let notes = self
            .segments
            .iter()
            .filter(|segment| segment.kind.get() == PT_NOTE);
        notes
            .filter_map(|segment| self.segment(segment))
            .find_map(metadata_note)
    }

    /// The symbols of kernels, in order of address, one per address.
    pub(crate) fn kernels(&self) -> Result<Vec<KernelSymbol<'a>>, ElfError> {
        // Symbols may share names or parts of them, so their names can be longer in total than the
        // file.
        let mut budget = self.bytes.len().saturating_mul(4);
        let mut kernels = Vec::new();
        for (symbols, names) in self.symbol_tables()? {
            for symbol in symbols {
                let is_kernel = match symbol.info & 0xf {
                    STT_OBJECT => self.version != Version::V2 && symbol.size.get() == 64,
                    STT_HSA_KERNEL => self.version == Version::V2,
                    _ => false,
                };
                let address = symbol.value.get();
                let within = address
                    .checked_sub(self.extent.0)
                    .is_some_and(|at| at < self.extent.1);
                if !is_kernel || symbol.section.get() == 0 || !within {
                    continue;
                }
                let Some(name) = c_string(names, symbol.name.get()) else {
                    return Err(ElfError::Corrupt("symbol names"));
                };
                budget = budget
                    .checked_sub(name.len())
                    .ok_or(ElfError::Corrupt("symbol names"))?;
                let name = match self.version {
                    Version::V2 => name,
                    _ => match name.strip_suffix(b".kd") {
                        Some(name) => name,
                        None => continue,
                    },
                };
                kernels.push(KernelSymbol { name, address });
            }
        }
        // Both tables contain the same symbols.
        kernels.sort_by_key(|kernel| (kernel.address, kernel.name));
        kernels.dedup_by_key(|kernel| kernel.address);
        Ok(kernels)
    }

    fn loads(&self) -> impl Iterator<Item = &'a ProgramHeader> {
        loads(self.segments)
    }

    /// The bytes of a segment, as far as the file contains them.
    fn segment(&self, segment: &ProgramHeader) -> Option<&'a [u8]> {
        match self.layout {
            Layout::File => slice(self.bytes, segment.offset.get(), segment.file_size.get()),
            Layout::Loaded => self.at(segment.address.get(), segment.file_size.get()),
        }
    }

    /// Symbol tables with their names: those listed in the section headers or, if these were
    /// stripped or not loaded, the one for dynamic linking.
    fn symbol_tables(&self) -> Result<Vec<SymbolTable<'a>>, ElfError> {
        let mut tables = match self.layout {
            Layout::File => self.section_symbols()?,
            Layout::Loaded => Vec::new(),
        };
        if tables.is_empty() {
            tables.extend(self.dynamic_symbols()?);
        }
        Ok(tables)
    }

    fn section_symbols(&self) -> Result<Vec<SymbolTable<'a>>, ElfError> {
        let header = self.header;
        let count = header.section_header_count.get();
        if count == 0 {
            return Ok(Vec::new());
        }
        if usize::from(header.section_header_size.get()) != size_of::<SectionHeader>() {
            return Err(ElfError::Corrupt("section headers"));
        }
        let sections: &[SectionHeader] =
            table(self.bytes, header.section_headers.get(), count.into())
                .ok_or(ElfError::Truncated("section headers"))?;
        let mut tables = Vec::new();
        for section in sections {
            if !matches!(section.kind.get(), SHT_SYMTAB | SHT_DYNSYM) {
                continue;
            }
            let names = sections
                .get(section.link.get() as usize)
                .ok_or(ElfError::Corrupt("section headers"))?;
            let symbols = section.size.get() / size_of::<RawSymbol>() as u64;
            let symbols = table(self.bytes, section.offset.get(), symbols)
                .ok_or(ElfError::Truncated("symbol table"))?;
            let names = slice(self.bytes, names.offset.get(), names.size.get())
                .ok_or(ElfError::Truncated("symbol names"))?;
            tables.push((symbols, names));
            // Linkers write only one of each; more would only multiply the work.
            if tables.len() == 2 {
                break;
            }
        }
        Ok(tables)
    }

    fn dynamic_symbols(&self) -> Result<Option<SymbolTable<'a>>, ElfError> {
        let dynamic = self
            .segments
            .iter()
            .find(|segment| segment.kind.get() == PT_DYNAMIC);
        let Some(dynamic) = dynamic.and_then(|segment| self.segment(segment)) else {
            return Ok(None);
        };
        let count = (dynamic.len() / size_of::<Dynamic>()).min(MAX_DYNAMIC);
        let dynamic: &[Dynamic] = table(dynamic, 0, count as u64).unwrap_or_default();
        let value = |tag| {
            dynamic
                .iter()
                .take_while(|entry| entry.tag.get() != 0)
                .find_map(|entry| (entry.tag.get() == tag).then(|| entry.value.get()))
        };
        let (Some(symbols), Some(names), Some(names_size), Some(hash)) = (
            value(DT_SYMTAB),
            value(DT_STRTAB),
            value(DT_STRSZ),
            value(DT_HASH),
        ) else {
            return Ok(None);
        };
        // The hash table has one chain entry per symbol; nothing else stores the number of symbols.
        let count = hash
            .checked_add(4)
            .and_then(|chains| self.at(chains, 4))
            .and_then(|bytes| U32::read_from_bytes(bytes).ok())
            .ok_or(ElfError::Truncated("symbol hash table"))?;
        let size = u64::from(count.get()) * size_of::<RawSymbol>() as u64;
        let symbols = self
            .at(symbols, size)
            .and_then(|bytes| table(bytes, 0, count.get().into()))
            .ok_or(ElfError::Truncated("symbol table"))?;
        let names = self
            .at(names, names_size)
            .ok_or(ElfError::Truncated("symbol names"))?;
        Ok(Some((symbols, names)))
    }
}

fn loads(segments: &[ProgramHeader]) -> impl Iterator<Item = &ProgramHeader> {
    segments
        .iter()
        .filter(|segment| segment.kind.get() == PT_LOAD)
}

fn extent(segments: &[ProgramHeader]) -> Result<(u64, u64), ElfError> {
    let (mut low, mut high) = (u64::MAX, 0);
    for segment in loads(segments) {
        let begin = segment.address.get();
        let end = begin
            .checked_add(segment.memory_size.get())
            .ok_or(ElfError::Corrupt("program headers"))?;
        (low, high) = (low.min(begin), high.max(end));
    }
    Ok(if low < high {
        (low, high - low)
    } else {
        (0, 0)
    })
}

/// The first metadata document among the notes. Notes are padded to four bytes.
fn metadata_note(mut notes: &[u8]) -> Option<&[u8]> {
    while let Ok((header, rest)) = NoteHeader::ref_from_prefix(notes) {
        let (name, rest) = padded(rest, header.name_size.get())?;
        let (document, rest) = padded(rest, header.size.get())?;
        if header.kind.get() == NOTE_METADATA
            && name.strip_suffix(b"\0").unwrap_or(name) == b"AMDGPU"
        {
            return Some(document);
        }
        notes = rest;
    }
    None
}

/// The first `size` bytes, and the bytes after their padding, which the last note may lack.
fn padded(bytes: &[u8], size: u32) -> Option<(&[u8], &[u8])> {
    let size = size as usize;
    let rest = bytes
        .get(size.checked_next_multiple_of(4)?..)
        .unwrap_or_default();
    Some((bytes.get(..size)?, rest))
}

fn slice(bytes: &[u8], offset: u64, size: u64) -> Option<&[u8]> {
    let begin = usize::try_from(offset).ok()?;
    let end = begin.checked_add(usize::try_from(size).ok()?)?;
    bytes.get(begin..end)
}

fn table<T: FromBytes + Immutable + KnownLayout + Unaligned>(
    bytes: &[u8],
    offset: u64,
    count: u64,
) -> Option<&[T]> {
    let size = count.checked_mul(size_of::<T>() as u64)?;
    <[T]>::ref_from_bytes(slice(bytes, offset, size)?).ok()
}

/// The text at an offset, up to the terminating zero byte.
fn c_string(names: &[u8], offset: u32) -> Option<&[u8]> {
    let text = names.get(offset as usize..)?;
    let text = text.get(..MAX_NAME).unwrap_or(text);
    text.iter()
        .position(|byte| *byte == 0)
        .and_then(|end| text.get(..end))
}
