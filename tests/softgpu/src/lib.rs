//! A software GPU that computes nothing, behaves like a real one, and logs what it did.
//!
//! The tracer records GPU work, but test machines have no GPU. This library takes its place: it
//! takes the same packets from the same ring buffers, follows the same protocols, completes the
//! same signals with the same kind of timestamps as an AMD GPU, and logs every executed packet in a
//! ground-truth file that tests compare a trace with. It knows nothing about the tracer, and the
//! tracer nothing about it.
//!
//! # The parts
//!
//! * [`config`]: one TOML file with agents, clocks, durations, and faults.
//! * [`gpu`]: a [`SoftGpu`](gpu::SoftGpu) has agents. A [`QueueSpec`](gpu::QueueSpec) creates a
//!   queue by giving the addresses of its ring, indices and doorbell. [`Host`](gpu::Host) is the
//!   interface to the surroundings.
//! * `aql` and `sdma`: the packet processors, one thread per queue. [`packet`] and [`sdma_packet`]
//!   are the formats, [`layout`] the shared structures around them.
//! * [`clock`]: ticks as a pure function of `CLOCK_BOOTTIME`, with frequency, offset, drift and
//!   jumps.
//! * [`timing`] and [`fault`]: how long kernels take, and which ones fail in which way.
//! * [`activity`]: whether agents are at work, as their status registers show it.
//! * [`bus`]: translates GPU addresses to host memory; the only place that accesses raw memory.
//! * [`truth`]: the log, its records, and how to read it back.
//!
//! # The life of a packet
//!
//! The program reserves an index, writes the packet, stores its header, and rings the doorbell. The
//! processor sees the doorbell (or, if two threads' doorbells overtook each other, the complete
//! packet), marks the slot invalid, advances the read index, and begins the kernel: it looks up a
//! duration and sets the end to begin + duration. When the clock has passed the end, it writes both
//! ticks into the completion signal, logs the record, decrements the signal and raises its event.
//! Packets without the barrier bit run concurrently with their predecessors, up to a configured
//! number. Agents run a bounded number of kernels at the same time.

pub mod activity;
pub mod bus;
pub mod clock;
pub mod config;
pub mod fault;
pub mod gpu;
pub mod layout;
pub mod packet;
pub mod sdma_packet;
pub mod timing;
pub mod truth;

mod aql;
mod read_index;
mod sdma;
mod signal;
mod thread;
