//! Functions behind tables, of freshly compiled libraries, compared with the output of `nm`.

#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests fail by panicking, as tests do"
)]

mod common;

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use gputrace_tracee::{
    functions::{Callers, Tables},
    library::LibraryFile,
};
use proptest::prelude::*;

/// Number of functions of each table.
const FUNCTIONS: usize = 20;

/// A library with two tables as ROCr has them: an object with both, filled by a constructor of the
/// library, and stubs that jump through them. `FILL` is how an entry is filled.
fn source(fill: impl Fn(&str, usize) -> String) -> String {
    let mut text = String::from(
        "#include <stdint.h>\n\
         typedef long (*Function)(long);\n\
         struct Version { uint32_t major, minor, step, reserved; };\n",
    );
    let mut filled = String::new();
    let (mut entries, mut stubs) = (String::new(), String::new());
    for table in ["core", "more"] {
        let number = if table == "core" {
            FUNCTIONS
        } else {
            FUNCTIONS + 4
        };
        entries +=
            &format!("struct {table} {{ struct Version version; Function f[{number}]; }};\n");
        stubs += &format!("static const struct {table} *{table}_table;\n");
        filled += &format!("t->{table}.version.major = 1; t->{table}.version.step = 3;\n");
        for at in 0..number {
            text += &format!(
                "volatile long {table}_sink_{at};\n\
                 __attribute__((noinline)) static long {table}_behind_{at}(long a) \
                 {{ {table}_sink_{at} = a; __asm__ volatile(\"\"); \
                 return a * {at} + {table}_sink_{at}; }}\n"
            );
            filled += &fill(table, at);
            stubs += &format!(
                "long {table}_stub_{at}(long a) {{ return {table}_table->f[{at}](a); }}\n"
            );
        }
    }
    text + &entries
        + "struct Tables { long before[4]; struct core core; struct more more; };\n\
           static struct Tables all;\n"
        + &stubs
        + "extern int is_odd;\nint is_odd;\n\
           __attribute__((noinline)) static void fill(struct Tables *t) {\n"
        + &filled
        + "}\n__attribute__((constructor)) static void begin(void) {\n\
           fill(&all); core_table = &all.core; more_table = &all.more; }\n"
}

/// A library with two tables as HIP has them: each is filled by the function that returns its
/// address, when that is called for the first time. HIP has that function in a file of its own.
fn with_getters(fill: impl Fn(&str, usize) -> String) -> String {
    let mut text = String::from(
        "#include <stddef.h>\n#include <stdint.h>\n\
         typedef long (*Function)(long, long, long, long, long, long, long);\n",
    );
    for (table, number) in [("core", FUNCTIONS), ("more", FUNCTIONS + 4)] {
        let (mut filled, mut stubs) = (String::new(), String::new());
        for at in 0..number {
            text += &format!(
                "volatile long {table}_sink_{at};\n\
                 __attribute__((noinline)) static long {table}_behind_{at}(\
                 long a, long b, long c, long d, long e, long f, long g) \
                 {{ {table}_sink_{at} = a + c; __asm__ volatile(\"\"); \
                 return a * {at} + b * g + {table}_sink_{at}; }}\n"
            );
            filled += &fill(table, at);
            stubs += &format!(
                "long {table}_stub_{at}(long a, long b, long c, long d, long e, long f, long g) \
                 {{ return get_{table}()->f[{at}](a, b, c, d, e, f, g); }}\n"
            );
        }
        text += &format!(
            "struct {table} {{ size_t size; Function f[{number}]; }};\n\
             static struct {table} all_{table};\nextern int is_odd;\n\
             __attribute__((noipa)) static struct {table} *get_{table}(void) {{\n\
             static struct {table} *ready;\n\
             if (!__atomic_load_n(&ready, __ATOMIC_ACQUIRE)) {{\n\
             struct {table} *t = &all_{table};\n\
             t->size = sizeof(struct {table});\n\
             {filled} __atomic_store_n(&ready, t, __ATOMIC_RELEASE); }}\n\
             return ready; }}\n{stubs}"
        );
    }
    text + "int is_odd;\n"
}

/// One that is always the same.
fn plain(table: &str, at: usize) -> String {
    format!("t->{table}.f[{at}] = {table}_behind_{at};\n")
}

/// Compiles a library. Returns its bytes, and the addresses of its functions by name.
fn compile(directory: &Path, source: &str, options: &[&str]) -> (Vec<u8>, BTreeMap<String, u64>) {
    let (text, library) = (directory.join("l.c"), directory.join("liblibrary.so"));
    fs::write(&text, source).unwrap();
    let run = |command: &mut Command| {
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    };
    let mut compiler = Command::new("cc");
    compiler
        .args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(&text);
    run(compiler.args(options));
    let names = run(Command::new("nm").arg(&library));
    let functions = names.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let address = u64::from_str_radix(words.next()?, 16).ok()?;
        let _kind = words.next()?;
        Some((words.next()?.to_owned(), address))
    });
    let functions = functions.collect();
    run(Command::new("strip").arg(&library));
    (fs::read(&library).unwrap(), functions)
}

fn read(directory: &Path, library: &[u8]) -> Option<Tables> {
    let path = directory.join("read.so");
    fs::write(&path, library).unwrap();
    Some(LibraryFile::open(&path).ok()?.tables().clone())
}

/// Where each stub of a table leads must be right, and at least so many must be known.
fn check(tables: &Tables, functions: &BTreeMap<String, u64>, table: &str, least: usize) {
    let mut known = 0;
    for (name, address) in functions {
        let Some(at) = name.strip_prefix(&format!("{table}_stub_")) else {
            continue;
        };
        if let Some(behind) = tables.stubs().get(address) {
            known += 1;
            assert_eq!(
                behind.function,
                functions[&format!("{table}_behind_{at}")],
                "{name}"
            );
            assert!(behind.size > 0);
        }
    }
    assert!(known >= least, "{known} of {table} are known");
}

#[test]
fn what_is_behind_stubs_is_what_the_names_say() {
    let directory = tempfile::tempdir().unwrap();
    for options in [
        &["-O2"][..],
        &["-O3"],
        &["-O2", "-fcf-protection"],
        &["-O2", "-fno-tree-slp-vectorize"],
        &["-Os"],
        &["-O2", "-Wl,-z,pack-relative-relocs"],
    ] {
        let with_getters = with_getters(|table, at| format!("t->f[{at}] = {table}_behind_{at};\n"));
        for source in [source(plain), with_getters] {
            let (library, functions) = compile(directory.path(), &source, options);
            let tables = read(directory.path(), &library).unwrap();
            check(&tables, &functions, "core", FUNCTIONS);
            check(&tables, &functions, "more", FUNCTIONS + 4);
        }
    }
}

/// The return address says nothing of who called a stub that the library uses itself, nor of who
/// called a function that the library jumps to.
#[test]
fn callers_are_known_unless_the_library_uses_the_stub() {
    let directory = tempfile::tempdir().unwrap();
    let text = source(plain)
        + "long calls(long a) { return core_stub_1(a) + 1; }\n\
           long jumps(long a) { return core_stub_2(a * 3); }\n\
           Function loads(void) { return core_stub_3; }\n\
           Function words[] = { core_stub_4 };\n\
           long calls_behind(long a) { return core_behind_5(a) + 1; }\n\
           long jumps_behind(long a) { return core_behind_6(a * 3); }\n\
           long other_offset(long a) { return core_table->f[8](a + 1); }\n";
    let bound = ["-O2", "-Wl,-Bsymbolic", "-fno-inline"];
    let packed = [&bound[..], &["-Wl,-z,pack-relative-relocs"]].concat();
    for (options, expected) in [
        (&["-O2"][..], &[1, 2, 3, 4, 6, 8][..]),
        (&["-O2", "-fno-plt"], &[1, 2, 3, 4, 6, 8]),
        // The first has become a call through the table, whose return address tells it.
        (&["-O2", "-fno-semantic-interposition"], &[2, 3, 4, 6, 8]),
        (&bound, &[1, 2, 3, 4, 6, 8]),
        (&packed, &[1, 2, 3, 4, 6, 8]),
    ] {
        let (library, functions) = compile(directory.path(), &text, options);
        let tables = read(directory.path(), &library).unwrap();
        let unknown: Vec<usize> = (0..FUNCTIONS)
            .filter(|at| {
                let stub = functions[&format!("core_stub_{at}")];
                tables.stubs()[&stub].callers == Callers::Unknown
            })
            .collect();
        assert_eq!(unknown, expected, "{options:?}");
    }
}

/// If all users of a table are known, so is what leads to its functions.
#[test]
fn functions_that_only_stubs_call_are_known() {
    const REST: &str = "(long a, long b, long c, long d, long e, long f, long g)";
    let directory = tempfile::tempdir().unwrap();
    let text = with_getters(|table, at| format!("t->f[{at}] = {table}_behind_{at};\n"))
        + &format!(
            "long calls{REST} {{ return core_stub_1(a, b, c, d, e, f, g) + 1; }}\n\
             long calls_behind{REST} {{ return core_behind_5(a, b, c, d, e, f, g) + 1; }}\n\
             long jumps_behind{REST} {{ return core_behind_6(b, a, c, d, e, f, g); }}\n\
             long calls_through{REST} {{ return get_core()->f[7](a, b, c, d, e, f, g) + 1; }}\n\
             long jumps_through{REST} {{ return get_core()->f[8](b, a, c, d, e, f, g); }}\n\
             Function loads_behind(void) {{ return core_behind_9; }}\n\
             Function words_behind[] = {{ core_behind_10 }};\n"
        );
    let unknown_user = "struct core *unknown(void) { return get_core(); }\n";
    for options in [&["-O2"][..], &["-O3"], &["-Os"], &["-O2", "-fno-plt"]] {
        for (source, others) in [
            (text.clone(), Callers::Stubs),
            (text.clone() + unknown_user, Callers::Outside),
        ] {
            let (library, functions) = compile(directory.path(), &source, options);
            let tables = read(directory.path(), &library).unwrap();
            for at in 0..FUNCTIONS {
                let expected = match at {
                    5 | 7 | 9 | 10 => Callers::Outside,
                    6 | 8 => Callers::Unknown,
                    // The library uses its stub.
                    1 if others == Callers::Outside => Callers::Unknown,
                    _ => others,
                };
                let stub = functions[&format!("core_stub_{at}")];
                assert_eq!(tables.stubs()[&stub].callers, expected, "{at} {options:?}");
            }
        }
    }
}

/// An entry that is filled in two ways is not known; the others of its table are.
#[test]
fn what_is_not_certain_is_not_known() {
    let directory = tempfile::tempdir().unwrap();
    let fill = |table: &str, at: usize| match (table, at) {
        ("core", 7) => "t->core.f[7] = is_odd ? core_behind_7 : core_behind_8;\n".to_owned(),
        ("more", 20) => "if (is_odd) t->more.f[20] = more_behind_1; else t->more.f[20] = \
                         more_behind_20;\n"
            .to_owned(),
        _ => plain(table, at),
    };
    for options in ["-O1", "-O2", "-O3", "-Os"] {
        let (library, functions) = compile(directory.path(), &source(fill), &[options]);
        let tables = read(directory.path(), &library).unwrap();
        for stub in ["core_stub_7", "more_stub_20"] {
            assert_eq!(
                tables.stubs().get(&functions[stub]),
                None,
                "{stub} {options}"
            );
        }
        check(&tables, &functions, "core", 0);
        check(&tables, &functions, "more", 0);
    }
}

/// Two objects that could be the table lead to nothing, if they differ.
#[test]
fn of_two_tables_none_is_taken() {
    let directory = tempfile::tempdir().unwrap();
    let mut text = source(plain);
    text += "__attribute__((noinline)) void other(struct Tables *t) {\n";
    for at in 0..FUNCTIONS {
        text += &format!("t->core.f[{at}] = core_behind_{};\n", FUNCTIONS - 1 - at);
    }
    text += "}\n";
    let (library, functions) = compile(directory.path(), &text, &["-O2"]);
    let tables = read(directory.path(), &library).unwrap();
    assert_eq!(tables.stubs().get(&functions["core_stub_3"]), None);
    check(&tables, &functions, "more", FUNCTIONS + 4);
}

#[test]
fn files_without_stubs_have_none() {
    let libc = LibraryFile::open(Path::new("/lib/x86_64-linux-gnu/libc.so.6")).unwrap();
    assert!(libc.tables().stubs().is_empty());
}

#[test]
fn damaged_files_never_panic() {
    let directory = tempfile::tempdir().unwrap();
    let (library, _) = compile(directory.path(), &source(plain), &["-O2"]);
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let damage = proptest::collection::vec((0..library.len(), any::<u8>()), 1..64);
    let outcome = runner.run(&damage, |changes| {
        let mut damaged = library.clone();
        for (at, byte) in changes {
            damaged[at] = byte;
        }
        let _ = read(directory.path(), &damaged);
        Ok(())
    });
    outcome.unwrap();
}
