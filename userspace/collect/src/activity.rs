//! Reads whether the GPUs are at work, at random moments while they may be.
//!
//! A queue shows when the GPU takes a packet, but not when the last one ends. The GPU's own status
//! register tells whether anything runs.
//!
//! At random moments begin *spells*: readings with short pauses, or with none while the GPU is at
//! work. They see single kernels begin and end. The share of their time in which the GPU is active
//! is, on average, the share of all time. While many packets are queued there are single readings
//! instead, and few: read indices say more then.
//!
//! Registers are read from the first submission of packets without completion signals on, until the
//! GPUs are idle and nothing has been submitted for [`LINGER`]: no idle GPU is kept awake. The
//! recorder learns of submissions with a delay, so the first work after a pause may be over before
//! the first reading. The records say when readings began and ended.

use std::time::Duration;

use gputrace_abi::{
    gpu::{ACTIVITY_SIZE, Activity, activity},
    record::kind,
};
use gputrace_kfd::{
    Paths,
    activity::{ActivityError, Reading, Register},
};

use self::spell::{Seen, Spell};
use crate::{
    header::header,
    looks::{Account, Random, WINDOW},
};

mod spell;

/// How long readings go on after the last submission, ns: a multiple of the time in which the
/// recorder learns of one.
const LINGER: u64 = 250_000_000;

/// Least share of the budget for looks that readings may take, and while many packets are queued.
const SHARE: f64 = 0.6;
const SHARE_QUEUED: f64 = 0.3;

/// Share of what looks leave of their budget that readings may take.
const SHARE_OF_REST: f64 = 0.8;

/// Shortest mean pause between two readings, ns.
const FASTEST: u64 = 500_000;

/// Shortest mean pause while many packets are queued, ns: read indices say more then.
const WHILE_QUEUED: u64 = 10_000_000;

/// There are spells if readings may take the time of this many a second.
const FEWEST_SPELLS: f64 = 4.0;

/// Assumed cost of a reading before one was measured, ns of processor time.
const FIRST_COST: f64 = 30_000.0;

/// A GPU of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// KFD topology node.
    pub node_id: u32,
    /// KFD's id of the GPU.
    pub gpu_id: u32,
    /// Minor number of its render node.
    pub minor: u32,
}

/// Reads registers. Tests have an implementation of their own.
pub(crate) trait Registers {
    /// An open register.
    type Open;
    /// Opens the register of the GPU whose render node has this minor number.
    fn open(&self, minor: u32) -> Result<Self::Open, ActivityError>;
    /// Reads it.
    fn read(open: &Self::Open) -> Result<Reading, ActivityError>;
    /// Waits for this long, ns.
    fn pause(open: &Self::Open, ns: u64);
}

impl Registers for Paths {
    type Open = Register;

    fn open(&self, minor: u32) -> Result<Register, ActivityError> {
        Register::open(self, minor)
    }

    fn read(open: &Register) -> Result<Reading, ActivityError> {
        open.read()
    }

    fn pause(_: &Register, ns: u64) {
        std::thread::sleep(Duration::from_nanos(ns));
    }
}

/// A GPU whose register is read, and when work for it was last submitted.
struct Watched<R: Registers> {
    gpu: Gpu,
    open: R::Open,
    worked: u64,
}

/// Reads registers when that is due.
pub(crate) struct Readings<R: Registers> {
    registers: R,
    /// GPUs that do not refuse.
    gpus: Vec<Gpu>,
    /// Those that may be at work.
    watched: Vec<Watched<R>>,
    /// Processor time that looks and readings may take in a window, ns.
    budget: f64,
    /// Costs of single readings, and of spells.
    singles: Account,
    spells: Account,
    random: Random,
    due: u64,
    /// The mean of the pauses from which the present one was drawn.
    period: u64,
    /// How many spells there were: GPUs take turns.
    spells_made: usize,
    /// A spell that is over, whose last kernel still runs, and when to read next, ns.
    followed: Option<(Spell, u64)>,
    /// What readings after the last spell cost, ns of processor time.
    followed_cost: u64,
    /// What the last tick did.
    last: Done,
}

/// What a tick did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Done {
    /// It read each register once.
    Single,
    /// It made a spell.
    Spell,
    /// It read the register after a spell.
    Followed,
}

impl<R: Registers> Readings<R> {
    /// Makes readings that take their share of the budget for looks: a share of one core, in
    /// millionths. `seed` should differ between recordings.
    pub(crate) fn new(registers: R, gpus: Vec<Gpu>, budget: u32, seed: u64) -> Self {
        Self {
            registers,
            gpus,
            watched: Vec::new(),
            budget: (WINDOW / 1_000_000 * u64::from(budget)) as f64,
            singles: Account::new(FIRST_COST),
            spells: Account::new(spell::BUSY as f64),
            random: Random::new(seed),
            due: 0,
            period: FASTEST,
            spells_made: 0,
            followed: None,
            followed_cost: 0,
            last: Done::Single,
        }
    }

    /// Packets without completion signals were submitted before `now` to a queue of the GPU at a
    /// node; `None` if the node is unknown.
    pub(crate) fn works(&mut self, node: Option<u32>, now: u64, into: &mut Vec<u8>) {
        let gpu = match (node, self.gpus.as_slice()) {
            (None, [only]) => Some(only),
            (node, gpus) => gpus.iter().find(|gpu| Some(gpu.node_id) == node),
        };
        let Some(gpu) = gpu.copied().filter(|_| self.budget > 0.0) else {
            return;
        };
        if let Some(watched) = self.watched.iter_mut().find(|watched| watched.gpu == gpu) {
            watched.worked = now;
            return;
        }
        match self.registers.open(gpu.minor) {
            Ok(open) => {
                // Not at a random moment: it follows the program's work.
                into.extend_from_slice(&record(gpu, now, NOT_PLANNED, (activity::BEGIN, 0)));
                if self.watched.is_empty() {
                    self.plan(now, Circumstances::default());
                }
                self.watched.push(Watched {
                    gpu,
                    open,
                    worked: now,
                });
            }
            Err(error) => {
                tracing::debug!("GPU {}: {error}", gpu.gpu_id);
                // A GPU that refuses is not asked again in this recording.
                if !matches!(error, ActivityError::NoAnswer { .. }) {
                    self.gpus.retain(|one| *one != gpu);
                }
            }
        }
    }

    /// When the next reading is due, if there will be one; ns.
    pub(crate) fn due(&self) -> Option<u64> {
        let followed = self.followed.as_ref().map(|(_, due)| *due);
        let due = followed.map_or(self.due, |followed| followed.min(self.due));
        (!self.watched.is_empty()).then_some(due)
    }

    /// Reads if that is due. `spent` is the processor time that looks and readings took in the last
    /// window, ns; `is_queued` says whether queues are known to hold many packets; `clock` tells
    /// the time. Returns whether it has read.
    pub(crate) fn tick(
        &mut self,
        spent: u64,
        is_queued: bool,
        clock: impl Fn() -> u64,
        into: &mut Vec<u8>,
    ) -> bool {
        let began = clock();
        if self.watched.is_empty() {
            self.followed = None;
            return false;
        }
        let how = Circumstances { spent, is_queued };
        let followed = self.followed.take_if(|(_, due)| *due <= began);
        let is_due = self.due <= began;
        let is_followed = followed.is_some();
        if let Some((spell, _)) = followed {
            self.follow(spell, &clock, into);
            self.last = Done::Followed;
        }
        if is_due {
            if self.has_spells(began, how) {
                self.spell(&clock, into);
                self.last = Done::Spell;
            } else {
                self.read(&clock, into);
                self.last = Done::Single;
            }
            self.plan(clock(), how);
        }
        is_due || is_followed
    }

    /// Reads all registers once.
    fn read(&mut self, clock: &impl Fn() -> u64, into: &mut Vec<u8>) {
        let began = clock();
        let plan = Planned {
            period: self.period,
            late: began.saturating_sub(self.due),
        };
        self.watched.retain(|watched| {
            let (state, register) = watched.read();
            let mut add = |plan, state| {
                into.extend_from_slice(&record(watched.gpu, clock(), plan, (state, register)));
            };
            add(plan, state);
            let is_over = state == activity::IDLE && watched.is_over(began);
            if is_over {
                add(NOT_PLANNED, activity::END);
            }
            state != activity::REFUSED && !is_over
        });
    }

    /// Reads one register for the length of a spell.
    fn spell(&mut self, clock: &impl Fn() -> u64, into: &mut Vec<u8>) {
        let turn = self.spells_made % self.watched.len().max(1);
        self.spells_made = self.spells_made.wrapping_add(1);
        // With several GPUs, each has one of so many spells.
        let stands_for = self.period.saturating_mul(self.watched.len() as u64);
        let Some(watched) = self.watched.get(turn) else {
            return;
        };
        let gpu = watched.gpu;
        let mut spell = Spell::new(gpu);
        let began = clock();
        let mut now = began;
        // The time without pauses.
        let mut busy = 0;
        let is_refused = loop {
            let Some(goes_on) = watched.read_into(&mut spell, clock, into) else {
                break true;
            };
            let after = clock();
            busy += after.saturating_sub(now);
            now = after;
            if !goes_on || now.saturating_sub(began) >= spell::LENGTH || busy >= spell::BUSY {
                break false;
            }
            if let Some(pause) = spell.pause() {
                R::pause(&watched.open, pause);
                let since = std::mem::replace(&mut now, clock());
                spell.paused(now.saturating_sub(since));
            }
        };
        if !is_refused {
            let over = Planned {
                period: stands_for,
                late: spell.unseen().into(),
            };
            let what = (activity::SPELL, spell.active());
            into.extend_from_slice(&record(gpu, now, over, what));
        }
        let is_over = spell.is_idle() && watched.is_over(began);
        if is_refused || is_over {
            self.watched.remove(turn);
        }
        self.go_on(spell, now, into);
        let last = match (is_refused, is_over) {
            (true, _) => activity::REFUSED,
            (false, true) => activity::END,
            (false, false) => return,
        };
        into.extend_from_slice(&record(gpu, now, NOT_PLANNED, (last, 0)));
    }

    /// Reads the register of a spell that is over, but whose last kernel still ran.
    fn follow(&mut self, mut spell: Spell, clock: &impl Fn() -> u64, into: &mut Vec<u8>) {
        let mut watched = self.watched.iter();
        if let Some(watched) = watched.find(|watched| watched.gpu == spell.gpu) {
            watched.read_into(&mut spell, clock, into);
            self.go_on(spell, clock(), into);
        }
    }

    /// Follows the kernel that runs at the end of a spell, unless another one is followed already,
    /// or ends the spell.
    fn go_on(&mut self, spell: Spell, now: u64, into: &mut Vec<u8>) {
        match spell.follow(now).filter(|_| self.followed.is_none()) {
            Some(due) => self.followed = Some((spell, due)),
            None => {
                let gpu = spell.gpu;
                spell.end(|seen| into.extend_from_slice(&of_spell(gpu, seen)));
            }
        }
    }

    /// Notes what a reading cost, ns of processor time.
    pub(crate) fn spent(&mut self, now: u64, cost: u64) {
        match self.last {
            Done::Single => {
                self.singles.spend(now, cost);
                self.singles.learn(cost, 1, false);
            }
            Done::Spell => {
                self.spells.spend(now, cost);
                let cost = cost + std::mem::take(&mut self.followed_cost);
                self.spells.learn(cost, 1, self.spells_made == 1);
            }
            Done::Followed => {
                self.spells.spend(now, cost);
                self.followed_cost += cost;
            }
        }
    }

    /// The processor time that readings may take in a window, ns.
    fn allowance(&mut self, now: u64, how: Circumstances) -> f64 {
        self.singles.forget(now);
        self.spells.forget(now);
        let own = self.singles.in_window + self.spells.in_window;
        let by_looks = how.spent.saturating_sub(own) as f64;
        let least = if how.is_queued { SHARE_QUEUED } else { SHARE };
        let rest = (self.budget - by_looks) * SHARE_OF_REST;
        rest.max(self.budget * least)
    }

    /// Whether there are spells now.
    fn has_spells(&mut self, now: u64, how: Circumstances) -> bool {
        !how.is_queued && self.allowance(now, how) >= FEWEST_SPELLS * spell::BUSY as f64
    }

    /// Plans the next reading or spell: at a random moment, half a period to one and a half from
    /// now.
    fn plan(&mut self, now: u64, how: Circumstances) {
        let cost = if self.has_spells(now, how) {
            self.spells.cost
        } else {
            self.singles.cost
        };
        let sustained = cost * WINDOW as f64 / self.allowance(now, how).max(1.0);
        let fastest = if how.is_queued { WHILE_QUEUED } else { FASTEST };
        self.period = (sustained as u64).max(fastest);
        self.due = now.saturating_add(self.random.jittered(self.period));
    }
}

impl<R: Registers> Watched<R> {
    /// What the register shows: the state, and the register.
    fn read(&self) -> (u32, u32) {
        match R::read(&self.open) {
            Err(_) => (activity::REFUSED, 0),
            Ok(reading) if reading.is_active() => (activity::ACTIVE, reading.register),
            Ok(reading) => (activity::IDLE, reading.register),
        }
    }

    /// Makes a reading of a spell. Returns whether the spell may go on; `None` if the GPU refuses.
    fn read_into(
        &self,
        spell: &mut Spell,
        clock: impl Fn() -> u64,
        into: &mut Vec<u8>,
    ) -> Option<bool> {
        let before = clock();
        let (state, register) = self.read();
        if state == activity::REFUSED {
            return None;
        }
        let seen = Seen {
            before,
            after: clock(),
            state,
            register,
        };
        Some(spell.take(seen, |seen| {
            into.extend_from_slice(&of_spell(self.gpu, seen));
        }))
    }

    /// Whether nothing was submitted for so long that the GPU is let alone once it is idle.
    fn is_over(&self, now: u64) -> bool {
        now.saturating_sub(self.worked) >= LINGER
    }
}

/// What decides when readings are due.
#[derive(Clone, Copy, Default)]
struct Circumstances {
    /// The processor time that looks and readings took in the last window, ns.
    spent: u64,
    /// Whether queues are known to hold many packets.
    is_queued: bool,
}

/// When a reading was planned.
#[derive(Clone, Copy)]
struct Planned {
    /// The mean of the pauses from which the one before it was drawn, ns.
    period: u64,
    /// How much later it was made, ns.
    late: u64,
}

/// Of readings that are not made at random moments.
const NOT_PLANNED: Planned = Planned { period: 0, late: 0 };

/// The record of a spell's reading, which stands for nothing.
fn of_spell(gpu: Gpu, seen: Seen) -> [u8; ACTIVITY_SIZE] {
    let took = Planned {
        period: 0,
        late: seen.after.saturating_sub(seen.before),
    };
    record(gpu, seen.after, took, (seen.state, seen.register))
}

/// The record of a reading.
fn record(
    gpu: Gpu,
    time: u64,
    plan: Planned,
    (state, register): (u32, u32),
) -> [u8; ACTIVITY_SIZE] {
    zerocopy::transmute!(Activity {
        header: header(ACTIVITY_SIZE, kind::ACTIVITY, 0),
        gpu_id: gpu.gpu_id,
        state,
        time,
        stands_for: plan.period,
        register,
        late: u32::try_from(plan.late).unwrap_or(u32::MAX),
    })
}

#[cfg(test)]
mod tests;
