//! Classes of kernels, as the formats have them: what is known of how long their dispatches take.

use gputrace_timeline::gpu::{KernelClass, Mean};
use serde::Serialize;

use crate::{gpu::Gpus, lengths::tenths};

/// A class. Ids that are not known are null.
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
    /// Mean duration, ns; `None` if it is not told.
    pub(crate) mean: Option<f64>,
    /// Its standard error, ns.
    pub(crate) mean_error: Option<f64>,
}

impl<'a> ClassRecord<'a> {
    /// `name` is [`Gpus::class_name`].
    pub(crate) fn new(class: &KernelClass, name: &'a str) -> Self {
        let mean = mean(class);
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
        }
    }
}

/// The mean of a class as formats write it, to 0.1 ns; `None` if it is not told.
#[must_use]
pub fn mean(class: &KernelClass) -> Option<Mean> {
    class.mean.map(|mean| Mean {
        value: tenths(mean.value),
        error: tenths(mean.error),
    })
}

impl Gpus {
    /// The name of a class's kernel, as [`Gpus::kernel_name`].
    #[must_use]
    pub fn class_name(&self, class: &KernelClass) -> std::borrow::Cow<'_, str> {
        self.name_of(class.kernel, class.kernel_object)
    }
}
