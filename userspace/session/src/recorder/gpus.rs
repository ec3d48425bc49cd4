//! GPU metadata of a recording: agents and code objects.
//!
//! Code objects are found in the memory of the traced processes, which is only read. Whatever
//! cannot be found is left out: outputs then show a dispatch without its kernel's name or agent,
//! and say so.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use gputrace_capture::{
    Meta,
    gpu::{Agent, AgentKind, CodeObject, Kernel},
    meta::Notice,
};
use gputrace_codeobj::{Cache, CodeObjects};
use gputrace_collect::{Gpu, GpuClocks, clocks};
use gputrace_kfd::{
    Paths,
    topology::{AgentType, AgentValue, Topology},
};

/// Maximum number of kernels per document that describes a code object.
const KERNELS_PER_DOCUMENT: usize = 4096;

/// Maximum number of reported read failures: a process can name any number of objects.
const MOST_TOLD: usize = 1000;

/// Index of the last reported failure, which says that there are more.
const LAST_TOLD: usize = MOST_TOLD - 1;

/// The GPUs, and the code objects that processes have loaded.
#[derive(Debug, Default)]
pub(crate) struct Gpus {
    agents: Vec<Agent>,
    gpus: Vec<Gpu>,
    cache: Arc<Cache>,
    objects: HashMap<u32, CodeObjects>,
    told: HashSet<String>,
}

impl Gpus {
    /// Reads the node's topology. Also returns the GPU clocks to read, and remarks on what is
    /// missing.
    pub(crate) fn find() -> (Self, Option<GpuClocks>, Vec<String>) {
        let paths = Paths::default();
        let mut remarks = Vec::new();
        let topology = Topology::read(&paths).unwrap_or_else(|error| {
            remarks.push(format!("the GPUs cannot be described: {error}"));
            Topology::default()
        });
        remarks.extend(
            topology
                .problems
                .iter()
                .map(|problem| format!("GPU topology: {problem}")),
        );
        let agents = topology.agents(&paths).iter().map(describe_agent).collect();
        let gpus = topology.gpu_ids();
        let with_registers = topology.nodes.iter().filter_map(|node| {
            Some(Gpu {
                node_id: node.id,
                gpu_id: node.gpu_id,
                minor: node.drm_render_minor()?,
            })
        });
        let with_registers = with_registers.collect();
        let clocks = if gpus.is_empty() {
            remarks.push(
                "KFD shows no GPU, so GPU times cannot be converted to the host's clock; they \
                 remain bounds"
                    .to_owned(),
            );
            None
        } else {
            match GpuClocks::new(paths, gpus) {
                Ok(clocks) => Some(clocks),
                Err(error) => {
                    remarks.push(format!(
                        "the GPUs' clocks cannot be read, so GPU times remain bounds unless the \
                         traced runtime reads them: {error}"
                    ));
                    None
                }
            }
        };
        let found = Self {
            agents,
            gpus: with_registers,
            ..Self::default()
        };
        (found, clocks, remarks)
    }

    /// Descriptions of the agents alone, for the capture; empty if they cannot be read.
    pub(crate) fn describe() -> Vec<Meta> {
        let paths = Paths::default();
        let topology = Topology::read(&paths).unwrap_or_default();
        let agents = topology.agents(&paths);
        agents
            .iter()
            .map(|agent| describe_agent(agent).into())
            .collect()
    }

    /// The GPUs whose status registers can be read.
    pub(crate) fn with_registers(&self) -> Vec<Gpu> {
        self.gpus.clone()
    }

    /// Whether the node has a GPU.
    pub(crate) fn any(&self) -> bool {
        self.agents.iter().any(|agent| agent.kind == AgentKind::Gpu)
    }

    /// Descriptions of the agents for the capture.
    pub(crate) fn agents(&self) -> impl Iterator<Item = Meta> + '_ {
        self.agents.iter().cloned().map(Meta::from)
    }

    /// Topology node and kind of each agent.
    pub(crate) fn nodes(&self) -> Vec<(u32, AgentKind)> {
        self.agents
            .iter()
            .map(|agent| (agent.node_id, agent.kind))
            .collect()
    }

    /// Reads the code objects that a process has loaded since it was last looked at.
    pub(crate) fn code_objects(&mut self, pid: u32) -> Vec<Meta> {
        if !self.objects.contains_key(&pid) {
            match CodeObjects::open(pid, Arc::clone(&self.cache)) {
                Ok(objects) => {
                    self.objects.insert(pid, objects);
                }
                Err(error) => {
                    tracing::debug!("code objects of process {pid}: {error}");
                    return Vec::new();
                }
            }
        }
        let Some(objects) = self.objects.get_mut(&pid) else {
            return Vec::new();
        };
        let time = clocks::now();
        let update = match objects.update() {
            Ok(update) => update,
            Err(error) => {
                tracing::debug!("code objects of process {pid}: {error}");
                self.objects.remove(&pid);
                return Vec::new();
            }
        };
        let mut news: Vec<Meta> = update
            .added
            .iter()
            .flat_map(|object| describe_code_object(pid, time, object))
            .collect();
        for problem in update.problems {
            let mut text = format!("process {pid}: {problem}");
            match self.told.len() {
                MOST_TOLD.. => continue,
                LAST_TOLD => {
                    text = "more code objects cannot be read; they are not listed".to_owned();
                }
                _ => {}
            }
            if self.told.insert(text.clone()) {
                news.push(Notice { time, text }.into());
            }
        }
        news
    }

    /// Whether a kernel belongs to a code object that has been described.
    pub(crate) fn knows(&self, pid: u32, kernel_object: u64) -> bool {
        let objects = self.objects.get(&pid);
        objects.is_some_and(|objects| objects.kernel(kernel_object).is_some())
    }

    /// Processes whose code objects have been looked at.
    pub(crate) fn users(&self) -> impl Iterator<Item = u32> {
        self.objects.keys().copied()
    }

    /// Forgets a process that has ended or executed another program.
    pub(crate) fn ended(&mut self, pid: u32) {
        self.objects.remove(&pid);
    }
}

fn describe_agent(agent: &gputrace_kfd::topology::Agent) -> Agent {
    let numbers = agent
        .columns()
        .into_iter()
        .filter_map(|(name, value)| match value {
            AgentValue::Number(number) => Some((name.to_owned(), number)),
            AgentValue::Text(_) => None,
        });
    let counts = agent.counts().map(|(name, count)| (name.to_owned(), count));
    Agent {
        node_id: agent.node_id,
        gpu_id: agent.gpu_id,
        kind: match agent.agent_type {
            AgentType::Gpu => AgentKind::Gpu,
            _ => AgentKind::Cpu,
        },
        name: agent.name.clone(),
        vendor_name: agent.vendor_name.clone(),
        product_name: agent.product_name.clone(),
        model_name: agent.model_name.clone(),
        info: numbers.chain(counts).collect(),
    }
}

/// Description of a code object for the capture, in several documents if it has very many kernels.
fn describe_code_object(pid: u32, time: u64, object: &gputrace_codeobj::CodeObject) -> Vec<Meta> {
    let mut kernels: Vec<Kernel> = object
        .kernels()
        .map(|(handle, kernel)| {
            let registers = kernel.registers.unwrap_or_default();
            Kernel {
                object: handle,
                name: kernel.name.clone(),
                kernarg_size: kernel.kernarg_segment_size(),
                kernarg_alignment: kernel.kernarg_segment_align(),
                group_size: kernel.group_segment_size(),
                private_size: kernel.private_segment_size(),
                sgpr_count: registers.sgpr,
                arch_vgpr_count: registers.arch_vgpr,
                accum_vgpr_count: registers.accum_vgpr,
            }
        })
        .collect();
    let mut documents = Vec::new();
    loop {
        let rest = kernels.split_off(kernels.len().min(KERNELS_PER_DOCUMENT));
        documents.push(
            CodeObject {
                pid,
                time,
                uri: object.uri.clone(),
                load_base: object.load_base,
                load_size: object.load_size,
                load_delta: object.load_delta.cast_signed(),
                target: object
                    .contents
                    .target_id
                    .clone()
                    .unwrap_or_else(|| object.contents.target.to_string()),
                kernels: std::mem::replace(&mut kernels, rest),
            }
            .into(),
        );
        if kernels.is_empty() {
            return documents;
        }
    }
}
