//! The scratch memory of a queue, according to its descriptor.
//!
//! When a kernel needs more private memory than its queue has, the packet processor asks the
//! runtime. A thread of the runtime then allocates memory and writes its location into the
//! `amd_queue_t`. Large memory is taken back when the kernel has ended. None of this is a call of
//! an exported function. So the descriptor is read often while a kernel is running that may need
//! more memory. Memory that comes and goes between two looks is not seen.

use std::time::{Duration, Instant};

use gputrace_abi::{
    domain::Domain,
    gpu::{QUEUE_READ_INDEX, QUEUE_SCRATCH, QUEUE_WRITE_INDEX, SCRATCH_SIZE, ScratchState},
    record::kind,
};
use gputrace_codeobj::memory::Memory;
use zerocopy::FromBytes as _;

use crate::{clocks, header::header};

/// How often a queue is looked at while a kernel that may need scratch memory is running: 10 kHz,
/// because the runtime takes large memory back as soon as the kernel has ended.
const BUSY_EVERY: Duration = Duration::from_micros(100);

/// How often a queue is looked at otherwise: 1 kHz, because packets become known late.
const IDLE_EVERY: Duration = Duration::from_millis(1);

/// How often a queue is looked at after [`QUIET_AFTER`] without a packet.
const QUIET_EVERY: Duration = Duration::from_millis(5);

/// See [`QUIET_EVERY`].
const QUIET_AFTER: Duration = Duration::from_secs(1);

/// How long a queue counts as busy after the last kernel that may need scratch memory.
const BUSY_FOR: Duration = Duration::from_millis(20);

/// Number of bytes read from an `amd_queue_t`: from its write index to the end of its scratch
/// memory's description.
const READ: usize = (QUEUE_SCRATCH - QUEUE_WRITE_INDEX) as usize + 24;

/// State of a queue's scratch memory: location, bytes, bytes per lane.
type Held = (u64, u64, u32);

/// What the watcher knows about a queue's scratch memory.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    held: Held,
    /// Time just before the last reading, ns `CLOCK_BOOTTIME`; 0 if there was none.
    looked: u64,
    /// When to look next, and the pause since the last look; `None`: at once.
    due: Option<(Instant, Duration)>,
    /// When the last packet was seen to arrive, and the write index since then.
    packet: Option<(Instant, u64)>,
    busy_until: Option<Instant>,
}

impl Scratch {
    /// Notes the submission of a kernel that may need scratch memory.
    pub(crate) fn wanted(&mut self, now: Instant) {
        self.busy_until = Some(now + BUSY_FOR);
        self.due = None;
    }

    /// Time until the next look.
    pub(crate) fn pause(&self) -> Duration {
        match self.due {
            None => BUSY_EVERY,
            Some((_, pause)) => pause,
        }
    }

    /// Whether it is time to look.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.due.is_none_or(|(due, _)| due <= now)
    }

    /// Looks at the descriptor. Returns the record to write if something has changed.
    pub(crate) fn look(
        &mut self,
        memory: &impl Memory,
        pid: u32,
        queue: u64,
        now: Instant,
    ) -> Option<ScratchState> {
        // A change seen later had not happened at this moment. One that happens after the reading
        // is not seen yet.
        let before = clocks::now();
        let bytes = memory.array::<READ>(queue.wrapping_add(QUEUE_WRITE_INDEX));
        let time = clocks::now();
        // If the memory cannot be read, the process is about to end.
        let Ok(bytes) = bytes else {
            self.due = Some((now + BUSY_FOR, BUSY_FOR));
            return None;
        };
        let word = |offset: u64| {
            let at = (offset - QUEUE_WRITE_INDEX) as usize;
            let bytes = bytes.get(at..at + 8).unwrap_or_default();
            u64::read_from_bytes(bytes).unwrap_or(0)
        };
        let lanes = word(QUEUE_SCRATCH + 16);
        let (lane_bytes, properties) = (lanes as u32, (lanes >> 32) as u32);
        let location = word(QUEUE_SCRATCH);
        let held = match location {
            0 => Held::default(),
            _ => (location, word(QUEUE_SCRATCH + 8), lane_bytes),
        };
        let (read_index, write_index) = (word(QUEUE_READ_INDEX), word(QUEUE_WRITE_INDEX));
        let came = match self.packet {
            Some((came, index)) if index == write_index => came,
            _ => now,
        };
        self.packet = Some((came, write_index));
        let pause = if location != 0 && read_index < write_index
            || self.busy_until.is_some_and(|until| until > now)
        {
            None
        } else if now.duration_since(came) > QUIET_AFTER {
            Some(QUIET_EVERY)
        } else {
            Some(IDLE_EVERY)
        };
        self.due = pause.map(|pause| (now + pause, pause));
        let looked = std::mem::replace(&mut self.looked, before);
        if std::mem::replace(&mut self.held, held) == held {
            return None;
        }
        let (location, bytes, lane_bytes) = held;
        Some(ScratchState {
            header: header(SCRATCH_SIZE, kind::SCRATCH, Domain::ScratchMemory.id()),
            pid,
            properties,
            time,
            queue,
            looked,
            location,
            bytes,
            lane_bytes,
            reserved: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use gputrace_codeobj::memory::ProcessMemory;

    use super::*;

    #[test]
    fn changes_are_told_with_the_look_before() {
        // An `amd_queue_t`.
        let mut words = [0_u64; 32];
        let memory = ProcessMemory::open(std::process::id()).unwrap();
        let mut scratch = Scratch::default();
        let now = Instant::now();
        assert!(scratch.is_due(now));
        let look = |scratch: &mut Scratch, words: &[u64; 32]| {
            scratch.look(&memory, 5, std::ptr::from_ref(words) as u64, now)
        };
        assert!(look(&mut scratch, &words).is_none());
        assert!(!scratch.is_due(now), "nothing is under way");
        assert_eq!(scratch.pause(), IDLE_EVERY);
        scratch.wanted(now);
        assert!(scratch.is_due(now));
        // A packet is in the queue.
        words[7] = 1;
        assert!(look(&mut scratch, &words).is_none());
        assert_eq!(scratch.pause(), BUSY_EVERY);
        (words[20], words[21]) = (0x7000_0000, 4096);
        words[22] = 1040 | 1 << 36;
        let state = look(&mut scratch, &words).unwrap();
        assert_eq!((state.location, state.bytes), (0x7000_0000, 4096));
        assert_eq!((state.lane_bytes, state.properties), (1040, 1 << 4));
        assert!(state.looked != 0 && state.looked < state.time);
        assert!(look(&mut scratch, &words).is_none());
        (words[20], words[21], words[22]) = (0, 0, 0);
        let state = look(&mut scratch, &words).unwrap();
        assert_eq!((state.location, state.bytes, state.lane_bytes), (0, 0, 0));
        // Without a location there is no scratch memory.
        words[21] = 4096;
        assert!(look(&mut scratch, &words).is_none());
    }

    #[test]
    fn quiet_queues_are_looked_at_less() {
        let mut words = [0_u64; 32];
        let memory = ProcessMemory::open(std::process::id()).unwrap();
        let mut scratch = Scratch::default();
        let begin = Instant::now();
        let mut pause = |words: &[u64; 32], after| {
            scratch.look(&memory, 5, std::ptr::from_ref(words) as u64, begin + after);
            scratch.pause()
        };
        assert_eq!(pause(&words, Duration::ZERO), IDLE_EVERY);
        assert_eq!(pause(&words, QUIET_AFTER * 2), QUIET_EVERY);
        words[7] = 1;
        assert_eq!(pause(&words, QUIET_AFTER * 3), IDLE_EVERY);
        // The queue has memory while a packet is being processed.
        (words[20], words[21]) = (0x7000_0000, 4096);
        assert_eq!(pause(&words, QUIET_AFTER * 5), BUSY_EVERY);
        words[16] = 1;
        assert_eq!(pause(&words, QUIET_AFTER * 5), QUIET_EVERY);
    }

    #[test]
    fn memory_that_cannot_be_read_tells_nothing() {
        let memory = ProcessMemory::open(std::process::id()).unwrap();
        let mut scratch = Scratch::default();
        let now = Instant::now();
        assert!(scratch.look(&memory, 5, 8, now).is_none());
        assert!(!scratch.is_due(now));
    }
}
