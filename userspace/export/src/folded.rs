//! Folded stacks: one line per stack, its frames joined by `;`, and a number. Flame graph tools
//! read this: inferno, speedscope, flamegraph.pl.
//!
//! | file | innermost frame | number |
//! |---|---|---|
//! | `NAME_gpu_time.folded` | kernel, or kind of copy | time on the GPU, ns |
//! | `NAME_calls.folded` | function | calls |
//! | `NAME_call_time.folded` | function | time in calls, ns |
//!
//! The outermost frame is the process. So the sum of `NAME_gpu_time.folded` is that of the kernels
//! and copies in the summary; see [`crate::stacks`].

use std::{
    collections::{BTreeMap, HashMap},
    io::Write as _,
};

use gputrace_timeline::event::Event;

use crate::{
    exporter::{ExportError, Exporter, Output},
    output::{OutputDir, OutputFile},
    stacks::{ByStack, StackFrame, Sums},
};

/// A file: ending, description, and its number of the sums.
type Row = (&'static str, &'static str, fn(&Sums) -> u64);

/// All files.
const FILES: [Row; 3] = [
    ("gpu_time", "GPU time by stack, ns", |sums| sums.gpu_time),
    ("calls", "calls by stack", |sums| sums.calls),
    ("call_time", "time in calls by stack, ns", |sums| {
        sums.call_time
    }),
];

/// Writes folded stacks. Memory grows with the number of different stacks.
#[derive(Debug)]
pub struct FoldedExporter {
    files: Vec<OutputFile>,
    stacks: ByStack,
}

impl FoldedExporter {
    /// Writes files in `directory` whose names begin with `name`.
    ///
    /// # Errors
    ///
    /// [`ExportError`] if one cannot be created.
    pub fn new(directory: &OutputDir, name: &str) -> Result<Self, ExportError> {
        let files = FILES.iter();
        let files = files.map(|(ending, ..)| directory.file(&format!("{name}_{ending}.folded")));
        Ok(Self {
            files: files.collect::<Result<_, _>>()?,
            stacks: ByStack::default(),
        })
    }
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
        self.stacks.event(event);
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<Vec<Output>, ExportError> {
        let mut names: HashMap<StackFrame, String> = HashMap::new();
        // Different stacks can have the same names.
        let mut lines: BTreeMap<String, Sums> = BTreeMap::new();
        for row in self.stacks.take() {
            let mut line = written(&row.process);
            for frame in &row.frames {
                let stacks = &mut self.stacks;
                let name = names
                    .entry(*frame)
                    .or_insert_with(|| written(&stacks.name(frame)));
                line.push(';');
                line.push_str(name);
            }
            line.push(';');
            line.push_str(&written(&row.leaf));
            lines.entry(line).or_default().add(&row.sums);
        }
        let mut outputs = Vec::new();
        for (mut file, (_, content, number)) in self.files.into_iter().zip(FILES) {
            let numbers = lines.iter().map(|(line, sums)| (line, number(sums)));
            for (line, number) in numbers.filter(|(_, number)| *number > 0) {
                writeln!(file, "{line} {number}")?;
            }
            outputs.push(file.finish(content)?);
        }
        Ok(outputs)
    }
}
