//! Who called a traced function: see [`gputrace_abi::stack`].

use aya_ebpf::{
    EbpfContext,
    bindings::{BPF_RB_FORCE_WAKEUP, pt_regs},
    btf_maps::{Array, LruHashMap, ProgramArray, RingBuf},
    helpers::{
        bpf_get_current_pid_tgid, bpf_probe_read_user,
        generated::{bpf_ktime_get_boot_ns, bpf_probe_read_user as read_user},
    },
    macros::{btf_map, uprobe},
    programs::ProbeContext,
};
use gputrace_abi::{
    cookie::Cookie,
    counters::RATE_WINDOW_SHIFT,
    gpu::role,
    record::kind,
    stack::{
        COPIES_PER_WINDOW, PAGE, PAGES, REGISTERS, SITE_WORDS, STACK_POINTER, Site, SiteKey,
        StackCopy, StackUse, TOO_MANY, WAYS,
    },
};

use crate::{
    frames::Frames,
    maps::{fetch_add, over},
    ring::Slot,
    roles::observe,
};

/// Copies of stacks that are not known.
#[btf_map]
static STACKS: RingBuf<(), { 1 << 20 }, 0> = RingBuf::new();

/// Stacks that are known. User space adds them; those that were not used for long are evicted.
#[btf_map]
static SITES: LruHashMap<SiteKey, Site, 1> = LruHashMap::new();

/// Numbers of stacks, and how many were copied lately.
#[repr(C)]
#[derive(Clone, Copy)]
struct Copied {
    /// Number of stacks that got a number.
    numbers: u64,
    /// The window in which stacks were copied last.
    window: u64,
    /// Number of copies in it.
    count: u64,
    /// Number of copies for which the ring had no room.
    lost: u64,
}

/// One [`Copied`].
#[btf_map]
static COPIED: Array<Copied, 1> = Array::new();

/// The program [`stack_enter`], if stacks are wanted.
#[btf_map]
static STACK_PROGRAMS: ProgramArray<1> = ProgramArray::new();

/// Continues as [`stack_enter`]. Returns only if stacks are not recorded.
#[inline(always)]
pub(crate) fn look_at_stack(context: &impl EbpfContext) {
    // SAFETY: the context of this program; the other one is of the same type.
    unsafe { STACK_PROGRAMS.tail_call(context, 0) };
}

/// Goes on at the entry of a function after `call_enter`: finds the number of the stack, and
/// reports the GPU's work.
#[uprobe]
pub(crate) fn stack_enter(ctx: ProbeContext) -> Option<()> {
    if over(&ctx) {
        return None;
    }
    let id = bpf_get_current_pid_tgid();
    find(ctx.regs, id);
    let frames = Frames::find(id)?;
    let frame = frames.top()?;
    // SAFETY: the frame of the call that has begun.
    let (cookie, begin) = unsafe { ((*frame).cookie, (*frame).begin) };
    if Cookie(cookie).role() != role::NONE {
        observe(ctx.regs, id, begin, cookie, frames.thread());
    }
    Some(())
}

/// Finds the number of the stack of the call that has begun, and tells it.
///
/// Not inlined, so that its variables are not on the stack while `observe` runs.
#[inline(never)]
fn find(regs: *const pt_regs, id: u64) -> u64 {
    // Whether something was told has no meaning; a function of a program must return a number.
    u64::from(find_of(regs, id).is_some())
}

#[inline(always)]
fn find_of(regs: *const pt_regs, id: u64) -> Option<()> {
    let frames = Frames::find(id)?;
    // Of calls inside each other, the outermost says who called.
    if frames.depth != 1 {
        return None;
    }
    // SAFETY: the frame of the call that has begun.
    let correlation = unsafe { (*frames.top()?).correlation };
    // SAFETY: the registers that the kernel passes to this program.
    let registers = unsafe { &*regs };
    let pointer = registers.rsp;
    // SAFETY: the helper checks the address.
    let return_address = unsafe { bpf_probe_read_user(pointer as *const u64) }.ok()?;
    let mut key = SiteKey {
        pid: (id >> 32) as u32,
        way: 0,
        pointer,
        return_address,
    };
    while key.way < WAYS {
        let Some(site) = SITES.get_ptr(key) else {
            break;
        };
        // SAFETY: a live map element. User space replaces elements as a whole, and one that changes
        // meanwhile matches nothing or is right.
        if unsafe { is_same(site, registers) } {
            // SAFETY: as above.
            tell(correlation, unsafe { (*site).stack });
            return Some(());
        }
        key.way += 1;
    }
    let copied = COPIED.get_ptr_mut(0)?;
    // SAFETY: a helper without arguments.
    let time = unsafe { bpf_ktime_get_boot_ns() };
    // SAFETY: a live array element.
    if !unsafe { admits(copied, time) } {
        tell(correlation, TOO_MANY);
        return None;
    }
    // SAFETY: as above; changed by atomic addition only.
    let stack = unsafe { fetch_add(&raw mut (*copied).numbers, 1) } as u32 + 1;
    tell(correlation, stack);
    let Some(mut entry) = STACKS.reserve_untyped::<StackCopy>(0) else {
        // SAFETY: as above.
        unsafe { fetch_add(&raw mut (*copied).lost, 1) };
        return None;
    };
    let copy: *mut StackCopy = entry.as_mut_ptr();
    // SAFETY: a reserved record, of which all fields are written; the helper checks addresses.
    unsafe {
        (&raw mut (*copy).stack).write(stack);
        (&raw mut (*copy).pid).write((id >> 32) as u32);
        (&raw mut (*copy).tid).write(id as u32);
        (&raw mut (*copy).time).write(time);
        (&raw mut (*copy).registers).write(preserved(registers));
        let begin = pointer & !(PAGE as u64 - 1);
        let mut pages = 0;
        for page in 0..PAGES {
            let into = (&raw mut (*copy).memory).cast::<u8>().add(page * PAGE);
            let from = begin + (page * PAGE) as u64;
            if read_user(into.cast(), PAGE as u32, from as *const _) != 0 {
                break;
            }
            pages += 1;
        }
        (&raw mut (*copy).pages).write(pages);
    }
    entry.submit(u64::from(BPF_RB_FORCE_WAKEUP));
    Some(())
}

/// The registers that functions preserve.
#[inline(always)]
fn preserved(registers: &pt_regs) -> [u64; REGISTERS] {
    [
        registers.rbx,
        registers.rbp,
        registers.rsp,
        registers.r12,
        registers.r13,
        registers.r14,
        registers.r15,
    ]
}

/// Whether everything is as it was when the stack of `site` was unwound.
///
/// # Safety
///
/// `site` must point to a live [`Site`].
#[inline(always)]
unsafe fn is_same(site: *const Site, registers: &pt_regs) -> bool {
    let now = preserved(registers);
    // SAFETY: the caller's promise; indices are below the arrays' lengths, and the helper checks
    // addresses.
    unsafe {
        let depends_on = (*site).depends_on;
        for (index, value) in now.iter().enumerate() {
            let known = (&raw const (*site).registers).cast::<u64>().add(index);
            if depends_on & 1 << index != 0 && known.read() != *value {
                return false;
            }
        }
        let words = (*site).words;
        for index in 0..SITE_WORDS {
            if index >= usize::from(words) {
                break;
            }
            let word = (&raw const (*site).memory)
                .cast::<gputrace_abi::stack::SiteWord>()
                .add(index);
            let address = now[STACK_POINTER] + (*word).offset;
            match bpf_probe_read_user(address as *const u64) {
                Ok(value) if value == (*word).value => {}
                _ => return false,
            }
        }
    }
    true
}

/// Whether another stack may be copied now.
///
/// # Safety
///
/// `copied` must point to the live element.
#[inline(always)]
unsafe fn admits(copied: *mut Copied, time: u64) -> bool {
    let window = time >> RATE_WINDOW_SHIFT;
    // SAFETY: the caller's promise. Two programs that begin a window at the same time can at worst
    // admit a few stacks more.
    unsafe {
        if (&raw const (*copied).window).read_volatile() != window {
            (&raw mut (*copied).window).write_volatile(window);
            (&raw mut (*copied).count).write_volatile(0);
        }
        fetch_add(&raw mut (*copied).count, 1) < COPIES_PER_WINDOW
    }
}

/// Writes which stack a call has. Without room, the call has none.
#[inline(always)]
fn tell(correlation: u64, stack: u32) {
    let Some(mut slot) = Slot::<StackUse>::reserve() else {
        return;
    };
    // SAFETY: the slot is as large as the record.
    unsafe {
        slot.as_mut_ptr().write(StackUse {
            size: size_of::<StackUse>() as u16,
            kind: kind::STACK,
            domain: 0,
            stack,
            correlation,
        });
    }
    slot.submit(false);
}
