//! `/proc/PID/maps`: which files a process has mapped.

use std::{
    ffi::OsString,
    io::{self, Read as _},
    os::unix::ffi::OsStringExt,
    path::PathBuf,
};

use gputrace_files::kernel;

/// Maximum size of a list of mappings that is read, bytes. A process has at most 65,530 mappings
/// (`vm.max_map_count`) unless that limit was raised.
const MAX_MAPS: u64 = 64 << 20;

/// A mapping of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// Address after the last byte.
    pub end: u64,
    /// Whether the process can write to it.
    pub writable: bool,
    /// Whether it is executable.
    pub executable: bool,
    /// File offset of `start`, bytes.
    pub offset: u64,
    /// Device of the file system, encoded like `st_dev`.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// The path as the kernel printed it.
    name: Vec<u8>,
}

const DELETED: &[u8] = b" (deleted)";

impl Mapping {
    /// Decodes one line, without its newline. `None` for mappings without a file, and for anything
    /// that is not such a line.
    ///
    /// ```text
    /// 7f63c0a00000-7f63c0a1e000 r-xp 0001e000 fe:00 1052 /usr/lib/libamdhip64.so.5.2
    /// ```
    #[must_use]
    pub fn parse(line: &[u8]) -> Option<Self> {
        let mut rest = line;
        let mut field = || {
            let end = rest.iter().position(|byte| *byte == b' ')?;
            let (field, tail) = rest.split_at_checked(end)?;
            rest = tail.get(1..)?;
            std::str::from_utf8(field).ok()
        };
        let (start, end) = field()?.split_once('-')?;
        let permissions = field()?;
        let offset = field()?;
        let (major, minor) = field()?.split_once(':')?;
        let inode: u64 = field()?.parse().ok()?;
        if inode == 0 {
            return None;
        }
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let hex32 = |text: &str| u32::from_str_radix(text, 16).ok();
        Some(Self {
            start: hex(start)?,
            end: hex(end)?,
            writable: permissions.as_bytes().get(1) == Some(&b'w'),
            executable: permissions.as_bytes().get(2) == Some(&b'x'),
            offset: hex(offset)?,
            device: rustix::fs::makedev(hex32(major)?, hex32(minor)?),
            inode,
            name: rest.trim_ascii_start().to_vec(),
        })
    }

    /// Whether the kernel marked the file as deleted (unlinked, or replaced by renaming over it).
    #[must_use]
    pub fn deleted(&self) -> bool {
        self.name.ends_with(DELETED)
    }

    /// The path as the kernel printed it, with `\012` for a newline and ` (deleted)` at the end.
    #[must_use]
    pub fn printed(&self) -> &[u8] {
        &self.name
    }

    /// The file's path as seen by the process (for a process in a chroot: from the root of its
    /// mount namespace). By now, another file may have this path.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        let name = self.name.strip_suffix(DELETED).unwrap_or(&self.name);
        PathBuf::from(OsString::from_vec(unescape(name)))
    }

    /// Name of the directory entry `/proc/PID/map_files/…` for this mapping.
    #[must_use]
    pub fn range(&self) -> String {
        format!("{:x}-{:x}", self.start, self.end)
    }
}

/// Undoes the kernel's escaping: it writes a newline as `\012` and escapes nothing else, not even a
/// backslash.
fn unescape(name: &[u8]) -> Vec<u8> {
    const NEWLINE: &[u8] = b"\\012";
    let mut out = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((&byte, tail)) = rest.split_first() {
        if let Some(tail) = rest.strip_prefix(NEWLINE) {
            out.push(b'\n');
            rest = tail;
        } else {
            out.push(byte);
            rest = tail;
        }
    }
    out
}

/// The file mappings of a process, in order of address.
///
/// # Errors
///
/// The kernel's error, or `TimedOut` if the process does not answer: `NotFound` if the process is
/// gone, `PermissionDenied` if it may not be inspected. For a process that ends while its maps are
/// read, the result is empty, or the call fails with `ESRCH`.
pub fn of_process(pid: u32) -> io::Result<Vec<Mapping>> {
    let text = gputrace_reader::file(pid, "maps", MAX_MAPS)?;
    Ok(text
        .split(|byte| *byte == b'\n')
        .filter_map(Mapping::parse)
        .collect())
}

/// Whether `wanted` accepts one of a process's executable file mappings. Like [`of_process`], but
/// does not keep the mappings. `buffer` is used for reading and need not be empty.
///
/// # Errors
///
/// As [`of_process`].
pub fn any_code(
    pid: u32,
    buffer: &mut Vec<u8>,
    mut wanted: impl FnMut(&Mapping) -> bool,
) -> io::Result<bool> {
    buffer.clear();
    kernel::open(format!("/proc/{pid}/maps"))?
        .take(MAX_MAPS)
        .read_to_end(buffer)?;
    let lines = buffer.split(|byte| *byte == b'\n');
    Ok(lines
        .filter(|line| is_code(line))
        .filter_map(Mapping::parse)
        .any(|mapping| wanted(&mapping)))
}

/// Whether the permissions in a line include execution. Checked before anything else of the line is
/// decoded.
fn is_code(line: &[u8]) -> bool {
    let end = line.iter().position(|byte| *byte == b' ');
    end.and_then(|end| line.get(end + 3)) == Some(&b'x')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::Path;

    #[test]
    fn lines_of_all_kinds() {
        let mapping = |line: &str| Mapping::parse(line.as_bytes());
        let lib = mapping(
            "7f63c0a00000-7f63c0a1e000 r-xp 0001e000 fe:10 1052   /usr/lib/libamdhip64.so.5",
        )
        .unwrap();
        assert_eq!(
            (lib.start, lib.end, lib.offset),
            (0x7f63_c0a0_0000, 0x7f63_c0a1_e000, 0x1e000)
        );
        assert_eq!(
            (lib.device, lib.inode, lib.executable),
            (rustix::fs::makedev(0xfe, 0x10), 1052, true)
        );
        assert_eq!(lib.path(), Path::new("/usr/lib/libamdhip64.so.5"));
        assert_eq!(lib.range(), "7f63c0a00000-7f63c0a1e000");
        assert!(!lib.deleted());

        let gone = mapping("1000-2000 rw-p 0 00:01 9 /a dir/li\\012b (1).so (deleted)").unwrap();
        assert!(gone.deleted() && !gone.executable && gone.writable && !lib.writable);
        assert_eq!(gone.path(), Path::new("/a dir/li\nb (1).so"));
        assert_eq!(
            mapping("1000-2000 r--p 0 00:01 9 /back\\slash")
                .unwrap()
                .path(),
            Path::new("/back\\slash")
        );

        for other in [
            "7ffd1000-7ffd2000 rw-p 00000000 00:00 0                          [stack]",
            "1000-2000 rw-p 00000000 00:00 0 ",
            "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]",
            "1000-2000 r--p 0 0001 9 /x",
            "1000 r--p 0 00:01 9 /x",
            "zz-2000 r--p 0 00:01 9 /x",
            "",
        ] {
            assert_eq!(mapping(other), None, "{other}");
        }
    }

    #[test]
    fn own_maps_hold_the_test_program() {
        let exe = std::fs::read_link("/proc/self/exe").unwrap();
        let mappings = of_process(std::process::id()).unwrap();
        assert!(
            mappings
                .iter()
                .any(|mapping| mapping.executable && mapping.path() == exe)
        );
        let mut code = Vec::new();
        let all = |mapping: &Mapping| {
            code.push(mapping.clone());
            false
        };
        assert!(!any_code(std::process::id(), &mut Vec::new(), all).unwrap());
        assert!(code.iter().any(|mapping| mapping.path() == exe));
        assert!(code.iter().all(|mapping| mapping.executable));
    }

    proptest! {
        #[test]
        fn any_line(line in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = Mapping::parse(&line);
        }

        #[test]
        fn any_path_survives(name in "/[ -~\n]{0,40}", deleted: bool) {
            // As `seq_path` writes it. Names that contain the escape sequence itself are ambiguous.
            prop_assume!(!name.contains("\\012") && !name.ends_with(" (deleted)"));
            let printed = name.replace('\n', "\\012") + if deleted { " (deleted)" } else { "" };
            let mapping = Mapping::parse(format!("1000-2000 r-xp 0 00:01 9 {printed}").as_bytes()).unwrap();
            prop_assert_eq!(mapping.path(), Path::new(&name));
            prop_assert_eq!(mapping.deleted(), deleted);
        }
    }
}
