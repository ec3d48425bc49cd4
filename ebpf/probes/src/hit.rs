//! A hit of a function that reports the GPU's work: the calling thread, its open calls, and the
//! arguments.

use aya_ebpf::{bindings::pt_regs, helpers::bpf_probe_read_user};
use gputrace_abi::{
    REGISTER_ARGS, STACK_ARGS, cookie::Cookie, frame::MAX_DEPTH, gpu::packet_flags,
};

use crate::{frames::Frames, maps::Object};

/// The argument registers.
#[inline(always)]
pub(crate) fn arguments(regs: &pt_regs) -> [u64; REGISTER_ARGS] {
    [regs.rdi, regs.rsi, regs.rdx, regs.rcx, regs.r8, regs.r9]
}

/// A hit of a function that has a role.
#[derive(Clone, Copy)]
pub(crate) struct Hit {
    /// `tgid << 32 | tid`.
    pub(crate) id: u64,
    /// Time of the hit, ns `CLOCK_BOOTTIME`.
    pub(crate) time: u64,
    pub(crate) cookie: Cookie,
    /// The registers at the function's entry. This is a pointer, because a copy of six arguments
    /// would take much of the stack.
    regs: *const pt_regs,
    pub(crate) innermost: u64,
    pub(crate) outermost: u64,
    pub(crate) stream: u64,
    pub(crate) flags: u32,
}

impl Hit {
    /// A hit in the thread whose open calls are `frames`, if they are known.
    #[inline(always)]
    pub(crate) fn new(
        regs: *const pt_regs,
        id: u64,
        time: u64,
        cookie: Cookie,
        frames: Option<Frames>,
    ) -> Self {
        let mut hit = Self {
            id,
            time,
            cookie,
            regs,
            innermost: 0,
            outermost: 0,
            stream: 0,
            flags: 0,
        };
        if let Some(frames) = frames {
            // SAFETY: frames of this thread.
            unsafe {
                if let Some(top) = frames.top() {
                    hit.innermost = (*top).correlation;
                }
                if frames.depth > 0
                    && let Some(bottom) = frames.frame(0)
                {
                    hit.outermost = (*bottom).correlation;
                }
            }
            hit.find_stream(frames);
        }
        hit
    }

    /// Finds the stream argument of the outermost open call that has one. HIP's calls of its own
    /// functions, in releases that make such calls, name streams that the program has never seen.
    #[inline(always)]
    fn find_stream(&mut self, frames: Frames) {
        for depth in 0..MAX_DEPTH as u32 {
            if depth >= frames.depth {
                break;
            }
            let Some(frame) = frames.frame(depth) else {
                break;
            };
            // SAFETY: a frame of this thread; the indices are checked.
            unsafe {
                let Some(word) = (*frame).cookie().stream() else {
                    continue;
                };
                let word = usize::from(word);
                if word < REGISTER_ARGS {
                    self.stream = (&raw const (*frame).args).cast::<u64>().add(word).read();
                } else if word < REGISTER_ARGS + STACK_ARGS {
                    let stack = &raw const (*frame).stack;
                    self.stream = stack.cast::<u64>().add(word - REGISTER_ARGS).read();
                } else {
                    continue;
                }
            }
            self.flags = packet_flags::STREAM;
            break;
        }
    }

    /// Process id.
    #[inline(always)]
    pub(crate) fn pid(&self) -> u32 {
        (self.id >> 32) as u32
    }

    /// The argument registers.
    #[inline(always)]
    pub(crate) fn args(&self) -> [u64; REGISTER_ARGS] {
        // SAFETY: the registers in the program's context.
        arguments(unsafe { &*self.regs })
    }

    /// A word of the stack arguments; word 0 is directly above the return address.
    #[inline(always)]
    pub(crate) fn stack_arg(&self, index: u64) -> Option<u64> {
        // SAFETY: the registers in the program's context; the helper checks the address.
        unsafe { bpf_probe_read_user(((*self.regs).rsp + 8 + index * 8) as *const u64) }.ok()
    }

    #[inline(always)]
    pub(crate) fn object(&self, address: u64) -> Object {
        Object {
            process: u64::from(self.pid()),
            address,
        }
    }
}
