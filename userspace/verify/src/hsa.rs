//! The public part of HSA that the bundled program uses, looked up in the runtime's library when it
//! is loaded.
//!
//! Signatures and numbers are those of `hsa.h` and `hsa_ext_amd.h`, which have not changed since
//! ROCm 5. The exported functions are called, so that a recorder sees the calls as it sees any
//! program's.

use std::{
    ffi::{CStr, c_char, c_void},
    fmt,
    path::{Path, PathBuf},
};

use libloading::Library;
use thiserror::Error;

/// Names of the library, most specific first.
const NAMES: [&str; 3] = [
    "libhsa-runtime64.so.1",
    "/opt/rocm/lib/libhsa-runtime64.so.1",
    "/usr/local/lib/libhsa-runtime64.so.1",
];

/// `hsa_agent_t`.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Agent(pub(crate) u64);

/// `hsa_signal_t`; 0 means none.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Signal(pub(crate) u64);

/// `hsa_amd_memory_pool_t`.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pool(pub(crate) u64);

/// `hsa_queue_t`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Queue {
    kind: u32,
    features: u32,
    /// Address of the ring.
    pub(crate) base: *mut Packet,
    /// Signal to which the index of the last packet is stored.
    pub(crate) doorbell: Signal,
    /// Number of packets in the ring.
    pub(crate) size: u32,
    reserved: u32,
    /// Its id in the process.
    pub(crate) id: u64,
}

/// `hsa_kernel_dispatch_packet_t`, with header and setup as one word.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Packet {
    pub(crate) header_and_setup: u32,
    pub(crate) workgroup: [u16; 3],
    pub(crate) reserved0: u16,
    pub(crate) grid: [u32; 3],
    pub(crate) private: u32,
    pub(crate) group: u32,
    pub(crate) kernel_object: u64,
    pub(crate) kernarg: u64,
    pub(crate) reserved2: u64,
    pub(crate) signal: Signal,
}

/// `hsa_amd_profiling_dispatch_time_t`, and the same for copies; ns of the system domain.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Span {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

pub(crate) type OnQueueError = unsafe extern "C" fn(u32, *mut Queue, *mut c_void);
type OnAgent = unsafe extern "C" fn(Agent, *mut c_void) -> u32;
type OnPool = unsafe extern "C" fn(Pool, *mut c_void) -> u32;

/// `HSA_STATUS_SUCCESS`.
pub(crate) const SUCCESS: u32 = 0;
/// `HSA_SYSTEM_INFO_VERSION_MAJOR`.
pub(crate) const SYSTEM_VERSION_MAJOR: u32 = 0;
/// `HSA_SYSTEM_INFO_VERSION_MINOR`.
pub(crate) const SYSTEM_VERSION_MINOR: u32 = 1;
/// `HSA_AGENT_INFO_NAME`: 64 characters.
pub(crate) const AGENT_NAME: u32 = 0;
/// `HSA_AGENT_INFO_DEVICE`: see [`CPU`] and [`GPU`].
pub(crate) const AGENT_DEVICE: u32 = 17;
/// `HSA_AMD_AGENT_INFO_DRIVER_NODE_ID`.
pub(crate) const AGENT_NODE: u32 = 0xa004;
/// `HSA_DEVICE_TYPE_CPU`.
pub(crate) const CPU: u32 = 0;
/// `HSA_DEVICE_TYPE_GPU`.
pub(crate) const GPU: u32 = 1;
/// `HSA_AMD_MEMORY_POOL_INFO_SEGMENT`.
pub(crate) const POOL_SEGMENT: u32 = 0;
/// `HSA_AMD_MEMORY_POOL_INFO_GLOBAL_FLAGS`.
pub(crate) const POOL_FLAGS: u32 = 1;
/// `HSA_AMD_SEGMENT_GLOBAL`.
pub(crate) const SEGMENT_GLOBAL: u32 = 0;
/// `HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_KERNARG_INIT`.
pub(crate) const POOL_KERNARG: u32 = 1;
/// `HSA_QUEUE_TYPE_MULTI`.
pub(crate) const QUEUE_MULTI: u32 = 0;
/// `HSA_PROFILE_FULL`.
pub(crate) const PROFILE_FULL: u32 = 1;
/// `HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_OBJECT`.
pub(crate) const SYMBOL_KERNEL_OBJECT: u32 = 22;
/// `HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_PRIVATE_SEGMENT_SIZE`.
pub(crate) const SYMBOL_PRIVATE: u32 = 14;
/// `HSA_SIGNAL_CONDITION_LT`.
pub(crate) const CONDITION_LESS: u32 = 2;
/// `HSA_WAIT_STATE_BLOCKED`.
pub(crate) const WAIT_BLOCKED: u32 = 0;

/// Header of a kernel dispatch packet with the barrier bit, and with acquire and release fences of
/// system scope.
pub(crate) const KERNEL_IN_ORDER: u32 = 2 | 1 << 8 | 2 << 9 | 2 << 11;

/// Why the runtime cannot be used.
#[derive(Debug, Error)]
pub(crate) enum HsaError {
    /// The library was not found.
    #[error("the HSA runtime (libhsa-runtime64.so.1) cannot be loaded: {0}")]
    Library(String),
    /// The library lacks a function.
    #[error("the HSA runtime lacks a function: {0}")]
    Function(#[from] libloading::Error),
    /// A call failed.
    #[error("{call} failed: status {status:#x}")]
    Call {
        /// Name of the function.
        call: &'static str,
        /// `hsa_status_t`.
        status: u32,
    },
}

macro_rules! api {
    ($($name:ident($($type:ty),*) -> $result:ty;)*) => {
        /// The runtime's functions, named without `hsa_`.
        pub(crate) struct Api {
            $($name: unsafe extern "C" fn($($type),*) -> $result,)*
            // Never unloaded, because the runtime has threads.
            _library: std::mem::ManuallyDrop<Library>,
        }

        impl Api {
            fn from(library: Library) -> Result<Self, HsaError> {
                Ok(Self {
                    $($name: {
                        let symbol = concat!("hsa_", stringify!($name), "\0").as_bytes();
                        // SAFETY: the type is that of the function in the runtime's headers.
                        let found = unsafe { library.get::<unsafe extern "C" fn($($type),*) -> $result>(symbol) };
                        *found?
                    },)*
                    _library: std::mem::ManuallyDrop::new(library),
                })
            }
        }
    };
}

api! {
    init() -> u32;
    shut_down() -> u32;
    system_get_info(u32, *mut c_void) -> u32;
    iterate_agents(OnAgent, *mut c_void) -> u32;
    agent_get_info(Agent, u32, *mut c_void) -> u32;
    queue_create(Agent, u32, u32, Option<OnQueueError>, *mut c_void, u32, u32, *mut *mut Queue) -> u32;
    queue_destroy(*mut Queue) -> u32;
    queue_add_write_index_screlease(*const Queue, u64) -> u64;
    queue_load_read_index_scacquire(*const Queue) -> u64;
    signal_create(i64, u32, *const Agent, *mut Signal) -> u32;
    signal_destroy(Signal) -> u32;
    signal_store_screlease(Signal, i64) -> ();
    signal_silent_store_relaxed(Signal, i64) -> ();
    signal_wait_scacquire(Signal, u32, i64, u64, u32) -> i64;
    amd_agent_iterate_memory_pools(Agent, OnPool, *mut c_void) -> u32;
    amd_memory_pool_get_info(Pool, u32, *mut c_void) -> u32;
    amd_memory_pool_allocate(Pool, usize, u32, *mut *mut c_void) -> u32;
    amd_agents_allow_access(u32, *const Agent, *const u32, *const c_void) -> u32;
    code_object_reader_create_from_memory(*const c_void, usize, *mut u64) -> u32;
    executable_create_alt(u32, u32, *const c_char, *mut u64) -> u32;
    executable_load_agent_code_object(u64, Agent, u64, *const c_char, *mut u64) -> u32;
    executable_freeze(u64, *const c_char) -> u32;
    executable_get_symbol_by_name(u64, *const c_char, *const Agent, *mut u64) -> u32;
    executable_symbol_get_info(u64, u32, *mut c_void) -> u32;
    amd_profiling_set_profiler_enabled(*mut Queue, i32) -> u32;
    amd_profiling_async_copy_enable(bool) -> u32;
    amd_profiling_get_dispatch_time(Agent, Signal, *mut Span) -> u32;
    amd_profiling_get_async_copy_time(Signal, *mut Span) -> u32;
    amd_profiling_convert_tick_to_system_domain(Agent, u64, *mut u64) -> u32;
    amd_memory_async_copy(*mut c_void, Agent, *const c_void, Agent, usize, u32, *const Signal, Signal) -> u32;
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api").finish_non_exhaustive()
    }
}

/// Calls a function that returns a status.
macro_rules! call {
    ($api:expr, $name:ident($($argument:expr),*)) => {{
        // SAFETY: pointers are to live values of the types in the function's declaration.
        let status = unsafe { ($api.$name)($($argument),*) };
        checked(concat!("hsa_", stringify!($name)), status)
    }};
}

fn checked(call: &'static str, status: u32) -> Result<(), HsaError> {
    match status {
        SUCCESS => Ok(()),
        status => Err(HsaError::Call { call, status }),
    }
}

/// Address of a value that a function reads or fills in.
fn place<T>(value: &mut T) -> *mut c_void {
    std::ptr::from_mut(value).cast()
}

impl Api {
    /// Loads the runtime, from `path` if one is given, and starts it.
    pub(crate) fn load(path: Option<&Path>) -> Result<Self, HsaError> {
        let names: Vec<PathBuf> = match path {
            Some(path) => vec![path.to_owned()],
            None => NAMES.iter().map(PathBuf::from).collect(),
        };
        let mut said = Vec::new();
        for name in names {
            // SAFETY: the runtime's own initialisers run, as in every program that uses it.
            match unsafe { Library::new(&name) } {
                Ok(library) => {
                    let api = Self::from(library)?;
                    call!(api, init())?;
                    return Ok(api);
                }
                Err(error) => {
                    // libloading's error has the dynamic linker's message as its source.
                    let why = std::error::Error::source(&error)
                        .map_or_else(|| error.to_string(), ToString::to_string);
                    said.push(why);
                }
            }
        }
        Err(HsaError::Library(said.join("; ")))
    }

    pub(crate) fn shut_down(&self) -> Result<(), HsaError> {
        call!(self, shut_down())
    }

    /// Version of the HSA interface, major and minor.
    pub(crate) fn version(&self) -> Result<(u16, u16), HsaError> {
        let (mut major, mut minor) = (0_u16, 0_u16);
        call!(
            self,
            system_get_info(SYSTEM_VERSION_MAJOR, place(&mut major))
        )?;
        call!(
            self,
            system_get_info(SYSTEM_VERSION_MINOR, place(&mut minor))
        )?;
        Ok((major, minor))
    }

    /// All agents.
    pub(crate) fn agents(&self) -> Result<Vec<Agent>, HsaError> {
        unsafe extern "C" fn push(agent: Agent, list: *mut c_void) -> u32 {
            // SAFETY: the pointer is that of the vector below, which nothing else uses meanwhile.
            let list = unsafe { &mut *list.cast::<Vec<Agent>>() };
            list.push(agent);
            SUCCESS
        }
        let mut list: Vec<Agent> = Vec::new();
        call!(self, iterate_agents(push, place(&mut list)))?;
        Ok(list)
    }

    /// A numeric attribute of an agent.
    pub(crate) fn agent_number(&self, agent: Agent, what: u32) -> Result<u32, HsaError> {
        let mut value = 0_u32;
        call!(self, agent_get_info(agent, what, place(&mut value)))?;
        Ok(value)
    }

    /// An agent's name; for a GPU that of its instruction set, such as `gfx90a`.
    pub(crate) fn agent_name(&self, agent: Agent) -> Result<String, HsaError> {
        let mut name = [0_u8; 64];
        call!(self, agent_get_info(agent, AGENT_NAME, place(&mut name)))?;
        let text = name.split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(String::from_utf8_lossy(text).into_owned())
    }

    /// The memory pools of an agent in the global segment, with their flags.
    pub(crate) fn pools(&self, agent: Agent) -> Result<Vec<(Pool, u32)>, HsaError> {
        unsafe extern "C" fn push(pool: Pool, list: *mut c_void) -> u32 {
            // SAFETY: as in `agents`.
            let list = unsafe { &mut *list.cast::<Vec<Pool>>() };
            list.push(pool);
            SUCCESS
        }
        let mut list: Vec<Pool> = Vec::new();
        call!(
            self,
            amd_agent_iterate_memory_pools(agent, push, place(&mut list))
        )?;
        let mut pools = Vec::new();
        for pool in list {
            let (mut segment, mut flags) = (0_u32, 0_u32);
            call!(
                self,
                amd_memory_pool_get_info(pool, POOL_SEGMENT, place(&mut segment))
            )?;
            if segment == SEGMENT_GLOBAL {
                call!(
                    self,
                    amd_memory_pool_get_info(pool, POOL_FLAGS, place(&mut flags))
                )?;
                pools.push((pool, flags));
            }
        }
        Ok(pools)
    }

    /// Allocates memory of a pool, which lasts as long as the process; `agent` may use it, too.
    pub(crate) fn allocate(
        &self,
        pool: Pool,
        bytes: usize,
        agent: Option<Agent>,
    ) -> Result<*mut u8, HsaError> {
        let mut address = std::ptr::null_mut();
        call!(self, amd_memory_pool_allocate(pool, bytes, 0, &mut address))?;
        if let Some(agent) = agent {
            call!(
                self,
                amd_agents_allow_access(1, &agent, std::ptr::null(), address)
            )?;
        }
        Ok(address.cast())
    }

    /// Creates a queue. If the queue fails, `on_error` stores the status in `state`.
    pub(crate) fn queue(
        &self,
        agent: Agent,
        packets: u32,
        on_error: OnQueueError,
        state: *mut c_void,
    ) -> Result<*mut Queue, HsaError> {
        let mut queue = std::ptr::null_mut();
        call!(
            self,
            queue_create(
                agent,
                packets,
                QUEUE_MULTI,
                Some(on_error),
                state,
                u32::MAX,
                u32::MAX,
                &mut queue
            )
        )?;
        Ok(queue)
    }

    pub(crate) fn destroy_queue(&self, queue: *mut Queue) -> Result<(), HsaError> {
        call!(self, queue_destroy(queue))
    }

    /// Makes the GPU write begin and end into the completion signals of a queue's packets.
    pub(crate) fn stamp(&self, queue: *mut Queue) -> Result<(), HsaError> {
        call!(self, amd_profiling_set_profiler_enabled(queue, 1))
    }

    /// Enables stamps of copies.
    pub(crate) fn stamp_copies(&self) -> Result<(), HsaError> {
        call!(self, amd_profiling_async_copy_enable(true))
    }

    /// Reserves slots in a queue and returns the index of the first.
    pub(crate) fn reserve(&self, queue: *mut Queue, count: u64) -> u64 {
        // SAFETY: the queue was created by `queue` and has not been destroyed.
        unsafe { (self.queue_add_write_index_screlease)(queue, count) }
    }

    /// The read index of a queue.
    pub(crate) fn read_index(&self, queue: *mut Queue) -> u64 {
        // SAFETY: as in `reserve`.
        unsafe { (self.queue_load_read_index_scacquire)(queue) }
    }

    /// Announces the packets up to `index` to the GPU.
    pub(crate) fn ring(&self, doorbell: Signal, index: u64) {
        // SAFETY: the signal is that of a live queue.
        unsafe { (self.signal_store_screlease)(doorbell, index.cast_signed()) };
    }

    pub(crate) fn signal(&self) -> Result<Signal, HsaError> {
        let mut signal = Signal(0);
        call!(self, signal_create(1, 0, std::ptr::null(), &mut signal))?;
        Ok(signal)
    }

    pub(crate) fn destroy_signal(&self, signal: Signal) -> Result<(), HsaError> {
        call!(self, signal_destroy(signal))
    }

    /// Resets a completed signal for its next use.
    pub(crate) fn rearm(&self, signal: Signal) {
        // SAFETY: the signal is live, and nothing waits for it.
        unsafe { (self.signal_silent_store_relaxed)(signal, 1) };
    }

    /// Waits for about `limit_ns` at most until a signal has completed; returns whether it has.
    pub(crate) fn wait(&self, signal: Signal, limit_ns: u64) -> bool {
        // SAFETY: the signal is live.
        let value = unsafe {
            (self.signal_wait_scacquire)(signal, CONDITION_LESS, 1, limit_ns, WAIT_BLOCKED)
        };
        value < 1
    }

    /// Loads a code object for an agent. `bytes` must stay in memory.
    pub(crate) fn executable(&self, agent: Agent, bytes: &'static [u8]) -> Result<u64, HsaError> {
        let (mut reader, mut executable) = (0, 0);
        call!(
            self,
            code_object_reader_create_from_memory(bytes.as_ptr().cast(), bytes.len(), &mut reader)
        )?;
        call!(
            self,
            executable_create_alt(PROFILE_FULL, 0, std::ptr::null(), &mut executable)
        )?;
        call!(
            self,
            executable_load_agent_code_object(
                executable,
                agent,
                reader,
                std::ptr::null(),
                std::ptr::null_mut()
            )
        )?;
        call!(self, executable_freeze(executable, std::ptr::null()))?;
        Ok(executable)
    }

    /// `kernel_object`, and bytes of private memory, of a kernel.
    pub(crate) fn kernel(
        &self,
        executable: u64,
        agent: Agent,
        symbol: &CStr,
    ) -> Result<(u64, u32), HsaError> {
        let (mut found, mut object, mut private) = (0, 0_u64, 0_u32);
        call!(
            self,
            executable_get_symbol_by_name(executable, symbol.as_ptr(), &agent, &mut found)
        )?;
        call!(
            self,
            executable_symbol_get_info(found, SYMBOL_KERNEL_OBJECT, place(&mut object))
        )?;
        call!(
            self,
            executable_symbol_get_info(found, SYMBOL_PRIVATE, place(&mut private))
        )?;
        Ok((object, private))
    }

    /// When a dispatch ran according to the runtime; ns of its system domain.
    pub(crate) fn dispatch_time(&self, agent: Agent, signal: Signal) -> Result<Span, HsaError> {
        let mut span = Span::default();
        call!(
            self,
            amd_profiling_get_dispatch_time(agent, signal, &mut span)
        )?;
        Ok(span)
    }

    /// When a copy ran according to the runtime; ns of its system domain.
    pub(crate) fn copy_time(&self, signal: Signal) -> Result<Span, HsaError> {
        let mut span = Span::default();
        call!(self, amd_profiling_get_async_copy_time(signal, &mut span))?;
        Ok(span)
    }

    /// Converts a tick of an agent's clock to the system domain; ns.
    pub(crate) fn system_time(&self, agent: Agent, tick: u64) -> Result<u64, HsaError> {
        let mut ns = 0;
        call!(
            self,
            amd_profiling_convert_tick_to_system_domain(agent, tick, &mut ns)
        )?;
        Ok(ns)
    }

    /// Starts a copy; `signal` completes with it.
    pub(crate) fn copy(
        &self,
        to: (*mut u8, Agent),
        from: (*mut u8, Agent),
        bytes: usize,
        signal: Signal,
    ) -> Result<(), HsaError> {
        call!(
            self,
            amd_memory_async_copy(
                to.0.cast(),
                to.1,
                from.0.cast_const().cast(),
                from.1,
                bytes,
                0,
                std::ptr::null(),
                signal
            )
        )
    }
}
