//! Library files: their identity, and the probes for them.

use std::{
    fs::File,
    ops::Range,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd},
        unix::fs::FileExt,
    },
    path::{Path, PathBuf},
    sync::OnceLock,
};

use gputrace_abi::domain::Domain;
use gputrace_files::target::{FileState, RegularFile};

use crate::{
    elf::{ElfError, ElfInfo, Function, SymbolKind},
    functions::{ExitKind, Tables},
    plan::{self, CostClass, Unprobeable},
};

/// Selects the functions to trace. Implemented for closures.
pub trait Selector {
    /// The domain in which calls of the function are recorded; `None` if it is not traced. `name`
    /// is the exported name without symbol version.
    fn select(&self, name: &str) -> Option<Domain>;
}

impl<F: Fn(&str) -> Option<Domain>> Selector for F {
    fn select(&self, name: &str) -> Option<Domain> {
        self(name)
    }
}

/// An open library (or program, or dynamic linker).
///
/// A uprobe belongs to an inode, and a path is only a way to name one. The path under which a
/// process knows its library may mean another file here (containers), a newer one (upgrades) or
/// none. So the examined file is kept open, and probes are attached to exactly that file (see
/// [`LibraryFile::attach_path`]).
#[derive(Debug)]
pub struct LibraryFile {
    file: RegularFile,
    state: FileState,
    elf: ElfInfo,
    tables: OnceLock<Tables>,
}

/// A function with its probe site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedProbe {
    /// Exported name to show, without version; mangled if the library exports it so.
    pub name: String,
    /// Other exported names of the same address.
    pub aliases: Vec<String>,
    /// Symbol version of `name`, e.g. `hip_4.2`.
    pub version: Option<String>,
    /// Domain chosen by the selector.
    pub domain: Domain,
    /// Address of the function in the file's own address space.
    pub address: u64,
    /// Place of the probe.
    pub site: Site,
    /// If that place is in the function behind a table of the library, and not in the exported one:
    /// what is known of it.
    pub behind: Option<BehindTable>,
    /// How the end of a call is seen.
    pub end: EndSite,
    /// Source location of the function, e.g. `fib.cpp:12`; only for functions found by
    /// [`crate::functions`].
    pub source: Option<String>,
}

/// A probed function behind a table. Addresses are in the file's own address space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BehindTable {
    /// Address of the probed instruction.
    pub probed: u64,
    /// Where the exported function would have been probed.
    pub stub: Site,
    /// The code of the library, if calls from there are its own and not of the exported function.
    pub code: Option<Range<u64>>,
}

/// How the end of a function's calls is seen.
///
/// A probe on the return is cheaper than one on a `ret`, and sees every return. But the kernel
/// replaces the return address on the stack for it. An exception, or the forced unwinding of a
/// thread that ends, cannot pass such a frame, and a call that returns on another stack is killed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndSite {
    /// By a probe on the return. Only for functions inside which no code but the library's runs.
    Return,
    /// By probes on the instructions that leave the function, in order of address. Not empty.
    Exits(Vec<ExitSite>),
    /// Not at all, for this reason: records of its calls have no end.
    NotSeen(Unprobeable),
}

impl EndSite {
    /// Stable machine-readable name, e.g. `not_seen`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Return => "return",
            Self::Exits(_) => "exits",
            Self::NotSeen(_) => "not_seen",
        }
    }

    /// The probed instructions that leave the function.
    #[must_use]
    pub fn exits(&self) -> &[ExitSite] {
        match self {
            Self::Exits(exits) => exits,
            Self::Return | Self::NotSeen(_) => &[],
        }
    }
}

/// A place for a probe on an instruction that leaves a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExitSite {
    /// File offset of the instruction.
    pub file_offset: u64,
    /// Kind of the exit.
    pub kind: ExitKind,
    /// Cost of a hit.
    pub cost: CostClass,
}

/// A place for a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// File offset of the probed instruction: the function's, plus `skipped`.
    pub file_offset: u64,
    /// Bytes between the function's start and the probed instruction.
    pub skipped: u8,
    /// Cost of a hit.
    pub cost: CostClass,
}

/// A selected function that cannot be probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedProbe {
    /// Exported name to show.
    pub name: String,
    /// Domain chosen by the selector.
    pub domain: Domain,
    /// Address of the function in the file's own address space.
    pub address: u64,
    /// Reason of the refusal.
    pub reason: Unprobeable,
}

/// Everything to trace in a library.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LibraryPlan {
    /// Probes to place, in order of address.
    pub probes: Vec<PlannedProbe>,
    /// Selected functions that cannot be probed, in order of address.
    pub refused: Vec<RefusedProbe>,
    /// Selected indirect functions (IFUNC): the code that they stand for is known only at run time.
    pub indirect: Vec<String>,
}

/// Why no probe can be placed on a named function.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SymbolError {
    /// The file exports no function with this name.
    #[error("{} exports no function {name}; see `readelf --dyn-syms -W`", path.display())]
    NotExported {
        /// Path of the file.
        path: PathBuf,
        /// The name asked for.
        name: String,
    },
    /// The function has no place for a probe.
    #[error("{name} in {} cannot be probed: {reason}", path.display())]
    Unprobeable {
        /// Path of the file.
        path: PathBuf,
        /// The name asked for.
        name: String,
        /// Reason of the refusal.
        reason: Unprobeable,
    },
    /// Reading the code failed.
    #[error(transparent)]
    Elf(#[from] ElfError),
}

/// Maximum number of bytes of a function that are searched for loops.
const MAX_CODE: u64 = 1 << 20;
/// Number of bytes read of a function with unknown size: two instructions of maximum length.
const UNKNOWN_CODE: u64 = 32;

impl LibraryFile {
    /// Opens and reads a file. The path comes from gputrace itself or its user, so every link in it
    /// is followed.
    ///
    /// # Errors
    ///
    /// As [`ElfInfo::from_file`].
    pub fn open(path: &Path) -> Result<Self, ElfError> {
        Self::from_file(RegularFile::open(path)?)
    }

    /// Reads a file that is already open.
    ///
    /// # Errors
    ///
    /// As [`ElfInfo::from_file`].
    pub fn from_file(file: RegularFile) -> Result<Self, ElfError> {
        let state = file.state().map_err(|source| ElfError::Read {
            path: file.path().to_owned(),
            source,
        })?;
        let elf = ElfInfo::from_file(&file)?;
        Ok(Self {
            file,
            state,
            elf,
            tables: OnceLock::new(),
        })
    }

    /// Path for people: as the caller, or the process that maps the file, knows it.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// A path under which the kernel finds exactly this file: `/proc/self/fd/N`. It works even if
    /// the file's own path now means another file, is in another mount namespace or was deleted. It
    /// is valid in this process while `self` lives; probes stay attached after `self` is dropped.
    #[must_use]
    pub fn attach_path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.file.file().as_raw_fd()))
    }

    /// `st_dev` of the file. On overlay and btrfs file systems, one file can have several.
    #[must_use]
    pub fn device(&self) -> u64 {
        self.state.device
    }

    /// `st_ino` of the file.
    #[must_use]
    pub fn inode(&self) -> u64 {
        self.state.inode
    }

    /// Identity of the file, and its state when it was read.
    #[must_use]
    pub fn state(&self) -> FileState {
        self.state
    }

    /// Current state of the file.
    pub(crate) fn current_state(&self) -> std::io::Result<FileState> {
        self.file.state()
    }

    /// The open file.
    pub(crate) fn file(&self) -> &File {
        self.file.file()
    }

    /// Contents of the file.
    #[must_use]
    pub fn elf(&self) -> &ElfInfo {
        &self.elf
    }

    /// Where its stubs lead. Its code is searched when this is first asked.
    pub fn tables(&self) -> &Tables {
        self.tables.get_or_init(|| Tables::read(self))
    }

    /// Selects functions, and plans probes on them.
    ///
    /// A function is traced if one of its names is selected; its domain is that of the preferred
    /// name among these ([`Function::preference`]).
    ///
    /// # Errors
    ///
    /// [`ElfError::NoDynamicSymbols`] if the file exports nothing at all, [`ElfError::Read`] if its
    /// code cannot be read. An empty selection is not an error.
    pub fn plan(&self, selector: &impl Selector) -> Result<LibraryPlan, ElfError> {
        let symbols = self.elf.symbols();
        if !symbols
            .iter()
            .any(|symbol| symbol.kind != SymbolKind::Object)
        {
            return Err(ElfError::NoDynamicSymbols {
                path: self.path().to_owned(),
            });
        }
        let mut plan = LibraryPlan::default();
        for function in self.elf.functions() {
            let selected = function.names.iter().enumerate().find_map(|(index, name)| {
                selector.select(&name.name).map(|domain| (index, domain))
            });
            let Some((index, domain)) = selected else {
                continue;
            };
            let address = function.address;
            let site = self.site(address, function.size)?;
            let Function { mut names, .. } = function;
            let chosen = names.remove(index);
            match site {
                Ok(site) => plan.probes.push(PlannedProbe {
                    name: chosen.name,
                    aliases: names.into_iter().map(|name| name.name).collect(),
                    version: chosen.version,
                    domain,
                    address,
                    site,
                    behind: None,
                    end: EndSite::Return,
                    source: None,
                }),
                Err(reason) => plan.refused.push(RefusedProbe {
                    name: chosen.name,
                    domain,
                    address,
                    reason,
                }),
            }
        }
        plan.indirect = symbols
            .iter()
            .filter(|symbol| {
                symbol.kind == SymbolKind::Indirect && selector.select(&symbol.name).is_some()
            })
            .map(|symbol| symbol.name.clone())
            .collect();
        Ok(plan)
    }

    /// Plans a probe on one exported function.
    ///
    /// # Errors
    ///
    /// [`SymbolError`].
    pub fn plan_symbol(&self, name: &str) -> Result<Site, SymbolError> {
        let symbol = self
            .elf
            .symbol(name)
            .filter(|symbol| symbol.kind == SymbolKind::Function);
        let symbol = symbol.ok_or_else(|| SymbolError::NotExported {
            path: self.path().to_owned(),
            name: name.to_owned(),
        })?;
        self.site(symbol.address, symbol.size)?
            .map_err(|reason| SymbolError::Unprobeable {
                path: self.path().to_owned(),
                name: name.to_owned(),
                reason,
            })
    }

    /// Plans a probe on the function at `address`.
    pub(crate) fn site(
        &self,
        address: u64,
        size: u64,
    ) -> Result<Result<Site, Unprobeable>, ElfError> {
        let Some((offset, available)) = self.elf.code_at(address) else {
            return Ok(Err(Unprobeable::NotCode));
        };
        let size = if size == 0 {
            UNKNOWN_CODE
        } else {
            size.min(MAX_CODE)
        };
        let mut code = vec![0; usize::try_from(size.min(available)).unwrap_or(0)];
        let read = self.file().read_exact_at(&mut code, offset);
        read.map_err(|source| ElfError::Read {
            path: self.path().to_owned(),
            source,
        })?;
        let site = plan::plan(&code, address).and_then(|site| {
            let file_offset = offset
                .checked_add(site.skipped.into())
                .ok_or(Unprobeable::NotCode)?;
            Ok(Site {
                file_offset,
                skipped: site.skipped,
                cost: site.cost,
            })
        });
        Ok(site)
    }
}

impl AsFd for LibraryFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
