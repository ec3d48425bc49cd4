//! The exported functions that copy memory and convert times.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use gputrace_simrocm_core::abi::{AgentHandle, CopyOperation, Signal};
use gputrace_simrocm_core::ffi::{In, Out, Untyped};
use gputrace_simrocm_core::status::Status;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::runtime;
use crate::sdma::{Engine, PROFILING, Piece};

/// The engine for a copy: a GPU's first engine for copies to it, its second for copies from it.
fn engine(destination: AgentHandle, source: AgentHandle) -> Option<&'static Engine> {
    let runtime = runtime::get().ok()?;
    let (index, which) = match (runtime::gpu_index(destination), runtime::gpu_index(source)) {
        (Some(to), _) => (to, 0),
        (None, Some(from)) => (from, 1),
        (None, None) => (0, 0),
    };
    let device = runtime.devices.get(index)?;
    let agent = u32::try_from(index).ok()?;
    device
        .engines
        .get(which)?
        .get_or_init(|| Engine::new(runtime, device, agent))
        .as_ref()
}

/// Submits a copy to an engine of one of the agents, given as (destination, source).
fn submit(
    pieces: impl IntoIterator<Item = Piece>,
    agents: [AgentHandle; 2],
    dependencies: &[Signal],
    completion: Signal,
) -> Status {
    let [destination, source] = agents;
    let Some(completed) = completion.get() else {
        return Status::INVALID_SIGNAL;
    };
    if dependencies
        .iter()
        .any(|signal| signal.0 != 0 && signal.get().is_none())
    {
        return Status::INVALID_SIGNAL;
    }
    let Some(engine) = engine(destination, source) else {
        return Status::OUT_OF_RESOURCES;
    };
    COPIED_BY.remember(
        completion,
        runtime::gpu_index(destination).or(runtime::gpu_index(source)),
    );
    engine.submit(pieces, dependencies, completed);
    Status::SUCCESS
}

/// `hsa_amd_memory_async_copy`.
pub(crate) extern "C" fn async_copy(
    destination: Untyped,
    destination_agent: AgentHandle,
    source: Untyped,
    source_agent: AgentHandle,
    bytes: u64,
    dependency_count: u32,
    dependencies: In<Signal>,
    completion: Signal,
) -> Status {
    let (source, destination) = (source.address(), destination.address());
    if source == 0 || destination == 0 {
        return Status::INVALID_ARGUMENT;
    }
    let piece = Piece {
        source,
        destination,
        bytes,
    };
    let dependencies = dependencies.list(dependency_count as usize);
    submit(
        [piece],
        [destination_agent, source_agent],
        &dependencies,
        completion,
    )
}

/// `hsa_amd_memory_async_copy_on_engine`. The engine is only a hint.
pub(crate) extern "C" fn async_copy_on_engine(
    destination: Untyped,
    destination_agent: AgentHandle,
    source: Untyped,
    source_agent: AgentHandle,
    bytes: u64,
    dependency_count: u32,
    dependencies: In<Signal>,
    completion: Signal,
    _engine: u32,
    _force: bool,
) -> Status {
    async_copy(
        destination,
        destination_agent,
        source,
        source_agent,
        bytes,
        dependency_count,
        dependencies,
        completion,
    )
}

/// `hsa_pitched_ptr_t`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct Pitched {
    base: u64,
    pitch: u64,
    slice: u64,
}

/// `hsa_dim3_t`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct Dim3 {
    x: u32,
    y: u32,
    z: u32,
}

impl Pitched {
    fn row(&self, offset: Dim3, y: u32, z: u32) -> u64 {
        let slice = if self.slice == 0 {
            0
        } else {
            self.slice * (u64::from(offset.z) + u64::from(z))
        };
        self.base + u64::from(offset.x) + self.pitch * (u64::from(offset.y) + u64::from(y)) + slice
    }
}

/// `hsa_amd_memory_async_copy_rect`: one copy per row.
pub(crate) extern "C" fn async_copy_rect(
    destination: In<Pitched>,
    destination_offset: In<Dim3>,
    source: In<Pitched>,
    source_offset: In<Dim3>,
    range: In<Dim3>,
    agent: AgentHandle,
    direction: u32,
    dependency_count: u32,
    dependencies: In<Signal>,
    completion: Signal,
) -> Status {
    let sides = (destination.get(), source.get(), range.get());
    let (Some(to), Some(from), Some(range)) = sides else {
        return Status::INVALID_ARGUMENT;
    };
    let (Some(to_offset), Some(from_offset)) = (destination_offset.get(), source_offset.get())
    else {
        return Status::INVALID_ARGUMENT;
    };
    let rows = (0..range.z)
        .flat_map(|z| (0..range.y).map(move |y| (y, z)))
        .map(|(y, z)| Piece {
            source: from.row(from_offset, y, z),
            destination: to.row(to_offset, y, z),
            bytes: range.x.into(),
        });
    const DEVICE_TO_HOST: u32 = 2;
    let agents = if direction == DEVICE_TO_HOST {
        [runtime::cpu(), agent]
    } else {
        [agent, runtime::cpu()]
    };
    let dependencies = dependencies.list(dependency_count as usize);
    submit(rows, agents, &dependencies, completion)
}

/// `hsa_amd_memory_async_batch_copy` (2026): linear copies that share a completion signal. Its
/// value is initially their number, and each copy decrements it.
pub(crate) extern "C" fn async_batch_copy(
    operations: In<CopyOperation>,
    count: u32,
    dependency_count: u32,
    dependencies: In<Signal>,
) -> Status {
    const LINEAR: u16 = 0;
    let operations = operations.list(count as usize);
    let completion = operations.first().map(|operation| operation.completion);
    let good = |operation: &CopyOperation| {
        operation.version == 1
            && operation.kind == LINEAR
            && operation.num_entries == 0
            && operation.source != 0
            && operation.destination != 0
            && Some(operation.completion) == completion
    };
    if operations.is_empty() || !operations.iter().all(good) {
        return Status::INVALID_ARGUMENT;
    }
    let dependencies = dependencies.list(dependency_count as usize);
    let one = |operation: &CopyOperation| {
        let piece = Piece {
            source: operation.source,
            destination: operation.destination,
            bytes: operation.size,
        };
        let agents = [operation.destination_agent, operation.source_agent];
        submit([piece], agents, &dependencies, operation.completion)
    };
    let failed = operations
        .iter()
        .map(one)
        .find(|status| *status != Status::SUCCESS);
    failed.unwrap_or(Status::SUCCESS)
}

/// `hsa_amd_memory_copy_engine_status`: both engines are always free.
pub(crate) extern "C" fn engine_status(
    _to: AgentHandle,
    _from: AgentHandle,
    out: Out<u32>,
) -> Status {
    out.put(3).into()
}

/// `hsa_memory_copy`: waits until the copy is done.
pub(crate) extern "C" fn memory_copy(
    destination: Untyped,
    source: Untyped,
    bytes: usize,
) -> Status {
    destination.copy_from(source, bytes);
    (bytes == 0 || destination.address() != 0 && source.address() != 0).into()
}

/// `hsa_amd_memory_fill`: fills `count` words of 32 bits.
pub(crate) extern "C" fn memory_fill(destination: Untyped, value: u32, count: usize) -> Status {
    destination.fill(&value.to_le_bytes(), count.saturating_mul(4));
    (destination.address() != 0).into()
}

/// The GPU that executed the copy of a signal; the real runtime keeps it in its object for the
/// signal.
struct CopiedBy(Mutex<BTreeMap<u64, usize>>);

static COPIED_BY: CopiedBy = CopiedBy(Mutex::new(BTreeMap::new()));

impl CopiedBy {
    fn remember(&self, signal: Signal, gpu: Option<usize>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(signal.0, gpu.unwrap_or(0));
    }

    fn of(&self, signal: Signal) -> usize {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&signal.0).copied().unwrap_or(0)
    }
}

/// `hsa_amd_profiling_dispatch_time_t` and `hsa_amd_profiling_async_copy_time_t`: ns of the system
/// clock.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Span {
    start: u64,
    end: u64,
}

/// `hsa_amd_profiling_async_copy_enable`.
pub(crate) extern "C" fn profile_copies(enable: bool) -> Status {
    PROFILING.store(enable, Ordering::Relaxed);
    Status::SUCCESS
}

fn span(gpu: usize, ticks: [u64; 2]) -> Result<Span, Status> {
    let runtime = runtime::get()?;
    let [start, end] = ticks.map(|tick| runtime.tick_to_ns(gpu, tick));
    Ok(Span { start, end })
}

/// `hsa_amd_profiling_get_dispatch_time`.
pub(crate) extern "C" fn dispatch_time(
    agent: AgentHandle,
    signal: Signal,
    out: Out<Span>,
) -> Status {
    let Some(gpu) = runtime::gpu_index(agent) else {
        return Status::INVALID_AGENT;
    };
    let Some(signal) = signal.get() else {
        return Status::INVALID_SIGNAL;
    };
    let ticks = [&signal.start_ts, &signal.end_ts].map(|stamp| stamp.load(Ordering::Relaxed));
    span(gpu, ticks).map_or_else(|status| status, |span| out.put(span).into())
}

/// `hsa_amd_profiling_get_async_copy_time`.
pub(crate) extern "C" fn copy_time(handle: Signal, out: Out<Span>) -> Status {
    let Some(signal) = handle.get() else {
        return Status::INVALID_SIGNAL;
    };
    let ticks =
        [&signal.sdma_start_ts, &signal.sdma_end_ts].map(|stamp| stamp.load(Ordering::Relaxed));
    span(COPIED_BY.of(handle), ticks).map_or_else(|status| status, |span| out.put(span).into())
}

/// `hsa_amd_profiling_convert_tick_to_system_domain`.
pub(crate) extern "C" fn convert_tick(agent: AgentHandle, tick: u64, out: Out<u64>) -> Status {
    match (runtime::gpu_index(agent), runtime::get()) {
        (Some(gpu), Ok(runtime)) => out.put(runtime.tick_to_ns(gpu, tick)).into(),
        _ => Status::INVALID_AGENT,
    }
}
