//! `--stacks`.

use clap::ValueEnum;
use gputrace_session::{Caller, StacksOf};

/// Calls whose stacks are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StackedCalls {
    /// Those that submit kernels, copies, graphs and collectives.
    Launch,
    /// Those that allocate or free memory of a GPU.
    Alloc,
    /// Those that wait for a GPU.
    Sync,
    /// All traced calls.
    All,
}

impl StackedCalls {
    /// The functions that a list of these means.
    pub(crate) fn chosen(list: &[Self]) -> StacksOf {
        if list.contains(&Self::All) {
            return StacksOf::All;
        }
        let callers = list.iter().filter_map(|one| match one {
            Self::Launch => Some(Caller::Launches),
            Self::Alloc => Some(Caller::Allocates),
            Self::Sync => Some(Caller::Waits),
            Self::All => None,
        });
        StacksOf::Callers(callers.collect())
    }
}
