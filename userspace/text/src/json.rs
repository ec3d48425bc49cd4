//! JSON that keeps the exact text and has no effect on a terminal.
//!
//! RFC 8259 requires escapes only for characters below U+0020, `"` and `\`. Characters above that
//! act on a terminal ([`acts`]) are escaped here, too; every JSON reader undoes that.

use std::io;

use serde::Serialize;
use serde_json::{
    Result, Serializer,
    ser::{CompactFormatter, Formatter, PrettyFormatter},
};

use crate::acts;

/// Like `serde_json::to_string`.
///
/// # Errors
///
/// As `serde_json::to_string`.
pub fn to_string(value: &(impl Serialize + ?Sized)) -> Result<String> {
    write(value, CompactFormatter)
}

/// Like `serde_json::to_string_pretty`.
///
/// # Errors
///
/// As `serde_json::to_string_pretty`.
pub fn to_string_pretty(value: &(impl Serialize + ?Sized)) -> Result<String> {
    write(value, PrettyFormatter::new())
}

fn write(value: &(impl Serialize + ?Sized), formatter: impl Formatter) -> Result<String> {
    let mut bytes = Vec::new();
    value.serialize(&mut Serializer::with_formatter(
        &mut bytes,
        Quiet(formatter),
    ))?;
    String::from_utf8(bytes).map_err(serde::ser::Error::custom)
}

/// Like `serde_json::to_writer`.
///
/// # Errors
///
/// As `serde_json::to_writer`.
pub fn to_writer(out: impl io::Write, value: &(impl Serialize + ?Sized)) -> Result<()> {
    value.serialize(&mut Serializer::with_formatter(
        out,
        Quiet(CompactFormatter),
    ))
}

/// Escapes characters in strings that act on a terminal; everything else is left to the other
/// formatter.
struct Quiet<F>(F);

impl<F: Formatter> Formatter for Quiet<F> {
    fn write_string_fragment<W: io::Write + ?Sized>(
        &mut self,
        out: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut rest = fragment;
        while let Some(at) = rest.find(acts) {
            let (before, after) = rest.split_at(at);
            out.write_all(before.as_bytes())?;
            let mut characters = after.chars();
            if let Some(c) = characters.next() {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    write!(out, "\\u{unit:04x}")?;
                }
            }
            rest = characters.as_str();
        }
        out.write_all(rest.as_bytes())
    }

    fn begin_array<W: io::Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_array(out)
    }

    fn end_array<W: io::Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_array(out)
    }

    fn begin_array_value<W: io::Write + ?Sized>(
        &mut self,
        out: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.0.begin_array_value(out, first)
    }

    fn end_array_value<W: io::Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_array_value(out)
    }

    fn begin_object<W: io::Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_object(out)
    }

    fn end_object<W: io::Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_object(out)
    }

    fn begin_object_key<W: io::Write + ?Sized>(
        &mut self,
        out: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.0.begin_object_key(out, first)
    }

    fn begin_object_value<W: io::Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_object_value(out)
    }

    fn end_object_value<W: io::Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_object_value(out)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn json_is_exact_and_quiet(text in proptest::collection::vec(any::<char>(), 0..60)) {
            let text: String = text.into_iter().collect();
            let mut alone = Vec::new();
            to_writer(&mut alone, &text)?;
            prop_assert_eq!(&serde_json::from_slice::<String>(&alone)?, &text);
            let value = BTreeMap::from([(text.clone(), vec![Some(text.clone()), None])]);
            let json = to_string(&value)?;
            prop_assert!(!json.contains(acts), "{json:?}");
            prop_assert!(json.len() <= 12 * text.len() + 40);
            prop_assert_eq!(&serde_json::from_str::<BTreeMap<String, Vec<Option<String>>>>(&json)?, &value);
            let pretty = to_string_pretty(&value)?;
            prop_assert!(!pretty.replace('\n', "").contains(acts), "{pretty:?}");
            prop_assert_eq!(&serde_json::from_str::<BTreeMap<String, Vec<Option<String>>>>(&pretty)?, &value);
        }
    }
}
