//! The contents of a code object: its target and its kernels.

use std::collections::HashMap;

use crate::{
    descriptor::{Descriptor, Registers},
    elf::{Elf, ElfError, Layout},
    hash::ContentHash,
    image,
    isa::{Target, Version},
    metadata::{KernelMetadata, Metadata, MetadataError},
};

/// A value that differs between descriptor and metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Disagreement {
    /// The value.
    pub field: Field,
    /// Value in the descriptor, which the hardware uses.
    pub descriptor: u32,
    /// Value in the metadata.
    pub metadata: u32,
}

/// Values that are in the descriptor as well as in the metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    /// Fixed LDS, bytes.
    GroupSegmentSize,
    /// Fixed scratch, bytes.
    PrivateSegmentSize,
    /// Size of the arguments, bytes.
    KernargSegmentSize,
    /// Number of work-items per wave.
    WavefrontSize,
    /// Number of vector registers: the metadata's number rounded up to the descriptor's granule.
    VgprCount,
}

/// A kernel of a code object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Name as in the code, mangled for C++, without `.kd`.
    pub name: String,
    /// Address of its descriptor in the code object's own address space. The handle `kernel_object`
    /// in dispatch packets is this plus [`CodeObject::load_delta`](crate::CodeObject::load_delta).
    pub address: u64,
    /// Its descriptor; `None` for code object version 2, which has none.
    pub descriptor: Option<Descriptor>,
    /// Its metadata.
    pub metadata: Option<KernelMetadata>,
    /// Registers allocated to a wave; `None` without a descriptor, or for a GPU newer than
    /// gputrace.
    pub registers: Option<Registers>,
    /// Values that differ between descriptor and metadata. Compilers write none.
    pub disagreements: Vec<Disagreement>,
}

impl Kernel {
    /// Name for people: demangled if it is mangled.
    #[must_use]
    pub fn demangled(&self) -> String {
        gputrace_demangle::demangle(&self.name).unwrap_or_else(|| self.name.clone())
    }

    /// Fixed LDS per workgroup, bytes. A dispatch may request more.
    #[must_use]
    pub fn group_segment_size(&self) -> u32 {
        self.size(|d| d.group_segment_size, |m| m.group_segment_size)
    }

    /// Fixed scratch per work-item, bytes.
    #[must_use]
    pub fn private_segment_size(&self) -> u32 {
        self.size(|d| d.private_segment_size, |m| m.private_segment_size)
    }

    /// Size of the arguments, bytes.
    #[must_use]
    pub fn kernarg_segment_size(&self) -> u32 {
        let told = self.metadata.as_ref().map_or(0, |m| m.kernarg_segment_size);
        self.descriptor
            .map(|descriptor| descriptor.kernarg_segment_size)
            .filter(|size| *size != 0)
            .unwrap_or(told)
    }

    /// Alignment of the arguments, bytes; 0 if the metadata does not contain it.
    #[must_use]
    pub fn kernarg_segment_align(&self) -> u32 {
        self.metadata
            .as_ref()
            .map_or(0, |m| m.kernarg_segment_align)
    }

    fn size(
        &self,
        descriptor: fn(&Descriptor) -> u32,
        metadata: fn(&KernelMetadata) -> u32,
    ) -> u32 {
        let told = || self.metadata.as_ref().map_or(0, metadata);
        self.descriptor.as_ref().map_or_else(told, descriptor)
    }
}

/// The contents of a code object, independent of where it is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// Hash of its bytes. If only the loaded image of the code object was left, the hash of that,
    /// which differs from the file's.
    pub hash: ContentHash,
    /// Layout of the bytes that were read.
    pub layout: Layout,
    /// Size, bytes.
    pub size: u64,
    /// Version of the format.
    pub version: Version,
    /// Target according to the ELF header.
    pub target: Target,
    /// Target according to the metadata, e.g. `amdgcn-amd-amdhsa--gfx906:xnack-`; version 4 and
    /// later.
    pub target_id: Option<String>,
    /// Lowest address in its own address space, usually 0.
    pub base: u64,
    /// Size when loaded, from there to the end, bytes.
    pub load_size: u64,
    /// Why the metadata could not be read, if it could not.
    pub metadata_error: Option<MetadataError>,
    kernels: Vec<Kernel>,
    /// Hash of the parts that are identical in the file and in its loaded image.
    constant: Option<ContentHash>,
}

impl Contents {
    /// Parses a code object.
    ///
    /// # Errors
    ///
    /// [`ElfError`]. Unreadable metadata is not an error: names and sizes are also in the symbols
    /// and descriptors.
    pub fn parse(bytes: &[u8], layout: Layout) -> Result<Self, ElfError> {
        Self::parse_hashed(bytes, layout, ContentHash::of(bytes))
    }

    pub(crate) fn parse_hashed(
        bytes: &[u8],
        layout: Layout,
        hash: ContentHash,
    ) -> Result<Self, ElfError> {
        let elf = Elf::parse(bytes, layout)?;
        let target = Target::from_flags(elf.flags(), elf.version());
        let (base, load_size) = elf.extent();
        // Version 2 has YAML in a different note.
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

/// Compares the values that are stored twice.
fn disagreements(kernel: &Kernel, target: &Target) -> Vec<Disagreement> {
    let (Some(descriptor), Some(metadata)) = (&kernel.descriptor, &kernel.metadata) else {
        return Vec::new();
    };
    // Registers are rounded up to granules, and at least one granule is allocated. If accumulation
    // registers are separate, there are as many of them as of the others.
    let used = metadata
        .vgpr_count
        .max(metadata.agpr_count.unwrap_or(0))
        .max(1);
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
        let sizes = (
            descriptor.kernarg_segment_size,
            metadata.kernarg_segment_size,
        );
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{DESCRIPTOR, NOTE, code_object};
    use proptest::prelude::*;

    const LAYOUTS: [Layout; 2] = [Layout::File, Layout::Loaded];

    #[test]
    fn all_ways_to_the_symbols() {
        let mut hashes = Vec::new();
        for (sections, layout) in [
            (true, Layout::File),
            (false, Layout::File),
            (true, Layout::Loaded),
        ] {
            let contents = Contents::parse(&code_object(sections), layout).unwrap();
            let names: Vec<_> = contents
                .kernels()
                .iter()
                .map(|kernel| kernel.name.as_str())
                .collect();
            assert_eq!(names, ["first", "second"]);
            assert_eq!((contents.base, contents.load_size), (0, 0x600));
            assert_eq!(contents.target.to_string(), "gfx906");
            let second = contents.kernel_at(DESCRIPTOR + 64).unwrap();
            assert_eq!(second.name, "second");
            assert_eq!(second.group_segment_size(), 512);
            assert_eq!(second.metadata.as_ref().unwrap().vgpr_count, 3);
            assert_eq!(second.disagreements, []);
            assert_eq!(contents.kernel_at(DESCRIPTOR + 1), None);
            hashes.push((sections, contents.constant_hash().unwrap()));
        }
        assert_eq!(hashes[0], hashes[2]);
    }

    #[test]
    fn contradictions() {
        let mut bytes = code_object(true);
        bytes[DESCRIPTOR as usize] = 1;
        bytes[DESCRIPTOR as usize + 48] = 1;
        let contents = Contents::parse(&bytes, Layout::File).unwrap();
        let expected = [
            (Field::GroupSegmentSize, 513, 512),
            (Field::VgprCount, 8, 4),
        ];
        let found: Vec<_> = contents.kernels()[0]
            .disagreements
            .iter()
            .map(|found| (found.field, found.descriptor, found.metadata))
            .collect();
        assert_eq!(found, expected);
        assert_eq!(contents.kernels()[0].group_segment_size(), 513);
    }

    #[test]
    fn unreadable_metadata_is_no_obstacle() {
        let mut bytes = code_object(true);
        bytes[NOTE + 20] = 0xc1;
        let contents = Contents::parse(&bytes, Layout::File).unwrap();
        assert_eq!(contents.metadata_error, Some(MetadataError::NotAmdhsa));
        assert_eq!(contents.kernels().len(), 2);
    }

    #[test]
    fn other_files() {
        let with = |at: usize, byte: u8| {
            let mut bytes = code_object(true);
            bytes[at] = byte;
            Contents::parse(&bytes, Layout::File).unwrap_err()
        };
        assert_eq!(with(0, 0), ElfError::NotElf);
        assert_eq!(with(18, 62), ElfError::NotAmdgpu);
        assert_eq!(with(4, 1), ElfError::NotAmdgpu);
        assert_eq!(with(7, 65), ElfError::NotHsa(65));
        assert_eq!(with(8, 9), ElfError::UnknownVersion(9));
        assert_eq!(with(54, 55), ElfError::Corrupt("program headers"));
        assert_eq!(with(35, 0xff), ElfError::Truncated("program headers"));
        assert_eq!(with(43, 0xff), ElfError::Truncated("section headers"));
        assert_eq!(Contents::parse(&[], Layout::File), Err(ElfError::NotElf));
    }

    #[test]
    fn names_that_are_shared_without_end() {
        // Many symbols whose names are all suffixes of one long text.
        let mut bytes = code_object(true);
        let (symbols, names) = (bytes.len() as u64, 60_000_u64);
        let symbol = bytes[0x380 + 24..0x380 + 48].to_vec();
        for i in 0..2000_u32 {
            let mut symbol = symbol.clone();
            symbol[..4].copy_from_slice(&i.to_le_bytes());
            bytes.extend(symbol);
        }
        let table = bytes.len() as u64;
        bytes.resize(bytes.len() + names as usize, b'x');
        bytes.extend(b".kd\0");
        for (at, word) in [
            (0x598, symbols),
            (0x5a0, 2000 * 24),
            (0x5d8, table),
            (0x5e0, names + 4),
        ] {
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        assert_eq!(
            Contents::parse(&bytes, Layout::File),
            Err(ElfError::Corrupt("symbol names"))
        );
    }

    proptest! {
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            for layout in LAYOUTS {
                let _ = Contents::parse(&bytes, layout);
            }
        }

        #[test]
        fn damaged(
            changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..8),
            keep: proptest::sample::Index,
            cut: bool,
            sections: bool,
        ) {
            let mut bytes = code_object(sections);
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if cut {
                bytes.truncate(keep.index(bytes.len()));
            }
            for layout in LAYOUTS {
                if let Ok(contents) = Contents::parse(&bytes, layout) {
                    prop_assert!(contents.kernels().windows(2).all(|pair| pair[0].address < pair[1].address));
                }
            }
        }

        /// Headers with large numbers, where sums and products overflow.
        #[test]
        fn large_numbers(
            at in 0..0xe8_usize,
            word in prop_oneof![Just(u64::MAX), Just(1 << 63), any::<u64>()],
            sections: bool,
        ) {
            let mut bytes = code_object(sections);
            let at = at.max(24);
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
            for layout in LAYOUTS {
                let _ = Contents::parse(&bytes, layout);
            }
        }
    }
}
