//! The real ROCm libraries of this machine, compared with the output of `readelf` and `objdump`.

#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "helpers of tests fail by panicking, as tests do, and print what they found"
)]

mod common;

use std::{collections::BTreeMap, path::Path};

use common::{check_against_readelf, skip, tool};
use gputrace_abi::domain::Domain;
use gputrace_tracee::{
    interp::{self, Linker},
    library::{LibraryFile, LibraryPlan},
    plan::CostClass,
};

const HIP: &str = "/usr/lib/x86_64-linux-gnu/libamdhip64.so.5";
const HSA: &str = "/usr/lib/x86_64-linux-gnu/libhsa-runtime64.so.1";

fn open(path: &str) -> Option<LibraryFile> {
    if !Path::new(path).exists() {
        skip(&format!(
            "{path} is not installed (Debian: apt-get install libamdhip64-5 libhsa-runtime64-1)"
        ));
        return None;
    }
    Some(LibraryFile::open(Path::new(path)).unwrap())
}

#[test]
fn symbols_are_those_of_readelf() {
    for path in [HIP, HSA, interp::DEFAULT, "/lib/x86_64-linux-gnu/libc.so.6"] {
        let Some(library) = open(path) else { continue };
        check_against_readelf(&library);
        println!(
            "{path}: {} symbols, {} superseded",
            library.elf().symbols().len(),
            library.elf().superseded().len()
        );
    }
}

#[test]
fn build_ids_are_those_of_readelf() {
    for path in [HIP, HSA] {
        let Some(library) = open(path) else { continue };
        let Some(notes) = tool("readelf", &["-n"], library.path()) else {
            return;
        };
        let id = notes
            .lines()
            .find_map(|line| line.trim().strip_prefix("Build ID: "))
            .unwrap();
        assert_eq!(library.elf().build_id.as_deref(), Some(id), "{path}");
    }
}

/// Address and first bytes of each function, as `objdump` disassembles them.
fn first_instructions(text: &str) -> BTreeMap<u64, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some((address, label)) = line.split_once(' ') else {
            continue;
        };
        if !label.starts_with('<') || !label.ends_with(">:") {
            continue;
        }
        let Some(code) = lines.next().and_then(|line| line.split('\t').nth(1)) else {
            continue;
        };
        let bytes = code
            .split_ascii_whitespace()
            .map(|byte| u8::from_str_radix(byte, 16).unwrap())
            .collect();
        found.insert(u64::from_str_radix(address, 16).unwrap(), bytes);
    }
    found
}

/// Checks that each probe is on the instruction at which `objdump` sees the function begin.
fn check_sites(library: &LibraryFile, plan: &LibraryPlan) -> Option<()> {
    let text = tool("objdump", &["-d", "-w"], library.path())?;
    let starts = first_instructions(&text);
    let bytes = std::fs::read(library.path()).unwrap();
    for probe in &plan.probes {
        let expected = &starts[&probe.address];
        let at = usize::try_from(probe.site.file_offset).unwrap() - usize::from(probe.site.skipped);
        assert_eq!(
            bytes[at..at + expected.len()],
            expected[..],
            "{}",
            probe.name
        );
        let emulated = matches!(
            expected[..],
            [0x50..=0x57] | [0x41, 0x50..=0x57] | [0xe9, ..]
        );
        assert_eq!(
            probe.site.cost == CostClass::Emulated,
            emulated,
            "{}: {expected:02x?}",
            probe.name
        );
    }
    Some(())
}

fn count(plan: &LibraryPlan, cost: CostClass) -> usize {
    plan.probes
        .iter()
        .filter(|probe| probe.site.cost == cost)
        .count()
}

#[test]
fn hip_functions_are_mostly_emulated() {
    let Some(library) = open(HIP) else { return };
    let plan = library.plan(&gputrace_catalog::classify).unwrap();
    assert!(plan.refused.is_empty() && plan.indirect.is_empty());
    let emulated = count(&plan, CostClass::Emulated);
    println!("{} probes, {emulated} emulated", plan.probes.len());
    assert!(plan.probes.len() > 350 && emulated * 100 >= plan.probes.len() * 95);
    let of = |name: &str| plan.probes.iter().find(|probe| probe.name == name).unwrap();
    assert_eq!(
        (of("hipMalloc").domain, of("hipMalloc").version.as_deref()),
        (Domain::HipRuntime, Some("hip_4.2"))
    );
    assert_eq!(of("__hipRegisterFatBinary").domain, Domain::HipCompiler);
    check_sites(&library, &plan);
}

#[test]
fn hsa_stubs_are_single_stepped() {
    let Some(library) = open(HSA) else { return };
    let plan = library.plan(&gputrace_catalog::classify).unwrap();
    assert!(plan.refused.is_empty() && plan.indirect.is_empty());
    // These functions are stubs that load the dispatch table and jump.
    let stepped = count(&plan, CostClass::SingleStepped);
    println!("{} probes, {stepped} single-stepped", plan.probes.len());
    assert!(plan.probes.len() > 180 && stepped * 100 >= plan.probes.len() * 95);
    let store = plan
        .probes
        .iter()
        .find(|probe| probe.name == "hsa_signal_store_screlease")
        .unwrap();
    assert_eq!(store.aliases, ["hsa_signal_store_release"]);
    assert_eq!(store.version.as_deref(), Some("ROCR_1"));
    let names: usize = plan
        .probes
        .iter()
        .map(|probe| 1 + probe.aliases.len())
        .sum();
    let exported = library
        .elf()
        .symbols()
        .iter()
        .filter(|s| gputrace_catalog::classify(&s.name).is_some())
        .count();
    assert_eq!(
        names, exported,
        "every exported name is a probe's or an alias"
    );
    check_sites(&library, &plan);
}

#[test]
fn the_default_linker_has_its_hook() {
    if !Path::new(interp::DEFAULT).exists() {
        skip(&format!("{} does not exist", interp::DEFAULT));
        return;
    }
    let linker = Linker::open(Path::new(interp::DEFAULT)).unwrap();
    let symbol = linker.library.elf().symbol(interp::HOOK).unwrap();
    assert_eq!(symbol.version.as_deref(), Some("GLIBC_PRIVATE"));
    // No place is the function itself, and none is hit before a change.
    let hook = linker.library.elf().file_offset(symbol.address).unwrap();
    assert!(!linker.sites.is_empty());
    for site in &linker.sites {
        assert!(
            site.file_offset != hook && site.cookie.distance().is_some(),
            "{site:?}"
        );
    }
    assert!(
        linker
            .sites
            .iter()
            .any(|site| site.cost == CostClass::Emulated),
        "{:?}",
        linker.sites
    );
}
