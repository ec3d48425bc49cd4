//! Writes in the background: one thread encodes while another writes to the file.
//!
//! Copying gigabytes into the page cache takes about a seventh of the time that encoding takes. The
//! order of writes is unchanged; some chunks are in flight between the threads.

use std::{
    io::{self, Write},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
};

/// Maximum number of chunks between the threads. The caller decides their size.
const PIECES: usize = 4;

/// An output that is written in its own thread. Meant for chunks of many KiB: each is handed over
/// separately.
///
/// An error of the output is returned by a later [`Write::write`], or by [`WriterThread::finish`].
/// Dropping it waits until nothing is being written any more.
#[derive(Debug)]
pub struct WriterThread<W>(State<W>);

#[derive(Debug)]
enum State<W> {
    Thread {
        /// `None` when nothing more is to be written.
        full: Option<SyncSender<Vec<u8>>>,
        /// Buffers to be reused.
        empty: Receiver<Vec<u8>>,
        thread: Option<JoinHandle<io::Result<W>>>,
    },
    /// No thread could be created.
    Here(Option<W>),
}

impl<W: Write + Send + 'static> WriterThread<W> {
    /// Writes to `output`. If no thread can be created, it is written to directly.
    #[must_use]
    pub fn new(output: W) -> Self {
        let (full, pieces) = sync_channel(PIECES);
        let (returned, empty) = sync_channel(PIECES);
        let hand = Arc::new(Mutex::new(Some(output)));
        let other = Arc::clone(&hand);
        let take =
            |hand: &Mutex<Option<W>>| hand.lock().unwrap_or_else(PoisonError::into_inner).take();
        let write = move || match take(&other) {
            Some(output) => write(output, &pieces, &returned),
            None => Err(gone()),
        };
        let thread = thread::Builder::new()
            .name("writer".to_owned())
            .spawn(write);
        Self(match thread {
            Ok(thread) => State::Thread {
                full: Some(full),
                empty,
                thread: Some(thread),
            },
            // The closure was dropped before taking the output.
            Err(_) => State::Here(take(&hand)),
        })
    }

    /// Waits until everything is written, and returns the output.
    ///
    /// # Errors
    /// When writing failed.
    pub fn finish(mut self) -> io::Result<W> {
        match &mut self.0 {
            State::Here(output) => output.take().ok_or_else(gone),
            State::Thread { .. } => self.0.join().unwrap_or_else(|| Err(gone())),
        }
    }
}

/// Writes chunks until there are no more, or writing fails.
fn write<W: Write>(
    mut output: W,
    pieces: &Receiver<Vec<u8>>,
    returned: &SyncSender<Vec<u8>>,
) -> io::Result<W> {
    for mut piece in pieces {
        output.write_all(&piece)?;
        piece.clear();
        // The encoder may or may not need the buffer.
        let _ = returned.try_send(piece);
    }
    Ok(output)
}

/// The error for writes after an earlier failure.
fn gone() -> io::Error {
    io::Error::other("writing had failed before")
}

impl<W> State<W> {
    /// Lets the thread end and waits for it. Panics if the thread has panicked. `None` if it was
    /// already waited for.
    fn join(&mut self) -> Option<io::Result<W>> {
        let Self::Thread { full, thread, .. } = self else {
            return None;
        };
        *full = None;
        match thread.take()?.join() {
            Ok(result) => Some(result),
            Err(panic) if !thread::panicking() => std::panic::resume_unwind(panic),
            Err(_) => None,
        }
    }
}

impl<W: Write> Write for WriterThread<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            State::Here(Some(output)) => return output.write(bytes),
            State::Here(None) => {}
            State::Thread { full, empty, .. } => {
                let mut piece = empty.try_recv().unwrap_or_default();
                piece.extend_from_slice(bytes);
                if full.as_ref().is_some_and(|full| full.send(piece).is_ok()) {
                    return Ok(bytes.len());
                }
            }
        }
        // The thread has stopped taking chunks, so it has failed.
        let failed = self.0.join().and_then(Result::err);
        Err(failed.unwrap_or_else(gone))
    }

    /// Does nothing: only [`WriterThread::finish`] waits.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<W> Drop for WriterThread<W> {
    fn drop(&mut self) {
        drop(self.0.join());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_written_in_order() {
        let mut behind = WriterThread::new(Vec::new());
        let mut expected = Vec::new();
        for number in 0..1000_u32 {
            let piece = number.to_le_bytes().repeat(number as usize % 50 + 1);
            behind.write_all(&piece).unwrap();
            expected.extend(piece);
        }
        assert_eq!(behind.finish().unwrap(), expected);
    }

    /// Accepts this many bytes, then fails.
    #[derive(Debug)]
    struct Full(usize);

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self
                .0
                .checked_sub(bytes.len())
                .ok_or(io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_error_is_returned_once_and_nothing_more_is_taken() {
        let mut behind = WriterThread::new(Full(100));
        let failed = (0..)
            .find_map(|_| behind.write_all(&[0; 10]).err())
            .unwrap();
        assert_eq!(failed.kind(), io::ErrorKind::StorageFull);
        assert!(behind.write_all(&[0; 10]).is_err());
        assert!(behind.finish().is_err());

        let mut behind = WriterThread::new(Full(15));
        behind.write_all(&[0; 10]).unwrap();
        behind.write_all(&[0; 10]).unwrap();
        assert_eq!(
            behind.finish().unwrap_err().kind(),
            io::ErrorKind::StorageFull
        );
    }

    #[test]
    fn what_is_dropped_is_not_written_any_more() {
        let output = Arc::new(Mutex::new(()));
        struct Held(Arc<Mutex<()>>);
        impl Write for Held {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                drop(self.0.lock());
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut behind = WriterThread::new(Held(Arc::clone(&output)));
        behind.write_all(&[0; 10]).unwrap();
        drop(behind);
        assert_eq!(Arc::strong_count(&output), 1);
    }
}
