//! HSA queues as used directly by a program, for benchmarks and tests that need dispatches at a
//! certain rate.

use std::ffi::{CStr, CString, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::bail;
use gputrace_simrocm_core::abi::{QueuePointer, Signal};
use gputrace_softgpu::packet::{BARRIER_BIT, KernelDispatch, kind};

/// Number of packets in a queue.
const PACKETS: u32 = 16_384;

/// A loaded library.
#[derive(Debug)]
pub struct Library(*mut c_void);

impl Library {
    /// Loads it.
    ///
    /// # Errors
    ///
    /// When it cannot be loaded.
    pub fn open(name: &CStr) -> anyhow::Result<Self> {
        // SAFETY: loads a library of this project, whose initialisation has no effects.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        if handle.is_null() {
            bail!("{} cannot be loaded; is it staged?", name.to_string_lossy());
        }
        Ok(Self(handle))
    }

    /// The address of a function, as that function's type.
    /// # Errors
    ///
    /// When it is not exported.
    pub fn function<F: Copy>(&self, name: &str) -> anyhow::Result<F> {
        const { assert!(size_of::<F>() == size_of::<usize>()) };
        let symbol = CString::new(name)?;
        // SAFETY: the handle is a library's, the name a C string.
        let address = unsafe { libc::dlsym(self.0, symbol.as_ptr()) };
        if address.is_null() {
            bail!("{name} is not exported");
        }
        // SAFETY: callers give the function's type from the C header; addresses have the same size.
        Ok(unsafe { std::mem::transmute_copy::<*mut c_void, F>(&address) })
    }
}

type ReadIndex = extern "C" fn(u64) -> u64;
type AddIndex = extern "C" fn(u64, u64) -> u64;
type Store = extern "C" fn(Signal, i64);
type Wait = extern "C" fn(Signal, u32, i64, u64, u32) -> i64;

/// A queue of the first GPU.
#[derive(Debug)]
pub struct Queue {
    address: u64,
    structure: QueuePointer,
    done: Signal,
    add_index: AddIndex,
    read_index: ReadIndex,
    store: Store,
    wait: Wait,
}

impl Queue {
    /// Creates a queue by `libhsa-runtime64.so.1`.
    ///
    /// # Errors
    ///
    /// When HSA fails.
    pub fn create(hsa: &Library) -> anyhow::Result<Self> {
        /// With one GPU, its handle is the last one.
        extern "C" fn last(agent: u64, found: &mut u64) -> u32 {
            *found = agent;
            0
        }
        type Create = extern "C" fn(u64, u32, u32, usize, usize, u32, u32, &mut u64) -> u32;
        let iterate: extern "C" fn(extern "C" fn(u64, &mut u64) -> u32, &mut u64) -> u32 =
            hsa.function("hsa_iterate_agents")?;
        let create: Create = hsa.function("hsa_queue_create")?;
        let signal_create: extern "C" fn(i64, u32, usize, &mut Signal) -> u32 =
            hsa.function("hsa_signal_create")?;
        let (mut agent, mut address, mut done) = (0, 0, Signal(0));
        let init: extern "C" fn() -> u32 = hsa.function("hsa_init")?;
        let outcomes = [
            // HSA counts initialisations, so HIP may have done it, too.
            init(),
            iterate(last, &mut agent),
            create(agent, PACKETS, 0, 0, 0, u32::MAX, u32::MAX, &mut address),
            signal_create(1, 0, 0, &mut done),
        ];
        let structure = QueuePointer::at(address);
        if outcomes != [0; 4] || structure.get().is_none() {
            bail!("HSA does not work: {outcomes:?}");
        }
        Ok(Self {
            address,
            structure,
            done,
            add_index: hsa.function("hsa_queue_add_write_index_relaxed")?,
            read_index: hsa.function("hsa_queue_load_read_index_scacquire")?,
            store: hsa.function("hsa_signal_store_screlease")?,
            wait: hsa.function("hsa_signal_wait_scacquire")?,
        })
    }

    /// Submits a kernel with one workgroup; waits while the queue is full. Only if `last` is set
    /// does it have a completion signal.
    pub fn dispatch(&mut self, last: bool) {
        let Some(structure) = self.structure.get() else {
            return;
        };
        let packet = KernelDispatch {
            header: kind::KERNEL_DISPATCH | BARRIER_BIT,
            setup: 1,
            workgroup: [64, 1, 1],
            reserved0: 0,
            grid: [64, 1, 1],
            private_segment: 0,
            group_segment: 0,
            kernel_object: 4096,
            kernarg: 0,
            reserved2: 0,
            completion: if last { self.done.0 } else { 0 },
        };
        let index = (self.add_index)(self.address, 1);
        while index - (self.read_index)(self.address) >= u64::from(PACKETS) {
            thread::yield_now();
        }
        structure.ring().write(index, zerocopy::transmute!(packet));
        (self.store)(structure.hsa.doorbell, index.cast_signed());
    }

    /// Waits for the last kernel.
    pub fn wait(&self) {
        (self.wait)(self.done, 2, 1, u64::MAX, 0);
    }
}

/// Submits kernels without completion signals, in groups at a steady rate, until standard input is
/// closed. For each line on it, prints what was submitted so far.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Paced {
    /// Kernels in a second
    #[arg(long, default_value_t = 20_000)]
    pub rate: u64,
    /// Kernels that are submitted at a time
    #[arg(long, default_value_t = 64)]
    pub group: u64,
}

/// What was submitted so far.
#[derive(Debug, Default)]
struct Submitted {
    kernels: AtomicU64,
    /// Time that the thread has spent on it, ns.
    time: AtomicU64,
    is_over: AtomicBool,
}

impl Paced {
    /// Prints `ready`, submits, and waits until the last kernel is done.
    ///
    /// # Errors
    ///
    /// When HSA fails.
    #[expect(
        clippy::print_stdout,
        reason = "what it says is for tests and benchmarks"
    )]
    pub fn submit(&self) -> anyhow::Result<()> {
        let hsa = Library::open(c"libhsa-runtime64.so.1")?;
        let mut queue = Queue::create(&hsa)?;
        let submitted = Arc::new(Submitted::default());
        let asked = Arc::clone(&submitted);
        thread::spawn(move || {
            for _ in std::io::stdin().lines().map_while(Result::ok) {
                let kernels = asked.kernels.load(Ordering::Relaxed);
                println!("{kernels} {}", asked.time.load(Ordering::Relaxed));
            }
            asked.is_over.store(true, Ordering::Relaxed);
        });
        let group = self.group.max(1);
        let every = Duration::from_nanos(group * 1_000_000_000 / self.rate.max(1));
        println!("ready");
        let mut due = Instant::now();
        while !submitted.is_over.load(Ordering::Relaxed) {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            due += every;
            let begin = Instant::now();
            for _ in 0..group {
                queue.dispatch(false);
            }
            let time = begin.elapsed().as_nanos() as u64;
            submitted.time.fetch_add(time, Ordering::Relaxed);
            submitted.kernels.fetch_add(group, Ordering::Relaxed);
        }
        queue.dispatch(true);
        queue.wait();
        Ok(())
    }
}
