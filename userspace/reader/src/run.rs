//! Runs of looks: the same words of processes, read again and again by one question.
//!
//! A wake-up costs more than a look, and an answer by the helper costs another one. So the helper
//! pauses between the looks itself, and answers when the run is over.
//!
//! Each look can begin a spell: looks without a pause for a while, of which those are kept that saw
//! something new, and the one before each. A look within a spell costs a tenth of one that it has to
//! wake up for, and it sees a short packet begin and end.

use std::{io, time::Duration};

use rustix::{
    io::Errno,
    thread::clock_nanosleep_absolute,
    time::{ClockId, Timespec, clock_gettime},
};

use crate::{direct, message::PLACES};

/// Looks of one run, at most.
pub const LOOKS: usize = 64;

/// The pauses of one run together, at most; what is longer is cut off.
pub const LONGEST: Duration = Duration::from_millis(20);

/// One spell, at most; what is longer is cut off.
pub const LONGEST_SPELL: Duration = Duration::from_millis(2);

/// Looks of a spell that are kept, at most.
const KEPT: usize = 512;

/// From the first word of a pair to the second, bytes at most.
const MOST_BETWEEN: usize = 492;

/// Bytes of a question at most, see [`Run::encode`].
pub(crate) const QUESTION: usize = 8 + 4 * LOOKS + 16 * PLACES;

/// Bytes of a look in an answer besides its pairs: the two times, and whether it is due to a pause.
const LOOK: usize = 17;

/// Bytes of a pair in an answer: whether it was read, and the two words.
const PAIR: usize = 17;

/// What to look at, and when.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// Where each pair of words begins: process, and address of the first word. Those of one process
    /// stand side by side. At most [`PLACES`] are looked at.
    pub places: Vec<(u32, u64)>,
    /// From the first word of a pair to the second, bytes; at most 492.
    pub between: u32,
    /// How long to wait before each look, ns: from the look before, or from now. At most [`LOOKS`] are
    /// taken, and as many as fit into [`LONGEST`].
    pub pauses: Vec<u32>,
    /// How long each of these looks goes on without a pause, ns; at most [`LONGEST_SPELL`].
    pub spell: u32,
}

/// What was seen once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Before the first word was read, ns `CLOCK_BOOTTIME`.
    pub before: u64,
    /// After the last word was read, ns `CLOCK_BOOTTIME`.
    pub after: u64,
    /// Whether it is one that was asked for, not a further one of a spell.
    pub is_first: bool,
    /// The words, in order of the places; `None` where they cannot be read.
    pub pairs: Vec<Option<[u64; 2]>>,
}

impl Look {
    /// Whether the second words of all pairs are the same.
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
    /// The length of a spell and the number of pauses in four bytes each, each pause in four, process and
    /// address of each place in eight.
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

    /// Looks, pausing in between. Ends before its time when no second word is below its first.
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

    /// The rest of a spell, whose first look is the last of `looks`.
    fn look_on(&self, looks: &mut Vec<Look>) {
        let spell = u64::from(self.spell).min(LONGEST_SPELL.as_nanos() as u64);
        let over = monotonic().saturating_add(spell);
        let most = looks.len() + KEPT;
        // The last one, which saw nothing new.
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

/// As they are sent: the two times, whether they were asked for, and of each place whether it was read, and its words.
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

/// What [`encode`] made of looks at so many places.
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

/// Has this thread woken when it asked for it, not up to 50 us later, as the kernel does by default to
/// join wake-ups.
///
/// # Errors
///
/// What the kernel says.
pub fn wake_in_time() -> io::Result<()> {
    // The least that there is: 0 would stand for the default.
    let least = std::num::NonZeroU64::MIN;
    Ok(rustix::thread::set_current_timer_slack(Some(least))?)
}

fn sleep_until(time: u64) {
    let due = Timespec {
        tv_sec: i64::try_from(time / 1_000_000_000).unwrap_or(i64::MAX),
        tv_nsec: (time % 1_000_000_000) as _,
    };
    // Whatever else it says, a look that comes early is a look.
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

/// How long a run may take besides what any read may take.
pub(crate) fn patience(run: &Run) -> Duration {
    // One of two values, so that the socket is not told a new one for each run.
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
        // Where this thread has to wait for a processor for so long that the longest run is over, looks are left
        // out. That is seldom; whatever happens, they are in order.
        let deadline = std::time::Instant::now() + Duration::from_secs(120);
        loop {
            let looks = run.look();
            for look in &looks {
                assert!(look.before <= look.after);
                assert_eq!(look.pairs, [Some([9, 4]), Some([9, 9]), None, None]);
            }
            // Late it may be, but never early.
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
        // As a queue: reserved packets, and those that were taken, by a thread of its own.
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
