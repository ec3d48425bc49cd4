//! Whether programs want to be recorded, if only what they ask for is shown.

use std::collections::HashMap;

use gputrace_text::tables::plural;

use super::{ThreadId, history::History};
use crate::model::event::Call;

/// Beginning of the remark that programs selected nothing of what was recorded.
pub const NOTHING_SELECTED: &str = "Nothing was selected";

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

    /// Counts a call or operation of a GPU, by whether it is shown.
    pub(super) fn count(&mut self, shows: bool) {
        if shows {
            self.chosen += 1;
        } else {
            self.passed_over += 1;
        }
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
