//! Plans the probes on chosen functions.

use std::{cell::RefCell, collections::HashMap, ops::Range, os::unix::fs::FileExt as _};

use gputrace_abi::domain::Domain;
use iced_x86::{Decoder, DecoderOptions};

use super::{
    Code, Function, Functions,
    exits::{Exit, ExitKind, MAX_SIZE, cost, find_exits},
    hazard,
};
use crate::{
    elf::ElfError,
    library::{EndSite, ExitSite, LibraryFile, LibraryPlan, PlannedProbe, RefusedProbe},
    plan::Unprobeable,
};

/// Number of bytes read at once.
const PAGE: u64 = 1 << 16;

/// How a chosen function is traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The domain in which its calls are recorded.
    pub domain: Domain,
    /// Whether the function is traced without ends of calls ([`EndSite::NotSeen`]) if the
    /// instructions that leave it cannot be probed. Otherwise it is refused then.
    pub without_end: bool,
}

/// Plans probes on the functions that `choose` selects and that have at least `least` instructions.
///
/// The end of a call is probed at the instructions that leave the function, never at its return:
/// nothing is known about such code, so it may throw exceptions and switch stacks.
///
/// # Errors
///
/// [`ElfError::Read`] if the code cannot be read.
pub fn plan(
    library: &LibraryFile,
    functions: &Functions,
    least: usize,
    choose: &mut dyn FnMut(&Function) -> Option<Choice>,
) -> Result<LibraryPlan, ElfError> {
    let code = FileCode {
        library,
        functions,
        pages: RefCell::default(),
    };
    let mut plan = LibraryPlan::default();
    for function in &functions.list {
        let Some(choice) = choose(function) else {
            continue;
        };
        let Some(name) = function.names.first() else {
            continue;
        };
        let outcome = one(library, &code, function, choice, least)?;
        match outcome {
            Ok(Some(probe)) => plan.probes.push(probe),
            Ok(None) => {}
            Err(reason) => plan.refused.push(RefusedProbe {
                name: name.clone(),
                domain: choice.domain,
                address: function.address,
                reason,
            }),
        }
    }
    remove_shared_exits(&mut plan);
    Ok(plan)
}

/// Plans the probes on one function; `None` if it has fewer than `least` instructions.
fn one(
    library: &LibraryFile,
    code: &FileCode<'_>,
    function: &Function,
    choice: Choice,
    least: usize,
) -> Result<Result<Option<PlannedProbe>, Unprobeable>, ElfError> {
    if least > 1 && instructions(code, function) < least {
        return Ok(Ok(None));
    }
    if let Some(reason) = function.names.iter().find_map(|name| hazard(name)) {
        return Ok(Err(reason));
    }
    let site = match library.site(function.address, function.size)? {
        Ok(site) => site,
        Err(reason) => return Ok(Err(reason)),
    };
    let end = match exit_sites(code, function, site.file_offset) {
        // Each round of the loop would count as a call.
        Err(Unprobeable::Loop) => return Ok(Err(Unprobeable::Loop)),
        exits if choice.without_end => end_or_none(exits),
        Ok(exits) => EndSite::Exits(exits),
        Err(reason) => return Ok(Err(reason)),
    };
    let mut names = function.names.clone();
    Ok(Ok(Some(PlannedProbe {
        name: names.remove(0),
        aliases: names,
        version: None,
        domain: choice.domain,
        address: function.address,
        site,
        behind: None,
        end,
        source: function.source.as_ref().map(ToString::to_string),
    })))
}

/// Probes the ends of the `wanted` functions of a plan at the instructions that leave them, in place
/// of their returns. Calls of functions for which that is not possible have no end
/// ([`EndSite::NotSeen`]). A function whose first instruction begins a loop is refused.
pub fn probe_exits(
    library: &LibraryFile,
    plan: &mut LibraryPlan,
    wanted: &dyn Fn(&PlannedProbe) -> bool,
) {
    if !plan.probes.iter().any(wanted) {
        return;
    }
    let functions = super::list_symbols(library);
    let code = FileCode {
        library,
        functions: &functions,
        pages: RefCell::default(),
    };
    let mut refused = Vec::new();
    plan.probes.retain_mut(|probe| {
        if !wanted(probe) {
            return true;
        }
        let at = functions
            .list
            .binary_search_by_key(&probe.address, |function| function.address);
        let function = at.ok().and_then(|at| functions.list.get(at));
        let exits = function.map(|function| exit_sites(&code, function, probe.site.file_offset));
        match exits.unwrap_or(Err(Unprobeable::UnknownSize)) {
            Err(Unprobeable::Loop) => refused.push(RefusedProbe {
                name: probe.name.clone(),
                domain: probe.domain,
                address: probe.address,
                reason: Unprobeable::Loop,
            }),
            exits => {
                probe.end = end_or_none(exits);
                return true;
            }
        }
        false
    });
    plan.refused.extend(refused);
    remove_shared_exits(plan);
}

/// Removes the exits that several functions share, because they jump to the same code. Such an exit
/// would end the call of one function in the name of another. Calls that end there count as lost.
fn remove_shared_exits(plan: &mut LibraryPlan) {
    let mut users: HashMap<u64, u32> = HashMap::new();
    for exit in plan.probes.iter().flat_map(|probe| probe.end.exits()) {
        *users.entry(exit.file_offset).or_default() += 1;
    }
    for probe in &mut plan.probes {
        let EndSite::Exits(exits) = &mut probe.end else {
            continue;
        };
        exits.retain(|exit| users.get(&exit.file_offset) == Some(&1));
        if exits.is_empty() {
            probe.end = EndSite::NotSeen(Unprobeable::NoReturn);
        }
    }
}

/// The probes at `exits`. None if there are no such instructions, or if the call goes on behind all
/// of them: it would seem to end at once.
fn end_or_none(exits: Result<Vec<ExitSite>, Unprobeable>) -> EndSite {
    match exits {
        Ok(exits) if exits.iter().all(|exit| exit.kind == ExitKind::TailCall) => {
            EndSite::NotSeen(Unprobeable::OnlyJumps)
        }
        Ok(exits) => EndSite::Exits(exits),
        Err(reason) => EndSite::NotSeen(reason),
    }
}

/// File offsets and costs of a function's exits. `entry` is the file offset of the probe on its
/// entry.
fn exit_sites(
    code: &FileCode<'_>,
    function: &Function,
    entry: u64,
) -> Result<Vec<ExitSite>, Unprobeable> {
    let found = find_exits(code, function.address, function.size)?;
    let site = |exit: &Exit| {
        let (file_offset, _) = code
            .library
            .elf()
            .code_at(exit.address)
            .ok_or(Unprobeable::NotCode)?;
        // If two programs are attached to one instruction, their order is undefined.
        if file_offset == entry {
            return Err(Unprobeable::OnlyReturn);
        }
        Ok(ExitSite {
            file_offset,
            kind: exit.kind,
            cost: cost(code, exit)?,
        })
    };
    found.exits.iter().map(site).collect()
}

/// Number of instructions of a function, without its parts elsewhere.
fn instructions(code: &FileCode<'_>, function: &Function) -> usize {
    let bytes = code.bytes(function.address, function.size.min(MAX_SIZE));
    Decoder::with_ip(64, &bytes, function.address, DecoderOptions::NONE)
        .iter()
        .count()
}

/// The code of an open file.
struct FileCode<'a> {
    library: &'a LibraryFile,
    functions: &'a Functions,
    /// Data that has been read, by offset.
    pages: RefCell<HashMap<u64, Vec<u8>>>,
}

impl FileCode<'_> {
    /// Appends bytes `within` the page at `offset` to `to`; fewer at the end of the file.
    fn append(&self, offset: u64, within: Range<usize>, to: &mut Vec<u8>) {
        let mut pages = self.pages.borrow_mut();
        let page = pages.entry(offset).or_insert_with(|| {
            let mut bytes = vec![0; PAGE as usize];
            let mut read = 0;
            while let Some(rest) = bytes.get_mut(read..).filter(|rest| !rest.is_empty()) {
                match self.library.file().read_at(rest, offset + read as u64) {
                    Ok(0) | Err(_) => break,
                    Ok(more) => read += more,
                }
            }
            bytes.truncate(read);
            bytes
        });
        let end = within.end.min(page.len());
        to.extend_from_slice(page.get(within.start..end).unwrap_or_default());
    }
}

impl Code for FileCode<'_> {
    fn bytes(&self, address: u64, size: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        let Some((mut offset, available)) = self.library.elf().code_at(address) else {
            return bytes;
        };
        let end = offset.saturating_add(size.min(available));
        while offset < end {
            let page = offset / PAGE * PAGE;
            let next = page.saturating_add(PAGE).min(end);
            let before = bytes.len();
            self.append(
                page,
                (offset - page) as usize..(next - page) as usize,
                &mut bytes,
            );
            if bytes.len() - before != (next - offset) as usize {
                break;
            }
            offset = next;
        }
        bytes
    }

    fn is_function(&self, address: u64) -> bool {
        let named = self
            .functions
            .list
            .binary_search_by_key(&address, |function| function.address);
        named.is_ok()
            || around(&self.functions.unnamed, address).is_some_and(|part| part.start == address)
    }

    fn cold_part(&self, address: u64) -> Option<Range<u64>> {
        around(&self.functions.cold, address).or_else(|| around(&self.functions.unnamed, address))
    }
}

/// The one of the sorted `parts` that contains an address.
fn around(parts: &[Range<u64>], address: u64) -> Option<Range<u64>> {
    let after = parts.partition_point(|part| part.start <= address);
    let part = parts.get(after.checked_sub(1)?)?;
    part.contains(&address).then(|| part.clone())
}
