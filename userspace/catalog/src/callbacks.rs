//! Functions inside which code other than the library's own can run: callbacks.
//!
//! Such code may throw an exception, end its thread, or switch to another stack. A probe on the
//! function's return replaces the return address on the stack, which no unwinder can pass and which
//! belongs to one stack. So these functions must not have such a probe.
//!
//! Sources: the headers for the types of parameters; ROCr (`core/runtime/*.cpp`, where
//! `AMD::callback_t` forwards the exceptions of callbacks), ROCclr (`platform/command.cpp`,
//! `hipamd/src/hip_stream.cpp`; tests/workloads/gpu/callbacks.cpp checks it), rocDecode (`rocparser/*_parser.cpp`) and rocprofiler-systems
//! (`rocprof-sys-user`) for the thread in which a callback runs.

use crate::{Signature, plain_name, signature};

/// Functions that take a callback and never call it before they return: a thread of the runtime
/// does, or another function that is listed in [`CALLS_LATER`].
const NEVER_INSIDE: &[&str] = &[
    "hipLaunchHostFunc",
    "hipLaunchHostFunc_spt",
    "hipStreamAddCallback",
    "hipStreamAddCallback_spt",
    "hipUserObjectCreate",
    "hsa_amd_async_function",
    "hsa_amd_counted_queue_acquire",
    "hsa_amd_deregister_deallocation_callback",
    "hsa_amd_register_deallocation_callback",
    "hsa_amd_register_system_event_handler",
    "hsa_amd_signal_async_handler",
    "hsa_queue_create",
    "hsa_ven_amd_pcs_create",
    "hsa_ven_amd_pcs_create_from_id",
];

/// Functions that run callbacks which were given to another function.
const CALLS_LATER: &[&str] = &[
    "hipGraphDestroy",
    "hipGraphExecDestroy",
    "hipGraphReleaseUserObject",
    "hipUserObjectRelease",
    "hsa_ven_amd_pcs_destroy",
    "hsa_ven_amd_pcs_flush",
    "hsa_ven_amd_pcs_stop",
    "rocDecDestroyVideoParser",
    "rocDecParseVideoData",
];

/// Prefixes of functions that are not ROCm's own code. A user writes Kokkos tools, and the functions
/// of rocprofiler-systems' user API call what a user has registered.
const OF_OTHERS: &[&str] = &["kokkosp_", "omnitrace_user_", "rocprofsys_user_"];

/// Whether code that is not the library's own can run inside calls of an exported function:
/// between its entry and its return, in its thread.
///
/// A function without a signature, which a newer release has added, is judged by its name.
///
/// What a program runs when memory is freed (`hsa_amd_register_deallocation_callback`) is not
/// considered: it runs inside `hsa_amd_memory_pool_free` and `hsa_memory_free`.
#[must_use]
pub fn runs_callbacks(name: &str) -> bool {
    let name = plain_name(name);
    let of_others = || OF_OTHERS.iter().any(|prefix| name.starts_with(prefix));
    if CALLS_LATER.contains(&name) || of_others() {
        return true;
    }
    if NEVER_INSIDE.contains(&name) {
        return false;
    }
    match signature(name) {
        Some(signature) => takes_callback(signature),
        None => name.contains("iterate") || name.to_ascii_lowercase().contains("callback"),
    }
}

/// Whether a parameter is a pointer to a function.
fn takes_callback(signature: &Signature<'_>) -> bool {
    let arguments = &signature.arguments;
    arguments
        .iter()
        .any(|argument| is_function(argument.c_type.spelling))
}

/// Whether a C type is a pointer to a function, as the headers of ROCm spell such types.
fn is_function(spelling: &str) -> bool {
    const ENDS: [&str; 6] = [
        "allback_t",
        "Fn_t",
        "_func_t",
        "_handler",
        "_handler_t",
        "_notifier",
    ];
    let spelling = spelling.strip_prefix("const ").unwrap_or(spelling);
    spelling.contains("(*") || ENDS.iter().any(|end| spelling.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signatures;

    /// Written by hand from the headers: what a reader of them would call a callback.
    #[test]
    fn functions_with_callbacks() {
        let mut found: Vec<&str> = signatures()
            .filter(|signature| runs_callbacks(signature.name))
            .map(|signature| signature.name)
            .filter(|name| !OF_OTHERS.iter().any(|prefix| name.starts_with(prefix)))
            .collect();
        found.dedup();
        found.sort_unstable();
        let expected = [
            "hipGraphDestroy",
            "hipGraphExecDestroy",
            "hipGraphReleaseUserObject",
            "hipUserObjectRelease",
            "hsa_agent_iterate_caches",
            "hsa_agent_iterate_isas",
            "hsa_agent_iterate_regions",
            "hsa_amd_agent_iterate_memory_pools",
            "hsa_amd_pointer_info",
            "hsa_code_object_iterate_symbols",
            "hsa_code_object_serialize",
            "hsa_executable_iterate_agent_symbols",
            "hsa_executable_iterate_program_symbols",
            "hsa_executable_iterate_symbols",
            "hsa_ext_program_iterate_modules",
            "hsa_isa_iterate_wavefronts",
            "hsa_iterate_agents",
            "hsa_ven_amd_pcs_destroy",
            "hsa_ven_amd_pcs_flush",
            "hsa_ven_amd_pcs_iterate_configuration",
            "hsa_ven_amd_pcs_stop",
            "rocDecDestroyVideoParser",
            "rocDecParseVideoData",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn every_name_is_in_the_headers() {
        for name in NEVER_INSIDE.iter().chain(CALLS_LATER) {
            assert!(signature(name).is_some(), "{name}");
        }
        for name in NEVER_INSIDE {
            let takes = signature(name).is_some_and(takes_callback);
            assert!(takes, "{name} takes no callback, so it need not be listed");
        }
    }

    #[test]
    fn others_are_judged_by_their_names() {
        assert!(runs_callbacks("hsa_amd_new_iterate_things"));
        assert!(runs_callbacks("hipNewCallbackThing"));
        assert!(!runs_callbacks("hipNewThing"));
        assert!(runs_callbacks("kokkosp_begin_parallel_for"));
        assert!(runs_callbacks("rocprofsys_user_push_region"));
        assert!(!runs_callbacks("roctxRangePushA"));
    }
}
