//! How long a GPU was at work according to its status register, which was read at random moments.

use std::collections::VecDeque;

use gputrace_timeline::gpu::{Activity, ActivityState};
use serde::Serialize;

use super::Union;

/// Maximum number of spans in which readings went on, of those that late kernels are compared with.
const SPANS: usize = 1 << 12;

/// Minimum number of readings for a figure. A spell counts as several.
const READINGS: u64 = 30;
const SPELL: u64 = 6;

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

/// Shares of time in which the GPU was at work, each with the time that it stands for: 0 or 1 for a
/// single reading.
#[derive(Debug, Default)]
struct Samples {
    readings: u64,
    spells: u64,
    /// Whether any found the GPU at work, and any found it idle.
    is_active: bool,
    is_idle: bool,
    /// Sum of the times, ns, and of these times the shares.
    weight: f64,
    active: f64,
    /// Sums of the squared times, of these times the shares, and times the squared shares.
    squares: f64,
    squares_active: f64,
    squares_both: f64,
    /// Sum of the squared times of single readings.
    squares_single: f64,
    /// Sum of the times in which spells were interrupted.
    unseen: f64,
}

impl Samples {
    /// Adds a single reading.
    fn single(&mut self, time: f64, is_active: bool) {
        self.readings += 1;
        self.squares_single += time * time;
        self.add(time, f64::from(u8::from(is_active)));
    }

    /// Adds a spell, with the shares of its time in which the GPU was at work and in which the
    /// reader was interrupted, millionths.
    fn spell(&mut self, time: f64, active: u32, unseen: u32) {
        self.spells += 1;
        self.unseen += time * share(unseen);
        self.add(time, share(active));
    }

    fn add(&mut self, time: f64, active: f64) {
        self.is_active |= active > 0.0;
        self.is_idle |= active < 1.0;
        let square = time * time;
        self.weight += time;
        self.active += time * active;
        self.squares += square;
        self.squares_active += square * active;
        self.squares_both += square * active * active;
    }

    /// The share of the time in which the GPU was at work, and its standard error. `None` if there
    /// are too few readings, or all are the same.
    fn estimate(&self) -> Option<(f64, f64)> {
        let is_enough = self.readings + self.spells * SPELL >= READINGS;
        if !(is_enough && self.is_active && self.is_idle) {
            return None;
        }
        let share = self.active / self.weight;
        let differing =
            self.squares_both - 2.0 * share * self.squares_active + share * share * self.squares;
        // Few ones or few zeros show less variance than there may be, so one single reading more of
        // each is assumed. Few spells show less, too: the variance of Student's t.
        let one = self.squares_single / (self.readings.max(1)) as f64;
        let few = match (self.readings + self.spells) as f64 {
            count if self.spells > 0 => count / (count - 3.0).max(1.0),
            _ => 1.0,
        };
        let variance = differing.max(0.0) * few + one;
        // While the reader was interrupted, the GPU may have been idle or at work all the time.
        let unseen = self.unseen / self.weight / 2.0;
        Some((share, variance.sqrt() / self.weight + unseen))
    }
}

fn share(millionths: u32) -> f64 {
    (f64::from(millionths) / 1e6).min(1.0)
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
    samples: Samples,
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
            ActivityState::Idle | ActivityState::Active | ActivityState::Spell { .. } => {
                let gap = time.saturating_sub(self.last);
                if gap > reading.stands_for.saturating_mul(APART) || self.since.is_none() {
                    self.close(self.last, false);
                    self.since = Some(time);
                    self.last = time;
                    return;
                }
                self.last = time;
                let stands_for = reading.stands_for as f64;
                match reading.state {
                    ActivityState::Spell { active, unseen } => {
                        self.samples.spell(stands_for, active, unseen);
                    }
                    _ if reading.late > LATE => self.late_weight += stands_for,
                    state => {
                        let is_active = state == ActivityState::Active;
                        self.samples.single(stands_for, is_active);
                    }
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
        if self.late_share() > LATE_SHARE {
            return None;
        }
        let (share, error) = self.samples.estimate()?;
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
        self.late_weight / (self.samples.weight + self.late_weight).max(1.0)
    }

    /// How long kernels can have run while the register was not read, or not in time, ns.
    pub(super) fn outside(&self) -> u64 {
        let late = self.covered as f64 * self.late_share();
        self.outside.total.saturating_add(late as u64)
    }
}

#[cfg(test)]
mod tests;
