//! Back-end for kernels without `uprobe_multi`: events of the tracing file system.
//!
//! A perf event that makes its own probe takes the kernel a grace period to remove, under a lock
//! that every other tracer waits for: minutes for all functions of HIP and HSA. A definition in
//! `uprobe_events` can have any number of probes, and one perf event enables all of them. A program
//! then gets one cookie for all, so each probe's definition has its cookie as an argument, which
//! the programs find (`ebpf/probes/src/cookie.rs`).
//!
//! A process of its own owns the events ([`owner`] says why). It ends by itself when gputrace does,
//! however that happens, and removes them.

mod message;
mod names;
mod others;
mod owner;

use std::{
    io::{self, Read as _, Write as _},
    net::Shutdown,
    os::{
        fd::{AsFd as _, AsRawFd as _, RawFd},
        unix::net::UnixStream,
    },
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use gputrace_files::kernel;
use libbpf_rs::ProgramMut;
use zerocopy::{FromZeros as _, IntoBytes as _};

pub use self::names::leftovers;
use self::{
    message::{Answer, Place, Request, kind, step},
    names::pid_namespace,
    owner::Events,
};
use crate::{
    ProbeError,
    attach::{Attached, Backend, Point, Scope, Side, describe},
    helper::{self, Helper},
    tracefs::tracefs,
};

/// How long an answer is waited for before the user is told for whom.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// Time between two such remarks.
const NEXT_WAIT: Duration = Duration::from_secs(10);

/// Time between two looks at who else needs the lock.
const LOOK: Duration = Duration::from_millis(200);

/// If the kernel's lock on events is free sooner than this, nobody else needs it for long.
const QUICK: Duration = Duration::from_millis(50);

/// How long gputrace waits for a sign of life while it records. Before that, Ctrl-C ends it.
const LONGEST_WAIT: Duration = Duration::from_secs(20);

/// How long the end of this process waits for the removal of probes.
const LAST_WAIT: Duration = Duration::from_secs(2);

/// Shows the user why loading waits.
pub type Say<'a> = &'a dyn Fn(&str);

/// Back-end with one perf event for all points of a file and side (Linux 5.5). Attaching 400
/// functions takes some ten milliseconds, detaching about 100.
#[derive(Debug)]
pub struct PerfEvents {
    owner: Arc<Owner>,
}

impl PerfEvents {
    /// Starts the process that owns the events. It keeps the `programs` (their descriptors), which
    /// it is to run. Other threads should not exist: the process is a fork of this one.
    ///
    /// # Errors
    ///
    /// [`ProbeError`] when the tracing file system is not mounted, or may not be written.
    pub fn start(programs: &[RawFd]) -> Result<Self, ProbeError> {
        let root = tracefs()?;
        let path = root.join("uprobe_events");
        let definitions = kernel::open_writable(&path).map_err(|error| {
            let action = format!("write {}", path.display());
            if error.kind() == io::ErrorKind::NotFound {
                let (cause, needs) = (error.to_string(), "CONFIG_UPROBE_EVENTS");
                return ProbeError::Unsupported {
                    action,
                    cause,
                    needs,
                };
            }
            refused(action, &error)
        })?;
        let failed = |error: io::Error| ProbeError::Refused {
            action: "start the process that owns the probes".to_owned(),
            cause: error.to_string(),
            log: Vec::new(),
        };
        let namespace = pid_namespace().ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        let (stream, helpers) = UnixStream::pair().map_err(failed)?;
        // A request of thousands of points fits into the socket, whatever the owner does.
        stream
            .set_write_timeout(Some(LONGEST_WAIT))
            .map_err(failed)?;
        let mut kept = programs.to_vec();
        kept.push(definitions.as_raw_fd());
        let ends = (stream.into(), helpers.into());
        let helper = Helper::fork(c"gputrace-probes", ends, |end| {
            kept.push(end);
            helper::close_all_but(&mut kept);
            Events::new(root, definitions, namespace).serve(end);
        });
        let helper = helper.map_err(failed)?;
        let owner = Arc::new(Owner {
            pid: helper.pid,
            stream: Mutex::new(helper.end.into()),
            next: AtomicU64::new(0),
        });
        // Left behind by owners that were killed, or whose ids this owner has got.
        let is_reused = |one: names::Owner| one.pid == helper.pid && one.namespace == namespace;
        for name in leftovers().iter().chain(&names::of(is_reused)) {
            owner.tell(kind::FORGET, 0, name);
        }
        Ok(Self { owner })
    }
}

impl Backend for PerfEvents {
    fn name(&self) -> &'static str {
        "perf"
    }

    fn attach(
        &self,
        program: &ProgramMut<'_>,
        path: &Path,
        scope: Scope,
        side: Side,
        points: &[Point],
    ) -> Result<Attached, ProbeError> {
        let number = self.owner.next.fetch_add(1, Ordering::Relaxed);
        // The kernel looks the path up in the process of the owner.
        let path = path_here(path);
        let action = || describe(path.as_ref(), side, points);
        let too_long = || refused(action(), &io::Error::from_raw_os_error(libc::ENAMETOOLONG));
        let mut request = Request::new(kind::ATTACH, number, &path).ok_or_else(too_long)?;
        request.count = u32::try_from(points.len()).map_err(|_| too_long())?;
        request.program = program.as_fd().as_raw_fd();
        request.pid = scope.pid();
        request.is_return = u32::from(side == Side::Return);
        let mut bytes = request.as_bytes().to_vec();
        for point in points {
            let (offset, cookie) = (point.offset, point.cookie);
            bytes.extend(Place { offset, cookie }.as_bytes());
        }
        self.owner.ask(&bytes, &action, None)?;
        Ok(Attached::Event(Event {
            owner: Arc::clone(&self.owner),
            number,
        }))
    }

    fn wait(&self, say: Option<Say<'_>>) -> Result<(), ProbeError> {
        let begin = Instant::now();
        self.owner.request(kind::LOOK, "probe functions", say)?;
        if begin.elapsed() < QUICK {
            return Ok(());
        }
        // Somebody takes the lock again and again: for the removal of each of many probes.
        let mut wait = Wait::new(say);
        let mut others = others::tracers(self.owner.pid);
        while say.is_some() && !others.is_empty() {
            wait.tell(&others);
            thread::sleep(LOOK);
            others = others::tracers(self.owner.pid);
        }
        Ok(())
    }

    fn settle(&self) {
        // If the owner is gone, so are the probes.
        let _ = self.owner.request(kind::SETTLE, "remove probes", None);
    }

    fn close(&self) {
        // If the owner is gone, so are the probes.
        let _ = self.owner.stream().shutdown(Shutdown::Both);
    }

    fn is_alive(&self) -> bool {
        !helper::has_ended(self.owner.pid)
    }
}

/// An enabled event. Dropping it has its owner remove it, which takes a moment that nobody waits
/// for: [`Backend::settle`] does.
#[derive(Debug)]
pub struct Event {
    owner: Arc<Owner>,
    number: u64,
}

impl Drop for Event {
    fn drop(&mut self) {
        self.owner.tell(kind::DETACH, self.number, "");
    }
}

/// The process that owns the events. Dropping it ends the process.
#[derive(Debug)]
struct Owner {
    pid: libc::pid_t,
    stream: Mutex<UnixStream>,
    /// Number of the next event.
    next: AtomicU64,
}

impl Owner {
    fn stream(&self) -> MutexGuard<'_, UnixStream> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a request that is not answered. If the owner is gone, there is nothing to do.
    fn tell(&self, kind: u32, number: u64, text: &str) {
        if let Some(request) = Request::new(kind, number, text) {
            let _ = self.stream().write_all(request.as_bytes());
        }
    }

    /// Makes a request without places, and waits for the answer.
    fn request(&self, kind: u32, action: &str, say: Option<Say<'_>>) -> Result<(), ProbeError> {
        match Request::new(kind, 0, "") {
            Some(request) => self.ask(request.as_bytes(), &|| action.to_owned(), say),
            None => Ok(()),
        }
    }

    /// Makes a request, and waits for the answer. The wait has a limit, unless the user is told.
    fn ask(
        &self,
        request: &[u8],
        action: &dyn Fn() -> String,
        say: Option<Say<'_>>,
    ) -> Result<(), ProbeError> {
        let failed = |error: io::Error| ProbeError::Refused {
            action: action(),
            cause: format!("the process that owns the probes does not answer: {error}"),
            log: Vec::new(),
        };
        let mut stream = self.stream();
        stream.write_all(request).map_err(failed)?;
        stream.set_read_timeout(Some(FIRST_WAIT)).map_err(failed)?;
        let mut wait = Wait::new(say);
        loop {
            let mut answer = Answer::new_zeroed();
            match stream.read(answer.as_mut_bytes()) {
                // Answers are small enough to arrive as a whole.
                Ok(count) if count == size_of::<Answer>() => {}
                Ok(_) => return Err(failed(io::ErrorKind::UnexpectedEof.into())),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let text = wait.tell(&others::tracers(self.pid));
                    if say.is_some() || wait.begin.elapsed() < LONGEST_WAIT {
                        continue;
                    }
                    // A late answer must not be taken for that to another request.
                    let _ = stream.shutdown(Shutdown::Both);
                    return Err(ProbeError::Refused {
                        action: action(),
                        cause: text,
                        log: Vec::new(),
                    });
                }
                Err(error) => return Err(failed(error)),
            }
            let what = match answer.step {
                step::DONE => return Ok(()),
                step::ON_THE_WAY => {
                    wait = Wait::new(say);
                    continue;
                }
                step::DEFINE => "define a probe",
                step::ENABLE => "enable the probes",
                _ => "run the program",
            };
            let error = io::Error::from_raw_os_error(answer.error);
            return Err(refused(format!("{} ({what})", action()), &error));
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.stream().shutdown(Shutdown::Both);
        let begin = Instant::now();
        while !helper::has_ended(self.pid) && begin.elapsed() < LAST_WAIT {
            thread::sleep(Duration::from_millis(2));
        }
    }
}

/// A wait for the kernel's lock on events.
struct Wait<'a> {
    begin: Instant,
    /// How long it must have taken for the next remark.
    next: Duration,
    say: Option<Say<'a>>,
}

impl<'a> Wait<'a> {
    /// Begins a wait, about which the user is told by `say`.
    fn new(say: Option<Say<'a>>) -> Self {
        Self {
            begin: Instant::now(),
            next: FIRST_WAIT,
            say,
        }
    }

    /// Tells, from time to time, for whom gputrace waits how long. Returns that text.
    fn tell(&mut self, others: &[String]) -> String {
        let waited = self.begin.elapsed();
        let whom = if others.is_empty() {
            "the kernel".to_owned()
        } else {
            others.join(", ")
        };
        let text = format!(
            "has waited {:.0} s for {whom}: only one process at a time can add or remove probes",
            waited.as_secs_f64()
        );
        if waited >= self.next {
            self.next = waited + NEXT_WAIT;
            match self.say {
                Some(say) => say(&format!("{text}; Ctrl-C ends gputrace")),
                None => tracing::debug!("{text}"),
            }
        }
        text
    }
}

/// A path of this process, as another process can use it.
fn path_here(path: &Path) -> String {
    let text = path.to_string_lossy();
    let me = kernel::read_link("/proc/self").unwrap_or_default();
    match text.strip_prefix("/proc/self/") {
        Some(rest) => format!("/proc/{}/{rest}", me.display()),
        None => text.into_owned(),
    }
}

/// The error for a refusal of the system.
fn refused(action: String, error: &io::Error) -> ProbeError {
    if error.kind() == io::ErrorKind::PermissionDenied {
        return ProbeError::PermissionDenied { action };
    }
    ProbeError::Refused {
        action,
        cause: error.to_string(),
        log: Vec::new(),
    }
}
