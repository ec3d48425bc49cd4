//! Information from the AMD GPU driver, without any probe: agents, clocks, processes, metrics, and
//! the meaning of its ioctls.
//!
//! The driver has two parts. amdgpu is the graphics driver: render nodes, `/sys/class/drm`,
//! metrics. KFD, a part of it, is the compute driver: `/dev/kfd`, `/sys/class/kfd`. ROCm submits
//! work without calling either of them, so neither knows about individual kernels; but they know
//! everything around them.
//!
//! * [`topology`]: the node's agents, with every column of rocprofv3's `agent_info`.
//! * [`clock`]: samples of the GPU clocks paired with `CLOCK_BOOTTIME`, and the conversion of ticks
//!   with a stated uncertainty.
//! * [`activity`]: whether a GPU is at work now, as its status register shows it.
//! * [`ioctl`]: all requests of `/dev/kfd` as data, and a decoder from their bytes to named values.
//! * [`processes`]: the processes that use the GPUs, with their queues and memory.
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
//! # Absent and invalid files
//!
//! Everything read here is untrusted. A file that does not exist is an absent value: kernels and
//! GPUs differ. A file that exists but cannot be read, or has impossible contents, is a
//! [`FileError`] that names it. Where one such file must not spoil the rest, the result has a list
//! of problems beside its values. Sizes are limited, and no input makes this crate panic.

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests make and read files of their own"
    )
)]

pub mod activity;
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
