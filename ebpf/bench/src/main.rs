//! eBPF programs that only `cargo xtask bench` loads, as references for gputrace's own programs.
//!
//! * `empty_enter`, `empty_leave`: the lower limit. A probed call with these programs costs only
//!   the kernel's and the CPU's share; no tracer can be cheaper.
//! * `produce`: a flood of records, made by the same code that writes gputrace's records ([`ring`],
//!   [`maps`] are source files of `ebpf/probes`), without the cost of breakpoints. It runs by
//!   `BPF_PROG_TEST_RUN` and writes into the maps of the loaded call-tracing programs.

#![no_std]
#![no_main]
#![cfg_attr(target_arch = "bpf", feature(core_intrinsics))]
#![cfg_attr(
    target_arch = "bpf",
    allow(internal_features, reason = "see maps::fetch_add")
)]
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    reason = "reading and writing the fields of one kernel object through one raw pointer is one operation in meaning"
)]
#![allow(
    missing_docs,
    reason = "a program has no public interface; its modules document themselves"
)]

#[allow(dead_code, reason = "shared with ebpf/probes, which uses all of it")]
#[path = "../../probes/src/maps.rs"]
mod maps;
#[allow(dead_code, reason = "shared with ebpf/probes, which uses all of it")]
#[path = "../../probes/src/ring.rs"]
mod ring;

use aya_ebpf::{
    bindings::TC_ACT_OK,
    helpers::{bpf_get_smp_processor_id, generated::bpf_ktime_get_boot_ns},
    macros::{classifier, uprobe, uretprobe},
    programs::{ProbeContext, RetProbeContext, TcContext},
};
use gputrace_abi::{STACK_ARGS, cookie::Cookie, domain::Domain, frame::Frame, record::kind};

use crate::{
    maps::{Counters, config, stopped},
    ring::{Outcome, finish, wake_flag},
};

/// Number of records per run of `produce`. `tests/bench` counts records, not runs, so it need not
/// know.
const BATCH: u32 = 64;

#[uprobe]
fn empty_enter(_ctx: ProbeContext) -> u32 {
    0
}

#[uretprobe]
fn empty_leave(_ctx: RetProbeContext) -> u32 {
    0
}

/// Writes [`BATCH`] records. Like a traced call, each is counted as seen and, if its ring is full,
/// as dropped. It is a network program, because the kernel's test run can repeat those many times
/// in one system call; there is no packet.
#[classifier]
fn produce(_ctx: TcContext) -> i32 {
    let id = 1 << 32 | 1;
    for index in 0..BATCH {
        if stopped() || record(id, index).is_none() {
            break;
        }
    }
    TC_ACT_OK
}

#[inline(always)]
fn record(id: u64, index: u32) -> Option<()> {
    // SAFETY: a helper without arguments.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    let counters = Counters::of(cpu)?;
    let cookie = Cookie::new(0, Domain::HipRuntime.id(), 0);
    let sequence = counters.next();
    counters.seen(cookie.domain());
    // SAFETY: a helper without arguments.
    let now = unsafe { bpf_ktime_get_boot_ns() };
    let frame = Frame {
        begin: now,
        stack_pointer: 0,
        correlation: sequence * u64::from(config().cpus) + u64::from(cpu) + 1,
        parent: 0,
        cookie: cookie.0,
        cpu,
        flags: wake_flag(sequence),
        args: [u64::from(index); 6],
        stack: [0; STACK_ARGS],
    };
    let outcome = Outcome {
        kind: kind::SPAN,
        flags: 0,
        id,
        depth: 0,
        end: now,
        result: 0,
    };
    // SAFETY: a frame on the stack.
    unsafe { finish(&raw const frame, &outcome) };
    Some(())
}

gputrace_abi::ebpf_object!();
