//! The samples and misuse in C: they compile without a warning as C and C++, and do what they say.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "test code outside of #[test] functions"
)]

use std::{
    env, fs,
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use gputrace::Domain;
use gputrace_capture::meta::{End, Recording};
use gputrace_timeline::synthetic::{Synthetic, call, ledger};

/// The directory with the shared library, which cargo builds with this test.
fn libraries() -> PathBuf {
    let program = env::current_exe().unwrap();
    let directories = program.ancestors().skip(1).take(2);
    let found = directories.filter(|directory| directory.join("libgputrace_c.so").exists());
    found.last().expect("libgputrace_c.so is built").to_owned()
}

/// Compiles a program of this crate into `place`.
fn compile(compiler: &str, source: &str, options: &[&str], place: &Path) -> PathBuf {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    let name = source.replace(['/', '.'], "_");
    let program = place.join(format!("{name}-{compiler}{}", options.len()));
    let libraries = libraries();
    let output = Command::new(compiler)
        .args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-g", "-o"])
        .arg(&program)
        .args(options)
        .arg(directory.join(source))
        .arg("-I")
        .arg(directory.join("include"))
        .arg("-L")
        .arg(&libraries)
        .args(["-lgputrace_c", "-Wl,-rpath"])
        .arg(format!("-Wl,{}", libraries.display()))
        .output()
        .unwrap_or_else(|error| panic!("{compiler}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{compiler} {source}: {said}");
    program
}

/// A capture with twenty calls.
fn capture(place: &Path) -> PathBuf {
    let mut made = Synthetic::new(&Recording {
        cpus: 1,
        ..Recording::default()
    });
    made.library("libamdhip64.so", &[("hipMemcpy", Domain::HipRuntime)]);
    let calls: Vec<_> = (1..=20_u64)
        .map(|number| call(number, number * 1000, number * 1000 + 500))
        .collect();
    for one in &calls {
        made.call(one);
    }
    made.meta(gputrace_capture::Meta::Ledger(Box::new(ledger(
        &calls,
        &[],
    ))));
    made.meta(gputrace_capture::Meta::End(End::default()));
    let path = place.join("run.gtcap");
    fs::write(&path, made.bytes()).unwrap();
    path
}

fn run(program: &Path, argument: &Path) -> Output {
    Command::new(program).arg(argument).output().unwrap()
}

/// The samples do what they say when this compiler has compiled them.
fn samples_work(compilers: &[(&str, &[&str])]) {
    let place = tempfile::tempdir().unwrap();
    let capture = capture(place.path());
    for (compiler, options) in compilers {
        for source in ["activity", "external_correlation", "api_callbacks"] {
            let source = format!("examples/{source}.c");
            let program = compile(compiler, &source, options, place.path());
            let output = run(&program, &capture);
            let said = String::from_utf8_lossy(&output.stderr);
            if source.contains("api_callbacks") {
                // The path is no process.
                assert_eq!(output.status.code(), Some(1), "{source}: {said}");
                continue;
            }
            assert!(output.status.success(), "{source} by {compiler}: {said}");
            let text = String::from_utf8_lossy(&output.stdout);
            assert_eq!(
                text.contains("seen 20, lost 0"),
                source.contains("activity")
            );
        }
    }
}

#[test]
fn samples_compile_without_a_warning_and_read_a_capture() {
    samples_work(&[
        ("gcc", &["-std=c11"]),
        ("gcc", &["-std=c99", "-O2"]),
        ("gcc", &["-std=c11", "-fsanitize=address,undefined", "-O1"]),
    ]);
}

#[test]
fn clang_compiles_the_samples_too() {
    let names = ["clang", "clang-19", "clang-15"];
    let is_there = |name: &&str| Command::new(name).arg("--version").output().is_ok();
    match names.iter().find(|name| is_there(name)) {
        Some(clang) => samples_work(&[(clang, &["-std=c11"])]),
        None => gputrace_skip::skipped("there is no clang"),
    }
}

#[test]
fn misuse_is_an_error() {
    let place = tempfile::tempdir().unwrap();
    let capture = capture(place.path());
    let sanitized: &[&str] = &["-std=c11", "-fsanitize=address,undefined", "-O1"];
    for options in [&["-std=c11"][..], sanitized] {
        let program = compile("gcc", "tests/misuse.c", options, place.path());
        let output = run(&program, &capture);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{options:?}: {said}");
    }
}

#[test]
fn a_callback_that_throws_aborts_the_process() {
    let place = tempfile::tempdir().unwrap();
    let capture = capture(place.path());
    let program = compile("g++", "tests/throws.cpp", &["-std=c++17"], place.path());
    let output = run(&program, &capture);
    assert_eq!(output.status.signal(), Some(6), "{output:?}");
}
