//! Runs the programs in `tests/workloads/gpu` on the [software GPU](gputrace_softgpu). Shared by
//! the tests of the software GPU's two interfaces for programs (`gputrace-mockkfd`,
//! `gputrace-simrocm`) and those of recordings (`gputrace-fidelity`).
//!
//! * [`said`]: what a program reports to have done, in the file that `WORKLOAD_LOG` names;
//! * [`run`](mod@run): runs a program, and compares its report with what the GPU did;
//! * [`rocm`]: the fetched ROCm releases, on which programs run.
//!
//! This crate does not know how a program gets access to the software GPU: the caller prepares the
//! command.

pub mod rocm;
pub mod run;
pub mod said;

pub use run::{Run, equip, run_until, sorted};
pub use said::{Direction, Launch, Said, Ticks, is_own, launch_of};
