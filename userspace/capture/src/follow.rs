//! Reads a capture while it grows.
//!
//! A recorder appends to the file. [`Following`] reads it like any other file, but at its end waits
//! for more, until the recording is over.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use rustix::{
    fs::{FallocateFlags, fallocate},
    time::{ClockId, clock_gettime},
};

/// Pause before checking again whether the capture has grown.
const PAUSE: Duration = Duration::from_millis(20);

/// Number of bytes after which space is given back to the file system.
pub const HOLE: u64 = 16 << 20;

/// Learns how far a growing file has been read.
pub trait Follower {
    /// The file has been read up to `position`, in bytes.
    fn passed(&mut self, file: &File, position: u64);

    /// Everything has been read that had been written by `time`, ns `CLOCK_BOOTTIME`.
    fn caught_up(&mut self, time: u64);
}

/// A file that grows until the recording is over. Reads at its end wait for more data.
#[derive(Debug)]
pub struct Following<F> {
    file: File,
    position: u64,
    over: Arc<AtomicBool>,
    follower: F,
}

impl<F> Following<F> {
    /// Reads `file`, which grows until `over` is set.
    #[must_use]
    pub fn new(file: File, over: Arc<AtomicBool>, follower: F) -> Self {
        Self {
            file,
            position: 0,
            over,
            follower,
        }
    }
}

impl<F: Follower> Read for Following<F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            // Loaded before reading, so that everything written before the end is still read.
            let over = self.over.load(Ordering::Acquire);
            let now = now();
            let count = self.file.read(buffer)?;
            if count > 0 || over {
                self.position += count as u64;
                self.follower.passed(&self.file, self.position);
                return Ok(count);
            }
            self.follower.caught_up(now);
            thread::park_timeout(PAUSE);
        }
    }
}

impl<F> Seek for Following<F> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.position = self.file.seek(to)?;
        Ok(self.position)
    }
}

/// The time of `CLOCK_BOOTTIME`, ns: the clock of every record.
#[must_use]
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    // Neither part of this clock is ever negative.
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Punches a hole where data is not needed any more. File systems without hole punching keep the
/// space in use until the end.
pub fn give_back(file: &File, from: u64, to: u64) {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let _ = fallocate(file, flags, from, to.saturating_sub(from));
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write as _,
        sync::atomic::{AtomicU64, Ordering},
    };

    use super::*;

    #[derive(Debug)]
    struct Noting(Arc<AtomicU64>);

    impl Follower for Noting {
        fn passed(&mut self, _: &File, position: u64) {
            self.0.store(position, Ordering::Release);
        }

        fn caught_up(&mut self, _: u64) {}
    }

    #[test]
    fn the_end_of_a_growing_file_is_waited_for() {
        let mut file = tempfile::tempfile().unwrap();
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        let over = Arc::new(AtomicBool::new(false));
        let read = Arc::new(AtomicU64::new(0));
        let (is_over, position) = (Arc::clone(&over), Noting(Arc::clone(&read)));
        let reader = thread::spawn(move || {
            let mut following = Following::new(File::open(path).unwrap(), is_over, position);
            let mut all = Vec::new();
            following.read_to_end(&mut all).unwrap();
            all
        });
        for part in ["a", "bc", "def"] {
            file.write_all(part.as_bytes()).unwrap();
        }
        over.store(true, Ordering::Release);
        assert_eq!(reader.join().unwrap(), b"abcdef");
        assert_eq!(read.load(Ordering::Acquire), 6);
    }
}
