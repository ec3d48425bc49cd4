//! URIs by which the loader names the origin of a code object.
//!
//! ROCr names every loaded code object by a URI (`hsa_ven_amd_loader.h`, "code object URI"; AMDGPU
//! usage, "Loaded Code Object Path Uniform Resource Identifier"):
//!
//! ```text
//! file://PATH[#offset=NUMBER&size=NUMBER]     PATH percent-encoded; without a range the whole file
//! memory://PID#offset=NUMBER&size=NUMBER      an address in the process; PID as the process itself sees it
//! ```

use std::{ffi::OsString, os::unix::ffi::OsStringExt, path::PathBuf};

/// Maximum length of a URI, bytes: every byte of the longest path encoded, plus the range.
pub const MAX_URI: usize = 3 * 4096 + 128;

/// A part of a file or of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Range {
    /// File offset or address, bytes.
    pub offset: u64,
    /// Size, bytes.
    pub size: u64,
}

/// Origin of a code object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Uri {
    /// A file.
    File {
        /// Path as the process saw it. Usually absolute; relative for libraries that the dynamic
        /// linker found by a relative path.
        path: PathBuf,
        /// Part of the file; `None` for the whole file.
        range: Option<Range>,
    },
    /// Memory of the process.
    Memory {
        /// Process id in the process's own pid namespace.
        pid: u32,
        /// Address range.
        range: Range,
    },
}

/// Why a text is not a URI of a code object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UriError {
    /// The scheme is neither `file://` nor `memory://`.
    #[error("it begins neither with file:// nor with memory://")]
    Scheme,
    /// The path is empty, or contains a zero byte or a bad `%` escape.
    #[error("its path is empty or badly encoded")]
    Path,
    /// The process id is invalid.
    #[error("it names no process")]
    Process,
    /// The range is missing, incomplete, invalid, or has unknown parts.
    #[error("its offset and size make no sense")]
    Range,
}

impl Uri {
    /// Parses a URI.
    ///
    /// # Errors
    ///
    /// [`UriError`].
    pub fn parse(uri: &[u8]) -> Result<Self, UriError> {
        let (place, fragment) = match uri.iter().position(|byte| *byte == b'#') {
            Some(at) => (
                uri.get(..at).unwrap_or_default(),
                Some(uri.get(at + 1..).unwrap_or_default()),
            ),
            None => (uri, None),
        };
        let range = fragment.map(range).transpose()?;
        if let Some(path) = place.strip_prefix(b"file://") {
            let path = decode(path).ok_or(UriError::Path)?;
            if path.is_empty() || path.contains(&0) {
                return Err(UriError::Path);
            }
            return Ok(Self::File {
                path: PathBuf::from(OsString::from_vec(path)),
                range,
            });
        }
        let pid = place.strip_prefix(b"memory://").ok_or(UriError::Scheme)?;
        Ok(Self::Memory {
            pid: number(pid)
                .and_then(|pid| u32::try_from(pid).ok())
                .ok_or(UriError::Process)?,
            range: range.ok_or(UriError::Range)?,
        })
    }
}

/// Parses `offset=NUMBER&size=NUMBER`, in either order.
fn range(fragment: &[u8]) -> Result<Range, UriError> {
    let (mut offset, mut size) = (None, None);
    for part in fragment.split(|byte| *byte == b'&') {
        let (field, digits) = if let Some(digits) = part.strip_prefix(b"offset=") {
            (&mut offset, digits)
        } else if let Some(digits) = part.strip_prefix(b"size=") {
            (&mut size, digits)
        } else {
            return Err(UriError::Range);
        };
        if field
            .replace(number(digits).ok_or(UriError::Range)?)
            .is_some()
        {
            return Err(UriError::Range);
        }
    }
    match (offset, size) {
        (Some(offset), Some(size)) if offset.checked_add(size).is_some() => {
            Ok(Range { offset, size })
        }
        _ => Err(UriError::Range),
    }
}

/// Parses a decimal number, or a hexadecimal one after `0x`.
fn number(digits: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(digits).ok()?;
    let (digits, radix) = match digits
        .strip_prefix("0x")
        .or_else(|| digits.strip_prefix("0X"))
    {
        Some(digits) => (digits, 16),
        None => (digits, 10),
    };
    // `from_str_radix` would accept a sign.
    if digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        u64::from_str_radix(digits, radix).ok()
    } else {
        None
    }
}

/// Decodes percent encoding.
fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        rest = after;
        let digit = |at: usize| char::from(*digits.get(at)?).to_digit(16);
        bytes.push(u8::try_from(digit(0)? * 16 + digit(1)?).ok()?);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::ffi::OsStrExt;

    fn parse(uri: &str) -> Result<Uri, UriError> {
        Uri::parse(uri.as_bytes())
    }

    #[test]
    fn files() {
        assert_eq!(
            parse("file:///tmp/a%20b%2fc#offset=45056&size=27320"),
            Ok(Uri::File {
                path: "/tmp/a b/c".into(),
                range: Some(Range {
                    offset: 45056,
                    size: 27320
                })
            })
        );
        assert_eq!(
            parse("file://./lib/x.so"),
            Ok(Uri::File {
                path: "./lib/x.so".into(),
                range: None
            })
        );
        assert_eq!(parse("file://"), Err(UriError::Path));
        assert_eq!(parse("file:///a%0"), Err(UriError::Path));
        assert_eq!(parse("file:///a%0g"), Err(UriError::Path));
        assert_eq!(parse("file:///a%00b"), Err(UriError::Path));
    }

    #[test]
    fn memory() {
        assert_eq!(
            parse("memory://1120#offset=0x55b5a7e1cdc0&size=30632"),
            Ok(Uri::Memory {
                pid: 1120,
                range: Range {
                    offset: 0x55b5_a7e1_cdc0,
                    size: 30632
                }
            })
        );
        assert_eq!(parse("memory://7"), Err(UriError::Range));
        assert_eq!(parse("memory://-7#offset=0&size=1"), Err(UriError::Process));
        assert_eq!(parse("memory://#offset=0&size=1"), Err(UriError::Process));
    }

    #[test]
    fn ranges_and_schemes() {
        for fragment in [
            "",
            "offset=1",
            "size=1",
            "offset=1&size=2&size=2",
            "offset=1&size=2&more=3",
            "offset=+1&size=2",
            "offset=1&size=-2",
            "offset=18446744073709551615&size=2",
            "offset=18446744073709551616&size=2",
            "offset=0x&size=2",
        ] {
            assert_eq!(
                parse(&format!("file:///x#{fragment}")),
                Err(UriError::Range),
                "{fragment}"
            );
        }
        assert!(parse("file:///x#size=0x2&offset=0X10").is_ok());
        assert_eq!(parse("http://x"), Err(UriError::Scheme));
        assert_eq!(parse(""), Err(UriError::Scheme));
    }

    proptest! {
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = Uri::parse(&bytes);
        }

        #[test]
        fn any_path(path in proptest::collection::vec(1..=255_u8, 1..40), offset in 0..1_u64 << 62, size in 0..1_u64 << 62) {
            // Encoded as ROCr does it.
            let encoded: String = path
                .iter()
                .map(|&byte| match byte {
                    b'/' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
                    byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
                    byte => format!("%{byte:02X}"),
                })
                .collect();
            let uri = parse(&format!("file://{encoded}#offset={offset}&size={size}")).unwrap();
            let Uri::File { path: found, range } = uri else { panic!("{uri:?}") };
            prop_assert_eq!(found.as_os_str().as_bytes(), &path);
            prop_assert_eq!(range, Some(Range { offset, size }));
        }
    }
}
