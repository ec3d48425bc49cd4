//! Requests about events: of signals, and of what the driver tells.

use super::f;
use crate::ioctl::{
    Direction::{ReadWrite, Write},
    Flow::{In, InOut, Out},
    Ioctl,
    Kind::{Address, Descriptor, Flag, Gpu, Hex, Milliseconds, Named, Number},
    Origin::Mainline,
    flags::{EVENT_TYPES, WAIT_RESULTS},
};

pub(super) const CREATE_EVENT: Ioctl = Ioctl {
    nr: 0x08,
    name: "CREATE_EVENT",
    direction: ReadWrite,
    sizes: &[(32, 1)],
    origin: Mainline { minor: 1 },
    fields: &[
        f("event_page_offset", 0, 8, Hex, InOut),
        f("event_trigger_data", 8, 4, Number, Out),
        f("event_type", 12, 4, Named(EVENT_TYPES), In),
        f("auto_reset", 16, 4, Flag, In),
        f("node_id", 20, 4, Number, In),
        f("event_id", 24, 4, Number, Out),
        f("event_slot_index", 28, 4, Number, Out),
    ],
};

pub(super) const DESTROY_EVENT: Ioctl = Ioctl {
    nr: 0x09,
    name: "DESTROY_EVENT",
    direction: Write,
    sizes: &[(8, 1)],
    origin: Mainline { minor: 1 },
    fields: &[f("event_id", 0, 4, Number, In)],
};

pub(super) const SET_EVENT: Ioctl = Ioctl {
    nr: 0x0a,
    name: "SET_EVENT",
    direction: Write,
    sizes: &[(8, 1)],
    origin: Mainline { minor: 1 },
    fields: &[f("event_id", 0, 4, Number, In)],
};

pub(super) const RESET_EVENT: Ioctl = Ioctl {
    nr: 0x0b,
    name: "RESET_EVENT",
    direction: Write,
    sizes: &[(8, 1)],
    origin: Mainline { minor: 1 },
    fields: &[f("event_id", 0, 4, Number, In)],
};

pub(super) const WAIT_EVENTS: Ioctl = Ioctl {
    nr: 0x0c,
    name: "WAIT_EVENTS",
    direction: ReadWrite,
    sizes: &[(24, 1)],
    origin: Mainline { minor: 1 },
    fields: &[
        f("events_ptr", 0, 8, Address, In),
        f("num_events", 8, 4, Number, In),
        f("wait_for_all", 12, 4, Flag, In),
        f("timeout", 16, 4, Milliseconds, In),
        f("wait_result", 20, 4, Named(WAIT_RESULTS), Out),
    ],
};

pub(super) const SMI_EVENTS: Ioctl = Ioctl {
    nr: 0x1f,
    name: "SMI_EVENTS",
    direction: ReadWrite,
    sizes: &[(8, 3)],
    origin: Mainline { minor: 3 },
    fields: &[
        f("gpuid", 0, 4, Gpu, In),
        f("anon_fd", 4, 4, Descriptor, Out),
    ],
};
