use gputrace_abi::domain::Domain;
use gputrace_capture::{
    gpu::Kernel,
    meta::{Function, ValueKind},
};
use gputrace_timeline::{
    event::PendingQueue,
    gpu::{GpuTime, Origin, Window},
    observation::Whose,
    synthetic,
};

use super::*;

const MS: u64 = 1_000_000;

fn watch(rules: &[Rule]) -> Watch {
    let mut watch = Watch::new(rules.to_vec());
    for (id, name) in [
        (0, "hipMalloc"),
        (1, "hipFree"),
        (2, "hipGetLastError"),
        (3, "hipPointerGetAttributes"),
    ] {
        let info = FunctionInfo {
            function: Function {
                id,
                name: name.to_owned(),
                domain: Domain::HipRuntime.id(),
                returns: ValueKind::HipError,
                ..Function::default()
            },
            domain: Some(Domain::HipRuntime),
            library: String::new(),
            build_id: String::new(),
            range: None,
        };
        assert_eq!(watch.event(&Event::Function(Box::new(info))), None);
    }
    watch
}

fn call(function: u32, milliseconds: u64, result: u64) -> Event {
    Event::Call(Call {
        function,
        how: CallEnd::Returned(result),
        ..synthetic::call(1, 5, 5 + milliseconds * MS)
    })
}

fn text(cause: Option<Cause>) -> String {
    cause.map(|cause| cause.text).unwrap_or_default()
}

fn longer(name: Option<&str>, milliseconds: u64) -> (Option<Regex>, Duration) {
    let name = name.map(|name| Regex::new(name).unwrap());
    (name, Duration::from_millis(milliseconds))
}

#[test]
fn slow_calls_are_told_once() {
    let (name, time) = longer(Some("Malloc$"), 10);
    let mut watch = watch(&[Rule::Call { name, longer: time }]);
    let took = "hipMalloc of thread 100 of process 100 took 11.0 ms";
    assert_eq!(text(watch.event(&call(0, 11, 0))), took);
    assert_eq!(watch.event(&call(0, 10, 0)), None);
    assert_eq!(watch.event(&call(1, 11, 0)), None);
    let open = OpenCall {
        function: 0,
        pid: 100,
        tid: 101,
        begin: 5,
        correlation: 1,
    };
    assert_eq!(watch.open(&open, 5 + 9 * MS), None);
    let told = watch.open(&open, 5 + 20 * MS);
    let hangs = "hipMalloc of thread 101 of process 100 has not returned for 20.0 ms";
    assert_eq!(text(told), hangs);
    assert_eq!(watch.open(&open, 5 + 30 * MS), None);
    assert_eq!(watch.event(&call(0, 40, 0)), None, "told while it was open");
    assert!(watch.event(&call(0, 40, 0)).is_some(), "another call");
}

#[test]
fn errors_are_told_by_name_or_number() {
    let error = |name: Option<&str>| Rule::Error {
        name: name.map(str::to_owned),
    };
    let told = "hipMalloc of process 100 returned hipErrorOutOfMemory";
    for name in [None, Some("hipErrorOutOfMemory"), Some("2")] {
        let mut watch = watch(&[error(name)]);
        assert_eq!(text(watch.event(&call(0, 1, 2))), told, "{name:?}");
        assert_eq!(watch.event(&call(0, 1, 0)), None);
        // Failures of kernels come this way.
        assert!(watch.event(&call(2, 1, 2)).is_some());
        // Programs ask so what a pointer is.
        assert_eq!(watch.event(&call(3, 1, 2)), None);
    }
    let mut watch = watch(&[error(Some("hipErrorInvalidValue"))]);
    assert_eq!(watch.event(&call(0, 1, 2)), None);
    assert!(watch.event(&call(0, 1, 1)).is_some());
}

fn dispatch(begun: u64, ended: Option<u64>) -> Event {
    let window = |earliest, latest| Window { earliest, latest };
    Event::Dispatch(Box::new(Dispatch {
        kernel: Some(4),
        origin: Origin {
            pid: 7,
            ..Origin::default()
        },
        time: GpuTime {
            begin_window: window(0, Some(begun)),
            end_window: window(ended.unwrap_or(begun), ended),
            ..GpuTime::default()
        },
        ..Dispatch::default()
    }))
}

#[test]
fn only_kernels_that_are_known_to_be_long_are_told() {
    let (name, time) = longer(Some("gemm"), 10);
    let mut watch = watch(&[Rule::Kernel { name, longer: time }]);
    let kernel = |shown: &str| {
        Event::Kernel(Box::new(KernelInfo {
            id: 4,
            code_object: 1,
            pid: 7,
            kernel: Kernel::default(),
            demangled: shown.to_owned(),
            shown: shown.to_owned(),
            runtime: None,
            renamed: None,
        }))
    };
    watch.event(&kernel("axpy"));
    assert_eq!(watch.event(&dispatch(5, Some(5 + 20 * MS))), None);
    watch.event(&kernel("gemm"));
    let told = watch.event(&dispatch(5, Some(5 + 20 * MS)));
    assert_eq!(text(told), "gemm of process 7 ran for 20.0 ms or longer");
    assert_eq!(watch.event(&dispatch(5, Some(5 + 9 * MS))), None);
    assert_eq!(watch.event(&dispatch(5, None)), None);
}

#[test]
fn a_queue_is_told_again_when_it_has_moved() {
    let mut watch = watch(&[Rule::Stuck {
        longer: Duration::from_secs(10),
    }]);
    let mut pending = |second: u64, since: u64| {
        let queue = PendingQueue {
            pid: 7,
            queue: 0,
            node_id: Some(1),
            dispatches: 3,
            since: since * 1000 * MS,
        };
        watch.event(&Event::Pending(Box::new(Pending {
            time: second * 1000 * MS,
            queues: vec![queue],
        })))
    };
    assert_eq!(pending(10, 0), None);
    let told = "a queue of process 7 has not moved for 11.0 s, with 3 to do";
    assert_eq!(text(pending(11, 0)), told);
    assert_eq!(pending(12, 0), None);
    assert_eq!(pending(13, 12), None);
    assert!(pending(23, 12).is_some());
}

#[test]
fn a_queue_is_told_when_nothing_happens_any_more() {
    let second = 1000 * MS;
    let mut watch = watch(&[Rule::Stuck {
        longer: Duration::from_secs(10),
    }]);
    assert_eq!(watch.quiet(100 * second), None);
    let queue = PendingQueue {
        pid: 7,
        queue: 0,
        node_id: Some(1),
        dispatches: 1,
        since: second,
    };
    let pending = Pending {
        time: 2 * second,
        queues: vec![queue],
    };
    assert_eq!(watch.event(&Event::Pending(Box::new(pending))), None);
    assert_eq!(watch.quiet(3 * second), None, "news may still come");
    assert_eq!(watch.quiet(11 * second), None);
    assert_eq!(
        watch.quiet(12 * second),
        None,
        "it was looked at a second ago"
    );
    let told = "a queue of process 7 has not moved for 12.0 s, with 1 to do";
    assert_eq!(text(watch.quiet(13 * second)), told);
    assert_eq!(watch.quiet(20 * second), None);
}

#[test]
fn events_of_the_driver_are_told() {
    for (rule, name) in [
        (Rule::Reset, "GPU reset"),
        (Rule::Fault, "VMFAULT"),
        (Rule::Eviction, "queues evicted"),
    ] {
        let observed = Event::Observation(Box::new(Observation {
            domain: Domain::KfdEvent.id(),
            name: name.into(),
            whose: Whose {
                pid: 7,
                tid: 0,
                gpu_id: 0x51,
            },
            begin: 1,
            end: 2,
            is_open: false,
            fields: Vec::new(),
        }));
        let told = watch(std::slice::from_ref(&rule)).event(&observed);
        let expected = format!("the driver reported {name} of process 7 on GPU 0x51");
        assert_eq!(text(told), expected, "{rule}");
        assert_eq!(watch(&[Rule::Killed]).event(&observed), None);
    }
}
