//! Decides when functions that say little lose their probes, because tracing them costs too much,
//! and when they get them back.
//!
//! The cost of a function is the number of its calls times the price of its probes. As long as all
//! together cost more than the limit, the most expensive one loses its probes. Its calls cannot be
//! counted then, so it gets them back after a pause, to see whether it is still called as often.
//! Each time that it loses them again, the pause is twice as long, so that these trials cost less
//! and less.

use std::time::{Duration, Instant};

/// The first pause.
const FIRST: Duration = Duration::from_secs(5);
/// The longest pause.
const LONGEST: Duration = Duration::from_mins(5);
/// A function that has kept its probes for so long begins with the first pause again.
const CALM: Duration = Duration::from_mins(1);

/// State and history of a function's probes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Course {
    /// Number of its calls at the last look.
    calls: u64,
    state: State,
    /// The next pause.
    pause: Duration,
    /// How often its probes were removed.
    pub(super) removals: u32,
    /// How long it had none, in all pauses that are over.
    absent: Duration,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// It has probes; `None`: since the beginning.
    Probed { since: Option<Instant> },
    /// It has none.
    Absent { since: Instant, until: Instant },
}

/// A function at a look.
#[derive(Debug)]
pub(super) struct Seen<'a> {
    pub(super) id: u32,
    pub(super) course: &'a mut Course,
    /// Price of a call, ns.
    pub(super) price: u64,
    /// Number of its calls in the whole recording.
    pub(super) calls: u64,
}

/// What is to be done with a function's probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Remove them for `pause`. They took `percent` of a processor.
    Remove { percent: u64, pause: Duration },
    /// Put them back.
    Restore,
}

impl Course {
    pub(super) const fn new() -> Self {
        Self {
            calls: 0,
            state: State::Probed { since: None },
            pause: FIRST,
            removals: 0,
            absent: Duration::ZERO,
        }
    }

    /// Whether it has no probes now.
    pub(super) const fn is_absent(&self) -> bool {
        matches!(self.state, State::Absent { .. })
    }

    /// How long it had no probes until `now`.
    pub(super) fn absent_until(&self, now: Instant) -> Duration {
        match self.state {
            State::Absent { since, .. } => self.absent + now.duration_since(since),
            State::Probed { .. } => self.absent,
        }
    }

    /// The probes could not be put back: tries again after the same pause.
    pub(super) fn not_restored(&mut self, now: Instant) {
        self.state = State::Absent {
            since: now,
            until: now + self.pause,
        };
    }

    fn remove(&mut self, now: Instant) -> Duration {
        if let State::Probed { since: Some(since) } = self.state {
            let was_calm = now.duration_since(since) >= CALM;
            self.pause = if was_calm {
                FIRST
            } else {
                (self.pause * 2).min(LONGEST)
            };
        }
        self.removals += 1;
        self.state = State::Absent {
            since: now,
            until: now + self.pause,
        };
        self.pause
    }
}

/// Decides what to do, `passed` after the last look. `limit` is the share of a processor that the
/// probes of all functions together may take, %.
pub(super) fn look(
    functions: Vec<Seen<'_>>,
    limit: u32,
    passed: Duration,
    now: Instant,
) -> Vec<(u32, Step)> {
    let mut steps = Vec::new();
    let mut costs = Vec::new();
    for Seen {
        id,
        course,
        price,
        calls,
    } in functions
    {
        let new = calls.saturating_sub(course.calls);
        course.calls = calls;
        match course.state {
            State::Absent { since, until } if now >= until => {
                course.absent += now.duration_since(since);
                course.state = State::Probed { since: Some(now) };
                steps.push((id, Step::Restore));
            }
            State::Absent { .. } => {}
            State::Probed { .. } => {
                costs.push((u128::from(new) * u128::from(price), id, course));
            }
        }
    }
    let percent = |cost: u128| {
        cost.saturating_mul(100)
            .checked_div(passed.as_nanos())
            .unwrap_or(0)
    };
    costs.sort_unstable_by_key(|(cost, id, _)| (*cost, *id));
    // Products of two numbers of 64 bits: more than one of the largest do not fit.
    let mut all = costs
        .iter()
        .fold(0_u128, |sum, (cost, ..)| sum.saturating_add(*cost));
    while percent(all) > limit.into() {
        let Some((cost, id, course)) = costs.pop() else {
            break;
        };
        all -= cost;
        let step = Step::Remove {
            percent: u64::try_from(percent(cost)).unwrap_or(u64::MAX),
            pause: course.remove(now),
        };
        steps.push((id, step));
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Functions whose calls cost 1 us each.
    struct Course2([Course; 2]);

    impl Course2 {
        /// One look, a second after the last one, with the number of calls in this second.
        fn look(&mut self, calls: [u64; 2], now: Instant) -> Vec<(u32, Step)> {
            let seen = (1..)
                .zip(&mut self.0)
                .zip(calls)
                .map(|((id, course), calls)| Seen {
                    id,
                    price: 1000,
                    calls: course.calls + calls,
                    course,
                });
            look(seen.collect(), 5, SECOND, now)
        }
    }

    fn removed(id: u32, percent: u64, seconds: u64) -> (u32, Step) {
        let pause = Duration::from_secs(seconds);
        (id, Step::Remove { percent, pause })
    }

    #[test]
    fn the_most_expensive_function_goes_first() {
        let mut both = Course2([Course::new(); 2]);
        let now = Instant::now();
        // 5 % of a processor are allowed: 50,000 us in a second.
        assert_eq!(both.look([25_000, 25_000], now), []);
        assert_eq!(
            both.look([40_000, 30_000], now + SECOND),
            [removed(1, 4, 5)]
        );
        assert!(both.0[0].is_absent() && !both.0[1].is_absent());
        // Alone, the other one may stay.
        assert_eq!(both.look([0, 49_000], now + 2 * SECOND), []);
        let all = both.look([0, 900_000], now + 3 * SECOND);
        assert_eq!(all, [removed(2, 90, 5)]);
        let both = &mut Course2([Course::new(); 2]);
        let all = both.look([300_000, 900_000], now);
        assert_eq!(all, [removed(2, 90, 5), removed(1, 30, 5)]);
    }

    #[test]
    fn it_comes_back_less_and_less_often() {
        let mut both = Course2([Course::new(); 2]);
        let begin = Instant::now();
        let mut removals = Vec::new();
        for second in 0..3600 {
            let now = begin + second * SECOND;
            let hot = if both.0[0].is_absent() { 0 } else { 1_000_000 };
            for step in both.look([hot, 0], now) {
                match step {
                    (1, Step::Remove { pause, .. }) => removals.push(pause.as_secs()),
                    (1, Step::Restore) => {}
                    other => panic!("{other:?}"),
                }
            }
        }
        assert_eq!(removals[..8], [5, 10, 20, 40, 80, 160, 300, 300]);
        // Of an hour, it was probed for a second or two each time.
        let probed = 3600 - both.0[0].absent_until(begin + 3600 * SECOND).as_secs();
        assert!(
            probed <= 2 * removals.len() as u64,
            "{probed} of {removals:?}"
        );
        assert_eq!(both.0[0].removals as usize, removals.len());
    }

    #[test]
    fn a_calm_function_keeps_its_probes_and_begins_anew() {
        let mut both = Course2([Course::new(); 2]);
        let mut now = Instant::now();
        let mut look = |calls, after: u32| {
            now += after * SECOND;
            both.look([calls, 0], now)
        };
        assert_eq!(look(1_000_000, 0), [removed(1, 100, 5)]);
        assert_eq!(look(0, 4), []);
        assert_eq!(look(0, 1), [(1, Step::Restore)]);
        assert_eq!(look(1_000_000, 1), [removed(1, 100, 10)]);
        assert_eq!(look(0, 10), [(1, Step::Restore)]);
        assert_eq!(look(10, 30), []);
        assert_eq!(look(10, 30), []);
        assert_eq!(look(1_000_000, 1), [removed(1, 100, 5)]);
    }

    #[test]
    fn what_could_not_be_put_back_is_tried_again() {
        let mut both = Course2([Course::new(); 2]);
        let now = Instant::now();
        both.look([1_000_000, 0], now);
        let back = now + 5 * SECOND;
        assert_eq!(both.look([0, 0], back), [(1, Step::Restore)]);
        both.0[0].not_restored(back);
        assert!(both.0[0].is_absent());
        assert_eq!(both.look([0, 0], back + 4 * SECOND), []);
        assert_eq!(both.look([0, 0], back + 5 * SECOND), [(1, Step::Restore)]);
        assert_eq!(both.0[0].absent_until(back + 6 * SECOND), 10 * SECOND);
    }

    #[test]
    fn no_time_is_no_cost() {
        let mut course = Course::new();
        let seen = Seen {
            id: 1,
            course: &mut course,
            price: u64::MAX,
            calls: u64::MAX,
        };
        assert_eq!(look(vec![seen], 5, Duration::ZERO, Instant::now()), []);
    }
}
