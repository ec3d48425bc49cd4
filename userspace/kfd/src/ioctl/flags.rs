//! Names of flags and of numbered choices, as `kfd_ioctl.h` spells them, without their common
//! prefix.

/// A bit and its name, or a number and its name.
pub type Names = &'static [(u32, &'static str)];

/// `KFD_IOC_QUEUE_TYPE_*`.
pub const QUEUE_TYPES: Names = &[
    (0, "COMPUTE"),
    (1, "SDMA"),
    (2, "COMPUTE_AQL"),
    (3, "SDMA_XGMI"),
    (4, "SDMA_BY_ENG_ID"),
];

/// `KFD_IOC_CACHE_POLICY_*`.
pub const CACHE_POLICIES: Names = &[(0, "COHERENT"), (1, "NONCOHERENT")];

/// `KFD_IOC_EVENT_*`.
pub const EVENT_TYPES: Names = &[
    (0, "SIGNAL"),
    (1, "NODECHANGE"),
    (2, "DEVICESTATECHANGE"),
    (3, "HW_EXCEPTION"),
    (4, "SYSTEM_EVENT"),
    (5, "DEBUG_EVENT"),
    (6, "PROFILE_EVENT"),
    (7, "QUEUE_EVENT"),
    (8, "MEMORY"),
];

/// `KFD_IOC_WAIT_RESULT_*`.
pub const WAIT_RESULTS: Names = &[(0, "COMPLETE"), (1, "TIMEOUT"), (2, "FAIL")];

/// `KFD_IOC_ALLOC_MEM_FLAGS_*`, masks.
pub const ALLOC_MEM_FLAGS: Names = &[
    (1 << 0, "VRAM"),
    (1 << 1, "GTT"),
    (1 << 2, "USERPTR"),
    (1 << 3, "DOORBELL"),
    (1 << 4, "MMIO_REMAP"),
    (1 << 23, "CONTIGUOUS_BEST_EFFORT"),
    (1 << 24, "EXT_COHERENT"),
    (1 << 25, "UNCACHED"),
    (1 << 26, "COHERENT"),
    (1 << 27, "AQL_QUEUE_MEM"),
    (1 << 28, "NO_SUBSTITUTE"),
    (1 << 29, "PUBLIC"),
    (1 << 30, "EXECUTABLE"),
    (1 << 31, "WRITABLE"),
];

/// `KFD_IOCTL_SVM_OP_*`.
pub const SVM_OPS: Names = &[(0, "SET_ATTR"), (1, "GET_ATTR")];

/// `KFD_IOCTL_SVM_ATTR_*`.
pub const SVM_ATTRIBUTES: Names = &[
    (0, "PREFERRED_LOC"),
    (1, "PREFETCH_LOC"),
    (2, "ACCESS"),
    (3, "ACCESS_IN_PLACE"),
    (4, "NO_ACCESS"),
    (5, "SET_FLAGS"),
    (6, "CLR_FLAGS"),
    (7, "GRANULARITY"),
];

/// `KFD_IOCTL_SVM_FLAG_*`, masks: values of the attributes `SET_FLAGS` and `CLR_FLAGS`.
pub const SVM_FLAGS: Names = &[
    (1 << 0, "HOST_ACCESS"),
    (1 << 1, "COHERENT"),
    (1 << 2, "HIVE_LOCAL"),
    (1 << 3, "GPU_RO"),
    (1 << 4, "GPU_EXEC"),
    (1 << 5, "GPU_READ_MOSTLY"),
    (1 << 6, "GPU_ALWAYS_MAPPED"),
    (1 << 7, "EXT_COHERENT"),
];

/// `KFD_CRIU_OP_*`.
pub const CRIU_OPS: Names = &[
    (0, "PROCESS_INFO"),
    (1, "CHECKPOINT"),
    (2, "UNPAUSE"),
    (3, "RESTORE"),
    (4, "RESUME"),
];

/// `KFD_RUNTIME_ENABLE_MODE_*_MASK`.
pub const RUNTIME_ENABLE_MODES: Names = &[(1, "ENABLE"), (2, "TTMP_SAVE")];

/// `KFD_IOC_DBG_TRAP_*`.
pub const DBG_TRAP_OPS: Names = &[
    (0, "ENABLE"),
    (1, "DISABLE"),
    (2, "SEND_RUNTIME_EVENT"),
    (3, "SET_EXCEPTIONS_ENABLED"),
    (4, "SET_WAVE_LAUNCH_OVERRIDE"),
    (5, "SET_WAVE_LAUNCH_MODE"),
    (6, "SUSPEND_QUEUES"),
    (7, "RESUME_QUEUES"),
    (8, "SET_NODE_ADDRESS_WATCH"),
    (9, "CLEAR_NODE_ADDRESS_WATCH"),
    (10, "SET_FLAGS"),
    (11, "QUERY_DEBUG_EVENT"),
    (12, "QUERY_EXCEPTION_INFO"),
    (13, "GET_QUEUE_SNAPSHOT"),
    (14, "GET_DEVICE_SNAPSHOT"),
];

/// `KFD_IOC_PROFILER_*`.
pub const PROFILER_OPS: Names = &[
    (0, "PMC"),
    (1, "PC_SAMPLE"),
    (2, "VERSION"),
    (3, "PTL_CONTROL"),
    (4, "DLOG"),
];

/// `KFD_CROSS_MEMORY_RW_BIT`.
pub const CROSS_MEMORY_DIRECTIONS: Names = &[(0, "READ"), (1, "WRITE")];

/// `KFD_IOCTL_SPM_OP_*`.
pub const SPM_OPS: Names = &[(0, "ACQUIRE"), (1, "RELEASE"), (2, "SET_DEST_BUF")];

/// `KFD_IOCTL_PCS_OP_*`.
pub const PC_SAMPLE_OPS: Names = &[
    (0, "QUERY_CAPABILITIES"),
    (1, "CREATE"),
    (2, "DESTROY"),
    (3, "START"),
    (4, "STOP"),
];
