//! Text from outside.

use std::{borrow::Cow, ffi::OsStr, fmt, os::unix::ffi::OsStrExt as _};

use crate::{acts, push_str};

/// Maximum length of the text that [`Outside::file_name`] returns, bytes. With the rest of the name
/// and the endings of formats (`_hip_api_trace.csv`), it fits into the 255 bytes that a name may
/// have (`NAME_MAX`).
pub const FILE_NAME_PART: usize = 128;

/// Text that came from a traced program, its environment, one of its files, or a capture. It may
/// consist of any bytes.
///
/// The text itself cannot be accessed, only forms that are safe in one place. `Debug` shows the
/// form for a terminal.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Outside<'a>(Cow<'a, [u8]>);

/// Treats `text` as text from outside.
pub fn outside<'a>(text: &'a (impl AsRef<OsStr> + ?Sized)) -> Outside<'a> {
    Outside::from_bytes(text.as_ref().as_bytes())
}

impl<'a> Outside<'a> {
    /// Treats bytes that are, or should be, text as text from outside.
    #[must_use]
    pub fn from_bytes(bytes: &'a [u8]) -> Self {
        Self(Cow::Borrowed(bytes))
    }

    /// The same text, owned.
    #[must_use]
    pub fn into_owned(self) -> Outside<'static> {
        Outside(Cow::Owned(self.0.into_owned()))
    }

    /// Form for a terminal or a log: one line, in which nothing acts. It cannot be converted back,
    /// see the crate's table. Escaping it again does not change it.
    #[must_use]
    pub fn terminal(&self) -> String {
        let mut shown = String::with_capacity(self.0.len());
        for chunk in self.0.utf8_chunks() {
            // Writing to a string does not fail.
            let _ = push_str(&mut shown, chunk.valid());
            for byte in chunk.invalid() {
                shown.push_str(&format!("\\x{byte:02x}"));
            }
        }
        shown
    }

    /// Form for a cell of a CSV file, which the caller quotes (RFC 4180). It is the form for a
    /// terminal. If it is not a number and begins with a character by which spreadsheets recognise
    /// a formula (`=`, `+`, `-`, `@`, tab, carriage return; OWASP, "CSV Injection"), or with a wide
    /// form of these, it is prefixed with `'`. Applying this again does not change it.
    #[must_use]
    pub fn csv(&self) -> Cow<'_, str> {
        const FORMULA: [char; 8] = [
            '=', '+', '-', '@', '\u{ff1d}', '\u{ff0b}', '\u{ff0d}', '\u{ff20}',
        ];
        let is_formula = |text: &str| {
            (text.starts_with(['\t', '\r']) || text.trim_start().starts_with(FORMULA))
                && text.parse::<f64>().is_err()
        };
        let text = match &self.0 {
            Cow::Borrowed(bytes) => str::from_utf8(bytes).ok(),
            Cow::Owned(bytes) => str::from_utf8(bytes).ok(),
        };
        match text {
            Some(text) if !is_formula(text) && !text.contains(acts) => Cow::Borrowed(text),
            _ => {
                let shown = self.terminal();
                let is_formula = is_formula(&shown) || text.is_some_and(is_formula);
                Cow::Owned(if is_formula {
                    format!("'{shown}")
                } else {
                    shown
                })
            }
        }
    }

    /// Form for a page of HTML, in an element or in a quoted attribute.
    #[must_use]
    pub fn html(&self) -> String {
        let mut safe = String::with_capacity(self.0.len());
        for c in self.terminal().chars() {
            match c {
                '<' => safe.push_str("&lt;"),
                '>' => safe.push_str("&gt;"),
                '&' => safe.push_str("&amp;"),
                '"' => safe.push_str("&quot;"),
                '\'' => safe.push_str("&#39;"),
                c => safe.push(c),
            }
        }
        safe
    }

    /// Form for a part of a file name: `_` replaces `/`, backslashes, leading dots, characters that
    /// act on a terminal, and bytes that are not UTF-8. At most [`FILE_NAME_PART`] bytes; empty if
    /// the text is empty. Applying this again does not change it.
    #[must_use]
    pub fn file_name(&self) -> String {
        let mut name = String::new();
        let mut leads = true;
        for c in String::from_utf8_lossy(&self.0).chars() {
            leads &= c == '.';
            let c = match c {
                '/' | '\\' | char::REPLACEMENT_CHARACTER => '_',
                '.' if leads => '_',
                c if acts(c) => '_',
                c => c,
            };
            if name.len() + c.len_utf8() > FILE_NAME_PART {
                break;
            }
            name.push(c);
        }
        name
    }

    /// The last component of a path.
    #[must_use]
    pub fn base_name(&self) -> Outside<'_> {
        Outside::from_bytes(
            self.0
                .rsplit(|byte| *byte == b'/')
                .next()
                .unwrap_or_default(),
        )
    }

    /// The text without the leading bytes that are in `bytes`.
    #[must_use]
    pub fn trim_start(&self, bytes: &[u8]) -> Outside<'_> {
        let begin = self.0.iter().position(|byte| !bytes.contains(byte));
        Outside::from_bytes(
            begin
                .and_then(|begin| self.0.get(begin..))
                .unwrap_or_default(),
        )
    }

    /// Whether the text is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Outside<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.terminal())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Sets a terminal's window title, clears its screen, and forges a line that was never written.
    const HOSTILE: &str =
        "k\x1b]0;pwned\x07\x1b[2J\n  0.000001  1/1  hipFree(ptr=0x0) = 0\u{9b}31m\u{202e}";

    #[test]
    fn each_place_has_its_form() {
        let text = outside(HOSTILE);
        assert_eq!(
            text.terminal(),
            "k\\x1b]0;pwned\\x07\\x1b[2J\\n  0.000001  1/1  hipFree(ptr=0x0) = 0\\u{9b}31m\\u{202e}"
        );
        assert_eq!(
            text.file_name(),
            "k_]0;pwned__[2J_  0.000001  1_1  hipFree(ptr=0x0) = 0_31m_"
        );
        assert_eq!(
            outside("<a href=\"x\">&'\x1b").html(),
            "&lt;a href=&quot;x&quot;&gt;&amp;&#39;\\x1b"
        );
        assert_eq!(
            Outside::from_bytes(b"a\xff\xc3b").terminal(),
            "a\\xff\\xc3b"
        );
        assert_eq!(outside("größe 大 \t").terminal(), "größe 大 \\t");
    }

    #[test]
    fn formulas_are_text() {
        for (text, cell) in [
            ("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"),
            ("+1+1", "'+1+1"),
            ("-1-1", "'-1-1"),
            ("-1", "-1"),
            ("-2.5e3", "-2.5e3"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("\t=1", "'\\t=1"),
            ("\r=1", "'\\r=1"),
            (" =1", "' =1"),
            ("void add(float*)", "void add(float*)"),
            ("a\nb", "a\\nb"),
            ("", ""),
        ] {
            assert_eq!(outside(text).csv(), cell);
        }
    }

    #[test]
    fn file_names_stay_where_they_are() {
        for (text, name) in [
            ("x/../../victim/pwn", "x_.._.._victim_pwn"),
            ("..", "__"),
            (".", "_"),
            (".hidden", "_hidden"),
            ("a.b", "a.b"),
            ("a\0b\nc", "a_b_c"),
            ("..\\x", "___x"),
            ("", ""),
        ] {
            assert_eq!(outside(text).file_name(), name, "{text:?}");
        }
        assert_eq!(outside(&"é".repeat(300)).file_name(), "é".repeat(64));
    }

    fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..300),
            proptest::collection::vec(any::<char>(), 0..100)
                .prop_map(|text| text.into_iter().collect::<String>().into_bytes()),
            "[ =+@\\t\\r\\n\u{1b}\u{9b}\u{202e}./a-]{0,40}".prop_map(String::into_bytes),
        ]
    }

    proptest! {
        #[test]
        fn terminals_see_one_line_in_which_nothing_acts(bytes in any_bytes()) {
            let text = Outside::from_bytes(&bytes);
            let shown = text.terminal();
            prop_assert!(!shown.contains(acts), "{shown:?}");
            prop_assert!(shown.len() <= 4 * bytes.len());
            prop_assert_eq!(&outside(&shown).terminal(), &shown);
            prop_assert_eq!(text.clone().into_owned(), text);
        }

        #[test]
        fn cells_are_no_formulas(bytes in any_bytes()) {
            let text = Outside::from_bytes(&bytes);
            let cell = text.csv().into_owned();
            prop_assert!(!cell.contains(acts), "{cell:?}");
            let is_formula = cell.trim_start().starts_with(['=', '+', '-', '@']) && cell.parse::<f64>().is_err();
            prop_assert!(!is_formula, "{cell:?}");
            prop_assert!(cell.len() <= 4 * bytes.len() + 1);
            prop_assert_eq!(outside(&cell).csv().into_owned(), cell);
        }

        #[test]
        fn pages_have_no_markup_of_it(bytes in any_bytes()) {
            let safe = Outside::from_bytes(&bytes).html();
            prop_assert!(!safe.contains(['<', '>', '"', '\'']) && !safe.contains(acts), "{safe:?}");
            prop_assert!(safe.len() <= 6 * bytes.len());
            for (at, _) in safe.match_indices('&') {
                let entity = ["&lt;", "&gt;", "&amp;", "&quot;", "&#39;"];
                prop_assert!(entity.iter().any(|entity| safe[at..].starts_with(entity)), "{safe:?}");
            }
        }

        #[test]
        fn file_names_are_one_component(bytes in any_bytes()) {
            let text = Outside::from_bytes(&bytes);
            let name = text.file_name();
            prop_assert!(!name.contains(['/', '\\']) && !name.contains(acts), "{name:?}");
            prop_assert!(!name.starts_with('.') && name.len() <= FILE_NAME_PART, "{name:?}");
            prop_assert_eq!(name.is_empty(), bytes.is_empty());
            prop_assert_eq!(&outside(&name).file_name(), &name);
        }
    }
}
