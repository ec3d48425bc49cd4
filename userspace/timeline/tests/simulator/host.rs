//! Simulates the runtime, the queue and the recorder.

use std::collections::{BTreeMap, HashMap};

use gputrace_abi::{
    domain::Domain,
    gpu::{Packet, completion_reason, packet_flags, queue_reason},
};
use gputrace_capture::{
    ledger::{Ledger, LedgerRow},
    meta::{Epoch, Recording},
};
use gputrace_timeline::synthetic::{
    Synthetic,
    gpu::{self, GPU_NODE, PID},
};
use zerocopy::IntoBytes as _;

use super::{Config, Random, Truth};

const START: u64 = 1_000_000_000;
const POOL: u64 = 8;
const ROUND: u64 = 20_000_000;

/// A capture and the truth about it.
pub(crate) struct Recorded {
    pub(crate) capture: Vec<u8>,
    pub(crate) truths: Vec<Truth>,
    pub(crate) stop: u64,
}

/// The values of a signal over time.
#[derive(Debug, Default)]
struct Signal {
    /// When it was armed, and for how many uses.
    armed: Vec<(u64, i64)>,
    /// When each use ended, and its stamps.
    ends: Vec<(u64, (u64, u64))>,
}

impl Signal {
    fn value(&self, time: u64) -> i64 {
        let Some((armed, value)) = self.armed.iter().rfind(|(armed, _)| *armed <= time) else {
            return 0;
        };
        let done = self
            .ends
            .iter()
            .filter(|(end, _)| end > armed && *end <= time);
        value - done.count() as i64
    }

    fn stamps(&self, time: u64) -> (u64, u64) {
        let ended = self.ends.iter().filter(|(end, _)| *end <= time);
        ended
            .max_by_key(|(end, _)| *end)
            .map_or((0, 0), |(_, stamps)| *stamps)
    }
}

struct Host<'a> {
    config: &'a Config,
    random: Random,
    now: u64,
    signals: HashMap<u64, Signal>,
    next_signal: u64,
    /// Records with the time at which they reach the capture.
    records: Vec<(u64, Vec<u8>)>,
    /// Lost records of packets, by round.
    lost: BTreeMap<u64, u64>,
    truths: Vec<Truth>,
    /// Packets of the queue that no doorbell seen so far has announced.
    unannounced: Vec<Draft>,
}

/// A packet on its way to the queue.
struct Draft {
    index: u64,
    tid: u32,
    is_kernel: bool,
    barrier: bool,
    signal: u64,
    /// When its header became valid; when its doorbell rang, if it has one, and whether the
    /// recorder saw that.
    valid: u64,
    rings: Option<u64>,
    is_seen: bool,
}

/// The processor of the queue.
#[derive(Default)]
struct Processor {
    launched: u64,
    /// The latest end of all packets so far.
    ended: u64,
    /// When each packet was taken.
    taken: Vec<u64>,
}

/// Runs the simulation.
pub(crate) fn run(config: &Config) -> Recorded {
    let mut host = Host {
        config,
        random: Random(config.seed),
        now: START,
        signals: HashMap::new(),
        next_signal: 0,
        records: Vec::new(),
        lost: BTreeMap::new(),
        truths: Vec::new(),
        unannounced: Vec::new(),
    };
    for generation in 0..config.generations {
        host.queue(generation);
    }
    let stop = host.now + 50_000_000;
    host.last_look(stop);
    let capture = host.capture(stop);
    Recorded {
        capture,
        truths: host.truths,
        stop,
    }
}

impl Host<'_> {
    fn pass(&mut self, low: u64, high: u64) {
        self.now += self.random.between(low, high);
    }

    /// Hands a record to the capture after `after` ns, unless it is lost.
    fn record(&mut self, time: u64, after: u64, bytes: &[u8]) -> bool {
        let is_lost = self.random.chance(self.config.lost);
        if is_lost {
            *self.lost.entry((time + after).div_ceil(ROUND)).or_default() += 1;
        } else {
            self.records.push((time + after, bytes.to_vec()));
        }
        !is_lost
    }

    fn read_signal(&mut self, signal: u64, read: u64, time: u64, reason: u32) {
        let memory = self.signals.entry(signal).or_default();
        let (value, stamps) = (memory.value(read), memory.stamps(read));
        let stamps = if self.config.profiling {
            stamps
        } else {
            (0, 0)
        };
        let reading = gpu::completion(signal, time, reason, value, stamps);
        let after = if reason == completion_reason::POLL {
            ROUND
        } else {
            0
        };
        self.record(time, after, reading.as_bytes());
    }

    /// Arms the pool's next signal for `uses` uses, once its last use is over.
    fn arm(&mut self, uses: i64) -> u64 {
        let signal = 0x9000 + self.next_signal * 128;
        self.next_signal = (self.next_signal + 1) % POOL;
        let free = self.signals.entry(signal).or_default().ends.iter();
        let free = free.map(|(end, _)| *end).max().unwrap_or(0);
        if free == u64::MAX {
            return 0;
        }
        if self.now <= free {
            self.now = free;
            self.pass(500, 3_000);
        }
        // The recorder may look earlier, or just when the signal is armed.
        if self.random.chance(10) {
            let time = self.now + self.random.between(0, 5_000);
            self.read_signal(signal, self.now, time, completion_reason::POLL);
        }
        self.read_signal(signal, self.now, self.now, completion_reason::REARM);
        self.pass(20, 100);
        let now = self.now;
        self.signals
            .entry(signal)
            .or_default()
            .armed
            .push((now, uses));
        self.pass(20, 100);
        signal
    }

    /// Simulates a queue from creation to destruction.
    fn queue(&mut self, generation: u64) {
        let mut processor = Processor::default();
        let mut next = self.random.between(0, 5);
        let first = next;
        let from = self.now;
        self.unannounced.clear();
        while next < first + self.config.packets {
            let count = if self.random.chance(self.config.batched) {
                self.random.between(2, 5)
            } else {
                1
            };
            let is_batch = self.random.chance(50);
            let drafts = self.drafts(next, count, is_batch);
            next += count;
            let is_last =
                generation + 1 == self.config.generations && next >= first + self.config.packets;
            self.process(
                generation,
                &drafts,
                &mut processor,
                is_last && self.config.hangs,
                first,
            );
            self.doorbells(generation, drafts);
            let pause = if self.random.chance(5) {
                3_000_000
            } else {
                30_000
            };
            self.pass(100, pause);
        }
        if self.config.sampling != 0 {
            self.sample(
                from,
                first,
                &processor,
                generation + 1 == self.config.generations,
            );
        }
        if generation + 1 < self.config.generations {
            // The program waits for its work.
            self.now = self.now.max(processor.ended) + 10_000;
            let mut state = gpu::queue_state(self.now, queue_reason::DESTROY, 0, next);
            state.read_index = next;
            // If this record were lost, nothing could show that the next queue is another one.
            self.records.push((self.now, state.as_bytes().to_vec()));
            self.pass(1_000, 100_000);
        }
    }

    /// Makes packets that are written together.
    fn drafts(&mut self, next: u64, count: u64, is_batch: bool) -> Vec<Draft> {
        let mut drafts: Vec<Draft> = Vec::new();
        let mut shared = None;
        for index in next..next + count {
            let mut signal = 0;
            if let Some(with) = shared.take() {
                signal = with;
            } else if self.random.chance(self.config.signalled) {
                let is_shared = index + 1 < next + count && self.random.chance(self.config.shared);
                signal = self.arm(if is_shared { 2 } else { 1 });
                shared = is_shared.then_some(signal).filter(|signal| *signal != 0);
            }
            let disordered = self.random.chance(self.config.disordered);
            self.pass(50, 300);
            let valid = self.now;
            let has_doorbell = !is_batch || index + 1 == next + count;
            let late = if disordered { 20_000 } else { 200 };
            drafts.push(Draft {
                index,
                tid: PID + if is_batch { 0 } else { (index % 3) as u32 },
                is_kernel: !self.random.chance(self.config.other),
                barrier: self.random.chance(self.config.barrier),
                signal,
                valid,
                rings: has_doorbell.then_some(valid + self.random.between(50, late)),
                is_seen: self.config.unseen == 0 || !self.random.chance(self.config.unseen),
            });
        }
        let last = drafts.iter().filter_map(|draft| draft.rings).max();
        self.now = self.now.max(last.unwrap_or(0));
        drafts
    }

    /// Lets the GPU execute the packets.
    fn process(
        &mut self,
        queue_id: u64,
        drafts: &[Draft],
        gpu: &mut Processor,
        hangs: bool,
        first: u64,
    ) {
        for (position, draft) in drafts.iter().enumerate() {
            let announced = drafts[position..]
                .iter()
                .filter_map(|draft| draft.rings)
                .min();
            let mut begin = announced.unwrap().max(draft.valid).max(gpu.launched);
            if draft.barrier {
                begin = begin.max(gpu.ended);
            }
            if begin != u64::MAX {
                begin += self.random.between(300, 5_000);
            }
            let never = hangs && position + 1 == drafts.len() || begin == u64::MAX;
            let longest = if self.random.chance(10) {
                2_000_000
            } else {
                20_000
            };
            let end = if never {
                u64::MAX
            } else {
                begin + self.random.between(1_000, longest)
            };
            gpu.launched = begin;
            gpu.ended = gpu.ended.max(end);
            assert_eq!(gpu.taken.len() as u64 + first, draft.index);
            gpu.taken.push(begin);
            if draft.signal != 0 {
                let clock = &self.config.clock;
                let stamps = (clock.tick(begin), if never { 0 } else { clock.tick(end) });
                let memory = self.signals.entry(draft.signal).or_default();
                memory.ends.push((end, stamps));
            }
            self.truths.push(Truth {
                queue_id,
                index: draft.index,
                is_kernel: draft.is_kernel,
                tid: draft.tid,
                begin,
                end,
                recorded: false,
                own_recorded: false,
                signalled: draft.signal != 0,
                kernarg: (queue_id + 1) << 32 | draft.index << 8,
            });
        }
    }

    /// Makes the records that the doorbell probe would write, and the collector's of packets that
    /// the probe missed.
    fn doorbells(&mut self, queue_id: u64, drafts: Vec<Draft>) {
        let mut all = std::mem::take(&mut self.unannounced);
        let mut next = all.first().map_or(drafts[0].index, |draft| draft.index);
        all.extend(drafts);
        let seen = |draft: &Draft| draft.rings.filter(|_| draft.is_seen);
        let mut rings: Vec<(u64, u64, u32)> = all
            .iter()
            .filter_map(|draft| Some((seen(draft)?, draft.index, draft.tid)))
            .collect();
        rings.sort_unstable();
        for (time, index, tid) in rings {
            for draft in all.iter().filter(|draft| draft.index <= index) {
                let own = draft.index == index;
                // Its own doorbell has rung, or will.
                let has_own = draft.valid > time && seen(draft).is_some();
                if own || draft.index >= next && !has_own {
                    self.packet(queue_id, draft, tid, time, own);
                }
            }
            next = next.max(index + 1);
        }
        self.unannounced = all;
        self.unannounced.retain(|draft| draft.index >= next);
    }

    fn packet(&mut self, queue_id: u64, draft: &Draft, tid: u32, time: u64, own: bool) {
        let position = self
            .truths
            .iter()
            .rposition(|truth| (truth.queue_id, truth.index) == (queue_id, draft.index));
        let position = position.unwrap();
        let (begin, kernarg) = (self.truths[position].begin, self.truths[position].kernarg);
        // Programs read only valid packets before a doorbell's.
        let is_valid = draft.valid <= time && time < begin;
        let read_later = !own && (!is_valid || self.random.chance(self.config.read_later));
        let mut packet: Packet = gpu::packet(draft.index, time, draft.signal);
        (packet.queue_id, packet.tid) = (queue_id, tid);
        packet.innermost = u64::from(tid);
        packet.packet[5] = kernarg;
        if !draft.barrier {
            packet.packet[0] &= !(1 << 8);
        }
        if !draft.is_kernel {
            // Barrier-AND on one signal.
            packet.packet = [
                3 | packet.packet[0] & 1 << 8,
                0x6000,
                0,
                0,
                0,
                0,
                0,
                draft.signal,
            ];
        }
        if !own {
            packet.flags |= packet_flags::BEFORE_DOORBELL;
        }
        if read_later {
            packet.flags |= packet_flags::READ_LATER;
        }
        if !own && !is_valid {
            packet.flags |= packet_flags::OVERTAKEN;
            (packet.tid, packet.innermost) = (0, 0);
        }
        if read_later || begin <= time {
            packet.packet[0] = packet.packet[0] & !0xffff | 1;
        }
        let after = if read_later {
            self.random.between(50_000_000, 300_000_000)
        } else {
            0
        };
        let recorded = self.record(time, after, packet.as_bytes());
        self.truths[position].recorded |= recorded;
        self.truths[position].own_recorded |= recorded && own;
    }

    /// Makes the watcher's samples of the read index, which the hardware reports late and in steps.
    fn sample(&mut self, from: u64, first: u64, processor: &Processor, is_last: bool) {
        let mut reports: Vec<(u64, u64)> = vec![(0, first)];
        let mut reported = 0;
        for (position, taken) in processor.taken.iter().enumerate() {
            let taken_now = position as u64 + 1;
            let idle = processor
                .taken
                .get(position + 1)
                .is_none_or(|next| next - taken > 1_000_000);
            if *taken != u64::MAX && (taken_now - reported >= self.config.step || idle) {
                reports.push((taken + self.config.delay, first + taken_now));
                reported = taken_now;
            }
        }
        let mut last = 0;
        let mut time = from;
        // The last queue is not destroyed.
        let drained = Some(processor.ended).filter(|ended| *ended != u64::MAX);
        let until = self.now.max(drained.unwrap_or(0)) + if is_last { 5_000_000 } else { 0 };
        while time < until {
            let read = reports
                .iter()
                .rfind(|(reported, _)| *reported <= time)
                .unwrap()
                .1;
            if read != last {
                last = read;
                let made = time + self.random.between(0, 5_000);
                let state = gpu::queue_state(made, queue_reason::SAMPLE, read, 0);
                self.record(made, ROUND, state.as_bytes());
            }
            time += self.config.sampling;
        }
    }

    /// Makes the watcher's last look at open signals.
    fn last_look(&mut self, stop: u64) {
        let mut signals: Vec<u64> = self.signals.keys().copied().collect();
        signals.sort_unstable();
        for signal in signals {
            self.read_signal(signal, stop, stop + 1_000, completion_reason::POLL);
        }
    }

    fn capture(&mut self, stop: u64) -> Vec<u8> {
        let mut capture = Synthetic::new(&Recording::default());
        for agent in gpu::agents() {
            capture.meta(agent);
        }
        let mut queues: Vec<u64> = self.truths.iter().map(|truth| truth.queue_id).collect();
        queues.dedup();
        for id in queues {
            capture.meta(gputrace_capture::gpu::Queue {
                pid: PID,
                address: 0x1000,
                id,
                node_id: Some(GPU_NODE),
                packets: 1024,
                ..gputrace_capture::gpu::Queue::default()
            });
        }
        let until = stop + 1_000_000_000;
        let mut samples = self
            .config
            .clock
            .samples(START / 2, until, &mut self.random)
            .into_iter()
            .peekable();
        let mut rounds: BTreeMap<u64, Vec<Vec<u8>>> = BTreeMap::new();
        for (time, bytes) in std::mem::take(&mut self.records) {
            rounds.entry(time.div_ceil(ROUND)).or_default().push(bytes);
        }
        for (round, mut records) in rounds {
            // From several rings, drained one after the other.
            for last in (1..records.len()).rev() {
                let with = self.random.between(0, last as u64) as usize;
                records.swap(last, with);
            }
            for bytes in records {
                capture.raw(&bytes);
            }
            while let Some(sample) = samples.next_if(|sample| sample.boottime < round * ROUND) {
                capture.meta(sample);
            }
            let lost: u64 = self.lost.range(..=round).map(|(_, lost)| lost).sum();
            capture.meta(Ledger {
                time: round * ROUND,
                rows: vec![LedgerRow {
                    domain: Domain::KernelDispatch.id(),
                    dropped: vec![lost],
                    ..LedgerRow::default()
                }],
                ..Ledger::default()
            });
            capture.meta(Epoch {
                time: round * ROUND,
            });
        }
        for sample in samples {
            capture.meta(sample);
        }
        capture.meta(gpu::code_object(0));
        capture.bytes()
    }
}
