//! Finds queues and streams that are older than the recording, in processes that were attached to.
//!
//! A queue is found when its doorbell is rung for new work, a stream when a call or work names it.
//! What can be read of them then is known; the calls that created them were not recorded.

use std::collections::{BTreeSet, HashSet};

use foldhash::fast::RandomState;
use gputrace_text::tables::plural;

use crate::model::event::{Call, CallEnd, Event, FunctionInfo};

/// Stream handles with a fixed meaning, which no call creates.
const NULL_STREAMS: [u64; 3] = [0, 1, 2];

/// Maximum number of streams remembered.
const MOST_STREAMS: usize = 1 << 16;

/// Functions that store a new stream through their first argument.
const MAKERS: [&str; 4] = [
    "hipStreamCreate",
    "hipStreamCreateWithFlags",
    "hipStreamCreateWithPriority",
    "hipExtStreamCreateWithCUMask",
];

/// Queues that are older than the recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OldQueues {
    /// Number found.
    pub(crate) found: u64,
    /// Number of those whose GPU is known.
    pub(crate) with_gpu: u64,
}

/// Follows which streams were created during the recording.
#[derive(Debug, Default)]
pub(crate) struct Before {
    makers: HashSet<u32, RandomState>,
    made: HashSet<(u32, u64), RandomState>,
    /// Streams with work whose creation was not seen.
    old: BTreeSet<(u32, u64)>,
}

impl Before {
    /// Learns of a function.
    pub(crate) fn function(&mut self, info: &FunctionInfo) {
        if MAKERS.contains(&info.function.name.as_str()) {
            self.makers.insert(info.function.id);
        }
    }

    /// Learns from a call.
    pub(crate) fn call(&mut self, call: &Call) {
        if self.makers.contains(&call.function)
            && matches!(call.how, CallEnd::Returned(status) if status as u32 == 0)
            && let Some(handle) = call.stored(0)
            && self.made.len() < MOST_STREAMS
        {
            let stream = (call.pid, handle);
            self.made.insert(stream);
            // The creating call may end after the first work for the stream was emitted; an older
            // stream with the same handle cannot be meant.
            self.old.remove(&stream);
        }
    }

    /// Learns from emitted work.
    pub(crate) fn seen(&mut self, event: &Event) {
        let origin = match event {
            Event::Dispatch(dispatch) => &dispatch.origin,
            Event::Copy(copy) => &copy.origin,
            _ => return,
        };
        if let Some(handle) = origin
            .stream
            .filter(|handle| !NULL_STREAMS.contains(handle))
        {
            let stream = (origin.pid, handle);
            if !self.made.contains(&stream) && self.old.len() < MOST_STREAMS {
                self.old.insert(stream);
            }
        }
    }

    /// The remark to make if a queue is older than the recording.
    pub(crate) fn remark(&self, queues: OldQueues) -> Option<String> {
        let OldQueues { found, with_gpu } = queues;
        let of_gpus = match (found, with_gpu) {
            (1, 1) => "its GPU is".to_owned(),
            (1, _) => "its GPU is not".to_owned(),
            _ => format!("the GPU of {with_gpu} of them is"),
        };
        let streams = self.old.len() as u64;
        let of_streams = if streams == 0 {
            String::new()
        } else {
            format!(
                "{} older, or made by calls that are not recorded: only the handle is known of \
                 such a stream, not flags and priority. ",
                plural(streams, "stream with work is", "streams with work are")
            )
        };
        (found > 0).then(|| {
            format!(
                "{} in use before the recording, or this part of it, began. Such queues are found \
                 when their doorbells ring; {of_gpus} known. {of_streams}Older queues and streams \
                 without work in the recording are not found.",
                plural(found, "queue was", "queues were")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::{
            gpu::{Dispatch, Origin},
            values::{Pointee, PointeeData},
        },
        synthetic,
    };

    fn work(pid: u32, stream: Option<u64>) -> Event {
        Event::Dispatch(Box::new(Dispatch {
            origin: Origin {
                pid,
                stream,
                ..Origin::default()
            },
            ..Dispatch::default()
        }))
    }

    fn made(function: u32, status: u64, handle: u64) -> Call {
        Call {
            function,
            how: CallEnd::Returned(status),
            pointees: vec![Pointee {
                word: 0,
                at_return: true,
                data: PointeeData::Bytes(handle.to_le_bytes().to_vec()),
            }],
            ..synthetic::call(1, 10, 20)
        }
    }

    #[test]
    fn streams_that_nobody_was_seen_to_make_are_older() {
        let mut before = Before::default();
        before.function(&FunctionInfo::named(3, "hipStreamCreateWithFlags", None));
        before.function(&FunctionInfo::named(4, "hipStreamDestroy", None));
        let call = made(3, 0, 0xa0);
        before.call(&call);
        before.call(&made(3, 1, 0xb0));
        before.call(&made(4, 0, 0xc0));
        let pid = call.pid;
        for stream in [
            None,
            Some(0),
            Some(2),
            Some(0xa0),
            Some(0xb0),
            Some(0xb0),
            Some(0xc0),
        ] {
            before.seen(&work(pid, stream));
        }
        // Another process's stream.
        before.seen(&work(pid + 1, Some(0xa0)));
        assert_eq!(before.remark(OldQueues::default()), None);
        let remark = before.remark(OldQueues {
            found: 5,
            with_gpu: 4,
        });
        let remark = remark.unwrap();
        for part in [
            "5 queues were in use before",
            " 4 of them is known",
            " 3 streams with work are older, or made",
        ] {
            assert!(remark.contains(part), "{part} is not in: {remark}");
        }
        let one = before.remark(OldQueues {
            found: 1,
            with_gpu: 1,
        });
        let one = one.unwrap();
        assert!(one.starts_with("1 queue was in use before"), "{one}");
        assert!(one.contains("its GPU is known"), "{one}");
        let none = Before::default().remark(OldQueues {
            found: 1,
            with_gpu: 0,
        });
        assert!(none.is_some_and(|remark| !remark.contains("0 streams")));
    }
}
