//! The table that the power firmware fills in: `/sys/class/drm/renderD*/device/gpu_metrics`.

use std::fmt;

use thiserror::Error;

use super::Unit;
use super::device::is_asleep;
use super::layouts::{ATTRIBUTE_UNITS, ATTRIBUTES, Item, LAYOUTS, Layout, PADDING};
use crate::files::{self, FileError};
use crate::paths::Paths;

/// Maximum size of a table in bytes; sysfs provides at most a page.
const MAX_BYTES: u64 = 64 << 10;

/// Size of the header: table size, format revision and content revision.
const HEADER: usize = 4;

/// The version that consists of a list of attributes.
const ATTRIBUTED: (u8, u8) = (1, 9);

/// Why a table could not be decoded.
#[derive(Debug, Error)]
pub enum MetricsError {
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// gputrace does not know the table's version.
    #[error("gpu_metrics has version {format}.{content} ({size} bytes), which is unknown")]
    UnknownVersion {
        /// Format revision.
        format: u8,
        /// Content revision.
        content: u8,
        /// Size of the table, bytes.
        size: u16,
    },
    /// The file is shorter than the table claims.
    #[error("gpu_metrics ends after {have} of {size} bytes")]
    Truncated {
        /// Available bytes.
        have: usize,
        /// Expected bytes.
        size: usize,
    },
}

/// A decoded table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuMetrics {
    /// Format and content revision.
    pub version: (u8, u8),
    /// The numbers that the firmware filled in. It leaves out those that a chip does not have.
    pub metrics: Vec<Metric>,
}

/// One number of the table. It is shown with its indices, as `xcp_stats[1].gfx_busy_inst[0]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// The array of structures that contains it, and the index there.
    pub group: Option<(&'static str, usize)>,
    /// Name in the kernel's header; `attribute` for an attribute of version 1.9 that gputrace does
    /// not know.
    pub name: &'static str,
    /// Index in an array of numbers; for an unknown attribute, the attribute's number.
    pub index: Option<usize>,
    /// Number as in the table.
    pub raw: u64,
    /// Its unit.
    pub unit: Unit,
}

impl Metric {
    /// Value in the unit that [`Unit::shown`] names.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a value to be shown")]
    pub fn value(&self) -> f64 {
        self.raw as f64 * self.unit.shown().1
    }

    /// Name with indices.
    #[must_use]
    pub fn full_name(&self) -> String {
        let mut name = match self.group {
            Some((group, index)) => format!("{group}[{index}].{}", self.name),
            None => self.name.to_owned(),
        };
        if let Some(index) = self.index {
            name.push_str(&format!("[{index}]"));
        }
        name
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} {}",
            self.full_name(),
            self.value(),
            self.unit.shown().0
        )
    }
}

/// The versions that can be decoded, each with the size of the kernel's structure (bytes); `None`
/// for 1.9, in which the number of attributes depends on the chip.
pub fn known_versions() -> impl Iterator<Item = ((u8, u8), Option<usize>)> {
    let fixed = LAYOUTS
        .iter()
        .map(|layout| (layout.version, Some(layout.size)));
    fixed.chain([(ATTRIBUTED, None)])
}

/// Reads the table of a GPU; `None` if it has none, or the GPU is asleep.
///
/// # Errors
///
/// [`MetricsError`].
pub fn gpu_metrics(
    paths: &Paths,
    drm_render_minor: u32,
) -> Result<Option<GpuMetrics>, MetricsError> {
    let device = paths.device(drm_render_minor);
    if is_asleep(&device)? {
        return Ok(None);
    }
    match files::supported_bytes(&device.join("gpu_metrics"), MAX_BYTES)? {
        // An empty file means that the chip's power management does not support the table.
        Some(bytes) if !bytes.is_empty() => GpuMetrics::decode(&bytes).map(Some),
        _ => Ok(None),
    }
}

impl GpuMetrics {
    /// Decodes a table.
    ///
    /// # Errors
    /// [`MetricsError::UnknownVersion`] and [`MetricsError::Truncated`].
    pub fn decode(bytes: &[u8]) -> Result<Self, MetricsError> {
        let truncated = |size| MetricsError::Truncated {
            have: bytes.len(),
            size,
        };
        let &[low, high, format, content, ..] = bytes else {
            return Err(truncated(HEADER));
        };
        let size = u16::from_le_bytes([low, high]);
        let table = bytes
            .get(..size.into())
            .ok_or_else(|| truncated(size.into()))?;
        let version = (format, content);
        let metrics = if version == ATTRIBUTED {
            attributes(table).ok_or_else(|| truncated(size.into()))?
        } else {
            let layout = LAYOUTS.iter().find(|layout| layout.version == version);
            let layout = layout.ok_or(MetricsError::UnknownVersion {
                format,
                content,
                size,
            })?;
            fixed(layout, table)
        };
        Ok(Self { version, metrics })
    }

    /// Finds a number by its name in the header; the first one of an array.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Metric> {
        self.metrics.iter().find(|metric| metric.name == name)
    }
}

/// Walks over a table with the layout of a C compiler.
struct Walk<'a> {
    table: &'a [u8],
    offset: usize,
    metrics: Vec<Metric>,
}

fn fixed(layout: &Layout, table: &[u8]) -> Vec<Metric> {
    let mut walk = Walk {
        table,
        offset: HEADER,
        metrics: Vec::new(),
    };
    for items in layout.items {
        walk.items(items, None);
    }
    walk.metrics
}

impl Walk<'_> {
    fn items(&mut self, items: &[Item], group: Option<(&'static str, usize)>) {
        for item in items {
            match *item {
                Item::Number {
                    name,
                    width,
                    count,
                    unit,
                } => {
                    self.offset = self.offset.next_multiple_of(width);
                    for index in 0..count {
                        let raw = number(self.table, self.offset, width);
                        self.offset += width;
                        if let Some(raw) = raw.filter(|_| name != PADDING) {
                            self.metrics.push(Metric {
                                group,
                                name,
                                index: (count > 1).then_some(index),
                                raw,
                                unit,
                            });
                        }
                    }
                }
                Item::Group { name, count, items } => {
                    let align = alignment(items);
                    for index in 0..count {
                        self.offset = self.offset.next_multiple_of(align);
                        self.items(items, Some((name, index)));
                    }
                    self.offset = self.offset.next_multiple_of(align);
                }
            }
        }
    }
}

fn alignment(items: &[Item]) -> usize {
    let of = |item: &Item| match item {
        Item::Number { width, .. } => *width,
        Item::Group { items, .. } => alignment(items),
    };
    items.iter().map(of).max().unwrap_or(1)
}

/// A number, if the firmware filled it in: the driver sets all bits of all fields beforehand.
fn number(table: &[u8], offset: usize, width: usize) -> Option<u64> {
    let field = table.get(offset..)?.get(..width)?;
    if field.iter().all(|byte| *byte == u8::MAX) {
        return None;
    }
    let mut number = [0; 8];
    number.get_mut(..width)?.copy_from_slice(field);
    Some(u64::from_le_bytes(number))
}

/// Decodes version 1.9: a count, followed by packed attributes that describe themselves. `None` if
/// the table ends too early.
fn attributes(table: &[u8]) -> Option<Vec<Metric>> {
    // Extracts bits of an attribute's description: `AMDGPU_METRICS_ENC_ATTR`.
    let part = |description: u64, shift: u32, bits: u32| {
        usize::try_from(description >> shift & ((1 << bits) - 1)).unwrap_or(usize::MAX)
    };
    let word = |offset: usize, width: usize| {
        let field = table.get(offset..)?.get(..width)?;
        let mut number = [0; 8];
        number.get_mut(..width)?.copy_from_slice(field);
        Some(u64::from_le_bytes(number))
    };
    let count = word(HEADER, 4)?;
    let mut offset = HEADER + 4;
    let mut metrics = Vec::new();
    for _ in 0..count {
        let description = word(offset, 8)?;
        offset += 8;
        let id = part(description, 10, 10);
        let unit = ATTRIBUTE_UNITS.get(part(description, 24, 8));
        // Types come in pairs, unsigned and signed: 8, 16, 32 and 64 bits.
        let width = 1 << (part(description, 20, 4) / 2).min(3);
        let instances = part(description, 0, 10);
        let name = ATTRIBUTES.get(id);
        for instance in 0..instances {
            table.get(offset..)?.get(..width)?;
            if let Some(raw) = number(table, offset, width) {
                metrics.push(Metric {
                    group: None,
                    name: name.copied().unwrap_or("attribute"),
                    index: match name {
                        Some(_) => (instances > 1).then_some(instance),
                        None => Some(id),
                    },
                    raw,
                    unit: unit.copied().unwrap_or(Unit::Chip),
                });
            }
            offset += width;
        }
    }
    Some(metrics)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A table of a version in which every 16-bit word is its own offset.
    fn table(layout: &Layout) -> Vec<u8> {
        let (format, content) = layout.version;
        let size = u16::try_from(layout.size).unwrap();
        let words = (0..size / 2).flat_map(|word| (word * 2).to_le_bytes());
        let mut bytes: Vec<u8> = words.collect();
        bytes[..2].copy_from_slice(&size.to_le_bytes());
        (bytes[2], bytes[3]) = (format, content);
        bytes
    }

    fn of_version(version: (u8, u8)) -> &'static Layout {
        LAYOUTS
            .iter()
            .find(|layout| layout.version == version)
            .unwrap()
    }

    #[test]
    fn layouts_have_the_sizes_of_the_kernels_structures() {
        assert!(known_versions().any(|known| known == ((1, 3), Some(120))));
        for layout in LAYOUTS {
            let mut walk = Walk {
                table: &[],
                offset: HEADER,
                metrics: Vec::new(),
            };
            let mut align = 2;
            for items in layout.items {
                walk.items(items, None);
                align = align.max(alignment(items));
            }
            let (version, size) = (layout.version, walk.offset.next_multiple_of(align));
            assert_eq!(size, layout.size, "{version:?}");
        }
    }

    #[test]
    fn fields_are_where_the_kernel_has_them() {
        // Offsets from a compiler: the low 16 bits of each field are its offset.
        for (version, group, name, index, offset) in [
            ((1, 0), None, "system_clock_counter", None, 8),
            ((1, 0), None, "throttle_status", None, 68),
            ((1, 3), None, "energy_accumulator", None, 24),
            ((1, 3), None, "current_gfxclk", None, 54),
            ((1, 3), None, "temperature_hbm", Some(3), 94),
            ((1, 3), None, "indep_throttle_status", None, 112),
            ((1, 4), None, "xgmi_write_data_acc", Some(0), 168),
            ((1, 4), None, "current_uclk", None, 280),
            ((1, 5), None, "pcie_nak_sent_count_acc", None, 168),
            ((1, 5), None, "current_dclk0", Some(3), 350),
            ((1, 6), None, "firmware_timestamp", None, 256),
            (
                (1, 6),
                Some(("xcp_stats", 0)),
                "gfx_busy_inst",
                Some(0),
                312,
            ),
            (
                (1, 6),
                Some(("xcp_stats", 7)),
                "gfx_busy_acc",
                Some(0),
                312 + 7 * 168 + 104,
            ),
            (
                (1, 8),
                Some(("xcp_stats", 1)),
                "vcn_busy",
                Some(0),
                344 + 376 + 112,
            ),
            ((2, 0), None, "temperature_gfx", None, 16),
            ((2, 1), None, "average_core_power", Some(0), 48),
            ((2, 3), None, "average_temperature_l3", Some(1), 150),
            ((2, 4), None, "average_gfx_current", None, 162),
            ((3, 0), None, "average_apu_power", None, 120),
            ((3, 0), None, "current_gfx_maxfreq", None, 224),
            ((3, 0), None, "throttle_residency_prochot", None, 228),
        ] {
            let decoded = GpuMetrics::decode(&table(of_version(version))).unwrap();
            assert_eq!(decoded.version, version);
            let is_it = |metric: &&Metric| {
                (metric.group, metric.name, metric.index) == (group, name, index)
            };
            let metric = decoded.metrics.iter().find(is_it).unwrap();
            assert_eq!(metric.raw & 0xffff, offset, "{version:?} {name}");
            assert!(decoded.metrics.iter().all(|metric| metric.name != PADDING));
        }
    }

    #[test]
    fn what_the_firmware_left_out_is_absent() {
        let mut bytes = table(of_version((1, 3)));
        bytes[22..24].copy_from_slice(&[0xff; 2]);
        bytes[54..56].copy_from_slice(&1_700_u16.to_le_bytes());
        let decoded = GpuMetrics::decode(&bytes).unwrap();
        assert!(decoded.get("average_socket_power").is_none());
        assert_eq!(
            decoded.get("current_gfxclk").unwrap().to_string(),
            "current_gfxclk 1700 MHz"
        );
    }

    #[test]
    fn an_unknown_version_is_named_and_a_short_table_refused() {
        let unknown = GpuMetrics::decode(&[4, 0, 9, 1]).unwrap_err().to_string();
        assert_eq!(
            unknown,
            "gpu_metrics has version 9.1 (4 bytes), which is unknown"
        );
        let short = GpuMetrics::decode(&table(of_version((1, 3)))[..100]);
        assert!(matches!(
            short,
            Err(MetricsError::Truncated {
                have: 100,
                size: 120
            })
        ));
        assert!(matches!(
            GpuMetrics::decode(&[1]),
            Err(MetricsError::Truncated { .. })
        ));
    }

    #[test]
    fn attributes_say_what_they_are() {
        let encode =
            |unit: u64, kind: u64, id: u64, count: u64| unit << 24 | kind << 20 | id << 10 | count;
        let mut bytes = vec![0, 0, 1, 9, 3, 0, 0, 0];
        bytes.extend(encode(2, 2, 0, 1).to_le_bytes());
        bytes.extend(71_u16.to_le_bytes());
        bytes.extend(encode(1, 2, 33, 2).to_le_bytes());
        bytes.extend([0xff, 0xff, 0x64, 0]);
        bytes.extend(encode(99, 4, 1_000, 1).to_le_bytes());
        bytes.extend(5_u32.to_le_bytes());
        bytes[0] = u8::try_from(bytes.len()).unwrap();
        let decoded = GpuMetrics::decode(&bytes).unwrap();
        let shown: Vec<String> = decoded.metrics.iter().map(ToString::to_string).collect();
        assert_eq!(
            shown,
            [
                "temperature_hotspot 71 °C",
                "current_gfxclk[1] 100 MHz",
                "attribute[1000] 5 "
            ]
        );
        bytes[4] = 4;
        assert!(matches!(
            GpuMetrics::decode(&bytes),
            Err(MetricsError::Truncated { .. })
        ));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_table_or_an_error(
            mut bytes in prop::collection::vec(any::<u8>(), 0..4_000), format in 1_u8..4, content in 0_u8..10,
        ) {
            let _ = GpuMetrics::decode(&bytes);
            let length = u16::try_from(bytes.len()).unwrap();
            if let [low, high, at_format, at_content, ..] = bytes.as_mut_slice() {
                [*low, *high] = length.to_le_bytes();
                (*at_format, *at_content) = (format, content);
            }
            let _ = GpuMetrics::decode(&bytes);
        }
    }
}
