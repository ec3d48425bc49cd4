//! Plans the probes on chosen functions.

use std::{cell::RefCell, collections::HashMap, ops::Range, os::unix::fs::FileExt as _};

use gputrace_abi::domain::Domain;
use iced_x86::{Decoder, DecoderOptions};

use super::{
    Code, Function, Functions,
    exits::{MAX_SIZE, cost, find_exits},
    hazard, may_throw,
};
use crate::{
    elf::ElfError,
    library::{ExitSite, LibraryFile, LibraryPlan, PlannedProbe, RefusedProbe},
    plan::Unprobeable,
};

/// Number of bytes read at once.
const PAGE: u64 = 1 << 16;

/// How a chosen function is traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The domain in which its calls are recorded.
    pub domain: Domain,
    /// Whether calls are seen to end at the instructions that leave the function, even if its name
    /// is not a C++ or Rust name.
    pub by_exits: bool,
}

/// Plans probes on the functions that `choose` selects and that have at least `least` instructions.
///
/// For functions with C++ or Rust names, and others if so chosen, the end of a call is probed at
/// the instructions that leave the function ([`PlannedProbe::exits`]), so that exceptions can pass.
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
    let by_exits = choice.by_exits || function.names.iter().any(|name| may_throw(name));
    let exits = if by_exits {
        exit_sites(code, function)
    } else {
        Ok(Vec::new())
    };
    let exits = match exits {
        Ok(exits) => exits,
        Err(reason) => return Ok(Err(reason)),
    };
    // If two programs are attached to one instruction, their order is undefined.
    if exits
        .iter()
        .any(|exit| exit.file_offset == site.file_offset)
    {
        return Ok(Err(Unprobeable::OnlyReturn));
    }
    let mut names = function.names.clone();
    Ok(Ok(Some(PlannedProbe {
        name: names.remove(0),
        aliases: names,
        version: None,
        domain: choice.domain,
        address: function.address,
        site,
        exits,
        source: function.source.as_ref().map(ToString::to_string),
    })))
}

/// File offsets and costs of a function's exits.
fn exit_sites(code: &FileCode<'_>, function: &Function) -> Result<Vec<ExitSite>, Unprobeable> {
    let found = find_exits(code, function.address, function.size)?;
    found
        .exits
        .iter()
        .map(|exit| {
            let (file_offset, _) = code
                .library
                .elf()
                .code_at(exit.address)
                .ok_or(Unprobeable::NotCode)?;
            Ok(ExitSite {
                file_offset,
                kind: exit.kind,
                cost: cost(code, exit)?,
            })
        })
        .collect()
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
        let found = self
            .functions
            .list
            .binary_search_by_key(&address, |function| function.address);
        found.is_ok()
    }

    fn cold_part(&self, address: u64) -> Option<Range<u64>> {
        let after = self
            .functions
            .cold
            .partition_point(|part| part.start <= address);
        let part = self.functions.cold.get(after.checked_sub(1)?)?;
        part.contains(&address).then(|| part.clone())
    }
}
