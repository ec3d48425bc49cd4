//! Arguments and return values of a call, decoded by what the catalogue said of the function.

use std::{fmt, iter};

use gputrace_abi::{domain::Domain, values::RESULT_WORD};
use gputrace_capture::meta::{ArgSlot, Parameter, ValueKind};
use gputrace_catalog::{
    enums::enumerator,
    flags::{Flags, mask},
};

use crate::{
    collective,
    event::{Call, CallEnd, FunctionInfo},
    status,
    values::{Annotation, AnnotationValue, PointeeData},
};

/// A decoded value. `Display` gives the form for people; exporters with typed attributes match on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgValue<'a> {
    /// An address, a handle, or a word of unknown type: shown in hex.
    Hex(u64),
    /// A signed integer.
    Signed(i64),
    /// An unsigned integer.
    Unsigned(u64),
    /// A `bool`.
    Bool(bool),
    /// A `dim3`.
    Dim3 {
        /// First dimension.
        x: u32,
        /// Second.
        y: u32,
        /// Third.
        z: u32,
    },
    /// A `hipError_t` or `hsa_status_t`, and its name if it is known.
    Status {
        /// The number.
        code: u32,
        /// The enumerator in the public header.
        name: Option<&'static str>,
    },
    /// A choice or flags of the driver, shown by name.
    Named(gputrace_kfd::ioctl::Value),
    /// An enumerator that the catalogue knows.
    Enumerator {
        /// The number.
        code: i64,
        /// The name in the public header.
        name: &'static str,
    },
    /// Bits that have names.
    Flags(Flags),
    /// A floating-point number: the bits of an `f64`.
    Real(u64),
    /// A string.
    Text {
        /// Its beginning, or all of it.
        text: &'a str,
        /// Whether it goes on.
        cut: bool,
    },
    /// Where the function was to store something that is not known: it failed, has not returned, or
    /// what is there could not be read.
    Place(u64),
    /// The argument lies where records hold nothing (floating-point registers, far up the stack).
    Unrecorded,
    /// The argument lies on the stack, which could not be read at that moment.
    Unreadable,
}

impl fmt::Display for ArgValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Hex(value) => write!(f, "{value:#x}"),
            Self::Signed(value) => write!(f, "{value}"),
            Self::Unsigned(value) => write!(f, "{value}"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Dim3 { x, y, z } => write!(f, "{{{x},{y},{z}}}"),
            Self::Status {
                code,
                name: Some(name),
            } => write!(f, "{code} {name}"),
            Self::Status { code, name: None } => write!(f, "{code}"),
            Self::Named(value) => value.fmt(f),
            Self::Enumerator { name, .. } => f.write_str(name),
            Self::Flags(flags) => flags.fmt(f),
            Self::Real(bits) => write!(f, "{}", f64::from_bits(bits)),
            Self::Text { text, cut: false } => f.write_str(text),
            Self::Text { text, cut: true } => write!(f, "{text}…"),
            Self::Place(address) => write!(f, "(at {address:#x})"),
            Self::Unrecorded => f.write_str("(not recorded)"),
            Self::Unreadable => f.write_str("(not readable)"),
        }
    }
}

/// The C type of a word of which nothing is known.
const REGISTER: &str = "uint64_t";

/// Names of arguments of functions that the catalogue does not know.
const RAW_NAMES: [&str; gputrace_abi::REGISTER_ARGS] = ["arg0", "arg1", "arg2", "arg3", "arg4", "arg5"];

/// Names and values of a call's arguments, in order of declaration, then those of what the program has annotated it with.
/// A function without catalogue entry shows all six argument registers in hex as `arg0` … `arg5`: how many it has is not
/// known.
///
/// A string is shown as text, and a pointer through which the function has stored a value as that value.
pub fn decoded<'a>(info: &'a FunctionInfo, call: &'a Call) -> impl Iterator<Item = (&'a str, ArgValue<'a>)> {
    declared(info, call).chain(annotations(call))
}

/// As [`decoded`], each with its C type before it.
pub fn typed<'a>(
    info: &'a FunctionInfo,
    call: &'a Call,
) -> impl Iterator<Item = (&'a str, &'a str, ArgValue<'a>)> {
    let types = info.function.parameters.as_deref().unwrap_or_default();
    let types = types.iter().map(|parameter| parameter.c_type.as_str());
    let declared = iter::zip(types.chain(iter::repeat(REGISTER)), declared(info, call));
    let declared = declared.map(|(c_type, (name, value))| (c_type, name, value));
    declared.chain(annotations(call).map(|(name, value)| {
        let c_type = match value {
            ArgValue::Text { .. } => "const char *",
            ArgValue::Signed(_) => "int64_t",
            ArgValue::Real(_) => "double",
            ArgValue::Hex(_) => "void *",
            _ => REGISTER,
        };
        (c_type, name, value)
    }))
}

/// What the program has annotated a region with, which differs from call to call.
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

/// As [`decoded`], without annotations: the same names for each call of a function that is no request to the driver. Of
/// RCCL's collectives the bytes that they are about stand at the end, if the type of the elements is known.
pub fn declared<'a>(info: &'a FunctionInfo, call: &'a Call) -> impl Iterator<Item = (&'a str, ArgValue<'a>)> {
    let succeeded = succeeded(info, call);
    let parameters = info.function.parameters.as_deref();
    let request = call.request.as_deref();
    let known = parameters.unwrap_or_default();
    let registers = if parameters.is_none() && request.is_none() {
        &RAW_NAMES[..]
    } else {
        &[]
    };
    let fields = request.map_or(&[][..], |request| &request.arguments);
    let fields = fields.iter().map(|field| (field.name.as_ref(), field.value));
    let arguments = iter::chain(
        known
            .iter()
            .map(move |parameter| (parameter.name.as_str(), argument(parameter, call, succeeded))),
        iter::zip(registers, call.args).map(|(name, word)| (*name, ArgValue::Hex(word))),
    );
    let bytes = collective::bytes(info, call).map(|bytes| ("bytes", ArgValue::Unsigned(bytes)));
    arguments.chain(fields).chain(bytes)
}

/// The return value; `None` if the call did not return or returns nothing.
#[must_use]
pub fn returned<'a>(info: &FunctionInfo, call: &'a Call) -> Option<ArgValue<'a>> {
    match (call.how, info.function.returns) {
        (CallEnd::Returned(result), _) if call.request.is_some() => Some(status::errno(result.cast_signed())),
        (CallEnd::Returned(_), ValueKind::Void) => None,
        (CallEnd::Returned(word), ValueKind::CString) => {
            Some(text(call, RESULT_WORD).unwrap_or(ArgValue::Hex(word)))
        }
        (CallEnd::Returned(word), kind) => Some(match value(kind, word, None) {
            number @ (ArgValue::Signed(_) | ArgValue::Unsigned(_)) => {
                let signature = gputrace_catalog::signature(&info.function.name);
                signature.map_or(number, |signature| named(signature.returns.spelling, number))
            }
            other => other,
        }),
        _ => None,
    }
}

/// Whether what the call has stored means something: of one that failed it may be anything.
fn succeeded(info: &FunctionInfo, call: &Call) -> bool {
    match (call.how, info.function.returns) {
        (CallEnd::Returned(word), ValueKind::HipError | ValueKind::HsaStatus) => word as u32 == 0,
        // Their results are enumerations, too, of which 0 is success: `ncclResult_t`, `rocDecStatus`, `RocJpegStatus`.
        (CallEnd::Returned(word), ValueKind::Signed(4) | ValueKind::Unsigned(4))
            if matches!(
                info.domain,
                Some(Domain::Rccl | Domain::RocDecode | Domain::RocJpeg)
            ) =>
        {
            word as u32 == 0
        }
        (CallEnd::Returned(_), _) => true,
        _ => false,
    }
}

fn pointee(call: &Call, word: u8) -> Option<&PointeeData> {
    let found = call.pointees.iter().find(|pointee| pointee.word == word);
    found.map(|pointee| &pointee.data)
}

/// The string that a word points to, if it was read.
fn text(call: &Call, word: u8) -> Option<ArgValue<'_>> {
    match pointee(call, word)? {
        PointeeData::Text { text, cut } => Some(ArgValue::Text { text, cut: *cut }),
        PointeeData::Bytes(_) | PointeeData::Annotation(_) | PointeeData::Unreadable => None,
    }
}

/// What the function has stored where its argument, the `address` in a word, points to.
fn stored<'a>(parameter: &Parameter, kind: ValueKind, call: &'a Call, word: u8) -> Option<ArgValue<'a>> {
    if kind == ValueKind::CString {
        return text(call, word);
    }
    let PointeeData::Bytes(bytes) = pointee(call, word)? else {
        return None;
    };
    let mut words = bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        iter::zip(&mut word, chunk).for_each(|(to, from)| *to = *from);
        u64::from_le_bytes(word)
    });
    let first = words.next()?;
    Some(match kind {
        ValueKind::Real(4) => ArgValue::Real(f64::from(f32::from_bits(first as u32)).to_bits()),
        ValueKind::Real(_) => ArgValue::Real(first),
        kind => {
            let pointed = parameter.c_type.strip_suffix('*').unwrap_or_default().trim_end();
            meant(&parameter.values, pointed, value(kind, first, words.next()))
        }
    })
}

/// What a number means: a mask or an enumerator of `values`, if that is not empty, else of its C type.
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

/// The enumerator that a number of this C type stands for, if it is one.
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
            let stored = succeeded.then(|| stored(parameter, kind, call, number)).flatten();
            stored.unwrap_or(ArgValue::Place(first))
        }
        (kind, _) => meant(&parameter.values, &parameter.c_type, value(kind, first, word(1))),
    }
}

/// Reads `word` as `kind`; `next` is the word after it, for values that take two.
fn value(kind: ValueKind, word: u64, next: Option<u64>) -> ArgValue<'static> {
    // The System V ABI leaves the upper bits of a register undefined for types shorter than it.
    let low = word as u32;
    match kind {
        ValueKind::Void | ValueKind::Word | ValueKind::Pointer | ValueKind::CString | ValueKind::Struct => {
            ArgValue::Hex(word)
        }
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

/// Bits of a word that an integer of `bytes` bytes does not use; 0 for a size that makes no sense.
fn unused_bits(bytes: u8) -> u32 {
    match bytes {
        1..=8 => 64 - 8 * u32::from(bytes),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use gputrace_capture::meta::Function;

    use super::*;
    use crate::values::Pointee;

    fn call(args: [u64; 6], stack: [u64; 8]) -> Call {
        Call {
            function: 0,
            domain: 0,
            pid: 1,
            tid: 1,
            begin: 0,
            end: 1,
            correlation: 1,
            parent: 0,
            depth: 0,
            cpu: 0,
            how: CallEnd::Returned(0xffff_ffff_0000_0064),
            stack_readable: true,
            args,
            stack,
            request: None,
            range: 0,
            external: None,
            pointees: Vec::new(),
        }
    }

    fn info(parameters: Option<Vec<(ValueKind, ArgSlot)>>, returns: ValueKind) -> FunctionInfo {
        let parameters = parameters.map(|list| {
            list.into_iter()
                .enumerate()
                .map(|(index, (kind, at))| Parameter {
                    name: format!("p{index}"),
                    c_type: String::new(),
                    kind,
                    at,
                    ..Parameter::default()
                })
                .collect()
        });
        FunctionInfo {
            function: Function {
                parameters,
                returns,
                ..Function::default()
            },
            domain: None,
            library: String::new(),
            build_id: String::new(),
            range: None,
        }
    }

    #[test]
    fn each_kind_is_read_and_shown() {
        use ArgSlot::{Register, Stack, Unrecorded};
        let call = call(
            [
                0xffff_ffff_ffff_fffe,
                0x0000_0002_0000_0010,
                0xdead_beef_0000_0003,
                0x101,
                0,
                7,
            ],
            {
                let mut stack = [0; 8];
                stack[7] = 0x7fff_0000_1000;
                stack
            },
        );
        let cases = [
            (ValueKind::Signed(4), Register(0), "-2"),
            (ValueKind::Signed(1), Register(3), "1"),
            (ValueKind::Signed(8), Register(0), "-2"),
            (ValueKind::Signed(0), Register(0), "-2"),
            (ValueKind::Unsigned(1), Register(0), "254"),
            (ValueKind::Unsigned(4), Register(0), "4294967294"),
            (ValueKind::Unsigned(200), Register(5), "7"),
            (ValueKind::Bool, Register(3), "true"),
            (ValueKind::Bool, Register(4), "false"),
            (ValueKind::Dim3, Register(1), "{16,2,3}"),
            (ValueKind::Dim3, Register(5), "(not recorded)"),
            (
                ValueKind::HipError,
                Register(5),
                "7 hipErrorProfilerAlreadyStarted",
            ),
            (ValueKind::HsaStatus, Register(5), "7"),
            (ValueKind::Pointer, Stack(7), "0x7fff00001000"),
            (ValueKind::Pointer, Stack(8), "(not recorded)"),
            (ValueKind::Float, Register(0), "(not recorded)"),
            (ValueKind::CString, Unrecorded, "(not recorded)"),
            (ValueKind::Word, Register(200), "(not recorded)"),
        ];
        let info = info(
            Some(cases.iter().map(|(kind, at, _)| (*kind, *at)).collect()),
            ValueKind::HipError,
        );
        let shown: Vec<String> = decoded(&info, &call)
            .map(|(_, value)| value.to_string())
            .collect();
        assert_eq!(shown, cases.map(|(_, _, expected)| expected));
        assert_eq!(
            returned(&info, &call).unwrap().to_string(),
            "100 hipErrorNoDevice"
        );
    }

    #[test]
    fn pointers_are_followed_if_the_call_succeeded() {
        use ArgSlot::{Register, Stack};
        let data = |word, at_return, data| Pointee {
            word,
            at_return,
            data,
        };
        let bytes = |bytes: &[u8]| PointeeData::Bytes(bytes.to_vec());
        let text = |text: &str, cut| PointeeData::Text {
            text: text.to_owned(),
            cut,
        };
        let mut call = call([0x1000, 0x2000, 0x3000, 0, 0x5000, 3], [0x7000; 8]);
        call.how = CallEnd::Returned(0);
        call.pointees = vec![
            data(0, true, bytes(&0x7f12_3456_7000_u64.to_le_bytes())),
            data(1, false, text("vector_add", false)),
            data(2, true, bytes(&1.5_f32.to_le_bytes())),
            data(4, true, PointeeData::Unreadable),
            data(6, true, bytes(&2_u32.to_le_bytes())),
            data(7, false, text("cut", true)),
        ];
        let parameter = |c_type: &str, kind, at, stored| Parameter {
            name: "p".to_owned(),
            c_type: c_type.to_owned(),
            kind,
            at,
            stored,
            ..Parameter::default()
        };
        let pointer = |c_type, at, stored| parameter(c_type, ValueKind::Pointer, at, Some(stored));
        let mut info = info(None, ValueKind::HipError);
        info.function.parameters = Some(vec![
            pointer("void **", Register(0), ValueKind::Pointer),
            parameter("const char *", ValueKind::CString, Register(1), None),
            pointer("float *", Register(2), ValueKind::Real(4)),
            pointer("int *", Register(3), ValueKind::Signed(4)),
            pointer("int *", Register(4), ValueKind::Signed(4)),
            parameter("hipMemcpyKind", ValueKind::Unsigned(4), Register(5), None),
            pointer("hipMemcpyKind *", Stack(0), ValueKind::Unsigned(4)),
            parameter("const char *", ValueKind::CString, Stack(1), None),
            parameter("const char *", ValueKind::CString, Stack(2), None),
        ]);
        let shown = |call: &Call| -> Vec<String> {
            decoded(&info, call).map(|(_, value)| value.to_string()).collect()
        };
        assert_eq!(
            shown(&call),
            [
                "0x7f1234567000",
                "vector_add",
                "1.5",
                "0x0",
                "(at 0x5000)",
                "hipMemcpyDeviceToDevice",
                "hipMemcpyDeviceToHost",
                "cut…",
                "0x7000",
            ]
        );
        call.how = CallEnd::Returned(2);
        let failed = shown(&call);
        assert_eq!(failed[..2], ["(at 0x1000)", "vector_add"]);
        call.pointees
            .push(data(RESULT_WORD, true, text("hipSuccess", false)));
        info.function.returns = ValueKind::CString;
        assert_eq!(returned(&info, &call).unwrap().to_string(), "hipSuccess");
    }

    #[test]
    fn flags_are_shown_by_name() {
        let mut call = call([3, 0x1000, 5, 2, 0, 0], [0; 8]);
        call.how = CallEnd::Returned(0);
        call.pointees = vec![Pointee {
            word: 1,
            at_return: true,
            data: PointeeData::Bytes(0x4000_0100_u32.to_le_bytes().to_vec()),
        }];
        let flags = |values: &str, register, stored: Option<ValueKind>| Parameter {
            name: "flags".to_owned(),
            kind: stored.map_or(ValueKind::Unsigned(4), |_| ValueKind::Pointer),
            at: ArgSlot::Register(register),
            stored,
            values: values.to_owned(),
            ..Parameter::default()
        };
        let mut info = info(None, ValueKind::HipError);
        info.function.parameters = Some(vec![
            flags("hipHostMalloc", 0, None),
            flags("hipHostMalloc", 1, Some(ValueKind::Unsigned(4))),
            flags("hipStream", 4, None),
            flags("hsa_queue_type_t", 3, None),
            flags("hsa_queue_type_t", 2, None),
            flags("of a newer version", 0, None),
        ]);
        let shown: Vec<String> = decoded(&info, &call)
            .map(|(_, value)| value.to_string())
            .collect();
        assert_eq!(
            shown,
            [
                "hipHostMallocPortable|hipHostMallocMapped",
                "hipHostMallocCoherent|0x100",
                "hipStreamDefault",
                "HSA_QUEUE_TYPE_COOPERATIVE",
                "5",
                "3",
            ]
        );
    }

    #[test]
    fn an_unreadable_stack_is_not_shown_as_zero() {
        let mut call = call([1; 6], [0; 8]);
        call.stack_readable = false;
        let info = info(
            Some(vec![
                (ValueKind::Word, ArgSlot::Register(0)),
                (ValueKind::Word, ArgSlot::Stack(0)),
            ]),
            ValueKind::Void,
        );
        let values: Vec<ArgValue> = decoded(&info, &call).map(|(_, value)| value).collect();
        assert_eq!(values, [ArgValue::Hex(1), ArgValue::Unreadable]);
        assert_eq!(returned(&info, &call), None);
    }

    #[test]
    fn without_catalogue_entry_the_registers_are_shown() {
        let mut call = call([1, 2, 3, 4, 5, 6], [0; 8]);
        let unknown = info(None, ValueKind::Word);
        let shown: Vec<String> = decoded(&unknown, &call)
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        assert_eq!(
            shown,
            [
                "arg0=0x1", "arg1=0x2", "arg2=0x3", "arg3=0x4", "arg4=0x5", "arg5=0x6"
            ]
        );
        assert_eq!(decoded(&info(Some(vec![]), ValueKind::Void), &call).count(), 0);
        call.how = CallEnd::ThreadExited;
        assert_eq!(returned(&unknown, &call), None);
    }
}
