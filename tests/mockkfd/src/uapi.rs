//! Argument structures of KFD's ioctls, from the kernel's `include/uapi/linux/kfd_ioctl.h`.
//!
//! They are named after the kernel's `kfd_ioctl_*_args`, and so are their fields. Only those that
//! the ROCm user space really uses are here.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Declares argument structures: plain data, for which any bytes are valid.
macro_rules! arguments {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty),* $(,)? })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
            #[repr(C)]
            pub(crate) struct $name { $(pub(crate) $field: $type),* }
        )*
    };
}

arguments! {
    GetVersion { major_version: u32, minor_version: u32 }
    CreateQueue {
        ring_base_address: u64,
        write_pointer_address: u64,
        read_pointer_address: u64,
        doorbell_offset: u64,
        ring_size: u32,
        gpu_id: u32,
        queue_type: u32,
        queue_percentage: u32,
        queue_priority: u32,
        queue_id: u32,
        eop_buffer_address: u64,
        eop_buffer_size: u64,
        ctx_save_restore_address: u64,
        ctx_save_restore_size: u32,
        ctl_stack_size: u32,
    }
    DestroyQueue { queue_id: u32, pad: u32 }
    UpdateQueue {
        ring_base_address: u64,
        queue_id: u32,
        ring_size: u32,
        queue_percentage: u32,
        queue_priority: u32,
    }
    GetClockCounters {
        gpu_clock_counter: u64,
        cpu_clock_counter: u64,
        system_clock_counter: u64,
        system_clock_freq: u64,
        gpu_id: u32,
        pad: u32,
    }
    /// `kfd_process_device_apertures`, an array element of `GET_PROCESS_APERTURES_NEW`.
    Apertures {
        lds_base: u64,
        lds_limit: u64,
        scratch_base: u64,
        scratch_limit: u64,
        gpuvm_base: u64,
        gpuvm_limit: u64,
        gpu_id: u32,
        pad: u32,
    }
    GetProcessAperturesNew { kfd_process_device_apertures_ptr: u64, num_of_nodes: u32, pad: u32 }
    CreateEvent {
        event_page_offset: u64,
        event_trigger_data: u32,
        event_type: u32,
        auto_reset: u32,
        node_id: u32,
        event_id: u32,
        event_slot_index: u32,
    }
    /// Shared by `DESTROY_EVENT`, `SET_EVENT` and `RESET_EVENT`.
    OneEvent { event_id: u32, pad: u32 }
    WaitEvents { events_ptr: u64, num_events: u32, wait_for_all: u32, timeout: u32, wait_result: u32 }
    /// `kfd_event_data`. The union of the event's data is its first 32 bytes; for a signal event
    /// the first word of it is `last_event_age`.
    EventData { data: [u64; 4], kfd_event_data_ext: u64, event_id: u32, pad: u32 }
    GetTileConfig {
        tile_config_ptr: u64,
        macro_tile_config_ptr: u64,
        num_tile_configs: u32,
        num_macro_tile_configs: u32,
        gpu_id: u32,
        gb_addr_config: u32,
        num_banks: u32,
        num_ranks: u32,
    }
    AllocMemory { va_addr: u64, size: u64, handle: u64, mmap_offset: u64, gpu_id: u32, flags: u32 }
    FreeMemory { handle: u64 }
    /// Shared by `MAP_MEMORY_TO_GPU` and `UNMAP_MEMORY_FROM_GPU`.
    MapMemory { handle: u64, device_ids_array_ptr: u64, n_devices: u32, n_success: u32 }
    AllocQueueGws { queue_id: u32, num_gws: u32, first_gws: u32, pad: u32 }
    SetXnackMode { xnack_enabled: i32 }
    AvailableMemory { available: u64, gpu_id: u32, pad: u32 }
}

/// `kfd_ioctl_create_queue_args::queue_type`.
pub(crate) mod queue_type {
    pub(crate) const SDMA: u32 = 1;
    pub(crate) const COMPUTE_AQL: u32 = 2;
    pub(crate) const SDMA_XGMI: u32 = 3;
}

/// `KFD_IOC_ALLOC_MEM_FLAGS_*`: the kind of memory.
pub(crate) mod memory_flag {
    pub(crate) const VRAM: u32 = 1;
    pub(crate) const GTT: u32 = 1 << 1;
    pub(crate) const USERPTR: u32 = 1 << 2;
    pub(crate) const DOORBELL: u32 = 1 << 3;
    pub(crate) const MMIO_REMAP: u32 = 1 << 4;
}

/// `KFD_IOC_EVENT_*`.
pub(crate) mod event_type {
    pub(crate) const SIGNAL: u32 = 0;
    pub(crate) const HW_EXCEPTION: u32 = 3;
}

/// `KFD_IOC_WAIT_RESULT_*`.
pub(crate) mod wait_result {
    pub(crate) const COMPLETE: u32 = 0;
    pub(crate) const TIMEOUT: u32 = 1;
}
