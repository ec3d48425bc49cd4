//! Code objects: ELF files for the GPU, with metadata about their kernels.
//!
//! Sources: LLVM's "User Guide for AMDGPU Backend" (ELF header flags, `NT_AMDGPU_METADATA`, kernel
//! descriptor), and clang's offload bundler for [`bundle_entry`].

mod write;

use object::elf::{FileHeader64, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{LittleEndian, Object, ObjectSymbol};
use thiserror::Error;

pub use write::{KernelSpec, write};

/// Why a code object is rejected.
#[derive(Debug, Error)]
pub enum CodeObjectError {
    /// It is not a valid ELF file.
    #[error("not a code object: {0}")]
    Elf(#[from] object::Error),
    /// Its metadata cannot be read.
    #[error("the metadata of the code object cannot be read: {0}")]
    Metadata(#[from] rmpv::decode::Error),
    /// It is for another machine.
    #[error("ELF machine {0} is not AMDGPU (224)")]
    Machine(u16),
}

/// An argument of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// Offset in the argument segment, bytes.
    pub offset: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// `.value_kind`: `by_value`, `global_buffer`, `hidden_...`.
    pub kind: String,
}

/// A kernel, from the metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    /// Its name.
    pub name: String,
    /// Name of its descriptor's symbol, `NAME.kd`.
    pub symbol: String,
    /// Size of the arguments in bytes.
    pub kernarg_bytes: u32,
    /// Alignment of the arguments, bytes.
    pub kernarg_align: u32,
    /// LDS bytes per workgroup.
    pub group_bytes: u32,
    /// Scratch bytes per work-item.
    pub private_bytes: u32,
    /// Arguments, including hidden ones.
    pub arguments: Vec<Argument>,
}

/// A loaded part of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Offset in the file.
    pub file_offset: u64,
    /// Size in the file, bytes.
    pub file_bytes: u64,
    /// Virtual address.
    pub address: u64,
    /// Size in memory, bytes.
    pub memory_bytes: u64,
}

/// A symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Its name.
    pub name: String,
    /// Virtual address.
    pub address: u64,
    /// Size in bytes.
    pub bytes: u64,
}

/// The parts of a code object that a runtime needs.
#[derive(Clone, Debug, Default)]
pub struct CodeObject {
    /// The parts to load.
    pub segments: Vec<Segment>,
    /// Defined symbols.
    pub symbols: Vec<Symbol>,
    /// Kernels.
    pub kernels: Vec<Kernel>,
}

/// `e_machine` of AMD GPUs.
const EM_AMDGPU: u16 = 224;
/// Type of the note that holds the metadata.
const NT_AMDGPU_METADATA: u32 = 32;

impl CodeObject {
    /// Reads a code object of version 3 or later.
    ///
    /// # Errors
    ///
    /// When it is not a valid one.
    pub fn read(bytes: &[u8]) -> Result<Self, CodeObjectError> {
        let header = FileHeader64::<LittleEndian>::parse(bytes)?;
        let endian = header.endian()?;
        let machine = header.e_machine(endian).0;
        if machine != EM_AMDGPU {
            return Err(CodeObjectError::Machine(machine));
        }
        let mut code_object = Self::default();
        for program in header.program_headers(endian, bytes)? {
            if program.p_type(endian) == PT_LOAD {
                code_object.segments.push(Segment {
                    file_offset: program.p_offset(endian),
                    file_bytes: program.p_filesz(endian),
                    address: program.p_vaddr(endian),
                    memory_bytes: program.p_memsz(endian),
                });
            }
            let Some(mut notes) = program.notes(endian, bytes)? else {
                continue;
            };
            while let Some(note) = notes.next()? {
                if note.name() == b"AMDGPU" && note.n_type(endian).0 == NT_AMDGPU_METADATA {
                    let metadata = rmpv::decode::read_value(&mut note.desc())?;
                    code_object.kernels = kernels(&metadata);
                }
            }
        }
        let file = object::File::parse(bytes)?;
        code_object.symbols = file
            .dynamic_symbols()
            .filter(ObjectSymbol::is_definition)
            .filter_map(|symbol| {
                Some(Symbol {
                    name: symbol.name().ok()?.to_owned(),
                    address: symbol.address(),
                    bytes: symbol.size(),
                })
            })
            .collect();
        Ok(code_object)
    }

    /// Size in bytes from the lowest to the highest loaded address, and the lowest address.
    #[must_use]
    pub fn span(&self) -> (u64, u64) {
        let low = self.segments.iter().map(|segment| segment.address).min();
        let high = self
            .segments
            .iter()
            .map(|segment| segment.address.saturating_add(segment.memory_bytes))
            .max();
        let low = low.unwrap_or(0);
        (low, high.unwrap_or(0).saturating_sub(low))
    }
}

fn field<'a>(map: &'a rmpv::Value, key: &str) -> Option<&'a rmpv::Value> {
    let pairs = map.as_map()?;
    pairs
        .iter()
        .find(|(name, _)| name.as_str() == Some(key))
        .map(|(_, value)| value)
}

fn number(map: &rmpv::Value, key: &str) -> u64 {
    field(map, key).and_then(rmpv::Value::as_u64).unwrap_or(0)
}

fn text(map: &rmpv::Value, key: &str) -> String {
    field(map, key)
        .and_then(rmpv::Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

fn list<'a>(map: &'a rmpv::Value, key: &str) -> &'a [rmpv::Value] {
    field(map, key)
        .and_then(rmpv::Value::as_array)
        .map_or(&[], Vec::as_slice)
}

fn kernels(metadata: &rmpv::Value) -> Vec<Kernel> {
    let small = |map: &rmpv::Value, key: &str| u32::try_from(number(map, key)).unwrap_or(u32::MAX);
    list(metadata, "amdhsa.kernels")
        .iter()
        .map(|kernel| Kernel {
            name: text(kernel, ".name"),
            symbol: text(kernel, ".symbol"),
            kernarg_bytes: small(kernel, ".kernarg_segment_size"),
            kernarg_align: small(kernel, ".kernarg_segment_align"),
            group_bytes: small(kernel, ".group_segment_fixed_size"),
            private_bytes: small(kernel, ".private_segment_fixed_size"),
            arguments: list(kernel, ".args")
                .iter()
                .map(|argument| Argument {
                    offset: number(argument, ".offset"),
                    bytes: number(argument, ".size"),
                    kind: text(argument, ".value_kind"),
                })
                .collect(),
        })
        .collect()
}

/// The beginning of an offload bundle.
pub const BUNDLE_MAGIC: &[u8; 24] = b"__CLANG_OFFLOAD_BUNDLE__";

/// Length of a bundle from its start to the end of the last entry that the table in `bytes` names:
/// how much of a bundle of unknown length must be read.
#[must_use]
pub fn bundle_bytes(bytes: &[u8]) -> Option<u64> {
    let entries = bundle(bytes)?;
    entries
        .iter()
        .map(|entry| entry.offset.saturating_add(entry.bytes))
        .max()
}

/// Offset and length within the bundle of the code object for an instruction set (`gfx906`).
#[must_use]
pub fn bundle_entry(bytes: &[u8], gfx: &str) -> Option<(u64, u64)> {
    bundle(bytes)?
        .into_iter()
        .find(|entry| entry.gfx == gfx)
        .map(|entry| (entry.offset, entry.bytes))
}

struct Entry {
    offset: u64,
    bytes: u64,
    gfx: String,
}

fn bundle(bytes: &[u8]) -> Option<Vec<Entry>> {
    let mut rest = bytes.strip_prefix(BUNDLE_MAGIC)?;
    let mut word = || -> Option<u64> {
        let (first, after) = rest.split_first_chunk::<8>()?;
        rest = after;
        Some(u64::from_le_bytes(*first))
    };
    let count = word()?;
    let mut entries = Vec::new();
    let mut at = BUNDLE_MAGIC.len() + 8;
    for _ in 0..count.min(4096) {
        let head = bytes.get(at..at.checked_add(24)?)?;
        let mut words = head
            .chunks_exact(8)
            .filter_map(|chunk| chunk.try_into().ok().map(u64::from_le_bytes));
        let (offset, length, id_bytes) = (words.next()?, words.next()?, words.next()?);
        let id = bytes
            .get(at + 24..)?
            .get(..usize::try_from(id_bytes).ok()?)?;
        at = at + 24 + id.len();
        // hipv4-amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-
        let id = String::from_utf8_lossy(id);
        let target = id.rsplit("--").next().unwrap_or_default();
        entries.push(Entry {
            offset,
            bytes: length,
            gfx: target.split(':').next().unwrap_or_default().to_owned(),
        });
    }
    Some(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bundle_of(entries: &[(&str, &[u8])]) -> Vec<u8> {
        let mut bytes = BUNDLE_MAGIC.to_vec();
        bytes.extend((entries.len() as u64).to_le_bytes());
        let table: usize = entries.iter().map(|(id, _)| 24 + id.len()).sum();
        let mut at = bytes.len() + table;
        for (id, data) in entries {
            for word in [at, data.len(), id.len()] {
                bytes.extend((word as u64).to_le_bytes());
            }
            bytes.extend(id.as_bytes());
            at += data.len();
        }
        for (_, data) in entries {
            bytes.extend(*data);
        }
        bytes
    }

    #[test]
    fn a_bundle_gives_the_entry_of_an_instruction_set() {
        let bytes = bundle_of(&[
            ("host-x86_64-unknown-linux", b""),
            ("hipv4-amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-", b"abc"),
            ("hipv4-amdgcn-amd-amdhsa--gfx906", b"defg"),
        ]);
        let entry = |gfx| {
            let (offset, length) = bundle_entry(&bytes, gfx)?;
            Some(&bytes[offset as usize..(offset + length) as usize])
        };
        assert_eq!(entry("gfx906"), Some(&b"defg"[..]));
        assert_eq!(entry("gfx90a"), Some(&b"abc"[..]));
        assert_eq!(entry("gfx1030"), None);
        assert_eq!(bundle_bytes(&bytes), Some(bytes.len() as u64));
        assert_eq!(bundle_bytes(&bytes[..40]), None);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>, at in 0..2_000_usize, value: u8) {
            let _ = CodeObject::read(&bytes);
            let mut bundle = BUNDLE_MAGIC.to_vec();
            bundle.extend(&bytes);
            let _ = bundle_bytes(&bundle);
            let mut object = write("gfx906", &crate::blit::kernels());
            let at = at % object.len();
            object[at] = value;
            let _ = CodeObject::read(&object);
        }
    }
}
