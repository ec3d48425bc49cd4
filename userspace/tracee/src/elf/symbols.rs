//! Exported symbols: one per name, and functions grouped by address.

use std::collections::BTreeMap;

/// Kind of a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SymbolKind {
    /// A function (`STT_FUNC`).
    Function,
    /// A function chosen when the program starts (`STT_GNU_IFUNC`); the address is that of the
    /// resolver.
    Indirect,
    /// Data (`STT_OBJECT`).
    Object,
}

/// A symbol that the file defines and exports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Name without version, mangled if it is a C++ name.
    pub name: String,
    /// Version, e.g. `hip_4.2`.
    pub version: Option<String>,
    /// Function or data.
    pub kind: SymbolKind,
    /// Address in the file's own address space.
    pub address: u64,
    /// Size in bytes; 0 if the linker did not record it, as for alias symbols in Debian's ROCm.
    pub size: u64,
}

/// A function under all its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its names, with the one to show first (see [`Function::preference`]).
    pub names: Vec<Name>,
    /// Address in the file's own address space.
    pub address: u64,
    /// Size in bytes: the largest that any of its symbols has, 0 if none has one.
    pub size: u64,
}

/// A name and its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// Without version.
    pub name: String,
    /// The version, if the file has versions.
    pub version: Option<String>,
}

impl Function {
    /// Sort key for the names of one function. HSA's current spelling of a memory order comes
    /// before the deprecated one (`hsa_signal_store_screlease` before `hsa_signal_store_release`),
    /// then shorter names come first, then alphabetical order decides.
    #[must_use]
    pub fn preference(name: &str) -> (bool, usize, &str) {
        let current =
            name.starts_with("hsa_") && (name.contains("_scacq") || name.contains("_screl"));
        (!current, name.len(), name)
    }
}

/// Groups the functions by address, in order of address.
pub(super) fn group(symbols: &[Symbol]) -> Vec<Function> {
    let mut functions = BTreeMap::<u64, Function>::new();
    for symbol in symbols
        .iter()
        .filter(|symbol| symbol.kind == SymbolKind::Function)
    {
        let function = functions.entry(symbol.address).or_insert_with(|| Function {
            names: Vec::new(),
            address: symbol.address,
            size: 0,
        });
        function.names.push(Name {
            name: symbol.name.clone(),
            version: symbol.version.clone(),
        });
        function.size = function.size.max(symbol.size);
    }
    let mut functions: Vec<_> = functions.into_values().collect();
    for function in &mut functions {
        function
            .names
            .sort_by(|a, b| Function::preference(&a.name).cmp(&Function::preference(&b.name)));
    }
    functions
}

/// A symbol from the table, before one version of each name is chosen.
pub(super) struct Candidate {
    pub(super) symbol: Symbol,
    /// Whether it is not the default version (`name@VERSION` as opposed to `name@@VERSION`).
    pub(super) hidden: bool,
    /// Number of the version; later versions have higher numbers.
    pub(super) version_index: u16,
}

/// Keeps one symbol per name: the default version, or else the latest. Returns the symbols by name,
/// and, as `name@VERSION`, the versions left out whose symbol has another address.
pub(super) fn choose_versions(mut candidates: Vec<Candidate>) -> (Vec<Symbol>, Vec<String>) {
    candidates.sort_by(|a, b| {
        let key = |c: &Candidate| (c.hidden, u16::MAX - c.version_index, c.symbol.address);
        a.symbol
            .name
            .cmp(&b.symbol.name)
            .then_with(|| key(a).cmp(&key(b)))
    });
    let mut symbols = Vec::<Symbol>::with_capacity(candidates.len());
    let mut superseded = Vec::new();
    for Candidate { symbol, .. } in candidates {
        match symbols.last() {
            Some(chosen) if chosen.name == symbol.name => {
                if chosen.address != symbol.address {
                    superseded.push(format!(
                        "{}@{}",
                        symbol.name,
                        symbol.version.unwrap_or_default()
                    ));
                }
            }
            _ => symbols.push(symbol),
        }
    }
    (symbols, superseded)
}
