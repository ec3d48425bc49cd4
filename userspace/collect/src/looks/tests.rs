//! Watchers that are made up, and what their looks cost.

use super::*;

const SECOND: u64 = 1_000_000_000;

/// Simulates a watcher for a time. Its looks cost `cost` ns each and wake up late by up to
/// `late` ns.
fn watch(
    schedule: &mut Schedule,
    begin: u64,
    time: u64,
    wanted: u64,
    cost: u64,
    late: u64,
) -> Vec<u64> {
    let (mut now, mut all) = (begin, Vec::new());
    while now < begin + time {
        match schedule.plan(now, Some(wanted), 8_000_000, 0) {
            Plan::Rest => panic!("something is expected"),
            Plan::Wait(wait) => now += wait.min(25_000_000),
            Plan::Spell(..) => panic!("none was asked for"),
            Plan::Look(pauses) => {
                let mut times = Vec::new();
                for pause in pauses {
                    now += u64::from(pause) + late * (all.len() as u64 % 3) / 2;
                    times.push(now);
                    now += cost / 10;
                }
                all.extend(&times);
                schedule.looked(now, wanted, &times, cost * times.len() as u64);
            }
        }
    }
    all
}

/// Maximum cost within any second, as a share of one core.
fn busiest(times: &[u64], cost: u64) -> f64 {
    let most = times.iter().enumerate().map(|(first, begin)| {
        let end = times.partition_point(|time| *time < begin + SECOND);
        (end - first) as u64 * cost
    });
    most.max().unwrap_or(0) as f64 / SECOND as f64
}

fn sorted_pauses(times: &[u64]) -> Vec<u64> {
    let mut pauses: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    pauses.sort_unstable();
    pauses
}

#[test]
fn the_budget_is_kept_and_used() {
    // From a physical machine to an overloaded virtual one.
    for cost in [2_000, 5_000, 30_000, 200_000] {
        for budget in [1_000, 20_000, 200_000] {
            let mut schedule = Schedule::new(budget, 7, 0);
            let times = watch(&mut schedule, 0, 20 * SECOND, FASTEST, cost, 50_000);
            let share = f64::from(budget) / 1e6;
            let used = times.len() as f64 * cost as f64 / (20 * SECOND) as f64;
            assert!(
                busiest(&times, cost) <= share * 1.05 + cost as f64 / 1e9,
                "{cost} {budget}"
            );
            let asked = cost as f64 / (FASTEST + 25_000) as f64;
            assert!(
                used >= 0.8 * share.min(asked) - cost as f64 / 1e9,
                "{cost} {budget}: {used}"
            );
            let figures = schedule.figures(20 * SECOND);
            assert_eq!(figures.looks, times.len() as u64);
            // Holds even if looks are so rare that each is a run of its own.
            let median = sorted_pauses(&times)[(times.len() - 1) / 2];
            assert!(
                figures.period.abs_diff(median) <= median / 6,
                "{figures:?} {median}"
            );
            assert_eq!(figures.cpu, times.len() as u64 * cost);
            assert!(figures.busiest as f64 <= share * 1e9 + cost as f64);
        }
    }
}

#[test]
fn looks_that_become_dear_become_rare() {
    let mut schedule = Schedule::new(20_000, 7, 0);
    let cheap = watch(&mut schedule, 0, 5 * SECOND, FASTEST, 5_000, 0);
    let dear = watch(&mut schedule, 5 * SECOND, 5 * SECOND, FASTEST, 100_000, 0);
    assert!(
        cheap.len() > 10 * dear.len(),
        "{} {}",
        cheap.len(),
        dear.len()
    );
    // A cost above the expected one is noticed after one run.
    assert!(schedule.figures(10 * SECOND).busiest <= SECOND * 3 / 100);
}

#[test]
fn no_regular_program_is_met_always_at_the_same_place() {
    let mut schedule = Schedule::new(1_000_000, 99, 0);
    let times = watch(&mut schedule, 0, 10 * SECOND, SLOWEST, 5_000, 0);
    // Repetitions as long as the period, its multiples and its fractions: each tenth of a
    // repetition is met about equally often.
    for round in [SLOWEST / 4, SLOWEST, 2 * SLOWEST, 5 * SLOWEST] {
        let mut tenths = [0_usize; 10];
        for time in &times {
            tenths[(time % round * 10 / round) as usize] += 1;
        }
        let even = times.len() / 10;
        assert!(
            tenths.iter().all(|met| met.abs_diff(even) < even / 4),
            "{round}: {tenths:?}"
        );
    }
    let pauses: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let far = pauses
        .iter()
        .filter(|pause| pause.abs_diff(SLOWEST) > SLOWEST / 4)
        .count();
    assert!(far > pauses.len() / 3, "{far} of {}", pauses.len());
    let median = schedule.figures(times[times.len() - 1]).period;
    assert!(median.abs_diff(SLOWEST) < SLOWEST / 10, "{median}");
    let mut other = Schedule::new(1_000_000, 100, 0);
    assert_ne!(
        watch(&mut other, 0, SECOND, SLOWEST, 5_000, 0)[..50],
        times[..50],
        "another seed"
    );
}

#[test]
fn nobody_looks_while_nothing_is_expected() {
    let mut schedule = Schedule::new(20_000, 7, 0);
    for now in 0..100 {
        assert_eq!(schedule.plan(now * FASTEST, None, 8_000_000, 0), Plan::Rest);
    }
    let mut never = Schedule::new(0, 7, 0);
    assert_eq!(never.plan(SECOND, Some(FASTEST), 8_000_000, 0), Plan::Rest);
    never.wake(SECOND);
    assert_eq!(never.plan(SECOND, Some(FASTEST), 8_000_000, 0), Plan::Rest);
    assert_eq!(never.figures(SECOND).looks, 0);
}

#[test]
fn what_begins_is_looked_at_at_once_and_often() {
    let mut schedule = Schedule::new(20_000, 7, 0);
    watch(&mut schedule, 0, 10 * SECOND, FASTEST, 30_000, 0);
    // The period has grown to fit the budget; after a pause the whole budget is available
    // again.
    let begin = 13 * SECOND;
    schedule.wake(begin);
    let Plan::Look(pauses) = schedule.plan(begin, Some(FASTEST), 8_000_000, 0) else {
        panic!("looks")
    };
    assert_eq!(pauses[0], 0);
    assert!(pauses.len() >= 50, "{pauses:?}");
    assert!(
        pauses[1..]
            .iter()
            .all(|pause| (50_000..=150_000).contains(pause)),
        "{pauses:?}"
    );
}

#[test]
fn spells_take_half_of_the_budget() {
    const SPELL: u32 = 1_500_000;
    for (budget, has_spells) in [(20_000, true), (100_000, true), (5_000, false)] {
        let mut schedule = Schedule::new(budget, 7, 0);
        let (mut now, mut spells, mut looks) = (0, Vec::new(), 0);
        while now < 20 * SECOND {
            match schedule.plan(now, Some(FASTEST), 8_000_000, SPELL) {
                Plan::Rest => panic!("something is expected"),
                Plan::Wait(wait) => now += wait.min(25_000_000),
                Plan::Look(pauses) => {
                    let mut times = Vec::new();
                    for pause in pauses {
                        now += u64::from(pause) + 3_000;
                        times.push(now);
                    }
                    looks += times.len() as u64;
                    schedule.looked(now, FASTEST, &times, 35_000 * times.len() as u64);
                }
                Plan::Spell(pause, spell) => {
                    assert_eq!(spell, SPELL);
                    now += u64::from(pause);
                    spells.push(now);
                    now += u64::from(spell);
                    schedule.went_on(
                        now,
                        &[now - u64::from(spell)],
                        spell,
                        u64::from(spell) + 40_000,
                    );
                }
            }
        }
        let allowed = 20.0 * SECOND as f64 * f64::from(budget) / 1e6;
        let (single, long) = (looks as f64 * 35e3, spells.len() as f64 * 1.54e6);
        assert!(
            single + long <= 1.05 * allowed,
            "{single} {long} of {allowed}"
        );
        assert!(
            single + long >= 0.75 * allowed,
            "{single} {long} of {allowed}"
        );
        assert_eq!(!spells.is_empty(), has_spells);
        if has_spells {
            assert!(
                (0.35..=0.55).contains(&(long / allowed)),
                "{long} of {allowed}"
            );
            let apart = sorted_pauses(&spells);
            assert!(
                apart[apart.len() * 3 / 4] > apart[apart.len() / 4] * 5 / 4,
                "jittered"
            );
        }
        let figures = schedule.figures(20 * SECOND);
        assert_eq!(figures.looks, looks + spells.len() as u64);
        assert!(
            figures.busiest as f64 <= allowed / 20.0 * 1.05,
            "{figures:?}"
        );
    }
}

#[test]
fn runs_are_no_longer_than_allowed() {
    let mut schedule = Schedule::new(1_000_000, 7, 0);
    assert_eq!(
        schedule.plan(0, Some(FASTEST), 1_000_000, 0),
        Plan::Look(vec![0]),
        "the first one"
    );
    schedule.looked(0, FASTEST, &[0], 5_000);
    let Plan::Look(pauses) = schedule.plan(0, Some(FASTEST), 1_000_000, 0) else {
        panic!("looks")
    };
    assert!(
        pauses.len() > 4 && pauses.iter().map(|pause| u64::from(*pause)).sum::<u64>() <= 1_000_000
    );
    schedule.looked(900_000, SLOWEST, &[900_000], 1);
    assert!(matches!(
        schedule.plan(900_000, Some(SLOWEST), 100_000, 0),
        Plan::Wait(_)
    ));
}

#[test]
fn medians_are_near() {
    let mut schedule = Schedule::new(20_000, 7, 0);
    assert_eq!(schedule.figures(0).period, 0);
    for period in [5, 100, 200_000, 417_000, 430_000, 9_000_000, u64::MAX] {
        schedule.periods.add(period);
    }
    assert!(schedule.periods.median().abs_diff(417_000) < 417_000 / 16);
}
