//! Compares estimated mean durations with what the kernels read from the clock.

use std::collections::BTreeMap;

use gputrace_timeline::gpu::Quality;

use super::{ISSUE, difference, evidence::Evidence, percentile, time};
use crate::{
    log::Kernel,
    report::{Row, Status},
};

const NAME: &str = "estimates";
/// Minimum number of dispatches of a kernel for any conclusion.
const ENOUGH: u64 = 20;
/// Number of standard errors within which the truth is in 95 % of cases, and outside of which it is
/// not by chance.
const NEAR: f64 = 2.0;
const FAR: f64 = 5.0;
/// Relative error that is good enough whatever the stated standard error.
const GOOD: f64 = 0.05;
/// Relative error that is wrong if the stated standard error denies it.
const BAD: f64 = 0.25;

/// Sums over the dispatches of a kernel, ns.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    count: u64,
    estimated: f64,
    really: f64,
    /// Sum of the standard errors; dispatches of one kernel are of one class and share its error.
    error: f64,
}

/// An estimated mean and the truth, ns.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Mean {
    estimated: f64,
    really: f64,
    error: f64,
}

impl Sums {
    fn mean(&self) -> Mean {
        let count = self.count.max(1) as f64;
        Mean {
            estimated: self.estimated / count,
            really: self.really / count,
            error: self.error / count,
        }
    }
}

impl Mean {
    /// Its relative error.
    fn off(&self) -> f64 {
        (self.estimated - self.really) / self.really.max(1.0)
    }

    /// Its error in standard errors, not negative.
    fn errors(&self) -> f64 {
        (self.estimated - self.really).abs() / self.error.max(1.0)
    }

    fn status(&self) -> Status {
        if self.errors() <= NEAR || self.off().abs() <= GOOD {
            Status::Ok
        } else if self.errors() > FAR && self.off().abs() > BAD {
            Status::Wrong
        } else {
            Status::Warning
        }
    }
}

pub(super) fn row(evidence: &Evidence<'_>) -> Row {
    // From the begin stamp to the first instruction, and from the last instruction to the end
    // stamp, because kernels read the clock after they begin.
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for (one, [begin, end]) in evidence.stamped_and_clocked() {
        before.push(difference(begin.0, one.recorded.time.begin));
        after.push(difference(one.recorded.time.end, end.0));
    }
    let around = [&mut before, &mut after].map(|values| percentile(values, 50).unwrap_or(0).max(0));
    let around = around.into_iter().sum::<i64>() as f64;
    let mut kernels: BTreeMap<Kernel, Sums> = BTreeMap::new();
    let (mut sampled, mut told) = (0_u64, 0_u64);
    for one in &evidence.matched {
        let recorded = one.recorded.time;
        if recorded.quality != Quality::Sampled {
            continue;
        }
        sampled += 1;
        let Some(estimate) = recorded.estimate else {
            continue;
        };
        told += 1;
        if let (Some([begin, end]), true) = (one.clock, evidence.trusts_clock) {
            let sums = kernels.entry(one.said.kernel).or_default();
            sums.count += 1;
            sums.estimated += difference(recorded.end, recorded.begin) as f64;
            sums.really += difference(end.0, begin.0) as f64 + around;
            sums.error += estimate.error as f64;
        }
    }
    kernels.retain(|_, sums| sums.count >= ENOUGH);
    let row = if !kernels.is_empty() {
        compared(&kernels)
    } else if told > 0 {
        Row::new(
            NAME,
            Status::Warning,
            "too few estimates of kernels that wrote down the clock",
            "they were not checked",
        )
    } else {
        Row::new(
            NAME,
            Status::Ok,
            format!("none are made of {sampled} dispatches with sampled times"),
            "mean durations of kernels without stamps are not given, so none is wrong",
        )
    };
    row.figure("sampled", sampled as f64)
        .figure("told", told as f64)
}

fn compared(kernels: &BTreeMap<Kernel, Sums>) -> Row {
    let mut texts = Vec::new();
    let mut row = Row::new(NAME, Status::Ok, "", "");
    for (kernel, sums) in kernels {
        let mean = sums.mean();
        row.status = row.status.max(mean.status());
        texts.push(format!(
            "{} {} +-{} (really {})",
            short(*kernel),
            time(mean.estimated as i64),
            time(mean.error as i64),
            time(mean.really as i64)
        ));
        let [off, errors] = figures(*kernel);
        row = row
            .figure(off, mean.off() * 100.0)
            .figure(errors, mean.errors());
    }
    row.found = format!("mean durations: {}", texts.join(", "));
    row.meaning = match row.status {
        Status::Ok => {
            "mean durations of kernels without stamps are as accurate as they claim to be"
        }
        Status::Warning => "a mean differs from the truth by more than twice its standard error",
        Status::Wrong => "a mean is wrong, and its standard error hides that",
    }
    .to_owned();
    if row.status == Status::Wrong {
        row = row.next(ISSUE);
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

/// Names of the figures: the relative error, and the error in standard errors.
const fn figures(kernel: Kernel) -> [&'static str; 2] {
    match kernel {
        Kernel::Short => ["short_off_percent", "short_off_errors"],
        Kernel::Medium => ["medium_off_percent", "medium_off_errors"],
        Kernel::Long => ["long_off_percent", "long_off_errors"],
        Kernel::Scratch => ["scratch_off_percent", "scratch_off_errors"],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row_of(estimated: f64, really: f64, error: f64) -> Row {
        let sums = Sums {
            count: 100,
            estimated: estimated * 100.0,
            really: really * 100.0,
            error: error * 100.0,
        };
        compared(&BTreeMap::from([(Kernel::Medium, sums)]))
    }

    #[test]
    fn an_estimate_is_as_true_as_it_claims() {
        for (estimated, really, error, status) in [
            // Within two standard errors, or so close that it does not matter.
            (70_000.0, 60_000.0, 6_000.0, Status::Ok),
            (61_000.0, 60_000.0, 10.0, Status::Ok),
            // Outside two standard errors.
            (70_000.0, 60_000.0, 3_000.0, Status::Warning),
            (90_000.0, 60_000.0, 10_000.0, Status::Warning),
            (65_000.0, 60_000.0, 100.0, Status::Warning),
            // A wrong number with a small stated error.
            (90_000.0, 60_000.0, 1_000.0, Status::Wrong),
            (20_000.0, 60_000.0, 0.0, Status::Wrong),
        ] {
            let row = row_of(estimated, really, error);
            assert_eq!(row.status, status, "{estimated} {really} {error}");
            assert_eq!(row.next.is_some(), status == Status::Wrong);
        }
        let row = row_of(70_000.0, 60_000.0, 5_000.0);
        assert_eq!(
            row.found,
            "mean durations: medium 70.0 us +-5.0 us (really 60.0 us)"
        );
        assert_eq!(row.figures["medium_off_errors"], 2.0);
        assert!((row.figures["medium_off_percent"] - 16.67).abs() < 0.01);
    }
}
