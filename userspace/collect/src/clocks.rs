//! Reads several clocks at one moment.

use gputrace_capture::{Meta, gpu::GpuClock, meta::ClockSnapshot};
use gputrace_kfd::clock::ClockSample;
use rustix::time::{ClockId, clock_gettime};

/// Current time of `CLOCK_BOOTTIME`, ns: the clock of every record.
#[must_use]
pub fn now() -> u64 {
    read(ClockId::Boottime)
}

/// A sample of a GPU's clock in the form of the capture.
pub(crate) fn gpu_clock(sample: &ClockSample) -> Meta {
    GpuClock {
        gpu_id: sample.gpu_id,
        tick: sample.gpu_tick,
        boottime: sample.boottime_ns,
        uncertainty: sample.uncertainty_ns,
        off: sample.off_ns,
        step: sample.step_ns,
    }
    .into()
}

/// Reads all clocks. Takes several readings and keeps the fastest, since others may have been
/// interrupted.
#[must_use]
pub fn snapshot() -> ClockSnapshot {
    const TRIES: usize = 5;
    let snapshot = (0..TRIES)
        .map(|_| read_all())
        .min_by_key(|snapshot| snapshot.uncertainty)
        .unwrap_or_default();
    ClockSnapshot {
        realtime_error: realtime_error(),
        ..snapshot
    }
}

/// Maximum error of `CLOCK_REALTIME`, ns; `None` if the clock is not synchronised.
fn realtime_error() -> Option<u64> {
    // SAFETY: all fields are integers, for which zero is a valid value. No mode is set, so the
    // clock is only read.
    let mut state: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer refers to a writable structure of the right type.
    let clock = unsafe { libc::adjtimex(&mut state) };
    let synchronised =
        clock >= 0 && clock != libc::TIME_ERROR && state.status & libc::STA_UNSYNC == 0;
    let microseconds = u64::try_from(state.maxerror)
        .ok()
        .filter(|_| synchronised)?;
    microseconds.checked_mul(1000)
}

fn read_all() -> ClockSnapshot {
    let before = read(ClockId::Boottime);
    let monotonic = read(ClockId::Monotonic);
    let monotonic_raw = read(ClockId::MonotonicRaw);
    let realtime = read(ClockId::Realtime);
    let after = read(ClockId::Boottime);
    let uncertainty = after.saturating_sub(before);
    ClockSnapshot {
        boottime: before + uncertainty / 2,
        monotonic,
        monotonic_raw,
        realtime,
        uncertainty,
        realtime_error: None,
    }
}

fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // Neither part of these clocks is ever negative.
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_lies_between_two_readings() {
        let before = now();
        let snapshot = snapshot();
        let after = now();
        assert!((before..=after).contains(&snapshot.boottime));
        assert!(snapshot.uncertainty <= after - before);
    }
}
