//! What is in a code object: its target and its kernels.

use std::{collections::HashMap, fmt};

use sha2::{Digest, Sha256};

use crate::{
    descriptor::{Descriptor, Registers},
    elf::{Elf, ElfError, Layout},
    image,
    isa::{Target, Version},
    metadata::{KernelMetadata, Metadata, MetadataError},
    names,
};

/// SHA-256 of a code object's bytes: the same for the same code, wherever it was loaded from. Processes are
/// not to be trusted, so it must not be possible to make up another code object with the same one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContentHash([u8; 32]);

impl ContentHash {
    /// Of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The hash itself.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A value that descriptor and metadata give differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Disagreement {
    /// Which one.
    pub field: Field,
    /// What the descriptor says: that is what the hardware goes by.
    pub descriptor: u32,
    /// What the metadata says.
    pub metadata: u32,
}

/// Values that are both in the descriptor and in the metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    /// Fixed LDS, bytes.
    GroupSegmentSize,
    /// Fixed scratch, bytes.
    PrivateSegmentSize,
    /// Arguments, bytes.
    KernargSegmentSize,
    /// Work-items per wave.
    WavefrontSize,
    /// Vector registers: the metadata's number rounded up to the descriptor's granule.
    VgprCount,
}

/// A kernel of a code object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Its name as in the code, mangled for C++, without `.kd`.
    pub name: String,
    /// Address of its descriptor in the code object's own address space; the handle `kernel_object` of
    /// dispatch packets is this plus [`CodeObject::load_delta`](crate::CodeObject::load_delta).
    pub address: u64,
    /// Its descriptor; `None` for code object version 2, which has none.
    pub descriptor: Option<Descriptor>,
    /// What the metadata says of it.
    pub metadata: Option<KernelMetadata>,
    /// Registers that a wave is given; `None` without descriptor, or for a GPU newer than gputrace.
    pub registers: Option<Registers>,
    /// Where descriptor and metadata contradict each other. Empty for what compilers write.
    pub disagreements: Vec<Disagreement>,
}

impl Kernel {
    /// Its name as people read it: demangled if it is a mangled one.
    #[must_use]
    pub fn demangled(&self) -> String {
        names::demangle(&self.name).unwrap_or_else(|| self.name.clone())
    }

    /// Fixed LDS per workgroup, bytes. A dispatch may ask for more.
    #[must_use]
    pub fn group_segment_size(&self) -> u32 {
        self.size(|d| d.group_segment_size, |m| m.group_segment_size)
    }

    /// Fixed scratch per work-item, bytes.
    #[must_use]
    pub fn private_segment_size(&self) -> u32 {
        self.size(|d| d.private_segment_size, |m| m.private_segment_size)
    }

    /// Arguments, bytes.
    #[must_use]
    pub fn kernarg_segment_size(&self) -> u32 {
        let told = self.metadata.as_ref().map_or(0, |m| m.kernarg_segment_size);
        self.descriptor
            .map(|descriptor| descriptor.kernarg_segment_size)
            .filter(|size| *size != 0)
            .unwrap_or(told)
    }

    /// Alignment of the arguments, bytes; 0 if the metadata does not say.
    #[must_use]
    pub fn kernarg_segment_align(&self) -> u32 {
        self.metadata.as_ref().map_or(0, |m| m.kernarg_segment_align)
    }

    fn size(&self, descriptor: fn(&Descriptor) -> u32, metadata: fn(&KernelMetadata) -> u32) -> u32 {
        let told = || self.metadata.as_ref().map_or(0, metadata);
        self.descriptor.as_ref().map_or_else(told, descriptor)
    }
}

/// What is in a code object, wherever it is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// Hash of its bytes. Of a code object of which only the loaded image was left, of that: then it is not
    /// the hash of the file.
    pub hash: ContentHash,
    /// How its bytes were laid out.
    pub layout: Layout,
    /// Bytes.
    pub size: u64,
    /// Format.
    pub version: Version,
    /// What it is built for, from the ELF header.
    pub target: Target,
    /// What it is built for, from the metadata, e.g. `amdgcn-amd-amdhsa--gfx906:xnack-`; version 4 and later.
    pub target_id: Option<String>,
    /// Lowest address in its own address space, usually 0.
    pub base: u64,
    /// Bytes from there to the end when loaded.
    pub load_size: u64,
    /// Why there is no metadata, if it could not be read.
    pub metadata_error: Option<MetadataError>,
    kernels: Vec<Kernel>,
    /// Of what is the same in the file and in its loaded image.
    constant: Option<ContentHash>,
}

impl Contents {
    /// Reads a code object.
    ///
    /// # Errors
    /// [`ElfError`]. Unreadable metadata is no error: names and sizes are in the symbols and descriptors too.
    pub fn parse(bytes: &[u8], layout: Layout) -> Result<Self, ElfError> {
        Self::parse_hashed(bytes, layout, ContentHash::of(bytes))
    }

    pub(crate) fn parse_hashed(bytes: &[u8], layout: Layout, hash: ContentHash) -> Result<Self, ElfError> {
        let elf = Elf::parse(bytes, layout)?;
        let target = Target::from_flags(elf.flags(), elf.version());
        let (base, load_size) = elf.extent();
        // Version 2 has YAML in another note.
        let (metadata, metadata_error) = match elf.metadata().map(Metadata::parse) {
            Some(Ok(metadata)) => (metadata, None),
            Some(Err(error)) => (Metadata::default(), Some(error)),
            None => (Metadata::default(), None),
        };
        let name_of = |kernel: &KernelMetadata| {
            let name = kernel.symbol.strip_suffix(".kd").unwrap_or(&kernel.symbol);
            name.to_owned()
        };
        let mut described: HashMap<String, KernelMetadata> = metadata
            .kernels
            .into_iter()
            .map(|kernel| (name_of(&kernel), kernel))
            .collect();
        let mut kernels = Vec::new();
        for symbol in elf.kernels()? {
            let name = String::from_utf8_lossy(symbol.name).into_owned();
            let metadata = described.remove(&name);
            let descriptor = match elf.version() {
                Version::V2 => None,
                _ => elf
                    .at(symbol.address, Descriptor::SIZE as u64)
                    .and_then(Descriptor::parse),
            };
            let mut kernel = Kernel {
                name,
                address: symbol.address,
                registers: descriptor.and_then(|descriptor| descriptor.registers(&target)),
                descriptor,
                metadata,
                disagreements: Vec::new(),
            };
            kernel.disagreements = disagreements(&kernel, &target);
            kernels.push(kernel);
        }
        Ok(Self {
            hash,
            layout,
            size: bytes.len() as u64,
            version: elf.version(),
            target,
            target_id: metadata.target,
            base,
            load_size,
            metadata_error,
            kernels,
            constant: image::constant_hash(&elf),
        })
    }

    pub(crate) fn constant_hash(&self) -> Option<ContentHash> {
        self.constant
    }

    /// Its kernels, in order of address.
    #[must_use]
    pub fn kernels(&self) -> &[Kernel] {
        &self.kernels
    }

    /// The kernel whose descriptor is at an address of the code object's own address space.
    #[must_use]
    pub fn kernel_at(&self, address: u64) -> Option<&Kernel> {
        let at = self
            .kernels
            .binary_search_by_key(&address, |kernel| kernel.address)
            .ok()?;
        self.kernels.get(at)
    }
}

/// Compares what is said twice.
fn disagreements(kernel: &Kernel, target: &Target) -> Vec<Disagreement> {
    let (Some(descriptor), Some(metadata)) = (&kernel.descriptor, &kernel.metadata) else {
        return Vec::new();
    };
    // Registers are rounded up to granules, and at least one granule is given. Where accumulation registers
    // are separate, there are as many of both.
    let used = metadata.vgpr_count.max(metadata.agpr_count.unwrap_or(0)).max(1);
    let granule = descriptor.vgpr_granule(target);
    let rounded = used.checked_next_multiple_of(granule).unwrap_or(used);
    let mut pairs = vec![
        (
            Field::GroupSegmentSize,
            descriptor.group_segment_size,
            metadata.group_segment_size,
        ),
        (
            Field::PrivateSegmentSize,
            descriptor.private_segment_size,
            metadata.private_segment_size,
        ),
    ];
    if descriptor.kernarg_segment_size != 0 {
        let sizes = (descriptor.kernarg_segment_size, metadata.kernarg_segment_size);
        pairs.push((Field::KernargSegmentSize, sizes.0, sizes.1));
    }
    if metadata.wavefront_size != 0 {
        pairs.push((
            Field::WavefrontSize,
            descriptor.wavefront_size(),
            metadata.wavefront_size,
        ));
    }
    if target.generation().is_some() {
        pairs.push((Field::VgprCount, descriptor.vgprs(target), rounded));
    }
    let differ = pairs
        .into_iter()
        .filter(|(_, descriptor, metadata)| descriptor != metadata);
    differ
        .map(|(field, descriptor, metadata)| Disagreement {
            field,
            descriptor,
            metadata,
        })
        .collect()
}
