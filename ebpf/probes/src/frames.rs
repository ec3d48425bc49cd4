//! The stack of open calls of one thread.

use aya_ebpf::helpers::bpf_probe_read_user;
use gputrace_abi::{
    cookie::Cookie,
    counters::DropReason,
    frame::{Frame, MAX_DEPTH, STACK_SPAN, Thread},
};

use crate::maps::{Counters, EMPTY_THREAD, THREADS, thread_gone, thread_held, threads_are_many};

/// A thread's stack of open calls, and the number of frames in use.
#[derive(Clone, Copy)]
pub(crate) struct Frames {
    thread: *mut Thread,
    /// Number of frames in use, 0 to [`MAX_DEPTH`].
    pub(crate) depth: u32,
}

impl Frames {
    /// The stack of the thread `id` (`tgid << 32 | tid`), if it has one.
    #[inline(always)]
    pub(crate) fn find(id: u64) -> Option<Self> {
        THREADS.get_ptr_mut(id).map(Self::new)
    }

    /// Gives the thread an empty stack. `None` if there is no room for another thread.
    #[inline(always)]
    pub(crate) fn create(id: u64) -> Option<Self> {
        let empty = EMPTY_THREAD.get(0)?;
        THREADS.insert(id, empty, 0).ok()?;
        thread_held();
        Self::find(id)
    }

    /// Removes the thread `id` if it has no open call and there are many threads; it is added again
    /// at its next call. Only the thread itself may do this, because nobody else knows that none of
    /// its programs is running.
    #[inline(always)]
    pub(crate) fn leave_if_idle(id: u64, depth: u32) {
        if depth == 0 && threads_are_many() {
            Self::remove(id);
        }
    }

    /// Removes the thread `id`.
    #[inline(always)]
    pub(crate) fn remove(id: u64) {
        if THREADS.remove(id).is_ok() {
            thread_gone();
        }
    }

    /// The stack in `thread`, which must be the live map element of the thread that this program
    /// runs in.
    #[inline(always)]
    pub(crate) fn new(thread: *mut Thread) -> Self {
        // SAFETY: a live map element, touched only by programs that run in this thread.
        let depth = unsafe { (*thread).depth };
        // The comparison tells the verifier the range; no program stores more than MAX_DEPTH.
        Self {
            thread,
            depth: if depth > MAX_DEPTH as u32 { 0 } else { depth },
        }
    }

    /// Reads the number of frames in use again, so that the verifier forgets what it knew about the
    /// number.
    #[inline(always)]
    pub(crate) fn reload(&mut self) {
        // SAFETY: a live map element, touched only by programs that run in this thread.
        self.depth = unsafe { (&raw const (*self.thread).depth).read_volatile() };
    }

    /// Pointer to the thread's map element.
    #[inline(always)]
    pub(crate) fn thread(self) -> *mut Thread {
        self.thread
    }

    /// The frame at `index`, which must be below [`MAX_DEPTH`]; `None` otherwise.
    #[inline(always)]
    pub(crate) fn frame(self, index: u32) -> Option<*mut Frame> {
        let index = opaque(u64::from(index));
        if index >= MAX_DEPTH as u64 {
            return None;
        }
        // SAFETY: the index was just checked.
        Some(unsafe {
            (&raw mut (*self.thread).frames)
                .cast::<Frame>()
                .add(index as usize)
        })
    }

    /// The innermost open call.
    #[inline(always)]
    pub(crate) fn top(self) -> Option<*mut Frame> {
        if self.depth == 0 {
            None
        } else {
            self.frame(self.depth - 1)
        }
    }

    /// Stores the number of frames in use.
    #[inline(always)]
    pub(crate) fn store_depth(self) {
        // SAFETY: a live map element, touched only by programs that run in this thread.
        unsafe { (*self.thread).depth = self.depth };
    }

    /// Drops frames that an entry at `stack_pointer` proves dead, and counts each as a lost return.
    #[inline(always)]
    pub(crate) fn drop_abandoned(&mut self, stack_pointer: u64, cookie: Cookie) {
        for _ in 0..MAX_DEPTH {
            let Some(top) = self.top() else { break };
            // SAFETY: a frame of this thread.
            if !unsafe { abandoned(top, stack_pointer, cookie) } {
                break;
            }
            // SAFETY: a frame of this thread.
            unsafe { count_lost(top) };
            self.depth -= 1;
        }
    }
}

/// Returns the same number, but hides that from the compiler. Otherwise the compiler would walk the
/// frames with a pointer and drop the comparison with [`MAX_DEPTH`], on which the verifier relies.
#[inline(always)]
fn opaque(number: u64) -> u64 {
    #[cfg(target_arch = "bpf")]
    {
        let mut number = number;
        // A move to itself instead of empty assembly: without an instruction, two source lines
        // would be recorded for one offset, which the kernel refuses.
        // SAFETY: changes nothing.
        unsafe {
            core::arch::asm!("{0} = {0}", inout(reg) number, options(nomem, nostack, preserves_flags))
        };
        number
    }
    #[cfg(not(target_arch = "bpf"))]
    number
}

/// Counts the call of `frame` as lost because its return was never seen.
///
/// # Safety
///
/// `frame` must point to a live [`Frame`].
#[inline(always)]
pub(crate) unsafe fn count_lost(frame: *const Frame) {
    // SAFETY: the caller's promise.
    let (cpu, cookie) = unsafe { ((*frame).cpu, (*frame).cookie()) };
    if let Some(counters) = Counters::of(cpu) {
        counters.dropped(DropReason::LostReturn, cookie.domain());
    }
}

/// Whether `inner` is deeper on the same stack than `outer` (stacks grow downwards).
#[inline(always)]
pub(crate) fn deeper(inner: u64, outer: u64) -> bool {
    inner < outer && outer - inner < STACK_SPAN
}

/// Whether an entry of `cookie`'s function at `stack_pointer` proves that the call of `frame` is
/// over although its return was not seen.
///
/// # Safety
///
/// `frame` must point to a live [`Frame`].
#[inline(always)]
unsafe fn abandoned(frame: *const Frame, stack_pointer: u64, cookie: Cookie) -> bool {
    // SAFETY: the caller's promise.
    let (frame_pointer, frame_cookie) = unsafe { ((*frame).stack_pointer, (*frame).cookie) };
    if frame_pointer != stack_pointer {
        return deeper(frame_pointer, stack_pointer);
    }
    // Two open calls share a stack pointer only if the outer one jumped to the inner one instead of
    // calling it. Then the return address is not the caller's but the kernel's trampoline, which
    // begins at a page of its own; a caller's address is page-aligned once in 4096 times.
    if frame_cookie == cookie.0 {
        return true;
    }
    // SAFETY: the helper checks the address.
    match unsafe { bpf_probe_read_user(stack_pointer as *const u64) } {
        Ok(return_address) => return_address & 0xfff != 0,
        Err(_) => false,
    }
}
