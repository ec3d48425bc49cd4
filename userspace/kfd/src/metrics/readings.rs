//! All measurements of a GPU and a process at a moment, as numbers with names and units, in the
//! form that a recording keeps.

use std::borrow::Cow;
use std::collections::BTreeMap;

use gputrace_files::kernel;

use super::{Counter, Unit, counters, gpu_metrics};
use crate::paths::Paths;
use crate::processes::{self, Detail, GpuUse};
use crate::topology::Topology;

/// A number.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// Name of the file, or `gpu_metrics.` followed by the field's name:
    /// `gpu_metrics.current_gfxclk[1]`.
    pub name: Cow<'static, str>,
    /// KFD's id of the GPU; 0 for memory of a process that is on no GPU.
    pub gpu_id: u32,
    /// Process id, initial pid namespace; 0 for the whole GPU.
    pub pid: u32,
    /// Value in [`Reading::unit`].
    pub value: f64,
    /// Symbol of the unit, e.g. `°C`; empty for a plain number.
    pub unit: &'static str,
    /// Whether it only ever grows, so that only differences are meaningful.
    pub cumulative: bool,
}

/// All numbers read at a moment.
#[derive(Debug, Default)]
pub struct Readings {
    /// The available numbers.
    pub values: Vec<Reading>,
    /// Files that could not be read or had invalid contents, one sentence each.
    pub problems: Vec<String>,
    /// Whether the GPU is asleep and was not woken.
    pub asleep: bool,
}

/// A GPU's place in sysfs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuPlace {
    /// KFD's id of the GPU.
    pub gpu_id: u32,
    /// KFD's topology node.
    pub node_id: u32,
    /// Minor number of its render node.
    pub drm_render_minor: u32,
    /// Address on the PCI bus in the form of fdinfo, `0000:03:00.0`.
    pub pci: Option<String>,
}

/// The GPUs of a node that have a render node.
#[must_use]
pub fn places(topology: &Topology) -> Vec<GpuPlace> {
    let place = |node: &crate::topology::Node| {
        (node.gpu_id != 0).then_some(GpuPlace {
            gpu_id: node.gpu_id,
            node_id: node.id,
            drm_render_minor: node.drm_render_minor()?,
            pci: node.pci_address().map(|address| address.to_string()),
        })
    };
    topology.nodes.iter().filter_map(place).collect()
}

/// Reads the counters of a GPU. Each reading asks its firmware, which takes up to milliseconds.
/// `pcie_bw`, for which the kernel counts for a second, is left out; see [`pcie_readings`].
#[must_use]
pub fn gpu_readings(paths: &Paths, gpu: &GpuPlace) -> Readings {
    let read = counters(paths, gpu.drm_render_minor, Detail::Cheap);
    let mut readings = Readings {
        asleep: read.asleep,
        problems: read.problems.iter().map(ToString::to_string).collect(),
        values: read
            .values
            .into_iter()
            .map(|one| of_counter(gpu, one))
            .collect(),
    };
    if readings.asleep {
        return readings;
    }
    match gpu_metrics(paths, gpu.drm_render_minor) {
        Ok(None) => {}
        Ok(Some(table)) => {
            for metric in &table.metrics {
                if matches!(
                    metric.unit,
                    Unit::Nanoseconds | Unit::TenNanoseconds | Unit::Microseconds
                ) {
                    // These are times on the firmware's clocks, and a constant.
                    continue;
                }
                readings.values.push(Reading {
                    name: format!("gpu_metrics.{}", metric.full_name()).into(),
                    gpu_id: gpu.gpu_id,
                    pid: 0,
                    value: metric.value(),
                    unit: metric.unit.shown().0,
                    cumulative: grows(metric.name, metric.unit),
                });
            }
        }
        Err(error) => readings
            .problems
            .push(format!("GPU {}: {error}", gpu.gpu_id)),
    }
    readings
}

/// Reads the number of packets that the GPU's PCIe link carries in a second. Takes that second.
#[must_use]
pub fn pcie_readings(paths: &Paths, gpu: &GpuPlace) -> Readings {
    let read = super::device::pcie_bandwidth(paths, gpu.drm_render_minor);
    Readings {
        asleep: read.asleep,
        problems: read.problems.iter().map(ToString::to_string).collect(),
        values: read
            .values
            .into_iter()
            .map(|one| of_counter(gpu, one))
            .collect(),
    }
}

/// Reads what a process holds and uses according to KFD; empty if KFD does not list it.
#[must_use]
pub fn process_readings(paths: &Paths, pid: u32) -> Readings {
    let mut readings = Readings::default();
    let process = match processes::process(paths, pid, Detail::All) {
        Ok(Some(process)) => process,
        Ok(None) => return readings,
        Err(error) => {
            // A process that has ended meanwhile is no problem.
            if kernel::exists(paths.kfd.join("proc").join(pid.to_string())) {
                readings.problems.push(error.to_string());
            }
            return readings;
        }
    };
    readings.problems = process.problems.iter().map(ToString::to_string).collect();
    for (gpu_id, one) in &process.gpus {
        let GpuUse {
            vram_bytes,
            sdma_us,
            evicted_ms,
            cu_occupancy,
            faults,
            page_in,
            page_out,
        } = *one;
        for (name, raw, scale, unit, cumulative) in [
            ("vram", vram_bytes, 1.0, "B", false),
            ("sdma", sdma_us, 1e3, "ns", true),
            ("evicted", evicted_ms, 1e6, "ns", true),
            ("cu_occupancy", cu_occupancy, 1.0, "", false),
            ("faults", faults, 1.0, "", true),
            ("page_in", page_in, 1.0, "", true),
            ("page_out", page_out, 1.0, "", true),
        ] {
            readings.values.extend(raw.map(|raw| Reading {
                name: name.into(),
                gpu_id: *gpu_id,
                pid,
                value: real(raw) * scale,
                unit,
                cumulative,
            }));
        }
    }
    readings
}

/// Reads a process's use of GPUs according to DRM, `drm-memory-vram` and so on: the sums over its
/// clients for each GPU. Reads one file per descriptor of the process.
#[must_use]
pub fn drm_readings(paths: &Paths, gpus: &[GpuPlace], pid: u32) -> Readings {
    let mut readings = Readings::default();
    let clients = match processes::drm_clients(paths, pid) {
        Ok(clients) => clients,
        Err(error) => {
            if kernel::exists(paths.proc.join(pid.to_string())) {
                readings.problems.push(error.to_string());
            }
            return readings;
        }
    };
    let mut sums: BTreeMap<(u32, String), (f64, &'static str)> = BTreeMap::new();
    for client in clients.iter().filter(|client| client.driver == "amdgpu") {
        let of = |gpu: &&GpuPlace| gpu.pci.is_some() && gpu.pci == client.device;
        let gpu_id = gpus.iter().find(of).map_or(0, |gpu| gpu.gpu_id);
        let memory = client.memory_bytes.iter().map(|one| (one, "B"));
        for ((key, value), unit) in memory.chain(client.engine_ns.iter().map(|one| (one, "ns"))) {
            let sum = sums.entry((gpu_id, key.clone())).or_insert((0.0, unit));
            sum.0 += real(*value);
        }
    }
    for ((gpu_id, name), (value, unit)) in sums {
        readings.values.push(Reading {
            cumulative: unit == "ns",
            name: name.into(),
            gpu_id,
            pid,
            value,
            unit,
        });
    }
    readings
}

fn of_counter(gpu: &GpuPlace, counter: Counter) -> Reading {
    Reading {
        gpu_id: gpu.gpu_id,
        pid: 0,
        value: counter.value(),
        unit: counter.unit.shown().0,
        cumulative: grows(&counter.name, counter.unit),
        name: counter.name,
    }
}

/// Whether a number only ever grows.
fn grows(name: &str, unit: Unit) -> bool {
    unit.is_sum()
        || name.ends_with("_acc")
        || matches!(name, "accumulation_counter" | "energy_accumulator")
}

#[expect(clippy::cast_precision_loss, reason = "a value to be shown")]
fn real(number: u64) -> f64 {
    number as f64
}
