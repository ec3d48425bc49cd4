//! One queue: turns packets and looks into observations of its phase.

use std::collections::VecDeque;

use crate::{
    Exact, Look, Packet,
    chain::Chain,
    column,
    model::Model,
    noise::Noise,
    normal::Solution,
    observe::{Bounds, Point, Sum},
    step::Steps,
};

/// Maximum numbers of packets waiting for looks, and of looks waiting for packets.
const MOST_PACKETS: usize = 1 << 14;
const MOST_LOOKS: usize = 1 << 12;

/// Maximum number of looks that wait until the step of the index is known.
const UNSTEPPED: usize = 256;

/// A cell is long if it spans at least this many standard deviations of the phase.
const LONG: f64 = 4.0;

/// A cell whose length is uncertain by more than this fraction is no measure; more is known when
/// its end is reached.
const VAGUE: f64 = 0.3;

/// A packet that waits for nothing begins at most this long after the usual latencies, us.
const LATE: f64 = 30.0;

/// Number of standard deviations at which a queue is clearly empty or clearly not.
const CLEARLY: f64 = 3.0;

/// Maximum uncertainty of the difference of a packet's two stamps, us: a tick of the slowest clock
/// is 40 ns.
const STAMPS: f64 = 0.1;

/// Whether a look was independent of what the queue did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// It was.
    Free,
    /// The packets that it saw begun may have caused it by ending: a program that waited for its
    /// queue rings its next doorbell right after that end, each time. If such a look counted as one
    /// at a random moment, the packets before it would come out too short.
    Tied,
}

/// A packet that has not been passed yet. Times in us since the queue's origin.
#[derive(Debug)]
struct Pending {
    submitted: f64,
    column: Option<usize>,
    /// Whether it begins no earlier than the end of the packet before it, and that packet is known.
    follows: bool,
    exact: Option<(f64, f64, f64)>,
    ended_by: Option<f64>,
}

/// How a packet's begin depends on the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    /// It waited for the packet before it.
    Busy,
    /// The queue was empty when the packet was submitted.
    Idle,
    /// Unknown.
    Lost,
}

/// A queue.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    origin: Option<u64>,
    /// Index of the first packet in `packets`. `chain` refers to the begin of that packet.
    first: u64,
    packets: VecDeque<Pending>,
    looks: VecDeque<(Look, When)>,
    steps: Steps,
    last_taken: Option<(u64, u64)>,
    /// Read index of the last look used.
    seen: Option<u64>,
    /// An index and a time at which neither that packet nor later ones had begun.
    not_begun: VecDeque<(u64, f64)>,
    chain: Option<Chain>,
    /// The last packet whose begin two looks bound: its index and the bounds.
    begun: Option<(u64, f64, f64)>,
    /// Index of a packet that had not begun at a time, which was not made use of yet.
    pending: Option<(u64, f64)>,
    /// The next look: this packet and later ones had not begun at the first time, but some had
    /// begun at the second.
    ahead: Option<(u64, f64, f64)>,
    /// Current mean time between packets, us.
    pace: f64,
}

impl Queue {
    /// Adds a packet.
    pub(crate) fn packet(&mut self, packet: &Packet, column: Option<usize>, model: &mut Model) {
        let next = self.first.wrapping_add(self.packets.len() as u64);
        if !self.packets.is_empty() && packet.index < next {
            return;
        }
        let mut follows = packet.waits;
        if packet.index != next || self.packets.is_empty() {
            if self.packets.is_empty() {
                self.first = packet.index;
            } else {
                // Packets are missing in between, so looks before this one are of no further use.
                self.process(true, model);
                self.packets.clear();
                self.first = packet.index;
            }
            follows = false;
            self.chain = None;
            self.pending = None;
        }
        let micros = |time| self.micros(time);
        let pending = Pending {
            submitted: micros(packet.submitted),
            column,
            follows,
            exact: packet.exact.map(
                |Exact {
                     begin,
                     end,
                     uncertainty,
                 }| {
                    (
                        micros(begin),
                        micros(end.max(begin)),
                        uncertainty as f64 / 1e3,
                    )
                },
            ),
            ended_by: packet.ended_by.map(micros),
        };
        self.origin.get_or_insert(packet.submitted);
        let is_first = self.packets.is_empty();
        self.packets.push_back(pending);
        if is_first {
            let begin = self.exact_begin();
            self.chain = begin
                .map(|(begin, uncertainty)| Chain::observed(&Point::exact(begin, uncertainty)));
        }
        if self.packets.len() > MOST_PACKETS {
            self.process(true, model);
            while self.packets.len() > MOST_PACKETS / 2 {
                self.advance(model);
            }
        } else {
            self.process(false, model);
        }
    }

    /// Adds a look.
    pub(crate) fn look(&mut self, look: &Look, when: When, model: &mut Model) {
        if let Some((index, time)) = self.last_taken {
            if look.read_index <= index || look.time < time {
                return;
            }
            if look.read_index < look.write_index && look.before > 0 {
                self.steps.take(look.read_index - index);
            }
            let elapsed = (look.time - time) as f64 / 1e3;
            let pace = elapsed / (look.read_index - index) as f64;
            self.pace = if self.pace == 0.0 {
                pace
            } else {
                self.pace * 0.95 + pace * 0.05
            };
        }
        self.last_taken = Some((look.read_index, look.time));
        self.looks.push_back((*look, when));
        if self.looks.len() > MOST_LOOKS {
            self.process(true, model);
            self.looks.clear();
        } else {
            self.process(false, model);
        }
    }

    /// Processes everything left at the end of the input.
    pub(crate) fn flush(&mut self, model: &mut Model) {
        self.process(true, model);
    }

    /// The step width in which the read index is reported.
    pub(crate) fn step(&self) -> Option<u64> {
        self.steps.step()
    }

    fn micros(&self, time: u64) -> f64 {
        let origin = self.origin.unwrap_or(time);
        if time >= origin {
            (time - origin) as f64 / 1e3
        } else {
            -((origin - time) as f64 / 1e3)
        }
    }

    /// Processes complete looks and, with `all`, also incomplete ones.
    fn process(&mut self, all: bool, model: &mut Model) {
        let Some(step) = self.steps.step() else {
            if self.looks.len() > UNSTEPPED {
                self.looks.pop_front();
            }
            return;
        };
        while let (Some(&(look, when)), Some(&(next, _))) = (self.looks.front(), self.looks.get(1))
        {
            if look.read_index == 0 {
                self.looks.pop_front();
                continue;
            }
            let target = look.read_index - 1;
            let behind = self.first.saturating_add(self.packets.len() as u64);
            let is_there = look.read_index.saturating_add(step) <= behind;
            if !is_there && !all {
                return;
            }
            self.looks.pop_front();
            if target < self.first || target >= behind {
                self.seen = None;
                self.pending = None;
                continue;
            }
            let last = next.before.max(look.time);
            let threshold = look.read_index.saturating_add(step - 1);
            self.not_begun.push_back((threshold, self.micros(last)));
            let unseen = self.seen.filter(|_| look.before > 0 && when == When::Free);
            self.ahead = unseen.map(|seen| {
                let unseen = seen.saturating_add(step - 1);
                (unseen, self.micros(look.before), self.micros(look.time))
            });
            self.note_duration(&look, step, model);
            while self.first < target {
                self.use_pending(model);
                self.advance(model);
            }
            if model.affords(self.micros(look.time)) {
                self.observe((&look, when), last, step, model);
            }
            self.seen = Some(look.read_index);
        }
    }

    /// Takes note of how long the first packet took, if looks bound its begin and the next one's,
    /// and the next one waited for it. `look` is the first that saw the next one begun.
    fn note_duration(&mut self, look: &Look, step: u64, model: &mut Model) {
        let index = look.read_index - 1;
        let is_bounded = step == 1 && look.before > 0 && self.seen == Some(index);
        let bounds = (self.micros(look.before), self.micros(look.time));
        let begun = is_bounded.then_some((index, bounds.0, bounds.1));
        let last = std::mem::replace(&mut self.begun, begun);
        let (Some((before, from, until)), true) = (last, is_bounded) else {
            return;
        };
        if before.checked_add(1) != Some(index) || self.first != before {
            return;
        }
        let (Some(packet), Some(next)) = (self.packets.front(), self.packets.get(1)) else {
            return;
        };
        if let Some(column) = packet
            .column
            .filter(|_| next.follows && next.submitted <= from)
        {
            model.note_duration(column, bounds.0 - until, bounds.1 - from);
        }
    }

    /// The last time at which a packet is known not to have begun.
    fn not_begun(&self, index: u64) -> Option<f64> {
        let known = self
            .not_begun
            .iter()
            .take_while(|(threshold, _)| *threshold <= index);
        known.last().map(|(_, time)| *time)
    }

    /// How the next packet follows the pending packet at `at`. `ends` is when the latter is
    /// expected to have ended, including the gap, and the variance, if known.
    fn link(&self, at: usize, ends: Option<(f64, f64)>, model: &Model) -> Link {
        let (Some(packet), Some(next)) = (self.packets.get(at), self.packets.get(at + 1)) else {
            return Link::Lost;
        };
        if !next.follows {
            return Link::Lost;
        }
        let (latency, deviation) = latency(&model.solution, &model.noise);
        let clearly = |ends: f64, variance: f64| {
            let room = ends - next.submitted;
            let deviation = (variance + deviation * deviation).sqrt();
            if room > latency + CLEARLY * deviation {
                Link::Busy
            } else if room < -CLEARLY * variance.sqrt() {
                Link::Idle
            } else {
                Link::Lost
            }
        };
        if let Some((_, end, uncertainty)) = packet.exact {
            if next.submitted <= end - uncertainty {
                return Link::Busy;
            }
            return clearly(
                end + model.solution.value(column::STAMPED_GAP),
                uncertainty * uncertainty + 1.0,
            );
        }
        if packet.ended_by.is_some_and(|ended| ended <= next.submitted) {
            return Link::Idle;
        }
        let index = self.first.saturating_add(at as u64);
        if self
            .not_begun(index)
            .is_some_and(|time| next.submitted <= time)
        {
            return Link::Busy;
        }
        let surely = next.submitted + latency + LATE + 2.0 * CLEARLY * deviation;
        if self.not_begun(index + 1).is_some_and(|time| surely < time) {
            return Link::Busy;
        }
        match ends.map(|(ends, variance)| clearly(ends, variance)) {
            Some(link @ (Link::Busy | Link::Idle)) => link,
            _ if packet.column.is_some_and(|column| model.is_quiet(column)) => Link::Idle,
            _ => Link::Lost,
        }
    }

    /// Counts whether the queue was seen working after the submission of the second packet.
    fn note_quiet(&self, model: &mut Model) {
        let (Some(packet), Some(next)) = (self.packets.front(), self.packets.get(1)) else {
            return;
        };
        // For packets between two reports, nobody can see whether they wait.
        let is_seen = next.follows && self.steps.step() == Some(1);
        let Some(column) = packet.column.filter(|_| is_seen) else {
            return;
        };
        let (latency, deviation) = latency(&model.solution, &model.noise);
        let surely = next.submitted + latency + LATE + 2.0 * CLEARLY * deviation;
        let is_busy = self
            .not_begun(self.first)
            .is_some_and(|time| next.submitted <= time)
            || self
                .not_begun(self.first.saturating_add(1))
                .is_some_and(|time| surely < time);
        model.note_quiet(column, is_busy);
    }

    /// When the packet after one of `column` would begin, and the variance.
    fn ends(
        begins: Option<(f64, f64)>,
        column: Option<usize>,
        model: &Model,
    ) -> Option<(f64, f64)> {
        let (begins, variance) = begins?;
        let column = column?;
        let mean = model.solution.known(column)?;
        let error = model.solution.step_error(column);
        let (own, _) = model.noise.variance(column, Some(mean));
        let ends = begins + mean + model.solution.value(column::GAP);
        Some((ends, variance + own + error * error))
    }

    /// Moves from the first packet to the next one.
    fn advance(&mut self, model: &mut Model) {
        let begins = self
            .chain
            .as_ref()
            .map(|chain| chain.predict(&model.solution));
        let column = self.packets.front().and_then(|packet| packet.column);
        let link = self.link(0, Self::ends(begins, column, model), model);
        self.note_quiet(model);
        let Some(packet) = self.packets.pop_front() else {
            return;
        };
        if let (Some((begin, end, uncertainty)), Some(column)) = (packet.exact, packet.column) {
            let (own, _) = model.noise.variance(
                column,
                model.solution.known(column).filter(|mean| *mean > 0.0),
            );
            // Both stamps share the clocks' uncertainty, so their difference has little of it.
            let variance = own + (2.0 * uncertainty * uncertainty).min(STAMPS * STAMPS);
            model
                .normal
                .add([(column, 1.0)].into_iter(), end - begin, variance);
        }
        if let Some(column) = packet.column {
            let is_used = packet.exact.is_some() || link == Link::Busy && self.chain.is_some();
            model.note_passed(column, is_used);
        }
        let next = self.packets.front().map_or(0.0, |next| next.submitted);
        self.chain = match (link, packet.exact, packet.column, self.chain.take()) {
            (Link::Idle, ..) => Some(Chain::at(
                next,
                Some(column::LATENCY),
                model.noise.latency(),
            )),
            (Link::Busy, Some((_, end, uncertainty)), ..) => Some(Chain::at(
                end,
                Some(column::STAMPED_GAP),
                uncertainty * uncertainty + 0.1,
            )),
            (Link::Busy, None, Some(column), Some(mut chain)) => {
                chain.advance([column, column::GAP], model);
                Some(chain)
            }
            _ => self.between_looks(),
        };
        self.first = self.first.saturating_add(1);
        while self
            .not_begun
            .get(1)
            .is_some_and(|(threshold, _)| *threshold <= self.first)
        {
            self.not_begun.pop_front();
        }
        if let Some((begin, uncertainty)) = self.exact_begin() {
            let observed = Point::exact(begin, uncertainty);
            match &mut self.chain {
                Some(chain) => chain.observe(&observed, model),
                None => self.chain = Some(Chain::observed(&observed)),
            }
        }
    }

    /// A chain for the packet after the first one, of which only the submission and the surrounding
    /// looks are known.
    fn between_looks(&self) -> Option<Chain> {
        let (unseen, before, until) = self.ahead?;
        if self.first.saturating_add(1) < unseen {
            return None;
        }
        // If it was submitted in between, it most likely began soon afterwards, but that is not
        // certain.
        let is_waiting = self.packets.front()?.submitted <= before;
        let bounds = Bounds::between(Some(before), until);
        Point::middle(&bounds)
            .filter(|_| is_waiting)
            .map(|point| Chain::observed(&point))
    }

    /// The exact begin of the first packet and its uncertainty.
    fn exact_begin(&self) -> Option<(f64, f64)> {
        let (begin, _, uncertainty) = self.packets.front()?.exact?;
        Some((begin, uncertainty))
    }

    /// Uses the knowledge that the first packet had not begun at some time, before the next look
    /// refers to another packet.
    fn use_pending(&mut self, model: &mut Model) {
        let Some((_, from)) = self.pending.take_if(|(index, _)| *index <= self.first) else {
            return;
        };
        if let Some(chain) = &mut self.chain {
            chain.bounded(&Bounds::after(from), model);
        }
    }

    /// Processes a look that concerns the first packet.
    fn observe(&mut self, (look, when): (&Look, When), last: u64, step: u64, model: &mut Model) {
        let until = match when {
            When::Free => self.micros(look.time),
            When::Tied => f64::INFINITY,
        };
        let last = self.micros(last);
        let pending = self.pending.take();
        let not_before = pending.and_then(|(index, from)| (index == self.first).then_some(from));
        let is_next = self
            .seen
            .is_some_and(|seen| look.read_index <= seen.saturating_add(step));
        let before = (look.before > 0 && is_next).then(|| self.micros(look.before));
        let under_way = self.under_way(step, model);
        let is_long = |cell: &Sum| match &self.chain {
            Some(chain) => cell.mean.is_some_and(|mean| {
                let is_vague = cell.variance > VAGUE * VAGUE * mean * mean;
                mean > LONG * chain.deviation() || is_vague
            }),
            // A chain starts with certain knowledge only.
            None => before.is_some(),
        };
        let bounds = match under_way {
            // The end of a long cell is a bound by itself, used when it is reached.
            Some(cell) if is_long(&cell) => {
                self.pending = Some((self.first.saturating_add(step), last));
                Bounds::between(not_before.or(before), until)
            }
            Some(cell) => match (not_before, cell.mean) {
                (Some(from), Some(mean)) if from > last - mean => {
                    Bounds::between(not_before, until)
                }
                _ => Bounds {
                    until,
                    from: last,
                    about: self.pace * step as f64 * 2.0,
                    cell,
                },
            },
            // The queue may run empty. All that remains is that this was the next report after the
            // previous one.
            None => Bounds::between(not_before.or(before), until),
        };
        match &mut self.chain {
            Some(chain) => chain.bounded(&bounds, model),
            None => self.chain = Chain::bounded_at_first(&bounds, model),
        }
    }

    /// The duration of the packets until the next report; `None` if the queue may run empty before.
    fn under_way(&self, step: u64, model: &Model) -> Option<Sum> {
        let mut begins = self
            .chain
            .as_ref()
            .map(|chain| chain.predict(&model.solution));
        let mut sum = Sum {
            mean: Some(0.0),
            ..Sum::default()
        };
        for at in 0..step as usize {
            let column = self.packets.get(at)?.column?;
            let ends = Self::ends(begins, Some(column), model);
            if self.link(at, ends, model) != Link::Busy {
                return None;
            }
            add(&mut sum, column, model);
            begins = ends;
        }
        if !model.is_mature {
            let unknown = sum.row.variance(&model.solution).sqrt();
            sum.mean = sum.mean.filter(|mean| unknown < 0.3 * mean);
        }
        Some(sum)
    }
}

/// Adds a packet and its gap to a sum.
fn add(sum: &mut Sum, task: usize, model: &Model) {
    sum.row.add(task, 1.0);
    sum.row.add(column::GAP, 1.0);
    let mean = model.solution.known(task);
    sum.variance += model.noise.variance(task, mean).0;
    let mean = mean.map(|mean| mean + model.solution.value(column::GAP));
    sum.mean = sum.mean.zip(mean).map(|(sum, mean)| sum + mean);
}

/// The latency and its standard deviation, us.
fn latency(solution: &Solution, noise: &Noise) -> (f64, f64) {
    let error = solution.error(column::LATENCY);
    let deviation = (noise.latency() + error * error).sqrt();
    (solution.value(column::LATENCY), deviation)
}
