//! Unmodified HIP and HSA programs on the stand-ins: compares their reports with what the GPU did.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "test code outside of #[test] functions"
)]

mod support;

use gputrace_harness::{Direction, Said};
use gputrace_softgpu::fault::Fault;
use gputrace_softgpu::truth::Record;
use support::{Runner, code_object};

const TWO_AGENTS: &str = "
    [[agent]]
    [[agent]]
    gfx = 'gfx1030'
    device_id = 0x73bf
    clock = { frequency_hz = 25_000_000, offset_ticks = 99, drift_ppb = 30_000 }
";

#[test]
fn vector_add() {
    let run = Runner::new("vector_add").run();
    run.assert_success();
    run.assert_all_ran_in_order();
    let copied: Vec<u64> = run.copies().iter().map(|copy| copy.bytes).collect();
    assert_eq!(copied, [4 << 20; 4]);
}

#[test]
fn kernels_of_a_stream_run_in_its_order() {
    // More than the queue and the memory for arguments can hold.
    let run = Runner::new("many_kernels")
        .arguments(&["40000"])
        .gpu("default_duration = { uniform_ns = [0, 2_000] }")
        .run();
    run.assert_success();
    run.assert_all_ran_in_order();
    // Ordinary kernels have no signal; a barrier with one ends each batch.
    assert!(run.dispatches().iter().all(|dispatch| dispatch.signal == 0));
    assert!(run.packets().len() >= 40);
}

#[test]
fn streams_wait_for_each_other() {
    let run = Runner::new("streams")
        .gpu("default_duration = { fixed_ns = 300_000 }")
        .run();
    run.assert_success();
    run.assert_all_ran_in_order();
    let dispatches = run.dispatches();
    let chained = |pair: &[_]| {
        let [first, second]: &[gputrace_softgpu::truth::Dispatch; 2] = pair.try_into().unwrap();
        first.end.unwrap() <= second.begin
    };
    assert!(dispatches.windows(2).all(chained));
    let queues: std::collections::BTreeSet<u32> = dispatches
        .iter()
        .map(|dispatch| dispatch.place.queue)
        .collect();
    assert_eq!(queues.len(), 4);
    let least = 32.0 * 0.3;
    assert!(run.elapsed_ms().is_some_and(|elapsed| elapsed >= least));
}

#[test]
fn copies_of_all_sizes_arrive() {
    // The program verifies the data.
    let run = Runner::new("copies")
        .env("GPU_FORCE_BLIT_COPY_SIZE", "0")
        .run();
    run.assert_success();
    let said = run.bytes_said(&[Direction::H2d, Direction::D2h]);
    assert_eq!(run.bytes_copied(), said.iter().sum::<u64>());
}

#[test]
fn small_copies_are_done_by_kernels() {
    let run = Runner::new("copies").run();
    run.assert_success();
    // Larger copies use SDMA, unless they stay on the GPU.
    const MOST: u64 = 16 << 10;
    let small = |said: &&Said| match said {
        Said::Copy {
            direction, bytes, ..
        } => *direction == Direction::D2d || *direction != Direction::H2h && *bytes <= MOST,
        _ => false,
    };
    let kernels = run.all_dispatches();
    assert_eq!(kernels.len(), run.said.iter().filter(small).count());
    assert!(
        kernels
            .iter()
            .all(|kernel| &*kernel.kernel == "__amd_rocclr_copyBuffer")
    );
    assert!(run.copies().iter().all(|copy| copy.bytes > MOST));
}

#[test]
fn a_graph_is_replayed_node_by_node() {
    let run = Runner::new("graph").arguments(&["100", "20"]).run();
    run.assert_success();
    run.assert_all_ran_in_order();
}

#[test]
fn two_gpus_work_at_the_same_time() {
    let run = Runner::new("devices").gpu(TWO_AGENTS).run();
    run.assert_success();
    assert!(run.said.contains(&Said::Devices { value: 2.0 }));
    run.assert_all_ran();
}

#[test]
fn one_of_each() {
    let module = code_object("module.hsaco");
    let run = Runner::new("features")
        .arguments(&[&module])
        .gpu("default_duration = { fixed_ns = 750_000 }")
        .run();
    run.assert_success();
    run.assert_all_ran_in_order();
    assert!(run.elapsed_ms().is_some_and(|elapsed| elapsed >= 0.749));
    let extended = run
        .dispatches()
        .into_iter()
        .find(|dispatch| &*dispatch.kernel == "extended");
    assert!(extended.unwrap().stamped);
}

#[test]
fn callbacks_pools_forks_and_peers() {
    for (name, gpu) in [
        ("callbacks", ""),
        ("pools", ""),
        ("forks", ""),
        ("peers", TWO_AGENTS),
    ] {
        let run = Runner::new(name).gpu(gpu).run();
        run.assert_success();
        run.assert_all_ran();
    }
}

#[test]
fn an_hsa_program_loads_code_and_dispatches() {
    let module = code_object("module-gfx906.hsaco");
    let run = Runner::new("hsa_dispatch").arguments(&[&module]).run();
    run.assert_success();
    run.assert_all_ran();
    let run = Runner::new("hsa_dispatch")
        .arguments(&[&module, "unknown"])
        .run();
    assert_eq!(run.status.and_then(|status| status.code()), Some(86));
    assert!(run.stderr.contains("AQL packet, type 9"), "{}", run.stderr);
}

#[test]
fn processes_have_logs_of_their_own() {
    let run = Runner::new("processes").arguments(&["3"]).run();
    run.assert_success();
    run.assert_all_ran();
}

#[test]
fn forced_profiling_gives_every_packet_a_signal() {
    let run = Runner::new("many_kernels")
        .arguments(&["3000"])
        .env("GPU_FORCE_QUEUE_PROFILING", "1")
        .run();
    run.assert_success();
    run.assert_all_ran_in_order();
    let signalled =
        |dispatch: &gputrace_softgpu::truth::Dispatch| dispatch.stamped && dispatch.signal != 0;
    assert!(run.dispatches().iter().all(signalled));
}

#[test]
fn signals_hold_exactly_the_logged_ticks() {
    for drift in ["0", "50_000", "-50_000"] {
        let toml =
            format!("[[agent]]\nclock = {{ drift_ppb = {drift}, offset_ticks = 123_456_789_012 }}");
        let run = Runner::new("hsa_ticks").gpu(&toml).run();
        run.assert_success();
        assert_eq!(run.assert_ticks(), 210);
    }
}

#[test]
fn an_endless_kernel_hangs_the_program_and_is_in_the_log() {
    let run = Runner::new("endless")
        .gpu("[[fault]]\nkind = 'never_ends'\nkernel = 'endless'")
        .run_until(|truth| {
            truth
                .iter()
                .any(|record| matches!(record, Record::Fault { .. }))
        });
    assert!(
        run.status.is_none(),
        "it ended: {:?} {}",
        run.status,
        run.stderr
    );
    let fault = run.truth.iter().find_map(|record| match record {
        Record::Fault { fault, .. } => Some(*fault),
        _ => None,
    });
    assert_eq!(fault, Some(Fault::NeverEnds));
}

#[test]
fn a_queue_error_reaches_the_runtime() {
    let run = Runner::new("many_kernels")
        .gpu("[[fault]]\nkind = 'queue_error'\nkernel = 'small_*'\nnth = 500")
        .run();
    assert!(
        run.status.is_some_and(|status| !status.success()),
        "{:?}",
        run.status
    );
    let expected = "HSA_STATUS_ERROR_INVALID_PACKET_FORMAT";
    assert!(run.stderr.contains(expected), "{}", run.stderr);
}
