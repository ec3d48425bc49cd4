//! What `cargo xtask package` needs besides a build.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::{Part, Purpose, packages, provide, python};
use crate::workspace::Workspace;
use crate::{exec, progress};

/// Tools that make packages.
const PACKAGERS: Part = Part {
    name: "package tools",
    why: "they split off debug information and make the .deb and the .rpm",
    since: Purpose::Build,
    run: |context| packages::PACKAGERS.ensure(&context.machine),
};

/// Tools for the libraries that a portable program has inside.
const ELFUTILS: Part = Part {
    name: "elfutils' tools",
    why: "libelf is compiled from source and linked in",
    since: Purpose::Build,
    run: |context| packages::ELFUTILS.ensure(&context.machine),
};

/// The compiler of portable programs.
const ZIG: Part = Part {
    name: "zig",
    why: "compiles and links for an older glibc than this machine's",
    since: Purpose::Build,
    run: |context| python::ZIG.ensure(context.workspace, &context.machine),
};

/// What makes and tests the wheel of the Python module.
const WHEEL: Part = Part {
    name: "maturin",
    why: "makes the wheel of the Python module; pytest and pandas test it",
    since: Purpose::Build,
    run: |context| python::WHEEL.ensure(context.workspace, &context.machine),
};

/// Gets what [`crate::python`] needs; returns the interpreter that has it.
///
/// # Errors
///
/// When it cannot be had.
pub(crate) fn wheel_maker(workspace: &Workspace) -> Result<PathBuf> {
    provide(workspace, "make the Python wheel", [&WHEEL]).require(Purpose::Build)?;
    Ok(python::WHEEL.interpreter(workspace))
}

/// Tools that try packages.
const CHECKERS: Part = Part {
    name: "check tools",
    why: "packages are installed on new Debian systems",
    since: Purpose::Build,
    run: |context| packages::CHECKERS.ensure(&context.machine),
};

/// Gets the tools that make packages, or says which cannot be had: their packages are left out.
pub(crate) fn packagers(workspace: &Workspace) {
    let report = provide(workspace, "make packages", [&PACKAGERS]);
    if let Err(missing) = report.require(Purpose::Build) {
        progress::note(format_args!("{missing:#}"));
    }
}

/// What [`crate::package`] compiles portable programs with; returns the path of zig.
///
/// # Errors
///
/// When something is missing and cannot be had.
pub(crate) fn portable(workspace: &Workspace) -> Result<PathBuf> {
    let parts = [&ELFUTILS, &ZIG];
    provide(workspace, "build portably", parts).require(Purpose::Build)?;
    let ask = "import os, ziglang; print(os.path.dirname(ziglang.__file__))";
    let interpreter = python::ZIG.interpreter(workspace);
    let directory = exec::capture(Command::new(interpreter).args(["-c", ask]))
        .context("the Python package ziglang does not say where it is")?;
    Ok(PathBuf::from(directory.trim_end()).join("zig"))
}

/// What packages are tried with.
///
/// # Errors
///
/// When something is missing and cannot be had.
pub(crate) fn checkers(workspace: &Workspace) -> Result<()> {
    provide(workspace, "check packages", [&CHECKERS]).require(Purpose::Build)
}
