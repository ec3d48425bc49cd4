//! Parses an ELF file into [`ElfInfo`].

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use object::{
    LittleEndian as LE, ReadRef, elf,
    pod::Pod,
    read::elf::{FileHeader, NoteIterator, ProgramHeader, SectionHeader, Sym},
};

use super::{ElfError, ElfInfo, Linkage, Segment, dynamic::Dynamic, symbols::choose_versions};

pub(super) type Header = elf::FileHeader64<LE>;
pub(super) type ProgramHeaders<'data> = &'data [elf::ProgramHeader64<LE>];

/// Maximum size of a table, bytes. Tables of real libraries are far smaller; a file with a larger
/// one is damaged.
const MAX_TABLE: u64 = 256 << 20;
/// `PATH_MAX` of Linux.
const MAX_PATH: u64 = 4096;
/// Maximum size of the notes of one segment, bytes.
const MAX_NOTES: u64 = 1 << 20;
/// Maximum number of program headers. Linkers write about ten.
const MAX_PROGRAM_HEADERS: u16 = 512;

/// Reads parts of a file, and converts failures into errors that name the part.
#[derive(Clone, Copy)]
pub(super) struct Source<'a, R> {
    pub(super) data: R,
    pub(super) path: &'a Path,
}

impl<'data, R: ReadRef<'data>> Source<'_, R> {
    pub(super) fn truncated(&self, part: &'static str) -> ElfError {
        ElfError::Truncated {
            path: self.path.to_owned(),
            part,
        }
    }

    pub(super) fn corrupt(&self, part: &'static str) -> ElfError {
        ElfError::Corrupt {
            path: self.path.to_owned(),
            part,
        }
    }

    pub(super) fn bytes(
        &self,
        offset: u64,
        size: u64,
        part: &'static str,
    ) -> Result<&'data [u8], ElfError> {
        if size > MAX_TABLE {
            return Err(self.corrupt(part));
        }
        self.data
            .read_bytes_at(offset, size)
            .map_err(|()| self.truncated(part))
    }

    pub(super) fn slice<T: Pod>(
        &self,
        offset: u64,
        count: u64,
        part: &'static str,
    ) -> Result<&'data [T], ElfError> {
        let count = usize::try_from(count).map_err(|_| self.corrupt(part))?;
        let size = count
            .checked_mul(size_of::<T>())
            .ok_or_else(|| self.corrupt(part))?;
        let bytes = self.bytes(offset, size as u64, part)?;
        object::pod::slice_from_bytes(bytes, count)
            .map(|(slice, _)| slice)
            .map_err(|()| self.corrupt(part))
    }
}

pub(super) fn parse<'data, R: ReadRef<'data>>(data: R, path: &Path) -> Result<ElfInfo, ElfError> {
    let source = Source { data, path };
    let (mut info, dynamic) = without_symbols(source)?;
    if let Some(dynamic) = dynamic {
        let candidates = dynamic.symbols(source, &info)?;
        (info.symbols, info.superseded) = choose_versions(candidates);
    }
    Ok(info)
}

/// Parses everything but the symbols, and returns the dynamic segment for those.
pub(super) fn without_symbols<'data, R: ReadRef<'data>>(
    source: Source<'_, R>,
) -> Result<(ElfInfo, Option<Dynamic<'data>>), ElfError> {
    let data = source.data;
    let header = header(source)?;
    if header.e_phnum(LE) > MAX_PROGRAM_HEADERS {
        return Err(source.corrupt("program header table"));
    }
    let headers = header
        .program_headers(LE, data)
        .map_err(|_| source.truncated("program headers"))?;
    let segments: Vec<_> = headers
        .iter()
        .filter(|header| header.p_type(LE) == elf::PT_LOAD)
        .map(|header| Segment {
            offset: header.p_offset(LE),
            address: header.p_vaddr(LE),
            size: header.p_filesz(LE),
            executable: header.p_flags(LE).contains(elf::PF_X),
        })
        .collect();
    let mut info = ElfInfo {
        build_id: build_id(source, headers),
        soname: None,
        needed: Vec::new(),
        runpath: None,
        rpath: None,
        interpreter: interpreter(source, headers)?,
        linkage: Linkage::Dynamic,
        segments,
        symbols: Vec::new(),
        superseded: Vec::new(),
    };
    let dynamic = Dynamic::read(source, headers, &info)?;
    let is_program =
        header.e_type(LE) == elf::ET_EXEC || dynamic.as_ref().is_some_and(|dynamic| dynamic.is_pie);
    if is_program && info.interpreter.is_none() {
        info.linkage = Linkage::Static;
    }
    if let Some(dynamic) = &dynamic {
        dynamic.names(&mut info);
    }
    Ok((info, dynamic))
}

/// Reads the file header, if it is that of 64-bit x86.
fn header<'data, R: ReadRef<'data>>(source: Source<'_, R>) -> Result<&'data Header, ElfError> {
    let path = || source.path.to_owned();
    let start = source.data.read_bytes_at(0, 4).unwrap_or_default();
    if start != elf::ELFMAG {
        return Err(ElfError::NotElf { path: path() });
    }
    // Class, byte order and machine have the same offsets in every ELF file, including 32-bit ones.
    let &[class, order] = source.bytes(4, 2, "file header")? else {
        return Err(source.truncated("file header"));
    };
    let &[low, high] = source.bytes(18, 2, "file header")? else {
        return Err(source.truncated("file header"));
    };
    let (is_64, little) = (class == elf::ELFCLASS64.0, order != elf::ELFDATA2MSB.0);
    let machine = elf::Machine(if little {
        u16::from_le_bytes([low, high])
    } else {
        u16::from_be_bytes([low, high])
    });
    if !is_64 || !little || machine != elf::EM_X86_64 {
        let architecture = architecture(machine, is_64, little);
        return Err(ElfError::WrongArchitecture {
            path: path(),
            architecture,
        });
    }
    source
        .data
        .read_at::<Header>(0)
        .map_err(|()| source.truncated("file header"))
}

/// Name, for people, of the architecture that a file is built for.
fn architecture(machine: elf::Machine, is_64: bool, little: bool) -> String {
    let name = match machine {
        elf::EM_386 => return "32-bit x86".to_owned(),
        elf::EM_X86_64 if !is_64 => return "x32 (32-bit pointers on x86-64)".to_owned(),
        elf::EM_X86_64 => "x86-64",
        elf::EM_AARCH64 => "AArch64",
        elf::EM_ARM => "ARM",
        elf::EM_PPC64 => "PowerPC",
        elf::EM_RISCV => "RISC-V",
        elf::EM_LOONGARCH => "LoongArch",
        elf::EM_S390 => "S/390",
        elf::EM_AMDGPU => "AMD GPUs (a code object)",
        elf::Machine(number) => return format!("machine number {number}"),
    };
    format!("{name}{}", if little { "" } else { ", big-endian" })
}

fn interpreter<'data, R: ReadRef<'data>>(
    source: Source<'_, R>,
    headers: ProgramHeaders<'_>,
) -> Result<Option<PathBuf>, ElfError> {
    let part = "interpreter path";
    let Some(header) = headers
        .iter()
        .find(|header| header.p_type(LE) == elf::PT_INTERP)
    else {
        return Ok(None);
    };
    let (offset, size) = header.file_range(LE);
    let bytes = source.bytes(offset, size.min(MAX_PATH), part)?;
    let end = bytes
        .iter()
        .position(|byte| *byte == 0)
        .ok_or_else(|| source.corrupt(part))?;
    Ok(bytes
        .get(..end)
        .map(|path| PathBuf::from(OsStr::from_bytes(path))))
}

/// The GNU build id from the note segments; `None` if there is none, or the notes cannot be read. A
/// program can be traced without a build id.
fn build_id<'data, R: ReadRef<'data>>(
    source: Source<'_, R>,
    headers: ProgramHeaders<'_>,
) -> Option<String> {
    headers
        .iter()
        .filter(|header| header.p_type(LE) == elf::PT_NOTE)
        .find_map(|header| {
            let (offset, size) = header.file_range(LE);
            let bytes = source.bytes(offset, size.min(MAX_NOTES), "notes").ok()?;
            build_id_in_notes(bytes, header.p_align(LE))
        })
}

/// Build id of the file that begins with these bytes, if they contain it.
pub(super) fn build_id_of(start: &[u8]) -> Option<String> {
    let source = Source {
        data: start,
        path: Path::new("memory"),
    };
    let header = header(source)
        .ok()
        .filter(|header| header.e_phnum(LE) <= MAX_PROGRAM_HEADERS)?;
    let headers = header.program_headers(LE, start).ok()?;
    build_id(source, headers)
}

/// The GNU build id in the bytes of one note segment, lower-case hex.
pub(super) fn build_id_in_notes(bytes: &[u8], align: u64) -> Option<String> {
    let mut notes = NoteIterator::<Header>::new(LE, align, bytes).ok()?;
    while let Ok(Some(note)) = notes.next() {
        if note.name() == elf::ELF_NOTE_GNU
            && note.n_type(LE) == elf::NT_GNU_BUILD_ID
            && !note.desc().is_empty()
        {
            return Some(
                note.desc()
                    .iter()
                    .map(|byte| format!("{byte:02x}"))
                    .collect(),
            );
        }
    }
    None
}

/// Whether the file itself defines a function, exported or not, whose name satisfies `wanted`.
/// Searches the full symbol table (`.symtab`), which stripped files do not have.
pub(super) fn defines_function<'data, R: ReadRef<'data>>(
    data: R,
    wanted: impl Fn(&str) -> bool,
) -> bool {
    let Ok(header) = Header::parse(data) else {
        return false;
    };
    let Ok(sections) = header.sections(LE, data) else {
        return false;
    };
    let Some((_, section)) = sections
        .enumerate()
        .find(|(_, section)| section.sh_type(LE) == elf::SHT_SYMTAB)
    else {
        return false;
    };
    let limit = |size: u64| (size <= MAX_TABLE).then_some(());
    let Some(()) = limit(section.sh_size(LE)) else {
        return false;
    };
    let Ok(symbols) = section.data_as_array::<elf::Sym64<LE>, R>(LE, data) else {
        return false;
    };
    let Ok(strings) = sections.section(section.link(LE)) else {
        return false;
    };
    let Some(()) = limit(strings.sh_size(LE)) else {
        return false;
    };
    let Ok(strings) = strings.data(LE, data) else {
        return false;
    };
    symbols.iter().any(|symbol| {
        let name = usize::try_from(symbol.st_name(LE))
            .ok()
            .and_then(|start| strings.get(start..));
        let name = name.and_then(|bytes| bytes.split(|byte| *byte == 0).next());
        symbol.st_type() == elf::STT_FUNC
            && !symbol.is_undefined(LE)
            && name
                .and_then(|name| std::str::from_utf8(name).ok())
                .is_some_and(&wanted)
    })
}
