//! The options that choose what is traced, one row each. The command line and its help are made
//! from them.

use gputrace_abi::domain::{Domain, Selected};

use self::Covers::{Aggregate, Also, Group, Own};

/// The domains that an option refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Covers {
    /// The domains whose row names the option ([`Domain::option`]).
    Own,
    /// The domains of another option, if this one is on. If it is off, it has no effect: the
    /// domains may still be wanted.
    Also(&'static str),
    /// The domains of other options.
    Group(&'static [&'static str]),
    /// All domains that are selected in one of these ways.
    Aggregate(&'static [Selected]),
}

/// An option that chooses domains, with an optional `=False`.
#[derive(Clone, Copy, Debug)]
pub struct DomainOption {
    /// Name, without dashes.
    pub long: &'static str,
    /// Letter of the short option.
    pub short: Option<char>,
    /// Further names, from rocprofv3 or earlier versions.
    pub aliases: &'static [&'static str],
    /// Help text, without the last full stop.
    pub help: &'static str,
    /// The domains that it refers to.
    pub covers: Covers,
}

/// An option without a letter or further names.
const fn option(long: &'static str, covers: Covers, help: &'static str) -> DomainOption {
    DomainOption {
        long,
        short: None,
        aliases: &[],
        help,
        covers,
    }
}

impl DomainOption {
    const fn short(self, short: char) -> Self {
        Self {
            short: Some(short),
            ..self
        }
    }

    const fn aliases(self, aliases: &'static [&'static str]) -> Self {
        Self { aliases, ..self }
    }

    /// Whether the option refers to `domain`.
    #[must_use]
    pub fn is_about(&self, domain: Domain) -> bool {
        let (selected, own) = (domain.selected(), domain.option());
        selected != Selected::WithOthers
            && match self.covers {
                Own => own == self.long,
                Also(option) => own == option,
                Group(options) => options.contains(&own),
                Aggregate(ways) => ways.contains(&selected),
            }
    }
}

/// The option that traces Kokkos's reports, and names kernels after them.
pub const KOKKOS_TRACE: &str = "kokkos-trace";

/// Every option that chooses domains, in the order of the help text.
pub const DOMAIN_OPTIONS: &[DomainOption] = &[
    option(
        "hip-trace",
        Group(&["hip-runtime-trace", "hip-compiler-trace"]),
        "HIP runtime and compiler API",
    ),
    option("hip-runtime-trace", Own, "HIP runtime API: hip*"),
    option("hip-compiler-trace", Own, "HIP compiler API: __hip*"),
    option(
        "hip-graph-trace",
        Also("hip-runtime-trace"),
        "Launches of HIP's graphs, and which kernels and copies are theirs: from the HIP runtime \
         API, which it includes",
    ),
    option(
        "hsa-trace",
        Group(&[
            "hsa-core-trace",
            "hsa-amd-trace",
            "hsa-image-trace",
            "hsa-finalizer-trace",
        ]),
        "HSA core, AMD extension, image and finalizer API",
    ),
    option("hsa-core-trace", Own, "HSA core API: hsa_*"),
    option("hsa-amd-trace", Own, "HSA AMD extension: hsa_amd_*"),
    option(
        "hsa-image-trace",
        Own,
        "HSA image extension: hsa_ext_image_*, hsa_ext_sampler_*",
    ),
    option(
        "hsa-finalizer-trace",
        Own,
        "HSA finalizer extension: hsa_ext_program_*",
    )
    .aliases(&["hsa-finalize-trace"]),
    option(
        "kernel-trace",
        Own,
        "Kernel dispatches: which kernel ran on which GPU and queue, when, and which call launched \
         it",
    ),
    option("memory-copy-trace", Own, "Copies done by a GPU's engines"),
    option(
        "kfd-trace",
        Own,
        "Requests to the driver: every ioctl on /dev/kfd with its arguments and result. Not \
         part of -s",
    ),
    option(
        "kfd-events",
        Own,
        "What the driver reports, for all processes: queues evicted and restored, migrations, \
         page faults, resets, throttling. Not part of -s",
    )
    .aliases(&[
        "kfd-page-migration-trace",
        "kfd-page-mapping-trace",
        "kfd-queue-trace",
        "kfd-dropped-events-trace",
    ]),
    option(
        "driver-trace",
        Own,
        "The driver's tracepoints, for all processes: buffers created, moved and mapped, \
         interrupts, jobs. Not part of -s",
    ),
    option(
        "sched",
        Own,
        "Times when traced threads had no CPU: asleep, or waiting for one. Not part of -s",
    ),
    option(
        "marker-trace",
        Own,
        "Markers and ranges of ROCTx and of rocprofiler-systems' user API",
    ),
    option(
        KOKKOS_TRACE,
        Also("marker-trace"),
        "Kernels, regions, copies and fences that Kokkos reports to its tool library \
         (KOKKOS_TOOLS_LIBS). Includes markers, and names kernels by them",
    ),
    option(
        "memory-allocation-trace",
        Own,
        "Memory that HSA allocates and frees, and memory that programs request from HIP: agent, \
         address, bytes, and what was never freed",
    ),
    option(
        "scratch-memory-trace",
        Own,
        "Scratch memory that queues get and return: private memory of kernels that does not fit \
         into registers",
    ),
    option("rccl-trace", Own, "RCCL, the collectives: nccl*"),
    option("rocdecode-trace", Own, "Video decoding: rocDec*"),
    option("rocjpeg-trace", Own, "JPEG decoding: rocJpeg*"),
    option(
        "rocshmem-trace",
        Own,
        "rocSHMEM, memory that the GPUs of several processes share: rocshmem_*",
    ),
    option(
        "hipfile-trace",
        Own,
        "hipFile, files read into a GPU's memory and written from there: hipFile*",
    ),
    option(
        "runtime-trace",
        Aggregate(&[Selected::ByRuntime]),
        "What applications call, and the resulting work: the HIP runtime API, kernels, copies, \
         memory, markers, collectives (the default)",
    )
    .short('r'),
    option(
        "sys-trace",
        Aggregate(&[Selected::ByRuntime, Selected::BySystem]),
        "Everything: HIP, HSA, kernels, copies, memory, markers, collectives",
    )
    .short('s'),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_domain_that_can_be_selected_has_an_option() {
        for domain in Domain::ALL {
            let own = DOMAIN_OPTIONS.iter().filter(|option| option.covers == Own);
            let own = own.filter(|option| option.is_about(*domain)).count();
            let expected = usize::from(domain.selected() != Selected::WithOthers);
            assert_eq!(own, expected, "{domain:?}");
        }
    }

    #[test]
    fn every_option_is_about_something() {
        for option in DOMAIN_OPTIONS {
            assert!(
                Domain::ALL.iter().any(|domain| option.is_about(*domain)),
                "{option:?}"
            );
        }
        assert!(
            DOMAIN_OPTIONS
                .iter()
                .any(|option| option.long == KOKKOS_TRACE)
        );
    }
}
