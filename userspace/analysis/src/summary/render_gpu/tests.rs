use gputrace_timeline::{
    event::Event,
    gpu::{KernelClass, Told},
};

use super::*;
use gputrace_export::synthetic::{START, dispatch, estimated, events, submitted};

/// The first line that begins with `begin`, ignoring leading spaces; empty if there is none.
fn line<'a>(text: &'a str, begin: &str) -> &'a str {
    text.lines()
        .find(|line| line.trim_start().starts_with(begin))
        .unwrap_or_default()
}

#[test]
fn totals_have_errors_and_what_is_not_known_is_counted() {
    let mut summary = Summary::default();
    for event in events()
        .iter()
        .filter(|event| !matches!(event, Event::Dispatch(_) | Event::End(_)))
    {
        summary.event(event);
    }
    let mut id = 0;
    let mut add = |kernel, time| {
        id += 1;
        let mut work = dispatch(id, START + id * 1000, time);
        work.kernel = Some(kernel);
        summary.event(&Event::Dispatch(Box::new(work)));
    };
    // The second kernel takes more time in total, though it ran less often and has the larger
    // error.
    for number in 1..=10 {
        let begin = START + number * 10_000_000;
        add(1, estimated(begin, begin + 10_400, 0, 300));
        if number > 8 {
            add(2, estimated(begin + 1_000_000, begin + 1_200_000, 1, 9_000));
        }
    }
    add(1, submitted(START + 200_000_000, false));
    for (number, told) in [(0, Told::Apart), (1, Told::Apart), (2, Told::Mixed)] {
        summary.event(&Event::KernelClass(Box::new(KernelClass {
            number,
            told,
            ..KernelClass::default()
        })));
    }
    summary.finish();
    let text = summary.to_string();
    let (first, second) = (line(&text, "hang"), line(&text, "add("));
    assert!(
        first.contains("400 us +-18") && first.contains("200 us +-9"),
        "{text}"
    );
    assert!(
        second.contains(">= 104 us +-3")
            && second.contains("10.4 us +-0.3")
            && second.contains("1 of 11 not known"),
        "{text}"
    );
    assert!(text.find(first) < text.find(second), "{text}");
    assert!(
        text.contains("durations of 2 of 3 kernel classes are estimates (+-3.6 % of the GPU's time); 1 cannot be told apart"),
        "{text}"
    );
    assert!(!text.contains("AT LEAST"), "{text}");
}

#[test]
fn a_busy_gpu_has_a_number_only_where_something_is_known() {
    let shown = |ns, meaning, shares| busy_figures(ns, meaning, shares);
    assert_eq!(
        shown(0.0, Meaning::Nothing, [0.0, 0.0, 95.81]),
        ["-", "0.00-95.81"]
    );
    assert_eq!(
        shown(5e6, Meaning::Least, [1.5, 1.25, 95.81]),
        [">= 5.00 ms", ">= 1.50 (1.25-95.81)"]
    );
    assert_eq!(
        shown(5e6, Meaning::Estimate, [1.5, 1.25, 2.0]),
        ["5.00 ms", "1.50 (1.25-2.00)"]
    );
    assert_eq!(shown(0.0, Meaning::Estimate, [0.0; 3]), ["0 ns", "0.00"]);
}

#[test]
fn a_huge_error_has_no_confident_number() {
    let mut summary = Summary::default();
    let work = dispatch(
        1,
        START,
        estimated(START + 1000, START + 12_345, 0, 500_000),
    );
    summary.event(&Event::Dispatch(Box::new(work)));
    summary.finish();
    let text = summary.to_string();
    let row = line(&text, "(unknown kernel");
    assert!(
        row.contains("0 us +-500") && !row.contains("12.3"),
        "{text}"
    );
}
