//! Collects the licences of all code in the program.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::exec;
use crate::workspace::Workspace;

/// Prefixes of the names of licence files, in capitals.
const NAMES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"];

/// The copyright file: gputrace's own licence, then those of all crates.
///
/// # Errors
///
/// When cargo cannot list the crates, or the source of a crate is not in cargo's directory.
pub(super) fn texts(workspace: &Workspace) -> Result<String> {
    let mut cargo = workspace.cargo();
    cargo.args([
        "tree",
        "--locked",
        "--package",
        "gputrace-cli",
        "--edges",
        "normal",
    ]);
    cargo.args(["--prefix", "none", "--format", "{p}|{l}"]);
    let crates = crates(&exec::capture(&mut cargo)?);
    let sources = sources()?;
    let mut text = String::from(
        "gputrace may be used under the terms of either the MIT licence (LICENSE-MIT) or the Apache License, Version 2.0\n\
         (LICENSE-APACHE), as you prefer. The program contains the following crates. Portable programs also contain libelf\n\
         of elfutils (LGPL-3.0-or-later or GPL-2.0-or-later), whose source is part of the crate libbpf-sys: with gputrace's\n\
         own source, `cargo xtask package --portable` links them again.\n",
    );
    for (name, licence) in crates {
        let directory = sources
            .iter()
            .map(|registry| registry.join(&name))
            .find(|directory| directory.is_dir())
            .with_context(|| format!("the source of {name} is not in {}", shown(&sources)))?;
        text.push_str(&format!("\n{}\n{name}: {licence}\n", "=".repeat(80)));
        for file in files(&directory)? {
            let licence =
                fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
            let name = file.strip_prefix(&directory).unwrap_or(&file);
            text.push_str(&format!(
                "\n--- {}\n{}\n",
                name.display(),
                String::from_utf8_lossy(&licence).trim_end()
            ));
        }
    }
    Ok(text)
}

/// Directory names and licences of the crates outside the workspace, from lines such as `memchr
/// v2.8.3|MIT`; lines of workspace crates also contain a path.
fn crates(tree: &str) -> BTreeSet<(String, String)> {
    let lines = tree.lines().filter_map(|line| line.split_once('|'));
    lines
        .filter(|(package, _)| !package.contains("(/"))
        .filter_map(|(package, licence)| {
            let mut words = package.split_whitespace();
            let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
            // A crate that was already listed ends with ` (*)`.
            let licence = licence.trim_end_matches(" (*)");
            Some((format!("{name}-{version}"), licence.to_owned()))
        })
        .collect()
}

/// Cargo's source directories, one per registry.
fn sources() -> Result<Vec<PathBuf>> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(Path::new(&env::var_os("HOME")?).join(".cargo")));
    let directory = home
        .context("neither CARGO_HOME nor HOME is set")?
        .join("registry/src");
    let entries =
        fs::read_dir(&directory).with_context(|| format!("cannot read {}", directory.display()))?;
    Ok(entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect())
}

fn shown(directories: &[PathBuf]) -> String {
    let shown: Vec<String> = directories
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    shown.join(", ")
}

/// Sorted licence files of a crate, and of C libraries one directory below.
fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut directories = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            directories.push(path);
        } else if is_licence(&path) {
            found.push(path);
        }
    }
    for directory in directories {
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if path.is_file() && is_licence(&path) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

fn is_licence(path: &Path) -> bool {
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .to_uppercase();
    NAMES.iter().any(|known| name.starts_with(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_of_others_are_found_once() {
        let tree = "gputrace-cli v0.1.0 (/work/userspace/cli)|MIT OR Apache-2.0\nmemchr v2.8.3|Unlicense OR MIT\n\
                    clap_derive v4.6.7 (proc-macro)|MIT\nmemchr v2.8.3|Unlicense OR MIT (*)\n";
        let crates = crates(tree);
        let names: Vec<&str> = crates.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["clap_derive-4.6.7", "memchr-2.8.3"]);
        assert!(crates.iter().all(|(_, licence)| !licence.contains('*')));
    }

    #[test]
    fn licence_files_are_known_by_their_names() {
        for name in [
            "LICENSE-MIT",
            "license.txt",
            "COPYING",
            "UNLICENSE",
            "LICENSE.BSD-2-Clause",
        ] {
            assert!(is_licence(Path::new(name)), "{name}");
        }
        assert!(!is_licence(Path::new("src/lib.rs")));
    }
}
