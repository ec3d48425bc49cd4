//! amdgpu's performance monitoring units: counters of a GPU's memory fabric and XGMI links,
//! provided by the perf subsystem.
//!
//! Linux provides them only for Vega 20 (`amdgpu_df_N`, `amdgpu_N`) and MI100 (`amdgpu_N`), where N
//! is the GPU's number among the cards of DRM (`drivers/gpu/drm/amd/amdgpu/amdgpu_pmu.c`). The
//! hardware counts while a counter is open, and has few counters: one that cannot be opened is
//! reported once and not counted.

use std::path::Path;

use gputrace_files::kernel;
use perf_event::events::Dynamic;
use perf_event::{Builder, Counter};

use super::device::is_asleep;
use super::readings::{GpuPlace, Reading, Readings};
use crate::files;
use crate::paths::Paths;

/// Prefix of the units' names.
const PREFIX: &str = "amdgpu_";

/// Open counters of all GPUs. They count until this is dropped.
#[derive(Debug, Default)]
pub struct PmuCounters {
    open: Vec<Open>,
    /// Counters that could not be opened, one sentence each, until the next reading.
    problems: Vec<String>,
}

#[derive(Debug)]
struct Open {
    /// Unit and event as perf(1) names them: `amdgpu_df_0/cake0_pcsout_txdata`.
    name: String,
    gpu_id: u32,
    counter: Counter,
}

impl PmuCounters {
    /// Opens every counter of the `gpus`; empty if they have none. Needs CAP_PERFMON.
    #[must_use]
    pub fn open(paths: &Paths, gpus: &[GpuPlace]) -> Self {
        let mut counters = Self::default();
        for unit in counters.names(&paths.event_source) {
            let Some(card) = unit
                .strip_prefix(PREFIX)
                .and_then(|rest| rest.rsplit('_').next()?.parse::<u32>().ok())
            else {
                continue;
            };
            let is_of = |gpu: &&GpuPlace| {
                let device = paths.device(gpu.drm_render_minor);
                kernel::exists(device.join(format!("drm/card{card}")))
            };
            match gpus.iter().find(is_of) {
                // Counting makes the driver write to the GPU, which would wake it.
                Some(gpu) if is_asleep(&paths.device(gpu.drm_render_minor)).unwrap_or(false) => {
                    counters.problems.push(format!(
                        "perf unit {unit}: GPU {} is asleep and is not woken",
                        gpu.gpu_id
                    ));
                }
                Some(gpu) => counters.add(&paths.event_source, &unit, gpu.gpu_id),
                None => counters.problems.push(format!(
                    "perf unit {unit} belongs to card {card}, which is not a KFD GPU"
                )),
            }
        }
        counters
    }

    /// The entries of a directory; empty if it does not exist or cannot be read. The latter is
    /// recorded as a problem.
    fn names(&mut self, directory: &Path) -> Vec<String> {
        files::names(directory).unwrap_or_else(|error| {
            self.problems.push(error.to_string());
            Vec::new()
        })
    }

    /// Opens the counters of one unit.
    fn add(&mut self, event_source: &Path, unit: &str, gpu_id: u32) {
        let directory = event_source.join(unit);
        for event in self.names(&directory.join("events")) {
            // `x.unit` and `x.scale` describe `x`.
            if event.contains('.') {
                continue;
            }
            let name = format!("{unit}/{event}");
            match open(&directory, &event) {
                Ok(counter) => self.open.push(Open {
                    name,
                    gpu_id,
                    counter,
                }),
                Err(error) => self.problems.push(format!("{name}: {error}")),
            }
        }
    }

    /// Reads all counters; they count from the moment they were opened.
    #[must_use]
    pub fn read(&mut self) -> Readings {
        let mut readings = Readings {
            problems: std::mem::take(&mut self.problems),
            ..Readings::default()
        };
        self.open.retain_mut(|open| match open.counter.read() {
            Ok(value) => {
                readings.values.push(Reading {
                    name: open.name.clone().into(),
                    gpu_id: open.gpu_id,
                    pid: 0,
                    value: value as f64,
                    unit: "",
                    cumulative: true,
                });
                true
            }
            Err(error) => {
                readings
                    .problems
                    .push(format!("{}: {error}; no longer read", open.name));
                false
            }
        });
        readings
    }
}

/// Opens one counter and starts it.
fn open(unit: &Path, event: &str) -> std::io::Result<Counter> {
    let invalid = |error: &dyn std::fmt::Display| {
        std::io::Error::new(std::io::ErrorKind::InvalidData, error.to_string())
    };
    let mut builder = Dynamic::builder(unit)?;
    builder.event(event)?;
    let event = builder.build().map_err(|error| invalid(&error))?;
    // Counts for the GPU, not for a processor or a process. The first processor stands for it.
    // Nothing is excluded, because such units do not support exclusion.
    let mut counter = Builder::new(event)
        .any_pid()
        .one_cpu(0)
        .include_kernel()
        .include_hv()
        .build()?;
    counter.enable()?;
    Ok(counter)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn gpu() -> GpuPlace {
        GpuPlace {
            gpu_id: 51234,
            node_id: 1,
            drm_render_minor: 128,
            pci: None,
        }
    }

    /// A unit: its name, its type, and the names and texts of its events.
    type Unit<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)]);

    /// A directory tree with a GPU that is card 2, and `units`.
    fn tree(units: &[Unit<'_>]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let write = |path: String, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(
            "sys/class/drm/renderD128/device/drm/card2/dev".to_owned(),
            "226:2\n",
        );
        for (unit, kind, events) in units {
            let unit = format!("sys/bus/event_source/devices/{unit}");
            write(format!("{unit}/type"), kind);
            write(format!("{unit}/format/event"), "config:0-63\n");
            for (event, text) in *events {
                write(format!("{unit}/events/{event}"), text);
            }
        }
        root
    }

    #[test]
    fn a_node_without_units_has_no_counters_and_no_problems() {
        let root = tree(&[("msr", "12\n", &[("tsc", "event=0x00\n")])]);
        let mut counters = PmuCounters::open(&Paths::under(root.path()), &[gpu()]);
        let readings = counters.read();
        assert_eq!((readings.values, readings.problems), (vec![], vec![]));
    }

    #[test]
    fn what_cannot_be_opened_is_told_once() {
        let root = tree(&[
            (
                "amdgpu_7",
                "1\n",
                &[("xgmi_link0_data_outbound", "event=0x1\n")],
            ),
            // No unit has this type.
            (
                "amdgpu_df_2",
                "4000000000\n",
                &[("cake0_pcsout_txdata", "event=0x7\n")],
            ),
            (
                "amdgpu_2",
                "nonsense\n",
                &[("broken", "no_such_field=1\n"), ("broken.unit", "x\n")],
            ),
        ]);
        let mut counters = PmuCounters::open(&Paths::under(root.path()), &[gpu()]);
        let readings = counters.read();
        assert_eq!(readings.values, vec![]);
        let [broken, refused, nobody] = readings.problems.as_slice() else {
            panic!("{:?}", readings.problems);
        };
        assert!(broken.starts_with("amdgpu_2/broken: "), "{broken}");
        assert!(nobody.contains("cake0") || refused.contains("cake0"));
        assert!(readings.problems.iter().any(|one| one.contains("card 7")));
        assert_eq!(counters.read().problems, Vec::<String>::new());
    }

    /// The kernel's own software events replace the unit: they are counted in the same way.
    #[test]
    fn counters_count_from_their_opening_on() {
        // PERF_TYPE_SOFTWARE; PERF_COUNT_SW_CPU_CLOCK (ns) of the first processor.
        let root = tree(&[("amdgpu_df_2", "1\n", &[("clock", "event=0x0\n")])]);
        let mut counters = PmuCounters::open(&Paths::under(root.path()), &[gpu()]);
        let first = counters.read();
        if let [problem] = first.problems.as_slice() {
            assert!(
                std::env::var_os("GPUTRACE_REQUIRE_BPF").is_none(),
                "{problem}"
            );
            gputrace_skip::skipped(&problem.to_string());
            return;
        }
        let value = |readings: &Readings| {
            let [one] = readings.values.as_slice() else {
                panic!("{readings:?}")
            };
            assert_eq!(
                (&*one.name, one.gpu_id, one.cumulative),
                ("amdgpu_df_2/clock", 51234, true)
            );
            one.value
        };
        let first = value(&first);
        let second = value(&counters.read());
        assert!(second > first, "{second} after {first}");
    }
}
