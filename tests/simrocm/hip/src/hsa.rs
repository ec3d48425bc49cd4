//! The functions of libhsa-runtime64 that HIP calls by their exported names, so that a tracer sees
//! the same calls as those of the real HIP.

use gputrace_simrocm_core::abi::{
    AgentHandle, CopyOperation, QueueDescription, QueuePointer, Signal,
};
use gputrace_simrocm_core::ffi::Untyped;
use gputrace_simrocm_core::status::Status;

/// `hsa_pitched_ptr_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Pitched {
    pub(crate) base: u64,
    pub(crate) pitch: usize,
    pub(crate) slice: usize,
}

/// `hsa_dim3_t`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Dim3 {
    pub(crate) x: u32,
    pub(crate) y: u32,
    pub(crate) z: u32,
}

/// `hsa_amd_profiling_dispatch_time_t`, and the same for copies.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Span {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// Called when a queue reports a status.
pub(crate) type QueueCallback = extern "C" fn(Status, QueuePointer, u64);
/// Called with the handle of an agent or a pool.
pub(crate) type Callback = extern "C" fn(u64, Untyped) -> Status;

// The neighbouring stand-in library implements them; it accepts null and invalid handles.
unsafe extern "C" {
    pub(crate) safe fn hsa_init() -> Status;
    pub(crate) safe fn hsa_iterate_agents(callback: Callback, data: Untyped) -> Status;
    pub(crate) safe fn hsa_agent_get_info(
        agent: AgentHandle,
        attribute: u32,
        out: Untyped,
    ) -> Status;
    pub(crate) safe fn hsa_amd_agent_iterate_memory_pools(
        agent: AgentHandle,
        callback: Callback,
        data: Untyped,
    ) -> Status;
    pub(crate) safe fn hsa_amd_memory_pool_get_info(
        pool: u64,
        attribute: u32,
        out: Untyped,
    ) -> Status;
    pub(crate) safe fn hsa_amd_memory_pool_allocate(
        pool: u64,
        bytes: usize,
        flags: u32,
        out: &mut u64,
    ) -> Status;
    pub(crate) safe fn hsa_amd_memory_pool_free(memory: Untyped) -> Status;
    pub(crate) safe fn hsa_amd_agents_allow_access(
        count: u32,
        agents: &AgentHandle,
        flags: Option<&u32>,
        memory: Untyped,
    ) -> Status;
    pub(crate) safe fn hsa_amd_memory_lock_to_pool(
        memory: Untyped,
        bytes: usize,
        agents: &AgentHandle,
        count: i32,
        pool: u64,
        flags: u32,
        out: &mut u64,
    ) -> Status;
    pub(crate) safe fn hsa_amd_memory_unlock(memory: Untyped) -> Status;
    pub(crate) safe fn hsa_queue_create(
        agent: AgentHandle,
        packets: u32,
        kind: u32,
        callback: Option<QueueCallback>,
        data: u64,
        private: u32,
        group: u32,
        out: &mut u64,
    ) -> Status;
    pub(crate) safe fn hsa_amd_queue_create(
        agent: AgentHandle,
        descriptions: &mut QueueDescription,
        count: u32,
    ) -> Status;
    pub(crate) safe fn hsa_amd_profiling_set_profiler_enabled(
        queue: QueuePointer,
        enabled: i32,
    ) -> Status;
    pub(crate) safe fn hsa_amd_profiling_async_copy_enable(enable: bool) -> Status;
    pub(crate) safe fn hsa_amd_profiling_get_dispatch_time(
        agent: AgentHandle,
        signal: Signal,
        out: &mut Span,
    ) -> Status;
    pub(crate) safe fn hsa_queue_add_write_index_screlease(queue: QueuePointer, count: u64) -> u64;
    pub(crate) safe fn hsa_queue_load_read_index_relaxed(queue: QueuePointer) -> u64;
    pub(crate) safe fn hsa_queue_load_read_index_scacquire(queue: QueuePointer) -> u64;
    pub(crate) safe fn hsa_signal_create(
        value: i64,
        count: u32,
        consumers: Option<&AgentHandle>,
        out: &mut Signal,
    ) -> Status;
    pub(crate) safe fn hsa_amd_signal_create(
        value: i64,
        count: u32,
        consumers: Option<&AgentHandle>,
        attributes: u64,
        out: &mut Signal,
    ) -> Status;
    pub(crate) safe fn hsa_amd_signal_batch_create(
        count: u32,
        initial: Option<&i64>,
        attributes: u64,
        batch: &mut u64,
        signals: &mut [Signal; 64],
    ) -> Status;
    pub(crate) safe fn hsa_amd_signal_batch_destroy(batch: u64) -> Status;
    pub(crate) safe fn hsa_signal_destroy(signal: Signal) -> Status;
    pub(crate) safe fn hsa_signal_load_relaxed(signal: Signal) -> i64;
    pub(crate) safe fn hsa_signal_silent_store_relaxed(signal: Signal, value: i64);
    pub(crate) safe fn hsa_signal_store_screlease(signal: Signal, value: i64);
    pub(crate) safe fn hsa_signal_subtract_relaxed(signal: Signal, value: i64);
    pub(crate) safe fn hsa_signal_wait_scacquire(
        signal: Signal,
        condition: u32,
        with: i64,
        timeout: u64,
        state: u32,
    ) -> i64;
    pub(crate) safe fn hsa_amd_signal_async_handler(
        signal: Signal,
        condition: u32,
        value: i64,
        function: extern "C" fn(i64, Untyped) -> bool,
        argument: Untyped,
    ) -> Status;
    pub(crate) safe fn hsa_amd_memory_async_copy(
        destination: Untyped,
        destination_agent: AgentHandle,
        source: Untyped,
        source_agent: AgentHandle,
        bytes: usize,
        dependency_count: u32,
        dependencies: Untyped,
        completion: Signal,
    ) -> Status;
    pub(crate) safe fn hsa_amd_memory_async_batch_copy(
        operations: &CopyOperation,
        count: u32,
        dependency_count: u32,
        dependencies: Untyped,
    ) -> Status;
    pub(crate) safe fn hsa_amd_memory_async_copy_rect(
        destination: &Pitched,
        destination_offset: &Dim3,
        source: &Pitched,
        source_offset: &Dim3,
        range: &Dim3,
        agent: AgentHandle,
        direction: u32,
        dependency_count: u32,
        dependencies: Untyped,
        completion: Signal,
    ) -> Status;
    pub(crate) safe fn hsa_code_object_reader_create_from_memory(
        code: Untyped,
        bytes: usize,
        out: &mut u64,
    ) -> Status;
    pub(crate) safe fn hsa_code_object_reader_destroy(reader: u64) -> Status;
    pub(crate) safe fn hsa_executable_create_alt(
        profile: u32,
        rounding: u32,
        options: Option<&u8>,
        out: &mut u64,
    ) -> Status;
    pub(crate) safe fn hsa_executable_load_agent_code_object(
        executable: u64,
        agent: AgentHandle,
        reader: u64,
        options: Option<&u8>,
        out: Option<&mut u64>,
    ) -> Status;
    pub(crate) safe fn hsa_executable_freeze(executable: u64, options: Option<&u8>) -> Status;
    pub(crate) safe fn hsa_executable_destroy(executable: u64) -> Status;
    pub(crate) safe fn hsa_executable_get_symbol_by_name(
        executable: u64,
        name: Untyped,
        agent: &AgentHandle,
        out: &mut u64,
    ) -> Status;
    pub(crate) safe fn hsa_executable_symbol_get_info(
        symbol: u64,
        attribute: u32,
        out: Untyped,
    ) -> Status;
}

/// Appends a handle to the list (`Vec<u64>`) that was passed to an iteration.
pub(crate) extern "C" fn collect(handle: u64, all: Untyped) -> Status {
    // SAFETY: only passed to iterations together with such a list, which outlives them.
    if let Some(all) = unsafe { all.0.cast::<Vec<u64>>().as_mut() } {
        all.push(handle);
    }
    Status::SUCCESS
}

/// The address of a value, for a function that stores an untyped value.
pub(crate) fn to<T>(value: &mut T) -> Untyped {
    Untyped(std::ptr::from_mut(value).cast())
}

/// The address of a list of signals to wait for.
pub(crate) fn list(signals: &[Signal]) -> Untyped {
    Untyped(signals.as_ptr().cast_mut().cast())
}
