//! What the AMD GPU driver tells, without any probe: agents, clocks, processes, metrics, and what its ioctls mean.
//!
//! The driver has two faces. amdgpu is the graphics driver: render nodes, `/sys/class/drm`, metrics. KFD, a
//! part of it, is the compute driver: `/dev/kfd`, `/sys/class/kfd`. ROCm submits work without either of
//! them, so neither knows of single kernels; but they know everything around.
//!
//! * [`topology`]: which agents there are, and every column of rocprofv3's `agent_info`.
//! * [`clock`]: samples of the GPU clocks beside `CLOCK_BOOTTIME`, and the conversion of ticks with a stated
//!   uncertainty.
//! * [`ioctl`]: all requests of `/dev/kfd` as data, and a decoder from their bytes to named values.
//! * [`processes`]: who uses the GPUs, with which queues and how much memory.
//! * [`metrics`]: `gpu_metrics` of all versions, and the counters of sysfs.
//!
//! ```no_run
//! use gputrace_kfd::{Paths, clock, topology::Topology};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let paths = Paths::default();
//! let topology = Topology::read(&paths)?;
//! for agent in topology.agents(&paths) {
//!     println!("{}: {} ({})", agent.node_id, agent.name, agent.product_name);
//! }
//! let sampler = clock::Sampler::open(&paths, topology.gpu_ids())?;
//! let samples = sampler.sample_all();
//! # drop(samples);
//! # Ok(()) }
//! ```
//!
//! # Absent, lying, vanishing
//!
//! Everything read here is outside data. A file that does not exist is an absent value: kernels and GPUs
//! differ. A file that exists and cannot be read, or says what it cannot say, is a [`FileError`] that names
//! it. Where one such file must not spoil the rest, the result has a list of problems beside its values.
//! Sizes are bounded, and no input makes this crate panic.

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests make and read files of their own"
    )
)]

pub mod clock;
mod files;
pub mod ioctl;
pub mod metrics;
mod paths;
pub mod processes;
pub mod smi;
pub mod topology;

pub use files::{FileError, Properties};
pub use paths::Paths;
