//! Runs of the programs in `tests/workloads/gpu` on the [software GPU](gputrace_softgpu): what the tests of the software
//! GPU's two ways into a program (`gputrace-mockkfd`, `gputrace-simrocm`) and those of recordings
//! (`gputrace-fidelity`) have in common.
//!
//! * [`said`]: what a program says it did, in the file that `WORKLOAD_LOG` names;
//! * [`run`](mod@run): runs a program, and holds what it says against what the GPU did;
//! * [`rocm`]: the ROCm releases that were fetched, on which programs run.
//!
//! How a program comes to the software GPU is not known here: who starts it, prepares its command.

pub mod rocm;
pub mod run;
pub mod said;

pub use run::{Run, equip, run_until, sorted};
pub use said::{Direction, Launch, Said, Ticks, is_own, launch_of};
