//! Removes the probes of functions that turn out to be called too often, so that the program runs
//! at full speed again.
//!
//! Even a call that is not recorded, because of `--max-call-rate`, costs the program its
//! breakpoints. So a function whose probes take more than `--max-probe-time` for some seconds loses
//! them; each such function has links of its own for this. Calls counted until then stay in the
//! accounts. Later calls are not seen, and the recording says so.
//!
//! With `--overhead-limit`, ROCm's functions that only ask for a value lose and get back their
//! probes in the same way, as [`guard`] decides.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    slice,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use gputrace_abi::{cookie::Cookie, counters::CallRate};
use gputrace_capture::meta::{Function, ProbePrices};
use gputrace_export::costs;
use gputrace_loader::{
    ProbeError,
    attach::{Failure, Scope, TracedFunction},
    calls::Calls,
    probes::Probes,
};
use gputrace_text::tables::plural;

use super::guard::{self, Course, Seen, Step};

/// Number of consecutive looks, about a second apart, at which a function's probes must have taken
/// too much time. A single one may be a burst.
const LOOKS: u32 = 2;

/// Maximum number of functions with links of their own. Each link is a file descriptor, and takes
/// the kernel a moment to remove.
const MOST: usize = 2048;

/// The same where the kernel removes one link after the other, each with a grace period.
const MOST_SLOW: usize = 16;

/// The user is told of so many removals of a function's probes. Further ones are only in the
/// recording.
const TOLD: u32 = 3;

/// A function whose call rate or probe time is limited, or that is guarded.
#[derive(Debug)]
struct Limited {
    name: String,
    /// Its own probes; empty if it shares links with others, or its probes were removed.
    probes: Vec<Probes>,
    /// Approximate time that its probes take per call, ns.
    cost: u64,
    /// Number of calls at the last look.
    calls: u64,
    /// Number of consecutive looks at which its probes took too much time.
    above: u32,
    /// Whether its probes were removed, or the user was told that they cannot be.
    is_cooled: bool,
    /// Set for functions that get their probes back.
    guarded: Option<Guarded>,
}

/// What is needed to put back a function's probes.
#[derive(Debug)]
struct Guarded {
    course: Course,
    sites: Vec<Site>,
    /// Removes the last probes.
    remover: Option<JoinHandle<()>>,
}

/// A file and a scope in which a function is probed.
#[derive(Debug)]
struct Site {
    path: PathBuf,
    scope: Scope,
    function: TracedFunction,
}

/// Remarks of a look.
#[derive(Debug, Default)]
pub(crate) struct Remarks {
    /// For the user, and for the recording.
    pub(crate) told: Vec<String>,
    /// For the recording alone.
    pub(crate) noted: Vec<String>,
}

/// The functions of a file that have links of their own.
#[derive(Debug, Default)]
pub(crate) struct Own(Vec<TracedFunction>);

impl Own {
    /// Number of functions.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

/// Number of a function in the capture.
fn id(function: &TracedFunction) -> u32 {
    Cookie(function.entry.cookie).function()
}

/// All limited functions.
#[derive(Debug)]
pub(crate) struct ProbeLimiter {
    functions: HashMap<u32, Limited>,
    prices: ProbePrices,
    /// Maximum number of functions with links of their own.
    most: usize,
    /// Number of functions with links of their own.
    own: usize,
    /// Time of the last look.
    looked: Option<Instant>,
}

impl ProbeLimiter {
    /// A limiter of probes that are removed at once, or slowly (`is_slow`).
    pub(crate) fn new(is_slow: bool, prices: ProbePrices) -> Self {
        Self {
            functions: HashMap::new(),
            prices,
            most: if is_slow { MOST_SLOW } else { MOST },
            own: 0,
            looked: None,
        }
    }

    /// Whether any function is limited.
    pub(crate) fn any(&self) -> bool {
        !self.functions.is_empty()
    }

    /// Adds a function whose probes come back.
    pub(crate) fn guard(&mut self, function: &Function) {
        self.limit(function);
        if let Some(limited) = self.functions.get_mut(&function.id) {
            limited.guarded = Some(Guarded {
                course: Course::new(),
                sites: Vec::new(),
                remover: None,
            });
        }
    }

    /// Adds a limited function.
    pub(crate) fn limit(&mut self, function: &Function) {
        let cost = costs::of_call(function, &self.prices);
        self.functions.insert(
            function.id,
            Limited {
                name: function.name.clone(),
                probes: Vec::new(),
                cost: cost.unwrap_or_default(),
                calls: 0,
                above: 0,
                is_cooled: false,
                guarded: None,
            },
        );
    }

    /// Moves the limited functions out of a file's `traced` functions. If there are too many for
    /// links of their own, they stay there.
    pub(crate) fn take(&mut self, traced: &mut Vec<TracedFunction>) -> Own {
        let is_limited = |function: &TracedFunction| Cookie(function.entry.cookie).is_limited();
        let count = traced
            .iter()
            .filter(|function| is_limited(function))
            .count();
        if self.own + count > self.most {
            return Own::default();
        }
        self.own += count;
        Own(traced
            .extract_if(.., |function| is_limited(function))
            .collect())
    }

    /// Probes the functions of the file at `path` that have links of their own, for `scope`.
    /// Returns the probes that the kernel refused.
    ///
    /// # Errors
    ///
    /// [`ProbeError::BrokenObject`].
    pub(crate) fn attach(
        &mut self,
        calls: &Calls,
        path: &Path,
        scope: Scope,
        own: &Own,
    ) -> Result<Vec<Failure>, ProbeError> {
        let mut failures = Vec::new();
        for function in &own.0 {
            let limited = self.functions.get_mut(&id(function));
            let Some(limited) = limited.filter(|limited| !limited.is_cooled) else {
                continue;
            };
            if let Some(guarded) = &mut limited.guarded {
                guarded.sites.push(Site {
                    path: path.to_owned(),
                    scope,
                    function: function.clone(),
                });
                if guarded.course.is_absent() {
                    continue;
                }
            }
            let mut probes = calls.attach(path, scope, slice::from_ref(function))?;
            failures.append(&mut probes.failures);
            limited.probes.push(probes);
        }
        Ok(failures)
    }

    /// Begins a look at `now`. Returns the time since the last one; `None` for the first.
    pub(crate) fn begin_look(&mut self, now: Instant) -> Option<Duration> {
        let since = self.looked.replace(now);
        since.map(|before| now.duration_since(before))
    }

    /// Removes the probes of functions that have taken more than `most` percent of a CPU for too
    /// long, `passed` after the last look. Takes the number of calls by function. Returns remarks
    /// for the user.
    pub(crate) fn cool(
        &mut self,
        rates: &[(u32, CallRate)],
        most: u32,
        passed: Duration,
    ) -> Vec<String> {
        let mut told = Vec::new();
        let mut removed = Vec::new();
        for (function, called) in rates {
            let limited = self.functions.get_mut(function);
            let Some(limited) = limited.filter(|limited| limited.guarded.is_none()) else {
                continue;
            };
            let Some(percent) = limited.too_much(called.calls, most, passed) else {
                continue;
            };
            limited.is_cooled = true;
            let name = &limited.name;
            told.push(if limited.probes.is_empty() {
                format!(
                    "{name} was called so often that its probes took about {percent} % of a CPU. \
                     They stay, because only {} functions can lose their probes one by one: choose \
                     fewer, or leave it out with --exclude-functions",
                    self.most
                )
            } else {
                format!(
                    "{name} was called so often that its probes took about {percent} % of a CPU, \
                     so they were removed: its calls are neither recorded nor counted from here \
                     on. --max-probe-time=0 keeps the probes, --exclude-functions leaves the \
                     function out from the start"
                )
            });
            removed.append(&mut limited.probes);
        }
        withdraw(removed);
        told
    }

    /// Removes the probes of guarded functions as long as they take more than `most` percent of a
    /// CPU, and puts back those that have been absent for long enough, `passed` after the last
    /// look.
    pub(crate) fn guard_costs(
        &mut self,
        calls: &Calls,
        rates: &[(u32, CallRate)],
        most: u32,
        (now, passed): (Instant, Duration),
    ) -> Remarks {
        let called: HashMap<u32, u64> = rates.iter().map(|(id, rate)| (*id, rate.calls)).collect();
        let seen = self.functions.iter_mut().filter_map(|(id, limited)| {
            Some(Seen {
                id: *id,
                course: &mut limited.guarded.as_mut()?.course,
                price: limited.cost,
                calls: called.get(id).copied()?,
            })
        });
        let mut remarks = Remarks::default();
        for (id, step) in guard::look(seen.collect(), most, passed, now) {
            let Some(limited) = self.functions.get_mut(&id) else {
                continue;
            };
            let (text, removals) = match step {
                Step::Remove { percent, pause } => limited.leave(percent, pause, most),
                Step::Restore => limited.come_back(calls, now),
            };
            match removals {
                0..=TOLD => remarks.told.extend(text),
                _ => remarks.noted.extend(text),
            }
        }
        remarks
    }

    /// At the end of the recording: how long guarded functions had no probes.
    pub(crate) fn absences(&self, now: Instant) -> Vec<String> {
        let guarded = self.functions.values().filter_map(|limited| {
            let course = &limited.guarded.as_ref()?.course;
            (course.removals > 0).then_some((&limited.name, course))
        });
        let mut told: Vec<String> = guarded
            .map(|(name, course)| {
                let seconds = course.absent_until(now).as_secs_f64();
                let times = plural(course.removals.into(), "time", "times");
                format!(
                    "{name} was not traced for {seconds:.1} s in all, because its probes were removed \
                     {times} (--overhead-limit): its calls in that time are neither recorded nor \
                     counted"
                )
            })
            .collect();
        told.sort_unstable();
        told
    }

    /// Takes out the probes of a file that is no longer used.
    pub(crate) fn release(&mut self, own: &Own) -> Vec<Probes> {
        let functions = own.0.iter().map(id);
        let limited = functions.filter_map(|function| self.functions.remove(&function));
        let released: Vec<Probes> = limited.flat_map(|limited| limited.probes).collect();
        self.own = self.own.saturating_sub(own.len());
        released
    }

    /// At the end of the recording: remarks on functions of which calls were lost because there
    /// were more than `rate` per second.
    pub(crate) fn told(&self, rates: &[(u32, CallRate)], rate: u64) -> Vec<String> {
        let lost = rates.iter().filter(|(_, rate)| rate.dropped > 0);
        lost.map(|(function, called)| {
            let name = self.functions.get(function);
            let name = name.map_or("a function", |limited| &limited.name);
            let lost = called.dropped;
            format!(
                "{name} was called more than {rate} times a second; {lost} of its calls are not recorded. Leave it out \
                 with --exclude-functions, or allow more with --max-call-rate"
            )
        })
        .collect()
    }

    /// Returns all probes, to be removed.
    pub(crate) fn into_probes(self) -> impl Iterator<Item = Probes> {
        self.functions
            .into_values()
            .flat_map(|limited| limited.probes)
    }
}

/// Removes probes, entries first, while the recording goes on. The kernel takes its time, and
/// nothing waits for it; the end of this process ends it at the latest.
pub(crate) fn withdraw(probes: Vec<Probes>) -> Option<JoinHandle<()>> {
    if probes.is_empty() {
        return None;
    }
    let remove = move || Probes::withdraw(probes);
    // If no thread can be started, dropping the closure removes the probes.
    let remover = thread::Builder::new().name("remover".to_owned());
    remover.spawn(remove).ok()
}

impl Limited {
    /// Removes the probes for a while. Returns a remark, and the number of removals.
    fn leave(&mut self, percent: u64, pause: Duration, most: u32) -> (Option<String>, u32) {
        let removed = withdraw(std::mem::take(&mut self.probes));
        let Some(guarded) = &mut self.guarded else {
            return (None, 0);
        };
        guarded.remover = removed;
        let (name, seconds) = (&self.name, pause.as_secs());
        let text = format!(
            "{name} was called so often that its probes took about {percent} % of a CPU, so they are \
             removed for {seconds} s: its calls are neither recorded nor counted meanwhile \
             (--overhead-limit={most})"
        );
        (Some(text), guarded.course.removals)
    }

    /// Puts the probes back. Returns a remark, and the number of removals.
    fn come_back(&mut self, calls: &Calls, now: Instant) -> (Option<String>, u32) {
        let Some(guarded) = &mut self.guarded else {
            return (None, 0);
        };
        // Two probes at one place would record each call twice.
        let is_leaving = guarded
            .remover
            .as_ref()
            .is_some_and(|one| !one.is_finished());
        if is_leaving {
            guarded.course.not_restored(now);
            return (None, 0);
        }
        for site in &guarded.sites {
            let function = slice::from_ref(&site.function);
            match calls.attach(&site.path, site.scope, function) {
                Ok(probes) => self.probes.push(probes),
                // The process may have ended.
                Err(error) => tracing::debug!("{}: {error}", self.name),
            }
        }
        let text = format!("{} is traced again", self.name);
        (Some(text), guarded.course.removals)
    }

    /// Notes the number of calls so far, `passed` after the last look. If the probes have taken
    /// more than `most` percent of a CPU for too long, returns the percentage.
    fn too_much(&mut self, calls: u64, most: u32, passed: Duration) -> Option<u128> {
        let new = calls.saturating_sub(self.calls);
        self.calls = calls;
        let took = u128::from(new) * u128::from(self.cost) * 100;
        let percent = took.checked_div(passed.as_nanos())?;
        self.above = match percent > most.into() {
            true => self.above + 1,
            false => 0,
        };
        (self.above >= LOOKS && !self.is_cooled).then_some(percent)
    }
}

#[cfg(test)]
mod tests {
    use gputrace_abi::domain::Domain;
    use gputrace_capture::meta::ProbeCost;
    use gputrace_loader::attach::{End, Point};

    use super::*;

    fn point(function: u32, offset: u64, is_limited: bool) -> Point {
        let cookie = Cookie::new(function, 23, 0);
        let cookie = if is_limited { cookie.limited() } else { cookie };
        Point {
            offset,
            cookie: cookie.0,
        }
    }

    #[test]
    fn limited_functions_are_taken() {
        let mut limiter = ProbeLimiter::new(false, *costs::ASSUMED);
        let one = |id, is_limited| TracedFunction::by_return(point(id, id.into(), is_limited));
        let mut traced = vec![one(1, false), one(2, true), one(3, true), one(4, false)];
        traced[1].end = End::Exits(vec![point(2, 0x34, true)]);
        let taken = vec![traced[1].clone(), traced[2].clone()];
        let own = limiter.take(&mut traced);
        assert_eq!(traced, [one(1, false), one(4, false)]);
        assert_eq!(own.0, taken);
        // If there are too many functions, they stay together.
        let mut many: Vec<_> = (0..=MOST as u32).map(|id| one(id, true)).collect();
        let own = limiter.take(&mut many);
        assert_eq!((own.len(), many.len()), (0, MOST + 1));
    }

    #[test]
    fn a_burst_is_no_reason() {
        let mut limiter = ProbeLimiter::new(false, *costs::ASSUMED);
        limiter.limit(&Function {
            id: 7,
            name: "busy".to_owned(),
            domain: Domain::Library.id(),
            probe_cost: ProbeCost::Emulated,
            ..Function::default()
        });
        let limited = limiter.functions.get_mut(&7).unwrap();
        let cost = limited.cost;
        assert!(cost > 0);
        // Calls whose probes take 60 % of one second, looked at over two seconds.
        let busy = 600_000_000 / cost;
        let second = Duration::from_secs(1);
        let mut calls = 0;
        for (more, passed, expected) in [
            (busy, second, None),
            (busy, 2 * second, None),
            (busy, second, None),
            (0, second, None),
            (busy, second, None),
            (busy, second, Some(59)),
            (0, Duration::ZERO, None),
        ] {
            calls += more;
            assert_eq!(limited.too_much(calls, 50, passed), expected);
        }
        // Its probes cannot be removed, because there are too many functions: that is told once.
        limiter.functions.get_mut(&7).unwrap().above = 0;
        let rates = |calls| {
            let dropped = calls / 2;
            [(
                7,
                CallRate {
                    calls,
                    dropped,
                    ..CallRate::default()
                },
            )]
        };
        let mut all = Vec::new();
        for number in 1..5u32 {
            all.extend(limiter.cool(&rates(calls + u64::from(number) * 10 * busy), 50, second));
        }
        assert!(
            all.len() == 1 && all[0].contains("busy") && all[0].contains("only 2048 functions"),
            "{all:?}"
        );
        let told = limiter.told(&rates(40), 100);
        assert!(
            told[0].contains("busy") && told[0].contains("20 of its calls"),
            "{told:?}"
        );
        assert_eq!(limiter.told(&rates(1), 100), Vec::<String>::new());
    }
}
