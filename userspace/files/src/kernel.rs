//! Files of the kernel: `/proc`, `/sys`, tracing, device nodes of drivers.
//!
//! gputrace chooses their paths, but some entries of `/proc/PID` are links to files that the
//! process chose (`exe`, `cwd`, `root`, `fd/…`, `map_files/…`). The functions here never follow
//! such a link: [`crate::target`] is for that.
//!
//! The size of such a file is meaningless, and the parts that a process can write (its environment,
//! its command line) can be very long. So every read has a limit.

use std::{
    ffi::OsString,
    fs::{File, OpenOptions},
    io::{self, Read as _},
    os::unix::{ffi::OsStringExt as _, fs::OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{CWD, Dir, Mode, OFlags, ResolveFlags},
    io::Errno,
};

/// Maximum size of a file that [`read`] and [`read_text`] accept, bytes. The longest file that
/// gputrace reads is the list of the kernel's symbols, some ten million bytes.
pub const MAX_BYTES: u64 = 64 << 20;

/// Opens a file for reading.
///
/// # Errors
///
/// The kernel's error; `ELOOP` for a link to a file that a process chose.
pub fn open(path: impl AsRef<Path>) -> io::Result<File> {
    open_with(path.as_ref(), OFlags::RDONLY | OFlags::NOCTTY)
}

/// Opens a file for reading and writing.
///
/// # Errors
/// As [`open`].
pub fn open_writable(path: impl AsRef<Path>) -> io::Result<File> {
    open_with(path.as_ref(), OFlags::RDWR | OFlags::NOCTTY)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the way to open files of the kernel that everybody else is to use"
)]
fn open_with(path: &Path, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::CLOEXEC;
    // Links to files that a process chose exist only in /proc. Elsewhere libc's function is used,
    // which test equipment intercepts.
    if !path.starts_with("/proc") {
        let writes = flags.contains(OFlags::RDWR);
        let flags = flags.difference(OFlags::ACCMODE).bits().cast_signed();
        return OpenOptions::new()
            .read(true)
            .write(writes)
            .custom_flags(flags)
            .open(path);
    }
    let file =
        match rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS) {
            // Containers may refuse a system call that they do not know. The paths are gputrace's
            // own, so the check only guards against mistakes in gputrace, which show up where the
            // call is allowed.
            Err(Errno::NOSYS | Errno::PERM) => rustix::fs::open(path, flags, Mode::empty()),
            opened => opened,
        };
    Ok(file?.into())
}

/// Reads a whole file of at most [`MAX_BYTES`].
///
/// # Errors
/// As [`open`], or `FileTooLarge`.
pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let bytes = read_some(path, MAX_BYTES + 1)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(bytes)
}

/// Reads a whole text file of at most [`MAX_BYTES`]. Bytes that are not UTF-8 are replaced:
/// processes choose parts of such files, such as their names, and must not make the rest
/// unreadable.
///
/// # Errors
///
/// As [`read`].
pub fn read_text(path: impl AsRef<Path>) -> io::Result<String> {
    let text = String::from_utf8(read(path)?);
    Ok(text.unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// Reads the first `most` bytes of a file, or all if there are fewer.
///
/// # Errors
///
/// As [`open`]. An error after the first byte only ends the reading: the bytes before it are
/// returned.
pub fn read_some(path: impl AsRef<Path>, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match open(path)?.take(most).read_to_end(&mut bytes) {
        Err(error) if bytes.is_empty() => Err(error),
        _ => Ok(bytes),
    }
}

/// State of a process or thread: the letter in `/proc/ID/stat` (proc_pid_stat(5)), such as `R` for
/// one that runs or waits for a processor, and `T` for one that is stopped. `None` if there is none
/// with this id.
#[must_use]
pub fn state_of_task(id: u32) -> Option<u8> {
    let stat = read(format!("/proc/{id}/stat")).ok()?;
    // The name before it is in brackets, and may contain brackets itself.
    let close = stat.iter().rposition(|byte| *byte == b')')?;
    stat.get(close + 2).copied()
}

/// The names in a directory, in the kernel's order. Names that cannot be read are left out.
///
/// # Errors
///
/// As [`open`].
pub fn list(path: impl AsRef<Path>) -> io::Result<Vec<OsString>> {
    let entries = Dir::new(open_with(
        path.as_ref(),
        OFlags::RDONLY | OFlags::DIRECTORY,
    )?)?;
    let names = entries
        .flatten()
        .map(|entry| entry.file_name().to_bytes().to_vec());
    let is_other = |name: &Vec<u8>| !matches!(name.as_slice(), b"." | b"..");
    Ok(names.filter(is_other).map(OsString::from_vec).collect())
}

/// The target of a link, as text: nothing is opened or looked up.
///
/// # Errors
///
/// The kernel's error.
#[expect(clippy::disallowed_methods, reason = "reading a link opens nothing")]
pub fn read_link(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    std::fs::read_link(path)
}

/// Whether a file or directory with this path exists. A link to a file that a process chose is not
/// followed.
#[must_use]
pub fn exists(path: impl AsRef<Path>) -> bool {
    look_up(path.as_ref(), OFlags::empty())
}

/// Whether a directory with this path exists.
#[must_use]
pub fn is_directory(path: impl AsRef<Path>) -> bool {
    look_up(path.as_ref(), OFlags::DIRECTORY)
}

fn look_up(path: &Path, kind: OFlags) -> bool {
    open_with(path, OFlags::PATH | kind).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_link_to_what_a_process_chose_is_followed() {
        for path in [
            "/proc/self/exe",
            "/proc/self/fd/0",
            "/proc/self/root/etc/passwd",
        ] {
            assert_eq!(
                open(path).unwrap_err().raw_os_error(),
                Some(Errno::LOOP.raw_os_error())
            );
            assert!(!exists(path), "{path}");
        }
        // `/proc/self` is a link, too, but to a directory of the kernel.
        assert!(read_text("/proc/self/status").unwrap().starts_with("Name:"));
        assert_eq!(
            read_link("/proc/self/exe").unwrap(),
            std::env::current_exe().unwrap()
        );
        assert!(is_directory("/proc/self") && !is_directory("/proc/self/status"));
    }

    #[test]
    fn reads_are_bounded() {
        assert_eq!(read_some("/dev/zero", 100).unwrap(), [0; 100]);
        assert_eq!(
            read("/dev/zero").unwrap_err().kind(),
            io::ErrorKind::FileTooLarge
        );
        let names = list("/proc/self").unwrap();
        assert!(names.iter().any(|name| name == "maps"));
        // If the first read fails, the error is returned: nothing is mapped at this address.
        assert!(read_some("/proc/self/mem", 1).is_err());
    }
}
