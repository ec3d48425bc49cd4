//! Chaos: programs that do everything that makes tracing hard, while gputrace comes and goes.
//!
//! A round is a run of `tests/workloads/chaos`, whose actions follow from a seed: it forks,
//! executes, loads libraries, crashes in the middle of calls, hangs in page faults, stops and
//! continues children, has hundreds of threads and children, and forges what HSA keeps in memory.
//! During the round gputrace launches it, attaches to it or records the whole node, and is
//! interrupted, told to end, killed, or stops by itself; several times in a row. Then the round is
//! held against what must be true whatever happened:
//!
//! * **Nobody is disturbed**: the program printed what it prints without gputrace, and ended as it
//!   does then. It prints all that it sees: exit statuses and stops of its children, its
//!   descriptors, limits and signals.
//! * **The accounts are exact** in each capture that ended in order, and of a program that was
//!   recorded from its first call to its last, every call was seen.
//! * **A capture of a killed recording** can be exported up to its last block.
//! * **Stopping takes at most [`STOP`]**, whatever hangs.
//! * **Nothing is left**: no BPF program, map or link, no probe, no process ([`left`]).
//!
//! `cargo xtask chaos` runs it as long as one likes. The seed is printed; a round is repeated by
//! `cargo xtask chaos --seed N --rounds 1`.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a test harness: what it does not expect fails the test"
)]

pub mod left;
pub mod plan;
pub mod recording;
pub mod round;
pub mod shared;
pub mod target;

use std::time::Duration;

/// How long after a request to stop a recording must have ended, at most. It takes less than two
/// seconds on a machine that has nothing else to do, which is a figure. What waits for something
/// that hangs takes longer than this.
pub const STOP: Duration = Duration::from_secs(10);
