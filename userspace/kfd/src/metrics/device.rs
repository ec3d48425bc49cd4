//! The counters in a device's sysfs directory, and its hwmon sensors.
//!
//! Names and units come from the kernel's `amdgpu_pm.c` and
//! `Documentation/hwmon/sysfs-interface.rst`.

use std::borrow::Cow;
use std::path::Path;

use super::{Counter, Unit};
use crate::files::{self, FileError};
use crate::paths::Paths;
use crate::processes::Detail;

/// Files with a single number.
const FILES: &[(&str, Unit)] = &[
    ("gpu_busy_percent", Unit::Percent),
    ("mem_busy_percent", Unit::Percent),
    ("vcn_busy_percent", Unit::Percent),
    ("mem_info_vram_total", Unit::Bytes),
    ("mem_info_vram_used", Unit::Bytes),
    ("mem_info_vis_vram_total", Unit::Bytes),
    ("mem_info_vis_vram_used", Unit::Bytes),
    ("mem_info_gtt_total", Unit::Bytes),
    ("mem_info_gtt_used", Unit::Bytes),
    ("mem_info_preempt_used", Unit::Bytes),
    ("current_link_width", Unit::Lanes),
    ("xgmi_error", Unit::Count),
];

/// Files with the levels of a clock, one of them marked as the current one.
const CLOCKS: &[&str] = &["pp_dpm_sclk", "pp_dpm_mclk", "pp_dpm_fclk", "pp_dpm_socclk"];

/// Counters of a device at a moment.
#[derive(Debug, Default)]
pub struct Counters {
    /// Whether the device sleeps. Then there are no values, because reading them would wake it.
    pub asleep: bool,
    /// The available values.
    pub values: Vec<Counter>,
    /// Files with invalid contents or that could not be read.
    pub problems: Vec<FileError>,
}

/// Reads the counters of the device behind a render node. There are no values if the device has no
/// counters or does not exist.
///
/// [`Detail::All`] includes `pcie_bw`, for which the kernel counts for a whole second.
#[must_use]
pub fn counters(paths: &Paths, drm_render_minor: u32, detail: Detail) -> Counters {
    let device = paths.device(drm_render_minor);
    let mut counters = Counters::default();
    match is_asleep(&device) {
        Ok(asleep) => counters.asleep = asleep,
        Err(error) => counters.problems.push(error),
    }
    if counters.asleep {
        return counters;
    }
    for (name, unit) in FILES {
        counters.add(&device.join(name), Cow::Borrowed(name), *unit);
    }
    for name in CLOCKS {
        let path = device.join(name);
        let value =
            files::supported_text(&path).and_then(|text| current_level(&path, text.as_deref()));
        counters.keep(value, Cow::Borrowed(name), Unit::MegaHertz);
    }
    if detail == Detail::All {
        counters.pcie_bandwidth(&device.join("pcie_bw"));
    }
    counters.sensors(&device.join("hwmon"));
    counters
}

/// Reads only `pcie_bw`, for which the kernel counts for a whole second.
pub(super) fn pcie_bandwidth(paths: &Paths, drm_render_minor: u32) -> Counters {
    let device = paths.device(drm_render_minor);
    let mut counters = Counters::default();
    match is_asleep(&device) {
        Ok(asleep) => counters.asleep = asleep,
        Err(error) => counters.problems.push(error),
    }
    if !counters.asleep {
        counters.pcie_bandwidth(&device.join("pcie_bw"));
    }
    counters
}

/// Whether the device with this sysfs directory sleeps (runtime power management). Reading its
/// sensors would wake it.
///
/// # Errors
///
/// [`FileError`] if its state cannot be read.
pub fn is_asleep(device: &Path) -> Result<bool, FileError> {
    let status = files::text(&device.join("power/runtime_status"))?;
    Ok(status.is_some_and(|status| status == "suspended"))
}

impl Counters {
    fn keep(&mut self, read: Result<Option<i64>, FileError>, name: Cow<'static, str>, unit: Unit) {
        match read {
            Ok(Some(raw)) => self.values.push(Counter { name, raw, unit }),
            Ok(None) => {}
            Err(error) => self.problems.push(error),
        }
    }

    fn add(&mut self, path: &Path, name: Cow<'static, str>, unit: Unit) {
        let read = files::supported_text(path).and_then(|text| integer(path, text.as_deref()));
        self.keep(read, name, unit);
    }

    /// Reads `received sent size`: numbers of packets in the last second, and their maximum size in
    /// bytes.
    fn pcie_bandwidth(&mut self, path: &Path) {
        let text = match files::supported_text(path) {
            Ok(Some(text)) => text,
            Ok(None) => return,
            Err(error) => return self.problems.push(error),
        };
        let names = [
            ("pcie_bw received", Unit::Count),
            ("pcie_bw sent", Unit::Count),
            ("pcie_bw largest packet", Unit::Bytes),
        ];
        for ((name, unit), word) in names.into_iter().zip(text.split_whitespace()) {
            self.keep(integer(path, Some(word)), Cow::Borrowed(name), unit);
        }
    }

    fn sensors(&mut self, hwmon: &Path) {
        let monitors = match files::names(hwmon) {
            Ok(monitors) => monitors,
            Err(error) => return self.problems.push(error),
        };
        for monitor in monitors.iter().filter(|name| name.starts_with("hwmon")) {
            let directory = hwmon.join(monitor);
            match files::names(&directory) {
                Ok(names) => {
                    for name in names {
                        self.sensor(&directory, &name);
                    }
                }
                Err(error) => self.problems.push(error),
            }
        }
    }

    /// Reads `temp1_input` and similar files, with the label in `temp1_label`.
    fn sensor(&mut self, directory: &Path, name: &str) {
        let Some((sensor, "input" | "average")) = name.split_once('_') else {
            return;
        };
        let unit = match sensor.trim_end_matches(|c: char| c.is_ascii_digit()) {
            "temp" => Unit::MilliCelsius,
            "power" => Unit::MicroWatt,
            "energy" => Unit::MicroJoule,
            "freq" => Unit::Hertz,
            "in" => Unit::MilliVolt,
            "curr" => Unit::MilliAmpere,
            "fan" => Unit::Rpm,
            _ => return,
        };
        let label = match files::supported_text(&directory.join(format!("{sensor}_label"))) {
            Ok(label) => label,
            Err(error) => {
                self.problems.push(error);
                None
            }
        };
        let shown = match label {
            Some(label) => format!("{name} ({label})"),
            None => name.to_owned(),
        };
        self.add(&directory.join(name), Cow::Owned(shown), unit);
    }
}

fn integer(path: &Path, text: Option<&str>) -> Result<Option<i64>, FileError> {
    let number = text.map(|text| {
        let lie = || FileError::malformed(path, 1, format!("{text:?} is not a number"));
        text.parse().map_err(|_| lie())
    });
    number.transpose()
}

/// The level marked with a star, in MHz, from lines like `1: 1700Mhz *`. A clock that is off has
/// none.
fn current_level(path: &Path, text: Option<&str>) -> Result<Option<i64>, FileError> {
    for (line, content) in (1..).zip(text.unwrap_or_default().lines()) {
        let Some(level) = content.trim_end().strip_suffix('*') else {
            continue;
        };
        let clock = level.split_once(':').map(|(_, clock)| clock.trim());
        let number = clock
            .and_then(|clock| clock.strip_suffix("Mhz"))
            .and_then(|number| number.trim().parse().ok());
        return match number {
            Some(number) => Ok(Some(number)),
            None => Err(FileError::malformed(
                path,
                line,
                format!("{content:?} is not a clock"),
            )),
        };
    }
    Ok(None)
}
