//! Layouts of the kernel's tracepoints, from the `format` files at the time of the recording.

use serde::{Deserialize, Serialize};

/// A tracepoint; comes before the first of its records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceFormat {
    /// Number in this capture: [`gputrace_abi::tracepoint::TraceHead::tracepoint`].
    pub number: u32,
    /// Category, e.g. `amdgpu`.
    pub category: String,
    /// Name, e.g. `amdgpu_bo_move`.
    pub name: String,
    /// Fields in the order of the file, without those that all tracepoints have.
    pub fields: Vec<TraceField>,
}

/// A field of a tracepoint's record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceField {
    /// Name.
    pub name: String,
    /// C type as in the file, without array bounds, e.g. `__data_loc char[]`.
    #[serde(rename = "type")]
    pub c_type: String,
    /// Offset from the start of the record, bytes.
    pub offset: u32,
    /// Size, bytes.
    pub size: u32,
    /// Whether it is a signed integer.
    pub signed: bool,
    /// Number of elements of an array; 1 for other fields.
    pub count: u32,
}
