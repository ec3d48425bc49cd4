//! The clocks of the GPUs: samples of them beside the host's, and conversion between the two.
//!
//! GPUs stamp what they do with a counter of their own, usually at 100 MHz. `AMDKFD_IOC_GET_CLOCK_COUNTERS`
//! reads that counter and the host's clocks in one call. A [`Sampler`] asks for such pairs through its process's
//! own `/dev/kfd`; a [`Lease`] does it in a process that can end. While the GPU works that is done some ten
//! times a second. A [`ClockModel`] converts between neighbouring pairs.
//!
//! Samples that say nothing new are left out ([`Thinner`], [`ClockSamples`]), so that days of them are few.
//!
//! The host's clock is `CLOCK_BOOTTIME` everywhere: it is KFD's "system clock", ROCr's system domain, and
//! rocprofiler-sdk's default.
//!
//! # What a conversion's uncertainty is made of
//!
//! * The samples': the counter was read somewhere between the host's two readings around it.
//! * The line's: how far the interval departs from the rate before and after it. A clock that leaps by
//!   less than a thousandth of an interval is caught here.
//! * The counter's: one tick.
//! * Where samples were left out: how far the line was off at any of them, which was kept.
//! * Long after one sample and long before the next, as around an idle time: near either of them it is no worse
//!   than beyond the samples.
//! * Beyond the samples, and around a leap: what the measured rate may be wrong by, and
//!   [`RATE_CHANGE_PPM`] for what it may have changed since, times the distance.
//!
//! A leap (GPU reset, suspend) begins a new *segment*. One count may then stand for a moment in each of
//! several segments; which one is meant is decided by what else is known about the moment, see [`Window`].

mod lease;
mod model;
mod sampler;
mod thinning;

use std::path::PathBuf;

use rustix::io::Errno;
use thiserror::Error;

pub use lease::Lease;
pub use model::{ClockModel, GpuTime, HostTime, RATE_CHANGE_PPM, Unresolved, Window};
pub use sampler::{Sampler, boottime_ns, traced};
pub use thinning::{ClockSamples, MAX_SAMPLES, Thinner, in_place_of};

/// A GPU's count at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClockSample {
    /// KFD's number of the GPU.
    pub gpu_id: u32,
    /// The count, ticks.
    pub gpu_tick: u64,
    /// When it was read: `CLOCK_BOOTTIME`, ns.
    pub boottime_ns: u64,
    /// The count was read at most so long before or after, ns.
    pub uncertainty_ns: u64,
    /// Samples were left out between the one before it and this one: nowhere there was the line between the two
    /// off by more than that at one of them, ns. 0 if none were.
    pub off_ns: u64,
    /// The longest time between two of them, ns; 0 if none were left out.
    pub step_ns: u64,
}

impl ClockSample {
    /// A sample from one `AMDKFD_IOC_GET_CLOCK_COUNTERS`, gputrace's own or one that was traced: the count, KFD's
    /// system clock, and the moments before and after the call (all `CLOCK_BOOTTIME`, ns).
    #[must_use]
    pub fn from_counters(
        gpu_id: u32,
        gpu_tick: u64,
        system_ns: u64,
        before_ns: u64,
        after_ns: u64,
    ) -> Self {
        // KFD reads the GPU first and the host's clock then, so that is the better upper end.
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

    /// The longest time in which nobody looked, from the sample before it that was kept, ns.
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
        /// The device node.
        path: PathBuf,
    },
    /// The device may not be opened.
    #[error("{} may not be opened ({error}): run as root or as a member of the group render", path.display())]
    Denied {
        /// The device node.
        path: PathBuf,
        /// `EACCES` or `EPERM`.
        error: Errno,
    },
    /// What was opened does not know the request, so it is not KFD's device.
    #[error("{} does not answer AMDKFD_IOC_GET_CLOCK_COUNTERS: it is not KFD's device", path.display())]
    NotKfd {
        /// The device node.
        path: PathBuf,
    },
    /// KFD has no such GPU, or this process may not use it (device cgroup).
    #[error("KFD has no clock of GPU {gpu_id} for this process")]
    UnknownGpu {
        /// The number that was asked for.
        gpu_id: u32,
    },
    /// KFD answers only the process that opened its device, which was before a fork.
    #[error("{} was opened by another process: KFD answers only the one that did", path.display())]
    OtherProcess {
        /// The device node.
        path: PathBuf,
    },
    /// Anything else.
    #[error("{}: {error}", path.display())]
    Failed {
        /// The device node.
        path: PathBuf,
        /// What the kernel said.
        error: Errno,
    },
}
