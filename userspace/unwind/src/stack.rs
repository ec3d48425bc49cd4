//! Unwinds a stack.

use std::collections::BTreeMap;

use gimli::{CfaRule, FrameDescriptionEntry, RegisterRule, UnwindContext, X86_64};

use crate::{
    expression::{self, Failure, Values},
    module::{Bytes, Module, Modules},
    registers::{Register, Registers},
};

/// A caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frame {
    /// Address at which the frame goes on: after its call, or the interrupted instruction.
    pub address: u64,
    /// Whether a signal interrupted the frame there, so that `address` is an instruction that has
    /// not been executed.
    pub is_interrupted: bool,
}

impl Frame {
    /// An address within the instruction that the frame executes: its call, or the interrupted
    /// instruction.
    #[must_use]
    pub const fn within(&self) -> u64 {
        if self.is_interrupted {
            self.address
        } else {
            self.address.saturating_sub(1)
        }
    }
}

/// Where a stack ends, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    /// At the first function of the thread.
    Complete,
    /// There are more frames than asked for.
    TooDeep,
    /// The memory that says who called is not known: the copy of the stack ends before.
    NotCopied,
    /// The caller's code is in no known file: it was made at run time, or the file is unknown.
    UnknownCode,
    /// The file with the caller's code has no rules for it.
    NoRules,
    /// The rules are damaged, or of a kind that no known compiler makes.
    UnsupportedRules,
    /// The rules lead back to where they started.
    Loop,
}

/// What a stack depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dependencies {
    /// Words of memory: address and value.
    pub memory: BTreeMap<u64, u64>,
    /// Registers, besides the stack pointer, with their values: one bit each, by [`Register`].
    pub registers: u8,
}

impl Dependencies {
    /// Whether the stack depends on the value that this register had.
    #[must_use]
    pub const fn has(&self, register: Register) -> bool {
        self.registers & 1 << register as u8 != 0
    }
}

/// A stack without what it depends on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stack {
    /// The callers of the function, the innermost first.
    pub frames: Vec<Frame>,
    /// What comes after the last of them.
    pub end: End,
}

/// An unwound stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unwound {
    /// The stack.
    pub stack: Stack,
    /// What it depends on, besides the stack pointer.
    pub depends_on: Dependencies,
}

/// Where a value came from.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// It was in the register at the entry.
    Entry(Register),
    /// It was in memory at this address.
    Memory(u64),
    /// It was computed of what is among the dependencies already.
    Computed,
}

/// A register in a frame.
#[derive(Clone, Copy, Debug)]
struct Known {
    value: u64,
    source: Source,
}

/// The state of the way from frame to frame.
struct Walk<'a, M> {
    memory: &'a mut M,
    registers: [Option<Known>; Register::ALL.len()],
    depends_on: Dependencies,
}

impl<M: FnMut(u64) -> Option<u64>> Walk<'_, M> {
    fn known(&self, register: Register) -> Option<Known> {
        self.registers.get(register as usize).copied().flatten()
    }

    /// The value of a register, on which the stack depends from now on.
    fn used(&mut self, register: Register) -> Option<u64> {
        let Known { value, source } = self.known(register)?;
        match source {
            Source::Entry(register) => self.depends_on.registers |= 1 << register as u8,
            Source::Memory(address) => {
                self.depends_on.memory.insert(address, value);
            }
            Source::Computed => {}
        }
        Some(value)
    }

    /// A word of memory on which the stack depends.
    fn read(&mut self, address: u64) -> Option<u64> {
        let value = (self.memory)(address)?;
        self.depends_on.memory.insert(address, value);
        Some(value)
    }

    /// A word of memory on which the stack does not depend yet.
    fn loaded(&mut self, address: u64) -> Option<Known> {
        let value = (self.memory)(address)?;
        let source = Source::Memory(address);
        Some(Known { value, source })
    }
}

impl<M: FnMut(u64) -> Option<u64>> Values for Walk<'_, M> {
    fn register(&mut self, register: gimli::Register) -> Option<u64> {
        self.used(Register::of_dwarf(register)?)
    }

    fn memory(&mut self, address: u64) -> Option<u64> {
        self.read(address)
    }
}

impl From<Failure> for End {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Unsupported => Self::UnsupportedRules,
            Failure::Unknown => Self::NotCopied,
        }
    }
}

impl Modules {
    /// The callers of a function at whose entry the registers are `registers`: at most `most`.
    /// `memory` returns the word at an address, or `None` if it is not known.
    pub fn unwind(
        &self,
        registers: &Registers,
        most: usize,
        mut memory: impl FnMut(u64) -> Option<u64>,
    ) -> Unwound {
        let entry = Register::ALL.map(|register| {
            let source = match register {
                Register::Rsp => Source::Computed,
                register => Source::Entry(register),
            };
            let value = registers.get(register);
            Some(Known { value, source })
        });
        let mut walk = Walk {
            memory: &mut memory,
            registers: entry,
            depends_on: Dependencies::default(),
        };
        let mut frames = Vec::new();
        let end = self.walk(&mut walk, most, &mut frames);
        Unwound {
            stack: Stack { frames, end },
            depends_on: walk.depends_on,
        }
    }

    fn walk<M: FnMut(u64) -> Option<u64>>(
        &self,
        walk: &mut Walk<'_, M>,
        most: usize,
        frames: &mut Vec<Frame>,
    ) -> End {
        let mut context = UnwindContext::new();
        let Some(entry) = walk.used(Register::Rsp) else {
            return End::NotCopied;
        };
        let Some(address) = walk.read(entry) else {
            return End::NotCopied;
        };
        set(walk, Register::Rsp, computed(entry.wrapping_add(8)));
        let mut frame = Frame {
            address,
            is_interrupted: false,
        };
        loop {
            if frame.address == 0 {
                return End::Complete;
            }
            if frames.len() >= most {
                return End::TooDeep;
            }
            frames.push(frame);
            match self.caller(walk, frame, &mut context) {
                Ok(caller) => frame = caller,
                Err(end) => return end,
            }
        }
    }

    /// The frame that called `frame`.
    fn caller<M: FnMut(u64) -> Option<u64>>(
        &self,
        walk: &mut Walk<'_, M>,
        frame: Frame,
        context: &mut UnwindContext<usize>,
    ) -> Result<Frame, End> {
        let (module, bias) = self.at(frame.within()).ok_or(End::UnknownCode)?;
        let address = frame.within().wrapping_sub(bias);
        let rules = module.rules(address).map_err(|error| match error {
            gimli::Error::NoUnwindInfoForAddress => End::NoRules,
            _ => End::UnsupportedRules,
        })?;
        step(walk, module, &rules, address, context)
    }
}

fn computed(value: u64) -> Option<Known> {
    let source = Source::Computed;
    Some(Known { value, source })
}

fn set<M>(walk: &mut Walk<'_, M>, register: Register, known: Option<Known>) {
    if let Some(place) = walk.registers.get_mut(register as usize) {
        *place = known;
    }
}

/// Goes from a frame to its caller by the frame's rules. `address` is as the file numbers
/// addresses.
fn step<M: FnMut(u64) -> Option<u64>>(
    walk: &mut Walk<'_, M>,
    module: &Module,
    rules: &FrameDescriptionEntry<Bytes>,
    address: u64,
    context: &mut UnwindContext<usize>,
) -> Result<Frame, End> {
    let is_signal = rules.is_signal_trampoline();
    let row = rules
        .unwind_info_for_address(&module.frames, module.bases(), context, address)
        .map_err(|_| End::UnsupportedRules)?;
    let before = walk.known(Register::Rsp).map(|known| known.value);
    let cfa = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => {
            let base = Register::of_dwarf(*register).ok_or(End::UnsupportedRules)?;
            let base = walk.used(base).ok_or(End::NotCopied)?;
            base.wrapping_add_signed(*offset)
        }
        CfaRule::Expression(rule) => expression::evaluate(rule, &module.frames, None, walk)?,
    };
    // A caller's frame is further up, except on the other side of a signal's own stack.
    if !is_signal && before.is_none_or(|before| cfa <= before) {
        return Err(End::Loop);
    }
    let find = |walk: &mut Walk<'_, M>, rule: Option<&RegisterRule<usize>>| match rule {
        None | Some(RegisterRule::Undefined) => Ok(None),
        Some(RegisterRule::Offset(offset)) => Ok(walk.loaded(cfa.wrapping_add_signed(*offset))),
        Some(RegisterRule::ValOffset(offset)) => Ok(computed(cfa.wrapping_add_signed(*offset))),
        Some(RegisterRule::Register(other)) => {
            Ok(Register::of_dwarf(*other).and_then(|other| walk.known(other)))
        }
        Some(RegisterRule::Expression(rule)) => {
            let at = expression::evaluate(rule, &module.frames, Some(cfa), walk)?;
            Ok(walk.loaded(at))
        }
        Some(RegisterRule::ValExpression(rule)) => {
            expression::evaluate(rule, &module.frames, Some(cfa), walk).map(computed)
        }
        Some(_) => Err(Failure::Unsupported),
    };
    // The return address first: it ends the stack, and its rule uses the frame's own registers.
    let address = match row.register(X86_64::RA) {
        None | Some(RegisterRule::Undefined) => return Err(End::Complete),
        rule => find(walk, rule.as_ref())?.ok_or(End::NotCopied)?,
    };
    if let Source::Memory(at) = address.source {
        walk.depends_on.memory.insert(at, address.value);
    }
    let mut registers = [None; Register::ALL.len()];
    for (register, place) in Register::ALL.into_iter().zip(&mut registers) {
        *place = match row.register(register.dwarf()) {
            // Functions preserve these, unless their rules say how.
            None | Some(RegisterRule::SameValue) if register != Register::Rsp => {
                walk.known(register)
            }
            None | Some(RegisterRule::SameValue) => computed(cfa),
            rule => find(walk, rule.as_ref())?,
        };
    }
    walk.registers = registers;
    Ok(Frame {
        address: address.value,
        is_interrupted: is_signal,
    })
}
