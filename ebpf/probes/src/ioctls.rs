//! Requests to the driver: every `ioctl(2)` on `/dev/kfd` by a traced process.
//!
//! Three pairs of programs do the same in three places. The loader uses the first place that the
//! kernel allows:
//!
//! | programs | place | cost |
//! |---|---|---|
//! | `kfd_fentry`, `kfd_fexit` | around the driver's handler `kfd_ioctl`, by a trampoline; needs the module's BTF | paid by these requests only |
//! | `kfd_kprobe`, `kfd_kretprobe` | the same, by breakpoints | the same, slightly more |
//! | `kfd_sys_enter`, `kfd_sys_exit` | entry and exit of every `ioctl(2)` | every system call of the machine gets slower by some ns |
//!
//! A thread has at most one open request: a signal handler runs only after the system call has
//! returned. The structure that the argument points to is copied from the process's memory, at the
//! beginning and at the end.

use aya_ebpf::{
    Global,
    bindings::{BPF_RB_AVAIL_DATA, BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP},
    btf_maps::{Array, HashMap},
    helpers::{
        bpf_get_current_pid_tgid, bpf_get_smp_processor_id, bpf_probe_read_kernel,
        bpf_probe_read_user,
        generated::{
            bpf_get_current_task, bpf_ktime_get_boot_ns, bpf_probe_read_user as read_user,
            bpf_ringbuf_output, bpf_ringbuf_query,
        },
    },
    macros::{btf_map, fentry, fexit, kprobe, kretprobe, raw_tracepoint, tracepoint},
    programs::{
        FEntryContext, FExitContext, ProbeContext, RawTracePointContext, RetProbeContext,
        TracePointContext,
    },
};
use gputrace_abi::{
    config::state,
    counters::DropReason,
    domain::Domain,
    kfd::{
        Ioctl, KfdConfig, LISTED, LONG_DATA, LONG_IOCTL_SIZE, LongIoctl, SHORT_DATA,
        SHORT_IOCTL_SIZE, ioctl_flags, nr, size_of_request,
    },
    record::{RecordHeader, kind},
};

use crate::{
    frames::Frames,
    maps::{Counters, RINGS, config, paused, state, stopped, target},
};

/// Settings, in a separate section so that the loader can replace them as a whole.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".rodata.kfd")]
static KFD_CONFIG: Global<KfdConfig> = Global::new(KfdConfig {
    device: 0,
    enter_fd: 0,
    enter_cmd: 0,
    enter_arg: 0,
    exit_ret: 0,
    task_files: 0,
    files_fdt: 0,
    fdt_max_fds: 0,
    fdt_fd: 0,
    file_inode: 0,
    inode_rdev: 0,
    reserved: 0,
});

/// Open requests, by `tgid << 32 | tid`: their records as far as they are known.
#[btf_map]
pub(crate) static OPEN_IOCTLS: HashMap<u64, LongIoctl, 1> = HashMap::new();

/// A zeroed [`LongIoctl`] to insert: too large for the 512 bytes of stack.
#[btf_map]
pub(crate) static EMPTY_IOCTL: Array<LongIoctl, 1> = Array::new();

/// Flags of a request seen at the system call instead of the driver's handler.
const OF_CALL: u16 = 0;

/// At the entry of the driver's handler:
/// `long kfd_ioctl(struct file *, unsigned int cmd, unsigned long arg)`.
#[fentry(function = "kfd_ioctl")]
pub(crate) fn kfd_fentry(ctx: FEntryContext) -> Option<()> {
    enter(ctx.arg(1), ctx.arg(2), ioctl_flags::OF_HANDLER)
}

/// At the return of the driver's handler.
#[fexit(function = "kfd_ioctl")]
pub(crate) fn kfd_fexit(ctx: FExitContext) -> Option<()> {
    // The result follows the three arguments.
    leave(ctx.arg(3), ioctl_flags::OF_HANDLER)
}

/// At the entry of the driver's handler.
#[kprobe]
pub(crate) fn kfd_kprobe(ctx: ProbeContext) -> Option<()> {
    // SAFETY: the registers that the kernel passes to this program.
    let (request, argument) = unsafe { ((*ctx.regs).rsi, (*ctx.regs).rdx) };
    enter(request as u32, argument, ioctl_flags::OF_HANDLER)
}

/// At the return of the driver's handler.
#[kretprobe]
pub(crate) fn kfd_kretprobe(ctx: RetProbeContext) -> Option<()> {
    // SAFETY: the registers that the kernel passes to this program.
    leave(
        unsafe { (*ctx.regs).rax }.cast_signed(),
        ioctl_flags::OF_HANDLER,
    )
}

/// At the entry of a system call `ioctl(2)`.
#[tracepoint(category = "syscalls", name = "sys_enter_ioctl")]
pub(crate) fn kfd_sys_enter(ctx: TracePointContext) -> Option<()> {
    target((bpf_get_current_pid_tgid() >> 32) as u32)?;
    let config = KFD_CONFIG.load();
    // SAFETY: the helper used for each read checks the address.
    let (fd, request, argument) = unsafe {
        (
            ctx.read_at::<u64>(config.enter_fd as usize).ok()?,
            ctx.read_at::<u64>(config.enter_cmd as usize).ok()?,
            ctx.read_at::<u64>(config.enter_arg as usize).ok()?,
        )
    };
    if device_of(fd as u32, &config)? != config.device {
        return None;
    }
    enter(request as u32, argument, OF_CALL)
}

/// At the exit of a system call `ioctl(2)`.
#[tracepoint(category = "syscalls", name = "sys_exit_ioctl")]
pub(crate) fn kfd_sys_exit(ctx: TracePointContext) -> Option<()> {
    // SAFETY: the helper used for the read checks the address.
    let result: i64 = unsafe { ctx.read_at(KFD_CONFIG.load().exit_ret as usize) }.ok()?;
    leave(result, OF_CALL)
}

/// When a task ends: counts its open request as lost. A return probe can miss a return (the kernel
/// keeps a limited number of them); a request that is open now has returned unseen.
#[raw_tracepoint(tracepoint = "sched_process_exit")]
pub(crate) fn kfd_task_exited(_ctx: RawTracePointContext) -> Option<()> {
    if stopped() {
        return None;
    }
    let id = bpf_get_current_pid_tgid();
    // SAFETY: a live map element of this thread.
    let cpu = unsafe { (*OPEN_IOCTLS.get_ptr(id)?).ioctl.header.cpu };
    lost(cpu, DropReason::LostReturn);
    OPEN_IOCTLS.remove(id).ok()
}

/// The device number of the character device behind a descriptor of the current process.
#[inline(always)]
fn device_of(fd: u32, config: &KfdConfig) -> Option<u32> {
    // SAFETY: a helper without arguments.
    let task = unsafe { bpf_get_current_task() };
    let files = word(task, config.task_files)?;
    let table = word(files, config.files_fdt)?;
    if fd >= half(table, config.fdt_max_fds)? {
        return None;
    }
    let file = word(word(table, config.fdt_fd)?, fd.wrapping_mul(8))?;
    half(word(file, config.file_inode)?, config.inode_rdev)
}

/// The word at an offset of a kernel object.
#[inline(always)]
fn word(object: u64, offset: u32) -> Option<u64> {
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_kernel((object + u64::from(offset)) as *const u64) }.ok()
}

/// The 32 bits at an offset of a kernel object.
#[inline(always)]
fn half(object: u64, offset: u32) -> Option<u32> {
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_kernel((object + u64::from(offset)) as *const u32) }.ok()
}

/// Opens a request.
#[inline(always)]
fn enter(request: u32, argument: u64, flags: u16) -> Option<()> {
    let now = state();
    if now == state::STOPPED {
        return None;
    }
    let id = bpf_get_current_pid_tgid();
    if now == state::PAUSED {
        // The return of this request must not be taken for that of an earlier one whose return was
        // missed.
        // SAFETY: a live map element of this thread.
        let cpu = unsafe { (*OPEN_IOCTLS.get_ptr(id)?).ioctl.header.cpu };
        lost(cpu, DropReason::LostReturn);
        return OPEN_IOCTLS.remove(id).ok();
    }
    target((id >> 32) as u32)?;
    // SAFETY: a helper without arguments.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    let counters = Counters::of(cpu)?;
    let sequence = counters.next();
    counters.seen(Domain::KfdIoctl.id());
    if let Some(old) = OPEN_IOCTLS.get_ptr(id) {
        // SAFETY: a live map element of this thread.
        lost(unsafe { (*old).ioctl.header.cpu }, DropReason::LostReturn);
    }
    let inserted = EMPTY_IOCTL
        .get(0)
        .map(|empty| OPEN_IOCTLS.insert(id, empty, 0));
    let (Some(Ok(())), Some(open)) = (inserted, OPEN_IOCTLS.get_ptr_mut(id)) else {
        counters.dropped(DropReason::ThreadMapFull, Domain::KfdIoctl.id());
        return None;
    };
    let (parent, depth) = enclosing(id);
    // SAFETY: a live map element that only programs of this thread touch.
    unsafe {
        let ioctl = &raw mut (*open).ioctl;
        (*ioctl).header = RecordHeader {
            size: LONG_IOCTL_SIZE as u16,
            kind: kind::IOCTL,
            domain: Domain::KfdIoctl.id(),
            cpu,
        };
        (*ioctl).pid = (id >> 32) as u32;
        (*ioctl).tid = id as u32;
        (*ioctl).correlation = sequence * u64::from(config().cpus) + u64::from(cpu) + 1;
        (*ioctl).parent = parent;
        (*ioctl).depth = depth;
        (*ioctl).argument = argument;
        (*ioctl).request = request;
        let before = (&raw mut (*open).before).cast::<u8>();
        let (copied, readable) = copy(before, size_of_request(request), argument);
        (*ioctl).data = copied as u16;
        (*ioctl).flags = flags;
        if !readable {
            (*ioctl).flags |= ioctl_flags::BEFORE_UNREADABLE;
        } else if !list(ioctl, before) {
            (*ioctl).flags |= ioctl_flags::LIST_UNREADABLE;
        }
        // Read last, so that the work above is not part of the duration.
        (*ioctl).begin = bpf_ktime_get_boot_ns();
    }
    Some(())
}

/// Closes a request.
#[inline(always)]
fn leave(result: i64, flags: u16) -> Option<()> {
    // Read first, so that the work below is not part of the duration.
    // SAFETY: a helper without arguments.
    let end = unsafe { bpf_ktime_get_boot_ns() };
    if stopped() {
        return None;
    }
    let id = bpf_get_current_pid_tgid();
    let Some(open) = OPEN_IOCTLS.get_ptr_mut(id) else {
        // The system call may have been on a different file; then this is no unmatched return.
        if flags != OF_CALL && !paused() && target((id >> 32) as u32).is_some() {
            // SAFETY: a helper without arguments.
            Counters::of(unsafe { bpf_get_smp_processor_id() })?.unmatched_return();
        }
        return None;
    };
    // SAFETY: a live map element that only programs of this thread touch.
    unsafe {
        let ioctl = &raw mut (*open).ioctl;
        (*ioctl).end = end;
        (*ioctl).result = result;
        let data = (&raw mut (*open).before).cast::<u8>();
        let size = size_of_request((*ioctl).request);
        let short = size <= SHORT_DATA as u32;
        let span = if short { SHORT_DATA } else { LONG_DATA };
        let readable = if short {
            copy(data.add(SHORT_DATA), size, (*ioctl).argument).1
        } else {
            copy(data.add(LONG_DATA), size, (*ioctl).argument).1
        };
        if !readable {
            (*ioctl).flags |= ioctl_flags::AFTER_UNREADABLE;
        }
        let cpu = (*ioctl).header.cpu;
        let written = if span == SHORT_DATA {
            (*ioctl).header.size = SHORT_IOCTL_SIZE as u16;
            output(open, SHORT_IOCTL_SIZE as u64)
        } else {
            output(open, LONG_IOCTL_SIZE as u64)
        };
        if !written {
            lost(cpu, DropReason::RingFull);
        }
    }
    OPEN_IOCTLS.remove(id).ok()
}

/// Correlation id of the innermost open API call of a thread, and the number of open calls.
#[inline(always)]
fn enclosing(id: u64) -> (u64, u16) {
    let Some(frames) = Frames::find(id) else {
        return (0, 0);
    };
    match frames.top() {
        // SAFETY: a frame of this thread.
        Some(top) => (unsafe { (*top).correlation }, frames.depth as u16),
        None => (0, 0),
    }
}

/// Copies a structure from the process's memory, up to the size that a record of its kind holds.
/// Returns the number of bytes, and whether they could be read.
///
/// # Safety
///
/// `to` must have room for [`LONG_DATA`] bytes if `size` is above [`SHORT_DATA`], else for that
/// many.
#[inline(always)]
unsafe fn copy(to: *mut u8, size: u32, argument: u64) -> (u32, bool) {
    if size == 0 {
        return (0, true);
    }
    let size = if size > LONG_DATA as u32 {
        LONG_DATA as u32
    } else {
        size
    };
    // SAFETY: the caller's promise; the helper checks the address to read from.
    let failed = unsafe {
        if size <= SHORT_DATA as u32 {
            // The mask is for the verifier, which loses track of the limit after the compiler's
            // transformations.
            read_user(to.cast(), size & 63, argument as *const _) != 0
        } else {
            read_user(to.cast(), size & 511, argument as *const _) != 0
        }
    };
    (size, !failed)
}

/// Reads the list that the structure at `data` points to. Returns false if there is a list that
/// cannot be read.
///
/// # Safety
///
/// `ioctl` must be a live map element, `data` its structure.
#[inline(always)]
unsafe fn list(ioctl: *mut Ioctl, data: *const u8) -> bool {
    // SAFETY: the caller's promise; the structure has room for these fields, which are 0 if it is
    // shorter.
    let (place, length, stride) = unsafe {
        match (*ioctl).request as u8 {
            // `event_id` is at offset 40 of the 48 bytes of `struct kfd_event_data`.
            nr::WAIT_EVENTS => (
                data.cast::<u64>().read() + 40,
                data.add(8).cast::<u32>().read(),
                48,
            ),
            nr::MAP_MEMORY_TO_GPU | nr::UNMAP_MEMORY_FROM_GPU => (
                data.add(8).cast::<u64>().read(),
                data.add(16).cast::<u32>().read(),
                4,
            ),
            _ => return true,
        }
    };
    // SAFETY: the caller's promise.
    unsafe { (*ioctl).list_length = length };
    for index in 0..LISTED {
        if index as u32 >= length {
            break;
        }
        // SAFETY: the helper checks the address.
        let Ok(element) =
            (unsafe { bpf_probe_read_user((place + index as u64 * stride) as *const u32) })
        else {
            return false;
        };
        // SAFETY: the index is below the array's length.
        unsafe {
            (&raw mut (*ioctl).list)
                .cast::<u32>()
                .add(index)
                .write(element);
            (*ioctl).listed = index as u16 + 1;
        }
    }
    true
}

/// Writes the first `size` bytes of a record into the ring of this CPU. Returns false if the ring
/// is full.
///
/// # Safety
///
/// `record` must be a live map element.
#[inline(always)]
unsafe fn output(record: *mut LongIoctl, size: u64) -> bool {
    // SAFETY: a helper without arguments.
    let Some(ring) = RINGS.get(unsafe { bpf_get_smp_processor_id() }) else {
        return false;
    };
    let ring = core::ptr::from_ref(ring).cast_mut().cast();
    // SAFETY: the ring is a live map; the record is at least `size` bytes long.
    unsafe {
        let waiting = bpf_ringbuf_query(ring, u64::from(BPF_RB_AVAIL_DATA));
        let wake = if waiting >= config().wakeup_bytes {
            BPF_RB_FORCE_WAKEUP
        } else {
            BPF_RB_NO_WAKEUP
        };
        bpf_ringbuf_output(ring, record.cast(), size, u64::from(wake)) == 0
    }
}

/// Counts a request that began on `cpu` as lost.
#[inline(always)]
fn lost(cpu: u32, reason: DropReason) {
    if let Some(counters) = Counters::of(cpu) {
        counters.dropped(reason, Domain::KfdIoctl.id());
    }
}
