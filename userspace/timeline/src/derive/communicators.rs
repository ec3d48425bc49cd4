//! Finds the rank and size of RCCL communicators.
//!
//! The arguments of a collective name a communicator, but not its rank and size. Those are known
//! from the call that creates it (`ncclCommInitRank` and similar) or that queries it
//! (`ncclCommUserRank`, `ncclCommCount`), and hold until it is destroyed. Rank and size of a
//! communicator that was created before the recording and never queried are unknown, and not shown.
//!
//! Older releases (seen with 5.7.1) store a communicator that is created within a group
//! (`ncclGroupStart`) only when the group ends; it is then known from its first query on. Of the
//! communicators that `ncclCommInitAll` stores, the first 31 are read.
//!
//! Communicators are addresses, which are reused. Calls of several threads come in an order that
//! may differ from that in which they happened. So what is known of a communicator applies to calls
//! that began after it became known, and a destruction concerns only what was known before that
//! call began.

mod roles;

use std::collections::HashMap;

use foldhash::fast::RandomState;
use gputrace_abi::{REGISTER_ARGS, domain::Domain};

use self::roles::{MadeRank, Role, role};
use crate::model::{
    event::{Call, CallEnd, FunctionInfo},
    values::{Annotation, AnnotationValue, Pointee, PointeeData},
};

/// Maximum number of communicators remembered per process.
const MAX_COMMUNICATORS: usize = 1 << 12;

/// Word of a [`Pointee`] that belongs to no argument, used for rank and size.
const NO_ARGUMENT: u8 = u8::MAX;

/// `ncclSuccess`.
const SUCCESS: u32 = 0;

/// Results of calls that have created a communicator. `ncclInProgress` means that creation goes on
/// in the background.
const MADE: [u32; 2] = [SUCCESS, 7];

/// What is known of a communicator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Known {
    /// ns, `CLOCK_BOOTTIME`; the data applies to calls from then on.
    since: u64,
    is_over: bool,
    rank: Option<u32>,
    ranks: Option<u32>,
}

#[derive(Debug, Default)]
struct Process {
    /// By address, including destroyed ones.
    communicators: HashMap<u64, Known, RandomState>,
    /// Whether some destroyed ones have been forgotten.
    forgot: bool,
    /// Depth of open groups by thread.
    groups: HashMap<u32, u32, RandomState>,
}

/// The communicators of all processes.
#[derive(Debug, Default)]
pub(crate) struct Communicators {
    roles: HashMap<u32, Role, RandomState>,
    processes: HashMap<u32, Process, RandomState>,
}

impl Communicators {
    /// Learns of a function.
    pub(crate) fn function(&mut self, info: &FunctionInfo) {
        if let Some(role) = role(info) {
            self.roles.insert(info.function.id, role);
        }
    }

    /// Learns from a call. A collective gets rank and size of its communicator, as far as they are
    /// known.
    #[inline]
    pub(crate) fn call(&mut self, call: &mut Call) {
        if call.domain == Domain::Rccl.id()
            && let Some(role) = self.roles.get(&call.function)
        {
            let process = self.processes.entry(call.pid).or_default();
            process.take(*role, call);
        }
    }

    /// A process has ended or executed another program.
    pub(crate) fn ended(&mut self, pid: u32) {
        self.processes.remove(&pid);
    }
}

impl Process {
    fn take(&mut self, role: Role, call: &mut Call) {
        let status = match call.how {
            CallEnd::Returned(status) => Some(status as u32),
            _ => None,
        };
        match role {
            Role::Make {
                stored,
                rank,
                ranks,
            } if status.is_some_and(|status| MADE.contains(&status)) => {
                let ranks = ranks
                    .and_then(|at| word(call, at))
                    .map(|ranks| ranks as u32);
                let several = match rank {
                    MadeRank::Each => usize::MAX,
                    _ => 1,
                };
                for (place, address) in (0..).zip(addresses(call, stored).take(several)) {
                    let rank = match rank {
                        MadeRank::Word(at) => word(call, at).map(|rank| rank as u32),
                        MadeRank::Each => Some(place),
                        MadeRank::Unknown => None,
                    };
                    if address != 0 {
                        self.make(call, address, rank, ranks);
                    }
                }
            }
            Role::AskRank {
                communicator,
                stored,
            } if status == Some(SUCCESS) => {
                self.ask(call, communicator, stored, |known| &mut known.rank);
            }
            Role::AskSize {
                communicator,
                stored,
            } if status == Some(SUCCESS) => {
                self.ask(call, communicator, stored, |known| &mut known.ranks);
            }
            Role::End { communicator } => {
                let known = word(call, communicator)
                    .and_then(|address| self.communicators.get_mut(&address));
                if let Some(known) = known.filter(|known| known.since <= call.begin) {
                    known.is_over = true;
                }
            }
            Role::GroupStart => *self.groups.entry(call.tid).or_default() += 1,
            Role::GroupEnd => {
                if let Some(depth) = self.groups.get_mut(&call.tid) {
                    *depth -= 1;
                    if *depth == 0 {
                        self.groups.remove(&call.tid);
                    }
                }
            }
            Role::Collective { communicator } => {
                let known =
                    word(call, communicator).and_then(|address| self.communicators.get(&address));
                if let Some(known) =
                    known.filter(|known| !known.is_over && known.since <= call.begin)
                {
                    annotate(call, *known);
                }
            }
            Role::Make { .. } | Role::AskRank { .. } | Role::AskSize { .. } => {}
        }
    }

    fn make(&mut self, call: &Call, address: u64, rank: Option<u32>, ranks: Option<u32>) {
        // Within a group, older releases store the communicator only when the group ends: the value
        // read before may be a stale one of another communicator. An address that no communicator
        // has had cannot be stale.
        let is_sure = !self.groups.contains_key(&call.tid)
            || !self.forgot && !self.communicators.contains_key(&address);
        let (rank, ranks) = if is_sure { (rank, ranks) } else { (None, None) };
        self.put(
            address,
            Known {
                since: call.end,
                is_over: false,
                rank,
                ranks,
            },
        );
    }

    /// Learns from a query what the function has stored about a communicator.
    fn ask(
        &mut self,
        call: &Call,
        communicator: u8,
        stored: u8,
        field: fn(&mut Known) -> &mut Option<u32>,
    ) {
        let (Some(address), Some(value)) = (word(call, communicator), call.stored(stored)) else {
            return;
        };
        let value = Some(value as u32);
        match self.communicators.get_mut(&address) {
            Some(known) if known.is_over => {
                // It is another communicator, created unseen.
                let mut anew = Known {
                    since: call.begin,
                    ..Known::default()
                };
                *field(&mut anew) = value;
                *known = anew;
            }
            Some(known) if known.since <= call.begin => *field(known) = value,
            // The answer concerns an earlier communicator at this address.
            Some(_) => {}
            None => {
                let mut known = Known {
                    since: call.begin,
                    ..Known::default()
                };
                *field(&mut known) = value;
                self.put(address, known);
            }
        }
    }

    fn put(&mut self, address: u64, known: Known) {
        if self.communicators.len() >= MAX_COMMUNICATORS
            && !self.communicators.contains_key(&address)
        {
            self.communicators.retain(|_, known| !known.is_over);
            self.forgot = true;
            if self.communicators.len() >= MAX_COMMUNICATORS {
                return;
            }
        }
        self.communicators.insert(address, known);
    }
}

/// Appends what is known to a collective's arguments.
fn annotate(call: &mut Call, known: Known) {
    for (name, value) in [("rank", known.rank), ("nranks", known.ranks)] {
        let Some(value) = value else { continue };
        call.pointees.push(Pointee {
            word: NO_ARGUMENT,
            at_return: false,
            data: PointeeData::Annotation(Annotation {
                name: name.to_owned(),
                value: AnnotationValue::Signed(i64::from(value.cast_signed())),
            }),
        });
    }
}

fn word(call: &Call, at: u8) -> Option<u64> {
    let at = usize::from(at);
    match at.checked_sub(REGISTER_ARGS) {
        None => call.args.get(at).copied(),
        Some(at) => call.stack.get(at).copied().filter(|_| call.stack_readable),
    }
}

/// The pointers that a call stored through an argument word.
fn addresses(call: &Call, stored: u8) -> impl Iterator<Item = u64> {
    let bytes = call.stored_bytes(stored).unwrap_or_default();
    let (words, _) = bytes.as_chunks();
    words.iter().map(|word| u64::from_le_bytes(*word))
}

#[cfg(test)]
mod tests;
