//! The events of a round, derived from the round's seed.

use std::time::Duration;

/// Pseudorandom numbers: SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number
/// generators).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Starts with `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.number() % limit
    }

    /// True with probability 1 in `count`.
    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// The processes that are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// The program, launched by gputrace.
    Launched,
    /// The program, already running.
    Attached,
    /// Every process of the node.
    Node,
}

/// How a recording ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The program ends.
    Target,
    /// SIGINT to gputrace.
    Interrupt,
    /// SIGTERM to gputrace.
    Terminate,
    /// SIGKILL to gputrace.
    Kill,
    /// SIGKILL to gputrace after this time, before it reports that it is recording.
    KillEarly(Duration),
    /// gputrace ends by itself after this time.
    Duration(Duration),
}

impl End {
    /// Whether gputrace completes its capture.
    #[must_use]
    pub fn is_orderly(self) -> bool {
        !matches!(self, Self::Kill | Self::KillEarly(_))
    }
}

/// One recording.
#[derive(Clone, Debug)]
pub struct Recording {
    /// What is recorded.
    pub of: Of,
    /// How it ends.
    pub end: End,
    /// Minimum number of the program's actions that it sees before it is ended.
    pub actions: u64,
    /// Whether the program's first process is stopped (SIGSTOP) when the recording is ended.
    pub stopped: bool,
    /// Further options of gputrace.
    pub options: &'static [&'static str],
}

/// One round.
#[derive(Clone, Debug)]
pub struct Round {
    /// The program's seed.
    pub seed: u64,
    /// Number of actions in a pass of the program.
    pub steps: u64,
    /// The recordings, one after the other. Only the first may launch the program.
    pub recordings: Vec<Recording>,
}

/// Option sets, of which a recording gets one. Small rings and few threads are soon exhausted, and
/// the account must show that.
const OPTIONS: [&[&str]; 8] = [
    &[],
    &[],
    &["--sched"],
    &["--ring-size", "64KiB"],
    &["--max-threads", "64"],
    &[
        "--hip-trace",
        "--hsa-trace",
        "--marker-trace",
        "--kernel-trace",
    ],
    &["--functions", "^some_calls$"],
    &["--wall-clock"],
];

const PERF: &[&str] = &["--backend", "perf"];

/// Options that record everything; `--wall-clock` and the like are used with them.
const DOMAINS: [&str; 1] = ["--sys-trace"];

impl Recording {
    /// All options about what to trace.
    pub fn all_options(&self) -> impl Iterator<Item = &'static str> + use<> {
        let chosen = self.options.iter().any(|option| option.ends_with("-trace"));
        let domains = if chosen { &[][..] } else { &DOMAINS[..] };
        domains.iter().chain(self.options).copied()
    }

    /// Whether every call of the program must be in the account, provided that the program is
    /// recorded from its first call to its last.
    #[must_use]
    pub fn sees_all(&self) -> bool {
        self.of == Of::Launched && self.end == End::Target && !self.options.contains(&"--include")
    }

    fn new(random: &mut Random, of: Of) -> Self {
        let end = match random.below(8) {
            0 | 1 if of == Of::Launched => End::Target,
            0..=2 => End::Interrupt,
            3 => End::Terminate,
            4 | 5 => End::Kill,
            6 => End::KillEarly(Duration::from_millis(random.below(400))),
            _ => End::Duration(Duration::from_millis(50 + random.below(1500))),
        };
        let perf = random.one_in(12);
        let chosen = OPTIONS
            .get(random.below(OPTIONS.len() as u64) as usize)
            .copied();
        // Functions of programs are only traced in single processes, not on a whole node.
        let options = chosen
            .filter(|options| of != Of::Node || !options.contains(&"--functions"))
            .unwrap_or_default();
        Self {
            of,
            end,
            actions: random.below(40),
            stopped: of != Of::Launched && random.one_in(4),
            options: if perf { PERF } else { options },
        }
    }
}

impl Round {
    /// The round for a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let first = match random.below(5) {
            0 | 1 => Of::Launched,
            2 => Of::Node,
            _ => Of::Attached,
        };
        let mut recordings = vec![Recording::new(&mut random, first)];
        for _ in 0..random.below(3) {
            // A program that ends with its recording, or is told to end, cannot be recorded again.
            let gone = |one: &Recording| {
                one.of == Of::Launched
                    && matches!(one.end, End::Target | End::Terminate | End::Duration(_))
            };
            if recordings.last().is_some_and(gone) {
                break;
            }
            let of = if random.one_in(3) {
                Of::Node
            } else {
                Of::Attached
            };
            recordings.push(Recording::new(&mut random, of));
        }
        Self {
            seed: random.number() >> 1,
            steps: 8 + random.below(12),
            recordings,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_gives_the_same_round() {
        let text = |seed| format!("{:?}", Round::new(seed));
        assert_eq!(text(7), text(7));
        assert_ne!(text(7), text(8));
    }

    #[test]
    fn every_kind_of_recording_comes_soon() {
        let rounds: Vec<Round> = (0..60).map(Round::new).collect();
        let all = || rounds.iter().flat_map(|round| &round.recordings);
        for of in [Of::Launched, Of::Attached, Of::Node] {
            for end in [End::Interrupt, End::Terminate, End::Kill] {
                assert!(
                    all().any(|one| one.of == of && one.end == end),
                    "{of:?} {end:?}"
                );
            }
            assert!(all().any(|one| one.of == of && matches!(one.end, End::Duration(_))));
        }
        assert!(all().any(Recording::sees_all));
        assert!(all().any(|one| one.stopped));
        for round in &rounds {
            let launched = |one: &Recording| one.of == Of::Launched;
            assert!(!round.recordings.iter().skip(1).any(launched));
        }
    }
}
