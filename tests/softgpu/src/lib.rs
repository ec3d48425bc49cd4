//! A software GPU that computes nothing, behaves like the real one, and writes down what it did.
//!
//! The tracer is about GPU work, but test machines have no GPU. This library stands in for one: it takes
//! the same packets from the same rings, honours the same protocols, completes the same signals with the
//! same kind of timestamps as an AMD GPU does, and logs every executed packet to a ground-truth file that
//! tests compare a trace with. It knows nothing about the tracer, and the tracer nothing about it.
//!
//! # The parts
//!
//! * [`config`]: one TOML file: agents, clocks, durations, faults.
//! * [`gpu`]: [`SoftGpu`](gpu::SoftGpu) has agents; a queue is made by telling where its ring, indices and
//!   doorbell are ([`QueueSpec`](gpu::QueueSpec)); [`Host`](gpu::Host) is what it needs of its surroundings.
//! * `aql` and `sdma`: the packet processors, a thread per queue. [`packet`] and [`sdma_packet`] are the
//!   formats, [`layout`] the shared structures around them.
//! * [`clock`]: ticks as a pure function of `CLOCK_BOOTTIME`, with frequency, offset, drift and jumps.
//! * [`timing`] and [`fault`]: how long kernels take, and which ones go wrong in which way.
//! * [`bus`]: GPU addresses to host memory; the only place where raw memory is touched.
//! * [`truth`]: the log, its records, and how to read it back.
//!
//! # The life of a packet
//!
//! The program reserves an index, writes the packet, stores its header, rings the doorbell. The processor
//! sees the doorbell (or, when two threads' doorbells overtook each other, the complete packet), marks the
//! slot invalid, moves the read index, and begins the kernel: it looks up a duration and sets the end to
//! begin + duration. When the clock has passed the end, it writes both ticks into the completion signal,
//! logs the record, decrements the signal and raises its event. Packets whose barrier bit is off run beside
//! their predecessors, up to a configured number; agents run a bounded number of kernels at the same time.

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
