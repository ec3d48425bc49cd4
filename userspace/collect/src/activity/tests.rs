use std::{cell::Cell, collections::VecDeque};

use zerocopy::FromBytes as _;

use super::*;

const MS: u64 = 1_000_000;

/// How long the program submits work, ns.
const WORKS: u64 = 5_000 * MS;

/// Registers of GPUs that are at work in the first fifth of each 5 ms, until a time.
struct Fifth<'a> {
    now: &'a Cell<u64>,
    until: u64,
    opened: &'a Cell<u32>,
    paused: &'a Cell<u64>,
    refuses: bool,
}

impl<'a> Registers for Fifth<'a> {
    type Open = (&'a Cell<u64>, u64, &'a Cell<u64>);

    fn open(&self, _: u32) -> Result<Self::Open, ActivityError> {
        self.opened.set(self.opened.get() + 1);
        let path = "renderD128".into();
        let error = rustix::io::Errno::INVAL;
        if self.refuses {
            return Err(ActivityError::Refused { path, error });
        }
        Ok((self.now, self.until, self.paused))
    }

    fn read((now, until, _): &Self::Open) -> Result<Reading, ActivityError> {
        let is_active = now.get() < *until && now.get() % (5 * MS) < MS;
        Ok(Reading {
            register: if is_active { 1 << 31 } else { 0 },
        })
    }

    fn pause((now, _, paused): &Self::Open, ns: u64) {
        paused.set(paused.get() + ns);
        now.set(now.get() + ns);
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

/// A clock that goes on by 2 us each time it is read.
fn clock(now: &Cell<u64>) -> impl Fn() -> u64 + '_ {
    || {
        now.set(now.get() + 2_000);
        now.get()
    }
}

/// The readings of a program that submits work every 5 ms for five seconds, seen every 25 ms. A
/// reading costs 20 us, one of a spell the time that it takes, and a pause a quarter of its length.
/// Looks take `by_looks` ns of the budget of 20 ms a second.
fn run(refuses: bool, is_queued: bool, by_looks: u64) -> (Vec<Activity>, u32, u64) {
    let (now, opened, paused) = (Cell::new(0), Cell::new(0), Cell::new(0));
    let registers = Fifth {
        now: &now,
        until: WORKS,
        opened: &opened,
        paused: &paused,
        refuses,
    };
    let mut readings = Readings::new(registers, GPUS.to_vec(), 20_000, 7);
    let mut bytes = Vec::new();
    let (mut spent, mut in_window) = (0, VecDeque::new());
    for step in 0..60_000 {
        now.set(now.get().max(step * MS / 10));
        if step % 250 == 0 && now.get() < WORKS {
            readings.works(Some(2), now.get(), &mut bytes);
        }
        while in_window
            .front()
            .is_some_and(|(time, _)| time + WINDOW < now.get())
        {
            in_window.pop_front();
        }
        let own: u64 = in_window.iter().map(|(_, cost)| *cost).sum();
        let (began, paused_before) = (now.get(), paused.get());
        if readings.tick(own + by_looks, is_queued, clock(&now), &mut bytes) {
            let paused = (paused.get() - paused_before) / 4 * 3;
            let cost = (now.get() - began - paused).max(20_000);
            readings.spent(now.get(), cost);
            in_window.push_back((now.get(), cost));
            spent += cost;
        }
    }
    assert_eq!(readings.due(), None);
    (records(&bytes), opened.get(), spent)
}

#[test]
fn the_share_of_readings_is_the_share_of_time() {
    // Readings take what looks leave them, and at least six tenths, or three.
    for (by_looks, most) in [(0, [16, 16]), (10 * MS, [12, 8]), (20 * MS, [12, 6])] {
        for (is_queued, most) in [false, true].into_iter().zip(most) {
            let (all, opened, spent) = run(false, is_queued, by_looks);
            assert_eq!(opened, 1, "only the GPU that works");
            assert!(all.iter().all(|one| one.gpu_id == 31_001));
            let (first, last) = (all.first().unwrap(), all.last().unwrap());
            assert_eq!((first.state, last.state), (activity::BEGIN, activity::END));
            // The GPU is let alone soon after the last work.
            assert!(
                (WORKS + 225 * MS..WORKS + 600 * MS).contains(&last.time),
                "{last:?}"
            );
            let whole: u64 = all.iter().map(|one| one.stands_for).sum();
            let active = all.iter().map(|one| match one.state {
                activity::ACTIVE => one.stands_for,
                activity::SPELL => one.stands_for * u64::from(one.register) / 1_000_000,
                _ => 0,
            });
            let active: u64 = active.sum();
            // Spells stand for the pauses before them, without their own time.
            assert!(whole.abs_diff(last.time) < last.time / 10, "{whole}");
            assert!(active.abs_diff(WORKS / 5) < WORKS / 25, "{active}");
            let spells = all.iter().filter(|one| one.state == activity::SPELL);
            assert_eq!(spells.count() > 10, !is_queued);
            // Pauses are random, so the budget is kept on average.
            let allowed = last.time * most / 1_000;
            assert!(spent * 10 <= allowed * 11, "{spent} {by_looks}");
            assert!(
                all.iter()
                    .all(|one| one.state == activity::SPELL || one.late < 110_000)
            );
        }
    }
}

#[test]
fn spells_see_kernels_begin_and_end() {
    let (all, ..) = run(false, false, 0);
    let of_spells = all.iter().filter(|one| {
        one.stands_for == 0 && matches!(one.state, activity::IDLE | activity::ACTIVE)
    });
    let of_spells: Vec<(u64, u64, u32)> = of_spells
        .map(|one| (one.time - u64::from(one.late), one.time, one.state))
        .collect();
    // Whole kernels: idle, at work, still at work, idle again.
    let whole = of_spells.windows(4).filter(|four| {
        four.iter().map(|one| one.2).eq([0, 1, 1, 0]) && four[3].1 - four[0].0 < 2 * MS
    });
    let mut count = 0;
    for kernel in whole {
        let [idle, first, last, over] = kernel else {
            unreachable!("windows of four")
        };
        count += 1;
        assert!(first.1 - idle.0 <= 30_000, "{kernel:?}");
        // A kernel is followed beyond the end of the spell, in steps of a part of its length.
        assert!(over.1 - last.0 <= 130_000, "{kernel:?}");
        let (least, most) = (last.0 - first.1, over.1 - idle.0);
        assert!(least <= MS && MS <= most, "{kernel:?}");
        assert!(first.1 % (5 * MS) <= 30_000, "{kernel:?}");
    }
    assert!((20..=60).contains(&count), "{count}");
    // None while many packets are queued.
    let (all, ..) = run(false, true, 0);
    assert_eq!(all.iter().filter(|one| one.stands_for == 0).count(), 2);
}

#[test]
fn spells_keep_what_changes() {
    let states = [0, 0, 0, 1, 1, 1, 1, 0, 1, 0, 0];
    let mut spell = Spell::new(GPUS[0]);
    let mut kept = Vec::new();
    for (at, state) in (0..).zip(states) {
        let seen = Seen {
            before: at * 10,
            after: at * 10 + 5,
            state,
            register: 0,
        };
        assert!(spell.take(seen, |seen| kept.push((seen.before, seen.state))));
        assert_eq!(spell.is_idle(), state == activity::IDLE);
        // Only kernels whose begin was seen are followed, and for a while.
        let active = state == activity::ACTIVE;
        assert_eq!(spell.follow(at * 10 + 5 + 640).is_some(), active);
        assert_eq!(spell.follow(at * 10 + 5 + 200 * MS), None);
    }
    // Of 100 ns, 30 between active readings, and half of each of four changes.
    assert_eq!((spell.active(), spell.unseen()), (500_000, 0));
    spell.end(|seen| kept.push((seen.before, seen.state)));
    let all = [
        (0, 0),
        (20, 0),
        (30, 1),
        (60, 1),
        (70, 0),
        (80, 1),
        (90, 0),
        (100, 0),
    ];
    assert_eq!(kept, all);
    // A register that flickers does not fill the capture.
    let mut spell = Spell::new(GPUS[0]);
    let mut count = 0;
    for at in 0.. {
        let seen = Seen {
            before: at,
            after: at,
            state: (at % 2) as u32,
            register: 0,
        };
        count += 1;
        if !spell.take(seen, |_| {}) {
            break;
        }
    }
    assert_eq!(count, 257);
}

#[test]
fn a_gpu_that_refuses_is_not_asked_again() {
    assert_eq!(run(true, false, 0), (Vec::new(), 1, 0));
}

#[test]
fn a_queue_of_unknown_agent_is_of_the_only_gpu() {
    let (now, opened, paused) = (Cell::new(0), Cell::new(0), Cell::new(0));
    for (gpus, begun) in [(1, 1), (2, 0)] {
        let registers = Fifth {
            now: &now,
            until: 0,
            opened: &opened,
            paused: &paused,
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
    let (now, opened, paused) = (Cell::new(0), Cell::new(0), Cell::new(0));
    let registers = Fifth {
        now: &now,
        until: 0,
        opened: &opened,
        paused: &paused,
        refuses: false,
    };
    let mut readings = Readings::new(registers, GPUS.to_vec(), 0, 7);
    let mut bytes = Vec::new();
    readings.works(Some(1), 0, &mut bytes);
    assert_eq!((readings.due(), bytes.len(), opened.get()), (None, 0, 0));
}

/// A register that is idle, and gives no answer from the fifth reading on, as during a reset.
struct Resets<'a>(&'a Cell<u32>);

impl<'a> Registers for Resets<'a> {
    type Open = &'a Cell<u32>;

    fn open(&self, _: u32) -> Result<Self::Open, ActivityError> {
        Ok(self.0)
    }

    fn read(count: &Self::Open) -> Result<Reading, ActivityError> {
        count.set(count.get() + 1);
        if count.get() < 5 {
            return Ok(Reading { register: 0 });
        }
        let path = "renderD128".into();
        Err(ActivityError::NoAnswer { path })
    }

    fn pause(_: &Self::Open, _: u64) {}
}

#[test]
fn a_spell_that_a_reset_ends_has_no_share() {
    let (count, now) = (Cell::new(0), Cell::new(0));
    let mut readings = Readings::new(Resets(&count), GPUS.to_vec(), 20_000, 7);
    let mut bytes = Vec::new();
    readings.works(Some(1), 0, &mut bytes);
    now.set(readings.due().unwrap());
    assert!(readings.tick(0, false, clock(&now), &mut bytes));
    let states: Vec<u32> = records(&bytes).iter().map(|one| one.state).collect();
    let idle = activity::IDLE;
    assert_eq!(states, [activity::BEGIN, idle, idle, activity::REFUSED]);
    assert_eq!(readings.due(), None);
}
