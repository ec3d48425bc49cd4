//! Exported functions: registration by the compiler, launches, modules, graphs.

use std::cell::RefCell;
use std::sync::Arc;

use gputrace_simrocm_core::ffi::{In, Out, Text, Untyped};

use crate::device::{current, set_current};
use crate::error::{Error, Hip, give, outcome};
use crate::event::{self, Moment};
use crate::graph::{self, Graph, Node};
use crate::launch::{self, Arguments, Launch};
use crate::module::{self, Kernel};
use crate::stream::{self, Signalled};

/// `dim3`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Dim3 {
    x: u32,
    y: u32,
    z: u32,
}

impl From<Dim3> for [u32; 3] {
    fn from(dim: Dim3) -> Self {
        [dim.x, dim.y, dim.z]
    }
}

/// `__CudaFatBinaryWrapper`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Wrapper {
    magic: u32,
    version: u32,
    binary: Untyped,
    unused: u64,
}

/// The launch configuration that `<<<>>>` passes to the launching function.
#[derive(Clone, Copy)]
struct Configuration {
    grid: Dim3,
    block: Dim3,
    shared: usize,
    stream: u64,
}

thread_local! {
    static CONFIGURATIONS: RefCell<Vec<Configuration>> = const { RefCell::new(Vec::new()) };
}

/// `__hipRegisterFatBinary`. The handle is the wrapper's address.
pub(crate) extern "C" fn register_fat_binary(wrapper: In<Wrapper>) -> u64 {
    const MAGIC: u32 = 0x4849_5046;
    match wrapper.get() {
        Some(found) if found.magic == MAGIC => {
            module::register_binary(wrapper.address(), found.binary);
            wrapper.address()
        }
        _ => 0,
    }
}

/// `__hipUnregisterFatBinary`.
pub(crate) extern "C" fn unregister_fat_binary(wrapper: u64) {
    module::unregister_binary(wrapper);
}

/// `__hipRegisterFunction`.
pub(crate) extern "C" fn register_function(wrapper: u64, host: u64, _device: Text, name: Text) {
    if let Some(name) = name.get() {
        module::register_function(wrapper, host, name);
    }
}

/// `__hipPushCallConfiguration`.
pub(crate) extern "C" fn push_configuration(
    grid: Dim3,
    block: Dim3,
    shared: usize,
    stream: u64,
) -> Error {
    CONFIGURATIONS.with_borrow_mut(|all| {
        all.push(Configuration {
            grid,
            block,
            shared,
            stream,
        });
    });
    Error::SUCCESS
}

/// `__hipPopCallConfiguration`.
pub(crate) extern "C" fn pop_configuration(
    grid: Out<Dim3>,
    block: Out<Dim3>,
    shared: Out<usize>,
    stream: Out<u64>,
) -> Error {
    let found = CONFIGURATIONS.with_borrow_mut(Vec::pop);
    outcome(found.ok_or(Error::MISSING_CONFIGURATION).and_then(|found| {
        give(grid, found.grid)?;
        give(block, found.block)?;
        give(shared, found.shared)?;
        give(stream, found.stream)
    }))
}

/// Submits a launch, or captures it. `begin` and `end` are events to record, or 0.
fn dispatch(launch: Launch, stream: u64, begin: u64, end: u64) -> Hip {
    let stream = stream::find(stream)?;
    let mut work = stream.begin()?;
    if let Some(graph) = &mut work.capture {
        graph.nodes.push(Node::Kernel(launch));
        return Ok(());
    }
    let timed = begin != 0 || end != 0;
    let signalled = if timed {
        Signalled::Yes
    } else {
        Signalled::Profiled
    };
    let completion = launch::submit(&stream, &mut work, &launch, signalled)?;
    for (handle, moment) in [(begin, Moment::Begin), (end, Moment::End)] {
        if let (true, Some(completion)) = (handle != 0, &completion) {
            event::find(handle)?.record(Arc::clone(completion), stream.agent(), moment);
        }
    }
    Ok(())
}

fn bytes(shared: usize) -> Hip<u32> {
    u32::try_from(shared).map_err(|_| Error::INVALID_VALUE)
}

/// The kernel that is registered for a host address, on the device of a stream.
fn kernel(host: u64, stream: u64) -> Hip<Arc<Kernel>> {
    module::any_device()?;
    let index = if stream > 2 {
        stream::find(stream)?.device.index
    } else {
        current()?.index
    };
    module::kernel_of(host, index)
}

/// `hipLaunchKernel`.
pub(crate) extern "C" fn launch_kernel(
    host: u64,
    grid: Dim3,
    block: Dim3,
    arguments: In<Untyped>,
    shared: usize,
    stream: u64,
) -> Error {
    ext_launch_kernel(host, grid, block, arguments, shared, stream, 0, 0, 0)
}

/// `hipExtLaunchKernel`.
pub(crate) extern "C" fn ext_launch_kernel(
    host: u64,
    grid: Dim3,
    block: Dim3,
    arguments: In<Untyped>,
    shared: usize,
    stream: u64,
    begin: u64,
    end: u64,
    _flags: i32,
) -> Error {
    let launch = || {
        let arguments = Arguments::List(arguments);
        let kernel = kernel(host, stream)?;
        let launch = Launch::new(kernel, grid.into(), block.into(), bytes(shared)?, arguments)?;
        dispatch(launch, stream, begin, end)
    };
    outcome(launch())
}

/// `hipLaunchCooperativeKernel`.
pub(crate) extern "C" fn launch_cooperative_kernel(
    host: u64,
    grid: Dim3,
    block: Dim3,
    arguments: In<Untyped>,
    shared: u32,
    stream: u64,
) -> Error {
    let launch = || {
        let arguments = Arguments::List(arguments);
        let kernel = kernel(host, stream)?;
        let launch = Launch::new(kernel, grid.into(), block.into(), shared, arguments)?;
        cooperative(&launch, stream)
    };
    outcome(launch())
}

fn cooperative(launch: &Launch, stream: u64) -> Hip {
    let stream = stream::find(stream)?;
    let mut work = stream.begin()?;
    if work.capture.is_some() {
        return Err(Error::NOT_SUPPORTED);
    }
    launch::submit_cooperative(&stream, &mut work, launch)
}

/// The arguments of a module launch: a list, or a buffer described by `extra`.
fn module_arguments(list: In<Untyped>, extra: In<u64>) -> Hip<Arguments> {
    const BUFFER: u64 = 1;
    const SIZE: u64 = 2;
    if extra.get().is_none() {
        return Ok(Arguments::List(list));
    }
    let &[first, at, second, size] = extra.list(4).as_slice() else {
        return Err(Error::INVALID_VALUE);
    };
    if first != BUFFER || second != SIZE {
        return Err(Error::INVALID_VALUE);
    }
    let size: u64 = Untyped::at(size).get().ok_or(Error::INVALID_VALUE)?;
    let size = usize::try_from(size).map_err(|_| Error::INVALID_VALUE)?;
    Ok(Arguments::Packed(Untyped::at(at), size))
}

/// `hipModuleLaunchKernel`.
pub(crate) extern "C" fn module_launch_kernel(
    function: u64,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared: u32,
    stream: u64,
    list: In<Untyped>,
    extra: In<u64>,
) -> Error {
    let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
    let launch = || {
        let arguments = module_arguments(list, extra)?;
        let kernel = module::kernel_of_function(function)?;
        dispatch(
            Launch::new(kernel, grid, block, shared, arguments)?,
            stream,
            0,
            0,
        )
    };
    outcome(launch())
}

/// `hipModuleLaunchCooperativeKernel`.
pub(crate) extern "C" fn module_launch_cooperative_kernel(
    function: u64,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared: u32,
    stream: u64,
    list: In<Untyped>,
) -> Error {
    let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
    let launch = || {
        let kernel = module::kernel_of_function(function)?;
        cooperative(
            &Launch::new(kernel, grid, block, shared, Arguments::List(list))?,
            stream,
        )
    };
    outcome(launch())
}

/// `hipExtModuleLaunchKernel`, whose grid counts work-items.
pub(crate) extern "C" fn ext_module_launch_kernel(
    function: u64,
    items_x: u32,
    items_y: u32,
    items_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared: usize,
    stream: u64,
    list: In<Untyped>,
    extra: In<u64>,
    begin: u64,
    end: u64,
    _flags: u32,
) -> Error {
    let block = [block_x, block_y, block_z];
    let launch = || {
        let mut blocks = [items_x, items_y, items_z];
        for (items, threads) in blocks.iter_mut().zip(block) {
            *items = items
                .checked_div(threads)
                .ok_or(Error::INVALID_CONFIGURATION)?;
        }
        let arguments = module_arguments(list, extra)?;
        let kernel = module::kernel_of_function(function)?;
        let launch = Launch::new(kernel, blocks, block, bytes(shared)?, arguments)?;
        dispatch(launch, stream, begin, end)
    };
    outcome(launch())
}

/// `hipModuleLoad`.
pub(crate) extern "C" fn module_load(out: Out<u64>, path: Text) -> Error {
    let load = || {
        let path = path.get().ok_or(Error::INVALID_VALUE)?;
        let mut image = std::fs::read(path).map_err(|_| Error::FILE_NOT_FOUND)?;
        // Readers that look for the end of a short file find zeros.
        image.resize(image.len() + 4096, 0);
        give(out, module::add(module::keep(current()?, image.into())?))
    };
    outcome(load())
}

/// `hipModuleLoadData`.
pub(crate) extern "C" fn module_load_data(out: Out<u64>, image: Untyped) -> Error {
    let load = || give(out, module::add(module::load_image(current()?, image)?));
    outcome(load())
}

/// `hipModuleLoadDataEx`. Its options are only for compilers.
pub(crate) extern "C" fn module_load_data_ex(
    out: Out<u64>,
    image: Untyped,
    _count: u32,
    _options: Untyped,
    _values: Untyped,
) -> Error {
    module_load_data(out, image)
}

/// `hipModuleUnload`.
pub(crate) extern "C" fn module_unload(handle: u64) -> Error {
    let unload = || {
        stream::synchronize_device(current()?)?;
        module::unload(handle)
    };
    outcome(unload())
}

/// `hipModuleGetFunction`.
pub(crate) extern "C" fn module_get_function(out: Out<u64>, handle: u64, name: Text) -> Error {
    let find = || {
        let name = name.get().ok_or(Error::INVALID_VALUE)?;
        give(out, module::function(handle, &name)?)
    };
    outcome(find())
}

/// `hipStreamBeginCapture`.
pub(crate) extern "C" fn begin_capture(stream: u64, _mode: u32) -> Error {
    let begin = || {
        if stream <= 2 {
            return Err(Error(900));
        }
        let stream = stream::find(stream)?;
        let mut work = stream.lock();
        if work.capture.is_some() {
            return Err(Error::ILLEGAL_STATE);
        }
        work.capture = Some(Graph::default());
        Ok(())
    };
    outcome(begin())
}

/// `hipStreamEndCapture`.
pub(crate) extern "C" fn end_capture(stream: u64, out: Out<u64>) -> Error {
    let end = || {
        let captured = stream::find(stream)?.lock().capture.take();
        give(out, graph::add(captured.ok_or(Error(903))?))
    };
    outcome(end())
}

/// `hipStreamIsCapturing`.
pub(crate) extern "C" fn is_capturing(stream: u64, out: Out<u32>) -> Error {
    let is = || give(out, stream::find(stream)?.lock().capture.is_some().into());
    outcome(is())
}

/// `hipGraphCreate`.
pub(crate) extern "C" fn graph_create(out: Out<u64>, _flags: u32) -> Error {
    outcome(give(out, graph::add(Graph::default())))
}

/// `hipGraphDestroy`.
pub(crate) extern "C" fn graph_destroy(graph: u64) -> Error {
    outcome(graph::destroy(graph))
}

/// `hipGraphInstantiate`.
pub(crate) extern "C" fn graph_instantiate(
    out: Out<u64>,
    graph: u64,
    _error_node: Untyped,
    _log: Untyped,
    _log_bytes: usize,
) -> Error {
    graph_instantiate_with_flags(out, graph, 0)
}

/// `hipGraphInstantiateWithFlags`.
pub(crate) extern "C" fn graph_instantiate_with_flags(
    out: Out<u64>,
    graph: u64,
    _flags: u64,
) -> Error {
    outcome(graph::instantiate(graph).and_then(|executable| give(out, executable)))
}

/// `hipGraphLaunch`.
pub(crate) extern "C" fn graph_launch(executable: u64, stream: u64) -> Error {
    let launch = || {
        let executable = graph::executable(executable)?;
        let stream = stream::find(stream)?;
        let mut work = stream.begin()?;
        executable.launch(&stream, &mut work)
    };
    outcome(launch())
}

/// `hipGraphExecDestroy`.
pub(crate) extern "C" fn graph_exec_destroy(executable: u64) -> Error {
    outcome(graph::destroy_executable(executable))
}

/// `hipSetDevice`.
pub(crate) extern "C" fn set_device(index: i32) -> Error {
    let set = || set_current(usize::try_from(index).map_err(|_| Error::INVALID_DEVICE)?);
    outcome(set())
}
