//! What functions and calls of HIP say.

use super::*;
use crate::{derive::limited::MOST, synthetic};

const HIP: Option<Domain> = Some(Domain::HipRuntime);

fn asked(names: &[&str]) -> Asked {
    let mut asked = Asked::default();
    for (id, name) in (0..).zip(names) {
        asked.function(&FunctionInfo::named(id, name, HIP));
    }
    asked
}

/// What a call of the only function says.
fn said(name: &str, args: [u64; 6], stack: &[u64]) -> Option<Kinds> {
    let mut asked = asked(&[name]);
    let mut call = synthetic::call(3, 10, 20);
    call.function = 0;
    call.args = args;
    call.stack_readable = true;
    call.stack
        .iter_mut()
        .zip(stack)
        .for_each(|(to, from)| *to = *from);
    asked.call(&call);
    asked.of(&Origin {
        innermost: 3,
        ..Origin::default()
    })
}

#[test]
fn names_and_arguments_say_it() {
    for (kind, says) in [
        (0, Some([AgentKind::Cpu, AgentKind::Cpu])),
        (1, Some(TO_GPU)),
        (2, Some(TO_HOST)),
        (3, Some(WITHIN_GPUS)),
        (4, None),
        (5, None),
        (1024, Some(WITHIN_GPUS)),
        (0xffff_ffff, None),
        // Only the lower half counts.
        (0xffff_ffff_0000_0003, Some(WITHIN_GPUS)),
    ] {
        for name in ["hipMemcpy", "hipMemcpyAsync", "hipMemcpy_spt"] {
            assert_eq!(said(name, [7, 7, 7, kind, 7, 7], &[]), says, "{name}");
        }
        // A destination, a pitch, a source, a pitch, width and height come first.
        assert_eq!(said("hipMemcpy2D", [7; 6], &[kind]), says);
    }
    for (name, says) in [
        ("hipMemcpyDtoD", WITHIN_GPUS),
        ("hipMemcpyDtoDAsync", WITHIN_GPUS),
        ("hipMemcpyDtoHAsync", TO_HOST),
        ("hipMemcpyHtoD", TO_GPU),
        ("hipMemcpyAtoH", TO_HOST),
        ("hipMemcpyPeerAsync", WITHIN_GPUS),
        ("hipMemcpy3DPeer", WITHIN_GPUS),
    ] {
        assert_eq!(said(name, [4; 6], &[4; 4]), Some(says), "{name}");
    }
    // These have it in memory that is not read, or only a direction of another meaning.
    for name in ["hipMemcpy3D", "hipMemcpyParam2DAsync", "hipMalloc"] {
        assert_eq!(said(name, [3; 6], &[3; 4]), None, "{name}");
    }
}

#[test]
fn only_functions_of_hip_say_it() {
    let mut asked = Asked::default();
    let roctx = Some(Domain::MarkerCore);
    asked.function(&FunctionInfo::named(0, "hipMemcpyDtoD", roctx));
    assert!(asked.functions.is_empty());
}

#[test]
fn the_innermost_call_that_says_something_counts() {
    let mut asked = asked(&["hipMemcpy", "hipMemcpyDtoH"]);
    for (correlation, function, kind) in [(5, 0, 3), (6, 1, 0), (7, 0, 4)] {
        let mut call = synthetic::call(correlation, 10, 20);
        (call.function, call.args[3]) = (function, kind);
        asked.call(&call);
    }
    let of = |innermost, caller, outermost| {
        asked.of(&Origin {
            innermost,
            caller,
            outermost,
            ..Origin::default()
        })
    };
    assert_eq!(of(9, 6, 5), Some(TO_HOST));
    assert_eq!(of(9, 7, 5), Some(WITHIN_GPUS));
    assert_eq!(of(7, 7, 7), None);
    assert_eq!(of(0, 0, 0), None);
}

#[test]
fn very_many_calls_are_forgotten() {
    let mut asked = asked(&["hipMemcpyDtoD"]);
    // The same one again and again, then many.
    let again = std::iter::repeat_n(1, MOST);
    for correlation in again.chain(2..MOST as u64 + 2) {
        let mut call = synthetic::call(correlation, 10, 20);
        call.function = 0;
        asked.call(&call);
        assert!(asked.calls.values.len() <= MOST && asked.calls.order.len() <= MOST);
    }
    assert!(!asked.calls.values.contains_key(&1));
    assert_eq!(asked.calls.values.len(), MOST);
}
