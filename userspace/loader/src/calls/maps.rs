//! Access to the maps of the call-tracing programs: settings written to them, and state read from
//! them.

use std::os::fd::AsFd as _;

use aya::maps::{Map, MapData};
use gputrace_abi::{
    config::{EVERY_PROCESS, state},
    cookie::Around,
    counters::{CallRate, CpuCounters},
    frame::Thread,
    linker::key,
    values::ReadPlan,
};
use libbpf_rs::{MapCore as _, MapFlags, MapHandle, OpenObject};
use zerocopy::{FromBytes as _, IntoBytes as _};

use super::{Calls, STOP_FLAG};
use crate::{ProbeError, Ring, libbpf::refused};

/// Opens the ring of a processor for reading.
pub(super) fn readable(cpu: u32, handle: &MapHandle) -> Result<Ring, ProbeError> {
    handle
        .as_fd()
        .try_clone_to_owned()
        .map_err(aya::maps::MapError::from)
        .and_then(MapData::from_fd)
        .and_then(Map::from_map_data)
        .and_then(Ring::try_from)
        .map_err(|error| ProbeError::Refused {
            action: format!("map the ring buffer of CPU {cpu}"),
            cause: error.to_string(),
            log: Vec::new(),
        })
}

impl Calls {
    /// Makes `pid` a traced process, with bits of [`gputrace_abi::config::target_flags`].
    ///
    /// # Errors
    ///
    /// [`ProbeError`] when the map is full ([`super::Options::max_processes`]).
    pub fn add_target(&self, pid: u32, flags: u32) -> Result<(), ProbeError> {
        self.map("TARGETS")?
            .update(pid.as_bytes(), flags.as_bytes(), MapFlags::ANY)
            .map_err(|error| refused(format!("trace process {pid}"), &error))
    }

    /// Makes every process a target.
    ///
    /// # Errors
    ///
    /// [`ProbeError`] when the kernel refuses.
    pub fn add_every_process(&self) -> Result<(), ProbeError> {
        self.add_target(EVERY_PROCESS, 0)
    }

    /// Removes a target that is gone. It is not an error if the process was not a target.
    ///
    /// # Errors
    ///
    /// [`ProbeError::BrokenObject`].
    pub fn remove_target(&self, pid: u32) -> Result<(), ProbeError> {
        match self.map("TARGETS")?.delete(pid.as_bytes()) {
            Err(error) if error.kind() != libbpf_rs::ErrorKind::NotFound => {
                Err(refused(format!("stop tracing process {pid}"), &error))
            }
            _ => Ok(()),
        }
    }

    /// Makes the programs read values at the calls of `function` (its number in cookies). Its
    /// cookies must announce this: see [`gputrace_abi::cookie::Cookie::with_plan`].
    ///
    /// # Errors
    ///
    /// [`ProbeError`] when the map is full ([`gputrace_abi::values::MAX_PLANS`] functions).
    pub fn set_plan(&self, function: u32, plan: &ReadPlan) -> Result<(), ProbeError> {
        self.map("READS")?
            .update(function.as_bytes(), plan.as_bytes(), MapFlags::ANY)
            .map_err(|error| refused("set which values to read", &error))
    }

    /// Tells the programs where the code of the library is around `function` (its number in
    /// cookies), which is probed behind a table: see
    /// [`gputrace_abi::cookie::Cookie::behind_table`].
    ///
    /// # Errors
    ///
    /// [`ProbeError`] when the map is full ([`gputrace_abi::cookie::MAX_BEHIND`] functions).
    pub fn set_around(&self, function: u32, around: &Around) -> Result<(), ProbeError> {
        self.map("AROUND")?
            .update(function.as_bytes(), around.as_bytes(), MapFlags::ANY)
            .map_err(|error| refused("tell a library's own calls", &error))
    }

    /// The traced processes.
    ///
    /// # Errors
    ///
    /// [`ProbeError::BrokenObject`].
    pub fn targets(&self) -> Result<Vec<u32>, ProbeError> {
        Ok(self
            .map("TARGETS")?
            .keys()
            .filter_map(|key| u32::read_from_bytes(&key).ok())
            .collect())
    }

    /// Makes the programs report libraries whose file names begin with `file_name`, compared up to
    /// [`gputrace_abi::linker::KEY_BYTES`] bytes.
    ///
    /// # Errors
    ///
    /// [`ProbeError`] when the map is full ([`gputrace_abi::linker::MAX_INTERESTS`] names).
    pub fn add_interest(&self, file_name: &[u8]) -> Result<(), ProbeError> {
        let (key, value) = (key(file_name), 0u32);
        self.map("INTERESTS")?
            .update(key.as_bytes(), value.as_bytes(), MapFlags::ANY)
            .map_err(|error| refused("set which libraries are of interest", &error))
    }

    /// Tells the programs that all code objects of a process have been read up to its load number
    /// `loads`. Until then, a thread that unloads code objects is held.
    ///
    /// # Errors
    ///
    /// [`ProbeError`].
    pub fn has_read_loads(&self, pid: u32, loads: u32) -> Result<(), ProbeError> {
        self.map("READ_LOADS")?
            .update(pid.as_bytes(), loads.as_bytes(), MapFlags::ANY)
            .map_err(|error| refused("note that code objects have been read", &error))
    }

    /// Lets the programs of another object, which must not be loaded yet, use these programs' maps
    /// instead of their own maps of the same names. This is for programs that write into the rings
    /// without any function being called, such as those of the benchmarks.
    ///
    /// # Errors
    ///
    /// [`ProbeError`] when a map has another layout.
    pub fn share_maps(&self, other: &mut OpenObject) -> Result<(), ProbeError> {
        for mut map in other.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            // The name of a data section's map is the object's name followed by the section's.
            let key = name
                .find('.')
                .and_then(|at| name.get(at..))
                .unwrap_or(&name);
            if let Ok(mine) = self.map(key) {
                map.reuse_fd(mine.as_fd())
                    .map_err(|error| refused(format!("share map {name}"), &error))?;
            }
        }
        Ok(())
    }

    /// The rings and their CPUs. Each ring must have only one reader.
    ///
    /// # Errors
    ///
    /// [`ProbeError`] when a ring cannot be mapped.
    pub fn rings(&self) -> Result<Vec<(u32, Ring)>, ProbeError> {
        let rings = self.held_rings();
        let rings = rings.all.iter();
        rings
            .map(|(cpu, handle)| Ok((*cpu, readable(*cpu, handle)?)))
            .collect()
    }

    /// The ring that programs on this processor use.
    pub(crate) fn ring_of(&self, cpu: u32) -> Result<Ring, ProbeError> {
        let rings = self.held_rings();
        // The latest of a processor replaces those before.
        let ring = rings.all.iter().rev().find(|(of, _)| *of == cpu);
        let (_, handle) = ring.ok_or_else(|| ProbeError::BrokenObject {
            part: "ring of every CPU".to_owned(),
        })?;
        readable(cpu, handle)
    }

    /// Reads the counters of every CPU, indexed by CPU.
    ///
    /// # Errors
    ///
    /// [`ProbeError`] when the map cannot be read.
    pub fn counters(&self) -> Result<Vec<CpuCounters>, ProbeError> {
        let map = self.map("COUNTERS")?;
        (0..self.cpus)
            .map(|cpu| {
                map.lookup(cpu.as_bytes(), MapFlags::ANY)
                    .map_err(|error| refused("read the counters", &error))?
                    .and_then(|bytes| CpuCounters::read_from_bytes(&bytes).ok())
                    .ok_or_else(|| ProbeError::BrokenObject {
                        part: "counters of every CPU".to_owned(),
                    })
            })
            .collect()
    }

    /// Reads the open calls of every thread: `tgid << 32 | tid`, and the thread's frames. Exact
    /// after [`Self::stop`].
    ///
    /// # Errors
    ///
    /// [`ProbeError`] when the map cannot be read.
    pub fn threads(&self) -> Result<Vec<(u64, Box<Thread>)>, ProbeError> {
        let map = self.map("THREADS")?;
        let mut threads = Vec::new();
        for key in map.keys() {
            let Ok(id) = u64::read_from_bytes(&key) else {
                continue;
            };
            let value = map
                .lookup(&key, MapFlags::ANY)
                .map_err(|error| refused("read the open calls", &error))?;
            // A thread that ended in the meantime has no entry any more.
            if let Some(thread) = value.and_then(|bytes| Thread::read_from_bytes(&bytes).ok()) {
                threads.push((id, Box::new(thread)));
            }
        }
        Ok(threads)
    }

    /// Freezes the accounts: once this returns true, no program changes a counter, a frame or a
    /// ring any more, although the probes are still attached. Returns false if the kernel cannot
    /// tell when the programs running at this moment have ended; the probes must then be removed
    /// before reading.
    ///
    /// # Errors
    ///
    /// [`ProbeError`] when the flag cannot be set.
    pub fn stop(&self) -> Result<bool, ProbeError> {
        self.set_state(state::STOPPED)
    }

    /// Makes the programs skip whatever begins from now on, or record it again. After a pause was
    /// requested and this has returned true, no new call or packet is recorded.
    ///
    /// # Errors
    ///
    /// [`ProbeError`] when the flag cannot be set.
    pub fn pause(&self, pause: bool) -> Result<bool, ProbeError> {
        self.set_state(if pause {
            state::PAUSED
        } else {
            state::RECORDING
        })
    }

    /// Sets the programs' state. Returns false if the kernel cannot tell when the programs running
    /// at this moment have ended.
    fn set_state(&self, state: u32) -> Result<bool, ProbeError> {
        self.map(STOP_FLAG)?
            .update(0u32.as_bytes(), state.as_bytes(), MapFlags::ANY)
            .map_err(|error| refused("stop, pause or resume the programs", &error))?;
        // MEMBARRIER_CMD_GLOBAL waits for an RCU grace period, and programs run inside RCU
        // read-side critical sections.
        const MEMBARRIER_CMD_GLOBAL: libc::c_int = 1;
        // SAFETY: a system call that takes only integers.
        let result = unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) };
        Ok(result == 0)
    }

    /// Reads how often limited functions with ids below `functions` were called. Functions without
    /// calls are left out.
    ///
    /// # Errors
    ///
    /// [`ProbeError`] when the map cannot be read.
    pub fn call_rates(&self, functions: u32) -> Result<Vec<(u32, CallRate)>, ProbeError> {
        let map = self.map("CALL_RATES")?;
        let mut found = Vec::new();
        for function in 0..self.limited.min(functions) {
            let value = map
                .lookup(function.as_bytes(), MapFlags::ANY)
                .map_err(|error| refused("read how often functions were called", &error))?;
            let rate = value.and_then(|bytes| CallRate::read_from_bytes(&bytes).ok());
            found.extend(
                rate.filter(|rate| rate.calls != 0)
                    .map(|rate| (function, rate)),
            );
        }
        Ok(found)
    }
}
