//! The runtime's list, followed from what is known of it.
//!
//! Programs that compile while they run load thousands of code objects, one at a time, and gputrace looks
//! after each: so one look must not go through all of them. ROCr adds to the end of its list
//! (`AddCodeObjectInfoIntoDebugMap` in `loader/executable.cpp`), so what is new stands behind what is known.
//! What it takes off the list it unlinks and fills with zeros. One look therefore
//!
//! 1. goes back from the last known entry to one that is still there, which costs as much as was removed;
//! 2. goes on from there to the end, which costs as much as was added;
//! 3. checks a few of the other known entries, in turns, so that what was removed in the middle is forgotten.
//!
//! An entry is still there if it has the words that it had, if the entry before it leads to it, and if what
//! it stands for is the same. The last one is asked of the caller: memory is used again, and an entry may come
//! back with all its words for another code object.

use std::collections::{BTreeMap, HashMap, HashSet};

use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned, little_endian::U64};

use crate::{
    memory::{Memory, MemoryError},
    registry::{self, Damage, Listed, MAX_OBJECTS, MAX_TEXT, State},
    uri::MAX_URI,
};

/// How often a list that changes is read.
const ATTEMPTS: usize = 4;

/// Known entries that each look checks, besides the last ones.
const CHECKED: usize = 2;

/// The same of a look that finds nothing new: something must have been the reason for it.
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
    /// Address of its URI.
    name: u64,
}

/// A list, as far as it is known.
#[derive(Debug)]
pub struct Chain {
    /// Address of its head.
    address: u64,
    /// Known entries in the order of loading, by numbers that only grow.
    links: BTreeMap<u64, Link>,
    /// Their numbers by address.
    numbers: HashMap<u64, u64>,
    /// Number of the next entry.
    next: u64,
    /// Number of the entry that is checked next.
    turn: u64,
    /// Bytes of all URIs.
    text: usize,
    /// Whether entries lead back as they should (`l_prev`). Without, their own words have to do.
    leads_back: bool,
}

/// What a look at a list has found.
#[derive(Debug)]
pub struct Changes {
    /// New entries, in the order of loading. One that was there before, with all its words, may be among
    /// them, if it stands for something else now; it is in `removed`, too.
    pub added: Vec<Listed>,
    /// Entries that are gone.
    pub removed: Vec<Listed>,
    /// Whether nothing moved meanwhile. If not, another look is due after the next notification.
    pub settled: bool,
    /// Why the list ends early, if it does.
    pub damage: Option<Damage>,
}

/// What is behind the last known entry.
#[derive(Default)]
struct Walk {
    links: Vec<Link>,
    leads_back: bool,
    damage: Option<Damage>,
}

impl Chain {
    /// The list whose head is at an address, of which nothing is known yet.
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

    /// Whether an entry was there at the last look.
    #[must_use]
    pub fn has(&self, listed: &Listed) -> bool {
        let number = self.numbers.get(&listed.entry);
        let link = number.and_then(|number| self.links.get(number));
        link.is_some_and(|link| link.listed == *listed)
    }

    /// Looks at the list. `is_same` is asked of entries whose words have not changed.
    ///
    /// # Errors
    /// [`MemoryError`] if not even its head can be read, or the process is gone.
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
            // While the runtime says that all is consistent, and says it again, nothing has begun in between,
            // unless it also ended; then the entries differ from those of the time before.
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
            // Its memory was another entry's before.
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

    /// Where an entry leads, if it is still there; `first` is where the head leads.
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

    /// Checks known entries whose turn it is, and forgets those that are gone. Returns those that stand for
    /// something else now; they are in `removed`, too.
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

    /// Goes to the end of the list, from the entry `next` that `last` leads to.
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
            // A known entry that says that it comes after another is where it always was.
            if !leads_back && self.leads_back && self.numbers.contains_key(&entry) {
                walk.damage = Some(Damage::Circle(entry));
                break;
            }
            walk.leads_back &= leads_back;
            // An entry without a name is being removed, or is about to be filled.
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
