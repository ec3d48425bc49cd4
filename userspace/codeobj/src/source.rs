//! From a URI to the bytes of a code object.
//!
//! The URI comes from the process and may name anything. Files are opened as the process sees them:
//! below its root directory, never outside, and only regular ones. If the process has mapped the
//! file, the opened file must be the mapped one, by device and inode: the path may lead to another
//! file by now.

use std::{
    io,
    os::unix::{ffi::OsStrExt, fs::FileExt},
    path::{Component, Path, PathBuf},
};

use gputrace_files::target::{self, OpenError, Place, RegularFile, Root};
use gputrace_tracee::process::maps::Mapping;

use crate::{
    memory::{Memory, MemoryError},
    uri::Range,
};

/// Maximum size of a code object, bytes. Libraries with many thousand kernels have some hundred MB.
pub const MAX_CODE_OBJECT: u64 = 1 << 30;

/// Why the bytes of a code object cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The file cannot be opened.
    #[error("cannot open {} as the process sees it: {source}", path.display())]
    Open {
        /// Path in the process.
        path: PathBuf,
        /// Error returned by the kernel.
        source: io::Error,
    },
    /// The path leads to a directory, device, pipe or socket.
    #[error("{} is not a regular file", path.display())]
    NotRegular {
        /// Path in the process.
        path: PathBuf,
    },
    /// The path leads to another file now.
    #[error("{} was replaced after the process mapped it", path.display())]
    Replaced {
        /// Path in the process.
        path: PathBuf,
    },
    /// The path is relative and belongs to no mapped file.
    #[error("{} is a relative path, and no mapped file has it", path.display())]
    Relative {
        /// The path.
        path: PathBuf,
    },
    /// Reading failed.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Path in the process.
        path: PathBuf,
        /// Error returned by the kernel.
        source: io::Error,
    },
    /// The file ends before the code object does.
    #[error("{} ends before the code object in it does", path.display())]
    Short {
        /// Path in the process.
        path: PathBuf,
    },
    /// The code object is unreasonably large.
    #[error("a code object of {size} bytes is larger than the limit of {MAX_CODE_OBJECT}")]
    TooLarge {
        /// Claimed size, bytes.
        size: u64,
    },
    /// Memory cannot be read.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

impl From<OpenError> for SourceError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Open { path, source } => Self::Open { path, source },
            OpenError::NotRegular { path, .. } => Self::NotRegular { path },
            OpenError::TooLarge { size, .. } => Self::TooLarge { size },
            other => Self::Open {
                path: PathBuf::new(),
                source: io::Error::other(other),
            },
        }
    }
}

/// Reads memory of the process.
pub(crate) fn memory(memory: &impl Memory, range: Range) -> Result<Vec<u8>, SourceError> {
    let Range { offset, size } = range;
    if size > MAX_CODE_OBJECT {
        return Err(SourceError::TooLarge { size });
    }
    Ok(memory.bytes(offset, size, MAX_CODE_OBJECT)?)
}

/// Identity and state of a part of a file. As long as it is unchanged, so are the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileState {
    file: target::FileState,
    range: Range,
}

/// An open file, and the wanted part of it.
pub(crate) struct FilePart<'a> {
    file: RegularFile,
    path: &'a Path,
    pub(crate) range: Range,
}

impl<'a> FilePart<'a> {
    /// Opens a file, or a part of it, as the process sees it. `mappings` are those of the process.
    pub(crate) fn open(
        pid: u32,
        path: &'a Path,
        range: Option<Range>,
        mappings: &[Mapping],
    ) -> Result<Self, SourceError> {
        let file = open(pid, path, mappings)?;
        let mut part = Self {
            file,
            path,
            range: Range { offset: 0, size: 0 },
        };
        part.range = match range {
            Some(range) => range,
            None => Range {
                offset: 0,
                size: part.state()?.file.size,
            },
        };
        if part.range.size > MAX_CODE_OBJECT {
            return Err(SourceError::TooLarge {
                size: part.range.size,
            });
        }
        Ok(part)
    }

    pub(crate) fn state(&self) -> Result<FileState, SourceError> {
        Ok(FileState {
            file: self.file.state().map_err(|source| self.failed(source))?,
            range: self.range,
        })
    }

    /// Reads the bytes. Memory is allocated as they arrive, because the range may be wrong.
    pub(crate) fn read(&self) -> Result<Vec<u8>, SourceError> {
        const PIECE: usize = 1 << 20;
        let Range { offset, size } = self.range;
        let length = usize::try_from(size).map_err(|_| SourceError::TooLarge { size })?;
        let mut bytes = Vec::new();
        while bytes.len() < length {
            let done = bytes.len();
            bytes.resize(length.min(done + PIECE), 0);
            let piece = bytes.get_mut(done..).unwrap_or_default();
            self.file
                .file()
                .read_exact_at(piece, offset.saturating_add(done as u64))
                .map_err(|source| self.failed(source))?;
        }
        Ok(bytes)
    }

    fn failed(&self, source: io::Error) -> SourceError {
        let path = self.path.to_owned();
        match source.kind() {
            io::ErrorKind::UnexpectedEof => SourceError::Short { path },
            _ => SourceError::Read { path, source },
        }
    }
}

/// Opens the file with this path in the process.
fn open(pid: u32, path: &Path, mappings: &[Mapping]) -> Result<RegularFile, SourceError> {
    let mapped = mappings.iter().find(|mapping| is_path_of(path, mapping));
    let Some(mapped) = mapped else {
        if !path.is_absolute() {
            return Err(SourceError::Relative {
                path: path.to_owned(),
            });
        }
        return open_inside(pid, path);
    };
    // The link leads to the mapped file itself, even if that was replaced, deleted or hidden.
    // Following it takes privileges (CAP_CHECKPOINT_RESTORE), and the mapping may be gone by now.
    let is_printed = |place: &Place| {
        let target = place.link();
        target.is_ok_and(|target| target.as_os_str().as_bytes() == mapped.printed())
    };
    if let Ok(place) = Place::of_mapping(pid, &mapped.range(), path)
        && (is_inode(&place, mapped) || is_printed(&place))
        && let Ok(file) = place.open()
    {
        return Ok(file);
    }
    let inside = mapped.path();
    let root = Root::of_process(pid).map_err(|source| SourceError::Open {
        path: inside.clone(),
        source,
    })?;
    let place = root.locate(&inside)?;
    if is_inode(&place, mapped) {
        return Ok(place.open()?);
    }
    Err(SourceError::Replaced { path: inside })
}

/// Whether a URI's path means the file of a mapping. The runtime takes the path from the kernel's
/// list of mappings or from the dynamic linker, which may know a library by a relative path.
fn is_path_of(path: &Path, mapping: &Mapping) -> bool {
    let printed = mapping.path();
    if path.is_absolute() {
        // In the list of mappings, the path of a deleted file has the kernel's suffix.
        return printed == path || path.as_os_str().as_bytes() == mapping.printed();
    }
    let relative: PathBuf = path
        .components()
        .filter(|part| matches!(part, Component::Normal(_)))
        .collect();
    !relative.as_os_str().is_empty() && printed.ends_with(&relative)
}

fn is_inode(place: &Place, mapped: &Mapping) -> bool {
    place
        .state()
        .is_ok_and(|state| (state.device, state.inode) == (mapped.device, mapped.inode))
}

/// Opens an absolute path below the root directory of the process. Symbolic links are followed as
/// the process would, and cannot lead outside.
fn open_inside(pid: u32, path: &Path) -> Result<RegularFile, SourceError> {
    let root = Root::of_process(pid).map_err(|source| SourceError::Open {
        path: path.to_owned(),
        source,
    })?;
    Ok(root.open(path)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gputrace_tracee::process::maps;
    use rustix::{
        fs::{CWD, FileType, Mode},
        mm::{MapFlags, ProtFlags},
    };
    use std::{ffi::c_void, fs::File, os::unix::fs::symlink};

    fn read(
        path: &Path,
        range: Option<Range>,
        mappings: &[Mapping],
    ) -> Result<Vec<u8>, SourceError> {
        FilePart::open(std::process::id(), path, range, mappings)?.read()
    }

    #[test]
    fn files_and_parts_of_them() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a b");
        std::fs::write(&file, "0123456789").unwrap();
        let part = |offset, size| read(&file, Some(Range { offset, size }), &[]);
        assert_eq!(read(&file, None, &[]).unwrap(), b"0123456789");
        assert_eq!(part(3, 4).unwrap(), b"3456");
        assert!(matches!(part(8, 3), Err(SourceError::Short { .. })));
        assert!(part(u64::MAX - 1, 1).is_err());
        assert!(matches!(
            part(0, MAX_CODE_OBJECT + 1),
            Err(SourceError::TooLarge { .. })
        ));
        let link = directory.path().join("link");
        symlink(&file, &link).unwrap();
        assert_eq!(read(&link, None, &[]).unwrap(), b"0123456789");
    }

    #[test]
    fn only_regular_files() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).unwrap();
        for path in [&pipe, directory.path(), Path::new("/dev/zero")] {
            assert!(matches!(
                read(path, None, &[]),
                Err(SourceError::NotRegular { .. })
            ));
        }
        // Paths that lead out of the file system as the process sees it.
        for path in ["/proc/self/exe", "/proc/self/root/etc/passwd", "/nowhere"] {
            let refused = read(Path::new(path), None, &[]);
            assert!(matches!(refused, Err(SourceError::Open { .. })), "{path}");
        }
        assert!(matches!(
            read(Path::new("some/file"), None, &[]),
            Err(SourceError::Relative { .. })
        ));
    }

    /// A file that this process has mapped as long as this exists.
    struct Mapped(*mut c_void);

    impl Mapped {
        fn new(file: &Path) -> Self {
            let file = File::open(file).unwrap();
            let (protection, flags) = (ProtFlags::READ, MapFlags::PRIVATE);
            // SAFETY: a new mapping at an address that the kernel chooses; it is never read.
            let at = unsafe {
                rustix::mm::mmap(std::ptr::null_mut(), 4096, protection, flags, &file, 0)
            };
            Self(at.unwrap())
        }
    }

    impl Drop for Mapped {
        fn drop(&mut self) {
            // SAFETY: our own mapping, which nothing refers to.
            unsafe { rustix::mm::munmap(self.0, 4096) }.unwrap();
        }
    }

    #[test]
    fn mapped_files_are_those_that_were_mapped() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("mapped");
        std::fs::write(&file, "old").unwrap();
        let mapped = Mapped::new(&file);
        let mappings = || maps::of_process(std::process::id()).unwrap();
        assert_eq!(read(&file, None, &mappings()).unwrap(), b"old");
        let parent = directory.path().file_name().unwrap();
        let relative = Path::new("..").join(parent).join("mapped");
        assert_eq!(read(&relative, None, &mappings()).unwrap(), b"old");

        // The file was replaced and deleted. Without privileges it cannot be reached; in no case is
        // another file opened.
        let newer = directory.path().join("newer");
        std::fs::write(&newer, "new").unwrap();
        std::fs::rename(&newer, &file).unwrap();
        for _ in 0..2 {
            match read(&file, None, &mappings()) {
                Ok(bytes) => assert_eq!(bytes, b"old"),
                Err(error) => assert!(
                    matches!(
                        error,
                        SourceError::Replaced { .. } | SourceError::Open { .. }
                    ),
                    "{error}"
                ),
            }
            // The second time, there is no file with that name.
            let _ = std::fs::remove_file(&file);
        }
        drop(mapped);
    }
}
