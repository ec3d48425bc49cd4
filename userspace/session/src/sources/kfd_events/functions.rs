//! The driver's events, received by breakpoints on the driver functions that report them. This is
//! used where the driver's descriptor cannot be opened. The functions are called whether anybody
//! listens or not, for every GPU and every process.
//!
//! Their arguments tell less than the descriptor: the GPU is known only if there is just one, and
//! migrations are not traced, because their reasons are passed on the stack.

use gputrace_capture::{
    Meta,
    tracepoint::{TraceField, TraceFormat},
};
use gputrace_loader::{
    ProbeError,
    calls::Calls,
    tracepoint::{ARGUMENTS, Functions},
};

/// An argument: name, C type, bytes.
type Argument = (&'static str, &'static str, u32);

const NODE: Argument = ("node", "struct kfd_node *", 8);
/// A process id in kernels until 2026, a pointer in later ones; the upper half tells which.
const PID: Argument = ("pid", "u64", 8);
const ADDRESS: Argument = ("address", "u64", 8);

/// The functions and their arguments in order, from the kernel's `amdkfd/kfd_smi_events.h`.
const FUNCTIONS: [(&str, &[Argument]); 7] = [
    (
        "kfd_smi_event_queue_eviction",
        &[NODE, PID, ("trigger", "u32", 4)],
    ),
    ("kfd_smi_event_queue_restore", &[NODE, PID]),
    (
        "kfd_smi_event_page_fault_start",
        &[NODE, PID, ADDRESS, ("write", "bool", 1)],
    ),
    (
        "kfd_smi_event_page_fault_end",
        &[NODE, PID, ADDRESS, ("migrated", "bool", 1)],
    ),
    (
        "kfd_smi_event_unmap_from_gpu",
        &[
            NODE,
            PID,
            ADDRESS,
            ("last", "u64", 8),
            ("trigger", "u32", 4),
        ],
    ),
    (
        "kfd_smi_event_update_gpu_reset",
        &[NODE, ("after", "bool", 1)],
    ),
    (
        "kfd_smi_event_update_thermal_throttling",
        &[NODE, ("mask", "u64", 8)],
    ),
];

/// Attaches to the functions that this kernel has, and returns the layouts of their records. For
/// example, kernels without shared virtual memory have no function for page faults.
///
/// # Errors
///
/// [`ProbeError`] if the kernel has none of the functions, or none can be probed.
pub(crate) fn attach(calls: &Calls, per_second: u64) -> Result<(Functions, Vec<Meta>), ProbeError> {
    let mut functions = Functions::load(calls, per_second)?;
    let mut layouts = Vec::new();
    let mut failure = None;
    for (symbol, arguments) in FUNCTIONS {
        match functions.attach(symbol) {
            Ok(number) => layouts.push(layout(number, symbol, arguments).into()),
            Err(error) => {
                tracing::debug!("{error}");
                failure = Some(error);
            }
        }
    }
    match failure {
        Some(error) if layouts.is_empty() => Err(error),
        _ => Ok((functions, layouts)),
    }
}

fn layout(number: u32, symbol: &str, arguments: &[Argument]) -> TraceFormat {
    let field = |((name, c_type, size), offset): (&Argument, u32)| TraceField {
        name: (*name).to_owned(),
        c_type: (*c_type).to_owned(),
        offset,
        size: *size,
        signed: false,
        count: 1,
    };
    TraceFormat {
        number,
        category: "amdkfd".to_owned(),
        name: symbol.to_owned(),
        fields: arguments.iter().zip(ARGUMENTS).map(field).collect(),
    }
}
