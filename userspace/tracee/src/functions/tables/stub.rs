//! Recognises stubs: exported functions that only jump to what a table has for them.
//!
//! What a stub does is followed instruction by instruction. It may save its arguments, call one
//! function for the address of the table, and restore its arguments. Anything else makes it no
//! stub: the function behind would then be called with other arguments than the stub.

use std::collections::HashMap;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::scan::{By, PRESERVED};

/// Maximum number of instructions of a stub. HIP's with the most parameters have about 50.
const MAX_LENGTH: usize = 96;

/// Registers with arguments, in the order of the calling convention.
const ARGUMENTS: [Register; 6] = [
    Register::RDI,
    Register::RSI,
    Register::RDX,
    Register::RCX,
    Register::R8,
    Register::R9,
];

/// Where values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Place {
    /// A register; of its parts, the full one.
    Register(Register),
    /// A word of the stack, at this distance from the return address, bytes.
    Stack(i64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    /// What was there when the stub was called.
    Initial(Place),
    /// What may be the address of a table.
    Table(By),
    /// What was loaded from a table, at this offset.
    Entry(By, u64),
    Unknown,
}

/// What a stub has done so far.
#[derive(Default)]
struct Stub {
    /// What differs from the begin.
    values: HashMap<Place, Value>,
    /// Distance of the stack pointer from the return address, bytes. Not above 0.
    depth: i64,
    has_called: bool,
}

/// The table through which the stub that `code` begins with jumps, and the offset of the entry;
/// `None` if it is no stub. `address` is that of `code`.
pub(super) fn target(code: &[u8], address: u64) -> Option<(By, u64)> {
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let mut stub = Stub::default();
    for instruction in decoder.iter().take(MAX_LENGTH) {
        match instruction.flow_control() {
            FlowControl::Next => stub.step(&instruction)?,
            FlowControl::Call if !stub.has_called => stub.call(instruction.near_branch_target()),
            FlowControl::IndirectBranch => return stub.jump(&instruction),
            _ => return None,
        }
    }
    None
}

impl Stub {
    /// Follows an instruction; `None` if stubs have no such one.
    fn step(&mut self, instruction: &Instruction) -> Option<()> {
        let immediate = || i64::try_from(instruction.try_immediate(1).ok()?).ok();
        match instruction.mnemonic() {
            Mnemonic::Endbr64 | Mnemonic::Nop => {}
            Mnemonic::Push => {
                let value = self.source(instruction, 0)?;
                self.depth = self.depth.checked_sub(8)?;
                self.values.insert(Place::Stack(self.depth), value);
            }
            Mnemonic::Pop => {
                let value = self.value(Place::Stack(self.depth));
                self.depth = self.depth.checked_add(8)?;
                self.values.insert(self.place(instruction, 0)?, value);
            }
            Mnemonic::Sub if instruction.op0_register() == Register::RSP => {
                self.depth = self.depth.checked_sub(immediate()?)?;
            }
            Mnemonic::Add if instruction.op0_register() == Register::RSP => {
                self.depth = self.depth.checked_add(immediate()?)?;
            }
            Mnemonic::Mov
            | Mnemonic::Movzx
            | Mnemonic::Movss
            | Mnemonic::Movsd
            | Mnemonic::Movaps
            | Mnemonic::Movups => {
                let value = self.source(instruction, 1)?;
                self.values.insert(self.place(instruction, 0)?, value);
            }
            _ => return None,
        }
        Some(())
    }

    /// A call of the function that returns the address of the table.
    fn call(&mut self, function: u64) {
        self.has_called = true;
        let registers = (0..16).flat_map(|at| [Register::RAX + at, Register::XMM0 + at]);
        for register in registers.filter(|one| *one != Register::RSP && !PRESERVED.contains(one)) {
            let place = Place::Register(register.full_register());
            self.values.insert(place, Value::Unknown);
        }
        let result = Value::Table(By::Getter(function));
        self.values.insert(Place::Register(Register::RAX), result);
    }

    /// Where a jump leads, if it leaves everything to the function behind as the stub got it.
    fn jump(&self, instruction: &Instruction) -> Option<(By, u64)> {
        let Value::Entry(by, offset) = self.source(instruction, 0)? else {
            return None;
        };
        let is_kept = |(place, value): (&Place, &Value)| match place {
            // What the stub has not restored is no argument: the function that it called may have
            // changed it.
            Place::Register(register) if ARGUMENTS.contains(register) => {
                [Value::Initial(*place), Value::Unknown].contains(value)
            }
            Place::Register(register) if register.is_vector_register() => {
                [Value::Initial(*place), Value::Unknown].contains(value)
            }
            Place::Register(register) if PRESERVED.contains(register) => {
                *value == Value::Initial(*place)
            }
            Place::Register(_) => true,
            Place::Stack(at) => *at < 0 || *value == Value::Initial(*place),
        };
        (self.depth == 0 && self.values.iter().all(is_kept)).then_some((by, offset))
    }

    fn value(&self, place: Place) -> Value {
        let known = self.values.get(&place).copied();
        known.unwrap_or(Value::Initial(place))
    }

    /// The register or word of the stack that an operand is.
    fn place(&self, instruction: &Instruction, operand: u32) -> Option<Place> {
        match instruction.op_kind(operand) {
            OpKind::Register => {
                let register = instruction.op_register(operand);
                let full = if register.is_gpr() {
                    register.full_register()
                } else {
                    register
                };
                (full != Register::RSP).then_some(Place::Register(full))
            }
            OpKind::Memory
                if instruction.memory_base() == Register::RSP
                    && instruction.memory_index() == Register::None =>
            {
                let at = instruction.memory_displacement64() as i64;
                Some(Place::Stack(self.depth.checked_add(at)?))
            }
            _ => None,
        }
    }

    /// The value of an operand.
    fn source(&self, instruction: &Instruction, operand: u32) -> Option<Value> {
        if let Some(place) = self.place(instruction, operand) {
            return Some(self.value(place));
        }
        if instruction.op_kind(operand) != OpKind::Memory {
            return None;
        }
        if instruction.is_ip_rel_memory_operand() {
            let variable = instruction.ip_rel_memory_address();
            return Some(Value::Table(By::Variable(variable)));
        }
        let base = self.value(Place::Register(instruction.memory_base()));
        match base {
            Value::Table(by) if instruction.memory_index() == Register::None => {
                Some(Value::Entry(by, instruction.memory_displacement64()))
            }
            _ => None,
        }
    }
}
