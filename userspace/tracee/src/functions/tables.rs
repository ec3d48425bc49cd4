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
//! HIP's save their arguments first, and call a function that returns the address of the table.
//!
//! ```text
//! hipGetDevice:                endbr64
//!                              sub   rsp, 0x18
//!                              mov   [rsp + 8], rdi
//!                              call  0x3d4410
//!                              mov   rdi, [rsp + 8]
//!                              mov   rax, [rax + 0x338]
//!                              add   rsp, 0x18
//!                              jmp   rax
//! ```
//!
//! None of the first instructions is cheap to probe. The function behind begins as compilers begin
//! functions. Where it is follows from the code that fills the table: a series of stores of
//! addresses of functions, relative to one register or at fixed addresses.
//!
//! ```text
//!                              movq   xmm0, [rip + 0x16e735]     (an address, by a relocation)
//!                              movhps xmm0, [rip + 0x16e73e]
//!                              movups [rdi + 0x160], xmm0
//! ```
//!
//! HSA's tables begin with a version of 16 bytes (`hsa_api_trace.h`, `ApiTableVersion`), HIP's with
//! their size (`hip_api_trace.hpp`, `HipDispatchTable`). Their functions follow one another. So
//! nothing is stored before the first function and behind the last one. A few entries are filled
//! elsewhere. A table is used only if all others lead to the begin of a function, and if no other
//! series of stores could be that table.
//!
//! A tool that has replaced an entry is called by the stub and calls the function behind. Other
//! code of the library may call that one directly.

mod scan;
mod stub;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::Range,
};

use self::scan::{Base, By, ENTRY, LEAST, Scan, Store};
use super::{sections::Sections, unwind};
use crate::{
    elf::SymbolKind,
    library::{BehindTable, EndSite, LibraryFile, LibraryPlan, Site},
};

/// Maximum size of the code that is searched, bytes. ROCr has 1.3 MB, HIP 4.7 MB.
const MAX_CODE: usize = 32 << 20;

/// Size of what is before the functions of a table of HSA, bytes: `ApiTableVersion`.
const VERSION: u64 = 16;
/// The same for HIP: the size of the table.
const SIZE: u64 = 8;

/// At most one in so many entries is filled elsewhere.
const HOLES: usize = 16;

/// Where a table of functions is, in the file's own address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// At this address.
    At(u64),
    /// Where the variable at this address says.
    Variable(u64),
}

/// Which calls of a function behind a table are calls of a stub that leads there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Callers {
    /// All: nothing but stubs leads there.
    Stubs,
    /// Those that return to code outside of the library: the library does not use the stub, and
    /// nothing but stubs jumps to the function.
    Outside,
    /// It cannot be told.
    Unknown,
}

/// Where a stub leads. Addresses are in the file's own address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behind {
    /// Address of the function behind.
    pub function: u64,
    /// Size of that function, bytes.
    pub size: u64,
    /// Where the table is.
    pub table: Table,
    /// Offset of the entry in the table, bytes.
    pub offset: u64,
    /// Which calls of the function are calls of the stub.
    pub callers: Callers,
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
            let code = match behind.callers {
                Callers::Stubs => None,
                Callers::Outside => Some(self.code.clone()),
                Callers::Unknown => continue,
            };
            let mut others = self.stubs.iter();
            let is_shared =
                others.any(|(stub, one)| *stub != probe.address && one.function == behind.function);
            if is_shared || probe.end != EndSite::Return {
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
                    code,
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
        // Their stubs by offset.
        let mut tables: BTreeMap<By, BTreeMap<u64, Vec<u64>>> = BTreeMap::new();
        for address in exported {
            if let Some((by, offset)) = at(*address).and_then(|code| stub::target(code, *address)) {
                let table = tables.entry(by).or_default();
                table.entry(offset).or_default().push(*address);
            }
        }
        tables.retain(|_, table| table.len() >= LEAST);
        if tables.is_empty() {
            return None;
        }
        let scan = Scan::of(sections, &text, begin..end);
        let referred: BTreeSet<u64> = sections.referred().into_iter().collect();
        let sizes: HashMap<u64, u64> = unwind::ranges(sections)
            .iter()
            .map(|range| (range.start, range.end.saturating_sub(range.start)))
            .collect();
        let series = scan.series();
        let mut stubs = BTreeMap::new();
        for (by, entries) in tables {
            let found = series
                .iter()
                .filter_map(|one| one.as_table(by, &entries, &sizes));
            let Some((table, functions)) = the_only(found) else {
                continue;
            };
            let are_users_known = scan.are_users_known(by);
            for (offset, of_entry) in entries {
                let Some((function, size)) = functions.get(&offset).copied() else {
                    continue;
                };
                // What is exported can be reached in other ways.
                let stubs_alone = !exported.contains(&function)
                    && !scan.jumps_to(function)
                    && scan.through.get(&(by, offset)).copied()
                        == u32::try_from(of_entry.len()).ok();
                let is_called = scan.called_through.contains_key(&(by, offset))
                    || !scan.is_only_in_a_table(function);
                let callers = |stub: u64| match stubs_alone {
                    true if are_users_known && !is_called => Callers::Stubs,
                    true if !scan.uses(stub) && !referred.contains(&stub) => Callers::Outside,
                    _ => Callers::Unknown,
                };
                let behind = |stub: u64| Behind {
                    function,
                    size,
                    table,
                    offset,
                    callers: callers(stub),
                };
                stubs.extend(of_entry.into_iter().map(|stub| (stub, behind(stub))));
            }
        }
        let code = begin..end;
        Some(Self { stubs, code })
    }
}

/// Stores relative to the same base, in code that runs from its begin to its end.
#[derive(Debug)]
struct Series {
    base: Base,
    /// By offset from the base.
    stores: BTreeMap<u64, Store>,
}

/// Where a table is, and its functions: address and size by offset in it.
type Filled = (Table, BTreeMap<u64, (u64, u64)>);

impl Series {
    /// The table with entries at these offsets, if this can be what fills it.
    fn as_table<T>(
        &self,
        by: By,
        entries: &BTreeMap<u64, T>,
        sizes: &HashMap<u64, u64>,
    ) -> Option<Filled> {
        let header = match by {
            By::Variable(_) => VERSION,
            // The function that returns its address also fills it.
            By::Getter(_) if self.base == Base::Absolute => SIZE,
            By::Getter(_) => return None,
        };
        let (last, _) = entries.last_key_value()?;
        let is_stored =
            |offset: Option<u64>| offset.is_some_and(|at| self.stores.contains_key(&at));
        the_only(self.stores.keys().filter_map(|first| {
            // An object lies behind its address.
            let table = first.checked_sub(header)?;
            let end = table.checked_add(*last)?.checked_add(ENTRY);
            // The table begins and ends there.
            if is_stored(first.checked_sub(ENTRY)) || is_stored(end) {
                return None;
            }
            let entry = |offset: &u64| {
                let store = self.stores.get(&table.checked_add(*offset)?)?;
                Some((*offset, (store.value, *sizes.get(&store.value)?)))
            };
            let functions: BTreeMap<u64, _> = entries.keys().filter_map(entry).collect();
            let holes = entries.len() - functions.len();
            let table = match by {
                By::Variable(variable) => Table::Variable(variable),
                By::Getter(_) => Table::At(table),
            };
            (holes * HOLES <= entries.len()).then_some((table, functions))
        }))
    }
}

/// What all of them are; `None` if they differ, so that it cannot be known, or if there are none.
fn the_only(mut found: impl Iterator<Item = Filled>) -> Option<Filled> {
    let first = found.next()?;
    found.all(|other| other == first).then_some(first)
}
