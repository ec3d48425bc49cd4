//! Decides when the recorder looks at read indices. It looks only while queues hold packets.
//!
//! Pauses between looks are random, between half and one and a half of a period. With a fixed period, looks would meet a
//! program that repeats itself at the same place of each round.
//!
//! The period depends on how short the packets are and on what looks cost. The budget is a share of one core over a sliding
//! second: the more of it is spent, the longer the period, and once it is used up there are no looks until the second has
//! moved on. So a program that starts to work is looked at often, and one that keeps working as often as the budget allows.
//!
//! While packets are short, half of the budget is for spells: looks without pauses for a ms or so, which see packets begin
//! and end. To wake up costs as much as ten looks that do not need it.

use std::{collections::VecDeque, time::Duration};

use gputrace_capture::ledger::Looks;

/// Between two looks, ns: the least, and the most while something is expected.
pub(crate) const FASTEST: u64 = 100_000;
/// How often everything but read indices is looked after.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(25);

pub(crate) const SLOWEST: u64 = 1_000_000;

/// The sliding window of the budget, ns, and the steps in which it slides.
const WINDOW: u64 = 1_000_000_000;
const PART: u64 = WINDOW / 32;

/// What a look is taken to cost before one was measured, ns of a processor's time.
const FIRST_COST: f64 = 30_000.0;

/// Looks of a run, at least, as far as the budget allows: waking up for a run costs several times what a look in it does.
const LEAST: usize = 8;

/// What spells may cost, as a share of the budget, while there are any.
const SPELLS: f64 = 0.5;

/// From one spell to the next, in spells, at least.
const APART: f64 = 8.0;

/// What the period tends to, as a share of what would just keep the budget: some of it stays for what comes.
const CAUTION: f64 = 1.2;

/// Steps of the histogram of periods to a power of two.
const STEPS: u64 = 8;

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Nothing is expected, or nothing may be spent.
    Rest,
    /// Look later, ns from now.
    Wait(u64),
    /// Look after each of these pauses, ns, of which the first is from now.
    Look(Vec<u32>),
    /// Look after this pause, ns, and go on for so long, ns.
    Spell(u32, u32),
}

/// What was spent on looks of one kind.
#[derive(Debug)]
struct Account {
    /// Of one look, or of one spell, ns of a processor's time: a mean in which the last ones count most; 0 before the first.
    cost: f64,
    spent: VecDeque<(u64, u64)>,
    in_window: u64,
}

impl Account {
    fn new(cost: f64) -> Self {
        Self {
            cost,
            spent: VecDeque::new(),
            in_window: 0,
        }
    }

    fn spend(&mut self, now: u64, cost: u64) {
        self.forget(now);
        let part = now / PART;
        match self.spent.back_mut() {
            Some((last, sum)) if *last == part => *sum += cost,
            _ => self.spent.push_back((part, cost)),
        }
        self.in_window += cost;
    }

    /// Forgets what was spent before the window.
    fn forget(&mut self, now: u64) {
        while let Some((part, cost)) = self.spent.front().copied()
            && (part * PART).saturating_add(WINDOW + PART) <= now
        {
            self.in_window = self.in_window.saturating_sub(cost);
            self.spent.pop_front();
        }
    }

    /// Takes note of what so many of them cost; `is_first` if none was seen before.
    fn learn(&mut self, cost: u64, count: u64, is_first: bool) {
        let each = cost as f64 / count.max(1) as f64;
        if is_first {
            self.cost = each;
        } else {
            self.cost += (each - self.cost) / 16.0 * (count as f64).min(8.0);
        }
        self.cost = self.cost.max(1.0);
    }
}

/// Decides when to look, and keeps the accounts of looking. Times are ns of any clock that does not go back.
#[derive(Debug)]
pub(crate) struct Schedule {
    /// As a share of one core, millionths.
    budget: u32,
    /// State of the generator.
    random: u64,
    began: u64,
    due: u64,
    single: Account,
    spells: Account,
    /// When the next spell is due, and whether spells are what is wanted now.
    spell_due: u64,
    has_spells: bool,
    figures: Looks,
    /// When the last look was, if something was expected all the time since, ns.
    last: Option<u64>,
    periods: Vec<u64>,
}

impl Schedule {
    /// `budget` is a share of one core, in millionths; 0: nobody looks. `seed` is to differ from recording to recording.
    pub(crate) fn new(budget: u32, seed: u64, now: u64) -> Self {
        Self {
            budget,
            random: seed,
            began: now,
            due: now,
            single: Account::new(FIRST_COST),
            spells: Account::new(0.0),
            spell_due: now,
            has_spells: false,
            figures: Looks::default(),
            last: None,
            periods: vec![0; 64 * STEPS as usize],
        }
    }

    /// What the looks of a window may cost, ns.
    fn allowance(&self) -> u64 {
        WINDOW / 1_000_000 * u64::from(self.budget)
    }

    /// Something was submitted after a time in which nothing was expected: the next look is due.
    pub(crate) fn wake(&mut self, now: u64) {
        self.due = self.due.min(now);
    }

    /// What to do. `wanted` is the period that would be best, ns, if something is expected; a run of looks is to be over
    /// within `longest` ns. Some looks go on for a `spell`, ns, if that is not 0.
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
        // What a look costs here is not known before the first one.
        if self.has_spells && self.figures.looks > 0 {
            let first = self.spell_due.saturating_sub(now);
            let cost = self.spell_cost(spell);
            let fits =
                cost <= left && self.spells.in_window as f64 + cost <= allowance as f64 * SPELLS;
            if fits && first <= longest && self.spell_due <= self.due.max(now) {
                return Plan::Spell(first as u32, spell);
            }
        }
        // The last look before all is spent may be dear, so it is not taken.
        let affordable = left / self.single.cost;
        let least = (allowance as f64 / self.single.cost).min(LEAST as f64);
        if affordable < least.max(1.0)
            && let Some(part) = self.oldest()
        {
            // Until the oldest part is forgotten.
            let over = (part * PART).saturating_add(WINDOW + PART);
            return Plan::Wait(over.saturating_sub(now).max(1));
        }
        let first = self.due.saturating_sub(now);
        if first > longest {
            return Plan::Wait(first);
        }
        // What is beyond that is waited for between runs.
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
            let pause = self.jittered(period);
            last = last.saturating_add(pause);
            if last > longest {
                break;
            }
            pauses.push(u32::try_from(pause).unwrap_or(u32::MAX));
        }
        Plan::Look(pauses)
    }

    /// Whether the budget is enough for some spells in a second.
    fn affords_spells(&self, spell: u32) -> bool {
        self.spell_cost(spell) * 4.0 <= self.allowance() as f64 * SPELLS
    }

    /// What a spell is expected to cost, ns.
    fn spell_cost(&self, spell: u32) -> f64 {
        self.spells.cost.max(f64::from(spell))
    }

    /// The oldest part of the window in which something was spent.
    fn oldest(&self) -> Option<u64> {
        let accounts = [&self.single, &self.spells];
        let parts = accounts.map(|account| account.spent.front().map(|(part, _)| *part));
        parts.into_iter().flatten().min()
    }

    /// A spell was taken, at this time; it cost `cost` ns of a processor's time.
    pub(crate) fn went_on(&mut self, now: u64, times: &[u64], spell: u32, cost: u64) {
        self.spells.spend(now, cost);
        let is_first = self.spells.cost == 0.0;
        self.spells.learn(cost, 1, is_first);
        self.count(times, cost);
        // As the period of single looks: up to what the budget allows.
        let allowance = self.allowance().max(1) as f64 * SPELLS;
        let used = self.spells.in_window as f64 / allowance;
        let cost = self.spell_cost(spell);
        let sustained = cost * WINDOW as f64 / allowance;
        let period = (cost * APART).max(sustained * CAUTION * used) as u64;
        self.spell_due = now.saturating_add(self.jittered(period));
    }

    /// So many looks were taken, each at one of these times; the last one is followed by the next after about `wanted` ns.
    /// Together with what was around them they cost `cost` ns of a processor's time.
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
        self.due = last.saturating_add(self.jittered(rest.max(wanted)));
    }

    /// From one look to the next on the average, ns, if `wanted` would be best: as long as the budget asks for.
    fn period(&self, wanted: u64) -> u64 {
        let share = if self.has_spells { 1.0 - SPELLS } else { 1.0 };
        let allowance = self.allowance().max(1) as f64 * share;
        let used = self.single.in_window as f64 / allowance;
        let sustained = self.single.cost * WINDOW as f64 / allowance;
        (wanted as f64).max(sustained * CAUTION * used) as u64
    }

    /// Keeps the account of looks at these times, and of what they cost.
    fn count(&mut self, times: &[u64], cost: u64) {
        self.figures.cpu += cost;
        let in_window = self.single.in_window + self.spells.in_window;
        self.figures.busiest = self.figures.busiest.max(in_window);
        self.figures.looks += times.len() as u64;
        for time in times {
            if let Some(last) = self.last.replace(*time) {
                self.count_period(time.saturating_sub(last));
            }
        }
    }

    /// What it came to.
    pub(crate) fn figures(&self, now: u64) -> Looks {
        Looks {
            budget: self.budget,
            time: now.saturating_sub(self.began),
            period: self.median_period(),
            ..self.figures
        }
    }

    /// Between a half and one and a half of a period, each as likely as the others.
    fn jittered(&mut self, period: u64) -> u64 {
        // SplitMix64: cheap, and even enough for this.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        // The high half of the product is below the period.
        let part = (u128::from(mixed) * u128::from(period)) >> 64;
        period / 2 + part as u64
    }

    fn count_period(&mut self, period: u64) {
        let power = u64::from(period.max(1).ilog2());
        // The three bits below the highest.
        let step = if power >= 3 {
            period >> (power - 3) & (STEPS - 1)
        } else {
            0
        };
        if let Some(count) = self.periods.get_mut((power * STEPS + step) as usize) {
            *count += 1;
        }
    }

    /// Exact within a sixteenth, ns; 0 if there was none.
    fn median_period(&self) -> u64 {
        let all: u64 = self.periods.iter().sum();
        let mut below = 0;
        for (bin, count) in self.periods.iter().enumerate() {
            below += count;
            if below * 2 > all {
                let (power, step) = (bin as u64 / STEPS, bin as u64 % STEPS);
                let low = (1_u64 << power) + (step << power) / STEPS;
                return low + (1 << power) / STEPS / 2;
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// A watcher for so long, whose looks cost `cost` ns each and wake up late by up to `late` ns.
    fn watch(
        schedule: &mut Schedule,
        begin: u64,
        time: u64,
        wanted: u64,
        cost: u64,
        late: u64,
    ) -> Vec<u64> {
        let (mut now, mut all) = (begin, Vec::new());
        while now < begin + time {
            match schedule.plan(now, Some(wanted), 8_000_000, 0) {
                Plan::Rest => panic!("something is expected"),
                Plan::Wait(wait) => now += wait.min(25_000_000),
                Plan::Spell(..) => panic!("none was asked for"),
                Plan::Look(pauses) => {
                    let mut times = Vec::new();
                    for pause in pauses {
                        now += u64::from(pause) + late * (all.len() as u64 % 3) / 2;
                        times.push(now);
                        now += cost / 10;
                    }
                    all.extend(&times);
                    schedule.looked(now, wanted, &times, cost * times.len() as u64);
                }
            }
        }
        all
    }

    /// The most that was spent in any second, as a share of one core.
    fn busiest(times: &[u64], cost: u64) -> f64 {
        let most = times.iter().enumerate().map(|(first, begin)| {
            let end = times.partition_point(|time| *time < begin + SECOND);
            (end - first) as u64 * cost
        });
        most.max().unwrap_or(0) as f64 / SECOND as f64
    }

    fn sorted_pauses(times: &[u64]) -> Vec<u64> {
        let mut pauses: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        pauses.sort_unstable();
        pauses
    }

    #[test]
    fn the_budget_is_kept_and_used() {
        // From a physical machine to a virtual one that is overloaded.
        for cost in [2_000, 5_000, 30_000, 200_000] {
            for budget in [1_000, 20_000, 200_000] {
                let mut schedule = Schedule::new(budget, 7, 0);
                let times = watch(&mut schedule, 0, 20 * SECOND, FASTEST, cost, 50_000);
                let share = f64::from(budget) / 1e6;
                let used = times.len() as f64 * cost as f64 / (20 * SECOND) as f64;
                assert!(
                    busiest(&times, cost) <= share * 1.05 + cost as f64 / 1e9,
                    "{cost} {budget}"
                );
                let asked = cost as f64 / (FASTEST + 25_000) as f64;
                assert!(
                    used >= 0.8 * share.min(asked) - cost as f64 / 1e9,
                    "{cost} {budget}: {used}"
                );
                let figures = schedule.figures(20 * SECOND);
                assert_eq!(figures.looks, times.len() as u64);
                // Also where looks are so rare that each is a run of its own.
                let median = sorted_pauses(&times)[(times.len() - 1) / 2];
                assert!(
                    figures.period.abs_diff(median) <= median / 6,
                    "{figures:?} {median}"
                );
                assert_eq!(figures.cpu, times.len() as u64 * cost);
                assert!(figures.busiest as f64 <= share * 1e9 + cost as f64);
            }
        }
    }

    #[test]
    fn looks_that_become_dear_become_rare() {
        let mut schedule = Schedule::new(20_000, 7, 0);
        let cheap = watch(&mut schedule, 0, 5 * SECOND, FASTEST, 5_000, 0);
        let dear = watch(&mut schedule, 5 * SECOND, 5 * SECOND, FASTEST, 100_000, 0);
        assert!(
            cheap.len() > 10 * dear.len(),
            "{} {}",
            cheap.len(),
            dear.len()
        );
        // What costs more than expected is noticed after a run.
        assert!(schedule.figures(10 * SECOND).busiest <= SECOND * 3 / 100);
    }

    #[test]
    fn no_regular_program_is_met_always_at_the_same_place() {
        let mut schedule = Schedule::new(1_000_000, 99, 0);
        let times = watch(&mut schedule, 0, 10 * SECOND, SLOWEST, 5_000, 0);
        // Rounds as long as the period, and as its multiples and fractions: each tenth is met about as often.
        for round in [SLOWEST / 4, SLOWEST, 2 * SLOWEST, 5 * SLOWEST] {
            let mut tenths = [0_usize; 10];
            for time in &times {
                tenths[(time % round * 10 / round) as usize] += 1;
            }
            let even = times.len() / 10;
            assert!(
                tenths.iter().all(|met| met.abs_diff(even) < even / 4),
                "{round}: {tenths:?}"
            );
        }
        let pauses: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let far = pauses
            .iter()
            .filter(|pause| pause.abs_diff(SLOWEST) > SLOWEST / 4)
            .count();
        assert!(far > pauses.len() / 3, "{far} of {}", pauses.len());
        let median = schedule.figures(times[times.len() - 1]).period;
        assert!(median.abs_diff(SLOWEST) < SLOWEST / 10, "{median}");
        let mut other = Schedule::new(1_000_000, 100, 0);
        assert_ne!(
            watch(&mut other, 0, SECOND, SLOWEST, 5_000, 0)[..50],
            times[..50],
            "another seed"
        );
    }

    #[test]
    fn nobody_looks_while_nothing_is_expected() {
        let mut schedule = Schedule::new(20_000, 7, 0);
        for now in 0..100 {
            assert_eq!(schedule.plan(now * FASTEST, None, 8_000_000, 0), Plan::Rest);
        }
        let mut never = Schedule::new(0, 7, 0);
        assert_eq!(never.plan(SECOND, Some(FASTEST), 8_000_000, 0), Plan::Rest);
        never.wake(SECOND);
        assert_eq!(never.plan(SECOND, Some(FASTEST), 8_000_000, 0), Plan::Rest);
        assert_eq!(never.figures(SECOND).looks, 0);
    }

    #[test]
    fn what_begins_is_looked_at_at_once_and_often() {
        let mut schedule = Schedule::new(20_000, 7, 0);
        watch(&mut schedule, 0, 10 * SECOND, FASTEST, 30_000, 0);
        // The period has grown to what the budget gives; after a pause all of it is there again.
        let begin = 13 * SECOND;
        schedule.wake(begin);
        let Plan::Look(pauses) = schedule.plan(begin, Some(FASTEST), 8_000_000, 0) else {
            panic!("looks")
        };
        assert_eq!(pauses[0], 0);
        assert!(pauses.len() >= 50, "{pauses:?}");
        assert!(
            pauses[1..]
                .iter()
                .all(|pause| (50_000..=150_000).contains(pause)),
            "{pauses:?}"
        );
    }

    #[test]
    fn spells_take_half_of_the_budget() {
        const SPELL: u32 = 1_500_000;
        for (budget, has_spells) in [(20_000, true), (100_000, true), (5_000, false)] {
            let mut schedule = Schedule::new(budget, 7, 0);
            let (mut now, mut spells, mut looks) = (0, Vec::new(), 0);
            while now < 20 * SECOND {
                match schedule.plan(now, Some(FASTEST), 8_000_000, SPELL) {
                    Plan::Rest => panic!("something is expected"),
                    Plan::Wait(wait) => now += wait.min(25_000_000),
                    Plan::Look(pauses) => {
                        let mut times = Vec::new();
                        for pause in pauses {
                            now += u64::from(pause) + 3_000;
                            times.push(now);
                        }
                        looks += times.len() as u64;
                        schedule.looked(now, FASTEST, &times, 35_000 * times.len() as u64);
                    }
                    Plan::Spell(pause, spell) => {
                        assert_eq!(spell, SPELL);
                        now += u64::from(pause);
                        spells.push(now);
                        now += u64::from(spell);
                        schedule.went_on(
                            now,
                            &[now - u64::from(spell)],
                            spell,
                            u64::from(spell) + 40_000,
                        );
                    }
                }
            }
            let allowed = 20.0 * SECOND as f64 * f64::from(budget) / 1e6;
            let (single, long) = (looks as f64 * 35e3, spells.len() as f64 * 1.54e6);
            assert!(
                single + long <= 1.05 * allowed,
                "{single} {long} of {allowed}"
            );
            assert!(
                single + long >= 0.75 * allowed,
                "{single} {long} of {allowed}"
            );
            assert_eq!(!spells.is_empty(), has_spells);
            if has_spells {
                assert!(
                    (0.35..=0.55).contains(&(long / allowed)),
                    "{long} of {allowed}"
                );
                let apart = sorted_pauses(&spells);
                assert!(
                    apart[apart.len() * 3 / 4] > apart[apart.len() / 4] * 5 / 4,
                    "jittered"
                );
            }
            let figures = schedule.figures(20 * SECOND);
            assert_eq!(figures.looks, looks + spells.len() as u64);
            assert!(
                figures.busiest as f64 <= allowed / 20.0 * 1.05,
                "{figures:?}"
            );
        }
    }

    #[test]
    fn runs_are_no_longer_than_allowed() {
        let mut schedule = Schedule::new(1_000_000, 7, 0);
        assert_eq!(
            schedule.plan(0, Some(FASTEST), 1_000_000, 0),
            Plan::Look(vec![0]),
            "the first one"
        );
        schedule.looked(0, FASTEST, &[0], 5_000);
        let Plan::Look(pauses) = schedule.plan(0, Some(FASTEST), 1_000_000, 0) else {
            panic!("looks")
        };
        assert!(
            pauses.len() > 4
                && pauses.iter().map(|pause| u64::from(*pause)).sum::<u64>() <= 1_000_000
        );
        schedule.looked(900_000, SLOWEST, &[900_000], 1);
        assert!(matches!(
            schedule.plan(900_000, Some(SLOWEST), 100_000, 0),
            Plan::Wait(_)
        ));
    }

    #[test]
    fn medians_are_near() {
        let mut schedule = Schedule::new(20_000, 7, 0);
        assert_eq!(schedule.figures(0).period, 0);
        for period in [5, 100, 200_000, 417_000, 430_000, 9_000_000, u64::MAX] {
            schedule.count_period(period);
        }
        assert!(schedule.median_period().abs_diff(417_000) < 417_000 / 16);
    }
}
