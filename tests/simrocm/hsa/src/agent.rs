//! Attributes of agents, pools and regions.

use gputrace_simrocm_core::abi::AgentHandle;
use gputrace_simrocm_core::ffi::{In, Out, Text, Untyped};
use gputrace_simrocm_core::status::Status;
use gputrace_softgpu::clock::boottime_ns;
use gputrace_softgpu::config::AgentConfig;

use crate::memory::ALLOCATIONS;
use crate::{memory, runtime};

/// An attribute's value.
enum Value {
    Bool(bool),
    U8(u8),
    U16(u16),
    U32(u32),
    U64(u64),
    Words(&'static [u32]),
    /// A text in a field of this length.
    Text(String, usize),
}

impl Value {
    fn put(self, out: Untyped) -> Status {
        match self {
            Self::Bool(value) => out.put(u8::from(value)),
            Self::U8(value) => out.put(value),
            Self::U16(value) => out.put(value),
            Self::U32(value) => out.put(value),
            Self::U64(value) => out.put(value),
            Self::Words(words) => {
                let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
                out.put_bytes(&bytes)
            }
            Self::Text(text, length) => out.put_text(&text, length),
        }
        .into()
    }
}

/// `hsa_iterate_agents`: the CPU first, then the GPUs.
pub(crate) extern "C" fn iterate(
    callback: Option<extern "C" fn(AgentHandle, Untyped) -> Status>,
    data: Untyped,
) -> Status {
    let (Ok(runtime), Some(callback)) = (runtime::get(), callback) else {
        return Status::NOT_INITIALIZED;
    };
    let gpus = (0..runtime.devices.len()).map(runtime::gpu);
    std::iter::once(runtime::cpu())
        .chain(gpus)
        .map(|agent| callback(agent, data))
        .find(|status| *status != Status::SUCCESS)
        .unwrap_or(Status::SUCCESS)
}

/// `hsa_agent_get_info`: attributes of `hsa_agent_info_t` and `hsa_amd_agent_info_t`.
pub(crate) extern "C" fn info(agent: AgentHandle, attribute: u32, out: Untyped) -> Status {
    let Ok(runtime) = runtime::get() else {
        return Status::NOT_INITIALIZED;
    };
    let gpu = runtime::gpu_index(agent).and_then(|index| Some((index, runtime.agent(index)?)));
    if gpu.is_none() && agent != runtime::cpu() {
        return Status::INVALID_AGENT;
    }
    let node = gpu.map_or(0, |(index, _)| index as u32 + 1);
    let own = match gpu {
        Some((_, config)) => gpu_value(config, attribute, agent, node),
        None => cpu_value(attribute),
    };
    own.or_else(|| common_value(attribute, node))
        .map_or(Status::INVALID_ARGUMENT, |value| value.put(out))
}

/// Number of compute units of every GPU, the same as in the mock KFD.
const COMPUTE_UNITS: u32 = 60;

fn cpu_value(attribute: u32) -> Option<Value> {
    Some(match attribute {
        0 | 0xa009 => Value::Text("Software host".to_owned(), 64),
        1 => Value::Text("CPU".to_owned(), 64),
        // FEATURE, DEVICE, ISA: none, CPU, none.
        2 | 17 | 12..=14 => Value::U32(0),
        19 => Value::U64(0),
        0xa002 => {
            Value::U32(std::thread::available_parallelism().map_or(1, |count| count.get() as u32))
        }
        0xa011 => Value::Text("CPU-XX".to_owned(), 21),
        _ => return None,
    })
}

fn gpu_value(config: &AgentConfig, attribute: u32, agent: AgentHandle, node: u32) -> Option<Value> {
    let wave32 = config.gfx.len() > 6;
    let clusters = (COMPUTE_UNITS, 4, 1);
    Some(match attribute {
        0 => Value::Text(config.gfx.clone(), 64),
        1 => Value::Text("AMD".to_owned(), 64),
        2 | 17 => Value::U32(1),
        6 => Value::U32(if wave32 { 32 } else { 64 }),
        7 => Value::Words(if cfg!(target_endian = "little") {
            &[1024 << 16 | 1024, 1024]
        } else {
            &[0, 0]
        }),
        8 => Value::U32(1024),
        9 => Value::Words(&[u32::MAX; 3]),
        10 => Value::U32(u32::MAX),
        11 => Value::U32(32),
        12 => Value::U32(128),
        13 => Value::U32(*crate::queue::SIZES.start()),
        14 => Value::U32(*crate::queue::SIZES.end()),
        18 => Value::Words(&[16 << 10, 4 << 20, 0, 0]),
        // ISA: a handle, which equals the agent's.
        19 => Value::U64(agent.0),
        0xa000 => Value::U32(config.device_id),
        0xa002 | 0xa014 => Value::U32(clusters.0),
        0xa003 => Value::U32(1_700),
        0xa006 => Value::U32(node << 8),
        0xa007 => Value::U32(4096),
        0xa008 => Value::U32(1_000),
        0xa009 => Value::Text(config.name.clone(), 64),
        0xa00a => Value::U32(40),
        0xa00b => Value::U32(4),
        0xa00c => Value::U32(clusters.1),
        0xa00d => Value::U32(clusters.2),
        0xa010 => Value::Bool(true),
        0xa011 => Value::Text(format!("GPU-{node:016x}"), 21),
        0xa015 => Value::U64(config.vram_mib << 20),
        0xa016 => Value::U64(config.clock.frequency_hz),
        0xa10a => Value::U32(2),
        0xa10b => Value::U32(0),
        0xa113 => Value::U64(runtime::cpu().0),
        _ => return None,
    })
}

fn common_value(attribute: u32, node: u32) -> Option<Value> {
    Some(match attribute {
        // MACHINE_MODEL large, PROFILE base, rounding near.
        3 => Value::U32(1),
        4 => Value::U32(0),
        5 | 23 => Value::U32(2),
        15 => Value::U32(0),
        16 => Value::U32(node),
        20 => Value::Words(&[0; 32]),
        21 | 22 => Value::U16(1),
        24 => Value::U8(0),
        0xa001 => Value::U32(64),
        0xa004 => Value::U32(node),
        0xa005 | 0xa00f | 0xa012 => Value::U32(0),
        0xa013 => Value::Bool(false),
        0xa110 => Value::U32(0),
        0xa111 => Value::U32(1),
        0xa112 => Value::U32(node),
        0xa114 | 0xa115 => Value::Words(&[0, 0]),
        _ => return None,
    })
}

/// `hsa_system_get_info`.
pub(crate) extern "C" fn system_info(attribute: u32, out: Untyped) -> Status {
    let value = match attribute {
        0 | 1 => Value::U16(1),
        // TIMESTAMP: the system clock, and its frequency.
        2 => Value::U64(boottime_ns()),
        3 => Value::U64(1_000_000_000),
        4 => Value::U64(u64::MAX),
        5 => Value::U32(0),
        6 => Value::U32(1),
        7 => Value::Words(&[0; 32]),
        0x200 => {
            static BUILD: &std::ffi::CStr = c"1.15.0-simrocm";
            Value::U64(BUILD.as_ptr() as u64)
        }
        0x201..=0x206 => Value::Bool(false),
        0x207 => Value::U16(1),
        0x208 => Value::U16(7),
        _ => return Status::INVALID_ARGUMENT,
    };
    value.put(out)
}

/// `hsa_system_extension_supported`: there are no extensions.
pub(crate) extern "C" fn extension_supported(
    _extension: u16,
    _major: u16,
    _minor: u16,
    out: Out<bool>,
) -> Status {
    out.put(false).into()
}

/// `hsa_status_string`.
pub(crate) extern "C" fn status_string(status: Status, out: Out<Text>) -> Status {
    match status.text() {
        Some(text) => out.put(text.into()).into(),
        None => Status::INVALID_ARGUMENT,
    }
}

/// `hsa_agent_iterate_isas`: there is one, whose handle equals the agent's.
pub(crate) extern "C" fn iterate_isas(
    agent: AgentHandle,
    callback: Option<extern "C" fn(u64, Untyped) -> Status>,
    data: Untyped,
) -> Status {
    match (runtime::gpu_index(agent), callback) {
        (Some(_), Some(callback)) => callback(agent.0, data),
        _ => Status::INVALID_AGENT,
    }
}

/// `hsa_isa_get_info_alt`.
pub(crate) extern "C" fn isa_info(isa: u64, attribute: u32, out: Untyped) -> Status {
    let runtime = runtime::get().ok();
    let config = runtime.and_then(|runtime| runtime.agent(runtime::gpu_index(AgentHandle(isa))?));
    let Some(config) = config else {
        return Status::INVALID_ISA;
    };
    let name = format!("amdgcn-amd-amdhsa--{}", config.gfx);
    let value = match attribute {
        0 => Value::U32(name.len() as u32 + 1),
        1 => Value::Text(name.clone(), name.len() + 1),
        13 => Value::U32(1024),
        _ => return Status::INVALID_ARGUMENT,
    };
    value.put(out)
}

/// A memory pool, which is also a region; identified by its handle.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Pool {
    /// `None` for a host pool.
    gpu: Option<usize>,
    fine: bool,
    kernarg: bool,
}

/// The first handle of pools.
const POOLS: u64 = 0x6100;

impl Pool {
    const HOST: [Self; 3] = [
        Self {
            gpu: None,
            fine: true,
            kernarg: false,
        },
        Self {
            gpu: None,
            fine: true,
            kernarg: true,
        },
        Self {
            gpu: None,
            fine: false,
            kernarg: false,
        },
    ];

    fn handle(self) -> u64 {
        let host = || {
            Self::HOST
                .iter()
                .position(|pool| *pool == self)
                .unwrap_or(0)
        };
        POOLS + self.gpu.map_or_else(host, |index| 16 + index) as u64
    }

    fn of(handle: u64) -> Option<Self> {
        let number = usize::try_from(handle.checked_sub(POOLS)?).ok()?;
        if let Some(host) = Self::HOST.get(number) {
            return Some(*host);
        }
        let index = number.checked_sub(16)?;
        runtime::gpu_index(runtime::gpu(index)).map(Self::of_gpu)
    }

    const fn of_gpu(index: usize) -> Self {
        Self {
            gpu: Some(index),
            fine: false,
            kernarg: false,
        }
    }

    fn of_agent(agent: AgentHandle) -> Option<Vec<Self>> {
        if agent == runtime::cpu() {
            return Some(Self::HOST.to_vec());
        }
        runtime::gpu_index(agent).map(|index| vec![Self::of_gpu(index)])
    }

    /// `hsa_amd_memory_pool_global_flag_t`.
    const fn flags(self) -> u32 {
        (self.kernarg as u32) | if self.fine { 2 } else { 4 }
    }

    fn owner(self) -> AgentHandle {
        self.gpu.map_or(runtime::cpu(), runtime::gpu)
    }

    fn bytes(self) -> u64 {
        let gpu = || runtime::get().ok()?.agent(self.gpu?);
        gpu().map_or(16 << 30, |config| config.vram_mib << 20)
    }
}

/// `hsa_amd_agent_iterate_memory_pools` and `hsa_agent_iterate_regions`.
pub(crate) extern "C" fn iterate_pools(
    agent: AgentHandle,
    callback: Option<extern "C" fn(u64, Untyped) -> Status>,
    data: Untyped,
) -> Status {
    let (Some(pools), Some(callback)) = (Pool::of_agent(agent), callback) else {
        return Status::INVALID_AGENT;
    };
    pools
        .into_iter()
        .map(|pool| callback(pool.handle(), data))
        .find(|status| *status != Status::SUCCESS)
        .unwrap_or(Status::SUCCESS)
}

/// `hsa_amd_memory_pool_get_info` and `hsa_region_get_info`; their common attributes have the same
/// numbers.
pub(crate) extern "C" fn pool_info(pool: u64, attribute: u32, out: Untyped) -> Status {
    let Some(pool) = Pool::of(pool) else {
        return Status::INVALID_REGION;
    };
    let value = match attribute {
        // SEGMENT: global.
        0 => Value::U32(0),
        1 => Value::U32(pool.flags()),
        2 | 4 | 16 => Value::U64(pool.bytes()),
        5 => Value::Bool(true),
        6 | 7 => Value::U64(memory::PAGE),
        8 => Value::U32(64 << 10),
        15 => Value::Bool(pool.gpu.is_none()),
        // LOCATION: CPU 0, GPU 1.
        17 => Value::U32(u32::from(pool.gpu.is_some())),
        18 => Value::U64(2 << 20),
        _ => return Status::INVALID_ARGUMENT,
    };
    value.put(out)
}

/// `hsa_amd_agent_memory_pool_get_info`: every agent can access every pool, if allowed.
pub(crate) extern "C" fn agent_pool_info(
    agent: AgentHandle,
    pool: u64,
    attribute: u32,
    out: Untyped,
) -> Status {
    let Some(pool) = Pool::of(pool) else {
        return Status::INVALID_REGION;
    };
    let own = pool.owner() == agent;
    match attribute {
        // ACCESS: by default, or if allowed.
        0 => Value::U32(if own || pool.gpu.is_none() { 1 } else { 2 }),
        // NUM_LINK_HOPS.
        1 => Value::U32(u32::from(!own)),
        _ => return Status::INVALID_ARGUMENT,
    }
    .put(out)
}

/// `hsa_amd_memory_pool_allocate`.
pub(crate) extern "C" fn pool_allocate(
    pool: u64,
    bytes: u64,
    _flags: u32,
    out: Out<u64>,
) -> Status {
    region_allocate(pool, bytes, out)
}

/// `hsa_memory_allocate`.
pub(crate) extern "C" fn region_allocate(pool: u64, bytes: u64, out: Out<u64>) -> Status {
    let Some(pool) = Pool::of(pool) else {
        return Status::INVALID_REGION;
    };
    if bytes == 0 || bytes > pool.bytes() {
        return Status::INVALID_ALLOCATION;
    }
    match ALLOCATIONS.allocate(bytes, pool.owner(), pool.flags()) {
        Some(address) => out.put(address).into(),
        None => Status::OUT_OF_RESOURCES,
    }
}

/// `hsa_amd_memory_pool_free` and `hsa_memory_free`.
pub(crate) extern "C" fn free(memory: Untyped) -> Status {
    match memory.address() {
        0 => Status::SUCCESS,
        address if ALLOCATIONS.free(address) => Status::SUCCESS,
        _ => Status::INVALID_ALLOCATION,
    }
}

/// `hsa_amd_agents_allow_access`: every agent can access all memory of the process.
pub(crate) extern "C" fn allow_access(
    count: u32,
    agents: In<AgentHandle>,
    _flags: In<u32>,
    memory: Untyped,
) -> Status {
    let agents = agents.list(count as usize);
    let known =
        |agent: &AgentHandle| *agent == runtime::cpu() || runtime::gpu_index(*agent).is_some();
    (memory.address() != 0 && !agents.is_empty() && agents.iter().all(known)).into()
}

/// `hsa_amd_memory_lock_to_pool`: the GPU's address equals the host's.
pub(crate) extern "C" fn lock_to_pool(
    memory: Untyped,
    bytes: u64,
    _agents: In<AgentHandle>,
    _count: i32,
    pool: u64,
    _flags: u32,
    out: Out<u64>,
) -> Status {
    let Some(pool) = Pool::of(pool) else {
        return Status::INVALID_REGION;
    };
    if memory.address() == 0 || bytes == 0 {
        return Status::INVALID_ARGUMENT;
    }
    ALLOCATIONS.pin(memory.address(), bytes, pool.owner());
    out.put(memory.address()).into()
}

/// `hsa_amd_memory_lock`.
pub(crate) extern "C" fn lock(
    memory: Untyped,
    bytes: u64,
    agents: In<AgentHandle>,
    count: i32,
    out: Out<u64>,
) -> Status {
    lock_to_pool(memory, bytes, agents, count, POOLS, 0, out)
}

/// `hsa_amd_memory_unlock`.
pub(crate) extern "C" fn unlock(memory: Untyped) -> Status {
    ALLOCATIONS.unpin(memory.address()).into()
}

/// `hsa_memory_register`, `hsa_memory_deregister`: nothing to do.
pub(crate) extern "C" fn register(memory: Untyped, bytes: u64) -> Status {
    (memory.address() != 0 && bytes != 0).into()
}

/// `hsa_amd_pointer_info_t`, interface 1.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct PointerInfo {
    size: u32,
    kind: u32,
    agent_base: u64,
    host_base: u64,
    bytes: u64,
    user_data: u64,
    owner: AgentHandle,
    global_flags: u32,
}

/// `hsa_amd_pointer_info`, without the list of agents with access.
pub(crate) extern "C" fn pointer_info(
    memory: Untyped,
    out: Out<PointerInfo>,
    _allocate: Untyped,
    count: Out<u32>,
    _accessible: Untyped,
) -> Status {
    let Some(mut info) = out
        .get()
        .filter(|info| info.size as usize >= size_of::<PointerInfo>())
    else {
        return Status::INVALID_ARGUMENT;
    };
    info.size = size_of::<PointerInfo>() as u32;
    info.kind = 0;
    if let Some(found) = ALLOCATIONS.at(memory.address()) {
        info = PointerInfo {
            size: info.size,
            kind: match found.kind {
                memory::Kind::Hsa => 1,
                memory::Kind::Locked => 2,
            },
            agent_base: found.address,
            host_base: found.address,
            bytes: found.bytes,
            user_data: found.user_data,
            owner: found.owner,
            global_flags: found.global_flags,
        };
    }
    count.put(0);
    out.put(info).into()
}

/// `hsa_amd_pointer_info_set_userdata`.
pub(crate) extern "C" fn set_user_data(memory: Untyped, data: u64) -> Status {
    ALLOCATIONS.set_user_data(memory.address(), data).into()
}
