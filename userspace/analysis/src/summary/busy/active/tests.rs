use proptest::prelude::*;

use super::*;

const MS: u64 = 1_000_000;

fn reading(time: u64, state: ActivityState, stands_for: u64) -> Activity {
    Activity {
        node_id: Some(1),
        time,
        state,
        stands_for,
        late: 0,
    }
}

/// Readings at each ms from `from` to `to`, ms. The GPU is at work in the first of each `every` ms.
fn readings(active: &mut Active, from: u64, to: u64, every: u64) {
    active.add(&reading(from * MS, ActivityState::Begin, 0));
    for at in from + 1..to {
        let state = if at.is_multiple_of(every) {
            ActivityState::Active
        } else {
            ActivityState::Idle
        };
        active.add(&reading(at * MS, state, MS));
    }
    active.add(&reading(to * MS, ActivityState::End, 0));
}

#[test]
fn the_share_of_readings_is_the_share_of_the_time_in_which_they_went_on() {
    let mut active = Active::default();
    readings(&mut active, 0, 1_000, 10);
    readings(&mut active, 5_000, 6_000, 10);
    active.finish(9_000 * MS);
    let estimate = active.estimate().unwrap();
    assert!(estimate.value.abs_diff(200 * MS) < 3 * MS, "{estimate:?}");
    // 2000 readings of a share of a tenth: the root of 0.1 * 0.9 / 2000, of 2 s.
    assert!(
        estimate.error.abs_diff(13_400_000) < 300_000,
        "{estimate:?}"
    );
    assert_eq!(active.outside(), 0);
}

#[test]
fn readings_stand_for_the_pauses_before_them() {
    let mut active = Active::default();
    active.add(&reading(0, ActivityState::Begin, 0));
    // One reading per ms while idle, one per 10 ms while at work.
    for at in 1..=500 {
        active.add(&reading(at * MS, ActivityState::Idle, MS));
    }
    for at in 1..=50 {
        active.add(&reading(
            (500 + at * 10) * MS,
            ActivityState::Active,
            10 * MS,
        ));
    }
    active.finish(1_000 * MS);
    let estimate = active.estimate().unwrap();
    // The gap of 10 ms after pauses of 1 ms on average is no defect of the reader.
    assert_eq!(estimate.value, 500 * MS);
}

/// Spells at each 100 ms of a second, which found the GPU at work for these shares of their time,
/// millionths; the reader was interrupted for `unseen`.
fn spells(shares: &[u32], unseen: u32) -> Option<Estimate> {
    let mut active = Active::default();
    active.add(&reading(0, ActivityState::Begin, 0));
    for (share, at) in shares.iter().zip(1..) {
        let state = ActivityState::Spell {
            active: *share,
            unseen,
        };
        active.add(&reading(at * 100 * MS, state, 100 * MS));
    }
    active.finish(1_000 * MS);
    active.estimate()
}

#[test]
fn spells_count_by_their_shares() {
    let shares = [
        400_000, 600_000, 500_000, 450_000, 550_000, 400_000, 600_000, 500_000, 450_000, 550_000,
    ];
    let estimate = spells(&shares, 0).unwrap();
    // The root of 10/7 of the mean square of 7.1 %, divided by 10.
    let expected = (500 * MS, 26_726_124);
    assert!(estimate.value.abs_diff(expected.0) < 1_000, "{estimate:?}");
    assert!(
        estimate.error.abs_diff(expected.1) < 100_000,
        "{estimate:?}"
    );
    // Of a tenth of the time nobody knows anything: twice the error covers it.
    let interrupted = spells(&shares, 100_000).unwrap();
    assert_eq!(interrupted.value, estimate.value);
    let more = interrupted.error - estimate.error;
    assert!(more.abs_diff(50 * MS) < 1_000, "{interrupted:?}");
    // Four are too few, and all the same tell nothing.
    assert_eq!(spells(&shares[..4], 0), None);
    assert_eq!(spells(&[0; 10], 0), None);
    assert_eq!(spells(&[1_000_000; 10], 0), None);
}

#[test]
fn a_register_that_never_changes_tells_nothing() {
    for every in [1, 10_000] {
        let mut active = Active::default();
        readings(&mut active, 0, 1_000, every);
        active.finish(1_000 * MS);
        assert_eq!(active.estimate(), None, "{every}");
    }
    // Nor do a few readings.
    let mut active = Active::default();
    readings(&mut active, 0, 29, 2);
    active.finish(100 * MS);
    assert_eq!(active.estimate(), None);
}

#[test]
fn late_readings_count_as_time_in_which_all_is_possible() {
    for (every, is_told) in [(20, true), (8, false)] {
        let mut active = Active::default();
        active.add(&reading(0, ActivityState::Begin, 0));
        for at in 1..=1_000_u64 {
            let state = if at % 2 == 0 {
                ActivityState::Active
            } else {
                ActivityState::Idle
            };
            active.add(&Activity {
                late: if at.is_multiple_of(every) { 300_000 } else { 0 },
                ..reading(at * MS, state, MS)
            });
        }
        active.finish(1_000 * MS);
        assert_eq!(active.estimate().is_some(), is_told);
        assert_eq!(active.outside(), 1_000 / every * MS);
    }
}

#[test]
fn a_reader_that_was_away_has_seen_nothing() {
    let mut active = Active::default();
    active.add(&reading(0, ActivityState::Begin, 0));
    for at in (1..=100).chain(500..=600) {
        active.add(&reading(at * MS, ActivityState::Idle, MS));
    }
    active.kernel(50 * MS, Some(300 * MS), None);
    active.kernel(200 * MS, Some(550 * MS), None);
    active.finish(600 * MS);
    assert_eq!(active.covered, 200 * MS);
    assert_eq!(active.outside(), 400 * MS);
}

#[test]
fn what_had_begun_when_the_gpu_was_idle_had_ended() {
    let mut active = Active::default();
    readings(&mut active, 100, 200, 10);
    readings(&mut active, 300, 400, 10);
    // It was submitted before the readings began. Only the idle GPU at their end proves that it
    // had ended.
    active.kernel(90 * MS, None, Some(120 * MS));
    // It may have begun after them.
    active.kernel(150 * MS, Some(900 * MS), None);
    active.finish(1_000 * MS);
    assert_eq!(active.outside(), (10 + 100 + 500) * MS);
}

#[test]
fn a_kernel_without_end_ends_with_the_recording() {
    let mut active = Active::default();
    readings(&mut active, 100, 200, 10);
    active.kernel(150 * MS, None, None);
    active.finish(1_000 * MS);
    assert_eq!(active.outside(), 800 * MS);
}

proptest! {
    /// The time outside is that of a list of all ms in which a kernel can have run and no reading
    /// went on.
    #[test]
    fn time_outside_is_what_no_span_covers(
        spans in proptest::collection::vec((1..50_u64, 1..50_u64), 0..6),
        kernels in proptest::collection::vec((0..400_u64, 0..100_u64), 0..20),
    ) {
        let mut active = Active::default();
        let mut is_covered = vec![false; 1_000];
        let mut at = 0;
        for (pause, length) in spans {
            let (from, to) = (at + pause, at + pause + length);
            readings(&mut active, from, to, 7);
            (from..to).for_each(|ms| is_covered[ms as usize] = true);
            at = to;
        }
        let mut is_possible = vec![false; 1_000];
        for (begin, length) in kernels {
            let end = begin + length;
            active.kernel(begin * MS, Some(end * MS), None);
            (begin..end).for_each(|ms| is_possible[ms as usize] = true);
        }
        active.finish(1_000 * MS);
        let both = is_possible.iter().zip(&is_covered);
        let outside = both.filter(|(possible, covered)| **possible && !**covered).count() as u64;
        prop_assert_eq!(active.outside(), outside * MS);
    }
}
