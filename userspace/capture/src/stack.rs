//! Who called traced functions.
//!
//! A record of kind [`STACK`](gputrace_abi::record::kind::STACK) gives a call the number of a
//! stack. The stack itself follows, maybe later; if it does not, it was lost.

use serde::{Deserialize, Serialize};

/// A file whose code appears in stacks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeFile {
    /// Number in the capture.
    pub number: u32,
    /// Path as the process sees it.
    pub path: String,
    /// GNU build id, in hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_id: Option<String>,
}

/// A frame: a function that had called, and not returned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Frame {
    /// Number of the [`CodeFile`]; `None` if the code is in no file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<u32>,
    /// Address at which the frame continues: in the file's own address space, or in the process's
    /// memory if there is no file.
    pub address: u64,
    /// Whether a signal interrupted the frame there. Otherwise the instruction before is a call.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_interrupted: bool,
}

impl Frame {
    /// An address within the instruction that the frame executes: its call, or the interrupted
    /// instruction.
    #[must_use]
    pub const fn within(&self) -> u64 {
        if self.is_interrupted {
            self.address
        } else {
            self.address.saturating_sub(1)
        }
    }
}

/// What comes after the last frame of a stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StackEnd {
    /// Nothing: it is the first function of the thread.
    #[default]
    Complete,
    /// More frames than are recorded.
    TooDeep,
    /// Frames in a part of the stack that was not copied.
    NotCopied,
    /// Code that is in no file.
    UnknownCode,
    /// Code for which its file has no rules for unwinding.
    NoRules,
    /// Code whose rules are damaged or not supported.
    UnsupportedRules,
    /// Rules for unwinding that lead back to where they started.
    Loop,
    /// The process had ended before its memory map could be read.
    ProcessEnded,
}

/// A stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stack {
    /// Its number, from 1. The same stack may have several.
    pub number: u32,
    /// Number of an earlier stack of the process that is the same; the rest is then empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same_as: Option<u32>,
    /// Process id, initial pid namespace.
    pub pid: u32,
    /// The callers of the traced function, the innermost first.
    pub frames: Vec<Frame>,
    /// What comes after them.
    pub end: StackEnd,
}
