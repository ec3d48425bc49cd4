//! Functions behind tables of pointers.
//!
//! ROCm's libraries let tools replace their functions. Each exported function is only a stub: it
//! loads the address of a table, and jumps to what the table has at a fixed offset.
//!
//! ```text
//! hsa_signal_store_screlease:  endbr64
//!                              mov   rax, [rip + 0x368e8d]
//!                              jmp   [rax + 0x160]
//! ```
//!
//! None of these instructions is cheap to probe. The function behind begins as compilers begin
//! functions. Where it is follows from the code that fills the table when the library is loaded: a
//! series of stores of addresses of functions, relative to one register.
//!
//! ```text
//!                              movq   xmm0, [rip + 0x16e735]     (an address, by a relocation)
//!                              movhps xmm0, [rip + 0x16e73e]
//!                              movups [rdi + 0x160], xmm0
//! ```
//!
//! The table begins with a version of 16 bytes, and its functions follow one another
//! (`hsa_api_trace.h`, `ApiTableVersion`). So nothing is stored before the first function and
//! behind the last one. A few entries are filled elsewhere. A table is used only if all others lead
//! to the begin of a function, and if no other series of stores could be that table.
//!
//! A tool that has replaced an entry is called by the stub and calls the function behind. Other
//! code of the library may call that one directly.

mod scan;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::Range,
};

use iced_x86::{Decoder, DecoderOptions, FlowControl, Mnemonic, OpKind, Register};

use self::scan::{ENTRY, LEAST, Scan, Store};
use super::{sections::Sections, unwind};
use crate::{
    elf::SymbolKind,
    library::{BehindTable, EndSite, LibraryFile, LibraryPlan, Site},
};

/// Maximum size of the code that is searched, bytes. ROCr has 1.3 MB.
const MAX_CODE: usize = 32 << 20;

/// Size of the version at the begin of a table, bytes.
const VERSION: u64 = 16;

/// At most one in so many entries is filled elsewhere.
const HOLES: usize = 16;

/// Where a stub leads. Addresses are in the file's own address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behind {
    /// Address of the function behind.
    pub function: u64,
    /// Size of that function, bytes.
    pub size: u64,
    /// Address of the variable with the address of the table.
    pub variable: u64,
    /// Offset of the entry in the table, bytes.
    pub offset: u64,
    /// Whether the return address tells calls of the stub from the library's own calls of the
    /// function: the library does not use the stub, and nothing else jumps to the function.
    pub are_callers_known: bool,
}

/// Where the stubs of a library lead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    /// By address of the stub.
    stubs: BTreeMap<u64, Behind>,
    /// The code of the library.
    code: Range<u64>,
}

impl Tables {
    /// Finds the stubs of a library and the functions behind them. Empty if it has none, or if its
    /// code is not understood.
    pub(crate) fn read(library: &LibraryFile) -> Self {
        let sections = Sections::of_file(library.file());
        let symbols = library.elf().symbols().iter();
        let exported = symbols.filter(|symbol| symbol.kind == SymbolKind::Function);
        let addresses: BTreeSet<u64> = exported.map(|symbol| symbol.address).collect();
        Self::find(&sections, &addresses).unwrap_or_default()
    }

    /// The stubs by address, and where each leads.
    #[must_use]
    pub fn stubs(&self) -> &BTreeMap<u64, Behind> {
        &self.stubs
    }

    /// Where the function behind the stub at an address is probed; `None` if there is none, or it
    /// cannot be probed.
    #[must_use]
    pub fn site(&self, library: &LibraryFile, stub: u64) -> Option<Site> {
        let Behind { function, size, .. } = self.stubs.get(&stub)?;
        library.site(*function, *size).ok()?.ok()
    }

    /// Moves the probes of a plan from stubs to the functions behind, where that is cheaper and the
    /// calls of the stub are known there: by their callers, and because no other stub leads there.
    pub fn move_behind(&self, library: &LibraryFile, plan: &mut LibraryPlan) {
        for probe in &mut plan.probes {
            let Some(behind) = self.stubs.get(&probe.address) else {
                continue;
            };
            let mut others = self.stubs.iter();
            let is_shared =
                others.any(|(stub, one)| *stub != probe.address && one.function == behind.function);
            if is_shared || !behind.are_callers_known || probe.end != EndSite::Return {
                continue;
            }
            let Some(site) = self.site(library, probe.address) else {
                continue;
            };
            if site.cost < probe.site.cost {
                let stub = std::mem::replace(&mut probe.site, site);
                probe.behind = Some(BehindTable {
                    stub,
                    probed: behind.function.saturating_add(site.skipped.into()),
                    code: self.code.clone(),
                });
            }
        }
    }

    fn find(sections: &Sections<'_>, exported: &BTreeSet<u64>) -> Option<Self> {
        let (begin, text) = sections.placed(".text")?;
        if text.len() > MAX_CODE {
            return None;
        }
        let end = begin.checked_add(text.len() as u64)?;
        let at = |address: u64| text.get(usize::try_from(address.checked_sub(begin)?).ok()?..);
        // By variable with the table's address: the stubs by offset.
        let mut tables: BTreeMap<u64, BTreeMap<u64, Vec<u64>>> = BTreeMap::new();
        for stub in exported {
            if let Some((variable, offset)) = at(*stub).and_then(|code| target(code, *stub)) {
                let table = tables.entry(variable).or_default();
                table.entry(offset).or_default().push(*stub);
            }
        }
        tables.retain(|_, table| table.len() >= LEAST);
        if tables.is_empty() {
            return None;
        }
        let mut scan = Scan::new(sections, begin..end, exported);
        scan.run(&text, begin);
        let used: BTreeSet<u64> = scan.used().chain(sections.referred()).collect();
        let sizes: HashMap<u64, u64> = unwind::ranges(sections)
            .iter()
            .map(|range| (range.start, range.end.saturating_sub(range.start)))
            .collect();
        let series = scan.series();
        let mut stubs = BTreeMap::new();
        for (variable, table) in tables {
            let mut found = series.iter().filter_map(|one| one.as_table(&table, &sizes));
            let Some(functions) = found.next() else {
                continue;
            };
            if found.any(|other| other != functions) {
                continue;
            }
            for (offset, of_entry) in table {
                let Some((function, size)) = functions.get(&offset).copied() else {
                    continue;
                };
                // By the jumps of its stubs alone.
                let is_jumped_to = scan.targets.contains(&function)
                    || scan.through.get(&(variable, offset)) != Some(&of_entry.len());
                let behind = |stub: u64| Behind {
                    function,
                    size,
                    variable,
                    offset,
                    are_callers_known: !is_jumped_to && !used.contains(&stub),
                };
                stubs.extend(of_entry.into_iter().map(|stub| (stub, behind(stub))));
            }
        }
        let code = begin..end;
        Some(Self { stubs, code })
    }
}

/// The variable from which the stub that `code` begins with loads the address of a table, and the
/// offset in the table of the function to which it jumps.
fn target(code: &[u8], address: u64) -> Option<(u64, u64)> {
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let mut load = decoder.decode();
    if load.mnemonic() == Mnemonic::Endbr64 {
        load = decoder.decode();
    }
    let jump = decoder.decode();
    let is_load = load.mnemonic() == Mnemonic::Mov
        && load.op0_kind() == OpKind::Register
        && load.is_ip_rel_memory_operand();
    let is_jump = jump.flow_control() == FlowControl::IndirectBranch
        && jump.op0_kind() == OpKind::Memory
        && jump.memory_base() == load.op0_register()
        && jump.memory_index() == Register::None;
    (is_load && is_jump).then(|| (load.ip_rel_memory_address(), jump.memory_displacement64()))
}

/// Stores relative to the same base, in code that runs from its begin to its end.
#[derive(Debug)]
struct Series {
    /// By offset from the base.
    stores: BTreeMap<u64, Store>,
}

impl Series {
    /// The functions of a table, address and size by offset in it, if this can be what fills the
    /// table with these offsets.
    fn as_table<T>(
        &self,
        offsets: &BTreeMap<u64, T>,
        sizes: &HashMap<u64, u64>,
    ) -> Option<BTreeMap<u64, (u64, u64)>> {
        let (last, _) = offsets.last_key_value()?;
        let is_stored =
            |offset: Option<u64>| offset.is_some_and(|at| self.stores.contains_key(&at));
        let mut found = self.stores.keys().filter_map(|first| {
            // An object lies behind its address.
            let table = first.checked_sub(VERSION)?;
            let end = table.checked_add(*last)?.checked_add(ENTRY);
            // The table begins and ends there.
            if is_stored(first.checked_sub(ENTRY)) || is_stored(end) {
                return None;
            }
            let entry = |offset: &u64| {
                let store = self.stores.get(&table.checked_add(*offset)?)?;
                Some((*offset, (store.value, *sizes.get(&store.value)?)))
            };
            let functions: BTreeMap<u64, _> = offsets.keys().filter_map(entry).collect();
            let holes = offsets.len() - functions.len();
            (holes * HOLES <= offsets.len()).then_some(functions)
        });
        let first = found.next()?;
        // Which of two it is cannot be known.
        found.all(|other| other == first).then_some(first)
    }
}
