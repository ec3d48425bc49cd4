use std::collections::HashMap;

use gputrace_timeline::event::{Call, CallEnd, Event};
use proptest::prelude::*;

use super::{call, trace};

/// A call and the calls inside it.
#[derive(Clone, Debug)]
struct Node {
    /// Time in ns since the end of the previous call, or since the begin of the enclosing one.
    gap: u64,
    /// Time in ns after the last call inside.
    rest: u64,
    inside: Vec<Node>,
}

fn forest() -> impl Strategy<Value = Vec<Node>> {
    let leaf = (0..3_u64, 0..4_u64).prop_map(|(gap, rest)| Node {
        gap,
        rest,
        inside: Vec::new(),
    });
    let node = leaf.prop_recursive(5, 40, 4, |inner| {
        (0..3_u64, 0..4_u64, proptest::collection::vec(inner, 0..4))
            .prop_map(|(gap, rest, inside)| Node { gap, rest, inside })
    });
    proptest::collection::vec(node, 1..6)
}

/// Whether two calls may begin in the same nanosecond.
#[derive(Clone, Copy, PartialEq)]
enum Begins {
    MayCoincide,
    Differ,
}

struct Layout {
    begins: Begins,
    now: u64,
    last_begin: u64,
    calls: Vec<Call>,
}

impl Layout {
    /// The calls of `forest` in pre-order: by begin, and enclosing calls first.
    fn calls(forest: &[Node], begins: Begins) -> Vec<Call> {
        let mut layout = Self {
            begins,
            now: 1_000,
            last_begin: 0,
            calls: Vec::new(),
        };
        layout.add(forest, 0, 0);
        layout.calls
    }

    fn add(&mut self, nodes: &[Node], parent: u64, depth: u16) {
        for node in nodes {
            let mut begin = self.now + node.gap;
            if self.begins == Begins::Differ {
                begin = begin.max(self.last_begin + 1);
            }
            self.last_begin = begin;
            self.now = begin;
            let index = self.calls.len();
            let correlation = index as u64 + 1;
            self.calls.push(Call {
                depth,
                ..call(correlation, parent, begin, begin)
            });
            self.add(&node.inside, correlation, depth + 1);
            self.now += node.rest;
            self.calls[index].end = self.now;
        }
    }
}

/// Checks that each call has one slice, inside that of its parent, with the call's times up to a
/// few ns where calls took no time.
fn check(calls: &[Call], ordered: &[Call]) -> Result<(), TestCaseError> {
    let events: Vec<Event> = ordered.iter().cloned().map(Event::Call).collect();
    let decoded = trace(&events);
    prop_assert_eq!(decoded.slices.len(), calls.len());
    let slices: HashMap<u64, _> = decoded
        .slices
        .iter()
        .map(|slice| (slice.corr_id(), slice))
        .collect();
    let instant = calls.iter().filter(|call| call.begin == call.end).count() as u64;
    for call in calls {
        let slice = slices[&call.correlation];
        prop_assert_eq!(
            slice.inside.unwrap_or(0),
            call.parent,
            "call {}",
            call.correlation
        );
        prop_assert!(slice.begin < slice.end);
        prop_assert!(slice.begin.abs_diff(call.begin) <= instant);
        prop_assert!(slice.end.abs_diff(call.end) <= instant);
        if slice.begin != call.begin {
            prop_assert_eq!(slice.note("begin_ns"), call.begin.to_string());
            prop_assert_eq!(slice.note("end_ns"), call.end.to_string());
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn calls_of_one_group_nest_whatever_coincides(forest in forest()) {
        let calls = Layout::calls(&forest, Begins::MayCoincide);
        check(&calls, &calls)?;
    }

    /// Groups as the collector's rounds produce them: sorted by end, and by begin inside.
    #[test]
    fn calls_of_several_groups_nest(forest in forest(), round in 1..40_u64) {
        let calls = Layout::calls(&forest, Begins::Differ);
        let mut ordered = calls.clone();
        ordered.sort_by_key(|call| (call.end / round, call.begin));
        check(&calls, &ordered)?;
    }

    /// The decoder checks that every begin has an end and vice versa.
    #[test]
    fn damaged_calls_still_make_a_readable_trace(
        calls in proptest::collection::vec((0..60_u64, 0..60_u64, 0..5_u64, 0..3_u32, 0..4_u8), 0..60),
        far in any::<u64>(),
    ) {
        let events: Vec<Event> = calls.iter().enumerate().map(|(index, &(begin, end, parent, tid, how))| {
            let mut call = call(index as u64 + 1, parent, begin, end);
            call.tid = tid;
            call.how = match how {
                0 => CallEnd::ThreadExited,
                1 => CallEnd::RecordingStopped,
                _ => CallEnd::Returned(far),
            };
            if index % 17 == 16 {
                call.end = far;
                call.function = tid;
            }
            Event::Call(call)
        }).collect();
        prop_assert_eq!(trace(&events).slices.len(), calls.len());
    }
}

#[test]
fn a_call_that_overlaps_another_is_cut_and_says_so() {
    let decoded = trace(&[
        Event::Call(call(1, 0, 10, 20)),
        Event::Call(call(2, 1, 15, 25)),
    ]);
    let cut = decoded.slice(2);
    assert_eq!((cut.inside, cut.begin, cut.end), (Some(1), 15, 20));
    assert_eq!((cut.note("begin_ns"), cut.note("end_ns")), ("15", "25"));
    assert_eq!(decoded.slice(1).end, 20);
    assert_eq!(decoded.slice(1).note("end_ns"), "(none)");
}

#[test]
fn an_enclosing_call_may_come_after_the_calls_inside() {
    let decoded = trace(&[
        Event::Call(call(2, 1, 10, 15)),
        Event::Call(call(1, 0, 5, 20)),
        Event::Call(call(3, 1, 16, 20)),
    ]);
    assert_eq!(decoded.slice(2).inside, Some(1));
    assert_eq!(decoded.slice(3).inside, Some(1));
    assert_eq!((decoded.slice(1).begin, decoded.slice(1).end), (5, 20));
    assert!(
        decoded
            .slices
            .iter()
            .all(|slice| slice.note("begin_ns") == "(none)")
    );
}
