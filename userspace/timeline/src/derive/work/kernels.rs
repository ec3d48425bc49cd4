//! Which kernel a dispatch runs: maps `kernel_object` to the code object loaded there at the time.

use std::collections::{HashMap, VecDeque};

use foldhash::fast::RandomState;
use gputrace_capture::gpu::{CodeObject, Kernel};
use gputrace_demangle::demangle;

use crate::model::{
    event::Event,
    gpu::{CodeObjectInfo, KernelInfo, RuntimeKernel},
};

/// Kernels of all code objects.
#[derive(Debug, Default)]
pub(crate) struct Kernels {
    /// Kernels by process and `kernel_object`, in the order in which their code objects were found.
    by_object: HashMap<(u32, u64), Vec<Known>, RandomState>,
    /// Number of kernel numbers assigned so far.
    numbered: u32,
    /// Number of code objects so far.
    code_objects: u32,
}

#[derive(Debug)]
struct Known {
    found: u64,
    code_object: u32,
    kernel: Kernel,
    /// The kernel's number, assigned when the first dispatch refers to it.
    id: Option<u32>,
}

impl Kernels {
    /// Registers the kernels of `code_objects`, which are in order of time, and adds their events
    /// to `events`.
    pub(crate) fn new(code_objects: Vec<CodeObject>, events: &mut VecDeque<Event>) -> Self {
        let mut kernels = Self::default();
        kernels.add(code_objects, events);
        kernels
    }

    /// Adds the kernels of `code_objects`, which were found after all known ones.
    pub(crate) fn add(&mut self, code_objects: Vec<CodeObject>, events: &mut VecDeque<Event>) {
        for mut code_object in code_objects {
            self.code_objects += 1;
            let id = self.code_objects;
            for kernel in std::mem::take(&mut code_object.kernels) {
                let key = (code_object.pid, kernel.object);
                self.by_object.entry(key).or_default().push(Known {
                    found: code_object.time,
                    code_object: id,
                    kernel,
                    id: None,
                });
            }
            events.push_back(Event::CodeObject(Box::new(CodeObjectInfo {
                id,
                code_object,
            })));
        }
    }

    /// The number of the kernel at `object` for a dispatch at `time`. Uses the code object found
    /// last before that time, or else the first found after it (loaded before, but seen late). The
    /// first use of a kernel emits its event.
    pub(crate) fn id(
        &mut self,
        pid: u32,
        object: u64,
        time: u64,
        events: &mut VecDeque<Event>,
    ) -> Option<u32> {
        let candidates = self.by_object.get_mut(&(pid, object))?;
        let later = candidates.partition_point(|known| known.found <= time);
        let known = candidates.get_mut(later.saturating_sub(1))?;
        if known.id.is_none() {
            self.numbered += 1;
            known.id = Some(self.numbered);
            let demangled =
                demangle(&known.kernel.name).unwrap_or_else(|| known.kernel.name.clone());
            events.push_back(Event::Kernel(Box::new(KernelInfo {
                id: self.numbered,
                code_object: known.code_object,
                pid,
                kernel: known.kernel.clone(),
                shown: demangled.clone(),
                demangled,
                runtime: RuntimeKernel::of(&known.kernel.name),
                renamed: None,
            })));
        }
        known.id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(pid: u32, time: u64, kernels: &[(u64, &str)]) -> CodeObject {
        CodeObject {
            pid,
            time,
            kernels: kernels
                .iter()
                .map(|(object, name)| Kernel {
                    object: *object,
                    name: (*name).to_owned(),
                    ..Kernel::default()
                })
                .collect(),
            ..CodeObject::default()
        }
    }

    #[test]
    fn a_kernel_is_that_of_its_time_and_numbered_at_its_first_use() {
        let mut events = VecDeque::new();
        let mut kernels = Kernels::new(
            vec![
                object(7, 100, &[(0x40, "_Z5scaleIfEvPT_i"), (0x80, "unused")]),
                object(8, 100, &[(0x40, "other")]),
                object(7, 200, &[(0x40, "reloaded")]),
            ],
            &mut events,
        );
        assert_eq!(events.len(), 3);
        events.clear();
        let mut id = |pid, object, time| kernels.id(pid, object, time, &mut events);
        assert_eq!(id(7, 0x40, 250), Some(1));
        assert_eq!(id(7, 0x40, 50), Some(2), "found after its first dispatch");
        assert_eq!(id(7, 0x40, 199), Some(2));
        assert_eq!(id(7, 0x40, 200), Some(1));
        assert_eq!(id(8, 0x40, 250), Some(3));
        assert_eq!(id(7, 0xc0, 250), None);
        let names: Vec<_> = events
            .iter()
            .map(|event| match event {
                Event::Kernel(kernel) => (kernel.id, kernel.code_object, kernel.demangled.as_str()),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(
            names,
            [
                (1, 3, "reloaded"),
                (2, 1, "void scale<float>(float*, int)"),
                (3, 2, "other")
            ]
        );
    }
}
