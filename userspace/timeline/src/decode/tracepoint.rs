//! Decodes records of the kernel's tracepoints into named fields.
//!
//! The layout comes from the capture, which took it from the recorded kernel. It is untrusted like
//! the records themselves: whatever it says, only bytes within the copied data are read.

use std::collections::HashMap;

use gputrace_abi::{
    domain::Domain,
    tracepoint::{LONG_TRACE_SIZE, LongTrace, SHORT_TRACE_SIZE, ShortTrace, TraceHead},
};
use gputrace_capture::{
    records::RawRecord,
    tracepoint::{TraceField, TraceFormat},
};
use zerocopy::FromBytes as _;

use crate::model::observation::{FieldValue, Observation, ObservedField, Whose};

/// Maximum number of array elements shown.
const LISTED: usize = 16;

/// Tracepoints that fire in interrupts, or in kernel threads that work on behalf of others: the
/// interrupted or running thread has nothing to do with them. (The record's own flags would tell,
/// but the kernel overwrites them with a pointer for BPF.)
const WITHOUT_THREAD: [&str; 6] = [
    "amdgpu_iv",
    "drm_run_job",
    "drm_sched_job_run",
    "drm_sched_process_job",
    "drm_sched_job_done",
    "dma_fence_signaled",
];

/// The parts of a record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Parts<'a> {
    pub(crate) head: TraceHead,
    data: &'a [u8],
}

/// Splits a record into its parts; `None` if it is malformed.
pub(crate) fn parts(raw: RawRecord<'_>) -> Option<Parts<'_>> {
    let (head, data): (_, &[u8]) = match raw.bytes.len() {
        SHORT_TRACE_SIZE => {
            let short = ShortTrace::ref_from_bytes(raw.bytes).ok()?;
            (short.head, &short.data)
        }
        LONG_TRACE_SIZE => {
            let long = LongTrace::ref_from_bytes(raw.bytes).ok()?;
            (long.head, &long.data)
        }
        _ => return None,
    };
    Some(Parts {
        head,
        data: data.get(..usize::try_from(head.size).ok()?)?,
    })
}

/// Layouts by the number of the tracepoint.
#[derive(Debug, Default)]
pub(crate) struct Formats(HashMap<u32, TraceFormat>);

impl Formats {
    pub(crate) fn learn(&mut self, format: TraceFormat) {
        self.0.insert(format.number, format);
    }

    /// The observation that a record describes.
    pub(crate) fn observe(&self, parts: &Parts<'_>) -> Observation {
        let head = &parts.head;
        let format = self.0.get(&head.tracepoint);
        let is_nobodys =
            format.is_some_and(|format| WITHOUT_THREAD.contains(&format.name.as_str()));
        let whose = if is_nobodys {
            Whose::default()
        } else {
            Whose {
                pid: head.pid,
                tid: head.tid,
                gpu_id: 0,
            }
        };
        let mut fields = Vec::new();
        for field in format.iter().flat_map(|format| &format.fields) {
            fields.push(ObservedField {
                name: field.name.clone().into(),
                value: value(field, parts.data),
            });
        }
        Observation {
            domain: Domain::Tracepoint.id(),
            name: match format {
                Some(format) => format.name.clone().into(),
                None => format!("tracepoint {}", head.tracepoint).into(),
            },
            whose,
            begin: head.time,
            end: head.time,
            is_open: false,
            fields,
        }
    }
}

/// The value of a field.
fn value(field: &TraceField, data: &[u8]) -> FieldValue {
    read(field, data).unwrap_or(FieldValue::Missing)
}

fn read(field: &TraceField, data: &[u8]) -> Option<FieldValue> {
    let (offset, size) = (field.offset as usize, field.size as usize);
    let own = data.get(offset..)?.get(..size)?;
    let kind = field.c_type.as_str();
    // `linux/trace_events.h`: the low half of the word is the offset, counted from the beginning of
    // the record or from the end of this word; the high half is the length in bytes.
    let place = |base: usize| {
        let word = number(own.get(..4)?)? as u32;
        let (at, length) = ((word & 0xffff) as usize, (word >> 16) as usize);
        let found = data.get(base.checked_add(at)?..)?;
        Some((found.get(..length).unwrap_or(found), found.len() < length))
    };
    let (content, element, is_cut) = if let Some(element) = kind.strip_prefix("__data_loc ") {
        let (content, is_cut) = place(0)?;
        (content, element, is_cut)
    } else if let Some(element) = kind.strip_prefix("__rel_loc ") {
        let (content, is_cut) = place(offset.checked_add(4)?)?;
        (content, element, is_cut)
    } else if field.count > 1 || kind.ends_with(']') {
        (own, kind, false)
    } else {
        return scalar(kind, field.signed, own);
    };
    let element = element.split('[').next().unwrap_or(element).trim();
    if element.ends_with("char") {
        let text = content.split(|byte| *byte == 0).next().unwrap_or_default();
        let mut text = String::from_utf8_lossy(text).into_owned();
        if is_cut && !content.contains(&0) {
            text.push('…');
        }
        return Some(FieldValue::Text(text.into()));
    }
    let width = width(element).or_else(|| size.checked_div(field.count as usize))?;
    if width == 0 {
        return None;
    }
    let shown: Vec<String> = content
        .chunks_exact(width)
        .take(LISTED)
        .filter_map(|bytes| scalar(element, field.signed, bytes))
        .map(|value| value.to_string())
        .collect();
    let more = if is_cut || content.len() / width > LISTED {
        " …"
    } else {
        ""
    };
    Some(FieldValue::Text(
        format!("{}{more}", shown.join(" ")).into(),
    ))
}

/// Size in bytes of a C type, by its name.
fn width(c_type: &str) -> Option<usize> {
    Some(
        match c_type
            .trim_start_matches("unsigned ")
            .trim_start_matches("const ")
        {
            "char" | "u8" | "s8" | "uint8_t" | "int8_t" | "__u8" | "bool" => 1,
            "short" | "u16" | "s16" | "uint16_t" | "int16_t" | "__u16" => 2,
            "int" | "u32" | "s32" | "uint32_t" | "int32_t" | "__u32" | "unsigned" | "pid_t" => 4,
            "long" | "long long" | "u64" | "s64" | "uint64_t" | "int64_t" | "__u64" | "size_t" => 8,
            other if other.ends_with('*') => 8,
            _ => return None,
        },
    )
}

fn scalar(c_type: &str, signed: bool, bytes: &[u8]) -> Option<FieldValue> {
    let raw = number(bytes)?;
    Some(if c_type.ends_with('*') {
        FieldValue::Hex(raw)
    } else if c_type == "bool" {
        FieldValue::Text(if raw == 0 { "false" } else { "true" }.into())
    } else if signed {
        let unused = 64 - 8 * bytes.len() as u32;
        FieldValue::Signed((raw << unused).cast_signed() >> unused)
    } else if ADDRESSES.iter().any(|name| c_type.contains(name)) {
        FieldValue::Hex(raw)
    } else {
        FieldValue::Number(raw)
    })
}

/// Substrings of names of address types.
const ADDRESSES: [&str; 2] = ["dma_addr_t", "phys_addr_t"];

/// A little-endian number of 1 to 8 bytes.
fn number(bytes: &[u8]) -> Option<u64> {
    let mut word = [0; 8];
    let to = word.get_mut(..bytes.len())?;
    to.copy_from_slice(bytes);
    (!bytes.is_empty()).then(|| u64::from_le_bytes(word))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn field(
        name: &str,
        c_type: &str,
        offset: u32,
        size: u32,
        signed: bool,
        count: u32,
    ) -> TraceField {
        TraceField {
            name: name.to_owned(),
            c_type: c_type.to_owned(),
            offset,
            size,
            signed,
            count,
        }
    }

    #[test]
    fn kinds_of_fields_are_read() {
        let mut data = vec![0; 64];
        data[8..16].copy_from_slice(&0xffff_8000_1234_5678u64.to_le_bytes());
        data[16..24].copy_from_slice(&4096u64.to_le_bytes());
        data[24..28].copy_from_slice(&(-1i32).to_le_bytes());
        // Text of 7 bytes at 40.
        data[28..32].copy_from_slice(&(7u32 << 16 | 40).to_le_bytes());
        data[32..36].copy_from_slice(b"gfx\0");
        data[40..47].copy_from_slice(b"sdma0\0\0");
        data[48..52].copy_from_slice(&5u32.to_le_bytes());
        data[52..56].copy_from_slice(&6u32.to_le_bytes());
        // Four bytes, at offset 8 from the end of this word: at 60 + 4 - 16.
        for (field, expected) in [
            (
                field("bo", "struct amdgpu_bo *", 8, 8, false, 1),
                "0xffff800012345678",
            ),
            (field("bo_size", "u64", 16, 8, false, 1), "4096"),
            (field("new_placement", "int", 24, 4, true, 1), "-1"),
            (field("ring", "__data_loc char[]", 28, 4, false, 1), "sdma0"),
            (field("comm", "char[4]", 32, 4, false, 4), "gfx"),
            (field("src_data", "u32[2]", 48, 8, false, 2), "5 6"),
            (field("beyond", "u64", 60, 8, false, 1), "(not recorded)"),
            (
                field("empty", "struct nothing", 0, 0, false, 1),
                "(not recorded)",
            ),
        ] {
            assert_eq!(value(&field, &data).to_string(), expected, "{field:?}");
        }
        data[28..32].copy_from_slice(&(70u32 << 16 | 62).to_le_bytes());
        data[62..64].copy_from_slice(b"sd");
        assert_eq!(
            value(&field("ring", "__data_loc char[]", 28, 4, false, 1), &data).to_string(),
            "sd…"
        );
        data[28..32].copy_from_slice(&(2u32 << 16 | 8).to_le_bytes());
        data[40..42].copy_from_slice(b"ok");
        assert_eq!(
            value(&field("dev", "__rel_loc char[]", 28, 4, false, 1), &data).to_string(),
            "ok"
        );
    }

    proptest! {
        #[test]
        fn no_layout_and_no_bytes_panic(
            data in proptest::collection::vec(any::<u8>(), 0..100),
            kind in prop_oneof!["__data_loc char\\[\\]", "__rel_loc u64\\[\\]", "u32\\[4\\]", "char\\[[0-9]\\]", "bool", ".*"],
            offset in 0u32..120,
            size in prop_oneof![0u32..20, any::<u32>()],
            signed: bool,
            count: u32,
        ) {
            let shown = value(&field("x", &kind, offset, size, signed, count), &data).to_string();
            prop_assert!(shown.len() < 4000);
        }
    }
}
