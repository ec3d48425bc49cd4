//! Whether two open files are one file to the kernel.
//!
//! A probe belongs to an inode. What `stat` and `/proc/PID/maps` say is not enough to know it: an overlay mount
//! shows the file of a lower directory under a device of its own, so the same file looks like thirty in thirty
//! containers, and probes on each of them would record every call thirty times. And it keeps showing the inode
//! number of the lower file when the file was copied up, so two different files can look like one.
//!
//! The page cache tells: pages in it belong to an inode, the one that probes belong to, whatever mounts are on top. So
//! two files are the same if and only if their first pages lie in the same place of the physical memory, which
//! `/proc/self/pagemap` shows to those with `CAP_SYS_ADMIN` (Linux, `Documentation/admin-guide/mm/pagemap.rst`).

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

/// Smallest unit in which memory is mapped on x86-64, bytes.
const PAGE: usize = 4096;
/// A page may be moved while it is looked at. So many looks are taken.
const LOOKS: usize = 4;

/// What `stat` says of a file. While two files look alike, they are the same: device and inode number name a file in its
/// mount, and copying it up in an overlay changes the time of its last change. Files that look different can be the same
/// nevertheless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileLook {
    device: u64,
    inode: u64,
    size: u64,
    /// When the inode was last changed, s and ns.
    changed: (i64, u64),
}

impl FileLook {
    /// What was found out about a file.
    #[must_use]
    pub fn of(state: &FileState) -> Self {
        Self {
            device: state.device,
            inode: state.inode,
            size: state.size,
            changed: state.changed,
        }
    }

    /// A file that a process has mapped; `None` if it cannot be said without opening it.
    #[must_use]
    pub fn of_mapped(pid: u32, mapped: &MappedFile) -> Option<Self> {
        mapped.state(pid).as_ref().map(Self::of)
    }

    /// Whether the file is the same as far as can be told from looks alone, in whichever mounts the files are. Overlay
    /// mounts may put a number of their own into the upper half of an inode number (`xino`).
    #[must_use]
    fn resembles(&self, other: &Self) -> bool {
        /// Real inode numbers of the file systems that are used below overlays.
        const NUMBER: u64 = 0xffff_ffff;
        self.inode & NUMBER == other.inode & NUMBER
            && self.size == other.size
            && self.changed == other.changed
    }
}

impl LibraryFile {
    /// What `stat` says of it now.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn look(&self) -> io::Result<FileLook> {
        Ok(FileLook::of(&self.current_state()?))
    }

    /// Whether probes on one of the two are probes on the other. Where the kernel does not let this be found out for certain,
    /// the build id and what `stat` says decide.
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

/// Whether the first pages of two files are the same page of the page cache. `None` if that cannot be found out: no right
/// to, or a file is empty or cannot be read.
fn share_pages(one: &impl AsFd, other: &impl AsFd) -> Option<bool> {
    let (one, other) = (first_page(one).ok()?, first_page(other).ok()?);
    let pagemap = kernel::open("/proc/self/pagemap").ok()?;
    for _ in 0..LOOKS {
        let before = frame(&pagemap, &one);
        let its = frame(&pagemap, &other);
        // Neither was moved, nor given back and read again, meanwhile.
        if let (Some(before), Some(its)) = (before, its)
            && frame(&pagemap, &one) == Some(before)
            && frame(&pagemap, &other) == Some(its)
        {
            return Some(before == its);
        }
        // What is gone by now only makes another look necessary, or comes to nothing.
        let _ = one.advise(Advice::PopulateRead);
        let _ = other.advise(Advice::PopulateRead);
    }
    None
}

/// Maps the first page and reads it into memory. Never touched from here: a file that was truncated meanwhile makes the
/// request fail, where touching would kill (`madvise(2)`, Linux 5.14).
fn first_page(file: &impl AsFd) -> io::Result<MmapRaw> {
    let page = MmapOptions::new()
        .len(PAGE)
        .map_raw_read_only(file.as_fd().as_raw_fd())?;
    page.advise(Advice::PopulateRead)?;
    Ok(page)
}

/// Number of the page frame behind a mapping's first page; `None` if there is none or it is hidden.
fn frame(pagemap: &File, page: &MmapRaw) -> Option<u64> {
    /// "Page present", and the bits of the number.
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

    /// Without the right to see frames only looks count, and a test of frames means nothing.
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
        // Copied up: the inode number stays, but it is another file.
        assert!(!one.resembles(&FileLook {
            changed: (5, 7),
            ..overlaid
        }));
    }
}
