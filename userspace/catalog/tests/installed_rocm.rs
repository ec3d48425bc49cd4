//! The catalogue compared with the installed ROCm: its libraries' exported functions, and its
//! headers read as plain text, independently of how the catalogue was made.

#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeMap;
use std::path::Path;

use gputrace_abi::domain::Domain;
use gputrace_catalog::{classify, library_domains, plain_name, signature};

use support::{declared_parameters, exported_functions, read};

const HEADERS: &str = "/usr/include";

fn declarations(headers: &[&str]) -> Option<String> {
    support::declarations(&[Path::new(HEADERS)], headers)
}

/// Library, the headers that declare its functions, and exported functions without a declaration in
/// them.
const LIBRARIES: &[(&str, &[&str], &[&str])] = &[
    (
        "/usr/lib/x86_64-linux-gnu/libamdhip64.so.5",
        &[
            "hip/hip_runtime_api.h",
            "hip/hip_ext.h",
            "hip/amd_detail/amd_hip_runtime_pt_api.h",
            "hip/amd_detail/hip_runtime_prof.h",
        ],
        &[],
    ),
    (
        "/usr/lib/x86_64-linux-gnu/libhsa-runtime64.so.1",
        &[
            "hsa/hsa.h",
            "hsa/hsa_ext_amd.h",
            "hsa/hsa_ext_image.h",
            "hsa/hsa_ext_finalize.h",
        ],
        &[],
    ),
];

#[test]
fn exported_functions_have_signatures() {
    for (path, headers, undeclared) in LIBRARIES {
        let (Some(library), Some(code)) = (read(Path::new(path)), declarations(headers)) else {
            continue;
        };
        let mut checked = 0;
        let mut unknown = Vec::new();
        for name in exported_functions(&library) {
            let plain = plain_name(&name);
            let declared = declared_parameters(&code, plain);
            match (signature(&name), declared) {
                (Some(signature), Some(count)) => {
                    assert_eq!(signature.arguments.len(), count.len(), "{name}");
                    checked += 1;
                }
                (None, Some(_)) => {
                    panic!("{name} is declared in the headers but not in the catalogue")
                }
                (Some(_), None) => println!("{name}: declared by another header or release"),
                (None, None) => unknown.push(plain.to_owned()),
            }
        }
        println!("{path}: {checked} functions checked; without signature: {unknown:?}");
        assert!(checked > 200, "{path}: only {checked} functions");
        assert_eq!(unknown, *undeclared, "{path}");
    }
}

#[test]
fn exported_functions_are_in_their_library_s_domains() {
    for (path, ..) in LIBRARIES {
        let Some(library) = read(Path::new(path)) else {
            continue;
        };
        let file_name = path.rsplit('/').next().unwrap_or_default();
        let mut found = BTreeMap::new();
        for name in exported_functions(&library) {
            let domain = classify(&name).unwrap();
            assert!(
                library_domains(file_name).contains(&domain),
                "{name} in {path}"
            );
            *found.entry(domain).or_insert(0) += 1;
        }
        println!("{path}: {found:?}");
        assert!(
            library_domains(file_name)
                .iter()
                .all(|domain| found.contains_key(domain)),
            "{path}"
        );
    }
}

/// The dispatch tables of the HSA runtime divide its functions as rocprofiler does.
#[test]
fn hsa_domains_are_those_of_the_dispatch_tables() {
    let Some(code) = declarations(&["hsa/hsa_api_trace.h"]) else {
        return;
    };
    let tables = [
        ("CoreApiTable", Domain::HsaCore),
        ("AmdExtTable", Domain::HsaAmdExt),
        ("ImageExtTable", Domain::HsaImageExt),
        ("FinalizerExtTable", Domain::HsaFinalizeExt),
    ];
    for (table, domain) in tables {
        let (_, body) = code
            .split_once(&format!("struct {table} {{"))
            .expect("the table is declared");
        let (body, _) = body.split_once("};").expect("the table ends");
        let entries: Vec<&str> = body
            .split("decltype(")
            .skip(1)
            .filter_map(|entry| entry.split(')').next())
            .collect();
        println!("{table}: {} entries", entries.len());
        assert!(entries.len() > 5, "{table}");
        for name in entries {
            assert_eq!(classify(name), Some(domain), "{name}");
        }
    }
}
