//! The SDMA packet processor: one thread per queue, one packet after the other. It really moves
//! data.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use zerocopy::IntoBytes;

use crate::bus::{Bus, BusResult};
use crate::clock::boottime_ns;
use crate::gpu::{Agent, Control, QueueSpec, Shared};
use crate::layout::signal;
use crate::packet::hex;
use crate::sdma_packet::{MAX_DWORDS, Op, Rect, Words, format_of};
use crate::thread::Patience;
use crate::truth::{Copy, Piece, Place, Record, Stamp};

/// A queue's packet processor.
pub(crate) struct Sdma {
    shared: Arc<Shared>,
    control: Arc<Control>,
    agent: u32,
    queue: u32,
    ring: u64,
    ring_bytes: u64,
    read_pointer: u64,
    doorbell: u64,
    /// Total number of bytes taken.
    taken: u64,
    /// Total number of bytes submitted.
    submitted: u64,
    /// State of the submission up to the next completion.
    submission: Submission,
}

/// The packets up to a completion.
#[derive(Default)]
struct Submission {
    /// Offset of the first copy.
    index: u64,
    pieces: Vec<Piece>,
    begin: Stamp,
    end: Stamp,
    /// Ticks written by timestamp packets before the first copy and after the last.
    stamps: [Option<Stamp>; 2],
}

/// The result of a packet.
#[derive(PartialEq, Eq)]
enum Outcome {
    Done,
    /// The queue is being destroyed, or the packet is unknown.
    Halt,
}

impl Sdma {
    pub(crate) fn new(
        shared: Arc<Shared>,
        control: Arc<Control>,
        spec: &QueueSpec,
        queue: u32,
    ) -> BusResult<Self> {
        let taken = shared
            .bus
            .load_u64("SDMA read pointer", spec.read_pointer)?;
        Ok(Self {
            shared,
            control,
            agent: spec.agent,
            queue,
            ring: spec.ring,
            ring_bytes: spec.ring_bytes,
            read_pointer: spec.read_pointer,
            doorbell: spec.doorbell,
            taken,
            submitted: taken,
            submission: Submission::default(),
        })
    }

    /// Processes packets until stopped.
    pub(crate) fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        // `SoftGpu::create_queue` has checked that the agent exists.
        let Some(agent) = shared.agent(self.agent) else {
            return;
        };
        let mut patience = Patience::new(&shared.config.queue);
        let mut halted = false;
        while !self.control.stopped() {
            halted |= agent.reset.load(Ordering::Acquire);
            if halted || self.control.paused.load(Ordering::Acquire) {
                patience.wait(None);
                continue;
            }
            match self.step(agent) {
                Ok(None) => patience.wait(None),
                Ok(Some(Outcome::Done)) => patience.reset(),
                Ok(Some(Outcome::Halt)) => halted = true,
                Err(bad) => {
                    halted = true;
                    shared.unknown("address in an SDMA queue", &bad.to_string());
                }
            }
        }
        self.finish_submission(0);
        shared.record(&Record::QueueEnd {
            pid: shared.pid,
            queue: self.queue,
            pending: self.submitted - self.taken,
            running: 0,
            ns: boottime_ns(),
        });
    }

    /// Processes one packet, if there is one.
    fn step(&mut self, agent: &Agent) -> BusResult<Option<Outcome>> {
        self.submitted = self
            .submitted
            .max(self.shared.bus.load_u64("SDMA doorbell", self.doorbell)?);
        if self.taken >= self.submitted {
            return Ok(None);
        }
        let words = self.read()?;
        let Some(format) = format_of(words.dword(0)) else {
            self.shared.unknown("SDMA packet", &hex(words.0.as_bytes()));
            return Ok(Some(Outcome::Halt));
        };
        let outcome = self.execute(agent, format.op, &words)?;
        if outcome == Outcome::Done {
            self.taken += words.bytes(format);
            self.shared
                .bus
                .store_u64("SDMA read pointer", self.read_pointer, self.taken)?;
        }
        Ok(Some(outcome))
    }

    fn read(&self) -> BusResult<Words> {
        let mut words = [0; MAX_DWORDS];
        for (offset, word) in (self.taken..self.submitted).step_by(4).zip(&mut words) {
            *word = self
                .shared
                .bus
                .load_u32("SDMA packet", self.ring + offset % self.ring_bytes)?;
        }
        Ok(Words(words))
    }

    fn execute(&mut self, agent: &Agent, op: Op, words: &Words) -> BusResult<Outcome> {
        let bus = &self.shared.bus;
        match op {
            Op::Nop | Op::CacheControl => {}
            Op::CopyLinear => {
                let bytes = words.bits(1, 0, 30) + 1;
                let piece = Piece {
                    source: words.qword(3),
                    destination: words.qword(5),
                    bytes,
                };
                self.move_pieces(agent, [piece], Bus::copy_piece)?;
            }
            Op::CopyRect => {
                let rect = Rect::read(words);
                let [width, height, depth] = rect.size;
                let rows = (0..depth)
                    .flat_map(|z| (0..height).map(move |y| (y, z)))
                    .map(|(y, z)| Piece {
                        source: rect.source.row(rect.element, y, z),
                        destination: rect.destination.row(rect.element, y, z),
                        bytes: width * rect.element,
                    });
                self.move_pieces(agent, rows, Bus::copy_piece)?;
            }
            Op::Fill => {
                let bytes = words.bits(4, 0, 22) + 1;
                let piece = Piece {
                    source: 0,
                    destination: words.qword(1),
                    bytes,
                };
                let pattern = words.dword(3);
                self.move_pieces(agent, [piece], |bus, piece| {
                    bus.fill_u32(piece.destination, pattern, piece.bytes)
                })?;
            }
            Op::Fence => bus.store_u32("SDMA fence", words.qword(1), words.dword(3))?,
            Op::Trap => self.shared.host.interrupt(words.dword(1) & 0x0fff_ffff),
            Op::Poll => return self.poll(words),
            Op::Atomic => return self.atomic(words),
            Op::Timestamp => {
                let now = agent.now();
                bus.store_u64("SDMA timestamp", words.qword(1), agent.stamp_ticks(now))?;
                let [first, last] = &mut self.submission.stamps;
                *(if self.submission.pieces.is_empty() {
                    first
                } else {
                    last
                }) = Some(now);
            }
        }
        Ok(Outcome::Done)
    }

    /// Copies the pieces of one packet, then waits until the configured duration of the copy has
    /// passed.
    fn move_pieces(
        &mut self,
        agent: &Agent,
        pieces: impl IntoIterator<Item = Piece>,
        one: impl Fn(&Bus, Piece) -> BusResult<()>,
    ) -> BusResult<()> {
        let begin = agent.now();
        let submission = &mut self.submission;
        if submission.pieces.is_empty() {
            submission.index = self.taken;
            submission.begin = begin;
        }
        let mut bytes = 0;
        for piece in pieces {
            one(&self.shared.bus, piece)?;
            bytes += piece.bytes;
            match submission.pieces.last_mut() {
                Some(last) if last.adjoins(&piece) => last.bytes += piece.bytes,
                _ => submission.pieces.push(piece),
            }
        }
        let until = begin
            .ns
            .saturating_add(self.shared.config.copy.duration_ns(bytes));
        let mut patience = Patience::new(&self.shared.config.queue);
        while boottime_ns() < until && !self.control.stopped() {
            patience.wait(Some(until));
        }
        submission.end = agent.now();
        Ok(())
    }

    /// Waits until the masked value in memory satisfies the comparison. Polls of registers are HDP
    /// flushes.
    fn poll(&self, words: &Words) -> BusResult<Outcome> {
        const MEMORY: u32 = 1 << 31;
        const HDP_FLUSH: u32 = 1 << 26;
        let first = words.dword(0);
        if first & MEMORY == 0 || first & HDP_FLUSH != 0 {
            return Ok(Outcome::Done);
        }
        let (address, reference, mask) = (words.qword(1), words.dword(3), words.dword(4));
        let mut patience = Patience::new(&self.shared.config.queue);
        while !self.control.stopped() {
            let value = self.shared.bus.load_u32("SDMA poll", address)? & mask;
            let holds = match words.bits(0, 28, 3) {
                0 => true,
                1 => value < reference,
                2 => value <= reference,
                3 => value == reference,
                4 => value != reference,
                5 => value >= reference,
                6 => value > reference,
                _ => {
                    self.shared
                        .unknown("SDMA poll function", &hex(words.0.as_bytes()));
                    return Ok(Outcome::Halt);
                }
            };
            if holds {
                return Ok(Outcome::Done);
            }
            patience.wait(None);
        }
        Ok(Outcome::Halt)
    }

    /// Adds to a signal's value, which completes the submission.
    fn atomic(&mut self, words: &Words) -> BusResult<Outcome> {
        const ADD64: u64 = 47;
        if words.bits(0, 25, 7) != ADD64 {
            self.shared.unknown("SDMA atomic", &hex(words.0.as_bytes()));
            return Ok(Outcome::Halt);
        }
        let address = words.qword(1);
        self.finish_submission(address.wrapping_sub(signal::VALUE));
        self.shared
            .bus
            .add_i64("SDMA atomic", address, words.qword(3).cast_signed())?;
        Ok(Outcome::Done)
    }

    /// Logs everything copied since the last completion.
    fn finish_submission(&mut self, signal: u64) {
        let Submission {
            index,
            pieces,
            begin,
            end,
            stamps,
        } = std::mem::take(&mut self.submission);
        if pieces.is_empty() {
            return;
        }
        let [first, last] = stamps;
        self.shared.record(&Record::Copy(Copy {
            place: Place {
                pid: self.shared.pid,
                agent: self.agent,
                queue: self.queue,
                index,
            },
            bytes: pieces.iter().map(|piece| piece.bytes).sum(),
            pieces,
            begin: first.unwrap_or(begin),
            end: last.unwrap_or(end),
            signal,
            stamped: first.is_some() && last.is_some(),
        }));
    }
}

impl Bus {
    fn copy_piece(&self, piece: Piece) -> BusResult<()> {
        self.copy(piece.source, piece.destination, piece.bytes)
    }
}

impl Piece {
    /// Whether `next` continues this piece in both source and destination.
    const fn adjoins(&self, next: &Self) -> bool {
        self.destination + self.bytes == next.destination
            && (self.source + self.bytes == next.source || self.source == 0 && next.source == 0)
    }
}
