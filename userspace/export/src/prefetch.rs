//! Reads ahead: one thread makes events from a capture while another writes them.
//!
//! Reading, ordering and linking take about as long as writing, so an export takes half the time on
//! two CPUs. The order of events is unchanged; some thousands of events are in flight between the
//! threads.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
};

use gputrace_capture::{ReadError, Truncation};
use gputrace_timeline::{Tally, event::Event, gpu::Dispatch};

use crate::run::Source;

/// Number of events handed over together: they fit into the CPU's own cache.
const BATCH: usize = 256;

/// Maximum number of batches between the threads.
const BATCHES: usize = 8;

type Item = Result<Event, ReadError>;

/// Dispatches that are no longer needed.
type Dispatches = Vec<Box<Dispatch>>;

/// Memory to be reused: that of a batch, and dispatches.
type Used = (VecDeque<Item>, Dispatches);

/// Events, and the source's position after the last of them.
#[derive(Debug, Default)]
struct Batch {
    events: VecDeque<Item>,
    position: u64,
    /// Truncation and tally at the end of the source; only in the last batch.
    end: Option<(Option<Truncation>, Tally)>,
}

/// A source that is read in its own thread. Position, truncation and tally are those of the events
/// taken so far.
#[derive(Debug)]
pub struct Prefetch<S> {
    reader: Reader<S>,
    size: u64,
    current: Batch,
    /// Used dispatches of the current batch: memory is best freed by the thread that reuses it.
    used: Dispatches,
    tally: Tally,
    truncation: Option<Truncation>,
}

#[derive(Debug)]
enum Reader<S> {
    Thread {
        /// `None` when the source is at its end, or no more events are wanted.
        full: Option<Receiver<Batch>>,
        empty: SyncSender<Used>,
        thread: Option<JoinHandle<()>>,
    },
    /// No thread could be created.
    Here(Option<S>),
}

impl<S: Source + Send + 'static> Prefetch<S> {
    /// Begins to read `source`. If no thread can be created, it is read on demand instead.
    #[must_use]
    pub fn new(source: S) -> Self {
        let size = source.size();
        let (sender, full) = sync_channel(BATCHES);
        let (empty, returned) = sync_channel(BATCHES);
        let hand = Arc::new(Mutex::new(Some(source)));
        let other = Arc::clone(&hand);
        let take =
            |hand: &Mutex<Option<S>>| hand.lock().unwrap_or_else(PoisonError::into_inner).take();
        let read = move || {
            if let Some(source) = take(&other) {
                read(source, &sender, &returned);
            }
        };
        let thread = thread::Builder::new().name("reader".to_owned()).spawn(read);
        let reader = match thread {
            Ok(thread) => Reader::Thread {
                full: Some(full),
                empty,
                thread: Some(thread),
            },
            // The closure was dropped before taking the source.
            Err(_) => Reader::Here(take(&hand)),
        };
        Self {
            reader,
            size,
            current: Batch::default(),
            used: Vec::new(),
            tally: Tally::default(),
            truncation: None,
        }
    }
}

/// Reads a source to its end, or until no more events are wanted.
fn read(mut source: impl Source, full: &SyncSender<Batch>, returned: &Receiver<Used>) {
    loop {
        let (mut events, dispatches) = returned
            .try_recv()
            .unwrap_or_else(|_| (VecDeque::with_capacity(BATCH), Vec::new()));
        for dispatch in dispatches {
            source.take_back(dispatch);
        }
        events.extend(source.by_ref().take(BATCH));
        let is_last = events.len() < BATCH;
        let batch = Batch {
            events,
            position: source.position(),
            end: is_last.then(|| (source.truncation(), source.tally().clone())),
        };
        if full.send(batch).is_err() || is_last {
            return;
        }
    }
}

impl<S> Reader<S> {
    /// Lets the thread end and waits for it. Panics if the thread has panicked.
    fn join(&mut self) {
        if let Self::Thread { full, thread, .. } = self {
            *full = None;
            if let Some(Err(panic)) = thread.take().map(JoinHandle::join)
                && !thread::panicking()
            {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

impl<S> Drop for Prefetch<S> {
    fn drop(&mut self) {
        self.reader.join();
    }
}

impl<S: Source> Iterator for Prefetch<S> {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        loop {
            if let Some(event) = self.current.events.pop_front() {
                return Some(event);
            }
            if let Some((truncation, tally)) = self.current.end.take() {
                (self.truncation, self.tally) = (truncation, tally);
                self.reader.join();
            }
            match &mut self.reader {
                Reader::Here(source) => return source.as_mut()?.next(),
                Reader::Thread { full, empty, .. } => {
                    let next = full.as_ref()?.recv();
                    let Ok(next) = next else {
                        self.reader.join();
                        return None;
                    };
                    let used = std::mem::replace(&mut self.current, next);
                    // The reader may or may not need the memory.
                    let _ = empty.try_send((used.events, std::mem::take(&mut self.used)));
                }
            }
        }
    }
}

impl<S: Source> Source for Prefetch<S> {
    fn position(&self) -> u64 {
        match &self.reader {
            Reader::Here(Some(source)) => source.position(),
            _ => self.current.position,
        }
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn truncation(&self) -> Option<Truncation> {
        match &self.reader {
            Reader::Here(Some(source)) => source.truncation(),
            _ => self.truncation,
        }
    }

    fn tally(&self) -> &Tally {
        match &self.reader {
            Reader::Here(Some(source)) => source.tally(),
            _ => &self.tally,
        }
    }

    fn take_back(&mut self, dispatch: Box<Dispatch>) {
        match &mut self.reader {
            Reader::Here(Some(source)) => source.take_back(dispatch),
            _ => self.used.push(dispatch),
        }
    }
}

#[cfg(test)]
mod tests {
    use gputrace_capture::meta::Notice;

    use super::*;

    /// Counts up to a number.
    struct Numbers {
        next: u64,
        end: u64,
        tally: Tally,
    }

    impl Iterator for Numbers {
        type Item = Item;

        fn next(&mut self) -> Option<Item> {
            assert_ne!(self.next, 3_333_333, "as a defect of a reader would");
            (self.next < self.end).then(|| {
                self.next += 1;
                self.tally.tasks += 1;
                Ok(notice(self.next))
            })
        }
    }

    impl Source for Numbers {
        fn position(&self) -> u64 {
            self.next
        }

        fn size(&self) -> u64 {
            self.end
        }

        fn truncation(&self) -> Option<Truncation> {
            None
        }

        fn tally(&self) -> &Tally {
            &self.tally
        }
    }

    fn notice(time: u64) -> Event {
        Event::Notice(Notice {
            time,
            text: String::new(),
        })
    }

    fn numbers(next: u64, end: u64) -> Numbers {
        Numbers {
            next,
            end,
            tally: Tally::default(),
        }
    }

    #[test]
    fn everything_comes_in_order_and_then_the_tally() {
        for end in [0, 1, 255, 256, 257, 10_000] {
            let mut ahead = Prefetch::new(numbers(0, end));
            assert_eq!(ahead.size(), end);
            for number in 1..=end {
                assert_eq!(ahead.next().unwrap().unwrap(), notice(number));
                assert!(ahead.position() >= number);
            }
            assert!(ahead.next().is_none());
            assert!(ahead.next().is_none());
            assert_eq!((ahead.position(), ahead.tally().tasks), (end, end));
        }
    }

    #[test]
    fn a_reader_of_which_nothing_more_is_wanted_ends() {
        let mut ahead = Prefetch::new(numbers(0, u64::MAX));
        assert!(ahead.by_ref().take(1000).all(|event| event.is_ok()));
        drop(ahead);
    }

    #[test]
    #[should_panic(expected = "as a defect")]
    fn a_reader_that_panics_is_not_taken_for_an_end() {
        Prefetch::new(numbers(3_333_000, u64::MAX)).for_each(drop);
    }
}
