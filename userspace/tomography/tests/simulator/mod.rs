//! A simulated GPU that logs the truth and is observed from outside.

#![allow(unreachable_pub, dead_code, reason = "several tests share it")]
#![allow(
    clippy::indexing_slicing,
    reason = "a simulator that goes wrong shall panic"
)]

use gputrace_tomography::{Exact, Lengths, Look, Packet, Task, Told, Tomograph};

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let value = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ value >> 31
    }

    /// A random number in (0, 1].
    pub fn unit(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 1.0) / (1_u64 << 53) as f64
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub fn exponential(&mut self, mean: f64) -> f64 {
        -self.unit().ln() * mean
    }

    pub fn normal(&mut self) -> f64 {
        (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }
}

/// How long kernels of a class take, us.
#[derive(Clone, Copy, Debug)]
pub enum Duration {
    Fixed(f64),
    /// Mean, and standard deviation as a fraction of the mean.
    Spread(f64, f64),
    /// The first duration or, with this probability, the second.
    Either(f64, f64, f64),
    /// Changes from the first duration to the second over the run.
    Drift(f64, f64),
}

impl Duration {
    fn draw(self, random: &mut Random, progress: f64) -> f64 {
        match self {
            Self::Fixed(mean) => mean,
            Self::Spread(mean, spread) => (mean * (1.0 + spread * random.normal())).max(mean * 0.1),
            Self::Either(one, other, probability) => {
                if random.unit() < probability {
                    other
                } else {
                    one
                }
            }
            Self::Drift(from, to) => from + (to - from) * progress,
        }
    }
}

/// What the program launches.
#[derive(Clone, Debug)]
pub enum Order {
    /// Random classes, all with the same frequency.
    Random,
    /// These classes, over and over.
    Periodic(Vec<usize>),
}

/// When the program launches.
#[derive(Clone, Copy, Debug)]
pub enum Launch {
    /// As fast as the ring buffer allows, up to this many packets ahead.
    Ahead(usize),
    /// Until this much work is queued, us, and again when half of it is done by the program's own
    /// estimate.
    Worth(f64),
    /// This many at once, then waits for the last one, and pauses this long, us.
    Bursts { count: usize, pause: f64 },
    /// This many us apart, at random or evenly.
    Apart { mean: f64, is_random: bool },
}

/// A scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub name: &'static str,
    pub classes: Vec<Duration>,
    pub order: Order,
    pub launch: Launch,
    pub queues: usize,
    pub seconds: f64,
    /// Gap between packets, us, and the mean of its random part.
    pub gap: (f64, f64),
    /// Time from submission to begin, us, and the mean of its random part.
    pub latency: (f64, f64),
    /// Step width in which the read index is reported.
    pub step: u64,
    /// Time between looks, us, and how much of it is random.
    pub looks: (f64, f64),
    /// Spells of frequent looks: length of a spell, us (0 for none), time between looks in it, and
    /// mean time from one spell to the next.
    pub spell: (f64, f64, f64),
    /// Whether each submission is also a look.
    pub doorbells: bool,
    /// One in this many packets has exact times; 0 for none.
    pub exact: u64,
    /// How much longer the gap after such a packet is, and the uncertainty of its times, us.
    pub stamps: (f64, f64),
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            name: "",
            classes: Vec::new(),
            order: Order::Random,
            launch: Launch::Ahead(64),
            queues: 1,
            seconds: 5.0,
            gap: (2.0, 0.5),
            latency: (6.0, 2.0),
            step: 1,
            looks: (1000.0, 0.2),
            spell: (0.0, 3.0, 60_000.0),
            doorbells: true,
            exact: 0,
            stamps: (0.0, 0.3),
        }
    }
}

/// The truth about a class, and the estimate.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub count: u64,
    /// Mean duration, ns.
    pub truth: f64,
    pub told: Told,
    pub lengths: Option<Lengths>,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub rows: Vec<Row>,
    pub gap: f64,
    pub spread: f64,
    pub packets: u64,
}

impl Outcome {
    /// The classes that make up 95 % of the GPU's time, largest total first.
    pub fn heavy(&self) -> Vec<Row> {
        let mut rows = self.rows.clone();
        let total = |row: &Row| row.truth * row.count as f64;
        rows.sort_by(|one, other| total(other).total_cmp(&total(one)));
        let all: f64 = rows.iter().map(total).sum();
        let mut sum = 0.0;
        let count = rows.iter().position(|row| {
            sum += total(row);
            sum >= 0.95 * all
        });
        rows.truncate(count.map_or(rows.len(), |count| count + 1));
        rows
    }

    /// The largest relative error of the reported means, the number of reported means, and the
    /// number of classes.
    pub fn worst(rows: &[Row]) -> (f64, usize, usize) {
        let told = rows.iter().filter_map(|row| match row.told {
            Told::Apart(mean) => Some((mean.value / row.truth - 1.0).abs()),
            _ => None,
        });
        let told: Vec<f64> = told.collect();
        (
            told.iter().copied().fold(0.0, f64::max),
            told.len(),
            rows.len(),
        )
    }

    /// How many of the reported means are within two errors of the truth, and the number of
    /// reported means.
    pub fn covered(&self) -> (usize, usize) {
        let mut counts = (0, 0);
        for row in &self.rows {
            if let Told::Apart(mean) = row.told {
                counts.1 += 1;
                counts.0 += usize::from((mean.value - row.truth).abs() <= 2.0 * mean.error);
            }
        }
        counts
    }

    /// Spearman's rank correlation of totals over the reported classes.
    pub fn rank(&self) -> f64 {
        let told: Vec<(f64, f64)> = self
            .rows
            .iter()
            .filter_map(|row| match row.told {
                Told::Apart(mean) => {
                    Some((row.truth * row.count as f64, mean.value * row.count as f64))
                }
                _ => None,
            })
            .collect();
        if told.len() < 3 {
            return 1.0;
        }
        let ranks = |values: Vec<f64>| -> Vec<f64> {
            values
                .iter()
                .map(|value| values.iter().filter(|other| *other < value).count() as f64)
                .collect()
        };
        let one = ranks(told.iter().map(|pair| pair.0).collect());
        let other = ranks(told.iter().map(|pair| pair.1).collect());
        let count = told.len() as f64;
        let squares: f64 = one
            .iter()
            .zip(&other)
            .map(|(one, other)| (one - other).powi(2))
            .sum();
        1.0 - 6.0 * squares / (count * (count * count - 1.0))
    }
}

/// One piece of a recorder's output.
#[derive(Clone, Copy, Debug)]
pub enum Given {
    Packet(u32, Packet),
    Look(u32, Look),
    /// What a packet's doorbell observed.
    Doorbell(u32, Look),
}

impl Given {
    pub fn give(&self, tomograph: &mut Tomograph) {
        match self {
            Self::Packet(queue, packet) => tomograph.packet(*queue, packet),
            Self::Look(queue, look) => tomograph.look(*queue, look),
            Self::Doorbell(queue, look) => {
                // The packet itself is written by then.
                let index = look.write_index - 1;
                tomograph.doorbell(*queue, look.time, look.read_index, index);
            }
        }
    }
}

/// The output that a recorder would have produced, in order of time.
pub fn given(scenario: &Scenario, seed: u64) -> Vec<Given> {
    seen(scenario, seed)
        .0
        .into_iter()
        .map(|(_, given)| given)
        .collect()
}

/// The truth about each class: count, and sum in us.
type Truth = Vec<(u64, f64)>;

/// Runs a scenario. Returns the observations of a recorder in order of time, and the truth.
fn seen(scenario: &Scenario, seed: u64) -> (Vec<(u64, Given)>, Truth) {
    let mut random = Random::new(seed);
    let mut given = Vec::new();
    let mut truth = vec![(0, 0.0); scenario.classes.len()];
    let origin = 1_000_000_000_u64;
    let stop = scenario.seconds * 1e6;
    let ns = |micros: f64| origin + (micros * 1e3) as u64;
    for queue in 0..scenario.queues {
        let (mut begins, mut submissions): (Vec<f64>, Vec<f64>) = (Vec::new(), Vec::new());
        // The beginning was not observed.
        let first = random.below(1_000) as u64;
        let mut end = 0.0;
        let mut reckoned = 0.0_f64;
        let mut next_launch = random.unit() * 1_000.0;
        for place in 0.. {
            let submitted = match scenario.launch {
                Launch::Ahead(depth) => {
                    let room = begins.len().checked_sub(depth).map_or(0.0, |at| begins[at]);
                    let launch = (room + 3.0).max(next_launch);
                    next_launch = launch + 2.0 + random.exponential(1.0);
                    launch
                }
                Launch::Worth(ahead) => {
                    if reckoned > next_launch + ahead {
                        next_launch = reckoned - ahead / 2.0;
                    }
                    let launch = next_launch;
                    next_launch += 6.0 + random.exponential(2.0);
                    launch
                }
                Launch::Bursts { count, pause } => {
                    if place % count == 0 {
                        next_launch = next_launch.max(end + 10.0 + pause * (0.5 + random.unit()));
                    }
                    let launch = next_launch;
                    next_launch += 2.0 + random.exponential(1.0);
                    launch
                }
                Launch::Apart { mean, is_random } => {
                    let launch = next_launch;
                    next_launch += if is_random {
                        random.exponential(mean)
                    } else {
                        mean * (0.95 + 0.1 * random.unit())
                    };
                    launch
                }
            };
            if submitted > stop {
                break;
            }
            let class = match &scenario.order {
                Order::Random => random.below(scenario.classes.len()),
                Order::Periodic(classes) => classes[place % classes.len()],
            };
            let is_exact =
                |place: usize| scenario.exact != 0 && (place as u64).is_multiple_of(scenario.exact);
            let is_behind = place.checked_sub(1).is_some_and(is_exact);
            let stamps = if is_behind { scenario.stamps.0 } else { 0.0 };
            let gap = scenario.gap.0 + stamps + random.exponential(scenario.gap.1);
            let latency = scenario.latency.0 + random.exponential(scenario.latency.1);
            let begin = (end + gap).max(submitted + latency);
            if begin > stop {
                break;
            }
            let duration = scenario.classes[class].draw(&mut random, begin / stop);
            end = begin + duration;
            reckoned = reckoned.max(submitted) + duration + scenario.gap.0;
            truth[class].0 += 1;
            truth[class].1 += duration;
            begins.push(begin);
            submissions.push(submitted);
            let packet = Packet {
                index: first + place as u64,
                submitted: ns(submitted),
                task: Task::Class(class as u32),
                waits: true,
                exact: is_exact(place).then(|| Exact {
                    begin: ns(begin),
                    end: ns(end),
                    uncertainty: ns(scenario.stamps.1),
                }),
                ended_by: None,
            };
            given.push((ns(submitted), Given::Packet(queue as u32, packet)));
        }
        // When each index was reported.
        let mut reports = vec![(0.0, first)];
        for (place, begin) in begins.iter().enumerate() {
            let consumed = first + place as u64 + 1;
            let is_dry = submissions.get(place + 1).is_none_or(|next| next > begin);
            let reported = reports.last().map_or(first, |report| report.1);
            if consumed - reported >= scenario.step || is_dry {
                reports.push((*begin, consumed));
            }
        }
        let mut watched = Vec::new();
        let mut time = 0.0;
        while time < stop {
            time += scenario.looks.0 * (1.0 + scenario.looks.1 * (random.unit() - 0.5) * 2.0);
            watched.push(time);
        }
        let (length, within, every) = scenario.spell;
        let mut time = if length > 0.0 { 0.0 } else { stop };
        while time < stop {
            time += every * (0.5 + random.unit());
            watched.extend(
                (0..(length / within) as u32).map(|number| time + f64::from(number) * within),
            );
        }
        watched.sort_by(f64::total_cmp);
        let changes = |times: Vec<f64>| {
            let (mut report, mut written, mut shown, mut before) = (0, 0, None, 0.0);
            let mut looks = Vec::new();
            for time in times {
                while reports.get(report + 1).is_some_and(|next| next.0 <= time) {
                    report += 1;
                }
                while submissions
                    .get(written)
                    .is_some_and(|submitted| *submitted <= time)
                {
                    written += 1;
                }
                let index = reports[report].1;
                let is_new = shown != Some(index);
                let look = Look {
                    time: ns(time),
                    read_index: index,
                    write_index: first + written as u64,
                    before: if shown.is_none() { 0 } else { ns(before) },
                };
                looks.push((look, is_new));
                (shown, before) = (Some(index), time);
            }
            looks
        };
        let watched = changes(watched).into_iter().filter(|(_, is_new)| *is_new);
        given.extend(watched.map(|(look, _)| (look.time, Given::Look(queue as u32, look))));
        if scenario.doorbells {
            for (look, _) in changes(submissions.clone()) {
                given.push((look.time, Given::Doorbell(queue as u32, look)));
            }
        }
    }
    given.sort_by_key(|(time, _)| *time);
    (given, truth)
}

/// Runs a scenario.
pub fn run(scenario: &Scenario, seed: u64) -> Outcome {
    let (given, truth) = seen(scenario, seed);
    let mut tomograph = Tomograph::new();
    let mut packets = 0;
    for (_, one) in given {
        packets += u64::from(matches!(one, Given::Packet(..)));
        one.give(&mut tomograph);
    }
    tomograph.finish();
    let rows = truth
        .iter()
        .enumerate()
        .filter(|(_, (count, _))| *count > 0);
    Outcome {
        rows: rows
            .map(|(class, (count, sum))| Row {
                count: *count,
                truth: sum * 1e3 / *count as f64,
                told: tomograph.told(class as u32),
                lengths: tomograph.lengths(class as u32),
            })
            .collect(),
        gap: tomograph.gap().value,
        spread: tomograph.spread(),
        packets,
    }
}

/// Classes with durations from 3 us to 3 ms, evenly spaced on a logarithmic scale.
pub fn classes(count: usize, seed: u64, spread: f64) -> Vec<Duration> {
    let mut random = Random::new(seed ^ 0x5eed);
    (0..count)
        .map(|_| {
            let mean = 3.0 * 1000.0_f64.powf(random.unit());
            if spread == 0.0 {
                Duration::Fixed(mean)
            } else {
                Duration::Spread(mean, spread)
            }
        })
        .collect()
}
