//! Means against a truth.

mod simulator;

use simulator::{Duration, Launch, Order, Outcome, Random, Scenario, classes, run};

/// All scenarios, with how far a mean of a class among those that make 95 % of the time may be off.
fn scenarios(seed: u64) -> Vec<(Scenario, f64)> {
    let mut random = Random::new(seed ^ 77);
    let mut all = Vec::new();
    let mut add = |scenario: Scenario, most: f64| all.push((scenario, most));
    for spread in [0.0, 0.05] {
        for (name, count) in [("random 3", 3), ("random 20", 20), ("random 80", 80)] {
            add(Scenario { name, classes: classes(count, seed, spread), ..Scenario::default() }, 0.05);
        }
    }
    for (name, period, count) in [("periodic 40", 40, 25), ("periodic 400", 400, 60)] {
        add(
            Scenario {
                name,
                classes: classes(count, seed, 0.02),
                order: Order::Periodic((0..period).map(|_| random.below(count)).collect()),
                launch: Launch::Bursts { count: period, pause: 2_000.0 },
                ..Scenario::default()
            },
            0.1,
        );
    }
    add(
        Scenario {
            name: "periodic 40, all different",
            classes: classes(40, seed, 0.02),
            order: Order::Periodic((0..40).collect()),
            launch: Launch::Bursts { count: 40, pause: 2_000.0 },
            ..Scenario::default()
        },
        0.1,
    );
    add(
        Scenario { name: "four streams", queues: 4, classes: classes(20, seed, 0.05), ..Scenario::default() },
        0.05,
    );
    let mut either = classes(20, seed, 0.05);
    either[0] = Duration::Either(100.0, 900.0, 0.3);
    either[1] = Duration::Either(50.0, 150.0, 0.5);
    add(Scenario { name: "bimodal", classes: either, ..Scenario::default() }, 0.05);
    let drift = classes(20, seed, 0.0).into_iter().map(|class| match class {
        Duration::Fixed(mean) => Duration::Drift(mean, mean * 1.2),
        other => other,
    });
    add(Scenario { name: "drift of 20 %", classes: drift.collect(), ..Scenario::default() }, 0.1);
    for (name, share) in [("use 1 %", 0.01), ("use 10 %", 0.1), ("use 50 %", 0.5)] {
        for is_random in [false, true] {
            let durations = [8.0, 20.0, 45.0, 100.0].map(|mean| Duration::Spread(mean, 0.03));
            let mean = 43.0 / share;
            add(
                Scenario {
                    name,
                    classes: durations.to_vec(),
                    launch: Launch::Apart { mean, is_random },
                    ..Scenario::default()
                },
                0.1,
            );
        }
    }
    let short = vec![Duration::Fixed(3.0), Duration::Fixed(4.0)];
    let apart = |mean| Launch::Apart { mean, is_random: false };
    add(Scenario { name: "3 us, long gaps", classes: short.clone(), launch: apart(500.0), ..Scenario::default() }, 0.1);
    add(Scenario { name: "one a second", classes: short, launch: apart(1e6), ..Scenario::default() }, 0.1);
    add(Scenario { name: "200 ms", seconds: 0.2, classes: classes(20, seed, 0.05), ..Scenario::default() }, 0.3);
    add(
        Scenario { name: "random 20, some exact", exact: 50, classes: classes(20, seed, 0.05), ..Scenario::default() },
        0.05,
    );
    add(
        Scenario {
            name: "periodic 5",
            classes: [500.0, 100.0, 1000.0, 300.0, 50.0].map(Duration::Fixed).to_vec(),
            order: Order::Periodic((0..5).collect()),
            launch: Launch::Bursts { count: 5, pause: 2_000.0 },
            ..Scenario::default()
        },
        0.1,
    );
    all
}

/// Ways in which the index is reported and looked at.
const WAYS: [(u64, f64, f64); 6] =
    [(1, 1000.0, 0.2), (16, 1000.0, 0.2), (1, 200.0, 0.2), (16, 200.0, 0.2), (1, 1000.0, 0.01), (1, 200.0, 0.01)];

#[test]
fn means_are_right_or_not_told() {
    let seeds = std::env::var("SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(3_u64);
    println!(
        "{:28} {:>4} {:>5} {:>5} {:>8} {:>8} {:>7} {:>9} {:>6} {:>6} {:>5} {:>6}",
        "scenario", "step", "look", "jit", "packets", "median", "worst", "told", "rank", "cover", "gap", "spread"
    );
    let only = std::env::var("ONLY").unwrap_or_default();
    for number in 0..scenarios(1).len() {
        if !scenarios(1)[number].0.name.contains(&only) {
            continue;
        }
        for (step, every, jitter) in WAYS {
            let (mut worst, mut ranks, mut told, mut heavy) = (Vec::new(), Vec::new(), 0, 0);
            let (mut covered, mut all) = (0, 0);
            let mut name = "";
            let (mut gap, mut spread, mut packets) = (0.0, 0.0, 0);
            for seed in 1..=seeds {
                let (mut scenario, _) = scenarios(seed).swap_remove(number);
                (scenario.step, scenario.looks) = (step, (every, jitter));
                name = scenario.name;
                let outcome = run(&scenario, seed);
                let (off, some, of) = Outcome::worst(&outcome.heavy());
                worst.push(off);
                ranks.push(outcome.rank());
                told += some;
                heavy += of;
                let (within, of) = outcome.covered();
                covered += within;
                all += of;
                gap += outcome.gap / seeds as f64;
                spread += outcome.spread / seeds as f64;
                packets += outcome.packets / seeds;
            }
            worst.sort_by(f64::total_cmp);
            println!(
                "{name:28} {step:>4} {every:>5} {jitter:>5} {packets:>8} {:>7.1}% {:>6.1}% {told:>4}/{heavy:<4} {:>6.3} {:>5.0}% {:>5.1} {:>6.3}",
                100.0 * worst[worst.len() / 2],
                100.0 * worst.last().unwrap(),
                ranks.iter().copied().fold(1.0, f64::min),
                100.0 * covered as f64 / f64::from(all.max(1) as u32),
                gap / 1e3,
                spread,
            );
        }
    }
}

#[test]
#[ignore = "prints one scenario in detail"]
fn detail() {
    let number = |name: &str, value: f64| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(value);
    let seed = number("SEED", 1.0) as u64;
    let (mut scenario, _) = scenarios(seed).swap_remove(number("NUMBER", 0.0) as usize);
    scenario.step = number("STEP", 1.0) as u64;
    scenario.looks = (number("LOOK", 1000.0), 0.2);
    let outcome = run(&scenario, seed);
    println!("{} {} packets, gap {:.1}, spread {:.3}", scenario.name, outcome.packets, outcome.gap / 1e3, outcome.spread);
    for (row, class) in outcome.rows.iter().zip(0..) {
        println!("{class:3} {:6} {:9.1} {:?}", row.count, row.truth / 1e3, row.told);
        if let gputrace_tomography::Told::Apart(mean) = row.told {
            println!("      {:+.1} %, {:+.1} errors", 100.0 * (mean.value / row.truth - 1.0), (mean.value - row.truth) / mean.error);
        }
    }
}
