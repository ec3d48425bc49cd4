//! Runs of looks: one request that reads the same words of processes again and again.
//!
//! A wake-up costs more than a look, and the helper's answer costs another one. So the helper
//! itself pauses between the looks, and answers when the run is over.
//!
//! Each look can begin a spell: a series of looks without pauses. The looks that saw something new
//! are kept, each with the one before it. A look within a spell costs a tenth of one that needs a
//! wake-up, and it sees a short packet begin and end.

use std::{io, time::Duration};

use rustix::{
    io::Errno,
    thread::clock_nanosleep_absolute,
    time::{ClockId, Timespec, clock_gettime},
};

use crate::{direct, message::PLACES};

/// Maximum number of looks in a run.
pub const LOOKS: usize = 64;

/// Maximum total of the pauses in a run; the rest is cut off.
pub const LONGEST: Duration = Duration::from_millis(20);

/// Maximum length of a spell; the rest is cut off.
pub const LONGEST_SPELL: Duration = Duration::from_millis(2);

/// Maximum number of looks of a spell that are kept.
const KEPT: usize = 512;

/// Maximum distance from the first word of a pair to the second, bytes.
const MOST_BETWEEN: usize = 492;

/// Maximum size of a request, bytes; see [`Run::encode`].
pub(crate) const QUESTION: usize = 8 + 4 * LOOKS + 16 * PLACES;

/// Size of a look in an answer without its pairs, bytes: the two times, and whether it follows a
/// pause.
const LOOK: usize = 17;

/// Size of a pair in an answer, bytes: whether it was read, and the two words.
const PAIR: usize = 17;

/// What to look at, and when.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// Start of each pair of words: process, and address of the first word. Places in one process
    /// must be adjacent. At most [`PLACES`] are read.
    pub places: Vec<(u32, u64)>,
    /// Distance from the first word of a pair to the second, bytes; at most 492.
    pub between: u32,
    /// Pause before each look, ns: since the previous look, or from now. At most [`LOOKS`] looks
    /// are made, and only as many as fit into [`LONGEST`].
    pub pauses: Vec<u32>,
    /// How long each of these looks continues without pauses, ns; at most [`LONGEST_SPELL`].
    pub spell: u32,
}

/// The result of one look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Time before the first word was read, ns `CLOCK_BOOTTIME`.
    pub before: u64,
    /// Time after the last word was read, ns `CLOCK_BOOTTIME`.
    pub after: u64,
    /// Whether the look was requested; further looks of a spell are not.
    pub is_first: bool,
    /// The words, in order of the places; `None` if they cannot be read.
    pub pairs: Vec<Option<[u64; 2]>>,
}

impl Look {
    /// Whether the second words of all pairs are equal.
    fn agrees(&self, other: &Self) -> bool {
        let both = self.pairs.iter().zip(&other.pairs);
        let second = |pair: &Option<[u64; 2]>| pair.map(|[_, second]| second);
        self.pairs.len() == other.pairs.len()
            && both
                .into_iter()
                .all(|(one, other)| second(one) == second(other))
    }

    /// Whether no pair has a second word below its first.
    fn is_even(&self) -> bool {
        self.pairs
            .iter()
            .flatten()
            .all(|[first, second]| second >= first)
    }
}

impl Run {
    /// Encodes the length of a spell and the number of pauses in four bytes each, each pause in
    /// four, and process and address of each place in eight.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let pauses = self.pauses.iter().take(LOOKS);
        let mut bytes = self.spell.to_ne_bytes().to_vec();
        bytes.extend_from_slice(&(pauses.len() as u32).to_ne_bytes());
        bytes.extend(pauses.flat_map(|pause| pause.to_ne_bytes()));
        for (pid, address) in self.places.iter().take(PLACES) {
            bytes.extend_from_slice(&u64::from(*pid).to_ne_bytes());
            bytes.extend_from_slice(&address.to_ne_bytes());
        }
        bytes
    }

    pub(crate) fn decode(between: u64, bytes: &[u8]) -> Option<Self> {
        let (spell, rest) = bytes.split_first_chunk()?;
        let (count, rest) = rest.split_first_chunk()?;
        let count = usize::try_from(u32::from_ne_bytes(*count)).ok()?;
        let (pauses, places) = rest.split_at_checked(count.checked_mul(4)?)?;
        let (pauses, _) = pauses.as_chunks::<4>();
        let (places, _) = places.as_chunks::<16>();
        let place = |place: &[u8; 16]| {
            let (pid, address) = place.split_first_chunk()?;
            Some((
                u32::try_from(u64::from_ne_bytes(*pid)).ok()?,
                u64::from_ne_bytes(address.try_into().ok()?),
            ))
        };
        Some(Self {
            places: places.iter().map(place).collect::<Option<_>>()?,
            between: u32::try_from(between).ok()?,
            pauses: pauses
                .iter()
                .map(|pause| u32::from_ne_bytes(*pause))
                .collect(),
            spell: u32::from_ne_bytes(*spell),
        })
    }

    /// Looks, with the pauses. Ends early when no second word is below its first.
    pub(crate) fn look(&self) -> Vec<Look> {
        let mut looks = Vec::with_capacity(self.pauses.len());
        let begin = monotonic();
        let mut due = begin;
        for pause in self.pauses.iter().take(LOOKS) {
            due = due.saturating_add(u64::from(*pause)).max(monotonic());
            if due - begin > LONGEST.as_nanos() as u64 {
                break;
            }
            if *pause > 0 {
                sleep_until(due);
            }
            let look = Look {
                is_first: true,
                ..self.look_once()
            };
            let is_even = look.is_even();
            looks.push(look);
            if is_even {
                break;
            }
            if self.spell > 0 {
                self.look_on(&mut looks);
            }
        }
        looks
    }

    /// Continues a spell whose first look is the last of `looks`.
    fn look_on(&self, looks: &mut Vec<Look>) {
        let spell = u64::from(self.spell).min(LONGEST_SPELL.as_nanos() as u64);
        let over = monotonic().saturating_add(spell);
        let most = looks.len() + KEPT;
        // The most recent look that saw nothing new.
        let mut held = None;
        while monotonic() < over && looks.len() < most {
            let look = self.look_once();
            if looks.last().is_some_and(|last| last.agrees(&look)) {
                held = Some(look);
                continue;
            }
            let is_even = look.is_even();
            looks.extend(held.take());
            looks.push(look);
            if is_even {
                break;
            }
        }
        looks.extend(held);
    }

    fn look_once(&self) -> Look {
        let before = boottime();
        let mut pairs = Vec::with_capacity(self.places.len());
        let between = (self.between as usize).min(MOST_BETWEEN);
        for places in self.places.chunk_by(|(one, _), (other, _)| one == other) {
            let Some((pid, _)) = places.first() else {
                continue;
            };
            let addresses: Vec<u64> = places.iter().map(|(_, address)| *address).collect();
            let bytes = direct::scattered(*pid, &addresses, between + 8);
            pairs.extend(bytes.into_iter().map(|bytes| {
                let bytes = bytes?;
                let word = |at: usize| bytes.get(at..).and_then(|rest| rest.first_chunk().copied());
                Some([
                    u64::from_ne_bytes(word(0)?),
                    u64::from_ne_bytes(word(between)?),
                ])
            }));
        }
        Look {
            before,
            after: boottime(),
            is_first: false,
            pairs,
        }
    }
}

/// Encodes looks for the answer: the two times, whether the look was requested, and for each place
/// whether it was read, and its words.
pub(crate) fn encode(looks: &[Look]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for look in looks {
        bytes.extend_from_slice(&look.before.to_ne_bytes());
        bytes.extend_from_slice(&look.after.to_ne_bytes());
        bytes.push(u8::from(look.is_first));
        for pair in &look.pairs {
            bytes.push(u8::from(pair.is_some()));
            for word in pair.unwrap_or_default() {
                bytes.extend_from_slice(&word.to_ne_bytes());
            }
        }
    }
    bytes
}

/// Decodes what [`encode`] made of looks at `places` places.
pub(crate) fn decode(places: usize, bytes: &[u8]) -> Vec<Look> {
    let word = |bytes: &[u8], at: usize| {
        let word = bytes.get(at..).and_then(|rest| rest.first_chunk().copied());
        word.map_or(0, u64::from_ne_bytes)
    };
    let looks = bytes.chunks_exact(LOOK + places * PAIR);
    looks
        .map(|look| Look {
            before: word(look, 0),
            after: word(look, 8),
            is_first: look.get(16) == Some(&1),
            pairs: look
                .get(LOOK..)
                .unwrap_or_default()
                .chunks_exact(PAIR)
                .map(|pair| (pair.first() == Some(&1)).then(|| [word(pair, 1), word(pair, 9)]))
                .collect(),
        })
        .collect()
}

/// Makes this thread wake up on time. By default, the kernel delays it by up to 50 us to combine
/// wake-ups.
///
/// # Errors
///
/// The kernel's error.
pub fn wake_in_time() -> io::Result<()> {
    // The minimum: 0 would mean the default.
    let least = std::num::NonZeroU64::MIN;
    Ok(rustix::thread::set_current_timer_slack(Some(least))?)
}

fn sleep_until(time: u64) {
    let due = Timespec {
        tv_sec: i64::try_from(time / 1_000_000_000).unwrap_or(i64::MAX),
        tv_nsec: (time % 1_000_000_000) as _,
    };
    // After any other error the look comes early, which does no harm.
    while clock_nanosleep_absolute(ClockId::Monotonic, &due) == Err(Errno::INTR) {}
}

fn monotonic() -> u64 {
    read(ClockId::Monotonic)
}

fn boottime() -> u64 {
    read(ClockId::Boottime)
}

fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // Neither part of these clocks is ever negative.
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Additional time that a run may take, compared to any other read.
pub(crate) fn patience(run: &Run) -> Duration {
    // One of two values, so that the socket's timeout does not change with each run.
    if run.pauses.iter().any(|pause| *pause > 0) {
        LONGEST
    } else {
        Duration::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(words: &[u64; 4]) -> (u32, u64) {
        (std::process::id(), words.as_ptr().addr() as u64)
    }

    #[test]
    fn what_is_said_is_understood() {
        let run = Run {
            places: vec![(7, 1 << 40), (8, 16)],
            between: 72,
            pauses: vec![0, 1000, 200_000],
            spell: 300_000,
        };
        let bytes = run.encode();
        assert!(bytes.len() <= QUESTION);
        assert_eq!(Run::decode(72, &bytes), Some(run));
        assert_eq!(Run::decode(72, &bytes[..6]), None);
        let looks = vec![
            Look {
                before: 5,
                after: 6,
                is_first: true,
                pairs: vec![Some([1, 2]), None],
            },
            Look {
                before: 7,
                after: 8,
                is_first: false,
                pairs: vec![Some([3, 4]), Some([5, 6])],
            },
        ];
        assert_eq!(decode(2, &encode(&looks)), looks);
    }

    #[test]
    fn looks_come_at_their_times_and_in_order() {
        let (busy, even) = ([9, 0, 4, 0], [9, 0, 9, 0]);
        let mut run = Run {
            places: vec![
                place(&busy),
                place(&even),
                (std::process::id(), 8),
                (u32::MAX, 8),
            ],
            between: 16,
            pauses: vec![0, 300_000, 700_000],
            spell: 0,
        };
        // If this thread waits for a CPU for so long that the longest run is over, looks are left
        // out. That is rare, and the remaining looks are in order.
        let deadline = std::time::Instant::now() + Duration::from_secs(120);
        loop {
            let looks = run.look();
            for look in &looks {
                assert!(look.before <= look.after);
                assert_eq!(look.pairs, [Some([9, 4]), Some([9, 9]), None, None]);
            }
            // A look may come late, but never early.
            for (pair, pause) in looks.windows(2).zip([300_000, 700_000]) {
                assert!(pair[1].before > pair[0].before, "{looks:?}");
                assert!(pair[1].before - looks[0].before >= pause, "{looks:?}");
            }
            if looks.len() == 3 {
                break;
            }
            assert!(std::time::Instant::now() < deadline, "{looks:?}");
        }
        run.places.remove(0);
        assert_eq!(run.look().len(), 1, "nothing is to come");
        run.places = vec![place(&busy)];
        run.pauses = vec![15_000_000, 15_000_000];
        assert_eq!(run.look().len(), 1, "no more than the longest run");
    }

    #[test]
    fn a_spell_keeps_what_was_new_and_the_look_before() {
        // Simulates a queue: the reserved packets, and those that a separate thread has taken.
        let queue = [std::sync::atomic::AtomicU64::new(100), 0.into()];
        let run = Run {
            places: vec![(std::process::id(), queue.as_ptr().addr() as u64)],
            between: 8,
            pauses: vec![0],
            spell: 2_000_000,
        };
        let looks = std::thread::scope(|scope| {
            scope.spawn(|| {
                for taken in 1..=20 {
                    let due = monotonic() + 50_000;
                    while monotonic() < due {}
                    queue[1].store(taken, std::sync::atomic::Ordering::Relaxed);
                }
            });
            run.look()
        });
        assert!(looks.iter().skip(1).all(|look| !look.is_first) && looks[0].is_first);
        assert!(looks[0].after <= looks[looks.len() - 1].before);
        let indices: Vec<u64> = looks.iter().map(|look| look.pairs[0].unwrap()[1]).collect();
        assert!(indices.is_sorted());
        for all in indices.chunk_by(|one, other| one == other) {
            assert!(all.len() <= 2, "{indices:?}");
        }
    }
}
