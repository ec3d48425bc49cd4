//! Stacks of this very process, held against what libgcc says.

#![allow(clippy::disallowed_methods, reason = "tests read files of their own")]

use std::{collections::HashMap, ffi::c_void, fs, ptr};

use gputrace_tracee::process::maps;

use super::*;

// Stores the registers as they are at its entry, and calls a function while its own frame, and so
// everything above it, stays as it is.
std::arch::global_asm!(
    ".pushsection .text.unwind_capture, \"ax\", @progbits",
    ".hidden unwind_capture",
    ".globl unwind_capture",
    "unwind_capture:",
    ".cfi_startproc",
    "mov [rdi], rbx",
    "mov [rdi + 8], rbp",
    "mov [rdi + 16], rsp",
    "mov [rdi + 24], r12",
    "mov [rdi + 32], r13",
    "mov [rdi + 40], r14",
    "mov [rdi + 48], r15",
    "sub rsp, 8",
    ".cfi_adjust_cfa_offset 8",
    "call rsi",
    "add rsp, 8",
    ".cfi_adjust_cfa_offset -8",
    "ret",
    ".cfi_endproc",
    ".popsection",
);

unsafe extern "C" {
    fn unwind_capture(into: *mut c_void, then: unsafe extern "C" fn(*mut c_void));
}

/// The state at the entry of `unwind_capture`.
#[repr(C)]
#[derive(Default)]
struct Captured {
    registers: [u64; 7],
    /// Return addresses, by libgcc.
    truth: Vec<u64>,
    /// Words of the stack from the stack pointer on.
    words: Vec<u64>,
}

/// Number of words that are copied, or up to the end of the stack.
const COPIED: usize = 1 << 15;

unsafe extern "C" fn look(captured: *mut c_void) {
    // SAFETY: what `capture` passes.
    let captured = unsafe { &mut *captured.cast::<Captured>() };
    let mut found = [ptr::null_mut::<c_void>(); 512];
    // SAFETY: the array has this length.
    let count = unsafe { libc::backtrace(found.as_mut_ptr(), found.len() as i32) };
    captured.truth = found[..count as usize]
        .iter()
        .map(|at| *at as u64)
        .collect();
    let [_, _, pointer, ..] = captured.registers;
    let end = end_of_stack(pointer);
    let words = (end.saturating_sub(pointer) / 8).min(COPIED as u64);
    captured.words = (0..words)
        // SAFETY: between the stack pointer of a live frame and the end of the stack's mapping.
        .map(|word| unsafe { ptr::read_volatile((pointer + 8 * word) as *const u64) })
        .collect();
}

/// The end of the mapping that contains an address of a stack.
fn end_of_stack(pointer: u64) -> u64 {
    let text = fs::read_to_string("/proc/self/maps").unwrap();
    let mut ranges = text.lines().filter_map(|line| {
        let (begin, end) = line.split_once(' ')?.0.split_once('-')?;
        let hex = |text| u64::from_str_radix(text, 16).ok();
        Some(hex(begin)?..hex(end)?)
    });
    ranges.find(|range| range.contains(&pointer)).unwrap().end
}

/// What this process has mapped.
fn modules() -> Modules {
    let mut modules = Modules::default();
    let mut read = HashMap::new();
    for mapping in maps::of_process(std::process::id()).unwrap() {
        if !mapping.executable {
            continue;
        }
        let path = mapping.path();
        let known = read.entry(path.clone()).or_insert_with(|| {
            let bytes = fs::read(&path).unwrap();
            Module::read(&*bytes).ok()
        });
        if let Some(module) = known {
            let range = mapping.start..mapping.end;
            assert!(
                modules.add(range, mapping.offset, module.clone(), 0),
                "{path:?}"
            );
        }
    }
    modules
}

/// Unwinds from a copy.
fn unwound(captured: &Captured, modules: &Modules) -> Unwound {
    let registers = Registers(captured.registers);
    let pointer = registers.get(Register::Rsp);
    modules.unwind(&registers, 1000, |address| {
        let at = address.checked_sub(pointer)?;
        (at % 8 == 0).then_some(())?;
        captured.words.get(usize::try_from(at / 8).ok()?).copied()
    })
}

/// The state at a call in the caller. Inlined, so that the call is the caller's own.
#[inline(always)]
fn capture() -> Captured {
    let mut captured = Captured::default();
    // SAFETY: the function stores registers at the begin of the structure and calls `look` with it.
    unsafe { unwind_capture((&raw mut captured).cast(), look) };
    captured
}

/// Checks the stack at a call in the caller.
#[inline(always)]
fn check() -> Unwound {
    compared(&capture())
}

fn compared(captured: &Captured) -> Unwound {
    let found = unwound(captured, &modules());
    let stack = &found.stack;
    assert_eq!(stack.end, End::Complete, "{stack:x?}");
    let ours: Vec<u64> = stack.frames.iter().map(|frame| frame.address).collect();
    let truth = &captured.truth;
    let from = truth.iter().position(|at| *at == ours[0]);
    let from = from.unwrap_or_else(|| panic!("{:x?} is not in {truth:x?}", ours[0]));
    assert_eq!(&truth[from..], ours, "{truth:x?}\n{ours:x?}");
    found
}

#[inline(never)]
fn deep(depth: u32, most: u32) -> usize {
    if depth == 0 {
        return check().stack.frames.len();
    }
    // Not a tail call, and a frame of another size at each depth.
    let mut filler = vec![depth; depth as usize];
    filler.sort_by_key(|one| one ^ 1);
    std::hint::black_box(&filler);
    deep(depth - 1, most) + usize::from(filler.len() > most as usize)
}

#[test]
fn stacks_are_those_of_libgcc() {
    assert!(check().stack.frames.len() > 3);
    for depth in [1, 30, 300] {
        assert!(deep(depth, depth) > depth as usize);
    }
}

#[test]
fn frames_of_other_libraries_are_found() {
    unsafe extern "C" fn order(_: *const c_void, _: *const c_void) -> i32 {
        check();
        0
    }
    let mut two = [2_u64, 1];
    // SAFETY: two elements of eight bytes.
    unsafe { libc::qsort(two.as_mut_ptr().cast(), 2, 8, Some(order)) };
    // A thread ends at glibc's clone3, whose rules say so.
    std::thread::spawn(check).join().unwrap();
}

#[test]
fn signals_interrupt_frames() {
    extern "C" fn handler(_: i32) {
        let found = check();
        let interrupted = found
            .stack
            .frames
            .iter()
            .filter(|frame| frame.is_interrupted);
        assert_eq!(interrupted.count(), 1, "{:x?}", found.stack);
    }
    let handler = handler as *const () as libc::sighandler_t;
    // SAFETY: a handler that this test alone uses, and that returns.
    unsafe { libc::signal(libc::SIGUSR2, handler) };
    // SAFETY: the handler is installed.
    unsafe { libc::raise(libc::SIGUSR2) };
}

#[test]
fn what_a_stack_depends_on_decides_it() {
    let captured = capture();
    let found = compared(&captured);
    let modules = modules();
    // Whatever else is different: the stack is the same.
    let pointer = captured.registers[2];
    let mut other = Captured {
        registers: captured.registers,
        words: vec![0xdead_beef_dead_beef; captured.words.len()],
        truth: Vec::new(),
    };
    for register in Register::ALL {
        if register != Register::Rsp && !found.depends_on.has(register) {
            other.registers[register as usize] = 0xdead_beef;
        }
    }
    for (address, value) in &found.depends_on.memory {
        other.words[((address - pointer) / 8) as usize] = *value;
    }
    assert_eq!(unwound(&other, &modules), found);
    // Each return address matters.
    for frame in &found.stack.frames {
        assert!(
            found
                .depends_on
                .memory
                .values()
                .any(|value| *value == frame.address)
        );
    }
}

#[test]
fn the_end_of_a_stack_is_said() {
    let captured = capture();
    let modules = modules();
    let whole = unwound(&captured, &modules).stack;
    // A copy that is too short.
    let mut short = Captured {
        registers: captured.registers,
        words: captured.words.clone(),
        truth: Vec::new(),
    };
    for words in 0..captured.words.len().min(600) {
        short.words.truncate(words);
        short.words = captured.words[..words].to_vec();
        let stack = unwound(&short, &modules).stack;
        assert!(whole.frames.starts_with(&stack.frames), "{stack:x?}");
        assert!(stack == whole || stack.end == End::NotCopied, "{stack:x?}");
    }
    let nothing = unwound(&captured, &Modules::default()).stack;
    assert_eq!((nothing.frames.len(), nothing.end), (1, End::UnknownCode));
    let registers = Registers(captured.registers);
    let pointer = registers.get(Register::Rsp);
    let two = modules.unwind(&registers, 2, |address| {
        captured
            .words
            .get(((address - pointer) / 8) as usize)
            .copied()
    });
    assert_eq!((two.stack.frames.len(), two.stack.end), (2, End::TooDeep));
    assert_eq!(two.stack.frames, whole.frames[..2]);
}

#[test]
fn damaged_files_are_refused_and_never_panic() {
    let path = std::env::current_exe().unwrap();
    let good = fs::read(path).unwrap();
    assert!(Module::read(&*good).is_ok());
    assert!(matches!(
        Module::read(&good[..64]),
        Err(ModuleError::Elf(_))
    ));
    assert!(matches!(
        Module::read(&b"text"[..]),
        Err(ModuleError::Elf(_))
    ));
}

proptest::proptest! {
    /// Whatever the stack and the registers contain, unwinding ends and does not panic.
    #[test]
    fn any_memory_is_unwound_without_panic(
        seed in proptest::collection::vec(proptest::prelude::any::<u64>(), 1..64),
        registers in proptest::array::uniform7(proptest::prelude::any::<u64>()),
    ) {
        static MODULES: std::sync::LazyLock<Modules> = std::sync::LazyLock::new(modules);
        let modules = &*MODULES;
        // Addresses of code, now and then.
        let code: Vec<u64> = [compared as *const () as u64, libc::qsort as *const () as u64].into();
        let found = modules.unwind(&Registers(registers), 100, |address| {
            let word = seed[(address % seed.len() as u64) as usize];
            Some(if word % 3 == 0 { code[(word % 2) as usize] + word % 64 } else { word })
        });
        proptest::prop_assert!(found.stack.frames.len() <= 100);
    }
}
