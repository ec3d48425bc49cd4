//! Exported functions: memory, copies, fills.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use gputrace_simrocm_core::ffi::{In, Out, Untyped};

use crate::copy::{self, Copy, Fill, Rows};
use crate::device::{current, device};
use crate::error::{Error, Hip, give, outcome};
use crate::graph::Node;
use crate::memory::{self, Place};
use crate::stream;

/// `hipMalloc`.
pub(crate) extern "C" fn malloc(out: Out<u64>, bytes: usize) -> Error {
    let allocate = || give(out, memory::on_device(current()?, bytes)?);
    outcome(allocate())
}

/// `hipMallocAsync`: allocates at once.
pub(crate) extern "C" fn malloc_async(out: Out<u64>, bytes: usize, stream: u64) -> Error {
    let allocate = || give(out, memory::on_device(stream::find(stream)?.device, bytes)?);
    outcome(allocate())
}

/// `hipMallocManaged`.
pub(crate) extern "C" fn malloc_managed(out: Out<u64>, bytes: usize, flags: u32) -> Error {
    let allocate = || give(out, memory::on_host(bytes, Place::Managed, flags)?);
    outcome(allocate())
}

/// `hipHostMalloc`, `hipHostAlloc`.
pub(crate) extern "C" fn host_malloc(out: Out<u64>, bytes: usize, flags: u32) -> Error {
    let allocate = || give(out, memory::on_host(bytes, Place::Host, flags)?);
    outcome(allocate())
}

/// `hipMallocHost`.
pub(crate) extern "C" fn malloc_host(out: Out<u64>, bytes: usize) -> Error {
    host_malloc(out, bytes, 0)
}

/// `hipMallocPitch`: rows begin at multiples of 512 bytes.
pub(crate) extern "C" fn malloc_pitch(
    out: Out<u64>,
    pitch: Out<usize>,
    width: usize,
    height: usize,
) -> Error {
    let allocate = || {
        let wide = width
            .checked_next_multiple_of(512)
            .ok_or(Error::INVALID_VALUE)?;
        let bytes = wide.checked_mul(height).ok_or(Error::INVALID_VALUE)?;
        give(pitch, wide)?;
        give(out, memory::on_device(current()?, bytes)?)
    };
    outcome(allocate())
}

/// `hipFree`, `hipHostFree`, `hipFreeHost`.
pub(crate) extern "C" fn free(memory: u64) -> Error {
    outcome(memory::free(memory))
}

/// `hipFreeAsync`: frees after the stream's work in flight.
pub(crate) extern "C" fn free_async(memory: u64, stream: u64) -> Error {
    outcome(stream::find(stream).and_then(|_| memory::free(memory)))
}

/// Pools created by programs (`hipMemPool_t`), with their devices.
static POOLS: Mutex<BTreeMap<u64, usize>> = Mutex::new(BTreeMap::new());

fn pools() -> MutexGuard<'static, BTreeMap<u64, usize>> {
    POOLS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The beginning of `hipMemPoolProps`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct PoolProperties {
    allocation: u32,
    handles: u32,
    location: u32,
    device: i32,
}

/// `hipMemPoolCreate`. Pools retain nothing: freed memory is released at once.
pub(crate) extern "C" fn pool_create(out: Out<u64>, properties: In<PoolProperties>) -> Error {
    let create = || {
        let properties = properties.get().ok_or(Error::INVALID_VALUE)?;
        let index = usize::try_from(properties.device).map_err(|_| Error::INVALID_DEVICE)?;
        device(index)?;
        let mut pools = pools();
        let handle = pools
            .keys()
            .next_back()
            .map_or(0x7b00_0000, |last| last + 16);
        pools.insert(handle, index);
        give(out, handle)
    };
    outcome(create())
}

/// `hipMemPoolDestroy`.
pub(crate) extern "C" fn pool_destroy(pool: u64) -> Error {
    outcome(pools().remove(&pool).map(drop).ok_or(Error::INVALID_VALUE))
}

/// `hipMemPoolSetAttribute`: sets how much a pool retains, which is nothing here.
pub(crate) extern "C" fn pool_set_attribute(pool: u64, _attribute: u32, _value: Untyped) -> Error {
    pool_trim(pool, 0)
}

/// `hipMemPoolTrimTo`.
pub(crate) extern "C" fn pool_trim(pool: u64, _keep: usize) -> Error {
    outcome(pools().get(&pool).map(|_| ()).ok_or(Error::INVALID_VALUE))
}

/// `hipMallocFromPoolAsync`.
pub(crate) extern "C" fn malloc_from_pool(
    out: Out<u64>,
    bytes: usize,
    pool: u64,
    stream: u64,
) -> Error {
    let allocate = || {
        stream::find(stream)?;
        let index = pools().get(&pool).copied().ok_or(Error::INVALID_VALUE)?;
        give(out, memory::on_device(device(index)?, bytes)?)
    };
    outcome(allocate())
}

/// `hipMemGetInfo`.
pub(crate) extern "C" fn get_info(free: Out<usize>, total: Out<usize>) -> Error {
    let say = || {
        let device = current()?;
        let all = usize::try_from(device.memory_bytes).unwrap_or(usize::MAX);
        let used = usize::try_from(memory::used(device)).unwrap_or(usize::MAX);
        give(free, all.saturating_sub(used))?;
        give(total, all)
    };
    outcome(say())
}

/// `hipHostRegister`.
pub(crate) extern "C" fn host_register(memory: Untyped, bytes: usize, flags: u32) -> Error {
    outcome(memory::register(memory, bytes, flags))
}

/// `hipHostUnregister`.
pub(crate) extern "C" fn host_unregister(memory: Untyped) -> Error {
    outcome(memory::unregister(memory))
}

/// `hipHostGetDevicePointer`: the same address.
pub(crate) extern "C" fn host_get_device_pointer(out: Out<u64>, memory: u64, _flags: u32) -> Error {
    let known = memory::place(memory).ok_or(Error::INVALID_VALUE);
    outcome(known.and_then(|_| give(out, memory)))
}

/// `hipPointerAttribute_t` of ROCm 6.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct PointerAttributes {
    kind: u32,
    device: i32,
    device_pointer: u64,
    host_pointer: u64,
    managed: i32,
    flags: u32,
}

/// `hipPointerGetAttributes`.
pub(crate) extern "C" fn pointer_get_attributes(out: Out<PointerAttributes>, memory: u64) -> Error {
    let (_, _, place, flags) = match memory::describe(memory) {
        Some(found) => found,
        None => return outcome(Err(Error::INVALID_VALUE)),
    };
    let (kind, device) = match place {
        Place::Device(index) => (2, index),
        Place::Host | Place::Registered => (1, 0),
        Place::Managed => (3, 0),
    };
    let attributes = PointerAttributes {
        kind,
        device: i32::try_from(device).unwrap_or(0),
        device_pointer: memory,
        host_pointer: if kind == 2 { 0 } else { memory },
        managed: i32::from(place == Place::Managed),
        flags,
    };
    outcome(give(out, attributes))
}

/// Submits a copy on a stream, or captures it.
fn submit(one: Copy, stream: u64, wait: bool) -> Hip {
    let stream = stream::find(stream)?;
    let mut work = stream.begin()?;
    match &mut work.capture {
        Some(graph) if !wait => {
            graph.nodes.push(Node::Copy(one));
            Ok(())
        }
        Some(_) => Err(Error(906)),
        None => copy::copy(&stream, &mut work, one, wait),
    }
}

/// Largest valid `hipMemcpyKind`: `hipMemcpyDefault`.
const LAST_KIND: u32 = 4;

/// `hipMemcpyWithStream`.
pub(crate) extern "C" fn memcpy_with_stream(
    destination: Untyped,
    source: Untyped,
    bytes: usize,
    kind: u32,
    stream: u64,
) -> Error {
    if kind > LAST_KIND {
        return outcome(Err(Error::INVALID_DIRECTION));
    }
    let one = Copy {
        destination,
        source,
        bytes,
    };
    outcome(submit(one, stream, true))
}

/// `hipMemcpy`.
pub(crate) extern "C" fn memcpy(
    destination: Untyped,
    source: Untyped,
    bytes: usize,
    kind: u32,
) -> Error {
    memcpy_with_stream(destination, source, bytes, kind, 0)
}

/// `hipMemcpyAsync`.
pub(crate) extern "C" fn memcpy_async(
    destination: Untyped,
    source: Untyped,
    bytes: usize,
    kind: u32,
    stream: u64,
) -> Error {
    if kind > LAST_KIND {
        return outcome(Err(Error::INVALID_DIRECTION));
    }
    let one = Copy {
        destination,
        source,
        bytes,
    };
    outcome(submit(one, stream, false))
}

/// `hipMemcpyHtoD`, `hipMemcpyDtoH`, `hipMemcpyDtoD`: the directions follow from the addresses.
pub(crate) extern "C" fn memcpy_directed(
    destination: Untyped,
    source: Untyped,
    bytes: usize,
) -> Error {
    memcpy(destination, source, bytes, LAST_KIND)
}

/// The asynchronous forms of these.
pub(crate) extern "C" fn memcpy_directed_async(
    destination: Untyped,
    source: Untyped,
    bytes: usize,
    stream: u64,
) -> Error {
    memcpy_async(destination, source, bytes, LAST_KIND, stream)
}

/// `hipMemcpyPeer`.
pub(crate) extern "C" fn memcpy_peer(
    destination: Untyped,
    _to: i32,
    source: Untyped,
    _from: i32,
    bytes: usize,
) -> Error {
    memcpy(destination, source, bytes, LAST_KIND)
}

/// `hipMemcpyPeerAsync`.
pub(crate) extern "C" fn memcpy_peer_async(
    destination: Untyped,
    _to: i32,
    source: Untyped,
    _from: i32,
    bytes: usize,
    stream: u64,
) -> Error {
    memcpy_async(destination, source, bytes, LAST_KIND, stream)
}

/// Submits a copy of rows.
fn submit_rows(rows: Rows, stream: u64, wait: bool) -> Hip {
    let stream = stream::find(stream)?;
    let mut work = stream.begin()?;
    if work.capture.is_some() {
        return Err(Error::NOT_SUPPORTED);
    }
    copy::rows(&stream, &mut work, rows, wait)
}

/// `hipMemcpy2D`.
pub(crate) extern "C" fn memcpy_2d(
    destination: Untyped,
    destination_pitch: usize,
    source: Untyped,
    source_pitch: usize,
    width: usize,
    height: usize,
    _kind: u32,
) -> Error {
    let rows = Rows {
        destination,
        destination_pitch,
        source,
        source_pitch,
        width,
        height,
    };
    outcome(submit_rows(rows, 0, true))
}

/// `hipMemcpy2DAsync`.
pub(crate) extern "C" fn memcpy_2d_async(
    destination: Untyped,
    destination_pitch: usize,
    source: Untyped,
    source_pitch: usize,
    width: usize,
    height: usize,
    _kind: u32,
    stream: u64,
) -> Error {
    let rows = Rows {
        destination,
        destination_pitch,
        source,
        source_pitch,
        width,
        height,
    };
    outcome(submit_rows(rows, stream, false))
}

/// Submits a fill, or captures it.
fn submit_fill(
    destination: u64,
    pattern: u32,
    pattern_bytes: u32,
    count: usize,
    stream: u64,
) -> Error {
    let submit = || {
        let bytes = count
            .checked_mul(pattern_bytes as usize)
            .ok_or(Error::INVALID_VALUE)?;
        let (start, length, ..) = memory::describe(destination).ok_or(Error::INVALID_VALUE)?;
        let left = (start + length as u64).saturating_sub(destination);
        if bytes as u64 > left {
            return Err(Error::INVALID_VALUE);
        }
        let fill = Fill {
            destination,
            bytes,
            pattern,
            pattern_bytes,
        };
        let stream = stream::find(stream)?;
        let mut work = stream.begin()?;
        if let Some(graph) = &mut work.capture {
            graph.nodes.push(Node::Fill(fill));
            return Ok(());
        }
        copy::fill(&stream, &mut work, fill)
    };
    outcome(submit())
}

/// `hipMemsetAsync`.
pub(crate) extern "C" fn memset_async(
    destination: u64,
    value: i32,
    bytes: usize,
    stream: u64,
) -> Error {
    submit_fill(destination, value.cast_unsigned() & 0xff, 1, bytes, stream)
}

/// `hipMemset`.
pub(crate) extern "C" fn memset(destination: u64, value: i32, bytes: usize) -> Error {
    memset_async(destination, value, bytes, 0)
}

/// `hipMemsetD8Async`.
pub(crate) extern "C" fn memset_d8_async(
    destination: u64,
    value: u8,
    count: usize,
    stream: u64,
) -> Error {
    submit_fill(destination, value.into(), 1, count, stream)
}

/// `hipMemsetD8`.
pub(crate) extern "C" fn memset_d8(destination: u64, value: u8, count: usize) -> Error {
    memset_d8_async(destination, value, count, 0)
}

/// `hipMemsetD16Async`.
pub(crate) extern "C" fn memset_d16_async(
    destination: u64,
    value: u16,
    count: usize,
    stream: u64,
) -> Error {
    submit_fill(destination, value.into(), 2, count, stream)
}

/// `hipMemsetD16`.
pub(crate) extern "C" fn memset_d16(destination: u64, value: u16, count: usize) -> Error {
    memset_d16_async(destination, value, count, 0)
}

/// `hipMemsetD32Async`.
pub(crate) extern "C" fn memset_d32_async(
    destination: u64,
    value: i32,
    count: usize,
    stream: u64,
) -> Error {
    submit_fill(destination, value.cast_unsigned(), 4, count, stream)
}

/// `hipMemsetD32`.
pub(crate) extern "C" fn memset_d32(destination: u64, value: i32, count: usize) -> Error {
    memset_d32_async(destination, value, count, 0)
}
