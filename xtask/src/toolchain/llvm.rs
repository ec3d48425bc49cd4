//! The LLVM installation of one major version. bpf-linker is built with it, and its tools finish
//! the objects.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::exec;

/// An LLVM installation with `llvm-config`, and therefore with headers.
#[derive(Debug)]
pub(crate) struct Llvm {
    /// Directory of `llvm-config`, `llvm-strip` and `llvm-readelf`, under these names.
    pub(crate) bin: PathBuf,
}

impl Llvm {
    /// The path of one of its tools.
    pub(crate) fn tool(&self, name: &str) -> PathBuf {
        self.bin.join(name)
    }
}

/// Finds LLVM `major` in the usual directories of distributions, and in `PATH`.
pub(crate) fn find(major: u32) -> Option<Llvm> {
    let fixed = [
        format!("/usr/lib/llvm-{major}/bin/llvm-config"), // Debian, Ubuntu, apt.llvm.org
        format!("/usr/lib64/llvm{major}/bin/llvm-config"), // Fedora's older LLVMs
        format!("/usr/lib/llvm{major}/bin/llvm-config"),  // Arch's and Alpine's older LLVMs
    ];
    let in_path = [format!("llvm-config-{major}"), "llvm-config".into()];
    fixed
        .into_iter()
        .map(PathBuf::from)
        .filter(|path| path.is_file())
        .chain(in_path.iter().filter_map(|name| exec::find_program(name)))
        .find_map(|config| probe(&config, major))
}

/// Queries `config` for its version and its directory; `None` if it is another version or lacks the
/// tools.
fn probe(config: &Path, major: u32) -> Option<Llvm> {
    let ask = |question: &str| exec::capture(Command::new(config).arg(question)).ok();
    if major_of(&ask("--version")?) != Some(major) {
        return None;
    }
    let llvm = Llvm {
        bin: ask("--bindir")?.trim().into(),
    };
    ["llvm-strip", "llvm-readelf"]
        .iter()
        .all(|tool| llvm.tool(tool).is_file())
        .then_some(llvm)
}

/// The major number of `22.1.8` or `23.0.0git`.
fn major_of(version: &str) -> Option<u32> {
    version.trim().split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn major_is_the_first_number() {
        assert_eq!(major_of("22.1.8\n"), Some(22));
        assert_eq!(major_of("23.0.0git"), Some(23));
        assert_eq!(major_of("unknown"), None);
    }
}
