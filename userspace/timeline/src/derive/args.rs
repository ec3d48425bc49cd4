//! Decodes arguments and return values of a call as the catalogue describes its function.

use std::iter;

use gputrace_abi::{domain::Domain, values::RESULT_WORD};
use gputrace_capture::meta::{ArgSlot, Parameter, ValueKind};
use gputrace_catalog::{
    enums::enumerator,
    flags::{Flags, mask},
};

use crate::{
    derive::{collective, status},
    model::{
        event::{Call, CallEnd, FunctionInfo},
        values::{Annotation, AnnotationValue, Pointee, PointeeData},
    },
};

mod structure;

pub use crate::model::value::ArgValue;

/// The C type shown for a word of unknown type.
const REGISTER: &str = "uint64_t";

/// Name of the derived argument with the bytes that a collective transfers.
const BYTES: &str = "bytes";

/// Names of arguments of functions that are not in the catalogue.
const RAW_NAMES: [&str; gputrace_abi::REGISTER_ARGS] =
    ["arg0", "arg1", "arg2", "arg3", "arg4", "arg5"];

/// Names and values of a call's arguments in order of declaration, then the program's annotations.
/// Calls of RCCL's collectives end with rank and size of the communicator (`rank`, `nranks`), as
/// far as they are known. A function that is not in the catalogue shows all six argument registers
/// in hex as `arg0` … `arg5`, because its number of arguments is unknown.
///
/// A string is shown as text, and a pointer through which the function stored a value as that
/// value. Fields of structures follow the pointer to the structure, and replace a structure that is
/// passed by value: `extent.width`.
pub fn decoded<'a>(
    info: &'a FunctionInfo,
    call: &'a Call,
) -> impl Iterator<Item = (&'a str, ArgValue<'a>)> {
    declared(info, call).chain(annotations(call))
}

/// An argument, or a field of an argument that is a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argument<'a> {
    /// Index of the argument, from 0; for a field, that of its structure.
    pub position: usize,
    /// Index into the function's [`names`].
    slot: usize,
    /// Its C type.
    pub c_type: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its value.
    pub value: ArgValue<'a>,
}

/// As [`decoded`], with C types and positions.
pub fn typed<'a>(info: &'a FunctionInfo, call: &'a Call) -> impl Iterator<Item = Argument<'a>> {
    let annotated = info
        .function
        .parameters
        .as_ref()
        .map_or(RAW_NAMES.len(), Vec::len);
    arguments(info, call).chain(
        annotations(call)
            .enumerate()
            .map(move |(index, (name, value))| {
                let c_type = match value {
                    ArgValue::Text { .. } => "const char *",
                    ArgValue::Signed(_) => "int64_t",
                    ArgValue::Real(_) => "double",
                    ArgValue::Hex(_) => "void *",
                    _ => REGISTER,
                };
                let position = annotated + index;
                Argument {
                    position,
                    slot: position,
                    c_type,
                    name,
                    value,
                }
            }),
    )
}

/// The program's annotations of a region, and rank and size of a communicator: names that differ
/// from call to call.
pub fn annotations(call: &Call) -> impl Iterator<Item = (&str, ArgValue<'_>)> {
    call.pointees.iter().filter_map(|pointee| {
        let PointeeData::Annotation(Annotation { name, value }) = &pointee.data else {
            return None;
        };
        let value = match value {
            AnnotationValue::Text { text, cut } => ArgValue::Text { text, cut: *cut },
            AnnotationValue::Signed(value) => ArgValue::Signed(*value),
            AnnotationValue::Unsigned(value) => ArgValue::Unsigned(*value),
            AnnotationValue::Real(bits) => ArgValue::Real(*bits),
            AnnotationValue::Pointer(value) => ArgValue::Hex(*value),
            AnnotationValue::Unreadable => ArgValue::Unreadable,
        };
        Some((name.as_str(), value))
    })
}

/// As [`decoded`], without annotations, rank and size. Calls of RCCL's collectives end with the
/// bytes transferred, if the element type is known.
pub fn declared<'a>(
    info: &'a FunctionInfo,
    call: &'a Call,
) -> impl Iterator<Item = (&'a str, ArgValue<'a>)> {
    arguments(info, call).map(|argument| (argument.name, argument.value))
}

/// As [`declared`], with indices into the function's [`names`]. Not for requests to the driver.
pub fn placed<'a>(
    info: &'a FunctionInfo,
    call: &'a Call,
) -> impl Iterator<Item = (usize, ArgValue<'a>)> {
    arguments(info, call).map(|argument| (argument.slot, argument.value))
}

/// Every name that an argument of the function's calls may have, except annotations and arguments
/// of requests to the driver.
pub fn names(info: &FunctionInfo) -> impl Iterator<Item = &str> {
    let parameters = info.function.parameters.as_deref();
    let registers = parameters.map_or(&RAW_NAMES[..], |_| &[]);
    let known = parameters.unwrap_or_default().iter().flat_map(|parameter| {
        let fields = parameter.fields.iter().map(|field| field.name.as_str());
        iter::once(parameter.name.as_str()).chain(fields)
    });
    let bytes = collective::is_collective(info).then_some(BYTES);
    known.chain(registers.iter().copied()).chain(bytes)
}

fn arguments<'a>(info: &'a FunctionInfo, call: &'a Call) -> impl Iterator<Item = Argument<'a>> {
    let succeeded = succeeded(info, call);
    let parameters = info.function.parameters.as_deref();
    let request = call.request.as_deref();
    let registers = if parameters.is_none() && request.is_none() {
        &RAW_NAMES[..]
    } else {
        &[]
    };
    let fields = request.map_or(&[][..], |request| &request.arguments);
    let fields = fields
        .iter()
        .map(|field| (field.name.as_ref(), field.value));
    let registers =
        iter::zip(registers, call.args).map(|(name, word)| (*name, ArgValue::Hex(word)));
    let nameless = registers.chain(fields).enumerate();
    let nameless = nameless.map(|(position, (name, value))| Argument {
        position,
        slot: position,
        c_type: REGISTER,
        name,
        value,
    });
    let known = parameters.unwrap_or_default();
    let mut slot = 0;
    let declared = known
        .iter()
        .enumerate()
        .flat_map(move |(position, parameter)| {
            let first = slot;
            slot += 1 + parameter.fields.len();
            shown(parameter, (position, first), call, succeeded)
        });
    let bytes = collective::bytes(info, call).map(|bytes| Argument {
        position: known.len(),
        slot: known
            .iter()
            .map(|parameter| 1 + parameter.fields.len())
            .sum(),
        c_type: REGISTER,
        name: BYTES,
        value: ArgValue::Unsigned(bytes),
    });
    declared.chain(nameless).chain(bytes)
}

/// What is shown for a parameter: its value, then the fields of a structure that it points to; for
/// a structure passed by value, only the fields.
fn shown<'a>(
    parameter: &'a Parameter,
    (position, slot): (usize, usize),
    call: &'a Call,
    succeeded: bool,
) -> impl Iterator<Item = Argument<'a>> {
    let structure = structure::of(parameter, call, succeeded);
    let itself = (structure.is_none() || parameter.kind == ValueKind::Pointer).then(|| Argument {
        position,
        slot,
        c_type: &parameter.c_type,
        name: &parameter.name,
        value: match argument(parameter, call, succeeded) {
            // The contents of what it points to are unknown.
            ArgValue::Hex(address)
                if address != 0 && !parameter.fields.is_empty() && structure.is_none() =>
            {
                ArgValue::Place(address)
            }
            value => value,
        },
    });
    let fields = structure.into_iter().flat_map(move |structure| {
        let fields = parameter.fields.iter().zip(slot + 1..);
        fields.map(move |(field, slot)| Argument {
            position,
            slot,
            c_type: &field.c_type,
            name: &field.name,
            value: structure.field(field),
        })
    });
    itself.into_iter().chain(fields)
}

/// The return value; `None` if the call did not return or returns nothing.
#[must_use]
pub fn returned<'a>(info: &FunctionInfo, call: &'a Call) -> Option<ArgValue<'a>> {
    match (call.how, info.function.returns) {
        (CallEnd::Returned(result), _) if call.request.is_some() => {
            Some(status::errno(result.cast_signed()))
        }
        (CallEnd::Returned(_), ValueKind::Void) => None,
        (CallEnd::Returned(word), ValueKind::CString) => {
            Some(text(call, RESULT_WORD).unwrap_or(ArgValue::Hex(word)))
        }
        (CallEnd::Returned(word), kind) => Some(match value(kind, word, None) {
            number @ (ArgValue::Signed(_) | ArgValue::Unsigned(_)) => {
                let signature = gputrace_catalog::signature(&info.function.name);
                signature.map_or(number, |signature| {
                    named(signature.returns.spelling, number)
                })
            }
            other => other,
        }),
        _ => None,
    }
}

/// The status in the word that a function returned, in which 0 means success; `None` if it returns
/// no status.
pub(crate) fn status_of(info: &FunctionInfo, word: u64) -> Option<u32> {
    let is_status = match info.function.returns {
        ValueKind::HipError | ValueKind::HsaStatus => true,
        ValueKind::Signed(4) | ValueKind::Unsigned(4) => {
            info.domain.is_some_and(Domain::zero_is_success)
        }
        _ => false,
    };
    is_status.then_some(word as u32)
}

/// Whether values that the call stored are meaningful: a failed call may have stored anything.
fn succeeded(info: &FunctionInfo, call: &Call) -> bool {
    match call.how {
        CallEnd::Returned(word) => status_of(info, word).is_none_or(|code| code == 0),
        _ => false,
    }
}

fn pointee(call: &Call, word: u8) -> Option<&Pointee> {
    call.pointees.iter().find(|pointee| pointee.word == word)
}

/// The string that a word points to, if it was read.
fn text(call: &Call, word: u8) -> Option<ArgValue<'_>> {
    match &pointee(call, word)?.data {
        PointeeData::Text { text, cut } => Some(ArgValue::Text { text, cut: *cut }),
        PointeeData::Bytes(_) | PointeeData::Annotation(_) | PointeeData::Unreadable => None,
    }
}

/// The value that the function stored through its argument, a pointer with this `address`.
fn stored<'a>(
    parameter: &Parameter,
    kind: ValueKind,
    call: &'a Call,
    word: u8,
) -> Option<ArgValue<'a>> {
    if kind == ValueKind::CString {
        return text(call, word);
    }
    let PointeeData::Bytes(bytes) = &pointee(call, word)?.data else {
        return None;
    };
    let pointed = parameter
        .c_type
        .strip_suffix('*')
        .unwrap_or_default()
        .trim_end();
    Some(meant(&parameter.values, pointed, in_memory(kind, bytes)?))
}

/// The value of this kind at the beginning of `bytes`; `None` if `bytes` is empty.
fn in_memory(kind: ValueKind, bytes: &[u8]) -> Option<ArgValue<'static>> {
    let mut words = bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        iter::zip(&mut word, chunk).for_each(|(to, from)| *to = *from);
        u64::from_le_bytes(word)
    });
    let first = words.next()?;
    Some(match kind {
        ValueKind::Real(4) => ArgValue::Real(f64::from(f32::from_bits(first as u32)).to_bits()),
        ValueKind::Real(_) => ArgValue::Real(first),
        kind => value(kind, first, words.next()),
    })
}

/// The meaning of a number: a mask or an enumerator of `values` if that is not empty, otherwise an
/// enumerator of its C type.
fn meant<'a>(values: &str, c_type: &str, value: ArgValue<'a>) -> ArgValue<'a> {
    if values.is_empty() {
        return named(c_type, value);
    }
    let bits = match value {
        ArgValue::Signed(bits) => bits.cast_unsigned(),
        ArgValue::Unsigned(bits) => bits,
        other => return other,
    };
    match mask(values) {
        Some(mask) => ArgValue::Flags(Flags { bits, mask }),
        None => named(values, value),
    }
}

/// The enumerator of the C type that has this number, if there is one.
fn named<'a>(c_type: &str, value: ArgValue<'a>) -> ArgValue<'a> {
    let code = match value {
        ArgValue::Signed(code) => code,
        ArgValue::Unsigned(code) => code.cast_signed(),
        other => return other,
    };
    match enumerator(c_type, code) {
        Some(name) => ArgValue::Enumerator { code, name },
        None => value,
    }
}

fn argument<'a>(parameter: &Parameter, call: &'a Call, succeeded: bool) -> ArgValue<'a> {
    let words: (&[u64], u8) = match parameter.at {
        ArgSlot::Register(first) => (&call.args, first),
        ArgSlot::Stack(_) if !call.stack_readable => return ArgValue::Unreadable,
        ArgSlot::Stack(first) => (&call.stack, first),
        ArgSlot::Unrecorded => return ArgValue::Unrecorded,
    };
    let word = |index: usize| words.0.get(usize::from(words.1) + index).copied();
    let Some(first) = word(0) else {
        return ArgValue::Unrecorded;
    };
    let number = gputrace_catalog::word(parameter.at).unwrap_or(RESULT_WORD);
    match (parameter.kind, parameter.stored) {
        (ValueKind::CString, _) => text(call, number).unwrap_or(ArgValue::Hex(first)),
        (_, Some(kind)) if first != 0 => {
            let stored = succeeded
                .then(|| stored(parameter, kind, call, number))
                .flatten();
            stored.unwrap_or(ArgValue::Place(first))
        }
        (kind, _) => meant(
            &parameter.values,
            &parameter.c_type,
            value(kind, first, word(1)),
        ),
    }
}

/// Reads `word` as `kind`; `next` is the word after it, for values that take two.
fn value(kind: ValueKind, word: u64, next: Option<u64>) -> ArgValue<'static> {
    // The System V ABI leaves the upper bits of a register undefined for types narrower than it.
    let low = word as u32;
    match kind {
        ValueKind::Void
        | ValueKind::Word
        | ValueKind::Pointer
        | ValueKind::CString
        | ValueKind::Struct => ArgValue::Hex(word),
        ValueKind::Signed(bytes) => {
            let unused = unused_bits(bytes);
            ArgValue::Signed((word << unused) as i64 >> unused)
        }
        ValueKind::Unsigned(bytes) => {
            let unused = unused_bits(bytes);
            ArgValue::Unsigned(word << unused >> unused)
        }
        ValueKind::Bool => ArgValue::Bool(word & 0xff != 0),
        ValueKind::Dim3 => match next {
            Some(next) => ArgValue::Dim3 {
                x: low,
                y: (word >> 32) as u32,
                z: next as u32,
            },
            None => ArgValue::Unrecorded,
        },
        ValueKind::HipError => ArgValue::Status {
            code: low,
            name: status::hip_error(low),
        },
        ValueKind::HsaStatus => ArgValue::Status {
            code: low,
            name: status::hsa_status(low),
        },
        ValueKind::Float | ValueKind::Real(_) => ArgValue::Unrecorded,
    }
}

/// Number of bits in a word that an integer of `bytes` bytes does not use; 0 for an invalid size.
fn unused_bits(bytes: u8) -> u32 {
    match bytes {
        1..=8 => 64 - 8 * u32::from(bytes),
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
