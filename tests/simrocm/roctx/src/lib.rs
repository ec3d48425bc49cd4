//! Stand-in for `libroctx64` of roctracer: markers and ranges that programs emit.
//!
//! The functions only keep the counts that their results need; a tracer sees the calls. The names,
//! their version `ROCTX_4.1` and the results are those of the real library (`roctx.h`).

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use gputrace_simrocm_core::ffi::Text;

thread_local! {
    /// Number of open ranges in this thread.
    static DEPTH: Cell<i32> = const { Cell::new(0) };
}

static LAST_RANGE: AtomicU64 = AtomicU64::new(0);

extern "C" fn version_major() -> u32 {
    4
}

extern "C" fn version_minor() -> u32 {
    1
}

/// `roctxMarkA`.
extern "C" fn mark(_message: Text) {}

/// `roctxRangePushA`: the level of the new range, from 0.
extern "C" fn push(_message: Text) -> i32 {
    let level = DEPTH.get();
    DEPTH.set(level.saturating_add(1));
    level
}

/// `roctxRangePop`: the level of the range that ended; -1 when none was open.
extern "C" fn pop() -> i32 {
    let level = DEPTH.get() - 1;
    DEPTH.set(level.max(0));
    level
}

/// `roctxRangeStartA`: the number of a range that may end in another thread.
extern "C" fn start(_message: Text) -> u64 {
    LAST_RANGE.fetch_add(1, Ordering::Relaxed) + 1
}

/// `roctxRangeStop`.
extern "C" fn stop(_range: u64) {}

gputrace_simrocm_core::exports! {
    roctx_version_major = version_major;
    roctx_version_minor = version_minor;
    roctxMarkA = mark;
    roctxRangePushA = push;
    roctxRangePop = pop;
    roctxRangeStartA = start;
    roctxRangeStop = stop;
}
