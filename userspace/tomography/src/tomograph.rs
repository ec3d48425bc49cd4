//! Routes packets and looks to their queues, and decides when the equations are solved.

mod halves;

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::{
    Class, Lengths, Look, MOST_CLASSES, Mean, Packet, Task, Told,
    balance::Balance,
    column,
    doorbell::Doorbells,
    model::Model,
    noise::Noise,
    normal::{Normal, Solution},
    queue::{Queue, When},
};

/// Nothing is reported before looks cover this much time, ns. In a simulation with 1,000 looks a
/// second, means after 200 ms were wrong by up to 44 % without their errors showing it.
const SHORTEST: u64 = 1_000_000_000;

/// Time constant of forgetting, ns of the looks' time: clocks change, and durations with them.
const MEMORY: f64 = 30e9;

/// A doorbell reads the index at most this long before its own time, ns.
const READ_BEFORE: u64 = 500;

/// Number of time blocks whose equations are kept apart when everything is processed again.
const BLOCKS: u64 = 32;

/// Length of a block otherwise, ns.
const BLOCK: u64 = 1_000_000_000;

/// How often the equations are solved, ns of the looks' time.
const SOLVE_EVERY: u64 = 500_000_000;

/// When everything seen is processed again with the means known by then, ns of the looks' time:
/// first after this time, then after twice as long each time, while everything is remembered.
const REFINE_FIRST: u64 = 75_000_000;

/// Number of passes then, and at the end.
const PASSES: usize = 2;
const LAST_PASSES: usize = 4;

/// Equations per class needed to make further processing worthwhile.
const ENOUGH: usize = 4;

/// Matrix cells that may be processed per us of a live recording, at about a third of a ns each.
const CELLS: f64 = 8.0;

/// Maximum number of packets and looks remembered for processing them again.
const MOST_REMEMBERED: usize = 1 << 17;

/// Estimates the mean durations of the classes of the queues of one agent.
#[derive(Debug)]
pub struct Tomograph {
    /// Column of each class by the caller's number.
    columns: HashMap<u32, usize, RandomState>,
    /// Classes by column, starting with the first class's column.
    classes: Vec<Known>,
    core: Core,
    /// By queue: time of the last look, ns, and its read index.
    seen: HashMap<u32, (u64, u64), RandomState>,
    /// Doorbells by queue.
    doorbells: HashMap<u32, Doorbells, RandomState>,
    /// All input, or `None` if it was too much to be remembered.
    remembered: Option<Vec<Given>>,
    /// Times of the first look, of the newest one, and of the last solution, ns.
    began: u64,
    now: u64,
    solved: u64,
    /// When the current block of time began, ns.
    block: u64,
    is_half: bool,
    /// How long after the first look everything is processed again, ns.
    refine_after: u64,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    number: u32,
    count: u64,
}

/// One piece of input.
#[derive(Clone, Copy, Debug)]
enum Given {
    Packet(u32, Packet, Option<usize>),
    Look(u32, Look, When),
    End(u32),
}

/// The queues and the model estimated from them.
#[derive(Debug)]
struct Core {
    queues: HashMap<u32, Queue, RandomState>,
    model: Model,
}

impl Core {
    fn give(&mut self, given: &Given) {
        let Self { queues, model } = self;
        match given {
            Given::Packet(queue, packet, column) => {
                queues
                    .entry(*queue)
                    .or_default()
                    .packet(packet, *column, model);
            }
            Given::Look(queue, look, when) => {
                queues.entry(*queue).or_default().look(look, *when, model);
            }
            Given::End(queue) => {
                if let Some(mut queue) = queues.remove(queue) {
                    queue.flush(model);
                }
            }
        }
    }
}

impl Default for Tomograph {
    fn default() -> Self {
        Self::new()
    }
}

impl Tomograph {
    /// An estimator without any input.
    #[must_use]
    pub fn new() -> Self {
        Self {
            columns: HashMap::default(),
            classes: Vec::new(),
            core: Core {
                queues: HashMap::default(),
                model: Model {
                    normal: Normal::new(column::CLASSES),
                    solution: Solution::unknown(column::CLASSES),
                    noise: Noise::default(),
                    is_mature: false,
                    quiet: Vec::new(),
                    limit: None,
                    left: 0.0,
                    counted: 0.0,
                    passed: Vec::new(),
                    durations: Vec::new(),
                    balance: Balance::default(),
                },
            },
            seen: HashMap::default(),
            doorbells: HashMap::default(),
            remembered: Some(Vec::new()),
            began: 0,
            now: 0,
            solved: 0,
            block: 0,
            is_half: false,
            refine_after: REFINE_FIRST,
        }
    }

    /// Limits the number of looks that are used, so that they cost less than 1 % of a processor.
    /// For a live recording, while the program runs. All packets are still followed.
    #[must_use]
    pub fn frugal(mut self) -> Self {
        self.core.model.limit = Some(CELLS);
        self
    }

    /// Adds a packet of a queue. Packets must be added in the order of their indices.
    pub fn packet(&mut self, queue: u32, packet: &Packet) {
        let column = match packet.task {
            Task::Class(number) => self.column(number),
            Task::Nothing => Some(column::BARRIER),
            Task::Unknown => None,
        };
        if let Some(class) = column
            .and_then(|column| column.checked_sub(column::CLASSES))
            .and_then(|class| self.classes.get_mut(class))
        {
            class.count += 1;
        }
        self.take(Given::Packet(queue, *packet, column));
    }

    /// Adds what the doorbell of the packet at `index` observed of its queue's read index, in order
    /// of time with looks. `time` is when the doorbell was about to ring, ns. The read index was
    /// read just before that.
    pub fn doorbell(&mut self, queue: u32, time: u64, read_index: u64, index: u64) {
        let left = index.saturating_sub(read_index);
        if !self.doorbells.entry(queue).or_default().ring(left) {
            return;
        }
        self.look_between(
            queue,
            Look {
                time,
                read_index,
                write_index: index,
                before: self.seen.get(&queue).map_or(0, |(seen, _)| *seen),
            },
            time.saturating_sub(READ_BEFORE),
            if left == 0 { When::Tied } else { When::Free },
        );
    }

    /// Adds a look at a queue. Looks must be added in order of time.
    pub fn look(&mut self, queue: u32, look: &Look) {
        self.look_between(queue, *look, look.time, When::Free);
    }

    /// Adds a look that still saw the index at `at`, ns.
    fn look_between(&mut self, queue: u32, mut look: Look, at: u64, when: When) {
        if let Some((time, index)) = self.seen.get_mut(&queue) {
            if look.read_index < *index {
                return;
            }
            if look.read_index == *index {
                *time = at.max(*time);
                return;
            }
            if look.before > 0 {
                // Looks and doorbells each know only of earlier ones of their own kind.
                look.before = look.before.max(*time).min(look.time);
            }
        }
        self.seen.insert(queue, (at, look.read_index));
        self.take(Given::Look(queue, look, when));
        self.now = self.now.max(look.time);
        if self.began == 0 {
            self.began = self.now;
            self.solved = self.now;
        }
        let is_due = self.now - self.began >= self.refine_after;
        if is_due && self.remembered.is_some() {
            let (growth, passes) = if self.core.model.limit.is_some() {
                (4, 1)
            } else {
                (2, PASSES)
            };
            self.refine_after = self.refine_after.saturating_mul(growth);
            self.refine(passes);
        }
        // The cost of a solution grows with the cube of the number of classes.
        let every = SOLVE_EVERY * (1 + self.classes.len() as u64 / 128);
        if self.now - self.solved >= every {
            self.solve();
        }
    }

    /// Ends a queue: no further input comes for it.
    pub fn end(&mut self, queue: u32) {
        self.seen.remove(&queue);
        self.doorbells.remove(&queue);
        self.take(Given::End(queue));
    }

    /// Ends the input: takes everything held back into account.
    pub fn finish(&mut self) {
        if self.remembered.is_some() {
            self.refine(LAST_PASSES);
        }
        // Must come before looks without successors are used.
        let halves = match &self.remembered {
            Some(remembered)
                if !self.is_half
                    && self.core.model.limit.is_none()
                    && self.core.model.is_mature =>
            {
                Some(halves::estimates(remembered))
            }
            _ => None,
        };
        // In order: what a queue says depends on what the model was told before, and a map's own
        // order is another one each time.
        let mut queues: Vec<(&u32, &mut Queue)> = self.core.queues.iter_mut().collect();
        queues.sort_unstable_by_key(|(number, _)| **number);
        for (_, queue) in queues {
            queue.flush(&mut self.core.model);
        }
        self.solve();
        if let Some(halves) = halves {
            self.core.model.solution.doubt(|column, _| {
                let [one, other] = halves
                    .each_ref()
                    .map(|half| half.core.model.solution.mean(column));
                let doubt = halves::doubt([(one.value, one.error), (other.value, other.error)]);
                (0.0, doubt / 1e6)
            });
        }
        self.remembered = None;
    }

    /// Marks this as an estimator for half of the looks, which does not split them again.
    fn half(mut self) -> Self {
        self.is_half = true;
        self
    }

    fn take(&mut self, given: Given) {
        self.core.give(&given);
        if let Some(remembered) = &mut self.remembered {
            remembered.push(given);
            let (most, passes) = match self.core.model.limit {
                Some(_) => (MOST_REMEMBERED / 2, 1),
                None => (MOST_REMEMBERED, PASSES),
            };
            if remembered.len() > most {
                self.refine(passes);
                self.remembered = None;
            }
        }
    }

    /// Processes everything seen again with the current means, because what an observation says
    /// about them depends on them.
    fn refine(&mut self, passes: usize) {
        self.solve();
        if self.core.model.normal.rows() < ENOUGH * (20 + self.classes.len()) {
            return;
        }
        let Some(remembered) = self.remembered.take() else {
            return;
        };
        for _ in 0..passes {
            let model = &mut self.core.model;
            model.is_mature = true;
            model.passed.clear();
            model.durations.clear();
            model.balance = Balance::default();
            (model.left, model.counted) = (0.0, 0.0);
            model.normal = Normal::new(column::CLASSES + self.classes.len());
            self.core.queues.clear();
            let length = (self.now.saturating_sub(self.began) / BLOCKS).max(1);
            let mut next = 0;
            for given in &remembered {
                if let Given::Look(_, look, _) = given
                    && look.time >= next
                {
                    let model = &mut self.core.model;
                    model.normal.begin_block(&model.solution);
                    model.balance.begin_block();
                    next = look.time.saturating_add(length);
                }
                self.core.give(given);
            }
            self.solve();
        }
        self.remembered = Some(remembered);
    }

    /// Updates the means. Otherwise this happens every half second of the looks' time.
    pub fn solve(&mut self) {
        let elapsed = self.now.saturating_sub(self.solved) as f64;
        let model = &mut self.core.model;
        model.noise.settle();
        model.solution = model.normal.solve(model.noise.scale());
        let solution = &model.solution;
        if let Some(missing) = model.balance.missing(|column| solution.value(column)) {
            model
                .solution
                .doubt(|column, mean| missing.variance(column, mean));
        }
        if model.normal.is_fresh() || self.now.saturating_sub(self.block) >= BLOCK {
            model.normal.begin_block(&model.solution);
            model.balance.begin_block();
            self.block = self.now;
        }
        if self.remembered.is_none() {
            model.normal.forget((-elapsed / MEMORY).exp());
        }
        self.solved = self.now;
    }

    /// What is known of a class, as of the last solution.
    #[must_use]
    pub fn told(&self, number: u32) -> Told {
        match self.columns.get(&number) {
            Some(&column) => self.told_at(column),
            None => Told::Unseen,
        }
    }

    fn told_at(&self, column: usize) -> Told {
        if self.now - self.began < SHORTEST {
            return Told::Unseen;
        }
        self.core.model.told(column)
    }

    /// The gap between a packet's end and the begin of the next one that waits for it, as of the
    /// last solution. Without evidence this is the assumed value, 6 ± 3.5 us.
    #[must_use]
    pub fn gap(&self) -> Mean {
        self.core.model.solution.mean(column::GAP)
    }

    /// The time from a submission into an empty queue to the begin, as of the last solution.
    #[must_use]
    pub fn latency(&self) -> Mean {
        self.core.model.solution.mean(column::LATENCY)
    }

    /// The step width in which a queue's read index is reported; `None` while it is unknown.
    #[must_use]
    pub fn step(&self, queue: u32) -> Option<u64> {
        self.core.queues.get(&queue)?.step()
    }

    /// How much single durations differ from their class's mean, as a fraction of it.
    #[must_use]
    pub fn spread(&self) -> f64 {
        self.core.model.noise.spread()
    }

    /// All classes, in the order in which they were first seen, except those beyond
    /// [`MOST_CLASSES`].
    pub fn classes(&self) -> impl Iterator<Item = Class> {
        self.classes
            .iter()
            .zip(column::CLASSES..)
            .map(|(class, column)| {
                let told = self.told_at(column);
                Class {
                    number: class.number,
                    count: class.count,
                    told,
                    lengths: self.lengths_at(column, told),
                }
            })
    }

    /// The two lengths of a class, if it has a mean and clearly two lengths, by the last solution.
    #[must_use]
    pub fn lengths(&self, number: u32) -> Option<Lengths> {
        let column = *self.columns.get(&number)?;
        self.lengths_at(column, self.told_at(column))
    }

    fn lengths_at(&self, column: usize, told: Told) -> Option<Lengths> {
        match told {
            Told::Apart(_) => self.core.model.lengths(column),
            Told::Mixed | Told::Unseen => None,
        }
    }

    fn column(&mut self, number: u32) -> Option<usize> {
        if let Some(&column) = self.columns.get(&number) {
            return Some(column);
        }
        if self.classes.len() >= MOST_CLASSES {
            return None;
        }
        let column = column::CLASSES + self.classes.len();
        self.columns.insert(number, column);
        self.classes.push(Known { number, count: 0 });
        self.core.model.normal.grow(column + 1);
        self.core.model.solution.grow(column + 1);
        Some(column)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The looks that were used: each index with the last earlier time at which it had not been
    /// reached.
    /// reached.
    fn used(tomograph: &Tomograph) -> Vec<(u64, u64, u64)> {
        let given = tomograph.remembered.iter().flatten();
        let looks = given.filter_map(|given| match given {
            Given::Look(_, look, _) => Some((look.time, look.read_index, look.before)),
            _ => None,
        });
        looks.collect()
    }

    #[test]
    fn doorbells_and_looks_know_of_each_other() {
        let mut tomograph = Tomograph::new();
        let look = |time, read_index, before| Look {
            time,
            read_index,
            write_index: 20,
            before,
        };
        // This many doorbells are judged before one counts.
        for time in 0..64 {
            tomograph.doorbell(0, time, 4, 5 + time);
            tomograph.doorbell(1, time, 2, 5 + time);
        }
        tomograph.look(0, &look(10_000, 4, 0));
        tomograph.doorbell(0, 20_000, 4, 10);
        tomograph.look(0, &look(30_000, 6, 10_000));
        tomograph.doorbell(0, 40_000, 7, 11);
        // Read earlier, but recorded later.
        tomograph.doorbell(0, 41_000, 6, 12);
        tomograph.doorbell(0, 50_000, 7, 13);
        tomograph.look(0, &look(60_000, 7, 30_000));
        tomograph.doorbell(0, 70_000, 9, 14);
        tomograph.doorbell(1, 80_000, 3, 5);
        assert_eq!(
            used(&tomograph),
            [
                (10_000, 4, 0),
                // The doorbell read the index up to half a us earlier.
                (30_000, 6, 19_500),
                (40_000, 7, 30_000),
                (70_000, 9, 60_000),
                (80_000, 3, 0),
            ]
        );
    }
}
