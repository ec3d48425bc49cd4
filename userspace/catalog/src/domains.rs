//! Maps exported names to API domains.

use gputrace_abi::domain::Domain;

/// Prefix of the functions that Kokkos calls in a tool library. The library can have any name.
pub const KOKKOS_TOOLS: &str = "kokkosp_";

/// What must follow the prefix of a [`Pattern`].
#[derive(Clone, Copy)]
enum Then {
    /// An upper-case ASCII letter: `hipMalloc`, but not `hiprtcVersion` or `hip_4.2`.
    Upper,
    /// At least one more character.
    Anything,
    /// The end of the name.
    Nothing,
}

/// One row of [`PATTERNS`].
struct Pattern {
    prefix: &'static str,
    then: Then,
    domain: Domain,
}

/// Matches the prefix followed by an upper-case letter.
const fn upper(prefix: &'static str, domain: Domain) -> Pattern {
    let then = Then::Upper;
    Pattern {
        prefix,
        then,
        domain,
    }
}

/// Matches the prefix followed by anything.
const fn longer(prefix: &'static str, domain: Domain) -> Pattern {
    let then = Then::Anything;
    Pattern {
        prefix,
        then,
        domain,
    }
}

/// Matches exactly this name.
const fn exactly(prefix: &'static str, domain: Domain) -> Pattern {
    let then = Then::Nothing;
    Pattern {
        prefix,
        then,
        domain,
    }
}

/// The naming rules of the ROCm libraries; the first row that matches decides.
///
/// The division is that of rocprofiler-sdk, which follows the dispatch tables of
/// `hsa/hsa_api_trace.h`. Two groups of functions have no domain there and get the nearest one
/// here: exported `hsa_ven_amd_…` functions (PC sampling) count as AMD's extension, and the
/// deprecated HSA names (`…_acq_rel`, `…_acquire`, `…_release`) as core, like the functions whose
/// addresses they share.
const PATTERNS: &[Pattern] = &[
    upper("__hip", Domain::HipCompiler),
    upper("hipFile", Domain::HipFile),
    upper("hip", Domain::HipRuntime),
    longer("hsa_amd_", Domain::HsaAmdExt),
    longer("hsa_ven_amd_", Domain::HsaAmdExt),
    longer("hsa_ext_image_", Domain::HsaImageExt),
    longer("hsa_ext_sampler_", Domain::HsaImageExt),
    longer("hsa_ext_program_", Domain::HsaFinalizeExt),
    longer("hsa_", Domain::HsaCore),
    longer("roctxMark", Domain::MarkerCore),
    longer("roctxRange", Domain::MarkerCore),
    exactly("roctxGetThreadId", Domain::MarkerCore),
    upper("roctxProfiler", Domain::MarkerControl),
    upper("roctxName", Domain::MarkerName),
    exactly(
        "roctracer_activity_push_external_correlation_id",
        Domain::Correlation,
    ),
    exactly(
        "roctracer_activity_pop_external_correlation_id",
        Domain::Correlation,
    ),
    exactly(
        "rocprofiler_push_external_correlation_id",
        Domain::Correlation,
    ),
    exactly(
        "rocprofiler_pop_external_correlation_id",
        Domain::Correlation,
    ),
    exactly("roctracer_start", Domain::MarkerControl),
    exactly("roctracer_stop", Domain::MarkerControl),
    longer("rocprofsys_user_start_", Domain::MarkerControl),
    longer("rocprofsys_user_stop_", Domain::MarkerControl),
    longer("rocprofsys_user_push_", Domain::MarkerCore),
    longer("rocprofsys_user_pop_", Domain::MarkerCore),
    exactly("rocprofsys_user_progress", Domain::MarkerCore),
    longer("rocprofsys_user_annotated_", Domain::MarkerCore),
    longer("omnitrace_user_start_", Domain::MarkerControl),
    longer("omnitrace_user_stop_", Domain::MarkerControl),
    longer("omnitrace_user_push_", Domain::MarkerCore),
    longer("omnitrace_user_pop_", Domain::MarkerCore),
    exactly("omnitrace_user_progress", Domain::MarkerCore),
    longer("omnitrace_user_annotated_", Domain::MarkerCore),
    longer(KOKKOS_TOOLS, Domain::MarkerCore),
    upper("nccl", Domain::Rccl),
    longer("mscc", Domain::Rccl),
    upper("rocDec", Domain::RocDecode),
    upper("rocJpeg", Domain::RocJpeg),
    longer("rocshmem_", Domain::RocShmem),
];

/// The domain of an exported function, from its name alone; `None` if it is not part of a traced
/// API.
///
/// Works for functions newer than this catalogue. Names may be mangled: libamdhip64 exports a few
/// functions as C++ (`_Z24hipExtModuleLaunchKernel…`), see [`plain_name`].
///
/// Not traced, and so `None`: `hiprtc…` (run-time compilation, which rocprofiler does not record
/// either; libhiprtc has it in newer releases, libamdhip64 still exports it in 5.2), functions in
/// C++ namespaces (`hip_impl::…`, internals), symbol version nodes (`hip_4.2`) and data.
///
/// ```
/// use gputrace_abi::domain::Domain;
/// assert_eq!(gputrace_catalog::classify("hipMalloc"), Some(Domain::HipRuntime));
/// assert_eq!(gputrace_catalog::classify("hsa_ext_sampler_create"), Some(Domain::HsaImageExt));
/// assert_eq!(gputrace_catalog::classify("hiprtcVersion"), None);
/// ```
#[must_use]
pub fn classify(name: &str) -> Option<Domain> {
    let name = plain_name(name);
    PATTERNS
        .iter()
        .find(|pattern| pattern.matches(name))
        .map(|pattern| pattern.domain)
}

impl Pattern {
    fn matches(&self, name: &str) -> bool {
        let Some(rest) = name.strip_prefix(self.prefix) else {
            return false;
        };
        match self.then {
            Then::Upper => rest.starts_with(|next: char| next.is_ascii_uppercase()),
            Then::Anything => !rest.is_empty(),
            Then::Nothing => rest.is_empty(),
        }
    }
}

/// The function's name as the public header spells it, without C++ mangling.
///
/// Two kinds of mangled names are understood: those of functions at global scope, which the Itanium
/// C++ ABI writes as `_Z`, the length of the identifier in decimal, the identifier, and the
/// parameter types; and those of functions in rocSHMEM's namespace, between `_ZN8rocshmem` and `E`.
/// Every other name is returned unchanged.
///
/// ```
/// let mangled = "_Z22hipCreateSurfaceObjectPP13__hip_surfacePK15hipResourceDesc";
/// assert_eq!(gputrace_catalog::plain_name(mangled), "hipCreateSurfaceObject");
/// ```
#[must_use]
pub fn plain_name(name: &str) -> &str {
    global_identifier(name).unwrap_or(name)
}

fn global_identifier(name: &str) -> Option<&str> {
    if let Some(nested) = name.strip_prefix("_ZN8rocshmem") {
        let (identifier, rest) = identifier(nested)?;
        return rest.strip_prefix('E').map(|_| identifier);
    }
    let (identifier, parameters) = identifier(name.strip_prefix("_Z")?)?;
    // Parameter types follow a function's name; a variable's mangled name ends with the identifier.
    (!parameters.is_empty()).then_some(identifier)
}

/// Splits a source name, which is preceded by its length, from what follows.
fn identifier(encoding: &str) -> Option<(&str, &str)> {
    let digits = encoding.find(|next: char| !next.is_ascii_digit())?;
    let (length, rest) = encoding.split_at_checked(digits)?;
    rest.split_at_checked(length.parse().ok()?)
}

/// Prefixes of the HSA functions that are called very often and say very little.
///
/// The first three are called in a loop by threads that wait. Nothing limits the number of these
/// calls: a thread makes them until the GPU is done. In a test program with a completion signal on
/// each of its 5 093 packets, `hsa_signal_load_relaxed` was called 16 845 times; a thread waits for
/// a full queue by spinning on `hsa_queue_load_read_index_*`. These functions change nothing, and
/// their return value says only "not yet".
///
/// HIP looks up each symbol of each code object by `hsa_executable_symbol_get_info`. With the code
/// objects of rocBLAS on ROCm 6.4.3, that is 3.3 million calls before the first kernel.
///
/// `hsa_queue_add_write_index_*`, `hsa_signal_store_*` and `hsa_signal_silent_store_*` are not in
/// the list: they are called once per packet, so their cost is limited by the work submitted, and
/// they show when it was submitted. Waits (`hsa_signal_wait_*`) block, and people look for them in
/// a trace.
const ON_REQUEST_PREFIXES: &[&str] = &[
    "hsa_signal_load_",
    "hsa_queue_load_read_index_",
    "hsa_queue_load_write_index_",
    "hsa_executable_symbol_get_info",
];

/// Whether a function is called so often that tracing it by default would slow programs down and
/// fill the capture with noise. Such functions are probed only when they are requested by name.
///
/// Only HSA has such functions. HIP's queries (`hipGetLastError`, `hipEventQuery`,
/// `hipStreamQuery`) are called at the program's own pace and are traced.
#[must_use]
pub fn is_on_request(name: &str) -> bool {
    ON_REQUEST_PREFIXES
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

/// Library files, and the domains that they export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LibraryPattern {
    /// Beginning of the file name, before `.so`: e.g. `libamdhip64`.
    pub stem: &'static str,
    /// Domains of the functions that it exports.
    pub domains: &'static [Domain],
}

const fn library(stem: &'static str, domains: &'static [Domain]) -> LibraryPattern {
    LibraryPattern { stem, domains }
}

const LIBRARIES: &[LibraryPattern] = &[
    library("libamdhip64", &[Domain::HipRuntime, Domain::HipCompiler]),
    library(
        "libhsa-runtime64",
        &[
            Domain::HsaCore,
            Domain::HsaAmdExt,
            Domain::HsaImageExt,
            Domain::HsaFinalizeExt,
        ],
    ),
    library("libroctx64", &[Domain::MarkerCore]),
    // Must come before the library whose name is a prefix of this one.
    library(
        "librocprofiler-sdk-roctx",
        &[
            Domain::MarkerCore,
            Domain::MarkerControl,
            Domain::MarkerName,
        ],
    ),
    library("librocprofiler-sdk", &[Domain::Correlation]),
    library(
        "libroctracer64",
        &[Domain::MarkerControl, Domain::Correlation],
    ),
    library(
        "librocprof-sys-user",
        &[Domain::MarkerCore, Domain::MarkerControl],
    ),
    library(
        "libomnitrace-user",
        &[Domain::MarkerCore, Domain::MarkerControl],
    ),
    library("librccl", &[Domain::Rccl]),
    library("librocdecode", &[Domain::RocDecode]),
    library("librocjpeg", &[Domain::RocJpeg]),
    library("librocshmem", &[Domain::RocShmem]),
    library("libhipfile", &[Domain::HipFile]),
];

/// The libraries whose functions are traced, one row per library. The first row that matches a file
/// counts.
#[must_use]
pub fn library_patterns() -> &'static [LibraryPattern] {
    LIBRARIES
}

/// Beginnings of the file names of traced libraries.
pub fn library_stems() -> impl Iterator<Item = &'static str> {
    LIBRARIES.iter().map(|pattern| pattern.stem)
}

/// The domains that a library exports, by its file name (without directory); empty for a library
/// that is not traced.
///
/// ```
/// use gputrace_abi::domain::Domain;
/// let domains = gputrace_catalog::library_domains("libamdhip64.so.6.4.43484");
/// assert_eq!(domains, [Domain::HipRuntime, Domain::HipCompiler]);
/// ```
#[must_use]
pub fn library_domains(file_name: &str) -> &'static [Domain] {
    LIBRARIES
        .iter()
        .find(|pattern| pattern.matches(file_name))
        .map_or(&[], |pattern| pattern.domains)
}

impl LibraryPattern {
    /// Whether a file with this name is the library: `STEM.so`, `STEM.so.VERSION`, or
    /// `STEM-HASH.so…`, as Python wheels rename their libraries.
    #[must_use]
    pub fn matches(&self, file_name: &str) -> bool {
        let Some(rest) = file_name.strip_prefix(self.stem) else {
            return false;
        };
        let Some((tag, version)) = rest.split_once(".so") else {
            return false;
        };
        let tagged = tag.is_empty() || tag.strip_prefix('-').is_some_and(is_wheel_tag);
        tagged && (version.is_empty() || version.strip_prefix('.').is_some_and(is_version))
    }
}

fn is_wheel_tag(tag: &str) -> bool {
    !tag.is_empty() && tag.chars().all(|c| c.is_ascii_alphanumeric())
}

fn is_version(version: &str) -> bool {
    version
        .split('.')
        .all(|part| !part.is_empty() && part.chars().all(|c| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_fall_into_their_domains() {
        use Domain::{HipCompiler, HipRuntime, HsaAmdExt, HsaCore, HsaFinalizeExt, HsaImageExt};
        let cases = [
            ("hipMalloc", Some(HipRuntime)),
            ("hipLaunchKernel_spt", Some(HipRuntime)),
            (
                "_Z24hipExtModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_j",
                Some(HipRuntime),
            ),
            (
                "_Z22hipCreateSurfaceObjectPP13__hip_surfacePK15hipResourceDesc",
                Some(HipRuntime),
            ),
            ("__hipPushCallConfiguration", Some(HipCompiler)),
            ("__hipGetPCH", Some(HipCompiler)),
            ("hsa_init", Some(HsaCore)),
            ("hsa_queue_load_read_index_relaxed", Some(HsaCore)),
            ("hsa_amd_memory_async_copy", Some(HsaAmdExt)),
            ("hsa_amd_image_create", Some(HsaAmdExt)),
            ("hsa_ven_amd_pcs_create", Some(HsaAmdExt)),
            ("hsa_ext_image_create", Some(HsaImageExt)),
            ("hsa_ext_sampler_destroy", Some(HsaImageExt)),
            ("hsa_ext_program_finalize", Some(HsaFinalizeExt)),
            ("roctxRangePushA", Some(Domain::MarkerCore)),
            ("roctxProfilerPause", Some(Domain::MarkerControl)),
            ("roctxNameOsThread", Some(Domain::MarkerName)),
            ("rocprofsys_user_push_region", Some(Domain::MarkerCore)),
            ("rocprofsys_user_stop_trace", Some(Domain::MarkerControl)),
            ("roctracer_start", Some(Domain::MarkerControl)),
            (
                "roctracer_activity_push_external_correlation_id",
                Some(Domain::Correlation),
            ),
            ("ncclAllReduce", Some(Domain::Rccl)),
            ("mscclRunAlgo", Some(Domain::Rccl)),
            ("rocDecCreateDecoder", Some(Domain::RocDecode)),
            ("rocJpegDecode", Some(Domain::RocJpeg)),
            (
                "_ZN8rocshmem24rocshmem_quiet_on_streamEP12ihipStream_t",
                Some(Domain::RocShmem),
            ),
            ("hipFileRead", Some(Domain::HipFile)),
            ("hipFilename", Some(HipRuntime)),
            ("roctx_version_major", None),
            ("roctracer_enable_callback", None),
            ("roctracer_start_extra", None),
            ("hiprtcCompileProgram", None),
            ("hip_4.2", None),
            ("hip", None),
            ("hsa_", None),
            ("_amdgpu_r_debug", None),
            ("__gnu_f2h_ieee", None),
            (
                "_ZN8hip_impl22hipLaunchKernelGGLImplEmRK4dim3S2_jP12ihipStream_tPPv",
                None,
            ),
            ("", None),
        ];
        for (name, domain) in cases {
            assert_eq!(classify(name), domain, "{name}");
        }
    }

    #[test]
    fn malformed_mangling_is_left_alone() {
        for name in [
            "_Z",
            "_Z9",
            "_Z99hipX",
            "_Z3",
            "_Z99999999999999999999hipMallocv",
            "_Z4hipX",
        ] {
            assert_eq!(plain_name(name), name);
        }
        assert_eq!(plain_name("_Z4hipXv"), "hipX");
        assert_eq!(plain_name("_ZN8rocshmem4waitEv"), "wait");
        for name in [
            "_ZN8rocshmem",
            "_ZN8rocshmem4wait",
            "_ZN8rocshmem3TeamC1Ev",
            "_ZN8rocshmem4waitIiEEvv",
        ] {
            assert_eq!(
                plain_name(name),
                name,
                "no function of the namespace itself"
            );
        }
        assert_eq!(
            plain_name("_Z1évv"),
            "_Z1évv",
            "a length that ends inside a character"
        );
    }

    #[test]
    fn only_what_says_little_is_on_request() {
        for name in [
            "hsa_signal_load_relaxed",
            "hsa_queue_load_read_index_scacquire",
            "hsa_queue_load_write_index_relaxed",
            "hsa_executable_symbol_get_info",
        ] {
            assert!(is_on_request(name), "{name}");
        }
        for name in [
            "hsa_signal_store_screlease",
            "hsa_signal_silent_store_relaxed",
            "hsa_queue_add_write_index_screlease",
            "hsa_signal_wait_scacquire",
            "hsa_executable_get_symbol_by_name",
            "hipGetLastError",
        ] {
            assert!(!is_on_request(name), "{name}");
        }
    }

    #[test]
    fn library_file_names() {
        let hip = [
            "libamdhip64.so",
            "libamdhip64.so.5",
            "libamdhip64.so.5.2.21153",
            "libamdhip64-1a2b3c4d.so.6.4.43484",
            "libamdhip64-1a2b3c4d.so",
        ];
        for name in hip {
            assert!(
                library_domains(name).contains(&Domain::HipRuntime),
                "{name}"
            );
        }
        assert!(library_domains("libhsa-runtime64.so.1").contains(&Domain::HsaCore));
        let markers = [
            Domain::MarkerCore,
            Domain::MarkerControl,
            Domain::MarkerName,
        ];
        assert_eq!(library_domains("librocprofiler-sdk-roctx.so.1"), markers);
        assert_eq!(
            library_domains("librocprofiler-sdk.so.1"),
            [Domain::Correlation]
        );
        let others = [
            "libamdhip64.so.5.debug",
            "libamdhip64_extra.so",
            "libamdhip64-.so",
            "libamdhip64.so.",
            "libamdhip64.a",
            "libhsa-runtime64-tools.old.so.1",
            "libhsakmt.so.1",
            "librocprofiler-sdk-roctx_x.so",
            "notlibamdhip64.so",
        ];
        for name in others {
            assert!(library_domains(name).is_empty(), "{name}");
        }
    }

    proptest! {
        #[test]
        fn any_name_is_accepted(name in ".{0,40}", length in any::<u16>()) {
            let _ = classify(&name);
            let _ = classify(&format!("_Z{length}{name}"));
            let _ = library_domains(&format!("libamdhip64{name}"));
        }
    }
}
