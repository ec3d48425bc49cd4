//! Determines what a program needs of the machine where it runs.

use std::fmt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::portable;
use crate::exec;

/// The requirements of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Needs {
    /// The oldest version of the C library that has all symbols.
    pub(super) glibc: Version,
    /// Names of shared libraries, such as `libz.so.1`.
    pub(super) libraries: Vec<String>,
}

impl Needs {
    /// Checks that the program runs wherever [`portable::GLIBC`] or a newer glibc is, and nothing
    /// else.
    ///
    /// # Errors
    ///
    /// Names what it needs besides.
    pub(super) fn require_portable(&self) -> Result<()> {
        let others = self.libraries.iter().filter(|name| !of_glibc(name));
        let mut besides: Vec<String> = others.cloned().collect();
        if self.glibc > portable::GLIBC {
            besides.push(format!("glibc {}", self.glibc));
        }
        if besides.is_empty() {
            return Ok(());
        }
        bail!(
            "the program is not portable: it needs {}",
            besides.join(", ")
        )
    }
}

/// Whether the library is part of the C library's package.
pub(super) fn of_glibc(name: &str) -> bool {
    [
        "libc.so.",
        "libm.so.",
        "libdl.so.",
        "libpthread.so.",
        "librt.so.",
        "ld-linux",
    ]
    .iter()
    .any(|prefix| name.starts_with(prefix))
}

/// A version of glibc.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version {
    pub(super) major: u32,
    pub(super) minor: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Reads the requirements from the dynamic section and the symbols of `program`.
///
/// # Errors
///
/// When it is no ELF file, or names no version of glibc, as a static program.
pub(super) fn needs(program: &Path) -> Result<Needs> {
    let symbols = exec::capture(Command::new("objdump").arg("-T").arg(program))?;
    let dynamic = exec::capture(Command::new("objdump").arg("-p").arg(program))?;
    Ok(Needs {
        glibc: newest(&symbols)
            .max(marked(&dynamic))
            .with_context(|| format!("{} names no version of glibc", program.display()))?,
        libraries: libraries(&dynamic),
    })
}

/// The newest `GLIBC_2.N` in the output of `objdump -T`.
fn newest(symbols: &str) -> Option<Version> {
    let versions = symbols.split("GLIBC_").skip(1).filter_map(|text| {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.');
        let mut numbers = text.get(..end.unwrap_or(text.len()))?.split('.');
        Some(Version {
            major: numbers.next()?.parse().ok()?,
            minor: numbers.next()?.parse().ok()?,
        })
    });
    versions.max()
}

/// The glibc that a mark in what `objdump -p` prints stands for: it can apply packed relocations.
fn marked(dynamic: &str) -> Option<Version> {
    let packed = Version {
        major: 2,
        minor: 36,
    };
    dynamic.contains("GLIBC_ABI_DT_RELR").then_some(packed)
}

/// The libraries in the output of `objdump -p`, in lines such as `  NEEDED
/// libz.so.1`.
fn libraries(dynamic: &str) -> Vec<String> {
    let lines = dynamic
        .lines()
        .filter_map(|line| line.trim().strip_prefix("NEEDED"));
    lines.map(|name| name.trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        let symbols = "0000 DF *UND* 0000 (GLIBC_2.4)  stat\n0000 DF *UND* 0000 (GLIBC_2.17) x\n\
                       0000 DF *UND* 0000 (GLIBC_2.2.5) read\n0000 DF *UND* 0000 (GCC_3.0) _Unwind_Resume\n";
        assert_eq!(newest(symbols).unwrap().to_string(), "2.17");
        assert_eq!(newest("no symbols"), None);
    }

    #[test]
    fn a_mark_of_glibc_is_a_version() {
        let marked = |name: &str| marked(&format!("    0x0963cf85 0x00 03 {name}\n"));
        assert_eq!(marked("GLIBC_ABI_DT_RELR").unwrap().to_string(), "2.36");
        assert_eq!(marked("GLIBC_2.36"), None);
    }

    #[test]
    fn a_portable_program_needs_an_old_glibc_and_nothing_else() {
        let refused = |minor, library: &str| {
            let needs = Needs {
                glibc: Version { major: 2, minor },
                libraries: vec!["libc.so.6".to_owned(), library.to_owned()],
            };
            needs
                .require_portable()
                .map_err(|error| error.to_string())
                .err()
        };
        assert_eq!(refused(28, "ld-linux-x86-64.so.2"), None);
        let refusal = refused(29, "libelf.so.1").unwrap();
        assert!(
            refusal.ends_with("it needs libelf.so.1, glibc 2.29"),
            "{refusal}"
        );
    }

    #[test]
    fn needed_libraries_are_listed() {
        let dynamic = "Dynamic Section:\n  NEEDED               libelf.so.1\n  NEEDED    libc.so.6\n  INIT  0x1000\n";
        assert_eq!(libraries(dynamic), ["libelf.so.1", "libc.so.6"]);
    }
}
