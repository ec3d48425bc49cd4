//! Layouts of the kernel's tracepoints, as its `format` files gave them when the recording was made.

use serde::{Deserialize, Serialize};

/// A tracepoint; stands before the first of its records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceFormat {
    /// Number in this capture: [`gputrace_abi::tracepoint::TraceHead::tracepoint`].
    pub number: u32,
    /// The system that has it, e.g. `amdgpu`.
    pub category: String,
    /// Name, e.g. `amdgpu_bo_move`.
    pub name: String,
    /// Its fields in the order of the file, without those that all tracepoints have.
    pub fields: Vec<TraceField>,
}

/// A field of a tracepoint's record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceField {
    /// Name.
    pub name: String,
    /// C type as the file has it, without array bounds, e.g. `__data_loc char[]`.
    #[serde(rename = "type")]
    pub c_type: String,
    /// Bytes from the start of the record.
    pub offset: u32,
    /// Bytes.
    pub size: u32,
    /// Whether it is a signed number.
    pub signed: bool,
    /// Elements, if it is an array; 1 otherwise.
    pub count: u32,
}
