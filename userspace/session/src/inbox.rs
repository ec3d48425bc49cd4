//! Messages for the recorder, merged per process, so that a flood of events costs little.
//!
//! The collector and the scanner put messages in from their threads; the recorder takes them out
//! one by one. Untaken messages of the same kind about the same process are merged into one. When a
//! process ends, its messages are removed. At most [`LIMIT`] messages wait; messages beyond that
//! are refused and counted. A message that a process is waiting for is never refused: there can be
//! only as many of these as there are processes.

use std::{
    collections::{HashMap, VecDeque},
    hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use gputrace_abi::record::{Task, task_op};
use gputrace_collect::CollectorEvent;
use tokio::sync::Notify;

/// Maximum number of waiting messages. Each takes about 100 bytes.
const LIMIT: usize = 1 << 16;
/// Maximum number of waiting kernel messages per process. One suffices to have all code objects of
/// a process read.
const KERNELS: u16 = 64;

/// A message to the recorder.
#[derive(Debug)]
pub(crate) enum Message {
    /// An event from the collector.
    Collector(CollectorEvent),
    /// A report from the collector: a thread has mapped a library or loaded code, and may be held.
    Linker {
        /// The thread's last report, with the time and the hold of the last one that holds it.
        task: Task,
        /// Time of the first merged report, ns `CLOCK_BOOTTIME`. Calls may be missing since then.
        since: u64,
    },
    /// A process may have mapped code that is of interest.
    Mapped {
        pid: u32,
        /// Earliest time at which the code can have been mapped, ns `CLOCK_BOOTTIME`; `None`:
        /// before the recording.
        since: Option<u64>,
    },
    /// The survey with this number is complete: all processes have been looked at since it was
    /// requested. Messages about what it found come before this one.
    Surveyed(u64),
}

/// Identifies messages that can be merged: two messages with the same key become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    New(u32),
    Task(u32, u8),
    Linker(u32, u32, u8),
    Kernel(u32, u64),
    Mapped(u32),
    Surveyed,
    /// A hash of the text.
    Remark(u64),
    CaptureFailed,
    LimitReached,
}

impl Message {
    /// Key of the message; `None` if the recorder does not need it.
    fn key(&self) -> Option<Key> {
        Some(match self {
            Self::Collector(CollectorEvent::NewProcess(pid)) => Key::New(*pid),
            Self::Collector(CollectorEvent::Task(task)) => match task.op {
                task_op::EXEC | task_op::FORK => Key::Task(task.pid, task.op),
                task_op::EXIT if task.pid == task.tid => Key::Task(task.pid, task.op),
                _ => return None,
            },
            // Any number of a process's threads can be waiting.
            Self::Collector(CollectorEvent::Linker(task)) | Self::Linker { task, .. } => {
                Key::Linker(task.pid, task.tid, task.op)
            }
            Self::Collector(CollectorEvent::Kernel { pid, kernel_object }) => {
                Key::Kernel(*pid, *kernel_object)
            }
            Self::Collector(CollectorEvent::Remark(text)) => {
                Key::Remark(BuildHasherDefault::<DefaultHasher>::default().hash_one(text))
            }
            Self::Collector(CollectorEvent::CaptureFailed(_)) => Key::CaptureFailed,
            Self::Collector(CollectorEvent::LimitReached(_)) => Key::LimitReached,
            Self::Mapped { pid, .. } => Key::Mapped(*pid),
            Self::Surveyed(_) => Key::Surveyed,
        })
    }

    /// Merges two messages with the same key.
    fn merge(&mut self, newer: Self) {
        match (self, newer) {
            // A thread that reports again is no longer held for its earlier report. Only the last hold has
            // to be ended, by the time when it began.
            (Self::Linker { task: old, .. }, Self::Linker { task: new, .. }) => {
                let hold = if new.held == 0 { *old } else { new };
                *old = Task {
                    time: hold.time,
                    held: hold.held,
                    ..new
                };
            }
            (Self::Mapped { since: old, .. }, Self::Mapped { since: new, .. }) => {
                *old = (*old).zip(new).map(|(old, new)| old.min(new));
            }
            // For all other messages, the newer one replaces the older.
            (old, new) => *old = new,
        }
    }
}

impl From<CollectorEvent> for Message {
    fn from(event: CollectorEvent) -> Self {
        match event {
            CollectorEvent::Linker(task) => Self::Linker {
                since: task.time,
                task,
            },
            other => Self::Collector(other),
        }
    }
}

impl Key {
    /// Whether a process is waiting for this message, or the recording must end. Such messages are
    /// never refused.
    fn is_essential(self) -> bool {
        matches!(
            self,
            Self::Linker(..)
                | Self::Surveyed
                | Self::Remark(_)
                | Self::CaptureFailed
                | Self::LimitReached
                | Self::Task(_, task_op::EXIT)
        )
    }
}

#[derive(Debug, Default)]
struct Queue {
    order: VecDeque<Key>,
    messages: HashMap<Key, Message>,
    /// Number of waiting kernel messages by process.
    kernels: HashMap<u32, u16>,
    refused: u64,
}

impl Queue {
    fn put(&mut self, message: Message) {
        let Some(key) = message.key() else { return };
        if let Key::Task(pid, task_op::EXIT) = key {
            // The process is gone, so these messages are moot. `order` keeps their keys, which then
            // find no message.
            for gone in [
                Key::New(pid),
                Key::Task(pid, task_op::FORK),
                Key::Task(pid, task_op::EXEC),
                Key::Mapped(pid),
            ] {
                self.messages.remove(&gone);
            }
        }
        if let Some(old) = self.messages.get_mut(&key) {
            return old.merge(message);
        }
        if let Key::Kernel(pid, _) = key {
            let waiting = self.kernels.entry(pid).or_default();
            if *waiting >= KERNELS {
                return;
            }
            *waiting += 1;
        }
        if self.order.len() >= LIMIT && !key.is_essential() {
            self.refused += 1;
            return;
        }
        self.order.push_back(key);
        self.messages.insert(key, message);
    }

    fn take(&mut self) -> Option<Message> {
        loop {
            let key = self.order.pop_front()?;
            if let Key::Kernel(pid, _) = key {
                self.kernels.remove(&pid);
            }
            if let Some(message) = self.messages.remove(&key) {
                return Some(message);
            }
        }
    }
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    arrived: Notify,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        // The queue is consistent even after a panic: every change is complete before anything can
        // panic.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sending end.
#[derive(Clone, Debug)]
pub(crate) struct Post(Arc<Shared>);

impl Post {
    pub(crate) fn put(&self, message: Message) {
        self.0.queue().put(message);
        self.0.arrived.notify_one();
    }
}

/// The receiving end, used by the recorder.
#[derive(Debug, Default)]
pub(crate) struct Inbox(Arc<Shared>);

impl Inbox {
    pub(crate) fn post(&self) -> Post {
        Post(Arc::clone(&self.0))
    }

    /// Takes the next message, if there is one.
    pub(crate) fn try_take(&self) -> Option<Message> {
        self.0.queue().take()
    }

    /// Waits for the next message.
    pub(crate) async fn take(&self) -> Message {
        loop {
            if let Some(message) = self.try_take() {
                return message;
            }
            self.0.arrived.notified().await;
        }
    }

    /// Number of messages refused since the last call of this function.
    pub(crate) fn take_refused(&self) -> u64 {
        std::mem::take(&mut self.0.queue().refused)
    }
}

#[cfg(test)]
mod tests {
    use gputrace_abi::record::{RecordHeader, kind};

    use super::*;

    fn task(op: u8, pid: u32, time: u64) -> Task {
        Task {
            header: RecordHeader {
                size: 48,
                kind: kind::TASK,
                domain: 0,
                cpu: 0,
            },
            time,
            pid,
            tid: pid,
            parent: 0,
            op,
            comm: [0; 16],
            held: 0,
            reserved: [0; 2],
        }
    }

    fn happened(op: u8, pid: u32) -> Message {
        Message::Collector(CollectorEvent::Task(task(op, pid, 0)))
    }

    fn rest(inbox: &Inbox) -> Vec<Message> {
        std::iter::from_fn(|| inbox.try_take()).collect()
    }

    #[test]
    fn a_storm_in_one_process_is_few_messages() {
        let inbox = Inbox::default();
        let post = inbox.post();
        for time in 0..100_000u64 {
            post.put(happened(task_op::EXEC, 7));
            post.put(happened(task_op::RENAME, 7));
            post.put(Message::Mapped {
                pid: 7,
                since: Some(1_000_000 - time),
            });
            post.put(Message::Collector(CollectorEvent::Kernel {
                pid: 7,
                kernel_object: time,
            }));
        }
        let messages = rest(&inbox);
        assert_eq!(messages.len(), 2 + usize::from(KERNELS));
        assert!(matches!(
            &messages[1],
            Message::Mapped {
                since: Some(900_001),
                ..
            }
        ));
        assert_eq!(inbox.take_refused(), 0);
    }

    #[test]
    fn the_dead_need_nothing() {
        let inbox = Inbox::default();
        let post = inbox.post();
        for pid in 1..=100_000 {
            for op in [task_op::FORK, task_op::EXEC, task_op::EXIT] {
                post.put(happened(op, pid));
            }
            let messages = rest(&inbox);
            assert_eq!(messages.len(), 1);
            assert!(
                matches!(&messages[0], Message::Collector(CollectorEvent::Task(task)) if task.op == task_op::EXIT)
            );
        }
    }

    #[test]
    fn who_waits_is_never_turned_away() {
        let inbox = Inbox::default();
        let post = inbox.post();
        let most = u32::try_from(LIMIT).unwrap();
        for pid in 0..most + 10 {
            post.put(Message::Collector(CollectorEvent::NewProcess(pid)));
        }
        assert_eq!(inbox.take_refused(), 10);
        let linker = |op, tid, time| {
            let task = task(op, 1, time);
            Message::from(CollectorEvent::Linker(Task { tid, ..task }))
        };
        post.put(linker(task_op::NEW_IMAGE, 1, 5));
        post.put(linker(task_op::LINKER, 1, 6));
        post.put(linker(task_op::LINKER, 2, 7));
        post.put(linker(task_op::LINKER, 1, 8));
        let messages = rest(&inbox);
        let told: Vec<(u8, u32, u64)> = messages[LIMIT..]
            .iter()
            .map(|message| match message {
                Message::Linker { task, since } => (task.op, task.tid, *since),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(
            told,
            [
                (task_op::NEW_IMAGE, 1, 5),
                (task_op::LINKER, 1, 6),
                (task_op::LINKER, 2, 7)
            ]
        );
        assert_eq!(inbox.take_refused(), 0);
    }

    #[test]
    fn of_a_thread_that_reports_again_the_last_hold_is_ended() {
        let reports = |reports: &[(u64, u8)]| {
            let inbox = Inbox::default();
            for &(time, held) in reports {
                let task = task(task_op::CODE_OBJECTS, 1, time);
                let loads = u32::try_from(time).unwrap();
                let task = Task {
                    held,
                    parent: loads,
                    ..task
                };
                inbox.post().put(CollectorEvent::Linker(task).into());
            }
            match rest(&inbox).as_slice() {
                [Message::Linker { task, since }] => (task.time, task.held, task.parent, *since),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(reports(&[(5, 1)]), (5, 1, 5, 5));
        assert_eq!(reports(&[(5, 1), (8, 1)]), (8, 1, 8, 5));
        assert_eq!(reports(&[(5, 0), (8, 1)]), (8, 1, 8, 5));
        // There was no room for another hold: the earlier one is still there.
        assert_eq!(reports(&[(5, 1), (8, 0)]), (5, 1, 8, 5));
        assert_eq!(reports(&[(5, 1), (6, 1), (8, 0)]), (6, 1, 8, 5));
    }

    #[test]
    fn whoever_waits_is_woken() {
        let inbox = Inbox::default();
        let post = inbox.post();
        let sender = std::thread::spawn(move || post.put(Message::Surveyed(3)));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        assert!(matches!(
            runtime.block_on(inbox.take()),
            Message::Surveyed(3)
        ));
        sender.join().unwrap();
    }
}
