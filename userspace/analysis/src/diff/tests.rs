use super::*;
use gputrace_export::synthetic::{START, dispatch, estimated, events, exact, submitted};

fn side(change: impl Fn(Event) -> Option<Event>) -> Side {
    let mut side = Side::default();
    for event in events().into_iter().filter_map(change) {
        side.event(&event);
    }
    side
}

#[test]
fn a_recording_does_not_differ_from_itself() {
    let difference = Difference::new(&side(Some), &side(Some));
    assert!(!difference.rows.is_empty());
    for row in &difference.rows {
        assert_eq!(row.change_ns, 0);
        assert!(
            matches!(row.verdict, Verdict::Same | Verdict::Unmeasured),
            "{row:?}"
        );
    }
}

#[test]
fn what_a_damaged_recording_lacks_is_not_gone() {
    let damaged = || side(|event| matches!(event, Event::Recording(_)).then_some(event));
    for difference in [
        Difference::new(&side(Some), &damaged()),
        Difference::new(&damaged(), &side(Some)),
    ] {
        assert!(!difference.rows.is_empty());
        let mut rows = difference.rows.iter();
        assert!(rows.all(|row| row.verdict == Verdict::Unmeasured));
    }
}

#[test]
fn slower_kernels_come_first_and_gone_calls_are_named() {
    let after = side(|event| match event {
        Event::Dispatch(mut dispatch) => {
            dispatch.time.end += 1_000_000;
            Some(Event::Dispatch(dispatch))
        }
        Event::Call(call) if call.function == 1 => None,
        other => Some(other),
    });
    let difference = Difference::new(&side(Some), &after);
    let first = &difference.rows[0];
    assert_eq!((first.domain, first.verdict), ("kernel", Verdict::Slower));
    assert!(first.ratio.unwrap() > 1.0 && first.change_ns > 0);
    let gone: Vec<_> = difference
        .rows
        .iter()
        .filter(|row| row.verdict == Verdict::Gone)
        .collect();
    assert_eq!(gone.len(), 1);
    assert_eq!(gone[0].name, "hsa_signal_store_relaxed");
    let text = difference.text(2);
    assert!(
        text.contains("slower") && text.contains("more rows changed less"),
        "{text}"
    );
    let value: serde_json::Value = serde_json::from_str(&difference.json()).unwrap();
    assert_eq!(value["rows"][0]["verdict"], "slower");
    assert_eq!(
        value["rows"].as_array().unwrap().len(),
        difference.rows.len()
    );
}

#[test]
fn a_change_within_the_errors_is_none() {
    let of = |us: u64, error: u64| {
        let mut side = Side::default();
        for id in 1..=10 {
            let begin = START + id * 1_000_000;
            let work = dispatch(id, begin, estimated(begin, begin + us * 1000, 1, error));
            side.event(&Event::Dispatch(Box::new(work)));
        }
        side
    };
    let verdict = |before: &Side, after: &Side| {
        let difference = Difference::new(before, after);
        (difference.rows[0].verdict, difference.text(0))
    };
    // The standard error of the difference is 5 us.
    assert_eq!(verdict(&of(100, 3000), &of(109, 4000)).0, Verdict::Same);
    assert_eq!(verdict(&of(109, 3000), &of(100, 4000)).0, Verdict::Same);
    let (slower, text) = verdict(&of(100, 3000), &of(111, 4000));
    assert_eq!(slower, Verdict::Slower);
    assert_eq!(verdict(&of(111, 3000), &of(100, 4000)).0, Verdict::Faster);
    assert!(text.contains("estimates"), "{text}");
    let text = Difference::new(&of(100, 3000), &of(111, 4000)).text(5);
    assert!(
        text.contains("100 us +-3") && text.contains("111 us +-4"),
        "{text}"
    );
}

#[test]
fn what_is_not_known_makes_no_change() {
    let of = |us: u64, known: u64| {
        let mut side = Side::default();
        for id in 1..=100 {
            let begin = START + id * 1_000_000;
            let time = if id <= known {
                exact(begin, begin + us * 1000)
            } else {
                submitted(begin, false)
            };
            side.event(&Event::Dispatch(Box::new(dispatch(id, begin, time))));
        }
        side
    };
    let verdict = |before: &Side, after: &Side| Difference::new(before, after).rows[0].verdict;
    // Those that are known in one recording need not be those that are in the other.
    assert_eq!(verdict(&of(100, 60), &of(140, 70)), Verdict::Unmeasured);
    assert_eq!(verdict(&of(140, 70), &of(100, 60)), Verdict::Unmeasured);
    assert_eq!(verdict(&of(100, 100), &of(100, 60)), Verdict::Same);
    // Of a few it makes no difference.
    assert_eq!(verdict(&of(100, 99), &of(140, 98)), Verdict::Slower);
    assert_eq!(verdict(&of(140, 99), &of(100, 98)), Verdict::Faster);
    let text = Difference::new(&of(100, 60), &of(140, 70)).text(0);
    let row = Difference::new(&of(100, 60), &of(140, 70)).text(1);
    let row = row
        .lines()
        .find(|line| line.contains("unmeasured"))
        .unwrap();
    assert!(row.contains(">= 6.00 ms  >= 9.80 ms"), "{row}");
    assert!(row.contains("?") && !row.contains("1.40"), "{row}");
    assert!(text.contains("Totals marked >="), "{text}");
}

#[test]
fn one_side_may_be_empty() {
    let empty = Side {
        is_whole: true,
        ..Side::default()
    };
    let full = side(Some);
    for row in Difference::new(&empty, &full).rows {
        assert_eq!((row.verdict, row.before), (Verdict::New, None));
    }
    for row in Difference::new(&full, &empty).rows {
        assert_eq!((row.verdict, row.after), (Verdict::Gone, None));
    }
    assert!(
        Difference::new(&empty, &empty)
            .text(10)
            .contains("Neither recording")
    );
}
