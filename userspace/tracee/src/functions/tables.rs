//! Functions behind tables of pointers.
//!
//! ROCm's libraries let tools replace their functions. Each exported function is only a stub: it
//! loads the address of a table, and jumps to what the table has at a fixed offset.
//!
//! ```text
//! hsa_signal_store_screlease:  endbr64
//!                              mov   rax, [rip + 0x368e8d]
//!                              jmp   [rax + 0x160]
//! ```
//!
//! None of these instructions is cheap to probe. The function behind begins as compilers begin
//! functions. Where it is follows from the code that fills the table when the library is loaded: a
//! series of stores of addresses of functions, relative to one register.
//!
//! ```text
//!                              movq   xmm0, [rip + 0x16e735]     (an address, by a relocation)
//!                              movhps xmm0, [rip + 0x16e73e]
//!                              movups [rdi + 0x160], xmm0
//! ```
//!
//! The table begins with a version of 16 bytes, and its functions follow one another
//! (`hsa_api_trace.h`, `ApiTableVersion`). So nothing is stored before the first function and
//! behind the last one. A few entries are filled elsewhere. A table is used only if all others lead
//! to the begin of a function, and if no other series of stores could be that table.
//!
//! A tool that has replaced an entry is called by the stub and calls the function behind. Other
//! code of the library may call that one directly.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::Range,
};

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory,
    InstructionInfoOptions, Mnemonic, OpAccess, OpKind, Register,
};

use super::{sections::Sections, unwind};
use crate::{
    elf::SymbolKind,
    library::{LibraryFile, Site},
};

/// Maximum size of the code that is searched, bytes. ROCr has 1.3 MB.
const MAX_CODE: usize = 32 << 20;

/// Size of the version at the begin of a table, bytes.
const VERSION: u64 = 16;

/// Size of an entry, bytes.
const ENTRY: u64 = 8;

/// Minimum number of functions of a table.
const LEAST: usize = 8;

/// At most one in so many entries is filled elsewhere.
const HOLES: usize = 16;

/// Where a stub leads. Addresses are in the file's own address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behind {
    /// Address of the function behind.
    pub function: u64,
    /// Size of that function, bytes.
    pub size: u64,
    /// Address of the variable with the address of the table.
    pub variable: u64,
    /// Offset of the entry in the table, bytes.
    pub offset: u64,
}

/// Where the stubs of a library lead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    /// By address of the stub.
    stubs: BTreeMap<u64, Behind>,
}

impl Tables {
    /// Finds the stubs of a library and the functions behind them. Empty if it has none, or if its
    /// code is not understood.
    #[must_use]
    pub fn read(library: &LibraryFile) -> Self {
        let sections = Sections::of_file(library.file());
        let symbols = library.elf().symbols().iter();
        let exported = symbols.filter(|symbol| symbol.kind == SymbolKind::Function);
        let addresses: BTreeSet<u64> = exported.map(|symbol| symbol.address).collect();
        Self::find(&sections, &addresses).unwrap_or_default()
    }

    /// The stubs by address, and where each leads.
    #[must_use]
    pub fn stubs(&self) -> &BTreeMap<u64, Behind> {
        &self.stubs
    }

    /// Where the function behind the stub at an address is probed; `None` if there is none, or it
    /// cannot be probed.
    #[must_use]
    pub fn site(&self, library: &LibraryFile, stub: u64) -> Option<Site> {
        let Behind { function, size, .. } = self.stubs.get(&stub)?;
        library.site(*function, *size).ok()?.ok()
    }

    fn find(sections: &Sections<'_>, exported: &BTreeSet<u64>) -> Option<Self> {
        let (begin, text) = sections.placed(".text")?;
        if text.len() > MAX_CODE {
            return None;
        }
        let end = begin.checked_add(text.len() as u64)?;
        let at = |address: u64| text.get(usize::try_from(address.checked_sub(begin)?).ok()?..);
        // By variable with the table's address: the stubs by offset.
        let mut tables: BTreeMap<u64, BTreeMap<u64, Vec<u64>>> = BTreeMap::new();
        for stub in exported {
            if let Some((variable, offset)) = at(*stub).and_then(|code| target(code, *stub)) {
                let table = tables.entry(variable).or_default();
                table.entry(offset).or_default().push(*stub);
            }
        }
        tables.retain(|_, table| table.len() >= LEAST);
        if tables.is_empty() {
            return None;
        }
        let mut scan = Scan::new(sections, begin..end);
        scan.run(&text, begin);
        let sizes: HashMap<u64, u64> = unwind::ranges(sections)
            .iter()
            .map(|range| (range.start, range.end.saturating_sub(range.start)))
            .collect();
        let series = scan.series();
        let mut stubs = BTreeMap::new();
        for (variable, table) in tables {
            let mut found = series.iter().filter_map(|one| one.as_table(&table, &sizes));
            let Some(functions) = found.next() else {
                continue;
            };
            if found.any(|other| other != functions) {
                continue;
            }
            for (offset, of_entry) in table {
                let Some((function, size)) = functions.get(&offset).copied() else {
                    continue;
                };
                let behind = Behind {
                    function,
                    size,
                    variable,
                    offset,
                };
                stubs.extend(of_entry.into_iter().map(|stub| (stub, behind)));
            }
        }
        Some(Self { stubs })
    }
}

/// The variable from which the stub that `code` begins with loads the address of a table, and the
/// offset in the table of the function to which it jumps.
fn target(code: &[u8], address: u64) -> Option<(u64, u64)> {
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let mut load = decoder.decode();
    if load.mnemonic() == Mnemonic::Endbr64 {
        load = decoder.decode();
    }
    let jump = decoder.decode();
    let is_load = load.mnemonic() == Mnemonic::Mov
        && load.op0_kind() == OpKind::Register
        && load.is_ip_rel_memory_operand();
    let is_jump = jump.flow_control() == FlowControl::IndirectBranch
        && jump.op0_kind() == OpKind::Memory
        && jump.memory_base() == load.op0_register()
        && jump.memory_index() == Register::None;
    (is_load && is_jump).then(|| (load.ip_rel_memory_address(), jump.memory_displacement64()))
}

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
struct Store {
    value: u64,
    /// The instruction that loaded the address.
    since: u64,
    /// The instruction that stores it.
    at: u64,
}

/// Stores relative to the same base, in code that runs from its begin to its end.
#[derive(Debug)]
struct Series {
    /// By offset from the base.
    stores: BTreeMap<u64, Store>,
}

impl Series {
    /// The functions of a table, address and size by offset in it, if this can be what fills the
    /// table with these offsets.
    fn as_table<T>(
        &self,
        offsets: &BTreeMap<u64, T>,
        sizes: &HashMap<u64, u64>,
    ) -> Option<BTreeMap<u64, (u64, u64)>> {
        let (last, _) = offsets.last_key_value()?;
        let is_stored =
            |offset: Option<u64>| offset.is_some_and(|at| self.stores.contains_key(&at));
        let mut found = self.stores.keys().filter_map(|first| {
            // An object lies behind its address.
            let table = first.checked_sub(VERSION)?;
            let end = table.checked_add(*last)?.checked_add(ENTRY);
            // The table begins and ends there.
            if is_stored(first.checked_sub(ENTRY)) || is_stored(end) {
                return None;
            }
            let entry = |offset: &u64| {
                let store = self.stores.get(&table.checked_add(*offset)?)?;
                Some((*offset, (store.value, *sizes.get(&store.value)?)))
            };
            let functions: BTreeMap<u64, _> = offsets.keys().filter_map(entry).collect();
            let holes = offsets.len() - functions.len();
            (holes * HOLES <= offsets.len()).then_some(functions)
        });
        let first = found.next()?;
        // Which of two it is cannot be known.
        found.all(|other| other == first).then_some(first)
    }
}

/// A pass over the code that notes where addresses of code are stored.
struct Scan {
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
    targets: BTreeSet<u64>,
    stores: HashMap<(u32, Base), BTreeMap<u64, Option<Store>>>,
}

impl Scan {
    fn new(sections: &Sections<'_>, code: Range<u64>) -> Self {
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
            stores: HashMap::new(),
        }
    }

    fn run(&mut self, text: &[u8], begin: u64) {
        let mut decoder = Decoder::with_ip(64, text, begin, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            self.step(&instruction);
        }
    }

    /// What was stored, without what other code could have jumped into.
    fn series(&self) -> Vec<Series> {
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
            FlowControl::Call | FlowControl::IndirectCall => self.called(),
            FlowControl::ConditionalBranch => {
                self.targets.insert(instruction.near_branch_target());
            }
            other => {
                if other == FlowControl::UnconditionalBranch {
                    self.targets.insert(instruction.near_branch_target());
                }
                self.ends += 1;
                self.registers = [None; 16];
                self.vectors = [[None; 2]; 16];
            }
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
