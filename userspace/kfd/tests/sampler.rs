//! The sampler and the lease against the mock driver.

#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]
#![allow(clippy::unwrap_used, reason = "test code outside of #[test] functions")]

mod support;

use gputrace_kfd::{
    Paths,
    clock::{ClockModel, ClockSample, Lease, Sampler, Window, boottime_ns},
    topology::Topology,
};
use gputrace_softgpu::clock::GpuClock;
use support::{on_softgpu, said};

const GPU: u32 = 31_000;

const TWO_CLOCKS: &str = "[[agent]]\nclock = { frequency_hz = 100_000_000, offset_ticks = 77, drift_ppb = 40_000 }\n\
    [[agent]]\nclock = { frequency_hz = 25_000_000, offset_ticks = 123_456_789 }\n";

#[test]
fn the_sampler_reads_every_gpu_of_the_driver() {
    let clocks = [(100_000_000, 77, 40_000), (25_000_000, 123_456_789, 0)].map(
        |(frequency_hz, offset_ticks, drift_ppb)| GpuClock {
            frequency_hz,
            offset_ticks,
            drift_ppb,
            jumps: Vec::new(),
        },
    );
    let output = on_softgpu("child_samples_the_clocks", TWO_CLOCKS);
    let lines = said(&output, "sample");
    assert_eq!(lines.len(), 40, "{output}");
    let samples: Vec<ClockSample> = lines
        .iter()
        .map(|line| {
            let numbers: Vec<u64> = line
                .split(' ')
                .map(|number| number.parse().unwrap())
                .collect();
            ClockSample {
                gpu_id: u32::try_from(numbers[0]).unwrap(),
                gpu_tick: numbers[1],
                boottime_ns: numbers[2],
                uncertainty_ns: numbers[3],
                ..ClockSample::default()
            }
        })
        .collect();
    for (gpu_id, clock) in (GPU..).zip(&clocks) {
        let model = ClockModel::new(gpu_id, samples.iter().copied());
        let own: Vec<_> = samples
            .iter()
            .filter(|sample| sample.gpu_id == gpu_id)
            .collect();
        assert_eq!(own.len(), 20);
        for sample in &own {
            let earliest = clock.ticks_at(sample.boottime_ns - sample.uncertainty_ns);
            let latest = clock.ticks_at(sample.boottime_ns + sample.uncertainty_ns);
            assert!((earliest..=latest).contains(&sample.gpu_tick), "{sample:?}");
        }
        let (first, last) = (own[0].boottime_ns, own[19].boottime_ns);
        for part in 0..=10 {
            let truth = first + (last - first) * part / 10;
            let time = model
                .to_boottime(clock.ticks_at(truth), Window::default())
                .unwrap();
            assert!(
                time.boottime_ns.abs_diff(truth) <= time.uncertainty_ns,
                "{time:?} {truth}"
            );
        }
    }
    assert_eq!(
        said(&output, "unknown"),
        ["KFD has no clock of GPU 5 for this process"]
    );
}

#[test]
#[ignore = "the process of the_sampler_reads_every_gpu_of_the_driver"]
fn child_samples_the_clocks() {
    let paths = Paths::default();
    let topology = Topology::read(&paths).unwrap();
    let sampler = Sampler::open(&paths, topology.gpu_ids()).unwrap();
    for _ in 0..20 {
        for sample in sampler.sample_all() {
            let sample = sample.unwrap();
            println!(
                "sample {} {} {} {}",
                sample.gpu_id, sample.gpu_tick, sample.boottime_ns, sample.uncertainty_ns
            );
        }
        // Ticks of the slower clock take 40 ns: let some pass.
        let now = boottime_ns();
        while boottime_ns() < now + 1_000_000 {
            std::hint::spin_loop();
        }
    }
    println!("unknown {}", sampler.sample(5).unwrap_err());
}

/// The clocks are read by another process, which is gone when it is not needed.
#[test]
fn a_lease_reads_the_clocks_in_another_process() {
    let output = on_softgpu("child_leases_the_clocks", TWO_CLOCKS);
    let lines = said(&output, "sample");
    assert_eq!(lines.len(), 6, "{output}");
    for line in lines {
        let numbers: Vec<u64> = line
            .split(' ')
            .map(|number| number.parse().unwrap())
            .collect();
        let (frequency_hz, offset_ticks, drift_ppb) = if numbers[0] == u64::from(GPU) {
            (100_000_000, 77, 40_000)
        } else {
            (25_000_000, 123_456_789, 0)
        };
        let clock = GpuClock {
            frequency_hz,
            offset_ticks,
            drift_ppb,
            jumps: Vec::new(),
        };
        let earliest = clock.ticks_at(numbers[2] - numbers[3]);
        let latest = clock.ticks_at(numbers[2] + numbers[3]);
        assert!((earliest..=latest).contains(&numbers[1]), "{line}");
    }
    assert_eq!(
        said(&output, "unknown"),
        ["KFD has no clock of GPU 5 for this process"; 3]
    );
    assert_eq!(said(&output, "gone"), ["true"]);
}

#[test]
#[ignore = "the process of a_lease_reads_the_clocks_in_another_process"]
fn child_leases_the_clocks() {
    let paths = Paths::default();
    let mut gpu_ids = Topology::read(&paths).unwrap().gpu_ids();
    gpu_ids.push(5);
    let mut lease = Lease::open(&paths, gpu_ids).unwrap();
    for _ in 0..3 {
        for sample in lease.sample_all().unwrap() {
            match sample {
                Ok(sample) => println!(
                    "sample {} {} {} {}",
                    sample.gpu_id, sample.gpu_tick, sample.boottime_ns, sample.uncertainty_ns
                ),
                Err(error) => println!("unknown {error}"),
            }
        }
    }
    let process = format!("/proc/{}", lease.process());
    assert!(std::path::Path::new(&process).exists());
    drop(lease);
    println!("gone {}", !std::path::Path::new(&process).exists());
}
