//! Records of calls that have not returned.

use gputrace_abi::{
    frame::{Frame, Thread},
    record::{LONG_SPAN_SIZE, LongSpan, RecordHeader, SPAN_SIZE, Span, kind, span_flags},
};
use zerocopy::IntoBytes as _;

/// The frames of a thread that are in use, outermost first, with their depths.
pub(crate) fn frames(thread: &Thread) -> impl Iterator<Item = (usize, &Frame)> {
    let frames = thread.frames.iter().enumerate();
    frames.take(thread.depth as usize)
}

/// Calls `take` with a record for each call that is open in the thread with this id (process and
/// thread, as in the map of threads) at `time`, ns `CLOCK_BOOTTIME`.
pub(crate) fn records(
    id: u64,
    thread: &Thread,
    time: u64,
    mut take: impl FnMut(&RecordHeader, &[u8]),
) {
    for (depth, frame) in frames(thread) {
        let cookie = frame.cookie();
        let long = cookie.stack_args() > 0;
        let size = if long { LONG_SPAN_SIZE } else { SPAN_SIZE };
        let header = RecordHeader {
            size: size as u16,
            kind: kind::UNFINISHED,
            domain: cookie.domain(),
            cpu: frame.cpu,
        };
        let span = Span {
            header,
            function: cookie.function(),
            pid: (id >> 32) as u32,
            tid: id as u32,
            depth: depth as u16,
            flags: frame.flags as u16 | span_flags::RECORDING_STOPPED,
            begin: frame.begin,
            end: time.max(frame.begin),
            correlation: frame.correlation,
            parent: frame.parent,
            result: 0,
            args: frame.args,
        };
        if long {
            let stack = frame.stack;
            take(&header, LongSpan { span, stack }.as_bytes());
        } else {
            take(&header, span.as_bytes());
        }
    }
}
