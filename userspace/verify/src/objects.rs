//! The code objects of the bundled program: `objects/spin.s`, assembled for each instruction set.
//!
//! They are kept as files beside their source instead of being made at build time: an LLVM with all
//! of these targets is newer than that of most distributions, and a newcomer's build must not
//! depend on it. `cargo xtask gen-objects` regenerates them; a test in xtask compares them where
//! LLVM is installed.

/// A code object.
#[derive(Clone, Copy, Debug)]
pub struct Object {
    /// Its instruction set, such as `gfx90a`.
    pub gfx: &'static str,
    /// The ELF file.
    pub bytes: &'static [u8],
}

macro_rules! objects {
    ($($gfx:literal)*) => {
        /// All code objects, oldest instruction set first.
        pub const OBJECTS: &[Object] = &[$(Object {
            gfx: $gfx,
            bytes: include_bytes!(concat!("../objects/", $gfx, ".co")),
        }),*];
    };
}

objects! {
    "gfx900" "gfx906" "gfx908" "gfx90a" "gfx90c" "gfx942" "gfx950"
    "gfx1010" "gfx1012" "gfx1030" "gfx1031" "gfx1032" "gfx1034" "gfx1035" "gfx1036"
    "gfx1100" "gfx1101" "gfx1102" "gfx1103" "gfx1150" "gfx1151" "gfx1152" "gfx1153"
    "gfx1200" "gfx1201" "gfx1250"
}

/// The code object for an instruction set; `None` if there is none.
#[must_use]
pub fn of(gfx: &str) -> Option<Object> {
    OBJECTS.iter().copied().find(|object| object.gfx == gfx)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_an_amdgpu_elf_file_of_the_fourth_version() {
        for object in OBJECTS {
            // e_ident: magic, 64 bits, little endian, version 1, ELFOSABI_AMDGPU_HSA, code object
            // version 4.
            assert_eq!(
                object.bytes[..9],
                *b"\x7fELF\x02\x01\x01\x40\x02",
                "{}",
                object.gfx
            );
            // e_machine: EM_AMDGPU.
            assert_eq!(object.bytes[18..20], [224, 0], "{}", object.gfx);
            assert!(of(object.gfx).is_some());
        }
        assert!(of("gfx1").is_none());
    }
}
