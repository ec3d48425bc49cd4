//! Encodes the protobuf packets of which a trace holds millions.
//!
//! A slice has about ten annotations, each a nested message. Building it from generated structures
//! takes some thirty heap allocations; writing it straight into a reused buffer takes none. Field
//! numbers are those of `protos/perfetto/trace/**.proto`. A test reads the packets with Perfetto's
//! own code (`tests/official_reader.rs`), so a wrong field number is noticed.

/// Field numbers of `Trace`.
pub(crate) mod trace {
    pub(crate) const PACKET: u32 = 1;
}

/// Field numbers of `TracePacket`.
pub(crate) mod packet {
    pub(crate) const CLOCK_SNAPSHOT: u32 = 6;
    pub(crate) const TIMESTAMP: u32 = 8;
    pub(crate) const TRUSTED_PACKET_SEQUENCE_ID: u32 = 10;
    pub(crate) const TRACK_EVENT: u32 = 11;
    pub(crate) const INTERNED_DATA: u32 = 12;
    pub(crate) const SEQUENCE_FLAGS: u32 = 13;
    pub(crate) const SYSTEM_INFO: u32 = 45;
    pub(crate) const COMPRESSED_PACKETS: u32 = 50;
    pub(crate) const GPU_RENDER_STAGE_EVENT: u32 = 53;
    pub(crate) const TRACE_PACKET_DEFAULTS: u32 = 59;
    pub(crate) const TRACK_DESCRIPTOR: u32 = 60;
    pub(crate) const FIRST_PACKET_ON_SEQUENCE: u32 = 87;

    /// Values of `SEQUENCE_FLAGS`: the interned strings are reset, or needed.
    pub(crate) const INCREMENTAL_STATE_CLEARED: u64 = 1;
    pub(crate) const NEEDS_INCREMENTAL_STATE: u64 = 2;
}

/// Field numbers of `TracePacketDefaults`.
pub(crate) mod packet_defaults {
    pub(crate) const TIMESTAMP_CLOCK_ID: u32 = 58;
}

/// Field numbers of `TrackDescriptor`.
pub(crate) mod track_descriptor {
    pub(crate) const UUID: u32 = 1;
    pub(crate) const NAME: u32 = 2;
    pub(crate) const PROCESS: u32 = 3;
    pub(crate) const THREAD: u32 = 4;
    pub(crate) const PARENT_UUID: u32 = 5;
    pub(crate) const COUNTER: u32 = 8;
    pub(crate) const CHILD_ORDERING: u32 = 11;

    /// A value of `CHILD_ORDERING`.
    pub(crate) const LEXICOGRAPHIC: u64 = 1;
}

/// Field numbers of `ProcessDescriptor`.
pub(crate) mod process_descriptor {
    pub(crate) const PID: u32 = 1;
    pub(crate) const CMDLINE: u32 = 2;
    pub(crate) const PROCESS_NAME: u32 = 6;
    pub(crate) const START_TIMESTAMP_NS: u32 = 7;
    pub(crate) const PROCESS_LABELS: u32 = 8;
}

/// Field numbers of `ThreadDescriptor`.
pub(crate) mod thread_descriptor {
    pub(crate) const PID: u32 = 1;
    pub(crate) const TID: u32 = 2;
    pub(crate) const THREAD_NAME: u32 = 5;
}

/// Field numbers of `CounterDescriptor`, and values of its units.
pub(crate) mod counter_descriptor {
    pub(crate) const UNIT: u32 = 3;
    pub(crate) const UNIT_NAME: u32 = 6;

    pub(crate) const UNIT_TIME_NS: u64 = 1;
    pub(crate) const UNIT_COUNT: u64 = 2;
    pub(crate) const UNIT_SIZE_BYTES: u64 = 3;
}

/// Field numbers of `ClockSnapshot` and `Clock`, and ids of clocks (`BuiltinClock`).
pub(crate) mod clock_snapshot {
    pub(crate) const CLOCKS: u32 = 1;
    pub(crate) const PRIMARY_TRACE_CLOCK: u32 = 2;
    pub(crate) const CLOCK_ID: u32 = 1;
    pub(crate) const TIMESTAMP: u32 = 2;

    pub(crate) const REALTIME: u32 = 1;
    pub(crate) const MONOTONIC: u32 = 3;
    pub(crate) const MONOTONIC_RAW: u32 = 5;
    pub(crate) const BOOTTIME: u32 = 6;
}

/// Field numbers of `SystemInfo` and `Utsname`.
pub(crate) mod system_info {
    pub(crate) const UTSNAME: u32 = 1;
    pub(crate) const SYSNAME: u32 = 1;
    pub(crate) const VERSION: u32 = 2;
    pub(crate) const RELEASE: u32 = 3;
    pub(crate) const MACHINE: u32 = 4;
}

/// Field numbers of `TrackEvent`.
pub(crate) mod track_event {
    pub(crate) const CATEGORY_IIDS: u32 = 3;
    pub(crate) const DEBUG_ANNOTATIONS: u32 = 4;
    pub(crate) const TYPE: u32 = 9;
    pub(crate) const NAME_IID: u32 = 10;
    pub(crate) const TRACK_UUID: u32 = 11;
    pub(crate) const NAME: u32 = 23;
    pub(crate) const COUNTER_VALUE: u32 = 30;
    pub(crate) const DOUBLE_COUNTER_VALUE: u32 = 44;
    pub(crate) const FLOW_IDS: u32 = 47;
}

/// Field numbers of `GpuRenderStageEvent`.
pub(crate) mod render_stage {
    pub(crate) const EVENT_ID: u32 = 1;
    pub(crate) const DURATION: u32 = 2;
    pub(crate) const CONTEXT: u32 = 5;
    pub(crate) const GPU_ID: u32 = 11;
    pub(crate) const HW_QUEUE_IID: u32 = 13;
    pub(crate) const STAGE_IID: u32 = 14;
    pub(crate) const LAUNCH: u32 = 21;

    /// Field numbers of `ComputeKernelLaunch`.
    pub(crate) const GRID_SIZE: u32 = 1;
    pub(crate) const WORKGROUP_SIZE: u32 = 2;
    pub(crate) const LAUNCH_ARGS: u32 = 3;

    /// Field numbers of `ExtraComputeArg`.
    pub(crate) const ARG_NAME: u32 = 2;
    pub(crate) const ARG_UINT_VALUE: u32 = 4;
}

/// Field numbers of `InternedGraphicsContext`, and its own number in `InternedData`.
pub(crate) mod graphics_context {
    pub(crate) const IN_INTERNED_DATA: u32 = 23;
    pub(crate) const IID: u32 = 1;
    pub(crate) const PID: u32 = 2;
}

/// Field numbers of `DebugAnnotation`.
pub(crate) mod annotation {
    pub(crate) const NAME_IID: u32 = 1;
    pub(crate) const BOOL_VALUE: u32 = 2;
    pub(crate) const UINT_VALUE: u32 = 3;
    pub(crate) const INT_VALUE: u32 = 4;
    pub(crate) const DOUBLE_VALUE: u32 = 5;
    pub(crate) const STRING_VALUE: u32 = 6;
    pub(crate) const POINTER_VALUE: u32 = 7;
    pub(crate) const DICT_ENTRIES: u32 = 11;
    pub(crate) const ARRAY_VALUES: u32 = 12;
    pub(crate) const STRING_VALUE_IID: u32 = 17;
}

/// Field numbers that `EventCategory`, `EventName`, `DebugAnnotationName`, `InternedString` and
/// `InternedGpuRenderStageSpecification` have in common.
pub(crate) mod interned {
    pub(crate) const IID: u32 = 1;
    pub(crate) const TEXT: u32 = 2;

    /// Only in `InternedGpuRenderStageSpecification` (`RenderStageCategory`).
    pub(crate) const STAGE_CATEGORY: u32 = 4;
    pub(crate) const STAGE_COMPUTE: u64 = 2;
}

const WIRE_VARINT: u64 = 0;
const WIRE_FIXED64: u64 = 1;
const WIRE_LENGTH_DELIMITED: u64 = 2;

/// Appends protobuf fields to a buffer.
///
/// Numbers are written as whole words, of which only as many bytes are kept as the number needs:
/// these are stores of a fixed size, without a call of `memcpy` for each.
#[derive(Debug, Default)]
pub(crate) struct Encoder {
    /// The encoded bytes up to `end`, followed by spare memory.
    bytes: Vec<u8>,
    end: usize,
}

impl Encoder {
    /// The bytes written since the last [`Encoder::clear`].
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.end).unwrap_or_default()
    }

    /// Discards what was written and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.end = 0;
    }

    /// Writes a field of type `bool`, `uint32`, `uint64` or an enum.
    #[inline(always)]
    pub(crate) fn uint(&mut self, field: u32, value: u64) {
        self.tag(field, WIRE_VARINT);
        self.varint(value);
    }

    /// Writes a field of type `int32` or `int64`.
    pub(crate) fn signed(&mut self, field: u32, value: i64) {
        self.uint(field, value.cast_unsigned());
    }

    /// Writes a field of type `int32` whose value is never negative. A larger value loses its top
    /// bit, because readers reject a packet with a value that does not fit.
    pub(crate) fn int32(&mut self, field: u32, value: u32) {
        self.uint(field, (value & i32::MAX.cast_unsigned()).into());
    }

    /// Writes a field of type `fixed64`.
    #[inline(always)]
    pub(crate) fn fixed(&mut self, field: u32, value: u64) {
        self.tag(field, WIRE_FIXED64);
        self.push(value.to_le_bytes(), 8);
    }

    /// Writes a field of type `string` or `bytes`.
    pub(crate) fn bytes(&mut self, field: u32, value: &[u8]) {
        self.tag(field, WIRE_LENGTH_DELIMITED);
        self.varint(value.len() as u64);
        self.fields(value);
    }

    /// Appends fields that were encoded before.
    #[inline]
    pub(crate) fn fields(&mut self, encoded: &[u8]) {
        let end = self.end + encoded.len();
        if end > self.bytes.len() {
            self.grow(end);
        }
        if let Some(place) = self.bytes.get_mut(self.end..end) {
            place.copy_from_slice(encoded);
            self.end = end;
        }
    }

    /// Writes a field whose type is a message of two varint fields, each given as (number, value).
    #[inline(always)]
    pub(crate) fn pair(&mut self, field: u32, first: (u32, u64), second: (u32, u64)) {
        let ((first_tag, first_size), (tag, tag_size), (own_tag, own_size)) = (
            word(u64::from(first.0) << 3 | WIRE_VARINT),
            word(u64::from(second.0) << 3 | WIRE_VARINT),
            word(u64::from(field) << 3 | WIRE_LENGTH_DELIMITED),
        );
        // The sizes of tags are compile-time constants; usually everything but the second value
        // fits into one word.
        let fits = own_size + 1 + first_size + tag_size <= 6;
        if fits && own_size + first_size == 2 && first.1 < 0x80 && second.1 < 1 << 56 {
            // All positions except the end are compile-time constants.
            let (value, value_size) = word(second.1);
            let head = own_tag
                | ((2 + tag_size + value_size) as u64) << 8
                | first_tag << 16
                | first.1 << 24
                | tag << 32;
            if let Some(place) = self.room::<16>() {
                if let Some(place) = place.first_chunk_mut::<8>() {
                    *place = head.to_le_bytes();
                }
                if let Some((_, place)) = place.split_at_mut_checked(4 + tag_size)
                    && let Some(place) = place.first_chunk_mut::<8>()
                {
                    *place = value.to_le_bytes();
                }
            }
            self.end += 4 + tag_size + value_size;
            return;
        }
        if !fits || first.1 >= 1 << 14 || second.1 >= 1 << 56 {
            return self.message(field, |inner| {
                inner.uint(first.0, first.1);
                inner.uint(second.0, second.1);
            });
        }
        let (name, name_size) = word(first.1);
        let (value, value_size) = word(second.1);
        let before = first_size + name_size + tag_size;
        let head = (before + value_size) as u64
            | first_tag << 8
            | name << (8 * (1 + first_size))
            | tag << (8 * (1 + first_size + name_size));
        let head_size = own_size + 1 + before;
        let head = own_tag | head << (8 * own_size);
        if let Some(place) = self.room::<16>()
            && let Some(place) = place.first_chunk_mut::<8>()
        {
            *place = head.to_le_bytes();
        }
        if let Some(place) = self.bytes.get_mut(self.end + head_size..)
            && let Some(place) = place.first_chunk_mut::<8>()
        {
            *place = value.to_le_bytes();
        }
        self.end += head_size + value_size;
    }

    /// Writes a field whose type is a message; `content` writes its content. Fastest for content
    /// shorter than 128 bytes, whose length takes one byte.
    #[inline(always)]
    pub(crate) fn message(&mut self, field: u32, content: impl FnOnce(&mut Self)) {
        self.prefixed::<1>(field, content);
    }

    /// As [`Encoder::message`], for content that usually has 128 bytes or more.
    #[inline(always)]
    pub(crate) fn long_message(&mut self, field: u32, content: impl FnOnce(&mut Self)) {
        self.prefixed::<2>(field, content);
    }

    /// Reserves `ROOM` bytes for the length. If the length takes another number of bytes, the
    /// content is moved.
    #[inline(always)]
    fn prefixed<const ROOM: usize>(&mut self, field: u32, content: impl FnOnce(&mut Self)) {
        self.tag(field, WIRE_LENGTH_DELIMITED);
        let start = self.end;
        self.push([0; ROOM], ROOM);
        content(self);
        let length = self.end - start - ROOM;
        match (ROOM, length, self.bytes.get_mut(start..)) {
            (1, ..0x80, Some([place, ..])) => *place = length as u8,
            (2, 0x80..0x4000, Some([low, high, ..])) => {
                *low = length as u8 | 0x80;
                *high = (length >> 7) as u8;
            }
            _ => self.make_room(start, ROOM, length),
        }
    }

    /// Replaces `room` bytes at `start` by the encoded `length`, and moves the content after them.
    #[cold]
    fn make_room(&mut self, start: usize, room: usize, length: usize) {
        let (prefix, used) = varint(length as u64);
        let (from, to) = (start + room, start + used);
        if self.bytes.len() < to + length {
            self.grow(to + length);
        }
        self.bytes.copy_within(from..self.end, to);
        self.end = to + length;
        if let (Some(place), Some(prefix)) = (self.bytes.get_mut(start..to), prefix.get(..used)) {
            place.copy_from_slice(prefix);
        }
    }

    #[inline(always)]
    fn tag(&mut self, field: u32, wire_type: u64) {
        self.varint(u64::from(field) << 3 | wire_type);
    }

    #[inline(always)]
    fn varint(&mut self, value: u64) {
        if value < 0x80 {
            self.push([value as u8], 1);
        } else if value < 1 << 56 {
            let (word, used) = word(value);
            self.push(word.to_le_bytes(), used);
        } else {
            self.long_varint(value);
        }
    }

    /// Writes a varint of more than eight bytes, whose first eight all have the continuation bit.
    #[inline]
    fn long_varint(&mut self, value: u64) {
        self.push((sevens(value) | CONTINUED).to_le_bytes(), 8);
        let (last, used) = word(value >> 56);
        self.push((last as u16).to_le_bytes(), used);
    }

    /// Appends the first `used` bytes of `bytes`.
    #[inline(always)]
    fn push<const SIZE: usize>(&mut self, bytes: [u8; SIZE], used: usize) {
        if let Some(place) = self.room() {
            *place = bytes;
            self.end += used;
        }
    }

    /// Memory after the end, grown as needed.
    #[inline(always)]
    fn room<const SIZE: usize>(&mut self) -> Option<&mut [u8; SIZE]> {
        if self.bytes.len() < self.end + SIZE {
            self.grow(self.end + SIZE);
        }
        self.bytes.get_mut(self.end..)?.first_chunk_mut()
    }

    #[cold]
    fn grow(&mut self, least: usize) {
        self.bytes
            .resize((2 * self.bytes.len()).max(least).max(64), 0);
    }
}

/// The continuation bits of a varint's bytes, in eight bytes.
const CONTINUED: u64 = 0x8080_8080_8080_8080;

/// The varint of a number below 2⁵⁶, first byte lowest, and its length in bytes.
#[inline(always)]
const fn word(value: u64) -> (u64, usize) {
    let used = (63 - (value | 1).leading_zeros() as usize) / 7 + 1;
    let more = CONTINUED & ((1 << (8 * (used - 1))) - 1);
    (sevens(value) | more, used)
}

/// The lower 56 bits of a number, seven of them in each byte.
#[inline(always)]
const fn sevens(value: u64) -> u64 {
    let value = value & 0x0fff_ffff | (value & 0x00ff_ffff_f000_0000) << 4;
    let value = value & 0x0000_3fff_0000_3fff | (value & 0x0fff_c000_0fff_c000) << 2;
    value & 0x007f_007f_007f_007f | (value & 0x3f80_3f80_3f80_3f80) << 1
}

/// The varint of `value`, and the number of bytes used in the array.
fn varint(mut value: u64) -> ([u8; 10], usize) {
    let mut bytes = [0; 10];
    let mut used = 0;
    for byte in &mut bytes {
        used += 1;
        *byte = value as u8 & 0x7f;
        value >>= 7;
        if value == 0 {
            break;
        }
        *byte |= 0x80;
    }
    (bytes, used)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::encoding::{WireType, decode_key, decode_varint};

    use super::*;

    proptest! {
        #[test]
        fn a_reader_gets_every_field_back(
            field in 1_u32..100_000,
            value in (any::<u64>(), 0..64_u32).prop_map(|(value, bits)| value >> bits),
            text in proptest::collection::vec(any::<u8>(), 0..400),
        ) {
            let mut encoder = Encoder::default();
            let content = |inner: &mut Encoder| {
                inner.uint(field, value);
                inner.fixed(field, value);
                inner.message(1, |deep| deep.bytes(2, &text));
            };
            encoder.message(field, content);
            let mut long = Encoder::default();
            long.long_message(field, content);
            prop_assert_eq!(encoder.as_bytes(), long.as_bytes());
            let mut pair = Encoder::default();
            pair.pair(field, (1, text.len() as u64), (field, value));
            pair.pair(4, (1, value), (17, value));
            let mut same = Encoder::default();
            same.message(field, |inner| {
                inner.uint(1, text.len() as u64);
                inner.uint(field, value);
            });
            same.message(4, |inner| {
                inner.uint(1, value);
                inner.uint(17, value);
            });
            prop_assert_eq!(pair.as_bytes(), same.as_bytes());
            let mut input = encoder.as_bytes();
            let inside = |input: &mut &[u8], expected| {
                prop_assert_eq!(decode_key(input).unwrap(), expected);
                Ok(decode_varint(input).unwrap())
            };
            let length = inside(&mut input, (field, WireType::LengthDelimited))?;
            prop_assert_eq!(length, input.len() as u64);
            prop_assert_eq!(inside(&mut input, (field, WireType::Varint))?, value);
            prop_assert_eq!(decode_key(&mut input).unwrap(), (field, WireType::SixtyFourBit));
            let (fixed, rest) = input.split_first_chunk().unwrap();
            prop_assert_eq!(u64::from_le_bytes(*fixed), value);
            input = rest;
            let length = inside(&mut input, (1, WireType::LengthDelimited))?;
            prop_assert_eq!(length, input.len() as u64);
            let length = inside(&mut input, (2, WireType::LengthDelimited))?;
            prop_assert_eq!(length, input.len() as u64);
            prop_assert_eq!(input, &text);
        }
    }
}
