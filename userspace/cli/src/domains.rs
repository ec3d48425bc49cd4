//! From options to domains.

use gputrace_abi::domain::Domain::{
    self, Correlation, HipCompiler, HipRuntime, HsaAmdExt, HsaCore, HsaFinalizeExt, HsaImageExt,
    KernelDispatch, KfdEvent, KfdIoctl, MarkerControl, MarkerCore, MarkerName, MemoryAllocation, MemoryCopy,
    Rccl, RocDecode, RocJpeg, Sched, ScratchMemory, Tracepoint,
};

use crate::args::DomainArgs;

/// What applications ask for, and what the GPU does of it.
const RUNTIME: &[Domain] = &[
    HipRuntime,
    KernelDispatch,
    MemoryCopy,
    MarkerCore,
    MarkerControl,
    MarkerName,
    Rccl,
    RocDecode,
    RocJpeg,
    MemoryAllocation,
    ScratchMemory,
    Correlation,
];

/// What programs tell profilers.
const MARKERS: &[Domain] = &[MarkerCore, MarkerControl, MarkerName, Correlation];

/// Everything.
const SYSTEM: &[Domain] = &[
    HipRuntime,
    HipCompiler,
    HsaCore,
    HsaAmdExt,
    HsaImageExt,
    HsaFinalizeExt,
    KernelDispatch,
    MemoryCopy,
    MarkerCore,
    MarkerControl,
    MarkerName,
    Rccl,
    RocDecode,
    RocJpeg,
    Correlation,
    MemoryAllocation,
    ScratchMemory,
];

/// An option and what it is about.
type Given = (Option<bool>, &'static [Domain]);

/// The domains that the options select. Of the options given that have a domain among theirs, the narrowest decide
/// (`--hsa-core-trace` before `--hsa-trace` before `-s`), as in rocprofv3, where an aggregate option only sets what nothing else
/// has set: `--hsa-trace=False --hsa-core-trace` is the core API. Without any option given as true the rest is that of
/// `--runtime-trace`.
pub(crate) fn selected(args: &DomainArgs) -> Vec<Domain> {
    let single: [Given; 19] = [
        (args.hip_runtime_trace, &[HipRuntime]),
        (args.hip_compiler_trace, &[HipCompiler]),
        (args.hsa_core_trace, &[HsaCore]),
        (args.hsa_amd_trace, &[HsaAmdExt]),
        (args.hsa_image_trace, &[HsaImageExt]),
        (args.hsa_finalizer_trace, &[HsaFinalizeExt]),
        (args.kernel_trace, &[KernelDispatch]),
        (args.memory_copy_trace, &[MemoryCopy]),
        (args.kfd_trace, &[KfdIoctl]),
        (args.sched, &[Sched]),
        (args.driver_trace, &[Tracepoint]),
        (args.marker_trace, MARKERS),
        // Without it, markers are still wanted.
        (args.kokkos_trace.filter(|on| *on), MARKERS),
        (args.memory_allocation_trace, &[MemoryAllocation]),
        (args.scratch_memory_trace, &[ScratchMemory]),
        (args.rccl_trace, &[Rccl]),
        (args.rocdecode_trace, &[RocDecode]),
        (args.rocjpeg_trace, &[RocJpeg]),
        (args.kfd_events, &[KfdEvent]),
    ];
    let group: [Given; 2] = [
        (args.hip_trace, &[HipRuntime, HipCompiler]),
        (args.hsa_trace, &[HsaCore, HsaAmdExt, HsaImageExt, HsaFinalizeExt]),
    ];
    let aggregate: [Given; 2] = [(args.runtime_trace, RUNTIME), (args.sys_trace, SYSTEM)];
    let all = || [&single[..], &group, &aggregate].into_iter().flatten();
    let asked = all().any(|(value, _)| *value == Some(true));
    let values = |level: &[Given], domain: &Domain| -> Vec<bool> {
        let of_it = level.iter().filter(|(_, domains)| domains.contains(domain));
        of_it.filter_map(|(value, _)| *value).collect()
    };
    let is_selected = |domain: &Domain| {
        for level in [&single[..], &group] {
            let values = values(level, domain);
            if !values.is_empty() {
                // What is both wanted and unwanted is not.
                return values.iter().all(|on| *on);
            }
        }
        // An aggregate that is off takes nothing away from the other.
        match values(&aggregate, domain)
            .into_iter()
            .reduce(|one, other| one | other)
        {
            Some(on) => on,
            None => !asked && RUNTIME.contains(domain),
        }
    };
    let mut domains: Vec<Domain> = all()
        .flat_map(|(_, domains)| domains.iter().copied())
        .filter(is_selected)
        .collect();
    domains.sort_unstable();
    domains.dedup();
    domains
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::Cli;

    #[test]
    fn the_last_of_an_options_values_counts() {
        let of = |options: &[&str]| {
            let words = ["gputrace", "-p", "1"].iter().chain(options);
            selected(&Cli::try_parse_from(words).unwrap().record.domains)
        };
        assert_eq!(of(&["--kernel-trace=False", "--kernel-trace"]), [KernelDispatch]);
        assert_eq!(of(&["--sched", "--kernel-trace", "--kernel-trace=no"]), [Sched]);
        let events = [
            "--kfd-page-migration-trace",
            "--kfd-page-mapping-trace",
            "--kfd-queue-trace",
            "--kfd-dropped-events-trace",
        ];
        assert_eq!(of(&events), [KfdEvent]);
    }

    #[test]
    fn options_add_and_take_away() {
        assert_eq!(selected(&DomainArgs::default()), RUNTIME);
        let args = DomainArgs {
            hip_trace: Some(true),
            hip_compiler_trace: Some(false),
            ..Default::default()
        };
        assert_eq!(selected(&args), [HipRuntime]);
        let args = DomainArgs {
            hsa_trace: Some(true),
            ..Default::default()
        };
        assert_eq!(selected(&args), [HsaCore, HsaAmdExt, HsaImageExt, HsaFinalizeExt]);
        let args = DomainArgs {
            sys_trace: Some(true),
            hsa_trace: Some(false),
            marker_trace: Some(false),
            ..Default::default()
        };
        assert_eq!(
            selected(&args),
            [
                HipRuntime,
                HipCompiler,
                KernelDispatch,
                MemoryCopy,
                Rccl,
                RocDecode,
                RocJpeg,
                MemoryAllocation,
                ScratchMemory
            ]
        );
        let args = DomainArgs {
            kernel_trace: Some(false),
            ..Default::default()
        };
        let expected: Vec<Domain> = RUNTIME
            .iter()
            .copied()
            .filter(|domain| *domain != KernelDispatch)
            .collect();
        assert_eq!(selected(&args), expected);
        let args = DomainArgs {
            runtime_trace: Some(false),
            ..Default::default()
        };
        assert_eq!(selected(&args), []);
    }

    #[test]
    fn the_narrowest_option_decides() {
        let args = DomainArgs {
            sys_trace: Some(false),
            hsa_trace: Some(false),
            hsa_core_trace: Some(true),
            kernel_trace: Some(true),
            ..Default::default()
        };
        assert_eq!(selected(&args), [HsaCore, KernelDispatch]);
        let args = DomainArgs {
            runtime_trace: Some(true),
            sys_trace: Some(false),
            ..Default::default()
        };
        assert_eq!(selected(&args), RUNTIME);
        let args = DomainArgs {
            marker_trace: Some(false),
            kokkos_trace: Some(true),
            hip_trace: Some(false),
            hip_compiler_trace: Some(true),
            ..Default::default()
        };
        assert_eq!(selected(&args), [HipCompiler]);
    }
}
