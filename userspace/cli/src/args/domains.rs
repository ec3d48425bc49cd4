//! Options about what is traced.

use clap::{ArgAction, Args};

use super::values::boolean;

macro_rules! domain_args {
    ($($(#[$doc:meta])* $field:ident $(= $short:literal)? $(| $alias:literal)*;)*) => {
        /// Domains, each with an optional `=False`.
        #[derive(Debug, Default, Args)]
        #[command(next_help_heading = "What to trace")]
        pub(crate) struct DomainArgs {
            $(
                $(#[$doc])*
                #[arg(long, $(short = $short,)? $(alias = $alias,)* value_name = "BOOL", num_args = 0..=1,
                      default_missing_value = "true", value_parser = boolean, action = ArgAction::Set)]
                pub(crate) $field: Option<bool>,
            )*
        }
    };
}

domain_args! {
    /// HIP runtime and compiler API.
    hip_trace;
    /// HIP runtime API: hip*.
    hip_runtime_trace;
    /// HIP compiler API: __hip*.
    hip_compiler_trace;
    /// HSA core, AMD extension, image and finalizer API.
    hsa_trace;
    /// HSA core API: hsa_*.
    hsa_core_trace;
    /// HSA AMD extension: hsa_amd_*.
    hsa_amd_trace;
    /// HSA image extension: hsa_ext_image_*, hsa_ext_sampler_*.
    hsa_image_trace;
    /// HSA finalizer extension: hsa_ext_program_*.
    hsa_finalizer_trace | "hsa-finalize-trace";
    /// Kernel dispatches: what ran on which GPU and queue, when, and who asked for it.
    kernel_trace;
    /// Copies done by a GPU's engines.
    memory_copy_trace;
    /// Requests to the driver: every ioctl on /dev/kfd with its arguments and result. Not part of -s.
    kfd_trace;
    /// What the driver reports, for all processes: queues evicted and restored, migrations, page
    /// faults, resets, throttling. Not part of -s.
    kfd_events | "kfd-page-migration-trace" | "kfd-page-mapping-trace" | "kfd-queue-trace" | "kfd-dropped-events-trace";
    /// The driver's tracepoints, for all processes: buffers created, moved and mapped, interrupts,
    /// jobs. Not part of -s.
    driver_trace;
    /// When traced threads had no CPU: asleep, or waiting for one. Not part of -s.
    sched;
    /// Markers and ranges of ROCTx and of rocprofiler-systems' user API.
    marker_trace;
    /// Kernels, regions, copies and fences that Kokkos reports to its tool library
    /// (KOKKOS_TOOLS_LIBS). Includes markers, and names kernels by them.
    kokkos_trace;
    /// Memory that HSA allocates and frees, and what programs ask HIP for: agent, address, bytes,
    /// and what was never freed.
    memory_allocation_trace;
    /// Scratch memory of queues, as it comes and goes: private memory of kernels that does not fit
    /// into registers.
    scratch_memory_trace;
    /// RCCL, the collectives: nccl*.
    rccl_trace;
    /// Video decoding: rocDec*.
    rocdecode_trace;
    /// JPEG decoding: rocJpeg*.
    rocjpeg_trace;
    /// What applications call, and the work that follows: the HIP runtime API, kernels, copies,
    /// memory, markers, collectives (the default).
    runtime_trace = 'r';
    /// Everything: HIP, HSA, kernels, copies, memory, markers, collectives.
    sys_trace = 's';
}
