//! Data that pointer arguments of calls point to. Their records come before the record of the call
//! itself, which is written when the call ends.

use std::collections::{HashMap, VecDeque};

use foldhash::fast::RandomState;
use gputrace_abi::values::{UNREAD_SIZE, VALUE_SIZE, Value, annotation, value_flags};
use zerocopy::FromBytes as _;

/// What a pointer argument or result of a call pointed to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointee {
    /// The word of the call that held the pointer: 0 to 5 are the argument registers, from 6 on
    /// come the words of stack arguments, then [`gputrace_abi::values::RESULT_WORD`]; [`u8::MAX`]
    /// if no word held it.
    pub word: u8,
    /// Whether it was read when the function returned; otherwise at its entry.
    pub at_return: bool,
    /// The data.
    pub data: PointeeData,
}

/// Data read from memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PointeeData {
    /// A string; bytes that are not UTF-8 are replaced.
    Text {
        /// The text, or its beginning if `cut`.
        text: String,
        /// Whether the text was cut.
        cut: bool,
    },
    /// Bytes.
    Bytes(Vec<u8>),
    /// An annotation.
    Annotation(Annotation),
    /// The memory could not be read.
    Unreadable,
}

/// An annotation of a region by the program, or a fact about a call that is not among its
/// arguments: rank and size of a collective's communicator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Annotation {
    /// Its name; chosen by the program for the program's own annotations.
    pub name: String,
    /// Its value.
    pub value: AnnotationValue,
}

/// The value of an annotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnnotationValue {
    /// A string; bytes that are not UTF-8 are replaced.
    Text {
        /// The text, or its beginning if `cut`.
        text: String,
        /// Whether the text was cut.
        cut: bool,
    },
    /// A signed integer.
    Signed(i64),
    /// An unsigned integer.
    Unsigned(u64),
    /// The bits of an `f64`.
    Real(u64),
    /// A pointer, or a value of unknown type.
    Pointer(u64),
    /// The memory could not be read.
    Unreadable,
}

/// Decodes the annotation of a record with these `flags`; `None` if it is malformed.
fn annotation(bytes: &[u8], flags: u8) -> Option<Annotation> {
    use annotation::kind;
    let named = |name: &str, value| Annotation {
        name: name.to_owned(),
        value,
    };
    let (cut, readable) = (
        flags & value_flags::CUT != 0,
        flags & value_flags::UNREADABLE == 0,
    );
    if bytes.is_empty() {
        let text = format!("more than {}", annotation::MOST);
        return cut.then(|| named("annotations", AnnotationValue::Text { text, cut }));
    }
    if bytes.len() == UNREAD_SIZE && !readable {
        return Some(named("annotation", AnnotationValue::Unreadable));
    }
    let (words, text) = bytes.split_at_checked(annotation::TEXT)?;
    let words = words.get(..annotation::STACK)?;
    let (kind, rest) = words.split_first_chunk()?;
    let (number, name) = rest.split_first_chunk()?;
    let (kind, number) = (u64::from_le_bytes(*kind), u64::from_le_bytes(*number));
    let signed =
        |bits: u32| AnnotationValue::Signed((number << (64 - bits)).cast_signed() >> (64 - bits));
    let value = match kind {
        _ if !readable => AnnotationValue::Unreadable,
        kind::STRING => AnnotationValue::Text {
            text: String::from_utf8_lossy(text).into_owned(),
            cut,
        },
        kind::SIZE | kind::UINT64 | kind::UINT32 | kind::UINT16 => {
            AnnotationValue::Unsigned(number)
        }
        kind::INT64 => signed(64),
        kind::INT32 => signed(32),
        kind::INT16 => signed(16),
        kind::FLOAT64 => AnnotationValue::Real(number),
        kind::FLOAT32 => AnnotationValue::Real(f64::from(f32::from_bits(number as u32)).to_bits()),
        _ => AnnotationValue::Pointer(number),
    };
    Some(if flags & value_flags::NAME_UNREADABLE != 0 {
        named("annotation", value)
    } else {
        named(&crate::model::raw::name(name), value)
    })
}

/// Maximum bytes of values that wait for their calls. A call whose record was lost never collects
/// its values.
const MOST_WAITING: usize = 64 << 20;

/// Values whose calls have not been emitted yet, by correlation id.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    values: HashMap<u64, Vec<Pointee>, RandomState>,
    /// Correlation ids in the order of their first values, including ids whose calls have already
    /// been emitted.
    order: VecDeque<u64>,
    bytes: usize,
    /// Number of values dropped because too many were waiting.
    pub(crate) forgotten: u64,
    /// Numbers of the stacks of the latest calls, by correlation id, and these ids in order.
    stacks: HashMap<u64, u32, RandomState>,
    stack_order: VecDeque<u64>,
}

/// Maximum number of calls whose stacks are remembered, for themselves and for the work that they
/// submit.
const MOST_STACKS: usize = 1 << 18;

/// Decodes a record; `None` if it is malformed.
pub(crate) fn read(record: &[u8]) -> Option<(u64, Pointee)> {
    let (value, rest) = Value::read_from_prefix(record).ok()?;
    let bytes = rest.get(..usize::from(value.length))?;
    let has = |flag: u8| value.flags & flag != 0;
    let data = if has(value_flags::ANNOTATION) {
        PointeeData::Annotation(annotation(bytes, value.flags)?)
    } else if has(value_flags::UNREADABLE) {
        PointeeData::Unreadable
    } else if has(value_flags::STRING) {
        PointeeData::Text {
            text: String::from_utf8_lossy(bytes).into_owned(),
            cut: has(value_flags::CUT),
        }
    } else {
        PointeeData::Bytes(bytes.to_vec())
    };
    let pointee = Pointee {
        word: value.word,
        at_return: has(value_flags::AT_RETURN),
        data,
    };
    Some((value.correlation, pointee))
}

impl Annotation {
    /// Approximate heap memory in bytes.
    fn size(&self) -> usize {
        let text = match &self.value {
            AnnotationValue::Text { text, .. } => text.len(),
            _ => 0,
        };
        self.name.len() + text
    }
}

impl Pointee {
    /// Whether the value is missing because the memory could not be read.
    pub(crate) fn is_unreadable(&self) -> bool {
        matches!(
            self.data,
            PointeeData::Unreadable
                | PointeeData::Annotation(Annotation {
                    value: AnnotationValue::Unreadable,
                    ..
                })
        )
    }

    /// Approximate memory in bytes.
    fn size(&self) -> usize {
        VALUE_SIZE
            + match &self.data {
                PointeeData::Text { text, .. } => text.len(),
                PointeeData::Bytes(bytes) => bytes.len(),
                PointeeData::Annotation(annotation) => annotation.size(),
                PointeeData::Unreadable => 0,
            }
    }
}

impl Waiting {
    /// Keeps a value until its call comes.
    pub(crate) fn add(&mut self, correlation: u64, pointee: Pointee) {
        self.bytes += pointee.size();
        let of_call = self.values.entry(correlation).or_default();
        if of_call.is_empty() {
            self.order.push_back(correlation);
        }
        of_call.push(pointee);
        while self.bytes > MOST_WAITING
            && let Some(oldest) = self.order.pop_front()
        {
            self.forgotten += self.take(oldest).len() as u64;
        }
        // Ids of calls already emitted are removed when there are about as many of them as of
        // others.
        if self.order.len() > 2 * self.values.len() + 1024 {
            self.order.retain(|id| self.values.contains_key(id));
        }
    }

    /// Notes the stack of a call.
    pub(crate) fn add_stack(&mut self, correlation: u64, stack: u32) {
        self.stacks.insert(correlation, stack);
        self.stack_order.push_back(correlation);
        if self.stack_order.len() > MOST_STACKS
            && let Some(oldest) = self.stack_order.pop_front()
        {
            self.stacks.remove(&oldest);
        }
    }

    /// The stack of a call, if it has one and is one of the latest that do.
    pub(crate) fn stack(&self, correlation: u64) -> Option<u32> {
        if self.stacks.is_empty() {
            return None;
        }
        self.stacks.get(&correlation).copied()
    }

    /// The values of a call.
    pub(crate) fn take(&mut self, correlation: u64) -> Vec<Pointee> {
        if self.values.is_empty() {
            return Vec::new();
        }
        let values = self.values.remove(&correlation).unwrap_or_default();
        self.bytes -= values.iter().map(Pointee::size).sum::<usize>();
        values
    }
}

#[cfg(test)]
mod tests {
    use gputrace_abi::values::LONG_BYTES;
    use proptest::prelude::*;
    use zerocopy::{FromZeros as _, IntoBytes as _};

    use super::*;

    fn record(flags: u8, bytes: &[u8]) -> Vec<u8> {
        let mut value = Value::new_zeroed();
        value.correlation = 7;
        value.length = bytes.len() as u16;
        value.word = 1;
        value.flags = flags;
        let mut record = value.as_bytes().to_vec();
        record.extend_from_slice(bytes);
        record.resize(record.len().next_multiple_of(8), 9);
        record
    }

    #[test]
    fn values_are_what_their_flags_say() {
        let data = |flags, bytes: &[u8]| read(&record(flags, bytes)).unwrap().1.data;
        let text = |text: &str, cut| PointeeData::Text {
            text: text.to_owned(),
            cut,
        };
        assert_eq!(data(value_flags::STRING, b"loop"), text("loop", false));
        assert_eq!(
            data(value_flags::STRING | value_flags::CUT, b"lo\xff"),
            text("lo\u{fffd}", true)
        );
        assert_eq!(data(0, &[1, 2]), PointeeData::Bytes(vec![1, 2]));
        assert_eq!(
            data(value_flags::UNREADABLE | value_flags::STRING, b""),
            PointeeData::Unreadable
        );
        let mut short = record(0, &[0; 8]);
        short.truncate(VALUE_SIZE + 4);
        assert_eq!(read(&short), None);
    }

    #[test]
    fn annotations_have_names_and_values_of_their_types() {
        use annotation::kind;
        let bytes = |kind: u64, number: u64, name: &str, text: &str| {
            let mut bytes = [kind.to_le_bytes(), number.to_le_bytes()].concat();
            bytes.extend_from_slice(name.as_bytes());
            bytes.resize(annotation::TEXT, 0);
            bytes.extend_from_slice(text.as_bytes());
            bytes
        };
        let found = |bytes: &[u8], flags| {
            let (_, pointee) = read(&record(value_flags::ANNOTATION | flags, bytes))?;
            match pointee.data {
                PointeeData::Annotation(Annotation { name, value }) => Some((name, value)),
                other => panic!("{other:?}"),
            }
        };
        let minus = u64::from((-2_i16).cast_unsigned());
        for (kind, number, expected) in [
            (kind::SIZE, 7, AnnotationValue::Unsigned(7)),
            (kind::INT64, u64::MAX, AnnotationValue::Signed(-1)),
            (kind::UINT64, u64::MAX, AnnotationValue::Unsigned(u64::MAX)),
            (
                kind::FLOAT64,
                0.5_f64.to_bits(),
                AnnotationValue::Real(0.5_f64.to_bits()),
            ),
            (kind::POINTER, 0x10, AnnotationValue::Pointer(0x10)),
            (kind::INT32, 0xffff_fffd, AnnotationValue::Signed(-3)),
            (kind::UINT32, 9, AnnotationValue::Unsigned(9)),
            (
                kind::FLOAT32,
                1.5_f32.to_bits().into(),
                AnnotationValue::Real(1.5_f64.to_bits()),
            ),
            (kind::INT16, minus, AnnotationValue::Signed(-2)),
            (kind::UINT16, minus, AnnotationValue::Unsigned(minus)),
            (99, 5, AnnotationValue::Pointer(5)),
        ] {
            let annotation = found(&bytes(kind, number, "size", ""), 0);
            assert_eq!(annotation, Some(("size".to_owned(), expected)));
        }
        let text = |text: &str, cut| AnnotationValue::Text {
            text: text.to_owned(),
            cut,
        };
        let why = bytes(kind::STRING, 0, "strerror", "no such file");
        for (bytes, flags, name, value) in [
            (&why[..], 0, "strerror", text("no such file", false)),
            (
                &why,
                value_flags::CUT,
                "strerror",
                text("no such file", true),
            ),
            (
                &why,
                value_flags::UNREADABLE,
                "strerror",
                AnnotationValue::Unreadable,
            ),
            (
                &[0; UNREAD_SIZE],
                value_flags::UNREADABLE,
                "annotation",
                AnnotationValue::Unreadable,
            ),
            (
                &why,
                value_flags::NAME_UNREADABLE,
                "annotation",
                text("no such file", false),
            ),
            (
                &[],
                value_flags::CUT,
                "annotations",
                text("more than 16", true),
            ),
        ] {
            assert_eq!(found(bytes, flags), Some((name.to_owned(), value)));
        }
        assert_eq!(found(&why[..annotation::TEXT - 1], 0), None);
        assert_eq!(found(&[], 0), None);
    }

    #[test]
    fn calls_get_their_values_and_no_others() {
        let mut waiting = Waiting::default();
        for (correlation, byte) in [(1, 1), (2, 2), (1, 3)] {
            let (_, mut pointee) = read(&record(0, &[byte])).unwrap();
            pointee.word = byte;
            waiting.add(correlation, pointee);
        }
        let words =
            |values: Vec<Pointee>| values.iter().map(|value| value.word).collect::<Vec<_>>();
        assert_eq!(words(waiting.take(1)), [1, 3]);
        assert_eq!(words(waiting.take(1)), [0; 0]);
        assert_eq!(words(waiting.take(2)), [2]);
        assert_eq!((waiting.bytes, waiting.forgotten), (0, 0));
    }

    #[test]
    fn calls_that_never_come_do_not_fill_the_memory() {
        let mut waiting = Waiting::default();
        let (_, pointee) = read(&record(value_flags::STRING, &[b'x'; LONG_BYTES])).unwrap();
        let most = MOST_WAITING / pointee.size();
        for correlation in 0..most as u64 + 10 {
            waiting.add(correlation, pointee.clone());
        }
        assert_eq!(waiting.forgotten, 10);
        assert!(waiting.take(9).is_empty() && !waiting.take(10).is_empty());
        for correlation in 0..most as u64 + 10 {
            waiting.take(correlation);
        }
        for correlation in 0..10_000 {
            waiting.add(correlation, pointee.clone());
            waiting.take(correlation);
        }
        assert!(waiting.order.len() < 2048);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_value_or_not(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = read(&bytes);
        }
    }
}
