//! Synthetic launches and dispatches.

use super::*;
use crate::{
    model::{
        event::Lifetime,
        gpu::Origin,
        values::{Pointee, PointeeData},
    },
    synthetic::call,
};

const PID: u32 = 7;
const SIZE: ([u32; 3], [u32; 3]) = ([64, 1, 1], [64, 1, 1]);

/// A process that has just begun. Its functions are numbered by their index here.
fn begun() -> Deferred {
    let mut deferred = Deferred::default();
    let names = [
        "hipLaunchKernel",
        "hipSetDevice",
        "hipGraphLaunch",
        "hipMalloc",
        "hipStreamCreateWithFlags",
        "hipStreamDestroy",
    ];
    for (id, name) in (0..).zip(names) {
        let info = FunctionInfo::named(id, name, Some(Domain::HipRuntime));
        deferred.seen(&mut Event::Function(Box::new(info)));
    }
    lifetime(
        &mut deferred,
        PID,
        0,
        LifetimeChange::ProcessStarted { parent: 1 },
    );
    deferred
}

fn lifetime(deferred: &mut Deferred, tid: u32, time: u64, what: LifetimeChange) {
    deferred.seen(&mut Event::Lifetime(Lifetime {
        time,
        pid: PID,
        tid,
        what,
    }));
}

fn called(deferred: &mut Deferred, function: u32, tid: u32, correlation: u64, args: [u64; 6]) {
    let mut made = call(correlation, correlation * 10, correlation * 10 + 5);
    (made.function, made.pid, made.tid, made.args) = (function, PID, tid, args);
    made.how = CallEnd::Returned(0);
    deferred.seen(&mut Event::Call(made));
}

/// Launches one block of 64 work-items of a kernel into a stream.
fn launched(deferred: &mut Deferred, tid: u32, correlation: u64, kernel: u64, stream: u64) {
    // The stream is the second word on the stack, which `call` sets to 0.
    let mut made = call(correlation, correlation * 10, correlation * 10 + 5);
    (made.function, made.pid, made.tid) = (0, PID, tid);
    made.args = [kernel, 1 << 32 | 1, 1, 1 << 32 | 64, 1, 0];
    let word = signature("hipLaunchKernel").and_then(stream_word).unwrap();
    match usize::from(word).checked_sub(REGISTER_ARGS) {
        Some(word) => made.stack[word] = stream,
        None => made.args[usize::from(word)] = stream,
    }
    made.how = CallEnd::Returned(0);
    deferred.seen(&mut Event::Call(made));
}

fn dispatched(deferred: &mut Deferred, tid: u32, time: u64, kernel_object: u64) -> (u64, bool) {
    let (grid, workgroup) = SIZE;
    let mut event = Event::Dispatch(Box::new(Dispatch {
        origin: Origin {
            pid: PID,
            tid,
            time,
            ..Origin::default()
        },
        kernel_object,
        grid,
        workgroup,
        ..Dispatch::default()
    }));
    deferred.seen(&mut event);
    let Event::Dispatch(dispatch) = event else {
        panic!("a dispatch stays one")
    };
    (dispatch.origin.outermost, dispatch.origin.deferred)
}

#[test]
fn the_only_stream_is_followed_in_its_order() {
    let mut deferred = begun();
    for correlation in 1..=3 {
        launched(&mut deferred, PID, correlation, 0xf, 0);
    }
    for correlation in 1..=3 {
        assert_eq!(
            dispatched(&mut deferred, 70, 100, 0x40),
            (correlation, true)
        );
    }
    // One more than were launched.
    assert_eq!(dispatched(&mut deferred, 70, 100, 0x40), (0, false));
}

#[test]
fn while_two_streams_fit_nothing_is_claimed() {
    let mut deferred = begun();
    launched(&mut deferred, PID, 1, 0xf, 0x100);
    launched(&mut deferred, PID, 2, 0xe, 0x200);
    launched(&mut deferred, PID, 3, 0xf, 0x100);
    assert_eq!(dispatched(&mut deferred, 70, 100, 0x40), (0, false));
    // The other stream has had only one launch.
    assert_eq!(dispatched(&mut deferred, 70, 101, 0x40), (3, true));
    // The remaining stream fits only one thread.
    assert_eq!(dispatched(&mut deferred, 71, 102, 0x80), (2, true));
}

#[test]
fn a_launch_that_began_later_is_not_its_call() {
    let mut deferred = begun();
    launched(&mut deferred, PID, 20, 0xf, 0);
    assert_eq!(dispatched(&mut deferred, 70, 199, 0x40), (0, false));
}

#[test]
fn a_thread_made_within_a_call_works_for_its_device() {
    let mut deferred = begun();
    // Two of the program's threads, each with its own GPU.
    for (tid, device) in [(8, 0), (9, 1)] {
        called(
            &mut deferred,
            1,
            tid,
            u64::from(tid),
            [device, 0, 0, 0, 0, 0],
        );
        let made = u64::from(tid) * 100 + 2;
        let worker = tid * 10;
        lifetime(
            &mut deferred,
            worker,
            made,
            LifetimeChange::ThreadStarted { creator: tid },
        );
        called(&mut deferred, 3, tid, u64::from(tid) * 10, [0; 6]);
    }
    launched(&mut deferred, 8, 200, 0xf, 0);
    launched(&mut deferred, 9, 201, 0xe, 0);
    assert_eq!(dispatched(&mut deferred, 90, 3000, 0x80), (201, true));
    assert_eq!(dispatched(&mut deferred, 80, 3000, 0x40), (200, true));
}

#[test]
fn a_thread_made_with_a_stream_works_for_it() {
    let mut deferred = begun();
    for (worker, stream) in [(80, 0x100), (90, 0x200)] {
        let mut made = call(stream, stream * 10, stream * 10 + 5);
        (made.function, made.pid, made.tid) = (4, PID, PID);
        made.how = CallEnd::Returned(0);
        made.pointees = vec![Pointee {
            word: 0,
            at_return: true,
            data: PointeeData::Bytes(stream.to_le_bytes().to_vec()),
        }];
        let started = LifetimeChange::ThreadStarted { creator: PID };
        lifetime(&mut deferred, worker, made.begin + 1, started);
        deferred.seen(&mut Event::Call(made));
    }
    // Equal launches: only the streams for which the threads were created tell them apart.
    launched(&mut deferred, PID, 0x1000, 0xf, 0x100);
    launched(&mut deferred, PID, 0x1001, 0xf, 0x200);
    // Dispatches are reported when they are over.
    called(&mut deferred, 5, PID, 0x1002, [0x100, 0, 0, 0, 0, 0]);
    assert_eq!(dispatched(&mut deferred, 90, 0x10000, 0x40), (0x1001, true));
    assert_eq!(dispatched(&mut deferred, 80, 0x10001, 0x40), (0x1000, true));
}

#[test]
fn graphs_and_threads_that_race_end_all_claims_for_the_stream() {
    let mut deferred = begun();
    called(&mut deferred, 2, PID, 1, [0; 6]);
    launched(&mut deferred, PID, 2, 0xf, 0);
    assert_eq!(dispatched(&mut deferred, 70, 100, 0x40), (0, false));

    let mut deferred = begun();
    launched(&mut deferred, PID, 1, 0xf, 0x100);
    let mut race = call(2, 12, 17);
    (race.function, race.pid, race.tid) = (0, PID, 8);
    race.args = [0xf, 1 << 32 | 1, 1, 1 << 32 | 64, 1, 0x100];
    race.stack = [0x100; gputrace_abi::STACK_ARGS];
    race.how = CallEnd::Returned(0);
    deferred.seen(&mut Event::Call(race));
    assert_eq!(dispatched(&mut deferred, 70, 100, 0x40), (0, false));
}

#[test]
fn processes_that_submit_themselves_or_began_before_are_left_alone() {
    let mut deferred = begun();
    launched(&mut deferred, PID, 1, 0xf, 0);
    assert_eq!(dispatched(&mut deferred, PID, 100, 0x40), (0, false));
    assert_eq!(dispatched(&mut deferred, 70, 100, 0x40), (0, false));

    let mut deferred = begun();
    deferred.processes.clear();
    launched(&mut deferred, PID, 1, 0xf, 0);
    assert_eq!(dispatched(&mut deferred, 70, 100, 0x40), (0, false));
}
