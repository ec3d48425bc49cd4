//! Mean durations of dispatch classes, estimated from looks at a queue whose packets have no
//! completion signals, compared with the truth.

#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]
#![allow(clippy::indexing_slicing, reason = "a test fails by panicking")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Cursor;

use gputrace_abi::{
    domain::Domain,
    gpu::{completion_reason, queue_reason},
};
use gputrace_capture::{
    CaptureReader,
    ledger::{Ledger, Looks},
    meta::{Epoch, Recording},
};
use gputrace_timeline::{
    Timeline,
    event::Event,
    gpu::{Dispatch, KernelClass, Quality, Told},
    synthetic::{Synthetic, gpu},
};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// Durations by class, us. Each class is a grid size.
const CLASSES: [u64; 3] = [40, 150, 700];

/// A kernel as it ran, ns.
struct Ran {
    class: usize,
    begin: u64,
    end: u64,
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let value = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (value ^ value >> 31) % bound
    }
}

/// Kernels of random classes, one after the other for some seconds, each announced 5 ms ahead. The
/// capture has the recorder's looks, about one per ms, or stamps.
fn capture(seconds: u64, stamped: bool) -> (Synthetic, Vec<Ran>) {
    let mut random = Random(14);
    let mut capture = Synthetic::new(&Recording {
        domains: vec![Domain::KernelDispatch.name().to_owned()],
        ..Recording::default()
    });
    for agent in gpu::agents() {
        capture.meta(agent);
    }
    for tenth in 0..=seconds * 10 {
        capture.meta(gpu::clock(tenth * 10_000_000, tenth * 100 * MS));
    }
    capture.meta(gpu::queue());
    capture.meta(gpu::code_object(0));
    let mut ran: Vec<Ran> = Vec::new();
    let mut begin = 10 * MS;
    while begin < seconds * 1_000 * MS {
        let class = random.below(3) as usize;
        // Varied by up to 3 %.
        let end = begin + CLASSES[class] * (970 + random.below(61));
        ran.push(Ran { class, begin, end });
        begin = end + 3 * US;
    }
    let (mut looked, mut shown, mut taken, mut written) = (0, 0, 0, 0);
    let mut time = 10 * MS;
    while written < ran.len() || !stamped && taken < ran.len() {
        time += 800 * US + random.below(400 * US);
        while let Some(next) = ran.get(written).filter(|next| next.begin < time + 5 * MS) {
            let signal = if stamped {
                0x9000 + 0x80 * written as u64
            } else {
                0
            };
            let mut packet = gpu::packet(written as u64, next.begin - 5 * MS, signal);
            let submitted = packet.time;
            packet.read_index = ran.iter().take_while(|one| one.begin <= submitted).count() as u64;
            packet.packet[1] = 1 | (64 * (1 + next.class as u64)) << 32;
            capture.record(&packet);
            if stamped {
                let ticks = (next.begin / 10, next.end / 10);
                capture.record(&gpu::completion(
                    signal,
                    next.end + MS,
                    completion_reason::REARM,
                    0,
                    ticks,
                ));
            }
            written += 1;
        }
        while ran.get(taken).is_some_and(|next| next.begin <= time) {
            taken += 1;
        }
        if !stamped && taken as u64 != shown {
            let mut look =
                gpu::queue_state(time, queue_reason::SAMPLE, taken as u64, written as u64);
            look.looked = looked;
            capture.record(&look);
            shown = taken as u64;
        }
        looked = time;
    }
    for tenth in 0..=seconds * 10 {
        capture.meta(Epoch {
            time: tenth * 100 * MS,
        });
    }
    (capture, ran)
}

fn read(capture: &mut Synthetic) -> (Vec<Dispatch>, Vec<KernelClass>) {
    let reader = CaptureReader::new(Cursor::new(capture.bytes())).unwrap();
    let (mut dispatches, mut classes) = (Vec::new(), Vec::new());
    for event in Timeline::new(reader).unwrap() {
        match event.unwrap() {
            Event::Dispatch(dispatch) => dispatches.push(*dispatch),
            Event::KernelClass(class) => classes.push(*class),
            _ => {}
        }
    }
    (dispatches, classes)
}

#[test]
fn means_are_told_from_looks_and_dispatches_are_drawn_by_them() {
    let (mut capture, ran) = capture(4, false);
    let (dispatches, classes) = read(&mut capture);
    assert_eq!(
        (dispatches.len(), classes.len()),
        (ran.len(), CLASSES.len())
    );
    for class in &classes {
        let grid = class.grid[0] as usize / 64 - 1;
        let truth = CLASSES[grid] as f64 * 1e3;
        let mean = class.mean.unwrap();
        assert_eq!(class.told, Told::Apart);
        assert!(
            (mean.value - truth).abs() < 4.0 * mean.error && mean.error < 0.05 * truth + 3e3,
            "{mean:?} for {truth}"
        );
    }
    // From the first dispatch on, because the capture is read through before anything is emitted.
    let mut drawn = 0;
    for (dispatch, ran) in dispatches.iter().zip(&ran) {
        let time = &dispatch.time;
        let (begins, ends) = (time.begin_window, time.end_window);
        assert!(
            begins.earliest <= ran.begin && begins.latest.is_none_or(|latest| ran.begin <= latest)
        );
        assert!(ends.earliest <= ran.end && ends.latest.is_none_or(|latest| ran.end <= latest));
        assert!(begins.earliest <= time.begin && time.begin <= time.end);
        assert!(ends.latest.is_none_or(|latest| time.end <= latest));
        if let Some(estimate) = time.estimate {
            let class = &classes[estimate.class as usize];
            assert_eq!(class.grid, dispatch.grid);
            assert_eq!(class.grid[0] as usize / 64 - 1, ran.class);
            assert_eq!(
                (time.quality, estimate.error),
                (Quality::Sampled, class.mean.unwrap().error.ceil() as u64)
            );
            drawn += 1;
        }
    }
    assert!(drawn * 20 > ran.len() * 19, "{drawn} of {}", ran.len());
    let sum = |times: &mut dyn Iterator<Item = (u64, u64)>| {
        times.map(|(begin, end)| end - begin).sum::<u64>() as f64
    };
    let shown = sum(&mut dispatches
        .iter()
        .map(|dispatch| (dispatch.time.begin, dispatch.time.end)));
    let truth = sum(&mut ran.iter().map(|ran| (ran.begin, ran.end)));
    assert!((shown / truth - 1.0).abs() < 0.02, "{shown} for {truth}");
}

#[test]
fn less_than_a_second_tells_nothing() {
    let (mut capture, ran) = capture(1, false);
    let mut bytes = Synthetic::new(&Recording::default());
    assert!(read(&mut bytes).1.is_empty());
    let (dispatches, classes) = read(&mut capture);
    assert_eq!(dispatches.len(), ran.len());
    assert!(
        classes
            .iter()
            .all(|class| class.told == Told::Unseen && class.mean.is_none())
    );
    assert!(
        dispatches
            .iter()
            .all(|dispatch| dispatch.time.estimate.is_none())
    );
}

/// The account of looks decides whether means are estimated.
#[test]
fn without_looks_nothing_is_estimated_and_exact_times_are_the_same() {
    let account = |looks| Ledger {
        complete: true,
        looks: Some(Looks {
            looks,
            ..Looks::default()
        }),
        ..Ledger::default()
    };
    // Means that are known from the first dispatch on come from a first pass.
    for (looks, is_first_drawn) in [(15, false), (1000, true)] {
        let (mut asked, _) = capture(2, false);
        asked.meta(account(looks));
        let (dispatches, classes) = read(&mut asked);
        assert_eq!(dispatches[1].time.estimate.is_some(), is_first_drawn);
        assert!(classes.iter().any(|class| class.mean.is_some()));
    }

    let (mut once, ran) = capture(2, true);
    let (mut twice, _) = capture(2, true);
    once.meta(account(0));
    twice.meta(account(1000));
    let (once, twice) = (read(&mut once), read(&mut twice));
    assert_eq!(once, twice);
    assert!(once.1.is_empty(), "no class needs an estimate");
    for (dispatch, ran) in once.0.iter().zip(&ran) {
        assert_eq!(dispatch.time.quality, Quality::Exact);
        assert!(dispatch.time.begin.abs_diff(ran.begin) <= 200);
    }
}
