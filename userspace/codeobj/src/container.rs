//! Files that contain several code objects.
//!
//! Compilers put the code for all GPUs into a *bundle* (`clang-offload-bundler`, "Bundled Binary
//! File Layout"), which may be compressed, and which is a section of the program or library or a
//! file of its own:
//!
//! ```text
//! "__CLANG_OFFLOAD_BUNDLE__" u64 count { u64 offset, u64 size, u64 length, id[length] }*
//!
//! "CCOB" u16 version, u16 method, then by version
//!     1:                  u32 uncompressed size, u64 hash
//!     2: u32 total size,  u32 uncompressed size, u64 hash
//!     3: u64 total size,  u64 uncompressed size, u64 hash
//! ```

use std::{borrow::Cow, io::Read};

use zerocopy::{
    FromBytes, Immutable, KnownLayout, Unaligned,
    little_endian::{U16, U32, U64},
};

use crate::{elf::SectionHeader, uri::Range};

/// Why a bundle cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ContainerError {
    /// The file is neither code for AMD GPUs nor anything that could contain it.
    #[error("there is no AMD GPU code in it")]
    NoCode,
    /// The file ends inside a part.
    #[error("it ends inside its {0}")]
    Truncated(&'static str),
    /// A number is invalid.
    #[error("its {0} make no sense")]
    Corrupt(&'static str),
    /// The compression is newer than gputrace.
    #[error(
        "its bundle is compressed in a way that this gputrace does not know (version {version}, method {method})"
    )]
    UnknownCompression {
        /// Version of the header.
        version: u16,
        /// Number of the method.
        method: u16,
    },
    /// Decompression failed.
    #[error("its compressed bundle cannot be decompressed: {0}")]
    Decompression(String),
    /// The size is unreasonable.
    #[error("its bundle claims {claimed} bytes uncompressed, more than the limit of {limit}")]
    TooLarge {
        /// Size according to the header, bytes.
        claimed: u64,
        /// Maximum decompressed size, bytes.
        limit: u64,
    },
}

/// A code object inside a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Embedded<'a> {
    /// Id of its entry, e.g. `hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-`; `None` outside of bundles.
    pub id: Option<String>,
    /// Its part of the file; `None` if it was compressed.
    pub range: Option<Range>,
    /// Its bytes.
    pub bytes: Cow<'a, [u8]>,
}

const BUNDLE: &[u8] = b"__CLANG_OFFLOAD_BUNDLE__";
const COMPRESSED: &[u8] = b"CCOB";
const ELF: &[u8] = b"\x7fELF";
/// `EM_AMDGPU`.
const MACHINE: u16 = 224;

/// Alignment of bundles that follow each other: a page.
const ALIGNMENT: usize = 4096;
/// Maximum number of entries in a bundle; there are some fifty kinds of GPU.
const MAX_ENTRIES: u64 = 4096;
/// Maximum number of code objects in a file.
const MAX_OBJECTS: usize = 1 << 16;
/// Maximum number of decompressed bytes per file.
const MAX_DECOMPRESSED: u64 = 4 << 30;

/// Lists the code objects in a file, which may be a code object itself, a bundle, a sequence of
/// bundles, or a program or library with the section `.hip_fatbin`. Empty entries and those for the
/// host are left out.
///
/// # Errors
///
/// [`ContainerError`]. A bundle is read completely or not at all: a damaged one yields no list.
pub fn code_objects(file: &[u8]) -> Result<Vec<Embedded<'_>>, ContainerError> {
    if file.starts_with(ELF) {
        let machine = file
            .get(18..20)
            .ok_or(ContainerError::Truncated("file header"))?;
        if U16::read_from_bytes(machine).is_ok_and(|machine| machine.get() == MACHINE) {
            return Ok(vec![Embedded {
                id: None,
                range: Some(Range {
                    offset: 0,
                    size: file.len() as u64,
                }),
                bytes: Cow::Borrowed(file),
            }]);
        }
        let mut list = List::default();
        for section in fat_sections(file)? {
            let bytes = slice(file, section.offset, section.size)
                .ok_or(ContainerError::Truncated("section .hip_fatbin"))?;
            list.bundles(bytes, section.offset)?;
        }
        return list.finish();
    }
    if !is_bundle(file) {
        return Err(ContainerError::NoCode);
    }
    let mut list = List::default();
    list.bundles(file, 0)?;
    list.finish()
}

/// Whether bytes begin like a bundle, compressed or not.
#[must_use]
pub fn is_bundle(bytes: &[u8]) -> bool {
    bytes.starts_with(BUNDLE) || bytes.starts_with(COMPRESSED)
}

#[derive(Default)]
struct List<'a> {
    found: Vec<Embedded<'a>>,
    decompressed: u64,
}

impl<'a> List<'a> {
    fn finish(self) -> Result<Vec<Embedded<'a>>, ContainerError> {
        if self.found.is_empty() {
            return Err(ContainerError::NoCode);
        }
        Ok(self.found)
    }

    /// Reads consecutive bundles; `bytes` begins at offset `base` of the file.
    fn bundles(&mut self, bytes: &'a [u8], base: u64) -> Result<(), ContainerError> {
        let mut at = 0_usize;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let used = if rest.starts_with(BUNDLE) {
                self.plain(rest, base.saturating_add(at as u64))?
            } else if rest.starts_with(COMPRESSED) {
                self.compressed(rest)?
            } else {
                // Skips the padding to the next bundle, if there is one. Bundles begin at pages of
                // the section; compressed ones directly follow each other.
                match rest.iter().position(|byte| *byte != 0) {
                    None => break,
                    Some(zeros)
                        if zeros > 0 && is_bundle(rest.get(zeros..).unwrap_or_default()) =>
                    {
                        zeros
                    }
                    Some(_) => ALIGNMENT - at % ALIGNMENT,
                }
            };
            at = at
                .checked_add(used)
                .ok_or(ContainerError::Corrupt("bundles"))?;
        }
        Ok(())
    }

    /// Reads an uncompressed bundle, and returns its size including its entries.
    fn plain(&mut self, bundle: &'a [u8], base: u64) -> Result<usize, ContainerError> {
        let entries = entries(bundle)?;
        for entry in &entries.list {
            let range = Range {
                offset: base.saturating_add(entry.range.offset),
                size: entry.range.size,
            };
            self.push(&entry.id, Some(range), Cow::Borrowed(entry.bytes))?;
        }
        Ok(entries.end)
    }

    /// Reads a compressed bundle, and returns its compressed size.
    fn compressed(&mut self, bytes: &[u8]) -> Result<usize, ContainerError> {
        let header = Compressed::read(bytes)?;
        let body = bytes
            .get(header.begin..header.end)
            .ok_or(ContainerError::Truncated("compressed bundle"))?;
        let left = MAX_DECOMPRESSED - self.decompressed;
        let (bundle, used) = decompress(body, &header, left)?;
        self.decompressed += bundle.len() as u64;
        if is_bundle(&bundle) {
            for entry in &entries(&bundle)?.list {
                self.push(&entry.id, None, Cow::Owned(entry.bytes.to_vec()))?;
            }
        }
        Ok(header.begin + used)
    }

    fn push(
        &mut self,
        id: &str,
        range: Option<Range>,
        bytes: Cow<'a, [u8]>,
    ) -> Result<(), ContainerError> {
        if bytes.is_empty() || id.starts_with("host") {
            return Ok(());
        }
        if self.found.len() >= MAX_OBJECTS {
            return Err(ContainerError::Corrupt("bundles"));
        }
        // In other uses of bundles, an entry can be a whole host archive. Only code objects matter
        // here.
        if bytes.starts_with(ELF) {
            self.found.push(Embedded {
                id: Some(id.to_owned()),
                range,
                bytes,
            });
        }
        Ok(())
    }
}

struct Entries<'a> {
    list: Vec<Entry<'a>>,
    /// End of the last entry, bytes from the beginning of the bundle.
    end: usize,
}

struct Entry<'a> {
    id: String,
    range: Range,
    bytes: &'a [u8],
}

/// Reads the entries of an uncompressed bundle.
fn entries(bundle: &[u8]) -> Result<Entries<'_>, ContainerError> {
    let cut = || ContainerError::Truncated("bundle");
    let word = |rest: &mut &[u8]| -> Option<u64> {
        let (word, tail) = U64::read_from_prefix(rest).ok()?;
        // The value is a copy; `rest` keeps its own lifetime, and only its beginning moves.
        *rest = rest.get(rest.len() - tail.len()..)?;
        Some(word.get())
    };
    let mut rest = bundle.strip_prefix(BUNDLE).ok_or_else(cut)?;
    let count = word(&mut rest).ok_or_else(cut)?;
    if count > MAX_ENTRIES {
        return Err(ContainerError::Corrupt("bundle entries"));
    }
    let mut entries = Entries {
        list: Vec::new(),
        end: 0,
    };
    let mut total = 0_u64;
    for _ in 0..count {
        let range = Range {
            offset: word(&mut rest).ok_or_else(cut)?,
            size: word(&mut rest).ok_or_else(cut)?,
        };
        let length = word(&mut rest).and_then(|length| usize::try_from(length).ok());
        let (id, tail) = length
            .and_then(|length| rest.split_at_checked(length))
            .ok_or_else(cut)?;
        rest = tail;
        // Entries do not overlap, so together they are no larger than the bundle.
        total = total.saturating_add(range.size);
        if total > bundle.len() as u64 {
            return Err(ContainerError::Corrupt("bundle entries"));
        }
        let bytes = slice(bundle, range.offset, range.size).ok_or_else(cut)?;
        let end = range.offset.saturating_add(range.size);
        entries.end = entries.end.max(usize::try_from(end).unwrap_or(usize::MAX));
        entries.list.push(Entry {
            id: String::from_utf8_lossy(id).into_owned(),
            range,
            bytes,
        });
    }
    entries.end = entries.end.max(bundle.len() - rest.len());
    Ok(entries)
}

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct CompressedStart {
    magic: [u8; 4],
    version: U16,
    method: U16,
}

/// Header of a compressed bundle.
struct Compressed {
    version: u16,
    method: u16,
    /// Offset where the compressed bytes begin. Version 1 does not store where they end.
    begin: usize,
    end: usize,
    ends_known: bool,
    uncompressed: u64,
}

impl Compressed {
    fn read(bytes: &[u8]) -> Result<Self, ContainerError> {
        let cut = || ContainerError::Truncated("header of a compressed bundle");
        let (start, _) = CompressedStart::ref_from_prefix(bytes).map_err(|_| cut())?;
        let (version, method) = (start.version.get(), start.method.get());
        let small = |at: usize| {
            let field = bytes
                .get(at..)
                .and_then(|bytes| U32::read_from_prefix(bytes).ok());
            field
                .map(|(field, _)| u64::from(field.get()))
                .ok_or_else(cut)
        };
        let large = |at: usize| {
            let field = bytes
                .get(at..)
                .and_then(|bytes| U64::read_from_prefix(bytes).ok());
            field.map(|(field, _)| field.get()).ok_or_else(cut)
        };
        let (total, uncompressed, begin) = match version {
            1 => (None, small(8)?, 20),
            2 => (Some(small(8)?), small(12)?, 24),
            3 => (Some(large(8)?), large(16)?, 32),
            _ => return Err(ContainerError::UnknownCompression { version, method }),
        };
        let end = match total {
            Some(total) => usize::try_from(total).map_err(|_| cut())?,
            None => bytes.len(),
        };
        if end < begin {
            return Err(ContainerError::Corrupt("sizes of a compressed bundle"));
        }
        Ok(Self {
            version,
            method,
            begin,
            end,
            ends_known: total.is_some(),
            uncompressed,
        })
    }
}

/// Decompresses a bundle, and returns the result with the number of input bytes used.
fn decompress(
    body: &[u8],
    header: &Compressed,
    limit: u64,
) -> Result<(Vec<u8>, usize), ContainerError> {
    let failed = |error: &dyn std::fmt::Display| ContainerError::Decompression(error.to_string());
    if header.uncompressed > limit {
        return Err(ContainerError::TooLarge {
            claimed: header.uncompressed,
            limit,
        });
    }
    let mut bytes = Vec::new();
    let mut rest = body;
    // A surplus byte would show that the promised size was wrong.
    let promised = header.uncompressed + 1;
    match header.method {
        0 => {
            let mut decoder = flate2::bufread::ZlibDecoder::new(rest);
            let read = decoder.by_ref().take(promised).read_to_end(&mut bytes);
            read.map_err(|error| failed(&error))?;
            rest = decoder.into_inner();
        }
        1 => {
            // The window takes memory. Except for the smallest ones, it need not be larger than the
            // decompressed data.
            let window = header.uncompressed.max(1 << 20).next_power_of_two();
            let decoder =
                ruzstd::decoding::StreamingDecoder::new_with_max_window_size(&mut rest, window);
            let mut decoder = decoder.map_err(|error| failed(&error))?;
            let read = decoder.by_ref().take(promised).read_to_end(&mut bytes);
            read.map_err(|error| failed(&error))?;
        }
        method => {
            return Err(ContainerError::UnknownCompression {
                version: header.version,
                method,
            });
        }
    }
    if bytes.len() as u64 != header.uncompressed {
        return Err(ContainerError::Corrupt("sizes of a compressed bundle"));
    }
    let used = if header.ends_known {
        body.len()
    } else {
        body.len() - rest.len()
    };
    Ok((bytes, used))
}

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct FileHeader {
    start: [u8; 40],
    section_headers: U64,
    middle: [u8; 10],
    section_header_size: U16,
    section_header_count: U16,
    section_names: U16,
}

/// `SHT_NOBITS`.
const NO_BITS: u32 = 8;

/// Finds the section `.hip_fatbin` of a host program.
fn fat_sections(file: &[u8]) -> Result<Vec<Range>, ContainerError> {
    let cut = ContainerError::Truncated("section headers");
    let Ok((header, _)) = FileHeader::ref_from_prefix(file) else {
        return Err(ContainerError::Truncated("file header"));
    };
    if header.start.get(4..6) != Some(&[2, 1]) {
        // 32-bit or big-endian programs contain no GPU code for ROCm.
        return Err(ContainerError::NoCode);
    }
    let count = usize::from(header.section_header_count.get());
    if count == 0 || usize::from(header.section_header_size.get()) != size_of::<SectionHeader>() {
        return Err(ContainerError::NoCode);
    }
    let size = (count * size_of::<SectionHeader>()) as u64;
    let Some(Ok(sections)) =
        slice(file, header.section_headers.get(), size).map(<[SectionHeader]>::ref_from_bytes)
    else {
        return Err(cut);
    };
    let names = sections.get(usize::from(header.section_names.get()));
    let Some(names) = names.and_then(|names| slice(file, names.offset.get(), names.size.get()))
    else {
        return Err(cut);
    };
    let is_fat = |section: &&SectionHeader| {
        let name = names.get(section.name.get() as usize..);
        section.kind.get() != NO_BITS && name.is_some_and(|name| name.starts_with(b".hip_fatbin\0"))
    };
    let range = |section: &SectionHeader| Range {
        offset: section.offset.get(),
        size: section.size.get(),
    };
    // Linkers create only one such section.
    Ok(sections.iter().filter(is_fat).take(1).map(range).collect())
}

fn slice(bytes: &[u8], offset: u64, size: u64) -> Option<&[u8]> {
    let begin = usize::try_from(offset).ok()?;
    let end = begin.checked_add(usize::try_from(size).ok()?)?;
    bytes.get(begin..end)
}

#[cfg(test)]
mod tests;
