//! Annotations of GPU work. Names are rocprofv3's where it has them.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use gputrace_abi::domain::Domain;
use gputrace_export::{
    gpu::{Gpus, queue_id, uncertainty},
    lengths::Length,
};
use gputrace_timeline::{
    event::Event,
    gpu::{Copy, Dispatch, GpuTime, KernelInfo, Origin, Window},
};

use crate::{
    intern::{Interner, Table},
    sequence::{Annotations, NativeLaunch, Value},
};

/// Maximum number of distinct launches whose encoded annotations are kept.
const MOST_LAUNCHES: usize = 4096;

/// Encoded data that many spans share. Memory grows with the number of agents and kernels.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// [`Interner::epoch`] of the numbers below.
    epoch: u32,
    /// Interned numbers of the titles of agents, by node.
    agents: HashMap<Option<u32>, u64, RandomState>,
    /// Interned numbers of the names of kernels, by kernel number.
    titles: HashMap<u32, Title, RandomState>,
    /// Encoded annotations of dispatches that are launched in the same way.
    launches: HashMap<Launch, Box<[u8]>, RandomState>,
}

/// Interned numbers of a name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Title {
    /// Number in [`Table::EventNames`].
    pub(super) event: u64,
    /// Number in [`Table::ComputeStages`] for kernels, in [`Table::GpuSpecifications`] for copies;
    /// 0 if it is not needed.
    pub(super) stage: u64,
}

impl Title {
    /// Interns a kernel's name, also for native events if `native`.
    pub(super) fn new(interner: &mut Interner, name: &str, native: bool) -> Self {
        Self {
            event: interner.number(Table::EventNames, name),
            stage: match native {
                true => interner.number(Table::ComputeStages, name),
                false => 0,
            },
        }
    }

    /// Interns the name of a copy, which is part of this program.
    pub(super) fn fixed(interner: &mut Interner, name: &'static str, native: bool) -> Self {
        Self {
            event: interner.fixed(Table::EventNames, name),
            stage: match native {
                true => interner.fixed(Table::GpuSpecifications, name),
                false => 0,
            },
        }
    }
}

/// What dispatches of a kernel that are launched in the same way have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Launch {
    kernel: Option<u32>,
    kernel_object: u64,
    queue: u32,
    node: Option<u32>,
    workgroup: [u32; 3],
    grid: [u32; 3],
    private_size: u32,
    group_size: u32,
    barrier: bool,
    read_later: bool,
}

impl Launch {
    fn of(dispatch: &Dispatch) -> Self {
        Self {
            kernel: dispatch.kernel,
            kernel_object: dispatch.kernel_object,
            queue: dispatch.queue,
            node: dispatch.node_id,
            workgroup: dispatch.workgroup,
            grid: dispatch.grid,
            private_size: dispatch.private_size,
            group_size: dispatch.group_size,
            barrier: dispatch.barrier,
            read_later: dispatch.read_later,
        }
    }
}

impl Known {
    /// Drops what `event` makes obsolete.
    pub(super) fn learn(&mut self, event: &Event) {
        match event {
            Event::Agent(_) => {
                self.agents.clear();
                self.launches.clear();
            }
            Event::Queue(_) => self.launches.clear(),
            Event::Kernel(info) if self.titles.remove(&info.id).is_some() => {
                self.launches
                    .retain(|launch, _| launch.kernel != Some(info.id));
            }
            _ => {}
        }
    }

    fn refresh(&mut self, epoch: u32) {
        if self.epoch != epoch {
            self.epoch = epoch;
            self.agents.clear();
            self.titles.clear();
            self.launches.clear();
        }
    }

    /// The interned numbers of the name of a dispatch's kernel, also for native events if `native`.
    pub(super) fn title(
        &mut self,
        interner: &mut Interner,
        gpus: &Gpus,
        dispatch: &Dispatch,
        native: bool,
    ) -> Title {
        self.refresh(interner.epoch());
        let known = dispatch.kernel.and_then(|kernel| self.titles.get(&kernel));
        if let Some(title) = known.filter(|title| !native || title.stage != 0) {
            return *title;
        }
        let title = Title::new(interner, &gpus.kernel_name(dispatch), native);
        if let Some(info) = gpus.kernel(dispatch) {
            self.titles.insert(info.id, title);
        }
        title
    }

    /// Adds an agent's title.
    fn agent(
        &mut self,
        annotations: &mut Annotations<'_>,
        name: &'static str,
        gpus: &Gpus,
        node: Option<u32>,
    ) {
        self.refresh(annotations.epoch());
        let text = self.agents.entry(node);
        let text = *text.or_insert_with(|| annotations.number_of_text(&gpus.agent_title(node)));
        annotations.named(name, Value::Interned(text));
    }

    /// Adds the annotations that all dispatches launched like this one share.
    fn launch(&mut self, annotations: &mut Annotations<'_>, gpus: &Gpus, dispatch: &Dispatch) {
        self.refresh(annotations.epoch());
        let launch = Launch::of(dispatch);
        if let Some(encoded) = self.launches.get(&launch) {
            return annotations.encoded(encoded);
        }
        let encoded = annotations.encode(|annotations| launched(annotations, gpus, dispatch));
        annotations.encoded(&encoded);
        if dispatch.kernel.is_some() && gpus.kernel(dispatch).is_none() {
            // It may become known later.
            return;
        }
        if self.launches.len() >= MOST_LAUNCHES {
            self.launches.clear();
        }
        self.launches.insert(launch, encoded);
    }
}

/// Adds who submitted the work and when, and how well its times are known.
pub(super) fn common(annotations: &mut Annotations<'_>, origin: &Origin, time: &GpuTime) {
    annotations.named_text("quality", time.quality.name());
    let (begin, end) = (time.drawn_begin(), time.drawn_end());
    let length = Length::of(time);
    for (name, value) in [
        ("begin_ns", begin),
        ("end_ns", end),
        ("delta_ns", length.map(|length| length.ns)),
    ] {
        if let Some(value) = value {
            annotations.named(name, Value::Uint(value));
        }
    }
    for (name, value) in [
        ("submit_ns", origin.time),
        ("corr_id", origin.caller),
        ("outermost_corr_id", origin.outermost),
        ("pid", origin.pid.into()),
        ("tid", origin.tid.into()),
        ("stream_ID", origin.stream_id.into()),
    ] {
        annotations.named(name, Value::Uint(value));
    }
    if origin.innermost != origin.caller {
        annotations.named("innermost_corr_id", Value::Uint(origin.innermost));
    }
    if origin.deferred {
        annotations.named("deferred", Value::Bool(true));
    }
    if let Some(handle) = origin.stream {
        annotations.named("stream", Value::Pointer(handle));
    }
    if let Some(class) = length.and_then(|length| length.class()) {
        annotations.named("kernel_class", Value::Uint(class.into()));
    }
    if let Some(error) = length.and_then(|length| length.estimate_error()) {
        annotations.named("estimate_error_ns", Value::Uint(error));
    }
    if length.is_none() && !time.unfinished {
        annotations.named_text("duration", "not known: somewhere within the windows");
    }
    window(annotations, "begin_window", begin, &time.begin_window);
    window(annotations, "end_window", end, &time.end_window);
    if time.unfinished {
        annotations.named_text("unfinished", "the recording stopped");
    }
}

/// Adds a window; its `uncertainty_ns` is the maximum error of `value`, if there is one.
fn window(
    annotations: &mut Annotations<'_>,
    name: &'static str,
    value: Option<u64>,
    window: &Window,
) {
    annotations.named_dictionary(name, |entries| {
        entries.named("earliest_ns", Value::Uint(window.earliest));
        if let Some(latest) = window.latest {
            entries.named("latest_ns", Value::Uint(latest));
        }
        if let Some(uncertainty) = uncertainty(value, window) {
            entries.named("uncertainty_ns", Value::Uint(uncertainty));
        }
    });
}

/// Adds the other annotations of a dispatch.
pub(super) fn dispatch(
    annotations: &mut Annotations<'_>,
    known: &mut Known,
    gpus: &Gpus,
    dispatch: &Dispatch,
) {
    annotations.named("dispatch_id", Value::Uint(dispatch.id));
    annotations.named("packet_index", Value::Uint(dispatch.index));
    annotations.named("kernarg", Value::Pointer(dispatch.kernarg));
    annotations.named("completion_signal", Value::Pointer(dispatch.signal));
    known.launch(annotations, gpus, dispatch);
}

/// GPU resources of a dispatch, by Perfetto's names. The LDS that the kernel declares is part of
/// the LDS that the dispatch has.
fn resources(info: &KernelInfo, dispatch: &Dispatch) -> [(&'static str, u64); 3] {
    let kernel = &info.kernel;
    let registers = kernel
        .arch_vgpr_count
        .saturating_add(kernel.accum_vgpr_count);
    let dynamic = dispatch.group_size.saturating_sub(kernel.group_size);
    [
        ("registers_per_thread", registers.into()),
        ("shared_mem_static", kernel.group_size.into()),
        ("shared_mem_dynamic", dynamic.into()),
    ]
}

/// The product of sizes in three dimensions.
fn product(sizes: [u32; 3]) -> u64 {
    sizes
        .iter()
        .map(|size| u64::from(*size))
        .fold(1, u64::saturating_mul)
}

/// How a kernel was launched, for a native event. Perfetto counts a grid in workgroups.
pub(super) fn native_launch(gpus: &Gpus, dispatch: &Dispatch) -> NativeLaunch {
    let ([x, y, z], [wide, high, deep]) = (dispatch.grid, dispatch.workgroup);
    let groups = |items: u32, workgroup: u32| items.div_ceil(workgroup.max(1));
    NativeLaunch {
        grid: [groups(x, wide), groups(y, high), groups(z, deep)],
        workgroup: dispatch.workgroup,
        threads: product(dispatch.grid),
        resources: gpus.kernel(dispatch).map(|info| resources(info, dispatch)),
    }
}

/// Adds what is in [`Launch`], and what is derived from it.
fn launched(annotations: &mut Annotations<'_>, gpus: &Gpus, dispatch: &Dispatch) {
    annotations.named_text("kind", Domain::KernelDispatch.name());
    text(
        annotations,
        "agent",
        &gpus.agent_title(gpus.node_of(dispatch)),
    );
    for (name, value) in [
        ("queue", queue_id(dispatch.queue)),
        ("Scratch_Size", dispatch.private_size.into()),
        ("LDS_Block_Size", dispatch.group_size.into()),
        ("workgroup_size", product(dispatch.workgroup)),
        ("grid_size", product(dispatch.grid)),
        ("thread_count", product(dispatch.grid)),
    ] {
        annotations.named(name, Value::Uint(value));
    }
    for (name, sizes) in [("workgroup", dispatch.workgroup), ("grid", dispatch.grid)] {
        annotations.named_dictionary(name, |entries| {
            for (axis, size) in ["x", "y", "z"].iter().zip(sizes) {
                entries.named(axis, Value::Uint(size.into()));
            }
        });
    }
    annotations.named("kernel_object", Value::Pointer(dispatch.kernel_object));
    for (name, value) in [
        ("barrier", dispatch.barrier),
        ("read_later", dispatch.read_later),
    ] {
        annotations.named(name, Value::Bool(value));
    }
    if let Some(info) = gpus.kernel(dispatch) {
        kernel(annotations, info);
        // These are Perfetto's names for launches; its plugins read them only from GPU events,
        // where [`native_launch`] provides them.
        for (name, value) in resources(info, dispatch) {
            annotations.named(name, Value::Uint(value));
        }
    }
    if let Some(queue) = gpus.queue(dispatch.queue) {
        annotations.named("hsa_queue_id", Value::Uint(queue.id));
    }
}

fn kernel(annotations: &mut Annotations<'_>, info: &KernelInfo) {
    text(annotations, "mangled_name", &info.kernel.name);
    text(annotations, "demangled_name", &info.demangled);
    if let Some(runtime) = info.runtime {
        annotations.named_text("runtime_kernel", runtime.name());
    }
    for (name, value) in [
        ("kernel_id", info.own_id()),
        ("code_object_id", info.code_object),
        ("VGPR_Count", info.kernel.arch_vgpr_count),
        ("Accum_VGPR_Count", info.kernel.accum_vgpr_count),
        ("SGPR_Count", info.kernel.sgpr_count),
        ("static_group_segment_size", info.kernel.group_size),
        ("kernarg_size", info.kernel.kernarg_size),
    ] {
        annotations.named(name, Value::Uint(value.into()));
    }
}

/// Adds the other annotations of a copy.
pub(super) fn copy(annotations: &mut Annotations<'_>, known: &mut Known, gpus: &Gpus, copy: &Copy) {
    annotations.named_text("kind", Domain::MemoryCopy.name());
    annotations.named_text("operation", copy.direction.name());
    if let Some(known_by) = copy.known_by {
        annotations.named_text("direction_by", known_by.name());
    }
    known.agent(annotations, "src_agent", gpus, copy.source_node);
    known.agent(annotations, "dst_agent", gpus, copy.destination_node);
    annotations.named("copy_id", Value::Uint(copy.id));
    annotations.named("copy_bytes", Value::Uint(copy.bytes));
    annotations.named("engine_mask", Value::Uint(copy.engine.into()));
    for (name, address) in [
        ("src_address", copy.source),
        ("dst_address", copy.destination),
        ("completion_signal", copy.signal),
    ] {
        annotations.named(name, Value::Pointer(address));
    }
    let took = copy.time.end.saturating_sub(copy.time.begin);
    if copy.time.is_drawn() && took > 0 {
        // Bytes per ns are GB per s; multiplied by 1000, they are MB per s, as an integer.
        let rate = u128::from(copy.bytes) * 1000 / u128::from(took);
        annotations.named(
            "mb_per_s",
            Value::Uint(u64::try_from(rate).unwrap_or(u64::MAX)),
        );
    }
}

/// Adds an annotation whose text recurs.
fn text(annotations: &mut Annotations<'_>, name: &'static str, text: &str) {
    let text = annotations.number_of_text(text);
    annotations.named(name, Value::Interned(text));
}
