use gputrace_capture::meta::Notice;
use gputrace_timeline::{
    COLLECTION_PERIOD, WORK_NOT_SEEN, WORK_NOT_SELECTED, gpu::QueueInfo, synthetic::call,
};

use super::*;
use gputrace_export::synthetic::{START, dispatch, exact, submitted};

fn used(spans: &[(u64, u64)]) -> GpuUse {
    let mut gpu = GpuUse::default();
    for ((begin, end), id) in spans.iter().zip(1..) {
        let work = dispatch(
            id,
            START + begin.saturating_sub(20),
            exact(START + begin, START + end),
        );
        gpu.event(&Event::Dispatch(Box::new(work)));
    }
    gpu.finish(0);
    gpu
}

#[test]
fn a_deep_queue_is_listed_once_and_few_one_by_one() {
    let hung = |id, queue, submit| {
        let mut work = dispatch(id, submit, submitted(submit, true));
        (work.queue, work.index) = (queue, id);
        Event::Dispatch(Box::new(work))
    };
    let listed = |gpu: &GpuUse| -> Vec<(Option<(u32, u64)>, u64)> {
        let listed = gpu.listed_unfinished();
        listed
            .iter()
            .map(|(work, behind)| (work.packet, *behind))
            .collect()
    };
    let mut gpu = GpuUse::default();
    for id in [3, 1, 2] {
        gpu.event(&hung(id, 0, START + id));
    }
    gpu.event(&hung(9, 1, START));
    let one = |queue, index| (Some((queue, index)), 0);
    assert_eq!(listed(&gpu), [one(1, 9), one(0, 1), one(0, 2), one(0, 3)]);
    for id in 10..1000 {
        gpu.event(&hung(id, 0, START + id));
    }
    assert_eq!(listed(&gpu), [(Some((1, 9)), 0), (Some((0, 1)), 992)]);
    // Many packets may be submitted at the same time.
    let mut gpu = GpuUse::default();
    for id in (1..=50).rev() {
        gpu.event(&hung(id, 0, START));
    }
    assert_eq!(listed(&gpu), [(Some((0, 1)), 49)]);
}

#[test]
fn busy_is_the_union_and_gaps_are_what_is_between() {
    let gpu = used(&[(500, 600), (0, 100), (50, 150), (700, 800), (150, 200)]);
    let busy = &gpu.agents.busy[&Some(1)];
    assert_eq!((busy.busy(), busy.kernels, busy.late()), (400, 5, 0));
    let gaps = &busy.gaps.durations;
    assert_eq!((gaps.calls, gaps.min, gaps.max), (2, 100, 300));
    let depth = gpu.queues[&0].depth();
    assert_eq!(depth.most, 2);
    let in_order = used(&[(0, 100), (50, 150), (150, 200), (500, 600), (700, 800)]);
    assert_eq!(in_order.queues[&0].depth().mean(), depth.mean());
    assert_eq!(depth.mean(), (450.0 + 4.0 * 20.0) / (200.0 + 2.0 * 120.0));
}

/// What an older queue executed before its first recorded dispatch may have kept the GPU busy.
#[test]
fn what_nobody_saw_of_older_queues_is_in_the_range() {
    let range = |is_older| {
        let mut gpu = GpuUse {
            agents: Agents::new(START),
            ..GpuUse::default()
        };
        gpu.event(&Event::Queue(QueueInfo {
            number: 0,
            pid: 100,
            id: 7,
            node_id: Some(1),
            packets: 64,
            kfd_id: None,
            is_older,
        }));
        for (id, begin) in [(1, 300), (2, 900)] {
            let time = exact(START + begin, START + begin + 50);
            gpu.event(&Event::Dispatch(Box::new(dispatch(
                id,
                START + begin,
                time,
            ))));
        }
        gpu.finish(START + 1000);
        gpu.agents.busy[&Some(1)].range()
    };
    assert_eq!(range(false), (100, 100));
    assert_eq!(range(true), (100, 400));
}

#[test]
fn a_long_recording_settles_on_the_way() {
    let spans: Vec<(u64, u64)> = (0..100_000).map(|n| (n * 10, n * 10 + 5)).collect();
    let gpu = used(&spans);
    let busy = &gpu.agents.busy[&Some(1)];
    assert_eq!(
        (busy.busy(), busy.gaps.durations.calls, gpu.late()),
        (500_000, 99_999, 0)
    );
    let mut late = spans;
    late.push((0, 7));
    let gpu = used(&late);
    assert_eq!(gpu.agents.busy[&Some(1)].busy(), 500_000);
    assert_eq!(gpu.late(), 1);
}

#[test]
fn launches_find_their_call_before_and_after() {
    let outer = Call {
        tid: 101,
        ..call(1, START, START + 50)
    };
    let work = |id| {
        Event::Dispatch(Box::new(dispatch(
            id,
            START + 10,
            exact(START + 100, START + 200),
        )))
    };
    let mut gpu = GpuUse {
        asked: true,
        ..GpuUse::default()
    };
    gpu.event(&work(1));
    assert_eq!(gpu.since_call.calls, 0);
    gpu.call(&outer);
    gpu.event(&work(2));
    gpu.finish(0);
    assert_eq!(
        (gpu.since_call.calls, gpu.since_call.min, gpu.since_call.max),
        (2, 100, 100)
    );
    assert_eq!(
        (gpu.since_submission.calls, gpu.since_submission.max),
        (2, 90)
    );
}

/// Two dispatches whose ends are only bounded: either can have ended long before the other.
#[test]
fn depths_have_proven_bounds() {
    let between = |begin, end| gputrace_export::synthetic::between(Quality::Bounded, begin, end);
    let mut gpu = GpuUse::default();
    for id in 1..=2 {
        let work = dispatch(id, START, between(START + 10, START + 100));
        gpu.event(&Event::Dispatch(Box::new(work)));
    }
    gpu.finish(START + 1000);
    let queue = &gpu.queues[&0];
    assert_eq!((queue.untimed, queue.deepest_range()), (2, (2.0, 2.0)));
    // One may have ended after 10 ns, the other after 100: 1.1 on average.
    assert_eq!(queue.depth_range(), (1.0, 2.0));
    // Nothing says that the third one ended.
    let mut gpu = GpuUse::default();
    for (id, time) in [
        (1, exact(START + 10, START + 20)),
        (2, submitted(START + 30, false)),
        (3, exact(START + 40, START + 50)),
    ] {
        let work = dispatch(id, time.begin, time);
        gpu.event(&Event::Dispatch(Box::new(work)));
    }
    gpu.finish(START + 1000);
    assert_eq!(gpu.queues[&0].deepest_range(), (1.0, 2.0));
}

/// Remarks that say that kernels are missing: sums are lower bounds, and gaps are not known.
#[test]
fn remarks_on_missing_kernels_make_lower_bounds() {
    let later = START + 1_000_000;
    let period = |number| format!("{COLLECTION_PERIOD} {number} begins.");
    for (remarks, told) in [
        (vec![(START, period(1)), (later, period(2))], ">= 20 ns"),
        (
            vec![(START, format!("{WORK_NOT_SELECTED}: 3 of 5."))],
            "not shown: 3 of 5.",
        ),
        (
            vec![(START, format!("{WORK_NOT_SEEN}: 3 of 100."))],
            "3 of 100",
        ),
    ] {
        let mut summary = crate::summary::Summary::default();
        for (number, begin) in [(1, START), (2, later)] {
            let work = dispatch(number, begin, exact(begin + 10, begin + 20));
            summary.event(&Event::Dispatch(Box::new(work)));
        }
        for (time, text) in remarks {
            summary.event(&Event::Notice(Notice { time, text }));
        }
        summary.finish();
        let text = summary.to_string();
        assert!(text.contains(">= 20 ns") && text.contains(told), "{text}");
        assert!(!text.contains("1.00 ms"), "no gap is known: {text}");
    }
}
