//! The clock of the trace's times, and its relation to other clocks.

use gputrace_capture::meta::ClockSnapshot;

use crate::{packets::Clocks, wire::clock_snapshot};

/// Perfetto's id of `CLOCK_BOOTTIME` (`BuiltinClock`), the clock of all times in the trace.
pub(crate) const BOOTTIME: u32 = clock_snapshot::BOOTTIME;

/// The packet for `snapshot`. It lets readers convert the times of other traces of the machine
/// (`perf`, ftrace, logs) and show wall-clock time.
pub(crate) fn packet(snapshot: &ClockSnapshot) -> Clocks {
    Clocks {
        time: snapshot.boottime,
        clocks: [
            (BOOTTIME, snapshot.boottime),
            (clock_snapshot::MONOTONIC, snapshot.monotonic),
            (clock_snapshot::MONOTONIC_RAW, snapshot.monotonic_raw),
            (clock_snapshot::REALTIME, snapshot.realtime),
        ],
    }
}
