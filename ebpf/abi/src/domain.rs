//! Domains: the groups in which API calls and the GPU's work are traced, counted and filtered.

/// Number of domain slots in [`crate::counters::CpuCounters`]; every [`Domain`] has a lower number.
pub const DOMAINS: usize = 32;

/// Kind of the records in a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Calls of functions or of the driver.
    Call,
    /// Work of the GPU.
    GpuWork,
    /// Observations: what the kernel and the driver report.
    Observation,
    /// Readings, and records derived from or about calls.
    Other,
}

/// The options that select a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selected {
    /// Its own option, `--runtime-trace` and `--sys-trace`. Also selected when no option is given.
    ByRuntime,
    /// Its own option and `--sys-trace`.
    BySystem,
    /// Only its own option.
    ByName,
    /// No option of its own: it is recorded along with others, or selected by options with further
    /// meaning.
    WithOthers,
}

/// All facts about a domain. Each domain's row lists its differences from [`Row::new`].
#[derive(Clone, Copy, Debug)]
struct Row {
    name: &'static str,
    option: &'static str,
    csv_stem: &'static str,
    kind: Kind,
    selected: Selected,
    config: Option<&'static str>,
    has_empty_table: bool,
    zero_is_success: bool,
}

impl Row {
    /// A domain of calls, which has a table even if it is empty.
    const fn new(name: &'static str, option: &'static str, csv_stem: &'static str) -> Self {
        Self {
            name,
            option,
            csv_stem,
            kind: Kind::Call,
            selected: Selected::WithOthers,
            config: None,
            has_empty_table: true,
            zero_is_success: false,
        }
    }

    const fn of(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }

    const fn selected(self, selected: Selected) -> Self {
        Self { selected, ..self }
    }

    /// Sets the member of rocprofv3's configuration that says whether the domain is recorded.
    const fn config(self, config: &'static str) -> Self {
        Self {
            config: Some(config),
            ..self
        }
    }

    /// Writes a table only if it is not empty: most programs have no such records.
    const fn rare(self) -> Self {
        Self {
            has_empty_table: false,
            ..self
        }
    }

    /// Marks the domain's functions as returning four-byte enumerations in which 0 means success.
    const fn zero_is_success(self) -> Self {
        Self {
            zero_is_success: true,
            ..self
        }
    }
}

macro_rules! domains {
    ($($(#[$doc:meta])* $variant:ident = $id:literal, $row:expr;)*) => {
        /// A group of functions of one library, or a kind of GPU work, following rocprofiler-sdk's
        /// division.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Domain { $($(#[$doc])* $variant = $id,)* }

        impl Domain {
            /// Every domain, in numeric order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The domain with this number; `None` for a number that this version does not know.
            #[must_use]
            pub const fn from_id(id: u8) -> Option<Self> {
                match id { $($id => Some(Self::$variant),)* _ => None }
            }

            const fn row(self) -> &'static Row {
                match self { $(Self::$variant => const { &$row },)* }
            }
        }
    };
}

use self::{
    Kind::{GpuWork, Observation, Other},
    Selected::{ByName, ByRuntime, BySystem},
};

domains! {
    /// HIP runtime API: `hip[A-Z]…`.
    HipRuntime = 0, Row::new("HIP_RUNTIME_API", "hip-runtime-trace", "hip_api")
        .selected(ByRuntime).config("hip_runtime_api_trace");
    /// HIP compiler API, called by code that hipcc generates: `__hip…`.
    HipCompiler = 1, Row::new("HIP_COMPILER_API", "hip-compiler-trace", "hip_api")
        .selected(BySystem).config("hip_compiler_api_trace");
    /// HSA core API: `hsa_…` without a vendor or extension part.
    HsaCore = 2, Row::new("HSA_CORE_API", "hsa-core-trace", "hsa_api")
        .selected(BySystem).config("hsa_core_api_trace");
    /// AMD's extension of HSA: `hsa_amd_…`.
    HsaAmdExt = 3, Row::new("HSA_AMD_EXT_API", "hsa-amd-trace", "hsa_api")
        .selected(BySystem).config("hsa_amd_ext_api_trace");
    /// HSA image extension: `hsa_ext_image_…`, `hsa_ext_sampler_…`.
    HsaImageExt = 4, Row::new("HSA_IMAGE_EXT_API", "hsa-image-trace", "hsa_api")
        .selected(BySystem).config("hsa_image_ext_api_trace");
    /// HSA finalizer extension: `hsa_ext_program_…`.
    HsaFinalizeExt = 5, Row::new("HSA_FINALIZE_EXT_API", "hsa-finalizer-trace", "hsa_api")
        .selected(BySystem).config("hsa_finalizer_ext_api_trace");
    /// Kernels that the GPU executes: kernel dispatch packets.
    KernelDispatch = 6, Row::new("KERNEL_DISPATCH", "kernel-trace", "kernel")
        .of(GpuWork).selected(ByRuntime).config("kernel_trace");
    /// Copies made by engines of the GPU.
    MemoryCopy = 7, Row::new("MEMORY_COPY", "memory-copy-trace", "memory_copy")
        .of(GpuWork).selected(ByRuntime).config("memory_copy_trace");
    /// Other packets of queues, e.g. barriers: their times limit those of dispatches.
    QueuePacket = 8, Row::new("QUEUE_PACKET", "kernel-trace", "kernel").of(GpuWork);
    /// Readings of completion signals, from which times of dispatches and copies are derived.
    Completion = 9, Row::new("COMPLETION", "kernel-trace", "kernel").of(GpuWork);
    /// Markers and ranges of ROCTx and of rocprofiler-systems' user API: `roctxMark…`,
    /// `roctxRange…`, `rocprofsys_user_…`.
    MarkerCore = 10, Row::new("MARKER_CORE_API", "marker-trace", "marker_api")
        .selected(ByRuntime).config("marker_api_trace").rare();
    /// Functions by which a program controls profilers: `roctxProfilerPause`, `roctracer_start`,
    /// `rocprofsys_user_start_trace`.
    MarkerControl = 11, Row::new("MARKER_CONTROL_API", "marker-trace", "marker_api")
        .selected(ByRuntime).rare();
    /// Names that the program gives to threads, agents, devices and streams: `roctxName…`.
    MarkerName = 12, Row::new("MARKER_NAME_API", "marker-trace", "marker_api").selected(ByRuntime).rare();
    /// RCCL's collectives: `nccl…`, `mscc…`.
    Rccl = 13, Row::new("RCCL_API", "rccl-trace", "rccl_api")
        .selected(ByRuntime).config("rccl_api_trace").rare().zero_is_success();
    /// Video decoding: `rocDec…`.
    RocDecode = 14, Row::new("ROCDECODE_API", "rocdecode-trace", "rocdecode_api")
        .selected(ByRuntime).config("rocdecode_api_trace").rare().zero_is_success();
    /// JPEG decoding: `rocJpeg…`.
    RocJpeg = 15, Row::new("ROCJPEG_API", "rocjpeg-trace", "rocjpeg_api")
        .selected(ByRuntime).config("rocjpeg_api_trace").rare().zero_is_success();
    /// Allocations and releases of memory by HSA's functions; derived from calls.
    MemoryAllocation = 16, Row::new("MEMORY_ALLOCATION", "memory-allocation-trace", "memory_allocation")
        .of(Other).selected(ByRuntime).config("memory_allocation_trace").rare();
    /// Changes of the scratch memory of queues.
    ScratchMemory = 17, Row::new("SCRATCH_MEMORY", "scratch-memory-trace", "scratch_memory")
        .of(Other).selected(ByRuntime).config("scratch_memory_trace").rare();
    /// Values that pointer arguments of calls point to: strings, and results that functions store.
    ArgumentData = 18, Row::new("ARGUMENT_DATA", "marker-trace", "argument_data").of(Other).rare();
    /// Functions by which programs assign work to external correlation ids.
    Correlation = 19, Row::new("EXTERNAL_CORRELATION_API", "marker-trace", "external_correlation_api")
        .selected(ByRuntime).rare();
    /// Requests to the driver: `ioctl(2)` on `/dev/kfd`.
    KfdIoctl = 20, Row::new("KFD_IOCTL", "kfd-trace", "kfd_ioctl").selected(ByName);
    /// Traced threads without a processor.
    Sched = 21, Row::new("SCHED", "sched", "sched").of(Observation).selected(ByName);
    /// Exported functions of libraries that the user named.
    Library = 22, Row::new("LIBRARY_API", "library", "library_api");
    /// Functions of the traced programs themselves.
    Function = 23, Row::new("FUNCTION", "functions", "function");
    /// Records of tracepoints of the driver and of the kernel's GPU scheduler.
    Tracepoint = 24, Row::new("TRACEPOINT", "driver-trace", "driver")
        .of(Observation).selected(ByName);
    /// KFD's SMI events: evictions, migrations, page faults, resets, throttling.
    KfdEvent = 25, Row::new("KFD_EVENT", "kfd-events", "kfd_event")
        .of(Observation).selected(ByName);
    /// Readings of GPUs and the processes on them: clocks, power, temperatures, memory.
    Counter = 26, Row::new("COUNTER", "counters", "counter").of(Other).config("counter_collection").rare();
    /// Memory that applications request from HIP, and its release; derived from calls.
    HipMemory = 27, Row::new("HIP_MEMORY", "memory-allocation-trace", "hip_memory").of(Other).rare();
    /// rocSHMEM, memory shared by the GPUs of several processes: `rocshmem_…`.
    RocShmem = 28, Row::new("ROCSHMEM_API", "rocshmem-trace", "rocshmem_api")
        .selected(ByRuntime).config("rocshmem_api_trace").rare();
    /// hipFile, transfers between files and a GPU's memory: `hipFile…`.
    HipFile = 29, Row::new("HIPFILE_API", "hipfile-trace", "hipfile_api")
        .selected(ByRuntime).config("hipfile_api_trace").rare().zero_is_success();
}

impl Domain {
    /// The name that rocprofiler prints, e.g. `HIP_RUNTIME_API`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// The command-line option that selects the domain, without dashes, e.g. `hip-runtime-trace`.
    #[must_use]
    pub const fn option(self) -> &'static str {
        self.row().option
    }

    /// Stem of the CSV file with its calls, e.g. `hip_api` for `NAME_hip_api_trace.csv`; also the
    /// name of its array in the JSON document and of its table in the summary.
    #[must_use]
    pub const fn csv_stem(self) -> &'static str {
        self.row().csv_stem
    }

    /// The options that select the domain.
    #[must_use]
    pub const fn selected(self) -> Selected {
        self.row().selected
    }

    /// The member of rocprofv3's configuration that says whether the domain is recorded, e.g.
    /// `rccl_api_trace`; `None` if rocprofv3 has no such member.
    #[must_use]
    pub const fn config(self) -> Option<&'static str> {
        self.row().config
    }

    /// Whether the domain has a table even if that is empty. As in rocprofv3, an empty table is
    /// informative for things that every program does.
    #[must_use]
    pub const fn has_empty_table(self) -> bool {
        self.row().has_empty_table
    }

    /// Whether four-byte integers returned by its functions are enumerations in which 0 means
    /// success (`ncclResult_t`, `rocDecStatus`, `RocJpegStatus`, the first half of
    /// `hipFileError_t`).
    #[must_use]
    pub const fn zero_is_success(self) -> bool {
        self.row().zero_is_success
    }

    /// Whether its records are API calls. Other records are about the GPU's work, or about calls.
    #[must_use]
    pub const fn is_api(self) -> bool {
        matches!(self.row().kind, Kind::Call)
    }

    /// Whether its records are about the GPU's work.
    #[must_use]
    pub const fn is_gpu_work(self) -> bool {
        matches!(self.row().kind, GpuWork)
    }

    /// Whether its records are observations: nobody called what the kernel or the driver reports.
    #[must_use]
    pub const fn is_observation(self) -> bool {
        matches!(self.row().kind, Observation)
    }

    /// Number used in cookies, records and counters.
    #[must_use]
    pub const fn id(self) -> u8 {
        self as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_dense_and_round_trip() {
        for (index, domain) in Domain::ALL.iter().enumerate() {
            assert_eq!(usize::from(domain.id()), index);
            assert_eq!(Domain::from_id(domain.id()), Some(*domain));
        }
        assert!(Domain::ALL.len() <= DOMAINS);
        assert_eq!(Domain::from_id(200), None);
    }
}
