//! Streams: ordered work of a program, submitted as packets to an HSA queue.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use gputrace_simrocm_core::abi::{AgentHandle, Signal};
use gputrace_simrocm_core::ffi::Untyped;
use gputrace_simrocm_core::packet::{Barrier, SYSTEM_FENCES};
use gputrace_softgpu::packet::{BARRIER_BIT, kind};

use crate::device::{Device, HwQueue, allocate, current, settings, system};
use crate::error::{Error, Hip};
use crate::graph::Graph;
use crate::signals::{self, Completion, Pool};

/// A stream.
pub(crate) struct Stream {
    pub(crate) device: &'static Device,
    /// Whether it is the stream that is used when none is named.
    is_null: bool,
    pub(crate) flags: u32,
    pub(crate) priority: i32,
    pub(crate) queue: Arc<HwQueue>,
    work: Mutex<Work>,
    /// Whether something was submitted since the host last waited for everything.
    pub(crate) dirty: AtomicBool,
}

/// The work of a stream in flight.
pub(crate) struct Work {
    signals: Pool,
    /// What the next work must wait for: copies, other streams, host functions.
    waits: Vec<Arc<Completion>>,
    /// The completion of everything submitted so far, when the newest work has one.
    last: Option<Arc<Completion>>,
    /// Number of commands since the last barrier with a signal.
    since_marker: u32,
    kernargs: Kernargs,
    /// A page-locked buffer for small copies from and to pageable memory.
    staging: u64,
    /// The graph being captured; then commands are not executed.
    pub(crate) capture: Option<Graph>,
}

/// A ring of memory for kernel arguments.
struct Kernargs {
    start: u64,
    used: usize,
}

/// Its size in bytes.
const KERNARG_BYTES: usize = 1 << 20;
/// Maximum number of commands between two barriers with a signal (`DEBUG_CLR_MAX_BATCH_SIZE`).
const MAX_BATCH: u32 = 1_000;
/// Size of the staging buffer in bytes (`GPU_STAGING_BUFFER_SIZE`).
pub(crate) const STAGING_BYTES: usize = 4 << 20;

/// Flag `hipStreamNonBlocking`: the stream and the null stream do not wait for each other.
pub(crate) const NON_BLOCKING: u32 = 1;

/// Whether a packet gets a completion signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signalled {
    /// Always.
    Yes,
    /// Only if every packet does.
    Profiled,
}

static STREAMS: RwLock<Option<HashMap<u64, Arc<Stream>>>> = RwLock::new(None);

/// The stream of a handle; null is the null stream of the current device.
pub(crate) fn find(handle: u64) -> Hip<Arc<Stream>> {
    /// `hipStreamLegacy` and `hipStreamPerThread`.
    const SPECIAL: std::ops::RangeInclusive<u64> = 0..=2;
    if SPECIAL.contains(&handle) {
        return current()?.null_stream();
    }
    let streams = STREAMS.read().unwrap_or_else(PoisonError::into_inner);
    let found = streams.as_ref().and_then(|streams| streams.get(&handle));
    found.cloned().ok_or(Error::INVALID_HANDLE)
}

/// Assigns a handle to a stream: its address.
pub(crate) fn add(stream: Arc<Stream>) -> u64 {
    let handle = Arc::as_ptr(&stream) as u64;
    let mut streams = STREAMS.write().unwrap_or_else(PoisonError::into_inner);
    streams.get_or_insert_default().insert(handle, stream);
    handle
}

/// Removes the handle of a stream.
pub(crate) fn remove(handle: u64) -> Hip<Arc<Stream>> {
    let mut streams = STREAMS.write().unwrap_or_else(PoisonError::into_inner);
    let gone = streams.get_or_insert_default().remove(&handle);
    let gone = gone.ok_or(Error::INVALID_HANDLE)?;
    gone.queue.streams.fetch_sub(1, Ordering::Relaxed);
    Ok(gone)
}

/// The streams of a device except its null stream.
fn of_device(device: &Device) -> Vec<Arc<Stream>> {
    let streams = STREAMS.read().unwrap_or_else(PoisonError::into_inner);
    let all = streams.iter().flat_map(|streams| streams.values());
    all.filter(|stream| stream.device.index == device.index)
        .cloned()
        .collect()
}

/// Waits for all work on a device.
pub(crate) fn synchronize_device(device: &'static Device) -> Hip {
    for stream in of_device(device)
        .into_iter()
        .chain(device.used_null_stream())
    {
        stream.finish()?;
    }
    Ok(())
}

impl Stream {
    pub(crate) fn new(
        device: &'static Device,
        flags: u32,
        priority: i32,
        is_null: bool,
    ) -> Hip<Arc<Self>> {
        let system = system()?;
        let work = Work {
            signals: Pool::new()?,
            waits: Vec::new(),
            last: None,
            since_marker: 0,
            kernargs: Kernargs {
                start: allocate(system.kernarg_pool, KERNARG_BYTES)?,
                used: 0,
            },
            staging: 0,
            capture: None,
        };
        Ok(Arc::new(Self {
            device,
            is_null,
            flags,
            priority,
            queue: device.queue()?,
            work: Mutex::new(work),
            dirty: AtomicBool::new(false),
        }))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a command: locks the stream, and makes the command wait for the null stream, or on
    /// the null stream for all others.
    pub(crate) fn begin(&self) -> Hip<MutexGuard<'_, Work>> {
        let busy = |stream: &Arc<Self>| {
            let own = std::ptr::eq(Arc::as_ptr(stream), self);
            !own && stream.flags & NON_BLOCKING == 0 && stream.dirty.load(Ordering::Acquire)
        };
        let mut waits = Vec::new();
        if self.is_null {
            for stream in of_device(self.device).iter().filter(|stream| busy(stream)) {
                waits.extend(stream.completion()?);
            }
        } else if self.flags & NON_BLOCKING == 0 {
            for stream in self
                .device
                .used_null_stream()
                .iter()
                .filter(|stream| busy(stream))
            {
                waits.extend(stream.completion()?);
            }
        }
        let mut work = self.lock();
        work.waits.extend(waits);
        self.dirty.store(true, Ordering::Release);
        Ok(work)
    }

    /// An armed signal for a packet, if it gets one.
    pub(crate) fn signal(
        &self,
        work: &mut Work,
        signalled: Signalled,
    ) -> Hip<Option<Arc<Completion>>> {
        let wanted = signalled == Signalled::Yes || settings().profile;
        wanted.then(|| work.signals.take()).transpose()
    }

    /// Submits packets that hold back later work until the stream's waits are over.
    pub(crate) fn submit_waits(&self, work: &mut Work, queue: &HwQueue) {
        let waits = std::mem::take(&mut work.waits);
        for five in waits.chunks(5) {
            let mut dependencies = [Signal(0); 5];
            for (to, from) in dependencies.iter_mut().zip(five) {
                *to = from.signal;
            }
            barrier(queue, dependencies, Signal(0));
        }
        if !waits.is_empty() {
            // The packets contain addresses of the signals; keep these until the end of the
            // stream's work is next known.
            work.signals.keep(waits);
        }
    }

    /// Submits a barrier with a signal.
    pub(crate) fn marker(&self, work: &mut Work) -> Hip<Arc<Completion>> {
        self.submit_waits(work, &self.queue);
        let completion = work.signals.take()?;
        barrier(&self.queue, [Signal(0); 5], completion.signal);
        work.since_marker = 0;
        work.last = Some(Arc::clone(&completion));
        Ok(completion)
    }

    /// The completion of everything submitted so far.
    pub(crate) fn completion_of(&self, work: &mut Work) -> Hip<Arc<Completion>> {
        match &work.last {
            Some(last) if work.waits.is_empty() => Ok(Arc::clone(last)),
            None if work.since_marker == 0 && work.waits.len() == 1 => {
                let only = work.waits.first().map(Arc::clone);
                only.map_or_else(|| self.marker(work), Ok)
            }
            _ => self.marker(work),
        }
    }

    /// The completion of everything submitted to the stream so far; `None` if it is idle.
    pub(crate) fn completion(&self) -> Hip<Option<Arc<Completion>>> {
        if !self.dirty.load(Ordering::Acquire) {
            return Ok(None);
        }
        let mut work = self.lock();
        self.completion_of(&mut work).map(Some)
    }

    /// Waits until all work is done.
    pub(crate) fn finish(&self) -> Hip {
        if !self.dirty.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut work = self.lock();
        if work.capture.is_some() {
            return Err(Error(900));
        }
        let completion = self.completion_of(&mut work)?;
        // Other threads may continue to use the stream.
        drop(work);
        signals::wait(completion.signal);
        let mut work = self.lock();
        work.ended(&completion);
        let newest = work
            .last
            .as_ref()
            .is_none_or(|last| Arc::ptr_eq(last, &completion));
        if newest && work.waits.is_empty() && work.since_marker == 0 {
            self.dirty.store(false, Ordering::Release);
            work.last = None;
            work.signals.let_go();
            work.kernargs.used = 0;
        }
        Ok(())
    }

    /// Waits within a command that holds the stream's lock.
    pub(crate) fn drain(&self, work: &mut Work) -> Hip {
        let completion = self.completion_of(work)?;
        signals::wait(completion.signal);
        work.ended(&completion);
        work.last = None;
        work.signals.let_go();
        work.kernargs.used = 0;
        Ok(())
    }

    /// Memory for the arguments of a kernel. When the ring is used up, waits until all of it is
    /// free.
    pub(crate) fn kernarg(&self, work: &mut Work, bytes: usize) -> Hip<Untyped> {
        const ALIGN: usize = 64;
        let room = bytes.max(1).next_multiple_of(ALIGN);
        if room > KERNARG_BYTES {
            return Err(Error::INVALID_VALUE);
        }
        if work.kernargs.used + room > KERNARG_BYTES {
            self.marker(work)?;
            self.drain(work)?;
        }
        let at = work.kernargs.start + work.kernargs.used as u64;
        work.kernargs.used += room;
        Ok(Untyped::at(at))
    }

    /// The staging buffer.
    pub(crate) fn staging(work: &mut Work) -> Hip<Untyped> {
        if work.staging == 0 {
            work.staging = allocate(system()?.host_pool, STAGING_BYTES)?;
        }
        Ok(Untyped::at(work.staging))
    }

    /// The agent from which times of packets are queried.
    pub(crate) fn agent(&self) -> AgentHandle {
        self.device.agent
    }
}

impl Work {
    /// Notes that a kernel was submitted, with or without its own signal.
    pub(crate) fn submitted(&mut self, completion: Option<Arc<Completion>>) {
        self.since_marker += 1;
        self.last = completion;
    }

    /// Whether it is time for a barrier with a signal.
    pub(crate) const fn batch_is_full(&self) -> bool {
        self.since_marker >= MAX_BATCH
    }

    /// What a copy must wait for: earlier AQL work, and the stream's waits.
    pub(crate) fn dependencies(
        &mut self,
        stream: &Stream,
        fresh: bool,
    ) -> Hip<Vec<Arc<Completion>>> {
        let mut all = std::mem::take(&mut self.waits);
        if !fresh {
            let last = match self.last.take() {
                Some(last) => last,
                None => stream.marker(self)?,
            };
            all.push(last);
        }
        Ok(all)
    }

    /// Notes that a copy was submitted, for which later packets in the queue must wait.
    pub(crate) fn copied(&mut self, completion: &Arc<Completion>) {
        self.waits.push(Arc::clone(completion));
        self.last = None;
    }

    /// Notes that work has ended, so nothing needs to wait for it any more. Earlier work in the
    /// stream has ended too, including kernels without a signal.
    pub(crate) fn ended(&mut self, completion: &Arc<Completion>) {
        self.waits.retain(|wait| !Arc::ptr_eq(wait, completion));
        if self
            .last
            .as_ref()
            .is_some_and(|last| Arc::ptr_eq(last, completion))
        {
            self.since_marker = 0;
        }
    }

    /// Whether only copies and waits have been submitted.
    pub(crate) fn has_no_packets(&self) -> bool {
        self.last.is_none() && self.since_marker == 0
    }

    /// Makes the stream wait.
    pub(crate) fn wait_for(&mut self, completion: Arc<Completion>) {
        self.waits.push(completion);
    }

    /// Keeps a signal until everything submitted is known to have ended.
    pub(crate) fn keep(&mut self, completion: Arc<Completion>) {
        self.signals.keep(vec![completion]);
    }

    /// The next signal of the pool.
    pub(crate) fn take_signal(&mut self) -> Hip<Arc<Completion>> {
        self.signals.take()
    }
}

/// Submits a barrier-AND packet.
fn barrier(queue: &HwQueue, dependencies: [Signal; 5], completion: Signal) {
    let packet = Barrier {
        header: kind::BARRIER_AND | BARRIER_BIT | SYSTEM_FENCES,
        reserved: [0; 3],
        dependencies,
        reserved2: 0,
        completion,
    };
    let index = queue.reserve(1);
    queue.write(index, zerocopy::transmute!(packet));
    queue.ring(index);
}
