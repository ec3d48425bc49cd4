//! The parts of an ELF file that gputrace needs: exported functions with their versions, the
//! location of their code in the file, the build id, and how the file is linked.
//!
//! Only data that the dynamic linker itself would use is read: program headers and the dynamic
//! segment, never section headers. So a fully stripped file is understood as well as any other.
//! Files are untrusted; every table is bounds-checked and limited in size.

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
    /// The file could not be opened or read.
    #[error("cannot read {}: {source}; check that the file exists and that you may read it", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error returned by the kernel.
        source: io::Error,
    },
    /// The path leads to a directory, device or pipe.
    #[error("{} is not a regular file; give the path of a library or program", path.display())]
    NotRegular {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file is larger than any library.
    #[error("{} has {size} bytes, and gputrace opens no file with more than {MAX_FILE}", path.display())]
    TooLarge {
        /// Path of the file.
        path: PathBuf,
        /// Size of the file, bytes.
        size: u64,
    },
    /// The file is not ELF.
    #[error(
        "{} is not an ELF file; give the path of a library or program (not of a script or archive)",
        path.display()
    )]
    NotElf {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file is not for little-endian 64-bit x86.
    #[error(
        "{} is built for {architecture}, and gputrace traces 64-bit x86 code; choose the x86-64 build of it",
        path.display()
    )]
    WrongArchitecture {
        /// Path of the file.
        path: PathBuf,
        /// Architecture that it is built for, e.g. `AArch64` or `32-bit x86`.
        architecture: String,
    },
    /// The file ends inside a part, or its headers say so.
    #[error("{} ends inside its {part}: it is cut off or damaged; install it again", path.display())]
    Truncated {
        /// Path of the file.
        path: PathBuf,
        /// The part, e.g. `dynamic symbol table`.
        part: &'static str,
    },
    /// A part is inconsistent.
    #[error("{} has a {part} that makes no sense: it is damaged; install it again", path.display())]
    Corrupt {
        /// Path of the file.
        path: PathBuf,
        /// The part.
        part: &'static str,
    },
    /// The file exports nothing, so functions cannot be found by name.
    #[error(
        "{} exports no functions (its dynamic symbols are stripped, or it is statically linked); \
         install the distribution's own build of it",
        path.display()
    )]
    NoDynamicSymbols {
        /// Path of the file.
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

/// How a file is linked to its libraries.
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
    /// File offset of its first byte.
    pub offset: u64,
    /// Its address in the file's own address space.
    pub address: u64,
    /// Size in the file, bytes.
    pub size: u64,
    /// Whether it is code.
    pub executable: bool,
}

/// An ELF file, as far as gputrace needs it. Owns its data; the file is not kept open.
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
    /// Loaded segments, in file order.
    pub segments: Vec<Segment>,
    /// Exported symbols, by name. If a name has several versions, only the default one is listed
    /// (`name@@VERSION`).
    symbols: Vec<Symbol>,
    /// Versions left out in favour of a default one, as `name@VERSION`, by name.
    superseded: Vec<String>,
}

impl ElfInfo {
    /// Reads the necessary parts of an open file.
    ///
    /// Moves the file position of `file`. Reads and holds in memory at most a few times the size of
    /// the symbol tables.
    ///
    /// # Errors
    ///
    /// Every [`ElfError`] except [`ElfError::NoDynamicSymbols`].
    pub fn from_file(file: &RegularFile) -> Result<Self, ElfError> {
        parse::parse(&ReadCache::new(file.file()), file.path())
    }

    /// Like [`ElfInfo::from_file`], without symbols, of which there can be very many: reads only
    /// the file's names and linkage.
    ///
    /// # Errors
    ///
    /// As [`ElfInfo::from_file`].
    pub fn without_symbols(file: &RegularFile) -> Result<Self, ElfError> {
        let cache = ReadCache::new(file.file());
        let source = parse::Source {
            data: &cache,
            path: file.path(),
        };
        Ok(parse::without_symbols(source)?.0)
    }

    /// Like [`ElfInfo::from_file`], for bytes in memory. `path` is for messages.
    ///
    /// # Errors
    ///
    /// As [`ElfInfo::from_file`].
    pub fn from_bytes(bytes: &[u8], path: &Path) -> Result<Self, ElfError> {
        parse::parse(bytes, path)
    }

    /// Exported symbols, sorted by name, one per name.
    #[must_use]
    pub fn symbols(&self) -> &[Symbol] {
        &self.symbols
    }

    /// Symbol versions that are not listed because the file has a default version of the same name,
    /// as `name@VERSION`. Programs linked against an old release of the library may still call
    /// them.
    #[must_use]
    pub fn superseded(&self) -> &[String] {
        &self.superseded
    }

    /// The exported symbol with this name, of any kind.
    #[must_use]
    pub fn symbol(&self, name: &str) -> Option<&Symbol> {
        let index = self
            .symbols
            .binary_search_by(|symbol| symbol.name.as_str().cmp(name))
            .ok()?;
        self.symbols.get(index)
    }

    /// Exported functions, one entry per address, in order of address. Indirect functions
    /// ([`SymbolKind::Indirect`]) are left out: their symbol is that of a resolver.
    #[must_use]
    pub fn functions(&self) -> Vec<Function> {
        symbols::group(&self.symbols)
    }

    /// File offset of an address in the file's own address space; `None` if the file does not
    /// contain it (not loaded, or zero-initialised).
    #[must_use]
    pub fn file_offset(&self, address: u64) -> Option<u64> {
        self.segments
            .iter()
            .find_map(|segment| segment.locate(address))
            .map(|(offset, _)| offset)
    }

    /// File offset of an address in code, and the number of bytes of that code that follow.
    #[must_use]
    pub fn code_at(&self, address: u64) -> Option<(u64, u64)> {
        self.segments
            .iter()
            .filter(|segment| segment.executable)
            .find_map(|segment| segment.locate(address))
    }
}

impl Segment {
    /// File offset of an address, and the number of bytes from there to the end of the segment in
    /// the file.
    fn locate(&self, address: u64) -> Option<(u64, u64)> {
        let into = address
            .checked_sub(self.address)
            .filter(|into| *into < self.size)?;
        Some((self.offset.checked_add(into)?, self.size - into))
    }
}

/// Build id of a file, from its first bytes: header, program headers and, usually, the notes.
pub(crate) fn build_id_in_memory(start: &[u8]) -> Option<String> {
    parse::build_id_of(start)
}

/// Build id in the bytes of a note section.
pub(crate) fn build_id_in_notes(notes: &[u8]) -> Option<String> {
    parse::build_id_in_notes(notes, 4)
}

/// Whether a file defines a function, exported or not, whose name satisfies `wanted`. Symbols that
/// were stripped are not found.
pub(crate) fn file_defines(file: &RegularFile, wanted: impl Fn(&str) -> bool) -> bool {
    parse::defines_function(&ReadCache::new(file.file()), wanted)
}
