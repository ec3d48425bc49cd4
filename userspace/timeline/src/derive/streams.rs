//! Which stream a handle means: the one place that says so for all outputs.
//!
//! A handle is a pointer, so a stream that is created after another one was destroyed often has the
//! same. A stream begins with the call that creates it, or else when a call or work names it, and
//! ends with the call that destroys it or with its program. `hipStreamPerThread` is another stream
//! in each thread; functions whose names end in `_spt` mean it where they are given the null stream,
//! or no stream at all.

use std::collections::{HashMap, HashSet, VecDeque};

use foldhash::fast::RandomState;
use gputrace_catalog::{
    launch::{self, Launch},
    word,
};
use gputrace_text::tables::plural;

use crate::model::{
    event::{Call, CallEnd, Event, FunctionInfo, Lifetime, LifetimeChange},
    gpu::Origin,
    stream::{PER_THREAD, StreamInfo, StreamKey},
};

/// The C type of streams; with a `*`, of a pointer through which a new one is stored.
const STREAM: &str = "hipStream_t";

/// Maximum number of calls remembered whose null stream is the thread's own.
const MOST_OWN: usize = 1 << 16;

/// Maximum number of streams remembered after their end, for work that is emitted long after it was
/// submitted.
const MOST_ENDED: usize = 1 << 14;

/// Follows streams.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    /// Stream arguments of functions, by function id.
    functions: HashMap<u32, Function, RandomState>,
    processes: HashMap<u32, Process, RandomState>,
    /// The latest streams that have ended: process, name and number.
    ended: VecDeque<(u32, StreamKey, u32)>,
    /// Number of calls and work whose stream was no longer known.
    unknown: u64,
    /// The latest calls that used the thread's own stream as the null stream, by correlation id,
    /// and these ids in order.
    own: HashSet<u64, RandomState>,
    own_order: VecDeque<u64>,
    count: u32,
    /// Streams that have not been announced, and the event that names them.
    ready: VecDeque<Event>,
}

/// The streams of a process.
#[derive(Debug, Default)]
struct Process {
    /// By name, in order of time.
    streams: HashMap<StreamKey, Vec<Life>, RandomState>,
    /// When the last stream ended that is no longer remembered, ns `CLOCK_BOOTTIME`; 0 if all are.
    forgotten: u64,
}

/// What a function does with streams.
#[derive(Debug)]
struct Function {
    words: Vec<StreamWord>,
    destroys: bool,
    /// Whether its null stream is the thread's own.
    own: bool,
}

/// An argument that is a stream.
#[derive(Clone, Copy, Debug)]
struct StreamWord {
    word: u8,
    /// Whether the argument is a pointer through which the function stores a new stream.
    stored: bool,
}

/// A stream.
#[derive(Clone, Copy, Debug)]
struct Life {
    /// As in [`StreamInfo`].
    number: u32,
    since: u64,
    until: u64,
    first_use: u64,
}

impl Streams {
    /// Learns from an event that is to be emitted. Calls and work get the number of their stream, and
    /// work in the thread's own stream gets its handle.
    pub(crate) fn seen(&mut self, event: &mut Event) {
        match event {
            Event::Function(info) => self.function(info),
            Event::Call(call) => self.call(call),
            Event::Dispatch(dispatch) => self.work(&mut dispatch.origin),
            Event::Copy(copy) => self.work(&mut copy.origin),
            Event::Lifetime(lifetime) => self.lifetime(lifetime),
            _ => {}
        }
    }

    /// The next event to emit where `event` is to be emitted, with the streams that came up since
    /// the last call before it.
    pub(crate) fn announced(&mut self, event: Event) -> Event {
        match self.ready.pop_front() {
            Some(first) => {
                self.ready.push_back(event);
                first
            }
            None => event,
        }
    }

    /// An event that comes before all others.
    pub(crate) fn next(&mut self) -> Option<Event> {
        self.ready.pop_front()
    }

    fn function(&mut self, info: &FunctionInfo) {
        let parameters = info.function.parameters.iter().flatten();
        let words: Vec<StreamWord> = parameters
            .filter_map(|parameter| {
                let rest = parameter.c_type.strip_prefix(STREAM)?.trim();
                let word = word(parameter.at)?;
                let stored = match rest {
                    "" => false,
                    "*" => true,
                    _ => return None,
                };
                Some(StreamWord { word, stored })
            })
            .collect();
        let own = info.function.name.ends_with(launch::PER_THREAD);
        if own || !words.is_empty() {
            let launch = launch::launch(&info.function.name);
            let destroys = matches!(launch, Some((Launch::DestroyStream, _)));
            let function = Function {
                words,
                destroys,
                own,
            };
            self.functions.insert(info.function.id, function);
        }
    }

    fn call(&mut self, call: &mut Call) {
        let Some(function) = self.functions.get(&call.function) else {
            return;
        };
        let succeeded = matches!(call.how, CallEnd::Returned(status) if status as u32 == 0);
        let destroys = function.destroys && succeeded;
        let (own, mut is_null) = (function.own, true);
        let named = function.words.iter().filter_map(|at| {
            let handle = match at.stored {
                true => call.stored(at.word).filter(|_| succeeded)?,
                false => call.word(at.word)?,
            };
            is_null &= handle == 0;
            Some((at.stored, StreamKey::of(call.tid, handle)?))
        });
        let named: Vec<(bool, StreamKey)> = named.collect();
        if own && is_null {
            self.in_own(call);
        }
        for (created, key) in named {
            if created {
                self.created(call.pid, key, call.end);
            } else {
                let number = self.named(call.pid, key, call.begin);
                if call.stream_id == 0 {
                    call.stream_id = number;
                }
            }
            if destroys {
                self.destroyed(call.pid, key, (call.begin, call.end));
            }
        }
    }

    /// A call used the thread's own stream as the null stream.
    fn in_own(&mut self, call: &Call) {
        if let Some(key) = StreamKey::of(call.tid, PER_THREAD) {
            self.named(call.pid, key, call.begin);
        }
        self.own.insert(call.correlation);
        self.own_order.push_back(call.correlation);
        if self.own_order.len() > MOST_OWN
            && let Some(oldest) = self.own_order.pop_front()
        {
            self.own.remove(&oldest);
        }
    }

    fn work(&mut self, origin: &mut Origin) {
        let Origin {
            outermost,
            innermost,
            ..
        } = *origin;
        let in_own = || self.own.contains(&outermost) || self.own.contains(&innermost);
        if !self.own.is_empty() && origin.stream.unwrap_or_default() == 0 && in_own() {
            origin.stream = Some(PER_THREAD);
        }
        let handle = origin.stream.unwrap_or_default();
        if let Some(key) = StreamKey::of(origin.tid, handle) {
            origin.stream_id = self.named(origin.pid, key, origin.time);
        }
    }

    fn lives(&mut self, pid: u32, key: StreamKey) -> &mut Vec<Life> {
        let process = self.processes.entry(pid).or_default();
        process.streams.entry(key).or_default()
    }

    /// A stream is named at `time`. Returns its number; 0 if it is no longer remembered.
    fn named(&mut self, pid: u32, key: StreamKey, time: u64) -> u32 {
        let process = self.processes.entry(pid).or_default();
        let lives = process.streams.entry(key).or_default();
        let next = lives.partition_point(|life| life.since <= time);
        let since = match lives.get_mut(..next).and_then(<[Life]>::last_mut) {
            Some(life) if time <= life.until => {
                life.first_use = life.first_use.min(time);
                return life.number;
            }
            _ if process.forgotten != 0 && time <= process.forgotten => {
                self.unknown += 1;
                return 0;
            }
            Some(life) => life.until,
            None => process.forgotten,
        };
        let until = lives.get(next).map_or(u64::MAX, |life| life.since);
        self.begin(pid, key, next, (since, until, time))
    }

    /// A call that ended at `time` has created a stream.
    fn created(&mut self, pid: u32, key: StreamKey, time: u64) {
        let lives = self.lives(pid, key);
        let next = lives.partition_point(|life| life.since <= time);
        let until = lives.get(next).map_or(u64::MAX, |life| life.since);
        if let Some(before) = lives.get_mut(..next).and_then(<[Life]>::last_mut)
            && time <= before.until
        {
            if time <= before.first_use {
                // Its work has come up before.
                before.since = time;
                return;
            }
            let was_open = before.until == u64::MAX;
            let number = before.number;
            before.until = time;
            if was_open {
                self.over(pid, key, number);
            }
        }
        self.begin(pid, key, next, (time, until, time));
    }

    fn begin(&mut self, pid: u32, key: StreamKey, at: usize, times: (u64, u64, u64)) -> u32 {
        let (since, until, first_use) = times;
        self.count += 1;
        let number = self.count;
        let life = Life {
            number,
            since,
            until,
            first_use,
        };
        self.lives(pid, key).insert(at, life);
        if until != u64::MAX {
            self.over(pid, key, number);
        }
        self.ready.push_back(Event::Stream(StreamInfo {
            number,
            pid,
            key,
            since,
        }));
        number
    }

    /// A call has destroyed the stream that had this name when it began.
    fn destroyed(&mut self, pid: u32, key: StreamKey, (begin, end): (u64, u64)) {
        let lives = self.lives(pid, key);
        let next = lives.partition_point(|life| life.since <= begin);
        if let Some(life) = lives.get_mut(..next).and_then(<[Life]>::last_mut) {
            let was_open = life.until == u64::MAX;
            let number = life.number;
            life.until = life.until.min(end);
            if was_open {
                self.over(pid, key, number);
            }
        }
    }

    fn lifetime(&mut self, lifetime: &Lifetime) {
        let Some(process) = self.processes.get_mut(&lifetime.pid) else {
            return;
        };
        let is_over = |key: &StreamKey| match lifetime.what {
            LifetimeChange::Executed { .. } | LifetimeChange::ProcessStarted { .. } => true,
            LifetimeChange::ThreadStarted { .. } => key.thread == Some(lifetime.tid),
            LifetimeChange::Exited => lifetime.tid == lifetime.pid,
            LifetimeChange::Renamed { .. } => false,
        };
        let mut over = Vec::new();
        for (key, lives) in process.streams.iter_mut().filter(|(key, _)| is_over(key)) {
            for life in lives {
                if life.until == u64::MAX {
                    over.push((*key, life.number));
                }
                life.until = life.until.min(lifetime.time.max(life.since));
            }
        }
        // Which ones are forgotten first must not depend on the order of a hash map.
        over.sort_unstable_by_key(|(_, number)| *number);
        for (key, number) in over {
            self.over(lifetime.pid, key, number);
        }
    }

    /// A stream has ended: forgets the one that ended first if that makes too many.
    fn over(&mut self, pid: u32, key: StreamKey, number: u32) {
        self.ended.push_back((pid, key, number));
        if self.ended.len() <= MOST_ENDED {
            return;
        }
        if let Some((pid, key, number)) = self.ended.pop_front()
            && let Some(process) = self.processes.get_mut(&pid)
            && let Some(lives) = process.streams.get_mut(&key)
        {
            let gone = lives.extract_if(.., |life| life.number == number);
            let until = gone.map(|life| life.until).max().unwrap_or_default();
            process.forgotten = process.forgotten.max(until);
            if lives.is_empty() {
                process.streams.remove(&key);
            }
        }
    }

    /// What to say at the end.
    pub(crate) fn remark(&self) -> Option<String> {
        (self.unknown > 0).then(|| {
            format!(
                "{} named a stream that had ended long before: more than {MOST_ENDED} streams ended \
                 since. They are shown in the null stream.",
                plural(self.unknown, "call or piece of work", "calls or pieces of work"),
            )
        })
    }
}

#[cfg(test)]
mod tests;
