//! Arguments and return values of a call, decoded by what the catalogue said of the function.

use std::{fmt, iter};

use gputrace_capture::meta::{ArgSlot, Parameter, ValueKind};

use crate::{
    event::{Call, CallEnd, FunctionInfo},
    status,
};

/// A decoded value. `Display` gives the form for people; exporters with typed attributes match on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgValue {
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
    /// The argument lies where records hold nothing (floating-point registers, far up the stack).
    Unrecorded,
    /// The argument lies on the stack, which could not be read at that moment.
    Unreadable,
}

impl fmt::Display for ArgValue {
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
            Self::Unrecorded => f.write_str("(not recorded)"),
            Self::Unreadable => f.write_str("(not readable)"),
        }
    }
}

/// Names of arguments of functions that the catalogue does not know.
const RAW_NAMES: [&str; gputrace_abi::REGISTER_ARGS] = ["arg0", "arg1", "arg2", "arg3", "arg4", "arg5"];

/// Names and values of a call's arguments, in order of declaration. A function without catalogue entry
/// shows all six argument registers in hex as `arg0` … `arg5`: how many it has is not known.
pub fn decoded<'a>(info: &'a FunctionInfo, call: &'a Call) -> impl Iterator<Item = (&'a str, ArgValue)> {
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
            .map(|parameter| (parameter.name.as_str(), argument(parameter, call))),
        iter::zip(registers, call.args).map(|(name, word)| (*name, ArgValue::Hex(word))),
    );
    arguments.chain(fields)
}

/// The return value; `None` if the call did not return or returns nothing.
#[must_use]
pub fn returned(info: &FunctionInfo, call: &Call) -> Option<ArgValue> {
    match (call.how, info.function.returns) {
        (CallEnd::Returned(result), _) if call.request.is_some() => Some(status::errno(result.cast_signed())),
        (CallEnd::Returned(_), ValueKind::Void) => None,
        (CallEnd::Returned(word), kind) => Some(value(kind, word, None)),
        _ => None,
    }
}

fn argument(parameter: &Parameter, call: &Call) -> ArgValue {
    let words: (&[u64], u8) = match parameter.at {
        ArgSlot::Register(first) => (&call.args, first),
        ArgSlot::Stack(_) if !call.stack_readable => return ArgValue::Unreadable,
        ArgSlot::Stack(first) => (&call.stack, first),
        ArgSlot::Unrecorded => return ArgValue::Unrecorded,
    };
    let word = |index: usize| words.0.get(usize::from(words.1) + index).copied();
    match word(0) {
        Some(first) => value(parameter.kind, first, word(1)),
        None => ArgValue::Unrecorded,
    }
}

/// Reads `word` as `kind`; `next` is the word after it, for values that take two.
fn value(kind: ValueKind, word: u64, next: Option<u64>) -> ArgValue {
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
        ValueKind::Float => ArgValue::Unrecorded,
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
