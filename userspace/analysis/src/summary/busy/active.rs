//! How long a GPU was at work according to its status register, which was read at random moments.

use std::collections::VecDeque;

use gputrace_timeline::gpu::{Activity, ActivityState};
use serde::Serialize;

use super::Union;

/// Maximum number of spans in which readings went on, of those that late kernels are compared with.
const SPANS: usize = 1 << 12;

/// Minimum number of readings for a figure.
const READINGS: u64 = 30;

/// A reading that follows the last one by more than this, in mean pauses, tells nothing of the time
/// between them.
const APART: u64 = 3;

/// A reading that comes later than planned by more than this, ns, is not at a random moment: the
/// reader waited for a processor.
const LATE: u32 = 200_000;

/// If late readings stand for a larger share of the time than this, there is no figure.
const LATE_SHARE: f64 = 0.1;

/// A time with its standard error, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Estimate {
    /// The most likely value.
    pub value: u64,
    /// Its standard error.
    pub error: u64,
}

/// A time in which readings went on, ns.
#[derive(Clone, Copy, Debug)]
struct Span {
    begin: u64,
    end: u64,
    /// Whether the GPU was idle at the end.
    is_idle: bool,
}

/// Readings of a GPU's status register.
///
/// Readings go on from shortly after the first work until the GPU is idle. Kernels that ran at other
/// times are known only by their bounds.
#[derive(Debug, Default)]
pub struct Active {
    /// When the present readings began.
    since: Option<u64>,
    /// Time of the last one.
    last: u64,
    /// When earlier ones began and ended, in order of time.
    spans: VecDeque<Span>,
    /// Total length of all spans, ns.
    covered: u64,
    /// Number of readings, and of those that found the GPU at work.
    readings: u64,
    found: u64,
    /// Sums over the readings: of what they stand for (ns), and of its square; the same of those
    /// that found the GPU at work.
    weight: f64,
    squares: f64,
    active_weight: f64,
    active_squares: f64,
    /// Sum of what late readings stand for, ns.
    late_weight: f64,
    /// Time outside of the spans in which kernels can have run.
    outside: Union,
    /// Earliest begin of a kernel that may have run outside of the spans, and of which nothing
    /// proves that it ended.
    endless: Option<u64>,
}

impl Active {
    /// Adds a reading.
    pub fn add(&mut self, reading: &Activity) {
        let time = reading.time;
        match reading.state {
            ActivityState::Begin => {
                self.since.get_or_insert(time);
                self.last = time;
            }
            ActivityState::End => self.close(time, true),
            ActivityState::Refused => self.close(self.last, false),
            ActivityState::Idle | ActivityState::Active => {
                let gap = time.saturating_sub(self.last);
                if gap > reading.stands_for.saturating_mul(APART) || self.since.is_none() {
                    self.close(self.last, false);
                    self.since = Some(time);
                    self.last = time;
                    return;
                }
                self.last = time;
                if reading.late > LATE {
                    self.late_weight += reading.stands_for as f64;
                    return;
                }
                let is_active = reading.state == ActivityState::Active;
                let weight = reading.stands_for as f64;
                self.readings += 1;
                self.weight += weight;
                self.squares += weight * weight;
                if is_active {
                    self.found += 1;
                    self.active_weight += weight;
                    self.active_squares += weight * weight;
                }
            }
        }
    }

    fn close(&mut self, end: u64, is_idle: bool) {
        let Some(begin) = self.since.take() else {
            return;
        };
        self.covered = self.covered.saturating_add(end.saturating_sub(begin));
        if self.spans.len() >= SPANS {
            self.spans.pop_front();
        }
        self.spans.push_back(Span {
            begin,
            end,
            is_idle,
        });
    }

    /// Adds the time in which a kernel can have run: from `begin` to `end`, or without end. It had
    /// begun by `begun`, if that is known.
    pub(super) fn kernel(&mut self, begin: u64, end: Option<u64>, begun: Option<u64>) {
        // What had begun when the GPU was found idle had ended.
        let idle = begun.and_then(|begun| {
            let next = self.spans.partition_point(|span| span.end < begun);
            let mut later = self.spans.range(next..);
            later.find(|span| span.is_idle).map(|span| span.end)
        });
        let end = end.into_iter().chain(idle).min();
        let until = end.unwrap_or(u64::MAX);
        let mut from = begin;
        let first = self.spans.partition_point(|span| span.end <= begin);
        let earlier = self.spans.range(first..).map(|span| (span.begin, span.end));
        let present = self.since.map(|since| (since, u64::MAX));
        for (covered_from, covered_to) in earlier.chain(present) {
            if covered_from >= until {
                break;
            }
            if from < covered_from {
                self.outside.add(from, covered_from, |_, _| {});
            }
            from = from.max(covered_to);
        }
        if from < until {
            match end {
                Some(end) => self.outside.add(from, end, |_, _| {}),
                None => self.endless = Some(self.endless.map_or(from, |one| one.min(from))),
            }
        }
    }

    /// Settles everything. `stopped` is when the recording stopped, ns.
    pub fn finish(&mut self, stopped: u64) {
        self.close(self.last.min(stopped), false);
        if let Some(from) = self.endless.take().filter(|from| *from < stopped) {
            self.outside.add(from, stopped, |_, _| {});
        }
        self.outside.finish(|_, _| {});
    }

    /// How long the GPU was at work while its register was read, for whatever process. `None` if
    /// there are too few readings, or many were late, or all are the same: a register that never
    /// changes tells nothing.
    #[must_use]
    pub fn estimate(&self) -> Option<Estimate> {
        if self.readings < READINGS || self.found == 0 || self.found == self.readings {
            return None;
        }
        if self.late_share() > LATE_SHARE {
            return None;
        }
        let share = self.active_weight / self.weight;
        // The variance of a weighted mean of zeros and ones. Few ones or few zeros show less of it
        // than there may be, so one reading more of each is assumed.
        let differing = self.active_squares * (1.0 - 2.0 * share) + share * share * self.squares;
        let one = self.squares / self.readings as f64;
        let error = (differing + one).sqrt() / self.weight;
        let covered = self.covered as f64;
        Some(Estimate {
            value: (covered * share) as u64,
            error: (covered * error) as u64,
        })
    }

    /// When readings went on, ns: the last [`SPANS`] times that are over.
    pub fn spans(&self) -> impl Iterator<Item = (u64, u64)> {
        self.spans.iter().map(|span| (span.begin, span.end))
    }

    /// How long kernels can have run while no readings went on, ns.
    pub(super) fn unread(&self) -> u64 {
        self.outside.total
    }

    /// What late readings stand for, as a share of all.
    fn late_share(&self) -> f64 {
        self.late_weight / (self.weight + self.late_weight).max(1.0)
    }

    /// How long kernels can have run while the register was not read, or not in time, ns.
    pub(super) fn outside(&self) -> u64 {
        let late = self.covered as f64 * self.late_share();
        self.outside.total.saturating_add(late as u64)
    }
}

#[cfg(test)]
mod tests;
