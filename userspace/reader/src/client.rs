//! Sends requests to a helper process.

use std::{
    cell::RefCell,
    io,
    os::{fd::OwnedFd, unix::process::CommandExt as _},
    process::{Child, Command, Stdio},
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use gputrace_files::kernel;
use rustix::{
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType,
        sockopt::{self, Timeout},
    },
};

use crate::{
    message::{ANSWER, Answer, PIECE, PLACES, Question, What},
    run::{self, Look, Run},
    serve::NAME,
    stuck,
};

/// Maximum wait for an answer: a thousand times the usual time, and enough for a disk to read a
/// page.
const PATIENCE: Duration = Duration::from_millis(200);

/// Maximum wait for an answer when many processes do not answer.
const LEAST_PATIENCE: Duration = Duration::from_millis(20);

/// Maximum wait for an answer when the recording is over.
const LAST_PATIENCE: Duration = Duration::from_millis(10);

/// Maximum time for a helper to get a processor, or to go on if somebody has stopped it.
const STARVED: Duration = Duration::from_secs(2);
const LAST_STARVED: Duration = Duration::from_millis(100);

/// Maximum time for a helper to start: its program may have to be read from a busy disk.
const START: Duration = Duration::from_secs(10);

/// How often to check, while a helper starts, whether there is a hurry now.
const START_LOOK: Duration = Duration::from_millis(50);

/// Maximum number of helpers that SIGKILL has not ended. When it is reached, nothing is read any
/// more.
const MOST_LEFT: usize = 64;

/// Stands for an unknown process; no process has this id.
const NOBODY: u32 = 0;

/// Stands for a helper that got no processor in time; it is not the process's fault.
const HELD_UP: Errno = Errno::BUSY;

/// Number of requests that helpers did not answer because they were held up.
static UNANSWERED: AtomicU64 = AtomicU64::new(0);

static HURRY: OnceLock<Instant> = OnceLock::new();

static LEFT: Mutex<Vec<Child>> = Mutex::new(Vec::new());

thread_local! {
    /// This thread's helper.
    static HELPER: RefCell<Option<Helper>> = const { RefCell::new(None) };
}

/// See [`crate::hurry_from`].
pub(crate) fn hurry_from(deadline: Instant) {
    // If a deadline was set before, that one stays.
    let _ = HURRY.set(deadline);
}

/// See [`crate::take_unanswered`].
pub(crate) fn take_unanswered() -> u64 {
    UNANSWERED.swap(0, Ordering::Relaxed)
}

/// See [`crate::memory`].
pub(crate) fn memory(pid: u32, address: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    for piece in buffer.chunks_mut(PIECE) {
        let Some(address) = address.checked_add(done as u64) else {
            break;
        };
        let question = Question {
            pid,
            length: piece.len() as u64,
            what: What::Memory { address },
        };
        let mut got = 0;
        ask(&question, |bytes| {
            if let Some(place) = piece.get_mut(got..got + bytes.len()) {
                place.copy_from_slice(bytes);
                got += bytes.len();
            }
        })?;
        done += got;
        if got < piece.len() {
            break;
        }
    }
    Ok(done)
}

/// See [`crate::places`]. Reads at most as many places as one request allows.
pub(crate) fn places(pid: u32, addresses: &[u64], each: usize) -> io::Result<Vec<u8>> {
    let addresses: Vec<u8> = addresses
        .iter()
        .flat_map(|address| address.to_ne_bytes())
        .collect();
    let question = Question {
        pid,
        length: each as u64,
        what: What::Places(&addresses),
    };
    let mut all = Vec::new();
    ask(&question, |bytes| all.extend_from_slice(bytes))?;
    Ok(all)
}

/// See [`crate::run()`].
pub(crate) fn run(run: &Run) -> io::Result<Vec<Look>> {
    let now = Instant::now();
    let places = run.places.iter().take(PLACES);
    let is_asked: Vec<bool> = places
        .clone()
        .map(|(pid, _)| !stuck::is_left_alone(*pid, now))
        .collect();
    let asked = Run {
        places: places
            .zip(&is_asked)
            .filter_map(|(place, is_asked)| is_asked.then_some(*place))
            .collect(),
        ..run.clone()
    };
    let Some((first, _)) = asked.places.first() else {
        return Err(no_answer());
    };
    let is_alone = asked.places.iter().all(|(pid, _)| pid == first);
    let question = Question {
        // With several processes, it is unknown which one did not answer.
        pid: if is_alone { *first } else { NOBODY },
        length: u64::from(run.between),
        what: What::Run(&asked.encode()),
    };
    let mut all = Vec::new();
    ask_for(&question, run::patience(run), |bytes| {
        all.extend_from_slice(bytes);
    })?;
    let mut looks = run::decode(asked.places.len(), &all);
    if asked.places.len() < is_asked.len() {
        for look in &mut looks {
            let mut pairs = look.pairs.iter().copied();
            let all = is_asked
                .iter()
                .map(|is_asked| is_asked.then(|| pairs.next().flatten()).flatten());
            look.pairs = all.collect();
        }
    }
    Ok(looks)
}

/// See [`crate::helper_time`].
pub(crate) fn helper_time() -> Duration {
    HELPER.with_borrow(|helper| {
        let child = helper.as_ref().and_then(|helper| helper.child.as_ref());
        child
            .and_then(|child| time_of(child.id()))
            .unwrap_or_default()
    })
}

/// Processor time that a process has used.
fn time_of(pid: u32) -> Option<Duration> {
    let pid = libc::pid_t::try_from(pid).ok()?;
    let mut clock = 0;
    // SAFETY: writes a number to a local variable.
    let failed = unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) };
    if failed != 0 {
        return None;
    }
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes to a local structure of the right type.
    let failed = unsafe { libc::clock_gettime(clock, &raw mut time) };
    let (seconds, ns) = (
        u64::try_from(time.tv_sec).ok()?,
        u32::try_from(time.tv_nsec).ok()?,
    );
    (failed == 0).then(|| Duration::new(seconds, ns))
}

/// See [`crate::file`].
pub(crate) fn file(pid: u32, name: &str, limit: u64) -> io::Result<Vec<u8>> {
    let question = Question {
        pid,
        length: limit,
        what: What::File(name),
    };
    let mut all = Vec::new();
    ask(&question, |bytes| all.extend_from_slice(bytes))?;
    Ok(all)
}

/// Sends a request to this thread's helper, and passes its answer to `take`.
fn ask(question: &Question<'_>, take: impl FnMut(&[u8])) -> io::Result<()> {
    ask_for(question, Duration::ZERO, take)
}

/// Like [`ask`], for a request that takes an additional time, `besides`.
fn ask_for(question: &Question<'_>, besides: Duration, take: impl FnMut(&[u8])) -> io::Result<()> {
    let now = Instant::now();
    if stuck::is_left_alone(question.pid, now) {
        return Err(no_answer());
    }
    HELPER.with_borrow_mut(|helper| {
        let asked = match helper {
            Some(helper) => helper,
            None => helper.insert(Helper::start()?),
        };
        match asked.ask(question, now, besides, take) {
            Ok(0) => Ok(()),
            Ok(error) => Err(io::Error::from_raw_os_error(error)),
            Err(failure) => {
                if let Some(helper) = helper.take() {
                    helper.leave();
                }
                if failure == HELD_UP {
                    UNANSWERED.fetch_add(1, Ordering::Relaxed);
                    return Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        "gputrace's own reader was stopped, or got no processor",
                    ));
                }
                if failure == Errno::TIMEDOUT {
                    if question.pid == NOBODY {
                        return Err(no_answer());
                    }
                    stuck::add(question.pid, Instant::now());
                    return Err(no_answer());
                }
                Err(failure.into())
            }
        }
    })
}

fn no_answer() -> io::Error {
    io::Error::new(
        io::ErrorKind::TimedOut,
        "the process does not answer: reads of its memory hang",
    )
}

/// A running helper. Dropping it ends the helper.
struct Helper {
    /// Taken when the helper is left behind.
    child: Option<Child>,
    socket: OwnedFd,
    /// Current timeout of the socket.
    patience: Option<Duration>,
    /// Buffer for answers.
    packet: Vec<u8>,
}

impl Helper {
    fn start() -> io::Result<Self> {
        let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
        left.retain_mut(|child| !matches!(child.try_wait(), Ok(Some(_)) | Err(_)));
        if left.len() >= MOST_LEFT {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "reads of memory hang in too many processes, so gputrace reads no more",
            ));
        }
        drop(left);
        let (socket, theirs) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        // Runs gputrace's own program, whatever has happened to its file. It gets its own process
        // group, so that Ctrl-C does not reach it.
        let child = Command::new("/proc/self/exe")
            .arg0(NAME)
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let mut helper = Self {
            child: Some(child),
            socket,
            patience: None,
            packet: vec![0; ANSWER + PIECE],
        };
        match helper.wait_for_greeting() {
            Ok(()) => Ok(helper),
            Err(errno) => {
                helper.leave();
                Err(errno.into())
            }
        }
    }

    /// Waits until the helper reports that it is ready.
    fn wait_for_greeting(&mut self) -> Result<(), Errno> {
        let started = Instant::now();
        loop {
            match self.receive(START_LOOK, START_LOOK) {
                Ok(0) => return Err(Errno::PIPE),
                Ok(_) => return Ok(()),
                Err(Errno::TIMEDOUT | HELD_UP) => {
                    let is_late = HURRY
                        .get()
                        .is_some_and(|hurry| Instant::now() >= *hurry + LAST_STARVED);
                    if is_late || started.elapsed() >= START {
                        return Err(Errno::TIMEDOUT);
                    }
                }
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Sends a request, and returns the error number in the answer. Fails with `TIMEDOUT` if there
    /// is no answer, with [`HELD_UP`] if that is the helper's fault.
    fn ask(
        &mut self,
        question: &Question<'_>,
        now: Instant,
        besides: Duration,
        mut take: impl FnMut(&[u8]),
    ) -> Result<i32, Errno> {
        rustix::net::send(&self.socket, &question.encode(), SendFlags::NOSIGNAL)?;
        let is_late = HURRY.get().is_some_and(|hurry| now >= *hurry);
        let (patience, starved) = if is_late {
            (LAST_PATIENCE, LAST_STARVED)
        } else {
            // If many processes do not answer, the next one must not wait for all of them.
            let crowd = u32::try_from(stuck::count()).unwrap_or(u32::MAX);
            (
                (PATIENCE / crowd.saturating_add(1)).max(LEAST_PATIENCE),
                STARVED,
            )
        };
        loop {
            let got = self.receive(patience + besides, starved)?;
            let packet = self.packet.get(..got).unwrap_or_default();
            // The end of the socket is not an answer.
            let answer = Answer::decode(packet).ok_or(Errno::PIPE)?;
            take(answer.bytes);
            if !answer.goes_on {
                return Ok(answer.error);
            }
        }
    }

    /// Waits for a packet, and returns its size in bytes.
    fn receive(&mut self, patience: Duration, starved: Duration) -> Result<usize, Errno> {
        let asked = Instant::now();
        self.set_timeout(patience)?;
        loop {
            match rustix::net::recv(&self.socket, &mut self.packet[..], RecvFlags::empty()) {
                Ok((got, _)) => return Ok(got),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if !self.is_held_up() => return Err(Errno::TIMEDOUT),
                Err(Errno::AGAIN) if asked.elapsed() < starved => {}
                Err(Errno::AGAIN) => return Err(HELD_UP),
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Sets the timeout of the socket.
    fn set_timeout(&mut self, patience: Duration) -> Result<(), Errno> {
        if self.patience != Some(patience) {
            sockopt::set_socket_timeout(&self.socket, Timeout::Recv, Some(patience))?;
            self.patience = Some(patience);
        }
        Ok(())
    }

    /// Whether the helper is waiting for a processor, or is stopped; not waiting for a process.
    fn is_held_up(&self) -> bool {
        let state = self
            .child
            .as_ref()
            .map(|child| kernel::state_of_task(child.id()));
        state.flatten().is_some_and(|state| b"RTt".contains(&state))
    }

    /// Kills the helper without waiting for its end, which may never come.
    fn leave(mut self) {
        if let Some(mut child) = self.child.take() {
            // This fails only if the helper has ended.
            let _ = child.kill();
            if !matches!(child.try_wait(), Ok(Some(_))) {
                LEFT.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(child);
            }
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // The helper is waiting for a request, so it ends at once.
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
