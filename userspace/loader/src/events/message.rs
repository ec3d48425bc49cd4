//! Messages between gputrace and the process that owns its events.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Maximum length of a path or a name, bytes.
pub(super) const TEXT: usize = 256;

/// What a request asks for: values of [`Request::kind`].
pub(super) mod kind {
    /// To define an event, and to run a program at its probes. As many [`super::Place`]s follow as
    /// [`super::Request::count`] says. Answered.
    pub(crate) const ATTACH: u32 = 0;
    /// To remove an event. Not answered.
    pub(crate) const DETACH: u32 = 1;
    /// To remove the definition named by the text, which somebody has left behind. Not answered.
    pub(crate) const FORGET: u32 = 2;
    /// To say when all requests before are done. Answered.
    pub(crate) const SETTLE: u32 = 3;
    /// To say when the kernel's lock on events was free. Answered.
    pub(crate) const LOOK: u32 = 4;
}

/// A request of gputrace.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Request {
    /// One of [`kind`].
    pub(super) kind: u32,
    /// Number of places that follow.
    pub(super) count: u32,
    /// Number of the event.
    pub(super) number: u64,
    /// Descriptor of the eBPF program.
    pub(super) program: i32,
    /// The process that gets the breakpoints, -1 for all.
    pub(super) pid: i32,
    /// 1: at returns of functions.
    pub(super) is_return: u32,
    /// Number of bytes of `text` in use.
    pub(super) length: u32,
    /// Path of the file, or a name.
    pub(super) text: [u8; TEXT],
}

impl Request {
    /// A request without program or places. `None` if the text is too long.
    pub(super) fn new(kind: u32, number: u64, text: &str) -> Option<Self> {
        let mut bytes = [0; TEXT];
        bytes
            .get_mut(..text.len())?
            .copy_from_slice(text.as_bytes());
        Some(Self {
            kind,
            count: 0,
            number,
            program: -1,
            pid: -1,
            is_return: 0,
            length: text.len() as u32,
            text: bytes,
        })
    }

    /// The text.
    pub(super) fn text(&self) -> &str {
        let bytes = self.text.get(..self.length as usize).unwrap_or_default();
        std::str::from_utf8(bytes).unwrap_or_default()
    }
}

/// A place to probe.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Place {
    /// File offset of the instruction, bytes.
    pub(super) offset: u64,
    /// Cookie of the probe.
    pub(super) cookie: u64,
}

/// How far a request has come: values of [`Answer::step`].
pub(super) mod step {
    /// Some of the probes are defined.
    pub(crate) const ON_THE_WAY: u32 = 0;
    /// Done. The other values say what failed.
    pub(crate) const DONE: u32 = 1;
    /// To define a probe.
    pub(crate) const DEFINE: u32 = 2;
    /// To enable the event.
    pub(crate) const ENABLE: u32 = 3;
    /// To run the program at the event.
    pub(crate) const RUN: u32 = 4;
}

/// An answer to a request.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Answer {
    /// One of [`step`].
    pub(super) step: u32,
    /// The system's error number, if the step failed.
    pub(super) error: i32,
}
