//! Makes valid and invalid requests to the real driver, and checks the recording of them.
//!
//! [`issue`] makes every existing request, and some that do not exist, and logs their input, output
//! and times. [`check`] compares a capture of that program with the log, byte for byte.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufRead as _, BufReader, Write as _},
    os::fd::AsRawFd as _,
    path::Path,
    sync::Mutex,
    thread,
};

use anyhow::{Context as _, Result, bail, ensure};
use gputrace_abi::kfd::{
    Ioctl, LONG_DATA, LONG_IOCTL_SIZE, LongIoctl, SHORT_IOCTL_SIZE, ShortIoctl, ioctl_flags,
    size_of_request,
};
use gputrace_abi::{domain::Domain, record::kind};
use gputrace_capture::{Block, CaptureReader, Meta, records};
use gputrace_kfd::ioctl::{Direction, IOCTLS};
use zerocopy::FromBytes as _;

/// Results of a request during which the program is killed: `-EINTR`, or `-ERESTARTSYS` of
/// `linux/errno.h`.
const INTERRUPTED: [i64; 2] = [-4, -512];

/// A request and its outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Made {
    tid: u32,
    request: u32,
    argument: u64,
    /// A non-negative number, or an error number.
    result: i64,
    /// Times before and after, ns `CLOCK_BOOTTIME`; 0 if it never returned.
    time: [u64; 2],
    /// Empty if the argument was an invalid pointer.
    before: Vec<u8>,
    after: Vec<u8>,
}

/// `_IOC` of `asm-generic/ioctl.h`.
const fn number(direction: Direction, base: u8, nr: u8, size: usize) -> u32 {
    direction.bits() << 30 | (size as u32 & 0x3fff) << 16 | (base as u32) << 8 | nr as u32
}

/// `AMDKFD_IOC_WAIT_EVENTS`, `AMDKFD_IOC_CREATE_EVENT`, `AMDKFD_IOC_SET_EVENT`.
const WAIT_EVENTS: u32 = number(Direction::ReadWrite, b'K', 0x0c, 24);
const CREATE_EVENT: u32 = number(Direction::ReadWrite, b'K', 0x08, 32);
const SET_EVENT: u32 = number(Direction::Write, b'K', 0x0a, 8);

/// Makes requests and logs them.
struct Maker {
    device: File,
    log: Mutex<File>,
}

impl Maker {
    /// Makes a request with the structure `bytes`; returns the structure afterwards and the result.
    fn make(&self, request: u32, bytes: &[u8]) -> Result<(Vec<u8>, i64)> {
        let mut structure = bytes.to_vec();
        let argument = structure.as_mut_ptr() as u64;
        let (result, time) = self.call(request, argument);
        self.write(&Made {
            tid: tid(),
            request,
            argument,
            result,
            time,
            before: bytes.to_vec(),
            after: structure.clone(),
        })?;
        Ok((structure, result))
    }

    /// Makes a request whose argument is an invalid pointer.
    fn make_at(&self, request: u32, argument: u64) -> Result<()> {
        let (result, time) = self.call(request, argument);
        self.write(&Made {
            tid: tid(),
            request,
            argument,
            result,
            time,
            before: Vec::new(),
            after: Vec::new(),
        })
    }

    fn call(&self, request: u32, argument: u64) -> (i64, [u64; 2]) {
        let before = now();
        // SAFETY: the driver reads and writes at most the size in the request, which is that of the
        // structure.
        let result =
            unsafe { libc::syscall(libc::SYS_ioctl, self.device.as_raw_fd(), request, argument) };
        let result = if result < 0 {
            -i64::from(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
        } else {
            result
        };
        (result, [before, now()])
    }

    fn write(&self, made: &Made) -> Result<()> {
        let line = format!(
            "{} {:x} {:x} {} {} {} .{} .{}\n",
            made.tid,
            made.request,
            made.argument,
            made.result,
            made.time[0],
            made.time[1],
            hex(&made.before),
            hex(&made.after)
        );
        let mut log = self
            .log
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        Ok(log.write_all(line.as_bytes())?)
    }
}

/// Makes all requests and logs them in the file `log`.
///
/// # Errors
///
/// When the driver cannot be opened or the log cannot be written.
pub(crate) fn issue(log: &Path) -> Result<()> {
    let maker = Maker {
        device: File::options()
            .read(true)
            .write(true)
            .open("/dev/kfd")
            .context("cannot open /dev/kfd")?,
        log: Mutex::new(File::create(log)?),
    };
    // A request to another device, which must not be recorded.
    let other = File::open("/dev/null")?;
    // SAFETY: /dev/null supports no requests.
    unsafe { libc::syscall(libc::SYS_ioctl, other.as_raw_fd(), SET_EVENT, 0) };

    for ioctl in IOCTLS {
        let sizes = if ioctl.sizes.is_empty() {
            &[(24, 0)]
        } else {
            ioctl.sizes
        };
        for (size, _) in sizes {
            let request = number(ioctl.direction, b'K', ioctl.nr, usize::from(*size));
            maker.make(request, &vec![0; usize::from(*size)])?;
            // Numbers without a meaning; a wait with a list of that length is refused at once.
            let pattern: Vec<u8> = (0..*size).map(|index| index as u8 | 0x40).collect();
            maker.make(request, &pattern)?;
            maker.make_at(request, 8)?;
        }
    }
    // Unknown numbers, a type other than KFD's (which KFD does not check), and sizes other than the
    // driver's.
    for (request, size) in [
        (number(Direction::ReadWrite, b'K', 0x60, 16), 16),
        (number(Direction::None, b'K', 0xff, 0), 0),
        (number(Direction::Read, b'X', 0x01, 8), 8),
        (number(Direction::ReadWrite, b'K', 0x05, 64), 64),
        (number(Direction::ReadWrite, b'K', 0x05, 8), 8),
        (
            number(Direction::ReadWrite, b'K', 0x20, 24 + 8 * 100),
            24 + 8 * 100,
        ),
    ] {
        maker.make(request, &vec![7; size])?;
    }
    events(&maker)?;
    child(&maker)
}

/// Events: created, waited for in vain, set, and waited for by a thread that is still waiting at
/// the end.
fn events(maker: &Maker) -> Result<()> {
    let (created, result) = maker.make(CREATE_EVENT, &[0; 32])?;
    ensure!(result == 0, "the driver made no event: {result}");
    let id = u32::from_le_bytes(created.get(24..28).context("short")?.try_into()?);
    // `struct kfd_event_data`, 48 bytes with the event's number at offset 40.
    let mut list = [0u8; 96];
    list[40..44].copy_from_slice(&id.to_le_bytes());
    list[88..92].copy_from_slice(&id.to_le_bytes());
    let wait = |count: u32, milliseconds: u32| {
        let mut structure = [0u8; 24];
        structure[..8].copy_from_slice(&(list.as_ptr() as u64).to_le_bytes());
        structure[8..12].copy_from_slice(&count.to_le_bytes());
        structure[16..20].copy_from_slice(&milliseconds.to_le_bytes());
        structure
    };
    maker.make(WAIT_EVENTS, &wait(1, 20))?;
    maker.make(WAIT_EVENTS, &wait(2, 0))?;
    let mut set = [0; 8];
    set[..4].copy_from_slice(&id.to_le_bytes());
    thread::scope(|scope| {
        let waiter = scope.spawn(|| maker.make(WAIT_EVENTS, &wait(1, u32::MAX)));
        maker.make(SET_EVENT, &set)?;
        waiter
            .join()
            .unwrap_or_else(|_| bail!("the waiter failed"))
            .map(drop)
    })
}

/// A child, for which the descriptor is invalid, and which ends while one of its threads waits.
fn child(maker: &Maker) -> Result<()> {
    // SAFETY: this program has no other threads at this point.
    match unsafe { libc::fork() } {
        -1 => bail!("cannot fork"),
        0 => {
            let made = maker.make(number(Direction::Read, b'K', 0x01, 8), &[1; 8]);
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(made.is_err())) }
        }
        child => {
            let mut status = 0;
            // SAFETY: waits for the child.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            ensure!(status == 0, "the child failed");
        }
    }
    // When the program ends, one thread is waiting for an event that never comes.
    let (created, _) = maker.make(CREATE_EVENT, &[0; 32])?;
    let id: [u8; 4] = created.get(24..28).context("short")?.try_into()?;
    let (sender, receiver) = std::sync::mpsc::channel();
    thread::scope(|scope| -> Result<()> {
        scope.spawn(|| {
            let mut list = [0u8; 48];
            list[40..44].copy_from_slice(&id);
            let mut structure = [0u8; 24];
            structure[..8].copy_from_slice(&(list.as_ptr() as u64).to_le_bytes());
            structure[8] = 1;
            structure[16..20].copy_from_slice(&u32::MAX.to_le_bytes());
            let written = maker.write(&Made {
                tid: tid(),
                request: WAIT_EVENTS,
                argument: structure.as_ptr() as u64,
                result: INTERRUPTED[0],
                time: [now(), 0],
                before: structure.to_vec(),
                after: structure.to_vec(),
            });
            let _ = sender.send((tid(), written.is_ok()));
            maker.call(WAIT_EVENTS, structure.as_mut_ptr() as u64);
        });
        let (waiter, written) = receiver.recv()?;
        ensure!(written, "the log cannot be written");
        // The thread sleeps only when it is in the driver.
        loop {
            let stat = fs::read_to_string(format!("/proc/self/task/{waiter}/stat"))?;
            if stat
                .rsplit(')')
                .next()
                .is_some_and(|rest| rest.trim_start().starts_with('S'))
            {
                break;
            }
            thread::yield_now();
        }
        // SAFETY: ends the program while its thread is in the driver.
        unsafe { libc::_exit(0) }
    })
}

/// Compares a capture with the log.
///
/// # Errors
///
/// Describes the first difference.
pub(crate) fn check(log: &Path, capture: &Path) -> Result<String> {
    let mut expected: BTreeMap<u32, Vec<Made>> = BTreeMap::new();
    for line in BufReader::new(File::open(log)?).lines() {
        let made = parse(&line?).context("a line of the log makes no sense")?;
        expected.entry(made.tid).or_default().push(made);
    }
    let (mut found, mut balance) = (BTreeMap::<u32, Vec<(Ioctl, Vec<u8>, Vec<u8>)>>::new(), None);
    let mut reader = CaptureReader::open(capture)?;
    while let Some(block) = reader.next_block()? {
        match block {
            Block::Records(run) => {
                for raw in records::split(run)
                    .flatten()
                    .filter(|raw| raw.header.kind == kind::IOCTL)
                {
                    let (ioctl, before, after) = match raw.bytes.len() {
                        SHORT_IOCTL_SIZE => {
                            let short = ShortIoctl::read_from_bytes(raw.bytes)
                                .ok()
                                .context("size")?;
                            (short.ioctl, short.before.to_vec(), short.after.to_vec())
                        }
                        LONG_IOCTL_SIZE => {
                            let long =
                                LongIoctl::read_from_bytes(raw.bytes).ok().context("size")?;
                            (long.ioctl, long.before.to_vec(), long.after.to_vec())
                        }
                        other => bail!("a record of {other} bytes"),
                    };
                    found
                        .entry(ioctl.tid)
                        .or_default()
                        .push((ioctl, before, after));
                }
            }
            Block::Meta(Meta::Ledger(ledger)) if ledger.complete => {
                balance = ledger
                    .by_domain()
                    .into_iter()
                    .find(|row| row.domain == Domain::KfdIoctl.id());
            }
            _ => {}
        }
    }
    let count: usize = expected.values().map(Vec::len).sum();
    let balance = balance.context("the capture has no account of requests")?;
    ensure!(
        balance.seen == count as u64 && balance.written == count as u64 && balance.lost() == 0,
        "{count} requests were made, the account says {balance:?}"
    );
    ensure!(
        found.keys().eq(expected.keys()),
        "threads {:?} made requests, the capture has {:?}",
        expected.keys(),
        found.keys()
    );
    for (tid, made) in &expected {
        let mut recorded = found.remove(tid).unwrap_or_default();
        recorded.sort_by_key(|(ioctl, ..)| ioctl.begin);
        ensure!(
            recorded.len() == made.len(),
            "thread {tid}: {} requests, {} recorded",
            made.len(),
            recorded.len()
        );
        for (made, (ioctl, before, after)) in made.iter().zip(&recorded) {
            compare(made, ioctl, before, after)
                .with_context(|| format!("{made:x?}\n{ioctl:x?}"))?;
        }
    }
    Ok(format!(
        "{count} requests of {} threads agree",
        expected.len()
    ))
}

fn compare(made: &Made, ioctl: &Ioctl, before: &[u8], after: &[u8]) -> Result<()> {
    ensure!(ioctl.request == made.request, "another request");
    ensure!(ioctl.argument == made.argument, "another argument");
    let expected = if made.time[1] == 0 {
        &INTERRUPTED[..]
    } else {
        &[made.result]
    };
    ensure!(expected.contains(&ioctl.result), "result {}", ioctl.result);
    ensure!(
        made.time[0] <= ioctl.begin && ioctl.begin <= ioctl.end,
        "it begins too early"
    );
    ensure!(
        made.time[1] == 0 || ioctl.end <= made.time[1],
        "it ends too late"
    );
    let size = size_of_request(made.request) as usize;
    ensure!(
        usize::from(ioctl.data) == size.min(LONG_DATA),
        "{} bytes",
        ioctl.data
    );
    let unreadable = ioctl_flags::BEFORE_UNREADABLE | ioctl_flags::AFTER_UNREADABLE;
    if made.before.is_empty() && size > 0 {
        ensure!(
            ioctl.flags & unreadable == unreadable,
            "nothing was there to be read"
        );
        return Ok(());
    }
    ensure!(ioctl.flags & unreadable == 0, "it was not read");
    let held = size.min(LONG_DATA);
    ensure!(
        before.get(..held) == made.before.get(..held),
        "before: {before:x?}"
    );
    if made.time[1] == 0 {
        // The driver has written its answer, but the program did not live to see it.
        return Ok(());
    }
    ensure!(
        after.get(..held) == made.after.get(..held),
        "after: {after:x?}"
    );
    Ok(())
}

fn parse(line: &str) -> Option<Made> {
    let mut words = line.split(' ');
    Some(Made {
        tid: words.next()?.parse().ok()?,
        request: u32::from_str_radix(words.next()?, 16).ok()?,
        argument: u64::from_str_radix(words.next()?, 16).ok()?,
        result: words.next()?.parse().ok()?,
        time: [words.next()?.parse().ok()?, words.next()?.parse().ok()?],
        before: bytes(words.next()?.strip_prefix('.')?)?,
        after: bytes(words.next()?.strip_prefix('.')?)?,
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    hex.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok())
        .collect()
}

fn tid() -> u32 {
    // SAFETY: a system call without arguments.
    unsafe { libc::gettid() }.cast_unsigned()
}

fn now() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes the time into the structure.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    // Times since boot are not negative.
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_round_trip() {
        let line = "7 c0184b0c 7ffd00 -22 5 9 .0102ff .";
        let made = parse(line).unwrap();
        assert_eq!(
            (made.result, made.before.as_slice(), made.after.len()),
            (-22, &[1, 2, 255][..], 0)
        );
        assert_eq!(number(Direction::ReadWrite, b'K', 0x0c, 24), 0xc018_4b0c);
        assert_eq!(parse("7 x"), None);
    }
}
