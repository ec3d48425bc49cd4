//! Compares a recording with the programs' own logs.

use std::{collections::BTreeMap, ops::RangeInclusive};

use gputrace_timeline::event::{Call, CallEnd};

use crate::{
    CallLog, Trace,
    calllog::{LoggedCall, ThreadId, WORDS},
};

/// Maximum number of problems listed in a failure.
const SHOWN: usize = 8;

/// Result of a comparison.
#[derive(Debug, Default)]
pub struct Comparison {
    /// Number of logged calls that are in the recording.
    pub found: usize,
    /// Logged calls that are missing in the recording.
    pub missing: Vec<String>,
    /// Everything in the recording that contradicts the log.
    pub wrong: Vec<String>,
    /// Number of recorded calls that no program logged, by name: calls made by libraries and by
    /// compiler-generated code.
    pub unlogged: BTreeMap<String, usize>,
}

impl Comparison {
    /// Asserts that every call was found and nothing contradicts the log.
    ///
    /// # Panics
    /// If not.
    pub fn assert_exact(&self) {
        self.assert_right();
        assert!(
            self.missing.is_empty(),
            "{} calls found, {} missing:\n{}",
            self.found,
            self.missing.len(),
            first(&self.missing)
        );
        assert!(self.found > 0, "nothing was compared");
    }

    /// Asserts that nothing contradicts the log; calls may be missing.
    ///
    /// # Panics
    /// If something does.
    pub fn assert_right(&self) {
        assert!(
            self.wrong.is_empty(),
            "{} calls found, {} problems:\n{}",
            self.found,
            self.wrong.len(),
            first(&self.wrong)
        );
    }

    /// Number of recorded calls of this function that were not logged.
    #[must_use]
    pub fn unlogged(&self, name: &str) -> usize {
        self.unlogged.get(name).copied().unwrap_or(0)
    }
}

fn first(problems: &[String]) -> String {
    problems
        .iter()
        .take(SHOWN)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join("\n")
}

/// Compares all calls.
///
/// The recording must contain every logged call exactly once: on its thread, in order, with begin
/// and end inside the times that the program measured around it, with its return value and argument
/// words, and with the enclosing logged call as its parent. A call that never returned must be
/// recorded as unfinished. Calls that were not logged must be inside another call (a library
/// calling another) or compiler-generated (`__hip…`).
///
/// Threads without logged calls must have no other recorded calls.
#[must_use]
pub fn compare(log: &CallLog, trace: &Trace) -> Comparison {
    compare_if(log, trace, |_| true)
}

/// As [`compare`], but calls that began before `window` or ended after it may be missing; for
/// recordings that began and ended while the program ran.
#[must_use]
pub fn compare_within(log: &CallLog, trace: &Trace, window: &RangeInclusive<u64>) -> Comparison {
    compare_if(log, trace, |call| {
        window.contains(&call.begin) && call.end.is_none_or(|end| window.contains(&end))
    })
}

/// As [`compare`], but only calls for which `expected` holds must be recorded.
#[must_use]
pub fn compare_if(
    log: &CallLog,
    trace: &Trace,
    expected: impl Fn(&LoggedCall) -> bool,
) -> Comparison {
    compare_all(log, trace, &expected, false)
}

/// As [`compare`], of a program that a signal killed in the middle of its calls. The last call of a
/// thread may be logged although it was not made, and may have returned although the log has no end
/// of it.
#[must_use]
pub fn compare_killed(log: &CallLog, trace: &Trace) -> Comparison {
    compare_all(log, trace, &|call: &LoggedCall| call.end.is_some(), true)
}

fn compare_all(
    log: &CallLog,
    trace: &Trace,
    expected: &impl Fn(&LoggedCall) -> bool,
    is_killed: bool,
) -> Comparison {
    let mut comparison = Comparison::default();
    let recorded = trace.by_thread();
    let nothing = (Vec::new(), Vec::new());
    let threads = log.threads.keys().chain(recorded.keys());
    let mut threads: Vec<&ThreadId> = threads.collect();
    threads.sort_unstable();
    threads.dedup();
    for thread in threads {
        let logged = log.threads.get(thread).unwrap_or(&nothing.0);
        let calls = recorded.get(thread).unwrap_or(&nothing.1);
        let logged = Logged {
            calls: logged,
            is_killed,
        };
        compare_thread(*thread, logged, calls, trace, expected, &mut comparison);
    }
    comparison
}

/// The logged calls of a thread.
#[derive(Clone, Copy)]
struct Logged<'a> {
    calls: &'a [LoggedCall],
    /// Whether its process was killed by a signal.
    is_killed: bool,
}

fn compare_thread(
    thread: ThreadId,
    Logged {
        calls: logged,
        is_killed,
    }: Logged<'_>,
    recorded: &[&Call],
    trace: &Trace,
    expected: &impl Fn(&LoggedCall) -> bool,
    comparison: &mut Comparison,
) {
    let mut used = vec![false; recorded.len()];
    // The recorded call for each logged call.
    let mut found: Vec<Option<usize>> = Vec::with_capacity(logged.len());
    // Logged calls that are open at this point. Those that never returned stay open.
    let mut open: Vec<usize> = Vec::new();
    let mut last = None;
    for (index, call) in logged.iter().enumerate() {
        while open.last().is_some_and(|outer| {
            let outer = &logged[*outer];
            outer.end.is_some_and(|end| end < call.begin) || outer.image != call.image
        }) {
            open.pop();
        }
        let what = || format!("call {index} of thread {thread:?}, {}", describe(call));
        let may_have_returned = is_killed && index + 1 == logged.len();
        let candidate = candidate(call, recorded, &used, trace, may_have_returned);
        found.push(candidate);
        let Some(position) = candidate else {
            if expected(call) {
                let begin = recorded.partition_point(|other| other.begin < call.begin);
                let near = recorded.get(begin).map(|near| show(near, trace));
                comparison
                    .missing
                    .push(format!("{}; next recorded: {near:?}", what()));
            }
            open.push(index);
            continue;
        };
        used[position] = true;
        comparison.found += 1;
        if last.is_some_and(|last| position < last) {
            comparison.wrong.push(format!("out of order: {}", what()));
        }
        last = Some(position);
        let record = recorded[position];
        let mut problems = contradictions(call, record, trace);
        // All calls that the compiler generates for one launch have the same logged times, so none
        // counts as enclosing another.
        if call.words.is_some() {
            let outer = open
                .last()
                .map(|outer| found[*outer].map(|at| recorded[at].correlation));
            match outer {
                None if record.parent != 0 => {
                    problems.push(format!("its parent is {}, not 0", record.parent));
                }
                Some(Some(id)) if record.parent != id => {
                    problems.push(format!("its parent is {}, not {id}", record.parent));
                }
                // The enclosing call was not recorded itself.
                _ => {}
            }
        }
        comparison.wrong.extend(
            problems
                .into_iter()
                .map(|problem| format!("{problem}: {} / {}", what(), show(record, trace))),
        );
        open.push(index);
    }
    unlogged(recorded, &used, trace, comparison);
}

/// The first unused recorded call of the same function within the logged call's times.
/// `may_have_returned` says whether a call without end in the log can have returned.
fn candidate(
    call: &LoggedCall,
    recorded: &[&Call],
    used: &[bool],
    trace: &Trace,
    may_have_returned: bool,
) -> Option<usize> {
    let begin = recorded.partition_point(|other| other.begin < call.begin);
    let until = call.end.unwrap_or(u64::MAX);
    (begin..recorded.len())
        .take_while(|index| recorded[*index].begin <= until)
        .find(|index| {
            let other = recorded[*index];
            // A call that returned to the program returns in the recording and vice versa, unless
            // the recording stopped in between.
            let ends = match (call.end, other.how) {
                (Some(end), CallEnd::Returned(_)) => other.end <= end,
                (_, CallEnd::RecordingStopped | CallEnd::NotSeen) => true,
                (None, CallEnd::ThreadExited | CallEnd::Executed) => true,
                (None, CallEnd::Returned(_)) => may_have_returned,
                _ => false,
            };
            !used[*index] && ends && trace.is_call_of(other, &call.name)
        })
}

/// The contradictions between a recorded call and the log.
fn contradictions(call: &LoggedCall, record: &Call, trace: &Trace) -> Vec<String> {
    let mut problems = Vec::new();
    // For a function that is not in the catalogue, it is unknown whether it has stack arguments.
    let stack_recorded = trace.function(record).function.parameters.is_some();
    if let CallEnd::Returned(result) = record.how
        && !call.result.matches(result)
    {
        problems.push(format!(
            "returned {:#x}, not {:#x}",
            result, call.result.value
        ));
    }
    let words: [u64; WORDS] =
        std::array::from_fn(|index| match index.checked_sub(record.args.len()) {
            None => record.args[index],
            Some(index) => record.stack[index],
        });
    for (index, (logged, word)) in call.words.iter().flatten().zip(words).enumerate() {
        if !logged.matches(word) && (stack_recorded || index < record.args.len()) {
            problems.push(format!(
                "argument word {index} is {word:#x}, not {:#x}",
                logged.value
            ));
        }
    }
    problems
}

/// Checks the calls that were recorded but not logged.
fn unlogged(recorded: &[&Call], used: &[bool], trace: &Trace, comparison: &mut Comparison) {
    let by_id: BTreeMap<u64, &Call> = recorded
        .iter()
        .map(|call| (call.correlation, *call))
        .collect();
    for call in recorded
        .iter()
        .zip(used)
        .filter(|(_, used)| !**used)
        .map(|(call, _)| call)
    {
        *comparison
            .unlogged
            .entry(trace.name(call).to_owned())
            .or_default() += 1;
        let parent = by_id.get(&call.parent);
        let explained = match parent {
            Some(parent) => {
                parent.begin <= call.begin
                    && call.end <= parent.end
                    && call.depth == parent.depth + 1
            }
            None => trace.name(call).starts_with("__hip"),
        };
        if !explained {
            comparison
                .wrong
                .push(format!("recorded, but never made: {}", show(call, trace)));
        }
    }
}

fn describe(call: &LoggedCall) -> String {
    format!("{} [{}, {:?}]", call.name, call.begin, call.end)
}

fn show(call: &Call, trace: &Trace) -> String {
    format!("{} {call:x?}", trace.name(call))
}

#[cfg(test)]
mod tests {
    use gputrace_capture::meta::Function;
    use gputrace_timeline::event::FunctionInfo;

    use super::*;
    use crate::calllog::Masked;

    fn logged(name: &str, begin: u64, end: Option<u64>) -> LoggedCall {
        let words = [Masked {
            value: 7,
            mask: 0xff,
        }; WORDS];
        let result = Masked {
            value: 100,
            mask: 0xffff_ffff,
        };
        LoggedCall {
            name: name.to_owned(),
            begin,
            end,
            result,
            image: 1,
            words: Some(words),
        }
    }

    fn recorded(
        function: u32,
        begin: u64,
        end: u64,
        (correlation, parent, depth): (u64, u64, u16),
    ) -> Call {
        Call {
            function,
            domain: 0,
            pid: 1,
            tid: 2,
            begin,
            end,
            correlation,
            parent,
            depth,
            cpu: 0,
            how: CallEnd::Returned(0xabcd_0000_0064),
            stack_readable: true,
            args: [0xf07; 6],
            stack: [0xf07; 8],
            request: None,
            range: 0,
            external: None,
            stream_id: 0,
            stack_number: None,
            pointees: Vec::new(),
        }
    }

    fn trace(calls: Vec<Call>) -> Trace {
        let names = ["hipA", "hipB", "__hipC"];
        let function = |(id, name): (usize, &&str)| {
            let function = Function {
                id: id as u32,
                name: (*name).to_owned(),
                parameters: Some(Vec::new()),
                ..Function::default()
            };
            let info = FunctionInfo {
                function,
                domain: None,
                library: String::new(),
                build_id: String::new(),
                range: None,
            };
            (id as u32, info)
        };
        Trace {
            calls,
            functions: names.iter().enumerate().map(function).collect(),
            ..Trace::default()
        }
    }

    fn log(calls: Vec<LoggedCall>) -> CallLog {
        CallLog {
            threads: BTreeMap::from([((1, 2), calls)]),
        }
    }

    #[test]
    fn an_exact_trace() {
        // A inside A, inside which the library calls B; C is compiler-generated; then B.
        let log = log(vec![
            logged("hipA", 10, Some(50)),
            logged("hipA", 20, Some(40)),
            logged("hipB", 60, Some(70)),
        ]);
        let calls = vec![
            recorded(2, 1, 2, (9, 0, 0)),
            recorded(1, 25, 26, (3, 2, 2)),
            recorded(0, 21, 39, (2, 1, 1)),
            recorded(0, 11, 49, (1, 0, 0)),
            recorded(1, 60, 70, (4, 0, 0)),
        ];
        let comparison = compare(&log, &trace(calls));
        comparison.assert_exact();
        assert_eq!(
            (
                comparison.found,
                comparison.unlogged("hipB"),
                comparison.unlogged("__hipC")
            ),
            (3, 1, 1)
        );
    }

    /// Modifies an exact trace of two calls, the second inside the first, and returns the numbers
    /// of missing and of wrong calls.
    fn spoiled(spoil: impl FnOnce(&mut Vec<Call>)) -> (usize, usize) {
        let log = log(vec![
            logged("hipA", 10, Some(50)),
            logged("hipB", 20, Some(40)),
        ]);
        let mut calls = vec![
            recorded(0, 11, 49, (1, 0, 0)),
            recorded(1, 21, 39, (2, 1, 1)),
        ];
        spoil(&mut calls);
        let comparison = compare(&log, &trace(calls));
        (comparison.missing.len(), comparison.wrong.len())
    }

    #[test]
    fn each_defect_is_seen() {
        assert_eq!(spoiled(|_| ()), (0, 0));
        // The library may call B inside A, but not A.
        assert_eq!(
            spoiled(|calls| calls.push(recorded(1, 41, 42, (3, 1, 1)))),
            (0, 0)
        );
        assert_eq!(
            spoiled(|calls| calls.push(recorded(0, 60, 61, (3, 0, 0)))),
            (0, 1),
            "made up"
        );
        assert_eq!(spoiled(|calls| calls[1].tid = 3), (1, 1), "another thread");
        assert_eq!(spoiled(|calls| calls.truncate(1)), (1, 0), "missing");
        assert_eq!(
            spoiled(|calls| calls[0].begin = 9),
            (1, 1),
            "begins too early"
        );
        assert_eq!(spoiled(|calls| calls[0].end = 51), (1, 1), "ends too late");
        assert_eq!(
            spoiled(|calls| calls[1].function = 0),
            (1, 0),
            "another function, inside A"
        );
        assert_eq!(spoiled(|calls| calls[1].parent = 0), (0, 1), "not inside A");
        assert_eq!(
            spoiled(|calls| calls[0].parent = 77),
            (0, 1),
            "inside something"
        );
        assert_eq!(spoiled(|calls| calls[0].args[5] = 8), (0, 1), "argument");
        assert_eq!(
            spoiled(|calls| calls[0].stack[7] = 8),
            (0, 1),
            "stack argument"
        );
        assert_eq!(
            spoiled(|calls| calls[0].how = CallEnd::Returned(101)),
            (0, 1),
            "result"
        );
        assert_eq!(
            spoiled(|calls| calls[0].how = CallEnd::ThreadExited),
            (1, 1),
            "not returned"
        );
    }

    #[test]
    fn calls_that_never_return() {
        let log = log(vec![logged("hipA", 10, None), logged("hipB", 20, None)]);
        let mut calls = vec![
            recorded(0, 11, 60, (1, 0, 0)),
            recorded(1, 21, 60, (2, 1, 1)),
        ];
        assert_eq!(compare(&log, &trace(calls.clone())).missing.len(), 2);
        for call in &mut calls {
            call.how = CallEnd::ThreadExited;
        }
        compare(&log, &trace(calls)).assert_exact();
    }

    #[test]
    fn of_a_killed_program_the_last_call_may_have_returned() {
        let calls = vec![
            recorded(0, 11, 19, (1, 0, 0)),
            recorded(1, 31, 39, (2, 0, 0)),
        ];
        let killed = |calls: Vec<LoggedCall>, recorded: Vec<Call>| {
            compare_killed(&log(calls), &trace(recorded))
        };
        let logs = |end| vec![logged("hipA", 10, end), logged("hipB", 30, None)];
        killed(logs(Some(20)), calls.clone()).assert_exact();
        killed(logs(Some(20)), calls[..1].to_vec()).assert_exact();
        let wrong = killed(logs(None), calls).wrong.len();
        assert_eq!(wrong, 1, "only the last one");
    }

    #[test]
    fn a_window_excuses_what_is_missing_but_not_what_is_wrong() {
        let log = log(vec![
            logged("hipA", 10, Some(20)),
            logged("hipA", 30, Some(40)),
            logged("hipA", 50, Some(60)),
        ]);
        let partial = vec![recorded(0, 31, 39, (1, 0, 0))];
        compare_within(&log, &trace(partial), &(25..=45)).assert_exact();
        let wrong = vec![
            recorded(0, 31, 39, (1, 0, 0)),
            recorded(0, 51, 61, (2, 0, 0)),
        ];
        assert_eq!(
            compare_within(&log, &trace(wrong), &(25..=45)).wrong.len(),
            1
        );
    }
}
