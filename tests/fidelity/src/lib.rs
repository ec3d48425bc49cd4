//! How faithful are gputrace's recordings of GPU work? Programs run on the software GPU, which logs
//! what it really executed and when. gputrace records them from outside without knowing that log,
//! and this crate compares the recording with the log.
//!
//! The parts, in the order in which a comparison uses them:
//!
//! * [`scenario`]: what to run: a workload on a release, launched or attached to while it runs,
//!   with a clock and a way of reporting read indices;
//! * [`mixes`]: programs whose kernels' mean durations are estimated;
//! * [`release`]: the installed ROCm releases, and the workloads built for them;
//! * [`run`]: runs the program and gputrace, and records where the program stood when gputrace
//!   attached ([`cut`]);
//! * [`truth`]: the logs of the software GPU and of the workload;
//! * [`mod@compare`]: compares single dispatches and copies, in [`dispatches`], [`copies`],
//!   [`parents`] and [`means`];
//! * [`figures`]: the results, summed up over runs;
//! * [`report`]: the results as Markdown;
//! * [`real`]: the same for programs that are not written for this, started by hand with
//!   `scripts/real-programs`.
//!
//! # The rules of the comparison
//!
//! They are stated here because a comparison is only as good as its exceptions.
//!
//! * A dispatch is identified by process, `hsa_queue_t::id` and packet index. Every dispatch that
//!   the GPU executed must be in the recording exactly once, and nothing else may be in it.
//! * **ROCr's own queues are excepted**: queues that carried only kernels of code that ROCr does
//!   not list (its blit kernels). ROCr rings their doorbells itself and not through an exported
//!   function. Excepted dispatches are counted. A queue with a single listed kernel is not
//!   excepted.
//! * After attaching to a running program, the dispatches with an index at or above the queue's
//!   write index at that moment must be in the recording. The program is stopped while gputrace
//!   attaches, so there is a single such moment. Packets with lower indices may be in the
//!   recording, and are then compared like all others.
//! * A copy is identified by process, completion signal and order. Copies requested before
//!   attaching that begin afterwards are **in flight**: those of a process and GPU that begin
//!   before the first copy recorded there, at most two for each thread of the process. They are
//!   counted.
//! * **The software GPU takes no packet before its doorbell** (not within 2 s, its
//!   `missed_doorbell_ns`). With 0.3 ms, on a busy machine, windows began up to 0.25 ms after the
//!   kernel. gputrace assumes that no GPU does so; this is not tested here.
//! * A program that ends before it can be stopped is started again, at most five times.
//! * After attaching, packets before a queue's first observed doorbell have no call, because nobody
//!   saw who announced them. The same holds for packets whose doorbell lay in memory that the
//!   kernel was just moving, if the recording says so. They are counted, and it is checked that
//!   gputrace claims no call for them. The call that rang that doorbell may have fewer dispatches
//!   than it should.
//! * A window is violated if the true begin or end lies outside it by a nanosecond. There is no
//!   tolerance.
//! * The call that a dispatch or copy belongs to must be of the same thread and enclose the
//!   submission, it must be a function that launches or copies, its arguments must agree with what
//!   ran, and it must have as many dispatches as it should. For work submitted by one of HIP's
//!   threads, the call must instead be an earlier one of another thread.

pub mod compare;
pub mod copies;
pub mod cut;
pub mod dispatches;
pub mod figures;
pub mod means;
pub mod mixes;
pub mod parents;
pub mod real;
pub mod release;
pub mod report;
pub mod run;
pub mod scenario;
pub mod truth;

use std::process::ExitCode;

pub use compare::{Evidence, compare};
pub use figures::{Figures, Flaw};

/// The exit status of this crate's programs: `outcome` says whether all recordings were true. An
/// error is printed to standard error.
#[must_use]
pub fn exit_code(outcome: anyhow::Result<bool>) -> ExitCode {
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
