//! Stand-in for `libhsa-runtime64` of ROCm 6.4, on the in-process software GPU.
//!
//! Programs and the HIP stand-in use it through the same exported names, versions and structures as
//! the real library; [`gputrace_simrocm_core`] explains why it exists. The staging step of the
//! `gputrace-simrocm` package links it into a shared library, which gives the names their version,
//! `ROCR_1`.
//!
//! # Modules
//!
//! * `runtime`: agents, the software GPU and its clocks, created by the first `hsa_init` of a
//!   process.
//! * `queue`: AQL queues and their indices; errors and scratch requests of the packet processor.
//! * `signal`, `signal_api`, `batch`: signals in pools of pages, waiting for them, batches of them.
//! * `events`: what interrupts set, in place of KFD's events. `handler`: the thread that calls
//!   handlers.
//! * `sdma`, `copy`: copy engines, and the functions that use them.
//! * `loader`: code objects, and their list behind `_amdgpu_r_debug`.
//! * `agent`: attributes of agents and memory pools. `memory`: allocations.
//!
//! # Environment
//!
//! `SOFTGPU_CONFIG` and `SOFTGPU_LOG` configure the GPU and name the directory of its ground-truth
//! log. `HSA_ENABLE_INTERRUPT=0` creates signals without events, as in ROCr.
//!
//! Functions that no program here needs are not exported: images, memory shared between processes,
//! virtual memory management, extension tables.

mod agent;
mod batch;
mod copy;
mod events;
mod handler;
mod loader;
mod memory;
mod queue;
mod runtime;
mod sdma;
mod signal;
mod signal_api;

gputrace_simrocm_core::exports! {
    hsa_init = runtime::init;
    hsa_shut_down = runtime::shut_down;
    hsa_status_string = agent::status_string;
    hsa_system_get_info = agent::system_info;
    hsa_system_extension_supported = agent::extension_supported;
    hsa_iterate_agents = agent::iterate;
    hsa_agent_get_info = agent::info;
    hsa_agent_iterate_isas = agent::iterate_isas;
    hsa_isa_get_info_alt = agent::isa_info;
    hsa_agent_iterate_regions = agent::iterate_pools;
    hsa_region_get_info = agent::pool_info;
    hsa_memory_allocate = agent::region_allocate;
    hsa_memory_free = agent::free;
    hsa_memory_copy = copy::memory_copy;
    hsa_memory_register = agent::register;
    hsa_memory_deregister = agent::register;
    hsa_queue_create = queue::create;
    hsa_queue_destroy = queue::destroy;
    hsa_queue_inactivate = queue::inactivate;
    hsa_queue_load_read_index_relaxed = queue::load_read_relaxed;
    hsa_queue_load_read_index_scacquire = queue::load_read_scacquire, alias hsa_queue_load_read_index_acquire;
    hsa_queue_load_write_index_relaxed = queue::load_write_relaxed;
    hsa_queue_load_write_index_scacquire = queue::load_write_scacquire, alias hsa_queue_load_write_index_acquire;
    hsa_queue_store_write_index_relaxed = queue::store_write_relaxed;
    hsa_queue_store_write_index_screlease = queue::store_write_screlease, alias hsa_queue_store_write_index_release;
    hsa_queue_store_read_index_relaxed = queue::store_read_relaxed;
    hsa_queue_store_read_index_screlease = queue::store_read_screlease, alias hsa_queue_store_read_index_release;
    hsa_queue_add_write_index_relaxed = queue::add_write_relaxed;
    hsa_queue_add_write_index_scacquire = queue::add_write_scacquire, alias hsa_queue_add_write_index_acquire;
    hsa_queue_add_write_index_screlease = queue::add_write_screlease, alias hsa_queue_add_write_index_release;
    hsa_queue_add_write_index_scacq_screl = queue::add_write_scacq_screl, alias hsa_queue_add_write_index_acq_rel;
    hsa_queue_cas_write_index_relaxed = queue::cas_write_relaxed;
    hsa_queue_cas_write_index_scacquire = queue::cas_write_scacquire, alias hsa_queue_cas_write_index_acquire;
    hsa_queue_cas_write_index_screlease = queue::cas_write_screlease, alias hsa_queue_cas_write_index_release;
    hsa_queue_cas_write_index_scacq_screl = queue::cas_write_scacq_screl, alias hsa_queue_cas_write_index_acq_rel;
    hsa_signal_create = signal_api::create;
    hsa_signal_destroy = signal_api::destroy;
    hsa_signal_load_relaxed = signal_api::load_relaxed;
    hsa_signal_load_scacquire = signal_api::load_scacquire, alias hsa_signal_load_acquire;
    hsa_signal_store_relaxed = signal_api::store_relaxed;
    hsa_signal_store_screlease = signal_api::store_screlease, alias hsa_signal_store_release;
    hsa_signal_silent_store_relaxed = signal_api::silent_store_relaxed;
    hsa_signal_silent_store_screlease = signal_api::silent_store_screlease;
    hsa_signal_wait_relaxed = signal_api::wait_relaxed;
    hsa_signal_wait_scacquire = signal_api::wait_scacquire, alias hsa_signal_wait_acquire;
    hsa_signal_add_relaxed = signal_api::add_relaxed;
    hsa_signal_add_scacquire = signal_api::add_scacquire, alias hsa_signal_add_acquire;
    hsa_signal_add_screlease = signal_api::add_screlease, alias hsa_signal_add_release;
    hsa_signal_add_scacq_screl = signal_api::add_scacq_screl, alias hsa_signal_add_acq_rel;
    hsa_signal_subtract_relaxed = signal_api::subtract_relaxed;
    hsa_signal_subtract_scacquire = signal_api::subtract_scacquire, alias hsa_signal_subtract_acquire;
    hsa_signal_subtract_screlease = signal_api::subtract_screlease, alias hsa_signal_subtract_release;
    hsa_signal_subtract_scacq_screl = signal_api::subtract_scacq_screl, alias hsa_signal_subtract_acq_rel;
    hsa_signal_and_relaxed = signal_api::and_relaxed;
    hsa_signal_and_scacquire = signal_api::and_scacquire, alias hsa_signal_and_acquire;
    hsa_signal_and_screlease = signal_api::and_screlease, alias hsa_signal_and_release;
    hsa_signal_and_scacq_screl = signal_api::and_scacq_screl, alias hsa_signal_and_acq_rel;
    hsa_signal_or_relaxed = signal_api::or_relaxed;
    hsa_signal_or_scacquire = signal_api::or_scacquire, alias hsa_signal_or_acquire;
    hsa_signal_or_screlease = signal_api::or_screlease, alias hsa_signal_or_release;
    hsa_signal_or_scacq_screl = signal_api::or_scacq_screl, alias hsa_signal_or_acq_rel;
    hsa_signal_xor_relaxed = signal_api::xor_relaxed;
    hsa_signal_xor_scacquire = signal_api::xor_scacquire, alias hsa_signal_xor_acquire;
    hsa_signal_xor_screlease = signal_api::xor_screlease, alias hsa_signal_xor_release;
    hsa_signal_xor_scacq_screl = signal_api::xor_scacq_screl, alias hsa_signal_xor_acq_rel;
    hsa_signal_exchange_relaxed = signal_api::exchange_relaxed;
    hsa_signal_exchange_scacquire = signal_api::exchange_scacquire, alias hsa_signal_exchange_acquire;
    hsa_signal_exchange_screlease = signal_api::exchange_screlease, alias hsa_signal_exchange_release;
    hsa_signal_exchange_scacq_screl = signal_api::exchange_scacq_screl, alias hsa_signal_exchange_acq_rel;
    hsa_signal_cas_relaxed = signal_api::cas_relaxed;
    hsa_signal_cas_scacquire = signal_api::cas_scacquire, alias hsa_signal_cas_acquire;
    hsa_signal_cas_screlease = signal_api::cas_screlease, alias hsa_signal_cas_release;
    hsa_signal_cas_scacq_screl = signal_api::cas_scacq_screl, alias hsa_signal_cas_acq_rel;
    hsa_code_object_reader_create_from_memory = loader::reader_from_memory;
    hsa_code_object_reader_create_from_file = loader::reader_from_file;
    hsa_code_object_reader_destroy = loader::reader_destroy;
    hsa_executable_create_alt = loader::executable_create_alt;
    hsa_executable_destroy = loader::executable_destroy;
    hsa_executable_load_agent_code_object = loader::load_agent_code_object;
    hsa_executable_freeze = loader::freeze;
    hsa_executable_get_symbol_by_name = loader::symbol_by_name;
    hsa_executable_iterate_symbols = loader::iterate_symbols;
    hsa_executable_iterate_agent_symbols = loader::iterate_agent_symbols;
    hsa_executable_symbol_get_info = loader::symbol_info;
    hsa_amd_agent_iterate_memory_pools = agent::iterate_pools;
    hsa_amd_memory_pool_get_info = agent::pool_info;
    hsa_amd_agent_memory_pool_get_info = agent::agent_pool_info;
    hsa_amd_memory_pool_allocate = agent::pool_allocate;
    hsa_amd_memory_pool_free = agent::free;
    hsa_amd_agents_allow_access = agent::allow_access;
    hsa_amd_memory_lock = agent::lock;
    hsa_amd_memory_lock_to_pool = agent::lock_to_pool;
    hsa_amd_memory_unlock = agent::unlock;
    hsa_amd_pointer_info = agent::pointer_info;
    hsa_amd_pointer_info_set_userdata = agent::set_user_data;
    hsa_amd_memory_async_copy = copy::async_copy;
    hsa_amd_memory_async_copy_on_engine = copy::async_copy_on_engine;
    hsa_amd_memory_async_copy_rect = copy::async_copy_rect;
    hsa_amd_memory_copy_engine_status = copy::engine_status;
    hsa_amd_memory_fill = copy::memory_fill;
    hsa_amd_profiling_async_copy_enable = copy::profile_copies;
    hsa_amd_profiling_set_profiler_enabled = queue::set_profiling;
    hsa_amd_profiling_get_dispatch_time = copy::dispatch_time;
    hsa_amd_profiling_get_async_copy_time = copy::copy_time;
    hsa_amd_profiling_convert_tick_to_system_domain = copy::convert_tick;
    hsa_amd_queue_set_priority = queue::set_priority;
    hsa_amd_queue_cu_set_mask = queue::set_cu_mask;
    hsa_amd_signal_create = signal_api::amd_create;
    hsa_amd_signal_async_handler = signal_api::async_handler;
    hsa_amd_signal_wait_any = signal_api::wait_any;
    hsa_amd_signal_value_pointer = signal_api::value_pointer;
    hsa_amd_queue_create = queue::create_described;
    hsa_amd_signal_batch_create = batch::create;
    hsa_amd_signal_batch_destroy = batch::destroy;
    hsa_amd_memory_async_batch_copy = copy::async_batch_copy;
}
