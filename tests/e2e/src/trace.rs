//! A recording, read from its capture.

use std::{collections::BTreeMap, path::Path};

use gputrace_abi::{counters::DropReason, domain::Domain};
use gputrace_capture::{
    CaptureReader, Meta, ReadError, Truncation,
    ledger::Ledger,
    meta::{End, EndReason, Notice, Recording},
    stack::{CodeFile, Stack},
};
use gputrace_timeline::{
    Timeline, args,
    event::{Call, CallEnd, Event, FunctionInfo, Lifetime, ProcessInfo, ThreadInfo},
    gpu::{
        Activity, AgentInfo, CodeObjectInfo, Copy, Dispatch, KernelClass, KernelInfo, QueueInfo,
    },
    observation::Observation,
    stream::StreamInfo,
};

use crate::calllog::ThreadId;

/// Everything in a capture.
#[derive(Debug, Default)]
pub struct Trace {
    /// How it was made.
    pub recording: Recording,
    /// Probed functions by id.
    pub functions: BTreeMap<u32, FunctionInfo>,
    /// Calls in the timeline's order.
    pub calls: Vec<Call>,
    /// Files in which stacks have frames.
    pub code_files: Vec<CodeFile>,
    /// Stacks, in order.
    pub stacks: Vec<Stack>,
    /// GPU work.
    pub gpu: GpuTrace,
    /// Observations in the timeline's order.
    pub observations: Vec<Observation>,
    /// Lifetimes of processes and threads.
    pub lifetimes: Vec<Lifetime>,
    /// Descriptions of processes, in order.
    pub processes: Vec<ProcessInfo>,
    /// Descriptions of threads, in order.
    pub threads: Vec<ThreadInfo>,
    /// Remarks.
    pub notices: Vec<Notice>,
    /// The account of calls seen and lost.
    pub ledger: Option<Ledger>,
    /// How the recording ended; `None` if the capture was cut off.
    pub end: Option<End>,
    /// Where reading stopped before the end of the file, if it did.
    pub truncation: Option<Truncation>,
}

/// The GPU data in a capture.
#[derive(Debug, Default)]
pub struct GpuTrace {
    /// Agents of the node.
    pub agents: Vec<AgentInfo>,
    /// Queues in the order of their numbers.
    pub queues: Vec<QueueInfo>,
    /// Code objects in the order of their ids.
    pub code_objects: Vec<CodeObjectInfo>,
    /// Streams in the order of their numbers.
    pub streams: Vec<StreamInfo>,
    /// Kernels in the order of their ids.
    pub kernels: Vec<KernelInfo>,
    /// Dispatches in the timeline's order.
    pub dispatches: Vec<Dispatch>,
    /// Copies in the timeline's order.
    pub copies: Vec<Copy>,
    /// Mean durations of dispatch classes.
    pub classes: Vec<KernelClass>,
    /// Readings of GPUs' status registers, in order of time.
    pub activity: Vec<Activity>,
}

impl Trace {
    /// Reads a capture.
    ///
    /// # Panics
    /// If it cannot be read.
    #[must_use]
    pub fn read(path: &Path) -> Self {
        Self::try_read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Reads a capture.
    ///
    /// # Errors
    /// Those of [`Timeline`].
    pub fn try_read(path: &Path) -> Result<Self, ReadError> {
        let mut timeline = Timeline::open(path)?;
        let mut trace = Self::default();
        for event in &mut timeline {
            match event? {
                Event::Recording(recording) => trace.recording = *recording,
                Event::Function(info) => {
                    trace.functions.insert(info.function.id, *info);
                }
                Event::Process(process) => trace.processes.push(*process),
                Event::Thread(thread) => trace.threads.push(thread),
                Event::Call(call) => trace.calls.push(call),
                Event::Agent(agent) => trace.gpu.agents.push(*agent),
                Event::Queue(queue) => trace.gpu.queues.push(queue),
                Event::CodeObject(object) => trace.gpu.code_objects.push(*object),
                Event::Kernel(kernel) => trace.gpu.kernels.push(*kernel),
                Event::Dispatch(dispatch) => trace.gpu.dispatches.push(*dispatch),
                Event::Copy(copy) => trace.gpu.copies.push(*copy),
                Event::Lifetime(lifetime) => trace.lifetimes.push(lifetime),
                Event::Observation(one) => trace.observations.push(*one),
                Event::KernelClass(class) => trace.gpu.classes.push(*class),
                Event::Stream(stream) => trace.gpu.streams.push(stream),
                Event::Activity(reading) => trace.gpu.activity.push(reading),
                Event::CodeFile(file) => trace.code_files.push(*file),
                Event::Stack(stack) => trace.stacks.push(*stack),
                Event::Counter(_) | Event::Clocks(_) | Event::Pending(_) => {}
                Event::Notice(notice) => trace.notices.push(notice),
                Event::Ledger(ledger) => trace.ledger = Some(*ledger),
                Event::End(end) => trace.end = Some(end),
            }
        }
        trace.truncation = timeline.truncation();
        Ok(trace)
    }

    /// The function of a call.
    ///
    /// # Panics
    /// If the capture does not describe it.
    #[must_use]
    pub fn function(&self, call: &Call) -> &FunctionInfo {
        self.functions.get(&call.function).unwrap_or_else(|| {
            panic!(
                "function {} of a call is not described in the capture",
                call.function
            )
        })
    }

    /// The arguments of a call in human-readable form: `count=8`.
    ///
    /// # Panics
    /// If the capture does not describe its function.
    #[must_use]
    pub fn arguments(&self, call: &Call) -> Vec<String> {
        args::decoded(self.function(call), call)
            .map(|(name, value)| format!("{name}={value}"))
            .collect()
    }

    /// The name of a call's function as in its header.
    #[must_use]
    pub fn name(&self, call: &Call) -> &str {
        plain_name(&self.function(call).function.name)
    }

    /// Whether a call may be of a function called `name`: several names may refer to one address.
    #[must_use]
    pub fn is_call_of(&self, call: &Call, name: &str) -> bool {
        let function = &self.function(call).function;
        plain_name(&function.name) == name
            || function
                .aliases
                .iter()
                .any(|alias| plain_name(alias) == name)
    }

    /// Calls of a function.
    pub fn calls_of(&self, name: &str) -> impl Iterator<Item = &Call> {
        self.calls
            .iter()
            .filter(move |call| self.is_call_of(call, name))
    }

    /// Name, domain and result of each call, all of which must have returned.
    ///
    /// # Panics
    /// If one has not.
    #[must_use]
    pub fn returned(&self) -> Vec<(&str, u8, u64)> {
        let mut calls = Vec::new();
        for call in &self.calls {
            let CallEnd::Returned(result) = call.how else {
                panic!("{call:?}")
            };
            calls.push((self.name(call), call.domain, result));
        }
        calls
    }

    /// Calls by thread, ordered by begin, outer calls before inner ones.
    #[must_use]
    pub fn by_thread(&self) -> BTreeMap<ThreadId, Vec<&Call>> {
        let mut threads: BTreeMap<ThreadId, Vec<&Call>> = BTreeMap::new();
        for call in &self.calls {
            threads.entry((call.pid, call.tid)).or_default().push(call);
        }
        for calls in threads.values_mut() {
            calls.sort_by_key(|call| (call.begin, call.depth));
        }
        threads
    }

    /// The final account.
    ///
    /// # Panics
    /// If there is none, or it is not complete.
    #[must_use]
    pub fn final_ledger(&self) -> &Ledger {
        let ledger = self.ledger.as_ref().expect("a ledger in the capture");
        assert!(ledger.complete, "the ledger is not a final one: {ledger:?}");
        ledger
    }

    /// Number of calls lost for `reason`.
    ///
    /// # Panics
    /// As [`Trace::final_ledger`].
    #[must_use]
    pub fn lost(&self, reason: DropReason) -> u64 {
        self.final_ledger().total().dropped_for(reason)
    }

    /// Asserts that the recording ended regularly for this reason, and that its account balances,
    /// row by row, with the content of the capture.
    ///
    /// # Panics
    /// If not.
    pub fn assert_sound(&self, reason: &EndReason) {
        assert_eq!(self.truncation, None, "the capture is damaged");
        assert_eq!(
            self.end.as_ref().map(|end| &end.reason),
            Some(reason),
            "notices: {:?}",
            self.notices
        );
        let ledger = self.final_ledger();
        for row in &ledger.rows {
            assert_eq!(
                row.imbalance(),
                0,
                "a row of the ledger does not balance: {row:?}"
            );
            // Other programs on this machine may have had GPU work; those rows count no calls.
            if !is_call_each(row.domain) {
                continue;
            }
            let counted = |finished: bool| {
                let here = self
                    .calls
                    .iter()
                    .filter(|call| (call.cpu, call.domain) == (row.cpu, row.domain));
                here.filter(|call| is_finished(call) == finished).count() as u64
            };
            assert_eq!(
                (counted(true), counted(false)),
                (row.written, row.unfinished),
                "the ledger says otherwise than the capture holds: {row:?}"
            );
        }
        let api = ledger.rows.iter().filter(|row| is_call_each(row.domain));
        let calls = self.calls.iter().filter(|call| is_call_each(call.domain));
        assert_eq!(
            api.map(|row| row.written + row.unfinished).sum::<u64>(),
            calls.count() as u64,
            "calls in no row of the ledger"
        );
        assert_eq!(
            ledger.task_events_lost, 0,
            "process and thread events were lost"
        );

        let mut ids: Vec<u64> = self.calls.iter().map(|call| call.correlation).collect();
        ids.sort_unstable();
        assert!(
            ids.windows(2).all(|pair| pair[0] != pair[1]),
            "two calls share a correlation id"
        );
    }

    /// Asserts that no call was lost.
    ///
    /// # Panics
    /// If one was.
    pub fn assert_lossless(&self) {
        let ledger = self.final_ledger();
        assert_eq!(
            ledger.total().lost(),
            0,
            "calls were lost: {:?}",
            ledger.rows
        );
        assert_eq!(
            ledger.unreadable_args, 0,
            "stack arguments could not be read"
        );
    }
}

/// Until when a capture holds all records, as its last whole epoch mark says, ns `CLOCK_BOOTTIME`;
/// 0 without one. It may be of a recording under way.
///
/// # Panics
/// If the file cannot be read.
#[must_use]
pub fn last_epoch(capture: &Path) -> u64 {
    let mut reader = CaptureReader::open(capture).expect("a capture");
    let mut last = 0;
    while let Some(meta) = reader.next_meta().expect("a capture that can be read") {
        if let Meta::Epoch(epoch) = meta {
            last = epoch.time;
        }
    }
    last
}

/// Whether a call was over when its record was made.
#[must_use]
pub fn is_finished(call: &Call) -> bool {
    matches!(call.how, CallEnd::Returned(_) | CallEnd::NotSeen)
}

/// The name inside a mangled C++ name outside any namespace; other names are returned unchanged.
#[must_use]
pub fn plain_name(name: &str) -> &str {
    let inner = || {
        let mangled = name.strip_prefix("_Z")?;
        let digits = mangled.bytes().take_while(u8::is_ascii_digit).count();
        let (length, rest) = mangled.split_at(digits);
        rest.get(..length.parse().ok()?)
    };
    inner().unwrap_or(name)
}

/// Whether a row of the ledger with this domain counts API calls that are one event each. (Two
/// calls make one range of markers.)
fn is_call_each(domain: u8) -> bool {
    Domain::from_id(domain).is_some_and(|domain| domain.is_api() && domain != Domain::MarkerCore)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mangled_names() {
        assert_eq!(
            plain_name("_Z24hipExtModuleLaunchKernelP18ihipModuleSymbol_t"),
            "hipExtModuleLaunchKernel"
        );
        assert_eq!(plain_name("hipMalloc"), "hipMalloc");
        assert_eq!(plain_name("_Z99x"), "_Z99x");
        assert_eq!(plain_name("_ZN3hip1fEv"), "_ZN3hip1fEv");
    }
}
