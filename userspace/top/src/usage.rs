//! What a process, or a group of processes, did in an interval.

use std::collections::BTreeSet;

use gputrace_timeline::gpu::Origin;
use hdrhistogram::Histogram;

use crate::{
    busy::Busy,
    snapshot::{self, Quantiles},
};

/// Significant digits of the histograms of launch latency.
const DIGITS: u8 = 2;

/// What was counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) calls: u64,
    pub(crate) failed: u64,
    pub(crate) busy: Busy,
    /// Sum of the busy times of the processes, ns; `None` if one is unknown. Set when they are
    /// complete.
    pub(crate) busy_sum: Option<u64>,
    pub(crate) kernels: u64,
    pub(crate) pending: u64,
    pub(crate) copies: u64,
    pub(crate) copied: u64,
    pub(crate) latency: Latency,
    pub(crate) vram: Option<u64>,
    /// What tracing cost, ns.
    pub(crate) cost: u64,
    /// Nodes of the GPUs that were used.
    pub(crate) gpus: BTreeSet<u32>,
}

impl Usage {
    /// Adds what another process did at the same time.
    pub(crate) fn join(&mut self, other: &Self) {
        let sum = |one: &mut u64, other: u64| *one = one.saturating_add(other);
        sum(&mut self.calls, other.calls);
        sum(&mut self.failed, other.failed);
        sum(&mut self.kernels, other.kernels);
        sum(&mut self.pending, other.pending);
        sum(&mut self.copies, other.copies);
        sum(&mut self.copied, other.copied);
        sum(&mut self.cost, other.cost);
        self.busy.join(&other.busy);
        self.busy_sum = self
            .busy_sum
            .zip(other.busy_sum)
            .map(|(one, two)| one + two);
        self.latency.join(&other.latency);
        if let Some(more) = other.vram {
            self.vram = Some(self.vram.unwrap_or(0).saturating_add(more));
        }
        self.gpus.extend(&other.gpus);
    }

    /// What is shown of it, for the interval `begin..end`. `all_busy` is the sum of the busy times
    /// of all processes, ns; `None` if one is unknown.
    pub(crate) fn shown(&self, begin: u64, end: u64, all_busy: Option<u64>) -> snapshot::Usage {
        let all_busy = all_busy.filter(|sum| *sum > 0);
        snapshot::Usage {
            gpus: self.gpus.iter().copied().collect(),
            calls: self.calls,
            failed_calls: self.failed,
            busy: self.busy.time(begin, end),
            busy_share: self
                .busy_sum
                .zip(all_busy)
                .map(|(mine, all)| mine as f64 / all as f64),
            kernels: self.kernels,
            pending: self.pending,
            copies: self.copies,
            copied_bytes: self.copied,
            launch_latency_ns: self.latency.quantiles(),
            vram_bytes: self.vram,
            cost_ns: self.cost,
        }
    }
}

/// Times from the submission of kernels to their begin.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latency(Option<Histogram<u64>>);

impl Latency {
    /// Counts a kernel whose begin is exact, ns.
    pub(crate) fn count(&mut self, origin: &Origin, begin: u64) {
        // Without a thread, nobody saw the doorbell.
        if origin.tid == 0 {
            return;
        }
        if let Some(histogram) = self.histogram() {
            // It grows as needed, and can hold any number.
            let _ = histogram.record(begin.saturating_sub(origin.time));
        }
    }

    fn join(&mut self, other: &Self) {
        if let Some(other) = &other.0
            && let Some(histogram) = self.histogram()
        {
            // As above.
            let _ = histogram.add(other);
        }
    }

    fn histogram(&mut self) -> Option<&mut Histogram<u64>> {
        if self.0.is_none() {
            self.0 = Histogram::new(DIGITS).ok();
        }
        self.0.as_mut()
    }

    pub(crate) fn quantiles(&self) -> Option<Quantiles> {
        self.0.as_ref().map(|latency| Quantiles {
            p50: latency.value_at_percentile(50.0),
            p99: latency.value_at_percentile(99.0),
        })
    }
}
