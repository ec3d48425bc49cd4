//! Turns requests to the driver into calls, with names and arguments from `gputrace-kfd`'s tables.
//!
//! A request becomes a [`Call`] in the domain [`Domain::KfdIoctl`]. Its function is synthetic: one
//! per request number, named as in `linux/kfd_ioctl.h`. Its arguments are the fields of its
//! structure. Fields that the process fills in have their value at entry, fields that the driver
//! fills in their value at return, and fields that both fill in appear twice.

use gputrace_abi::{
    domain::Domain,
    kfd::{self, LONG_DATA, LongIoctl, SHORT_DATA, ShortIoctl, ioctl_flags, nr, size_of_request},
};
use gputrace_capture::{
    meta::{Function, ValueKind},
    records::RawRecord,
};
use gputrace_kfd::ioctl::{self, Flow, Kind, Value};
use zerocopy::FromBytes as _;

use crate::model::{
    event::{Call, CallEnd, FunctionInfo},
    item::{KfdQueue, Ring},
    request::{Field, Request},
    value::ArgValue,
};

/// Base of the ids of the synthetic functions, above the ids of every library's functions. The
/// request's number is added to it.
const FUNCTIONS: u32 = 0xffff_ff00;

/// Maximum number of words shown for a structure of unknown layout.
const UNKNOWN_WORDS: usize = 8;

/// The synthetic function for requests of this number.
pub(crate) fn function(nr: u8) -> FunctionInfo {
    FunctionInfo {
        function: Function {
            id: FUNCTIONS | u32::from(nr),
            name: match ioctl::by_number(nr) {
                Some(known) => format!("AMDKFD_IOC_{}", known.name),
                None => format!("KFD ioctl {nr:#04x}"),
            },
            domain: Domain::KfdIoctl.id(),
            parameters: Some(Vec::new()),
            returns: ValueKind::Signed(8),
            ..Function::default()
        },
        domain: Some(Domain::KfdIoctl),
        library: "/dev/kfd".to_owned(),
        build_id: String::new(),
        range: None,
    }
}

/// The parts of a record.
#[derive(Debug, PartialEq)]
pub(crate) struct Parts<'a> {
    pub(crate) ioctl: kfd::Ioctl,
    before: &'a [u8],
    after: &'a [u8],
}

/// Splits a record into its parts; `None` if it is malformed.
pub(crate) fn parts(raw: RawRecord<'_>) -> Option<Parts<'_>> {
    let (ioctl, before, after): (_, &[u8], &[u8]) = match raw.bytes.len() {
        kfd::SHORT_IOCTL_SIZE => {
            let short = ShortIoctl::ref_from_bytes(raw.bytes).ok()?;
            (short.ioctl, &short.before, &short.after)
        }
        kfd::LONG_IOCTL_SIZE => {
            let long = LongIoctl::ref_from_bytes(raw.bytes).ok()?;
            (long.ioctl, &long.before, &long.after)
        }
        _ => return None,
    };
    let held = usize::from(ioctl.data);
    (ioctl.correlation != 0).then_some(Parts {
        ioctl,
        before: before.get(..held)?,
        after: after.get(..held)?,
    })
}

/// Number of `AMDKFD_IOC_CREATE_QUEUE`, and bytes from the start of its structure in
/// `linux/kfd_ioctl.h`.
const CREATE_QUEUE: u8 = 0x02;
const RING_BASE_ADDRESS: usize = 0;
const RING_GPU_ID: usize = 36;
const RING_QUEUE_ID: usize = 52;

/// The queue that a request created, if it created one.
pub(crate) fn created_queue(parts: &Parts<'_>) -> Option<Ring> {
    let ioctl = &parts.ioctl;
    let made = ioctl.request as u8 == CREATE_QUEUE
        && !ioctl.header.is_unfinished()
        && ioctl.result == 0
        && ioctl.flags & ioctl_flags::AFTER_UNREADABLE == 0;
    let number = |at: usize| {
        let bytes = parts.after.get(at..)?.first_chunk()?;
        Some(u32::from_le_bytes(*bytes))
    };
    let address = parts.after.get(RING_BASE_ADDRESS..)?.first_chunk()?;
    made.then_some(Ring {
        time: ioctl.end,
        pid: ioctl.pid,
        address: u64::from_le_bytes(*address),
        queue: KfdQueue {
            id: number(RING_QUEUE_ID)?,
            gpu_id: number(RING_GPU_ID)?,
        },
    })
}

/// The call of a record.
pub(crate) fn call(parts: &Parts<'_>) -> Call {
    let ioctl = &parts.ioctl;
    let finished = !ioctl.header.is_unfinished();
    Call {
        function: FUNCTIONS | ioctl.request & 0xff,
        domain: ioctl.header.domain,
        pid: ioctl.pid,
        tid: ioctl.tid,
        begin: ioctl.begin,
        end: ioctl.end.max(ioctl.begin),
        correlation: ioctl.correlation,
        parent: ioctl.parent,
        depth: ioctl.depth,
        cpu: ioctl.header.cpu,
        how: if finished {
            CallEnd::Returned(ioctl.result.cast_unsigned())
        } else {
            CallEnd::RecordingStopped
        },
        stack_readable: true,
        args: [0; gputrace_abi::REGISTER_ARGS],
        stack: [0; gputrace_abi::STACK_ARGS],
        request: Some(Box::new(request(parts, finished))),
        range: 0,
        external: None,
        stream_id: 0,
        stack_number: None,
        pointees: Vec::new(),
    }
}

fn request(parts: &Parts<'_>, finished: bool) -> Request {
    let ioctl = &parts.ioctl;
    let readable = |flag: u16, bytes| (ioctl.flags & flag == 0).then_some(bytes);
    let before = readable(ioctl_flags::BEFORE_UNREADABLE, parts.before);
    let after = readable(ioctl_flags::AFTER_UNREADABLE, parts.after).filter(|_| finished);
    let mut arguments = vec![Field {
        name: "request".into(),
        value: ArgValue::Hex(ioctl.request.into()),
    }];
    fields(ioctl.request, before, after, &mut arguments);
    list(ioctl, &mut arguments);
    let size = size_of_request(ioctl.request);
    if size > u32::from(ioctl.data) {
        arguments.push(Field {
            name: "bytes_cut".into(),
            value: ArgValue::Unsigned(u64::from(size - u32::from(ioctl.data))),
        });
    }
    Request {
        request: ioctl.request,
        arguments,
    }
}

/// Appends the fields of a structure; the state at entry or at return may be missing.
fn fields(request: u32, before: Option<&[u8]>, after: Option<&[u8]>, arguments: &mut Vec<Field>) {
    let (Some(any), false) = (before.or(after), before.is_none() && after.is_none()) else {
        if size_of_request(request) > 0 {
            arguments.push(Field {
                name: "structure".into(),
                value: ArgValue::Unreadable,
            });
        }
        return;
    };
    let known = ioctl::by_number(request as u8).filter(|known| !known.fields.is_empty());
    if known.is_none() {
        words("in", before, arguments);
        words("out", after, arguments);
        return;
    }
    // Which fields exist depends on what the process put into some of them.
    let at_begin = before.map(|bytes| ioctl::decode(request, bytes));
    let at_end = after.map(|bytes| ioctl::decode(request, bytes));
    let shape = ioctl::decode(request, any);
    for argument in shape.arguments {
        let of = |state: &Option<ioctl::Request>| {
            state
                .as_ref()
                .and_then(|state| {
                    state
                        .arguments
                        .iter()
                        .find(|other| other.name == argument.name)
                })
                .map(|found| value(found.value))
        };
        let unreadable = |state: Option<ArgValue<'static>>| state.unwrap_or(ArgValue::Unreadable);
        match argument.field.flow {
            Flow::In => arguments.push(Field {
                value: unreadable(of(&at_begin)),
                name: argument.name,
            }),
            // At entry, a field that the driver fills in means nothing.
            Flow::Out if at_end.is_none() => {}
            Flow::Out => arguments.push(Field {
                value: unreadable(of(&at_end)),
                name: argument.name,
            }),
            Flow::InOut => {
                let out = of(&at_end);
                arguments.push(Field {
                    value: unreadable(of(&at_begin)),
                    name: argument.name.clone(),
                });
                if let Some(out) = out {
                    arguments.push(Field {
                        name: format!("{}.out", argument.name).into(),
                        value: out,
                    });
                }
            }
        }
    }
}

/// Appends the words of a structure of unknown layout.
fn words(prefix: &str, bytes: Option<&[u8]>, arguments: &mut Vec<Field>) {
    for (index, bytes) in bytes
        .unwrap_or_default()
        .chunks(8)
        .take(UNKNOWN_WORDS)
        .enumerate()
    {
        let mut word = [0; 8];
        for (to, from) in word.iter_mut().zip(bytes) {
            *to = *from;
        }
        arguments.push(Field {
            name: format!("{prefix}[{index}]").into(),
            value: ArgValue::Hex(u64::from_le_bytes(word)),
        });
    }
}

/// Appends the list that a structure points to.
fn list(ioctl: &kfd::Ioctl, arguments: &mut Vec<Field>) {
    let (name, is_gpu) = match ioctl.request as u8 {
        nr::WAIT_EVENTS => ("event_id", false),
        nr::MAP_MEMORY_TO_GPU | nr::UNMAP_MEMORY_FROM_GPU => ("device_id", true),
        _ => return,
    };
    let kind = if is_gpu { Kind::Gpu } else { Kind::Number };
    for (index, raw) in ioctl
        .list
        .iter()
        .take(usize::from(ioctl.listed))
        .enumerate()
    {
        arguments.push(Field {
            name: format!("{name}[{index}]").into(),
            value: value(Value {
                kind,
                raw: (*raw).into(),
            }),
        });
    }
    if ioctl.flags & ioctl_flags::LIST_UNREADABLE != 0 {
        arguments.push(Field {
            name: format!("{name}[{}]", ioctl.listed).into(),
            value: ArgValue::Unreadable,
        });
    }
}

/// Converts a field's value to that of a call's argument.
fn value(value: Value) -> ArgValue<'static> {
    let raw = value.raw;
    match value.kind {
        Kind::Signed | Kind::Descriptor => ArgValue::Signed(match u32::try_from(raw) {
            Ok(low) => low.cast_signed().into(),
            Err(_) => raw.cast_signed(),
        }),
        Kind::Hex | Kind::Address => ArgValue::Hex(raw),
        Kind::Flag if raw < 2 => ArgValue::Bool(raw == 1),
        Kind::Named(_) | Kind::Flags(_) => ArgValue::Named(value),
        Kind::Milliseconds if raw == u64::from(u32::MAX) => ArgValue::Named(value),
        _ => ArgValue::Unsigned(raw),
    }
}

const _: () = assert!(SHORT_DATA < LONG_DATA);

#[cfg(test)]
mod tests {
    use gputrace_abi::record::{RecordHeader, kind};
    use gputrace_capture::records;
    use proptest::prelude::*;
    use zerocopy::{FromZeros as _, IntoBytes as _};

    use super::*;

    fn short(request: u32, before: &[u8], after: &[u8]) -> ShortIoctl {
        let mut record = ShortIoctl::new_zeroed();
        record.ioctl.header = RecordHeader {
            size: kfd::SHORT_IOCTL_SIZE as u16,
            kind: kind::IOCTL,
            domain: Domain::KfdIoctl.id(),
            cpu: 1,
        };
        record.ioctl.correlation = 7;
        record.ioctl.request = request;
        record.ioctl.data = before.len() as u16;
        record.before[..before.len()].copy_from_slice(before);
        record.after[..after.len()].copy_from_slice(after);
        record
    }

    fn shown(bytes: &[u8]) -> String {
        let raw = records::split(bytes).next().unwrap().unwrap();
        let call = call(&parts(raw).unwrap());
        let name = function(call.function as u8).function.name;
        let request = call.request.unwrap();
        let arguments: Vec<String> = request
            .arguments
            .iter()
            .map(|field| format!("{}={}", field.name, field.value))
            .collect();
        format!("{name} {}", arguments.join(" "))
    }

    #[test]
    fn inputs_are_from_before_and_outputs_from_after() {
        let mut before = [0; 40];
        before[..8].copy_from_slice(&0x7f00_0000_0000u64.to_le_bytes());
        before[8..16].copy_from_slice(&8192u64.to_le_bytes());
        before[16..24].copy_from_slice(&99u64.to_le_bytes());
        before[24..32].copy_from_slice(&0x1000u64.to_le_bytes());
        before[32..36].copy_from_slice(&51234u32.to_le_bytes());
        before[36..40].copy_from_slice(&0x8000_0001u32.to_le_bytes());
        let mut after = before;
        after[8..16].copy_from_slice(&1u64.to_le_bytes());
        after[16..24].copy_from_slice(&0xc822_0000_0001u64.to_le_bytes());
        after[24..32].copy_from_slice(&0x2000u64.to_le_bytes());
        let record = short(0xc028_4b16, &before, &after);
        assert_eq!(
            shown(record.as_bytes()),
            "AMDKFD_IOC_ALLOC_MEMORY_OF_GPU request=0xc0284b16 va_addr=0x7f0000000000 size=8192 \
             handle=0xc82200000001 mmap_offset=0x1000 mmap_offset.out=0x2000 gpu_id=51234 flags=VRAM|WRITABLE"
        );
    }

    #[test]
    fn open_requests_have_no_outputs() {
        let mut record = short(0xc018_4b0c, &[0xff; 24], &[0; 24]);
        record.ioctl.header.kind = kind::IOCTL_UNFINISHED;
        record.ioctl.listed = 1;
        record.ioctl.list[0] = 5;
        let shown = shown(record.as_bytes());
        assert!(shown.starts_with("AMDKFD_IOC_WAIT_EVENTS "), "{shown}");
        assert!(
            shown.contains("timeout=forever") && shown.contains("event_id[0]=5"),
            "{shown}"
        );
        assert!(!shown.contains("wait_result"), "{shown}");
    }

    #[test]
    fn unknown_numbers_show_words_and_unreadable_memory_is_said() {
        let mut record = short(0xc010_4b99, &[1; 16], &[2; 16]);
        assert_eq!(
            shown(record.as_bytes()),
            "KFD ioctl 0x99 request=0xc0104b99 in[0]=0x101010101010101 in[1]=0x101010101010101 \
             out[0]=0x202020202020202 out[1]=0x202020202020202"
        );
        record.ioctl.request = 0xc008_4b03;
        record.ioctl.data = 8;
        record.ioctl.flags = ioctl_flags::BEFORE_UNREADABLE;
        assert_eq!(
            shown(record.as_bytes()),
            "AMDKFD_IOC_DESTROY_QUEUE request=0xc0084b03 queue_id=(not readable)"
        );
        record.ioctl.flags |= ioctl_flags::AFTER_UNREADABLE;
        assert_eq!(
            shown(record.as_bytes()),
            "AMDKFD_IOC_DESTROY_QUEUE request=0xc0084b03 structure=(not readable)"
        );
    }

    #[test]
    fn long_structures_are_cut_and_say_so() {
        let mut record = LongIoctl::new_zeroed();
        record.ioctl = short(0xc7d0_4b20, &[], &[]).ioctl;
        record.ioctl.header.size = kfd::LONG_IOCTL_SIZE as u16;
        record.ioctl.data = LONG_DATA as u16;
        record.before[20] = 200;
        let shown = shown(record.as_bytes());
        assert!(shown.starts_with("AMDKFD_IOC_SVM "), "{shown}");
        assert!(shown.ends_with("bytes_cut=1584"), "{shown}");
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), kfd::SHORT_IOCTL_SIZE), request: u32, data in 0u16..60) {
            let mut record = ShortIoctl::read_from_bytes(&bytes).unwrap();
            record.ioctl.header = short(0, &[], &[]).ioctl.header;
            record.ioctl.request = request;
            record.ioctl.data = data;
            let raw = records::split(record.as_bytes()).next().unwrap().unwrap();
            if let Some(parts) = parts(raw) {
                prop_assert!(call(&parts).end >= record.ioctl.begin);
            }
        }
    }
}
