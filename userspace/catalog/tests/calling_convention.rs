//! The places that the catalogue computes, compared with the compiler: functions are called by the
//! platform's C calling convention, and the contents of registers and stack are compared.
#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]
#![cfg(target_arch = "x86_64")]
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::arch::naked_asm;
use std::mem::{MaybeUninit, transmute};
use std::sync::Mutex;

use gputrace_capture::meta::ArgSlot;
use gputrace_catalog::class::{Class, Eightbyte};
use gputrace_catalog::release::{Release, Releases};
use gputrace_catalog::signature::{Argument, CType, Signature};

/// The data that a probe at a function's entry records: six registers, eight stack words.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Entry {
    registers: [u64; 6],
    stack: [u64; 8],
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Dim3 {
    x: u32,
    y: u32,
    z: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct IntegerThenFloat {
    integer: u64,
    float: f64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct FloatThenInteger {
    float: f64,
    integer: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Big<const WORDS: usize>([u64; WORDS]);

/// Can be called as a function of any type. It stores its argument registers and the words above
/// its return address in the [`Entry`] that `ENTRY` points to, and returns.
#[unsafe(naked)]
extern "C" fn record() {
    naked_asm!(
        "mov r11, qword ptr [rip + {entry}]",
        "mov [r11], rdi",
        "mov [r11 + 8], rsi",
        "mov [r11 + 16], rdx",
        "mov [r11 + 24], rcx",
        "mov [r11 + 32], r8",
        "mov [r11 + 40], r9",
        "xor r10d, r10d",
        "2:",
        "mov rax, [rsp + 8*r10 + 8]",
        "mov [r11 + 8*r10 + 48], rax",
        "inc r10",
        "cmp r10, 8",
        "jne 2b",
        // The address of a result in memory; other callers ignore it.
        "mov rax, rdi",
        "ret",
        entry = sym ENTRY,
    )
}

static mut ENTRY: *mut Entry = std::ptr::null_mut();
static CALLING: Mutex<()> = Mutex::new(());

/// Runs `call`, which calls [`record`] once, and returns what that stored.
fn entry_of(call: impl FnOnce()) -> Entry {
    let _one_at_a_time = CALLING.lock().unwrap();
    let mut entry = Entry::default();
    // SAFETY: the lock makes this the only use of ENTRY; `entry` outlives the call.
    unsafe { ENTRY = &raw mut entry };
    call();
    // SAFETY: `entry` is initialised; read through volatile because the assembly wrote it.
    unsafe { std::ptr::read_volatile(&raw const entry) }
}

/// The place of each argument of a function with these types, and its first word as recorded.
fn places(returns: Class, classes: &[Class], entry: &Entry) -> Vec<(ArgSlot, Option<u64>)> {
    let c_type = |class| CType {
        spelling: "",
        class,
        stored: None,
    };
    let release = Release {
        major: 1,
        minor: 0,
        patch: 0,
    };
    let signature = Signature {
        name: "f",
        releases: Releases {
            first: release,
            last: None,
        },
        returns: c_type(returns),
        arguments: classes
            .iter()
            .map(|class| Argument {
                name: "x",
                c_type: c_type(*class),
            })
            .collect(),
    };
    let word = |slot| match slot {
        ArgSlot::Register(number) => Some(entry.registers[usize::from(number)]),
        ArgSlot::Stack(number) => Some(entry.stack[usize::from(number)]),
        ArgSlot::Unrecorded => None,
    };
    signature
        .parameters()
        .iter()
        .map(|parameter| (parameter.at, word(parameter.at)))
        .collect()
}

const DIM3: Dim3 = Dim3 {
    x: 0xd1,
    y: 0xd2,
    z: 0xd3,
};
const DIM3_WORD: u64 = 0x0000_00d2_0000_00d1;

#[test]
fn dim3_goes_to_the_stack_as_a_whole_and_leaves_its_register_to_others() {
    type Function = extern "C" fn(u64, u64, u64, u64, u64, Dim3, u64, u64);
    // SAFETY: `record` follows the C calling convention and takes arguments of any type.
    let function = unsafe { transmute::<extern "C" fn(), Function>(record) };
    let entry = entry_of(|| function(1, 2, 3, 4, 5, DIM3, 7, 8));
    let word = Class::Unsigned(8);
    let found = places(
        Class::Void,
        &[word, word, word, word, word, Class::Dim3, word, word],
        &entry,
    );
    assert_eq!(found[5], (ArgSlot::Stack(0), Some(DIM3_WORD)));
    assert_eq!(entry.stack[1] as u32, 0xd3);
    assert_eq!(found[6], (ArgSlot::Register(5), Some(7)));
    assert_eq!(found[7], (ArgSlot::Stack(2), Some(8)));
}

#[test]
fn dim3_takes_two_registers() {
    type Function = extern "C" fn(u64, Dim3, Dim3, u64, u64, u64);
    // SAFETY: as above.
    let function = unsafe { transmute::<extern "C" fn(), Function>(record) };
    let entry = entry_of(|| function(1, DIM3, DIM3, 4, 5, 6));
    let word = Class::Unsigned(8);
    let found = places(
        Class::HipError,
        &[word, Class::Dim3, Class::Dim3, word, word, word],
        &entry,
    );
    let words: Vec<_> = found.iter().map(|(_, word)| word.unwrap()).collect();
    assert_eq!(words, [1, DIM3_WORD, DIM3_WORD, 4, 5, 6]);
    assert_eq!(entry.registers[2] as u32, 0xd3, "z is in the next register");
    assert_eq!(entry.registers[4] as u32, 0xd3, "z is in the next register");
}

#[test]
fn big_structs_go_to_the_stack_in_order() {
    type Function = extern "C" fn(Big<4>, u64, Big<3>, u64);
    // SAFETY: as above.
    let function = unsafe { transmute::<extern "C" fn(), Function>(record) };
    let entry = entry_of(|| function(Big([10, 11, 12, 13]), 2, Big([30, 31, 32]), 4));
    let classes = [
        Class::Memory(32),
        Class::Unsigned(8),
        Class::Memory(24),
        Class::Pointer,
    ];
    let found = places(Class::Void, &classes, &entry);
    let words: Vec<_> = found.iter().map(|(_, word)| word.unwrap()).collect();
    assert_eq!(words, [10, 2, 30, 4]);
}

#[test]
fn a_result_in_memory_takes_the_first_register() {
    type Function = extern "C" fn(u64, u64) -> MaybeUninit<Big<3>>;
    // SAFETY: as above; `record` returns the address of the result, which it leaves uninitialised.
    let function = unsafe { transmute::<extern "C" fn(), Function>(record) };
    let entry = entry_of(|| {
        let _ = function(1, 2);
    });
    let found = places(
        Class::Memory(24),
        &[Class::Unsigned(8), Class::Unsigned(8)],
        &entry,
    );
    assert_eq!(
        found,
        [
            (ArgSlot::Register(1), Some(1)),
            (ArgSlot::Register(2), Some(2))
        ]
    );
}

#[test]
fn floats_take_vector_registers_and_then_the_stack() {
    type Function = extern "C" fn(
        f64,
        f64,
        f64,
        f64,
        f64,
        f64,
        f64,
        f64,
        f64,
        u64,
        u64,
        u64,
        u64,
        u64,
        u64,
        u64,
    );
    // SAFETY: as above.
    let function = unsafe { transmute::<extern "C" fn(), Function>(record) };
    let entry = entry_of(|| function(0., 1., 2., 3., 4., 5., 6., 7., 8., 1, 2, 3, 4, 5, 6, 7));
    let mut classes = vec![Class::Float(8); 9];
    classes.extend([Class::Unsigned(8); 7]);
    let found = places(Class::Void, &classes, &entry);
    assert!(
        found[..8]
            .iter()
            .all(|place| *place == (ArgSlot::Unrecorded, None))
    );
    assert_eq!(found[8], (ArgSlot::Stack(0), Some(8.0_f64.to_bits())));
    let words: Vec<_> = found[9..].iter().map(|(_, word)| word.unwrap()).collect();
    assert_eq!(words, [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(found[15].0, ArgSlot::Stack(1));
}

#[test]
fn small_structs_are_split_between_register_files() {
    type Function = extern "C" fn(IntegerThenFloat, u64, FloatThenInteger, u64);
    // SAFETY: as above.
    let function = unsafe { transmute::<extern "C" fn(), Function>(record) };
    let (first, third) = (
        IntegerThenFloat {
            integer: 1,
            float: 0.5,
        },
        FloatThenInteger {
            float: 0.5,
            integer: 3,
        },
    );
    let entry = entry_of(|| function(first, 2, third, 4));
    let classes = [
        Class::Small(&[Eightbyte::Integer, Eightbyte::Sse]),
        Class::Unsigned(8),
        Class::Small(&[Eightbyte::Sse, Eightbyte::Integer]),
        Class::Unsigned(8),
    ];
    let found = places(Class::Void, &classes, &entry);
    assert_eq!(found[0], (ArgSlot::Register(0), Some(1)));
    assert_eq!(found[1], (ArgSlot::Register(1), Some(2)));
    assert_eq!(
        found[2],
        (ArgSlot::Unrecorded, None),
        "its first word is in a vector register"
    );
    assert_eq!(entry.registers[2], 3);
    assert_eq!(found[3], (ArgSlot::Register(3), Some(4)));
}
