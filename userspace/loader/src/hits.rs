//! Measures what hits of probes cost on this machine.
//!
//! The same programs that trace calls are attached to small functions of gputrace itself, for this
//! process only, and a thread calls these many times, with probes and without. So the figures
//! include all that a traced thread pays for a hit: the exception or system call, how the kernel
//! carries out the replaced instruction, the program with its clock and maps, and the record in the
//! ring.
//!
//! They do not include what depends on the traced program: cold caches and branch predictors
//! (the calls here follow one another without anything between), arguments on the stack, values
//! behind pointers, and a collector that reads the ring on another CPU meanwhile.
//!
//! This is done before anything is recorded. Afterwards the rings are empty and the counters zero
//! again.

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use gputrace_abi::{cookie::Cookie, counters::CpuCounters, domain::Domain};
use libbpf_rs::{MapCore as _, MapFlags};
use rustix::{
    thread::{CpuSet, sched_getcpu, sched_setaffinity},
    time::{ClockId, clock_gettime},
};
use zerocopy::{FromZeros as _, IntoBytes as _};

use crate::{
    ProbeError,
    attach::{End, Point, Scope, TracedFunction},
    calls::{Calls, file_offset},
    probes::Probes,
};

// Each begins with the instruction that is probed. All are aligned, so that the five-byte `nop`
// does not cross a page.
std::arch::global_asm!(
    ".pushsection .text.gputrace_priced, \"ax\", @progbits",
    ".globl gputrace_priced_nop, gputrace_priced_push, gputrace_priced_move",
    ".globl gputrace_priced_return, gputrace_priced_exit",
    ".hidden gputrace_priced_nop, gputrace_priced_push, gputrace_priced_move",
    ".hidden gputrace_priced_return, gputrace_priced_exit",
    ".p2align 6",
    "gputrace_priced_nop:",
    ".byte 0x0f, 0x1f, 0x44, 0x00, 0x00",
    "ret",
    ".p2align 6",
    "gputrace_priced_push:",
    "push rbp",
    "pop rbp",
    "ret",
    ".p2align 6",
    "gputrace_priced_move:",
    "mov rax, rdi",
    "ret",
    ".p2align 6",
    "gputrace_priced_return:",
    "push rbp",
    "pop rbp",
    "ret",
    ".p2align 6",
    "gputrace_priced_exit:",
    "push rbp",
    "pop rbp",
    "ret",
    ".popsection",
);

unsafe extern "C" {
    fn gputrace_priced_nop();
    fn gputrace_priced_push();
    fn gputrace_priced_move();
    fn gputrace_priced_return();
    fn gputrace_priced_exit();
}

/// Offset of the `ret` in the functions that begin with `push`.
const RET: u64 = 2;

/// Number of calls whose time is taken at once. Their records fit into the smallest ring.
const BATCH: u32 = 32;

/// Minimum number of batches of each function, for a median; and the maximum.
const ROUNDS: std::ops::RangeInclusive<usize> = 3..=15;

/// After this time, the measurement ends as soon as it has enough batches. With probes; calls
/// without any take microseconds.
const ENOUGH: Duration = Duration::from_millis(15);

/// After this time it is given up.
const LIMIT: Duration = Duration::from_millis(100);

/// The functions that are called, in the order of [`Functions`].
const FUNCTIONS: [unsafe extern "C" fn(); 5] = [
    gputrace_priced_nop,
    gputrace_priced_push,
    gputrace_priced_move,
    gputrace_priced_return,
    gputrace_priced_exit,
];

/// A value for each function.
type Functions<T> = [T; FUNCTIONS.len()];

/// What hits cost the thread that hits them, ns: medians.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HitCosts {
    /// Entry that begins with the five-byte `nop`.
    pub optimized: u64,
    /// Entry that begins with an instruction that the kernel emulates.
    pub emulated: u64,
    /// Entry that begins with any other instruction.
    pub single_stepped: u64,
    /// Return that the kernel probes: what it adds to a call.
    pub at_return: u64,
    /// Probed `ret`: what it adds to a call.
    pub at_exit: u64,
}

impl Calls {
    /// Measures what hits cost, which takes about 20 ms. Call this before anything is recorded and
    /// while no ring is being read: it empties the ring and the counters of a CPU.
    ///
    /// Returns the probes as well. They are for this process only, whose functions nobody calls any
    /// more. Their removal takes longer than the measurement, so the caller should drop them on
    /// another thread.
    ///
    /// # Errors
    ///
    /// [`ProbeError`] if the probes cannot be attached, if they were not hit as often as the
    /// functions were called, or if other programs kept the CPU.
    pub fn price(&self) -> Result<(HitCosts, Probes), ProbeError> {
        // A thread of its own, because a thread that was traced once stays traced until it ends.
        thread::scope(|scope| {
            let priced = thread::Builder::new()
                .name("price".to_owned())
                .spawn_scoped(scope, || self.priced());
            let priced = priced.map_err(|error| failed(&error.to_string()))?;
            priced
                .join()
                .unwrap_or_else(|_| Err(failed("the thread failed")))
        })
    }

    fn priced(&self) -> Result<(HitCosts, Probes), ProbeError> {
        let cpu = pin()?;
        let mut ring = self.ring_of(cpu)?;
        let mut empty = || while ring.next().is_some() {};
        let (bare, _) = times(&mut || {})?;
        let probes = self.attach(
            Path::new("/proc/self/exe"),
            Scope::Process(std::process::id()),
            &traced()?,
        )?;
        if let Some(failure) = probes.failures.first() {
            return Err(failed(&failure.error.to_string()));
        }
        self.add_target(std::process::id(), 0)?;
        let probed = times(&mut empty);
        self.remove_target(std::process::id())?;
        empty();
        let seen: u64 = self.counted(cpu)?.seen.iter().sum();
        self.clear_counters(cpu)?;
        let (probed, calls) = probed?;
        if seen != calls {
            return Err(failed(&format!("{calls} calls were seen {seen} times")));
        }
        let mut costs = [0; FUNCTIONS.len()];
        for (cost, (with, without)) in costs.iter_mut().zip(probed.iter().zip(&bare)) {
            *cost = with.saturating_sub(*without);
        }
        let [optimized, emulated, single_stepped, at_return, at_exit] = costs;
        let costs = HitCosts {
            optimized,
            emulated,
            single_stepped,
            at_return: at_return.saturating_sub(emulated),
            at_exit: at_exit.saturating_sub(emulated),
        };
        Ok((costs, probes))
    }

    fn counted(&self, cpu: u32) -> Result<CpuCounters, ProbeError> {
        let all = self.counters()?;
        let counters = usize::try_from(cpu).ok().and_then(|cpu| all.get(cpu));
        counters.copied().ok_or_else(|| failed("unknown CPU"))
    }

    fn clear_counters(&self, cpu: u32) -> Result<(), ProbeError> {
        let zero = CpuCounters::new_zeroed();
        self.map("COUNTERS")?
            .update(cpu.as_bytes(), zero.as_bytes(), MapFlags::ANY)
            .map_err(|error| failed(&error.to_string()))
    }
}

fn failed(cause: &str) -> ProbeError {
    ProbeError::Refused {
        action: "measure what probes cost".to_owned(),
        cause: cause.to_owned(),
        log: Vec::new(),
    }
}

/// Keeps this thread on the CPU on which it is, so that it uses one ring.
fn pin() -> Result<u32, ProbeError> {
    let cpu = sched_getcpu();
    if cpu >= CpuSet::MAX_CPU {
        return Err(failed("the CPU's number is too large"));
    }
    let mut one = CpuSet::new();
    one.set(cpu);
    sched_setaffinity(None, &one).map_err(|error| failed(&error.to_string()))?;
    u32::try_from(cpu).map_err(|_| failed("unknown CPU"))
}

/// The functions as probes are to be attached to them. The ends of the first three are not probed.
fn traced() -> Result<Vec<TracedFunction>, ProbeError> {
    let mut all = Vec::new();
    for (id, function) in (0..).zip(FUNCTIONS) {
        let offset = file_offset(function as *const ())
            .ok_or_else(|| failed("gputrace is not in its own /proc/self/maps"))?;
        let cookie = Cookie::new(id, Domain::HipRuntime.id(), 0).0;
        let at = |offset| Point { offset, cookie };
        let end = match id {
            3 => End::Return,
            4 => End::Exits(vec![at(offset + RET)]),
            _ => End::NotSeen,
        };
        all.push(TracedFunction {
            entry: at(offset),
            end,
        });
    }
    Ok(all)
}

/// Median time of a call of each function, ns of CPU time, and the number of calls made. `between`
/// runs after each batch.
fn times(between: &mut dyn FnMut()) -> Result<(Functions<u64>, u64), ProbeError> {
    let began = Instant::now();
    let mut batches = [const { Vec::new() }; FUNCTIONS.len()];
    let mut calls = 0;
    // The functions take turns, so that a change in the machine's speed affects all of them. The
    // first round only warms up.
    for round in 0..=*ROUNDS.end() {
        for (function, batches) in FUNCTIONS.iter().zip(&mut batches) {
            let time = batch(*function);
            calls += u64::from(BATCH);
            between();
            if round > 0 {
                batches.push(time);
            }
        }
        let passed = began.elapsed();
        if passed > ENOUGH && round >= *ROUNDS.start() {
            break;
        }
        if passed > LIMIT {
            return Err(failed("the machine is too slow or too busy"));
        }
    }
    let median = |mut batches: Vec<Duration>| {
        batches.sort_unstable();
        let middle = batches.get(batches.len() / 2).copied();
        middle.unwrap_or_default().as_nanos() as u64 / u64::from(BATCH)
    };
    Ok((batches.map(median), calls))
}

/// CPU time of a batch of calls.
fn batch(function: unsafe extern "C" fn()) -> Duration {
    let begin = cpu_time();
    for _ in 0..BATCH {
        // SAFETY: a function of this file, which does nothing.
        unsafe { function() };
    }
    cpu_time().saturating_sub(begin)
}

/// CPU time of this thread: other threads that get the CPU meanwhile do not count.
fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}
