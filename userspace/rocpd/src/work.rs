//! GPU work: dispatches and copies, and the objects that they refer to.

mod infos;

use std::collections::{BTreeMap, HashMap};

use gputrace_abi::domain::Domain;
use gputrace_analysis::agents::Agents;
use gputrace_capture::meta::Notice;
use gputrace_export::{
    ExportError, classes,
    gpu::{queue_id, uncertainty},
    lengths::Length,
};
use gputrace_timeline::gpu::{
    Activity, CodeObjectInfo, Copy, Dispatch, GpuTime, KernelClass, KernelInfo, KnownBy, QueueInfo,
};
use rusqlite::params;
use serde::Serialize;
use serde_json::json;

use crate::{
    exporter::{Context, int, json as text},
    rows::{Rows, cells},
    schema::Identity,
};

/// Row of the agent that stands for an unknown one, because the views leave out rows with dangling
/// references.
const UNKNOWN_AGENT: i64 = -1;

/// Row of the code object of kernels that were not found.
const UNKNOWN_CODE_OBJECT: i64 = 0;

/// Maximum number of kernels that were not found and have rows of their own. Further ones, which
/// only a damaged capture has, share the last row.
const UNKNOWN_KERNELS: usize = 1 << 16;

/// `extdata` about the times in a row of work.
#[derive(Serialize)]
struct Ext {
    quality: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_uncertainty: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    end_uncertainty: Option<u64>,
    /// Of a duration that is an estimate: the class whose mean it is, if it is one, and its standard
    /// error, ns.
    #[serde(skip_serializing_if = "Option::is_none")]
    kernel_class: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    estimate_error: Option<u64>,
}

impl Ext {
    fn new(time: &GpuTime) -> Self {
        let length = Length::of(time);
        Self {
            quality: time.quality.name(),
            start_uncertainty: uncertainty(time.drawn_begin(), &time.begin_window),
            end_uncertainty: uncertainty(time.drawn_end(), &time.end_window),
            kernel_class: length.and_then(|length| length.class()),
            estimate_error: length.and_then(|length| length.estimate_error()),
        }
    }
}

/// Writes dispatches and copies, and collects what can only be written at the end.
#[derive(Debug)]
pub(crate) struct Work {
    dispatch_rows: Rows<24>,
    all_dispatches_rows: Rows<33>,
    copy_rows: Rows<17>,
    all_copies_rows: Rows<31>,
    kernel_sql: String,
    /// Process and description of the queues in use, by [`QueueInfo::number`].
    queues: BTreeMap<u32, (u32, Option<QueueInfo>)>,
    code_objects: Vec<CodeObjectInfo>,
    /// Code objects that kernels refer to, with their processes.
    referred: BTreeMap<i64, u32>,
    /// Node on which a kernel of the code object ran first.
    nodes: HashMap<u32, u32>,
    /// Rows of kernels that were not found, by address.
    unknown_kernels: HashMap<u64, i64>,
    unknown_agent: bool,
    agents: Agents,
}

impl Work {
    /// Work of a recording that began at `began`, ns `CLOCK_BOOTTIME`.
    pub(crate) fn new(identity: &Identity, began: u64) -> Self {
        Self {
            dispatch_rows: Rows::new(
                identity,
                "rocpd_kernel_dispatch",
                "id, nid, pid, tid, agent_id, kernel_id, dispatch_id, queue_id, \
                 stream_id, start, \"end\", private_segment_size, group_segment_size, workgroup_size_x, workgroup_size_y, \
                 workgroup_size_z, grid_size_x, grid_size_y, grid_size_z, graph_exec_id, graph_node_id, region_name_id, \
                 event_id, extdata",
            ),
            all_dispatches_rows: Rows::new(
                identity,
                "gputrace_dispatch",
                "id, event_id, quality, unfinished, pid, tid, agent_id, queue_id, \
                 stream_id, stream_handle, kernel_id, kernel_object, packet_index, stack_id, caller_stack_id, \
                 outermost_stack_id, submit, \
                 start, \"end\", start_earliest, start_latest, end_earliest, end_latest, kernarg_address, completion_signal, \
                 barrier, read_later, kernel_class, estimate_error, duration, duration_error, graph_exec_id, graph_node_id",
            ),
            copy_rows: Rows::new(
                identity,
                "rocpd_memory_copy",
                "id, nid, pid, tid, start, \"end\", name_id, dst_agent_id, dst_address, \
                 src_agent_id, src_address, size, stream_id, graph_exec_id, graph_node_id, event_id, extdata",
            ),
            all_copies_rows: Rows::new(
                identity,
                "gputrace_copy",
                "id, event_id, quality, unfinished, direction, pid, tid, dst_agent_id, \
                 dst_address, src_agent_id, src_address, size, stream_id, stream_handle, engine_mask, stack_id, \
                 caller_stack_id, outermost_stack_id, submit, start, \"end\", start_earliest, start_latest, end_earliest, end_latest, \
                 completion_signal, duration, duration_error, direction_by, graph_exec_id, graph_node_id",
            ),
            kernel_sql: identity.fill(
                "INSERT OR REPLACE INTO rocpd_info_kernel_symbol{uuid} (id, nid, pid, code_object_id, kernel_name, \
                 display_name, kernel_object, kernarg_segment_size, kernarg_segment_alignment, group_segment_size, \
                 private_segment_size, sgpr_count, arch_vgpr_count, accum_vgpr_count, extdata) \
                 VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            ),
            queues: BTreeMap::new(),
            code_objects: Vec::new(),
            referred: BTreeMap::new(),
            nodes: HashMap::new(),
            unknown_kernels: HashMap::new(),
            unknown_agent: false,
            agents: Agents::new(began),
        }
    }

    pub(crate) fn notice(&mut self, notice: &Notice) {
        self.agents.notice(notice);
    }

    pub(crate) fn queue(&mut self, queue: &QueueInfo) {
        self.agents.queue(queue);
        self.queues.insert(queue.number, (queue.pid, Some(*queue)));
    }

    pub(crate) fn activity(&mut self, reading: &Activity) {
        self.agents.activity(reading);
    }

    pub(crate) fn code_object(&mut self, info: &CodeObjectInfo) {
        self.code_objects.push(info.clone());
    }

    pub(crate) fn kernel(
        &mut self,
        context: &mut Context,
        info: &KernelInfo,
    ) -> Result<(), ExportError> {
        // As in rocprofv3, the range after which a kernel is named is in the dispatch's row.
        if info.renamed.is_some() {
            return Ok(());
        }
        let kernel = &info.kernel;
        let shown = info.shown_name();
        let demangled = info.demangled_symbol();
        let extdata = json!({
            "kernel_id": info.id,
            "formatted_kernel_name": shown,
            "demangled_kernel_name": demangled,
            "truncated_kernel_name": gputrace_demangle::truncate(&demangled),
            "kernel_address": {"handle": kernel.object},
        });
        context.who.process(info.pid);
        self.referred.insert(info.code_object.into(), info.pid);
        let values = params![
            info.id,
            context.node,
            info.pid,
            info.code_object,
            info.symbol(),
            shown,
            int(kernel.object),
            kernel.kernarg_size,
            kernel.kernarg_alignment,
            kernel.group_size,
            kernel.private_size,
            kernel.sgpr_count,
            kernel.arch_vgpr_count,
            kernel.accum_vgpr_count,
            extdata.to_string(),
        ];
        context.database.insert(&self.kernel_sql, values)
    }

    /// The row of a dispatch's kernel.
    fn kernel_row(
        &mut self,
        context: &mut Context,
        dispatch: &Dispatch,
    ) -> Result<i64, ExportError> {
        if let Some(info) = context.gpus.kernel(dispatch) {
            return Ok(info.own_id().into());
        }
        let object = dispatch.kernel_object;
        if let Some(row) = self.unknown_kernels.get(&object) {
            return Ok(*row);
        }
        if self.unknown_kernels.len() >= UNKNOWN_KERNELS {
            return Ok(-(self.unknown_kernels.len() as i64));
        }
        let row = -(self.unknown_kernels.len() as i64) - 1;
        self.unknown_kernels.insert(object, row);
        self.referred.insert(UNKNOWN_CODE_OBJECT, context.main);
        let name = context.gpus.kernel_name(dispatch).into_owned();
        let (node, pid) = (context.node, dispatch.origin.pid);
        let none = None::<u32>;
        let values = params![
            row,
            node,
            pid,
            UNKNOWN_CODE_OBJECT,
            name,
            name,
            int(object),
            none,
            none,
            none,
            none,
            none,
            none,
            none,
            "{\"unknown\":true}",
        ];
        context.database.insert(&self.kernel_sql, values)?;
        Ok(row)
    }

    fn agent(&mut self, context: &Context, node: Option<u32>) -> i64 {
        match node {
            Some(node) if context.gpus.agent(node).is_some() => node.into(),
            _ => {
                self.unknown_agent = true;
                UNKNOWN_AGENT
            }
        }
    }

    /// Writes a dispatch; returns the row of its event if it is drawn. `graph` is as in
    /// [`crate::graphs::Graphs::of`].
    pub(crate) fn dispatch(
        &mut self,
        context: &mut Context,
        dispatch: &Dispatch,
        graph: Option<i64>,
    ) -> Result<Option<i64>, ExportError> {
        let Dispatch { origin, time, .. } = dispatch;
        context.who.seen(origin.pid, origin.tid);
        self.queues
            .entry(dispatch.queue)
            .or_insert((origin.pid, None));
        let node = context.gpus.node_of(dispatch);
        let agent = self.agent(context, node);
        self.agents.dispatch(node, dispatch);
        if let (Some(node), Some(kernel)) = (node, context.gpus.kernel(dispatch)) {
            self.nodes.entry(kernel.code_object).or_insert(node);
        }
        let kernel = self.kernel_row(context, dispatch)?;
        let queue = int(queue_id(dispatch.queue));
        let stream = origin.stream_id;
        let event = if time.is_drawn() {
            let stack = (origin.innermost, origin.innermost);
            let event = context.event(Domain::KernelDispatch.name(), stack, "{}")?;
            let range = context
                .gpus
                .kernel(dispatch)
                .filter(|info| info.renamed.is_some());
            let range = range.map_or("", |info| info.shown.as_str());
            let region = context.strings.id(&context.database, range)?;
            let [workgroup_x, workgroup_y, workgroup_z] = dispatch.workgroup;
            let [grid_x, grid_y, grid_z] = dispatch.grid;
            let extdata = text(&Ext::new(time));
            let row = cells![
                int(dispatch.id),
                context.node,
                origin.pid,
                origin.tid,
                agent,
                kernel,
                int(dispatch.id),
                queue,
                stream,
                int(time.begin),
                int(time.end),
                dispatch.private_size,
                dispatch.group_size,
                workgroup_x,
                workgroup_y,
                workgroup_z,
                grid_x,
                grid_y,
                grid_z,
                graph,
                graph,
                region,
                event,
                extdata.as_str(),
            ];
            self.dispatch_rows.add(&context.database, row)?;
            Some(event)
        } else {
            None
        };
        let length = Length::of(time);
        let row = cells![
            int(dispatch.id),
            event,
            time.quality.name(),
            time.unfinished,
            origin.pid,
            origin.tid,
            agent,
            queue,
            stream,
            origin.stream.map(int),
            kernel,
            int(dispatch.kernel_object),
            int(dispatch.index),
            int(origin.innermost),
            int(origin.caller),
            int(origin.outermost),
            int(origin.time),
            time.drawn_begin().map(int),
            time.drawn_end().map(int),
            int(time.begin_window.earliest),
            time.begin_window.latest.map(int),
            int(time.end_window.earliest),
            time.end_window.latest.map(int),
            int(dispatch.kernarg),
            int(dispatch.signal),
            dispatch.barrier,
            dispatch.read_later,
            length.and_then(|length| length.class()),
            length.and_then(|length| length.estimate_error()).map(int),
            length.map(|length| int(length.ns)),
            length.map(|length| length.error().ceil() as i64),
            graph,
            graph,
        ];
        self.all_dispatches_rows.add(&context.database, row)?;
        Ok(event)
    }

    /// Writes a class of kernels.
    pub(crate) fn class(
        &mut self,
        context: &Context,
        class: &KernelClass,
    ) -> Result<(), ExportError> {
        let sql = context.database.identity.fill(
            "INSERT INTO gputrace_kernel_class{uuid} (id, pid, agent_id, kernel_id, name, kernel_object, \
             workgroup_size_x, workgroup_size_y, workgroup_size_z, grid_size_x, grid_size_y, grid_size_z, dispatches, \
             told, mean, mean_error, shorter, longer, longer_share) \
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        );
        let [workgroup_x, workgroup_y, workgroup_z] = class.workgroup;
        let [grid_x, grid_y, grid_z] = class.grid;
        let mean = classes::mean(class);
        let lengths = classes::lengths(class);
        let values = params![
            class.number,
            class.pid,
            class.node_id,
            class.kernel,
            context.gpus.class_name(class),
            int(class.kernel_object),
            workgroup_x,
            workgroup_y,
            workgroup_z,
            grid_x,
            grid_y,
            grid_z,
            int(class.count),
            class.told.name(),
            mean.map(|mean| mean.value),
            mean.map(|mean| mean.error),
            lengths.map(|lengths| lengths.shorter),
            lengths.map(|lengths| lengths.longer),
            lengths.map(|lengths| lengths.longer_share),
        ];
        context.database.insert(&sql, values)
    }

    /// Writes a copy; `graph` as for dispatches.
    pub(crate) fn copy(
        &mut self,
        context: &mut Context,
        copy: &Copy,
        graph: Option<i64>,
    ) -> Result<(), ExportError> {
        let Copy { origin, time, .. } = copy;
        context.who.seen(origin.pid, origin.tid);
        let to = self.agent(context, copy.destination_node);
        let from = self.agent(context, copy.source_node);
        let stream = origin.stream_id;
        let direction = copy.direction.name();
        let event = if time.is_drawn() {
            let stack = (origin.innermost, origin.innermost);
            let event = context.event(Domain::MemoryCopy.name(), stack, "{}")?;
            let name = context.strings.id(&context.database, direction)?;
            let extdata = text(&Ext::new(time));
            let row = cells![
                int(copy.id),
                context.node,
                origin.pid,
                origin.tid,
                int(time.begin),
                int(time.end),
                name,
                to,
                int(copy.destination),
                from,
                int(copy.source),
                int(copy.bytes),
                stream,
                graph,
                graph,
                event,
                extdata.as_str(),
            ];
            self.copy_rows.add(&context.database, row)?;
            Some(event)
        } else {
            None
        };
        let length = Length::of(time);
        let row = cells![
            int(copy.id),
            event,
            time.quality.name(),
            time.unfinished,
            direction,
            origin.pid,
            origin.tid,
            to,
            int(copy.destination),
            from,
            int(copy.source),
            int(copy.bytes),
            stream,
            origin.stream.map(int),
            copy.engine,
            int(origin.innermost),
            int(origin.caller),
            int(origin.outermost),
            int(origin.time),
            time.drawn_begin().map(int),
            time.drawn_end().map(int),
            int(time.begin_window.earliest),
            time.begin_window.latest.map(int),
            int(time.end_window.earliest),
            time.end_window.latest.map(int),
            int(copy.signal),
            length.map(|length| int(length.ns)),
            length.map(|length| length.error().ceil() as i64),
            copy.known_by.map(KnownBy::name),
            graph,
            graph,
        ];
        self.all_copies_rows.add(&context.database, row)
    }

    /// Writes the rows that the rows of work refer to.
    pub(crate) fn finish(&mut self, context: &mut Context) -> Result<(), ExportError> {
        self.dispatch_rows.finish(&context.database)?;
        self.all_dispatches_rows.finish(&context.database)?;
        self.copy_rows.finish(&context.database)?;
        self.all_copies_rows.finish(&context.database)?;
        self.write_queues(context)?;
        infos::write_streams(context)?;
        self.write_code_objects(context)?;
        self.write_agents(context)
    }
}
