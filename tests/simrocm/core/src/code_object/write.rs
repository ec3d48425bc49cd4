//! Writes small code objects, whose kernels do nothing.

use rmpv::Value;

use super::{Argument, EM_AMDGPU, NT_AMDGPU_METADATA};

/// Describes a kernel to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelSpec {
    /// Its name.
    pub name: String,
    /// Its arguments.
    pub arguments: Vec<Argument>,
}

impl KernelSpec {
    fn kernarg_bytes(&self) -> u64 {
        let ends = self
            .arguments
            .iter()
            .map(|argument| argument.offset + argument.bytes);
        ends.max().unwrap_or(0)
    }
}

/// `s_endpgm`.
const END_OF_PROGRAM: u32 = 0xbf81_0000;
/// Alignment of kernels.
const CODE_ALIGN: u64 = 256;
const PAGE: u64 = 4096;
const EHDR: u64 = 64;
const PHDR: u64 = 56;
const SHDR: u64 = 64;
const SYM: u64 = 24;
const DESCRIPTOR: u64 = 64;

/// `EF_AMDGPU_MACH` of an instruction set; 0 (none) for those that no test uses.
fn machine_flags(gfx: &str) -> u32 {
    const FLAGS: [(&str, u32); 9] = [
        ("gfx900", 0x2c),
        ("gfx906", 0x2f),
        ("gfx908", 0x30),
        ("gfx90a", 0x3f),
        ("gfx942", 0x4c),
        ("gfx1030", 0x36),
        ("gfx1100", 0x41),
        ("gfx1200", 0x48),
        ("gfx1201", 0x4e),
    ];
    let found = FLAGS.iter().find(|(name, _)| *name == gfx);
    found.map_or(0, |(_, flags)| *flags)
}

/// A buffer with little-endian numbers.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn u16(&mut self, values: &[u16]) {
        for value in values {
            self.0.extend(value.to_le_bytes());
        }
    }

    fn u32(&mut self, values: &[u32]) {
        for value in values {
            self.0.extend(value.to_le_bytes());
        }
    }

    fn u64(&mut self, values: &[u64]) {
        for value in values {
            self.0.extend(value.to_le_bytes());
        }
    }

    /// Pads with zeros up to offset `to`.
    fn pad(&mut self, to: u64) {
        let to = usize::try_from(to).unwrap_or(usize::MAX).max(self.0.len());
        self.0.resize(to, 0);
    }

    fn len(&self) -> u64 {
        self.0.len() as u64
    }
}

/// A string table, and the offset of each string.
fn strings<'a>(names: impl Iterator<Item = &'a str>) -> (Vec<u8>, Vec<u32>) {
    let mut table = vec![0];
    let offsets = names
        .map(|name| {
            let offset = u32::try_from(table.len()).unwrap_or(u32::MAX);
            table.extend(name.as_bytes());
            table.push(0);
            offset
        })
        .collect();
    (table, offsets)
}

/// A section's header, without its name.
struct Section {
    name: &'static str,
    kind: u32,
    flags: u64,
    address: u64,
    offset: u64,
    bytes: u64,
    link: u32,
    info: u32,
    entry: u64,
}

/// Writes a code object (version 4) with these kernels, which end at once.
#[must_use]
pub fn write(gfx: &str, kernels: &[KernelSpec]) -> Vec<u8> {
    let count = kernels.len() as u64;
    let symbols: Vec<String> = kernels
        .iter()
        .flat_map(|kernel| [kernel.name.clone(), format!("{}.kd", kernel.name)])
        .collect();
    let (names, name_offsets) = strings(symbols.iter().map(String::as_str));
    let note = note(gfx, kernels);

    // A read-only part, then the code on a page of its own.
    let headers = EHDR + 3 * PHDR;
    let note_at = headers.next_multiple_of(8);
    let symbols_at = (note_at + note.len() as u64).next_multiple_of(8);
    let symbols_bytes = SYM * (1 + 2 * count);
    let names_at = symbols_at + symbols_bytes;
    let descriptors_at = (names_at + names.len() as u64).next_multiple_of(DESCRIPTOR);
    let read_only_end = descriptors_at + DESCRIPTOR * count;
    let code_at = read_only_end.next_multiple_of(PAGE);
    let code_bytes = CODE_ALIGN * count;
    let code_address = code_at + PAGE;

    let mut file = Bytes::default();
    file.pad(EHDR);
    program_headers(
        &mut file,
        read_only_end,
        [code_at, code_address, code_bytes],
        [note_at, note.len() as u64],
    );
    file.pad(note_at);
    file.0.extend(&note);
    file.pad(symbols_at);
    file.pad(symbols_at + SYM);
    for (index, names) in (0..).zip(name_offsets.chunks_exact(2)) {
        let &[function, descriptor] = names else {
            continue;
        };
        // Info: global function, global object; protected; sections 5 (.text) and 4 (.rodata).
        for (name, info, section, address, bytes) in [
            (function, 0x12_u8, 5, code_address + CODE_ALIGN * index, 4),
            (
                descriptor,
                0x11,
                4,
                descriptors_at + DESCRIPTOR * index,
                DESCRIPTOR,
            ),
        ] {
            file.u32(&[name]);
            file.0.extend([info, 3]);
            file.u16(&[section]);
            file.u64(&[address, bytes]);
        }
    }
    file.0.extend(&names);
    file.pad(descriptors_at);
    for (index, kernel) in (0..).zip(kernels) {
        let from = descriptors_at + DESCRIPTOR * index;
        let code = code_address + CODE_ALIGN * index;
        let kernarg = u32::try_from(kernel.kernarg_bytes()).unwrap_or(u32::MAX);
        file.u32(&[0, 0, kernarg, 0]);
        file.u64(&[code - from]);
        file.pad(from + DESCRIPTOR);
    }
    file.pad(code_at);
    for _ in 0..CODE_ALIGN * count / 4 {
        file.u32(&[END_OF_PROGRAM]);
    }
    let sections = [
        section(".note", 7, 2, note_at, note.len() as u64),
        Section {
            link: 3,
            info: 1,
            entry: SYM,
            ..section(".dynsym", 11, 2, symbols_at, symbols_bytes)
        },
        section(".dynstr", 3, 2, names_at, names.len() as u64),
        section(".rodata", 1, 2, descriptors_at, DESCRIPTOR * count),
        Section {
            address: code_address,
            ..section(".text", 1, 6, code_at, code_bytes)
        },
    ];
    let section_table = finish_sections(&mut file, &sections);
    let header = elf_header(gfx, section_table, sections.len() as u64 + 2);
    for (to, from) in file.0.iter_mut().zip(header) {
        *to = from;
    }
    file.0
}

const fn section(name: &'static str, kind: u32, flags: u64, offset: u64, bytes: u64) -> Section {
    Section {
        name,
        kind,
        flags,
        address: offset,
        offset,
        bytes,
        link: 0,
        info: 0,
        entry: 0,
    }
}

fn elf_header(gfx: &str, sections_at: u64, sections: u64) -> Vec<u8> {
    let mut header = Bytes::default();
    // 64 bits, little endian, version 1, OS ABI "AMDGPU_HSA" with version 2 (code object 4).
    header.0.extend(b"\x7fELF\x02\x01\x01\x40\x02");
    header.pad(16);
    // A shared object.
    header.u16(&[3, EM_AMDGPU]);
    header.u32(&[1]);
    header.u64(&[0, EHDR, sections_at]);
    header.u32(&[machine_flags(gfx)]);
    let sections = u16::try_from(sections).unwrap_or(u16::MAX);
    header.u16(&[
        EHDR as u16,
        PHDR as u16,
        3,
        SHDR as u16,
        sections,
        sections - 1,
    ]);
    header.0
}

/// Two loaded parts and the note. `code` is (offset, address, bytes), `note` (offset, bytes).
fn program_headers(file: &mut Bytes, read_only_end: u64, code: [u64; 3], note: [u64; 2]) {
    let [code_at, code_address, code_bytes] = code;
    let [note_at, note_bytes] = note;
    for (kind, flags, offset, address, bytes, align) in [
        (1, 4, 0, 0, read_only_end, PAGE),
        (1, 5, code_at, code_address, code_bytes, PAGE),
        (4, 4, note_at, note_at, note_bytes, 4),
    ] {
        file.u32(&[kind, flags]);
        file.u64(&[offset, address, address, bytes, bytes, align]);
    }
}

/// Writes the names of the sections and their headers; returns the offset of the headers.
fn finish_sections(file: &mut Bytes, sections: &[Section]) -> u64 {
    let (names, offsets) = strings(
        sections
            .iter()
            .map(|section| section.name)
            .chain([".shstrtab"]),
    );
    let names_at = file.len();
    file.0.extend(&names);
    let table = file.len().next_multiple_of(8);
    file.pad(table + SHDR);
    let own = Section {
        address: 0,
        ..section(".shstrtab", 3, 0, names_at, names.len() as u64)
    };
    for (section, name) in sections.iter().chain([&own]).zip(offsets) {
        file.u32(&[name, section.kind]);
        file.u64(&[
            section.flags,
            section.address,
            section.offset,
            section.bytes,
        ]);
        file.u32(&[section.link, section.info]);
        file.u64(&[1, section.entry]);
    }
    table
}

/// The note with the metadata.
fn note(gfx: &str, kernels: &[KernelSpec]) -> Vec<u8> {
    let map = |pairs: Vec<(&str, Value)>| {
        let pairs = pairs
            .into_iter()
            .map(|(key, value)| (Value::from(key), value));
        Value::Map(pairs.collect())
    };
    let kernel = |kernel: &KernelSpec| {
        let argument = |argument: &Argument| {
            map(vec![
                (".offset", argument.offset.into()),
                (".size", argument.bytes.into()),
                (".value_kind", argument.kind.as_str().into()),
            ])
        };
        map(vec![
            (
                ".args",
                Value::Array(kernel.arguments.iter().map(argument).collect()),
            ),
            (".group_segment_fixed_size", 0.into()),
            (".kernarg_segment_align", 8.into()),
            (".kernarg_segment_size", kernel.kernarg_bytes().into()),
            (".max_flat_workgroup_size", 1024.into()),
            (".name", kernel.name.as_str().into()),
            (".private_segment_fixed_size", 0.into()),
            (".sgpr_count", 8.into()),
            (".symbol", format!("{}.kd", kernel.name).into()),
            (".vgpr_count", 4.into()),
            (".wavefront_size", 64.into()),
        ])
    };
    let metadata = map(vec![
        (
            "amdhsa.kernels",
            Value::Array(kernels.iter().map(kernel).collect()),
        ),
        ("amdhsa.target", format!("amdgcn-amd-amdhsa--{gfx}").into()),
        ("amdhsa.version", Value::Array(vec![1.into(), 1.into()])),
    ]);
    let mut description = Vec::new();
    // Writing to memory cannot fail.
    let _ = rmpv::encode::write_value(&mut description, &metadata);
    let mut note = Bytes::default();
    let bytes = u32::try_from(description.len()).unwrap_or(u32::MAX);
    note.u32(&[7, bytes, NT_AMDGPU_METADATA]);
    note.0.extend(b"AMDGPU\0\0");
    note.0.extend(description);
    note.pad(note.len().next_multiple_of(4));
    note.0
}

#[cfg(test)]
mod tests {
    use super::super::{CodeObject, Kernel};
    use super::*;
    use crate::blit;

    #[test]
    fn what_is_written_is_read() {
        let bytes = write("gfx906", &blit::kernels());
        let read = CodeObject::read(&bytes).unwrap();
        let names: Vec<&str> = read
            .symbols
            .iter()
            .map(|symbol| symbol.name.as_str())
            .collect();
        let copy = format!("{}.kd", blit::COPY);
        let fill = format!("{}.kd", blit::FILL);
        assert_eq!(names, [blit::COPY, &copy, blit::FILL, &fill]);
        assert_eq!(
            read.kernels[0],
            Kernel {
                name: blit::COPY.to_owned(),
                symbol: copy,
                kernarg_bytes: 24,
                kernarg_align: 8,
                arguments: blit::kernels()[0].arguments.clone(),
                ..Kernel::default()
            }
        );
        assert_eq!(read.segments.len(), 2);
        let descriptor = &read.symbols[3];
        let loaded = &read.segments[0];
        assert!(
            descriptor.address.is_multiple_of(64) && descriptor.address + 64 <= loaded.memory_bytes
        );
        let at = descriptor.address as usize;
        assert_eq!(bytes[at + 8..at + 12], 24_u32.to_le_bytes());
        let entry = i64::from_le_bytes(bytes[at + 16..at + 24].try_into().unwrap());
        assert_eq!(
            descriptor.address.wrapping_add_signed(entry),
            read.symbols[2].address
        );
    }
}
