//! Matches the recording's dispatches with the program's.

use std::collections::HashMap;

use gputrace_timeline::gpu::{Dispatch as Recorded, Quality};

use crate::{
    capture::Recording,
    log::{Dispatch, Kernel, Part, Said},
    record::Mode,
};

/// A dispatch that is both in the program's log and in the recording.
#[derive(Clone, Copy, Debug)]
pub(super) struct Matched<'a> {
    pub(super) said: &'a Dispatch,
    pub(super) recorded: &'a Recorded,
    /// The clock as read by the kernel at its begin and end, converted with the recording's clock
    /// model, each with its uncertainty; ns.
    pub(super) clock: Option<[(u64, u64); 2]>,
}

impl Matched<'_> {
    fn is_impossible(&self) -> bool {
        let Some([begin, end]) = self.clock else {
            // The recording's clock model has no such time.
            return self.said.clock_ticks.is_some();
        };
        let early = begin.0.saturating_add(begin.1) < self.said.rung_ns;
        let late = |seen| end.0.saturating_sub(end.1) > seen;
        early || self.said.seen_ns.is_some_and(late)
    }
}

/// The program's log and the recording, matched.
#[derive(Debug)]
pub(super) struct Evidence<'a> {
    pub(super) mode: Mode,
    pub(super) said: &'a [Said],
    pub(super) recording: &'a Recording,
    /// In the order in which the program submitted them.
    pub(super) matched: Vec<Matched<'a>>,
    /// Number of dispatches that must be in the recording.
    pub(super) required: usize,
    pub(super) missing: usize,
    pub(super) twice: usize,
    /// Dispatches of the recording that are not the program's.
    pub(super) invented: usize,
    /// Dispatches whose clock readings are impossible: before their doorbell, or after they were
    /// seen to be complete.
    pub(super) impossible: usize,
    /// Whether the kernels' clock readings can be trusted: none is impossible, and all lie between
    /// the stamps of dispatches that have both.
    pub(super) trusts_clock: bool,
}

impl<'a> Evidence<'a> {
    pub(super) fn new(mode: Mode, said: &'a [Said], recording: &'a Recording) -> Self {
        let mut by_place: HashMap<(u64, u64), (&Recorded, usize)> = HashMap::new();
        let mut twice = 0;
        for (queue, dispatch) in &recording.dispatches {
            let entry = by_place
                .entry((*queue, dispatch.index))
                .or_insert((dispatch, 0));
            entry.1 += 1;
            twice += usize::from(entry.1 == 2);
        }
        let mut evidence = Self {
            mode,
            said,
            recording,
            matched: Vec::new(),
            required: 0,
            missing: 0,
            twice,
            invented: 0,
            impossible: 0,
            trusts_clock: false,
        };
        for one in said {
            let Said::Dispatch(one) = one else { continue };
            let found = by_place.remove(&(one.queue, one.index));
            // Dispatches before the recorder attached may be missing.
            let required = !mode.comes_late() || one.part != Part::Before;
            evidence.required += usize::from(required);
            evidence.missing += usize::from(required && found.is_none());
            if let Some((recorded, _)) = found {
                let clock = one.clock_ticks.and_then(|[begin, end]| {
                    let at = |tick| recording.moment(tick, one.rung_ns);
                    let (begin, end) = (at(begin)?, at(end)?);
                    Some([begin, end].map(|moment| (moment.boottime_ns, moment.uncertainty_ns)))
                });
                evidence.matched.push(Matched {
                    said: one,
                    recorded,
                    clock,
                });
            }
        }
        evidence.invented = by_place.len();
        let encloses = evidence.stamped_and_clocked().all(|(one, [begin, end])| {
            let time = one.recorded.time;
            time.begin_window.earliest <= begin.0.saturating_add(begin.1)
                && time
                    .end_window
                    .latest
                    .is_some_and(|latest| end.0.saturating_sub(end.1) <= latest)
        });
        evidence.impossible = evidence
            .matched
            .iter()
            .filter(|one| one.is_impossible())
            .count();
        evidence.trusts_clock = encloses && evidence.impossible == 0;
        evidence
    }

    /// Dispatches with exact times whose kernels read the clock.
    pub(super) fn stamped_and_clocked(
        &self,
    ) -> impl Iterator<Item = (&Matched<'a>, [(u64, u64); 2])> {
        self.matched
            .iter()
            .filter(|one| one.recorded.time.quality == Quality::Exact)
            .filter_map(|one| Some((one, one.clock?)))
    }

    /// Dispatches of the kernel with private memory.
    pub(super) fn of_scratch(&self) -> Vec<&Matched<'a>> {
        let is_it = |one: &&Matched<'_>| one.said.kernel == Kernel::Scratch;
        self.matched.iter().filter(is_it).collect()
    }
}
