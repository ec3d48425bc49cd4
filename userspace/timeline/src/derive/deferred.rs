//! Finds the launches of dispatches that HIP submits from its own threads.
//!
//! With `AMD_DIRECT_DISPATCH=0` a launch only puts a command into its stream, and a thread that HIP
//! keeps for the stream submits it later. That thread has no open call of the program, so the
//! probes see none. But each stream has one such thread, which keeps the stream's order. So when a
//! process leaves its dispatches to such threads:
//!
//! * A thread's stream is found from its first dispatches. It is the only stream whose launches, in
//!   order, have the same sizes, began before the dispatches, and use the same kernel wherever they
//!   name the same function. HIP creates the thread of a null stream within the first call that
//!   needs it, and the thread of another stream within the call that creates the stream. So for a
//!   thread that was created within a call, that call's stream is tried first.
//! * From then on, each of the program's kernels belongs to the next launch into the stream.
//!
//! Only what is certain is claimed: while several streams fit, dispatches stay without a call, and
//! a contradiction ends all claims for the stream. Only processes that began during the recording
//! are considered, because older ones may have pending launches that were not recorded.

use std::collections::VecDeque;

use foldhash::{HashMap, HashSet};
use gputrace_abi::{REGISTER_ARGS, domain::Domain};
use gputrace_catalog::{
    launch::{self, Sizes},
    signature, stream_word,
};

use crate::model::{
    event::{Call, CallEnd, Event, FunctionInfo, LifetimeChange},
    gpu::Dispatch,
};

/// Maximum number of launches per stream that wait for their dispatch.
const MOST_WAITING: usize = 1 << 16;

/// Maximum number of dispatches used to find a thread's stream.
const MOST_TRIED: usize = 256;

/// State for dispatches that HIP's own threads submit.
#[derive(Debug, Default)]
pub(crate) struct Deferred {
    /// HIP functions, by id.
    functions: HashMap<u32, Function>,
    /// Ids of the runtime's own kernels, which no call launched.
    internal: HashSet<u32>,
    processes: HashMap<u32, Process>,
}

/// A function of HIP.
#[derive(Clone, Copy, Debug)]
struct Function {
    /// Its effect on the kernels of a stream, and whether its null stream is the thread's own.
    launch: Option<(launch::Launch, bool)>,
    stream: Option<u8>,
    /// Whether it may create a stream other than a null stream, or use one of the runtime's own.
    other_streams: bool,
}

#[derive(Debug, Default)]
struct Process {
    /// The program's threads that call HIP.
    callers: HashSet<u32>,
    /// Whether such threads submit their kernels themselves, as HIP does by default.
    direct: bool,
    /// The stream that currently has a handle, as an index into `streams`.
    current: HashMap<Handle, usize>,
    streams: Vec<Stream>,
    workers: HashMap<u32, Worker>,
    /// Streams whose launches are captured into a graph instead of being run.
    capturing: HashSet<Handle>,
    kernels: Kernels,
    /// The end of each thread's last launch: calls before it are HIP's own.
    inside: HashMap<u32, u64>,
    /// The device of each thread that has set one.
    devices: HashMap<u32, u32>,
    /// Each thread's last call: begin, end and its stream, as an index into `streams`.
    last: HashMap<u32, (u64, u64, Option<usize>)>,
    /// New threads whose enclosing call has not been seen yet.
    made: Vec<Made>,
    /// The stream of the call within which a thread was created, as an index into `streams`.
    /// Dispatches are often seen only after the stream has lost its handle.
    made_for: HashMap<u32, usize>,
}

/// A new thread with its creator and time.
#[derive(Clone, Copy, Debug)]
struct Made {
    tid: u32,
    creator: u32,
    time: u64,
}

/// The kernel that a function handle or host function stands for on a GPU, where certain.
type Kernels = HashMap<(u64, Option<u32>), u64>;

/// A stream as the program identifies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Handle {
    /// `hipStream_t`.
    Stream(u64),
    /// The null stream of a device.
    Null(u32),
    /// A thread's own null stream.
    OfThread(u32),
}

#[derive(Debug)]
struct Stream {
    handle: Handle,
    waiting: VecDeque<Launch>,
    /// Whether a thread is known to work for it.
    taken: bool,
    /// Whether its order is no longer known.
    lost: bool,
}

/// A launch that has not been matched.
#[derive(Clone, Copy, Debug)]
struct Launch {
    correlation: u64,
    function: u64,
    tid: u32,
    begin: u64,
    end: u64,
    grid: [u32; 3],
    workgroup: [u32; 3],
}

/// A thread that submits dispatches.
#[derive(Debug)]
enum Worker {
    /// Its stream is not known yet; the dispatches so far.
    New(Vec<Submitted>),
    /// It works for this stream, an index into `streams`.
    For(usize),
    /// Its stream cannot be determined.
    Lost,
}

#[derive(Clone, Copy, Debug)]
struct Submitted {
    time: u64,
    node: Option<u32>,
    kernel_object: u64,
    grid: [u32; 3],
    workgroup: [u32; 3],
}

impl Deferred {
    /// Learns from an event before it is emitted; a dispatch gets its launching call.
    pub(crate) fn seen(&mut self, event: &mut Event) {
        match event {
            Event::Function(function) => self.function(function),
            Event::Call(call) => self.call(call),
            Event::Kernel(kernel) if kernel.runtime.is_some() => {
                self.internal.insert(kernel.id);
            }
            Event::Dispatch(dispatch) => self.dispatch(dispatch),
            Event::Lifetime(lifetime) => match lifetime.what {
                LifetimeChange::Executed { .. } | LifetimeChange::ProcessStarted { .. } => {
                    self.processes.insert(lifetime.pid, Process::default());
                }
                LifetimeChange::ThreadStarted { creator } => {
                    let process = self.processes.get_mut(&lifetime.pid);
                    if let Some(process) = process.filter(|process| !process.direct) {
                        process.made(Made {
                            tid: lifetime.tid,
                            creator,
                            time: lifetime.time,
                        });
                    }
                }
                _ => {}
            },
            _ => {}
        }
    }

    fn function(&mut self, info: &FunctionInfo) {
        if info.domain == Some(Domain::HipRuntime) {
            let name = &info.function.name;
            let function = Function {
                launch: launch::launch(name),
                stream: signature(name).and_then(stream_word),
                other_streams: name.contains("Stream") || name.contains("Graph"),
            };
            self.functions.insert(info.function.id, function);
        }
    }

    fn call(&mut self, call: &Call) {
        let Some(process) = self
            .processes
            .get_mut(&call.pid)
            .filter(|process| !process.direct)
        else {
            return;
        };
        let Some(function) = self.functions.get(&call.function) else {
            return;
        };
        process.callers.insert(call.tid);
        let device = process.devices.get(&call.tid).copied().unwrap_or_default();
        let per_thread = function.launch.is_some_and(|(_, per_thread)| per_thread);
        let stream = handle(call, function.stream, per_thread, device);
        let may_have_made = if let Some((launch::Launch::CreateStream, _)) = function.launch {
            let stream = call.stored(0).map(Handle::Stream);
            if let Some(stream) = &stream {
                // A stream that had the handle before is another one.
                process.current.remove(stream);
            }
            stream
        } else {
            (!function.other_streams).then_some(stream)
        };
        process.called(call, may_have_made);
        if let Some((launch, _)) = function.launch {
            process.launch(launch, stream, call);
        }
    }

    fn dispatch(&mut self, dispatch: &mut Dispatch) {
        let origin = &mut dispatch.origin;
        let Some(process) = self.processes.get_mut(&origin.pid) else {
            return;
        };
        let is_internal = dispatch
            .kernel
            .is_some_and(|kernel| self.internal.contains(&kernel));
        if process.direct || is_internal || origin.tid == 0 {
            return;
        }
        if process.callers.contains(&origin.tid) {
            if process.workers.is_empty() {
                *process = Process {
                    direct: true,
                    ..Process::default()
                };
            }
            return;
        }
        let submitted = Submitted {
            time: origin.time,
            node: dispatch.node_id,
            kernel_object: dispatch.kernel_object,
            grid: dispatch.grid,
            workgroup: dispatch.workgroup,
        };
        if let Some((correlation, handle)) = process.submitted(origin.tid, submitted) {
            origin.outermost = correlation;
            if origin.innermost == 0 {
                origin.innermost = correlation;
            }
            origin.stream = match handle {
                Handle::Stream(stream) => Some(stream),
                Handle::Null(_) => Some(0),
                Handle::OfThread(_) => None,
            };
            origin.deferred = true;
        }
    }
}

/// The stream that a call concerns; its thread uses `device`.
pub(super) fn handle(call: &Call, word: Option<u8>, per_thread: bool, device: u32) -> Handle {
    let word = usize::from(word.unwrap_or(u8::MAX));
    let stream = match word.checked_sub(REGISTER_ARGS) {
        None => call.args.get(word),
        Some(word) => call.stack.get(word),
    };
    // `hipStreamLegacy` and `hipStreamPerThread` of `hip_runtime_api.h`.
    match stream.copied().unwrap_or_default() {
        0 if per_thread => Handle::OfThread(call.tid),
        2 => Handle::OfThread(call.tid),
        0 | 1 => Handle::Null(device),
        stream => Handle::Stream(stream),
    }
}

impl Process {
    /// A thread was created.
    fn made(&mut self, made: Made) {
        match self.last.get(&made.creator) {
            Some((begin, end, stream)) if (*begin..=*end).contains(&made.time) => {
                self.made_for
                    .extend(stream.map(|stream| (made.tid, stream)));
            }
            _ if self.made.len() < MOST_TRIED => self.made.push(made),
            _ => {}
        }
    }

    /// A thread called HIP; the call may have created a thread for `stream`.
    fn called(&mut self, call: &Call, stream: Option<Handle>) {
        let stream = stream.map(|stream| self.index(stream));
        self.last.insert(call.tid, (call.begin, call.end, stream));
        // Threads that it created before this call were created outside all calls.
        let over = |made: &mut Made| made.creator == call.tid && made.time <= call.end;
        for made in self.made.extract_if(.., over) {
            if let (true, Some(stream)) = (made.time >= call.begin, stream) {
                self.made_for.insert(made.tid, stream);
            }
        }
    }

    fn stream(&mut self, handle: Handle) -> Option<&mut Stream> {
        let index = self.index(handle);
        self.streams.get_mut(index)
    }

    /// The stream that now has this handle, as an index into `streams`.
    fn index(&mut self, handle: Handle) -> usize {
        let next = self.streams.len();
        let index = *self.current.entry(handle).or_insert(next);
        if index == next {
            self.streams.push(Stream {
                handle,
                waiting: VecDeque::new(),
                taken: false,
                lost: false,
            });
        }
        index
    }

    /// Takes a call that affects the kernels of a stream.
    fn launch(&mut self, launch: launch::Launch, handle: Handle, call: &Call) {
        if call.how != CallEnd::Returned(0) {
            return;
        }
        let end = self.inside.entry(call.tid).or_default();
        if call.begin < *end {
            return;
        }
        *end = call.end;
        match launch {
            launch::Launch::Kernel(sizes) => self.kernel(sizes, handle, call),
            launch::Launch::Unknown => {
                // It launches an unknown number of kernels, so nothing after it can be counted.
                if let Some(stream) = self.stream(handle) {
                    stream.lost = true;
                }
            }
            launch::Launch::BeginCapture => {
                self.capturing.insert(handle);
            }
            launch::Launch::EndCapture => {
                self.capturing.remove(&handle);
            }
            launch::Launch::CreateStream => {}
            launch::Launch::DestroyStream => {
                self.current.remove(&handle);
            }
            launch::Launch::SetDevice => {
                let [device, ..] = call.args;
                self.devices.insert(call.tid, device as u32);
            }
        }
    }

    fn kernel(&mut self, sizes: Sizes, handle: Handle, call: &Call) {
        if self.capturing.contains(&handle) {
            return;
        }
        let someone_captures = !self.capturing.is_empty();
        let Some(stream) = self.stream(handle).filter(|stream| !stream.lost) else {
            return;
        };
        // Another stream's capture extends to streams that wait for its events. The order of
        // simultaneous launches by two threads is unknown.
        let raced = stream
            .waiting
            .back()
            .is_some_and(|last| last.tid != call.tid && call.begin < last.end);
        if someone_captures || raced || stream.waiting.len() >= MOST_WAITING {
            stream.lost = true;
            stream.waiting.clear();
            return;
        }
        let [function, ..] = call.args;
        let (grid, workgroup) = sizes.read(&call.args, &call.stack);
        stream.waiting.push_back(Launch {
            correlation: call.correlation,
            function,
            tid: call.tid,
            begin: call.begin,
            end: call.end,
            grid,
            workgroup,
        });
    }

    /// One of HIP's threads has submitted a kernel. Returns the correlation id of the launch and
    /// its stream, if certain.
    fn submitted(&mut self, tid: u32, submitted: Submitted) -> Option<(u64, Handle)> {
        let worker = self
            .workers
            .entry(tid)
            .or_insert_with(|| Worker::New(Vec::new()));
        let index = match worker {
            Worker::Lost => return None,
            Worker::For(index) => *index,
            Worker::New(before) => {
                before.push(submitted);
                let fits = |(_, stream): &(usize, &Stream)| stream.fits(before, &self.kernels);
                let made_for = self.made_for.get(&tid);
                let likely = made_for.and_then(|index| Some((*index, self.streams.get(*index)?)));
                let mut candidates = self.streams.iter().enumerate().filter(fits);
                let found = match likely.filter(fits) {
                    Some(likely) => (Some(likely), None),
                    None => (candidates.next(), candidates.next()),
                };
                match found {
                    (Some((index, _)), None) => {
                        let skipped = before.len() - 1;
                        *worker = Worker::For(index);
                        if let Some(stream) = self.streams.get_mut(index) {
                            stream.taken = true;
                            stream.waiting.drain(..skipped);
                        }
                        index
                    }
                    (Some(_), Some(_)) if before.len() < MOST_TRIED => return None,
                    _ => {
                        *worker = Worker::Lost;
                        return None;
                    }
                }
            }
        };
        let stream = self.streams.get_mut(index)?;
        let next = stream.waiting.pop_front().filter(|_| !stream.lost);
        let Some(next) = next.filter(|next| next.is(&submitted, &self.kernels)) else {
            stream.lost = true;
            stream.waiting.clear();
            *worker = Worker::Lost;
            return None;
        };
        let known_as = (next.function, submitted.node);
        self.kernels.insert(known_as, submitted.kernel_object);
        Some((next.correlation, stream.handle))
    }
}

impl Stream {
    /// Whether a thread that submitted these dispatches may work for this stream.
    fn fits(&self, submitted: &[Submitted], kernels: &Kernels) -> bool {
        !self.taken
            && !self.lost
            && self.waiting.len() >= submitted.len()
            && self
                .waiting
                .iter()
                .zip(submitted)
                .all(|(launch, submitted)| launch.is(submitted, kernels))
    }
}

impl Launch {
    /// Whether this may be the launch's dispatch.
    fn is(&self, submitted: &Submitted, kernels: &Kernels) -> bool {
        let same_kernel = kernels
            .get(&(self.function, submitted.node))
            .is_none_or(|kernel| *kernel == submitted.kernel_object);
        (self.grid, self.workgroup) == (submitted.grid, submitted.workgroup)
            && self.begin <= submitted.time
            && same_kernel
    }
}

#[cfg(test)]
mod tests;
