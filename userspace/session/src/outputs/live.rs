//! Output during the recording: `-f text -o -`, `gputrace top`.
//!
//! A thread reads the capture while it grows and turns it into events and lines. The collector
//! therefore never waits, the output shows exactly what was captured, and memory is bounded. The
//! capture is an unnamed file, and the parts that have been read are given back to the file system.
//!
//! A paused reader (`| less`) delays nobody either: up to [`MOST_UNREAD`] bytes are kept for it.
//! Data beyond that is lost, counted in the account, and reported once. If `/tmp` is a memory file
//! system, this data occupies memory.

use std::{
    cell::RefCell,
    fmt,
    fs::File,
    io::{self, BufReader, Write},
    ops::ControlFlow,
    rc::Rc,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

use gputrace_analysis::costs::CostExporter;
use gputrace_capture::{
    CaptureReader, CaptureWriter, Sink,
    follow::{Follower, Following, HOLE, give_back},
};
use gputrace_export::{
    ExportError, Exporter, Output, SharedText, Stages, StandardOutput, ndjson::NdjsonWriter,
    run_with, text::TextWriter,
};
use gputrace_timeline::{Timeline, event::Event};
use tokio::sync::{Notify, oneshot};

use super::{Outputs, Summaries};
use crate::{
    SessionError,
    request::{Formats, LiveFormat, LiveOutput, View},
};

/// Maximum number of captured bytes kept for a paused reader.
pub(crate) const MOST_UNREAD: u64 = 256 << 20;

/// The thread that shows a recording while it is made.
#[derive(Debug)]
pub(crate) struct Live {
    over: Arc<AtomicBool>,
    /// Number of bytes of the capture that have been read.
    read: Arc<AtomicU64>,
    closed: Arc<Notify>,
    done: oneshot::Receiver<Result<Outputs, SessionError>>,
}

impl Live {
    /// Starts showing the recording on standard output, from its beginning; `file` is its capture.
    pub(crate) fn start(file: File, output: LiveOutput, formats: Formats) -> io::Result<Self> {
        let over = Arc::new(AtomicBool::new(false));
        let read = Arc::new(AtomicU64::new(0));
        let closed = Arc::new(Notify::new());
        let out = Out {
            stream: Arc::default(),
            closed: Arc::clone(&closed),
        };
        let progress = (Arc::clone(&over), Arc::clone(&read));
        let (sender, done) = oneshot::channel();
        let ended = Arc::clone(&closed);
        let show = move || {
            let view = match &output {
                LiveOutput::View(new) => {
                    let made = new.make(Box::new(out.clone()));
                    Some(SharedView::new(made.map_err(|cause| {
                        SessionError::System {
                            action: "show the recording",
                            cause,
                        }
                    })?))
                }
                LiveOutput::Lines(_) => None,
            };
            let (over, read) = progress;
            let showing = Showing {
                given_back: 0,
                read,
                out: out.clone(),
                view: view.clone(),
            };
            let following = Following::new(file, over, showing);
            let reader = BufReader::with_capacity(64 << 10, following);
            let mut timeline = Timeline::follow(CaptureReader::new(reader)?)?;
            if view.is_some() {
                timeline = timeline.with_accounts();
            }
            let exporter: Option<Box<dyn Exporter>> = match output {
                LiveOutput::Lines(LiveFormat::Text) => Some(Box::new(TextWriter::new(out))),
                LiveOutput::Lines(LiveFormat::Ndjson) => Some(Box::new(NdjsonWriter::new(out))),
                LiveOutput::View(_) => view.map(|view| Box::new(view) as Box<dyn Exporter>),
            };
            let mut exporters: Vec<Box<dyn Exporter>> = exporter.into_iter().collect();
            let summaries = Summaries::new(&formats, &mut exporters);
            let costs = SharedText::default();
            exporters.push(Box::new(CostExporter::new(costs.clone())));
            let stages = Stages {
                kernels: formats.kernels.clone(),
                filter: None,
            };
            let mut report = run_with(timeline, exporters, stages, &mut |_| {
                ControlFlow::Continue(())
            });
            // A closed output is not a failure: it ends the recording.
            report.failures.retain(|(_, error)| !error.is_closed_pipe());
            Ok(Outputs {
                report,
                summary: summaries.take(),
                costs: costs.take(),
                too_small: false,
            })
        };
        thread::Builder::new()
            .name("live".to_owned())
            .spawn(move || {
                // The receiver may have given up already.
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

    /// Makes the capture's writer limit the unread part of the capture to [`MOST_UNREAD`].
    pub(crate) fn limit<S: Sink>(&self, writer: &mut CaptureWriter<S>) {
        writer.limit(Arc::clone(&self.read), MOST_UNREAD);
    }

    /// Waits until the output is closed by its reader or cannot be continued.
    pub(crate) fn closed(&self) -> impl Future<Output = ()> + use<> {
        let closed = Arc::clone(&self.closed);
        async move { closed.notified().await }
    }

    /// Waits until everything has been shown. The capture must be complete.
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

/// A stream shared by several writers, which signals when its reader is gone.
#[derive(Clone, Debug)]
struct Out {
    stream: Arc<Mutex<StandardOutput>>,
    closed: Arc<Notify>,
}

impl Out {
    fn with<T>(&self, action: impl FnOnce(&mut StandardOutput) -> io::Result<T>) -> io::Result<T> {
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
        self.with(StandardOutput::flush)
    }
}

/// A view, which takes events from the timeline and is told by the file when there are no more.
#[derive(Clone)]
struct SharedView(Rc<RefCell<Box<dyn View>>>);

impl SharedView {
    fn new(view: Box<dyn View>) -> Self {
        Self(Rc::new(RefCell::new(view)))
    }

    fn caught_up(&self, time: u64) -> Result<ControlFlow<()>, ExportError> {
        self.0.borrow_mut().caught_up(time)
    }
}

impl fmt::Debug for SharedView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedView")
    }
}

impl Exporter for SharedView {
    fn format(&self) -> &'static str {
        "view"
    }

    fn event(&mut self, event: &Event) -> Result<(), ExportError> {
        self.0.borrow_mut().event(event)
    }

    fn finish(self: Box<Self>) -> Result<Vec<Output>, ExportError> {
        self.0.borrow_mut().finish()?;
        Ok(Vec::new())
    }
}

/// Shows what there is when a file has been read to its end, and gives back what has been read.
#[derive(Debug)]
struct Showing {
    given_back: u64,
    read: Arc<AtomicU64>,
    out: Out,
    view: Option<SharedView>,
}

impl Follower for Showing {
    fn passed(&mut self, file: &File, position: u64) {
        self.read.store(position, Ordering::Release);
        // The reader has finished with the first block, and never seeks back to other blocks.
        if position - self.given_back >= HOLE {
            give_back(file, self.given_back, position);
            self.given_back = position;
        }
    }

    fn caught_up(&mut self, time: u64) {
        let view = self.view.as_ref().map(|view| view.caught_up(time));
        if let Some(Err(_) | Ok(ControlFlow::Break(()))) = view {
            self.out.closed.notify_one();
        }
        // Flush errors are reported by the next write.
        let _ = self.out.flush();
    }
}
