//! All requests of `/dev/kfd`: numbers, structures and fields, as data.
//!
//! They are taken from `include/uapi/linux/kfd_ioctl.h` of the kernel (up to 1.23) and of
//! libhsakmt, which adds requests that exist only in AMD's own driver packages (DKMS). A test
//! compares the table with the installed header.

use super::{Field, Flow, Ioctl, Kind};

mod debugging;
mod events;
mod memory;
mod queues;
mod system;

const fn f(name: &'static str, offset: u16, width: u8, kind: Kind, flow: Flow) -> Field {
    Field::new(name, offset, width, kind, flow)
}

/// Every known request, in order of number.
pub static IOCTLS: &[Ioctl] = &[
    system::GET_VERSION,
    queues::CREATE_QUEUE,
    queues::DESTROY_QUEUE,
    memory::SET_MEMORY_POLICY,
    system::GET_CLOCK_COUNTERS,
    memory::GET_PROCESS_APERTURES,
    queues::UPDATE_QUEUE,
    events::CREATE_EVENT,
    events::DESTROY_EVENT,
    events::SET_EVENT,
    events::RESET_EVENT,
    events::WAIT_EVENTS,
    debugging::DBG_REGISTER_DEPRECATED,
    debugging::DBG_UNREGISTER_DEPRECATED,
    debugging::DBG_ADDRESS_WATCH_DEPRECATED,
    debugging::DBG_WAVE_CONTROL_DEPRECATED,
    queues::SET_SCRATCH_BACKING_VA,
    system::GET_TILE_CONFIG,
    queues::SET_TRAP_HANDLER,
    memory::GET_PROCESS_APERTURES_NEW,
    memory::ACQUIRE_VM,
    memory::ALLOC_MEMORY_OF_GPU,
    memory::FREE_MEMORY_OF_GPU,
    memory::MAP_MEMORY_TO_GPU,
    memory::UNMAP_MEMORY_FROM_GPU,
    queues::SET_CU_MASK,
    queues::GET_QUEUE_WAVE_STATE,
    memory::GET_DMABUF_INFO,
    memory::IMPORT_DMABUF,
    queues::ALLOC_QUEUE_GWS,
    events::SMI_EVENTS,
    memory::SVM,
    memory::SET_XNACK_MODE,
    system::CRIU_OP,
    memory::AVAILABLE_MEMORY,
    memory::EXPORT_DMABUF,
    debugging::RUNTIME_ENABLE,
    debugging::DBG_TRAP,
    system::CREATE_PROCESS,
    debugging::PROFILER,
    memory::IPC_IMPORT_HANDLE,
    memory::IPC_EXPORT_HANDLE,
    debugging::DBG_TRAP_ROCM,
    memory::CROSS_MEMORY_COPY,
    debugging::RLC_SPM,
    debugging::PC_SAMPLE,
    debugging::PROFILER_ROCM,
    memory::AIS_OP,
];
