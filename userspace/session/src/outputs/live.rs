//! Output while the recording goes on: `-f text -o -`.
//!
//! A thread reads the capture behind the collector's back, as it grows, makes events of it and lines of these. So the
//! collector waits for nobody, what is shown is exactly what is captured, and memory is bounded. The capture has no name then, and
//! what has been read of it is given back to the file system.
//!
//! A reader that pauses (`| less`) holds up nobody either: up to [`MOST_UNREAD`] bytes wait for it. What comes then is
//! lost, counted in the account, and told once. Where `/tmp` is memory, it is memory that waits.

use std::{
    fs::File,
    io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write},
    ops::ControlFlow,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use gputrace_capture::{CaptureReader, CaptureWriter, Sink};
use gputrace_export::{Exporter, Stages, ndjson::NdjsonWriter, run_with, text::TextWriter};
use gputrace_text::terminal;
use gputrace_timeline::Timeline;
use rustix::fs::{FallocateFlags, fallocate};
use tokio::sync::{Notify, oneshot};

use super::{Outputs, Summaries};
use crate::{
    SessionError,
    request::{Formats, LiveFormat},
};

/// How long to wait for more of the capture before looking again.
const PAUSE: Duration = Duration::from_millis(20);

/// Bytes of the recording that wait for a reader that has paused.
pub(crate) const MOST_UNREAD: u64 = 256 << 20;

/// Bytes that are given back to the file system at a time.
const HOLE: u64 = 16 << 20;

/// The thread that shows a recording.
#[derive(Debug)]
pub(crate) struct Live {
    over: Arc<AtomicBool>,
    /// Bytes of the capture that have been read.
    read: Arc<AtomicU64>,
    closed: Arc<Notify>,
    done: oneshot::Receiver<Result<Outputs, SessionError>>,
}

impl Live {
    /// Shows the recording whose capture `file` is, from its beginning, on standard output.
    pub(crate) fn start(file: File, format: LiveFormat, formats: Formats) -> io::Result<Self> {
        let over = Arc::new(AtomicBool::new(false));
        let read = Arc::new(AtomicU64::new(0));
        let closed = Arc::new(Notify::new());
        let out = Out {
            stream: Arc::new(Mutex::new(BufWriter::new(terminal::stdout()))),
            closed: Arc::clone(&closed),
        };
        let following = Following {
            file,
            position: 0,
            given_back: 0,
            over: Arc::clone(&over),
            read: Arc::clone(&read),
            out: out.clone(),
        };
        let (sender, done) = oneshot::channel();
        let ended = Arc::clone(&closed);
        let show = move || {
            let timeline = Timeline::follow(CaptureReader::new(BufReader::with_capacity(
                64 << 10,
                following,
            ))?)?;
            let mut exporters: Vec<Box<dyn Exporter>> = vec![match format {
                LiveFormat::Text => Box::new(TextWriter::new(out)),
                LiveFormat::Ndjson => Box::new(NdjsonWriter::new(out)),
            }];
            let summaries = Summaries::new(&formats, &mut exporters);
            let stages = Stages {
                kernels: formats.kernels.clone(),
                filter: None,
            };
            let mut report = run_with(timeline, exporters, stages, &mut |_| {
                ControlFlow::Continue(())
            });
            // That nobody reads any more is no failure; the recording has ended for it.
            report.failures.clear();
            Ok(Outputs {
                report,
                summary: summaries.take(),
                costs: String::new(),
                too_small: false,
            })
        };
        thread::Builder::new()
            .name("live".to_owned())
            .spawn(move || {
                // Whoever waited may have given up.
                let _ = sender.send(show());
                ended.notify_one();
            })?;
        Ok(Self {
            over,
            read,
            closed,
            done,
        })
    }

    /// Has the writer of the capture keep what nobody has read yet within [`MOST_UNREAD`].
    pub(crate) fn limit<S: Sink>(&self, writer: &mut CaptureWriter<S>) {
        writer.limit(Arc::clone(&self.read), MOST_UNREAD);
    }

    /// Waits until nobody reads the output any more, or it cannot go on.
    pub(crate) fn closed(&self) -> impl Future<Output = ()> + use<> {
        let closed = Arc::clone(&self.closed);
        async move { closed.notified().await }
    }

    /// Waits until everything is shown, now that the capture is complete.
    pub(crate) async fn finish(self) -> Result<Outputs, SessionError> {
        self.over.store(true, Ordering::Release);
        self.done.await.unwrap_or_else(|_| {
            Err(SessionError::System {
                action: "show the recording",
                cause: io::Error::other("the thread that shows it failed"),
            })
        })
    }
}

/// A stream that several hands write to, and that tells when nobody reads it.
#[derive(Clone, Debug)]
struct Out {
    stream: Arc<Mutex<BufWriter<io::Stdout>>>,
    closed: Arc<Notify>,
}

impl Out {
    fn with<T>(
        &self,
        action: impl FnOnce(&mut BufWriter<io::Stdout>) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let result = action(&mut stream);
        if result.is_err() {
            self.closed.notify_one();
        }
        result
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.with(|stream| stream.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.with(|stream| stream.flush().and_then(|()| stream.get_mut().flush()))
    }
}

/// A file that grows until the recording is over; its end is waited for.
#[derive(Debug)]
struct Following {
    file: File,
    position: u64,
    given_back: u64,
    over: Arc<AtomicBool>,
    read: Arc<AtomicU64>,
    out: Out,
}

impl Read for Following {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            // Before the reading: what is written before it is over is then read.
            let over = self.over.load(Ordering::Acquire);
            let count = self.file.read(buffer)?;
            if count > 0 || over {
                self.position += count as u64;
                self.read.store(self.position, Ordering::Release);
                self.give_back();
                return Ok(count);
            }
            // Nothing more for now: show what there is. That nobody reads it is told to those who write.
            let _ = self.out.flush();
            thread::park_timeout(PAUSE);
        }
    }
}

impl Following {
    /// Makes a hole of what has been read. A file system that cannot keeps it until the end.
    fn give_back(&mut self) {
        // The reader has looked at the first block already, and never goes back to others.
        if self.position - self.given_back >= HOLE {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let _ = fallocate(
                &self.file,
                flags,
                self.given_back,
                self.position - self.given_back,
            );
            self.given_back = self.position;
        }
    }
}

impl Seek for Following {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.position = self.file.seek(to)?;
        Ok(self.position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn out() -> Out {
        Out {
            stream: Arc::new(Mutex::new(BufWriter::new(terminal::stdout()))),
            closed: Arc::new(Notify::new()),
        }
    }

    #[test]
    fn the_end_of_a_growing_file_is_waited_for() {
        let mut file = tempfile::tempfile().unwrap();
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        let over = Arc::new(AtomicBool::new(false));
        let read = Arc::new(AtomicU64::new(0));
        let mut following = Following {
            file: File::open(path).unwrap(),
            position: 0,
            given_back: 0,
            over: Arc::clone(&over),
            read: Arc::clone(&read),
            out: out(),
        };
        let reader = thread::spawn(move || {
            let mut all = Vec::new();
            following.read_to_end(&mut all).unwrap();
            all
        });
        for part in ["a", "bc", "def"] {
            file.write_all(part.as_bytes()).unwrap();
        }
        over.store(true, Ordering::Release);
        assert_eq!(reader.join().unwrap(), b"abcdef");
        assert_eq!(read.load(Ordering::Acquire), 6);
    }
}
