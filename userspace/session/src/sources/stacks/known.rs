//! Which stacks are known.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use gputrace_abi::stack::{
    PAGE, SITE_WORDS, STACK_POINTER, Site, SiteKey, SiteWord, StackCopy, WAYS,
};
use gputrace_capture::stack::{Frame, Stack, StackEnd};
use gputrace_loader::calls::Calls;
use gputrace_unwind::Register;
use zerocopy::FromZeros as _;

use super::images::Found;

/// Maximum number of stacks that are remembered to write each only once; beyond that all are
/// written again.
const STACKS: usize = 1 << 16;

/// Number of bits of [`Site::depends_on`].
const _: () = assert!(Register::ALL.len() <= u16::BITS as usize);

/// Where a call comes from, as the programs look for its stack.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Place {
    pid: u32,
    /// The stack pointer at the function's entry.
    pointer: u64,
    return_address: u64,
}

impl Place {
    /// The key of one of the stacks that are known for the place.
    fn key(self, way: u32) -> SiteKey {
        let Self {
            pid,
            pointer,
            return_address,
        } = self;
        SiteKey {
            pid,
            way,
            pointer,
            return_address,
        }
    }
}

/// The stacks that were written, and those that the programs can tell.
#[derive(Default)]
pub(super) struct Known {
    stacks: HashMap<(u32, Vec<Frame>, StackEnd), u32, RandomState>,
    /// For each place: the stacks, by way.
    sites: HashMap<Place, Vec<u32>, RandomState>,
}

impl Known {
    /// The document for a copied stack, and the number under which the programs may tell it.
    pub(super) fn number(&mut self, copy: &StackCopy, found: &Found) -> (Stack, u32) {
        if self.stacks.len() >= STACKS {
            self.stacks.clear();
            self.sites.clear();
        }
        let key = (copy.pid, found.frames.clone(), found.end);
        let number = *self.stacks.entry(key).or_insert(copy.stack);
        let stack = if number == copy.stack {
            Stack {
                number,
                pid: copy.pid,
                frames: found.frames.clone(),
                end: found.end,
                ..Stack::default()
            }
        } else {
            same(copy, number)
        };
        (stack, number)
    }

    /// The number under which the programs tell the stack by now; `None` if they do not.
    pub(super) fn recognised(&self, copy: &StackCopy, calls: &Calls) -> Option<u32> {
        let pointer = copy.registers.get(STACK_POINTER).copied()?;
        let return_address = word(copy, pointer)?;
        let place = Place {
            pid: copy.pid,
            pointer,
            return_address,
        };
        let ways = self.sites.get(&place)?.len() as u32;
        let sites = (0..ways).filter_map(|way| calls.site(&place.key(way)).ok().flatten());
        let mut same = sites.filter(|site| is_same(site, copy));
        Some(same.next()?.stack)
    }

    /// Forgets the stacks of a process, because the code at their addresses may be another now.
    pub(super) fn forget(&mut self, gone: u32, calls: &Calls) {
        self.stacks.retain(|(pid, ..), _| *pid != gone);
        self.sites.retain(|place, ways| {
            if place.pid != gone {
                return true;
            }
            for way in 0..ways.len() as u32 {
                // One that is not there has been evicted.
                let _ = calls.remove_site(&place.key(way));
            }
            false
        });
    }

    /// How the programs tell the stack; `None` if it depends on too much.
    pub(super) fn site(
        &mut self,
        copy: &StackCopy,
        found: &Found,
        number: u32,
    ) -> Option<(SiteKey, Site)> {
        let depends_on = found.depends_on.as_ref()?;
        if depends_on.memory.len() > SITE_WORDS {
            return None;
        }
        let pointer = copy.registers.get(STACK_POINTER).copied()?;
        let mut site = Site::new_zeroed();
        site.stack = number;
        site.registers = copy.registers;
        site.words = depends_on.memory.len() as u16;
        for (at, register) in Register::ALL.into_iter().enumerate() {
            site.depends_on |= u16::from(depends_on.has(register)) << at;
        }
        for (word, (address, value)) in site.memory.iter_mut().zip(&depends_on.memory) {
            *word = SiteWord {
                offset: address.wrapping_sub(pointer),
                value: *value,
            };
        }
        let place = Place {
            pid: copy.pid,
            pointer,
            return_address: found.return_address,
        };
        let ways = self.sites.entry(place).or_default();
        let way = match ways.iter().position(|known| *known == number) {
            Some(way) => way,
            None if ways.len() < WAYS as usize => {
                ways.push(number);
                ways.len() - 1
            }
            // One of them must go.
            None => {
                let way = number as usize % WAYS as usize;
                if let Some(known) = ways.get_mut(way) {
                    *known = number;
                }
                way
            }
        };
        Some((place.key(way as u32), site))
    }
}

/// The document for a copied stack that has been written under another number.
pub(super) fn same(copy: &StackCopy, number: u32) -> Stack {
    Stack {
        number: copy.stack,
        pid: copy.pid,
        same_as: Some(number),
        ..Stack::default()
    }
}

/// A word of the memory that was copied.
pub(super) fn word(copy: &StackCopy, address: u64) -> Option<u64> {
    let begin = copy.registers.get(STACK_POINTER)? & !(PAGE as u64 - 1);
    let copied = usize::try_from(copy.pages).ok()?.checked_mul(PAGE)?;
    let at = usize::try_from(address.checked_sub(begin)?).ok()?;
    let word = copy.memory.get(..copied)?.get(at..at.checked_add(8)?)?;
    word.try_into().ok().map(u64::from_ne_bytes)
}

/// Whether everything that the stack of a site depends on is the same in a copy.
fn is_same(site: &Site, copy: &StackCopy) -> bool {
    let Some(pointer) = copy.registers.get(STACK_POINTER) else {
        return false;
    };
    let registers = site.registers.iter().zip(&copy.registers).enumerate();
    let words = site.memory.iter().take(site.words.into());
    registers
        .filter(|(at, _)| site.depends_on & 1 << at != 0)
        .all(|(_, (known, now))| known == now)
        && words
            .map(|one| (one.value, word(copy, pointer.wrapping_add(one.offset))))
            .all(|(known, now)| now == Some(known))
}
