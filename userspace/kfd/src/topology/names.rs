//! Names of processors: those of the compiler, of the driver, and of the product.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::path::Path;

use super::Node;
use crate::files;
use crate::paths::Paths;

/// Maximum size of `/proc/cpuinfo` or a table of names that is read, bytes: enough for thousands of
/// cores.
const MAX_TABLE: u64 = 16 << 20;

/// The name of an instruction set from KFD's `gfx_target_version` (major × 10000 + minor × 100 +
/// stepping): `gfx90a` for 90010. `None` for a number that is not a version, such as a CPU's 0.
#[must_use]
pub fn gfx_name(gfx_target_version: u64) -> Option<String> {
    let major = gfx_target_version / 10_000;
    let (minor, stepping) = (gfx_target_version / 100 % 100, gfx_target_version % 100);
    // The stepping is one hexadecimal digit of the name.
    ((1..100).contains(&major) && minor < 16 && stepping < 16)
        .then(|| format!("gfx{major}{minor:x}{stepping:x}"))
}

/// amdgpu's family of a chip, which libdrm reports as `family_id`; 0 if unknown.
///
/// It is derived from the version of the graphics core (the kernel's `amdgpu_discovery.c`; values:
/// `AMDGPU_FAMILY_*` in `amdgpu_drm.h`), so that no device has to be opened and woken for it.
pub(super) fn family_id(gfx_target_version: u64) -> u64 {
    const CI: u64 = 120;
    const KV: u64 = 125;
    const VI: u64 = 130;
    const CZ: u64 = 135;
    const AI: u64 = 141;
    const RV: u64 = 142;
    const NV: u64 = 143;
    const VGH: u64 = 144;
    const GC_11_0_0: u64 = 145;
    const YC: u64 = 146;
    const GC_11_0_1: u64 = 148;
    const GC_10_3_6: u64 = 149;
    const GC_11_5_0: u64 = 150;
    const GC_10_3_7: u64 = 151;
    const GC_12_0_0: u64 = 152;
    match gfx_target_version {
        70_000 => KV,
        70_001..=80_000 => CI,
        80_001 => CZ,
        80_002..90_000 => VI,
        90_002 | 90_012 => RV,
        90_000..100_000 => AI,
        100_303 => VGH,
        100_305 => YC,
        100_306 => GC_10_3_6,
        100_307 => GC_10_3_7,
        100_100..110_000 => NV,
        // KFD reports 110003 for 11.0.1 and 11.0.4, and 110001 for 11.0.3.
        110_003 => GC_11_0_1,
        110_000..110_500 => GC_11_0_0,
        110_500..120_000 => GC_11_5_0,
        120_000..130_000 => GC_12_0_0,
        _ => 0,
    }
}

/// A processor in `/proc/cpuinfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CpuModel {
    pub(super) family: u64,
    pub(super) name: String,
}

/// Names from this machine's files, each read when it is first needed. A file that cannot be read
/// provides no names.
#[derive(Debug)]
pub(super) struct Names<'a> {
    paths: &'a Paths,
    cpus: OnceCell<HashMap<u64, CpuModel>>,
}

impl<'a> Names<'a> {
    pub(super) fn new(paths: &'a Paths) -> Self {
        Self {
            paths,
            cpus: OnceCell::new(),
        }
    }

    /// The processor with this APIC id, which KFD calls `cpu_core_id_base`.
    pub(super) fn cpu(&self, apic_id: u64) -> Option<&CpuModel> {
        let cpus = self
            .cpus
            .get_or_init(|| parse_cpuinfo(&table(&self.paths.proc.join("cpuinfo"))));
        cpus.get(&apic_id)
    }

    /// Product name of a GPU: from libdrm's table, or else from the board.
    pub(super) fn product(&self, node: &Node) -> Option<String> {
        let device = self.paths.device(node.drm_render_minor()?);
        let id = node.properties.get("device_id")?;
        if let Ok(Some(revision)) = files::number(&device.join("revision")) {
            let tables = &self.paths.amdgpu_ids;
            let found = tables
                .iter()
                .find_map(|path| marketing_name(&table(path), id, revision));
            if found.is_some() {
                return found;
            }
        }
        let board = files::text(&device.join("product_name")).ok()??;
        (!board.is_empty()).then_some(board)
    }
}

fn table(path: &Path) -> String {
    let bytes = files::bytes(path, MAX_TABLE)
        .ok()
        .flatten()
        .unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Processors by APIC id.
fn parse_cpuinfo(text: &str) -> HashMap<u64, CpuModel> {
    let processors = text.split("\n\n").filter_map(|processor| {
        let value = |key: &str| {
            let mut pairs = processor.lines().filter_map(|line| line.split_once(':'));
            pairs
                .find(|(name, _)| name.trim() == key)
                .map(|(_, value)| value.trim())
        };
        let model = CpuModel {
            family: value("cpu family")?.parse().ok()?,
            name: value("model name")?.to_owned(),
        };
        Some((value("apicid")?.parse().ok()?, model))
    });
    processors.collect()
}

/// The name of a device and revision in libdrm's `amdgpu.ids`, which has hexadecimal lines of the
/// form `device, revision, name`.
fn marketing_name(table: &str, device: u64, revision: u64) -> Option<String> {
    table.lines().find_map(|line| {
        let mut columns = line.splitn(3, ',').map(str::trim);
        let mut number = || u64::from_str_radix(columns.next()?, 16).ok();
        let found = number()? == device && number()? == revision;
        found.then(|| columns.next().map(str::to_owned))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn instruction_sets_are_named_as_the_compiler_names_them() {
        for (version, name) in [
            (80_003, "gfx803"),
            (90_000, "gfx900"),
            (90_006, "gfx906"),
            (90_010, "gfx90a"),
            (90_012, "gfx90c"),
            (90_402, "gfx942"),
            (90_500, "gfx950"),
            (100_300, "gfx1030"),
            (110_003, "gfx1103"),
            (120_001, "gfx1201"),
        ] {
            assert_eq!(gfx_name(version).as_deref(), Some(name));
        }
        for none in [0, 9_999, 1_000_000, 90_016, u64::MAX] {
            assert_eq!(gfx_name(none), None, "{none}");
        }
    }

    #[test]
    fn families_are_amdgpus() {
        let families = [
            (90_006, 141),
            (90_402, 141),
            (90_012, 142),
            (100_300, 143),
            (100_306, 149),
            (110_000, 145),
            (110_003, 148),
            (110_501, 150),
            (120_001, 152),
            (0, 0),
            (130_000, 0),
        ];
        for (version, family) in families {
            assert_eq!(family_id(version), family, "{version}");
        }
    }

    #[test]
    fn a_marketing_name_needs_device_and_revision() {
        let ids = "# comment\n\n1.0.0\n66A1,\t02,\tAMD Instinct MI60 / MI50\n66A1,\t06,\tAMD Radeon Pro VII\n";
        assert_eq!(
            marketing_name(ids, 0x66a1, 6).as_deref(),
            Some("AMD Radeon Pro VII")
        );
        assert_eq!(marketing_name(ids, 0x66a1, 7), None);
    }

    #[test]
    fn this_machines_own_files_are_understood() {
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap();
        if cpuinfo.contains("apicid") {
            let names = parse_cpuinfo(&cpuinfo);
            assert_eq!(names.len(), cpuinfo.matches("model name").count());
        }
        // The table of libdrm-common, where it is installed.
        if let Ok(ids) = std::fs::read_to_string("/usr/share/libdrm/amdgpu.ids") {
            assert_eq!(
                marketing_name(&ids, 0x7408, 0).as_deref(),
                Some("AMD Instinct MI250X")
            );
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_table(text in "[0-9a-fA-F,:\\s\\PC]{0,200}", device: u64, revision: u64) {
            let _ = marketing_name(&text, device, revision);
            let _ = parse_cpuinfo(&text);
        }
    }
}
