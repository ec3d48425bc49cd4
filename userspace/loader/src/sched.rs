//! User-space half of the programs that follow the scheduling of traced threads (`ebpf/probes`,
//! module `sched`).

use gputrace_abi::sched::OffCpu;
use libbpf_rs::{Link, MapCore as _, MapFlags, Object};
use zerocopy::FromBytes as _;

use crate::{ProbeError, calls::Calls, extra, libbpf::refused};

/// Maps of these programs, which are not created for the call-tracing programs.
pub(crate) const MAPS: [&str; 1] = ["OFF_CPU"];

/// The attached programs. Dropping it removes them.
#[derive(Debug)]
pub struct Sched {
    // Dropped before the object, so that no program runs when its maps are freed.
    _links: Vec<Link>,
    object: Object,
}

impl Sched {
    /// Attaches the programs. `threads` is the maximum number of traced threads without a processor
    /// at the same time.
    ///
    /// # Errors
    ///
    /// [`ProbeError`] when the kernel refuses the programs or lacks a tracepoint.
    pub fn attach(calls: &Calls, threads: u32) -> Result<Self, ProbeError> {
        let object = extra::load(
            calls,
            &["sched_switched", "sched_woken"],
            |name, map| match name {
                "OFF_CPU" => Some(map.set_max_entries(threads.max(1))),
                _ => None,
            },
        )?;
        let links = vec![
            // In the opposite order, a thread could be woken before it is known to sleep.
            extra::raw_tracepoint(&object, "sched_woken", "sched_wakeup")?,
            extra::raw_tracepoint(&object, "sched_switched", "sched_switch")?,
        ];
        Ok(Self {
            _links: links,
            object,
        })
    }

    /// Records of the traced threads without a processor, without an end. Exact after
    /// [`Calls::stop`].
    ///
    /// # Errors
    ///
    /// [`ProbeError`] when the map cannot be read.
    pub fn open(&self) -> Result<Vec<OffCpu>, ProbeError> {
        let map = extra::map(&self.object, "OFF_CPU")?;
        let mut open = Vec::new();
        for key in map.keys() {
            let value = map
                .lookup(&key, MapFlags::ANY)
                .map_err(|error| refused("read which threads sleep", &error))?;
            open.extend(value.and_then(|bytes| OffCpu::read_from_bytes(&bytes).ok()));
        }
        Ok(open)
    }
}
