//! Who called traced functions (`--stacks`).
//!
//! Programs copy stacks that they do not know. A thread unwinds each copy by the files that the
//! process has mapped, writes the stack into the capture, and teaches the programs to tell it.

mod images;
mod known;

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use gputrace_abi::stack::StackCopy;
use gputrace_capture::Meta;
use gputrace_collect::{CommandSender, clocks};
use gputrace_loader::{Ring, calls::Calls};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use zerocopy::FromBytes as _;

use self::{images::Images, known::Known};
use super::{Source, Wanted};
use crate::said::notice;

/// Time after which the thread looks whether the recording is over.
const LOOK: Duration = Duration::from_millis(100);

/// Time in which the last stacks are unwound when the recording is over. Usually it takes
/// milliseconds; those that are then left are shown as lost.
const REST: Duration = Duration::from_secs(2);

/// Maximum number of frames of a stack.
const DEEPEST: usize = 1024;

pub(super) fn source(wanted: &Wanted<'_>) -> Option<Box<dyn Source>> {
    let is_wanted = wanted.request.stacks.is_some();
    is_wanted.then(|| Box::new(Stacks::default()) as Box<dyn Source>)
}

/// The thread that unwinds.
#[derive(Debug, Default)]
struct Stacks {
    /// `None` before the thread runs.
    unwinder: Option<Arc<Mutex<Unwinder>>>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Source for Stacks {
    fn start(&mut self, calls: &Arc<Calls>, sender: &CommandSender) -> Vec<Meta> {
        let failed = |error: &dyn std::fmt::Display| {
            vec![notice(format!("stacks are not recorded: {error}"))]
        };
        let ring = match calls.start_stacks() {
            Ok(ring) => ring,
            Err(error) => return failed(&error),
        };
        let unwinder = Arc::new(Mutex::new(Unwinder {
            calls: Arc::clone(calls),
            sender: sender.clone(),
            images: Images::default(),
            known: Known::default(),
        }));
        self.unwinder = Some(Arc::clone(&unwinder));
        let over = Arc::clone(&self.over);
        let work = move || run(&unwinder, ring, &over);
        match thread::Builder::new().name("stacks".to_owned()).spawn(work) {
            Ok(thread) => self.thread = Some(thread),
            Err(error) => return failed(&error),
        }
        Vec::new()
    }

    fn mapped(&mut self, pid: u32) {
        if let Some(unwinder) = &self.unwinder {
            locked(unwinder).mapped(pid);
        }
    }

    fn stop(&mut self) {
        self.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // If it panicked, the stacks that it had not unwound are missing, and are shown so.
            let _ = thread.join();
        }
        // It keeps the programs loaded.
        self.unwinder = None;
    }
}

/// The state that unwinds. It is consistent between any two stacks, also if one made it panic.
fn locked(unwinder: &Mutex<Unwinder>) -> MutexGuard<'_, Unwinder> {
    unwinder.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread: unwinds what comes through the ring until the recording is over and the ring is
/// empty.
fn run(unwinder: &Mutex<Unwinder>, mut ring: Ring, over: &AtomicBool) {
    let limit = Timespec::try_from(LOOK).ok();
    loop {
        // Asked before the ring is read: what comes before the end is unwound.
        let is_over = over.load(Ordering::Acquire);
        let end = is_over.then(|| Instant::now() + REST);
        while let Some(record) = ring.next() {
            if end.is_some_and(|end| Instant::now() > end) {
                break;
            }
            if let Ok(copy) = StackCopy::ref_from_bytes(&record) {
                locked(unwinder).unwind(copy);
            }
        }
        if is_over {
            return;
        }
        let mut ready = [PollFd::new(&ring, PollFlags::IN)];
        // An interrupted wait is a short one.
        let _ = poll(&mut ready, limit.as_ref());
    }
}

/// What unwinds.
struct Unwinder {
    calls: Arc<Calls>,
    sender: CommandSender,
    images: Images,
    known: Known,
}

impl std::fmt::Debug for Unwinder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unwinder").finish_non_exhaustive()
    }
}

impl Unwinder {
    fn unwind(&mut self, copy: &StackCopy) {
        // Until a new stack is unwound, each call copies it again.
        let is_valid = self.images.is_valid(copy);
        let recognised = is_valid.then(|| self.known.recognised(copy, &self.calls));
        if let Some(number) = recognised.flatten() {
            self.sender.meta(known::same(copy, number).into());
            return;
        }
        let found = self
            .images
            .unwind(copy, DEEPEST, &mut |meta| self.sender.meta(meta));
        self.forget();
        let (stack, number) = self.known.number(copy, &found);
        self.sender.meta(stack.into());
        if let Some((key, site)) = self.known.site(copy, &found, number) {
            // Otherwise the stack is copied again.
            let _ = self.calls.add_site(&key, &site);
        }
    }

    /// Reads what a process has mapped.
    fn mapped(&mut self, pid: u32) {
        self.images.map(pid, clocks::now());
        self.forget();
    }

    /// Forgets the stacks of processes whose code may be another now.
    fn forget(&mut self) {
        for pid in self.images.take_changed() {
            self.known.forget(pid, &self.calls);
        }
    }
}
