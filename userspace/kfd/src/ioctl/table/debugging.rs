//! Requests of debuggers and profilers.

use super::f;
use crate::ioctl::{
    Direction::{ReadWrite, Write},
    Flow::{In, InOut, Out},
    Ioctl,
    Kind::{Address, Bytes, Descriptor, Flag, Flags, Gpu, Hex, Milliseconds, Named, Number},
    Origin::{Mainline, Rocm},
    flags::{DBG_TRAP_OPS, PC_SAMPLE_OPS, PROFILER_OPS, RUNTIME_ENABLE_MODES, SPM_OPS},
};

pub(super) const DBG_REGISTER_DEPRECATED: Ioctl = Ioctl {
    nr: 0x0d,
    name: "DBG_REGISTER_DEPRECATED",
    direction: Write,
    sizes: &[(8, 1)],
    origin: Mainline { minor: 1 },
    fields: &[f("gpu_id", 0, 4, Gpu, In)],
};

pub(super) const DBG_UNREGISTER_DEPRECATED: Ioctl = Ioctl {
    nr: 0x0e,
    name: "DBG_UNREGISTER_DEPRECATED",
    direction: Write,
    sizes: &[(8, 1)],
    origin: Mainline { minor: 1 },
    fields: &[f("gpu_id", 0, 4, Gpu, In)],
};

pub(super) const DBG_ADDRESS_WATCH_DEPRECATED: Ioctl = Ioctl {
    nr: 0x0f,
    name: "DBG_ADDRESS_WATCH_DEPRECATED",
    direction: Write,
    sizes: &[(16, 1)],
    origin: Mainline { minor: 1 },
    fields: &[
        f("content_ptr", 0, 8, Address, In),
        f("gpu_id", 8, 4, Gpu, In),
        f("buf_size_in_bytes", 12, 4, Bytes, In),
    ],
};

pub(super) const DBG_WAVE_CONTROL_DEPRECATED: Ioctl = Ioctl {
    nr: 0x10,
    name: "DBG_WAVE_CONTROL_DEPRECATED",
    direction: Write,
    sizes: &[(16, 1)],
    origin: Mainline { minor: 1 },
    fields: &[
        f("content_ptr", 0, 8, Address, In),
        f("gpu_id", 8, 4, Gpu, In),
        f("buf_size_in_bytes", 12, 4, Bytes, In),
    ],
};

pub(super) const RUNTIME_ENABLE: Ioctl = Ioctl {
    nr: 0x25,
    name: "RUNTIME_ENABLE",
    direction: ReadWrite,
    sizes: &[(16, 13)],
    origin: Mainline { minor: 13 },
    fields: &[
        f("r_debug", 0, 8, Address, In),
        f("mode_mask", 8, 4, Flags(RUNTIME_ENABLE_MODES), In),
        f("capabilities_mask", 12, 4, Hex, Out),
    ],
};

pub(super) const DBG_TRAP: Ioctl = Ioctl {
    nr: 0x26,
    name: "DBG_TRAP",
    direction: ReadWrite,
    sizes: &[(32, 13)],
    origin: Mainline { minor: 13 },
    fields: &[
        f("pid", 0, 4, Number, In),
        f("op", 4, 4, Named(DBG_TRAP_OPS), In),
        f("exception_mask", 8, 8, Hex, In).when(4, 0),
        f("rinfo_ptr", 16, 8, Address, In).when(4, 0),
        f("rinfo_size", 24, 4, Bytes, InOut).when(4, 0),
        f("dbg_fd", 28, 4, Descriptor, In).when(4, 0),
        f("exception_mask", 8, 8, Hex, In).when(4, 2),
        f("gpu_id", 16, 4, Gpu, In).when(4, 2),
        f("queue_id", 20, 4, Number, In).when(4, 2),
        f("exception_mask", 8, 8, Hex, In).when(4, 3),
        f("override_mode", 8, 4, Number, In).when(4, 4),
        f("enable_mask", 12, 4, Hex, InOut).when(4, 4),
        f("support_request_mask", 16, 4, Hex, InOut).when(4, 4),
        f("launch_mode", 8, 4, Number, In).when(4, 5),
        f("exception_mask", 8, 8, Hex, In).when(4, 6),
        f("queue_array_ptr", 16, 8, Address, In).when(4, 6),
        f("num_queues", 24, 4, Number, In).when(4, 6),
        f("grace_period", 28, 4, Number, In).when(4, 6),
        f("queue_array_ptr", 8, 8, Address, In).when(4, 7),
        f("num_queues", 16, 4, Number, In).when(4, 7),
        f("address", 8, 8, Address, In).when(4, 8),
        f("mode", 16, 4, Number, In).when(4, 8),
        f("mask", 20, 4, Hex, In).when(4, 8),
        f("gpu_id", 24, 4, Gpu, In).when(4, 8),
        f("id", 28, 4, Number, Out).when(4, 8),
        f("gpu_id", 8, 4, Gpu, In).when(4, 9),
        f("id", 12, 4, Number, In).when(4, 9),
        f("flags", 8, 4, Hex, InOut).when(4, 10),
        f("exception_mask", 8, 8, Hex, InOut).when(4, 11),
        f("gpu_id", 16, 4, Gpu, Out).when(4, 11),
        f("queue_id", 20, 4, Number, Out).when(4, 11),
        f("info_ptr", 8, 8, Address, In).when(4, 12),
        f("info_size", 16, 4, Bytes, InOut).when(4, 12),
        f("source_id", 20, 4, Number, In).when(4, 12),
        f("exception_code", 24, 4, Number, In).when(4, 12),
        f("clear_exception", 28, 4, Flag, In).when(4, 12),
        f("exception_mask", 8, 8, Hex, In).when(4, 13),
        f("snapshot_buf_ptr", 16, 8, Address, In).when(4, 13),
        f("num_queues", 24, 4, Number, InOut).when(4, 13),
        f("entry_size", 28, 4, Bytes, InOut).when(4, 13),
        f("exception_mask", 8, 8, Hex, In).when(4, 14),
        f("snapshot_buf_ptr", 16, 8, Address, In).when(4, 14),
        f("num_devices", 24, 4, Number, InOut).when(4, 14),
        f("entry_size", 28, 4, Bytes, InOut).when(4, 14),
    ],
};

pub(super) const PROFILER: Ioctl = Ioctl {
    nr: 0x28,
    name: "PROFILER",
    direction: ReadWrite,
    sizes: &[],
    origin: Mainline { minor: 23 },
    fields: &[f("op", 0, 4, Named(PROFILER_OPS), In)],
};

pub(super) const DBG_TRAP_ROCM: Ioctl = Ioctl {
    nr: 0x82,
    name: "DBG_TRAP_ROCM",
    direction: ReadWrite,
    sizes: &[],
    origin: Rocm,
    fields: &[],
};

pub(super) const RLC_SPM: Ioctl = Ioctl {
    nr: 0x84,
    name: "RLC_SPM",
    direction: ReadWrite,
    sizes: &[(32, 0)],
    origin: Rocm,
    fields: &[
        f("dest_buf", 0, 8, Address, In),
        f("buf_size", 8, 4, Bytes, In),
        f("op", 12, 4, Named(SPM_OPS), In),
        f("timeout", 16, 4, Milliseconds, InOut),
        f("gpu_id", 20, 4, Gpu, In),
        f("bytes_copied", 24, 4, Bytes, Out),
        f("has_data_loss", 28, 4, Flag, Out),
    ],
};

pub(super) const PC_SAMPLE: Ioctl = Ioctl {
    nr: 0x85,
    name: "PC_SAMPLE",
    direction: ReadWrite,
    sizes: &[(32, 0)],
    origin: Rocm,
    fields: &[
        f("sample_info_ptr", 0, 8, Address, In),
        f("num_sample_info", 8, 4, Number, InOut),
        f("op", 12, 4, Named(PC_SAMPLE_OPS), In),
        f("gpu_id", 16, 4, Gpu, In),
        f("trace_id", 20, 4, Number, InOut),
        f("flags", 24, 4, Hex, In),
    ],
};

pub(super) const PROFILER_ROCM: Ioctl = Ioctl {
    nr: 0x86,
    name: "PROFILER_ROCM",
    direction: ReadWrite,
    sizes: &[],
    origin: Rocm,
    fields: &[f("op", 0, 4, Named(PROFILER_OPS), In)],
};
