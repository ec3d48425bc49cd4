//! The clock of an agent: a pure function of the host's `CLOCK_BOOTTIME`.
//!
//! Because the function is pure, every process with the same configuration reads the same ticks:
//! the traced program's packet processors, and a collector that uses the clock-counter ioctl.

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// The current time in nanoseconds of `CLOCK_BOOTTIME`, which ROCr calls its system domain.
#[must_use]
pub fn boottime_ns() -> u64 {
    nanoseconds(ClockId::Boottime)
}

/// The current time in nanoseconds of `CLOCK_MONOTONIC_RAW`, the "cpu clock" of
/// `AMDKFD_IOC_GET_CLOCK_COUNTERS`.
#[must_use]
pub fn monotonic_raw_ns() -> u64 {
    nanoseconds(ClockId::MonotonicRaw)
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // Neither clock is ever before its epoch, the machine's boot.
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// How an agent's ticks follow from the host's clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GpuClock {
    /// Nominal ticks per second, as reported to the runtime.
    pub frequency_hz: u64,
    /// The count at boot.
    pub offset_ticks: i64,
    /// How much faster than nominal the clock runs, in parts per billion.
    pub drift_ppb: i64,
    /// Jumps of the count, as after a GPU reset.
    pub jumps: Vec<Jump>,
}

/// A jump of the count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Jump {
    /// When it happens, in nanoseconds of `CLOCK_BOOTTIME`.
    pub at_ns: u64,
    /// Number of ticks, positive or negative.
    pub ticks: i64,
}

impl Default for GpuClock {
    fn default() -> Self {
        // gfx9 has 100 MHz. The offset only keeps ticks from being mistaken for nanoseconds divided
        // by 10.
        Self {
            frequency_hz: 100_000_000,
            offset_ticks: 0x0001_2345_6789,
            drift_ppb: 0,
            jumps: Vec::new(),
        }
    }
}

impl GpuClock {
    /// The count at a time of `CLOCK_BOOTTIME` (ns), wrapping like a 64-bit counter.
    #[must_use]
    pub fn ticks_at(&self, boottime_ns: u64) -> u64 {
        const NS_PER_S: i128 = 1_000_000_000;
        let rate = i128::from(self.frequency_hz) * (NS_PER_S + i128::from(self.drift_ppb));
        // Products stay below 2^64 * 2^64 / 2: a century of uptime at 10 GHz fits.
        let run = i128::from(boottime_ns).saturating_mul(rate) / (NS_PER_S * NS_PER_S);
        let leaps: i128 = self
            .jumps
            .iter()
            .filter(|jump| jump.at_ns <= boottime_ns)
            .map(|jump| i128::from(jump.ticks))
            .sum();
        wrap(i128::from(self.offset_ticks) + run + leaps)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a hardware counter wraps at 64 bits"
)]
const fn wrap(ticks: i128) -> u64 {
    ticks as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_NS: u64 = 86_400_000_000_000;

    #[test]
    fn runs_at_the_nominal_rate_without_drift() {
        let clock = GpuClock {
            offset_ticks: 7,
            ..GpuClock::default()
        };
        assert_eq!(clock.ticks_at(0), 7);
        assert_eq!(clock.ticks_at(1_000_000_000), 100_000_007);
        assert_eq!(clock.ticks_at(400 * DAY_NS), 400 * DAY_NS / 10 + 7);
    }

    #[test]
    fn drift_adds_up_and_jumps_last() {
        let clock = GpuClock {
            offset_ticks: 0,
            drift_ppb: 20_000,
            jumps: vec![Jump {
                at_ns: DAY_NS,
                ticks: -1_000,
            }],
            ..GpuClock::default()
        };
        assert_eq!(clock.ticks_at(1_000_000_000), 100_002_000);
        assert_eq!(
            clock.ticks_at(DAY_NS - 1),
            DAY_NS / 10 + DAY_NS / 500_000 - 1
        );
        assert_eq!(
            clock.ticks_at(DAY_NS),
            DAY_NS / 10 + DAY_NS / 500_000 - 1_000
        );
    }

    #[test]
    fn a_negative_offset_wraps() {
        let clock = GpuClock {
            offset_ticks: -5,
            ..GpuClock::default()
        };
        assert_eq!(clock.ticks_at(0), u64::MAX - 4);
    }
}
