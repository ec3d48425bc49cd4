//! How many kernels a launch of a graph executes at least.
//!
//! Kernels that were captured in a graph's stream, or added to it as nodes, are certainly executed
//! by each launch, unless a call takes nodes away. Those of other streams that joined a capture,
//! and of child graphs and clones, are not counted.

use foldhash::HashMap;

use super::super::deferred::Handle;
use crate::model::event::Call;

/// Maximum number of graphs of a process that are remembered, of each kind.
const MOST: usize = 1 << 12;

/// What functions do with graphs, by name without `_spt`.
pub(super) const FUNCTIONS: [(&str, Graph); 11] = [
    ("hipGraphAddKernelNode", Graph::AddsKernel),
    ("hipGraphCreate", Graph::Creates),
    ("hipGraphDestroy", Graph::Destroys),
    ("hipGraphDestroyNode", Graph::TakesNode),
    ("hipGraphExecDestroy", Graph::DestroysReady),
    ("hipGraphExecUpdate", Graph::DestroysReady),
    ("hipGraphInstantiate", Graph::Instantiates),
    ("hipGraphInstantiateWithFlags", Graph::Instantiates),
    ("hipGraphInstantiateWithParams", Graph::Instantiates),
    ("hipGraphLaunch", Graph::Launches),
    ("hipGraphNodeSetEnabled", Graph::DestroysReady),
];

/// What a function does with graphs.
#[derive(Clone, Copy, Debug)]
pub(super) enum Graph {
    Creates,
    Destroys,
    AddsKernel,
    /// A node is gone, and its graph is not named.
    TakesNode,
    Instantiates,
    /// Nothing is known of the executable graph any more.
    DestroysReady,
    Launches,
}

/// Kernels of graphs that are certain.
#[derive(Debug, Default)]
pub(super) struct Graphs {
    /// In captures, by their stream.
    captured: HashMap<Handle, u64>,
    /// In graphs and executable graphs, by handle.
    graphs: HashMap<u64, u64>,
    ready: HashMap<u64, u64>,
}

impl Graphs {
    /// A kernel is launched into a stream while streams are captured.
    pub(super) fn captured(&mut self, stream: Handle) {
        if let Some(kernels) = self.captured.get_mut(&stream) {
            *kernels += 1;
        }
    }

    /// A stream is captured from now on.
    pub(super) fn begin(&mut self, stream: Handle) {
        if self.captured.len() < MOST {
            self.captured.insert(stream, 0);
        }
    }

    /// The call ends the capture of a stream, and stores its graph.
    pub(super) fn end(&mut self, stream: Handle, call: &Call) {
        let kernels = self.captured.remove(&stream);
        if let Some(graph) = call.stored(1) {
            set(&mut self.graphs, graph, kernels);
        }
    }

    /// Learns of a call; returns the number of kernels that it launches.
    pub(super) fn call(&mut self, what: Graph, call: &Call) -> u64 {
        let [first, second, ..] = call.args;
        match what {
            Graph::Creates => {
                if let Some(graph) = call.stored(0) {
                    set(&mut self.graphs, graph, Some(0));
                }
            }
            Graph::Destroys => set(&mut self.graphs, first, None),
            Graph::AddsKernel => {
                if let Some(kernels) = self.graphs.get_mut(&second) {
                    *kernels += 1;
                }
            }
            Graph::TakesNode => self.graphs.clear(),
            Graph::Instantiates => {
                if let Some(ready) = call.stored(0) {
                    let kernels = self.graphs.get(&second).copied();
                    set(&mut self.ready, ready, kernels);
                }
            }
            Graph::DestroysReady => set(&mut self.ready, first, None),
            Graph::Launches => return self.ready.get(&first).copied().unwrap_or_default(),
        }
        0
    }
}

/// Sets what is known of a graph; `None` if nothing is.
fn set(graphs: &mut HashMap<u64, u64>, graph: u64, kernels: Option<u64>) {
    match kernels {
        Some(kernels) if graphs.len() < MOST || graphs.contains_key(&graph) => {
            graphs.insert(graph, kernels);
        }
        _ => _ = graphs.remove(&graph),
    }
}
