//! Finds the instructions that leave a function: returns, and jumps to other functions in place of
//! a return (tail calls).
//!
//! A probe on a function's *return* replaces the return address on the stack. That is cheap, but an
//! exception that passes through such a frame ends the program, because the unwinder does not know
//! the kernel's trampoline (decision 22). Probes on the instructions that leave the function change
//! nothing that the program can see. At each of them
//! the stack pointer equals that at the function's entry, which identifies the call; where it does
//! not, the probe does nothing. So a jump mistaken for a tail call is harmless unless the function
//! has no frame at all. If an exit was overlooked, the call counts as lost.
//!
//! Compilers put no data among the instructions of a function, so they are decoded linearly. Code
//! for which this does not hold (hand-written assembly) is recognised by jumps into the middle of a
//! decoded instruction, and refused: a probe in the middle of an instruction would change it.

use std::{collections::BTreeSet, ops::Range};

use iced_x86::{
    Code as Opcode, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register,
};

use crate::plan::{self, CostClass, Unprobeable};

/// Maximum size of a function in bytes, with its parts elsewhere; larger ones are refused.
pub(super) const MAX_SIZE: u64 = 4 << 20;
/// Maximum number of a function's parts.
const MAX_PARTS: usize = 64;
/// How many instructions before an indirect jump are searched for the origin of its target.
const LOOK_BACK: usize = 16;

/// Upper limit for the length of two instructions, bytes.
const LONGEST: u64 = 32;

/// Access to the code of a file.
pub trait Code {
    /// Up to `size` bytes from `address` on: fewer, or none, if the code ends earlier.
    fn bytes(&self, address: u64, size: u64) -> Vec<u8>;
    /// Whether a callable function begins at `address`.
    fn is_function(&self, address: u64) -> bool;
    /// The cold part of a function (`NAME.cold`) that contains this address.
    fn cold_part(&self, address: u64) -> Option<Range<u64>>;
}

/// How an instruction leaves the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ExitKind {
    /// `ret`: the return register holds the result.
    Return,
    /// A jump to another function, which returns in place of this one.
    TailCall,
}

/// An instruction that leaves a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Exit {
    /// Its address in the file's own address space.
    pub address: u64,
    /// Kind of the exit.
    pub kind: ExitKind,
}

/// Exits of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exits {
    /// The exits, in order of address. Not empty.
    pub exits: Vec<Exit>,
    /// Number of instructions.
    pub instructions: usize,
}

/// Finds the exits of the function at `address` with `size` bytes.
///
/// # Errors
///
/// [`Unprobeable`] if the size is unknown, the code cannot be decoded, or an exit cannot be probed.
pub fn find_exits(code: &impl Code, address: u64, size: u64) -> Result<Exits, Unprobeable> {
    if size == 0 || size > MAX_SIZE {
        return Err(Unprobeable::UnknownSize);
    }
    let end = address.checked_add(size).ok_or(Unprobeable::NotCode)?;
    let mut parts: Vec<_> = std::iter::once(address..end).collect();
    let mut found = BTreeSet::new();
    let mut boundaries = BTreeSet::new();
    let mut targets = BTreeSet::new();
    let mut done = 0;
    while let Some(part) = parts.get(done).cloned() {
        done += 1;
        let instructions = decode(code, &part)?;
        for (index, instruction) in instructions.iter().enumerate() {
            boundaries.insert(instruction.ip());
            let inside = |target: u64| parts.iter().any(|part| part.contains(&target));
            match instruction.flow_control() {
                FlowControl::Return => {
                    found.insert(Exit {
                        address: instruction.ip(),
                        kind: ExitKind::Return,
                    });
                }
                FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => {
                    let target = instruction.near_branch_target();
                    let is_jump = instruction.flow_control() == FlowControl::UnconditionalBranch;
                    if is_jump && !inside(target) && is_callable(code, target) {
                        found.insert(Exit {
                            address: instruction.ip(),
                            kind: ExitKind::TailCall,
                        });
                    } else if inside(target) {
                        targets.insert(target);
                    } else if let Some(part) = code.cold_part(target) {
                        targets.insert(target);
                        parts.push(part);
                        let size = |part: &Range<u64>| part.end.saturating_sub(part.start);
                        let all = parts.iter().map(size).fold(0, u64::saturating_add);
                        if parts.len() > MAX_PARTS || all > MAX_SIZE {
                            return Err(Unprobeable::UnknownSize);
                        }
                    }
                }
                FlowControl::IndirectBranch => {
                    let before = instructions.get(index.saturating_sub(LOOK_BACK)..index);
                    if is_tail_call(instruction, before.unwrap_or_default()) {
                        found.insert(Exit {
                            address: instruction.ip(),
                            kind: ExitKind::TailCall,
                        });
                    }
                }
                _ => {}
            }
        }
    }
    if targets.contains(&address) {
        return Err(Unprobeable::Loop);
    }
    if !targets.is_subset(&boundaries) {
        return Err(Unprobeable::Undecodable);
    }
    let mut exits = Vec::with_capacity(found.len());
    for exit in found {
        match cost(code, &exit) {
            Ok(_) => exits.push(exit),
            // Calls that leave the function there count as lost.
            Err(_) if exit.kind == ExitKind::TailCall => {}
            Err(reason) => return Err(reason),
        }
    }
    if exits.is_empty() {
        return Err(Unprobeable::NoReturn);
    }
    Ok(Exits {
        exits,
        instructions: boundaries.len(),
    })
}

/// Decodes the instructions of a part.
fn decode(code: &impl Code, part: &Range<u64>) -> Result<Vec<Instruction>, Unprobeable> {
    let size = part.end.saturating_sub(part.start);
    let bytes = code.bytes(part.start, size);
    if bytes.len() as u64 != size {
        return Err(Unprobeable::NotCode);
    }
    let mut decoder = Decoder::with_ip(64, &bytes, part.start, DecoderOptions::NONE);
    let mut instructions = Vec::new();
    while decoder.can_decode() {
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return Err(Unprobeable::Undecodable);
        }
        instructions.push(instruction);
    }
    Ok(instructions)
}

/// Whether a jump to `target` is a tail call: a function begins there, or a stub that jumps to a
/// function in another file.
fn is_callable(code: &impl Code, target: u64) -> bool {
    code.is_function(target) || is_stub(code, target)
}

/// Whether a stub of the procedure linkage table begins at `target`.
fn is_stub(code: &impl Code, target: u64) -> bool {
    let bytes = code.bytes(target, LONGEST);
    let mut decoder = Decoder::with_ip(64, &bytes, target, DecoderOptions::NONE);
    let mut instruction = decoder.decode();
    if instruction.code() == Opcode::Endbr64 {
        instruction = decoder.decode();
    }
    instruction.code() == Opcode::Jmp_rm64 && instruction.is_ip_rel_memory_operand()
}

/// Whether an indirect jump goes to another function, and not to a case of a `switch`. The latter
/// take their targets from tables, with an index register.
fn is_tail_call(jump: &Instruction, before: &[Instruction]) -> bool {
    match jump.op0_kind() {
        // An entry of a virtual function table or of the global offset table.
        OpKind::Memory => jump.memory_index() == Register::None,
        OpKind::Register => {
            let register = jump.op0_register().full_register();
            let from = before.iter().rev().find(|instruction| {
                instruction.op_count() > 0
                    && instruction.op0_kind() == OpKind::Register
                    && instruction.op0_register().full_register() == register
                    && !matches!(
                        instruction.mnemonic(),
                        Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Push
                    )
            });
            from.is_some_and(|from| {
                from.mnemonic() == Mnemonic::Mov
                    && (from.op1_kind() != OpKind::Memory || from.memory_index() == Register::None)
            })
        }
        _ => false,
    }
}

/// Cost of a hit of this exit.
///
/// # Errors
///
/// As [`plan::plan`].
pub(super) fn cost(code: &impl Code, exit: &Exit) -> Result<CostClass, Unprobeable> {
    plan::cost(&code.bytes(exit.address, LONGEST), exit.address)
}
