//! The catalogue against the ROCm that is installed here: its libraries' exported functions, and its
//! headers read as plain text, which is independent of how the catalogue was made.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use gputrace_abi::domain::Domain;
use gputrace_catalog::{classify, library_domains, plain_name, signature};
use object::{Object as _, ObjectSymbol as _, SymbolKind};

const HEADERS: &str = "/usr/include";

/// Library, the headers that declare its functions, exported functions without a declaration in them.
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

/// The file, or `None` with a printed reason: then the test has nothing to check here.
fn read(path: &str) -> Option<Vec<u8>> {
    fs::read(path)
        .inspect_err(|error| eprintln!("skipped: {path}: {error}"))
        .ok()
}

/// The text of headers without comments and preprocessor lines.
fn declarations(headers: &[&str]) -> Option<String> {
    let mut code = String::new();
    for header in headers {
        let text = String::from_utf8_lossy(&read(&format!("{HEADERS}/{header}"))?).into_owned();
        let mut rest = text.as_str();
        while let Some((before, comment)) = rest.split_once("/*") {
            code += before;
            rest = comment.split_once("*/").map_or("", |(_, after)| after);
        }
        code += rest;
        code.push('\n');
    }
    let lines = code
        .lines()
        .map(|line| line.split_once("//").map_or(line, |(before, _)| before));
    Some(
        lines
            .filter(|line| !line.trim_start().starts_with('#'))
            .collect::<Vec<_>>()
            .join("\n"),
    )
}

/// The number of parameters with which `name` is declared, from the commas between its parentheses.
fn declared_parameters(code: &str, name: &str) -> Option<usize> {
    code.match_indices(name).find_map(|(at, _)| {
        let before = code[..at].trim_end();
        let type_before = before.ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '*');
        let parameters = code[at + name.len()..].trim_start().strip_prefix('(')?;
        if !type_before || before.ends_with("return") {
            return None;
        }
        let (mut depth, mut commas) = (1, 0);
        for (offset, c) in parameters.char_indices() {
            match c {
                '(' => depth += 1,
                ')' => depth -= 1,
                ',' if depth == 1 => commas += 1,
                _ => {}
            }
            if depth == 0 {
                let inside = parameters[..offset].trim();
                let is_declaration = parameters[offset + 1..].trim_start().starts_with(';');
                let count = if inside.is_empty() || inside == "void" {
                    0
                } else {
                    commas + 1
                };
                return is_declaration.then_some(count);
            }
        }
        None
    })
}

/// Names of the exported functions that belong to a domain, as exported.
fn exported_functions(library: &[u8]) -> BTreeSet<String> {
    let file = object::File::parse(library).expect("an ELF file");
    let functions = file
        .dynamic_symbols()
        .filter(|symbol| symbol.is_definition() && symbol.kind() == SymbolKind::Text);
    functions
        .filter_map(|symbol| symbol.name().ok().map(str::to_owned))
        .filter(|name| classify(name).is_some())
        .collect()
}

#[test]
fn exported_functions_have_signatures() {
    for (path, headers, undeclared) in LIBRARIES {
        let (Some(library), Some(code)) = (read(path), declarations(headers)) else {
            continue;
        };
        let mut checked = 0;
        let mut unknown = Vec::new();
        for name in exported_functions(&library) {
            let plain = plain_name(&name);
            let declared = declared_parameters(&code, plain);
            match (signature(&name), declared) {
                (Some(signature), Some(count)) => {
                    assert_eq!(signature.arguments.len(), count, "{name}");
                    checked += 1;
                }
                (None, Some(_)) => panic!("{name} is declared in the headers but not in the catalogue"),
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
        let Some(library) = read(path) else { continue };
        let file_name = path.rsplit('/').next().unwrap_or_default();
        let mut found = BTreeMap::new();
        for name in exported_functions(&library) {
            let domain = classify(&name).unwrap();
            assert!(library_domains(file_name).contains(&domain), "{name} in {path}");
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
