//! What a recording says while it goes on.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Cursor;

use gputrace_abi::gpu::completion_reason;
use gputrace_capture::{
    CaptureReader,
    ledger::Ledger,
    meta::{End, Epoch, Recording},
};
use gputrace_timeline::{
    Timeline,
    event::{Event, PendingQueue},
    synthetic::{
        Synthetic,
        gpu::{self, GPU_NODE, PID},
    },
};

const MS: u64 = 1_000_000;

fn account(time: u64, complete: bool) -> Ledger {
    Ledger {
        time,
        complete,
        ..Ledger::default()
    }
}

/// One dispatch, submitted after 50 ms and completed after 800 ms. Records are used half a second
/// after they were made.
fn capture() -> Vec<u8> {
    let mut capture = Synthetic::new(&Recording::default());
    for agent in gpu::agents() {
        capture.meta(agent);
    }
    for handle in gpu::handles() {
        capture.meta(handle);
    }
    for index in 0..20 {
        capture.meta(gpu::clock(index * 10_000_000, index * 100 * MS));
    }
    capture.meta(gpu::queue());
    capture.meta(gpu::code_object(0));
    let stamps = (70 * MS / 10, 75 * MS / 10);
    capture
        .record(&gpu::packet(7, 50 * MS, 0x9000))
        .meta(Epoch { time: 400 * MS })
        .meta(Epoch { time: 450 * MS })
        .meta(Epoch { time: 700 * MS })
        .meta(account(750 * MS, false))
        .record(&gpu::completion(
            0x9000,
            800 * MS,
            completion_reason::REARM,
            0,
            stamps,
        ))
        .meta(Epoch { time: 1500 * MS })
        .meta(account(1600 * MS, true))
        .meta(End {
            time: 1600 * MS,
            ..End::default()
        });
    capture.bytes()
}

/// Times of the accounts, and what was pending when.
fn read(timeline: Timeline<Cursor<Vec<u8>>>) -> (Vec<u64>, Vec<(u64, Vec<PendingQueue>)>) {
    let (mut accounts, mut pending) = (Vec::new(), Vec::new());
    for event in timeline {
        match event.unwrap() {
            Event::Ledger(ledger) => accounts.push(ledger.time / MS),
            Event::Pending(one) => pending.push((one.time / MS, one.queues)),
            _ => {}
        }
    }
    (accounts, pending)
}

fn follow() -> Timeline<Cursor<Vec<u8>>> {
    Timeline::follow(CaptureReader::new(Cursor::new(capture())).unwrap()).unwrap()
}

#[test]
fn queues_have_pending_work_until_its_end_is_known() {
    let (accounts, pending) = read(follow().with_accounts());
    assert_eq!(accounts, [750, 1600]);
    // At most one each 100 ms, and one with each account.
    let times: Vec<u64> = pending.iter().map(|(time, _)| *time).collect();
    assert_eq!(times, [0, 200, 250, 1000]);
    let queues: Vec<usize> = pending.iter().map(|(_, queues)| queues.len()).collect();
    assert_eq!(queues, [0, 1, 1, 0]);
    let queue = pending[1].1[0];
    assert_eq!(
        (queue.pid, queue.node_id, queue.dispatches),
        (PID, Some(GPU_NODE), 1)
    );
    // Its packet's record was made when the doorbell rang.
    assert!(queue.since <= 50 * MS, "{queue:?}");
}

#[test]
fn only_the_last_account_comes_unasked() {
    assert_eq!(read(follow()), (vec![1600], vec![]));
}
