//! Reports of code that processes map, on the whole node, from the kernel's perf subsystem.
//!
//! The kernel reports each mapping of a file with code (`PERF_RECORD_MMAP2`, `perf_event_open(2)`):
//! by `mmap`, `execve` or `mprotect`, in any process in any container, under any dynamic linker or
//! none. `perf record -a` uses this to know which libraries are mapped where. No process gets a
//! breakpoint for it, and a process that maps nothing pays nothing. Each processor has its own
//! buffer for its records. Records that find no room there are lost, and the loss is reported.

use std::{ffi::OsStr, io, os::unix::ffi::OsStrExt as _, path::Path, time::Duration};

use perf_event::{Builder, Sampler, events::Software};

use super::info;

/// Record types (`linux/perf_event.h`).
const LOST: u32 = 2;
const MMAP2: u32 = 10;

/// Size of each processor's buffer in bytes, a power of two. It holds about 800 mappings, so with
/// looks [`MappingNews::EVERY`] apart, a processor may map 32,000 times per second.
const BUFFER: usize = 1 << 17;

/// A new mapping of code from a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewMapping<'a> {
    /// Process id in gputrace's pid namespace.
    pub pid: u32,
    /// Identity of the file.
    pub file: FileNumber,
    /// Path of the file, as seen by the process.
    pub path: &'a Path,
}

/// The kernel's identification of a mapped file. All members together identify a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileNumber {
    /// Major and minor number of the device.
    pub device: (u32, u32),
    /// Inode number.
    pub inode: u64,
    /// Changes when an inode number is reused for another file; 0 if unknown.
    pub generation: u64,
}

/// Reports from all processors. Dropping it ends them.
#[derive(Debug)]
pub struct MappingNews {
    processors: Vec<Processor>,
}

struct Processor {
    number: usize,
    records: Sampler,
}

impl std::fmt::Debug for Processor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Processor")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

impl MappingNews {
    /// Maximum time between two looks that loses nothing on a busy node.
    pub const EVERY: Duration = Duration::from_millis(25);

    /// Starts the reports.
    ///
    /// # Errors
    ///
    /// The kernel's error, most often because `CAP_PERFMON` is missing.
    pub fn open() -> io::Result<Self> {
        let mut news = Self {
            processors: Vec::new(),
        };
        news.more_processors()?;
        if news.processors.is_empty() {
            return Err(io::Error::other("no processor is known"));
        }
        Ok(news)
    }

    /// Also listens to processors that have come online since. Returns true if there were any;
    /// mappings made on them until now are unknown.
    ///
    /// # Errors
    ///
    /// The kernel's error for the first processor that cannot be listened to.
    pub fn more_processors(&mut self) -> io::Result<bool> {
        let before = self.processors.len();
        for number in info::online_processors() {
            if self.processors.iter().any(|known| known.number == number) {
                continue;
            }
            let records = Builder::new(Software::DUMMY)
                .any_pid()
                .one_cpu(number)
                .mmap(true)
                .mmap2(true)
                // No thread waits for the buffer: it is polled.
                .wakeup_watermark(BUFFER / 2)
                .enabled(true)
                .build()?
                .sampled(BUFFER)?;
            self.processors.push(Processor { number, records });
        }
        Ok(self.processors.len() > before)
    }

    /// Reports the mappings since the last look, in order on each processor. Returns true if some
    /// were lost. Takes at most one filling of the buffers, however fast they fill up.
    pub fn look(&mut self, mut tell: impl FnMut(&NewMapping<'_>)) -> bool {
        let mut lost = false;
        for processor in &mut self.processors {
            let mut taken = 0;
            while taken < BUFFER {
                let Some(record) = processor.records.next_record() else {
                    break;
                };
                taken += record.len().max(1);
                match record.ty() {
                    LOST => lost = true,
                    MMAP2 => {
                        if let Some(mapping) = decode(&record.to_contiguous()) {
                            tell(&mapping);
                        }
                    }
                    _ => {}
                }
            }
        }
        lost
    }
}

/// Decodes the body of a `PERF_RECORD_MMAP2` without a build id:
/// `u32 pid, tid; u64 address, length, page offset; u32 major, minor; u64 inode, generation; u32 protection, flags; char path[]`.
/// `None` if no file is mapped: `[vdso]`, `//anon`.
fn decode(body: &[u8]) -> Option<NewMapping<'_>> {
    let word = |at: usize| Some(u32::from_ne_bytes(*body.get(at..)?.first_chunk()?));
    let long = |at: usize| Some(u64::from_ne_bytes(*body.get(at..)?.first_chunk()?));
    let path = body.get(64..)?;
    let path = path.split(|byte| *byte == 0).next()?;
    let file = FileNumber {
        device: (word(32)?, word(36)?),
        inode: long(40)?,
        generation: long(48)?,
    };
    let is_file = path.starts_with(b"/") && !path.starts_with(b"//") && file.inode != 0;
    is_file.then_some(NewMapping {
        pid: word(0)?,
        file,
        path: Path::new(OsStr::from_bytes(path)),
    })
}

#[cfg(test)]
mod tests {
    use std::{
        process::Command,
        time::{Duration, Instant},
    };

    use proptest::prelude::*;

    use super::*;

    fn body(pid: u32, inode: u64, path: &[u8]) -> Vec<u8> {
        let mut body = Vec::new();
        for word in [pid, pid] {
            body.extend(word.to_ne_bytes());
        }
        for long in [0x1000u64, 0x2000, 0] {
            body.extend(long.to_ne_bytes());
        }
        for word in [8u32, 1] {
            body.extend(word.to_ne_bytes());
        }
        for long in [inode, 77] {
            body.extend(long.to_ne_bytes());
        }
        body.extend([0; 8]);
        body.extend(path);
        body.resize(body.len().next_multiple_of(8), 0);
        body
    }

    #[test]
    fn records() {
        let known = body(4711, 9, b"/lib/x.so\0");
        let expected = NewMapping {
            pid: 4711,
            file: FileNumber {
                device: (8, 1),
                inode: 9,
                generation: 77,
            },
            path: Path::new("/lib/x.so"),
        };
        assert_eq!(decode(&known), Some(expected));
        for path in [b"//anon\0".as_slice(), b"[vdso]\0", b"\0", b""] {
            assert_eq!(decode(&body(1, 9, path)), None);
        }
        assert_eq!(decode(&body(1, 0, b"/lib/x.so\0")), None);
        assert_eq!(decode(&known[..60]), None);
    }

    #[test]
    fn a_program_and_its_libraries() {
        let mut news = match MappingNews::open() {
            Ok(news) => news,
            Err(error) => {
                assert!(
                    std::env::var_os("GPUTRACE_REQUIRE_BPF").is_none(),
                    "{error}"
                );
                return gputrace_skip::skipped(&error.to_string());
            }
        };
        assert!(!news.more_processors().unwrap(), "all are listened to");
        let mut child = Command::new("/bin/true").spawn().unwrap();
        child.wait().unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut names = Vec::new();
        while !names
            .iter()
            .any(|name: &String| name.starts_with("libc.so"))
        {
            assert!(Instant::now() < deadline, "{names:?}");
            news.look(|mapping| {
                if mapping.pid == child.id() {
                    names.push(
                        mapping
                            .path
                            .file_name()
                            .unwrap()
                            .to_string_lossy()
                            .into_owned(),
                    );
                }
            });
        }
        assert!(
            names.iter().any(|name| name.starts_with("ld-linux")),
            "{names:?}"
        );
    }

    proptest! {
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes);
        }
    }
}
