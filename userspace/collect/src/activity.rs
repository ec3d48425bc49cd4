//! Reads whether the GPUs are at work, at random moments while they may be.
//!
//! A queue shows when the GPU takes a packet, but not when the last one ends. The GPU's own status
//! register tells whether anything runs. The share of random readings that find the GPU active is
//! the share of time in which it is.
//!
//! Registers are read from the first submission of packets without completion signals on, until the
//! GPUs are idle and nothing has been submitted for [`LINGER`]: no idle GPU is kept awake. The
//! recorder learns of submissions with a delay, so the first work after a pause may be over before
//! the first reading. The records say when readings began and ended.

use gputrace_abi::{
    gpu::{ACTIVITY_SIZE, Activity, activity},
    record::kind,
};
use gputrace_kfd::{
    Paths,
    activity::{ActivityError, Reading, Register},
};

use crate::{
    header::header,
    looks::{Account, Random, WINDOW},
};

/// How long readings go on after the last submission, ns: a multiple of the time in which the
/// recorder learns of one.
const LINGER: u64 = 250_000_000;

/// Least share of the budget for looks that readings may take.
const SHARE: f64 = 0.3;

/// Share of what looks leave of their budget that readings may take.
const SHARE_OF_REST: f64 = 0.8;

/// Shortest mean pause between two readings, ns.
const FASTEST: u64 = 500_000;

/// Shortest mean pause while many packets are queued, ns: read indices say more then.
const WHILE_QUEUED: u64 = 10_000_000;

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
}

impl Registers for Paths {
    type Open = Register;

    fn open(&self, minor: u32) -> Result<Register, ActivityError> {
        Register::open(self, minor)
    }

    fn read(open: &Register) -> Result<Reading, ActivityError> {
        open.read()
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
    account: Account,
    random: Random,
    due: u64,
    /// The mean of the pauses from which the present one was drawn.
    period: u64,
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
            account: Account::new(FIRST_COST),
            random: Random::new(seed),
            due: 0,
            period: FASTEST,
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
                    self.plan(now, 0, false);
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
        (!self.watched.is_empty()).then_some(self.due)
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
        if self.watched.is_empty() || began < self.due {
            return false;
        }
        let plan = Planned {
            period: self.period,
            late: began.saturating_sub(self.due),
        };
        self.watched.retain(|watched| {
            let (state, register) = match R::read(&watched.open) {
                Err(_) => (activity::REFUSED, 0),
                Ok(reading) if reading.is_active() => (activity::ACTIVE, reading.register),
                Ok(reading) => (activity::IDLE, reading.register),
            };
            let mut add = |plan, state| {
                into.extend_from_slice(&record(watched.gpu, clock(), plan, (state, register)));
            };
            add(plan, state);
            let is_over = began.saturating_sub(watched.worked) >= LINGER;
            if state == activity::IDLE && is_over {
                add(NOT_PLANNED, activity::END);
            }
            !(state == activity::REFUSED || state == activity::IDLE && is_over)
        });
        self.plan(began, spent, is_queued);
        true
    }

    /// Notes what a reading cost, ns of processor time.
    pub(crate) fn spent(&mut self, now: u64, cost: u64) {
        self.account.spend(now, cost);
        self.account.learn(cost, 1, false);
    }

    /// Plans the next reading: at a random moment, half a period to one and a half from now.
    fn plan(&mut self, now: u64, spent: u64, is_queued: bool) {
        self.account.forget(now);
        let by_looks = spent.saturating_sub(self.account.in_window) as f64;
        let rest = (self.budget - by_looks) * SHARE_OF_REST;
        let allowance = rest.max(self.budget * SHARE);
        let sustained = self.account.cost * WINDOW as f64 / allowance.max(1.0);
        let fastest = if is_queued { WHILE_QUEUED } else { FASTEST };
        self.period = (sustained as u64).max(fastest);
        self.due = now.saturating_add(self.random.jittered(self.period));
    }
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
