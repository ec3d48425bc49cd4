//! The clock model against the software GPU's clock.

#![allow(clippy::unwrap_used, reason = "test code outside of #[test] functions")]

use gputrace_kfd::clock::{
    ClockModel, ClockSample, ClockSamples, MAX_SAMPLES, Thinner, Unresolved, Window,
};
use gputrace_softgpu::clock::{GpuClock, Jump};
use proptest::prelude::*;

const GPU: u32 = 31_000;
const SECOND: u64 = 1_000_000_000;
const START: u64 = 5_000 * SECOND;

/// Samples of a clock; the true time is somewhere within the uncertainty.
fn samples(clock: &GpuClock, moments: &[(u64, u64, u64)]) -> Vec<ClockSample> {
    let sample = |(ns, uncertainty, place): &(u64, u64, u64)| ClockSample {
        gpu_id: GPU,
        gpu_tick: clock.ticks_at(ns - uncertainty + place % (2 * uncertainty + 1)),
        boottime_ns: *ns,
        uncertainty_ns: *uncertainty,
        ..ClockSample::default()
    };
    moments.iter().map(sample).collect()
}

/// Ten samples per second, each with an uncertainty of some hundred nanoseconds.
fn steady(clock: &GpuClock, count: u64) -> Vec<ClockSample> {
    let moments: Vec<_> = (0..count)
        .map(|index| (START + index * SECOND / 10, 400, index * 37))
        .collect();
    samples(clock, &moments)
}

#[test]
fn a_clock_with_offset_and_drift_is_followed() {
    let clock = GpuClock {
        drift_ppb: -35_000,
        ..GpuClock::default()
    };
    let model = ClockModel::new(GPU, steady(&clock, 100));
    assert_eq!(model.segments(), 1);
    assert!(model.frequency_hz().unwrap().abs_diff(99_996_500) < 1_000);
    for index in 0..990 {
        let truth = START + index * 10_007_001;
        let time = model
            .to_boottime(clock.ticks_at(truth), Window::default())
            .unwrap();
        assert!(
            time.boottime_ns.abs_diff(truth) <= time.uncertainty_ns,
            "{time:?} {truth}"
        );
        assert!(
            time.uncertainty_ns < 2_500 && !time.extrapolated && !time.ambiguous,
            "{time:?}"
        );
        let count = model.to_tick(truth).unwrap();
        let off = count.gpu_tick.abs_diff(clock.ticks_at(truth)) * 10;
        assert!(off <= count.uncertainty_ns, "{count:?} {off}");
    }
}

#[test]
fn beyond_the_samples_uncertainty_grows() {
    let clock = GpuClock::default();
    let model = ClockModel::new(GPU, steady(&clock, 30));
    let after = START + 3 * SECOND;
    let mut last = 0;
    for step in 1..10 {
        for truth in [START - step * SECOND, after + step * SECOND] {
            let time = model
                .to_boottime(clock.ticks_at(truth), Window::default())
                .unwrap();
            assert!(
                time.boottime_ns.abs_diff(truth) <= time.uncertainty_ns,
                "{time:?}"
            );
            assert!(
                time.extrapolated && time.uncertainty_ns >= step * 50_000,
                "{time:?}"
            );
            assert!(time.uncertainty_ns > last, "{time:?}");
        }
        last = model.to_tick(after + step * SECOND).unwrap().uncertainty_ns;
    }
}

/// A reset after two seconds: the counter starts again.
fn reset() -> GpuClock {
    GpuClock {
        offset_ticks: 0,
        jumps: vec![Jump {
            at_ns: START + 2 * SECOND + 12_345,
            ticks: -500_100_000_000,
        }],
        ..GpuClock::default()
    }
}

#[test]
fn after_a_reset_the_doorbell_tells_which_run_is_meant() {
    let clock = reset();
    let model = ClockModel::new(GPU, steady(&clock, 60));
    assert_eq!(model.segments(), 2);
    let resolve = |truth: u64, window| model.to_boottime(clock.ticks_at(truth), window);
    for truth in [START + SECOND, START + 3 * SECOND] {
        let time = resolve(truth, Window::from(truth - 5_000)).unwrap();
        assert!(
            time.boottime_ns.abs_diff(truth) <= time.uncertainty_ns,
            "{time:?}"
        );
        assert_eq!(time.segment, usize::from(truth > START + 2 * SECOND));
    }
    // A count that only the first segment had, with a window in the second: refused instead of
    // misplaced.
    let late = Window {
        not_before: START + 4 * SECOND,
        not_after: START + 6 * SECOND,
    };
    assert_eq!(
        resolve(START + SECOND, late),
        Err(Unresolved::OutsideWindow)
    );
    assert!(
        model
            .to_tick(START + 2 * SECOND + 10_000)
            .unwrap()
            .ambiguous
    );
}

#[test]
fn a_count_of_two_runs_is_ambiguous_without_a_hint() {
    let clock = GpuClock {
        offset_ticks: 0,
        // Back by one second: the counts of a second occur twice.
        jumps: vec![Jump {
            at_ns: START + 2 * SECOND,
            ticks: -100_000_000,
        }],
        ..GpuClock::default()
    };
    let model = ClockModel::new(GPU, steady(&clock, 60));
    let (first, second) = (START + 3 * SECOND / 2, START + 5 * SECOND / 2);
    let tick = clock.ticks_at(first);
    assert_eq!(tick, clock.ticks_at(second));
    let unknown = model.to_boottime(tick, Window::default()).unwrap();
    assert!(unknown.ambiguous && unknown.segment == 0, "{unknown:?}");
    let hinted = model
        .to_boottime(tick, Window::from(second - 1_000))
        .unwrap();
    assert!(
        !hinted.ambiguous && hinted.boottime_ns.abs_diff(second) <= hinted.uncertainty_ns,
        "{hinted:?}"
    );
}

#[test]
fn a_leap_forwards_is_a_new_run() {
    let clock = GpuClock {
        jumps: vec![Jump {
            at_ns: START + SECOND + 1,
            ticks: 1_000_000_000,
        }],
        ..GpuClock::default()
    };
    let model = ClockModel::new(GPU, steady(&clock, 30));
    assert_eq!(model.segments(), 2);
    for truth in [START + SECOND / 2, START + 2 * SECOND] {
        let time = model
            .to_boottime(clock.ticks_at(truth), Window::default())
            .unwrap();
        assert!(
            time.boottime_ns.abs_diff(truth) <= time.uncertainty_ns && !time.ambiguous,
            "{time:?}"
        );
    }
}

/// The samples of a short program: two when the recorder starts, one when work begins after a leap,
/// and one at the end that is too imprecise to tell a rate.
#[test]
fn a_leap_between_few_samples_does_not_tell_the_rate() {
    for ticks in [700_000_000, -700_000, 20_000_000_000] {
        let clock = GpuClock {
            offset_ticks: 1 << 40,
            jumps: vec![Jump {
                at_ns: START + SECOND,
                ticks,
            }],
            ..GpuClock::default()
        };
        let work = START + 3 * SECOND / 2;
        let moments = [
            (START, 600, 0),
            (START + 4_000_000, 600, 1),
            (work, 600, 2),
            (work + 40_000_000, 60_000, 3),
        ];
        let model = ClockModel::new(GPU, samples(&clock, &moments));
        assert_eq!(model.segments(), 2, "{ticks}");
        for after in [10_000_000, 30_000_000, 55_000_000] {
            let truth = work + after;
            let time = model
                .to_boottime(clock.ticks_at(truth), Window::from(truth - 1_000))
                .unwrap();
            assert!(
                time.boottime_ns.abs_diff(truth) <= time.uncertainty_ns,
                "{ticks}: {time:?} {truth}"
            );
        }
        // Of three samples, nobody knows between which two the leap is, precise or not.
        for uncertainty in [600, 60_000] {
            let last = (work + 40_000_000, uncertainty, 3);
            let three = samples(&clock, &[moments[1], moments[2], last]);
            assert_eq!(
                ClockModel::new(GPU, three).to_boottime(clock.ticks_at(work), Window::default()),
                Err(Unresolved::NoRate)
            );
        }
    }
}

/// The counter leaps twice between two samples. The line after the leaps gives a count between them
/// a time at which the counter had another value.
#[test]
fn beside_a_leap_no_time_is_certain() {
    let clock = GpuClock {
        offset_ticks: 1 << 40,
        jumps: vec![
            Jump {
                at_ns: START + SECOND,
                ticks: 700_000_000,
            },
            Jump {
                at_ns: START + 2 * SECOND,
                ticks: -700_000,
            },
        ],
        ..GpuClock::default()
    };
    let moments = [0, 1, 400, 401, 402].map(|part| (START + part * SECOND / 190, 600, 1));
    let model = ClockModel::new(GPU, samples(&clock, &moments));
    assert_eq!(model.segments(), 2);
    let between = START + 2 * SECOND - 20_000_000;
    let time = model.to_boottime(clock.ticks_at(between), Window::from(between - 1_000));
    let time = time.unwrap();
    assert!(
        time.boottime_ns.abs_diff(between) > time.uncertainty_ns && time.ambiguous,
        "{time:?} {between}"
    );
    let behind = moments[3].0 + 1_000_000;
    let time = model.to_boottime(clock.ticks_at(behind), Window::from(behind - 1_000));
    let time = time.unwrap();
    assert!(
        time.boottime_ns.abs_diff(behind) <= time.uncertainty_ns && !time.ambiguous,
        "{time:?} {behind}"
    );
}

/// The samples that a recorder writes and a reader keeps.
fn thinned(samples: Vec<ClockSample>, window_ns: u64) -> Vec<ClockSample> {
    let mut thinner = Thinner::new(window_ns);
    let mut kept: Vec<ClockSample> = samples
        .into_iter()
        .flat_map(|sample| thinner.push(sample))
        .collect();
    kept.extend(thinner.flush());
    kept
}

/// Samples of a GPU that is never idle during a day.
#[test]
fn few_samples_say_as_much_as_many() {
    const COUNT: u64 = 864_000;
    let clock = GpuClock {
        drift_ppb: -35_000,
        ..GpuClock::default()
    };
    let written = thinned(steady(&clock, COUNT), SECOND);
    assert!(written.len() as u64 <= COUNT / 9, "{}", written.len());
    let mut kept = ClockSamples::default();
    written.iter().for_each(|sample| kept.push(*sample));
    let kept = kept.into_vec();
    assert!(kept.len() < MAX_SAMPLES);
    // Bound of the error with all written samples, and with the few that are kept.
    for (samples, bound) in [(written, 2_500), (kept, 6_500)] {
        let model = ClockModel::new(GPU, samples);
        assert_eq!(model.segments(), 1);
        for index in 0..10_000 {
            let truth = START + index * 8_639_990_001;
            let time = model
                .to_boottime(clock.ticks_at(truth), Window::default())
                .unwrap();
            assert!(
                time.boottime_ns.abs_diff(truth) <= time.uncertainty_ns,
                "{time:?} {truth}"
            );
            assert!(
                time.uncertainty_ns < bound && !time.extrapolated,
                "{time:?}"
            );
        }
    }
}

/// A GPU that works for some seconds, is idle for hours, and works again.
fn with_an_idle_time(clock: &GpuClock, hours: u64) -> (Vec<ClockSample>, u64) {
    let again = START + hours * 3_600 * SECOND;
    let first = (0..30).map(|index| START + index * SECOND / 10);
    let second = (0..30).map(|index| again + index * SECOND / 10);
    let moments: Vec<_> = first
        .chain(second)
        .map(|moment| (moment, 400, moment / 1_000))
        .collect();
    (samples(clock, &moments), again)
}

#[test]
fn beside_an_idle_time_the_bounds_are_narrow() {
    for drift_ppb in [-40_000, 0, 35_000] {
        let clock = GpuClock {
            drift_ppb,
            ..GpuClock::default()
        };
        for hours in [1, 24, 150] {
            let (samples, again) = with_an_idle_time(&clock, hours);
            let model = ClockModel::new(GPU, samples);
            assert_eq!(model.segments(), 1);
            // The work that ended the idle time began before the next sample.
            for truth in [
                again - SECOND / 10,
                again - SECOND / 100,
                START + 3 * SECOND,
            ] {
                let time = model
                    .to_boottime(clock.ticks_at(truth), Window::default())
                    .unwrap();
                assert!(
                    time.boottime_ns.abs_diff(truth) <= time.uncertainty_ns,
                    "{time:?} {truth}"
                );
                assert!(time.uncertainty_ns < 10_000, "{time:?}");
            }
        }
    }
}

/// A GPU that falls asleep while idle may stop its clock.
#[test]
fn a_clock_that_slept_is_not_trusted() {
    for seconds in [1, 2, 600] {
        let clock = GpuClock {
            jumps: vec![Jump {
                at_ns: START + 1_000 * SECOND,
                ticks: -100_000_000 * seconds,
            }],
            ..GpuClock::default()
        };
        let (samples, again) = with_an_idle_time(&clock, 1);
        let model = ClockModel::new(GPU, samples);
        for truth in [START + SECOND, again - SECOND / 10, again + SECOND] {
            let window = Window {
                not_before: truth - SECOND / 100,
                not_after: truth + SECOND / 100,
            };
            let time = model.to_boottime(clock.ticks_at(truth), window).unwrap();
            assert!(
                time.boottime_ns.abs_diff(truth) <= time.uncertainty_ns,
                "{time:?} {truth}"
            );
        }
    }
}

#[test]
fn too_few_samples_are_said_so() {
    let clock = GpuClock::default();
    let none = ClockModel::new(GPU + 1, steady(&clock, 10));
    assert!(none.is_empty());
    assert_eq!(
        none.to_boottime(1, Window::default()),
        Err(Unresolved::NoSamples)
    );
    let one = ClockModel::new(GPU, steady(&clock, 1));
    assert_eq!(
        one.to_boottime(clock.ticks_at(START), Window::default()),
        Err(Unresolved::NoRate)
    );
    assert_eq!(one.to_tick(START), Err(Unresolved::NoRate));
    assert_eq!(one.frequency_hz(), None);
}

prop_compose! {
    /// A clock and its sampling times: irregular, with uncertainties up to ten microseconds.
    fn sampled(least: usize)(
        frequency_hz in prop::sample::select(vec![25_000_000_u64, 100_000_000, 1_000_000_000]),
        offset_ticks in prop_oneof![any::<i64>(), Just(-1_000_000_i64), Just(-501_000_000_000)],
        drift_ppb in -200_000_i64..200_000,
        steps in prop::collection::vec((1_000_000_u64..300_000_000, 0_u64..10_000, any::<u64>()), least..80),
    ) -> (GpuClock, Vec<(u64, u64, u64)>) {
        let mut now = START;
        let moments = steps.into_iter().map(|(step, uncertainty, place)| {
            now += step;
            (now, uncertainty, place)
        }).collect();
        (GpuClock { frequency_hz, offset_ticks, drift_ppb, jumps: Vec::new() }, moments)
    }
}

proptest! {
    #[test]
    fn the_truth_lies_within_the_uncertainty(
        (clock, moments) in sampled(2),
        places in prop::collection::vec(0.0_f64..1.0, 20),
    ) {
        let model = ClockModel::new(GPU, samples(&clock, &moments));
        prop_assert_eq!(model.segments(), 1);
        let (first, last) = (moments[0].0, moments[moments.len() - 1].0);
        for place in places {
            // Up to a tenth of the range beyond either end.
            #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss,
                reason = "a random place needs no precision")]
            let truth = first - (last - first) / 10 + ((last - first) as f64 * 1.2 * place) as u64;
            let time = model.to_boottime(clock.ticks_at(truth), Window::default()).unwrap();
            prop_assert!(time.boottime_ns.abs_diff(truth) <= time.uncertainty_ns, "{:?} {}", time, truth);
            let count = model.to_tick(truth).unwrap();
            let ticks = clock.ticks_at(truth).abs_diff(count.gpu_tick);
            let off = u128::from(ticks) * 1_000_000_000 / u128::from(clock.frequency_hz);
            prop_assert!(off <= u128::from(count.uncertainty_ns), "{:?} {}", count, off);
        }
    }

    #[test]
    fn the_truth_lies_within_the_uncertainty_of_what_is_kept(
        (clock, moments) in sampled(2),
        window_ns in 0_u64..3_000_000_000,
        places in prop::collection::vec(0.0_f64..1.0, 20),
    ) {
        let all = samples(&clock, &moments);
        let model = ClockModel::new(GPU, thinned(all, window_ns));
        prop_assert_eq!(model.segments(), 1);
        let (first, last) = (moments[0].0, moments[moments.len() - 1].0);
        for place in places {
            #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss,
                reason = "a random place needs no precision")]
            let truth = first + ((last - first) as f64 * place) as u64;
            let time = model.to_boottime(clock.ticks_at(truth), Window::default()).unwrap();
            prop_assert!(time.boottime_ns.abs_diff(truth) <= time.uncertainty_ns, "{:?} {}", time, truth);
        }
    }

    #[test]
    fn a_reset_never_misplaces_what_has_a_doorbell(
        // Enough intervals for the one with the reset to stand out.
        (mut clock, moments) in sampled(6),
        leap_to in 0_u64..1_000_000_000,
        at in 0.05_f64..0.95,
        place in 0.0_f64..1.0,
    ) {
        clock.offset_ticks = clock.offset_ticks.clamp(0, 1 << 40);
        let (first, last) = (moments[0].0, moments[moments.len() - 1].0);
        #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss,
            reason = "a random place needs no precision")]
        let between = |part: f64| first + ((last - first) as f64 * part) as u64;
        let at_ns = between(at);
        let back = i64::try_from(clock.ticks_at(at_ns)).unwrap() - i64::try_from(leap_to).unwrap();
        // A real reset, larger than ordinary noise.
        prop_assume!(back > 200_000_000);
        clock.jumps.push(Jump { at_ns, ticks: -back });
        let model = ClockModel::new(GPU, samples(&clock, &moments));
        let truth = between(place);
        let window = Window { not_before: truth - 1_000, not_after: truth + 1_000 };
        let time = model.to_boottime(clock.ticks_at(truth), window).unwrap();
        prop_assert!(time.boottime_ns.abs_diff(truth) <= time.uncertainty_ns, "{:?} {}", time, truth);
    }

    #[test]
    fn any_samples_give_an_answer(
        samples in prop::collection::vec(any::<(u64, u64, u64)>(), 0..12),
        asked: u64, not_before: u64, not_after: u64,
    ) {
        let samples = samples.into_iter().map(|(gpu_tick, boottime_ns, uncertainty_ns)| ClockSample {
            gpu_id: GPU, gpu_tick, boottime_ns, uncertainty_ns, ..ClockSample::default()
        });
        let model = ClockModel::new(GPU, samples);
        let _ = model.to_boottime(asked, Window { not_before, not_after });
        let _ = model.to_tick(asked);
        let _ = model.frequency_hz();
    }
}
