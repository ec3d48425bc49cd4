//! Folded stacks: one line per stack, its frames joined by `;`, and a number. Flame graph tools
//! read this: inferno, speedscope, flamegraph.pl.
//!
//! | file | innermost frame | number |
//! |---|---|---|
//! | `NAME_gpu_time.folded` | kernel, or kind of copy | time on the GPU, ns |
//! | `NAME_calls.folded` | function | calls |
//! | `NAME_call_time.folded` | function | time in calls, ns |
//!
//! The outermost frame is the process. What has no stack has a frame in brackets that says why.
//! Only times that are drawn are counted, as in all formats, so the sum of `NAME_gpu_time.folded`
//! is that of the kernels and copies in the summary.

use std::{
    collections::{BTreeMap, HashMap},
    io::Write as _,
};

use foldhash::fast::RandomState;
use gputrace_capture::stack::{Stack, StackEnd};
use gputrace_symbols::Symbols;
use gputrace_timeline::{
    event::{Call, Event, ProcessInfo},
    gpu::{GpuTime, Origin},
};

use crate::{
    exporter::{ExportError, Exporter, Output},
    functions::Functions,
    gpu::Gpus,
    output::{OutputDir, OutputFile},
};

/// Why there are no frames: the call has no stack.
const NONE: &str = "[no stack was recorded]";
/// The call has a stack that is not in the capture.
const LOST: &str = "[the stack was lost]";
/// See [`gputrace_abi::stack::TOO_MANY`].
const TOO_MANY: &str = "[not looked at: too many new stacks at once]";

/// Files: ending, description.
const FILES: [(&str, &str); 3] = [
    ("gpu_time", "GPU time by stack, ns"),
    ("calls", "calls by stack"),
    ("call_time", "time in calls by stack, ns"),
];

/// What a line is about: process, number of its stack, and innermost frame.
type Line = (u32, Option<u32>, Leaf);

/// An innermost frame.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Leaf {
    Function(u32),
    Work(String),
}

/// Writes folded stacks. Memory grows with the number of different stacks.
#[derive(Debug)]
pub struct FoldedExporter {
    files: [OutputFile; FILES.len()],
    processes: HashMap<u32, String, RandomState>,
    functions: Functions,
    gpus: Gpus,
    symbols: Symbols,
    stacks: HashMap<u32, Stack, RandomState>,
    sums: [HashMap<Line, u64, RandomState>; FILES.len()],
}

impl FoldedExporter {
    /// Writes files in `directory` whose names begin with `name`.
    ///
    /// # Errors
    ///
    /// [`ExportError`] if one cannot be created.
    pub fn new(directory: &OutputDir, name: &str) -> Result<Self, ExportError> {
        let file = |at: usize| {
            let ending = FILES.get(at).map_or("", |(ending, _)| ending);
            directory.file(&format!("{name}_{ending}.folded"))
        };
        Ok(Self {
            files: [file(0)?, file(1)?, file(2)?],
            processes: HashMap::default(),
            functions: Functions::default(),
            gpus: Gpus::default(),
            symbols: Symbols::default(),
            stacks: HashMap::default(),
            sums: Default::default(),
        })
    }

    fn process(&mut self, info: &ProcessInfo) {
        let title = match info.identity.title.as_str() {
            "" => info.name.clone(),
            title => title.to_owned(),
        };
        self.processes.insert(info.pid, title);
    }

    fn add(&mut self, file: usize, line: Line, amount: u64) {
        if let Some(sums) = self.sums.get_mut(file) {
            let sum = sums.entry(line).or_default();
            *sum = sum.saturating_add(amount);
        }
    }

    fn call(&mut self, call: &Call) {
        // Only outermost calls have stacks.
        if call.stack_number.is_none() && call.depth > 0 {
            return;
        }
        let line = (call.pid, call.stack_number, Leaf::Function(call.function));
        self.add(1, line.clone(), 1);
        self.add(2, line, call.end.saturating_sub(call.begin));
    }

    fn work(&mut self, origin: &Origin, time: &GpuTime, name: String) {
        if let (Some(begin), Some(end)) = (time.drawn_begin(), time.drawn_end()) {
            let line = (origin.pid, origin.stack_number, Leaf::Work(name));
            self.add(0, line, end.saturating_sub(begin));
        }
    }

    /// The frames of a stack, the outermost first.
    fn frames(&mut self, number: Option<u32>) -> Vec<String> {
        let mut number = match number {
            None => return vec![NONE.to_owned()],
            Some(0) => return vec![TOO_MANY.to_owned()],
            Some(number) => number,
        };
        if let Some(same) = self.stacks.get(&number).and_then(|stack| stack.same_as) {
            number = same;
        }
        let Some(stack) = self.stacks.get(&number) else {
            return vec![LOST.to_owned()];
        };
        let end = end(stack.end).map(str::to_owned);
        let frames = stack.frames.iter().rev();
        let names = frames.map(|frame| self.symbols.name(frame));
        end.into_iter().chain(names).collect()
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

/// A frame as the format can have it: `;` separates frames.
fn written(name: &str) -> String {
    name.replace(';', ":").replace(['\n', '\r'], " ")
}

impl Exporter for FoldedExporter {
    fn format(&self) -> &'static str {
        "folded"
    }

    fn event(&mut self, event: &Event) -> Result<(), ExportError> {
        self.gpus.learn(event);
        match event {
            Event::Function(info) => self.functions.learn(info),
            Event::Process(info) => self.process(info),
            Event::CodeFile(file) => self.symbols.learn(file),
            Event::Stack(stack) => {
                self.stacks.insert(stack.number, (**stack).clone());
            }
            Event::Call(call) => self.call(call),
            Event::Dispatch(dispatch) => {
                let name = self.gpus.kernel_name(dispatch).into_owned();
                self.work(&dispatch.origin, &dispatch.time, name);
            }
            Event::Copy(copy) => {
                self.work(&copy.origin, &copy.time, copy.direction.name().to_owned());
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<Vec<Output>, ExportError> {
        let sums = std::mem::take(&mut self.sums);
        let mut known: HashMap<Option<u32>, String> = HashMap::new();
        let mut lines: [BTreeMap<String, u64>; FILES.len()] = Default::default();
        for (lines, sums) in lines.iter_mut().zip(sums) {
            for ((pid, stack, leaf), amount) in sums {
                let frames = known.entry(stack).or_insert_with(|| {
                    let frames = self.frames(stack);
                    let frames: Vec<String> = frames.iter().map(|name| written(name)).collect();
                    frames.join(";")
                });
                let process = self.processes.get(&pid);
                let process =
                    process.map_or_else(|| format!("process {pid}"), |name| written(name));
                let leaf = match &leaf {
                    Leaf::Function(id) => written(self.functions.name(*id)),
                    Leaf::Work(name) => written(name),
                };
                // Different stacks can have the same names.
                let sum = lines
                    .entry(format!("{process};{frames};{leaf}"))
                    .or_default();
                *sum = sum.saturating_add(amount);
            }
        }
        let mut outputs = Vec::new();
        for ((mut file, lines), (_, content)) in self.files.into_iter().zip(lines).zip(FILES) {
            for (line, amount) in lines.iter().filter(|(_, amount)| **amount > 0) {
                writeln!(file, "{line} {amount}")?;
            }
            outputs.push(file.finish(content)?);
        }
        Ok(outputs)
    }
}
