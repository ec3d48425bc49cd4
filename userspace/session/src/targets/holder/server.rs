//! A helper process that holds threads.

use std::{
    io,
    os::fd::{AsRawFd as _, RawFd},
    time::{Duration, Instant},
};

use gputrace_abi::hold::hold_state;
use gputrace_collect::clocks;
use gputrace_files::kernel::state_of_task;
use gputrace_loader::{
    helper,
    holds::{Held, Holds},
};
use rustix::{
    process::{Pid, getppid},
    thread::{CpuSet, sched_setaffinity},
};

use super::{Released, Word};

/// How often a helper checks whether gputrace still works.
const LOOK: Duration = Duration::from_millis(500);

/// Time after gputrace's last message at which all threads are released. Placing the probes of a
/// library takes seconds at most, but minutes in an emulated machine before Linux 6.6.
const PATIENCE: Duration = Duration::from_mins(2);

/// Number of checks in a row that find gputrace stopped, after which all threads are released. A
/// process that is moved or copied stands still for a moment, too.
const STOPPED: u32 = 4;

/// How often a helper checks threads that have not stopped yet, or that could not be seized.
const OFTEN: Duration = Duration::from_millis(1);

/// How long after the begin of a hold the thread is still seized, ns.
const LATEST: u64 = 10_000_000_000;

/// Number of checks, [`OFTEN`] one after the other, for a thread that is to be released to stop. On
/// a busy machine it needs a processor for that.
const MOMENT: u32 = 50;

/// The code of a dynamic linker is smaller than this, bytes.
const LINKER: u64 = 1 << 20;

/// Main loop of a helper. `place` is its index and its CPU.
pub(super) fn serve(end: RawFd, holds: &Holds, place: (u32, usize)) {
    let [map, ring, helpers] =
        [holds.map(), holds.ring(), holds.helpers()].map(|fd| fd.as_raw_fd());
    helper::close_all_but(&mut [end, map, ring, helpers]);
    let Ok(calls) = holds.listen() else { return };
    let (is_bound, is_first) = hurry(place.1);
    if is_bound {
        holds.set_helper(place.0, place.1 as u32);
    }
    let mut server = Server {
        end,
        holds,
        is_first,
        held: Vec::new(),
        stopping: Vec::new(),
        waiting: false,
        gputrace: getppid(),
        heard: Instant::now(),
        looked: Instant::now(),
        stopped: 0,
    };
    loop {
        let mut polls = [end, calls.epoll_fd()].map(|fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        });
        let timeout = server.timeout().as_millis() as libc::c_int;
        // SAFETY: polls two descriptors, in a local variable.
        let ready = unsafe { libc::poll(polls.as_mut_ptr(), 2, timeout) };
        let [said, called] = polls.map(|poll| ready > 0 && poll.revents != 0);
        if called {
            // The contents of the ring do not matter; only the wake-up does.
            let _ = calls.poll(Duration::ZERO);
        }
        server.look_after(said || called);
        if called || server.waiting {
            server.seize_waiting();
        }
        if said && !server.answer() {
            break;
        }
        server.stopping.retain(|tid| !let_go(*tid));
    }
    // When this process exits, the kernel releases the threads that are still held.
}

/// A thread that a helper has seized.
struct Seized {
    held: Held,
    /// Time from the begin of the hold until the thread was seized.
    after: Duration,
}

impl Seized {
    /// The thread has gone on before it was seized.
    fn gone_on(&self) -> Released {
        if self.held.hold.at == 0 {
            // There it does not matter.
            Released::InTime
        } else {
            Released::Late(self.after)
        }
    }
}

/// State of a helper.
struct Server<'h> {
    /// Connection to gputrace.
    end: RawFd,
    holds: &'h Holds,
    /// Whether this process has priority over all threads that it may hold.
    is_first: bool,
    held: Vec<Seized>,
    /// Threads to be released that have not stopped yet.
    stopping: Vec<u32>,
    /// Whether there are threads that are still to be seized.
    waiting: bool,
    gputrace: Option<Pid>,
    /// When gputrace or an eBPF program last had something for this process.
    heard: Instant,
    /// When [`LOOK`] was last over, and how often in a row gputrace was found stopped.
    looked: Instant,
    stopped: u32,
}

impl Server<'_> {
    fn timeout(&self) -> Duration {
        if self.stopping.is_empty() && !self.waiting {
            LOOK
        } else {
            OFTEN
        }
    }

    /// Releases all threads if gputrace has said nothing for too long, or stands still.
    fn look_after(&mut self, is_heard: bool) {
        let now = Instant::now();
        if is_heard {
            self.heard = now;
        }
        if now.duration_since(self.looked) < LOOK {
            return;
        }
        self.looked = now;
        let is_stopped = !self.held.is_empty() && self.gputrace.is_some_and(is_stopped);
        self.stopped = if is_stopped { self.stopped + 1 } else { 0 };
        if self.stopped >= STOPPED || now.duration_since(self.heard) >= PATIENCE {
            self.stopping
                .extend(self.held.drain(..).map(|one| one.held.tid()));
        }
    }

    /// Seizes the threads to be held that nobody has seized.
    fn seize_waiting(&mut self) {
        self.waiting = false;
        for held in self.holds.waiting() {
            let after = clocks::now().saturating_sub(held.hold.begin);
            if after > LATEST {
                continue;
            }
            // Where this process cannot be sure to be in time, the thread may sleep in a system
            // call, and some of these fail when a tracer comes.
            let may_sleep = !self.is_first && held.hold.state == hold_state::GOES_ON;
            if may_sleep && state_of_task(held.tid()) != Some(b'R') {
                self.waiting = true;
                continue;
            }
            if seize(held.tid(), held.hold.exits != 0) {
                let held = self.holds.after_seizing(held);
                let after = Duration::from_nanos(after);
                self.held.push(Seized { held, after });
                self.holds.release(held);
            }
        }
    }

    /// Answers gputrace, which says that a hold is over. Returns false if gputrace is gone.
    fn answer(&mut self) -> bool {
        let mut bytes = [0; size_of::<Word>()];
        if !helper::read(self.end, &mut bytes).is_ok_and(|count| count == bytes.len()) {
            return false;
        }
        let [id, begin]: Word = zerocopy::transmute!(bytes);
        // With it those before: a helper that was late may have seized the thread for one of these.
        let over = |one: &mut Seized| one.held.id == id && one.held.hold.begin <= begin;
        let over: Vec<Seized> = self.held.extract_if(.., over).collect();
        let mut released = Released::Unheld;
        for one in over {
            if let Some(held) = self.holds.newer(one.held) {
                // Before it stopped, the thread came to a place where it is to be held again.
                released = released.max(one.gone_on());
                self.holds.release(held);
                self.held.push(Seized { held, ..one });
            } else {
                released = released.max(self.place_of(&one));
                self.stopping.push(one.held.tid());
            }
        }
        let word = released.to_word().to_ne_bytes();
        // SAFETY: writes from a local variable. A failed write means that gputrace is gone.
        unsafe { libc::write(self.end, word.as_ptr().cast(), word.len()) };
        true
    }

    /// Whether a seized thread is still where its hold began.
    fn place_of(&self, one: &Seized) -> Released {
        let hold = one.held.hold;
        if hold.state == hold_state::WAITS {
            return Released::InTime;
        }
        for _ in 0..MOMENT {
            if let Some((at, stack)) = registers(one.held.tid()) {
                // Nearby in the linker's code with the stack that it had: still in that function.
                let is_there = at.abs_diff(hold.at) < LINKER && stack.abs_diff(hold.stack) <= 8;
                return if is_there {
                    Released::InTime
                } else {
                    one.gone_on()
                };
            }
            if self.is_first {
                // It has had no processor since.
                return Released::InTime;
            }
            std::thread::sleep(OFTEN);
        }
        one.gone_on()
    }
}

/// Whether a process is stopped, by a signal or by its tracer.
fn is_stopped(pid: Pid) -> bool {
    let state = state_of_task(pid.as_raw_nonzero().get().cast_unsigned());
    state.is_some_and(|state| b"Tt".contains(&state))
}

/// Instruction and stack pointer of a thread that this process traces; `None` if it has not
/// stopped.
fn registers(tid: u32) -> Option<(u64, u64)> {
    // SAFETY: plain numbers, for which zeros are valid.
    let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
    let place = (&raw mut registers).cast::<libc::c_void>();
    // SAFETY: the kernel writes into a local structure of the right type.
    let failed = unsafe { libc::ptrace(libc::PTRACE_GETREGS, tid, 0, place) };
    (failed == 0).then_some((registers.rip, registers.rsp))
}

/// Binds this process to a CPU, with priority over all other threads: it does little, and somebody
/// waits for it. Returns whether it is bound, and whether it has that priority.
fn hurry(cpu: usize) -> (bool, bool) {
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    let is_first = become_first().is_ok();
    if !is_first {
        become_prompt();
    }
    (sched_setaffinity(None, &cpus).is_ok(), is_first)
}

/// Gives this thread priority over all other threads.
fn become_first() -> io::Result<()> {
    // Priority over real-time threads, too: the thread to hold may be one.
    let priority = libc::sched_param { sched_priority: 90 };
    // SAFETY: a system call on a local variable.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes this thread run soon after it was woken, as far as that is possible without a real-time
/// priority: by the highest ordinary priority, if that is permitted, and by asking for a short time
/// slice, which Linux 6.12 and later prefer to longer ones and which needs no permission.
fn become_prompt() {
    /// `struct sched_attr` of `linux/sched/types.h`, in its first version.
    #[repr(C)]
    struct Attributes {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        /// Length of a time slice, ns; the kernel's least is 100 us.
        runtime: u64,
        deadline: u64,
        period: u64,
    }
    for nice in [-20, 0] {
        let attributes = Attributes {
            size: size_of::<Attributes>() as u32,
            policy: libc::SCHED_OTHER as u32,
            flags: 0,
            nice,
            priority: 0,
            runtime: 100_000,
            deadline: 0,
            period: 0,
        };
        // SAFETY: a system call on a local variable of the right layout.
        let failed = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
        if failed == 0 {
            return;
        }
    }
}

/// Tries whether the helpers that hold threads of a launched program run before all other threads.
///
/// # Errors
///
/// The kernel's reason to refuse it, `EPERM`: gputrace lacks the capability `CAP_SYS_NICE`, or its
/// cpu control group has no budget for real-time threads (`cpu.rt_runtime_us` of cgroup version 1).
pub fn run_first() -> io::Result<()> {
    // A thread of its own, because the priority stays.
    std::thread::spawn(become_first)
        .join()
        .unwrap_or_else(|_| Err(io::Error::other("the trial ended early")))
}

/// Traces a thread and makes it stop when it leaves the kernel or, if it `exits`, when it begins
/// to. Returns false if that fails: most likely the other helper or another tracer has the thread
/// already, or a security module forbids it.
fn seize(tid: u32, exits: bool) -> bool {
    // Only then: a thread with this option that somebody kills would not end at once.
    let options = if exits { libc::PTRACE_O_TRACEEXIT } else { 0 };
    [(libc::PTRACE_SEIZE, options), (libc::PTRACE_INTERRUPT, 0)]
        .into_iter()
        .all(|(request, data)| {
            // SAFETY: these requests access no memory of this process.
            unsafe { libc::ptrace(request, tid, 0, libc::c_long::from(data)) == 0 }
        })
}

/// Ends the trace of a thread, if it has stopped. Returns true if that is done or the thread is
/// gone.
fn let_go(tid: u32) -> bool {
    let mut status = 0;
    let flags = libc::__WALL | libc::WNOHANG;
    // SAFETY: queries a thread that this process traces, into a local variable.
    match unsafe { libc::waitpid(tid.cast_signed(), &raw mut status, flags) } {
        0 => return false,
        ..0 => return true,
        _ => {}
    }
    if libc::WIFSTOPPED(status) {
        // A signal that arrived first is passed on. A ptrace event is not a signal.
        let event = status >> 16;
        let signal = if event == 0 {
            libc::WSTOPSIG(status)
        } else {
            0
        };
        // SAFETY: this request accesses no memory of this process.
        unsafe { libc::ptrace(libc::PTRACE_DETACH, tid, 0, signal) };
    }
    true
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        process::{Child, Command},
        time::{Duration, Instant},
    };

    use super::*;

    /// A program that only burns CPU time.
    struct Busy(Child);

    impl Busy {
        fn start() -> Self {
            let mut command = Command::new("sh");
            Self(command.args(["-c", "while :; do :; done"]).spawn().unwrap())
        }

        /// Waits until `/proc/PID/status` shows a state, and returns the tracer.
        fn wait_for(&self, state: &str) -> String {
            let deadline = Instant::now() + Duration::from_secs(60);
            loop {
                let status = fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
                let field = |name| {
                    let mut lines = status.lines();
                    let found = lines.find_map(|line| line.strip_prefix(name));
                    found.unwrap().trim().to_owned()
                };
                if field("State:").starts_with(state) {
                    return field("TracerPid:");
                }
                assert!(Instant::now() < deadline, "{status}");
                std::thread::yield_now();
            }
        }
    }

    impl Drop for Busy {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn seized_threads_sleep_until_they_are_let_go() {
        let busy = Busy::start();
        let pid = busy.0.id();
        if !seize(pid, false) {
            return gputrace_skip::skipped("ptrace is not allowed here");
        }
        assert_ne!(busy.wait_for("t"), "0");
        assert!(!seize(pid, false), "it has a tracer");
        assert!(let_go(pid));
        assert_eq!(busy.wait_for("R"), "0");
        assert!(!seize(u32::MAX >> 1, false), "there is no such thread");
    }
}
