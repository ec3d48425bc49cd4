//! Chooses the Rust compiler that builds the eBPF programs.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::{linker, llvm};
use crate::exec;
use crate::workspace::cargo_binary;

/// The nightly that setup installs if there is no other compiler. It is pinned, because a newer one
/// may use an LLVM that the pinned bpf-linker does not support; this one is Rust 1.97 with LLVM 22.
pub(crate) const PINNED_NIGHTLY: &str = "nightly-2026-05-20";

/// The distribution's compiler.
const SYSTEM_RUSTC: &str = "/usr/bin/rustc";

/// A compiler that was chosen.
#[derive(Debug)]
pub(crate) struct Compiler {
    pub(crate) kind: Kind,
    pub(crate) rustc: PathBuf,
    /// The cargo that is used with it.
    pub(crate) cargo: OsString,
    pub(crate) version: Version,
}

impl fmt::Display for Compiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} (rustc {}, LLVM {})",
            self.kind, self.version.release, self.version.llvm
        )
    }
}

/// The origin of a compiler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A rustup toolchain of this name. Nightlies may use unstable features.
    Nightly(String),
    /// The distribution's stable compiler, which needs `RUSTC_BOOTSTRAP=1`.
    System,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nightly(name) => write!(f, "rustup's {name}"),
            Self::System => f.write_str(SYSTEM_RUSTC),
        }
    }
}

/// The output of `rustc -vV`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    /// E.g. `1.96.0` or `1.97.0-nightly`.
    pub(crate) release: String,
    /// Major and minor, for comparisons.
    pub(crate) number: (u32, u32),
    /// Major version of the LLVM it was built with.
    pub(crate) llvm: u32,
}

impl Version {
    /// Parses the output of `rustc -vV`.
    fn parse(text: &str) -> Option<Self> {
        let field = |name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(name))
                .map(str::trim)
        };
        let release = field("release:")?;
        let llvm = field("LLVM version:")?.split('.').next()?.parse().ok()?;
        Some(Self {
            release: release.to_owned(),
            number: major_minor(release)?,
            llvm,
        })
    }
}

/// `1.96.0` -> `(1, 96)`.
fn major_minor(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// A compiler that was found, usable or not.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    kind: Kind,
    rustc: PathBuf,
    cargo: OsString,
    version: Version,
    /// Whether the standard library's source is in its sysroot.
    has_source: bool,
    /// Whether the LLVM for building bpf-linker is installed.
    has_llvm: bool,
}

impl Candidate {
    /// Queries the compiler at `rustc`. `None` if it does not answer like a rustc.
    fn probe(kind: Kind, rustc: PathBuf, cargo: OsString) -> Option<Self> {
        let version = Version::parse(&exec::capture(Command::new(&rustc).arg("-vV")).ok()?)?;
        let sysroot = exec::capture(Command::new(&rustc).args(["--print", "sysroot"])).ok()?;
        let source = Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library/core/src/lib.rs");
        let has_llvm = llvm::find(version.llvm).is_some();
        Some(Self {
            kind,
            rustc,
            cargo,
            version,
            has_source: source.is_file(),
            has_llvm,
        })
    }

    /// Why it cannot build eBPF, and what would change that; `None` if it can.
    fn refusal(&self) -> Option<String> {
        let Version {
            release,
            llvm,
            number,
        } = &self.version;
        let oldest = env!("CARGO_PKG_RUST_VERSION");
        if major_minor(oldest).is_some_and(|oldest| *number < oldest) {
            return Some(format!(
                "{}: rustc {release} is older than {oldest}, which this workspace needs",
                self.kind
            ));
        }
        if !linker::LLVM_VERSIONS.contains(llvm) {
            let (first, last) = (linker::LLVM_VERSIONS.start(), linker::LLVM_VERSIONS.end());
            return Some(format!(
                "{}: its LLVM is {llvm}, bpf-linker {} can use {first} to {last}",
                self.kind,
                linker::VERSION
            ));
        }
        if self.has_source {
            return None;
        }
        Some(match &self.kind {
            Kind::Nightly(name) => {
                format!(
                    "{}: no rust-src: `rustup component add rust-src --toolchain {name}`",
                    self.kind
                )
            }
            Kind::System => format!(
                "{}: the library source of rustc {release} is not installed",
                self.kind
            ),
        })
    }
}

/// The compilers of this machine, rustup's nightlies first.
pub(crate) fn candidates() -> Vec<Candidate> {
    let mut found = Vec::new();
    // Without rustup there are no nightlies; that is not an error.
    let toolchains =
        exec::capture(Command::new("rustup").args(["toolchain", "list"])).unwrap_or_default();
    for name in nightlies(&toolchains) {
        if let (Ok(rustc), Ok(cargo)) = (rustup_which(name, "rustc"), rustup_which(name, "cargo")) {
            found.extend(Candidate::probe(
                Kind::Nightly(name.to_owned()),
                rustc,
                cargo.into(),
            ));
        }
    }
    found.extend(Candidate::probe(
        Kind::System,
        SYSTEM_RUSTC.into(),
        cargo_binary(),
    ));
    found
}

/// The nightlies in the output of `rustup toolchain list`: one name per line, followed by remarks
/// in parentheses.
fn nightlies(list: &str) -> impl Iterator<Item = &str> {
    list.lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| name.starts_with("nightly"))
}

/// Where rustup keeps `tool` of `toolchain`.
fn rustup_which(toolchain: &str, tool: &str) -> Result<PathBuf> {
    let path =
        exec::capture(Command::new("rustup").args(["which", "--toolchain", toolchain, tool]))?;
    Ok(path.trim().into())
}

/// The first candidate that can build eBPF. One whose LLVM is installed is preferred to one whose
/// LLVM is missing.
///
/// # Errors
///
/// One line per candidate that says why it cannot be used.
pub(crate) fn choose(candidates: Vec<Candidate>) -> Result<Compiler, String> {
    let mut refusals = vec![];
    let mut usable = vec![];
    for candidate in candidates {
        match candidate.refusal() {
            Some(refusal) => refusals.push(format!("  - {refusal}")),
            None => usable.push(candidate),
        }
    }
    usable.sort_by_key(|candidate| !candidate.has_llvm);
    match usable.into_iter().next() {
        Some(Candidate {
            kind,
            rustc,
            cargo,
            version,
            ..
        }) => Ok(Compiler {
            kind,
            rustc,
            cargo,
            version,
        }),
        None if refusals.is_empty() => {
            Err("  - neither a rustup nightly nor a rustc of the system was found".into())
        }
        None => Err(refusals.join("\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYSTEM: &str = "rustc 1.96.0 (ac68faa20 2026-05-25) (built from a source tarball)\nbinary: rustc\n\
                          commit-date: 2026-05-25\nhost: x86_64-unknown-linux-gnu\nrelease: 1.96.0\nLLVM version: 22.1.8\n";

    fn candidate(
        kind: Kind,
        release: &str,
        llvm: u32,
        has_source: bool,
        has_llvm: bool,
    ) -> Candidate {
        let version = Version {
            release: release.into(),
            number: major_minor(release).unwrap(),
            llvm,
        };
        Candidate {
            kind,
            rustc: "rustc".into(),
            cargo: "cargo".into(),
            version,
            has_source,
            has_llvm,
        }
    }

    fn nightly(has_source: bool, has_llvm: bool) -> Candidate {
        candidate(
            Kind::Nightly("nightly".into()),
            "1.97.0-nightly",
            22,
            has_source,
            has_llvm,
        )
    }

    fn system(has_source: bool, has_llvm: bool) -> Candidate {
        candidate(Kind::System, "1.96.0", 22, has_source, has_llvm)
    }

    #[test]
    fn version_is_read_from_rustc() {
        let version = Version::parse(SYSTEM).unwrap();
        assert_eq!(
            (version.number, version.llvm, version.release.as_str()),
            ((1, 96), 22, "1.96.0")
        );
        let nightly = SYSTEM.replace("release: 1.96.0", "release: 1.97.0-nightly");
        assert_eq!(Version::parse(&nightly).unwrap().number, (1, 97));
    }

    #[test]
    fn other_output_is_no_version() {
        for text in [
            "",
            "rustc 1.96.0",
            "release: x\nLLVM version: 22.1\n",
            "release: 1.96.0\nLLVM version: new\n",
        ] {
            assert_eq!(Version::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn toolchain_list_gives_nightlies() {
        let list = "stable-x86_64-unknown-linux-gnu (active, default)\nnightly-x86_64-unknown-linux-gnu\n\
                    nightly-2026-05-20-x86_64-unknown-linux-gnu\n1.95.0-x86_64-unknown-linux-gnu\n";
        let names: Vec<_> = nightlies(list).collect();
        assert_eq!(
            names,
            [
                "nightly-x86_64-unknown-linux-gnu",
                "nightly-2026-05-20-x86_64-unknown-linux-gnu"
            ]
        );
        assert_eq!(nightlies("no installed toolchains\n").count(), 0);
    }

    #[test]
    fn a_complete_nightly_is_preferred() {
        let chosen = choose(vec![nightly(true, true), system(true, true)]).unwrap();
        assert_eq!(chosen.kind, Kind::Nightly("nightly".into()));
    }

    #[test]
    fn a_nightly_without_source_is_passed_over() {
        assert_eq!(
            choose(vec![nightly(false, true), system(true, true)])
                .unwrap()
                .kind,
            Kind::System
        );
    }

    #[test]
    fn a_compiler_whose_llvm_is_there_is_preferred() {
        assert_eq!(
            choose(vec![nightly(true, false), system(true, true)])
                .unwrap()
                .kind,
            Kind::System
        );
        assert_eq!(
            choose(vec![system(true, false)]).unwrap().kind,
            Kind::System
        );
    }

    #[test]
    fn refusals_say_what_would_help() {
        let old = candidate(Kind::System, "1.63.0", 14, true, true);
        let future = candidate(
            Kind::Nightly("nightly".into()),
            "1.140.0-nightly",
            31,
            true,
            true,
        );
        let text = choose(vec![nightly(false, true), future, old]).unwrap_err();
        assert!(
            text.contains("rustup component add rust-src --toolchain nightly"),
            "{text}"
        );
        assert!(text.contains("its LLVM is 31"), "{text}");
        assert!(text.contains("rustc 1.63.0 is older than"), "{text}");
        assert!(choose(vec![]).unwrap_err().contains("neither"));
    }
}
