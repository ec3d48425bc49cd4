//! Whether programs want to be recorded, if only what they ask for is shown.

use std::collections::{BTreeMap, HashMap, HashSet};

use gputrace_text::tables::plural;

use super::{ThreadId, history::History};
use crate::model::event::Call;

/// Beginning of the remark that programs selected nothing of what was recorded.
pub const NOTHING_SELECTED: &str = "Nothing was selected";

/// Beginning of the remark that GPUs worked outside of the regions that programs selected: figures
/// of GPUs are no more than lower bounds.
pub const WORK_NOT_SELECTED: &str = "Work of GPUs outside of selected regions is not shown";

/// What programs have asked to be recorded.
#[derive(Debug, Default)]
pub(super) struct Selection {
    /// Whether only what programs ask for is shown.
    is_on: bool,
    /// Whether each process wants to be recorded. If the number is not 0, the switch concerns only
    /// that thread.
    switches: HashMap<u32, History<(u32, bool)>>,
    /// Calls and GPU work outside, and inside, the regions that programs selected; counted only if
    /// nothing else is shown.
    passed_over: u64,
    chosen: u64,
    /// Kernels and copies in and outside such regions, and those outside of them.
    work: u64,
    work_passed_over: u64,
    /// Processes that began during the recording: those want to be recorded only if they say so.
    begun: HashSet<u32>,
    /// Of each other process, what was recorded before its first switch.
    before: BTreeMap<u32, Before>,
}

/// What was recorded of a process before it first switched.
#[derive(Clone, Copy, Debug, Default)]
struct Before {
    /// Number of calls and operations of GPUs.
    count: u64,
    /// Set by its first switch: whether that turned recording off.
    was_on: Option<bool>,
}

impl Selection {
    /// From now on, only what happens while a program wants to be recorded is shown.
    pub(super) fn select(&mut self) {
        self.is_on = true;
    }

    /// Whether only what programs ask for is shown.
    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    /// From here on, a program or one of its threads wants to be recorded, or does not.
    pub(super) fn switch(&mut self, call: &Call, tid: u32, on: bool) {
        if self.is_on && !self.begun.contains(&call.pid) {
            let before = self.before.entry(call.pid).or_default();
            before.was_on.get_or_insert(!on);
        }
        let at = if on { call.end } else { call.begin };
        self.switches
            .entry(call.pid)
            .or_default()
            .add(at, (tid, on));
    }

    /// Whether what a thread did at that time is to be shown.
    pub(super) fn shows(&self, (pid, tid): ThreadId, time: u64) -> bool {
        if !self.is_on {
            return true;
        }
        let Some(switches) = self.switches.get(&pid) else {
            return false;
        };
        let of_thread = |(whose, _): &(u32, bool)| *whose == 0 || *whose == tid;
        switches.latest(time, of_thread).is_some_and(|(_, on)| *on)
    }

    /// A process began, or executed another program.
    pub(super) fn begun(&mut self, pid: u32) {
        if self.is_on {
            self.begun.insert(pid);
        }
    }

    /// Counts a call or operation of a GPU in a process, of that time, by whether it is shown.
    pub(super) fn count(&mut self, pid: u32, time: u64, shows: bool) {
        if shows {
            self.chosen += 1;
            return;
        }
        self.passed_over += 1;
        let switches = self.switches.get(&pid);
        let is_before = switches.is_none_or(|switches| switches.at(time).is_none());
        if self.is_on && is_before && !self.begun.contains(&pid) {
            self.before.entry(pid).or_default().count += 1;
        }
    }

    /// Counts a kernel or copy by whether it is shown.
    pub(super) fn work(&mut self, shows: bool) {
        self.work += 1;
        self.work_passed_over += u64::from(!shows);
    }

    /// What to say of work that is not shown beside other things that are.
    pub(super) fn outside(&self) -> Option<String> {
        (self.chosen > 0 && self.work_passed_over > 0).then(|| {
            format!(
                "{WORK_NOT_SELECTED}: {} of {}. Busy times of GPUs are lower bounds, and nothing \
                 is known of gaps between kernels.",
                self.work_passed_over,
                plural(self.work, "kernel or copy", "kernels and copies")
            )
        })
    }

    /// What to say of processes that were inside of a region when the recording began.
    pub(super) fn inside(&self) -> impl Iterator<Item = String> {
        let inside = self
            .before
            .iter()
            .filter(|(_, before)| before.was_on == Some(true));
        inside.map(|(pid, before)| {
            format!(
                "Process {pid} was inside a region when the recording began: the first switch that \
                 it called turned recording off. What came before that (calls and operations of \
                 GPUs: {}) is in the capture, but --selected-regions does not show it.",
                before.count
            )
        })
    }

    /// What to say if only what programs select is shown, and they have selected nothing.
    pub(super) fn nothing(&self) -> Option<String> {
        if !self.is_on || self.chosen != 0 {
            return None;
        }
        let how = "--selected-regions shows only what lies between roctxProfilerResume and roctxProfilerPause, or other \
                   functions that switch recording on and off (hipProfilerStart, rocprofsys_user_start_trace, \
                   roctracer_start)";
        let why = if self.switches.is_empty() {
            "no call of such a function was recorded"
        } else {
            "nothing was recorded between their calls"
        };
        Some(format!(
            "{NOTHING_SELECTED}, {} not shown: {how}, and {why}.",
            plural(
                self.passed_over,
                "call or operation of a GPU is",
                "calls and operations of GPUs are"
            )
        ))
    }
}
