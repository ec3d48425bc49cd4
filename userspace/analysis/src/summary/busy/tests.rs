use std::io::Cursor;

use gputrace_abi::gpu::queue_reason;
use gputrace_capture::{CaptureReader, meta::Recording};
use gputrace_timeline::{
    Timeline,
    event::Event,
    gpu::{ActivityState, Quality},
    synthetic::{
        Synthetic,
        gpu::{agents, code_object, packet, queue, queue_state},
    },
};
use proptest::prelude::*;

use super::*;
use gputrace_export::synthetic::{between, estimated, exact, submitted};

fn busy(times: &[GpuTime]) -> Busy {
    let mut busy = Busy::default();
    times.iter().for_each(|time| busy.add(time));
    busy.finish(1_000_000);
    busy
}

/// The longest gaps: begin, end, and whether it is a part of one.
fn longest(busy: &Busy) -> Vec<(u64, u64, bool)> {
    let gaps = busy.gaps.longest.iter();
    gaps.map(|gap| (gap.begin, gap.end, gap.is_part)).collect()
}

#[test]
fn exact_times_have_no_range() {
    let busy = busy(&[exact(1000, 1100), exact(1050, 1200), exact(5000, 5100)]);
    assert_eq!(
        (busy.busy(), busy.range(), busy.untimed),
        (300, (300, 300), 0)
    );
    assert_eq!(longest(&busy), [(1200, 5000, false)]);
    assert_eq!(busy.longest_gap_range(), (3800, 3800));
}

/// Kernels of 20 us every 4 ms, as in a launch-bound program: each window extends to the next
/// kernel.
#[test]
fn idle_is_idle_where_the_class_tells_the_end() {
    let times: Vec<GpuTime> = (1..100)
        .map(|number| {
            let begin = number * 4_000_000;
            let mut time = estimated(begin, begin + 20_000, 1, 1000);
            time.begin_window.earliest = begin;
            time.end_window.latest = Some(begin + 4_000_000);
            time
        })
        .collect();
    let busy = busy(&times);
    assert_eq!(busy.busy(), 99 * 20_000);
    assert_eq!(busy.range(), (99 * 18_000, 99 * 22_000));
    assert_eq!(busy.gaps.durations.max, 3_980_000);
    assert_eq!(busy.gaps.parts, 0);
    assert_eq!(busy.longest_gap_range(), (3_978_000, 3_982_000));
    assert_eq!(busy.meaning(1_000_000), Meaning::Estimate);
}

#[test]
fn what_kernels_of_unknown_length_can_have_filled_is_no_gap() {
    let mut times = vec![exact(1000, 1100), exact(5000, 5100), exact(9000, 9100)];
    let known = [(1100, 5000, false), (5100, 9000, false)];
    assert_eq!(longest(&busy(&times)), known);
    times.push(between(Quality::Sampled, 2000, 4000));
    let partly = busy(&times);
    assert_eq!(
        longest(&partly),
        [(5100, 9000, false), (4000, 5000, true), (1100, 2000, true)]
    );
    // Only the gap without such a kernel beside it has a length.
    let gaps = &partly.gaps;
    assert_eq!((gaps.durations.calls, gaps.durations.min), (1, 3900));
    assert_eq!(gaps.count(), 3);
    assert_eq!(
        (partly.busy(), partly.meaning(1_000_000)),
        (300, Meaning::Least)
    );
    // An estimate may be too long, so what is missing makes no lower bound of it.
    times.push(estimated(20_000, 21_000, 1, 100));
    let estimate = busy(&times);
    assert_eq!(estimate.busy(), 1300);
    // The one of unknown duration took 2 us at most.
    assert_eq!(estimate.meaning(200_000), Meaning::Estimate);
    assert_eq!(estimate.meaning(100_000), Meaning::Nothing);
    assert_eq!(estimate.range(), (1100, 1300 + 2000 + 200));
    // Nothing says that it ended.
    times.push(submitted(1050, false));
    assert_eq!(busy(&times).gaps.count(), 0);
}

/// A kernel of which only the bounds are known can be the first or the last one.
#[test]
fn the_longest_gap_can_be_beside_a_kernel_of_unknown_length() {
    let first = [between(Quality::Bounded, 1000, 4000), exact(6000, 6100)];
    assert_eq!(busy(&first).longest_gap_range(), (2000, 5000));
    let last = [exact(1000, 1100), between(Quality::Bounded, 3000, 9000)];
    assert_eq!(busy(&last).longest_gap_range(), (1900, 7900));
    let endless = [exact(1000, 1100), submitted(3000, true)];
    assert_eq!(busy(&endless).longest_gap_range(), (1900, 998_900));
    let alone = [between(Quality::Bounded, 1000, 4000)];
    assert_eq!(busy(&alone).longest_gap_range(), (0, 3000));
}

/// A recording of a program that launches a kernel of 20 us every 4.35 ms, so that the GPU is
/// busy for 0.46 % of the time. The recorder looks `after` ns after each launch, and the
/// kernels have no stamps.
fn launch_bound(after: u64) -> Vec<GpuTime> {
    const KERNELS: u64 = 1000;
    let mut capture = Synthetic::new(&Recording::default());
    for agent in agents() {
        capture.meta(agent);
    }
    capture.meta(queue());
    capture.meta(code_object(0));
    let mut looked = EVERY_NS;
    for index in 0..KERNELS {
        let time = EVERY_NS + index * EVERY_NS;
        capture.record(&packet(index, time, 0));
        let mut look = queue_state(time + after, queue_reason::SAMPLE, index + 1, index + 1);
        look.looked = looked;
        capture.record(&look);
        looked = look.time;
    }
    let reader = CaptureReader::new(Cursor::new(capture.bytes())).unwrap();
    let times: Vec<GpuTime> = Timeline::new(reader)
        .unwrap()
        .filter_map(|event| match event.unwrap() {
            Event::Dispatch(dispatch) => Some(dispatch.time),
            _ => None,
        })
        .collect();
    assert_eq!(times.len() as u64, KERNELS);
    times
}

const EVERY_NS: u64 = 4_350_000;

/// Nothing in it tells when kernels end, so no number may suggest otherwise.
#[test]
fn a_launch_bound_program_has_no_busy_gpu() {
    for after in [15_000, 200_000, 3_000_000] {
        let times = launch_bound(after);
        let total = EVERY_NS * times.len() as u64;
        let truth = 20_000 * times.len() as u64;
        let mut busy = Busy::default();
        times.iter().for_each(|time| busy.add(time));
        busy.finish(EVERY_NS + total);
        let (least, most) = busy.range();
        assert!(
            least <= truth && truth <= most,
            "looks after {after} ns: {truth} is not in {least}..{most}"
        );
        assert_ne!(
            busy.meaning(total),
            Meaning::Estimate,
            "{} of {}",
            busy.untimed,
            busy.kernels
        );
        assert_eq!(busy.gaps.count(), 0, "looks after {after} ns");
        let (value, percent) = (busy.busy(), busy.busy() * 100 / total);
        assert!(
            value <= truth,
            "looks after {after} ns: {value} ns, {percent} %, where the truth is {truth}"
        );
    }
}

#[test]
fn missing_kernels_leave_lower_bounds() {
    let mut partial = busy(&[exact(1000, 1100), exact(5000, 5100)]);
    partial.hide(1_000_000);
    assert!(partial.is_partial());
    assert_eq!((partial.busy(), partial.range()), (200, (200, 1_000_000)));
    assert_eq!(partial.meaning(1_000_000), Meaning::Least);
    assert_eq!(partial.gaps.count(), 0);
    assert_eq!(partial.longest_gap_range(), (0, 1_000_000));
    let mut estimate = busy(&[estimated(1000, 1100, 1, 10)]);
    estimate.hide(1_000_000);
    assert_eq!(estimate.meaning(1_000_000), Meaning::Nothing);
}

#[test]
fn the_range_says_where_ends_are_not_known() {
    let busy = busy(&[
        exact(1000, 1100),
        between(Quality::Bounded, 2000, 5000),
        submitted(900_000, true),
    ]);
    assert_eq!(busy.busy(), 100);
    assert_eq!(busy.range(), (100, 100 + 3000 + 100_000));
    assert_eq!(busy.untimed, 2);
}

#[test]
fn a_huge_error_reaches_from_nothing_to_the_windows() {
    let busy = busy(&[estimated(100_000, 110_000, 1, 1_000_000_000)]);
    assert_eq!(busy.range(), (0, 110_000));
}

proptest! {
    #[test]
    fn the_estimate_is_within_the_range(
        works in proptest::collection::vec((0_u64..100_000, 0_u64..10_000, 0_u64..10_000, 0..5), 0..80),
    ) {
        let times: Vec<GpuTime> = works.iter().map(|(begin, ns, error, kind)| {
            let (begin, end) = (begin + 1000, begin + 1000 + ns);
            match kind {
                0 => exact(begin, end),
                1 => between(Quality::Sampled, begin, end),
                2 => between(Quality::Bounded, begin, end),
                3 => submitted(begin, false),
                _ => estimated(begin, end, 1, *error),
            }
        }).collect();
        let busy = busy(&times);
        let (shortest, longest) = busy.longest_gap_range();
        let gap = busy.gaps.max();
        prop_assert!(shortest <= gap && gap <= longest);
        let (least, most) = busy.range();
        prop_assert!(least <= busy.busy() && busy.busy() <= most && most <= 1_000_000);
    }

    /// Kernels one after another, of which some have only bounds.
    #[test]
    fn gaps_are_those_of_the_truth(
        works in proptest::collection::vec(
            (1_u64..20_000, 1_u64..10_000, any::<bool>(), 0_u64..30_000, 0_u64..30_000),
            1..40,
        ),
    ) {
        let mut at = 100_000;
        let mut truth = Vec::new();
        let times: Vec<GpuTime> = works.iter().map(|(idle, ns, known, before, after)| {
            let (begin, end) = (at + idle, at + idle + ns);
            truth.push((at, begin));
            at = end;
            if *known {
                exact(begin, end)
            } else {
                between(Quality::Bounded, begin - before, end + after)
            }
        }).collect();
        truth.remove(0);
        let mut busy = Busy::default();
        times.iter().for_each(|time| busy.add(time));
        busy.finish(at + 100_000);
        let longest = truth.iter().map(|(from, to)| to - from).max().unwrap_or(0);
        let (least, most) = busy.longest_gap_range();
        prop_assert!(least <= longest && longest <= most, "{least} {longest} {most}");
        prop_assert!(busy.gaps.count() <= truth.len() as u64);
        for gap in &busy.gaps.longest {
            let (from, to) = (gap.begin, gap.end);
            let is_whole = truth.contains(&(from, to));
            prop_assert!(is_whole || gap.is_part, "{gap:?}");
            prop_assert!(truth.iter().any(|(begin, end)| *begin <= from && to <= *end));
        }
    }
}

/// Kernels of unknown length, one each 10 ms, and readings at each ms, of which one in five finds
/// the GPU at work.
fn with_readings(kernel: GpuTime) -> Busy {
    with_readings_from(0, kernel)
}

/// The same with readings from this ms on.
fn with_readings_from(first: u64, kernel: GpuTime) -> Busy {
    let mut busy = Busy::default();
    let reading = |time, state, stands_for| Activity {
        node_id: None,
        time,
        state,
        stands_for,
        late: 0,
    };
    busy.reading(&reading(first * 1_000_000, ActivityState::Begin, 0));
    for at in 1..1_000 {
        if at % 10 == 1 {
            let mut time = kernel;
            let from = at * 1_000_000;
            time.begin_window.earliest = from;
            time.end_window.latest = Some(from + 10_000_000);
            busy.add(&time);
        }
        let state = if at % 5 == 0 {
            ActivityState::Active
        } else {
            ActivityState::Idle
        };
        if at > first {
            busy.reading(&reading(at * 1_000_000, state, 1_000_000));
        }
    }
    busy.reading(&reading(1_000_000_000, ActivityState::End, 0));
    busy.finish(1_000_000_000);
    busy
}

#[test]
fn the_status_register_bounds_the_use() {
    let unknown = GpuTime {
        quality: Quality::Sampled,
        ..GpuTime::default()
    };
    let busy = with_readings(unknown);
    let active = busy.active(1_000_000_000).unwrap();
    assert!(active.value.abs_diff(200_000_000) < 1_000_000, "{active:?}");
    assert_eq!(busy.range(), (0, active.value + 2 * active.error));
    assert_eq!(busy.meaning(1_000_000_000), Meaning::Nothing);
    // Kernels can have run before the first reading.
    let busy = with_readings_from(400, unknown);
    assert_eq!(busy.active(1_000_000_000), None);
    let most = busy.range().1;
    assert!((500_000_000..570_000_000).contains(&most), "{most}");
}

#[test]
fn a_register_that_contradicts_what_is_proven_is_not_believed() {
    let mut busy = with_readings(exact(1_000_000, 300_000_000));
    assert_eq!(busy.active(1_000_000_000), None);
    assert_eq!(busy.range(), (299_000_000, 299_000_000));
    // If kernels are missing, nothing is known of these.
    busy.hide(1_000_000_000);
    assert_eq!(busy.range(), (299_000_000, 1_000_000_000));
}
