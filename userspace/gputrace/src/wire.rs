//! What a session and its recorder say to each other. It may change with every version; both check
//! that they are of the same.
//!
//! They are connected by a Unix socket (`SOCK_SEQPACKET`), which is the recorder's standard input:
//! the only descriptor that `sudo` passes on besides output. Each packet is one message in JSON. The
//! capture's descriptor comes with [`Said::Opened`].

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::PathBuf,
};

use gputrace_capture::meta::Annotation;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// The version that both sides must have.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Hidden option of `gputrace` by which it becomes a session's recorder.
pub const OPTION: &str = "--controlled";

/// Maximum size of a message, bytes.
const LONGEST: usize = 64 << 10;

/// Maximum size of a text in a message, bytes, so that it fits in JSON whatever it contains.
const LONGEST_TEXT: usize = 8 << 10;

/// A message of the recorder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Said {
    /// The first message: its version. The capture's descriptor comes with it.
    Opened {
        /// [`VERSION`].
        version: String,
    },
    /// What exists has its probes.
    Began,
    /// What was seen before [`Asked::Flush`] with this number is in the capture.
    Flushed(u64),
    /// A line for people.
    Line(String),
    /// The capture is complete. The last message.
    Ended(Ended),
    /// The recording could not be made or finished. The last message.
    Failed {
        /// Exit status of `gputrace` for it.
        status: u8,
        /// The cause, and what to do.
        text: String,
    },
}

/// How a recording ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// Path of the capture, if it was kept.
    pub capture: Option<PathBuf>,
    /// Status of the launched program as `wait(2)` gives it, if it has ended.
    pub program: Option<i32>,
    /// Files that were made besides.
    pub outputs: Vec<PathBuf>,
}

/// A message of the session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Asked {
    /// End the recording.
    Stop,
    /// Record nothing that begins from now on.
    Pause,
    /// Record again.
    Resume,
    /// Mark a moment or a range. The recorder fills in the process id.
    Annotate(Box<Annotation>),
    /// Say [`Said::Flushed`] with this number when everything that was seen before is in the
    /// capture.
    Flush(u64),
    /// The capture has been read up to this position, bytes.
    Passed(u64),
}

/// A text short enough for a message.
#[must_use]
pub fn short(text: &str) -> String {
    let mut end = text.len().min(LONGEST_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default().to_owned()
}

/// Sends a message, with a descriptor if there is one.
///
/// # Errors
///
/// The system's error, e.g. `BrokenPipe` if the other side has gone; `InvalidInput` if the message
/// is too long.
pub fn send(
    socket: impl AsFd,
    message: &impl Serialize,
    descriptor: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    if bytes.len() > LONGEST {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors: Vec<BorrowedFd<'_>> = descriptor.into_iter().collect();
    if !descriptors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    }
    loop {
        let sent = sendmsg(
            &socket,
            &[IoSlice::new(&bytes)],
            &mut ancillary,
            SendFlags::NOSIGNAL,
        );
        match sent {
            Err(rustix::io::Errno::INTR) => {}
            outcome => return Ok(outcome.map(drop)?),
        }
    }
}

/// Receives the next message and the descriptor that came with it; `None` if the other side has
/// gone.
///
/// # Errors
///
/// The system's error; `InvalidData` if it is no message of this version.
pub fn receive<T: DeserializeOwned>(socket: impl AsFd) -> io::Result<Option<(T, Option<OwnedFd>)>> {
    let mut bytes = vec![0; LONGEST];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let count = loop {
        let mut parts = [IoSliceMut::new(&mut bytes)];
        match recvmsg(&socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Ok(received) => break received.bytes,
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::CONNRESET) => break 0,
            Err(error) => return Err(error.into()),
        }
    };
    let mut descriptor = None;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            descriptor = descriptors.last();
        }
    }
    if count == 0 {
        return Ok(None);
    }
    let message = serde_json::from_slice(bytes.get(..count).unwrap_or_default())?;
    Ok(Some((message, descriptor)))
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Read as _, io::Write as _};

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    #[test]
    fn messages_arrive_whole_and_with_their_descriptor() {
        let (one, other) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"content").unwrap();
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        let again = File::open(path).unwrap();
        let opened = Said::Opened {
            version: VERSION.to_owned(),
        };
        let line = Said::Line(short(&"\u{1}ü".repeat(100_000)));
        send(&one, &opened, Some(again.as_fd())).unwrap();
        send(&one, &line, None).unwrap();
        let (first, descriptor) = receive::<Said>(&other).unwrap().unwrap();
        assert_eq!(first, opened);
        let mut content = String::new();
        File::from(descriptor.unwrap())
            .read_to_string(&mut content)
            .unwrap();
        assert_eq!(content, "content");
        let (second, none) = receive::<Said>(&other).unwrap().unwrap();
        assert_eq!(second, line);
        assert!(none.is_none());
        drop(one);
        assert!(receive::<Said>(&other).unwrap().is_none());
        assert_eq!(
            send(&other, &Asked::Stop, None).unwrap_err().kind(),
            io::ErrorKind::BrokenPipe
        );
    }

    #[test]
    fn what_is_no_message_is_an_error() {
        let (one, other) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        for bytes in [&b"\xff\xfe"[..], b"{", b"{\"unknown\":1}", b"[]"] {
            rustix::net::send(&one, bytes, SendFlags::NOSIGNAL).unwrap();
            let error = receive::<Asked>(&other).unwrap_err();
            assert!(
                matches!(
                    error.kind(),
                    io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof
                ),
                "{error:?}"
            );
        }
    }
}
