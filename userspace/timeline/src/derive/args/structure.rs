//! Structures among the arguments of a call, passed by value or by pointer.

use std::iter;

use gputrace_abi::STACK_ARGS;
use gputrace_capture::meta::{ArgSlot, Field, Parameter, ValueKind};

use super::{ArgValue, in_memory, meant, pointee};
use crate::model::{event::Call, values::PointeeData};

/// The bytes of a structure, as far as they were recorded.
#[derive(Clone, Copy)]
pub(super) enum Structure<'a> {
    /// Behind a pointer.
    Pointed(&'a [u8]),
    /// Passed by value: the stack words from its first on, and how many of their bytes belong to it
    /// or to what follows it.
    Stacked([u8; 8 * STACK_ARGS], usize),
}

/// The structure that a parameter is or points to. `None` if it has no fields to show or its
/// contents are unknown: the pointer is null, the memory could not be read, or the function that
/// was to store it failed.
pub(super) fn of<'a>(
    parameter: &Parameter,
    call: &'a Call,
    succeeded: bool,
) -> Option<Structure<'a>> {
    if parameter.fields.is_empty() {
        return None;
    }
    if parameter.kind == ValueKind::Pointer {
        let pointee = pointee(call, gputrace_catalog::word(parameter.at)?)?;
        let is_given = !pointee.at_return || parameter.c_type.starts_with("const ");
        return match &pointee.data {
            PointeeData::Bytes(bytes) if is_given || succeeded => Some(Structure::Pointed(bytes)),
            _ => None,
        };
    }
    let ArgSlot::Stack(first) = parameter.at else {
        return None;
    };
    let words = call
        .stack
        .get(usize::from(first)..)
        .filter(|_| call.stack_readable)?;
    let mut bytes = [0; 8 * STACK_ARGS];
    let places = bytes.chunks_exact_mut(8);
    iter::zip(places, words).for_each(|(place, word)| place.copy_from_slice(&word.to_le_bytes()));
    Some(Structure::Stacked(bytes, 8 * words.len()))
}

impl<'a> Structure<'a> {
    /// The value of a field.
    pub(super) fn field(&self, field: &Field) -> ArgValue<'a> {
        let begin = usize::from(field.offset);
        let all = match self {
            Self::Pointed(bytes) => bytes,
            Self::Stacked(bytes, recorded) => bytes.get(..*recorded).unwrap_or_default(),
        };
        if field.kind == ValueKind::CString {
            return match self {
                Self::Pointed(bytes) => text(bytes.get(begin..).unwrap_or_default()),
                Self::Stacked(..) => ArgValue::Unrecorded,
            };
        }
        let bytes = all.get(begin..begin + usize::from(field.bytes));
        let value = bytes.and_then(|bytes| in_memory(field.kind, bytes));
        value.map_or(ArgValue::Unrecorded, |value| {
            meant(&field.values, &field.c_type, value)
        })
    }
}

/// The text up to a NUL, or up to the first byte that is not UTF-8.
fn text(bytes: &[u8]) -> ArgValue<'_> {
    let end = bytes.iter().position(|byte| *byte == 0);
    let given = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default();
    let mut chunks = given.utf8_chunks();
    let first = chunks.next();
    let is_whole = first
        .as_ref()
        .is_none_or(|chunk| chunk.invalid().is_empty());
    ArgValue::Text {
        text: first.map_or("", |chunk| chunk.valid()),
        cut: end.is_none() || !is_whole,
    }
}
