//! Names of functions and domains as exporters show them.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use gputrace_abi::domain::Domain;
use gputrace_timeline::event::FunctionInfo;

/// Name shown for a function that the capture does not describe.
pub const UNKNOWN_FUNCTION: &str = "(unknown function)";

/// The functions of a capture, by the id that calls refer to.
#[derive(Clone, Debug, Default)]
pub struct Functions {
    known: HashMap<u32, FunctionInfo, RandomState>,
}

impl Functions {
    /// Remembers a function.
    pub fn learn(&mut self, info: &FunctionInfo) {
        self.known.insert(info.function.id, info.clone());
    }

    /// The function with this id.
    #[must_use]
    pub fn get(&self, id: u32) -> Option<&FunctionInfo> {
        self.known.get(&id)
    }

    /// All functions, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &FunctionInfo> {
        self.known.values()
    }

    /// Its exported name, or [`UNKNOWN_FUNCTION`].
    #[must_use]
    pub fn name(&self, id: u32) -> &str {
        self.get(id)
            .map_or(UNKNOWN_FUNCTION, |info| info.function.name.as_str())
    }
}

/// Stem of the CSV file for calls of a domain, which is also the group under which the summary
/// shows them: rocprofv3's `hip_api`, `hsa_api`; `other_api` for a domain that this version does
/// not know.
#[must_use]
pub fn group(domain: u8) -> &'static str {
    Domain::from_id(domain)
        .filter(|domain| domain.is_api())
        .map_or("other_api", Domain::csv_stem)
}

/// A group's name for people, e.g. `HIP API`.
#[must_use]
pub fn group_title(group: &str) -> String {
    group.to_uppercase().replace('_', " ")
}
