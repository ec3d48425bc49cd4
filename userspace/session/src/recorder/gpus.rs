//! GPU metadata of a recording: agents and code objects.
//!
//! Code objects are found in the memory of the traced processes, which is only read. Whatever
//! cannot be found is left out: outputs then show a dispatch without its kernel's name or agent,
//! and say so.

use std::{
    collections::{BTreeMap, HashMap, HashSet, hash_map::Entry},
    sync::Arc,
};

use gputrace_capture::{
    Meta,
    gpu::{Agent, AgentKind, CodeObject, Kernel},
    meta::Notice,
};
use gputrace_codeobj::{Cache, CodeObjects, Update, memory::MemoryError, registry::RegistryError};
use gputrace_collect::{Gpu, GpuClocks, clocks};
use gputrace_kfd::{
    Paths,
    topology::{AgentType, AgentValue, Topology},
};
use gputrace_text::tables::plural;
use gputrace_tracee::process::ProcessError;

/// Maximum number of kernels per document that describes a code object.
const KERNELS_PER_DOCUMENT: usize = 4096;

/// Maximum number of reported read failures: a process can name any number of objects.
const MOST_TOLD: usize = 1000;

/// Index of the last reported failure, which says that there are more.
const LAST_TOLD: usize = MOST_TOLD - 1;

/// Maximum number of processes in [`Gpus::read`], and in [`Gpus::unread`].
const MOST_REMEMBERED: usize = 4096;

/// The GPUs, and the code objects that processes have loaded.
#[derive(Debug, Default)]
pub(crate) struct Gpus {
    agents: Vec<Agent>,
    gpus: Vec<Gpu>,
    cache: Arc<Cache>,
    objects: HashMap<u32, CodeObjects>,
    /// When the code objects of a process were last read, ns `CLOCK_BOOTTIME`, also after its end.
    read: HashMap<u32, u64>,
    /// Processes with code objects that gputrace could not read, and why.
    unread: BTreeMap<u32, String>,
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

    /// Reads the code objects that a process has loaded since it was last looked at. Returns `None`
    /// if they cannot be read now. `loaded` is when the process reported a load, ns
    /// `CLOCK_BOOTTIME`; `None` if it did not.
    pub(crate) fn code_objects(&mut self, pid: u32, loaded: Option<u64>) -> Option<Vec<Meta>> {
        let time = clocks::now();
        let update = match self.update(pid) {
            Ok(update) => update,
            Err(error) => {
                tracing::debug!("code objects of process {pid}: {error}");
                self.objects.remove(&pid);
                self.failed(pid, loaded, &error);
                return None;
            }
        };
        self.unread.remove(&pid);
        if self.read.len() >= MOST_REMEMBERED {
            self.read.clear();
        }
        self.read.insert(pid, time);
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
        Some(news)
    }

    /// Remembers a process whose code objects could not be read. Without a reported load, a process
    /// that has ended or has no runtime had nothing to read.
    fn failed(&mut self, pid: u32, loaded: Option<u64>, error: &RegistryError) {
        let is_gone = matches!(
            error,
            RegistryError::NoRuntime { .. }
                | RegistryError::Process(ProcessError::NoSuchProcess { .. })
                | RegistryError::Memory(MemoryError::NoSuchProcess { .. })
        );
        let read = self.read.get(&pid).copied().unwrap_or(0);
        let is_lost = loaded.map_or(!is_gone, |loaded| read < loaded);
        if is_lost && self.unread.len() < MOST_REMEMBERED {
            self.unread.insert(pid, error.to_string());
        }
    }

    /// A remark for the end of the recording: the processes with code objects that were not read.
    pub(crate) fn unread(&self) -> Option<String> {
        let (pid, reason) = self.unread.first_key_value()?;
        let others = match self.unread.len() - 1 {
            0 => String::new(),
            others => format!(" and of {}", plural(others as u64, "other", "others")),
        };
        Some(format!(
            "code objects of process {pid}{others} were not read, so their kernels have no names: \
             {reason}"
        ))
    }

    fn update(&mut self, pid: u32) -> Result<Update, RegistryError> {
        let objects = match self.objects.entry(pid) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => {
                unknown.insert(CodeObjects::open(pid, Arc::clone(&self.cache))?)
            }
        };
        Ok(objects.update()?)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_objects_that_were_not_read_are_said() {
        let mut gpus = Gpus::default();
        // No process has this id.
        let pid = u32::MAX;
        let gone = || RegistryError::Memory(MemoryError::NoSuchProcess { pid });

        assert!(gpus.code_objects(pid, None).is_none());
        assert_eq!(
            gpus.unread(),
            None,
            "a process that is not known to have loaded any"
        );

        gpus.read.insert(pid, 20);
        gpus.failed(pid, Some(10), &gone());
        assert_eq!(gpus.unread(), None, "what it had loaded was read later");

        assert!(gpus.code_objects(pid, Some(30)).is_none());
        let text = gpus.unread().unwrap_or_default();
        assert!(
            text.contains(&format!("of process {pid} were not read")),
            "{text}"
        );

        gpus.failed(
            1,
            None,
            &RegistryError::Memory(MemoryError::NoAnswer { pid: 1 }),
        );
        let text = gpus.unread().unwrap_or_default();
        assert!(
            text.contains("of process 1 and of 1 other were not read"),
            "{text}"
        );
        assert!(text.contains("does not answer"), "{text}");
    }
}
