//! Layouts of structures and values of flags, compared with a compiler's view of the headers of the
//! three releases that `cargo xtask gen-catalog` fetches. A program prints `offsetof`, `sizeof` and
//! the values, independently of how the data were made.

#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::{collections::BTreeMap, fmt::Write as _, fs, path::PathBuf, process::Command};

use gputrace_catalog::{enums, release::Release, structs};
use gputrace_harness::rocm::cache;

use support::lacking;

/// Headers of a release of HIP and one of HSA, by the Debian suite that has both.
struct Case {
    suite: &'static str,
    hip: &'static str,
    hsa: &'static str,
}

const CASES: &[Case] = &[
    Case {
        suite: "bookworm",
        hip: "5.2.3",
        hsa: "5.2.3",
    },
    Case {
        suite: "trixie",
        hip: "5.7.1",
        hsa: "6.1.2",
    },
    Case {
        suite: "forky",
        hip: "6.4.3",
        hsa: "6.4.3",
    },
];

const HEADERS: &[&str] = &[
    "hip/hip_runtime_api.h",
    "hip/driver_types.h",
    "hip/hip_deprecated.h",
    "hsa/hsa.h",
    "hsa/hsa_ext_amd.h",
    "hsa/hsa_ext_image.h",
];

/// The data made from these headers.
const LAYOUTS: &str = include_str!("../data/structs.txt");

/// Names of flags with their values.
fn flags() -> impl Iterator<Item = (&'static str, i64)> {
    let sets = enums::parse(include_str!("../data/flags.txt")).into_values();
    sets.flatten().map(|(value, name)| (name, value))
}

/// Source of a program that prints a line `STRUCTURE FIELD OFFSET SIZE` for each field that the
/// data have for this release, and a line `NAME VALUE` for each flag in the headers' text, `code`.
fn program(case: &Case, code: &str) -> String {
    let release = |name: &str| -> Release {
        let text = if name.starts_with("hsa") {
            case.hsa
        } else {
            case.hip
        };
        text.parse().expect("a release")
    };
    let mut text = String::from("#include <stddef.h>\n#include <stdio.h>\n");
    for header in HEADERS {
        // Not every release has every header.
        let _ = writeln!(
            text,
            "#if __has_include(<{header}>)\n#include <{header}>\n#endif"
        );
    }
    text += "int main() {\n";
    for layout in
        structs::parse(LAYOUTS).filter(|layout| layout.releases.contains(release(layout.name)))
    {
        let name = layout.name;
        for field in &layout.fields {
            let field = field.name;
            let _ = writeln!(
                text,
                "printf(\"{name} {field} %zu %zu\\n\", offsetof({name}, {field}), sizeof((({name} *)0)->{field}));"
            );
        }
    }
    let words: std::collections::BTreeSet<&str> = code
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .collect();
    for (name, _) in flags().filter(|(name, _)| words.contains(name)) {
        let _ = writeln!(text, "printf(\"{name} %lld\\n\", (long long){name});");
    }
    text + "}\n"
}

#[test]
fn layouts_and_flags_are_as_a_compiler_sees_them() {
    let compiler = ["c++", "g++", "clang++"]
        .into_iter()
        .find(|compiler| Command::new(compiler).arg("--version").output().is_ok());
    let (Some(compiler), Some(cache)) = (compiler, cache()) else {
        return lacking("a C++ compiler, and XDG_CACHE_HOME or HOME");
    };
    // The value in the newest release counts for each flag.
    let mut values: BTreeMap<String, i64> = BTreeMap::new();
    for case in CASES {
        let headers = cache.join("tools/rocm-headers").join(case.suite);
        let roots = ["libamdhip64-dev", "libhsa-runtime-dev"]
            .map(|package| headers.join(package).join("usr/include"));
        let files = HEADERS
            .iter()
            .flat_map(|header| roots.iter().map(move |root| root.join(header)));
        let code: String = files
            .filter_map(|file| fs::read_to_string(file).ok())
            .collect();
        if code.is_empty() {
            return lacking(&format!("headers of ROCm {}", case.hip));
        }
        let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let (source, binary) = (
            directory.join(format!("layouts-{}.cpp", case.hip)),
            directory.join(format!("layouts-{}", case.hip)),
        );
        fs::write(&source, program(case, &code)).expect("a file in the target directory");
        let compiled = Command::new(compiler)
            .args(["-std=c++17", "-w", "-D__HIP_PLATFORM_AMD__=1"])
            .args(
                roots
                    .iter()
                    .flat_map(|root| ["-isystem".as_ref(), root.as_os_str()]),
            )
            .args(["-o".as_ref(), binary.as_os_str(), source.as_os_str()])
            .output()
            .expect("the compiler runs");
        assert!(
            compiled.status.success(),
            "{}",
            String::from_utf8_lossy(&compiled.stderr)
        );
        let printed = Command::new(&binary).output().expect("the program runs");
        let printed = String::from_utf8(printed.stdout).expect("text");

        let mut fields = 0;
        for line in printed.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                [name, value] => {
                    values.insert(name.to_owned(), value.parse().expect("a number"));
                }
                [name, field, offset, size] => {
                    let release = if name.starts_with("hsa") {
                        case.hsa
                    } else {
                        case.hip
                    };
                    let release: Release = release.parse().expect("a release");
                    let mut layouts = structs::parse(LAYOUTS).filter(|layout| layout.name == name);
                    let layout = layouts
                        .find(|layout| layout.releases.contains(release))
                        .expect("asked for");
                    let known = layout
                        .fields
                        .iter()
                        .find(|known| known.name == field)
                        .expect("asked for");
                    let place = (known.offset.to_string(), known.bytes.to_string());
                    assert_eq!(
                        place,
                        (offset.to_owned(), size.to_owned()),
                        "{name}.{field} of ROCm {release}"
                    );
                    fields += 1;
                }
                _ => panic!("{line}"),
            }
        }
        println!(
            "ROCm {}: {fields} fields, {} flags checked",
            case.hip,
            values.len()
        );
        assert!(fields > 100 && values.len() > 50);
    }
    for (name, value) in flags() {
        assert_eq!(values.get(name), Some(&value), "{name}");
    }
}
