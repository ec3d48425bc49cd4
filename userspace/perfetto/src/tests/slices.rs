use gputrace_abi::domain::Domain;
use gputrace_capture::meta::{ArgSlot, ValueKind};
use gputrace_timeline::event::{CallEnd, Event};

use super::{call, function, trace, trace_with_limit};

#[test]
fn a_call_is_a_slice_with_arguments_and_result() {
    let parameters = [
        ("dst", ValueKind::Pointer, ArgSlot::Register(0)),
        ("sizeBytes", ValueKind::Unsigned(8), ArgSlot::Register(1)),
        ("kind", ValueKind::Signed(4), ArgSlot::Register(2)),
        ("gridDim", ValueKind::Dim3, ArgSlot::Register(3)),
        ("flag", ValueKind::Bool, ArgSlot::Register(5)),
        ("ratio", ValueKind::Float, ArgSlot::Unrecorded),
        ("stream", ValueKind::Pointer, ArgSlot::Stack(0)),
    ];
    let mut outer = call(7, 0, 1_000, 5_000);
    outer.args = [
        0x7fff_0000_1000,
        4096,
        0xffff_ffff_ffff_fffe,
        2 << 32 | 64,
        3,
        1,
    ];
    outer.how = CallEnd::Returned(100);
    outer.stack_readable = false;
    let mut inner = call(8, 7, 2_000, 3_000);
    inner.function = 1;
    inner.domain = Domain::HsaAmdExt.id();
    inner.how = CallEnd::Returned(0x9999);
    let decoded = trace(&[
        function(0, "hipMemcpyAsync", Domain::HipRuntime, &parameters),
        function(1, "hsa_amd_memory_fill", Domain::HsaAmdExt, &[]),
        Event::Call(outer),
        Event::Call(inner),
    ]);

    let outer = decoded.slice(7);
    assert_eq!((outer.begin, outer.end, outer.inside), (1_000, 5_000, None));
    assert_eq!(
        (outer.name.as_str(), outer.category.as_str()),
        ("hipMemcpyAsync", "hip_api")
    );
    let notes: Vec<(&str, &str)> = outer
        .notes
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    assert_eq!(
        notes,
        [
            ("ancestor_id", "0"),
            ("args.dst", "0x7fff00001000"),
            ("args.flag", "true"),
            ("args.gridDim.x", "64"),
            ("args.gridDim.y", "2"),
            ("args.gridDim.z", "3"),
            ("args.kind", "-2"),
            ("args.ratio", "(not recorded)"),
            ("args.sizeBytes", "4096"),
            ("args.stream", "(not readable)"),
            ("corr_id", "7"),
            ("kind", "HIP_RUNTIME_API"),
            ("retval", "hipErrorNoDevice (100)"),
            ("tid", "11"),
        ]
    );

    let inner = decoded.slice(8);
    assert_eq!(
        (inner.begin, inner.end, inner.inside),
        (2_000, 3_000, Some(7))
    );
    assert_eq!(
        (inner.name.as_str(), inner.category.as_str()),
        ("hsa_amd_memory_fill", "hsa_api")
    );
    assert_eq!(inner.note("ancestor_id"), "7");
    assert_eq!(inner.note("kind"), "HSA_AMD_EXT_API");
    assert_eq!(inner.note("retval"), "39321");
}

#[test]
fn an_unknown_function_still_has_a_slice() {
    let mut unknown = call(1, 0, 10, 20);
    unknown.function = 99;
    unknown.domain = 200;
    unknown.args = [1, 2, 3, 4, 5, 6];
    let decoded = trace(&[Event::Call(unknown)]);
    let slice = decoded.slice(1);
    assert_eq!(
        (slice.name.as_str(), slice.category.as_str()),
        ("function 99", "unknown_api")
    );
    assert_eq!(slice.note("kind"), "domain 200");
    assert_eq!(slice.note("args.arg5"), "0x6");
}

#[test]
fn unfinished_calls_are_marked_once() {
    let mut outer = call(1, 0, 100, 900);
    outer.how = CallEnd::RecordingStopped;
    let mut inner = call(2, 1, 200, 900);
    inner.how = CallEnd::RecordingStopped;
    let mut earlier = call(3, 0, 10, 50);
    earlier.how = CallEnd::Executed;
    let decoded = trace(&[
        function(0, "hipDeviceSynchronize", Domain::HipRuntime, &[]),
        Event::Call(earlier),
        Event::Call(outer),
        Event::Call(inner),
    ]);
    for (correlation, end, why) in [
        (1, 900, "the recording stopped"),
        (2, 900, "the recording stopped"),
        (3, 50, "its process executed another program"),
    ] {
        let slice = decoded.slice(correlation);
        assert_eq!(
            (slice.end, slice.note("unfinished"), slice.note("retval")),
            (end, why, "(none)")
        );
        assert_eq!(slice.name, "hipDeviceSynchronize");
    }
    let marks: Vec<(u64, &str, &str)> = decoded
        .instants_of("unfinished")
        .into_iter()
        .map(|mark| (mark.begin, mark.note("corr_id"), mark.note("open_ns")))
        .collect();
    assert_eq!(marks, [(50, "3", "40"), (900, "1", "800")]);
    assert_eq!(decoded.slice(2).inside, Some(1));
}

/// A slice would say that the call took no time, or that it is open.
#[test]
fn a_call_without_an_end_is_a_moment() {
    let mut call = call(1, 0, 100, 100);
    call.how = CallEnd::NotSeen;
    let decoded = trace(&[
        function(0, "hsa_iterate_agents", Domain::HsaCore, &[]),
        Event::Call(call),
    ]);
    let drawn: Vec<(u64, &str, &str)> = decoded
        .instants_of("hsa_api")
        .into_iter()
        .map(|moment| (moment.begin, moment.note("end"), moment.note("retval")))
        .collect();
    assert_eq!(drawn, [(100, "not recorded", "(none)")]);
}

#[test]
fn interned_strings_stay_bounded() {
    let mut events = vec![function(
        0,
        "hipMalloc",
        Domain::HipRuntime,
        &[("p", ValueKind::Pointer, ArgSlot::Register(0))],
    )];
    for index in 0..200_u32 {
        let mut made_up = call(
            u64::from(index) + 1,
            0,
            u64::from(index) * 10,
            u64::from(index) * 10 + 5,
        );
        made_up.how = CallEnd::Returned(u64::from(index) + 100_000);
        events.push(Event::Call(made_up));
    }
    let decoded = trace_with_limit(&events, 300);
    assert!(decoded.resets > 3, "{} resets", decoded.resets);
    for index in 0..200 {
        let slice = decoded.slice(index + 1);
        assert_eq!(slice.note("retval"), (index + 100_000).to_string());
        assert_eq!(slice.name, "hipMalloc");
        assert_eq!(slice.note("args.p"), "0x0");
    }
    assert_eq!(trace(&events).resets, 1);
}
