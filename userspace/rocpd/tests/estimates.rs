//! Estimated durations, and ranges of busy times, in databases.

#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{export, number, open, text};
use gputrace_analysis::summary::Summary;
use gputrace_capture::meta::Notice;
use gputrace_export::{synthetic, testing::check_by_reader};
use gputrace_timeline::{
    WORK_NOT_SELECTED,
    event::Event,
    gpu::{Activity, ActivityState},
};

#[test]
fn estimates_are_beside_what_rocpd_has() {
    let directory = tempfile::tempdir().unwrap();
    let path = export(&synthetic::estimates(), directory.path());
    check_by_reader("rocpd_check.py", &path);
    let database = open(&path);
    let of = |id: u32| {
        let sql = "SELECT quality, kernel_class, estimate_error, duration, duration_error FROM gputrace_dispatch WHERE id = ?";
        let row = |row: &rusqlite::Row<'_>| {
            let number = |column| row.get::<_, Option<i64>>(column);
            Ok((
                row.get::<_, String>(0)?,
                [number(1)?, number(2)?, number(3)?, number(4)?],
            ))
        };
        database.query_one(sql, [id], row).unwrap()
    };
    let sampled = |numbers| ("sampled".to_owned(), numbers);
    assert_eq!(
        of(1),
        sampled([Some(0), Some(300), Some(10_400), Some(300)])
    );
    // Between looks that are far from each other, without an estimate.
    assert_eq!(of(2), sampled([None; 4]));
    assert_eq!(of(16), ("submitted".to_owned(), [None; 4]));
    let extdata = |id| {
        text(
            &database,
            &format!("SELECT extdata FROM rocpd_kernel_dispatch WHERE id = {id}"),
        )
    };
    assert_eq!(
        extdata(1),
        r#"{"quality":"sampled","start_uncertainty":62400,"end_uncertainty":62400,"kernel_class":0,"estimate_error":300}"#
    );
    let classes = "SELECT group_concat(printf('%d %s %s %d %s %s %s %s %s', id, name, told, dispatches, mean, mean_error, kernel_id, longer, longer_share), ', ') \
                   FROM gputrace_kernel_class";
    assert_eq!(
        text(&database, classes),
        "0 add(float*, float*) apart 11 10400.0 300.0 1  , 1 hang apart 2 200000.0 9000.0 2 520000.0 0.2, \
         2 (unknown kernel 0x7f001000) mixed 3     "
    );
    assert_eq!(
        number(
            &database,
            "SELECT count(*) FROM gputrace_dispatch AS d JOIN gputrace_kernel_class AS c ON c.id = d.kernel_class \
             WHERE c.told = 'apart' AND abs(d.duration - c.mean) <= c.mean_error"
        ),
        12
    );
}

#[test]
fn busy_has_a_range() {
    let busy = |events: &[Event]| {
        let directory = tempfile::tempdir().unwrap();
        let database = open(&export(events, directory.path()));
        let sql = "SELECT group_concat(ifnull(round(share * WallTime / 1000, 1), 'not known'), ' ') FROM \
                   (SELECT WallTime, BusyLeast AS share FROM busy UNION ALL SELECT WallTime, Busy FROM busy \
                    UNION ALL SELECT WallTime, BusyMost FROM busy)";
        text(&database, sql)
    };
    // 10 * 10.4 us +-3 and 2 * 200 us +-18; of four kernels nothing tells how long they took.
    let mut events = synthetic::estimates();
    assert_eq!(busy(&events), "467.5 not known not known");
    let is_told =
        |event: &Event| matches!(event, Event::Dispatch(work) if work.time.estimate.is_some());
    let is_work = |event: &Event| matches!(event, Event::Dispatch(_));
    events.retain(|event| is_told(event) || !is_work(event));
    assert_eq!(busy(&events), "467.5 504.0 540.5");
    let mut untold = synthetic::estimates();
    untold.retain(|event| !is_told(event));
    // Nothing is drawn, so there is no wall time either.
    assert_eq!(busy(&untold), "not known not known not known");
}

/// The table has the figures of the summary, which come from the same code.
#[test]
fn the_use_of_gpus_is_that_of_the_summary() {
    let events = synthetic::estimates();
    let directory = tempfile::tempdir().unwrap();
    let database = open(&export(&events, directory.path()));
    let sql = "SELECT format('%d: %d kernels, %d unknown, busy %s (%d-%d), %d gaps, %d whole, p50 %s, longest %d-%d', \
               agent_id, kernels, unknown_kernels, ifnull(busy, '-'), busy_least, busy_most, gaps, whole_gaps, \
               ifnull(gap_p50, '-'), longest_gap_least, longest_gap_most) FROM gputrace_gpu_use";
    assert_eq!(
        text(&database, sql),
        "1: 16 kernels, 4 unknown, busy - (462000-21546000), 14 gaps, 8 whole, p50 9989600, longest 9989000-98818000"
    );
    let mut summary = Summary::default();
    events.iter().for_each(|event| summary.event(event));
    summary.finish();
    let summary = summary.to_string();
    for part in [
        "  16     -   92.40-4309.20      >= 14  9.99 ms  9.99 ms  9.99 ms  9.99 ms-98.8 ms",
        "  How long 4 of 16 kernels took is not known",
        "  Beside 6 gaps such a kernel can have run",
    ] {
        assert!(summary.contains(part), "{part} is not in:\n{summary}");
    }
}

#[test]
fn the_database_has_what_the_status_register_says() {
    let mut events = synthetic::estimates();
    let (mut at, node_id) = (synthetic::START, Some(1));
    let reading = |time, state, stands_for| {
        Event::Activity(Activity {
            node_id,
            time,
            state,
            stands_for,
            late: 0,
        })
    };
    let mut readings = vec![reading(at, ActivityState::Begin, 0)];
    for number in 0..1_000 {
        at += 100_000;
        let states = [ActivityState::Idle, ActivityState::Active];
        let state = states[usize::from(number % 4 == 0)];
        readings.push(reading(at, state, 100_000));
    }
    for event in &mut events {
        if let Event::End(end) = event {
            end.time += 100_000_000;
        }
    }
    // They come in order of time, and work when all is known of it.
    let mut places = events.iter();
    let first = places.position(|event| matches!(event, Event::Dispatch(_)));
    let first = first.unwrap();
    events.splice(first..first, readings);
    let directory = tempfile::tempdir().unwrap();
    let database = open(&export(&events, directory.path()));
    let sql =
        "SELECT format('%d +-%d of %d', active, active_error, recorded) FROM gputrace_gpu_use";
    let told = text(&database, sql);
    let mut summary = Summary::default();
    events.iter().for_each(|event| summary.event(event));
    summary.finish();
    let summary = summary.to_string();
    assert_eq!(told, "25000000 +-1372953 of 100500000");
    for part in [
        "  Active\n",
        "  24.88 +-1.37\n",
        "  Active: % of the recording",
    ] {
        assert!(summary.contains(part), "{part} is not in:\n{summary}");
    }
}

/// The view and the table say no more than the summary does.
#[test]
fn kernels_that_are_not_shown_make_lower_bounds() {
    let told =
        |event: &Event| matches!(event, Event::Dispatch(work) if work.time.estimate.is_some());
    let mut events = synthetic::estimates();
    events.retain(|event| told(event) || !matches!(event, Event::Dispatch(_)));
    for event in &mut events {
        if let Event::End(end) = event {
            end.time += 100_000_000;
        }
    }
    let figures = |events: &[Event]| {
        let directory = tempfile::tempdir().unwrap();
        let database = open(&export(events, directory.path()));
        let sql = "WITH lines (line) AS (\
                   SELECT format('busy %s (%d-%d), %d gaps, p50 %s, longest at least %d', \
                   ifnull(busy, '-'), busy_least, busy_most, gaps, ifnull(gap_p50, '-'), \
                   longest_gap_least) FROM gputrace_gpu_use \
                   UNION ALL SELECT format('view %s (%s-%s)', ifnull(round(Busy, 3), '-'), \
                   round(BusyLeast, 3), ifnull(round(BusyMost, 3), '-')) FROM busy) \
                   SELECT group_concat(line, '; ') FROM lines";
        text(&database, sql)
    };
    assert_eq!(
        figures(&events),
        "busy 504000 (462000-546000), 11 gaps, p50 9989600, longest at least 9989000; \
         view 0.006 (0.005-0.006)"
    );
    events.push(Event::Notice(Notice {
        time: 0,
        text: format!("{WORK_NOT_SELECTED}: 3 of 15."),
    }));
    assert_eq!(
        figures(&events),
        "busy - (462000-100500000), 0 gaps, p50 -, longest at least 0; view - (0.005--)"
    );
}

#[test]
fn only_what_is_known_is_drawn() {
    let directory = tempfile::tempdir().unwrap();
    let path = export(&synthetic::drawn(), directory.path());
    check_by_reader("rocpd_check.py", &path);
    let database = open(&path);
    let spans = |table: &str, id: &str| -> Vec<(i64, Option<i64>)> {
        let sql = format!("SELECT {id}, start, \"end\", duration FROM {table} ORDER BY 1");
        let mut query = database.prepare(&sql).unwrap();
        let rows = query.query_map((), |row| {
            let number = |column| row.get::<_, Option<i64>>(column);
            let ns = number(2)?.zip(number(1)?).map(|(end, begin)| end - begin);
            assert_eq!(number(3)?, ns);
            Ok((row.get(0)?, ns))
        });
        rows.unwrap().map(|row| row.unwrap()).collect()
    };
    let all = synthetic::DRAWN.map(|(id, ns)| (id as i64, ns.map(|ns| ns as i64)));
    assert_eq!(spans("kernels", "dispatch_id"), all[..3]);
    assert_eq!(spans("gputrace_dispatch", "id"), all);
    // Each has its bounds.
    let bounds = "SELECT count(start_earliest + end_earliest) FROM gputrace_dispatch";
    assert_eq!(number(&database, bounds), 8);
    let top = "SELECT printf('%d %d %.1f %.1f', total_calls, unknown_calls, total_duration, \
               average) FROM top_kernels";
    assert_eq!(text(&database, top), "8 5 70.4 23.5");
    let busy = "SELECT ifnull(Busy, 'not known') FROM busy WHERE agent_id = 1";
    assert_eq!(text(&database, busy), "not known");
    let copies = "SELECT count(\"end\") FROM gputrace_copy";
    assert_eq!(number(&database, copies), 2);
    assert_eq!(number(&database, "SELECT count(*) FROM memory_copies"), 2);
}
