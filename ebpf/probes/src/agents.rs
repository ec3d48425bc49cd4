//! Finds the agent of a queue, and what an `hsa_agent_t` stands for, when they are first seen: the
//! process may end before anybody else could look.
//!
//! Handles of agents are addresses of ROCr's objects. Each object bears a mark: its second word is
//! that word's own address, exclusive-or a number of its class (`rocr::core::Checked`). A queue's
//! descriptor is followed by a pointer to the queue's object, which contains a pointer to its
//! agent.

use aya_ebpf::{
    bindings::BPF_NOEXIST,
    helpers::{bpf_get_smp_processor_id, bpf_probe_read_user},
};
use gputrace_abi::{
    gpu::{AGENT_WORDS, DESCRIBED_SIZE, Described},
    record::{RecordHeader, kind},
};

use crate::{
    maps::{AGENTS, Object},
    ring::Slot,
};

/// Marks of `core::Agent` and `core::Queue`.
const AGENT_MARK: u64 = 0xf6bc_25eb_17e6_f917;
const QUEUE_MARK: u64 = 0xfa39_06a6_79f9_db49;
/// Mark of `core::MemoryRegion`, which handles of pools and regions point to, and the offset of its
/// agent.
const REGION_MARK: u64 = 0x9c96_1f19_ee17_5bb3;
const REGION_OWNER: u64 = 24;

/// Offset of the pointer to the queue's object: it follows an `amd_queue_t` of 256 bytes, or of
/// 2304 (ROCm 6.3).
const QUEUE_OBJECT: [u64; 2] = [256, 2304];

/// Number of words of the queue's object that are examined. Its agent is the 17th or 18th word in
/// ROCm 5.2 to 6.4, before any other agent; CPU agents come hundreds of words later.
const QUEUE_WORDS: u64 = 64;

/// A queue or agent of a process that was seen.
pub(crate) struct Seen {
    pub(crate) pid: u32,
    pub(crate) time: u64,
    /// Address of the queue; 0 for an agent alone.
    pub(crate) queue: u64,
    pub(crate) queue_id: u64,
    pub(crate) ring_packets: u32,
}

#[inline(always)]
fn word(address: u64) -> u64 {
    // SAFETY: the helper checks the address. Nothing of interest is at or near 0.
    unsafe { bpf_probe_read_user(address as *const u64) }.unwrap_or(0)
}

#[inline(always)]
fn is_marked(object: u64, mark: u64) -> bool {
    object != 0 && word(object + 8) == (object + 8) ^ mark
}

/// Address of the words that describe the agent of a memory pool or region; 0 if it is not found.
#[inline(always)]
pub(crate) fn of_memory(handle: u64) -> u64 {
    if !is_marked(handle, REGION_MARK) {
        return 0;
    }
    let agent = word(handle + REGION_OWNER);
    let [first, _] = AGENT_WORDS;
    if is_marked(agent, AGENT_MARK) {
        agent + first
    } else {
        0
    }
}

/// Describes a queue at its first packet.
#[inline(never)]
pub(crate) fn queue(seen: &Seen) -> u64 {
    let [near, far] = QUEUE_OBJECT;
    let mut object = word(seen.queue + near);
    if !is_marked(object, QUEUE_MARK) {
        object = word(seen.queue + far);
    }
    let mut agent = 0;
    if is_marked(object, QUEUE_MARK) {
        for index in 0..QUEUE_WORDS {
            let pointer = word(object + index * 8);
            if pointer & 7 == 0 && is_marked(pointer, AGENT_MARK) {
                agent = pointer;
                break;
            }
        }
    }
    describe(seen, agent)
}

/// Describes an agent that takes part in a copy, unless that has been done.
#[inline(never)]
pub(crate) fn agent(pid: u32, time: u64, handle: u64) -> u64 {
    let key = Object {
        process: u64::from(pid),
        address: handle,
    };
    if AGENTS.get_ptr(key).is_some() || AGENTS.insert(key, 0, u64::from(BPF_NOEXIST)).is_err() {
        return 0;
    }
    if !is_marked(handle, AGENT_MARK) {
        return 0;
    }
    let seen = Seen {
        pid,
        time,
        queue: 0,
        queue_id: 0,
        ring_packets: 0,
    };
    describe(&seen, handle)
}

#[inline(always)]
fn describe(seen: &Seen, agent: u64) -> u64 {
    let Some(mut slot) = Slot::<Described>::reserve() else {
        return 0;
    };
    let record = slot.as_mut_ptr();
    // SAFETY: the slot is as large as a `Described`; a helper without arguments.
    unsafe {
        (&raw mut (*record).header).write(RecordHeader {
            size: DESCRIBED_SIZE as u16,
            kind: kind::DESCRIBED,
            domain: 0,
            cpu: bpf_get_smp_processor_id(),
        });
        (&raw mut (*record).pid).write(seen.pid);
        (&raw mut (*record).ring_packets).write(seen.ring_packets);
        (&raw mut (*record).time).write(seen.time);
        // Volatile, which keeps the compiler from turning zeroes into a call of a loop over bytes.
        (&raw mut (*record).queue).write_volatile(seen.queue);
        (&raw mut (*record).queue_id).write_volatile(seen.queue_id);
        (&raw mut (*record).agent).write(agent);
        let words = (&raw mut (*record).words).cast::<u64>();
        for (index, offset) in AGENT_WORDS.iter().enumerate() {
            words
                .add(index)
                .write_volatile(if agent == 0 { 0 } else { word(agent + *offset) });
        }
    }
    slot.submit(false);
    1
}
