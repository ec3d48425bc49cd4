//! Which range is around a call.

use super::*;

fn within(call: Call, correlation: u64, parent: u64, depth: u16) -> Call {
    Call {
        correlation,
        parent,
        depth,
        ..call
    }
}

/// Each call's correlation id and that of what directly encloses it.
fn around(events: &[Event]) -> Vec<(u64, u64)> {
    let calls = events.iter().filter_map(|event| match event {
        Event::Call(call) => Some((call.correlation, call.around())),
        _ => None,
    });
    calls.collect()
}

/// Passes calls to `Ranges` as the timeline does.
fn told(calls: impl IntoIterator<Item = Call>) -> (Ranges, Vec<Event>) {
    let (mut ranges, mut events) = (ranges(), Vec::new());
    for mut call in calls {
        if ranges.passes(&mut call) {
            events.push(Event::Call(call));
        } else {
            ranges.call(call, &mut events);
        }
    }
    (ranges, events)
}

#[test]
fn calls_are_in_the_ranges_around_them() {
    let malloc = |begin, correlation, parent, depth| {
        within(call("hipMalloc", begin, 0), correlation, parent, depth)
    };
    let push = |begin, correlation, parent, depth, level| {
        within(
            text(call("roctxRangePushA", begin, level), "range"),
            correlation,
            parent,
            depth,
        )
    };
    let pop = |begin, parent, depth, level| {
        within(
            call("roctxRangePop", begin, level),
            1000 + begin,
            parent,
            depth,
        )
    };
    let (_, events) = told([
        malloc(5, 1, 0, 0),
        push(10, 2, 0, 0, 0),
        malloc(20, 3, 0, 0),
        // A call inside a call, which comes after it, and a range in the inner one.
        malloc(32, 5, 4, 1),
        push(34, 6, 4, 1, 1),
        malloc(35, 7, 4, 1),
        malloc(36, 8, 7, 2),
        pop(38, 4, 1, 1),
        Call {
            end: 40,
            ..malloc(30, 4, 0, 0)
        },
        push(50, 9, 0, 0, 1),
        malloc(52, 10, 0, 0),
        pop(60, 0, 0, 1),
        pop(70, 0, 0, 0),
        malloc(80, 11, 0, 0),
    ]);
    let expected = [
        (1, 0),
        (3, 2),
        (5, 4),
        (7, 6),
        (8, 7),
        (6, 4),
        (4, 2),
        (10, 9),
        (9, 2),
        (2, 0),
        (11, 0),
    ];
    assert_eq!(around(&events), expected);
}

#[test]
fn ranges_outlive_the_calls_that_begin_them() {
    // As C++ objects do: call 2 begins the range, call 5 ends it, both inside call 1.
    let (_, events) = told([
        within(call("hipMalloc", 10, 0), 2, 1, 1),
        within(text(call("roctxRangePushA", 11, 0), "object"), 3, 2, 2),
        within(call("hipMalloc", 20, 0), 4, 1, 1),
        within(call("roctxRangePop", 31, 0), 6, 5, 2),
    ]);
    assert_eq!(around(&events), [(2, 1), (4, 3), (3, 1)]);
}
