//! Finds the places where a dynamic linker has just changed its list of libraries.
//!
//! It calls an empty function, [`interp::HOOK`](crate::interp::HOOK), before and after each change.
//! That function is a single instruction, `ret`, which the kernel single-steps: 14 µs in a virtual
//! machine, twice per `dlopen`. So the probe goes after those calls that follow a change, on an
//! instruction that the kernel emulates. The instruction before a call tells which calls these are:
//! it stores the list's new state into `r_state` of `struct r_debug` (`link.h`).

use std::os::unix::fs::FileExt as _;

use gputrace_abi::linker::{LinkerCookie, RDebug, RT_CONSISTENT};
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, OpKind};

use crate::{
    elf::{ElfError, ElfInfo},
    library::LibraryFile,
    plan::{self, CostClass},
};

/// A place for a probe in a dynamic linker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkerSite {
    /// File offset of the probed instruction.
    pub file_offset: u64,
    /// Tells the eBPF program about the place.
    pub cookie: LinkerCookie,
    /// Cost of a hit.
    pub cost: CostClass,
}

/// Variable for debuggers, declared in `link.h`.
const R_DEBUG: &str = "_r_debug";

/// Number of instructions before a call that are searched for the store into `r_state`.
const BEFORE: usize = 8;

/// Number of instructions after a call that are searched for one that the kernel emulates.
const BEHIND: usize = 12;

/// Maximum number of bytes of code that are searched; glibc's dynamic linker has less than 200 KiB.
const MAX_CODE: u64 = 4 << 20;

/// Places after those calls of the function at `hook` that follow a change of the list; empty if
/// the calls or `_r_debug` are not found.
///
/// # Errors
///
/// [`ElfError::Read`].
pub(crate) fn behind_changes(
    library: &LibraryFile,
    hook: u64,
) -> Result<Vec<LinkerSite>, ElfError> {
    let elf = library.elf();
    let Some(r_debug) = elf.symbol(R_DEBUG).map(|symbol| symbol.address) else {
        return Ok(Vec::new());
    };
    let mut sites = Vec::new();
    for segment in elf.segments.iter().filter(|segment| segment.executable) {
        let size = usize::try_from(segment.size.min(MAX_CODE)).unwrap_or(0);
        let mut code = vec![0; size];
        let read = library.file().read_exact_at(&mut code, segment.offset);
        read.map_err(|source| ElfError::Read {
            path: library.path().to_owned(),
            source,
        })?;
        let code = Text {
            bytes: &code,
            address: segment.address,
            offset: segment.offset,
        };
        sites.extend(code.sites(hook, r_debug));
    }
    Ok(sites)
}

/// Cookie for a probe at `address`, if the file defines `_r_debug`.
pub(crate) fn cookie_at(elf: &ElfInfo, address: u64, checks_state: bool) -> LinkerCookie {
    elf.symbol(R_DEBUG).map_or(LinkerCookie::UNKNOWN, |symbol| {
        LinkerCookie::new(
            symbol.address.wrapping_sub(address).cast_signed(),
            checks_state,
        )
    })
}

/// Code of a file.
struct Text<'a> {
    bytes: &'a [u8],
    /// Address of the first byte.
    address: u64,
    /// File offset of the first byte.
    offset: u64,
}

impl Text<'_> {
    fn sites(&self, hook: u64, r_debug: u64) -> Vec<LinkerSite> {
        let decoder = Decoder::with_ip(64, self.bytes, self.address, DecoderOptions::NONE);
        let instructions: Vec<Instruction> = decoder.into_iter().collect();
        let calls = instructions.iter().enumerate().filter(|(_, instruction)| {
            instruction.code() == Code::Call_rel32_64 && instruction.near_branch64() == hook
        });
        calls
            .filter_map(|(at, _)| {
                let (before, behind) = instructions.split_at_checked(at)?;
                let store = stored_state(before);
                if store.is_some_and(|(_, state)| state != RT_CONSISTENT) {
                    return None;
                }
                let behind = behind.get(1..).unwrap_or_default();
                let (place, cost) = self
                    .emulated(behind)
                    .or_else(|| self.probeable(store?.0))
                    .or_else(|| self.probeable(behind.first()?))?;
                let distance = r_debug.wrapping_sub(place.ip()).cast_signed();
                Some(LinkerSite {
                    file_offset: self.offset.checked_add(place.ip() - self.address)?,
                    cookie: LinkerCookie::new(distance, store.is_none()),
                    cost,
                })
            })
            .collect()
    }

    /// The first instruction in a straight line of code that the kernel emulates. Calls are
    /// excluded: their emulation does not push onto a shadow stack.
    fn emulated<'i>(&self, line: &'i [Instruction]) -> Option<(&'i Instruction, CostClass)> {
        line.iter()
            .take(BEHIND)
            .take_while(|one| {
                matches!(
                    one.flow_control(),
                    FlowControl::Next
                        | FlowControl::ConditionalBranch
                        | FlowControl::UnconditionalBranch
                )
            })
            .filter_map(|one| self.probeable(one))
            .find(|(_, cost)| *cost == CostClass::Emulated)
    }

    /// Cost of a probe on an instruction, if the kernel accepts it.
    fn probeable<'i>(&self, one: &'i Instruction) -> Option<(&'i Instruction, CostClass)> {
        let into = usize::try_from(one.ip().checked_sub(self.address)?).ok()?;
        let cost = plan::cost(self.bytes.get(into..)?, one.ip()).ok()?;
        Some((one, cost))
    }
}

/// The last instruction before a call that stores a constant into `r_state`, and that constant.
fn stored_state(before: &[Instruction]) -> Option<(&Instruction, u32)> {
    before
        .iter()
        .rev()
        .take(BEFORE)
        .take_while(|one| one.flow_control() == FlowControl::Next)
        .find(|one| {
            one.code() == Code::Mov_rm32_imm32
                && one.op0_kind() == OpKind::Memory
                && one.memory_displacement64() == std::mem::offset_of!(RDebug, state) as u64
        })
        .map(|one| (one, one.immediate32()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HOOK: u64 = 0x2060;
    const R_DEBUG_AT: u64 = 0x34118;

    /// Addresses of the instructions after calls in `code`, which begins at 0x1000, that would be
    /// probed, and whether the state is checked there.
    fn places(code: &[u8]) -> Vec<(u64, bool)> {
        let text = Text {
            bytes: code,
            address: 0x1000,
            offset: 0x1000,
        };
        let sites = text.sites(HOOK, R_DEBUG_AT);
        sites
            .iter()
            .map(|site| {
                let distance = (R_DEBUG_AT - site.file_offset).cast_signed();
                assert_eq!(site.cookie.distance(), Some(distance));
                (site.file_offset, site.cookie.checks_state())
            })
            .collect()
    }

    /// `call HOOK` at an address.
    fn call(at: u64) -> Vec<u8> {
        let mut bytes = vec![0xe8];
        bytes.extend(((HOOK - at - 5) as u32).to_le_bytes());
        bytes
    }

    /// `mov dword [rax+0x18], state`.
    fn store(state: u8) -> Vec<u8> {
        vec![0xc7, 0x40, 0x18, state, 0, 0, 0]
    }

    /// Code as objdump shows it at the ends of `dl_open_worker_begin` and `dl_main` of glibc 2.36.
    #[test]
    fn behind_calls_that_follow_a_change() {
        let test_and_jump = [0x8d, 0x42, 0xff, 0x85, 0xd2, 0x74, 0x5b];
        let after_open = [store(0), call(0x1007), test_and_jump.to_vec()].concat();
        assert_eq!(places(&after_open), [(0x1011, false)]);
        let before_open = [store(1), call(0x1007), test_and_jump.to_vec()].concat();
        assert_eq!(places(&before_open), []);
        let then_call = [store(0), call(0x1007), vec![0xe8, 0, 0, 0, 0]].concat();
        assert_eq!(places(&then_call), [(0x1000, false)]);
        let unknown_state = [call(0x1000), test_and_jump.to_vec()].concat();
        assert_eq!(places(&unknown_state), [(0x100a, true)]);
        // A store before another call does not apply to this one.
        let elsewhere = [
            store(1),
            vec![0xe8, 0, 0, 0, 0],
            call(0x100c),
            test_and_jump.to_vec(),
        ]
        .concat();
        assert_eq!(places(&elsewhere), [(0x1016, true)]);
    }

    proptest! {
        #[test]
        fn any_code(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = places(&bytes);
            let _ = places(&[store(0), call(0x1007), bytes].concat());
        }
    }
}
