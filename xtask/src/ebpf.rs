//! `cargo xtask build-ebpf`: compiles `ebpf/probes` and `ebpf/kernel` into the objects that the
//! tool embeds.

use std::env;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use crate::exec;
use crate::progress::{self, Bytes, long_step};
use crate::toolchain::Toolchain;
use crate::toolchain::compiler::Kind;
use crate::workspace::Workspace;

/// The eBPF packages of the tool; each has one object file of the same name.
const PACKAGES: [&str; 2] = ["gputrace-probes", "gputrace-kernel"];

/// The package that only `cargo xtask bench` loads.
const BENCH_PACKAGE: &str = "gputrace-bench-programs";

/// Rust's name for little-endian BPF.
const TARGET: &str = "bpfel-unknown-none";

/// The cargo profile for BPF code, see the root `Cargo.toml`.
const PROFILE: &str = "bpf";

/// Arguments of `cargo xtask build-ebpf`.
#[derive(clap::Args)]
pub(crate) struct Args {}

impl Args {
    #[expect(clippy::unused_self, reason = "every command is run by a method")]
    pub(crate) fn run(self, workspace: &Workspace) -> Result<()> {
        build(workspace)
    }
}

/// Compiles the programs and puts the finished objects where `userspace/loader/build.rs` looks for
/// them. An object with unchanged content is not touched, so that cargo does not rebuild anything.
///
/// # Errors
///
/// When the toolchain is incomplete, a program does not compile, or an object has no type
/// information.
pub(crate) fn build(workspace: &Workspace) -> Result<()> {
    build_packages(workspace, &PACKAGES)
}

/// Compiles the programs of the benchmarks; returns the path of the object.
///
/// # Errors
///
/// As [`build`].
pub(crate) fn build_bench(workspace: &Workspace) -> Result<PathBuf> {
    build_packages(workspace, &[BENCH_PACKAGE])?;
    Ok(workspace.bpf.join(format!("{BENCH_PACKAGE}.o")))
}

fn build_packages(workspace: &Workspace, packages: &[&str]) -> Result<()> {
    let toolchain = Toolchain::find(workspace)?;
    let why = format!(
        "the programs that run in the kernel, by {}",
        toolchain.compiler
    );
    let compiled = long_step("compile the eBPF programs", &why, || {
        compile(workspace, &toolchain, packages)
    })?;
    fs::create_dir_all(&workspace.bpf)
        .with_context(|| format!("cannot create {}", workspace.bpf.display()))?;
    for package in packages {
        let start = Instant::now();
        let object = workspace.bpf.join(format!("{package}.o"));
        let stripped = workspace.bpf.join(format!("{package}.o.new"));
        finish(&toolchain, &compiled.join(package), &stripped)?;
        let size = fs::metadata(&stripped)?.len();
        let state = if replace_if_different(&stripped, &object)? {
            "done"
        } else {
            "same"
        };
        let shown = workspace.relative(&object).display();
        progress::line(
            state,
            format_args!("{shown}, {}", Bytes(size)),
            start.elapsed(),
        );
    }
    Ok(())
}

/// Runs cargo for the BPF target; returns the directory of the linked objects.
fn compile(workspace: &Workspace, toolchain: &Toolchain, packages: &[&str]) -> Result<PathBuf> {
    let compiler = &toolchain.compiler;
    // A separate directory, because this is another compiler. (`target/bpf` would collide with the
    // name of the profile.)
    let target_dir = workspace.target.join("bpf-build");
    let mut command = workspace.cargo_of(&compiler.cargo);
    command.args([
        "build",
        "--bins",
        "--profile",
        PROFILE,
        "--target",
        TARGET,
        "-Z",
        "build-std=core",
    ]);
    command.args(packages.iter().flat_map(|package| ["--package", package]));
    command.arg("--target-dir").arg(&target_dir);

    command.env("RUSTC", &compiler.rustc);
    command.env(
        "CARGO_ENCODED_RUSTFLAGS",
        rustc_flags(&workspace.root).join("\x1f"),
    );
    command.env("PATH", exec::path_with(&[&toolchain.linker])?);
    if compiler.kind == Kind::System {
        command.env("RUSTC_BOOTSTRAP", "1");
    }
    // `cargo run` puts the libraries of its own rustc there; this is another rustc.
    command.env_remove("LD_LIBRARY_PATH");
    exec::stream(&mut command)?;
    Ok(target_dir.join(TARGET).join(PROFILE))
}

/// Flags for all crates of the BPF build, including `core`.
fn rustc_flags(root: &Path) -> Vec<String> {
    let mut flags = vec![
        // Tells aya-ebpf the architecture of the registers in `ProbeContext`.
        format!("--cfg=bpf_target_arch=\"{}\"", env::consts::ARCH),
        // bpf-linker generates BTF from the debug information, but only on request.
        "-Cdebuginfo=2".into(),
        "-Clink-arg=--btf".into(),
        // Allows atomic operations that return the old value; all kernels since 5.12 support them.
        "-Ctarget-cpu=v3".into(),
    ];
    // The verifier's log quotes source lines with their paths. The objects are shipped, so they
    // must not contain directories of the build machine.
    flags.push(format!("--remap-path-prefix={}=.", root.display()));
    let cargo_home = env::var_os("CARGO_HOME")
        .or_else(|| Some(Path::new(&env::var_os("HOME")?).join(".cargo").into()));
    if let Some(cargo_home) = cargo_home {
        flags.push(format!(
            "--remap-path-prefix={}=cargo",
            Path::new(&cargo_home).display()
        ));
    }
    flags
}

/// Writes `compiled` to `finished` without DWARF, and checks that the data needed by the loaders is
/// still there.
fn finish(toolchain: &Toolchain, compiled: &Path, finished: &Path) -> Result<()> {
    let mut strip = Command::new(toolchain.llvm.tool("llvm-strip"));
    exec::capture(
        strip
            .arg("--strip-debug")
            .arg(compiled)
            .arg("-o")
            .arg(finished),
    )?;
    let mut readelf = Command::new(toolchain.llvm.tool("llvm-readelf"));
    let sections = exec::capture(readelf.args(["--sections", "--wide"]).arg(finished))?;
    check_sections(&sections).with_context(|| format!("{} is not usable", compiled.display()))
}

/// Checks the section names in the output of `llvm-readelf --sections --wide`.
fn check_sections(listing: &str) -> Result<()> {
    // `  [ 8] .BTF  PROGBITS …`: the name follows the bracket.
    let names: Vec<&str> = listing
        .lines()
        .filter_map(|line| line.split_once(']')?.1.split_whitespace().next())
        .collect();
    for needed in [".BTF", ".BTF.ext", "license"] {
        if !names.contains(&needed) {
            bail!(
                "section {needed} is missing: bpf-linker writes BTF only with `--btf` and debug information"
            );
        }
    }
    if let Some(left) = names.iter().find(|name| name.starts_with(".debug")) {
        bail!("section {left} is still there after stripping");
    }
    Ok(())
}

/// Moves `new` over `old` unless they are equal; returns whether it did. It renames the file, so
/// that a simultaneous build sees either the old or the new object and never a partial one.
fn replace_if_different(new: &Path, old: &Path) -> Result<bool> {
    let before = match fs::read(old) {
        Ok(bytes) => Some(bytes),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", old.display())),
    };
    if before == Some(fs::read(new)?) {
        fs::remove_file(new)?;
        return Ok(false);
    }
    fs::rename(new, old).with_context(|| format!("cannot write {}", old.display()))?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTING: &str = "\
There are 21 section headers, starting at offset 0x98c0:

Section Headers:
  [Nr] Name              Type            Address          Off    Size   ES Flg Lk Inf Al
  [ 0]                   NULL            0000000000000000 000000 000000 00      0   0  0
  [13] license           PROGBITS        0000000000000000 002810 00000d 00   A  0   0  1
  [16] .BTF              PROGBITS        0000000000000000 002908 002645 00      0   0  4
  [18] .BTF.ext          PROGBITS        0000000000000000 004f50 002130 00      0   0  4
";

    #[test]
    fn a_finished_object_has_btf_and_no_dwarf() {
        check_sections(LISTING).unwrap();
        let without = LISTING.replace("[16] .BTF ", "[16] .data ");
        assert!(
            check_sections(&without)
                .unwrap_err()
                .to_string()
                .contains("section .BTF is missing")
        );
        let dwarf = format!("{LISTING}  [19] .debug_info PROGBITS 0\n");
        assert!(
            check_sections(&dwarf)
                .unwrap_err()
                .to_string()
                .contains(".debug_info")
        );
    }

    #[test]
    fn an_equal_object_is_left_alone() {
        let directory = env::temp_dir().join(format!("xtask-ebpf-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let (new, old) = (directory.join("new"), directory.join("old"));
        let mut outcomes = Vec::new();
        for content in ["a", "a", "b"] {
            fs::write(&new, content).unwrap();
            outcomes.push(replace_if_different(&new, &old).unwrap());
            assert_eq!(fs::read_to_string(&old).unwrap(), content);
            assert!(!new.exists());
        }
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(outcomes, [true, false, true]);
    }
}
