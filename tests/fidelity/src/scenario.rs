//! Scenarios to run: the axes of the matrix.

use std::fmt;

/// How the recorder gets to the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// `gputrace -- program`.
    Launch,
    /// `gputrace -p PID`, while the program is running.
    Attach,
}

impl Mode {
    /// Both modes.
    pub const ALL: [Self; 2] = [Self::Launch, Self::Attach];
}

impl fmt::Display for Mode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Launch => "launch",
            Self::Attach => "attach",
        })
    }
}

/// Behaviour of the GPUs' clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Clock {
    /// They run at their nominal rate, starting at 0.
    Plain,
    /// They have an offset and run 80 ppm too fast.
    Drift,
    /// Like [`Clock::Drift`], with jumps forwards and backwards every 0.7 s.
    Jump,
}

impl Clock {
    /// All clocks.
    pub const ALL: [Self; 3] = [Self::Plain, Self::Drift, Self::Jump];

    /// The clock's table in the software GPU's configuration. `now` is in ns of `CLOCK_BOOTTIME`;
    /// `hz` is the nominal rate.
    fn toml(self, now: u64, hz: u64) -> String {
        let (offset, drift) = match self {
            Self::Plain => (0, 0),
            Self::Drift | Self::Jump => (0x1234_5678_9abc_i64, 80_000),
        };
        let seconds = i64::try_from(hz).unwrap_or(i64::MAX);
        let jumps: Vec<String> = match self {
            Self::Plain | Self::Drift => Vec::new(),
            Self::Jump => (0..LEAPS)
                .map(|leap| {
                    let ticks = match leap % 3 {
                        0 => 10 * seconds,
                        1 => -3 * seconds,
                        _ => -7 * seconds / 1000,
                    };
                    format!(
                        "{{ at_ns = {}, ticks = {ticks} }}",
                        now + (leap + 1) * LEAP_EVERY
                    )
                })
                .collect(),
        };
        format!(
            "clock = {{ frequency_hz = {hz}, offset_ticks = {offset}, drift_ppb = {drift}, jumps = [{}] }}",
            jumps.join(", ")
        )
    }
}

/// Number of clock jumps, which suffices for the longest run.
const LEAPS: u64 = 60;

/// Time between jumps, ns.
const LEAP_EVERY: u64 = 700_000_000;

impl fmt::Display for Clock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Plain => "plain",
            Self::Drift => "offset+drift",
            Self::Jump => "jump",
        })
    }
}

/// How the GPU reports its queues' read indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReadIndex {
    /// After each packet, at once.
    Prompt,
    /// Every 16 packets, 300 µs late.
    Late,
}

impl ReadIndex {
    /// Both ways.
    pub const ALL: [Self; 2] = [Self::Prompt, Self::Late];
}

impl fmt::Display for ReadIndex {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Prompt => "prompt",
            Self::Late => "late, in steps",
        })
    }
}

/// The moment to attach, in terms of the GPU's progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// After this many dispatches.
    Dispatches(usize),
    /// After this many copies.
    Copies(usize),
    /// When this many AQL queues have been created.
    Queues(usize),
}

/// A program, and how to run it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Title for the report.
    pub title: &'static str,
    /// Name of a program in `tests/workloads/gpu`.
    pub program: &'static str,
    /// Its arguments when launched; `{objects}` stands for the directory of code objects.
    pub arguments: &'static [&'static str],
    /// Its arguments when attached to. The program must then run for a while.
    pub attach_arguments: &'static [&'static str],
    /// Duration of a kernel when launched, in the form of the configuration.
    pub duration: &'static str,
    /// Duration of a kernel when attached to.
    pub attach_duration: &'static str,
    /// Configuration tables for the durations of single kernels when attached to.
    pub attach_kernels: &'static str,
    /// When to attach.
    pub moment: Moment,
    /// Number of GPUs.
    pub gpus: u32,
    /// Whether one thread of one process launches all kernels.
    pub one_thread: bool,
    /// Number of kernels in a graph.
    pub graph_nodes: usize,
    /// Whether it uses HIP; otherwise it uses only HSA.
    pub is_hip: bool,
    /// Whether it needs a runtime that contains a compiler.
    pub compiles: bool,
    /// Whether HIP leaves submission to threads of its own (`AMD_DIRECT_DISPATCH=0`). The
    /// requesting calls are then known only if recording started with the program, so such a
    /// program is not attached to.
    pub deferred: bool,
    /// Whether it has classes of kernels whose estimated means are compared with the truth.
    pub is_mix: bool,
}

/// For programs that are not attached to.
const NEVER: Moment = Moment::Dispatches(0);

const DRAWN: &str = "{ uniform_ns = [1_000, 30_000] }";

/// The first three kernels of `hsa_dispatch`, with a doorbell each, take long enough that attaching
/// happens during one of them.
const FIRST_THREE: &str =
    "[[kernel]]\nmax_work_items = 192\nduration = { fixed_ns = 300_000_000 }\n";

pub(crate) const fn workload(
    title: &'static str,
    program: &'static str,
    moment: Moment,
) -> Workload {
    Workload {
        title,
        program,
        arguments: &[],
        attach_arguments: &[],
        duration: DRAWN,
        attach_duration: DRAWN,
        attach_kernels: "",
        moment,
        gpus: 1,
        one_thread: true,
        graph_nodes: 0,
        is_hip: true,
        compiles: false,
        deferred: false,
        is_mix: false,
    }
}

/// All workloads.
pub const WORKLOADS: [Workload; 13] = [
    Workload {
        arguments: &["5000"],
        // More packets than a queue holds, so that the program has to wait.
        attach_arguments: &["25000"],
        ..workload(
            "many kernels, one stream",
            "many_kernels",
            Moment::Dispatches(200),
        )
    },
    Workload {
        // Else all may be submitted before it is stopped, and there is nothing to compare.
        attach_arguments: &["300"],
        attach_duration: "{ fixed_ns = 300_000 }",
        ..workload("four streams", "streams", Moment::Queues(4))
    },
    Workload {
        arguments: &["50", "40"],
        // Again more packets than a queue holds; otherwise all may be submitted before the program
        // is stopped.
        attach_arguments: &["50", "700"],
        graph_nodes: 50,
        ..workload(
            "graph, captured and replayed",
            "graph",
            Moment::Dispatches(100),
        )
    },
    Workload {
        gpus: 2,
        one_thread: false,
        // Attached runs get most of their copies here: however late gputrace attaches, enough
        // copies follow.
        attach_arguments: &["500"],
        ..workload("two GPUs, a thread each", "devices", Moment::Dispatches(4))
    },
    Workload {
        gpus: 2,
        ..workload("two GPUs, copies between", "peers", Moment::Copies(3))
    },
    Workload {
        arguments: &["1"],
        attach_arguments: &["1"],
        one_thread: false,
        attach_duration: "{ fixed_ns = 3_000_000 }",
        ..workload("two processes", "processes", Moment::Queues(2))
    },
    workload("copies", "copies", Moment::Copies(8)),
    Workload {
        arguments: &["{objects}/module-gfx906.hsaco"],
        attach_arguments: &["{objects}/module-gfx906.hsaco"],
        attach_duration: "{ fixed_ns = 2_000_000 }",
        attach_kernels: FIRST_THREE,
        is_hip: false,
        ..workload(
            "HSA only, many packets a doorbell",
            "hsa_dispatch",
            Moment::Dispatches(1),
        )
    },
    Workload {
        arguments: &["{objects}/module-gfx906.hsaco"],
        attach_arguments: &["{objects}/module-gfx906.hsaco"],
        attach_duration: "{ fixed_ns = 2_000_000 }",
        attach_kernels: FIRST_THREE,
        is_hip: false,
        // Attaches during the third packet. The next doorbell is for eight packets.
        ..workload(
            "HSA only, attached before a batch",
            "hsa_dispatch",
            Moment::Dispatches(2),
        )
    },
    Workload {
        arguments: &["1000"],
        deferred: true,
        ..workload(
            "one stream, submitted by a thread of HIP's",
            "many_kernels",
            NEVER,
        )
    },
    Workload {
        gpus: 2,
        one_thread: false,
        deferred: true,
        ..workload("two GPUs, submitted by threads of HIP's", "devices", NEVER)
    },
    Workload {
        deferred: true,
        ..workload(
            "four streams, submitted by threads of HIP's",
            "streams",
            NEVER,
        )
    },
    Workload {
        compiles: true,
        ..workload("module made by hipRTC", "rtc", Moment::Queues(2))
    },
];

/// One run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// What runs.
    pub workload: &'static Workload,
    /// How the recorder gets to the program.
    pub mode: Mode,
    /// Behaviour of the clocks.
    pub clock: Clock,
    /// How read indices are reported.
    pub read_index: ReadIndex,
}

impl fmt::Display for Scenario {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{}, {}, clock {}, read index {}",
            self.workload.title, self.mode, self.clock, self.read_index
        )
    }
}

impl Scenario {
    /// All combinations; with `quick`, each value of each axis a few times.
    #[must_use]
    pub fn matrix(quick: bool) -> Vec<Self> {
        let mut scenarios = Vec::new();
        for (place, workload) in WORKLOADS.iter().enumerate() {
            for mode in Mode::ALL {
                if workload.deferred && mode == Mode::Attach {
                    continue;
                }
                for (turn, clock) in Clock::ALL.into_iter().enumerate() {
                    for read_index in ReadIndex::ALL {
                        let chosen = (place + turn + usize::from(mode == Mode::Attach)) % 3 == 0
                            && (place % 2 == 0) == (read_index == ReadIndex::Prompt);
                        if chosen || !quick {
                            scenarios.push(Self {
                                workload,
                                mode,
                                clock,
                                read_index,
                            });
                        }
                    }
                }
            }
        }
        scenarios
    }

    /// The software GPU's configuration. `now` is in ns of `CLOCK_BOOTTIME`.
    #[must_use]
    pub fn toml(&self, now: u64) -> String {
        let duration = match self.mode {
            Mode::Launch => self.workload.duration,
            Mode::Attach => self.workload.attach_duration,
        };
        let mut toml = format!("default_duration = {duration}\n");
        // Tables must follow plain keys.
        toml.push_str("[queue]\n");
        if self.workload.is_mix {
            // A GPU has found out within microseconds that a doorbell has rung.
            toml.push_str("idle_sleep_ns = 5_000\npunctual = true\n");
        }
        if self.read_index == ReadIndex::Late {
            toml.push_str("read_index_step = 16\nread_index_delay_ns = 300_000\n");
        }
        if self.mode == Mode::Attach {
            toml.push_str(self.workload.attach_kernels);
        }
        for gpu in 0..self.workload.gpus {
            toml.push_str("[[agent]]\n");
            let hz = if gpu == 0 {
                100_000_000
            } else {
                toml.push_str("gfx = 'gfx1030'\ndevice_id = 0x73bf\n");
                25_000_000
            };
            toml.push_str(&self.clock.toml(now, hz));
            toml.push('\n');
        }
        toml
    }

    /// The program's arguments.
    #[must_use]
    pub fn arguments(&self) -> &'static [&'static str] {
        match self.mode {
            Mode::Launch => self.workload.arguments,
            Mode::Attach => self.workload.attach_arguments,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quick_matrix_has_every_value_of_every_axis() {
        let (quick, all) = (Scenario::matrix(true), Scenario::matrix(false));
        let deferred = WORKLOADS
            .iter()
            .filter(|workload| workload.deferred)
            .count();
        assert_eq!(all.len(), WORKLOADS.len() * 12 - deferred * 6);
        assert_eq!(quick.len(), WORKLOADS.len() * 2 - deferred);
        for one in &all {
            assert!(
                quick
                    .iter()
                    .any(|it| it.workload == one.workload && it.mode == one.mode)
            );
            assert!(
                quick
                    .iter()
                    .any(|it| (it.mode, it.clock) == (one.mode, one.clock))
            );
            assert!(
                quick
                    .iter()
                    .any(|it| (it.mode, it.read_index) == (one.mode, one.read_index))
            );
        }
    }

    #[test]
    fn configurations_are_the_software_gpu_s() {
        for scenario in Scenario::matrix(false) {
            let toml = scenario.toml(1_000_000_000_000);
            let parsed = gputrace_softgpu::config::Config::parse(&toml, "softgpu.toml".as_ref());
            assert!(parsed.is_ok(), "{toml}: {parsed:?}");
        }
    }
}
