//! Tests the SDMA processor: data moves, signals follow, and the log is right.
#![allow(
    clippy::indexing_slicing,
    reason = "test code outside of #[test] functions"
)]

mod support;

use std::sync::atomic::{AtomicU64, Ordering};

use gputrace_softgpu::gpu::QueueSpec;
use gputrace_softgpu::truth::{Copy, Piece, QueueKind, Record};
use support::{Bench, Signal, until};

struct Ring {
    memory: Box<[AtomicU64]>,
    read: Box<AtomicU64>,
    doorbell: Box<AtomicU64>,
    at: u64,
}

impl Ring {
    fn new(bytes: u64) -> Self {
        let cell = || Box::new(AtomicU64::new(0));
        let memory = (0..bytes / 8).map(|_| AtomicU64::new(0)).collect();
        Self {
            memory,
            read: cell(),
            doorbell: cell(),
            at: 0,
        }
    }

    fn spec(&self) -> QueueSpec {
        QueueSpec {
            agent: 0,
            kind: QueueKind::Sdma,
            ring: self.memory.as_ptr() as u64,
            ring_bytes: self.memory.len() as u64 * 8,
            read_pointer: self.read.as_ptr() as u64,
            doorbell: self.doorbell.as_ptr() as u64,
        }
    }

    fn submit(&mut self, packets: &[&[u32]]) {
        for word in packets.iter().flat_map(|packet| packet.iter()) {
            let dword = self.at / 4 % (self.memory.len() as u64 * 2);
            let cell = &self.memory[dword as usize / 2];
            let shift = dword % 2 * 32;
            let kept = cell.load(Ordering::Relaxed) & !(0xffff_ffff << shift);
            cell.store(kept | u64::from(*word) << shift, Ordering::Relaxed);
            self.at += 4;
        }
        self.doorbell.store(self.at, Ordering::Release);
    }
}

fn split(address: u64) -> [u32; 2] {
    [address as u32, (address >> 32) as u32]
}

fn linear(source: *const u8, destination: *mut u8, bytes: u32) -> [u32; 7] {
    let ([s0, s1], [d0, d1]) = (split(source as u64), split(destination as u64));
    [1, bytes - 1, 0, s0, s1, d0, d1]
}

fn timestamp(address: u64) -> [u32; 3] {
    let [low, high] = split(address);
    [0x020d, low, high]
}

fn decrement(signal: &Signal) -> [u32; 8] {
    let [low, high] = split(signal.handle() + 8);
    [47 << 25 | 10, low, high, u32::MAX, u32::MAX, 0, 0, 0]
}

fn copies(bench: &Bench) -> Vec<Copy> {
    let copy = |record| match record {
        Record::Copy(copy) => Some(copy),
        _ => None,
    };
    bench.records().into_iter().filter_map(copy).collect()
}

#[test]
fn a_submission_waits_copies_stamps_and_completes() {
    let bench = Bench::new("copy = { latency_ns = 2_000_000 }");
    let mut ring = Ring::new(1 << 12);
    bench.gpu.create_queue(&ring.spec()).unwrap();
    let source: Vec<u8> = (0..200_u8).collect();
    let mut destination = vec![0_u8; 200];
    let target = destination.as_mut_ptr();
    let (dependency, signal, fence) = (Signal::new(1), Signal::new(1), Signal::new(0));
    let stamps = Signal::new(0);
    let [low, high] = split(dependency.handle() + 8);
    let [fence_low, fence_high] = split(fence.handle());
    ring.submit(&[
        &[2 << 16, 9, 9],
        &[1 << 31 | 3 << 28 | 8, low, high, 0, u32::MAX, 0],
        &timestamp(stamps.handle()),
        &[17, 0, 0, 0, 0],
        &linear(source.as_ptr(), target, 150),
        &linear(source[150..].as_ptr(), target.wrapping_add(150), 50),
        &timestamp(stamps.handle() + 8),
        &decrement(&signal),
        &[5, fence_low, fence_high, 17],
        &[6, 17],
    ]);
    std::thread::sleep(std::time::Duration::from_millis(2));
    assert_eq!(signal.value(), 1, "the dependency is not met");
    dependency.field(8).store(0, Ordering::Release);
    signal.wait_for(0);
    until("the trap", || {
        *bench.machine.interrupts.lock().unwrap() == [17]
    });
    until("the read pointer", || {
        ring.read.load(Ordering::Acquire) == ring.at
    });
    assert_eq!(fence.field(0).load(Ordering::Relaxed), 17);
    assert_eq!(destination, source);

    let copies = copies(&bench);
    let [copy] = copies.as_slice() else {
        panic!("{copies:?}")
    };
    let whole = Piece {
        source: source.as_ptr() as u64,
        destination: target as u64,
        bytes: 200,
    };
    assert_eq!(
        (copy.bytes, copy.signal, copy.stamped),
        (200, signal.handle(), true)
    );
    assert_eq!(copy.pieces, [whole], "chunks are merged");
    let ticks = (
        stamps.field(0).load(Ordering::Relaxed),
        stamps.field(8).load(Ordering::Relaxed),
    );
    assert_eq!((copy.begin.ticks, copy.end.ticks), ticks);
    assert!(
        copy.end.ns - copy.begin.ns >= 4_000_000,
        "two packets of 2 ms latency"
    );
}

#[test]
fn boxes_and_fills_touch_what_they_should() {
    let bench = Bench::new("");
    let mut ring = Ring::new(1 << 12);
    bench.gpu.create_queue(&ring.spec()).unwrap();
    // A box of 3 x 2 elements of 4 bytes, from (1, 1) of rows of 8 to (0, 0) of rows of 5.
    let source: Vec<u32> = (0..32).collect();
    let mut boxed = [99_u32; 15];
    let mut filled = [0_u32; 8];
    let signal = Signal::new(1);
    let ([s0, s1], [d0, d1]) = (
        split(source.as_ptr() as u64),
        split(boxed.as_mut_ptr() as u64),
    );
    let [f0, f1] = split(filled.as_mut_ptr() as u64);
    ring.submit(&[
        &[
            2 << 29 | 4 << 8 | 1,
            s0,
            s1,
            1 | 1 << 16,
            7 << 13,
            31,
            d0,
            d1,
            0,
            4 << 13,
            14,
            2 | 1 << 16,
            0,
        ],
        &[2 << 30 | 11, f0, f1, 0xabcd_0123, 4 * 6 - 1],
        &decrement(&signal),
    ]);
    signal.wait_for(0);
    assert_eq!(
        boxed,
        [9, 10, 11, 99, 99, 17, 18, 19, 99, 99, 99, 99, 99, 99, 99]
    );
    assert_eq!(
        filled,
        [
            0xabcd_0123,
            0xabcd_0123,
            0xabcd_0123,
            0xabcd_0123,
            0xabcd_0123,
            0xabcd_0123,
            0,
            0
        ]
    );
    let copies = copies(&bench);
    let bytes: Vec<u64> = copies[0].pieces.iter().map(|piece| piece.bytes).collect();
    assert_eq!((copies.len(), bytes), (1, vec![12, 12, 24]));
}

#[test]
fn a_ring_wraps_many_times() {
    let bench = Bench::new("");
    let mut ring = Ring::new(1 << 10);
    bench.gpu.create_queue(&ring.spec()).unwrap();
    for round in 0..200_u32 {
        let (source, mut destination) = ([round; 16], [0_u32; 16]);
        let signal = Signal::new(1);
        ring.submit(&[
            &linear(source.as_ptr().cast(), destination.as_mut_ptr().cast(), 64),
            &decrement(&signal),
        ]);
        signal.wait_for(0);
        assert_eq!(destination, source);
    }
    assert_eq!(copies(&bench).len(), 200);
}

#[test]
fn an_unknown_operation_is_named() {
    let bench = Bench::new("");
    let mut ring = Ring::new(1 << 10);
    bench.gpu.create_queue(&ring.spec()).unwrap();
    ring.submit(&[&[0xee, 1, 2, 3]]);
    until("the message", || {
        !bench.machine.fatal.lock().unwrap().is_empty()
    });
    let messages = bench.machine.fatal.lock().unwrap().clone();
    assert!(
        messages[0].starts_with("unknown SDMA packet: ee000000"),
        "{messages:?}"
    );
}
