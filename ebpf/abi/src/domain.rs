//! Domains: the groups in which API calls and the GPU's work are traced, counted and filtered.

/// Number of domain slots in [`crate::counters::CpuCounters`]; every [`Domain`] is below it.
pub const DOMAINS: usize = 32;

macro_rules! domains {
    ($($(#[$doc:meta])* $variant:ident = $id:literal, $name:literal, $option:literal, $csv:literal;)*) => {
        /// A group of functions of one library, or a kind of work of the GPU, as rocprofiler-sdk divides them.
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

            /// The name that rocprofiler prints, e.g. `HIP_RUNTIME_API`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The command-line option that selects it, without dashes, e.g. `hip-runtime-trace`.
            #[must_use]
            pub const fn option(self) -> &'static str {
                match self { $(Self::$variant => $option,)* }
            }

            /// Stem of the CSV file that holds its calls, e.g. `hip_api` for `NAME_hip_api_trace.csv`.
            #[must_use]
            pub const fn csv_stem(self) -> &'static str {
                match self { $(Self::$variant => $csv,)* }
            }
        }
    };
}

domains! {
    /// HIP runtime API: `hip[A-Z]…`.
    HipRuntime = 0, "HIP_RUNTIME_API", "hip-runtime-trace", "hip_api";
    /// HIP compiler API, called by code that hipcc generates: `__hip…`.
    HipCompiler = 1, "HIP_COMPILER_API", "hip-compiler-trace", "hip_api";
    /// HSA core API: `hsa_…` without a vendor or extension part.
    HsaCore = 2, "HSA_CORE_API", "hsa-core-trace", "hsa_api";
    /// AMD's extension of HSA: `hsa_amd_…`.
    HsaAmdExt = 3, "HSA_AMD_EXT_API", "hsa-amd-trace", "hsa_api";
    /// HSA image extension: `hsa_ext_image_…`, `hsa_ext_sampler_…`.
    HsaImageExt = 4, "HSA_IMAGE_EXT_API", "hsa-image-trace", "hsa_api";
    /// HSA finalizer extension: `hsa_ext_program_…`.
    HsaFinalizeExt = 5, "HSA_FINALIZE_EXT_API", "hsa-finalizer-trace", "hsa_api";
    /// Kernels that the GPU executes: kernel dispatch packets.
    KernelDispatch = 6, "KERNEL_DISPATCH", "kernel-trace", "kernel";
    /// Copies that engines of the GPU do.
    MemoryCopy = 7, "MEMORY_COPY", "memory-copy-trace", "memory_copy";
    /// Other packets of queues, e.g. barriers: their times bound those of dispatches.
    QueuePacket = 8, "QUEUE_PACKET", "kernel-trace", "kernel";
    /// Completion signals as they were read: where times of dispatches and copies come from.
    Completion = 9, "COMPLETION", "kernel-trace", "kernel";
    /// Markers and ranges of ROCTx and of rocprofiler-systems' user API: `roctxMark…`, `roctxRange…`, `rocprofsys_user_…`.
    MarkerCore = 10, "MARKER_CORE_API", "marker-trace", "marker_api";
    /// Control of profilers by the program: `roctxProfilerPause`, `roctracer_start`, `rocprofsys_user_start_trace`.
    MarkerControl = 11, "MARKER_CONTROL_API", "marker-trace", "marker_api";
    /// Names that the program gives to threads, agents, devices and streams: `roctxName…`.
    MarkerName = 12, "MARKER_NAME_API", "marker-trace", "marker_api";
    /// RCCL, the collectives: `nccl…`, `mscc…`.
    Rccl = 13, "RCCL_API", "rccl-trace", "rccl_api";
    /// Video decoding: `rocDec…`.
    RocDecode = 14, "ROCDECODE_API", "rocdecode-trace", "rocdecode_api";
    /// JPEG decoding: `rocJpeg…`.
    RocJpeg = 15, "ROCJPEG_API", "rocjpeg-trace", "rocjpeg_api";
    /// Allocations of memory and what frees them, as HSA's functions make them; made from calls.
    MemoryAllocation = 16, "MEMORY_ALLOCATION", "memory-allocation-trace", "memory_allocation";
    /// Changes of the scratch memory of queues.
    ScratchMemory = 17, "SCRATCH_MEMORY", "scratch-memory-trace", "scratch_memory";
    /// What pointers of calls point to: strings, and results that functions store through a pointer.
    ArgumentData = 18, "ARGUMENT_DATA", "marker-trace", "argument_data";
    /// Functions by which programs tell profilers to whom work belongs: external correlation ids.
    Correlation = 19, "EXTERNAL_CORRELATION_API", "marker-trace", "external_correlation_api";
    /// Requests to the driver: `ioctl(2)` on `/dev/kfd`.
    KfdIoctl = 20, "KFD_IOCTL", "kfd-trace", "kfd_ioctl";
    /// Traced threads without a processor.
    Sched = 21, "SCHED", "sched", "sched";
    /// Exported functions of libraries that the user named.
    Library = 22, "LIBRARY_API", "library", "library_api";
    /// Functions of the traced programs themselves.
    Function = 23, "FUNCTION", "functions", "function";
    /// What tracepoints of the driver and of the kernel's GPU scheduler tell.
    Tracepoint = 24, "TRACEPOINT", "driver-trace", "driver";
    /// What the driver tells of: evictions, migrations, page faults, resets, throttling.
    KfdEvent = 25, "KFD_EVENT", "kfd-events", "kfd_event";
    /// What GPUs, and processes on them, were read to use: clocks, power, temperatures, memory.
    Counter = 26, "COUNTER", "counters", "counter";
    /// Memory that applications ask HIP for, and what frees it; made from calls.
    HipMemory = 27, "HIP_MEMORY", "memory-allocation-trace", "hip_memory";
}

impl Domain {
    /// Whether its records are API calls; otherwise they are about the GPU's work, or about calls.
    #[must_use]
    pub const fn is_api(self) -> bool {
        !self.is_gpu_work()
            && !matches!(
                self,
                Self::MemoryAllocation
                    | Self::ScratchMemory
                    | Self::ArgumentData
                    | Self::Sched
                    | Self::Tracepoint
                    | Self::KfdEvent
                    | Self::Counter
                    | Self::HipMemory
            )
    }

    /// Whether its records are about the GPU's work.
    #[must_use]
    pub const fn is_gpu_work(self) -> bool {
        matches!(
            self,
            Self::KernelDispatch | Self::MemoryCopy | Self::QueuePacket | Self::Completion
        )
    }

    /// The number in cookies, records and counters.
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
