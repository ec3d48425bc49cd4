//! The same input gives the same estimates, to the last bit.

mod simulator;

use gputrace_tomography::Tomograph;
use simulator::{Duration, Given, Scenario, given};

/// Packets of several queues that are submitted later than this are missing, ns: looks at them are
/// held back until the end, where each queue learns from what those before it taught the model.
const MISSING_FROM: u64 = 2_300_000_000;

#[test]
fn estimates_are_the_same_each_time() {
    let scenario = Scenario {
        queues: 6,
        step: 8,
        classes: (2..10)
            .map(|tens| Duration::Spread(10.0 * f64::from(tens), 0.05))
            .collect(),
        seconds: 1.5,
        ..Scenario::default()
    };
    let mut all = given(&scenario, 1);
    all.retain(|one| !matches!(one, Given::Packet(_, packet) if packet.submitted > MISSING_FROM));
    // All digits that tell a floating-point number from others are printed.
    let estimates = || {
        let mut tomograph = Tomograph::new();
        all.iter().for_each(|one| one.give(&mut tomograph));
        tomograph.finish();
        let classes: Vec<_> = tomograph.classes().collect();
        format!("{classes:?} {:?} {:?}", tomograph.gap(), tomograph.spread())
    };
    let first = estimates();
    assert!(first.contains("Apart"), "nothing is estimated: {first}");
    for _ in 0..4 {
        assert_eq!(estimates(), first);
    }
}
