use std::{cell::Cell, collections::VecDeque};

use zerocopy::FromBytes as _;

use super::*;

const MS: u64 = 1_000_000;

/// Registers of GPUs that are at work in the first fifth of each 5 ms, until a time.
struct Fifth<'a> {
    now: &'a Cell<u64>,
    until: u64,
    opened: &'a Cell<u32>,
    refuses: bool,
}

impl<'a> Registers for Fifth<'a> {
    type Open = (&'a Cell<u64>, u64, bool);

    fn open(&self, _: u32) -> Result<Self::Open, ActivityError> {
        self.opened.set(self.opened.get() + 1);
        let path = "renderD128".into();
        let error = rustix::io::Errno::INVAL;
        if self.refuses {
            return Err(ActivityError::Refused { path, error });
        }
        Ok((self.now, self.until, self.refuses))
    }

    fn read((now, until, _): &Self::Open) -> Result<Reading, ActivityError> {
        let is_active = now.get() < *until && now.get() % (5 * MS) < MS;
        Ok(Reading {
            register: if is_active { 1 << 31 } else { 0 },
        })
    }
}

const GPUS: [Gpu; 2] = [
    Gpu {
        node_id: 1,
        gpu_id: 31_000,
        minor: 128,
    },
    Gpu {
        node_id: 2,
        gpu_id: 31_001,
        minor: 129,
    },
];

fn records(bytes: &[u8]) -> Vec<Activity> {
    let all = bytes.chunks_exact(ACTIVITY_SIZE);
    all.map(|bytes| Activity::read_from_bytes(bytes).unwrap())
        .collect()
}

/// The readings of a program that submits work every 5 ms for a second, seen every 25 ms, at a cost
/// of 20 us each. Looks take `by_looks` ns of the budget of 20 ms a second.
fn run(refuses: bool, by_looks: u64) -> (Vec<Activity>, u32, u64) {
    let (now, opened) = (Cell::new(0), Cell::new(0));
    let registers = Fifth {
        now: &now,
        until: 1_000 * MS,
        opened: &opened,
        refuses,
    };
    let mut readings = Readings::new(registers, GPUS.to_vec(), 20_000, 7);
    let mut bytes = Vec::new();
    let (mut spent, mut in_window) = (0, VecDeque::new());
    for step in 0..20_000 {
        now.set(step * MS / 10);
        if step % 250 == 0 && now.get() < 1_000 * MS {
            readings.works(Some(2), now.get(), &mut bytes);
        }
        while in_window
            .front()
            .is_some_and(|time| time + WINDOW < now.get())
        {
            in_window.pop_front();
        }
        let in_all = in_window.len() as u64 * 20_000 + by_looks;
        if readings.tick(in_all, false, || now.get(), &mut bytes) {
            readings.spent(now.get(), 20_000);
            in_window.push_back(now.get());
            spent += 20_000;
        }
    }
    assert_eq!(readings.due(), None);
    (records(&bytes), opened.get(), spent)
}

#[test]
fn the_share_of_readings_is_the_share_of_time() {
    // Readings take what looks leave them, and at least three tenths.
    for (by_looks, most) in [(0, 16), (10 * MS, 8), (20 * MS, 6)] {
        let (all, opened, spent) = run(false, by_looks);
        assert_eq!(opened, 1, "only the GPU that works");
        assert!(all.iter().all(|one| one.gpu_id == 31_001));
        let (first, last) = (all.first().unwrap(), all.last().unwrap());
        assert_eq!((first.state, last.state), (activity::BEGIN, activity::END));
        // The GPU is let alone soon after the last work.
        assert!((1_225 * MS..1_300 * MS).contains(&last.time), "{last:?}");
        let sum = |wanted: fn(&Activity) -> bool| -> u64 {
            let all = all.iter().filter(|one| wanted(one));
            all.map(|one| one.stands_for).sum()
        };
        let (whole, active) = (sum(|_| true), sum(|one| one.state == activity::ACTIVE));
        assert!(whole.abs_diff(last.time) < 90 * MS, "{whole}");
        assert!(active.abs_diff(200 * MS) < 40 * MS, "{active}");
        let allowed = last.time * most / 1_000;
        assert!(
            (allowed * 3 / 4..=allowed).contains(&spent),
            "{spent} {allowed}"
        );
        assert!(all.iter().all(|one| one.late < 100_000));
    }
}

#[test]
fn a_gpu_that_refuses_is_not_asked_again() {
    assert_eq!(run(true, 0), (Vec::new(), 1, 0));
}

#[test]
fn a_queue_of_unknown_agent_is_of_the_only_gpu() {
    let (now, opened) = (Cell::new(0), Cell::new(0));
    for (gpus, begun) in [(1, 1), (2, 0)] {
        let registers = Fifth {
            now: &now,
            until: 0,
            opened: &opened,
            refuses: false,
        };
        let mut readings = Readings::new(registers, GPUS[..gpus].to_vec(), 20_000, 7);
        let mut bytes = Vec::new();
        readings.works(None, 0, &mut bytes);
        assert_eq!(records(&bytes).len(), begun);
    }
}

#[test]
fn without_a_budget_nothing_is_read() {
    let (now, opened) = (Cell::new(0), Cell::new(0));
    let registers = Fifth {
        now: &now,
        until: 0,
        opened: &opened,
        refuses: false,
    };
    let mut readings = Readings::new(registers, GPUS.to_vec(), 0, 7);
    let mut bytes = Vec::new();
    readings.works(Some(1), 0, &mut bytes);
    assert_eq!((readings.due(), bytes.len(), opened.get()), (None, 0, 0));
}
