//! Draws API calls as slices.

use std::{
    collections::HashMap,
    io::{self, Write},
};

use foldhash::fast::RandomState;
use gputrace_abi::domain::Domain;
use gputrace_capture::{ledger::Ledger, meta::ProbeCost};
use gputrace_timeline::{
    args::{self, ArgValue},
    event::{Call, CallEnd, FunctionInfo, RangeKind},
};

use crate::{
    intern::{Interner, Table},
    nesting::Drawn,
    sequence::{Annotations, EventType, Sequence, Value},
    tracks::Tracks,
};

/// Interned names of annotations that all or many slices have. They are the names in rocprofv3's
/// traces where it has them, so that queries written for those work.
#[derive(Clone, Copy, Debug, Default)]
struct Names {
    args: u64,
    retval: u64,
    kind: u64,
    corr_id: u64,
    ancestor_id: u64,
    tid: u64,
    probe_cost: u64,
    x: u64,
    y: u64,
    z: u64,
}

impl Names {
    fn new(interner: &mut Interner) -> Self {
        let mut number = |name| interner.number(Table::AnnotationNames, name);
        Self {
            args: number("args"),
            retval: number("retval"),
            kind: number("kind"),
            corr_id: number("corr_id"),
            ancestor_id: number("ancestor_id"),
            tid: number("tid"),
            probe_cost: number("probe_cost"),
            x: number("x"),
            y: number("y"),
            z: number("z"),
        }
    }
}

/// A function, and its interned numbers.
#[derive(Debug)]
struct Function {
    info: FunctionInfo,
    /// [`Interner::epoch`] of the numbers below; 0 if there are none yet.
    epoch: u32,
    category: u64,
    name: u64,
    kind: u64,
    /// Numbers of the argument names, in the order of [`args::names`].
    arguments: Vec<u64>,
}

impl Function {
    fn new(info: FunctionInfo) -> Self {
        Self {
            info,
            epoch: 0,
            category: 0,
            name: 0,
            kind: 0,
            arguments: Vec::new(),
        }
    }

    /// Makes the numbers valid.
    fn intern(&mut self, interner: &mut Interner, call: &Call) {
        if self.epoch == interner.epoch() {
            return;
        }
        self.epoch = interner.epoch();
        self.category = interner.number(Table::Categories, category(self.info.domain));
        self.name = interner.number(Table::EventNames, &self.info.function.name);
        self.kind = interner.number(Table::AnnotationStrings, &Ledger::domain_name(call.domain));
        self.arguments.clear();
        // Requests to the driver have varying fields, so these are looked up by name.
        if call.request.is_none() {
            let names = args::names(&self.info);
            self.arguments
                .extend(names.map(|name| interner.number(Table::AnnotationNames, name)));
        }
    }
}

/// rocprofv3's category, by which it also names its CSV files: `hip_api` for HIP's runtime and
/// compiler functions, `hsa_api` for all of HSA.
fn category(domain: Option<Domain>) -> &'static str {
    domain.map_or("unknown_api", Domain::csv_stem)
}

/// A status code, and the address of its name, which is part of this program.
type Status = (u32, usize);

/// Interned texts of status codes.
#[derive(Debug, Default)]
struct Statuses {
    all: HashMap<Status, u64, RandomState>,
    /// The last lookup.
    last: Option<(Status, u64)>,
}

/// Draws calls. Memory grows with the number of functions.
#[derive(Debug, Default)]
pub(crate) struct Slices {
    functions: HashMap<u32, Function, RandomState>,
    /// Whether calls are connected with the GPU work that they submitted.
    flows: bool,
    /// Epoch of `names` and `statuses`.
    epoch: u32,
    names: Names,
    /// Number of the text `single_stepped`.
    stepped: u64,
    statuses: Statuses,
}

impl Slices {
    /// Learns of a function.
    pub(crate) fn function(&mut self, info: &FunctionInfo) {
        self.functions
            .insert(info.function.id, Function::new(info.clone()));
    }

    /// From now on, connects calls with the GPU work that they submitted.
    ///
    /// A call may come before or after its work, and it is unknown in advance which calls submit
    /// work. So each call becomes an end of the flow with its correlation id. A flow with only one
    /// end is not drawn.
    pub(crate) fn connect(&mut self) {
        self.flows = true;
    }

    /// Draws a call.
    pub(crate) fn call<W: Write>(
        &mut self,
        out: &mut Sequence<W>,
        tracks: &mut Tracks,
        call: &Call,
    ) -> io::Result<()> {
        let range = self
            .functions
            .get(&call.function)
            .and_then(|function| function.info.range);
        let is_moment = range == Some(RangeKind::Mark) || call.how == CallEnd::NotSeen;
        let (track, drawn) = place(out, tracks, call, range, is_moment)?;
        let shape = match is_moment {
            true => EventType::Instant,
            false => EventType::SliceBegin,
        };

        out.bound_interning()?;
        let interner = out.interner();
        if self.epoch != interner.epoch() {
            self.epoch = interner.epoch();
            self.names = Names::new(interner);
            self.stepped = interner.number(Table::AnnotationStrings, "single_stepped");
            self.statuses = Statuses::default();
        }
        let Self {
            functions,
            flows,
            names,
            stepped,
            statuses,
            ..
        } = self;
        let function = functions
            .entry(call.function)
            .or_insert_with(|| Function::new(unknown(call)));
        function.intern(interner, call);
        let function = &*function;
        out.event(drawn.begin, shape, track, |event| {
            event.title(function.category, function.name);
            if *flows {
                event.flow(call.correlation);
            }
            let mut annotations = event.annotations();
            let mut values = Values { names, statuses };
            let is_annotated = args::annotations(call).next().is_some();
            if call.request.is_some() {
                annotations.dictionary(names.args, |entries| {
                    put_named(entries, args::declared(&function.info, call));
                });
            } else if is_annotated || !function.arguments.is_empty() {
                annotations.dictionary(names.args, |entries| {
                    // The iterator is a chain, for which `for_each` is faster than calling `next`
                    // repeatedly.
                    args::placed(&function.info, call).for_each(|(slot, value)| {
                        if let Some(name) = function.arguments.get(slot) {
                            values.put(entries, *name, value);
                        }
                    });
                    if is_annotated {
                        put_named(entries, args::annotations(call));
                    }
                });
            }
            if let Some(value) = args::returned(&function.info, call) {
                values.put(&mut annotations, names.retval, value);
            }
            if let Some(why) = unfinished(call.how) {
                annotations.named("unfinished", Value::Text(why));
            }
            if call.how == CallEnd::NotSeen {
                annotations.named("end", Value::Text("not recorded"));
            }
            if function.info.function.probe_cost == ProbeCost::SingleStepped {
                annotations.put(names.probe_cost, Value::Interned(*stepped));
            }
            annotations.put(names.kind, Value::Interned(function.kind));
            annotations.put(names.corr_id, Value::Uint(call.correlation));
            annotations.put(names.ancestor_id, Value::Uint(call.parent));
            annotations.put(names.tid, Value::Uint(call.tid.into()));
            if let Some(id) = call.external {
                annotations.named("external_id", Value::Uint(id));
            }
            if drawn.moved {
                annotations.named("begin_ns", Value::Uint(call.begin));
                annotations.named("end_ns", Value::Uint(call.end));
            }
        })?;
        if range == Some(RangeKind::Free) {
            out.event(free_end(call), EventType::SliceEnd, track, |_| ())?;
        }
        match unfinished(call.how) {
            Some(why) if drawn.outermost => mark_unfinished(out, track, call, &function.info, why),
            _ => Ok(()),
        }
    }
}

/// Decides where a call is drawn: its track and its place there. Writes the ends of earlier calls
/// that are due.
fn place<W: Write>(
    out: &mut Sequence<W>,
    tracks: &mut Tracks,
    call: &Call,
    range: Option<RangeKind>,
    is_moment: bool,
) -> io::Result<(u64, Drawn)> {
    let as_it_is = Drawn {
        begin: call.begin,
        moved: false,
        outermost: true,
    };
    if range == Some(RangeKind::Free) {
        let track = tracks.free_lane(out, call.pid, (call.begin, free_end(call)))?;
        return Ok((track, as_it_is));
    }
    let thread = tracks.thread(out, call.pid, call.tid)?;
    let track = thread.track();
    if is_moment {
        return Ok((track, as_it_is));
    }
    let mut written = Ok(());
    let drawn = thread.nest().place(call, |end| {
        if written.is_ok() {
            written = out.event(end, EventType::SliceEnd, track, |_| ());
        }
    });
    written?;
    Ok((track, drawn))
}

/// The drawn end of a range that may overlap with others: later than its begin.
fn free_end(call: &Call) -> u64 {
    call.end.max(call.begin.saturating_add(1))
}

/// The description of a function that is missing in the capture.
fn unknown(call: &Call) -> FunctionInfo {
    FunctionInfo {
        function: gputrace_capture::meta::Function {
            id: call.function,
            name: format!("function {}", call.function),
            domain: call.domain,
            ..Default::default()
        },
        domain: Domain::from_id(call.domain),
        library: String::new(),
        build_id: String::new(),
        range: None,
    }
}

fn unfinished(how: CallEnd) -> Option<&'static str> {
    match how {
        CallEnd::Returned(_) | CallEnd::NotSeen => None,
        CallEnd::ThreadExited => Some("its thread ended"),
        CallEnd::Executed => Some("its process executed another program"),
        CallEnd::RecordingStopped => Some("the recording stopped"),
    }
}

/// Makes an unfinished call visible without a click.
///
/// The slice itself ends at the time up to which the call is known to have been open, and keeps the
/// function's name. Without an end, the viewer would draw it as unfinished by itself, but up to the
/// end of the trace, even if its thread ended long before. On the thread of a process that executed
/// another program, every later call would appear inside it, and queries would see a duration of
/// -1. A different name or a second category would hide the call from queries for the function. So
/// the slice has the annotation `unfinished`, and an instant at its end makes it visible, one for
/// all unfinished calls that are nested in each other.
fn mark_unfinished<W: Write>(
    out: &mut Sequence<W>,
    track: u64,
    call: &Call,
    function: &FunctionInfo,
    why: &str,
) -> io::Result<()> {
    let name = &function.function.name;
    out.event(call.end, EventType::Instant, track, |event| {
        event.rare_title("unfinished", &format!("unfinished: {name}, {why}"));
        let mut annotations = event.annotations();
        annotations.named("corr_id", Value::Uint(call.correlation));
        annotations.named("open_ns", Value::Uint(call.end.saturating_sub(call.begin)));
    })
}

/// Writes decoded values.
struct Values<'a> {
    names: &'a Names,
    statuses: &'a mut Statuses,
}

impl Values<'_> {
    fn put(&mut self, annotations: &mut Annotations<'_>, name: u64, value: ArgValue<'_>) {
        let value = match value {
            ArgValue::Hex(value) => Value::Pointer(value),
            ArgValue::Signed(value) => Value::Int(value),
            ArgValue::Unsigned(value) => Value::Uint(value),
            ArgValue::Bool(value) => Value::Bool(value),
            ArgValue::Dim3 { x, y, z } => {
                annotations.dictionary(name, |entries| {
                    let Names {
                        x: nx,
                        y: ny,
                        z: nz,
                        ..
                    } = self.names;
                    for (name, value) in [(nx, x), (ny, y), (nz, z)] {
                        entries.put(*name, Value::Uint(value.into()));
                    }
                });
                return;
            }
            ArgValue::Status { code, name } => {
                Value::Interned(self.status(annotations, code, name))
            }
            ArgValue::Real(bits) => Value::Real(f64::from_bits(bits)),
            ArgValue::Enumerator { .. }
            | ArgValue::Flags(_)
            | ArgValue::Named(_)
            | ArgValue::Text { .. }
            | ArgValue::Place(_)
            | ArgValue::Unrecorded
            | ArgValue::Unreadable => Value::Text(&value.to_string()),
        };
        annotations.put(name, value);
    }
}

impl Values<'_> {
    /// The interned number of a status code's text.
    fn status(
        &mut self,
        annotations: &mut Annotations<'_>,
        code: u32,
        name: Option<&'static str>,
    ) -> u64 {
        let key = (code, name.map_or(0, |name| name.as_ptr().addr()));
        if let Some((_, number)) = self.statuses.last.filter(|(last, _)| *last == key) {
            return number;
        }
        let number = self.statuses.all.entry(key);
        let number =
            *number.or_insert_with(|| annotations.number_of_text(&status_text(code, name)));
        self.statuses.last = Some((key, number));
        number
    }
}

/// Writes fields of a request to the driver, or annotations of a region, which contain no values
/// that are interned.
fn put_named<'a>(
    annotations: &mut Annotations<'_>,
    fields: impl Iterator<Item = (&'a str, ArgValue<'a>)>,
) {
    for (name, value) in fields {
        let value = match value {
            ArgValue::Hex(value) => Value::Pointer(value),
            ArgValue::Signed(value) => Value::Int(value),
            ArgValue::Unsigned(value) => Value::Uint(value),
            ArgValue::Bool(value) => Value::Bool(value),
            ArgValue::Real(bits) => Value::Real(f64::from_bits(bits)),
            other => {
                annotations.put_by_name(name, Value::Text(&other.to_string()));
                continue;
            }
        };
        annotations.put_by_name(name, value);
    }
}

/// E.g. `hipErrorNoDevice (100)`.
fn status_text(code: u32, name: Option<&str>) -> String {
    match name {
        Some(name) => format!("{name} ({code})"),
        None => code.to_string(),
    }
}
