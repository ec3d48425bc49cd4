//! The threads of a flight recorder: one follows the capture and keeps its last part
//! ([`Ring`]), the other looks in its events for what dumps are made for ([`Watch`]).
//!
//! The capture is an unnamed file in the directory of the dumps. What is not kept any more is given
//! back to the file system, so that the file takes no more space than is kept, and what has not
//! been read yet. A dump is written from there; meanwhile the recording goes on.

use std::{
    cell::RefCell,
    fs::File,
    io::{self, BufReader},
    path::PathBuf,
    rc::Rc,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{Receiver, Sender, TryRecvError, channel},
    },
    thread,
};

use gputrace_capture::{
    CaptureReader, CaptureWriter, Sink,
    flight::{Cause, Dump},
    follow::{Follower, Following, HOLE, give_back},
};
use gputrace_collect::clocks;
use gputrace_flight::{
    DumpError, Limits, Moment, OpenCall, Ring, Rule, Taken, Watch, Written, dump,
};
use gputrace_timeline::Timeline;
use tokio::sync::mpsc;

use super::live::MOST_UNREAD;
use crate::{SessionError, request::FlightRequest};

/// Maximum number of causes that wait for the recorder. Further ones are left out: they come so
/// fast that each dump has many.
const CAUSES: usize = 256;

/// Size of the buffer through which the capture is read, bytes.
const BUFFER: usize = 64 << 10;

/// What the recorder asks of the thread that keeps the capture.
enum Order {
    /// Keep what there is, whatever its age, until the next dump.
    Hold,
    /// Write a dump.
    Dump(Box<DumpOrder>),
}

/// A dump to be written.
pub(crate) struct DumpOrder {
    /// The empty file.
    pub(crate) file: File,
    /// Its path.
    pub(crate) path: PathBuf,
    /// The state of the recording.
    pub(crate) moment: Moment,
    /// Number and causes.
    pub(crate) about: Dump,
}

/// A dump that was written, or could not be.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) path: PathBuf,
    pub(crate) about: Dump,
    pub(crate) result: Result<Written, DumpError>,
}

/// The threads of a flight recorder.
#[derive(Debug)]
pub(crate) struct Flight {
    over: Arc<AtomicBool>,
    /// `None` once no more dumps can be ordered.
    orders: Option<Sender<Order>>,
    /// Bytes of the capture that have been given back or are not needed any more.
    passed: Arc<AtomicU64>,
    most: u64,
    /// Causes found by the rules.
    pub(crate) causes: mpsc::Receiver<Cause>,
    /// Dumps that were written.
    pub(crate) made: mpsc::UnboundedReceiver<Made>,
    /// Calls that have been open for long.
    open: Arc<Mutex<Vec<OpenCall>>>,
}

impl Flight {
    /// Starts to follow a capture, from its beginning. `open` opens its file again for reading.
    pub(crate) fn start(
        open: impl Fn() -> io::Result<File>,
        request: &FlightRequest,
    ) -> io::Result<Self> {
        let over = Arc::new(AtomicBool::new(false));
        let passed = Arc::new(AtomicU64::new(0));
        let calls = Arc::new(Mutex::new(Vec::new()));
        let (orders, ordered) = channel();
        let (tell, made) = mpsc::unbounded_channel();
        let (report, causes) = mpsc::channel(CAUSES);
        let part = request.parts.and_then(|parts| parts.bytes);
        let part = part.map(|bytes| Part {
            bytes,
            full_at: bytes,
            report: report.clone(),
        });
        let rules: Vec<Rule> = request
            .rules
            .iter()
            .filter(|rule| rule.is_watched())
            .cloned()
            .collect();
        let watched = if rules.is_empty() {
            None
        } else {
            let watched = Arc::new(AtomicU64::new(0));
            let (file, over) = (open()?, Arc::clone(&over));
            let (read, open) = (Arc::clone(&watched), Arc::clone(&calls));
            spawn("rules", move || {
                let watching = Watching {
                    watch: Rc::new(RefCell::new(Watch::new(rules))),
                    read,
                    open,
                    report,
                };
                // What cannot be read is not watched. The dumps are made from the same file, and
                // their failures are told.
                let _ = watch(file, over, &watching);
            })?;
            Some(watched)
        };
        let (file, source) = (open()?, open()?);
        let is_divided = request.parts.is_some();
        let (limits, is_over, is_passed) = (request.limits, Arc::clone(&over), Arc::clone(&passed));
        spawn("flight", move || {
            let keeping = Keeping {
                // Its place is known when the file has been opened.
                ring: Ring::new(limits, 0),
                source,
                hole: (limits.bytes / 8).clamp(BUFFER as u64, HOLE),
                given_back: 0,
                passed: is_passed,
                watched,
                ordered,
                due: None,
                tell,
                is_divided,
                part,
            };
            keep(file, is_over, limits, keeping);
        })?;
        Ok(Self {
            over,
            orders: Some(orders),
            passed,
            most: request.limits.bytes.saturating_add(MOST_UNREAD),
            causes,
            made,
            open: calls,
        })
    }

    /// Makes the capture's writer limit the size of the file.
    pub(crate) fn limit<S: Sink>(&self, writer: &mut CaptureWriter<S>) {
        writer.limit(Arc::clone(&self.passed), self.most);
    }

    /// Keeps what there is until the next dump, whatever its age.
    pub(crate) fn hold(&self) {
        self.order(Order::Hold);
    }

    /// Has a dump written.
    pub(crate) fn dump(&self, order: DumpOrder) {
        self.order(Order::Dump(Box::new(order)));
    }

    fn order(&self, order: Order) {
        if let Some(orders) = &self.orders {
            // The thread ends only when no more can be ordered.
            let _ = orders.send(order);
        }
    }

    /// Has the rules look at calls that have been open for long.
    pub(crate) fn look_at(&self, calls: Vec<OpenCall>) {
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = calls;
    }

    /// The capture is complete.
    pub(crate) fn over(&self) {
        self.over.store(true, Ordering::Release);
    }

    /// Waits until all dumps are written, and returns those that have not been taken.
    pub(crate) async fn rest(&mut self) -> Vec<Made> {
        self.orders = None;
        let mut all = Vec::new();
        while let Some(one) = self.made.recv().await {
            all.push(one);
        }
        all
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let builder = thread::Builder::new().name(name.to_owned());
    builder.spawn(work).map(drop)
}

/// State of the thread that keeps the last part of the capture.
struct Keeping {
    ring: Ring,
    /// The capture, opened once more, for dumps.
    source: File,
    /// Number of bytes that are given back at a time.
    hole: u64,
    given_back: u64,
    /// Number of bytes that are not needed any more.
    passed: Arc<AtomicU64>,
    /// Number of bytes that the rules have seen, if there are rules.
    watched: Option<Arc<AtomicU64>>,
    ordered: Receiver<Order>,
    /// A dump that waits until the ring has taken the blocks before its moment.
    due: Option<Box<DumpOrder>>,
    tell: mpsc::UnboundedSender<Made>,
    /// Whether a dump begins where the one before it ends.
    is_divided: bool,
    /// `None` if the size of dumps has no limit, or when no more blocks come.
    part: Option<Part>,
}

/// The dump that is to be made when it has its size.
struct Part {
    /// The size, bytes.
    bytes: u64,
    /// Where it has that size, bytes from the start of the capture.
    full_at: u64,
    report: mpsc::Sender<Cause>,
}

/// Follows the capture, and writes dumps, until no more can be ordered.
fn keep(file: File, over: Arc<AtomicBool>, limits: Limits, keeping: Keeping) {
    let keeping = Rc::new(RefCell::new(keeping));
    let following = Following::new(file, over, Serving(Rc::clone(&keeping)));
    let reader = CaptureReader::new(BufReader::with_capacity(BUFFER, following));
    if let Ok(mut reader) = reader {
        keeping.borrow_mut().ring = Ring::new(limits, reader.position());
        // An error ends what is kept. A dump then says what is missing.
        while let Ok(Some(block)) = reader.next_block() {
            let block = Taken::from(block);
            keeping.borrow_mut().take(block, reader.position());
        }
    }
    // The recorder waits until nobody reports any more.
    keeping.borrow_mut().part = None;
    keeping.borrow_mut().serve_last();
}

/// Serves orders while there is nothing to read.
#[derive(Clone)]
struct Serving(Rc<RefCell<Keeping>>);

impl Follower for Serving {
    fn passed(&mut self, _: &File, _: u64) {}

    fn caught_up(&mut self, _: u64) {
        self.0.borrow_mut().serve();
    }
}

impl Keeping {
    fn take(&mut self, block: Taken, end: u64) {
        let now = clocks::now();
        self.ring.push(block, end, now);
        if let Some(part) = self.part.as_mut().filter(|part| part.full_at <= end) {
            let cause = Cause {
                time: now,
                text: "it has reached its size".to_owned(),
            };
            // If the recorder has no room for it, it is reported after the next block.
            if part.report.try_send(cause).is_ok() {
                part.full_at = u64::MAX;
            }
        }
        self.give_back();
        self.serve();
    }

    /// Gives back what neither the ring nor the rules need.
    fn give_back(&mut self) {
        let watched = self.watched.as_ref();
        let watched = watched.map_or(u64::MAX, |read| read.load(Ordering::Acquire));
        let needed = self.ring.begin().min(watched);
        if needed.saturating_sub(self.given_back) >= self.hole {
            give_back(&self.source, self.given_back, needed);
            self.given_back = needed;
            self.passed.store(needed, Ordering::Release);
        }
    }

    /// Does what was ordered, as far as the blocks for it have come.
    fn serve(&mut self) {
        loop {
            if let Some(order) = self.due.take() {
                if self.ring.end() < order.moment.bytes {
                    self.due = Some(order);
                    return;
                }
                self.write(*order);
            }
            match self.ordered.try_recv() {
                Ok(order) => self.accept(order),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return,
            }
        }
    }

    /// Does what is still ordered when no more blocks come.
    fn serve_last(&mut self) {
        loop {
            if let Some(order) = self.due.take() {
                self.write(*order);
            }
            match self.ordered.recv() {
                Ok(order) => self.accept(order),
                Err(_) => return,
            }
        }
    }

    fn accept(&mut self, order: Order) {
        match order {
            Order::Hold => self.ring.hold(true),
            Order::Dump(order) => self.due = Some(order),
        }
    }

    fn write(&mut self, order: DumpOrder) {
        let DumpOrder {
            file,
            path,
            moment,
            about,
        } = order;
        let from = BufReader::with_capacity(BUFFER, &self.source);
        let result = dump(&self.ring, from, file, &moment, about.clone());
        self.ring.hold(false);
        if self.is_divided && result.is_ok() {
            self.ring.discard_dumped(&moment);
        }
        let end = self.ring.end();
        if let Some(part) = &mut self.part {
            part.full_at = match &result {
                Ok(_) => moment.bytes.saturating_add(part.bytes),
                // It is tried again, with what came since.
                Err(_) => end.saturating_add(part.bytes / 8),
            };
        }
        self.give_back();
        // The recorder may have given up.
        let _ = self.tell.send(Made {
            path,
            about,
            result,
        });
    }
}

/// Looks for what dumps are made for; shared by the thread that does so and the file that it reads.
#[derive(Clone)]
struct Watching {
    watch: Rc<RefCell<Watch>>,
    /// Number of bytes of the capture that were read.
    read: Arc<AtomicU64>,
    open: Arc<Mutex<Vec<OpenCall>>>,
    report: mpsc::Sender<Cause>,
}

/// Looks for what dumps are made for, until the recording is over.
fn watch(file: File, over: Arc<AtomicBool>, watching: &Watching) -> Result<(), SessionError> {
    let following = Following::new(file, over, watching.clone());
    let reader = CaptureReader::new(BufReader::with_capacity(BUFFER, following))?;
    for event in Timeline::follow(reader)?.with_accounts() {
        let cause = watching.watch.borrow_mut().event(&event?);
        watching.tell(cause);
    }
    Ok(())
}

impl Watching {
    fn tell(&self, cause: Option<Cause>) {
        if let Some(cause) = cause {
            // When too many wait already, one more says nothing new.
            let _ = self.report.try_send(cause);
        }
    }
}

impl Follower for Watching {
    fn passed(&mut self, _: &File, position: u64) {
        self.read.store(position, Ordering::Release);
    }

    fn caught_up(&mut self, time: u64) {
        let open = std::mem::take(&mut *self.open.lock().unwrap_or_else(PoisonError::into_inner));
        for call in open {
            let cause = self.watch.borrow_mut().open(&call, time);
            self.tell(cause);
        }
        let cause = self.watch.borrow_mut().quiet(time);
        self.tell(cause);
    }
}
