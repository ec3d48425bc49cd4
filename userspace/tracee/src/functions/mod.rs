//! All functions of a program or library, exported or not, for tracing a program's own functions.
//!
//! Names and addresses come from `.symtab` (or, if that was stripped, from the separate debug
//! file), from the exported symbols, and from DWARF, which also has source locations. DWARF also
//! lists functions that exist only inlined into others: those have no code of their own and cannot
//! be probed.
//!
//! Files are untrusted; every section is bounds-checked and limited in size, including decompressed
//! ones.

mod debug;
mod exits;
mod hazards;
mod plan;
mod sections;
mod tables;
mod unwind;

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    path::{Path, PathBuf},
};

use gputrace_files::target::Root;

use crate::{
    elf::{self, ElfInfo, SymbolKind},
    library::LibraryFile,
};

pub use debug::Source;
pub use exits::{Code, Exit, ExitKind, Exits, find_exits};
pub use hazards::hazard;
pub use plan::{Choice, plan, probe_exits};
use sections::Sections;
pub use tables::{Behind, Callers, Table, Tables};

/// A function with code of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its mangled names from symbols, with the one to show first. Not empty.
    pub names: Vec<String>,
    /// Address in the file's own address space.
    pub address: u64,
    /// Size in bytes; 0 if unknown.
    pub size: u64,
    /// Source location, if there is debug information.
    pub source: Option<Source>,
}

impl Function {
    /// The first name, demangled.
    #[must_use]
    pub fn display_name(&self) -> String {
        let name = self.names.first().map(String::as_str).unwrap_or_default();
        gputrace_demangle::demangle(name).unwrap_or_else(|| name.to_owned())
    }
}

/// The functions of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Functions {
    /// Functions with code of their own, in order of address.
    pub list: Vec<Function>,
    /// Parts of functions that compilers moved elsewhere because they are rarely executed
    /// (`NAME.cold`). They are entered by jumps, not by calls.
    pub cold: Vec<Range<u64>>,
    /// Code without a name, in order of address, if the file was stripped: local functions and cold
    /// parts. Known from the tables for unwinding.
    pub unnamed: Vec<Range<u64>>,
    /// Names of functions that exist only inlined into others.
    pub inlined: BTreeSet<String>,
    /// The separate debug file that was used, if any.
    pub debug_file: Option<PathBuf>,
    /// Remarks on parts that could not be read, and what is missing as a consequence.
    pub remarks: Vec<String>,
}

/// Functions by address, before they are listed.
#[derive(Default)]
struct Found {
    functions: BTreeMap<u64, (BTreeSet<String>, u64)>,
    cold: Vec<Range<u64>>,
}

impl Found {
    /// The exported functions of a file.
    fn exported(elf: &ElfInfo) -> Self {
        let mut found = Self::default();
        for symbol in elf.symbols() {
            if symbol.kind == SymbolKind::Function {
                found.add(&symbol.name, symbol.address, symbol.size);
            }
        }
        found
    }

    /// Lists the functions in order of address. `sources` are their source locations by address.
    fn fill(mut self, functions: &mut Functions, sources: &mut BTreeMap<u64, Source>) {
        let listed = self.functions.into_iter().map(|(address, (names, size))| {
            let mut names: Vec<String> = names.into_iter().collect();
            names.sort_by(|a, b| elf::Function::preference(a).cmp(&elf::Function::preference(b)));
            Function {
                names,
                address,
                size,
                source: sources.remove(&address),
            }
        });
        functions.list = listed.collect();
        self.cold.sort_by_key(|part| part.start);
        functions.cold = self.cold;
    }

    fn add(&mut self, name: &str, address: u64, size: u64) {
        if is_cold(name) {
            if let Some(end) = address.checked_add(size) {
                self.cold.push(address..end);
            }
            return;
        }
        let (names, known) = self.functions.entry(address).or_default();
        names.insert(name.to_owned());
        *known = (*known).max(size);
    }
}

/// Whether a symbol names a part of a function: `NAME.cold` or `NAME.cold.1` of GCC and LLVM.
fn is_cold(name: &str) -> bool {
    name.split('.').skip(1).any(|part| part == "cold")
}

/// Lists the functions of a file. Separate debug files are looked for under `debug_root`, usually
/// `/usr/lib/debug`.
///
/// Sections that are missing or cannot be parsed are left out; for debug information there is a
/// remark.
#[must_use]
pub fn list(library: &LibraryFile, debug_root: &Path) -> Functions {
    let elf = library.elf();
    let mut found = Found::exported(elf);
    let mut functions = Functions::default();
    let own = Sections::of_file(library.file());
    let has_symbols = own.symbols(&mut |name, address, size| found.add(name, address, size));
    if own.bytes(".note.go.buildid").is_some() {
        functions.remarks.push(
            "it is a Go program: calls that move to another stack or thread count as lost"
                .to_owned(),
        );
    }
    let mut information = debug::read(&own, &mut functions.remarks);
    if !has_symbols || information.is_empty() {
        let own_root = Root::own().ok();
        for path in debug_files(library, &own, debug_root) {
            // The owner of the library can influence the path.
            let Some(file) = own_root.as_ref().and_then(|root| root.open(&path).ok()) else {
                continue;
            };
            let separate = Sections::of_file(file.file());
            // The debug file belongs to this file if both have the same build id.
            if elf.build_id.is_none() || separate.build_id() != elf.build_id {
                continue;
            }
            separate.symbols(&mut |name, address, size| found.add(name, address, size));
            if information.is_empty() {
                information = debug::read(&separate, &mut functions.remarks);
            }
            functions.debug_file = Some(path);
            break;
        }
    }
    for subprogram in &information.subprograms {
        if let Some(name) = &subprogram.name
            && !found.functions.contains_key(&subprogram.address)
            && elf.code_at(subprogram.address).is_some()
        {
            found.add(name, subprogram.address, subprogram.size);
        }
    }
    let mut sources: BTreeMap<u64, Source> = information
        .subprograms
        .into_iter()
        .filter_map(|subprogram| Some((subprogram.address, subprogram.source?)))
        .collect();
    let out_of_line: BTreeSet<&String> = found
        .functions
        .values()
        .flat_map(|(names, _)| names)
        .collect();
    functions.inlined = information
        .inlined
        .into_iter()
        .filter(|name| !out_of_line.contains(name))
        .collect();
    found.fill(&mut functions, &mut sources);
    if !has_symbols {
        unwind::complete(&unwind::ranges(&own), &mut functions);
    }
    functions
}

/// Lists the functions of a file without its debug information, which can take seconds to read.
#[must_use]
pub(crate) fn list_symbols(library: &LibraryFile) -> Functions {
    let mut found = Found::exported(library.elf());
    let mut functions = Functions::default();
    let own = Sections::of_file(library.file());
    let has_symbols = own.symbols(&mut |name, address, size| found.add(name, address, size));
    found.fill(&mut functions, &mut BTreeMap::new());
    if !has_symbols {
        unwind::complete(&unwind::ranges(&own), &mut functions);
    }
    functions
}

/// Possible paths of a library's separate debug file: by build id, and by the name that the library
/// gives.
fn debug_files(library: &LibraryFile, sections: &Sections<'_>, root: &Path) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    if let Some(id) = &library.elf().build_id
        && let Some((start, rest)) = id.split_at_checked(2)
    {
        paths.push(
            root.join(".build-id")
                .join(start)
                .join(format!("{rest}.debug")),
        );
    }
    let library = std::path::absolute(library.path()).ok();
    let directory = library.as_deref().and_then(Path::parent);
    if let (Some(name), Some(directory)) = (sections.debug_link(), directory) {
        paths.push(directory.join(&name));
        paths.push(directory.join(".debug").join(&name));
        paths.push(
            root.join(directory.strip_prefix("/").unwrap_or(directory))
                .join(&name),
        );
    }
    paths
}

#[cfg(test)]
mod tests;
