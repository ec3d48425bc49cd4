//! Shortens records of argument values before they are written: a record in a ring has bytes that
//! it does not need.

use gputrace_abi::{
    record::RecordHeader,
    values::{VALUE_SIZE, Value},
};
use zerocopy::{FromBytes as _, IntoBytes as _};

/// Copies the record into `buffer`, as short as possible: whatever follows the bytes read is older
/// contents of the ring. `None` if it contains no [`Value`].
pub(crate) fn trimmed(record: &[u8], buffer: &mut Vec<u8>) -> Option<RecordHeader> {
    let (mut value, rest) = Value::read_from_prefix(record).ok()?;
    let bytes = rest.get(..usize::from(value.length).min(rest.len()))?;
    // At most 65535, because the length was 16 bits wide.
    value.length = bytes.len() as u16;
    let size = (VALUE_SIZE + bytes.len()).next_multiple_of(8);
    value.header.size = u16::try_from(size).ok()?;
    buffer.clear();
    buffer.extend_from_slice(value.as_bytes());
    buffer.extend_from_slice(bytes);
    buffer.resize(size, 0);
    Some(value.header)
}

#[cfg(test)]
mod tests {
    use gputrace_abi::values::SHORT_SIZE;
    use proptest::prelude::*;
    use zerocopy::FromZeros as _;

    use super::*;

    #[test]
    fn a_record_is_cut_to_what_was_read() {
        let mut value = Value::new_zeroed();
        value.length = 5;
        let mut record = value.as_bytes().to_vec();
        record.extend(*b"helloolder contents");
        record.resize(SHORT_SIZE, b'x');
        let mut buffer = vec![1; 3];
        let header = trimmed(&record, &mut buffer).unwrap();
        assert_eq!((usize::from(header.size), buffer.len()), (32, 32));
        assert_eq!(buffer.get(VALUE_SIZE..), Some(&b"hello\0\0\0"[..]));
        assert_eq!(Value::read_from_prefix(&buffer).unwrap().0.header, header);
        assert_eq!(trimmed(&record[..VALUE_SIZE - 1], &mut buffer), None);
    }

    proptest! {
        #[test]
        fn any_record_is_made_whole(record in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut buffer = Vec::new();
            if let Some(header) = trimmed(&record, &mut buffer) {
                prop_assert_eq!(usize::from(header.size), buffer.len());
                prop_assert!(buffer.len() < record.len() + 8);
            }
        }
    }
}
