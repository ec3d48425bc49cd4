//! Entry and return of traced functions.

use core::ptr::null_mut;

use aya_ebpf::{
    EbpfContext,
    helpers::{
        bpf_get_current_pid_tgid, bpf_get_smp_processor_id,
        generated::{bpf_ktime_get_boot_ns, bpf_probe_read_user},
    },
    macros::{uprobe, uretprobe},
    programs::{ProbeContext, RetProbeContext},
};
use gputrace_abi::{
    STACK_ARGS,
    config::state,
    cookie::Cookie,
    counters::DropReason,
    frame::{Frame, MAX_DEPTH},
    gpu::role,
    record::{kind, span_flags},
};

use crate::{
    call_rate::admits,
    cookie::cookie_of,
    frames::{Frames, count_lost, deeper},
    hit::arguments,
    inside::is_inside,
    maps::{Counters, config, over, paused, state_in_uprobe, target},
    ring::{Outcome, finish, wake_flag},
    roles::observe,
    stacks::look_at_stack,
    values,
};

/// At a function's entry (or directly after its `endbr64`): opens a frame.
#[uprobe]
pub(crate) fn call_enter(ctx: ProbeContext) -> Option<()> {
    enter(&ctx, true)
}

/// At the entry of a function whose end is not probed: writes a record without an end.
#[uprobe]
pub(crate) fn call_enter_only(ctx: ProbeContext) -> Option<()> {
    enter(&ctx, false)
}

/// Counts a call, and opens a frame for it if its end is probed (`is_end_probed`). Otherwise, the
/// place of that frame only holds the parts of the record, which is written at once.
#[inline(always)]
fn enter(ctx: &ProbeContext, is_end_probed: bool) -> Option<()> {
    let now = state_in_uprobe(ctx);
    if now == state::STOPPED {
        return None;
    }
    let is_paused = now == state::PAUSED;
    let cookie = Cookie(cookie_of(ctx));
    if cookie.is_behind_table() && is_inside(ctx.regs, cookie.function()) != 0 {
        return None;
    }
    let id = bpf_get_current_pid_tgid();
    let (mut frames, room) = match Frames::find(id) {
        Some(frames) => (Some(frames), true),
        None => {
            target((id >> 32) as u32)?;
            let created = if is_paused { None } else { Frames::create(id) };
            (created, created.is_some())
        }
    };

    // SAFETY: the registers that the kernel passes to this program.
    let stack_pointer = unsafe { (*ctx.regs).rsp };
    if let Some(frames) = frames.as_mut() {
        // Done even for a call that is skipped: its return must not be taken for that of a dead
        // frame.
        frames.drop_abandoned(stack_pointer, cookie);
    }
    if is_paused {
        if let Some(frames) = frames {
            frames.store_depth();
        }
        if is_end_probed && cookie.role() != role::NONE {
            // SAFETY: a helper without arguments.
            let time = unsafe { bpf_ktime_get_boot_ns() };
            observe(ctx.regs, id, time, cookie.0, null_mut());
        }
        return None;
    }
    // SAFETY: a helper without arguments.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    let counters = Counters::of(cpu)?;
    let sequence = counters.next();
    counters.seen(cookie.domain());
    if !room {
        counters.dropped(DropReason::ThreadMapFull, cookie.domain());
    }
    let frames = frames.as_mut()?;
    if cookie.is_limited() && !admits(cookie) {
        counters.dropped(DropReason::TooOften, cookie.domain());
        frames.store_depth();
        return None;
    }

    // SAFETY: a frame of this thread.
    let parent = frames.top().map_or(0, |top| unsafe { (*top).correlation });
    let Some(frame) = frames.frame(frames.depth) else {
        counters.dropped(DropReason::TooDeep, cookie.domain());
        frames.store_depth();
        return None;
    };
    let flags = if cookie.stack_args() == 0 {
        0
    } else {
        // SAFETY: a frame of this thread.
        unsafe { read_stack_args(frame, stack_pointer, cookie, counters) }
    };
    // SAFETY: a frame of this thread, and the registers that the kernel passes.
    unsafe {
        (&raw mut (*frame).args).write(arguments(&*ctx.regs));
        (&raw mut (*frame).stack_pointer).write(stack_pointer);
        (&raw mut (*frame).correlation)
            .write(sequence * u64::from(config().cpus) + u64::from(cpu) + 1);
        (&raw mut (*frame).parent).write(parent);
        (&raw mut (*frame).cookie).write(cookie.0);
        (&raw mut (*frame).cpu).write(cpu);
        (&raw mut (*frame).flags).write(flags | wake_flag(sequence));
    }
    if is_end_probed {
        frames.depth += 1;
    }
    frames.store_depth();
    if cookie.reads_at_entry() {
        // SAFETY: a frame of this thread.
        unsafe { values::at_entry(frame, bpf_get_current_pid_tgid()) };
    }
    // Read last, so that the work above is not part of the call's duration.
    // SAFETY: a helper without arguments.
    let begin = unsafe { bpf_ktime_get_boot_ns() };
    // SAFETY: a frame of this thread.
    unsafe { (&raw mut (*frame).begin).write(begin) };
    if !is_end_probed {
        let id = bpf_get_current_pid_tgid();
        let outcome = Outcome {
            kind: kind::SPAN,
            flags: u32::from(span_flags::END_NOT_RECORDED),
            id,
            depth: frames.depth,
            end: begin,
            result: 0,
        };
        // SAFETY: a frame of this thread; nothing reuses it before this program is done.
        unsafe { finish(frame, &outcome) };
        Frames::leave_if_idle(id, frames.depth);
        return Some(());
    }
    // Read and checked again: values kept across the calls above take stack, of which `observe`
    // leaves little.
    // SAFETY: a frame of this thread.
    let cookie = unsafe { (&raw const (*frame).cookie).read_volatile() };
    if Cookie(cookie).wants_stack() {
        // The program that looks at the stack also does what follows here.
        look_at_stack(ctx);
    }
    if Cookie(cookie).role() != role::NONE {
        observe(
            ctx.regs,
            bpf_get_current_pid_tgid(),
            begin,
            cookie,
            frames.thread(),
        );
    }
    Some(())
}

/// At the entry of a function that reports the GPU's work but is not traced as a call.
#[uprobe]
pub(crate) fn gpu_enter(ctx: ProbeContext) -> Option<()> {
    if over(&ctx) {
        return None;
    }
    // SAFETY: a helper without arguments.
    let time = unsafe { bpf_ktime_get_boot_ns() };
    let id = bpf_get_current_pid_tgid();
    let frames = Frames::find(id);
    if frames.is_none() {
        target((id >> 32) as u32)?;
    }
    let cookie = cookie_of(&ctx);
    observe(
        ctx.regs,
        id,
        time,
        cookie,
        frames.map_or(null_mut(), Frames::thread),
    );
    Some(())
}

/// Copies the function's stack arguments, which are above the return address, into the frame.
/// Returns the frame's flags.
///
/// # Safety
///
/// `frame` must point to a live [`Frame`].
#[inline(always)]
unsafe fn read_stack_args(
    frame: *mut Frame,
    stack_pointer: u64,
    cookie: Cookie,
    counters: Counters,
) -> u32 {
    // SAFETY: the caller's promise; the helper checks the user address, and the size is that of the
    // requested words, at most the array's.
    let failed = unsafe {
        let words = &raw mut (*frame).stack;
        for index in 0..STACK_ARGS {
            // Volatile, which keeps the compiler from turning these moves into a call of a loop
            // over bytes.
            words.cast::<u64>().add(index).write_volatile(0);
        }
        let count = u32::from(cookie.stack_args()) & (2 * STACK_ARGS as u32 - 1);
        let count = if count > STACK_ARGS as u32 {
            STACK_ARGS as u32
        } else {
            count
        };
        bpf_probe_read_user(words.cast(), count * 8, (stack_pointer + 8) as *const _) != 0
    };
    if failed {
        counters.unreadable_args();
        u32::from(span_flags::STACK_ARGS_UNREADABLE)
    } else {
        0
    }
}

/// At a function's return: closes its frame and writes the record.
#[uretprobe]
pub(crate) fn call_leave(ctx: RetProbeContext) -> Option<()> {
    // Read first, so that the work below is not part of the call's duration.
    // SAFETY: a helper without arguments.
    let end = unsafe { bpf_ktime_get_boot_ns() };
    let cookie = Cookie(cookie_of(&ctx));
    // The return has popped the return address from the stack.
    // SAFETY: the registers that the kernel passes to this program.
    let (stack_pointer, result) = unsafe { ((*ctx.regs).rsp - 8, (*ctx.regs).rax) };
    leave(&ctx, cookie, stack_pointer, result, end)
}

/// At an instruction that leaves a function whose end is not seen by a probe on its return: closes
/// the frame and writes the record. The stack pointer equals that of the function's entry;
/// otherwise, the instruction does not leave this call.
#[uprobe]
pub(crate) fn call_exit(ctx: ProbeContext) -> Option<()> {
    // Read first, so that the work below is not part of the call's duration.
    // SAFETY: a helper without arguments.
    let end = unsafe { bpf_ktime_get_boot_ns() };
    let cookie = Cookie(cookie_of(&ctx));
    // SAFETY: the registers that the kernel passes to this program.
    let (stack_pointer, result) = unsafe { ((*ctx.regs).rsp, (*ctx.regs).rax) };
    leave(&ctx, cookie, stack_pointer, result, end)
}

/// Closes the frame of the call that began at `stack_pointer` and writes its record.
#[inline(always)]
fn leave(
    context: &impl EbpfContext,
    cookie: Cookie,
    stack_pointer: u64,
    result: u64,
    end: u64,
) -> Option<()> {
    if over(context) {
        return None;
    }
    let id = bpf_get_current_pid_tgid();
    let mut frames = Frames::find(id)?;
    let (result, flags) = if cookie.is_tail_call() {
        (0, u32::from(span_flags::TAIL_CALL))
    } else {
        (result, 0)
    };
    let cookie = cookie.of_entry().0;

    let mut found = false;
    for _ in 0..MAX_DEPTH {
        let Some(frame) = frames.top() else { break };
        // SAFETY: a frame of this thread.
        let (frame_pointer, frame_cookie) = unsafe { ((*frame).stack_pointer, (*frame).cookie) };
        let here = frame_pointer == stack_pointer;
        if here && frame_cookie == cookie {
            frames.depth -= 1;
            found = true;
            break;
        }
        if !here && !deeper(frame_pointer, stack_pointer) {
            break;
        }
        // The returning function is outside this frame, so the return of this frame's call was not
        // seen.
        // SAFETY: a frame of this thread.
        unsafe { count_lost(frame) };
        frames.depth -= 1;
    }
    frames.store_depth();
    if found {
        // After the loop, with the depth read again, so that the verifier follows this code once
        // and not for each depth with which the loop can end.
        frames.reload();
        let frame = frames.frame(frames.depth)?;
        let outcome = Outcome {
            kind: kind::SPAN,
            flags,
            id,
            depth: frames.depth,
            end,
            result,
        };
        // SAFETY: a frame of this thread; nothing reuses it before this program is done.
        unsafe {
            values::at_return(frame, id, result);
            finish(frame, &outcome);
        }
        Frames::leave_if_idle(id, frames.depth);
        return Some(());
    }
    // While recording is paused, this is most likely the return of a call that was skipped. A jump
    // that matches no frame did not leave its function.
    if paused() || flags != 0 {
        return None;
    }
    // SAFETY: a helper without arguments.
    Counters::of(unsafe { bpf_get_smp_processor_id() })?.unmatched_return();
    None
}
