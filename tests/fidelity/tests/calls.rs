//! Each call of HSA's and HIP's functions is recorded once, and no other. The truth is counted by a
//! library that is loaded before them and has their functions: each adds one and jumps to theirs.

#![allow(clippy::panic, reason = "test code outside of #[test] functions")]
#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]
#![expect(clippy::expect_used, reason = "tests")]

mod support;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use gputrace_e2e::Trace;
use gputrace_fidelity::release::preload;
use gputrace_harness::rocm;
use gputrace_releases::{LIBRARY_DIRECTORY, RELEASES};
use gputrace_tracee::{elf::SymbolKind, library::LibraryFile};

use support::{record_by, release};

/// Compiles the library that counts calls of these functions into the words of a file.
fn counter(place: &Path, functions: &[String]) -> PathBuf {
    let mut source = String::from(
        "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <fcntl.h>\n#include <stdlib.h>\n\
         #include <sys/mman.h>\nlong *counts;\n",
    );
    let mut begin = String::new();
    for (at, name) in functions.iter().enumerate() {
        let offset = at * 8;
        writeln!(
            source,
            "void *real_{at};\n__asm__(\".globl {name}\\n.type {name},@function\\n{name}:\\n\
             mov counts@GOTPCREL(%rip), %r11\\nmov (%r11), %r11\\nlock incq {offset}(%r11)\\n\
             mov real_{at}@GOTPCREL(%rip), %r11\\njmp *(%r11)\\n\");"
        )
        .expect("text");
        writeln!(begin, "real_{at} = dlsym(RTLD_NEXT, \"{name}\");").expect("text");
    }
    writeln!(
        source,
        "__attribute__((constructor)) static void begin(void) {{\n\
         int file = open(getenv(\"COUNTS\"), O_RDWR);\n\
         counts = mmap(0, {0}, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);\n\
         if (counts == MAP_FAILED) abort();\n{begin}}}",
        functions.len() * 8
    )
    .expect("text");
    let (text, library) = (place.join("counter.c"), place.join("libcounter.so"));
    fs::write(&text, source).expect("the source");
    let mut compiler = Command::new("cc");
    compiler
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(&library)
        .arg(&text);
    assert!(compiler.status().expect("a compiler").success());
    library
}

/// Functions of the APIs that a library exports.
fn exported(library: &Path) -> Vec<String> {
    let library = LibraryFile::open(library).expect("a library");
    let symbols = library.elf().symbols().iter();
    let is_api = |name: &str| {
        ["hsa_", "hip", "__hip"]
            .iter()
            .any(|begin| name.starts_with(begin))
    };
    symbols
        .filter(|symbol| symbol.kind == SymbolKind::Function && is_api(&symbol.name))
        .map(|symbol| symbol.name.clone())
        .collect()
}

fn on(name: &str) {
    let Some(release) = release(name) else { return };
    for program in ["vector_add", "arguments"] {
        is_recorded(name, &support::program(&release, program, &[]));
    }
}

fn is_recorded(name: &str, program: &Command) {
    let place = tempfile::tempdir().expect("a directory");
    let place = place.path();
    let root = rocm::root(name).expect("its root");
    let packaged = RELEASES.iter().find(|one| one.name == name);
    let functions: BTreeSet<String> = packaged
        .expect("a release of Debian's")
        .libraries
        .iter()
        .flat_map(|library| exported(&root.join(LIBRARY_DIRECTORY).join(library.soname)))
        .collect();
    let functions: Vec<String> = functions.into_iter().collect();
    let counts = place.join("counts");
    fs::write(&counts, vec![0; functions.len() * 8]).expect("the counts");

    let counter = counter(place, &functions);
    // Behind `env`, so that gputrace itself has only the software GPU.
    let mut counted = Command::new("env");
    let gpu = preload().expect("the software GPU");
    counted
        .arg(format!(
            "LD_PRELOAD={}:{}",
            counter.display(),
            gpu.display()
        ))
        .arg(format!("COUNTS={}", counts.display()))
        .arg(program.get_program())
        .args(program.get_args());
    record_by(
        Command::new(support::gputrace()),
        &counted,
        place,
        "",
        &["--hsa-trace", "--hip-trace", "--kernel-trace"],
    );
    let trace = Trace::read(&place.join("out/run.gtcap"));
    trace.assert_lossless();

    let words = fs::read(&counts).expect("the counts");
    let words = words.chunks_exact(8).map(|word| {
        let word = word.try_into().expect("8 bytes");
        u64::from_ne_bytes(word)
    });
    let truth: BTreeMap<&str, u64> = functions.iter().map(String::as_str).zip(words).collect();
    let mut seen: BTreeMap<&str, u64> = BTreeMap::new();
    for call in &trace.calls {
        *seen.entry(&trace.function(call).function.name).or_default() += 1;
    }
    let mut differ = Vec::new();
    // Also of libraries that are installed, and that the program does not use.
    for function in trace.functions.values() {
        let function = &function.function;
        // By name and aliases, which are the same code.
        let names = std::iter::once(&function.name).chain(&function.aliases);
        let counts = names.filter_map(|name| truth.get(name.as_str()));
        let expected: u64 = counts.sum();
        let recorded = seen.get(&*function.name).copied().unwrap_or_default();
        if recorded != expected {
            differ.push((&function.name, expected, recorded));
        }
    }
    assert!(
        differ.is_empty(),
        "calls and recorded calls on ROCm {name}, {program:?}: {differ:?}"
    );
    assert!(seen.len() > 20, "{} functions are called", seen.len());
}

gputrace_releases::on_each_release!(on);
