//! Determines the traced domains from the options.

use gputrace_abi::domain::{Domain, Selected};
use gputrace_catalog::options::{Covers, DOMAIN_OPTIONS, DomainOption};

use crate::args::DomainArgs;

/// How many domains an option covers; the narrowest option decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Single,
    Group,
    Aggregate,
}

const fn level(option: &DomainOption) -> Level {
    match option.covers {
        Covers::Own | Covers::Also(_) => Level::Single,
        Covers::Group(_) => Level::Group,
        Covers::Aggregate(_) => Level::Aggregate,
    }
}

/// The domains that the options select. Of the given options that cover a domain, the narrowest
/// decides (`--hsa-core-trace` before `--hsa-trace` before `-s`), as in rocprofv3, where an
/// aggregate option only sets what is not set yet: `--hsa-trace=False --hsa-core-trace` selects the
/// core API. Unless some option is given as true, all other domains are those of `--runtime-trace`.
pub(crate) fn selected(args: &DomainArgs) -> Vec<Domain> {
    let given: Vec<(&DomainOption, bool)> = DOMAIN_OPTIONS
        .iter()
        .filter_map(|option| Some((option, args.get(option.long)?)))
        .filter(|(option, on)| *on || !matches!(option.covers, Covers::Also(_)))
        .collect();
    let asked = given.iter().any(|(_, on)| *on);
    let values = |of: Level, domain: Domain| -> Vec<bool> {
        let of_it = given
            .iter()
            .filter(|(option, _)| level(option) == of && option.is_about(domain));
        of_it.map(|(_, on)| *on).collect()
    };
    let is_selected = |domain: Domain| {
        for of in [Level::Single, Level::Group] {
            let values = values(of, domain);
            if !values.is_empty() {
                // A domain that is both selected and deselected is off.
                return values.iter().all(|on| *on);
            }
        }
        // A disabled aggregate does not remove domains of another one.
        match values(Level::Aggregate, domain)
            .into_iter()
            .reduce(|one, other| one | other)
        {
            Some(on) => on,
            None => !asked && domain.selected() == Selected::ByRuntime,
        }
    };
    let all = Domain::ALL.iter().copied();
    all.filter(|domain| is_selected(*domain)).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use gputrace_abi::domain::Domain::{
        Correlation, HipCompiler, HipFile, HipRuntime, HsaAmdExt, HsaCore, HsaFinalizeExt,
        HsaImageExt, KernelDispatch, KfdEvent, MarkerControl, MarkerCore, MarkerName,
        MemoryAllocation, MemoryCopy, Rccl, RocDecode, RocJpeg, RocShmem, Sched, ScratchMemory,
    };

    use super::*;
    use crate::args::Cli;

    /// What applications request, and the GPU work that results.
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
        RocShmem,
        HipFile,
    ];

    #[test]
    fn the_last_of_an_options_values_counts() {
        let of = |options: &[&str]| {
            let words = ["gputrace", "-p", "1"].iter().chain(options);
            selected(&Cli::try_parse_from(words).unwrap().record.domains)
        };
        assert_eq!(
            of(&["--kernel-trace=False", "--kernel-trace"]),
            [KernelDispatch]
        );
        assert_eq!(
            of(&["--sched", "--kernel-trace", "--kernel-trace=no"]),
            [Sched]
        );
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
        let args = DomainArgs::of(&[("hip-trace", true), ("hip-compiler-trace", false)]);
        assert_eq!(selected(&args), [HipRuntime]);
        let args = DomainArgs::of(&[("hsa-trace", true)]);
        assert_eq!(
            selected(&args),
            [HsaCore, HsaAmdExt, HsaImageExt, HsaFinalizeExt]
        );
        let args = DomainArgs::of(&[
            ("sys-trace", true),
            ("hsa-trace", false),
            ("marker-trace", false),
        ]);
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
                ScratchMemory,
                RocShmem,
                HipFile
            ]
        );
        let args = DomainArgs::of(&[("kernel-trace", false)]);
        let expected: Vec<Domain> = RUNTIME
            .iter()
            .copied()
            .filter(|domain| *domain != KernelDispatch)
            .collect();
        assert_eq!(selected(&args), expected);
        let args = DomainArgs::of(&[("runtime-trace", false)]);
        assert_eq!(selected(&args), []);
    }

    #[test]
    fn graphs_are_found_in_the_calls_of_hip() {
        let args = DomainArgs::of(&[("hip-graph-trace", true), ("kernel-trace", true)]);
        assert_eq!(selected(&args), [HipRuntime, KernelDispatch]);
        // The calls may still be wanted.
        let args = DomainArgs::of(&[("hip-graph-trace", false)]);
        assert_eq!(selected(&args), RUNTIME);
    }

    #[test]
    fn the_narrowest_option_decides() {
        let args = DomainArgs::of(&[
            ("sys-trace", false),
            ("hsa-trace", false),
            ("hsa-core-trace", true),
            ("kernel-trace", true),
        ]);
        assert_eq!(selected(&args), [HsaCore, KernelDispatch]);
        let args = DomainArgs::of(&[("runtime-trace", true), ("sys-trace", false)]);
        assert_eq!(selected(&args), RUNTIME);
        let args = DomainArgs::of(&[
            ("marker-trace", false),
            ("kokkos-trace", true),
            ("hip-trace", false),
            ("hip-compiler-trace", true),
        ]);
        assert_eq!(selected(&args), [HipCompiler]);
    }
}
