//! Measures how fast the library for authors of tools delivers the events of a capture.

use std::{
    ffi::{CString, c_int, c_void},
    fs,
    hint::black_box,
    ops::ControlFlow,
    os::unix::ffi::OsStrExt as _,
    path::Path,
    ptr,
    time::Instant,
};

use anyhow::{Result, ensure};
use gputrace::{Capture, Event, Index};
use gputrace_c::{
    error::Status,
    event,
    stream::{
        Stream, gputrace_capture_open, gputrace_stream_each, gputrace_stream_free,
        gputrace_stream_next,
    },
};

use crate::{
    Options, made,
    report::{Table, grouped, median},
};

/// Number of times that each way is measured, alternating with the others.
const TURNS: usize = 3;

/// A way to read a capture; returns the number of calls, dispatches and copies.
type Way = fn(&Path) -> Result<u64>;

const WAYS: [(&str, Way); 4] = [
    ("Rust, events by value", by_value),
    ("Rust, borrowed, with an index", borrowed),
    ("C, callback", callback),
    ("C, one by one", one_by_one),
];

/// Prints records per second for each way.
///
/// # Errors
///
/// When the capture cannot be made or read, or the ways find different numbers of records.
pub(crate) fn measure(options: &Options) -> Result<()> {
    let (calls, dispatches, copies) = made::ROUND;
    let rounds = if options.quick { 30_000 } else { 1_000_000 };
    let records = rounds * (calls + dispatches + copies);
    let place = tempfile::tempdir()?;
    let capture = place.path().join("made.gtcap");
    made::capture(&capture, rounds)?;
    let mut seconds = vec![Vec::new(); WAYS.len()];
    for _ in 0..if options.quick { 1 } else { TURNS } {
        for ((_, way), seconds) in WAYS.iter().zip(&mut seconds) {
            let begin = Instant::now();
            let found = way(&capture)?;
            seconds.push(begin.elapsed().as_secs_f64());
            ensure!(found == records, "{found} records of {records} were found");
        }
    }
    let mut table = Table::new(
        "Events of the library",
        &[
            "way",
            "records",
            "seconds",
            "records/s",
            "against the first",
        ],
    );
    let first = seconds.first().map_or(1.0, |seconds| median(seconds));
    for ((name, _), seconds) in WAYS.iter().zip(&seconds) {
        let seconds = median(seconds);
        table.row(&[
            name,
            &grouped(records),
            &format!("{seconds:.2}"),
            &grouped((records as f64 / seconds) as u64),
            &format!("{:.2}", seconds / first),
        ]);
    }
    table.note(format!(
        "In one thread, medians of {TURNS} turns. The capture ({} KiB) is the one of `Capture to outputs`, \
         whose `(reading)` is the command line's own figure.",
        grouped(fs::metadata(&capture)?.len() / 1024)
    ));
    table.print()
}

fn is_record(event: &Event) -> bool {
    matches!(event, Event::Call(_) | Event::Dispatch(_) | Event::Copy(_))
}

fn by_value(capture: &Path) -> Result<u64> {
    let mut records = 0;
    for event in Capture::open(capture)?.events()? {
        records += u64::from(is_record(&black_box(event?)));
    }
    Ok(records)
}

fn borrowed(capture: &Path) -> Result<u64> {
    let mut records = 0;
    let mut take = |event: &Event, index: &Index| {
        records += u64::from(is_record(event));
        if let Event::Call(call) = event {
            black_box(index.call_name(call));
        }
        ControlFlow::Continue(())
    };
    let _ = Capture::open(capture)?.events()?.each(&mut take)?;
    Ok(records)
}

/// A stream of C, which is freed at the end.
struct Opened(*mut Stream);

impl Opened {
    fn new(capture: &Path) -> Result<Self> {
        let path = CString::new(capture.as_os_str().as_bytes())?;
        let mut stream = ptr::null_mut();
        // SAFETY: a text, and a place that can be written.
        let status = unsafe { gputrace_capture_open(path.as_ptr(), &raw mut stream) };
        ensure!(status == Status::Ok, "the capture cannot be opened");
        Ok(Self(stream))
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: nobody uses it any more.
        unsafe { gputrace_stream_free(self.0) };
    }
}

fn counts(event: &event::Event) -> bool {
    use event::EventKind::{Call, Copy, Dispatch};
    matches!(event.kind, Call | Dispatch | Copy)
}

/// Counts an event.
unsafe extern "C" fn count(event: *const event::Event, user: *mut c_void) -> c_int {
    // SAFETY: the library passes a valid event.
    let is_record = unsafe { event.as_ref() }.is_some_and(counts);
    // SAFETY: `callback` passes its own counter.
    let records = unsafe { user.cast::<u64>().as_mut() };
    if let Some(records) = records {
        *records += u64::from(is_record);
    }
    0
}

fn callback(capture: &Path) -> Result<u64> {
    let stream = Opened::new(capture)?;
    let mut records = 0_u64;
    let user = (&raw mut records).cast();
    // SAFETY: the stream is open; `count` gets its counter.
    let status = unsafe { gputrace_stream_each(stream.0, Some(count), user) };
    ensure!(status == Status::End, "the capture cannot be read");
    Ok(records)
}

fn one_by_one(capture: &Path) -> Result<u64> {
    let stream = Opened::new(capture)?;
    let mut records = 0;
    loop {
        let mut event = ptr::null();
        // SAFETY: the stream is open, and the place can be written.
        match unsafe { gputrace_stream_next(stream.0, &raw mut event) } {
            Status::Ok => {
                // SAFETY: it is valid until the next one is taken.
                records += u64::from(unsafe { event.as_ref() }.is_some_and(counts));
            }
            Status::End => return Ok(records),
            status => anyhow::bail!("the capture cannot be read: {status:?}"),
        }
    }
}
