//! Messages between a reader and its helper: packets on a socket, with numbers in native byte
//! order.

/// Maximum number of bytes of an answer in one packet, well below what a socket's buffer takes.
pub(crate) const PIECE: usize = 1 << 16;

/// Maximum number of places in one request, including that of a [`crate::Run`].
pub const PLACES: usize = 128;

/// Size of the head of a request and of an answer, bytes; a name or the data follows.
pub(crate) const QUESTION: usize = 24;
pub(crate) const ANSWER: usize = 8;

/// What is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What<'a> {
    /// Memory, at most [`PIECE`] bytes.
    Memory { address: u64 },
    /// The file `/proc/PID/` followed by this name.
    File(&'a str),
    /// Memory at several places, each of the length in the request: addresses of eight bytes each.
    /// For each place, the answer has a byte that is 1 if it could be read, followed by the bytes.
    Places(&'a [u8]),
    /// An encoded [`crate::Run`]. The request's length is the distance between the two words of a
    /// pair.
    Run(&'a [u8]),
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Question<'a> {
    pub(crate) pid: u32,
    pub(crate) length: u64,
    pub(crate) what: What<'a>,
}

impl<'a> Question<'a> {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let (kind, address, name) = match self.what {
            What::Memory { address } => (0u32, address, &[][..]),
            What::File(name) => (1, 0, name.as_bytes()),
            What::Places(places) => (2, 0, places),
            What::Run(run) => (3, 0, run),
        };
        let mut bytes = Vec::with_capacity(QUESTION + name.len());
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(&self.pid.to_ne_bytes());
        bytes.extend_from_slice(&address.to_ne_bytes());
        bytes.extend_from_slice(&self.length.to_ne_bytes());
        bytes.extend_from_slice(name);
        bytes
    }

    pub(crate) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first_chunk()?;
        let (pid, rest) = rest.split_first_chunk()?;
        let (address, rest) = rest.split_first_chunk()?;
        let (length, name) = rest.split_first_chunk()?;
        Some(Self {
            pid: u32::from_ne_bytes(*pid),
            length: u64::from_ne_bytes(*length),
            what: match u32::from_ne_bytes(*kind) {
                0 => What::Memory {
                    address: u64::from_ne_bytes(*address),
                },
                1 => What::File(std::str::from_utf8(name).ok()?),
                2 => What::Places(name),
                3 => What::Run(name),
                _ => return None,
            },
        })
    }
}

/// One packet of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer<'a> {
    /// The kernel's error number; 0 if there was none.
    pub(crate) error: i32,
    /// Whether another packet follows.
    pub(crate) goes_on: bool,
    pub(crate) bytes: &'a [u8],
}

impl<'a> Answer<'a> {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(ANSWER + self.bytes.len());
        bytes.extend_from_slice(&self.error.to_ne_bytes());
        bytes.extend_from_slice(&u32::from(self.goes_on).to_ne_bytes());
        bytes.extend_from_slice(self.bytes);
        bytes
    }

    pub(crate) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (error, rest) = bytes.split_first_chunk()?;
        let (goes_on, bytes) = rest.split_first_chunk()?;
        Some(Self {
            error: i32::from_ne_bytes(*error),
            goes_on: u32::from_ne_bytes(*goes_on) != 0,
            bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        let memory = Question {
            pid: 7,
            length: 9,
            what: What::Memory { address: 1 << 40 },
        };
        let file = Question {
            what: What::File("maps"),
            ..memory
        };
        let places = Question {
            what: What::Places(&[1; 16]),
            ..memory
        };
        let run = Question {
            what: What::Run(&[1; 16]),
            ..memory
        };
        for question in [memory, file, places, run] {
            let bytes = question.encode();
            assert_eq!(Question::decode(&bytes), Some(question));
            assert_eq!(Question::decode(&bytes[..QUESTION - 1]), None);
        }
        let answer = Answer {
            error: 14,
            goes_on: true,
            bytes: b"abc",
        };
        assert_eq!(Answer::decode(&answer.encode()), Some(answer));
        assert_eq!(Answer::decode(&[0; ANSWER - 1]), None);
    }
}
