//! Directions of copies on real runtimes, where the agents that calls name need not be those of the
//! memory. Each route that the program takes has a size of its own.

#![allow(clippy::panic, reason = "test code outside of #[test] functions")]
#![expect(clippy::expect_used, reason = "tests")]

mod support;

use std::collections::BTreeMap;

use gputrace_capture::gpu::AgentKind;
use gputrace_e2e::Trace;
use gputrace_harness::said::{self, Direction as Is, Said};
use gputrace_timeline::gpu::{Direction, KnownBy};

use support::{program, record, release};

const TWO_GPUS: &str = "[[agent]]\n[[agent]]\n";

fn on(name: &str) {
    let Some(release) = release(name) else { return };
    // Whether HSA is traced or not, the functions that say where memory is are probed.
    for options in [&["-s"][..], &["--memory-copy-trace"]] {
        let place = tempfile::tempdir().expect("a directory");
        let place = place.path();
        let options = [options, &["-f", "csv"]].concat();
        record(
            &program(&release, "hsa_places", &[]),
            place,
            TWO_GPUS,
            &options,
        );

        let trace = Trace::read(&place.join("out/run.gtcap"));
        trace.assert_lossless();
        let said = said::read(&place.join("said")).expect("what the program says");
        let said: BTreeMap<u64, Is> = said
            .into_iter()
            .map(|said| match said {
                Said::Copy {
                    direction, bytes, ..
                } => (bytes, direction),
                other => panic!("{other:?}"),
            })
            .collect();
        assert!(said.len() >= 15, "{said:?}");
        let kind = |node| {
            let mut agents = trace.gpu.agents.iter();
            let agent = agents.find(|info| Some(info.agent.node_id) == node);
            agent.map(|info| info.agent.kind)
        };
        let found = trace.gpu.copies.iter().map(|copy| {
            assert_eq!(
                copy.known_by,
                Some(KnownBy::Memory),
                "ROCm {name}: {copy:?}"
            );
            let (from, to) = (copy.source_node, copy.destination_node);
            let is = match (copy.direction, kind(from).zip(kind(to))) {
                (Direction::HostToDevice, Some((AgentKind::Cpu, AgentKind::Gpu))) => Is::H2d,
                (Direction::DeviceToHost, Some((AgentKind::Gpu, AgentKind::Cpu))) => Is::D2h,
                (Direction::HostToHost, Some((AgentKind::Cpu, AgentKind::Cpu))) => Is::H2h,
                (Direction::DeviceToDevice, Some((AgentKind::Gpu, AgentKind::Gpu))) => {
                    if from == to { Is::D2d } else { Is::Peer }
                }
                _ => panic!("ROCm {name}: {copy:?}"),
            };
            (copy.bytes, is)
        });
        assert_eq!(
            found.collect::<BTreeMap<_, _>>(),
            said,
            "ROCm {name}, {options:?}"
        );

        // The outputs say the same.
        let csv = std::fs::read_to_string(place.join("out/run_memory_copy_trace_quality.csv"));
        let csv = csv.expect("the copies");
        let rows = |direction: &str| csv.matches(direction).count();
        let count = |is: &[Is]| said.values().filter(|said| is.contains(said)).count();
        assert_eq!(rows("MEMORY_COPY_HOST_TO_DEVICE"), count(&[Is::H2d]));
        assert_eq!(rows("MEMORY_COPY_DEVICE_TO_HOST"), count(&[Is::D2h]));
        assert_eq!(rows("MEMORY_COPY_HOST_TO_HOST"), count(&[Is::H2h]));
        assert_eq!(
            rows("MEMORY_COPY_DEVICE_TO_DEVICE"),
            count(&[Is::D2d, Is::Peer])
        );
    }
}

gputrace_releases::on_each_release!(on);
