//! Remembers the direction of each copy that a program asked HIP for.
//!
//! Memory that was allocated before gputrace attached is not known, and for a copy within one GPU
//! the agents do not tell the direction either. The call of HIP does, by its name or by an
//! argument. The program may be wrong, so outputs state that only the call says it.

use foldhash::HashMap;
use gputrace_abi::domain::Domain;
use gputrace_capture::gpu::AgentKind;
use gputrace_catalog::{Signature, launch::PER_THREAD, signature, word};

use crate::{
    derive::limited::Limited,
    model::{
        event::{Call, FunctionInfo},
        gpu::Origin,
    },
};

/// C type of the argument with the direction of a copy.
pub(crate) const KIND: &str = "hipMemcpyKind";

/// Kinds of the agents with source and destination.
pub(crate) type Kinds = [AgentKind; 2];

const TO_GPU: Kinds = [AgentKind::Cpu, AgentKind::Gpu];
const TO_HOST: Kinds = [AgentKind::Gpu, AgentKind::Cpu];
const WITHIN_GPUS: Kinds = [AgentKind::Gpu, AgentKind::Gpu];

/// Functions without such an argument, by what follows `hipMemcpy`, without `Async` and `_spt`.
/// Arrays are in memory of the GPU.
const NAMES: [(&str, Kinds); 10] = [
    ("3DPeer", WITHIN_GPUS),
    ("AtoA", WITHIN_GPUS),
    ("AtoD", WITHIN_GPUS),
    ("AtoH", TO_HOST),
    ("DtoA", WITHIN_GPUS),
    ("DtoD", WITHIN_GPUS),
    ("DtoH", TO_HOST),
    ("HtoA", TO_GPU),
    ("HtoD", TO_GPU),
    ("Peer", WITHIN_GPUS),
];

/// How a function says the direction.
#[derive(Clone, Copy, Debug)]
enum Says {
    ByName(Kinds),
    /// In this argument word.
    ByArgument(u8),
}

/// Remembers what the latest copying calls of HIP said.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    functions: HashMap<u32, Says>,
    /// What calls said, by correlation id.
    calls: Limited<Kinds>,
}

impl Asked {
    /// Learns of a function.
    pub(crate) fn function(&mut self, info: &FunctionInfo) {
        let name = info.function.name.as_str();
        if info.domain == Some(Domain::HipRuntime)
            && let Some(says) = says(name)
        {
            self.functions.insert(info.function.id, says);
        }
    }

    /// Learns from a call.
    pub(crate) fn call(&mut self, call: &Call) {
        let said = match self.functions.get(&call.function) {
            None => return,
            Some(Says::ByName(kinds)) => Some(*kinds),
            Some(Says::ByArgument(word)) => call.word(*word).and_then(kinds),
        };
        if let Some(said) = said {
            self.calls.add(call.correlation, said);
        }
    }

    /// What the innermost of the copying calls said that work belongs to; `None` if it is not known
    /// or said nothing.
    pub(crate) fn of(&self, origin: &Origin) -> Option<Kinds> {
        let calls = [origin.innermost, origin.caller, origin.outermost];
        calls
            .iter()
            .find_map(|call| self.calls.values.get(call))
            .copied()
    }
}

fn says(name: &str) -> Option<Says> {
    let plain = name.strip_prefix("hipMemcpy")?;
    let parameters = signature(name).map(Signature::parameters);
    let mut parameters = parameters.into_iter().flatten();
    if let Some(kind) = parameters.find(|parameter| parameter.c_type == KIND) {
        return word(kind.at).map(Says::ByArgument);
    }
    let plain = plain.strip_suffix(PER_THREAD).unwrap_or(plain);
    let plain = plain.strip_suffix("Async").unwrap_or(plain);
    let (_, kinds) = NAMES.iter().find(|(known, _)| *known == plain)?;
    Some(Says::ByName(*kinds))
}

/// What a `hipMemcpyKind` says: nothing if it leaves it to the addresses (`hipMemcpyDefault`).
const fn kinds(kind: u64) -> Option<Kinds> {
    // An `int`: the other half of the register is undefined.
    match kind as u32 {
        0 => Some([AgentKind::Cpu, AgentKind::Cpu]),
        1 => Some(TO_GPU),
        2 => Some(TO_HOST),
        // `hipMemcpyDeviceToDeviceNoCU`: by a copy engine.
        3 | 1024 => Some(WITHIN_GPUS),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
