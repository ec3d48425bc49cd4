//! `/etc/ld.so.cache`: where the dynamic linker finds libraries by name.
//!
//! The layout is that of glibc's `sysdeps/generic/dl-cache.h`. Two formats are in use: the new one
//! alone, and the new one after a table in the format of libc5. That table is skipped, as glibc
//! does.

/// A library in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Name that programs ask for, e.g. `libamdhip64.so.5`.
    pub(crate) name: Vec<u8>,
    /// Path of the file.
    pub(crate) path: Vec<u8>,
}

const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
const OLD_MAGIC: &[u8] = b"ld.so-1.7.0\0";
/// Size of the old header: magic and number of entries.
const OLD_HEADER: usize = 16;
/// Size of an old entry: flags and two string offsets.
const OLD_ENTRY: usize = 12;
/// Size of the new header: magic, two counts, flags, offset of extensions, unused.
const HEADER: usize = 48;
/// Size of a new entry: flags, two string offsets, operating system version, hardware capabilities.
const ENTRY: usize = 24;
/// `FLAG_ELF_LIBC6 | FLAG_X8664_LIB64`: a 64-bit x86 library.
const X86_64: u32 = 0x0303;

/// The 64-bit x86 libraries in a cache, in its order. A truncated or damaged cache yields the
/// entries that can be read.
pub(crate) fn parse(bytes: &[u8]) -> Vec<Entry> {
    let Some(cache) = new_format(bytes) else {
        return Vec::new();
    };
    let Some(count) = word(cache, MAGIC.len()) else {
        return Vec::new();
    };
    let entries = cache.get(HEADER..).unwrap_or_default().chunks_exact(ENTRY);
    let entry = |entry: &[u8]| {
        if word(entry, 0)? != X86_64 {
            return None;
        }
        // Offsets of strings are relative to the new format's header.
        Some(Entry {
            name: string(cache, word(entry, 4)?)?,
            path: string(cache, word(entry, 8)?)?,
        })
    };
    entries
        .take(usize::try_from(count).unwrap_or(usize::MAX))
        .filter_map(entry)
        .collect()
}

/// The part of the cache in the new format.
fn new_format(bytes: &[u8]) -> Option<&[u8]> {
    let start = if bytes.starts_with(OLD_MAGIC) {
        let count = usize::try_from(word(bytes, OLD_MAGIC.len())?).ok()?;
        // Aligned for the new part's eight-byte fields.
        count
            .checked_mul(OLD_ENTRY)?
            .checked_add(OLD_HEADER)?
            .checked_next_multiple_of(8)?
    } else {
        0
    };
    bytes.get(start..).filter(|cache| cache.starts_with(MAGIC))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

fn string(cache: &[u8], offset: u32) -> Option<Vec<u8>> {
    /// `PATH_MAX` of Linux.
    const LONGEST: usize = 4096;
    let bytes = cache.get(usize::try_from(offset).ok()?..)?;
    let bytes = bytes.get(..bytes.len().min(LONGEST))?;
    let end = bytes.iter().position(|byte| *byte == 0)?;
    Some(bytes.get(..end)?.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Builds a cache with these entries: flags, name, path.
    fn cache(entries: &[(u32, &str, &str)]) -> Vec<u8> {
        let mut strings = Vec::new();
        let mut table = Vec::new();
        let base = HEADER + entries.len() * ENTRY;
        let mut offset = |text: &str| {
            let at = u32::try_from(base + strings.len()).unwrap();
            strings.extend_from_slice(text.as_bytes());
            strings.push(0);
            at
        };
        for (flags, name, path) in entries {
            for word in [*flags, offset(name), offset(path), 0, 0, 0] {
                table.extend_from_slice(&word.to_le_bytes());
            }
        }
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&u32::try_from(entries.len()).unwrap().to_le_bytes());
        out.extend_from_slice(&u32::try_from(strings.len()).unwrap().to_le_bytes());
        out.resize(HEADER, 0);
        out.extend(table);
        out.extend(strings);
        out
    }

    fn entry(name: &str, path: &str) -> Entry {
        Entry {
            name: name.into(),
            path: path.into(),
        }
    }

    #[test]
    fn both_formats() {
        let new = cache(&[
            (X86_64, "liba.so.1", "/lib/liba.so.1"),
            (3, "liba.so.1", "/lib32/liba.so.1"),
        ]);
        assert_eq!(parse(&new), [entry("liba.so.1", "/lib/liba.so.1")]);
        // The new part follows three old entries: 16 + 36 bytes, aligned to 56.
        let mut old = OLD_MAGIC.to_vec();
        old.extend_from_slice(&3u32.to_le_bytes());
        old.resize(56, 0xff);
        old.extend(&new);
        assert_eq!(parse(&old), parse(&new));
    }

    #[test]
    fn the_cache_of_this_machine() {
        let Ok(bytes) = std::fs::read("/etc/ld.so.cache") else {
            gputrace_skip::skipped("this machine has no /etc/ld.so.cache");
            return;
        };
        let libc: Vec<_> = parse(&bytes)
            .into_iter()
            .filter(|entry| entry.name == b"libc.so.6")
            .collect();
        assert!(!libc.is_empty());
        assert!(libc.iter().all(|entry| entry.path.ends_with(b"/libc.so.6")));
    }

    proptest! {
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200), old: bool) {
            let mut bytes = bytes;
            let magic = if old { OLD_MAGIC } else { MAGIC };
            for (byte, magic) in bytes.iter_mut().zip(magic) {
                *byte = *magic;
            }
            let _ = parse(&bytes);
        }

        #[test]
        fn cut_off_or_changed(at: proptest::sample::Index, value: u8, cut: proptest::sample::Index) {
            let mut bytes = cache(&[(X86_64, "liba.so.1", "/lib/a"), (X86_64, "libb.so", "/lib/b")]);
            let at = at.index(bytes.len());
            bytes[at] = value;
            bytes.truncate(cut.index(bytes.len()));
            prop_assert!(parse(&bytes).len() <= 2);
        }
    }
}
