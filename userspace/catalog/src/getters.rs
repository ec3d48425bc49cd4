//! Functions that only ask for a value, so that a recording loses little without their calls.

/// Beginnings of their names. Functions that ask for a handle or an address are not among them: the
/// timeline follows these. Nor is `hipSetDevice`, which says on which GPU a launch runs.
const GETTERS: [&str; 48] = [
    "__hipPopCallConfiguration",
    "__hipPushCallConfiguration",
    "hipApiName",
    "hipCtxGetApiVersion",
    "hipCtxGetCurrent",
    "hipCtxGetDevice",
    "hipCtxGetFlags",
    "hipDeviceCanAccessPeer",
    "hipDeviceComputeCapability",
    "hipDeviceGetAttribute",
    "hipDeviceGetName",
    "hipDeviceGetP2PAttribute",
    "hipDeviceGetPCIBusId",
    "hipDeviceGetStreamPriorityRange",
    "hipDeviceGetUuid",
    "hipDeviceTotalMem",
    "hipDriverGetVersion",
    "hipDrvPointerGetAttributes",
    "hipEventElapsedTime",
    "hipEventQuery",
    "hipExtGetLastError",
    "hipFuncGetAttribute",
    "hipGetDevice",
    "hipGetErrorName",
    "hipGetErrorString",
    "hipGetLastError",
    "hipGetStreamDeviceId",
    "hipKernelNameRef",
    "hipMemGetInfo",
    "hipModuleOccupancy",
    "hipOccupancy",
    "hipPeekAtLastError",
    "hipPointerGetAttribute",
    "hipRuntimeGetVersion",
    "hipStreamGetCaptureInfo",
    "hipStreamGetDevice",
    "hipStreamGetFlags",
    "hipStreamGetPriority",
    "hipStreamIsCapturing",
    "hipStreamQuery",
    "hsa_agent_get_info",
    "hsa_amd_agent_memory_pool_get_info",
    "hsa_amd_memory_pool_get_info",
    "hsa_amd_pointer_info",
    "hsa_executable_symbol_get_info",
    "hsa_isa_get_info",
    "hsa_signal_load_",
    "hsa_system_get_",
];

/// Whether a function only asks for a value.
#[must_use]
pub fn is_getter(name: &str) -> bool {
    GETTERS.iter().any(|getter| name.starts_with(getter))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{is_on_request, launch::launch, stacks::caller};

    #[test]
    fn what_a_recording_is_about_is_no_getter() {
        for name in GETTERS {
            assert!(caller(name).is_none() && launch(name).is_none(), "{name}");
        }
        for name in ["hipGetDevice", "hipEventQuery_spt", "hsa_agent_get_info"] {
            assert!(is_getter(name), "{name}");
        }
        for name in [
            "hipLaunchKernel",
            "hipMemcpyAsync",
            "hipSetDevice",
            "hipStreamSynchronize",
            "hsa_signal_store_relaxed",
            "roctxRangePushA",
        ] {
            assert!(!is_getter(name), "{name}");
        }
        assert!(is_on_request("hsa_signal_load_relaxed"));
    }
}
