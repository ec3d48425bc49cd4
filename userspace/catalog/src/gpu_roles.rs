//! Functions that report the GPU's work, whether they are traced as calls or not.

use gputrace_abi::{REGISTER_ARGS, domain::Domain, gpu::role};
use gputrace_capture::meta::ArgSlot;

use crate::Signature;

/// Function, role, and the domain that needs it; `None`: any GPU domain.
const ROLES: &[(&str, u8, Option<Domain>)] = &[
    (
        "hsa_signal_store_relaxed",
        role::DOORBELL,
        Some(Domain::KernelDispatch),
    ),
    (
        "hsa_signal_store_release",
        role::DOORBELL,
        Some(Domain::KernelDispatch),
    ),
    (
        "hsa_signal_store_screlease",
        role::DOORBELL,
        Some(Domain::KernelDispatch),
    ),
    (
        "hsa_queue_destroy",
        role::QUEUE_DESTROY,
        Some(Domain::KernelDispatch),
    ),
    ("hsa_signal_silent_store_relaxed", role::REARM, None),
    ("hsa_signal_silent_store_screlease", role::REARM, None),
    ("hsa_signal_destroy", role::SIGNAL_DESTROY, None),
    (
        "hsa_amd_memory_async_copy",
        role::COPY,
        Some(Domain::MemoryCopy),
    ),
    (
        "hsa_amd_memory_async_copy_on_engine",
        role::COPY_ON_ENGINE,
        Some(Domain::MemoryCopy),
    ),
    (
        "hsa_amd_memory_async_copy_rect",
        role::COPY_RECT,
        Some(Domain::MemoryCopy),
    ),
    (
        "hsa_amd_memory_async_batch_copy",
        role::COPY_BATCH,
        Some(Domain::MemoryCopy),
    ),
];

/// The function that loads the code objects of an executable; they are loaded when it returns.
pub const CODE_OBJECTS_LOADED: &str = "hsa_executable_freeze";

/// The function that unloads code objects.
pub const CODE_OBJECTS_UNLOADED: &str = "hsa_executable_destroy";

/// The function that frees everything the runtime still has, including completion signals.
pub const RUNTIME_ENDS: &str = "hsa_shut_down";

/// Role of a function for the GPU's work ([`gputrace_abi::gpu::role`]), if one of the requested
/// domains needs it.
#[must_use]
pub fn gpu_role(name: &str, domains: &[Domain]) -> u8 {
    ROLES
        .iter()
        .find(|(function, ..)| *function == name)
        .filter(|(.., domain)| match domain {
            // Queues are also followed for their scratch memory.
            Some(Domain::KernelDispatch) => {
                domains.contains(&Domain::KernelDispatch)
                    || domains.contains(&Domain::ScratchMemory)
            }
            Some(domain) => domains.contains(domain),
            None => is_gpu_traced(domains),
        })
        .map_or(role::NONE, |(_, role, _)| *role)
}

/// Whether any domain is about the GPU's own work or its scratch memory.
#[must_use]
pub fn is_gpu_traced(domains: &[Domain]) -> bool {
    let is_gpu = |domain: &Domain| domain.is_gpu_work() || *domain == Domain::ScratchMemory;
    domains.iter().any(is_gpu)
}

/// Index of the argument word with a call's `hipStream_t`, as counted by
/// [`gputrace_abi::cookie::Cookie::with_stream`]; `None` if the call has none, or probes do not
/// record it.
#[must_use]
pub fn stream_word(signature: &Signature<'_>) -> Option<u8> {
    let parameters = signature.parameters();
    let stream = parameters
        .iter()
        .find(|parameter| parameter.c_type == "hipStream_t")?;
    match stream.at {
        ArgSlot::Register(word) => Some(word),
        ArgSlot::Stack(word) => Some(REGISTER_ARGS as u8 + word),
        ArgSlot::Unrecorded => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signature;

    #[test]
    fn roles_are_those_of_functions_in_the_headers() {
        for (name, ..) in ROLES {
            assert!(signature(name).is_some(), "{name}");
        }
        assert!(signature(CODE_OBJECTS_LOADED).is_some());
        assert!(signature(CODE_OBJECTS_UNLOADED).is_some());
        assert!(signature(RUNTIME_ENDS).is_some());
    }

    #[test]
    fn roles_go_with_domains() {
        let role = |name, domains: &[Domain]| gpu_role(name, domains);
        assert_eq!(role("hsa_signal_destroy", &[Domain::HsaCore]), role::NONE);
        assert_eq!(
            role("hsa_signal_destroy", &[Domain::MemoryCopy]),
            role::SIGNAL_DESTROY
        );
        assert_eq!(
            role("hsa_signal_store_relaxed", &[Domain::MemoryCopy]),
            role::NONE
        );
        for domain in [Domain::KernelDispatch, Domain::ScratchMemory] {
            assert_eq!(role("hsa_signal_store_relaxed", &[domain]), role::DOORBELL);
        }
    }

    #[test]
    fn streams_are_found_in_registers_and_on_the_stack() {
        let word = |name: &str| stream_word(signature(name).expect("in the catalogue"));
        // Arguments as declared in hip_runtime_api.h: the stream comes last in each.
        assert_eq!(word("hipMemcpyAsync"), Some(4));
        assert_eq!(word("hipGraphLaunch"), Some(1));
        // function, grid (2 words), block (2 words), args in registers; shared bytes, stream on the
        // stack.
        assert_eq!(word("hipLaunchKernel"), Some(7));
        // function, grid x y z, block x y; block z, shared bytes, stream.
        assert_eq!(word("hipModuleLaunchKernel"), Some(8));
        assert_eq!(word("hipMalloc"), None);
        // A pointer to a stream is the destination of a new one.
        assert_eq!(word("hipStreamCreate"), None);
    }
}
