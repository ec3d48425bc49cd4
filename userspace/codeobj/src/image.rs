//! The loaded image of a code object.
//!
//! The loader lays a code object out as it will be in memory (`loader/executable.cpp` of ROCr). For
//! a GPU with its own memory, it does so in host memory, copies that to the GPU, and keeps the
//! host's copy for as long as the code object is loaded; the runtime's
//! `hsa_ven_amd_loader_query_host_address` returns addresses in it. That copy is the only data in
//! the process that is certain to be what was loaded: the file or memory that the URI names may be
//! gone or have other contents by now.
//!
//! No public interface returns the copy's address. The loader's object has the vector of its
//! segments directly before the list entry that it contains. A segment has a pointer to its memory,
//! which is
//!
//! ```text
//! { virtual table, region, address on the GPU, address of the host's copy, size, .. }
//! ```
//!
//! This is the same in ROCm 5.2.3, 5.7.1 and 6.4.3, but is not relied on: words are searched for
//! these five, and accepted only if address and size match those of the ELF file that begins there.

use zerocopy::{FromBytes, little_endian::U64};

use crate::{
    elf::{Elf, Layout},
    hash::ContentHash,
    memory::Memory,
    registry::Listed,
    source::MAX_CODE_OBJECT,
};

/// Number of bytes read to find headers: code objects have about ten program headers.
const HEADERS: usize = 4096;
/// Number of words before a list entry that are searched for the vector of segments.
const BEFORE: u64 = 16;
/// Number of words of a segment that are read.
const SEGMENT: usize = 12;
/// Number of words of a segment's memory that are read.
const STORAGE: usize = 8;
/// Maximum number of bytes by which an image is recognised at each update.
const MAX_BEGINNING: u64 = 1 << 14;
/// Maximum number of bytes of constant data that are compared. Names, notes and descriptors of most
/// code objects take some KB.
const MAX_CONSTANT: u64 = 256 << 20;

/// An image that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Image {
    /// Host address of its lowest address.
    address: u64,
    /// Its lowest address in the code object's own address space.
    base: u64,
    /// Size, bytes.
    size: u64,
    /// The first of its constant parts: its host address, and the number of its bytes that are used
    /// for recognition.
    constant: (u64, u64),
}

impl Image {
    /// Finds the image of a code object.
    pub(crate) fn find(memory: &impl Memory, listed: &Listed) -> Option<Self> {
        // On APUs, and where the host can access all of the GPU's memory, the image can be read in
        // place.
        if let Some(image) = Self::at(memory, listed.load_delta)
            && image.base == 0
        {
            return Some(image);
        }
        Self::copy(memory, listed)
    }

    /// An image that begins at `address`, according to its headers.
    fn at(memory: &impl Memory, address: u64) -> Option<Self> {
        let mut headers = [0; HEADERS];
        let got = memory.read_some(address, &mut headers).ok()?;
        let elf = Elf::parse(headers.get(..got)?, Layout::Loaded).ok()?;
        let (base, size) = elf.extent();
        if size == 0 || size > MAX_CODE_OBJECT {
            return None;
        }
        let (constant, constant_size) = elf.constants().next()?;
        let constant = address.checked_add(constant.checked_sub(base)?)?;
        Some(Self {
            address,
            base,
            size,
            constant: (constant, constant_size.min(MAX_BEGINNING)),
        })
    }

    /// Finds the host's copy.
    fn copy(memory: &impl Memory, listed: &Listed) -> Option<Self> {
        let before = words::<{ BEFORE as usize }>(memory, listed.entry.checked_sub(8 * BEFORE)?);
        // The vector directly precedes the entry, so the search goes backwards.
        for first in before.into_iter().rev().filter(is_pointer) {
            let [segment] = words::<1>(memory, first);
            if !is_pointer(&segment) {
                continue;
            }
            for storage in words::<SEGMENT>(memory, segment)
                .into_iter()
                .filter(is_pointer)
            {
                for window in words::<STORAGE>(memory, storage).windows(3) {
                    let &[place, copy, size] = window else {
                        continue;
                    };
                    let Some(image) = is_pointer(&copy).then(|| Self::at(memory, copy)).flatten()
                    else {
                        continue;
                    };
                    if place == listed.load_delta.wrapping_add(image.base) && size == image.size {
                        return Some(image);
                    }
                }
            }
        }
        None
    }

    /// Reads the whole image.
    pub(crate) fn read(&self, memory: &impl Memory) -> Option<Vec<u8>> {
        memory.bytes(self.address, self.size, MAX_CODE_OBJECT).ok()
    }

    /// Size of the whole image, bytes.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Hash of the beginning of its constant data: headers, notes and, in all but large images,
    /// symbols. It shows whether the image was replaced. `None` if the image is gone.
    pub(crate) fn beginning(&self, memory: &impl Memory) -> Option<ContentHash> {
        let (address, size) = self.constant;
        let bytes = memory.bytes(address, size, MAX_BEGINNING).ok()?;
        Some(ContentHash::of(&bytes))
    }

    /// Hash of its constant data, computed as [`constant_hash`] does for a file.
    pub(crate) fn constant_hash(&self, memory: &impl Memory) -> Option<ContentHash> {
        let mut headers = [0; HEADERS];
        let got = memory.read_some(self.address, &mut headers).ok()?;
        let elf = Elf::parse(headers.get(..got)?, Layout::Loaded).ok()?;
        let mut data = Vec::new();
        for (address, size) in elf.constants() {
            let at = self.address.checked_add(address.checked_sub(self.base)?)?;
            let left = MAX_CONSTANT.checked_sub(data.len() as u64)?;
            data.extend(memory.bytes(at, size, left).ok()?);
        }
        (!data.is_empty()).then(|| ContentHash::of(&data))
    }
}

/// Hash of the segments that are neither writable nor executable. The loader does not change them,
/// and they contain names, sizes and registers. `None` if there are none, or they are unreasonably
/// large.
pub(crate) fn constant_hash(elf: &Elf<'_>) -> Option<ContentHash> {
    let mut data = Vec::new();
    for (address, size) in elf.constants() {
        // The size comes from the file and can be any number.
        if size > MAX_CONSTANT.checked_sub(data.len() as u64)? {
            return None;
        }
        data.extend(elf.at(address, size)?);
    }
    (!data.is_empty()).then(|| ContentHash::of(&data))
}

/// Reads words of memory; 0 for those that cannot be read.
fn words<const N: usize>(memory: &impl Memory, address: u64) -> [u64; N] {
    let mut bytes = vec![0; N * 8];
    let got = memory.read_some(address, &mut bytes).unwrap_or(0);
    let read = bytes.get(..got / 8 * 8).unwrap_or_default();
    let mut words = [0; N];
    for (word, bytes) in words.iter_mut().zip(read.chunks_exact(8)) {
        *word = U64::read_from_bytes(bytes).map_or(0, U64::get);
    }
    words
}

/// Whether a word can be a pointer on x86-64.
fn is_pointer(word: &u64) -> bool {
    (0x1_0000..1 << 47).contains(word) && word.is_multiple_of(8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Fake, code_object};
    use proptest::prelude::*;

    /// Addresses in the simulated process.
    const ENTRY: u64 = 0x20_0000;
    const DELTA: u64 = 0x7f00_0000_0000;
    const COPY: u64 = 0x50_0000;

    fn listed() -> Listed {
        Listed {
            entry: ENTRY,
            load_delta: DELTA,
            uri: b"file:///a".to_vec(),
        }
    }

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// A process in the state that ROCr creates: vector of segments, segment, its memory, the
    /// host's copy.
    fn process() -> Fake {
        let (vector, segment, storage) = (0x30_0000, 0x31_0000, 0x32_0000);
        let before = [0, 1, vector, vector + 8, vector + 8];
        Fake {
            parts: vec![
                (ENTRY - 40, bytes(&before)),
                (vector, bytes(&[segment])),
                (segment, bytes(&[8, 8, 8, 8, 3, storage, 0x600, 0])),
                (storage, bytes(&[8, 8, DELTA, COPY, 0x600, 1])),
                (COPY, code_object(false)),
            ],
            ..Fake::default()
        }
    }

    #[test]
    fn the_copy_is_found() {
        // All words before the entry are read at once.
        let mut memory = process();
        memory.parts[0] = (
            ENTRY - 128,
            [vec![0; 88], memory.parts[0].1.clone()].concat(),
        );
        let image = Image::find(&memory, &listed()).unwrap();
        assert_eq!((image.address, image.base, image.size()), (COPY, 0, 0x600));
        assert!(image.read(&memory).unwrap() == code_object(false));
        let contents = crate::Contents::parse(&code_object(false), Layout::File).unwrap();
        assert_eq!(image.constant_hash(&memory), contents.constant_hash());
        let before = image.beginning(&memory).unwrap();
        memory.parts[4].1[0x210] ^= 1;
        assert_ne!(image.beginning(&memory), Some(before));
        assert_ne!(image.constant_hash(&memory), contents.constant_hash());
        memory.parts.pop();
        assert_eq!(image.beginning(&memory), None);
        assert_eq!(Image::find(&memory, &listed()), None);
    }

    #[test]
    fn an_image_that_the_host_sees() {
        let mut memory = process();
        memory.parts.push((DELTA, code_object(true)));
        let image = Image::find(&memory, &listed()).unwrap();
        assert_eq!(image.address, DELTA);
    }

    #[test]
    fn what_only_looks_like_it_is_not_accepted() {
        for (word, value) in [(2, DELTA + 8), (3, COPY + 8), (4, 0x601)] {
            let mut memory = process();
            memory.parts[0] = (
                ENTRY - 128,
                [vec![0; 88], memory.parts[0].1.clone()].concat(),
            );
            assert!(Image::find(&memory, &listed()).is_some());
            memory.parts[3].1[8 * word..8 * word + 8].copy_from_slice(&u64::to_le_bytes(value));
            assert_eq!(Image::find(&memory, &listed()), None, "{word}");
        }
    }

    /// Found by fuzzing: a second segment of constant data with maximum size.
    #[test]
    fn a_segment_of_any_size_is_no_sum() {
        let mut file = code_object(false);
        // Offsets in `Elf64_Ehdr` and `Elf64_Phdr`: the headers' position and number, and each
        // header's flags and sizes.
        let headers = u64::from_le_bytes(file[32..40].try_into().unwrap()) as usize;
        let count = u16::from_le_bytes(file[56..58].try_into().unwrap());
        let headers: Vec<usize> = (0..usize::from(count))
            .map(|place| headers + 56 * place)
            .collect();
        assert!(headers.len() >= 2);
        for (place, at) in headers.into_iter().enumerate() {
            file[at..at + 4].copy_from_slice(&1u32.to_le_bytes());
            file[at + 4..at + 8].copy_from_slice(&4u32.to_le_bytes());
            if place > 0 {
                file[at + 32..at + 40].copy_from_slice(&u64::MAX.to_le_bytes());
            }
        }
        for layout in [Layout::File, Layout::Loaded] {
            if let Ok(elf) = Elf::parse(&file, layout) {
                assert_eq!(constant_hash(&elf), None);
            }
        }
        assert!(Elf::parse(&file, Layout::File).is_ok());
    }

    proptest! {
        /// Every word is a pointer: the search must stay small.
        #[test]
        fn any_pointers(words in proptest::collection::vec(0..64_u64, 64)) {
            let words: Vec<u64> = words.iter().map(|word| ENTRY - 128 + 8 * word).collect();
            let memory = Fake { parts: vec![(ENTRY - 128, bytes(&words))], ..Fake::default() };
            prop_assert_eq!(Image::find(&memory, &listed()), None);
            prop_assert!(memory.reads.get() < 10_000);
        }
    }
}
