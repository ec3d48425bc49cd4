//! Files that a program can influence: its libraries, its executable, and the files they refer to.
//!
//! Opening alone can have effects: a device acts, a pipe blocks, reading a file of the kernel
//! consumes its contents. So a file is located first (`O_PATH`, which has no effect on it), then
//! examined, and opened only if it is a regular file of a real file system and of reasonable size.
//! The opened file is the examined one, because it is named by the descriptor (`/proc/self/fd/N`);
//! there is no other way to get a [`RegularFile`].
//!
//! Paths of a program are resolved below a [`Root`] as the program would resolve them, and never
//! outside: symbolic links to `/` lead to the root, and links of `/proc` that would mean gputrace's
//! own files are not followed.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read as _},
    os::{
        fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
        unix::ffi::OsStringExt as _,
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{CWD, Dir, FileType, FsWord, Mode, OFlags, ResolveFlags, fstat, fstatfs},
    io::Errno,
};

/// Maximum size of a file that is opened, bytes. The largest libraries with debug information have
/// some ten thousand million. A larger file is no library but may look like one: a sparse file
/// costs its owner nothing.
pub const MAX_FILE: u64 = 32 << 30;

/// Maximum number of attempts. The kernel may request another one while a directory on the path is
/// renamed (`openat2(2)`, `EAGAIN`); a hostile user could rename directories endlessly.
const TRIES: usize = 16;

/// Why a file of a program was not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The file does not exist, or may not be opened.
    #[error("cannot open {}: {source}", path.display())]
    Open {
        /// Path of the file.
        path: PathBuf,
        /// Error returned by the kernel.
        source: io::Error,
    },
    /// The path leads to a directory, device, pipe, socket, or a virtual file of the kernel.
    #[error("{} is {what} and not a regular file, so it was not opened", path.display())]
    NotRegular {
        /// Path of the file.
        path: PathBuf,
        /// Type of the file, with an article.
        what: &'static str,
    },
    /// The file is larger than [`MAX_FILE`].
    #[error("{} has {size} bytes, more than {MAX_FILE}, so it was not opened", path.display())]
    TooLarge {
        /// Path of the file.
        path: PathBuf,
        /// Size, bytes.
        size: u64,
    },
}

impl OpenError {
    fn open(path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Open {
            path: path.to_owned(),
            source: source.into(),
        }
    }
}

/// Identity and state of a file. As long as it is unchanged, so are the bytes: the owner of a file
/// can set any modification time, but not the time of the last status change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileState {
    /// `st_dev`.
    pub device: u64,
    /// `st_ino`.
    pub inode: u64,
    /// Size, bytes.
    pub size: u64,
    /// `st_mtim`: seconds, nanoseconds.
    pub modified: (i64, u64),
    /// `st_ctim`: seconds, nanoseconds.
    pub changed: (i64, u64),
}

/// Root directory of a program's file system.
#[derive(Debug)]
pub struct Root(OwnedFd);

impl Root {
    /// Uses this directory as the root. The path is gputrace's own, and all links in it are
    /// followed.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn at(directory: &Path) -> io::Result<Self> {
        Ok(Self(path_only(directory, OFlags::DIRECTORY)?))
    }

    /// The root directory of a process, in its mount namespace.
    ///
    /// # Errors
    ///
    /// The kernel's error: `NotFound` if the process is gone, `PermissionDenied` if it may not be
    /// inspected.
    pub fn of_process(pid: u32) -> io::Result<Self> {
        Self::at(Path::new(&format!("/proc/{pid}/root")))
    }

    /// gputrace's own root directory.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn own() -> io::Result<Self> {
        Self::at(Path::new("/"))
    }

    /// Locates the file that a path leads to. A relative path begins at the root.
    ///
    /// # Errors
    ///
    /// [`OpenError::Open`].
    pub fn locate(&self, path: &Path) -> Result<Place, OpenError> {
        let descriptor = self
            .resolve(path, OFlags::empty())
            .map_err(|errno| OpenError::open(path, errno))?;
        Ok(Place {
            descriptor,
            path: path.to_owned(),
        })
    }

    /// Opens a regular file.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(&self, path: &Path) -> Result<RegularFile, OpenError> {
        self.locate(path)?.open()
    }

    /// The first `most` names in a directory, sorted, so that the result does not depend on the
    /// file system.
    ///
    /// # Errors
    ///
    /// The kernel's error, or `Unsupported` for a directory of the kernel.
    pub fn list(&self, directory: &Path, most: usize) -> io::Result<Vec<OsString>> {
        let place = self.resolve(directory, OFlags::DIRECTORY)?;
        if is_of_kernel(&place)? {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let entries = Dir::new(reopen(&place, OFlags::DIRECTORY)?)?;
        let names = entries
            .map_while(Result::ok)
            .map(|entry| entry.file_name().to_bytes().to_vec());
        let is_other = |name: &Vec<u8>| !matches!(name.as_slice(), b"." | b"..");
        let mut names: Vec<_> = names
            .filter(is_other)
            .take(most)
            .map(OsString::from_vec)
            .collect();
        names.sort();
        Ok(names)
    }

    /// Path of the root directory as gputrace sees it.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn link(&self) -> io::Result<PathBuf> {
        link(&self.0)
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the way to locate files of programs that everybody else is to use"
    )]
    fn resolve(&self, path: &Path, kind: OFlags) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::CLOEXEC | kind;
        let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let mut outcome = Err(Errno::AGAIN);
        for _ in 0..TRIES {
            outcome = rustix::fs::openat2(&self.0, path, flags, Mode::empty(), within);
            if !matches!(outcome, Err(Errno::AGAIN | Errno::INTR)) {
                break;
            }
        }
        outcome
    }
}

/// A file that was located and not opened.
#[derive(Debug)]
pub struct Place {
    descriptor: OwnedFd,
    /// Path for people.
    path: PathBuf,
}

impl Place {
    /// Locates the file that a path leads to. The path must be gputrace's own or its user's: every
    /// link is followed, including those of `/proc/PID` to files that a process has open. The file
    /// itself may belong to anybody.
    ///
    /// # Errors
    ///
    /// [`OpenError::Open`].
    pub fn at(path: &Path) -> Result<Self, OpenError> {
        let descriptor =
            path_only(path, OFlags::empty()).map_err(|errno| OpenError::open(path, errno))?;
        Ok(Self {
            descriptor,
            path: path.to_owned(),
        })
    }

    /// Locates the program that a process executes.
    ///
    /// # Errors
    ///
    /// [`OpenError::Open`].
    pub fn of_executable(pid: u32) -> Result<Self, OpenError> {
        Self::at(Path::new(&format!("/proc/{pid}/exe")))
    }

    /// Locates the file of one of a process's mappings, whatever its path leads to by now. `range`
    /// is the mapping's, as in `/proc/PID/map_files`; `shown` is the file's path for people.
    ///
    /// # Errors
    ///
    /// [`OpenError::Open`]: the mapping no longer exists, or privileges (`CAP_CHECKPOINT_RESTORE`)
    /// are missing.
    pub fn of_mapping(pid: u32, range: &str, shown: &Path) -> Result<Self, OpenError> {
        let link = PathBuf::from(format!("/proc/{pid}/map_files/{range}"));
        let descriptor =
            path_only(&link, OFlags::empty()).map_err(|errno| OpenError::open(&link, errno))?;
        Ok(Self {
            descriptor,
            path: shown.to_owned(),
        })
    }

    /// The same file with another path for people.
    #[must_use]
    pub fn shown_as(self, path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            ..self
        }
    }

    /// Path for people.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Path as the kernel prints it for gputrace: as in `/proc/PID/maps`, but without escapes.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn link(&self) -> io::Result<PathBuf> {
        link(&self.descriptor)
    }

    /// Identity and state of the file.
    ///
    /// # Errors
    ///
    /// [`OpenError::Open`].
    pub fn state(&self) -> Result<FileState, OpenError> {
        state(&self.descriptor).map_err(|errno| OpenError::open(&self.path, errno))
    }

    /// Whether it is a regular file according to its type.
    #[must_use]
    pub fn is_regular(&self) -> bool {
        fstat(&self.descriptor)
            .is_ok_and(|status| FileType::from_raw_mode(status.st_mode).is_file())
    }

    /// Opens the file for reading, if it is a regular file.
    ///
    /// # Errors
    ///
    /// [`OpenError`].
    pub fn open(&self) -> Result<RegularFile, OpenError> {
        let Self { descriptor, path } = self;
        let path = path.clone();
        let failed = |errno: Errno| OpenError::open(&path, errno);
        let status = fstat(descriptor).map_err(failed)?;
        let what = match FileType::from_raw_mode(status.st_mode) {
            FileType::RegularFile if is_of_kernel(descriptor).map_err(failed)? => {
                Some("a file of the kernel")
            }
            FileType::RegularFile => None,
            FileType::Directory => Some("a directory"),
            FileType::CharacterDevice | FileType::BlockDevice => Some("a device"),
            FileType::Fifo => Some("a pipe"),
            FileType::Socket => Some("a socket"),
            FileType::Symlink | FileType::Unknown => Some("something else"),
        };
        if let Some(what) = what {
            return Err(OpenError::NotRegular { path, what });
        }
        let size = u64::try_from(status.st_size).unwrap_or(u64::MAX);
        if size > MAX_FILE {
            return Err(OpenError::TooLarge { path, size });
        }
        // Non-blocking, because opening would otherwise wait for the holder of a lease on the file
        // to give it up.
        let file = reopen(descriptor, OFlags::NONBLOCK).map_err(failed)?;
        Ok(RegularFile {
            file: file.into(),
            path,
        })
    }
}

impl AsFd for Place {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// A regular file, open for reading.
#[derive(Debug)]
pub struct RegularFile {
    file: File,
    /// Path for people.
    path: PathBuf,
}

impl RegularFile {
    /// Opens the file that a path leads to; see [`Place::at`].
    ///
    /// # Errors
    ///
    /// [`OpenError`].
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        Place::at(path)?.open()
    }

    /// Path for people.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The open file.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Identity and current state of the file.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn state(&self) -> io::Result<FileState> {
        Ok(state(&self.file)?)
    }

    /// Reads `most` bytes from the beginning, or all if there are fewer.
    ///
    /// # Errors
    ///
    /// The kernel's error. An error after the first byte only ends the reading.
    pub fn read_start(&self, most: u64) -> io::Result<Vec<u8>> {
        use std::io::Seek as _;
        let mut file = &self.file;
        file.rewind()?;
        let mut bytes = Vec::new();
        match file.take(most).read_to_end(&mut bytes) {
            Err(error) if bytes.is_empty() => Err(error),
            _ => Ok(bytes),
        }
    }
}

impl AsFd for RegularFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the way to locate files of programs that everybody else is to use"
)]
fn path_only(path: &Path, kind: OFlags) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | kind;
    rustix::fs::openat(CWD, path, flags, Mode::empty())
}

/// Opens the file behind a descriptor for reading.
#[expect(
    clippy::disallowed_methods,
    reason = "the way to open files of programs that everybody else is to use"
)]
fn reopen(place: &OwnedFd, more: OFlags) -> Result<OwnedFd, Errno> {
    let link = format!("/proc/self/fd/{}", place.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | more;
    rustix::fs::openat(CWD, link, flags, Mode::empty())
}

#[expect(clippy::disallowed_methods, reason = "reading a link opens nothing")]
fn link(descriptor: &OwnedFd) -> io::Result<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", descriptor.as_raw_fd()))
}

fn state(descriptor: impl AsFd) -> Result<FileState, Errno> {
    let status = fstat(descriptor)?;
    Ok(FileState {
        device: status.st_dev,
        inode: status.st_ino,
        size: u64::try_from(status.st_size).unwrap_or(0),
        modified: (status.st_mtime, status.st_mtime_nsec),
        changed: (status.st_ctime, status.st_ctime_nsec),
    })
}

/// Virtual file systems of the kernel (`linux/magic.h`). Their regular files are no more harmless
/// than devices: reading `trace_pipe` takes events away from others, and reading a PCI device's
/// `config` can stop the device. No program maps a library from there.
const OF_KERNEL: [FsWord; 29] = [
    0x0000_9fa0, // proc
    0x6265_6572, // sysfs
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x7363_6673, // securityfs
    0x0027_e0eb, // cgroup
    0x6367_7270, // cgroup2
    0xcafe_4a11, // bpf
    0x6165_676c, // pstore
    0xde5e_81e4, // efivarfs
    0xf97c_ff8c, // selinuxfs
    0x4341_5d53, // smackfs
    0x5a3c_69f0, // apparmorfs
    0x6265_6570, // configfs
    0x1980_0202, // mqueue
    0x6e73_6673, // nsfs
    0x534f_434b, // sockfs
    0x5049_5045, // pipefs
    0x0904_1934, // anon_inodefs
    0x5049_4446, // pidfs
    0x0000_1cd1, // devpts
    0x4249_4e4d, // binfmt_misc
    0x6573_5543, // fusectl
    0x0765_5821, // resctrl
    0x444d_4142, // dma_buf
    0x5345_434d, // secretmem
    0x474d_454d, // guest_memfd
    0x6c6f_6f70, // binderfs
    0xabba_1974, // xenfs
];

fn is_of_kernel(descriptor: &OwnedFd) -> Result<bool, Errno> {
    Ok(OF_KERNEL.contains(&fstatfs(descriptor)?.f_type))
}

#[cfg(test)]
mod tests;
