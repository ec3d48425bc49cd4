//! Shared code of the stand-ins for ROCm's libraries.
//!
//! `simrocm` is test equipment: small libraries with the names, the ABI and the in-memory
//! structures of `libamdhip64`, `libhsa-runtime64` and `libroctx64`, running on the in-process
//! [software GPU](gputrace_softgpu). They are used where there is no ROCm at all (the portable
//! demo), where a call must have no cost but its own (benchmarks), and for behaviour of ROCm that
//! is newer than the releases in Linux distributions. They follow ROCm 6.4. The tracer knows
//! nothing of them.
//!
//! # Modules
//!
//! * [`abi`]: signals, queues and rings, exactly in ROCr's layout.
//! * [`object`]: ROCr's own objects behind handles, which tell the GPU of a queue.
//! * [`packet`]: barrier packets to write; the other formats are the software GPU's.
//! * [`ffi`]: pointers that C callers pass in, with checked access; raw memory is accessed only
//!   there and in [`abi`].
//! * [`code_object`]: reads what a runtime needs of an AMD GPU code object, and writes small ones.
//! * [`blit`]: the runtime's own kernels.
//! * [`newer`]: behaviours of newer releases, selected by the environment variable `SIMROCM_NEWER`.
//! * [`export`]: exports functions as ROCm does: by a jump through a table.
//! * [`status`]: HSA's status codes.

pub mod abi;
pub mod blit;
pub mod code_object;
pub mod export;
pub mod ffi;
pub mod newer;
pub mod object;
pub mod packet;
pub mod status;
