//! What programs tell profilers, made into events: ranges from the calls that begin and end them, the external
//! correlation ids under which calls and GPU work stand, and whether a program wants to be recorded.
//!
//! A range is an [`Event::Call`] whose function is its text: it lasts from the call that began it to the call that
//! ended it, which are not events of their own. So every exporter shows ranges as it shows calls, and as rocprofv3
//! shows them. Calls of one thread come in order, those of several in order of their groups, and
//! what a thread said before it submitted something is known when that is emitted: see [`crate::timeline`].

mod history;

use std::collections::{HashMap, hash_map::Entry};

use foldhash::fast::RandomState;
use gputrace_capture::meta::{Function, ValueKind};
use gputrace_catalog::markers::{Marker, marker};

use self::history::History;
use crate::{
    event::{Call, CallEnd, Event, FunctionInfo, RangeKind},
    gpu::Origin,
    values::{Annotation, Pointee, PointeeData},
};

/// Number of the first function that is a range's text; those of a capture are far below.
const FIRST_TEXT: u32 = 1 << 31;

/// Different texts that become functions. Ranges with further ones stand under the function that began them, with the
/// text as an argument: memory must not grow with what a program makes up.
const MOST_TEXTS: usize = 1 << 16;

/// In ids of ranges that are sections, whose numbers are others than those of other ranges.
const SECTION: u64 = 1 << 63;

/// What is between the names of a copy's destination and source.
const FROM: &str = " <- ";

/// A process and a thread of it.
type ThreadId = (u32, u32);

/// A range that has not ended.
#[derive(Debug)]
struct Open {
    /// The call that began it.
    call: Call,
    /// The function that it is shown as.
    function: u32,
    /// Ranges around it, as the library counts them.
    level: Option<u64>,
}

impl Open {
    /// The range as a call.
    fn over(self, end: u64, how: CallEnd) -> Call {
        Call {
            function: self.function,
            end: end.max(self.call.begin),
            how,
            ..self.call
        }
    }
}

#[derive(Debug, Default)]
struct Thread {
    /// Nested ranges, outermost first.
    open: Vec<Open>,
    /// Text of the innermost, as a function.
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
}

impl Ranges {
    /// From now on, only what happens while a program wants to be recorded becomes events.
    pub(crate) fn select(&mut self) {
        self.selected = true;
    }

    /// Learns a function.
    pub(crate) fn function(&mut self, info: &FunctionInfo) {
        if let Some(marker) = marker(&info.function.name) {
            self.markers.insert(info.function.id, (marker, info.clone()));
        }
    }

    /// Whether a call is no marker, and so stands for itself; it then gets its external correlation id.
    #[inline]
    pub(crate) fn passes(&self, call: &mut Call) -> bool {
        let is_marker = !self.markers.is_empty() && self.markers.contains_key(&call.function);
        if !is_marker && !self.threads.is_empty() {
            call.external = self.external(call);
        }
        !is_marker
    }

    fn external(&self, call: &Call) -> Option<u64> {
        let thread = self.threads.get(&(call.pid, call.tid))?;
        *thread.external.at(call.begin)?
    }

    /// Takes a call, and gives what stands for it: itself, a range, or nothing yet. A function that is new comes before
    /// the first call of it.
    pub(crate) fn call(&mut self, call: Call, ready: &mut impl Extend<Event>) {
        let thread = (call.pid, call.tid);
        let Some((marker, _)) = self.markers.get(&call.function) else {
            return self.emit(call, ready);
        };
        match *marker {
            Marker::Mark | Marker::MarkAs(_) => {
                let function = self.text(&call, RangeKind::Mark, ready);
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
                let counts = *marker == Marker::Push { level: true };
                let function = self.text(&call, RangeKind::Nested, ready);
                let level = result(&call).filter(|_| counts);
                let known = self.threads.entry(thread).or_default();
                known.innermost.add(call.begin, Some(function));
                known.open.push(Open {
                    call,
                    function,
                    level,
                });
            }
            Marker::Pop { level } => {
                let level = result(&call).filter(|_| level);
                self.pop(&call, level, ready);
            }
            Marker::Start => {
                let function = self.text(&call, RangeKind::Free, ready);
                let id = result(&call).unwrap_or(0);
                self.start(id, function, call, ready);
            }
            Marker::Stop => self.stop(call.args[0], &call, ready),
            Marker::NameSection => {
                let function = self.text(&call, RangeKind::Free, ready);
                if let Some(id) = call.stored(1)
                    && self.sections.len() < MOST_TEXTS
                {
                    self.sections.insert((thread.0, id), function);
                }
            }
            Marker::StartSection => {
                let id = u64::from(call.args[0] as u32);
                let function = self.sections.get(&(thread.0, id));
                let function = function.copied().unwrap_or(call.function);
                self.start(SECTION | id, function, call, ready);
            }
            Marker::StopSection => self.stop(SECTION | u64::from(call.args[0] as u32), &call, ready),
            Marker::Resume | Marker::Pause => {
                let on = *marker == Marker::Resume;
                // `roctxProfilerPause(tid)`; the others have no argument.
                let tid = match self.markers.get(&call.function) {
                    Some((_, info))
                        if info
                            .function
                            .parameters
                            .as_ref()
                            .is_some_and(|list| !list.is_empty()) =>
                    {
                        call.args[0] as u32
                    }
                    _ => 0,
                };
                let at = if on { call.end } else { call.begin };
                self.switches.entry(call.pid).or_default().add(at, (tid, on));
                self.emit(call, ready);
            }
            Marker::PushCorrelation(word) => {
                let id = call.args.get(usize::from(word)).copied().unwrap_or(0);
                let known = self.threads.entry(thread).or_default();
                known.ids.push(id);
                known.external.add(call.end, Some(id));
                self.emit(call, ready);
            }
            Marker::PopCorrelation => {
                let known = self.threads.entry(thread).or_default();
                if known.ids.pop().is_none() {
                    self.unmatched += 1;
                }
                let outer = known.ids.last().copied();
                known.external.add(call.begin, outer);
                self.emit(call, ready);
            }
        }
    }

    /// A range begins that may end in any thread.
    fn start(&mut self, id: u64, function: u32, call: Call, ready: &mut impl Extend<Event>) {
        let key = (call.pid, id);
        let open = Open {
            function,
            level: None,
            call,
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
        let matching = match level {
            None => thread.open.len().checked_sub(1),
            Some(level) => thread
                .open
                .iter()
                .rposition(|open| open.level.is_none_or(|mine| mine == level)),
        };
        let Some(matching) = matching else {
            self.unmatched += 1;
            return;
        };
        let mut ended = thread.open.split_off(matching);
        thread
            .innermost
            .add(call.end, thread.open.last().map(|open| open.function));
        let inner = ended.split_off(1);
        self.skipped += inner.len() as u64;
        // Inside first; when they really ended is not known.
        for open in inner.into_iter().rev() {
            self.emit(open.over(call.begin, CallEnd::RecordingStopped), ready);
        }
        for mut open in ended {
            annotate_more(&mut open.call, call);
            let how = open.call.how;
            self.emit(open.over(call.end, how), ready);
        }
    }

    fn emit(&self, mut call: Call, ready: &mut impl Extend<Event>) {
        call.external = self.external(&call);
        ready.extend([Event::Call(call)]);
    }

    /// The function that stands for the text of a marker.
    fn text(&mut self, call: &Call, kind: RangeKind, ready: &mut impl Extend<Event>) -> u32 {
        let Some((marker, api)) = self.markers.get(&call.function) else {
            return call.function;
        };
        let text = match marker {
            Marker::MarkAs(text) => Some((*text).to_owned()),
            Marker::PushCopy => copy(call),
            _ => said(call, 0),
        };
        let Some(text) = text else {
            return call.function;
        };
        let known = self.texts.len();
        // One text may be that of ranges of several kinds.
        let key = format!("{}{text}", kind as u8);
        match self.texts.entry(key) {
            Entry::Occupied(entry) => *entry.get(),
            Entry::Vacant(_) if known >= MOST_TEXTS => call.function,
            Entry::Vacant(entry) => {
                // Fewer than MOST_TEXTS.
                let id = FIRST_TEXT + known as u32;
                let info = FunctionInfo {
                    function: Function {
                        id,
                        name: text,
                        aliases: vec![api.function.name.clone()],
                        domain: api.function.domain,
                        parameters: Some(Vec::new()),
                        returns: ValueKind::Void,
                        ..Function::default()
                    },
                    range: Some(kind),
                    ..api.clone()
                };
                ready.extend([Event::Function(Box::new(info))]);
                *entry.insert(id)
            }
        }
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

    /// Adds to GPU work what is known from the thread that asked for it. Whether the event is to be shown.
    pub(crate) fn annotate(&self, event: &mut Event) -> bool {
        let origin = match event {
            Event::Call(call) => {
                let is_switch = || {
                    let switch = self.markers.get(&call.function);
                    switch.is_some_and(|(marker, _)| matches!(marker, Marker::Pause | Marker::Resume))
                };
                return self.shows((call.pid, call.tid), call.begin) || is_switch();
            }
            Event::Dispatch(dispatch) => &mut dispatch.origin,
            Event::Copy(copy) => &mut copy.origin,
            _ => return true,
        };
        let Origin { pid, tid, time, .. } = *origin;
        if let Some(thread) = self.threads.get(&(pid, tid)) {
            origin.range = thread.innermost.at(time).copied().flatten();
            origin.external = thread.external.at(time).copied().flatten();
        }
        self.shows((pid, tid), time)
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
                    over.append(&mut thread.open);
                }
            }
            let ids: Vec<(u32, u64)> = self
                .free
                .keys()
                .filter(|(process, _)| *process == pid)
                .copied()
                .collect();
            over.extend(ids.iter().filter_map(|id| self.free.remove(id)));
            self.sections.retain(|(process, _), _| *process != pid);
        } else if let Some(thread) = self.threads.get_mut(&(pid, tid)) {
            over.append(&mut thread.open);
        }
        self.close(over, time, how, ready);
    }

    /// The recording is over.
    pub(crate) fn finish(&mut self, time: u64, ready: &mut impl Extend<Event>) {
        let mut over: Vec<Open> = Vec::new();
        for thread in self.threads.values_mut() {
            over.append(&mut thread.open);
        }
        over.extend(self.free.drain().map(|(_, open)| open));
        self.close(over, time, CallEnd::RecordingStopped, ready);
    }

    fn close(&mut self, mut over: Vec<Open>, time: u64, how: CallEnd, ready: &mut impl Extend<Event>) {
        self.endless += over.len() as u64;
        over.sort_by_key(|open| (open.call.begin, open.call.correlation));
        for open in over.into_iter().rev() {
            self.emit(open.over(time, how), ready);
        }
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
        ]
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("Markers: {count} {what}."))
    }
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
