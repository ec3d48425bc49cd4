//! How the GPU reports its read index, and what gputrace makes of it.

use std::collections::BTreeMap;

use gputrace_timeline::gpu::Quality;

use super::{ISSUE, difference, evidence::Evidence, percentile, time};
use crate::{
    log::{Kernel, Said},
    report::{Row, Status},
};

pub(super) fn rows(evidence: &Evidence<'_>) -> Vec<Row> {
    vec![read_index(evidence), estimates(evidence)]
}

/// What the program saw of the read index while packets were in the queue.
#[derive(Default)]
struct Behaviour {
    /// By how much it grew at once.
    steps: Vec<i64>,
    /// How long after a kernel's begin it was seen beyond the kernel's packet, ns.
    late: Vec<i64>,
    /// Packets that were taken while the one before, for which they wait, still ran.
    ahead: usize,
    /// Packets of batches in which it was seen to stand still up to the end.
    still: usize,
    packets: usize,
    pause: u64,
}

fn behaviour(evidence: &Evidence<'_>) -> Behaviour {
    let mut all = Behaviour::default();
    // When kernels began and ended, by their place.
    let clocks: BTreeMap<(u64, u64), [(u64, u64); 2]> = evidence
        .matched
        .iter()
        .filter_map(|one| Some(((one.said.queue, one.said.index), one.clock?)))
        .collect();
    for said in evidence.said {
        let Said::ReadIndex {
            queue,
            looks,
            pause_ns,
        } = said
        else {
            continue;
        };
        let (Some([_, first]), Some([_, last])) = (looks.first(), looks.last()) else {
            continue;
        };
        let packets = usize::try_from(last.saturating_sub(*first)).unwrap_or(usize::MAX);
        // Of a few packets nothing can be said.
        if packets < 16 {
            continue;
        }
        all.packets += packets;
        all.pause = all.pause.max(*pause_ns);
        all.still += if looks.len() <= 2 { packets } else { 0 };
        for (before, look) in looks.iter().zip(looks.iter().skip(1)) {
            let ([_, from], [at, to]) = (before, look);
            all.steps.push(difference(*to, *from));
            for index in *from..*to {
                let before = index.checked_sub(1).and_then(|before| clocks.get(&(*queue, before)));
                let ran_on = before.is_some_and(|[_, (end, uncertainty)]| end.saturating_sub(*uncertainty) > *at);
                all.ahead += usize::from(ran_on && evidence.trusts_clock);
                if let Some([(begin, _), _]) = clocks.get(&(*queue, index)) {
                    all.late.push(difference(*at, *begin));
                }
            }
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
        still,
        packets,
        pause,
    } = behaviour(evidence);
    let Some(step) = percentile(&mut steps, 50) else {
        return Row::new(
            NAME,
            Status::Warning,
            "it was not seen to move",
            "nothing can be said of how the GPU reports it",
        );
    };
    let largest = percentile(&mut steps, 100).unwrap_or(step);
    let delay = percentile(&mut late, 50);
    let row = if ahead > 0 {
        Row::new(
            NAME,
            Status::Wrong,
            format!("{ahead} of {packets} packets were taken while the one before, for which they wait, still ran"),
            "gputrace takes a packet's being taken for the kernel's begin: sampled times of this GPU are not to be believed",
        )
        .next(ISSUE)
    } else if still * 2 > packets {
        Row::new(
            NAME,
            Status::Warning,
            format!("it does not move while packets run; it was seen to grow by {largest} at once"),
            "kernels without completion signals have bounds only: the whole batch",
        )
        .next("launch programs by gputrace, so that HIP gives kernels signals; kernels of running programs have no better times")
    } else {
        let how = match (step, delay) {
            (2.., _) => format!("in steps of {step}"),
            (_, Some(delay)) if delay > 100_000 => "late".to_owned(),
            _ => "at once".to_owned(),
        };
        let delay = delay.map_or_else(String::new, |delay| format!(", {} after a kernel's begin (median)", time(delay)));
        let status = if late.iter().any(|late| *late > 5_000_000) {
            Status::Warning
        } else {
            Status::Ok
        };
        let meaning = match status {
            Status::Ok => "kernels without completion signals can be told apart by it",
            _ => "it comes so late that kernels without completion signals have wide windows",
        };
        Row::new(NAME, status, format!("it is reported {how}{delay}"), meaning)
    };
    row.figure("packets", packets as f64)
        .figure("step_p50", step as f64)
        .figure("step_max", largest as f64)
        .figure("ahead", ahead as f64)
        .figure("late_p50_ns", delay.map_or(f64::NAN, |ns| ns as f64))
        .figure("late_max_ns", percentile(&mut late, 100).map_or(f64::NAN, |ns| ns as f64))
        .figure("longest_pause_of_looks_ns", pause as f64)
}

/// Mean durations of dispatches whose times are estimates, by kernel, against what the kernels read from the clock.
fn estimates(evidence: &Evidence<'_>) -> Row {
    const NAME: &str = "estimates";
    /// Fewer dispatches of a kernel say nothing.
    const ENOUGH: i64 = 20;
    const GOOD_PERCENT: f64 = 10.0;
    // Sums of estimated and true durations, and how many.
    let mut kernels: BTreeMap<Kernel, (i64, i64, i64)> = BTreeMap::new();
    for one in &evidence.matched {
        if let (Quality::Sampled, Some([begin, end]), true) = (one.recorded.time.quality, one.clock, evidence.trusts_clock) {
            let sums = kernels.entry(one.said.kernel).or_default();
            sums.0 += difference(one.recorded.time.end, one.recorded.time.begin);
            sums.1 += difference(end.0, begin.0);
            sums.2 += 1;
        }
    }
    kernels.retain(|_, (.., count)| *count >= ENOUGH);
    if kernels.is_empty() {
        return Row::new(
            NAME,
            Status::Warning,
            "too few dispatches with sampled times whose kernels wrote down the clock",
            "mean durations of kernels without stamps were not checked",
        );
    }
    let (mut texts, mut worst) = (Vec::new(), 0.0_f64);
    let mut row = Row::new(NAME, Status::Ok, "", "means of kernels without stamps are close to the truth");
    for (kernel, (estimated, really, count)) in &kernels {
        let mean = |sum: &i64| sum / count;
        let (estimated, really) = (mean(estimated), mean(really));
        let off = (estimated as f64 / really.max(1) as f64 - 1.0) * 100.0;
        worst = worst.max(off.abs());
        texts.push(format!("{} {} (really {})", short(*kernel), time(estimated), time(really)));
        row = row.figure(figure(*kernel), off);
    }
    row.found = format!("mean durations: {}", texts.join(", "));
    if worst > GOOD_PERCENT {
        row.status = Status::Warning;
        row.meaning = "means of sampled durations of kernels that take turns are not to be relied on; their windows are".to_owned();
    }
    row
}

const fn short(kernel: Kernel) -> &'static str {
    match kernel {
        Kernel::Short => "short",
        Kernel::Medium => "medium",
        Kernel::Long => "long",
        Kernel::Scratch => "scratch",
    }
}

const fn figure(kernel: Kernel) -> &'static str {
    match kernel {
        Kernel::Short => "short_off_percent",
        Kernel::Medium => "medium_off_percent",
        Kernel::Long => "long_off_percent",
        Kernel::Scratch => "scratch_off_percent",
    }
}
