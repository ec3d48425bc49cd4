//! Domains: the groups in which API calls and the GPU's work are traced, counted and filtered.

/// Number of domain slots in [`crate::counters::CpuCounters`]; every [`Domain`] is below it.
pub const DOMAINS: usize = 16;

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
}

impl Domain {
    /// Whether its records are API calls; otherwise they are about the GPU's work.
    #[must_use]
    pub const fn is_api(self) -> bool {
        (self as u8) < Self::KernelDispatch as u8
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
