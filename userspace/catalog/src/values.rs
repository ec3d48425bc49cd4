//! Values that are read at a call, in addition to its registers.

use gputrace_abi::{
    REGISTER_ARGS,
    values::{MOST_BYTES, READS, RESULT_WORD, Read, ReadPlan, what},
};
use gputrace_capture::meta::{ArgSlot, Parameter, ValueKind};

use crate::{
    Signature,
    class::Class,
    hip_memory::{HipAllocation, hip_allocation},
    placement::{Placement, placement},
};

/// Functions of which nothing is read although they store values: a program calls this one for each
/// kernel launch, and what it stores was passed to its counterpart.
const NOT_READ: &[&str] = &["__hipPopCallConfiguration"];

/// Functions that store several consecutive pointers: the parameter, and the one with their number.
const POINTERS: &[(&str, &str, &str)] = &[("ncclCommInitAll", "comm", "ndev")];

/// Types of parameters that point to annotations; the next parameter is their number.
const ANNOTATIONS: &[&str] = &["rocprofsys_annotation_t *", "omnitrace_annotation_t *"];

/// The strings, results and structures to read at a function's calls, up to [`READS`] of them.
/// `parameters` are the signature's, as the capture stores them.
#[must_use]
pub fn read_plan(signature: &Signature<'_>, parameters: &[Parameter]) -> ReadPlan {
    let mut plan = ReadPlan::default();
    if NOT_READ.contains(&signature.name) {
        return plan;
    }
    let place = placement(signature.name).and_then(Placement::read);
    let allocated = hip_allocation(signature.name).and_then(HipAllocation::structure);
    let arguments = parameters
        .iter()
        .enumerate()
        .filter_map(|(place, parameter)| {
            let word = word(parameter.at)?;
            annotations(word, parameter, parameters.get(place + 1))
                .or_else(|| pointers(signature.name, word, parameter, parameters))
                .or_else(|| structure(word, parameter, allocated))
                .or_else(|| read(word, parameter.kind, parameter.stored))
        });
    let is_shown = |read: &Read| {
        parameters
            .iter()
            .any(|parameter| !parameter.fields.is_empty() && word(parameter.at) == Some(read.word))
    };
    let structure = allocated.filter(|read| !is_shown(read));
    let result = (signature.returns.class == Class::CString).then_some(Read {
        word: RESULT_WORD,
        what: what::STRING_AT_RETURN,
        bytes: 0,
    });
    for (place, read) in plan.reads.iter_mut().zip(
        place
            .into_iter()
            .chain(structure)
            .chain(arguments)
            .chain(result)
            .take(READS),
    ) {
        *place = read;
    }
    plan
}

/// Index of the word with an argument, as programs count them; `None` if records do not contain it.
#[must_use]
pub fn word(at: ArgSlot) -> Option<u8> {
    match at {
        ArgSlot::Register(word) => Some(word),
        ArgSlot::Stack(word) => Some(REGISTER_ARGS as u8 + word),
        ArgSlot::Unrecorded => None,
    }
}

/// How to read the annotations of a region; `None` if the parameter is something else. `count` is
/// the next parameter.
fn annotations(word: u8, parameter: &Parameter, count: Option<&Parameter>) -> Option<Read> {
    if !ANNOTATIONS.contains(&parameter.c_type.as_str()) {
        return None;
    }
    let ArgSlot::Register(count) = count?.at else {
        return None;
    };
    Some(Read {
        word,
        what: what::ANNOTATIONS,
        bytes: count.into(),
    })
}

/// How to read several consecutive pointers.
fn pointers(function: &str, pointer: u8, parameter: &Parameter, all: &[Parameter]) -> Option<Read> {
    let (_, _, count) = POINTERS
        .iter()
        .find(|(known, name, _)| (*known, *name) == (function, parameter.name.as_str()))?;
    let count = all.iter().find(|parameter| parameter.name == *count)?;
    let ArgSlot::Register(count) = count.at else {
        return None;
    };
    Some(Read {
        word: pointer,
        what: what::POINTERS_AT_RETURN,
        bytes: count.into(),
    })
}

/// How to read the structure that the parameter points to, as far as its fields are shown. It is
/// read when the function returns if the function stores it, or if it is `allocated`, which is
/// examined at that time.
fn structure(word: u8, parameter: &Parameter, allocated: Option<Read>) -> Option<Read> {
    let end = parameter
        .fields
        .iter()
        .map(|field| field.offset.saturating_add(field.bytes))
        .max();
    let end = end
        .filter(|_| parameter.kind == ValueKind::Pointer)?
        .min(MOST_BYTES as u16);
    let (what, bytes) = match allocated.filter(|read| read.word == word) {
        Some(read) => (read.what, end.max(read.bytes)),
        None if parameter.c_type.starts_with("const ") => (what::BYTES, end),
        None => (what::BYTES_AT_RETURN, end),
    };
    Some(Read { word, what, bytes })
}

fn read(word: u8, kind: ValueKind, stored: Option<ValueKind>) -> Option<Read> {
    let (what, bytes) = match (kind, stored) {
        (ValueKind::CString, _) => (what::STRING, 0),
        (ValueKind::Pointer, Some(ValueKind::CString)) => (what::STRING_AT_RETURN, 0),
        (ValueKind::Pointer, Some(stored)) => (what::BYTES_AT_RETURN, size(stored)?),
        _ => return None,
    };
    Some(Read { word, what, bytes })
}

/// Size of a value in memory, bytes; `None` for kinds that are not read.
fn size(kind: ValueKind) -> Option<u16> {
    match kind {
        ValueKind::Pointer | ValueKind::Word => Some(8),
        ValueKind::Signed(bytes) | ValueKind::Unsigned(bytes) | ValueKind::Real(bytes) => {
            Some(u16::from(bytes))
        }
        ValueKind::Bool => Some(1),
        ValueKind::HipError | ValueKind::HsaStatus => Some(4),
        ValueKind::Dim3 => Some(12),
        ValueKind::Void | ValueKind::CString | ValueKind::Float | ValueKind::Struct => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{signature, signatures};

    fn reads(name: &str) -> Vec<(u8, u8, u16)> {
        let signature = signature(name).expect("in the catalogue");
        let plan = read_plan(signature, &signature.parameters_in(Some(6)));
        let used = plan.reads.iter().filter(|read| read.what != what::NOTHING);
        used.map(|read| (read.word, read.what, read.bytes))
            .collect()
    }

    #[test]
    fn strings_and_results_are_read() {
        assert_eq!(reads("hipMalloc"), [(0, what::BYTES_AT_RETURN, 8)]);
        assert_eq!(
            reads("hsa_amd_memory_pool_allocate"),
            [(0, what::AGENT, 31), (3, what::BYTES_AT_RETURN, 8)]
        );
        assert_eq!(reads("hipGetDeviceCount"), [(0, what::BYTES_AT_RETURN, 4)]);
        assert_eq!(
            reads("hipEventElapsedTime"),
            [(0, what::BYTES_AT_RETURN, 4)]
        );
        // The arguments are module and function, then the name.
        assert_eq!(
            reads("hipModuleGetFunction"),
            [(0, what::BYTES_AT_RETURN, 8), (2, what::STRING, 0)]
        );
        assert_eq!(
            reads("rocprofsys_user_push_annotated_region"),
            [(0, what::STRING, 0), (1, what::ANNOTATIONS, 2)]
        );
        assert_eq!(reads("ncclCommInitAll"), [(0, what::POINTERS_AT_RETURN, 1)]);
        assert_eq!(reads("hipDeviceGetName"), [(0, what::STRING_AT_RETURN, 0)]);
        assert_eq!(
            reads("hipGetErrorName"),
            [(RESULT_WORD, what::STRING_AT_RETURN, 0)]
        );
        // The size of the memory is computed from the array's format.
        assert_eq!(
            reads("hipMallocArray"),
            [
                (0, what::BYTES_AT_RETURN, 8),
                (1, what::BYTES_AT_RETURN, 20)
            ]
        );
        assert_eq!(reads("hipMalloc3D"), [(0, what::BYTES_AT_RETURN, 32)]);
        assert_eq!(reads("hipMemcpy3DAsync"), [(0, what::BYTES, 156)]);
        assert_eq!(
            reads("hipPointerGetAttributes"),
            [(0, what::BYTES_AT_RETURN, 28)]
        );
        // Two pointers with pitch, and three positions.
        assert_eq!(reads("hsa_amd_memory_async_copy_rect").len(), 5);
        for nothing in [
            "hipFree",
            "hipMemcpy",
            "hipLaunchKernel",
            "__hipPopCallConfiguration",
            "hsa_init",
        ] {
            assert_eq!(reads(nothing), [], "{nothing}");
        }
    }

    #[test]
    fn plans_are_within_their_bounds() {
        let most = signatures()
            .map(|signature| reads(signature.name).len())
            .max();
        assert!(most <= Some(READS));
        for signature in signatures() {
            for read in read_plan(signature, &signature.parameters_in(Some(6))).reads {
                assert!(read.word <= RESULT_WORD && usize::from(read.bytes) <= MOST_BYTES);
            }
        }
    }
}
