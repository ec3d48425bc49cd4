//! The tables and their columns.

use gputrace_abi::{counters::DropReason, domain::Domain};
use gputrace_capture::{
    gpu::{AgentKind, Kernel},
    ledger::{Ledger, LedgerRow},
};
use gputrace_export::{
    Functions,
    gpu::{Gpus, queue_id},
    lengths::Length,
};
use gputrace_timeline::{
    args,
    event::Call,
    gpu::{Copy, Dispatch, GpuTime, KnownBy, Origin},
    observation::Observation,
};
use serde_json::{Map, Value};

use crate::table::{Cell, Kind};

/// Objects that rows refer to.
#[derive(Debug, Default)]
pub struct Known {
    /// Functions by number.
    pub functions: Functions,
    /// Agents, queues, kernels, streams.
    pub gpus: Gpus,
}

/// A column: its name, its type, and the function that gets its value.
pub type Column<T> = (&'static str, Kind, for<'a> fn(&'a T, &'a Known) -> Cell<'a>);

use Kind::{Flag, Number, Text};

/// Calls: the columns of rocpd's view `regions`.
const CALL: &[Column<Call>] = &[
    ("category", Text, |call, _| {
        Ledger::domain_name(call.domain).into()
    }),
    ("name", Text, |call, known| {
        known.functions.name(call.function).into()
    }),
    ("pid", Number, |call, _| call.pid.into()),
    ("tid", Number, |call, _| call.tid.into()),
    ("start", Number, |call, _| call.begin.into()),
    ("end", Number, |call, _| call.end.into()),
    ("duration", Number, |call, _| {
        call.end.saturating_sub(call.begin).into()
    }),
    ("stack_id", Number, |call, _| call.correlation.into()),
    ("parent_stack_id", Number, |call, _| call.parent.into()),
    ("corr_id", Number, |call, _| call.external.into()),
    ("depth", Number, |call, _| u64::from(call.depth).into()),
    ("cpu", Number, |call, _| call.cpu.into()),
    ("args", Text, |call, known| arguments(call, known).into()),
    ("result", Text, |call, known| {
        let info = known.functions.get(call.function);
        let value = info.and_then(|info| args::returned(info, call));
        value.map(|value| value.to_string()).into()
    }),
    ("unfinished", Text, |call, _| call.how.reason().into()),
];

/// Dispatches: the columns of rocpd's view `kernels`.
const DISPATCH: &[Column<Dispatch>] = &[
    ("tid", Number, |one, _| one.origin.tid.into()),
    ("category", Text, |_, _| {
        Domain::KernelDispatch.name().into()
    }),
    ("name", Text, |one, known| {
        known.gpus.kernel_name(one).into()
    }),
    ("pid", Number, |one, _| one.origin.pid.into()),
    ("agent_abs_index", Number, |one, known| {
        agent(known.gpus.node_of(one), known)
    }),
    ("agent_type", Text, |one, known| {
        agent_type(known.gpus.node_of(one), known)
    }),
    ("kernel_id", Number, |one, known| {
        known.gpus.kernel_id(one).into()
    }),
    ("dispatch_id", Number, |one, _| one.id.into()),
    ("stream_id", Number, |one, _| one.origin.stream_id.into()),
    ("queue_id", Number, |one, _| queue_id(one.queue).into()),
    ("start", Number, |one, _| one.time.drawn_begin().into()),
    ("end", Number, |one, _| one.time.drawn_end().into()),
    ("duration", Number, |one, _| duration(&one.time)),
    ("grid_x", Number, |one, _| one.grid[0].into()),
    ("grid_y", Number, |one, _| one.grid[1].into()),
    ("grid_z", Number, |one, _| one.grid[2].into()),
    ("workgroup_x", Number, |one, _| one.workgroup[0].into()),
    ("workgroup_y", Number, |one, _| one.workgroup[1].into()),
    ("workgroup_z", Number, |one, _| one.workgroup[2].into()),
    ("lds_size", Number, |one, known| {
        known.gpus.lds_block_size(one).into()
    }),
    ("scratch_size", Number, |one, _| one.private_size.into()),
    ("vgpr_count", Number, |one, known| {
        kernel(one, known, |kernel| kernel.arch_vgpr_count)
    }),
    ("accum_vgpr_count", Number, |one, known| {
        kernel(one, known, |kernel| kernel.accum_vgpr_count)
    }),
    ("sgpr_count", Number, |one, known| {
        kernel(one, known, |kernel| kernel.sgpr_count)
    }),
    ("stack_id", Number, |one, _| one.origin.innermost.into()),
    ("outermost_stack_id", Number, |one, _| {
        one.origin.outermost.into()
    }),
    ("corr_id", Number, |one, _| one.origin.external.into()),
    ("packet_index", Number, |one, _| one.index.into()),
    ("kernel_object", Number, |one, _| one.kernel_object.into()),
];

/// Copies: the columns of rocpd's view `memory_copies`.
const COPY: &[Column<Copy>] = &[
    ("category", Text, |_, _| Domain::MemoryCopy.name().into()),
    ("pid", Number, |one, _| one.origin.pid.into()),
    ("tid", Number, |one, _| one.origin.tid.into()),
    ("start", Number, |one, _| one.time.drawn_begin().into()),
    ("end", Number, |one, _| one.time.drawn_end().into()),
    ("duration", Number, |one, _| duration(&one.time)),
    ("name", Text, |one, _| one.direction.name().into()),
    ("stream_id", Number, |one, _| one.origin.stream_id.into()),
    ("size", Number, |one, _| one.bytes.into()),
    ("dst_agent_abs_index", Number, |one, known| {
        agent(one.destination_node, known)
    }),
    ("dst_agent_type", Text, |one, known| {
        agent_type(one.destination_node, known)
    }),
    ("dst_address", Number, |one, _| one.destination.into()),
    ("src_agent_abs_index", Number, |one, known| {
        agent(one.source_node, known)
    }),
    ("src_agent_type", Text, |one, known| {
        agent_type(one.source_node, known)
    }),
    ("src_address", Number, |one, _| one.source.into()),
    ("stack_id", Number, |one, _| one.origin.innermost.into()),
    ("outermost_stack_id", Number, |one, _| {
        one.origin.outermost.into()
    }),
    ("corr_id", Number, |one, _| one.origin.external.into()),
    ("engine_mask", Number, |one, _| one.engine.into()),
    ("direction_by", Text, |one, _| {
        one.known_by.map(KnownBy::name).into()
    }),
];

/// Observations of the kernel and the driver.
const EVENT: &[Column<Observation>] = &[
    ("category", Text, |one, _| {
        Ledger::domain_name(one.domain).into()
    }),
    ("name", Text, |one, _| one.name.as_ref().into()),
    ("pid", Number, |one, _| one.whose.pid.into()),
    ("tid", Number, |one, _| one.whose.tid.into()),
    ("gpu_id", Number, |one, _| one.whose.gpu_id.into()),
    ("start", Number, |one, _| one.begin.into()),
    ("end", Number, |one, _| one.end.into()),
    ("duration", Number, |one, _| {
        one.end.saturating_sub(one.begin).into()
    }),
    ("unfinished", Flag, |one, _| one.is_open.into()),
    ("fields", Text, |one, _| {
        let fields = one.fields.iter();
        let fields =
            fields.map(|field| (field.name.to_string(), Value::from(field.value.to_string())));
        Value::Object(fields.collect::<Map<_, _>>())
            .to_string()
            .into()
    }),
];

/// Which class's mean an estimated duration is, if it is one, and its standard error.
const ESTIMATE: &[Column<Dispatch>] = &[
    ("kernel_class", Number, |one, _| {
        Length::of(&one.time)
            .and_then(|length| length.class())
            .into()
    }),
    ("estimate_error", Number, |one, _| {
        Length::of(&one.time)
            .and_then(|length| length.estimate_error())
            .into()
    }),
];

/// GPU work.
trait Work: Sized + 'static {
    /// Who submitted it.
    fn origin(&self) -> &Origin;

    /// When it ran, and how well that is known.
    fn time(&self) -> &GpuTime;

    /// Columns that say how well the times are known.
    const KNOWLEDGE: &'static [Column<Self>] = &[
        ("submit", Number, |one, _| one.origin().time.into()),
        ("quality", Text, |one, _| one.time().quality.name().into()),
        ("unfinished", Flag, |one, _| one.time().unfinished.into()),
        ("start_earliest", Number, |one, _| {
            one.time().begin_window.earliest.into()
        }),
        ("start_latest", Number, |one, _| {
            one.time().begin_window.latest.into()
        }),
        ("end_earliest", Number, |one, _| {
            one.time().end_window.earliest.into()
        }),
        ("end_latest", Number, |one, _| {
            one.time().end_window.latest.into()
        }),
    ];
}

impl Work for Dispatch {
    fn origin(&self) -> &Origin {
        &self.origin
    }

    fn time(&self) -> &GpuTime {
        &self.time
    }
}

impl Work for Copy {
    fn origin(&self) -> &Origin {
        &self.origin
    }

    fn time(&self) -> &GpuTime {
        &self.time
    }
}

/// The columns of a table, in groups.
pub type Columns<T> = &'static [&'static [Column<T>]];

/// Columns of `_calls.parquet`.
pub const CALLS: Columns<Call> = &[CALL];
/// Columns of `_kernels.parquet`.
pub const KERNELS: Columns<Dispatch> = &[DISPATCH, Dispatch::KNOWLEDGE, ESTIMATE];
/// Columns of `_copies.parquet`.
pub const COPIES: Columns<Copy> = &[COPY, Copy::KNOWLEDGE];
/// Columns of `_events.parquet`.
pub const EVENTS: Columns<Observation> = &[EVENT];

/// The columns of the account of losses, with one column per reason.
#[must_use]
pub fn loss_columns() -> Vec<(String, Kind)> {
    let mut columns = vec![("domain".to_owned(), Text)];
    columns.extend(["seen", "written", "unfinished"].map(|name| (name.to_owned(), Number)));
    let reasons = DropReason::ALL.iter();
    columns.extend(reasons.map(|reason| (format!("dropped_{}", reason.name()), Number)));
    columns.push(("lost".to_owned(), Number));
    columns.push(("unaccounted".to_owned(), Kind::Signed));
    columns.push(("complete".to_owned(), Flag));
    columns
}

/// The row of a domain, summed over all CPUs.
#[must_use]
pub fn loss(row: &LedgerRow, complete: bool) -> Vec<Cell<'static>> {
    let mut cells = vec![Cell::from(Ledger::domain_name(row.domain))];
    cells.extend([row.seen, row.written, row.unfinished].map(Cell::Number));
    cells.extend(
        DropReason::ALL
            .iter()
            .map(|reason| row.dropped_for(*reason).into()),
    );
    cells.push(row.lost().into());
    // Anything but 0 in the account of a completed recording is a bug in gputrace.
    cells.push(Cell::Signed(row.imbalance()));
    cells.push(complete.into());
    cells
}

/// The arguments as a JSON object of texts, formatted as in other formats.
fn arguments(call: &Call, known: &Known) -> Option<String> {
    let info = known.functions.get(call.function)?;
    let values = args::decoded(info, call)
        .map(|(name, value)| (name.to_owned(), Value::from(value.to_string())));
    let values: Map<String, Value> = values.collect();
    (!values.is_empty()).then(|| Value::Object(values).to_string())
}

fn agent<'a>(node: Option<u32>, known: &Known) -> Cell<'a> {
    let info = node.and_then(|node| known.gpus.agent(node));
    info.map(|info| u64::from(info.absolute_index)).into()
}

fn agent_type<'a>(node: Option<u32>, known: &Known) -> Cell<'a> {
    let info = node.and_then(|node| known.gpus.agent(node));
    info.map(|info| match info.agent.kind {
        AgentKind::Cpu => "CPU",
        AgentKind::Gpu => "GPU",
    })
    .into()
}

/// The duration; null if it is unknown.
fn duration<'a>(time: &GpuTime) -> Cell<'a> {
    Length::of(time).map(|length| length.ns).into()
}

fn kernel<'a>(dispatch: &Dispatch, known: &Known, what: fn(&Kernel) -> u32) -> Cell<'a> {
    known
        .gpus
        .kernel(dispatch)
        .map(|info| what(&info.kernel))
        .into()
}
