//! Requirements of single workloads beyond `suite.rs`, on every available release: order, times,
//! faults.

mod support;

use gputrace_harness::{Direction, Said, run::CONVERSION_NS};
use gputrace_softgpu::clock::GpuClock;
use gputrace_softgpu::fault::Fault;
use gputrace_softgpu::truth::Record;
use support::releases::{code_object, on_each_release};
use support::run_until;

/// Directions of copies that SDMA does, wherever the host memory is.
const BY_SDMA: [Direction; 2] = [Direction::H2d, Direction::D2h];

/// Two GPUs of different kinds with unrelated clocks.
const TWO_AGENTS: &str = "
    [[agent]]
    [[agent]]
    gfx = 'gfx1030'
    device_id = 0x73bf
    clock = { frequency_hz = 25_000_000, offset_ticks = 99, drift_ppb = 30_000 }
";

#[test]
fn kernels_of_a_stream_run_in_its_order() {
    on_each_release(|release| {
        let run = release.run(
            "many_kernels",
            &["3000"],
            "default_duration = { uniform_ns = [0, 5_000] }",
        );
        run.assert_success();
        run.assert_all_ran_in_order();
        let dispatches = run.dispatches();
        let ends_before_the_next = dispatches
            .windows(2)
            .all(|pair| pair[0].end.unwrap() <= pair[1].begin);
        assert!(
            ends_before_the_next
                && dispatches
                    .windows(2)
                    .all(|pair| pair[0].place.index < pair[1].place.index)
        );
    });
}

#[test]
fn forced_profiling_gives_every_kernel_a_signal_with_times() {
    on_each_release(|release| {
        let mut command = release.workload("many_kernels");
        command.arg("1000").env("GPU_FORCE_QUEUE_PROFILING", "1");
        let run = run_until(&mut command, "", |_| false);
        run.assert_success();
        let stamped = run
            .dispatches()
            .iter()
            .filter(|dispatch| dispatch.stamped)
            .count();
        // HIP 5.2 does not support the variable.
        assert_eq!(stamped, if release.name == "5.2.3" { 0 } else { 1000 });
        let plain = release.run("many_kernels", &["1000"], "");
        assert!(
            plain
                .dispatches()
                .iter()
                .all(|dispatch| dispatch.signal == 0)
        );
    });
}

#[test]
fn a_late_read_index_only_slows_the_program_down() {
    on_each_release(|release| {
        let toml = "
        default_duration = { fixed_ns = 500 }
        [queue]
        read_index_step = 64
        read_index_delay_ns = 200_000
    ";
        // More than a queue of 4096 packets can hold.
        let run = release.run("many_kernels", &["10000"], toml);
        run.assert_success();
        assert_eq!(run.dispatches().len(), 10_000);
    });
}

#[test]
fn streams_wait_for_each_other() {
    on_each_release(|release| {
        const DURATION_NS: u64 = 300_000;
        let run = release.run("streams", &[], "default_duration = { fixed_ns = 300_000 }");
        run.assert_success();
        run.assert_all_ran_in_order();
        let dispatches = run.dispatches();
        assert!(
            dispatches
                .windows(2)
                .all(|pair| pair[0].end.unwrap() <= pair[1].begin),
            "a chain through streams"
        );
        let mut queues: Vec<u32> = dispatches
            .iter()
            .map(|dispatch| dispatch.place.queue)
            .collect();
        queues.sort_unstable();
        queues.dedup();
        assert_eq!(queues.len(), 4);
        let elapsed = run.elapsed_ms();
        // Both events are barriers around all kernels, so the time is between the kernels' total
        // and the whole program's. HSA converts the ticks of both.
        let (first, last) = (
            run.packets()[0].begin.ns,
            run.packets().last().unwrap().end.ns,
        );
        let converted = (2 * CONVERSION_NS) as f64 / 1e6;
        let least = (DURATION_NS * 32) as f64 / 1e6 - converted;
        let most = (last - first) as f64 / 1e6 + converted;
        assert!(
            elapsed.is_some_and(|elapsed| (least..most).contains(&elapsed)),
            "{least} {elapsed:?} {most}"
        );
    });
}

#[test]
fn copies_of_all_sizes_arrive() {
    on_each_release(|release| {
        // The program verifies the data.
        let run = release.run(
            "copies",
            &[],
            "copy = { latency_ns = 10_000, bytes_per_us = 10_000 }",
        );
        run.assert_success();
        assert_eq!(
            run.bytes_copied(),
            run.bytes_said(&BY_SDMA).iter().sum::<u64>()
        );
        for copy in run.copies() {
            let least = 10_000 + copy.bytes / 10;
            assert!(copy.end.ns - copy.begin.ns >= least, "{copy:?}");
            assert_eq!(
                copy.pieces.iter().map(|piece| piece.bytes).sum::<u64>(),
                copy.bytes
            );
        }
    });
}

#[test]
fn two_gpus_work_at_the_same_time() {
    on_each_release(|release| {
        let run = release.run("devices", &[], TWO_AGENTS);
        run.assert_success();
        assert!(run.said.contains(&Said::Devices { value: 2.0 }));
        run.assert_all_ran();
        let dispatches = run.dispatches();
        assert_eq!(
            run.bytes_copied(),
            run.bytes_said(&BY_SDMA).iter().sum::<u64>()
        );
        let clocks = clocks(&run.truth);
        for dispatch in dispatches {
            let clock = &clocks[dispatch.place.agent as usize];
            assert_eq!(dispatch.begin.ticks, clock.ticks_at(dispatch.begin.ns));
            assert_eq!(
                dispatch.end.unwrap().ticks,
                clock.ticks_at(dispatch.end.unwrap().ns)
            );
        }
    });
}

#[test]
fn one_of_each() {
    on_each_release(|release| {
        let module = code_object("module.hsaco");
        let run = release.run(
            "features",
            &[&module],
            "default_duration = { fixed_ns = 750_000 }",
        );
        run.assert_success();
        run.assert_all_ran_in_order();
        // An extended launch's events take their times from the kernel's own signal and from the
        // host. ROCr converts them by clock samples, so some nanoseconds may be missing.
        let elapsed = run.elapsed_ms();
        assert!(
            elapsed.is_some_and(|elapsed| elapsed >= 0.745),
            "{elapsed:?}"
        );
        let extended = run
            .dispatches()
            .into_iter()
            .find(|dispatch| &*dispatch.kernel == "extended")
            .unwrap();
        assert!(extended.stamped);
    });
}

#[test]
fn processes_have_logs_of_their_own() {
    on_each_release(|release| {
        let run = release.run("processes", &["3"], "");
        run.assert_success();
        run.assert_all_ran();
        let dispatches = run.dispatches();
        let mut processes: Vec<u32> = dispatches
            .iter()
            .map(|dispatch| dispatch.place.pid)
            .collect();
        processes.dedup();
        assert_eq!(processes.len(), 4, "each in one piece");
    });
}

fn clocks(truth: &[Record<'static>]) -> Vec<GpuClock> {
    let clock = |record: &Record<'static>| match record {
        Record::Agent { clock, .. } => Some(clock.clone()),
        _ => None,
    };
    truth.iter().filter_map(clock).collect()
}

#[test]
fn signals_hold_exactly_the_logged_ticks() {
    on_each_release(|release| {
        // HSA converts ticks by sampling the clock, so a drifting clock must not matter.
        for drift in ["0", "50_000", "-50_000"] {
            let toml = format!(
                "[[agent]]\nclock = {{ drift_ppb = {drift}, offset_ticks = 123_456_789_012 }}"
            );
            let run = release.run("hsa_ticks", &[], &toml);
            run.assert_success();
            assert_eq!(run.assert_ticks(), 210);
        }
    });
}

#[test]
fn an_endless_kernel_hangs_the_program_and_is_in_the_log() {
    on_each_release(|release| {
        let toml = "[[fault]]\nkind = 'never_ends'\nkernel = 'endless'";
        let began = |truth: &[Record<'static>]| {
            truth
                .iter()
                .any(|record| matches!(record, Record::Fault { .. }))
        };
        let run = release.run_until("endless", &[], toml, began);
        assert!(
            run.status.is_none(),
            "it ended: {:?} {}",
            run.status,
            run.stderr
        );
        let fault = run.truth.iter().find_map(|record| match record {
            Record::Fault { fault, place, .. } => Some((*fault, place.index)),
            _ => None,
        });
        assert_eq!(fault, Some((Fault::NeverEnds, 0)));
        assert_eq!(run.launches().len(), 1);
    });
}

#[test]
fn a_queue_error_reaches_the_runtime() {
    on_each_release(|release| {
        let toml = "[[fault]]\nkind = 'queue_error'\nkernel = 'small_*'\nnth = 500";
        let run = release.run("many_kernels", &["1000"], toml);
        assert!(
            run.status.is_some_and(|status| !status.success()),
            "{:?}",
            run.status
        );
        assert!(
            run.stderr
                .contains("HSA_STATUS_ERROR_INVALID_PACKET_FORMAT"),
            "{}",
            run.stderr
        );
        assert_eq!(
            run.dispatches()
                .iter()
                .filter(|dispatch| dispatch.end.is_some())
                .count(),
            499
        );
    });
}

#[test]
fn without_timestamps_or_late_the_program_still_ends() {
    on_each_release(|release| {
        let toml = "
        [[fault]]
        kind = 'no_timestamps'
        count = 1000
        [[fault]]
        kind = 'late_completion'
        delay_ns = 30_000_000
    ";
        let run = release.run("vector_add", &[], toml);
        run.assert_success();
    });
}
