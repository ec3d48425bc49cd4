//! Exported functions: devices, streams, events.

use std::sync::Arc;

use gputrace_simrocm_core::abi::Signal;
use gputrace_simrocm_core::ffi::{Out, Text, Untyped};

use crate::device::{Device, current, device, system};
use crate::error::{Error, Hip, check, give, outcome};
use crate::event::{self, Moment};
use crate::stream::{self, Stream};
use crate::{hsa, module, signals};

fn by_index(index: i32) -> Hip<&'static Device> {
    device(usize::try_from(index).map_err(|_| Error::INVALID_DEVICE)?)
}

/// `hipInit`.
pub(crate) extern "C" fn init(flags: u32) -> Error {
    outcome(if flags == 0 {
        module::any_device()
    } else {
        Err(Error::INVALID_VALUE)
    })
}

/// `hipDriverGetVersion`, `hipRuntimeGetVersion`: 6.4.43484.
pub(crate) extern "C" fn version(out: Out<i32>) -> Error {
    outcome(give(out, 60_443_484))
}

/// `hipGetDeviceCount`.
pub(crate) extern "C" fn count(out: Out<i32>) -> Error {
    let count = || {
        module::any_device()?;
        give(
            out,
            i32::try_from(system()?.devices.len()).unwrap_or(i32::MAX),
        )
    };
    outcome(count())
}

/// `hipGetDevice`.
pub(crate) extern "C" fn get(out: Out<i32>) -> Error {
    let get = || give(out, i32::try_from(current()?.index).unwrap_or(i32::MAX));
    outcome(get())
}

/// `hipDeviceGet`.
pub(crate) extern "C" fn device_get(out: Out<i32>, index: i32) -> Error {
    outcome(by_index(index).and_then(|_| give(out, index)))
}

/// `hipDeviceGetName`.
pub(crate) extern "C" fn name(out: Untyped, length: i32, index: i32) -> Error {
    let name = || {
        let length = usize::try_from(length).map_err(|_| Error::INVALID_VALUE)?;
        let put = out.put_text(&by_index(index)?.name, length);
        if put {
            Ok(())
        } else {
            Err(Error::INVALID_VALUE)
        }
    };
    outcome(name())
}

/// `hipDeviceTotalMem`.
pub(crate) extern "C" fn total_memory(out: Out<usize>, index: i32) -> Error {
    let total = || {
        give(
            out,
            usize::try_from(by_index(index)?.memory_bytes).unwrap_or(usize::MAX),
        )
    };
    outcome(total())
}

/// Compute capability: 9.0 for `gfx906`, 10.3 for `gfx1030`.
fn capability(device: &Device) -> (i32, i32) {
    let digits = device.gfx.strip_prefix("gfx").unwrap_or_default();
    let major_digits = digits.len().saturating_sub(2);
    let number = |part: Option<&str>| part.and_then(|part| part.parse().ok()).unwrap_or(0);
    (
        number(digits.get(..major_digits)),
        number(digits.get(major_digits..major_digits + 1)),
    )
}

/// `hipDeviceGetAttribute`, for attributes that programs usually query.
pub(crate) extern "C" fn attribute(out: Out<i32>, attribute: u32, index: i32) -> Error {
    const COMPUTE_CAPABILITY_MAJOR: u32 = 23;
    const MAX_THREADS_PER_BLOCK: u32 = 56;
    const COMPUTE_CAPABILITY_MINOR: u32 = 61;
    const MULTIPROCESSOR_COUNT: u32 = 63;
    const WARP_SIZE: u32 = 87;
    const MEMORY_POOLS_SUPPORTED: u32 = 88;
    let get = || {
        let device = by_index(index)?;
        let (major, minor) = capability(device);
        let value = match attribute {
            COMPUTE_CAPABILITY_MAJOR => major,
            COMPUTE_CAPABILITY_MINOR => minor,
            MAX_THREADS_PER_BLOCK => 1024,
            MULTIPROCESSOR_COUNT => device.compute_units.cast_signed(),
            WARP_SIZE => device.wave.cast_signed(),
            MEMORY_POOLS_SUPPORTED => 1,
            _ => return Err(Error::INVALID_VALUE),
        };
        give(out, value)
    };
    outcome(get())
}

/// Offsets of the fields in a release's `hipDeviceProp_t`, in bytes.
struct Properties {
    bytes: usize,
    memory: usize,
    /// 32-bit fields: LDS per block (64 bits), registers, wave size, threads per block, block
    /// dimensions, grid dimensions, major, minor, compute units, threads per compute unit,
    /// concurrent kernels, bus id.
    shared: usize,
    registers: usize,
    wave: usize,
    block_threads: usize,
    block_sides: usize,
    grid_sides: usize,
    clock: usize,
    major: usize,
    minor: usize,
    units: usize,
    unit_threads: usize,
    concurrent: usize,
    bus: usize,
    host_memory: usize,
    architecture: usize,
    cooperative: usize,
    managed: usize,
}

/// `hipDeviceProp_tR0000`: ROCm 5.
const R0000: Properties = Properties {
    bytes: 792,
    memory: 256,
    shared: 264,
    registers: 272,
    wave: 276,
    block_threads: 280,
    block_sides: 284,
    grid_sides: 296,
    clock: 308,
    major: 328,
    minor: 332,
    units: 336,
    unit_threads: 344,
    concurrent: 360,
    bus: 368,
    host_memory: 388,
    architecture: 396,
    cooperative: 656,
    managed: 772,
};

/// `hipDeviceProp_tR0600`: ROCm 6.
const R0600: Properties = Properties {
    bytes: 1472,
    memory: 288,
    shared: 296,
    registers: 304,
    wave: 308,
    block_threads: 320,
    block_sides: 324,
    grid_sides: 336,
    clock: 348,
    major: 360,
    minor: 364,
    units: 388,
    unit_threads: 624,
    concurrent: 576,
    bus: 584,
    host_memory: 400,
    architecture: 1160,
    cooperative: 688,
    managed: 652,
};

fn properties(out: Untyped, index: i32, at: &Properties) -> Hip {
    let device = by_index(index)?;
    if !out.put_bytes(&vec![0; at.bytes]) {
        return Err(Error::INVALID_VALUE);
    }
    let (major, minor) = capability(device);
    out.put_text(&device.name, 256);
    out.add(at.architecture).put_text(&device.gfx, 256);
    out.add(at.memory).put(device.memory_bytes);
    out.add(at.shared).put(64_u64 << 10);
    let sides = [1024, 1024, 1024];
    for (axis, side) in sides.into_iter().enumerate() {
        out.add(at.block_sides + 4 * axis).put(side);
        out.add(at.grid_sides + 4 * axis).put(i32::MAX);
    }
    for (offset, value) in [
        (at.registers, 65_536),
        (at.wave, device.wave.cast_signed()),
        (at.block_threads, 1024),
        (at.clock, 1_700_000),
        (at.major, major),
        (at.minor, minor),
        (at.units, device.compute_units.cast_signed()),
        (at.unit_threads, 2_560),
        (at.concurrent, 1),
        (at.bus, i32::try_from(device.index + 1).unwrap_or(0)),
        (at.host_memory, 1),
        (at.cooperative, 1),
        (at.managed, 1),
    ] {
        out.add(offset).put(value);
    }
    Ok(())
}

/// `hipGetDeviceProperties`, `hipGetDevicePropertiesR0000`.
pub(crate) extern "C" fn properties_r0000(out: Untyped, index: i32) -> Error {
    outcome(properties(out, index, &R0000))
}

/// `hipGetDevicePropertiesR0600`.
pub(crate) extern "C" fn properties_r0600(out: Untyped, index: i32) -> Error {
    outcome(properties(out, index, &R0600))
}

/// `hipDeviceCanAccessPeer`: every GPU can access all memory of the process.
pub(crate) extern "C" fn can_access_peer(out: Out<i32>, index: i32, peer: i32) -> Error {
    let can = || {
        by_index(index)?;
        by_index(peer)?;
        give(out, i32::from(index != peer))
    };
    outcome(can())
}

/// `hipDeviceEnablePeerAccess`.
pub(crate) extern "C" fn enable_peer_access(peer: i32, _flags: u32) -> Error {
    outcome(by_index(peer).map(|_| ()))
}

/// `hipDeviceSynchronize`, `hipDeviceReset`.
pub(crate) extern "C" fn synchronize() -> Error {
    outcome(current().and_then(stream::synchronize_device))
}

/// `hipDeviceGetStreamPriorityRange`.
pub(crate) extern "C" fn priority_range(least: Out<i32>, greatest: Out<i32>) -> Error {
    least.put(1);
    greatest.put(-1);
    Error::SUCCESS
}

/// `hipStreamCreateWithPriority`.
pub(crate) extern "C" fn stream_create_with_priority(
    out: Out<u64>,
    flags: u32,
    priority: i32,
) -> Error {
    let create = || {
        if flags > stream::NON_BLOCKING {
            return Err(Error::INVALID_VALUE);
        }
        let stream = Stream::new(current()?, flags, priority.clamp(-1, 1), false)?;
        give(out, stream::add(stream))
    };
    outcome(create())
}

/// `hipStreamCreateWithFlags`.
pub(crate) extern "C" fn stream_create_with_flags(out: Out<u64>, flags: u32) -> Error {
    stream_create_with_priority(out, flags, 0)
}

/// `hipStreamCreate`.
pub(crate) extern "C" fn stream_create(out: Out<u64>) -> Error {
    stream_create_with_flags(out, 0)
}

/// `hipStreamDestroy`.
pub(crate) extern "C" fn stream_destroy(stream: u64) -> Error {
    let destroy = || {
        let gone = stream::find(stream)?;
        gone.finish()?;
        stream::remove(stream).map(drop)
    };
    outcome(destroy())
}

/// `hipStreamSynchronize`.
pub(crate) extern "C" fn stream_synchronize(stream: u64) -> Error {
    outcome(stream::find(stream).and_then(|stream| stream.finish()))
}

/// `hipStreamQuery`.
pub(crate) extern "C" fn stream_query(stream: u64) -> Error {
    let query = || match stream::find(stream)?.completion()? {
        Some(completion) if hsa::hsa_signal_load_relaxed(completion.signal) > 0 => {
            Err(Error::NOT_READY)
        }
        _ => Ok(()),
    };
    outcome(query())
}

/// `hipStreamGetFlags`.
pub(crate) extern "C" fn stream_flags(stream: u64, out: Out<u32>) -> Error {
    outcome(stream::find(stream).and_then(|stream| give(out, stream.flags)))
}

/// `hipStreamGetPriority`.
pub(crate) extern "C" fn stream_priority(stream: u64, out: Out<i32>) -> Error {
    outcome(stream::find(stream).and_then(|stream| give(out, stream.priority)))
}

/// `hipStreamWaitEvent`.
pub(crate) extern "C" fn stream_wait_event(stream: u64, event: u64, _flags: u32) -> Error {
    let wait = || {
        let completion = event::find(event)?.completion();
        let stream = stream::find(stream)?;
        let mut work = stream.begin()?;
        if let (Some(completion), None) = (completion, &work.capture) {
            work.wait_for(completion);
        }
        Ok(())
    };
    outcome(wait())
}

/// A host function that a stream calls.
struct Call {
    function: Function,
    argument: Untyped,
    /// Holds the stream back until the function has returned.
    done: Arc<signals::Completion>,
}

/// The two kinds of host functions.
enum Function {
    /// `hipStreamCallback_t` and its stream.
    Callback(extern "C" fn(u64, Error, Untyped), u64),
    /// `hipHostFn_t`.
    Host(extern "C" fn(Untyped)),
}

extern "C" fn run_call(_value: i64, call: Untyped) -> bool {
    // SAFETY: `call_later` made it from a box and handed it over once; the handler asks not to be
    // called again.
    let call = unsafe { Box::from_raw(call.0.cast::<Call>()) };
    match call.function {
        Function::Callback(function, stream) => function(stream, Error::SUCCESS, call.argument),
        Function::Host(function) => function(call.argument),
    }
    hsa::hsa_signal_subtract_relaxed(call.done.signal, 1);
    false
}

fn call_later(stream: u64, function: Function, argument: Untyped) -> Hip {
    const LESS: u32 = 2;
    let found = stream::find(stream)?;
    let mut work = found.begin()?;
    if work.capture.is_some() {
        return Err(Error::NOT_SUPPORTED);
    }
    let before = found.marker(&mut work)?;
    let done = signals::create(1)?;
    work.wait_for(Arc::clone(&done));
    let call = Box::into_raw(Box::new(Call {
        function,
        argument,
        done,
    }));
    let signal: Signal = before.signal;
    work.keep(before);
    check(hsa::hsa_amd_signal_async_handler(
        signal,
        LESS,
        1,
        run_call,
        Untyped(call.cast()),
    ))
}

/// `hipStreamAddCallback`.
pub(crate) extern "C" fn stream_add_callback(
    stream: u64,
    function: Option<extern "C" fn(u64, Error, Untyped)>,
    argument: Untyped,
    _flags: u32,
) -> Error {
    let add = || {
        let function = function.ok_or(Error::INVALID_VALUE)?;
        call_later(stream, Function::Callback(function, stream), argument)
    };
    outcome(add())
}

/// `hipLaunchHostFunc`.
pub(crate) extern "C" fn launch_host_function(
    stream: u64,
    function: Option<extern "C" fn(Untyped)>,
    argument: Untyped,
) -> Error {
    let launch = || {
        let function = function.ok_or(Error::INVALID_VALUE)?;
        call_later(stream, Function::Host(function), argument)
    };
    outcome(launch())
}

/// `hipEventCreateWithFlags`.
pub(crate) extern "C" fn event_create_with_flags(out: Out<u64>, flags: u32) -> Error {
    outcome(give(out, event::create(flags)))
}

/// `hipEventCreate`.
pub(crate) extern "C" fn event_create(out: Out<u64>) -> Error {
    event_create_with_flags(out, 0)
}

/// `hipEventDestroy`.
pub(crate) extern "C" fn event_destroy(event: u64) -> Error {
    outcome(event::destroy(event))
}

/// `hipEventRecord`.
pub(crate) extern "C" fn event_record(event: u64, stream: u64) -> Error {
    let record = || {
        let event = event::find(event)?;
        let stream = stream::find(stream)?;
        let mut work = stream.begin()?;
        if work.capture.is_none() {
            let completion = stream.marker(&mut work)?;
            event.record(completion, stream.agent(), Moment::End);
        }
        Ok(())
    };
    outcome(record())
}

/// `hipEventSynchronize`.
pub(crate) extern "C" fn event_synchronize(event: u64) -> Error {
    outcome(event::find(event).map(|event| event.synchronize()))
}

/// `hipEventQuery`.
pub(crate) extern "C" fn event_query(event: u64) -> Error {
    let query = || {
        if event::find(event)?.query() {
            Ok(())
        } else {
            Err(Error::NOT_READY)
        }
    };
    outcome(query())
}

/// `hipEventElapsedTime`.
pub(crate) extern "C" fn event_elapsed_time(out: Out<f32>, from: u64, to: u64) -> Error {
    let elapsed = || {
        give(
            out,
            event::elapsed(&*event::find(from)?, &*event::find(to)?)?,
        )
    };
    outcome(elapsed())
}

/// `hipKernelNameRef`: the name lives as long as the module.
pub(crate) extern "C" fn kernel_name(function: u64) -> Text {
    name_of(module::kernel_of_function(function))
}

/// `hipKernelNameRefByPtr`.
pub(crate) extern "C" fn kernel_name_by_pointer(host: u64, _stream: u64) -> Text {
    name_of(current().and_then(|device| module::kernel_of(host, device.index)))
}

fn name_of(kernel: Hip<Arc<module::Kernel>>) -> Text {
    kernel.map_or(Text::from(None), |kernel| kernel.c_name.into())
}
