//! The catalogue compared with the libraries and headers of the three releases that
//! `cargo xtask rocm` and `cargo xtask gen-catalog` fetch: a function that a library exports and a
//! header declares is in the catalogue with the same parameters. Headers are read as plain text,
//! independently of how the catalogue was made.

#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::path::{Path, PathBuf};

use gputrace_catalog::{plain_name, release::Release, variants};
use gputrace_harness::rocm::cache;

use support::{declarations, declared_parameters, exported_functions, lacking, read};

const HIP: &[&str] = &[
    "hip/hip_runtime_api.h",
    "hip/hip_ext.h",
    "hip/amd_detail/amd_hip_runtime_pt_api.h",
    "hip/amd_detail/hip_runtime_prof.h",
];
const HSA: &[&str] = &[
    "hsa/hsa.h",
    "hsa/hsa_ext_amd.h",
    "hsa/hsa_ext_image.h",
    "hsa/hsa_ext_finalize.h",
];
const RCCL: &[&str] = &["rccl/rccl.h"];

/// A library and the headers that declare its functions.
struct Case {
    /// Root directory made by `cargo xtask rocm`.
    root: &'static str,
    /// Release of the library; Debian's libraries are not all of the same release.
    release: &'static str,
    /// Debian suite of the headers.
    suite: &'static str,
    library: &'static str,
    headers: &'static [&'static str],
    /// Minimum number of functions.
    least: usize,
}

const fn case(
    (root, release, suite): (&'static str, &'static str, &'static str),
    library: &'static str,
    headers: &'static [&'static str],
    least: usize,
) -> Case {
    Case {
        root,
        release,
        suite,
        library,
        headers,
        least,
    }
}

const CASES: &[Case] = &[
    case(("5.2.3", "5.2.3", "bookworm"), "libamdhip64.so.5", HIP, 300),
    case(
        ("5.2.3", "5.2.3", "bookworm"),
        "libhsa-runtime64.so.1",
        HSA,
        150,
    ),
    case(("5.7.1", "5.7.1", "trixie"), "libamdhip64.so.5", HIP, 350),
    case(
        ("5.7.1", "6.1.2", "trixie"),
        "libhsa-runtime64.so.1",
        HSA,
        150,
    ),
    case(("5.7.1", "5.4.3", "trixie"), "librccl.so.1", RCCL, 25),
    case(("6.4.3", "6.4.3", "forky"), "libamdhip64.so.6", HIP, 400),
    case(
        ("6.4.3", "6.4.3", "forky"),
        "libhsa-runtime64.so.1",
        HSA,
        150,
    ),
];

/// From 6.0 on, the header renames these by a macro (`…R0600`). The library still exports the old
/// name for older programs, and the catalogue has the declaration that those were compiled with.
const RENAMED: &[&str] = &["hipChooseDevice", "hipGetDeviceProperties"];

/// Type and name of a parameter in a header, if it has a name: `const char* name[]`,
/// `int flags = 0`.
fn type_and_name(parameter: &str) -> Option<(String, &str)> {
    let declared = parameter.split('=').next()?;
    let (declared, array) = match declared.split_once('[') {
        // An array is passed as a pointer.
        Some((before, _)) => (before, "*"),
        None => (declared, ""),
    };
    let declared = declared.trim_end();
    let begin = declared.rfind(|c: char| !c.is_alphanumeric() && c != '_')? + 1;
    let name = declared.get(begin..)?;
    let is_type = [
        "int", "char", "long", "short", "float", "double", "void", "unsigned", "bool",
    ];
    let before = declared.get(..begin)?.trim();
    // A type alone, as in `unsigned int` or `const hipArray_t`.
    (!name.is_empty()
        && !is_type.contains(&name)
        && !matches!(before, "const" | "struct" | "enum" | ""))
    .then(|| (format!("{before}{array}"), name))
}

/// Types that the headers redefine by macros.
const MACROS: &[(&str, &str)] = &[
    ("hipKernelNodeAttrID", "hipLaunchAttributeID"),
    ("hipKernelNodeAttrValue", "hipLaunchAttributeValue"),
];

/// The words and stars of a type, without those that do not distinguish it.
fn words(c_type: &str) -> Vec<String> {
    let spaced = c_type.replace('*', " * ").replace("[]", " * ");
    let mut words: Vec<String> = spaced
        .split_whitespace()
        .filter(|word| !matches!(*word, "struct" | "enum"))
        .map(|word| {
            let known = MACROS.iter().find(|(name, _)| *name == word);
            known.map_or(word, |(_, stands_for)| stands_for).to_owned()
        })
        .collect();
    // `unsigned` alone is `unsigned int`.
    if let Some(at) = words.iter().position(|word| word == "unsigned") {
        let next = words.get(at + 1).map(String::as_str);
        if !matches!(next, Some("int" | "char" | "short" | "long")) {
            words.insert(at + 1, "int".to_owned());
        }
    }
    words
}

/// Whether tests are to run on this release: `GPUTRACE_TEST_RELEASES` names those, separated by
/// commas. Without it, on all.
fn is_chosen(release: &str) -> bool {
    let chosen = std::env::var("GPUTRACE_TEST_RELEASES");
    chosen.map_or(true, |chosen| chosen.split(',').any(|one| one == release))
}

#[test]
fn exported_and_declared_functions_are_in_the_catalogue_as_declared() {
    let Some(cache) = cache() else {
        return lacking("neither XDG_CACHE_HOME nor HOME says where ROCm's files are");
    };
    for Case {
        root,
        release,
        suite,
        library,
        headers,
        least,
    } in CASES
    {
        if !is_chosen(root) {
            continue;
        }
        let root = cache.join("rocm").join(root).join("root");
        let headers_of = cache.join("tools/rocm-headers").join(suite);
        let packages = ["libamdhip64-dev", "libhsa-runtime-dev", "librccl-dev"];
        let roots = packages.map(|package| headers_of.join(package).join("usr/include"));
        let roots: Vec<&Path> = roots.iter().map(PathBuf::as_path).collect();
        // Not every release has every header.
        let there: Vec<&str> = headers
            .iter()
            .filter(|header| roots.iter().any(|root| root.join(header).exists()))
            .copied()
            .collect();
        let file = root.join("usr/lib/x86_64-linux-gnu").join(library);
        if *headers == RCCL && !file.exists() {
            // A large package that no other test needs.
            gputrace_skip::skipped(&format!(
                "no {library}; cargo xtask rocm --release 5.7.1 --fetch --with librccl1"
            ));
            continue;
        }
        let (Some(bytes), Some(code)) = (read(&file), declarations(&roots, &there)) else {
            lacking(&format!("{library} of ROCm {release}"));
            continue;
        };
        if there.is_empty() {
            lacking(&format!(
                "the headers of ROCm {release} are not in {}",
                headers_of.display()
            ));
            continue;
        }
        let release: Release = release.parse().expect("a release");
        let (mut checked, mut parameters) = (0, 0);
        for exported in exported_functions(&bytes) {
            let Some(declared) = declared_parameters(&code, plain_name(&exported)) else {
                continue;
            };
            let known = variants(&exported)
                .iter()
                .find(|one| one.releases.contains(release) || RENAMED.contains(&one.name));
            let known = known.unwrap_or_else(|| {
                panic!("{exported} of ROCm {release} is declared in the headers but not in the catalogue")
            });
            assert_eq!(
                known.arguments.len(),
                declared.len(),
                "{exported} of ROCm {release}: {declared:?}"
            );
            for (argument, declared) in known.arguments.iter().zip(&declared) {
                if let Some((c_type, name)) = type_and_name(declared) {
                    assert_eq!(
                        argument.name, name,
                        "{exported} of ROCm {release}: {declared}"
                    );
                    let (known, declared_as) = (words(argument.c_type.spelling), words(&c_type));
                    assert_eq!(
                        known, declared_as,
                        "{exported} of ROCm {release}: {declared}"
                    );
                    parameters += 1;
                }
            }
            checked += 1;
        }
        println!(
            "{library} of ROCm {release}: {checked} functions, {parameters} parameters checked"
        );
        assert!(
            checked >= *least,
            "{library} of ROCm {release}: only {checked} functions"
        );
    }
}
