//! Human-readable names of kernels and functions.
//!
//! Compilers mangle the names of C++ and Rust functions: they encode scope, template arguments and
//! parameters into one word. [`demangle`] recovers the declaration, [`truncate`] reduces it to the
//! bare name.
//!
//! ```
//! let name = gputrace_demangle::demangle("_Z5scaleIfEvPT_i").unwrap();
//! assert_eq!(name, "void scale<float>(float*, int)");
//! assert_eq!(gputrace_demangle::truncate(&name), "scale");
//! ```
//!
//! Names come from files of other users. A short mangled name can expand without end, and nest as
//! deeply as it is long. Both are bounded; a name beyond the bounds is left as it is.

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests make and read files of their own"
    )
)]

use std::fmt::{self, Write as _};

mod itanium;

/// Maximum length of a mangled name in bytes; longer ones are shown as they are.
const MAX_MANGLED: usize = 1 << 18;
/// Maximum length of a demangled name in bytes. Templates refer back to earlier parts of
/// themselves, so a short mangled name can expand without end.
const MAX_DEMANGLED: usize = 1 << 18;

/// The declaration for a mangled name of C++ or Rust, e.g. `void scale<float>(float*, int)` for
/// `_Z5scaleIfEvPT_i`; `None` if it is not a mangled name, or exceeds the bounds. Rust's hashes are
/// left out.
#[must_use]
pub fn demangle(mangled: &str) -> Option<String> {
    if mangled.len() > MAX_MANGLED {
        return None;
    }
    if mangled.starts_with("_R") || is_rust_legacy(mangled) {
        let symbol = rustc_demangle::try_demangle(mangled).ok()?;
        let mut name = Bounded(String::new());
        write!(name, "{symbol:#}").ok()?;
        return Some(name.0);
    }
    itanium::demangle(mangled, MAX_DEMANGLED)
}

/// Whether a name uses Rust's old scheme, which looks like C++ except for a hash at its end: `17h`,
/// 16 hex digits, `E`.
fn is_rust_legacy(mangled: &str) -> bool {
    let end = mangled.split('.').next().unwrap_or_default();
    let hash = end
        .strip_suffix('E')
        .and_then(|rest| rest.rsplit_once("17h"));
    mangled.starts_with("_ZN")
        && hash.is_some_and(|(_, hash)| {
            hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
        })
}

/// A string with a maximum length.
struct Bounded(String);

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > MAX_DEMANGLED {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

/// The bare name of a demangled function, without return type, scope, template arguments and
/// parameters: `fill` for `void ns::fill<float, (ns::Mode)1>(float*, int) [clone .kd]`. The same as
/// rocprofv3's `--truncate-kernels`.
///
/// Names that are not declarations are returned unchanged.
#[must_use]
pub fn truncate(demangled: &str) -> &str {
    let bytes = demangled.as_bytes();
    // Goes backwards over whole groups of brackets. Each group ends at its first opening bracket of
    // the same kind that is not paired within. `operator()` and the like have no name before their
    // brackets.
    let mut end = bytes.len();
    while let Some(&last) = bytes.get(..end).and_then(<[u8]>::last) {
        let open = match last {
            b' ' => {
                end -= 1;
                continue;
            }
            b')' => b'(',
            b'>' => b'<',
            b']' => b'[',
            _ => break,
        };
        let mut depth = 0_usize;
        let group = bytes
            .get(..end)
            .unwrap_or_default()
            .iter()
            .rposition(|byte| {
                if *byte == last {
                    depth += 1;
                } else if *byte == open {
                    depth -= 1;
                }
                depth == 0
            });
        end = group.unwrap_or(0);
    }
    let name = demangled.get(..end).unwrap_or_default();
    let begin = name.rfind([' ', ':']).map_or(0, |before| before + 1);
    match name.get(begin..) {
        None | Some("") => demangled,
        Some(name) => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn demangling() {
        assert_eq!(
            demangle("_Z5scaleIfEvPT_i").as_deref(),
            Some("void scale<float>(float*, int)")
        );
        for plain in ["small_a", "i", "", "_Z", "__amd_rocclr_copyBuffer", "_Z5"] {
            assert_eq!(demangle(plain), None, "{plain}");
        }
    }

    #[test]
    fn rust() {
        for (mangled, name) in [
            (
                "_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE",
                "core::fmt::Write::write_fmt",
            ),
            ("_RNvCs1234_7mycrate3foo", "mycrate::foo"),
            ("_ZN4core3fmt5WriteE", "core::fmt::Write"),
        ] {
            assert_eq!(demangle(mangled).as_deref(), Some(name));
        }
        assert_eq!(demangle("_R"), None);
    }

    #[test]
    fn truncation() {
        for (name, bare) in [
            ("Foo<int, float>::foo(a[], int (int))", "foo"),
            (
                "void ns::fill<float, (ns::Mode)1>(float*, int) [clone .kd]",
                "fill",
            ),
            (
                "void at::native::(anonymous namespace)::copy<4, at::F<(lambda(float)#1)> >(int)",
                "copy",
            ),
            ("small_a", "small_a"),
            ("Cijk_Ailk_Bljk_SB_MT64x64", "Cijk_Ailk_Bljk_SB_MT64x64"),
            ("vectorAdd(float const*, float*)", "vectorAdd"),
            ("", ""),
            ("(((", "((("),
            (")))", ")))"),
            ("a > b", "b"),
        ] {
            assert_eq!(truncate(name), bare, "{name}");
        }
    }

    proptest! {
        #[test]
        fn any_name(name in "(_Z)?\\PC{0,60}") {
            let _ = demangle(&name);
            prop_assert!(name.contains(truncate(&name)));
        }

        #[test]
        fn any_mangled(name in "_(Z|R)[NILTSPKFECBv0-9_a-z]{0,80}") {
            if let Some(demangled) = demangle(&name) {
                let _ = truncate(&demangled);
            }
        }

        #[test]
        fn any_brackets(name in "[()<>\\[\\] :ab]{0,40}") {
            prop_assert!(name.contains(truncate(&name)));
        }
    }
}
