//! Measurements of a GPU: amdgpu's `gpu_metrics` table and the counters in its sysfs directory.
//!
//! * [`gpu_metrics`] decodes the table that the GPU's power firmware fills in, in any of its
//!   versions.
//! * [`counters`] reads the single files: busy percentage, memory, clocks, and the sensors of
//!   hwmon.
//! * [`gpu_readings`], [`process_readings`] and [`drm_readings`] convert all of that, and what
//!   processes use, into one form for recordings.
//! * [`PmuCounters`] are the counters that perf provides for a few GPUs.
//!
//! Each reading is a message to the firmware and takes up to milliseconds, one at a time per GPU;
//! more than ten readings per second make no sense. The table and the counters are not read while a
//! GPU is asleep (runtime power management), and the result says so.

mod device;
mod gpu_metrics;
mod layouts;
mod pmu;
mod readings;

use std::borrow::Cow;
use std::fmt;

pub use device::{Counters, counters, is_asleep};
pub use gpu_metrics::{GpuMetrics, Metric, MetricsError, gpu_metrics, known_versions};
pub use pmu::PmuCounters;
pub use readings::{
    GpuPlace, Reading, Readings, drm_readings, gpu_readings, pcie_readings, places,
    process_readings,
};

pub use crate::processes::Detail;

/// Unit of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// A plain number.
    Count,
    /// Bits; see the header for which.
    Bits,
    /// Unit of the chip's firmware: the driver does not convert it, and chips differ.
    Chip,
    /// %.
    Percent,
    /// 0.01 %.
    CentiPercent,
    /// Percent, accumulated at a rate that the firmware chooses. Averages are differences divided
    /// by the difference of `accumulation_counter`, where there is one.
    PercentSum,
    /// °C.
    Celsius,
    /// 0.01 °C.
    CentiCelsius,
    /// 0.001 °C.
    MilliCelsius,
    /// W.
    Watt,
    /// mW.
    MilliWatt,
    /// µW.
    MicroWatt,
    /// 2^-16 J.
    Joule65536,
    /// µJ.
    MicroJoule,
    /// mV.
    MilliVolt,
    /// mA.
    MilliAmpere,
    /// MHz.
    MegaHertz,
    /// Hz.
    Hertz,
    /// Revolutions per minute.
    Rpm,
    /// ns.
    Nanoseconds,
    /// 10 ns.
    TenNanoseconds,
    /// µs.
    Microseconds,
    /// Number of lanes of a link.
    Lanes,
    /// GT/s.
    GigaTransfers,
    /// 0.1 GT/s.
    DeciGigaTransfers,
    /// Gbit/s.
    GigaBits,
    /// GB/s.
    GigaBytesPerSecond,
    /// GB/s, accumulated.
    GigaBytesPerSecondSum,
    /// MB/s.
    MegaBytesPerSecond,
    /// KiB.
    KibiBytes,
    /// Bytes.
    Bytes,
}

impl Unit {
    /// Symbol of the displayed unit, and the factor from the raw number to that unit.
    #[must_use]
    pub const fn shown(self) -> (&'static str, f64) {
        match self {
            Self::Count | Self::Bits | Self::Chip => ("", 1.0),
            Self::Percent | Self::PercentSum => ("%", 1.0),
            Self::CentiPercent => ("%", 0.01),
            Self::Celsius => ("°C", 1.0),
            Self::CentiCelsius => ("°C", 0.01),
            Self::MilliCelsius => ("°C", 0.001),
            Self::Watt => ("W", 1.0),
            Self::MilliWatt => ("W", 1e-3),
            Self::MicroWatt => ("W", 1e-6),
            Self::Joule65536 => ("J", 1.0 / 65_536.0),
            Self::MicroJoule => ("J", 1e-6),
            Self::MilliVolt => ("V", 1e-3),
            Self::MilliAmpere => ("A", 1e-3),
            Self::MegaHertz => ("MHz", 1.0),
            Self::Hertz => ("MHz", 1e-6),
            Self::Rpm => ("rpm", 1.0),
            Self::Nanoseconds => ("ns", 1.0),
            Self::TenNanoseconds => ("ns", 10.0),
            Self::Microseconds => ("ns", 1e3),
            Self::Lanes => ("lanes", 1.0),
            Self::GigaTransfers => ("GT/s", 1.0),
            Self::DeciGigaTransfers => ("GT/s", 0.1),
            Self::GigaBits => ("Gbit/s", 1.0),
            Self::GigaBytesPerSecond | Self::GigaBytesPerSecondSum => ("GB/s", 1.0),
            Self::MegaBytesPerSecond => ("MB/s", 1.0),
            Self::KibiBytes => ("B", 1_024.0),
            Self::Bytes => ("B", 1.0),
        }
    }

    /// Whether only differences between two readings are meaningful.
    #[must_use]
    pub const fn is_sum(self) -> bool {
        matches!(
            self,
            Self::PercentSum | Self::GigaBytesPerSecondSum | Self::Joule65536 | Self::MicroJoule
        )
    }
}

/// A number from a device's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    /// Name of the file, with a sensor's label: `gpu_busy_percent`, `temp2_input (junction)`.
    pub name: Cow<'static, str>,
    /// Number as in the file.
    pub raw: i64,
    /// Its unit.
    pub unit: Unit,
}

impl Counter {
    /// Value in the unit that [`Unit::shown`] names.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a value to be shown")]
    pub fn value(&self) -> f64 {
        self.raw as f64 * self.unit.shown().1
    }
}

impl fmt::Display for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.name, self.value(), self.unit.shown().0)
    }
}
