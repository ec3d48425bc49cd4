//! Harness of the end-to-end tests: runs the `gputrace` binary on real programs and compares the
//! recordings with what the programs logged themselves.
//!
//! The modules, in the order in which a test uses them:
//!
//! * [`mod@bench`]: a temporary directory, the built workloads (`tests/workloads`) and the binary
//!   under test; skips the test, and prints the reason, if root or BPF are not available;
//! * [`process`]: a running program, its output as lines to wait for, and deadlines for everything;
//! * [`terminal`]: a program on a terminal, where a test types keys and hangs up;
//! * [`calllog`]: the log in which each workload records every call that it makes: the ground
//!   truth;
//! * [`trace`]: the recording, read from the capture;
//! * [`mod@compare`]: compares the two, call by call;
//! * [`csvout`]: compares the CSV files with the capture;
//! * [`formats`]: compares all formats with the capture, using independent readers;
//! * [`kernel`]: what is left in the kernel after gputrace has ended.
//!
//! Nothing here sleeps to give something time: a test waits for a condition up to a deadline, and
//! if the condition does not become true, reports which one it was.
//!
//! The tests need the binary (`target/debug/gputrace`, or the one that `GPUTRACE_BIN` names) and
//! run one after the other: `cargo test -p gputrace-e2e -- --test-threads=1`. With
//! `GPUTRACE_REQUIRE_BPF=1`, a test that cannot run fails.

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
pub mod sample;
pub mod terminal;
pub mod trace;

pub use bench::{Bench, Outputs};
pub use calllog::CallLog;
pub use compare::{Comparison, compare};
pub use process::Running;
pub use terminal::Terminal;
pub use trace::Trace;
