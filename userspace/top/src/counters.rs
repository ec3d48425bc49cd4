//! The last readings of the counters that are shown. Names are those of `gputrace-kfd`'s metrics:
//! the driver's files in sysfs, `gpu_metrics`, and KFD's directory of the process.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use gputrace_timeline::event::CounterSample;

/// Power of a GPU, W: the first that it has counts.
const POWER: &[&str] = &[
    "power1_average",
    "power1_input",
    "gpu_metrics.average_socket_power",
    "gpu_metrics.curr_socket_power",
];
/// Clock of a GPU's shaders, MHz.
const CLOCK: &[&str] = &["pp_dpm_sclk", "gpu_metrics.current_gfxclk"];
/// Video memory of a GPU, bytes.
const VRAM_USED: &[&str] = &["mem_info_vram_used"];
const VRAM_TOTAL: &[&str] = &["mem_info_vram_total"];

/// Memory that a process holds on a GPU, by KFD.
const PROCESS_VRAM: &str = "vram";

/// The last values by GPU and name, and the video memory by process and GPU. Memory grows with the
/// number of GPUs and processes.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    gpus: HashMap<(Option<u32>, &'static str), f64, RandomState>,
    vram: HashMap<u32, HashMap<u32, f64, RandomState>, RandomState>,
}

impl Counters {
    /// Remembers a reading, if it is one that is shown.
    pub(crate) fn learn(&mut self, sample: &CounterSample) {
        let counter = &sample.counter;
        if counter.pid != 0 {
            if counter.name == PROCESS_VRAM {
                let gpus = self.vram.entry(counter.pid).or_default();
                gpus.insert(counter.gpu_id, sample.value);
            }
            return;
        }
        let mut shown = [POWER, CLOCK, VRAM_USED, VRAM_TOTAL].into_iter().flatten();
        if let Some(name) = shown.find(|name| **name == counter.name) {
            self.gpus.insert((counter.node_id, name), sample.value);
        }
    }

    /// Forgets a process.
    pub(crate) fn forget(&mut self, pid: u32) {
        self.vram.remove(&pid);
    }

    fn first(&self, node: Option<u32>, names: &[&'static str]) -> Option<f64> {
        let mut known = names.iter();
        known.find_map(|name| self.gpus.get(&(node, *name)).copied())
    }

    /// Power of a GPU, W.
    pub(crate) fn power(&self, node: Option<u32>) -> Option<f64> {
        self.first(node, POWER)
    }

    /// Clock of a GPU's shaders, MHz.
    pub(crate) fn clock(&self, node: Option<u32>) -> Option<f64> {
        self.first(node, CLOCK)
    }

    /// Video memory of a GPU in bytes: used, and in all.
    pub(crate) fn vram(&self, node: Option<u32>) -> (Option<u64>, Option<u64>) {
        let bytes = |names| self.first(node, names).map(|value| value as u64);
        (bytes(VRAM_USED), bytes(VRAM_TOTAL))
    }

    /// Video memory that a process holds on all GPUs, bytes.
    pub(crate) fn vram_of(&self, pid: u32) -> Option<u64> {
        let gpus = self.vram.get(&pid)?;
        Some(gpus.values().sum::<f64>() as u64)
    }
}
