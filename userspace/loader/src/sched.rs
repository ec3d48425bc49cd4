//! User-space half of the programs that follow the scheduling of traced threads (`ebpf/probes`,
//! module `sched`).

use gputrace_abi::{record::kind, sched::OffCpu};
use libbpf_rs::{Link, Object};

use crate::{ProbeError, calls::Calls, extra};

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

    /// Records of the traced threads without a processor; each ends when it begins. Exact after
    /// [`Calls::stop`].
    ///
    /// # Errors
    ///
    /// [`ProbeError`] when the map cannot be read.
    pub fn open(&self) -> Result<Vec<u8>, ProbeError> {
        extra::records(
            &self.object,
            "OFF_CPU",
            "read which threads sleep",
            |off: &mut OffCpu| {
                off.header.kind = kind::OFF_CPU_OPEN;
                off.end = off.begin;
            },
        )
    }
}
