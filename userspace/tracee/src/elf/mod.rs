//! What gputrace needs to know about an ELF file: its exported functions with their versions, where
//! their code lies in the file, its build id and how it is linked.
//!
//! Only what the dynamic linker itself would use is read: program headers and the dynamic segment, never
//! section headers. So a file stripped of everything strippable is understood as well as any other.
//! Files are outside data; every table is bounds-checked and bounded in size.

mod dynamic;
mod parse;
mod symbols;

use std::{
    io,
    path::{Path, PathBuf},
};

use gputrace_files::target::{MAX_FILE, OpenError, RegularFile};
use object::read::ReadCache;

pub use symbols::{Function, Symbol, SymbolKind};

/// Why a file could not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ElfError {
    /// Opening or reading failed.
    #[error("cannot read {}: {source}; check that the file exists and that you may read it", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A directory, device or pipe.
    #[error("{} is not a regular file; give the path of a library or program", path.display())]
    NotRegular {
        /// The file.
        path: PathBuf,
    },
    /// More than any library has.
    #[error("{} has {size} bytes, and gputrace opens no file with more than {MAX_FILE}", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size, bytes.
        size: u64,
    },
    /// Something else than ELF.
    #[error(
        "{} is not an ELF file; give the path of a library or program (not of a script or archive)",
        path.display()
    )]
    NotElf {
        /// The file.
        path: PathBuf,
    },
    /// Not little-endian 64-bit x86.
    #[error(
        "{} is built for {architecture}, and gputrace traces 64-bit x86 code; choose the x86-64 build of it",
        path.display()
    )]
    WrongArchitecture {
        /// The file.
        path: PathBuf,
        /// What it is built for, e.g. `AArch64` or `32-bit x86`.
        architecture: String,
    },
    /// The file ends, or is said to end, inside something.
    #[error("{} ends inside its {part}: it is cut off or damaged; install it again", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// The part, e.g. `dynamic symbol table`.
        part: &'static str,
    },
    /// A part contradicts itself.
    #[error("{} has a {part} that makes no sense: it is damaged; install it again", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The part.
        part: &'static str,
    },
    /// Nothing is exported, so there is nothing to find functions by.
    #[error(
        "{} exports no functions (its dynamic symbols are stripped, or it is statically linked); \
         install the distribution's own build of it",
        path.display()
    )]
    NoDynamicSymbols {
        /// The file.
        path: PathBuf,
    },
}

impl From<OpenError> for ElfError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Open { path, source } => Self::Read { path, source },
            OpenError::TooLarge { path, size } => Self::TooLarge { path, size },
            OpenError::NotRegular { path, .. } => Self::NotRegular { path },
            other => Self::Read {
                path: PathBuf::new(),
                source: io::Error::other(other),
            },
        }
    }
}

/// How a file gets to its libraries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Linkage {
    /// A program or library with a dynamic segment.
    Dynamic,
    /// A program without an interpreter (`-static`, `-static-pie`): it maps no libraries at start.
    Static,
}

/// A part of the file that is loaded into memory (`PT_LOAD`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Where in the file it begins, bytes.
    pub offset: u64,
    /// Its address in the file's own address space.
    pub address: u64,
    /// Bytes that the file holds.
    pub size: u64,
    /// Whether it is code.
    pub executable: bool,
}

/// An ELF file, as far as gputrace is concerned. Owns its data; the file is not kept open.
#[derive(Clone, Debug)]
pub struct ElfInfo {
    /// GNU build id, lower-case hex; `None` if the file has none.
    pub build_id: Option<String>,
    /// `DT_SONAME`.
    pub soname: Option<String>,
    /// `DT_NEEDED`, in order.
    pub needed: Vec<String>,
    /// `DT_RUNPATH`, as written (colon-separated, with `$ORIGIN`).
    pub runpath: Option<String>,
    /// `DT_RPATH`, as written; the dynamic linker ignores it if there is a run path.
    pub rpath: Option<String>,
    /// `PT_INTERP`: the dynamic linker that the program asks for.
    pub interpreter: Option<PathBuf>,
    /// Whether it is a statically linked program.
    pub linkage: Linkage,
    /// The loaded parts, in the order of the file.
    pub segments: Vec<Segment>,
    /// Exported symbols, by name; of several versions of a name only the default one (`name@@VERSION`).
    symbols: Vec<Symbol>,
    /// Versions that lost against a default one, as `name@VERSION`, by name.
    superseded: Vec<String>,
}

impl ElfInfo {
    /// Reads what is needed of an open file.
    ///
    /// The file position of `file` moves. Not more than a few times the size of the symbol tables is
    /// read or held in memory.
    ///
    /// # Errors
    /// [`ElfError`], all but [`ElfError::NoDynamicSymbols`].
    pub fn from_file(file: &RegularFile) -> Result<Self, ElfError> {
        parse::parse(&ReadCache::new(file.file()), file.path())
    }

    /// The same without symbols, which can be very many: what the file is called, how it is linked.
    ///
    /// # Errors
    /// As [`ElfInfo::from_file`].
    pub fn without_symbols(file: &RegularFile) -> Result<Self, ElfError> {
        let cache = ReadCache::new(file.file());
        let source = parse::Source {
            data: &cache,
            path: file.path(),
        };
        Ok(parse::without_symbols(source)?.0)
    }

    /// The same for bytes in memory.
    ///
    /// # Errors
    /// As [`ElfInfo::from_file`]. `path` is for messages.
    pub fn from_bytes(bytes: &[u8], path: &Path) -> Result<Self, ElfError> {
        parse::parse(bytes, path)
    }

    /// Exported symbols, sorted by name, one per name.
    #[must_use]
    pub fn symbols(&self) -> &[Symbol] {
        &self.symbols
    }

    /// Symbol versions that are not listed because the file has a default version of the same name, as
    /// `name@VERSION`. Programs linked against an old release of the library may still call them.
    #[must_use]
    pub fn superseded(&self) -> &[String] {
        &self.superseded
    }

    /// The exported symbol of this name, of any kind.
    #[must_use]
    pub fn symbol(&self, name: &str) -> Option<&Symbol> {
        let index = self
            .symbols
            .binary_search_by(|symbol| symbol.name.as_str().cmp(name))
            .ok()?;
        self.symbols.get(index)
    }

    /// Exported functions, one entry per address, in order of address. Indirect functions
    /// ([`SymbolKind::Indirect`]) are not among them: their symbol is that of a resolver.
    #[must_use]
    pub fn functions(&self) -> Vec<Function> {
        symbols::group(&self.symbols)
    }

    /// File offset of an address in the file's own address space; `None` if the file does not hold it
    /// (not loaded, or zero-initialised).
    #[must_use]
    pub fn file_offset(&self, address: u64) -> Option<u64> {
        self.segments
            .iter()
            .find_map(|segment| segment.locate(address))
            .map(|(offset, _)| offset)
    }

    /// File offset of an address that lies in code, and how many bytes of that code follow.
    #[must_use]
    pub fn code_at(&self, address: u64) -> Option<(u64, u64)> {
        self.segments
            .iter()
            .filter(|segment| segment.executable)
            .find_map(|segment| segment.locate(address))
    }
}

impl Segment {
    /// File offset of an address and bytes from there to the end of the segment's file part.
    fn locate(&self, address: u64) -> Option<(u64, u64)> {
        let into = address
            .checked_sub(self.address)
            .filter(|into| *into < self.size)?;
        Some((self.offset.checked_add(into)?, self.size - into))
    }
}

/// Build id of the file whose first bytes are these: header, program headers and, usually, the notes.
pub(crate) fn build_id_in_memory(start: &[u8]) -> Option<String> {
    parse::build_id_of(start)
}

/// The build id in the bytes of a section of notes.
pub(crate) fn build_id_in_notes(notes: &[u8]) -> Option<String> {
    parse::build_id_in_notes(notes, 4)
}

/// Whether a file defines a function that satisfies `wanted`, exported or not, as far as its symbols are
/// not stripped.
pub(crate) fn file_defines(file: &RegularFile, wanted: impl Fn(&str) -> bool) -> bool {
    parse::defines_function(&ReadCache::new(file.file()), wanted)
}
