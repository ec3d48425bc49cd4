//! A recording that another program reads while it is made, and controls.
//!
//! The program gets the capture's file and reads it as it grows; it gives orders through [`Orders`].
//! Nobody waits for it: what it leaves unread is limited ([`MOST_UNREAD`]), lost beyond that, and
//! counted in the account. When its orders can no longer come, because it has ended, the recording
//! ends as well.

use std::{
    fmt,
    fs::File,
    future::pending,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use gputrace_capture::{
    CaptureWriter, Sink,
    follow::{HOLE, give_back},
    meta::Annotation,
};
use gputrace_files::own;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::outputs::live::MOST_UNREAD;

/// Number of orders that can wait.
const WAITING: usize = 64;

/// What the other program asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// End the recording. A launched program goes on.
    Stop,
    /// Record nothing that begins from now on.
    Pause,
    /// Record again.
    Resume,
    /// Mark a moment or a range in the recording.
    Annotate(Box<Annotation>),
    /// Write everything that was seen until now into the capture, and then say so.
    Flush(u64),
    /// It has read the capture up to this position, bytes, and will not go back except to its
    /// beginning.
    Passed(u64),
}

/// Gives orders from another thread. When the last clone is dropped, the recording ends.
#[derive(Clone, Debug)]
pub struct Orders(Sender<Order>);

impl Orders {
    /// Gives an order. Waits while many others wait. Returns `false` if the recording is over.
    #[must_use]
    pub fn give(&self, order: Order) -> bool {
        self.0.blocking_send(order).is_ok()
    }
}

/// Gets the capture, open for reading only, at its beginning.
type Opened = dyn FnOnce(File) -> io::Result<()>;

/// Something that the other program waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// What exists has its probes.
    Began,
    /// What was seen before the [`Order::Flush`] with this number is in the capture.
    Flushed(u64),
}

/// The recorder's end of the connection to the other program.
pub struct Remote {
    orders: Receiver<Order>,
    opened: Option<Box<Opened>>,
    news: Box<dyn Fn(News)>,
    unread: Option<Unread>,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Remote")
    }
}

/// The capture, as far as it was read. It has no name.
#[derive(Debug)]
struct Unread {
    file: File,
    read: Arc<AtomicU64>,
    given_back: u64,
}

impl Remote {
    /// `opened` gets the capture before anything is recorded, and may start threads. `news` gets
    /// what happens later.
    #[must_use]
    pub fn new(
        opened: impl FnOnce(File) -> io::Result<()> + 'static,
        news: impl Fn(News) + 'static,
    ) -> (Self, Orders) {
        let (sender, orders) = channel(WAITING);
        let remote = Self {
            orders,
            opened: Some(Box::new(opened)),
            news: Box::new(news),
            unread: None,
        };
        (remote, Orders(sender))
    }

    /// Hands over the capture that `writer` writes. `is_kept` says whether it has a name. If not,
    /// its space is given back when it has been read, and what is not read is limited.
    pub(crate) fn open<S: Sink>(
        &mut self,
        file: File,
        writer: &mut CaptureWriter<S>,
        is_kept: bool,
    ) -> io::Result<()> {
        if let Some(opened) = self.opened.take() {
            opened(own::open_to_read(&file)?)?;
        }
        if !is_kept {
            let read = Arc::new(AtomicU64::new(0));
            writer.limit(Arc::clone(&read), MOST_UNREAD);
            self.unread = Some(Unread {
                file,
                read,
                given_back: 0,
            });
        }
        Ok(())
    }

    /// Tells the other program something.
    pub(crate) fn tell(&self, news: News) {
        (self.news)(news);
    }

    /// The capture has been read up to `position`.
    pub(crate) fn passed(&mut self, position: u64) {
        let Some(unread) = &mut self.unread else {
            return;
        };
        unread.read.fetch_max(position, Ordering::AcqRel);
        if position.saturating_sub(unread.given_back) >= HOLE {
            give_back(&unread.file, unread.given_back, position);
            unread.given_back = position;
        }
    }
}

/// Waits for the next order, if there is another program; `None` if that is gone.
pub(crate) async fn order(remote: &mut Option<Remote>) -> Option<Order> {
    match remote {
        Some(remote) => remote.orders.recv().await,
        None => pending().await,
    }
}
