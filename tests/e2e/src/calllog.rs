//! Reads the logs that the workloads write; `tests/workloads/call_log.h` describes the format.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    os::unix::fs::FileExt,
    path::Path,
};

use gputrace_abi::{REGISTER_ARGS, STACK_ARGS};

/// Number of argument words in a logged call: registers, then stack.
pub const WORDS: usize = REGISTER_ARGS + STACK_ARGS;

const VERSION: u32 = 2;
const MAGIC: &[u8; 8] = b"GPTCALLS";
const NAME: usize = 96;
/// Size in bytes of a record, and also of the header.
const RECORD: usize = NAME + 5 * 8 + 2 * 8 * WORDS;

/// A value of which only some bits may be known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Masked {
    /// The value.
    pub value: u64,
    /// The known bits of the value; 0 if nothing is known.
    pub mask: u64,
}

impl Masked {
    /// Whether `word` agrees in all known bits.
    #[must_use]
    pub fn matches(self, word: u64) -> bool {
        (self.value ^ word) & self.mask == 0
    }
}

/// A call as logged by the program that made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedCall {
    /// Name of the function as in its header.
    pub name: String,
    /// Read before the call; ns, `CLOCK_BOOTTIME`.
    pub begin: u64,
    /// Read after the call; `None` if it never returned.
    pub end: Option<u64>,
    /// Its return value.
    pub result: Masked,
    /// A number that changes when the process executes another program.
    pub image: u64,
    /// Argument words, registers before stack; `None` if the program does not know them, because
    /// the compiler generated the call.
    pub words: Option<[Masked; WORDS]>,
}

/// Process id and thread id.
pub type ThreadId = (u32, u32);

/// All logged calls, by thread, in the order in which the thread made them. A thread's calls
/// continue after its process has executed another program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallLog {
    /// Calls by thread.
    pub threads: BTreeMap<ThreadId, Vec<LoggedCall>>,
}

impl CallLog {
    /// Reads all logs in a directory. Programs may still be running: a call in progress has no end
    /// yet.
    ///
    /// # Panics
    /// If a file cannot be read or is not a call log.
    #[must_use]
    pub fn read(directory: &Path) -> Self {
        let mut files: Vec<(ThreadId, u64, Vec<LoggedCall>)> = fs::read_dir(directory)
            .expect("the log directory")
            .map(|entry| {
                let path = entry.expect("an entry of the log directory").path();
                let bytes = fs::read(&path).expect("a call log");
                parse(&bytes).unwrap_or_else(|problem| panic!("{}: {problem}", path.display()))
            })
            .collect();
        // The files of a thread follow each other.
        files.sort_by_key(|(_, opened, _)| *opened);
        let mut log = Self::default();
        for (thread, _, calls) in files {
            log.threads.entry(thread).or_default().extend(calls);
        }
        log
    }

    /// Counts the calls in a directory's logs, of one process or of all, without reading them: to
    /// wait until a program has made some.
    ///
    /// # Panics
    /// If a file cannot be read.
    #[must_use]
    pub fn count(directory: &Path, pid: Option<u32>) -> usize {
        let prefix = pid.map_or_else(String::new, |pid| format!("{pid}-"));
        fs::read_dir(directory)
            .expect("the log directory")
            .map(|entry| entry.expect("an entry of the log directory"))
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
            .map(|entry| {
                let file = File::open(entry.path()).expect("a call log");
                let length = file.metadata().expect("a call log").len();
                records_used(&file, (length / RECORD as u64) as usize)
            })
            .sum()
    }

    /// Number of calls of all threads.
    #[must_use]
    pub fn len(&self) -> usize {
        self.threads.values().map(Vec::len).sum()
    }

    /// Whether nothing was logged.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All calls, thread by thread.
    pub fn calls(&self) -> impl Iterator<Item = &LoggedCall> {
        self.threads.values().flatten()
    }

    /// Ids of the processes that made calls.
    #[must_use]
    pub fn processes(&self) -> Vec<u32> {
        let mut pids: Vec<u32> = self.threads.keys().map(|(pid, _)| *pid).collect();
        pids.dedup();
        pids
    }
}

/// The number of a file's `records`, including the header, that are in use. Records are used from
/// the start without gaps.
fn records_used(file: &File, records: usize) -> usize {
    let used = |index: usize| {
        let mut first = [0];
        file.read_exact_at(&mut first, (index * RECORD) as u64)
            .is_ok()
            && first != [0]
    };
    let (mut low, mut high) = (1, records.max(1));
    while low < high {
        let middle = low.midpoint(high);
        if used(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low - 1
}

/// The thread, the time when the file was opened, and the calls.
fn parse(bytes: &[u8]) -> Result<(ThreadId, u64, Vec<LoggedCall>), String> {
    let (header, records) = bytes
        .split_at_checked(RECORD)
        .ok_or("shorter than its header")?;
    if !header.starts_with(MAGIC) {
        return Err("not a call log".to_owned());
    }
    let number = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
    if (number(8), number(12)) != (VERSION, RECORD as u32) {
        return Err("a call log of another version; rebuild the workloads".to_owned());
    }
    let calls = records
        .chunks_exact(RECORD)
        .take_while(|record| record[0] != 0)
        .map(|record| call(record, word(header, 32)))
        .collect();
    Ok(((number(16), number(20)), word(header, 24), calls))
}

fn call(record: &[u8], image: u64) -> LoggedCall {
    let name = record[..NAME]
        .split(|byte| *byte == 0)
        .next()
        .unwrap_or_default();
    let field = |index: usize| word(record, NAME + 8 * index);
    let words_known = field(4) & 0xffff_ffff != 0;
    let words = std::array::from_fn(|index| Masked {
        value: field(5 + index),
        mask: field(5 + WORDS + index),
    });
    LoggedCall {
        name: String::from_utf8_lossy(name).into_owned(),
        begin: field(0),
        end: Some(field(1)).filter(|end| *end != 0),
        result: Masked {
            value: field(2),
            mask: field(3),
        },
        image,
        words: words_known.then_some(words),
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(pid: u32, tid: u32, opened: u64) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        for number in [VERSION, RECORD as u32, pid, tid] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(opened.to_le_bytes());
        bytes.resize(RECORD, 0);
        bytes
    }

    fn record(name: &str, fields: &[u64]) -> Vec<u8> {
        let mut bytes = name.as_bytes().to_vec();
        bytes.resize(NAME, 0);
        bytes.extend(fields.iter().flat_map(|field| field.to_le_bytes()));
        bytes.resize(RECORD, 0);
        bytes
    }

    #[test]
    fn files_of_a_thread_are_put_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let mut first = header(7, 8, 100);
        first.extend(record("hipInit", &[10, 20, 100, 0xffff_ffff, 1, 3]));
        first.extend(record("hipFree", &[30, 0, 0, 0, 0]));
        first.resize(RECORD * 10, 0);
        let mut second = header(7, 8, 200);
        second.extend(record("hipMalloc", &[40, 50]));
        fs::write(directory.path().join("b"), first).unwrap();
        fs::write(directory.path().join("a"), second).unwrap();

        let log = CallLog::read(directory.path());
        assert_eq!(log.processes(), [7]);
        let calls = &log.threads[&(7, 8)];
        let names: Vec<_> = calls.iter().map(|call| call.name.as_str()).collect();
        assert_eq!(names, ["hipInit", "hipFree", "hipMalloc"]);
        assert_eq!((calls[0].begin, calls[0].end), (10, Some(20)));
        assert_eq!(calls[0].words.unwrap()[0].value, 3);
        assert!(calls[0].result.matches(0xdead_0000_0064));
        assert!(!calls[0].result.matches(0x65));
        assert_eq!((calls[1].end, calls[1].words), (None, None));
        assert_eq!(log.len(), 3);
        assert_eq!(CallLog::count(directory.path(), None), 3);
    }

    #[test]
    fn calls_are_counted_by_process() {
        let directory = tempfile::tempdir().unwrap();
        for (name, calls) in [("7-7-1", 5), ("7-8-1", 0), ("70-70-1", 9)] {
            let mut file = header(7, 7, 1);
            for _ in 0..calls {
                file.extend(record("hipInit", &[1]));
            }
            file.resize(RECORD * 10, 0);
            fs::write(directory.path().join(name), file).unwrap();
        }
        let count = |pid| CallLog::count(directory.path(), pid);
        assert_eq!((count(Some(7)), count(Some(70)), count(None)), (5, 9, 14));
    }

    #[test]
    fn other_files_are_refused() {
        assert!(parse(b"").is_err());
        assert!(parse(&[0; RECORD]).is_err());
        let mut newer = header(1, 1, 1);
        newer[8] = 99;
        assert!(parse(&newer).is_err());
    }
}
