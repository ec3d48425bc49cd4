//! Attaches counter readings to the dispatches during which they were made.
//!
//! The recorder notes when it read each group of counters ([`GroupRead`]), and which values
//! changed. A reading counts for a dispatch if it began and ended while the dispatch ran, by the
//! dispatch's own times: one that began earlier could have seen the GPU before the dispatch. The
//! counters concerned are those of the dispatch's agent: the GPU's own, and those of its process on
//! that GPU. The dispatch gets the mean of these readings; for a counter that only grows, the
//! growth from the first of them to the last, if there are two.
//!
//! A dispatch comes at least a few tenths of a second after its end, when all readings before its
//! end have come. The last [`LIMIT`] readings and values are kept, which covers minutes; an older
//! dispatch gets none.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use gputrace_capture::counter::{Counter, CounterValues, GroupRead};

use crate::model::gpu::{Dispatch, Reading};
use gputrace_text::tables::plural;

/// Maximum number of readings and value changes that are kept: 24 bytes each.
const LIMIT: usize = 1 << 20;

/// A counter of a group.
#[derive(Debug)]
struct Track {
    counter: Arc<Counter>,
    /// Values with the number of the reading from which they hold; `None` while the counter could
    /// not be read.
    changes: VecDeque<(u64, Option<f64>)>,
}

/// Counters that are read together.
#[derive(Debug, Default)]
struct Group {
    /// Begin and end of each reading, ns `CLOCK_BOOTTIME`, in order without overlap.
    reads: VecDeque<(u64, u64)>,
    /// Number of the first reading in `reads`.
    first: u64,
    /// Begin of the last reading that was dropped.
    forgotten: Option<u64>,
    tracks: Vec<Track>,
}

/// Recent readings, and statistics of the dispatches that got some.
#[derive(Debug)]
pub(crate) struct Readings {
    groups: HashMap<u32, Group>,
    /// Group of each counter and its index in the group.
    places: HashMap<u32, (u32, usize)>,
    /// Groups with counters of an agent (by node) and a process (0: of none).
    of: HashMap<(u32, u32), Vec<u32>>,
    /// Readings and changes that are kept.
    count: usize,
    limit: usize,
    /// Latest end of a dispatch annotated so far.
    looked: u64,
    /// Dispatches with known times; those that got a reading; those whose readings had already been
    /// dropped.
    dispatches: u64,
    covered: u64,
    forgotten: u64,
    /// Readings that came after a dispatch with a later end.
    late: u64,
}

impl Default for Readings {
    fn default() -> Self {
        Self {
            groups: HashMap::new(),
            places: HashMap::new(),
            of: HashMap::new(),
            count: 0,
            limit: LIMIT,
            looked: 0,
            dispatches: 0,
            covered: 0,
            forgotten: 0,
            late: 0,
        }
    }
}

impl Readings {
    /// Learns of a counter.
    pub(crate) fn learn(&mut self, counter: &Arc<Counter>) {
        let (Some(number), Some(node)) = (counter.group, counter.node_id) else {
            return;
        };
        let group = self.groups.entry(number).or_default();
        if self.places.contains_key(&counter.number) {
            return;
        }
        self.places
            .insert(counter.number, (number, group.tracks.len()));
        group.tracks.push(Track {
            counter: Arc::clone(counter),
            changes: VecDeque::new(),
        });
        let groups = self.of.entry((node, counter.pid)).or_default();
        if !groups.contains(&number) {
            groups.push(number);
        }
    }

    /// Takes a set of readings.
    pub(crate) fn take(&mut self, values: &CounterValues) {
        let Some(GroupRead {
            group,
            before,
            after,
        }) = values.read
        else {
            return;
        };
        let Some(known) = self.groups.get_mut(&group) else {
            return;
        };
        let begin = values.time.saturating_sub(before);
        let end = values.time.saturating_add(after);
        // The latest dispatches that ended before were annotated without it.
        self.late += u64::from(end <= self.looked);
        // Readings are made one after the other; those of a damaged capture must be ordered, too.
        let begin = known
            .reads
            .back()
            .map_or(begin, |(_, last)| begin.max(*last));
        known.reads.push_back((begin, end.max(begin)));
        self.count += 1;
        let number = known.first + known.reads.len() as u64 - 1;
        let gone = values.gone.iter().map(|counter| (counter, None));
        let changes = values
            .values
            .iter()
            .map(|(counter, value)| (counter, Some(*value)));
        for (counter, value) in changes.chain(gone) {
            let Some((of, at)) = self.places.get(counter).filter(|(of, _)| *of == group) else {
                continue;
            };
            let track = self
                .groups
                .get_mut(of)
                .and_then(|known| known.tracks.get_mut(*at));
            if let Some(track) = track {
                track
                    .changes
                    .push_back((number, value.filter(|value| value.is_finite())));
                self.count += 1;
            }
        }
        if self.count > self.limit {
            self.forget();
        }
    }

    /// Drops the older half of all readings.
    fn forget(&mut self) {
        self.count = 0;
        for group in self.groups.values_mut() {
            let dropped = group.reads.len() / 2;
            group.first += dropped as u64;
            if let Some((begin, _)) = group.reads.drain(..dropped).next_back() {
                group.forgotten = Some(begin);
            }
            for track in &mut group.tracks {
                // The last change before the kept readings still holds.
                let old = track
                    .changes
                    .partition_point(|(number, _)| *number <= group.first);
                track.changes.drain(..old.saturating_sub(1));
                self.count += track.changes.len();
            }
            self.count += group.reads.len();
        }
    }

    /// Attaches what was read of a dispatch's agent while it ran; `node` is that agent's.
    pub(crate) fn annotate(&mut self, dispatch: &mut Dispatch, node: Option<u32>) {
        if self.groups.is_empty() || !dispatch.time.is_drawn() {
            return;
        }
        let (begin, end) = (dispatch.time.begin, dispatch.time.end);
        self.dispatches += 1;
        self.looked = self.looked.max(end);
        let Some(node) = node else { return };
        let pids = [0, dispatch.origin.pid];
        let mut is_forgotten = false;
        for pid in pids {
            for number in self.of.get(&(node, pid)).into_iter().flatten() {
                let Some(group) = self.groups.get(number) else {
                    continue;
                };
                if group.forgotten.is_some_and(|forgotten| begin <= forgotten) {
                    is_forgotten = true;
                    continue;
                }
                let from = group.reads.partition_point(|(first, _)| *first < begin);
                let to = group.reads.partition_point(|(_, last)| *last <= end);
                if from >= to {
                    continue;
                }
                let (from, to) = (group.first + from as u64, group.first + to as u64);
                for track in &group.tracks {
                    let whose = (track.counter.node_id, track.counter.pid);
                    if whose == (Some(node), pid)
                        && let Some((value, readings)) = track.within(from, to)
                    {
                        dispatch.readings.push(Reading {
                            counter: Arc::clone(&track.counter),
                            value,
                            readings,
                        });
                    }
                }
            }
        }
        self.covered += u64::from(!dispatch.readings.is_empty());
        self.forgotten += u64::from(is_forgotten);
    }

    /// Remarks for readers of the recording, once all has been read.
    pub(crate) fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        let without = self
            .dispatches
            .saturating_sub(self.covered)
            .saturating_sub(self.forgotten);
        if without > 0 {
            remarks.push(format!(
                "Of {} with known times, {without} ended before any counter of the GPU was read: \
                 the counter collection has no rows for these. `--counters=HZ` reads more often \
                 (up to 100 times a second); shorter kernels cannot be told apart by what the \
                 driver counts.",
                plural(self.dispatches, "dispatch", "dispatches")
            ));
        }
        for (count, one, many, what) in [
            (
                self.forgotten,
                "dispatch",
                "dispatches",
                "became known so late that counter readings from the begin were no longer kept: \
                 rows in the counter collection are missing or incomplete",
            ),
            (
                self.late,
                "counter reading",
                "counter readings",
                "came into the capture after dispatches that ended later: the rows of these \
                 dispatches may lack such readings",
            ),
        ] {
            if count > 0 {
                remarks.push(format!("{} {what}.", plural(count, one, many)));
            }
        }
        remarks
    }
}

impl Track {
    /// The mean over readings `from..to`, or the growth during them, and the number of readings
    /// used.
    fn within(&self, from: u64, to: u64) -> Option<(f64, u64)> {
        // The change that holds at `from`.
        let first = self
            .changes
            .partition_point(|(number, _)| *number <= from)
            .saturating_sub(1);
        let (mut sum, mut readings) = (0.0, 0);
        let mut ends: Option<(f64, f64)> = None;
        for (at, (number, value)) in self.changes.iter().enumerate().skip(first) {
            if *number >= to {
                break;
            }
            let Some(value) = *value else { continue };
            let begin = (*number).max(from);
            let next = self
                .changes
                .get(at + 1)
                .map_or(to, |(number, _)| (*number).min(to));
            let times = next.saturating_sub(begin);
            if times == 0 {
                continue;
            }
            sum += value * times as f64;
            readings += times;
            let (lowest, last) = ends.unwrap_or((value, value));
            if self.counter.cumulative && value < last {
                // The counter was reset.
                return None;
            }
            ends = Some((lowest, value));
        }
        let (lowest, last) = ends?;
        let value = if !self.counter.cumulative {
            sum / readings as f64
        } else if readings > 1 {
            last - lowest
        } else {
            return None;
        };
        value.is_finite().then_some((value, readings))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::gpu::{GpuTime, Quality};

    const NODE: u32 = 1;

    fn counter(number: u32, cumulative: bool, pid: u32, group: u32) -> Arc<Counter> {
        Arc::new(Counter {
            number,
            name: format!("c{number}"),
            cumulative,
            pid,
            node_id: Some(NODE),
            group: Some(group),
            ..Counter::default()
        })
    }

    /// Adds a reading from 10 ns before `time` to 10 ns after.
    fn read(readings: &mut Readings, group: u32, time: u64, values: &[(u32, f64)], gone: &[u32]) {
        readings.take(&CounterValues {
            time,
            values: values.to_vec(),
            read: Some(GroupRead {
                group,
                before: 10,
                after: 10,
            }),
            gone: gone.to_vec(),
        });
    }

    fn dispatch(begin: u64, end: u64) -> Dispatch {
        let mut dispatch = Dispatch {
            time: GpuTime {
                quality: Quality::Exact,
                begin,
                end,
                ..GpuTime::default()
            },
            ..Dispatch::default()
        };
        dispatch.origin.pid = 7;
        dispatch
    }

    /// Counter number, value and number of readings.
    fn of(readings: &mut Readings, begin: u64, end: u64) -> Vec<(u32, f64, u64)> {
        let mut dispatch = dispatch(begin, end);
        readings.annotate(&mut dispatch, Some(NODE));
        let found = dispatch.readings.iter();
        found
            .map(|one| (one.counter.number, one.value, one.readings))
            .collect()
    }

    #[test]
    fn what_is_read_within_a_dispatch_is_its_own() {
        let mut readings = Readings::default();
        for counter in [
            counter(0, false, 0, 0),
            counter(1, true, 0, 0),
            counter(2, false, 7, 1),
            counter(3, false, 8, 2),
        ] {
            readings.learn(&counter);
        }
        read(&mut readings, 0, 100, &[(0, 10.0), (1, 1000.0)], &[]);
        read(&mut readings, 1, 105, &[(2, 5.0)], &[]);
        read(&mut readings, 2, 106, &[(3, 6.0)], &[]);
        read(&mut readings, 0, 200, &[(0, 40.0), (1, 1100.0)], &[]);
        read(&mut readings, 0, 300, &[], &[]);
        read(&mut readings, 0, 400, &[(1, 1150.0)], &[0]);
        read(&mut readings, 0, 500, &[(0, 7.0)], &[]);
        // No reading while it ran, or none entirely within it.
        assert_eq!(of(&mut readings, 111, 189), []);
        assert_eq!(of(&mut readings, 195, 289), []);
        // A single reading says nothing about growth. Other processes' counters do not count.
        assert_eq!(of(&mut readings, 90, 115), [(0, 10.0, 1), (2, 5.0, 1)]);
        assert_eq!(of(&mut readings, 120, 350), [(0, 40.0, 2), (1, 0.0, 2)]);
        assert_eq!(
            of(&mut readings, 80, 350),
            [(0, 30.0, 3), (1, 100.0, 3), (2, 5.0, 1)]
        );
        // A failed reading does not count.
        assert_eq!(of(&mut readings, 380, 420), []);
        assert_eq!(of(&mut readings, 280, 520), [(0, 23.5, 2), (1, 50.0, 3)]);
        // The agent is unknown.
        let mut elsewhere = dispatch(80, 350);
        readings.annotate(&mut elsewhere, None);
        readings.annotate(&mut elsewhere, Some(2));
        assert_eq!(elsewhere.readings, []);
        let remarks = readings.remarks();
        assert!(
            remarks.len() == 1
                && remarks[0].starts_with("Of 9 dispatches with known times, 5 ended"),
            "{remarks:?}"
        );
    }

    #[test]
    fn a_counter_that_begins_anew_has_no_growth_and_bounds_are_no_times() {
        let mut readings = Readings::default();
        readings.learn(&counter(0, true, 0, 0));
        for (time, value) in [(100, 50.0), (200, 60.0), (300, 1.0)] {
            read(&mut readings, 0, time, &[(0, value)], &[]);
        }
        assert_eq!(of(&mut readings, 0, 250), [(0, 10.0, 2)]);
        assert_eq!(of(&mut readings, 0, 350), []);
        let mut bounded = dispatch(0, 250);
        bounded.time.quality = Quality::Bounded;
        readings.annotate(&mut bounded, Some(NODE));
        assert_eq!(bounded.readings, []);
    }

    #[test]
    fn memory_is_bounded_and_what_is_forgotten_is_told() {
        let mut readings = Readings {
            limit: 100,
            ..Readings::default()
        };
        readings.learn(&counter(0, false, 0, 0));
        readings.learn(&counter(1, false, 0, 0));
        read(&mut readings, 0, 100, &[(0, 1.0), (1, 2.0)], &[]);
        for at in 2..1000 {
            read(&mut readings, 0, at * 100, &[(0, at as f64)], &[]);
            assert!(readings.count <= 101);
        }
        // A value that has not changed for long still holds.
        assert_eq!(
            of(&mut readings, 99_800, 99_950),
            [(0, 999.0, 1), (1, 2.0, 1)]
        );
        assert_eq!(of(&mut readings, 150, 99_950), []);
        // A reading that came too late.
        readings.looked = u64::MAX;
        read(&mut readings, 0, 200_000, &[], &[]);
        let remarks = readings.remarks();
        assert_eq!(remarks.len(), 2, "{remarks:?}");
    }

    #[test]
    fn captures_that_do_not_say_when_counters_were_read_have_none() {
        let mut readings = Readings::default();
        let mut older = (*counter(0, false, 0, 0)).clone();
        older.group = None;
        readings.learn(&Arc::new(older));
        readings.take(&CounterValues {
            time: 100,
            values: vec![(0, 1.0)],
            ..CounterValues::default()
        });
        assert_eq!(of(&mut readings, 0, 200), []);
        assert_eq!(readings.remarks(), Vec::<String>::new());
    }
}
