//! Takes the place of ROCr: memory with queues and signals in it, and a host that records its
//! calls.
#![allow(dead_code, reason = "not every test file uses all of it")]
#![allow(
    unreachable_pub,
    reason = "a module of test programs, which have no other face"
)]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "test code outside of #[test] functions"
)]

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gputrace_softgpu::bus::{Bus, Identity};
use gputrace_softgpu::config::Config;
use gputrace_softgpu::gpu::{Host, QueueSpec, SoftGpu};
use gputrace_softgpu::layout::{queue, signal};
use gputrace_softgpu::packet::KernelDispatch;
use gputrace_softgpu::truth::{Dispatch, QueueKind, Record, read_directory};

/// The host. Kernels are named after the low digits of their descriptor's address.
#[derive(Default)]
pub struct Machine {
    pub interrupts: Mutex<Vec<u32>>,
    pub resets: Mutex<Vec<u32>>,
    pub fatal: Mutex<Vec<String>>,
}

impl Host for Machine {
    fn interrupt(&self, event_id: u32) {
        self.interrupts.lock().unwrap().push(event_id);
    }

    fn kernel_name(&self, kernel_object: u64) -> Option<Arc<str>> {
        Some(format!("kernel{}", kernel_object & 0xff).into())
    }

    fn gpu_reset(&self, agent: u32) {
        self.resets.lock().unwrap().push(agent);
    }

    fn fatal(&self, message: &str) {
        self.fatal.lock().unwrap().push(message.to_owned());
    }
}

/// A GPU with its log in a temporary directory.
pub struct Bench {
    pub gpu: SoftGpu,
    pub machine: Arc<Machine>,
    pub directory: tempfile::TempDir,
}

impl Bench {
    pub fn new(toml: &str) -> Self {
        let config = Config::parse(toml, Path::new("test.toml")).unwrap();
        let machine = Arc::new(Machine::default());
        let directory = tempfile::tempdir().unwrap();
        // SAFETY: the tests' queues hold addresses of memory that outlives the GPU's queues.
        let bus = unsafe { Bus::new(Arc::new(Identity)) };
        let gpu = SoftGpu::new(config, bus, machine.clone(), Some(directory.path())).unwrap();
        Self {
            gpu,
            machine,
            directory,
        }
    }

    pub fn records(&self) -> Vec<Record<'static>> {
        read_directory(self.directory.path()).unwrap()
    }

    pub fn dispatches(&self) -> Vec<Dispatch> {
        let dispatch = |record| match record {
            Record::Dispatch(dispatch) => Some(dispatch),
            _ => None,
        };
        self.records().into_iter().filter_map(dispatch).collect()
    }
}

/// `amd_signal_t`.
#[repr(align(64))]
pub struct Signal([AtomicU64; 8]);

impl Signal {
    pub fn new(value: i64) -> Self {
        let signal = Self([const { AtomicU64::new(0) }; 8]);
        signal.field(signal::KIND).store(1, Ordering::Relaxed);
        signal
            .field(signal::VALUE)
            .store(value.cast_unsigned(), Ordering::Relaxed);
        signal
    }

    pub fn handle(&self) -> u64 {
        self.0.as_ptr() as u64
    }

    pub fn field(&self, offset: u64) -> &AtomicU64 {
        &self.0[offset as usize / 8]
    }

    pub fn value(&self) -> i64 {
        self.field(signal::VALUE)
            .load(Ordering::Acquire)
            .cast_signed()
    }

    pub fn ticks(&self) -> (u64, u64) {
        let load = |offset| self.field(offset).load(Ordering::Relaxed);
        (load(signal::START_TS), load(signal::END_TS))
    }

    pub fn wait_for(&self, value: i64) {
        until("the signal's value", || self.value() == value);
    }
}

/// `amd_queue_t`, its ring and its doorbell.
pub struct Queue {
    structure: Box<[AtomicU64]>,
    ring: Box<[AtomicU64]>,
    pub doorbell: Box<AtomicU64>,
    packets: u64,
}

impl Queue {
    pub fn new(packets: u64, profiling: bool) -> Self {
        let cells = |count: u64, value: u64| (0..count).map(|_| AtomicU64::new(value)).collect();
        let queue = Self {
            structure: cells(32, 0),
            // All headers are invalid, as in a new ring of ROCr.
            ring: cells(packets * 8, 1),
            doorbell: Box::new(AtomicU64::new(u64::MAX)),
            packets,
        };
        queue
            .field(queue::BASE_ADDRESS)
            .store(queue.ring.as_ptr() as u64, Ordering::Relaxed);
        queue.field(queue::SIZE).store(packets, Ordering::Relaxed);
        queue.field(queue::ID).store(77, Ordering::Relaxed);
        if profiling {
            let properties = u64::from(queue::ENABLE_PROFILING) << 32;
            queue
                .field(queue::PROPERTIES & !7)
                .store(properties, Ordering::Relaxed);
        }
        queue
    }

    pub fn field(&self, offset: u64) -> &AtomicU64 {
        &self.structure[offset as usize / 8]
    }

    pub fn spec(&self, agent: u32) -> QueueSpec {
        QueueSpec {
            agent,
            kind: QueueKind::Aql,
            ring: self.ring.as_ptr() as u64,
            ring_bytes: self.packets * 64,
            read_pointer: self.field(queue::READ_DISPATCH_ID).as_ptr() as u64,
            doorbell: self.doorbell.as_ptr() as u64,
        }
    }

    pub fn read_index(&self) -> u64 {
        self.field(queue::READ_DISPATCH_ID).load(Ordering::Acquire)
    }

    /// Writes a packet as HIP does: index, room, body, header, but not the doorbell. Returns the
    /// index.
    pub fn write(&self, words: [u64; 8]) -> u64 {
        let index = self
            .field(queue::WRITE_DISPATCH_ID)
            .fetch_add(1, Ordering::AcqRel);
        until("room in the queue", || {
            index - self.read_index() < self.packets
        });
        let slot = (index % self.packets * 8) as usize;
        for (cell, word) in self.ring[slot..slot + 8].iter().zip(words).skip(1) {
            cell.store(word, Ordering::Relaxed);
        }
        self.ring[slot].store(words[0], Ordering::Release);
        index
    }

    /// Writes a packet and rings the doorbell.
    pub fn submit(&self, words: [u64; 8]) -> u64 {
        let index = self.write(words);
        self.doorbell.store(index, Ordering::Release);
        index
    }
}

/// A packet for kernel `number` with `items` work-items, and with or without the barrier bit.
pub fn kernel(number: u64, items: u32, barrier: bool, completion: u64) -> [u64; 8] {
    zerocopy::transmute!(KernelDispatch {
        header: if barrier { 0x0b02 } else { 0x0a02 },
        setup: 1,
        workgroup: [64, 1, 1],
        reserved0: 0,
        grid: [items, 1, 1],
        private_segment: 0,
        group_segment: 0,
        kernel_object: 0x7f00_0000_0000 + number,
        kernarg: 0,
        reserved2: 0,
        completion,
    })
}

/// A barrier packet of the given type with up to five signals.
pub fn barrier(kind: u64, signals: &[u64], completion: u64) -> [u64; 8] {
    let mut words = [0; 8];
    words[0] = kind | 1 << 8;
    words[1..=signals.len()].copy_from_slice(signals);
    words[7] = completion;
    words
}

/// Waits for a condition, for a limited time, which only one that never holds takes.
pub fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(5);
    while !condition() {
        assert!(Instant::now() < deadline, "still waiting for {what}");
        std::thread::yield_now();
    }
}
