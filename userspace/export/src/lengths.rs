//! Durations of work and their sums, with standard errors and the number of unknown durations.
//!
//! An exact duration has no error. A duration that is its class's mean has that mean's standard
//! error, which all dispatches of the class share: errors within one class add up, those of
//! different classes are independent. A duration between two looks counts as known if the looks
//! bound it closely. A window in which a kernel may have run for no time at all says nothing,
//! however long it is. All other work has no known duration: it is counted, and sums say that they
//! cover only the rest. A duration is known exactly if the work is drawn ([`GpuTime::is_drawn`]).

use std::collections::BTreeMap;

use gputrace_text::tables::plural;
use gputrace_timeline::{
    event::Event,
    gpu::{GpuTime, Quality, Told},
};

/// Maximum number of classes whose errors are kept apart in one sum. Further classes are added up
/// as if they were one, which makes the error too large, never too small.
const CLASSES: usize = 1 << 12;

/// Standard error of a uniform distribution, as a fraction of its width: 1 / sqrt(12).
const UNIFORM: f64 = 0.288_675_134_594_812_9;

/// The duration of one dispatch or copy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Length {
    /// Duration in ns.
    pub ns: u64,
    /// Where it comes from.
    pub basis: Basis,
}

/// Where a duration comes from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Basis {
    /// The GPU wrote its begin and end.
    Exact,
    /// The mean of this class; the second field is the mean's standard error, ns.
    Class(u32, u64),
    /// Known from looks; the field is its standard error, ns.
    Looks(f64),
}

/// A duration as formats write it: to 0.1 ns.
pub(crate) fn tenths(ns: f64) -> f64 {
    (ns * 10.0).round() / 10.0
}

/// A standard error as formats write it: to 0.1 ns, and 0 only where all is exact.
pub(crate) fn error_tenths(ns: f64) -> f64 {
    let least = if ns > 0.0 { 0.1 } else { 0.0 };
    tenths(ns).max(least)
}

impl Length {
    /// Its standard error, ns; for the mean of a class, that of the mean. Finite, not negative.
    #[must_use]
    pub fn error(&self) -> f64 {
        match self.basis {
            Basis::Exact => 0.0,
            Basis::Class(_, error) => error as f64,
            Basis::Looks(error) => error,
        }
    }

    /// The standard error of an estimate as formats write it: whole ns, at least 1. `None` if the
    /// duration is exact.
    #[must_use]
    pub fn estimate_error(&self) -> Option<u64> {
        match self.basis {
            Basis::Exact => None,
            Basis::Class(..) | Basis::Looks(_) => Some((self.error().ceil() as u64).max(1)),
        }
    }

    /// The class whose mean it is; `None` if it is exact or lies between looks.
    #[must_use]
    pub fn class(&self) -> Option<u32> {
        match self.basis {
            Basis::Class(class, _) => Some(class),
            Basis::Exact | Basis::Looks(_) => None,
        }
    }

    /// A duration of exactly `ns` ns.
    #[must_use]
    pub const fn exact(ns: u64) -> Self {
        Self {
            ns,
            basis: Basis::Exact,
        }
    }

    /// The duration of something; `None` if it is unknown: exactly what is not drawn
    /// ([`GpuTime::is_drawn`]).
    #[must_use]
    pub fn of(time: &GpuTime) -> Option<Self> {
        let ns = time.drawn_end()?.saturating_sub(time.begin);
        let basis = if time.quality == Quality::Exact {
            Basis::Exact
        } else if let Some(estimate) = time.estimate {
            Basis::Class(estimate.class, estimate.error)
        } else {
            let (least, most) = time.proven_length()?;
            Basis::Looks(most.saturating_sub(least) as f64 * UNIFORM)
        };
        Some(Self { ns, basis })
    }
}

/// A sum of durations with its standard error.
#[derive(Clone, Debug, Default)]
pub struct Sum {
    total: u128,
    known: u64,
    by_classes: u64,
    by_looks: u64,
    unknown: u64,
    /// Sums of standard errors of each class's dispatches, ns. In order, so that sums over them are
    /// the same each time, to the last bit.
    classes: BTreeMap<u32, f64>,
    /// The same for classes beyond [`CLASSES`].
    more_classes: f64,
    /// The same for durations between looks. Neighbours share the look between them, so their
    /// errors are not independent: they add up.
    looks: f64,
}

impl Sum {
    /// Adds one piece of work that took `length`; `None` if its duration is unknown.
    pub fn add(&mut self, length: Option<Length>) {
        let Some(Length { ns, basis }) = length else {
            self.unknown += 1;
            return;
        };
        self.known += 1;
        self.total += u128::from(ns);
        match basis {
            Basis::Exact => {}
            Basis::Class(class, error) => {
                self.by_classes += 1;
                *self.class(class) += error as f64;
            }
            Basis::Looks(error) => {
                self.by_looks += 1;
                self.looks += error;
            }
        }
    }

    /// Adds another sum.
    pub fn merge(&mut self, other: &Self) {
        self.total += other.total;
        self.known += other.known;
        self.by_classes += other.by_classes;
        self.by_looks += other.by_looks;
        self.unknown += other.unknown;
        self.more_classes += other.more_classes;
        self.looks += other.looks;
        for (class, error) in &other.classes {
            *self.class(*class) += error;
        }
    }

    fn class(&mut self, class: u32) -> &mut f64 {
        if self.classes.len() >= CLASSES && !self.classes.contains_key(&class) {
            &mut self.more_classes
        } else {
            self.classes.entry(class).or_default()
        }
    }

    /// Sum of the known durations, ns.
    #[must_use]
    pub fn total(&self) -> u128 {
        self.total
    }

    /// Its standard error, ns, finite; 0 if every known duration is exact.
    #[must_use]
    pub fn error(&self) -> f64 {
        let of_classes: f64 = self.classes.values().map(|error| error * error).sum();
        (of_classes + self.more_classes.powi(2) + self.looks.powi(2)).sqrt()
    }

    /// Number of pieces of work.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.known + self.unknown
    }

    /// How many have a known duration, exact or estimated.
    #[must_use]
    pub fn known(&self) -> u64 {
        self.known
    }

    /// How many of the known durations are estimated.
    #[must_use]
    pub fn estimated(&self) -> u64 {
        self.by_classes + self.by_looks
    }

    /// How many have the mean of their class.
    #[must_use]
    pub fn estimated_by_classes(&self) -> u64 {
        self.by_classes
    }

    /// How many have no known duration.
    #[must_use]
    pub fn unknown(&self) -> u64 {
        self.unknown
    }

    /// Mean of the known durations and its standard error, ns; both 0 if there are none.
    #[must_use]
    pub fn mean(&self) -> (f64, f64) {
        let known = self.known.max(1) as f64;
        (self.total as f64 / known, self.error() / known)
    }
}

/// Counts of kernel classes by what is known of their means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Classes {
    apart: u64,
    mixed: u64,
    unseen: u64,
    two_lengths: u64,
}

impl Classes {
    /// Takes an event.
    pub fn event(&mut self, event: &Event) {
        if let Event::KernelClass(class) = event {
            self.two_lengths += u64::from(class.lengths.is_some());
            match class.told {
                Told::Apart => self.apart += 1,
                Told::Mixed => self.mixed += 1,
                Told::Unseen => self.unseen += 1,
            }
        }
    }

    /// A remark about them, a sentence without its period; `all` is the sum over all dispatches.
    /// `None` if all times are exact.
    #[must_use]
    pub fn remark(&self, all: &Sum) -> Option<String> {
        let classes = self.apart + self.mixed + self.unseen;
        if classes == 0 {
            return None;
        }
        let mut text = format!(
            "durations of {} of {} are estimates",
            self.apart,
            plural(classes, "kernel class", "kernel classes")
        );
        if self.apart > 0 && all.total > 0 {
            let percent = all.error() * 100.0 / all.total as f64;
            text.push_str(&match percent {
                ..0.1 => " (+-less than 0.1 % of the GPU's time)".to_owned(),
                ..9.95 => format!(" (+-{percent:.1} % of the GPU's time)"),
                _ => format!(" (+-{percent:.0} % of the GPU's time)"),
            });
        }
        match self.two_lengths {
            0 => {}
            1 => text.push_str("; one has two lengths, so no dispatch is near its mean"),
            more => text.push_str(&format!(
                "; {more} have two lengths each, so no dispatch is near their means"
            )),
        }
        if self.mixed > 0 {
            text.push_str(&format!("; {} cannot be told apart", self.mixed));
        }
        if self.unseen > 0 {
            text.push_str(&format!("; {} without a known duration", self.unseen));
        }
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use gputrace_timeline::gpu::{Estimate, KernelClass};
    use proptest::prelude::*;

    use super::*;
    use crate::synthetic::{between, estimated, exact, submitted};

    fn sum(times: &[GpuTime]) -> Sum {
        let mut sum = Sum::default();
        times.iter().for_each(|time| sum.add(Length::of(time)));
        sum
    }

    #[test]
    fn errors_add_up_within_a_class_and_are_independent_between_classes() {
        let one = sum(&[estimated(1000, 1100, 1, 3), estimated(2000, 2100, 1, 3)]);
        assert_eq!(
            (one.total(), one.error(), one.mean()),
            (200, 6.0, (100.0, 3.0))
        );
        let two = sum(&[
            estimated(1000, 1100, 1, 3),
            estimated(2000, 2100, 2, 4),
            exact(3000, 3500),
        ]);
        assert_eq!((two.total(), two.error(), two.estimated()), (700, 5.0, 2));
    }

    #[test]
    fn errors_are_the_same_each_time() {
        let error = || {
            let classes =
                (0..500).map(|class| estimated(1000, 9000, class, u64::from(1 + class % 89 * 7)));
            sum(&classes.collect::<Vec<_>>()).error().to_bits()
        };
        let first = error();
        assert!((0..8).all(|_| error() == first));
    }

    #[test]
    fn what_is_not_told_is_counted_and_not_summed() {
        let mut wide = between(Quality::Sampled, 1000, 5000);
        wide.begin = 4000;
        let mut hung = exact(1000, 2000);
        hung.unfinished = true;
        let sum = sum(&[
            wide,
            between(Quality::Bounded, 1000, 2000),
            submitted(1000, false),
            hung,
            exact(1000, 1010),
        ]);
        assert_eq!((sum.total(), sum.known(), sum.unknown()), (10, 1, 4));
    }

    #[test]
    fn looks_that_are_near_tell_a_duration() {
        let mut time = between(Quality::Sampled, 10_000, 20_000);
        time.begin_window.latest = Some(10_400);
        time.end_window.earliest = 19_600;
        let length = Length::of(&time).unwrap();
        assert_eq!(length.ns, 10_000);
        assert!(
            matches!(length.basis, Basis::Looks(error) if (error - 230.94).abs() < 0.1),
            "{length:?}"
        );
        assert_eq!((length.class(), length.estimate_error()), (None, Some(231)));
    }

    #[test]
    fn no_estimate_has_an_error_of_0() {
        let error_of = |time: &GpuTime| Length::of(time).and_then(|length| length.estimate_error());
        assert_eq!(error_of(&exact(1000, 1100)), None);
        assert_eq!(error_of(&estimated(1000, 1100, 3, 300)), Some(300));
        assert_eq!(error_of(&estimated(1000, 1100, 3, 0)), Some(1));
        assert_eq!([0.0, 0.01, 0.26].map(error_tenths), [0.0, 0.1, 0.3]);
    }

    /// As between two launches of a program that leaves the GPU idle: begin and end may be anywhere
    /// in the window.
    #[test]
    fn a_window_is_no_duration() {
        let mut time = between(Quality::Sampled, 10_000, 4_010_000);
        assert_eq!(Length::of(&time), None);
        time.begin_window.latest = Some(1_000_000);
        time.end_window.earliest = 2_000_000;
        assert_eq!(Length::of(&time), None, "1 to 4 ms");
        time.end_window.earliest = 3_000_000;
        assert_eq!(Length::of(&time), None, "2 to 4 ms");
        time.begin_window.latest = Some(110_000);
        time.end_window.earliest = 3_910_000;
        assert!(Length::of(&time).is_some(), "3.8 to 4 ms");
    }

    #[test]
    fn the_remark_says_how_many_and_how_well() {
        let mut classes = Classes::default();
        assert_eq!(classes.remark(&Sum::default()), None);
        for (told, count) in [(Told::Apart, 12), (Told::Mixed, 2), (Told::Unseen, 1)] {
            for _ in 0..count {
                let class = KernelClass {
                    told,
                    ..KernelClass::default()
                };
                classes.event(&Event::KernelClass(Box::new(class)));
            }
        }
        let class = KernelClass {
            told: Told::Apart,
            lengths: Some(crate::synthetic::LENGTHS),
            ..KernelClass::default()
        };
        let mut others = classes;
        others.event(&Event::KernelClass(Box::new(class)));
        assert_eq!(
            others.remark(&Sum::default()).unwrap(),
            "durations of 13 of 16 kernel classes are estimates; one has two lengths, so no dispatch is \
             near its mean; 2 cannot be told apart; 1 without a known duration"
        );
        let all = sum(&[estimated(0, 1000, 1, 20)]);
        assert_eq!(
            classes.remark(&all).unwrap(),
            "durations of 12 of 15 kernel classes are estimates (+-2.0 % of the GPU's time); 2 \
             cannot be told apart; 1 without a known duration"
        );
    }

    proptest! {
        #[test]
        fn a_sum_is_that_of_its_parts(
            works in proptest::collection::vec((0_u64..1_000_000, 0_u32..6, 0_u64..10_000, 0..4), 0..60),
            cut in 0_usize..60,
        ) {
            let times: Vec<GpuTime> = works.iter().map(|(ns, class, error, kind)| match kind {
                0 => exact(1_000_000, 1_000_000 + ns),
                1 => submitted(1_000_000, false),
                _ => GpuTime {
                    estimate: Some(Estimate { class: *class, error: *error }),
                    ..between(Quality::Sampled, 1_000_000, 1_000_000 + ns)
                },
            }).collect();
            let all = sum(&times);
            let (left, right) = times.split_at(cut.min(times.len()));
            let mut parts = sum(left);
            parts.merge(&sum(right));
            prop_assert_eq!(parts.total(), all.total());
            prop_assert_eq!((parts.known(), parts.unknown(), parts.estimated()), (all.known(), all.unknown(), all.estimated()));
            prop_assert!((parts.error() - all.error()).abs() <= all.error() * 1e-9);
            prop_assert_eq!(all.count(), times.len() as u64);
            prop_assert!(all.error() >= 0.0 && all.error().is_finite());
        }
    }
}
