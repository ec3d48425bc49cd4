//! Times that a double cannot hold exactly: from 2^53 ns on, after 104 days without a restart.

#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{export, number, open, text};
use gputrace_export::{
    synthetic::{self, dispatch, exact},
    testing::check_by_reader,
};
use gputrace_timeline::{
    event::{Call, Event},
    synthetic::call,
};

/// A call and a kernel, each from `begin` to `end`.
fn events(begin: u64, end: u64) -> Vec<Event> {
    let mut events = synthetic::events();
    events.retain(|event| !matches!(event, Event::Call(_) | Event::Dispatch(_) | Event::Copy(_)));
    let last = events.split_off(events.len() - 2);
    events.extend([
        Event::Call(Call {
            function: 0,
            ..call(1, begin, end)
        }),
        Event::Dispatch(Box::new(dispatch(1, begin, exact(begin, end)))),
    ]);
    events.extend(last);
    events
}

#[test]
fn they_are_exact_in_tables_and_views() {
    for place in [1_u64 << 53, 1 << 54, 1 << 60, (1 << 63) - 1000] {
        for off in [-3_i64, -1, 0, 1, 3] {
            let begin = place.saturating_add_signed(off);
            let end = begin + 501;
            let directory = tempfile::tempdir().unwrap();
            let path = export(&events(begin, end), directory.path());
            check_by_reader("rocpd_check.py", &path);
            let database = open(&path);
            for view in ["regions", "kernels", "gputrace_dispatch"] {
                let sql = format!("SELECT start || ' ' || \"end\" || ' ' || duration FROM {view}");
                assert_eq!(
                    text(&database, &sql),
                    format!("{begin} {end} 501"),
                    "{view}"
                );
            }
            let wall = number(&database, "SELECT DISTINCT WallTime FROM busy");
            assert_eq!(wall, 501);
        }
    }
}
