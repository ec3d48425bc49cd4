//! Turns programs' calls to marker libraries into events: ranges from the calls that begin and end
//! them, external correlation ids of calls and GPU work, and whether a program wants to be
//! recorded.
//!
//! A range is an [`Event::Call`] whose function is the range's text. It lasts from the call that
//! began it to the call that ended it; these two calls are not events themselves. So every exporter
//! shows ranges like calls, as rocprofv3 does. Calls of one thread come in order, those of several
//! threads in the order of their groups. What a thread set before it submitted work is known when
//! that work is emitted: see [`crate::timeline`].

mod history;
mod nesting;
mod selection;
mod texts;

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;
use gputrace_abi::{REGISTER_ARGS, STACK_ARGS, domain::Domain};
use gputrace_capture::meta::{Annotated, Annotation as Note};
use gputrace_catalog::markers::{Marker, marker};

pub use self::selection::{NOTHING_SELECTED, WORK_NOT_SELECTED};
use self::{
    history::History,
    nesting::{Nesting, Open},
    selection::Selection,
    texts::{MOST_TEXTS, Texts, said},
};
use crate::model::{
    event::{Call, CallEnd, Event, FunctionInfo, RangeKind, ThreadInfo},
    gpu::Origin,
    values::{Annotation, Pointee, PointeeData},
};

/// Set in the ids of profiling sections, which are numbered separately from other ranges.
const SECTION: u64 = 1 << 63;

/// Set in the ids of ranges that the program that follows the recording has marked.
const NOTE: u64 = 1 << 62;

/// Correlation ids of annotations begin here: calls do not reach them, and they are exact in JSON.
const NOTES: u64 = 1 << 52;

/// A process id and the id of one of its threads.
type ThreadId = (u32, u32);

/// Functions that are markers, by their number.
type Markers = HashMap<u32, (Marker, FunctionInfo), RandomState>;

#[derive(Debug, Default)]
struct Thread {
    /// Its open nested ranges.
    open: Nesting,
    /// The function that stands for the text of the innermost range, or of the last mark inside it.
    innermost: History<Option<u32>>,
    /// External correlation ids, outermost first.
    ids: Vec<u64>,
    external: History<Option<u64>>,
}

/// State of ranges, external ids and recording switches of all processes.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    /// Marker functions, by function id.
    markers: Markers,
    texts: Texts,
    /// Threads that are alive.
    alive: HashSet<ThreadId, RandomState>,
    /// Names that threads have set for themselves.
    names: HashMap<ThreadId, String>,
    threads: HashMap<ThreadId, Thread, RandomState>,
    /// Functions that stand for the names of sections, by process and section id.
    sections: HashMap<(u32, u64), u32>,
    /// Open ranges that may end in any thread, by process and range id; ids of sections have
    /// [`SECTION`] set.
    free: HashMap<(u32, u64), Open>,
    selection: Selection,
    /// Ends of ranges whose begin is unknown.
    unmatched: u64,
    /// Ranges that never ended.
    endless: u64,
    /// Ranges whose end was missed.
    skipped: u64,
}

impl Ranges {
    /// From now on, shows only what happens while a program wants to be recorded.
    pub(crate) fn select(&mut self) {
        self.selection.select();
    }

    /// Learns of a function.
    pub(crate) fn function(&mut self, info: &FunctionInfo) {
        if let Some(marker) = marker(&info.function.name) {
            self.markers
                .insert(info.function.id, (marker, info.clone()));
        }
    }

    /// Whether a call is no marker and so is emitted itself. It then gets its external correlation
    /// id and its enclosing range.
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

    /// Takes a call and emits what it stands for: itself, a range, or nothing yet. A new function
    /// is emitted before its first call.
    pub(crate) fn call(&mut self, mut call: Call, ready: &mut impl Extend<Event>) {
        call.range = self.around(&call);
        let Some(marker) = self.markers.get(&call.function).map(|(marker, _)| *marker) else {
            return self.emit(call, ready);
        };
        match marker {
            Marker::Mark { .. } | Marker::MarkAs(_) => self.mark(marker, call, ready),
            Marker::Push { .. } | Marker::PushCopy => self.push(marker, call, ready),
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
            Marker::NameSection => self.name_section(&call, ready),
            Marker::StartSection => self.start_section(call, ready),
            Marker::StopSection => {
                self.stop(SECTION | u64::from(call.args[0] as u32), &call, ready);
            }
            Marker::Resume | Marker::Pause => {
                let on = marker == Marker::Resume;
                // `roctxProfilerPause(tid)`; the other functions have no argument.
                let tid = match self.markers.get(&call.function) {
                    Some((_, info)) if has_parameters(info) => call.args[0] as u32,
                    _ => 0,
                };
                self.selection.switch(&call, tid, on);
                self.emit(call, ready);
            }
            Marker::ResumeThread | Marker::PauseThread => {
                let on = marker == Marker::ResumeThread;
                self.selection.switch(&call, call.tid, on);
                self.emit(call, ready);
            }
            Marker::NameThread => {
                if let Some(name) = said(&call, 0) {
                    let (pid, tid) = (call.pid, call.tid);
                    self.names.insert((pid, tid), name.clone());
                    ready.extend([Event::Thread(ThreadInfo { pid, tid, name })]);
                }
                self.emit(call, ready);
            }
            Marker::PushCorrelation { id, thread } => {
                self.push_correlation(&call, id, thread);
                self.emit(call, ready);
            }
            Marker::PopCorrelation { thread } => {
                self.pop_correlation(&call, thread);
                self.emit(call, ready);
            }
        }
    }

    /// Takes what the program that follows the recording has marked.
    pub(crate) fn note(&mut self, annotation: &Note, ready: &mut impl Extend<Event>) {
        let &Note { id, time, .. } = annotation;
        let mut call = Call {
            function: 0,
            domain: Domain::MarkerCore.id(),
            pid: annotation.pid,
            tid: annotation.tid,
            begin: time,
            end: time,
            correlation: NOTES.saturating_add(id),
            parent: 0,
            depth: 0,
            cpu: 0,
            how: CallEnd::Returned(0),
            stack_readable: true,
            args: [0; REGISTER_ARGS],
            stack: [0; STACK_ARGS],
            range: 0,
            request: None,
            external: None,
            stack_number: None,
            stream_id: 0,
            pointees: Vec::new(),
        };
        let kind = match annotation.what {
            Annotated::Mark => RangeKind::Mark,
            Annotated::Begin => RangeKind::Free,
            Annotated::End => return self.stop(NOTE | id, &call, ready),
        };
        call.function = self.texts.note(&annotation.text, kind, ready);
        if kind == RangeKind::Mark {
            self.emit(call, ready);
        } else {
            self.start(NOTE | id, call.function, call, ready);
        }
    }

    /// A moment, which some programs mean as the name of the kernels that follow.
    fn mark(&mut self, marker: Marker, call: Call, ready: &mut impl Extend<Event>) {
        const NAMES_KERNELS: Marker = Marker::Mark {
            names_kernels: true,
        };
        let (function, said) = self.text(&call, RangeKind::Mark, ready);
        if said && marker == NAMES_KERNELS {
            let known = self.threads.entry((call.pid, call.tid)).or_default();
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

    /// A nested range begins.
    fn push(&mut self, marker: Marker, call: Call, ready: &mut impl Extend<Event>) {
        let counts = marker == Marker::Push { level: true };
        let (function, said) = self.text(&call, RangeKind::Nested, ready);
        let level = result(&call).filter(|_| counts);
        let known = self.threads.entry((call.pid, call.tid)).or_default();
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

    /// A section gets its name, and the library a number for it.
    fn name_section(&mut self, call: &Call, ready: &mut impl Extend<Event>) {
        let (function, said) = self.text(call, RangeKind::Free, ready);
        if let Some(id) = call.stored(1)
            && said
            && self.sections.len() < MOST_TEXTS
        {
            self.sections.insert((call.pid, id), function);
        }
    }

    /// A section begins, which may end in any thread.
    fn start_section(&mut self, call: Call, ready: &mut impl Extend<Event>) {
        let id = u64::from(call.args[0] as u32);
        let function = match self.sections.get(&(call.pid, id)) {
            Some(function) => *function,
            None => self
                .texts
                .textless(&self.markers, &call, RangeKind::Free, ready),
        };
        self.start(SECTION | id, function, call, ready);
    }

    /// What follows in a thread gets the external correlation id in the argument word `id`.
    fn push_correlation(&mut self, call: &Call, id: u8, thread: Option<u8>) {
        let (id, whose) = (word(call, id), self.owner(call, thread));
        let known = self.threads.entry(whose).or_default();
        known.ids.push(id);
        known.external.add(call.end, Some(id));
    }

    /// What follows in a thread gets the id around the innermost one again.
    fn pop_correlation(&mut self, call: &Call, thread: Option<u8>) {
        let whose = self.owner(call, thread);
        let known = self.threads.entry(whose).or_default();
        if known.ids.pop().is_none() {
            self.unmatched += 1;
        }
        let outer = known.ids.last().copied();
        known.external.add(call.begin, outer);
    }

    /// The thread that a call speaks of: the one in its argument word `thread`, or its own. In
    /// another pid namespace the program knows its threads by other numbers; what it calls then
    /// nearly always means the caller.
    fn owner(&self, call: &Call, thread: Option<u8>) -> ThreadId {
        let named = thread.map(|at| (call.pid, word(call, at) as u32));
        named
            .filter(|thread| self.alive.contains(thread))
            .unwrap_or((call.pid, call.tid))
    }

    /// Begins a range that may end in any thread.
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

    /// Ends such a range with this call.
    fn stop(&mut self, id: u64, call: &Call, ready: &mut impl Extend<Event>) {
        match self.free.remove(&(call.pid, id)) {
            Some(open) => {
                let how = open.how();
                self.emit(open.over(call.end, how), ready);
            }
            None => self.unmatched += 1,
        }
    }

    /// Ends a nested range. The library's own count of ranges tells which one, even if calls were
    /// lost.
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
        // Their true ends are unknown.
        for open in inner {
            self.emit(open.over(call.begin, CallEnd::RecordingStopped), ready);
        }
        annotate_more(&mut ended.call, call);
        let how = ended.how();
        self.emit(ended.over(call.end, how), ready);
    }

    /// The function that stands for the text of a marker, and whether there is a text.
    fn text(
        &mut self,
        call: &Call,
        kind: RangeKind,
        ready: &mut impl Extend<Event>,
    ) -> (u32, bool) {
        self.texts.text(&self.markers, call, kind, ready)
    }

    fn emit(&self, mut call: Call, ready: &mut impl Extend<Event>) {
        call.external = self.external(&call);
        ready.extend([Event::Call(call)]);
    }

    /// Adds to GPU work what is known of its submitting thread, and to threads the names that they
    /// set for themselves. Returns `false` if the event is to be hidden.
    pub(crate) fn annotate(&mut self, event: &mut Event) -> bool {
        let origin = match event {
            Event::Call(call) => {
                let shows = self.selection.shows((call.pid, call.tid), call.begin);
                if self.selection.is_on() {
                    let switch = self.markers.get(&call.function);
                    if switch.is_some_and(|(marker, _)| marker.is_switch()) {
                        return true;
                    }
                    self.selection.count(call.pid, call.begin, shows);
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
        let shows = self.selection.shows((pid, tid), time);
        self.selection.count(pid, time, shows);
        self.selection.work(shows);
        shows
    }

    /// A process began, or executed another program.
    pub(crate) fn begun(&mut self, pid: u32) {
        self.selection.begun(pid);
    }

    /// A thread, possibly with its process, has ended or executed another program.
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

    /// Ends all ranges at the end of the recording.
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

    /// The message to show if only what programs select is shown and they have selected nothing.
    pub(crate) fn nothing_selected(&self) -> Option<String> {
        self.selection.nothing()
    }

    /// Remarks about ranges whose begins and ends do not match.
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
                self.texts.unnamed(),
                "marks and ranges have texts beyond the first 65536 different ones; they appear \
                 under the name of the called function, with the text among its arguments",
            ),
        ]
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("Markers: {count} {what}."))
        .chain(self.nothing_selected())
        .chain(self.selection.inside())
        .chain(self.selection.outside())
    }
}

fn has_parameters(info: &FunctionInfo) -> bool {
    let parameters = info.function.parameters.as_ref();
    parameters.is_some_and(|list| !list.is_empty())
}

/// Adds annotations made at a range's end. A later value replaces an earlier one of the same name.
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

/// A word of a call's arguments in registers; 0 if there is none of that number.
fn word(call: &Call, at: u8) -> u64 {
    call.args.get(usize::from(at)).copied().unwrap_or(0)
}

/// The low half of the returned value, which may be negative; `None` if the call did not return.
fn result(call: &Call) -> Option<u64> {
    match call.how {
        CallEnd::Returned(word) => Some(word),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
