//! What a flight recorder waits for.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    time::Duration,
};

use foldhash::fast::RandomState;
use gputrace_capture::flight::Cause;
use gputrace_text::tables;
use gputrace_timeline::{
    args::{self, ArgValue},
    driver::EVICTED,
    event::{Call, CallEnd, Event, FunctionInfo, Pending},
    gpu::{Dispatch, KernelInfo},
    observation::Observation,
    tells_error,
};
use regex::Regex;

use crate::ring::nanos;

/// Maximum number of open calls that are remembered because they were told.
const TOLD: usize = 1 << 16;

/// After this time without news of the queues, nothing has changed: news come with the accounts,
/// at least every second while something happens. ns.
const QUIET: u64 = 1_500_000_000;

/// Something because of which a dump is made.
#[derive(Clone, Debug)]
pub enum Rule {
    /// A call takes longer than this; also while it is still open.
    Call {
        /// If set, only calls of functions whose names match.
        name: Option<Regex>,
        /// The time.
        longer: Duration,
    },
    /// A call returns an error.
    Error {
        /// If set, only errors with this name or number.
        name: Option<String>,
    },
    /// A kernel is known to have run longer than this.
    Kernel {
        /// If set, only kernels whose names match.
        name: Option<Regex>,
        /// The time.
        longer: Duration,
    },
    /// A queue has a dispatch that could have begun this long ago, and has not ended.
    Stuck {
        /// The time.
        longer: Duration,
    },
    /// The driver resets a GPU.
    Reset,
    /// A GPU accessed memory that it must not.
    Fault,
    /// The driver takes the queues of a process off a GPU.
    Eviction,
    /// The launched program is ended by a signal.
    Killed,
}

impl Rule {
    /// Whether the events of the recording say when the rule applies.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        !matches!(self, Self::Killed)
    }

    /// Whether the rule needs the driver's events.
    #[must_use]
    pub fn needs_driver(&self) -> bool {
        matches!(self, Self::Reset | Self::Fault | Self::Eviction)
    }

    /// The names under which timelines have what the rule waits for. Periods come when they are
    /// over; if their begin was not seen, only the end comes.
    fn driver_names(&self) -> &'static [&'static str] {
        match self {
            Self::Reset => &["GPU reset", "GPU_POST_RESET"],
            Self::Fault => &["VMFAULT"],
            Self::Eviction => &[EVICTED, "QUEUE_RESTORE"],
            _ => &[],
        }
    }
}

/// As users write it.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slow = |f: &mut fmt::Formatter<'_>, what, name: &Option<Regex>, longer: &Duration| {
            let name = name.as_ref().map(|name| format!("{name}:"));
            write!(f, "{what}={}{longer:?}", name.unwrap_or_default())
        };
        match self {
            Self::Call { name, longer } => slow(f, "call", name, longer),
            Self::Kernel { name, longer } => slow(f, "kernel", name, longer),
            Self::Error { name: None } => f.write_str("error"),
            Self::Error { name: Some(name) } => write!(f, "error={name}"),
            Self::Stuck { longer } => write!(f, "stuck={longer:?}"),
            Self::Reset => f.write_str("reset"),
            Self::Fault => f.write_str("fault"),
            Self::Eviction => f.write_str("eviction"),
            Self::Killed => f.write_str("killed"),
        }
    }
}

/// A call that has not returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenCall {
    /// Number of its function.
    pub function: u32,
    /// Process id, initial pid namespace.
    pub pid: u32,
    /// Thread id, initial pid namespace.
    pub tid: u32,
    /// When it began, ns `CLOCK_BOOTTIME`.
    pub begin: u64,
    /// Its correlation id.
    pub correlation: u64,
}

/// Looks for rules that apply in the events of a recording.
#[derive(Debug)]
pub struct Watch {
    rules: Vec<Rule>,
    functions: HashMap<u32, FunctionInfo, RandomState>,
    kernels: HashMap<u32, String, RandomState>,
    /// Calls that were told while they were open.
    told: HashSet<u64, RandomState>,
    /// Queues that do not move: process, agent and the time since when.
    stuck: HashSet<(u32, Option<u32>, u64), RandomState>,
    /// What queues had to do when it was last said.
    last: Pending,
}

impl Watch {
    /// Looks for these rules.
    #[must_use]
    pub fn new(rules: Vec<Rule>) -> Self {
        Self {
            rules,
            functions: HashMap::default(),
            kernels: HashMap::default(),
            told: HashSet::default(),
            stuck: HashSet::default(),
            last: Pending::default(),
        }
    }

    /// The shortest time after which an open call is of interest, ns; `None` if none ever is.
    #[must_use]
    pub fn open_after(rules: &[Rule]) -> Option<u64> {
        let times = rules.iter().filter_map(|rule| match rule {
            Rule::Call { longer, .. } => Some(nanos(*longer)),
            _ => None,
        });
        times.min()
    }

    /// The reason for a dump in the next event of the recording, if there is one.
    pub fn event(&mut self, event: &Event) -> Option<Cause> {
        match event {
            Event::Function(info) => {
                self.functions.insert(info.function.id, (**info).clone());
                None
            }
            Event::Kernel(kernel) => {
                let KernelInfo { id, shown, .. } = &**kernel;
                self.kernels.insert(*id, shown.clone());
                None
            }
            Event::Call(call) => self.slow(call).or_else(|| self.failed(call)),
            Event::Dispatch(dispatch) => self.long(dispatch),
            Event::Pending(pending) => {
                self.last.clone_from(pending);
                self.pending(pending)
            }
            Event::Observation(observed) => self.driver(observed),
            _ => None,
        }
    }

    /// The reason for a dump in that nothing happens, if there is one. All events up to `now`, ns
    /// `CLOCK_BOOTTIME`, must have been given.
    pub fn quiet(&mut self, now: u64) -> Option<Cause> {
        // While something happens, it is said more often what queues have to do.
        if self.last.queues.is_empty() || now.saturating_sub(self.last.time) < QUIET {
            return None;
        }
        let mut pending = std::mem::take(&mut self.last);
        pending.time = now;
        let cause = self.pending(&pending);
        // So that it is looked at again after a while.
        self.last = pending;
        cause
    }

    /// The reason for a dump in a call that is open at `now`, ns `CLOCK_BOOTTIME`, if there is one.
    pub fn open(&mut self, call: &OpenCall, now: u64) -> Option<Cause> {
        let length = now.saturating_sub(call.begin);
        let name = self.slow_name(call.function, length)?.to_owned();
        if self.told.len() >= TOLD {
            self.told.clear();
        }
        let is_new = self.told.insert(call.correlation);
        is_new.then(|| Cause {
            time: now,
            text: format!(
                "{name} of thread {} of process {} has not returned for {}",
                call.tid,
                call.pid,
                tables::duration(length as f64)
            ),
        })
    }

    /// Name of a function, if a rule is about calls of it that take so long.
    fn slow_name(&self, function: u32, length: u64) -> Option<&str> {
        let name = &self.functions.get(&function)?.function.name;
        let applies = self.rules.iter().any(|rule| match rule {
            Rule::Call { name: only, longer } => {
                length > nanos(*longer) && matches(only.as_ref(), name)
            }
            _ => false,
        });
        applies.then_some(name)
    }

    fn slow(&mut self, call: &Call) -> Option<Cause> {
        let length = call.end.saturating_sub(call.begin);
        let name = self.slow_name(call.function, length)?.to_owned();
        if self.told.remove(&call.correlation) {
            return None;
        }
        let took = if matches!(call.how, CallEnd::Returned(_)) {
            "took"
        } else {
            "was open for"
        };
        Some(Cause {
            time: call.end,
            text: format!(
                "{name} of thread {} of process {} {took} {}",
                call.tid,
                call.pid,
                tables::duration(length as f64)
            ),
        })
    }

    fn failed(&self, call: &Call) -> Option<Cause> {
        let mut rules = self.rules.iter();
        if !rules.any(|rule| matches!(rule, Rule::Error { .. })) {
            return None;
        }
        let info = self.functions.get(&call.function)?;
        if !tells_error(info, call) {
            return None;
        }
        let returned = args::returned(info, call)?;
        let error = match &returned {
            ArgValue::Status {
                name: Some(name), ..
            }
            | ArgValue::Enumerator { name, .. } => (*name).to_owned(),
            other => other.to_string(),
        };
        let code = match returned {
            ArgValue::Status { code, .. } => code.to_string(),
            ArgValue::Enumerator { code, .. } => code.to_string(),
            _ => String::new(),
        };
        let applies = self.rules.iter().any(|rule| match rule {
            Rule::Error { name: None } => true,
            Rule::Error { name: Some(only) } => *only == error || *only == code,
            _ => false,
        });
        applies.then(|| Cause {
            time: call.end,
            text: format!(
                "{} of process {} returned {error}",
                info.function.name, call.pid
            ),
        })
    }

    fn long(&self, dispatch: &Dispatch) -> Option<Cause> {
        let (shortest, _) = dispatch.time.proven_length()?;
        let unknown = "an unknown kernel";
        let name = dispatch.kernel.and_then(|id| self.kernels.get(&id));
        let name = name.map_or(unknown, String::as_str);
        let applies = self.rules.iter().any(|rule| match rule {
            Rule::Kernel { name: only, longer } => {
                shortest > nanos(*longer) && matches(only.as_ref(), name)
            }
            _ => false,
        });
        applies.then(|| Cause {
            time: dispatch.time.end,
            text: format!(
                "{name} of process {} ran for {} or longer",
                dispatch.origin.pid,
                tables::duration(shortest as f64)
            ),
        })
    }

    fn pending(&mut self, pending: &Pending) -> Option<Cause> {
        let longer = self.rules.iter().find_map(|rule| match rule {
            Rule::Stuck { longer } => Some(nanos(*longer)),
            _ => None,
        })?;
        let now = pending.time;
        // What moves again is of interest again.
        let still = |(pid, node, since): &(u32, Option<u32>, u64)| {
            let mut queues = pending.queues.iter();
            queues.any(|queue| (queue.pid, queue.node_id, queue.since) == (*pid, *node, *since))
        };
        self.stuck.retain(still);
        for queue in &pending.queues {
            let length = now.saturating_sub(queue.since);
            if length > longer && self.stuck.insert((queue.pid, queue.node_id, queue.since)) {
                return Some(Cause {
                    time: now,
                    text: format!(
                        "a queue of process {} has not moved for {}, with {} to do",
                        queue.pid,
                        tables::duration(length as f64),
                        queue.dispatches
                    ),
                });
            }
        }
        None
    }

    fn driver(&self, observed: &Observation) -> Option<Cause> {
        let mut names = self.rules.iter().flat_map(Rule::driver_names);
        let name = names.find(|name| observed.name == **name)?;
        let whose = match observed.whose.pid {
            0 => String::new(),
            pid => format!(" of process {pid}"),
        };
        Some(Cause {
            time: observed.begin,
            text: format!(
                "the driver reported {name}{whose} on GPU {:#x}",
                observed.whose.gpu_id
            ),
        })
    }
}

fn matches(only: Option<&Regex>, name: &str) -> bool {
    only.is_none_or(|only| only.is_match(name))
}

#[cfg(test)]
mod tests;
