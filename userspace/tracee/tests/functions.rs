//! All functions of freshly compiled programs, compared with the output of `nm` and `objdump`.

#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "helpers of tests fail by panicking, as tests do"
)]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use gputrace_abi::domain::Domain;
use gputrace_tracee::{
    functions::{self, Choice, ExitKind, Function},
    library::{EndSite, LibraryFile, LibraryPlan},
    plan::Unprobeable,
};
use tempfile::TempDir;

const SOURCE: &str = r#"
#include <stdexcept>
#define NOINLINE __attribute__((noinline))
extern "C" int puts(const char *);
volatile long sink;
static inline __attribute__((always_inline)) long only_inlined(long a) { return a * 3 + sink; }
static NOINLINE long hidden(long a) { sink += a; return only_inlined(a); }
namespace space {
NOINLINE long visible(long a, double) { return hidden(a) + 1; }
}
NOINLINE long many(long a) {
    if (a == 1) { sink = 2; return 7; }
    switch (a % 9) {
    case 0: return sink; case 1: return a * sink; case 2: return a - sink; case 3: return hidden(sink);
    case 4: return sink / 3; case 5: return a / 7; case 6: return sink ^ a; case 7: puts("x"); return 1;
    }
    throw std::runtime_error("eight");
}
extern "C" NOINLINE void nothing() {}
extern "C" NOINLINE void endless() { for (;;) { sink++; } }
extern "C" NOINLINE void never() { throw std::runtime_error("always"); }
extern "C" long plain(long a) { return a + sink; }
int main(int argc, char **) { return static_cast<int>(space::visible(argc, 1.0) + many(argc) + plain(1)); }
"#;

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Builds the program with these options.
fn build(directory: &TempDir, options: &[&str]) -> PathBuf {
    let (source, program) = (
        directory.path().join("p.cpp"),
        directory.path().join("program"),
    );
    fs::write(&source, SOURCE).unwrap();
    run(Command::new("g++")
        .args(["-Wl,--build-id", "-o"])
        .arg(&program)
        .args(options)
        .arg(&source));
    program
}

fn list(program: &Path, root: &Path) -> functions::Functions {
    functions::list(&LibraryFile::open(program).unwrap(), root)
}

fn named<'a>(functions: &'a functions::Functions, name: &str) -> &'a Function {
    let found = functions
        .list
        .iter()
        .find(|function| function.display_name() == name);
    found.unwrap_or_else(|| panic!("{name} is not among {functions:?}"))
}

fn plan(program: &Path, without_end: bool) -> LibraryPlan {
    let library = LibraryFile::open(program).unwrap();
    let all = functions::list(&library, Path::new("/nowhere"));
    functions::plan(&library, &all, 0, &mut |_| {
        Some(Choice {
            domain: Domain::Function,
            without_end,
        })
    })
    .unwrap()
}

/// Instructions as objdump decodes them: mnemonic, address and function, for the program's text
/// section.
fn disassembled(program: &Path) -> Vec<(String, u64, String)> {
    let text = run(Command::new("objdump")
        .args(["-d", "--no-show-raw-insn", "-j", ".text"])
        .arg(program));
    let mut function = String::new();
    let mut list = Vec::new();
    for line in text.lines() {
        if let Some((_, name)) = line
            .strip_suffix(">:")
            .and_then(|line| line.split_once('<'))
        {
            function = name.to_owned();
        } else if let Some((address, instruction)) = line.split_once(":\t") {
            let address = u64::from_str_radix(address.trim(), 16).unwrap();
            list.push((function.clone(), address, instruction.to_owned()));
        }
    }
    list
}

#[test]
fn names_sizes_and_places() {
    let directory = TempDir::new().unwrap();
    for options in [["-O2", "-g"], ["-O0", "-g"], ["-g", "-gz"]] {
        let program = build(&directory, &options);
        let all = list(&program, Path::new("/nowhere"));
        assert_eq!(all.remarks, [""; 0]);
        for name in [
            "hidden(long)",
            "space::visible(long, double)",
            "many(long)",
            "main",
        ] {
            let function = named(&all, name);
            assert!(function.size > 0);
            let source = function
                .source
                .as_ref()
                .unwrap_or_else(|| panic!("{options:?} {name}"));
            assert!(source.file.ends_with("p.cpp"), "{source}");
            let line = SOURCE.lines().nth(source.line as usize - 1).unwrap();
            let bare = name
                .split(['(', ':'])
                .find(|part| line.contains(part) && !part.is_empty());
            assert!(
                bare.is_some(),
                "{name} is not in line {}: {line}",
                source.line
            );
        }
        // Every function that `nm` lists, at the same address.
        for line in run(Command::new("nm").args(["--defined-only"]).arg(&program)).lines() {
            let mut words = line.split(' ');
            let (address, kind, name) = (
                words.next().unwrap(),
                words.next().unwrap(),
                words.next().unwrap(),
            );
            let address = u64::from_str_radix(address, 16).unwrap();
            if !matches!(kind, "t" | "T" | "W") || name.contains(".cold") {
                continue;
            }
            let found = all.list.iter().find(|function| function.address == address);
            let is_function =
                found.is_some_and(|found| found.names.iter().any(|known| known == name));
            // Labels of start files have no type.
            let is_label = [
                "data_start",
                "deregister",
                "register_tm",
                "__do_",
                "frame_dummy",
                "_start",
                "_init",
                "_fini",
                "__",
                "_dl",
            ];
            assert!(
                is_function || is_label.iter().any(|label| name.starts_with(label)),
                "{name}"
            );
        }
    }
}

#[test]
fn what_is_only_inlined_is_told() {
    let directory = TempDir::new().unwrap();
    let all = list(&build(&directory, &["-O2", "-g"]), Path::new("/nowhere"));
    let inlined: Vec<_> = all
        .inlined
        .iter()
        .filter(|name| name.contains("only_inlined"))
        .collect();
    assert_eq!(inlined.len(), 1, "{:?}", all.inlined);
    assert!(
        !all.inlined.iter().any(|name| name.contains("hidden")),
        "it has code as well"
    );
}

#[test]
fn separate_debug_files_are_found_by_build_id_and_by_name() {
    let directory = TempDir::new().unwrap();
    let program = build(&directory, &["-O2", "-g"]);
    let whole = list(&program, Path::new("/nowhere"));
    let debug = directory.path().join("program.debug");
    run(Command::new("objcopy")
        .arg("--only-keep-debug")
        .args([&program, &debug]));
    let link = format!("--add-gnu-debuglink={}", debug.display());
    run(Command::new("objcopy")
        .args(["--strip-all", &link])
        .arg(&program));

    let by_name = list(&program, Path::new("/nowhere"));
    assert_eq!(by_name.debug_file.as_deref(), Some(debug.as_path()));
    assert_eq!((&by_name.list, &by_name.cold), (&whole.list, &whole.cold));

    let id = LibraryFile::open(&program)
        .unwrap()
        .elf()
        .build_id
        .clone()
        .unwrap();
    let root = directory.path().join("root");
    let place = root
        .join(".build-id")
        .join(&id[..2])
        .join(format!("{}.debug", &id[2..]));
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    fs::rename(&debug, &place).unwrap();
    assert_eq!(list(&program, &root).list, whole.list);

    // The debug file of another build does not count.
    let other = TempDir::new().unwrap();
    fs::copy(build(&other, &["-O1", "-g"]), &place).unwrap();
    let stripped = list(&program, &root);
    assert_eq!((stripped.debug_file, stripped.list.len()), (None, 0));
}

#[test]
fn exits_are_where_objdump_sees_them() {
    let directory = TempDir::new().unwrap();
    for options in [
        &["-O2", "-g"][..],
        &["-O0"],
        &["-O3", "-fcf-protection=full"],
        &["-Os", "-no-pie"],
    ] {
        let program = build(&directory, options);
        let instructions = disassembled(&program);
        let plan = plan(&program, false);
        let library = LibraryFile::open(&program).unwrap();
        let at = |address: u64| library.elf().code_at(address).unwrap().0;
        let boundaries: BTreeSet<u64> = instructions
            .iter()
            .map(|(_, address, _)| at(*address))
            .collect();
        for name in [
            "_ZL6hiddenl",
            "_ZN5space7visibleEld",
            "_Z4manyl",
            "plain",
            "main",
        ] {
            let probe = plan.probes.iter().find(|probe| probe.name == name);
            let probe =
                probe.unwrap_or_else(|| panic!("{options:?}: {name} of {:?}", plan.refused));
            let exits = probe.end.exits();
            let found: BTreeSet<u64> = exits
                .iter()
                .filter(|exit| exit.kind == ExitKind::Return)
                .map(|exit| exit.file_offset)
                .collect();
            let is_part = |function: &str| function == name || function == format!("{name}.cold");
            let returns: BTreeSet<u64> = instructions
                .iter()
                .filter(|(function, _, text)| {
                    is_part(function) && text.split(' ').any(|word| word == "ret")
                })
                .map(|(_, address, _)| at(*address))
                .collect();
            // Parts elsewhere that are reached only by exceptions are not searched.
            assert!(
                found.is_subset(&returns),
                "{options:?} {name}: {found:x?} {returns:x?}"
            );
            let own: BTreeSet<u64> = instructions
                .iter()
                .filter(|(function, _, text)| {
                    function == name && text.split(' ').any(|word| word == "ret")
                })
                .map(|(_, address, _)| at(*address))
                .collect();
            assert!(
                own.is_subset(&found),
                "{options:?} {name}: {found:x?} {own:x?}"
            );
            for exit in exits {
                assert!(boundaries.contains(&exit.file_offset));
            }
        }
    }
}

#[test]
fn what_cannot_be_traced_is_refused_for_its_reason() {
    let directory = TempDir::new().unwrap();
    let program = build(&directory, &["-O2", "-fcf-protection=none"]);
    let strict = plan(&program, false);
    let reason = |name: &str| {
        let refused = strict.refused.iter().find(|refused| refused.name == name);
        refused.map(|refused| refused.reason)
    };
    assert_eq!(reason("nothing"), Some(Unprobeable::OnlyReturn));
    assert_eq!(reason("never"), Some(Unprobeable::NoReturn));
    assert_eq!(reason("endless"), Some(Unprobeable::Loop));
    assert_eq!(reason("_start"), Some(Unprobeable::NotCalled));

    // The same functions of a library are traced without their ends, except for the loop.
    let lenient = plan(&program, true);
    let end = |name: &str| {
        let probe = lenient.probes.iter().find(|probe| probe.name == name);
        probe.map(|probe| probe.end.clone())
    };
    let not_seen = |reason| Some(EndSite::NotSeen(reason));
    assert_eq!(end("nothing"), not_seen(Unprobeable::OnlyReturn));
    assert_eq!(end("never"), not_seen(Unprobeable::NoReturn));
    assert_eq!(end("endless"), None);
    assert!(matches!(end("plain"), Some(EndSite::Exits(_))));
}

/// Where a library was stripped, local functions and cold parts are known from its tables for
/// unwinding: the exits are those that its symbols would give.
#[test]
fn exits_of_stripped_libraries_are_the_same() {
    let directory = TempDir::new().unwrap();
    for options in [
        &["-O2", "-fPIC", "-shared"][..],
        &["-O3", "-fPIC", "-shared", "-fcf-protection=full"],
    ] {
        let whole = build(&directory, options);
        let stripped = directory.path().join("stripped.so");
        run(Command::new("strip").arg("-o").arg(&stripped).arg(&whole));
        let (with, without) = (plan(&whole, true), plan(&stripped, true));
        let end = |plan: &LibraryPlan, name: &str| {
            let probe = plan.probes.iter().find(|probe| probe.name == name);
            probe.map(|probe| probe.end.clone())
        };
        for name in ["_ZN5space7visibleEld", "_Z4manyl", "plain"] {
            let known = end(&with, name);
            assert!(
                matches!(known, Some(EndSite::Exits(_))),
                "{options:?} {name}: {known:?}"
            );
            assert_eq!(end(&without, name), known, "{options:?} {name}");
        }
    }
}
