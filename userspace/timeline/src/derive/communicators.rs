//! Which rank of how many a communicator of RCCL stands for.
//!
//! A collective is given a communicator, whose rank and size its arguments do not say. They are told where it is made
//! (`ncclCommInitRank` and its kin) or asked for (`ncclCommUserRank`, `ncclCommCount`), and hold until it is destroyed. What was
//! made before the recording and never asked for is not known, and nothing is shown then.
//!
//! A communicator that is made within a group (`ncclGroupStart`) is stored when the group ends by older releases (seen with 5.7.1);
//! then it is known when it is asked for. Of the many that `ncclCommInitAll` stores the first 31 are read.
//!
//! Communicators are addresses, which are used again. Calls of several threads come in an order that is not quite that in which
//! things happened, so what is known of a communicator holds for calls that began after it became known, and an end
//! concerns what was known before that began.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use gputrace_abi::{REGISTER_ARGS, domain::Domain};
use gputrace_capture::meta::Parameter;

use crate::model::{
    event::{Call, CallEnd, FunctionInfo},
    values::{Annotation, AnnotationValue, Pointee, PointeeData},
};

/// Communicators of a process that are remembered, at most.
const MAX_COMMUNICATORS: usize = 1 << 12;

/// Word of a [`Pointee`] that no argument has: what is known of the communicator stands in none.
const NO_ARGUMENT: u8 = u8::MAX;

/// `ncclSuccess`.
const SUCCESS: u32 = 0;

/// Results of calls that have made a communicator: also `ncclInProgress`, of those that are made in the background.
const MADE: [u32; 2] = [SUCCESS, 7];

/// C types of communicators, and of where one is stored.
const COMMUNICATOR: [&str; 2] = ["ncclComm_t", "const ncclComm_t"];
const STORED: &str = "ncclComm_t *";

/// C types that collectives have besides: of elements and of streams.
const COLLECTIVE: [&str; 2] = ["ncclDataType_t", "hipStream_t"];

/// What a function does with a communicator; words are numbered as in [`Pointee::word`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Makes one and stores it.
    Make {
        stored: u8,
        rank: MadeRank,
        ranks: Option<u8>,
    },
    /// Stores its rank.
    AskRank {
        communicator: u8,
        stored: u8,
    },
    /// Stores its size.
    AskSize {
        communicator: u8,
        stored: u8,
    },
    /// Ends it.
    End {
        communicator: u8,
    },
    GroupStart,
    GroupEnd,
    /// Uses it.
    Collective {
        communicator: u8,
    },
}

/// Where the rank of a new communicator is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MadeRank {
    Word(u8),
    /// Several are stored, in order.
    Each,
    Unknown,
}

/// What is known of a communicator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Known {
    /// ns, `CLOCK_BOOTTIME`; it holds for calls from then on.
    since: u64,
    is_over: bool,
    rank: Option<u32>,
    ranks: Option<u32>,
}

#[derive(Debug, Default)]
struct Process {
    /// By address; also those that are over.
    communicators: HashMap<u64, Known, RandomState>,
    /// Whether some that were over have been forgotten.
    forgot: bool,
    /// Groups of calls that threads are in, if any.
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

    /// Takes note of a call; a collective is told rank and size of its communicator, as far as they are known.
    #[inline]
    pub(crate) fn call(&mut self, call: &mut Call) {
        if call.domain == Domain::Rccl.id()
            && let Some(role) = self.roles.get(&call.function)
        {
            let process = self.processes.entry(call.pid).or_default();
            process.take(*role, call);
        }
    }

    /// A process has ended or executes another program.
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
        // Within a group, older releases store the communicator when the group ends: what is there before may be left of
        // another one. An address that no communicator has had is none of these.
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

    /// Takes what a function has stored about a communicator.
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
                // It is another one, made unseen.
                let mut anew = Known {
                    since: call.begin,
                    ..Known::default()
                };
                *field(&mut anew) = value;
                *known = anew;
            }
            Some(known) if known.since <= call.begin => *field(known) = value,
            // It is about one that had this address before.
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

/// Adds what is known to a collective, as its last arguments.
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

/// What a function does with communicators; `None` if nothing.
fn role(info: &FunctionInfo) -> Option<Role> {
    if info.domain != Some(Domain::Rccl) {
        return None;
    }
    let parameters = info.function.parameters.as_deref().unwrap_or_default();
    let at = |is: &dyn Fn(&Parameter) -> bool| {
        gputrace_catalog::word(parameters.iter().find(|parameter| is(parameter))?.at)
    };
    let named = |name: &str| at(&|parameter| parameter.name == name);
    let communicator = || at(&|parameter| COMMUNICATOR.contains(&parameter.c_type.as_str()));
    let made = || at(&|parameter| parameter.c_type == STORED);
    // `pnccl…` are the same functions for profilers.
    let name = info.function.name.as_str();
    match name.strip_prefix('p').unwrap_or(name) {
        "ncclCommInitRank"
        | "ncclCommInitRankConfig"
        | "ncclCommInitRankMulti"
        | "ncclCommInitRankScalable" => {
            let rank = named("rank").or_else(|| named("myrank"));
            Some(Role::Make {
                stored: made()?,
                rank: rank.map_or(MadeRank::Unknown, MadeRank::Word),
                ranks: named("nranks"),
            })
        }
        "ncclCommInitAll" => Some(Role::Make {
            stored: made()?,
            rank: MadeRank::Each,
            ranks: named("ndev"),
        }),
        "ncclCommSplit" | "ncclCommShrink" => Some(Role::Make {
            stored: made()?,
            rank: MadeRank::Unknown,
            ranks: None,
        }),
        "ncclCommUserRank" => Some(Role::AskRank {
            communicator: communicator()?,
            stored: named("rank")?,
        }),
        "ncclCommCount" => Some(Role::AskSize {
            communicator: communicator()?,
            stored: named("count")?,
        }),
        "ncclCommDestroy" | "ncclCommAbort" | "ncclCommFinalize" => Some(Role::End {
            communicator: communicator()?,
        }),
        "ncclGroupStart" => Some(Role::GroupStart),
        "ncclGroupEnd" => Some(Role::GroupEnd),
        _ => {
            let has = |c_type: &str| {
                parameters
                    .iter()
                    .any(|parameter| parameter.c_type == c_type)
            };
            if !COLLECTIVE.into_iter().all(has) {
                return None;
            }
            Some(Role::Collective {
                communicator: communicator()?,
            })
        }
    }
}

fn word(call: &Call, at: u8) -> Option<u64> {
    let at = usize::from(at);
    match at.checked_sub(REGISTER_ARGS) {
        None => call.args.get(at).copied(),
        Some(at) => call.stack.get(at).copied().filter(|_| call.stack_readable),
    }
}

/// The pointers that a call has stored where the argument word points to.
fn addresses(call: &Call, stored: u8) -> impl Iterator<Item = u64> {
    let bytes = call.stored_bytes(stored).unwrap_or_default();
    let (words, _) = bytes.as_chunks();
    words.iter().map(|word| u64::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use gputrace_capture::meta::{ArgSlot, ValueKind};
    use gputrace_catalog::signature;

    use super::*;
    use crate::{derive::args, synthetic::call};

    const PID: u32 = 7;

    /// Functions that a test has called, and the calls so far: each lasts 10 ns and begins 20 after the last.
    #[derive(Default)]
    struct Program {
        communicators: Communicators,
        functions: Vec<FunctionInfo>,
        time: u64,
        pid: u32,
    }

    impl Program {
        fn new() -> Self {
            Self {
                pid: PID,
                ..Self::default()
            }
        }

        fn make(
            &mut self,
            name: &str,
            args: [u64; 6],
            stored: Option<(u8, u64)>,
            status: u64,
        ) -> Call {
            if !self
                .functions
                .iter()
                .any(|known| known.function.name == name)
            {
                let number = self.functions.len() as u32;
                let mut info = FunctionInfo::named(number, name, Some(Domain::Rccl));
                info.function.parameters = Some(signature(name).unwrap().parameters());
                self.communicators.function(&info);
                self.functions.push(info);
            }
            let function = self
                .functions
                .iter()
                .position(|known| known.function.name == name);
            self.time += 20;
            let mut call = call(self.time, self.time, self.time + 10);
            call.function = function.unwrap() as u32;
            call.domain = Domain::Rccl.id();
            (call.pid, call.tid) = (self.pid, self.pid);
            call.args = args;
            call.stack_readable = true;
            call.how = CallEnd::Returned(status);
            if let Some((word, value)) = stored {
                call.pointees.push(Pointee {
                    word,
                    at_return: true,
                    data: PointeeData::Bytes(value.to_le_bytes().to_vec()),
                });
            }
            call
        }

        fn call(&mut self, name: &str, args: [u64; 6], stored: Option<(u8, u64)>) {
            let mut call = self.make(name, args, stored, 0);
            self.communicators.call(&mut call);
        }

        /// Rank and size that a collective shows.
        fn shown(&self, call: &Call) -> Vec<(String, String)> {
            let info = &self.functions[call.function as usize];
            let shown = args::decoded(info, call)
                .skip_while(|(name, _)| *name != "bytes")
                .skip(1);
            shown
                .map(|(name, value)| (name.to_owned(), value.to_string()))
                .collect()
        }

        /// As `rank/size`, of an all-reduce.
        fn of(&mut self, communicator: u64) -> String {
            let mut call = self.make("ncclAllReduce", [1, 2, 64, 7, 0, communicator], None, 0);
            self.communicators.call(&mut call);
            let shown = self.shown(&call);
            let of = |name: &str| {
                let mut found = shown.iter().filter(|(known, _)| known == name);
                found.next().map_or("?", |(_, value)| value).to_owned()
            };
            format!("{}/{}", of("rank"), of("nranks"))
        }

        fn init(&mut self, communicator: u64, rank: u64, ranks: u64) {
            // Upper halves of registers mean nothing.
            let args = [0x5000, 0xffff_0000_0000_0000 | ranks, rank, 0, 0, 0];
            self.call("ncclCommInitRank", args, Some((0, communicator)));
        }

        fn destroy(&mut self, communicator: u64) {
            self.call("ncclCommDestroy", [communicator, 0, 0, 0, 0, 0], None);
        }
    }

    #[test]
    fn collectives_know_the_rank_and_size_of_their_communicator() {
        let mut program = Program::new();
        assert_eq!(program.of(0xa0), "?/?");
        program.init(0xa0, 1, 4);
        program.init(0xb0, 3, 8);
        assert_eq!(
            (program.of(0xa0), program.of(0xb0)),
            ("1/4".into(), "3/8".into())
        );
        // Its communicator is on the stack.
        let mut reduce = program.make("ncclReduce", [1, 2, 64, 7, 0, 2], None, 0);
        reduce.stack[0] = 0xb0;
        program.communicators.call(&mut reduce);
        let shown = [
            ("rank".to_owned(), "3".to_owned()),
            ("nranks".to_owned(), "8".to_owned()),
        ];
        assert_eq!(program.shown(&reduce), shown);
        reduce.pointees.clear();
        reduce.stack_readable = false;
        program.communicators.call(&mut reduce);
        assert_eq!(program.shown(&reduce), []);
        // What is no collective is as it was.
        let mut op = program.make("ncclRedOpCreatePreMulSum", [1, 2, 7, 0, 0xa0, 0], None, 0);
        program.communicators.call(&mut op);
        assert_eq!(op.pointees, []);
        // Another process has its own.
        program.pid = 8;
        assert_eq!(program.of(0xa0), "?/?");
        program.pid = PID;
        program.communicators.ended(8);
        assert_eq!(program.of(0xa0), "1/4");
        program.communicators.ended(PID);
        assert_eq!(program.of(0xa0), "?/?");
    }

    #[test]
    fn what_was_made_before_is_known_when_it_is_asked_for() {
        let mut program = Program::new();
        program.call("ncclCommUserRank", [0xa0, 0x5000, 0, 0, 0, 0], Some((1, 2)));
        assert_eq!(program.of(0xa0), "2/?");
        program.call("ncclCommCount", [0xa0, 0x5000, 0, 0, 0, 0], Some((1, 16)));
        assert_eq!(program.of(0xa0), "2/16");
        // Of several each has the rank of its place; what a split makes is not known.
        let mut all = program.make(
            "ncclCommInitAll",
            [0x5000, 4, 0, 0, 0, 0],
            Some((0, 0xb0)),
            0,
        );
        if let PointeeData::Bytes(bytes) = &mut all.pointees[0].data {
            bytes.extend([0xb1_u64, 0, 0xb3].map(u64::to_le_bytes).as_flattened());
        }
        program.communicators.call(&mut all);
        let ranks = [0xb0, 0xb1, 0, 0xb3].map(|one| program.of(one));
        assert_eq!(ranks, ["0/4", "1/4", "?/?", "3/4"]);
        program.call("ncclCommSplit", [0xa0, 0, 0, 0x5000, 0, 0], Some((3, 0xb0)));
        assert_eq!(program.of(0xb0), "?/?");
        program.call("ncclCommUserRank", [0xb0, 0x5000, 0, 0, 0, 0], Some((1, 1)));
        assert_eq!(program.of(0xb0), "1/?");
        // A call that failed says nothing; one that goes on in the background does.
        let mut failed = program.make(
            "ncclCommInitRank",
            [0x5000, 4, 1, 0, 0, 0],
            Some((0, 0xc0)),
            3,
        );
        program.communicators.call(&mut failed);
        assert_eq!(program.of(0xc0), "?/?");
        let config = "ncclCommInitRankConfig";
        let mut later = program.make(config, [0x5000, 4, 1, 0, 0, 0], Some((0, 0xc0)), 7);
        program.communicators.call(&mut later);
        assert_eq!(program.of(0xc0), "1/4");
    }

    #[test]
    fn an_address_that_is_used_again_is_another_communicator() {
        let mut program = Program::new();
        for end in ["ncclCommDestroy", "ncclCommAbort", "ncclCommFinalize"] {
            program.init(0xa0, 1, 4);
            assert_eq!(program.of(0xa0), "1/4");
            program.call(end, [0xa0, 0, 0, 0, 0, 0], None);
            assert_eq!(program.of(0xa0), "?/?");
        }
        // Made anew unseen.
        program.call("ncclCommCount", [0xa0, 0x5000, 0, 0, 0, 0], Some((1, 2)));
        assert_eq!(program.of(0xa0), "?/2");

        // Of two threads, the end of the old one and a question about it come after the new one.
        let destroy = program.make("ncclCommDestroy", [0xa0, 0, 0, 0, 0, 0], None, 0);
        let rank = program.make(
            "ncclCommUserRank",
            [0xa0, 0x5000, 0, 0, 0, 0],
            Some((1, 9)),
            0,
        );
        let early = program.make("ncclAllReduce", [1, 2, 64, 7, 0, 0xa0], None, 0);
        program.init(0xa0, 2, 3);
        for mut late in [destroy, rank, early] {
            let before = late.pointees.len();
            program.communicators.call(&mut late);
            assert_eq!(late.pointees.len(), before);
        }
        assert_eq!(program.of(0xa0), "2/3");
    }

    #[test]
    fn what_stands_there_within_a_group_may_be_left_of_another() {
        let mut program = Program::new();
        let group = |program: &mut Program, what| program.call(what, [0; 6], None);
        group(&mut program, "ncclGroupStart");
        program.init(0xa0, 0, 2);
        program.init(0xb0, 1, 2);
        group(&mut program, "ncclGroupEnd");
        assert_eq!(
            (program.of(0xa0), program.of(0xb0)),
            ("0/2".into(), "1/2".into())
        );
        program.destroy(0xa0);
        program.destroy(0xb0);
        group(&mut program, "ncclGroupStart");
        program.init(0xa0, 0, 2);
        group(&mut program, "ncclGroupEnd");
        assert_eq!(program.of(0xa0), "?/?");
        program.destroy(0xa0);
        program.init(0xa0, 0, 2);
        assert_eq!(program.of(0xa0), "0/2");
    }

    #[test]
    fn newer_functions_have_their_own_names_for_the_rank() {
        let parameter = |(name, c_type, word): (&str, &str, u8)| Parameter {
            name: name.to_owned(),
            c_type: c_type.to_owned(),
            kind: ValueKind::Word,
            at: ArgSlot::Register(word),
            stored: None,
            ..Parameter::default()
        };
        let parameters = [
            ("newcomm", "ncclComm_t *", 0),
            ("nranks", "int", 1),
            ("myrank", "int", 2),
        ];
        let mut info = FunctionInfo::named(1, "pncclCommInitRankScalable", Some(Domain::Rccl));
        assert_eq!(role(&info), None);
        info.function.parameters = Some(parameters.into_iter().map(parameter).collect());
        let made = Role::Make {
            stored: 0,
            rank: MadeRank::Word(2),
            ranks: Some(1),
        };
        assert_eq!(role(&info), Some(made));
    }

    #[test]
    fn memory_is_bounded() {
        let mut program = Program::new();
        let most = MAX_COMMUNICATORS as u64;
        for address in 1..=most + 10 {
            program.init(address, 1, 2);
        }
        assert_eq!(
            program.communicators.processes[&PID].communicators.len(),
            MAX_COMMUNICATORS
        );
        assert_eq!(
            (program.of(most), program.of(most + 1)),
            ("1/2".into(), "?/?".into())
        );
        program.destroy(1);
        program.init(most + 1, 1, 2);
        assert_eq!(program.of(most + 1), "1/2");
    }
}
