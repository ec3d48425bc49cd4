//! The process that owns gputrace's events.
//!
//! The kernel frees a definition with several probes even while it is in use, and would then use
//! freed memory. So a definition may be removed only when nobody can have its perf event open any
//! more. A process that may be forked at any time, as gputrace by its threads, cannot know that:
//! children have all descriptors until they execute a program. The process here has no children,
//! and nobody else gets its descriptors.
//!
//! It also waits in gputrace's place. Defining, enabling and removing an event take a lock that
//! other tracers may hold for long, and no signal ends such a wait.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _, Write as _},
    os::{
        fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd},
        unix::net::UnixStream,
    },
    path::PathBuf,
    thread,
    time::Duration,
};

use gputrace_files::kernel;
use zerocopy::{FromZeros as _, IntoBytes as _};

use super::{
    message::{Answer, Place, Request, kind, step},
    names::{GROUP, Owner},
};

/// How long after the last descriptor was closed definitions are removed. Whoever reads about a
/// descriptor of this process in `/proc` has it open for some microseconds.
const PAUSE: Duration = Duration::from_millis(100);

/// Number of probes that are defined between two signs of life.
const STEP: u64 = 64;

/// An event and its definition.
#[derive(Debug)]
struct Event {
    number: u64,
    /// Keeps the event enabled.
    perf: OwnedFd,
}

/// All that the process has.
#[derive(Debug)]
pub(super) struct Events {
    /// The tracing file system.
    pub(super) root: PathBuf,
    /// Its file `uprobe_events`.
    pub(super) definitions: File,
    owner: Owner,
    enabled: Vec<Event>,
    /// Numbers of events that are no longer enabled and still defined.
    disabled: Vec<u64>,
}

impl Events {
    pub(super) fn new(root: PathBuf, definitions: File, namespace: u64) -> Self {
        let pid = rustix::process::getpid().as_raw_pid();
        Self {
            root,
            definitions,
            owner: Owner { pid, namespace },
            enabled: Vec::new(),
            disabled: Vec::new(),
        }
    }

    /// Handles requests until gputrace closes its end, or ends itself. Then removes everything.
    pub(super) fn serve(mut self, end: RawFd) {
        // SAFETY: the helper's own end, which nothing else uses.
        let mut stream = unsafe { UnixStream::from_raw_fd(end) };
        while self.answer(&mut stream).is_ok() {}
        drop(stream);
        let enabled = std::mem::take(&mut self.enabled);
        for event in enabled {
            self.disable(event);
        }
        thread::sleep(PAUSE);
        self.remove_disabled();
    }

    /// Handles one request. Fails when there will be no more.
    fn answer(&mut self, stream: &mut UnixStream) -> io::Result<()> {
        let pause = (!self.disabled.is_empty()).then_some(PAUSE);
        stream.set_read_timeout(pause)?;
        let mut request = Request::new_zeroed();
        let (first, rest) = request.as_mut_bytes().split_at_mut(1);
        match stream.read(first) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.remove_disabled();
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        stream.set_read_timeout(None)?;
        stream.read_exact(rest)?;
        let answer = match request.kind {
            kind::ATTACH => self.attach(stream, &request)?,
            kind::DETACH => {
                let is_it = |event: &Event| event.number == request.number;
                if let Some(at) = self.enabled.iter().position(is_it) {
                    let event = self.enabled.swap_remove(at);
                    self.disable(event);
                }
                return Ok(());
            }
            kind::FORGET => {
                self.forget(request.text());
                return Ok(());
            }
            kind::LOOK => self.look().map_err(|error| failed(step::DEFINE, &error)),
            _ => Ok(()),
        };
        let (step, error) = answer.err().unwrap_or((step::DONE, 0));
        stream.write_all(Answer { step, error }.as_bytes())
    }

    /// Defines an event, enables it and runs a program at it. Fails for good if gputrace is gone,
    /// otherwise with the step that failed and the error.
    fn attach(
        &mut self,
        stream: &mut UnixStream,
        request: &Request,
    ) -> io::Result<Result<(), (u32, i32)>> {
        let name = self.owner.name(request.number);
        let mut outcome = Ok(());
        for place in 0..u64::from(request.count) {
            let mut point = Place::new_zeroed();
            stream.read_exact(point.as_mut_bytes())?;
            if outcome.is_ok() {
                outcome = self.define(&name, request, point);
            }
            if place % STEP == STEP - 1 {
                let (step, error) = (step::ON_THE_WAY, 0);
                stream.write_all(Answer { step, error }.as_bytes())?;
            }
        }
        let enabled = outcome
            .map_err(|error| failed(step::DEFINE, &error))
            .and_then(|()| self.enable(&name, request));
        Ok(match enabled {
            Ok(perf) => {
                let number = request.number;
                self.enabled.push(Event { number, perf });
                Ok(())
            }
            Err(error) => {
                // Not all of it may be defined, and nothing is enabled.
                self.disabled.push(request.number);
                Err(error)
            }
        })
    }

    /// Adds a probe to a definition.
    fn define(&mut self, name: &str, request: &Request, place: Place) -> io::Result<()> {
        let side = if request.is_return == 0 { 'p' } else { 'r' };
        let (path, offset) = (request.text(), place.offset);
        let cookie = place.cookie;
        let line = format!("{side}:{GROUP}/{name} {path}:{offset:#x} cookie=\\{cookie:#x}:x64\n");
        self.definitions.write_all(line.as_bytes())
    }

    /// Enables an event, and runs the program at it.
    fn enable(&self, name: &str, request: &Request) -> Result<OwnedFd, (u32, i32)> {
        let file = self.root.join("events").join(GROUP).join(name).join("id");
        let id = kernel::read_text(file).and_then(|text| {
            let number = text.trim().parse();
            number.map_err(|_| io::ErrorKind::InvalidData.into())
        });
        let perf = id
            .and_then(|id| perf_event(id, request.pid))
            .map_err(|error| failed(step::ENABLE, &error))?;
        /// `PERF_EVENT_IOC_SET_BPF` of `linux/perf_event.h`.
        const SET_BPF: libc::c_ulong = 0x4004_2408;
        // SAFETY: two descriptors of this process.
        let result = unsafe { libc::ioctl(perf.as_raw_fd(), SET_BPF, request.program) };
        if result == 0 {
            Ok(perf)
        } else {
            Err(failed(step::RUN, &io::Error::last_os_error()))
        }
    }

    /// Takes the kernel's lock on events.
    fn look(&mut self) -> io::Result<()> {
        self.definitions.rewind()?;
        self.definitions.read(&mut [0]).map(drop)
    }

    /// Removes the breakpoints of an event. Takes a grace period.
    fn disable(&mut self, event: Event) {
        self.disabled.push(event.number);
        drop(event.perf);
    }

    /// Removes the definitions of events that are no longer enabled.
    fn remove_disabled(&mut self) {
        for number in std::mem::take(&mut self.disabled) {
            self.forget(&self.owner.name(number));
        }
    }

    /// Removes a definition. It may not exist, if its first probe was refused.
    fn forget(&self, name: &str) {
        let line = format!("-:{GROUP}/{name}\n");
        let _ = (&self.definitions).write_all(line.as_bytes());
    }
}

fn failed(step: u32, error: &io::Error) -> (u32, i32) {
    (step, error.raw_os_error().unwrap_or(libc::EINVAL))
}

/// Enables the tracepoint `id` for a process, or for all (-1).
fn perf_event(id: u64, pid: i32) -> io::Result<OwnedFd> {
    /// The first version of `struct perf_event_attr`, `PERF_ATTR_SIZE_VER0`.
    #[derive(Default)]
    #[repr(C)]
    struct Attributes {
        kind: u32,
        size: u32,
        config: u64,
        rest: [u64; 6],
    }
    /// `PERF_TYPE_TRACEPOINT`.
    const TRACEPOINT: u32 = 2;
    /// `PERF_FLAG_FD_CLOEXEC`.
    const CLOSE_ON_EXEC: libc::c_ulong = 8;
    let attributes = Attributes {
        kind: TRACEPOINT,
        size: size_of::<Attributes>() as u32,
        config: id,
        ..Attributes::default()
    };
    // An event of all processes belongs to one processor, which must be online. Its program runs on
    // all of them.
    let cpu = if pid == -1 {
        rustix::thread::sched_getcpu() as libc::c_int
    } else {
        -1
    };
    // SAFETY: the kernel reads as many bytes as `size` says.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            std::ptr::from_ref(&attributes),
            pid,
            cpu,
            -1,
            CLOSE_ON_EXEC,
        )
    };
    match RawFd::try_from(fd) {
        // SAFETY: the kernel has just created this descriptor, and nothing else owns it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}
