//! Completion signals of a stream: a ring of them, used in turn.

use std::sync::Arc;

use gputrace_simrocm_core::abi::Signal;
use gputrace_simrocm_core::newer::Newer;

use crate::error::{Hip, check};
use crate::hsa;

/// Initial number of signals in a pool (`ROC_SIGNAL_POOL_SIZE`, ROCm 6.2 and later).
const POOL: usize = 64;
/// `HSA_AMD_SIGNAL_AMD_GPU_ONLY`.
const GPU_ONLY: u64 = 1;

/// A signal in use.
#[derive(Debug)]
pub(crate) struct Completion {
    pub(crate) signal: Signal,
}

impl Drop for Completion {
    fn drop(&mut self) {
        hsa::hsa_signal_destroy(self.signal);
    }
}

/// Creates a signal as the imitated release does.
pub(crate) fn create(value: i64) -> Hip<Arc<Completion>> {
    let mut signal = Signal(0);
    check(if Newer::GpuOnlySignals.wanted() {
        hsa::hsa_amd_signal_create(value, 0, None, GPU_ONLY, &mut signal)
    } else {
        hsa::hsa_signal_create(value, 0, None, &mut signal)
    })?;
    Ok(Arc::new(Completion { signal }))
}

/// Creates all signals of a pool at once, as releases of 2026 can.
fn create_batch() -> Hip<Vec<Arc<Completion>>> {
    let attributes = if Newer::GpuOnlySignals.wanted() {
        GPU_ONLY
    } else {
        0
    };
    let mut batch = 0;
    let mut signals = [Signal(0); POOL];
    check(hsa::hsa_amd_signal_batch_create(
        POOL as u32,
        None,
        attributes,
        &mut batch,
        &mut signals,
    ))?;
    // The members keep the memory alive.
    check(hsa::hsa_amd_signal_batch_destroy(batch))?;
    Ok(signals
        .map(|signal| Arc::new(Completion { signal }))
        .to_vec())
}

/// The ring of signals.
#[derive(Debug)]
pub(crate) struct Pool {
    ring: Vec<Arc<Completion>>,
    next: usize,
    /// Signals that packets in the queue refer to.
    kept: Vec<Arc<Completion>>,
}

impl Pool {
    pub(crate) fn new() -> Hip<Self> {
        let ring = if Newer::SignalBatch.wanted() {
            create_batch()?
        } else {
            (0..POOL).map(|_| create(0)).collect::<Hip<_>>()?
        };
        Ok(Self {
            ring,
            next: 0,
            kept: Vec::new(),
        })
    }

    /// Keeps signals until everything submitted is known to have ended.
    pub(crate) fn keep(&mut self, signals: Vec<Arc<Completion>>) {
        self.kept.extend(signals);
    }

    /// Releases the kept signals, because everything submitted has ended.
    pub(crate) fn let_go(&mut self) {
        self.kept.clear();
    }

    /// The next signal, armed with the value 1. A signal that is still in use, or that will still
    /// be read, is replaced in the ring by a new one.
    pub(crate) fn take(&mut self) -> Hip<Arc<Completion>> {
        self.next = (self.next + 1) % self.ring.len().max(1);
        let free = self.ring.get(self.next).filter(|completion| {
            Arc::strong_count(completion) == 1
                && hsa::hsa_signal_load_relaxed(completion.signal) <= 0
        });
        let completion = match free {
            Some(completion) => Arc::clone(completion),
            None => {
                let new = create(0)?;
                self.ring.insert(self.next, Arc::clone(&new));
                new
            }
        };
        hsa::hsa_signal_silent_store_relaxed(completion.signal, 1);
        Ok(completion)
    }
}

/// Waits until a signal has completed.
pub(crate) fn wait(signal: Signal) {
    const LESS: u32 = 2;
    const BLOCKED: u32 = 0;
    const ACTIVE: u32 = 1;
    let state = if Newer::GpuOnlySignals.wanted() {
        ACTIVE
    } else {
        BLOCKED
    };
    hsa::hsa_signal_wait_scacquire(signal, LESS, 1, u64::MAX, state);
}
