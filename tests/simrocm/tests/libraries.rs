//! The staged libraries themselves: compares names, versions and sonames with the real ones, if
//! they are cached.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "test code outside of #[test] functions"
)]

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gputrace_harness::rocm;
use gputrace_simrocm::HipSoname;
use object::LittleEndian;
use object::elf::FileHeader64;
use object::read::elf::{FileHeader, Sym};
use support::staged;

/// Exported names with their version node and size.
fn exports(path: &Path) -> BTreeMap<String, (String, u64)> {
    let bytes = std::fs::read(path).unwrap();
    let header = FileHeader64::<LittleEndian>::parse(&*bytes).unwrap();
    let endian = header.endian().unwrap();
    let sections = header.sections(endian, &*bytes).unwrap();
    let versions = sections.versions(endian, &*bytes).unwrap().unwrap();
    let symbols = sections
        .symbols(endian, &*bytes, object::elf::SHT_DYNSYM)
        .unwrap();
    let mut found = BTreeMap::new();
    for (index, symbol) in symbols.enumerate() {
        if symbol.is_undefined(endian) || symbol.st_shndx(endian) == object::elf::SHN_ABS {
            continue;
        }
        let name = symbols.symbol_name(endian, symbol).unwrap();
        let name = String::from_utf8_lossy(name).into_owned();
        let version = versions
            .version(versions.version_index(endian, index).into())
            .unwrap();
        let version = version.map(|version| String::from_utf8_lossy(version.name()).into_owned());
        found.insert(name, (version.unwrap_or_default(), symbol.st_size(endian)));
    }
    found
}

/// A library of the real ROCm 6.4.3, if `cargo xtask rocm` has fetched it.
fn real(name: &str) -> Option<PathBuf> {
    let path = rocm::root("6.4.3").map(|root| root.join(rocm::LIBRARIES).join(name));
    let path = path.filter(|path| path.exists());
    if path.is_none() {
        let promised = std::env::var_os("GPUTRACE_REQUIRE_ROCM").is_some_and(|value| value == "1");
        let missing = rocm::missing("6.4.3");
        assert!(
            !promised || !rocm::selected().contains(&"6.4.3"),
            "GPUTRACE_REQUIRE_ROCM=1, but {missing}"
        );
        gputrace_skip::skipped(&format!("{name}: {missing}"));
    }
    path
}

/// Names that only exist in releases after 6.4.
const NEWER: [&str; 4] = [
    "hsa_amd_memory_async_batch_copy",
    "hsa_amd_queue_create",
    "hsa_amd_signal_batch_create",
    "hsa_amd_signal_batch_destroy",
];

#[test]
fn names_and_versions_are_those_of_the_real_libraries() {
    for name in ["libhsa-runtime64.so.1", "libamdhip64.so.6"] {
        let Some(path) = real(name) else { continue };
        let real = exports(&path);
        for (symbol, (version, _)) in exports(&staged(HipSoname::Six).join(name)) {
            if NEWER.contains(&symbol.as_str()) {
                assert_eq!(
                    (version.as_str(), real.contains_key(&symbol)),
                    ("ROCR_1", false)
                );
                continue;
            }
            let found = real.get(&symbol).map(|(version, _)| version);
            assert_eq!(found, Some(&version), "{symbol}");
        }
    }
}

#[test]
fn every_name_of_the_version_scripts_is_exported_with_a_size() {
    for (part, name) in [
        ("hsa", "libhsa-runtime64.so"),
        ("hip", "libamdhip64.so"),
        ("roctx", "libroctx64.so"),
    ] {
        let script = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join(part)
            .join("exports.map");
        let script = std::fs::read_to_string(script).unwrap();
        let names = script
            .lines()
            .filter_map(|line| line.strip_prefix("    ")?.strip_suffix(';'));
        let exported = exports(&staged(HipSoname::Six).join(name));
        let mut count = 0;
        for name in names.filter(|name| *name != "*") {
            assert!(
                exported.get(name).is_some_and(|(_, bytes)| *bytes > 0),
                "{name}"
            );
            count += 1;
        }
        assert_eq!(count, exported.len(), "{name}");
    }
}

#[test]
fn both_generations_have_their_soname() {
    for (hip, soname) in [
        (HipSoname::Five, "libamdhip64.so.5"),
        (HipSoname::Six, "libamdhip64.so.6"),
    ] {
        let bytes = std::fs::read(staged(hip).join("libamdhip64.so")).unwrap();
        let mut needed = Vec::new();
        let header = FileHeader64::<LittleEndian>::parse(&*bytes).unwrap();
        let endian = header.endian().unwrap();
        let sections = header.sections(endian, &*bytes).unwrap();
        let (dynamic, strings) = sections.dynamic(endian, &*bytes).unwrap().unwrap();
        let strings = sections.strings(endian, &*bytes, strings).unwrap();
        for entry in dynamic {
            use object::read::elf::Dyn;
            if [object::elf::DT_SONAME, object::elf::DT_NEEDED].contains(&entry.d_tag(endian)) {
                let text = entry.string(endian, strings).unwrap();
                needed.push(String::from_utf8_lossy(text).into_owned());
            }
        }
        assert!(needed.iter().any(|name| name == soname), "{needed:?}");
        assert!(
            needed.iter().any(|name| name == "libhsa-runtime64.so.1"),
            "{needed:?}"
        );
    }
}
