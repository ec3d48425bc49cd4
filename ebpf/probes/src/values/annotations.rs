//! Annotations: names and values that programs give to a range, several in one call.

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
    values::{LONG_BYTES, annotation, value_flags},
};

use super::record::{LONG_RECORD, Order, Sized, describe, lost, stack_of_program, unread};
use crate::{
    maps::{Counters, STEPS},
    ring::Slot,
};

/// The annotations of a call.
struct Annotations<'a> {
    /// Has the address of the first annotation.
    order: &'a Order,
    /// Number of annotations.
    given: u64,
}

/// Writes a record of each annotation passed to a call; the first is at the order's address.
///
/// # Safety
///
/// `frame` must point to a live [`Frame`] of this thread.
#[inline(never)]
pub(super) unsafe fn annotations(order: &Order, frame: *const Frame) -> u64 {
    // A mask, because Linux 6.1 would not see that a comparison bounds the number. The words of the
    // stack follow those of the registers.
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
    // SAFETY: the map is an array, `next_annotation` has the signature that the helper requires,
    // and `annotations` lives through the call.
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

/// Writes the record of the annotation with this step's number, or one record for all that are
/// left. Returns non-zero if there are no more.
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

/// Writes the record of the annotation at `address`, unless it has no name or no value.
#[inline(always)]
fn annotation(order: &Order, address: u64, mut slot: Slot<Sized<LONG_BYTES>>, counters: Counters) {
    let record = slot.as_mut_ptr();
    // SAFETY: the helpers check the user addresses, and write at most as much as fits; the words
    // are in the slot.
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
                // Without its NUL. If there was no room, the helper has replaced the last byte by a
                // NUL.
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
