//! Reads the memory of another process from outside.
//!
//! Nothing is ever written, and the process is neither stopped nor traced. `gputrace-reader` does
//! the reading and waits for no process: [`MemoryError::NoAnswer`]. Reading requires permission to
//! trace the process (`ptrace(2)`, "Ptrace access mode checking").
//!
//! `/proc/PID/mem` also reads memory that the process itself may not read: reserved address space
//! (`PROT_NONE`) reads as zeros. Zeros therefore prove nothing.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

use gputrace_files::rights;
use gputrace_reader::{Look, Run};
use rustix::{
    event::{PollFd, PollFlags, Timespec},
    io::Errno,
    process::{Pid, PidfdFlags},
};

/// Why memory could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The process is gone.
    #[error("process {pid} has ended or never existed")]
    NoSuchProcess {
        /// Process id.
        pid: u32,
    },
    /// The kernel refuses access.
    #[error(
        "may not read the memory of process {pid}; {}, or give it CAP_SYS_PTRACE",
        rights::remedy()
    )]
    PermissionDenied {
        /// Process id.
        pid: u32,
    },
    /// Reading the process takes too long, e.g. because of `userfaultfd` or a file system that does
    /// not answer.
    #[error("process {pid} does not answer when its memory is read")]
    NoAnswer {
        /// Process id.
        pid: u32,
    },
    /// There is no readable memory at an address.
    #[error("no readable memory at {address:#x}")]
    Unmapped {
        /// The first address that could not be read.
        address: u64,
    },
    /// The requested size exceeds the caller's limit.
    #[error("{size} bytes at {address:#x} are more than the limit of {limit}")]
    TooLong {
        /// Start address.
        address: u64,
        /// Requested size, bytes.
        size: u64,
        /// Maximum size, bytes.
        limit: u64,
    },
    /// A C string is not terminated.
    #[error("the text at {address:#x} does not end within {limit} bytes")]
    Unterminated {
        /// Start address.
        address: u64,
        /// Maximum length, bytes.
        limit: usize,
    },
    /// Any other error of the kernel.
    #[error("cannot read memory at {address:#x}: {source}")]
    Io {
        /// Address.
        address: u64,
        /// Error returned by the kernel.
        source: io::Error,
    },
}

/// Readable memory, by address. Implemented for processes; tests simulate it.
pub trait Memory {
    /// Fills the beginning of `buffer` with the memory at `address`, up to the first byte that
    /// cannot be read, and returns the number of bytes read; 0 if the first byte is not readable.
    ///
    /// # Errors
    ///
    /// [`MemoryError`], never [`MemoryError::Unmapped`].
    fn read_some(&self, address: u64, buffer: &mut [u8]) -> Result<usize, MemoryError>;

    /// Fills `buffer`.
    ///
    /// # Errors
    /// [`MemoryError`]; [`MemoryError::Unmapped`] if a part of it cannot be read.
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), MemoryError> {
        let got = self.read_some(address, buffer)?;
        if got == buffer.len() {
            return Ok(());
        }
        Err(MemoryError::Unmapped {
            address: address.wrapping_add(got as u64),
        })
    }

    /// Reads `size` bytes. Memory is allocated as the bytes arrive, so a wrong size costs nothing.
    ///
    /// # Errors
    ///
    /// As [`Memory::read`], and [`MemoryError::TooLong`] for more than `limit` bytes.
    fn bytes(&self, address: u64, size: u64, limit: u64) -> Result<Vec<u8>, MemoryError> {
        const PIECE: usize = 1 << 20;
        let too_long = || MemoryError::TooLong {
            address,
            size,
            limit,
        };
        if size > limit || address.checked_add(size).is_none() {
            return Err(too_long());
        }
        let size = usize::try_from(size).map_err(|_| too_long())?;
        let mut bytes = Vec::new();
        while bytes.len() < size {
            let done = bytes.len();
            bytes.resize(size.min(done + PIECE), 0);
            // The slice is the part that was just added.
            self.read(
                address + done as u64,
                bytes.get_mut(done..).unwrap_or_default(),
            )?;
        }
        Ok(bytes)
    }

    /// Reads `N` bytes.
    ///
    /// # Errors
    /// As [`Memory::read`].
    fn array<const N: usize>(&self, address: u64) -> Result<[u8; N], MemoryError> {
        let mut bytes = [0; N];
        self.read(address, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads a string up to its terminating zero byte, which is not part of the result.
    ///
    /// # Errors
    ///
    /// As [`Memory::read`], and [`MemoryError::Unterminated`] after `limit` bytes.
    fn c_string(&self, address: u64, limit: usize) -> Result<Vec<u8>, MemoryError> {
        /// Number of bytes read at a time. Strings are short; most end within the first piece.
        const PIECE: usize = 256;
        let mut text = Vec::new();
        while text.len() < limit {
            let done = text.len();
            text.resize(limit.min(done + PIECE), 0);
            let at = address.wrapping_add(done as u64);
            let got = self.read_some(at, text.get_mut(done..).unwrap_or_default())?;
            let fresh = text.get(done..done + got).unwrap_or_default();
            if let Some(end) = fresh.iter().position(|byte| *byte == 0) {
                text.truncate(done + end);
                return Ok(text);
            }
            if done + got < text.len() {
                return Err(MemoryError::Unmapped {
                    address: at.wrapping_add(got as u64),
                });
            }
        }
        Err(MemoryError::Unterminated { address, limit })
    }
}

/// The memory of a running process.
///
/// It is bound to the process, not to its id: when the process ends and another one gets the id,
/// reads fail with [`MemoryError::NoSuchProcess`]. When the process executes another program, the
/// memory of that program is read.
#[derive(Debug)]
pub struct ProcessMemory {
    pid: u32,
    process: OwnedFd,
}

impl ProcessMemory {
    /// Opens the memory of a process.
    ///
    /// # Errors
    /// [`MemoryError::NoSuchProcess`], [`MemoryError::PermissionDenied`] or [`MemoryError::Io`].
    pub fn open(pid: u32) -> Result<Self, MemoryError> {
        let refused = |errno: Errno| failure(pid, 0, errno);
        let raw = i32::try_from(pid).map_err(|_| MemoryError::NoSuchProcess { pid })?;
        let id = Pid::from_raw(raw).ok_or(MemoryError::NoSuchProcess { pid })?;
        let process =
            rustix::process::pidfd_open(id, PidfdFlags::empty()).map_err(|errno| match errno {
                // The id belongs to a thread that is not a thread group leader.
                Errno::INVAL => MemoryError::NoSuchProcess { pid },
                errno => refused(errno),
            })?;
        gputrace_reader::may_read(pid).map_err(|error| io_failure(pid, 0, error))?;
        let memory = Self { pid, process };
        // The id may have been reused between the two calls, but not while the first process lives.
        memory.check(0)?;
        Ok(memory)
    }

    /// Process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether the process has not ended.
    ///
    /// # Errors
    ///
    /// [`MemoryError::Io`] if that cannot be determined.
    pub fn is_alive(&self) -> Result<bool, MemoryError> {
        let mut watched = [PollFd::from_borrowed_fd(
            self.process.as_fd(),
            PollFlags::IN,
        )];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        match rustix::event::poll(&mut watched, Some(&now)) {
            Ok(ended) => Ok(ended == 0),
            Err(Errno::INTR) => Ok(true),
            Err(errno) => Err(failure(self.pid, 0, errno)),
        }
    }

    /// Fails unless the process lives. So what was read by its id came from this process.
    fn check(&self, address: u64) -> Result<(), MemoryError> {
        match self.is_alive() {
            Ok(true) => Ok(()),
            Ok(false) => Err(MemoryError::NoSuchProcess { pid: self.pid }),
            Err(MemoryError::Io { source, .. }) => Err(MemoryError::Io { address, source }),
            Err(error) => Err(error),
        }
    }
}

/// Repeatedly reads pairs of words in processes, like [`gputrace_reader::run`]. The words of a pair
/// are `between` bytes apart. A reading follows each of the pauses, ns, and lasts for `spell` ns.
/// Places in one process must be adjacent. The result is `None` for processes that have ended, and
/// for those that are skipped because they did not answer.
///
/// # Errors
///
/// [`MemoryError::NoAnswer`] if a process does not answer; with several processes, it is unknown
/// which one. Otherwise [`MemoryError::Io`].
pub fn look_at(
    places: &[(&ProcessMemory, u64)],
    between: u32,
    pauses: Vec<u32>,
    spell: u32,
) -> Result<Vec<Look>, MemoryError> {
    let run = Run {
        places: places
            .iter()
            .map(|(process, address)| (process.pid, *address))
            .collect(),
        between,
        pauses,
        spell,
    };
    let pid = places.first().map_or(0, |(process, _)| process.pid);
    let mut looks = gputrace_reader::run(&run).map_err(|error| io_failure(pid, 0, error))?;
    // Another process may have the id by now.
    let mut at = 0;
    for places in places.chunk_by(|(one, _), (other, _)| one.pid == other.pid) {
        let is_alive = places
            .first()
            .is_some_and(|(process, _)| process.is_alive().unwrap_or(false));
        let all = at..at + places.len();
        at = all.end;
        if !is_alive {
            let pairs = looks
                .iter_mut()
                .filter_map(|look| look.pairs.get_mut(all.clone()));
            pairs.for_each(|pairs| pairs.fill(None));
        }
    }
    Ok(looks)
}

impl Memory for ProcessMemory {
    fn read_some(&self, address: u64, buffer: &mut [u8]) -> Result<usize, MemoryError> {
        let got = gputrace_reader::memory(self.pid, address, buffer)
            .map_err(|error| io_failure(self.pid, address, error))?;
        self.check(address)?;
        Ok(got)
    }
}

fn io_failure(pid: u32, address: u64, error: io::Error) -> MemoryError {
    match Errno::from_io_error(&error) {
        Some(errno) => failure(pid, address, errno),
        None if error.kind() == io::ErrorKind::TimedOut => MemoryError::NoAnswer { pid },
        None => MemoryError::Io {
            address,
            source: error,
        },
    }
}

fn failure(pid: u32, address: u64, errno: Errno) -> MemoryError {
    match errno {
        Errno::SRCH | Errno::NOENT => MemoryError::NoSuchProcess { pid },
        Errno::PERM | Errno::ACCESS => MemoryError::PermissionDenied { pid },
        errno => MemoryError::Io {
            address,
            source: errno.into(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::{
        ffi::c_void,
        process::{Child, Command, Stdio},
    };

    fn own() -> ProcessMemory {
        ProcessMemory::open(std::process::id()).unwrap()
    }

    /// A readable page followed by an unmapped one.
    struct Edge(*mut c_void);

    const PAGE: usize = 4096;

    impl Edge {
        fn new() -> Self {
            use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
            let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
            // SAFETY: a new mapping at an address that the kernel chooses.
            let pages =
                unsafe { mmap_anonymous(std::ptr::null_mut(), 2 * PAGE, protection, flags) }
                    .unwrap();
            // SAFETY: within the mapping.
            let second = unsafe { pages.byte_add(PAGE) };
            // SAFETY: the second page of our own mapping, which nothing refers to.
            unsafe { munmap(second, PAGE) }.unwrap();
            Self(pages)
        }

        /// Writes to the very end of the readable page, and returns the address.
        fn end_with(&self, bytes: &[u8]) -> u64 {
            // SAFETY: within the first page.
            let at = unsafe { self.0.cast::<u8>().add(PAGE - bytes.len()) };
            // SAFETY: the writable page has room for these bytes.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len()) };
            at as u64
        }
    }

    impl Drop for Edge {
        fn drop(&mut self) {
            // SAFETY: our own mapping, which nothing refers to any more.
            unsafe { rustix::mm::munmap(self.0, PAGE) }.unwrap();
        }
    }

    #[test]
    fn own_memory() {
        let memory = own();
        let data: Vec<u8> = (0..3 << 20).map(|i| (i % 251) as u8).collect();
        let at = data.as_ptr() as u64;
        let all = data.len() as u64;
        assert!(memory.bytes(at, all, all).unwrap() == data);
        assert!(matches!(
            memory.bytes(at, all, all - 1),
            Err(MemoryError::TooLong { .. })
        ));
        assert_eq!(memory.array::<3>(at + 7).unwrap(), [7, 8, 9]);
        assert_eq!(memory.pid(), std::process::id());
    }

    #[test]
    fn memory_that_ends() {
        let (memory, edge) = (own(), Edge::new());
        let at = edge.end_with(b"text\0");
        assert_eq!(memory.c_string(at, 4096).unwrap(), b"text");
        assert!(matches!(
            memory.c_string(at, 4),
            Err(MemoryError::Unterminated { .. })
        ));
        let mut buffer = [0; 9];
        assert_eq!(memory.read_some(at, &mut buffer).unwrap(), 5);
        assert_eq!(&buffer[..5], b"text\0");
        let end = at + 5;
        assert!(
            matches!(memory.read(at, &mut buffer), Err(MemoryError::Unmapped { address }) if address == end)
        );
        let at = edge.end_with(b"endless");
        assert!(matches!(
            memory.c_string(at, 4096),
            Err(MemoryError::Unmapped { .. })
        ));
        assert!(matches!(
            memory.bytes(at, 1 << 40, 1 << 41),
            Err(MemoryError::Unmapped { .. })
        ));
    }

    #[test]
    fn nonsense_addresses() {
        let memory = own();
        for address in [0, 1, 0x1000, 1 << 47, 1 << 63, u64::MAX - 3, u64::MAX] {
            assert_eq!(
                memory.read_some(address, &mut [0; 16]).unwrap(),
                0,
                "{address:#x}"
            );
            assert!(matches!(
                memory.c_string(address, 64),
                Err(MemoryError::Unmapped { .. })
            ));
        }
        assert!(matches!(
            memory.bytes(u64::MAX, 2, 16),
            Err(MemoryError::TooLong { .. })
        ));
        assert_eq!(memory.bytes(0, 0, 0).unwrap(), b"");
    }

    fn cat() -> Child {
        Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    }

    #[test]
    fn a_process_that_ends() {
        let mut child = cat();
        let memory = ProcessMemory::open(child.id()).unwrap();
        let stack = std::fs::read_to_string(format!("/proc/{}/maps", child.id())).unwrap();
        let stack = stack
            .lines()
            .find(|line| line.ends_with("[stack]"))
            .unwrap();
        let end = stack.split(['-', ' ']).nth(1).unwrap();
        let at = u64::from_str_radix(end, 16).unwrap() - 16;
        memory.read(at, &mut [0; 16]).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!memory.is_alive().unwrap());
        assert!(matches!(
            memory.read(at, &mut [0; 16]),
            Err(MemoryError::NoSuchProcess { .. })
        ));
    }

    #[test]
    fn pairs_of_processes() {
        let (memory, mut child) = (own(), cat());
        let other = ProcessMemory::open(child.id()).unwrap();
        let words = [7_u64, 1, 2, 3];
        let at = words.as_ptr() as u64;
        let places = [(&memory, at), (&memory, 8), (&other, 8)];
        let looks = look_at(&places, 24, vec![0, 1000], 0).unwrap();
        assert_eq!(looks.len(), 2);
        for look in looks {
            assert_eq!(look.pairs, [Some([7, 3]), None, None]);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let looks = look_at(&[(&other, at), (&memory, at)], 24, vec![0], 0).unwrap();
        assert_eq!(looks[0].pairs, [None, Some([7, 3])]);
    }

    #[test]
    fn no_process() {
        for pid in [0, 1 << 30, u32::MAX] {
            assert!(matches!(
                ProcessMemory::open(pid),
                Err(MemoryError::NoSuchProcess { .. })
            ));
        }
    }

    proptest! {
        #[test]
        fn any_address(address: u64, size in 0..100_000_u64) {
            let memory = own();
            let _ = memory.bytes(address, size, 50_000);
            let _ = memory.c_string(address, 100);
        }
    }
}
