//! Stacks that the programs copy and recognise, held against libgcc.

#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, in its helper functions too"
)]

mod support;

use std::{collections::HashMap, fs, hint::black_box, path::Path, ptr};

use gputrace_abi::{
    cookie::Cookie,
    domain::Domain,
    record::{RecordHeader, Span, kind},
    stack::{PAGE, REGISTERS, STACK_POINTER, Site, SiteKey, SiteWord, StackCopy, StackUse},
};
use gputrace_loader::{
    Ring,
    attach::{End, Point, Scope, TracedFunction},
    calls::{BackendChoice, Calls, Options},
};
use gputrace_tracee::process::maps;
use gputrace_unwind::{Module, Modules, Register, Registers, Unwound};
use zerocopy::{FromBytes as _, FromZeros as _};

/// The traced function.
#[inline(never)]
extern "C" fn traced(number: u64) -> u64 {
    black_box(number) + 1
}

/// Calls the traced function after `depth` calls of this one. Notes the return addresses by libgcc,
/// here, because inside the traced function the kernel has replaced one.
#[inline(never)]
fn down(depth: u32, truth: &mut Vec<Vec<u64>>) -> u64 {
    if depth > 0 {
        return black_box(down(depth - 1, truth)) + 1;
    }
    // Not an array: the copy of the stack is to have room for 90 of these frames.
    let mut found = vec![ptr::null_mut::<libc::c_void>(); 512];
    // SAFETY: the buffer has this length.
    let count = unsafe { libc::backtrace(found.as_mut_ptr(), found.len() as i32) };
    truth.push(
        found[..count as usize]
            .iter()
            .map(|at| *at as u64)
            .collect(),
    );
    black_box(traced(1))
}

/// Calls the traced function at these depths, in a thread of its own. Returns who called, by
/// libgcc.
fn called(depths: &'static [u32]) -> Vec<Vec<u64>> {
    let all = move || {
        let mut truth = Vec::new();
        for depth in depths {
            down(*depth, &mut truth);
        }
        truth
    };
    std::thread::spawn(all).join().unwrap()
}

/// File offset of a function of this program.
fn offset_of(function: *const ()) -> u64 {
    let address = function as u64;
    let mappings = maps::of_process(std::process::id()).unwrap();
    let mapping = mappings
        .iter()
        .find(|one| (one.start..one.end).contains(&address));
    let mapping = mapping.unwrap();
    address - mapping.start + mapping.offset
}

/// What this process has mapped.
fn modules() -> Modules {
    let mut modules = Modules::default();
    let mut read = HashMap::new();
    for mapping in maps::of_process(std::process::id()).unwrap() {
        if mapping.executable {
            let path = mapping.path();
            let known = read
                .entry(path.clone())
                .or_insert_with(|| Module::read(&*fs::read(&path).unwrap()).ok());
            if let Some(module) = known {
                modules.add(
                    mapping.start..mapping.end,
                    mapping.offset,
                    module.clone(),
                    0,
                );
            }
        }
    }
    modules
}

fn unwound(copy: &StackCopy, modules: &Modules) -> Unwound {
    let begin = copy.registers[STACK_POINTER] & !(PAGE as u64 - 1);
    let copied = copy.pages as usize * PAGE;
    modules.unwind(&Registers(copy.registers), 400, |address| {
        let at = usize::try_from(address.checked_sub(begin)?).ok()?;
        let word = copy.memory[..copied].get(at..at + 8)?;
        Some(u64::from_ne_bytes(word.try_into().unwrap()))
    })
}

/// What tells the stack, if it depends on few enough words.
fn site(copy: &StackCopy, found: &Unwound) -> (SiteKey, Site) {
    let pointer = copy.registers[STACK_POINTER];
    let key = SiteKey {
        pid: copy.pid,
        way: 0,
        pointer,
        return_address: found.stack.frames[0].address,
    };
    let mut site = Site::new_zeroed();
    site.stack = copy.stack;
    site.registers = copy.registers;
    let registers = Register::ALL.iter().enumerate();
    site.depends_on = registers
        .filter(|(_, register)| found.depends_on.has(**register))
        .fold(0, |bits, (at, _)| bits | 1 << at);
    for (word, (address, value)) in site.memory.iter_mut().zip(&found.depends_on.memory) {
        let offset = address - pointer;
        *word = SiteWord {
            offset,
            value: *value,
        };
        site.words += 1;
    }
    assert_eq!(usize::from(site.words), found.depends_on.memory.len());
    (key, site)
}

/// The stacks of the calls, in order.
fn used(calls: &Calls) -> Vec<u32> {
    let mut stacks = HashMap::new();
    let mut spans = Vec::new();
    for (_, mut ring) in calls.rings().unwrap() {
        while let Some(record) = ring.next() {
            let (header, _) = RecordHeader::read_from_prefix(&record).unwrap();
            match header.kind {
                kind::STACK => {
                    let used = StackUse::read_from_bytes(&record).unwrap();
                    assert_eq!(stacks.insert(used.correlation, used.stack), None);
                }
                kind::SPAN => spans.push(Span::read_from_bytes(&record).unwrap()),
                other => panic!("kind {other}"),
            }
        }
    }
    spans.sort_by_key(|span| span.begin);
    assert_eq!(stacks.len(), spans.len());
    spans.iter().map(|span| stacks[&span.correlation]).collect()
}

fn copies(ring: &mut Ring) -> Vec<Box<StackCopy>> {
    std::iter::from_fn(|| {
        let record = ring.next()?;
        Some(Box::new(StackCopy::read_from_bytes(&record).unwrap()))
    })
    .collect()
}

fn started(backend: BackendChoice) -> Option<(Calls, Ring, gputrace_loader::probes::Probes)> {
    let options = Options {
        stacks: true,
        ..support::options(backend, 1 << 20)
    };
    let calls = support::load(&options)?;
    let ring = calls.start_stacks().unwrap();
    let function = TracedFunction {
        entry: Point {
            offset: offset_of(traced as *const ()),
            cookie: Cookie::new(7, Domain::HipRuntime.id(), 0).with_stack().0,
        },
        end: End::Return,
    };
    let scope = Scope::Process(std::process::id());
    let probes = calls
        .attach(Path::new("/proc/self/exe"), scope, &[function])
        .unwrap();
    assert!(probes.failures.is_empty());
    calls.add_target(std::process::id(), 0).unwrap();
    Some((calls, ring, probes))
}

#[test]
fn stacks_are_copied_once_and_recognised() {
    for backend in [BackendChoice::UprobeMulti, BackendChoice::Perf] {
        let Some((calls, mut ring, probes)) = started(backend) else {
            return;
        };
        let modules = modules();
        const DEPTHS: &[u32] = &[1, 5, 90, 5];
        let truth = called(DEPTHS);
        let new = copies(&mut ring);
        let numbers: Vec<u32> = new.iter().map(|copy| copy.stack).collect();
        assert_eq!(
            used(&calls),
            numbers,
            "each call has the stack that was copied for it"
        );
        assert_eq!(numbers.len(), DEPTHS.len());
        for (copy, truth) in new.iter().zip(&truth) {
            let found = unwound(copy, &modules);
            let ours: Vec<u64> = found
                .stack
                .frames
                .iter()
                .map(|frame| frame.address)
                .collect();
            // The first is another place of the same function.
            assert_eq!(truth[1..], ours[1..], "{:?}", found.stack.end);
            assert!(ours[0] > truth[0] && ours[0] - truth[0] < 4096);
            assert_eq!(
                (copy.pid, copy.registers.len()),
                (std::process::id(), REGISTERS)
            );
            let (key, site) = site(copy, &found);
            calls.add_site(&key, &site).unwrap();
        }
        // The same again: nothing is copied, and each call has the number of its stack. The two at
        // depth 5 are called from different lines, but this loop is one.
        called(DEPTHS);
        drop(probes);
        calls.stop().unwrap();
        assert!(copies(&mut ring).is_empty());
        let known = used(&calls);
        assert_eq!(known.len(), DEPTHS.len());
        let stack = |number: u32| {
            let copy = new.iter().find(|copy| copy.stack == number);
            unwound(copy.unwrap(), &modules).stack
        };
        for (again, before) in known.iter().zip(&numbers) {
            assert_eq!(stack(*again), stack(*before));
        }
    }
}

#[inline(never)]
fn left(number: u64) -> u64 {
    black_box(common(number)) + 1
}

#[inline(never)]
fn right(number: u64) -> u64 {
    black_box(common(number)) + 1
}

#[inline(never)]
fn common(number: u64) -> u64 {
    black_box(traced(number)) + 1
}

/// Stacks with the same stack pointer and the same caller are told apart by their callers' callers.
#[test]
fn stacks_that_differ_further_up_are_told_apart() {
    let Some((calls, mut ring, probes)) = started(BackendChoice::Auto) else {
        return;
    };
    let modules = modules();
    let call = |turns: &'static [bool]| {
        let all = move || {
            for is_left in turns {
                let way = if *is_left { left } else { right };
                black_box(way)(1);
            }
        };
        std::thread::spawn(all).join().unwrap();
    };
    call(&[true]);
    let new = copies(&mut ring);
    let (key, site) = site(&new[0], &unwound(&new[0], &modules));
    calls.add_site(&key, &site).unwrap();
    call(&[true, false, true, false]);
    let others = copies(&mut ring);
    drop(probes);
    calls.stop().unwrap();
    let known = new[0].stack;
    let [first, second] = &others[..] else {
        panic!("{} were copied", others.len());
    };
    assert_eq!(
        used(&calls),
        [known, known, first.stack, known, second.stack]
    );
    for other in [first, second] {
        assert_eq!(other.registers[STACK_POINTER], key.pointer);
        let found = unwound(other, &modules).stack;
        assert_eq!(found.frames[0].address, key.return_address);
        assert_ne!(found, unwound(&new[0], &modules).stack);
    }
}
