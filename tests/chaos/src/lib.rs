//! Chaos tests: programs do everything that makes tracing hard, while gputrace attaches and
//! detaches.
//!
//! A round is a run of `tests/workloads/chaos`, whose actions follow from a seed: it forks,
//! executes, loads libraries, crashes during calls, hangs in page faults, stops and continues
//! children, has hundreds of threads and children, and forges HSA's data in memory. During the
//! round, gputrace launches it, attaches to it or records the whole node, and is interrupted, told
//! to end, killed, or stops by itself; several times in a row. Then the round is checked for what
//! must be true in any case:
//!
//! * **Nobody is disturbed**: the program printed the same as without gputrace, and ended in the
//!   same way. It prints everything that it sees: exit statuses and stops of its children, its
//!   descriptors, limits and signals.
//! * **The accounts are exact** in each capture that ended regularly, and if a program was recorded
//!   from its first call to its last, every call was seen.
//! * **A capture of a killed recording** can be exported up to its last block.
//! * **Stopping takes at most [`STOP`]**, whatever hangs.
//! * **Nothing is left**: no BPF program, map or link, no probe, no process ([`left`]).
//!
//! `cargo xtask chaos` runs it for any length of time. The seed is printed; `cargo xtask chaos
//! --seed N --rounds 1` repeats a round.

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

/// Maximum time from a request to stop until a recording has ended. On an idle machine it takes less
/// than two seconds, which is a figure. Code that waits for something that hangs takes longer than
/// this limit.
pub const STOP: Duration = Duration::from_secs(10);
