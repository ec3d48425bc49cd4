//! Functions whose callers a user wants to know.

use crate::{
    hip_memory::hip_allocation,
    launch::{Launch, launch},
    memory::allocation,
};

/// What a function does, so that its caller matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Caller {
    /// It submits work to a GPU: kernels, copies, graphs, collectives.
    Launches,
    /// It allocates or frees memory of a GPU.
    Allocates,
    /// It waits for a GPU.
    Waits,
}

/// Beginnings of the names of functions that submit copies and collectives.
const SUBMIT: [&str; 5] = ["hipMemcpy", "hipMemset", "hipDrvMemcpy", "nccl", "mscclRun"];

/// Beginnings of the names of HSA's functions that wait.
const WAIT: [&str; 2] = ["hsa_signal_wait", "hsa_amd_signal_wait"];

/// What a function does that makes its caller matter; `None` if it does nothing of the kind.
#[must_use]
pub fn caller(name: &str) -> Option<Caller> {
    let begins = |with: &[&str]| with.iter().any(|begin| name.starts_with(begin));
    if matches!(launch(name), Some((Launch::Kernel(_) | Launch::Unknown, _))) || begins(&SUBMIT) {
        Some(Caller::Launches)
    } else if allocation(name).is_some() || hip_allocation(name).is_some() {
        Some(Caller::Allocates)
    } else if name.starts_with("hip") && name.contains("Synchronize") || begins(&WAIT) {
        Some(Caller::Waits)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_told_apart() {
        for (name, why) in [
            ("hipLaunchKernel", Some(Caller::Launches)),
            ("hipLaunchKernel_spt", Some(Caller::Launches)),
            ("hipGraphLaunch", Some(Caller::Launches)),
            ("hipMemcpyAsync", Some(Caller::Launches)),
            ("ncclAllReduce", Some(Caller::Launches)),
            ("hipMalloc", Some(Caller::Allocates)),
            ("hipFree", Some(Caller::Allocates)),
            ("hsa_amd_memory_pool_allocate", Some(Caller::Allocates)),
            ("hipStreamSynchronize", Some(Caller::Waits)),
            ("hipDeviceSynchronize", Some(Caller::Waits)),
            ("hsa_signal_wait_scacquire", Some(Caller::Waits)),
            ("hipGetDevice", None),
            ("hipSetDevice", None),
            ("hipStreamCreate", None),
        ] {
            assert_eq!(caller(name), why, "{name}");
        }
    }
}
