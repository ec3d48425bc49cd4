use std::collections::BTreeMap;

use gputrace_timeline::{event::Call, synthetic};
use proptest::prelude::*;

use super::tree::{Stats, Thread};

fn call(function: u32, correlation: u64, parent: u64, begin: u64, end: u64) -> Call {
    Call {
        function,
        parent,
        ..synthetic::call(correlation, begin, end)
    }
}

/// Function, depth, calls, sum, own time.
type Line = (u32, usize, u64, u64, u64);

fn report(calls: &[Call]) -> (Vec<Line>, u64) {
    let mut thread = Thread::default();
    for call in calls {
        thread.take(call);
    }
    let (tree, strays) = thread.finish();
    let rows = tree
        .rows()
        .map(|(function, depth, stats, own)| (function, depth, stats.count, stats.sum, own))
        .collect();
    (rows, strays)
}

#[test]
fn calls_inside_may_come_first() {
    let outer = call(1, 10, 0, 0, 100);
    let middle = call(2, 11, 10, 10, 60);
    let inner = call(3, 12, 11, 20, 30);
    let sibling = call(2, 13, 10, 70, 90);
    let expected = vec![(1, 0, 1, 100, 30), (2, 1, 2, 70, 60), (3, 2, 1, 10, 10)];
    for order in [
        [&outer, &middle, &inner, &sibling],
        [&inner, &middle, &sibling, &outer],
        [&middle, &inner, &sibling, &outer],
        [&inner, &middle, &outer, &sibling],
    ] {
        let calls: Vec<Call> = order.into_iter().cloned().collect();
        assert_eq!(report(&calls), (expected.clone(), 0));
    }
}

#[test]
fn callers_that_are_lost_are_told() {
    let outer = call(1, 10, 0, 0, 100);
    // Its caller, 11, was lost.
    let inner = call(3, 12, 11, 20, 30);
    assert_eq!(
        report(&[outer.clone(), inner.clone()]),
        (vec![(1, 0, 1, 100, 90), (3, 1, 1, 10, 10)], 1)
    );
    assert_eq!(report(&[inner]), (vec![(3, 0, 1, 10, 10)], 1));
}

/// The call directly inside a range.
fn inside(range: u64, call: Call) -> Call {
    Call { range, ..call }
}

#[test]
fn ranges_contain_what_is_made_in_them() {
    // Function 1 calls 2 twice: in range 8 inside range 9, and after it. Ranges come when they have
    // ended.
    let in_range = inside(12, call(2, 13, 10, 20, 30));
    let inner = inside(11, call(8, 12, 10, 15, 40));
    let outer = call(9, 11, 10, 10, 60);
    let after = call(2, 14, 10, 70, 75);
    let whole = call(1, 10, 0, 0, 100);
    let expected = vec![
        (1, 0, 1, 100, 45),
        (9, 1, 1, 50, 25),
        (8, 2, 1, 25, 15),
        (2, 3, 1, 10, 10),
        (2, 1, 1, 5, 5),
    ];
    for order in [
        [&whole, &in_range, &inner, &outer, &after],
        [&in_range, &inner, &outer, &whole, &after],
        [&in_range, &inner, &outer, &after, &whole],
    ] {
        let calls: Vec<Call> = order.into_iter().cloned().collect();
        assert_eq!(report(&calls), (expected.clone(), 0));
    }
    // Without an enclosing call.
    let alone = inside(11, call(2, 13, 0, 20, 30));
    let outer = call(9, 11, 0, 10, 60);
    assert_eq!(
        report(&[alone.clone(), outer]),
        (vec![(9, 0, 1, 50, 40), (2, 1, 1, 10, 10)], 0)
    );
    assert_eq!(report(&[alone]), (vec![(2, 0, 1, 10, 10)], 1));
}

#[test]
fn statistics() {
    let calls: Vec<Call> = [2_u64, 4, 4, 4, 5, 5, 7, 9]
        .iter()
        .zip(1_u64..)
        .map(|(time, number)| call(1, number, 0, number * 100, number * 100 + time))
        .collect();
    let mut thread = Thread::default();
    calls.iter().for_each(|call| thread.take(call));
    let (tree, _) = thread.finish();
    let (_, _, stats, _) = tree.rows().next().unwrap();
    let expected = Stats {
        count: 8,
        sum: 40,
        squares: 232,
        min: 2,
        max: 9,
    };
    assert_eq!(stats, expected);
    assert!((stats.mean() - 5.0).abs() < 1e-9);
    // Variance is 32 divided by 7.
    assert!((stats.variance() - 32.0 / 7.0).abs() < 1e-9);
}

#[test]
fn absurd_times_do_not_panic() {
    let long = |number| call(1, number, 0, 0, u64::MAX);
    let mut thread = Thread::default();
    thread.take(&long(1));
    thread.take(&long(2));
    let (tree, _) = thread.finish();
    let (_, _, stats, own) = tree.rows().next().unwrap();
    assert_eq!((stats.sum, own), (u64::MAX, u64::MAX));
    assert!(stats.deviation().is_finite());
}

/// A synthetic call and the calls inside it.
#[derive(Clone, Debug)]
struct Work {
    function: u32,
    inside: Vec<Work>,
    /// Whether it is a range instead of a call.
    is_range: bool,
}

fn work() -> impl Strategy<Value = Vec<Work>> {
    let leaf = (0_u32..3).prop_map(|function| Work {
        function,
        inside: Vec::new(),
        is_range: false,
    });
    let nested = leaf.prop_recursive(5, 60, 5, |inner| {
        let parts = (0_u32..3, prop::collection::vec(inner, 0..5), any::<bool>());
        parts.prop_map(|(function, inside, is_range)| Work {
            function,
            inside,
            is_range,
        })
    });
    prop::collection::vec(nested, 0..5)
}

/// Makes the calls, and their numbers and times by path.
fn perform(
    work: &[Work],
    path: &mut Vec<u32>,
    (parent, range): (u64, u64),
    clock: &mut u64,
    calls: &mut Vec<(bool, Call)>,
    truth: &mut BTreeMap<Vec<u32>, (u64, u64)>,
) {
    for one in work {
        *clock += 1;
        let (begin, index) = (*clock, calls.len());
        let correlation = index as u64 + 1;
        calls.push((
            one.is_range,
            inside(range, call(one.function, correlation, parent, begin, begin)),
        ));
        path.push(one.function);
        let around = if one.is_range {
            (parent, correlation)
        } else {
            (correlation, 0)
        };
        perform(&one.inside, path, around, clock, calls, truth);
        *clock += 1;
        calls[index].1.end = *clock;
        let known = truth.entry(path.clone()).or_default();
        *known = (known.0 + 1, known.1 + *clock - begin);
        path.pop();
    }
}

proptest! {
    /// Calls come as the timeline emits them: in groups by their ends, each group in order of
    /// begin. Ranges come when the call that ends them would.
    #[test]
    fn the_order_of_groups_does_not_matter(work in work(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6)) {
        let (mut calls, mut truth) = (Vec::new(), BTreeMap::new());
        perform(&work, &mut Vec::new(), (0, 0), &mut 0, &mut calls, &mut truth);
        let last = calls.iter().map(|(_, call)| call.end).max().unwrap_or(0) as usize;
        let mut cuts: Vec<u64> = cuts.iter().map(|cut| cut.index(last + 1) as u64).collect();
        cuts.push(u64::MAX);
        cuts.sort_unstable();
        let group = |call: &Call| cuts.partition_point(|cut| *cut < call.end);
        calls.sort_by_key(|(is_range, call)| (group(call), if *is_range { call.end } else { call.begin }));
        let calls: Vec<Call> = calls.into_iter().map(|(_, call)| call).collect();

        let (rows, strays) = report(&calls);
        prop_assert_eq!(strays, 0);
        let mut found = BTreeMap::new();
        let mut path = Vec::new();
        for (function, depth, count, sum, own) in &rows {
            path.truncate(*depth);
            path.push(*function);
            found.insert(path.clone(), (*count, *sum));
            prop_assert!(own <= sum);
        }
        prop_assert_eq!(&found, &truth);
        // Own times add up to the time of the outermost calls.
        let own: u64 = rows.iter().map(|row| row.4).sum();
        let outermost: u64 = rows.iter().filter(|row| row.1 == 0).map(|row| row.3).sum();
        prop_assert_eq!(own, outermost);
    }

    #[test]
    fn any_calls(list in prop::collection::vec((0_u32..4, 1_u64..20, 0_u64..20, 0_u64..50, 0_u64..50), 0..40)) {
        let calls: Vec<Call> = list
            .into_iter()
            .map(|(function, correlation, parent, begin, length)| call(function, correlation, parent, begin, begin + length))
            .collect();
        let (rows, _) = report(&calls);
        prop_assert_eq!(rows.iter().map(|row| row.2).sum::<u64>(), calls.len() as u64);
    }
}
