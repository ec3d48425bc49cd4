//! What pointers of calls point to: found before the call that they belong to, which is made known when it is over.

use std::collections::{HashMap, VecDeque};

use foldhash::fast::RandomState;
use gputrace_abi::values::{VALUE_SIZE, Value, value_flags};
use zerocopy::FromBytes as _;

/// What a pointer of a call pointed to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointee {
    /// Which word of the call held the pointer: 0 to 5 the argument registers, from 6 on the words of stack arguments,
    /// then [`gputrace_abi::values::RESULT_WORD`].
    pub word: u8,
    /// Whether it was read when the function returned; else when it was called.
    pub at_return: bool,
    /// What was there.
    pub data: PointeeData,
}

/// Contents of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PointeeData {
    /// A string; bytes that are not UTF-8 are replaced.
    Text {
        /// Its beginning, or all of it.
        text: String,
        /// Whether it goes on.
        cut: bool,
    },
    /// Bytes.
    Bytes(Vec<u8>),
    /// No memory that can be read.
    Unreadable,
}

/// Bytes of values that wait for their calls. A call whose record was lost never comes for them.
const MOST_WAITING: usize = 64 << 20;

/// Values whose calls have not been released yet, by correlation id.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    values: HashMap<u64, Vec<Pointee>, RandomState>,
    /// Correlation ids in the order of their first values; those of calls that have come are still among them.
    order: VecDeque<u64>,
    bytes: usize,
    /// Values that were given up.
    pub(crate) forgotten: u64,
}

/// The value of a record; `None` if it makes no sense.
pub(crate) fn read(record: &[u8]) -> Option<(u64, Pointee)> {
    let (value, rest) = Value::read_from_prefix(record).ok()?;
    let bytes = rest.get(..usize::from(value.length))?;
    let has = |flag: u8| value.flags & flag != 0;
    let data = if has(value_flags::UNREADABLE) {
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

impl Pointee {
    /// About what it takes in memory, in bytes.
    fn size(&self) -> usize {
        VALUE_SIZE
            + match &self.data {
                PointeeData::Text { text, .. } => text.len(),
                PointeeData::Bytes(bytes) => bytes.len(),
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
        // Ids of calls that have come are swept out when there are as many of them as of others.
        if self.order.len() > 2 * self.values.len() + 1024 {
            self.order.retain(|id| self.values.contains_key(id));
        }
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
    fn calls_get_their_values_and_no_others() {
        let mut waiting = Waiting::default();
        for (correlation, byte) in [(1, 1), (2, 2), (1, 3)] {
            let (_, mut pointee) = read(&record(0, &[byte])).unwrap();
            pointee.word = byte;
            waiting.add(correlation, pointee);
        }
        let words = |values: Vec<Pointee>| values.iter().map(|value| value.word).collect::<Vec<_>>();
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
