//! What a program needs of the machine where it runs.

use std::fmt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::exec;

/// What must be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Needs {
    /// The oldest C library that has all symbols.
    pub(super) glibc: Version,
    /// Names of shared libraries, such as `libz.so.1`.
    pub(super) libraries: Vec<String>,
}

/// A version of glibc.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version {
    major: u32,
    minor: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Reads them from the dynamic section and the symbols of `program`.
///
/// # Errors
///
/// When it is no ELF file, or names no version of glibc, as a static program.
pub(super) fn needs(program: &Path) -> Result<Needs> {
    let symbols = exec::capture(Command::new("objdump").arg("-T").arg(program))?;
    let dynamic = exec::capture(Command::new("objdump").arg("-p").arg(program))?;
    Ok(Needs {
        glibc: newest(&symbols)
            .with_context(|| format!("{} names no version of glibc", program.display()))?,
        libraries: libraries(&dynamic),
    })
}

/// The newest `GLIBC_2.N` in what `objdump -T` prints.
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

/// `  NEEDED               libz.so.1` in what `objdump -p` prints.
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
    fn needed_libraries_are_listed() {
        let dynamic = "Dynamic Section:\n  NEEDED               libelf.so.1\n  NEEDED    libc.so.6\n  INIT  0x1000\n";
        assert_eq!(libraries(dynamic), ["libelf.so.1", "libc.so.6"]);
    }
}
