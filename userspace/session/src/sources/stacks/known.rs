//! Which stacks are known.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use gputrace_abi::stack::{SITE_WORDS, STACK_POINTER, Site, SiteKey, SiteWord, StackCopy, WAYS};
use gputrace_capture::stack::{Frame, Stack, StackEnd};
use gputrace_unwind::Register;
use zerocopy::FromZeros as _;

use super::images::Found;

/// Maximum number of stacks that are remembered to write each only once; beyond that all are
/// written again.
const STACKS: usize = 1 << 16;

/// Number of bits of [`Site::depends_on`].
const _: () = assert!(Register::ALL.len() <= u16::BITS as usize);

/// The stacks that were written, and those that the programs can tell.
#[derive(Default)]
pub(super) struct Known {
    stacks: HashMap<(u32, Vec<Frame>, StackEnd), u32, RandomState>,
    /// For process, stack pointer and return address: the stacks, by way.
    sites: HashMap<(u32, u64, u64), Vec<u32>, RandomState>,
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
        let stack = Stack {
            number: copy.stack,
            pid: copy.pid,
            ..Stack::default()
        };
        let stack = if number == copy.stack {
            Stack {
                frames: found.frames.clone(),
                end: found.end,
                ..stack
            }
        } else {
            Stack {
                same_as: Some(number),
                ..stack
            }
        };
        (stack, number)
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
        let ways = self
            .sites
            .entry((copy.pid, pointer, found.return_address))
            .or_default();
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
        let key = SiteKey {
            pid: copy.pid,
            way: way as u32,
            pointer,
            return_address: found.return_address,
        };
        Some((key, site))
    }
}
