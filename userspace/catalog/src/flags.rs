//! Bit masks with named bits, and the parameters that take them:
//! `hipHostMallocPortable|hipHostMallocMapped`.
//!
//! Bits and their names are in `data/flags.txt`, in the form of [`crate::enums`] and generated from
//! the headers; those of decoders are in the hand-written `data/decoder_flags.txt`. No declaration
//! says that `flags` of `hipHostMalloc` is such a mask: the hand-written `data/parameters.txt`
//! does.

use std::{collections::HashMap, fmt, sync::LazyLock};

use crate::{
    enums::{Enumerators, committed},
    lines,
};

static SETS: LazyLock<HashMap<&'static str, Mask>> = LazyLock::new(|| {
    let sets = [
        include_str!("../data/flags.txt"),
        include_str!("../data/decoder_flags.txt"),
    ];
    committed(&sets)
        .into_iter()
        .map(|(name, values)| (name, Mask(values)))
        .collect()
});

static PARAMETERS: LazyLock<HashMap<(&'static str, &'static str), &'static str>> =
    LazyLock::new(|| parameters(include_str!("../data/parameters.txt")).collect());

/// Parses the lines of `data/parameters.txt`. Invalid lines are skipped; numbers are then shown
/// without names.
fn parameters(text: &str) -> impl Iterator<Item = ((&str, &str), &str)> {
    lines(text).filter_map(|line| {
        let (function, rest) = line.split_once(" | ")?;
        let (parameter, set) = rest.split_once(" | ")?;
        Some(((function, parameter), set))
    })
}

/// The set of named values that a parameter of a function (or a field of a structure) takes, if its
/// C type does not determine it: the name of a [`mask`] or of an enumeration.
///
/// ```
/// assert_eq!(gputrace_catalog::flags::values_of("hipHostMalloc", "flags"), Some("hipHostMalloc"));
/// ```
#[must_use]
pub fn values_of(function: &str, parameter: &str) -> Option<&'static str> {
    PARAMETERS.get(&(function, parameter)).copied()
}

/// Named bits, from all releases.
#[derive(Debug, PartialEq, Eq)]
pub struct Mask(Enumerators<'static>);

/// Finds a mask by name.
#[must_use]
pub fn mask(name: &str) -> Option<&'static Mask> {
    SETS.get(name)
}

/// A value of a [`Mask`]. `Display` joins the names of its bits by `|`, followed by the unnamed
/// bits in hex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags {
    /// The number.
    pub bits: u64,
    /// Names of its bits.
    pub mask: &'static Mask,
}

impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mask(names) = self.mask;
        let named = |(value, name): &(i64, &'static str)| (value.cast_unsigned(), *name);
        if let Some((_, name)) = names
            .iter()
            .map(named)
            .find(|(value, _)| *value == self.bits)
        {
            return f.write_str(name);
        }
        let (mut rest, mut separator) = (self.bits, "");
        for (value, name) in names.iter().map(named) {
            // A name for several bits is used only for a value with exactly these bits.
            if value.is_power_of_two() && rest & value != 0 {
                rest &= !value;
                write!(f, "{separator}{name}")?;
                separator = "|";
            }
        }
        match (rest, separator) {
            (0, "") => f.write_str("0"),
            (0, _) => Ok(()),
            (rest, separator) => write!(f, "{separator}{rest:#x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{enums::is_enumeration, signatures, structs};

    fn shown(name: &str, bits: u64) -> String {
        let mask = mask(name).unwrap();
        Flags { bits, mask }.to_string()
    }

    #[test]
    fn bits_have_names() {
        for (set, bits, expected) in [
            ("hipHostMalloc", 0, "hipHostMallocDefault"),
            (
                "hipHostMalloc",
                3,
                "hipHostMallocPortable|hipHostMallocMapped",
            ),
            (
                "hipHostMalloc",
                0x8000_0001,
                "hipHostMallocPortable|hipHostMallocNonCoherent",
            ),
            ("hipHostMalloc", 0x102, "hipHostMallocMapped|0x100"),
            ("hipHostMalloc", 0x100, "0x100"),
            ("hipMemAttach", 0, "0"),
            ("hipMemAttach", 1, "hipMemAttachGlobal"),
            ("hipDeviceMalloc", 3, "hipDeviceMallocUncached"),
            (
                "hipDeviceMalloc",
                6,
                "hipMallocSignalMemory|hipDeviceMallocContiguous",
            ),
            // `hipHostRegisterReadOnly` and `hipExtHostRegisterCoarseGrained` have the same value.
            ("hipHostRegister", 9, "hipHostRegisterPortable|0x8"),
            (
                "hsa_amd_signal_attribute_t",
                1,
                "HSA_AMD_SIGNAL_AMD_GPU_ONLY",
            ),
        ] {
            assert_eq!(shown(set, bits), expected, "{set} {bits:#x}");
        }
        assert_eq!(mask("hipMemcpyKind"), None);
    }

    #[test]
    fn every_line_names_a_parameter_and_a_set() {
        let text = include_str!("../data/parameters.txt");
        let known: Vec<_> = parameters(text).collect();
        assert_eq!(known.len(), lines(text).count());
        assert!(known.is_sorted() && known.len() > 50);
        for ((function, parameter), set) in known {
            let of_functions = signatures().filter(|signature| signature.name == function);
            let declared = of_functions
                .flat_map(|signature| &signature.arguments)
                .any(|argument| argument.name == parameter);
            let of_structures = structs::layouts().filter(|layout| layout.name == function);
            let is_field = of_structures
                .flat_map(|layout| layout.fields)
                .any(|field| field.name == parameter);
            assert!(declared || is_field, "{function} has no {parameter}");
            assert!(
                mask(set).is_some() || is_enumeration(set),
                "{function}: no {set}"
            );
        }
    }
}
