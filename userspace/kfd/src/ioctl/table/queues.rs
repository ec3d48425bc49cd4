//! Requests about queues, and about what a GPU needs to run waves of them.

use super::f;
use crate::ioctl::{
    Direction::{ReadWrite, Write},
    Flow::{In, Out},
    Ioctl,
    Kind::{Address, Bytes, Gpu, Hex, Named, Number},
    Origin::Mainline,
    flags::QUEUE_TYPES,
};

pub(super) const CREATE_QUEUE: Ioctl = Ioctl {
    nr: 0x02,
    name: "CREATE_QUEUE",
    direction: ReadWrite,
    sizes: &[(88, 1), (96, 17)],
    origin: Mainline { minor: 1 },
    fields: &[
        f("ring_base_address", 0, 8, Address, In),
        f("write_pointer_address", 8, 8, Address, In),
        f("read_pointer_address", 16, 8, Address, In),
        f("doorbell_offset", 24, 8, Hex, Out),
        f("ring_size", 32, 4, Bytes, In),
        f("gpu_id", 36, 4, Gpu, In),
        f("queue_type", 40, 4, Named(QUEUE_TYPES), In),
        f("queue_percentage", 44, 4, Hex, In),
        f("queue_priority", 48, 4, Number, In),
        f("queue_id", 52, 4, Number, Out),
        f("eop_buffer_address", 56, 8, Address, In),
        f("eop_buffer_size", 64, 8, Bytes, In),
        f("ctx_save_restore_address", 72, 8, Address, In),
        f("ctx_save_restore_size", 80, 4, Bytes, In),
        f("ctl_stack_size", 84, 4, Bytes, In),
        f("sdma_engine_id", 88, 4, Number, In),
    ],
};

pub(super) const DESTROY_QUEUE: Ioctl = Ioctl {
    nr: 0x03,
    name: "DESTROY_QUEUE",
    direction: ReadWrite,
    sizes: &[(8, 1)],
    origin: Mainline { minor: 1 },
    fields: &[f("queue_id", 0, 4, Number, In)],
};

pub(super) const UPDATE_QUEUE: Ioctl = Ioctl {
    nr: 0x07,
    name: "UPDATE_QUEUE",
    direction: Write,
    sizes: &[(24, 1)],
    origin: Mainline { minor: 1 },
    fields: &[
        f("ring_base_address", 0, 8, Address, In),
        f("queue_id", 8, 4, Number, In),
        f("ring_size", 12, 4, Bytes, In),
        f("queue_percentage", 16, 4, Hex, In),
        f("queue_priority", 20, 4, Number, In),
    ],
};

pub(super) const SET_SCRATCH_BACKING_VA: Ioctl = Ioctl {
    nr: 0x11,
    name: "SET_SCRATCH_BACKING_VA",
    direction: ReadWrite,
    sizes: &[(16, 1)],
    origin: Mainline { minor: 1 },
    fields: &[f("va_addr", 0, 8, Address, In), f("gpu_id", 8, 4, Gpu, In)],
};

pub(super) const SET_TRAP_HANDLER: Ioctl = Ioctl {
    nr: 0x13,
    name: "SET_TRAP_HANDLER",
    direction: Write,
    sizes: &[(24, 1)],
    origin: Mainline { minor: 1 },
    fields: &[
        f("tba_addr", 0, 8, Address, In),
        f("tma_addr", 8, 8, Address, In),
        f("gpu_id", 16, 4, Gpu, In),
    ],
};

pub(super) const SET_CU_MASK: Ioctl = Ioctl {
    nr: 0x1a,
    name: "SET_CU_MASK",
    direction: Write,
    sizes: &[(16, 1)],
    origin: Mainline { minor: 1 },
    fields: &[
        f("queue_id", 0, 4, Number, In),
        f("num_cu_mask", 4, 4, Number, In),
        f("cu_mask_ptr", 8, 8, Address, In),
    ],
};

pub(super) const GET_QUEUE_WAVE_STATE: Ioctl = Ioctl {
    nr: 0x1b,
    name: "GET_QUEUE_WAVE_STATE",
    direction: ReadWrite,
    sizes: &[(24, 1)],
    origin: Mainline { minor: 1 },
    fields: &[
        f("ctl_stack_address", 0, 8, Address, In),
        f("ctl_stack_used_size", 8, 4, Bytes, Out),
        f("save_area_used_size", 12, 4, Bytes, Out),
        f("queue_id", 16, 4, Number, In),
    ],
};

pub(super) const ALLOC_QUEUE_GWS: Ioctl = Ioctl {
    nr: 0x1e,
    name: "ALLOC_QUEUE_GWS",
    direction: ReadWrite,
    sizes: &[(16, 1)],
    origin: Mainline { minor: 1 },
    fields: &[
        f("queue_id", 0, 4, Number, In),
        f("num_gws", 4, 4, Number, In),
        f("first_gws", 8, 4, Number, Out),
    ],
};
