//! Measures how fast empty kernels go through a queue, including the log: `cargo run -p
//! gputrace-softgpu --example throughput`.
//!
//! It needs a core for itself. Exits with an error below 300,000 kernels per second.

#![expect(clippy::print_stdout, reason = "a program whose output is its result")]
#![expect(
    clippy::unwrap_used,
    reason = "a measurement: what it does not expect ends it"
)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::process::ExitCode;
use std::time::Instant;

use support::{Bench, Queue, Signal, kernel};

const KERNELS: u64 = 1_000_000;
const LEAST_PER_SECOND: f64 = 300_000.0;

fn main() -> ExitCode {
    let bench = Bench::new("default_duration = { fixed_ns = 0 }");
    let queue = Queue::new(16_384, true);
    bench.gpu.create_queue(&queue.spec(0)).unwrap();
    let last = Signal::new(1);
    let begin = Instant::now();
    for _ in 1..KERNELS {
        queue.submit(kernel(1, 64, true, 0));
    }
    queue.submit(kernel(1, 64, true, last.handle()));
    last.wait_for(0);
    let per_second = KERNELS as f64 / begin.elapsed().as_secs_f64();
    let logged = bench.dispatches().len() as u64;
    println!("{per_second:.0} empty dispatches/s, {logged} of {KERNELS} in the log");
    if per_second >= LEAST_PER_SECOND && logged == KERNELS {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
