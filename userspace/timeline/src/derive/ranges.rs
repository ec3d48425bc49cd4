//! What programs tell profilers, made into events: ranges from the calls that begin and end them, the external
//! correlation ids under which calls and GPU work stand, and whether a program wants to be recorded.
//!
//! A range is an [`Event::Call`] whose function is its text: it lasts from the call that began it to the call that
//! ended it, which are not events of their own. So every exporter shows ranges as it shows calls, and as rocprofv3
//! shows them. Calls of one thread come in order, those of several in order of their groups, and
//! what a thread said before it submitted something is known when that is emitted: see [`crate::timeline`].

mod history;
mod nesting;

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;
use gputrace_capture::meta::{Function, ValueKind};
use gputrace_catalog::markers::{Marker, marker};

use self::{
    history::History,
    nesting::{Nesting, Open},
};
use crate::model::{
    event::{Call, CallEnd, Event, FunctionInfo, RangeKind, ThreadInfo},
    gpu::Origin,
    values::{Annotation, Pointee, PointeeData},
};

/// Number of the first function that is a range's text; those of a capture are far below.
const FIRST_TEXT: u32 = 1 << 31;

/// Different texts that become functions. Ranges with further ones stand under the function that began them, with the
/// text as an argument: memory must not grow with what a program makes up.
const MOST_TEXTS: usize = 1 << 16;

/// How the remark begins that programs have selected nothing of what was recorded.
pub const NOTHING_SELECTED: &str = "Nothing was selected";

/// In ids of ranges that are sections, whose numbers are others than those of other ranges.
const SECTION: u64 = 1 << 63;

/// What is between the names of a copy's destination and source.
const FROM: &str = " <- ";

/// A process and a thread of it.
type ThreadId = (u32, u32);

#[derive(Debug, Default)]
struct Thread {
    /// Nested ranges.
    open: Nesting,
    /// Text of the innermost, or of the last mark inside it, as a function.
    innermost: History<Option<u32>>,
    /// External correlation ids, outermost first.
    ids: Vec<u64>,
    external: History<Option<u64>>,
}

/// Ranges, ids and switches of all processes.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    /// By number of the function.
    markers: HashMap<u32, (Marker, FunctionInfo), RandomState>,
    texts: HashMap<String, u32>,
    /// What markers without a text stand under, by the function that was called and what it began.
    textless: HashMap<(u32, RangeKind), u32>,
    /// Threads that are known to live.
    alive: HashSet<ThreadId, RandomState>,
    /// Names that threads have given themselves.
    names: HashMap<ThreadId, String>,
    threads: HashMap<ThreadId, Thread, RandomState>,
    /// What the sections of a process are called, as functions, by process and id.
    sections: HashMap<(u32, u64), u32>,
    /// Ranges that may end in any thread, by process and id; those of sections have [`SECTION`] in it.
    free: HashMap<(u32, u64), Open>,
    /// Whether each process wants to be recorded; for one of its threads only, if the number is not 0.
    switches: HashMap<u32, History<(u32, bool)>>,
    /// Whether only what programs ask for is shown.
    selected: bool,
    /// Ends of ranges whose beginnings are not known.
    unmatched: u64,
    /// Ranges that never ended.
    endless: u64,
    /// Ranges whose ends were passed over.
    skipped: u64,
    /// Markers whose texts were too many.
    unnamed: u64,
    /// Calls and GPU work that programs had not, and had, asked for, if only the latter are shown.
    passed_over: u64,
    chosen: u64,
}

impl Ranges {
    /// From now on, only what happens while a program wants to be recorded becomes events.
    pub(crate) fn select(&mut self) {
        self.selected = true;
    }

    /// Learns a function.
    pub(crate) fn function(&mut self, info: &FunctionInfo) {
        if let Some(marker) = marker(&info.function.name) {
            self.markers
                .insert(info.function.id, (marker, info.clone()));
        }
    }

    /// Whether a call is no marker, and so stands for itself; it then gets its external correlation id, and the range
    /// that it is in.
    #[inline]
    pub(crate) fn passes(&mut self, call: &mut Call) -> bool {
        let is_marker = !self.markers.is_empty() && self.markers.contains_key(&call.function);
        if !is_marker && !self.threads.is_empty() {
            call.external = self.external(call);
            call.range = self.around(call);
        }
        !is_marker
    }

    /// The range directly around a call.
    fn around(&mut self, call: &Call) -> u64 {
        let thread = self.threads.get_mut(&(call.pid, call.tid));
        thread.map_or(0, |thread| thread.open.around(call))
    }

    fn external(&self, call: &Call) -> Option<u64> {
        let thread = self.threads.get(&(call.pid, call.tid))?;
        *thread.external.at(call.begin)?
    }

    /// Takes a call, and gives what stands for it: itself, a range, or nothing yet. A function that is new comes before
    /// the first call of it.
    pub(crate) fn call(&mut self, mut call: Call, ready: &mut impl Extend<Event>) {
        let thread = (call.pid, call.tid);
        call.range = self.around(&call);
        let Some(marker) = self.markers.get(&call.function).map(|(marker, _)| *marker) else {
            return self.emit(call, ready);
        };
        match marker {
            Marker::Mark { .. } | Marker::MarkAs(_) => {
                let (function, said) = self.text(&call, RangeKind::Mark, ready);
                if said
                    && marker
                        == (Marker::Mark {
                            names_kernels: true,
                        })
                {
                    let known = self.threads.entry(thread).or_default();
                    known.open.mark(function);
                    known.innermost.add(call.begin, Some(function));
                }
                let end = call.begin;
                self.emit(
                    Call {
                        function,
                        end,
                        ..call
                    },
                    ready,
                );
            }
            Marker::Push { .. } | Marker::PushCopy => {
                let counts = marker == Marker::Push { level: true };
                let (function, said) = self.text(&call, RangeKind::Nested, ready);
                let level = result(&call).filter(|_| counts);
                let known = self.threads.entry(thread).or_default();
                // Kernels are not to be called like the function that was to tell what they are called.
                let innermost = if said { function } else { call.function };
                known.innermost.add(call.begin, Some(innermost));
                known.open.push(Open {
                    call,
                    function,
                    level,
                    mark: None,
                });
            }
            Marker::Pop { level } => {
                let level = result(&call).filter(|_| level);
                self.pop(&call, level, ready);
            }
            Marker::Start => {
                let (function, _) = self.text(&call, RangeKind::Free, ready);
                let id = result(&call).unwrap_or(0);
                self.start(id, function, call, ready);
            }
            Marker::Stop => self.stop(call.args[0], &call, ready),
            Marker::NameSection => {
                let (function, said) = self.text(&call, RangeKind::Free, ready);
                if let Some(id) = call.stored(1)
                    && said
                    && self.sections.len() < MOST_TEXTS
                {
                    self.sections.insert((thread.0, id), function);
                }
            }
            Marker::StartSection => {
                let id = u64::from(call.args[0] as u32);
                let function = match self.sections.get(&(thread.0, id)) {
                    Some(function) => *function,
                    None => self.textless(&call, RangeKind::Free, ready),
                };
                self.start(SECTION | id, function, call, ready);
            }
            Marker::StopSection => {
                self.stop(SECTION | u64::from(call.args[0] as u32), &call, ready)
            }
            Marker::Resume | Marker::Pause => {
                let on = marker == Marker::Resume;
                // `roctxProfilerPause(tid)`; the others have no argument.
                let tid = match self.markers.get(&call.function) {
                    Some((_, info)) if has_parameters(info) => call.args[0] as u32,
                    _ => 0,
                };
                self.switch(&call, tid, on);
                self.emit(call, ready);
            }
            Marker::ResumeThread | Marker::PauseThread => {
                self.switch(&call, call.tid, marker == Marker::ResumeThread);
                self.emit(call, ready);
            }
            Marker::NameThread => {
                if let Some(name) = said(&call, 0) {
                    let (pid, tid) = thread;
                    self.names.insert(thread, name.clone());
                    ready.extend([Event::Thread(ThreadInfo { pid, tid, name })]);
                }
                self.emit(call, ready);
            }
            Marker::PushCorrelation { id, thread: whose } => {
                let word = |word: u8| call.args.get(usize::from(word)).copied().unwrap_or(0);
                let (id, whose) = (word(id), self.owner(&call, whose.map(word)));
                let known = self.threads.entry(whose).or_default();
                known.ids.push(id);
                known.external.add(call.end, Some(id));
                self.emit(call, ready);
            }
            Marker::PopCorrelation { thread: whose } => {
                let word = |word: u8| call.args.get(usize::from(word)).copied().unwrap_or(0);
                let whose = self.owner(&call, whose.map(word));
                let known = self.threads.entry(whose).or_default();
                if known.ids.pop().is_none() {
                    self.unmatched += 1;
                }
                let outer = known.ids.last().copied();
                known.external.add(call.begin, outer);
                self.emit(call, ready);
            }
        }
    }

    /// The thread that a call speaks of: the one in its argument, or its own. In another pid namespace the program knows its
    /// threads by other numbers; what it calls then nearly always means the caller.
    fn owner(&self, call: &Call, whose: Option<u64>) -> ThreadId {
        let named = whose.map(|tid| (call.pid, tid as u32));
        named
            .filter(|thread| self.alive.contains(thread))
            .unwrap_or((call.pid, call.tid))
    }

    /// A program, or one thread of it, wants to be recorded from here on, or does not.
    fn switch(&mut self, call: &Call, tid: u32, on: bool) {
        let at = if on { call.end } else { call.begin };
        self.switches
            .entry(call.pid)
            .or_default()
            .add(at, (tid, on));
    }

    /// A range begins that may end in any thread.
    fn start(&mut self, id: u64, function: u32, call: Call, ready: &mut impl Extend<Event>) {
        let key = (call.pid, id);
        let open = Open {
            function,
            level: None,
            call,
            mark: None,
        };
        if let Some(before) = self.free.insert(key, open) {
            self.skipped += 1;
            let end = before.call.end;
            self.emit(before.over(end, CallEnd::RecordingStopped), ready);
        }
    }

    /// It ends with this call.
    fn stop(&mut self, id: u64, call: &Call, ready: &mut impl Extend<Event>) {
        match self.free.remove(&(call.pid, id)) {
            Some(open) => {
                let how = open.call.how;
                self.emit(open.over(call.end, how), ready);
            }
            None => self.unmatched += 1,
        }
    }

    /// A nested range ends. The library's own count of ranges tells which, also when calls were lost.
    fn pop(&mut self, call: &Call, level: Option<u64>, ready: &mut impl Extend<Event>) {
        let Some(thread) = self.threads.get_mut(&(call.pid, call.tid)) else {
            self.unmatched += 1;
            return;
        };
        let (inner, ended) = thread.open.end(level);
        let Some(mut ended) = ended else {
            self.unmatched += 1;
            return;
        };
        thread.innermost.add(call.end, thread.open.innermost());
        self.skipped += inner.len() as u64;
        // When these really ended is not known.
        for open in inner {
            self.emit(open.over(call.begin, CallEnd::RecordingStopped), ready);
        }
        annotate_more(&mut ended.call, call);
        let how = ended.call.how;
        self.emit(ended.over(call.end, how), ready);
    }

    fn emit(&self, mut call: Call, ready: &mut impl Extend<Event>) {
        call.external = self.external(&call);
        ready.extend([Event::Call(call)]);
    }

    /// The function that stands for the text of a marker, and whether there is a text.
    fn text(
        &mut self,
        call: &Call,
        kind: RangeKind,
        ready: &mut impl Extend<Event>,
    ) -> (u32, bool) {
        let text = match self.markers.get(&call.function) {
            Some((Marker::MarkAs(text), _)) => Some((*text).to_owned()),
            Some((Marker::PushCopy, _)) => copy(call),
            _ => said(call, 0),
        };
        let Some(text) = text else {
            return (self.textless(call, kind, ready), false);
        };
        // One text may be that of ranges of several kinds.
        let key = format!("{}{text}", kind as u8);
        if let Some(known) = self.texts.get(&key) {
            return (*known, true);
        }
        if self.texts.len() >= MOST_TEXTS {
            self.unnamed += 1;
            return (self.textless(call, kind, ready), false);
        }
        let function = self.stand_in(call, kind, Some(text), ready);
        self.texts.insert(key, function);
        (function, true)
    }

    /// The function that stands for markers without a text: called like that which was called, with its arguments.
    fn textless(&mut self, call: &Call, kind: RangeKind, ready: &mut impl Extend<Event>) -> u32 {
        let key = (call.function, kind);
        if let Some(known) = self.textless.get(&key) {
            return *known;
        }
        let function = self.stand_in(call, kind, None, ready);
        self.textless.insert(key, function);
        function
    }

    /// Describes a function that stands for markers.
    fn stand_in(
        &self,
        call: &Call,
        kind: RangeKind,
        text: Option<String>,
        ready: &mut impl Extend<Event>,
    ) -> u32 {
        let Some((_, api)) = self.markers.get(&call.function) else {
            return call.function;
        };
        // As many texts as there may be, and a few for each function that is a marker.
        let id = FIRST_TEXT + (self.texts.len() + self.textless.len()) as u32;
        let function = match text {
            Some(name) => Function {
                name,
                aliases: vec![api.function.name.clone()],
                domain: api.function.domain,
                parameters: Some(Vec::new()),
                returns: ValueKind::Void,
                ..Function::default()
            },
            None => api.function.clone(),
        };
        let info = FunctionInfo {
            function: Function { id, ..function },
            range: Some(kind),
            ..api.clone()
        };
        ready.extend([Event::Function(Box::new(info))]);
        id
    }

    /// Whether something that a thread did at that time is to be shown.
    fn shows(&self, (pid, tid): ThreadId, time: u64) -> bool {
        if !self.selected {
            return true;
        }
        let Some(switches) = self.switches.get(&pid) else {
            return false;
        };
        let of_thread = |(whose, _): &(u32, bool)| *whose == 0 || *whose == tid;
        switches.latest(time, of_thread).is_some_and(|(_, on)| *on)
    }

    /// Adds to GPU work what is known from the thread that asked for it, and to threads the names that they gave
    /// themselves. Whether the event is to be shown.
    pub(crate) fn annotate(&mut self, event: &mut Event) -> bool {
        let origin = match event {
            Event::Call(call) => {
                let shows = self.shows((call.pid, call.tid), call.begin);
                if self.selected {
                    let switch = self.markers.get(&call.function);
                    if switch.is_some_and(|(marker, _)| marker.is_switch()) {
                        return true;
                    }
                    self.count(shows);
                }
                return shows;
            }
            Event::Dispatch(dispatch) => &mut dispatch.origin,
            Event::Copy(copy) => &mut copy.origin,
            Event::Thread(info) => {
                self.alive.insert((info.pid, info.tid));
                if let Some(name) = self.names.get(&(info.pid, info.tid)) {
                    info.name.clone_from(name);
                }
                return true;
            }
            _ => return true,
        };
        let Origin { pid, tid, time, .. } = *origin;
        if let Some(thread) = self.threads.get(&(pid, tid)) {
            origin.range = thread.innermost.at(time).copied().flatten();
            origin.external = thread.external.at(time).copied().flatten();
        }
        let shows = self.shows((pid, tid), time);
        self.count(shows);
        shows
    }

    fn count(&mut self, shows: bool) {
        if shows {
            self.chosen += 1;
        } else {
            self.passed_over += 1;
        }
    }

    /// A thread, or with it its process, has ended or executed another program.
    pub(crate) fn ended(
        &mut self,
        (pid, tid): ThreadId,
        time: u64,
        how: CallEnd,
        ready: &mut impl Extend<Event>,
    ) {
        let whole = pid == tid || how == CallEnd::Executed;
        let mut over: Vec<Open> = Vec::new();
        if whole {
            for ((process, _), thread) in &mut self.threads {
                if *process == pid {
                    over.extend(thread.open.end_all());
                }
            }
            self.names.retain(|(process, _), _| *process != pid);
            self.alive.retain(|(process, _)| *process != pid);
            let ids: Vec<(u32, u64)> = self
                .free
                .keys()
                .filter(|(process, _)| *process == pid)
                .copied()
                .collect();
            over.extend(ids.iter().filter_map(|id| self.free.remove(id)));
            self.sections.retain(|(process, _), _| *process != pid);
        } else if let Some(thread) = self.threads.get_mut(&(pid, tid)) {
            over.extend(thread.open.end_all());
        }
        self.names.remove(&(pid, tid));
        self.alive.remove(&(pid, tid));
        self.close(over, time, how, ready);
    }

    /// The recording is over.
    pub(crate) fn finish(&mut self, time: u64, ready: &mut impl Extend<Event>) {
        let mut over: Vec<Open> = Vec::new();
        for thread in self.threads.values_mut() {
            over.extend(thread.open.end_all());
        }
        over.extend(self.free.drain().map(|(_, open)| open));
        self.close(over, time, CallEnd::RecordingStopped, ready);
    }

    fn close(
        &mut self,
        mut over: Vec<Open>,
        time: u64,
        how: CallEnd,
        ready: &mut impl Extend<Event>,
    ) {
        self.endless += over.len() as u64;
        over.sort_by_key(|open| (open.call.begin, open.call.correlation));
        for open in over.into_iter().rev() {
            self.emit(open.over(time, how), ready);
        }
    }

    /// What to say if only what programs select is shown, and they have selected nothing.
    pub(crate) fn nothing_selected(&self) -> Option<String> {
        if !self.selected || self.chosen != 0 {
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
            "{NOTHING_SELECTED}, {} calls and operations of GPUs are not shown: {how}, and {why}.",
            self.passed_over
        ))
    }

    /// What a reader must know of ranges that do not add up.
    pub(crate) fn remarks(&self) -> impl Iterator<Item = String> {
        [
            (
                self.unmatched,
                "ends of ranges (or of external correlation ids) have no beginning in the recording and were left out",
            ),
            (
                self.skipped,
                "ranges were never ended but ranges around them were; they are shown up to there",
            ),
            (
                self.endless,
                "ranges were still open when their thread or the recording ended; they are shown up to there",
            ),
            (
                self.unnamed,
                "marks and ranges have texts beyond the first 65536 different ones; they stand under the function that was \
                 called, with the text among its arguments",
            ),
        ]
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("Markers: {count} {what}."))
        .chain(self.nothing_selected())
    }
}

fn has_parameters(info: &FunctionInfo) -> bool {
    let parameters = info.function.parameters.as_ref();
    parameters.is_some_and(|list| !list.is_empty())
}

/// The text to which an argument points.
fn said(call: &Call, word: u8) -> Option<String> {
    let given = call.pointees.iter().find(|pointee| pointee.word == word)?;
    match &given.data {
        PointeeData::Text { text, cut: false } => Some(text.clone()),
        PointeeData::Text { text, cut: true } => Some(format!("{text}…")),
        _ => None,
    }
}

/// Adds what a range is annotated with where it ends: later values of a name take the place of earlier ones.
fn annotate_more(range: &mut Call, end: &Call) {
    let name = |pointee: &Pointee| match &pointee.data {
        PointeeData::Annotation(Annotation { name, .. }) => Some(name.clone()),
        _ => None,
    };
    for pointee in &end.pointees {
        let Some(added) = name(pointee) else { continue };
        let mut known = range.pointees.iter_mut();
        match known.find(|known| name(known).as_ref() == Some(&added)) {
            Some(known) => known.clone_from(pointee),
            None => range.pointees.push(pointee.clone()),
        }
    }
}

/// What a copy is called, by its destination and its source.
fn copy(call: &Call) -> Option<String> {
    let (destination, source) = (said(call, 0), said(call, 2));
    if destination.is_none() && source.is_none() {
        return None;
    }
    let name = |name: Option<String>| name.unwrap_or_else(|| "?".to_owned());
    Some(format!(
        "Kokkos::deep_copy {}{FROM}{}",
        name(destination),
        name(source)
    ))
}

/// The low half of what the call returned, which may be negative; `None` if it did not return.
fn result(call: &Call) -> Option<u64> {
    match call.how {
        CallEnd::Returned(word) => Some(word),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
