//! Collection periods: recording only at certain times, `--collection-period`.
//!
//! Whatever *begins* in a period is recorded with its end, even if the end comes later. A call
//! begins at its entry, a kernel at its doorbell, a copy at the call that requests it. The eBPF
//! programs skip whatever begins outside a period, including its return; the accounts do not
//! contain it.

use gputrace_capture::meta::Pause;
use gputrace_collect::clocks;
use gputrace_timeline::COLLECTION_PERIOD;
use std::{collections::VecDeque, time::Duration};

use gputrace_text::tables::count;

/// A delay followed by a time of recording, repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    /// Time without recording before each time of recording.
    pub delay: Duration,
    /// Time of recording, not 0.
    pub length: Duration,
    /// Number of repetitions; 0: until the recording is stopped.
    pub repeat: u64,
}

/// Schedule of the times at which recording begins and pauses.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    periods: VecDeque<Period>,
    /// Completed repetitions of the first period.
    rounds: u64,
    on: bool,
}

/// A change of the recording's state: it begins or pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Switch {
    /// Time since the previous switch.
    pub(crate) after: Duration,
    /// Whether recording begins.
    pub(crate) on: bool,
}

impl Schedule {
    /// Runs the periods one after the other; recording is off at first.
    pub(crate) fn new(periods: &[Period]) -> Self {
        Self {
            periods: periods.iter().copied().collect(),
            rounds: 0,
            on: false,
        }
    }
}

impl Iterator for Schedule {
    type Item = Switch;

    fn next(&mut self) -> Option<Switch> {
        let period = *self.periods.front()?;
        self.on = !self.on;
        if self.on {
            return Some(Switch {
                after: period.delay,
                on: true,
            });
        }
        self.rounds += 1;
        if self.rounds == period.repeat {
            self.rounds = 0;
            self.periods.pop_front();
        }
        Some(Switch {
            after: period.length,
            on: false,
        })
    }
}

/// Progress of a recording and its collection periods.
#[derive(Clone, Debug, Default)]
pub(crate) struct Course {
    /// When the recording began, ns `CLOCK_BOOTTIME`.
    pub(crate) began: u64,
    /// Number of periods that have begun.
    begun: u64,
    /// Beginning of the current period, ns `CLOCK_BOOTTIME`.
    since: Option<u64>,
    /// End of the last period, ns `CLOCK_BOOTTIME`.
    ended: Option<u64>,
    /// Total time of the periods that are over, ns.
    recorded: u64,
}

impl Course {
    /// Starts the course of a recording that begins now. `is_on`: its first period begins with it.
    pub(crate) fn begin(is_on: bool) -> Self {
        let began = clocks::now();
        Self {
            began,
            begun: is_on.into(),
            since: is_on.then_some(began),
            ..Self::default()
        }
    }

    /// Whether a period has begun and is not over.
    pub(crate) const fn is_on(&self) -> bool {
        self.since.is_some()
    }

    /// Whether there was, or is, a time without recording.
    pub(crate) const fn has_paused(&self) -> bool {
        self.ended.is_some()
    }

    /// Whether a period has begun.
    pub(crate) const fn has_begun(&self) -> bool {
        self.begun > 0
    }

    /// Notes that recording began or paused at `time`, ns `CLOCK_BOOTTIME`. Returns a remark,
    /// except after the first `TOLD` periods.
    pub(crate) fn switched(&mut self, on: bool, time: u64) -> Option<String> {
        /// Maximum number of periods that are reported individually.
        const TOLD: u64 = 50;
        let text = if on {
            self.begun += 1;
            self.since = Some(time);
            format!("{COLLECTION_PERIOD} {} begins.", self.begun)
        } else {
            self.close(time);
            format!(
                "{COLLECTION_PERIOD} {} ends: what begins from here on is not recorded until the next one.",
                self.begun
            )
        };
        (self.begun <= TOLD).then_some(text)
    }

    /// The time without recording before the current period, if it is not the first one.
    pub(crate) fn pause(&self) -> Option<Pause> {
        let (from, to) = self.ended.zip(self.since)?;
        Some(Pause { from, to })
    }

    /// Remark on all periods at the end of the recording, which ends at `time`.
    pub(crate) fn summary(mut self, time: u64) -> String {
        self.close(time);
        let seconds = |ns: u64| Duration::from_nanos(ns).as_secs_f64();
        format!(
            "Recorded only in {}, {:.6} s of {:.6} s: calls, kernels and copies that began \
             outside were not recorded.",
            count(self.begun, "collection period"),
            seconds(self.recorded),
            seconds(time.saturating_sub(self.began))
        )
    }

    fn close(&mut self, time: u64) {
        if let Some(since) = self.since.take() {
            self.recorded += time.saturating_sub(since);
            self.ended = Some(time);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn period(delay: u64, length: u64, repeat: u64) -> Period {
        Period {
            delay: Duration::from_secs(delay),
            length: Duration::from_secs(length),
            repeat,
        }
    }

    #[test]
    fn periods_follow_each_other() {
        let switches = |periods: &[Period]| -> Vec<(u64, bool)> {
            let schedule = Schedule::new(periods).take(7);
            schedule
                .map(|switch| (switch.after.as_secs(), switch.on))
                .collect()
        };
        assert_eq!(
            switches(&[period(1, 2, 2), period(5, 6, 1)]),
            [
                (1, true),
                (2, false),
                (1, true),
                (2, false),
                (5, true),
                (6, false)
            ]
        );
        let for_ever = [(0, true), (3, false)].repeat(4);
        assert_eq!(switches(&[period(0, 3, 0), period(1, 1, 1)]), for_ever[..7]);
        assert_eq!(switches(&[]), []);
    }

    #[test]
    fn pauses_are_between_periods() {
        let mut course = Course::default();
        let mut after = |on, time| {
            course.switched(on, time);
            course.pause().map(|pause| (pause.from, pause.to))
        };
        assert_eq!(after(true, 10), None);
        assert_eq!(after(false, 20), None);
        assert_eq!(after(true, 30), Some((20, 30)));
        assert_eq!(after(false, 40), None);
        assert_eq!(after(true, 50), Some((40, 50)));
    }

    #[test]
    fn what_was_recorded_is_summed_up() {
        let mut course = Course::default();
        assert!(course.switched(true, 1_000_000_000).is_some());
        assert!(course.switched(false, 3_000_000_000).is_some());
        for _ in 0..100 {
            course.switched(true, 4_000_000_000);
            course.switched(false, 4_000_000_000);
        }
        assert!(course.switched(true, 9_000_000_000).is_none());
        let text = course.summary(10_000_000_000);
        assert!(
            text.contains("102 collection periods, 3.000000 s of 10.000000 s"),
            "{text}"
        );
    }
}
