//! Harness of the end-to-end tests: runs the `gputrace` binary on real programs and compares what it
//! recorded with what the programs wrote down themselves.
//!
//! The pieces, in the order in which a test uses them:
//!
//! * [`mod@bench`]: a temporary directory, the built workloads (`tests/workloads`) and the binary under
//!   test; skips the test, with a printed reason, where root or BPF are not to be had;
//! * [`process`]: a running program, its output as lines to wait for, deadlines on everything;
//! * [`calllog`]: the log in which each workload wrote every call it made: the ground truth;
//! * [`trace`]: what gputrace recorded, read from the capture;
//! * [`mod@compare`]: holds one against the other, call by call;
//! * [`csvout`]: holds the CSV files against the capture;
//! * [`formats`]: holds all formats against the capture, by readers that are not ours;
//! * [`kernel`]: what is left in the kernel after gputrace is gone.
//!
//! Nothing here sleeps to give something time: a test waits for a condition, for so long at most, and
//! says what it waited for when that does not come true.
//!
//! The tests need the binary (`target/debug/gputrace`, or what `GPUTRACE_BIN` names) and run one after
//! the other: `cargo test -p gputrace-e2e -- --test-threads=1`. With `GPUTRACE_REQUIRE_BPF=1` a test that
//! cannot run fails.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test harness: what it does not expect fails the test"
)]

pub mod bench;
pub mod calllog;
pub mod compare;
pub mod csvout;
pub mod formats;
pub mod kernel;
pub mod process;
pub mod trace;

pub use bench::{Bench, Outputs};
pub use calllog::CallLog;
pub use compare::{Comparison, compare};
pub use process::Running;
pub use trace::Trace;
