//! How fast empty kernels go through a queue, log and all.
//!
//! `cargo test -p gputrace-softgpu --test throughput -- --ignored --nocapture`

mod support;

use std::time::Instant;

use support::{Bench, Queue, Signal, kernel};

const KERNELS: u64 = 1_000_000;

#[test]
#[ignore = "a measurement: needs a core that nobody else uses"]
fn empty_dispatches_per_second() {
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
    let seconds = begin.elapsed().as_secs_f64();
    println!("{:.0} empty dispatches/s", KERNELS as f64 / seconds);
    assert!(KERNELS as f64 / seconds > 300_000.0);
    assert_eq!(bench.dispatches().len() as u64, KERNELS);
}
