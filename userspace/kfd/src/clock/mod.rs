//! The clocks of the GPUs: samples paired with the host's clock, and conversion between the two.
//!
//! GPUs stamp their work with a counter of their own, usually at 100 MHz.
//! `AMDKFD_IOC_GET_CLOCK_COUNTERS` reads that counter and the host's clocks in one call. A
//! [`Sampler`] requests such pairs through its process's own `/dev/kfd`; a [`Lease`] does it in a
//! separate process that can exit. While the GPU works, this is done some ten times per second. A
//! [`ClockModel`] converts between neighbouring pairs.
//!
//! Samples that provide no new information are left out ([`Thinner`], [`ClockSamples`]), so that
//! even days of sampling need few of them.
//!
//! The host's clock is `CLOCK_BOOTTIME` everywhere: it is KFD's "system clock", ROCr's system
//! domain, and rocprofiler-sdk's default.
//!
//! # Components of a conversion's uncertainty
//!
//! * The samples: the counter was read somewhere between the host's two readings around it.
//! * The line: how far the interval departs from the rate before and after it. A clock that leaps
//!   by less than a thousandth of an interval is detected here.
//! * The counter: one tick.
//! * Where samples were left out: the maximum distance of the line from any of them, which was
//!   kept.
//! * Long after one sample and long before the next, as around an idle time: near either of them
//!   the uncertainty is no worse than beyond the samples.
//! * Beyond the samples, and around a leap: the possible error of the measured rate, plus
//!   [`RATE_CHANGE_PPM`] for a change of the rate since, times the distance.
//!
//! A leap (GPU reset, suspend) begins a new *segment*. One count may then stand for a moment in
//! each of several segments; other knowledge about the moment decides which one is meant, see
//! [`Window`]. Between the last sample of a segment and the first one of the next, the counter may
//! have leapt several times, so a time there is marked as ambiguous.

mod arithmetic;
mod lease;
mod model;
mod sampler;
mod segments;
mod thinning;

use std::path::PathBuf;

use gputrace_files::rights;
use rustix::io::Errno;
use thiserror::Error;

pub use lease::Lease;
pub use model::{ClockModel, GpuTime, HostTime, RATE_CHANGE_PPM, Unresolved, Window};
pub use sampler::{Sampler, boottime_ns, traced};
pub use thinning::{ClockSamples, MAX_SAMPLES, Thinner, in_place_of};

/// A GPU's counter value at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClockSample {
    /// KFD's id of the GPU.
    pub gpu_id: u32,
    /// Counter value, ticks.
    pub gpu_tick: u64,
    /// Time of the reading: `CLOCK_BOOTTIME`, ns.
    pub boottime_ns: u64,
    /// Maximum distance of the real reading from that time, before or after, ns.
    pub uncertainty_ns: u64,
    /// If samples were left out between the previous one and this one: maximum distance of any of
    /// them from the line between the two, ns. 0 if none were left out.
    pub off_ns: u64,
    /// Longest time between two of those, ns; 0 if none were left out.
    pub step_ns: u64,
}

impl ClockSample {
    /// A sample from one `AMDKFD_IOC_GET_CLOCK_COUNTERS`, gputrace's own or a traced one: the
    /// count, KFD's system clock, and the times before and after the call (all `CLOCK_BOOTTIME`,
    /// ns).
    #[must_use]
    pub fn from_counters(
        gpu_id: u32,
        gpu_tick: u64,
        system_ns: u64,
        before_ns: u64,
        after_ns: u64,
    ) -> Self {
        // KFD reads the GPU first and then the host's clock, so that is a tighter upper limit.
        let end = if (before_ns..=after_ns).contains(&system_ns) {
            system_ns
        } else {
            after_ns
        };
        let width = end.saturating_sub(before_ns);
        Self {
            gpu_id,
            gpu_tick,
            boottime_ns: before_ns.saturating_add(width / 2),
            uncertainty_ns: width.div_ceil(2),
            ..Self::default()
        }
    }

    /// Longest time without a reading since `before`, the previous sample that was kept, ns.
    pub(crate) fn step_from(&self, before: &Self) -> u64 {
        match self.step_ns {
            0 => self.boottime_ns.saturating_sub(before.boottime_ns),
            step => step,
        }
    }
}

/// Why a clock could not be sampled.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ClockError {
    /// There is no KFD device: no driver, or a container without it.
    #[error(
        "no {}: the amdgpu driver is not loaded (modprobe amdgpu), or this container does not have the device \
         (--device=/dev/kfd)",
        path.display()
    )]
    NoDevice {
        /// Device node.
        path: PathBuf,
    },
    /// The device may not be opened.
    #[error(
        "{} may not be opened ({error}): {}, or as a member of the group render",
        path.display(),
        rights::remedy()
    )]
    Denied {
        /// Device node.
        path: PathBuf,
        /// `EACCES` or `EPERM`.
        error: Errno,
    },
    /// The opened file does not know the request, so it is not KFD's device.
    #[error("{} does not answer AMDKFD_IOC_GET_CLOCK_COUNTERS: it is not KFD's device", path.display())]
    NotKfd {
        /// Device node.
        path: PathBuf,
    },
    /// KFD has no such GPU, or this process may not use it (device cgroup).
    #[error("KFD has no clock of GPU {gpu_id} for this process")]
    UnknownGpu {
        /// The requested GPU id.
        gpu_id: u32,
    },
    /// KFD answers only the process that opened its device; this one was forked afterwards.
    #[error("{} was opened by another process: KFD answers only the one that did", path.display())]
    OtherProcess {
        /// Device node.
        path: PathBuf,
    },
    /// Any other error.
    #[error("{}: {error}", path.display())]
    Failed {
        /// Device node.
        path: PathBuf,
        /// Error returned by the kernel.
        error: Errno,
    },
}
