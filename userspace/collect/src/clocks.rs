//! Reading several clocks at one moment.

use gputrace_capture::meta::ClockSnapshot;
use rustix::time::{ClockId, clock_gettime};

/// Now on `CLOCK_BOOTTIME`, ns: the clock of every record.
#[must_use]
pub fn now() -> u64 {
    read(ClockId::Boottime)
}

/// Reads all clocks. Tries a few times and keeps the reading that took least, since one of them may
/// have been interrupted.
#[must_use]
pub fn snapshot() -> ClockSnapshot {
    const TRIES: usize = 5;
    (0..TRIES)
        .map(|_| read_all())
        .min_by_key(|snapshot| snapshot.uncertainty)
        .unwrap_or_default()
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
    }
}

fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // Neither part of these clocks is ever negative.
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
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
