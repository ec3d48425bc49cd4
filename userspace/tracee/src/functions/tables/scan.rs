//! A pass over the code of a library that notes where addresses of code are stored.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::Range,
};

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory,
    InstructionInfoOptions, Mnemonic, OpAccess, OpKind, Register,
};

use super::{Sections, Series};

/// Size of an entry of a table, bytes.
pub(super) const ENTRY: u64 = 8;

/// Minimum number of functions of a table.
pub(super) const LEAST: usize = 8;

/// An address of code in a register, and the address of the instruction that loaded it.
#[derive(Clone, Copy, Debug)]
struct Loaded {
    value: u64,
    since: u64,
}

/// To what a store is relative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Base {
    /// Nothing.
    Absolute,
    /// A value that was in a register. Copies of it have the same number.
    Value(u32),
}

/// A store of an address of code.
#[derive(Clone, Copy, Debug)]
pub(super) struct Store {
    pub(super) value: u64,
    /// The instruction that loaded the address.
    since: u64,
    /// The instruction that stores it.
    at: u64,
}

/// A pass over the code that notes where addresses of code are stored.
pub(super) struct Scan<'a> {
    /// Words that have an address when the file is mapped at 0.
    words: HashMap<u64, u64>,
    code: Range<u64>,
    information: InstructionInfoFactory,
    registers: [Option<Loaded>; 16],
    /// A number for the value that each register has, known or not.
    values: [u32; 16],
    /// Number of values so far.
    count: u32,
    vectors: [[Option<Loaded>; 2]; 16],
    /// Number of ends of code that were passed: code behind one is not reached from before it.
    ends: u32,
    /// Where jumps lead.
    pub(super) targets: BTreeSet<u64>,
    /// The variable from which each register was loaded.
    variables: [Option<u64>; 16],
    /// Jumps through tables, as stubs have them: their number by variable with the table's address
    /// and offset in the table.
    pub(super) through: BTreeMap<(u64, u64), usize>,
    /// Begins of exported functions.
    exported: &'a BTreeSet<u64>,
    /// Those of them that the code calls, or whose address it loads.
    loaded: BTreeSet<u64>,
    stores: HashMap<(u32, Base), BTreeMap<u64, Option<Store>>>,
}

impl<'a> Scan<'a> {
    pub(super) fn new(
        sections: &Sections<'_>,
        code: Range<u64>,
        exported: &'a BTreeSet<u64>,
    ) -> Self {
        Self {
            words: sections.addresses(&code),
            code,
            information: InstructionInfoFactory::new(),
            registers: [None; 16],
            values: std::array::from_fn(|at| at as u32),
            count: 16,
            vectors: [[None; 2]; 16],
            ends: 0,
            targets: BTreeSet::new(),
            variables: [None; 16],
            through: BTreeMap::new(),
            exported,
            loaded: BTreeSet::new(),
            stores: HashMap::new(),
        }
    }

    pub(super) fn run(&mut self, text: &[u8], begin: u64) {
        let mut decoder = Decoder::with_ip(64, text, begin, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            self.step(&instruction);
        }
    }

    /// Exported functions that the library itself may call by their addresses.
    pub(super) fn used(&self) -> impl Iterator<Item = u64> {
        let words = self.words.values();
        let found = self.loaded.iter().chain(&self.targets).chain(words);
        found
            .copied()
            .filter(|address| self.exported.contains(address))
    }

    fn note(&mut self, address: u64) {
        if self.exported.contains(&address) {
            self.loaded.insert(address);
        }
    }

    /// What was stored, without what other code could have jumped into.
    pub(super) fn series(&self) -> Vec<Series> {
        let jumped_into = |store: &Store| {
            let mut between = self.targets.range(store.since.saturating_add(1)..=store.at);
            between.next().is_some()
        };
        let stores = self.stores.values().filter(|found| found.len() >= LEAST);
        stores
            .map(|found| {
                let certain = found.iter().filter_map(|(offset, store)| {
                    let store = store.filter(|store| !jumped_into(store))?;
                    Some((*offset, store))
                });
                Series {
                    stores: certain.collect(),
                }
            })
            .collect()
    }

    fn step(&mut self, instruction: &Instruction) {
        match instruction.flow_control() {
            FlowControl::Next => self.data(instruction),
            FlowControl::Call | FlowControl::IndirectCall => {
                // Of an indirect call: 0.
                self.note(instruction.near_branch_target());
                self.called();
            }
            FlowControl::ConditionalBranch => {
                self.targets.insert(instruction.near_branch_target());
            }
            other => {
                match other {
                    FlowControl::UnconditionalBranch => {
                        self.targets.insert(instruction.near_branch_target());
                    }
                    FlowControl::IndirectBranch => self.jumped(instruction),
                    _ => {}
                }
                self.ends += 1;
                self.registers = [None; 16];
                self.variables = [None; 16];
                self.vectors = [[None; 2]; 16];
            }
        }
    }

    /// Notes a jump through a table.
    fn jumped(&mut self, instruction: &Instruction) {
        if let Place::General(base) = Place::of_register(instruction.memory_base())
            && let Some(variable) = self.variables.get(base).copied().flatten()
        {
            let place = (variable, instruction.memory_displacement64());
            *self.through.entry(place).or_default() += 1;
        }
    }

    /// Forgets the registers that functions need not preserve.
    fn called(&mut self) {
        const PRESERVED: [Register; 6] = [
            Register::RBX,
            Register::RBP,
            Register::R12,
            Register::R13,
            Register::R14,
            Register::R15,
        ];
        for at in 0..self.registers.len() {
            if !PRESERVED.iter().any(|register| register.number() == at) {
                self.write(at, None);
            }
        }
        self.vectors = [[None; 2]; 16];
    }

    fn data(&mut self, instruction: &Instruction) {
        let destination = Place::of(instruction, 0);
        let source = Place::of(instruction, 1);
        let low = |scan: &Self| scan.loaded(instruction, source, 0);
        let high = |scan: &Self| scan.loaded(instruction, source, 1);
        let new = match (instruction.mnemonic(), destination, source) {
            (Mnemonic::Lea, Place::General(_), Place::Memory) => {
                let address = instruction
                    .is_ip_rel_memory_operand()
                    .then(|| instruction.ip_rel_memory_address());
                address.into_iter().for_each(|at| self.note(at));
                [address.and_then(|at| self.code_at(at, instruction)), None]
            }
            (Mnemonic::Mov, Place::General(_), _) => [low(self), None],
            (Mnemonic::Movq, Place::Vector(_), _) => [low(self), None],
            (
                Mnemonic::Movaps | Mnemonic::Movups | Mnemonic::Movdqa | Mnemonic::Movdqu,
                Place::Vector(_),
                _,
            ) => [low(self), high(self)],
            (Mnemonic::Movhps | Mnemonic::Punpcklqdq | Mnemonic::Movlhps, Place::Vector(at), _)
            | (Mnemonic::Pinsrq, Place::Vector(at), _) => [self.lane(at, 0), low(self)],
            (
                Mnemonic::Mov
                | Mnemonic::Movq
                | Mnemonic::Movaps
                | Mnemonic::Movups
                | Mnemonic::Movdqa
                | Mnemonic::Movdqu
                | Mnemonic::Movhps,
                Place::Memory,
                _,
            ) => {
                self.store(instruction, source);
                return;
            }
            _ => return self.overwritten(instruction),
        };
        match destination {
            Place::General(at) => {
                let same = match source {
                    Place::General(from) => self.values.get(from).copied(),
                    _ => None,
                };
                self.write(at, new.first().copied().flatten());
                let is_load = instruction.mnemonic() == Mnemonic::Mov
                    && source == Place::Memory
                    && instruction.is_ip_rel_memory_operand();
                if let Some(variable) = self.variables.get_mut(at).filter(|_| is_load) {
                    *variable = Some(instruction.ip_rel_memory_address());
                }
                if let (Some(same), Some(number)) = (same, self.values.get_mut(at)) {
                    *number = same;
                }
            }
            Place::Vector(at) => {
                if let Some(vector) = self.vectors.get_mut(at) {
                    *vector = new;
                }
            }
            Place::Memory | Place::Other => {}
        }
    }

    /// Gives a register a new value.
    fn write(&mut self, register: usize, value: Option<Loaded>) {
        if let Some(place) = self.registers.get_mut(register) {
            *place = value;
        }
        if let Some(variable) = self.variables.get_mut(register) {
            *variable = None;
        }
        if let Some(number) = self.values.get_mut(register) {
            *number = self.count;
            self.count += 1;
        }
    }

    /// Forgets what an instruction overwrites with something unknown.
    fn overwritten(&mut self, instruction: &Instruction) {
        let options = InstructionInfoOptions::NO_MEMORY_USAGE;
        let used = self.information.info_options(instruction, options);
        let changes = |access| !matches!(access, OpAccess::Read | OpAccess::CondRead);
        let changed: Vec<Register> = used
            .used_registers()
            .iter()
            .filter(|register| changes(register.access()))
            .map(iced_x86::UsedRegister::register)
            .collect();
        for register in changed {
            match Place::of_register(register) {
                Place::General(at) => self.write(at, None),
                Place::Vector(at) => {
                    if let Some(vector) = self.vectors.get_mut(at) {
                        *vector = [None; 2];
                    }
                }
                Place::Memory | Place::Other => {}
            }
        }
    }

    fn lane(&self, vector: usize, lane: usize) -> Option<Loaded> {
        self.vectors.get(vector)?.get(lane).copied().flatten()
    }

    /// The address that is at a lane of a source.
    fn loaded(&self, instruction: &Instruction, source: Place, lane: usize) -> Option<Loaded> {
        match source {
            Place::General(at) if lane == 0 => self.registers.get(at).copied().flatten(),
            Place::Vector(at) => self.lane(at, lane),
            Place::Memory if instruction.is_ip_rel_memory_operand() => {
                let at = instruction.ip_rel_memory_address();
                let word = self.words.get(&at.wrapping_add(ENTRY * lane as u64))?;
                self.code_at(*word, instruction)
            }
            _ => None,
        }
    }

    fn code_at(&self, value: u64, instruction: &Instruction) -> Option<Loaded> {
        self.code.contains(&value).then(|| Loaded {
            value,
            since: instruction.ip(),
        })
    }

    /// Notes what an instruction stores.
    fn store(&mut self, instruction: &Instruction, source: Place) {
        let (base, offset) = if instruction.is_ip_rel_memory_operand() {
            (Base::Absolute, instruction.ip_rel_memory_address())
        } else {
            let Place::General(base) = Place::of_register(instruction.memory_base()) else {
                return;
            };
            if instruction.memory_index() != Register::None {
                return;
            }
            let Some(value) = self.values.get(base).copied() else {
                return;
            };
            (Base::Value(value), instruction.memory_displacement64())
        };
        let lanes: &[usize] = match (instruction.mnemonic(), source) {
            (Mnemonic::Movhps, _) => &[1],
            (Mnemonic::Mov | Mnemonic::Movq, _) => &[0],
            (_, Place::Vector(_)) => &[0, 1],
            _ => &[],
        };
        for (entry, lane) in (0..).zip(lanes) {
            let Some(Loaded { value, since }) = self.loaded(instruction, source, *lane) else {
                continue;
            };
            let at = instruction.ip();
            let store = Store { value, since, at };
            let found = self.stores.entry((self.ends, base)).or_default();
            found
                .entry(offset.wrapping_add(ENTRY * entry))
                // What is stored last cannot be known without following the code.
                .and_modify(|known| *known = known.filter(|known| known.value == value))
                .or_insert(Some(store));
        }
    }
}

/// What an operand is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// A general register, all 64 bits.
    General(usize),
    /// A vector register.
    Vector(usize),
    Memory,
    Other,
}

impl Place {
    fn of(instruction: &Instruction, operand: u32) -> Self {
        if operand >= instruction.op_count() {
            return Self::Other;
        }
        match instruction.op_kind(operand) {
            OpKind::Memory => Self::Memory,
            OpKind::Register => {
                let register = instruction.op_register(operand);
                // A part of a register is no address.
                if register.is_gpr() && !register.is_gpr64() {
                    Self::Other
                } else {
                    Self::of_register(register)
                }
            }
            _ => Self::Other,
        }
    }

    fn of_register(register: Register) -> Self {
        if register.is_gpr() {
            Self::General(register.full_register().number())
        } else if register.is_vector_register() {
            Self::Vector(register.number())
        } else {
            Self::Other
        }
    }
}
