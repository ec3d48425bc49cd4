//! Which functions of RCCL make, ask about, use and end communicators, by their names and the C types
//! of their parameters.

use gputrace_abi::domain::Domain;
use gputrace_capture::meta::Parameter;

use crate::model::event::FunctionInfo;

/// C types of communicators, and of a pointer through which one is stored.
const COMMUNICATOR: [&str; 2] = ["ncclComm_t", "const ncclComm_t"];
const STORED: &str = "ncclComm_t *";

/// C types that distinguish collectives: of element types and of streams.
const COLLECTIVE: [&str; 2] = ["ncclDataType_t", "hipStream_t"];

/// What a function does with a communicator; words are numbered as in [`Pointee::word`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Creates one and stores it.
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
    /// Destroys it.
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

/// Where the rank of a new communicator is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MadeRank {
    Word(u8),
    /// Several are stored; the rank is the index.
    Each,
    Unknown,
}

/// What a function does with communicators; `None` if nothing.
pub(super) fn role(info: &FunctionInfo) -> Option<Role> {
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
    // `pnccl…` are the same functions, for profilers.
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
