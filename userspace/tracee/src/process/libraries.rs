//! From a mapping to the mapped file.
//!
//! The path in `/proc/PID/maps` is only a hint. It is a path in the mount namespace of the process,
//! the file may have been deleted or replaced since, and for a process in a chroot the path is
//! relative to the outside. `/proc/PID/map_files` leads to the file itself but needs privileges. So
//! each way is tried in turn, and a file is accepted only if it is the mapped one: by device and
//! inode, or by the build id in the memory of the process where device numbers are useless (overlay
//! and btrfs file systems show different ones in maps and in `stat`).

use std::{
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use gputrace_files::{
    kernel,
    target::{FileState, OpenError, Place, Root},
};
use rustix::io::Errno;

use super::{ProcessError, maps::Mapping};
use crate::{
    elf::{self, ElfError, ElfInfo},
    library::LibraryFile,
};

/// A file with code that a process has mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedFile {
    /// Path as in the process's maps.
    pub path: PathBuf,
    /// Device as in the maps; comparable with `st_dev` except on overlay and btrfs file systems.
    pub device: u64,
    /// Inode number as in the maps.
    pub inode: u64,
    /// Whether the file was deleted or replaced after it was mapped.
    pub deleted: bool,
    /// One of its executable mappings.
    code: Mapping,
    /// Address of its ELF header in the process's memory, and number of bytes mapped there.
    header: Option<(u64, u64)>,
}

/// The files with code among the mappings whose path satisfies `wanted`, each once, in order of the
/// address of their code.
pub(super) fn code_files(mappings: &[Mapping], wanted: impl Fn(&Path) -> bool) -> Vec<MappedFile> {
    let mut files = Vec::<MappedFile>::new();
    for code in mappings.iter().filter(|mapping| mapping.executable) {
        if files
            .iter()
            .any(|file| (file.device, file.inode) == (code.device, code.inode))
        {
            continue;
        }
        let path = code.path();
        if wanted(&path) {
            files.push(MappedFile::new(code, path, mappings));
        }
    }
    files
}

/// The file mapped at an address.
pub(crate) fn file_at(mappings: &[Mapping], address: u64) -> Option<MappedFile> {
    let there = mappings
        .iter()
        .find(|mapping| (mapping.start..mapping.end).contains(&address))?;
    let same = |mapping: &&Mapping| (mapping.device, mapping.inode) == (there.device, there.inode);
    let code = mappings
        .iter()
        .filter(same)
        .find(|mapping| mapping.executable)?;
    Some(MappedFile::new(code, code.path(), mappings))
}

impl MappedFile {
    fn new(code: &Mapping, path: PathBuf, mappings: &[Mapping]) -> Self {
        let same =
            |mapping: &&Mapping| (mapping.device, mapping.inode) == (code.device, code.inode);
        let header = mappings
            .iter()
            .filter(same)
            .find(|mapping| mapping.offset == 0);
        Self {
            path,
            device: code.device,
            inode: code.inode,
            deleted: code.deleted(),
            code: code.clone(),
            header: header
                .map(|mapping| (mapping.start, mapping.end.saturating_sub(mapping.start))),
        }
    }

    /// The state of the mapped file, without opening it; `None` if the process or the mapping is
    /// gone, or privileges are missing.
    pub(crate) fn state(&self, pid: u32) -> Option<FileState> {
        let place = Place::of_mapping(pid, &self.code.range(), &self.path).ok()?;
        if place.is_regular() && is_printed(&place, self) {
            place.state().ok()
        } else {
            None
        }
    }

    /// Build id of the file, read from the memory of the process that maps it.
    fn build_id(&self, pid: u32) -> Option<String> {
        /// Number of bytes read: linkers put the notes directly after the program headers.
        const ENOUGH: u64 = 1 << 16;
        let (address, size) = self.header?;
        let mut bytes = vec![0; usize::try_from(size.min(ENOUGH)).ok()?];
        let got = gputrace_reader::memory(pid, address, &mut bytes).ok()?;
        bytes.truncate(got);
        elf::build_id_in_memory(&bytes)
    }
}

/// Finds exactly the file that a process has mapped, without opening it.
///
/// # Errors
///
/// As [`open_mapped`].
pub fn locate_mapped(pid: u32, mapped: &MappedFile) -> Result<Place, ProcessError> {
    let mut denied = None;
    let mut note = |error: &OpenError| {
        if let OpenError::Open { path, source } = error
            && matches!(
                Errno::from_io_error(source),
                Some(Errno::ACCESS | Errno::PERM)
            )
        {
            denied = Some(path.display().to_string());
        }
    };

    match Place::of_mapping(pid, &mapped.code.range(), &mapped.path) {
        // The link leads to the mapped file whatever `stat` says about it, unless something else
        // was mapped in its place since the maps were read.
        Ok(place) if is_printed(&place, mapped) || is_inode(&place, mapped) => return Ok(place),
        Ok(_) => {}
        Err(error) => note(&error),
    }

    // The path as the process sees it and, for one in a chroot, as gputrace does.
    for root in [Root::of_process(pid), Root::own()] {
        let located = root
            .map_err(|source| OpenError::Open {
                path: format!("/proc/{pid}/root").into(),
                source,
            })
            .and_then(|root| root.locate(&mapped.path));
        match located {
            Ok(place) if is_inode(&place, mapped) => return Ok(place),
            Ok(place) => {
                if is_build(&place, pid, mapped).unwrap_or_else(|error| {
                    note(&error);
                    false
                }) {
                    return Ok(place);
                }
            }
            Err(error) => note(&error),
        }
    }

    if !kernel::exists(format!("/proc/{pid}")) {
        return Err(ProcessError::NoSuchProcess { pid });
    }
    Err(match denied {
        Some(what) if !mapped.deleted => ProcessError::PermissionDenied { pid, what },
        _ => ProcessError::LibraryReplaced {
            pid,
            path: mapped.path.clone(),
        },
    })
}

/// Opens exactly the file that a process has mapped.
///
/// # Errors
///
/// [`ProcessError::NoSuchProcess`] if the process is gone, [`ProcessError::PermissionDenied`],
/// [`ProcessError::LibraryReplaced`], or [`ProcessError::Elf`] if the file cannot be parsed.
pub fn open_mapped(pid: u32, mapped: &MappedFile) -> Result<LibraryFile, ProcessError> {
    open_located(pid, &locate_mapped(pid, mapped)?)
}

/// Opens a file that [`locate_mapped`] found.
///
/// # Errors
///
/// [`ProcessError::PermissionDenied`], or [`ProcessError::Elf`] if the file cannot be parsed.
pub fn open_located(pid: u32, place: &Place) -> Result<LibraryFile, ProcessError> {
    let file = match place.open() {
        Ok(file) => file,
        Err(OpenError::Open { path, source })
            if matches!(
                Errno::from_io_error(&source),
                Some(Errno::ACCESS | Errno::PERM)
            ) =>
        {
            let what = path.display().to_string();
            return Err(ProcessError::PermissionDenied { pid, what });
        }
        Err(error) => return Err(ElfError::from(error).into()),
    };
    Ok(LibraryFile::from_file(file)?)
}

/// Whether the target of a link in `map_files` has the path shown in the maps.
fn is_printed(place: &Place, mapped: &MappedFile) -> bool {
    let Ok(target) = place.link() else {
        return false;
    };
    // The same kernel function prints both, except that newlines are escaped in the maps.
    let printed = mapped.code.printed();
    target.as_os_str().as_bytes() == printed || (!mapped.deleted && target == mapped.path)
}

fn is_inode(place: &Place, mapped: &MappedFile) -> bool {
    let of = |state: FileState| (state.device, state.inode);
    place
        .state()
        .is_ok_and(|state| of(state) == (mapped.device, mapped.inode))
}

fn is_build(place: &Place, pid: u32, mapped: &MappedFile) -> Result<bool, OpenError> {
    let file = place.open()?;
    let build_id = ElfInfo::from_file(&file).ok().and_then(|elf| elf.build_id);
    Ok(build_id.is_some() && build_id == mapped.build_id(pid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::maps;

    /// The C library of this process.
    fn libc(pid: u32) -> MappedFile {
        let mappings = maps::of_process(pid).unwrap();
        let is_libc = |path: &Path| {
            path.file_name()
                .is_some_and(|name| name.as_bytes().starts_with(b"libc.so"))
        };
        code_files(&mappings, is_libc).pop().unwrap()
    }

    #[test]
    fn other_ways_to_a_file_are_checked() {
        let pid = std::process::id();
        let mut mapped = libc(pid);
        let whole = open_mapped(pid, &mapped).unwrap();
        assert_eq!(whole.inode(), mapped.inode);

        // Without `map_files`: found by path, accepted because of its inode.
        mapped.code.start = 0;
        assert_eq!(open_mapped(pid, &mapped).unwrap().inode(), whole.inode());
        // On an overlay or btrfs: other numbers, but the same build id in memory.
        mapped.inode += 1;
        assert!(whole.elf().build_id.is_some());
        assert_eq!(mapped.build_id(pid), whole.elf().build_id);
        assert_eq!(open_mapped(pid, &mapped).unwrap().inode(), whole.inode());
        // Nothing confirms that the file at the path is the mapped one.
        mapped.header = None;
        // Without privileges the error is another one: `map_files` might have led to the file.
        let error = open_mapped(pid, &mapped).unwrap_err();
        assert!(matches!(
            error,
            ProcessError::LibraryReplaced { .. } | ProcessError::PermissionDenied { .. }
        ));
    }

    #[test]
    fn a_file_is_listed_once() {
        let line = |line: &str| Mapping::parse(line.as_bytes()).unwrap();
        let mappings = [
            line("1000-2000 r--p 00000000 00:01 9 /lib/x"),
            line("2000-3000 r-xp 00001000 00:01 9 /lib/x"),
            line("3000-4000 r-xp 00002000 00:01 9 /lib/x"),
            line("4000-5000 r--p 00000000 00:01 8 /lib/data"),
        ];
        let files = code_files(&mappings, |_| true);
        assert_eq!(files.len(), 1);
        assert_eq!(files[0].header, Some((0x1000, 0x1000)));
        assert_eq!(file_at(&mappings, 0x1800).as_ref(), files.first());
        assert_eq!(file_at(&mappings, 0x4000), None, "no code in it");
        assert_eq!(file_at(&mappings, 0x9000), None);
    }
}
