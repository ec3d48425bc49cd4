//! Streams of programs.

/// `hipStreamPerThread` of `hip_runtime_api.h`.
pub(crate) const PER_THREAD: u64 = 2;

/// Handles that mean a null stream: 0, and `hipStreamLegacy`.
const NULL_STREAMS: [u64; 2] = [0, 1];

/// How a program names a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamKey {
    /// The `hipStream_t`.
    pub handle: u64,
    /// The thread whose own stream it is: that of `hipStreamPerThread`.
    pub thread: Option<u32>,
}

impl StreamKey {
    /// The stream that a thread means by a handle; `None` if it is a null stream.
    #[must_use]
    pub fn of(tid: u32, handle: u64) -> Option<Self> {
        (!NULL_STREAMS.contains(&handle)).then_some(Self {
            handle,
            thread: (handle == PER_THREAD).then_some(tid),
        })
    }
}

/// A stream of a process, other than the null streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamInfo {
    /// Number in this timeline, dense from 1, in the order in which streams first appear in calls
    /// or in work (rocprofv3's `Stream_Id`).
    pub number: u32,
    /// Process id, initial pid namespace.
    pub pid: u32,
    /// How the process names it. Other streams may have the same name before and after.
    pub key: StreamKey,
    /// When it may have got its name at the earliest, ns `CLOCK_BOOTTIME`: when it was created, or
    /// when the stream before it with this name ended. 0 if it may be older than the recording.
    pub since: u64,
}
