//! Graphs: commands captured from a stream, to be submitted repeatedly.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use gputrace_simrocm_core::ffi::Untyped;
use gputrace_simrocm_core::newer::Newer;

use crate::copy::{self, Copy, Fill};
use crate::device::{allocate, system};
use crate::error::{Error, Hip};
use crate::hsa;
use crate::launch::{self, Launch};
use crate::stream::{Signalled, Stream, Work};

/// A command of a graph.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    Kernel(Launch),
    Copy(Copy),
    Fill(Fill),
}

/// Commands in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Graph {
    pub(crate) nodes: Vec<Node>,
}

/// A step of a graph that is ready to run.
enum Step {
    /// Consecutive kernels, with the addresses of their arguments.
    Kernels(Vec<(Launch, u64)>),
    Copy(Copy),
    Fill(Fill),
}

/// A graph whose arguments are in memory.
pub(crate) struct Executable {
    steps: Vec<Step>,
    kernargs: u64,
}

impl Drop for Executable {
    fn drop(&mut self) {
        if self.kernargs != 0 {
            hsa::hsa_amd_memory_pool_free(Untyped::at(self.kernargs));
        }
    }
}

impl Executable {
    pub(crate) fn new(graph: &Graph) -> Hip<Self> {
        const ALIGN: usize = 64;
        let room = |launch: &Launch| launch.arguments.len().max(1).next_multiple_of(ALIGN);
        let kernels = graph.nodes.iter().filter_map(|node| match node {
            Node::Kernel(launch) => Some(launch),
            _ => None,
        });
        let bytes: usize = kernels.map(room).sum();
        let kernargs = if bytes == 0 {
            0
        } else {
            allocate(system()?.kernarg_pool, bytes)?
        };
        let mut at = kernargs;
        let mut steps = Vec::new();
        for node in &graph.nodes {
            match node {
                Node::Copy(copy) => steps.push(Step::Copy(*copy)),
                Node::Fill(fill) => steps.push(Step::Fill(*fill)),
                Node::Kernel(launch) => {
                    Untyped::at(at).put_bytes(&launch.arguments);
                    let kernel = (launch.clone(), at);
                    at += room(launch) as u64;
                    match steps.last_mut() {
                        Some(Step::Kernels(kernels)) => kernels.push(kernel),
                        _ => steps.push(Step::Kernels(vec![kernel])),
                    }
                }
            }
        }
        Ok(Self { steps, kernargs })
    }

    /// Submits all steps.
    pub(crate) fn launch(&self, stream: &Stream, work: &mut Work) -> Hip {
        for step in &self.steps {
            match step {
                Step::Copy(one) => copy::copy(stream, work, *one, false)?,
                Step::Fill(fill) => copy::fill(stream, work, *fill)?,
                Step::Kernels(kernels) if Newer::DoorbellBatches.wanted() => {
                    launch::submit_batch(stream, work, kernels)?;
                }
                Step::Kernels(kernels) => {
                    for (kernel, kernarg) in kernels {
                        launch::submit_at(stream, work, kernel, *kernarg, Signalled::Profiled)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Handles of graphs and executable graphs.
#[derive(Default)]
struct Known {
    graphs: HashMap<u64, Graph>,
    executables: HashMap<u64, Arc<Executable>>,
}

static KNOWN: RwLock<Option<Known>> = RwLock::new(None);

fn known<T>(with: impl FnOnce(&mut Known) -> T) -> T {
    let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
    with(known.get_or_insert_default())
}

fn handle() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0x6a00_0000);
    NEXT.fetch_add(16, Ordering::Relaxed)
}

/// Assigns a handle to a graph.
pub(crate) fn add(graph: Graph) -> u64 {
    let handle = handle();
    known(|known| known.graphs.insert(handle, graph));
    handle
}

/// Destroys a graph.
pub(crate) fn destroy(handle: u64) -> Hip {
    known(|known| known.graphs.remove(&handle))
        .map(drop)
        .ok_or(Error::INVALID_VALUE)
}

/// Makes a graph ready to run.
pub(crate) fn instantiate(graph: u64) -> Hip<u64> {
    let graph = known(|known| known.graphs.get(&graph).cloned()).ok_or(Error::INVALID_VALUE)?;
    let executable = Executable::new(&graph)?;
    let handle = handle();
    known(|known| known.executables.insert(handle, Arc::new(executable)));
    Ok(handle)
}

/// An executable graph by its handle.
pub(crate) fn executable(handle: u64) -> Hip<Arc<Executable>> {
    known(|known| known.executables.get(&handle).cloned()).ok_or(Error::INVALID_VALUE)
}

/// Destroys an executable graph. Its arguments may be in use until the work has ended.
pub(crate) fn destroy_executable(handle: u64) -> Hip {
    let gone = known(|known| known.executables.remove(&handle)).ok_or(Error::INVALID_VALUE)?;
    for device in &system()?.devices {
        crate::stream::synchronize_device(device)?;
    }
    drop(gone);
    Ok(())
}
