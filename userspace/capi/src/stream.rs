//! Streams of events.

use std::{
    ffi::{CString, c_char, c_int, c_void},
    fs::File,
    io::BufReader,
    os::unix::{ffi::OsStrExt as _, process::ExitStatusExt},
    panic::AssertUnwindSafe,
    ptr,
    sync::{Mutex, MutexGuard, PoisonError, TryLockError},
    time::Duration,
};

use gputrace::{Capture, Control, Error, Event as RustEvent, Events, Index, Session};

use crate::{
    error::{Status, c_text, fail, failed, guarded, text},
    event::{Argument, Current, Event},
    names::Names,
};

/// The events of a recording or of a capture.
///
/// One thread at a time takes events; a second one gets `GPUTRACE_STATUS_BUSY`, and so does a
/// callback of the stream itself. `gputrace_stream_stop`, `gputrace_stream_pause`,
/// `gputrace_stream_resume` and `gputrace_stream_line` can be called from any thread at any time, and
/// from callbacks.
#[derive(Debug)]
pub struct Stream {
    /// `None` for a capture.
    control: Option<Control>,
    /// Locked while an event is waited for, and during callbacks.
    source: Mutex<Source>,
    /// Not locked during callbacks, which may ask for arguments.
    seen: Mutex<Seen>,
    /// The line that was taken last.
    line: Mutex<CString>,
    /// Path of the capture that was kept.
    path: Mutex<CString>,
}

/// What is known of the events so far, and the current one.
#[derive(Debug, Default)]
struct Seen {
    index: Index,
    names: Names,
    current: Current,
}

#[derive(Debug)]
enum Source {
    Capture(Box<Events<BufReader<File>>>),
    Session(Box<Session>),
    /// The session was finished.
    Finished,
}

/// A range that was begun, and will end.
#[derive(Debug)]
pub struct Range(#[expect(dead_code, reason = "dropping it ends the range")] gputrace::Range);

/// How a recording ended.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Finished {
    /// Size of this structure, bytes.
    pub size: usize,
    /// Whether a program was launched and has ended.
    pub has_program: bool,
    /// Its status as `waitpid(2)` gives it: use `WIFEXITED` and so on.
    pub program_status: c_int,
    /// Path of the capture, if it was kept; else null. Valid until the stream is freed.
    pub capture: *const c_char,
}

/// Takes an event. `user` is what was given with it. Anything but 0 ends the taking of events.
///
/// It may call any function for other streams, and for its own stream those that may be called at
/// any time. It must not throw: the process is aborted then. While it blocks, further events wait
/// (up to 256 MiB of a recording; more is lost and counted).
pub type Callback = Option<unsafe extern "C" fn(event: *const Event, user: *mut c_void) -> c_int>;

impl Stream {
    fn new(source: Source, control: Option<Control>) -> *mut Self {
        Box::into_raw(Box::new(Self {
            control,
            source: Mutex::new(source),
            seen: Mutex::default(),
            line: Mutex::default(),
            path: Mutex::default(),
        }))
    }

    pub(crate) fn of_session(session: Session) -> *mut Self {
        let control = session.control();
        Self::new(Source::Session(Box::new(session)), Some(control))
    }

    /// Where events come from, if nobody else takes them.
    fn source(&self) -> Result<MutexGuard<'_, Source>, Status> {
        match self.source.try_lock() {
            Ok(source) => Ok(source),
            // A panic leaves at most the current event half done.
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => {
                Err(fail(Status::Busy, "the stream is in use by another caller"))
            }
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the next event that C can see.
    fn advance(&self, source: &mut Source) -> Result<*const Event, Status> {
        loop {
            let event = match source.next() {
                None => return Err(Status::End),
                Some(Err(error)) => return Err(failed(&error)),
                Some(Ok(event)) => event,
            };
            let Seen {
                index,
                names,
                current,
            } = &mut *self.seen();
            index.learn(&event);
            if current.set(&event, index, names) {
                current.keep(event);
                return Ok(current.get());
            }
        }
    }
}

impl Source {
    fn next(&mut self) -> Option<Result<RustEvent, Error>> {
        match self {
            Self::Capture(events) => events.next(),
            Self::Session(session) => session.events().next(),
            Self::Finished => None,
        }
    }
}

/// The stream behind a pointer.
///
/// # Safety
///
/// `stream` is null or came from this library, and is not freed during `'a`.
unsafe fn stream<'a>(stream: *const Stream) -> Result<&'a Stream, Status> {
    // SAFETY: by this function's contract.
    let stream = unsafe { stream.as_ref() };
    stream.ok_or_else(|| fail(Status::Argument, "the stream is null"))
}

/// Opens a capture (`.gtcap`). On success, `*stream` is its stream of events; free it with
/// `gputrace_stream_free`. No root is needed.
///
/// # Safety
///
/// `path` is a text; `place` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gputrace_capture_open(
    path: *const c_char,
    place: *mut *mut Stream,
) -> Status {
    // SAFETY: by this function's contract.
    let Some(path) = (unsafe { text(path, "the path") }) else {
        return Status::Argument;
    };
    // SAFETY: by this function's contract.
    let Some(place) = (unsafe { place.as_mut() }) else {
        return fail(Status::Argument, "the place for the stream is null");
    };
    guarded(AssertUnwindSafe(|| {
        match Capture::open(path).and_then(|capture| capture.events()) {
            Ok(events) => {
                *place = Stream::new(Source::Capture(Box::new(events)), None);
                Status::Ok
            }
            Err(error) => failed(&error),
        }
    }))
}

/// Takes the next event, and waits for it if the recording goes on. `GPUTRACE_STATUS_END`: there are
/// no more. `*event` is valid until the next event is taken or the stream is freed.
///
/// # Safety
///
/// `handle` is a stream that is not freed meanwhile; `event` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gputrace_stream_next(
    handle: *mut Stream,
    event: *mut *const Event,
) -> Status {
    // SAFETY: by this function's contract.
    let Some(event) = (unsafe { event.as_mut() }) else {
        return fail(Status::Argument, "the place for the event is null");
    };
    // SAFETY: by this function's contract.
    let stream = unsafe { stream(handle) };
    guarded(AssertUnwindSafe(|| {
        let next = stream.and_then(|stream| stream.advance(&mut *stream.source()?));
        *event = *next.as_ref().unwrap_or(&ptr::null());
        next.err().unwrap_or(Status::Ok)
    }))
}

/// Calls `callback` with each event until there are no more (`GPUTRACE_STATUS_END`) or it returns
/// anything but 0 (`GPUTRACE_STATUS_OK`). It is called by this thread.
///
/// # Safety
///
/// `handle` is a stream that is not freed meanwhile, not by the callback either.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gputrace_stream_each(
    handle: *mut Stream,
    callback: Callback,
    user: *mut c_void,
) -> Status {
    let Some(callback) = callback else {
        return fail(Status::Argument, "the callback is null");
    };
    // SAFETY: by this function's contract.
    let stream = unsafe { stream(handle) };
    guarded(AssertUnwindSafe(|| {
        let each = stream.and_then(|stream| {
            let mut source = stream.source()?;
            loop {
                let event = stream.advance(&mut source)?;
                // SAFETY: the caller says that it may be called so.
                if unsafe { callback(event, user) } != 0 {
                    return Ok(());
                }
            }
        });
        each.err().unwrap_or(Status::Ok)
    }))
}

/// The arguments of the stream's current event, in order of declaration. `*arguments` is null if it
/// is not a call, or has none. They are made when they are asked for. For the thread that takes
/// events, also from its callback. Valid until the next event is taken.
///
/// # Safety
///
/// `handle` is a stream that is not freed meanwhile; the other pointers can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gputrace_stream_arguments(
    handle: *mut Stream,
    arguments: *mut *const Argument,
    count: *mut usize,
) -> Status {
    // SAFETY: by this function's contract.
    let (arguments, count) = (unsafe { arguments.as_mut() }, unsafe { count.as_mut() });
    let (Some(arguments), Some(count)) = (arguments, count) else {
        return fail(Status::Argument, "the place for the arguments is null");
    };
    (*arguments, *count) = (ptr::null(), 0);
    // SAFETY: by this function's contract.
    let stream = match unsafe { stream(handle) } {
        Ok(stream) => stream,
        Err(status) => return status,
    };
    guarded(AssertUnwindSafe(|| {
        let Seen { current, index, .. } = &mut *stream.seen();
        let found = current.arguments(index);
        if !found.is_empty() {
            (*arguments, *count) = (found.as_ptr(), found.len());
        }
        Status::Ok
    }))
}

/// Does something with the control of a session.
///
/// # Safety
///
/// As [`stream`].
unsafe fn control(handle: *mut Stream, action: impl FnOnce(&Control)) -> Status {
    // SAFETY: by this function's contract.
    match unsafe { stream(handle) } {
        Err(status) => status,
        Ok(stream) => match &stream.control {
            None => fail(
                Status::Argument,
                "the stream is of a capture, not of a recording",
            ),
            Some(control) => guarded(AssertUnwindSafe(|| {
                action(control);
                Status::Ok
            })),
        },
    }
}

/// Ends the recording. What was recorded until then is still delivered; then the events end. A
/// launched program goes on, untraced. From any thread.
///
/// # Safety
///
/// `handle` is a stream that is not freed meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gputrace_stream_stop(handle: *mut Stream) -> Status {
    // SAFETY: by this function's contract.
    unsafe { control(handle, Control::stop) }
}

/// Records nothing that begins from now on, until `gputrace_stream_resume`. From any thread.
///
/// # Safety
///
/// `handle` is a stream that is not freed meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gputrace_stream_pause(handle: *mut Stream) -> Status {
    // SAFETY: by this function's contract.
    unsafe { control(handle, Control::pause) }
}

/// Records again what begins from now on. From any thread.
///
/// # Safety
///
/// `handle` is a stream that is not freed meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gputrace_stream_resume(handle: *mut Stream) -> Status {
    // SAFETY: by this function's contract.
    unsafe { control(handle, Control::resume) }
}

/// Marks this moment in the recording, with a text: a marker of this process and thread, in the
/// events and in every output. From any thread.
///
/// # Safety
///
/// `handle` is a stream that is not freed meanwhile; `label` is a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gputrace_stream_mark(handle: *mut Stream, label: *const c_char) -> Status {
    // SAFETY: by this function's contract.
    let Some(label) = (unsafe { text(label, "the text") }) else {
        return Status::Argument;
    };
    // SAFETY: by this function's contract.
    unsafe { control(handle, |control| control.mark(label)) }
}

/// Begins a range in the recording, with a text; `*range` is what `gputrace_range_end` needs. From
/// any thread.
///
/// # Safety
///
/// `handle` is a stream that is not freed meanwhile; `label` is a text; `range` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gputrace_range_begin(
    handle: *mut Stream,
    label: *const c_char,
    range: *mut *mut Range,
) -> Status {
    // SAFETY: by this function's contract.
    let Some(label) = (unsafe { text(label, "the text") }) else {
        return Status::Argument;
    };
    // SAFETY: by this function's contract.
    let Some(range) = (unsafe { range.as_mut() }) else {
        return fail(Status::Argument, "the place for the range is null");
    };
    let begin = |control: &Control| {
        *range = Box::into_raw(Box::new(Range(control.range(label))));
    };
    // SAFETY: by this function's contract.
    unsafe { control(handle, begin) }
}

/// Ends a range and frees it. Its stream may have been freed already. Null is allowed.
///
/// # Safety
///
/// `range` is null or came from `gputrace_range_begin`, and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gputrace_range_end(range: *mut Range) {
    if !range.is_null() {
        guarded(AssertUnwindSafe(|| {
            // SAFETY: it came from `Box::into_raw`, and nobody uses it any more.
            drop(unsafe { Box::from_raw(range) });
            Status::Ok
        }));
    }
}

/// Waits until every call that had ended before is delivered, at most `limit_ms` milliseconds. Call
/// it from another thread than the one that takes events. `GPUTRACE_STATUS_END`: the recording has
/// ended. `GPUTRACE_STATUS_BUSY`: the limit was reached.
///
/// # Safety
///
/// `handle` is a stream that is not freed meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gputrace_stream_flush(handle: *mut Stream, limit_ms: u64) -> Status {
    let mut flushed = Status::Ok;
    // SAFETY: by this function's contract.
    let status = unsafe {
        control(handle, |control| {
            if !control.flush(Duration::from_millis(limit_ms)) {
                flushed = if control.is_over() {
                    Status::End
                } else {
                    fail(Status::Busy, "the events were not taken in time")
                };
            }
        })
    };
    if status == Status::Ok {
        flushed
    } else {
        status
    }
}

/// Takes the next line that the recorder has written for people; null if there is none. It is valid
/// until the next line is taken. From any thread, but only one at a time.
///
/// # Safety
///
/// `handle` is a stream that is not freed meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gputrace_stream_line(handle: *mut Stream) -> *const c_char {
    // SAFETY: by this function's contract.
    let Ok(stream) = (unsafe { stream(handle) }) else {
        return ptr::null();
    };
    let next = stream.control.as_ref().and_then(Control::take_line);
    let (Some(next), Ok(mut line)) = (next, stream.line.lock()) else {
        return ptr::null();
    };
    *line = c_text(&next);
    line.as_ptr()
}

/// Ends the recording if it has not ended, and waits until nothing of it is left but its files.
/// Events that were not taken are given up. `finished` may be null.
///
/// # Safety
///
/// `handle` is a stream that is not freed meanwhile; `finished` can be written or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gputrace_stream_finish(
    handle: *mut Stream,
    finished: *mut Finished,
) -> Status {
    // SAFETY: by this function's contract.
    let finished = unsafe { finished.as_mut() };
    // SAFETY: by this function's contract.
    let stream = unsafe { stream(handle) };
    guarded(AssertUnwindSafe(|| {
        let session = stream.and_then(|stream| {
            let mut source = stream.source()?;
            match std::mem::replace(&mut *source, Source::Finished) {
                Source::Session(session) => Ok((stream, session)),
                other => {
                    *source = other;
                    Err(fail(Status::Argument, "there is no recording to finish"))
                }
            }
        });
        let (stream, session) = match session {
            Ok(session) => session,
            Err(status) => return status,
        };
        let ended = match session.finish() {
            Ok(ended) => ended,
            Err(error) => return failed(&error),
        };
        let capture = ended.capture.map_or(ptr::null(), |path| {
            let mut kept = stream.path.lock().unwrap_or_else(PoisonError::into_inner);
            // A path has no byte 0.
            *kept = CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
            kept.as_ptr()
        });
        if let Some(finished) = finished {
            *finished = Finished {
                size: size_of::<Finished>(),
                has_program: ended.program.is_some(),
                program_status: ended.program.map_or(0, ExitStatusExt::into_raw),
                capture,
            };
        }
        Status::Ok
    }))
}

/// Frees a stream. A recording that goes on is ended first, and nothing of it is left but its files.
/// Null is allowed.
///
/// # Safety
///
/// `handle` is null or a stream that nobody uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gputrace_stream_free(handle: *mut Stream) {
    if !handle.is_null() {
        guarded(AssertUnwindSafe(|| {
            // SAFETY: it came from `Box::into_raw`, and nobody uses it any more.
            drop(unsafe { Box::from_raw(handle) });
            Status::Ok
        }));
    }
}
