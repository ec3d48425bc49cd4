//! Strings that programs pass to functions, and results that functions store through pointers.
//!
//! No function is known here by name: the map [`READS`] says which words of a call are pointers,
//! and to what. A page of the program that has not been touched yet cannot be read here. If a
//! string could not be read when the function was called, reading is tried again when it returns,
//! because the function has read the string by then.

mod annotations;
mod record;

use core::ffi::c_void;

use aya_ebpf::helpers::{
    bpf_get_smp_processor_id, bpf_probe_read_user,
    generated::{
        bpf_for_each_map_elem, bpf_probe_read_user as read_user,
        bpf_probe_read_user_str as read_user_str,
    },
};
use gputrace_abi::{
    REGISTER_ARGS, STACK_ARGS,
    domain::Domain,
    frame::Frame,
    values::{
        LONG_BYTES, MEDIUM_BYTES, MOST_BYTES, MOST_POINTERS, READS as PLAN_READS, RESULT_WORD,
        Read, ReadPlan, SHORT_BYTES, SHORT_MOST, value_flags, what,
    },
};

use self::{
    annotations::annotations,
    record::{Order, Sized, describe, lost, unread},
};
use crate::{
    agents,
    maps::{Counters, READS, STEPS},
    ring::Slot,
};

/// The lowest of the bits in [`Frame::flags`] that mark the reads of the plan to be tried again at
/// the return.
const AGAIN: u32 = 17;

const _: () = assert!(core::mem::offset_of!(Frame, args) + 8 * 8 <= size_of::<Frame>());

/// Reads the values that the plan of the frame's function lists for the call's entry.
///
/// # Safety
///
/// `frame` must point to a live [`Frame`] of this thread.
#[inline(always)]
pub(crate) unsafe fn at_entry(frame: *mut Frame, id: u64) {
    // SAFETY: the caller's promise.
    unsafe { follow(frame, id, 0, 0) };
}

/// Reads the values that are left for the return of the frame's function.
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

/// A call whose values are being read.
struct Following {
    frame: *mut Frame,
    plan: *const ReadPlan,
    /// `tgid << 32 | tid`.
    id: u64,
    /// Not 0: the function returns, with this `result`.
    at_return: u64,
    result: u64,
    /// Flags of the frame before the first value.
    flags: u32,
    /// Bits of [`Frame::flags`] for the reads to be tried again.
    again: u32,
}

/// Reads each value of the plan that is due, and marks in the frame the ones that could not be read
/// but may be readable later.
///
/// Not inlined, so that the object contains it once, and it is not on the stack while its callers
/// call other functions.
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
    // SAFETY: the map is an array, `next_value` has the signature that the helper requires, and
    // `following` lives through the call.
    unsafe {
        bpf_for_each_map_elem(
            core::ptr::from_ref(&STEPS).cast_mut().cast(),
            next_value as *mut c_void,
            (&raw mut following).cast(),
            0,
        )
    };
    // SAFETY: the caller's promise; reads what the steps have written.
    unsafe {
        let again = (&raw const following.again).read_volatile();
        (&raw mut (*frame).flags).write(flags | again);
    }
    0
}

/// Reads the value with this step's number, if it is due. Returns non-zero if the plan has no more.
extern "C" fn next_value(
    _map: *mut c_void,
    step: *const u32,
    _value: *mut u8,
    following: *mut Following,
) -> i64 {
    // SAFETY: the helper passes a live key and the pointer that was given to it.
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
    // SAFETY: a frame of this thread.
    let (address, correlation) = unsafe { (word(frame, read.word, result), (*frame).correlation) };
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
            // SAFETY: a frame of this thread.
            let bytes = unsafe { bytes_of_pointers(frame, read.bytes) };
            if bytes == 0 {
                return 0;
            }
            bytes
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
        // SAFETY: the pointer that was given to the helper lives through the walk.
        unsafe { (*following).again |= 1 << (AGAIN + index as u32) };
    }
    0
}

/// A word of a call's arguments or its result; 0 if there is none of that number.
///
/// # Safety
///
/// `frame` must point to a live [`Frame`] of this thread.
#[inline(always)]
unsafe fn word(frame: *const Frame, number: u8, result: u64) -> u64 {
    let word = usize::from(number);
    // SAFETY: the caller's promise; the indices are checked.
    unsafe {
        if word < REGISTER_ARGS {
            (&raw const (*frame).args).cast::<u64>().add(word).read()
        } else if word < REGISTER_ARGS + STACK_ARGS {
            let stack = &raw const (*frame).stack;
            stack.cast::<u64>().add(word - REGISTER_ARGS).read()
        } else if number == RESULT_WORD {
            result
        } else {
            0
        }
    }
}

/// How many bytes of pointers are stored, whose number is in the register of this number.
///
/// # Safety
///
/// `frame` must point to a live [`Frame`] of this thread.
#[inline(always)]
unsafe fn bytes_of_pointers(frame: *const Frame, register: u16) -> u16 {
    // Linux 6.1 loses a bound that is found by comparison; two words behind the registers are the
    // frame's, too.
    let register = usize::from(register) & 7;
    // SAFETY: the caller's promise; the index is within the frame.
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
    (8 * count) as u16
}

/// Writes the record of one value. Returns non-zero if the value cannot be read now but may be
/// readable when the function returns.
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
    // SAFETY: the helpers check the user address, and write at most as much as fits.
    let read = unsafe {
        let to = (&raw mut (*record).bytes).cast();
        if order.bytes == 0 {
            read_user_str(to, SHORT_BYTES as u32, from)
        } else {
            // A mask, because Linux 6.1 would not see that a comparison bounds the copy of the
            // number that the compiler uses afterwards.
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

/// Completes and submits the record of a value of which `read` bytes were read; negative if none
/// could be read.
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
        // Most likely a constant, which the collector can read while the program runs.
        slot.submit_now();
    } else {
        slot.submit(false);
    }
    0
}

/// Writes the record of a structure that is longer than a short record. Returns non-zero if it
/// cannot be read now but may be readable when the function returns.
#[inline(always)]
fn structure(order: &Order, counters: Counters) -> u64 {
    let Some(mut slot) = Slot::<Sized<MEDIUM_BYTES>>::reserve() else {
        return lost(counters);
    };
    let record = slot.as_mut_ptr();
    // As in `value`.
    let bytes = u32::from(order.bytes) & MOST_BYTES as u32;
    // SAFETY: the helper checks the user address, and writes at most as much as fits.
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
    // SAFETY: the helper checks the user address, and writes at most as much as fits.
    let read = unsafe {
        read_user_str(
            (&raw mut (*record).bytes).cast(),
            LONG_BYTES as u32,
            order.address as *const c_void,
        )
    };
    // The buffer is full. The helper has replaced the last byte by a NUL; the string is complete if
    // that byte was a NUL already.
    let cut = read == LONG_BYTES as i64
        // SAFETY: the helper checks the address.
        && unsafe { bpf_probe_read_user((order.address + LONG_BYTES as u64 - 1) as *const u8) } != Ok(0);
    let flags = if cut { value_flags::CUT } else { 0 };
    complete(slot, order, counters, read, flags)
}
