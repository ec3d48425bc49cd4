//! The kernel descriptor, which the command processor reads when it starts a kernel.
//!
//! The layout is that of LLVM's `AMDGPUUsage`, "Kernel Descriptor"
//! (`llvm/Support/AMDHSAKernelDescriptor.h`).

use zerocopy::{
    FromBytes, Immutable, KnownLayout, Unaligned,
    little_endian::{I64, U16, U32},
};

use crate::isa::Target;

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    group_segment_fixed_size: U32,
    private_segment_fixed_size: U32,
    kernarg_size: U32,
    reserved0: [u8; 4],
    kernel_code_entry_byte_offset: I64,
    reserved1: [u8; 20],
    compute_pgm_rsrc3: U32,
    compute_pgm_rsrc1: U32,
    compute_pgm_rsrc2: U32,
    kernel_code_properties: U16,
    kernarg_preload: U16,
    reserved3: [u8; 4],
}

const _: () = assert!(size_of::<Raw>() == Descriptor::SIZE);

/// Registers allocated to a wave, as rocprofv3 prints them. The numbers are multiples of allocation
/// granules, so they are usually larger than those that the kernel's code uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Registers {
    /// Vector registers per work-item.
    pub arch_vgpr: u32,
    /// Accumulation vector registers per work-item; 0 if the GPU has none.
    pub accum_vgpr: u32,
    /// Scalar registers per wave; 128 on GPUs that always allocate this many (gfx10 and later).
    pub sgpr: u32,
}

/// A kernel descriptor, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Descriptor {
    /// Fixed LDS per workgroup, bytes.
    pub group_segment_size: u32,
    /// Fixed scratch per work-item, bytes.
    pub private_segment_size: u32,
    /// Size of the arguments, bytes; also 0 from compilers before LLVM 12, which did not store it.
    pub kernarg_segment_size: u32,
    /// Offset of the code from the descriptor, bytes; may be negative.
    pub code_entry_offset: i64,
    /// `COMPUTE_PGM_RSRC1`.
    pub rsrc1: u32,
    /// `COMPUTE_PGM_RSRC2`.
    pub rsrc2: u32,
    /// `COMPUTE_PGM_RSRC3`.
    pub rsrc3: u32,
    /// `KERNEL_CODE_PROPERTIES`.
    pub properties: u16,
    /// `KERNARG_PRELOAD`.
    pub kernarg_preload: u16,
}

/// `ENABLE_WAVEFRONT_SIZE32`.
const WAVE32: u16 = 1 << 10;
/// `USES_DYNAMIC_STACK`.
const DYNAMIC_STACK: u16 = 1 << 11;

impl Descriptor {
    /// Size of a descriptor, bytes.
    pub const SIZE: usize = 64;

    /// Decodes a descriptor from the beginning of `bytes`; `None` if there are too few.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (raw, _) = Raw::ref_from_prefix(bytes).ok()?;
        Some(Self {
            group_segment_size: raw.group_segment_fixed_size.get(),
            private_segment_size: raw.private_segment_fixed_size.get(),
            kernarg_segment_size: raw.kernarg_size.get(),
            code_entry_offset: raw.kernel_code_entry_byte_offset.get(),
            rsrc1: raw.compute_pgm_rsrc1.get(),
            rsrc2: raw.compute_pgm_rsrc2.get(),
            rsrc3: raw.compute_pgm_rsrc3.get(),
            properties: raw.kernel_code_properties.get(),
            kernarg_preload: raw.kernarg_preload.get(),
        })
    }

    /// Number of work-items per wave: 32 or 64.
    #[must_use]
    pub fn wavefront_size(&self) -> u32 {
        if self.properties & WAVE32 == 0 {
            64
        } else {
            32
        }
    }

    /// Whether the kernel may need more scratch than its fixed size, e.g. for recursion.
    #[must_use]
    pub fn uses_dynamic_stack(&self) -> bool {
        self.properties & DYNAMIC_STACK != 0
    }

    /// Vector registers per granule of `GRANULATED_WORKITEM_VGPR_COUNT`.
    pub(crate) fn vgpr_granule(&self, target: &Target) -> u32 {
        let wave32 = self.wavefront_size() == 32;
        match (
            target.has_unified_registers(),
            target.has_many_registers(),
            wave32,
        ) {
            (true, _, _) | (_, true, false) => 8,
            (_, true, true) => 16,
            (_, _, true) => 8,
            (_, _, false) => 4,
        }
    }

    /// Number of all vector registers per work-item, including accumulation registers if they share
    /// the register file.
    pub(crate) fn vgprs(&self, target: &Target) -> u32 {
        ((self.rsrc1 & 0x3f) + 1) * self.vgpr_granule(target)
    }

    /// Registers according to rocprofiler-sdk's rules (`code_object/code_object.cpp`), with the
    /// larger granule of gfx125x in addition. `None` for an unknown processor.
    #[must_use]
    pub fn registers(&self, target: &Target) -> Option<Registers> {
        let generation = target.generation()?;
        let all = self.vgprs(target);
        let (arch_vgpr, accum_vgpr) = if target.has_unified_registers() {
            // ACCUM_OFFSET: the first accumulation register.
            let arch = ((self.rsrc3 & 0x3f) + 1) * 4;
            (arch, all.saturating_sub(arch))
        } else if target.processor() == Some("gfx908") {
            (all, all)
        } else {
            (all, 0)
        };
        let sgpr = if generation >= 10 {
            128
        } else {
            ((self.rsrc1 >> 6 & 0xf) / 2 + 1) * 16
        };
        Some(Registers {
            arch_vgpr,
            accum_vgpr,
            sgpr,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Version;
    use proptest::prelude::*;

    fn target(machine: u32) -> Target {
        Target::from_flags(machine, Version::V4)
    }

    fn descriptor(rsrc1: u32, rsrc3: u32, properties: u16) -> Descriptor {
        let mut bytes = [0; Descriptor::SIZE];
        bytes[44..48].copy_from_slice(&rsrc3.to_le_bytes());
        bytes[48..52].copy_from_slice(&rsrc1.to_le_bytes());
        bytes[56..58].copy_from_slice(&properties.to_le_bytes());
        Descriptor::parse(&bytes).unwrap()
    }

    #[test]
    fn registers_by_generation() {
        let counts = |descriptor: Descriptor, machine| {
            let registers = descriptor.registers(&target(machine)).unwrap();
            (registers.arch_vgpr, registers.accum_vgpr, registers.sgpr)
        };
        let nine = descriptor(5 | 5 << 6, 0, 0);
        assert_eq!(counts(nine, 0x2f), (24, 0, 48), "gfx906");
        assert_eq!(counts(nine, 0x30), (24, 24, 48), "gfx908");
        assert_eq!(
            counts(descriptor(5 | 5 << 6, 6, 0), 0x3f),
            (28, 20, 48),
            "gfx90a"
        );
        assert_eq!(
            counts(descriptor(5 | 5 << 6, 6, 0), 0x4f),
            (28, 20, 48),
            "gfx950"
        );
        assert_eq!(
            counts(descriptor(0, 63, 0), 0x4c),
            (256, 0, 16),
            "a lying gfx942"
        );
        assert_eq!(
            counts(descriptor(5, 0, WAVE32), 0x36),
            (48, 0, 128),
            "gfx1030"
        );
        assert_eq!(
            counts(descriptor(5, 0, 0), 0x36),
            (24, 0, 128),
            "gfx1030, waves of 64"
        );
        assert_eq!(
            counts(descriptor(5, 0, WAVE32), 0x49),
            (96, 0, 128),
            "gfx1250"
        );
        assert_eq!(nine.registers(&target(0xff)), None);
        assert_eq!(descriptor(0, 0, WAVE32).wavefront_size(), 32);
        assert!(descriptor(0, 0, DYNAMIC_STACK).uses_dynamic_stack());
    }

    proptest! {
        #[test]
        fn any_descriptor(bytes in proptest::collection::vec(any::<u8>(), 0..80), machine: u8) {
            let parsed = Descriptor::parse(&bytes);
            prop_assert_eq!(parsed.is_some(), bytes.len() >= Descriptor::SIZE);
            if let Some(descriptor) = parsed {
                let _ = descriptor.registers(&target(machine.into()));
            }
        }
    }
}
