//! Names of enumerators. The text form is `data/enums.txt` (and the hand-written
//! `data/decoder_enums.txt` and `data/hipfile_enums.txt`), one line per type.
//!
//! ```text
//! # A comment.
//! hipMemcpyKind | 0 hipMemcpyHostToHost | 1 hipMemcpyHostToDevice
//! ```
//!
//! Of several enumerators with the same value, only the first one that the newest header declares
//! is listed. Values from older releases are kept.

use std::{collections::HashMap, sync::LazyLock};

use crate::lines;

/// The committed data.
const DATA: [&str; 3] = [
    include_str!("../data/enums.txt"),
    include_str!("../data/decoder_enums.txt"),
    include_str!("../data/hipfile_enums.txt"),
];

/// Enumerators of one type, by value.
pub type Enumerators<'a> = Vec<(i64, &'a str)>;

static ENUMS: LazyLock<HashMap<&'static str, Enumerators<'static>>> =
    LazyLock::new(|| committed(&DATA));

/// Combines several texts.
pub(crate) fn committed(texts: &[&'static str]) -> HashMap<&'static str, Enumerators<'static>> {
    texts.iter().flat_map(|text| parse(text)).collect()
}

/// Parses the text form. Invalid lines are skipped; numbers are then shown without names.
#[must_use]
pub fn parse(text: &str) -> HashMap<&str, Enumerators<'_>> {
    let line = |line| -> Option<(&str, Enumerators<'_>)> {
        let (name, rest) = str::split_once(line, " | ")?;
        let mut enumerators = rest
            .split(" | ")
            .map(|entry| {
                let (value, name) = entry.split_once(' ')?;
                Some((value.parse().ok()?, name))
            })
            .collect::<Option<Vec<(i64, &str)>>>()?;
        enumerators.sort_unstable_by_key(|(value, _)| *value);
        Some((name, enumerators))
    };
    lines(text).filter_map(line).collect()
}

/// The name of a C type without qualifiers that do not change its values:
/// `const enum hipMemcpyKind` becomes `hipMemcpyKind`.
#[must_use]
pub fn plain_type(c_type: &str) -> &str {
    let c_type = c_type.strip_prefix("const ").unwrap_or(c_type);
    c_type.strip_prefix("enum ").unwrap_or(c_type)
}

/// Whether this C type has enumerators.
#[must_use]
pub fn is_enumeration(c_type: &str) -> bool {
    ENUMS.contains_key(plain_type(c_type))
}

/// The enumerator of a C type with this value; `None` if there is none, or the type is not an
/// enumeration.
///
/// ```
/// assert_eq!(gputrace_catalog::enums::enumerator("hipMemcpyKind", 1), Some("hipMemcpyHostToDevice"));
/// assert_eq!(gputrace_catalog::enums::enumerator("int", 1), None);
/// ```
#[must_use]
pub fn enumerator(c_type: &str, value: i64) -> Option<&'static str> {
    let c_type = plain_type(c_type);
    // The names of these libraries' enumerations all begin with their library's prefix; other types
    // need no look-up.
    if !c_type.starts_with(['h', 'n', 'r', 'H', 'R']) {
        return None;
    }
    let enumerators = ENUMS.get(c_type)?;
    let at = enumerators
        .binary_search_by_key(&value, |(value, _)| *value)
        .ok()?;
    enumerators.get(at).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn enumerators_have_names() {
        assert_eq!(enumerator("hipMemcpyKind", 4), Some("hipMemcpyDefault"));
        assert_eq!(
            enumerator("const enum hipMemcpyKind", 0),
            Some("hipMemcpyHostToHost")
        );
        assert_eq!(enumerator("hipMemcpyKind", -5), None);
        assert_eq!(
            enumerator("hsa_agent_info_t", 17),
            Some("HSA_AGENT_INFO_DEVICE")
        );
        // Values of AMD's extension and of the image extension.
        assert_eq!(
            enumerator("hsa_agent_info_t", 0xa002),
            Some("HSA_AMD_AGENT_INFO_COMPUTE_UNIT_COUNT")
        );
        assert_eq!(
            enumerator("hsa_agent_info_t", 0x3000),
            Some("HSA_EXT_AGENT_INFO_IMAGE_1D_MAX_ELEMENTS")
        );
        assert_eq!(enumerator("hipDeviceAttribute_t", i64::MAX), None);
        assert_eq!(
            enumerator("rocDecStatus", -5),
            Some("ROCDEC_INVALID_PARAMETER")
        );
        assert_eq!(
            enumerator("RocJpegStatus", -12),
            Some("ROCJPEG_STATUS_NOT_IMPLEMENTED")
        );
    }

    #[test]
    fn committed_data_is_whole() {
        let lines = DATA.iter().flat_map(|text| lines(text)).count();
        assert_eq!(committed(&DATA).len(), lines);
        assert!(lines > 30, "{lines}");
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "([a-z]{0,3}( [|] -?[0-9]{0,3} ?[a-z]{0,3}){0,3}\n){0,3}") {
            let _ = parse(&text);
        }
    }
}
