//! Requests about the driver, a GPU, and a whole process.

use super::f;
use crate::ioctl::{
    Direction::{None, Read, ReadWrite},
    Flow::{In, InOut, Out},
    Ioctl,
    Kind::{Address, Bytes, Gpu, Hertz, Hex, Named, Nanoseconds, Number, Ticks},
    Origin::Mainline,
    flags::CRIU_OPS,
};

pub(super) const GET_VERSION: Ioctl = Ioctl {
    nr: 0x01,
    name: "GET_VERSION",
    direction: Read,
    sizes: &[(8, 1)],
    origin: Mainline { minor: 1 },
    fields: &[
        f("major_version", 0, 4, Number, Out),
        f("minor_version", 4, 4, Number, Out),
    ],
};

pub(super) const GET_CLOCK_COUNTERS: Ioctl = Ioctl {
    nr: 0x05,
    name: "GET_CLOCK_COUNTERS",
    direction: ReadWrite,
    sizes: &[(40, 1)],
    origin: Mainline { minor: 1 },
    fields: &[
        f("gpu_clock_counter", 0, 8, Ticks, Out),
        f("cpu_clock_counter", 8, 8, Nanoseconds, Out),
        f("system_clock_counter", 16, 8, Nanoseconds, Out),
        f("system_clock_freq", 24, 8, Hertz, Out),
        f("gpu_id", 32, 4, Gpu, In),
    ],
};

pub(super) const GET_TILE_CONFIG: Ioctl = Ioctl {
    nr: 0x12,
    name: "GET_TILE_CONFIG",
    direction: ReadWrite,
    sizes: &[(40, 1)],
    origin: Mainline { minor: 1 },
    fields: &[
        f("tile_config_ptr", 0, 8, Address, In),
        f("macro_tile_config_ptr", 8, 8, Address, In),
        f("num_tile_configs", 16, 4, Number, InOut),
        f("num_macro_tile_configs", 20, 4, Number, InOut),
        f("gpu_id", 24, 4, Gpu, In),
        f("gb_addr_config", 28, 4, Hex, Out),
        f("num_banks", 32, 4, Number, Out),
        f("num_ranks", 36, 4, Number, Out),
    ],
};

pub(super) const CRIU_OP: Ioctl = Ioctl {
    nr: 0x22,
    name: "CRIU_OP",
    direction: ReadWrite,
    sizes: &[(56, 7)],
    origin: Mainline { minor: 7 },
    fields: &[
        f("devices", 0, 8, Address, In),
        f("bos", 8, 8, Address, In),
        f("priv_data", 16, 8, Address, In),
        f("priv_data_size", 24, 8, Bytes, InOut),
        f("num_devices", 32, 4, Number, InOut),
        f("num_bos", 36, 4, Number, InOut),
        f("num_objects", 40, 4, Number, InOut),
        f("pid", 44, 4, Number, InOut),
        f("op", 48, 4, Named(CRIU_OPS), In),
    ],
};

pub(super) const CREATE_PROCESS: Ioctl = Ioctl {
    nr: 0x27,
    name: "CREATE_PROCESS",
    direction: None,
    sizes: &[(0, 19)],
    origin: Mainline { minor: 19 },
    fields: &[],
};
