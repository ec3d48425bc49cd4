//! Requests about memory: allocating, mapping, sharing, and what it is called elsewhere.

use super::f;
use crate::ioctl::{
    Direction::{Read, ReadWrite, Write},
    Flow::{In, InOut, Out},
    Ioctl,
    Kind::{Address, Bytes, Descriptor, Flags, Gpu, Hex, Named, Number, Signed},
    Origin::{Mainline, Rocm},
    flags::{ALLOC_MEM_FLAGS, CACHE_POLICIES, CROSS_MEMORY_DIRECTIONS, SVM_ATTRIBUTES, SVM_OPS},
};

pub(super) const SET_MEMORY_POLICY: Ioctl = Ioctl {
    nr: 0x04,
    name: "SET_MEMORY_POLICY",
    direction: Write,
    sizes: &[(32, 1)],
    origin: Mainline { minor: 1 },
    fields: &[
        f("alternate_aperture_base", 0, 8, Address, In),
        f("alternate_aperture_size", 8, 8, Bytes, In),
        f("gpu_id", 16, 4, Gpu, In),
        f("default_policy", 20, 4, Named(CACHE_POLICIES), In),
        f("alternate_policy", 24, 4, Named(CACHE_POLICIES), In),
    ],
};

pub(super) const GET_PROCESS_APERTURES: Ioctl = Ioctl {
    nr: 0x06,
    name: "GET_PROCESS_APERTURES",
    direction: Read,
    sizes: &[(400, 1)],
    origin: Mainline { minor: 1 },
    fields: &[
        f("process_apertures.lds_base", 0, 8, Address, Out).times(7, 56),
        f("process_apertures.lds_limit", 8, 8, Address, Out).times(7, 56),
        f("process_apertures.scratch_base", 16, 8, Address, Out).times(7, 56),
        f("process_apertures.scratch_limit", 24, 8, Address, Out).times(7, 56),
        f("process_apertures.gpuvm_base", 32, 8, Address, Out).times(7, 56),
        f("process_apertures.gpuvm_limit", 40, 8, Address, Out).times(7, 56),
        f("process_apertures.gpu_id", 48, 4, Gpu, Out).times(7, 56),
        f("num_of_nodes", 392, 4, Number, Out),
    ],
};

pub(super) const GET_PROCESS_APERTURES_NEW: Ioctl = Ioctl {
    nr: 0x14,
    name: "GET_PROCESS_APERTURES_NEW",
    direction: ReadWrite,
    sizes: &[(16, 1)],
    origin: Mainline { minor: 1 },
    fields: &[
        f("kfd_process_device_apertures_ptr", 0, 8, Address, In),
        f("num_of_nodes", 8, 4, Number, InOut),
    ],
};

pub(super) const ACQUIRE_VM: Ioctl = Ioctl {
    nr: 0x15,
    name: "ACQUIRE_VM",
    direction: Write,
    sizes: &[(8, 1)],
    origin: Mainline { minor: 1 },
    fields: &[
        f("drm_fd", 0, 4, Descriptor, In),
        f("gpu_id", 4, 4, Gpu, In),
    ],
};

pub(super) const ALLOC_MEMORY_OF_GPU: Ioctl = Ioctl {
    nr: 0x16,
    name: "ALLOC_MEMORY_OF_GPU",
    direction: ReadWrite,
    sizes: &[(40, 1)],
    origin: Mainline { minor: 1 },
    fields: &[
        f("va_addr", 0, 8, Address, In),
        f("size", 8, 8, Bytes, In),
        f("handle", 16, 8, Hex, Out),
        f("mmap_offset", 24, 8, Hex, InOut),
        f("gpu_id", 32, 4, Gpu, In),
        f("flags", 36, 4, Flags(ALLOC_MEM_FLAGS), In),
    ],
};

pub(super) const FREE_MEMORY_OF_GPU: Ioctl = Ioctl {
    nr: 0x17,
    name: "FREE_MEMORY_OF_GPU",
    direction: Write,
    sizes: &[(8, 1)],
    origin: Mainline { minor: 1 },
    fields: &[f("handle", 0, 8, Hex, In)],
};

pub(super) const MAP_MEMORY_TO_GPU: Ioctl = Ioctl {
    nr: 0x18,
    name: "MAP_MEMORY_TO_GPU",
    direction: ReadWrite,
    sizes: &[(24, 1)],
    origin: Mainline { minor: 1 },
    fields: &[
        f("handle", 0, 8, Hex, In),
        f("device_ids_array_ptr", 8, 8, Address, In),
        f("n_devices", 16, 4, Number, In),
        f("n_success", 20, 4, Number, InOut),
    ],
};

pub(super) const UNMAP_MEMORY_FROM_GPU: Ioctl = Ioctl {
    nr: 0x19,
    name: "UNMAP_MEMORY_FROM_GPU",
    direction: ReadWrite,
    sizes: &[(24, 1)],
    origin: Mainline { minor: 1 },
    fields: &[
        f("handle", 0, 8, Hex, In),
        f("device_ids_array_ptr", 8, 8, Address, In),
        f("n_devices", 16, 4, Number, In),
        f("n_success", 20, 4, Number, InOut),
    ],
};

pub(super) const GET_DMABUF_INFO: Ioctl = Ioctl {
    nr: 0x1c,
    name: "GET_DMABUF_INFO",
    direction: ReadWrite,
    sizes: &[(32, 1)],
    origin: Mainline { minor: 1 },
    fields: &[
        f("size", 0, 8, Bytes, Out),
        f("metadata_ptr", 8, 8, Address, In),
        f("metadata_size", 16, 4, Bytes, InOut),
        f("gpu_id", 20, 4, Gpu, Out),
        f("flags", 24, 4, Flags(ALLOC_MEM_FLAGS), Out),
        f("dmabuf_fd", 28, 4, Descriptor, In),
    ],
};

pub(super) const IMPORT_DMABUF: Ioctl = Ioctl {
    nr: 0x1d,
    name: "IMPORT_DMABUF",
    direction: ReadWrite,
    sizes: &[(24, 1)],
    origin: Mainline { minor: 1 },
    fields: &[
        f("va_addr", 0, 8, Address, In),
        f("handle", 8, 8, Hex, Out),
        f("gpu_id", 16, 4, Gpu, In),
        f("dmabuf_fd", 20, 4, Descriptor, In),
    ],
};

pub(super) const SVM: Ioctl = Ioctl {
    nr: 0x20,
    name: "SVM",
    direction: ReadWrite,
    sizes: &[(24, 5)],
    origin: Mainline { minor: 5 },
    fields: &[
        f("start_addr", 0, 8, Address, In),
        f("size", 8, 8, Bytes, In),
        f("op", 16, 4, Named(SVM_OPS), In),
        f("nattr", 20, 4, Number, In),
        f("attrs.type", 24, 4, Named(SVM_ATTRIBUTES), In).times(64, 8),
        f("attrs.value", 28, 4, Hex, InOut).times(64, 8),
    ],
};

pub(super) const SET_XNACK_MODE: Ioctl = Ioctl {
    nr: 0x21,
    name: "SET_XNACK_MODE",
    direction: ReadWrite,
    sizes: &[(4, 5)],
    origin: Mainline { minor: 5 },
    fields: &[f("xnack_enabled", 0, 4, Signed, InOut)],
};

pub(super) const AVAILABLE_MEMORY: Ioctl = Ioctl {
    nr: 0x23,
    name: "AVAILABLE_MEMORY",
    direction: ReadWrite,
    sizes: &[(16, 9)],
    origin: Mainline { minor: 9 },
    fields: &[f("available", 0, 8, Bytes, Out), f("gpu_id", 8, 4, Gpu, In)],
};

pub(super) const EXPORT_DMABUF: Ioctl = Ioctl {
    nr: 0x24,
    name: "EXPORT_DMABUF",
    direction: ReadWrite,
    sizes: &[(16, 12)],
    origin: Mainline { minor: 12 },
    fields: &[
        f("handle", 0, 8, Hex, In),
        f("flags", 8, 4, Hex, In),
        f("dmabuf_fd", 12, 4, Descriptor, Out),
    ],
};

pub(super) const IPC_IMPORT_HANDLE: Ioctl = Ioctl {
    nr: 0x80,
    name: "IPC_IMPORT_HANDLE",
    direction: ReadWrite,
    sizes: &[(48, 0)],
    origin: Rocm,
    fields: &[
        f("handle", 0, 8, Hex, Out),
        f("va_addr", 8, 8, Address, In),
        f("mmap_offset", 16, 8, Hex, Out),
        f("share_handle", 24, 4, Hex, In).times(4, 4),
        f("gpu_id", 40, 4, Gpu, In),
        f("flags", 44, 4, Flags(ALLOC_MEM_FLAGS), Out),
    ],
};

pub(super) const IPC_EXPORT_HANDLE: Ioctl = Ioctl {
    nr: 0x81,
    name: "IPC_EXPORT_HANDLE",
    direction: ReadWrite,
    sizes: &[(32, 0)],
    origin: Rocm,
    fields: &[
        f("handle", 0, 8, Hex, In),
        f("share_handle", 8, 4, Hex, Out).times(4, 4),
        f("gpu_id", 24, 4, Gpu, In),
        f("flags", 28, 4, Flags(ALLOC_MEM_FLAGS), In),
    ],
};

pub(super) const CROSS_MEMORY_COPY: Ioctl = Ioctl {
    nr: 0x83,
    name: "CROSS_MEMORY_COPY",
    direction: ReadWrite,
    sizes: &[(48, 0)],
    origin: Rocm,
    fields: &[
        f("pid", 0, 4, Number, In),
        f("flags", 4, 4, Named(CROSS_MEMORY_DIRECTIONS), In),
        f("src_mem_range_array", 8, 8, Address, In),
        f("src_mem_array_size", 16, 8, Number, In),
        f("dst_mem_range_array", 24, 8, Address, In),
        f("dst_mem_array_size", 32, 8, Number, In),
        f("bytes_copied", 40, 8, Bytes, Out),
    ],
};

pub(super) const AIS_OP: Ioctl = Ioctl {
    nr: 0x87,
    name: "AIS_OP",
    direction: ReadWrite,
    sizes: &[],
    origin: Rocm,
    fields: &[],
};
