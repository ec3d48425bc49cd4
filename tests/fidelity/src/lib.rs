//! How true are gputrace's recordings of GPU work? Programs run on the software GPU, which writes down what it
//! really executed and when; gputrace records them from outside and knows nothing of that log; this crate holds
//! one against the other.
//!
//! The pieces, in the order in which a comparison uses them:
//!
//! * [`scenario`]: what to run: a workload, on a release, launched or attached to in mid-run, with a clock and a
//!   way of reporting read indices;
//! * [`mixes`]: programs whose kernels' mean durations are estimated;
//! * [`release`]: the ROCm releases that are there, and the workloads built for them;
//! * [`run`]: runs the program and gputrace, and notes where the program stood when the recorder came ([`cut`]);
//! * [`truth`]: what the software GPU and the workload wrote down;
//! * [`mod@compare`]: dispatch by dispatch and copy by copy, in [`dispatches`], [`copies`], [`parents`] and [`means`];
//! * [`figures`]: what came of it, summed up over runs;
//! * [`report`]: all of it as Markdown;
//! * [`real`]: the same for programs that know nothing of it, by hand: `scripts/real-programs`.
//!
//! # The rules of the comparison
//!
//! They are stated here because a comparison is worth what its exceptions are.
//!
//! * A dispatch is identified by process, `hsa_queue_t::id` and packet index. Every dispatch that the GPU executed
//!   must be in the recording exactly once, and nothing else may be in it.
//! * **Excepted are ROCr's own queues**: queues that carried nothing but kernels of code that ROCr lists nowhere (its
//!   blit kernels). ROCr rings their doorbells itself and not through an exported function. They are counted. A
//!   queue with a single kernel that is listed is not excepted.
//! * After attaching to a running program, the dispatches with an index at or above the queue's write index at that
//!   moment must be in the recording; the program is stopped while gputrace attaches, so that this moment is one.
//!   Packets below may be in it, and are then compared like all others.
//! * A copy is identified by process, completion signal and order. Copies that were asked for before attaching and
//!   begin after it are **in flight**: they are those of a process and GPU that begin before the first that is
//!   recorded there, two for each thread of the process at most. They are counted.
//! * **The software GPU takes no packet before its doorbell** (not within 2 s, its
//!   `missed_doorbell_ns`). With 0.3 ms, on a busy machine, windows began up to 0.25 ms after the
//!   kernel. That no GPU does so is what gputrace assumes, and is not shown here.
//! * A program that is done before it can be stopped is started again, five times at most.
//! * After attaching, packets before the first doorbell seen of a queue have no call: who announced them, nobody saw.
//!   The same holds for packets whose doorbell lay in memory that the kernel was just moving, if the recording says so.
//!   They are counted; that gputrace claims none is checked. The call that rang that doorbell may have fewer than it
//!   should.
//! * A window is violated if the true begin or end lies outside it by a nanosecond. There is no tolerance.
//! * The call that a dispatch or copy belongs to must be of the same thread, enclose the submission, be a function
//!   that launches or copies (of what a thread of HIP's submitted: be a call before it of another thread), have arguments that agree with what ran, and have as many dispatches as it should.

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

/// How a program of this crate ends: `outcome` is whether all recordings were true. An error goes to
/// standard error.
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
