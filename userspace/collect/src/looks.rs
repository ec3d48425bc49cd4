//! Decides when the recorder looks at read indices. It looks only while queues hold packets.
//!
//! Pauses between looks are random, between half a period and one and a half. With a fixed period,
//! looks would meet a program that repeats itself at the same point of each repetition.
//!
//! The period depends on how short the packets are and on what looks cost. The budget is a share of
//! one core over a sliding second: the more of it is spent, the longer the period. Once it is used
//! up, there are no looks until the window has moved on. So a program that starts to work is looked
//! at often, and one that keeps working is looked at as often as the budget allows.
//!
//! While packets are short, half of the budget is spent on spells: looks without pauses for a
//! millisecond or so, which see packets begin and end. One wake-up costs as much as ten looks
//! without one.

mod account;
mod periods;
mod random;

use std::time::Duration;

use gputrace_capture::ledger::Looks;

use self::{account::PART, periods::Periods};
pub(crate) use self::{
    account::{Account, WINDOW},
    random::Random,
};

/// Shortest pause between two looks, ns.
pub(crate) const FASTEST: u64 = 100_000;
/// How often everything other than read indices is looked at.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(25);

pub(crate) const SLOWEST: u64 = 1_000_000;

/// Assumed cost of a look before one was measured, ns of processor time.
const FIRST_COST: f64 = 30_000.0;

/// Minimum number of looks in a run, as far as the budget allows: waking up for a run costs several
/// times as much as a look in it.
const LEAST: usize = 8;

/// Share of the budget for spells, while there are any.
const SPELLS: f64 = 0.5;

/// Minimum distance from one spell to the next, in lengths of a spell.
const APART: f64 = 8.0;

/// Target of the period, relative to the period that would use exactly the budget: some of the
/// budget is reserved for what may follow.
const CAUTION: f64 = 1.2;

/// The next action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// No look: nothing is expected, or the budget is zero.
    Rest,
    /// Decide again later, ns from now.
    Wait(u64),
    /// Look after each of these pauses, ns; the first one starts now.
    Look(Vec<u32>),
    /// Look after this pause, ns, and continue without pauses for this long, ns.
    Spell(u32, u32),
}

/// Decides when to look, and keeps the accounts of looking. Times are ns of any monotonic clock.
#[derive(Debug)]
pub(crate) struct Schedule {
    /// Share of one core, millionths.
    budget: u32,
    random: Random,
    began: u64,
    due: u64,
    single: Account,
    spells: Account,
    /// When the next spell is due, and whether spells are wanted now.
    spell_due: u64,
    has_spells: bool,
    figures: Looks,
    /// When the last look was, ns, if packets have been expected ever since.
    last: Option<u64>,
    periods: Periods,
}

impl Schedule {
    /// Makes a schedule. `budget` is a share of one core, in millionths; 0: no looks. `seed` should
    /// differ between recordings.
    pub(crate) fn new(budget: u32, seed: u64, now: u64) -> Self {
        Self {
            budget,
            random: Random::new(seed),
            began: now,
            due: now,
            single: Account::new(FIRST_COST),
            spells: Account::new(0.0),
            spell_due: now,
            has_spells: false,
            figures: Looks::default(),
            last: None,
            periods: Periods::default(),
        }
    }

    /// Maximum cost of the looks in a window, ns.
    fn allowance(&self) -> u64 {
        WINDOW / 1_000_000 * u64::from(self.budget)
    }

    /// Makes the next look due: packets were submitted after a time in which none were expected.
    pub(crate) fn wake(&mut self, now: u64) {
        self.due = self.due.min(now);
    }

    /// Decides what to do next. `wanted` is the ideal period, ns, if packets are expected. A run of
    /// looks must end within `longest` ns. If `spell` is not 0, some looks are spells of that
    /// length, ns.
    pub(crate) fn plan(&mut self, now: u64, wanted: Option<u64>, longest: u64, spell: u32) -> Plan {
        let Some(wanted) = wanted.filter(|_| self.budget > 0) else {
            self.last = None;
            return Plan::Rest;
        };
        self.single.forget(now);
        self.spells.forget(now);
        let allowance = self.allowance();
        let spent = self.single.in_window + self.spells.in_window;
        let left = allowance.saturating_sub(spent) as f64;
        self.has_spells = spell > 0 && self.affords_spells(spell);
        // The cost of a look on this machine is unknown before the first one.
        if self.has_spells && self.figures.looks > 0 {
            let first = self.spell_due.saturating_sub(now);
            let cost = self.spell_cost(spell);
            let fits =
                cost <= left && self.spells.in_window as f64 + cost <= allowance as f64 * SPELLS;
            if fits && first <= longest && self.spell_due <= self.due.max(now) {
                return Plan::Spell(first as u32, spell);
            }
        }
        // The last look may cost more than expected, so the budget is not used up completely.
        let affordable = left / self.single.cost;
        let least = (allowance as f64 / self.single.cost).min(LEAST as f64);
        if affordable < least.max(1.0)
            && let Some(part) = self.oldest()
        {
            // Waits until the oldest part of the window is forgotten.
            let over = (part * PART).saturating_add(WINDOW + PART);
            return Plan::Wait(over.saturating_sub(now).max(1));
        }
        let first = self.due.saturating_sub(now);
        if first > longest {
            return Plan::Wait(first);
        }
        // Longer periods are waited for between runs.
        let period = self.period(wanted).min(wanted.max(longest / LEAST as u64));
        let mut pauses = vec![first as u32];
        let mut last = first;
        let most = if self.figures.looks == 0 {
            1
        } else {
            affordable as usize
        };
        let most = most.clamp(1, gputrace_reader::LOOKS);
        while pauses.len() < most {
            let pause = self.random.jittered(period);
            last = last.saturating_add(pause);
            if last > longest {
                break;
            }
            pauses.push(u32::try_from(pause).unwrap_or(u32::MAX));
        }
        Plan::Look(pauses)
    }

    /// Whether the budget suffices for several spells per second.
    fn affords_spells(&self, spell: u32) -> bool {
        self.spell_cost(spell) * 4.0 <= self.allowance() as f64 * SPELLS
    }

    /// Expected cost of a spell, ns.
    fn spell_cost(&self, spell: u32) -> f64 {
        self.spells.cost.max(f64::from(spell))
    }

    /// The oldest part of the window in which something was spent.
    fn oldest(&self) -> Option<u64> {
        let accounts = [&self.single, &self.spells];
        let parts = accounts.map(Account::oldest);
        parts.into_iter().flatten().min()
    }

    /// Notes a spell, with the times of its looks. It cost `cost` ns of processor time.
    pub(crate) fn went_on(&mut self, now: u64, times: &[u64], spell: u32, cost: u64) {
        self.spells.spend(now, cost);
        let is_first = self.spells.cost == 0.0;
        self.spells.learn(cost, 1, is_first);
        self.count(times, cost);
        // Like the period of single looks: as short as the budget allows.
        let allowance = self.allowance().max(1) as f64 * SPELLS;
        let used = self.spells.in_window as f64 / allowance;
        let cost = self.spell_cost(spell);
        let sustained = cost * WINDOW as f64 / allowance;
        let period = (cost * APART).max(sustained * CAUTION * used) as u64;
        self.spell_due = now.saturating_add(self.random.jittered(period));
    }

    /// Notes a run of looks, made at `times`; the next look follows after about `wanted` ns. The
    /// run cost `cost` ns of processor time, including everything around it.
    pub(crate) fn looked(&mut self, now: u64, wanted: u64, times: &[u64], cost: u64) {
        self.single.spend(now, cost);
        let looks = times.len() as u64;
        if looks > 0 {
            self.single.learn(cost, looks, self.figures.looks == 0);
        }
        self.count(times, cost);
        let first = times.first().copied().unwrap_or(now);
        let last = times.last().copied().unwrap_or(now);
        let period = self.period(wanted);
        let rest = period
            .saturating_mul(looks.max(1))
            .saturating_sub(last.saturating_sub(first));
        self.due = last.saturating_add(self.random.jittered(rest.max(wanted)));
    }

    /// Mean period, ns, that the budget allows if `wanted` is ideal.
    fn period(&self, wanted: u64) -> u64 {
        let share = if self.has_spells { 1.0 - SPELLS } else { 1.0 };
        let allowance = self.allowance().max(1) as f64 * share;
        let used = self.single.in_window as f64 / allowance;
        let sustained = self.single.cost * WINDOW as f64 / allowance;
        (wanted as f64).max(sustained * CAUTION * used) as u64
    }

    /// What was spent in the last window, ns of processor time.
    pub(crate) fn spent_in_window(&mut self, now: u64) -> u64 {
        self.single.forget(now);
        self.spells.forget(now);
        self.single.in_window + self.spells.in_window
    }

    /// Notes that readings of registers, which share the budget, cost `cost` ns of processor time.
    pub(crate) fn spent(&mut self, now: u64, cost: u64) {
        self.single.spend(now, cost);
        self.count(&[], cost);
    }

    /// Counts looks made at `times`, and their cost.
    fn count(&mut self, times: &[u64], cost: u64) {
        self.figures.cpu += cost;
        let in_window = self.single.in_window + self.spells.in_window;
        self.figures.busiest = self.figures.busiest.max(in_window);
        self.figures.looks += times.len() as u64;
        for time in times {
            if let Some(last) = self.last.replace(*time) {
                self.periods.add(time.saturating_sub(last));
            }
        }
    }

    /// The figures of all looks so far.
    pub(crate) fn figures(&self, now: u64) -> Looks {
        Looks {
            budget: self.budget,
            time: now.saturating_sub(self.began),
            period: self.periods.median(),
            ..self.figures
        }
    }
}

#[cfg(test)]
mod tests;
