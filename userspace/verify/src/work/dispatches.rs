//! Dispatches of the spinning kernels, in several ways.

use std::{
    mem,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use super::{
    Stop,
    machine::Machine,
    queue::{PATIENCE, Ring, in_order, now, wait_for},
};
use crate::{
    hsa::{Packet, Signal},
    log::{Change, Dispatch, Kernel, Part, Said},
};

/// Number of packets in a ring.
const RING: u32 = 1024;
/// Maximum number of dispatches in a run.
const ROOM: usize = 4096;
/// Number of reused signals.
const SIGNALS: usize = 8;
/// Pause between dispatches, in parts that have pauses.
const PAUSE: Duration = Duration::from_millis(2);
/// How often kernels are launched with gaps between them: long enough for the status register to be
/// read several times meanwhile.
const GAPS: usize = 100;
/// Duration of the stream for estimates, which need a second of it.
const STREAM: Duration = Duration::from_secs(2);
/// Number of ticks that the first dispatch spins, before the clock's frequency is known.
const FIRST_TICKS: u64 = 1_000;
/// Maximum number of changes of a read index that are kept; there are fewer packets.
const CHANGES: usize = 4096;

/// Memory of a dispatch: its arguments, and the place for its results.
#[repr(C, align(64))]
struct Slot {
    ticks: u64,
    seen: u64,
    unused: [u64; 2],
    /// The clock as read at its begin and end; 0 until then.
    clock: [std::sync::atomic::AtomicU64; 2],
}

/// A dispatch that was submitted.
struct Submitted {
    said: Dispatch,
    slot: usize,
    signal: Signal,
}

/// Submits dispatches and reports their outcome.
pub(super) struct Dispatcher<'a> {
    /// Queue whose packets' signals get stamps.
    stamped: Ring<'a>,
    unstamped: Ring<'a>,
    slots: *mut Slot,
    used: usize,
    /// State of the random numbers for the order of kernels, which is always the same.
    random: u64,
    said: Vec<Said>,
}

impl<'a> Dispatcher<'a> {
    pub(super) fn new(machine: &Machine<'a>) -> Result<Self, Stop> {
        let slots = machine.arguments(ROOM * size_of::<Slot>())?;
        Ok(Self {
            stamped: Ring::new(machine.api, machine.gpu, RING, true)?,
            unstamped: Ring::new(machine.api, machine.gpu, RING, false)?,
            slots: slots.cast(),
            used: 0,
            random: 1,
            said: Vec::new(),
        })
    }

    /// Removes and returns the reports since the last call.
    pub(super) fn take(&mut self) -> Vec<Said> {
        mem::take(&mut self.said)
    }

    pub(super) fn end(self) -> Result<(), Stop> {
        self.stamped.destroy()?;
        self.unstamped.destroy()?;
        Ok(())
    }

    /// Runs the first dispatch: it shows that kernels run, and how the clock counts.
    pub(super) fn calibrate(&mut self, machine: &Machine<'_>) -> Result<Dispatch, Stop> {
        let signal = machine.api.signal()?;
        let mut one = self.submit(
            machine,
            true,
            Part::Before,
            Kernel::Short,
            FIRST_TICKS,
            signal,
        )?;
        self.announce(true, std::slice::from_mut(&mut one));
        let seen = wait_for(machine.api, signal, || "the first dispatch".to_owned())?;
        self.complete(machine, &mut one, seen);
        machine.api.destroy_signal(signal)?;
        Ok(one.said)
    }

    /// Runs a part.
    pub(super) fn run(&mut self, machine: &Machine<'_>, part: Part) -> Result<(), Stop> {
        match part {
            Part::Before => self.single(machine, part, true, &Kernel::ALL),
            Part::Single => {
                let kernels = self.kernels(36);
                self.single(machine, part, true, &kernels)
            }
            Part::Unstamped => {
                let kernels = self.kernels(12);
                self.single(machine, part, false, &kernels)
            }
            Part::Scratch => self.single(machine, part, true, &[Kernel::Scratch; 3]),
            Part::Batch => {
                for (count, doorbells) in [(60, 60), (48, 3)] {
                    let kernels = self.kernels(count);
                    self.batch(machine, part, &kernels, count / doorbells, true)?;
                }
                Ok(())
            }
            Part::Plain => {
                for _ in 0..6 {
                    let kernels = self.kernels(240);
                    self.batch(machine, part, &kernels, 60, false)?;
                }
                Ok(())
            }
            Part::Stream => {
                let end = Instant::now() + STREAM;
                while Instant::now() < end {
                    let kernels = self.kernels(240);
                    self.batch(machine, part, &kernels, 60, false)?;
                }
                Ok(())
            }
            Part::Gaps => {
                for _ in 0..GAPS {
                    let kernels = self.kernels(2);
                    self.batch(machine, part, &kernels, 1, false)?;
                    std::thread::sleep(PAUSE);
                }
                Ok(())
            }
        }
    }

    /// Kernels in a random order: 60 % short, 30 % medium, 10 % long.
    fn kernels(&mut self, count: usize) -> Vec<Kernel> {
        let draw = || {
            // Knuth's MMIX generator; its upper bits are the good ones.
            self.random = self
                .random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            match (self.random >> 33) % 10 {
                0..=5 => Kernel::Short,
                6..=8 => Kernel::Medium,
                _ => Kernel::Long,
            }
        };
        std::iter::repeat_with(draw).take(count).collect()
    }

    /// Runs kernels one after the other, with reused signals.
    fn single(
        &mut self,
        machine: &Machine<'_>,
        part: Part,
        stamped: bool,
        kernels: &[Kernel],
    ) -> Result<(), Stop> {
        let api = machine.api;
        let mut signals = Vec::new();
        for _ in 0..SIGNALS.min(kernels.len()) {
            signals.push(api.signal()?);
        }
        for (number, kernel) in kernels.iter().enumerate() {
            let Some(signal) = signals.get(number % SIGNALS).copied() else {
                break;
            };
            if number >= SIGNALS {
                api.rearm(signal);
            }
            let ticks = machine.ticks(kernel.spins_ns());
            let mut one = self.submit(machine, stamped, part, *kernel, ticks, signal)?;
            self.announce(stamped, std::slice::from_mut(&mut one));
            let outcome = wait_for(api, signal, || format!("a dispatch of {}", kernel.name()));
            if let Ok(seen) = outcome {
                self.complete(machine, &mut one, seen);
            }
            self.said.push(Said::Dispatch(one.said));
            outcome?;
            if number % 4 == 3 {
                std::thread::sleep(PAUSE);
            }
        }
        for signal in signals {
            api.destroy_signal(signal)?;
        }
        Ok(())
    }

    /// Runs kernels back to back, many per doorbell, either with a signal each or with one for the
    /// last. Looks at the read index meanwhile.
    fn batch(
        &mut self,
        machine: &Machine<'_>,
        part: Part,
        kernels: &[Kernel],
        of_a_doorbell: usize,
        signalled: bool,
    ) -> Result<(), Stop> {
        let api = machine.api;
        let mut all = Vec::with_capacity(kernels.len());
        for (number, group) in kernels.chunks(of_a_doorbell).enumerate() {
            let begin = all.len();
            let last = (number + 1) * of_a_doorbell >= kernels.len();
            for (place, kernel) in group.iter().enumerate() {
                let is_last = last && place + 1 == group.len();
                let signal = if signalled || is_last {
                    api.signal()?
                } else {
                    Signal(0)
                };
                let ticks = machine.ticks(kernel.spins_ns());
                all.push(self.submit(machine, true, part, *kernel, ticks, signal)?);
            }
            self.announce(true, all.get_mut(begin..).unwrap_or_default());
        }
        let Some((end, signal)) = all.last().map(|last| (last.said.index + 1, last.signal)) else {
            return Ok(());
        };
        // The stream is for the recorder's looks; the program's own looks would slow it down.
        let followed = (part != Part::Stream).then(|| self.follow(end));
        let outcome = wait_for(api, signal, || {
            format!("the last of {} dispatches", kernels.len())
        });
        for mut one in all {
            match outcome {
                Ok(seen) => self.complete(machine, &mut one, seen),
                // Dispatches whose own signal has completed are not to blame.
                Err(_) if one.signal.0 != 0 && api.wait(one.signal, 0) => {
                    self.complete(machine, &mut one, now());
                }
                Err(_) => {}
            }
            if one.signal.0 != 0 && outcome.is_ok() {
                api.destroy_signal(one.signal)?;
            }
            self.said.push(Said::Dispatch(one.said));
        }
        if let Some((from, changes)) = followed {
            self.said.push(Said::ReadIndex {
                queue: self.stamped.id,
                from,
                changes,
            });
        }
        outcome.map(drop)
    }

    /// Looks at the read index until it is `end`. Returns its first value and all changes.
    fn follow(&self, end: u64) -> (u64, Vec<Change>) {
        let deadline = Instant::now() + PATIENCE;
        // Time before each look: what the look shows cannot be known earlier.
        let mut before_ns = now();
        let from = self.stamped.read_index();
        let (mut changes, mut last) = (Vec::new(), from);
        while last < end && changes.len() < CHANGES && Instant::now() < deadline {
            let begin = now();
            let index = self.stamped.read_index();
            // Time after the look: by then it had this value.
            let seen_ns = now();
            if index != last {
                changes.push(Change {
                    before_ns,
                    seen_ns,
                    index,
                });
            }
            (before_ns, last) = (begin, index);
            std::hint::spin_loop();
        }
        (from, changes)
    }

    /// Writes a packet.
    fn submit(
        &mut self,
        machine: &Machine<'_>,
        stamped: bool,
        part: Part,
        kernel: Kernel,
        ticks: u64,
        signal: Signal,
    ) -> Result<Submitted, Stop> {
        // One or two waves.
        const ITEMS: u16 = 64;
        let ring = if stamped {
            &self.stamped
        } else {
            &self.unstamped
        };
        let index = ring.reserve(1)?;
        let slot = self.used % ROOM;
        self.used += 1;
        // SAFETY: there are `ROOM` slots.
        let place = unsafe { self.slots.add(slot) };
        let written = Slot {
            ticks,
            seen: place as u64 + mem::offset_of!(Slot, clock) as u64,
            unused: [0; 2],
            clock: Default::default(),
        };
        // SAFETY: the previous dispatch in this slot has ended, because a ring has fewer packets
        // than there are slots.
        unsafe { place.write(written) };
        let loaded = machine.kernel(kernel);
        ring.write(
            index,
            &Packet {
                header_and_setup: in_order(1),
                workgroup: [ITEMS, 1, 1],
                grid: [ITEMS.into(), 1, 1],
                private: loaded.private,
                kernel_object: loaded.object,
                kernarg: place as u64,
                signal,
                ..Packet::default()
            },
        );
        Ok(Submitted {
            said: Dispatch {
                part,
                queue: ring.id,
                index,
                kernel,
                grid: [ITEMS.into(), 1, 1],
                workgroup: [ITEMS, 1, 1],
                ticks,
                signalled: signal.0 != 0,
                rung_ns: 0,
                seen_ns: None,
                runtime_ns: None,
                clock_ticks: None,
                clock_ns: None,
            },
            slot,
            signal,
        })
    }

    /// Announces dispatches to the GPU with one doorbell.
    fn announce(&self, stamped: bool, dispatches: &mut [Submitted]) {
        let ring = if stamped {
            &self.stamped
        } else {
            &self.unstamped
        };
        let Some(last) = dispatches.last().map(|last| last.said.index) else {
            return;
        };
        let time = now();
        ring.ring(last);
        for one in dispatches {
            one.said.rung_ns = time;
        }
    }

    /// Collects what is known of a dispatch that has ended.
    fn complete(&self, machine: &Machine<'_>, one: &mut Submitted, seen_ns: u64) {
        one.said.seen_ns = Some(seen_ns);
        // SAFETY: there are `ROOM` slots.
        let slot = unsafe { self.slots.add(one.slot) };
        // SAFETY: `submit` wrote it, and this program does not write it again before this function
        // has returned.
        let slot = unsafe { &*slot };
        let [begin, end] = [0, 1].map(|at: usize| {
            slot.clock
                .get(at)
                .map_or(0, |tick| tick.load(Ordering::Acquire))
        });
        if end != 0 {
            one.said.clock_ticks = Some([begin, end]);
            let at = |tick| machine.api.system_time(machine.gpu, tick).ok();
            one.said.clock_ns = at(begin).zip(at(end)).map(|(begin, end)| [begin, end]);
        }
        if one.signal.0 != 0 && self.stamped.id == one.said.queue && self.stamped.stamps {
            // A runtime without times returns an error, or zeros.
            let span = machine.api.dispatch_time(machine.gpu, one.signal).ok();
            one.said.runtime_ns = span
                .filter(|span| span.end != 0)
                .map(|span| [span.start, span.end]);
        }
    }
}
