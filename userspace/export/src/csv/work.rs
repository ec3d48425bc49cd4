//! Tables of GPU work: kernels, copies, agents.
//!
//! `kernel_trace` and `memory_copy_trace` have rocprofv3's columns and contain only work with times
//! of its own (quality `exact` or `sampled`; the latter with the mean duration of its class where
//! known), because a script that computes with `Start_Timestamp` and `End_Timestamp` cannot know
//! that a row means something else. The `_quality` tables contain everything that was submitted,
//! with how well each time is known.

use std::collections::BTreeSet;

use gputrace_abi::domain::Domain;
use gputrace_capture::gpu::{AgentKind, Kernel};
use gputrace_timeline::{
    event::Event,
    gpu::{AgentInfo, Copy, Dispatch, GpuTime, KernelClass, KnownBy, RuntimeKernel},
};

use super::{
    pair::{Column, Pair, Row},
    table::{Field, Table},
};
use crate::{
    classes::ClassRecord,
    exporter::ExportError,
    gpu::{Gpus, queue_id, uncertainty},
    lengths::Length,
    output::OutputDir,
};

/// Columns of `kernel_trace`, exactly rocprofv3's.
const DISPATCH: &[Column<Dispatch>] = &[
    ("Kind", |_| Domain::KernelDispatch.name().into()),
    ("Agent_Id", |row| {
        row.gpus.agent_label(row.gpus.node_of(row.work)).into()
    }),
    ("Queue_Id", |row| queue_id(row.work.queue).into()),
    ("Stream_Id", |row| row.work.origin.stream_id.into()),
    ("Thread_Id", |row| row.work.origin.tid.into()),
    ("Dispatch_Id", |row| row.work.id.into()),
    ("Kernel_Id", |row| {
        row.gpus.kernel_id(row.work).unwrap_or(0).into()
    }),
    ("Kernel_Name", |row| {
        Field::Text(row.gpus.kernel_name(row.work))
    }),
    ("Correlation_Id", |row| row.work.origin.innermost.into()),
    ("Start_Timestamp", |row| row.work.time.begin.into()),
    ("End_Timestamp", |row| row.work.time.end.into()),
    ("LDS_Block_Size", |row| {
        row.gpus.lds_block_size(row.work).into()
    }),
    ("Scratch_Size", |row| row.work.private_size.into()),
    ("VGPR_Count", |row| {
        kernel(row, |kernel| kernel.arch_vgpr_count)
    }),
    ("Accum_VGPR_Count", |row| {
        kernel(row, |kernel| kernel.accum_vgpr_count)
    }),
    ("SGPR_Count", |row| kernel(row, |kernel| kernel.sgpr_count)),
    ("Workgroup_Size_X", |row| row.work.workgroup[0].into()),
    ("Workgroup_Size_Y", |row| row.work.workgroup[1].into()),
    ("Workgroup_Size_Z", |row| row.work.workgroup[2].into()),
    ("Grid_Size_X", |row| row.work.grid[0].into()),
    ("Grid_Size_Y", |row| row.work.grid[1].into()),
    ("Grid_Size_Z", |row| row.work.grid[2].into()),
];

/// Columns of `kernel_trace_quality`.
const DISPATCH_QUALITY: &[Column<Dispatch>] = &[
    ("Dispatch_Id", |row| row.work.id.into()),
    ("Trace_Row", |row| row.trace_row.into()),
    ("Quality", |row| row.work.time.quality.name().into()),
    ("Unfinished", |row| row.work.time.unfinished.into()),
    ("Process_Id", |row| row.work.origin.pid.into()),
    ("Thread_Id", |row| row.work.origin.tid.into()),
    ("Agent_Id", |row| {
        row.gpus.agent_label(row.gpus.node_of(row.work)).into()
    }),
    ("Node_Id", |row| row.gpus.node_of(row.work).into()),
    ("Queue_Id", |row| queue_id(row.work.queue).into()),
    ("Packet_Index", |row| row.work.index.into()),
    ("Stream_Id", |row| row.work.origin.stream_id.into()),
    ("Stream_Handle", |row| {
        row.work.origin.stream.map(Field::Address).into()
    }),
    ("Kernel_Id", |row| {
        row.gpus.kernel_id(row.work).unwrap_or(0).into()
    }),
    ("Kernel_Name", |row| {
        Field::Text(row.gpus.kernel_name(row.work))
    }),
    ("Kernel_Object", |row| {
        Field::Address(row.work.kernel_object)
    }),
    ("Correlation_Id", |row| row.work.origin.innermost.into()),
    ("Outermost_Correlation_Id", |row| {
        row.work.origin.outermost.into()
    }),
    ("Submit_Timestamp", |row| row.work.origin.time.into()),
    ("Start_Timestamp", |row| row.work.time.drawn_begin().into()),
    ("End_Timestamp", |row| row.work.time.drawn_end().into()),
    ("Start_Earliest", |row| {
        row.work.time.begin_window.earliest.into()
    }),
    ("Start_Latest", |row| {
        row.work.time.begin_window.latest.into()
    }),
    ("Start_Uncertainty", |row| start_uncertainty(&row.work.time)),
    ("End_Earliest", |row| {
        row.work.time.end_window.earliest.into()
    }),
    ("End_Latest", |row| row.work.time.end_window.latest.into()),
    ("End_Uncertainty", |row| end_uncertainty(&row.work.time)),
    ("Group_Segment_Size", |row| row.work.group_size.into()),
    ("Private_Segment_Size", |row| row.work.private_size.into()),
    ("Kernarg_Address", |row| Field::Address(row.work.kernarg)),
    ("Completion_Signal", |row| Field::Address(row.work.signal)),
    ("Barrier", |row| row.work.barrier.into()),
    ("Read_Later", |row| row.work.read_later.into()),
    ("Deferred", |row| row.work.origin.deferred.into()),
    ("Runtime_Kernel", |row| {
        let info = row.gpus.kernel(row.work);
        info.and_then(|info| info.runtime)
            .map(RuntimeKernel::name)
            .into()
    }),
    ("Kernel_Class", |row| {
        length(row.work).and_then(|length| length.class()).into()
    }),
    ("Estimated_Duration", |row| {
        let estimate = length(row.work).filter(|length| length.estimate_error().is_some());
        estimate.map(|length| length.ns).into()
    }),
    ("Estimate_Error", |row| {
        length(row.work)
            .and_then(|length| length.estimate_error())
            .into()
    }),
];

/// Columns of `memory_copy_trace`, exactly rocprofv3's.
const COPY: &[Column<Copy>] = &[
    ("Kind", |_| Domain::MemoryCopy.name().into()),
    ("Direction", |row| row.work.direction.name().into()),
    ("Stream_Id", |row| row.work.origin.stream_id.into()),
    ("Source_Agent_Id", |row| {
        row.gpus.agent_label(row.work.source_node).into()
    }),
    ("Destination_Agent_Id", |row| {
        row.gpus.agent_label(row.work.destination_node).into()
    }),
    ("Correlation_Id", |row| row.work.origin.innermost.into()),
    ("Start_Timestamp", |row| row.work.time.begin.into()),
    ("End_Timestamp", |row| row.work.time.end.into()),
];

/// Columns of `memory_copy_trace_quality`.
const COPY_QUALITY: &[Column<Copy>] = &[
    ("Copy_Id", |row| row.work.id.into()),
    ("Trace_Row", |row| row.trace_row.into()),
    ("Quality", |row| row.work.time.quality.name().into()),
    ("Unfinished", |row| row.work.time.unfinished.into()),
    ("Direction", |row| row.work.direction.name().into()),
    ("Direction_By", |row| {
        row.work.known_by.map(KnownBy::name).into()
    }),
    ("Process_Id", |row| row.work.origin.pid.into()),
    ("Thread_Id", |row| row.work.origin.tid.into()),
    ("Stream_Id", |row| row.work.origin.stream_id.into()),
    ("Stream_Handle", |row| {
        row.work.origin.stream.map(Field::Address).into()
    }),
    ("Source_Agent_Id", |row| {
        row.gpus.agent_label(row.work.source_node).into()
    }),
    ("Source_Node_Id", |row| row.work.source_node.into()),
    ("Source_Address", |row| Field::Address(row.work.source)),
    ("Destination_Agent_Id", |row| {
        row.gpus.agent_label(row.work.destination_node).into()
    }),
    ("Destination_Node_Id", |row| {
        row.work.destination_node.into()
    }),
    ("Destination_Address", |row| {
        Field::Address(row.work.destination)
    }),
    ("Bytes", |row| row.work.bytes.into()),
    ("Engine_Mask", |row| row.work.engine.into()),
    ("Correlation_Id", |row| row.work.origin.innermost.into()),
    ("Outermost_Correlation_Id", |row| {
        row.work.origin.outermost.into()
    }),
    ("Submit_Timestamp", |row| row.work.origin.time.into()),
    ("Start_Timestamp", |row| row.work.time.drawn_begin().into()),
    ("End_Timestamp", |row| row.work.time.drawn_end().into()),
    ("Start_Earliest", |row| {
        row.work.time.begin_window.earliest.into()
    }),
    ("Start_Latest", |row| {
        row.work.time.begin_window.latest.into()
    }),
    ("Start_Uncertainty", |row| start_uncertainty(&row.work.time)),
    ("End_Earliest", |row| {
        row.work.time.end_window.earliest.into()
    }),
    ("End_Latest", |row| row.work.time.end_window.latest.into()),
    ("End_Uncertainty", |row| end_uncertainty(&row.work.time)),
    ("Completion_Signal", |row| Field::Address(row.work.signal)),
];

/// The columns of `agent_info` by source, in rocprofv3's order.
#[derive(Clone, Copy, Debug)]
enum AgentColumn {
    /// A number of `Agent::info` of the same name, or 0.
    Info,
    NodeId,
    LogicalNodeId,
    Kind,
    GpuId,
    Name,
    Vendor,
    Product,
    Model,
}

const AGENT: &[(&str, AgentColumn)] = {
    use AgentColumn::{GpuId, Info, Kind, LogicalNodeId, Model, Name, NodeId, Product, Vendor};
    &[
        ("Node_Id", NodeId),
        ("Logical_Node_Id", LogicalNodeId),
        ("Agent_Type", Kind),
        ("Cpu_Cores_Count", Info),
        ("Simd_Count", Info),
        ("Cpu_Core_Id_Base", Info),
        ("Simd_Id_Base", Info),
        ("Max_Waves_Per_Simd", Info),
        ("Lds_Size_In_Kb", Info),
        ("Gds_Size_In_Kb", Info),
        ("Num_Gws", Info),
        ("Wave_Front_Size", Info),
        ("Num_Xcc", Info),
        ("Cu_Count", Info),
        ("Array_Count", Info),
        ("Num_Shader_Banks", Info),
        ("Simd_Arrays_Per_Engine", Info),
        ("Cu_Per_Simd_Array", Info),
        ("Simd_Per_Cu", Info),
        ("Max_Slots_Scratch_Cu", Info),
        ("Gfx_Target_Version", Info),
        ("Vendor_Id", Info),
        ("Device_Id", Info),
        ("Location_Id", Info),
        ("Domain", Info),
        ("Drm_Render_Minor", Info),
        ("Num_Sdma_Engines", Info),
        ("Num_Sdma_Xgmi_Engines", Info),
        ("Num_Sdma_Queues_Per_Engine", Info),
        ("Num_Cp_Queues", Info),
        ("Max_Engine_Clk_Ccompute", Info),
        ("Max_Engine_Clk_Fcompute", Info),
        ("Sdma_Fw_Version", Info),
        ("Fw_Version", Info),
        ("Capability", Info),
        ("Cu_Per_Engine", Info),
        ("Max_Waves_Per_Cu", Info),
        ("Family_Id", Info),
        ("Workgroup_Max_Size", Info),
        ("Grid_Max_Size", Info),
        ("Local_Mem_Size", Info),
        ("Hive_Id", Info),
        ("Gpu_Id", GpuId),
        ("Workgroup_Max_Dim_X", Info),
        ("Workgroup_Max_Dim_Y", Info),
        ("Workgroup_Max_Dim_Z", Info),
        ("Grid_Max_Dim_X", Info),
        ("Grid_Max_Dim_Y", Info),
        ("Grid_Max_Dim_Z", Info),
        ("Name", Name),
        ("Vendor_Name", Vendor),
        ("Product_Name", Product),
        ("Model_Name", Model),
    ]
};

fn agent_field<'a>(info: &'a AgentInfo, name: &str, column: AgentColumn) -> Field<'a> {
    let agent = &info.agent;
    match column {
        AgentColumn::Info => {
            let known = agent.info.iter().find(|(known, _)| known == name);
            known.map_or(0, |(_, value)| *value).into()
        }
        AgentColumn::NodeId => agent.node_id.into(),
        AgentColumn::LogicalNodeId => info.absolute_index.into(),
        AgentColumn::Kind => match agent.kind {
            AgentKind::Cpu => "CPU",
            AgentKind::Gpu => "GPU",
        }
        .into(),
        AgentColumn::GpuId => agent.gpu_id.into(),
        AgentColumn::Name => agent.name.as_str().into(),
        AgentColumn::Vendor => agent.vendor_name.as_str().into(),
        AgentColumn::Product => agent.product_name.as_str().into(),
        AgentColumn::Model => agent.model_name.as_str().into(),
    }
}

pub(super) fn kernel(row: &Row<'_, Dispatch>, what: fn(&Kernel) -> u32) -> Field<'static> {
    row.gpus
        .kernel(row.work)
        .map_or(0, |info| what(&info.kernel))
        .into()
}

fn start_uncertainty(time: &GpuTime) -> Field<'static> {
    uncertainty(time.drawn_begin(), &time.begin_window).into()
}

fn end_uncertainty(time: &GpuTime) -> Field<'static> {
    uncertainty(time.drawn_end(), &time.end_window).into()
}

fn length(dispatch: &Dispatch) -> Option<Length> {
    Length::of(&dispatch.time)
}

/// `kernel_classes`. Durations are ns; errors are standard errors.
const CLASS: [&str; 20] = [
    "Kernel_Class",
    "Kernel_Name",
    "Kernel_Id",
    "Kernel_Object",
    "Process_Id",
    "Agent_Id",
    "Node_Id",
    "Workgroup_Size_X",
    "Workgroup_Size_Y",
    "Workgroup_Size_Z",
    "Grid_Size_X",
    "Grid_Size_Y",
    "Grid_Size_Z",
    "Dispatches",
    "Told",
    "Mean_Duration",
    "Mean_Error",
    "Shorter_Duration",
    "Longer_Duration",
    "Longer_Share",
];

/// `kernel_names`.
const NAME: [&str; 2] = ["Kernel_Id", "Mangled_Name"];

/// The mangled names of the kernels that ran, a row for each: they are long, and those in the rows
/// of dispatches are what people read.
#[derive(Debug)]
struct Names {
    table: Table,
    /// Kernels that have a row.
    known: BTreeSet<u32>,
}

impl Names {
    fn create(directory: &OutputDir, name: &str) -> Result<Self, ExportError> {
        Ok(Self {
            table: Table::create(directory, &format!("{name}_kernel_names.csv"), NAME)?,
            known: BTreeSet::new(),
        })
    }

    fn dispatch(&mut self, dispatch: &Dispatch, gpus: &Gpus) -> Result<(), ExportError> {
        let (Some(id), Some(info)) = (gpus.kernel_id(dispatch), gpus.kernel(dispatch)) else {
            return Ok(());
        };
        if !self.known.insert(id) {
            return Ok(());
        }
        let row = [id.into(), info.kernel.name.as_str().into()];
        self.table.fields(row)
    }
}

/// The GPU tables of an export.
#[derive(Debug, Default)]
pub(super) struct GpuTables {
    gpus: Gpus,
    /// Whether GPU work was asked for or occurred.
    wanted: bool,
    kernels: Option<Pair>,
    names: Option<Names>,
    copies: Option<Pair>,
    classes: Option<Table>,
}

impl GpuTables {
    pub(super) fn gpus(&self) -> &Gpus {
        &self.gpus
    }

    /// Begins the tables of `domain`, which was asked for; does nothing if it is not about GPU
    /// work.
    pub(super) fn begin(
        &mut self,
        directory: &OutputDir,
        name: &str,
        domain: Domain,
    ) -> Result<(), ExportError> {
        match domain {
            Domain::KernelDispatch => self.kernels(directory, name),
            Domain::MemoryCopy => self.copies(directory, name).map(drop),
            _ => Ok(()),
        }
    }

    fn kernels(&mut self, directory: &OutputDir, name: &str) -> Result<(), ExportError> {
        self.wanted = true;
        if self.kernels.is_none() {
            self.kernels = Some(Pair::create(
                directory,
                name,
                Domain::KernelDispatch,
                DISPATCH,
                DISPATCH_QUALITY,
            )?);
            self.names = Some(Names::create(directory, name)?);
        }
        Ok(())
    }

    fn copies(&mut self, directory: &OutputDir, name: &str) -> Result<&mut Pair, ExportError> {
        self.wanted = true;
        match &mut self.copies {
            Some(pair) => Ok(pair),
            none => Ok(none.insert(Pair::create(
                directory,
                name,
                Domain::MemoryCopy,
                COPY,
                COPY_QUALITY,
            )?)),
        }
    }

    fn class(
        &mut self,
        directory: &OutputDir,
        name: &str,
        class: &KernelClass,
    ) -> Result<(), ExportError> {
        let table = match &mut self.classes {
            Some(table) => table,
            none => none.insert(Table::create(
                directory,
                &format!("{name}_kernel_classes.csv"),
                CLASS,
            )?),
        };
        let name = self.gpus.class_name(class);
        let record = ClassRecord::new(class, &name);
        let agent = self.gpus.agent_label(class.node_id);
        let identity = [
            record.kernel_class.into(),
            record.kernel.into(),
            record.kernel_id.unwrap_or(0).into(),
            Field::Address(record.kernel_object),
            record.pid.into(),
            agent.into(),
            record.agent.into(),
        ];
        let sizes = record
            .workgroup
            .into_iter()
            .chain(record.grid)
            .map(Field::from);
        let durations = [
            record.dispatches.into(),
            record.told.into(),
            record.mean.map(Field::Shortest).into(),
            record.mean_error.map(Field::Shortest).into(),
            record.shorter.map(Field::Shortest).into(),
            record.longer.map(Field::Shortest).into(),
            record.longer_share.map(Field::Shortest).into(),
        ];
        table.fields(identity.into_iter().chain(sizes).chain(durations))
    }

    /// Takes an event about GPUs; others are ignored.
    pub(super) fn event(
        &mut self,
        directory: &OutputDir,
        name: &str,
        event: &Event,
    ) -> Result<(), ExportError> {
        self.gpus.learn(event);
        match event {
            Event::Dispatch(dispatch) => {
                self.kernels(directory, name)?;
                let Self {
                    gpus,
                    kernels,
                    names,
                    ..
                } = self;
                if let Some(names) = names {
                    names.dispatch(dispatch, gpus)?;
                }
                kernels.iter_mut().try_for_each(|pair| {
                    pair.row(
                        (&**dispatch, &dispatch.time),
                        gpus,
                        DISPATCH,
                        DISPATCH_QUALITY,
                    )
                })
            }
            Event::Copy(copy) => {
                self.copies(directory, name)?;
                let Self { gpus, copies, .. } = self;
                copies
                    .iter_mut()
                    .try_for_each(|pair| pair.row((&**copy, &copy.time), gpus, COPY, COPY_QUALITY))
            }
            Event::KernelClass(class) => self.class(directory, name, class),
            _ => Ok(()),
        }
    }

    /// The tables with descriptions; `agent_info` is written now.
    pub(super) fn finish(
        self,
        directory: &OutputDir,
        name: &str,
    ) -> Result<Vec<(Table, String)>, ExportError> {
        let mut tables = Vec::new();
        if let Some(pair) = self.kernels {
            let content = pair.content("kernels with their times on the GPU");
            tables.push((pair.trace, content));
            tables.push((
                pair.quality,
                "all kernel dispatches, and how well their times are known".to_owned(),
            ));
        }
        if let Some(names) = self.names {
            tables.push((names.table, "mangled names of the kernels".to_owned()));
        }
        if let Some(classes) = self.classes {
            let content =
                "classes of kernels, with their mean durations and standard errors".to_owned();
            tables.push((classes, content));
        }
        if let Some(pair) = self.copies {
            let content = pair.content("copies with their times on the GPU");
            tables.push((pair.trace, content));
            tables.push((
                pair.quality,
                "all copies, and how well their times are known".to_owned(),
            ));
        }
        if self.wanted || !self.gpus.agents().is_empty() {
            let file = format!("{name}_agent_info.csv");
            let mut agents =
                Table::create(directory, &file, AGENT.iter().map(|(column, _)| column))?;
            for info in self.gpus.agents() {
                agents.fields(
                    AGENT
                        .iter()
                        .map(|(name, column)| agent_field(info, name, *column)),
                )?;
            }
            tables.push((agents, "CPUs and GPUs of the node".to_owned()));
        }
        Ok(tables)
    }
}
