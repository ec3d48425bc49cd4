//! Dispatches that HIP leaves to a thread of its own.
//!
//! With `AMD_DIRECT_DISPATCH=0` a launch only puts a command into its stream, and a thread that HIP keeps for the
//! stream submits it later. No call of the program is open in that thread, so the probes see none. But each stream
//! has one such thread, and its order is kept. So when a process leaves its dispatches to such threads:
//!
//! * which stream a thread works for is found from its first dispatches: the one stream whose launches, in order,
//!   have their sizes, have begun before them, and have the same kernel wherever they name the same function. HIP makes
//!   the thread of a null stream within the first call that needs it, and that of another stream within the call that
//!   makes the stream, so a thread that was made within a call is first held against that call's stream;
//! * from then on, each kernel of the program's belongs to the next launch into the stream.
//!
//! Nothing is claimed that is not certain: while several streams fit, dispatches stay without a call, and whatever
//! contradicts ends all claims for the stream. Only processes are looked at that began within the recording: of others,
//! launches may be waiting that nobody has seen.

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

/// Launches of a stream that wait for their dispatch, at most.
const MOST_WAITING: usize = 1 << 16;

/// Dispatches by which a thread's stream is looked for, at most.
const MOST_TRIED: usize = 256;

/// What is known of dispatches that threads of HIP's submit.
#[derive(Debug, Default)]
pub(crate) struct Deferred {
    /// By number.
    functions: HashMap<u32, Function>,
    /// Numbers of the runtime's own kernels, which nobody launched.
    internal: HashSet<u32>,
    processes: HashMap<u32, Process>,
}

/// A function of HIP's.
#[derive(Clone, Copy, Debug)]
struct Function {
    /// What it does to kernels of a stream, and whether its null stream is the thread's own.
    launch: Option<(launch::Launch, bool)>,
    stream: Option<u8>,
    /// Whether it may make a stream that is not a null stream, or work on one of the runtime's own.
    other_streams: bool,
}

#[derive(Debug, Default)]
struct Process {
    /// Threads of the program's: those that call HIP.
    callers: HashSet<u32>,
    /// Whether such threads submit their kernels themselves, as HIP does by default.
    direct: bool,
    /// The stream that now has a handle, as an index of `streams`.
    current: HashMap<Handle, usize>,
    streams: Vec<Stream>,
    workers: HashMap<u32, Worker>,
    /// Streams whose launches are recorded into a graph in place of being run.
    capturing: HashSet<Handle>,
    kernels: Kernels,
    /// The end of the last launch of each thread: calls inside are HIP's own.
    inside: HashMap<u32, u64>,
    /// The device of each thread that has chosen one.
    devices: HashMap<u32, u32>,
    /// The last call of each thread: begin, end, and its stream, as an index of `streams`.
    last: HashMap<u32, (u64, u64, Option<usize>)>,
    /// Threads that were made, with maker and time, within a call that has not been seen yet.
    made: Vec<Made>,
    /// Threads that were made within a call, with its stream, as an index of `streams`: dispatches are often seen when
    /// the stream has lost its handle again.
    made_for: HashMap<u32, usize>,
}

/// A thread that was made.
#[derive(Clone, Copy, Debug)]
struct Made {
    tid: u32,
    creator: u32,
    time: u64,
}

/// Which kernel a function handle or host function stands for on a GPU, where that is certain.
type Kernels = HashMap<(u64, Option<u32>), u64>;

/// A stream as the program names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Handle {
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
    /// Whether its order is not known any more.
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

/// A thread that submits.
#[derive(Debug)]
enum Worker {
    /// Its stream is looked for: its dispatches so far.
    New(Vec<Submitted>),
    /// It works for this stream.
    For(usize),
    /// Its stream cannot be told.
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
    /// Takes note of an event before it is given out; a dispatch gets its call.
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
                // Whatever had the handle before is another one.
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

/// The stream that a call is about, made by a thread that has chosen `device`.
fn handle(call: &Call, word: Option<u8>, per_thread: bool, device: u32) -> Handle {
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
    /// A thread was made.
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

    /// A thread called HIP, which may have made a thread for `stream`.
    fn called(&mut self, call: &Call, stream: Option<Handle>) {
        let stream = stream.map(|stream| self.index(stream));
        self.last.insert(call.tid, (call.begin, call.end, stream));
        // What the thread made before was made in no call.
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

    /// The stream that has this handle now, as an index of `streams`.
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

    /// A call that does something to the kernels of a stream.
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
                // Kernels of some number: nothing behind it can be counted.
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
        // Another stream's capture reaches streams that wait for its events. And of two threads' launches at the
        // same time, nobody knows which came first.
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

    /// A thread of HIP's has submitted a kernel: the correlation id of the launch and its stream, if that is certain.
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
    /// Whether a thread that submitted these may work for it.
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
    /// Whether this may be its dispatch.
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
