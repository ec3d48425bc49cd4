//! Clocks: which one the trace's times are of, and how the others relate to it.

use gputrace_capture::meta::ClockSnapshot;
use perfetto_protos::{
    builtin_clock::BuiltinClock,
    clock_snapshot::{self, clock_snapshot::Clock},
    trace_packet::TracePacket,
};

/// Number of `CLOCK_BOOTTIME` in Perfetto (`BuiltinClock`): the clock of all times in the trace.
pub(crate) const BOOTTIME: u32 = BuiltinClock::BUILTIN_CLOCK_BOOTTIME as u32;

/// The packet for `snapshot`. With it a reader can convert the times of other traces of the machine
/// (`perf`, ftrace, logs) and show wall-clock time.
pub(crate) fn packet(snapshot: &ClockSnapshot) -> TracePacket {
    let clock = |id: BuiltinClock, time: u64| {
        let mut clock = Clock::new();
        clock.set_clock_id(id as u32);
        clock.set_timestamp(time);
        clock
    };
    let mut content = clock_snapshot::ClockSnapshot::new();
    content.set_primary_trace_clock(BuiltinClock::BUILTIN_CLOCK_BOOTTIME);
    content.clocks = vec![
        clock(BuiltinClock::BUILTIN_CLOCK_BOOTTIME, snapshot.boottime),
        clock(BuiltinClock::BUILTIN_CLOCK_MONOTONIC, snapshot.monotonic),
        clock(BuiltinClock::BUILTIN_CLOCK_MONOTONIC_RAW, snapshot.monotonic_raw),
        clock(BuiltinClock::BUILTIN_CLOCK_REALTIME, snapshot.realtime),
    ];
    let mut packet = TracePacket::new();
    packet.set_timestamp(snapshot.boottime);
    packet.set_clock_snapshot(content);
    packet
}
