//! What calls and GPU work amount to by stack, for formats that show stacks.
//!
//! What has no stack has a frame in brackets that says why, so that sums over all stacks are those
//! of the recording. Only times that are drawn are counted, as in all formats.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use gputrace_capture::stack::{CodeFile, Frame, Stack, StackEnd};
use gputrace_catalog::stacks::{Caller, caller};
use gputrace_symbols::Symbols;
use gputrace_timeline::{
    event::{Call, Event, ProcessInfo},
    gpu::{GpuTime, Origin},
};

use crate::{functions::Functions, gpu::Gpus};

/// Why there are no frames: the call has no stack.
const NONE: &str = "[no stack was recorded]";
/// The call has a stack that is not in the capture.
const LOST: &str = "[the stack was lost]";
/// See [`gputrace_abi::stack::TOO_MANY`].
const TOO_MANY: &str = "[not looked at: too many new stacks at once]";

/// What is added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Time on the GPU, ns.
    pub gpu_time: u64,
    /// Kernels and copies.
    pub work: u64,
    /// Bytes of copies.
    pub copied: u64,
    /// Calls.
    pub calls: u64,
    /// Time in calls, ns.
    pub call_time: u64,
    /// Time in calls that wait for a GPU, ns.
    pub wait_time: u64,
}

impl Sums {
    /// Adds other sums.
    pub fn add(&mut self, more: &Self) {
        for (sum, more) in [
            (&mut self.gpu_time, more.gpu_time),
            (&mut self.work, more.work),
            (&mut self.copied, more.copied),
            (&mut self.calls, more.calls),
            (&mut self.call_time, more.call_time),
            (&mut self.wait_time, more.wait_time),
        ] {
            *sum = sum.saturating_add(more);
        }
    }
}

/// An innermost frame.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Leaf {
    Function(u32),
    Work(String),
}

/// A frame between the process and the innermost frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StackFrame {
    /// A function of the program.
    Known(Frame),
    /// Stands for frames that are not known, and says why.
    Unknown(&'static str),
}

/// What one stack amounts to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Process id, initial pid namespace.
    pub pid: u32,
    /// The process as people know it.
    pub process: String,
    /// The frames, the outermost first.
    pub frames: Vec<StackFrame>,
    /// The innermost frame: a function, a kernel, or a kind of copy.
    pub leaf: String,
    /// What it amounts to.
    pub sums: Sums,
}

/// Adds up calls and GPU work by stack. Memory grows with the number of different stacks.
#[derive(Debug, Default)]
pub struct ByStack {
    processes: HashMap<u32, String, RandomState>,
    functions: Functions,
    gpus: Gpus,
    files: HashMap<u32, CodeFile, RandomState>,
    symbols: Symbols,
    stacks: HashMap<u32, Stack, RandomState>,
    sums: HashMap<(u32, Option<u32>, Leaf), Sums, RandomState>,
}

impl ByStack {
    /// Takes the next event.
    pub fn event(&mut self, event: &Event) {
        self.gpus.learn(event);
        match event {
            Event::Function(info) => self.functions.learn(info),
            Event::Process(info) => self.process(info),
            Event::CodeFile(file) => {
                self.symbols.learn(file);
                self.files.insert(file.number, (**file).clone());
            }
            Event::Stack(stack) => {
                self.stacks.insert(stack.number, (**stack).clone());
            }
            Event::Call(call) => self.call(call),
            Event::Dispatch(dispatch) => {
                let name = self.gpus.kernel_name(dispatch).into_owned();
                self.work(&dispatch.origin, &dispatch.time, name, 0);
            }
            Event::Copy(copy) => {
                let name = copy.direction.name().to_owned();
                self.work(&copy.origin, &copy.time, name, copy.bytes);
            }
            _ => {}
        }
    }

    fn process(&mut self, info: &ProcessInfo) {
        let title = match info.identity.title.as_str() {
            "" => info.name.clone(),
            title => title.to_owned(),
        };
        self.processes.insert(info.pid, title);
    }

    fn add(&mut self, pid: u32, stack: Option<u32>, leaf: Leaf, more: &Sums) {
        self.sums.entry((pid, stack, leaf)).or_default().add(more);
    }

    fn call(&mut self, call: &Call) {
        // Only outermost calls have stacks.
        if call.stack_number.is_none() && call.depth > 0 {
            return;
        }
        let time = call.end.saturating_sub(call.begin);
        let waits = caller(self.functions.name(call.function)) == Some(Caller::Waits);
        let more = Sums {
            calls: 1,
            call_time: time,
            wait_time: if waits { time } else { 0 },
            ..Sums::default()
        };
        let leaf = Leaf::Function(call.function);
        self.add(call.pid, call.stack_number, leaf, &more);
    }

    fn work(&mut self, origin: &Origin, time: &GpuTime, name: String, copied: u64) {
        let drawn = time.drawn_begin().zip(time.drawn_end());
        let more = Sums {
            gpu_time: drawn.map_or(0, |(begin, end)| end.saturating_sub(begin)),
            work: 1,
            copied,
            ..Sums::default()
        };
        self.add(origin.pid, origin.stack_number, Leaf::Work(name), &more);
    }

    /// Takes what was added up, by process and stack. The same frames can be in several rows.
    pub fn take(&mut self) -> Vec<Row> {
        let mut sums: Vec<_> = std::mem::take(&mut self.sums).into_iter().collect();
        sums.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        let row = |((pid, stack, leaf), sums)| Row {
            pid,
            process: match self.processes.get(&pid) {
                Some(name) => name.clone(),
                None => format!("process {pid}"),
            },
            frames: self.frames(stack),
            leaf: match leaf {
                Leaf::Function(id) => self.functions.name(id).to_owned(),
                Leaf::Work(name) => name,
            },
            sums,
        };
        sums.into_iter().map(row).collect()
    }

    /// The frames of a stack, the outermost first.
    fn frames(&self, number: Option<u32>) -> Vec<StackFrame> {
        let mut number = match number {
            None => return vec![StackFrame::Unknown(NONE)],
            Some(0) => return vec![StackFrame::Unknown(TOO_MANY)],
            Some(number) => number,
        };
        if let Some(same) = self.stacks.get(&number).and_then(|stack| stack.same_as) {
            number = same;
        }
        let Some(stack) = self.stacks.get(&number) else {
            return vec![StackFrame::Unknown(LOST)];
        };
        let end = end(stack.end).map(StackFrame::Unknown);
        let frames = stack.frames.iter().rev().copied().map(StackFrame::Known);
        end.into_iter().chain(frames).collect()
    }

    /// The name of a frame for people.
    pub fn name(&mut self, frame: &StackFrame) -> String {
        match frame {
            StackFrame::Known(frame) => self.symbols.name(frame),
            StackFrame::Unknown(why) => (*why).to_owned(),
        }
    }

    /// The file with this number.
    #[must_use]
    pub fn file(&self, number: u32) -> Option<&CodeFile> {
        self.files.get(&number)
    }
}

/// What stands for the frames that are not known; `None` if all are known.
const fn end(end: StackEnd) -> Option<&'static str> {
    Some(match end {
        StackEnd::Complete => return None,
        StackEnd::TooDeep => "[more frames than are recorded]",
        StackEnd::NotCopied => "[beyond the copied part of the stack]",
        StackEnd::UnknownCode => "[called from code that is in no file]",
        StackEnd::NoRules => "[called from code without rules for unwinding]",
        StackEnd::UnsupportedRules => "[called from code with unsupported rules for unwinding]",
        StackEnd::Loop => "[rules for unwinding that lead back]",
        StackEnd::ProcessEnded => "[the process ended too early to know its code]",
    })
}
