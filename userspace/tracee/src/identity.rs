//! Decides whether two open files are the same file to the kernel.
//!
//! A probe belongs to an inode. The data in `stat` and `/proc/PID/maps` does not suffice to
//! identify it. An overlay mount shows the file of a lower directory under its own device, so one
//! file looks like thirty in thirty containers, and probes on each of them would record every call
//! thirty times. And the mount keeps showing the lower file's inode number after the file was
//! copied up, so two different files can look like one.
//!
//! The page cache is reliable: its pages belong to an inode, the one that probes belong to,
//! whatever mounts are on top. So two files are the same if and only if their first pages are at
//! the same physical address, which `/proc/self/pagemap` shows to processes with `CAP_SYS_ADMIN`
//! (Linux, `Documentation/admin-guide/mm/pagemap.rst`).

use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd, AsRawFd as _},
        unix::fs::FileExt as _,
    },
};

use gputrace_files::{kernel, target::FileState};
use memmap2::{Advice, MmapOptions, MmapRaw};

use crate::{library::LibraryFile, process::MappedFile};

/// Smallest page size on x86-64, bytes.
const PAGE: usize = 4096;
/// Maximum number of attempts: a page may be moved while it is examined.
const LOOKS: usize = 4;

/// The `stat` data that identifies a file. Files with equal data are the same: device and inode
/// number identify a file in its mount, and copying it up in an overlay changes the time of its
/// last change. Files with different data can be the same nevertheless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileLook {
    device: u64,
    inode: u64,
    size: u64,
    /// Time of the inode's last change, s and ns.
    changed: (i64, u64),
}

impl FileLook {
    /// Extracts it from a file's state.
    #[must_use]
    pub fn of(state: &FileState) -> Self {
        Self {
            device: state.device,
            inode: state.inode,
            size: state.size,
            changed: state.changed,
        }
    }

    /// The `stat` data of a file that a process has mapped; `None` if it cannot be determined
    /// without opening the file.
    #[must_use]
    pub fn of_mapped(pid: u32, mapped: &MappedFile) -> Option<Self> {
        mapped.state(pid).as_ref().map(Self::of)
    }

    /// Whether the files can be the same, judged by this data alone, whatever mounts they are in.
    /// Overlay mounts may put a number of their own into the upper half of an inode number
    /// (`xino`).
    #[must_use]
    fn resembles(&self, other: &Self) -> bool {
        /// Mask of the real inode numbers of file systems that are used below overlays.
        const NUMBER: u64 = 0xffff_ffff;
        self.inode & NUMBER == other.inode & NUMBER
            && self.size == other.size
            && self.changed == other.changed
    }
}

impl LibraryFile {
    /// The file's current `stat` data.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn look(&self) -> io::Result<FileLook> {
        Ok(FileLook::of(&self.current_state()?))
    }

    /// Whether probes on one of the two files are probes on the other. If the kernel does not allow
    /// finding this out for certain, the build id and the `stat` data decide.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        if self.elf().build_id != other.elf().build_id {
            return false;
        }
        let (Ok(mine), Ok(its)) = (self.look(), other.look()) else {
            return false;
        };
        if mine == its {
            return true;
        }
        mine.size == its.size && share_pages(self, other).unwrap_or_else(|| mine.resembles(&its))
    }
}

/// Whether the first pages of two files are the same page of the page cache. `None` if that cannot
/// be determined: privileges are missing, or a file is empty or unreadable.
fn share_pages(one: &impl AsFd, other: &impl AsFd) -> Option<bool> {
    let (one, other) = (first_page(one).ok()?, first_page(other).ok()?);
    let pagemap = kernel::open("/proc/self/pagemap").ok()?;
    for _ in 0..LOOKS {
        let before = frame(&pagemap, &one);
        let its = frame(&pagemap, &other);
        // Neither page was moved, or evicted and read again, in the meantime.
        if let (Some(before), Some(its)) = (before, its)
            && frame(&pagemap, &one) == Some(before)
            && frame(&pagemap, &other) == Some(its)
        {
            return Some(before == its);
        }
        // If a page is gone by now, another attempt follows, or the result is `None`.
        let _ = one.advise(Advice::PopulateRead);
        let _ = other.advise(Advice::PopulateRead);
    }
    None
}

/// Maps the first page and reads it into memory, without touching it: if the file was truncated in
/// the meantime, the request fails, whereas touching the page would kill the process (`madvise(2)`,
/// Linux 5.14).
fn first_page(file: &impl AsFd) -> io::Result<MmapRaw> {
    let page = MmapOptions::new()
        .len(PAGE)
        .map_raw_read_only(file.as_fd().as_raw_fd())?;
    page.advise(Advice::PopulateRead)?;
    Ok(page)
}

/// Page frame number of a mapping's first page; `None` if the page is absent or the number is
/// hidden.
fn frame(pagemap: &File, page: &MmapRaw) -> Option<u64> {
    /// Bit for "page present", and mask of the frame number.
    const PRESENT: u64 = 1 << 63;
    const FRAME: u64 = (1 << 55) - 1;
    let mut entry = [0; 8];
    let at = page.as_ptr() as usize / PAGE * entry.len();
    pagemap.read_exact_at(&mut entry, at as u64).ok()?;
    let entry = u64::from_ne_bytes(entry);
    let frame = entry & FRAME;
    (entry & PRESENT != 0 && frame != 0).then_some(frame)
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    fn open(path: &Path) -> LibraryFile {
        LibraryFile::open(path).unwrap()
    }

    /// Whether page frames are visible. If not, only `stat` data counts, and a test of frames is
    /// meaningless.
    fn sees_frames() -> bool {
        let program = File::open("/proc/self/exe").unwrap();
        share_pages(&program, &program) == Some(true)
    }

    #[test]
    fn links_are_the_file_and_copies_are_not() {
        let directory = tempfile::tempdir().unwrap();
        let [file, link, copy] = ["file", "link", "copy"].map(|name| directory.path().join(name));
        fs::copy("/proc/self/exe", &file).unwrap();
        fs::hard_link(&file, &link).unwrap();
        fs::copy(&file, &copy).unwrap();
        assert!(open(&file).is_same(&open(&link)));
        let (file, copy) = (open(&file), open(&copy));
        assert_eq!(file.elf().build_id, copy.elf().build_id);
        assert!(!file.is_same(&copy));
        if sees_frames() {
            let (one, other) = (
                File::open(file.attach_path()),
                File::open(copy.attach_path()),
            );
            assert_eq!(share_pages(&one.unwrap(), &other.unwrap()), Some(false));
        }
    }

    #[test]
    fn what_has_no_page_tells_nothing() {
        let empty = tempfile::tempfile().unwrap();
        assert_eq!(share_pages(&empty, &empty), None);
        let (_reader, writer) = io::pipe().unwrap();
        assert_eq!(share_pages(&writer, &empty), None);
    }

    #[test]
    fn looks_in_several_mounts() {
        let one = FileLook {
            device: 1,
            inode: 7,
            size: 100,
            changed: (5, 6),
        };
        let overlaid = FileLook {
            device: 2,
            inode: 7 | 1 << 63,
            ..one
        };
        assert!(one.resembles(&overlaid));
        // Copied up: the inode number stays, but it is a different file.
        assert!(!one.resembles(&FileLook {
            changed: (5, 7),
            ..overlaid
        }));
    }
}
