//! Messages to the user about the files whose functions are traced.

use std::{borrow::Cow, fmt};

use gputrace_abi::domain::Domain;
use gputrace_text::tables::{count, plural};
use gputrace_tracee::library::LibraryPlan;

use super::extra::some;

/// A probed file that nobody has been told about yet.
#[derive(Debug)]
pub(crate) struct AttachReport {
    pub(crate) path: String,
    /// Soname and build id, if the user named it as a library and could have meant another.
    pub(crate) chosen: Option<String>,
    /// Number of traced functions.
    pub(crate) functions: usize,
    pub(crate) left_out: LeftOut,
}

impl fmt::Display for AttachReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.functions {
            0 => write!(f, "following the GPU's work through {}", self.path),
            functions => write!(
                f,
                "tracing {} of {}",
                count(functions as u64, "function"),
                self.path
            ),
        }?;
        if let Some(chosen) = &self.chosen {
            write!(f, " ({chosen})")?;
        }
        let LeftOut { refused, indirect } = &self.left_out;
        if let number @ 1.. = refused.len() {
            write!(f, "; {number} more cannot be traced: {}", some(refused))?;
        }
        if let number @ 1.. = indirect.len() {
            write!(
                f,
                "; {} not traced, because the code is chosen in each process: {}",
                plural(
                    number as u64,
                    "indirect function (IFUNC) is",
                    "indirect functions (IFUNC) are"
                ),
                some(indirect)
            )?;
        }
        Ok(())
    }
}

/// Requested functions other than ROCm's that are not traced.
#[derive(Debug, Default)]
pub(crate) struct LeftOut {
    /// Names of refused functions, with reasons.
    refused: Vec<String>,
    /// Names of indirect functions.
    indirect: Vec<String>,
}

impl LeftOut {
    pub(crate) fn of(plan: &LibraryPlan) -> Self {
        let others = plan
            .refused
            .iter()
            .filter(|refused| matches!(refused.domain, Domain::Library | Domain::Function));
        let refused = others.map(|refused| {
            let name = shown_name(refused.domain, &refused.name);
            format!("{name} ({})", refused.reason)
        });
        let is_api = |name: &String| {
            gputrace_catalog::classify(gputrace_catalog::plain_name(name)).is_some()
        };
        Self {
            refused: refused.collect(),
            indirect: plan
                .indirect
                .iter()
                .filter(|name| !is_api(name))
                .cloned()
                .collect(),
        }
    }
}

/// Name as people read it: as in the public header of an API, or the full demangled name.
pub(crate) fn shown_name(domain: Domain, name: &str) -> Cow<'_, str> {
    match domain {
        Domain::Library | Domain::Function => {
            gputrace_demangle::demangle(name).map_or(Cow::Borrowed(name), Cow::Owned)
        }
        _ => Cow::Borrowed(gputrace_catalog::plain_name(name)),
    }
}
