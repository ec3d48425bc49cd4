//! Attaches to programs with many classes of kernels, to see how well gputrace estimates the mean
//! durations of the classes.
//!
//! All of them run `mix`, whose kernels take as long as an argument says. The grid identifies the
//! class of a kernel.

use crate::scenario::{Clock, Mode, Moment, ReadIndex, Scenario, Workload, workload};

/// The kernel's argument determines its duration.
const BY_ARGUMENT: &str = "[[kernel]]\nname = \"mixed\"\nduration = { ticks_argument = 0 }\n";

const fn mix(title: &'static str, arguments: &'static [&'static str]) -> Workload {
    Workload {
        arguments,
        attach_arguments: arguments,
        attach_kernels: BY_ARGUMENT,
        is_mix: true,
        ..workload(title, "mix", Moment::Dispatches(3))
    }
}

/// All programs.
pub const MIXES: [Workload; 18] = [
    mix("random, 3 classes", &["classes=3", "seconds=5"]),
    mix("random, 20 classes", &["classes=20", "seconds=5"]),
    mix("random, 80 classes", &["classes=80", "seconds=5"]),
    mix(
        "periodic, 40 kernels",
        &["period=40", "classes=25", "seconds=4"],
    ),
    mix(
        "periodic, 400 kernels",
        &["period=400", "classes=60", "seconds=5"],
    ),
    Workload {
        graph_nodes: 40,
        ..mix(
            "graph of 40 kernels",
            &["period=40", "classes=25", "graph=1", "seconds=4"],
        )
    },
    mix("four streams that overlap", &["streams=4", "seconds=8"]),
    mix(
        "four streams in turn",
        &["streams=4", "ring=10", "seconds=5"],
    ),
    mix("bimodal", &["bimodal=1", "seconds=5"]),
    mix("durations grow by 20 %", &["drift=20", "seconds=5"]),
    mix("short kernels", &["to=80", "seconds=1.2"]),
    mix(
        "GPU use of 1 %",
        &["classes=4", "from=8", "to=100", "every=4000", "seconds=4"],
    ),
    mix(
        "GPU use of 10 %",
        &["classes=4", "from=8", "to=100", "every=370", "seconds=4"],
    ),
    mix(
        "GPU use of 50 %",
        &["classes=4", "from=8", "to=100", "every=75", "seconds=2"],
    ),
    mix(
        "GPU use of 50 %, longer kernels",
        &["classes=4", "from=80", "to=1000", "every=750", "seconds=4"],
    ),
    mix(
        "kernels of 3 us, long gaps",
        &["classes=2", "from=3", "to=4", "every=500", "seconds=4"],
    ),
    Workload {
        moment: Moment::Dispatches(1),
        ..mix(
            "one kernel a second",
            &[
                "classes=2",
                "from=3",
                "to=3000",
                "every=1000000",
                "seconds=6",
            ],
        )
    },
    mix("200 ms", &["classes=20", "seconds=0.2"]),
];

/// The programs of the quick matrix: the most common case, one that was once wrong by orders of
/// magnitude, and one for which nothing may be reported.
const QUICK: [&str; 3] = ["random, 20 classes", "GPU use of 10 %", "200 ms"];

/// The runs: each program with both ways of reporting read indices, and with alternating clocks;
/// with `quick`, a few programs with one way.
#[must_use]
pub fn matrix(quick: bool) -> Vec<Scenario> {
    let chosen = MIXES
        .iter()
        .filter(|workload| !quick || QUICK.contains(&workload.title));
    let mut clocks = Clock::ALL.into_iter().cycle();
    let mut scenarios = Vec::new();
    for workload in chosen {
        for read_index in ReadIndex::ALL {
            let clock = clocks.next().unwrap_or(Clock::Plain);
            if !quick || read_index == ReadIndex::Prompt {
                scenarios.push(Scenario {
                    workload,
                    mode: Mode::Attach,
                    clock,
                    read_index,
                });
            }
        }
    }
    scenarios
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_matrix_has_each_program_both_ways() {
        assert_eq!(matrix(false).len(), MIXES.len() * 2);
        assert_eq!(matrix(true).len(), QUICK.len());
        for clock in Clock::ALL {
            assert!(matrix(false).iter().any(|scenario| scenario.clock == clock));
        }
    }

    #[test]
    fn configurations_are_the_software_gpu_s() {
        for scenario in matrix(false) {
            let toml = scenario.toml(1_000_000_000_000);
            let parsed = gputrace_softgpu::config::Config::parse(&toml, "softgpu.toml".as_ref());
            assert!(parsed.is_ok(), "{toml}: {parsed:?}");
        }
    }
}
