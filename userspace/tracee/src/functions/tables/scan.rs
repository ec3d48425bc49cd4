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

/// General registers that functions preserve, apart from the stack pointer.
pub(super) const PRESERVED: [Register; 6] = [
    Register::RBX,
    Register::RBP,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
];

/// Minimum number of functions of a table.
pub(super) const LEAST: usize = 8;

/// An address of code in a register, and the address of the instruction that loaded it.
#[derive(Clone, Copy, Debug)]
struct Loaded {
    value: u64,
    since: u64,
}

/// By what a stub finds the address of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum By {
    /// A variable at this address.
    Variable(u64),
    /// A function at this address, which returns it.
    Getter(u64),
}

/// What is known of the value of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// It may be the address of a table.
    Table(By),
    /// It was loaded from a table, at this offset.
    Entry(By, u64),
}

/// To what a store is relative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Base {
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
pub(super) struct Scan {
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
    targets: BTreeSet<u64>,
    /// How often each function is called by its address.
    calls: HashMap<u64, u32>,
    /// How often the code loads each address of code.
    leas: HashMap<u64, u32>,
    /// How many words have each address of code.
    pointed: HashMap<u64, u32>,
    origins: [Option<Origin>; 16],
    /// Jumps through tables, as stubs have them: their number by table and offset in the table.
    pub(super) through: BTreeMap<(By, u64), u32>,
    /// Calls through tables, in the same way.
    pub(super) called_through: BTreeMap<(By, u64), u32>,
    stores: HashMap<(u32, Base), BTreeMap<u64, Option<Store>>>,
}

impl Scan {
    /// Passes over the code of a library, `text`, which is at `code`.
    pub(super) fn of(sections: &Sections<'_>, text: &[u8], code: Range<u64>) -> Self {
        let mut decoder = Decoder::with_ip(64, text, code.start, DecoderOptions::NONE);
        let words = sections.addresses(&code);
        let mut pointed = HashMap::new();
        for address in words.values() {
            *pointed.entry(*address).or_default() += 1;
        }
        let mut scan = Self {
            words,
            pointed,
            code,
            information: InstructionInfoFactory::new(),
            registers: [None; 16],
            values: std::array::from_fn(|at| at as u32),
            count: 16,
            vectors: [[None; 2]; 16],
            ends: 0,
            targets: BTreeSet::new(),
            origins: [None; 16],
            through: BTreeMap::new(),
            called_through: BTreeMap::new(),
            calls: HashMap::new(),
            leas: HashMap::new(),
            stores: HashMap::new(),
        };
        let mut instruction = Instruction::default();
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            scan.step(&instruction);
        }
        scan
    }

    /// How often the code and the data refer to an address of code, other than by jumps and calls.
    fn loads(&self, address: u64) -> u32 {
        let by_code = self.leas.get(&address).copied().unwrap_or_default();
        let by_words = self.pointed.get(&address).copied().unwrap_or_default();
        by_code.saturating_add(by_words)
    }

    /// Whether the library jumps to an address.
    pub(super) fn jumps_to(&self, address: u64) -> bool {
        self.targets.contains(&address)
    }

    /// Whether the library itself may call the function at an address, by that address.
    pub(super) fn uses(&self, function: u64) -> bool {
        self.jumps_to(function) || self.calls.contains_key(&function) || self.loads(function) > 0
    }

    /// Whether only one thing refers to a function: the code that fills a table with it.
    pub(super) fn is_only_in_a_table(&self, function: u64) -> bool {
        let is_called = self.calls.contains_key(&function);
        !self.jumps_to(function) && !is_called && self.loads(function) == 1
    }

    /// Whether it is known which entry of a table each of its users calls.
    pub(super) fn are_users_known(&self, by: By) -> bool {
        let By::Getter(getter) = by else {
            return false;
        };
        let uses = self.through.iter().chain(&self.called_through);
        let known: u32 = uses
            .filter(|((one, _), _)| *one == by)
            .map(|(_, count)| count)
            .sum();
        !self.jumps_to(getter) && self.loads(getter) == 0 && self.calls.get(&getter) == Some(&known)
    }

    /// What was stored, without what other code could have jumped into.
    pub(super) fn series(&self) -> Vec<Series> {
        let jumped_into = |store: &Store| {
            let mut between = self.targets.range(store.since.saturating_add(1)..=store.at);
            between.next().is_some()
        };
        let stores = self.stores.iter().filter(|(_, found)| found.len() >= LEAST);
        stores
            .map(|((_, base), found)| {
                let certain = found.iter().filter_map(|(offset, store)| {
                    let store = store.filter(|store| !jumped_into(store))?;
                    Some((*offset, store))
                });
                Series {
                    base: *base,
                    stores: certain.collect(),
                }
            })
            .collect()
    }

    fn step(&mut self, instruction: &Instruction) {
        match instruction.flow_control() {
            FlowControl::Next => self.data(instruction),
            FlowControl::Call => {
                let function = instruction.near_branch_target();
                *self.calls.entry(function).or_default() += 1;
                self.called();
                if let Some(result) = self.origins.first_mut() {
                    *result = Some(Origin::Table(By::Getter(function)));
                }
            }
            FlowControl::IndirectCall => {
                if let Some(through) = self.through(instruction) {
                    *self.called_through.entry(through).or_default() += 1;
                }
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
                    FlowControl::IndirectBranch => {
                        if let Some(through) = self.through(instruction) {
                            *self.through.entry(through).or_default() += 1;
                        }
                    }
                    _ => {}
                }
                self.ends += 1;
                self.registers = [None; 16];
                self.origins = [None; 16];
                self.vectors = [[None; 2]; 16];
            }
        }
    }

    /// The table through which an instruction jumps or calls, and the offset in it.
    fn through(&self, instruction: &Instruction) -> Option<(By, u64)> {
        let origin = match Place::of(instruction, 0) {
            Place::General(at) => self.origins.get(at).copied().flatten(),
            Place::Memory => self.origin(instruction, Place::Memory),
            Place::Vector(_) | Place::Other => None,
        };
        match origin {
            Some(Origin::Entry(by, offset)) => Some((by, offset)),
            _ => None,
        }
    }

    /// What is known of a source of 8 bytes.
    fn origin(&self, instruction: &Instruction, source: Place) -> Option<Origin> {
        match source {
            Place::General(from) => self.origins.get(from).copied().flatten(),
            Place::Memory if instruction.is_ip_rel_memory_operand() => {
                let variable = instruction.ip_rel_memory_address();
                Some(Origin::Table(By::Variable(variable)))
            }
            Place::Memory if instruction.memory_index() == Register::None => {
                let Place::General(base) = Place::of_register(instruction.memory_base()) else {
                    return None;
                };
                match self.origins.get(base).copied().flatten() {
                    Some(Origin::Table(by)) => {
                        Some(Origin::Entry(by, instruction.memory_displacement64()))
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Forgets the registers that functions need not preserve.
    fn called(&mut self) {
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
                let loaded = address.and_then(|at| self.code_at(at, instruction));
                if let Some(Loaded { value, .. }) = loaded {
                    *self.leas.entry(value).or_default() += 1;
                }
                [loaded, None]
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
                let is_move = instruction.mnemonic() == Mnemonic::Mov;
                let origin = self.origin(instruction, source).filter(|_| is_move);
                self.write(at, new.first().copied().flatten());
                if let Some(known) = self.origins.get_mut(at) {
                    *known = origin;
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
        if let Some(origin) = self.origins.get_mut(register) {
            *origin = None;
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
