//! What the stand-ins for ROCm's libraries share.
//!
//! `simrocm` is test equipment: small libraries with the names, the ABI and the in-memory structures of
//! `libamdhip64`, `libhsa-runtime64` and `libroctx64`, running on the in-process
//! [software GPU](gputrace_softgpu). They serve where there is no ROCm at all (the portable demo), where a
//! call must cost nothing but itself (benchmarks), and for behaviour of ROCm that is newer than what Linux
//! distributions have. They follow ROCm 6.4. Nothing here is known to the tracer.
//!
//! # The parts
//!
//! * [`abi`]: signals, queues and rings, exactly as ROCr lays them out.
//! * [`object`]: ROCr's own objects behind handles, which say which GPU a queue is of.
//! * [`packet`]: barrier packets to be written; the other formats are the software GPU's.
//! * [`ffi`]: pointers that C callers hand in, with checked access; raw memory is touched only there and in
//!   [`abi`].
//! * [`code_object`]: what a runtime reads from an AMD GPU code object, and a writer for small ones.
//! * [`blit`]: the runtime's own kernels.
//! * [`newer`]: behaviours of newer releases, chosen by the environment variable `SIMROCM_NEWER`.
//! * [`export`]: exported functions as ROCm has them: a jump through a table.
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
