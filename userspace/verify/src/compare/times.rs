//! Compares times: stamps, exact times, windows, clocks.

use gputrace_timeline::gpu::{Quality, Window};

use super::{
    ISSUE, difference,
    evidence::{Evidence, Matched},
    percentile, time,
};
use crate::report::{Row, Status};

/// Maximum error of the runtime's conversion of ticks, which extrapolates from samples that are up
/// to about 100 ms old. 0.1 s at 50 ppm is 5 us; twice that is allowed, and ten times that for a
/// single value.
const CONVERSION_NS: i64 = 10_000;
const WORST_NS: i64 = 100_000;

pub(super) fn rows(evidence: &Evidence<'_>) -> Vec<Row> {
    vec![
        stamps(evidence),
        exact(evidence),
        kernel_clock(evidence),
        clock(evidence),
        windows(evidence),
    ]
}

/// Compares the runtime's times with what is certain; gputrace is not involved.
fn stamps(evidence: &Evidence<'_>) -> Row {
    const NAME: &str = "stamps";
    let (mut asked, mut none, mut backwards, mut outside) = (0_usize, 0_usize, 0_usize, 0_usize);
    for one in evidence.matched.iter().filter(|one| is_stamped(one)) {
        asked += 1;
        let Some([begin, end]) = one.said.runtime_ns else {
            none += 1;
            continue;
        };
        backwards += usize::from(begin > end);
        let early = difference(one.said.rung_ns, begin) > WORST_NS;
        let late = one
            .said
            .seen_ns
            .is_some_and(|seen| difference(end, seen) > WORST_NS);
        outside += usize::from(begin <= end && (early || late));
    }
    let row = if asked == 0 {
        Row::new(
            NAME,
            Status::Warning,
            "no dispatch with stamps was recorded",
            "gputrace could not check exact times",
        )
    } else if none + backwards + outside == 0 {
        Row::new(
            NAME,
            Status::Ok,
            format!("the runtime reports the times of {asked} dispatches, and all are possible"),
            "the GPU's stamps are plausible",
        )
    } else {
        Row::new(
            NAME,
            Status::Wrong,
            format!(
                "of {asked} dispatches the runtime reports no times for {none}, an end before the \
                 start for {backwards}, and impossible times for {outside}"
            ),
            "the GPU stamps wrongly, or its clock is not the one that the driver reads",
        )
        .next(format!("gputrace cannot know better than the GPU; {ISSUE}"))
    };
    row.figure("stamped", asked as f64)
        .figure("without", none as f64)
        .figure("backwards", backwards as f64)
        .figure("impossible", outside as f64)
}

/// Whether the GPU had to stamp a dispatch: it has a signal, its queue has stamps, and it was seen
/// to complete.
fn is_stamped(one: &Matched<'_>) -> bool {
    one.said.signalled && one.said.part != crate::log::Part::Unstamped && one.said.seen_ns.is_some()
}

fn exact(evidence: &Evidence<'_>) -> Row {
    const NAME: &str = "exact times";
    let (mut all, mut exact) = (0_usize, 0_usize);
    let (mut begins, mut lengths) = (Vec::new(), Vec::new());
    for one in evidence.matched.iter().filter(|one| is_stamped(one)) {
        all += 1;
        let recorded = one.recorded.time;
        if recorded.quality != Quality::Exact {
            continue;
        }
        exact += 1;
        if let Some([begin, end]) = one.said.runtime_ns {
            begins.push(difference(recorded.begin, begin).saturating_abs());
            lengths.push(
                difference(recorded.end, recorded.begin)
                    .saturating_sub(difference(end, begin))
                    .saturating_abs(),
            );
        }
    }
    if all == 0 {
        return Row::new(
            NAME,
            Status::Warning,
            "none to compare",
            "gputrace could not check exact times",
        );
    }
    let figures = |row: Row, begins: &mut [i64], lengths: &mut [i64]| {
        let number = |values: &mut [i64], percent| {
            percentile(values, percent).map_or(f64::NAN, |ns| ns as f64)
        };
        row.figure("stamped", all as f64)
            .figure("exact", exact as f64)
            .figure("begin_off_p50_ns", number(begins, 50))
            .figure("begin_off_p99_ns", number(begins, 99))
            .figure("begin_off_max_ns", number(begins, 100))
            .figure("duration_off_p50_ns", number(lengths, 50))
            .figure("duration_off_max_ns", number(lengths, 100))
    };
    let (typical, worst) = (percentile(&mut begins, 99), percentile(&mut begins, 100));
    let length = percentile(&mut lengths, 100);
    let row = match (typical, worst, length) {
        _ if exact * 1000 < all * 995 => Row::new(
            NAME,
            Status::Wrong,
            format!("{exact} of {all} dispatches that the GPU was to stamp have exact times"),
            "stamps are missing, cannot be read in time, or contradict what is known of the dispatch",
        )
        .next(ISSUE),
        (Some(typical), Some(worst), Some(length))
            if typical <= CONVERSION_NS && worst <= WORST_NS && length <= CONVERSION_NS =>
        {
            Row::new(
                NAME,
                Status::Ok,
                format!(
                    "{exact} of {all}; starts within {} of the runtime's, durations within {}",
                    time(worst),
                    time(length)
                ),
                "exact means exact",
            )
        }
        (Some(_), Some(worst), Some(length)) => Row::new(
            NAME,
            Status::Wrong,
            format!(
                "starts differ by up to {} from the runtime's, durations by up to {}",
                time(worst),
                time(length)
            ),
            "stamps belong to other dispatches, or the clock is converted wrongly",
        )
        .next(ISSUE),
        _ => Row::new(
            NAME,
            Status::Warning,
            format!("{exact} of {all}; the runtime reports no times to compare with"),
            "only the windows can be checked",
        ),
    };
    figures(row, &mut begins, &mut lengths)
}

/// Compares what kernels read from the clock with their stamps.
fn kernel_clock(evidence: &Evidence<'_>) -> Row {
    const NAME: &str = "kernels' own clock";
    if evidence.impossible > 0 {
        return Row::new(
            NAME,
            Status::Wrong,
            format!(
                "{} of {} kernels read impossible times",
                evidence.impossible,
                evidence.matched.len()
            ),
            "the clock that kernels and stamps show is not the one that the driver reads, or \
             packets are taken before their doorbell",
        )
        .next(ISSUE)
        .figure("impossible", evidence.impossible as f64);
    }
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for (one, [begin, end]) in evidence.stamped_and_clocked() {
        before.push(difference(begin.0, one.recorded.time.begin));
        after.push(difference(one.recorded.time.end, end.0));
    }
    let (Some(launch), Some(drain)) = (percentile(&mut before, 50), percentile(&mut after, 50))
    else {
        return Row::new(
            NAME,
            Status::Warning,
            "no stamped kernel wrote down what it read",
            "start and end of kernels without stamps are known only from the program's clock",
        );
    };
    let found = format!(
        "{} kernels read it {} after their start stamp and {} before their end stamp (median)",
        before.len(),
        time(launch),
        time(drain)
    );
    let row = if evidence.trusts_clock {
        Row::new(
            NAME,
            Status::Ok,
            found,
            "stamps enclose the kernels and come from the same clock",
        )
    } else {
        Row::new(
            NAME,
            Status::Wrong,
            found,
            "some kernels ran, by the clock that they read, outside of their stamps",
        )
        .next(ISSUE)
    };
    row.figure("kernels", before.len() as f64)
        .figure("launch_p50_ns", launch as f64)
        .figure("drain_p50_ns", drain as f64)
}

fn clock(evidence: &Evidence<'_>) -> Row {
    const NAME: &str = "clock conversion";
    let recording = evidence.recording;
    let said = evidence.said.iter().find_map(|said| match said {
        crate::log::Said::Clock { frequency_hz } => Some(*frequency_hz),
        _ => None,
    });
    let (Some(hz), Some(runtime_hz)) = (recording.clock.frequency_hz(), said) else {
        return Row::new(
            NAME,
            Status::Wrong,
            format!("the GPU's clock was sampled {} times", recording.samples),
            "stamps cannot be put onto the host's clock",
        )
        .next("gputrace doctor");
    };
    let (mut off, mut uncertain) = (Vec::new(), Vec::new());
    for one in &evidence.matched {
        if let (Some(clock), Some(runtime)) = (one.clock, one.said.clock_ns) {
            for ((ns, uncertainty), runtime) in clock.into_iter().zip(runtime) {
                off.push(difference(ns, runtime).saturating_abs());
                uncertain.push(i64::try_from(uncertainty).unwrap_or(i64::MAX));
            }
        }
    }
    let ppm = (hz as f64 / runtime_hz.max(1) as f64 - 1.0) * 1e6;
    let (typical, worst) = (percentile(&mut off, 99), percentile(&mut off, 100));
    let uncertainty = percentile(&mut uncertain, 50);
    let of_ticks = match (worst, uncertainty) {
        (Some(worst), Some(uncertainty)) => {
            format!(
                "; ticks within {} of the runtime's, known to {}",
                time(worst),
                time(uncertainty)
            )
        }
        _ => String::new(),
    };
    let found = format!(
        "{:.3} MHz, {ppm:.0} ppm from the runtime's{of_ticks}",
        hz as f64 / 1e6
    );
    let agrees = ppm.abs() < 500.0
        && typical.is_none_or(|ns| ns <= CONVERSION_NS)
        && worst.is_none_or(|ns| ns <= WORST_NS);
    let row = if agrees {
        Row::new(
            NAME,
            Status::Ok,
            found,
            "gputrace and the runtime put ticks at the same moments",
        )
    } else {
        Row::new(
            NAME,
            Status::Wrong,
            found,
            "one of the two converts the GPU's clock wrongly, or the clock is not steady",
        )
        .next(ISSUE)
    };
    let number = |ns: Option<i64>| ns.map_or(f64::NAN, |ns| ns as f64);
    row.figure("frequency_hz", hz as f64)
        .figure("from_runtime_ppm", ppm)
        .figure("samples", recording.samples as f64)
        .figure("off_p99_ns", number(typical))
        .figure("off_max_ns", number(worst))
        .figure("uncertainty_p50_ns", number(uncertainty))
}

/// An interval in which something certainly happened.
struct Truth {
    from: u64,
    to: u64,
}

/// Whether a window cannot contain the true time.
fn violates(window: Window, truth: &Truth) -> bool {
    window.earliest > truth.to || window.latest.is_some_and(|latest| latest < truth.from)
}

/// When a dispatch certainly began and ended.
fn truths(one: &Matched<'_>, trusts_clock: bool) -> Option<[Truth; 2]> {
    let (rung, seen) = (one.said.rung_ns, one.said.seen_ns?);
    let clock = one.clock.filter(|_| trusts_clock);
    let [begun, ending] = clock.map_or([seen, rung], |[begin, end]| {
        [begin.0.saturating_add(begin.1), end.0.saturating_sub(end.1)]
    });
    Some([
        Truth {
            from: rung,
            to: begun.min(seen),
        },
        Truth {
            from: ending.max(rung),
            to: seen,
        },
    ])
}

fn windows(evidence: &Evidence<'_>) -> Row {
    const NAME: &str = "windows";
    let (mut all, mut wrong) = (0_usize, 0_usize);
    let mut qualities = [0_usize; 4];
    let mut widths = Vec::new();
    for one in &evidence.matched {
        let Some([begin, end]) = truths(one, evidence.trusts_clock) else {
            continue;
        };
        let recorded = one.recorded.time;
        all += 1;
        wrong += usize::from(
            violates(recorded.begin_window, &begin) || violates(recorded.end_window, &end),
        );
        if let Some(count) = qualities.get_mut(recorded.quality as usize) {
            *count += 1;
        }
        if let (Quality::Sampled | Quality::Bounded, Some(latest)) =
            (recorded.quality, recorded.end_window.latest)
        {
            widths.push(difference(latest, recorded.begin_window.earliest));
        }
    }
    let [submitted, bounded, sampled, exact] = qualities;
    let width = percentile(&mut widths, 50);
    let of_widths = width.map_or_else(String::new, |width| {
        format!("; half of the others' are narrower than {}", time(width))
    });
    let row = match wrong {
        0 if all > 0 => Row::new(
            NAME,
            Status::Ok,
            format!(
                "{all} hold ({exact} exact, {sampled} sampled, {bounded} bounded, {submitted} \
                 submitted){of_widths}"
            ),
            "what gputrace calls proven is true",
        ),
        0 => Row::new(
            NAME,
            Status::Warning,
            "none to compare",
            "gputrace could not check windows",
        ),
        _ => Row::new(
            NAME,
            Status::Wrong,
            format!(
                "{wrong} of {all} dispatches ran outside of the windows that gputrace calls proven"
            ),
            "something that gputrace relies on does not hold on this GPU: see the rows about \
             stamps and the read index",
        )
        .next(ISSUE),
    };
    row.figure("compared", all as f64)
        .figure("violated", wrong as f64)
        .figure("exact", exact as f64)
        .figure("sampled", sampled as f64)
        .figure("bounded", bounded as f64)
        .figure("submitted", submitted as f64)
        .figure("width_p50_ns", width.map_or(f64::NAN, |ns| ns as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_violated_only_by_what_is_certain() {
        let window = Window {
            earliest: 100,
            latest: Some(200),
        };
        let at = |from, to| violates(window, &Truth { from, to });
        assert!(!at(50, 100) && !at(200, 300) && !at(150, 160));
        assert!(at(50, 99) && at(201, 300));
        let open = Window {
            latest: None,
            ..window
        };
        assert!(!violates(open, &Truth { from: 500, to: 600 }));
    }
}
