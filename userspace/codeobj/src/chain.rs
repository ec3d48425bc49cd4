//! Follows the runtime's list, starting from the entries that are already known.
//!
//! Programs that compile at run time load thousands of code objects, one at a time, and gputrace
//! looks at the list after each: so one look must not go through all entries. ROCr appends to the
//! end of its list (`AddCodeObjectInfoIntoDebugMap` in `loader/executable.cpp`), so new entries
//! follow the known ones. It unlinks removed entries and fills them with zeros. One look therefore
//!
//! 1. goes back from the last known entry to one that still exists, which costs as much as was
//!    removed;
//! 2. goes on from there to the end, which costs as much as was added;
//! 3. checks a few of the other known entries, in turn, so that entries removed in the middle are
//!    forgotten.
//!
//! An entry still exists if it has the same words as before, if the previous entry leads to it, and
//! if it stands for the same code object. The caller decides the last one: memory is reused, and an
//! entry with the same words may stand for another code object.

use std::collections::{BTreeMap, HashMap, HashSet};

use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned, little_endian::U64};

use crate::{
    memory::{Memory, MemoryError},
    registry::{self, Damage, Listed, MAX_OBJECTS, MAX_TEXT, State},
    uri::MAX_URI,
};

/// Maximum number of attempts to read a list that is changing.
const ATTEMPTS: usize = 4;

/// Number of known entries that each look checks, besides the last ones.
const CHECKED: usize = 2;

/// Number of known entries checked by a look that finds nothing new: there must have been a reason
/// for the look.
const CHECKED_MORE: usize = 32;

/// `struct link_map`.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawEntry {
    load_delta: U64,
    name: U64,
    dynamic: U64,
    next: U64,
    previous: U64,
}

impl RawEntry {
    fn read(memory: &impl Memory, entry: u64) -> Result<Self, MemoryError> {
        let bytes: [u8; size_of::<Self>()] = memory.array(entry)?;
        Ok(zerocopy::transmute!(bytes))
    }
}

/// An entry as it was last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Link {
    listed: Listed,
    /// Address of the URI.
    name: u64,
}

/// The known part of a list.
#[derive(Debug)]
pub struct Chain {
    /// Address of the list's head.
    address: u64,
    /// Known entries in the order of loading, by increasing numbers.
    links: BTreeMap<u64, Link>,
    /// Numbers of the entries, by address.
    numbers: HashMap<u64, u64>,
    /// Number of the next entry.
    next: u64,
    /// Number of the entry that is checked next.
    turn: u64,
    /// Size of all URIs, bytes.
    text: usize,
    /// Whether entries have correct back links (`l_prev`). If not, only their own words are
    /// compared.
    leads_back: bool,
}

/// Changes that a look at a list has found.
#[derive(Debug)]
pub struct Changes {
    /// New entries, in the order of loading. An entry that existed before, with all its words, is
    /// included if it stands for another code object now; then it is in `removed`, too.
    pub added: Vec<Listed>,
    /// Entries that no longer exist.
    pub removed: Vec<Listed>,
    /// Whether the list was stable during the look. If not, another look is due after the next
    /// notification.
    pub settled: bool,
    /// Why the walk ended before the list's end, if it did.
    pub damage: Option<Damage>,
}

/// The entries after the last known one.
#[derive(Default)]
struct Walk {
    links: Vec<Link>,
    leads_back: bool,
    damage: Option<Damage>,
}

impl Chain {
    /// The list whose head is at `address`, with no known entries yet.
    #[must_use]
    pub fn new(address: u64) -> Self {
        Self {
            address,
            links: BTreeMap::new(),
            numbers: HashMap::new(),
            next: 0,
            turn: 0,
            text: 0,
            leads_back: true,
        }
    }

    /// Whether an entry existed at the last look.
    #[must_use]
    pub fn has(&self, listed: &Listed) -> bool {
        let number = self.numbers.get(&listed.entry);
        let link = number.and_then(|number| self.links.get(number));
        link.is_some_and(|link| link.listed == *listed)
    }

    /// Looks at the list. `is_same` is called for entries whose words have not changed, and returns
    /// whether they stand for the same code object.
    ///
    /// # Errors
    ///
    /// [`MemoryError`] if not even the head can be read, or the process is gone.
    pub fn look(
        &mut self,
        memory: &impl Memory,
        mut is_same: impl FnMut(&Listed) -> bool,
    ) -> Result<Changes, MemoryError> {
        let mut removed = Vec::new();
        let mut before: Option<Vec<Link>> = None;
        let mut attempts = 0;
        let (walk, settled) = loop {
            attempts += 1;
            let head = registry::head(memory, self.address)?;
            let (last, from) = loop {
                let Some((number, link)) = self.links.last_key_value() else {
                    break (0, head.first);
                };
                if let Some(next) = self.follow(memory, head.first, link)?
                    && is_same(&link.listed)
                {
                    break (link.listed.entry, next);
                }
                removed.extend(self.remove(*number));
            };
            let walk = self.walk(memory, last, from)?;
            let after = registry::head(memory, self.address)?;
            // If the runtime reports a consistent state before and after, no change has begun in
            // between, unless it also ended; in that case, the entries differ from those of the
            // previous attempt.
            let calm = head == after && head.state == State::Consistent && walk.damage.is_none();
            let settled = calm && (walk.links.is_empty() || before.as_ref() == Some(&walk.links));
            if settled || attempts == ATTEMPTS {
                break (walk, settled);
            }
            before = Some(walk.links);
        };
        let Walk {
            links,
            leads_back,
            damage,
        } = walk;
        let mut added = Vec::with_capacity(links.len());
        if settled {
            self.leads_back &= leads_back;
            let most = if links.is_empty() {
                CHECKED_MORE
            } else {
                CHECKED
            };
            added = self.check(memory, most, &mut is_same, &mut removed)?;
        }
        for link in links {
            // Another entry was at this address before.
            if let Some(number) = self.numbers.get(&link.listed.entry) {
                removed.extend(self.remove(*number));
            }
            added.push(link.listed.clone());
            self.insert(link);
        }
        Ok(Changes {
            added,
            removed,
            settled,
            damage,
        })
    }

    /// The entry after a given one, if that still exists; `first` is the one that the head leads
    /// to.
    fn follow(
        &self,
        memory: &impl Memory,
        first: u64,
        link: &Link,
    ) -> Result<Option<u64>, MemoryError> {
        let there = || -> Result<Option<u64>, MemoryError> {
            let entry = link.listed.entry;
            let raw = RawEntry::read(memory, entry)?;
            if (raw.load_delta.get(), raw.name.get()) != (link.listed.load_delta, link.name)
                || memory.c_string(link.name, MAX_URI)? != link.listed.uri
            {
                return Ok(None);
            }
            let led_to = match raw.previous.get() {
                _ if !self.leads_back => entry,
                0 => first,
                previous => RawEntry::read(memory, previous)?.next.get(),
            };
            Ok((led_to == entry).then(|| raw.next.get()))
        };
        match there() {
            Err(MemoryError::Unmapped { .. } | MemoryError::Unterminated { .. }) => Ok(None),
            found => found,
        }
    }

    /// Checks the known entries whose turn it is, and forgets those that no longer exist. Returns
    /// those that stand for another code object now; they are in `removed`, too.
    fn check(
        &mut self,
        memory: &impl Memory,
        most: usize,
        is_same: &mut impl FnMut(&Listed) -> bool,
        removed: &mut Vec<Listed>,
    ) -> Result<Vec<Listed>, MemoryError> {
        let mut others = Vec::new();
        let first = registry::head(memory, self.address)?.first;
        for _ in 0..most.min(self.links.len()) {
            let here = self.links.range(self.turn..).next();
            let Some((number, link)) = here.or_else(|| self.links.first_key_value()) else {
                break;
            };
            let number = *number;
            self.turn = number + 1;
            if self.follow(memory, first, link)?.is_none() {
                removed.extend(self.remove(number));
            } else if !is_same(&link.listed) {
                removed.push(link.listed.clone());
                others.push(link.listed.clone());
            }
        }
        Ok(others)
    }

    /// Walks to the end of the list, from the entry `next`, which `last` leads to.
    fn walk(&self, memory: &impl Memory, last: u64, next: u64) -> Result<Walk, MemoryError> {
        let mut walk = Walk {
            leads_back: true,
            ..Walk::default()
        };
        let mut seen = HashSet::new();
        let mut text = self.text;
        let (mut previous, mut entry) = (last, next);
        while entry != 0 {
            if !seen.insert(entry) || entry == last {
                walk.damage = Some(Damage::Circle(entry));
                break;
            }
            if self.links.len() + seen.len() > MAX_OBJECTS || text > MAX_TEXT {
                walk.damage = Some(Damage::TooLong);
                break;
            }
            let raw = match RawEntry::read(memory, entry) {
                Err(error @ MemoryError::NoSuchProcess { .. }) => return Err(error),
                Err(error) => {
                    walk.damage = Some(error.into());
                    break;
                }
                Ok(raw) => raw,
            };
            let leads_back = raw.previous.get() == previous;
            // A known entry that names another predecessor than this one has not moved: the list
            // has a circle.
            if !leads_back && self.leads_back && self.numbers.contains_key(&entry) {
                walk.damage = Some(Damage::Circle(entry));
                break;
            }
            walk.leads_back &= leads_back;
            // An entry without a name is being removed, or is about to be filled in.
            let name = raw.name.get();
            if name != 0 {
                match memory.c_string(name, MAX_URI) {
                    Ok(uri) if uri.is_empty() => {}
                    Ok(uri) => {
                        text += uri.len();
                        let load_delta = raw.load_delta.get();
                        walk.links.push(Link {
                            listed: Listed {
                                entry,
                                load_delta,
                                uri,
                            },
                            name,
                        });
                    }
                    Err(error @ MemoryError::NoSuchProcess { .. }) => return Err(error),
                    Err(error) => {
                        walk.damage = Some(error.into());
                        break;
                    }
                }
            }
            previous = entry;
            entry = raw.next.get();
        }
        Ok(walk)
    }

    fn insert(&mut self, link: Link) {
        self.text += link.listed.uri.len();
        self.numbers.insert(link.listed.entry, self.next);
        self.links.insert(self.next, link);
        self.next += 1;
    }

    fn remove(&mut self, number: u64) -> Option<Listed> {
        let Link { listed, .. } = self.links.remove(&number)?;
        self.numbers.remove(&listed.entry);
        self.text = self.text.saturating_sub(listed.uri.len());
        Some(listed)
    }
}

#[cfg(test)]
mod tests;
