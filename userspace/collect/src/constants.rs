//! Reads constants of programs that were not in memory when a function was called with them.
//!
//! An eBPF program can read only resident pages. The text of a marker is usually a literal in a
//! page of the program's file, which the system reads when it is first touched; a library that does
//! nothing with the text never touches it. The collector has it read a moment later. The result is
//! the same as long as nobody can have changed the text: it is read only from mappings of files
//! that the process cannot write to, and only if the process still executes the same program.
//! Reading brings the page in, so that later calls with constants from the same page are complete.
//! The page may belong to a file system that does not answer, so [`crate::reading`] does the
//! reading.

use gputrace_abi::values::{LONG_BYTES, UNREAD_SIZE, Value, annotation, value_flags};
use gputrace_codeobj::memory::{Memory, ProcessMemory};
use gputrace_tracee::process::{
    maps::{self, Mapping},
    start_stack,
};
use zerocopy::{FromBytes as _, IntoBytes as _};

/// The process of a record whose value was not readable and may be a constant; otherwise `None`.
pub(crate) fn wanted(record: &[u8]) -> Option<u32> {
    let (value, _) = Value::read_from_prefix(record).ok()?;
    let missing = value_flags::UNREADABLE | value_flags::NAME_UNREADABLE;
    // The destination of a result is not a constant.
    let may_be_constant = value_flags::STRING | value_flags::ANNOTATION;
    (value.flags & missing != 0 && value.flags & may_be_constant != 0).then_some(value.pid)
}

/// The record with the missing value filled in, if that is a constant of the program.
pub(crate) fn completed(record: &[u8]) -> Option<Vec<u8>> {
    wanted(record)?;
    let (value, rest) = Value::read_from_prefix(record).ok()?;
    let bytes = rest.get(..usize::from(value.length))?;
    let at = if bytes.len() == UNREAD_SIZE {
        8
    } else {
        annotation::STACK
    };
    let stack = word(bytes, at)?;
    let program = Program::of(value.pid)?;
    let found = if value.flags & value_flags::ANNOTATION != 0 {
        complete(bytes, value.flags, &program)?
    } else {
        let (text, cut) = program.text(word(bytes, 0)?, LONG_BYTES)?;
        (
            text,
            value_flags::STRING | if cut { value_flags::CUT } else { 0 },
        )
    };
    // If the process had executed another program since, its stack would start elsewhere.
    (stack != 0 && start_stack(value.pid) == Some(stack)).then(|| assemble(value, &found))
}

/// The eight bytes at offset `at`.
fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Writes `content` at offset `at`.
fn put(bytes: &mut [u8], at: usize, content: &[u8]) -> Option<()> {
    bytes
        .get_mut(at..)?
        .get_mut(..content.len())?
        .copy_from_slice(content);
    Some(())
}

/// Fills in the missing parts of an annotation as far as they can be found, and returns its bytes
/// and flags. `None` if nothing can be found.
fn complete(bytes: &[u8], mut flags: u8, program: &Program) -> Option<(Vec<u8>, u8)> {
    use annotation::{NAME, NAME_BYTES, SIZE, TEXT, kind, number_bytes};
    let mut record = bytes.to_vec();
    if bytes.len() == UNREAD_SIZE {
        let given = program.bytes(word(bytes, 0)?, SIZE as usize)?;
        record = vec![0; TEXT];
        put(&mut record, 0, given.get(8..24)?)?;
        put(&mut record, NAME, given.get(..8)?)?;
        flags |= value_flags::NAME_UNREADABLE;
    }
    if flags & value_flags::NAME_UNREADABLE != 0
        && let Some((name, _)) = program.text(word(&record, NAME)?, NAME_BYTES)
    {
        put(&mut record, NAME, &[0; NAME_BYTES])?;
        put(&mut record, NAME, &name)?;
        flags &= !value_flags::NAME_UNREADABLE;
    }
    if flags & value_flags::UNREADABLE != 0 {
        let (kind, value) = (word(&record, 0)?, word(&record, 8)?);
        let is_found = match number_bytes(kind) as usize {
            _ if kind == kind::STRING => {
                program
                    .text(value, LONG_BYTES - TEXT)
                    .is_some_and(|(text, cut)| {
                        record.truncate(TEXT);
                        record.extend(text);
                        flags |= if cut { value_flags::CUT } else { 0 };
                        true
                    })
            }
            0 => true,
            size => program.bytes(value, size).is_some_and(|mut number| {
                let is_whole = number.len() == size;
                number.resize(8, 0);
                is_whole && put(&mut record, 8, &number).is_some()
            }),
        };
        if is_found {
            flags &= !value_flags::UNREADABLE;
        }
    }
    Some((record, flags))
}

/// The record of `value` with other contents and flags.
fn assemble(mut value: Value, (bytes, flags): &(Vec<u8>, u8)) -> Vec<u8> {
    // At most LONG_BYTES.
    value.length = bytes.len() as u16;
    value.flags = value.flags & value_flags::AT_RETURN | flags;
    [value.as_bytes(), bytes].concat()
}

/// The program that a process executes.
struct Program {
    memory: ProcessMemory,
    mappings: Vec<Mapping>,
}

impl Program {
    fn of(pid: u32) -> Option<Self> {
        Some(Self {
            memory: ProcessMemory::open(pid).ok()?,
            mappings: maps::of_process(pid).ok()?,
        })
    }

    /// Up to `most` bytes of constants at `address`, fewer if their mapping ends earlier.
    fn bytes(&self, address: u64, most: usize) -> Option<Vec<u8>> {
        let mapping = self
            .mappings
            .iter()
            .find(|mapping| (mapping.start..mapping.end).contains(&address))
            .filter(|mapping| !mapping.writable)?;
        let there = usize::try_from(mapping.end - address).unwrap_or(usize::MAX);
        let mut bytes = vec![0; most.min(there)];
        let got = self.memory.read_some(address, &mut bytes).ok()?;
        bytes.truncate(got);
        Some(bytes)
    }

    /// A string constant without its NUL, and whether it was cut off. `room` is the maximum length
    /// with the NUL.
    fn text(&self, address: u64, room: usize) -> Option<(Vec<u8>, bool)> {
        let mut bytes = self.bytes(address, room)?;
        let end = bytes.iter().position(|byte| *byte == 0);
        bytes.truncate(end.unwrap_or(bytes.len().min(room - 1)));
        Some((bytes, end.is_none()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zerocopy::FromZeros as _;

    use super::*;

    static TEXT: &[u8] = b"a constant\0";
    static NUMBER: u64 = 4711;

    fn record(flags: u8, bytes: &[u8]) -> Vec<u8> {
        let mut value = Value::new_zeroed();
        value.pid = std::process::id();
        value.flags = flags;
        value.length = bytes.len() as u16;
        let mut record = [value.as_bytes(), bytes].concat();
        record.resize(1024, 0xee);
        record
    }

    fn unread(address: u64) -> Vec<u8> {
        let stack = start_stack(std::process::id()).unwrap();
        [address.to_le_bytes(), stack.to_le_bytes()].concat()
    }

    fn address<T: ?Sized>(of: &T) -> u64 {
        std::ptr::from_ref(of).addr() as u64
    }

    fn completed(flags: u8, bytes: &[u8]) -> Option<(u8, Vec<u8>)> {
        let record = super::completed(&record(flags, bytes))?;
        let (value, rest) = Value::read_from_prefix(&record).unwrap();
        assert_eq!(rest.len(), usize::from(value.length));
        Some((value.flags, rest.to_vec()))
    }

    #[test]
    fn constants_are_read_and_nothing_else() {
        let string = value_flags::STRING | value_flags::UNREADABLE;
        let constant = unread(address(TEXT));
        let text = b"a constant".to_vec();
        assert_eq!(
            completed(string, &constant),
            Some((value_flags::STRING, text.clone()))
        );
        let at_return = value_flags::AT_RETURN;
        assert_eq!(
            completed(string | at_return, &constant),
            Some((value_flags::STRING | at_return, text))
        );
        let variable = b"in memory that can be written\0".to_vec();
        assert_eq!(
            completed(string, &unread(address(variable.as_slice()))),
            None
        );
        assert_eq!(completed(string, &unread(8)), None);
        // A value that is not a text, and a text that could be read.
        assert_eq!(completed(value_flags::UNREADABLE, &constant), None);
        assert_eq!(completed(value_flags::STRING, &constant), None);
        let mut another_program = constant.clone();
        another_program[8] ^= 1;
        assert_eq!(completed(string, &another_program), None);
        assert_eq!(completed(string, &constant[..15]), None);
    }

    #[test]
    fn annotations_are_completed() {
        let unreadable = value_flags::ANNOTATION | value_flags::UNREADABLE;
        let stack = start_stack(std::process::id()).unwrap();
        let annotation = |kind: u64, number: u64, name: u64| {
            let mut bytes = vec![0; annotation::TEXT];
            for (at, word) in [
                (0, kind),
                (8, number),
                (annotation::NAME, name),
                (annotation::STACK, stack),
            ] {
                put(&mut bytes, at, &word.to_le_bytes()).unwrap();
            }
            bytes
        };
        let number = annotation(annotation::kind::UINT64, address(&NUMBER), address(TEXT));
        let (flags, bytes) = completed(unreadable | value_flags::NAME_UNREADABLE, &number).unwrap();
        assert_eq!(
            (flags, word(&bytes, 8)),
            (value_flags::ANNOTATION, Some(4711))
        );
        assert!(bytes[annotation::NAME..].starts_with(TEXT));
        let text = annotation(annotation::kind::STRING, address(TEXT), 8);
        let (flags, bytes) = completed(unreadable | value_flags::NAME_UNREADABLE, &text).unwrap();
        // No memory is mapped at address 8.
        assert_eq!(
            flags,
            value_flags::ANNOTATION | value_flags::NAME_UNREADABLE
        );
        assert_eq!(bytes.get(annotation::TEXT..), Some(&b"a constant"[..]));
        let gone = annotation(annotation::kind::INT32, 8, 8);
        let (flags, _) = completed(unreadable | value_flags::NAME_UNREADABLE, &gone).unwrap();
        assert_eq!(flags, unreadable | value_flags::NAME_UNREADABLE);
    }

    proptest! {
        #[test]
        fn any_record_is_completed_or_not(
            flags: u8,
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let _ = completed(flags, &bytes);
        }
    }
}
