//! Events as C sees them.

use std::{
    ffi::{CString, c_char},
    ptr,
};

use gputrace::{
    Event as RustEvent, Index, Ledger, args,
    event::{CallEnd as RustEnd, ProcessInfo, RangeKind, ThreadInfo},
    gpu::{GpuTime, Quality as RustQuality},
};

use crate::{error::c_text, names::Names};

/// What an event is. The member of the same name of `gputrace_event` is then not null.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventKind {
    /// A call, or a marker, that has ended. Calls of one thread come in order of time.
    #[default]
    Call = 1,
    /// A kernel dispatch about whose times nothing more can become known.
    Dispatch = 2,
    /// A copy about whose times nothing more can become known.
    Copy = 3,
    /// A process, when it is first known or changes.
    Process = 4,
    /// A thread, when it is first known or renamed.
    Thread = 5,
    /// A remark of the recorder; `text`.
    Notice = 6,
    /// The account of what was seen, recorded and lost. It is the last event but one.
    Account = 7,
    /// The orderly end of the recording. The last event.
    End = 8,
}

/// How well the times of work are known.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Quality {
    /// Only the time of submission is known.
    #[default]
    Submitted = 0,
    /// Begin and end lie within their windows.
    Bounded = 1,
    /// Begin and end are estimates within their windows.
    Sampled = 2,
    /// The GPU wrote them.
    Exact = 3,
}

/// How a call ended.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CallEnd {
    /// It returned.
    #[default]
    Returned = 0,
    /// It was open when its thread ended.
    ThreadExited = 1,
    /// It was open when its process executed another program.
    Executed = 2,
    /// It was open when the recording stopped.
    RecordingStopped = 3,
    /// Its end was not observed; `end_ns` is `begin_ns`.
    NotSeen = 4,
}

/// An API call or a marker.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Size of this structure, bytes.
    pub size: usize,
    /// Number of the domain; see `gputrace_domain_name`.
    pub domain: u32,
    /// Process id on the host.
    pub pid: u32,
    /// Thread id on the host.
    pub tid: u32,
    /// CPU on which it began.
    pub cpu: u32,
    /// Name of the function, or text of the marker. Valid as long as the stream.
    pub name: *const c_char,
    /// Whether it is a marker.
    pub is_marker: bool,
    /// Whether `external_correlation_id` is set.
    pub has_external_correlation_id: bool,
    /// How it ended.
    pub ended: CallEnd,
    /// ns, `CLOCK_BOOTTIME`.
    pub begin_ns: u64,
    /// ns, `CLOCK_BOOTTIME`, not before `begin_ns`.
    pub end_ns: u64,
    /// Unique in the recording, never 0.
    pub correlation_id: u64,
    /// That of the call around it on the same thread; 0 if none.
    pub parent_correlation_id: u64,
    /// The id that the program had set for its work.
    pub external_correlation_id: u64,
    /// The content of the return register, if it returned.
    pub result: u64,
    /// Number of the first stream that it was given; 0 for a null stream or none.
    pub stream_id: u32,
}

/// An argument of a call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Argument {
    /// Its name. Valid until the stream's next event is taken.
    pub name: *const c_char,
    /// Its value as text: numbers, names of enumerators, strings. Valid as `name`.
    pub value: *const c_char,
}

/// When work ran.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Time {
    /// How well it is known.
    pub quality: Quality,
    /// Whether `begin_ns` and `end_ns` are known. If not, they are 0, and the windows are all that
    /// is known.
    pub is_known: bool,
    /// When it was submitted; ns, `CLOCK_BOOTTIME`, like all that follow.
    pub submitted_ns: u64,
    /// Its begin.
    pub begin_ns: u64,
    /// Its end.
    pub end_ns: u64,
    /// It did not begin before this.
    pub begin_earliest_ns: u64,
    /// It began no later than this; `UINT64_MAX` if that is not known.
    pub begin_latest_ns: u64,
    /// It did not end before this.
    pub end_earliest_ns: u64,
    /// It ended no later than this; `UINT64_MAX` if that is not known.
    pub end_latest_ns: u64,
}

/// A kernel dispatch.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Dispatch {
    /// Size of this structure, bytes.
    pub size: usize,
    /// Number in the recording, from 1.
    pub id: u64,
    /// Process id on the host.
    pub pid: u32,
    /// Thread that submitted it; 0 if unknown.
    pub tid: u32,
    /// Name of the kernel, demangled; a description if it is not known. Valid until the stream's
    /// next event is taken.
    pub kernel_name: *const c_char,
    /// Correlation id of the call by which programs know it: the innermost that is not HSA's; 0 if
    /// none is recorded.
    pub correlation_id: u64,
    /// The id that the program had set for its work.
    pub external_correlation_id: u64,
    /// Whether `external_correlation_id` is set.
    pub has_external_correlation_id: bool,
    /// Whether `node_id` is known.
    pub has_node_id: bool,
    /// KFD topology node of the agent.
    pub node_id: u32,
    /// `hsa_queue_t::id`.
    pub queue_id: u64,
    /// Index of its packet in the queue.
    pub packet_index: u64,
    /// Number of its stream; 0 for a null or unknown stream.
    pub stream_id: u32,
    /// Work-items.
    pub grid_size: [u32; 3],
    /// Work-items per workgroup.
    pub workgroup_size: [u32; 3],
    /// When it ran.
    pub time: Time,
}

/// A copy.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Copy {
    /// Size of this structure, bytes.
    pub size: usize,
    /// Number in the recording, from 1.
    pub id: u64,
    /// Process id on the host.
    pub pid: u32,
    /// Thread that submitted it; 0 if unknown.
    pub tid: u32,
    /// Its direction as rocprofiler spells it, e.g. `MEMORY_COPY_HOST_TO_DEVICE`. It never changes.
    pub direction: *const c_char,
    /// As for dispatches.
    pub correlation_id: u64,
    /// The id that the program had set for its work.
    pub external_correlation_id: u64,
    /// Whether `external_correlation_id` is set.
    pub has_external_correlation_id: bool,
    /// Number of its stream; 0 for a null or unknown stream.
    pub stream_id: u32,
    /// Bytes.
    pub bytes: u64,
    /// Source address.
    pub source: u64,
    /// Destination address.
    pub destination: u64,
    /// When it ran.
    pub time: Time,
}

/// A process.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Process {
    /// Size of this structure, bytes.
    pub size: usize,
    /// Process id on the host.
    pub pid: u32,
    /// That of its parent; 0 if unknown.
    pub parent: u32,
    /// Its name. Valid until the stream's next event is taken.
    pub name: *const c_char,
    /// Its command line, words separated by spaces. Valid as `name`.
    pub command: *const c_char,
}

/// A thread.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Thread {
    /// Size of this structure, bytes.
    pub size: usize,
    /// Its process.
    pub pid: u32,
    /// Thread id on the host.
    pub tid: u32,
    /// Its name. Valid until the stream's next event is taken.
    pub name: *const c_char,
}

/// What was seen, and what became of it: `seen = written + unfinished + dropped`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Account {
    /// Size of this structure, bytes.
    pub size: usize,
    /// Whether it is the final account of a recording that ended in order.
    pub is_complete: bool,
    /// Calls, kernels, copies and other records that were seen.
    pub seen: u64,
    /// Recorded whole.
    pub written: u64,
    /// Recorded without an end.
    pub unfinished: u64,
    /// Lost.
    pub dropped: u64,
    /// Processes whose first calls may be missing from all of these numbers.
    pub late_processes: u64,
    /// Child processes that were not traced because there was no room.
    pub untraced_processes: u64,
}

/// An event. Everything it points to is valid until the next event of its stream is taken, unless
/// said otherwise.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// Size of this structure, bytes.
    pub size: usize,
    /// Which of the following is set.
    pub kind: EventKind,
    /// A call or marker.
    pub call: *const Call,
    /// A kernel dispatch.
    pub dispatch: *const Dispatch,
    /// A copy.
    pub copy: *const Copy,
    /// A process.
    pub process: *const Process,
    /// A thread.
    pub thread: *const Thread,
    /// An account.
    pub account: *const Account,
    /// The text of a notice.
    pub text: *const c_char,
}

impl Event {
    const EMPTY: Self = Self {
        size: size_of::<Self>(),
        kind: EventKind::End,
        call: ptr::null(),
        dispatch: ptr::null(),
        copy: ptr::null(),
        process: ptr::null(),
        thread: ptr::null(),
        account: ptr::null(),
        text: ptr::null(),
    };
}

/// The structure that an event points to.
#[derive(Debug)]
enum Body {
    None,
    Call(Call),
    Dispatch(Dispatch),
    Copy(Copy),
    Process(Process),
    Thread(Thread),
    Account(Account),
}

/// The current event of a stream. It must not move while C uses it.
#[derive(Debug)]
pub(crate) struct Current {
    event: Event,
    body: Body,
    /// Texts that the event points to.
    texts: [CString; 2],
    /// The event itself, as far as its arguments are made of it.
    call: Option<gputrace::Call>,
    arguments: Vec<Argument>,
    argument_texts: Vec<CString>,
}

impl Default for Current {
    fn default() -> Self {
        Self {
            event: Event::EMPTY,
            body: Body::None,
            texts: Default::default(),
            call: None,
            arguments: Vec::new(),
            argument_texts: Vec::new(),
        }
    }
}

impl Current {
    /// Makes `event` the current one. Returns `false` if it says nothing to C.
    pub(crate) fn set(&mut self, event: &RustEvent, index: &Index, names: &mut Names) -> bool {
        self.arguments.clear();
        self.argument_texts.clear();
        self.call = None;
        self.event = Event::EMPTY;
        self.body = Body::None;
        let (kind, body) = match event {
            RustEvent::Call(call) => (EventKind::Call, Body::Call(of_call(call, index, names))),
            RustEvent::Dispatch(one) => {
                let name = names.of_dispatch(one, index);
                (
                    EventKind::Dispatch,
                    Body::Dispatch(of_dispatch(one, index, name)),
                )
            }
            RustEvent::Copy(copy) => (EventKind::Copy, Body::Copy(of_copy(copy))),
            RustEvent::Process(info) => (EventKind::Process, Body::Process(self.of_process(info))),
            RustEvent::Thread(info) => (EventKind::Thread, Body::Thread(self.of_thread(info))),
            RustEvent::Ledger(ledger) => (EventKind::Account, Body::Account(of_ledger(ledger))),
            RustEvent::Notice(notice) => {
                let [text, _] = &mut self.texts;
                *text = c_text(&notice.text);
                self.event.text = text.as_ptr();
                (EventKind::Notice, Body::None)
            }
            RustEvent::End(_) => (EventKind::End, Body::None),
            RustEvent::Function(info) => {
                names.renew_function(info.function.id);
                return false;
            }
            _ => return false,
        };
        self.event.kind = kind;
        self.body = body;
        true
    }

    /// Keeps the call of which arguments may be asked for.
    pub(crate) fn keep(&mut self, event: RustEvent) {
        if let RustEvent::Call(call) = event {
            self.call = Some(call);
        }
    }

    /// The current event. It is valid as long as this does not move or change.
    pub(crate) fn get(&mut self) -> *const Event {
        match &self.body {
            Body::None => {}
            Body::Call(call) => self.event.call = call,
            Body::Dispatch(dispatch) => self.event.dispatch = dispatch,
            Body::Copy(copy) => self.event.copy = copy,
            Body::Process(process) => self.event.process = process,
            Body::Thread(thread) => self.event.thread = thread,
            Body::Account(account) => self.event.account = account,
        }
        &raw const self.event
    }

    /// The arguments of the current event, if it is a call.
    pub(crate) fn arguments(&mut self, index: &Index) -> &[Argument] {
        // The second time they are there already.
        let call = self.call.take();
        let function = call.as_ref().and_then(|call| index.function(call.function));
        if let Some((call, function)) = call.as_ref().zip(function) {
            for (name, value) in args::decoded(function, call) {
                let (name, value) = (c_text(name), c_text(&value.to_string()));
                // The texts stay where they are when the list grows.
                self.arguments.push(Argument {
                    name: name.as_ptr(),
                    value: value.as_ptr(),
                });
                self.argument_texts.extend([name, value]);
            }
        }
        &self.arguments
    }

    fn of_process(&mut self, info: &ProcessInfo) -> Process {
        self.texts = [c_text(&info.name), c_text(&info.command.join(" "))];
        let [name, command] = &self.texts;
        Process {
            size: size_of::<Process>(),
            pid: info.pid,
            parent: info.parent,
            name: name.as_ptr(),
            command: command.as_ptr(),
        }
    }

    fn of_thread(&mut self, info: &ThreadInfo) -> Thread {
        let [name, _] = &mut self.texts;
        *name = c_text(&info.name);
        Thread {
            size: size_of::<Thread>(),
            pid: info.pid,
            tid: info.tid,
            name: name.as_ptr(),
        }
    }
}

fn of_call(call: &gputrace::Call, index: &Index, names: &mut Names) -> Call {
    let (ended, result) = match call.how {
        RustEnd::Returned(result) => (CallEnd::Returned, result),
        RustEnd::ThreadExited => (CallEnd::ThreadExited, 0),
        RustEnd::Executed => (CallEnd::Executed, 0),
        RustEnd::RecordingStopped => (CallEnd::RecordingStopped, 0),
        RustEnd::NotSeen => (CallEnd::NotSeen, 0),
    };
    let range: Option<RangeKind> = index.function(call.function).and_then(|info| info.range);
    Call {
        size: size_of::<Call>(),
        domain: call.domain.into(),
        pid: call.pid,
        tid: call.tid,
        cpu: call.cpu,
        name: names.of_call(call, index),
        is_marker: range.is_some(),
        has_external_correlation_id: call.external.is_some(),
        ended,
        begin_ns: call.begin,
        end_ns: call.end,
        correlation_id: call.correlation,
        parent_correlation_id: call.parent,
        external_correlation_id: call.external.unwrap_or(0),
        result,
        stream_id: call.stream_id,
    }
}

fn of_dispatch(one: &gputrace::Dispatch, index: &Index, name: *const c_char) -> Dispatch {
    let queue = index.queue(one.queue);
    let node = queue.and_then(|queue| queue.node_id);
    Dispatch {
        size: size_of::<Dispatch>(),
        id: one.id,
        pid: one.origin.pid,
        tid: one.origin.tid,
        kernel_name: name,
        correlation_id: one.origin.caller,
        external_correlation_id: one.origin.external.unwrap_or(0),
        has_external_correlation_id: one.origin.external.is_some(),
        has_node_id: node.is_some(),
        node_id: node.unwrap_or(0),
        queue_id: queue.map_or(0, |queue| queue.id),
        packet_index: one.index,
        stream_id: one.origin.stream_id,
        grid_size: one.grid,
        workgroup_size: one.workgroup,
        time: of_time(one.origin.time, &one.time),
    }
}

fn of_copy(copy: &gputrace::Copy) -> Copy {
    Copy {
        size: size_of::<Copy>(),
        id: copy.id,
        pid: copy.origin.pid,
        tid: copy.origin.tid,
        direction: direction(copy.direction),
        correlation_id: copy.origin.caller,
        external_correlation_id: copy.origin.external.unwrap_or(0),
        has_external_correlation_id: copy.origin.external.is_some(),
        stream_id: copy.origin.stream_id,
        bytes: copy.bytes,
        source: copy.source,
        destination: copy.destination,
        time: of_time(copy.origin.time, &copy.time),
    }
}

fn direction(direction: gputrace::gpu::Direction) -> *const c_char {
    use gputrace::gpu::Direction;
    let name = match direction {
        Direction::Unknown => c"MEMORY_COPY_NONE",
        Direction::HostToHost => c"MEMORY_COPY_HOST_TO_HOST",
        Direction::HostToDevice => c"MEMORY_COPY_HOST_TO_DEVICE",
        Direction::DeviceToHost => c"MEMORY_COPY_DEVICE_TO_HOST",
        Direction::DeviceToDevice => c"MEMORY_COPY_DEVICE_TO_DEVICE",
    };
    name.as_ptr()
}

fn of_time(submitted: u64, time: &GpuTime) -> Time {
    let known = time.drawn_begin().zip(time.drawn_end());
    let (begin, end) = known.unwrap_or((0, 0));
    Time {
        quality: match time.quality {
            RustQuality::Submitted => Quality::Submitted,
            RustQuality::Bounded => Quality::Bounded,
            RustQuality::Sampled => Quality::Sampled,
            RustQuality::Exact => Quality::Exact,
        },
        is_known: known.is_some(),
        submitted_ns: submitted,
        begin_ns: begin,
        end_ns: end,
        begin_earliest_ns: time.begin_window.earliest,
        begin_latest_ns: time.begin_window.latest.unwrap_or(u64::MAX),
        end_earliest_ns: time.end_window.earliest,
        end_latest_ns: time.end_window.latest.unwrap_or(u64::MAX),
    }
}

fn of_ledger(ledger: &Ledger) -> Account {
    let total = ledger.total();
    Account {
        size: size_of::<Account>(),
        is_complete: ledger.complete,
        seen: total.seen,
        written: total.written,
        unfinished: total.unfinished,
        dropped: total.lost(),
        late_processes: ledger.late_processes,
        untraced_processes: ledger.untraced_processes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directions_have_one_name() {
        use gputrace::gpu::Direction;
        for one in [
            Direction::Unknown,
            Direction::HostToHost,
            Direction::HostToDevice,
            Direction::DeviceToHost,
            Direction::DeviceToDevice,
        ] {
            // SAFETY: it is a constant text.
            let name = unsafe { std::ffi::CStr::from_ptr(direction(one)) };
            assert_eq!(name.to_str(), Ok(one.name()));
        }
    }
}
