//! Output directories, in which files appear either complete or not at all.
//!
//! gputrace usually runs as root on behalf of another user and writes into directories that this
//! user (or, in `/tmp`, anybody) can change meanwhile. So:
//!
//! * The directory is opened once; every later step is relative to that descriptor.
//! * A file is created under a temporary name with `O_CREAT | O_EXCL | O_NOFOLLOW`, given to its
//!   [`FileOwner`], and renamed at the end. A symbolic link planted under the final name is
//!   replaced, never followed.
//! * Files are readable only by their owner (mode 0600), and newly created directories have mode
//!   0700, whatever the umask: outputs contain command lines, paths and strings of traced programs,
//!   which may belong to other users. Existing directories keep their mode. [`OutputDir::public`]
//!   is for files without data about programs.
//! * An unfinished file is removed when its handle is dropped.
//!
//! ```no_run
//! # fn main() -> Result<(), gputrace_export::OutputError> {
//! use std::io::Write;
//! use gputrace_export::{FileOwner, OutputDir};
//!
//! let directory = OutputDir::open("traces".as_ref(), Some(FileOwner { uid: 1000, gid: 1000 }))?;
//! let mut file = directory.file("app_hip_api_trace.csv")?;
//! file.write_all(b"...")?;
//! let output = file.finish("HIP API calls")?;
//! # Ok(()) }
//! ```

#![expect(
    clippy::disallowed_methods,
    reason = "the way to make outputs that everybody else is to use: relative to an open directory, through no link"
)]

use std::{
    fs::File,
    io::{self, BufWriter, Read as _, Write},
    os::fd::OwnedFd,
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use gputrace_text::terminal;
use rustix::{
    fs::{AtFlags, Gid, Mode, OFlags, Uid},
    io::Errno,
};

use crate::exporter::Output;

mod staging;
mod unfinished;

pub use staging::Staging;
use unfinished::Temporary;
pub use unfinished::abandon;

/// Size of the write buffer in bytes.
const BUFFER: usize = 256 << 10;

/// Number of names tried for a temporary file.
const ATTEMPTS: u32 = 64;

/// Modes of files and directories that only their owner may access.
const PRIVATE_FILE: Mode = Mode::from_raw_mode(0o600);
const PRIVATE_DIRECTORY: Mode = Mode::from_raw_mode(0o700);

/// Mode of files without data about programs, subject to the umask.
const PUBLIC_FILE: Mode = Mode::from_raw_mode(0o666);

/// Owner of the outputs: the user behind `sudo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileOwner {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// What to do if a file of the same name exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Keep it, and fail.
    Keep,
    /// Replace it.
    Replace,
}

/// Why a file or directory could not be created or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutputError {
    /// No space, or the quota is used up.
    #[error(
        "no space left for {path}: {source}. The unfinished file was removed. Free some space or \
         choose another directory; captures are untouched, and outputs can be made of them again",
        path = path.display()
    )]
    Full {
        /// File that was being written.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The directory or file system may not be written to.
    #[error(
        "{path} cannot be written: {source}. Choose a writable directory with -d or -o",
        path = path.display()
    )]
    Denied {
        /// File or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file of that name exists and is to be kept.
    #[error(
        "{path} already exists and is not overwritten. Choose another name with -o, or add --force \
         to replace it",
        path = path.display()
    )]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The file of that name is a capture, which is all that there is of a recording.
    #[error(
        "{path} is a capture, and captures are not replaced by outputs. Choose another name with -o", path = path.display()
    )]
    Capture {
        /// The capture.
        path: PathBuf,
    },
    /// A name that is not a plain file name.
    #[error(
        "{name:?} cannot be the beginning of a file name: give -o a name that is not empty, '.' or \
         '..' and does not end in '/', and give -d a directory"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// Standard output cannot be written.
    #[error("standard output cannot be written: {source}")]
    Stdout {
        /// The system's error.
        source: io::Error,
    },
    /// Any other I/O error.
    #[error("cannot {action} {path}: {source}", path = path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// File or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl OutputError {
    fn new(action: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        let (path, source) = (path.to_owned(), source.into());
        match source.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => Self::Full { path, source },
            Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) => Self::Denied { path, source },
            _ => Self::Io {
                action,
                path,
                source,
            },
        }
    }

    /// The error of writing a file called `path` where there is a directory.
    #[must_use]
    pub fn directory(path: &Path) -> Self {
        Self::new("write", path, Errno::ISDIR)
    }

    /// Whether the reader of standard output has gone away.
    #[must_use]
    pub fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Stdout { source } if terminal::is_unread(source, &terminal::stdout()))
    }
}

/// The typed error, wrapped so that it passes through encoders that only know [`io::Error`].
impl From<OutputError> for io::Error {
    fn from(error: OutputError) -> Self {
        let kind = match &error {
            OutputError::Full { source, .. }
            | OutputError::Denied { source, .. }
            | OutputError::Stdout { source }
            | OutputError::Io { source, .. } => source.kind(),
            OutputError::Exists { .. } | OutputError::Capture { .. } => {
                io::ErrorKind::AlreadyExists
            }
            OutputError::Name { .. } => io::ErrorKind::InvalidInput,
        };
        Self::new(kind, error)
    }
}

/// Recovers the typed error that [`OutputFile`] wraps.
impl From<io::Error> for OutputError {
    fn from(error: io::Error) -> Self {
        match error.downcast::<Self>() {
            Ok(typed) => typed,
            Err(source) => Self::new("write", Path::new("the output"), source),
        }
    }
}

/// An open directory for outputs. Clones refer to the same directory.
#[derive(Clone, Debug)]
pub struct OutputDir {
    descriptor: Arc<OwnedFd>,
    path: PathBuf,
    owner: Option<FileOwner>,
    /// Mode of its files.
    mode: Mode,
}

impl OutputDir {
    /// Opens `path`, creating it and missing parents. Directories created here, and all files
    /// created later, belong to `owner` if given.
    ///
    /// # Errors
    /// [`OutputError`] if a directory cannot be created, opened or given to its owner.
    pub fn open(path: &Path, owner: Option<FileOwner>) -> Result<Self, OutputError> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY;
        let start = if path.is_absolute() { "/" } else { "." };
        let mut so_far = PathBuf::new();
        let mut descriptor = rustix::fs::open(start, flags, Mode::empty())
            .map_err(|error| OutputError::new("open", Path::new(start), error))?;
        for component in path.components() {
            so_far.push(component);
            if matches!(
                component,
                Component::RootDir | Component::CurDir | Component::Prefix(_)
            ) {
                continue;
            }
            let name = component.as_os_str();
            let made = match rustix::fs::mkdirat(&descriptor, name, PRIVATE_DIRECTORY) {
                Ok(()) => true,
                Err(Errno::EXIST) => false,
                // The directory may exist although it may not be created (read-only file system, no
                // permission).
                Err(error) => match rustix::fs::openat(&descriptor, name, flags, Mode::empty()) {
                    Ok(_) => false,
                    Err(_) => return Err(OutputError::new("create directory", &so_far, error)),
                },
            };
            // A directory that was just created cannot be a link, unless someone has swapped it
            // since.
            let flags = if made {
                flags | OFlags::NOFOLLOW
            } else {
                flags
            };
            descriptor = rustix::fs::openat(&descriptor, name, flags, Mode::empty())
                .map_err(|error| OutputError::new("open directory", &so_far, error))?;
            if made {
                give(&descriptor, owner)
                    .map_err(|error| OutputError::new("change the owner of", &so_far, error))?;
            }
        }
        Ok(Self {
            descriptor: Arc::new(descriptor),
            path: path.to_owned(),
            owner,
            mode: PRIVATE_FILE,
        })
    }

    /// The same directory, for files that anybody may read whom the umask allows to.
    #[must_use]
    pub fn public(self) -> Self {
        Self {
            mode: PUBLIC_FILE,
            ..self
        }
    }

    /// Path of the directory as given.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Starts a file that will be called `name` once it is complete.
    ///
    /// # Errors
    /// [`OutputError`] if `name` is not a plain file name or the file cannot be created.
    pub fn file(&self, name: &str) -> Result<OutputFile, OutputError> {
        let path = self.path.join(name);
        if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
            return Err(OutputError::Name {
                name: name.to_owned(),
            });
        }
        let (descriptor, temporary) = Temporary::file(&self.descriptor, name, self.mode)
            .map_err(|error| OutputError::new("create", &path, error))?;
        let file = OutputFile {
            writer: BufWriter::with_capacity(BUFFER, File::from(descriptor)),
            temporary: Some(temporary),
            name: name.to_owned(),
            path,
        };
        give(file.writer.get_ref(), self.owner)
            .map_err(|error| OutputError::new("change the owner of", &file.path, error))?;
        Ok(file)
    }

    /// Creates an empty file `name` that is visible at once, for data that must survive a kill: the
    /// capture. A symbolic link is not followed.
    ///
    /// # Errors
    /// As [`OutputDir::file`]; [`OutputError::Exists`] if `name` exists and is to be kept.
    pub fn file_in_place(&self, name: &str, existing: Existing) -> Result<File, OutputError> {
        if existing == Existing::Keep {
            self.must_not_have(name)?;
        }
        let mut file = self.file(name)?;
        let handle = file
            .writer
            .get_ref()
            .try_clone()
            .map_err(|error| OutputError::new("open", &file.path, error))?;
        file.publish()?;
        Ok(handle)
    }

    /// Checks that there is no file, link or directory called `name`.
    ///
    /// # Errors
    /// [`OutputError::Exists`] if there is.
    pub fn must_not_have(&self, name: &str) -> Result<(), OutputError> {
        let path = self.path.join(name);
        match rustix::fs::statat(&*self.descriptor, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Err(OutputError::Exists { path }),
            Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(OutputError::new("look for", &path, error)),
        }
    }

    /// At most the first `most` bytes of the file called `name`; `None` if there is no readable
    /// file. Links are not followed.
    #[must_use]
    pub fn head(&self, name: &str, most: u64) -> Option<Vec<u8>> {
        // Non-blocking, so that opening a FIFO does not wait.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&*self.descriptor, name, flags, Mode::empty()).ok()?;
        let file = File::from(file);
        if !file.metadata().ok()?.is_file() {
            return None;
        }
        let mut head = Vec::new();
        file.take(most).read_to_end(&mut head).ok()?;
        Some(head)
    }

    /// Removes the file or link called `name`, if there is one.
    ///
    /// # Errors
    /// [`OutputError`] if it is neither, or cannot be removed.
    pub fn remove(&self, name: &str) -> Result<(), OutputError> {
        match rustix::fs::unlinkat(&*self.descriptor, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(OutputError::new("remove", &self.path.join(name), error)),
        }
    }

    /// Removes the directory called `name`, if it exists, and those of its files whose names end in
    /// one of `endings`. The directory stays if it contains anything else. A link called `name` is
    /// removed, not followed.
    ///
    /// # Errors
    /// [`OutputError`] if something cannot be removed.
    pub fn remove_directory(&self, name: &str, endings: &[&str]) -> Result<(), OutputError> {
        let failed = |error| OutputError::new("remove", &self.path.join(name), error);
        let directory = match staging::open(&*self.descriptor, name) {
            Ok(directory) => directory,
            Err(Errno::NOENT) => return Ok(()),
            Err(Errno::NOTDIR | Errno::LOOP) => return self.remove(name),
            Err(error) => return Err(failed(error)),
        };
        staging::remove_files(&directory, endings).map_err(failed)?;
        match rustix::fs::unlinkat(&*self.descriptor, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
            Err(error) => Err(failed(error)),
        }
    }

    /// A nameless file for data that an output needs only while it is being made. It takes space in
    /// the directory until it is closed.
    ///
    /// # Errors
    /// [`OutputError`] if it cannot be created.
    pub fn scratch(&self) -> Result<File, OutputError> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let nameless = rustix::fs::openat(&*self.descriptor, ".", flags, PRIVATE_FILE);
        let descriptor = nameless.or_else(|_| -> Result<OwnedFd, Errno> {
            // Not every file system supports nameless files; a file that is unlinked at once is
            // equivalent.
            Temporary::file(&self.descriptor, "scratch", PRIVATE_FILE)
                .map(|(descriptor, _)| descriptor)
        });
        descriptor
            .map(File::from)
            .map_err(|error| OutputError::new("create a temporary file in", &self.path, error))
    }

    /// A private directory in which a library writes an output called `name` by itself.
    ///
    /// # Errors
    /// [`OutputError`] if `name` is not a plain file name or the directory cannot be created.
    pub fn staging(&self, name: &str) -> Result<Staging, OutputError> {
        Staging::new(self, name)
    }
}

fn give(descriptor: impl std::os::fd::AsFd, owner: Option<FileOwner>) -> Result<(), Errno> {
    match owner {
        Some(FileOwner { uid, gid }) => rustix::fs::fchown(
            descriptor,
            Some(Uid::from_raw(uid)),
            Some(Gid::from_raw(gid)),
        ),
        None => Ok(()),
    }
}

/// A file being written. Buffered; errors of its [`Write`] carry an [`OutputError`], which
/// `OutputError::from(io_error)` recovers. It is removed if dropped without [`OutputFile::finish`].
#[derive(Debug)]
pub struct OutputFile {
    writer: BufWriter<File>,
    temporary: Option<Temporary>,
    name: String,
    path: PathBuf,
}

impl OutputFile {
    /// The final path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A second handle of the file, for a writer that seeks. Must not be mixed with writes through
    /// [`Write`].
    ///
    /// # Errors
    /// [`OutputError`] if the process has too many open files.
    pub fn handle(&self) -> Result<File, OutputError> {
        let file = self.writer.get_ref();
        file.try_clone()
            .map_err(|error| OutputError::new("open", &self.path, error))
    }

    /// Converts the error of a writer that uses [`OutputFile::handle`], adding the file's name.
    #[must_use]
    pub fn error(&self, source: io::Error) -> OutputError {
        OutputError::new("write", &self.path, source)
    }

    /// Writes what is buffered and gives the file its final name. `content` is a human-readable
    /// description.
    ///
    /// # Errors
    /// [`OutputError`] if writing or renaming fails; the file is then removed.
    pub fn finish(mut self, content: &str) -> Result<Output, OutputError> {
        self.flush()?;
        let size = self.writer.get_ref().metadata();
        let bytes = size.map_err(|error| self.error(error))?.len();
        self.publish()?;
        Ok(Output {
            path: self.path.clone(),
            bytes,
            content: content.to_owned(),
        })
    }

    fn publish(&mut self) -> Result<(), OutputError> {
        match self.temporary.take() {
            Some(temporary) => temporary
                .publish(&self.name, &self.path)
                .map_err(|error| OutputError::new("create", &self.path, error)),
            None => Ok(()),
        }
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.writer.write(bytes) {
            Ok(count) => Ok(count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(error),
            Err(error) => Err(OutputError::new("write", &self.path, error).into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer
            .flush()
            .map_err(|error| OutputError::new("write", &self.path, error).into())
    }
}
