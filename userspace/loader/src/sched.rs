//! User half of the programs that follow the scheduling of traced threads (`ebpf/probes`, module `sched`).

use gputrace_abi::sched::OffCpu;
use libbpf_rs::{Link, MapCore as _, MapFlags, Object};
use zerocopy::FromBytes as _;

use crate::{ProbeError, calls::Calls, extra, libbpf::refused};

/// Its maps, which the call programs are loaded without.
pub(crate) const MAPS: [&str; 1] = ["OFF_CPU"];

/// Attached programs. Dropping it removes them.
#[derive(Debug)]
pub struct Sched {
    // Before the object, so that nothing runs any more when its maps go.
    _links: Vec<Link>,
    object: Object,
}

impl Sched {
    /// Attaches the programs. `threads` is how many traced threads can be without a processor at once.
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
            // The other way round, a thread could be woken before it is known to sleep.
            extra::raw_tracepoint(&object, "sched_woken", "sched_wakeup")?,
            extra::raw_tracepoint(&object, "sched_switched", "sched_switch")?,
        ];
        Ok(Self {
            _links: links,
            object,
        })
    }

    /// The traced threads that have no processor: their records, without an end. Exact after [`Calls::stop`].
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
