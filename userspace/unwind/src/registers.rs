//! Registers of x86-64, as far as callers find them unchanged when a call returns.

use gimli::X86_64;

/// A register that a function preserves for its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Register {
    /// rbx
    Rbx,
    /// rbp
    Rbp,
    /// The stack pointer.
    Rsp,
    /// r12
    R12,
    /// r13
    R13,
    /// r14
    R14,
    /// r15
    R15,
}

impl Register {
    /// All of them, in numeric order.
    pub const ALL: [Self; 7] = [
        Self::Rbx,
        Self::Rbp,
        Self::Rsp,
        Self::R12,
        Self::R13,
        Self::R14,
        Self::R15,
    ];

    /// Its number in DWARF's tables.
    pub(crate) const fn dwarf(self) -> gimli::Register {
        match self {
            Self::Rbx => X86_64::RBX,
            Self::Rbp => X86_64::RBP,
            Self::Rsp => X86_64::RSP,
            Self::R12 => X86_64::R12,
            Self::R13 => X86_64::R13,
            Self::R14 => X86_64::R14,
            Self::R15 => X86_64::R15,
        }
    }

    /// The register with this number in DWARF's tables; `None` for others, which functions may
    /// change.
    pub(crate) fn of_dwarf(number: gimli::Register) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.dwarf() == number)
    }
}

/// Values of registers at the entry of a function, before its first instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers(pub [u64; Register::ALL.len()]);

impl Registers {
    /// The value of a register.
    #[must_use]
    pub fn get(&self, register: Register) -> u64 {
        self.0.get(register as usize).copied().unwrap_or_default()
    }
}
