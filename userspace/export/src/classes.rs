//! Classes of kernels in the output formats: the mean durations of their dispatches.

use gputrace_timeline::gpu::{KernelClass, Lengths, Mean};
use serde::Serialize;

use crate::{
    gpu::Gpus,
    lengths::{error_tenths, tenths},
};

/// A class. Unknown ids are null.
#[derive(Debug, Serialize)]
pub(crate) struct ClassRecord<'a> {
    pub(crate) kernel_class: u32,
    pub(crate) kernel: &'a str,
    pub(crate) kernel_id: Option<u32>,
    pub(crate) kernel_object: u64,
    pub(crate) pid: u32,
    pub(crate) agent: Option<u32>,
    pub(crate) workgroup: [u32; 3],
    pub(crate) grid: [u32; 3],
    pub(crate) dispatches: u64,
    /// [`gputrace_timeline::gpu::Told::name`].
    pub(crate) told: &'static str,
    /// Mean duration, ns; `None` if unknown.
    pub(crate) mean: Option<f64>,
    /// Standard error of the mean, ns.
    pub(crate) mean_error: Option<f64>,
    /// Of a class with two lengths: both, ns, and the share of its dispatches that are longer.
    pub(crate) shorter: Option<f64>,
    pub(crate) longer: Option<f64>,
    pub(crate) longer_share: Option<f64>,
}

impl<'a> ClassRecord<'a> {
    /// `name` is [`Gpus::class_name`].
    pub(crate) fn new(class: &KernelClass, name: &'a str) -> Self {
        let mean = mean(class);
        let lengths = lengths(class);
        Self {
            kernel_class: class.number,
            kernel: name,
            kernel_id: class.kernel,
            kernel_object: class.kernel_object,
            pid: class.pid,
            agent: class.node_id,
            workgroup: class.workgroup,
            grid: class.grid,
            dispatches: class.count,
            told: class.told.name(),
            mean: mean.map(|mean| mean.value),
            mean_error: mean.map(|mean| mean.error),
            shorter: lengths.map(|lengths| lengths.shorter),
            longer: lengths.map(|lengths| lengths.longer),
            longer_share: lengths.map(|lengths| lengths.longer_share),
        }
    }
}

/// The mean of a class as formats write it, to 0.1 ns; `None` if unknown.
#[must_use]
pub fn mean(class: &KernelClass) -> Option<Mean> {
    class.mean.map(|mean| Mean {
        value: tenths(mean.value),
        error: error_tenths(mean.error),
    })
}

/// The two lengths of a class as formats write them, to 0.1 ns and a thousandth; `None` if it has
/// one.
#[must_use]
pub fn lengths(class: &KernelClass) -> Option<Lengths> {
    class.lengths.map(|lengths| Lengths {
        shorter: tenths(lengths.shorter),
        longer: tenths(lengths.longer),
        longer_share: (lengths.longer_share * 1e3).round() / 1e3,
    })
}

impl Gpus {
    /// The name of a class's kernel, as [`Gpus::kernel_name`].
    #[must_use]
    pub fn class_name(&self, class: &KernelClass) -> std::borrow::Cow<'_, str> {
        self.name_of(class.kernel, class.kernel_object)
    }
}
