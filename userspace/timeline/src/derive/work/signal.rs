//! Completion signals: which use of a signal a reading of it tells about.
//!
//! Runtimes reuse signals, and the stamps of one use stay until the next use overwrites them. A
//! reading at time *t* can only tell about uses submitted before *t*. Its stamps belong to a use
//! if, on the host's clock, they do not lie before the submission of that use, and if they differ
//! from the stamps that the signal held before. If several uses are open and the signal counts
//! down, the stamps belong to the use that ended last.

use gputrace_abi::gpu::{Completion, POLL_SPREAD, completion_reason};
use gputrace_kfd::clock::{ClockModel, Unresolved, Window};

use crate::derive::work::evidence::{Exact, Stamp};

/// A user of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum User {
    /// A packet of a queue.
    Packet { queue: u32, index: u64 },
    /// A copy.
    Copy(u64),
}

/// A use of a signal about which more may still become known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Use {
    pub(crate) user: User,
    /// When it was submitted, by which time the signal was prepared for it.
    pub(crate) time: u64,
    /// When the signal was prepared for this use, and possibly for others before it; 0 if that was
    /// not seen.
    pub(crate) prepared: u64,
    /// Stamps that the signal held before, which are not those of this use.
    before: Readings,
    /// Whether the signal was complete at the last reading and was not seen being prepared since,
    /// so that its value proves nothing.
    doubtful: bool,
    /// Whether the use is known to have ended.
    pub(crate) ended: bool,
    /// Whether the current reading proves that the use has ended.
    pub(crate) proven: bool,
}

/// Both pairs of stamps in a signal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Readings {
    kernel: (u64, u64),
    sdma: (u64, u64),
}

impl Readings {
    fn of(reading: &Completion) -> Self {
        Self {
            kernel: (reading.start, reading.end),
            sdma: (reading.sdma_start, reading.sdma_end),
        }
    }
}

/// A signal of a process.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    pub(crate) uses: Vec<Use>,
    last: Option<Completion>,
    prepared: u64,
    /// Whether its value was seen below 0: the program counts on from there, so the value proves
    /// nothing.
    negative: bool,
}

impl Signal {
    /// Adds a use.
    pub(crate) fn add(&mut self, user: User, time: u64) {
        let last = self.last.as_ref();
        self.uses.push(Use {
            user,
            time,
            prepared: self.prepared,
            before: last.map(Readings::of).unwrap_or_default(),
            doubtful: last.is_some_and(|last| {
                let looked = matches!(
                    last.reason,
                    completion_reason::POLL | completion_reason::EXIT
                );
                looked && last.value <= 0
            }),
            ended: false,
            proven: false,
        });
    }

    /// Handles a reading. Appends the uses that it can tell about to `earlier`.
    pub(crate) fn read(&mut self, reading: &Completion, earlier: &mut Vec<Use>) {
        self.negative |= reading.value < 0;
        self.last = Some(*reading);
        if reading.reason == completion_reason::REARM {
            self.prepared = reading.time;
        }
        let before = self.uses.extract_if(.., |used| used.time < reading.time);
        earlier.extend(before.map(|mut used| {
            used.doubtful &= reading.value <= 0;
            used
        }));
    }

    /// Whether `reading` proves that `used` has ended, whatever its stamps. The recorder may have
    /// read a signal shortly before the time that it states, when the signal was not prepared yet.
    pub(crate) fn has_ended(&self, used: &Use, reading: &Completion) -> bool {
        let margin = if reading.reason == completion_reason::POLL {
            POLL_SPREAD
        } else {
            0
        };
        let after = used.time.saturating_add(margin) < reading.time;
        reading.value <= 0 && !self.negative && !used.doubtful && after
    }

    /// The only use, if the recorder's last look came after `since` and found it still running,
    /// with the time of its submission and of that look. `None` if there are several uses.
    pub(crate) fn unfinished(&self, since: u64) -> Option<(User, u64, u64)> {
        let last = self.last.as_ref()?;
        let looked = last.reason == completion_reason::POLL && last.time >= since && last.value > 0;
        match self.uses.as_slice() {
            [used] if looked && used.time < last.time => Some((used.user, used.time, last.time)),
            _ => None,
        }
    }
}

/// How a reading's stamps relate to a use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// They can be the use's own, converted to these times.
    Own(Exact),
    /// They belong to an earlier use, or there are none.
    Stale,
    /// They cannot be converted to the host's clock.
    Unaligned(Unresolved),
}

/// Compares a reading's stamps with a use that did not begin before `earliest`.
///
/// Follows ROCr's rule (`SharedSignal::GetRawTs`): a copy's stamps are those of the SDMA engine if
/// it wrote any; otherwise the copy was done by a kernel.
pub(crate) fn fit(used: &Use, reading: &Completion, clock: &ClockModel, earliest: u64) -> Fit {
    let now = Readings::of(reading);
    let mut found = Fit::Stale;
    if matches!(used.user, User::Copy(_)) && reading.sdma_end != 0 {
        found = align(now.sdma, used.before.sdma, clock, earliest, reading.time);
    }
    if found == Fit::Stale {
        found = align(
            now.kernel,
            used.before.kernel,
            clock,
            earliest,
            reading.time,
        );
    }
    found
}

fn align(
    stamps: (u64, u64),
    before: (u64, u64),
    clock: &ClockModel,
    earliest: u64,
    latest: u64,
) -> Fit {
    let (begin, end) = stamps;
    if begin == 0 || end == 0 || stamps == before {
        return Fit::Stale;
    }
    let not_after = latest.saturating_add(POLL_SPREAD);
    let convert = |tick, not_before| {
        clock.to_boottime(
            tick,
            Window {
                not_before,
                not_after,
            },
        )
    };
    let converted = convert(begin, earliest).and_then(|begin| {
        let not_before = begin.boottime_ns.saturating_sub(begin.uncertainty_ns);
        Ok((begin, convert(end, not_before)?))
    });
    match converted {
        // A tick count that fits two moments, or is beside a leap, fits none for certain, and a
        // difference between two runs of a counter is meaningless.
        Ok((from, to)) if from.ambiguous || to.ambiguous || from.segment != to.segment => {
            Fit::Stale
        }
        Ok((from, to)) if to.boottime_ns < from.boottime_ns => Fit::Stale,
        Ok((from, to)) => Fit::Own(Exact {
            begin: Stamp {
                time: from.boottime_ns,
                uncertainty: from.uncertainty_ns,
            },
            end: Stamp {
                time: to.boottime_ns,
                uncertainty: to.uncertainty_ns,
            },
        }),
        Err(Unresolved::OutsideWindow) => Fit::Stale,
        Err(error) => Fit::Unaligned(error),
    }
}

#[cfg(test)]
mod tests {
    use gputrace_kfd::clock::ClockSample;
    use zerocopy::FromZeros as _;

    use super::*;

    /// A clock with ticks of 10 ns that started at 1 ms.
    fn clock() -> ClockModel {
        let sample = |index: u64| ClockSample {
            gpu_id: 1,
            gpu_tick: index * 10_000_000,
            boottime_ns: 1_000_000 + index * 100_000_000,
            uncertainty_ns: 100,
            ..ClockSample::default()
        };
        ClockModel::new(1, (0..10).map(sample))
    }

    fn reading(
        time: u64,
        reason: u32,
        value: i64,
        kernel: (u64, u64),
        sdma: (u64, u64),
    ) -> Completion {
        let mut reading = Completion::new_zeroed();
        (reading.time, reading.reason, reading.value) = (time, reason, value);
        (reading.start, reading.end) = kernel;
        (reading.sdma_start, reading.sdma_end) = sdma;
        reading
    }

    const MS: u64 = 1_000_000;

    fn one_use(user: User) -> (Signal, Use) {
        let mut signal = Signal::default();
        signal.add(user, 50 * MS);
        let used = signal.uses[0];
        (signal, used)
    }

    fn begin(fit: Fit) -> Option<u64> {
        match fit {
            Fit::Own(exact) => Some(exact.begin.time),
            _ => None,
        }
    }

    #[test]
    fn stamps_before_the_submission_are_stale() {
        let (_, used) = one_use(User::Copy(1));
        let fit = |kernel, sdma| {
            fit(
                &used,
                &reading(60 * MS, 1, 0, kernel, sdma),
                &clock(),
                50 * MS,
            )
        };
        assert_eq!(begin(fit((5_000_000, 5_000_100), (0, 0))), Some(51 * MS));
        assert_eq!(fit((4_000_000, 4_000_100), (0, 0)), Fit::Stale);
        assert_eq!(fit((0, 0), (0, 0)), Fit::Stale);
        assert_eq!(
            fit((5_000_000, 4_000_000), (0, 0)),
            Fit::Stale,
            "half written"
        );
        assert_eq!(
            fit((9_000_000, 9_000_100), (0, 0)),
            Fit::Stale,
            "after the reading"
        );
        // The engine's stamps take precedence if they belong to this copy.
        assert_eq!(
            begin(fit((5_000_000, 5_000_100), (5_100_000, 5_100_100))),
            Some(52 * MS)
        );
        assert_eq!(
            begin(fit((5_000_000, 5_000_100), (4_100_000, 4_100_100))),
            Some(51 * MS)
        );
    }

    #[test]
    fn a_kernel_is_not_stamped_by_an_engine() {
        let (_, used) = one_use(User::Packet { queue: 0, index: 0 });
        let reading = reading(60 * MS, 1, 0, (0, 0), (5_100_000, 5_100_100));
        assert_eq!(fit(&used, &reading, &clock(), 50 * MS), Fit::Stale);
    }

    #[test]
    fn stamps_seen_before_are_stale_whatever_the_clock_says() {
        let mut signal = Signal::default();
        let old = reading(49 * MS, 1, 0, (5_000_000, 5_000_100), (0, 0));
        signal.read(&old, &mut Vec::new());
        signal.add(User::Copy(1), 50 * MS);
        assert_eq!(
            fit(
                &signal.uses[0],
                &Completion {
                    time: 60 * MS,
                    ..old
                },
                &clock(),
                50 * MS
            ),
            Fit::Stale
        );
    }

    #[test]
    fn without_samples_nothing_is_aligned() {
        let (_, used) = one_use(User::Copy(1));
        let reading = reading(60 * MS, 1, 0, (5_000_000, 5_000_100), (0, 0));
        assert_eq!(
            fit(&used, &reading, &ClockModel::default(), 50 * MS),
            Fit::Unaligned(Unresolved::NoSamples)
        );
    }

    #[test]
    fn a_value_proves_the_end_of_prepared_signals_only() {
        let ended = |first: Option<(u32, i64)>, then: &[(u64, u32, i64)]| {
            let mut signal = Signal::default();
            if let Some((reason, value)) = first {
                signal.read(
                    &reading(10 * MS, reason, value, (0, 0), (0, 0)),
                    &mut Vec::new(),
                );
            }
            signal.add(User::Copy(1), 50 * MS);
            let mut proven = false;
            for (time, reason, value) in then {
                let reading = reading(*time, *reason, *value, (0, 0), (0, 0));
                let mut uses = Vec::new();
                signal.read(&reading, &mut uses);
                proven = uses.iter().any(|used| signal.has_ended(used, &reading));
                signal.uses = uses;
            }
            proven
        };
        use completion_reason::{POLL, REARM};
        assert!(ended(None, &[(60 * MS, REARM, 0)]));
        assert!(!ended(None, &[(60 * MS, REARM, 1)]));
        assert!(
            !ended(None, &[(50 * MS, REARM, 0)]),
            "read before it was submitted"
        );
        assert!(ended(None, &[(50 * MS + 1, REARM, 0)]));
        assert!(!ended(None, &[(50 * MS + 1, POLL, 0)]), "maybe read before");
        assert!(
            ended(Some((REARM, 0)), &[(60 * MS, POLL, 0)]),
            "prepared in between"
        );
        assert!(
            !ended(Some((POLL, 0)), &[(60 * MS, POLL, 0)]),
            "maybe never prepared"
        );
        assert!(ended(
            Some((POLL, 0)),
            &[(60 * MS, POLL, 1), (70 * MS, POLL, 0)]
        ));
        assert!(!ended(None, &[(60 * MS, POLL, -1)]), "counts on below 0");
    }

    #[test]
    fn unfinished_is_what_was_seen_open_at_the_end() {
        let (mut signal, used) = one_use(User::Copy(7));
        assert_eq!(signal.unfinished(0), None);
        let mut uses = Vec::new();
        signal.read(
            &reading(60 * MS, completion_reason::POLL, 1, (0, 0), (0, 0)),
            &mut uses,
        );
        signal.uses = uses;
        assert_eq!(
            signal.unfinished(55 * MS),
            Some((User::Copy(7), 50 * MS, 60 * MS))
        );
        assert_eq!(signal.unfinished(65 * MS), None, "not at the end");
        signal.uses.push(used);
        assert_eq!(signal.unfinished(55 * MS), None, "one of two");
    }
}
