//! Where a function is left: its return instructions, and jumps to other functions in their place (tail calls).
//!
//! A probe on a function's *return* replaces the return address on the stack. That is cheap, and right for the C
//! functions of an API, but a C++ exception that passes through such a frame ends the program, because the unwinder does
//! not know the kernel's trampoline. Probes on the instructions that leave the function change nothing that the program
//! can see. At each of them the stack pointer is that of the function's entry, by which the call is found; where it is
//! not, the probe does nothing. So a jump taken for a tail call by mistake is harmless unless the function has no
//! frame at all, and an exit that was overlooked makes a call that counts as lost.
//!
//! Compilers put no data among the instructions of a function, so they are decoded one after the other. Code for which
//! that is not true (hand-written assembly) is recognised by jumps into the middle of what was decoded, and refused: a
//! probe in the middle of an instruction would change it.

use std::{collections::BTreeSet, ops::Range};

use iced_x86::{
    Code as Opcode, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register,
};

use crate::plan::{self, CostClass, Unprobeable};

/// Functions larger than this are refused, bytes.
pub(super) const MAX_SIZE: u64 = 4 << 20;
/// How many instructions before an indirect jump are searched for where its target comes from.
const LOOK_BACK: usize = 16;

/// More than the two longest instructions, bytes.
const LONGEST: u64 = 32;

/// The code of a file, as far as it is needed.
pub trait Code {
    /// The bytes from `address` on: `size`, or as many as there are, which may be none.
    fn bytes(&self, address: u64, size: u64) -> Vec<u8>;
    /// Whether a function that can be called begins there.
    fn is_function(&self, address: u64) -> bool;
    /// The part of a function (`NAME.cold`) that holds this address.
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

/// An instruction by which a function is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Exit {
    /// Its address in the file's own address space.
    pub address: u64,
    /// What it is.
    pub kind: ExitKind,
}

/// What was found in a function's code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exits {
    /// Where it is left, in order of address. Not empty.
    pub exits: Vec<Exit>,
    /// Its instructions.
    pub instructions: usize,
}

/// Finds the exits of the function at `address` of `size` bytes.
///
/// # Errors
/// [`Unprobeable`] if its size is unknown, its code cannot be taken apart, or nothing in it can be probed.
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
                        if part.end.saturating_sub(part.start) <= MAX_SIZE {
                            parts.push(part);
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
            // What leaves it there counts as lost.
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

/// The instructions of a part.
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

/// Whether a jump to `target` is a call: a function begins there, or a stub that jumps on to one in another file.
fn is_callable(code: &impl Code, target: u64) -> bool {
    code.is_function(target) || is_stub(code, target)
}

/// Whether these are the instructions of a stub in the procedure linkage table.
fn is_stub(code: &impl Code, target: u64) -> bool {
    let bytes = code.bytes(target, LONGEST);
    let mut decoder = Decoder::with_ip(64, &bytes, target, DecoderOptions::NONE);
    let mut instruction = decoder.decode();
    if instruction.code() == Opcode::Endbr64 {
        instruction = decoder.decode();
    }
    instruction.code() == Opcode::Jmp_rm64 && instruction.is_ip_rel_memory_operand()
}

/// Whether an indirect jump goes to another function, and not to a case of a `switch`: those take their targets from
/// tables, with an index.
fn is_tail_call(jump: &Instruction, before: &[Instruction]) -> bool {
    match jump.op0_kind() {
        // A slot of a table of virtual functions, or of the global offset table.
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

/// What a hit of this exit costs.
///
/// # Errors
/// As [`plan::plan`].
pub(super) fn cost(code: &impl Code, exit: &Exit) -> Result<CostClass, Unprobeable> {
    plan::cost(&code.bytes(exit.address, LONGEST), exit.address)
}
