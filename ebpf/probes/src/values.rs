//! Strings that programs give to functions, and results that functions store through pointers.
//!
//! Nothing here knows a function: which words of a call are pointers, and to what, is in the map [`READS`]. A page of
//! the program that nobody has touched yet cannot be read here; a string that could not be read when the function was
//! called is tried again when it returns, for it has read it by then.

use core::ffi::c_void;

use aya_ebpf::helpers::{
    bpf_get_smp_processor_id, bpf_probe_read_user,
    generated::{
        bpf_for_each_map_elem, bpf_get_current_task, bpf_probe_read_kernel as read_kernel,
        bpf_probe_read_user as read_user, bpf_probe_read_user_str as read_user_str,
    },
};
use gputrace_abi::{
    REGISTER_ARGS, STACK_ARGS,
    counters::DropReason,
    domain::Domain,
    frame::Frame,
    record::{RecordHeader, kind},
    values::{
        LONG_BYTES, MEDIUM_BYTES, MOST_BYTES, MOST_POINTERS, READS as PLAN_READS, RESULT_WORD,
        Read, ReadPlan, SHORT_BYTES, SHORT_MOST, UNREAD_SIZE, Value, annotation, value_flags, what,
    },
};

use crate::{
    agents,
    maps::{Counters, READS, STEPS, config},
    ring::Slot,
};

/// The lowest of the bits in [`Frame::flags`] that say which reads of the plan are to be tried again at the return.
const AGAIN: u32 = 17;

const _: () = assert!(core::mem::offset_of!(Frame, args) + 8 * 8 <= size_of::<Frame>());

/// Size of a long record.
const LONG_RECORD: u16 = size_of::<Sized<LONG_BYTES>>() as u16;

/// A record in a ring.
#[repr(C)]
struct Sized<const BYTES: usize> {
    value: Value,
    bytes: [u8; BYTES],
}

/// Reads what the plan of the frame's function says for the moment when it is called.
///
/// # Safety
///
/// `frame` must point to a live [`Frame`] of this thread.
#[inline(always)]
pub(crate) unsafe fn at_entry(frame: *mut Frame, id: u64) {
    // SAFETY: the caller's promise.
    unsafe { follow(frame, id, 0, 0) };
}

/// Reads what is left for the moment when the function of the frame returns.
///
/// # Safety
///
/// `frame` must point to a live [`Frame`] of this thread.
#[inline(always)]
pub(crate) unsafe fn at_return(frame: *mut Frame, id: u64, result: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        if (*frame).cookie().reads_at_return() || (*frame).flags >> AGAIN != 0 {
            follow(frame, id, 1, result);
        }
    }
}

/// A call whose values are read.
struct Following {
    frame: *mut Frame,
    plan: *const ReadPlan,
    /// `tgid << 32 | tid`.
    id: u64,
    /// Not 0: the function returns with this `result`.
    at_return: u64,
    result: u64,
    /// The frame's, before the first value.
    flags: u32,
    /// The bits of [`Frame::flags`] for those that are to be tried again.
    again: u32,
}

/// Reads each value of the plan that is due, and keeps in the frame which could not be read and may be later.
///
/// Not inlined, so that it is in the object once and not on the stack of what else its callers call.
#[inline(never)]
unsafe fn follow(frame: *mut Frame, id: u64, at_return: u64, result: u64) -> u64 {
    // SAFETY: the caller's promise.
    let (cookie, flags) = unsafe { ((*frame).cookie(), (*frame).flags) };
    let Some(plan) = READS.get_ptr(cookie.function()) else {
        return 0;
    };
    let mut following = Following {
        frame,
        plan,
        id,
        at_return,
        result,
        flags,
        again: 0,
    };
    // SAFETY: the map is an array, `next_value` has the signature that the helper asks for, and what is handed to it
    // lives through the call.
    unsafe {
        bpf_for_each_map_elem(
            core::ptr::from_ref(&STEPS).cast_mut().cast(),
            next_value as *mut c_void,
            (&raw mut following).cast(),
            0,
        )
    };
    // SAFETY: the caller's promise; what the steps have written.
    unsafe {
        let again = (&raw const following.again).read_volatile();
        (&raw mut (*frame).flags).write(flags | again);
    }
    0
}

/// Reads the value of the number of this step, if it is due. Not 0 if the plan has no more.
extern "C" fn next_value(
    _map: *mut c_void,
    step: *const u32,
    _value: *mut u8,
    following: *mut Following,
) -> i64 {
    // SAFETY: the helper hands over a live key and what was given to it.
    let (index, plan, frame, id, at_return, result, flags) = unsafe {
        let Following {
            frame,
            plan,
            id,
            at_return,
            result,
            flags,
            ..
        } = *following;
        (*step as usize, plan, frame, id, at_return, result, flags)
    };
    if index >= PLAN_READS {
        return 1;
    }
    // SAFETY: a live map element; the index is below its bound.
    let read = unsafe { (&raw const (*plan).reads).cast::<Read>().add(index).read() };
    let due = match read.what {
        what::STRING | what::BYTES | what::AGENT => {
            at_return == 0 || flags >> AGAIN & 1 << index != 0
        }
        what::ANNOTATIONS => at_return == 0,
        what::STRING_AT_RETURN | what::BYTES_AT_RETURN | what::POINTERS_AT_RETURN => at_return != 0,
        _ => return 1,
    };
    if !due {
        return 0;
    }
    // SAFETY: a frame of this thread; the indices are checked.
    let (address, correlation) = unsafe {
        let word = usize::from(read.word);
        let address = if word < REGISTER_ARGS {
            (&raw const (*frame).args).cast::<u64>().add(word).read()
        } else if word < REGISTER_ARGS + STACK_ARGS {
            let stack = &raw const (*frame).stack;
            stack.cast::<u64>().add(word - REGISTER_ARGS).read()
        } else if read.word == RESULT_WORD {
            result
        } else {
            0
        };
        (address, (*frame).correlation)
    };
    let address = if read.what == what::AGENT {
        agents::of_memory(address)
    } else {
        address
    };
    if address == 0 {
        return 0;
    }
    let bytes = match read.what {
        what::STRING | what::STRING_AT_RETURN => 0,
        what::POINTERS_AT_RETURN => {
            // Linux 6.1 loses a bound that is found by comparison; two words behind the registers are the frame's, too.
            let register = usize::from(read.bytes) & 7;
            // SAFETY: a frame of this thread; the index is within it.
            let count = unsafe {
                (&raw const (*frame).args)
                    .cast::<u32>()
                    .add(2 * register)
                    .read()
            };
            let count = if count > MOST_POINTERS as u32 {
                MOST_POINTERS as u32
            } else {
                count
            };
            if count == 0 {
                return 0;
            }
            (8 * count) as u16
        }
        _ => read.bytes,
    };
    let order = Order {
        correlation,
        address,
        id,
        word: read.word,
        bytes,
        flags: if at_return == 0 {
            0
        } else {
            value_flags::AT_RETURN
        },
    };
    if read.what == what::ANNOTATIONS {
        // SAFETY: the caller's promise.
        unsafe { annotations(&order, frame) };
    } else if value(&order) != 0 {
        // SAFETY: what was given to the helper lives through the walk.
        unsafe { (*following).again |= 1 << (AGAIN + index as u32) };
    }
    0
}

/// A value to be read.
struct Order {
    correlation: u64,
    address: u64,
    /// `tgid << 32 | tid`.
    id: u64,
    /// 0: a string.
    bytes: u16,
    word: u8,
    /// Bits of [`value_flags`].
    flags: u8,
}

/// Writes the record of one value. Not 0 if it cannot be read now and may be when the function returns.
#[inline(never)]
fn value(order: &Order) -> u64 {
    // SAFETY: a helper without arguments.
    let Some(counters) = Counters::of(unsafe { bpf_get_smp_processor_id() }) else {
        return 0;
    };
    if usize::from(order.bytes) > SHORT_MOST {
        return structure(order, counters);
    }
    let Some(mut slot) = Slot::<Sized<SHORT_BYTES>>::reserve() else {
        return lost(counters);
    };
    let record = slot.as_mut_ptr();
    let from = order.address as *const c_void;
    // SAFETY: the helpers check the user address, and write at most as much as is there.
    let read = unsafe {
        let to = (&raw mut (*record).bytes).cast();
        if order.bytes == 0 {
            read_user_str(to, SHORT_BYTES as u32, from)
        } else {
            // Linux 6.1 would not see that a comparison bounds the copy of the number that the compiler then uses.
            let bytes = u32::from(order.bytes) & SHORT_MOST as u32;
            if read_user(to, bytes, from) == 0 {
                i64::from(bytes)
            } else {
                -1
            }
        }
    };
    if read < 0 && order.flags & value_flags::AT_RETURN == 0 {
        slot.discard();
        return 1;
    }
    if order.bytes == 0 && read == SHORT_BYTES as i64 {
        slot.discard();
        return long_string(order, counters);
    }
    complete(slot, order, counters, read, 0)
}

/// Completes and submits the record of a value of which `read` bytes were read; below 0 if none could be.
#[inline(always)]
fn complete<const BYTES: usize>(
    mut slot: Slot<Sized<BYTES>>,
    order: &Order,
    counters: Counters,
    read: i64,
    flags: u8,
) -> u64 {
    let record = slot.as_mut_ptr();
    if read < 0 {
        // SAFETY: there is room for the two words in the slot.
        unsafe { unread((&raw mut (*record).bytes).cast(), order.address) };
    }
    counters.seen(Domain::ArgumentData.id());
    // SAFETY: the slot is as large as the record, which begins with a `Value`.
    unsafe {
        describe(
            record.cast(),
            size_of::<Sized<BYTES>>() as u16,
            order,
            read,
            flags,
        );
    };
    if read < 0 && order.bytes == 0 {
        // A constant, most likely, which the collector can read as long as the program runs.
        slot.submit_now();
    } else {
        slot.submit(false);
    }
    0
}

/// Writes the record of a structure that is longer than a short record. Not 0 if it cannot be read now and may be when the
/// function returns.
#[inline(always)]
fn structure(order: &Order, counters: Counters) -> u64 {
    let Some(mut slot) = Slot::<Sized<MEDIUM_BYTES>>::reserve() else {
        return lost(counters);
    };
    let record = slot.as_mut_ptr();
    // As in `value`.
    let bytes = u32::from(order.bytes) & MOST_BYTES as u32;
    // SAFETY: the helper checks the user address, and writes at most as much as is there.
    let is_read = unsafe {
        read_user(
            (&raw mut (*record).bytes).cast(),
            bytes,
            order.address as *const c_void,
        ) == 0
    };
    if !is_read && order.flags & value_flags::AT_RETURN == 0 {
        slot.discard();
        return 1;
    }
    let read = if is_read { i64::from(bytes) } else { -1 };
    complete(slot, order, counters, read, 0)
}

/// Writes the record of a string that is longer than a short record.
#[inline(always)]
fn long_string(order: &Order, counters: Counters) -> u64 {
    let Some(mut slot) = Slot::<Sized<LONG_BYTES>>::reserve() else {
        return lost(counters);
    };
    let record = slot.as_mut_ptr();
    // SAFETY: the helper checks the user address, and writes at most as much as is there.
    let read = unsafe {
        read_user_str(
            (&raw mut (*record).bytes).cast(),
            LONG_BYTES as u32,
            order.address as *const c_void,
        )
    };
    // As much as there is room for: the helper has put a NUL in the place of the last byte, which may be one.
    let cut = read == LONG_BYTES as i64
        // SAFETY: the helper checks the address.
        && unsafe { bpf_probe_read_user((order.address + LONG_BYTES as u64 - 1) as *const u8) } != Ok(0);
    let flags = if cut { value_flags::CUT } else { 0 };
    complete(slot, order, counters, read, flags)
}

/// Annotations of a call.
struct Annotations<'a> {
    /// The first is at its address.
    order: &'a Order,
    /// How many there are.
    given: u64,
}

/// Writes a record of each annotation that a call gives, the first of which is at the address.
///
/// # Safety
///
/// `frame` must point to a live [`Frame`] of this thread.
#[inline(never)]
unsafe fn annotations(order: &Order, frame: *const Frame) -> u64 {
    // Linux 6.1 would not see that a comparison bounds it. Behind the words of the registers are those of the stack.
    let register = usize::from(order.bytes) & 7;
    const { assert!(REGISTER_ARGS + STACK_ARGS > 7) };
    // SAFETY: the caller's promise; the index is bounded.
    let given = unsafe {
        (&raw const (*frame).args)
            .cast::<u64>()
            .add(register)
            .read()
    };
    let annotations = Annotations { order, given };
    // SAFETY: the map is an array, `next_annotation` has the signature that the helper asks for, and what is handed to it
    // lives through the call.
    unsafe {
        bpf_for_each_map_elem(
            core::ptr::from_ref(&STEPS).cast_mut().cast(),
            next_annotation as *mut c_void,
            core::ptr::from_ref(&annotations).cast_mut().cast(),
            0,
        )
    };
    0
}

/// Writes the record of the annotation of the number of this step, or of all that are left. Not 0 if there are no more.
extern "C" fn next_annotation(
    _map: *mut c_void,
    step: *const u32,
    _value: *mut u8,
    annotations: *const Annotations<'_>,
) -> i64 {
    // SAFETY: the helper hands over a live key and what was given to it.
    let (step, annotations) = unsafe { (u64::from(*step), &*annotations) };
    if step >= annotations.given {
        return 1;
    }
    // SAFETY: a helper without arguments.
    let Some(counters) = Counters::of(unsafe { bpf_get_smp_processor_id() }) else {
        return 1;
    };
    let order = annotations.order;
    let Some(mut slot) = Slot::<Sized<LONG_BYTES>>::reserve() else {
        lost(counters);
        return 1;
    };
    if step < annotation::MOST {
        annotation(
            order,
            order.address + step * annotation::SIZE,
            slot,
            counters,
        );
        return 0;
    }
    let flags = value_flags::ANNOTATION | value_flags::CUT;
    counters.seen(Domain::ArgumentData.id());
    // SAFETY: the slot is as large as the record, which begins with a `Value`.
    unsafe { describe(slot.as_mut_ptr().cast(), LONG_RECORD, order, 0, flags) };
    slot.submit(false);
    1
}

/// Writes the record of the annotation at `address`, but not if it has no name or no value.
#[inline(always)]
fn annotation(order: &Order, address: u64, mut slot: Slot<Sized<LONG_BYTES>>, counters: Counters) {
    let record = slot.as_mut_ptr();
    // SAFETY: the helpers check the user addresses, and write at most as much as is there; the words are in the slot.
    unsafe {
        let bytes = (&raw mut (*record).bytes).cast::<u8>();
        let words = bytes.cast::<u64>();
        if read_user(
            bytes.cast(),
            annotation::SIZE as u32,
            address as *const c_void,
        ) != 0
        {
            counters.seen(Domain::ArgumentData.id());
            unread(words, address);
            describe(
                record.cast(),
                LONG_RECORD,
                order,
                -1,
                value_flags::ANNOTATION,
            );
            slot.submit(false);
            return;
        }
        let (name, kind, value) = (words.read(), words.add(1).read(), words.add(2).read());
        if name == 0 || value == 0 {
            slot.discard();
            return;
        }
        let mut flags = value_flags::ANNOTATION;
        let mut length = annotation::TEXT as i64;
        let number = annotation::number_bytes(kind) & 0xf;
        words.write(kind);
        if kind == annotation::kind::STRING {
            let room = LONG_BYTES - annotation::TEXT;
            let text = bytes.add(annotation::TEXT);
            let read = read_user_str(text.cast(), room as u32, value as *const c_void);
            if read < 0 {
                flags |= value_flags::UNREADABLE;
                words.add(1).write(value);
            } else {
                // Without its NUL, which the helper has put in the place of the last byte where there was no room.
                length += if read > 0 { read - 1 } else { 0 };
                if read == room as i64
                    && bpf_probe_read_user((value + room as u64 - 1) as *const u8) != Ok(0)
                {
                    flags |= value_flags::CUT;
                }
            }
        } else if number == 0 {
            words.add(1).write(value);
        } else {
            words.add(1).write(0);
            if read_user(words.add(1).cast(), number, value as *const c_void) != 0 {
                flags |= value_flags::UNREADABLE;
                words.add(1).write(value);
            }
        }
        let to = bytes.add(annotation::NAME);
        if read_user_str(
            to.cast(),
            annotation::NAME_BYTES as u32,
            name as *const c_void,
        ) < 0
        {
            flags |= value_flags::NAME_UNREADABLE;
            to.cast::<u64>().write(name);
        }
        if flags != value_flags::ANNOTATION {
            stack_of_program(bytes.add(annotation::STACK).cast());
        }
        counters.seen(Domain::ArgumentData.id());
        describe(record.cast(), LONG_RECORD, order, length, flags);
        if flags & (value_flags::UNREADABLE | value_flags::NAME_UNREADABLE) == 0 {
            slot.submit(false);
            return;
        }
    }
    // As in `complete`.
    slot.submit_now();
}

/// The ring is full.
#[inline(always)]
fn lost(counters: Counters) -> u64 {
    counters.seen(Domain::ArgumentData.id());
    counters.dropped(DropReason::RingFull, Domain::ArgumentData.id());
    0
}

/// Writes an [`Unread`].
///
/// # Safety
///
/// `words` must be writable, two of them.
#[inline(always)]
unsafe fn unread(words: *mut u64, address: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        words.write(address);
        stack_of_program(words.add(1));
    }
}

/// Writes [`Unread::stack`] to `place`, which also serves for what is read on the way there.
///
/// # Safety
///
/// `place` must be writable.
#[inline(always)]
unsafe fn stack_of_program(place: *mut u64) {
    let config = config();
    // SAFETY: the caller's promise; the helper checks the addresses, and zeroes what it cannot read.
    unsafe {
        place.write(0);
        if config.task_mm == 0 {
            return;
        }
        let task = bpf_get_current_task();
        let mm = (task + u64::from(config.task_mm)) as *const c_void;
        // Without a memory of its own (no program of ours runs then) this is an address at which nothing is.
        read_kernel(place.cast(), 8, mm);
        let stack = (place.read() + u64::from(config.mm_start_stack)) as *const c_void;
        read_kernel(place.cast(), 8, stack);
    }
}

/// Fills in a [`Value`] of which `read` bytes were read, with the NUL of a string; negative if none could be.
///
/// # Safety
///
/// `record` must be writable.
#[inline(always)]
unsafe fn describe(record: *mut Value, size: u16, order: &Order, read: i64, flags: u8) {
    let is_string = order.bytes == 0;
    let (length, flags) = match read {
        ..0 => (UNREAD_SIZE as u16, flags | value_flags::UNREADABLE),
        0 => (0, flags),
        _ if is_string => (read as u16 - 1, flags),
        _ => (read as u16, flags),
    };
    let flags = if is_string {
        flags | value_flags::STRING
    } else {
        flags
    };
    // SAFETY: the caller's promise; a helper without arguments.
    unsafe {
        (&raw mut (*record).header).write(RecordHeader {
            size,
            kind: kind::VALUE,
            domain: Domain::ArgumentData.id(),
            cpu: bpf_get_smp_processor_id(),
        });
        (&raw mut (*record).correlation).write(order.correlation);
        (&raw mut (*record).pid).write((order.id >> 32) as u32);
        (&raw mut (*record).length).write(length);
        (&raw mut (*record).word).write(order.word);
        (&raw mut (*record).flags).write(order.flags | flags);
    }
}
