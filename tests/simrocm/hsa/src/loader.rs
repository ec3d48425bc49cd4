//! Code objects: readers, executables, and the list of loaded ones that debuggers and tracers read.

use std::collections::HashMap;
use std::ffi::{CString, c_char};
use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gputrace_simrocm_core::abi::AgentHandle;
use gputrace_simrocm_core::code_object::{CodeObject, Kernel};
use gputrace_simrocm_core::ffi::{In, Out, Text, Untyped};
use gputrace_simrocm_core::status::Status;

use crate::{events, memory, runtime};

/// glibc's `struct r_debug`, which ROCr uses for GPU code.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct RDebug {
    version: AtomicI32,
    map: AtomicPtr<LinkMap>,
    brk: AtomicU64,
    state: AtomicI32,
    ldbase: AtomicU64,
}

/// glibc's `struct link_map`.
#[derive(Debug, Default)]
#[repr(C)]
struct LinkMap {
    /// Load address minus the address in the file.
    addr: AtomicU64,
    /// URI of the code object.
    name: AtomicPtr<c_char>,
    ld: AtomicU64,
    next: AtomicPtr<LinkMap>,
    previous: AtomicPtr<LinkMap>,
}

/// The list of loaded code objects, exported under ROCr's name.
#[unsafe(no_mangle)]
pub(crate) static _amdgpu_r_debug: RDebug = RDebug {
    version: AtomicI32::new(0),
    map: AtomicPtr::new(std::ptr::null_mut()),
    brk: AtomicU64::new(0),
    state: AtomicI32::new(0),
    ldbase: AtomicU64::new(0),
};

/// Version of the interface in ROCr 6.x (`HSA_AMD_R_DEBUG` is incremented with every addition).
const R_DEBUG_VERSION: i32 = 10;

std::arch::global_asm!(
    ".pushsection .text._loader_debug_state,\"ax\",@progbits",
    ".globl _loader_debug_state",
    ".hidden _loader_debug_state",
    ".type _loader_debug_state,@function",
    "_loader_debug_state:",
    "endbr64",
    "retq",
    ".size _loader_debug_state, .-_loader_debug_state",
    ".popsection",
    options(att_syntax),
);

unsafe extern "C" {
    /// Called before and after each change of the list; debuggers put a breakpoint here.
    fn _loader_debug_state();
}

const CONSISTENT: i32 = 0;
const ADD: i32 = 1;
const DELETE: i32 = 2;

/// Sets the constant fields of the list.
pub(crate) fn announce() {
    let list = &_amdgpu_r_debug;
    list.version.store(R_DEBUG_VERSION, Ordering::Relaxed);
    let function: unsafe extern "C" fn() = _loader_debug_state;
    list.brk.store(function as usize as u64, Ordering::Release);
}

fn change(state: i32) {
    _amdgpu_r_debug.state.store(state, Ordering::Release);
    // SAFETY: it only returns.
    unsafe { _loader_debug_state() };
}

/// Adds a code object to the list; returns the address of its entry.
fn list_add(delta: u64, uri: &str) -> u64 {
    change(ADD);
    let name = CString::new(uri).unwrap_or_default().into_raw();
    let list = &_amdgpu_r_debug;
    let mut last = std::ptr::null_mut();
    let mut next = list.map.load(Ordering::Acquire);
    while let Some(entry) = entry(next) {
        last = next;
        next = entry.next.load(Ordering::Acquire);
    }
    let new = Box::into_raw(Box::new(LinkMap {
        addr: delta.into(),
        name: AtomicPtr::new(name),
        previous: AtomicPtr::new(last),
        ..LinkMap::default()
    }));
    let link = entry(last).map_or(&list.map, |entry| &entry.next);
    link.store(new, Ordering::Release);
    change(CONSISTENT);
    new as u64
}

/// Removes an entry from the list. Its memory stays, zeroed, because another thread may be reading
/// it.
fn list_remove(address: u64) {
    let Some(gone) = entry(address as *mut LinkMap) else {
        return;
    };
    change(DELETE);
    let next = gone.next.load(Ordering::Acquire);
    let previous = gone.previous.load(Ordering::Acquire);
    let link = entry(previous).map_or(&_amdgpu_r_debug.map, |entry| &entry.next);
    link.store(next, Ordering::Release);
    if let Some(next) = entry(next) {
        next.previous.store(previous, Ordering::Release);
    }
    gone.addr.store(0, Ordering::Relaxed);
    gone.name.store(std::ptr::null_mut(), Ordering::Relaxed);
    gone.next.store(std::ptr::null_mut(), Ordering::Relaxed);
    gone.previous.store(std::ptr::null_mut(), Ordering::Relaxed);
    change(CONSISTENT);
}

fn entry(pointer: *mut LinkMap) -> Option<&'static LinkMap> {
    // SAFETY: null, or created by `list_add` and never freed.
    unsafe { pointer.as_ref() }
}

/// The origin of a code object.
#[derive(Clone, Debug)]
struct Source {
    bytes: Arc<[u8]>,
    uri: String,
}

/// A loaded code object.
struct Loaded {
    agent: AgentHandle,
    delta: u64,
    uri: String,
    memory: u64,
    memory_bytes: u64,
    code_object: CodeObject,
    /// Address of its list entry, once frozen.
    listed: u64,
}

#[derive(Default)]
struct Executable {
    frozen: bool,
    loaded: Vec<Loaded>,
    symbols: Vec<u64>,
}

/// A symbol that was looked up.
#[derive(Clone)]
struct Symbol {
    agent: AgentHandle,
    name: String,
    address: u64,
    bytes: u64,
    kernel: Option<Kernel>,
}

#[derive(Default)]
struct Objects {
    readers: HashMap<u64, Source>,
    executables: HashMap<u64, Executable>,
    symbols: HashMap<u64, Symbol>,
}

static OBJECTS: Mutex<Option<Objects>> = Mutex::new(None);

struct Guard(MutexGuard<'static, Option<Objects>>);

impl Guard {
    fn get(&mut self) -> &mut Objects {
        self.0.get_or_insert_default()
    }
}

fn objects() -> Guard {
    Guard(OBJECTS.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A new handle; it looks like an address, as real handles do.
fn handle() -> u64 {
    0x5a00_0000 + events::next_number() * 16
}

fn add_reader(source: Source, out: Out<u64>) -> Status {
    let reader = handle();
    objects().get().readers.insert(reader, source);
    out.put(reader).into()
}

/// `hsa_code_object_reader_create_from_memory`. The bytes stay the program's, so the URI refers to
/// them.
pub(crate) extern "C" fn reader_from_memory(code: Untyped, bytes: usize, out: Out<u64>) -> Status {
    if code.address() == 0 || bytes == 0 {
        return Status::INVALID_ARGUMENT;
    }
    let source = Source {
        bytes: code.bytes(bytes).into(),
        uri: uri_of_memory(code.address(), bytes),
    };
    add_reader(source, out)
}

/// `hsa_code_object_reader_create_from_file`.
pub(crate) extern "C" fn reader_from_file(descriptor: i32, out: Out<u64>) -> Status {
    if descriptor < 0 {
        return Status::INVALID_FILE;
    }
    // SAFETY: the program's descriptor, which the program keeps: it is not closed here.
    let file = ManuallyDrop::new(unsafe { File::from_raw_fd(descriptor) });
    let read = || -> std::io::Result<Source> {
        let length = usize::try_from(file.metadata()?.len()).map_err(std::io::Error::other)?;
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, 0)?;
        let path = std::fs::read_link(format!("/proc/self/fd/{descriptor}"))?;
        Ok(Source {
            bytes: bytes.into(),
            uri: format!("file://{}", escape(&path.to_string_lossy())),
        })
    };
    read().map_or(Status::INVALID_FILE, |source| add_reader(source, out))
}

/// The URI of code in memory; if a file is mapped there, that of the file.
fn uri_of_memory(address: u64, bytes: usize) -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let file = maps.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let number = |digits| u64::from_str_radix(digits, 16).ok();
        let (start, end) = (number(start)?, number(end)?);
        let offset = number(fields.nth(1)?)?;
        let path = line.get(line.find('/')?..)?;
        (start..end)
            .contains(&address)
            .then(|| (path.to_owned(), offset + (address - start)))
    });
    match file {
        Some((path, offset)) => format!("file://{}#offset={offset}&size={bytes}", escape(&path)),
        None => format!(
            "memory://{}#offset={address:#x}&size={bytes}",
            std::process::id()
        ),
    }
}

/// Percent-encodes characters that are not allowed in the path of a URI.
fn escape(path: &str) -> String {
    use std::fmt::Write;
    path.bytes().fold(String::new(), |mut text, byte| {
        if byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte) {
            text.push(byte.into());
        } else {
            // Writing to a String cannot fail.
            let _ = write!(text, "%{byte:02X}");
        }
        text
    })
}

/// `hsa_code_object_reader_destroy`.
pub(crate) extern "C" fn reader_destroy(reader: u64) -> Status {
    match objects().get().readers.remove(&reader) {
        Some(_) => Status::SUCCESS,
        None => Status::INVALID_CODE_OBJECT_READER,
    }
}

/// `hsa_executable_create_alt`.
pub(crate) extern "C" fn executable_create_alt(
    _profile: u32,
    _rounding: u32,
    _options: Text,
    out: Out<u64>,
) -> Status {
    let executable = handle();
    objects()
        .get()
        .executables
        .insert(executable, Executable::default());
    out.put(executable).into()
}

/// `hsa_executable_load_agent_code_object`.
pub(crate) extern "C" fn load_agent_code_object(
    executable: u64,
    agent: AgentHandle,
    reader: u64,
    _options: Text,
    out: Out<u64>,
) -> Status {
    if runtime::gpu_index(agent).is_none() {
        return Status::INVALID_AGENT;
    }
    let mut guard = objects();
    let objects = guard.get();
    let Some(source) = objects.readers.get(&reader).cloned() else {
        return Status::INVALID_CODE_OBJECT_READER;
    };
    let Some(target) = objects.executables.get_mut(&executable) else {
        return Status::INVALID_EXECUTABLE;
    };
    if target.frozen {
        return Status::FROZEN_EXECUTABLE;
    }
    match load(agent, &source) {
        Ok(loaded) => {
            out.put(loaded.memory);
            target.loaded.push(loaded);
            Status::SUCCESS
        }
        Err(status) => status,
    }
}

fn load(agent: AgentHandle, source: &Source) -> Result<Loaded, Status> {
    /// More than any code object needs; a broken header must not exhaust memory.
    const MOST_BYTES: u64 = 4 << 30;
    let invalid = Status::INVALID_CODE_OBJECT;
    let code_object = CodeObject::read(&source.bytes).map_err(|_| invalid)?;
    let (low, memory_bytes) = code_object.span();
    if memory_bytes == 0 || memory_bytes > MOST_BYTES {
        return Err(invalid);
    }
    let memory = memory::map(memory_bytes).ok_or(Status::OUT_OF_RESOURCES)?;
    for segment in &code_object.segments {
        let part = || {
            let from = usize::try_from(segment.file_offset).ok()?;
            let length = usize::try_from(segment.file_bytes.min(segment.memory_bytes)).ok()?;
            source.bytes.get(from..from.checked_add(length)?)
        };
        let at = usize::try_from(segment.address - low).map_err(|_| invalid)?;
        memory.add(at).put_bytes(part().ok_or(invalid)?);
    }
    Ok(Loaded {
        agent,
        delta: memory.address().wrapping_sub(low),
        uri: source.uri.clone(),
        memory: memory.address(),
        memory_bytes,
        code_object,
        listed: 0,
    })
}

impl Loaded {
    /// Names and addresses of kernel descriptors.
    fn kernels(&self) -> impl Iterator<Item = (u64, &str)> {
        let symbols = self.code_object.symbols.iter();
        symbols.filter_map(|symbol| {
            let name = symbol.name.strip_suffix(".kd")?;
            Some((symbol.address.wrapping_add(self.delta), name))
        })
    }
}

/// `hsa_executable_freeze`: from here on, the code objects are in the list.
pub(crate) extern "C" fn freeze(executable: u64, _options: Text) -> Status {
    let mut guard = objects();
    let Some(found) = guard.get().executables.get_mut(&executable) else {
        return Status::INVALID_EXECUTABLE;
    };
    if found.frozen {
        return Status::FROZEN_EXECUTABLE;
    }
    found.frozen = true;
    for loaded in &mut found.loaded {
        runtime::name_kernels(|names| {
            names.extend(
                loaded
                    .kernels()
                    .map(|(address, name)| (address, name.into())),
            );
        });
        loaded.listed = list_add(loaded.delta, &loaded.uri);
    }
    Status::SUCCESS
}

/// `hsa_executable_destroy`.
pub(crate) extern "C" fn executable_destroy(executable: u64) -> Status {
    let mut guard = objects();
    let Some(gone) = guard.get().executables.remove(&executable) else {
        return Status::INVALID_EXECUTABLE;
    };
    for symbol in gone.symbols {
        guard.get().symbols.remove(&symbol);
    }
    for loaded in gone.loaded {
        list_remove(loaded.listed);
        runtime::name_kernels(|names| {
            for (address, _) in loaded.kernels() {
                names.remove(&address);
            }
        });
        memory::unmap(loaded.memory, loaded.memory_bytes);
    }
    Status::SUCCESS
}

/// Finds a symbol of an executable; `agent` may be `None` for any agent.
fn find(executable: u64, name: &str, agent: Option<AgentHandle>) -> Result<u64, Status> {
    let mut guard = objects();
    let objects = guard.get();
    let found = objects
        .executables
        .get_mut(&executable)
        .ok_or(Status::INVALID_EXECUTABLE)?;
    let symbol = found.loaded.iter().find_map(|loaded| {
        let wanted = agent.is_none_or(|agent| agent == loaded.agent);
        let mut symbols = loaded.code_object.symbols.iter().filter(|_| wanted);
        let symbol = symbols.find(|symbol| symbol.name == name)?;
        let mut kernels = loaded.code_object.kernels.iter();
        Some(Symbol {
            agent: loaded.agent,
            name: name.to_owned(),
            address: symbol.address.wrapping_add(loaded.delta),
            bytes: symbol.bytes,
            kernel: kernels.find(|kernel| kernel.symbol == name).cloned(),
        })
    });
    let symbol = symbol.ok_or(Status::INVALID_SYMBOL_NAME)?;
    let new = handle();
    found.symbols.push(new);
    objects.symbols.insert(new, symbol);
    Ok(new)
}

/// `hsa_executable_get_symbol_by_name`.
pub(crate) extern "C" fn symbol_by_name(
    executable: u64,
    name: Text,
    agent: In<AgentHandle>,
    out: Out<u64>,
) -> Status {
    let Some(name) = name.get() else {
        return Status::INVALID_ARGUMENT;
    };
    match find(executable, &name, agent.get()) {
        Ok(symbol) => out.put(symbol).into(),
        Err(status) => status,
    }
}

/// Calls back for each symbol, as `hsa_executable_iterate_agent_symbols` and
/// `hsa_executable_iterate_symbols` do.
fn iterate(
    executable: u64,
    agent: Option<AgentHandle>,
    mut each: impl FnMut(u64) -> Status,
) -> Status {
    let names: Vec<String> = {
        let mut guard = objects();
        let Some(found) = guard.get().executables.get(&executable) else {
            return Status::INVALID_EXECUTABLE;
        };
        let of_agent = found
            .loaded
            .iter()
            .filter(|loaded| agent.is_none_or(|agent| agent == loaded.agent));
        of_agent
            .flat_map(|loaded| loaded.code_object.kernels.iter())
            .map(|kernel| kernel.symbol.clone())
            .collect()
    };
    for name in names {
        let status = find(executable, &name, agent).map_or_else(|status| status, &mut each);
        if status != Status::SUCCESS {
            return status;
        }
    }
    Status::SUCCESS
}

/// `hsa_executable_iterate_symbols`.
pub(crate) extern "C" fn iterate_symbols(
    executable: u64,
    callback: Option<extern "C" fn(u64, u64, Untyped) -> Status>,
    data: Untyped,
) -> Status {
    let Some(callback) = callback else {
        return Status::INVALID_ARGUMENT;
    };
    iterate(executable, None, |symbol| {
        callback(executable, symbol, data)
    })
}

/// `hsa_executable_iterate_agent_symbols`.
pub(crate) extern "C" fn iterate_agent_symbols(
    executable: u64,
    agent: AgentHandle,
    callback: Option<extern "C" fn(u64, AgentHandle, u64, Untyped) -> Status>,
    data: Untyped,
) -> Status {
    let Some(callback) = callback else {
        return Status::INVALID_ARGUMENT;
    };
    iterate(executable, Some(agent), |symbol| {
        callback(executable, agent, symbol, data)
    })
}

/// `hsa_executable_symbol_get_info`; attributes of `hsa_executable_symbol_info_t`.
pub(crate) extern "C" fn symbol_info(symbol: u64, attribute: u32, out: Untyped) -> Status {
    let Some(symbol) = objects().get().symbols.get(&symbol).cloned() else {
        return Status::INVALID_EXECUTABLE_SYMBOL;
    };
    let kernel = symbol.kernel.as_ref();
    let word = |of: fn(&Kernel) -> u32| kernel.map(|kernel| out.put(of(kernel)));
    let length = u32::try_from(symbol.name.len()).unwrap_or(u32::MAX);
    let put = match attribute {
        // TYPE: kernel or variable.
        0 => Some(out.put(u32::from(kernel.is_some()))),
        1 => Some(out.put(length)),
        // NAME, without a NUL.
        2 => Some(out.put_bytes(symbol.name.as_bytes())),
        // LINKAGE: program.
        5 => Some(out.put(1_u32)),
        // VARIABLE_SIZE.
        9 => Some(out.put(u32::try_from(symbol.bytes).unwrap_or(u32::MAX))),
        11 => word(|kernel| kernel.kernarg_bytes),
        12 => word(|kernel| kernel.kernarg_align),
        13 => word(|kernel| kernel.group_bytes),
        14 => word(|kernel| kernel.private_bytes),
        // DYNAMIC_CALLSTACK, IS_DEFINITION.
        15 => kernel.map(|_| out.put(0_u8)),
        17 => Some(out.put(1_u8)),
        20 => Some(out.put(symbol.agent)),
        // VARIABLE_ADDRESS, KERNEL_OBJECT.
        21 => Some(out.put(symbol.address)),
        22 => kernel.map(|_| out.put(symbol.address)),
        _ => None,
    };
    put.unwrap_or(false).into()
}
