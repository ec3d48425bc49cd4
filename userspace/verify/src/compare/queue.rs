//! Checks how the GPU reports its read index, and what gputrace concludes from it.

use std::collections::BTreeMap;

use super::{ISSUE, difference, evidence::Evidence, percentile, time};
use crate::{
    log::Said,
    report::{Row, Status},
};

pub(super) fn rows(evidence: &Evidence<'_>) -> Vec<Row> {
    vec![read_index(evidence), super::estimates::row(evidence)]
}

/// What the program saw of the read index while packets were in the queue. The program may have
/// been preempted between two looks, so only what the looks prove counts.
#[derive(Default)]
struct Behaviour {
    /// Growth between two looks with almost no time between them.
    steps: Vec<i64>,
    /// How long after a kernel's begin the read index was certainly not yet beyond the kernel's
    /// packet, ns; 0 if that is not certain for any time.
    late: Vec<i64>,
    /// Number of packets taken while the packet before, which they must wait for, was still
    /// running.
    ahead: usize,
    packets: usize,
}

/// Two looks are close if no kernel fits between them.
const CLOSE_NS: u64 = 8_000;
/// Delay above which the read index counts as late.
const LATE_NS: i64 = 50_000;
/// Delay above which it makes windows wide.
const VERY_LATE_NS: i64 = 2_000_000;

fn behaviour(evidence: &Evidence<'_>) -> Behaviour {
    /// Minimum number of packets for any conclusion.
    const ENOUGH: u64 = 16;
    /// Maximum number of packets in a queue of the program: its messages are not trusted without
    /// limits.
    const MOST: usize = 1 << 16;
    let mut all = Behaviour::default();
    // Begins and ends of kernels by queue and packet index.
    let clocks: BTreeMap<(u64, u64), [(u64, u64); 2]> = evidence
        .matched
        .iter()
        .filter(|_| evidence.trusts_clock)
        .filter_map(|one| Some(((one.said.queue, one.said.index), one.clock?)))
        .collect();
    for said in evidence.said {
        let Said::ReadIndex {
            queue,
            from,
            changes,
        } = said
        else {
            continue;
        };
        let packets = changes
            .last()
            .map_or(0, |last| last.index.saturating_sub(*from));
        if packets < ENOUGH {
            continue;
        }
        all.packets = all
            .packets
            .saturating_add(usize::try_from(packets).unwrap_or(0));
        let mut before = *from;
        for change in changes {
            let close = change.seen_ns.saturating_sub(change.before_ns) < CLOSE_NS;
            let step = difference(change.index, before);
            if close {
                all.steps.push(step);
            }
            for index in (before..change.index).take(MOST) {
                let previous = index
                    .checked_sub(1)
                    .and_then(|previous| clocks.get(&(*queue, previous)));
                let ran_on = previous.is_some_and(|[_, (end, uncertainty)]| {
                    end.saturating_sub(*uncertainty) > change.seen_ns
                });
                all.ahead += usize::from(ran_on);
                if let Some([(begin, uncertainty), _]) = clocks.get(&(*queue, index)) {
                    all.late.push(
                        difference(change.before_ns, begin.saturating_add(*uncertainty)).max(0),
                    );
                }
            }
            before = change.index;
        }
    }
    all
}

fn read_index(evidence: &Evidence<'_>) -> Row {
    const NAME: &str = "read index";
    let Behaviour {
        mut steps,
        mut late,
        ahead,
        packets,
    } = behaviour(evidence);
    let (step, largest) = (percentile(&mut steps, 50), percentile(&mut steps, 100));
    let (delay, longest) = (percentile(&mut late, 50), percentile(&mut late, 90));
    let row = if ahead > 0 {
        Row::new(
            NAME,
            Status::Wrong,
            format!(
                "{ahead} of {packets} packets were taken while the previous one, for which \
                they wait, still ran"
            ),
            "gputrace assumes that a kernel begins when its packet is taken: do not trust sampled \
             times of this GPU",
        )
        .next(ISSUE)
    } else if delay.is_some_and(|delay| delay >= VERY_LATE_NS) {
        Row::new(
            NAME,
            Status::Warning,
            format!(
                "it hardly moves while packets run: it is reported {} after a kernel's start \
                 (median), in steps of up to {}",
                time(delay.unwrap_or(0)),
                largest.unwrap_or(0)
            ),
            "kernels without completion signals have bounds only: those of the whole batch",
        )
        .next(
            "launch programs with gputrace, so that HIP gives kernels signals; kernels of \
            running programs have no better times",
        )
    } else if let (Some(step), Some(delay), Some(longest)) = (step, delay, longest) {
        let how = match (step, longest) {
            (..=1, ..LATE_NS) => "at once".to_owned(),
            (..=1, _) => "late".to_owned(),
            (_, ..LATE_NS) => format!("in steps of {step}"),
            _ => format!("late, in steps of {step}"),
        };
        let found = format!(
            "it is reported {how}: certainly not before {} after a kernel's start (median; for one \
             in ten {})",
            time(delay),
            time(longest)
        );
        if longest < VERY_LATE_NS {
            Row::new(
                NAME,
                Status::Ok,
                found,
                "kernels without completion signals can be told apart by it",
            )
        } else {
            Row::new(
                NAME,
                Status::Warning,
                found,
                "so late that kernels without completion signals have wide windows",
            )
        }
    } else {
        Row::new(
            NAME,
            Status::Warning,
            "its movement could not be observed, because the program did not look often enough or \
             kernels did not write down the clock",
            "gputrace could not check how the GPU reports it",
        )
        .next("run this again on an idle machine")
    };
    let number = |value: Option<i64>| value.map_or(f64::NAN, |value| value as f64);
    row.figure("packets", packets as f64)
        .figure("step_p50", number(step))
        .figure("step_max", number(largest))
        .figure("ahead", ahead as f64)
        .figure("late_p50_ns", number(delay))
        .figure("late_p90_ns", number(longest))
}

#[cfg(test)]
mod tests {
    use gputrace_kfd::clock::{ClockModel, ClockSample};
    use gputrace_timeline::gpu::{Dispatch as Recorded, GpuTime, Quality};

    use super::*;
    use crate::{
        capture::Recording,
        log::{Change, Dispatch, Kernel, Part},
        record::Mode,
    };

    const PACKETS: u64 = 20;
    /// A kernel takes 9 us, and the next one begins 1 us later.
    const KERNEL_NS: u64 = 9_000;
    const EVERY_NS: u64 = 10_000;
    /// Begin of the first kernel in host ns. The GPU's clock counts tens of ns from the same
    /// origin.
    const FIRST_NS: u64 = 5_000_000;

    fn begin(index: u64) -> u64 {
        FIRST_NS + index * EVERY_NS
    }

    fn dispatch(index: u64) -> Said {
        let span = [begin(index), begin(index) + KERNEL_NS];
        Said::Dispatch(Dispatch {
            part: Part::Plain,
            queue: 1,
            index,
            kernel: Kernel::Short,
            grid: [64, 1, 1],
            workgroup: [64, 1, 1],
            ticks: KERNEL_NS / 10,
            signalled: false,
            rung_ns: FIRST_NS - 1_000_000,
            seen_ns: Some(FIRST_NS + 1_000_000_000),
            runtime_ns: None,
            clock_ticks: Some(span.map(|ns| ns / 10)),
            clock_ns: None,
        })
    }

    /// The row for a read index with these changes.
    fn row(changes: impl Fn(u64) -> Change) -> Row {
        let sample = |boottime_ns| ClockSample {
            gpu_id: 7,
            gpu_tick: boottime_ns / 10,
            boottime_ns,
            ..ClockSample::default()
        };
        let recording = Recording {
            clock: ClockModel::new(7, [sample(0), sample(1_000_000_000)]),
            dispatches: (0..PACKETS)
                .map(|index| {
                    let time = GpuTime {
                        quality: Quality::Sampled,
                        begin: begin(index),
                        end: begin(index) + 20_000,
                        ..GpuTime::default()
                    };
                    let dispatch = Recorded {
                        index,
                        time,
                        ..Recorded::default()
                    };
                    (1, dispatch)
                })
                .collect(),
            ..Recording::default()
        };
        let mut said: Vec<Said> = (0..PACKETS).map(dispatch).collect();
        said.push(Said::ReadIndex {
            queue: 1,
            from: 0,
            changes: (0..PACKETS).map(changes).collect(),
        });
        let evidence = Evidence::new(Mode::Launch, &said, &recording);
        assert!(evidence.trusts_clock);
        read_index(&evidence)
    }

    fn change(at_ns: u64, index: u64) -> Change {
        Change {
            before_ns: at_ns - 500,
            seen_ns: at_ns + 500,
            index,
        }
    }

    #[test]
    fn it_is_seen_how_the_read_index_is_reported() {
        let at_once = row(|packet| change(begin(packet), packet + 1));
        assert_eq!(at_once.status, Status::Ok);
        assert!(at_once.found.contains("at once"), "{}", at_once.found);
        let late = row(|packet| change(begin(packet) + 80_000, packet + 1));
        assert_eq!(late.status, Status::Ok);
        assert!(late.found.contains("late"), "{}", late.found);
        let very_late = row(|packet| change(begin(packet) + 5_000_000, packet + 1));
        assert_eq!(very_late.status, Status::Warning);
    }

    #[test]
    fn a_packet_taken_too_early_is_wrong() {
        // The second packet is taken when the first begins, and so on; the last one is on time.
        let ahead = row(|packet| change(begin(packet), (packet + 2).min(PACKETS)));
        assert_eq!(ahead.status, Status::Wrong);
        assert_eq!(ahead.figures["ahead"], (PACKETS - 1) as f64);
    }

    #[test]
    fn a_pause_of_the_program_proves_nothing() {
        // It did not look for a second.
        let row = row(|packet| Change {
            before_ns: begin(0),
            seen_ns: begin(0) + 1_000_000_000,
            index: packet + 1,
        });
        assert_eq!(row.status, Status::Warning);
        assert!(row.found.contains("could not be observed"), "{}", row.found);
    }
}
