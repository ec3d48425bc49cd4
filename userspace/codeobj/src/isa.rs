//! The target of a code object.

use std::fmt;

/// Processors by `EF_AMDGPU_MACH`, from LLVM's `llvm/BinaryFormat/ELF.h`.
const PROCESSORS: &[(u8, &str)] = &[
    (0x20, "gfx600"),
    (0x21, "gfx601"),
    (0x22, "gfx700"),
    (0x23, "gfx701"),
    (0x24, "gfx702"),
    (0x25, "gfx703"),
    (0x26, "gfx704"),
    (0x28, "gfx801"),
    (0x29, "gfx802"),
    (0x2a, "gfx803"),
    (0x2b, "gfx810"),
    (0x2c, "gfx900"),
    (0x2d, "gfx902"),
    (0x2e, "gfx904"),
    (0x2f, "gfx906"),
    (0x30, "gfx908"),
    (0x31, "gfx909"),
    (0x32, "gfx90c"),
    (0x33, "gfx1010"),
    (0x34, "gfx1011"),
    (0x35, "gfx1012"),
    (0x36, "gfx1030"),
    (0x37, "gfx1031"),
    (0x38, "gfx1032"),
    (0x39, "gfx1033"),
    (0x3a, "gfx602"),
    (0x3b, "gfx705"),
    (0x3c, "gfx805"),
    (0x3d, "gfx1035"),
    (0x3e, "gfx1034"),
    (0x3f, "gfx90a"),
    (0x40, "gfx940"),
    (0x41, "gfx1100"),
    (0x42, "gfx1013"),
    (0x43, "gfx1150"),
    (0x44, "gfx1103"),
    (0x45, "gfx1036"),
    (0x46, "gfx1101"),
    (0x47, "gfx1102"),
    (0x48, "gfx1200"),
    (0x49, "gfx1250"),
    (0x4a, "gfx1151"),
    (0x4b, "gfx941"),
    (0x4c, "gfx942"),
    (0x4e, "gfx1201"),
    (0x4f, "gfx950"),
    (0x50, "gfx1310"),
    (0x51, "gfx9-generic"),
    (0x52, "gfx10-1-generic"),
    (0x53, "gfx10-3-generic"),
    (0x54, "gfx11-generic"),
    (0x55, "gfx1152"),
    (0x57, "gfx1154"),
    (0x58, "gfx1153"),
    (0x59, "gfx12-generic"),
    (0x5a, "gfx1251"),
    (0x5b, "gfx12-5-generic"),
    (0x5c, "gfx1172"),
    (0x5d, "gfx1170"),
    (0x5e, "gfx1171"),
    (0x5f, "gfx9-4-generic"),
    (0x62, "gfx11-7-generic"),
    (0x63, "gfx13-generic"),
];

/// Setting of an optional GPU feature that a code object requires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Feature {
    /// The processor does not have it.
    #[default]
    Unsupported,
    /// The code object runs with either setting.
    Any,
    /// The code object runs only with the feature switched off.
    Off,
    /// The code object runs only with the feature switched on.
    On,
}

/// Version of the code object format, by its ELF ABI version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// Version 2: kernels are `amd_kernel_code_t`; deprecated before ROCm 4.
    V2,
    /// Version 3.
    V3,
    /// Version 4.
    V4,
    /// Version 5.
    V5,
    /// Version 6: generic processors.
    V6,
}

impl Version {
    pub(crate) fn from_abi(abi_version: u8) -> Option<Self> {
        Some(match abi_version {
            0 => Self::V2,
            1 => Self::V3,
            2 => Self::V4,
            3 => Self::V5,
            4 => Self::V6,
            _ => return None,
        })
    }
}

/// The GPU that a code object is built for, shown as LLVM's target id, e.g.
/// `gfx90a:sramecc+:xnack-`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// `EF_AMDGPU_MACH`.
    machine: u8,
    processor: Option<&'static str>,
    /// Error-correcting memory for registers and caches.
    pub sramecc: Feature,
    /// Retry after page faults.
    pub xnack: Feature,
}

impl Target {
    /// Decodes `e_flags`.
    pub(crate) fn from_flags(flags: u32, version: Version) -> Self {
        let [machine, ..] = flags.to_le_bytes();
        let processor = PROCESSORS
            .iter()
            .find_map(|(number, name)| (*number == machine).then_some(*name));
        let two_bits = |shift: u32| match flags >> shift & 3 {
            0 => Feature::Unsupported,
            1 => Feature::Any,
            2 => Feature::Off,
            _ => Feature::On,
        };
        let one_bit = |bit: u32| {
            if flags & bit == 0 {
                Feature::Off
            } else {
                Feature::On
            }
        };
        let (xnack, sramecc) = match version {
            // LLVM knows only one bit of version 2, which does not say what the processor supports
            // either.
            Version::V2 => (Feature::Any, Feature::Any),
            Version::V3 => (one_bit(0x100), one_bit(0x200)),
            Version::V4 | Version::V5 | Version::V6 => (two_bits(8), two_bits(10)),
        };
        Self {
            machine,
            processor,
            sramecc,
            xnack,
        }
    }

    /// LLVM's name of the processor, e.g. `gfx1030` or `gfx9-4-generic`; `None` for one that is
    /// newer than gputrace.
    #[must_use]
    pub fn processor(&self) -> Option<&'static str> {
        self.processor
    }

    /// Major version of the instruction set, e.g. 9 for `gfx906`, 10 for `gfx1030`.
    #[must_use]
    pub fn generation(&self) -> Option<u32> {
        let number = self.processor?.strip_prefix("gfx")?;
        let major = match number.split_once('-') {
            Some((major, _)) => major,
            // The last two characters are minor version and stepping.
            None => number.get(..number.len().checked_sub(2)?)?,
        };
        major.parse().ok()
    }

    /// Whether vector and accumulation registers share one register file (MI200 and later
    /// data-centre GPUs).
    pub(crate) fn has_unified_registers(&self) -> bool {
        self.processor.is_some_and(|name| {
            name == "gfx90a"
                || name.starts_with("gfx94")
                || name.starts_with("gfx95")
                || name == "gfx9-4-generic"
        })
    }

    /// Whether a wave of 32 may use 1024 vector registers.
    pub(crate) fn has_many_registers(&self) -> bool {
        self.processor
            .is_some_and(|name| name.starts_with("gfx125") || name == "gfx12-5-generic")
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.processor {
            Some(name) => f.write_str(name)?,
            None => write!(f, "gfx?{:02x}", self.machine)?,
        }
        for (name, feature) in [("sramecc", self.sramecc), ("xnack", self.xnack)] {
            match feature {
                Feature::On => write!(f, ":{name}+")?,
                Feature::Off => write!(f, ":{name}-")?,
                Feature::Any | Feature::Unsupported => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets() {
        let target = |flags, version| Target::from_flags(flags, version);
        let gfx906 = target(0x12f, Version::V3);
        assert_eq!((gfx906.xnack, gfx906.sramecc), (Feature::On, Feature::Off));
        assert_eq!(
            target(0x03f | 0x200 | 0xc00, Version::V4).to_string(),
            "gfx90a:sramecc+:xnack-"
        );
        assert_eq!(target(0x36, Version::V5).to_string(), "gfx1030");
        assert_eq!(target(0x52f, Version::V4).to_string(), "gfx906");
        assert_eq!(target(0xff, Version::V6).to_string(), "gfx?ff");
        assert_eq!(
            target(0x0100_005f, Version::V6).processor(),
            Some("gfx9-4-generic")
        );
    }

    #[test]
    fn generations() {
        for &(machine, name) in PROCESSORS {
            let target = Target::from_flags(machine.into(), Version::V6);
            let expected = match name.as_bytes() {
                [b'g', b'f', b'x', digit, _, _] => u32::from(digit - b'0'),
                [b'g', b'f', b'x', digit, b'-', ..] => u32::from(digit - b'0'),
                [b'g', b'f', b'x', b'1', digit, ..] => 10 + u32::from(digit - b'0'),
                _ => panic!("{name}"),
            };
            assert_eq!(target.generation(), Some(expected), "{name}");
        }
        assert_eq!(Target::from_flags(0xff, Version::V6).generation(), None);
    }

    #[test]
    fn machines_are_named_once() {
        assert!(PROCESSORS.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }
}
