//! Files that a process has mapped.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use gimli::{
    BaseAddresses, EhFrame, EhFrameHdr, FrameDescriptionEntry, LittleEndian, ParsedEhFrameHdr,
    UnwindSection as _,
};
use object::{Object as _, ObjectSection as _, ObjectSegment as _, SegmentFlags};

/// The bytes of a section.
pub(crate) type Bytes = gimli::EndianArcSlice<LittleEndian>;

/// Maximum size of a section that is read, bytes. The largest libraries of machine learning have
/// some 100 MB.
const SECTION: u64 = 512 << 20;

/// Maximum size of the rules of a function, bytes. Real ones have some hundreds; a file could have
/// any, which would take any time.
const RULES: usize = 1 << 16;

/// Size of a page, bytes.
const PAGE: u64 = 4096;

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModuleError {
    /// It is no ELF file of 64-bit x86 code, or damaged.
    #[error("it is no ELF file that can be read: {0}")]
    Elf(#[from] object::Error),
    /// It was made without tables for unwinding.
    #[error("it has no .eh_frame_hdr")]
    NoTables,
    /// The tables are damaged.
    #[error("its tables for unwinding are damaged: {0}")]
    Damaged(#[from] gimli::Error),
    /// A section is larger than any real one.
    #[error("a section has {0} bytes")]
    TooLarge(u64),
}

/// The tables of a file by which stacks are unwound. They do not depend on where the file is
/// mapped.
#[derive(Clone)]
pub struct Module {
    header: Arc<ParsedEhFrameHdr<Bytes>>,
    pub(crate) frames: EhFrame<Bytes>,
    bases: BaseAddresses,
    /// Parts with code: offset and size in the file, address. Bytes.
    code: Arc<[(u64, u64, u64)]>,
    build_id: Option<Arc<str>>,
}

impl std::fmt::Debug for Module {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Module").finish_non_exhaustive()
    }
}

impl Module {
    /// Reads the tables of an ELF file. `file` may be a cache that reads only what is needed.
    ///
    /// # Errors
    ///
    /// [`ModuleError`].
    pub fn read<'data>(file: impl object::ReadRef<'data>) -> Result<Self, ModuleError> {
        let file = object::File::parse(file)?;
        let mut bases = BaseAddresses::default();
        if let Some(text) = file.section_by_name(".text") {
            bases = bases.set_text(text.address());
        }
        if let Some(got) = file.section_by_name(".got") {
            bases = bases.set_got(got.address());
        }
        let section = |name: &str| {
            let section = file.section_by_name(name).ok_or(ModuleError::NoTables)?;
            if section.size() > SECTION {
                return Err(ModuleError::TooLarge(section.size()));
            }
            let bytes = Bytes::new(Arc::from(section.data()?), LittleEndian);
            Ok((section.address(), bytes))
        };
        let (address, header) = section(".eh_frame_hdr")?;
        bases = bases.set_eh_frame_hdr(address);
        let (address, frames) = section(".eh_frame")?;
        bases = bases.set_eh_frame(address);
        let header = EhFrameHdr::from(header).parse(&bases, 8)?;
        if header.table().is_none() {
            return Err(ModuleError::NoTables);
        }
        Ok(Self {
            header: Arc::new(header),
            frames: EhFrame::from(frames),
            bases,
            code: code(&file),
            build_id: build_id(&file),
        })
    }

    /// The GNU build id in hexadecimal digits.
    #[must_use]
    pub fn build_id(&self) -> Option<&str> {
        self.build_id.as_deref()
    }

    /// What is added to the file's own addresses if its bytes from `offset` on are mapped at
    /// `start` as code. `None` if the file has no code there.
    fn bias(&self, start: u64, offset: u64) -> Option<u64> {
        // A mapping begins at a page, its segment maybe later.
        let segment = self.code.iter().find(|(begin, size, _)| {
            begin & !(PAGE - 1) <= offset && offset < begin.saturating_add(*size)
        });
        let (begin, _, address) = segment?;
        let at_zero = address.wrapping_sub(*begin);
        Some(start.wrapping_sub(offset).wrapping_sub(at_zero))
    }

    /// Memory that its tables take, bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        use gimli::{Reader as _, Section as _};
        self.frames.reader().len()
    }

    pub(crate) fn bases(&self) -> &BaseAddresses {
        &self.bases
    }

    /// The rules of the function that contains `address`, as the file numbers addresses.
    pub(crate) fn rules(&self, address: u64) -> Result<FrameDescriptionEntry<Bytes>, gimli::Error> {
        let none = gimli::Error::NoUnwindInfoForAddress;
        let table = self.header.table().ok_or(none)?;
        let found = table.lookup(address, &self.bases)?.direct()?;
        // Computed here, because gimli subtracts without a check.
        let begin = self.header.eh_frame_ptr().direct()?;
        let offset = found
            .checked_sub(begin)
            .and_then(|at| usize::try_from(at).ok());
        let offset = gimli::EhFrameOffset(offset.ok_or(none)?);
        let get_cie = EhFrame::cie_from_offset;
        let rules = self.frames.fde_from_offset(&self.bases, offset, get_cie)?;
        if rules.entry_len().max(rules.cie().entry_len()) > RULES {
            return Err(gimli::Error::UnsupportedEvaluation);
        }
        rules.contains(address).then_some(rules).ok_or(none)
    }
}

/// The segments with code of a file.
fn code<'data>(file: &impl object::Object<'data>) -> Arc<[(u64, u64, u64)]> {
    let is_code = |flags: SegmentFlags| match flags {
        SegmentFlags::Elf { p_flags, .. } => (p_flags & object::elf::PF_X).0 != 0,
        _ => false,
    };
    let code = file.segments().filter(|segment| is_code(segment.flags()));
    code.map(|segment| {
        let (offset, size) = segment.file_range();
        (offset, size, segment.address())
    })
    .collect()
}

fn build_id<'data>(file: &impl object::Object<'data>) -> Option<Arc<str>> {
    let bytes = file.build_id().ok().flatten()?;
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(digits.into())
}

/// A mapped part of a file.
#[derive(Clone, Debug)]
struct Mapped {
    end: u64,
    /// What is added to the file's own addresses.
    bias: u64,
    module: Module,
    /// What the caller of [`Modules::add`] calls the file.
    file: u32,
}

/// The files that a process has mapped, by address.
#[derive(Clone, Debug, Default)]
pub struct Modules {
    mapped: BTreeMap<u64, Mapped>,
}

impl Modules {
    /// Adds a file whose bytes from `offset` on are mapped at `range` as code, under a number for
    /// [`Modules::place`]. What was mapped there before is forgotten. Returns whether the file has
    /// code there; otherwise it is not added.
    pub fn add(&mut self, range: Range<u64>, offset: u64, module: Module, file: u32) -> bool {
        let Some(bias) = module.bias(range.start, offset) else {
            return false;
        };
        let overlaps = |(begin, mapped): (&u64, &Mapped)| {
            (*begin < range.end && mapped.end > range.start).then_some(*begin)
        };
        let gone: Vec<u64> = self.mapped.iter().filter_map(overlaps).collect();
        for begin in gone {
            self.mapped.remove(&begin);
        }
        let mapped = Mapped {
            end: range.end,
            bias,
            module,
            file,
        };
        self.mapped.insert(range.start, mapped);
        true
    }

    /// The number of the file that contains an address, and the address as the file numbers it.
    #[must_use]
    pub fn place(&self, address: u64) -> Option<(u32, u64)> {
        let mapped = self.mapped_at(address)?;
        Some((mapped.file, address.wrapping_sub(mapped.bias)))
    }

    fn mapped_at(&self, address: u64) -> Option<&Mapped> {
        let (_, mapped) = self.mapped.range(..=address).next_back()?;
        (address < mapped.end).then_some(mapped)
    }

    /// The file that contains an address, and its bias.
    pub(crate) fn at(&self, address: u64) -> Option<(&Module, u64)> {
        let mapped = self.mapped_at(address)?;
        Some((&mapped.module, mapped.bias))
    }
}
