//! GPU time by stack on real runtimes: each kernel has the stack of the function that launched it,
//! and the times add up to the kernels' time.

#![allow(clippy::panic, reason = "test code outside of #[test] functions")]
#![expect(clippy::expect_used, reason = "tests")]

mod support;

use std::{collections::BTreeMap, fs};

use gputrace_e2e::Trace;

use support::{program, record, release};

fn on(name: &str) {
    let Some(release) = release(name) else { return };
    let place = tempfile::tempdir().expect("a directory");
    let place = place.path();
    let options = ["-r", "--stacks", "-f", "folded"];
    record(&program(&release, "reused", &[]), place, "", &options);
    let trace = Trace::read(&place.join("out/run.gtcap"));
    trace.assert_lossless();

    let text = fs::read_to_string(place.join("out/run_gpu_time.folded")).expect("the stacks");
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for line in text.lines() {
        let (frames, time) = line.rsplit_once(' ').expect("frames and a number");
        let frames: Vec<&str> = frames.split(';').collect();
        // Threads launch kernels as well.
        let launcher = |frame: &&str| *frame == "main" || frame.starts_with("launch(");
        assert!(frames.iter().any(launcher), "{line}");
        assert!(!frames.iter().any(|frame| frame.starts_with('[')), "{line}");
        let work = frames.last().copied().unwrap_or_default();
        *sums.entry(work).or_default() += time.parse::<u64>().expect("a number");
    }
    // Also those of which it is not known how long they took: in 5.2.3, all.
    assert!(!trace.gpu.dispatches.is_empty());
    for dispatch in &trace.gpu.dispatches {
        let number = dispatch.origin.stack_number.expect("a stack");
        let stack = trace.stacks.iter().find(|stack| stack.number == number);
        assert!(stack.is_some(), "stack {number} of ROCm {name}");
    }
    let drawn = |time: &gputrace_timeline::gpu::GpuTime| {
        let ends = time.drawn_begin().zip(time.drawn_end());
        ends.map_or(0, |(begin, end)| end - begin)
    };
    let kernels: u64 = trace
        .gpu
        .dispatches
        .iter()
        .map(|one| drawn(&one.time))
        .sum();
    let copies: u64 = trace.gpu.copies.iter().map(|one| drawn(&one.time)).sum();
    assert_eq!(sums.values().sum::<u64>(), kernels + copies, "ROCm {name}");
}

gputrace_releases::on_each_release!(on);
