//! Synthetic calls that copy, and the work of some of them.

use super::*;
use crate::derive::limited::MOST;
use crate::{
    model::gpu::{Copy, Dispatch, KernelInfo},
    synthetic,
};

const NAMES: [&str; 5] = [
    "hipMemcpy",
    "hipMemcpyDtoD",
    "hipMemcpy3D",
    "hipMemcpyAsync_spt",
    "hsa_amd_memory_async_copy",
];

/// Number of HIP's own kernel that copies.
const KERNEL: u32 = 7;

const TO_GPU: u64 = 1;

fn copies() -> Copies {
    let mut copies = Copies::default();
    for (id, name) in (0..).zip(NAMES) {
        let domain = if name.starts_with("hsa") {
            Domain::HsaAmdExt
        } else {
            Domain::HipRuntime
        };
        copies.function(&FunctionInfo::named(id, name, Some(domain)));
    }
    let kernel = KernelInfo {
        id: KERNEL,
        runtime: crate::model::gpu::RuntimeKernel::of("__amd_rocclr_copyBuffer"),
        ..KernelInfo::default()
    };
    copies.seen(&Event::Kernel(Box::new(kernel)), |_| false);
    copies
}

/// A call of 64 bytes, or of as many bytes as the third word says.
fn asked(copies: &mut Copies, number: u64, name: &str, kind: u64) {
    asked_with(copies, number, name, [1, 2, 64, kind, 0, 0], false);
}

fn asked_with(copies: &mut Copies, number: u64, name: &str, args: [u64; 6], captures: bool) {
    let mut call = synthetic::call(number, 10, 20);
    call.function = NAMES.iter().position(|known| *known == name).unwrap() as u32;
    (call.args, call.how) = (args, CallEnd::Returned(0));
    copies.seen(&Event::Call(call), |_| captures);
}

fn origin(caller: u64) -> Origin {
    Origin {
        pid: synthetic::call(1, 1, 2).pid,
        caller,
        outermost: caller,
        ..Origin::default()
    }
}

fn by_engine(copies: &mut Copies, caller: u64) {
    let copy = Copy {
        origin: origin(caller),
        ..Copy::default()
    };
    copies.seen(&Event::Copy(Box::new(copy)), |_| false);
}

fn by_kernel(copies: &mut Copies, caller: u64, kernel: Option<u32>) {
    let dispatch = Dispatch {
        origin: origin(caller),
        kernel,
        ..Dispatch::default()
    };
    copies.seen(&Event::Dispatch(Box::new(dispatch)), |_| false);
}

fn said(copies: &Copies) -> Option<String> {
    copies.remark(0, |_| false)
}

#[test]
fn each_way_is_counted() {
    let mut copies = copies();
    for number in 1..=5 {
        asked(&mut copies, number, "hipMemcpy", TO_GPU);
    }
    // Work is seen after its call or before, and there may be more of it.
    by_engine(&mut copies, 1);
    by_engine(&mut copies, 1);
    by_kernel(&mut copies, 2, Some(KERNEL));
    by_kernel(&mut copies, 8, Some(KERNEL));
    asked(&mut copies, 8, "hipMemcpyDtoD", 0);
    asked(&mut copies, 9, "hipMemcpyAsync_spt", TO_GPU);
    by_kernel(&mut copies, 9, None);
    assert_eq!(
        said(&copies).unwrap(),
        "Of 7 copies that programs asked for (hipMemcpy and the like), 1 is among the recorded \
         copies: HIP made 3 with kernels (__amd_rocclr_copyBuffer and the like), which are among \
         the kernels, and for 3 no work of a GPU was seen, so most likely HIP made them with the \
         processor."
    );
}

#[test]
fn copies_by_engines_are_not_worth_a_word() {
    let mut copies = copies();
    asked(&mut copies, 1, "hipMemcpy", TO_GPU);
    by_engine(&mut copies, 1);
    // A kernel of the program.
    by_kernel(&mut copies, 3, Some(1));
    assert_eq!(said(&copies), None);
}

#[test]
fn only_what_certainly_concerns_a_gpu_counts_without_its_work() {
    let mut copies = copies();
    asked(&mut copies, 1, "hipMemcpy", HOST_TO_HOST.into());
    asked(&mut copies, 2, "hipMemcpy", DEFAULT.into());
    asked(&mut copies, 3, "hipMemcpy3D", 0);
    asked_with(&mut copies, 4, "hipMemcpy", [1, 2, 0, TO_GPU, 0, 0], false);
    asked_with(&mut copies, 5, "hipMemcpy", [1, 2, 64, TO_GPU, 0, 0], true);
    let mut failed = synthetic::call(6, 10, 20);
    (failed.function, failed.how) = (1, CallEnd::Returned(1));
    failed.args = [1, 2, 64, TO_GPU, 0, 0];
    copies.seen(&Event::Call(failed), |_| false);
    assert_eq!(said(&copies), None);
    by_kernel(&mut copies, 3, Some(KERNEL));
    let text = said(&copies).unwrap();
    assert!(text.starts_with("Of 1 copy that"), "{text}");
    assert!(!text.contains("processor"), "{text}");
}

#[test]
fn work_of_unknown_calls_may_be_theirs() {
    let mut copies = copies();
    for number in 1..=3 {
        asked(&mut copies, number, "hipMemcpyDtoD", 0);
    }
    by_engine(&mut copies, 0);
    assert!(
        said(&copies)
            .unwrap()
            .contains("for 2 no work of a GPU was seen")
    );
    assert!(
        copies
            .remark(1, |_| false)
            .unwrap()
            .contains("for 1 no work of a GPU was seen")
    );
    assert_eq!(copies.remark(2, |_| false), None);
    assert_eq!(copies.remark(0, |_| true), None);
}

#[test]
fn work_that_a_thread_of_hip_submits_may_be_theirs() {
    let mut copies = copies();
    for number in 1..=3 {
        asked(&mut copies, number, "hipMemcpyDtoD", 0);
    }
    // Before its call of HSA, and after.
    by_engine(&mut copies, 11);
    asked(&mut copies, 11, "hsa_amd_memory_async_copy", 0);
    asked(&mut copies, 12, "hsa_amd_memory_async_copy", 0);
    by_kernel(&mut copies, 12, Some(KERNEL));
    assert!(
        said(&copies)
            .unwrap()
            .contains("for 1 no work of a GPU was seen")
    );
    by_engine(&mut copies, 12);
    assert_eq!(said(&copies), None);
}

#[test]
fn a_call_inside_another_is_the_same_copy() {
    let mut copies = copies();
    asked(&mut copies, 1, "hipMemcpy", TO_GPU);
    asked(&mut copies, 2, "hipMemcpyDtoD", 0);
    let copy = Copy {
        origin: Origin {
            outermost: 1,
            ..origin(2)
        },
        ..Copy::default()
    };
    copies.seen(&Event::Copy(Box::new(copy)), |_| false);
    assert_eq!(said(&copies), None);
}

#[test]
fn memory_is_bounded_and_what_is_forgotten_is_said() {
    let mut copies = copies();
    for number in 1..=MOST as u64 + 2 {
        asked(&mut copies, number, "hipMemcpyDtoD", 0);
        by_engine(&mut copies, number + (1 << 40));
    }
    by_kernel(&mut copies, 3, Some(KERNEL));
    let text = said(&copies).unwrap();
    assert!(text.contains("made 1 with kernels"), "{text}");
    assert!(
        text.ends_with("How 2 more were made is not known."),
        "{text}"
    );
    let process = copies.processes.values().next().unwrap();
    assert!(process.early.order.len() <= MOST && process.waiting.order.len() <= MOST);
}
